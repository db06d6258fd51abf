"""What a value is, to the last bit: one line for each leaf, and a hash over them. Two values are the same if and only if their lines are.

What a tensor would tell a backward pass (its graph, whether it requires a gradient) and its strides are left out. What cannot be looked into without
changing it, such as an iterator, a handle or a lock, is named by its type alone and noted as opaque.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import hashlib
import pathlib
import random
import re
import sys
import types
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

SHOWN: Final = 4  # elements of a tensor or an array, for the reader of a difference
DEPTH: Final = 60  # levels of nesting looked into
LEAVES: Final = 400_000  # lines of one value
TOLD: Final = 64  # lines of a value that are handed on for a reader
LINE: Final = 200  # characters of a plain value that are shown
RUN: Final = 64  # plain values in a list from which on they share one line
TAB: Final = "\t"  # between the place of a leaf and what it is; `repr` never lets one through

Pairs = Iterable[tuple[str, Any]]

PLAIN: Final = (type(None), bool, int, str, bytes, bytearray, range, slice, type(Ellipsis), type(NotImplemented))
BY_REPR: Final = (
    pathlib.PurePath,
    dt.date,
    dt.time,
    dt.timedelta,
    dt.tzinfo,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    re.Pattern,
)
PARTS: Final[tuple[tuple[str, str, Callable[[Any], dict[str, Any]]], ...]] = (  # by module and class: what such objects are made of
    ("functools", "partial", lambda value: {"func": value.func, "args": value.args, "keywords": value.keywords}),
    ("types", "MethodType", lambda value: {"func": value.__func__.__qualname__, "self": value.__self__}),
    ("types", "MappingProxyType", lambda value: {"items": dict(value)}),
    ("random", "Random", lambda value: {"state": value.getstate()}),
    ("builtins", "BaseException", lambda value: {"args": value.args}),
    ("numpy.random", "RandomState", lambda value: {"state": value.get_state()}),
    ("numpy.random", "Generator", lambda value: {"state": value.bit_generator.state}),
    ("torch", "Generator", lambda value: {"state": value.get_state()}),
    ("torch.nn", "Module", lambda value: {"training": value.training, **value.state_dict()}),
    ("torch.optim", "Optimizer", lambda value: {"state": value.state_dict()}),
)
BY_NAME: Final = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """A value written down."""

    lines: tuple[str, ...]
    opaque: tuple[str, ...]  # places whose content was not looked at: two values with the same lines may differ there

    @property
    def told(self) -> list[str]:
        """The first lines, for the reader of a difference."""
        return list(self.lines[:TOLD])

    @property
    def comparable(self) -> bool:
        """Whether the lines say all."""
        return not self.opaque

    @property
    def hash(self) -> str:
        """Sixteen hexadecimal digits."""
        return hashed("\n".join(self.lines))


def digest(value: Any) -> str:
    """A hash of a value, exact to the last bit."""
    return write(value).hash


def write(value: Any, name: str = "") -> Written:
    """All that a value holds, line by line."""
    writer = _Writer()
    writer.add(value, name, ())
    return Written(tuple(writer.lines), tuple(writer.opaque))


def generators() -> str:
    """Where the generators of random numbers of torch, numpy and Python stand."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    states: list[tuple[str, Any]] = [("random", random.getstate())]
    if numpy is not None:
        states.append(("numpy", numpy.random.get_state()))
    if torch is not None:
        states.append(("torch", torch.get_rng_state()))
    return " ".join(f"{name}:{digest(state)}" for name, state in states)


# -- writing -----------------------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.opaque: list[str] = []

    def say(self, path: str, what: str) -> None:
        self.lines.append(f"{path}{TAB}{what}")

    def hide(self, path: str, what: str) -> None:
        """Name what is not looked into."""
        self.say(path, what)
        self.opaque.append(path)

    def inside(self, items: Pairs, path: str, around: tuple[int, ...]) -> None:
        for name, item in items:
            if len(self.lines) > LEAVES:
                self.hide(path, "more than can be written down")
                return
            self.add(item, f"{path}{name}", around)

    def add(self, value: Any, path: str, around: tuple[int, ...]) -> None:
        kind = type(value).__name__
        if isinstance(value, enum.Enum):
            self.say(path, f"{kind}.{value.name}")
        elif isinstance(value, PLAIN) and _plain(value):
            self.say(path, f"{kind} {_short(value)}")
        elif type(value) is float:
            self.say(path, f"{kind} {number(value)}")
        elif type(value) is complex:
            self.say(path, f"{kind} {number(value.real)} {number(value.imag)}")
        elif id(value) in around:
            self.say(path, f"{kind} that holds this, {len(around) - around.index(id(value))} up")
        elif len(around) >= DEPTH:
            self.hide(path, f"{kind}, nested too deeply")
        else:
            self._compound(value, kind, path, (*around, id(value)))

    def _compound(self, value: Any, kind: str, path: str, around: tuple[int, ...]) -> None:
        if isinstance(value, dict):
            self.say(path, f"{kind} of {len(value)}")
            self.inside(((f"[{self._key(key)}]", item) for key, item in list(value.items())), path, around)
            self._attributes(value, path, around)
        elif isinstance(value, (list, tuple, collections.deque)):
            self._sequence(value, kind, path, around)
        elif isinstance(value, (set, frozenset)):
            self.say(path, f"{kind} of {len(value)}")
            parts = [write(item) for item in value]
            self.opaque += [path for part in parts if part.opaque]
            for number_, lines in enumerate(sorted(part.lines for part in parts)):
                self.lines += [f"{path}{{{number_}}}{line}" for line in lines]
        elif isinstance(value, (float, complex, *PLAIN)):  # of a class of the program
            self.say(path, f"{kind} {_short(value)}")
            self._attributes(value, path, around)
        elif isinstance(value, BY_REPR):
            self.say(path, f"{kind} {value!r}")
        elif isinstance(value, BY_NAME):
            self.say(path, f"{kind} {getattr(value, '__qualname__', value.__name__)}")
        elif isinstance(value, (memoryview, array.array)):
            self.say(path, f"{kind} {hashed(value.tobytes())}")
        elif not self._known(value, kind, path, around):
            self._object(value, kind, path, around)

    def _key(self, key: Any) -> str:
        if type(key) in (str, int, bool, type(None)):
            return repr(key)
        return " ".join(write(key).lines).replace(TAB, "")

    def _sequence(self, value: Any, kind: str, path: str, around: tuple[int, ...]) -> None:
        of = {type(item) for item in value} if len(value) >= RUN else set()
        if len(of) == 1 and of <= {int, float, bool, str, bytes}:
            text = map(number, value) if of == {float} else map(repr, value)
            first = ", ".join(repr(item)[:40] for item in list(value)[:SHOWN])
            self.say(path, f"{kind} of {len(value)} {of.pop().__name__} {hashed(chr(0).join(text))} [{first}]")
            return
        self.say(path, f"{kind} of {len(value)}")
        names = getattr(value, "_fields", None) if isinstance(value, tuple) else None
        named = isinstance(names, tuple) and len(names) == len(value)
        self.inside(((f".{names[at]}" if named and names else f"[{at}]", item) for at, item in enumerate(list(value))), path, around)
        if type(value) not in (list, tuple, collections.deque):
            self._attributes(value, path, around)

    def _attributes(self, value: Any, path: str, around: tuple[int, ...]) -> None:
        """What an instance of a subclass of a container holds besides."""
        inner = getattr(value, "__dict__", None)
        if isinstance(inner, dict):
            self.inside(((f".{name}", item) for name, item in list(inner.items())), path, around)

    def _known(self, value: Any, kind: str, path: str, around: tuple[int, ...]) -> bool:
        """Whether it is of a library whose values are known, and has been written."""
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        library = type(value).__module__.partition(".")[0]
        parts = next((parts for module, name, parts in PARTS if isinstance(value, getattr(sys.modules.get(module), name, ()))), None)
        if parts is not None:
            self.say(path, kind)
            self.inside(((f".{name}", item) for name, item in parts(value).items()), path, around)
        elif torch is not None and isinstance(value, torch.Tensor):
            self.say(path, f"tensor {self._tensor(torch, value)}")
        elif numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            self._array(numpy, value, kind, path, around)
        elif numpy is not None and isinstance(value, numpy.dtype):
            self.say(path, f"dtype {value!r}")
        elif torch is not None and isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            self.say(path, f"{kind} {value!r}")
        elif library == "PIL" and hasattr(value, "tobytes"):
            self.say(path, f"{kind} {value.mode} {value.size} {hashed(value.tobytes())}")
        elif library == "pandas" and hasattr(value, "to_numpy") and hasattr(value, "index"):
            self.say(path, f"{kind} {getattr(value, 'shape', ())}")
            columns = list(value.columns) if hasattr(value, "columns") else []
            self.inside(((".index", list(value.index)), (".columns", columns), (".values", value.to_numpy())), path, around)
        elif library in {"h5py", "lmdb", "_io", "_thread", "multiprocessing", "threading", "tempfile", "zipfile", "mmap", "socket", "weakref", "_weakref"}:
            self.hide(path, kind)
        else:
            return False
        return True

    def _array(self, numpy: Any, value: Any, kind: str, path: str, around: tuple[int, ...]) -> None:
        if value.dtype.hasobject:
            self.say(path, f"{kind} {value.dtype} {value.shape}")
            self.inside(((f".flat[{at}]", item) for at, item in enumerate(value.ravel().tolist())), path, around)
            return
        mask = f" masked {hashed(numpy.ma.getmaskarray(value).tobytes())}" if isinstance(value, numpy.ma.MaskedArray) else ""
        first = ", ".join(map(str, value.ravel()[:SHOWN].tolist()))
        self.say(path, f"{kind} {value.dtype} {value.shape} {hashed(value.tobytes())} [{first}]{mask}")

    def _tensor(self, torch: Any, value: Any) -> str:
        kind = f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)} {value.device}"
        if value.is_meta:
            return kind
        plain = value.detach().cpu()
        if plain.is_sparse:
            plain = plain.coalesce()
            return f"{kind} sparse {_bytes(torch, plain.indices())} {_bytes(torch, plain.values())}"
        if plain.layout is not torch.strided:
            plain = plain.to_dense()
        if plain.is_quantized:
            return f"{kind} quantized {_bytes(torch, plain.int_repr())}"
        return f"{kind} {_bytes(torch, plain)} [{', '.join(map(str, plain.reshape(-1)[:SHOWN].tolist()))}]"

    def _object(self, value: Any, kind: str, path: str, around: tuple[int, ...]) -> None:
        if isinstance(value, Iterator) or callable(getattr(type(value), "__anext__", None)):
            self.hide(path, kind)
            return
        inner = _inner(value)
        if inner is not None:
            self.say(path, kind)
            self.inside(((f".{name}", item) for name, item in inner), path, around)
            return
        text = _repr(value)
        if text:
            self.say(path, f"{kind} {text}")
        else:
            self.hide(path, kind)


def _plain(value: Any) -> bool:
    return type(value) in PLAIN or isinstance(value, (range, slice))


def _short(value: Any) -> str:
    """The text of a plain value; a long one by its hash."""
    base = next((kind for kind in (str, bytes, int, float, complex) if isinstance(value, kind) and not isinstance(value, bool)), None)
    text = base.__repr__(value) if base else repr(value)  # a class of the program may write itself as it likes
    if len(text) <= LINE:
        return text
    size = f"of {len(value)}" if isinstance(value, (str, bytes, bytearray)) else "long"
    return f"{size} {hashed(text)}"


def _inner(value: Any) -> list[tuple[str, Any]] | None:
    """The attributes of an instance, slots included; ``None`` where it has no such thing."""
    found: dict[str, Any] = {}
    slotted = False
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name in {"__dict__", "__weakref__"}:
                continue
            slotted = True
            mangled = f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            try:
                found.setdefault(name, getattr(value, mangled))
            except Exception:  # noqa: BLE001, S112 - a slot that was never set has nothing to tell, and a descriptor may do anything
                continue
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        attributes = None
    if isinstance(attributes, dict):
        found.update(attributes)
    elif not slotted:
        return None
    return list(found.items())


def _repr(value: Any) -> str:
    """The text of a value of a library, if it says what is inside and not where it lies."""
    writes: Any = type(value).__repr__
    if writes is object.__repr__:
        return ""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - of the user's class
        return ""
    return "" if " at 0x" in text or "object at" in text else text


def number(value: float) -> str:
    """A float to the last bit. All not-a-numbers are one; zero has its sign."""
    return "nan" if value != value else value.hex()  # noqa: PLR0124 - a nan is what differs from itself


def _bytes(torch: Any, value: Any) -> str:
    plain = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return hashed(plain.view(torch.uint8).numpy().tobytes()) if plain.numel() else hashed(b"")


def hashed(data: bytes | str) -> str:
    """Sixteen hexadecimal digits that stand for it."""
    return hashlib.sha256(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data).hexdigest()[:16]


# -- telling -----------------------------------------------------------------------------------------------------------


def describe(value: Any, depth: int = 0) -> str:
    """What a value is, shortly, for a reader: "dict of 2: image float32 (3, 8, 8), label int"."""
    kind = type(value).__name__
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None and not isinstance(value, type):
        return f"{str(dtype).removeprefix('torch.')} {tuple(shape)}"
    if not isinstance(value, (dict, list, tuple)) or depth > 1:
        return f"{kind} of {len(value)}" if isinstance(value, (dict, list, tuple, set)) else kind
    within: Callable[[Any], str] = functools.partial(describe, depth=depth + 1)
    pairs = list(value.items()) if isinstance(value, dict) else [("", item) for item in value]
    parts = [f"{key} {within(item)}".lstrip() for key, item in pairs[:SHOWN]]
    more = ", ..." if len(value) > SHOWN else ""
    return f"{kind} of {len(value)}" + (": " if parts else "") + ", ".join(parts) + more
