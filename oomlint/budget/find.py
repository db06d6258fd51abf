"""What one command runs: the loaders that it makes, with the numbers that it gives them, and the datasets that they read."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.budget.chunk_caches import chunk_caches
from oomlint.budget.containers import HeaderContainers
from oomlint.budget.costs import PREFETCHED
from oomlint.budget.descriptors import by_name, opened
from oomlint.budget.nouns import UNKNOWN_METHOD, BudgetDataset, Certainty, LoaderNoun, Program
from oomlint.budget.phases import Phases
from oomlint.budget.reach import only_as_script
from oomlint.budget.samples import sample_of, samples_in
from oomlint.budget.sizes import Name, SizeProduct
from oomlint.budget.splits import part_of
from oomlint.budget.values import BATCH, PREFETCH, WORKERS
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.facts import worker_count
from oomlint.memory.loaders.loader_calls import LoaderUse, is_given, is_true, loaders_of
from oomlint.memory.ranks.ranks import ranks_of
from oomlint.memory.shared.start_methods import start_methods
from oomlint.model import arguments, names
from oomlint.model.questions import is_cpu_count
from oomlint.model.sources import is_unread
from oomlint.model.values import FREE, Absent, Const, Each, Element, ExternalCall, Frame, Instance, PartOfEach, SourceExpression, Unknown, is_tested, is_usual
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oomlint.budget.headers import DataFile
    from oomlint.budget.nouns import Container
    from oomlint.finding import Place
    from oomlint.memory.datasets.dataset_classes import Dataset
    from oomlint.memory.loaders.loader_calls import Loader
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Alternative, Picks, Value
    from oomlint.syntax.scopes import Scope

_DEEPEST: Final = 32  # calls
_MOST_FRAMES: Final = 4
_BATCH_SAMPLERS: Final = frozenset({"torch.utils.data.BatchSampler", "torch.utils.data.sampler.BatchSampler"})
_MARKS: Final = (b"oader", b"DataLoader")


class ProgramFinder:
    """Finds the programs of a project."""

    def __init__(self, project: Project, files: Sequence[DataFile] = ()) -> None:
        self.project = project
        self.loaders = loaders_of(project)
        self.evaluator = self.loaders.evaluator
        self.files = files
        self.containers = HeaderContainers(project, files)
        self._phases: dict[str, Phases] = {}
        self._met: dict[str, list[object]] = {}  # the datasets of each class that a program reads

    # -- which files -------------------------------------------------------------------------------------------------------

    def scripts(self, paths: Sequence[str]) -> list[str]:
        """Those of some files that make loaders when they are run."""
        found: dict[str, None] = {}
        loose: dict[str, None] = {}  # where a framework or an installed command calls what makes them
        for path in paths:
            module = self._module(path)
            if module is None:
                continue
            for loader in self.loaders.of(module):
                for use in self._uses_of(loader):
                    root, _ = _outermost(use.frame, loader.call)
                    (found if root.scope.parent is None else loose)[root.module.path] = None
        wanted = set(paths)
        return sorted(path for path in found or loose if path in wanted)

    def any_loader(self, path: str) -> Place | None:
        """Where a file, or one that it imports, makes a loader, whether a run of it comes there or not."""
        made = ((module, loader) for module in self.reached(path) for loader in self.loaders.of(module))
        mine = (one for module, one in made if module.path == path or one.scope is not module.root or not only_as_script(module, one.call))
        return next((one.module.place(one.call) for one in mine), None)

    def reached(self, path: str) -> list[Module]:
        """The file and those of the project that it imports, near ones first."""
        return self.evaluator.options.reached(path)

    def phases(self, path: str) -> Phases:
        """When the loops of a file's program are at work."""
        if path not in self._phases:
            self._phases[path] = Phases(self.project, self.reached(path))
        return self._phases[path]

    def _module(self, path: str) -> Module | None:
        return self.project.find(path) if any(mark in self.project.raw(path) for mark in _MARKS) else None

    # -- programs ----------------------------------------------------------------------------------------------------------

    def programs(self, path: str) -> list[Program]:
        """What running a file makes: one program, or one for each cell of a notebook that makes loaders. Raises SourceError where it cannot be read."""
        self.project.steps.left = sys.maxsize
        entry = self.project.module(path)
        reached = self.reached(path)
        runs: dict[int, list[tuple[Loader, Frame, list[Picks]]]] = {}
        notebook = path.endswith(".ipynb")
        found = list(self._uses(entry, reached))
        used = [use for use in found if not _is_unused(use[0], reached)]
        for loader, frame, ways in used or found:
            _, call = _outermost(frame, loader.call)
            cell = entry.place(call).cell if notebook and call in entry.walk.parents else 0
            runs.setdefault(cell, []).append((loader, frame, ways))
        ranks = ranks_of(self.project).of_program(entry)
        known: dict[object, BudgetDataset] = {}
        self._met.clear()
        phases, shared = self.phases(path), by_name(reached)
        programs: list[Program] = []
        for cell in sorted(runs):
            nouns: dict[object, LoaderNoun] = {}
            for number, (loader, frame, ways) in enumerate(runs[cell]):
                noun = phases.told(self._noun(loader, frame, ways, known, cell), loader, frame)
                nouns.setdefault(noun if phases.ends_where_made(loader) else number, noun)  # of those that several ways lead to, one lives at a time
            count = ranks.count if ranks is not None and ranks.count else 1
            place = replace(ranks.place, message="") if ranks is not None and ranks.place is not None else None
            programs.append(
                Program(path, cell, tuple(nouns.values()), tuple(known.values()), (), count, place, ranks is not None and ranks.count is None, (), shared),
            )
        return programs

    def _uses(self, entry: Module, reached: Sequence[Module]) -> Iterator[tuple[Loader, Frame, list[Picks]]]:
        """Loaders in the frames that the file brings about; where none leads back to it, those that a framework or a registry may call."""
        mine: list[tuple[Loader, Frame, list[Picks]]] = []
        loose: list[tuple[Loader, Frame, list[Picks]]] = []
        paths = {module.path for module in reached}
        for module in reached:
            if not any(mark in self.project.raw(module.path) for mark in _MARKS):
                continue
            for loader in self.loaders.of(module):
                if names.is_property(loader.scope) and not any(self._readings(loader.scope.name, reached)):
                    continue
                ways: dict[Frame, list[Picks]] = {}
                for use in self._uses_of(loader):
                    ways.setdefault(use.frame, []).append(use.picks)
                for frame, picks in ways.items():
                    usual = [one for one in picks if is_usual(one)] or picks
                    root, call = _outermost(frame, loader.call)
                    if root.module is entry:
                        (mine if root.scope.parent is None else loose).append((loader, frame, usual))
                    elif root.module.path in paths and not (root.scope.parent is None and only_as_script(root.module, call)):
                        loose.append((loader, frame, usual))
        yield from [*mine, *self._read_as_properties(loose, reached)] if mine else self._of_command(loose)

    def _read_as_properties(self, loose: list[tuple[Loader, Frame, list[Picks]]], reached: Sequence[Module]) -> Iterator[tuple[Loader, Frame, list[Picks]]]:
        """Those of some loaders that a property makes, of the objects that the program reads it from: no call of it is written."""
        for loader, ways in ((loader, ways) for loader, _, ways in loose if names.is_property(loader.scope)):
            seen: dict[Frame, None] = {}
            for module, node in self._readings(loader.scope.name, reached):
                seen |= dict.fromkeys(self._property_frames(node, module, loader.scope))
            yield from ((loader, frame, ways) for frame in seen)

    @staticmethod
    def _readings(name: str, reached: Sequence[Module]) -> Iterator[tuple[Module, cst.Attribute]]:
        """Where an attribute of a name is read, of whatever object."""
        for module in (one for one in reached if name in one.source.text):
            nodes = (node for node in module.root.nodes() if isinstance(node, cst.Attribute) and node.attr.value == name)
            yield from ((module, node) for node in nodes if not module.walk.is_target(node))

    def _property_frames(self, node: cst.Attribute, module: Module, wanted: Scope) -> list[Frame]:
        """The frames in which reading an attribute runs a property; none where it may be one of objects of several classes."""
        scope = module.walk.scope_at(node)
        frames = self.evaluator.calls.frames(module, scope, most=_MOST_FRAMES) or [self.evaluator.calls.plain_frame(module, scope)]
        found = [alt.value for frame in frames if self.evaluator.where(node, frame) for alt in self.evaluator.values(node.value, frame) if not alt.reach]
        objects = [one for one in found if isinstance(one, Instance)]
        methods = [self.evaluator.method(one, node.attr.value) for one in objects]
        if len({one.cls for one in objects}) != 1:
            return []
        return [Frame(one.module, one.scope, None, this) for this, one in zip(objects, methods, strict=True) if one is not None and one.scope is wanted]

    def _of_command(self, found: list[tuple[Loader, Frame, list[Picks]]]) -> Iterator[tuple[Loader, Frame, list[Picks]]]:
        """Of functions that are commands of a group, that which the command names: ``python main.py train``."""
        called = [(one, _command_name(_outermost(one[1], one[0].call)[0].scope)) for one in found]
        words = self.project.command.words if self.project.command is not None else ()
        chosen = next((word for word in words if any(name == word for _, name in called)), None)
        yield from (one for one, name in called if chosen is None or not name or name == chosen)

    def _uses_of(self, loader: Loader) -> list[LoaderUse]:
        """The loader in all its frames. To a method that a framework calls, a way may lead that nobody sees."""
        found = list(self.loaders.uses(loader))
        if found or not names.is_method(loader.scope) or self.evaluator.calls.sites(loader.module, loader.scope, 1):
            return found
        return [LoaderUse(loader, frame, FREE) for frame in self.evaluator.calls.frames(loader.module, loader.scope)]

    # -- loaders -----------------------------------------------------------------------------------------------------------

    def _noun(self, loader: Loader, frame: Frame, ways: list[Picks], known: dict[object, BudgetDataset], cell: int) -> LoaderNoun:
        workers, worker = self._number(self._settled(loader, "num_workers", frame, self.loaders.workers(loader, frame)), ways, 0, WORKERS)
        batch, batched = self._batch(loader, frame, ways)
        ahead, prefetched = self._number(self._settled(loader, "prefetch_factor", frame), ways, PREFETCHED, PREFETCH)
        persistent = self._says(loader, frame, "persistent_workers", ways)
        sampled = any(is_given(a.value) for a in self.loaders.argument(loader, "sampler", frame) if not a.reach)
        methods = start_methods(self.loaders, loader, frame)
        method = ("forkserver" if "forkserver" in methods.counted else min(methods.counted)) if methods.known else ""
        method = method or (UNKNOWN_METHOD if self._is_method_open(loader, frame) else "")
        module, call = loader.made_at(frame)
        read = self._dataset(loader, frame, ways)
        sources = (self._source(read, known, cell),) if read is not None else ()
        name = _name(module, call, loader)
        owner = sources[0].name if sources else name
        containers = sources[0].containers if sources else ()
        sample = _numbered(
            sample_of(self.project, _innermost(read) if read is not None else None, containers, owner, self.containers.parts),
            sources[0].number if sources else 1,
        )
        place = worker_count(worker).place if worker is not None else None
        shuffled = sampled or self._says(loader, frame, "shuffle", ways)
        told = ((WORKERS, worker), (BATCH, batched), (PREFETCH, prefetched))
        literals = tuple((word, where) for word, alt in told if alt is not None and (where := _literal(alt)) is not None)
        pinned = self._says(loader, frame, "pin_memory", ways)
        without = self._without_workers(loader, frame, persistent=persistent)
        part = None
        if read is not None and read.alternative is not None:
            part = part_of(read.alternative.value, samples_in(sources), self.evaluator, self.containers.datasets.contents)
        return LoaderNoun(
            module.place(call), name, workers, batch, ahead, place, persistent, shuffled, method, sources, sample, pinned, literals, without, samples=part,
            refused=tuple(self.loaders.refused(loader, frame)),
        )  # fmt: skip

    def _batch(self, loader: Loader, frame: Frame, ways: list[Picks]) -> tuple[int | Name, Alternative | None]:
        """How many samples are in a batch: what the loader is told, else what draws its batches is."""
        told = self._number(self.loaders.argument(loader, "batch_size", frame), ways, 1, BATCH)
        asked = [alt for alt in self.loaders.argument(loader, "batch_sampler", frame) if any(alt.under(picks) is not None for picks in ways)]
        drawn = [alt.value for alt in asked if not isinstance(alt.value, Absent) and alt.value != Const(None)]
        if not drawn or (isinstance(told[0], int) and told[0] > 1 and not any(map(is_given, drawn))):  # torch refuses both
            return told
        sizes = [self._drawn(value, ways) for value in drawn] + ([told[0]] if len(drawn) < len(asked) else [])
        known = [size for size in sizes if isinstance(size, int)]
        return (max(known) if len(known) == len(sizes) else Name(BATCH)), None

    def _drawn(self, value: Value, ways: list[Picks]) -> int | Name:
        """How many samples each batch has that an object draws."""
        if not isinstance(value, ExternalCall) or names.canonical(value.name) not in _BATCH_SAMPLERS:
            return Name(BATCH)
        size = arguments.argument_for(value.call, "batch_size", place=1)
        return self._number(self.evaluator.values(size, value.frame), ways, 0, BATCH)[0] if size is not None else Name(BATCH)

    def _without_workers(self, loader: Loader, frame: Frame, *, persistent: bool) -> tuple[tuple[Place, str], ...] | None:
        """What has to become of arguments that only a loader with workers may have, unless a test guards them; None where that cannot be written."""
        ahead = self.loaders.argument(loader, "prefetch_factor", frame)
        given = {"prefetch_factor": any(is_given(alt.value) for alt in ahead), "persistent_workers": persistent}
        found: list[tuple[Place, str]] = []
        for name in (name for name, is_set in given.items() if is_set):
            arg, workers = loader.explicit(name), loader.explicit("num_workers")
            if arg is not None and isinstance(arg.value, cst.IfExp | cst.BooleanOperation | cst.Comparison):
                continue
            if arg is None or workers is None or not isinstance(workers.value, cst.Integer | cst.Name | cst.Attribute):
                return None
            module, count, value = loader.module, loader.module.code(workers.value), loader.module.code(arg.value)
            ahead_of = "None" if isinstance(workers.value, cst.Integer) else f"{value} if {count} > 0 else None"
            stays = "False" if isinstance(workers.value, cst.Integer) else f"{count} > 0" if value == "True" else f"{value} and {count} > 0"
            found.append((module.place(arg.value), ahead_of if name == "prefetch_factor" else stays))
        return tuple(found)

    def _number(self, found: Sequence[Alternative], ways: list[Picks], default: int, name: str) -> tuple[int | Name, Alternative | None]:
        """The largest number that a plain run gives; a name where none is known."""
        best: tuple[int, Alternative] | None = None
        for alt in found:
            value = alt.value
            if not any(alt.under(picks) is not None for picks in ways):
                continue
            if is_unread(value) or isinstance(value, Each | PartOfEach | Element):
                return Name(name), None  # a file that nobody has read may say it
            if alt.reach:
                continue
            if not is_cpu_count(value) and isinstance(value, Unknown | SourceExpression) and is_usual(alt.picks) and (is_tested(alt.picks) or len(found) == 1):
                return Name(name), None  # on a way that nobody can rule out
            number = default if isinstance(value, Absent) or (isinstance(value, Const) and value.value is None) else None
            if isinstance(value, Const) and isinstance(value.value, int):
                number = int(value.value)
            if number is not None and number >= 0 and (best is None or number > best[0]):
                best = (number, alt)
        return best if best is not None else (Name(name), None)

    def _is_method_open(self, loader: Loader, frame: Frame) -> bool:
        """Whether the code chooses how workers start, and nobody knows what."""
        asked = [self.loaders.argument(loader, "multiprocessing_context", frame)]
        for module in {loader.module, *(layer.frame.module for layer in frame.bound or ())}:
            for call, scope in module.calls_of(("set_start_method",)):
                asked += [self.evaluator.plainly(arg.value, module, scope) for arg in call.args[:1]]
        found = [alt for alternatives in asked for alt in alternatives if not alt.reach]
        return any(not isinstance(alt.value, Const | Absent | ExternalCall) for alt in found)

    def _settled(self, loader: Loader, name: str, frame: Frame, given: list[Alternative] | None = None) -> list[Alternative]:
        """What the loader has for an argument when its batches are made."""
        return self.loaders.once_set(loader, name, frame, given if given is not None else self.loaders.argument(loader, name, frame))

    def _says(self, loader: Loader, frame: Frame, name: str, ways: list[Picks]) -> bool:
        found = self._settled(loader, name, frame)
        return any(is_true(alt.value) and not alt.reach and any(alt.under(picks) is not None for picks in ways) for alt in found)

    def _dataset(self, loader: Loader, frame: Frame, ways: list[Picks]) -> Dataset | None:
        """The dataset that a plain run reads; none where it may be one or another."""
        found = datasets_of(self.project).of(self.loaders, loader, frame)
        usual = [one for one in found if one.alternative is None or any(one.alternative.under(picks) is not None for picks in ways)]
        sure = [one for one in usual if one.alternative is None or not one.alternative.reach] or usual
        tested = [one for one in sure if one.alternative is not None and is_tested(one.alternative.picks)]
        return None if len(tested) > 1 else next(iter(sure), None)

    def _source(self, dataset: Dataset, known: dict[object, BudgetDataset], cell: int) -> BudgetDataset:
        core = _innermost(dataset)
        key = _key(core)
        found = known.get(key)
        if found is None:
            held = {one.same for other in known.values() for one in other.containers if one.same is not None}
            numbered = (replace(one, size=_numbered(one.size, self._number_of(owner))) for owner, one in self.containers.of(dataset))
            containers = tuple(replace(one, counted=one.same in held) for one in _each_once(numbered))
            place = core.module.place(core.node)
            if core.instance is not None and core.instance.call is not None and core.instance.at is not None:
                place = core.instance.at.module.place(core.instance.call)
            files, caches = tuple(opened(self.project, core)), tuple(chunk_caches(self.project, core, self.containers))
            found = known[key] = BudgetDataset(core.words.strip("`"), place, containers, cell, self._number_of(core), files, caches)
        return found

    def _number_of(self, dataset: Dataset) -> int:
        """Which of the datasets of its class it is, in the order in which the program's loaders come to read them."""
        same = self._met.setdefault(dataset.words, [])
        key = _key(dataset)
        if key not in same:
            same.append(key)
        return same.index(key) + 1


def _each_once(found: Iterable[Container]) -> Iterator[Container]:
    """The containers of a dataset without further names of the same memory. Of parts of one file nobody knows more than the whole: they are one."""
    seen: dict[object, Container] = {}
    listed = list(found)
    whole = {one.same for one in listed if one.same is not None and one.size.value is not None}
    for number, one in enumerate(one for one in listed if one.within is None or one.within not in whole):
        part = (one.file, one.owner) if one.file and one.certainty is Certainty.AT_MOST else None
        key = part or one.same or number
        if key in seen and (part is not None or one.size.value is None) and one.name not in seen[key].name.split(", "):
            seen[key] = replace(seen[key], name=f"{seen[key].name}, {one.name}")
        seen.setdefault(key, one)
    yield from seen.values()


def _is_unused(loader: Loader, modules: Sequence[Module]) -> bool:
    """Whether what a loader is bound to is written nowhere else: its workers never start, and its batches are never made."""
    bound = loader.module.walk.bound_to(loader.call)
    if len(bound) != 1 or bound[0][1]:
        return False
    name = re.compile(rf"\b{re.escape(bound[0][0])}\b")
    return sum(len(name.findall(module.source.text)) for module in modules) == 1


def _numbered(size: SizeProduct, number: int) -> SizeProduct:
    """The names of the second dataset of a class are not those of the first: its numbers may be others."""
    if number == 1:
        return size
    return SizeProduct(tuple(replace(part, text=f"{part.text}#{number}") if isinstance(part, Name) else part for part in size.factors))


def _name(module: Module, call: cst.Call, loader: Loader) -> str:
    """What a loader is bound to, else the function that gives it, else its class."""
    for root, path in module.walk.bound_to(call):
        return root + "".join(f".{key}" if kind == "attr" else "[...]" if key is UNKNOWN_KEY else f"[{key!r}]" for kind, key in path)
    return loader.scope.name if loader.scope.is_function and not loader.inherited else loader.written


def _command_name(scope: Scope) -> str:
    """How a group of commands calls a function: ``@cli.command("name")``; empty where it is none of a group's."""
    for decorator in scope.node.decorators if isinstance(scope.node, cst.FunctionDef) else ():
        call = decorator.decorator if isinstance(decorator.decorator, cst.Call) else None
        func = call.func if call is not None else decorator.decorator
        if isinstance(func, cst.Attribute) and func.attr.value == "command":
            given = constant_key(call.args[0].value) if call is not None and call.args and call.args[0].keyword is None else None
            return given if isinstance(given, str) else scope.name.replace("_", "-")
    return ""


def _literal(alt: Alternative) -> Place | None:
    """Where the code writes the number."""
    step = alt.story[-1] if alt.story else None
    written = step is not None and isinstance(step.node, cst.Integer) and isinstance(alt.value, Const) and step.node.evaluated_value == alt.value.value
    return step.module.place(step.node) if written and step is not None and step.module is not None and step.node is not None else None


def _key(dataset: Dataset) -> object:
    """What is equal for one object."""
    return dataset.instance if dataset.instance is not None else (dataset.module.path, dataset.node)


def _innermost(dataset: Dataset) -> Dataset:
    """The dataset behind wrappers of one: ``Subset``, ``random_split``."""
    while dataset.instance is None and not dataset.holdings and len(dataset.inner) == 1:
        dataset = dataset.inner[0]
    if dataset.inner and not dataset.holdings and len(dataset.inner) == 1:
        return dataset.inner[0]
    return dataset


def _outermost(frame: Frame, call: cst.CSTNode) -> tuple[Frame, cst.CSTNode]:
    """The frame that a run begins with, and the call in it that leads to ``frame``."""
    for _ in range(_DEEPEST):
        made = frame.this if frame.scope.parent is not None else None
        last = frame.bound[-1] if frame.bound else None
        if last is not None:
            frame, call = last.frame, last.call
        elif made is not None and made.at is not None and made.call is not None:
            frame, call = made.at, made.call
        else:
            break
    return frame, call
