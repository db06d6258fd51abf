"""Which versions of torch and of Python a project asks for, and since which one there is what a fix or an advice would use."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from oomlint.model.readings import AnswerMemory
from oomlint.patterns import pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project

Version = tuple[int, ...]

# The first version with each of them.
PERSISTENT_WORKERS: Final[Version] = (1, 7)
PREFETCH_NONE: Final[Version] = (2, 0)  # `prefetch_factor=None`; before, 2 was the default, with and without workers
LOAD_MAPPED: Final[Version] = (2, 1)  # `torch.load(path, mmap=True)`
_FOR_FORKSERVER: Final[Version] = (2, 9)  # of torch, for a Python that starts workers so on Linux
_FORKSERVER: Final[Version] = (3, 14)  # that Python

_ALWAYS: Final = ("requirements.txt", "environment.yml", "setup.py", "pyproject.toml")  # asked for where they are missing, too: one may be written later
_LISTS: Final = pattern(r"[\w.-]*requirements?[\w.-]*\.(?:txt|in)|(?:[\w.-]*env(?:ironment)?|conda)[\w.-]*\.ya?ml|setup\.(?:py|cfg)|pyproject\.toml|Pipfile")
_ASKS: Final = pattern(
    rb"(?<![\w.-])(?:py)?torch[\"']?(?:\[[^\]\n]*\])?[ \t]*(?:=[ \t]*[\"']|@[ \t]*https?://\S*?/torch-|\(?(?=[<>~!=^]))"
    rb"((?:(?:[<>~!=]=?=?|\^)?[ \t]*\d[^\s,;\"')]*[ \t,]*)+)",
    re.IGNORECASE,
)
_PINS: Final = pattern(  # `- python=3.8`, `requires-python = ">=3.8,<3.12"`, `FROM python:3.9-slim`
    rb"(?<![\w./-])python(?:[_-]requires|[_-]version)?[\"']?[ \t]*(?:=[ \t]*[\"']|:(?=3\.)|(?=[<>~!=^]))"
    rb"((?:(?:[<>~!=]=?=?|\^)?[ \t]*3\.\d+[^\s,;\"'):-]*[ \t,]*)+)"
    rb"|requires-python[ \t]*=[ \t]*[\"']((?:[<>~!=]=?=?[ \t]*3[\d.*]*[ \t,]*)+)",
    re.IGNORECASE,
)
_BESIDE: Final = pattern(r"(?:README|INSTALL)[\w.-]*|Dockerfile[\w.-]*|[\w.-]+\.sh", re.IGNORECASE)  # where an environment is made as well
_PART: Final = pattern(r"([<>~!=]=?=?|\^)?\s*(\d{1,9}(?:\.\d{1,9})*)")
_COMMENT: Final = pattern(rb"(?m)(?:^|\s)#.*$")


class VersionRange(Struct, frozen=True):
    """The versions that are asked for: the oldest, and the first that is too new; ``None`` where nobody says."""

    oldest: Version | None = None
    before: Version | None = None

    def lacks(self, since: Version) -> bool:
        """Whether one of these versions is older than ``since``."""
        return self.oldest < since if self.oldest is not None else self.all_lack(since)

    def all_lack(self, since: Version) -> bool:
        """Whether each of these versions is older than ``since``."""
        return self.before is not None and self.before <= since


class TorchVersions:
    """Reads what the nearest lists of requirements say. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._known: AnswerMemory[str, VersionRange] = AnswerMemory(project.readings)
        self._pinned: AnswerMemory[str, bool] = AnswerMemory(project.readings)

    def of(self, module: Module) -> VersionRange:
        """What is asked for where a module lies: in its folder, else in the nearest one above that says something."""
        return self._in(os.path.dirname(module.path))

    def _in(self, folder: str) -> VersionRange:
        known = self._known.get(folder)
        if known is None:
            parts = [part for path in self._lists(folder) for part in _asked(self._project.raw(path))]
            inside = os.path.join(folder, "").startswith(os.path.join(self._project.top, "")) and folder != self._project.top
            known = self._in(os.path.dirname(folder)) if inside and not parts else _joined(parts)
            self._known[folder] = known
        return known

    def forks(self, module: Module) -> bool:
        """Whether a Python that the project pins starts workers on Linux by fork: one before 3.14, or one that an old torch is for."""
        return self.of(module).all_lack(_FOR_FORKSERVER) or self._pins(os.path.dirname(module.path))

    def _pins(self, folder: str) -> bool:
        return self._pinned.answer(folder, lambda: self._pins_in(folder))

    def _pins_in(self, folder: str) -> bool:
        for path in (*self._lists(folder), *self._lists(folder, _BESIDE)):
            if any(one.all_lack(_FORKSERVER) for one in _asked(self._project.raw(path), b"ython", _PINS)):
                return True
        inside = os.path.join(folder, "").startswith(os.path.join(self._project.top, "")) and folder != self._project.top
        return inside and self._pins(os.path.dirname(folder))

    def _lists(self, folder: str, named: re.Pattern[str] = _LISTS) -> Iterator[str]:
        names = set(_ALWAYS)
        with suppress(OSError):
            names.update(name for name in os.listdir(folder) if named.fullmatch(name))
        return (os.path.join(folder, name) for name in sorted(names))


def _asked(data: bytes, word: bytes = b"torch", asks: re.Pattern[bytes] = _ASKS) -> Iterator[VersionRange]:
    if word not in data:
        return
    for match in asks.finditer(_COMMENT.sub(b"", data)):
        found = (_PART.match(part.strip()) for part in (match[1] or match[2]).decode("ascii", "replace").split(","))
        yield _joined([_part(one[1] or "", tuple(int(number) for number in one[2].split("."))) for one in found if one is not None], both=True)


def _part(sign: str, version: Version) -> VersionRange:
    if sign in {"<", "<="}:
        return VersionRange(before=version if sign == "<" else _behind(version))
    if sign in {"~=", "^"}:
        return VersionRange(version, (version[0] + 1,))
    if sign == "!=":
        return VersionRange()
    return VersionRange(version, _behind(version) if not sign or sign.strip("=") == "" else None)


def _behind(version: Version) -> Version:
    """The first version behind one and those that are counted below it: behind 1.13 comes 1.14."""
    return (*version[:-1], version[-1] + 1)


def _joined(parts: list[VersionRange], *, both: bool = False) -> VersionRange:
    """All versions that one of several lists allows, or that ``both`` do."""
    oldest = [one.oldest for one in parts if one.oldest is not None]
    before = [one.before for one in parts if one.before is not None]
    if both:
        return VersionRange(max(oldest, default=None), min(before, default=None))
    return VersionRange(min(oldest, default=None), max(before) if before and len(before) == len(parts) else None)


def torch_versions(project: Project, module: Module) -> VersionRange:
    """The versions of torch that are asked for where a module lies."""
    return project.shared(TorchVersions).of(module)
