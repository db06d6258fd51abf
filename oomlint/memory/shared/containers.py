"""Containers: what their elements are, how they grow, how many elements they have at most."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import libcst as cst
from msgspec.structs import replace

from oomlint.api_names import SAMPLES, WRAPPERS
from oomlint.memory.datasets.constant_flags import Flags
from oomlint.memory.shared.byte_size import Size
from oomlint.memory.shared.content_kinds import DEEPEST, NOTHING, PAYLOAD, Content, Form, PayloadKind, worst
from oomlint.model import arguments, names
from oomlint.model.uses import NameUses
from oomlint.model.values import Bound, ClassRef, Display, ExternalCall, Frame, FunctionRef, SourceExpression, Value, greatest
from oomlint.scout.forms import KEEPS
from oomlint.syntax.nodes import UNKNOWN_KEY, block_of, names_in, path_of
from oomlint.syntax.scopes import LENGTHENS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.shared.content_classifier import Contents
    from oomlint.model.project import Module
    from oomlint.model.values import Instance
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Effect


_SETTING = frozenset({"assign", "setdefault", "update"})
_MANY_AT_ONCE = frozenset({"extend", "augment", "update"})
_FORMS: dict[str, Form] = {"list": Form.LIST, "tuple": Form.TUPLE, "dict": Form.DICT}


_WORDS: dict[type, str] = {
    cst.List: "list", cst.Tuple: "tuple", cst.Set: "set", cst.Dict: "dict",
    cst.ListComp: "list", cst.SetComp: "set", cst.DictComp: "dict",
}  # fmt: skip
# What a container of the key holds, and how it is called.
_OF: dict[PayloadKind, tuple[PayloadKind, str]] = {
    PayloadKind.ARRAY: (PayloadKind.ARRAYS, "NumPy arrays"),
    PayloadKind.ARRAYS: (PayloadKind.ARRAYS, "NumPy arrays"),
    PayloadKind.MEMMAP: (PayloadKind.ARRAYS, "NumPy arrays"),
    PayloadKind.OBJECT_ARRAY: (PayloadKind.ARRAYS, "NumPy arrays"),
    PayloadKind.TENSOR: (PayloadKind.TENSORS, "tensors"),
    PayloadKind.TENSORS: (PayloadKind.TENSORS, "tensors"),
    PayloadKind.PATHS: (PayloadKind.PATHS, "file names"),
    PayloadKind.TEXT: (PayloadKind.OBJECTS, "strings"),
    PayloadKind.SCALAR: (PayloadKind.OBJECTS, "numbers"),
}
_FIELDS: dict[Form | None, str] = {Form.CELL: "values of a table", Form.FIELD: "fields of records"}
# Bytes that an array or a tensor takes beside its numbers: 539 bytes for a tensor of three numbers (measured with torch 2.13.0, resident set).
_OBJECTS = {PayloadKind.ARRAY: 128, PayloadKind.TENSOR: 512}
_RECORDS = frozenset({PayloadKind.ARRAYS, PayloadKind.TENSORS, PayloadKind.OBJECTS, PayloadKind.UNKNOWN})
_NAMED_BY_ELEMENT = frozenset({PayloadKind.OBJECTS, PayloadKind.SMALL, PayloadKind.FRAME, PayloadKind.BLOB})
_LIKE_ELEMENT = frozenset({PayloadKind.HANDLE, PayloadKind.H5, PayloadKind.GENERATOR, PayloadKind.FUNCTION, PayloadKind.DATASET, PayloadKind.LOCK})
_COUNTABLE = frozenset({"row", "list", "dict", "tuple", "set", "tensor", "string", "generator", "lambda"})
_PLAIN_BASES = frozenset({"builtins.object", "typing.NamedTuple", "abc.ABC", "pydantic.BaseModel"})
_OF_LISTS = frozenset({"numpy.array", "numpy.asarray", "torch.tensor"})  # of which the first axis is as long as the list
_SAME_COUNT = WRAPPERS | {"sorted", "list", "tuple"}


class Containers:
    """Classifies containers."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.evaluator = contents.evaluator

    def display(self, value: Display) -> Content:
        """What a list, dictionary or comprehension holds."""
        node, frame = value.node, value.frame
        module = frame.module
        if isinstance(node, cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp):
            inner = node.value if isinstance(node, cst.DictComp) else node.elt
            element = self.contents.of(inner, frame)
            count = self._passes(node.for_in, frame)
            if isinstance(node, cst.ListComp) and inner.deep_equals(node.for_in.target) and node.for_in.inner_for_in is None:
                whole = self.contents.of(node.for_in.iter, frame)
                if whole.kind is PayloadKind.BLOB:  # the objects of a file, as they are, or some of them
                    return replace(whole, size=Size())
            if isinstance(node, cst.GeneratorExp):
                return Content(PayloadKind.GENERATOR, "a generator", module, node, element, count)
            word = _WORDS[type(node)]
            grown = self.grown(node, frame) if element.count == 0 else None  # `[[] for _ in range(n)]`
            if grown is not None:
                return grown
            if isinstance(inner, cst.Integer | cst.SimpleString) or (isinstance(inner, cst.Name) and inner.value in {"None", "True", "False"}):
                return Content(PayloadKind.SMALL, f"a {word} of one value", module, node, element, count)
            size = Size((element.size.exact + _OBJECTS.get(element.kind, 0)) * count) if element.size.exact and count is not None else Size()
            if (
                count is None
                and node.for_in.inner_for_in is None
                and isinstance(node.for_in.iter, cst.Call)
                and names.last_name(node.for_in.iter.func) == "split"
            ):
                count = self.contents.of(node.for_in.iter, frame).count  # a handful is no number that bytes are reckoned with
            return replace(self.container(word, element, count, module, node), size=size)
        if isinstance(node, cst.Call):
            return Content(PayloadKind.OBJECTS, "a dict", module, node, count=len(node.args))
        literal = self._literal(node, frame)
        grown = self.grown(node, frame)
        return grown if grown is not None else literal

    def _literal(self, node: cst.BaseExpression, frame: Frame) -> Content:
        elements = node.elements if isinstance(node, cst.List | cst.Tuple | cst.Set | cst.Dict) else ()
        inner = [self.contents.of(e.value, frame) for e in elements[:6] if isinstance(e, cst.Element | cst.DictElement)]
        word = _WORDS.get(type(node), "container")
        starred = any(isinstance(e, cst.StarredElement | cst.StarredDictElement) for e in elements)
        content = self.container(word, worst(inner), None if starred else len(elements), frame.module, node)
        each = [one.size.exact + _OBJECTS.get(one.kind, 0) for one in inner if one.size.exact]  # what is empty is there to be filled
        known = len(each) == len(elements) and all(one.kind in PAYLOAD for one in inner)
        content = replace(content, size=Size(sum(each)) if known else Size())
        if not inner:
            return replace(content, kind=PayloadKind.SMALL, words=f"an empty {word}", count=0)
        if content.kind is PayloadKind.UNKNOWN:
            return replace(content, kind=PayloadKind.OBJECTS, words=f"a {word}")
        return content

    def container(self, word: str, element: Content, count: int | None, module: Module, node: cst.CSTNode) -> Content:
        """A container of such elements."""
        if element.kind is PayloadKind.UNKNOWN and element.element is not None:
            element = replace(element, kind=PayloadKind.OBJECTS)  # a container for each, whatever is in it
        inner = element.kind
        kind, words = PayloadKind.UNKNOWN, f"a {word}"
        if isinstance(element.node, cst.Dict) and inner in _RECORDS:
            # A record a sample: its header and its values are Python objects, whatever they hold.
            kind, words = PayloadKind.OBJECTS, f"a {word} of dicts"
        elif inner is PayloadKind.BLOB and element.form is Form.TENSORS:
            kind, words = PayloadKind.TENSORS, f"a {word} of tensors"
        elif inner is PayloadKind.PATHS and element.element is not None and word != "dict":  # of a dictionary the keys may be few folders
            kind, words = PayloadKind.OBJECTS, f"a {word} of {_plural(element.words)}"
        elif element.form in _FIELDS:
            kind, words = PayloadKind.OBJECTS, f"a {word} of {_FIELDS[element.form]}"
        elif inner in _OF:
            kind, elements = _OF[inner]
            words = f"a {word} of {elements}"
        elif inner in _NAMED_BY_ELEMENT:
            kind, words = PayloadKind.OBJECTS, f"a {word} of {_plural(element.words).removeprefix('empty ')}"
        elif inner is PayloadKind.DATASET and element.dataset is not None and self._is_record(element.dataset):
            kind, words = PayloadKind.OBJECTS, f"a {word} of {element.words} objects"
        elif inner in _LIKE_ELEMENT:
            kind, words = inner, f"a {word} of {_plural(element.words)}"
        strings = kind is PayloadKind.OBJECTS and inner is PayloadKind.TEXT and element.form not in _FIELDS
        numbers = inner is PayloadKind.SCALAR and element.numbers
        form, dataset = _FORMS.get(word), element.dataset
        return Content(kind, words, module, node, element, count, doubt=element.doubt, strings=strings, numbers=numbers, dataset=dataset, form=form)

    def _is_record(self, value: Instance) -> bool:
        """Whether an object is one of a plain class: nothing that gives samples itself, no module, no transform."""
        outside = (base for base in self.evaluator.lineage(value.cls) if not isinstance(base, ClassRef))
        plain = all(base.name in _PLAIN_BASES for base in outside)
        return plain and not any(self.evaluator.method(value, name) is not None for name in ("__getitem__", "__call__", "__iter__"))

    def grown(self, node: cst.BaseExpression, frame: Frame) -> Content | None:
        """A container that is bound to a name and filled afterwards."""
        module = frame.module
        for path in module.walk.bound_to(node):
            growth = [one for one in self._growth(path[0], path[1], frame) if not _came_before(*one, node, frame)]
            if not growth:
                continue
            elements: list[Content] = []
            count: int | None = 0
            for effect, where in growth[:6]:
                content = self._added(effect, where, effect.path[len(path[1]) :])
                elements.append(content)
                bound = self._rounds(effect, where)
                count = None if bound is None or count is None else count + bound
            keyed = isinstance(node, cst.Dict) or (isinstance(node, cst.Call) and bool(growth[0][0].path[len(path[1]) :]))
            word = "dict" if keyed or any(e.kind in _SETTING for e, _ in growth) else "list"
            return self.container(word, worst(elements), count, module, growth[0][0].node if growth[0][1].module is module else node)
        return None

    def grown_elsewhere(self, root: str, path: tuple[Accessor, ...], frame: Frame) -> bool:
        """Whether other code than that of a scope adds to its container."""
        return any(around.scope is not frame.scope for _, around in self._growth(root, path, frame))

    def _growth(self, root: str, path: tuple[Accessor, ...], frame: Frame) -> list[tuple[Effect, Frame]]:
        """Effects that add to the container: in the same scope, or in any method where it hangs on the object."""
        found: list[tuple[Effect, Frame]] = []
        for where, name in self._holders(root, path, frame):
            if where.scope.name in {"__getitem__", "__len__", "__iter__"}:
                continue
            effects = [(effect, where) for effect in where.scope.effects.get(name, ())]
            for effect, around in [*effects, *self._handed(name, path, where)]:
                deeper = effect.path[len(path) :]
                if effect.path[: len(path)] != path or any(kind != "item" for kind, _ in deeper):
                    continue
                keyed = effect.kind in _SETTING and (deeper or effect.kind != "assign") and _looped(effect, around)
                if (effect.kind in LENGTHENS or keyed) and not self._is_ruled_out(effect, around):
                    found.append((effect, around))
        return found

    def _is_ruled_out(self, effect: Effect, frame: Frame) -> bool:
        """Whether a flag that the object has from its arguments for as long as it lives keeps control from a statement of one of its methods."""
        return frame.this is not None and self.evaluator.project.shared(Flags).rule_out_in(frame, effect.statement, frame.this)

    def _handed(self, root: str, path: tuple[Accessor, ...], frame: Frame) -> Iterator[tuple[Effect, Frame]]:
        """What functions of the project do with the container, which a call hands them: ``fill(self.rows, path)``. Their paths are those of the caller."""
        for call in frame.scope.calls:
            given = next((arg for arg in call.args if isinstance(arg.value, cst.Name | cst.Attribute) and path_of(arg.value) == (root, path)), None)
            for alt in self.evaluator.values(call.func, frame)[:2] if given is not None else ():
                function = alt.value
                name = arguments.parameter_of(function, call, given) if isinstance(function, FunctionRef) and given is not None else None
                if isinstance(function, FunctionRef) and name is not None and function.scope is not frame.scope:
                    inner = Frame(function.module, function.scope, (Bound(tuple(call.args), frame, call),), function.this)
                    yield from ((replace(effect, path=(*path, *effect.path)), inner) for effect in function.scope.effects.get(name, ()))

    def _holders(self, root: str, path: tuple[Accessor, ...], frame: Frame) -> Iterator[tuple[Frame, str]]:
        """Frames that see the container, with the name that leads to it there."""
        yield frame, root
        if not path or frame.this is None or root != names.self_name(frame.scope):
            return
        for cls in self.evaluator.lineage(frame.this.cls):
            if isinstance(cls, ClassRef):
                for scope in cls.scope.children:
                    this = names.self_name(scope)
                    if this is not None and scope is not frame.scope:
                        yield Frame(cls.module, scope, None, frame.this), this

    def _added(self, effect: Effect, frame: Frame, deeper: tuple[Accessor, ...]) -> Content:
        """What an effect adds to a container, or to one of many that it has: ``x[key].append(one)``."""
        if effect.value is None:
            return NOTHING
        if effect.kind in LENGTHENS and deeper and deeper[0][1] is UNKNOWN_KEY and _looped(effect, frame):
            one = self._added(effect, frame, ())
            if one.form is Form.FIELD and len(deeper) > 1:
                return NOTHING  # one of several containers under names: which of them is taken out, nobody follows
            return self.container("list", one, None, frame.module, effect.node)
        put = _put_at_once(effect, frame) if effect.kind == "setdefault" else None
        if put is not None:
            return self.container("list", self.contents.of(put.args[0].value, frame), None, frame.module, put)
        content = self.contents.of(effect.value, frame)
        if effect.kind in _MANY_AT_ONCE:
            if isinstance(effect.value, cst.List | cst.Tuple) and effect.value.elements:
                return worst([self.contents.of(e.value, frame) for e in effect.value.elements[:3]])
            return content.element if content.element is not None else content
        return content

    def _rounds(self, effect: Effect, frame: Frame) -> int | None:
        """How often an effect happens at most; ``None`` where nobody knows."""
        total = 1
        for node in _until(frame, effect.statement):
            if isinstance(node, cst.While):
                return None
            if isinstance(node, cst.For):
                rounds = self.count(node.iter, frame)
                if rounds is None:
                    return self.stopped_at(node, frame)
                total *= rounds
        if effect.kind in _MANY_AT_ONCE and effect.value is not None:
            inner = self.count(effect.value, frame)
            return None if inner is None else total * inner
        if frame.scope.name != "__init__" and frame.scope.is_function and total == 1:
            return None
        return total

    def stopped_at(self, loop: cst.For, frame: Frame) -> int | None:
        """How many rounds a loop makes, or elements it collects, that ends itself once they are there: ``if len(found) >= 1000: break``."""
        for part in block_of(loop.body):
            tests = [part.test] if isinstance(part, cst.If) and any(isinstance(end, cst.Break) for end in block_of(part.body)) else []
            while tests:
                test = tests.pop()
                if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):  # the other side asks whether there is a limit
                    tests += [test.left, test.right]
                elif (most := _limit_of(test, loop)) is not None and (limit := greatest(self.evaluator.values(most, frame))) is not None:
                    return limit + (isinstance(test, cst.Comparison) and isinstance(test.left, cst.Name))  # rounds are counted from 0
        return None

    def count(self, node: cst.BaseExpression, frame: Frame) -> int | None:
        """How many elements an iterable has at most; ``None`` where nobody knows."""
        if isinstance(node, cst.Call):
            name = names.last_name(node.func)
            if name == "islice" and len(node.args) > 1:
                return greatest(self.evaluator.values(node.args[:3][-1].value, frame))
            if name in _SAME_COUNT and node.args:
                return self.count(node.args[0].value, frame)
            if name == "zip" and node.args:
                counts = [c for a in node.args if (c := self.count(a.value, frame)) is not None]
                return min(counts) if counts else None
            if name == "range" and node.args:
                return self._range(node, frame)
        if isinstance(node, cst.Subscript):
            return self.sliced(node, frame)
        key = ("count", node, frame)
        if key in self.contents.active or self.contents.depth > DEEPEST:
            return None
        self.contents.active.add(key)
        self.contents.depth += 1
        try:
            found = [self._count_value(alt.value) for alt in self.evaluator.values(node, frame)[:6]]
            most = max((one or 0 for one in found), default=0) if None not in found else None
            return self._count_picked(node, frame) if most is None and isinstance(node, cst.Name) else most
        finally:
            self.contents.depth -= 1
            self.contents.active.discard(key)

    def _count_picked(self, node: cst.Name, frame: Frame) -> int | None:
        """How many elements a name has at most that stands for what an index or a slice picks: ``files = files[order]``, ``files[:share]``."""
        if not any(isinstance(effect.value, cst.Subscript) for effect in frame.scope.effects.get(node.value, ())):
            return None
        bound = NameUses(frame.module.walk, frame.scope, node.value).bindings(node)
        picked = [one.value for one in bound if one is not None and one.kind == "assign" and not one.path and not one.index]
        counts = [self.sliced(value, frame) for value in picked if isinstance(value, cst.Subscript)]
        return max((one or 0 for one in counts), default=None) if len(counts) == len(bound) and None not in counts else None

    def _count_value(self, value: Value) -> int | None:
        if isinstance(value, Display):
            if isinstance(value.node, cst.List | cst.Tuple | cst.Set | cst.Dict):
                grown = self.grown(value.node, value.frame)
                if grown is not None:
                    return grown.count
                return len(value.node.elements)
            if isinstance(value.node, cst.BaseComp):
                return self._passes(value.node.for_in, value.frame)
        if isinstance(value, ExternalCall) and value.name == "builtins.range":
            return self._range(value.call, value.frame)
        if isinstance(value, ExternalCall) and value.name in SAMPLES:
            asked = arguments.argument_for(value.call, SAMPLES[value.name], place=1)
            return greatest(self.evaluator.values(asked, value.frame)) if asked is not None else None
        if isinstance(value, ExternalCall) and _is_array_of_list(value):
            return self.count(value.call.args[0].value, value.frame)
        if isinstance(value, SourceExpression):
            if isinstance(value.node, cst.Subscript):
                return self.sliced(value.node, value.frame)
            if isinstance(value.node, cst.Call) and names.last_name(value.node.func) in _SAME_COUNT and value.node.args:
                return self.count(value.node.args[0].value, value.frame)
        return None

    def _passes(self, loop: cst.CompFor, frame: Frame) -> int | None:
        """How many elements a comprehension makes at most: as many as all its loops together have rounds."""
        total, inner = 1, [loop]
        while inner:
            one = inner.pop()
            rounds = self.count(one.iter, frame)
            if rounds is None:
                return None
            total *= rounds
            inner += [one.inner_for_in] if one.inner_for_in is not None else []
        return total

    def _range(self, call: cst.Call, frame: Frame) -> int | None:
        """How many numbers a range has at most; ``None`` where nobody knows."""
        ends = [[alt.const for alt in self.evaluator.values(arg.value, frame)] for arg in call.args]
        if not all(isinstance(end, int) for found in ends for end in found):
            return None
        ranges = [range(*given) for given in product(*ends) if 0 not in given[2:]]  # type: ignore[call-overload] # they are numbers
        return max((max(0, -((one.start - one.stop) // one.step)) for one in ranges), default=None)

    def sliced(self, node: cst.Subscript, frame: Frame) -> int | None:
        """How many elements a slice has at most, or what an array of places picks; ``None`` where nobody knows."""
        if len(node.slice) != 1:
            return None
        part = node.slice[0].slice
        if isinstance(part, cst.Index):
            places = [alt.value for alt in self.evaluator.values(part.value, frame)[:6]] if isinstance(part.value, cst.Name) else []
            return self.count(part.value, frame) if places and all(_is_array_of_list(one) for one in places) else None
        found = self.evaluator.values(part.upper, frame) if isinstance(part, cst.Slice) and part.upper is not None else []
        most = greatest(found)
        known = most is not None and all(isinstance(alt.const, int) and alt.const >= 0 for alt in found)
        return most if known else self.count(node.value, frame)  # a part has no more than the whole


def _is_array_of_list(value: Value) -> bool:
    """Whether an array is made of a list that is written out: as an index, it picks as many elements as that has."""
    return isinstance(value, ExternalCall) and value.name in _OF_LISTS and bool(value.call.args) and isinstance(value.call.args[0].value, cst.List)


def _plural(words: str) -> str:
    words = words.replace("an empty ", "a ")
    for article in ("a ", "an "):
        if words.startswith(article):
            head, _, tail = words.removeprefix(article).partition(" ")
            if head not in _COUNTABLE:
                return words.removeprefix(article)
            return f"{head if head.endswith('s') else head + 's'} {tail}".strip()
    return words


def _until(frame: Frame, node: cst.CSTNode) -> list[cst.CSTNode]:
    """Enclosing nodes inside the frame's scope."""
    found: list[cst.CSTNode] = []
    for here in frame.module.walk.ancestors(node):
        if here is frame.scope.node:
            break
        found.append(here)
    return found


def _came_before(effect: Effect, where: Frame, node: cst.CSTNode, frame: Frame) -> bool:
    """Whether an effect is over once an expression of the same code is bound: what it added to is not what the expression makes."""
    if where.scope is not frame.scope:
        return False
    bound = frame.module.walk.statement_of(node)
    order = [one.statement for one in frame.scope.effects[effect.root]]
    again = [one for one in _until(frame, bound) if isinstance(one, cst.For | cst.While)]
    return (
        bound in order[order.index(effect.statement) + 1 :]
        and effect.statement is not bound
        and not any(one in again for one in _until(where, effect.statement))
    )


def _put_at_once(effect: Effect, frame: Frame) -> cst.Call | None:
    """The call that puts something into the container that a key has by then: ``x.setdefault(key, []).append(one)``."""
    parents = frame.module.walk.parents
    method = parents.get(effect.node)
    call = parents.get(method) if isinstance(method, cst.Attribute) and method.attr.value in KEEPS else None
    return call if isinstance(call, cst.Call) and call.func is method and len(call.args) == 1 else None


def _limit_of(test: cst.BaseExpression, loop: cst.For) -> cst.BaseExpression | None:
    """What the length of a container, or the number of a round, has reached where a test holds."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    reached = isinstance(test.comparisons[0].operator, cst.GreaterThan | cst.GreaterThanEqual | cst.Equal)
    counts = isinstance(test.left, cst.Name) and test.left.value in names_in(loop.target)
    counts = counts or (isinstance(test.left, cst.Call) and names.last_name(test.left.func) == "len")
    return test.comparisons[0].comparator if reached and counts else None


def _looped(effect: Effect, frame: Frame) -> bool:
    return any(isinstance(node, cst.For | cst.While) for node in _until(frame, effect.statement))
