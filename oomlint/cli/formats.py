"""Findings in the formats that other programs read, of a check and of a verification alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.cli.check import say
from oomlint.config import OutputFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oomlint.finding import Finding
    from oomlint.output.github import Remark
    from oomlint.output.view import View

PLAIN: Final = frozenset({OutputFormat.FULL, OutputFormat.CONCISE, OutputFormat.GROUPED})  # formats for people


def machine(
    form: OutputFormat,
    findings: Sequence[Finding],
    view: View,
    more: Callable[[Finding], dict[str, object]],
    remark: Callable[[Finding], Remark | None],
) -> str | None:
    """The report; ``None`` where the format is one for people. ``more`` are further values of a finding, ``remark`` the same in words."""
    match form:
        case OutputFormat.JSON | OutputFormat.JSON_LINES:
            from oomlint.output import json_array  # noqa: PLC0415 - as all formats: only the one that is asked for

            return (json_array.text if form is OutputFormat.JSON else json_array.rows)(findings, view, more)
        case OutputFormat.SARIF:
            from oomlint.output import sarif  # noqa: PLC0415

            return sarif.text(findings, view, more, remark)
        case OutputFormat.GITHUB:
            from oomlint.output import github  # noqa: PLC0415

            return github.text(findings, view, remark)
        case OutputFormat.GITLAB:
            from oomlint.output import gitlab  # noqa: PLC0415

            return gitlab.text(findings, view, remark)
        case OutputFormat.JUNIT:
            from oomlint.output import junit  # noqa: PLC0415

            return junit.text(findings, view, remark)
        case OutputFormat.PYLINT:
            from oomlint.output import pylint  # noqa: PLC0415

            return "".join(f"{line}\n" for line in pylint.rows(findings, view, remark))
        case _:
            return None


def summarise_step(findings: Sequence[Finding], files: int, view: View, remark: Callable[[Finding], Remark | None], verdicts: str = "") -> None:
    """Write the page that GitHub Actions shows for a step, where there is one to write. ``verdicts`` says what they come to."""
    from oomlint.output import github_summary  # noqa: PLC0415

    try:
        github_summary.add(findings, files, view, remark, verdicts)
    except OSError as error:
        say(f"the summary of the step is not written: {error.filename}: {error.strerror or error}")
