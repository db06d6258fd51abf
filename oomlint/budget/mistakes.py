"""What is wrong with what a budget was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oomlint.finding import Place


class BudgetError(Exception):
    """The message says what is wrong, on one line; ``place`` where in the code, if that is known."""

    place: Place | None = None
