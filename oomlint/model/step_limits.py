"""How much is asked about one file: steps of the engines, never time, so that the same file gets the same answers everywhere."""

from __future__ import annotations

import sys
from typing import Final

# A file takes some thousands. Four of all files of 180 research repositories take more than this: what they call may be any of dozens of classes, made by
# any of dozens of settings.
STEPS: Final = 100_000


class OutOfStepsError(Exception):
    """The budget of a file is spent."""


class Steps:
    """What is left of the budget. Without one, everything is answered."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = sys.maxsize

    def take(self) -> None:
        """Count a step. Raises OutOfStepsError where none is left."""
        self.left -= 1
        if self.left < 0:
            raise OutOfStepsError
