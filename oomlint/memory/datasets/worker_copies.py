"""What worker processes copy of a dataset: the one sharpest thing to say of each loader (OOM110, OOM112, OOM113, OOM114)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.catalogue import in_preview
from oomlint.finding import ByteSize, Confidence, Consequence, Message, Multiplier, Place, Resource, Severity, StoreFact, StoreKind, Told, Weighs, in_own_rows
from oomlint.memory.datasets.dataset_classes import Dataset, Holding, datasets_of
from oomlint.memory.datasets.heaviest import likely_bytes
from oomlint.memory.datasets.held_weight import (
    MOST_STORAGES,
    as_used,
    extent,
    is_aside,
    is_beside,
    is_large,
    is_light,
    is_option,
    is_small,
    may_hold_arrays,
    owner_of,
    wholly_held,
)
from oomlint.memory.datasets.sample_uses import has_arrays, one_a_sample, takes_index
from oomlint.memory.datasets.written_samples import written_sample
from oomlint.memory.facts import dataset_facts, holding_fact, loader_fact
from oomlint.memory.loaders.dropped_loaders import is_dropped
from oomlint.memory.loaders.loader_calls import apart, confidence_of, given_beside, loaders_of, story_places
from oomlint.memory.loaders.loader_classes import made_by_classes
from oomlint.memory.shared.content_kinds import Form, PayloadKind
from oomlint.memory.shared.start_methods import FORKED, FORKED_MIB, PORTABLE, StartMethods, start_methods
from oomlint.model.values import Alternative, Const, Element, External, ExternalCall, Instance, Unknown, assumptions
from oomlint.weighing import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from oomlint.config import Settings
    from oomlint.finding import Fact
    from oomlint.memory.loaders.loader_calls import Loader, LoaderUse
    from oomlint.model.project import Module, Project

_MANY = 8  # processes that take 1 GiB together however they start: 139 MiB each under spawn and forkserver
_SHARED = frozenset({PayloadKind.TENSOR, PayloadKind.TENSORS})  # by workers, however they start: torch pickles the handle of a storage
_SHARED_BY_FORK = _SHARED | {PayloadKind.ARRAY, PayloadKind.ARRAYS, PayloadKind.FRAME}
_CHANGED_IN_PLACE = frozenset({PayloadKind.TENSOR, PayloadKind.ARRAY, PayloadKind.ARRAYS})
_COPIES = Weighs(Consequence.MULTIPLIED, by=(Multiplier.WORKERS,))
_NAMES = Weighs(Consequence.MULTIPLIED, Resource.NAMES, (Multiplier.WORKERS,))
_PROCESSES = Weighs(Consequence.MULTIPLIED, Resource.PROCESS, (Multiplier.WORKERS,), ByteSize(least=FORKED))
_DESCRIPTORS = Weighs(Consequence.CRASHES, Resource.HANDLE, (Multiplier.SAMPLES,))
_TOLD_BESIDE = "OOM114"  # where the number is given; the others are about the data


class CopyCase(Told, frozen=True, kw_only=True):
    """What one rule says of one loader."""

    code: str
    loader: Loader
    holding: Holding
    dataset: Dataset
    workers: Alternative
    methods: StartMethods
    severity: Severity
    also: tuple[Place, ...] = ()  # where files beside the code say how many workers there are, too
    changed: Place | None = None  # where reading a sample writes into what they copy


def cases(module: Module, project: Project, code: str) -> Iterator[CopyCase]:
    """Loaders of the module of which this rule is the sharpest to speak."""
    key = ("copies", module.path)
    known = project.memo.get(key)
    if known is None:
        known = project.memo[key] = list(_cases(module, project))
    for case in known:  # type: ignore[attr-defined]
        if case.code == code:
            yield case


def _facts(case: CopyCase) -> tuple[Fact, ...]:
    """The loader, what it reads, and what of it the workers copy."""
    content = case.holding.content
    shared = content.kind in _SHARED if case.methods.pickles else content.kind in _SHARED_BY_FORK
    copied = () if shared and case.code == "OOM114" else case.methods.counted - {"fork"}
    held = holding_fact(case.holding, owner_of(case.dataset, case.holding), copied)
    written = (StoreFact(case.changed, case.holding.name, StoreKind.ITEM),) if case.changed is not None else ()
    return (loader_fact(case.loader, [case.workers], methods=case.methods), held, *written, *dataset_facts(case.dataset))


def _cases(module: Module, project: Project) -> Iterator[CopyCase]:
    loaders, datasets = loaders_of(project), datasets_of(project)
    for loader in (*loaders.of(module), *made_by_classes(loaders, module)):
        every: dict[cst.Call, list[CopyCase]] = {}
        for use in loaders.uses(loader):
            where, call = loader.made_at(use.frame)
            if where is not module:
                continue  # a class of loaders has callers of many kinds: what one of them holds is said of its call
            counts = _counts(loaders.workers(loader, use.frame))
            if not counts:
                continue
            methods = start_methods(loaders, loader, use.frame)
            for dataset in datasets.of(loaders, loader, use.frame):
                for workers in counts:
                    if not _together(use, workers, dataset):
                        continue
                    every.setdefault(call if loader.module is not module else loader.call, []).extend(
                        _judge(loader, dataset, workers, methods, project.settings)
                    )
        for call, found in every.items():
            if found and not is_dropped(loader):
                place = module.place(call)
                yield from (replace(case, place=place, facts=_facts(case)) for case in _sharpest(found))


def _sharpest(found: list[CopyCase]) -> Iterator[CopyCase]:
    """What is reported of all that the rules say of a loader."""
    sharpest = min(found, key=_rank)
    alike = [one for one in (sharpest, *found) if one.code == sharpest.code]
    for group in apart(alike, lambda one: one.workers) if sharpest.code == _TOLD_BESIDE else _by_container(alike):
        told = tuple(dict.fromkeys(place for one in group for place in given_beside([one.workers])))
        given = given_beside(*([one.workers] for one in group)) if sharpest.code == _TOLD_BESIDE else ()
        yield replace(min(group, key=_rank), given=given, also=() if given else told)


def _by_container(found: list[CopyCase]) -> Iterator[list[CopyCase]]:
    """What is said of one loader, by what is copied: a loader that one of several datasets is put into is told of each that is as grave."""
    groups: dict[object, list[CopyCase]] = {}
    for case in found:
        groups.setdefault(case.holding.effect.node if case.holding.effect is not None else None, []).append(case)
    gravest = min(case.severity.rank for case in found)
    return (group for group in groups.values() if any(case.severity.rank == gravest for case in group))


def _counts(found: list[Alternative]) -> list[Alternative]:
    """Worker counts that a plain run has; where none is known, the unknown one."""
    known = [a for a in found if _many(a) != 0]
    if known:
        return known
    if any(isinstance(a.value, Const) for a in found):
        return []
    return [a for a in found if isinstance(a.value, Unknown | Element) and not a.reach]


def _together(use: LoaderUse, workers: Alternative, dataset: Dataset) -> bool:
    first = workers.under(use.picks)
    return first is not None and (dataset.alternative is None or first.under(dataset.alternative.picks) is not None)


def _rank(case: CopyCase) -> tuple[int, int, int, bool, bool, int]:
    """What comes first: of several datasets one that is changed in place; of the numbers that files beside the code give, behind those of code, the largest."""
    launched = bool(given_beside([case.workers]))
    code = list(_JUDGES).index(case.code)
    return (case.severity.rank, case.confidence.rank, code, case.changed is None, launched, -_many(case.workers) if launched else 0)


def _many(alt: Alternative) -> int:
    """The worker count; -1 where it is the number of cores; 0 where it is none or not known."""
    if isinstance(alt.value, Const) and isinstance(alt.value.value, int):
        return max(0, int(alt.value.value))
    if isinstance(alt.value, External | ExternalCall) and "cpu_count" in alt.value.name:
        return -1
    return 0


def _judge(loader: Loader, dataset: Dataset, workers: Alternative, methods: StartMethods, settings: Settings) -> Iterator[CopyCase]:
    """What each rule says; one in preview that is not asked for would hide another."""
    if dataset.iterable:
        return
    for code in _JUDGES if _many(workers) else ("OOM110",):
        if in_preview(code) and not settings.preview:
            continue
        for part in [dataset] if code == _TOLD_BESIDE else _parts(dataset):
            mine = [h for h in part.every() if not is_option(h, owner_of(part, h), loader)]
            every = [(used, is_small(used.content, settings)) for used in (as_used(h, part, loader) for h in mine)]
            # Tensors each take a descriptor, however small they are.
            counted = code == "OOM113"
            held = [h for h, small in every if not small or (counted and h.content.kind is PayloadKind.TENSORS and (h.content.count or 0) >= MOST_STORAGES)]
            case = _JUDGES[code](loader, part, held, workers, methods, settings)
            if case is not None:
                yield case


def _parts(dataset: Dataset) -> list[Dataset]:
    """The dataset, or where several are joined each of them."""
    if dataset.instance is not None or len(dataset.inner) < 2:  # noqa: PLR2004 - of several
        return [dataset]
    return [part for one in dataset.inner for part in _parts(replace(one, alternative=dataset.alternative))]


def _each(workers: Alternative) -> str:
    """Who does it: ``Each of 8 workers``."""
    count = _many(workers)
    if count < 0:
        return "Each worker (one per CPU core)"
    return f"Each of {count} workers" if count > 1 else "The worker" if count else "Each worker"


def _much(holding: Holding) -> str:
    """``; about 2.1 GiB each``, of what each worker has; empty where the bytes are not known."""
    size = words(holding_fact(holding).bytes)
    return f"; {size} each" if size else ""


def _case(
    code: str,
    loader: Loader,
    dataset: Dataset,
    holding: Holding,
    workers: Alternative,
    methods: StartMethods,
    message: Message,
    severity: Severity,
    weighs: Weighs = _COPIES,
) -> CopyCase:
    place = loader.module.place(loader.call)
    content = holding.content
    spots = []
    if holding.effect is not None:
        spots.append(holding.module.place(holding.effect.node, f"`{holding.name}` holds {content.words}"))
    if content.module is not None and content.node is not None:
        spots.append(content.module.place(content.node, f"made here: {content.words}"))
    spots.extend(story_places(place, workers))
    if dataset.alternative is not None:
        spots.extend(story_places(place, dataset.alternative))
    if dataset.instance is not None and dataset.instance.call is not None and dataset.instance.at is not None:
        spots.append(dataset.instance.at.module.place(dataset.instance.call, f"the loader's {dataset.words} is made here"))
    # Of what has no known size it is only assumed that it is large.
    sized = content.size.known or content.count is not None
    total = content.doubt + assumptions(workers, dataset.alternative)
    confidence = confidence_of(total) if sized else max(Confidence.MEDIUM, confidence_of(max(1, total)), key=lambda c: c.rank)
    if workers.reach and confidence is Confidence.HIGH:
        confidence = Confidence.MEDIUM
    return CopyCase(
        place,
        message,
        confidence=confidence,
        related=tuple(in_own_rows(place, spots)[:8]),
        weighs=weighs,
        severity=severity,
        code=code,
        loader=loader,
        holding=holding,
        dataset=dataset,
        workers=workers,
        methods=methods,
    )


# -- one question each -------------------------------------------------------------------------------------------------


def _tensors(loader: Loader, dataset: Dataset, held: list[Holding], workers: Alternative, methods: StartMethods, settings: Settings) -> CopyCase | None:
    del settings
    if not methods.pickles:
        return None
    for holding in held:
        content = holding.content
        if content.kind is not PayloadKind.TENSORS or (content.count is not None and content.count <= MOST_STORAGES) or holding.name == "tensors":
            continue
        known = methods.known and "forkserver" in methods.counted
        many = content.count is not None or one_a_sample(owner_of(dataset, holding), holding.name, datasets_of(loader.module.project).evaluator)
        if methods.known and methods.counted == {"spawn"}:
            how = f"under spawn ({methods.source}), a long list exceeds the limit on open files"
        elif known:
            how = f"forkserver ({methods.source}) raises ValueError at about 250 tensors"
        else:
            how = "forkserver, the default on Linux from Python 3.14, fails at about 250 tensors; fork sends nothing"
        message = Message(f"Pickling `{holding.name}` takes one file descriptor per tensor", how)
        severity = Severity.NOTE if not many or methods.forks else Severity.ERROR if known else Severity.WARNING
        return _case("OOM113", loader, dataset, holding, workers, methods, message, severity, _DESCRIPTORS)
    return None


def _objects(loader: Loader, dataset: Dataset, held: list[Holding], workers: Alternative, methods: StartMethods, settings: Settings) -> CopyCase | None:
    copied = [
        h
        for h in held
        if h.read
        and (h.content.kind in {PayloadKind.OBJECTS, PayloadKind.OBJECT_ARRAY} or (h.content.kind is PayloadKind.BLOB and h.content.form is Form.PICKLED))
    ]
    arrays = [h for h in copied if has_arrays(owner_of(dataset, h), h.name, datasets_of(loader.module.project).evaluator)]
    copied = [h for h in copied if not may_hold_arrays(h.content) or h not in arrays]
    headers = [h for h in arrays if h.content.kind is PayloadKind.BLOB and not methods.only_pickles]  # what is large in it stays shared
    few = 0 < _many(workers) < settings.workers_over_memory
    light = [h for h in copied if h in headers or is_light(h, owner_of(dataset, h), loader) or (few and is_aside(h, dataset, loader))] + [
        h for h in held if h.read and h.content.kind is PayloadKind.PATHS
    ]
    heavy = [h for h in copied if h not in light]
    if heavy:
        holding, *others = sorted(heavy, key=lambda h: (-likely_bytes(h.content), -extent(h, dataset, loader), h.content.doubt))
        much = _much(holding)
        if methods.only_pickles:
            message = Message(f"{_each(workers)} gets a copy of `{holding.name}`", f"{_starts(methods)} {holding.content.words} for each worker{much}")
        else:
            how = f"{'reading' if much else f'reading {holding.content.words}'} updates reference counts, which breaks copy-on-write{much}"
            message = Message(f"{_each(workers)} copies `{holding.name}` while reading it", how)
        case = _case("OOM110", loader, dataset, holding, workers, methods, message, Severity.WARNING)
        also = (h.module.place(h.effect.node, f"`{h.name}` holds {h.content.words}, which are copied as well") for h in others if h.effect is not None)
        return replace(case, related=(*case.related, *also))
    if light:
        how = f"reading {light[0].content.words} updates reference counts; this matters above 100,000 elements"
        message = Message(f"{_each(workers)} copies `{light[0].name}` while reading it", how)
        return _case("OOM110", loader, dataset, light[0], workers, methods, message, Severity.NOTE, _NAMES)
    return None


def _spawned(loader: Loader, dataset: Dataset, held: list[Holding], workers: Alternative, methods: StartMethods, settings: Settings) -> CopyCase | None:
    del settings
    if not methods.pickles:
        return None
    maps = [h for h in held if h.content.kind is PayloadKind.MEMMAP]
    if maps:
        how = f"{_starts(methods)} its contents, not the mapping{_much(maps[0])}"
        message = Message(f"{_each(workers)} gets a full copy of memory-mapped `{maps[0].name}`", how)
        return _case("OOM112", loader, dataset, maps[0], workers, methods, message, Severity.NOTE if methods.forks else Severity.WARNING)
    arrays = [h for h in held if h.read and h.content.kind in {PayloadKind.ARRAY, PayloadKind.ARRAYS}]
    if not arrays:
        return None
    holding = min(arrays, key=lambda h: (-extent(h, dataset, loader), h.content.doubt))
    # Where fork counts as well, OOM114 speaks of both costs from four workers on.
    if methods.known and methods.only_pickles:
        how = f"{_starts(methods)} {holding.content.words} for each worker{_much(holding)}"
        message = Message(f"{_each(workers)} gets a copy of `{holding.name}`", how)
    else:
        return None
    return _case("OOM112", loader, dataset, holding, workers, methods, message, Severity.WARNING)


def _starts(methods: StartMethods) -> str:
    """What pickles the dataset: ``spawn (`set_start_method`) pickles``."""
    if not methods.known or not methods.source:
        return f"{PORTABLE} pickle"
    return f"{' and '.join(sorted(methods.counted))} ({methods.source}) pickle{'s' if len(methods.counted) == 1 else ''}"


def _in_memory(loader: Loader, dataset: Dataset, held: list[Holding], workers: Alternative, methods: StartMethods, settings: Settings) -> CopyCase | None:
    changed = _changed(loader, dataset, held, workers, methods)
    if changed is not None:
        return changed
    count = _many(workers)
    whole = wholly_held(dataset, held) if not 0 <= count < settings.workers_over_memory else []
    whole = [h for h in whole if not is_light(h, owner_of(dataset, h), loader)]  # names say where samples are
    if not whole or _is_served_unseen(dataset):
        return None
    shared = _SHARED if methods.pickles else _SHARED_BY_FORK
    if (dataset.does_work or dataset.draws_numbers) and all(h.content.kind in shared for h in whole):
        return None
    evaluator = datasets_of(loader.module.project).evaluator
    holding = min(
        whole,
        key=lambda h: (is_beside(h.content, owner_of(dataset, h), h.name, evaluator), h.content.kind in shared, -extent(h, dataset, loader), h.content.doubt),
    )
    costs = f"costs {FORKED_MIB} MiB plus its batches in flight"
    much = _much(holding)
    weighs = _COPIES
    if holding.content.kind in shared:
        weighs = _PROCESSES
        how = f"the data is shared, but each worker {costs}"
    elif methods.only_pickles:
        how = f"{_starts(methods)} {holding.content.words} for each worker{much}"
    elif methods.pickles:
        how = f"{PORTABLE} copy it into each worker{much}"
    else:
        weighs = _PROCESSES
        how = f"under fork each worker {costs}"
    who = "One worker per CPU core indexes" if count < 0 else f"{count} workers index"
    message = Message(f"{who} `{holding.name}`, which is already in memory", how)
    few = weighs is _PROCESSES and 0 <= count < _MANY  # that is all that they cost
    busy = dataset.does_work and 0 <= count < settings.worker_limit and not methods.only_pickles and not any(is_large(h.content, settings) for h in whole)
    forked = methods.forks and 0 <= count < settings.worker_limit and all(h.content.kind in _SHARED_BY_FORK for h in whole)
    severity = Severity.NOTE if few or busy or forked else Severity.WARNING
    return _case("OOM114", loader, dataset, holding, workers, methods, message, severity, weighs)


def _changed(loader: Loader, dataset: Dataset, held: list[Holding], workers: Alternative, methods: StartMethods) -> CopyCase | None:
    """An array that forked workers would share, if reading a sample left it as it is."""
    evaluator = datasets_of(loader.module.project).evaluator
    for holding in held if "fork" in methods.counted else ():
        owner = owner_of(dataset, holding)
        if not holding.read or holding.content.kind not in _CHANGED_IN_PLACE or owner.instance is None:
            continue
        written = written_sample(owner.instance, holding.name, evaluator)
        if written is None:
            continue
        how = f"{written.words} writes into the array itself, so pages are no longer shared and stay changed"
        message = Message(f"{_each(workers)} copies what it changes of `{holding.name}`", f"{how}{_much(holding)}", "copy the sample before it is changed")
        case = _case("OOM114", loader, dataset, holding, workers, methods, message, Severity.WARNING)
        place = written.module.place(written.node, "the sample is changed in place here")
        return replace(case, related=(place, *(one for one in case.related if one != place)), changed=place)
    return None


def _is_served_unseen(dataset: Dataset) -> bool:
    """Whether samples come from an object of a library as well, which may decode them: a dataset. What nobody knows says nothing."""
    evaluator = datasets_of(dataset.module.project).evaluator
    for holding in dataset.holdings:
        if holding.read and holding.content.kind is PayloadKind.UNKNOWN and dataset.instance is not None and takes_index(dataset, holding.name, evaluator):
            values = [alt.value for alt in evaluator.attribute(dataset.instance, holding.name, ())]
            if any(isinstance(one, ExternalCall) or (isinstance(one, Instance) and evaluator.method(one, "__getitem__") is None) for one in values):
                return True
    return False


# In the order of what is told where several are true.
_JUDGES = {"OOM113": _tensors, "OOM110": _objects, "OOM112": _spawned, "OOM114": _in_memory}
