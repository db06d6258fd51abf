"""OOM110 python-objects-copied-by-workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import CallCheck, CommandSign, DatasetSign, Measurement, Trait
from oomlint.memory.datasets.worker_copies import cases
from oomlint.memory.fixes.worker_copy_fixes import as_array
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class PythonObjectsCopiedByWorkers(Rule):
    """Each worker ends up with its own copy of a list or dict of Python objects.

    ## What it does

    Checks for a map-style `Dataset` that builds a container of Python objects in `__init__` (a list, tuple, dict or set of strings, floats,
    large integers, dicts, tuples, lists or objects of a plain class; a NumPy object array; an object column of a data frame; the result of
    `json.load`, `eval`, `readlines`, `glob`, `.tolist()`, `to_dict("records")`), reads it in `__getitem__`, and reaches a `DataLoader`
    that has workers or whose number of workers is not known.

    It is silent where the container is proven small (under 50,000 elements or 16 MiB; both are settings). An unknown length is reported with
    medium confidence.

    A list of file names of unknown length is a note, not shown by default: up to some 100,000 names it is small beside what it leads to. So
    is one of strings that `__getitem__` makes paths or keys of, one of numbers, or of tuples of numbers that say where in the data a sample is, and
    one whose attribute says that it holds file names (`paths`, `files`). Attributes that by their name hold one small value a sample or a summary
    (`labels`, `ids`, `vocab`) are silent, unless a sample is seen to take a record out of them: the one of its own index, or one with a sequence
    in it. So is what is read only under a flag that is off for as long as the dataset lives (`if self.is_test:`).

    Records of unknown number that describe samples which are read from files are a note below four workers (the setting `workers-over-memory`): one
    or two copies of them are little beside the samples.

    ## Why is this bad

    Under fork the container is shared at first. Reading an element changes its reference count, which writes to its page, which copies the
    page: memory grows through the first epochs as if it leaked, up to one copy in each worker. Without persistent workers it starts again
    each epoch. Under spawn and forkserver each worker gets a full copy at once. So the bill is up to (1 + workers) containers, times the
    ranks.

    Measured under fork, private memory gained by one of two workers over three shuffled epochs (CPython 3.11.7, torch 2.13.0):

    | container | MiB | gained |
    |---|---|---|
    | list or tuple of `str`, list of `bytes`, object array | 56 | 52 (93 %) |
    | list of `float` or of large `int` | 31 | 23 (75 %) |
    | dict of `int` to `str` | 72 | 52 (72 %) |
    | list of dicts | 127 | 75 (60 %) |
    | one NumPy array of numbers or strings, one tensor, one `bytes` | 48 to 52 | 0.1 |

    What does not help: a tuple instead of a list, `gc.freeze()` before the fork, the immortal objects of Python 3.12 (only `None`, small
    integers and interned strings gain). What is no problem under fork: a list of large arrays, or of records with such arrays, whose payload
    stays shared; a list of small integers.

    ## Example

    ```python
    from pathlib import Path

    import numpy as np
    from torch.utils.data import DataLoader, Dataset


    class Prices(Dataset):
        def __init__(self, path):
            self.prices = [float(line) for line in Path(path).read_text().splitlines()]

        def __len__(self):
            return len(self.prices)

        def __getitem__(self, index):
            return np.log(self.prices[index])


    loader = DataLoader(Prices("prices.txt"), num_workers=2)
    ```

    ## Use instead

    ```python
    from pathlib import Path

    import numpy as np
    from torch.utils.data import DataLoader, Dataset


    class Prices(Dataset):
        def __init__(self, path):
            self.prices = np.asarray([float(line) for line in Path(path).read_text().splitlines()])

        def __len__(self):
            return len(self.prices)

        def __getitem__(self, index):
            return np.log(self.prices[index].item())


    loader = DataLoader(Prices("prices.txt"), num_workers=2)
    ```

    ## Fix safety

    Unsafe. A list proven to hold numbers becomes `np.asarray(...)`. What reads it gets `int` and `float` as before, by `.item()` and
    `.tolist()`; but integers among floats become floats. It is made where all reads are known, and are an element or a slice: a list that is
    appended to, searched or handed on gets advice.

    Strings get advice only. `np.array(lines)` is shared as well, but takes 4 bytes for each character of its *longest* string in every row:
    of texts it may be larger than the list, so it pays only where lengths are alike, as those of ids and paths are.

    Tuples or lists of numbers for each sample belong in one array by hand, with an array of offsets where they differ in length. Other
    containers get advice only, too. Records of any kind can be packed into one buffer, which is shared under all three start methods. With
    200,000 annotations, the private memory of a worker fell from 40 to 10 MiB under fork and from 261 to 139 MiB under spawn, with the same
    samples; 10 and 139 MiB are what a bare worker takes.

    ```python
    class Packed:
        def __init__(self, items):
            blobs = [pickle.dumps(item, protocol=pickle.HIGHEST_PROTOCOL) for item in items]
            self.ends = torch.tensor([0] + [len(blob) for blob in blobs]).cumsum(0)
            self.data = torch.frombuffer(bytearray(b"".join(blobs)), dtype=torch.uint8)

        def __len__(self):
            return len(self.ends) - 1

        def __getitem__(self, index):
            index = range(len(self))[index]
            return pickle.loads(memoryview(self.data[self.ends[index] : self.ends[index + 1]].numpy()))
    ```

    ## References

    - [pytorch/pytorch#13246](https://github.com/pytorch/pytorch/issues/13246)
    - [Demystify RAM Usage in Multi-Process Data Loaders](https://ppwwyyxx.com/blog/2022/Demystify-RAM-Usage-in-Multiprocess-DataLoader/)
    """

    code = "OOM110"
    slug = "python-objects-copied-by-workers"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.UNSAFE
    help = "store paths or ids in one NumPy array, which workers share"
    weighs = Weighs(Consequence.MULTIPLIED, Resource.RECORDS, (Multiplier.WORKERS,))
    per_rank = True
    measured_as = Measurement(
        dataset=(DatasetSign.COPIES,),
        call=CallCheck.HELD,
        command=(CommandSign.WORKER_MEMORY,),
        scale=32,
        traits=frozenset({Trait.OWN_SIZE, Trait.MORE_DATA, Trait.OF_LOADER}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders with workers whose dataset indexes a container of Python objects."""
        for case in cases(module, project, self.code):
            yield self.tell(case, as_array(case))
