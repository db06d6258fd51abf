"""Attributes of a dataset of the user, and its methods without arguments. Subjects are those of :mod:`oomlint.verify.child.driving.dataset_job`."""

from __future__ import annotations

import sys
from typing import Any, Final

from oomlint.verify.child.driving.dataset_job import folder, made, told
from oomlint.verify.child.measuring import handles
from oomlint.verify.child.measuring.digests import write
from oomlint.verify.child.server.exceptions import seed, words

SCALARS: Final = (bool, int, float, complex, str, bytes, type(None))
MOST: Final = 1_000_000  # items that are looked at one by one
DEEPEST: Final = 6


@told
def face(subject: dict[str, Any], attributes: list[str], methods: list[str]) -> dict[str, Any]:
    """Each attribute of a dataset that was just built, and what each method gives on one that was just built."""
    dataset = made(subject)
    found = {name: _shown(dataset, name, call=False) for name in attributes}
    return {"attributes": found, "methods": {name: _shown(made(subject), name, call=True) for name in methods}}


def _shown(dataset: Any, name: str, *, call: bool) -> dict[str, Any]:
    """A digest of the value where it is plain data, an exception, or only that it is there."""
    seed()
    try:
        value = getattr(dataset, name)
        if call:
            value = value()
    except Exception as error:  # noqa: BLE001 -- whatever the user's code raises is the answer
        return {"error": words(error)}
    if not _plain(value):
        return {"error": "", "digest": "", "none": False}
    written = write(_listed(handles.settled(_unwrapped(value), folder(), loose=True)))
    return {"error": "", "digest": written.hash, "none": value is None, "shown": written.told}


def _unwrapped(value: Any) -> Any:
    """The values of an HDF5 dataset, for whoever reads them."""
    return value[()] if _lazy(value) else value


def _lazy(value: Any) -> bool:
    h5py = sys.modules.get("h5py")
    return h5py is not None and hasattr(h5py, "h5f") and isinstance(value, h5py.Dataset)


def _array(value: Any) -> bool:
    """Whether it is an array, a tensor or a number of such."""
    return hasattr(value, "dtype") and hasattr(value, "shape") and type(value).__module__.partition(".")[0] in {"numpy", "torch"}


def _plain(value: Any, depth: int = 0) -> bool:
    """Whether it is data through and through."""
    if isinstance(value, SCALARS) or _array(value) or _lazy(value):
        return True
    if depth > DEEPEST or (hasattr(value, "__len__") and len(value) > MOST):
        return False
    if isinstance(value, dict):
        return all(_plain(item, depth + 1) for pair in value.items() for item in pair)
    return isinstance(value, (list, tuple, set, frozenset)) and all(_plain(item, depth + 1) for item in value)


def _listed(value: Any, depth: int = 0) -> Any:
    """Lists in place of arrays: whether a row of numbers is the one or the other is no matter of its values."""
    if _array(value):
        size = 1
        for number in value.shape:
            size *= number
        return value.tolist() if hasattr(value, "tolist") and size <= MOST else value
    if isinstance(value, (list, tuple)) and depth <= DEEPEST:
        return [_listed(item, depth + 1) for item in value]
    if isinstance(value, dict) and depth <= DEEPEST:
        return {key: _listed(item, depth + 1) for key, item in value.items()}
    return sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
