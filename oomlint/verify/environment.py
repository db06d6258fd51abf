"""The environment variables of the server and of its jobs: a few that are known to be needed, and what the user names. Tokens and the like stay out."""

from __future__ import annotations

import os
import site
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_CHILD: Final = os.path.join(_PACKAGE, "verify", "child")
# Where programs, libraries and modules are found, how text is written, and which processors are used.
KEPT: Final = (
    "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "LANG", "LANGUAGE", "LC_*", "TZ", "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "OOMLINT_NO_SANDBOX",
)  # fmt: skip
CACHES: Final = ("torch", "huggingface/hub")  # below ~/.cache
_TEMPORARY: Final = ("TMPDIR", "TEMP", "TMP")
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")


def of_server(place: str, also: Iterable[str] = ()) -> dict[str, str]:
    """Of the server, whose folder is ``place``. ``also`` names variables of the user's that are let through; ``*`` stands for any characters."""
    patterns = (*KEPT, *also)
    own = {name: value for name, value in os.environ.items() if any(fnmatchcase(name, pattern) for pattern in patterns)}
    if "PYTHONPATH" in own:  # relative to the folder that we are in
        own["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in own["PYTHONPATH"].split(os.pathsep) if path)
    fixed = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "OOMLINT_PLACE": place}
    # What torch's compiler and others keep between runs goes with the server's folder.
    return {**own, **_ONE_THREAD, **fixed, **_homes(place, place), "TORCHINDUCTOR_CACHE_DIR": os.path.join(place, "inductor")}


def of_job(home: str, temporary: str) -> dict[str, str]:
    """What a job's own differs in: fresh folders, no displays, no services, and the way to the harness for workers that are spawned."""
    cache, bootstrap = os.path.join(home, ".cache"), os.path.join(_CHILD, "bootstrap")
    path = of_server(home).get("PYTHONPATH")
    return {
        **_homes(home, temporary),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "inductor"),
        "TORCH_HOME": os.path.join(cache, "torch"),
        "HF_HOME": os.path.join(cache, "huggingface"),
        "PYTHONPATH": bootstrap + (os.pathsep + path if path else ""),
        "OOMLINT_PACKAGE": _PACKAGE,
        "MPLBACKEND": "Agg",
        "WANDB_MODE": "disabled",
        **dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"), "1"),
    }


def links_of(home: str) -> dict[str, str]:
    """The links that a job's home holds, and where they lead: weights that are there already can be read."""
    real = os.path.expanduser("~")
    return {os.path.join(home, ".cache", name): path for name in CACHES if os.path.isdir(path := os.path.join(real, ".cache", name))}


def _homes(home: str, temporary: str) -> dict[str, str]:
    """The folders that programs keep their own things in."""
    return {
        "HOME": home,
        **dict.fromkeys(_TEMPORARY, temporary),
        "XDG_CACHE_HOME": os.path.join(home, ".cache"),
        "XDG_CONFIG_HOME": os.path.join(home, ".config"),
        "XDG_DATA_HOME": os.path.join(home, ".local", "share"),
        "XDG_STATE_HOME": os.path.join(home, ".local", "state"),
        "XDG_RUNTIME_DIR": temporary,
        "PYTHONUSERBASE": site.getuserbase(),  # HOME is another: packages of the user would be lost
    }
