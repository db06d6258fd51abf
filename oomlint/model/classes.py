"""Classes of the project: their bases, methods and fields, and the frames of their constructors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.api_names import GRAPH_BASES, MODEL_BASES, SAME_GRAPHS, SAME_MODEL
from oomlint.model import names
from oomlint.model.definitions import Definitions
from oomlint.model.questions import UNKNOWN
from oomlint.model.values import (
    ABSENT,
    Alternative,
    Alternatives,
    Bound,
    ClassRef,
    External,
    Frame,
    FunctionRef,
    Instance,
    Value,
)

if TYPE_CHECKING:
    from oomlint.model.project import Module
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Scope


_LONGEST_LINE = 20  # classes
# Bases and decorators that turn annotated names of a class body into fields.
_FIELD_BASES = frozenset({"typing.NamedTuple", "pydantic.BaseModel", "pydantic_settings.BaseSettings"})
_FIELD_DECORATORS = frozenset({"define", "attrs", "s", "frozen", "configclass"})


class Classes(Definitions):
    """Knows the order of inheritance."""

    def bases(self, cls: ClassRef) -> list[Value]:
        """Base classes as they are written, resolved."""
        node = cls.scope.node
        if not isinstance(node, cst.ClassDef):
            return []
        frame = self.calls.plain_frame(cls.module, cls.scope.parent or cls.module.root)
        out: list[Value] = []
        for arg in node.bases:
            found = self.values(arg.value.value, frame)[:2] if isinstance(arg.value, cst.Subscript) else []
            if not any(isinstance(alt.value, ClassRef | External) for alt in found):  # no `Dataset[int]`: `DATASETS[name]`
                found = self.values(arg.value, frame)[:2]
            out.extend(alt.value for alt in found)
        return out

    def lineage(self, cls: ClassRef) -> list[ClassRef | External]:
        """The class and what it derives from, nearest first."""
        known = self.lines.get(cls)
        if known is not None:
            return known
        out: list[ClassRef | External] = []
        queue: list[Value] = [cls]
        while queue and len(out) < _LONGEST_LINE:
            here = queue.pop(0)
            if here in out:
                continue
            if isinstance(here, ClassRef):
                out.append(here)
                queue.extend(self.bases(here))
            elif isinstance(here, External):
                out.append(External(names.canonical(here.name)))
        self.lines[cls] = out
        return out

    def line(self, cls: ClassRef) -> list[ClassRef]:
        """A class of the project, those above it and those below it."""
        return [*(base for base in self.lineage(cls) if isinstance(base, ClassRef)), *self.calls.subclasses(cls)]

    def derives(self, cls: ClassRef, *wanted: str) -> bool:
        """Whether the class derives from one of these library classes."""
        return any(isinstance(base, External) and base.name in wanted for base in self.lineage(cls))

    def extends_dataset(self, cls: ClassRef) -> bool:
        """Whether the class extends the dataset of a library, which calls methods of it and reads what it keeps; those of ``torch.utils.data`` do not."""
        bases = (base.name for base in self.lineage(cls) if isinstance(base, External))
        return any(name.endswith("Dataset") and not names.canonical(name).startswith("torch.utils.data.") for name in bases)

    def gives_itself(self, value: Value, method: str) -> bool:
        """Whether a method that an object has of a library gives the object itself, or a view of it: ``Net().to(device)``, ``graphs.shuffle()``."""
        bases = (MODEL_BASES if method in SAME_MODEL else ()) + (GRAPH_BASES if method in SAME_GRAPHS else ())
        if not bases or not isinstance(value, Instance) or self.method(value, method) is not None:
            return False
        return any(isinstance(base, External) and base.name.startswith(bases) for base in self.lineage(value.cls))

    def is_enum(self, cls: ClassRef) -> bool:
        """Whether the class is an enumeration."""
        return any(isinstance(base, External) and base.name.startswith("enum.") for base in self.lineage(cls))

    def method(self, instance: Instance, name: str) -> FunctionRef | None:
        """A method by the order of inheritance."""
        for cls in self.lineage(instance.cls):
            if isinstance(cls, ClassRef):
                scope = cls.scope.child(name)
                if scope is not None and isinstance(scope.node, cst.FunctionDef):
                    return FunctionRef(cls.module, scope, instance)
        return None

    def filled_in(self, method: FunctionRef, name: str) -> list[FunctionRef]:
        """What a call of a method may run: where its class only says that there is one, what the derived classes make of it."""
        if method.this is None or not names.is_open(method.scope):
            return [method]
        derived = (self.method(Instance(cls, None), name) for cls in self.calls.subclasses(method.this.cls))
        found = {one.scope: FunctionRef(one.module, one.scope, method.this) for one in derived if one is not None and one.scope is not method.scope}
        return list(found.values()) or [method]

    def class_member(self, cls: ClassRef, name: str, rest: tuple[Accessor, ...], this: Instance | None) -> Alternatives:
        """What class bodies say of a name; methods are bound to ``this``."""
        for base in self.lineage(cls):
            if not isinstance(base, ClassRef):
                continue
            effects = base.scope.effects.get(name)
            if not effects:
                continue
            if effects[-1].kind == "def":
                scope = base.scope.child(name)
                if scope is None:
                    return [Alternative(UNKNOWN)]
                owner = Instance(cls, None) if this is None and names.takes_class(scope) else this
                function = FunctionRef(base.module, scope, owner if not names.is_static(scope) else None)
                found = self.filled_in(function, name)
                if names.is_property(scope) and this is not None:
                    return [alt for one in found for alt in self.returned(one, (), rest)]
                return [alt for one in found for alt in self.reach_into(Alternative(one), rest)]
            return self.resolve(name, rest, Frame(base.module, base.scope), None)
        if any(isinstance(base, External) and not base.name.startswith("builtins.") for base in self.lineage(cls)):
            return [Alternative(UNKNOWN)]
        return [Alternative(ABSENT)]

    def init_frame(self, instance: Instance) -> Frame | None:
        """The frame in which ``__init__`` runs for this object."""
        init = self.method(instance, "__init__")
        if init is None:
            return None
        return Frame(init.module, init.scope, instance.bound, instance)

    def super_init(self, call: cst.Call, frame: Frame) -> Frame | None:
        """The frame of the base class's ``__init__`` that a ``super().__init__(...)`` runs."""
        func = call.func
        if not (isinstance(func, cst.Attribute) and func.attr.value == "__init__"):
            return None
        args = list(call.args)
        own = frame.scope.parent
        start: ClassRef | None = None
        if isinstance(func.value, cst.Call) and names.last_name(func.value.func) == "super":
            pass
        else:
            named = self.values(func.value, frame)
            if len(named) == 1 and isinstance(named[0].value, ClassRef):
                start = named[0].value
                args = args[1:]
            else:
                return None
        if frame.this is None:
            return None
        line = self._behind(own, frame.this) if start is None else [start, *[c for c in self.lineage(start) if isinstance(c, ClassRef)]]
        for cls in line:
            scope = cls.scope.child("__init__")
            if scope is not None and scope is not frame.scope:
                return Frame(cls.module, scope, (Bound(tuple(args), frame, call),), frame.this)
        return None

    def super_method(self, name: str, frame: Frame) -> FunctionRef | None:
        """The method of a base class that ``super().name`` is in a frame."""
        if frame.this is None:
            return None
        scopes = ((cls.module, cls.scope.child(name)) for cls in self._behind(frame.scope.parent, frame.this))
        return next((FunctionRef(module, scope, frame.this) for module, scope in scopes if scope is not None and scope.is_function), None)

    def _behind(self, cls: Scope | None, this: Instance) -> list[ClassRef]:
        """The classes of the project behind one in the order in which methods of an object are looked up."""
        line = [c for c in self.lineage(this.cls) if isinstance(c, ClassRef)]
        place = next((n for n, c in enumerate(line) if c.scope is cls), None)
        return line[place + 1 :] if place is not None else []

    def fields(self, cls: ClassRef) -> list[tuple[str, cst.BaseExpression | None, Module]] | None:
        """Fields of a dataclass or named tuple in order, with defaults; ``None`` for other classes."""
        out: dict[str, tuple[str, cst.BaseExpression | None, Module]] = {}
        seen = False
        for base in reversed(self.lineage(cls)):
            if isinstance(base, External):
                seen = seen or base.name in _FIELD_BASES or base.name.endswith("TrainingArguments")
                continue
            node = base.scope.node
            if isinstance(node, cst.ClassDef) and any("dataclass" in name or name in _FIELD_DECORATORS for name in map(_decorator, node.decorators)):
                seen = True
            for name, effects in base.scope.effects.items():
                for effect in effects:
                    if effect.kind in {"assign", "declare"} and isinstance(effect.statement, cst.AnnAssign) and not effect.path:
                        out[name] = (name, effect.value, base.module)
        return list(out.values()) if seen else None


def _decorator(node: cst.Decorator) -> str:
    return names.last_name(node.decorator.func if isinstance(node.decorator, cst.Call) else node.decorator)
