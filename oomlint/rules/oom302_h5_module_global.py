"""OOM302 h5-module-global."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Multiplier, Resource, Severity, Weighs
from oomlint.measurement import DatasetSign, Measurement
from oomlint.memory.handles.module_handles import opened_on_import
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class H5ModuleGlobal(Rule):
    """A dataset reads an HDF5 file that its module opens on import.

    ## What it does

    Checks for an `h5py.File`, or an object of one, in a variable of a module that a method of a dataset or a function of a loader uses.

    A script that opens a file, reads it and ends says nothing, and neither do module variables that no dataset uses.

    ## Why is this bad

    What stands at the top of a module runs on every import, in every process:

    - Under spawn (the default on macOS and Windows) and forkserver (the default on Linux from Python 3.14) each worker imports the module, and
      opens the file once more: two workers, two more openings (measured with torch 2.13.0 and h5py 3.16), in every epoch without
      `persistent_workers`. A variable that is set under `if __name__ == "__main__":` does not exist there, and reading a sample raises `NameError`.
    - Under fork all workers share the handle that the main process opened. With HDF5 1.10.2 and 1.10.4 (h5py 2.8, 2.10) that gave wrong rows; with
      1.12.0 and 2.0.0 it gave none. The documentation of h5py advises against it.
    - Every other program that imports the module, to test it for instance, needs the file, and keeps it open until it ends: about 0.6 MiB, and up to
      8 MiB of chunk cache for each `h5py.Dataset` object that is kept (HDF5 2.0). Nobody can open it for writing meanwhile.

    ## Example

    ```python
    import h5py
    import torch
    from torch.utils.data import DataLoader, Dataset

    features = h5py.File("features.h5", "r")


    class Features(Dataset):
        def __len__(self):
            return len(features["train"])

        def __getitem__(self, index):
            return torch.from_numpy(features["train"][index])


    loader = DataLoader(Features(), batch_size=64, num_workers=4)
    ```

    ## Use instead

    ```python
    import h5py
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Features(Dataset):
        def __init__(self, path):
            self.path = path
            self.file = None
            with h5py.File(path, "r") as file:
                self.length = len(file["train"])

        def __getstate__(self):
            return {**self.__dict__, "file": None}

        def __len__(self):
            return self.length

        def __getitem__(self, index):
            if self.file is None:
                self.file = h5py.File(self.path, "r")
            return torch.from_numpy(self.file["train"][index])


    loader = DataLoader(Features("features.h5"), batch_size=64, num_workers=4)
    ```

    ## Fix safety

    Advice only: the path has to reach the dataset, which changes its constructor.

    ## References

    - [multiprocessing: the spawn and forkserver start methods](https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods)
    - [h5py: parallel HDF5](https://docs.h5py.org/en/latest/mpi.html)
    """

    code = "OOM302"
    slug = "h5-module-global"
    severity = Severity.WARNING
    fixable = None
    help = "open the file on first use in each worker"
    weighs = Weighs(Consequence.MULTIPLIED, Resource.HANDLE, (Multiplier.WORKERS,))
    measured_as = Measurement(dataset=(DatasetSign.OPENED_ON_IMPORT,))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the calls that open a file on import which a dataset reads."""
        yield from map(self.tell, opened_on_import(module, project))
