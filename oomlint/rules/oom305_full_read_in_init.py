"""OOM305 full-read-in-init."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Confidence, Consequence, Severity, Weighs
from oomlint.measurement import CommandSign, DatasetSign, FunctionSign, Measurement, Trait
from oomlint.memory.arrays.eager_loads import eager_h5_loads
from oomlint.memory.arrays.load_messages import related, severity_of, told, weighs_of
from oomlint.memory.facts import load_facts
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class FullReadInInit(Rule):
    """A dataset reads the whole of an HDF5 dataset while it is made.

    ## What it does

    Checks for a `Dataset` whose `__init__` reads all of an HDF5 dataset (or of a zarr array): `f["x"][:]`, `[()]`, `[...]`, `.value`,
    `np.array(f["x"])`, `np.asarray(f["x"])`, `.read_direct(...)`, and the same over all keys or files. The read may be in a method or a function
    that `__init__` calls, in another file, or in the `setup()` of a data module; or the array is read for a training loop that indexes it itself, for
    a generator of batches, into a global variable that a `Dataset` reads, or into an attribute of any object, an environment for one, of which
    another method takes one row after the other.

    It is silent where the array is proven small (under 16 MiB, or under 50,000 elements), for parts (`f["x"][:100]`), and for reads that by their
    names give one small value a sample or a summary: labels, targets, classes, ids, indices, splits, lengths, offsets, `mean`, `std`, attributes.
    It is silent, too, behind a test that asks how much memory the machine has (`psutil.virtual_memory()`): whoever wrote it has the choice.

    Where the size is not known, it is a warning with medium confidence: it may well fit. What is used beside a file that is read for each sample, boxes
    beside pictures, is a note.

    ## Why is this bad

    The array is resident before the first step, once for each split that is made of the file, and in each process of a distributed run. All ways
    to read it are the same: 67 MiB on disk are 73 MiB in memory (measured with h5py 3.16). Under fork the workers share it. Under spawn and
    forkserver each of them gets a copy.

    What is often done on the way costs more than the array itself, here for 29 MiB of `uint8`:

    | read | memory after | at its peak |
    |---|---|---|
    | `d[:]` | +29 MiB | +29 MiB |
    | `d[:] / np.float32(255)` | +114 MiB | +114 MiB |
    | `d[:].astype(np.float32)` | +114 MiB | +143 MiB |
    | `d[:] / 255.0` | +229 MiB | +229 MiB |

    A dataset that is smaller than the memory is read faster this way. The one that is not gets the run killed, on the machine that has less of
    it.

    ## Example

    ```python
    import h5py
    import torch
    from torch.utils.data import Dataset


    class Slices(Dataset):
        def __init__(self, path):
            with h5py.File(path, "r") as file:
                self.slices = file["slices"][:]

        def __len__(self):
            return len(self.slices)

        def __getitem__(self, index):
            return torch.from_numpy(self.slices[index])
    ```

    ## Use instead

    ```python
    import os

    import h5py
    import torch
    from torch.utils.data import Dataset


    class Slices(Dataset):
        def __init__(self, path):
            self.path = os.path.abspath(path)
            self.file = None
            with h5py.File(self.path, "r") as file:
                self.length = len(file["slices"])

        def __getstate__(self):
            return {**self.__dict__, "file": None}

        def __len__(self):
            return self.length

        def __getitem__(self, index):
            if self.file is None:
                self.file = h5py.File(self.path, "r")
            return torch.from_numpy(self.file["slices"][index])
    ```

    ## Fix safety

    Advice only: it moves the reading from the start into the loop, where it costs time instead of memory. Chunks that hold one sample each make
    it cheap.

    ## References

    - [h5py: chunked storage](https://docs.h5py.org/en/stable/high/dataset.html#chunked-storage)
    - [jnhwkim/ban-vqa#18](https://github.com/jnhwkim/ban-vqa/issues/18), [linjieli222/VQA_ReGAT#5](https://github.com/linjieli222/VQA_ReGAT/issues/5)
    """

    code = "OOM305"
    slug = "full-read-in-init"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = None
    help = "store the path, and read each sample from the file in `__getitem__`"
    weighs = Weighs(Consequence.ONCE)
    per_rank = True
    measured_as = Measurement(
        dataset=(DatasetSign.BUILT,),
        function=FunctionSign.MEMORY,
        command=(CommandSign.PROCESS_MEMORY,),
        traits=frozenset({Trait.AT_ROW, Trait.MORE_DATA, Trait.READS_ALL, Trait.PASSES_THROUGH}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the whole reads of HDF5 datasets whose result a dataset keeps."""
        for load in eager_h5_loads(module, project):
            each = " in a loop" if load.many else ""
            first = "" if load.keeper.saver or load.of_object else " before the first sample"
            message = told(load, f"All of {load.words} is read{each}{first}")
            yield self.finding(
                module.place(load.node), message, severity=severity_of(load), confidence=Confidence.MEDIUM, related=related(load), facts=load_facts(load),
                weighs=weighs_of(load),
            )  # fmt: skip
