"""The user's own configuration: settings of the verifier for all projects, and what the user has allowed the settings of a project."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from oomlint.cli.check import say
from oomlint.config import load_own
from oomlint.writing import sweep, write_whole

_SETTINGS: Final = "oomlint.toml"
_TRUST: Final = "trust.json"
_TRUSTED: Final = "trusted"
_PYTHON: Final = re.compile(r"(?:python|pypy)[\d.]*")


class Own:
    """What the user has said once for all runs. Nothing of it is believed where others can write it, such as the project itself."""

    def __init__(self, root: str, *, isolated: bool = False) -> None:
        self._isolated = isolated
        base = os.environ.get("XDG_CONFIG_HOME", "")
        place = os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.config"), "oomlint")
        self._folder = place if os.path.isabs(place) and hasattr(os, "geteuid") else None
        self._contents: dict[str, bytes | None] = {}
        if inside(place, root):
            self._folder = None
            if os.path.isdir(place) and not isolated:
                say(f"{place} is not read: it is part of the project")

    def settings(self) -> dict[str, Any]:
        """The settings by field, with absolute paths. Raises ConfigError."""
        data = None if self._isolated else self._read(_SETTINGS)
        if data is None or self._folder is None:
            return {}
        found: dict[str, Any] = load_own(Path(self._folder, _SETTINGS), data)
        if "patches" in found:
            found["patches"] = absolute(found["patches"], self._folder)
        if "python" in found:
            found["python"] = program(found["python"], self._folder) or absolute(found["python"], self._folder)
        if "read" in found:
            found["read"] = tuple(absolute(path, self._folder) for path in found["read"])
        return found

    def trusted(self, file: str) -> dict[str, str]:
        """What is allowed of a settings file: digests by key."""
        with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {str(key): str(digest) for key, digest in json.loads(self._read(_TRUST) or b"")[_TRUSTED][file].items()}
        return {}

    def trust(self, file: str, digests: dict[str, str]) -> None:
        """Remember what is allowed."""
        if self._folder is None:
            say("the answer holds for this run: there is no folder of your own to keep it in")
            return
        known: dict[str, Any] = {}
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            known = dict(json.loads(self._read(_TRUST) or b"")[_TRUSTED])
        known[file] = {**self.trusted(file), **digests}
        try:
            os.makedirs(self._folder, exist_ok=True)
            os.chmod(self._folder, stat.S_IRWXU)
            sweep(self._folder)
            write_whole(os.path.join(self._folder, _TRUST), json.dumps({_TRUSTED: known}, indent=1).encode("ascii"))  # for nobody else to read or write
            self._contents.pop(_TRUST, None)
        except OSError as error:
            say(f"the answer holds for this run, and is not remembered: {self._folder}: {error.strerror or error}")

    def _read(self, name: str) -> bytes | None:
        """A file of the configuration, unless somebody else may have written it."""
        if self._folder is None:
            return None
        if name not in self._contents:
            self._contents[name] = _own_file(os.path.join(self._folder, name))
        return self._contents[name]


def _own_file(path: str) -> bytes | None:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
            about = os.fstat(stream.fileno())
            if about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        say(f"{path} is not read: {error.strerror}")
        return None
    say(f"{path} is not read: others than you may write to it")
    return None


def absolute(path: str, folder: str) -> str:
    """A path that settings in a folder name."""
    return os.path.join(folder, os.path.expanduser(path))


def program(given: str, folder: str) -> str | None:
    """The program that a path or a name means, or ``None``; of a virtual environment its Python.

    A name without a folder is one of ``PATH``, and never a file that happens to lie in ``folder``: that may be anybody's.
    """
    alone = not os.path.dirname(given)
    path = absolute(given, folder)
    if alone and (found := shutil.which(given)):
        return os.path.abspath(found)
    if os.path.isdir(path) and not (alone and _PYTHON.fullmatch(given)):
        return shutil.which(os.path.join(path, "bin", "python"))
    return None if alone else shutil.which(path)


def inside(path: str, root: str) -> bool:
    """Whether a path lies in a folder, or leads into it."""
    tops = {os.path.join(each, "") for each in (os.path.abspath(root), os.path.realpath(root))}
    return any(os.path.join(each, "").startswith(top) for each in (os.path.abspath(path), os.path.realpath(path)) for top in tops)
