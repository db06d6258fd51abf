"""Code of an object that never runs: an attribute with one value for as long as the object lives keeps control from it, or one that it does not have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.api_names import CONSTANTS
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.model.fitting import PLAIN_BASES
from oomlint.model.reach import path_conditions
from oomlint.model.readings import FOUND, AnswerMemory, finder
from oomlint.model.values import ClassRef, Const, External, Frame
from oomlint.syntax.nodes import descend, is_attribute_of
from oomlint.syntax.scopes import REBINDS

if TYPE_CHECKING:
    from oomlint.model.project import Module, Project
    from oomlint.model.values import FunctionRef, Instance
    from oomlint.syntax.scopes import Effect, Scope


class Flags:
    """Knows which attributes keep the value that constructors give them. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._evaluator = evaluator_of(project)
        self._fixed: AnswerMemory[tuple[ClassRef, str], bool] = AnswerMemory(project.readings)
        self._lacking: AnswerMemory[tuple[ClassRef, str], bool] = AnswerMemory(project.readings)

    def rule_out(self, node: cst.CSTNode, function: FunctionRef, instance: Instance) -> bool:
        """Whether control never comes to a node of a method of this object."""
        return self.rule_out_in(Frame(function.module, function.scope, None, instance), node, instance)

    def rule_out_in(self, frame: Frame, node: cst.CSTNode, instance: Instance) -> bool:
        """The same in a frame of a method: of a constructor, with what it is given."""
        this = names.self_name(frame.scope)
        tests = path_conditions(frame.module.walk, frame.scope, node)
        told = tuple((test, wanted) for test, wanted in tests if this is not None and self._is_told(test, this, instance))
        return bool(told) and not self._evaluator.conditions(told, frame)

    def _is_told(self, test: cst.BaseExpression, this: str, instance: Instance) -> bool:
        """Whether a test asks for nothing but constants and attributes that keep a known value."""
        parts = list(descend(test))
        given = [part.attr.value for part in parts if is_attribute_of(part, this)]
        attributes = {part for part in parts if isinstance(part, cst.Attribute)}
        inside = {id(one) for part in attributes for one in (part.value, part.attr)}
        others = any(isinstance(part, cst.Name) and id(part) not in inside and part.value not in CONSTANTS for part in parts)
        if not given or len(given) != len(attributes) or others or any(isinstance(part, cst.Call | cst.Subscript) for part in parts):
            return False
        return all(self._keeps(instance, name) for name in given)

    def _keeps(self, instance: Instance, name: str) -> bool:
        if not all(isinstance(alt.value, Const) for alt in self._evaluator.attribute(instance, name, ())):
            return False
        key = (instance.cls, name)
        known = self._fixed.get(key)
        if known is None:
            own = {scope for base in self._evaluator.lineage(instance.cls) if isinstance(base, ClassRef) for scope in base.scope.children}
            known = self._fixed[key] = not self._set_by_anybody(instance.cls, name, own)
        return known

    def lacks(self, cls: ClassRef, name: str) -> bool:
        """Whether no object of the class has the attribute: a base class asks for it, and only other classes that derive from that have it, or none."""
        known = self._lacking.get((cls, name))
        if known is None:
            known = self._lacking[cls, name] = self._has_nowhere(cls, name) and not self._set_by_anybody(cls, name, set())
        return known

    def _has_nowhere(self, cls: ClassRef, name: str) -> bool:
        for base in (*self._evaluator.lineage(cls), *self._evaluator.calls.subclasses(cls)):
            if base.name not in PLAIN_BASES if isinstance(base, External) else self._may_give(base, name):
                return False
        return True

    def _may_give(self, cls: ClassRef, name: str) -> bool:
        """Whether the body or a method of the class gives its objects the attribute, or something that nobody can look into may."""
        if {name, "__getattr__"} & cls.scope.effects.keys() or not all(isinstance(base, ClassRef | External) for base in self._evaluator.bases(cls)):
            return True
        return any(_gives(effect, name) for method in cls.scope.children for effects in method.effects.values() for effect in effects)

    def _set_by_anybody(self, cls: ClassRef, name: str, own: set[Scope]) -> bool:
        """Whether code gives an object of anybody's this attribute; not the constructors of ``own``."""
        files = self._project.search(may_set, (name,), cls.module.path, holding=name)
        modules = (module for path in files if (module := self._project.find(path)) is not None)
        return any(_sets(module, name, own) for module in modules)


@finder
def may_set(path: str, data: bytes, name: str) -> str:
    """Whether a file may give an object this attribute: for a search over all files."""
    del path
    given = re.escape(name.encode())
    return FOUND if re.search(rb"\.\s*%s\b[^=\n(]*=(?!=)|setattr\s*\(" % given, data) else ""


def _sets(module: Module, name: str, own: set[Scope]) -> bool:
    """Whether code of a module gives an object of anybody's this attribute: in a method of its class, but for constructors, or from outside."""
    for scope in module.walk.scopes:
        this = names.self_name(scope)
        for root, effects in scope.effects.items():
            if root == this and (scope.name == "__init__" or scope not in own):
                effects = [effect for effect in effects if len(effect.path) > 1]  # noqa: PLW2901 - of the object itself
            if any(_gives(effect, name) for effect in effects):
                return True
        for call in scope.calls:
            if names.last_name(call.func) == "setattr":
                return True
    return False


def _gives(effect: Effect, name: str) -> bool:
    return effect.kind in REBINDS and bool(effect.path) and effect.path[-1] == ("attr", name)
