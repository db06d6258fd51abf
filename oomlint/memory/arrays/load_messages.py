"""What the rules on loaded data say of a load: who keeps it, how large it is, what workers do with it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Consequence, Message, Multiplier, Role, Severity, Weighs, is_apart
from oomlint.memory.arrays.kept import DataTransform
from oomlint.memory.arrays.let_go import LetGo
from oomlint.memory.arrays.little_weight import dataset_of, weighs_little
from oomlint.memory.arrays.piecewise import Taken
from oomlint.memory.arrays.torch_load import holds_objects
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.dataset_readers import readers_of
from oomlint.memory.datasets.sample_uses import has_arrays
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.array_bytes import commented
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.memory.shared.known_reads import LAZY, KnownRead
from oomlint.model import names
from oomlint.syntax.nodes import path_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.finding import Place
    from oomlint.memory.arrays.kept import Keeper
    from oomlint.memory.arrays.loads import Load
    from oomlint.memory.arrays.read_calls import FileRead
    from oomlint.model.project import Module

_MOST_RELATED: Final = 4
_MOST_KEEPERS: Final = 2  # that are named before what is read beside
_MOST_BESIDE: Final = 16
_MOST_WITHIN: Final = 2  # reads of a function of the project
_OF_TENSORS: Final = frozenset({PayloadKind.TENSOR, PayloadKind.TENSORS})
_OF_ARRAYS: Final = frozenset({PayloadKind.ARRAY, PayloadKind.ARRAYS})


def _bytes(load: Load) -> str:
    """Bytes of what a statement loads, for a message: a formula, or in words."""
    size = commented(load.module, load.node)
    return f" ({size.words()})" if size is not None else ""


def proven_small(module: Module, node: cst.CSTNode) -> bool:
    """Whether the whole is known to be too small to speak of: by the comment behind it, or by the shape that it is given at once."""
    size = commented(module, node)
    settings = module.project.settings
    shaped = _reshaped(module, node)
    if shaped is not None and shaped < settings.small_elements:
        return True
    if size is None:
        return False
    return (size.exact is not None and size.exact < settings.small_bytes) or (size.elements is not None and size.elements < settings.small_elements)


def _reshaped(module: Module, node: cst.CSTNode) -> int | None:
    """Elements of what is read, where a shape of numbers is given to it in the same expression: ``np.genfromtxt(path).reshape((3, 3))``."""
    parents = module.walk.parents
    func = parents.get(node)
    while isinstance(func, cst.Attribute) and isinstance(call := parents.get(func), cst.Call):
        if func.attr.value in {"reshape", "view"}:
            only = call.args[0].value if len(call.args) == 1 else None
            shape = [part.value for part in only.elements] if isinstance(only, cst.Tuple | cst.List) else [arg.value for arg in call.args]
            sides = [int(part.value) for part in shape if isinstance(part, cst.Integer)]
            return prod(sides) if shape and len(sides) == len(shape) else None
        func = parents.get(call)
    return None


def related(load: Load) -> list[Place]:
    """Who keeps the data, and where it is held twice."""
    own = load.module.place(load.node)
    found: list[Place] = []
    beside = [load.module.place(node).saying("read here, too", Role.AGAIN) for node in load.beside[:_MOST_BESIDE]]
    for keeper in (*_each_once(load.keepers), *(one for one in load.joined if one not in load.keepers)):
        if keeper.put is not None:
            room = _room(*keeper.put)
            into = keeper.put[0].place(keeper.put[1], "added to the others here")
            made = [keeper.put[0].place(room, "made for all of them here")] if room is not None else []
            found.extend(one for one in (*made, into) if is_apart(one, (own,)) and one not in found)
        keeps = f"it stays in {keeper.words}" if keeper.live else f"{keeper.words} keeps it"
        place = keeper.module.place(keeper.node, f"`{keeper.saver}` writes all of it" if keeper.saver else keeps)
        if keeper not in load.joined and is_apart(place, (own,)) and place not in found:
            found.append(place)
        told = {DataTransform.JOINS: "joined into one array: all of it is in memory twice here"}
        if load.read is not None and load.read.origin in LAZY:
            told[DataTransform.READS] = "what was only opened is read into memory here"
        spots = (done.module.place(done.node, told[done.does]) for done in keeper.passed if done.does in told)
        found.extend(spot for spot in spots if spot not in found and is_apart(spot, (own,)))
    # Who keeps it says more than what else is read.
    found = [*found[:_MOST_KEEPERS], *beside, *found[_MOST_KEEPERS:_MOST_RELATED]]
    reads = (*((load.read,) if load.read is not None else ()), *load.read_beside[:_MOST_BESIDE])
    return [*found, *(place for read in reads for place in _inside(read))]


def _inside(read: FileRead) -> list[Place]:
    """Where a function of the project reads that is called."""
    return [module.place(node).saying(f"`{read.origin}` reads it here", Role.INSIDE) for module, node in read.within[:_MOST_WITHIN]]


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


def weighs_of(load: Load) -> Weighs:
    """What a load costs: as much as one file, or as each of many."""
    return Weighs(Consequence.MULTIPLIED, by=(Multiplier.FILES,)) if load.many else Weighs(Consequence.ONCE)


_TAKES: Final = {
    Taken.SLICES: "slices of the array one after the other",
    Taken.ELEMENTS: "one of its objects after the other",
    Taken.ENTRIES: "one sample of the array after the other",
    Taken.LENGTHS: "only the keys and lengths of its objects",
}
_PIECES: Final = {
    Taken.SLICES: 'pass `mmap_mode="r"`, which reads only the slices',
    Taken.ELEMENTS: "store one file per object, or use HDF5",
    Taken.ENTRIES: 'store a `.npy` file and pass `mmap_mode="r"`, or use HDF5',
    Taken.LENGTHS: "store the keys and lengths in a file of their own",
}
ONE_BY_ONE: Final = "store one file per sample, or HDF5, and read it in `__getitem__`"
_REMEDIES: Final = {
    KnownRead.ARCHIVE: "store `.npy` files, which can be memory-mapped, or read each sample in `__getitem__`",
    KnownRead.OBJECT: ONE_BY_ONE,
}
_OBJECTS: Final = frozenset({KnownRead.OBJECT, KnownRead.RECORDS, KnownRead.TEXT})
STREAMS: Final = "write one sample after the other, with HDF5 or `np.lib.format.open_memmap`"


def told(load: Load, headline: str) -> Message:
    """What a rule says of a load: how much of it is kept where, and what worker processes do with it."""
    keeper, much = load.keeper, _bytes(load)
    if keeper.saver:
        return Message(headline, f"all of it{much} is in memory until `{keeper.saver}` writes it", STREAMS)
    if load.all_at_once:
        return Message(headline, f"all of it{much} is in {keeper.words} at once", "process one after the other: that needs the memory of one")
    stays = f"it {'stays in' if keeper.owner is not None or keeper.live else 'goes into'} {keeper.words}{much}"
    if load.module.project.shared(LetGo).is_for_building(keeper):
        return Message(headline, f"{stays}, which nothing reads once that is built", f"`del self.{keeper.attribute}` at the end of `__init__`")
    what = "evaluation" if keeper.evaluated else "training"
    return Message(headline, f"as long as the {what} runs, {stays}" if keeper.live else f"{stays}{_workers(load)}")


def remedy(load: Load) -> str:
    """What to do about a load of a file that cannot be memory-mapped; empty for others."""
    return _REMEDIES.get(load.read.kind, "") if load.read is not None else ""


def told_of_pieces(load: Load, taken: Taken) -> Message:
    """What is said of a load of which the code takes one piece after the other."""
    return Message(f"`{load.words}` reads all of its file", f"the code uses {_TAKES[taken]}{_bytes(load)}", _PIECES[taken])


def severity_of(load: Load, taken: Taken | None = None) -> Severity | None:
    """A note for objects that were pickled or written as text, and that a script has in memory for a while: nothing is decoded, and nothing multiplies them.

    So is what weighs little, and what a script has in one container for a while.
    """
    objects = load.read is not None and load.read.kind in _OBJECTS
    passing = taken is Taken.ELEMENTS if taken is not None else bool(load.keeper.saver)
    return Severity.NOTE if (objects and passing) or (taken is None and (load.pooled or weighs_little(load))) else None


def _workers(load: Load) -> str:
    """What worker processes do with the data of a dataset, where a loader of it is known to have some."""
    owner = load.keeper.owner
    readers = readers_of(load.keeper.module.project).of(owner) if owner is not None else None
    if readers is None or readers.helped is None:
        return ""
    objects = load.read is not None and load.read.kind in _OBJECTS and not _keeps_arrays(load.keeper)
    if objects:
        return f"; each {f'of {readers.workers}' if (readers.count or 0) > 1 else 'worker'} copies the objects it reads"
    return "" if _stays_tensors(load) else "; each spawned worker gets a copy"


def _keeps_arrays(keeper: Keeper) -> bool:
    """Whether a sample uses what the dataset keeps as arrays: workers that are forked copy nothing of those but what Python knows of them."""
    dataset = dataset_of(keeper)
    return dataset is not None and has_arrays(dataset, keeper.attribute, evaluator_of(keeper.module.project))


def _stays_tensors(load: Load) -> bool:
    """Whether a dataset keeps tensors of what is read: they move to shared memory once, and workers get no copies."""
    kinds = set(_kinds_kept(load.keeper))
    if not _OF_TENSORS.isdisjoint(kinds):
        return True
    of_torch = load.read is not None and load.read.kind is KnownRead.TORCH
    return of_torch and _OF_ARRAYS.isdisjoint(kinds) and not holds_objects(load, load.module.project)


def _kinds_kept(keeper: Keeper) -> Iterator[PayloadKind]:
    """What the statements that set the attribute of a dataset make it."""
    owner, datasets = keeper.owner, datasets_of(keeper.module.project)
    for scope in owner.scope.children if owner is not None and keeper.attribute else ():
        for effect in scope.effects.get(names.self_name(scope) or "", ()) if scope.is_function else ():
            sets = effect.kind == "assign" and effect.path == (("attr", keeper.attribute),) and not effect.index
            if owner is not None and sets and effect.value is not None:
                yield datasets.contents.of(effect.value, datasets.evaluator.calls.plain_frame(owner.module, scope)).kind
