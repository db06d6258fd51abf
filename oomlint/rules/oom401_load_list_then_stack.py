"""OOM401 load-list-then-stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Confidence, Consequence, Message, Safety, Severity, Weighs
from oomlint.measurement import CommandSign, DatasetSign, FunctionSign, Measurement, Trait
from oomlint.memory.arrays.joins import joins
from oomlint.memory.fixes.load_fixes import filled
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class LoadListThenStack(Rule):
    """All files are read into a list, and the list is then copied into one array.

    ## What it does

    Checks for `np.stack`, `np.array`, `np.concatenate` (`vstack`, `hstack`), `torch.stack` and `torch.cat` of a list that holds what was read
    from many files: a comprehension, or a list that a loop appends to. It looks in the `__init__` of a `Dataset`, in the methods and functions
    that it calls, in the `setup()` of a data module, where the array is handed to a dataset, in scripts that gather many files to write them
    at once, and in code that a script runs once, whatever it does with the array then; files of tensors (`torch.load`) are data where they are joined so,
    and no models. Samples of a dataset that decodes a file for each are read from
    files, too; and where a dataset keeps what `np.concatenate` or `stack` gives of a list that a loop fills with arrays, or a script writes it, it does
    not matter what they are made of (so with `np.array`, where all of them are made of one shape). A tensor that a dataset keeps, made of the rows of
    objects that are still there, is such a copy, too.

    Arrays that a script joins for itself, and neither keeps for a training nor writes, are a note: nothing says that they are large. Pictures are.

    What an evaluation joins of all that it has kept is reported where it is kept (OOM219, OOM220).

    It is silent where the list is one sample (in `__getitem__`), where the array is proven small or has only references (`dtype=object`, rows of an
    array and a number), for labels and the like, for what a loop computes of the numbers that it counts through, for random numbers along one axis, and
    in scripts that write each file on its own.

    ## Why is this bad

    Until the copy is done, everything is in memory twice. 64 files, together 128 MiB (measured with NumPy 2.4 and torch 2.13.0):

    | code | memory after | at its peak |
    |---|---|---|
    | `np.stack([np.load(p) for p in paths])`, also `array`, `concatenate`, `torch.stack` | +128 MiB | +256 MiB |
    | `torch.from_numpy(np.stack([...]))` | +128 MiB | +256 MiB |
    | `torch.tensor(np.stack(arrays))`, where `arrays` is still alive | +253 MiB | +381 MiB |
    | allocate once, then fill | +128 MiB | +130 MiB |

    So a dataset that is over half as large as the memory kills the run, at a place where half of it seems to be free. `np.stack(..., out=array)`
    does not help: the list is there first.

    ## Example

    ```python
    import numpy as np
    import torch
    from torch.utils.data import Dataset


    class Volumes(Dataset):
        def __init__(self, paths):
            self.volumes = np.stack([np.load(path) for path in paths])

        def __len__(self):
            return len(self.volumes)

        def __getitem__(self, index):
            return torch.from_numpy(self.volumes[index])
    ```

    ## Use instead

    ```python
    import numpy as np
    import torch
    from torch.utils.data import Dataset


    class Volumes(Dataset):
        def __init__(self, paths):
            self.paths = list(paths)

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, index):
            return torch.from_numpy(np.load(self.paths[index]))
    ```

    ## Fix safety

    Advice only: that all shapes and types are the same is seldom proven. Where all of them must be in memory, allocate once and fill:

    ```python
    first = np.load(paths[0])
    volumes = np.empty((len(paths), *first.shape), first.dtype)
    for index, path in enumerate(paths):
        volumes[index] = np.load(path)
    ```

    This is equal to `np.stack` if and only if all shapes and types are: an array of another type would be converted to that of the first, and an
    array of shape `(1, 8)` would be repeated to fill `(4, 8)`, both without an error.

    ## References

    - [numpy.stack](https://numpy.org/doc/stable/reference/generated/numpy.stack.html)
    - [numpy.lib.format.open_memmap](https://numpy.org/doc/stable/reference/generated/numpy.lib.format.open_memmap.html)
    """

    code = "OOM401"
    slug = "load-list-then-stack"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.ONCE)
    measured_as = Measurement(
        dataset=(DatasetSign.BUILT,),
        function=FunctionSign.COPIES,
        command=(CommandSign.PROCESS_MEMORY,),
        traits=frozenset({Trait.AT_ROW, Trait.MORE_DATA, Trait.DOUBLES, Trait.PASSING}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the calls that make one array of a list of all that was read."""
        for join in joins(module, project):
            message = Message(f"`{join.name}` joins a list of all the data into one array", "while it runs, everything is in memory twice")
            severity = Severity.NOTE if join.little else None
            yield self.finding(
                module.place(join.node), message, severity=severity, confidence=Confidence.MEDIUM, related=join.related, fix=filled(), facts=join.facts
            )
