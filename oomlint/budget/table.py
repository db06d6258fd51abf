"""The table as text."""

from __future__ import annotations

import shlex
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from oomlint.amounts import readable
from oomlint.budget import jobs
from oomlint.budget.report import at_peak
from oomlint.budget.row import DEVICE, FILES, IN_WORKERS, MAIN_PROCESS, SHARED
from oomlint.budget.sizes import labels
from oomlint.budget.verdict import MOST_WORKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oomlint.budget.report import Budget, Replaced
    from oomlint.budget.row import Row
    from oomlint.budget.sizes import Name
    from oomlint.budget.verdict import Fit
    from oomlint.finding import Place

    Line = tuple[tuple[str, str], ...]  # spans of text, each with its style
    Named = Callable[[str], str]

GROUPS: Final = {MAIN_PROCESS: MAIN_PROCESS, IN_WORKERS: "workers", SHARED: "shared memory", DEVICE: "device, each", FILES: FILES}
_MARKS: Final = {MAIN_PROCESS: ("\u2588", "blue"), IN_WORKERS: ("\u2593", "yellow"), SHARED: ("\u2592", "magenta")}
_BAR: Final = 60  # characters
_MOST_NAMES: Final = 6
_MOST_ARRAYS: Final = 3
_MOST_PLACES: Final = 3
_LONGEST: Final = 70  # characters of a cell; JSON has all of it
_LONGEST_NAME: Final = 44  # of one among several
_SHORT_OF: Final = {"memory": "memory", "shm": "/dev/shm", "device": "the memory of the device"}  # noqa: S108 - a name


def lines(budgets: Sequence[Budget], name: Named, *, plain: bool = False) -> Iterator[Line]:
    """All tables, one under the other. ``plain``: without block characters, for a stream that has none."""
    for number, one in enumerate(budgets):
        if number:
            yield from ((("", ""),), (("", ""),))
        yield from (((line, ""),) for line in _lines(one, name))
        if one.limits.ram is not None and one.limits.ram.size:
            yield _bar(at_peak(one), one.limits.ram.size, plain=plain)
        yield from (((line, ""),) for line in verdict(one, name))


def holds(encoding: str | None) -> bool:
    """Whether a stream can show the blocks of the bar."""
    try:
        "".join((*(mark for mark, _ in _MARKS.values()), "\u00b7")).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _bar(shares: Sequence[tuple[str, int]], limit: int, *, plain: bool) -> Line:
    """What each holds at the peak against the limit, in one bar."""
    total = sum(size for _, size in shares)
    scale = _BAR / max(limit, total)
    found: list[tuple[str, str]] = [("peak  ", "")]
    done = 0
    for (group, _), end in zip(shares, accumulate(size for _, size in shares), strict=True):
        mark, style = _MARKS[group]
        cells = round(end * scale) - done
        found.append((("#=+"[list(_MARKS).index(group)] if plain else mark) * cells, style))
        done += cells
    room = round(limit * scale)
    found.append((("." if plain else "\u00b7") * max(0, room - done), "dim"))
    words = ", ".join(f"{('#=+'[list(_MARKS).index(group)] if plain else _MARKS[group][0])} {GROUPS[group]} {readable(size)}" for group, size in shares if size)
    found.append((f"  {words}; {total / limit:.0%} of the limit", ""))
    return tuple(found)


def _lines(budget: Budget, name: Named) -> Iterator[str]:
    yield title(budget, name)
    for file in (one for one in budget.files if not one.beside):
        held = f", {readable(file.held)}" if file.held is not None else ""
        count = f", {file.count:,} {'files' if file.format == 'folder' else 'rows'}" if file.count else ""
        largest = sorted(file.arrays, key=lambda one: -(one.bytes or 0))
        arrays = "".join(f", {one.key or 'array'} {one.shape}" for one in largest[:_MOST_ARRAYS])
        more = f" and {len(largest) - _MOST_ARRAYS} more" if len(largest) > _MOST_ARRAYS else ""
        broken = f", of {file.unreadable:,} the header cannot be read" if file.unreadable else ""
        yield f"data: {name(file.path)} ({file.format}{count}{held}{arrays}{more}{broken})"
        yield from (f"      {one.count:,} .{one.format}, {readable(one.held or 0)} in their arrays" for one in file.kinds)
    yield ""
    cells = []
    for group, heading in GROUPS.items():
        here = [row for row in budget.worth_showing if row.group == group]
        if here:
            cells.append((heading, "", "", "", ""))
        cells += [(f"  {_shortened(row.what)}", _shortened(str(row.size)), amount(row), str(row.known), from_where(row, name)) for row in here]
    yield from _aligned((("", "formula", "bytes", "known", "place"), *cells))
    yield ""
    device = any(one.device or one.device_missing for one in budget.verdict.totals)
    head = ("moment", "in all", "of it /dev/shm", *(("device",) if device else ()), "left out")
    totals = (
        (
            str(one.moment),
            readable(one.bytes),
            readable(one.shared),
            *((readable(one.device),) if device else ()),
            _left_out(tuple(dict.fromkeys((*one.missing, *one.device_missing)))),
        )
        for one in budget.verdict.totals
    )
    yield from _aligned((head, *totals))
    yield ""


def from_where(row: Row, name: Named) -> str:
    """The place, and the variables of the environment that the number depends on."""
    unset = [one.name for one in row.environment if one.assumed and one.value is None] or [one.name for one in row.environment if one.assumed]
    told = [f"{one.name}={_shortened(one.value, _LONGEST_NAME)} ({spot(one.place, name) or 'the command'})" for one in row.environment if one.value is not None]
    unless = f"unless {' or '.join(unset[:_MOST_NAMES])} is set"
    return "; ".join(one for one in (spot(row.place, name), *told[:_MOST_PLACES], unless if unset else "") if one)


def amount(row: Row) -> str:
    """Bytes with a unit, or descriptors; nothing where nobody knows."""
    return "" if row.bytes is None else f"{row.bytes:,}" if row.group == FILES else readable(row.bytes)


def title(budget: Budget, name: Named) -> str:
    """The program, its workers, the start method, the ranks."""
    program = budget.program
    where = f"{name(program.path)}, cell {program.cell}" if program.cell else name(program.path)
    method = f"start method unknown ({budget.setup.method} is assumed: --start-method)" if budget.setup.method_open else budget.setup.method
    return f"{where}: {_workers(budget)}, {method}, {_ranks(budget, name)}"


def _workers(budget: Budget) -> str:
    counts = budget.workers
    if not counts:
        return "no loader"
    known = [count for count in counts if count is not None]
    if not known:
        return "workers unknown"
    most = max(known)
    return f"{most} worker{'' if most == 1 else 's'}" if len(set(counts)) == 1 else f"{' / '.join('?' if n is None else str(n) for n in counts)} workers"


def _ranks(budget: Budget, name: Named) -> str:
    ranks = budget.setup.ranks
    place = budget.program.ranks_place
    by = f" ({spot(place, name)})" if ranks > 1 and ranks == budget.program.ranks and place is not None else ""
    return f"{ranks} rank{'' if ranks == 1 else 's'}{by}" + (" (of how many, nobody says: --ranks)" if budget.ranks_open else "")


def spot(place: Place | None, name: Named) -> str:
    """Where it stands."""
    return jobs.spot(place, name) if place is not None else ""


def _left_out(missing: Sequence[Name]) -> str:
    shown = [_shortened(one, _LONGEST_NAME) for one in labels(missing)[:_MOST_NAMES]]
    return ", ".join(shown) + (f" and {len(missing) - _MOST_NAMES} more" if len(missing) > _MOST_NAMES else "")


def verdict(budget: Budget, name: Named) -> Iterator[str]:
    """The limits, whether it fits, with how many workers, and what would say more."""
    judged, given = budget.verdict, budget.limits
    known = [(word, one.words) for word, one in (("memory", given.ram), ("/dev/shm", given.shm), ("device", given.vram)) if one is not None]  # noqa: S108
    if given.files is not None and (given.files.written or judged.by == "descriptors"):  # what this machine has is mostly far more
        known.append(("descriptors", f"{given.files.size:,} ({given.files.source})"))
    cores = f", {given.cores:g} cores" if given.cores else ""
    yield f"Limits: {', '.join(' '.join(one) for one in known)}{cores}."
    yield from advice(budget)
    for (chosen, value), said in _by_setting(budget.replaced).items():
        places = ", ".join(f"{one.said} ({spot(one.place, name) or 'the command'})" for one in said[:_MOST_PLACES])
        more = f" and {len(said) - _MOST_PLACES} more" if len(said) > _MOST_PLACES else ""
        yield f"`--set {chosen}={value}` replaces what the code says: {places}{more}."
    most = max((count for count in budget.workers if count is not None), default=0)
    if given.cores and most > given.cores:
        yield f"More workers than cores: {most} for {given.cores:g}."
    missing = judged.every_missing
    if missing:
        yield f"Left out: {_left_out(missing)}. `--set {_quoted(labels(missing)[0])}=...` fills one in."
    if budget.assumed:
        few = " or ".join([f"`{one}`" for one in budget.assumed[:_MOST_NAMES]] + ([] if len(budget.assumed) <= _MOST_NAMES else ["another one"]))
        yield f"The table holds unless the environment sets {few}: nothing that was read does, so defaults are taken."
    for path in budget.offered[:_MOST_NAMES]:
        yield f"The code reads {name(path)}, which is there: `--data {shlex.quote(name(path))}` takes the shape from its header."


def _by_setting(replaced: Sequence[Replaced]) -> dict[tuple[str, int], list[Replaced]]:
    found: dict[tuple[str, int], list[Replaced]] = {}
    for one in replaced:
        found.setdefault((one.name, one.given), []).append(one)
    return found


def advice(budget: Budget) -> Iterator[str]:
    """Whether it fits, with how many workers, and which settings would fit."""
    judged, peak = budget.verdict, budget.verdict.peak
    if judged.moment is None:
        # The interpreter's row is `about`: no total is a number that nothing goes beyond.
        sure, bound = (
            ("As far as it is known, it fits", f"{readable(peak.bytes)} at least") if not judged.complete else ("It fits", f"about {readable(peak.bytes)}")
        )
        sure, open_end = ("What is known fits", "; what is left out may not") if judged.missing else (sure, "")
        yield f"{sure}: {bound}, at the moment `{peak.moment}`{open_end}."
        if judged.perhaps:
            yield f"With chunk caches of at most {readable(judged.perhaps)} it may not fit."
    else:
        total = next(one for one in judged.totals if one.moment is judged.moment)
        took = {"memory": total.bytes, "shm": total.shared, "device": total.device}.get(judged.by, 0)
        least = total.device_missing or DEVICE in judged.least if judged.by == "device" else not judged.host_complete
        what = f"it takes {readable(took)}{' at least' if least else ''} of {_SHORT_OF[judged.by]}" if took else f"a process has {total.files:,} files open"
        yield f"It does not fit: at the moment `{judged.moment}` {what}."
    fits = [_fit(one, complete=judged.host_complete) for one in judged.workers if one.bound or judged.host_complete]
    if fits:
        yield f"Workers that fit: {'; '.join(fits)}."
    if budget.settings:
        told = (f"{one.name}={one.most}{'' if one.places or one.given else ' (the code does not write that number)'}" for one in budget.settings)
        bound = "at most, " if not (judged.complete if judged.by == "device" else judged.host_complete) else ""
        yield f"What would fit, each alone: {bound}{'; '.join(told)}."


def _fit(one: Fit, *, complete: bool) -> str:
    if one.workers is None:
        return f"none under {one.method}, and without workers it does not fit either"
    if one.workers == 0:
        return f"none under {one.method}"
    most = f"{'up to' if complete else 'at most'} {one.workers}" if one.bound else f"{MOST_WORKERS} or more"
    return f"{most} under {one.method}"


def _shortened(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _quoted(name: str) -> str:
    return name if name.replace("_", "").replace(".", "").isalnum() else f"'{name}'"


def _aligned(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns of equal width; those of bytes end at the right."""
    widths = [max(len(line[number]) for line in lines) for number in range(len(lines[0]))]
    right = {number for number, head in enumerate(lines[0]) if head in {"bytes", "in all", "of it /dev/shm", "device"}}
    for line in lines:
        yield "  ".join(cell.rjust(widths[n]) if n in right else cell.ljust(widths[n]) for n, cell in enumerate(line)).rstrip()
