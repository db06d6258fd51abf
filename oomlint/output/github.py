"""Workflow commands of GitHub Actions, which become annotations of a change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from oomlint.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oomlint.finding import Finding
    from oomlint.output.view import View

_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


class Remark(NamedTuple):
    """What else there is to say of a finding: a few words, and a sentence."""

    title: str
    text: str
    level: str | None = None  # error, warning or notice; None: by its severity
    fixed: bool = False  # whether it is no longer there, and told for the sake of its verdict


def level_of(finding: Finding, remark: Remark | None) -> str:
    """``error``, ``warning`` or ``notice``."""
    return (remark.level if remark else None) or _LEVELS[finding.severity]


def more_of(finding: Finding, remark: Remark | None) -> list[str]:
    """What else there is to say: what to do about it, and the remark."""
    return [*([f"help: {finding.advice}"] if finding.advice else []), *([remark.text] if remark else [])]


def text(findings: Iterable[Finding], view: View, remark: Callable[[Finding], Remark | None] = lambda _: None) -> str:
    """One command a finding. Paths are relative to the root of the repository that the view's folder is in."""
    root = repository(view.folder)
    return "".join(command(finding, root, remark(finding)) + "\n" for finding in findings)


def command(finding: Finding, root: str, remark: Remark | None = None) -> str:
    """The annotation of a finding."""
    place = finding.place
    title = f"oomlint ({finding.code})" if finding.code else "oomlint"
    message = finding.message if finding.code else f"cannot check: {finding.message}"
    if remark is not None:
        title = f"{title}: {remark.title}"
    message = "\n".join([message, *more_of(finding, remark)])
    where: dict[str, object] = {"title": title, "file": os.path.relpath(place.path, root).replace(os.sep, "/")}
    if place.cell:
        # GitHub counts the lines of a notebook's JSON, in which a cell's rows have no place.
        where["line"] = 1
        message = f"cell {place.cell}, {place.row}:{place.column}: {message}"
    else:
        where |= {"line": place.row}
        if place.row == place.end_row:
            where |= {"col": place.column, "endLine": place.end_row, "endColumn": place.end_column}
        else:
            where |= {"endLine": place.end_row}
    properties = ",".join(f"{key}={_property(str(value))}" for key, value in where.items())
    return f"::{level_of(finding, remark)} {properties}::{_data(message)}"


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def repository(folder: str) -> str:
    """The nearest folder upwards that holds a repository; the folder itself where there is none."""
    here = folder
    while not os.path.exists(os.path.join(here, ".git")):
        parent = os.path.dirname(here)
        if parent == here:
            return folder
        here = parent
    return here
