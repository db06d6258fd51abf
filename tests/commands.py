"""What the tests of the command line share: a run in this process, and what it gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oomlint.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Done(NamedTuple):
    """What a run has given."""

    status: int
    out: str
    err: str


def runs(capsys: pytest.CaptureFixture[str], *first: str) -> Callable[..., Done]:
    """Runs the command line in this process, its first words given."""

    def call(*words: str) -> Done:
        status = main([*first, *words])
        return Done(status, *capsys.readouterr())

    return call
