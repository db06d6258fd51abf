"""OOM131 loader-materialised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Confidence, Consequence, Fix, Message, Multiplier, Resource, Safety, Severity, StoreFact, StoreKind, Weighs
from oomlint.measurement import TENSORS, CallCheck, Measurement, Trait
from oomlint.memory.facts import like_facts
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.loader_words import may_be_loader
from oomlint.memory.shared.loop_kinds import loader_like
from oomlint.memory.shared.test_suites import holds_tests
from oomlint.model.names import last_name
from oomlint.model.values import External
from oomlint.rule import Rule
from oomlint.syntax.edits import replace
from oomlint.syntax.nodes import block_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact, Finding
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope


class LoaderMaterialised(Rule):
    """All batches of a loader are put into one list.

    ## What it does

    Checks for `list(loader)`, `tuple(loader)`, `sorted(loader)`, `[batch for batch in loader]` and a loop that appends each whole batch to a
    list, where `loader` is a `DataLoader`.

    `list(loaders.values())`, `len(loader)` and a single `next(iter(loader))` say nothing.

    ## Why is this bad

    The list holds one epoch of batches. With workers they all lie in `/dev/shm`, one segment and one file descriptor for each tensor
    (measured with torch 2.13.0). `len(list(loader))` reads and decodes the whole dataset to count batches.

    ## Example

    ```python
    from torch.utils.data import DataLoader


    def train(model, dataset, schedule, epochs):
        loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)
        schedule.prepare(len(list(loader)) * epochs)
        for epoch in range(epochs):
            for batch in loader:
                model.step(batch)
    ```

    ## Use instead

    ```python
    from torch.utils.data import DataLoader


    def train(model, dataset, schedule, epochs):
        loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)
        schedule.prepare(len(loader) * epochs)
        for epoch in range(epochs):
            for batch in loader:
                model.step(batch)
    ```

    ## Fix safety

    `len(list(loader))` becomes `len(loader)`: unsafe. The pass over the data drew random numbers that the rest of the run then sees in
    another state, and the loader of an `IterableDataset` has no length, or another one. The other forms get no fix.

    ## References

    - [torch.utils.data.DataLoader](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader)
    """

    code = "OOM131"
    slug = "loader-materialised"
    severity = Severity.WARNING
    fixable = Safety.UNSAFE
    help = "process each batch inside the loop over the loader"
    weighs = Weighs(Consequence.MULTIPLIED, Resource.TENSORS, (Multiplier.STEPS,))
    measured_as = Measurement(call=CallCheck.WHOLE, growth=TENSORS, traits=frozenset({Trait.OF_LOADER}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the places where all batches of a loader are put into one container."""
        evaluator = evaluator_of(project)
        for call, scope in module.walk.calls:
            written = last_name(call.func)
            if written not in {"list", "tuple", "sorted"} or len(call.args) == 0 or not isinstance(call.func, cst.Name):
                continue
            if not may_be_loader(call.args[0].value, module, scope):
                continue
            if not any(
                isinstance(a.value, External) and a.value.name == f"builtins.{written}"
                for a in evaluator.values(call.func, evaluator.calls.plain_frame(module, scope))
            ):
                continue
            yield from self._whole(module, project, call, call.args[0].value, scope)
        for scope in module.walk.scopes:
            if not isinstance(scope.node, cst.Lambda):
                yield from self._loops(module, project, scope)

    def _whole(self, module: Module, project: Project, node: cst.BaseExpression | cst.For, iterated: cst.BaseExpression, scope: Scope) -> Iterator[Finding]:
        like = loader_like(project, iterated, module, scope)
        if like is None or holds_tests(module):
            return  # what a test keeps lives as long as the test
        name = f"`{like.name}`" if like.name else "this loader"
        outer = module.walk.parents.get(module.walk.parents.get(node, node))
        counted = isinstance(outer, cst.Call) and last_name(outer.func) == "len"
        fix = None
        if counted:
            message = Message(
                f"{name[:1].upper()}{name[1:]} is read to its end to count its batches", "it loads the whole dataset and keeps every batch for one number"
            )
            fix = Fix(Safety.UNSAFE, "use the length of the loader itself", (replace(module.tree, node, module.code(iterated)),))
        else:
            message = Message(f"All batches of {name} are kept at once", "they take the memory of one epoch, in `/dev/shm` if the loader has workers")
        confidence = Confidence.HIGH if like.known else Confidence.MEDIUM
        facts: list[Fact] = [StoreFact(module.place(node), like.name, StoreKind.WHOLE), *like_facts(like)]
        yield self.finding(module.place(node), message, confidence=confidence, fix=fix, facts=facts)

    def _loops(self, module: Module, project: Project, scope: Scope) -> Iterator[Finding]:
        """Comprehensions and loops that keep each whole batch."""
        for row in scope.rows:
            part = row.for_in
            whole = isinstance(part.target, cst.Name) and isinstance(row.elt, cst.Name) and row.elt.value == part.target.value
            if whole and not part.ifs and part.inner_for_in is None and may_be_loader(part.iter, module, scope):
                yield from self._whole(module, project, row, part.iter, scope)
        for loop in scope.loops:
            if isinstance(loop, cst.For) and isinstance(loop.target, cst.Name):
                statements = block_of(loop.body)
                appends = len(statements) == 1 and isinstance(statements[0], cst.Expr) and self._appends(statements[0].value, loop.target.value)
                if appends and may_be_loader(loop.iter, module, scope):
                    yield from self._whole(module, project, loop, loop.iter, scope)

    @staticmethod
    def _appends(node: cst.BaseExpression, batch: str) -> bool:
        if not isinstance(node, cst.Call) or last_name(node.func) != "append" or len(node.args) != 1:
            return False
        value = node.args[0].value
        return isinstance(value, cst.Name) and value.value == batch
