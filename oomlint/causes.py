"""Findings that a named file causes in another one: a dataset in ``datasets.py`` whose loader stands in ``train.py``, workers in ``train.sh``.

Whoever names single files, as editors and hooks do, has changed those and no others. What a change there makes of code elsewhere belongs to it, so the files
around a named one are checked, too, and of what is found in them that is shown which goes back to the named one, at the place there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.beside_code import beside
from oomlint.source import FileKind, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from oomlint.checking import Checker
    from oomlint.finding import Finding, Place

_MOST: Final = 24  # files around the named ones that the rules are asked about, the nearest first
_MOST_LOOKED_AT: Final = 400  # that the scout is asked about


class Causes(Struct, frozen=True):
    """The named files, and those around them in which they may cause something."""

    named: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()

    def of(self, findings: Iterable[Finding], silent: Callable[[Finding, Place], bool]) -> Iterator[Finding]:
        """The findings, those in files around only where a related place is in a named one, and they are not ``silent`` there. That comes first then."""
        for item in findings:
            if item.place.path not in self.beside:
                yield item
                continue
            given = next((place for place in item.given if place.path in self.named), None)
            cause = given or next((place for place in item.related if place.path in self.named and beside(place.path) is None), None)
            if cause is not None and not silent(item, cause):
                yield replace(item, related=(cause, *(place for place in item.related if place != cause)))

    def at_cause(self, item: Finding) -> Finding:
        """One of them, at the place that causes it; where it was found is related."""
        if item.place.path not in self.beside:
            return item
        cause, *others = item.related
        return replace(item, place=cause.saying(""), related=(item.place.saying("it happens here"), *others), found=item.as_found)


def causes_of(checker: Checker, files: Collection[str], named: Collection[str]) -> Causes:
    """Which files, beside those that are checked, the rules are to be asked about for the sake of the named ones."""
    if not named:
        return Causes()
    from oomlint.model.users import around, told_by  # noqa: PLC0415 - brings libcst

    by_project: dict[int, list[str]] = {}
    for path in sorted(named):
        by_project.setdefault(id(checker.projects.of(path)), []).append(path)
    found: list[str] = []
    looked_at = 0
    for members in by_project.values():
        project = checker.projects.of(members[0])
        code = [path for path in members if beside(path) is None]
        told = told_by(project, [path for path in members if beside(path) is not None or kind_of(path) is FileKind.NOTEBOOK])
        for path in (*told, *around(project, [*code, *told])):
            looked_at += 1
            if len(found) == _MOST or looked_at > _MOST_LOOKED_AT:
                break
            if path not in files and checker.look(path).parse:
                found.append(path)
    return Causes(frozenset(named), frozenset(found))
