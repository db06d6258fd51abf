"""OOM405 tolist-inflation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Resource, Severity, Weighs
from oomlint.measurement import CommandSign, DatasetSign, FunctionSign, Measurement, Trait
from oomlint.memory.arrays.tolist import listed
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class TolistInflation(Rule):
    """A large array is turned into a list of Python objects.

    ## What it does

    Checks for a `Dataset` that keeps `array.tolist()`, `list(array)`, `frame.values.tolist()` or `frame.to_dict("records")` of a large array or
    frame, from its `__init__`, its methods or the functions that they call; and for `list(range(...))` of each of many samples, the numbers of the
    frames of a video for one, where the `range` itself would do. And for `list(rows)`, `rows[:]`, `rows.to_list()`, `pd.DataFrame(rows)` of a dataset of
    Hugging Face with all rows of its training split, or that is made of files: it is a map of its file, and they are not.

    It is silent where the array is proven small, for labels, ids, splits and indices, for the names of columns and unique values, for what is
    written out (`json.dump`), and for a single sample. Names of files, of which nobody says how many there are, are a note. What several places
    make for the same attribute is one finding, and that of OOM110 where workers copy it.

    ## Why is this bad

    A number in an array has four or eight bytes. In a list it is an object of 24 to 32 bytes, and a pointer of eight; each row is a list of its
    own (measured with CPython 3.11 and NumPy 2.4):

    | array | as an array | as a list |
    |---|---|---|
    | 4,000,000 pairs of `int64` | 61 MiB | 582 MiB (9.5 x) |
    | 4,000,000 pairs of `float32` | 31 MiB | 580 MiB (19 x) |
    | 4,000,000 numbers of `float32` | 15 MiB | 122 MiB (8 x) |

    Rows of a dataset of Hugging Face, 116 MiB of texts and numbers in its file (measured with datasets 5.2): `list(rows)` takes 432 MiB, `rows[:]` and
    `pd.DataFrame(rows)` 362 MiB, a loop over the rows nothing.

    And such a list is no longer shared by the workers: under fork each of them copies the pages as it counts references, until it has the whole
    of it (OOM110).

    ## Example

    ```python
    import numpy as np
    from torch.utils.data import Dataset


    class Interactions(Dataset):
        def __init__(self, interactions: np.ndarray):
            self.interactions = interactions.tolist()

        def __len__(self):
            return len(self.interactions)

        def __getitem__(self, index):
            user, item, rating = self.interactions[index]
            return user, item, rating
    ```

    ## Use instead

    ```python
    import numpy as np
    from torch.utils.data import Dataset


    class Interactions(Dataset):
        def __init__(self, interactions: np.ndarray):
            self.interactions = interactions

        def __len__(self):
            return len(self.interactions)

        def __getitem__(self, index):
            user, item, rating = self.interactions[index].tolist()
            return user, item, rating
    ```

    ## Fix safety

    There is none: who reads the list gets NumPy scalars from an array instead of `int` and `float`, and an array has no `append`, `extend` and
    `in` of rows. For the default `collate_fn` both are the same.

    ## References

    - [numpy.ndarray.tolist](https://numpy.org/doc/stable/reference/generated/numpy.ndarray.tolist.html)
    - [pytorch/pytorch#13246](https://github.com/pytorch/pytorch/issues/13246)
    """

    code = "OOM405"
    slug = "tolist-inflation"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = None
    help = "keep the array, and index it in `__getitem__`"
    weighs = Weighs(Consequence.ONCE, Resource.RECORDS)
    measured_as = Measurement(
        dataset=(DatasetSign.BUILT,),
        function=FunctionSign.MEMORY,
        command=(CommandSign.PROCESS_MEMORY,),
        scale=8,
        traits=frozenset({Trait.AT_ROW, Trait.MORE_DATA, Trait.INFLATES}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield large arrays and tables that a dataset keeps as lists of Python objects."""
        yield from map(self.tell, listed(module, project))
