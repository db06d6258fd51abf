"""Datasets: they are built and read before and after a fix, in this process and by workers; memory, reads, handles and pickling are measured."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from oomlint.finding import Safety
from oomlint.measurement import DatasetSign, Trait
from oomlint.verify.case import Fidelity, Outcome, Part, Verdict
from oomlint.verify.session import Stopped
from oomlint.verify.strategies import dataset_uses, locate_subject, new_costs, unverified_changes
from oomlint.verify.strategies.dataset_metrics import LEAST, SIGNS, check_draws, too_small
from oomlint.verify.strategies.dataset_runs import SCALED, Broken, DatasetRuns, TooSmall, by_factory, candidates, evidence, first, found, scaled, weighed
from oomlint.verify.thresholds import first_difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.verify.session import Session
    from oomlint.verify.strategies.dataset_runs import Sign

MOST: Final = 3  # datasets that are tried
PRICED: Final = 2**20  # bytes
SLOW: Final = 8.0  # seconds: with as much data it takes too long
NONE: Final = "no dataset could be told from the finding"
CLOSED: Final = "CPython closes the file when the last reference to it goes"


def verify(session: Session) -> Verdict:
    """Find the dataset that the finding is about, run it, and judge."""
    return first(_candidates(session), _judged, _again, NONE)


def _candidates(session: Session) -> Iterator[DatasetRuns | str]:
    if session.options.factory:
        yield by_factory(session)
        return
    for subject in locate_subject.datasets(session)[:MOST]:
        given = unverified_changes.of_construction(session, subject.name) if session.case.has_fix else ""
        if given:
            yield given
        else:
            yield from candidates(session, [subject], lambda one: found(session, one, at_row=Trait.AT_ROW in session.case.plan.traits))


def _again(runs: DatasetRuns, error: Broken) -> None:
    for repetition in (0, 1):
        runs.look(Part.BEFORE, repetition)
    if error.told["stage"] == "iterate":
        runs.ask(Part.BEFORE, "measuring.worker_epochs:compared", workers=2)


def _judged(runs: DatasetRuns) -> Verdict:
    session = runs.session
    plan = session.case.plan
    if Trait.IN_CLASS in plan.traits and not locate_subject.concerns(session, runs.subject):
        raise Stopped("what cannot be pickled is no part of the dataset")
    place = locate_subject.witness(session, runs.subject, at_row=Trait.AT_ROW in plan.traits)
    if place is not None:
        runs.rows, runs.watched = locate_subject.statement(session, place), place.path
    if not runs.reached and runs.rows and runs.state is not None:
        runs.reached = bool(runs.look(Part.BEFORE)["rows"])  # with few data: each row that runs is looked at
    if session.case.has_fix and DatasetSign.WORKERS in plan.dataset:
        check_draws(runs)  # while there are few data: it is the quickest answer
    if session.case.has_fix and DatasetSign.PICKLING in plan.dataset:
        dataset_uses.give(runs)
    _scale(runs)
    look = runs.look(Part.BEFORE)
    if place is not None and runs.rows and not runs.reached and not look["rows"]:
        raise Stopped(f"row {place.row} of {os.path.basename(place.path)} is not run with the data that were made for it")
    if not look["samples"]:
        raise Stopped("the dataset has no samples with the data that were made for it")
    if session.case.has_fix and (words := difference(runs)):
        return evidence(runs, Outcome.REGRESSED, words)
    verdict = _weighed(runs, [sign for wanted in plan.dataset for sign in SIGNS[wanted](runs)])
    if session.case.has_fix and verdict.outcome is not Outcome.REGRESSED:
        verdict = replace(verdict, left_out=(*verdict.left_out, *_priced(runs)))
    return verdict


def _priced(runs: DatasetRuns) -> Iterator[str]:
    """Find out what the dataset takes before and after, or why that is not known. With few data nothing of it is seen: more are made up."""
    if Trait.MORE_DATA not in runs.session.case.plan.traits and runs.state is not None and runs.fidelity is Fidelity.SYNTHETIC:
        runs.grow(scaled(runs, runs.state, PRICED) or runs.state)
    try:
        found = new_costs.of_dataset([runs.ask(part, "measuring.dataset_memory:taken") for part in Part])
        runs.session.prices += found
        if runs.subject is not None and new_costs.eased(found):
            runs.session.eased = runs.subject.name
    except (Broken, Stopped) as error:
        yield f"what it takes to read more of the data: {error}"


def _scale(runs: DatasetRuns) -> None:
    """Take more data where memory is measured, as far as the program bears it."""
    plan = runs.session.case.plan
    if Trait.MORE_DATA not in plan.traits or runs.state is None or runs.fidelity is not Fidelity.SYNTHETIC:
        return
    small = runs.state
    most = SCALED // plan.scale  # Python objects take ten times the bytes of their text, and epochs their time
    for size in (most, most // 8):
        state = scaled(runs, small, size)
        if state is None:
            continue
        runs.grow(state)
        try:
            if runs.look(Part.BEFORE, seconds=SLOW)["samples"]:
                return
        except (Broken, Stopped):
            continue
    runs.grow(small)


# -- the behaviour -----------------------------------------------------------------------------------------------------


def difference(runs: DatasetRuns) -> str:
    """In which way the samples are others after the fix; empty where they are the same. Raises Stopped where that cannot be told."""
    before, after = runs.look(Part.BEFORE), runs.look(Part.AFTER)
    if runs.session.case.by_hand and len(before["samples"]) > 1 and len(set(before["samples"])) == 1 and set(after["samples"]) == set(before["samples"]):
        raise Stopped("all samples that were compared are alike: nothing can be told of which of them is read")
    if before["length"] != after["length"]:
        return f"the length differs: {before['length']} before, {after['length']} after"
    differs = before["samples"] != after["samples"]
    if differs and before["samples"] != runs.look(Part.BEFORE, 1)["samples"]:
        raise Stopped("the samples differ between two runs of the same program, so nothing can be compared")
    if before["random"]:
        runs.assumed.append("samples are drawn at random: the generators are set again before each")
    return (_excused(runs, before, after) if differs else _through_workers(runs)) or dataset_uses.difference(runs)


def _excused(runs: DatasetRuns, before: dict[str, Any], after: dict[str, Any]) -> str:
    """A difference in the samples that the fix has told of in advance is none."""
    index = next((number for number, pair in enumerate(zip(before["samples"], after["samples"], strict=False)) if pair[0] != pair[1]), 0)
    lines = [look["shown"][index] if index < len(look["shown"]) else look["outlines"][index : index + 1] for look in (before, after)]
    words = f"sample {index} differs: {first_difference(*lines) or 'in its values'}"
    fix = runs.session.case.finding.fix
    if fix is None or fix.safety is not Safety.UNSAFE:
        return words
    if before["loose"] == after["loose"]:
        runs.assumed.append(f"types differ, values do not: {first_difference(*(look['outlines'][index : index + 1] for look in (before, after)))}")
        return ""
    if Trait.DRAWN in runs.session.case.plan.traits and before["outlines"] == after["outlines"] and not runs.look(Part.BEFORE)["built"]["bytes_read"]:
        runs.assumed.append("numbers that are drawn as `float32` are others than those drawn as `float64` and converted; shapes and types are the same")
        return ""
    return words


def _through_workers(runs: DatasetRuns) -> str:
    """In which way whole epochs through two forked workers differ; what cannot be compared is left out."""
    try:
        after = runs.ask(Part.AFTER, "measuring.worker_epochs:compared", workers=2)
        if _as_here(after, runs.look(Part.AFTER)):
            return ""
    except Stopped as error:
        runs.left_out.append(f"two forked workers: {error}")
        return ""
    try:
        before = runs.ask(Part.BEFORE, "measuring.worker_epochs:compared", workers=2)
    except (Broken, Stopped) as error:
        runs.left_out.append(f"two forked workers: {error}")
        return ""
    if before["order"] == after["order"] and (before["samples"] == after["samples"] or before["loose"] == after["loose"]):
        return ""
    again = runs.ask(Part.BEFORE, "measuring.worker_epochs:compared", 1, workers=2)
    if (before["order"], before["samples"]) != (again["order"], again["samples"]):
        runs.left_out.append("two forked workers: the samples differ between two runs of the same program")
        return ""
    return "with two workers the samples differ" if before["order"] == after["order"] else "two workers give the samples in another order"


def _as_here(compared: dict[str, Any], look: dict[str, Any]) -> bool:
    """Whether all samples that workers have read are those that this process reads."""
    if look["iterable"] or not compared["order"]:
        return False
    here = [f"{sample} of {look['length']}" for sample in look["samples"]]
    return all(index < len(here) and here[index] == sample for index, sample in zip(compared["order"], compared["samples"], strict=True))


def _sent(runs: DatasetRuns) -> str:
    """In which way the dataset is another in workers that are spawned, now that it can be sent to them. Raises Stopped where it may be."""
    difference = _spawned(runs)
    if not difference:
        dataset_uses.check_states(runs)
    return difference


def _spawned(runs: DatasetRuns) -> str:
    """Whether what can be pickled after the fix also works in workers that are spawned, touched and untouched."""
    try:
        spawned = runs.ask(Part.AFTER, "measuring.worker_epochs:compared", workers=1, method="spawn", touched=True, seconds=60)
    except Broken as error:
        return f"in a worker that is spawned: {error}"
    except Stopped as stop:
        runs.left_out.append(f"a worker that is spawned: {stop}")
        return ""
    if _as_here(spawned, runs.look(Part.AFTER)):
        return ""
    main = runs.ask(Part.AFTER, "measuring.worker_epochs:compared", workers=0)
    pairs = [sorted(zip(item["order"], item["samples"], strict=True)) for item in (main, spawned)]
    return "" if pairs[0] == pairs[1] else "the samples in a worker that is spawned differ from those of this process"


# -- the verdict -------------------------------------------------------------------------------------------------------


def _weighed(runs: DatasetRuns, signs: list[Sign]) -> Verdict:
    case = runs.session.case
    small = _too_small(runs)
    if small and not any(item.shown and item.gone for item in signs):
        raise TooSmall(small)
    plain = signs[0].words if signs else "nothing was measured"
    if case.has_fix and Trait.CLOSED_BY_PYTHON in case.plan.traits:
        plain = f"{CLOSED}: nothing was open after {len(runs.look(Part.BEFORE)['ids'])} samples"
    elif case.has_fix:
        plain = f"not seen before the fix: {plain}"
    return weighed(runs, signs, plain, "the samples are the same", lambda: _sent(runs) if DatasetSign.PICKLING in case.plan.dataset else "")


def _too_small(runs: DatasetRuns) -> str:
    """That memory was to be measured, and there is too little of it; empty where there is enough."""
    traits = runs.session.case.plan.traits
    if Trait.MORE_DATA not in traits or Trait.OWN_SIZE in traits:
        return ""
    memory = runs.memory(Part.BEFORE)
    return too_small(max(int(memory["data"]), int(memory["held"])), 4 * LEAST)
