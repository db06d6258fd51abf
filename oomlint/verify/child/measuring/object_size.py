"""How much memory an object takes, to the byte: of Python and NumPy by tracemalloc, of tensors by their storages. What is mapped from a file is none."""

from __future__ import annotations

import bisect
import functools
import gc
import os
import time
import tracemalloc
import weakref
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from types import TracebackType


StorageWeakRef: Final = import_module("torch.multiprocessing.reductions").StorageWeakRef
DispatchMode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
LARGE: Final = 2**16  # bytes
AGE: Final = 1.0  # seconds
LENDING: Final = ("from_numpy", "as_tensor", "tensor")


class Held(DispatchMode):  # type: ignore[misc] # PyTorch gives it no types
    """Counts while it is entered. ``live`` is what is held now, ``peak`` the most since :meth:`begin`, both in bytes above the start."""

    def __init__(self) -> None:
        super().__init__()
        self._large: dict[int, tuple[Any, int]] = {}  # looked through at each note
        self._small: dict[int, tuple[Any, int]] = {}  # only where somebody asks
        self._own: dict[int, float] = {}  # addresses that lay in no map of a file, and when that was seen
        self._borrowed: dict[int, weakref.ref[Any]] = {}  # memory of arrays by its address: tracemalloc counts it already
        self._plain = {name: getattr(torch, name) for name in LENDING}
        self._base = 0
        self._peak = 0

    def __enter__(self) -> Held:  # noqa: PYI034 -- Self is of Python 3.11
        for name, plain in self._plain.items():
            setattr(torch, name, self._lending(plain))
        super().__enter__()
        torch.zeros(1)  # the first operation imports hundreds of modules
        gc.collect()
        tracemalloc.start(1)
        self.begin()
        self._base = self._now()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        tracemalloc.stop()
        super().__exit__(kind, error, trace)
        for name, plain in self._plain.items():
            setattr(torch, name, plain)

    def _lending(self, plain: Any) -> Any:
        @functools.wraps(plain)
        def lend(value: Any, *rest: Any, **named: Any) -> Any:
            if isinstance(value, np.ndarray):
                self._borrowed[value.__array_interface__["data"][0]] = weakref.ref(value)
            return plain(value, *rest, **named)

        return lend

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.device.type == "cpu":
                self._meet(leaf.untyped_storage())
        return out

    def _meet(self, storage: torch.UntypedStorage) -> None:
        address, size = storage.data_ptr(), storage.nbytes()
        kept = self._large if size >= LARGE else self._small
        known = kept.get(address)
        lent = self._borrowed.get(address)
        if address and (lent is None or lent() is None) and (known is None or known[0].expired()) and not (size >= LARGE and self._is_mapped(address)):
            kept[address] = (StorageWeakRef(storage), size)
            if kept is self._large:
                self._note()

    def _is_mapped(self, address: int) -> bool:
        """Whether it lies in the map of a file. The allocator gives the same addresses again and again, and to ask takes a millisecond."""
        now = time.monotonic()
        if now - self._own.get(address, -AGE) < AGE:
            return False
        if _mapped([address]):
            return True
        self._own[address] = now
        return False

    def _tensors(self) -> int:
        self._large = {address: item for address, item in self._large.items() if not item[0].expired()}
        return sum(size for _, size in self._large.values())

    def _now(self) -> int:
        return self._tensors() + tracemalloc.get_traced_memory()[0]

    def _note(self) -> None:
        tensors = self._tensors() - self._base
        self._peak = max(self._peak, tensors + tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()

    def begin(self) -> None:
        """Forget the peak so far."""
        gc.collect()
        self._peak = 0
        tracemalloc.reset_peak()

    @property
    def tensors(self) -> int:
        """Bytes of tensors that are held now."""
        gc.collect()
        self._small = {address: item for address, item in self._small.items() if not item[0].expired()}
        self._borrowed = {address: item for address, item in self._borrowed.items() if item() is not None}  # else it counts as the program's
        mapped = _mapped(list(self._small))
        return self._tensors() + sum(size for address, (_, size) in self._small.items() if address not in mapped)

    @property
    def live(self) -> int:
        """Bytes held now."""
        return self.tensors + tracemalloc.get_traced_memory()[0] - self._base

    @property
    def peak(self) -> int:
        """The most bytes that were held at a time since :meth:`begin`."""
        self._note()
        return self._peak


def _mapped(addresses: list[int]) -> set[int]:
    """Those that lie in the map of a file on a disk."""
    if not addresses or not os.path.exists("/proc/self/maps"):
        return set()
    found = set()
    waiting = sorted(addresses)
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
        for line in stream:
            parts = line.split(maxsplit=5)
            if parts[4] != "0" and not parts[-1].startswith("/dev/shm"):  # noqa: S108 -- there lies what is shared with workers
                first, last = (int(item, 16) for item in parts[0].split("-"))
                found.update(waiting[bisect.bisect_left(waiting, first) : bisect.bisect_left(waiting, last)])
    return found
