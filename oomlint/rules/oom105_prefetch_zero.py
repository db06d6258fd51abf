"""OOM105 prefetch-zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from oomlint.finding import Consequence, Fix, Message, Resource, Safety, Severity, Weighs
from oomlint.measurement import CallCheck, Measurement, Trait
from oomlint.memory.facts import loader_fact
from oomlint.memory.loaders.loader_calls import apart, confidence_of, given_beside, literal_site, loaders_of, story_places
from oomlint.model.commands import number_edit
from oomlint.model.values import Const, assumptions
from oomlint.rule import Rule
from oomlint.syntax.edits import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.memory.loaders.loader_calls import Loader, Loaders
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Alternative


class _Way(NamedTuple):
    """A prefetch factor of 0, and the workers that a loader has under it."""

    loader: Loader
    workers: Alternative
    given: Alternative


class PrefetchZero(Rule):
    """A prefetch factor of 0 is given to a loader that has workers.

    ## What it does

    Checks for a `DataLoader` with workers and `prefetch_factor=0`. (Without workers any `prefetch_factor` raises: OOM102.)

    ## Why is this bad

    0 reads like "no prefetching". The constructor accepts it, and the first `iter(loader)` raises `AssertionError: prefetch_factor must be
    greater than 0 for MultiProcessingDataLoaderIter` (measured with torch 2.13.0).

    The least that workers can hold is one batch each: up to `prefetch_factor * num_workers + 1` batches are in flight, in shared memory.

    ## Example

    ```python
    from pathlib import Path

    import torch
    from torch.utils.data import DataLoader, Dataset


    class Clips(Dataset):
        def __init__(self, root):
            self.root = Path(root)

        def __len__(self):
            return 10_000

        def __getitem__(self, index):
            return torch.load(self.root / f"{index}.pt")


    loader = DataLoader(Clips("clips"), batch_size=8, num_workers=2, prefetch_factor=0)
    ```

    ## Use instead

    ```python
    from pathlib import Path

    import torch
    from torch.utils.data import DataLoader, Dataset


    class Clips(Dataset):
        def __init__(self, root):
            self.root = Path(root)

        def __len__(self):
            return 10_000

        def __getitem__(self, index):
            return torch.load(self.root / f"{index}.pt")


    loader = DataLoader(Clips("clips"), batch_size=8, num_workers=2, prefetch_factor=1)
    ```

    ## Fix safety

    `0` becomes `1`, the smallest value that works. It is safe: the loader could not be iterated before, and the prefetch factor does not
    change the batches (measured with torch 2.13.0 for a deterministic dataset).

    ## References

    - [torch.utils.data.DataLoader](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader)
    - [pytorch/pytorch#196093](https://github.com/pytorch/pytorch/pull/196093)
    """

    code = "OOM105"
    slug = "prefetch-zero"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    help = "use `prefetch_factor=1` or more, or leave it out"
    weighs = Weighs(Consequence.CRASHES, Resource.NOTHING)
    measured_as = Measurement(
        call=CallCheck.OPTION_ZERO, option="prefetch_factor", error="prefetch_factor", traits=frozenset({Trait.RAISES_FIRST, Trait.OF_LOADER})
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the loaders with workers whose prefetch factor is 0; for each file beside the code that gives the 0 one."""
        loaders = loaders_of(project)
        ways: dict[cst.Call, list[_Way]] = {}
        for loader in (*loaders.of(module), *loaders.reached_from(module)):
            for way in _zeros(loaders, loader):
                where, call = literal_site(way.given, module) or (loader.module, loader.call)
                if where is module:  # else it is told where the call stands
                    ways.setdefault(call, []).append(way)
        for call, found in ways.items():
            for group in apart(found, lambda way: way.given):
                yield self._told(module, call, group, project)

    def _told(self, module: Module, call: cst.Call, ways: list[_Way], project: Project) -> Finding:
        loader, workers, given = min(ways, key=lambda way: bool(given_beside([way.given])))  # what code gives comes first
        place = module.place(call)
        message = Message("`prefetch_factor=0` is not allowed with workers", f"`{loader.written}` raises AssertionError at `iter()`")
        arg = loader.explicit("prefetch_factor")
        edit = None
        if loader.module is module and arg is not None and isinstance(arg.value, cst.Integer):
            edit = replace(module.tree, arg.value, "1")
        beside = given_beside(*([way.given] for way in ways))
        if beside:
            edit = number_edit(project, beside[0], "1") or edit
        fix = Fix(Safety.SAFE, "use `prefetch_factor=1`, the smallest value allowed", (edit,)) if edit is not None else None
        confidence = confidence_of(assumptions(workers, given))
        facts = (loader_fact(loader, [workers], "prefetch_factor"),)
        return self.finding(place, message, confidence=confidence, related=story_places(place, given, workers), fix=fix, facts=facts, given=beside)


def _zeros(loaders: Loaders, loader: Loader) -> Iterator[_Way]:
    """All that makes the prefetch factor 0 where there are workers."""
    for use in loaders.uses(loader):
        for given in loaders.argument(loader, "prefetch_factor", use.frame):
            if not (isinstance(given.value, Const) and given.value.value == 0 and not isinstance(given.value.value, bool)) or given.reach:
                continue  # that an option takes a 0 which nobody gives is no mistake
            for workers in loaders.workers(loader, use.frame):
                positive = isinstance(workers.const, int) and workers.const > 0
                if positive and not workers.reach and workers.under(given.picks) is not None:
                    yield _Way(loader, workers, given)
                    break
