"""What a value holds, as far as memory is concerned: a graph, a place on the device, storage that a loader owns.

The states are the catalogue's: graph, device, loader-owned, view, own copy, scalar, unknown. Each is a small ladder of its own, so that two branches that
meet are joined rung by rung.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from oomlint.model.values import Instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from oomlint.model.values import Value

_DEEPEST = 4  # containers inside containers
_MOST_ITEMS = 24
FEW = 10  # numbers for each sample that weigh no more than a label does
ROWS = 2  # axes of an array that has a row for each sample
MAP = 3  # axes of a batch with an array for each sample: (samples, rows, columns)

Path = tuple[object, ...]  # where an object lives: (activation number, name), then names of attributes and constants of subscripts
NOWHERE: Path = ()
SOME_LOADER = "some loader"  # a loader that is one by its name alone
Ids = frozenset[int]
NONE: Ids = frozenset()


class Graph(IntEnum):
    """Whether autograd nodes hang on the value."""

    NO = 0
    MAYBE = 1
    YES = 2


class Device(IntEnum):
    """Where the bytes are."""

    HOST = 0
    UNKNOWN = 1
    ACCELERATOR = 2


class Storage(IntEnum):
    """Whose the bytes are: a tensor of a worker lies in shared memory, with one file descriptor."""

    OWN = 0
    UNKNOWN = 1
    LOADER = 2


class SampleSize(IntEnum):
    """How much there is of it for each sample."""

    SCALAR = 0  # one number for the batch
    SMALL = 1  # a few numbers, a label or an identifier for each sample
    UNKNOWN = 2
    LEFT = 3  # what a sum along an axis leaves of an array for each sample: an array still, or one number, as nobody knows how many axes there were
    DENSE = 4  # an array for each sample: outputs, features, images


class ValueKind(StrEnum):
    """What sort of thing it is."""

    UNKNOWN = "unknown"
    PLAIN = "plain"  # numbers, strings, None: nothing that matters
    TENSOR = "tensor"
    ARRAY = "array"  # numpy
    OPAQUE = "opaque"  # a batch or a module's output: tensors in a structure that nobody knows
    PACK = "pack"  # a list, tuple or dictionary
    ITERABLE = "iterable"
    MODULE = "module"
    OBJECT = "object"


_TENSORLIKE = frozenset({ValueKind.TENSOR, ValueKind.ARRAY, ValueKind.OPAQUE})


class Mode(StrEnum):
    """Whether operations are recorded for a backward pass."""

    ON = "on"
    OFF = "off"
    SWITCHED = "switched"  # on in some passes: `set_grad_enabled(phase == "train")`
    UNKNOWN = "unknown"

    @property
    def records(self) -> Graph:
        """What a module's output carries in this mode."""
        return {Mode.ON: Graph.YES, Mode.SWITCHED: Graph.YES, Mode.OFF: Graph.NO, Mode.UNKNOWN: Graph.MAYBE}[self]

    def joined(self, other: Mode) -> Mode:
        """The mode where two ways come together."""
        if self is other:
            return self
        return Mode.UNKNOWN if Mode.UNKNOWN in {self, other} else Mode.SWITCHED


class LaterMode(Protocol):
    """A mode that is found out when somebody asks: many never do, and callers tell."""

    def told(self) -> Mode:
        """The mode."""


def known_mode(mode: Mode | LaterMode) -> Mode:
    """A mode, found out where it is not known yet."""
    return mode if isinstance(mode, Mode) else mode.told()


def joined_modes(first: Mode | LaterMode, second: Mode | LaterMode) -> Mode | LaterMode:
    """The mode where two ways come together."""
    if first is second:
        return first
    return Mode.UNKNOWN if Mode.UNKNOWN in (first, second) else known_mode(first).joined(known_mode(second))


class TensorState(Struct, frozen=True):
    """One abstract value.

    ``sources`` are the calls (by identity) whose graph it hangs on, ``tags`` the statements that stored it on its way. ``items`` are the known elements of a
    container, ``inside`` joins the others, ``each`` is what iterating gives. ``home`` is where a mutable object lives.
    """

    kind: ValueKind = ValueKind.UNKNOWN
    graph: Graph = Graph.NO
    device: Device = Device.UNKNOWN
    storage: Storage = Storage.OWN
    size: SampleSize = SampleSize.UNKNOWN
    sure: bool = False  # proven to be what ``kind`` says, on every way
    view: bool = False  # a part of a larger storage
    moved: str = ""  # the conversion that it went through last with its graph: "cpu()", "float()"
    sources: Ids = NONE
    tags: Ids = NONE
    items: tuple[tuple[object, TensorState], ...] = ()
    inside: TensorState | None = None
    each: TensorState | None = None
    home: Path = NOWHERE
    value: Value | None = None
    loader: object = None
    frozen: bool = False  # a module whose parameters take no gradients
    exact: bool = False  # a container of which all elements are in ``items``
    dims: int = 0  # axes of a batch of it, at least; of what a module gives; 0 where nobody knows

    @property
    def tensorlike(self) -> bool:
        """Whether it has the methods of a tensor or array, as far as anybody knows."""
        return self.kind in _TENSORLIKE

    @property
    def is_vague(self) -> bool:
        """Whether nobody knows how much there is for each sample."""
        return self.size in {SampleSize.UNKNOWN, SampleSize.LEFT}

    @property
    def weighs(self) -> bool:
        """Whether it is a tensor or array, as far as anybody knows, or as many numbers of Python."""
        return self.tensorlike or (self.kind is ValueKind.PLAIN and self.size is SampleSize.DENSE)

    def having(self, **changes: object) -> TensorState:
        """The same with other fields."""
        return replace(self, **changes)

    @property
    def holds(self) -> bool:
        """Whether it is a container, or an object whose fields are known."""
        return self.kind is ValueKind.PACK or bool(self.items and self.kind is ValueKind.OBJECT)

    def leaves(self, depth: int = 0) -> Iterator[TensorState]:
        """What a container holds, itself where it is none."""
        if not self.holds:
            yield self
            return
        if depth >= _DEEPEST:
            return
        for _, item in self.items:
            yield from item.leaves(depth + 1)
        if self.inside is not None:
            yield from self.inside.leaves(depth + 1)

    @property
    def carries(self) -> Graph:
        """Whether a graph hangs on any part of it."""
        if not self.holds:
            return self.graph
        return max((leaf.graph for leaf in self.leaves()), default=Graph.NO)

    @property
    def all_sources(self) -> Ids:
        """Sources of all parts."""
        if not self.holds:
            return self.sources
        return frozenset().union(*(leaf.sources for leaf in self.leaves()), self.sources)

    @property
    def all_tags(self) -> Ids:
        """Tags of all parts, and of the container itself."""
        return self._tags(0)

    def _tags(self, depth: int) -> Ids:
        if not self.holds or depth >= _DEEPEST:
            return self.tags
        parts = [held for _, held in self.items]
        if self.inside is not None:
            parts.append(self.inside)
        return self.tags.union(*(part._tags(depth + 1) for part in parts))  # noqa: SLF001 - the same class

    def item(self, key: object) -> TensorState | None:
        """A known element."""
        return next((held for name, held in self.items if name == key), None)

    def any(self) -> TensorState:
        """What an element that nobody names can be."""
        parts = [held for _, held in self.items]
        if self.inside is not None:
            parts.append(self.inside)
        found = join_all(parts) if parts else UNKNOWN
        return found.having(tags=found.tags | self.tags) if self.tags else found

    def throughout(self, change: Callable[[TensorState], TensorState], depth: int = 0) -> TensorState:
        """The same with every part of it changed, itself where it has none."""
        if not self.holds or depth >= _DEEPEST:
            return change(self)
        items = tuple((name, held.throughout(change, depth + 1)) for name, held in self.items)
        return self.having(items=items, inside=self.inside.throughout(change, depth + 1) if self.inside is not None else None)

    def unrecorded(self) -> TensorState:
        """The same without a graph: what an operation gives where none is recorded."""
        return self.throughout(lambda held: held if held.graph is Graph.NO and not held.sources else held.without_graph(moved=""))

    def copied(self) -> TensorState:
        """The same in memory of its own."""
        return self.throughout(lambda held: held.having(storage=Storage.OWN, view=False))

    def without_graph(self, **changes: object) -> TensorState:
        """The same, itself off any graph."""
        return self.having(graph=Graph.NO, sources=NONE, **changes)

    def with_item(self, key: object, held: TensorState) -> TensorState:
        """The container with one element set."""
        rest = tuple((name, old) for name, old in self.items if name != key)
        if len(rest) >= _MOST_ITEMS:
            return self.having(inside=join(self.inside, held), exact=False)
        return self.having(items=(*rest, (key, held)))


UNKNOWN = TensorState()
PLAIN = TensorState(ValueKind.PLAIN, size=SampleSize.SCALAR, device=Device.HOST, sure=True)
TOLD_PLAIN = PLAIN.having()  # by a test of its type, on one side of it; where both sides come together, it is what it was


def tensor(**fields: object) -> TensorState:
    """A tensor that is one for certain."""
    return TensorState(ValueKind.TENSOR, sure=True).having(**fields)


def pack(parts: Iterable[tuple[object, TensorState]]) -> TensorState:
    """A container with known elements."""
    items = tuple(parts)
    others = [held for _, held in items[_MOST_ITEMS:]]
    return TensorState(ValueKind.PACK, items=items[:_MOST_ITEMS], inside=join_all(others) if others else None, sure=True, exact=not others)


def join(first: TensorState | None, second: TensorState | None, depth: int = 0) -> TensorState:
    """What holds where two ways come together: sure only of what both say.

    The order of the ways, and how they are grouped, decides nothing. What only one way knows (an element, a place to live, a loader) is known afterwards, since
    whoever asks for it came by that way.
    """
    if first is None or second is None:
        return first or second or UNKNOWN
    if first is second or first == second:
        return first
    items, inside = _elements(first, second, depth) if depth < _DEEPEST else _deepest(first, second)
    return TensorState(
        _kind(first.kind, second.kind),
        first.graph if first.graph == second.graph else Graph.MAYBE,
        first.device if first.device == second.device else Device.UNKNOWN,
        first.storage if first.storage == second.storage else Storage.UNKNOWN,
        _size(first, second),
        first.kind is second.kind and first.sure and second.sure,
        first.view and second.view,
        first.moved if first.moved == second.moved else "",
        first.sources | second.sources,
        first.tags | second.tags,
        items,
        inside,
        _either(first.each, second.each, depth),
        _home(first.home, second.home),
        _object(first.value, second.value),
        _loader(first.loader, second.loader),
        first.frozen or second.frozen,
        first.exact and second.exact and {name for name, _ in first.items} == {name for name, _ in second.items},
        min(first.dims, second.dims),
    )


def either(first: TensorState, second: TensorState) -> TensorState:
    """What a value is behind a choice: a batch that one way leaves as the loader gave it, and the other moves to the device, is there where there is one."""
    found = join(first, second)
    left = [held for held in (first, second) if held.device is not Device.ACCELERATOR]
    return found.having(device=Device.ACCELERATOR) if len(left) == 1 and left[0].storage is Storage.LOADER else found


def _either(first: TensorState | None, second: TensorState | None, depth: int) -> TensorState | None:
    """What one of two ways knows, or both, of an element; nothing where they go deeper than anybody looks."""
    if first is None or second is None or first == second:
        return second if first is None else first
    return join(first, second, depth + 1) if depth < _DEEPEST else UNKNOWN


def _elements(first: TensorState, second: TensorState, depth: int) -> tuple[tuple[tuple[object, TensorState], ...], TensorState | None]:
    """The known elements of either container, and what the others are: those that are too many are no longer told apart."""
    ours, theirs = dict(first.items), dict(second.items)
    names = list(ours) if list(ours) == list(theirs) else sorted({*ours, *theirs}, key=lambda name: (type(name).__name__, repr(name)))
    items = [(name, join(ours.get(name), theirs.get(name), depth + 1)) for name in names]
    inside = _either(first.inside, second.inside, depth)
    for _, held in items[_MOST_ITEMS:]:
        inside = _either(inside, held, depth)
    return tuple(items[:_MOST_ITEMS]), inside


def _deepest(first: TensorState, second: TensorState) -> tuple[tuple[tuple[object, TensorState], ...], TensorState | None]:
    """Elements where nobody looks deeper: those that are the same, else anything."""
    if (first.items, first.inside) == (second.items, second.inside):
        return first.items, first.inside
    return (), UNKNOWN


def _home(first: Path, second: Path) -> Path:
    """Where an object lives that came by either way: of two places the same one, whichever way came first."""
    if first == second or not (first and second):
        return first or second
    return min(first, second, key=lambda path: tuple(map(repr, path)))


def _loader(first: object, second: object) -> object:
    """The loader of either way: one that is known before one that is not, and of two the same one, whichever way came first."""
    if first == second or first in {None, SOME_LOADER} or second in {None, SOME_LOADER}:
        return second if first is None or (first == SOME_LOADER and second is not None) else first
    return min(first, second, key=str)


def _object(first: Value | None, second: Value | None) -> Value | None:
    """What two objects have in common: they are equal, or of one class."""
    if first == second:
        return first
    if isinstance(first, Instance) and isinstance(second, Instance) and first.cls == second.cls:
        return Instance(first.cls, None)
    return None


def _size(first: TensorState, second: TensorState) -> SampleSize:
    """As much as there is on the way with the most of it."""
    return max((held.size for held in (first, second) if held.kind is not ValueKind.PLAIN), default=SampleSize.SCALAR)


def _kind(first: ValueKind, second: ValueKind) -> ValueKind:
    kinds = {first, second}
    if len(kinds) == 1:
        return first
    for likely in (ValueKind.PACK, ValueKind.TENSOR, ValueKind.ARRAY, ValueKind.OPAQUE, ValueKind.MODULE, ValueKind.ITERABLE):
        if kinds == {likely, ValueKind.PLAIN}:
            return likely
    return ValueKind.OPAQUE if kinds == {ValueKind.TENSOR, ValueKind.OPAQUE} else ValueKind.UNKNOWN


def join_all(parts: Iterable[TensorState]) -> TensorState:
    """All ways together."""
    found: TensorState | None = None
    for part in parts:
        found = part if found is None else join(found, part)
    return found or UNKNOWN


def sources_of(parts: Iterable[TensorState]) -> Ids:
    """The calls whose graph hangs on one of several values."""
    return NONE.union(*(held.all_sources for held in parts))


def tags_of(parts: Iterable[TensorState]) -> Ids:
    """Tags of several values."""
    return NONE.union(*(held.all_tags for held in parts))


def is_of_two(name: str, others: Sequence[TensorState]) -> bool:
    """Whether the smaller, or the larger, of the numbers of two tensors is taken: ``torch.min(a, b)``, and not ``torch.min(a, 1)``."""
    return name in {"min", "max"} and bool(others) and (others[0].tensorlike or bool(others[0].carries))


def mixed(parts: Iterable[TensorState]) -> TensorState:
    """The tensor that an operation makes of its operands: a graph in one of them is a graph in the result."""
    graph, device, size, dims = Graph.NO, Device.HOST, SampleSize.SCALAR, 0
    sources: Ids = NONE
    tags: Ids = NONE
    tensors = unknown = 0
    kind = ValueKind.TENSOR
    arrays = 0
    sure = False
    for part in parts:
        tags |= part.all_tags
        if part.kind is ValueKind.PLAIN:
            continue
        for leaf in part.leaves():
            if leaf.kind is ValueKind.PLAIN:
                continue
            sources |= leaf.sources
            graph = max(graph, leaf.graph)
            if leaf.tensorlike:
                tensors += 1
                arrays += leaf.kind is ValueKind.ARRAY
                size = max(size, leaf.size)
                dims = max(dims, leaf.dims)
                sure = sure or (leaf.sure and leaf.kind is ValueKind.TENSOR)
                device = Device.ACCELERATOR if leaf.device is Device.ACCELERATOR else max(device, leaf.device) if device is not Device.ACCELERATOR else device
            else:
                unknown += 1
    if not tensors:
        return UNKNOWN.having(graph=Graph.MAYBE if graph else Graph.NO, sources=sources, tags=tags) if unknown else PLAIN.having(tags=tags)
    if arrays and arrays == tensors:
        kind = ValueKind.ARRAY
    if unknown:
        device = device if device is Device.ACCELERATOR else Device.UNKNOWN
        size = max(size, SampleSize.UNKNOWN)
    return TensorState(kind, graph, device, Storage.OWN, size, sure=sure or kind is ValueKind.TENSOR, sources=sources, tags=tags, dims=dims)


def smaller(held: TensorState, axes: int | None = 1) -> TensorState:
    """A tensor without some of its axes (``None``: nobody knows how many): a class for each pixel is an array for each sample still."""
    dims = max(held.dims - axes, 0) if axes is not None else 0
    if dims >= MAP:
        return held.having(dims=dims)
    return held.having(dims=dims, size=min(held.size, SampleSize.SMALL))


def compared(held: TensorState) -> TensorState:
    """One truth value for each number of a tensor, as large as it is where that is an array for each sample."""
    return held if held.dims >= MAP else held.having(size=min(held.size, SampleSize.SMALL))


def in_lists(held: TensorState) -> TensorState:
    """What ``tolist()`` gives: of an array for each sample as many numbers of Python, each an object; else a few that weigh nothing."""
    return PLAIN.having(size=held.size, dims=held.dims) if held.size is SampleSize.DENSE else PLAIN
