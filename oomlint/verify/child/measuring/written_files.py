"""Files that a piece of the user's program writes: which are new or changed, and what is in them."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.measuring import handles
from oomlint.verify.child.measuring.digests import digest

if TYPE_CHECKING:
    from collections.abc import Sequence

LARGEST: Final = 2**28  # bytes of a file whose content is compared; of a larger one its size is taken
ARRAYS: Final = (".npy", ".npz")
HDF5: Final = b"\x89HDF\r\n\x1a\n"
PASSED: Final = frozenset({"__pycache__", ".git", ".cache", ".pytest_cache", ".ipynb_checkpoints"})

State = tuple[int, int, int]  # what changes when a file is written: its number, its size in bytes, and the time of its last change in nanoseconds


def files(tops: Sequence[str]) -> dict[str, State]:
    """All files below some folders."""
    found = {}
    for top in tops:
        for where, inner, names in os.walk(top):
            inner[:] = sorted(name for name in inner if name not in PASSED)
            for name in names:
                path = os.path.join(where, name)
                with contextlib.suppress(OSError):
                    state = os.stat(path)
                    found[path] = (state.st_ino, state.st_size, state.st_ctime_ns)
    return found


def changed(before: dict[str, State], tops: Sequence[str]) -> list[str]:
    """Those that are new or changed since."""
    return sorted(path for path, state in files(tops).items() if before.get(path) != state)


def named(path: str, folder: str) -> str:
    """A name that does not depend on where the project and the data lie."""
    name = handles.placeless(path, folder)
    return os.path.relpath(name) if os.path.isabs(name) else name


def written(before: dict[str, State], tops: Sequence[str], folder: str) -> dict[str, str]:
    """Digests of the files that are new or changed, by their names relative to the project or the data; empty ones for those that are gone."""
    gone = [path for path in before if not os.path.lexists(path)]
    return dict(sorted([*((named(path, folder), "") for path in gone), *((named(path, folder), content(path)) for path in changed(before, tops))]))


def content(path: str) -> str:
    """A digest of what is in a file; of a container the values, whose bytes may lie in any order."""
    try:
        size = os.path.getsize(path)
        if size > LARGEST:
            return f"{size} bytes"
        with open(path, "rb") as stream:
            data = stream.read()
        if data.startswith(HDF5):
            return _hdf5(path)
        if path.endswith(ARRAYS):
            return digest(arrays(path))
        return hashlib.sha256(data).hexdigest()
    except Exception as error:  # noqa: BLE001 -- whatever a file leads to that was not finished
        return f"cannot be read: {type(error).__name__}"


def arrays(path: str) -> Any:
    """The array in a file of numpy's, or those of an archive by name."""
    import numpy as np  # noqa: PLC0415 -- only where there is such a file

    loaded = np.load(path, allow_pickle=False)
    return dict(loaded) if hasattr(loaded, "keys") else loaded


def _hdf5(path: str) -> str:
    """Names, attributes and values; not the bytes, which hold times and gaps. A file that is still open for writing says so."""
    import h5py  # type: ignore[import-untyped] # noqa: PLC0415 -- only where a file of its kind was written

    found: list[Any] = []

    def visit(name: str, item: Any) -> None:
        found.append(
            (name, type(item).__name__, sorted((key, digest(value)) for key, value in item.attrs.items()), item[()] if isinstance(item, h5py.Dataset) else None)
        )

    with h5py.File(path, "r") as file:
        visit("/", file)
        file.visititems(visit)
    return digest(found)
