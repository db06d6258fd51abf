"""What messages of exceptions say about stand-ins that did not fit: for each pattern the changes of their specs to try, the likeliest first."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.synthesis import deferred_value, name_heuristics, stub_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oomlint.verify.child.synthesis.name_heuristics import Spec

    Edit = dict[str, Spec | None]  # by path; ``None`` forgets what is known of it
    Change = Callable[[re.Match[str], dict[str, Spec], list[str]], Iterator[Edit]]


# -- structure -----------------------------------------------------------------------------------------------------------------


def _key(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in paths:
        if specs[path]["kind"] == "dict" and found[1] not in specs[path].get("keys", ()):
            yield altered(specs, path, keys=[*specs[path].get("keys", ()), found[1]])
    for path in paths:
        if path.endswith("[*]") and specs[path]["kind"] != "dict":
            yield {path: {"kind": "dict", "keys": [found[1]]}}


def _few(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    wanted, had = int(found[1]), int(found[2]) if found.lastindex and found.lastindex > 1 and found[2] else None
    for path in paths:
        if specs[path]["kind"] in ("tuple", "list") and (had is None or specs[path]["n"] == had) and specs[path]["n"] != wanted:
            yield {path: {"kind": specs[path]["kind"], "n": wanted}}
    for path in paths:
        if specs[path]["kind"] in ("tensor", "dict", "const") and ("(" in path or "[*]" in path):
            yield {path: {"kind": "tuple", "n": wanted}}
    for path in tensors(specs, paths):
        shape = specs[path]["shape"]
        if shape:
            yield altered(specs, path, shape=[*shape[:-1], wanted])
    for path in paths:
        if specs[path]["kind"] in ("object", "const"):
            yield {path: {"kind": "tuple", "n": wanted}}


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


def _becoming(fits: Callable[[str, Spec], bool], made: Callable[[Spec], Spec]) -> Change:
    """Stand-ins that fit are something else."""

    def change(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
        for path in paths:
            if fits(path, specs[path]):
                yield {path: made(specs[path])}

    return change


# An attribute of a batch has the name of a method of tensors; what is gone through gives keys; a text is used as a path, a float where an integer has to be.
_objects: Final = _becoming(lambda path, spec: path.endswith("[*]") and spec["kind"] == "tensor", lambda _: {"kind": "object", "keys": []})
_mappings: Final = _becoming(lambda path, spec: "[*]" in path and spec["kind"] == "tensor", lambda _: {"kind": "dict", "keys": ["item"]})
_pathlike: Final = _becoming(lambda _, spec: spec["kind"] == "const" and isinstance(spec["value"], str), lambda spec: {"kind": "path", "value": spec["value"]})
_whole: Final = _becoming(lambda _, spec: spec["kind"] == "const" and isinstance(spec["value"], float), lambda _: {"kind": "const", "value": 2})


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
    types = {"int": int, "float": float, "str": str, "bool": bool}
    kind = types.get(found[1])
    for path in paths:
        spec = specs[path]
        if spec["kind"] == "const" and kind is not None and type(spec["value"]) is kind:
            if "not callable" in found[0]:
                yield {path: {"kind": "object"}}
            for value in (2, 0.5, name_heuristics.last(path) or "text", True):
                if type(value) is not kind:
                    yield {path: {"kind": "const", "value": value}}
            yield {path: {"kind": "object"}}
            yield {path: {"kind": "list", "n": 2}}


# -- numbers -------------------------------------------------------------------------------------------------------------------


def _dtypes(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in tensors(specs, paths):
        yield altered(specs, path, dtype="int64" if specs[path]["dtype"] in FLOATING else "float32")
    for path in tensors(specs, paths):
        if specs[path]["dtype"] != "bool":
            yield altered(specs, path, dtype="bool")


def _to(dtype: str) -> Change:
    def change(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
        for path in tensors(specs, paths):
            if specs[path]["dtype"] != dtype:
                yield altered(specs, path, dtype=dtype)

    return change


def _high(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in tensors(specs, paths):
        if specs[path]["dtype"] == "int64" and specs[path].get("high", 2) > 1:
            yield altered(specs, path, high=1)


def _differentiable(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in paths:
        spec = specs[path]
        if spec["kind"] == "tensor" and "(" in path and spec["dtype"] != "float32":
            yield altered(specs, path, dtype="float32")
        elif spec["kind"] == "tensor" and "(" in path and not spec.get("learns"):
            yield altered(specs, path, learns=True)
        if spec["kind"] == "const" and "loss" in path:
            yield {path: {"kind": "criterion"}}


def _optimizer(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A schedule takes an optimizer; what was taken for options may be one."""
    for path in sorted(paths, key=lambda item: "opt" not in name_heuristics.last(item).lower()):
        if specs[path]["kind"] == "object" and "(" not in path:
            yield {path: {"kind": "optimizer"}}


FLOATING: Final = ("float32",)
BIG: Final = (32, 64, 128, 224)
LARGEST: Final = 4096  # a dimension beyond it would make the trial slow


def tensors(specs: dict[str, Spec], paths: list[str]) -> list[str]:
    """The paths that stand for tensors."""
    return [path for path in paths if specs[path]["kind"] == "tensor"]


def altered(specs: dict[str, Spec], path: str, **fields: Any) -> Edit:
    """A spec with other fields."""
    return {path: {**specs[path], **fields}}


def sized(specs: dict[str, Spec], path: str, axis: int, size: int) -> Edit:
    """A tensor with another size of one dimension."""
    shape = specs[path]["shape"]
    return altered(specs, path, shape=[*shape[:axis], size, *shape[axis + 1 :]])


def batched(specs: dict[str, Spec], path: str, inner: list[Any]) -> Edit:
    """A tensor with other dimensions; that of the batch stays where there is one."""
    return altered(specs, path, shape=[*(["B"] if "B" in specs[path]["shape"] else []), *inner])


def numbers(found: re.Match[str], count: int) -> list[int]:
    """The numbers in a message, of the alternative that it matched; none where there are fewer."""
    got = [int(text) for text in found.groups() if text is not None and text.isdigit()]
    return got[:count] if len(got) >= count else []


def replaced(specs: dict[str, Spec], path: str, old: int, new: int) -> Iterator[Edit]:
    """A dimension of one size gets another."""
    shape = specs[path]["shape"]
    for index in reversed(range(len(shape))) if new <= LARGEST else ():
        if shape[index] == old:
            yield sized(specs, path, index, new)


def match(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """Two sizes have to be the same: each takes the other."""
    one, other = numbers(found, 2) or (-1, -1)
    for path in tensors(specs, paths):
        yield from replaced(specs, path, one, other)
        yield from replaced(specs, path, other, one)
    yield from ranks(found, specs, paths)


def matmul(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """The last dimension is that of a matrix."""
    had, wanted = numbers(found, 2) or (-1, -1)
    if wanted < 0:
        return
    for path in tensors(specs, paths):
        yield from replaced(specs, path, had, wanted)
    for path in tensors(specs, paths):
        shape = specs[path]["shape"]
        if shape and wanted <= LARGEST:
            yield altered(specs, path, shape=[*shape[:-1], wanted])
            yield altered(specs, path, shape=[*shape[:1], wanted] if shape[0] == "B" else [wanted])
    for path in tensors(specs, paths):
        yield from replaced(specs, path, wanted, had)


def channels(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A layer wants so many channels."""
    wanted, had = numbers(found, 2) or (-1, -1)
    for path in tensors(specs, paths):
        yield from (sized(specs, path, index, wanted) for index, size in enumerate(specs[path]["shape"]) if size == had)


def rank(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A layer wants so many dimensions."""
    rank = (numbers(found, 1) or [-1])[0]
    for path in tensors(specs, paths):
        shape = [size for size in specs[path]["shape"] if size != "B"]
        image = {1: [8], 2: [3, 16], 3: [3, 16, 16], 4: [3, 8, 16, 16]}.get(rank - 1)
        if image is not None and len(shape) != rank - 1:
            yield batched(specs, path, image)


def exactly(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """So many dimensions, the batch's among them."""
    rank = (numbers(found, 1) or [-1])[0]
    for path in tensors(specs, paths):
        shape = specs[path]["shape"]
        outer = 0 if "B" in shape or "(" in path else 1
        if len(shape) + outer != rank and rank - outer >= 0:
            for filler in (3, 8):
                yield altered(specs, path, shape=[*shape, *[filler] * rank][: rank - outer])


def shaped(*ways: Callable[[list[Any]], list[Any] | None]) -> Change:
    """For one way after the other each tensor in the shape that it gives; None leaves it as it is."""

    def change(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
        for way in ways:
            for path in tensors(specs, paths):
                shape = way(specs[path]["shape"])
                if shape is not None:
                    yield altered(specs, path, shape=shape)

    return change


deeper: Final = shaped(lambda shape: [*shape, 8 if len(shape) <= 1 else 3], lambda shape: [*shape, *([8, 8] if len(shape) <= 1 else [3, 3])])
flatter: Final = shaped(lambda shape: shape[:-1] if shape else None)
scalar: Final = shaped(lambda shape: [] if shape else None, lambda shape: (["B"] if "B" in shape else [1]) if shape else None)


def ranks(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """Fewer dimensions, then more."""
    yield from flatter(found, specs, paths)
    yield from deeper(found, specs, paths)


def larger(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """Larger dimensions."""
    for size in BIG:
        for path in tensors(specs, paths):
            shape = specs[path]["shape"]
            rank = len(shape) - ("B" in shape)
            if rank >= 1:
                largest = max(range(len(shape)), key=lambda at: shape[at] if isinstance(shape[at], int) else 0)
                yield sized(specs, path, largest, size)
            if rank > 1:
                keep = len(shape) - max(1, rank - 1)
                yield altered(specs, path, shape=[*shape[:keep], *([size] * (len(shape) - keep))])


def beyond(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """An index is beyond a dimension."""
    index, size = numbers(found, 2) or (-1, -1)
    for path in tensors(specs, paths):
        yield from replaced(specs, path, size, index + 1)


def square(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """Square matrices."""
    for path in tensors(specs, paths):
        for size in (3, 4):
            yield batched(specs, path, [size, size])


def targets(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A loss wants its target in another shape."""
    sizes = [int(text) for text in re.findall(r"\d+", found[1])]
    for path in tensors(specs, paths):
        if sizes and specs[path]["dtype"] == "int64" and "B" not in specs[path]["shape"]:
            yield altered(specs, path, shape=sizes[1:])
    yield from ranks(found, specs, paths)


def rows(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A loss takes so many rows, and as many targets: a sample has more of them, such as one for each point."""
    wanted, had = numbers(found, 2) or (-1, -1)
    for path in tensors(specs, paths):
        inner = [size for size in specs[path]["shape"] if size != "B"]
        each = math.prod(inner)
        if specs[path]["dtype"] == "int64" and each and had % each == 0 and wanted % (had // each or 1) == 0:
            count = wanted // (had // each or 1)
            if count != each and 0 < count <= LARGEST:
                yield batched(specs, path, [count])
    yield from match(found, specs, paths)


def agree(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """Two shapes have to be the same: each takes the other's."""
    one, other = ([int(text) for text in re.findall(r"\d+", group)] for group in (found[1], found[2]))
    for path in tensors(specs, paths):
        inner = [size for size in specs[path]["shape"] if size != "B"]
        for mine, its in ((one, other), (other, one)):
            if inner == mine[1:]:
                yield batched(specs, path, its[1:])
    yield from ranks(found, specs, paths)


def anything(specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """Small changes of what was used last, where the message is no help."""
    for path in tensors(specs, paths)[:4]:
        shape = specs[path]["shape"]
        yield altered(specs, path, shape=[*shape, 8])
        if shape:
            yield altered(specs, path, shape=shape[:-1])
        yield altered(specs, path, dtype="int64" if specs[path]["dtype"] in FLOATING else "float32")


RULES: Final[tuple[tuple[str, Change], ...]] = (
    (r"KeyError: '([^']+)'", _key),
    (r"too many values to unpack \(expected (\d+)(?:, got (\d+))?\)", _few),
    (r"not enough values to unpack \(expected (\d+), got (\d+)\)", _few),
    (r"'(\w+)' object has no attribute '(\w+)'", _lacks),
    (r"builtin_function_or_method|'method'", _objects),
    (r"tensors used as indices must be", _mappings),
    (r"where expected condition to be a boolean|expected.*Bool", _to("bool")),
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
        _to("int64"),
    ),
    (
        r"tensors used as indices must be|only integer tensors|Expected object of scalar type Long|index.* must be.* int64|one_hot is only applicable to index",
        _to("int64"),
    ),
    (
        r"not implemented for 'Long'|floating point|expected scalar type Float|Found dtype Long|dtype Long|same dtype|result type Float",
        _to("float32"),
    ),
    (r"scalar type|dtype|not implemented for '", _dtypes),
    (r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)", matmul),
    (r"size mismatch, got input \(\d+\), mat \(\d+x(\d+)\), vec \((\d+)\)", match),
    (r"input\.dim\(\) = \d is not equal to len\(dims\) = (\d)", exactly),
    (r"size mismatch, .*\[(?:\d+, )*(\d+)\].*\[(\d+)", matmul),
    (r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)", match),
    (r"to have (\d+) channels, but got (\d+) channels", channels),
    (r"input\.size\(-1\) must be equal to input_size\. Expected (\d+), got (\d+)", match),
    (r"Expected (?:\dD \(unbatched\) or )?(\d)D ?(?:\(batched\) )?(?:or \dD )?input", rank),
    (r"expected (\d)D.*input", rank),
    (r"input must have (\d) dimensions|must be at least (\d)-?D", rank),
    (r"Given normalized_shape=\[(?:\d+, )*(\d+)\].*size\[(?:\d+, )*(\d+)\]", channels),
    (r"running_mean should contain (\d+) elements not (\d+)", match),
    (r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)", rows),
    (r"Expected target size \[([^\]]*)\]", targets),
    (r"Target size \(torch\.Size\(\[([^\]]*)\]\)\) must be the same as input size \(torch\.Size\(\[([^\]]*)\]\)\)", agree),
    (r"target size \(torch\.Size\(\[([^\]]*)\]\)\) that is different to the input size \(torch\.Size\(\[([^\]]*)\]\)\)", agree),
    (r"Sizes of tensors must match except in dimension \d+\. Expected size (\d+) but got size (\d+)", match),
    (r"Expected size for first two dimensions of batch2 tensor to be: \[\d+, (\d+)\] but got: \[\d+, (\d+)\]", match),
    (r"Expected .* to have size (\d+).* got (\d+)", match),
    (r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\)", match),
    (r"selected index k out of range", larger),
    (r"index (\d+) is out of bounds for dimension \d+ with size (\d+)", beyond),
    (r"index (\d+) is out of bounds for axis \d+ with size (\d+)", beyond),
    (r"index out of range in self|Target \d+ is out of bounds|out of bounds|device-side assert", _high),
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
