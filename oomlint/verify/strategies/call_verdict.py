"""What the runs of one call, before and after a fix, come to. Pure functions on what the child answers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.case import Outcome, QuantityReading, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Run = dict[str, Any]
_SILENT: Final = "timeout"  # torch asserts it without a word
_LONGEST: Final = 180  # characters of a message
_UNTRIED: Final = "the value that the finding speaks of could not be brought about in the cut-out call"
_GRAVE: Final = (Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.CONFIRMED, Outcome.SHOWN, Outcome.NO_EFFECT, Outcome.NOT_SHOWN)


# What a pair of runs has come to, the gravest first, and what that says of the fix.
_WRONG: Final = (
    ("broken", Outcome.REGRESSED, "a call that worked before fails after ({})"),
    ("differing", Outcome.REGRESSED, "a loader that worked before is another one after ({})"),
    ("lost", Outcome.INCONCLUSIVE, "with {} no loader could be seen to be made any more after"),
    ("unlike", Outcome.INCONCLUSIVE, "the batches are made in another way after with {} than where it worked"),
    ("still", Outcome.INCONCLUSIVE, "the call still fails after ({})"),
)


def together(judged: Sequence[Verdict]) -> Verdict:
    """Of several loaders: a regression first, then what could not be found out, unless one at least is confirmed and none is worse."""
    outcomes = {one.outcome for one in judged}
    if Outcome.REGRESSED not in outcomes and Outcome.CONFIRMED in outcomes and Outcome.INCONCLUSIVE not in outcomes:
        best = next(one for one in judged if one.outcome is Outcome.CONFIRMED)
    else:
        best = min(judged, key=lambda one: _GRAVE.index(one.outcome))
    return replace(
        best,
        readings=tuple(dict.fromkeys((*best.readings, *(item for one in judged for item in one.readings)))),
        assumptions=tuple(dict.fromkeys(item for one in judged for item in one.assumptions)),
        left_out=tuple(dict.fromkeys(item for one in judged for item in one.left_out)),
    )


def symptom(own: str, run: Run, *, zero: bool = False) -> bool:
    """Whether a run failed as the finding says of its ``own`` argument: without workers, or because the argument is ``zero``."""
    error = run.get("error")
    if not error:
        return False
    text = f"{error['type']} {error['message']}".lower()
    if zero:
        return error["type"] in {"AssertionError", "ValueError"} and ("prefetch" in text or error["type"] == "AssertionError")
    if own == _SILENT:
        return own in text or (error["type"] == "AssertionError" and not error["message"])
    return own in text


def exceptions(own: str, before: Sequence[Run], after: Sequence[Run] | None, *, zero: bool = False) -> Verdict:
    """The exception for an argument goes at every value, and nothing else changes."""
    judged = _shown(own, before, zero=zero) if after is None else _ended(own, before, after, zero=zero)
    return replace(judged, readings=(_reading(before, after),))


def _ended(own: str, before: Sequence[Run], after: Sequence[Run], *, zero: bool) -> Verdict:
    found: dict[str, list[str]] = defaultdict(list)
    for old, new in pairs(before, after):
        if old["reached"] or new["reached"]:
            kind, words = _come_to(own, old, new, before, zero=zero)
            found[kind].append(words)
    for kind, outcome, words in _WRONG:
        if found[kind]:
            return Verdict(outcome, words.format(found[kind][0]))
    if found["fixed"]:
        error = next(_error(run) for run in before if symptom(own, run, zero=zero))
        same = f", and where it worked the batches of two epochs are the same ({'; '.join(found['same'])})" if found["same"] else ""
        return Verdict(Outcome.CONFIRMED, f"{error} before, none after, with {' and '.join(_few(found['fixed']))}{same}")
    if not any(run["reached"] for run in before):
        return Verdict(Outcome.INCONCLUSIVE, "the call could not be reached with the values that were tried")
    if found["unknown"]:
        return Verdict(Outcome.INCONCLUSIVE, f"the cut-out call cannot be run: {found['unknown'][0]}")
    if not _tried(before, zero=zero):
        return Verdict(Outcome.INCONCLUSIVE, _UNTRIED)
    return Verdict(Outcome.NO_EFFECT, f"the call does not fail before the fix, with {' and '.join(_few(found['same']))}")


def _shown(own: str, before: Sequence[Run], *, zero: bool) -> Verdict:
    failed = [run for run in before if symptom(own, run, zero=zero)]
    if failed:
        return Verdict(Outcome.SHOWN, f"{_error(failed[0])} with {where(failed[0])}")
    other = [run for run in before if run["reached"] and run.get("error")]
    if other:
        return Verdict(Outcome.INCONCLUSIVE, f"the cut-out call cannot be run: {_error(other[0])}")
    reached = [run for run in before if run["reached"]]
    if not reached:
        return Verdict(Outcome.INCONCLUSIVE, "the call could not be reached with the values that were tried")
    if not _tried(before, zero=zero):
        return Verdict(Outcome.INCONCLUSIVE, _UNTRIED)
    return Verdict(Outcome.NOT_SHOWN, f"the call does not fail, with {' and '.join(_few([where(run) for run in reached]))}")


def _tried(before: Sequence[Run], *, zero: bool) -> bool:
    """Whether what the finding speaks of was among the values that were run."""
    name, value = ("prefetch_factor", 0) if zero else ("num_workers", 0)
    return any(run["reached"] and run.get("settings", {}).get(name) == value for run in before)


def _come_to(own: str, old: Run, new: Run, before: Sequence[Run], *, zero: bool) -> tuple[str, str]:
    """What a pair of runs has come to, and at which values or with which exception."""
    spot = where(new)
    if not new["reached"]:
        return "lost", spot
    if not old["reached"]:
        return "unknown", spot
    if symptom(own, old, zero=zero):
        if not new.get("error"):
            working = [run for run in before if run["reached"] and not run.get("error")]
            return "fixed" if _set_alike(new, working) else "unlike", spot
        return ("still", f"{spot}: {_error(new)}") if symptom(own, new, zero=zero) else ("unknown", _error(new))
    if old.get("error"):
        return "unknown", _error(old)
    if new.get("error"):
        return "broken", f"{spot}: {_error(new)}"
    change = changed(old, new)
    return ("same", spot) if change is None else ("differing", f"{spot}: {change}")


def pairs(before: Sequence[Run], after: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Runs with the same values. Either part may have asked for a value that the other did not need."""
    found = []
    for new in after:
        old = next((run for run in before if _agree(run, new)), None)
        if old is not None:
            found.append((old, new))
    return found


def otherwise(before: Sequence[Run], after: Sequence[Run], ways: Sequence[Sequence[Run]]) -> list[Run]:
    """The runs after a fix, and where one no longer comes to the call, that of the one other call that is made in its place, set as the loader is elsewhere."""
    found = []
    for new in after:
        old = next((run for run in before if _agree(run, new)), None)
        if new["reached"] or old is None or not old["reached"]:
            found.append(new)
            continue
        others = [run for way in ways for run in way if run["reached"] and _agree(run, new)]
        alike = [run for run in (*before, *after) if run["reached"] and not run.get("error")]
        fits = len(others) == 1 and (not old.get("error") or others[0].get("error") or _set_alike(others[0], alike))
        found.append({**others[0], "values": new["values"]} if fits else new)
    return found


def _set_alike(run: Run, others: Sequence[Run]) -> bool:
    """Whether it cuts the data into batches as one at least of the others does, where there are any."""
    names = ("batch_size", "drop_last", "sampler")
    rows = [[one.get("settings", {}).get(name) for name in names] for one in (run, *others)]
    return len(rows) == 1 or rows[0] in rows[1:]


def _agree(one: Run, other: Run) -> bool:
    left, right = one["values"], other["values"]
    return one.get("method") == other.get("method") and all(left[key] == right[key] for key in left.keys() & right.keys())


def changed(old: Run, new: Run) -> str | None:
    """What is another in two runs that both worked; ``None`` where nothing is."""
    for number, (one, other) in enumerate(zip(old["epochs"], new["epochs"], strict=False)):
        if one != other:
            return f"the batches of epoch {number + 1} differ"
    for name, value in old["settings"].items():
        if new["settings"].get(name) != value:
            return f"`{name}` was {value!r} and is {new['settings'].get(name)!r}"
    if old.get("kept") != new.get("kept"):
        return "the workers are kept between epochs in one of them only"
    if old["tail"] != new["tail"]:
        return "the random generators are left in another state"
    return None


def where(run: Run) -> str:
    """The configuration in words."""
    values: Mapping[str, str] = run.get("values", {})
    workers = run.get("settings", {}).get("num_workers")
    said = [f"`{text}` = {value}" for text, value in values.items()]
    if run.get("method"):
        said.append(f"{run['method']}")
    if not values and workers is not None:
        said.append(f"{workers} workers")
    return ", ".join(said) or "the values that it has"


def _few(items: Sequence[str]) -> list[str]:
    unique = list(dict.fromkeys(items))
    return unique[:2] + ([f"{len(unique) - 2} more"] if len(unique) > 2 else [])  # noqa: PLR2004 -- two are named


def _error(run: Run) -> str:
    return cause(run.get("error") or {"type": "nothing", "message": ""})


def cause(error: Mapping[str, str]) -> str:
    """An exception in words."""
    message = error["message"] if len(error["message"]) <= _LONGEST else f"{error['message'][:_LONGEST]}..."
    return f"`{error['type']}: {message}`" if message else f"`{error['type']}`"


def _reading(before: Sequence[Run], after: Sequence[Run] | None) -> QuantityReading:
    failed = [[bool(run.get("error")) for run in part if run["reached"]] for part in (before, after) if part is not None]
    under = f"{len(failed[0])} configuration{'' if len(failed[0]) == 1 else 's'}, two epochs each"
    return QuantityReading.of("calls that fail", "calls", map(sum, failed), under)


# -- what workers cannot be sent -----------------------------------------------------------------------------------------


def unpicklable(before: Sequence[Run], after: Sequence[Run] | None) -> Verdict:
    """The loader's functions can be sent to workers that are spawned, and give the same batches."""
    started = [run for run in before if run["reached"] and run.get("settings", {}).get("num_workers", 1)]
    judged = _pickled(before, after, started)
    if not any(run.get("functions") for run in started):
        return judged
    names = {name for run in started for name, item in run.get("functions", {}).items() if item["error"]}
    left = {name for run in after or () for name, item in run.get("functions", {}).items() if item["error"] and item["plain"]}
    reading = QuantityReading.of("functions that cannot be pickled", "functions", map(len, [names] if after is None else [names, left]))
    return replace(judged, readings=(reading,))


def _pickled(before: Sequence[Run], after: Sequence[Run] | None, started: Sequence[Run]) -> Verdict:
    stuck = [item for run in started for item in run.get("functions", {}).values() if item["error"] and item["plain"]]
    if not started:
        return Verdict(Outcome.INCONCLUSIVE, "the loader has no workers with the values that were tried")
    if not stuck:
        failing = next((run for run in started if run.get("error")), None)
        if failing is not None and not failing.get("built", True):
            return Verdict(Outcome.INCONCLUSIVE, f"the cut-out call cannot be run: {_error(failing)}")
        return Verdict(Outcome.INCONCLUSIVE, "what cannot be sent is in the dataset, which is replaced by a stand-in here")
    said = cause(stuck[0]["error"])
    spawned = [run for run in started if run.get("method") in {"spawn", "forkserver"}]
    if after is None:
        failed = next((run for run in spawned if run.get("error")), None)
        if failed is None and not any(run.get("replaced") for run in spawned):
            return Verdict(Outcome.NOT_SHOWN, "the workers start although a function of the loader cannot be pickled")
        return Verdict(Outcome.SHOWN, f"{said} when the workers are started")
    return _sent(before, after, said)


def _sent(before: Sequence[Run], after: Sequence[Run], said: str) -> Verdict:
    stuck = next((item for run in after for item in run.get("functions", {}).values() if item["error"]), None)
    if stuck is not None:
        return Verdict(Outcome.INCONCLUSIVE, f"a function still cannot be pickled after: {cause(stuck['error'])}")
    replaced = False
    reference: dict[str, Any] = {}
    for old, new in pairs(before, after):
        replaced = replaced or new.get("replaced", False) or old.get("replaced", False)
        if not new["reached"] or not old["reached"]:
            continue
        if new.get("error"):
            broken = not old.get("error")
            return Verdict(Outcome.REGRESSED if broken else Outcome.INCONCLUSIVE, f"after the fix: {_error(new)} ({where(new)})")
        key = repr(sorted(new["values"].items()))
        first = reference.setdefault(key, new["epochs"])
        if not old.get("error") and (change := changed(old, new)) is not None:
            return Verdict(Outcome.REGRESSED, f"a loader that worked before is another one after ({where(new)}: {change})")
        if new["epochs"] != first:
            return Verdict(Outcome.REGRESSED, f"the batches differ between start methods ({where(new)})")
    codes = [{item["code"] for run in part for item in run.get("functions", {}).values()} for part in (before, after)]
    if replaced and codes[0] != codes[1]:
        return Verdict(Outcome.INCONCLUSIVE, "the function can be sent to workers after the fix; whether it does the same needs the real samples")
    same = "it is the same code, which needs the real samples to run" if replaced else "the batches of two epochs are the same"
    return Verdict(Outcome.CONFIRMED, f"{said} when workers are spawned before, none after; {same}")
