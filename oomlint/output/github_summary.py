"""The page that GitHub Actions shows for a step: a table of what was found."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from oomlint.output.github import repository
from oomlint.output.summary import count, counts, where
from oomlint.output.view import View, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oomlint.finding import Finding
    from oomlint.output.github import Remark

VARIABLE: Final = "GITHUB_STEP_SUMMARY"  # names the file
_MOST: Final = 200  # rows; a page may have 1 MiB
_LONGEST: Final = 1000  # characters of a message


def add(findings: Sequence[Finding], files: int, view: View, remark: Callable[[Finding], Remark | None], verdicts: str = "") -> None:
    """Put the page behind what is in the file already, where there is one to write. Raises OSError."""
    path = os.environ.get(VARIABLE)
    if path:
        with open(path, "a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text(findings, files, view, remark, verdicts))


def text(findings: Sequence[Finding], files: int, view: View, remark: Callable[[Finding], Remark | None] = lambda _: None, verdicts: str = "") -> str:
    """The page, in Markdown. Names are relative to the root of the repository. ``verdicts`` says what they come to."""
    from_root = View(repository(view.folder))
    left = [item for item in findings if not ((about := remark(item)) and about.fixed)]
    said = f"{counts(left)} in {where(left, files)}" if left else f"No findings in {count(files, 'file')}"
    lines = ["## oomlint", "", f"{said}.", "", *([verdicts, ""] if verdicts else [])]
    if findings:
        lines += ["| Place | Rule | Severity | Message | What to do |", "| --- | --- | --- | --- | --- |"]
        lines += [_row(item, from_root, remark(item)) for item in findings[:_MOST]]
        lines += ["", f"{len(findings) - _MOST} more are not listed.", ""] if len(findings) > _MOST else [""]
    return "\n".join(lines) + "\n"


def _row(item: Finding, view: View, remark: Remark | None) -> str:
    rule = f"{item.code} {item.name}" if item.code else item.name
    message = f"{item.message[:_LONGEST]}{f' ({remark.title})' if remark else ''}"
    return f"| {_cell(f'`{view.spot(item.place)}`')} | {rule} | {item.severity.value} | {_cell(message)} | {_cell(item.advice)} |"


def _cell(words: str) -> str:
    """Words that neither end a cell of the table nor become markup."""
    return visible(" ".join(words.split())).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
