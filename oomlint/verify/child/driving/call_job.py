"""Runs a call of a loader, cut out of the user's function, with every value that its unknowns can have."""

from __future__ import annotations

import builtins
import functools
import multiprocessing
import os
import tempfile
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils import data
from torch.utils.data import distributed

from oomlint.verify.child.driving import dataset_job, loader_runs
from oomlint.verify.child.driving.trial import Target
from oomlint.verify.child.loading import stubs, tolerant_import
from oomlint.verify.child.measuring import digests
from oomlint.verify.child.server.exceptions import seed, swapped
from oomlint.verify.child.synthesis import argument_specs, symbolic_sweep
from oomlint.verify.child.synthesis.symbolic_sweep import Need, Opaque, myself, swept, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType


MOST: Final = 24  # configurations
ELSEWHERE: Final = object()  # what the cut-out function gives back where control does not reach the call
_FUNCTIONS: Final = ("collate_fn", "worker_init_fn")


def measure(
    path: str, root: str, plan: Mapping[str, Any], own: str, counts: list[int], methods: list[str | None], processors: tuple[int, int] = (2, 2)
) -> dict[str, Any]:
    """Run the call in all its configurations, two epochs each.

    ``plan`` is what oomlint.verify.strategies.slicing makes of the call, ``own`` the option that the finding speaks of, ``counts`` the numbers of workers to
    try where the code does not say one, ``methods`` the start methods (``None``: the code's own), ``processors`` those of the machine and those of them that
    this process may use.
    """
    loader_runs.processors(*processors)  # before the program asks
    symbolic_sweep.COUNTS[:] = counts if 0 in counts else [2, 0]
    loaded = tolerant_import.load(path, root)
    session = CallSession(loaded.module, plan, own, counts)
    answers: list[dict[str, Any]] = []

    def run(known: dict[str, Any]) -> list[dict[str, Any]]:
        # Workers that are spawned take seconds: once is enough, since whether its functions can be sent is asked in every configuration.
        spawned = any(answer.get("method") == "spawn" and answer["reached"] for answer in answers)
        return session.configuration(known, methods[:1] if spawned else methods)

    for known, found in symbolic_sweep.swept(plan["values"], run):
        answers += [{"values": shown(known), "reached": False}] if found is None else found
        if len(answers) >= MOST:
            break
    return {"runs": answers, "skipped": loaded.skipped, "stubbed": loaded.stubbed}


def shown(known: Mapping[str, Any]) -> dict[str, str]:
    """Values as text: the same in both parts."""
    return {text: f"{len(value)} numbers" if hasattr(value, "shape") else repr(value)[:120] for text, value in known.items()}


def evaluated(module: ModuleType, plan: Mapping[str, Any], own: str, known: dict[str, Any]) -> Any:
    """What the cut-out call gives, whatever it makes. Raises Need, and what the user's program raises."""
    known = dict(known)
    stage = loader_runs.Stage(own, [2, 0], loader_runs.Samples("number"), None, replace=False, known=known)
    return loader_runs.staged(stage, CallSession(module, plan, own, [2, 0]).function(known, stage))


class CallSession:
    """A cut-out call, and the program that its names are of."""

    def __init__(self, module: ModuleType, plan: Mapping[str, Any], own: str, counts: list[int]) -> None:
        self.module = module
        self.plan = plan
        self.own = own
        self.counts = counts
        self.code = compile(plan["source"], module.__file__ or "<call>", "exec")
        self.calls = ""
        if own == "worker_init_fn":
            handle, self.calls = tempfile.mkstemp()
            os.close(handle)
        self.notes: list[str] = []

    def configuration(self, known: dict[str, Any], methods: list[str | None]) -> list[dict[str, Any]]:
        """One run for each start method; a single one where there are no workers. Raises Need."""
        kind, replace = self.kind(known)
        answers = []
        for method in methods:
            answer = self._run(known, method, kind, replace=replace)
            answers.append({"values": shown(known), "method": method, "replaced": replace, **answer})
            if not answer.get("settings", {}).get("num_workers", 1):
                break
        return answers

    def kind(self, known: dict[str, Any]) -> tuple[str, bool]:
        """Samples that the user's collate function takes, and whether it has to be replaced because it takes none."""
        stage, value = self.made(known, None, "number", replace=False, quiet=True)
        given = getattr(stage.made, "collate_fn", None)
        if given is None:  # the constructor itself refused: the function is what it was given
            given = stage.functions.get("collate_fn")
        if value is ELSEWHERE or given is None or getattr(given, "__module__", "").startswith("torch."):
            return "number", False
        whole = stage.keywords.get("batch_size", 1) is None and stage.keywords.get("batch_sampler") is None
        for kind in loader_runs.KINDS:
            samples = loader_runs.Samples(kind)
            try:
                digests.digest(given(samples[0] if whole else [samples[0], samples[1]]))
            except Exception:  # noqa: BLE001, S112 -- the user's function may raise anything over samples that it was not made for
                continue
            return kind, False
        return "number", True

    def made(self, known: dict[str, Any], method: str | None, kind: str, *, replace: bool, quiet: bool = False) -> tuple[loader_runs.Stage, Any]:
        """Run the cut-out function. What the constructor raises is handed on unless ``quiet``."""
        known = dict(known)
        stage = loader_runs.Stage(self.own, self.counts, loader_runs.Samples(kind), method, replace=replace, known=known)
        stage.calls = self.calls
        self.notes = stage.notes
        seed(loader_runs.SEED)
        function = self.function(known, stage)
        try:
            return stage, loader_runs.staged(stage, function)
        except Exception:
            if quiet:
                return stage, None
            raise

    def _run(self, known: dict[str, Any], method: str | None, kind: str, *, replace: bool) -> dict[str, Any]:
        stage = None
        try:
            stage, loader = self.made(known, method, kind, replace=replace)
        except Exception as error:  # noqa: BLE001 -- what it raises is the answer
            return {"reached": True, "built": False, "error": loader_runs.words(error), "notes": self.notes}
        if loader is ELSEWHERE:
            return {"reached": False, "notes": self.notes}
        loader = loader if hasattr(loader, "num_workers") else stage.made
        if loader is None:
            return {"reached": True, "built": False, "error": {"type": "", "message": "the call makes no loader"}, "notes": self.notes}
        answer: dict[str, Any] = {"reached": True, "built": True, "given": stage.given, "notes": list(dict.fromkeys(self.notes))}
        answer["functions"] = {name: _sent(stage.functions[name]) for name in _FUNCTIONS if stage.functions.get(name) is not None}
        before = self._called()
        answer |= loader_runs.observed(loader)
        asked = stage.given.get("num_workers")
        if isinstance(asked, int) and asked > loader_runs.WORKERS and answer.get("settings", {}).get("num_workers") == loader_runs.WORKERS:
            answer["settings"]["num_workers"] = asked  # fewer are started, which is no matter of the program's
        return answer | {"calls": self._called() - before}

    def _called(self) -> int:
        """How often `worker_init_fn` was called so far."""
        return os.path.getsize(self.calls) if self.calls else 0

    def function(self, known: dict[str, Any], stage: loader_runs.Stage) -> Callable[[], Any]:
        """The cut-out function, ready to be called."""
        plan = self.plan
        scope: dict[str, Any] = dict(vars(self.module))
        for name in plan["names"]:
            if isinstance(scope.get(name), stubs.Stub) or (name not in scope and not hasattr(builtins, name)):
                scope[name] = known.get(name, Opaque(name, known))
        scope |= self._helpers(known, stage)
        exec(self.code, scope)  # noqa: S102 -- the user's own program, in a child that is fenced in
        arguments = {name: known.get(name, Opaque(name, known)) for name in plan["parameters"]}
        if plan["me"] and plan["me"] in arguments:
            cls: Any = self.module
            for part in plan["cls"].split("."):
                cls = getattr(cls, part, None)
            if isinstance(cls, type):
                arguments[plan["me"]] = myself(cls, plan["me"], known)
        return functools.partial(_with_devices, scope[plan["name"]], arguments, known, stage, asks="cuda.is_available" in plan["source"])

    def _helpers(self, known: dict[str, Any], stage: loader_runs.Stage) -> dict[str, Any]:
        def argument(name: str, make: Callable[[], Any]) -> Any:
            try:
                return make()
            except Exception as error:  # noqa: BLE001 -- an argument that cannot be worked out is unknown
                stage.notes.append(f"{name}: failed with {type(error).__name__}, replaced by a stand-in")
                return Opaque(name, known)

        def unpacked(text: str, make: Callable[[], Any]) -> Any:
            if text in known:
                return known[text]
            found = argument(text, make)
            return {key: found[key] for key in found.keys()} if isinstance(found, Opaque) else found  # noqa: SIM118 -- no mapping otherwise

        def holds(make: Callable[[], Any], default: bool) -> bool:  # noqa: FBT001 -- called from generated code
            try:
                return bool(make())
            except Exception:  # noqa: BLE001 -- as above
                return default

        def positions(make: Callable[[], Any]) -> Any:
            found = argument("*", make)
            return (stage.samples,) if isinstance(found, Opaque) else found

        return {
            "__argument__": argument,
            "__positions__": positions,
            "__unpacked__": unpacked,
            "__holds__": holds,
            "__callee__": _callee,
            "__leaf__": lambda text, make: known[text] if text in known else make(),
            "__opaque__": lambda name: known.get(name, Opaque(name, known)),
            "__dataset__": stage.samples,
            "__elsewhere__": ELSEWHERE,
        }


def _with_devices(function: Callable[..., Any], arguments: dict[str, Any], known: dict[str, Any], stage: loader_runs.Stage, *, asks: bool) -> Any:
    """Call it; whether there is a GPU is one more unknown, where the code asks. One process takes part, where a sampler asks."""
    text = "torch.cuda.is_available()"
    real = torch.cuda.is_available
    sampler = distributed.DistributedSampler.__init__

    def available() -> bool:
        if stage.entered:
            return bool(real())
        if text not in known:
            raise Need(text, [False, True])
        return bool(known[text])

    def alone(self: Any, dataset: Any, num_replicas: Any = None, rank: Any = None, *args: Any, **keywords: Any) -> None:
        del num_replicas, rank
        sampler(self, dataset, 1, 0, *args, **keywords)

    with swapped((distributed.DistributedSampler, "__init__", alone), *([(torch.cuda, "is_available", available)] if asks else [])):
        return function(**arguments)


def _callee(make: Callable[[], Any] | None) -> Any:
    """The class that the call makes; torch's own where the user's name for it cannot be had."""
    try:
        found = make() if make is not None else None
    except Exception:  # noqa: BLE001 -- a library that is not installed
        found = None
    if found is None or isinstance(found, stubs.Stub) or text_of(found) or not callable(found):
        return data.DataLoader
    return found


def _sent(function: Any) -> dict[str, Any]:
    """Whether a function can be sent to a worker that is spawned, and what it is made of."""
    inner = function.func if isinstance(function, functools.partial) else function
    code = getattr(inner, "__code__", None)
    made = "" if code is None else digests.digest([code.co_code, [repr(item) for item in code.co_consts if not hasattr(item, "co_code")], list(code.co_names)])
    answer: dict[str, Any] = {"code": made, "plain": isinstance(inner, FunctionType), "error": None}
    try:
        ForkingPickler.dumps(function)
    except Exception as error:  # noqa: BLE001 -- whatever a class of the user's raises
        answer["error"] = loader_runs.words(error)
    return answer


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
    session = CallSession(module, plan, "persistent_workers", [loader_runs.WORKERS])
    best: dict[str, Any] = {"loader": None, "error": {"type": "", "message": "control does not get to the call"}, "values": {}}

    def run(known: dict[str, Any]) -> Any:
        try:
            kind, replace = session.kind(known)
            stage, value = session.made(known, None, kind, replace=replace)
        except Exception as error:  # noqa: BLE001 -- as above
            return error
        return None if value is ELSEWHERE else value if hasattr(value, "num_workers") else stage.made

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
