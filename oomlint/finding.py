"""What a check says: findings, the places they name, and the edits that fix them.

This room imports nothing else of the package: everything above it speaks in these nouns.
"""

from __future__ import annotations

import re
from enum import StrEnum
from math import prod
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable


class Severity(StrEnum):
    """How much harm a finding stands for."""

    ERROR = "error"  # the run crashes, or what each step, epoch or sample takes can end it
    WARNING = "warning"  # it crashes only with some possible values or start methods, or wastes memory in proportion to data, workers or steps
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


class Role(StrEnum):
    """What a related place is to its finding."""

    WAY = "way"  # a value comes through it, or it tells more of the problem
    AGAIN = "again"  # the same problem stands there: a comment or a baseline knows it by itself
    BESIDE = "beside"  # another loader of the same data, or a copy of the same code, that is not told by itself
    INSIDE = "inside"  # what the function that is called at the place does there


class Place(Struct, frozen=True):
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
    message: str = ""  # which span it is does not depend on this, nor on its role
    role: Role = Role.WAY

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self._span == other._span

    def __lt__(self, other: Place) -> bool:
        return self._span < other._span

    def __hash__(self) -> int:
        return hash(self._span)

    @property
    def _span(self) -> tuple[str, int, int, int, int, int]:
        return self.path, self.cell, self.row, self.column, self.end_row, self.end_column

    def saying(self, message: str, role: Role = Role.WAY) -> Place:
        """The same span with another message."""
        return replace(self, message=message, role=role)


def overlap(one: Place, other: Place) -> bool:
    """Whether two spans share a character or begin at the same point."""
    if (one.path, one.cell) != (other.path, other.cell):
        return False
    start, end = (one.row, one.column), (one.end_row, one.end_column)
    other_start, other_end = (other.row, other.column), (other.end_row, other.end_column)
    return start == other_start or (start < other_end and other_start < end)


def is_apart(place: Place, others: Iterable[Place]) -> bool:
    """Whether none of the other spans begins in the same row."""
    return all((one.path, one.cell, one.row) != (place.path, place.cell, place.row) for one in others)


def in_own_rows(primary: Place, spots: Iterable[Place]) -> list[Place]:
    """Those spans that begin in a row in which neither the primary one nor one ahead of them begins."""
    found = [primary]
    for spot in spots:
        if is_apart(spot, found):
            found.append(spot)
    return found[1:]


def is_inside(inner: Place, outer: Place) -> bool:
    """Whether a span begins in one of the rows of another."""
    return (inner.path, inner.cell) == (outer.path, outer.cell) and outer.row <= inner.row <= outer.end_row


class Edit(Struct, frozen=True):
    """Replace the characters of ``place`` by ``content``. Its lines end with a line feed; the file's own line ends are put in on applying."""

    place: Place
    content: str


class Fix(Struct, frozen=True):
    """A set of edits that are applied together or not at all. A display fix may have none."""

    safety: Safety
    message: str
    edits: tuple[Edit, ...] = ()


# -- words ---------------------------------------------------------------------------------------------------------------

_MOST: Final = 159  # characters of a headline with its consequence: annotations cut what is longer
_CODE: Final = re.compile(r"`[^`]*`")
_LEAST: Final = 14  # characters that stay of a piece of code, with its backticks


class Message(Struct, frozen=True):
    """What a rule says, in three parts without a full stop: what is wrong, in at most twelve words; what it costs; what to do about it.

    Where there is a fix, it says what to do; where ``help`` is empty, the rule does.
    """

    headline: str
    consequence: str = ""
    help: str = ""

    def fitted(self, more: str = "") -> Message:
        """The message on one line, its longest pieces of code shortened with an ellipsis until headline and consequence fit an annotation.

        Those of the consequence come first; where there is no code left to shorten, the consequence ends earlier. ``more`` of the consequence stays whole.
        """
        headline, consequence = " ".join(self.headline.split()), " ".join(self.consequence.split())
        end = f"; {more}" if more else ""
        while (excess := len(joined(headline, consequence + end)) - _MOST) > 0:
            pieces = [(len(piece), piece) for piece in _CODE.findall(consequence)] + [(len(piece) - _LEAST, piece) for piece in _CODE.findall(headline)]
            longest = max((piece for piece in pieces if len(piece[1]) > _LEAST), default=(0, ""))[1]
            shorter = longest[: max(_LEAST, len(longest) - excess) - 2].rstrip("…") + "…`"
            if not longest or len(shorter) >= len(longest):
                break
            headline, consequence = headline.replace(longest, shorter), consequence.replace(longest, shorter)
        if excess > 0 and (left := len(consequence) - excess - 2) > 0:
            consequence = consequence[: left + 1].rpartition(" ")[0].rstrip(",;") + " …"
        return replace(self, headline=headline, consequence=consequence + end, help=" ".join(self.help.split()))


def joined(headline: str, consequence: str) -> str:
    """The first two parts as one text."""
    return f"{headline}: {consequence}" if consequence else headline


# -- weight --------------------------------------------------------------------------------------------------------------


class Resource(StrEnum):
    """What it is that is held or wasted."""

    IMAGES = "images"  # decoded: images, audio, video, volumes
    ARRAYS = "arrays"
    TENSORS = "tensors"
    RECORDS = "records"  # Python objects: dictionaries, tuples, texts
    NAMES = "names"  # names, paths, ids, keys
    GRAPH = "graph"  # of autograd, with its activations
    HANDLE = "handle"  # an open file and its cache, a descriptor
    PROCESS = "process"
    FIGURE = "figure"  # of matplotlib
    NOTHING = "nothing"  # the run ends, or takes longer
    UNKNOWN = "unknown"


class Multiplier(StrEnum):
    """What a cost is multiplied by."""

    WORKERS = "workers"
    RANKS = "ranks"
    PREFETCH = "prefetch"
    STEPS = "steps"
    EPOCHS = "epochs"
    FILES = "files"
    SAMPLES = "samples"


class Consequence(StrEnum):
    """What becomes of a cost."""

    CRASHES = "crashes"  # the run ends
    GROWS = "grows"  # without an end
    MULTIPLIED = "multiplied"  # paid N times
    ONCE = "once"

    @property
    def rank(self) -> int:
        """0 for the gravest."""
        return list(Consequence).index(self)


class ByteSize(Struct, frozen=True):
    """Bytes: an exact number, a formula ("N * 3 * 4 B") with the number that it is at least, or nothing where nothing is known."""

    exact: int | None = None
    formula: str = ""
    least: int | None = None

    @property
    def known(self) -> int | None:
        """The number, or the one that it is at least."""
        return self.exact if self.exact is not None else self.least


class Factor(Struct, frozen=True):
    """What a cost is multiplied by, and how often that is, where it is known."""

    by: Multiplier
    count: int | None = None


class Weighs(Struct, frozen=True):
    """What a rule says of the weight of its findings, or of one of them: the facts say the rest."""

    consequence: Consequence
    of: Resource = Resource.UNKNOWN  # where the facts say it
    by: tuple[Multiplier | Factor, ...] = ()  # those without a number get it from the facts
    bytes: ByteSize | None = None  # of one; None where the facts say it


class Weight(Struct, frozen=True):
    """What a finding costs: how much of what, how many times, and what becomes of it."""

    consequence: Consequence
    of: Resource
    bytes: ByteSize = ByteSize()  # of one
    factors: tuple[Factor, ...] = ()

    @property
    def total(self) -> int | None:
        """Bytes in all, at least; None where they are not known."""
        known = self.bytes.known
        return None if known is None else known * prod(factor.count or 1 for factor in self.factors)


# -- facts -------------------------------------------------------------------------------------------------------------


class ContentKind(StrEnum):
    """What an attribute holds, by how a worker process gets hold of it."""

    UNKNOWN = "unknown"
    SCALAR = "scalar"
    TEXT = "text"
    SMALL = "small"  # a small container
    PATHS = "paths"  # file names
    OBJECTS = "objects"  # a container of Python objects
    BLOB = "blob"  # loaded as a whole, of unknown make
    ARRAY = "array"
    OBJECT_ARRAY = "object_array"
    ARRAYS = "arrays"
    TENSOR = "tensor"
    TENSORS = "tensors"
    MEMMAP = "memmap"
    FRAME = "frame"
    SHARED = "shared"
    HANDLE = "handle"
    H5 = "h5"
    LOCK = "lock"
    GENERATOR = "generator"
    FUNCTION = "function"
    DATASET = "dataset"


class LoopKind(StrEnum):
    """What one round of a loop is."""

    BATCH = "batch"
    EPOCH = "epoch"
    ROUND = "round"  # anything else, or nobody knows


class StoreKind(StrEnum):
    """How something comes into a container."""

    APPEND = "append"
    EXTEND = "extend"
    ITEM = "item"  # under a key
    AUGMENT = "augment"  # `+=`
    CONCAT = "concat"
    METRIC = "metric"  # handed to a metric of a library
    ASSIGN = "assign"
    WHOLE = "whole"  # all that an iterable gives, at once


class WorkerCount(Struct, frozen=True):
    """A number of workers that a loader can have."""

    count: int | None  # None where it is not a constant
    per_processor: bool = False  # as many as the machine has processors
    usual: bool = True  # whether a plain run has it; else it takes an option or another caller
    place: Place | None = None  # where the number comes from
    option: Place | None = None  # that a file beside the code gives it to


class LoaderFact(Struct, frozen=True):
    """A call that makes a loader, or the arguments that a trainer makes one of."""

    noun: ClassVar[str] = "loader"
    place: Place  # the call
    name: str  # what is called, as it is written
    option: str = ""  # the argument that the finding is about
    workers: tuple[WorkerCount, ...] = ()  # that the finding is about
    start_methods: tuple[str, ...] = ()  # that workers may be started by, sorted; empty where the finding does not depend on it
    start_method_known: bool = False  # whether just one can be meant


class DatasetFact(Struct, frozen=True):
    """The class of a dataset, or of what stands in for one."""

    noun: ClassVar[str] = "dataset"
    place: Place  # the whole class
    name: str  # dotted: "Outer.Inner"


class AttributeFact(Struct, frozen=True):
    """An attribute or a variable that keeps something."""

    noun: ClassVar[str] = "attribute"
    name: str  # as a path: "items", "cache.files"
    owner: str = ""  # the class that has it, dotted; empty where it is none's
    holds: ContentKind = ContentKind.UNKNOWN
    items: str = ""  # what a container of Python objects has in it: "strings", "numbers", "dicts" or nothing where it is not known
    count: int | None = None  # elements, at most
    bytes: ByteSize = ByteSize()
    copied_under: tuple[str, ...] = ()  # start methods under which each worker has a copy from the start, sorted
    place: Place | None = None  # where it is set, else where what it holds is made


class LoopFact(Struct, frozen=True):
    """A loop that makes it grow, or that does it again in each round."""

    noun: ClassVar[str] = "loop"
    place: Place  # the whole statement
    kind: LoopKind = LoopKind.ROUND
    over: str = ""  # how the iterated thing is called
    runs: tuple[Place, ...] = ()  # the calls of modules in its rounds that the finding is about


class StoreFact(Struct, frozen=True):
    """A statement or a call that puts something into a container."""

    noun: ClassVar[str] = "store"
    place: Place
    container: str  # as it is written: "losses", "self.outputs"
    kind: StoreKind = StoreKind.APPEND


class ReadFact(Struct, frozen=True):
    """A call or a subscript that reads from a file, or copies what was read."""

    noun: ClassVar[str] = "read"
    place: Place
    what: str = ""  # what is read, or what reads it: "np.load", "an HDF5 dataset"
    bytes: ByteSize = ByteSize()
    opened: Place | None = None  # where the file is opened
    gives: Resource = Resource.UNKNOWN  # what is in memory then
    within: Place | None = None  # where that is done, in a function that is called there


class AllocationFact(Struct, frozen=True):
    """An expression that makes an array or a tensor."""

    noun: ClassVar[str] = "allocation"
    place: Place
    bytes: ByteSize = ByteSize()


class HandleFact(Struct, frozen=True):
    """A call that opens a file which stays open."""

    noun: ClassVar[str] = "handle"
    place: Place
    library: str = ""  # "h5", "lmdb" ...
    cache_bytes: ByteSize | None = None  # of the chunk cache of each object of the file, where the call asks for one
    in_core: bool = False  # whether the whole file is read into memory when it is opened


class RanksFact(Struct, frozen=True):
    """The processes of a training that run the code, each for itself."""

    noun: ClassVar[str] = "ranks"
    count: int | None = None  # on one machine; None where nobody says how many
    place: Place | None = None  # where that is known from


Fact = LoaderFact | DatasetFact | AttributeFact | LoopFact | StoreFact | ReadFact | AllocationFact | HandleFact | RanksFact

_Noun = TypeVar("_Noun", LoaderFact, DatasetFact, AttributeFact, LoopFact, StoreFact, ReadFact, AllocationFact, HandleFact, RanksFact)


class Told(Struct, frozen=True):
    """What a question of the model has to tell of one place; a rule makes a finding of it. What is not given is as the rule declares it."""

    place: Place
    message: Message
    severity: Severity | None = None
    confidence: Confidence = Confidence.HIGH
    related: tuple[Place, ...] = ()
    fix: Fix | None = None
    facts: tuple[Fact, ...] = ()
    weighs: Weighs | None = None
    given: tuple[Place, ...] = ()  # in files beside the code that give the numbers it is about


class Finding(Struct, frozen=True):
    """One thing that a rule says about one place.

    ``code`` is ``None`` for a file that could not be read or parsed; ``headline`` then holds the cause, and the other two parts are empty.
    ``related`` tells the story: the places through which the value came. ``facts`` are what programs read of a finding: words are for people.
    """

    code: str | None
    name: str
    headline: str  # what is wrong
    severity: Severity
    confidence: Confidence
    place: Place
    related: tuple[Place, ...] = ()
    fix: Fix | None = None
    facts: tuple[Fact, ...] = ()
    weight: Weight | None = None  # of every finding of a rule
    consequence: str = ""  # what it costs
    help: str = ""  # what to do about it
    given: tuple[Place, ...] = ()  # where files beside the code give the numbers that cause it, if code itself does not: it is told at the first of them
    found: Finding | None = None  # as it was found, if it is told at another place, without its fix, or with those of others

    @property
    def message(self) -> str:
        """The headline and the consequence."""
        return joined(self.headline, self.consequence)

    @property
    def advice(self) -> str:
        """What to do about it, and which fix does that; empty where there is nothing to say."""
        safety = self.fix.safety if self.fix is not None and self.fix.edits else Safety.DISPLAY
        return f"{self.help}{'' if safety is Safety.DISPLAY else f' ({safety.value} fix)'}" if self.help else ""

    def adding(self, words: str) -> Finding:
        """The same finding, with more to say of what it costs."""
        told = Message(self.headline, self.consequence).fitted(words) if self.consequence else Message(self.headline, words).fitted()
        return replace(self, headline=told.headline, consequence=told.consequence)

    @property
    def as_found(self) -> Finding:
        """The finding as it was found, whatever is told of it."""
        return self.found or self

    @property
    def alike(self) -> tuple[Finding, ...]:
        """The finding once for each place that it stands for: its own, and those of the same problem that a rule tells with it."""
        return (self, *(replace(self, place=place.saying(""), related=(), given=()) for place in self.related if place.role is Role.AGAIN))

    @property
    def sort_key(self) -> tuple[str, int, int, int, str, str]:
        """Order of output: file, place, code."""
        spot = self.place
        return (spot.path, spot.cell, spot.row, spot.column, self.code or "", self.message)

    @property
    def weight_key(self) -> tuple[object, ...]:
        """Order by weight: severity, what becomes of it, bytes where they are known, place. What cannot be checked comes first."""
        if self.weight is None:
            return (-1, 0, 0, self.sort_key)
        return (self.severity.rank, self.weight.consequence.rank, -(self.weight.total or 0), self.sort_key)

    @property
    def places(self) -> tuple[Place, ...]:
        """Where it stands, and where its facts do."""
        found = (fact.place for fact in self.facts)
        return (self.place, *dict.fromkeys(place for place in found if place is not None and place != self.place))

    def of_noun(self, noun: type[_Noun]) -> tuple[_Noun, ...]:
        """The facts of one noun, in their order."""
        return tuple(fact for fact in self.facts if isinstance(fact, noun))
