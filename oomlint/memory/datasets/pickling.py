"""What cannot be sent to a worker: handles on a dataset, local functions, local classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import libcst as cst
from msgspec.structs import replace

from oomlint.finding import Message, Place, Severity, Told, is_apart
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.dataset_readers import has_workers
from oomlint.memory.facts import dataset_facts, holding_fact, loader_fact
from oomlint.memory.loaders.loader_calls import confidence_of, loaders_of, story_places
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.memory.shared.start_methods import PORTABLE, StartMethods, start_methods
from oomlint.model.values import Alternative, FunctionRef, assumptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact
    from oomlint.memory.datasets.dataset_classes import Dataset, Holding
    from oomlint.memory.loaders.loader_calls import Loader, LoaderUse
    from oomlint.model.project import Module, Project

_UNPICKLABLE = frozenset({PayloadKind.HANDLE, PayloadKind.H5, PayloadKind.LOCK, PayloadKind.GENERATOR, PayloadKind.FUNCTION})


_TO_MODULE: Final = "define the function at module level, or pass a `functools.partial` of such a function"
_REMEDIES: Final = {
    PayloadKind.HANDLE: "open `{name}` on first use in each process, and leave it out of `__getstate__`",
    PayloadKind.H5: "open `{name}` on first use in each process, and leave it out of `__getstate__`",
    PayloadKind.LOCK: "create `{name}` on first use in each process, and leave it out of `__getstate__`",
    PayloadKind.GENERATOR: "create `{name}` in `__iter__`, or store a list",
    PayloadKind.FUNCTION: "set `{name}` to a function or class that is defined at module level",
}


class _Cause(NamedTuple):
    """Why a loader cannot be sent, in words, and what to do about it."""

    headline: str
    why: str  # the beginning of the consequence; empty where the headline says it
    remedy: str


class Unsendable(Told, frozen=True, kw_only=True):
    """Something of a loader that cannot be pickled."""

    severity: Severity
    loader: Loader
    holding: Holding | None = None
    dataset: Dataset | None = None
    function: cst.Lambda | None = None
    others: tuple[Unsendable, ...] = ()  # further causes at the same loader
    argument: str = ""  # of the loader, where a function that it is given is the cause
    workers: Alternative | None = None
    methods: StartMethods | None = None


def unsendable(module: Module, project: Project) -> Iterator[Unsendable]:
    """Loaders of the module with workers that cannot be started by spawn or forkserver; one case a loader."""
    loaders = loaders_of(project)
    for loader in loaders.of(module):
        causes: dict[object, Unsendable] = {}
        for use in loaders.uses(loader):
            methods = start_methods(loaders, loader, use.frame)
            if not methods.pickles:
                continue
            known = [a for a in loaders.workers(loader, use.frame) if has_workers(a) and a.under(use.picks) is not None]
            workers = min(known, key=lambda alt: alt.reach, default=None)
            if workers is None:
                continue
            # A class of loaders has callers of many kinds: what the dataset of one of them holds is not said of the class.
            outer = use.frame.bound[-1].frame.module if use.frame.bound else module
            foreign = loader.inherited and outer is not module
            for key, case in _of_use(project, use, workers, methods, of_dataset=not foreign):
                causes.setdefault(key, case)
        if causes:
            yield _together(list(causes.values()))


def _facts(*cases: Unsendable) -> tuple[Fact, ...]:
    """The loader, once for each function that it is given, and the datasets with what they hold."""
    found: list[Fact] = []
    for one in cases:
        found.append(loader_fact(one.loader, [one.workers] if one.workers is not None else (), one.argument, one.methods))
        found += [holding_fact(one.holding, one.dataset, one.methods.counted - {"fork"} if one.methods is not None else ())] if one.holding is not None else []
        found += dataset_facts(one.dataset)
    return tuple(dict.fromkeys(found))


def _together(cases: list[Unsendable]) -> Unsendable:
    """One finding for a loader: the gravest cause, the others among the related places."""
    cases.sort(key=lambda case: (case.severity.rank, case.confidence.rank))
    first, *others = cases
    more = [spot for case in others for spot in case.related[:1] if spot not in first.related]
    return replace(first, related=(*first.related, *more[:4]), facts=_facts(*cases), others=tuple(others))


def _of_use(project: Project, use: LoaderUse, workers: Alternative, methods: StartMethods, *, of_dataset: bool) -> Iterator[tuple[object, Unsendable]]:
    loader, frame = use.loader, use.frame
    loaders = loaders_of(project)
    for argument in ("collate_fn", "worker_init_fn"):
        for alt in loaders.argument(loader, argument, frame):
            if isinstance(alt.value, FunctionRef) and _local(alt.value) and not alt.reach:
                what = "a lambda" if isinstance(alt.value.scope.node, cst.Lambda) else f"the local function `{alt.value.scope.name}`"
                spot = alt.value.module.place(alt.value.scope.node, f"{what} cannot be pickled")
                function = alt.value.scope.node if isinstance(alt.value.scope.node, cst.Lambda) and argument == "collate_fn" else None
                yield (
                    argument,
                    _case(loader, workers, methods, _Cause(f"`{argument}` is {what}", "", _TO_MODULE), alt, [spot], function=function, argument=argument),
                )
                break
    if not of_dataset:
        return
    for dataset in datasets_of(project).of(loaders, loader, frame):
        for one in _flat(dataset):
            if one.picklable:
                continue
            if one.local:
                spot = one.module.place(one.node, f"{one.words} is defined inside a function")
                cause = _Cause(f"{one.words} is a local class", "", "define the class at module level")
                yield ((one.node, "local"), _case(loader, workers, methods, cause, dataset.alternative, [spot], dataset=one))
                continue
            for holding in one.holdings:
                if holding.content.kind in _UNPICKLABLE and holding.effect is not None and holding.effect.kind == "assign":
                    spot = holding.module.place(holding.effect.node, f"`{holding.name}` holds {holding.content.words}")
                    remedy = _REMEDIES[holding.content.kind].format(name=holding.name)
                    cause = _Cause(f"`{holding.name}` of {one.words} cannot be pickled", f"it holds {holding.content.words}, so ", remedy)
                    case = _case(loader, workers, methods, cause, dataset.alternative, [spot], doubt=holding.content.doubt, holding=holding, dataset=one)
                    yield ((one.node, holding.name), case)
                    break


def _flat(dataset: Dataset) -> list[Dataset]:
    found = [dataset]
    for one in dataset.inner:
        found.extend(_flat(one))
    return found


def _local(function: FunctionRef) -> bool:
    return isinstance(function.scope.node, cst.Lambda) or (function.scope.parent is not None and function.scope.parent.is_function)


def _case(  # noqa: PLR0913 - what a case is told of, each by its name
    loader: Loader,
    workers: Alternative,
    methods: StartMethods,
    cause: _Cause,
    alt: Alternative | None,
    spots: list[Place],
    *,
    doubt: int = 0,
    holding: Holding | None = None,
    dataset: Dataset | None = None,
    function: cst.Lambda | None = None,
    argument: str = "",
) -> Unsendable:
    place = loader.module.place(loader.call)
    sure = methods.known and methods.only_pickles
    portable = "spawn or forkserver" if cause.why else PORTABLE
    under = f"{' and '.join(sorted(methods.counted))} ({methods.source})" if sure else portable
    headline = cause.headline if cause.why else f"{cause.headline}, which cannot be pickled"
    message = Message(headline, f"{cause.why}workers fail to start under {under}", cause.remedy)
    related = list(spots)
    for spot in story_places(place, workers, *([alt] if alt is not None else [])):
        if is_apart(spot, related):
            related.append(spot)
    related = [s for s in related if (s.path, s.cell, s.row, s.column) != (place.path, place.cell, place.row, place.column)]
    total = doubt + assumptions(workers, alt) + workers.reach
    severity = Severity.ERROR if sure else Severity.NOTE if methods.forks else Severity.WARNING
    return Unsendable(
        place,
        message,
        confidence=confidence_of(total),
        related=tuple(related[:6]),
        severity=severity,
        loader=loader,
        holding=holding,
        dataset=dataset,
        function=function,
        argument=argument,
        workers=workers,
        methods=methods,
    )
