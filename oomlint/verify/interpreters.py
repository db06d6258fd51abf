"""Which interpreter a project is run with. One that came with the project is a program of the project's, and judges its own fixes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from oomlint.verify.copier import files
from oomlint.verify.folders import content

if TYPE_CHECKING:
    from collections.abc import Callable

_ENVIRONMENTS: Final = (".venv", "venv", "env", ".env")  # folders of a project that its virtual environment usually is


_LARGEST: Final = 2**20  # bytes of a settings file


def interpreter(root: str, tell: Callable[[str], None], *, trusted: bool = False) -> str:
    """The Python to run a project with: the first that has torch of the project's environment and the active one, else ours.

    An environment in the project is taken where it is the user's own, or with ``trusted``. ``tell`` is told of one that is passed over.
    """
    active = {os.path.realpath(place): place for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if (place := os.environ.get(name))}
    seen = set()
    for place in (*(os.path.join(root, name) for name in _ENVIRONMENTS), *active.values()):
        real = os.path.realpath(place)
        python = os.path.join(place, "bin", "python")
        if real in seen or not (os.path.isfile(python) and _has_torch(place)):
            continue
        seen.add(real)
        doubt = "" if trusted else _doubt(place, active=real in active)
        if not doubt:
            return python
        tell(f"{os.path.relpath(place)} is not used: {doubt}; `--trust` takes it all the same")
    return sys.executable


def repository(folder: str) -> str | None:
    """The folder of the repository that a folder lies in."""
    top = os.path.realpath(folder)
    while not os.path.lexists(os.path.join(top, ".git")):
        if top == os.path.dirname(top):
            return None
        top = os.path.dirname(top)
    return top


def _doubt(place: str, *, active: bool) -> str:
    """Why an environment may have come with the project; empty where it has not. One that the user has activated needs no proof."""
    came = "it came with the project, or may have"
    known = _tracked(place)
    if known or (os.path.islink(place) and _tracked(os.path.realpath(place))):
        return came
    if active:
        return ""
    if known is None:
        return f"{came}: git has no history of the project that could tell"
    try:
        owners = {os.lstat(path).st_uid for path in (place, os.path.join(place, "bin"), os.path.join(place, "bin", "python"))}
    except OSError as error:
        return f"{error.strerror}"
    return "" if owners == {os.geteuid()} else "it belongs to another user"


def _tracked(path: str) -> bool | None:
    """Whether something of a path is part of a repository; ``None`` where none knows the folder that it lies in. What cannot be told counts as part of it."""
    folder = os.path.realpath(os.path.dirname(path))
    top = repository(folder)
    if top is None:
        return None
    try:
        if os.path.lexists(os.path.join(path, ".git")) or not _genuine(top):
            return True
        known = files(top, "--", os.path.relpath(folder, top), ceiling=os.path.dirname(top))
    except (OSError, subprocess.SubprocessError):
        return True
    if not known:
        return None  # the repository of a folder above, such as one of the user's home, which knows nothing of this
    name = os.path.relpath(os.path.join(folder, os.path.basename(path)), top)
    return any(each == name or each.startswith(f"{name}/") for each in known)


def _genuine(top: str) -> bool:
    """Whether a repository is one that git itself has laid out: a `.git` that leads to another folder of the project is no witness."""
    mark = os.path.join(top, ".git")
    if os.path.isdir(mark) and not os.path.islink(mark):
        return True
    if not os.path.isfile(mark):
        return False
    with open(mark, encoding="utf-8", errors="surrogateescape") as file:
        aim = file.readline(4096).removeprefix("gitdir:").strip()
    return not os.path.join(os.path.realpath(os.path.join(top, aim)), "").startswith(os.path.join(top, ""))


def _has_torch(place: str) -> bool:
    """Whether an environment has it, without starting it. One that sees the packages of another may."""
    library = os.path.join(place, "lib")
    with contextlib.suppress(OSError):
        if any(os.path.isdir(os.path.join(library, name, "site-packages", "torch")) for name in os.listdir(library)):
            return True
        lines = content(os.path.join(place, "pyvenv.cfg"), _LARGEST).decode("utf-8", "replace").splitlines()
        return any(line.replace(" ", "").lower().startswith("include-system-site-packages=true") for line in lines)
    return False
