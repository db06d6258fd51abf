"""When a container ends: by which statements it is emptied, cut or bound again, in which rounds, the first time only, or never."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import COLLECTIONS, EMPTY_CONTAINERS, TAKES_OUT
from oomlint.frameworks import START_HOOKS
from oomlint.model import arguments, names
from oomlint.model.counters import counts_up, numbered
from oomlint.model.displays import is_new
from oomlint.model.values import ExternalCall, FunctionRef, Instance
from oomlint.syntax.nodes import UNKNOWN_KEY, descend, is_attribute_of, names_in, path_of, texts_in

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import ClassRef, Value
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Effect, Scope

Loop = cst.For | cst.While
Path = tuple[str, tuple["Accessor", ...]]

_BINDS: Final = frozenset({"assign", "for", "with", "unknown", "import", "from"})
_ANY_ATTRIBUTE: Final = (("attr", UNKNOWN_KEY),)  # `setattr(self, name, x)`
_AT_FIRST: Final = (cst.Equal, cst.LessThan, cst.LessThanEqual)  # how the number of the first round, or a size, compares with 0 or 1
_FROM_HEAPS: Final = frozenset({"heappop", "heappushpop", "heapreplace"})


class How(Enum):
    """What becomes of a container at a statement."""

    EMPTIED = auto()  # `x.clear()`, `del x[:]`, `x[:] = []`
    CUT = auto()  # some of it is taken out: `x.pop()`, `del x[0]`, `x[0] = None`
    PART = auto()  # something that it holds is emptied, cut or made again: `x["a"].clear()`, `x["a"] = []`
    BOUND = auto()  # its name stands for another one: `x = []`, `for x in rows`
    DELETED = auto()  # its name is gone: `del x`


class Ending(Struct, frozen=True, eq=False):
    """A statement that ends a container, or a part of it."""

    how: How
    statement: cst.CSTNode
    module: Module
    scope: Scope
    value: cst.BaseExpression | None = None  # what its name, or that of a part, stands for from then on

    @property
    def lets_go(self) -> bool:
        """Whether nothing of what was there stays: it is deleted or emptied, or ``None`` is in its place."""
        return self.how in {How.DELETED, How.EMPTIED} or (self.how is How.BOUND and names.dotted(self.value) == "None")


# -- what ends it --------------------------------------------------------------------------------------------------------


def endings(path: Path, module: Module, scope: Scope) -> Iterator[Ending]:
    """The statements of a function, or a file, that end what a path names: itself, or what holds it."""
    root, accessors = path
    for effect in scope.effects.get(root, ()):
        how = _how(effect, accessors)
        if how is not None:
            yield Ending(how, effect.statement, module, scope, effect.value if effect.kind == "assign" and how in {How.BOUND, How.PART} else None)
    for call in scope.calls:
        func = call.func
        node = func.value if isinstance(func, cst.Attribute) and func.attr.value in TAKES_OUT - {"pop", "clear"} else None  # those two are effects
        if names.last_name(func) in _FROM_HEAPS and call.args:
            node = call.args[0].value
        found = path_of(node) if node is not None else None
        if found is not None and found[0] == root and found[1][: len(accessors)] == accessors:
            yield Ending(How.CUT if found == path else How.PART, module.walk.statement_of(call), module, scope)


def endings_of(cls: ClassRef, attribute: str, evaluator: Evaluator) -> Iterator[Ending]:
    """The statements of methods of a class, of those above it and those below it, that end an attribute of their object."""
    for one in evaluator.line(cls):
        for method in one.scope.children:
            this = names.self_name(method)
            if this is not None:
                yield from endings((this, (("attr", attribute),)), one.module, method)


def endings_by_name(name: str, owner: Scope, module: Module, evaluator: Evaluator) -> Iterator[Ending]:
    """What ends that which a name of a function, or a file, stands for: there, in functions inside it, and in those that they hand it to."""
    for scope in module.walk.scopes:
        if _sees(scope, name, owner):
            yield from endings((name, ()), module, scope)
            yield from _endings_by_calls(name, module, scope, evaluator)


def _endings_by_calls(name: str, module: Module, scope: Scope, evaluator: Evaluator) -> Iterator[Ending]:
    """What functions of the project end of what a call hands them by a name: ``flush(rows)``."""
    for call in scope.calls:
        given = next((arg for arg in call.args if isinstance(arg.value, cst.Name) and arg.value.value == name), None)
        for alt in evaluator.plainly(call.func, module, scope)[:2] if given is not None else ():
            called = alt.value
            word = arguments.parameter_of(called, call, given) if isinstance(called, FunctionRef) and given is not None else None
            if isinstance(called, FunctionRef) and word is not None:
                yield from (one for one in endings((word, ()), called.module, called.scope) if one.how not in {How.BOUND, How.DELETED})


def endings_from_outside(attribute: str, project: Project, near: str) -> Iterator[Ending]:
    """The statements of a project that end an attribute of an object which is not their own: ``module.outputs.clear()``."""
    for module in project.mentioning((attribute.encode(),), near):
        for scope in module.walk.scopes:
            own = (names.self_name(scope), (("attr", attribute),))
            for path in {path: None for path in _paths_to(attribute, scope) if path != own}:
                yield from endings(path, module, scope)


def _paths_to(attribute: str, scope: Scope) -> Iterator[Path]:
    """How a function calls attributes of a name that it does something to."""
    step = ("attr", attribute)
    done = [(effect.root, effect.path) for effects in scope.effects.values() for effect in effects]
    calls = (path_of(call.func.value) for call in scope.calls if isinstance(call.func, cst.Attribute) and call.func.attr.value in TAKES_OUT)
    for root, path in (*done, *(one for one in calls if one is not None)):
        if step in path:
            yield root, path[: path.index(step) + 1]


def _sees(scope: Scope, name: str, owner: Scope) -> bool:
    """Whether a name means the same in a function as in one around it."""
    here: Scope | None = scope
    while here is not None and here is not owner:
        own = (here.sets(name) and name not in here.outer | here.enclosing) or name in names.takes(here)
        here = None if own else here.parent
    return here is owner


def _how(effect: Effect, accessors: tuple[Accessor, ...]) -> How | None:
    """What an effect does to what lies at the accessors behind its root; ``None`` where it ends nothing."""
    node = effect.node
    whole = isinstance(node, cst.Subscript) and isinstance(part := node.slice[0].slice, cst.Slice) and part.lower is None and part.upper is None
    if whole and effect.path[:-1] == accessors[: len(effect.path) - 1]:
        return How.EMPTIED if effect.kind in {"assign", "delete"} else None
    if effect.path == accessors[: len(effect.path)] or effect.path == _ANY_ATTRIBUTE:
        return {"clear": How.EMPTIED, "pop": How.CUT, "delete": How.DELETED}.get(effect.kind, How.BOUND if effect.kind in _BINDS else None)
    if effect.path[: len(accessors)] != accessors:
        return None
    if effect.kind == "delete" or (effect.kind == "assign" and names.dotted(effect.value) == "None"):
        return How.CUT
    return How.PART if effect.kind in {"clear", "pop"} or (effect.kind == "assign" and is_new(effect.value)) else None


def runs_once(method: Scope, cls: ClassRef, project: Project) -> bool:
    """Whether a method runs before the first round alone: it builds the object, or nothing but what does so calls it."""
    if method.name in START_HOOKS:
        return True
    found = False
    for module in project.mentioning((method.name.encode(),), cls.module.path):
        for call, scope in module.walk.calls:
            if names.last_name(call.func) == method.name:
                if scope.name not in START_HOOKS or not is_attribute_of(call.func, names.self_name(scope)):
                    return False
                found = True
    return found


# -- at most so many ------------------------------------------------------------------------------------------------------


def is_capped(value: Value) -> bool:
    """Whether something keeps no more than so many: ``deque(maxlen=5)``, or an object that decides itself what it keeps, as far as is known."""
    if isinstance(value, ExternalCall):
        last = value.name.rpartition(".")[2]
        return has_maxlen(value.call) if last == "deque" else value.name not in EMPTY_CONTAINERS and last not in COLLECTIONS
    return isinstance(value, Instance)


def has_maxlen(call: cst.Call) -> bool:
    """Whether a ``deque`` has a greatest length."""
    if len(call.args) > len(arguments.by_name(call)) + 1:
        return True
    longest = arguments.named(call, "maxlen")
    return longest is not None and names.dotted(longest) != "None"


def length_tests(path: Path, module: Module, scope: Scope) -> Iterator[cst.Comparison]:
    """Where a function compares the length of what a path names with another number than that of nothing."""
    for call in scope.calls:
        if isinstance(call.func, cst.Name) and call.func.value == "len" and len(call.args) == 1 and path_of(call.args[0].value) == path:
            tests = (here for here in module.walk.between(call, module.walk.statement_of(call)) if isinstance(here, cst.Comparison))
            yield from (test for test in tests if not says_first(test, path, module))


# -- how often -----------------------------------------------------------------------------------------------------------


def ended_in(path: Path, loop: Loop, module: Module, scope: Scope, but: Container[cst.CSTNode] = ()) -> bool:
    """Whether a round of a loop ends what a path names, by another statement than some, and not in its first round alone."""
    for ending in endings(path, module, scope):
        if (
            ending.how is not How.PART
            and names.within(ending.statement, loop, module)
            and ending.statement not in but
            and not is_first_only(ending, path, loop)
        ):
            return True
    return path[1][:1] != () and path[1][0][0] == "attr" and _ended_by_method(path, loop, module, scope)


def _ended_by_method(path: Path, loop: Loop, module: Module, scope: Scope) -> bool:
    """Whether a method of the same object that the loop calls ends the attribute."""
    owner = scope.parent
    if owner is None or not owner.is_class or path[0] != names.self_name(scope):
        return False
    for call in descend(loop.body, into_scopes=False):
        method = owner.child(call.func.attr.value) if isinstance(call, cst.Call) and is_attribute_of(call.func, path[0]) else None
        this = names.self_name(method) if method is not None else None
        if method is not None and this is not None and any(one.how is not How.PART for one in endings((this, path[1][:1]), module, method)):
            return True
    return False


# -- the first time only -------------------------------------------------------------------------------------------------


def is_first_only(ending: Ending, path: Path, around: cst.CSTNode) -> bool:
    """Whether a loop, or a function, binds what a path names there only where there is nothing yet. What empties it finds something."""
    return ending.how is How.BOUND and only_at_first(ending.statement, path, around, ending.module)


def only_at_first(statement: cst.CSTNode, path: Path, around: cst.CSTNode, module: Module) -> bool:
    """Whether a statement in a loop, or a function, runs only where what a path names is not there yet: ``if x is None: x = y``."""
    child = statement
    for here in module.walk.between(statement, around):
        if isinstance(here, cst.ExceptHandler):
            return True
        if isinstance(here, cst.If) and child is not here.test and _says_first(here.test, path, module, wanted=child is here.body):
            return not _begins_again(here.test, around, module)
        child = here
    return False


def _begins_again(test: cst.BaseExpression, around: cst.CSTNode, module: Module) -> bool:
    """Whether a test asks for the first round of an inner loop, for a flag that a round sets both ways, or for a variable that no round sets."""
    while isinstance(test, cst.UnaryOperation):
        test = test.expression
    number = test.left if isinstance(test, cst.Comparison) and isinstance(test.comparisons[0].comparator, cst.Integer) else test
    inner = (here for here in module.walk.between(test, around) if isinstance(here, cst.For))
    if isinstance(number, cst.Name) and any(number.value in names_in(loop.target) for loop in inner):
        return True
    if not isinstance(test, cst.Name | cst.Attribute) or not _is_switch(test, module):
        return False
    inside = {names.dotted(effect.value) for effect in _set_to(test, module) if names.within(effect.statement, around, module)}
    return len(inside) > 1 or (not inside and isinstance(test, cst.Name) and isinstance(around, Loop))


def says_first(test: cst.BaseExpression, path: Path, module: Module) -> bool:
    """Whether a test asks for the first round, or for something empty."""
    return any(_says_first(test, path, module, wanted=wanted) for wanted in (True, False))


def _says_first(test: cst.BaseExpression, path: Path, module: Module, *, wanted: bool) -> bool:
    """Whether a test comes out as ``wanted`` in the first round alone, or while something is empty."""
    if isinstance(test, cst.UnaryOperation):
        return _says_first(test.expression, path, module, wanted=not wanted)
    if isinstance(test, cst.BooleanOperation):
        sides = (_says_first(side, path, module, wanted=wanted) for side in (test.left, test.right))
        return any(sides) if isinstance(test.operator, cst.And) is wanted else all(sides)
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        known = (path_of(test) == path or _is_number(test, module)) and wanted
        return (
            isinstance(test, cst.Name | cst.Attribute | cst.Call)
            and not known
            and (is_about(test, path) or _is_switch(test, module) or _is_number(test, module))
        )
    operator, other = test.comparisons[0].operator, test.comparisons[0].comparator
    if isinstance(operator, cst.Is | cst.IsNot):
        return isinstance(operator, cst.Is) is wanted and (is_about(test, path) or _is_set_beside(test, module))
    if isinstance(operator, cst.In | cst.NotIn):
        return isinstance(operator, cst.NotIn) is wanted and is_about(test, path)
    if not isinstance(other, cst.Integer) or other.evaluated_value not in {0, 1} or isinstance(operator, _AT_FIRST) is not wanted:
        return False
    every = any(isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo) for node in descend(test.left))
    return isinstance(test.left, cst.Name | cst.Attribute) or (not every and is_about(test.left, path))


def is_about(test: cst.CSTNode, path: Path) -> bool:
    """Whether a test names what a path names, a dictionary that it is an element of, or, as a text, its last word: ``hasattr(self, "rows")``."""
    root, accessors = path
    for node in descend(test):
        found = path_of(node) if isinstance(node, cst.Name | cst.Attribute | cst.Subscript) else None
        if found is not None and found[0] == root and found[1] == accessors[: len(found[1])] and all(kind == "item" for kind, _ in accessors[len(found[1]) :]):
            return True
    return str(accessors[-1][1] if accessors else root) in texts_in(test)


def _is_set_beside(test: cst.Comparison, module: Module) -> bool:
    """Whether a branch of a test sets what it asks for: ``if labels is None: rows, labels = x, y``."""
    found = path_of(test.left)
    branches = next((here for here in module.walk.ancestors(test) if isinstance(here, cst.If)), None)
    effects = module.walk.scope_at(test).effects.get(found[0], ()) if found is not None and branches is not None else ()
    return any(found is not None and branches is not None and e.path == found[1] and names.within(e.statement, branches, module) for e in effects)


def _is_number(node: cst.BaseExpression, module: Module) -> bool:
    """Whether a name is the number of a round: ``if not i:``."""
    around = [here for here in module.walk.ancestors(node) if isinstance(here, cst.For)] if isinstance(node, cst.Name) else []
    return any(names.dotted(node) in (names_in(loop.target) if counts_up(loop.iter) else numbered(loop)) for loop in around)


def _is_switch(node: cst.BaseExpression, module: Module) -> bool:
    """Whether a name is one that the code sets from one truth value to the other: ``if fresh:``, with ``fresh = False`` behind it."""
    return {names.dotted(effect.value) for effect in _set_to(node, module)} == {"True", "False"}


def _set_to(node: cst.BaseExpression, module: Module) -> Iterator[Effect]:
    """What a function gives a name, or the methods of a class an attribute of their object."""
    found, scope = path_of(node), module.walk.scope_at(node)
    if found is None:
        return
    own = scope.parent is not None and bool(found[1]) and found[0] == names.self_name(scope)
    for one in scope.parent.children if own and scope.parent is not None else (scope,):
        root = names.self_name(one) if own else found[0]
        yield from (effect for effect in one.effects.get(root or "", ()) if effect.path == found[1])
