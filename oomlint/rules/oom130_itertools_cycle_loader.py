"""OOM130 itertools-cycle-loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Confidence, Consequence, Message, Multiplier, Resource, Safety, Severity, StoreFact, StoreKind, Weighs
from oomlint.measurement import TENSORS, CallCheck, Measurement, Trait
from oomlint.memory.facts import like_facts
from oomlint.memory.fixes.rewrites import endless
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.loop_kinds import loader_like
from oomlint.model.names import last_name
from oomlint.model.values import External
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact, Finding
    from oomlint.model.project import Module, Project


class ItertoolsCycleLoader(Rule):
    """`itertools.cycle` keeps every batch of the first epoch.

    ## What it does

    Checks for `itertools.cycle` or `itertools.tee` over a `DataLoader`, over something named like one (`train_loader`), or over a `zip` with
    one.

    A generator of the project that happens to be called `cycle` says nothing, nor does `itertools.cycle` over something else than a loader.

    ## Why is this bad

    `itertools.cycle` saves what it has seen, to yield it again. Over a loader it grows to exactly one epoch of batches and then stays there
    (64 MiB of 64 MiB, measured with torch 2.13.0). With workers the batches stay in `/dev/shm`.

    It also repeats the first epoch for ever: the second epoch has the same order and the same random augmentation, whatever `shuffle` says.

    ## Example

    ```python
    import itertools

    from torch.utils.data import DataLoader


    def train(model, dataset, steps):
        loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)
        for batch in itertools.islice(itertools.cycle(loader), steps):
            model.step(batch)
    ```

    ## Use instead

    ```python
    import itertools

    from torch.utils.data import DataLoader


    def _cycle(loader):
        while True:
            batch = None
            for batch in loader:
                yield batch
            if batch is None:
                return


    def train(model, dataset, steps):
        loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)
        for batch in itertools.islice(_cycle(loader), steps):
            model.step(batch)
    ```

    ## Fix safety

    Unsafe, because it does what was meant: from the second epoch on the batches differ. The generator passes over the loader again and again
    and keeps nothing. It ends at once over an empty loader, as `itertools.cycle` does. `itertools.tee` gets no fix, nor does a `zip` or an
    `enumerate`, which can be passed over only once.

    ## References

    - [itertools.cycle](https://docs.python.org/3/library/itertools.html#itertools.cycle)
    - [pytorch/pytorch#23900](https://github.com/pytorch/pytorch/issues/23900)
    """

    code = "OOM130"
    slug = "itertools-cycle-loader"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE
    help = "start a new pass over the loader each time it ends"
    weighs = Weighs(Consequence.MULTIPLIED, Resource.TENSORS, (Multiplier.STEPS,))
    measured_as = Measurement(call=CallCheck.CYCLE, growth=TENSORS, traits=frozenset({Trait.MEANT, Trait.AGAIN, Trait.OF_LOADER}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the calls of itertools.cycle or itertools.tee over a loader."""
        evaluator = evaluator_of(project)
        for call, scope in module.walk.calls:
            written = last_name(call.func)
            if written not in {"cycle", "tee"} or not call.args or call.args[0].star:
                continue
            frame = evaluator.calls.plain_frame(module, scope)
            if not any(isinstance(a.value, External) and a.value.name == f"itertools.{written}" for a in evaluator.values(call.func, frame)):
                continue
            argument = call.args[0].value
            candidates = [argument]
            if isinstance(argument, cst.Call) and last_name(argument.func) in {"zip", "enumerate", "tqdm"}:
                candidates = [a.value for a in argument.args]
            like = next((x for c in candidates if (x := loader_like(project, c, module, scope)) is not None), None)
            if like is None:
                continue
            message = (
                Message(f"`itertools.cycle` keeps every batch of `{like.name}`", "memory grows by one epoch, and later epochs repeat the same batches")
                if written == "cycle"
                else Message(f"`itertools.tee` keeps batches of `{like.name}` until every copy reads them", "memory grows by up to one epoch")
            )
            confidence = Confidence.HIGH if like.known else Confidence.MEDIUM
            # A zip or an enumeration is over after one pass: the generator would begin again with nothing.
            again = isinstance(argument, cst.Call) and last_name(argument.func) in {"zip", "enumerate"}
            fix = endless(module, call) if written == "cycle" and not again else None
            facts: list[Fact] = [StoreFact(module.place(call), like.name, StoreKind.WHOLE), *like_facts(like)]
            yield self.finding(module.place(call), message, confidence=confidence, fix=fix, facts=facts)
