"""OOM131 loader-materialised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Confidence, Consequence, Fix, Message, Multiplier, Resource, Safety, Severity, StoreFact, StoreKind, Weighs
from oomlint.measurement import TENSORS, CallCheck, Measurement, Trait
from oomlint.memory.buffers.growth_messages import over, what_of
from oomlint.memory.buffers.kept_batches import collates_itself, kept_batches
from oomlint.memory.facts import like_facts
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.loop_kinds import loader_like
from oomlint.model.names import last_name
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import External
from oomlint.rule import Rule
from oomlint.syntax.edits import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact, Finding
    from oomlint.memory.buffers.kept_batches import KeptBatches
    from oomlint.memory.shared.loop_kinds import LoaderLike
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_SHARED: Final = ", in `/dev/shm` if the loader has workers"


class LoaderMaterialised(Rule):
    """All batches of a loader are put into one list.

    ## What it does

    Checks for `list(loader)`, `tuple(loader)`, `sorted(loader)`, `[batch for batch in loader]` and a loop that keeps each whole batch to its end,
    in a list or a dictionary, where `loader` is a `DataLoader`. A batch is whole, too, where it is brought to a device (`batch.cuda()`), and where
    all of its parts are kept: `(images.cuda(), labels)`.

    So does a loop that keeps a part of each batch, where that is known to have two axes or more for each sample (images, maps, tables of
    coordinates): `x` of `for x, y in loader`, `batch["image"]`, their copies, and `x.tolist()`. Where each part also holds shared memory of a
    worker, OOM207 reports it; where the loop keeps what a model gives, OOM219 and OOM220.

    `list(loaders.values())`, `len(loader)` and a single `next(iter(loader))` say nothing. Nor do labels, and what is kept of a few batches only.

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
            if not any(isinstance(a.value, External) and a.value.name == f"builtins.{written}" for a in evaluator.plainly(call.func, module, scope)):
                continue
            yield from self._whole(module, project, call, call.args[0].value, scope)
        for scope in module.walk.scopes:
            for row in scope.rows:
                part = row.for_in
                whole = isinstance(part.target, cst.Name) and isinstance(row.elt, cst.Name) and row.elt.value == part.target.value
                if whole and not part.ifs and part.inner_for_in is None:
                    yield from self._whole(module, project, row, part.iter, scope)
        for kept in kept_batches(module, project):
            name = f"`{over(kept.loop)}`"
            message = Message(
                f"All batches of {name} are kept at once" if kept.whole else f"`{what_of(kept.store)}` is kept of all batches of {name}",
                f"{'they take' if kept.whole else 'it takes'} the memory of one epoch{_where(kept)}",
            )
            yield self.finding(module.place(kept.place), message, confidence=_sure(kept.like), facts=_facts(module, kept.place, kept.like))

    def _whole(self, module: Module, project: Project, node: cst.BaseExpression, iterated: cst.BaseExpression, scope: Scope) -> Iterator[Finding]:
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
            shared = "" if collates_itself(like) else _SHARED
            message = Message(f"All batches of {name} are kept at once", f"they take the memory of one epoch{shared}")
        yield self.finding(module.place(node), message, confidence=_sure(like), fix=fix, facts=_facts(module, node, like))


def _where(kept: KeptBatches) -> str:
    """What the memory is, where it is not that of arrays of the process."""
    if kept.on_device:
        return ", on the device"
    if kept.as_numbers:
        return ", as Python numbers of about 32 bytes each"
    return _SHARED if kept.shared else ""


def _sure(like: LoaderLike) -> Confidence:
    return Confidence.HIGH if like.known else Confidence.MEDIUM


def _facts(module: Module, node: cst.CSTNode, like: LoaderLike) -> list[Fact]:
    return [StoreFact(module.place(node), like.name, StoreKind.WHOLE), *like_facts(like)]
