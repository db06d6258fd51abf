"""Tries what a user has named for a run, and says in a line what is wrong with it."""

from __future__ import annotations

import contextlib
import importlib
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from oomlint.verify.child.driving import dataset_job
from oomlint.verify.child.loading import stubs, tolerant_import
from oomlint.verify.child.server.exceptions import located

if TYPE_CHECKING:
    import types


def prepare(command: str) -> dict[str, Any]:
    """Run a command in the current folder; `python` is this interpreter. Gives its status, or the cause why it cannot be started."""
    try:
        words = shlex.split(command)
        if words and words[0] in {"python", "python3"}:
            words[0] = sys.executable
        return {"status": subprocess.run(words, check=False).returncode, "cause": ""}  # noqa: S603 - what the user asked for
    except OSError as error:
        return {"cause": f"{error.filename}: {error.strerror}"}
    except ValueError as error:
        return {"cause": str(error)}


def factory(name: str, root: str) -> dict[str, str]:
    """Make the dataset of a function of the user. The cause is empty where it can be made."""
    module, _, function = name.partition(":")
    finder = tolerant_import.install(root)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            return {"cause": f"there is no module `{error.name}`"}
        return {"cause": f"`{module}` cannot be imported: {located(error, root)}"}
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- the user's code raises what it likes
        return {"cause": f"`{module}` cannot be imported: {located(error, root)}"}
    here = found
    for part in function.split("."):
        if not hasattr(here, part):
            return {"cause": f"`{module}` has no `{function}`{_skipped(finder, found, part)}"}
        here = getattr(here, part)
    if not callable(here):
        return {"cause": f"`{name}` is not a function"}
    try:
        made = dataset_job.from_factory(name, root)
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- the same
        return {"cause": f"`{name}` raises {located(error, root)}"}
    return {"cause": _wrong(name, made)}


def _skipped(finder: tolerant_import.TolerantFinder, module: types.ModuleType, name: str) -> str:
    """What of a module was left out, where that may be why it lacks a name that its file defines."""
    defined = rf"(?m)^\s*(?:(?:(?:async\s+)?def|class)\s+{name}\b|{name}\s*[:=]|(?:from|import)\b.*\b{name}\b)"
    with contextlib.suppress(OSError, ValueError), open(str(module.__file__), encoding="utf-8") as file:
        if re.search(defined, file.read()):
            return "".join(f" ({item})" for item in finder.skipped.get(module.__name__, [])[:1])
    return ""


def _wrong(name: str, made: object) -> str:
    """Why a value is no dataset; empty where it is one."""
    if isinstance(made, stubs.Stub):
        return f"`{name}` needs a library that is not installed: {made._name.partition('.')[0]}"  # noqa: SLF001 -- of a stand-in, there is no public way
    from torch.utils.data import DataLoader, Dataset  # noqa: PLC0415 -- of the user

    if isinstance(made, (tuple, list)) and any(isinstance(item, Dataset) for item in made):
        return f"`{name}` gives several datasets, and one is wanted"
    readable = hasattr(made, "__getitem__") or hasattr(made, "__iter__")
    if not readable or isinstance(made, (DataLoader, type, str, bytes, dict, set)):
        kind = type(made).__name__
        return f"`{name}` gives {'None' if made is None else f'an {kind}' if kind[0].lower() in 'aeiou' else f'a {kind}'}, and a dataset is wanted"
    return ""
