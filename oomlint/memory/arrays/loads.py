"""Data that is read whole and kept by a dataset: where it is read, who keeps it, how many bytes where that is known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import TENSOR_TYPES
from oomlint.memory.arrays.first_asked import filled_when_asked
from oomlint.memory.arrays.full_reads import ArrayPlace, whole_reads_of
from oomlint.memory.arrays.kept import DataTransform, kept_of
from oomlint.memory.arrays.kept_forms import has_bounds
from oomlint.memory.arrays.kept_state import is_for_each
from oomlint.memory.arrays.let_go import LetGo
from oomlint.memory.arrays.piecewise import Piecewise, piecewise
from oomlint.memory.arrays.read_calls import chosen_by_loop, read_calls_of
from oomlint.memory.arrays.said_small import axes_of, said_small
from oomlint.memory.arrays.small_files import of_small_file
from oomlint.memory.arrays.whole_passes import WholePasses
from oomlint.memory.arrays.written_over import written_over
from oomlint.memory.buffers.caches import emptied_by_round
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.datasets.name_uses import names_files
from oomlint.memory.datasets.sample_uses import takes_index
from oomlint.memory.datasets.serving import picks_some
from oomlint.memory.handles.open_file_collections import keeps_many
from oomlint.memory.handles.openings import Opens, openings_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.array_bytes import few_a_sample
from oomlint.memory.shared.attribute_names import annotates, is_aid, looks_like_data, small_key, small_name
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.memory.shared.known_reads import LAZY, READS_IN_PLACE, WHOLE, KnownRead
from oomlint.model import arguments, names
from oomlint.model.reach import path_conditions
from oomlint.model.readings import AnswerMemory
from oomlint.model.tensor_state import ROWS
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import ClassRef, External, ExternalCall, Instance, SourceExpression, is_usual
from oomlint.syntax.nodes import descend, orders, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.arrays.full_reads import WholeRead
    from oomlint.memory.arrays.kept import Keeper
    from oomlint.memory.arrays.read_calls import FileRead
    from oomlint.memory.shared.content_kinds import Content
    from oomlint.model.calls import CallSite
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_LONGEST: Final = 7  # names on the way of a sample
_MOST_FRAMES: Final = 4
_MAKES_TENSORS: Final = TENSOR_TYPES | {"from_numpy", "as_tensor", "tensor"}
_MOST_CALLERS: Final = 16
_OF_MACHINE: Final = frozenset({"psutil.virtual_memory", "psutil.swap_memory", "os.sysconf"})  # what tells how much memory there is
_IS_REFERENCE: Final = re.compile(r"\[[^\]]*\bref")
_FILES_OF_SAMPLES: Final = frozenset(
    {KnownRead.SAMPLE, KnownRead.ARRAY, KnownRead.ARCHIVE, KnownRead.OBJECT}
)  # where there are many; files of tensors may be models


class Load(Struct, frozen=True, eq=False):
    """A read whose result a dataset keeps."""

    module: Module
    scope: Scope
    node: cst.BaseExpression
    words: str  # what is read
    keepers: tuple[Keeper, ...]
    many: bool  # of many files
    read: FileRead | None = None  # by a library or a function of the project
    whole: WholeRead | None = None  # of an HDF5 file
    beside: tuple[cst.BaseExpression, ...] = ()  # other reads of the same function for the same dataset
    read_beside: tuple[FileRead, ...] = ()  # by them
    joined: tuple[Keeper, ...] = ()  # calls that make one array of a list of it, which nobody has to keep
    pooled: bool = False  # a script puts all of it into one container, whatever becomes of that

    @property
    def keeper(self) -> Keeper:
        """The one to speak of."""
        return self.keepers[0]

    @property
    def all_at_once(self) -> bool:
        """Whether a script has all of it in one container or array, and no loop is known for which it is there."""
        return self.pooled or self.keeper in self.joined

    @property
    def of_object(self) -> bool:
        """Whether an object keeps it that is no dataset."""
        return self.keeper.live and self.keeper.owner is None and bool(self.keeper.attribute)


class Arrays:
    """The loads of a project. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)
        self.kept = kept_of(project)
        self.reads = read_calls_of(project)
        self.constructions = constructions_of(project)
        self.let_go = project.shared(LetGo)
        self.whole = project.shared(WholePasses)
        self._memo: AnswerMemory[Module, tuple[Load, ...]] = AnswerMemory(project.readings)
        self._handed: AnswerMemory[Module, tuple[Load, ...]] = AnswerMemory(project.readings)
        self._h5: AnswerMemory[Module, tuple[Load, ...]] = AnswerMemory(project.readings)
        self._sliced: AnswerMemory[Scope, frozenset[tuple[str, bool]]] = AnswerMemory(project.readings)

    # -- HDF5 ----------------------------------------------------------------------------------------------------------

    def h5(self, module: Module) -> tuple[Load, ...]:
        """Whole reads of HDF5 and zarr datasets that stand in the module and that a dataset keeps."""
        return self._h5.answer(module, lambda: tuple(self._h5_of(module)))

    def _h5_of(self, module: Module) -> Iterator[Load]:
        reads = whole_reads_of(self.project)
        if holds_tests(module):
            return
        for scope in module.walk.scopes:
            if scope.is_class or self.constructions.per_item(module, scope):
                continue
            for one in reads.in_scope(module, scope):
                if one.what.store is ArrayPlace.MEMMAP or self._chosen(module, one):
                    continue
                said = small_key(one.what.key)
                if isinstance(one.node, cst.Call) and one.node.args and names.last_name(one.node.func) == "read_direct":
                    filled = self.constructions.contents.of(one.node.args[0].value, one.frame).size.exact
                    if filled is not None and filled < self.project.settings.small_bytes:
                        continue
                # Rows that a script picks from it, or what it makes of them, are not what it read.
                found = (k for k in self.kept.of(module, one.node) if not (k.evaluated or (k.saver and (k.hazy or k.collected))))
                keepers = self._large(tuple(found), said=said)
                if not keepers:
                    found = (k for k in self.kept.objects(module, one.node) if not k.hazy and self._serves_parts(k))
                    keepers = self._large(tuple(found), said=said)
                # A script makes one array of what it has read of many files, whatever it does with it then.
                joined = () if keepers or said else self._large(tuple(k for k in self.kept.joined(module, one.node) if k.many and not k.hazy))
                keepers = keepers or joined
                if keepers and self._is_told(module, scope, one.node) and not self.whole.take(module, one.node):
                    yield Load(module, scope, one.node, one.what.words, keepers, keepers[0].many, whole=one, joined=joined)

    def _serves_parts(self, keeper: Keeper) -> bool:
        """Whether another method of the object takes parts of what it keeps: it is there for as long as the object serves them."""
        keeps = keeper.module.walk.scope_at(keeper.node)
        for method in keeps.parent.children if keeps.parent is not None and keeps.parent.is_class else ():
            this = names.self_name(method)
            if this is None or method is keeps or method.name == "__init__":
                continue
            for node in method.nodes():
                if isinstance(node, cst.Subscript) and _is_row(keeper.module, node) and not keeper.module.walk.is_target(node):
                    path = path_of(node.value)
                    if path is None or path[0] != this or path[1][:1] != (("attr", keeper.attribute),):
                        continue
                    # Of a dictionary, the entry that it is; a row of a row is one number of a table.
                    if not path[1][1:] or (path[1][-1][0] == "item" and path[1][-1][1] in keeper.names):
                        return True
        return False

    def _is_told(self, module: Module, scope: Scope, node: cst.BaseExpression) -> bool:
        """Whether a read is one to speak of: something brings it about, and not where there is little to read."""
        return self._reached(module, scope, node) and not self._asks_size(module, scope, node)

    def _reached(self, module: Module, scope: Scope, node: cst.BaseExpression) -> bool:
        """Whether anything brings it about that the code reads: nothing does where every caller leaves a switch off that no option turns on."""
        statement = module.walk.statement_of(node)
        frames = self.evaluator.calls.frames(module, scope, most=_MOST_CALLERS)
        if not frames or len(frames) == _MOST_CALLERS:
            return True  # there may be more
        return any(self.evaluator.where(statement, frame) for frame in frames)

    def _asks_size(self, module: Module, scope: Scope, node: cst.CSTNode) -> bool:
        """Whether a test on the way compares amounts, or one on the way to each call of the function: whoever reads has asked how much it is.

        Or how much memory the machine has.
        """
        for test, wanted in path_conditions(module.walk, scope, node):
            if (wanted and _compares_amounts(test) and not _counts_rounds(module, scope, test)) or self._measures_machine(module, scope, test):
                return True
        sites = self.evaluator.calls.sites(module, scope, most=_MOST_FRAMES) if scope.parent is not None and scope.name != "__init__" else []
        ways = [path_conditions(site.module.walk, site.scope, site.call) for site in sites]
        return bool(ways) and all(any(wanted and _compares_amounts(test) for test, wanted in way) for way in ways)

    def _measures_machine(self, module: Module, scope: Scope, test: cst.BaseExpression) -> bool:
        """Whether a test compares the memory of the machine with something: ``psutil.virtual_memory().total > 64 * 2**30``."""
        frame = self.evaluator.calls.plain_frame(module, scope)
        for compared in filter(orders, descend(test)):
            for side in (compared.left, *(one.comparator for one in compared.comparisons)):
                made = [alt.value.node for alt in self.evaluator.values(side, frame) if isinstance(alt.value, SourceExpression)]
                calls = (call for one in (side, *made) for call in descend(one) if isinstance(call, cst.Call))
                if any(isinstance(alt.value, External) and alt.value.name in _OF_MACHINE for call in calls for alt in self.evaluator.values(call.func, frame)):
                    return True
        return False

    def _chosen(self, module: Module, one: WholeRead) -> bool:
        """Whether the read is of one group among many, picked by a variable, or of one reference: that is a sample, not the dataset."""
        if _IS_REFERENCE.search(module.code(one.what.node)):
            return True
        if len(one.what.keys) < 2 or one.what.keys[0] is not None:  # noqa: PLR2004 - group and dataset
            return False
        return not self.kept.repeats(module, one.node)

    # -- other files ---------------------------------------------------------------------------------------------------

    def files(self, module: Module) -> tuple[Load, ...]:
        """Other reads that stand in the module and that a dataset keeps."""
        return self._memo.answer(module, lambda: tuple(self._files_of(module)))

    def handed_on(self, module: Module) -> tuple[Load, ...]:
        """Reads of one file each in functions whose callers are told of what is read: what such a function does with it stands here."""
        return self._handed.answer(module, lambda: tuple(load for load in self._files_of(module, handed=True) if not any(k.many for k in load.keepers)))

    def _files_of(self, module: Module, *, handed: bool = False) -> Iterator[Load]:
        if holds_tests(module):
            return
        for scope in module.walk.scopes:
            if scope.is_class or self.constructions.per_item(module, scope):
                continue
            for read in self.reads.in_scope(module, scope):
                known = read.kind is KnownRead.SAMPLE
                if self._handed_on(read) is not handed or self._stays_open(module, read):
                    continue
                said = not known and (of_small_file(read) or small_name(read.name))
                if self._mapped_otherwise(module, scope, read) or filled_when_asked(self.project, module, scope, read.node):
                    continue
                found = (k for place in read.places for k in self.kept.of(module, read.node, place) if self._is_read(read, k))
                keepers = self._large(tuple(k for k in found if not self._is_gone_at_once(k)), read.kind, said=said)
                # One file to evaluate is small most often; many that are decoded are not.
                keepers = tuple(k for k in keepers if not (k.evaluated and (k.hazy or not (k.many and known))) and self._counts(read, k))
                if not keepers and not said and read.kind in _FILES_OF_SAMPLES and self.kept.repeats(module, read.node):
                    # Files that are decoded into one container are large, whatever the object is that keeps it.
                    found = (k for place in read.places for k in self.kept.objects(module, read.node, place))
                    found = (k for k in found if k.many and not k.hazy and self._is_read(read, k))
                    gone = (self._emptied, written_over, lambda k, _: self._is_gone_at_once(k))
                    keepers = self._large(tuple(k for k in found if not any(asked(k, read) for asked in gone)), read.kind)
                joined: tuple[Keeper, ...] = ()
                if read.kind in {KnownRead.SAMPLE, KnownRead.ARRAY, KnownRead.TORCH} and not said:
                    # A script makes one array of what it has read, whatever it does with it then: no models.
                    found = (k for place in read.places for k in self.kept.joined(module, read.node, place))
                    joined = self._large(tuple(k for k in found if k.many and not k.hazy and self._is_read(read, k)), read.kind)
                    joined = () if self._is_of_rows(module, scope) else joined
                    keepers = keepers or joined
                pooled = not keepers and known and self.reads.gives_it(read)
                if pooled:
                    found = (k for place in read.places for k in self.kept.pooled(module, read.node, place))
                    keepers = self._large(tuple(k for k in found if self._is_read(read, k)), read.kind)
                if keepers and self._is_told(module, scope, read.node) and not self.whole.take(module, read.node):
                    yield Load(module, scope, read.node, read.name, keepers, keepers[0].many, read=read, joined=joined, pooled=pooled)

    def pieces(self, module: Module) -> Iterator[tuple[Load, Piecewise]]:
        """Reads that nobody keeps, of whole files that the code around takes apart piece by piece."""
        if holds_tests(module):
            return
        kept = {load.node for load in self.files(module)}
        for scope in module.walk.scopes:
            if scope.is_class or self.constructions.per_item(module, scope):
                continue
            for read in self.reads.in_scope(module, scope):
                if read.node in kept or self._handed_on(read) or of_small_file(read) or small_name(read.name):
                    continue
                found = piecewise(self.project, read)
                if found is not None and self._reached(module, scope, read.node):
                    yield Load(module, scope, read.node, read.name, (), many=False, read=read), found

    @staticmethod
    def _is_read(read: FileRead, keeper: Keeper) -> bool:
        """Whether what is kept is in memory: not where the file is only open."""
        if keeper.opened:
            return False
        if read.origin not in LAZY or any(done.does is DataTransform.READS for done in keeper.passed):
            return True
        holder = read.module.walk.parents.get(read.node)
        target = names.dotted(holder.targets[0].target) if isinstance(holder, cst.Assign) else ""
        return bool(target) and any(names.dotted(call.func) == f"{target}.{READS_IN_PLACE}" for call in read.scope.calls)

    def _is_of_rows(self, module: Module, scope: Scope) -> bool:
        """Whether a function is called for each row of a table, in what that is given to do with one: it reads what one row says."""
        sites = self.evaluator.calls.sites(module, scope) if scope.is_function else []
        return bool(sites) and all(is_for_each(site.module, site.call) for site in sites)

    def _is_gone_at_once(self, keeper: Keeper) -> bool:
        """Whether each object that keeps it is made where a loop goes through it, and is gone with that loop: there is one at a time."""
        home = keeper.module.walk.scope_at(keeper.node).parent if keeper.many and keeper.given and keeper.attribute else None
        init = home.child("__init__") if home is not None and home.is_class else None
        sites = self.evaluator.calls.sites(keeper.module, init) if init is not None else []
        holders = [site.module.walk.parents.get(site.call) for site in sites]
        return bool(sites) and all(
            isinstance(one, cst.For | cst.CompFor) and one.iter is site.call and self.kept.in_rounds(site.module, site.call)
            for one, site in zip(holders, sites, strict=True)
        )

    def _emptied(self, keeper: Keeper, read: FileRead) -> bool:
        """Whether the rounds that read also empty the object that keeps it, or make another."""
        cls = keeper.module.walk.scope_at(keeper.node).parent
        if cls is None or not cls.is_class or not keeper.attribute:
            return False
        made = next((self.evaluator.calls.sites(keeper.module, method) for method in cls.children if method.name == "__init__"), [])
        own = [site for site in made if site.module is read.module or self.project.may_import(site.module.path, read.module.path)]
        if own and all(self._made_by_round(site, read) for site in own):
            return True
        return emptied_by_round(ClassRef(keeper.module, cls), keeper.attribute, read.module, read.node, self.evaluator)

    @staticmethod
    def _made_by_round(site: CallSite, read: FileRead) -> bool:
        """Whether a round of a loop that reads makes an object of its own, which nothing holds but a name that the next round sets."""
        walk, holder = site.module.walk, site.module.walk.parents.get(site.call)
        target = holder.targets[0].target if isinstance(holder, cst.Assign) and len(holder.targets) == 1 else None
        if site.module is not read.module or not isinstance(target, cst.Name):
            return False
        rounds = {here for here in walk.ancestors(read.node) if isinstance(here, cst.For | cst.While)}
        uses = (node for node in site.scope.named(target.value) if walk.parents.get(node) is not holder)
        above = [one for node in uses if not isinstance(one := walk.parents.get(node), cst.AssignTarget)]
        used = all(isinstance(one, cst.Attribute) and names.dotted(one.value) == target.value for one in above)
        return used and not rounds.isdisjoint(walk.ancestors(site.call))

    def _stays_open(self, module: Module, read: FileRead) -> bool:
        """Whether the call opens a file that is read later: a lazy image, an archive."""
        opening = openings_of(self.project).at(module, read.node) if isinstance(read.node, cst.Call) else None
        return opening is not None and keeps_many(opening, self.project)

    def _mapped_otherwise(self, module: Module, scope: Scope, read: FileRead) -> bool:
        """Whether the other side of a test maps the same file, unless the test is known to lead to this one: whoever runs it has the choice."""
        path = module.code(read.path) if read.path is not None else ""
        inner: cst.CSTNode = read.node
        for above in module.walk.ancestors(read.node) if path else ():
            if isinstance(above, cst.If | cst.IfExp) and above.orelse is not None and inner is not above.test and path not in module.code(above.test):
                here = inner is above.body
                if any(self._maps(module, part, path) for part in descend(above.orelse if here else above.body)):
                    frames = self.evaluator.calls.frames(module, scope, most=_MOST_FRAMES)
                    return {verdict for frame in frames for verdict, picks, _ in self.evaluator.truth(above.test, frame) if is_usual(picks)} != {here}
            inner = above
        return False

    def _maps(self, module: Module, node: cst.CSTNode, path: str) -> bool:
        """Whether it is a call that maps the file of that path into memory."""
        if not isinstance(node, cst.Call) or not node.args or module.code(node.args[0].value) != path:
            return False
        opening, asked = openings_of(self.project).at(module, node), arguments.named(node, "mmap")
        return (opening is not None and opening.kind is Opens.MEMMAP) or (asked is not None and names.dotted(asked) != "False")

    def _handed_on(self, read: FileRead) -> bool:
        """Whether the function that the read stands in gives it to its callers, as a reader: they are the place."""
        reader = self.reads.reader(read.module, read.scope) if read.kind is not KnownRead.TORCH else None
        if reader is None or self.kept.repeats(read.module, read.node):
            return False
        # It may give something else that it reads; text is what an opened file is read as, whatever becomes of that.
        return read.kind is KnownRead.TEXT or any(spot in reader.where for spot in read.within or ((read.module, read.node),))

    def _counts(self, read: FileRead, keeper: Keeper) -> bool:
        """Whether what is kept may be the samples of a dataset."""
        if keeper.saver:
            # Of records and tables a script takes the few values that it needs, and of objects, unless it keeps them as they are; it needs what it decodes.
            whole = read.kind is KnownRead.OBJECT and keeper.many and not keeper.collected
            return not keeper.hazy and (read.kind is KnownRead.SAMPLE or read.origin == "numpy.load" or whole)
        if (
            read.kind not in WHOLE
            and (read.kind is not KnownRead.SAMPLE or keeper.hazy)
            and len(keeper.names) > (_LONGEST if keeper.owner is not None else _LONGEST // 2)
        ):
            return False
        if keeper.many:
            # Records and tables say something of the samples more often than they hold them: what counts is one file for each.
            if read.kind is KnownRead.RECORDS or read.origin.startswith("pandas."):
                index = keeper.owner is not None and datasets_of(self.project).opens_files(keeper.owner)
                return chosen_by_loop(read) and self.kept.over_many(read.module, read.node) and not index
            return read.kind is not KnownRead.TEXT  # of each file a few lines, most often
        if self.constructions.few(read.module, read.node):
            return False
        if read.kind is KnownRead.TEXT:
            return has_a_text_each(keeper)
        if read.kind not in WHOLE or (keeper.collected and read.kind is KnownRead.OBJECT):
            return False
        if keeper.owner is None or any(looks_like_data(name) for name in keeper.names[-2:]):
            return True
        one = datasets_of(self.project).of_value(Instance(keeper.owner, None))
        sliced = {numbers for name, numbers in self._slices(keeper.owner) if name == keeper.attribute}
        if one is None or one.opens_files:
            # Where `__getitem__` reads a file for each sample, what was loaded before is an index of them, unless tensors are made of it.
            return one is None or True in sliced
        # Where it calls what nobody can look into, a name may tell.
        return not (one.unknown and annotates(keeper.names[-1])) or bool(sliced)

    def _slices(self, owner: ClassRef) -> frozenset[tuple[str, bool]]:
        """The attributes of which a sample is a slice, from one index to another: then they hold the samples. With whether a tensor is made of it."""
        return self._sliced.answer(owner.scope, lambda: frozenset(self._sliced_by(owner)))

    def _sliced_by(self, owner: ClassRef) -> Iterator[tuple[str, bool]]:
        for cls in self.evaluator.lineage(owner):
            if not isinstance(cls, ClassRef):
                continue
            for method in cls.scope.children:
                this = names.self_name(method)
                if this is None or not self.constructions.per_item(owner.module, method):
                    continue
                for node in method.nodes():
                    part = node.slice[0].slice if isinstance(node, cst.Subscript) else None
                    if isinstance(node, cst.Subscript) and part is not None and has_bounds(part):
                        path = path_of(node.value)
                        if path is not None and path[0] == this and path[1] and path[1][0][0] == "attr":
                            yield str(path[1][0][1]), _becomes_tensor(cls.module, node)

    def _large(self, keepers: tuple[Keeper, ...], kind: KnownRead = KnownRead.ARRAY, *, said: bool = False) -> tuple[Keeper, ...]:
        """Those of whom nothing says that what they keep is small, no use, no comment and, where nobody knows what it is, no name, nor that it is gone at once.

        What a key or the name of a file has ``said`` to be small counts where it is seen to have rows.
        Those first that keep it for longer than their object is built; of these, the most axes.
        """
        known = kind is KnownRead.SAMPLE
        found = (k for k in keepers if ((known and not k.hazy) or not self._says_small(k)) and not few_a_sample(k.module, k.node))
        large = [k for k in found if not self.let_go.is_let_go(k, keepers) and not (said and not self._has_rows(k))]
        return tuple(sorted(large, key=lambda k: (self.let_go.is_for_building(k), -max(axes_of(self.project, k).least, ROWS))))

    def _has_rows(self, keeper: Keeper) -> bool:
        """Whether there are several numbers for each sample, by what is done with it or was made of it."""
        return any(done.does is DataTransform.PICTURES for done in keeper.passed) or axes_of(self.project, keeper).has_rows

    def _says_small(self, keeper: Keeper) -> bool:
        return said_small(self.project, keeper, keeper.own_names if keeper.live else None) or any(map(is_aid, keeper.own_names))


def _compares_amounts(test: cst.BaseExpression) -> bool:
    """Whether a test says how much there is of something that is counted or measured: ``sum(map(getsize, paths)) < limit``."""
    return any(
        orders(node)
        and any(isinstance(part, cst.Call) for part in descend(node))
        and not any(isinstance(side, cst.BaseNumber) for side in (node.left, *(one.comparator for one in node.comparisons)))
        for node in descend(test)
    )


def _counts_rounds(module: Module, scope: Scope, test: cst.BaseExpression) -> bool:
    """Whether a test ends the rounds of a loop that counts how far it has come: ``while done < len(paths)``."""
    loop = module.walk.parents.get(test)
    if not isinstance(loop, cst.While) or not isinstance(test, cst.Comparison):
        return False
    counted = [side.value for side in (test.left, *(one.comparator for one in test.comparisons)) if isinstance(side, cst.Name)]
    counts = (effect for name in counted for effect in scope.effects.get(name, ()) if effect.kind == "augment" and isinstance(effect.value, cst.Integer))
    return any(names.within(effect.statement, loop, module) for effect in counts)


def _is_row(module: Module, node: cst.Subscript) -> bool:
    """Whether an index takes a part that is an array, by all that is seen: not one number of a table."""
    if not picks_some(node):
        return False
    sliced = any(isinstance(element.slice, cst.Slice) for element in node.slice)
    return sliced or (len(node.slice) == 1 and not isinstance(module.walk.parents.get(node), cst.Subscript))


def _becomes_tensor(module: Module, node: cst.CSTNode) -> bool:
    """Whether a tensor is made of it, as of numbers, and of no paths or names."""
    argument = module.walk.parents.get(node)
    call = module.walk.parents.get(argument) if isinstance(argument, cst.Arg) else None
    return isinstance(call, cst.Call) and names.last_name(call.func) in _MAKES_TENSORS


def arrays_of(project: Project) -> Arrays:
    """The arrays of a project."""
    return project.shared(Arrays)


def has_a_text_each(keeper: Keeper) -> bool:
    """Whether a dataset has texts for each sample, under the sample's index, and not the name of its file."""
    if keeper.owner is None:
        return False
    instance = Instance(keeper.owner, None)
    datasets = datasets_of(keeper.module.project)
    dataset, evaluator = datasets.of_value(instance), datasets.evaluator
    held = [one.content for one in dataset.every() if one.name == keeper.attribute] if dataset is not None else []
    texts = any(content.kind is PayloadKind.OBJECTS and not content.numbers and not _says_where(content.element, evaluator) for content in held)
    if dataset is None or not texts or not takes_index(dataset, keeper.attribute, evaluator):
        return False
    return not names_files(instance, keeper.attribute, evaluator, records=True)


def _says_where(record: Content | None, evaluator: Evaluator) -> bool:
    """Whether a field of a record is the path of a file, which is put together where the record is made."""
    module, node = (record.module, record.node) if record is not None else (None, None)
    if isinstance(node, cst.Call) and names.dotted(node.func) == "dict":
        fields = [arg.value for arg in node.args]
    else:
        fields = [one.value for one in node.elements] if isinstance(node, cst.Dict | cst.Tuple | cst.List) else []
    if module is None or node is None or not fields:
        return False
    frame = evaluator.calls.plain_frame(module, module.walk.scope_at(node))
    made = (alt.value for field in fields for alt in evaluator.values(field, frame)[:2])
    return any(isinstance(one, ExternalCall) and names.canonical(one.name) == "os.path.join" for one in made)
