"""``PATH``, ``PATH:LINE`` and ``PATH:LINE-LINE``, and the findings that they pick."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from oomlint.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oomlint.finding import Finding

# As reports write places too: a column at the end is read and passed over.
_LINES: Final = re.compile(r"(?P<path>.+?):(?P<first>\d+)(?:-(?P<last>\d+)|:\d+)?", re.DOTALL | re.ASCII)
_CELL: Final = re.compile(r"(?P<path>.+?\.ipynb):(?:cell )?(?P<cell>\d+)(?::(?P<first>\d+)(?:-(?P<last>\d+)|:\d+)?)?", re.DOTALL | re.ASCII | re.IGNORECASE)
_MANY_LINES: Final = 10  # that a message names


@dataclass(frozen=True, slots=True)
class Pick:
    """A word of the command line: a path, and the rows of it that are meant; all of them where ``first`` is 0."""

    word: str
    path: str
    cell: int = 0  # of a notebook; 0 for all
    first: int = 0
    last: int = 0

    @property
    def narrow(self) -> bool:
        """Whether a part of a file is meant, not all that is below a path."""
        return bool(self.first or self.cell)

    def takes(self, finding: Finding) -> bool:
        """Whether the finding covers one of the rows, where it is told or where it was found."""
        return self._covers(finding) or (finding.found is not None and self._covers(finding.as_found))

    def _covers(self, finding: Finding) -> bool:
        place = finding.place
        path = os.path.abspath(self.path)
        if place.path != path:
            return not self.narrow and place.path.startswith(os.path.join(path, ""))
        if self.cell and place.cell != self.cell:
            return False
        return not self.first or (place.row <= self.last and max(_last_row(finding), place.row) >= self.first)


def read(words: Sequence[str]) -> list[Pick]:
    """The picks of a command line. A file whose name looks like a place is that file. Raises ConfigError for what does not exist."""
    return [_pick(word) for word in words]


def _pick(word: str) -> Pick:
    if word == "-":
        raise ConfigError("standard input (`-`) cannot be verified: its code is run in a copy of the project")
    if not word:
        raise ConfigError("'': No such file or directory: the path is empty")
    if os.path.lexists(word):
        return Pick(word, word)
    found = _CELL.fullmatch(word) or _LINES.fullmatch(word)
    path = found["path"] if found else word
    if not os.path.lexists(path):
        raise ConfigError(f"{path}: No such file or directory")
    if found is None or os.path.isdir(path):
        raise ConfigError(f"{word}: {path} is a folder, and has no lines")
    parts = {key: int(value) for key, value in found.groupdict().items() if value is not None and key != "path"}
    first = parts.get("first", 0)
    last = parts.get("last", first)
    if parts.get("cell") == 0 or ("first" in parts and not 1 <= first <= last):
        raise ConfigError(f"{word}: lines and cells are counted from 1, and a range must not end before it begins")
    return Pick(word, path, parts.get("cell", 0), first, last)


def picked(findings: Iterable[Finding], picks: Sequence[Pick]) -> list[Finding]:
    """The findings that a pick takes. Raises ConfigError for a pick of lines that takes none."""
    rules = [finding for finding in findings if finding.code is not None]
    for pick in picks:
        if pick.narrow and not any(map(pick.takes, rules)):
            where = "in this cell" if not pick.first else "on these lines" if pick.last > pick.first else "on this line"
            raise ConfigError(f"{pick.word}: no finding {where}{_others(pick, rules)}")
    return [finding for finding in rules if any(pick.takes(finding) for pick in picks)]


def _others(pick: Pick, findings: Iterable[Finding]) -> str:
    """Where the file has findings."""
    whole = Pick(pick.path, pick.path)
    spots = list(dict.fromkeys(_spot(finding) for finding in findings if whole.takes(finding)))
    if not spots:
        return "; the file has none"
    more = f" and {len(spots) - _MANY_LINES} more" if len(spots) > _MANY_LINES else ""
    return f"; the file has some at {', '.join(spots[:_MANY_LINES])}{more}"


def _spot(finding: Finding) -> str:
    place = finding.place
    return f"{place.cell}:{place.row}" if place.cell else str(place.row)


def _last_row(finding: Finding) -> int:
    """A span that ends at the beginning of a row does not cover it."""
    place = finding.place
    return place.end_row - 1 if place.end_column == 1 and place.end_row > place.row else place.end_row


def paths_of(picks: Sequence[Pick]) -> Iterator[str]:
    """The paths to check, each once."""
    yield from dict.fromkeys(pick.path for pick in picks)
