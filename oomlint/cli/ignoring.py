"""``oomlint check --add-ignore``: comments that silence what is found."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint import engine
from oomlint.beside_code import Beside, beside
from oomlint.commenting import comments_for
from oomlint.fixing import Change, Notice, WriteRefusedError, write
from oomlint.model import settings_formats
from oomlint.model.command_lines import commands_of
from oomlint.source import FileKind, SourceError, apply_edits, read_source, replacements_of
from oomlint.suppress import Suppressions
from oomlint.untouched import Code, HarmError, check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oomlint.engine import CheckReport
    from oomlint.finding import Finding


@dataclass(frozen=True, slots=True)
class Silenced:
    """What has become of a report: the rest of it, and what comments silence now."""

    report: CheckReport
    findings: tuple[Finding, ...]
    files: int


def silence(report: CheckReport, reason: str, given: Iterable[str], root: str) -> Silenced:
    """Put a comment beside each finding, where that can be. ``given`` are the paths that the line names."""
    outside = engine.foreign({item.place.path for item in report.findings}, given, root)
    notices: list[Notice] = []
    silent: list[Finding] = []
    done: set[str] = set()  # files, to which several links may lead
    for path, group in groupby(sorted(report.findings, key=lambda item: item.sort_key), key=lambda item: item.place.path):
        findings = [item for item in group if item.code is not None]
        if not findings:
            continue
        real = os.path.realpath(path)
        try:
            now = findings if real in done else _silence_in(path, findings, reason, foreign=path in outside)
        except (WriteRefusedError, SourceError, ValueError, OSError) as error:
            cause = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            notices.append(Notice(path, f"comments are not added: {cause.removeprefix('fixes are not applied: ')}"))
            continue
        if now:
            done.add(real)
        silent += now
    gone = {*silent}
    left = tuple(item for item in report.findings if item not in gone)
    return Silenced(replace(report, findings=left, notices=(*report.notices, *notices)), tuple(silent), len(done))


def _silence_in(path: str, findings: list[Finding], reason: str, *, foreign: bool) -> list[Finding]:
    """Write the comments of one file, and give the findings that they silence. Raises SourceError, ValueError, WriteRefusedError and OSError."""
    if foreign:
        raise WriteRefusedError("the link leads out of the project; name it to have its target changed")
    source = read_source(path)
    edits = comments_for(source, findings, reason)
    if not edits:
        return []
    data = apply_edits(source, edits)
    after = read_source(path, data)
    if beside(path) is not None:
        if not _says_the_same(path, source.text, after.text):
            raise SourceError(path, "a comment would be a part of the command or of the value there")
    elif source.kind is FileKind.PYTHON:  # each cell of a notebook has been looked at
        try:
            check(Code(source.text), Code(after.text), replacements_of(source, edits))
        except HarmError as error:
            raise SourceError(path, str(error)) from None
    suppressions = Suppressions.from_source(after)
    write(Change(path, source.encoding, source.data, data))
    return [item for item in findings if suppressions.silencing(item)]  # no row has moved


def _says_the_same(path: str, before: str, after: str) -> bool:
    """Whether a file beside the code gives programs what it gave before there were comments in it; not where nobody reads that of its kind."""
    if beside(path) in {Beside.SHELL, Beside.MAKE, Beside.DOCKER}:
        return [one.words for one in commands_of(path, before)] == [one.words for one in commands_of(path, after)]
    return settings_formats.alike(before, after, os.path.splitext(path)[1])
