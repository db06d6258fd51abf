"""What formats that are made for findings say of verdicts: each stands at its finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.output.github import Remark
from oomlint.output.verdicts_numbers import title
from oomlint.output.view import one_line
from oomlint.verify.case import Outcome

if TYPE_CHECKING:
    from oomlint.output.verdicts_numbers import Item

_LEVELS: Final = {
    Outcome.CONFIRMED: None,  # the finding stands until its fix is applied, and is as grave as ever
    Outcome.NO_EFFECT: "notice",
    Outcome.REGRESSED: "error",
    Outcome.INCONCLUSIVE: "notice",
    Outcome.SHOWN: None,
    Outcome.NOT_SHOWN: "notice",
}


def remark(item: Item, *, fixed: bool = False) -> Remark:
    """What is said of the verdict of a finding, which is ``fixed`` or not."""
    _, verdict = item
    what = f" ({verdict.fidelity.value})" if verdict.fidelity else ""
    told = f"{title(*item)}: {one_line(verdict.reason)}{what}"
    return Remark(f"fixed, {title(*item)}", f"fixed; {told}", "notice", fixed=True) if fixed else Remark(title(*item), told, _LEVELS[verdict.outcome])
