"""What many workers cost: how many live at once, and what a sample weighs."""

from __future__ import annotations

import multiprocessing
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.driving import call_job, dataset_job, loader_runs
from oomlint.verify.child.driving.trial import Target
from oomlint.verify.child.loading import tolerant_import
from oomlint.verify.child.server.exceptions import seed
from oomlint.verify.child.synthesis import argument_specs
from oomlint.verify.child.synthesis.symbolic_sweep import swept

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST: Final = 8  # configurations of one loader
_PARTS: Final = 10_000  # of a sample that are looked at


# -- several loaders ---------------------------------------------------------------------------------------------------


def alive(path: str, root: str, plans: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Take an epoch of each loader, one after the other, and count the processes that are there then; then one more epoch of each.

    Of the configurations of a loader the first that keeps workers is taken, else the first that works.
    """
    loader_runs.processors()
    module = tolerant_import.load(path, root).module
    answers = [_first(module, plan) for plan in plans]
    loaders = [answer.pop("loader") for answer in answers]
    if any(answer["error"] for answer in answers):
        return {"loaders": answers, "processes": 0}
    iterators = []
    for answer, loader in zip(answers, loaders, strict=True):
        seed(loader_runs.SEED)
        try:
            for digest, iterator in loader_runs.epochs(loader, 1):
                answer["epochs"].append(digest)
                iterators.append(iterator)
        except Exception as error:  # noqa: BLE001 -- whatever the user's program raises is an answer
            answer["error"] = loader_runs.words(error)
    processes = len(multiprocessing.active_children())
    for answer, loader in zip(answers, loaders, strict=True):
        answer["epochs"] += [digest for digest, _ in loader_runs.epochs(loader, 1)] if not answer["error"] else []
    for iterator in iterators:
        loader_runs.stop(iterator)
    return {"loaders": answers, "processes": processes}


def _first(module: Any, plan: Mapping[str, Any]) -> dict[str, Any]:
    session = call_job.Session(module, plan, "persistent_workers", [loader_runs.WORKERS])
    best: dict[str, Any] = {"loader": None, "error": {"type": "", "message": "control does not get to the call"}, "values": {}}

    def run(known: dict[str, Any]) -> Any:
        try:
            kind, replace = session.kind(known)
            stage, value = session.made(known, None, kind, replace=replace)
        except Exception as error:  # noqa: BLE001 -- as above
            return error
        return None if value is call_job.ELSEWHERE else value if hasattr(value, "num_workers") else stage.made

    for known, loader in islice(swept(plan["values"], run), _MOST):
        if isinstance(loader, Exception):
            best = best if best["loader"] is not None else {"loader": None, "error": loader_runs.words(loader), "values": known}
            continue
        if loader is None:
            continue
        keeps = bool(loader.persistent_workers and loader.num_workers)
        if keeps or best["loader"] is None:
            best = {"loader": loader, "error": None, "values": known}
        if keeps:
            break
    return {**best, "epochs": []}


# -- one dataset -------------------------------------------------------------------------------------------------------


@dataset_job.told
def sample(subject: dict[str, Any]) -> dict[str, Any]:
    """Bytes of the tensors and arrays of one sample."""
    return _weighed(dataset_job.made(subject))


@dataset_job.told
def plain(path: str, root: str, cls: str, known: dict[str, list[Any]]) -> dict[str, Any]:
    """The state of a dataset that needs nothing made up: its arguments are known or have defaults, and a sample can be read. It may be large."""
    target = Target(path, root, cls, dataset=True)
    state, options = target.first(known)
    for name, items in options.items():
        where, _, tail = name.partition(".")
        if tail not in known and argument_specs.LEFT not in items:
            return {"failed": {"error": f"`{tail}` is not known"}}
        state[where][tail] = {"is": "json", "value": known[tail][0]} if tail in known else dict(argument_specs.LEFT)
    return {**_weighed(target.make(state)), "state": state}


def _weighed(dataset: Any) -> dict[str, Any]:
    value = next(iter(dataset_job.samples(dataset, 1)), None)
    return {"bytes": _bytes(value, [_PARTS])}


def _bytes(value: Any, left: list[int]) -> int:
    left[0] -= 1
    if left[0] < 0:
        return 0
    if isinstance(value, dict):
        return sum(_bytes(item, left) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_bytes(item, left) for item in value)
    return int(getattr(value, "nbytes", 8 if isinstance(value, (bool, int, float)) else 0))  # numbers are collated to tensors of eight bytes
