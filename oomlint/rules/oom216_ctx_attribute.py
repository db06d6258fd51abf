"""OOM216 ctx-attribute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Fix, Message, Multiplier, Resource, Safety, Severity, StoreFact, StoreKind, Weighs
from oomlint.measurement import LoopPlan, Measurement, Quantity, Trait
from oomlint.memory.buffers.autograd_context import functions_of, kept_by
from oomlint.model.names import short
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project

_CYCLES = Weighs(Consequence.MULTIPLIED, Resource.TENSORS, (Multiplier.STEPS,))  # until the garbage collector runs
_ADVICE = Fix(Safety.DISPLAY, "pass the tensor to `ctx.save_for_backward`, and read it from `ctx.saved_tensors` in `backward`")


class CtxAttribute(Rule):
    """A custom autograd function keeps tensors that backward cannot free.

    ## What it does

    Checks for `ctx.name = tensor` in the `forward` (or `setup_context`) of a `torch.autograd.Function`, where the value is known to be a tensor:
    an input, an output, or something computed on the way.

    Sizes, shapes, numbers, flags, devices, modules and one-element tensors belong on `ctx` and say nothing. So does an attribute that backward
    deletes or sets to `None`, and a parameter of a module, which lives anyway. An input that backward returns `None` for (an index, a mask) is a
    note, not shown by default: its maker mostly keeps it anyway.

    ## Why is this bad

    Backward frees the *saved tensors* of each node, and nothing else. A tensor that is an attribute of `ctx` lives until the last reference to
    the graph goes: through the forward pass of the next step, as long as `loss` is bound, and for good where a loss is kept, as in
    `total += loss`. Then 3 of 4 MiB of a step stayed (measured with torch 2.13.0), where `save_for_backward` leaves only the nodes.

    An *output* that is kept this way also refers to itself: the output holds the graph, the graph holds `ctx`, and `ctx` holds the output.
    Only the garbage collector can free it.

    ## Example

    ```python
    import torch


    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx, grad):
            gate = torch.sigmoid(ctx.x)
            return grad * gate * (1 + ctx.x * (1 - gate))
    ```

    ## Use instead

    ```python
    import torch


    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            gate = torch.sigmoid(x)
            return grad * gate * (1 + x * (1 - gate))
    ```

    ## Fix safety

    Advice only: forward and backward change together.

    ## References

    - [Extending PyTorch](https://docs.pytorch.org/docs/stable/notes/extending.html)
    """

    code = "OOM216"
    slug = "ctx-attribute"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.ONCE, Resource.TENSORS)
    measured_as = Measurement(loop=LoopPlan(ends=(Quantity.TENSOR_BYTES,), also=(Quantity.STORAGES, Quantity.NODES)), traits=frozenset({Trait.OF_CONTEXT}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the statements that put a tensor on the context."""
        for cls in functions_of(module, project):
            for kept in kept_by(module, cls, project):
                what = f"`{short(module.code(kept.node), 40)}`"
                if kept.role == "output":
                    message = Message(f"`ctx.{kept.attribute}` keeps the output {what} in a reference cycle", "only the garbage collector frees it")
                else:
                    an = "input" if kept.role == "input" else "tensor"
                    frees = "it stays as long as the graph lives, since backward frees only saved tensors"
                    message = Message(f"`ctx.{kept.attribute}` keeps the {an} {what} without `save_for_backward`", frees)
                fact = StoreFact(module.place(kept.statement), f"ctx.{kept.attribute}", StoreKind.ASSIGN)
                severity = Severity.NOTE if kept.constant else Severity.WARNING
                weighs = _CYCLES if kept.role == "output" else None
                yield self.finding(module.place(kept.statement), message, severity=severity, fix=_ADVICE, facts=[fact], weighs=weighs)
