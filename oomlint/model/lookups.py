"""Names that are computed when the program runs: ``getattr(datasets, name)``, ``globals()[name]``, ``eval("datasets." + name)``.

Where the name is not known, each class of the module that it is looked up in counts, as each value of a dictionary does under a key that nobody knows;
of an object those methods count whose names have the part that is known.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import names
from oomlint.model.attributes import Attributes
from oomlint.model.computed_names import MOST, asked_for, ending
from oomlint.model.questions import UNKNOWN
from oomlint.model.reach import path_conditions
from oomlint.model.values import Absent, Alternative, Alternatives, ClassRef, Const, External, Frame, FunctionRef, Instance, ModuleRef
from oomlint.syntax.nodes import beginning, constant_key
from oomlint.syntax.scopes import DEFINES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module
    from oomlint.model.values import Value
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Scope

_MODULES: Final = External("sys.modules")
_DEEPEST: Final = 3  # `from .x import *` in what `from .y import *` brings
_DOTTED: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class Lookups(Attributes):
    """Follows a computed name to what has it."""

    def attribute_by_name(self, node: cst.Call, frame: Frame) -> Alternatives:
        """``getattr(x, name)``, ``getattr(x, name, default)``."""
        if len(node.args) not in {2, 3}:
            return [Alternative(UNKNOWN)]
        holder, key = node.args[0].value, node.args[1].value
        found: Alternatives = []
        for text, alt in self._texts(key, frame):
            if text is None:
                denied = _denied(key, node, frame)
                for held in self._holders(holder, (), frame):
                    methods = self._methods(held, held.value, key) if isinstance(held.value, Instance) else []
                    found.extend(methods or self._classes(held, key, beginning(key), ending(key), frame, denied))
            else:
                members = self._holders(holder, (("attr", text),), frame)
                found.extend(merged for member in members if (merged := member.under(alt.picks)) is not None)
        if node.args[2:]:
            fallback = self.values(node.args[2].value, frame)
            return [b for a in found for b in (fallback if isinstance(a.value, Absent) else [a])]
        return found or [Alternative(UNKNOWN)]

    def own_methods(self, call: cst.Call, function: FunctionRef, instance: Instance) -> list[FunctionRef]:
        """Methods of an object that a call in one of its methods runs: ``self.read(row)``, ``getattr(self, "read_" + kind)(row)``."""
        func, scope = call.func, function.scope
        if isinstance(func, cst.Attribute):
            own = isinstance(func.value, cst.Name) and func.value.value == names.self_name(scope)
            method = self.method(instance, func.attr.value) if own else None
            return [method] if method is not None else []
        if not isinstance(func, cst.Call) and not (isinstance(func, cst.Name) and func.value in scope.effects):
            return []
        # What is looked up in `self` is of the object, whatever class the method stands in.
        found = (alt.value for alt in self.values(func, Frame(function.module, scope, None, instance if names.is_method(scope) else None)))
        return [one for one in found if isinstance(one, FunctionRef) and one.this == instance]

    def entry_of_module(self, value: ModuleRef, key: object, rest: tuple[Accessor, ...]) -> Alternatives:
        """``vars(module)[name]``, ``module.__dict__[name]``."""
        if isinstance(key, str):
            return self.module_member(value, key, rest)
        return [b for a in self._classes(Alternative(value), value, "", "", None) for b in self.reach_into(a, rest)] or [Alternative(UNKNOWN)]

    def evaluated(self, node: cst.BaseExpression, frame: Frame) -> Alternatives:
        """``eval(text)``, of a text that is a name, or a name of a module whose last part is not known; nothing where it is something else."""
        found: Alternatives = []
        for text, alt in self._texts(node, frame):
            start = beginning(node).rpartition(".")[0] if text is None else text
            if _DOTTED.fullmatch(start) is None:
                continue
            root, *parts = start.split(".")
            for value in self.resolve(root, tuple(("attr", part) for part in parts), frame, node):
                merged = value.under(alt.picks)
                if merged is not None:
                    found.extend([merged] if text is not None else self._classes(merged, node, beginning(node).rpartition(".")[2], ending(node), frame))
        return found

    def imported_by_name(self, node: cst.BaseExpression, frame: Frame) -> Alternatives:
        """``importlib.import_module(name)``, of a module of the project; nothing where it is another, or nobody knows."""
        found: Alternatives = []
        for text, alt in self._texts(node, frame):
            path = self.project.locate(frame.module.path, text) if text is not None and _DOTTED.fullmatch(text) else None
            if path is not None:
                found.append(Alternative(self.module_at(path), alt.story, alt.picks, alt.doubt, alt.reach))
        return found

    def by_path(self, text: str, frame: Frame) -> Alternatives:
        """What a dotted path leads to, `project.data.Passages`; nothing where it is of no module of the project."""
        holder, _, last = text.rpartition(".")
        path = self.project.locate(frame.module.path, holder) if _DOTTED.fullmatch(text) and holder else None
        return self.reach_into(Alternative(self.module_at(path)), (("attr", last),)) if path is not None else []

    def _holders(self, node: cst.BaseExpression, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """What a name is looked up in, or what that has; ``sys.modules[__name__]`` is the module that says so."""
        index = node.slice[0].slice if isinstance(node, cst.Subscript) else None
        itself = isinstance(index, cst.Index) and names.dotted(index.value) == "__name__"
        if isinstance(node, cst.Subscript) and itself and any(alt.value == _MODULES for alt in self.values(node.value, frame)):
            return self.reach_into(Alternative(ModuleRef(frame.module.path, frame.module)), accessors)
        return self.access(node, accessors, frame)

    def _texts(self, node: cst.BaseExpression, frame: Frame) -> Iterator[tuple[str | None, Alternative]]:
        """What a computed name can be; ``None`` for what nobody knows."""
        for alt in self.values(node, frame):
            known = alt.value.value if isinstance(alt.value, Const) else None
            yield (known if isinstance(known, str) else None), alt

    def _classes(self, alt: Alternative, origin: object, start: str, end: str, frame: Frame | None, denied: frozenset[str] = frozenset()) -> Alternatives:
        """Classes of a module whose names begin and end as the computed one does; not where one of them asks, which may hold any other, and that one again."""
        holder = alt.value
        if not isinstance(holder, ModuleRef) or holder.module is None:
            return [Alternative(UNKNOWN)]
        asking = frame.scope.parent if frame is not None else None
        found: dict[str, list[Alternative]] = {}
        classes: set[Value] = set()
        for name in self._names(holder.module):
            if name in found or name in denied or not (name.startswith(start) and name.endswith(end)):
                continue
            found[name] = []
            for member in self.module_member(holder, name, ()):
                picked = Alternative(member.value, member.story, frozenset({(("named", origin), name)})).under(alt.picks)
                if isinstance(member.value, ClassRef) and picked is not None and not _is_abstract(member.value.scope):
                    found[name].append(picked)
                    classes.add(member.value)
                    if len(classes) > MOST or member.value.scope is asking:  # to know the others, all files that they come from would be read
                        return [Alternative(UNKNOWN)]
        once: dict[Value, Alternative] = {}
        for picked in (one for name in sorted(found) for one in found[name]):
            once.setdefault(picked.value, picked)
        return list(once.values()) or [Alternative(UNKNOWN)]

    def _methods(self, alt: Alternative, holder: Instance, key: cst.BaseExpression) -> Alternatives:
        """Methods of an object whose names begin and end as the computed one does: ``getattr(self, "read_" + kind)``; none where nothing of it is known."""
        line = [base.scope for base in self.lineage(holder.cls) if isinstance(base, ClassRef)]
        found = asked_for(key, sorted({one.name for cls in line for one in cls.children if one.is_function}))
        members = (self.attribute(holder, name, ()) for name in found)
        return [merged for alts in members for one in alts if (merged := one.under(alt.picks)) is not None]

    def _names(self, module: Module, depth: int = 0) -> Iterator[str]:
        """Names that a module defines or imports."""
        for name, effects in module.root.effects.items():
            if name == "*":
                for statement in (effect.statement for effect in effects if isinstance(effect.statement, cst.ImportFrom)):
                    path = self.project.locate(module.path, names.dotted(statement.module), len(statement.relative))
                    deeper = self.module_at(path) if path is not None and depth < _DEEPEST else UNKNOWN
                    if isinstance(deeper, ModuleRef) and deeper.module is not None:
                        yield from self._names(deeper.module, depth + 1)
            elif any(effect.kind in DEFINES for effect in effects):
                yield name


def _denied(key: cst.BaseExpression, node: cst.CSTNode, frame: Frame) -> frozenset[str]:
    """Names that a computed one is not where control is: ``if name == "big": ... else: getattr(datasets, name)``."""
    code, found = frame.module.code, set()
    for test, wanted in path_conditions(frame.module.walk, frame.scope, node):
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1 and code(test.left) == code(key):
            told = constant_key(test.comparisons[0].comparator)
            if isinstance(told, str) and isinstance(test.comparisons[0].operator, cst.NotEqual if wanted else cst.Equal):
                found.add(told)
    return frozenset(found)


def _is_abstract(cls: Scope) -> bool:
    """Whether a class cannot be made: it has a method that is abstract."""
    marks = (mark for scope in cls.children if isinstance(scope.node, cst.FunctionDef) for mark in scope.node.decorators)
    return any(names.last_name(mark.decorator) == "abstractmethod" for mark in marks)
