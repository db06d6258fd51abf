# ruff: noqa: D102 -- the methods are those of what it stands in for, or of the import system
"""A value that becomes what the code uses it as: a dict, a list, text, a number. What it became is noted in its specification.

It serves one trial for files of JSON, pickles and files of torch's; the next trial reads real values of the shape that was found.
"""

from __future__ import annotations

import operator
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.synthesis import file_specs_plain
from oomlint.verify.child.synthesis.source_hints import unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator

Spec = dict[str, Any]
OURS: Final = re.compile(r"(id)?\d+")  # texts that stand in synthesised data: what is keyed by them is keyed by all of them
DEEPEST: Final = 3  # lists within lists
TEXT: Final = frozenset(
    "split strip lower upper replace encode startswith endswith rstrip lstrip find join isdigit decode splitlines title format count".split()
)
ARRAY: Final = frozenset(
    "shape astype numpy ndim dtype reshape float long squeeze unsqueeze T transpose dim mean sum max min clone permute view to size tolist copy cpu".split()
)


RECENT: Final[list[tuple[Spec, str]]] = []  # what is not known and was asked for, the latest last


def settle(error: str) -> bool:
    """After an exception that a function of C raised for clay: make what was asked for last a leaf. Gives whether there was any."""
    for spec, key in reversed(RECENT):
        if spec["t"] == "?":
            words = (("string|bytes|str,", "str"), ("real number|float", "float"), ("integer|int", "int"))
            kind = next((kind for text, kind in words if re.search(text, error)), "")
            spec.update({"t": kind} if kind else file_specs_plain.leaf(file_specs_plain.last(key)))
            return True
    return False


class Clay:
    """A value that is not known yet."""

    def __init__(self, spec: Spec, key: str, count: int, place: int = 0, *, tensors: bool = False) -> None:
        self.__dict__.update(_spec=spec, _key=key, _count=count, _place=place, _tensors=tensors)

    # What it is

    def _is(self, kind: str, **more: Any) -> bool:
        if self._spec["t"] == "?":
            self._spec.update(t=kind, **more)
        return bool(self._spec["t"] == kind)

    def _real(self) -> Any:
        if self._spec["t"] == "?":
            self._spec.update(file_specs_plain.leaf(file_specs_plain.last(self._key)))
        return file_specs_plain.value({"tensors": True, **self._spec} if self._tensors else self._spec, self._key, self._count, self._place)

    def _child(self, spec: Spec, tail: str, place: int) -> Any:
        """Containers and what is not known stay clay; leaves are real at once."""
        if spec["t"] == "?" and tail == "[]" and self._key.count("[]") >= DEEPEST - 1:
            spec["t"] = "float"  # whoever asks for items of items of items wants numbers
        if spec["t"] == "?":
            RECENT.append((spec, self._key + tail))
        child = Clay(spec, self._key + tail, self._count, place, tensors=self._tensors)
        return child if spec["t"] in ("?", "list", "dict", "map", "row") else child._real()

    def _size(self) -> int:
        return self._count if self._spec.get("n", "n") == "n" else int(self._spec["n"])

    def _entry(self, name: Any) -> Any:
        if self._spec["t"] == "?" and OURS.fullmatch(str(name)):
            self._spec.update(t="map", n="n", form="id{}" if str(name).startswith("id") else "{}", of={"t": "?"}, whole=not isinstance(name, str))
        if self._spec["t"] == "map":
            return self._child(self._spec["of"], "{}", int(re.sub(r"\D", "", str(name)) or 0) % max(self._size(), 1))
        if not self._is("dict", keys={}):
            raise TypeError(f"{self._spec['t']} indices must be integers or slices, not str")
        return self._child(self._spec["keys"].setdefault(str(name), {"t": "?"}), f".{name}", self._place)

    def _names(self) -> list[Any]:
        if self._spec["t"] == "dict":
            return list(self._spec["keys"])
        if not self._is("map", n="n", form="id{}", of={"t": "?"}):
            raise AttributeError(f"'{self._spec['t']}' object has no attribute 'keys'")
        form = self._spec.get("form", "{}")
        return [i if self._spec.get("whole") else form.format(i) for i in range(self._size())]

    def _listed(self) -> bool:
        """Whether it is a list, which it is from now on if nothing was known; what a file of torch's holds by name is a tensor."""
        if self._spec["t"] == "?" and self._tensors and re.search(r"\.\w*$|\{\}$", self._key):
            return self._is("array", shape=["n", 8], dtype="f4") and False
        return self._is("list", n="n", of={"t": "?"})

    def _row(self, count: int, names: list[str]) -> bool:
        """Whether it is a row of so many things, which it is from now on if nothing was known."""
        names = [name or f"item{place}" for place, name in enumerate([*names, *[""] * count][:count])]
        return self._is("row", of=[{"t": "?"} for _ in names], names=names) and len(self._spec["of"]) == len(names)

    def _cells(self) -> list[Any]:
        return [self._child(spec, f".{name}", self._place) for spec, name in zip(self._spec["of"], self._spec["names"], strict=True)]

    # As a container

    def __getitem__(self, index: Any) -> Any:
        import numpy as np  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

        if isinstance(index, Clay):
            index = index._real()  # noqa: SLF001 -- of the same stand-in, or there is no public way
        if isinstance(index, str):
            return self._entry(index)
        if isinstance(index, slice):
            self._listed()
            return [self[i] for i in range(*index.indices(self._size()))] if self._spec["t"] == "list" else self._real()[index]
        if isinstance(index, (int, np.integer)) and self._spec["t"] == "map":
            return self._entry(index)
        if isinstance(index, (int, np.integer)) and self._spec["t"] == "row":
            return self._cells()[index]
        if not isinstance(index, (int, np.integer)) or not self._listed():
            return self._real()[index]
        place = int(index) + (self._size() if index < 0 else 0)
        if not 0 <= place < self._size():
            raise IndexError("list index out of range")
        return self._child(self._spec["of"], "[]", place)

    def __setitem__(self, name: Any, value: Any) -> None:
        raise TypeError(f"'{self._spec['t']}' object does not support item assignment")

    def __len__(self) -> int:
        if self._spec["t"] == "dict":
            return len(self._spec["keys"])
        if self._spec["t"] == "map" or (self._spec["t"] != "row" and self._listed()):
            return self._size()
        return len(self._real())

    def __iter__(self) -> Iterator[Any]:
        if self._spec["t"] in ("dict", "map"):
            return iter(self._names())
        if self._spec["t"] in ("?", "row") and (wanted := unpacked(sys._getframe(1)))[1] and self._row(*wanted):  # noqa: SLF001 -- there is no public way
            return iter(self._cells())
        if self._spec["t"] != "row" and self._listed():
            return iter([self[i] for i in range(self._size())])
        return iter(self._real())

    def __contains__(self, name: Any) -> bool:
        if self._spec["t"] in ("?", "dict", "map") and isinstance(name, (str, int)):
            self._entry(name)
            return True
        return name in self._real()

    def keys(self) -> list[Any]:
        return self._names()

    def values(self) -> list[Any]:
        return [self._entry(name) for name in self._names()]

    def items(self) -> list[tuple[Any, Any]]:
        return [(name, self._entry(name)) for name in self._names()]

    def get(self, name: Any, default: Any = None) -> Any:
        del default
        return self._entry(name)

    # As a leaf

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in TEXT:
            self._is("str")
        elif name in ARRAY:
            self._is("array", shape=["n", 8], dtype="f4")
        elif name in ("append", "extend", "sort", "index", "insert", "pop"):
            self._is("list", n="n", of={"t": "?"})
        elif self._key.startswith("argument ") and self._spec["t"] in ("?", "dict") and name != "name":
            self._is("dict", keys={})
            self._spec["object"] = True  # what is handed over may have attributes; what a file holds has none
            return self._entry(name)
        return getattr(self._real(), name)

    def __str__(self) -> str:
        self._is("str")
        return str(self._real())

    def __format__(self, form: str) -> str:
        self._is({"d": "int", "f": "float", "g": "float"}.get(form[-1:], "str"))
        return format(self._real(), form)

    def __fspath__(self) -> str:
        return str(self)

    def __hash__(self) -> int:
        return hash(self._real())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            self._is("str")
        return bool(self._real() == (other._real() if isinstance(other, Clay) else other))

    def __bool__(self) -> bool:
        return True

    def __int__(self) -> int:
        self._is("int")
        return int(self._real())

    def __index__(self) -> int:
        if not self._is("int"):
            raise TypeError(f"'{self._spec['t']}' object cannot be interpreted as an integer")
        return int(self._real())

    def __float__(self) -> float:
        self._is("float")
        return float(self._real())

    def _with(self, other: Any, name: str) -> Any:
        self._is("str" if isinstance(other, str) else "int" if isinstance(other, int) else "float")
        own, other = self._real(), other._real() if isinstance(other, Clay) else other  # noqa: SLF001 -- of the same stand-in, or there is no public way
        plain = getattr(operator, name.removeprefix("r"))
        return plain(other, own) if name.startswith("r") else plain(own, other)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy as np  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

        del copy
        self._is("array", shape=["n", 8], dtype="f4")
        return np.asarray(self._real(), dtype=dtype)


def _operator(name: str) -> Any:
    def method(self: Clay, other: Any) -> Any:
        return self._with(other, name)

    return method


for _name in "add radd sub rsub mul rmul truediv rtruediv floordiv mod lt gt le ge".split():
    setattr(Clay, f"__{_name}__", _operator(_name))
