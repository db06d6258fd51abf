"""OOM206 step-list-never-cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.finding import AttributeFact, Confidence, Consequence, Message, Multiplier, Resource, Role, Safety, Severity, Weighs
from oomlint.measurement import LoopPlan, Measurement, Quantity, Trait
from oomlint.memory.buffers.growth import buffers_of
from oomlint.memory.buffers.growth_messages import target_of
from oomlint.memory.buffers.step_lists import step_lists
from oomlint.memory.facts import growth_facts, store_fact
from oomlint.memory.fixes.step_list_fixes import clearing
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from oomlint.finding import Fact, Finding
    from oomlint.memory.buffers.growth import Growth
    from oomlint.model.project import Module, Project


_GRAPHS: Final = Weighs(Consequence.GROWS, Resource.GRAPH, (Multiplier.STEPS,))


class StepListNeverCleared(Rule):
    """A list on a module grows in each step, or each forward pass, and nothing clears it.

    ## What it does

    Checks for `self.outputs.append(...)` in a step of a `LightningModule` (`training_step`, `validation_step`, `test_step`, an
    `on_..._batch_end` hook, or a method that they call), where the list is made once, in `__init__` or `setup`, and no method that runs once
    an epoch empties it. Base classes are looked through, and so are loops that reset attributes by their names.

    The same for what `forward` of any `torch.nn.Module` adds to a list that `__init__` made: a map of attention, a loss of a layer. There it is
    silent where the class or anybody else makes the list again, takes out of it or empties it, and where a setting says whether it is kept.

    And for a list of a training loop that nobody reads but for its last entries (`codes[-100:]`): those before them stay for nothing. It is a warning, where
    the entries are arrays.

    A list of plain numbers or strings, a `deque` with a `maxlen`, and a list of the test stage alone say nothing.

    ## Why is this bad

    A module lives as long as the run, so the list holds the outputs of all epochs: 4.7 MiB more with each epoch of a small model (measured with
    torch 2.13.0). They lie where the step left them, which is often the GPU. What reads the list at the end of an epoch reads the epochs
    before as well, so the metric is wrong too.

    Lightning 2.0 took away the hooks that were handed the outputs of an epoch, because they kept memory. Whoever stores outputs now has to
    clear them.

    ## Example

    ```python
    import lightning as L
    import torch


    class Segmenter(L.LightningModule):
        def __init__(self, network):
            super().__init__()
            self.network = network
            self.probabilities = []

        def validation_step(self, batch, batch_idx):
            images, _ = batch
            self.probabilities.append(self.network(images).softmax(dim=1))

        def on_validation_epoch_end(self):
            probabilities = torch.cat(self.probabilities)
            self.log("val_entropy", torch.special.entr(probabilities).sum(dim=1).mean())
    ```

    ## Use instead

    ```python
    import lightning as L
    import torch


    class Segmenter(L.LightningModule):
        def __init__(self, network):
            super().__init__()
            self.network = network
            self.probabilities = []

        def validation_step(self, batch, batch_idx):
            images, _ = batch
            self.probabilities.append(self.network(images).softmax(dim=1))

        def on_validation_epoch_end(self):
            probabilities = torch.cat(self.probabilities)
            self.log("val_entropy", torch.special.entr(probabilities).sum(dim=1).mean())
            self.probabilities.clear()
    ```

    ## Fix safety

    `self.<list>.clear()` is added as the last statement of the hook that ends the epoch of that stage; where there is none, the hook is
    written at the end of the class. Safe where nothing reads the list after that hook. Where something does, the fix is unsafe.

    The sanity check that Lightning runs before the first epoch appends as well. What is computed from the list in the first epoch changes with
    the fix only where the run went wrong before.

    ## References

    - [Lightning-AI/pytorch-lightning#16520](https://github.com/Lightning-AI/pytorch-lightning/pull/16520)
    - [Lightning-AI/pytorch-lightning#8731](https://github.com/Lightning-AI/pytorch-lightning/issues/8731)
    - [Lightning-AI/pytorch-lightning#8453](https://github.com/Lightning-AI/pytorch-lightning/issues/8453)
    """

    code = "OOM206"
    slug = "step-list-never-cleared"
    severity = Severity.ERROR
    lower = (Severity.WARNING,)
    fixable = Safety.SAFE
    help = "clear the list at the end of each epoch, or keep a running sum instead"
    weighs = Weighs(Consequence.GROWS, Resource.TENSORS, (Multiplier.STEPS,))
    measured_as = Measurement(
        loop=LoopPlan(ends=(Quantity.STORAGES, Quantity.PYTHON_BYTES), also=(Quantity.TENSOR_BYTES, Quantity.NODES), steps=2, epochs=9),
        traits=frozenset({Trait.EMPTIES, Trait.LEARNS, Trait.BY_EPOCH, Trait.MEANT}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the statements that fill a list that no epoch empties, or of which a training only reads the end."""
        for growth in buffers_of(project).told_as(self.code, module):
            yield self._of_training(growth, module)
        for found in step_lists(project, module):
            names = " and ".join(f"`self.{one.name}`" for one in (found, *found.others))
            owner = found.cls.scope.name
            if found.stage == "forward":
                graph = ", with the graph of every pass" if found.graph else ""
                message = Message(f"Every forward pass extends {names}, which nothing clears", f"memory grows for as long as the model runs{graph}")
            else:
                graph = ", with the graph of every batch" if found.graph else ""
                message = Message(f"Every batch extends {names}, which `{owner}` never clears", f"memory grows from epoch to epoch{graph}")
            related = [module.place(one.store.node).saying("here, too", Role.AGAIN) for one in found.others]
            facts: list[Fact] = []
            for one in (found, *found.others):
                facts += [store_fact(one.store), AttributeFact(one.name, owner, place=one.store.module.place(one.store.node))]
            fix = clearing(found, module, project) if found.stage != "forward" else None
            weighs = _GRAPHS if found.graph else None
            yield self.finding(module.place(found.store.node), message, confidence=Confidence.HIGH, related=related, fix=fix, facts=facts, weighs=weighs)

    def _of_training(self, growth: Growth, module: Module) -> Finding:
        """A list of which a training loop only reads the end."""
        latest: list[cst.Subscript] = growth.facts["latest"]  # type: ignore[assignment]
        message = Message(
            f"Every step extends `{target_of(growth.store)}`, of which only the end is read",
            "memory grows for as long as the training runs",
            "keep the last entries alone, in a `collections.deque` with a `maxlen`",
        )
        related, facts = (module.place(latest[0], "the last entries are read here"),), growth_facts(growth)
        return self.finding(module.place(growth.node), message, severity=growth.severity, confidence=growth.confidence, related=related, facts=facts)
