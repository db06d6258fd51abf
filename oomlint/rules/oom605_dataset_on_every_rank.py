"""OOM605 dataset-on-every-rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.finding import Confidence, Consequence, Fix, Message, Multiplier, Role, Safety, Severity, Weighs
from oomlint.measurement import DatasetSign, Measurement, Trait
from oomlint.memory.facts import dataset_facts, holding_fact, loader_fact, ranks_fact
from oomlint.memory.ranks.ranks import ranks_of
from oomlint.memory.ranks.sharded import sharded
from oomlint.model.test_suites import holds_tests
from oomlint.rule import Rule
from oomlint.weighing import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact, Finding
    from oomlint.memory.ranks.sharded import Sharded
    from oomlint.model.project import Module, Project

_ADVICE: Final = Fix(Safety.DISPLAY, "memory-map the file, which the ranks of a machine share, or let each rank read its own part", ())


class DatasetOnEveryRank(Rule):
    """Every rank holds the whole dataset in memory, and reads a part of it.

    ## What it does

    Checks for a loader with a `DistributedSampler` whose dataset is wholly in memory: arrays, tensors, or what `pickle.load` and `torch.load` gave.

    It is silent where reading a sample opens a file, for memory maps, file names, labels and other records of the samples, for what is proven small
    (under 16 MiB, or under 50,000 elements), and without a sampler that deals the samples out.
    So it is where the rank goes into the path, with `num_replicas=1`, and for tensors that `torch.multiprocessing.spawn` sends to the ranks: it moves
    them into shared memory.

    It is a note where the commands of the project (shell scripts, Makefiles, notebooks) start the file without a launcher, and all that would make it one
    of several processes stands behind a test for its rank, which they do not give.

    ## Why is this bad

    `DistributedSampler` deals out indices, not data. Each rank is a process of its own that builds the dataset for itself: a machine with eight of
    them reads the file eight times, and holds it eight times, of which each rank reads an eighth in an epoch.

    Measured with two ranks (`gloo`, on the CPU) and a file of 381 MiB; memory that is in no file, in each rank, after its part was read (NumPy 2.4,
    torch 2.13.0):

    | code | each rank |
    |---|---|
    | `np.load(path)` | +382 MiB |
    | `np.load(path, mmap_mode="r")` | +0 |

    What is mapped is page cache, which all ranks of a machine share.

    ## Example

    ```python
    import numpy as np
    from torch.utils.data import DataLoader, Dataset, DistributedSampler


    class Frames(Dataset):
        def __init__(self, path):
            self.frames = np.load(path)

        def __len__(self):
            return len(self.frames)

        def __getitem__(self, index):
            return self.frames[index].copy()


    def loader_of(path):
        frames = Frames(path)
        return DataLoader(frames, batch_size=8, sampler=DistributedSampler(frames))
    ```

    ## Use instead

    ```python
    import numpy as np
    from torch.utils.data import DataLoader, Dataset, DistributedSampler


    class Frames(Dataset):
        def __init__(self, path):
            self.frames = np.load(path, mmap_mode="r")

        def __len__(self):
            return len(self.frames)

        def __getitem__(self, index):
            return self.frames[index].copy()


    def loader_of(path):
        frames = Frames(path)
        return DataLoader(frames, batch_size=8, sampler=DistributedSampler(frames))
    ```

    ## Fix safety

    Advice only: map the file (`mmap_mode="r"` for a plain `.npy`, `mmap=True` for `torch.load`), or let each rank read the files of its own part, with an
    ordinary sampler. With workers that are not forked, open the map on first use (OOM112).

    ## References

    - [torch.utils.data.distributed.DistributedSampler](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler)
    - [Lightning-AI/pytorch-lightning#4646](https://github.com/Lightning-AI/pytorch-lightning/issues/4646)
    - [NVIDIA/physicsnemo#1550](https://github.com/NVIDIA/physicsnemo/issues/1550)
    """

    code = "OOM605"
    slug = "dataset-on-every-rank"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.MULTIPLIED, by=(Multiplier.RANKS,))
    measured_as = Measurement(dataset=(DatasetSign.BUILT,), traits=frozenset({Trait.MORE_DATA, Trait.READS_ALL, Trait.IN_NO_FILE}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders that read a part of what every rank holds."""
        if holds_tests(module) or "DistributedSampler" not in module.source.text:
            return
        groups: dict[object, list[Sharded]] = {}
        for found in sharded(module, project):
            groups.setdefault(found.key, []).append(found)
        for found, *others in groups.values():
            holding = found.holding
            who = found.ranks.words if found.ranks is not None else "each rank"
            size = words(holding_fact(holding).bytes)
            much = f" ({size})" if size else ""
            message = Message(
                f"{who.capitalize()} holds all of `{holding.name}`",
                f"the sampler splits only the indices, so a machine holds {holding.content.words}{much} once per rank",
            )
            related = [found.sampler[0].place(found.sampler[1], "indices are dealt out here, not data")]
            if holding.effect is not None:
                related.append(holding.module.place(holding.effect.node, f"`{holding.name}` holds {holding.content.words}"))
            if holding.content.module is not None and holding.content.node is not None:
                related.append(holding.content.module.place(holding.content.node, f"made here: {holding.content.words}"))
            related.extend(module.place(other.loader.call).saying("read here, too", Role.AGAIN) for other in others)
            facts: list[Fact] = [loader_fact(found.loader), holding_fact(holding, found.dataset), *dataset_facts(found.dataset)]
            if found.ranks is not None:
                facts.append(ranks_fact(found.ranks))
            place = module.place(found.loader.call)
            severity = Severity.NOTE if ranks_of(project).starts_alone(module) else None
            yield self.finding(place, message, severity=severity, confidence=Confidence.MEDIUM, related=related, fix=_ADVICE, facts=facts)
