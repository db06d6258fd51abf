"""OOM223 metric-never-reset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Consequence, Fix, Message, Multiplier, Resource, Safety, Severity, StoreFact, StoreKind, Weighs
from oomlint.measurement import LoopPlan, Measurement, Quantity, Trait
from oomlint.memory.buffers.growth import buffers_of
from oomlint.memory.facts import growth_facts
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project

_ADVICE: Final = Fix(Safety.DISPLAY, "call `reset()` after each `compute()`, before the next epoch")


class MetricNeverReset(Rule):
    """A metric that keeps what it is given is updated in every epoch, and never reset.

    ## What it does

    Checks for metrics of torchmetrics whose state is a list (`AUROC`, `AveragePrecision`, `ROC` and other curves without `thresholds`,
    `SpearmanCorrCoef`, `CosineSimilarity`, `CatMetric`, the metrics of retrieval, `MeanAveragePrecision`) that a loop over batches updates
    inside a loop over epochs, where nothing resets them or makes them again in between. `metric(scores, targets)` updates as well.

    Metrics that count say nothing, nor do curves with `thresholds`. It is silent where the metric may be reset as a part of something else: a list, a
    dictionary, the modules of a model, by a name that is computed, or by a library that it is given to.

    ## Why is this bad

    `compute()` empties nothing, so the second epoch adds to the scores of the first. 10,000 scores and targets in an epoch, measured with
    torchmetrics 1.9.0:

    | after epoch | state of `BinaryAUROC()` | state of `BinaryAUROC(thresholds=200)` |
    |---|---|---|
    | 1 | 117 KiB | 6 KiB |
    | 2 | 234 KiB | 6 KiB |
    | 4 | 469 KiB | 6 KiB |

    It lies on the device of the metric. The value that is computed is that of all epochs so far, too.

    ## Example

    ```python
    import torch
    from torch.nn.functional import binary_cross_entropy
    from torchmetrics.classification import BinaryAUROC


    def train(model, train_loader, optimizer, epochs):
        auroc = BinaryAUROC()
        for epoch in range(epochs):
            for images, targets in train_loader:
                scores = model(images).sigmoid().squeeze(1)
                loss = binary_cross_entropy(scores, targets.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                auroc.update(scores.detach(), targets)
            print(epoch, auroc.compute().item())
    ```

    ## Use instead

    ```python
    import torch
    from torch.nn.functional import binary_cross_entropy
    from torchmetrics.classification import BinaryAUROC


    def train(model, train_loader, optimizer, epochs):
        auroc = BinaryAUROC()
        for epoch in range(epochs):
            for images, targets in train_loader:
                scores = model(images).sigmoid().squeeze(1)
                loss = binary_cross_entropy(scores, targets.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                auroc.update(scores.detach(), targets)
            print(epoch, auroc.compute().item())
            auroc.reset()
    ```

    ## Fix safety

    There is no fix: what is computed changes, to what was most likely meant.

    ## References

    - [torchmetrics: structure overview](https://lightning.ai/docs/torchmetrics/stable/pages/overview.html)
    - [Lightning-AI/torchmetrics#1949](https://github.com/Lightning-AI/torchmetrics/issues/1949)
    """

    code = "OOM223"
    slug = "metric-never-reset"
    severity = Severity.ERROR
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.GROWS, Resource.TENSORS, (Multiplier.STEPS,))
    measured_as = Measurement(
        loop=LoopPlan(ends=(Quantity.TENSOR_BYTES, Quantity.STORAGES), also=(Quantity.NODES,), steps=2, epochs=9),
        traits=frozenset({Trait.EMPTIES, Trait.LEARNS, Trait.BY_EPOCH, Trait.MEANT}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the updates of metrics that no epoch resets."""
        for growth in buffers_of(project).told_as("OOM223", module):
            for store in growth.stores:
                node = store.node
                if not isinstance(node, cst.Call) or store.module is not module:
                    continue
                func = node.func.value if isinstance(node.func, cst.Attribute) and node.func.attr.value in {"update", "forward"} else node.func
                name = module.code(func).strip()
                message = Message(f"`{name}` stores every tensor it gets, and is never reset", "its memory grows from epoch to epoch")
                facts = [StoreFact(module.place(node), name, StoreKind.METRIC), *growth_facts(growth)[:1]]
                yield self.finding(module.place(node), message, confidence=growth.confidence, fix=_ADVICE, facts=facts)
