# ruff: noqa: D102 -- the methods are those of what it stands in for, or of the import system
"""A recording stand-in for HDF5 files: what a node is follows from how the code uses it. The real file is written from what was recorded.

Nodes that look alike ("/s001/x", "/s002/x") share one entry of the specification, "/*/x"; ``seen`` keeps the real paths.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from oomlint.verify.child.synthesis import file_specs_plain

Spec = dict[str, Any]
MOST: Final = 4000  # nodes of one file that are remembered
FEW: Final = 2  # members of a listed group within a listed group


class StandInError(Exception):
    """The code asks for something that the stand-in does not do."""


class H5Specs:
    """The specification of one file, and what was used of it, the latest last."""

    def __init__(self, key: str, spec: Spec, count: int, log: list[list[str]]) -> None:
        self.key, self.nodes, self.count, self.log = key, spec.setdefault("nodes", {}), count, log
        self.paths: list[str] = spec.setdefault("seen", [])  # shared by all openings of the file
        self.seen = set(self.paths)

    def entry(self, path: str) -> tuple[str, Spec]:
        """The shared entry of a node."""
        like = template(path, self.nodes, self.count)
        entry = self.nodes.setdefault(like, {"is": "?", "shape": ["n", 8], "dtype": "f4", "rank": 0, "attrs": {}})
        use = [self.key, like]
        if use in self.log:
            self.log.remove(use)
        self.log.append(use)
        if path not in self.seen:
            if len(self.seen) >= MOST * max(1, self.count // 8):
                raise StandInError(f"more than {MOST} HDF5 nodes")
            self.seen.add(path)
            self.paths.append(path)
        return like, entry


def members(entry: Spec, count: int) -> list[str]:
    """The names in a listed group."""
    keys = entry.get("keys", {"form": "{}", "count": "n"})
    if isinstance(keys, list):
        return [str(key) for key in keys]
    return [*(keys["form"].format(i) for i in range(count if keys["count"] == "n" else int(keys["count"]))), *keys.get("more", [])]


def unlisted(spec: Spec, like: str, count: int) -> list[str]:
    """The members of a listed group that were asked for by name and that its listing does not have; a real file would list them."""
    entry = spec["nodes"][like]
    if "listed" not in entry or "*" in like or "#" in like:
        return []
    head = like.rstrip("/") + "/"
    known = set(members(entry, count))
    names = [path[len(head) :] for path in spec.get("seen", []) if path.startswith(head)]
    return [name for name in dict.fromkeys(names) if name and "/" not in name and name not in known]


def template(path: str, nodes: Spec, count: int) -> str:
    """The path of the entry that a node shares with its like: members of a listed group are "*", digits are "#"."""
    made = ""
    for part in (item for item in path.split("/") if item):
        above = nodes.get(made or "/", {})
        made += "/*" if "listed" in above and part in members(above, count) else "/" + re.sub(r"\d+", "#", part)
    return made or "/"


ATTRIBUTES: Final = ("int", "str", "ints", "strs", "float")


def attribute(kind: str) -> Any:
    """The value of an attribute."""
    import numpy as np  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

    return {"int": np.int64(4), "str": "a", "ints": np.arange(4), "strs": np.array([b"a", b"b"]), "float": np.float64(1.0)}[kind]


class H5Attributes(Mapping[str, Any]):
    """The attributes of a node; whichever is asked for is there."""

    def __init__(self, entry: Spec) -> None:
        self._kinds: dict[str, str] = entry["attrs"]

    def __getitem__(self, name: str) -> Any:
        return attribute(self._kinds.setdefault(name, "int"))

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


class _Kind(type):
    """Lets `isinstance(node, h5py.Dataset)` decide what a node is."""

    wanted: str

    def __instancecheck__(cls, value: object) -> bool:
        if not isinstance(value, Node):
            return False
        entry = value._entry  # noqa: SLF001 -- of the same stand-in, or there is no public way
        if entry["is"] == "?":
            entry["is"] = "dataset"
        return bool(entry["is"] == cls.wanted)


class Node:
    """A group or a dataset: not known until it is used."""

    def __init__(self, book: H5Specs, path: str) -> None:
        self._book, self._path = book, path
        self._like, self._entry = book.entry(path)

    @property
    def name(self) -> str:
        return self._path

    @property
    def attrs(self) -> H5Attributes:
        return H5Attributes(self._entry)

    @property
    def file(self) -> Node:
        return Node(self._book, "/")

    @property
    def parent(self) -> Node:
        return Node(self._book, self._path.rpartition("/")[0] or "/")

    def _group(self) -> None:
        if self._entry["is"] == "dataset":
            raise StandInError(f"{self._book.key}::{self._like} used as group and dataset")
        self._entry["is"] = "group"

    def _child(self, name: Any) -> Node:
        name = name.decode() if isinstance(name, bytes) else str(name)
        self._group()
        whole = name if name.startswith("/") else f"{self._path.rstrip('/')}/{name}"
        parts = [part for part in whole.split("/") if part]
        for count in range(1, len(parts)):
            Node(self._book, "/" + "/".join(parts[:count]))._group()  # noqa: SLF001 -- of the same stand-in, or there is no public way
        return Node(self._book, "/" + "/".join(parts))

    def _array(self) -> Any:
        if self._entry["is"] == "group":
            raise TypeError("Accessing a group is done with bytes or str, not <class 'int'>")
        self._entry["is"] = "dataset"
        self._book.entry(self._path)
        return file_specs_plain.array(self._entry, f"{self._book.key}::{self._path}", self._book.count)

    def _names(self) -> list[str]:
        self._group()
        if "listed" not in self._entry:
            self._entry["listed"] = True
            inside = any("listed" in other for like, other in self._book.nodes.items() if like != self._like)
            self._entry.setdefault("keys", {"form": "{}", "count": FEW if inside else "n"})
        return members(self._entry, self._book.count)

    # As a group

    def keys(self) -> list[str]:
        return self._names()

    def values(self) -> list[Node]:
        return [self._child(name) for name in self._names()]

    def items(self) -> list[tuple[str, Node]]:
        return [(name, self._child(name)) for name in self._names()]

    def get(self, name: str, default: Any = None) -> Node:
        del default
        return self._child(name)

    def visititems(self, function: Any) -> None:
        for name, node in self.items():
            function(name, node)

    def __contains__(self, name: str) -> bool:
        self._child(name)
        return True

    # As either

    def __iter__(self) -> Iterator[Any]:
        if self._entry["is"] == "group" or self._path == "/":
            return iter(self._names())
        return iter(self._array())

    def __len__(self) -> int:
        if self._entry["is"] == "group" or self._path == "/":
            return len(self._names())
        made = self._array()
        if made.ndim == 0:
            raise TypeError("Attempt to take len() of scalar dataset")
        return len(made)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (str, bytes)):
            return self._child(index)
        rank = sum(1 for item in index if item is not Ellipsis and item is not None) if isinstance(index, tuple) else int(index is not Ellipsis)
        self._entry["rank"] = max(self._entry["rank"], rank)
        while len(self._entry["shape"]) < rank:
            self._entry["shape"].append(8)
        made = self._array()
        first = index[0] if isinstance(index, tuple) and index else index
        if isinstance(first, int) and not isinstance(first, bool) and made.ndim and first >= len(made):
            raise IndexError(f"Index ({first}) out of range for (0-{len(made) - 1})")
        return made[index]

    # As a dataset

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._array().shape)

    def __getattr__(self, name: str) -> Any:
        """What an array has as well: the number of its axes, its bytes, its dtype."""
        import numpy as np  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        return getattr(self._array(), name)

    def asstr(self, *_: object) -> Any:
        self._entry["dtype"] = "S"
        return self._array().astype(str)

    def read_direct(self, target: Any, source: Any = None, into: Any = None) -> None:
        import numpy as np  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

        if source is None and into is None:
            self._entry["shape"] = [*self._entry["shape"][:1], *target.shape[1:]]
        target[into if into is not None else np.s_[...]] = self._array()[source if source is not None else np.s_[...]]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        del copy
        made = self._array()
        return made if dtype is None else made.astype(dtype)

    def __reduce__(self) -> NoReturn:
        raise TypeError("h5py objects cannot be pickled")


class Group(metaclass=_Kind):
    """For `isinstance`."""

    wanted = "group"


class Dataset(metaclass=_Kind):
    """For `isinstance`."""

    wanted = "dataset"


def _expanded(like: str, nodes: Spec, count: int) -> list[str]:
    """The real paths of nodes that look alike, and of the members that a listed group has."""
    heads, walked = [""], ""
    for part in (item for item in like.split("/") if item):
        entry = nodes.get(walked or "/", {})
        names = members(entry, count) if part == "*" and "listed" in entry else [part]
        if "#" in part:
            return []  # which numbers there are only the code knows
        heads = [f"{head}/{name}" for head in heads for name in names]
        walked += f"/{part}"
    entry = nodes.get(like, {})
    return [*(head or "/" for head in heads), *(f"{head}/{name}" for head in heads for name in (members(entry, count) if "listed" in entry else []))]


def write(path: str, spec: Spec, key: str, count: int) -> None:
    """The real file."""
    import h5py  # type: ignore[import-untyped,unused-ignore]  # it has no types; nor need it be there  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

    nodes: Spec = spec["nodes"]
    paths = set(spec.get("seen", [])) | {"/"}
    for like in nodes:
        paths.update(_expanded(like, nodes, count))
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    above = {item[:place] for item in paths for place in range(1, len(item)) if item[place] == "/"}
    with h5py.File(path, "w") as file:
        for item in sorted(paths, key=lambda name: (name.count("/"), name)):
            entry = nodes.get(template(item, nodes, count)) or {"is": "dataset", "shape": ["n", 8], "dtype": "f4", "attrs": {}}
            if item == "/":
                node = file
            elif entry["is"] == "group" or item in above:
                node = file.require_group(item)
            elif item in file:
                continue
            else:
                node = file.create_dataset(item, data=file_specs_plain.array(entry, f"{key}::{item}", count))
            for name, kind in entry["attrs"].items():
                node.attrs[name] = attribute(kind)
