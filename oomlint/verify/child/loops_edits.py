"""What messages of exceptions say about stand-ins that did not fit: for each pattern the changes of their specs to try, the likeliest first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child import values, values_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oomlint.verify.child.values_names import Spec

    Edit = dict[str, Spec | None]  # by path; ``None`` forgets what is known of it

FLOATING: Final = ("float32",)
BIG: Final = (32, 64, 128, 224)
LARGEST: Final = 4096  # a dimension beyond it would make the trial slow


def _tensors(specs: dict[str, Spec], paths: list[str]) -> list[str]:
    return [path for path in paths if specs[path]["kind"] == "tensor"]


def _with(specs: dict[str, Spec], path: str, **fields: Any) -> Edit:
    return {path: {**specs[path], **fields}}


# -- structure -----------------------------------------------------------------------------------------------------------------


def _key(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in paths:
        if specs[path]["kind"] == "dict" and found[1] not in specs[path].get("keys", ()):
            yield _with(specs, path, keys=[*specs[path].get("keys", ()), found[1]])
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
    for path in _tensors(specs, paths):
        shape = specs[path]["shape"]
        if shape:
            yield _with(specs, path, shape=[*shape[:-1], wanted])
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
            elif name in values_late_tensor():
                yield {path: {"kind": "tensor", "shape": [8], "dtype": "float32"}}
            elif holder in ("Tensor", "dict", "list", "tuple"):
                yield {path: {"kind": "object", "keys": [name]}}
            else:
                yield {path: None}


def _objects(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """An attribute of a batch has the name of a method of tensors."""
    for path in paths:
        if path.endswith("[*]") and specs[path]["kind"] == "tensor":
            yield {path: {"kind": "object", "keys": []}}


def _mappings(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """What is gone through gives keys."""
    for path in paths:
        if "[*]" in path and specs[path]["kind"] == "tensor":
            yield {path: {"kind": "dict", "keys": ["item"]}}


def values_late_tensor() -> frozenset[str]:
    """Names of what tensors have."""
    from oomlint.verify.child import values_late  # noqa: PLC0415 -- only for this

    return values_late.TENSOR


def _named(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A message names the stand-in by its path."""
    del paths
    path = found[1]
    name = values_names.last(path)
    yield {path: {"kind": "tensor", "shape": ["B", values.CLASSES] if "(" in path else [8], "dtype": "float32"}}
    yield {path: {"kind": "const", "value": values_names.number(name)}}
    yield {path: {"kind": "const", "value": name or "text"}}
    yield {path: {"kind": "list", "n": 2}}
    yield {path: {"kind": "model"}}
    del specs


def _constant(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A number, a text or a flag is used as something else."""
    types = {"int": int, "float": float, "str": str, "bool": bool}
    kind = types.get(found[1])
    for path in paths:
        spec = specs[path]
        if spec["kind"] == "const" and kind is not None and type(spec["value"]) is kind:
            for value in (2, 0.5, values_names.last(path) or "text", True):
                if type(value) is not kind:
                    yield {path: {"kind": "const", "value": value}}
            yield {path: {"kind": "object"}}
            yield {path: {"kind": "list", "n": 2}}


def _pathlike(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A text is used as a path."""
    for path in paths:
        if specs[path]["kind"] == "const" and isinstance(specs[path]["value"], str):
            yield {path: {"kind": "path", "value": specs[path]["value"]}}


def _whole(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A float stands where an integer has to."""
    for path in paths:
        if specs[path]["kind"] == "const" and isinstance(specs[path]["value"], float):
            yield {path: {"kind": "const", "value": 2}}


# -- numbers -------------------------------------------------------------------------------------------------------------------


def _dtypes(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in _tensors(specs, paths):
        yield _with(specs, path, dtype="int64" if specs[path]["dtype"] in FLOATING else "float32")
    for path in _tensors(specs, paths):
        if specs[path]["dtype"] != "bool":
            yield _with(specs, path, dtype="bool")


def _to(dtype: str) -> Callable[[re.Match[str], dict[str, Spec], list[str]], Iterator[Edit]]:
    def change(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
        for path in _tensors(specs, paths):
            if specs[path]["dtype"] != dtype:
                yield _with(specs, path, dtype=dtype)

    return change


def _high(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in _tensors(specs, paths):
        if specs[path]["dtype"] == "int64" and specs[path].get("high", 2) > 1:
            yield _with(specs, path, high=1)


# -- shapes --------------------------------------------------------------------------------------------------------------------


def _replaced(specs: dict[str, Spec], path: str, old: int, new: int) -> Iterator[Edit]:
    shape = specs[path]["shape"]
    if new > LARGEST:
        return
    for index in reversed(range(len(shape))):
        if shape[index] == old:
            yield _with(specs, path, shape=[*shape[:index], new, *shape[index + 1 :]])


def _match(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    one, other = int(found[1]), int(found[2])
    for path in _tensors(specs, paths):
        yield from _replaced(specs, path, one, other)
        yield from _replaced(specs, path, other, one)
    yield from _ranks(found, specs, paths)


def _matmul(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    had, wanted = int(found[1]), int(found[2])
    for path in _tensors(specs, paths):
        yield from _replaced(specs, path, had, wanted)
    for path in _tensors(specs, paths):
        shape = specs[path]["shape"]
        if shape and wanted <= LARGEST:
            yield _with(specs, path, shape=[*shape[:-1], wanted])
            yield _with(specs, path, shape=[*shape[:1], wanted] if shape[0] == "B" else [wanted])
    for path in _tensors(specs, paths):
        yield from _replaced(specs, path, wanted, had)


def _channels(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    wanted, had = int(found[1]), int(found[2])
    for path in _tensors(specs, paths):
        shape = specs[path]["shape"]
        for index, size in enumerate(shape):
            if size == had:
                yield _with(specs, path, shape=[*shape[:index], wanted, *shape[index + 1 :]])


def _rank(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A layer wants so many dimensions."""
    rank = int(found[1])
    for path in _tensors(specs, paths):
        shape = [size for size in specs[path]["shape"] if size != "B"]
        lead = ["B"] if "B" in specs[path]["shape"] else []
        inner = rank - 1
        image = {1: [8], 2: [3, 16], 3: [3, 16, 16], 4: [3, 8, 16, 16]}.get(inner)
        if image is not None and len(shape) != inner:
            yield _with(specs, path, shape=[*lead, *image])


def _exactly(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """So many dimensions, the batch's among them."""
    rank = int(found[1])
    for path in _tensors(specs, paths):
        shape = specs[path]["shape"]
        outer = 0 if "B" in shape or "(" in path else 1
        if len(shape) + outer != rank and rank - outer >= 0:
            for filler in (3, 8):
                yield _with(specs, path, shape=[*shape, *[filler] * rank][: rank - outer])


def _deeper(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in _tensors(specs, paths):
        shape = specs[path]["shape"]
        yield _with(specs, path, shape=[*shape, 8 if len(shape) <= 1 else 3])
    for path in _tensors(specs, paths):
        shape = specs[path]["shape"]
        yield _with(specs, path, shape=[*shape, *([8, 8] if len(shape) <= 1 else [3, 3])])


def _flatter(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in _tensors(specs, paths):
        if specs[path]["shape"]:
            yield _with(specs, path, shape=specs[path]["shape"][:-1])


def _ranks(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    yield from _flatter(found, specs, paths)
    yield from _deeper(found, specs, paths)


def _scalar(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in _tensors(specs, paths):
        if specs[path]["shape"]:
            yield _with(specs, path, shape=[])
    for path in _tensors(specs, paths):
        if specs[path]["shape"]:
            yield _with(specs, path, shape=[1] if "B" not in specs[path]["shape"] else ["B"])


def _larger(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for size in BIG:
        for path in _tensors(specs, paths):
            shape = specs[path]["shape"]
            rank = len(shape) - ("B" in shape)
            if rank >= 1:
                largest = max(range(len(shape)), key=lambda at: shape[at] if isinstance(shape[at], int) else 0)
                yield _with(specs, path, shape=[*shape[:largest], size, *shape[largest + 1 :]])
            if rank > 1:
                keep = len(shape) - max(1, rank - 1)
                yield _with(specs, path, shape=[*shape[:keep], *([size] * (len(shape) - keep))])


def _range(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """An index is beyond a dimension."""
    index, size = int(found[1]), int(found[2])
    for path in _tensors(specs, paths):
        shape = specs[path]["shape"]
        for at in reversed(range(len(shape))):
            if shape[at] == size:
                yield _with(specs, path, shape=[*shape[:at], index + 1, *shape[at + 1 :]])


def _square(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in _tensors(specs, paths):
        shape = specs[path]["shape"]
        lead = ["B"] if "B" in shape else []
        for size in (3, 4):
            yield _with(specs, path, shape=[*lead, size, size])


def _targets(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A loss wants its target in another shape."""
    numbers = [int(text) for text in re.findall(r"\d+", found[1])]
    for path in _tensors(specs, paths):
        if numbers and specs[path]["dtype"] == "int64" and "B" not in specs[path]["shape"]:
            yield _with(specs, path, shape=numbers[1:])
    yield from _ranks(found, specs, paths)


def _agree(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """Two shapes have to be the same: each takes the other's."""
    one, other = ([int(text) for text in re.findall(r"\d+", group)] for group in (found[1], found[2]))
    for path in _tensors(specs, paths):
        shape = specs[path]["shape"]
        lead: list[Any] = ["B"] if "B" in shape else []
        inner = [size for size in shape if size != "B"]
        for mine, its in ((one, other), (other, one)):
            if inner == mine[1:]:
                yield _with(specs, path, shape=[*lead, *its[1:]])
    yield from _ranks(found, specs, paths)


def anything(specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """Small changes of what was used last, where the message is no help."""
    for path in _tensors(specs, paths)[:4]:
        shape = specs[path]["shape"]
        yield _with(specs, path, shape=[*shape, 8])
        if shape:
            yield _with(specs, path, shape=shape[:-1])
        yield _with(specs, path, dtype="int64" if specs[path]["dtype"] in FLOATING else "float32")


def _differentiable(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in paths:
        spec = specs[path]
        if spec["kind"] == "tensor" and "(" in path and spec["dtype"] != "float32":
            yield _with(specs, path, dtype="float32")
        if spec["kind"] == "const" and "loss" in path:
            yield {path: {"kind": "criterion"}}


RULES: Final[tuple[tuple[str, Callable[[re.Match[str], dict[str, Spec], list[str]], Iterator[Edit]]], ...]] = (
    (r"KeyError: '([^']+)'", _key),
    (r"too many values to unpack \(expected (\d+)(?:, got (\d+))?\)", _few),
    (r"not enough values to unpack \(expected (\d+), got (\d+)\)", _few),
    (r"'(\w+)' object has no attribute '(\w+)'", _lacks),
    (r"builtin_function_or_method|'method'", _objects),
    (r"tensors used as indices must be", _mappings),
    (r"where expected condition to be a boolean|expected.*Bool", _to("bool")),
    (r"stand-in:(\S+?)['\" ,)]", _named),
    (r"stand-in:(\S+)$", _named),
    (r"iteration over a 0-d tensor|slice\(\) cannot be applied to a 0-dim tensor|invalid index of a 0-dim tensor|zero-dimensional tensor|0-d tensor", _deeper),
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
    (r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)", _matmul),
    (r"size mismatch, got input \(\d+\), mat \(\d+x(\d+)\), vec \((\d+)\)", _match),
    (r"input\.dim\(\) = \d is not equal to len\(dims\) = (\d)", _exactly),
    (r"mat1 and mat2 must have the same dtype|size mismatch, .*\[(?:\d+, )*(\d+)\].*\[(\d+)", _matmul),
    (r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)", _match),
    (r"to have (\d+) channels, but got (\d+) channels", _channels),
    (r"input\.size\(-1\) must be equal to input_size\. Expected (\d+), got (\d+)", _match),
    (r"Expected (?:\dD \(unbatched\) or )?(\d)D ?(?:\(batched\) )?(?:or \dD )?input", _rank),
    (r"expected (\d)D.*input", _rank),
    (r"input must have (\d) dimensions|must be at least (\d)-?D", _rank),
    (r"Given normalized_shape=\[(?:\d+, )*(\d+)\].*size\[(?:\d+, )*(\d+)\]", _channels),
    (r"running_mean should contain (\d+) elements not (\d+)", _match),
    (r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)", _match),
    (r"Expected target size \[([^\]]*)\]", _targets),
    (r"Target size \(torch\.Size\(\[([^\]]*)\]\)\) must be the same as input size \(torch\.Size\(\[([^\]]*)\]\)\)", _agree),
    (r"target size \(torch\.Size\(\[([^\]]*)\]\)\) that is different to the input size \(torch\.Size\(\[([^\]]*)\]\)\)", _agree),
    (r"Sizes of tensors must match except in dimension \d+\. Expected size (\d+) but got size (\d+)", _match),
    (r"Expected size for first two dimensions of batch2 tensor to be: \[\d+, (\d+)\] but got: \[\d+, (\d+)\]", _match),
    (r"Expected .* to have size (\d+).* got (\d+)", _match),
    (r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\)", _match),
    (r"selected index k out of range", _larger),
    (r"index (\d+) is out of bounds for dimension \d+ with size (\d+)", _range),
    (r"index (\d+) is out of bounds for axis \d+ with size (\d+)", _range),
    (r"index out of range in self|Target \d+ is out of bounds|out of bounds|device-side assert", _high),
    (r"Dimension out of range|too many indices|invalid index|out of bounds for array of dimension", _deeper),
    (
        r"Dimension out of range|too many indices|number of dim|dim\(\) = \d|input\.dim|IndexError|multi-target|must be \d+-?D|\dD tensor",
        _ranks,
    ),
    (r"dimension", _ranks),
    (r"can't be greater than actual input size|Output size is too small|output size is too small|Calculated padded input size", _larger),
    (
        r"cannot be converted to Scalar|only (?:one element|length-1|size-1)|implicitly created only for scalar|value is ambiguous|only 0-dimensional",
        _scalar,
    ),
    (r"does not require grad", _differentiable),
    (r"must be batches of square matrices|3x3|square", _square),
    (r"shape '\[[^\]]*\]' is invalid for input of size", _ranks),
)
