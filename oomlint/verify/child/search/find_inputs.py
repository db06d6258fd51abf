"""Finds data that the user's own datasets and functions run on: the project's, or files that are made up until the code reads them."""

from __future__ import annotations

import copy
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.driving.trial import SCRIPT, WORKS, Target, trial
from oomlint.verify.child.loading.tolerant_import import LoadError
from oomlint.verify.child.search import hill_climb, mutations
from oomlint.verify.child.synthesis import argument_specs, file_specs, spec_paths
from oomlint.verify.child.synthesis.sizes import scale_to

if TYPE_CHECKING:
    from collections.abc import Callable

MANY: Final = 64  # samples, where that is no trouble
BETTER: Final = (24, 1.0)  # trials and seconds spent on samples that collate

_KINDS: Final = {
    "model": "a small linear layer",
    "range": "whole numbers from 0",
    "same": "a transform that changes nothing",
    "samples": "a dataset of tensors",
    "texts": "a list of texts",
    "value": "a list or dict",
}  # of arguments that are made up, in words

State = dict[str, Any]


def _search(target: Target, known: dict[str, list[Any]], seconds: float, trials: int) -> State:
    home = os.getcwd()
    before = hill_climb.inventory(home)
    state, options = target.first(known)
    process = hill_climb.TrialProcess(lambda other: trial(target, other))

    def tried(other: State) -> State:
        answer = process(other)
        hill_climb.restore(home, before)
        return answer

    own = _own(target, state, options, known)
    if own is not None and (own["reached"] or not target.rows):
        return own

    conditions = mutations.guards(target.path, target.rows)

    def changes(other: State, result: State) -> Any:
        if result.get("works") and not result.get("reached"):
            yield from ((made, False) for made in mutations.reaching(other, conditions))
        yield from mutations.moves(other, result, options, target.hints, target.module)

    def further(start: State, limits: tuple[int, float], *done: Callable[[State], bool]) -> hill_climb.ClimbResult:
        better = hill_climb.climb(tried, start, changes, limits[1], limits[0], *done)
        return better if better.works else best

    best = hill_climb.climb(tried, state, changes, seconds, trials)
    if best.works and best.result["stage"] == WORKS:
        best = further(best.state, BETTER, lambda result: result.get("stage", 0) > WORKS)
    if best.works and not best.result["reached"]:
        best = further(best.state, (trials, max(1.0, seconds - best.seconds)), lambda result: bool(result.get("works") and result.get("reached")))
    if best.works and best.result["unset"]:
        better = further(best.state, (2 * BETTER[0], 2 * BETTER[1]), lambda result: bool(result.get("works") and not result["unset"]))
        best = better if better.result["reached"] >= best.result["reached"] else best
    if best.works and spec_paths.closed(other := copy.deepcopy(best.state)):
        best = further(other, BETTER)
    process.close()
    if own is not None and not (best.works and best.result["reached"]):
        return own
    if not best.works:
        return {"found": False, "reason": _why(target, best.result)}
    if target.dataset and (larger := _larger(target, best.result)):
        return larger
    final, answer = _replayed(target, best.result)
    if not answer.get("works") or answer.get("length") != best.result.get("length"):
        error = answer.get("error") or answer.get("crash") or "its length is another"
        return {"found": False, "reason": f"on real files it does not run: {error}"}
    return _answer(target, final, answer, "synthetic")


def _larger(target: Target, best: State) -> State | None:
    """The same with so many samples that a cache of a few does not hold them all, if that works as well."""
    length = best.get("length", 0)
    if not length or length >= MANY or best["state"]["n"] >= MANY or best["stage"] < WORKS:
        return None
    recorded = _alone(target, {**best["state"], "n": MANY})
    if recorded.get("stage", 0) < best["stage"] or recorded["length"] <= length or recorded["reached"] < best["reached"]:
        return None
    final, answer = _replayed(target, recorded)
    if answer.get("stage", 0) < best["stage"] or answer["length"] != recorded["length"]:
        return None
    return _answer(target, final, answer, "synthetic")


def _alone(target: Target, state: State, seconds: float = hill_climb.LIMIT, *, real: bool = False, written: bool = False) -> State:
    """One trial in a process of its own; the files that it makes go with it. ``written``: those of the state are there, and make it a real one."""
    home = os.getcwd()
    before = hill_climb.inventory(home)

    def run() -> State:
        if written:
            file_specs.materialise(state)
        return trial(target, copy.deepcopy(state), real=real or written)

    answer: State = hill_climb.forked(run, seconds)
    hill_climb.restore(home, before)
    return answer


def _replayed(target: Target, recorded: State) -> tuple[State, State]:
    """The state of a trial, without the files that it did not ask for and with nothing left that is not known; and what comes of it with real files."""
    state, kept = recorded["state"], set(recorded["used"])
    spec_paths.fired(state)
    final = {**state, "files": {key: spec for key, spec in state["files"].items() if key in kept or spec["kind"] in ("pattern", "absent")}}
    return final, _alone(target, final, 8 * hill_climb.LIMIT, written=True)


def _own(target: Target, state: State, options: dict[str, list[Any]], known: dict[str, list[Any]]) -> State | None:
    """The user's own data: values that are known or defaults, and the files of the project."""
    firm = {name: items for name, items in options.items() if name.partition(".")[2] in known or argument_specs.LEFT in items}
    if len(firm) < len(options):
        return None
    fallback: State | None = None
    for number in range(min(4, max((len(items) for items in known.values()), default=1))):
        own = copy.deepcopy(state)
        for name in firm:
            where, _, tail = name.partition(".")
            values = known.get(tail, [])
            own[where][tail] = {"is": "json", "value": values[min(number, len(values) - 1)]} if values else dict(argument_specs.LEFT)
        answer = _alone(target, own, real=True)
        if answer.get("works") and (answer["reached"] or fallback is None):
            fallback = _answer(target, own, answer, "data")
        if answer.get("works") and answer["reached"]:
            break
    return fallback


def _answer(target: Target, state: State, result: State, fidelity: str) -> State:
    assumed = list(target.loaded.assumed)
    for (_, name), spec in spec_paths.given(state) if fidelity != "data" else ():
        if spec["is"] != "default":
            assumed.append(f"{name} is {printable(spec)}")
    assumed += [f"{name} is {value!r}" for name, value in state.get("globals", {}).items()]
    assumed += [f"{number} in the code is {value}" for number, value in state.get("shrunk", {}).items()]
    return {
        "found": True,
        "state": state,
        "fidelity": fidelity,
        "assumed": assumed,
        "stubbed": list(target.loaded.stubbed),
        "skipped": list(target.loaded.skipped),
        "length": result.get("length", 0),
        "reached": bool(target.rows) and result["reached"],
    }


def printable(spec: Any) -> str:
    """An argument in a few words."""
    match spec["is"]:
        case "json":
            return repr(spec["value"])
        case "path" | "pathlib":
            return repr(argument_specs.text_of({**spec, "whole": False}))
        case "array" | "tensor":
            return f"{spec['is']} of {spec.get('dtype', 'f4')}, {' x '.join(str(side) for side in spec['shape']) or 'no axes'}"
        case "settings":
            return f"a configuration with {', '.join(spec['has']) or 'nothing'}"
        case "default":
            return "its default"
        case other:
            return _KINDS.get(other, str(other))


def _why(target: Target, result: State) -> str:
    error = result.get("error") or result.get("crash") or "nothing"
    if result.get("missing"):
        return error.partition(": ")[2]
    if result.get("outside") and "FileNotFound" in error:
        return f"it reads {result['outside'][-1]}, which is not in the project"
    place = f" at {result['place']}" if result.get("place") else ""
    needs = f"; {', '.join(result['needs'][:2])} replaced by a stand-in" if result.get("needs") else ""
    name = "the script" if target.name == SCRIPT else target.name
    return f"no data was found that {name} reads: {error}{place}{needs}"


# Entry points


def _found(
    path: str,
    root: str,
    name: str,
    known: dict[str, list[Any]] | None = None,
    seconds: float = 4.0,
    trials: int = 200,
    rows: list[int] | None = None,
    *,
    is_dataset: bool,
) -> State:
    """Find data, and arguments, with which something runs to its end; rather such that one of some rows of the file runs ("reached")."""
    try:
        target = Target(path, root, name, dataset=is_dataset)
        target.rows = rows or []
    except LoadError as error:
        return {"found": False, "reason": str(error)}
    return _search(target, known or {}, seconds, trials)


dataset: Final = partial(_found, is_dataset=True)
function: Final = partial(_found, is_dataset=False)  # or a method


def scaled(path: str, root: str, cls: str, state: State, size: int) -> State:
    """The state with more samples, so that its files and arguments hold ``size`` bytes or more; found where the dataset grows with them and still works."""
    try:
        target = Target(path, root, cls, dataset=True)
    except LoadError as error:
        return {"found": False, "reason": str(error)}
    more = scale_to(state, size)
    recorded = _alone(target, more, 10 * hill_climb.LIMIT)
    if not recorded.get("works"):
        return {"found": False, "reason": f"with {more['n']} samples it does not run: {recorded.get('error') or recorded.get('crash')}"}
    final, answer = _replayed(target, recorded)
    if not answer.get("works"):
        return {"found": False, "reason": f"on real files it does not run: {answer.get('error') or answer.get('crash')}"}
    return _answer(target, final, answer, "synthetic")
