"""Calls that read data from files into memory: which library reads what, and functions of the project that do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import CONSTANTS, HANDS_ON, PUTS_IN, SAME_PATH
from oomlint.finding import Resource
from oomlint.memory.arrays.kept import READING, kept_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.archives import loads_archive, maps_file
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.known_reads import GIVEN, LAST, LAZY, PATH_ARGUMENTS, PRELOADS, SAMPLERS, TEXTS, KnownRead, known_read, opens_text
from oomlint.model import arguments, names
from oomlint.model.calls import JOBS
from oomlint.model.readings import AnswerMemory
from oomlint.model.rounds import dependents
from oomlint.model.values import ClassRef, External, ExternalCall, FunctionRef, Instance, Partial
from oomlint.scout.telling_names import ELEMENTWISE
from oomlint.syntax.nodes import descend, names_in, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame, Value
    from oomlint.syntax.scopes import Scope


_HAND_ON: Final = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.Subset"})
_NO_DATASETS: Final = frozenset({"range", "zip", "sorted", "items", "keys", "values", "glob", "listdir", "walk", "open", "split", "product"})
_OF_PATHS: Final = SAME_PATH | frozenset("open join format GzipFile ZipFile".split())
_LONGEST_WAY: Final = 3  # functions between the one that is called and the one that reads


class FileRead(Struct, frozen=True, eq=False):
    """One expression that brings the content of a file into memory."""

    kind: KnownRead
    name: str  # what is called, for a message; empty where a loop goes through the lines of a file
    module: Module
    scope: Scope
    node: cst.Call | cst.Subscript | cst.Name  # a name is the variable of a loop over a dataset, or an open file that a loop goes through
    path: cst.BaseExpression | None
    places: frozenset[int | None] = frozenset({None})  # where it stands in the tuple that is returned; ``None`` for all of it
    by: str = ""  # the library's function, where ``name`` is one of the project that calls it
    within: tuple[tuple[Module, cst.CSTNode], ...] = ()  # where that one is called
    each: bool = False  # one call reads many files, one for each element of something

    @property
    def gives(self) -> Resource:
        """What is in memory then."""
        return GIVEN.get(self.kind, Resource.ARRAYS)

    @property
    def origin(self) -> str:
        """The function of a library that reads."""
        return self.by or self.name


class ReadingFunction(Struct, frozen=True):
    """A function of the project that reads a file whose path it is given."""

    kind: KnownRead
    places: frozenset[int | None]
    by: str  # the library's function that reads
    where: tuple[tuple[Module, cst.CSTNode], ...]  # where it is called
    name: str = ""  # the class of a dataset that reads


class ReadCalls:
    """Finds the reading calls of a module. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)
        self._scopes: AnswerMemory[Scope, tuple[FileRead, ...]] = AnswerMemory(project.readings)
        self._calls: AnswerMemory[Scope, tuple[FileRead, ...]] = AnswerMemory(project.readings)
        self._names: dict[cst.BaseExpression, str] = {}  # the last names of functions, where they are written
        self._readers: AnswerMemory[Scope, ReadingFunction | None] = AnswerMemory(project.readings)
        self._items: AnswerMemory[Scope, ReadingFunction | None] = AnswerMemory(project.readings)

    def in_scope(self, module: Module, scope: Scope) -> tuple[FileRead, ...]:
        """Reads that stand in the code of a scope: its reading calls, and the samples that its loops take from datasets."""
        known = self._scopes.get(scope)
        if known is None:
            self._scopes.assume(scope, ())  # a function that calls itself
            known = self._scopes[scope] = (*self.calls_in(module, scope), *self._taken(module, scope))
        return known

    def calls_in(self, module: Module, scope: Scope) -> tuple[FileRead, ...]:
        """Reading calls that stand in the code of a scope: all that may have a path."""
        known = self._calls.get(scope)
        if known is None:
            self._calls.assume(scope, ())
            found = (self._library(module, scope, call) or self._own(module, scope, call) or self._inherited(module, scope, call) for call in scope.calls)
            known = self._calls[scope] = tuple(one for one in found if one is not None)
        return known

    def _taken(self, module: Module, scope: Scope) -> Iterator[FileRead]:
        """Samples that a loop takes from a dataset that reads a file for each: ``[scans[k] for k in range(len(scans))]``, ``for image, label in images``."""
        if scope.is_class or not (scope.loops or scope.rows):
            return
        kept, runs = kept_of(self.project), runs_models(self.project, module)
        for node in scope.nodes(inner=False):
            if isinstance(node, cst.Subscript):
                index = node.slice[0].slice if len(node.slice) == 1 and isinstance(node.value, cst.Name) else None
                indexed = isinstance(index, cst.Index) and isinstance(index.value, cst.Name) and not module.walk.is_target(node)
                reader = self._sampler(module, scope, node.value) if indexed and kept.repeats(module, node) else None
                if reader is not None:
                    yield FileRead(reader.kind, reader.name, module, scope, node, None, reader.places, reader.by, reader.where)
            elif isinstance(node, cst.For | cst.CompFor) and node not in runs:
                yield from self._gone_through(module, scope, node)

    def _gone_through(self, module: Module, scope: Scope, loop: cst.For | cst.CompFor) -> Iterator[FileRead]:
        """The variables of a loop that stand for samples, or the open file whose lines it goes through."""
        iterated, target = names.gone_through(loop)
        if isinstance(iterated, cst.Name | cst.Call) and self._is_text(module, scope, iterated):
            yield FileRead(KnownRead.TEXT, "", module, scope, iterated, None)
            return
        if not isinstance(iterated, cst.Name | cst.Attribute | cst.Call) or (isinstance(iterated, cst.Call) and names.last_name(iterated.func) in _NO_DATASETS):
            return
        reader = self._sampler(module, scope, iterated)
        for place in sorted(reader.places, key=str) if reader is not None else ():
            one = target
            if place is not None and isinstance(target, cst.Tuple | cst.List):
                one = target.elements[place].value if place < len(target.elements) else target
            if reader is not None and isinstance(one, cst.Name) and kept_of(self.project).repeats(module, one):
                yield FileRead(reader.kind, reader.name, module, scope, one, None, frozenset({None if one is not target else place}), reader.by, reader.where)

    def _sampler(self, module: Module, scope: Scope, node: cst.BaseExpression, depth: int = 0) -> ReadingFunction | None:
        """What an expression gives for an index, or in each round: a dataset that decodes a file for each sample, or a loader of one."""
        frames = self.evaluator.calls.frames(module, scope, most=2) or [self.evaluator.calls.plain_frame(module, scope)]
        for value in (alt.value for frame in frames for alt in self.evaluator.values(node, frame)[:2]):
            if isinstance(value, Instance):
                return self._item(value)
            if isinstance(value, ExternalCall):
                name = names.canonical(value.name)
                if name in SAMPLERS:
                    return ReadingFunction(KnownRead.SAMPLE, frozenset({0}), name, (), name)
                given = [arg for arg in value.call.args if arg.keyword is None or arg.keyword.value in {"dataset", "collate_fn"}]
                if name in _HAND_ON and given and depth < _LONGEST_WAY and not any(a.keyword is not None and a.keyword.value == "collate_fn" for a in given):
                    return self._sampler(value.frame.module, value.frame.scope, given[0].value, depth + 1)
        return None

    def _item(self, value: Instance) -> ReadingFunction | None:
        """What an object gives for an index, where it decodes that from a file."""
        method = self.evaluator.method(value, "__getitem__")
        if method is None:
            return None
        if method.scope not in self._items:
            self._items.assume(method.scope, None)
            kept = kept_of(self.project)
            read = [one for one in self.in_scope(method.module, method.scope) if one.kind is KnownRead.SAMPLE]
            gives = [(one, frozenset(place for index in one.places for place in kept.returned(method.module, one.node, index))) for one in read]
            places = frozenset(place for _, found in gives for place in found)
            where = tuple(spot for one, found in gives if found for spot in (one.within or ((method.module, one.node),)))
            by = next((one.origin for one, found in gives if found), "")
            self._items[method.scope] = ReadingFunction(KnownRead.SAMPLE, places, by, where, value.cls.scope.name) if places else None
        return self._items[method.scope]

    def _library(self, module: Module, scope: Scope, call: cst.Call) -> FileRead | None:
        last = names.last_name(call.func)
        if last in ELEMENTWISE or last in JOBS:
            return self._called_by(module, scope, call)
        if last == "read" and isinstance(call.func, cst.Attribute) and self._is_video(module, scope, call.func.value):
            return FileRead(KnownRead.SAMPLE, "cv2.VideoCapture.read", module, scope, call, None, frozenset({1}))
        if last in TEXTS and isinstance(call.func, cst.Attribute) and (last in {"read_text", "read_bytes"} or self._is_text(module, scope, call.func.value)):
            return FileRead(KnownRead.TEXT, f"{last}()", module, scope, call, None)
        if last not in LAST and self._original_name(module, scope, call.func) not in LAST:
            imported = isinstance(call.func, cst.Name) and any(e.kind == "from" for e in module.root.effects.get(last, ()))
            if not imported:
                return None
        frame = self.evaluator.calls.plain_frame(module, scope)
        for alt in self.evaluator.values(call.func, frame)[:2]:
            value, given = _unpacked(alt.value)
            told = call.with_changes(args=sorted((*given, *call.args), key=_is_named)) if given else call
            known = self._known(frame, value, told)
            if known is not None and known[1] == "PIL.Image.open" and _as_it_is(module, call):
                return None  # nothing is decoded
            if known is not None and self._is_made_here(frame, _path_given(told)):
                return None  # no file: what the program itself has drawn or packed a moment before
            if known is not None:
                return FileRead(*known, module, scope, call, _path_given(told))
        return None

    def _is_made_here(self, frame: Frame, path: cst.BaseExpression | None) -> bool:
        """Whether what is read is a buffer that was made empty."""
        found = self.evaluator.values(path, frame) if isinstance(path, cst.Name) else []
        return any(isinstance(alt.value, ExternalCall) and alt.value.name == "io.BytesIO" and not alt.value.call.args for alt in found)

    def _known(self, frame: Frame, function: Value, call: cst.Call) -> tuple[KnownRead, str] | None:
        """What a function of a library reads with the arguments of a call, and how to call it; ``None`` for what reads nothing, or little."""
        kind = known_read(function.name) if isinstance(function, External) else None
        if kind is None or not isinstance(function, External) or (call.args and not any(map(_may_be_file, call.args))):
            return None  # what is given no file makes an empty object: `PrettyMIDI(initial_tempo=120)`
        name = names.canonical(function.name)
        if name == "numpy.fromstring" and arguments.has(call, "sep"):
            return None  # numbers that are written out: those of a line are few
        if name in {"numpy.loadtxt", "numpy.genfromtxt"} and _of_words(call):
            return None
        if name == "torch.load" and (arguments.has(call, "mmap") or any(a.star == "**" for a in call.args)):
            return None
        if name == "numpy.load":
            if loads_archive(call, frame, self.evaluator):
                kind = KnownRead.ARCHIVE
            elif maps_file(call, frame, self.evaluator) is not False:
                return None
        if name in LAZY and self._preloads(call, frame):
            name = f"{name}({PRELOADS}=True)"
        return kind, name

    def _preloads(self, call: cst.Call, frame: Frame) -> bool:
        """Whether a call is told to read what it opens; text is the path of a file that is mapped."""
        asked = arguments.named(call, PRELOADS)
        return asked is not None and any(alt.const is True for alt in self.evaluator.values(asked, frame))

    def _is_video(self, module: Module, scope: Scope, node: cst.BaseExpression) -> bool:
        """Whether a ``read()`` gives the next frame of a video: whether there is one, and the frame."""
        frame = self.evaluator.calls.plain_frame(module, scope)
        return any(isinstance(a.value, ExternalCall) and a.value.name == "cv2.VideoCapture" for a in self.evaluator.values(node, frame)[:3])

    def _is_text(self, module: Module, scope: Scope, node: cst.BaseExpression) -> bool:
        """Whether an expression is an open file."""
        frame = self.evaluator.calls.plain_frame(module, scope)
        return any(isinstance(a.value, ExternalCall) and opens_text(a.value.name) for a in self.evaluator.values(node, frame)[:3])

    # -- functions of the project that read a file whose path they are given ---------------------------------------------

    def _called_by(self, module: Module, scope: Scope, call: cst.Call) -> FileRead | None:
        """``map(np.load, paths)``, ``frame["path"].apply(np.load)``, ``submit(read, path)``."""
        function = kept_of(self.project).mapped(module, call)
        each = function is not None
        if function is None and names.last_name(call.func) in JOBS and len(call.args) > 1:
            function = call.args[0].value
        if function is None:
            return None
        frame = self.evaluator.calls.plain_frame(module, scope)
        for alt in self.evaluator.values(function, frame)[:2]:
            mapped, given = _unpacked(alt.value)
            told = call.with_changes(args=sorted((*given, *filter(_is_named, call.args)), key=_is_named))
            known = self._known(frame, mapped, told)
            if known is not None:
                return FileRead(*known, module, scope, call, None, each=each)
            if isinstance(mapped, FunctionRef) and not isinstance(mapped.scope.node, cst.Lambda):
                reader = self.reader(mapped.module, mapped.scope)
                if reader is not None:
                    return FileRead(reader.kind, mapped.scope.name, module, scope, call, None, reader.places, reader.by, reader.where, each)
        return None

    def _own(self, module: Module, scope: Scope, call: cst.Call) -> FileRead | None:
        if not isinstance(call.func, cst.Name | cst.Attribute | cst.Call) or not call.args:
            return None
        frame = self.evaluator.calls.plain_frame(module, scope)
        for alt in self.evaluator.values(call.func, frame)[:2]:
            value, _ = _unpacked(alt.value)
            if isinstance(value, FunctionRef) and not isinstance(value.scope.node, cst.Lambda):
                reader = self.reader(value.module, value.scope)
                if reader is not None and reader.kind is not KnownRead.TORCH:
                    return FileRead(reader.kind, value.scope.name, module, scope, call, call.args[0].value, reader.places, reader.by, reader.where)
        return None

    def sample(self, call: cst.Call, frame: Frame) -> KnownRead | None:
        """What a call decodes that takes a sample from the class behind its own."""
        found = self._inherited(frame.module, frame.scope, call)
        return found.kind if found is not None else None

    def _inherited(self, module: Module, scope: Scope, call: cst.Call) -> FileRead | None:
        """The sample that a class takes from the one that it derives from: ``super().__getitem__(index)``."""
        func, owner = call.func, scope.parent
        if not isinstance(func, cst.Attribute) or func.attr.value != "__getitem__" or names.self_name(scope) is None or owner is None:
            return None
        if not (isinstance(func.value, cst.Call) and names.dotted(func.value.func) == "super"):
            return None
        for base in self.evaluator.lineage(ClassRef(module, owner))[1:]:
            if isinstance(base, External):
                if base.name in SAMPLERS:
                    return FileRead(KnownRead.SAMPLE, base.name, module, scope, call, None, frozenset({0}))
            elif base.scope.child("__getitem__") is not None:
                reader = self._item(Instance(base, None))
                return FileRead(reader.kind, reader.name, module, scope, call, None, reader.places, reader.by, reader.where) if reader is not None else None
        return None

    def _original_name(self, module: Module, scope: Scope, function: cst.BaseExpression) -> str:
        known = self._names.get(function)
        if known is None:
            known = self._names[function] = _original_name(module, scope, function)
        return known

    def reader(self, module: Module, scope: Scope) -> ReadingFunction | None:
        """What a function returns, where it reads that from a file that is one of its parameters; ``None`` for other functions."""
        if scope not in self._readers:
            self._readers.assume(scope, None)
            self._readers[scope] = self._judge(module, scope)
        return self._readers[scope]

    def _judge(self, module: Module, scope: Scope) -> ReadingFunction | None:
        if not isinstance(scope.node, cst.FunctionDef) or (scope.name.startswith("__") and scope.name.endswith("__")):
            return None
        if not scope.yields and not any(one.value is not None and not _plain(one.value) for one in scope.returns):
            return None
        given = set(names.parameter_names(scope)) - {names.self_name(scope) or ""}
        if not given:
            return None
        paths = self._paths(scope, given)
        kept = kept_of(self.project)
        gives: dict[KnownRead, frozenset[int | None]] = {}
        by: dict[KnownRead, str] = {}
        where: dict[KnownRead, list[tuple[Module, cst.CSTNode]]] = {}
        for one in self.calls_in(module, scope):
            if one.kind is not KnownRead.TEXT and one.path is not None and self._speaks(one.path, paths) and not chosen_by_loop(one):
                places = frozenset(place for index in one.places for place in kept.returned(module, one.node, index))
                if places:
                    gives[one.kind] = gives.get(one.kind, frozenset()) | places
                    read = one.origin in LAZY and any(names.last_name(call.func) in READING for call in scope.calls)
                    by.setdefault(one.kind, f"{one.origin}().read" if read else one.origin)  # what it opens lazily it may read before it gives it back
                    where.setdefault(one.kind, []).extend(one.within or [(module, one.node)])
        if gives:
            kind = min(gives, key=list(KnownRead).index)
            return ReadingFunction(kind, gives[kind], by[kind], tuple(where[kind]))
        # `with open(path) as f:` and a parser of its own.
        opened = [c for c in scope.calls if names.last_name(c.func) == "open" and c.args and self._speaks(c.args[0].value, paths) and not _writes(c)]
        # The open file itself, as an opener gives it, holds nothing of what is in it.
        places = frozenset(place for c in opened for place in kept.returned(module, c, collected=True) - kept.returned(module, c, sure=True))
        if places:
            parsed = any(names.last_name(c.func) in {"load", "loads", "reader", "DictReader"} for c in scope.calls)
            return ReadingFunction(KnownRead.RECORDS if parsed else KnownRead.NUMBERS, places, "open", ((module, opened[0]),))
        return None

    def gives_it(self, read: FileRead) -> bool:
        """Whether a call gives what is read, and not what a function that nobody knows has made of it."""
        kept = kept_of(self.project)
        return not read.within or any(isinstance(node, cst.BaseExpression) and kept.returned(module, node, sure=True) for module, node in read.within)

    def _paths(self, scope: Scope, given: set[str]) -> set[str]:
        """Parameters, and local names made of nothing but them and constants: paths, and files opened by them."""
        found = set(given)
        for name, effects in scope.effects.items():
            for effect in effects:
                if effect.path or effect.kind not in {"assign", "with"} or not isinstance(effect.value, cst.Call):
                    continue
                if names.last_name(effect.value.func) in _OF_PATHS and effect.value.args and self._speaks(effect.value, found):
                    found.add(name)
        return found

    @staticmethod
    def _speaks(path: cst.BaseExpression, paths: set[str]) -> bool:
        """Whether a path is one of these names, or made of one; a loop's variable is not a parameter."""
        attributes = {n.value for n in descend(path) if isinstance(n, cst.Attribute)}  # `args.path` is a setting
        return any(isinstance(n, cst.Name) and n.value in paths and n not in attributes for n in descend(path))


def _original_name(module: Module, scope: Scope, function: cst.BaseExpression) -> str:
    """The last name of a function where it is written: an import, assignments, or ``partial`` may have given it another one."""
    for _ in range(_LONGEST_WAY):
        function = names.handed_on(function)
        given = _assigned(module, scope, function)
        if given is None:
            break
        if isinstance(given, cst.ImportAlias):
            return names.last_name(given.name)
        function = given
    return names.last_name(function)


def _assigned(module: Module, scope: Scope, function: cst.BaseExpression) -> cst.BaseExpression | cst.ImportAlias | None:
    """The function that a name, or an attribute of the object itself, stands for; ``None`` where it has no other name."""
    path = path_of(function)
    if path is None:
        return None
    root, parts = path
    owner = scope.parent if parts and root == names.self_name(scope) else None
    if owner is not None and not any(word in module.words for word in HANDS_ON):
        return None  # a method, or what nobody knows
    around = owner.children if owner is not None else () if parts else (*_enclosing(scope), module.root)
    for other in around:
        for effect in other.effects.get(root if owner is None else names.self_name(other) or "", ()):
            if owner is None and effect.kind == "from" and isinstance(effect.node, cst.ImportAlias):
                return effect.node
            named = names.handed_on(effect.value) if effect.kind == "assign" and effect.path == parts and effect.value is not None else None
            if isinstance(named, cst.Name | cst.Attribute) and (owner is None or named is not effect.value):
                return named
    return None


def _enclosing(scope: Scope) -> Iterator[Scope]:
    """The functions around the code of a scope, the innermost first."""
    here: Scope | None = scope
    while here is not None and here.parent is not None:
        yield here
        here = here.parent


def _path_given(call: cst.Call) -> cst.BaseExpression | None:
    """The path that a reading call is given, by place or by one of the names that libraries have for it."""
    plain = arguments.plain(call)
    return plain[0] if plain else next((arg.value for arg in call.args if arg.keyword is not None and arg.keyword.value in PATH_ARGUMENTS), None)


def _may_be_file(arg: cst.Arg) -> bool:
    """Whether an argument of a reader may say what file it is to read."""
    return not isinstance(arg.value, cst.BaseNumber) and (arg.keyword is None or names.last_name(arg.value) not in CONSTANTS)


def _is_named(arg: cst.Arg) -> bool:
    return arg.keyword is not None or arg.star == "**"


def _unpacked(value: Value) -> tuple[Value, tuple[cst.Arg, ...]]:
    """What a callable calls in the end, and the arguments that it has been given for that."""
    if not isinstance(value, Partial):
        return value, ()
    inner, given = _unpacked(value.func)
    return inner, (*given, *value.bound.args)


def runs_models(project: Project, module: Module) -> frozenset[cst.CSTNode]:
    """Loops whose rounds run a model: what they keep is told by the rules on growth."""
    return frozenset(loop.node for record in runs_of(project).of(module) for event in record.forwards for loop in event.loops)


def chosen_by_loop(read: FileRead) -> bool:
    """Whether a loop around a read says which file it is: the code reads many."""
    module, node = read.module, read.node
    if isinstance(node, cst.Call) and read.path is None:
        return read.each
    used = names_in(read.path or node)
    return any(not used.isdisjoint(dependents(read.scope, names_in(header.target))) for header in names.headers(module.walk, node))


def _as_it_is(module: Module, call: cst.Call) -> bool:
    """Whether what a call gives is kept without anything being done with it."""
    holder = module.walk.parents.get(call)
    if isinstance(holder, cst.Arg):
        outer = module.walk.parents[holder]
        return isinstance(outer, cst.Call) and names.last_name(outer.func) in PUTS_IN
    if isinstance(holder, cst.Assign):
        return any(isinstance(t.target, cst.Subscript) for t in holder.targets)
    return isinstance(holder, cst.ListComp | cst.DictComp | cst.GeneratorExp | cst.Element | cst.DictElement)


def _plain(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.SimpleString | cst.Integer | cst.Float) or (isinstance(node, cst.Name) and node.value in CONSTANTS)


def _writes(call: cst.Call) -> bool:
    modes = [a.value for a in call.args[1:2] if a.keyword is None] + [a.value for a in call.args if a.keyword is not None and a.keyword.value == "mode"]
    return any(isinstance(m, cst.SimpleString) and set(str(m.evaluated_value)) & set("wax+") for m in modes)


def read_calls_of(project: Project) -> ReadCalls:
    """The reading calls of a project."""
    return project.shared(ReadCalls)


def _of_words(call: cst.Call) -> bool:
    """Whether the rows of a text are read as words: names of files or of subjects."""
    kind = arguments.argument_for(call, "dtype", place=1)
    if isinstance(kind, cst.SimpleString):
        return str(kind.evaluated_value).lstrip("<>=|") in {"str", "U", "S"}
    return kind is not None and names.last_name(kind) in {"str", "str_"}
