"""Memory that processes hold on NVIDIA devices, by NVML, which comes with the driver: no library of Python is needed."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection

_LIBRARIES: Final = ("libnvidia-ml.so.1", "nvml.dll")
_UNKNOWN: Final = (1 << 64) - 1  # what NVML writes where the driver does not tell
_MOST: Final = 256  # processes of a device
_NAME: Final = 96


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Devices:
    """The devices of this machine. ``open`` finds them."""

    def __init__(self, library: Any, handles: list[ctypes.c_void_p]) -> None:
        self._library = library
        self._handles = handles
        self.by_process = True  # whether what is read is of the traced processes alone
        self._idle = self._whole()  # bytes that were in use before the command was

    @property
    def name(self) -> str:
        """What they are called, and how many there are."""
        text = ctypes.create_string_buffer(_NAME)
        self._library.nvmlDeviceGetName(self._handles[0], text, _NAME)
        count = len(self._handles)
        return text.value.decode("utf-8", "replace") + (f" and {count - 1} more" if count > 1 else "")

    def used(self, pids: Collection[int]) -> int:
        """Bytes that the processes hold. In a container NVML may give other numbers of processes than are seen here: then all that came since the start."""
        mine, named = 0, False
        for handle in self._handles:
            for process in self._processes(handle):
                if process.pid in pids and process.used != _UNKNOWN:
                    mine, named = mine + process.used, True
        if named:
            self.by_process = True
            return int(mine)
        rest = max(self._whole() - self._idle, 0)
        self.by_process = self.by_process and not rest
        return rest

    def _processes(self, handle: ctypes.c_void_p) -> list[Any]:
        count, rows = ctypes.c_uint(_MOST), (_Process * _MOST)()
        ask = getattr(self._library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if ask is None or ask(handle, ctypes.byref(count), rows):
            return []
        return list(rows[: count.value])

    def _whole(self) -> int:
        found = 0
        for handle in self._handles:
            memory = _Memory()
            if not self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
                found += memory.used
        return found


def find(library: Any = None) -> Devices | None:
    """The devices; None where there are none, or no driver."""
    library = library or _loaded()
    if library is None or library.nvmlInit_v2():
        return None
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return None
    handles = []
    for number in range(count.value):
        handle = ctypes.c_void_p()
        if not library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)):
            handles.append(handle)
    return Devices(library, handles) if handles else None


def _loaded() -> Any:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
