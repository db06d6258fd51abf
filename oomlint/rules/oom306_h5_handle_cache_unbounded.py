"""OOM306 h5-handle-cache-unbounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import ByteSize, Consequence, Fix, Message, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import HANDLES, DatasetSign, Measurement, Trait
from oomlint.memory.facts import container_facts
from oomlint.memory.handles.open_file_collections import kept_files
from oomlint.memory.handles.openings import Opens
from oomlint.memory.loaders.loader_calls import confidence_of
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.memory.handles.open_file_collections import OpenFileCollection
    from oomlint.model.project import Module, Project

_KINDS = frozenset({Opens.H5})


class H5HandleCacheUnbounded(Rule):
    """A dataset keeps every HDF5 file open that it has ever read.

    ## What it does

    Checks for open `h5py.File` handles, or groups and `h5py.Dataset` objects of them, in a dictionary or list that only grows: filled by
    `__getitem__` or a method or function that it calls, one for each path, or built in `__init__` over many files, also by a method that is called for each.
    Readers and datasets of one file count as well, where each keeps its file open and one is made for each file of a folder or each row of a table:
    `ConcatDataset([Recording(path) for path in paths])`.

    It is silent where something bounds the collection (a size that is tested, `popitem`, `pop` with `close`, a cache with a `maxsize`), where the
    files are closed again in the same function, and where it holds a few files that the code names one by one.

    ## Why is this bad

    Every file that is kept open costs a file descriptor and memory, in each worker that reads it. 40 files, measured with h5py 3.16 (HDF5 2.0.0):

    | kept for each file | private memory a file |
    |---|---|
    | the `h5py.File`, `files[path]["x"][i]` looked up each time | 0.58 MiB |
    | the `h5py.Dataset` object, chunked, read at random | 8.2 MiB: its chunk cache fills up (8 MiB; 1 MiB before HDF5 2.0) |
    | the same, file opened with `rdcc_nbytes=2**20` | 1.5 MiB |
    | the same, file opened with `rdcc_nbytes=0` | 0.58 MiB |

    It grows with the dataset and with the workers: 100 files whose `h5py.Dataset` objects are kept, in 8 workers, come to 6.4 GiB. A shard a scene or
    a patient soon passes the limit of descriptors too, often 1024: `OSError: ... errno = 24, error message = 'Too many open files'`.

    The number of different paths counts, not the number of handles: 500 handles of one path hold one descriptor. To open, read and close a file
    takes about half a millisecond.

    ## Example

    ```python
    import h5py
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Patches(Dataset):
        def __init__(self, index):
            self.index = index
            self.files = {}

        def __len__(self):
            return len(self.index)

        def __getitem__(self, i):
            path, row = self.index[i]
            if path not in self.files:
                self.files[path] = h5py.File(path, "r")
            return torch.from_numpy(self.files[path]["patches"][row])


    def make_loader(index):
        return DataLoader(Patches(index), batch_size=64, num_workers=8)
    ```

    ## Use instead

    ```python
    import h5py
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Patches(Dataset):
        def __init__(self, index, keep=16):
            self.index = index
            self.keep = keep
            self.files = {}

        def __len__(self):
            return len(self.index)

        def __getitem__(self, i):
            path, row = self.index[i]
            if path not in self.files:
                if len(self.files) >= self.keep:
                    self.files.pop(next(iter(self.files))).close()
                self.files[path] = h5py.File(path, "r")
            return torch.from_numpy(self.files[path]["patches"][row])


    def make_loader(index):
        return DataLoader(Patches(index), batch_size=64, num_workers=8)
    ```

    ## Fix safety

    Advice only: how many files to keep depends on the order in which samples are read. Where all of them have to stay open, keep the files and look
    the dataset up at each read, or open them with a small `rdcc_nbytes`.

    ## References

    - [h5py: chunk cache](https://docs.h5py.org/en/stable/high/file.html#chunk-cache)
    - [h5py/h5py#2023](https://github.com/h5py/h5py/issues/2023)
    """

    code = "OOM306"
    slug = "h5-handle-cache-unbounded"
    severity = Severity.WARNING
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.MULTIPLIED, Resource.HANDLE, (Multiplier.FILES, Multiplier.WORKERS))
    measured_as = Measurement(
        dataset=(DatasetSign.DESCRIPTORS, DatasetSign.KEPT),
        growth=HANDLES,
        error="Too many open files|unable to open file",
        traits=frozenset({Trait.AT_ROW, Trait.IN_WORKERS}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the calls that open an HDF5 file for a container which keeps one for each path."""
        if "File" not in module.source.text:
            return
        for kept in kept_files(module, project, _KINDS):
            place = module.place(kept.opening.call)
            fix = Fix(Safety.DISPLAY, _advice(kept))
            yield self.finding(
                place, _message(kept), confidence=confidence_of(kept.doubt), related=kept.places(), fix=fix, facts=container_facts(kept), weighs=_weighs(kept)
            )


def _weighs(kept: OpenFileCollection) -> Weighs:
    return Weighs(Consequence.MULTIPLIED, Resource.HANDLE, (Multiplier.FILES, Multiplier.WORKERS), ByteSize(least=8_600_000 if kept.objects else 600_000))


def _message(kept: OpenFileCollection) -> Message:
    files = f"{kept.count} HDF5 files" if kept.count is not None else "every HDF5 file that it reads" if kept.per_item else "all its HDF5 files"
    much = "8.2 MiB of chunk cache" if kept.objects else "0.6 MiB (8.2 MiB with its datasets)"
    return Message(f"{kept.words} keeps open {files}", f"each takes a file descriptor and {much}, in every process")


def _advice(kept: OpenFileCollection) -> str:
    if kept.objects:
        return "keep only the files and look up datasets at each read, or open them with a small `rdcc_nbytes`"
    return "limit the number of open files: close the oldest one before another is opened"
