"""Which code builds a dataset, and which code runs for every sample."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import RANDOM
from oomlint.frameworks import STEP_METHODS
from oomlint.memory.datasets.dataset_classes import datasets_of, has_samples
from oomlint.memory.loaders.loader_calls import evaluator_of, is_imported, loaders_of
from oomlint.model import names
from oomlint.model.computed_names import asked_for
from oomlint.model.readings import AnswerMemory
from oomlint.model.values import ClassRef, Display, External, Instance, Unknown, greatest, is_typed
from oomlint.scout.telling_names import is_data_class, makes_data
from oomlint.syntax.nodes import is_attribute_of

if TYPE_CHECKING:
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Value
    from oomlint.syntax.scopes import Scope

# Methods that run once a sample or once a batch.
_AT_START: Final = ("__init__", "__post_init__", "setup", "prepare_data")
_PER_ITEM: Final = frozenset((*"__getitem__ __getitems__ __iter__ __next__ forward collate_fn collate __call__".split(), *STEP_METHODS))
_SAME: Final = ("builtins.", "os.path.", "posixpath.")
_MOST_CALLERS: Final = 32
_MOST_FILES: Final = 12  # with loaders, in which one of a class is looked for
_SMALL_LOOP: Final = 64  # a loop of so many rounds goes over splits or parts of a sample, not over samples


class Constructions:
    """Answers for classes and functions. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.evaluator = evaluator_of(project)
        self.contents = datasets_of(project).contents
        self._is: AnswerMemory[Scope, bool] = AnswerMemory(project.readings)
        self._datasets: AnswerMemory[Scope, list[ClassRef]] = AnswerMemory(project.readings)
        self._built: AnswerMemory[Scope, frozenset[Scope]] = AnswerMemory(project.readings)
        self._items: dict[Scope, frozenset[Scope]] = {}  # filled beside the one before
        self._counts: AnswerMemory[cst.BaseExpression, int | None] = AnswerMemory(project.readings)

    def is_dataset(self, cls: ClassRef) -> bool:
        """Whether a loader reads objects of the class, by what it derives from or by what it defines."""
        return self._is.answer(cls.scope, lambda: self._judge(cls))

    def _judge(self, cls: ClassRef) -> bool:
        for base in self.evaluator.lineage(cls):
            if isinstance(base, External):
                if has_samples(base.name):
                    return True
                if base.name.startswith(("torch.nn.", "lightning", "pytorch_lightning", "torch.utils.data.Sampler", "torch.utils.data.sampler")):
                    return False
        this = Instance(cls, None)
        item = self.evaluator.method(this, "__getitem__")
        collates = bool(collating(cls.scope))
        if not collates and (item is None or self.evaluator.method(this, "__len__") is None):
            return False
        if b"torch" not in cls.module.project.raw(cls.module.path) and not self._is_loaded(cls):
            return False
        if collates or item is None:
            return True
        if self.evaluator.method(this, "__contains__") is not None and not self._is_loaded(cls):
            return False  # what is asked whether it has a key is a table, of words say, and no row of samples
        # Part of a set of boxes, or of masks, is such a set: one sample in itself.
        parts = self.evaluator.returned(item, (), ())
        return not any(isinstance(part.value, Instance) and part.value.cls.scope is cls.scope for part in parts)

    def _is_loaded(self, cls: ClassRef) -> bool:
        """Whether a loader of another file takes an object of the class."""
        loaders, project = loaders_of(cls.module.project), cls.module.project
        for module in islice(project.mentioning([b"DataLoader"], cls.module.path), _MOST_FILES):
            for loader in loaders.of(module):
                for use in loaders.uses(loader):
                    given = (alt.value for alt in loaders.argument(loader, "dataset", use.frame))
                    if any(isinstance(one, Instance) and cls in self.evaluator.lineage(one.cls) for one in given):
                        return True
        return False

    def gives_the_same(self, module: Module, call: cst.Call) -> bool:
        """Whether a call makes the same of the same arguments each time: a dataset whose construction draws nothing, a sampler, a container, a path.

        Of a class out of sight that is assumed. A function may do anything, and what is made with a model changes while that learns.
        """
        scope = module.walk.scope_at(call)
        if any(isinstance(arg.value, cst.Name) and _learns(scope, arg.value.value) for arg in call.args):
            return False
        found = [alt.value for alt in self.evaluator.plainly(call.func, module, scope)[:2]]
        return bool(found) and all(self._makes_the_same(one, module, call.func) for one in found)

    def _makes_the_same(self, made: Value, module: Module, function: cst.BaseExpression) -> bool:
        if isinstance(made, Unknown):
            return is_imported(module, function) and names.last_name(function)[:1].isupper()
        if isinstance(made, External):
            return made.name.startswith(_SAME) or made.name.rpartition(".")[2][:1].isupper()
        if not isinstance(made, ClassRef) or not self.is_dataset(made):
            return False
        built, items = self._reached(made)
        return not any(names.last_name(call.func) in RANDOM for method in built - items for call in method.calls)

    def datasets(self, cls: ClassRef) -> list[ClassRef]:
        """The class, where it is a dataset; else the datasets that derive from it."""
        return self._datasets.answer(
            cls.scope, lambda: [cls] if self.is_dataset(cls) else [one for one in self.evaluator.calls.subclasses(cls) if self.is_dataset(one)]
        )

    def builds(self, cls: ClassRef, method: Scope) -> bool:
        """Whether a method of the class runs while an object is built, or once before its samples are read."""
        if method.name == "__new__" or method.name in _AT_START:
            return True
        if method.name in _PER_ITEM:
            return False
        built, items = self._reached(cls)
        return method in built or method not in items

    def building(self, cls: ClassRef) -> frozenset[Scope]:
        """The methods that are seen to run while an object of the class is built."""
        return self._reached(cls)[0]

    def per_item(self, module: Module, scope: Scope) -> bool:
        """Whether a function is, or is part of, what runs for every sample."""
        here: Scope | None = scope
        while here is not None and not here.is_class:
            if here.name in _PER_ITEM:
                return True
            if here.parent is not None and here.parent.is_class:
                built, items = self._reached(ClassRef(module, here.parent))
                return here in items and here not in built
            here = here.parent
        return False

    def _reached(self, cls: ClassRef) -> tuple[frozenset[Scope], frozenset[Scope]]:
        """Methods that ``__init__`` calls, and methods that run for a sample; both directly or not."""
        known = self._built.get(cls.scope)
        if known is None:
            every = {one.name: one for base in reversed([b for b in self.evaluator.lineage(cls) if isinstance(b, ClassRef)]) for one in base.scope.children}
            every.update({one.name: one for one in cls.scope.children})
            known = self._built[cls.scope] = _closure(every, _AT_START)
            self._items[cls.scope] = _closure(every, tuple(_PER_ITEM | {"__len__"} | collating(cls.scope)))
        return known, self._items[cls.scope]

    def count(self, module: Module, iterable: cst.BaseExpression) -> int | None:
        """Rounds of a loop, where they are few and known; ``None`` where it may go over samples."""
        return self._counts.answer(iterable, lambda: self._count(module, iterable))

    def _count(self, module: Module, iterable: cst.BaseExpression) -> int | None:
        frame = self.evaluator.calls.plain_frame(module, module.walk.scope_at(iterable))
        number = self.contents.containers.count(iterable, frame)
        if number is None:
            number = self._by_default(module, iterable)
        # Nobody goes over nothing: what is written empty is filled where nobody has looked.
        return number if number and (number <= _SMALL_LOOP or self.is_written_out(module, iterable)) else None

    def count_by_callers(self, module: Module, iterable: cst.BaseExpression) -> int | None:
        """The most rounds of a loop that a call in sight brings about; ``None`` where one of them may bring any number, or nobody calls."""
        frames = self.evaluator.calls.frames(module, module.walk.scope_at(iterable), most=_MOST_CALLERS)
        if len(frames) >= _MOST_CALLERS or any(frame.bound is None for frame in frames):
            return None
        counts = [self.contents.containers.count(iterable, frame) or None for frame in frames]  # what is written empty is filled elsewhere, as above
        return max((one for one in counts if one is not None), default=None) if None not in counts else None

    def is_written_out(self, module: Module, iterable: cst.BaseExpression) -> bool:
        """Whether an iterable is a list or tuple whose elements stand in the code: however many, somebody has typed them."""
        found = self.evaluator.plainly(names.iterated(iterable), module, module.walk.scope_at(iterable))
        shown = [alt.value.node if isinstance(alt.value, Display) else None for alt in found]
        return bool(shown) and all(isinstance(node, cst.List | cst.Tuple) and node.elements for node in shown)

    def few(self, module: Module, node: cst.CSTNode) -> bool:
        """Whether the innermost loop around a node takes the first few of many: ``for path in paths[:20]``."""
        over = next((header.iter for header in names.headers(module.walk, node)), None)
        return over is not None and bool(_slices(module.walk.scope_at(over), over)) and self.count(module, over) is not None

    def _by_default(self, module: Module, iterable: cst.BaseExpression) -> int | None:
        """Elements of ``paths[:most]``, where ``most`` is a parameter: by its default, where nobody calls the function, else by the defaults of options."""
        scope = module.walk.scope_at(iterable)
        given = {p.name.value: p.default for p in names.parameters(scope)}
        for one in _slices(scope, iterable):
            part = one.slice[0].slice if len(one.slice) == 1 else None
            upper = part.upper if isinstance(part, cst.Slice) else None
            if not isinstance(upper, cst.Name) or upper.value not in given:
                continue
            frames = self.evaluator.calls.frames(module, scope, most=_MOST_CALLERS)
            if any(frame.bound is not None for frame in frames):
                found = [alt for frame in frames for alt in self.evaluator.values(upper, frame)]
                return greatest([alt for alt in found if not alt.reach]) if is_typed(found) and len(frames) < _MOST_CALLERS else None
            default = given[upper.value]
            if isinstance(default, cst.Integer):
                return int(default.evaluated_value)
        return None


def _slices(scope: Scope, node: cst.BaseExpression) -> list[cst.Subscript]:
    """The slices that an iterable is, or that its name is set to."""
    if isinstance(node, cst.Subscript):
        return [node]
    if isinstance(node, cst.Call) and node.args:
        return _slices(scope, node.args[0].value)
    if isinstance(node, cst.Name):
        return [e.value for e in scope.effects.get(node.value, ()) if isinstance(e.value, cst.Subscript)]
    return []


def collating(cls: Scope) -> frozenset[str]:
    """Methods that put samples together in workers, with all that their object holds: ``DataLoader(numbers, collate_fn=self.merge)``."""
    found: set[str] = set()
    for method in cls.children:
        this = names.self_name(method)
        for call in method.calls if this is not None else ():
            for arg in call.args:
                if arg.keyword is not None and arg.keyword.value == "collate_fn" and isinstance(arg.value, cst.Attribute):
                    found.update({arg.value.attr.value} if names.dotted(arg.value.value) == this else ())
    return frozenset(found)


def _closure(every: dict[str, Scope], roots: tuple[str, ...]) -> frozenset[Scope]:
    """Methods that the roots call on ``self``, the roots included."""
    found: set[Scope] = set()
    todo = [every[name] for name in roots if name in every]
    while todo:
        scope = todo.pop()
        if scope in found:
            continue
        found.add(scope)
        this = names.self_name(scope)
        for call in scope.calls:
            # `self.load()`, and functions that are handed on: `map(self.load, paths)`.
            told = (node for node in (call.func, *(arg.value for arg in call.args)) if isinstance(node, cst.Attribute) and node.attr.value in every)
            todo.extend(every[node.attr.value] for node in told if isinstance(node.value, cst.Name) and node.value.value == this)
            if names.last_name(call.func) == "getattr" and len(call.args) > 1 and names.dotted(call.args[0].value) == this:
                todo.extend(every[name] for name in asked_for(call.args[1].value, every))
    return frozenset(found)


def speaks_of_data(module: Module) -> bool:
    """Whether a module defines a dataset, or makes one or a loader, by the names alone: the same question that the scout asks of its text."""
    for scope in module.walk.scopes:
        if isinstance(scope.node, cst.ClassDef):
            bases = [names.last_name(b.value.value if isinstance(b.value, cst.Subscript) else b.value) for b in scope.node.bases]
            if is_data_class(bases, {child.name for child in scope.children}):
                return True
    return any(makes_data(name) or name.endswith("Loader") for name in module.called)


def _learns(scope: Scope, name: str) -> bool:
    """Whether a name is used as that of a model: it is called, or asked for its parameters."""
    methods = {"train", "eval", "parameters", "state_dict", "zero_grad"}
    return any(
        (isinstance(call.func, cst.Name) and call.func.value == name) or (is_attribute_of(call.func, name) and call.func.attr.value in methods)
        for call in scope.calls
    )


def constructions_of(project: Project) -> Constructions:
    """The constructions of a project."""
    return project.shared(Constructions)
