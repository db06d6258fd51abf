"""Counts what a loop keeps from one step to the next: storages of tensors, nodes of the autograd graph, bytes of Python. Free of noise.

It needs no GPU and no statistics: a loop that keeps nothing has differences of exactly 0. That takes some care, all of it here: the first use of a dispatch
mode imports hundreds of modules, so one is used up before; collected and frozen before the start; the probe's own columns are allocated beforehand and
what it keeps for each storage is subtracted.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
import tracemalloc
import weakref
from array import array
from contextlib import AbstractContextManager, ExitStack
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import torch

from oomlint.verify.child.server.exceptions import put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

LEVELS: Final = ("storages", "storage_bytes", "nodes", "python_bytes", "device_storages", "device_bytes")
EACH: Final = ("saved", "copied", "peak", "python_peak")  # a number of its own for each step
COPIERS: Final = frozenset({"aten::cat", "aten::stack", "aten::_cat", "aten::concat", "aten::concatenate", "aten::hstack", "aten::vstack", "aten::dstack"})
NUMPY_COPIERS: Final = ("concatenate", "append", "vstack", "hstack", "dstack", "stack", "column_stack", "insert", "block", "row_stack")
SMALL: Final = 256  # an integer up to this one is there already
SLACK: Final = 32  # storages are counted again after a 32nd of them has come

Entry = tuple[Any, int, bool]  # weak reference to a storage, its bytes, whether it lies on a device
StorageWeakRef: Final = import_module("torch.multiprocessing.reductions").StorageWeakRef
DispatchMode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode


class StepGrowth:
    """Measures a loop. Call `step` once in each step, at the same point of it.

    ``saved`` also counts what autograd saves for a backward pass; hooks on saved tensors are in the way of ``torch.func`` and of torch's check for values
    that were changed in place, so a program that is run for its result should do without.
    """

    def __init__(self, steps: int = 4096, *, python: bool = True, saved: bool = True) -> None:
        self._columns = {name: array("q", bytes(8 * steps)) for name in (*LEVELS, *EACH)}
        self._steps = steps
        self._python = python
        self._saves = saved
        self._tracker = _Tracker()
        self._stack = ExitStack()
        self._count = 0
        self._known: list[weakref.ref[torch.Tensor]] = []

    def __enter__(self) -> StepGrowth:  # noqa: PYI034 - typing.Self came with Python 3.11
        with torch.inference_mode(mode=False), torch.enable_grad(), self._tracker:  # a program may turn gradients off and then begin
            torch.ones(2, requires_grad=True).add(1).sum().backward()
        self._tracker.clear()
        self._swap_numpy()
        gc.collect()
        # Frozen objects are not seen by the collector, but a running sum that was made before may come to hold a graph.
        self._known = [weakref.ref(item) for item in _alive((), gc.get_objects())]
        if not gc.get_freeze_count():  # else somebody has frozen what was there, and means it to stay so
            self._stack.callback(gc.unfreeze)
        gc.freeze()
        if self._python and not tracemalloc.is_tracing():
            tracemalloc.start(1)
            self._stack.callback(tracemalloc.stop)
        self._tracker.thread = threading.get_ident()
        self._stack.enter_context(self._tracker)
        if self._saves:
            self._stack.enter_context(self._saving())
        _running.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _running.discard(self)
        self._stack.close()

    def stop_in_child(self) -> None:
        """In a process forked from this one nothing is counted."""
        self._tracker.thread = 0
        if self._python:
            tracemalloc.stop()

    def step(self) -> None:
        """Take the counts of this moment."""
        at, tracker, columns = self._count, self._tracker, self._columns
        if at >= self._steps:
            return
        columns["python_peak"][at] = tracemalloc.get_traced_memory()[1] if self._python else 0
        columns["saved"][at], columns["copied"][at] = tracker.taken()
        gc.collect()
        _clear_caches()
        # The tensors come first: their objects belong to the program, but finding a storage adds to the tracker.
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - a pretended device must not answer for the graph
            tracker.pause = True
            columns["nodes"][at] = self._walk()
            tracker.sweep()
            tracker.pause = False
        if self._python:
            columns["python_bytes"][at] = tracemalloc.get_traced_memory()[0] - tracker.own
        columns["peak"][at] = tracker.restart()
        columns["storages"][at], columns["storage_bytes"][at] = tracker.count, tracker.bytes
        columns["device_storages"][at], columns["device_bytes"][at] = _on_device(tracker)
        self._count = at + 1
        if self._python:
            tracemalloc.reset_peak()

    def last(self) -> dict[str, int]:
        """The counts of the last step."""
        return {name: column[self._count - 1] for name, column in self._columns.items()} if self._count else {}

    def levels(self) -> dict[str, list[int]]:
        """The counts of every step."""
        return {name: self._columns[name][: self._count].tolist() for name in LEVELS}

    def deltas(self) -> dict[str, list[int]]:
        """By how much each count differs from that of the step before."""
        return {name: [new - old for old, new in pairwise(values)] for name, values in self.levels().items()}

    def column(self, name: str) -> list[int]:
        """One count of every step, in bytes.

        What autograd ``saved`` for a backward pass, each storage once and parameters left out; what concatenating has ``copied`` since the start; the ``peak``
        of storages that were alive at a time within the step, to three per cent; and the ``python_peak``, of Python objects and numpy buffers.
        """
        return self._columns[name][: self._count].tolist()

    def highest(self) -> int:
        """The most bytes that were alive at a time since the start: storages, Python objects and numpy buffers. The last step may be long past."""
        python = tracemalloc.get_traced_memory()[1] if self._python else 0
        pairs = zip(self.column("peak"), self.column("python_peak"), strict=True)
        return max([sum(pair) for pair in pairs] + [self._tracker.peak + python])

    # -- how ---------------------------------------------------------------------------------------------------------------

    def _walk(self) -> int:
        """Nodes that live tensors lead to."""
        seen: set[Any] = set()  # holds the nodes, or another may come to lie where one lay
        waiting: list[Any] = []
        for item in _alive(self._known, gc.get_objects()):
            self._tracker.see(item)
            if item.grad_fn is not None:
                waiting.append(item.grad_fn)
        while waiting:
            node = waiting.pop()
            if node is not None and node not in seen:
                seen.add(node)
                waiting.extend(following for following, _ in node.next_functions)
        return len(seen)

    def _saving(self) -> AbstractContextManager[None]:
        tracker = self._tracker

        def pack(value: torch.Tensor) -> torch.Tensor:
            if not (value.is_leaf and value.requires_grad):
                tracker.save(value)
            # What an operation saves of its own output would hold the operation, which holds what it saves: a cycle that no collector sees. torch puts
            # the graph back when it unpacks.
            return value if value.is_leaf else value.detach()

        hooks: AbstractContextManager[None] = torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value)
        return hooks

    def _swap_numpy(self) -> None:
        """Put a counting function in the place of those that concatenate."""
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return
        for name in NUMPY_COPIERS:
            if name in vars(numpy):
                put(self._stack, numpy, name, self._counting(vars(numpy)[name]))

    def _counting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        tracker = self._tracker

        @functools.wraps(original)
        def count(*args: Any, **options: Any) -> Any:
            out = original(*args, **options)
            tracker.copied(getattr(out, "nbytes", 0))
            return out

        return count


class _Tracker(DispatchMode):  # type: ignore[misc] # mypy takes torch for Any, whether it is there or not
    """Knows the storages that are alive, by weak references."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, Entry] = {}  # by address
        self._saved: set[int] = set()
        # Numbers that grow are kept here: as attributes their own size would count.
        self._sums = array("q", bytes(8 * 6))  # own, bytes, peak, saved, copied, new
        self.thread = threading.get_ident()
        self.pause = False

    @property
    def own(self) -> int:
        """Bytes of Python that this object holds."""
        return self._sums[0] + sys.getsizeof(self.live)

    @property
    def bytes(self) -> int:
        """Of all storages that were alive at the last sweep."""
        return self._sums[1]

    @property
    def peak(self) -> int:
        """The most bytes since the last step."""
        return max(self._sums[1], self._sums[2])

    @property
    def count(self) -> int:
        """Storages that were alive at the last sweep."""
        return len(self.live)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.thread != threading.get_ident() or self.pause:
            return out
        for item in tensors(args):
            self.see(item)
        name = func.name().partition(".")[0] if hasattr(func, "name") else ""
        for item in tensors(out):
            self.see(item)
            if name in COPIERS:
                self.copied(item.numel() * item.element_size())
        if self._sums[1] > self._sums[2]:
            if self._sums[5] * SLACK > len(self.live):
                self.sweep()
            self._sums[2] = max(self._sums[1], self._sums[2])
        return out

    def see(self, value: Any) -> None:
        """Remember the storage of a tensor."""
        try:
            storage = value.untyped_storage()
            key, size = storage._cdata, storage.nbytes()  # noqa: SLF001 - the address is what tells storages apart
            known = self.live.get(key)
            if known is not None and known[1] == size and not known[0].expired():
                return
            entry = (StorageWeakRef(storage), size, value.device.type not in {"cpu", "meta"})
        except (RuntimeError, TypeError, AttributeError, ReferenceError):  # sparse, batched by a transform, or fake: there is no storage of its own
            return
        if known is not None:
            self._forget(key)
        self.live[key] = entry
        self._sums[0] += _cost(key, entry)
        self._sums[1] += size
        self._sums[5] += 1

    def _forget(self, key: int) -> None:
        entry = self.live.pop(key)
        self._sums[0] -= _cost(key, entry)
        self._sums[1] -= entry[1]

    def sweep(self) -> None:
        """Forget the storages that are gone."""
        for key in [key for key, (reference, _, _) in self.live.items() if reference.expired()]:
            self._forget(key)
        self._sums[5] = 0

    def save(self, value: torch.Tensor) -> None:
        """Count what is saved for a backward pass, each storage once a step."""
        try:
            storage = value.untyped_storage()
        except (RuntimeError, TypeError, AttributeError):
            return
        key = storage._cdata  # noqa: SLF001 - as above
        if key not in self._saved:
            self._saved.add(key)
            self._sums[3] += storage.nbytes()

    def copied(self, size: int) -> None:
        """Count bytes that were written by concatenating."""
        self._sums[4] += size

    def taken(self) -> tuple[int, int]:
        """Bytes saved since the last step, and copied since the start."""
        saved, self._sums[3] = self._sums[3], 0
        self._saved = set()
        return saved, self._sums[4]

    def restart(self) -> int:
        """The peak of this step; the next begins with what is alive."""
        peak, self._sums[2] = self.peak, self._sums[1]
        return peak

    def clear(self) -> None:
        """As new."""
        self.live.clear()
        self._saved = set()
        self._sums = array("q", bytes(8 * 6))


def _cost(key: int, entry: Entry) -> int:
    """Bytes of Python that an entry takes. Counted, not measured: what the program has allocated meanwhile is none of it."""
    reference, size, _ = entry
    objects = [key, entry, reference, reference.cdata, *([size] if size > SMALL else [])]
    return sum(map(sys.getsizeof, objects))


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a value and in the lists, tuples and dicts that it is made of."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors(item)


def _alive(known: Iterable[weakref.ref[torch.Tensor]], objects: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Tensors that were known, and those among some objects. By type: asking an object for its class may run code of the program."""
    for reference in known:
        item = reference()
        if item is not None:
            yield item
    for item in objects:
        if issubclass(type(item), torch.Tensor):
            yield item


def _on_device(tracker: _Tracker) -> tuple[int, int]:
    """Storages and bytes on devices, pretended ones included."""
    sizes = [size for _, size, device in tracker.live.values() if device]
    pretend = sys.modules.get("oomlint.verify.child.measuring.fake_cuda")
    count, size = pretend.live() if pretend else (0, 0)
    return len(sizes) + count, sum(sizes) + size


def _clear_caches() -> None:
    """The cache of methods keeps names that were made on the fly, 57 bytes each."""
    clear = getattr(sys, "_clear_internal_caches", None) or getattr(sys, "_clear_type_cache", None)
    if clear:
        clear()


_running: Final[weakref.WeakSet[StepGrowth]] = weakref.WeakSet()


def _in_child() -> None:
    for growth in list(_running):
        growth.stop_in_child()


os.register_at_fork(after_in_child=_in_child)
