"""What modules of the project are made of: parameters, and layers that take another path for inference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import CONSTANTS, PLAIN_TYPES
from oomlint.model import names
from oomlint.model.flow_functions import FlowFunctions
from oomlint.model.flow_state import instance_of
from oomlint.model.freezing import ALL, itself, learns
from oomlint.model.torch_tables import FAST_PATH, HOST_LIBRARIES, PARAMETERLESS
from oomlint.model.values import ClassRef, Each, External, ExternalCall, FunctionRef, Instance
from oomlint.syntax.nodes import names_in, path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.model.project import Module
    from oomlint.model.tensor_state import TensorState
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Effect, Scope

_DEEPEST_PARTS: Final = 6  # modules inside modules


class FlowLayers(FlowFunctions):
    """Looks into classes."""

    def trainable(self, cls: ClassRef, depth: int = 0) -> bool:
        """Whether a class may have parameters; not where all that it makes is in sight and none of it has any."""
        known = self.known.trainable.get(cls.scope)
        if known is not None:
            return known
        self.known.trainable.assume(cls.scope, answer=False)
        found = depth > _DEEPEST_PARTS
        frozen = self.frozen_parts(cls)
        for base in self.evaluator.lineage(cls) if ALL not in frozen else ():
            if not isinstance(base, ClassRef):
                found = found or base.name not in {"torch.nn.Module", "builtins.object", "abc.ABC"}
                continue
            for scope in base.scope.children:
                found = found or self._makes_parameters(base, scope, depth, frozen)
        self.known.trainable[cls.scope] = found
        return found

    def _makes_parameters(self, base: ClassRef, scope: Scope, depth: int, frozen: frozenset[str]) -> bool:
        this = names.self_name(scope) or ""
        stored = scope.effects.get(this, ())
        apart = [effect for effect in stored if len(effect.path) == 1 and effect.path[0][1] in frozen]
        aside = {id(effect.statement) for effect in (*apart, *(made for effect in apart for made in _made_before(base.module, scope, effect, stored)))}
        own = {p.name.value for p in names.parameters(scope) if not _is_setting(p)} - {this}
        for effect in stored:
            maker = _maker(effect.value) if effect.kind == "assign" else None
            if maker is not None and maker[0] in own and (isinstance(effect.value, cst.Name) or _runs(base.scope, effect)):
                return True  # what somebody hands over may be a module, or make one
        frame = self.evaluator.calls.plain_frame(base.module, scope)
        for call in scope.calls:
            if isinstance(call.func, cst.Attribute) and names.dotted(call.func).startswith(("self.register_buffer", "super")):
                continue
            if aside and any(id(above) in aside for above in base.module.walk.ancestors(call)):
                continue
            found = self.evaluator.values(call.func, frame)[:2]
            for alt in found:
                value = alt.value
                if isinstance(value, External):
                    last = value.name.rpartition(".")[2]
                    weighs = learns(call) if last == "Parameter" else not PARAMETERLESS.search(last)
                    if value.name.startswith("torch.nn.") and last[:1].isupper() and weighs:
                        return True
                    if not value.name.startswith(("torch.", "builtins.", "numpy.", "math.", *HOST_LIBRARIES)):
                        return True
                elif isinstance(value, ClassRef):
                    if value.scope is not base.scope and self.trainable(value, depth + 1):
                        return True
                elif isinstance(value, Each) and this in names_in(value.iterable):
                    continue  # one of its own parts, which is judged where it is made
                elif not isinstance(value, FunctionRef | Instance | ExternalCall) and not isinstance(call.func, cst.Attribute):
                    return True
        return False

    def is_plain(self, cls: ClassRef, depth: int = 0) -> bool:
        """Whether neither a class nor what it is made of has another path for inference."""
        known = self.known.fast.get(cls.scope)
        if known is not None:
            return not known
        self.known.fast.assume(cls.scope, answer=False)
        fast = depth > _DEEPEST_PARTS
        for base in self.evaluator.lineage(cls):
            if not isinstance(base, ClassRef):
                fast = fast or not (base.name.startswith(("torch.nn.Module", "builtins.", "abc.")) or base.name.endswith("LightningModule"))
                continue
            # To write out a class takes long: most files say none of it anywhere.
            fast = fast or (FAST_PATH.search(base.module.source.text) is not None and FAST_PATH.search(base.module.code(base.scope.node)) is not None)
            for scope in base.scope.children:
                for call in scope.calls if not fast else ():
                    if isinstance(call.func, cst.Name | cst.Attribute):
                        for alt in self.evaluator.plainly(call.func, base.module, scope)[:1]:
                            if isinstance(alt.value, ClassRef) and alt.value.scope is not cls.scope:
                                fast = fast or not self.is_plain(alt.value, depth + 1)
        self.known.fast[cls.scope] = fast
        return not fast

    def has_parameters(self, this: Instance) -> bool:
        """Whether a class of the project makes parameters or layers of its own."""
        for base in self.evaluator.lineage(this.cls):
            if not isinstance(base, ClassRef):
                continue
            for scope in base.scope.children:
                for call in scope.calls:
                    last = names.last_name(call.func)
                    if last == "Parameter" or (last in {"Linear", "Conv2d", "Embedding", "Conv1d", "Conv3d", "LSTM", "GRU"}):
                        return True
        return False

    def runs_what_it_was_given(self, module: TensorState) -> bool:
        """Whether `forward` of a class of the project calls an argument of its constructor, or what one makes, that is not known to have no parameters."""
        this = instance_of(module)
        forward, init = (self.evaluator.method(this, name) if this is not None else None for name in ("forward", "__init__"))
        if forward is None or init is None:
            return False
        this_one = names.self_name(init.scope) or ""
        params = {p.name.value for p in names.parameters(init.scope) if not _is_setting(p)} - {this_one}
        stored = init.scope.effects.get(this_one, ())
        given = {effect.path for effect in stored if (maker := _maker(effect.value)) is not None and maker[0] in params}
        own = names.self_name(forward.scope)
        called = {path[1] for call in forward.scope.calls if (path := path_of(call.func)) is not None and path[0] == own}
        return any(not self.member(module, str(path[0][1])).frozen for path in called & given if len(path) == 1)


def _maker(node: cst.BaseExpression | None) -> tuple[str, tuple[Accessor, ...]] | None:
    """What is called to make something, or a name itself: ``options.network`` of ``options.network(width=8)``."""
    func = node.func if isinstance(node, cst.Call) else node if isinstance(node, cst.Name) else None
    return path_of(func) if func is not None else None


def _runs(cls: Scope, stored: Effect) -> bool:
    """Whether a method of a class calls what is stored as an attribute."""
    calls = ((names.self_name(scope), call) for scope in cls.children for call in scope.calls)
    return any((path := path_of(call.func)) is not None and path[0] == this and path[1] == stored.path for this, call in calls)


def _made_before(module: Module, scope: Scope, effect: Effect, stored: Sequence[Effect]) -> list[Effect]:
    """What bound the local name that is stored since it was stored before: ``net = resnet50()`` of ``self.net = net``."""
    name = itself(effect.value) if effect.value is not None else None
    if not isinstance(name, cst.Name):
        return []
    start = module.tree.span(effect.node)
    same = (other for other in stored if other.value is not None and names.dotted(itself(other.value)) == name.value)
    last = max((span for other in same if (span := module.tree.span(other.node)) < start), default=(0, 0))
    return [made for made in scope.effects.get(name.value, ()) if last < module.tree.span(made.node) < start]


def _is_setting(parameter: cst.Param) -> bool:
    """Whether its default, or its annotation, says that a parameter takes a number, a text or a switch."""
    default, annotation = parameter.default, parameter.annotation
    if annotation is not None and isinstance(annotation.annotation, cst.Name) and annotation.annotation.value in PLAIN_TYPES:
        return True
    return isinstance(default, cst.BaseNumber | cst.BaseString) or (isinstance(default, cst.Name) and default.value in CONSTANTS - {"None"})
