"""OOM303 lazy-handle-without-getstate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import PICKLE_ERROR, DatasetSign, Measurement, Trait
from oomlint.memory.fixes.handle_fixes import dropped_when_pickled
from oomlint.memory.handles.dataset_handle_findings import lazy_but_touched
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class LazyHandleWithoutGetstate(Rule):
    """A file that is opened on first use is used before the workers start.

    ## What it does

    Checks for datasets that open an HDF5 file or an LMDB environment on first use and keep it on `self`, without a `__getstate__` that drops it,
    where the main process makes that first use: it reads a sample (`dataset[0]`), asks for a length that opens the file (`len(dataset)`, which a
    shuffling sampler does too), or calls a method that opens it, from `__init__` for instance.

    It is silent where only the workers open the file, where there are no workers, where the start method is fork, and where the file is closed and
    forgotten again.

    ## Why is this bad

    Opening in `__getitem__` is meant to give each worker a file of its own. That holds as long as the dataset is sent to the workers without one.
    Once the main process has opened it, spawn (the default on macOS and Windows) and forkserver (the default on Linux from Python 3.14) fail to
    pickle it (measured with torch 2.13.0 and h5py 3.16):

    | before the workers start | fork | spawn, forkserver |
    |---|---|---|
    | nothing was read | works | works |
    | `dataset[0]` was read | works, the handle is inherited | `TypeError: h5py objects cannot be pickled` |
    | `__len__` opens the file, `shuffle=True` | works | `TypeError` in the first epoch |
    | `__len__` opens the file, no shuffling | works | `TypeError` in the second epoch, unless the workers are persistent |
    | any of these, `__getstate__` drops the file | works | works |

    Under fork the workers read through one inherited handle, which gave wrong rows with HDF5 1.10.2 and 1.10.4 (h5py 2.8, 2.10), and none with
    1.12.0 and 2.0.0.

    ## Example

    ```python
    import h5py
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Frames(Dataset):
        def __init__(self, path, length):
            self.path = path
            self.length = length
            self.file = None

        def __len__(self):
            return self.length

        def __getitem__(self, index):
            if self.file is None:
                self.file = h5py.File(self.path, "r")
            return torch.from_numpy(self.file["frames"][index])


    frames = Frames("frames.h5", length=10_000)
    height, width = frames[0].shape
    loader = DataLoader(frames, batch_size=32, num_workers=4)
    ```

    ## Use instead

    ```python
    import h5py
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Frames(Dataset):
        def __init__(self, path, length):
            self.path = path
            self.length = length
            self.file = None

        def __getstate__(self):
            return {**self.__dict__, "file": None}

        def __len__(self):
            return self.length

        def __getitem__(self, index):
            if self.file is None:
                self.file = h5py.File(self.path, "r")
            return torch.from_numpy(self.file["frames"][index])


    frames = Frames("frames.h5", length=10_000)
    height, width = frames[0].shape
    loader = DataLoader(frames, batch_size=32, num_workers=4)
    ```

    ## Fix safety

    A `__getstate__` that drops the handle is put below `__init__`: safe, because the same test that opened the file the first time opens it again in
    each worker. It is unsafe for an LMDB environment, because py-lmdb 3.0 opens no second one of the same file in a process, and so none for a copy of
    the dataset; and where the project may move or delete files, or hands over something else than a path.

    There is no fix where a flag beside the handle says whether it is open, where the class or one of its bases already says how it is pickled, where
    objects of the file are kept beside it or by a cached property, or where the attribute is not `None` at first.

    ## References

    - [pickle: handling stateful objects](https://docs.python.org/3/library/pickle.html#handling-stateful-objects)
    - [pytorch/pytorch#11929](https://github.com/pytorch/pytorch/issues/11929)
    """

    code = "OOM303"
    slug = "lazy-handle-without-getstate"
    severity = Severity.ERROR
    lower = (Severity.WARNING,)
    fixable = Safety.SAFE
    help = "drop the handle in `__getstate__`"
    weighs = Weighs(Consequence.CRASHES, Resource.HANDLE, (Multiplier.WORKERS,))
    measured_as = Measurement(dataset=(DatasetSign.PICKLING,), error=PICKLE_ERROR, traits=frozenset({Trait.AT_ROW}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the calls that open on first use what the main process uses first."""
        for told in lazy_but_touched(module, project):
            yield self.tell(told, dropped_when_pickled(told.handle))
