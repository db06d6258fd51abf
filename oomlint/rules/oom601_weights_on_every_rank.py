"""OOM601 weights-on-every-rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.finding import Confidence, Consequence, Fix, Message, Multiplier, ReadFact, Resource, Safety, Severity, Weighs
from oomlint.measurement import ON_RANKS
from oomlint.memory.facts import ranks_fact
from oomlint.memory.fixes.load_fixes import mapped
from oomlint.memory.ranks.checkpoints import released, weights
from oomlint.model.test_suites import holds_tests
from oomlint.model.torch_versions import LOAD_MAPPED, torch_versions
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact, Finding
    from oomlint.model.project import Module, Project


class WeightsOnEveryRank(Rule):
    """Every rank reads a whole checkpoint into its own host memory, and keeps it there.

    ## What it does

    Checks for `torch.load` of a checkpoint into host memory (`map_location="cpu"`) in code that runs once in each process of a distributed
    training, as `DistributedDataParallel`, `init_process_group`, DeepSpeed, a strategy of Lightning, or a command line with `torchrun`,
    `torch.distributed.launch`, `accelerate launch` or `deepspeed` tell. The number of ranks is that of the command line, where there is one.

    It is a warning where a name in the function that trains keeps the checkpoint, or a section of it, when the training begins; what rebinds the name in
    the rounds of the training, or on one rank only, comes too late. And where the
    model is spread over the ranks (`FullyShardedDataParallel`, `fully_shard`, DeepSpeed), because it would not fit into one: each rank reads the
    whole of it. Where an ordinary model is read, copied and forgotten, it is a note.

    It is silent with `mmap=True`, where a test for the rank lets one process alone read, where the path depends on the rank, and where the tensors
    go to a device at once: then they are in host memory one after the other (OOM502 speaks of the device).

    ## Why is this bad

    `load_state_dict` copies the tensors into the parameters. What was read stays beside them for as long as a name keeps it. With the state of Adam
    it is three times the parameters, times the ranks of the machine: with eight of them a model of 4 GiB takes 96 GiB of host memory that nobody
    reads again.

    Measured with two ranks (`gloo`, on the CPU) and a checkpoint of 288 MiB (a model of 96 MiB and the state of Adam); memory that is in no file,
    in each rank (torch 2.13.0):

    | code | at the peak | while it trains |
    |---|---|---|
    | `torch.load(path, map_location="cpu")`, kept | +288 MiB | +288 MiB |
    | the same, then `del` | +288 MiB | +0 |
    | `torch.load(path, map_location="cpu", mmap=True)` | +0 | +0 |

    ## Example

    ```python
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel


    def train(model, optimizer, loader, path, epochs):
        dist.init_process_group("nccl")
        checkpoint = torch.load(path, map_location="cpu")
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        model = DistributedDataParallel(model)
        for epoch in range(epochs):
            for images, labels in loader:
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
    ```

    ## Use instead

    ```python
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel


    def train(model, optimizer, loader, path, epochs):
        dist.init_process_group("nccl")
        checkpoint = torch.load(path, map_location="cpu")
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        del checkpoint
        model = DistributedDataParallel(model)
        for epoch in range(epochs):
            for images, labels in loader:
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
    ```

    ## Fix safety

    `del` of the names that keep it, behind their last use: safe in a function, unsafe at the top level of a script. Where a name may have no value at
    that place, it is advice.

    Where the checkpoint is not kept, `mmap=True` is added: unsafe. It needs torch 2.1 (where the requirements allow an older one, there is no fix), a path
    (of type `str` up to torch 2.1) and a file in the format of torch 1.6 and later. It is allowed with `weights_only` and with any `map_location`.
    An optimizer on the CPU, and `load_state_dict(..., assign=True)`, go on using the tensors that were read: the file must not be written to while
    they do. Where the program is seen to save to the same path, there is no fix.

    ## References

    - [pytorch/pytorch#104755](https://github.com/pytorch/pytorch/issues/104755)
    - [pytorch/pytorch#122582](https://github.com/pytorch/pytorch/issues/122582)
    - [huggingface/transformers#25107](https://github.com/huggingface/transformers/issues/25107)
    - [torch.load](https://docs.pytorch.org/docs/stable/generated/torch.load.html)
    """

    code = "OOM601"
    slug = "weights-on-every-rank"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.SAFE
    help = "pass `mmap=True`, so that the ranks share the pages of the file"
    weighs = Weighs(Consequence.MULTIPLIED, Resource.TENSORS, (Multiplier.RANKS,))
    measured_as = ON_RANKS

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the checkpoints that every rank reads into host memory."""
        if holds_tests(module) or "load" not in module.source.text:
            return
        for found in weights(module, project):
            ranks = found.ranks
            who = ranks.words.capitalize()
            related = [ranks.place] if ranks.place is not None else []
            facts: list[Fact] = [ReadFact(module.place(found.call), "torch.load"), ranks_fact(ranks)]
            fix: Fix | None
            if found.kept is not None:
                message = Message(f"{who} holds the whole checkpoint in host memory", found.kept.words)
                related.append(module.place(found.kept.training, "trained here, with the checkpoint still held"))
                fix = mapped(module, found.call, project) if ranks.shards else released(found.kept, project)
                fix = fix or Fix(Safety.DISPLAY, "delete it after its last use")
                severity = Severity.WARNING
            else:
                message = Message(
                    f"{who} reads the whole checkpoint into host memory", "a machine holds it once per rank, although ranks could share its pages"
                )
                fix = mapped(module, found.call, project)
                if torch_versions(project, module).lacks(LOAD_MAPPED):
                    message = replace(message, help="load it on one rank, and broadcast it to the others")
                severity = Severity.WARNING if ranks.shards else Severity.NOTE
            yield self.finding(module.place(found.call), message, severity=severity, confidence=Confidence.MEDIUM, related=related, fix=fix, facts=facts)
