"""What the rules on datasets say, as quantities: which were there before a fix, and which are gone after it."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from oomlint.finding import AttributeFact, HandleFact, LoaderFact
from oomlint.measurement import DatasetSign, Trait
from oomlint.verify import thresholds
from oomlint.verify.case import Fidelity, Part, QuantityReading, Timeline
from oomlint.verify.session import Stopped
from oomlint.verify.strategies import dataset_uses, locate_subject
from oomlint.verify.strategies.call_sites import worker_counts
from oomlint.verify.strategies.dataset_runs import HANDLES, Broken, Sign, TooSmall, failure, left_open, quantity
from oomlint.verify.thresholds import human

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oomlint.finding import Finding
    from oomlint.verify.strategies.dataset_runs import DatasetRuns

LEAST: Final = 2**16  # bytes: less is no sign of anything
HALF: Final = 0.5
TWICE: Final = 1.6  # the most over what stays: 2 with a copy, 1 without
PART: Final = 0.2
WORKERS: Final = 2
MANY: Final = 8192  # samples of an empty dataset
MOST_HELD: Final = 2**28  # bytes of datasets that are built several times over
MOST_TIMES: Final = 200
PATIENCE: Final = 10.0  # seconds to build them
METHODS: Final = ("spawn", "forkserver")
FEW: Final = 20
CACHE: Final = 2**20  # bytes
LARGEST_CACHE: Final = 10 * 2**20  # bytes: with less, a cache of the usual 1 to 8 MB holds everything as well
ENOUGH: Final = 2 * 2**20  # bytes that a dataset holds: with less a copy in a worker is lost in what workers cost anyhow


def too_small(size: float, needed: float, what: str = "the data") -> str:
    """Why nothing can be told from so few bytes; empty where they are enough."""
    return f"{what} here take {human(size)}; {human(needed)} are needed to see it" if size < needed else ""


def falls(values: list[float], share: float = HALF, least: float = LEAST) -> bool:
    """Whether a quantity falls clearly: by that share, and that much."""
    return len(values) > 1 and values[0] - values[1] >= max(share * values[0], least)


def pickling(runs: DatasetRuns) -> Iterator[Sign]:
    """A dataset that cannot be sent to a worker, as built or once it was read."""
    answers = [runs.ask(part, "pickling") for part in runs.parts]
    for state, words in (("untouched", "as it is built"), ("touched", "after a sample was read")):
        yield failure(f"pickling {words}", f"pickling fails {words}", [answer[state] for answer in answers], "spawn, forkserver")


def item_reads(runs: DatasetRuns) -> Iterator[Sign]:
    """Bytes that are read, and memory that is taken, for one sample."""
    looks = [runs.look(part) for part in runs.parts]
    sizes = [float(median(look["bytes_read"] or [0])) for look in looks]
    memories = [runs.memory(part) for part in runs.parts]
    data = float(memories[0]["data"])
    yield quantity("bytes read for a sample", sizes, shown=falls(sizes, PART) or sizes[0] >= max(LEAST, HALF * data), gone=falls(sizes, PART))
    peaks = [float(item["sample"]) for item in memories]
    yield quantity("memory for a sample", peaks, shown=falls(peaks) or peaks[0] >= max(LEAST, HALF * max(data, LEAST)), gone=falls(peaks))
    calls = [float(median(look["reads"] or [0])) for look in looks]
    yield quantity("reads of HDF5 datasets for a sample", calls, unit="reads", shown=falls(calls, least=2) or calls[0] >= FEW, gone=falls(calls, least=2))


def built(runs: DatasetRuns) -> Iterator[Sign]:
    """Bytes that a dataset holds once it is built, and the most while that is done."""
    traits = runs.session.case.plan.traits
    memories = [runs.memory(part) for part in runs.parts]
    data = float(memories[0]["data"])
    if Trait.OF_TENSORS in traits and runs.fidelity is Fidelity.SYNTHETIC and memories[0]["tensors"] < HALF * memories[0]["held"]:
        raise Stopped("what was made up for the file that it loads holds hardly any tensors")
    reads = float(runs.look(Part.BEFORE)["built"]["bytes_read"])
    helds = [float(item["held"]) for item in memories]
    whole = helds[0] >= max(LEAST, HALF * data) if data else helds[0] >= LEAST
    if Trait.READS_ALL in traits and data:
        whole = whole and reads >= HALF * data
    inflated = helds[0] >= max(LEAST, 3 * data)
    shown = Trait.PASSING not in traits and (inflated if Trait.INFLATES in traits else whole)
    yield quantity("memory held once it is built", helds, shown=shown or falls(helds), gone=falls(helds))
    peaks = [float(item["peak"]) for item in memories]
    passing = Trait.PASSES_THROUGH in traits and data > 0 and min(peaks[0], reads) >= max(LEAST, HALF * data)  # read as a whole, and only a part of it kept
    twice = peaks[0] >= TWICE * max(memories[0]["held"], LEAST)
    # A copy of what stays may be a small part of the most, as where many small arrays are joined.
    less = falls(peaks, PART) or falls(peaks, 0, max(HALF * max(helds), LEAST))
    yield quantity(
        "most memory while it is built",
        peaks,
        shown=(twice and Trait.DOUBLES in traits) or passing or less,
        gone=less,
    )
    if Trait.IN_NO_FILE in traits:
        anonymous = [float(max(item["anonymous"], 0)) for item in memories]
        yield quantity("memory of the process that is in no file", anonymous, shown=falls(anonymous, least=2**20), gone=falls(anonymous, least=2**20))


def cache(runs: DatasetRuns) -> Iterator[Sign]:
    """Memory that stays taken once samples from all over were read: a file that is held as a whole, or a cache as large."""
    answers = [runs.ask(part, "measuring.dataset_memory:cached") for part in runs.parts]
    data = float(answers[0]["data"])
    kept = [float(item["kept"]) for item in answers]
    chunks = any(fact.cache_bytes is not None and not fact.in_core for fact in runs.session.case.finding.of_noun(HandleFact))
    small = too_small(max(float(answers[0]["read"]), kept[0]), LARGEST_CACHE if chunks else CACHE, "the samples")
    if small:
        raise TooSmall(small)
    yield quantity(
        "memory that stays taken after reading", kept, shown=kept[0] >= max(CACHE, HALF * min(data or kept[0], float(answers[0]["read"]))), gone=falls(kept)
    )


def descriptors(runs: DatasetRuns) -> Iterator[Sign]:
    """HDF5 identifiers and file descriptors that each sample leaves open, and those that the dataset keeps."""
    looks = [runs.look(part) for part in runs.parts]
    yield from left_open(looks, "sample", f"{len(looks[0]['ids'])} samples in this process")


def kept(runs: DatasetRuns) -> Iterator[Sign]:
    """Handles that the object keeps once it is built, or once it was read."""
    looks = [runs.look(part) for part in runs.parts]
    for key, name in HANDLES:
        counts = [float(max(look["built"]["opened"][key], look["kept"][key])) for look in looks]
        yield quantity(f"{name} kept open", counts, unit=name, shown=counts[0] >= 2, gone=falls(counts, least=1))  # noqa: PLR2004 -- one is a handle that is used


def opened_on_import(runs: DatasetRuns) -> Iterator[Sign]:
    """HDF5 identifiers that are open once the module is imported and the dataset made."""
    looks = [runs.look(part) for part in runs.parts]
    counts = [float(look["built"]["opened"]["ids"]) for look in looks]
    yield quantity("HDF5 identifiers open once it is made", counts, unit="HDF5 identifiers", shown=counts[0] > 0, gone=len(counts) > 1 and counts[1] <= 0)


def interrupted(runs: DatasetRuns) -> Iterator[Sign]:
    """What an exception in the middle leaves open, as long as it is kept."""
    inside = locate_subject.functions(runs.session, every=True)
    if inside:
        name = inside[0].name.rpartition(".")[2]
        yield from exception_path([runs.ask(part, "interrupted", path=runs.session.path(part, inside[0].path), function=name) for part in runs.parts])


def exception_path(answers: list[dict[str, Any]]) -> Iterator[Sign]:
    """The sign of :func:`interrupted`."""
    counts = [float(item["ids"]) for item in answers]
    name = "HDF5 identifiers left open by an exception that is kept"
    words = "HDF5 identifiers that an exception in the middle leaves open, as long as it is kept"
    if answers[0]["raised"]:
        yield quantity(name, counts, unit="HDF5 identifiers", shown=counts[0] > 0, gone=falls(counts, 0, 1), verb=words)


def caches(runs: DatasetRuns) -> Iterator[Sign]:
    """Bytes that are held after each epoch, above what was held when it was built."""
    memories = [runs.memory(part, epochs=3) for part in runs.parts]
    kept = [float(item["grown"][-1] - item["held"]) for item in memories]
    data = float(memories[0]["data"])
    line = Timeline("memory held by the dataset", "bytes", "step", *(tuple(enumerate([float(item["held"]), *map(float, item["grown"])])) for item in memories))
    shown = kept[0] >= max(LEAST, HALF * data) or falls(kept)
    yield replace(quantity("memory held after three epochs, above what it was built with", kept, shown=shown, gone=falls(kept)), timeline=line)
    yield from descriptors(runs)


# -- workers -----------------------------------------------------------------------------------------------------------


def copies(runs: DatasetRuns) -> Iterator[Sign]:
    """What each worker adds to the memory of the process tree by reading the data: under fork, or as it is sent to it under spawn."""
    spawned = Trait.SPAWNED in runs.session.case.plan.traits
    method = "spawn" if spawned else "fork"
    memories = [runs.memory(part, objects=True) for part in runs.parts]
    # Under fork only what is written to is copied: objects whose references are counted. Under spawn all is sent, the map of a file as a whole.
    moved = max(memories[0]["held"], memories[0]["data"]) if method == "spawn" else memories[0]["objects"]
    times = _times(runs, memories) if method == "fork" else 1
    shared = dataset_uses.kept_globally(runs) if times > 1 else ""
    if shared:
        raise Stopped(
            f"`{shared}` is shared by all datasets of the class after the fix, so one alone can be measured: {too_small(moved, ENOUGH, 'its objects')}"
        )
    if moved * times < ENOUGH:
        raise TooSmall(too_small(moved, ENOUGH, "the Python objects" if method == "fork" else "the data"))
    trees = [_tree(runs, part, WORKERS, method, times, empty=part is Part.BEFORE) for part in runs.parts]
    extras = [copied(tree["added"], trees[0]["empty"]) for tree in trees]
    saving = thresholds.worker_memory(extras[0], extras[1] if len(extras) > 1 else [0.0] * len(extras[0]), moved * times, WORKERS)
    if spawned and not saving.enough and memories[0]["held"] < ENOUGH:
        raise Stopped("it is not known how much of the data that were made up the dataset maps")
    what = f"{human(moved * times)} of {'Python objects' if method == 'fork' else 'data'}"
    under = f"{WORKERS} workers, {method}, 2 shuffled epochs, {what}"
    reading = QuantityReading("memory that workers add", "bytes", tuple(extras[0]), tuple(extras[1]) if len(extras) > 1 else (), under)
    line = Timeline("memory that workers add", "bytes", "step", *(tuple((float(step), float(added)) for step, added in tree["readings"]) for tree in trees))
    after = f" before, {human(max(saving.after, 0))} after" if len(extras) > 1 else ""
    words = f"{WORKERS} workers that read {what} add {human(saving.before)}{after}, under {method}"
    shown = saving.before >= saving.needed
    yield Sign(shown or saving.enough, saving.enough, words, reading, line)
    if times > 1:
        runs.assumed.append(f"the dataset is built {times} times over and all are read as one: the Python objects of one take {human(moved)}")


def _times(runs: DatasetRuns, memories: list[dict[str, Any]]) -> int:
    """How often a dataset is built so that there are Python objects enough to tell: no more than can be held, and made in a few seconds."""
    first = memories[0]
    if first["objects"] >= ENOUGH or not first["objects"] or not first["length"] or runs.look(Part.BEFORE)["iterable"]:
        return 1
    wanted = -(-2 * ENOUGH // first["objects"])
    most = min(MOST_HELD / max(*(item["held"] for item in memories), 1), PATIENCE / max(*(item["seconds"] for item in memories), 1e-3), MOST_TIMES)
    return int(max(1, min(wanted, most)))


def _tree(runs: DatasetRuns, part: Part, workers: int, method: str, times: int = 1, **named: Any) -> dict[str, Any]:
    repeat = 1 if method == "spawn" else max(runs.session.options.repeat, 1)
    size = int(runs.look(Part.BEFORE)["length"] or 0) * times
    return runs.ask(part, "measuring.worker_epochs:tree", workers=workers, method=method, size=size, repeat=repeat, times=times, seconds=60, **named)


def copied(added: list[int], empty: list[int]) -> list[float]:
    """What workers add that read data. Where that is less than without data nothing is copied: pages are shared with more or fewer processes."""
    return [max(0.0, one - float(median(empty))) for one in added]


def check_draws(runs: DatasetRuns) -> None:
    """Raise Stopped where samples are drawn at random, since the fix changes the number of workers."""
    look = runs.look(Part.BEFORE)
    if look["random"] or look["draws"]:
        raise Stopped("samples are drawn at random: with another number of workers they are others, and whether they are as good is not measured")


def counts(runs: DatasetRuns) -> Iterator[Sign]:
    """What workers cost against none: their number is what the fix changes. Under spawn they have copies of the data, under fork only what they are."""
    session = runs.session
    numbers = worker_counts(session)
    if len(numbers) > 1 and (numbers[1] is None or numbers[0] == numbers[1]):
        raise Stopped("the number of workers after the fix is not known")
    used = [min(number if number is not None else WORKERS, WORKERS) for number in numbers]
    if used[0] != numbers[0]:
        runs.assumed.append(f"{used[0]} workers instead of {numbers[0] if numbers[0] is not None else 'a number that is not known'}")
    held = float(runs.memory(Part.BEFORE)["held"])
    found = []
    shared = []
    for method in _compared_methods(session.case.finding):
        tree = _tree(runs, Part.BEFORE, used[0], method)
        extra = copied(tree["added"], tree["empty"])
        saving = thresholds.worker_memory(extra, [0.0] * len(extra), held, used[0])
        under = f"{used[0]} workers, {method}, 2 shuffled epochs, {human(held)} held"
        reading = QuantityReading("copies of the data in workers", "bytes", tuple(extra), (0.0,) * len(extra) if len(used) > 1 else (), under)
        words = f"{used[0]} workers add {human(saving.before)} to {human(held)} of data under {method}" + (" before, none after" if len(used) > 1 else "")
        found.append(Sign(saving.enough, saving.enough and len(used) > 1 and not used[1], words, reading))
        if saving.enough:
            yield from found
            return
        shared.append(method)
    # A job shares pages with the process that it is forked from, and more workers take a larger share of them: not with an interpreter of its own.
    named: dict[str, Any] = {"alone": True, "fresh": True, "method": "fork", "size": MANY, "repeat": max(session.options.repeat, 1), "seconds": 60}
    trees = [runs.ask(part, "measuring.worker_epochs:tree", workers=number, **named) for part, number in zip(runs.parts, used, strict=True)]
    values = [list(map(float, tree["empty"])) for tree in trees]
    saving = thresholds.worker_memory(values[0], values[1] if len(values) > 1 else [0.0], 0, used[0])
    reading = QuantityReading(
        "memory that the workers themselves take", "bytes", tuple(values[0]), tuple(values[1]) if len(values) > 1 else (), "fork, no data"
    )
    after = f" before, {human(max(saving.after, 0))} after" if len(values) > 1 else ""
    words = f"{used[0]} workers themselves take {human(saving.before)}{after}; the data are shared under {' and '.join(shared) or 'fork'}"
    yield Sign(saving.enough, saving.enough, words, reading)
    yield from found


def _compared_methods(finding: Finding) -> list[str]:
    """The start methods under which workers are compared with none: spawn where they are said to have copies, fork where it counts as well, or alone."""
    copied = any("spawn" in fact.copied_under for fact in finding.of_noun(AttributeFact))
    forked = any("fork" in fact.start_methods for fact in finding.of_noun(LoaderFact))
    return [*(["fork"] if forked or not copied else []), *(["spawn"] if copied else [])]


def sent(runs: DatasetRuns) -> Iterator[Sign]:
    """Whether a dataset gets to workers at all that are not forked: a list of tensors takes a descriptor each."""
    for method in METHODS:
        errors = []
        for part in runs.parts:
            try:
                runs.ask(part, "measuring.worker_epochs:compared", workers=1, method=method, seconds=60)
                errors.append("")
            except Broken as error:
                errors.append(str(error))
        yield failure(method, f"{method} fails", errors, f"1 worker, {method}")


SIGNS: Final[dict[DatasetSign, Callable[[DatasetRuns], Iterator[Sign]]]] = {
    DatasetSign.COPIES: copies,
    DatasetSign.PICKLING: pickling,
    DatasetSign.SENT: sent,
    DatasetSign.WORKERS: counts,
    DatasetSign.CACHES: caches,
    DatasetSign.OPENED_ON_IMPORT: opened_on_import,
    DatasetSign.ITEM_READS: item_reads,
    DatasetSign.BUILT: built,
    DatasetSign.DESCRIPTORS: descriptors,
    DatasetSign.KEPT: kept,
    DatasetSign.INTERRUPTED: interrupted,
    DatasetSign.CHUNK_CACHE: cache,
}
