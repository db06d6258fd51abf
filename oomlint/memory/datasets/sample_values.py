"""What an expression is made of: arrays of which shape and type, in which tuples, lists and dictionaries."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import PICTURE_OF_ARRAY, WRAPPERS
from oomlint.memory.datasets.dimensions import Sizes
from oomlint.memory.datasets.pictures import Pictures, opened
from oomlint.memory.datasets.torchvision_data import torchvision_data
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.memory.shared.known_libraries import GENERATORS
from oomlint.memory.shared.shaped import (
    NUMBER,
    TENSOR,
    Many,
    ShapedArray,
    ShapedGroup,
    ShapedText,
    combined,
    counted,
    elements,
    group,
    joined,
    longer,
    multiplied,
    smallest,
    with_axis,
)
from oomlint.model import arguments, names
from oomlint.model.reach import Reach
from oomlint.model.values import (
    FREE,
    Const,
    Display,
    Each,
    Element,
    External,
    ExternalCall,
    Frame,
    FunctionRef,
    Instance,
    SourceExpression,
    Unknown,
)
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key
from oomlint.syntax.scopes import CHANGES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oomlint.memory.datasets.torchvision_data import TorchvisionDataset
    from oomlint.memory.shared.content_classifier import Contents
    from oomlint.memory.shared.shaped import Part
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.values import Alternative, Alternatives, Value
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Effect, Scope

_MOST_WAYS: Final = 6
_MOST_LISTED: Final = 1_000  # elements of a list that are told apart
_DEEPEST: Final = 40  # nested questions
_MOST_QUESTIONS: Final = 3_000
_KINDS: Final[dict[PayloadKind, ShapedArray | ShapedText]] = {
    PayloadKind.TENSOR: TENSOR,
    PayloadKind.ARRAY: ShapedArray(None, "", "numpy"),
    PayloadKind.SCALAR: ShapedArray((), "", "python"),
    PayloadKind.TEXT: ShapedText(),
}
_NUMBERS: Final = {"builtins.int": "int64", "builtins.len": "int64", "builtins.float": "float64", "builtins.bool": "bool", "random.random": "float64"}
_LISTS: Final = frozenset("builtins.list builtins.tuple builtins.sorted builtins.reversed builtins.enumerate builtins.zip builtins.map builtins.range".split())


def launch_of(alt: Alternative) -> object:
    """The command line that a value holds under; ``None`` for none."""
    return next((pick for _, pick in alt.picks if isinstance(pick, tuple) and pick[:1] == ("launch",)), None)


class Parts(Sizes, Pictures):
    """Answers one question. ``known`` are arrays of the object that somebody knows more of, such as the header of a file; ``launch`` is the command line."""

    def __init__(self, evaluator: Evaluator, contents: Contents, known: Mapping[str, ShapedArray] | None = None, launch: object = None) -> None:
        self.evaluator = evaluator
        self.contents = contents
        self.known = known or {}
        self.launch = launch
        self.doubt = 0
        self.given: dict[tuple[Scope, str], Part] = {}
        self.active: set[object] = set()
        self.lengths: dict[tuple[cst.BaseExpression, Frame], int | str] = {}
        self._memo: dict[tuple[cst.BaseExpression, Frame], Part] = {}
        self.left = _MOST_QUESTIONS

    def usual(self, node: cst.BaseExpression, frame: Frame) -> list[Alternative]:
        """The values that an expression has in a plain run, or under the command line."""
        found = [alt for alt in self.evaluator.values(node, frame) if not alt.reach]
        told = [alt for alt in found if self.launch is not None and launch_of(alt) == self.launch]
        return told or [alt for alt in found if launch_of(alt) is None]

    def of(self, node: cst.BaseExpression, frame: Frame) -> Part:
        """What an expression is, as far as that is true on all ways."""
        key = (node, frame)
        if key in self._memo:
            return self._memo[key]
        if key in self.active or self.left <= 0 or len(self.active) > _DEEPEST:
            return None
        self.left -= 1
        self.active.add(key)
        found = self._by_form(node, frame) or self._by_kind(node, frame)
        self.active.discard(key)
        if not self.given:
            self._memo[key] = found
        return found

    def _by_kind(self, node: cst.BaseExpression, frame: Frame) -> Part:
        """That it is an array or a number, where nobody knows more."""
        content = self.contents.of(node, frame)
        values = [alt.value for alt in self.usual(node, frame)] if content.kind is PayloadKind.SCALAR else []
        operated = any(
            isinstance(value, SourceExpression) and isinstance(value.node, cst.BinaryOperation) for value in values
        )  # a number, and something unknown
        return _KINDS.get(content.kind) if not content.doubt and not operated else None

    def _by_form(self, node: cst.BaseExpression, frame: Frame) -> Part:
        match node:
            case cst.Subscript():
                return self._subscript(node, frame)
            case cst.BinaryOperation():
                return self._operation(node, frame)
            case cst.UnaryOperation(expression=inner):
                return self.of(inner, frame) if not isinstance(node.operator, cst.Not) else NUMBER.cast("bool")
            case cst.Comparison(left=left):
                one = self.of(left, frame)
                return one.cast("bool") if isinstance(one, ShapedArray) and one.of != "python" else None
            case cst.Attribute(value=base, attr=cst.Name(value=name)):
                mine = isinstance(base, cst.Name) and base.value == names.self_name(frame.scope)
                if mine and name in self.known:
                    return self.known[str(name)]
                if name in {"T", "mT", "data", "real", "imag"} and isinstance(one := self.of(base, frame), ShapedArray):
                    return one if name == "data" else self.method(name, one, cst.Call(base), frame)
            case cst.Name(value=name) if (frame.scope, name) in self.given and not frame.scope.sets(name):
                return self.given[frame.scope, str(name)]
        found = list(dict.fromkeys(alt.value for alt in self.usual(node, frame)))
        found = [value for value in found if value != Const(None)] or found
        return joined([self._of_value(value, node, frame) for value in found]) if len(found) <= _MOST_WAYS else None

    def _of_value(self, value: Value, node: cst.BaseExpression, frame: Frame) -> Part:
        match value:
            case Const(value=bool()):
                return NUMBER.cast("bool")
            case Const(value=int() | float()):
                return NUMBER if isinstance(value.value, int) else NUMBER.cast("float64")
            case Const(value=str()):
                return ShapedText()
            case Display():
                return self._display(value)
            case ExternalCall():
                return self._called(value.name, value.call, value.frame)
            case Element(whole=whole, accessors=accessors) if all(kind == "item" and key is not UNKNOWN_KEY for kind, key in accessors):
                return reduce(_at, (key for _, key in accessors), self._called(whole.name, whole.call, whole.frame))
            case Element(whole=ExternalCall() as whole, accessors=(("attr", "data"),)) if (known := torchvision_data(whole.name)) is not None:
                count = self._part_of(known, whole.call, whole.frame)
                return known.kept.shaped(count, *(known.kept.shape or ())) if known.kept is not None and count is not None else None
            case Each():
                return self._each(value.iterable, value.frame, value.index)
            case SourceExpression(node=written, frame=where):
                return self.of(written, where) if written is not node else self._call(node, frame) if isinstance(node, cst.Call) else None
            case Unknown() if isinstance(node, cst.Name):
                if (frame.scope, node.value) in self.given:
                    return self.given[frame.scope, node.value]
                given = arguments.given_to(frame.scope, node.value, frame.bound) if frame.bound and not frame.scope.sets(node.value) else None
                if given is not None:
                    return self.of(given.node.value, given.bound.frame)
                parameters = names.parameters(frame.scope)
                is_index = frame.scope.name == "__getitem__" and not frame.bound and len(parameters) > 1 and parameters[1].name.value == node.value
                return NUMBER if is_index else self._assigned(node, frame)
            case Element() if isinstance(node, cst.Name):
                return self._assigned(node, frame)
        return None

    def _assigned(self, node: cst.Name, frame: Frame) -> Part:
        """What was assigned to a name last, an operator such as ``x /= 255`` aside, which leaves the shape and the type of an array."""

        def judge(effect: Effect) -> tuple[Alternatives, bool] | None:
            return None if effect.path or effect.kind == "augment" else ([], True)

        found, falls = Reach(frame.module.walk, frame.scope, node.value, judge).search(node)
        effects = [effect for effect, _, conditions in found if self.evaluator.conditions(conditions, frame)]
        plain = [effect.value for effect in effects if effect.kind == "assign" and effect.value is not None and not effect.index]
        one = joined([self.of(value, frame) for value in plain]) if plain and len(plain) == len(effects) and not falls else None
        return one if isinstance(one, ShapedGroup | Many) or (isinstance(one, ShapedArray) and one.of != "python") else None

    def attribute(self, instance: Instance, name: str) -> Part:
        """What an attribute of an object is."""
        found = [alt for alt in self.evaluator.attribute(instance, name, ()) if not alt.reach and alt.value != Const(None)]
        nowhere = cst.Name(name)
        return joined([self._of_value(alt.value, nowhere, Frame(instance.cls.module, instance.cls.scope, None, instance)) for alt in found])

    # -- calls -------------------------------------------------------------------------------------------------------------

    def _call(self, node: cst.Call, frame: Frame) -> Part:
        """A call that nothing reduces: a method, or an object that is called."""
        first = node.args[0].value if node.args and not node.args[0].star else None
        builtin = [alt.value for alt in self.usual(node.func, frame)] if isinstance(node.func, cst.Name) else []
        if len(builtin) == 1 and isinstance(builtin[0], External) and builtin[0].name in _LISTS:
            return self._rows_of(builtin[0].name, node, frame)
        if isinstance(node.func, cst.Attribute):
            base = self.of(node.func.value, frame)
            if isinstance(base, ShapedArray):
                method = self.of_picture if base.of == "picture" else self.method
                return method(node.func.attr.value, base, node, frame)
            if any(isinstance(alt.value, ExternalCall) and alt.value.name in GENERATORS for alt in self.usual(node.func.value, frame)):
                return self.function(f"numpy.random.{node.func.attr.value}", node, frame)
            if base is None and node.func.attr.value == "reshape":  # whatever it was, it has that many elements then
                wanted = self.shape(arguments.plain(node), frame)
                return ShapedArray(tuple("..." if one == -1 else one for one in wanted)) if wanted is not None else None
        given = self.of(first, frame) if first is not None and len(node.args) == 1 else None
        return joined([self.applied(alt.value, given) for alt in self.usual(node.func, frame)]) if given is not None else None

    def applied(self, function: Value, given: Part) -> Part:
        """What a function, or an object that can be called, gives for one argument."""
        if isinstance(function, Instance):
            function = self.evaluator.method(function, "__call__") or function
        if not isinstance(function, FunctionRef):
            return super().applied(function, given)
        scope = function.scope
        parameters = names.parameters(scope)[int(function.this is not None) :]
        if not parameters or scope.yields or (scope, parameters[0].name.value) in self.given:
            return None
        frame = Frame(function.module, scope, None, function.this)
        returned = [scope.node.body] if isinstance(scope.node, cst.Lambda) else [one.value for one in scope.returns]
        key = (scope, parameters[0].name.value)
        self.given[key] = given
        try:
            return joined([self.of(one, frame) if one is not None else None for one in returned])
        finally:
            del self.given[key]

    def _called(self, name: str, call: cst.Call, frame: Frame) -> Part:
        """What a function of a library gives."""
        name = names.canonical(name)
        plain = arguments.plain(call)
        if name in _NUMBERS:
            return NUMBER.cast(_NUMBERS[name])
        if name in _LISTS:
            return self._rows_of(name, call, frame)
        if (known := torchvision_data(name)) is not None:
            transform = arguments.argument_for(call, "transform", place=known.place)
            ways = [self.applied(alt.value, known.picture) for alt in self.usual(transform, frame)] if transform is not None else [known.picture]
            return Many(group([joined(ways), NUMBER]), self._part_of(known, call, frame))
        if name.endswith(".default_collate") and plain:
            return collated(self.of(plain[0], frame))
        if name.startswith("torchvision.transforms.") and plain and name.rpartition(".")[0].endswith("functional"):
            return self.step(name.rpartition(".")[2], call, frame, plain[1:], self.of(plain[0], frame))
        if name.endswith(".pad_sequence") and plain:
            many = self.of(plain[0], frame)
            one = collated(many)
            if not isinstance(one, ShapedArray) or one.shape is None or len(one.shape) < len(("row", "place")) or not arguments.has(call, "batch_first"):
                return None
            return with_axis(one, 1, longer(one.shape[1]))
        if name == PICTURE_OF_ARRAY and plain:
            one = self.of(plain[0], frame)
            return self.step("ToPILImage", call, frame, [], one)
        return opened(name, call) or self.function(name, call, frame)

    def _part_of(self, known: TorchvisionDataset, call: cst.Call, frame: Frame) -> int | None:
        """How many samples a dataset of torchvision has, by the argument that chooses a part of it."""
        chosen = arguments.argument_for(call, known.by, place=1) if known.by and not arguments.has_stars(call) else None
        if not known.by or arguments.has_stars(call):
            return None
        if chosen is None:
            return known.counts[0][1]
        counts = dict(known.counts)
        found = smallest([counts.get(alt.const, "...") for alt in self.usual(chosen, frame)])
        return found if isinstance(found, int) else None

    def _rows_of(self, name: str, call: cst.Call, frame: Frame) -> Part:
        """Lists, and what gives the elements of several together."""
        word = name.rpartition(".")[2]
        starred = len(call.args) == 1 and call.args[0].star == "*"
        found = [self.of(arg.value, frame) for arg in call.args]
        if word == "range":
            count = self.number(call.args[0].value, frame) if len(call.args) == 1 else None
            return Many(NUMBER, count if isinstance(count, int) else None)
        if word == "zip" and starred:  # the columns of many rows
            row, count = elements(found[0])
            return ShapedGroup(tuple((key, Many(one, count)) for key, one in row.parts)) if isinstance(row, ShapedGroup) else None
        if word == "zip":
            pairs = [elements(one) for one in found]
            return Many(group([one for one, _ in pairs]), min((count for _, count in pairs if count is not None), default=None))
        if word == "map":
            return found[1] if len(found) > 1 and names.last_name(call.args[0].value) in {"list", "tuple"} else None
        one, count = elements(found[0]) if found else (None, None)
        return Many(group([NUMBER, one]), count) if word == "enumerate" else found[0] if found else None

    # -- containers --------------------------------------------------------------------------------------------------------

    def _display(self, value: Display) -> Part:
        """A tuple, a list or a dictionary, with what is put into it behind."""
        node, frame = value.node, value.frame
        if isinstance(node, cst.ListComp | cst.GeneratorExp | cst.DictComp):
            _, count = elements(self.of(names.iterated(node.for_in.iter, WRAPPERS), frame))
            made = node.value if isinstance(node, cst.DictComp) else node.elt
            whole = not node.for_in.ifs and node.for_in.inner_for_in is None and not any(self._filled(*way, frame) for way in frame.module.walk.bound_to(node))
            return Many(self.of(made, frame), count if whole else None)
        entries: list[tuple[object, Part]] = []
        if isinstance(node, cst.Tuple | cst.List):
            entries = [(place, self.of(one.value, frame) if isinstance(one, cst.Element) else None) for place, one in enumerate(node.elements)]
        elif isinstance(node, cst.Dict):
            entries = [(constant_key(one.key), self.of(one.value, frame)) if isinstance(one, cst.DictElement) else (UNKNOWN_KEY, None) for one in node.elements]
        elif isinstance(node, cst.Call):
            entries = [(arg.keyword.value if arg.keyword is not None else UNKNOWN_KEY, self.of(arg.value, frame)) for arg in node.args]
        else:
            return None
        found: Part = ShapedGroup(tuple(entries))
        for root, path in frame.module.walk.bound_to(node):
            if path and self.contents.containers.grown_elsewhere(root, path, frame):
                return None
            for effect in self._filled(root, path, frame):
                found = self._with(found, effect, effect.path[len(path) :], frame)
            if path and found == ShapedGroup(()):
                return None  # it is there to be filled
        return found

    @staticmethod
    def _filled(root: str, path: tuple[Accessor, ...], frame: Frame) -> list[Effect]:
        """What a scope does to a container that goes by a name."""
        of_it = (effect for effect in frame.scope.effects.get(root, ()) if effect.path[: len(path)] == path)
        return [effect for effect in of_it if effect.kind in CHANGES | {"delete"} or (len(effect.path) > len(path) and effect.kind == "assign")]

    def _with(self, whole: Part, effect: Effect, inside: tuple[Accessor, ...], frame: Frame) -> Part:
        """A container with what a statement puts into it; ``None`` where nobody knows how much that is."""
        rounds = self._rounds(effect.statement, frame) if effect.value is not None and not effect.index else None
        removes = effect.kind in {"pop", "clear", "delete"}
        if rounds == 0 or (len(inside) > 1 and not removes):
            return whole
        if effect.value is None or effect.index or removes or not isinstance(whole, ShapedGroup | Many):
            return None
        added = self.of(effect.value, frame)
        if inside:
            key = inside[0][1]
            if effect.kind != "assign" or inside[0][0] != "item" or key is UNKNOWN_KEY or not isinstance(whole, ShapedGroup):
                return None  # how many there are then, nobody knows
            known = [one for name, one in whole.parts if name == key]
            put = added if rounds else joined([added, *known]) if known else None
            return ShapedGroup((*((name, one) for name, one in whole.parts if name != key), (key, put)))
        if effect.kind == "append" and effect.call is not None and names.last_name(effect.call.func) == "insert":
            return None  # what stands at which place then, nobody follows
        if effect.kind == "setdefault" and effect.call is not None and isinstance(whole, ShapedGroup) and rounds:
            key = constant_key(effect.call.args[0].value)
            return whole if whole.at(key) is not None else ShapedGroup((*whole.parts, (key, added))) if key is not UNKNOWN_KEY else None
        if effect.kind in {"extend", "augment"}:
            many = added if isinstance(added, ShapedGroup | Many) else None
        else:
            many = group([added]) if effect.kind == "append" else None
        return _put_behind(whole, many, rounds) if many is not None else None

    def _rounds(self, node: cst.CSTNode, frame: Frame) -> int | None:
        """How often a statement runs for one sample; ``None`` where nobody knows, as where a test decides."""
        ways = self.evaluator.where(node, frame)
        total: int | None = 1 if FREE in ways else None if ways else 0
        for here in frame.module.walk.ancestors(node):
            if here is frame.scope.node:
                break
            if isinstance(here, cst.While | cst.Try):
                return None
            if isinstance(here, cst.For):
                _, count = elements(self.of(names.iterated(here.iter, WRAPPERS), frame))
                total = counted(total * count, total, count) if total is not None and count is not None else None
        return total

    def _each(self, iterable: cst.BaseExpression, frame: Frame, index: tuple[int, ...]) -> Part:
        """What a loop's variable is."""
        one, _ = elements(self.of(iterable, frame))
        for place in index:
            one = _at(one, place)
        return one

    def _subscript(self, node: cst.Subscript, frame: Frame) -> Part:
        base = self.of(node.value, frame)
        if isinstance(base, ShapedArray) and base.of != "python":
            return self.indexed(base, [one.slice for one in node.slice], frame)
        if isinstance(base, ShapedGroup | Many) and len(node.slice) == 1:
            part = node.slice[0].slice
            if isinstance(part, cst.Slice):
                one, count = elements(base)
                length = self.span(part, "..." if count is None else count, frame)
                return Many(one, length if isinstance(length, int) else None)
            found = {alt.const for alt in self.usual(part.value, frame)} if isinstance(part, cst.Index) else set()
            return _at(base, found.pop() if len(found) == 1 else None)
        found_values = [alt.value for alt in self.usual(node, frame)]
        followed = [self._of_value(one, node, frame) for one in found_values if not (isinstance(one, SourceExpression) and one.node is node)]
        return joined(followed) if followed and len(followed) == len(found_values) else None

    # -- arithmetic --------------------------------------------------------------------------------------------------------

    def _operation(self, node: cst.BinaryOperation, frame: Frame) -> Part:
        """Arithmetic with arrays and numbers, and lists that are joined or repeated."""
        left, right = self.of(node.left, frame), self.of(node.right, frame)
        if isinstance(left, ShapedGroup | Many):
            if isinstance(node.operator, cst.Multiply):
                one, count = elements(left)
                number = self.number(node.right, frame)
                return Many(one, counted(count * number, count)) if isinstance(number, int) and count is not None else None
            both = isinstance(left, ShapedGroup) and isinstance(right, ShapedGroup) and isinstance(node.operator, cst.Add)
            return group([one for side in (left, right) if isinstance(side, ShapedGroup) for _, one in side.parts]) if both else None
        joins = isinstance(node.operator, cst.MatrixMultiply)
        if isinstance(left, ShapedArray) and isinstance(right, ShapedArray):
            return multiplied(left, right) if joins else combined(left, right, divides=isinstance(node.operator, cst.Divide))
        known = left if isinstance(left, ShapedArray) else right
        if not isinstance(known, ShapedArray) or known.of == "python":
            return None
        stays = known.of == "torch" and "float" in known.dtype
        shape = tuple(map(longer, known.shape)) if known.shape and not joins else None  # by something unknown it may be stretched
        return ShapedArray(shape, known.dtype if stays else "", known.of)


def _at(part: Part, key: object) -> Part:
    """A part by its key; an array is unpacked into its rows."""
    if isinstance(part, ShapedGroup) and key is not None:
        return part.at(key)
    return elements(part)[0] if part is not None else None


def _put_behind(whole: ShapedGroup | Many, added: ShapedGroup | Many, rounds: int | None) -> Part:
    """A list with another one behind it, so many times."""
    sides = [[one for _, one in side.parts] if isinstance(side, ShapedGroup) else [side.element] * (side.count or 0) for side in (whole, added)]
    counts = [len(side.parts) if isinstance(side, ShapedGroup) else side.count for side in (whole, added)]
    if counts[0] != 0:
        fits = rounds is not None and None not in counts and len(sides[0]) + len(sides[1]) * rounds <= _MOST_LISTED
        if not fits and isinstance(whole, Many) and whole.count is None:
            # One of several that a round may put there, of which one that is known says what the others are like.
            both = (whole.element, elements(added)[0])
            known = [one for one in both if one is not None and not (isinstance(one, ShapedArray) and one.shape is None)]
            return Many(joined(known) if known else both[0], None)
        return group([*sides[0], *sides[1] * (rounds or 0)]) if fits else None
    if rounds == 1:
        return added
    one, count = elements(added)
    if any(part != one for part in sides[1]) and rounds is not None and len(sides[1]) * rounds <= _MOST_LISTED:
        return group(sides[1] * rounds)
    return Many(one, counted(count * rounds, count, rounds) if count is not None and rounds is not None else None)


def collated(rows: Part) -> Part:
    """What the default ``collate_fn`` makes of a list of samples: one tensor of all that stands at one place."""
    if isinstance(rows, ShapedGroup):
        one, count = elements(rows)
        rows = Many(one, count)
    if not isinstance(rows, Many):
        return None
    count, one = rows.count, rows.element
    if isinstance(one, ShapedGroup):
        return ShapedGroup(tuple((key, collated(Many(part, count))) for key, part in one.parts))
    if isinstance(one, Many):
        return Many(collated(Many(one.element, count)), one.count)
    if not isinstance(one, ShapedArray) or one.of == "picture":
        return one if isinstance(one, ShapedText) else None
    shape = None if one.shape is None else ("..." if count is None else count, *one.shape)
    return ShapedArray(shape, one.dtype or ("int64" if one.of == "python" else ""), "torch")
