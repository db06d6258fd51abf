"""OOM217 snapshot-list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Confidence, Consequence, LoopKind, Message, Multiplier, Resource, Severity, StoreFact, Weighs
from oomlint.measurement import HELD, Measurement, Trait
from oomlint.memory.buffers.model_snapshots import snapshots
from oomlint.memory.facts import loop_fact
from oomlint.model.test_suites import holds_tests
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from oomlint.finding import Fact, Finding
    from oomlint.memory.buffers.model_snapshots import Snapshot
    from oomlint.model.project import Module, Project


class SnapshotList(Rule):
    """A training loop keeps a copy of the whole model for every epoch or step.

    ## What it does

    Checks for `snapshots.append(copy.deepcopy(model))`, `.append(copy.deepcopy(model.state_dict()))`, `.append({k: v.clone() ...})` and
    `history[epoch] = copy.deepcopy(model.state_dict())` in a training loop, and for all parameters in one vector (`parameters_to_vector`),
    where nothing takes copies out of the container again. Where only a new best score (`if score > best: best = score`) keeps a copy, it is
    a note.

    It is silent for a single `best = copy.deepcopy(...)`, for a container that is cut (`pop`, a heap of the best few, `deque(maxlen=3)`, a
    test of its length) or made again in each round, for ensembles, folds and populations (each round has its own model), for loops of ten
    rounds or fewer, and for `state_dict()` without a copy: that holds the live parameters, which is a bug of another kind.

    ## Why is this bad

    Each entry is all parameters and buffers once more, on the device that the model is on; with the state of Adam it is three times the
    parameters (measured with torch 2.13.0). A hundred epochs of a model of 100 MiB are 9.8 GiB.

    ## Example

    ```python
    import copy

    import torch
    from torch.nn.functional import cross_entropy


    def train(model, optimizer, train_loader, epochs):
        history = []
        for epoch in range(epochs):
            for images, labels in train_loader:
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
            history.append(copy.deepcopy(model.state_dict()))
        torch.save(history, "history.pt")
    ```

    ## Use instead

    ```python
    import torch
    from torch.nn.functional import cross_entropy


    def train(model, optimizer, train_loader, epochs):
        for epoch in range(epochs):
            for images, labels in train_loader:
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
            torch.save(model.state_dict(), f"epoch_{epoch}.pt")
    ```

    ## Fix safety

    There is no fix. Write the states to disk and keep their paths, or keep the best few.

    ## References

    - [Saving and loading models](https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html)
    """

    code = "OOM217"
    slug = "snapshot-list"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = None
    help = "keep only the best state, or write each one to a file"
    weighs = Weighs(Consequence.MULTIPLIED, Resource.TENSORS, (Multiplier.STEPS,))
    measured_as = Measurement(loop=HELD, traits=frozenset({Trait.OF_STATES, Trait.BY_EPOCH}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield, for each loop, the first statement that keeps a copy of a model."""
        if holds_tests(module):
            return
        loops: dict[cst.CSTNode, list[Snapshot]] = {}
        for snapshot in snapshots(module, project):
            loops.setdefault(snapshot.loop, []).append(snapshot)
        for found in loops.values():
            ordered = sorted(found, key=lambda one: module.place(one.place))
            first = min(ordered, key=lambda one: one.improves)
            which = " that improves" if first.improves else ""
            message = Message(
                f"`{first.container}` keeps a copy of `{first.written}` for every {first.per}{which}", "each copy takes the memory of all parameters again"
            )
            severity = Severity.NOTE if first.improves else None
            related = [module.place(one.place, f"so does one in `{one.container}`") for one in ordered if one is not first]
            confidence = Confidence.MEDIUM if first.doubt else Confidence.HIGH
            kind = LoopKind.EPOCH if first.per == "epoch" else LoopKind.ROUND
            facts: list[Fact] = [loop_fact(module, first.loop, kind), *(StoreFact(module.place(one.place), one.container) for one in ordered)]
            yield self.finding(module.place(first.place), message, severity=severity, confidence=confidence, related=related, facts=facts)
