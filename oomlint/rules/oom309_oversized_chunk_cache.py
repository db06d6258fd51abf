"""OOM309 oversized-chunk-cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Multiplier, Resource, Severity, Weighs
from oomlint.measurement import CommandSign, DatasetSign, Measurement, Trait
from oomlint.memory.handles.chunk_cache import held_in_memory
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class OversizedChunkCache(Rule):
    """A whole HDF5 file is in memory, or a large cache of it in every worker.

    ## What it does

    Checks for `h5py.File(...)` with `driver="core"` that a dataset keeps, and with `rdcc_nbytes` of 64 MiB or more in one whose loaders have workers or
    may have them. Files that one function opens whole for one class are one finding.

    It is silent where the file is written, and with `driver="core", backing_store=False` for a file that is only made in memory. About `rdcc_nbytes` it is
    silent where there are no workers, and where only the file is kept: the cache of an object that is looked up for each sample goes with it.

    ## Why is this bad

    `rdcc_nbytes` is the size of the chunk cache of *each* `h5py.Dataset` object that is open, not of the file, and each worker has its own. The core driver
    reads the whole file into memory when it is opened. A file of 286 MiB with 300 chunks, 400 rows read at random from one `h5py.Dataset` object
    (private memory, measured with h5py 3.16, HDF5 2.0.0):

    | opened with | after opening | after reading |
    |---|---|---|
    | the defaults (8 MiB) | +1 MiB | +8 MiB |
    | `rdcc_nbytes=64 * 2**20` | +1 MiB | +66 MiB |
    | `rdcc_nbytes=256 * 2**20` | +1 MiB | +214 MiB |
    | `rdcc_nbytes=256 * 2**20`, `file["x"]` looked up for each row | +1 MiB | +2 MiB: the cache goes with the object |
    | `driver="core"` | +287 MiB | +295 MiB |

    All of it is there once for each process that opens the file, the main process among them. A core file that is opened before a fork is shared, but it
    cannot be sent to workers under spawn and forkserver, where every worker has to open and read it again.

    A chunk cache helps where neighbouring samples come from the same chunk. Under a shuffling sampler they do not, and the cache holds chunks that no one
    asks for again.

    ## Example

    ```python
    import h5py
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Volumes(Dataset):
        def __init__(self, path):
            self.path = path
            with h5py.File(path, "r") as file:
                self.length = len(file["volumes"])
            self.volumes = None

        def __getstate__(self):
            return {**self.__dict__, "volumes": None}

        def __len__(self):
            return self.length

        def __getitem__(self, index):
            if self.volumes is None:
                self.volumes = h5py.File(self.path, "r", rdcc_nbytes=1024**3)["volumes"]
            return torch.from_numpy(self.volumes[index])


    loader = DataLoader(Volumes("volumes.h5"), batch_size=2, shuffle=True, num_workers=8)
    ```

    ## Use instead

    ```python
    import h5py
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Volumes(Dataset):
        def __init__(self, path):
            self.path = path
            with h5py.File(path, "r") as file:
                self.length = len(file["volumes"])
            self.volumes = None

        def __getstate__(self):
            return {**self.__dict__, "volumes": None}

        def __len__(self):
            return self.length

        def __getitem__(self, index):
            if self.volumes is None:
                self.volumes = h5py.File(self.path, "r", rdcc_nbytes=8 * 1024**2)["volumes"]
            return torch.from_numpy(self.volumes[index])


    loader = DataLoader(Volumes("volumes.h5"), batch_size=2, shuffle=True, num_workers=8)
    ```

    ## Fix safety

    Advice only: how large a cache helps depends on the chunks of the file and on the order in which samples are read. Room for one or two chunks is
    enough for random reads.

    ## References

    - [h5py: chunk cache](https://docs.h5py.org/en/stable/high/file.html#chunk-cache)
    - [h5py: file drivers](https://docs.h5py.org/en/stable/high/file.html#file-drivers)
    """

    code = "OOM309"
    slug = "oversized-chunk-cache"
    severity = Severity.WARNING
    fixable = None
    weighs = Weighs(Consequence.MULTIPLIED, Resource.HANDLE, (Multiplier.WORKERS,))
    measured_as = Measurement(dataset=(DatasetSign.CHUNK_CACHE,), command=(CommandSign.PROCESS_MEMORY,), traits=frozenset({Trait.OWN_SIZE, Trait.AT_ROW}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the calls that open a file whole into memory, or with a large cache for workers."""
        yield from map(self.tell, held_in_memory(module, project))
