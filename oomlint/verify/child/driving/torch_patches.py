"""What is put in the place of functions of torch while a piece runs: code for CUDA runs on the CPU, loaders have as many workers as the measurement wants."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import torch

from oomlint.verify.child.driving import loader_patches
from oomlint.verify.child.loading import stubs
from oomlint.verify.child.synthesis import deferred_value, stub_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oomlint.verify.child.synthesis.stub_registry import Book

FunctionMode: Any = import_module("torch.overrides").TorchFunctionMode
TYPES: Final = "FloatTensor LongTensor IntTensor DoubleTensor ByteTensor BoolTensor HalfTensor".split()
QUIET: Final = "synchronize empty_cache set_device ipc_collect manual_seed manual_seed_all reset_peak_memory_stats reset_max_memory_allocated init".split()


class OnCpu(FunctionMode):  # type: ignore[misc] # torch's class is not typed
    """Devices that are not there become the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        del types
        name = getattr(func, "__name__", "")
        if name == "cuda":
            return args[0]
        if name == "pin_memory":
            return args[0].clone()
        if name == "is_cuda" or (name == "to" and len(args) > 1) or (kwargs and "device" in kwargs):
            args = (args[0], *(_here(item) for item in args[1:])) if args else args
            kwargs = {key: _here(item) for key, item in (kwargs or {}).items()}
        return func(*args, **(kwargs or {}))


def _here(item: Any) -> Any:
    if isinstance(item, torch.device):
        return torch.device("cpu") if item.type != "meta" else item
    if isinstance(item, str) and item.startswith(("cuda", "mps", "xpu", "npu")):
        return "cpu"
    if isinstance(item, deferred_value.Late):
        return torch.device("cpu")
    return item


@contextmanager
def patched(book: Book, counts: loader_patches.Counts, *, device: bool) -> Iterator[None]:
    """Put it all in place. ``device``: a pretended one answers for CUDA."""
    done: list[Callable[[], None]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        if hasattr(owner, name):
            before = getattr(owner, name)
            done.append(lambda: setattr(owner, name, before))
        else:
            done.append(lambda: delattr(owner, name))
        setattr(owner, name, value)

    def number(*_: Any, **__: Any) -> int:
        return 0

    if not device:
        put(torch.nn.Module, "cuda", lambda self, *_, **__: self)
        for name in QUIET:
            put(torch.cuda, name, number)
        for name in TYPES:
            put(torch.cuda, name, getattr(torch, name))
        put(torch.cuda, "memory_allocated", number)
        put(torch.cuda, "max_memory_allocated", number)
        put(torch.cuda, "device", lambda *_, **__: nullcontext())
    loader_patches.put_loaders(put, book, counts)
    _shell(put)
    installed = [getattr(sys.modules.get(name), "LightningModule", None) for name in ("pytorch_lightning", "lightning", "lightning.pytorch")]
    for owner in {id(item): item for item in (stubs.Lightning, *installed) if isinstance(item, type)}.values():
        for name in ("log", "log_dict"):
            put(owner, name, _log)
    _checkpoints(put, book)
    clock = iter(range(1, 2**31))
    start = time.time()
    for name in ("time", "perf_counter"):
        put(time, name, lambda: start + next(clock) / 1000)
    try:
        with nullcontext() if device else OnCpu():
            yield
    finally:
        for back in reversed(done):
            back()


def _log(_: Any, *args: Any, **__: Any) -> None:
    """What a framework's module reports counts as printed."""
    sys.stdout.write(f"logged: {', '.join(str(deferred_value.settled(item)) for item in args)}\n")


def _shell(put: Callable[[Any, str, Any], None]) -> None:
    """Commands of the shell are not run: they fetch, copy and remove files, and have no part in what a loop keeps."""

    def done(*args: Any, **options: Any) -> Any:
        text = bool(options.get("text") or options.get("universal_newlines"))
        return subprocess.CompletedProcess(args, 0, "" if text else b"", "" if text else b"")

    put(os, "system", lambda *_: 0)
    put(os, "popen", lambda *_: io.StringIO(""))
    put(subprocess, "run", done)
    put(subprocess, "call", lambda *_, **__: 0)
    put(subprocess, "check_call", lambda *_, **__: 0)
    put(subprocess, "check_output", lambda *_, **options: "" if options.get("text") else b"")
    put(subprocess, "Popen", _refused)


def _refused(*_: Any, **__: Any) -> Any:
    raise OSError("commands are not run here")


def _checkpoints(put: Callable[[Any, str, Any], None], book: Book) -> None:
    """A file of weights that is not there is replaced by a stand-in; a module takes it and stays as it is."""
    read, take = torch.load, torch.nn.Module.load_state_dict

    def load(*args: Any, **options: Any) -> Any:
        try:
            return read(*args, **options)
        except (OSError, TypeError, AttributeError):
            return deferred_value.late(book, "torch.load()", "config")

    def accept(self: Any, state: Any, *args: Any, **options: Any) -> Any:
        if isinstance(state, (deferred_value.Late, stub_objects.Learning, stub_objects.Thing)):
            return take(self, self.state_dict())
        return take(self, state, *args, **options)

    put(torch, "load", load)
    put(torch.nn.Module, "load_state_dict", accept)
