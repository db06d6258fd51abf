"""Who reads the objects of a class: the loaders of the project, their workers, how these start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.finding import in_own_rows
from oomlint.memory.datasets.dataset_classes import datasets_of, has_samples
from oomlint.memory.loaders.loader_calls import is_zero, loaders_of
from oomlint.memory.shared.start_methods import ALL, PORTABLE, StartMethods, methods_of, start_methods
from oomlint.model.readings import AnswerMemory
from oomlint.model.values import ClassRef, Const, External, ExternalCall, FunctionRef, Instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Place
    from oomlint.memory.datasets.dataset_classes import Dataset
    from oomlint.memory.loaders.loader_calls import Loader, Loaders
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Alternative, Frame
    from oomlint.syntax.scopes import Scope

# Classes of these libraries are called datasets, too, and no loader of torch reads them.


class DatasetReader(Struct, frozen=True, eq=False):
    """A loader that reads an object of a class, in one frame."""

    loader: Loader
    frame: Frame
    instance: Instance
    workers: tuple[Alternative, ...]
    methods: StartMethods

    @property
    def alone(self) -> bool:
        """Whether the main process certainly reads by itself."""
        return bool(self.workers) and all(is_zero(alt.value) for alt in self.workers)

    @property
    def helped(self) -> Alternative | None:
        """The worker count of a plain run, where it is known to be above 0."""
        return next((alt for alt in self.workers if not alt.reach and has_workers(alt)), None)


class Readers(Struct, frozen=True):
    """All that is known of the loaders over a class."""

    readings: tuple[DatasetReader, ...]
    unread: StartMethods  # what counts where no loader is seen

    @property
    def busy(self) -> list[DatasetReader]:
        """Those that may have workers."""
        return [one for one in self.readings if not one.alone]

    @property
    def alone(self) -> bool:
        """Whether there are loaders, and none of them ever has a worker."""
        return bool(self.readings) and not self.busy

    @property
    def methods(self) -> StartMethods:
        """The start methods that count: of the loader for which the surest thing can be said."""
        found = [one.methods for one in self.busy]
        return min(found, key=lambda one: (not (one.known and one.only_pickles), not one.pickles), default=self.unread)

    @property
    def helped(self) -> DatasetReader | None:
        """A loader that certainly has workers."""
        return next((one for one in self.busy if one.helped is not None), None)

    @property
    def pickled(self) -> str:
        """Under which start methods the objects are pickled, in words; empty where they are not."""
        methods = self.methods
        if not methods.pickles:
            return ""
        if methods.known and methods.only_pickles:
            return f"{' and '.join(sorted(methods.counted))} ({methods.source})"
        return PORTABLE

    @property
    def certain(self) -> bool:
        """Whether it is known that the objects are pickled."""
        return self.methods.known and self.methods.only_pickles

    @property
    def count(self) -> int | None:
        """How many workers read, where it is known."""
        reading = self.helped
        count = reading.helped.const if reading is not None and reading.helped is not None else None
        return count if isinstance(count, int) else None

    @property
    def workers(self) -> str:
        """How many workers read, in words, as far as it is known."""
        return "its workers" if self.count is None else f"{self.count} worker{'s' if self.count != 1 else ''}"

    def places(self) -> list[Place]:
        """The loaders, for the related places."""
        spots: list[Place] = []
        for one in sorted(self.busy, key=lambda reading: reading.helped is None):
            count = one.helped.const if one.helped is not None else None
            words = f"{count} worker{'s' if count != 1 else ''}" if isinstance(count, int) else "workers"
            spots.append(one.loader.module.place(one.loader.call, f"read with {words} here" if one.helped is not None else "read here"))
        return [*spots[:1], *in_own_rows(spots[0], spots)][:3] if spots else []


class ReadersOf:
    """Finds the loaders over a class. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.loaders: Loaders = loaders_of(project)
        self.datasets = datasets_of(project)
        self.evaluator = self.loaders.evaluator
        self._by_module: AnswerMemory[str, list[DatasetReader]] = AnswerMemory(project.readings)
        self._known: AnswerMemory[ClassRef, Readers] = AnswerMemory(project.readings)
        self._drawn: AnswerMemory[ClassRef, bool] = AnswerMemory(project.readings)

    def of(self, cls: ClassRef) -> Readers:
        """The loaders over objects of the class, or of one that derives from it."""
        known = self._known.get(cls)
        if known is None:
            found: list[DatasetReader] = []
            for module in self.project.mentioning([b"Loader"], cls.module.path):
                found.extend(one for one in self._in(module) if cls in self.evaluator.lineage(one.instance.cls))
            found.sort(key=lambda one: one.instance.cls != cls)  # its own loaders before those of derived classes
            known = self._known[cls] = Readers(tuple(found), ALL if found else methods_of(self.project, (cls.module,)))
        return known

    def read_any(self, near: Module) -> bool:
        """Whether a loader of the project is seen to read a dataset of the project."""
        return any(self._in(module) for module in self.project.mentioning([b"Loader"], near.path))

    def draws_for(self, cls: ClassRef) -> bool:
        """Whether a loader is given an object of the class to say which samples are in a batch: what that holds is not the samples."""
        known = self._drawn.get(cls)
        if known is None:
            near = self.project.mentioning([b"Loader", b"ampler"], cls.module.path)
            drawn = (one for module in near for loader in self.loaders.of(module) for one in self._samplers(loader))
            known = self._drawn[cls] = any(cls in self.evaluator.lineage(one.cls) for one in drawn)
        return known

    def _samplers(self, loader: Loader) -> Iterator[Instance]:
        for use in self.loaders.uses(loader):
            given = (alt.value for word in ("batch_sampler", "sampler") for alt in self.loaders.argument(loader, word, use.frame))
            yield from (one for one in given if isinstance(one, Instance))

    def over(self, loader: Loader) -> Readers:
        """One loader, whatever it reads."""
        return Readers(tuple(one for one in self._in(loader.module) if one.loader.call is loader.call), ALL)

    def given(self, module: Module, function: Scope) -> tuple[str, Readers] | None:
        """The argument under which a loader of the module is given a function that workers run, and what is known of that loader."""
        for loader in self.loaders.of(module):
            for name in ("collate_fn", "worker_init_fn"):
                argument = loader.explicit(name)
                if argument is None:
                    continue
                frame = self.evaluator.calls.plain_frame(module, loader.scope)
                if any(isinstance(a.value, FunctionRef) and a.value.scope is function for a in self.evaluator.values(argument.value, frame)):
                    return name, self.over(loader)
        return None

    def _in(self, module: Module) -> list[DatasetReader]:
        known = self._by_module.get(module.path)
        if known is None:
            known = []
            self._by_module.assume(module.path, known)
            for loader in self.loaders.of(module):
                known.extend(self._through(loader))
            self._by_module[module.path] = known
        return known

    def _through(self, loader: Loader) -> Iterator[DatasetReader]:
        for use in self.loaders.uses(loader):
            workers = tuple(a for a in self.loaders.workers(loader, use.frame) if a.under(use.picks) is not None)
            methods: StartMethods | None = None
            for dataset in self.datasets.of(self.loaders, loader, use.frame):
                for one in _flat(dataset):
                    if one.instance is not None:
                        methods = methods or start_methods(self.loaders, loader, use.frame)
                        yield DatasetReader(loader, use.frame, one.instance, workers, methods)

    def is_dataset(self, cls: ClassRef) -> bool:
        """Whether a loader reads objects of the class: by what it derives from, or because one is seen to, of it or of another class of its kind.

        A base of the project that has samples, of which a loader reads another class, says as much as one of torch.
        """
        if any(isinstance(base, External) and has_samples(base.name) for base in self.evaluator.lineage(cls)):
            return True
        lineage = [base for base in self.evaluator.lineage(cls) if isinstance(base, ClassRef)]
        has = {scope.name for base in lineage for scope in base.scope.children}
        if not ({"__getitem__", "__len__"} <= has or "__iter__" in has):
            return False
        return any(self.of(base).readings for base in lineage if base == cls or base.scope.child("__getitem__") is not None)


def _flat(dataset: Dataset) -> list[Dataset]:
    return [dataset, *(deeper for one in dataset.inner for deeper in _flat(one))]


def has_workers(alt: Alternative) -> bool:
    """Whether a worker count is known to be above 0."""
    if isinstance(alt.value, Const):
        return isinstance(alt.value.value, int) and alt.value.value > 0
    return isinstance(alt.value, External | ExternalCall) and "cpu_count" in alt.value.name


def readers_of(project: Project) -> ReadersOf:
    """The project's readers."""
    return project.shared(ReadersOf)
