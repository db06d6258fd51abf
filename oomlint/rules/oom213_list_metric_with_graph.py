"""OOM213 list-metric-with-graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import GRAPH, Measurement, Trait
from oomlint.memory.buffers.list_metrics import fed_with_graph
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class ListMetricWithGraph(Rule):
    """A metric that stores what it is given is given tensors with their graph.

    ## What it does

    Checks for a torchmetrics metric that keeps what it is given in a list (`CatMetric`, the binary AUROC, average precision, ROC and
    precision-recall curve without `thresholds`, rank correlation, retrieval, mean average precision) and that is fed a tensor which still
    carries its graph: in a training loop, in `training_step`, or anywhere in grad mode. A `MetricCollection` is as its metrics are.

    It is an error for `update()`, and a warning where the metric is called: `auroc(scores, targets)` keeps the graphs of all steps before
    torchmetrics 1.4, and that of the last step since.

    A metric that keeps sums, a curve with a number of `thresholds`, and what runs under `torch.no_grad()` say nothing. Nor does `update()` of
    a curve that works on its input first, as for several classes or for logits: it does so without a graph.

    ## Why is this bad

    The list holds the predictions as they came, so the graph of each step lives until `reset()`. `CatMetric` and `BinaryAUROC()` kept 510 KiB a
    step, `BinaryAUROC(thresholds=200)` and `MeanMetric` nothing (measured with torch 2.13.0 and torchmetrics 1.9).

    ## Example

    ```python
    from torch.nn.functional import binary_cross_entropy
    from torchmetrics.classification import BinaryAUROC


    def train(model, train_loader, optimizer, device):
        auroc = BinaryAUROC().to(device)
        for images, targets in train_loader:
            images, targets = images.to(device), targets.to(device)
            scores = model(images).sigmoid().squeeze(1)
            loss = binary_cross_entropy(scores, targets.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            auroc.update(scores, targets)
        return auroc.compute().item()
    ```

    ## Use instead

    ```python
    from torch.nn.functional import binary_cross_entropy
    from torchmetrics.classification import BinaryAUROC


    def train(model, train_loader, optimizer, device):
        auroc = BinaryAUROC().to(device)
        for images, targets in train_loader:
            images, targets = images.to(device), targets.to(device)
            scores = model(images).sigmoid().squeeze(1)
            loss = binary_cross_entropy(scores, targets.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            auroc.update(scores.detach(), targets)
        return auroc.compute().item()
    ```

    ## Fix safety

    `.detach()` is added to what carries a graph. Safe, as the metric computes the same numbers, except where its value goes into the loss: then
    nothing is offered.

    `thresholds=200` makes the state small altogether, but the curve becomes an approximation. It is no part of the fix.

    ## References

    - [Lightning-AI/torchmetrics#1461](https://github.com/Lightning-AI/torchmetrics/issues/1461)
    - [Lightning-AI/torchmetrics#1949](https://github.com/Lightning-AI/torchmetrics/issues/1949)
    """

    code = "OOM213"
    slug = "list-metric-with-graph"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    help = "detach the tensor before it is passed"
    weighs = Weighs(Consequence.GROWS, Resource.GRAPH, (Multiplier.STEPS,))
    measured_as = Measurement(loop=GRAPH, traits=frozenset({Trait.RECORDS_GRAPH, Trait.KEEPS_GRAPH}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the updates that hand a metric with list states a tensor with its graph."""
        yield from map(self.tell, fed_with_graph(project, module))
