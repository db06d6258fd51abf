"""OOM224 anomaly-detection-left-on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.memory.buffers.anomaly_mode import left_on
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class AnomalyDetectionLeftOn(Rule):
    """Autograd looks for anomalies in every step.

    ## What it does

    Checks for `torch.autograd.set_detect_anomaly(True)`, for `with torch.autograd.detect_anomaly():` around a backward, and for
    `Trainer(detect_anomaly=True)` of Lightning, in a project that trains: at the top of a file, in a function, or with an option that is on by default.

    It is silent where an option that is off by default decides, behind any other test, where the project switches it off again, and where nothing goes
    backward.

    ## Why is this bad

    It is there to find the operation that made a NaN. For that, each node of the graph keeps the lines of code that made it as Python texts, and
    after each node the gradient is searched for NaN. For 751 nodes (fifty residual blocks) a step held 1.8 MB of texts, 2.4 kB a node under a shallow stack,
    where it held 17 kB without, and took three times as long (measured with torch 2.13.0). What keeps graphs longer than a step keeps the texts, too.

    ## Example

    ```python
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    torch.autograd.set_detect_anomaly(True)


    def train(model, dataset, optimizer):
        criterion = nn.CrossEntropyLoss()
        for x, y in DataLoader(dataset, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
    ```

    ## Use instead

    ```python
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    torch.autograd.set_detect_anomaly(False)


    def train(model, dataset, optimizer):
        criterion = nn.CrossEntropyLoss()
        for x, y in DataLoader(dataset, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
    ```

    ## Fix safety

    `True` becomes `False`. It is unsafe: a gradient that is NaN raises no error any longer.

    ## References

    - [torch.autograd.detect_anomaly](https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection)
    """

    code = "OOM224"
    slug = "anomaly-detection-left-on"
    severity = Severity.WARNING
    fixable = Safety.UNSAFE
    weighs = Weighs(Consequence.MULTIPLIED, Resource.GRAPH, (Multiplier.STEPS,))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield where a file switches it on for good."""
        yield from map(self.tell, left_on(module, project))
