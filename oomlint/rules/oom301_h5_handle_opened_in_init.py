"""OOM301 h5-handle-opened-in-init."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import PICKLE_ERROR, DatasetSign, Measurement, Trait
from oomlint.memory.fixes.handle_fixes import opened_lazily
from oomlint.memory.handles.dataset_handle_findings import opened_in_init
from oomlint.memory.handles.openings import Opens
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class H5HandleOpenedInInit(Rule):
    """A dataset opens an HDF5 file in `__init__` and keeps it for its workers.

    ## What it does

    Checks for datasets that keep on `self`, from `__init__` or from a method or helper that it calls, an open `h5py.File`, or a group or
    `h5py.Dataset` object of one: `self.file = h5py.File(path)`, `self.frames = file["frames"]` without `[...]`.

    It is silent where the file is read and closed again, where the class drops the handle when it is pickled (`__getstate__`, `__reduce__`), where
    its loaders are known to have no workers or to start them by fork, with `driver="core"` (OOM309 speaks of it), and with `h5pickle`.

    ## Why is this bad

    Workers are processes, and an open HDF5 file cannot be sent to one. Under spawn (the default on macOS and Windows) and forkserver (the default
    on Linux from Python 3.14), `iter(loader)` raises `TypeError: h5py objects cannot be pickled` (measured with torch 2.13.0 and h5py 3.16). It is an
    error where the start method is known to be one of these, and a warning else.

    Under fork the workers inherit the handle of the main process:

    | 4 processes read through one inherited handle | wrong rows |
    |---|---|
    | HDF5 1.10.2 and 1.10.4 (h5py 2.8, 2.10) | yes, and `inflate() failed` |
    | HDF5 1.12.0 and 2.0.0 (h5py 3.1, 3.16) | none in 64,000 reads |
    | h5py 3.16 with `driver="stdio"` or a Python file object | in 36 of 80 epochs, or `OSError` |

    So with the default driver it is the old versions that read wrong data; the documentation of h5py still advises against it. A kept
    `h5py.Dataset` object of a chunked dataset also keeps its chunk cache, up to 8 MiB with HDF5 2.0 (1 MiB before), in every process that reads.

    ## Example

    ```python
    import h5py
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Frames(Dataset):
        def __init__(self, path):
            self.file = h5py.File(path, "r")
            self.length = len(self.file["frames"])

        def __len__(self):
            return self.length

        def __getitem__(self, index):
            return torch.from_numpy(self.file["frames"][index])


    loader = DataLoader(Frames("frames.h5"), batch_size=32, num_workers=4)
    ```

    ## Use instead

    ```python
    import os
    import h5py
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Frames(Dataset):
        def __init__(self, path):
            self._file_path = os.path.abspath(path)
            self._file = None
            self._file_pid = None
            self.length = len(self.file["frames"])

        @property
        def file(self):
            if self._file is None or self._file_pid != os.getpid():
                self._file = None  # let go of what a fork has left
                self._file = h5py.File(self._file_path, "r")
                self._file_pid = os.getpid()
            return self._file

        def __getstate__(self):
            return {**self.__dict__, "_file": None}

        def __len__(self):
            return self.length

        def __getitem__(self, index):
            return torch.from_numpy(self.file["frames"][index])


    loader = DataLoader(Frames("frames.h5"), batch_size=32, num_workers=4)
    ```

    ## Fix safety

    The path is kept instead of the file, a property opens it on first use in each process, and `__getstate__` drops it: safe for a file that is only
    read. All uses of the attribute stay as they are. The path is kept as `os.path.abspath(path)`, so that it still holds after a change of directory.
    The property releases an inherited file before it opens its own: as long as that is held, HDF5 goes on with the descriptor of the main process.
    Groups and `h5py.Dataset` objects that are kept beside the file, `self.frames = self.file["frames"]`, become properties too.

    It is unsafe where the file may not be there later, or may be another one: where a file of the project that builds the dataset, or the class, speaks of
    temporary files, or of deleting, renaming or moving files. It is also unsafe where a caller may hand over a buffer or an open file, and where a function
    that builds the dataset is called inside a `try` or `suppress`, because the error would come with the first sample; and where `filename` is asked
    for, because it is the whole path then.

    There is no fix where the file is written, closed or set again elsewhere, where it may be deleted after `__init__`, where the class or one that it
    derives from says how it is pickled, or where it keeps something else that cannot be pickled.

    ## References

    - [h5py: frequently asked questions](https://docs.h5py.org/en/stable/faq.html)
    - [h5py: parallel HDF5](https://docs.h5py.org/en/latest/mpi.html)
    - [pytorch/pytorch#11929](https://github.com/pytorch/pytorch/issues/11929)
    """

    code = "OOM301"
    slug = "h5-handle-opened-in-init"
    severity = Severity.ERROR
    lower = (Severity.WARNING,)
    fixable = Safety.SAFE
    help = "store the path, and open the file on first use in each process"
    weighs = Weighs(Consequence.CRASHES, Resource.HANDLE, (Multiplier.WORKERS,))
    measured_as = Measurement(dataset=(DatasetSign.PICKLING,), error=PICKLE_ERROR, traits=frozenset({Trait.AT_ROW}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the calls that open HDF5 files which a dataset keeps from the start."""
        for told in opened_in_init(module, project, Opens.H5):
            yield self.tell(told, opened_lazily(told.handle))
