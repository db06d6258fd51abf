"""OOM402 eager-dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.finding import Confidence, Consequence, Safety, Severity, Weighs
from oomlint.measurement import CommandSign, DatasetSign, FunctionSign, Measurement, Trait
from oomlint.memory.arrays.eager_loads import chosen_by_base, eager_loads
from oomlint.memory.arrays.load_messages import proven_small, related, remedy, severity_of, told, told_of_pieces, weighs_of
from oomlint.memory.arrays.loads import arrays_of
from oomlint.memory.facts import load_facts
from oomlint.memory.fixes.load_fixes import per_sample
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class EagerDataset(Rule):
    """A dataset reads all of its samples while it is made.

    ## What it does

    Checks for a `Dataset` whose `__init__` reads the samples themselves and keeps them: a loop or a comprehension of `np.load`, `Image.open`,
    `cv2.imread`, `torch.load`, `pickle.load`, `nib.load`, `pd.read_csv` and the like, one file with all samples (`np.load("train.npy")`,
    `dict(np.load("train.npz"))`, `pickle.load`), a text of which each sample is a line. The read may be in a method or a function that
    `__init__` calls, in another file, or in a factory that passes the result to the dataset. No `Dataset` is needed:
    an array that a training loop indexes itself or draws from (`random.choice`), that a generator of batches slices, or that a `Dataset` finds in
    a global variable is there as long; so are the decoded files that any other object of a project that trains keeps.

    A script that decodes many files into one container, to write it when the last one is there or whatever it does with it, does the same, without a
    dataset: where the container is made once, outside of the loop, and no round empties it. What is in a loop over a dataset that decodes a file for
    each sample (one of the project, `ImageFolder` and the like), or is taken from it by an index, is read as well. So does a script that
    reads a whole `.npy` of three or more dimensions for a loop that takes slices of it, or copies it into a memory map, and one that unpickles
    everything for a loop that needs one array of it at a time, or no more than how long they are, and one that goes through the pictures or maps of an
    entry of an `.npz`.

    So does the `process` of a dataset of torch_geometric, which the library calls once. It is a note in an `InMemoryDataset`, which is in memory by its name.

    Objects that a script unpickles to use one after the other, or from many files to write all at once, are a note: nothing is decoded, and
    nothing multiplies them. So is what is used beside a file that is read for each sample, boxes or texts beside pictures: it describes the
    samples; and what no method reads once the object is built, as the edges of a graph or the mean of each channel. And so are objects of which
    the project writes the file itself, where they are seen to be words and numbers: names, places, columns of tables of text.

    And what makes more of the data than there is: texts that a tokenizer pads to the longest of the whole set, and that a dataset keeps.

    It is silent for what describes samples (lists of paths, vocabularies, metadata, configurations), for labels and the like, for models and
    checkpoints, for a known small number of samples (`max_samples=20`, also as the default of an option), for what a server decodes for one request,
    and where the whole is proven small (under 16 MiB, or under 50,000 elements). It is silent, too, for what an unpickled object makes of something
    else (`scaler.transform(rows)`), and where the other side of a test maps the file into memory and is the one that is taken, by the arguments or
    the defaults. It is silent where the attribute is deleted once the object is built (`del self.rows`) or holds something else by then, and where a
    network takes all of it in one pass: it is needed at once then, and small beside the activations of that pass. Reading in `__getitem__` is the
    cure, not the bug.

    Where the size is not known, it is a warning with medium confidence: MNIST fits into any memory.

    ## Why is this bad

    The run needs as much memory as the dataset has bytes once it is decoded, before the first step, for each split. A JPEG of 1024 by 1024 pixels
    is 3 MiB after decoding, and 12 MiB as `float32`, however small the file is.

    What it costs more depends on how workers start, and on the container:

    | kept on `self` | fork: each worker | spawn, forkserver: each worker |
    |---|---|---|
    | an array, a list of large arrays | +0 | a copy |
    | a tensor | +0 | +0 (moved to shared memory, once) |
    | lists of strings, numbers, dictionaries | grows towards a copy | a copy |
    | paths, or a map that is opened on first use | +0 | +0 |

    `np.load` of a plain `.npy` can leave the data on the disk: 128 MiB against nothing (measured with NumPy 2.4). For `.npz` it cannot: `mmap_mode`
    is ignored.

    ## Example

    ```python
    import os

    import numpy as np
    from torch.utils.data import Dataset


    class Frames(Dataset):
        def __init__(self, root):
            self.frames = np.load(os.path.join(root, "frames.npy"))

        def __len__(self):
            return len(self.frames)

        def __getitem__(self, index):
            return self.frames[index].copy()
    ```

    ## Use instead

    ```python
    import os

    import numpy as np
    from torch.utils.data import Dataset


    class Frames(Dataset):
        def __init__(self, root):
            self._frames_path = os.path.abspath(os.path.join(root, "frames.npy"))
            self._frames = None

        @property
        def frames(self):
            if self._frames is None:
                self._frames = np.load(self._frames_path, mmap_mode="r")
            return self._frames

        def __getstate__(self):
            return {**self.__dict__, "_frames": None}

        def __len__(self):
            return len(self.frames)

        def __getitem__(self, index):
            return self.frames[index].copy()
    ```

    ## Fix safety

    Advice only: keep the paths, and read one sample in `__getitem__`. A plain `.npy` can be mapped (`mmap_mode="r"`); let each process open the map
    on first use and drop it in `__getstate__`, or every spawned worker gets a copy of it (OOM112).

    ## References

    - [PyTorch: writing custom datasets](https://docs.pytorch.org/tutorials/beginner/data_loading_tutorial.html)
    - [numpy.load](https://numpy.org/doc/stable/reference/generated/numpy.load.html)
    """

    code = "OOM402"
    slug = "eager-dataset"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.DISPLAY
    help = "read each sample in `__getitem__`, or memory-map the file"
    weighs = Weighs(Consequence.ONCE)
    per_rank = True
    measured_as = Measurement(
        dataset=(DatasetSign.BUILT,),
        function=FunctionSign.MEMORY,
        command=(CommandSign.PROCESS_MEMORY,),
        traits=frozenset({Trait.AT_ROW, Trait.MORE_DATA, Trait.READS_ALL, Trait.IN_NO_FILE}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the reads of whole datasets that a dataset keeps."""
        for load in eager_loads(module, project):
            if proven_small(module, load.node):
                continue
            message = told(load, f"{load.words}{'' if load.keeper.saver or load.all_at_once else ' before the first sample'}")
            message = replace(message, help=message.help or remedy(load))
            fix, facts = per_sample(load), load_facts(load)
            chosen = load.keeper.saver and chosen_by_base(load, project)
            yield self.finding(
                module.place(load.node), message, severity=Severity.NOTE if chosen else severity_of(load), confidence=Confidence.MEDIUM,
                related=related(load), fix=fix, facts=facts, weighs=weighs_of(load),
            )  # fmt: skip
        for load, piece in arrays_of(project).pieces(module):
            if proven_small(module, load.node):
                continue
            message = told_of_pieces(load, piece.taken)
            place = module.place(piece.place, "a part of it is taken here")
            severity, facts = severity_of(load, piece.taken), load_facts(load)
            yield self.finding(module.place(load.node), message, severity=severity, confidence=Confidence.MEDIUM, related=(place,), facts=facts)
