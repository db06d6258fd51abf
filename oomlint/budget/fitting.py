"""Which settings would fit, each changed alone, and the edits that set them where the code writes them as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.budget.rows import rows
from oomlint.budget.values import BATCH, PREFETCH, WORKERS
from oomlint.budget.verdict import largest, short_of, totals
from oomlint.finding import Edit
from oomlint.fixing import Change
from oomlint.source import apply_edits, read_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.budget.limits import JobResources
    from oomlint.budget.nouns import Program
    from oomlint.budget.row import Setup
    from oomlint.finding import Place


class FittingSetting(Struct, frozen=True):
    """The largest value of a setting with which it fits, all else left as it is."""

    name: str
    most: int
    places: tuple[Place, ...]  # the numbers that the code writes; empty where one of them stands elsewhere
    given: bool = False  # by `--set`: what the code writes has no say
    more: tuple[tuple[Place, str], ...] = ()  # what else has to be written, so that the program takes it


def fitting(program: Program, setup: Setup, limits: JobResources) -> tuple[FittingSetting, ...]:
    """The settings that would do, in the order in which a change costs least; none where it fits already, or where none alone would do."""
    if short_of(totals(rows(program, setup)), limits) is None:
        return ()
    found = [one for name in (WORKERS, PREFETCH, BATCH) if (one := _of(name, program, setup, limits)) is not None]
    return tuple(sorted(found, key=lambda one: one.most == 0))


def _of(name: str, program: Program, setup: Setup, limits: JobResources) -> FittingSetting | None:
    values = [said if isinstance(said := one.setting(name), int) else None for one in program.loaders]
    given = setup.values.setting(name)
    least = 0 if name == WORKERS else 1
    now = given if given is not None else max((value for value in values if value is not None), default=0)
    if now <= least:
        return None
    most = largest(lambda value: short_of(totals(rows(program, setup.capped(name, value + least))), limits) is None, now - 1 - least)
    if most < 0:
        return None
    most += least
    above = [one for one, value in zip(program.loaders, values, strict=True) if value is not None and value > most]
    places = [place for one in above if (place := dict(one.literals).get(name)) is not None]
    if given is not None:
        return FittingSetting(name, most, (), given=True)
    more = [one.without for one in above] if name == WORKERS and most == 0 else []
    if len(places) < len(above) or None in more:
        return FittingSetting(name, most, ())
    return FittingSetting(name, most, tuple(dict.fromkeys(places)), more=tuple(dict.fromkeys(edit for one in more for edit in one or ())))


def changes(settings: Sequence[FittingSetting]) -> Iterator[Change]:
    """What the first of some settings that the code writes changes in its files."""
    first = next((one for one in settings if one.places), None)
    edits = [Edit(place, text) for place, text in (*((place, str(first.most)) for place in first.places), *first.more)] if first is not None else []
    for path in dict.fromkeys(edit.place.path for edit in edits):
        source = read_source(path)
        with open(path, "rb") as file:
            before = file.read()
        yield Change(path, source.encoding, before, apply_edits(source, [edit for edit in edits if edit.place.path == path]))
