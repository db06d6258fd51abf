"""Attributes of objects: what constructors, class bodies and other methods set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import arguments, names
from oomlint.model.questions import UNKNOWN, Questions, parted, trim
from oomlint.model.values import (
    ABSENT,
    Absent,
    Alternative,
    Alternatives,
    Bound,
    ClassRef,
    Frame,
    FunctionRef,
    Instance,
    ProvenanceStep,
    Value,
)
from oomlint.syntax.nodes import is_attribute_of
from oomlint.syntax.scopes import REBINDS

if TYPE_CHECKING:
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Scope


class Attributes(Questions):
    """Finds what an attribute of an object can be."""

    def attribute(self, instance: Instance, name: str, rest: tuple[Accessor, ...]) -> Alternatives:
        """``self.name`` followed by more: what ``__init__``, the class body, other methods and the bases say."""
        guard = ("attribute", instance.cls, instance.bound is None, instance.call, name, rest)
        if guard in self.active:
            self.given_up += 1
            return [Alternative(UNKNOWN)]
        key = (instance, name, rest)
        known = self.attributes.get(key)
        if known is not None:
            return known
        before = self.given_up
        self.active.add(guard)
        try:
            found = self._attribute(instance, name, rest)
        finally:
            self.active.discard(guard)
        if self.given_up == before:
            self.attributes[key] = found
        return found

    def _attribute(self, instance: Instance, name: str, rest: tuple[Accessor, ...]) -> Alternatives:
        if name == "__class__":
            return self.reach_into(Alternative(instance.cls), rest)
        init = self.init_frame(instance)
        out: Alternatives = []
        if init is not None:
            found = self._own_attribute(init, name, rest)
            if found is not None:
                out, absent = parted(found)
                if not absent:
                    return found
            given = _sets_keywords(init) if instance.bound is not None else None
            if given is not None:
                there, absent = parted(self.parameter(given, (("item", name), *rest), init))
                out = [*out, *there]
                if not absent:
                    return out
            if name in {"hparams", "_hparams"} and rest and rest[0][0] in {"attr", "item"} and self._saves_hyperparameters(init):
                return [*out, *self._hyperparameter(init, str(rest[0][1]), rest[1:])]
        field = self._field(instance, name, rest)
        if field is not None:
            return field
        other = self._set_elsewhere(instance, name, rest)
        if other:
            return [*out, *other]
        found = self.class_member(instance.cls, name, rest, instance)
        if out and all(isinstance(a.value, Absent) for a in found):
            return out
        return [*out, *found]

    def _own_attribute(self, init: Frame, name: str, rest: tuple[Accessor, ...]) -> Alternatives | None:
        """What ``__init__`` (with the ``super().__init__`` that it calls) leaves in an attribute; ``None`` where it does not set it."""
        this = names.self_name(init.scope)
        if this is not None and any(e.path[:1] == (("attr", name),) and e.kind in REBINDS | {"unknown"} for e in init.scope.effects.get(this, ())):
            return self.search(this, (("attr", name), *rest), init, None, start=lambda: self._of_super(init, name, rest) or [Alternative(ABSENT)])
        return self._of_super(init, name, rest)

    def _of_super(self, init: Frame, name: str, rest: tuple[Accessor, ...]) -> Alternatives | None:
        """What the ``super().__init__`` that ``__init__`` calls leaves in an attribute."""
        for call in init.scope.calls:
            parent = self.super_init(call, init)
            if parent is not None:
                found = self._own_attribute(parent, name, rest)
                if found is not None:
                    return found
        return None

    def _saves_hyperparameters(self, init: Frame) -> bool:
        return any(names.last_name(call.func) == "save_hyperparameters" for call in init.scope.calls)

    def _hyperparameter(self, init: Frame, name: str, rest: tuple[Accessor, ...]) -> Alternatives:
        params = set(names.parameter_names(init.scope))
        if name in params:
            return self.parameter(name, rest, init)
        node = init.scope.node
        if isinstance(node, cst.FunctionDef) and node.params.star_kwarg is not None:
            return self.parameter(node.params.star_kwarg.name.value, (("item", name), *rest), init)
        # save_hyperparameters(args): the namespace itself
        for call in init.scope.calls:
            if (
                names.last_name(call.func) == "save_hyperparameters"
                and call.args
                and call.args[0].star == ""
                and not isinstance(call.args[0].value, cst.SimpleString)
            ):
                return self.access(call.args[0].value, (("attr", name), *rest), init)
        return [Alternative(UNKNOWN)]

    def _field(self, instance: Instance, name: str, rest: tuple[Accessor, ...]) -> Alternatives | None:
        fields = self.fields(instance.cls)
        if fields is None:
            return None
        found = next((field for field in fields if field[0] == name), None)
        if found is None:
            return None
        _, default, module = found
        bound = instance.bound
        if bound is not None:
            given = arguments.given(bound, name, [field[0] for field in fields])
            if given is not None:
                return self.passed(given, name, rest)
            for star in arguments.starred(bound):
                got = self.access(star.node.value, (("item", name), *rest), star.bound.frame)
                if not all(isinstance(a.value, Absent) for a in got):
                    return got
        unclaimed = self.options.words_given.unclaimed(name)
        if default is None or unclaimed is not None:
            return [Alternative(UNKNOWN, unclaimed.story if unclaimed is not None else ())]
        frame = self.module_frame(module)
        if isinstance(default, cst.Call) and names.last_name(default.func) in {"field", "Field", "ib", "attrib"}:
            inner = arguments.argument_for(default, "default", place=0)
            if inner is None:
                factory = arguments.named(default, "default_factory")
                if factory is None:
                    return [Alternative(UNKNOWN)]
                made = [b for a in self.values(factory, frame) for b in self._make(a.value, default, frame)]
                return [b for a in made for b in self.reach_into(a, rest)]
            default = inner
        step = ProvenanceStep(module, default, f"default of field `{name}`", kind="default")
        return [a.after(step) for a in self.access(default, rest, frame)]

    def _make(self, factory: Value, node: cst.Call, frame: Frame) -> Alternatives:
        if isinstance(factory, ClassRef):
            return [Alternative(Instance(factory, (), node, frame))]
        if isinstance(factory, FunctionRef):
            return self.returned(factory, (), ())
        return [Alternative(UNKNOWN)]

    def _set_elsewhere(self, instance: Instance, name: str, rest: tuple[Accessor, ...]) -> Alternatives:
        """Attributes that other methods set (``setup``, ``prepare_data``, a builder that ``__init__`` calls)."""
        out: Alternatives = []
        for cls in self.lineage(instance.cls):
            if not isinstance(cls, ClassRef):
                continue
            for scope in cls.scope.children:
                this = names.self_name(scope)
                if this is None or scope.name == "__init__":
                    continue
                if any(e.path[:1] == (("attr", name),) and e.kind == "assign" for e in scope.effects.get(this, ())):
                    frame = self._method_frame(cls, scope, instance)
                    found = self.search(this, (("attr", name), *rest), frame, None, start=lambda: [Alternative(ABSENT)])
                    out.extend(parted(found)[0])
        return trim(out)

    def _method_frame(self, cls: ClassRef, scope: Scope, instance: Instance) -> Frame:
        """The frame of a method, bound to the arguments with which ``__init__`` calls it where it does."""
        init = self.init_frame(instance)
        if init is not None:
            for call in init.scope.calls:
                if names.last_name(call.func) == scope.name and is_attribute_of(call.func, names.self_name(init.scope)):
                    return Frame(cls.module, scope, (Bound(tuple(call.args), init, call),), instance)
        return Frame(cls.module, scope, None, instance)


def _sets_keywords(init: Frame) -> str | None:
    """The ``**kwargs`` of which ``__init__`` makes attributes: ``setattr(self, k, v)`` in a loop over its items, ``self.__dict__.update(kwargs)``."""
    node, this = init.scope.node, names.self_name(init.scope)
    star = node.params.star_kwarg if isinstance(node, cst.FunctionDef) else None
    if star is None or this is None:
        return None
    word = star.name.value
    for call in init.scope.calls:
        last = names.last_name(call.func)
        if last == "update" and isinstance(call.func, cst.Attribute) and call.args and names.dotted(call.args[0].value) == word:
            held = call.func.value
            if names.dotted(held) == f"{this}.__dict__" or (isinstance(held, cst.Call) and names.dotted(held.func) == "vars"):
                return word
        if last == "setattr" and call.args and names.dotted(call.args[0].value) == this:
            loop = next((above for above in init.module.walk.ancestors(call) if isinstance(above, cst.For)), None)
            over = loop.iter.func if loop is not None and isinstance(loop.iter, cst.Call) else None
            if isinstance(over, cst.Attribute) and over.attr.value == "items" and names.dotted(over.value) == word:
                return word
    return None
