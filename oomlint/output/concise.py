"""One line a finding: ``path:row:column: OOM101 error message``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.finding import Safety, Severity
from oomlint.output.view import visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from oomlint.finding import Finding
    from oomlint.output.view import Line, View

STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}


def lines(findings: Iterable[Finding], view: View, fixable: Collection[Safety] = (Safety.SAFE,)) -> Iterator[Line]:
    """The findings, each on a line. Those whose fix is as ``fixable`` says are marked."""
    for finding in findings:
        yield headline(finding, view, fixable)


def headline(finding: Finding, view: View, fixable: Collection[Safety] = ()) -> Line:
    """Place, and what is told there."""
    return ((f"{view.spot(finding.place)}: ", "bold"), *told(finding, fixable))


def told(finding: Finding, fixable: Collection[Safety]) -> Line:
    """Code, severity and message of a finding, with a mark where it can be fixed; for a file that cannot be checked, its cause."""
    message = " ".join(visible(finding.message.replace("\n", " ")).split())
    if finding.code is None:
        return (("cannot check", "bold red"), (f": {message}", ""))
    mends = finding.fix is not None and bool(finding.fix.edits) and finding.fix.safety in fixable
    mark = ((" [*]", "cyan"),) if mends else ()
    return ((f"{finding.code} {finding.severity.value}", STYLES[finding.severity]), *mark, (f" {message}", ""))
