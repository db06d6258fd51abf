"""What a program is made of, as far as its memory goes: plain values, nothing of a tree."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oomlint.budget.sizes import Name, SizeProduct
from oomlint.budget.values import BATCH, PREFETCH, WORKERS

if TYPE_CHECKING:
    from oomlint.budget.values import Values
    from oomlint.finding import ContentKind, Place
    from oomlint.memory.shared.shaped import ShapedArray


class Moment(StrEnum):
    """When something is in memory."""

    CONSTRUCTION = "construction"
    START = "start of workers"
    TRAINING = "first epoch"
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"


NO_LOADER = Name("batches")  # of a program in which no loader is seen
UNKNOWN_METHOD = "unknown"  # a start method that the code chooses, nobody knows which
PARAMETERS, GRADIENTS, STATE = "parameters", "gradients", "state"
ALL_OF_IT = frozenset({PARAMETERS, GRADIENTS, STATE})  # of a model that is trained
RUNNING = frozenset({Moment.START, Moment.TRAINING, Moment.EVALUATION, Moment.CHECKPOINT})


class Certainty(StrEnum):
    """How well the bytes are known."""

    EXACT = "exact"
    DEFAULT = "default"  # exact, unless the environment sets a variable
    ABOUT = "about"  # by a cost that was measured
    AT_LEAST = "at least"
    AT_MOST = "at most"
    UNKNOWN = "unknown"


class Container(Struct, frozen=True):
    """What a dataset keeps in memory."""

    name: str
    owner: str
    kind: ContentKind
    items: str  # as in AttributeFact
    size: SizeProduct
    certainty: Certainty
    place: Place | None
    read: bool  # whether a sample is taken from it
    file: str = ""  # the data file that its shape comes from
    named: str = ""  # the one that the code reads it from, where its shape is not taken from there
    before: SizeProduct | None = None  # the array that it was read into, where that became one of another type; the pieces that it was joined of
    same: object = None  # what is equal for all names of one array; None where nobody knows
    within: object = None  # what is equal to ``same`` of the container that it is a part of
    counted: bool = False  # whether another dataset has it, too, and has the row
    joined: bool = False  # whether it was joined of pieces
    shown: ShapedArray | None = None  # what it is, where its size is that of an array in another shape, all of which it keeps


class Opened(Struct, frozen=True):
    """Files that a dataset keeps open."""

    name: str
    count: int | Name
    place: Place
    lazy: bool = False  # whether the first sample opens them, not the constructor


class ChunkCache(Struct, frozen=True):
    """What HDF5 keeps of the chunks that are read through an object of a file, in each process that does so."""

    name: str
    size: SizeProduct  # at most; no more than the chunks of the data, and data that lie in one piece have none
    place: Place


class BudgetDataset(Struct, frozen=True):
    """A dataset: one object in the main process, however many loaders read it."""

    name: str
    place: Place
    containers: tuple[Container, ...]
    cell: int = 0  # of the notebook, that makes it
    number: int = 1  # among the datasets of its name
    opened: tuple[Opened, ...] = ()
    caches: tuple[ChunkCache, ...] = ()

    def whole(self, one: Container) -> Name:
        """What all that a container takes is called, where the code tells but the least of it."""
        return Name(one.name if self.number == 1 else f"{one.name}#{self.number}", one.owner)

    def as_told(self, one: Container, values: Values) -> Container:
        """A container; where the code tells but the least of it, with the bytes that are given in place of that."""
        told = one.certainty is Certainty.AT_LEAST and isinstance(values.of(self.whole(one)), int)
        return replace(one, size=SizeProduct((self.whole(one),)), certainty=Certainty.EXACT) if told else one


class LoaderNoun(Struct, frozen=True):
    """A loader, as one run of the program makes it. ``name`` is what it is bound to, else its class."""

    place: Place
    name: str
    workers: int | Name
    batch: int | Name
    prefetch: int | Name
    workers_from: Place | None
    persistent: bool
    shuffled: bool
    method: str  # that the code or the settings name, or ``UNKNOWN_METHOD``; empty where it is left to the system
    sources: tuple[BudgetDataset, ...]
    sample: SizeProduct
    pinned: bool = False
    literals: tuple[tuple[str, Place], ...] = ()  # settings whose number the code writes, and where
    without: tuple[tuple[Place, str], ...] | None = ()  # what has to be written where so that it may have no workers; None where nobody can say
    moments: frozenset[Moment] = frozenset()  # at which loops go through it; empty where nobody has seen one
    alone: bool = False  # whether no other loader is at work while a loop goes through it
    samples: int | Name | None = None  # of the part of its dataset that it reads; None where it reads all
    refused: tuple[tuple[str, Place], ...] = ()  # what torch raises an error for, and where

    def setting(self, name: str) -> int | Name:
        """What the program gives for one of the settings that ``--set`` goes before."""
        return {WORKERS: self.workers, BATCH: self.batch, PREFETCH: self.prefetch}[name]


class Holdings(Struct, frozen=True):
    """What is held beside loaders and datasets: what grows, caches, buffers, peaks, checkpoints."""

    what: str
    size: SizeProduct
    certainty: Certainty
    place: Place
    moments: frozenset[Moment]
    in_workers: bool = False
    with_model: bool = False  # whether it lies where the model is: graphs


class LayerNumbers(Struct, frozen=True):
    """Numbers that layers hold."""

    numbers: int = 0  # that are trained, as far as they are known
    kept: int = 0  # bytes beside them, of buffers
    missing: tuple[Name, ...] = ()  # the parameters of layers whose sizes nobody knows

    def plus(self, other: LayerNumbers) -> LayerNumbers:
        """Both."""
        return LayerNumbers(self.numbers + other.numbers, self.kept + other.kept, tuple(dict.fromkeys((*self.missing, *other.missing))))

    def times(self, count: int) -> LayerNumbers:
        """So many of them."""
        return LayerNumbers(self.numbers * count, self.kept * count, self.missing)


class Trained(Struct, frozen=True):
    """A model that an optimizer trains; one that is only moved to a device has no ``optimizer``."""

    name: str
    counted: LayerNumbers
    optimizer: str
    state: int | Name  # numbers that the optimizer keeps for each that it trains
    copies: int  # of the whole model, beside it
    on_device: bool
    place: Place
    frozen: bool = False  # whether the program freezes parameters: which, nobody counts
    host_copies: int = 0  # that lie on the host, wherever the model is
    copied: bool = True  # whether it is certain that there are as many: no test decides it
    sharded: frozenset[str] = frozenset()  # of `ALL_OF_IT`, that of which each rank has its part only
    on_host: frozenset[str] = frozenset()  # of `ALL_OF_IT`, what lies on the host
    master: bool = False  # whether the optimizer has a copy of the parameters in four bytes
    item: int = 4  # bytes of one number
    saved_on_host: bool = False  # whether activations wait there until they are needed


class Program(Struct, frozen=True):
    """What one command runs."""

    path: str
    cell: int  # of a notebook; 0 for a script
    loaders: tuple[LoaderNoun, ...]
    sources: tuple[BudgetDataset, ...]  # all that are in memory by then
    held: tuple[Holdings, ...] = ()
    ranks: int = 1
    ranks_place: Place | None = None
    ranks_open: bool = False  # several processes, and nobody says how many
    trained: tuple[Trained, ...] = ()
    by_name: bool = False  # whether tensors are shared by the name of a file, not by a descriptor

    @property
    def ranks_by_code(self) -> bool:
        """Whether the code itself starts the processes: not somebody's command line."""
        return self.ranks_place is not None and self.ranks_place.path.endswith((".py", ".ipynb"))

    @property
    def names(self) -> tuple[Name, ...]:
        """Everything that a number can be set for."""
        kept = [(source, one) for source in self.sources for one in source.containers]
        found = [name for source, one in kept for name in (*one.size.missing, *([source.whole(one)] if one.certainty is Certainty.AT_LEAST else []))]
        found += [one.count for source in self.sources for one in source.opened if isinstance(one.count, Name)]
        found += [name for source in self.sources for one in source.caches for name in one.size.missing]
        for loader in self.loaders:
            found += [] if loader.sources else [Name(f"dataset of {loader.name}")]
            found += [*loader.sample.missing, *(one for one in (loader.workers, loader.batch, loader.prefetch) if isinstance(one, Name))]
        found += [] if self.loaders else [NO_LOADER]
        found += [name for one in self.held for name in one.size.missing]
        for one in self.trained:
            found += [*one.counted.missing, activations_of(one), *([one.state] if isinstance(one.state, Name) else [])]
        return tuple(dict.fromkeys(found))


def activations_of(model: Trained) -> Name:
    """What the layers keep of a step until it goes backward: nobody can tell it from the constructor."""
    return Name(f"activations of {model.name}")
