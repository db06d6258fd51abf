"""Which functions of a project may read a file, told by its text before any of it is parsed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from oomlint.memory.shared.known_reads import LAST, SAMPLING, TEXTS
from oomlint.model.readings import finder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oomlint.model.project import Project

_CALLS: Final = re.compile(rb"\b(?:" + "|".join(sorted(LAST | {"open"})).encode() + rb")\s*\(")
_DEFS: Final = re.compile(rb"^[ \t]*(?:async[ \t]+)?def[ \t]+", re.MULTILINE)
_HEAD: Final = re.compile(rb"(?!__\w+__\b)(\w+)\s*\((?!\s*(?:self|cls)?\s*,?\s*\))")  # of a function that takes something
_GIVES: Final = re.compile(rb"\breturn\b[ \t]*[^\s#]|\byield\b")
_CALLED: Final = re.compile(rb"\b(\w++)\s*\(")
_LONGEST_WAY: Final = 3  # functions between the one that is called and the one that reads


@finder
def _functions(path: str, data: bytes) -> str:
    """The functions of a file that may give others what they read, one a row: its name, a mark where it reads itself, and what it calls.

    What they have in common is what ``ReadCalls`` asks of a reader: a name that is called, a parameter, and something that is returned.
    """
    del path
    if not _CALLS.search(data):
        return ""
    found = []
    for part in _DEFS.split(data)[1:]:
        head = _HEAD.match(part)
        if head is not None and _GIVES.search(part):
            direct = _CALLS.search(part) is not None
            called = sorted(set(map(bytes.decode, _CALLED.findall(part))))
            found.append(" ".join((head.group(1).decode(), "+" if direct else "-", *called)))
    return "\n".join(found)


def reading_functions(project: Project, near: str) -> frozenset[str]:
    """Names of functions of the project that may read a file, by the words of their text."""
    told = project.search(_functions, (), near)
    known = project.memo.get("reading functions")
    if known is None:
        rows = [row.split() for found in told.values() for row in found.splitlines()]
        names_found = {name for name, direct, *_ in rows if direct == "+"}
        for _ in range(_LONGEST_WAY):
            names_found |= {name for name, _, *called in rows if not names_found.isdisjoint(called)}
        known = project.memo["reading functions"] = frozenset(names_found)
    return known  # type: ignore[return-value]


def may_read(project: Project, functions: Iterable[str], near: str) -> bool:
    """Whether one of the functions that a file calls may be one that reads a file: a library's, or one of the project.

    They are told as the scout does: ``module:name`` where an import says whose it is, and ``name`` where nothing does.
    """
    for called in functions:
        whose, _, name = called.rpartition(":")
        if name in LAST or name in TEXTS or name in SAMPLING:
            return True
        if name in reading_functions(project, near) and (not whose or _is_own(project, near, whose)):
            return True
    return False


def _is_own(project: Project, near: str, module: str) -> bool:
    dotted = module.lstrip(".")
    return project.locate(near, dotted, len(module) - len(dotted)) is not None
