"""OOM501 empty-cache-in-loop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Consequence, Fix, LoopKind, Message, Multiplier, Resource, Role, Safety, Severity, Weighs
from oomlint.measurement import ON_DEVICE
from oomlint.memory.facts import loop_fact
from oomlint.memory.shared.batch_loops import batch_loop, runs_each_round
from oomlint.memory.shared.qualified_names import library_name, project_function
from oomlint.model.names import last_name
from oomlint.rule import Rule
from oomlint.syntax.edits import Text
from oomlint.syntax.nodes import block_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Edit, Finding
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_CACHES = frozenset(
    {
        "torch.cuda.empty_cache",
        "torch.cuda.memory.empty_cache",
        "torch.mps.empty_cache",
        "torch.xpu.empty_cache",
        "torch.accelerator.empty_cache",
        "torch.accelerator.memory.empty_cache",
    },
)
_ASIDE = frozenset({"is_available", "synchronize", "ipc_collect", "print", "info", "debug"})  # what a function that only tidies up may call besides
_WHOLE = re.compile(r"model|net(work)?$|pipe|encoder|decoder|unet|vae|trainer|learner|engine|optim|dataset|loader", re.IGNORECASE)


class EmptyCacheInLoop(Rule):
    """The allocator's cache is emptied, or the garbage collector is run, for each batch.

    ## What it does

    Checks for `torch.cuda.empty_cache()` (also of `torch.mps`, `torch.xpu` and `torch.accelerator`) and `gc.collect()` that run in each round
    of a loop over a loader or of a loop that makes optimizer steps.

    Between phases, once an epoch, every so many steps, in the handler of an exception and after a model was deleted they say nothing.

    ## Why is this bad

    `empty_cache()` gives PyTorch no memory: what the cache holds is free for the next tensor already. The blocks go back to the driver, and
    the next step asks the driver for them again. `gc.collect()` looks at every container of the process: 35 ms, and 172 ms with a million of
    them (measured with torch 2.13.0), while a tensor is freed without it as soon as no name holds it.

    Both help in rare cases: fragmentation, another process that waits for the memory, reference cycles that hold tensors.

    ## Example

    ```python
    import torch
    from torch.utils.data import DataLoader


    def train(model, dataset, optimizer):
        loader = DataLoader(dataset, batch_size=16, shuffle=True)
        for images, target in loader:
            loss = torch.nn.functional.cross_entropy(model(images.cuda()), target.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch.cuda.empty_cache()
    ```

    ## Use instead

    ```python
    import torch
    from torch.utils.data import DataLoader


    def train(model, dataset, optimizer):
        loader = DataLoader(dataset, batch_size=16, shuffle=True)
        for images, target in loader:
            loss = torch.nn.functional.cross_entropy(model(images.cuda()), target.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    ```

    ## Fix safety

    The statement is deleted with its line: unsafe, because of the rare cases above. There is no fix where it shares its line or is all that
    its block has.

    ## References

    - [torch.cuda.empty_cache](https://docs.pytorch.org/docs/stable/generated/torch.cuda.empty_cache.html)
    """

    code = "OOM501"
    slug = "empty-cache-in-loop"
    severity = Severity.NOTE
    fixable = Safety.UNSAFE
    help = "remove it from the loop"
    weighs = Weighs(Consequence.MULTIPLIED, Resource.NOTHING, (Multiplier.STEPS,))
    measured_as = ON_DEVICE

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the batch loops that tidy up in each round."""
        found: dict[cst.CSTNode, list[tuple[cst.Call, str]]] = {}
        for call, scope in module.walk.calls:
            if call.args or not isinstance(module.walk.parents.get(call), cst.Expr):
                continue
            what = self._tidies(module, project, call, scope)
            loop = batch_loop(project, call, module, scope) if what else None
            if loop is not None and runs_each_round(call, loop, module) and not self._after_a_model(module, call):
                found.setdefault(loop, []).append((call, what))
        for around, calls in found.items():
            (call, what), *others = calls
            if what == "collect":
                message = Message("`gc.collect()` runs for every batch", "each call scans every container of the process, and tensors are freed without it")
            else:
                again = "it gives PyTorch no memory, and the next step asks the driver for the same blocks again"
                message = Message(f"`{last_name(call.func)}()` runs for every batch", again)
            related = [module.place(other).saying("also here", Role.AGAIN) for other, _ in others]
            fix = self._deletion(module, [c for c, _ in calls])
            yield self.finding(module.place(call), message, related=related, fix=fix, facts=[loop_fact(module, around, LoopKind.BATCH)])

    def _tidies(self, module: Module, project: Project, call: cst.Call, scope: Scope) -> str:
        """`cache` or `collect` for a call that does nothing else, directly or by a small function of this file."""
        written = last_name(call.func)
        if written in {"empty_cache", "collect"} or (isinstance(call.func, cst.Name) and "from" in {e.kind for e in module.root.effects.get(written, ())}):
            return self._named(module, project, call, scope)
        if not isinstance(call.func, cst.Name) or module.root.child(written) is None:
            return ""
        function = project_function(project, call.func, module, scope)
        if function is None or function.module is not module:
            return ""
        kinds = {self._named(module, project, c, function.scope) for c in function.scope.calls if last_name(c.func) not in _ASIDE}
        plain = all(isinstance(s, cst.Expr | cst.If | cst.Try | cst.Pass | cst.Return | cst.Import) for s in module.walk.body(function.scope))
        if not plain or "" in kinds:
            return ""
        return next((kind for kind in ("cache", "collect") if kind in kinds), "")

    @staticmethod
    def _named(module: Module, project: Project, call: cst.Call, scope: Scope) -> str:
        name = library_name(project, call.func, module, scope)
        if name in _CACHES:
            return "cache"
        # Whoever switches the collector off runs it by hand.
        return "collect" if name == "gc.collect" and "gc.disable(" not in module.source.text and "gc.freeze(" not in module.source.text else ""

    @staticmethod
    def _after_a_model(module: Module, call: cst.Call) -> bool:
        """Whether a model, a loader or their like is deleted or put aside before the call, in the same block."""
        statement = module.walk.statement_of(call)
        line = module.walk.parents.get(statement)
        for before in block_of(module.walk.parents.get(line) if line is not None else None):
            if before is statement:
                return False
            if isinstance(before, cst.Del) and _WHOLE.search(module.code(before.target)):
                return True
            if isinstance(before, cst.Expr) and isinstance(before.value, cst.Call) and isinstance(before.value.func, cst.Attribute):
                moved = before.value.func.attr.value
                if moved == "cpu" or (moved == "to" and "cpu" in module.code(before.value)):
                    return True
        return False

    @staticmethod
    def _deletion(module: Module, calls: list[cst.Call]) -> Fix | None:
        """The fix that takes the lines of all the calls out, where none of their blocks becomes empty."""
        text = Text(module.tree)
        edits: list[Edit] = []
        left: dict[cst.CSTNode, int] = {}
        for call in calls:
            line = module.walk.parents.get(module.walk.statement_of(call))
            block = module.walk.parents.get(line) if isinstance(line, cst.SimpleStatementLine) else None
            if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1 or not isinstance(block, cst.IndentedBlock):
                return None
            left[block] = left.get(block, len(block_of(block))) - 1
            if left[block] < 1:
                return None
            edits.append(text.replaced(*_rows(text, *text.span(call)), ""))
        return Fix(Safety.UNSAFE, "remove it from the loop", tuple(edits))


def _rows(text: Text, start: int, end: int) -> tuple[int, int]:
    """From the end of the row before a statement to the end of its own last row."""
    first, last = text.spot(start)[0], text.spot(end)[0]
    before = text.text[: text.starts[first - 1]]
    cut = 2 if before.endswith("\r\n") else 1
    after = text.starts[last] if last < len(text.starts) else len(text.text)
    row = text.text[text.starts[last - 1] : after]
    return len(before) - cut, text.starts[last - 1] + len(row.rstrip("\r\n"))
