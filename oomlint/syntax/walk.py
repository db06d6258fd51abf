"""One walk of our own over a libcst tree.

libcst's visitors look at every comma and blank; most of what they see means nothing to a rule. This walk follows only the
fields that can hold expressions and statements, and notes on its way all that the model asks for later: who encloses whom, what every
scope binds, changes, calls and returns.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import libcst as cst

from oomlint.syntax.nodes import STATEMENTS, UNKNOWN_KEY, block_of, children_of, constant_key, descend, names_in, path_of
from oomlint.syntax.scopes import Effect, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oomlint.syntax.nodes import Accessor, Block

    Held = tuple[set[cst.CSTNode], dict[cst.CSTNode, list[Effect]], dict[cst.CSTNode, list[int]]]

_MUTATORS: Final = {
    "update": "update",
    "append": "append",
    "extend": "extend",
    "insert": "append",
    "add": "append",
    "appendleft": "append",
    "setdefault": "setdefault",
    "pop": "pop",
    "clear": "clear",
    "add_argument": "option",
    **dict.fromkeys(("merge_from_file", "merge_from_other_cfg", "merge_from_dict", "merge_from_list"), "merge"),
}
_CHANGES: Final = frozenset(_MUTATORS.values())
_SETTERS: Final = {"__setattr__": "attr", "__setitem__": "item"}

# In the walk, where the code of a scope ends, and where its definition does.
_CODE: Final = cst.Pass()
_WHOLE: Final = cst.Pass()


class Walk:
    """The result of the walk: parents, scopes, effects, calls."""

    __slots__ = ("_blocks", "_held", "calls", "left_behind", "module", "parents", "root", "scope_of", "scopes", "shared")

    def __init__(self, module: cst.Module) -> None:
        self.module = module
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self.scope_of: dict[cst.CSTNode, Scope] = {}  # definition node -> the scope that it opens
        self.scopes: list[Scope] = []
        self.calls: list[tuple[cst.Call, Scope]] = []
        self.shared: set[str] = set()  # names that some function declares global or nonlocal
        # What is asked of long blocks once for every statement is found out once for all.
        self.left_behind: dict[cst.CSTNode, list[tuple[int, cst.BaseExpression, bool]]] = {}
        self._blocks: dict[cst.CSTNode, tuple[Block, dict[cst.CSTNode, int]]] = {}
        self._held: dict[tuple[Scope, str], Held] = {}
        self.root = self._open(module, None, "")
        self._run()

    def __del__(self) -> None:
        """Scopes refer to each other in circles, and to their nodes: cut apart, they are freed with the walk. None is used beyond it."""
        for scope in self.scopes:
            scope.children = []

    # -- the walk ------------------------------------------------------------------------------------------------

    def _open(self, node: cst.Module | cst.ClassDef | cst.FunctionDef | cst.Lambda, parent: Scope | None, name: str) -> Scope:
        scope = Scope(node, parent, name)
        self.scope_of[node] = scope
        self.scopes.append(scope)
        if parent is not None:
            parent.children.append(scope)
        return scope

    def _run(self) -> None:
        parents = self.parents
        order: list[cst.CSTNode] = [self.module]
        stack: list[tuple[cst.CSTNode, Scope, cst.CSTNode]] = [(child, self.root, child) for child in reversed(self.module.body)]
        for top in self.module.body:
            parents[top] = self.module
        while stack:
            node, scope, statement = stack.pop()
            kind = node.__class__
            if node is _CODE:
                scope.inside = order.index(scope.suite, scope.whole[0]), len(order)
                continue
            if node is _WHOLE:
                scope.whole = scope.whole[0], len(order)
                continue
            order.append(node)
            if kind in STATEMENTS:
                statement = node
            handler = _HANDLERS.get(kind)
            inner = (handler(self, node, scope, statement) if handler is not None else None) or scope
            below = children_of(node)
            for child in below:
                parents[child] = node
            below.reverse()
            if inner is scope:
                stack += [(child, scope, statement) for child in below]
                continue
            inner.whole = len(order) - 1, 0
            # Decorators, base classes and parameter defaults are evaluated outside of what they belong to.
            stack.append((_WHOLE, inner, statement))
            for child in below:
                if child is inner.suite:
                    stack += (_CODE, inner, statement), (child, inner, statement)
                else:
                    stack.append((child, scope, statement))
        self.root.inside = self.root.whole = 0, len(order)
        for scope in self.scopes:
            scope.order = order

    def _effect(self, scope: Scope, effect: Effect) -> None:
        scope.effects.setdefault(effect.root, []).append(effect)
        holders = scope.containing.setdefault(effect.root, set())
        node: cst.CSTNode | None = effect.statement
        while node is not None and node is not scope.node and node not in holders:
            holders.add(node)
            node = self.parents.get(node)
        if effect.root in scope.views:
            if not effect.path and effect.kind not in _CHANGES:
                del scope.views[effect.root]  # it stands for something else from here on
                return
            root, above = scope.views[effect.root]
            inside: tuple[Accessor, ...] = (*above, ("attr", effect.path[0][1]), *effect.path[1:]) if effect.path else above
            self._effect(scope, Effect(root, inside, effect.kind, effect.statement, effect.node, effect.value, effect.index, effect.call))

    # -- handlers, one for each node that binds, changes, calls or returns -----------------------------------------

    def _function(self, node: cst.FunctionDef, scope: Scope, statement: cst.CSTNode) -> Scope:
        self._effect(scope, Effect(node.name.value, (), "def", statement, node))
        return self._open(node, scope, node.name.value)

    def _class(self, node: cst.ClassDef, scope: Scope, statement: cst.CSTNode) -> Scope:
        self._effect(scope, Effect(node.name.value, (), "class", statement, node))
        return self._open(node, scope, node.name.value)

    def _lambda(self, node: cst.Lambda, scope: Scope, statement: cst.CSTNode) -> Scope:
        del statement
        return self._open(node, scope, "<lambda>")

    def _target(
        self, target: cst.CSTNode, scope: Scope, statement: cst.CSTNode, kind: str, value: cst.BaseExpression | None, index: tuple[int, ...] = ()
    ) -> None:
        if isinstance(target, cst.Tuple | cst.List):
            starred = next((n for n, e in enumerate(target.elements) if isinstance(e, cst.StarredElement)), None)
            count = len(target.elements)
            parts = _parted(value, count) if kind == "assign" and starred is None else None
            for number, element in enumerate(target.elements):
                if isinstance(element, cst.StarredElement):
                    self._target(element.value, scope, statement, "unknown", value)
                    continue
                if parts is not None:
                    self._target(element.value, scope, statement, kind, parts[number], index)
                    continue
                # Behind a star the position counts from the end.
                place = number if starred is None or number < starred else number - count
                self._target(element.value, scope, statement, kind, value, (*index, place))
            return
        fields = _object_of_fields(target.value) if isinstance(target, cst.Subscript) else None
        if fields is not None and isinstance(target, cst.Subscript):
            at = target.slice[0].slice if len(target.slice) == 1 else None
            key = constant_key(at.value) if isinstance(at, cst.Index) else UNKNOWN_KEY
            self._effect(scope, Effect(fields[0], (*fields[1], ("attr", key)), kind, statement, target, value, index))
            return
        path = path_of(target)
        if path is None and isinstance(target, cst.Subscript):
            base = path_of(target.value)
            if base is not None:
                self._effect(scope, Effect(base[0], (*base[1], ("item", UNKNOWN_KEY)), kind, statement, target, value, index))
            return
        if path is not None:
            self._effect(scope, Effect(path[0], path[1], kind, statement, target, value, index))

    def _assign(self, node: cst.Assign, scope: Scope, statement: cst.CSTNode) -> None:
        for target in node.targets:
            self._target(target.target, scope, statement, "assign", node.value)
        fields, given = _object_of_fields(node.value), node.targets[0].target
        if fields is not None and isinstance(given, cst.Name) and not scope.views.keys() & {fields[0], given.value} and given.value != fields[0]:
            scope.views[given.value] = fields

    def _ann_assign(self, node: cst.AnnAssign, scope: Scope, statement: cst.CSTNode) -> None:
        if node.value is not None:
            self._target(node.target, scope, statement, "assign", node.value)
        elif scope.is_class:
            self._target(node.target, scope, statement, "declare", None)

    def _aug_assign(self, node: cst.AugAssign, scope: Scope, statement: cst.CSTNode) -> None:
        path = path_of(node.target)
        if path is None and isinstance(node.target, cst.Subscript) and (base := path_of(node.target.value)) is not None:
            path = base[0], (*base[1], ("item", UNKNOWN_KEY))
        if path is not None:
            self._effect(scope, Effect(path[0], path[1], "augment", statement, node, node.value))

    def _named(self, node: cst.NamedExpr, scope: Scope, statement: cst.CSTNode) -> None:
        self._target(node.target, scope, statement, "assign", node.value)

    def _for(self, node: cst.For, scope: Scope, statement: cst.CSTNode) -> None:
        scope.loops.append(node)
        self._target(node.target, scope, statement, "for", node.iter)

    def _while(self, node: cst.While, scope: Scope, statement: cst.CSTNode) -> None:
        del self, statement
        scope.loops.append(node)

    def _comprehension(self, node: cst.BaseComp, scope: Scope, statement: cst.CSTNode) -> None:
        del self, statement
        scope.comprehensions.append(node)
        if isinstance(node, cst.ListComp):
            scope.rows.append(node)

    def _try(self, node: cst.Try, scope: Scope, statement: cst.CSTNode) -> None:
        del self, statement
        scope.tries.append(node)

    def _with_item(self, node: cst.WithItem, scope: Scope, statement: cst.CSTNode) -> None:
        if node.asname is not None:
            self._target(node.asname.name, scope, statement, "with", node.item)

    def _except(self, node: cst.ExceptHandler, scope: Scope, statement: cst.CSTNode) -> None:
        if node.name is not None:
            self._target(node.name.name, scope, statement, "unknown", None)

    def _del(self, node: cst.Del, scope: Scope, statement: cst.CSTNode) -> None:
        elements = [e.value for e in node.target.elements] if isinstance(node.target, cst.Tuple) else [node.target]
        for element in elements:
            self._target(element, scope, statement, "delete", None)

    def _import(self, node: cst.Import, scope: Scope, statement: cst.CSTNode) -> None:
        for alias in node.names:
            if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
                self._effect(scope, Effect(alias.asname.name.value, (), "import", statement, alias))
            else:
                root: cst.CSTNode = alias.name
                while isinstance(root, cst.Attribute):
                    root = root.value
                if isinstance(root, cst.Name):
                    self._effect(scope, Effect(root.value, (), "import", statement, alias))

    def _import_from(self, node: cst.ImportFrom, scope: Scope, statement: cst.CSTNode) -> None:
        if isinstance(node.names, cst.ImportStar):
            self._effect(scope, Effect("*", (), "star", statement, node))
            return
        for alias in node.names:
            name = alias.asname.name if alias.asname is not None else alias.name
            if isinstance(name, cst.Name):
                self._effect(scope, Effect(name.value, (), "from", statement, alias))

    def _global(self, node: cst.Global | cst.Nonlocal, scope: Scope, statement: cst.CSTNode) -> None:
        del statement
        self.shared.update(item.name.value for item in node.names)
        if isinstance(node, cst.Nonlocal):
            scope.enclosing.update(item.name.value for item in node.names)
            return
        scope.outer.update(item.name.value for item in node.names)

    def _return(self, node: cst.Return, scope: Scope, statement: cst.CSTNode) -> None:
        del statement
        scope.returns.append(node)

    def _yield(self, node: cst.Yield, scope: Scope, statement: cst.CSTNode) -> None:
        del node, statement
        scope.yields = True

    def _call(self, node: cst.Call, scope: Scope, statement: cst.CSTNode) -> None:
        scope.calls.append(node)
        self.calls.append((node, scope))
        if isinstance(node.func, cst.Attribute):
            kind = _MUTATORS.get(node.func.attr.value)
            if kind is not None:
                path = _object_of_fields(node.func.value) or path_of(node.func.value)
                if path is not None:
                    value = node.args[-1].value if node.args else None
                    self._effect(scope, Effect(path[0], path[1], kind, statement, node, value, (), node))
            elif node.func.attr.value in _SETTERS and len(node.args) == 2:  # noqa: PLR2004
                path, key = path_of(node.func.value), constant_key(node.args[0].value)
                if path is not None:
                    way: Accessor = (_SETTERS[node.func.attr.value], key)
                    self._effect(scope, Effect(path[0], (*path[1], way), "assign", statement, node, node.args[1].value))
        elif isinstance(node.func, cst.Name) and node.func.value == "delattr" and len(node.args) == 2:  # noqa: PLR2004
            path = path_of(node.args[0].value)
            if path is not None:
                gone: Accessor = ("attr", constant_key(node.args[1].value))
                self._effect(scope, Effect(path[0], (*path[1], gone), "delete", statement, node))
        elif isinstance(node.func, cst.Name) and node.func.value == "setattr" and len(node.args) == 3:  # noqa: PLR2004
            path = path_of(node.args[0].value)
            key = constant_key(node.args[1].value)
            if path is not None:
                accessor: Accessor = ("attr", key)
                # `setattr(args, key, saved[key])`: one of the settings that were saved, whatever they are.
                value = None if key is UNKNOWN_KEY and _is_setting(node.args[2].value, node.args[1].value) else node.args[2].value
                self._effect(scope, Effect(path[0], (*path[1], accessor), "assign", statement, node, value))

    # -- questions -----------------------------------------------------------------------------------------------

    def statement_of(self, node: cst.CSTNode) -> cst.CSTNode:
        """The small or compound statement that ``node`` stands in."""
        here: cst.CSTNode | None = node
        while here is not None and here.__class__ not in STATEMENTS and here is not self.module:
            here = self.parents.get(here)
        return here if here is not None else node

    def is_word(self, node: cst.CSTNode) -> bool:
        """Whether a name is the word of an attribute or of a keyword, and stands for nothing by itself."""
        above = self.parents.get(node)
        return (isinstance(above, cst.Attribute) and above.attr is node) or (isinstance(above, cst.Arg) and above.keyword is node)

    def is_target(self, node: cst.CSTNode) -> bool:
        """Whether something is given to the expression: ``d[:] = a`` writes."""
        child, here = node, self.parents.get(node)
        while isinstance(here, cst.Element | cst.Tuple | cst.List):
            child, here = here, self.parents.get(here)
        bound = isinstance(here, cst.AugAssign | cst.For | cst.CompFor | cst.NamedExpr) and here.target is child
        return bound or isinstance(here, cst.AssignTarget | cst.Del)

    def bound_to(self, node: cst.CSTNode) -> list[tuple[str, tuple[Accessor, ...]]]:
        """The names and attributes that an assignment gives this very value: ``a = x``, ``a, b = x, y``."""
        holder = self.parents.get(node)
        place: int | None = None
        if isinstance(holder, cst.Element):
            row = self.parents.get(holder)
            if not isinstance(row, cst.Tuple | cst.List):
                return []
            place = next(n for n, element in enumerate(row.elements) if element is holder)
            holder = self.parents.get(row)
        if not isinstance(holder, cst.Assign | cst.AnnAssign):
            return []
        targets: list[cst.CSTNode] = [t.target for t in holder.targets] if isinstance(holder, cst.Assign) else [holder.target]
        if place is not None:
            rows = [t.elements for t in targets if isinstance(t, cst.Tuple | cst.List)]
            targets = [row[place].value for row in rows if place < len(row) and not any(isinstance(e, cst.StarredElement) for e in row)]
        return [path for target in targets if (path := path_of(target)) is not None]

    def scope_at(self, node: cst.CSTNode) -> Scope:
        """The innermost scope whose code ``node`` belongs to (a default or decorator belongs to the scope outside)."""
        child: cst.CSTNode = node
        here = self.parents.get(node)
        while here is not None:
            scope = self.scope_of.get(here)
            if scope is not None and (here is self.module or child is getattr(here, "body", None)):
                return scope
            child, here = here, self.parents.get(here)
        return self.root

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Enclosing nodes, nearest first."""
        here = self.parents.get(node)
        while here is not None:
            yield here
            here = self.parents.get(here)

    def between(self, node: cst.CSTNode, end: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Enclosing nodes, nearest first, as far as ``end``, which is none of them."""
        return takewhile(lambda here: here is not end, self.ancestors(node))

    def block(self, holder: cst.CSTNode) -> tuple[Block, dict[cst.CSTNode, int]]:
        """The statements of a suite or module, and the number of each; a line's is that of its first statement."""
        known = self._blocks.get(holder)
        if known is None:
            statements = block_of(holder)
            places = {statement: number for number, statement in enumerate(statements)}
            for statement, number in [*places.items()][::-1]:
                line = self.parents.get(statement)
                if line is not holder and line is not None:
                    places[line] = number
            known = self._blocks[holder] = (statements, places)
        return known

    def held(self, scope: Scope, root: str) -> Held:
        """What happens to a name in a scope, by statement; what holds such statements; and by block the numbers of those that do, in order."""
        known = self._held.get((scope, root))
        if known is None:
            effects: dict[cst.CSTNode, list[Effect]] = {}
            for effect in scope.effects.get(root, ()):
                effects.setdefault(effect.statement, []).append(effect)
            known = self._held[scope, root] = self._numbered(scope.containing.get(root, set()), effects)
        return known

    def held_with(self, scope: Scope, root: str, calls: Sequence[Effect]) -> Held:
        """The same with what functions do that are called: before what their statements do themselves with what they give."""
        holders, known, _ = self.held(scope, root)
        holders, effects = set(holders), dict(known)
        for effect in reversed(calls):
            effects[effect.statement] = [effect, *effects.get(effect.statement, ())]
            holders.update((effect.statement, *self.between(effect.statement, scope.node)))
        return self._numbered(holders, effects)

    def _numbered(self, holders: set[cst.CSTNode], effects: dict[cst.CSTNode, list[Effect]]) -> Held:
        numbers: dict[cst.CSTNode, set[int]] = {}
        for statement in holders:
            holder = self.parents.get(statement)
            if holder.__class__ is cst.SimpleStatementLine and holder is not None:
                holder = self.parents.get(holder)
            if isinstance(holder, cst.IndentedBlock | cst.SimpleStatementSuite | cst.Module):
                number = self.block(holder)[1].get(statement)
                if number is not None and statement.__class__ is not cst.SimpleStatementLine:
                    numbers.setdefault(holder, set()).add(number)
        return holders, effects, {holder: sorted(each) for holder, each in numbers.items()}

    def body(self, scope: Scope) -> Block:
        """Statements of a scope."""
        if isinstance(scope.node, cst.Lambda):
            return ()
        return block_of(scope.node.body if not isinstance(scope.node, cst.Module) else scope.node)


_HANDLERS: dict[type, Callable[[Walk, Any, Scope, cst.CSTNode], Scope | None]] = {
    cst.FunctionDef: Walk._function,  # noqa: SLF001 - the table belongs to the class
    cst.ClassDef: Walk._class,  # noqa: SLF001
    cst.Lambda: Walk._lambda,  # noqa: SLF001
    cst.Assign: Walk._assign,  # noqa: SLF001
    cst.AnnAssign: Walk._ann_assign,  # noqa: SLF001
    cst.AugAssign: Walk._aug_assign,  # noqa: SLF001
    cst.NamedExpr: Walk._named,  # noqa: SLF001
    cst.For: Walk._for,  # noqa: SLF001
    cst.While: Walk._while,  # noqa: SLF001
    cst.ListComp: Walk._comprehension,  # noqa: SLF001
    cst.SetComp: Walk._comprehension,  # noqa: SLF001
    cst.DictComp: Walk._comprehension,  # noqa: SLF001
    cst.GeneratorExp: Walk._comprehension,  # noqa: SLF001
    cst.Try: Walk._try,  # noqa: SLF001
    cst.WithItem: Walk._with_item,  # noqa: SLF001
    cst.ExceptHandler: Walk._except,  # noqa: SLF001
    cst.Del: Walk._del,  # noqa: SLF001
    cst.Import: Walk._import,  # noqa: SLF001
    cst.ImportFrom: Walk._import_from,  # noqa: SLF001
    cst.Global: Walk._global,  # noqa: SLF001
    cst.Nonlocal: Walk._global,  # noqa: SLF001
    cst.Return: Walk._return,  # noqa: SLF001
    cst.Yield: Walk._yield,  # noqa: SLF001
    cst.Call: Walk._call,  # noqa: SLF001
}


def _parted(value: cst.BaseExpression | None, count: int) -> list[cst.BaseExpression] | None:
    """What each of several targets is bound to, where the value is written as so many: `a, b = x, y`."""
    elements = value.elements if isinstance(value, cst.Tuple | cst.List) else ()
    parts = [element.value for element in elements if isinstance(element, cst.Element)]
    return parts if len(parts) == len(elements) == count else None


def _object_of_fields(node: cst.BaseExpression) -> tuple[str, tuple[Accessor, ...]] | None:
    """The object whose attributes a mapping holds: ``vars(args)``, ``args.__dict__``."""
    if isinstance(node, cst.Attribute) and node.attr.value == "__dict__":
        return path_of(node.value)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "vars" and len(node.args) == 1:
        return path_of(node.args[0].value)
    return None


def _is_setting(node: cst.BaseExpression, key: cst.BaseExpression) -> bool:
    """Whether an expression has the entry of a mapping under what a key is made of: ``setattr(args, key.lower(), saved[key])``."""
    made_of = names_in(key)
    indices = (part.slice[0].slice for part in descend(node) if isinstance(part, cst.Subscript))
    return any(isinstance(index, cst.Index) and isinstance(index.value, cst.Name) and index.value.value in made_of for index in indices)
