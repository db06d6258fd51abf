"""OOM112 array-copied-per-spawned-worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Multiplier, Safety, Severity, Weighs
from oomlint.measurement import CallCheck, CommandSign, DatasetSign, Measurement, Trait
from oomlint.memory.datasets.worker_copies import cases
from oomlint.memory.fixes.worker_copy_fixes import mapped_or_tensor
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class ArrayCopiedPerSpawnedWorker(Rule):
    """Each spawned worker gets its own copy of an array, even of a memory-mapped one.

    ## What it does

    Checks for a dataset that keeps a NumPy array or a memory map (`np.memmap`, `np.load(..., mmap_mode="r")`) on `self` and reaches a
    `DataLoader` with workers.

    An array is reported where the start method is known to be spawn or forkserver; where it is not, OOM114 speaks, from four workers on. A
    memory map is reported in both cases, of whatever size, because its author counts on its costing nothing. It is silent where the array is
    proven small, where the class has a `__getstate__`, and where the start method is fork.

    A memory map is a note where the project starts itself on Linux, by shell scripts or in containers, and pins a Python before 3.14 or a torch before
    2.9: it forks, and the map costs nothing.

    ## Why is this bad

    Under spawn and forkserver the dataset is pickled once for each worker. Measured with torch 2.13.0, 381 MiB on `self`, two workers:

    | on `self` | fork | spawn, forkserver: each worker | parent, while it starts them |
    |---|---|---|---|
    | NumPy array | +0 | +381 MiB | +381 MiB |
    | memory map | +0 | **+381 MiB** | +381 MiB |
    | tensor | +0 | +0 (381 MiB in shared memory, once) | +381 MiB |
    | tensor over a memory map | +0 | +0 (381 MiB in shared memory, once) | +381 MiB |
    | path, mapped on first use | +0 | +0 | +0 |

    Pickling a memory map reads the whole file and sends its contents. It is free only under fork.

    ## Example

    ```python
    import os

    import numpy as np
    from torch.utils.data import DataLoader, Dataset


    class Frames(Dataset):
        def __init__(self, root):
            self.frames = np.load(os.path.join(root, "frames.npy"), mmap_mode="r")

        def __len__(self):
            return len(self.frames)

        def __getitem__(self, index):
            return self.frames[index].copy()


    if __name__ == "__main__":
        loader = DataLoader(Frames("data"), batch_size=8, num_workers=2, multiprocessing_context="spawn")
    ```

    ## Use instead

    ```python
    import os

    import numpy as np
    from torch.utils.data import DataLoader, Dataset


    class Frames(Dataset):
        def __init__(self, root):
            self._frames_path = os.path.abspath(os.path.join(root, "frames.npy"))
            self._frames = None

        @property
        def frames(self):
            if self._frames is None:
                self._frames = np.load(self._frames_path, mmap_mode="r")
            return self._frames

        def __getstate__(self):
            return {**self.__dict__, "_frames": None}

        def __len__(self):
            return len(self.frames)

        def __getitem__(self, index):
            return self.frames[index].copy()


    if __name__ == "__main__":
        loader = DataLoader(Frames("data"), batch_size=8, num_workers=2, multiprocessing_context="spawn")
    ```

    ## Fix safety

    A memory map that is only read becomes a path that is mapped on first use in each process, with a `__getstate__` that drops the map: unsafe.
    A worker that was sent a copy could write to it, and `copy.deepcopy` gave one too; what the worker maps is read-only, and the file must still be there.

    An array is kept as `torch.from_numpy(...)`, which is moved to shared memory once, and a property returns it as the array that it was to every reader:
    unsafe, because the workers then read the same memory, where each had a copy that it could write to. There is no fix where the class writes to the array
    or to what it has read of it, or where its elements are not proven to be numbers.

    ## References

    - [multiprocessing: contexts and start methods](https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods)
    - [numpy/numpy#2049](https://github.com/numpy/numpy/issues/2049)
    """

    code = "OOM112"
    slug = "array-copied-per-spawned-worker"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.UNSAFE
    help = "open the file or build the array in each worker, on first use, and leave it out of `__getstate__`"
    weighs = Weighs(Consequence.MULTIPLIED, by=(Multiplier.WORKERS,))
    per_rank = True
    measured_as = Measurement(
        dataset=(DatasetSign.COPIES,),
        call=CallCheck.HELD,
        command=(CommandSign.WORKER_MEMORY,),
        traits=frozenset({Trait.OWN_SIZE, Trait.MORE_DATA, Trait.SPAWNED, Trait.OF_LOADER}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders whose workers each get a copy of an array of the dataset."""
        for case in cases(module, project, self.code):
            yield self.tell(case, mapped_or_tensor(case))
