"""What ``--set`` gives: numbers for names, and settings of the loaders."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from oomlint.amounts import TooLargeError, size
from oomlint.budget.mistakes import BudgetError
from oomlint.budget.sizes import MOST, Name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WORKERS: Final = "num_workers"
BATCH: Final = "batch_size"
PREFETCH: Final = "prefetch_factor"
TENSORS: Final = "batch_tensors"
SETTINGS: Final = (WORKERS, BATCH, PREFETCH, TENSORS)
_WHOLE: Final = re.compile(r"\d{1,40}")
_FRACTION: Final = re.compile(r"\d*\.\d*")
_MOST_SHOWN: Final = 12


class Values(Struct, frozen=True):
    """Numbers by name."""

    given: Mapping[str, int] = field(default_factory=dict)

    def of(self, name: Name) -> int | Name:
        """What a name stands for; the name itself where nobody has said it. A name with its class goes before the name alone."""
        return self.given.get(f"{name.owner}.{name.text}", self.given.get(name.text, name))

    def setting(self, name: str) -> int | None:
        """The number that all loaders have for one of ``SETTINGS``."""
        return self.given.get(name)

    def refuse_unknown(self, names: Iterable[Name]) -> None:
        """Raise BudgetError for a name that nothing is called by."""
        listed = tuple(names)
        known = {*SETTINGS, *(one.text for one in listed), *(f"{one.owner}.{one.text}" for one in listed if one.owner)}
        for name in self.given:
            if name not in known:
                there = list(dict.fromkeys([*(one.text for one in listed), *SETTINGS]))
                more = f" and {len(there) - _MOST_SHOWN} more" if len(there) > _MOST_SHOWN else ""
                raise BudgetError(f"--set {name}: nothing is called so; there are {', '.join(there[:_MOST_SHOWN])}{more}")


def values_of(words: Sequence[str]) -> Values:
    """The numbers that ``NAME=VALUE`` gives. Raises BudgetError, whose message says what is wrong."""
    found: dict[str, int] = {}
    for word in words:
        name, equals, text = word.rpartition("=")
        if not equals or not name.strip():
            raise BudgetError(f"--set {word}: it is written NAME=VALUE, such as `N=1449`")
        if _WHOLE.fullmatch(text.strip()):
            number = int(text)
            if number == 0 and name.strip() in {BATCH, PREFETCH, TENSORS}:
                raise BudgetError(f"--set {word}: it is 1 at least")
        elif name.strip() in SETTINGS or _FRACTION.fullmatch(text.strip()):
            raise BudgetError(f"--set {word}: {text!r} is no whole number from 0 on")
        else:
            try:
                number = size(text)
            except TooLargeError as error:
                raise BudgetError(f"--set {word}: {error}") from None
            except ValueError:
                raise BudgetError(f"--set {word}: {text!r} is neither a whole number nor a size such as '600KiB'") from None
        if number > MOST:
            raise BudgetError(f"--set {word}: that is more than 64 bits can count")
        found[name.strip()] = number
    return Values(found)
