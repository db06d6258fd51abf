"""OOM311 lmdb-env-in-init."""

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


class LmdbEnvInInit(Rule):
    """A dataset opens an LMDB environment in `__init__` and keeps it for its workers.

    ## What it does

    Checks for datasets that keep on `self`, from `__init__` or from a method or helper that it calls, an open LMDB environment, or a transaction or
    cursor of one: `self.env = lmdb.open(path)`, `self.txn = env.begin()`.

    It is silent where the environment is read and closed again, where the class drops it when it is pickled (`__getstate__`, `__reduce__`), and where
    its loaders are known to have no workers.

    ## Why is this bad

    LMDB asks to use an environment in the process that opened it, "without fork()ing". Two workers read a dataset that opened its environment in
    `__init__` (measured with torch 2.13.0):

    | environment | workers | result |
    |---|---|---|
    | any | spawn, forkserver | `TypeError: cannot pickle 'Environment' object` |
    | with locks, as is the default | fork, py-lmdb 1.7.5 and 3.0 | `ReadersFullError`, with 3.0 after 126 reads: they use up the table of readers |
    | with locks, as is the default | fork, py-lmdb 1.4.1 and 1.6.2 | works |
    | `lock=False` | fork, all of these | works |

    Spawn is the default on macOS and Windows, forkserver on Linux from Python 3.14. It is an error where the start method is known to be one of these,
    and a warning else.

    To open an environment before and after the fork is no way out by itself: py-lmdb 3.0 refuses a second one, `the environment is already open in
    this process`, as long as the inherited one is held.

    ## Example

    ```python
    import lmdb
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Images(Dataset):
        def __init__(self, path):
            self.env = lmdb.open(path, readonly=True, lock=False, readahead=False)
            with self.env.begin() as txn:
                self.length = txn.stat()["entries"]

        def __len__(self):
            return self.length

        def __getitem__(self, index):
            with self.env.begin() as txn:
                encoded = txn.get(f"{index:08d}".encode())
            return torch.frombuffer(bytearray(encoded), dtype=torch.uint8)


    loader = DataLoader(Images("images.lmdb"), batch_size=1, num_workers=4)
    ```

    ## Use instead

    ```python
    import os
    import lmdb
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Images(Dataset):
        def __init__(self, path):
            self._env_path = os.path.abspath(path)
            self._env = None
            self._env_pid = None
            with self.env.begin() as txn:
                self.length = txn.stat()["entries"]

        @property
        def env(self):
            if self._env is None or self._env_pid != os.getpid():
                self._env = None  # let go of what a fork has left
                self._env = lmdb.open(self._env_path, readonly=True, lock=False, readahead=False)
                self._env_pid = os.getpid()
            return self._env

        def __getstate__(self):
            return {**self.__dict__, "_env": None}

        def __len__(self):
            return self.length

        def __getitem__(self, index):
            with self.env.begin() as txn:
                encoded = txn.get(f"{index:08d}".encode())
            return torch.frombuffer(bytearray(encoded), dtype=torch.uint8)


    loader = DataLoader(Images("images.lmdb"), batch_size=1, num_workers=4)
    ```

    ## Fix safety

    The path is kept instead of the environment, a property opens it on first use in each process, and `__getstate__` drops it. The path is kept as
    `os.path.abspath(path)`, so that it still holds after a change of directory.

    That is unsafe, and offered only for an environment that is opened with `readonly=True`: py-lmdb 3.0 refuses a second environment of the same file in
    a process, `already open in this process`. It does so for a copy of the dataset (`copy.copy`), for two threads that read for the first time at
    once, and for a forked worker while anything else still holds the inherited environment (`env = dataset.env`) or a transaction of it. The property
    releases what the dataset itself has inherited before it opens its own.

    A transaction or cursor that is kept beside the environment, `self.txn = self.env.begin()`, becomes a property too.

    There is no fix where the environment is written, closed or set again elsewhere, where the class or one that it derives from says how it is pickled,
    or where it keeps something else that cannot be pickled.

    ## References

    - [LMDB: restrictions and caveats](http://www.lmdb.tech/doc/)
    - [jnwatson/py-lmdb#159](https://github.com/jnwatson/py-lmdb/issues/159)
    """

    code = "OOM311"
    slug = "lmdb-env-in-init"
    severity = Severity.ERROR
    lower = (Severity.WARNING,)
    fixable = Safety.UNSAFE
    preview = True
    help = "store the path, and open the environment on first use in each process"
    weighs = Weighs(Consequence.CRASHES, Resource.HANDLE, (Multiplier.WORKERS,))
    measured_as = Measurement(dataset=(DatasetSign.PICKLING,), error=PICKLE_ERROR, traits=frozenset({Trait.AT_ROW}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the calls that open LMDB environments which a dataset keeps from the start."""
        for told in opened_in_init(module, project, Opens.LMDB):
            yield self.tell(told, opened_lazily(told.handle))
