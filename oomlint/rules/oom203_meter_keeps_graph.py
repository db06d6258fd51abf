"""OOM203 meter-keeps-graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Consequence, Message, Multiplier, Resource, Role, Safety, Severity, Weighs
from oomlint.measurement import GRAPH, Measurement, Trait
from oomlint.memory.buffers.growth import buffers_of
from oomlint.memory.buffers.growth_messages import kept, loop_of
from oomlint.memory.facts import growth_facts
from oomlint.memory.fixes.growth_fixes import meter_fix, stays_detached
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class MeterKeepsGraph(Rule):
    """A meter keeps the graphs of all values that it is updated with.

    ## What it does

    Checks for `meter.update(loss)`, `meter.add(loss)` and their like in a loop over batches, where `loss` still carries its graph and the class
    of the meter keeps what it is given: it adds it to an attribute or appends it to a list, without `.item()`, `float(...)` or `.detach()`.
    Of libraries, `AverageMeter` of timm and `MSEMeter` and `MovingAverageValueMeter` of torchnet do (timm 1.0.31, torchnet 0.0.4).

    Meters that take the number out themselves say nothing. Neither do torchmetrics that only keep sums, and sinks such as TensorBoard's
    `add_scalar` or `wandb.log`: they kept nothing (measured with torch 2.13.0).

    ## Why is this bad

    The sum in the meter is a tensor with a graph, and that graph holds the graphs of all updates before it.

    It is an error where no `backward()` frees those graphs: 512 KiB a step were kept in an evaluation in grad mode. It is a warning where
    `backward()` has run: only the nodes stay, 8.2 KiB a step (both measured with torch 2.13.0).

    ## Example

    ```python
    from torch import nn
    from torch.utils.data import DataLoader


    class AverageMeter:
        def __init__(self):
            self.sum = 0.0
            self.count = 0

        def update(self, value, n=1):
            self.sum += value * n
            self.count += n

        @property
        def average(self):
            return self.sum / max(self.count, 1)


    def train(model, dataset, optimizer):
        criterion = nn.CrossEntropyLoss()
        loader = DataLoader(dataset, batch_size=64, shuffle=True)
        losses = AverageMeter()
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.update(loss, images.size(0))
        return losses.average
    ```

    ## Use instead

    ```python
    from torch import nn
    from torch.utils.data import DataLoader


    class AverageMeter:
        def __init__(self):
            self.sum = 0.0
            self.count = 0

        def update(self, value, n=1):
            self.sum += value * n
            self.count += n

        @property
        def average(self):
            return self.sum / max(self.count, 1)


    def train(model, dataset, optimizer):
        criterion = nn.CrossEntropyLoss()
        loader = DataLoader(dataset, batch_size=64, shuffle=True)
        losses = AverageMeter()
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.update(loss.detach(), images.size(0))
        return losses.average
    ```

    ## Fix safety

    `.detach()` is added to the value in the call. This is safe: the meter computes the same numbers, from a tensor as before. Where the
    value might be no tensor there is no fix.

    The class is left alone. A test for a tensor in its `update` (`if torch.is_tensor(value): value = value.detach()`) fixes all calls at once.

    ## References

    - [pytorch/pytorch#6925](https://github.com/pytorch/pytorch/issues/6925)
    - [rabbityl/lepard#12](https://github.com/rabbityl/lepard/issues/12)
    - [visionml/pytracking#313](https://github.com/visionml/pytracking/pull/313)
    - [lyq133/LIC-HPCM#4](https://github.com/lyq133/LIC-HPCM/issues/4)
    """

    code = "OOM203"
    slug = "meter-keeps-graph"
    severity = Severity.ERROR
    lower = (Severity.WARNING,)
    fixable = Safety.SAFE
    help = "detach the tensor before it is passed, or pass `.item()`"
    weighs = Weighs(Consequence.GROWS, Resource.GRAPH, (Multiplier.STEPS,))
    measured_as = Measurement(loop=GRAPH, traits=frozenset({Trait.NUMBERS, Trait.RECORDS_GRAPH, Trait.KEEPS_GRAPH}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the updates that hand a meter a tensor with its graph."""
        for growth in buffers_of(project).told_as(self.code, module):
            call = growth.node
            name = module.code(call.func).strip() if isinstance(call, cst.Call) else "the meter"
            message = Message(f"`{name}` stores a tensor with its graph in {loop_of(growth)}", kept(growth))
            store = growth.store
            places = [store.module.place(store.node, "kept here")] if store.node is not call else []
            places += [module.place(other).saying("here, too", Role.AGAIN) for other in growth.others]
            patch = None if not stays_detached(growth, project) else meter_fix(growth, module, "detach the tensor before it is passed")
            facts = growth_facts(growth)
            yield self.finding(module.place(call), message, severity=growth.severity, confidence=growth.confidence, related=places, fix=patch, facts=facts)
