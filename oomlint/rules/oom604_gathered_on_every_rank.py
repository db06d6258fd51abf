"""OOM604 gathered-on-every-rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.finding import Confidence, Consequence, Message, Multiplier, Resource, Safety, Severity, StoreFact, Weighs
from oomlint.measurement import ON_RANKS
from oomlint.memory.facts import ranks_fact
from oomlint.memory.ranks.gathers import GATHER, Gathers, to_one
from oomlint.model import names
from oomlint.model.test_suites import holds_tests
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact, Finding
    from oomlint.memory.ranks.gathers import Gather
    from oomlint.model.project import Module, Project

_TENSORS: Final = Weighs(Consequence.MULTIPLIED, Resource.TENSORS, (Multiplier.RANKS,))


class GatheredOnEveryRank(Rule):
    """Every rank is sent what all others have collected, and one of them reads it.

    ## What it does

    Checks for `torch.distributed.all_gather_object`, called in place or by a function of the project that returns what it gathered (also by `all_gather`
    of pickles), of a container that an evaluation fills batch by batch, where what comes of it is read behind a test for the rank only:
    `if rank == 0:`, or after `if not is_main_process(): return`. What the other ranks do to put it together first (`extend`, `sum`, `chain`) is no
    reading.

    It is silent where all ranks read it, for losses, counts, labels and other single numbers, and for `gather_object`.

    ## Why is this bad

    With N ranks on a machine its memory holds N times the predictions of the whole evaluation, not once. While they are gathered it is more: each rank
    has the pickled objects of all ranks beside those that come of them.

    Measured with two ranks (`gloo`, on the CPU), each with 12,500 dictionaries that hold a tensor of 1,000 numbers, 48 MiB; memory of each rank beside
    that (torch 2.13.0):

    | code | rank 0, at the peak | rank 1, at the peak | rank 1, after |
    |---|---|---|---|
    | `all_gather_object` | +395 MiB | +395 MiB | +189 MiB |
    | `gather_object` | +394 MiB | +140 MiB | +37 MiB |

    With eight ranks it is seven ranks that hold eight parts for nothing.

    ## Example

    ```python
    import torch
    import torch.distributed as dist


    @torch.no_grad()
    def evaluate(model, loader, path):
        results = []
        for images, names in loader:
            for name, output in zip(names, model(images)):
                results.append({"name": name, "output": output.cpu()})
        gathered = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, results)
        if dist.get_rank() == 0:
            torch.save([one for part in gathered for one in part], path)
    ```

    ## Use instead

    ```python
    import torch
    import torch.distributed as dist


    @torch.no_grad()
    def evaluate(model, loader, path):
        results = []
        for images, names in loader:
            for name, output in zip(names, model(images)):
                results.append({"name": name, "output": output.cpu()})
        gathered = [None] * dist.get_world_size()
        dist.gather_object(results, gathered if dist.get_rank() == 0 else None)
        if dist.get_rank() == 0:
            torch.save([one for part in gathered for one in part], path)
    ```

    ## Fix safety

    `gather_object` to rank 0: unsafe. It is made where nothing but code behind a test whether the global rank is 0 reads the result.
    Elsewhere it is advice. With NCCL the objects go through the current device in both cases. Better still: write each part to a file of
    its own, or sum up a metric on each rank and reduce that.

    ## References

    - [torch.distributed.gather_object](https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.gather_object)
    - [huggingface/accelerate#3147](https://github.com/huggingface/accelerate/issues/3147)
    """

    code = "OOM604"
    slug = "gathered-on-every-rank"
    severity = Severity.WARNING
    fixable = Safety.UNSAFE
    preview = True
    weighs = Weighs(Consequence.MULTIPLIED, Resource.RECORDS, (Multiplier.RANKS,))
    measured_as = ON_RANKS

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the gathers to all ranks of what one rank reads."""
        if holds_tests(module):
            return
        together: dict[object, list[Gather]] = {}
        for one in project.shared(Gathers).of(module):
            together.setdefault(one.scope, []).append(one)
        for found, *others in together.values():
            who = found.ranks.words if found.ranks is not None else "each rank"
            unused = "only one rank reads it, and the others hold the whole evaluation for nothing"
            message = Message(f"{who.capitalize()} receives `{found.collected}` of all ranks", unused)
            related = [found.filled[0].place(found.filled[1], "filled here"), found.read[0].place(found.read[1], "read here, by one rank")]
            if found.primitive is not None:
                related.append(found.primitive[0].place(found.primitive[1], "gathered here"))
            related.extend(module.place(one.node, f"so is `{one.collected}`") for one in others)
            facts: list[Fact] = [StoreFact(one.filled[0].place(one.filled[1]), one.collected) for one in (found, *others)]
            if found.ranks is not None:
                facts.append(ranks_fact(found.ranks))
            place = module.place(found.node)
            objects = found.primitive is None or names.last_name(found.primitive[1].func) == GATHER
            weighs = None if objects else _TENSORS
            yield self.finding(place, message, confidence=Confidence.MEDIUM, related=related, fix=to_one((found, *others)), facts=facts, weighs=weighs)
