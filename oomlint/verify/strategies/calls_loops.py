"""Expressions that take a whole loader: run over a stand-in loader, counting the batches that stay alive."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, Any, Final

from oomlint.measurement import CallCheck
from oomlint.verify.ast_names import callee
from oomlint.verify.case import Outcome, Part, QuantityReading, Verdict
from oomlint.verify.session import Stopped
from oomlint.verify.strategies import unverified_changes
from oomlint.verify.strategies.call_verdict import cause
from oomlint.verify.strategies.slicing import counterpart, sites
from oomlint.verify.thresholds import human

if TYPE_CHECKING:
    from oomlint.verify.session import Session
    from oomlint.verify.strategies.slicing import SliceSite

EPOCH: Final = 6  # batches, as oomlint.verify.child.driving.call_batches has them
_PASSING: Final = frozenset({"zip", "enumerate", "tqdm", "trange"})
_HELD: Final = 4  # batches that a generator and the `zip` under it hold at any time
_SAID: Final = ("a stand-in loader: 6 batches of 4 samples an epoch, shuffled, no workers",)


def judge(session: Session) -> Verdict:
    """Count the batches that are kept, before and after."""
    found = _sources(session)
    if found is None:
        raise Stopped("the expression was not found in the program")
    before = _measured(session, Part.BEFORE, found[0])
    if before["error"]:
        raise Stopped(f"the expression cannot be run alone: {cause(before['error'])}")
    if not session.case.has_fix:
        kept = max(before["most"], *before["alive"])
        reading = QuantityReading.of("batches alive at once", "batches", [kept], f"an epoch of {EPOCH}")
        words = f"{kept} of the {EPOCH} batches of an epoch are alive at once ({human(kept * before['bytes'])} here)"
        return Verdict(Outcome.SHOWN if kept >= EPOCH else Outcome.NOT_SHOWN, words, readings=(reading,), assumptions=_SAID)
    after = _measured(session, Part.AFTER, found[1])
    if after["error"]:
        return Verdict(Outcome.REGRESSED, f"after the fix: {cause(after['error'])}", assumptions=_SAID)
    outcome, reason = (_endless if before["epochs"] else _whole)(before, after)
    if outcome in {Outcome.CONFIRMED, Outcome.NO_EFFECT} and (gap := unverified_changes.of_expression(session, found[1])):
        outcome, reason = Outcome.INCONCLUSIVE, gap
    return Verdict(outcome, reason, readings=_readings(before, after), assumptions=_SAID)


def _readings(before: dict[str, Any], after: dict[str, Any]) -> tuple[QuantityReading, ...]:
    if not before["epochs"]:
        under = f"an epoch of {EPOCH}"
        alive = QuantityReading.of("batches alive at once", "batches", [before["most"], after["most"]], under)
        return alive, QuantityReading.of("batches read", "batches", [before["made"], after["made"]], under)
    parts, under = (before, after), f"epochs of {EPOCH}"
    return (
        QuantityReading.of("batches kept after three epochs", "batches", [item["alive"][-1] for item in parts], under),
        QuantityReading.of("bytes kept after three epochs", "bytes", [item["alive"][-1] * item["bytes"] for item in parts], under),
        QuantityReading.of("different epochs of three", "epochs", [len(set(item["epochs"])) for item in parts], "shuffled"),
    )


def _endless(before: dict[str, Any], after: dict[str, Any]) -> tuple[Outcome, str]:
    old, new = before["alive"], after["alive"]
    if not after["epochs"] or before["epochs"][0] != after["epochs"][0]:
        return Outcome.REGRESSED, "the first epoch is another one after the fix"
    odd = next((number for number, pair in enumerate(zip(before["samples"], after["samples"], strict=True), 1) if pair[0] != pair[1]), None)
    if odd is not None:
        said = "nothing comes any more" if not after["samples"][odd - 1] else "other samples come"
        return Outcome.REGRESSED, f"after the fix {said} in epoch {odd}"
    if min(old) < EPOCH:
        return Outcome.NO_EFFECT, f"at most {max(old)} batches are kept before the fix"
    if max(new) > _HELD or new[-1] > new[-2]:
        return Outcome.INCONCLUSIVE, f"{max(new)} batches are still kept after the fix"
    repeats = len(set(before["epochs"])) == 1 and len(set(after["epochs"])) > 1
    later = "; later epochs repeated the first before and are shuffled again after, which is meant" if repeats else ""
    return Outcome.CONFIRMED, f"{old[-1]} batches, one epoch, are kept before, {new[-1]} after; the first epoch is the same{later}"


def _whole(before: dict[str, Any], after: dict[str, Any]) -> tuple[Outcome, str]:
    if before["value"] != after["value"]:
        return Outcome.REGRESSED, f"the value was {before['value']} and is {after['value']}"
    if before["most"] < EPOCH:
        return Outcome.NO_EFFECT, f"at most {before['most']} batches are alive at once before the fix"
    if after["most"] >= EPOCH:
        return Outcome.INCONCLUSIVE, f"{after['most']} batches are still alive at once after the fix"
    words = f"{before['most']} batches are read and alive at once before, {after['most']} after; the value is the same, {after['value']}"
    return Outcome.CONFIRMED, f"{words}; the random generators are no longer moved on by the pass over the data, which is meant"


def _measured(session: Session, part: Part, source: str) -> dict[str, Any]:
    arguments = {"path": session.path(part), "root": session.folder(part), "source": source}
    return session.answer(part, "driving.call_batches:batches", arguments, seconds=20.0)


# -- the expression ------------------------------------------------------------------------------------------------------


def _sources(session: Session) -> tuple[str, str] | None:
    """What the child is to run, before and after."""
    old, new = (session.case.tree(part) for part in Part)
    module = session.project.find(session.case.finding.place.path)
    if old is None or new is None or module is None:
        return None
    place = session.case.finding.place
    row = module.source.program_row(place)
    disk = ast.parse(module.source.text)
    whole = session.case.plan.call is CallCheck.WHOLE
    site = _site(disk, row, row + place.end_row - place.row, whole=whole)
    if site is None:
        block = _block(disk, row)
        return None if block is None else (block, block)
    if whole:
        return _counted(site, old, new)
    here = counterpart(site, old)
    after = None if here is None else _same_place(here, old, new)
    if here is None or after is None:
        return None
    return f"__result__ = {_filled(here.call)}", f"__result__ = {_filled(after)}"


def _site(tree: ast.Module, row: int, end: int, *, whole: bool) -> SliceSite | None:
    named = {"list", "tuple", "sorted"} if whole else {"cycle", "tee"}
    return next((one for one in sites(tree) if row <= one.call.lineno <= end and callee(one.call) in named and one.call.args), None)


def _same_place(site: SliceSite, old: ast.Module, new: ast.Module) -> ast.Call | None:
    """The call that stands where this one stood: as many calls come before it in its function."""
    before, after = ([one for one in sites(tree) if one.function == site.function] for tree in (old, new))
    number = next((place for place, one in enumerate(before) if one.call is site.call), None)
    return after[number].call if number is not None and len(before) == len(after) else None


def _filled(call: ast.Call) -> str:
    """The call with a stand-in loader in place of what it goes over."""
    made = copy.deepcopy(call)
    inner = made.args[0]
    loader = ast.parse("__loader__()", mode="eval").body
    if isinstance(inner, ast.Call) and callee(inner) in _PASSING and inner.args:
        inner.args = [loader for _ in inner.args]
    else:
        made.args[0] = loader
    return ast.unparse(made)


def _counted(site: SliceSite, old: ast.Module, new: ast.Module) -> tuple[str, str] | None:
    """``list(loader)``, with the ``len(...)`` around it where there is one."""
    here = counterpart(site, old)
    if here is None:
        return None
    around = next((one for one in sites(old) if ast.unparse(one.call.func) == "len" and one.call.args and one.call.args[0] is here.call), None)
    if around is None:
        source = f"__result__ = {_filled(here.call)}"
        return source, source
    text = f"len({_filled(here.call)})"
    later = counterpart(around, new)
    if later is None or not later.call.args:
        return f"__result__ = {text}", f"__result__ = {text}"
    inner = later.call.args[0]
    kept = isinstance(inner, ast.Call) and ast.unparse(inner) == ast.unparse(here.call)
    return f"__result__ = {text}", f"__result__ = {text if kept else 'len(__loader__())'}"


def _block(tree: ast.Module, row: int) -> str | None:
    """A comprehension, or a loop that appends each batch."""
    loader = ast.parse("__loader__()", mode="eval").body
    for node in ast.walk(tree):
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)) and node.lineno == row:
            made = copy.deepcopy(node)
            made.generators[0].iter = loader
            return f"__result__ = {ast.unparse(made)}"
        if isinstance(node, ast.For) and node.lineno == row and len(node.body) == 1:
            loop = copy.deepcopy(node)
            loop.iter = loader
            call = getattr(loop.body[0], "value", None)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                call.func.value = ast.Name("__kept__", ast.Load())
                return f"{ast.unparse(ast.fix_missing_locations(loop))}\n__result__ = __kept__"
    return None
