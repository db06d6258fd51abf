"""Values of another shape, for what is read back from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def variants(value: Any) -> Iterator[Any]:
    """The value with one part of it replaced, removed or added."""
    others: list[Any] = [None, True, -1, 10**12, 0.5, "x", "\0", [], ["x"], {}, {"x": 1}, [[]]]
    yield from (other for other in others if other != value)
    if isinstance(value, list):
        yield [*value, 1]
        for number, item in enumerate(value):
            yield value[:number] + value[number + 1 :]
            for other in variants(item):
                yield [*value[:number], other, *value[number + 1 :]]
    if isinstance(value, dict):
        for key, item in value.items():
            yield {name: each for name, each in value.items() if name != key}
            yield from ({**value, key: other} for other in variants(item))
