"""OOM150 shared-memory-too-small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.amounts import readable
from oomlint.finding import Consequence, Factor, Fix, Message, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.memory.loaders.job_limits import inflight_of, shared_memory, starts
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding, Place
    from oomlint.memory.loaders.in_flight import Inflight
    from oomlint.memory.loaders.job_limits import JobLimit
    from oomlint.model.project import Module, Project


class SharedMemoryTooSmall(Rule):
    """A container has less shared memory than the batches that wait in it.

    ## What it does

    Checks for a container that starts a training whose batches in flight do not fit into its `/dev/shm`: a service of a compose file, or a
    `docker run` in a shell script, a Makefile or a notebook. Where such a command says nothing, `/dev/shm` has 64 MiB.

    The finding is at the size, else at the command. It is silent where the container shares the memory of the host (`ipc: host`,
    `--ipc=host`), where something is mounted at `/dev/shm`, and where the bytes of a batch are not known: they follow from what makes a
    sample, as in OOM121.

    ## Why is this bad

    Workers hand over tensors in shared memory: up to `prefetch_factor * num_workers + 1` batches for each loader. Where the file system in
    `/dev/shm` is full, a worker dies: `DataLoader worker (pid 123) is killed by signal: Bus error. It is possible that dataloader's workers are
    out of shared memory. Please try to raise your shared memory limit.` The memory of the host does not matter.

    ## Example

    ```yaml title="compose.yaml"
    services:
      train:
        image: trainer
        command: python program.py --num-workers 4
    ```

    ```python
    import argparse

    import torch
    from torch.utils.data import DataLoader, Dataset


    class Noise(Dataset):
        def __len__(self):
            return 10_000

        def __getitem__(self, index):
            return torch.zeros(3, 512, 512)


    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=0)
    args = parser.parse_args()
    loader = DataLoader(Noise(), batch_size=16, num_workers=args.num_workers)
    ```

    ## Use instead

    ```yaml title="compose.yaml"
    services:
      train:
        image: trainer
        command: python program.py --num-workers 4
        shm_size: 1gb
    ```

    ```python
    import argparse

    import torch
    from torch.utils.data import DataLoader, Dataset


    class Noise(Dataset):
        def __len__(self):
            return 10_000

        def __getitem__(self, index):
            return torch.zeros(3, 512, 512)


    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=0)
    args = parser.parse_args()
    loader = DataLoader(Noise(), batch_size=16, num_workers=args.num_workers)
    ```

    ## Fix safety

    Advice only: how much memory a container may take is for the person who runs it to say.

    ## References

    - [docker run: --shm-size and --ipc](https://docs.docker.com/reference/cli/docker/container/run/)
    - [Compose: shm_size](https://docs.docker.com/reference/compose-file/services/#shm_size)
    """

    code = "OOM150"
    slug = "shared-memory-too-small"
    severity = Severity.NOTE
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.CRASHES, Resource.TENSORS, (Multiplier.PREFETCH,))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders whose batches in flight do not fit into the shared memory of a container that starts the training."""
        worst: dict[Place, tuple[int, Inflight, JobLimit]] = {}
        for start in starts(module, project):
            limit = shared_memory(start.command)
            case = inflight_of(start, project) if limit is not None else None
            if limit is None or case is None:
                continue
            needed = case.bytes * start.ranks
            if needed > limit.amount and needed > worst.get(limit.place, (0,))[0]:
                worst[limit.place] = (needed, case, limit)
        for place, (needed, case, limit) in worst.items():
            ranks = needed // case.bytes
            many = f"{case.batches} batches in each of {ranks} ranks" if ranks > 1 else f"{case.batches} batches"
            has = f"{readable(int(limit.amount))}{' by default' if limit.default else ''}"
            headline = f"Batches of {readable(needed)} exceed the container's `/dev/shm` ({has})"
            message = Message(headline, f"up to {many} wait there; a worker that finds no room dies of a bus error")
            related = (place.saying("the container that starts it"), *case.related)
            weighs = Weighs(Consequence.CRASHES, Resource.TENSORS, (Factor(Multiplier.PREFETCH, case.batches),))
            fix = Fix(Safety.DISPLAY, "raise `shm_size` (`--shm-size`), or share the memory of the host with `ipc: host` (`--ipc=host`)")
            yield self.finding(case.place, message, confidence=case.confidence, related=related, fix=fix, facts=case.facts, weighs=weighs, given=(place,))
