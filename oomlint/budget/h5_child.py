"""Lists the arrays of an HDF5 file as JSON: key, shape, bytes of an element and of all chunks, type. Runs as a process of its own, with nothing of oomlint."""

from __future__ import annotations

import importlib
import json
import math
import sys

_MOST = 20_000  # arrays: more are listed in part


def main(path: str) -> int:
    """Print what the file holds. The exit status is 1 where it cannot be opened; standard error then says why."""
    try:
        h5py = importlib.import_module("h5py")  # it may be missing
    except ImportError:
        sys.stderr.write("h5py is not there: the extra `verify` brings it\n")
        return 1
    found = []

    def visit(name: str, item: object) -> bool | None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            chunks = [-(-length // part) * part for length, part in zip(item.shape, item.chunks or (), strict=False)]
            inside = None if item.is_virtual else item.id.get_type().get_size() * math.prod(chunks) if item.chunks else 0
            found.append((name, item.shape, None if item.dtype.hasobject else item.dtype.itemsize, inside, item.dtype.name))
        return True if len(found) >= _MOST else None

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)
    except Exception as error:  # noqa: BLE001 - whatever a broken file brings about
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return 1
    sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
