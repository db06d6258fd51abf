"""What is called, as far as names and definitions tell, and which part of the flow answers for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import names
from oomlint.model.flow_functions import record_of
from oomlint.model.flow_methods import FlowMethods, takes_data
from oomlint.model.flow_state import instance_of, makes_step, module_of
from oomlint.model.tensor_state import MAP, UNKNOWN, Device, Graph, SampleSize, TensorState, ValueKind, join_all, mixed, tags_of, tensor
from oomlint.model.torch_tables import BACKWARD_NAME, FROZEN_NAME, HARMLESS_CALL, LOSS_NAME, MODULE_NAME
from oomlint.model.values import Alternative, ClassRef, Display, External, ExternalCall, FunctionRef, Instance, ModuleRef, Partial

if TYPE_CHECKING:
    from oomlint.model.flow_state import State
    from oomlint.model.tensor_state import Path
    from oomlint.model.values import Alternatives, Value

_GATHERS: Final = frozenset(
    {"gather", "gather_for_metrics", "all_gather", "reduce", "reduce_tensor", "reduce_value", "reduce_mean", "all_reduce_mean", "distributed_concat"}
)
_TO_TENSOR: Final = frozenset({"ToTensor", "PILToTensor", "ToImage"})


class FlowCalls(FlowMethods):
    """Follows calls."""

    def call(self, node: cst.Call, state: State) -> TensorState:
        """What a call gives, and what it does."""
        self.spent += 1
        func = node.func
        mode = self.gradients.left_by(node, self.act.frame)
        if mode is not None:
            state.mode = mode
            return UNKNOWN
        if isinstance(func, cst.Attribute):
            base = self.value(func.value, state)
            part = base.item(func.attr.value) if base.items else None
            if part is not None and part.kind is ValueKind.MODULE:
                return self.forward(node, part, state)
            followed = base.tensorlike or base.kind in {ValueKind.PACK, ValueKind.MODULE, ValueKind.PLAIN}
            if followed or (base.kind is ValueKind.ITERABLE and (base.value is None or func.attr.value in {"next", "__next__", "__iter__", "items"})):
                return self.method_call(node, func, base, state)
            return self._named_call(node, func, base, state)
        if isinstance(func, cst.Name):
            known = state.env.get(self.act.path(func.value)) or self.act.params.get(func.value)
            if known is not None and (model := _model(known)) is not None:
                return self.forward(node, model, state)
            if known is not None and known.tensorlike:
                return mixed([known, *self.arguments(node, state)])
        elif isinstance(func, cst.Call | cst.Subscript):
            base = self.value(func, state)
            if base.kind is ValueKind.MODULE:
                return self.forward(node, base, state)
        return self._named_call(node, func, UNKNOWN, state)

    def _named_call(self, node: cst.Call, func: cst.BaseExpression, base: TensorState, state: State) -> TensorState:
        """A call that only the names tell about: a function or class of the project or of a library, a module, something unknown."""
        written = names.last_name(func)
        args = self.arguments(node, state)
        metric = self.metric_call(node, func, base, args, state)
        if metric is not None:
            return metric
        this = instance_of(base)
        if this is not None and isinstance(func, cst.Attribute):
            method = self.evaluator.method(this, written)
            if method is not None:
                return self.call_function(method, node, args, base.home, state)
        if isinstance(func, cst.Attribute) and written == "apply" and self._is_autograd(func.value):
            return mixed(args)
        for value in self._callees(func, base, state):
            if isinstance(value, External):
                return self.external(names.canonical(value.name), node, args, state)
            if isinstance(value, FunctionRef):
                return self.call_function(value, node, args, base.home if isinstance(func, cst.Attribute) else (), state)
            if isinstance(value, ClassRef):
                return self.construct(value, node, args)
            if isinstance(value, Instance):
                held = self.as_frozen(self.object_of(value), func)
                if held.kind is ValueKind.MODULE:
                    return self.forward(node, held, state, args)
                method = self.evaluator.method(value, "__call__")
                return self.call_function(method, node, args, self._home(func), state) if method is not None else self.unknown_call(node, written, args, state)
            if isinstance(value, ExternalCall):
                if self._gives_images(value):
                    return tensor(size=SampleSize.DENSE, device=Device.HOST, dims=MAP)
                if value.name == "collections.namedtuple":
                    return record_of(value.call, node, args)
                held = self.as_frozen(self.made_outside(names.canonical(value.name), value.call, value.frame), func)
                if (model := _model(held)) is not None:
                    return self.forward(node, model, state, args)
        held = self.member(base, written) if isinstance(func, cst.Attribute) else self.value(func, state) if isinstance(func, cst.Name) else UNKNOWN
        if (model := _model(held)) is not None:
            return self.forward(node, model, state, args)
        if self._has_model(base if isinstance(func, cst.Attribute) else held, state):
            self.used(node, state, "model given")
        if isinstance(func, cst.Attribute):
            return self.method_of_unknown(node, func, base, args, state)
        if LOSS_NAME.search(written):
            self.note_tensors(node, args)
            return self.loss_of(args)
        if self.is_module_name(func) or (MODULE_NAME.search(written) and takes_data(args)):
            return self.forward(node, module_of(frozen=FROZEN_NAME.search(written) is not None), state, args)
        return self.unknown_call(node, written, args, state)

    def _has_model(self, held: TensorState, state: State) -> bool:
        """Whether something is an object of a library other than torch that was made with a model: an attack, a saliency map."""
        made = held.value
        if held.kind is not ValueKind.OBJECT or not isinstance(made, ExternalCall) or made.name.startswith(("torch.", "builtins.")):
            return False
        if made.frame.scope is not self.act.scope or made.call in self.wrapping:  # `x = library.wrap(x.part())`
            return False
        self.wrapping.append(made.call)
        try:
            return any(self.value(arg.value, state).kind is ValueKind.MODULE for arg in made.call.args)
        finally:
            self.wrapping.pop()

    def _is_autograd(self, node: cst.BaseExpression) -> bool:
        """Whether it is a class of the project with a backward pass of its own: what its ``apply`` gives hangs on the graph of what it is given."""
        found = self.evaluator.values(node, self.act.frame)[:2]
        return any(isinstance(alt.value, ClassRef) and self.evaluator.derives(alt.value, "torch.autograd.Function") for alt in found)

    def _callees(self, func: cst.BaseExpression, base: TensorState, state: State) -> list[Value]:
        """What is called, as far as its name tells."""
        held = state.env.get(self.act.path(func.value), UNKNOWN) if isinstance(func, cst.Name) else UNKNOWN
        found: Alternatives = []
        if isinstance(func, cst.Name):
            if not self.is_local(func.value):
                found = self.evaluator.values(func, self.act.frame)[:3]
            elif isinstance(held.value, FunctionRef | ClassRef | Partial):
                found = [Alternative(held.value)]
            elif held.value is None:  # one class in one branch, another in the other
                known = self.evaluator.values(func, self.act.frame)[:3]
                found = known if all(isinstance(alt.value, ClassRef) for alt in known) else []
        elif isinstance(func, cst.Call | cst.Subscript):
            found = self.evaluator.values(func, self.act.frame)[:3]
        elif isinstance(func, cst.Attribute) and isinstance(base.value, Instance | ClassRef | ModuleRef | External):
            found = self.members(base.value, func.attr.value)[:3]
        out: list[Value] = []
        for alt in found:
            value = alt.value
            while isinstance(value, Partial):
                value = value.func
            out.append(value)
        return out

    def _gives_images(self, value: ExternalCall) -> bool:
        """Whether a transform makes a tensor of an image: `ToTensor()`, or a chain that ends in it."""
        last = names.canonical(value.name).rpartition(".")[2]
        if last in _TO_TENSOR:
            return True
        if last != "Compose" or not value.call.args:
            return False
        steps = self.evaluator.values(value.call.args[0].value, value.frame)[:1]
        chain = steps[0].value if steps else None
        if not isinstance(chain, Display) or not isinstance(chain.node, cst.List | cst.Tuple) or not chain.node.elements:
            return False
        ends = self.evaluator.values(chain.node.elements[-1].value, chain.frame)
        return any(isinstance(alt.value, ExternalCall) and names.canonical(alt.value.name).rpartition(".")[2] in _TO_TENSOR | {"Normalize"} for alt in ends)

    def _home(self, func: cst.BaseExpression) -> Path:
        return self.act.path(func.value) if isinstance(func, cst.Name) else ()

    def unknown_call(self, node: cst.Call, written: str, args: list[TensorState], state: State) -> TensorState:
        """A call that nobody can follow. What goes in may come out."""
        live = [held for held in args if held.carries or held.all_tags]
        if any(held.kind is ValueKind.MODULE for held in args):
            self.used(node, state, "model given")
        if makes_step(node, args) or (live and BACKWARD_NAME.search(written)):
            self.went_backward(node, state, join_all([held.having(home=()) for held in live or args]), known=False)
        elif live and not HARMLESS_CALL.search(written):
            for held in live:
                self.used(node, state, f"given to {written}", held)
        if written in _GATHERS and args:
            return args[0].having(home=())
        graph = Graph.MAYBE if any(held.carries for held in args) else Graph.NO
        return UNKNOWN.having(graph=graph, sources=self.presume(node, state, written, args), tags=tags_of(args))


def _model(held: TensorState) -> TensorState | None:
    """A module that is called, also one that ``torch.load`` gave: neither weights nor a checkpoint can be called."""
    if held.kind is ValueKind.MODULE:
        return held
    loaded = isinstance(held.value, ExternalCall) and names.canonical(held.value.name) == "torch.load"
    return module_of() if loaded and held.kind in {ValueKind.OBJECT, ValueKind.UNKNOWN, ValueKind.TENSOR} else None
