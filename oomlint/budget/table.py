"""The table as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.amounts import readable
from oomlint.budget.rows import IN_WORKERS, MAIN_PROCESS, SHARED
from oomlint.budget.sizes import labels
from oomlint.budget.verdict import MOST_WORKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oomlint.budget.report import Budget
    from oomlint.budget.sizes import Name
    from oomlint.budget.verdict import Fit
    from oomlint.finding import Place

    Named = Callable[[str], str]

_GROUPS: Final = {MAIN_PROCESS: MAIN_PROCESS, IN_WORKERS: "workers", SHARED: "shared memory"}
_MOST_NAMES: Final = 6
_MOST_ARRAYS: Final = 3
_LONGEST: Final = 70  # characters of a cell; JSON has all of it
_SHORT_OF: Final = {"memory": "memory", "shm": "/dev/shm"}  # noqa: S108 - a name


def text(budgets: Sequence[Budget], name: Named) -> str:
    """All tables, one under the other."""
    return "\n\n".join("\n".join(_lines(one, name)) for one in budgets) + "\n"


def _lines(budget: Budget, name: Named) -> Iterator[str]:
    yield f"{_title(budget, name)}: {_workers(budget)}, {budget.setup.method}, {_ranks(budget, name)}"
    for file in budget.files:
        held = f", {readable(file.held)}" if file.held is not None else ""
        count = f", {file.count:,} {'files' if file.format == 'folder' else 'rows'}" if file.count else ""
        largest = sorted(file.arrays, key=lambda one: -(one.bytes or 0))
        arrays = "".join(f", {one.key or 'array'} {one.shape}" for one in largest[:_MOST_ARRAYS])
        more = f" and {len(largest) - _MOST_ARRAYS} more" if len(largest) > _MOST_ARRAYS else ""
        yield f"data: {name(file.path)} ({file.format}{count}{held}{arrays}{more})"
    yield ""
    cells = []
    for group, heading in _GROUPS.items():
        here = [row for row in budget.rows if row.group == group]
        if here:
            cells.append((heading, "", "", "", ""))
        for row in here:
            size = "" if row.bytes is None else readable(row.bytes)
            cells.append((f"  {_shortened(row.what)}", _shortened(str(row.size)), size, str(row.known), _place(row.place, name)))
    yield from _aligned((("", "formula", "bytes", "known", "place"), *cells))
    yield ""
    totals = [(str(one.moment), readable(one.bytes), readable(one.shared), _left_out(one.missing)) for one in budget.verdict.totals]
    yield from _aligned((("moment", "in all", "of it /dev/shm", "left out"), *totals))
    yield ""
    yield from _verdict(budget)


def _title(budget: Budget, name: Named) -> str:
    program = budget.program
    return f"{name(program.path)}, cell {program.cell}" if program.cell else name(program.path)


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
    by = f" ({_place(place, name)})" if ranks > 1 and ranks == budget.program.ranks and place is not None else ""
    return f"{ranks} rank{'' if ranks == 1 else 's'}{by}" + (" (of how many, nobody says: --ranks)" if budget.ranks_open else "")


def _place(place: Place | None, name: Named) -> str:
    if place is None:
        return ""
    return f"{name(place.path)}:{f'{place.cell}:' if place.cell else ''}{place.row}"


def _left_out(missing: Sequence[Name]) -> str:
    shown = labels(missing)[:_MOST_NAMES]
    return ", ".join(shown) + (f" and {len(missing) - _MOST_NAMES} more" if len(missing) > _MOST_NAMES else "")


def _verdict(budget: Budget) -> Iterator[str]:
    verdict, peak = budget.verdict, budget.verdict.peak
    limits = f"memory {budget.ram.words}, /dev/shm {budget.shm.words}"
    yield f"Limits: {limits}."
    if verdict.moment is None:
        sure, bound = ("As far as it is known, it fits", "at least") if verdict.missing else ("It fits", "at most")
        yield f"{sure}: {readable(peak.bytes)} {bound}, at the moment `{peak.moment}`."
    else:
        total = next(one for one in verdict.totals if one.moment is verdict.moment)
        took = total.bytes if verdict.by == "memory" else total.shared
        yield f"It does not fit: at the moment `{verdict.moment}` it takes {readable(took)}{' at least' if verdict.missing else ''} of {_SHORT_OF[verdict.by]}."
    if verdict.workers:
        yield f"Workers that fit: {'; '.join(_fit(one, complete=not verdict.missing) for one in verdict.workers)}."
    if verdict.missing:
        yield f"Left out: {_left_out(verdict.missing)}. `--set {_quoted(labels(verdict.missing)[0])}=...` fills one in."


def _fit(one: Fit, *, complete: bool) -> str:
    if one.workers is None:
        return f"none under {one.method}, and without workers it does not fit either"
    if one.workers == 0:
        return f"none under {one.method}"
    if not one.bound and not complete:
        return f"not known under {one.method}"
    most = f"{'up to' if complete else 'at most'} {one.workers}" if one.bound else f"{MOST_WORKERS} or more"
    return f"{most} under {one.method}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _quoted(name: str) -> str:
    return name if name.replace("_", "").replace(".", "").isalnum() else f"'{name}'"


def _aligned(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns of equal width; those of bytes end at the right."""
    widths = [max(len(line[number]) for line in lines) for number in range(len(lines[0]))]
    right = {number for number, head in enumerate(lines[0]) if head in {"bytes", "in all", "of it /dev/shm"}}
    for line in lines:
        yield "  ".join(cell.rjust(widths[n]) if n in right else cell.ljust(widths[n]) for n, cell in enumerate(line)).rstrip()
