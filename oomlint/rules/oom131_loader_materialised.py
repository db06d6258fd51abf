"""OOM131 loader-materialised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Confidence, Fix, Safety, Severity
from oomlint.memory.iteration import is_test, loader_like
from oomlint.memory.loaders import evaluator_of
from oomlint.model.names import last_name
from oomlint.model.values import External
from oomlint.rule import Rule
from oomlint.syntax.edits import replace
from oomlint.syntax.walk import block_of, descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project
    from oomlint.syntax.walk import Scope


class LoaderMaterialised(Rule):
    """All batches of a loader are put into one list.

    ## What it does

    Checks for `list(loader)`, `tuple(loader)`, `sorted(loader)`, `[batch for batch in loader]` and a loop that appends each whole batch to a
    list, where `loader` is a `DataLoader`.

    `list(loaders.values())`, `len(loader)` and a single `next(iter(loader))` say nothing.

    ## Why is this bad

    The list holds one epoch of batches. With workers they all lie in `/dev/shm`, one segment and one file descriptor for each tensor
    (measured with torch 2.13.0). `len(list(loader))` reads and decodes the whole data set to count batches.

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

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the places where all batches of a loader are put into one container."""
        evaluator = evaluator_of(project)
        for call, scope in module.walk.calls:
            written = last_name(call.func)
            if written not in {"list", "tuple", "sorted"} or len(call.args) == 0 or not isinstance(call.func, cst.Name):
                continue
            if not any(
                isinstance(a.value, External) and a.value.name == f"builtins.{written}"
                for a in evaluator.values(call.func, evaluator.calls.plain_frame(module, scope))
            ):
                continue
            yield from self._whole(module, project, call, call.args[0].value, scope)
        for scope in module.walk.scopes:
            yield from self._loops(module, project, scope)

    def _whole(self, module: Module, project: Project, node: cst.BaseExpression | cst.For, iterated: cst.BaseExpression, scope: Scope) -> Iterator[Finding]:
        like = loader_like(project, iterated, module, scope)
        if like is None or is_test(module):
            return  # what a test keeps lives as long as the test
        name = f"`{like.name}`" if like.name else "this loader"
        outer = module.walk.parents.get(module.walk.parents.get(node, node))
        counted = isinstance(outer, cst.Call) and last_name(outer.func) == "len"
        fix = None
        if counted:
            message = f"{name} is read to its end to count its batches"
            fix = Fix(Safety.UNSAFE, "ask the loader for its length", (replace(module.tree, node, module.code(iterated)),))
        else:
            message = f"All batches of {name} are kept at once: one epoch of memory, with workers in `/dev/shm`"
        confidence = Confidence.HIGH if like.known else Confidence.MEDIUM
        yield self.finding(module.place(node), message, confidence=confidence, fix=fix)

    def _loops(self, module: Module, project: Project, scope: Scope) -> Iterator[Finding]:
        """Comprehensions and loops that keep each whole batch."""
        if isinstance(scope.node, cst.Lambda):
            return
        for node in descend(scope.suite, into_scopes=False):
            if isinstance(node, cst.ListComp):
                loop = node.for_in
                whole = isinstance(loop.target, cst.Name) and isinstance(node.elt, cst.Name) and node.elt.value == loop.target.value
                if whole and not loop.ifs and loop.inner_for_in is None:
                    yield from self._whole(module, project, node, loop.iter, scope)
            elif isinstance(node, cst.For) and isinstance(node.target, cst.Name):
                for statement in block_of(node.body):
                    if isinstance(statement, cst.Expr) and self._appends(statement.value, node.target.value) and len(block_of(node.body)) == 1:
                        yield from self._whole(module, project, node, node.iter, scope)

    @staticmethod
    def _appends(node: cst.BaseExpression, batch: str) -> bool:
        if not isinstance(node, cst.Call) or last_name(node.func) != "append" or len(node.args) != 1:
            return False
        value = node.args[0].value
        return isinstance(value, cst.Name) and value.value == batch
