"""What the rules on loaded data say of a load: who keeps it, how large it is, what workers do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Consequence, Multiplier, Weighs
from oomlint.memory.arrays.kept import Does
from oomlint.memory.arrays.piecewise import Taken
from oomlint.memory.arrays.read_calls import LAZY, Reads
from oomlint.memory.shared.array_shapes import commented
from oomlint.syntax.walk import path_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oomlint.finding import Place
    from oomlint.memory.arrays.kept import Keeper
    from oomlint.memory.arrays.loads import Load
    from oomlint.model.project import Module

_MOST_RELATED: Final = 4
_MOST_BESIDE: Final = 16
_MOST_WITHIN: Final = 2  # reads of a function of the project


def bytes_of(module: Module, node: cst.CSTNode) -> str:
    """Bytes of what a statement loads, for a message: a formula, or in words."""
    size = commented(module, node)
    return f" ({size.words()})" if size is not None else ""


def proven_small(module: Module, node: cst.CSTNode) -> bool:
    """Whether the whole is known to be too small to speak of."""
    size = commented(module, node)
    if size is None:
        return False
    settings = module.project.settings
    return (size.exact is not None and size.exact < settings.small_bytes) or (size.elements is not None and size.elements < settings.small_elements)


def related(load: Load) -> list[Place]:
    """Who keeps the data, and where it is held twice."""
    own = load.module.place(load.node)
    found: list[Place] = []
    beside = [load.module.place(node, "read here, too") for node in load.beside[:_MOST_BESIDE]]
    for keeper in (*_each_once(load.keepers), *(one for one in load.joined if one not in load.keepers)):
        if keeper.put is not None:
            room = _room(*keeper.put)
            into = keeper.put[0].place(keeper.put[1], "put with the others here")
            made = [keeper.put[0].place(room, "made for all of them here")] if room is not None else []
            found.extend(one for one in (*made, into) if (one.path, one.cell, one.row) != (own.path, own.cell, own.row) and one not in found)
        keeps = f"it stays in {keeper.words}" if keeper.live else f"{keeper.words} keeps it"
        place = keeper.module.place(keeper.node, f"`{keeper.saver}` writes all of it" if keeper.saver else keeps)
        if keeper not in load.joined and (place.path, place.cell, place.row) != (own.path, own.cell, own.row) and place not in found:
            found.append(place)
        told = {Does.JOINS: "joined into one array: all of it is in memory twice here"}
        if load.read is not None and load.read.origin in LAZY:
            told[Does.READS] = "what was only opened is read into memory here"
        spots = (done.module.place(done.node, told[done.does]) for done in keeper.passed if done.does in told)
        found.extend(spot for spot in spots if spot not in found and (spot.path, spot.cell, spot.row) != (own.path, own.cell, own.row))
    if load.read is None:
        return [*beside, *found[:_MOST_RELATED]]
    within = (module.place(node, f"`{load.read.origin}` reads it here") for module, node in load.read.within[:_MOST_WITHIN])
    return [*beside, *found[:_MOST_RELATED], *within]


def _room(module: Module, put: cst.CSTNode) -> cst.BaseExpression | None:
    """The call that makes the array which a statement fills a row of: ``rows = np.empty((n, 64, 64))``."""
    target = put.targets[0].target if isinstance(put, cst.Assign) else None
    if not isinstance(target, cst.Subscript) or (path := path_of(target.value)) is None:
        return None
    effects = module.walk.scope_at(put).effects.get(path[0], ())
    return next((effect.value for effect in effects if effect.kind == "assign" and effect.path == path[1] and isinstance(effect.value, cst.Call)), None)


def _each_once(keepers: Iterable[Keeper]) -> list[Keeper]:
    """The keepers, those first that keep what none before them does: another attribute, another class."""
    first: dict[str, Keeper] = {}
    for keeper in keepers:
        first.setdefault(keeper.words, keeper)
    return [*first.values(), *(keeper for keeper in keepers if first[keeper.words] is not keeper)]


def kept_where(load: Load) -> str:
    """``stays in `data` of `Clips```."""
    if load.keeper.saver:
        return f"all of it is in {load.keeper.words} until `{load.keeper.saver}` writes it"
    return f"stays in {load.keeper.words}" if load.keeper.owner is not None or load.keeper.live else f"goes into {load.keeper.words}"


def weighs_of(load: Load) -> Weighs:
    """What a load costs: as much as one file, or as each of many."""
    return Weighs(Consequence.MULTIPLIED, by=(Multiplier.FILES,)) if load.many else Weighs(Consequence.ONCE)


WRITES: Final = "a file that takes one after the other (HDF5, `np.lib.format.open_memmap`) needs the memory of one"
LIVES: Final = "all of it, for as long as the training runs"
WORKERS: Final = "forked workers share arrays, under spawn and forkserver each gets a copy"
PICKLED: Final = "each forked worker ends up with a copy of the Python objects in it that it reads, under spawn and forkserver each gets a copy of all"
OBJECTS: Final = "each forked worker ends up with a copy of the Python objects that it reads, under spawn and forkserver each gets all from the start"


PIECES: Final = {
    Taken.SLICES: 'slices of the array one after the other: `mmap_mode="r"` reads those alone',
    Taken.ELEMENTS: "one of its objects after the other: a file for each, or one of HDF5, needs the memory of one",
    Taken.LENGTHS: "no more than the keys and lengths of its objects: written beside them, these are read in no time, and in no memory",
}


def workers(load: Load) -> str:
    """What worker processes do with the data."""
    if load.keeper.saver:
        return WRITES
    if load.keeper.live:
        return LIVES
    if load.read is not None and load.read.kind is Reads.OBJECT:
        return PICKLED
    objects = load.read is not None and load.read.kind in {Reads.RECORDS, Reads.TEXT}
    return OBJECTS if objects or (load.read is None and load.whole is None and "Python objects" in load.words) else WORKERS
