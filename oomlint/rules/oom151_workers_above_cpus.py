"""OOM151 workers-above-cpus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import ByteSize, Consequence, Fix, Message, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.memory.facts import loader_fact
from oomlint.memory.loaders.job_limits import processors, starts, workers_of
from oomlint.memory.loaders.loader_calls import confidence_of, story_places
from oomlint.memory.shared.start_methods import FORKED, FORKED_MIB
from oomlint.model.values import assumptions
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding, Place
    from oomlint.memory.loaders.job_limits import JobLimit, Start
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Alternative


class WorkersAboveCpus(Rule):
    """A loader has more workers than the job has processors.

    ## What it does

    Checks for a job or a container that starts a training with more workers for one loader, times the ranks, than it has processors:
    `#SBATCH --cpus-per-task` and `srun --cpus-per-task` of SLURM, `docker run --cpus`, `cpus` and `deploy.resources.limits.cpus` of a compose
    file. The finding is at that number.

    It is silent where nobody says how many processors there are. A task of `srun` has its own; the ranks that `torchrun`, `accelerate` or
    `deepspeed` start in it share them.

    ## Why is this bad

    Workers beyond the number of processors do not make loading faster, and each costs memory: at least 10 MiB under fork and 139 MiB under spawn and
    forkserver, the batches that it keeps ready, and what it copies of the dataset. PyTorch warns where the system's affinity mask shows the
    limit, as under SLURM. A quota of Docker is not seen in it.

    ## Example

    ```bash title="train.sh"
    #!/bin/bash
    #SBATCH --cpus-per-task=4
    srun python program.py --num-workers 12
    ```

    ```python
    import argparse
    from pathlib import Path

    import torch
    from torch.utils.data import DataLoader, Dataset


    class Clips(Dataset):
        def __init__(self, root):
            self.root = Path(root)

        def __len__(self):
            return 10_000

        def __getitem__(self, index):
            return torch.load(self.root / f"{index}.pt")


    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=4)
    args = parser.parse_args()
    loader = DataLoader(Clips("clips"), batch_size=8, num_workers=args.num_workers)
    ```

    ## Use instead

    ```bash title="train.sh"
    #!/bin/bash
    #SBATCH --cpus-per-task=4
    srun python program.py --num-workers 4
    ```

    ```python
    import argparse
    from pathlib import Path

    import torch
    from torch.utils.data import DataLoader, Dataset


    class Clips(Dataset):
        def __init__(self, root):
            self.root = Path(root)

        def __len__(self):
            return 10_000

        def __getitem__(self, index):
            return torch.load(self.root / f"{index}.pt")


    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=4)
    args = parser.parse_args()
    loader = DataLoader(Clips("clips"), batch_size=8, num_workers=args.num_workers)
    ```

    ## Fix safety

    Advice only: either number may be the wrong one.

    ## References

    - [sbatch: --cpus-per-task](https://slurm.schedmd.com/sbatch.html#OPT_cpus-per-task)
    - [docker run: --cpus](https://docs.docker.com/engine/containers/resource_constraints/#configure-the-default-cfs-scheduler)
    - [Multi-process data loading](https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading)
    """

    code = "OOM151"
    slug = "workers-above-cpus"
    severity = Severity.NOTE
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.MULTIPLIED, Resource.PROCESS, (Multiplier.WORKERS,), ByteSize(least=FORKED))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders with more workers than the job that starts the training has processors."""
        worst: dict[Place, tuple[int, Start, Alternative, JobLimit]] = {}
        for start in starts(module, project):
            limit = processors(start.command)
            workers = workers_of(start, project) if limit is not None else None
            if limit is None or workers is None or not isinstance(workers.const, int):
                continue
            count = workers.const * start.ranks
            if count > limit.amount and count > worst.get(limit.place, (0,))[0]:
                worst[limit.place] = (count, start, workers, limit)
        for given, (count, start, workers, limit) in worst.items():
            place = start.loader.module.place(start.loader.call)
            many = f"{workers.const} workers in each of {start.ranks} ranks" if start.ranks > 1 else f"{count} workers"
            has = f"{limit.amount:g} processor{'s' if limit.amount != 1 else ''}"
            message = Message(f"{many} share {has}", f"the others do not make loading faster, and each costs at least {FORKED_MIB} MiB")
            related = (given.saying("the processors that it has"), *story_places(place, workers))
            facts = [loader_fact(start.loader, [workers])]
            fix = Fix(Safety.DISPLAY, "lower `num_workers`, or ask for more CPUs")
            yield self.finding(place, message, confidence=confidence_of(assumptions(workers)), related=related, fix=fix, facts=facts, given=(given,))
