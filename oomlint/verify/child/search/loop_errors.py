"""What messages of exceptions say about stand-ins that did not fit: for each pattern the changes of their specs to try, the likeliest first."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.synthesis import deferred_value, name_heuristics, stub_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oomlint.verify.child.synthesis.name_heuristics import Spec

    Shape = list[Any]  # sizes, or "B" for that of the batch
    Edit = dict[str, Spec | None]  # by path; ``None`` forgets what is known of it
    Change = Callable[[re.Match[str], dict[str, Spec], list[str]], Iterator[Edit]]
    Way = Callable[[re.Match[str], Spec], Iterable[Spec]]  # what one spec may be instead
    Fits = Callable[[str, Spec], bool]  # whether a path with its spec is meant

FLOATING: Final = ("float32",)
BIG: Final = (32, 64, 128, 224)
LARGEST: Final = 4096  # a dimension beyond it would make the trial slow
IMAGES: Final = {1: [8], 2: [3, 16], 3: [3, 16, 16], 4: [3, 8, 16, 16]}  # shapes of a sample, by the number of its dimensions


# -- changes, made of what is done with one spec -------------------------------------------------------------------------------


def each(fits: Fits, way: Way) -> Change:
    """Every stand-in that fits, as the way has it."""

    def change(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
        for path in paths:
            if fits(path, specs[path]):
                for made in way(found, specs[path]):
                    yield {path: made}

    return change


def then(*changes: Change) -> Change:
    """All of one change before the next."""

    def change(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
        for one in changes:
            yield from one(found, specs, paths)

    return change


def of(*kinds: str) -> Fits:
    """Fits specs of these kinds."""
    return lambda _, spec: spec["kind"] in kinds


def becoming(fits: Fits, made: Callable[[Spec], Spec]) -> Change:
    """Stand-ins that fit are something else."""
    return each(fits, lambda _, spec: [made(spec)])


def typed(dtype: str) -> Change:
    """Tensors are of this type."""
    return each(of("tensor"), lambda _, spec: [{**spec, "dtype": dtype}] if spec["dtype"] != dtype else [])


def shaped(*ways: Callable[[list[int], Shape], Iterable[Shape]]) -> Change:
    """Tensors have another shape, for one way after the other: it takes the numbers of the message and the shape that was."""
    return then(*(each(of("tensor"), partial(_reshaped, way)) for way in ways))


def _reshaped(way: Callable[[list[int], Shape], Iterable[Shape]], found: re.Match[str], spec: Spec) -> Iterator[Spec]:
    given = [int(text) for text in found.groups() if text is not None and text.isdigit()]
    return ({**spec, "shape": shape} for shape in way(given, spec["shape"]))


# -- structure -----------------------------------------------------------------------------------------------------------------


def _more_keys(found: re.Match[str], spec: Spec) -> list[Spec]:
    keys = spec.get("keys", ())
    return [] if found[1] in keys else [{**spec, "keys": [*keys, found[1]]}]


_key: Final = then(
    each(of("dict"), _more_keys),
    each(lambda path, spec: path.endswith("[*]") and spec["kind"] != "dict", lambda found, _: [{"kind": "dict", "keys": [found[1]]}]),
)


def _counted(found: re.Match[str], spec: Spec) -> list[Spec]:
    """A sequence of another length, where it is the one that was too short or too long."""
    wanted, had = int(found[1]), int(found[2]) if found.lastindex and found.lastindex > 1 and found[2] else None
    return [{"kind": spec["kind"], "n": wanted}] if spec["n"] != wanted and had in (None, spec["n"]) else []


def _tuple(found: re.Match[str], _: Spec) -> list[Spec]:
    return [{"kind": "tuple", "n": int(found[1])}]


_few: Final = then(
    each(of("tuple", "list"), _counted),
    each(lambda path, spec: spec["kind"] in ("tensor", "dict", "const") and ("(" in path or "[*]" in path), _tuple),
    shaped(lambda given, shape: [[*shape[:-1], given[0]]] if shape else []),
    each(of("object", "const"), _tuple),
)


def _lacks(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    holder, name = found[1], found[2]
    kinds = {
        "Tensor": ("tensor",),
        "list": ("list", "tuple", "strings"),
        "tuple": ("tuple",),
        "dict": ("dict",),
        "Learning": ("dict",),
        "str": ("const", "strings"),
    }
    for path in paths:
        if specs[path]["kind"] in kinds.get(holder, ("const",)) and ("[" in path or "(" in path or holder not in ("Tensor", "list")):
            if name in ("items", "keys", "values"):
                yield {path: {"kind": "dict", "keys": []}}
            elif name in deferred_value.TENSOR:
                yield {path: {"kind": "tensor", "shape": [8], "dtype": "float32"}}
            elif holder in ("Tensor", "dict", "list", "tuple"):
                yield {path: {"kind": "object", "keys": [name]}}
            else:
                yield {path: None}


# An attribute of a batch has the name of a method of tensors; what is gone through gives keys; a text is used as a path, a float where an integer has to be.
_objects: Final = becoming(lambda path, spec: path.endswith("[*]") and spec["kind"] == "tensor", lambda _: {"kind": "object", "keys": []})
_mappings: Final = becoming(lambda path, spec: "[*]" in path and spec["kind"] == "tensor", lambda _: {"kind": "dict", "keys": ["item"]})
_pathlike: Final = becoming(lambda _, spec: spec["kind"] == "const" and isinstance(spec["value"], str), lambda spec: {"kind": "path", "value": spec["value"]})
_whole: Final = becoming(lambda _, spec: spec["kind"] == "const" and isinstance(spec["value"], float), lambda _: {"kind": "const", "value": 2})


def _named(found: re.Match[str], _specs: dict[str, Spec], _paths: list[str]) -> Iterator[Edit]:
    """A message names the stand-in by its path."""
    path = found[1]
    name = name_heuristics.last(path)
    yield {path: {"kind": "tensor", "shape": ["B", stub_registry.CLASSES] if "(" in path else [8], "dtype": "float32"}}
    yield {path: {"kind": "const", "value": name_heuristics.number(name)}}
    yield {path: {"kind": "const", "value": name or "text"}}
    yield {path: {"kind": "list", "n": 2}}
    yield {path: {"kind": "model"}}


def _constant(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A number, a text or a flag is used as something else."""
    kind = {"int": int, "float": float, "str": str, "bool": bool}[found[1]]
    for path in paths:
        if specs[path]["kind"] != "const" or type(specs[path]["value"]) is not kind:
            continue
        if "not callable" in found[0]:
            yield {path: {"kind": "object"}}
        for value in (2, 0.5, name_heuristics.last(path) or "text", True):
            if type(value) is not kind:
                yield {path: {"kind": "const", "value": value}}
        yield {path: {"kind": "object"}}
        yield {path: {"kind": "list", "n": 2}}


# -- types ---------------------------------------------------------------------------------------------------------------------


def _other_type(_: re.Match[str], spec: Spec) -> list[Spec]:
    return [{**spec, "dtype": "int64" if spec["dtype"] in FLOATING else "float32"}]


def _low(_: re.Match[str], spec: Spec) -> list[Spec]:
    """Indices that are always there."""
    return [{**spec, "high": 1}] if spec["dtype"] == "int64" and spec.get("high", 2) > 1 else []


def _differentiable(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in paths:
        spec = specs[path]
        if spec["kind"] == "tensor" and "(" in path and spec["dtype"] != "float32":
            yield {path: {**spec, "dtype": "float32"}}
        elif spec["kind"] == "tensor" and "(" in path and not spec.get("learns"):
            yield {path: {**spec, "learns": True}}
        if spec["kind"] == "const" and "loss" in path:
            yield {path: {"kind": "criterion"}}


def _optimizer(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A schedule takes an optimizer; what was taken for options may be one."""
    for path in sorted(paths, key=lambda item: "opt" not in name_heuristics.last(item).lower()):
        if specs[path]["kind"] == "object" and "(" not in path:
            yield {path: {"kind": "optimizer"}}


# -- shapes --------------------------------------------------------------------------------------------------------------------


def inner(shape: Shape) -> Shape:
    """The dimensions of one sample."""
    return [size for size in shape if size != "B"]


def batched(shape: Shape, sample: Shape) -> Shape:
    """A shape with other dimensions of a sample; that of the batch stays where there is one."""
    return [*(["B"] if "B" in shape else []), *sample]


def sized(shape: Shape, axis: int, size: int) -> Shape:
    """A shape with another size of one dimension."""
    return [*shape[:axis], size, *shape[axis + 1 :]]


def resized(shape: Shape, old: int, new: int) -> Iterator[Shape]:
    """Shapes in which one dimension of a size has another."""
    return (sized(shape, axis, new) for axis in reversed(range(len(shape))) if shape[axis] == old and new <= LARGEST)


def _ending(given: list[int], shape: Shape) -> list[Shape]:
    """The last dimension, or the only one, is that of a matrix."""
    wanted = given[1]
    return [[*shape[:-1], wanted], [*shape[:1], wanted] if shape[0] == "B" else [wanted]] if shape and wanted <= LARGEST else []


def _image(given: list[int], shape: Shape) -> list[Shape]:
    """A layer wants so many dimensions."""
    sample = IMAGES.get(given[0] - 1)
    return [batched(shape, sample)] if sample is not None and len(inner(shape)) != len(sample) else []


def _larger(size: int, _: list[int], shape: Shape) -> Iterator[Shape]:
    """The largest dimension, then all inner ones but the first."""
    dimensions = len(inner(shape))
    if dimensions:
        yield sized(shape, max(range(len(shape)), key=lambda axis: shape[axis] if isinstance(shape[axis], int) else 0), size)
    if dimensions > 1:
        yield [*shape[: 1 - dimensions], *[size] * (dimensions - 1)]


deeper: Final = shaped(
    lambda _, shape: [[*shape, 8 if len(shape) <= 1 else 3]],
    lambda _, shape: [[*shape, *([8, 8] if len(shape) <= 1 else [3, 3])]],
)
flatter: Final = shaped(lambda _, shape: [shape[:-1]] if shape else [])
scalar: Final = shaped(lambda _, shape: [[]] if shape else [], lambda _, shape: [["B"] if "B" in shape else [1]] if shape else [])
ranks: Final = then(flatter, deeper)
match: Final = then(shaped(lambda given, shape: [*resized(shape, *given), *resized(shape, *reversed(given))]), ranks)  # each size takes the other
matmul: Final = shaped(lambda given, shape: resized(shape, *given), _ending, lambda given, shape: resized(shape, *reversed(given)))
channels: Final = shaped(lambda given, shape: [sized(shape, axis, given[0]) for axis, size in enumerate(shape) if size == given[1]])
larger: Final = shaped(*(partial(_larger, size) for size in BIG))
beyond: Final = shaped(lambda given, shape: resized(shape, given[1], given[0] + 1))  # the index of an item that is not there
square: Final = shaped(lambda _, shape: [batched(shape, [size, size]) for size in (3, 4)])


def exactly(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """So many dimensions, the batch's among them."""
    wanted = int(found[1])
    for path in paths:
        if specs[path]["kind"] != "tensor":
            continue
        shape = specs[path]["shape"]
        outer = 0 if "B" in shape or "(" in path else 1
        if len(shape) + outer != wanted and wanted >= outer:
            for filler in (3, 8):
                yield {path: {**specs[path], "shape": [*shape, *[filler] * wanted][: wanted - outer]}}


def _target(found: re.Match[str], spec: Spec) -> list[Spec]:
    """A loss wants its target in another shape."""
    sizes = [int(text) for text in re.findall(r"\d+", found[1])]
    return [{**spec, "shape": sizes[1:]}] if sizes and spec["dtype"] == "int64" and "B" not in spec["shape"] else []


def _rows(found: re.Match[str], spec: Spec) -> Iterator[Spec]:
    """A loss takes so many rows, and as many targets: a sample has more of them, such as one for each point."""
    wanted, had = int(found[1]), int(found[2])
    one = math.prod(inner(spec["shape"]))
    if spec["dtype"] == "int64" and one and had % one == 0 and wanted % (had // one or 1) == 0:
        count = wanted // (had // one or 1)
        if count != one and 0 < count <= LARGEST:
            yield {**spec, "shape": batched(spec["shape"], [count])}


def _agreeing(found: re.Match[str], spec: Spec) -> Iterator[Spec]:
    """Two shapes have to be the same: each takes the other's."""
    one, other = ([int(text) for text in re.findall(r"\d+", group)] for group in (found[1], found[2]))
    for mine, its in ((one, other), (other, one)):
        if inner(spec["shape"]) == mine[1:]:
            yield {**spec, "shape": batched(spec["shape"], its[1:])}


agree: Final = then(each(of("tensor"), _agreeing), ranks)


def anything(specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """Small changes of what was used last, where the message is no help."""
    for path in [path for path in paths if specs[path]["kind"] == "tensor"][:4]:
        spec = specs[path]
        yield {path: {**spec, "shape": [*spec["shape"], 8]}}
        if spec["shape"]:
            yield {path: {**spec, "shape": spec["shape"][:-1]}}
        yield {path: {**spec, "dtype": "int64" if spec["dtype"] in FLOATING else "float32"}}


RULES: Final[tuple[tuple[str, Change], ...]] = (
    (r"KeyError: '([^']+)'", _key),
    (r"too many values to unpack \(expected (\d+)(?:, got (\d+))?\)", _few),
    (r"not enough values to unpack \(expected (\d+), got (\d+)\)", _few),
    (r"'(\w+)' object has no attribute '(\w+)'", _lacks),
    (r"builtin_function_or_method|'method'", _objects),
    (r"tensors used as indices must be", _mappings),
    (r"where expected condition to be a boolean|expected.*Bool", typed("bool")),
    (r"stand-in:(\S+?)['\" ,)]", _named),
    (r"stand-in:(\S+)$", _named),
    (
        r"iteration over a 0-d tensor|slice\(\) cannot be applied to a 0-dim tensor|invalid index of a 0-dim tensor|zero-dimensional tensor|0-d tensor",
        deeper,
    ),
    (r"'float' object cannot be interpreted as an integer|must be int, not float|integer argument expected, got float", _whole),
    (r"'(int|float|str|bool)' object is not (?:callable|subscriptable|iterable)", _constant),
    (r"unsupported operand type\(s\) for /: 'str' and 'str'|'str' object has no attribute '(?:mkdir|exists|parent|joinpath|glob|suffix|stem)'", _pathlike),
    (
        r"(?:can only concatenate str|must be real number, not|not supported between instances of|unsupported operand type).*\b'?(str|int|float|bool)'?",
        _constant,
    ),
    (r"(?:must be Tensor|expected Tensor).*not '?(int|float|str|bool)", _constant),
    (
        r"(?i)expected (?:scalar type|target int64|.*scalar types: long)|must be long|to be of type.*long|\"nll_loss.*not implemented for '(?:Float|Int|Bool)'",
        typed("int64"),
    ),
    (
        r"tensors used as indices must be|only integer tensors|Expected object of scalar type Long|index.* must be.* int64|one_hot is only applicable to index",
        typed("int64"),
    ),
    (
        r"not implemented for 'Long'|floating point|expected scalar type Float|Found dtype Long|dtype Long|same dtype|result type Float",
        typed("float32"),
    ),
    (r"scalar type|dtype|not implemented for '", then(each(of("tensor"), _other_type), typed("bool"))),
    (r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)", matmul),
    (r"size mismatch, got input \(\d+\), mat \(\d+x(\d+)\), vec \((\d+)\)", match),
    (r"input\.dim\(\) = \d is not equal to len\(dims\) = (\d)", exactly),
    (r"size mismatch, .*\[(?:\d+, )*(\d+)\].*\[(\d+)", matmul),
    (r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)", match),
    (r"to have (\d+) channels, but got (\d+) channels", channels),
    (r"input\.size\(-1\) must be equal to input_size\. Expected (\d+), got (\d+)", match),
    (r"Expected (?:\dD \(unbatched\) or )?(\d)D ?(?:\(batched\) )?(?:or \dD )?input", shaped(_image)),
    (r"expected (\d)D.*input", shaped(_image)),
    (r"input must have (\d) dimensions|must be at least (\d)-?D", shaped(_image)),
    (r"Given normalized_shape=\[(?:\d+, )*(\d+)\].*size\[(?:\d+, )*(\d+)\]", channels),
    (r"running_mean should contain (\d+) elements not (\d+)", match),
    (r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)", then(each(of("tensor"), _rows), match)),
    (r"Expected target size \[([^\]]*)\]", then(each(of("tensor"), _target), ranks)),
    (r"Target size \(torch\.Size\(\[([^\]]*)\]\)\) must be the same as input size \(torch\.Size\(\[([^\]]*)\]\)\)", agree),
    (r"target size \(torch\.Size\(\[([^\]]*)\]\)\) that is different to the input size \(torch\.Size\(\[([^\]]*)\]\)\)", agree),
    (r"Sizes of tensors must match except in dimension \d+\. Expected size (\d+) but got size (\d+)", match),
    (r"Expected size for first two dimensions of batch2 tensor to be: \[\d+, (\d+)\] but got: \[\d+, (\d+)\]", match),
    (r"Expected .* to have size (\d+).* got (\d+)", match),
    (r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\)", match),
    (r"selected index k out of range", larger),
    (r"index (\d+) is out of bounds for dimension \d+ with size (\d+)", beyond),
    (r"index (\d+) is out of bounds for axis \d+ with size (\d+)", beyond),
    (r"index out of range in self|Target \d+ is out of bounds|out of bounds|device-side assert", each(of("tensor"), _low)),
    (r"Dimension out of range|too many indices|invalid index|out of bounds for array of dimension", deeper),
    (
        r"Dimension out of range|too many indices|number of dim|dim\(\) = \d|input\.dim|IndexError|multi-target|must be \d+-?D|\dD tensor",
        ranks,
    ),
    (r"dimension", ranks),
    (r"can't be greater than actual input size|Output size is too small|output size is too small|Calculated padded input size", larger),
    (
        r"cannot be converted to Scalar|only (?:one element|length-1|size-1)|implicitly created only for scalar|value is ambiguous|only 0-dimensional",
        scalar,
    ),
    (r"does not require grad", _differentiable),
    (r"is not an Optimizer", _optimizer),
    (r"must be batches of square matrices|3x3|square", square),
    (r"shape '\[[^\]]*\]' is invalid for input of size", ranks),
)
