"""Whether the user's command did the same after a fix as before it: the batches of its loaders, what it printed and wrote, how it ended."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.thresholds import close_text, first_difference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Answer = Mapping[str, Any]  # of command:run

_QUANTITY: Final = r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?"
_MASKS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), text)
    for pattern, text in (
        (r"\b0x[0-9a-f]{6,}\b", "<address>"),
        (r"\b\d{4}[-/_.]\d{2}[-/_.]\d{2}(?:[T _-]?\d{2}[:_-]?\d{2}(?:[:_-]?\d{2}(?:[.,]\d+)?)?)?Z?\b", "<date>"),
        (r"\b(?:mon|tue|wed|thu|fri|sat|sun)\w*,? +(?:\w{3} +\d+|\d+ +\w{3})\b", "<date>"),
        (r"\b\d{1,3}(?:days?,? )?:\d{2}(?::\d{2})?(?:\.\d+)?\b", "<time>"),
        (rf"{_QUANTITY} *(?:it|its|iters?|batch(?:es)?|samples?|imgs?|images?|steps?|tokens?|examples?|items?)? */ *s(?:ec(?:ond)?)?\b", "<speed>"),
        (rf"{_QUANTITY} *s(?:ec(?:ond)?s?)? */ *(?:it|iter|batch|sample|step|epoch|img|image)\b", "<speed>"),
        (rf"{_QUANTITY} *(?:ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?)\b", "<time>"),
        (rf"{_QUANTITY} *(?:[kmgt]i?b|bytes)\b", "<size>"),
        (rf"\b((?:time|took|elapsed|eta|duration|speed|throughput|latency|mem|memory|rss|usage|pid)\w*[^\w\n]{{0,4}}){_QUANTITY}", r"\1<quantity>"),
        (r"/tmp/[\w./-]+", "<file>"),  # noqa: S108 - a pattern
    )
)


@dataclass(frozen=True, slots=True)
class Same:
    """What a comparison has come to."""

    same: bool | None  # ``None`` where the program before does not repeat itself
    words: str = ""  # the difference, or what does not repeat
    notes: tuple[str, ...] = ()  # what was not compared


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of the command."""

    answer: Answer
    printed: str  # standard output

    @property
    def lines(self) -> list[str]:
        """What was printed, without times, dates, speeds and sizes."""
        return [masked(line) for line in self.printed.replace("\r", "\n").splitlines() if line.strip()]


def masked(text: str) -> str:
    """A line without what differs from run to run by its nature."""
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text.rstrip()


def compare(first: Ran, second: Ran, after: Ran, *, again: bool = False) -> Same:
    """Compare the runs. ``first`` and ``second`` are of the program before: only what they agree in is compared.

    ``again`` says that the fix asks a loader once more where it was asked once: only the first batches are compared then, and no generators.
    """
    batches = _batches(first.answer, second.answer, after.answer, again=again)
    if batches.same is not True:
        return batches
    notes = [*batches.notes]
    for found in (_printed(first.lines, second.lines, after.lines), _files(first.answer, second.answer, after.answer)):
        notes += found.notes
        if not found.same:
            return found
    if first.answer["status"] != after.answer["status"]:
        return Same(same=False, words=f"it exits with status {first.answer['status']} before, {after.answer['status']} after")
    ends = [run.answer["generators"] for run in (first, second, after)]
    if all(ends) and ends[0] == ends[1] != ends[2] and batches.words != "workers" and not again:
        return Same(same=False, words="the generators of random numbers stand elsewhere at its end")
    return Same(same=True, notes=tuple(dict.fromkeys(notes)))


def _batches(first: Answer, second: Answer, after: Answer, *, again: bool) -> Same:
    """What the loaders handed out."""
    old, repeated, new = ([_digests(stream) for stream in answer["streams"]] for answer in (first, second, after))
    if old != repeated:
        return Same(same=None, words="two runs of your command before the fix do not get the same batches: with fixed seeds they would")
    if again:
        new = [batches[: len(earlier)] for earlier, batches in zip(old, new, strict=False)]
    counts = [[stream["workers"] for stream in answer["streams"]] for answer in (first, after)]
    if old == new:
        opaque = any(step["opaque"] for stream in first["streams"] for step in stream["steps"])
        notes = ("batches hold objects that cannot be compared: their tensors and arrays are",) if opaque else ()
        return Same(same=True, words="workers" if counts[0] != counts[1] else "", notes=notes)
    if counts[0] != counts[1] and list(map(len, old)) == list(map(len, new)):
        return Same(same=None, words="the number of workers differs after the fix, and so do the batches: what is drawn at random depends on it")
    for number, (one, other) in enumerate(zip_longest(old, new)):
        if one != other:
            place = _place((first if one is not None else after)["streams"][number])
            if one is None or other is None:
                return Same(same=False, words=f"the loop{place} is run {'after' if one is None else 'before'} the fix only")
            if len(one) != len(other):
                return Same(same=False, words=f"the loop{place} gets {len(one)} batches before, {len(other)} after")
            at = next(step for step, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
            difference = first_difference(*(answer["streams"][number]["steps"][at]["shown"] for answer in (first, after)))
            return Same(same=False, words=f"batch {at + 1} of the loop{place} differs: {difference or 'in its later parts'}")
    return Same(same=True)


def _digests(stream: Answer) -> list[str]:
    return [step["digest"] for step in stream["steps"]]


def _place(stream: Answer) -> str:
    return f" at {stream['where'][0][0]}:{stream['where'][0][2]}" if stream["where"] else ""


def _printed(first: Sequence[str], second: Sequence[str], after: Sequence[str]) -> Same:
    if len(first) != len(second):
        return Same(same=True, notes=("what it prints differs from run to run and is not compared",))
    stable = [number for number, (one, other) in enumerate(zip(first, second, strict=True)) if one == other]
    notes = [f"{len(first) - len(stable)} of {len(first)} printed lines differ from run to run and are not compared"] if len(stable) < len(first) else []
    if len(first) != len(after):
        added, gone = Counter(after) - Counter(first), Counter(first) - Counter(after)
        line = next(iter([*gone, *added]), "")
        return Same(same=False, words=f"it prints {len(first)} lines before, {len(after)} after: `{line[:80]}` is {'missing' if gone else 'new'}")
    old, new = ([lines[number] for number in stable] for lines in (first, after))
    differing = [(one, other) for one, other in zip(old, new, strict=True) if one != other]
    if all(close_text(one, other) for one, other in differing):
        return Same(same=True, notes=(*notes, *(["printed numbers agree but for rounding"] if differing else [])))
    return Same(same=False, words=f"it prints something else: {first_difference(*zip(*(pair for pair in differing if not close_text(*pair)), strict=True))}")


def _files(first: Answer, second: Answer, after: Answer) -> Same:
    """What it wrote into its folder."""
    old, again, new = first["files"], second["files"], after["files"]
    stable = {name for name in old if again.get(name) == old[name]}
    notes = (f"{len(old) - len(stable)} of {len(old)} written files differ from run to run and are not compared",) if len(stable) < len(old) else ()
    for name in sorted(stable):
        if new.get(name) != old[name]:
            return Same(same=False, words=f"the file {name} is {'not written' if name not in new else 'another'} after the fix")
    if len(stable) == len(old) == len(again):
        for name in sorted(new.keys() - old.keys()):
            return Same(same=False, words=f"the file {name} is written after the fix only")
    return Same(same=True, notes=notes)
