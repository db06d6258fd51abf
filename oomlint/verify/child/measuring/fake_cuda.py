"""Pretends that this machine has one CUDA device. Tensors stay where they are and carry a tag; what is counted with it is *simulated*.

A tag belongs to a storage. Whatever is computed from a tagged tensor is tagged; `.cpu()` makes an untagged copy. The mistakes that real devices refuse
are refused here too: `.numpy()` of a tensor on the device, and arithmetic between two devices.
"""

from __future__ import annotations

import types
from contextlib import ExitStack, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import torch

from oomlint.verify.child.loading.stubs import Entered
from oomlint.verify.child.measuring.tensor_census import tensors
from oomlint.verify.child.server.exceptions import swapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

StorageWeakRef: Final = import_module("torch.multiprocessing.reductions").StorageWeakRef
DispatchMode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
FunctionMode: Any = import_module("torch.overrides").TorchFunctionMode

LABEL: Final = "simulated CUDA device"
TOTAL: Final = 80 * 2**30  # bytes that the device is said to have
NOT_NUMPY: Final = "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
MIXED: Final = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
# Only what a program calls itself is looked at for mixed devices, and only where no argument may lie elsewhere.
STRICT: Final = frozenset(
    """add sub mul div true_divide matmul mm bmm addmm linear conv1d conv2d conv3d cat stack concat concatenate cross_entropy_loss nll_loss mse_loss
    l1_loss smooth_l1_loss binary_cross_entropy binary_cross_entropy_with_logits eq ne lt gt le ge __add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__
    __rmul__ __imul__ __truediv__ __rtruediv__ __itruediv__ __matmul__ __eq__ __ne__ add_ sub_ mul_ div_ einsum dist cosine_similarity""".split()
)
# Where the copy is made here, or by torch itself, the second argument stands for the device.
MOVES: Final = frozenset({"to", "cuda", "cpu"})

_tags: Final[dict[int, tuple[Any, int]]] = {}  # by address of the storage: reference, bytes
_DEVICE: Final = torch.Tensor.device.__get__
_IS_CUDA: Final = torch.Tensor.is_cuda.__get__


def live() -> tuple[int, int]:
    """Storages on the device, and their bytes."""
    for key in [key for key, (reference, _) in _tags.items() if reference.expired()]:
        del _tags[key]
    return len(_tags), sum(size for _, size in _tags.values())


class Pretend:
    """Within it, `torch.cuda.is_available()` is true."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.peak = 0  # bytes, at the calls that ask for it

    def __enter__(self) -> Pretend:  # noqa: PYI034 - typing.Self came with Python 3.11
        _tags.clear()
        self._stack.enter_context(swapped(*self._swaps()))
        self._stack.enter_context(_Propagate())
        self._stack.enter_context(_Devices())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _allocated(self, *_: Any, **__: Any) -> int:
        size = live()[1]
        self.peak = max(self.peak, size)
        return size

    def _peak(self, *_: Any, **__: Any) -> int:
        self._allocated()
        return self.peak

    def _reset(self, *_: Any, **__: Any) -> None:
        self.peak = 0

    def _swaps(self) -> Iterator[tuple[Any, str, Any]]:
        """What of torch is replaced."""
        properties = types.SimpleNamespace(name=LABEL, major=8, minor=0, total_memory=TOTAL, multi_processor_count=108)
        answers: dict[str, Any] = {
            "is_available": True,
            "is_initialized": True,
            "device_count": 1,
            "current_device": 0,
            "get_device_name": LABEL,
            "get_device_capability": (8, 0),
            "get_device_properties": properties,
            "is_bf16_supported": True,
            "mem_get_info": (TOTAL, TOTAL),
            "utilization": 0,
            "memory_summary": LABEL,
            "memory_stats": {},
            **dict.fromkeys("init set_device synchronize empty_cache ipc_collect set_per_process_memory_fraction manual_seed manual_seed_all seed".split()),
        }
        for name, answer in answers.items():
            yield torch.cuda, name, _saying(answer)
        for name in ("memory_allocated", "memory_reserved"):
            yield torch.cuda, name, self._allocated
        for name in ("max_memory_allocated", "max_memory_reserved"):
            yield torch.cuda, name, self._peak
        for name in ("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"):
            yield torch.cuda, name, self._reset
        yield torch.cuda, "device", lambda *_, **__: nullcontext()
        yield torch.cuda, "stream", lambda *_, **__: nullcontext()
        yield torch.cuda, "Stream", _Harmless
        yield torch.cuda, "Event", _Harmless
        yield torch.cuda, "current_stream", _Harmless
        yield torch.backends.cudnn, "is_acceptable", _saying(False)  # noqa: FBT003 - the answer
        yield torch, "Generator", _generator(torch.Generator)
        yield torch, "load", _loading(torch.load)
        # Loaders pin in a thread, where no mode holds.
        yield torch.Tensor, "pin_memory", lambda tensor, *_, **__: tensor
        yield torch.nn.DataParallel, "scatter", _scatter


class _Propagate(DispatchMode):  # type: ignore[misc] # mypy takes torch for Any, whether it is there or not
    """What is computed from the device's tensors is on the device, unless it is written into a tensor that is not."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = list(tensors((args, kwargs or {})))
        if any(map(_tagged, given)):
            plain = {_key(item) for item in given if not _tagged(item)}
            for item in tensors(out):
                if _key(item) not in plain:
                    _tag(item)
        return out


class _Devices(FunctionMode):  # type: ignore[misc] # likewise
    """Answers what asks for a device, and makes copies where a program moves a tensor."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        options = dict(kwargs or {})
        if func == _DEVICE:
            return torch.device("cuda", 0) if _tagged(args[0]) else func(*args)
        if func == _IS_CUDA:
            return _tagged(args[0])
        name = getattr(func, "__name__", "")
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if first is not None:
            if name in MOVES:
                return _move(func, name, first, args[1:], options)
            if name == "get_device":
                return 0 if _tagged(first) else -1
            if name in {"numpy", "__array__"} and _tagged(first):
                raise TypeError(NOT_NUMPY)
        if name in STRICT:
            _refuse_mixed(args, options)
        if options.get("device") is not None:
            return _made(func, name, args, options)
        out = func(*args, **options)
        if name.startswith("new_") and first is not None and _tagged(first):
            _tag(out)
        return out


def _move(func: Callable[..., Any], name: str, tensor: torch.Tensor, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """`Tensor.to`, `.cuda` or `.cpu`."""
    target: Any = {"cuda": "cuda", "cpu": "cpu"}.get(name)
    moved = tensor
    if name == "to":
        rest = list(args)
        other = options.pop("other", None)
        if rest and isinstance(rest[0], torch.Tensor):
            other = rest.pop(0)
        elif rest and (rest[0] is None or isinstance(rest[0], (str, int, torch.device))):
            target = rest.pop(0)
        else:
            target = options.pop("device", None)
        if other is not None:
            target = "cuda" if _tagged(other) else "cpu"
            rest = [other.dtype, *rest]
        moved = func(tensor, "cpu", *rest, **options)
    if target is None or _cuda(target) == _tagged(moved):
        return moved
    copy = moved.clone() if _key(moved) == _key(tensor) else moved
    if _cuda(target):
        _tag(copy)
    else:
        _tags.pop(_key(copy), None)
    return copy


def _made(func: Callable[..., Any], name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A call with a device among its keywords."""
    on_device = _cuda(options["device"])
    if on_device:
        options["device"] = "cpu"
    given = {_key(item) for item in tensors((args, options))}
    out = func(*args, **options)
    if name in {"as_tensor", "asarray"} and isinstance(out, torch.Tensor) and on_device != _tagged(out):
        out = out.clone()  # it may share its memory with what it was given
        given = set()
    for item in tensors(out):
        if on_device:
            _tag(item)
        elif _key(item) not in given:
            _tags.pop(_key(item), None)
    return out


def _refuse_mixed(args: tuple[Any, ...], options: dict[str, Any]) -> None:
    given = [item for item in tensors((args, options)) if item.dim()]  # a single number may lie anywhere
    if len({_tagged(item) for item in given}) > 1:
        raise RuntimeError(MIXED)


def _key(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - the address is what tells storages apart
    except (RuntimeError, TypeError, AttributeError):  # sparse or batched: no storage of its own
        return 0


def _tagged(tensor: torch.Tensor) -> bool:
    entry = _tags.get(_key(tensor))
    return entry is not None and not entry[0].expired()


def _tag(tensor: torch.Tensor) -> None:
    key = _key(tensor)
    if key and not _tagged(tensor):
        storage = tensor.untyped_storage()
        _tags[key] = (StorageWeakRef(storage), storage.nbytes())


def _cuda(device: Any) -> bool:
    return isinstance(device, int) or str(device).startswith("cuda")


def _saying(answer: Any) -> Callable[..., Any]:
    return lambda *_, **__: answer


def _generator(original: Any) -> Callable[..., Any]:
    return lambda device="cpu": original("cpu") if _cuda(device) else original(device)


def _loading(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.load` onto the device: what is loaded is tagged."""

    def load(file: Any, map_location: Any = None, **options: Any) -> Any:
        on_device = isinstance(map_location, (str, torch.device)) and _cuda(map_location)
        out = original(file, map_location="cpu" if on_device else map_location, **options)
        for item in tensors(out) if on_device else ():
            _tag(item)
        return out

    return load


def _scatter(_: Any, inputs: tuple[Any, ...], options: dict[str, Any], __: Any) -> tuple[Any, Any]:
    """What `DataParallel` does with a batch where there is one device."""
    move = torch.utils._pytree.tree_map  # noqa: SLF001 - torch has no public name for it
    there = move(lambda item: item.cuda() if isinstance(item, torch.Tensor) else item, [inputs, options])
    return (there[0],), (there[1],)


class _Harmless(Entered):
    """A stream or an event: all that it is asked for is nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def elapsed_time(self, _: Any) -> float:
        """Milliseconds."""
        return 0.0

    def query(self) -> bool:
        """Whether all is done."""
        return True

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return _saying(None)
