"""Where control never comes: behind what always raises or leaves, and in functions that no call can run.

What raises is a ``raise``, an exit, a name that nothing binds, an import of what a file of the project does not have, a call that does not fit the function
that it is of, and the call of a function that does one of these itself. One answer for all rules.
"""

from __future__ import annotations

from enum import Flag, auto
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import libcst as cst

from oomlint.api_names import CONSTANTS
from oomlint.model import arguments, names
from oomlint.model.fitting import PLAIN_BASES
from oomlint.model.lost_names import in_cells, is_given_names, is_never_bound, lost_names
from oomlint.model.mentions import BY_TEXT, Mentions
from oomlint.model.reach import path_conditions
from oomlint.model.readings import AnswerMemory
from oomlint.model.set_texts import never_so
from oomlint.model.statements import BLOCKS, evaluated, headers, innermost, is_false, is_true, may_swallow
from oomlint.model.unbound import Unbound
from oomlint.model.values import ClassRef, External, FunctionRef, Instance
from oomlint.syntax.nodes import block_of, descend, names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oomlint.finding import Place
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope

_EXITS: Final = frozenset({"sys.exit", "os._exit", "os.abort", "exit", "quit"})
_DEEPEST: Final = 24  # statements and functions, one in another


_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")


class Way(Flag):
    """How control may leave a statement."""

    NOWHERE = 0
    ON = auto()  # to the next one
    RETURN = auto()
    BREAK = auto()
    CONTINUE = auto()
    RAISE = auto()


class _Answers:
    """What is known of a notebook, or of all other files."""

    def __init__(self, project: Project) -> None:
        self.ways: AnswerMemory[cst.CSTNode, Way] = AnswerMemory(project.readings)
        self.raising: AnswerMemory[Scope, bool] = AnswerMemory(project.readings)
        self.never: AnswerMemory[object, bool] = AnswerMemory(project.readings)
        self.behind: AnswerMemory[tuple[cst.CSTNode, int], bool] = AnswerMemory(project.readings)
        self.lost: frozenset[str] = frozenset()  # names of a notebook that only statements bind which fail


class Stops:
    """Answers for the project's code; one for a run, which remembers."""

    def __init__(self, project: Project, evaluator: Evaluator, *, names: bool = True) -> None:
        self.project = project
        self.evaluator = evaluator
        self.mentions = Mentions(project, evaluator)
        self._by_names = names  # whether what lacks a name raises
        self._names: dict[Module, Unbound] = {}
        self._files = _Answers(project)
        self._notebooks: dict[Module, _Answers] = {}
        self._found: dict[Place, cst.CSTNode | None] = {}
        self._ours: AnswerMemory[tuple[Scope, str], bool] = AnswerMemory(project.readings)
        self._asking: list[object] = []  # questions that are being answered
        self._circles = 0  # answers that were given in the middle of the same question, or too deep: what rests on one is not kept

    # -- questions -----------------------------------------------------------------------------------------------------

    def never(self, module: Module, node: cst.CSTNode) -> bool:
        """Whether control never comes to a node."""
        walk = module.walk
        here = node
        if walk.statement_of(node) is not node and self._raises_before(module, walk.statement_of(node), node):
            return True
        if self._answer(self._of(module).never, ("excluded", node), lambda: self._is_excluded(module, node), unknown=False):
            return True
        while True:
            holder = walk.parents.get(here)
            if holder is None:
                return False
            if isinstance(holder, BLOCKS) and not (isinstance(holder, cst.Module) and in_cells(module.source) and not module.source.cells):
                number = walk.block(holder)[1].get(here, 0)
                if number and self._answer(self._of(module).behind, (holder, number), partial(self._is_behind, module, holder, number), unknown=False):
                    return True
            if isinstance(holder, cst.If) and here is holder.body and self._is_never_so(module, holder):
                return True
            if isinstance(holder, cst.FunctionDef) and here is holder.body and self._is_never_run(module, walk.scope_of[holder]):
                return True
            here = holder

    def _is_behind(self, module: Module, block: cst.CSTNode, number: int) -> bool:
        """Whether one of so many first statements of a block is never left for the next one; a cell of a notebook is a block by itself."""
        statements = module.walk.block(block)[0]
        first = number
        cells = isinstance(block, cst.Module) and bool(module.source.cells)
        while first and (not cells or module.place(statements[first - 1]).cell == module.place(statements[number]).cell):
            first -= 1
        return any(Way.ON not in self.ways(module, statement) for statement in statements[first:number])

    def once(self, module: Module, loop: cst.CSTNode, node: cst.CSTNode) -> bool:
        """Whether a loop has no other round after one in which control has come to a node in its body, because what is behind it always raises."""
        if not isinstance(loop, cst.For | cst.While):
            return False
        here, walk = node, module.walk
        while here is not loop:
            holder = walk.parents.get(here)
            if holder is None:
                return False
            if isinstance(holder, BLOCKS):
                statements, places = walk.block(holder)
                behind = statements[places.get(here, 0) + 1 :]
                if behind and (ways := self._block(module, behind)) & Way.RAISE and not ways & (Way.ON | Way.CONTINUE):
                    return True
            here = holder
        return False

    def broken(self, module: Module, cls: cst.CSTNode) -> bool:
        """Whether no object of a class can be made, or none gives anything when it is indexed."""
        methods = (module.walk.scope_of[cls].child(name) for name in ("__init__", "__getitem__"))
        return any(method is not None and self.raises(module, method) for method in methods)

    def _is_never_so(self, module: Module, node: cst.If) -> bool:
        """Whether what a branch waits for never comes."""
        return self._is_switched_off(module, node) or never_so(module, self.project, node.test, module.walk.scope_at(node))

    @staticmethod
    def _is_switched_off(module: Module, node: cst.If) -> bool:
        """Whether a branch waits for a switch that the function itself sets to `False`, once: ``plot = False``, before ``if plot:``."""
        scope = module.walk.scope_at(node)
        if not isinstance(node.test, cst.Name) or not scope.is_function:
            return False
        bound = scope.effects.get(node.test.value, ())
        off = len(bound) == 1 and bound[0].kind == "assign" and not bound[0].path and names.dotted(bound[0].value) == "False"
        return off and not any(isinstance(inner, cst.Nonlocal) for inner in descend(scope.node))

    def at(self, module: Module, place: Place) -> cst.CSTNode | None:
        """The innermost statement at a place."""
        if place not in self._found:
            self._found[place] = innermost(module, place)
        return self._found[place]

    # -- statements ------------------------------------------------------------------------------------------------------

    def ways(self, module: Module, node: cst.CSTNode) -> Way:
        """How control may leave a statement, as far as that is written in it: that anything may raise is left out."""
        kind = node.__class__
        if kind is cst.Return:
            return Way.RAISE if self._raises_itself(module, node) else Way.RETURN
        if kind is cst.Break:
            return Way.BREAK
        if kind is cst.Continue:
            return Way.CONTINUE
        if kind is cst.Raise:
            return Way.RAISE
        return self._answer(self._of(module).ways, node, lambda: self._judge(module, node), Way.ON)

    def _answer(self, memory: AnswerMemory[_Key, _Answer], key: _Key, find: Callable[[], _Answer], unknown: _Answer) -> _Answer:
        known = memory.get(key)
        if known is not None:
            return known
        if key in self._asking or len(self._asking) > _DEEPEST:
            memory.give_up()
            self._circles += 1
            return unknown
        circles = self._circles
        self._asking.append(key)
        try:
            found = find()
        finally:
            self._asking.pop()
        if circles == self._circles or not self._asking:
            memory[key] = found
        return found

    def _judge(self, module: Module, node: cst.CSTNode) -> Way:
        if self._raises_itself(module, node):
            return Way.RAISE
        if isinstance(node, cst.If):
            ways = self._suite(module, node.body)
            rest = node.orelse
            if rest is None:
                return ways | Way.ON
            return ways | (self._suite(module, rest.body) if isinstance(rest, cst.Else) else self.ways(module, rest))
        if isinstance(node, cst.For | cst.While):
            inside = self._suite(module, node.body)
            after = self._suite(module, node.orelse.body) if node.orelse is not None else Way.ON
            if isinstance(node, cst.While) and is_true(node.test):
                after = Way.NOWHERE
                if Way.BREAK not in inside:
                    return inside & (Way.RETURN | Way.RAISE)
            return after | (inside & (Way.RETURN | Way.RAISE)) | (Way.ON if Way.BREAK in inside else Way.NOWHERE)
        if isinstance(node, cst.With):
            ways = self._suite(module, node.body)
            return ways | Way.ON if Way.RAISE in ways and any(may_swallow(item) for item in node.items) else ways
        if isinstance(node, cst.Try | cst.TryStar):
            return self._try(module, node)
        if isinstance(node, cst.Match):
            ways = Way.ON
            for case in node.cases:
                ways |= self._suite(module, case.body)
            return ways
        if isinstance(node, cst.ClassDef):
            return Way.RAISE if self._suite(module, node.body) == Way.RAISE else Way.ON
        return Way.ON

    def _try(self, module: Module, node: cst.Try | cst.TryStar) -> Way:
        ways = self._suite(module, node.body)
        if Way.ON in ways and node.orelse is not None:
            ways = (ways & ~Way.ON) | self._suite(module, node.orelse.body)
        for handler in node.handlers:
            ways |= self._suite(module, handler.body)
        if node.finalbody is not None:
            last = self._suite(module, node.finalbody.body)
            if Way.ON not in last:
                return last
        return ways

    def _suite(self, module: Module, body: cst.BaseSuite) -> Way:
        return self._block(module, block_of(body))

    def _block(self, module: Module, statements: Iterable[cst.CSTNode]) -> Way:
        ways = Way.ON
        for statement in statements:
            found = self.ways(module, statement)
            ways = (ways & ~Way.ON) | found
            if Way.ON not in found:
                break
        return ways

    # -- what raises -----------------------------------------------------------------------------------------------------

    def _raises_itself(self, module: Module, node: cst.CSTNode) -> bool:
        """Whether what a statement evaluates in any case raises: of a compound one what stands in its header."""
        return next(self._raisers(module, node), None) is not None

    def _raises_before(self, module: Module, statement: cst.CSTNode, node: cst.CSTNode) -> bool:
        """Whether a statement raises before it comes to a part of its own: what a call is given is evaluated, though the call may fail."""
        return any(node is part or part not in module.walk.ancestors(node) for part in self._raisers(module, statement))

    def _raisers(self, module: Module, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The parts of a statement that are evaluated in any case, and raise."""
        if isinstance(node, cst.Assert):
            if is_false(node.test):
                yield node
            yield from self._raising_parts(module, node.test)
        elif isinstance(node, cst.ImportFrom):
            if self._by_names and self._unbound(module).misses(node):
                yield node
        else:
            for part in headers(node):
                yield from self._raising_parts(module, part)

    def _raising_parts(self, module: Module, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        for part in evaluated(node):
            if isinstance(part, cst.Name):
                if (self._by_names and self._unbound(module).reads(part)) or (module.source.cells and is_never_bound(module, part, self._of(module).lost)):
                    yield part
            elif isinstance(part, cst.Call) and self._ends(module, part):
                yield part

    def _of(self, module: Module) -> _Answers:
        """What is known of a file. Names of a notebook that are lost may lose others: that is gone through until there are no more, and not name by name."""
        if not module.source.cells:
            return self._files
        known = self._notebooks.get(module)
        if known is not None:
            return known
        known = self._notebooks[module] = _Answers(self.project)
        if is_given_names(module):
            return known
        asking, self._asking = self._asking, []
        try:
            while (lost := lost_names(module, lambda one: Way.ON not in self.ways(module, one) or self.never(module, one))) != known.lost:
                known = self._notebooks[module] = _Answers(self.project)
                known.lost = lost
        finally:
            self._asking = asking
        return known

    def _unbound(self, module: Module) -> Unbound:
        known = self._names.get(module)
        if known is None:
            known = self._names[module] = Unbound(module, self.project)
        return known

    def _ends(self, module: Module, call: cst.Call) -> bool:
        """Whether a call does not return."""
        told = names.dotted(call.func)
        if told in _EXITS:
            return "." in told or not any(told in scope.effects for scope in module.walk.scopes)
        if not told or told in names.BUILTINS or not self._may_be_ours(module, call, told):
            return False
        frame = self.evaluator.calls.plain_frame(module, module.walk.scope_at(call))
        found = self.evaluator.values(call.func, frame)
        value = found[0].value if len(found) == 1 else None
        if isinstance(value, FunctionRef) and names.is_method(value.scope):
            return self._is_only(value) and self.raises(value.module, value.scope)
        if not isinstance(value, FunctionRef | ClassRef):
            return False
        if not self.evaluator.fits(call, value, frame):
            return True
        if isinstance(value, ClassRef):
            made = self.evaluator.method(Instance(value, None), "__init__")
            return made is not None and self.raises(made.module, made.scope)
        return self.raises(value.module, value.scope)

    def _may_be_ours(self, module: Module, call: cst.Call, told: str) -> bool:
        """Whether what a call runs may be a function or a class of the project, by how its name comes about. To follow the others takes long."""
        root, _, rest = told.partition(".")
        here: Scope | None = module.walk.scope_at(call)
        if rest and here is not None and root == names.self_name(here):
            return True
        while here is not None:
            if self._ours.answer((here, root), partial(self._defines, module, here, root)):
                return True
            here = here.parent
        return False

    def _defines(self, module: Module, scope: Scope, root: str) -> bool:
        """Whether a scope gets a name by a definition, or by an import of a file of the project."""
        for effect in scope.effects.get(root, ()):
            statement = effect.statement
            if effect.kind in {"def", "class"}:
                return True
            found = None
            if effect.kind == "from" and isinstance(statement, cst.ImportFrom):
                found = self.project.locate(module.path, names.dotted(statement.module), len(statement.relative))
            elif effect.kind == "import" and isinstance(effect.node, cst.ImportAlias):
                found = self.project.locate(module.path, names.dotted(effect.node.name).partition(".")[0])
            if found is not None:
                return True
        return bool(scope.effects.get("*")) and scope.parent is None

    def _is_only(self, method: FunctionRef) -> bool:
        """Whether no class that derives from that of a method has another one in its place."""
        cls = method.scope.parent
        derived = self.evaluator.calls.subclasses(ClassRef(method.module, cls)) if cls is not None else []
        return not any(one.scope.child(method.scope.name) for one in derived)

    def raises(self, module: Module, scope: Scope) -> bool:
        """Whether a function never returns."""
        return self._answer(self._of(module).raising, scope, lambda: self._judge_function(module, scope), unknown=False)

    def _judge_function(self, module: Module, scope: Scope) -> bool:
        node = scope.node
        if not isinstance(node, cst.FunctionDef) or node.decorators or scope.yields or node.asynchronous is not None:
            return False
        if self._suite(module, node.body) != Way.RAISE:
            return False
        raised = (part.exc for part in scope.nodes(inner=False) if isinstance(part, cst.Raise) and part.exc is not None)
        return not any("NotImplemented" in module.code(one) for one in raised)

    # -- functions that nothing runs -----------------------------------------------------------------------------------

    def _is_never_run(self, module: Module, scope: Scope) -> bool:
        return self._answer(self._of(module).never, ("never", scope), lambda: self._judge_runs(module, scope), unknown=False)

    def _judge_runs(self, module: Module, scope: Scope) -> bool:
        node, parent = scope.node, scope.parent
        if not isinstance(node, cst.FunctionDef) or node.decorators or parent is None:
            return False
        if parent.is_class:
            if self._is_never_made(module, parent):
                return True
            if scope.name in {"__init__", "__new__", "__getitem__"}:
                return False
            return self.broken(module, parent.node) or self._is_never_called(module, scope, parent)
        if parent is not module.root or BY_TEXT.search(module.source.text):
            return False
        called = False
        for found in self.mentions.of_function(module, scope):
            if found is None or not self._is_dead_call(*found):
                return False
            called = True
        return called

    def _is_never_called(self, module: Module, scope: Scope, cls: Scope) -> bool:
        """Whether all that the project does with a method of that name is to call it where control never comes; no base of its class calls it."""
        line = [one for one in self.evaluator.lineage(ClassRef(module, cls)) if isinstance(one, ClassRef)]
        bases = [base for one in line for base in self.evaluator.bases(one)]
        known = all(isinstance(base, ClassRef) or (isinstance(base, External) and names.canonical(base.name) in PLAIN_BASES) for base in bases)
        if cls.parent is not module.root or not known:
            return False
        calls: list[tuple[Module, cst.Call]] = []
        for other in {one.path: one for one in (module, *self.project.mentioning([scope.name.encode()], module.path))}.values():
            if other.source.cells or BY_TEXT.search(other.source.text):
                return False
            for part in other.walk.root.nodes():
                if isinstance(part, cst.SimpleString) and part.evaluated_value == scope.name:
                    return False
                if isinstance(part, cst.Attribute) and part.attr.value == scope.name:
                    call = other.walk.parents.get(part)
                    if not isinstance(call, cst.Call) or call.func is not part:
                        return False
                    calls.append((other, call))
        return bool(calls) and all(self.never(other, call) for other, call in calls)

    def _is_never_made(self, module: Module, cls: Scope) -> bool:
        """Whether each call of a class, and of those that derive from it, misfits its constructor, or is never come to: none of them has an object."""
        return self._answer(self._of(module).never, ("made", cls), lambda: self._only_misfits(module, cls), unknown=False)

    def _only_misfits(self, module: Module, cls: Scope) -> bool:
        made = self.mentions.of_class(module, cls) or ()
        return bool(made) and all(self._is_unfit(other, call, one) or self.never(other, call) for other, call, one in made)

    def _is_unfit(self, module: Module, call: cst.Call, value: ClassRef | FunctionRef) -> bool:
        """Whether a function or a class cannot take what a call gives it."""
        return not self.evaluator.fits(call, value, self.evaluator.calls.plain_frame(module, module.walk.scope_at(call)))

    def _is_dead_call(self, module: Module, call: cst.Call) -> bool:
        if self.never(module, call):
            return True
        found = self.evaluator.values(call.func, self.evaluator.calls.plain_frame(module, module.walk.scope_at(call)))
        return len(found) == 1 and isinstance(value := found[0].value, FunctionRef) and self._is_unfit(module, call, value)

    def _is_excluded(self, module: Module, inner: cst.CSTNode) -> bool:
        """Whether something stands behind a test of parameters of its function that comes out otherwise for the constants of each call of that."""
        walk = module.walk
        scope = walk.scope_at(inner)
        node = scope.node
        if not isinstance(node, cst.FunctionDef) or node.decorators or module.source.cells:
            return False
        own = set(names.parameter_names(scope)) - set(scope.effects)
        tests = [(test, wanted) for test, wanted in path_conditions(walk, scope, inner) if own and names_in(test) <= own]
        calls = self._calls_of(module, scope) if tests and BY_TEXT.search(module.source.text) is None else None
        frames = self.evaluator.calls.frames(module, scope) if calls else []
        made = {layer.call for frame in frames for layer in frame.bound or ()}
        if not calls or not made.issuperset(calls) or any(frame.bound is None for frame in frames):
            return False
        return all(any(_by_literals(test, frame) and not self.evaluator.conditions(((test, wanted),), frame) for test, wanted in tests) for frame in frames)

    def _calls_of(self, module: Module, scope: Scope) -> list[cst.Call] | None:
        """The calls of a function of a file, or those that make an object where it is the constructor of a class; ``None`` where there may be others."""
        cls = scope.parent
        if cls is module.root:
            return self.mentions.here(module, scope)
        if scope.name != "__init__" or cls is None or not isinstance(cls.node, cst.ClassDef) or cls.node.decorators:
            return None
        found = self.mentions.of_class(module, cls)
        return [call for _, call, _ in found] if found is not None and all(one.scope is cls for _, _, one in found) else None


def _by_literals(test: cst.BaseExpression, frame: Frame) -> bool:
    """Whether all parameters that a test asks for get literals: of the call, or as defaults."""
    node = frame.scope.node
    params = {param.name.value: param.default for param in names.parameters(frame.scope)} if isinstance(node, cst.FunctionDef) else {}
    for name in names_in(test):
        given = arguments.given_to(frame.scope, name, frame.bound or ())
        value = given.node.value if given is not None else params.get(name)
        if not isinstance(value, cst.SimpleString | cst.Integer) and names.dotted(value) not in CONSTANTS:
            return False
    return True
