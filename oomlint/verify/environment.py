"""The environment variables of the server, and what those of a job differ in."""

from __future__ import annotations

import contextlib
import os
import site
from typing import Final

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_CHILD: Final = os.path.join(_PACKAGE, "verify", "child")
_KEPT: Final = frozenset({"PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE"})  # where modules are found; the rest changes how Python behaves
_TEMPORARY: Final = ("TMPDIR", "TEMP", "TMP")
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")


def of_server(place: str) -> dict[str, str]:
    """Of the server: the user's own, without what changes how Python behaves."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON") or name in _KEPT}
    if "PYTHONPATH" in own:  # relative to the folder that we are in
        own["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in own["PYTHONPATH"].split(os.pathsep) if path)
    fixed = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "OOMLINT_PLACE": place}
    # What torch's compiler and others keep between runs goes with the server's folder.
    return {**own, **_ONE_THREAD, **fixed, **dict.fromkeys(_TEMPORARY, place), "TORCHINDUCTOR_CACHE_DIR": os.path.join(place, "inductor")}


def of_job(home: str, temporary: str) -> dict[str, str]:
    """What a job's own differs in: fresh folders, no displays, no services, and the way to the harness for workers that are spawned."""
    real = os.path.expanduser("~")
    cache, bootstrap = os.path.join(home, ".cache"), os.path.join(_CHILD, "bootstrap")
    os.makedirs(os.path.join(cache, "huggingface"))
    for name in ("torch", "huggingface/hub"):  # weights that are there already can be read
        with contextlib.suppress(OSError):
            if os.path.isdir(os.path.join(real, ".cache", name)):
                os.symlink(os.path.join(real, ".cache", name), os.path.join(cache, name))
    path = of_server(home).get("PYTHONPATH")
    return {
        "HOME": home,
        **dict.fromkeys(_TEMPORARY, temporary),
        "XDG_CACHE_HOME": cache,
        "XDG_CONFIG_HOME": os.path.join(home, ".config"),
        "XDG_DATA_HOME": os.path.join(home, ".local", "share"),
        "XDG_STATE_HOME": os.path.join(home, ".local", "state"),
        "XDG_RUNTIME_DIR": temporary,
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "inductor"),
        "TORCH_HOME": os.path.join(cache, "torch"),
        "HF_HOME": os.path.join(cache, "huggingface"),
        "PYTHONUSERBASE": site.getuserbase(),  # HOME is another: packages of the user would be lost to spawned workers
        "PYTHONPATH": bootstrap + (os.pathsep + path if path else ""),
        "OOMLINT_PACKAGE": _PACKAGE,
        "MPLBACKEND": "Agg",
        "WANDB_MODE": "disabled",
        **dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"), "1"),
    }
