"""OOM403 dtype-inflation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Resource, Safety, Severity, Weighs
from oomlint.measurement import CommandSign, DatasetSign, FunctionSign, Measurement, Trait
from oomlint.memory.arrays.inflation import inflations
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class DtypeInflation(Rule):
    """A large array is made with elements of eight bytes, although four or one would do.

    ## What it does

    Checks for large arrays that NumPy makes as `float64` because no `dtype` is given, and that are then converted:
    `np.ones(shape).astype(np.float32)`, `rng.random(shape).astype("float32")`, `torch.from_numpy(np.zeros(shape)).float()`,
    `torch.FloatTensor(np.array(...))`. And for images of bytes that are kept as floats: `images / 255.0` (eight times as large),
    `images.astype(np.float32)` (four times), also in the function that reads them for others, or that is given all of them; and what `resize`,
    `img_as_float` or `rgb2lab` of scikit-image make of pictures (eight times). A division says how many bytes a number takes before and after, by the
    types where they are known: what is of `float32` stays so, and torch makes `float32` of bytes.

    What is converted in the same expression and is known to be large is told wherever it stands: in a network, a function, a script. Else a dataset has
    to keep it, and it is a note where its size is unknown.

    It is silent for a single sample in `__getitem__`, where the array is proven small, and where `float64` is what is wanted.

    ## Why is this bad

    The array of `float64` and the converted one are both there for a moment: three times the memory that is needed. For 125 MiB of `float32`
    (measured with NumPy 2.4):

    | code | memory after | at its peak |
    |---|---|---|
    | `rng.random(shape).astype(np.float32)` | +125 MiB | +375 MiB |
    | `rng.random(shape, dtype=np.float32)` | +125 MiB | +125 MiB |
    | `np.ones(shape).astype(np.float32)` | +125 MiB | +375 MiB |
    | `np.ones(shape, dtype=np.float32)` | +125 MiB | +125 MiB |
    | `np.zeros(shape).astype(np.float32)` | +125 MiB | +125 MiB |
    | `np.zeros(shape, dtype=np.float32)` | +0, until it is written to | +0 |

    And 30 MiB of images as `uint8` are 120 MiB as `float32`, 240 MiB after `/ 255.0`. Converting a batch on the device gives the same numbers for
    nothing.

    ## Example

    ```python
    import numpy as np
    import torch
    from torch.utils.data import TensorDataset


    def white_images():
        images = np.ones((5_000, 3, 64, 64)).astype(np.float32)
        return TensorDataset(torch.from_numpy(images))
    ```

    ## Use instead

    ```python
    import numpy as np
    import torch
    from torch.utils.data import TensorDataset


    def white_images():
        images = np.ones((5_000, 3, 64, 64), dtype=np.float32)
        return TensorDataset(torch.from_numpy(images))
    ```

    ## Fix safety

    The type moves into the call that makes the array: unsafe. For `zeros`, `ones` and `full` the values are the same. For random numbers they are
    not: the same seed gives others. `np.random.rand` and the like take no `dtype` and get no fix.

    ## References

    - [numpy.random.Generator.random](https://numpy.org/doc/stable/reference/random/generated/numpy.random.Generator.random.html)
    - [numpy.ndarray.astype](https://numpy.org/doc/stable/reference/generated/numpy.ndarray.astype.html)
    """

    code = "OOM403"
    slug = "dtype-inflation"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.UNSAFE
    weighs = Weighs(Consequence.ONCE, Resource.ARRAYS)
    measured_as = Measurement(
        dataset=(DatasetSign.BUILT,),
        function=FunctionSign.COPIES,
        command=(CommandSign.PROCESS_MEMORY,),
        traits=frozenset({Trait.AT_ROW, Trait.MORE_DATA, Trait.INFLATES, Trait.DOUBLES, Trait.DRAWN}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield large arrays whose elements take more bytes than they need."""
        yield from map(self.tell, inflations(module, project))
