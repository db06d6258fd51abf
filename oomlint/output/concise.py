"""One line a finding: ``path:row:column: OOM101 error message``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.finding import Safety, Severity
from oomlint.output.view import one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from oomlint.finding import Finding
    from oomlint.output.view import Line, Span, View

STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}


def lines(findings: Iterable[Finding], view: View, fixable: Collection[Safety] = (Safety.SAFE,)) -> Iterator[Line]:
    """The findings, each on a line. Those whose fix is as ``fixable`` says are marked."""
    for finding in findings:
        yield (_place(finding, view), *told(finding, fixable))


def headline(finding: Finding, view: View) -> Line:
    """Place, and what is wrong there."""
    return (_place(finding, view), *_told(finding, finding.headline, ()))


def told(finding: Finding, fixable: Collection[Safety]) -> Line:
    """Code, severity and message of a finding, with a mark where it can be fixed; for a file that cannot be checked, its cause."""
    return _told(finding, finding.message, fixable)


def _place(finding: Finding, view: View) -> Span:
    return (f"{view.spot(finding.place)}: ", "bold")


def _told(finding: Finding, words: str, fixable: Collection[Safety]) -> Line:
    message = one_line(words)
    if finding.code is None:
        return (("cannot check", "bold red"), (f": {message}", ""))
    has_fix = finding.fix is not None and bool(finding.fix.edits) and finding.fix.safety in fixable
    mark = ((" [*]", "cyan"),) if has_fix else ()
    return ((f"{finding.code} {finding.severity.value}", STYLES[finding.severity]), *mark, (f" {message}", ""))
