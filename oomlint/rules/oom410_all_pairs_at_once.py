"""OOM410 all-pairs-at-once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Confidence, Consequence, Fix, Message, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import CommandSign, FunctionSign, Measurement, Trait
from oomlint.memory.buffers.all_pairs import all_pairs
from oomlint.memory.facts import allocation_fact
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project

_ADVICE = Fix(Safety.DISPLAY, "process one side in blocks of rows, and keep only what is needed: `(block @ gallery.t()).topk(k)`")


class AllPairsAtOnce(Rule):
    """A matrix has a number for every pair of samples.

    ## What it does

    Checks for products and distances of what an evaluation has gathered of all samples with what it, or another one, has gathered: `x @ y.t()`,
    `torch.mm`, `np.dot`, `torch.cdist`, `scipy.spatial.distance.cdist`, and the functions of `sklearn.metrics.pairwise`. What was gathered is a list
    that a loop over a loader has filled and that was then joined, an array with a row for every sample, or what was read from a file of features
    where the matrix is then sorted.

    It is silent for a product within one batch, for what a loop computes block by block, for the product of all samples with weights or with a few
    centres, for rows that are drawn, end at a known number (`x[:100] @ x.t()`) or stand in a list (`x[[user]] @ x.t()`), and for the small matrix
    `x.t() @ x` of features by features. A function that is told in its own file is not told again where other files call it.

    ## Why is this bad

    The memory grows with the square of the data: N x M x 4 bytes for `float32`, and twice that where NumPy makes `float64` of it. 10,000 samples against
    themselves are 381 MiB, 100,000 are 37 GiB, and what sorts or masks such a matrix makes another one: `argsort` gives `int64`, twice the size again.
    The features themselves, 100,000 x 512, are 195 MiB.

    ## Example

    ```python
    import torch
    from torch.utils.data import DataLoader, TensorDataset


    @torch.no_grad()
    def nearest():
        model = torch.nn.Linear(32, 16)
        model.eval()
        dataset = TensorDataset(torch.rand(5_000, 32), torch.arange(5_000))
        features = torch.empty(len(dataset), 16)
        for images, rows in DataLoader(dataset, batch_size=100):
            features[rows] = model(images)
        return (features @ features.t()).topk(5).indices
    ```

    ## Use instead

    ```python
    import torch
    from torch.utils.data import DataLoader, TensorDataset


    @torch.no_grad()
    def nearest():
        model = torch.nn.Linear(32, 16)
        model.eval()
        dataset = TensorDataset(torch.rand(5_000, 32), torch.arange(5_000))
        features = torch.empty(len(dataset), 16)
        for images, rows in DataLoader(dataset, batch_size=100):
            features[rows] = model(images)
        return torch.cat([(block @ features.t()).topk(5).indices for block in features.split(1024)])
    ```

    ## Fix safety

    Advice only: what is needed of each row, the nearest few, a rank, or whether it is under a threshold, is for the author to say.

    ## References

    - [torch.cdist](https://docs.pytorch.org/docs/stable/generated/torch.cdist.html)
    - [sklearn.metrics.pairwise_distances_chunked](https://scikit-learn.org/stable/modules/generated/sklearn.metrics.pairwise_distances_chunked.html)
    """

    code = "OOM410"
    slug = "all-pairs-at-once"
    severity = Severity.WARNING
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.MULTIPLIED, Resource.ARRAYS, (Multiplier.SAMPLES,))  # a row of numbers for each
    measured_as = Measurement(function=FunctionSign.COPIES, command=(CommandSign.PROCESS_MEMORY,), traits=frozenset({Trait.AT_ROW}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the operations that make a number for every pair of samples."""
        for one in all_pairs(module, project):
            rows = "N x N" if len(one.gathered) == 1 and not one.read else "N x M"
            square = f"the result takes {rows} x 4 bytes in `float32`, which grows with the square of the data"
            message = Message(f"{one.name} computes a value for every pair of samples at once", square)
            facts = tuple(allocation_fact(module, call) for call in one.gathered)
            yield self.finding(module.place(one.node), message, confidence=Confidence.MEDIUM, related=one.related, fix=_ADVICE, facts=facts)
