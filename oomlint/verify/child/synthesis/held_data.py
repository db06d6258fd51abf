"""A dataset that holds data of a kind, in the place of one of the user's that cannot be run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from oomlint.verify.child.loading import tolerant_import

if TYPE_CHECKING:
    from collections.abc import Callable

_TEXT: Final = "x" * 92  # strings of a length that paths and sentences have
_ROW: Final = 1024  # float32 values of one array in a list
_COLUMNS: Final = 256


class InMemoryDataset:
    """Reading a sample touches what it is made of, as any use of it would."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, index: int) -> float:
        return 1000.0 * index + _touched(self._held[index])


def _touched(item: Any) -> float:
    """A number that depends on the sample."""
    if isinstance(item, dict):
        return sum(_touched(value) for value in item.values())
    if isinstance(item, (list, tuple)):
        return sum(_touched(value) for value in item)
    if isinstance(item, str):
        return float(len(item))
    if hasattr(item, "ravel"):
        return float(item.ravel()[0])
    return float(item)


def _array(size: int) -> Any:
    rows = size // (4 * _COLUMNS)
    return np.arange(rows * _COLUMNS, dtype=np.float32).reshape(rows, _COLUMNS)


def _strings(size: int) -> list[str]:
    return [f"{number:08d}{_TEXT}" for number in range(size // 157)]  # bytes: 100 characters, the object and its place in the list


_MAKERS: Final[dict[str, Callable[[int], Any]]] = {
    "strings": _strings,
    "numbers": lambda size: [float(number) + 0.5 for number in range(size // 32)],
    "dicts": lambda size: [{"id": number + 1000, "path": f"images/{number:08d}.jpg", "caption": f"{number} {_TEXT}"} for number in range(size // 520)],
    "lists": lambda size: [[f"{number} {word} of a sentence" for word in range(6)] for number in range(size // 560)],
    "objects": lambda size: np.array(_strings(size), dtype=object),
    "arrays": lambda size: [np.full(_ROW, float(number), dtype=np.float32) for number in range(size // (4 * _ROW))],
    "array": _array,
    "tensor": lambda size: torch.from_numpy(_array(size)),
    "tensors": lambda size: [torch.full((_ROW,), float(number)) for number in range(size // (4 * _ROW))],
}


def dataset(subject: dict[str, Any]) -> InMemoryDataset:
    """Of ``kind`` and ``size`` in bytes. ``expression`` makes of ``__data__`` what it holds; names in it are those of the program at ``path``."""
    held = _MAKERS[subject["kind"]](subject["size"])
    if subject["expression"]:
        scope = dict(vars(tolerant_import.load(subject["path"], subject["root"]).module)) | {"__data__": held}
        held = eval(subject["expression"], scope)  # noqa: S307 -- the user's own program, in a child that is fenced in
    return InMemoryDataset(held)
