"""Files that are read whole by code that takes one part of them after the other: the parts of an array that a loop indexes, the objects of a pickle."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct, field

from oomlint.api_names import COLLECTIONS, FACTS, GOES_OVER, LOOKS, OF_ARRAYS
from oomlint.memory.arrays.full_reads import ArrayPlace, whole_reads_of
from oomlint.memory.arrays.kept import kept_of
from oomlint.memory.arrays.kept_forms import is_key
from oomlint.memory.datasets.serving import picks_some
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.known_reads import KnownRead
from oomlint.model import names
from oomlint.model.uses import NameUses
from oomlint.model.values import External
from oomlint.scout.telling_names import ADDS
from oomlint.syntax.nodes import descend, names_in, uses_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.arrays.read_calls import FileRead
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_DIMENSIONS: Final = 3  # of an array that a loop takes apart: one of two is a table, and that is small
_GOES: Final = GOES_OVER | COLLECTIONS
_ENTRIES: Final = frozenset({"items", "values"})
# What only arrays have, and libraries whose functions take signals and pictures.
_LIBRARIES: Final = frozenset("librosa cv2 soundfile torchaudio skimage scipy PIL torchvision imageio mne trimesh open3d".split())
_CONVERTS: Final = frozenset("torch.from_numpy torch.as_tensor torch.Tensor torch.FloatTensor".split())
_DEEPEST: Final = 3


class Taken(Enum):
    """What the code around a read needs of it at a time."""

    SLICES = "slices of the array"
    ELEMENTS = "one of its objects"
    ENTRIES = "one sample of an array in an archive"
    LENGTHS = "the keys and the lengths of its objects"


class _Use(Struct):
    """What is seen of the uses of what was read."""

    whole: bool = False  # something takes all of it, or nobody knows
    written: bool = False  # it is changed in place
    keys: bool = False  # it is one array of several in a file
    parts: list[cst.CSTNode] = field(default_factory=list)  # taken again and again
    arrays: bool = False  # a part is an array
    images: bool = False  # a part has two dimensions and more, or goes to a library of pictures and signals
    lengths: bool = False  # of a part its length is asked for
    other: bool = False  # a part is used, whatever for
    items: bool = False  # so is what a loop over it gives: the parts of a list, the keys of a dictionary
    looked_up: bool = False  # parts are picked by an index or a key
    streamed: cst.CSTNode | None = None  # all of it is copied into a file that stays on the disk
    dimensions: int = 0  # it has at least so many
    named: set[str] = field(default_factory=set)  # what it goes by, and numbers that are made of its shape


class Piecewise(Struct, frozen=True):
    """A read of a whole file, and where the first part of it is taken."""

    taken: Taken
    place: cst.CSTNode


def piecewise(project: Project, read: FileRead) -> Piecewise | None:
    """How what a call reads is used up part by part in the function that it stands in; ``None`` where something needs all of it, or nobody knows."""
    name, statement = _bound(read)
    if name is None or statement is None or read.kind not in {KnownRead.ARRAY, KnownRead.OBJECT, KnownRead.ARCHIVE}:
        return None
    entry = not isinstance(statement, cst.Assign) or statement.value is not read.node
    use = _Use()
    _Uses(project, read.module, use).follow(read.scope, name, statement, 0)
    if use.whole:
        return None
    if entry:  # of an archive, which reads all of an array whatever is taken of it
        return Piecewise(Taken.ENTRIES, use.parts[0]) if use.images and use.parts and not use.written else None
    if read.kind is KnownRead.ARRAY:
        plain = read.name == "numpy.load" and not use.written and not use.keys
        through = (part for part in use.parts if use.dimensions >= _DIMENSIONS and _goes_through(read.module, part, use.named))
        where = use.streamed or next(through, None)
        return Piecewise(Taken.SLICES, where) if plain and where is not None else None
    if use.written or not use.parts or read.kind is KnownRead.ARCHIVE:
        return None
    if use.arrays:
        return Piecewise(Taken.ELEMENTS, use.parts[0])
    # What is gone through and looked up by a key is a dictionary: the loop gives its keys.
    only = use.lengths and not use.other and (use.looked_up or not use.items)
    return Piecewise(Taken.LENGTHS, use.parts[0]) if only else None


def _goes_through(module: Module, part: cst.CSTNode, named: set[str]) -> bool:
    """Whether a loop around a part counts what the array has: one that goes over something else may need a few of it."""
    own = (part,) if isinstance(part, cst.For | cst.CompFor) else ()
    return any(uses_name(header.iter, named) for header in (*own, *names.headers(module.walk, part)))


def _bound(read: FileRead) -> tuple[str | None, cst.CSTNode | None]:
    """The one name that the result of a read, or one entry of an archive, gets, and the statement that gives it."""
    holder = read.module.walk.parents.get(read.node)
    if isinstance(holder, cst.Subscript) and holder.value is read.node and is_key(holder) and read.name == "numpy.load":
        holder = read.module.walk.parents.get(holder)
    target = holder.targets[0].target if isinstance(holder, cst.Assign) and len(holder.targets) == 1 else None
    return (target.value, holder) if isinstance(target, cst.Name) and read.scope.sets(target.value) else (None, None)


class _Uses:
    """Looks at every use of what was read."""

    def __init__(self, project: Project, module: Module, use: _Use) -> None:
        self.project = project
        self.module = module
        self.evaluator = evaluator_of(project)
        self.kept = kept_of(project)
        self.use = use
        self.seen: set[tuple[Scope, str]] = set()

    def follow(self, scope: Scope, name: str, definition: cst.CSTNode, depth: int) -> None:
        """Look at the uses of a name from where it is set to where it is set again."""
        if (scope, name) in self.seen or depth > _DEEPEST or name in self.module.walk.shared or (scope.parent is None and self._elsewhere(name)):
            self.use.whole = self.use.whole or (scope, name) not in self.seen
            return
        self.seen.add((scope, name))
        self.use.named.add(name)
        for node in self._reached(scope, name, definition):
            self._of_whole(scope, node, definition, depth)
            if self.use.whole:
                return

    def _elsewhere(self, name: str) -> bool:
        """Whether a function of the module reads the global name."""
        return any(
            isinstance(node, cst.Name) and node.value == name and not isinstance(self.module.walk.parents.get(node), cst.Attribute | cst.Param)
            for child in self.module.root.children
            if not isinstance(child.node, cst.Lambda) and not child.sets(name)
            for node in child.nodes()
        )

    def _reached(self, scope: Scope, name: str, definition: cst.CSTNode) -> Iterator[cst.Name]:
        """Uses of a name that one definition of it reaches."""
        effect = next((one for one in scope.effects.get(name, ()) if one.statement is definition and not one.path), None)
        return NameUses(self.module.walk, scope, name).of(effect)

    def _is_bound(self, node: cst.Name) -> bool:
        """Whether a name is set here, or is no variable at all."""
        return self.module.walk.is_word(node) or isinstance(self.module.walk.parents.get(node), cst.AssignTarget | cst.Del | cst.Param)

    def _of_whole(self, scope: Scope, node: cst.BaseExpression, definition: cst.CSTNode, depth: int) -> None:
        """What is done with all of it."""
        walk, use = self.module.walk, self.use
        holder = walk.parents.get(node)
        match holder:
            case cst.Attribute() if holder.value is node:
                self._attribute(scope, holder, definition, depth)
            case cst.Subscript() if holder.value is node:
                self._subscript(scope, holder, definition, depth)
            case cst.Arg():
                call = walk.parents[holder]
                last = names.last_name(call.func) if isinstance(call, cst.Call) else ""
                if last in LOOKS:
                    self._counted(walk.parents.get(call) if last == "len" else None)
                    return
                if last in _GOES and isinstance(call, cst.Call):
                    self._of_whole(scope, call, definition, depth)
                else:
                    use.whole = True
            case cst.For() if holder.iter is node:
                self._elements(scope, holder, node, depth)
            case cst.CompFor() if holder.iter is node:
                self._elements(scope, holder, node, depth)
            case cst.Comparison() | cst.ComparisonTarget() | cst.Del() | cst.Expr():
                pass
            case cst.Assign() if holder.value is node:
                self._assigned(scope, holder, node, depth)
            case _:
                use.whole = True

    def _assigned(self, scope: Scope, statement: cst.Assign, node: cst.BaseExpression, depth: int) -> None:
        """All of it gets another name, or is copied into a file that is mapped."""
        target = statement.targets[0].target
        if len(statement.targets) != 1:
            self.use.whole = True
        elif isinstance(target, cst.Subscript) and self._on_disk(target.value):
            self.use.streamed = self.use.streamed or statement
        elif isinstance(target, cst.Name):
            if isinstance(node, cst.Name | cst.Subscript):
                self.follow(scope, target.value, statement, depth + 1)
            else:  # `keys = list(data)`: what a list has of an array is all of it, of a dictionary its keys
                self.use.lengths = True
        else:
            self.use.whole = True

    def _counted(self, statement: cst.CSTNode | None) -> None:
        """Its length, or its shape, gets a name."""
        if isinstance(statement, cst.Assign):
            self.use.named.update(name for target in statement.targets for name in names_in(target.target))

    def _on_disk(self, node: cst.BaseExpression) -> bool:
        """Whether an array is one of a file: a memory map, a dataset of HDF5."""
        frame = self.evaluator.calls.plain_frame(self.module, self.module.walk.scope_at(node))
        what = whole_reads_of(self.project).dataset(node, frame)
        return what is not None and what.store in {ArrayPlace.MEMMAP, ArrayPlace.H5, ArrayPlace.ZARR}

    def _attribute(self, scope: Scope, node: cst.Attribute, definition: cst.CSTNode, depth: int) -> None:
        walk, use, name = self.module.walk, self.use, node.attr.value
        holder = walk.parents.get(node)
        if name in FACTS:
            if isinstance(holder, cst.Assign) and isinstance(holder.targets[0].target, cst.Tuple):
                use.dimensions = max(use.dimensions, len(holder.targets[0].target.elements))
            self._counted(walk.parents.get(holder) if isinstance(holder, cst.Subscript) else holder)
        elif isinstance(holder, cst.Call) and holder.func is node and name in {"keys", "__len__"}:
            use.lengths = True
        elif isinstance(holder, cst.Call) and holder.func is node and name in _ENTRIES:
            self._of_whole(scope, holder, definition, depth)
        elif isinstance(holder, cst.Call) and holder.func is node and name == "get" and holder.args and self._repeated(holder, definition):
            self._part(scope, holder, depth)
        else:
            use.whole = True

    def _subscript(self, scope: Scope, node: cst.Subscript, definition: cst.CSTNode, depth: int) -> None:
        use = self.use
        if self.module.walk.is_target(node) or isinstance(self.module.walk.parents.get(node), cst.AugAssign):
            use.written = True
            return
        use.dimensions = max(use.dimensions, len(node.slice))
        key = node.slice[0].slice.value if isinstance(node.slice[0].slice, cst.Index) else None
        if isinstance(key, cst.BaseString):
            use.keys = True
            self._of_whole(scope, node, definition, depth)
        elif picks_some(node):
            if self._repeated(node, definition):
                self._part(scope, node, depth)
            else:
                use.other = True
        else:
            self._of_whole(scope, node, definition, depth)

    def _repeated(self, node: cst.CSTNode, definition: cst.CSTNode) -> bool:
        """Whether an expression is evaluated again and again for what was read once: in a loop, or in a function that is handed on."""
        around = set(self.module.walk.ancestors(definition))
        loop = self.kept.gathering(self.module, node)
        lambdas = (here for here in self.module.walk.ancestors(node) if isinstance(here, cst.Lambda))
        return (loop is not None and loop not in around) or next(lambdas, None) is not None

    def _elements(self, scope: Scope, loop: cst.For | cst.CompFor, node: cst.BaseExpression, depth: int) -> None:
        """A loop goes through it."""
        walk, use = self.module.walk, self.use
        body: cst.CSTNode = loop
        while isinstance(body, cst.CompFor):
            body = walk.parents[body]
        bound = names_in(loop.target)
        direct = not (isinstance(node, cst.Call) and names.last_name(node.func) in _ENTRIES)
        before, use.other = use.other, False
        for one in descend(body):
            if isinstance(one, cst.Name) and one.value in bound and not self._is_bound(one) and loop.target not in (one, *walk.ancestors(one)):
                self._of_part(scope, one, depth)
        if direct:
            use.items, use.other = use.items or use.other, before
        use.other = use.other or before
        use.parts.append(loop)

    def _part(self, scope: Scope, node: cst.BaseExpression, depth: int) -> None:
        """One part is taken."""
        self.use.parts.append(node)
        self.use.looked_up = True
        self._of_part(scope, node, depth)

    def _of_part(self, scope: Scope, node: cst.BaseExpression, depth: int) -> None:
        """What is done with a part: is it an array, is only its length asked for, or are all of them gathered again?"""
        walk, use = self.module.walk, self.use
        holder = walk.parents.get(node)
        match holder:
            case cst.Attribute() if holder.value is node and holder.attr.value in OF_ARRAYS:
                use.arrays = True
                use.images = use.images or (holder.attr.value == "shape" and self._spreads(holder))
            case cst.Subscript() if holder.value is node:
                use.arrays = use.arrays or len(holder.slice) > 1
                use.other = True
            case cst.Arg():
                call = walk.parents[holder]
                last = names.last_name(call.func) if isinstance(call, cst.Call) else ""
                use.lengths = use.lengths or last == "len"
                use.other = use.other or last != "len"
                use.whole = use.whole or last in ADDS
                takes = isinstance(call, cst.Call) and self._takes_arrays(call)
                use.arrays, use.images = use.arrays or takes, use.images or takes
            case cst.Assign():
                target = holder.targets[0].target
                if isinstance(target, cst.Subscript):
                    use.whole = use.whole or not self._on_disk(target.value)
                elif isinstance(target, cst.Name) and depth < _DEEPEST:
                    for one in self._reached(scope, target.value, holder):
                        self._of_part(scope, one, depth + 1)
                else:
                    use.other = True
            case cst.ListComp() | cst.SetComp() | cst.DictComp() if not (isinstance(holder, cst.DictComp) and holder.key is node):
                use.whole = use.whole or isinstance(node, cst.Subscript)
                use.other = True
            case _:
                use.other = True

    def _spreads(self, shape: cst.Attribute) -> bool:
        """Whether two numbers of a shape and more get names: ``height, width = part.shape[:2]``."""
        holder = self.module.walk.parents.get(shape)
        holder = self.module.walk.parents.get(holder) if isinstance(holder, cst.Subscript) else holder
        target = holder.targets[0].target if isinstance(holder, cst.Assign) else None
        return isinstance(target, cst.Tuple) and len(target.elements) > 1

    def _takes_arrays(self, call: cst.Call) -> bool:
        """Whether a call is of a library that works on signals and pictures."""
        frame = self.evaluator.calls.plain_frame(self.module, self.module.walk.scope_at(call))
        return any(
            isinstance(alt.value, External) and (alt.value.name.partition(".")[0] in _LIBRARIES or names.canonical(alt.value.name) in _CONVERTS)
            for alt in self.evaluator.values(call.func, frame)[:2]
        )
