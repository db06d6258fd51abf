"""One line a finding: ``path:row:column: OOM101 error message``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.finding import Severity
from oomlint.output.view import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.finding import Finding
    from oomlint.output.view import Line, View

STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}


def lines(findings: Iterable[Finding], view: View) -> Iterator[Line]:
    """The findings, each on a line."""
    for finding in findings:
        yield headline(finding, view)


def headline(finding: Finding, view: View) -> Line:
    """Place, code, severity and message of a finding; for a file that cannot be checked, its cause."""
    spot = (f"{view.spot(finding.place)}: ", "bold")
    message = " ".join(visible(finding.message.replace("\n", " ")).split())
    if finding.code is None:
        return (spot, ("cannot check", "bold red"), (f": {message}", ""))
    return (spot, (f"{finding.code} {finding.severity.value}", STYLES[finding.severity]), (f" {message}", ""))
