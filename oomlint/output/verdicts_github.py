"""Verdicts as annotations of a change: each stands at its finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.output.github import Remark, command, repository
from oomlint.output.verdicts_numbers import title
from oomlint.output.view import one_line
from oomlint.verify.case import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oomlint.output.verdicts_numbers import Item
    from oomlint.output.view import View

_LEVELS: Final = {
    Outcome.CONFIRMED: None,  # the finding stands until its fix is applied, and is as grave as ever
    Outcome.NO_EFFECT: "notice",
    Outcome.REGRESSED: "error",
    Outcome.INCONCLUSIVE: "notice",
    Outcome.SHOWN: None,
    Outcome.NOT_SHOWN: "notice",
}


def text(items: Iterable[Item], view: View) -> str:
    """One command a verdict."""
    root = repository(view.folder)
    return "".join(command(case.finding, root, remark((case, verdict)), _LEVELS[verdict.outcome]) + "\n" for case, verdict in items)


def remark(item: Item) -> Remark:
    """What the annotation of a finding says of its verdict."""
    _, verdict = item
    what = f" ({verdict.fidelity.value})" if verdict.fidelity else ""
    return Remark(title(*item), f"{title(*item)}: {one_line(verdict.reason)}{what}")
