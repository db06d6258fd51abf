"""OOM221 figure-not-closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import ByteSize, Consequence, Multiplier, Resource, Severity, Weighs
from oomlint.memory.buffers.figures import UnclosedFigures
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


_EACH = 2 << 20  # bytes of a figure of the default size


class FigureNotClosed(Rule):
    """A figure of matplotlib is made again and again, and never closed.

    ## What it does

    Checks for `plt.figure()`, `plt.subplots()` and `plt.subplot_mosaic()` in a loop of many or unknown rounds, or in a function that such a loop
    calls, where nothing on the way calls `plt.close()` or `plt.show()`.

    In a loop that goes over batches, steps or epochs, and in what a framework runs, it is a warning, elsewhere a note.

    It is silent where the figure has a number or a name (then the second call gives the first figure again; not where each round has a number
    of its own), where it goes to an object that may
    close it (`SummaryWriter.add_figure` does), where it is made in one round alone, in notebooks, whose cells close what they draw, and in tests.

    ## Why is this bad

    pyplot keeps each figure that it makes until `plt.close()` is called: that the variable goes, or is deleted, changes nothing, and `plt.clf()`
    empties a figure without letting go of it. Measured with matplotlib 3.11.2 and the backend `Agg`, for figures of the usual size with one image of
    256 x 256 in them, over 200 rounds:

    | after `plt.subplots()` and `savefig` | memory a round | figures open in the end |
    |---|---|---|
    | nothing | +2.5 MiB | 200 |
    | `del figure` and `gc.collect()` | +2.5 MiB | 200 |
    | `plt.show()` without a window | +2.5 MiB | 200 |
    | `plt.clf()` | +1.3 MiB | 200 |
    | `plt.close(figure)` | +0.2 MiB | 0 |

    matplotlib warns once, when the 21st figure is made.

    ## Example

    ```python
    import matplotlib.pyplot as plt
    import torch
    from torch.utils.data import DataLoader


    def show_errors(model, dataset, folder):
        model.eval()
        with torch.no_grad():
            for step, (images, masks) in enumerate(DataLoader(dataset, batch_size=4)):
                error = (model(images) - masks).abs().mean(0)[0]
                figure, axes = plt.subplots()
                axes.imshow(error.numpy())
                figure.savefig(folder / f"error-{step}.png")
    ```

    ## Use instead

    ```python
    import matplotlib.pyplot as plt
    import torch
    from torch.utils.data import DataLoader


    def show_errors(model, dataset, folder):
        model.eval()
        with torch.no_grad():
            for step, (images, masks) in enumerate(DataLoader(dataset, batch_size=4)):
                error = (model(images) - masks).abs().mean(0)[0]
                figure, axes = plt.subplots()
                axes.imshow(error.numpy())
                figure.savefig(folder / f"error-{step}.png")
                plt.close(figure)
    ```

    ## Fix safety

    There is no fix: only you know after which line nobody draws any more. `matplotlib.figure.Figure()` in place of `plt.figure()` makes a figure that
    pyplot does not keep.

    ## References

    - [matplotlib.pyplot.figure](https://matplotlib.org/stable/api/_as_gen/matplotlib.pyplot.figure.html)
    - [matplotlib.pyplot.close](https://matplotlib.org/stable/api/_as_gen/matplotlib.pyplot.close.html)
    """

    code = "OOM221"
    slug = "figure-not-closed"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = None
    help = "call `plt.close(...)` with the figure at the end of each round"
    weighs = Weighs(Consequence.GROWS, Resource.FIGURE, (Multiplier.STEPS,), ByteSize(least=_EACH))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the figures that pile up."""
        yield from map(self.tell, project.shared(UnclosedFigures).of(module))
