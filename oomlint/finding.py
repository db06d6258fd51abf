"""What a check says: findings, the places they name, and the edits that mend them.

This room imports nothing else of the package: everything above it speaks in these nouns.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum


class Severity(StrEnum):
    """How much harm a finding stands for."""

    ERROR = "error"  # it crashes, or grows without bound
    WARNING = "warning"  # it wastes memory in proportion to data, workers or steps
    NOTE = "note"  # worth knowing; not shown by default

    @property
    def rank(self) -> int:
        """0 for the gravest, so that sorting puts errors first."""
        return list(Severity).index(self)


class Confidence(StrEnum):
    """How a finding's values were resolved."""

    HIGH = "high"  # follows from constants
    MEDIUM = "medium"  # one default, one reachable value or one naming convention is assumed
    LOW = "low"  # more than one assumption

    @property
    def rank(self) -> int:
        """0 for the surest."""
        return list(Confidence).index(self)


class Safety(StrEnum):
    """What applying a fix may change."""

    SAFE = "safe"  # same behaviour
    UNSAFE = "unsafe"  # same intent; numerics, order or memory layout may change
    DISPLAY = "display"  # advice: shown, never applied


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A span of a file. Rows and columns are 1-based and count Unicode characters; the end is exclusive.

    ``path`` is absolute. ``cell`` is the 1-based number over *all* cells of a notebook, and rows then count within the cell;
    it is 0 for anything that is not a notebook.
    """

    path: str
    cell: int
    row: int
    column: int
    end_row: int
    end_column: int
    message: str = field(default="", compare=False)

    def saying(self, message: str) -> Place:
        """The same span with another message."""
        return replace(self, message=message)


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the characters of ``place`` by ``content``. Its lines end with a line feed; the file's own line ends are put in on applying."""

    place: Place
    content: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A set of edits that are applied together or not at all. A display fix may have none."""

    safety: Safety
    message: str
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule says about one place.

    ``code`` is ``None`` for a file that could not be read or parsed; ``message`` then holds the cause.
    ``related`` tells the story: the places through which the value came.
    """

    code: str | None
    name: str
    message: str
    severity: Severity
    confidence: Confidence
    place: Place
    related: tuple[Place, ...] = ()
    fix: Fix | None = None

    @property
    def sort_key(self) -> tuple[str, int, int, int, str, str]:
        """Order of output: file, place, code."""
        spot = self.place
        return (spot.path, spot.cell, spot.row, spot.column, self.code or "", self.message)
