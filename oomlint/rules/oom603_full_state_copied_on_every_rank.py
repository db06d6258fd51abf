"""OOM603 full-state-copied-on-every-rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import AllocationFact, Confidence, Consequence, Message, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import ON_RANKS
from oomlint.memory.facts import ranks_fact
from oomlint.memory.ranks.full_states import full_states, on_one_rank
from oomlint.model.test_suites import holds_tests
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact, Finding
    from oomlint.model.project import Module, Project


class FullStateCopiedOnEveryRank(Rule):
    """Every rank gathers or copies the whole state of the model into host memory, and one of them saves it.

    ## What it does

    Checks for the full state of a model under `FullyShardedDataParallel` with `FullStateDictConfig(offload_to_cpu=True)` and without `rank0_only=True`,
    and for copies of a state in host memory (`{key: value.cpu() for key, value in model.state_dict().items()}`) in code that all ranks run, where the
    name that it gets is read behind a test for the rank only.

    It is silent for a plain `state_dict()`, which copies nothing, where the copy is made behind the test, where the state is loaded on all ranks, and
    for weights that each rank averages for itself.

    ## Why is this bad

    The copies of all ranks of a machine lie in its memory at the same time: eight copies of a model whose state is 28 GiB need 224 GiB, of which seven
    eighths are thrown away unread. That this happens whenever a checkpoint is written makes it look like a crash after hours of a healthy run.

    Measured with two ranks (`gloo`, on the CPU) and a model of 96 MiB; memory that is in no file, in each rank, while the state is held (torch
    2.13.0):

    | who copies the state | rank 0 | rank 1 |
    |---|---|---|
    | all ranks | +96 MiB | +96 MiB |
    | the rank that saves it | +96 MiB | +0 |

    ## Example

    ```python
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType


    def save(model, path):
        settings = FullStateDictConfig(offload_to_cpu=True)
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, settings):
            state = model.state_dict()
        if dist.get_rank() == 0:
            torch.save(state, path)
    ```

    ## Use instead

    ```python
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType


    def save(model, path):
        settings = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, settings):
            state = model.state_dict()
        if dist.get_rank() == 0:
            torch.save(state, path)
    ```

    ## Fix safety

    `rank0_only=True` is added where the configuration is made without it: unsafe. The other ranks get an empty state, so another place that uses the same
    configuration to load one would find nothing there. For copies it is advice: make them behind the test for the rank. A checkpoint in pieces
    (`torch.distributed.checkpoint`) needs no full state on any rank.

    ## References

    - [FullyShardedDataParallel](https://docs.pytorch.org/docs/stable/fsdp.html)
    - [pytorch/pytorch#73384](https://github.com/pytorch/pytorch/issues/73384)
    - [Lightning-AI/pytorch-lightning#11207](https://github.com/Lightning-AI/pytorch-lightning/issues/11207)
    """

    code = "OOM603"
    slug = "full-state-copied-on-every-rank"
    severity = Severity.WARNING
    fixable = Safety.UNSAFE
    weighs = Weighs(Consequence.MULTIPLIED, Resource.TENSORS, (Multiplier.RANKS,))
    measured_as = ON_RANKS

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the states that every rank holds and one reads."""
        if holds_tests(module) or "state_dict" not in module.source.text:
            return
        for found in full_states(module, project):
            who = found.ranks.words if found.ranks is not None else "each rank"
            does = "gathers" if found.config is not None else "copies"
            message = Message(f"{who.capitalize()} {does} the whole model state into host memory", f"only one rank uses `{found.name}`")
            related = [module.place(found.read, "read here, by one rank")]
            if found.config is not None:
                related.append(found.config[0].place(found.config[1], "without `rank0_only=True`"))
            place = module.place(found.node)
            facts: list[Fact] = [AllocationFact(place)]
            if found.ranks is not None:
                facts.append(ranks_fact(found.ranks))
            yield self.finding(place, message, confidence=Confidence.MEDIUM, related=related, fix=on_one_rank(found), facts=facts)
