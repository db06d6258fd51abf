"""A row of the table, and what it is under: the start method, the ranks, the numbers that were given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.budget.nouns import Certainty, Moment
from oomlint.budget.sizes import Name
from oomlint.budget.values import WORKERS

if TYPE_CHECKING:
    from oomlint.budget.nouns import LoaderNoun, Program
    from oomlint.budget.sizes import SizeProduct
    from oomlint.budget.values import Values
    from oomlint.finding import Place

MAIN_PROCESS, IN_WORKERS, SHARED, DEVICE = "main process", "each worker", "shared memory", "device"
FILES: Final = "open files, each process"
HOST: Final = (MAIN_PROCESS, IN_WORKERS, SHARED)


class Setup(Struct, frozen=True):
    """What the table holds for."""

    method: str  # "fork", "spawn", "forkserver"
    ranks: int
    values: Values
    workers: int | None = None  # in place of the number of every loader that has workers
    caps: tuple[tuple[str, int], ...] = ()  # the most that a setting may be
    launcher: str = ""  # that starts the ranks, where it is a process of Python that imports torch
    method_open: bool = False  # whether the method is assumed, where the code chooses one that nobody knows

    def with_workers(self, count: int) -> Setup:
        """The same with another number of workers."""
        return replace(self, workers=count)

    def capped(self, name: str, most: int) -> Setup:
        """The same where a setting is no larger than this."""
        return replace(self, caps=((name, most),))

    def setting(self, name: str, said: int | Name) -> int | Name:
        """What a loader has: what ``--set`` gives goes before what the code says."""
        given = self.values.setting(name)
        value = said if given is None else given
        most = dict(self.caps).get(name)
        return value if most is None or isinstance(value, Name) else min(value, most)

    def workers_of(self, loader: LoaderNoun) -> int | Name:
        """The workers of a loader."""
        said = self.setting(WORKERS, loader.workers)
        return self.workers if self.workers is not None and said != 0 else said

    def under(self, method: str) -> Setup:
        """The same with another start method."""
        return replace(self, method=method)


class EnvironmentUse(Struct, frozen=True):
    """A variable of the environment that a number depends on."""

    name: str
    value: str | None  # None where it is not set
    place: Place | None  # of what sets it
    assumed: bool  # whether nothing that was read sets it, or what does takes a default: the user's shell may


class Row(Struct, frozen=True):
    """One holder, all ranks together."""

    group: str  # "main process", "workers", "shared memory" ...
    what: str
    size: SizeProduct  # bytes; descriptors in rows of open files
    certainty: Certainty
    place: Place | None
    moments: frozenset[Moment]
    loader: int = -1  # which loader's, where only one of several is at work at a time
    alone: bool = False  # whether that loader is known to be at work without others
    once: bool = False  # however many ranks there are
    perhaps: bool = False  # whether next to nothing may be taken of it: totals do without
    environment: tuple[EnvironmentUse, ...] = ()

    @property
    def bytes(self) -> int | None:
        """Bytes; None where a number is not known. Raises BudgetError beyond 64 bits."""
        return self.size.value

    @property
    def known(self) -> Certainty:
        """How well the bytes are known."""
        if self.bytes is None:
            return Certainty.UNKNOWN
        return Certainty.DEFAULT if self.certainty is Certainty.EXACT and any(one.assumed for one in self.environment) else self.certainty


def active(loader: LoaderNoun, program: Program) -> frozenset[Moment]:
    """When the workers of a loader live. Where no loop over it is known, training reads what is shuffled; those that persist stay."""
    trains = loader.shuffled or not any(one.shuffled or Moment.TRAINING in one.moments for one in program.loaders)
    moments = loader.moments or {Moment.TRAINING if trains else Moment.EVALUATION}
    return frozenset({*moments, Moment.EVALUATION, Moment.CHECKPOINT} if loader.persistent else moments)
