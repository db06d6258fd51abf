"""Whether all that a value holds are words and numbers that its project has counted, or has taken from tables of text: names, places, columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import arguments, names
from oomlint.model.values import Bound, External, Frame, FunctionRef
from oomlint.syntax.nodes import path_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.model.project import Project
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Effect, Scope

_DEEPEST: Final = 60  # expressions inside each other, or one after the other, on the way
_MOST: Final = 400  # questions for one value
# Tables that are written as text, and what lists files.
_TABLES: Final = frozenset("pandas.read_csv pandas.read_table pandas.read_excel csv.reader csv.DictReader".split())
_PATHS: Final = frozenset("glob.glob glob.iglob os.listdir os.path.join os.path.basename os.path.abspath os.path.splitext".split())
_ONE: Final = frozenset({f"builtins.{name}" for name in "int float str bool len range round list dict set".split()})
_BEGINNINGS: Final = _TABLES | _PATHS | frozenset({f"builtins.{name}" for name in "int float str bool len range round".split()})
_SAME: Final = frozenset(
    [f"builtins.{name}" for name in "list tuple set frozenset dict sorted reversed zip enumerate min max sum iter next filter".split()]
    + "numpy.array numpy.asarray numpy.unique numpy.sort pandas.Series pandas.DataFrame pandas.concat pandas.unique pandas.to_datetime collections.Counter "
    "collections.defaultdict collections.OrderedDict copy.copy copy.deepcopy tqdm.tqdm tqdm.auto.tqdm".split()
)
_FILLS: Final = frozenset({"assign", "augment", "append", "extend", "update", "setdefault", "for"})
_LEAVES: Final = frozenset({"pop", "clear", "delete", "import", "from"})


class PlainData:
    """Answers one question after the other; what cannot be followed to its beginning is not plain."""

    def __init__(self, project: Project) -> None:
        self.evaluator = evaluator_of(project)
        self._asked: set[object] = set()
        self._depth = 0
        self._beginnings = 0  # words and numbers that were met

    def holds(self, node: cst.BaseExpression, frame: Frame) -> bool:
        """Whether the value of an expression is plain: what is only seen to be empty is filled where nobody has looked."""
        self._asked.clear()
        self._depth = self._beginnings = 0
        return self._of(node, frame) and self._beginnings > 0

    def _of(self, node: cst.BaseExpression, frame: Frame, index: tuple[int, ...] = ()) -> bool:
        key = (node, frame, index)
        if key in self._asked:
            return True  # one part that is not plain ends the whole question, so this one is, or is asked about still
        if len(self._asked) >= _MOST or self._depth > _DEEPEST:
            return False
        self._asked.add(key)
        self._depth += 1
        found = self._by_form(node, frame, index)
        self._depth -= 1
        return found

    def _begins(self) -> bool:
        self._beginnings += 1
        return True

    def _by_form(self, node: cst.BaseExpression, frame: Frame, index: tuple[int, ...]) -> bool:
        match node:
            case cst.BaseNumber() | cst.SimpleString() | cst.ConcatenatedString() | cst.FormattedString() | cst.Comparison():
                return self._begins()
            case cst.Tuple() | cst.List() | cst.Set():
                if index and index[0] < len(node.elements) and isinstance(node.elements[index[0]], cst.Element):
                    return self._of(node.elements[index[0]].value, frame, index[1:])
                return all(self._of(element.value, frame) for element in node.elements)
            case cst.Dict():
                return all(self._of(element.value, frame) for element in node.elements)
            case cst.ListComp() | cst.SetComp() | cst.GeneratorExp():
                return self._of(node.elt, frame)
            case cst.DictComp():
                return self._of(node.value, frame)
            case cst.BinaryOperation() | cst.BooleanOperation():
                return self._of(node.left, frame) and self._of(node.right, frame)
            case cst.UnaryOperation():
                return self._of(node.expression, frame)
            case cst.IfExp():
                return self._of(node.body, frame) and self._of(node.orelse, frame)
            case cst.Call():
                return self._called(node, frame, index)
            case cst.Name(value="None" | "True" | "False"):
                return True
            case cst.Name() | cst.Attribute() if (path := path_of(node)) is not None:
                return self._named(path[0], path[1], node, frame, index)
            case cst.Subscript() | cst.Attribute():
                return self._of(node.value, frame)
        return False

    def _called(self, node: cst.Call, frame: Frame, index: tuple[int, ...]) -> bool:
        found = [alt.value for alt in self.evaluator.values(node.func, frame)[:2]]
        given = [arg.value for arg in node.args if arg.keyword is None] or [arg.value for arg in node.args]
        known = [names.canonical(one.name) for one in found if isinstance(one, External)]
        if known and len(known) == len(found):
            if all(name in _BEGINNINGS or (name == "builtins.map" and given and self._converts(given[0], frame)) for name in known):
                return self._begins()
            return all(name in _SAME for name in known) and all(self._of(one, frame) for one in given)
        for one in found:
            if isinstance(one, FunctionRef) and not isinstance(one.scope.node, cst.Lambda):
                inner = Frame(one.module, one.scope, (Bound(tuple(node.args), frame, node),), one.this)
                return bool(one.scope.returns) and all(row.value is not None and self._of(row.value, inner, index) for row in one.scope.returns)
        # What a method gives of a plain value is plain, unless it is told what to make of each element.
        told = any(isinstance(arg.value, cst.Lambda) or self._is_function(arg.value, frame) for arg in node.args)
        return isinstance(node.func, cst.Attribute) and not told and self._of(node.func.value, frame)

    def _converts(self, node: cst.BaseExpression, frame: Frame) -> bool:
        found = [alt.value for alt in self.evaluator.values(node, frame)]
        return bool(found) and all(isinstance(one, External) and one.name in _ONE for one in found)

    def _is_function(self, node: cst.BaseExpression, frame: Frame) -> bool:
        found = (alt.value for alt in self.evaluator.values(node, frame)) if isinstance(node, cst.Name | cst.Attribute) else ()
        return any(isinstance(one, FunctionRef | External) for one in found) and not self._converts(node, frame)

    def _named(self, root: str, path: tuple[Accessor, ...], node: cst.BaseExpression, frame: Frame, index: tuple[int, ...]) -> bool:
        """The value of a name, or of an attribute of the object itself: all that is ever put into it is plain."""
        this = names.self_name(frame.scope)
        if path and root == this:
            return self._filled(self._of_object(frame, path[:1]), path[:1], index)
        row = _comprehended(node, root, frame)
        if row is not None:
            loop, place = row
            return self._each(loop.iter, frame, place)
        scope: Scope | None = frame.scope
        while scope is not None and (scope.is_class or not (root in scope.effects or _takes(scope, root))):
            scope = scope.parent
        if scope is None:
            return not path and self._converts(node, frame)  # `defaultdict(int)`
        where = frame if scope is frame.scope else self.evaluator.calls.plain_frame(frame.module, scope)
        filled = ((effect, where) for effect in scope.effects.get(root, ()))
        if not _takes(scope, root):
            return self._filled(filled, (), index)
        given = arguments.given_to(scope, root, where.bound) if where.bound else None
        return given is not None and self._of(given.node.value, given.bound.frame) and (root not in scope.effects or self._filled(filled, (), index))

    def _of_object(self, frame: Frame, path: tuple[Accessor, ...]) -> Iterator[tuple[Effect, Frame]]:
        """What the methods of an object's class do with an attribute."""
        cls = frame.scope.parent
        for method in cls.children if cls is not None and cls.is_class else ():
            where = frame if method is frame.scope else self.evaluator.calls.plain_frame(frame.module, method)
            yield from ((effect, where) for effect in method.effects.get(names.self_name(method) or "", ()) if effect.path[: len(path)] == path)

    def _filled(self, effects: Iterable[tuple[Effect, Frame]], path: tuple[Accessor, ...], index: tuple[int, ...]) -> bool:
        seen = False
        for effect, frame in effects:
            if effect.kind in _LEAVES:
                continue
            if effect.kind not in _FILLS or effect.value is None:
                return False
            deeper = effect.path[len(path) :]
            into = (*effect.index, *(() if deeper else index))
            plain = self._each(effect.value, frame, effect.index) if effect.kind == "for" else self._of(effect.value, frame, into)
            if not plain:
                return False
            seen = True
        return seen

    def _each(self, iterable: cst.BaseExpression, frame: Frame, index: tuple[int, ...]) -> bool:
        """What a loop's variable is."""
        if isinstance(iterable, cst.Call) and iterable.args and index:
            word = names.last_name(iterable.func)
            if word == "enumerate":
                return self._begins() if index[0] == 0 else self._each(iterable.args[0].value, frame, index[1:])
            if word == "zip" and index[0] < len(iterable.args):
                return self._each(iterable.args[index[0]].value, frame, index[1:])
        return self._of(iterable, frame)


def _comprehended(node: cst.BaseExpression, root: str, frame: Frame) -> tuple[cst.CompFor, tuple[int, ...]] | None:
    """The loop of a comprehension around a name that gives it its value, and its place in the target."""
    for here in frame.module.walk.ancestors(node):
        loop = here.for_in if isinstance(here, cst.BaseComp) else None
        while loop is not None:
            place = _place(loop.target, root)
            if place is not None:
                return loop, place
            loop = loop.inner_for_in
        if here is frame.scope.node:
            break
    return None


def _takes(scope: Scope, name: str) -> bool:
    """Whether a name is a parameter."""
    return scope.is_function and name in names.parameter_names(scope)


def _place(target: cst.BaseExpression, root: str) -> tuple[int, ...] | None:
    if isinstance(target, cst.Name):
        return () if target.value == root else None
    for number, element in enumerate(target.elements if isinstance(target, cst.Tuple | cst.List) else ()):
        inner = _place(element.value, root)
        if inner is not None:
            return (number, *inner)
    return None


def holds_plain_data(project: Project, node: cst.BaseExpression, frame: Frame) -> bool:
    """Whether all that the value of an expression holds are words and numbers."""
    return project.shared(PlainData).holds(node, frame)
