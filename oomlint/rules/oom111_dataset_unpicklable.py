"""OOM111 dataset-unpicklable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Fix, Resource, Safety, Severity, Weighs
from oomlint.measurement import PICKLE_ERROR, CallCheck, DatasetSign, Measurement, Trait
from oomlint.memory.datasets.pickling import unsendable
from oomlint.memory.fixes.lazy_property import lazily_opened
from oomlint.memory.fixes.rewrites import lambda_to_function
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.memory.datasets.pickling import Unsendable
    from oomlint.model.project import Module, Project


class DatasetUnpicklable(Rule):
    """What the loader holds cannot be sent to a worker process.

    ## What it does

    Checks for a `DataLoader` with workers where

    - the dataset keeps on `self` what cannot be pickled: an `h5py.File` or an object of it, an LMDB environment, an open file, the result of
      `np.load` of an `.npz`, a database connection, a lock, a generator, a lambda, a local function, a `cv2.VideoCapture`, and its class has
      no `__getstate__` or `__reduce__`;
    - or `collate_fn` or `worker_init_fn` is a lambda or a nested function;
    - or the dataset's class is defined inside a function.

    It is silent where the start method is fork, by the code or by the setting, where there are no workers, and where all that cannot be sent is a
    handle of which OOM301, OOM303 or OOM311 speaks.

    ## Why is this bad

    Under spawn (the default on macOS and Windows) and forkserver (the default on Linux from Python 3.14), the dataset and the functions are
    pickled when iteration starts, and `iter(loader)` raises `TypeError`, `PicklingError` or `AttributeError` (measured with torch 2.13.0 on
    Python 3.11). Under fork the same code works.

    It is an error where the start method is known to be spawn or forkserver, and a warning else, because the code then runs on one machine
    and not on the next. It is a note where the project starts itself on Linux, by shell scripts or in containers, and pins a Python before 3.14 or a
    torch before 2.9, which forks there.

    Not all handles are of this kind: a `PIL.Image` and an array of a zarr directory store can be pickled. And under fork, one HDF5 file read
    by several workers gave wrong data with HDF5 1.10.2 and 1.10.4 (h5py 2.8 and 2.10) only, none with 1.12.0 and 2.0.0 (h5py 3.1 and 3.16),
    although it is often called corrupt in general.

    ## Example

    ```python
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


    loader = DataLoader(Clips("clips"), batch_size=8, num_workers=2, collate_fn=lambda batch: tuple(zip(*batch)))
    ```

    ## Use instead

    ```python
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


    def _collate(batch):
        return tuple(zip(*batch))


    loader = DataLoader(Clips("clips"), batch_size=8, num_workers=2, collate_fn=_collate)
    ```

    ## Fix safety

    A lambda `collate_fn` that uses no local variable becomes a function at the top of the module, above the statement that used it: safe.

    An `h5py.File`, an LMDB environment or an `.npz` archive that is only read becomes a path, opened on first use in each process, and
    `__getstate__` drops the handle: safe for an `h5py.File` and an archive. The path is kept as `os.path.abspath(path)`, so that it still holds
    after a change of directory. It is unsafe for an LMDB environment, because py-lmdb 3.0 opens no second one of the same file in a process, where
    the project may move or delete files (`tempfile`, `os.remove`, `shutil.move`), where a caller may hand over a buffer or an open file, and where
    a function that builds the dataset is called inside a `try`: the error would come later.
    Nothing is done where the file is written, closed or set again elsewhere, or where anything stays that cannot be pickled.

    Other values get no fix.

    ## References

    - [multiprocessing: contexts and start methods](https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods)
    - [pytorch/pytorch#138957](https://github.com/pytorch/pytorch/issues/138957)
    """

    code = "OOM111"
    slug = "dataset-unpicklable"
    severity = Severity.ERROR
    lower = (Severity.WARNING, Severity.NOTE)
    fixable = Safety.SAFE
    weighs = Weighs(Consequence.CRASHES, Resource.NOTHING)
    measured_as = Measurement(dataset=(DatasetSign.PICKLING,), call=CallCheck.PICKLED, error=PICKLE_ERROR, traits=frozenset({Trait.IN_CLASS, Trait.OF_LOADER}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders whose dataset or functions cannot be sent to a worker."""
        for case in unsendable(module, project):
            fixes = [fix for one in (case, *case.others) if (fix := _fix(one, module)) is not None]
            fix = None
            if len(fixes) == 1 + len(case.others):  # one cause that stays is enough for the loader to fail
                edits = tuple(dict.fromkeys(edit for one in fixes for edit in one.edits))
                safety = Safety.SAFE if all(one.safety is Safety.SAFE for one in fixes) else Safety.UNSAFE
                fix = Fix(safety, "; ".join(dict.fromkeys(one.message for one in fixes)), edits)
            yield self.tell(case, fix)


def _fix(case: Unsendable, module: Module) -> Fix | None:
    """What lets workers have it: a function of the module, or a handle that each process opens."""
    if case.function is not None and module.walk.parents.get(case.function) is not None:
        return lambda_to_function(module, case.function, "_collate")
    return lazily_opened(case.holding, module) if case.holding is not None else None
