"""What messages of exceptions say about stand-ins that did not fit: for each pattern the changes of their specs to try, the likeliest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.verify.child.search import shape_mutations
from oomlint.verify.child.synthesis import deferred_value, name_heuristics, stub_registry

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator

    from oomlint.verify.child.synthesis.name_heuristics import Spec

    Edit = dict[str, Spec | None]  # by path; ``None`` forgets what is known of it

# -- structure -----------------------------------------------------------------------------------------------------------------


def _key(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in paths:
        if specs[path]["kind"] == "dict" and found[1] not in specs[path].get("keys", ()):
            yield shape_mutations.altered(specs, path, keys=[*specs[path].get("keys", ()), found[1]])
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
    for path in shape_mutations.tensors(specs, paths):
        shape = specs[path]["shape"]
        if shape:
            yield shape_mutations.altered(specs, path, shape=[*shape[:-1], wanted])
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


def _becoming(fits: Callable[[str, Spec], bool], made: Callable[[Spec], Spec]) -> shape_mutations.Change:
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
    for path in shape_mutations.tensors(specs, paths):
        yield shape_mutations.altered(specs, path, dtype="int64" if specs[path]["dtype"] in shape_mutations.FLOATING else "float32")
    for path in shape_mutations.tensors(specs, paths):
        if specs[path]["dtype"] != "bool":
            yield shape_mutations.altered(specs, path, dtype="bool")


def _to(dtype: str) -> shape_mutations.Change:
    def change(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
        for path in shape_mutations.tensors(specs, paths):
            if specs[path]["dtype"] != dtype:
                yield shape_mutations.altered(specs, path, dtype=dtype)

    return change


def _high(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in shape_mutations.tensors(specs, paths):
        if specs[path]["dtype"] == "int64" and specs[path].get("high", 2) > 1:
            yield shape_mutations.altered(specs, path, high=1)


def _differentiable(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    for path in paths:
        spec = specs[path]
        if spec["kind"] == "tensor" and "(" in path and spec["dtype"] != "float32":
            yield shape_mutations.altered(specs, path, dtype="float32")
        elif spec["kind"] == "tensor" and "(" in path and not spec.get("learns"):
            yield shape_mutations.altered(specs, path, learns=True)
        if spec["kind"] == "const" and "loss" in path:
            yield {path: {"kind": "criterion"}}


def _optimizer(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A schedule takes an optimizer; what was taken for options may be one."""
    for path in sorted(paths, key=lambda item: "opt" not in name_heuristics.last(item).lower()):
        if specs[path]["kind"] == "object" and "(" not in path:
            yield {path: {"kind": "optimizer"}}


RULES: Final[tuple[tuple[str, shape_mutations.Change], ...]] = (
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
        shape_mutations.deeper,
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
    (r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)", shape_mutations.matmul),
    (r"size mismatch, got input \(\d+\), mat \(\d+x(\d+)\), vec \((\d+)\)", shape_mutations.match),
    (r"input\.dim\(\) = \d is not equal to len\(dims\) = (\d)", shape_mutations.exactly),
    (r"size mismatch, .*\[(?:\d+, )*(\d+)\].*\[(\d+)", shape_mutations.matmul),
    (r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)", shape_mutations.match),
    (r"to have (\d+) channels, but got (\d+) channels", shape_mutations.channels),
    (r"input\.size\(-1\) must be equal to input_size\. Expected (\d+), got (\d+)", shape_mutations.match),
    (r"Expected (?:\dD \(unbatched\) or )?(\d)D ?(?:\(batched\) )?(?:or \dD )?input", shape_mutations.rank),
    (r"expected (\d)D.*input", shape_mutations.rank),
    (r"input must have (\d) dimensions|must be at least (\d)-?D", shape_mutations.rank),
    (r"Given normalized_shape=\[(?:\d+, )*(\d+)\].*size\[(?:\d+, )*(\d+)\]", shape_mutations.channels),
    (r"running_mean should contain (\d+) elements not (\d+)", shape_mutations.match),
    (r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)", shape_mutations.rows),
    (r"Expected target size \[([^\]]*)\]", shape_mutations.targets),
    (r"Target size \(torch\.Size\(\[([^\]]*)\]\)\) must be the same as input size \(torch\.Size\(\[([^\]]*)\]\)\)", shape_mutations.agree),
    (r"target size \(torch\.Size\(\[([^\]]*)\]\)\) that is different to the input size \(torch\.Size\(\[([^\]]*)\]\)\)", shape_mutations.agree),
    (r"Sizes of tensors must match except in dimension \d+\. Expected size (\d+) but got size (\d+)", shape_mutations.match),
    (r"Expected size for first two dimensions of batch2 tensor to be: \[\d+, (\d+)\] but got: \[\d+, (\d+)\]", shape_mutations.match),
    (r"Expected .* to have size (\d+).* got (\d+)", shape_mutations.match),
    (r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\)", shape_mutations.match),
    (r"selected index k out of range", shape_mutations.larger),
    (r"index (\d+) is out of bounds for dimension \d+ with size (\d+)", shape_mutations.beyond),
    (r"index (\d+) is out of bounds for axis \d+ with size (\d+)", shape_mutations.beyond),
    (r"index out of range in self|Target \d+ is out of bounds|out of bounds|device-side assert", _high),
    (r"Dimension out of range|too many indices|invalid index|out of bounds for array of dimension", shape_mutations.deeper),
    (
        r"Dimension out of range|too many indices|number of dim|dim\(\) = \d|input\.dim|IndexError|multi-target|must be \d+-?D|\dD tensor",
        shape_mutations.ranks,
    ),
    (r"dimension", shape_mutations.ranks),
    (r"can't be greater than actual input size|Output size is too small|output size is too small|Calculated padded input size", shape_mutations.larger),
    (
        r"cannot be converted to Scalar|only (?:one element|length-1|size-1)|implicitly created only for scalar|value is ambiguous|only 0-dimensional",
        shape_mutations.scalar,
    ),
    (r"does not require grad", _differentiable),
    (r"is not an Optimizer", _optimizer),
    (r"must be batches of square matrices|3x3|square", shape_mutations.square),
    (r"shape '\[[^\]]*\]' is invalid for input of size", shape_mutations.ranks),
)
