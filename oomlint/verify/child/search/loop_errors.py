"""What messages of exceptions say about stand-ins that did not fit: for each pattern the changes of their specs to try, the likeliest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.synthesis import deferred_value, name_heuristics, stub_registry

if TYPE_CHECKING:
    import re
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
    kind = types.get(found[found.lastindex or 1])
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


def _differentiable(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in paths:
        spec = specs[path]
        if spec["kind"] == "tensor" and "(" in path and spec["dtype"] != "float32":
            yield altered(specs, path, dtype="float32")
        elif spec["kind"] == "tensor" and "(" in path and not spec.get("learns"):
            yield altered(specs, path, learns=True)
        if spec["kind"] == "const" and "loss" in path:
            yield {path: {"kind": "criterion"}}


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
    (r"stand-in:(\S+?)(?:['\" ,)]|$)", _named),
    (
        r"iteration over a 0-d tensor|slice\(\) cannot be applied to a 0-dim tensor|invalid index of a 0-dim tensor|zero-dimensional tensor|0-d tensor",
        deeper,
    ),
    (r"'(int|float|str|bool)' object is not (?:callable|subscriptable|iterable)", _constant),
    (
        r"(?:can only concatenate str|must be real number, not|not supported between instances of|unsupported operand type).*\b'?(str|int|float|bool)'?",
        _constant,
    ),
    (r"(?:must be Tensor|expected Tensor).*not '?(int|float|str|bool)|'(float)' object cannot be interpreted as an integer", _constant),
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
    (r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)|size mismatch, .*\[(?:\d+, )*(\d+)\].*\[(\d+)", matmul),
    (r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)|Expected size (\d+) but got size (\d+)", match),
    (r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\)|Expected .* to have size (\d+).* got (\d+)", match),
    (r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)", match),
    (r"equal to input_size\. Expected (\d+), got (\d+)|running_mean should contain (\d+) elements not (\d+)", match),
    (r"to have (\d+) channels, but got (\d+) channels|Given normalized_shape=\[(?:\d+, )*(\d+)\].*size\[(?:\d+, )*(\d+)\]", channels),
    (r"(?i)expected (?:\dD \(unbatched\) or )?(\d)D.*input|input must have (\d) dimensions|must be at least (\d)-?D", rank),
    (r"selected index k out of range|can't be greater than actual input size|[Oo]utput size is too small|Calculated padded input size", larger),
    (r"Dimension out of range|too many indices|invalid index|out of bounds for array of dimension", deeper),
    (
        r"(?i)dimension|too many indices|number of dim|dim\(\) = \d|input\.dim|IndexError|multi-target|\dD tensor|target size|is invalid for input of size",
        ranks,
    ),
    (
        r"cannot be converted to Scalar|only (?:one element|length-1|size-1)|implicitly created only for scalar|value is ambiguous|only 0-dimensional",
        scalar,
    ),
    (r"does not require grad", _differentiable),
)
