"""OOM406 torch-load-dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.finding import Confidence, Consequence, Safety, Severity, Weighs
from oomlint.measurement import CommandSign, DatasetSign, FunctionSign, Measurement, Trait
from oomlint.memory.arrays.eager_loads import chosen_by_base, told_with, torch_loads
from oomlint.memory.arrays.load_messages import ONE_BY_ONE, related, told, weighs_of
from oomlint.memory.arrays.torch_load import holds_objects, made_into_tensors
from oomlint.memory.facts import load_facts
from oomlint.memory.fixes.load_fixes import torch_mapped
from oomlint.model.torch_versions import LOAD_MAPPED, torch_versions
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding, Fix
    from oomlint.memory.arrays.loads import Load
    from oomlint.model.project import Module, Project


class TorchLoadDataset(Rule):
    """A file of tensors is read into memory as a whole, although it could be mapped.

    ## What it does

    Checks for `torch.load(path)` of data (not of a model) without `mmap=True` in the `__init__` of a `Dataset`, in what it calls, or in a factory
    that passes the result to a dataset.

    It is silent for checkpoints, weights and states of optimizers, also where the project writes them itself, for one small file per sample in
    `__getitem__`, for labels, splits and statistics, and where `mmap` is given. For a loop over many files OOM402 speaks. In a class derived from
    torch_geometric's `InMemoryDataset`, whose data is in memory by definition, it is a note. So are objects whose parts are numbers and lists of them,
    as the function that reads them shows: it makes tensors of them (`torch.tensor([row.words for row in rows])`), and there is nothing to map.

    ## Why is this bad

    `torch.load` reads every tensor of the file, of all splits and fields, before the first step. With `mmap=True` a tensor is a map of the file:
    only what is indexed is read, as page cache, which the system can drop and which all processes share. For a file of 125 MiB (measured with
    torch 2.13.0):

    | code | memory after | at its peak |
    |---|---|---|
    | `torch.load(path)` | +126 MiB | +126 MiB |
    | `torch.load(path, mmap=True)` | +0 | +0 |

    This holds in one process and under fork. Where workers are started by spawn or forkserver, tensors of both kinds are moved to shared memory,
    once: 125 MiB.

    ## Example

    ```python
    import torch
    from torch.utils.data import Dataset


    class Epochs(Dataset):
        def __init__(self, path):
            data = torch.load(path)
            self.samples = data["samples"]
            self.labels = data["labels"]

        def __len__(self):
            return len(self.samples)

        def __getitem__(self, index):
            return self.samples[index], self.labels[index]
    ```

    ## Use instead

    ```python
    import torch
    from torch.utils.data import Dataset


    class Epochs(Dataset):
        def __init__(self, path):
            data = torch.load(path, mmap=True)
            self.samples = data["samples"]
            self.labels = data["labels"]

        def __len__(self):
            return len(self.samples)

        def __getitem__(self, index):
            return self.samples[index], self.labels[index]
    ```

    ## Fix safety

    `mmap=True` is added: unsafe. It needs torch 2.1 (where the requirements allow an older one, there is no fix), a path and a file in the format
    of torch 1.6 and later (an older one raises `RuntimeError`).
    An open file or a buffer raises `ValueError`: where the argument is known to be one, or its name says so, there is no fix. What is written to such
    a tensor stays in the process. The file must not change while it is mapped: to save to it ends the process with a bus error, and leaves it empty.
    Where the program saves to the same path, there is no fix, nor where a loop shows that the file holds no tensors: graphs and texts. NumPy arrays in
    the file are read as before.

    ## References

    - [torch.load](https://docs.pytorch.org/docs/stable/generated/torch.load.html)
    - [PyTorch: serialization semantics](https://docs.pytorch.org/docs/stable/notes/serialization.html)
    """

    code = "OOM406"
    slug = "torch-load-dataset"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.UNSAFE
    help = "pass `mmap=True`, or read each sample in `__getitem__`"
    weighs = Weighs(Consequence.ONCE)
    per_rank = True
    measured_as = Measurement(
        dataset=(DatasetSign.BUILT,),
        function=FunctionSign.MEMORY,
        command=(CommandSign.PROCESS_MEMORY,),
        traits=frozenset({Trait.AT_ROW, Trait.MORE_DATA, Trait.READS_ALL, Trait.IN_NO_FILE, Trait.OF_TENSORS}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the files of tensors that are read whole and kept by a dataset."""
        groups: dict[tuple[object, ...], list[tuple[Load, Fix | None]]] = {}
        for load in torch_loads(module, project):
            fix = None if (objects := holds_objects(load, project)) else torch_mapped(load, project)
            groups.setdefault((objects, fix is None, *told_with(load)), []).append((load, fix))
        for (of_objects, *_), group in groups.items():
            (first, fix), *others = group
            load = replace(first, beside=tuple(other.node for other, _ in others))
            fix = replace(fix, edits=tuple(edit for _, one in group if one is not None for edit in one.edits)) if fix is not None else None
            message = told(load, f"The whole file of {'objects' if of_objects else 'tensors'} is read before the first sample")
            if (of_objects or torch_versions(project, module).lacks(LOAD_MAPPED)) and not message.help:
                message = replace(message, help=ONE_BY_ONE)
            facts = load_facts(load)
            severity = Severity.NOTE if chosen_by_base(load, project) or (of_objects and made_into_tensors(load, project)) else None
            yield self.finding(
                module.place(load.node), message, severity=severity, confidence=Confidence.MEDIUM,
                related=related(load), fix=fix, facts=facts, weighs=weighs_of(load),
            )  # fmt: skip
