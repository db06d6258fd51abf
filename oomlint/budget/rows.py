"""The rows of the table: who holds how much, under one start method and with one number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.budget import descriptors
from oomlint.budget.costs import FLOAT, IN_FILE, LARGEST_KEPT, MAIN, ONE_ARRAY, PIECES, PIECES_GIVEN_BACK, SHAREABLE, WORKER, copied_by_fork, pickled
from oomlint.budget.device import rows as trained_rows
from oomlint.budget.mistakes import BudgetError
from oomlint.budget.nouns import NO_LOADER, RUNNING, Certainty, Moment
from oomlint.budget.row import DEVICE, HOST, IN_WORKERS, MAIN_PROCESS, SHARED, Row, Setup, active
from oomlint.budget.sizes import Name, SizeProduct, Sum
from oomlint.budget.values import BATCH, PREFETCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.budget.nouns import BudgetDataset, Container, LoaderNoun, Program

_ALWAYS: Final = frozenset(Moment)
_WORK: Final = RUNNING - {Moment.START}


def rows(program: Program, setup: Setup) -> list[Row]:
    """The rows, in the order of the table."""
    alone = {number for number, loader in enumerate(program.loaders) if loader.alone}
    filled = (replace(row, size=row.size.filled(setup.values), alone=row.loader in alone) for row in _rows(program, setup))
    return [_whole(row, setup.ranks) for row in filled if _bytes(row) != 0]


def _bytes(row: Row) -> int | None:
    """Bytes of a row. Raises BudgetError, with its place."""
    try:
        return row.bytes
    except BudgetError as error:
        error.place = row.place
        raise


def _whole(row: Row, ranks: int) -> Row:
    """Of all ranks; a device and open files are one rank's."""
    return replace(row, size=row.size.times(ranks)) if ranks > 1 and row.group in HOST and not row.once else row


def _rows(program: Program, setup: Setup) -> Iterator[Row]:
    yield Row(MAIN_PROCESS, "interpreter, torch and numpy", SizeProduct((MAIN,)), Certainty.ABOUT, None, _ALWAYS)
    if setup.launcher:
        yield Row(MAIN_PROCESS, f"{setup.launcher}, which imports torch", SizeProduct((MAIN,)), Certainty.ABOUT, None, _ALWAYS, once=True)
    sent = {source for loader in program.loaders for source in loader.sources if setup.method != "fork" and setup.workers_of(loader) != 0}
    for source in program.sources:
        yield from _resident(source, source in sent, program, setup)
    told = " ".join(held.what for held in program.held if not held.in_workers)  # by a rule
    made = (one for source in program.sources for one in source.containers if f"(`{one.name}`)" not in told)
    read = [(one.before.value or 0, one) for one in made if one.before is not None]
    if read:
        _, largest = max(read, key=lambda pair: pair[0])
        what = f"the pieces of `{largest.name}`, until they are joined" if largest.joined else f"`{largest.name}` as it is read, until it has its type"
        yield Row(MAIN_PROCESS, what, largest.before or SizeProduct(), Certainty.EXACT, largest.place, frozenset({Moment.CONSTRUCTION}))
    if not program.loaders:
        yield Row(MAIN_PROCESS, "batches, which no loader in sight makes", SizeProduct((NO_LOADER,)), Certainty.EXACT, None, frozenset({Moment.TRAINING}))
    for loader in program.loaders:
        if not loader.sources:
            what = f"what the dataset of `{loader.name}` holds"
            yield Row(MAIN_PROCESS, what, SizeProduct((dataset_of(loader),)), Certainty.EXACT, loader.place, _ALWAYS)
    on_device = any(model.on_device for model in program.trained)
    for held in program.held:
        if not held.in_workers:
            yield Row(DEVICE if held.with_model and on_device else MAIN_PROCESS, held.what, held.size, held.certainty, held.place, held.moments)
    for number, loader in enumerate(program.loaders):
        yield from _of_loader(number, loader, program, setup)
    yield from trained_rows(program, setup)
    yield from descriptors.rows(program, setup)


def _resident(source: BudgetDataset, sent: bool, program: Program, setup: Setup) -> Iterator[Row]:  # noqa: FBT001 - one fact of the dataset
    made = f", made in cell {source.cell}" if source.cell != program.cell else ""
    for one in (source.as_told(one, setup.values) for one in source.containers):
        if one.kind in IN_FILE or one.counted:
            continue
        what = f"`{one.name}` of {one.owner or source.name}{made}"
        group = SHARED if sent and one.kind in SHAREABLE else MAIN_PROCESS
        yield Row(group, what, one.size, one.certainty, one.place, _ALWAYS)


def _of_loader(number: int, loader: LoaderNoun, program: Program, setup: Setup) -> Iterator[Row]:
    workers = setup.workers_of(loader)
    batch = setup.setting(BATCH, loader.batch)
    alive = active(loader, program)
    active_work = alive - {Moment.START}
    work, certainty = _work_of(loader, batch, setup)
    becoming = f"samples that become a batch of `{loader.name}`"
    caches = [(f"chunk cache of `{one.name}` of {source.name}", one) for source in loader.sources for one in source.caches]
    if workers == 0:
        # The loop holds the batch before until it has the next.
        yield Row(MAIN_PROCESS, f"two batches of `{loader.name}`", loader.sample.times(2, batch), _by(loader), loader.place, active_work, number)
        yield Row(MAIN_PROCESS, becoming, work, certainty, loader.place, active_work, number)
        yield from (Row(MAIN_PROCESS, what, one.size, Certainty.AT_MOST, one.place, active_work, number, perhaps=True) for what, one in caches)
        for held in program.held:
            if held.in_workers:  # what makes the samples is the main process
                yield Row(MAIN_PROCESS, held.what, held.size, held.certainty, held.place, active_work, number)
        return
    base = WORKER[setup.method]
    started = alive | {Moment.START}
    process = "forked processes" if setup.method == "fork" else f"processes started by {setup.method}"
    yield Row(IN_WORKERS, f"{process} of `{loader.name}`", SizeProduct((workers, base)), Certainty.ABOUT, loader.workers_from or loader.place, started, number)
    for source in loader.sources:
        for one in source.containers:
            yield from _copies(source.as_told(one, setup.values), source, workers, setup, started, number)
    for held in program.held:
        if held.in_workers:
            yield Row(IN_WORKERS, held.what, held.size.times(workers), held.certainty, held.place, active_work, number)
    yield Row(IN_WORKERS, becoming, work.times(workers), certainty, loader.place, active_work, number)
    yield from (Row(IN_WORKERS, what, one.size.times(workers), Certainty.AT_MOST, one.place, active_work, number, perhaps=True) for what, one in caches)
    ahead = setup.setting(PREFETCH, loader.prefetch)
    number_of = ahead * workers + 1 if isinstance(ahead, int) and isinstance(workers, int) else None
    flight = Sum(f"({ahead} * {workers} + 1)", number_of, tuple(one for one in (ahead, workers) if isinstance(one, Name)))
    yield Row(SHARED, f"batches in flight of `{loader.name}`", loader.sample.times(flight, batch), _by(loader), loader.place, active_work, number)


def _work_of(loader: LoaderNoun, batch: int | Name, setup: Setup) -> tuple[SizeProduct, Certainty]:
    """What making the samples of a batch takes: the samples, and pieces of the largest that is read for one, in numbers of four bytes at least."""
    sample = loader.sample.filled(setup.values)
    parts = []
    for one in (container for source in loader.sources for container in source.containers):
        shape = one.size.filled(setup.values).factors[1:]
        if one.read and one.shown is None and one.kind in ONE_ARRAY and len(shape) > 1 and all(isinstance(part, int) for part in shape):
            *dimensions, item = (part for part in shape if isinstance(part, int))
            parts.append(SizeProduct((*dimensions, max(item, FLOAT))))
    largest = max([sample, *parts], key=lambda part: part.value or 0)
    pieces = PIECES if (sample.value or 0) < (largest.value or 0) <= LARGEST_KEPT else PIECES_GIVEN_BACK
    if sample.value is None:
        return sample.times(batch), Certainty.AT_LEAST
    kept = batch * sample.value + pieces * (largest.value or 0) if isinstance(batch, int) else None
    names = (batch,) if isinstance(batch, Name) else ()
    return SizeProduct((Sum(f"({batch} * {sample} + {pieces} * {largest})", kept, names),)), Certainty.ABOUT


def _copies(one: Container, source: BudgetDataset, workers: int | Name, setup: Setup, moments: frozenset[Moment], number: int) -> Iterator[Row]:
    what = f"`{one.name}` of {one.owner or source.name}"
    if setup.method == "fork":
        share = copied_by_fork(one.kind, one.items) if one.read else 0.0
        if share:
            yield Row(IN_WORKERS, f"{what}, copied as it is read", one.size.times(workers, share), Certainty.ABOUT, one.place, moments & _WORK, number)
    elif one.kind not in SHAREABLE:
        started = frozenset({Moment.START})
        others = workers - 1 if isinstance(workers, int) else Sum(f"({workers} - 1)", None, (workers,))  # while the last one is sent its copy
        yield Row(IN_WORKERS, f"{what}, in the other workers by then", one.size.times(others), one.certainty, one.place, started, number)
        share = pickled(one.kind, one.items)
        size = one.size.times(int(share) if share.is_integer() else share)
        yield Row(MAIN_PROCESS, f"{what}, while it is pickled", size, one.certainty if share >= 1 else Certainty.ABOUT, one.place, started, number)
        yield Row(IN_WORKERS, f"{what}, pickled", one.size.times(workers), one.certainty, one.place, moments - started, number)


def dataset_of(loader: LoaderNoun) -> Name:
    """The bytes of a dataset that is not known."""
    return Name(f"dataset of {loader.name}")


def _by(loader: LoaderNoun) -> Certainty:
    return Certainty.ABOUT if loader.sample.value is not None else Certainty.EXACT


def at(moment: Moment, found: Iterable[Row]) -> list[Row]:
    """The rows that count at a moment. Of loaders that take turns, the heaviest counts."""
    here = [row for row in found if moment in row.moments]
    staying = {row.loader for row in here if Moment.CHECKPOINT in row.moments or {Moment.TRAINING, Moment.EVALUATION} <= row.moments}
    turns: dict[int, int] = {}
    for row in here:
        if row.loader not in {-1, *staying} and (row.alone or moment is not Moment.TRAINING):
            turns[row.loader] = turns.get(row.loader, 0) + (row.bytes or 0)
    heaviest = max(turns, key=lambda number: turns[number], default=-1)
    return [row for row in here if row.loader not in turns or row.loader == heaviest]
