"""One line a finding: ``path:row:column: OOM101 error message``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.finding import Safety, Severity
from oomlint.output.view import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.finding import Finding
    from oomlint.output.view import Line, View

STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}


def lines(findings: Iterable[Finding], view: View) -> Iterator[Line]:
    """The findings, each on a line."""
    for finding in findings:
        yield headline(finding, view, fixable=True)


def headline(finding: Finding, view: View, *, fixable: bool = False) -> Line:
    """Place, and what is told there."""
    return ((f"{view.spot(finding.place)}: ", "bold"), *told(finding, fixable=fixable))


def told(finding: Finding, *, fixable: bool = False) -> Line:
    """Code, severity and message of a finding; for a file that cannot be checked, its cause. With ``fixable``, a mark for what ``--fix`` would mend."""
    message = " ".join(visible(finding.message.replace("\n", " ")).split())
    if finding.code is None:
        return (("cannot check", "bold red"), (f": {message}", ""))
    mends = fixable and finding.fix is not None and bool(finding.fix.edits) and finding.fix.safety is Safety.SAFE
    mark = ((" [*]", "cyan"),) if mends else ()
    return ((f"{finding.code} {finding.severity.value}", STYLES[finding.severity]), *mark, (f" {message}", ""))
