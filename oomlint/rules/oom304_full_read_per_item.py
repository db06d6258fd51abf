"""OOM304 full-read-per-item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.finding import Confidence, Consequence, Message, Multiplier, Safety, Severity, Weighs, in_own_rows
from oomlint.measurement import CommandSign, DatasetSign, FunctionSign, Measurement, Trait
from oomlint.memory.arrays.files_per_sample import ItemFiles
from oomlint.memory.arrays.reads_per_sample import ItemReads
from oomlint.memory.facts import file_fact, whole_read_fact
from oomlint.memory.fixes.partial_read import partial_read
from oomlint.memory.loaders.loader_calls import confidence_of
from oomlint.model.names import short
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding, Place
    from oomlint.memory.arrays.reads_per_sample import ItemRead
    from oomlint.model.project import Module, Project

_ONCE: Final = "read the file once, or memory-map it"


class FullReadPerItem(Rule):
    """The whole of a dataset on disk is read to get at one sample.

    ## What it does

    Checks `__getitem__`, the functions that it calls, and loops for an HDF5 dataset (or a zarr array) that is read as a whole and then indexed or
    only asked for its shape: `d[:][i]`, `d[()][i]`, `d[...][i]`, `np.array(d)[i]`, `np.asarray(d)[i]`, `d.value[i]`, `list(d)[i]`, `d[:].shape`,
    `len(d[()])`.

    Other files count in `__getitem__` and in the functions that it calls, where the same file is read for each sample (`np.load`, `pd.read_csv`,
    `pickle.load`, `json.load`, `torch.load`) and the sample's index picks a part of it.

    It is silent where all that is read is used: where one HDF5 dataset or one file is one sample, where the array is read once and kept, and
    where it is proven small.

    ## Why is this bad

    `d[:]` reads every row into a new array, for each sample again, in every worker. `d[i]` reads the chunks that row `i` lies in. For one row of a
    dataset of 67 MiB (measured with h5py 3.16):

    | read | memory, at its peak | time |
    |---|---|---|
    | `d[:][i]`, `np.array(d)[i]` | +73 MiB | 35 ms |
    | `d[i]` | +6.2 MiB | 3 ms |

    An epoch reads the dataset as many times as it has samples. And what `d[:][i]` gives is a view, which keeps the whole array alive as long as
    the row is kept.

    `d.shape` and `len(d)` read nothing.

    ## Example

    ```python
    import h5py
    import torch
    from torch.utils.data import Dataset


    class Slices(Dataset):
        def __init__(self, path):
            self.path = path
            with h5py.File(path, "r") as file:
                self.length = len(file["slices"])

        def __len__(self):
            return self.length

        def __getitem__(self, index):
            with h5py.File(self.path, "r") as file:
                return torch.from_numpy(file["slices"][:][int(index)])
    ```

    ## Use instead

    ```python
    import h5py
    import torch
    from torch.utils.data import Dataset


    class Slices(Dataset):
        def __init__(self, path):
            self.path = path
            with h5py.File(path, "r") as file:
                self.length = len(file["slices"])

        def __len__(self):
            return self.length

        def __getitem__(self, index):
            with h5py.File(self.path, "r") as file:
                return torch.from_numpy(file["slices"][int(index)])
    ```

    ## Fix safety

    `d[:][i]` becomes `d[i]`. That is safe where `d` is an HDF5 dataset and nothing else, `i` is a slice or proven to be one integer (`int(index)`,
    a literal, the counter of a loop over `range`), and the index stands right behind the read.

    Else it is unsafe:

    - h5py takes a list of indices only in increasing order and without repetition, and no negative step, and raises `TypeError` or `ValueError`
      where NumPy would answer. The index of `__getitem__` itself may be such a list, whatever the loader asks for.
    - `d[()]` reads a dataset without dimensions too, and its value may be a string, which has an index.
    - Where the elements are arrays, their axes are in the shape of `d[:]`, and `d[:][i, j]` reaches into them; `d.shape` and `d[i, j]` do not.
    - Under a name (`x = d[:]`, then `x[i]`) the file may be closed before the index, and all parts of `x` share its memory.

    There is no fix where the object may be another one (a list, an array), and for reads that also convert (`np.float32(d)`).

    ## References

    - [h5py: reading and writing data](https://docs.h5py.org/en/stable/high/dataset.html#reading-writing-data)
    - [h5py: fancy indexing](https://docs.h5py.org/en/stable/high/dataset.html#fancy-indexing)
    """

    code = "OOM304"
    slug = "full-read-per-item"
    severity = Severity.ERROR
    lower = (Severity.WARNING,)
    fixable = Safety.SAFE
    help = "read only the part that is used"
    weighs = Weighs(Consequence.MULTIPLIED, by=(Multiplier.SAMPLES,))
    measured_as = Measurement(
        dataset=(DatasetSign.ITEM_READS,), function=FunctionSign.READS, command=(CommandSign.READS,), traits=frozenset({Trait.AT_ROW, Trait.MORE_DATA})
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the reads of a whole array for each sample of which only a part is used."""
        for case in project.shared(ItemReads).of(module):
            sure = case.certain and case.read.doubt == 0 and not case.of_length
            yield self.finding(
                module.place(case.read.node),
                _message(case),
                severity=Severity.ERROR if sure else Severity.WARNING,
                confidence=confidence_of(case.read.doubt) if case.certain else Confidence.MEDIUM,
                related=_related(case),
                fix=partial_read(case, project),
                facts=[whole_read_fact(case.read)],
            )
        for file in project.shared(ItemFiles).of(module):
            read, part = " ".join(module.code(file.read.node).split()), " ".join(file.module.code(file.part).split())
            message = Message(f"`{short(read)}` reads the same whole file for each sample", f"only `{short(part)}` of it is used", _ONCE)
            used = file.module.place(file.part, "what is used of it")
            yield self.finding(
                module.place(file.read.node), message, severity=Severity.WARNING, confidence=Confidence.MEDIUM, related=[used], facts=[file_fact(file.read)]
            )


def _message(case: ItemRead) -> Message:
    code = " ".join(case.read.module.code(case.read.node).split())
    often = "in each round of the loop" if case.context.root.loop is not None else "for each sample"
    if case.of_length:
        often = "for each `len()`"
    whole = f"`{code}` reads the whole {case.read.what.store.value} {often}"
    if case.only_measured:
        return Message(whole, "only its shape is used")
    subscript, base = case.uses.parts[0]
    part = case.where.module.code(subscript)[len(case.where.module.code(base)) :]
    return Message(whole, f"only `{' '.join(part.split())}` of it is used")


def _related(case: ItemRead) -> list[Place]:
    used = [case.where.module.place(subscript, "what is used of it") for subscript, _ in case.uses.parts[:3]]
    what = case.read.what
    return in_own_rows(case.read.module.place(case.read.node), (*used, what.module.place(what.call, "the file is opened here")))
