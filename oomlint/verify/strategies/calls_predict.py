"""`predict` of a Lightning trainer whose predictions nobody takes: called with the options of the user's call, over a model that stands in."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify import thresholds
from oomlint.verify.case import Outcome, Part, Reading, Verdict
from oomlint.verify.session import Stopped
from oomlint.verify.strategies.call_sites import at_row, site_in

if TYPE_CHECKING:
    from oomlint.verify.session import Session
    from oomlint.verify.strategies.slicing import Site

_SECONDS: Final = 60.0  # the library imports much
_LOST: Final = "the call of `predict` was not found in the program"
_SAID: Final = "a model that predicts 64 KiB for each of its batches stands in, on the CPU"


def judge(session: Session) -> Verdict:
    """Predict before and after; what is held after each batch, and what callbacks are given."""
    site = at_row(session, session.case.finding.place, _predicts)
    if site is None:
        raise Stopped(_LOST)
    return _judged([_measured(session, part, site) for part in session.case.parts])


def _predicts(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "predict"


def _measured(session: Session, part: Part, site: Site) -> dict[str, Any]:
    """What the child answers."""
    here = site_in(session, part, site, session.case.finding.place.path)
    if here is None:
        raise Stopped(f"after the fix: {_LOST}")
    options = {item.arg: item.value.value for item in here.call.keywords if item.arg and isinstance(item.value, ast.Constant)}
    given = {"options": {name: value for name, value in options.items() if value is not None}}
    answer = session.answer(part, "driving.call_predict:measure", given, seconds=_SECONDS)
    if answer["failed"]:
        raise Stopped(f"after the fix: {answer['failed']}" if part is Part.AFTER else answer["failed"])
    return answer


def _judged(answers: list[dict[str, Any]]) -> Verdict:
    growth = thresholds.growth("bytes of predictions", "bytes", *(item["bytes"] for item in answers))
    rates = [growth.before.a_step, *([growth.after.a_step] if growth.after else [])]
    readings = (Reading("bytes of predictions that a batch leaves", "bytes", (rates[0],), tuple(rates[1:]), "predict"),)
    if len(answers) == 1:
        return Verdict(Outcome.SHOWN if growth.shown else Outcome.NOT_SHOWN, growth.words, readings=readings, assumptions=(_SAID,))
    if answers[0]["given"] != answers[1]["given"]:
        return Verdict(Outcome.REGRESSED, "callbacks are given other predictions after the fix", readings=readings, assumptions=(_SAID,))
    if not growth.shown:
        return Verdict(Outcome.NO_EFFECT, f"not seen before the fix: {growth.words}", readings=readings, assumptions=(_SAID,))
    outcome = Outcome.CONFIRMED if growth.ended else Outcome.INCONCLUSIVE
    return Verdict(outcome, f"{growth.words}; callbacks are given the same predictions", readings=readings, assumptions=(_SAID,))
