"""OOM219 eval-keeps-outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Message, Multiplier, Resource, Severity, Weighs
from oomlint.measurement import HELD, Measurement, Trait
from oomlint.memory.buffers.growth import buffers_of
from oomlint.memory.buffers.growth_messages import advice, deleted_late, loop_of, target_of, told, what_of
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class EvalKeepsOutputs(Rule):
    """An evaluation keeps an array for each sample in host memory until its loop ends.

    ## What it does

    Checks for an evaluation loop over a loader that stores dense outputs of each step (masks, logits, features, images), or what the model is
    given, in a list or a dictionary, on the host, also as fields of objects, or hands them to an object that does so. The validation and test
    steps of Lightning are rounds of such a loop, unless a `validation_step_end` or `test_step_end` puts something else in the place of what they
    return. The place where the list becomes one array is reported with it.
    `tolist()` of an array for each sample gives as many numbers of Python, which take more than the array did.

    Scalars, labels, the class of each sample (`argmax`), ids and strings say nothing, nor do the parts of one sample at a time (a room, a
    volume) in a list that starts again with the next, its windows along a third axis or a later one (`range(0, x.shape[2], width)`), a list that
    one batch fills (`range(batch_size)`, with the size that a loader has), what is proven small, what is flushed every few batches, or the scores
    that only a metric of scikit-learn or SciPy reads. The class of each pixel is an array for each sample.

    It is a warning where each sample is known to have an array of two axes or more: a mask, a picture, a sequence. What has one axis (features,
    scores of classes), or of which the number is unknown, is a note: 2,048 numbers a sample are 8 KiB, and a set must be large for that to weigh. So are
    outputs for what a caller has handed over and gets back, those for the pieces of one array that a caller has handed over, and those of as few rounds
    as an option asks for by its default. Axes are
    known by the layers of the model, by how the value is indexed, viewed and resized, and by what makes it (`ToTensor`, pictures as `uint8`).

    ## Why is this bad

    What is kept grows with the evaluation set, and the batch size does not bound it: one mask of 1024 x 1024 in float32 is 4 MiB, so 10,000 of
    them are 39 GiB. `torch.cat` or `np.concatenate` at the end needs the same once more while it copies. Such a run often works on the small
    validation set and is killed on the large test set.

    ## Example

    ```python
    import torch
    from torch.nn.functional import interpolate
    from torch.utils.data import DataLoader


    def predict(model, dataset, device):
        loader = DataLoader(dataset, batch_size=16, num_workers=4)
        model.eval()
        masks = []
        with torch.no_grad():
            for images in loader:
                found = interpolate(model(images.to(device)), (64, 64))
                masks.append(found.sigmoid().cpu())
        torch.save(torch.cat(masks), "masks.pt")
    ```

    ## Use instead

    ```python
    import torch
    from torch.nn.functional import interpolate
    from torch.utils.data import DataLoader


    def predict(model, dataset, device):
        loader = DataLoader(dataset, batch_size=16, num_workers=4)
        model.eval()
        with torch.no_grad():
            for step, images in enumerate(loader):
                found = interpolate(model(images.to(device)), (64, 64))
                masks = found.sigmoid().cpu()
                torch.save(masks, f"masks-{step}.pt")
    ```

    ## Fix safety

    There is no fix, because only you know what is needed of the outputs. Reduce them before they are kept (`argmax`, a score, half precision),
    feed them to a metric that keeps sums, or write them out every few batches: to a file a batch, an HDF5 dataset or an `np.memmap`.

    ## References

    - [huggingface/transformers#25313](https://github.com/huggingface/transformers/issues/25313)
    """

    code = "OOM219"
    slug = "eval-keeps-outputs"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = None
    help = "reduce each batch first, update a metric batch by batch, or write the results to a file"
    weighs = Weighs(Consequence.MULTIPLIED, Resource.ARRAYS, (Multiplier.STEPS,))
    measured_as = Measurement(loop=HELD, traits=frozenset({Trait.EVALUATES, Trait.NUMBERS}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loops that keep what the model gives until they end."""
        for growth in buffers_of(project).told_as(self.code, module):
            store = growth.store
            where = "host memory" if growth.facts.get("host") else "memory"
            grows = f"{where} grows with the number of samples{deleted_late(growth)}"
            message = Message(f"`{target_of(store)}` collects `{what_of(store)}` in {loop_of(growth)}", grows, advice(growth))
            yield self.tell(told(growth, module, message))
