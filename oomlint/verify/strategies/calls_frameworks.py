"""Calls of training frameworks: training arguments of `transformers` that ask for worker options without workers, and `predict` of Lightning's trainer."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from oomlint.finding import LoaderFact
from oomlint.verify.case import Outcome, Part, QuantityReading, Verdict
from oomlint.verify.session import Stopped
from oomlint.verify.strategies import call_verdict
from oomlint.verify.strategies.call_sites import at_row, site_in
from oomlint.verify.strategies.growth_metrics import Signal, measured
from oomlint.verify.strategies.slicing import cut

if TYPE_CHECKING:
    from oomlint.verify.session import Session
    from oomlint.verify.strategies.slicing import SliceSite


_PREFIX: Final = "dataloader_"
_OPTIONS: Final = frozenset({"persistent_workers", "prefetch_factor", "multiprocessing_context"})
_SECONDS: Final = 60.0  # the library imports much
_WORKERS: Final = "dataloader_num_workers"
_LOST: Final = "the call of `predict` was not found in the program"
_SAID: Final = "a model that predicts 64 KiB for each of its batches stands in, on the CPU"


def judge_arguments(session: Session) -> Verdict:
    """Make the arguments and the loader that follows from them."""
    found = next(iter(session.case.finding.of_noun(LoaderFact)), None)
    own = found.option.removeprefix(_PREFIX) if found is not None else ""
    site = at_row(session, found.place, _concerns) if found is not None and own in _OPTIONS else None
    if site is None:
        raise Stopped("the call of the training arguments was not found in the program")
    before, *after = (_made(session, part, site, own) for part in session.case.parts)
    judged = call_verdict.exceptions(own, before["runs"], after[0]["runs"] if after else None)
    other = _changed(session, site) if session.case.by_hand and judged.outcome in {Outcome.CONFIRMED, Outcome.NO_EFFECT} else ""
    if other:
        return replace(judged, outcome=Outcome.INCONCLUSIVE, reason=f"the fix changes `{other}` as well, and training was not run")
    said = "the loader is made of the arguments as `Trainer` makes it, over a stand-in dataset"
    missing = ["`transformers` is not installed: the loader is made of the call's own arguments, as version 5.23 does"] if before["missing"] else []
    return replace(judged, assumptions=(said, *missing))


def _changed(session: Session, site: SliceSite) -> str:
    """An argument that the fix changes and that is not about loaders; empty where there is none."""
    here = site_in(session, Part.AFTER, site, session.case.finding.place.path)
    old, new = ({item.arg or "**": ast.unparse(item.value) for item in call.keywords} for call in (site.call, here.call if here is not None else site.call))
    return next((name for name in {**old, **new} if not name.startswith(_PREFIX) and old.get(name) != new.get(name)), "")


def _concerns(call: ast.Call) -> bool:
    return any(item.arg is None or item.arg.startswith(_PREFIX) for item in call.keywords)


def _made(session: Session, part: Part, site: SliceSite, own: str) -> dict[str, Any]:
    """What the child answers."""
    path = session.case.finding.place.path
    here = site_in(session, part, site, path)
    if here is None:
        raise Stopped("after the fix: the call of the training arguments was not found")
    given = next((item.value for item in here.call.keywords if item.arg == _WORKERS), None)
    leaves: dict[str, object] = {}
    if isinstance(given, (ast.Name, ast.Attribute, ast.Subscript)):
        leaves = {ast.unparse(given): 0}
    piece = cut(here, frozenset(leaves), plain=True)
    values: list[dict[str, object]] = [dict.fromkeys(leaves, count) for count in ((2, 0) if leaves else (0,))]
    arguments = {"path": session.path(part, path), "root": session.folder(part), "plan": piece.plan(values), "own": own}
    answer = session.answer(part, "driving.call_frameworks:arguments", arguments, seconds=_SECONDS)
    if answer["missing"] and not answer["stood_in"]:
        raise Stopped(f"{answer['missing']} is not installed in this interpreter")
    return answer


def judge_predictions(session: Session) -> Verdict:
    """Predict before and after; what is held after each batch, and what callbacks are given."""
    site = at_row(session, session.case.finding.place, lambda call: isinstance(call.func, ast.Attribute) and call.func.attr == "predict")
    if site is None:
        raise Stopped(_LOST)
    return _of_predictions([_predicted(session, part, site) for part in session.case.parts])


def _predicted(session: Session, part: Part, site: SliceSite) -> dict[str, Any]:
    """What the child answers."""
    here = site_in(session, part, site, session.case.finding.place.path)
    if here is None:
        raise Stopped(f"after the fix: {_LOST}")
    options = {item.arg: item.value.value for item in here.call.keywords if item.arg and isinstance(item.value, ast.Constant)}
    given = {"options": {name: value for name, value in options.items() if value is not None}}
    answer = session.answer(part, "driving.call_frameworks:predictions", given, seconds=_SECONDS)
    if answer["failed"]:
        raise Stopped(f"after the fix: {answer['failed']}" if part is Part.AFTER else answer["failed"])
    return answer


def _of_predictions(answers: list[dict[str, Any]]) -> Verdict:
    growth = measured(Signal("bytes", "bytes of predictions", "bytes"), *(item["bytes"] for item in answers))
    readings = (QuantityReading.of("bytes of predictions that a batch leaves", "bytes", growth.rates, "predict"),)
    if len(answers) == 1:
        return Verdict(Outcome.SHOWN if growth.shown else Outcome.NOT_SHOWN, growth.words, readings=readings, assumptions=(_SAID,))
    if answers[0]["given"] != answers[1]["given"]:
        return Verdict(Outcome.REGRESSED, "callbacks are given other predictions after the fix", readings=readings, assumptions=(_SAID,))
    if not growth.shown:
        return Verdict(Outcome.NO_EFFECT, f"not seen before the fix: {growth.words}", readings=readings, assumptions=(_SAID,))
    outcome = Outcome.CONFIRMED if growth.ended else Outcome.INCONCLUSIVE
    return Verdict(outcome, f"{growth.words}; callbacks are given the same predictions", readings=readings, assumptions=(_SAID,))
