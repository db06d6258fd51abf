"""What calls of modules give and do: forward passes, losses, metrics, methods of modules."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from oomlint.api_names import MOVES_MODEL, SAME_MODEL
from oomlint.frameworks import BACKWARDS
from oomlint.model import names
from oomlint.model.events import Via
from oomlint.model.flow_definitions import adds_up, is_metric
from oomlint.model.flow_functions import bound_arguments
from oomlint.model.flow_layers import FlowLayers
from oomlint.model.flow_state import State, flag, instance_of, module_of, part_of
from oomlint.model.names import short
from oomlint.model.tensor_state import (
    MAP,
    PLAIN,
    UNKNOWN,
    Device,
    Graph,
    Mode,
    SampleSize,
    Storage,
    TensorState,
    ValueKind,
    join_all,
    known_mode,
    mixed,
    pack,
    sources_of,
    tags_of,
    tensor,
)
from oomlint.model.torch_tables import CASTS, FROZEN_NAME, LOSS_NAME, MODULE_NAME, PARAMETERLESS, TO_DEVICE
from oomlint.model.values import External, FunctionRef, Instance
from oomlint.scout.telling_names import MODES
from oomlint.syntax.nodes import descend

_ALIKE: Final = frozenset({"Linear", "LayerNorm", "GroupNorm"})  # layers that give as many axes as they are given
_SAME_DATA: Final = TO_DEVICE | CASTS | {"to", "contiguous"}
_DEEPEST_RESULT: Final = 3  # containers inside containers that `forward` returns
_LIKE_FORWARD: Final = re.compile(r"^forward_|^extract_feat|^embed$|^get_\w*(features|embeddings?)$|^encode_(image|text|audio|video)s?$|^features$")


class FlowModules(FlowLayers):
    """Follows calls of modules."""

    # -- forward -------------------------------------------------------------------------------------------------------

    def forward(self, node: cst.Call, module: TensorState, state: State, args: list[TensorState] | None = None, *, by: str = "") -> TensorState:
        """A module's call, or that of a method which is known to run it, ``by`` name: its output carries a graph where the mode records one."""
        given = self.arguments(node, state) if args is None else args
        found = self._pass(node, module, state, given, by)
        self.record.handed |= sources_of(given)
        if found.carries is Graph.YES and id(node) in found.all_sources:
            self.record.recorded.add(id(node))
        if found.sources:
            self._fill_hooked(state, found)
        looks_up = isinstance(module.value, External) and ".Embedding" in module.value.name  # it is given numbers
        if len(node.args) == 1 and not looks_up and any(leaf.size is SampleSize.DENSE for leaf in found.leaves()):
            self._note_input(node.args[0].value, state)
        return found

    def _note_input(self, node: cst.BaseExpression, state: State) -> None:
        """Note that a name holds all that a network is given: an array for each sample, where nothing else is known of its size."""
        while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _SAME_DATA:
            node = node.func.value
        path = self.act.path(node.value) if isinstance(node, cst.Name) else ()
        held = state.env.get(path) if path else None
        if held is not None and held.kind in {ValueKind.OPAQUE, ValueKind.TENSOR} and held.is_vague:
            state.env[path] = held.having(size=SampleSize.DENSE)

    def _fill_hooked(self, state: State, found: TensorState) -> None:
        """Put what a pass gives into the containers that hooks of this file fill: what parts of the network give is as large, and hangs on as much."""
        for hooked in self.known.hooked_of(self.act.module):
            if hooked.scope.is_class:
                path = (*self.act.this, hooked.name) if self.act.this and self.act.scope.parent is hooked.scope else ()
            else:
                path = self.act.path(hooked.name) if self.act.scope is hooked.scope else ()
            if path:
                device = Device.HOST if hooked.on_host else found.device
                inside = found.having(kind=ValueKind.TENSOR, device=device, size=SampleSize.DENSE, dims=MAP, home=(), items=(), inside=None, sure=False)
                state.env[path] = TensorState(ValueKind.PACK, home=path, inside=inside.unrecorded() if hooked.detached else inside)

    def _pass(self, node: cst.Call, module: TensorState, state: State, given: list[TensorState], by: str) -> TensorState:
        value = module.value
        if value is None and not given:  # only a name says that it is a module: it may as well be a class that is called
            return UNKNOWN
        made = isinstance(node.func, cst.Call) and names.last_name(node.func.func) != "getattr"
        name = "module" if made else names.last_name(node.func) or short(self.code(node.func))
        if name in {"forward", "__call__"} and isinstance(node.func, cst.Attribute):
            name = names.last_name(node.func.value)
        last = value.name.rpartition(".")[2] if isinstance(value, External) else ""
        if PARAMETERLESS.search(last):
            self.note_tensors(node, given)
            found = mixed([held for held in given if held.kind is not ValueKind.OBJECT])
            if not found.tensorlike:
                return found if found.kind is not ValueKind.PLAIN else UNKNOWN
            reduced = SampleSize.SMALL if module.moved == "unreduced" else SampleSize.SCALAR
            dims = 0 if last.endswith(("Loss", "latten")) else module.dims or found.dims
            return found.having(kind=ValueKind.TENSOR, size=reduced if last.endswith("Loss") else found.size, sure=True, dims=dims)
        this = instance_of(module)
        self.note_tensors(node, given)
        layer = isinstance(value, External) and value.name.startswith("torch.nn.")
        if this is None and not by and not layer and LOSS_NAME.search(name) and not MODULE_NAME.search(name):
            return self.loss_of(given)
        mode = Mode.OFF if value is None and self._switch_off_themselves(node, given, state) else known_mode(state.mode)
        inner: TensorState | None = None
        own = True
        if this is not None:
            own = not LOSS_NAME.search(this.cls.scope.name) or self.has_parameters(this)
            # One that runs a module which it was given on data of a round is a network with its loss; what a network gives, it rates.
            own = own or (not any(held.all_sources for held in given) and self.runs_what_it_was_given(module))
            method = self.evaluator.method(this, "forward")
            if method is not None:
                mode = self.gradients.decorated(method.scope, method.module) or mode
                output = self.output_of(method, bound_arguments(method.scope, node, given), mode, node)
                inner, mode = output.held, Mode.OFF if output.unrecorded else mode
            if own:
                self.went_forward(
                    node,
                    State(state.env, mode, state.evaluates(module.home)),
                    this.cls.scope.name if name == names.self_name(self.act.scope) else name,  # `self(x)` runs what the reader knows by its class
                    known=True,
                    network=True,
                    trainable=not module.frozen and self.trainable(this.cls),
                    plain=self.is_plain(this.cls),
                    tags=tags_of(given),
                )
            for what in sorted(self.known.asking.get(method.scope, ())) if method is not None else ():
                self.used(node, state, what)
            if not own:
                loss = self.loss_of(given)
                if inner is not None and inner.kind is not ValueKind.UNKNOWN:
                    return self._adopted(inner, loss)
                return loss
        else:
            self.went_forward(
                node,
                State(state.env, mode, state.evaluates(module.home)),
                by or name,
                known=module.value is not None,
                network=not (isinstance(value, External) and value.name.startswith("torch.nn.") and value.name != "torch.nn.Sequential"),
                trainable=not module.frozen,
                plain=module.value is not None and module.moved != "fast",
                tags=tags_of(given),
            )
        records = mode.records
        if this is not None and not self.trainable(this.cls):
            records = min(records, mixed(given).graph)
        if module.frozen and records is Graph.YES:
            # By its name, a module may be frozen; where it was frozen in sight, only what goes in brings a graph.
            records = mixed(given).graph if module.sure else max(mixed(given).graph, Graph.MAYBE)
        device = Device.ACCELERATOR if any(leaf.device is Device.ACCELERATOR for held in given for leaf in held.leaves()) else self.device
        dims = module.dims or (mixed(given).dims if last in _ALIKE or module.size is SampleSize.SMALL else 0)
        size = (
            SampleSize.SCALAR
            if LOSS_NAME.search(name) and not layer
            else SampleSize.SMALL
            if module.size is SampleSize.SMALL and dims < MAP
            else SampleSize.DENSE
        )
        fallback = TensorState(
            ValueKind.OPAQUE,
            records,
            device,
            Storage.OWN,
            size,
            sources=sources_of(given) | {id(node)},
            tags=tags_of(given),
            dims=dims,
        )
        if inner is None or inner.kind in {ValueKind.UNKNOWN, ValueKind.OBJECT, ValueKind.MODULE, ValueKind.ITERABLE, ValueKind.PLAIN}:
            return fallback
        return self._trusted(inner, fallback)

    def _switch_off_themselves(self, node: cst.Call, given: list[TensorState], state: State) -> bool:
        """Whether a call runs one of several modules of the project, each of which has no parameters or runs its parts without gradients."""
        scope = self.act.scope
        bound = [effect for effect in scope.effects.get(node.func.value, ()) if not effect.path] if isinstance(node.func, cst.Name) else []
        if len(bound) < 2 or any(effect.kind != "assign" or effect.value is None or effect.index for effect in bound):  # noqa: PLR2004 - of several
            return False
        made = [alt.value for one in bound if one.value is not None for alt in self.evaluator.values(one.value, self.act.frame)]
        for one in made:
            method = self.evaluator.method(one, "forward") if isinstance(one, Instance) else None
            if not isinstance(one, Instance) or method is None:
                return False
            if self.trainable(one.cls):
                mode = self.gradients.decorated(method.scope, method.module) or known_mode(state.mode)
                if not self.output_of(method, bound_arguments(method.scope, node, given), mode, node).unrecorded:
                    return False
        return bool(made)

    def _trusted(self, inner: TensorState, fallback: TensorState, depth: int = 0) -> TensorState:
        """What `forward` returns, where that could be followed; what could not be carries a graph like any output."""
        if inner.kind is ValueKind.PACK and depth < _DEEPEST_RESULT:
            return inner.having(
                items=tuple((key, self._trusted(held, fallback, depth + 1)) for key, held in inner.items),
                inside=self._trusted(inner.inside, fallback, depth + 1) if inner.inside is not None else None,
                home=(),
            )
        if inner.kind is ValueKind.PLAIN:
            return inner
        handed_back = inner.kind is ValueKind.OPAQUE and inner.graph is Graph.NO  # what went in, changed by somebody on the way
        if inner.kind is ValueKind.UNKNOWN or handed_back or (inner.tensorlike and inner.graph is Graph.MAYBE and fallback.graph is Graph.YES):
            return fallback.having(size=fallback.size if inner.is_vague else inner.size, dims=inner.dims)
        if inner.tensorlike:
            device = fallback.device if inner.device is Device.UNKNOWN else inner.device
            size = SampleSize.DENSE if inner.is_vague else inner.size
            return inner.having(device=device, size=size, home=(), sources=fallback.sources if inner.graph else frozenset(), tags=fallback.tags)
        return inner

    def _adopted(self, inner: TensorState, loss: TensorState, depth: int = 0) -> TensorState:
        """What a loss without parameters returns, with the graph of what went in."""
        if inner.kind is ValueKind.PACK and depth < _DEEPEST_RESULT:
            items = tuple((key, self._adopted(held, loss, depth + 1)) for key, held in inner.items)
            return inner.having(items=items, inside=self._adopted(inner.inside, loss, depth + 1) if inner.inside is not None else None, home=())
        if inner.graph is Graph.NO and inner.kind is not ValueKind.UNKNOWN:
            return inner.having(tags=loss.tags, home=())
        if inner.kind is ValueKind.UNKNOWN:
            return loss if loss.tensorlike else inner.having(tags=loss.tags, sources=loss.sources)
        return inner.having(graph=inner.graph if loss.graph is Graph.YES else loss.graph, sources=loss.sources, tags=loss.tags, home=())

    @staticmethod
    def loss_of(args: list[TensorState]) -> TensorState:
        """A criterion: one number, with the graph of what goes in."""
        parts = [held for held in args if held.kind not in {ValueKind.OBJECT, ValueKind.MODULE}]
        found = mixed(parts)
        if not found.tensorlike:
            return found if found.kind is not ValueKind.PLAIN else UNKNOWN
        return found.having(
            kind=ValueKind.TENSOR, size=SampleSize.SCALAR, dims=0, moved="", sure=found.sure and all(part.kind is not ValueKind.UNKNOWN for part in parts[:1])
        )

    # -- methods -------------------------------------------------------------------------------------------------------

    def is_pass(self, node: cst.Call, args: list[TensorState]) -> bool:
        """Whether a method that nobody knows, of a module, runs it: it is given data that no forward pass has made, and somebody takes what it gives.

        Where a block of the same round switches gradients off, it prepares what goes in there, or reads what comes out.
        """
        taken = names.last_name(node.func) != "generate" and not isinstance(self.act.module.walk.parents.get(node), cst.Expr)
        if not taken or self._switches_off_beside(node):
            return False
        return any(held.kind in {ValueKind.TENSOR, ValueKind.OPAQUE} for held in args) and not any(self.passed(held) for held in args)

    def _switches_off_beside(self, node: cst.Call) -> bool:
        """Whether the loop around a call has a block without gradients."""
        loop = next((above for above in self.act.module.walk.ancestors(node) if isinstance(above, cst.For | cst.While)), None)
        parts = descend(loop.body) if loop is not None else ()
        return any(names.last_name(part) in MODES for part in parts if isinstance(part, cst.Attribute | cst.Name))

    def module_method(self, node: cst.Call, func: cst.Attribute, base: TensorState, args: list[TensorState], state: State) -> TensorState:
        """What a method of a module gives, and what it does."""
        method = func.attr.value
        metric = self.metric_call(node, func, base, args, state)
        if metric is not None:
            return metric
        if method in {"forward", "__call__"}:
            return self.forward(node, base, state, args)
        if method in {"eval", "train"}:
            verdicts = self.verdicts(node.args[0].value, state) if node.args else frozenset({True})
            if len(verdicts) > 1:
                state.put(base.home, evaluating=None)
            elif not base.frozen:
                self.was_switched(base.home, state, evaluating=method == "eval" or False in verdicts)
            return base
        if method == "requires_grad_":
            frozen = bool(node.args) and names.dotted(node.args[0].value) == "False"
            found = base.having(frozen=frozen)
            if base.home:
                state.env[base.home] = found
            return found
        if method in MOVES_MODEL:
            return base
        if method in BACKWARDS and args:
            self.went_backward(node, state, args[0], retain=flag(node, "retain_graph"))
            return PLAIN
        if method in {"zero_grad", "load_state_dict", "add_module", "register_module", "log", "log_dict", "save_hyperparameters", "print", "save_pretrained"}:
            return PLAIN
        if method in {"modules", "children"}:
            return TensorState(ValueKind.ITERABLE, each=part_of(base))
        if method in {"named_modules", "named_children"}:
            return TensorState(ValueKind.ITERABLE, each=pack([(0, PLAIN), (1, part_of(base))]))
        if method in {"get_submodule", "__getattr__"}:
            return part_of(base)
        if method in {"parameters", "named_parameters", "buffers", "state_dict"}:
            return UNKNOWN
        return self._own_method(node, func, base, args, state)

    def _own_method(self, node: cst.Call, func: cst.Attribute, base: TensorState, args: list[TensorState], state: State) -> TensorState:
        """What a method gives that torch's modules do not have: that of the project's class, else what its name says."""
        method = func.attr.value
        this = instance_of(base)
        if this is not None:
            own = self.evaluator.method(this, method)
            if own is not None:
                return self.call_function(own, node, args, base.home, state)
            held = self.member(base, method)
            if held.kind is ValueKind.MODULE:
                return self.forward(node, held, state, args)
            if isinstance(held.value, FunctionRef):  # a method of a part, under a name of the whole: `self.encode = self.net.encode`
                return self.call_function(held.value, node, args, (), state)
        known = state.env.get((*base.home, method)) if base.home else None
        if known is not None and known.kind is ValueKind.MODULE:
            return self.forward(node, known, state, args)
        if this is None and state.evaluating and self.is_module_name(func.value) and self.is_pass(node, args):
            return self.forward(node, module_of(frozen=base.frozen, sure=base.sure), state, args, by=names.last_name(func.value))
        if LOSS_NAME.search(method):
            return self.loss_of(args)
        if MODULE_NAME.search(method):
            part = module_of(frozen=True, sure=base.sure) if base.frozen else module_of(frozen=FROZEN_NAME.search(method) is not None)
            return self.forward(node, part, state, args)
        if _LIKE_FORWARD.search(method):
            return self.forward(node, module_of(frozen=base.frozen, sure=base.sure), state, args)
        if method == "generate":
            return TensorState(ValueKind.OPAQUE, size=SampleSize.SMALL, device=Device.UNKNOWN)  # Hugging Face and its like generate without gradients
        self.used(node, state, f"module.{method}")
        return UNKNOWN.having(graph=Graph.MAYBE, sources=sources_of(args), tags=tags_of(args))

    def metric_call(self, node: cst.Call, func: cst.BaseExpression, base: TensorState, args: list[TensorState], state: State) -> TensorState | None:
        """A metric of a library: `update` and the call itself hand it a batch."""
        held = base
        method = names.last_name(func)
        if isinstance(func, cst.Attribute) and adds_up(base, method) and args:
            via = Via(self.act.module, node, base.home, tuple(zip(node.args, args, strict=True)))
            outer, self.act.via = self.act.via, (*self.act.via, via)
            self.stored(node, state, "augment", base.home, mixed(args), node.args[0].value, base)
            self.act.via = outer
            return PLAIN
        if isinstance(func, cst.Name):
            held, method = self.value(func, state), "__call__"
        elif isinstance(func, cst.Attribute) and not is_metric(base):
            held, method = state.env.get((*base.home, method), UNKNOWN) if base.home else UNKNOWN, "__call__"
            if held.kind is ValueKind.UNKNOWN:
                held = self.member(base, names.last_name(func))
        if not is_metric(held):
            return None
        if method in SAME_MODEL | {"clone", "set_dtype"}:
            return held
        if method == "reset":
            self.was_reset(node, state, held.home)
            return PLAIN
        if method in {"update", "forward", "__call__"}:
            self.stored(node, state, "metric", held.home or (("metric", id(node)),), join_all(args) if len(args) == 1 else pack(enumerate(args)), None, held)
            return tensor(graph=Graph.MAYBE, size=SampleSize.SCALAR, tags=frozenset({id(node)})) if method != "update" else PLAIN
        return UNKNOWN
