"""What a job gives up for itself beside its writes: it cannot outlive the server, and takes no more than it may."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from typing import Final

_PDEATHSIG: Final = 1
_SUBREAPER: Final = 36


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> None:
    """End when the parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def limit(descriptors: int, file_bytes: int) -> None:
    """Bounds of this process and all that it starts: no core dumps, files and descriptors."""
    for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, descriptors), (resource.RLIMIT_FSIZE, file_bytes)):
        hard = resource.getrlimit(kind)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))
