"""Attributes of objects: what constructors, class bodies and other methods set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import arguments, names
from oomlint.model.fitting import Fitting
from oomlint.model.questions import UNKNOWN, as_default, of_setting, parted, trim
from oomlint.model.values import (
    ABSENT,
    Absent,
    Alternative,
    Alternatives,
    Bound,
    ClassRef,
    External,
    Frame,
    FunctionRef,
    Instance,
    ProvenanceStep,
    Unknown,
    Value,
)
from oomlint.syntax.nodes import UNKNOWN_KEY, is_attribute_of
from oomlint.syntax.scopes import REBINDS

if TYPE_CHECKING:
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Effect, Scope


_BY_ENVIRONMENT: Final = frozenset({"pydantic.BaseSettings", "pydantic_settings.BaseSettings"})


class Attributes(Fitting):
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
        before, assumed = self.given_up, self.assumed
        self.active.add(guard)
        try:
            found = self._attribute(instance, name, rest)
            if not rest and self.project.command is not None:
                found = self._by_environment(instance, name, found)
        finally:
            self.active.discard(guard)
        if self.given_up == before and self.assumed == assumed:
            self.attributes[key] = found
        return found

    def _by_environment(self, instance: Instance, name: str, default: Alternatives) -> Alternatives:
        """A field of settings that pydantic takes from the environment, in whatever case it is written there."""
        if not any(isinstance(one, External) and one.name in _BY_ENVIRONMENT for one in self.lineage(instance.cls)):
            return default
        if "env_" in instance.cls.module.code(instance.cls.scope.node):
            return [Alternative(UNKNOWN)]  # a prefix, or a file
        for one in dict.fromkeys((name.upper(), name)):
            said = self.variable(one)
            if said is not None and not said.unset:
                return [as_default(of_setting(one, said), default)]
        return default

    def _attribute(self, instance: Instance, name: str, rest: tuple[Accessor, ...]) -> Alternatives:
        if name == "__class__":
            return self.reach_into(Alternative(instance.cls), rest)
        init = self.init_frame(instance)
        out: Alternatives = []
        gone: Alternatives = []
        if init is not None:
            found = self._own_attribute(init, name, rest)
            if found is not None:
                out, absent = parted(found)
                if not absent:
                    return found
                gone = [alt for alt in found if alt.story and not out]
            if name in {"hparams", "_hparams"} and rest and rest[0][0] in {"attr", "item"} and self._saves_hyperparameters(init):
                return [*out, *self._hyperparameter(init, str(rest[0][1]), rest[1:])]
        field = self._field(instance, name, rest)
        if field is not None:
            return field
        other = self._set_elsewhere(instance, name, rest)
        if other:
            return [*out, *other]
        found = self.class_member(instance.cls, name, rest, instance)
        if all(isinstance(a.value, Absent) for a in found):
            found = self._entry(instance, init, (("item", name), *rest))
        if gone and all(isinstance(a.value, Absent | Unknown) for a in found):
            return gone  # it is deleted, and no library's class has it
        if out and all(isinstance(a.value, Absent) for a in found):
            return out
        return [*out, *found]

    def _entry(self, instance: Instance, init: Frame | None, accessors: tuple[Accessor, ...]) -> Alternatives:
        """What the mapping says that an object of a class derived from ``dict`` is made of: its entries are its attributes, too."""
        if not any(isinstance(base, External) and base.name == "builtins.dict" for base in self.lineage(instance.cls)):
            return [Alternative(ABSENT)]
        calls: list[tuple[cst.Call | None, Frame | None]] = [(instance.call, instance.at)]
        if init is not None:
            above = (call for call in init.scope.calls if isinstance(call.func, cst.Attribute) and call.func.attr.value == "__init__")
            calls = [(call, init) for call in above if instance.bound is not None]
        for call, frame in calls:
            if call is not None and frame is not None:
                return self.inside_call(call, accessors, frame)
        return [Alternative(ABSENT)]

    def _own_attribute(self, init: Frame, name: str, rest: tuple[Accessor, ...]) -> Alternatives | None:
        """What ``__init__``, with what it calls, leaves in an attribute; ``None`` where it does not set it."""
        this = names.self_name(init.scope)
        own = this is not None and any(_may_set(effect, name) for effect in init.scope.effects.get(this, ()))
        if this is None or not (own or self.changes(this, (("attr", name),), init)):
            return None
        return self.search(this, (("attr", name), *rest), init, None, start=lambda: [Alternative(ABSENT)])

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


def _may_set(effect: Effect, name: str) -> bool:
    """Whether an effect on an object may set an attribute, be it by name, by any name, or by a mapping: ``self.__dict__.update(read)``."""
    if not effect.path:
        return effect.kind == "update"
    return effect.path[0][1] in {name, UNKNOWN_KEY} and effect.path[0][0] == "attr" and effect.kind in REBINDS | {"unknown", "delete"}
