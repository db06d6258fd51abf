"""OOM123 loader-rebuilt-in-epoch-loop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import ByteSize, Consequence, Fix, LoopKind, Message, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import LoopPlan, Measurement, Quantity, Trait
from oomlint.memory.facts import loader_fact, loop_fact
from oomlint.memory.loaders.loader_calls import confidence_of, is_true, loaders_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.loop_kinds import changes_in, conditional_in, loops_around
from oomlint.memory.shared.start_methods import FORKED
from oomlint.model.names import last_name
from oomlint.model.torch_versions import PERSISTENT_WORKERS, torch_versions
from oomlint.model.values import Const, assumptions
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oomlint.finding import Finding
    from oomlint.memory.loaders.loader_calls import Loader, Loaders
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Alternative

_KEPT = Weighs(Consequence.GROWS, Resource.PROCESS, (Multiplier.STEPS, Multiplier.WORKERS), ByteSize(least=FORKED))
_ONCE = "build the loader once, before the loop"


class LoaderRebuiltInEpochLoop(Rule):
    """The same loader is built again in each epoch.

    ## What it does

    Checks for a `DataLoader` with workers that is built inside an epoch loop from arguments that do not change in the loop. An epoch loop is one
    whose rounds train the same model on the same batches again; where no training is in sight, its words say so. It is an error where each of
    these loaders is also kept: appended to a list, stored under a new key, or passed to `accelerator.prepare` inside the loop.

    It is a warning where each round also makes the dataset again, or where the loader has `persistent_workers=True`, which then persist for one epoch.
    Else it is a note, not shown by default: a loader that is built once would start its workers in each epoch just the same.

    A dataset that the loop makes again, too, of nothing that it changes, is the same in each epoch. A class out of sight that is called a
    `DataLoader`, and is given `num_workers` and batches, counts as one.

    A loop over splits, folds, subjects or tasks is no epoch loop and says nothing, nor does a loader whose arguments change from epoch to
    epoch: a dataset that draws its samples when it is made, or is made with the model.

    ## Why is this bad

    The workers start again in each epoch, with a new copy of the dataset under spawn and forkserver, and what they had cached is gone. A loader that is
    built once starts them again as well, unless it has `persistent_workers=True`: three epochs with two workers took 6 processes in and before the loop,
    and 2 before the loop with persistent workers (measured with torch 2.13.0).

    It is often called a leak. It is one only where the loaders are kept: five epochs with persistent workers left 2 children alive when the
    name was bound again, and 2, 4, 6, 8, 10 when the loaders stayed in a list (measured with torch 2.13.0). `accelerator.prepare` keeps every
    loader it is given.

    ## Example

    ```python
    from torch.utils.data import DataLoader


    def train(model, dataset, epochs=10):
        for epoch in range(epochs):
            loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
            for batch in loader:
                model.step(batch)
    ```

    ## Use instead

    ```python
    from torch.utils.data import DataLoader


    def train(model, dataset, epochs=10):
        loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
        for epoch in range(epochs):
            for batch in loader:
                model.step(batch)
    ```

    ## Fix safety

    Advice only: build the loader before the loop, with persistent workers. Whether something else of the loop depends on a new loader is for the author
    to say.

    ## References

    - [pytorch/pytorch#22133](https://github.com/pytorch/pytorch/issues/22133)
    - [huggingface/transformers#28469](https://github.com/huggingface/transformers/issues/28469)
    """

    code = "OOM123"
    slug = "loader-rebuilt-in-epoch-loop"
    severity = Severity.ERROR
    lower = (Severity.WARNING, Severity.NOTE)
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.MULTIPLIED, Resource.PROCESS, (Multiplier.STEPS, Multiplier.WORKERS), ByteSize(least=FORKED))
    measured_as = Measurement(
        loop=LoopPlan(ends=(Quantity.LOADERS,), also=(Quantity.PROCESSES,), steps=10, workers=2),
        traits=frozenset({Trait.FEWER_PASSES, Trait.BY_EPOCH, Trait.MEANT, Trait.OF_LOADER}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders with workers that are built again in each epoch."""
        loaders, constructions = loaders_of(project), constructions_of(project)
        for loader in (*loaders.of(module), *(presumed := loaders.presumed(module))):
            around = loops_around(loader.call, module, loader.scope)
            loop = next((x for x in around if runs_of(project).epochs(x, module, loader.scope)), None)
            if loop is None or conditional_in(loader.call, loop, module):
                continue
            workers = self._workers(loaders, loader)
            alike = partial(constructions.gives_the_same, module)
            if workers is None or changes_in([a.value for a in loader.call.args], loop, module, loader.scope, alike):
                continue
            place = module.place(loader.call)
            head = loop.target if isinstance(loop, cst.For) else loop.test
            related = [module.place(head, "once for each round of this loop")]
            facts = (loader_fact(loader, [workers]), loop_fact(module, loop, LoopKind.EPOCH))
            fix = self._advice(loaders, loader)
            kept = self._kept(module, loader, loop, alike)
            if kept:
                message = Message("Each epoch builds this loader again and keeps it", f"it is {kept}, so the workers of all epochs stay alive")
                yield self.finding(place, message, severity=Severity.ERROR, related=related, fix=fix, facts=facts, weighs=_KEPT)
            else:
                message = Message("Each epoch builds this loader again from the same arguments", "all its workers stop and start again each time")
                confidence = confidence_of(assumptions(workers) + (loader in presumed))
                severity = Severity.WARNING if self._costs_more(loaders, loader, loop) else Severity.NOTE
                yield self.finding(place, message, severity=severity, confidence=confidence, related=related, fix=fix, facts=facts)

    @staticmethod
    def _workers(loaders: Loaders, loader: Loader) -> Alternative | None:
        for use in loaders.uses(loader):
            for alt in loaders.workers(loader, use.frame):
                if isinstance(alt.value, Const) and isinstance(alt.value.value, int) and alt.value.value > 0 and not alt.reach:
                    return alt
        return None

    @staticmethod
    def _costs_more(loaders: Loaders, loader: Loader, loop: cst.For | cst.While) -> bool:
        """Whether one loader for all epochs would spare more than the arguments: its dataset is made again too, or its workers are meant to stay."""
        dataset = loader.explicit("dataset")
        if dataset is not None and changes_in([dataset.value], loop, loader.module, loader.scope):
            return True
        return any(is_true(alt.value) for alt in _persistent(loaders, loader))

    @staticmethod
    def _advice(loaders: Loaders, loader: Loader) -> Fix:
        persist = all(is_true(alt.value) for alt in _persistent(loaders, loader)) or torch_versions(loader.module.project, loader.module).lacks(
            PERSISTENT_WORKERS
        )
        return Fix(Safety.DISPLAY, _ONCE if persist else f"{_ONCE}, with `persistent_workers=True`")

    @staticmethod
    def _kept(module: Module, loader: Loader, loop: cst.For | cst.While, alike: Callable[[cst.Call], bool]) -> str:
        """How the loader outlives its round, in words; empty where it does not."""
        holder = module.walk.parents.get(loader.call)
        target = None
        if isinstance(holder, cst.Assign):
            target = holder.targets[0].target
            if isinstance(target, cst.Subscript):
                key = [part.slice for part in target.slice if isinstance(part.slice, cst.Index)]
                fresh = changes_in([target.value], loop, module, loader.scope)  # a new container in each round, too
                return "stored under a key" if not fresh and changes_in([part.value for part in key], loop, module, loader.scope, alike) else ""
        name = target.value if isinstance(target, cst.Name) else None
        for call in loader.scope.calls:
            written = last_name(call.func)
            given = any(a.value is loader.call or (name is not None and isinstance(a.value, cst.Name) and a.value.value == name) for a in call.args)
            if not given or not any(isinstance(x, cst.For | cst.While) for x in module.walk.ancestors(call)):
                continue
            if written == "append":
                return "appended to a list"
            if written == "prepare":
                return "passed to `prepare`, which stores it"
        return ""


def _persistent(loaders: Loaders, loader: Loader) -> list[Alternative]:
    """What `persistent_workers` can be."""
    return [alt for use in loaders.uses(loader) for alt in loaders.argument(loader, "persistent_workers", use.frame)]
