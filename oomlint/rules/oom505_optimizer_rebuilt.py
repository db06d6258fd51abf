"""OOM505 optimizer-rebuilt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Confidence, Consequence, LoopKind, Message, Resource, Severity, Weighs
from oomlint.memory.buffers.optimizer_models import in_the_callers_words, optimized, renewed, renewed_in_function
from oomlint.memory.facts import loop_fact
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.loop_kinds import conditional_in, is_epoch_loop, loops_around
from oomlint.memory.shared.qualified_names import library_name
from oomlint.memory.shared.training_loops import trains
from oomlint.model.names import last_name, parameters
from oomlint.model.test_suites import holds_tests
from oomlint.rule import Rule
from oomlint.syntax.nodes import uses_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.memory.buffers.optimizer_models import ModelPath
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_LIBRARIES = ("torch.optim.", "transformers.optimization.", "bitsandbytes.optim.", "apex.optimizers.", "torch_optimizer.", "timm.optim.")
_ALONE = frozenset({"transformers.AdamW", "transformers.Adafactor"})
_NO_OPTIMIZERS = ("torch.optim.lr_scheduler.", "torch.optim.swa_utils.")


class OptimizerRebuilt(Rule):
    """The optimizer of the same model is built again in each epoch.

    ## What it does

    Checks for `torch.optim.Adam(model.parameters())` (any class of `torch.optim`) that runs in each round of an epoch loop or a batch loop,
    in the loop itself or in a function that an epoch loop calls, while the model stays the same.

    A model that is built, loaded, reset or unfrozen in the loop says nothing, nor do loops over folds, tasks, stages and runs.

    ## Why is this bad

    The momentum and the averages of the optimizer are lost each time, which is seldom meant. In the moment in which the name is bound again,
    the old state still lives. The state of Adam is 2 times the parameters, with `amsgrad` 3 times (measured with torch 2.13.0).

    It is no leak: the old optimizer is freed as soon as nothing names it.

    ## Example

    ```python
    import torch


    def fit(model, batches, epochs=20):
        for epoch in range(epochs):
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            for image, target in batches:
                loss = torch.nn.functional.mse_loss(model(image), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    ```

    ## Use instead

    ```python
    import torch


    def fit(model, batches, epochs=20):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(epochs):
            for image, target in batches:
                loss = torch.nn.functional.mse_loss(model(image), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    ```

    ## Fix safety

    There is no fix: an optimizer that keeps its state trains otherwise. To change the learning rate alone, set it in
    `optimizer.param_groups` or use a scheduler.

    ## References

    - [torch.optim](https://docs.pytorch.org/docs/stable/optim.html)
    """

    code = "OOM505"
    slug = "optimizer-rebuilt"
    severity = Severity.NOTE
    fixable = None
    help = "build the optimizer once, before the loop"
    weighs = Weighs(Consequence.ONCE, Resource.TENSORS)

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the optimizers that are built again for a model that stays."""
        if holds_tests(module):
            return
        for call, scope in module.walk.calls:
            model = optimized(call) if call.args else None
            if model is None or not self._is_optimizer(module, project, call, scope):
                continue
            loop = next(iter(loops_around(call, module, scope)), None)
            if loop is not None:
                if conditional_in(call, loop, module) or not self._repeats(project, loop, module, scope) or renewed(model, loop, module, scope):
                    continue
                yield self._finding(module, call, module, loop, Confidence.HIGH)
                continue
            yield from self._through_callers(module, project, call, scope, model)

    def _finding(self, module: Module, call: cst.Call, other: Module, loop: cst.For | cst.While, confidence: Confidence) -> Finding:
        often = "epoch" if is_epoch_loop(loop, other) else "round"
        message = Message(
            f"Each {often} builds a new optimizer for the same model", "its state is lost, and two optimizers are in memory while the new one is built"
        )
        head = loop.target if isinstance(loop, cst.For) else loop.test
        kind = LoopKind.EPOCH if often == "epoch" else LoopKind.ROUND
        related = [other.place(head, "once for each round of this loop")]
        return self.finding(module.place(call), message, confidence=confidence, related=related, facts=[loop_fact(other, loop, kind)])

    @staticmethod
    def _repeats(project: Project, loop: cst.For | cst.While, module: Module, scope: Scope) -> bool:
        runs = runs_of(project)
        return runs.epochs(loop, module, scope) or (trains(loop, module, itself=True) and runs.over_batches(loop, module, scope))

    @staticmethod
    def _is_optimizer(module: Module, project: Project, call: cst.Call, scope: Scope) -> bool:
        name = library_name(project, call.func, module, scope)
        made = last_name(call.func)
        if name.startswith(_NO_OPTIMIZERS):
            return False
        return name in _ALONE or (name.startswith(_LIBRARIES) and name.rpartition(".")[2][:1].isupper() and made != "Optimizer")

    def _through_callers(self, module: Module, project: Project, call: cst.Call, scope: Scope, model: ModelPath) -> Iterator[Finding]:
        """The function builds the optimizer each time it is called, and an epoch loop calls it."""
        if not isinstance(scope.node, cst.FunctionDef) or conditional_in(call, scope.node, module) or scope.name in {"__init__", "configure_optimizers"}:
            return
        own = [p.name.value for p in parameters(scope)]
        if model.root not in own or renewed_in_function(model, module, scope) or any(isinstance(s, cst.Return) for s in self._returned(call, module, scope)):
            return
        for site in evaluator_of(project).calls.sites(module, scope):
            loop = next(iter(loops_around(site.call, site.module, site.scope)), None)
            if loop is None or not runs_of(project).epochs(loop, site.module, site.scope) or conditional_in(site.call, loop, site.module):
                continue
            given = in_the_callers_words(site.call, scope, model)
            if given is not None and not renewed(given, loop, site.module, site.scope):
                yield self._finding(module, call, site.module, loop, Confidence.MEDIUM)
                return

    @staticmethod
    def _returned(call: cst.Call, module: Module, scope: Scope) -> Iterator[cst.CSTNode]:
        """Statements that hand the optimizer out of its function: then it is a factory."""
        bound = {root for root, _ in module.walk.bound_to(call)}
        statement = module.walk.statement_of(call)
        if isinstance(statement, cst.Return):
            yield statement
        for back in scope.returns:
            if back.value is not None and uses_name(back.value, bound):
                yield back
