"""OOM313 memmap-defeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Message, Resource, Severity, Weighs, in_own_rows
from oomlint.measurement import CommandSign, DatasetSign, FunctionSign, Measurement, Trait
from oomlint.memory.arrays.memmap_copies import map_copies
from oomlint.memory.facts import keeper_facts, whole_read_fact
from oomlint.memory.loaders.loader_calls import confidence_of
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class MemmapDefeated(Rule):
    """A memory map is copied into memory as soon as it is made.

    ## What it does

    Checks for a `Dataset` whose `__init__` (its methods, its helpers) maps a file (`np.memmap`, `np.load(..., mmap_mode="r")`,
    `np.lib.format.open_memmap`) and then copies all of it: `np.array(mm)`, `mm.copy()`, `mm.astype(...)`, `mm[:].astype(...)`, `np.stack`,
    `torch.tensor(mm)`, `mm.tolist()`, arithmetic such as `mm / 255.0`.

    It is silent for what copies nothing (`mm[:]`, `np.asarray(mm)`, `torch.from_numpy(mm)`, `reshape`, `mm.shape`), for parts
    (`mm[:1000].copy()`), for sums over it (`mm.mean(axis=0)`), for copies of one sample in `__getitem__`, and where the file is proven small.

    ## Why is this bad

    The map says that the data shall stay on the disk, and the next call reads it all. For 128 MiB of `float32` (measured with NumPy 2.4 and torch
    2.13.0; the peak counts pages of the file):

    | code | memory after | at its peak |
    |---|---|---|
    | `mm[:]`, `np.asarray(mm)`, `torch.from_numpy(mm)` | +0 | +0 |
    | `np.array(mm)`, `mm.copy()`, `mm.astype(np.float32)` | +128 MiB | +256 MiB |
    | `torch.tensor(mm)` | +128 MiB | +256 MiB |
    | `mm.astype(np.float64)` | +256 MiB | +384 MiB |

    `astype` copies even where the type is the same already. What `mm.copy()` and `mm.astype(...)` give still calls itself `np.memmap`, although
    it lies in memory.

    ## Example

    ```python
    import numpy as np
    import torch
    from torch.utils.data import Dataset


    class Frames(Dataset):
        def __init__(self, path):
            self.frames = np.array(np.load(path, mmap_mode="r"))

        def __len__(self):
            return len(self.frames)

        def __getitem__(self, index):
            return torch.from_numpy(self.frames[index])
    ```

    ## Use instead

    ```python
    import os

    import numpy as np
    import torch
    from torch.utils.data import Dataset


    class Frames(Dataset):
        def __init__(self, path):
            self.path = os.path.abspath(path)
            self._frames = None

        @property
        def frames(self):
            if self._frames is None:
                self._frames = np.load(self.path, mmap_mode="r")
            return self._frames

        def __getstate__(self):
            return {**self.__dict__, "_frames": None}

        def __len__(self):
            return len(self.frames)

        def __getitem__(self, index):
            return torch.from_numpy(self.frames[index].copy())
    ```

    ## Fix safety

    There is none: the copy may be wanted, because the array is written to or read in random order from a slow disk. Where it is, `np.load(path)`
    without a map says so, and has the lower peak.

    A map is opened on first use in each process, because pickling it for a spawned worker reads the whole file (OOM112).

    ## References

    - [numpy.memmap](https://numpy.org/doc/stable/reference/generated/numpy.memmap.html)
    - [numpy.load](https://numpy.org/doc/stable/reference/generated/numpy.load.html)
    """

    code = "OOM313"
    slug = "memmap-defeated"
    severity = Severity.WARNING
    fixable = None
    help = "convert each sample when it is read, not the whole map"
    weighs = Weighs(Consequence.ONCE, Resource.ARRAYS)
    measured_as = Measurement(
        dataset=(DatasetSign.ITEM_READS, DatasetSign.BUILT),
        function=FunctionSign.READS,
        command=(CommandSign.PROCESS_MEMORY, CommandSign.READS),
        traits=frozenset({Trait.AT_ROW, Trait.MORE_DATA}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the copies of whole memory maps that a dataset keeps."""
        for read, keeper in map_copies(module, project):
            code = " ".join(module.code(read.node).split())
            mapped = read.what.module.place(read.what.call, "the file is mapped here")
            here = module.place(read.node)
            yield self.finding(
                here,
                Message(f"`{code}` copies the whole memory map into memory", f"{keeper.words} keeps the copy"),
                confidence=confidence_of(1 + read.doubt),
                related=in_own_rows(here, (mapped,)),
                facts=[whole_read_fact(read), *keeper_facts(keeper)],
            )
