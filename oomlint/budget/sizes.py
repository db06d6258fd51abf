"""Sizes as products of numbers and of names that nobody knows the number of yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from oomlint.budget.mistakes import BudgetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oomlint.budget.values import Values

MOST: Final = 2**63 - 1  # bytes: what a signed number of 64 bits counts to


class Name(Struct, frozen=True):
    """A number that nobody knows: a dimension, the bytes of a sample. ``owner`` is the class that it belongs to."""

    text: str
    owner: str = ""

    def __str__(self) -> str:
        return self.text


class Sum(Struct, frozen=True):
    """A number with the way it comes about: ``(2 * 4 + 1)`` is 9. It has no value where one of its names stands for no number."""

    text: str
    value: int | None
    names: tuple[Name, ...] = ()

    def __str__(self) -> str:
        return self.text


Factor = int | float | Name | Sum


class SizeProduct(Struct, frozen=True):
    """A product: bytes, where the last factor is bytes of one element. Empty where nothing is known."""

    factors: tuple[Factor, ...] = ()

    def times(self, *more: Factor) -> SizeProduct:
        """So many times as much; the numbers come first, as they are said."""
        return SizeProduct((*more, *self.factors))

    def filled(self, values: Values) -> SizeProduct:
        """The same with what the names stand for."""
        return SizeProduct(tuple(values.of(one) if isinstance(one, Name) else one for one in self.factors))

    @property
    def missing(self) -> tuple[Name, ...]:
        """The names whose number is not known."""
        found = ((one,) if isinstance(one, Name) else one.names if isinstance(one, Sum) else () for one in self.factors)
        return tuple(dict.fromkeys(name for names in found for name in names))

    @property
    def value(self) -> int | None:
        """The product; None where one of its factors is not known. Raises BudgetError where 64 bits do not hold it."""
        if not self.factors or self.missing:
            return None
        total: int | float = 1
        for one in self.factors:
            total *= one if isinstance(one, int | float) else 1 if isinstance(one, Name) else one.value or 0
        if total > MOST:
            raise BudgetError(f"{self} is {float(total):.1e} bytes, more than 64 bits can count")
        return int(total)

    def __str__(self) -> str:
        return " * ".join(_written(one) for one in self.factors)


def _written(one: Factor) -> str:
    if isinstance(one, float):
        return f"{one:.2g}"
    return f"({one})" if isinstance(one, Name) and " " in one.text else str(one)


def named(parts: Iterable[int | str], owner: str) -> tuple[Factor, ...]:
    """Dimensions as factors."""
    return tuple(part if isinstance(part, int) else Name(part, owner) for part in parts)


def labels(found: Sequence[Name]) -> list[str]:
    """How to call names apart: with their class where several have the same text."""
    texts = [one.text for one in found]
    return [f"{one.owner}.{one.text}" if one.owner and texts.count(one.text) > 1 else one.text for one in found]
