"""What the rules on datasets say, as quantities: which were there before a fix, and which are gone after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify import criteria
from oomlint.verify.case import Fidelity, Part, Reading, Timeline
from oomlint.verify.criteria import human
from oomlint.verify.recipes import subjects
from oomlint.verify.recipes.dataset_runs import Broken, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable

    from oomlint.verify.recipes.dataset_runs import Runs

LEAST: Final = 2**16  # bytes: less is no sign of anything
HALF: Final = 0.5
TWICE: Final = 1.6  # the most over what stays: 2 with a copy, 1 without
PART: Final = 0.2
MOST_WORKERS: Final = 2
METHODS: Final = ("spawn", "forkserver")
FEW: Final = 20
ENOUGH: Final = 2 * 2**20  # bytes that a dataset holds: with less a copy in a worker is lost in what workers cost anyhow


@dataclass(frozen=True, slots=True)
class Sign:
    """A symptom: whether it was seen before, whether it is gone after, and the figures."""

    shown: bool
    gone: bool  # whether it is no longer there after the fix; without meaning where it was not shown
    words: str  # of both parts: "8.1 MB are read for a sample before, 0.3 MB after"
    reading: Reading
    timeline: Timeline | None = None
    strict: bool = False  # an error or a leak: as long as it is there, nothing is confirmed
    worse: bool = False  # there is more of it after the fix


@dataclass(slots=True)
class Signs:
    """Collects the signs of one case."""

    runs: Runs
    found: list[Sign] = field(default_factory=list)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Before, and after where there is a fix."""
        return (Part.BEFORE, Part.AFTER) if self.runs.bench.case.mended else (Part.BEFORE,)

    def quantity(self, name: str, values: list[float], *, shown: bool, gone: bool, unit: str = "bytes", under: str = "", verb: str = "") -> None:
        """One number for each part."""
        text = verb or name
        words = f"{text}: {criteria.amount(values[0], unit)}"
        if len(values) > 1:
            words = f"{text}: {criteria.amount(values[0], unit)} before, {criteria.amount(values[1], unit)} after"
        worse = len(values) > 1 and values[1] > 2 * values[0] and values[1] - values[0] >= (LEAST if unit == "bytes" else 1)
        self.found.append(Sign(shown, gone, words, Reading(name, unit, (values[0],), tuple(values[1:]), under), worse=worse))


def falls(values: list[float], share: float = HALF, least: float = LEAST) -> bool:
    """Whether a quantity falls clearly: by that share, and that much."""
    return len(values) > 1 and values[0] - values[1] >= max(share * values[0], least)


def pickling(signs: Signs) -> None:
    """A dataset that cannot be sent to a worker, as built or once it was read."""
    answers = [signs.runs.ask(part, "pickling") for part in signs.parts]
    for state, words in (("untouched", "as it is built"), ("touched", "after a sample was read")):
        errors = [answer[state] for answer in answers]
        reading = Reading(f"pickling fails {words}", "errors", (float(bool(errors[0])),), tuple(float(bool(item)) for item in errors[1:]), "spawn, forkserver")
        text = f"pickling {words}: {errors[0] or 'works'}" + (f" before, {errors[1] or 'works'} after" if len(errors) > 1 else "")
        worse = len(errors) > 1 and bool(errors[1]) and not errors[0]
        signs.found.append(Sign(bool(errors[0]), len(errors) > 1 and not errors[1], text, reading, strict=True, worse=worse))


def item_reads(signs: Signs) -> None:
    """Bytes that are read, and memory that is taken, for one sample."""
    looks = [signs.runs.look(part) for part in signs.parts]
    sizes = [float(median(look["bytes_read"] or [0])) for look in looks]
    memories = [signs.runs.ask(part, "memory") for part in signs.parts]
    data = float(memories[0]["data"])
    signs.quantity("bytes read for a sample", sizes, shown=falls(sizes, PART) or sizes[0] >= max(LEAST, HALF * data), gone=falls(sizes, PART))
    peaks = [float(item["sample"]) for item in memories]
    signs.quantity("memory for a sample", peaks, shown=falls(peaks) or peaks[0] >= max(LEAST, HALF * max(data, LEAST)), gone=falls(peaks))
    calls = [float(median(look["reads"] or [0])) for look in looks]
    signs.quantity("reads of HDF5 datasets for a sample", calls, unit="reads", shown=falls(calls, least=2) or calls[0] >= FEW, gone=falls(calls, least=2))


def built(signs: Signs) -> None:
    """Bytes that a dataset holds once it is built, and the most while that is done."""
    code = signs.runs.bench.case.code
    memories = [signs.runs.ask(part, "memory") for part in signs.parts]
    data = float(memories[0]["data"])
    if code == "OOM406" and signs.runs.fidelity is Fidelity.SYNTHETIC and memories[0]["tensors"] < HALF * memories[0]["held"]:
        raise Stopped("what was made up for the file that it loads holds hardly any tensors")
    reads = float(signs.runs.look(Part.BEFORE)["built"]["bytes_read"])
    helds = [float(item["held"]) for item in memories]
    whole = helds[0] >= max(LEAST, HALF * data) if data else helds[0] >= LEAST
    if code in {"OOM305", "OOM406", "OOM402"} and data:
        whole = whole and reads >= HALF * data
    shown = {"OOM403": helds[0] >= max(LEAST, 3 * data), "OOM405": helds[0] >= max(LEAST, 3 * data), "OOM401": False, "OOM404": False}.get(code, whole)
    if code == "OOM309":
        helds = [float(max(item["anonymous"], item["held"])) for item in memories]
        shown = helds[0] >= max(LEAST, HALF * data)
    signs.quantity("memory held once it is built", helds, shown=shown or falls(helds), gone=falls(helds))
    peaks = [float(item["peak"]) for item in memories]
    passing = code == "OOM305" and data > 0 and min(peaks[0], reads) >= max(LEAST, HALF * data)  # read as a whole, and only a part of it kept
    twice = peaks[0] >= TWICE * max(memories[0]["held"], LEAST)
    signs.quantity(
        "most memory while it is built",
        peaks,
        shown=(twice and code in {"OOM401", "OOM403", "OOM404"}) or passing or falls(peaks, PART),
        gone=falls(peaks, PART),
    )
    if code in {"OOM406", "OOM402"}:
        anonymous = [float(max(item["anonymous"], 0)) for item in memories]
        signs.quantity("memory of the process that is in no file", anonymous, shown=falls(anonymous, least=2**20), gone=falls(anonymous, least=2**20))


def descriptors(signs: Signs) -> None:
    """HDF5 identifiers and file descriptors that each sample leaves open, and those that the dataset keeps."""
    looks = [signs.runs.look(part) for part in signs.parts]
    for key, name in (("ids", "HDF5 identifiers"), ("descriptors", "file descriptors")):
        found = criteria.handles(name, looks[0][key], looks[1][key] if len(looks) > 1 else None)
        rates = [found.before.a_step, *([found.after.a_step] if found.after else [])]
        reading = Reading(f"{name} that a sample leaves open", name, (rates[0],), tuple(rates[1:]), f"{len(looks[0][key])} samples in this process")
        line = Timeline(f"{name} open", name, "step", *(tuple(enumerate(map(float, look[key]))) for look in looks))
        signs.found.append(Sign(found.shown, found.ended, found.words, reading, line, strict=True, worse=len(rates) > 1 and rates[1] > max(rates[0], 0)))


def kept(signs: Signs) -> None:
    """Handles that the object keeps after it was built and read."""
    looks = [signs.runs.look(part) for part in signs.parts]
    for key, name in (("ids", "HDF5 identifiers"), ("descriptors", "file descriptors")):
        counts = [float(look["built"]["opened"][key] + max(look[key][-1:] or [0]) - (look[key] or [0])[0]) for look in looks]
        signs.quantity(f"{name} kept open", counts, unit=name, shown=counts[0] >= 2, gone=falls(counts, least=1))  # noqa: PLR2004 -- one is a handle that is used


def opened_on_import(signs: Signs) -> None:
    """HDF5 identifiers that are open once the module is imported and the dataset made."""
    looks = [signs.runs.look(part) for part in signs.parts]
    counts = [float(look["built"]["opened"]["ids"]) for look in looks]
    signs.quantity("HDF5 identifiers open once it is made", counts, unit="HDF5 identifiers", shown=counts[0] > 0, gone=len(counts) > 1 and counts[1] <= 0)


def interrupted(signs: Signs) -> None:
    """What an exception in the middle leaves open, as long as it is kept."""
    bench = signs.runs.bench
    inside = subjects.functions(bench, every=True)
    if not inside:
        return
    name = inside[0].name.rpartition(".")[2]
    answers = [signs.runs.ask(part, "interrupted", path=bench.path(part, inside[0].path), function=name) for part in signs.parts]
    if not answers[0]["raised"]:
        return
    exception_path(signs, answers)


def exception_path(signs: Signs, answers: list[dict[str, Any]]) -> None:
    """The sign of :func:`interrupted`."""
    counts = [float(item["ids"]) for item in answers]
    name = "HDF5 identifiers left open by an exception that is kept"
    words = "HDF5 identifiers that an exception in the middle leaves open, as long as it is kept"
    signs.quantity(name, counts, unit="HDF5 identifiers", shown=counts[0] > 0, gone=falls(counts, 0, 1), verb=words)


def caches(signs: Signs) -> None:
    """Bytes that are held after each epoch, above what was held when it was built."""
    memories = [signs.runs.ask(part, "memory", epochs=3) for part in signs.parts]
    kept = [float(item["grown"][-1] - item["held"]) for item in memories]
    data = float(memories[0]["data"])
    line = Timeline("memory held by the dataset", "bytes", "step", *(tuple(enumerate([float(item["held"]), *map(float, item["grown"])])) for item in memories))
    shown = kept[0] >= max(LEAST, HALF * data) or falls(kept)
    signs.quantity("memory held after three epochs, above what it was built with", kept, shown=shown, gone=falls(kept))
    signs.found[-1] = Sign(signs.found[-1].shown, signs.found[-1].gone, signs.found[-1].words, signs.found[-1].reading, line)
    descriptors(signs)


# -- workers -----------------------------------------------------------------------------------------------------------


def copies(signs: Signs) -> None:
    """What each worker adds to the memory of the process tree by reading the data: under fork, or as it is sent to it under spawn."""
    runs, code = signs.runs, signs.runs.bench.case.code
    method = "spawn" if code == "OOM112" else "fork"
    count = 2
    repeat = 1 if method == "spawn" else max(runs.bench.options.repeat, 1)
    memories = [runs.ask(part, "memory") for part in signs.parts]
    # A map of a file is not held, but sent as a whole.
    held = [float(max(item["held"], item["data"]) if code == "OOM112" else item["held"]) for item in memories]
    if held[0] < ENOUGH:
        raise Stopped(f"the data that could be made are too small to tell: {human(held[0])}")
    size = int(runs.look(Part.BEFORE)["length"] or 0)
    empty = median(
        _added(runs.ask(Part.BEFORE, "epochs:tree", number, alone=True, workers=count, method=method, size=size, seconds=40)) for number in range(repeat)
    )
    extras, line = [], []
    for part in signs.parts:
        answers = [runs.ask(part, "epochs:tree", number, workers=count, method=method, seconds=40) for number in range(repeat)]
        extras.append([_added(answer) - empty for answer in answers])
        line.append(tuple((float(step), float(total - answers[0]["built"])) for step, total in answers[0]["readings"]))
    saving = criteria.worker_memory(extras[0], extras[1] if len(extras) > 1 else [0.0] * repeat, held[0], count)
    if code == "OOM112" and not saving.enough and memories[0]["held"] < ENOUGH:
        raise Stopped("it is not known how much of the data that were made up the dataset maps")
    reading = Reading(
        "memory that workers add",
        "bytes",
        tuple(extras[0]),
        tuple(extras[1]) if len(extras) > 1 else (),
        f"{count} workers, {method}, 2 shuffled epochs, {human(held[0])} held",
    )
    words = saving.words if len(extras) > 1 else f"{count} workers add {human(saving.before)} to {human(held[0])} of data, under {method}"
    signs.found.append(
        Sign(saving.enough, saving.enough, words, reading, Timeline("memory that workers add", "bytes", "step", *line), worse=len(extras) > 1 and saving.more)
    )


def _added(answer: dict[str, Any]) -> float:
    return float(answer["steady"] - answer["built"])


def counts(signs: Signs) -> None:
    """What workers cost against none: their number is what the fix changes."""
    runs = signs.runs
    numbers = [subjects.workers(runs.bench, part) for part in signs.parts]
    if len(numbers) > 1 and (numbers[1] is None or numbers[0] == numbers[1]):
        raise Stopped("the number of workers after the fix is not known")
    used = [min(number if number is not None else MOST_WORKERS, MOST_WORKERS) for number in numbers]
    for method, repeat in (("fork", max(runs.bench.options.repeat, 1)), ("spawn", 1)):
        values = [
            [_added(runs.ask(part, "epochs:tree", number, workers=count, method=method if count else "fork", seconds=60)) for number in range(repeat)]
            for part, count in zip(signs.parts, used, strict=True)
        ]
        saving = criteria.worker_memory(values[0], values[1] if len(values) > 1 else [0.0] * repeat, 0, used[0])
        under = f"{' and '.join(str(count) for count in used)} workers, {method}"
        reading = Reading("memory that workers add", "bytes", tuple(values[0]), tuple(values[1]) if len(values) > 1 else (), under)
        words = f"{used[0]} workers add {human(saving.before)}" + (f" before, {used[1]} workers {human(saving.after)} after" if len(used) > 1 else "")
        signs.found.append(Sign(saving.enough, saving.enough, f"{words}, under {method}", reading))
        if saving.enough:
            break  # spawned workers take more, not less
    if used[0] != numbers[0]:
        runs.assumed.append(f"{used[0]} workers instead of {numbers[0] if numbers[0] is not None else 'a number that is not known'}")


def sent(signs: Signs) -> None:
    """Whether a dataset gets to workers at all that are not forked: a list of tensors takes a descriptor each."""
    for method in METHODS:
        errors = []
        for part in signs.parts:
            try:
                signs.runs.ask(part, "epochs:compared", workers=1, method=method, seconds=60)
                errors.append("")
            except Broken as error:
                errors.append(str(error))
        reading = Reading(f"{method} fails", "errors", (float(bool(errors[0])),), tuple(float(bool(item)) for item in errors[1:]), f"1 worker, {method}")
        text = f"{method}: {errors[0] or 'works'}" + (f" before, {errors[1] or 'works'} after" if len(errors) > 1 else "")
        signs.found.append(
            Sign(bool(errors[0]), len(errors) > 1 and not errors[1], text, reading, strict=True, worse=len(errors) > 1 and bool(errors[1]) and not errors[0])
        )


SIGNS: Final[dict[str, tuple[Callable[[Signs], None], ...]]] = {
    "OOM110": (copies,),
    "OOM111": (pickling,),
    "OOM112": (copies,),
    "OOM113": (sent,),
    "OOM114": (counts,),
    "OOM214": (caches,),
    "OOM301": (pickling,),
    "OOM302": (opened_on_import,),
    "OOM303": (pickling,),
    "OOM304": (item_reads,),
    "OOM305": (built,),
    "OOM306": (descriptors, kept),
    "OOM307": (descriptors, interrupted),
    "OOM308": (item_reads,),
    "OOM309": (built, pickling),
    "OOM311": (pickling,),
    "OOM312": (kept, descriptors, pickling),
    "OOM313": (item_reads, built),
    "OOM401": (built,),
    "OOM402": (built,),
    "OOM403": (built,),
    "OOM404": (built,),
    "OOM405": (built,),
    "OOM406": (built,),
    "OOM407": (built,),
}
AT_ROW: Final = frozenset(SIGNS) - {"OOM110", "OOM111", "OOM112", "OOM113", "OOM114", "OOM302"}  # found where it happens, not at a loader
LARGE: Final = frozenset(SIGNS) - {
    "OOM111",
    "OOM308",
    "OOM113",
    "OOM301",
    "OOM302",
    "OOM303",
    "OOM306",
    "OOM307",
    "OOM311",
    "OOM312",
}  # measured with more data
