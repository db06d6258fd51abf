"""Which tensors a file of ``torch.save`` holds: keys, shapes, types. Its pickle is read as a text of instructions; no class is looked up, nothing is called."""

from __future__ import annotations

import pickletools
from math import prod
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST: Final = 4 << 20  # bytes: what is longer has more than tensors in it
_TYPES: Final = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
_TUPLES: Final = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_REBUILT: Final = frozenset({"torch._utils _rebuild_tensor", "torch._utils _rebuild_tensor_v2"})
_DEEPEST: Final = 8  # containers in containers
_MOST: Final = 20_000  # tensors


class SavedTensor(Struct, frozen=True):
    """A tensor of a file. ``dtype`` is empty where nobody knows it, or where its memory is more than it shows."""

    shape: tuple[int, ...]
    dtype: str


class _Global(Struct, frozen=True):
    name: str  # module and name


class _Storage(Struct, frozen=True):
    dtype: str
    count: int


def tensors(data: bytes) -> Iterator[tuple[str, SavedTensor]]:
    """The tensors in dictionaries, lists and tuples, by the keys that lead to them. Raises ValueError or LookupError for a broken pickle."""
    queue: list[tuple[str, object, int]] = [("", _made(data), 0)]
    for _ in range(_MOST):
        if not queue:
            return
        key, one, depth = queue.pop(0)
        if isinstance(one, SavedTensor):
            yield key, one
        elif depth < _DEEPEST and len(queue) < _MOST:
            pairs = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list | tuple) else ()
            queue += [(f"{key}/{name}".strip("/"), part, depth + 1) for name, part in pairs if isinstance(name, str | int)]


def _made(data: bytes) -> object:
    """What the instructions make; ``None`` stands for all that is no container, name, text, number or tensor."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[object, object] = {}
    for code, arg, _ in pickletools.genops(data):
        name = code.name
        if name == "MARK":
            marks.append(len(stack))
            continue
        if name == "STOP":
            break
        if "PUT" in name or name == "MEMOIZE":
            memo[len(memo) if name == "MEMOIZE" else arg] = stack[-1]
            continue
        if "GET" in name:
            stack.append(memo[arg])
            continue
        sliced = pickletools.stackslice in code.stack_before
        before = sum(one not in {pickletools.stackslice, pickletools.markobject} for one in code.stack_before)
        at = marks.pop() if sliced else len(stack)
        items, taken = stack[at:], stack[at - before : at]
        if len(taken) < before:
            raise ValueError("it takes what is not there")
        del stack[at - before :]
        stack += _step(name, arg, taken, items)[: len(code.stack_after)]
    return stack[-1]


def _step(name: str, arg: object, taken: list[Any], items: list[Any]) -> list[object]:
    """What one instruction leaves of what it takes. ``items`` are those since the last mark."""
    made: object = None
    match name, taken:
        case (("EMPTY_DICT" | "DICT"), _):
            made = _dict(items)
        case (("EMPTY_LIST" | "LIST"), _):
            made = items
        case "TUPLE", _:
            made = tuple(items)
        case _, _ if name in _TUPLES:
            made = tuple(taken)
        case (("SETITEMS" | "SETITEM"), [dict() as made, *pair]):
            made |= _dict(items or pair)
        case (("APPENDS" | "APPEND"), [list() as made, *one]):
            made += items or one
        case "BUILD", [made, _]:
            pass
        case "GLOBAL", _:
            made = _Global(str(arg))
        case "STACK_GLOBAL", [str(module), str(word)]:
            made = _Global(f"{module} {word}")
        case "BINPERSID", [("storage", _Global(name=kind), _, _, int(count))]:
            made = _Storage(_TYPES.get(kind.rpartition(" ")[2].removesuffix("Storage"), ""), count)
        case "REDUCE", [_Global(name=function), tuple(given)]:
            made = _called(function, given)
        case _, []:
            made = arg if isinstance(arg, str | int) else None
    return [made] if name != "DUP" else [*taken, *taken]


def _called(function: str, given: tuple[object, ...]) -> object:
    """What a function of torch makes of what it is given."""
    match function, given:
        case "collections OrderedDict", ():
            return {}
        case "torch._utils _rebuild_parameter", (SavedTensor() as made, *_):
            return made
        case _, (_Storage(dtype=dtype, count=count), _, tuple(shape), *_) if function in _REBUILT and all(isinstance(one, int) for one in shape):
            return SavedTensor(shape, dtype if count == prod(shape) else "")
    return None


def _dict(items: list[Any]) -> dict[object, object]:
    return {key: value for key, value in zip(items[::2], items[1::2], strict=False) if isinstance(key, str | int)}
