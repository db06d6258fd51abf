"""OOM312 lazy-file-objects-kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Fix, Message, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.measurement import HANDLES, PICKLE_ERROR, DatasetSign, Measurement, Trait
from oomlint.memory.facts import container_facts
from oomlint.memory.handles.open_file_collections import LAZY_FILES, kept_files
from oomlint.memory.handles.openings import Opens
from oomlint.memory.loaders.loader_calls import confidence_of
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class LazyFileObjectsKept(Rule):
    """A list of opened files holds one descriptor for each of them.

    ## What it does

    Checks for lists and dictionaries of what opens a file and reads it later, for each path of many: `Image.open(path)`, `np.load` of an `.npz` file or
    with `mmap_mode`, `open(path)`, `rasterio.open(path)`, `gdal.Open(path)`, `tifffile.TiffFile(path)`, `openslide.OpenSlide(path)`. So do lists of readers,
    and joined datasets of one file each, that keep what they have opened.

    It is silent where only the contents are kept (`Image.open(path).convert("RGB")`, `np.load(path)["x"]`, `open(path).read()`), where the files are closed
    again, where slides are given one cache (`set_cache`), where there are a few of them that the code names, and where each sample takes a part of every
    one: then there are as many as a sample has fields.

    ## Why is this bad

    Each of these objects keeps its file open. 50 results in a list (measured with Pillow 13 and numpy 2.4):

    | kept | descriptors |
    |---|---|
    | `Image.open(p)`, `np.load(p, mmap_mode="r")`, `np.load("x.npz")`, `open(p)` | 50 |
    | `rasterio.open(p)`, `tifffile.TiffFile(p)` (rasterio 1.4.4, tifffile 2026.3.3) | 50 |
    | `Image.open(p).convert("RGB")`, `.copy()`, `.resize(size)`, `np.array(Image.open(p))` | 0 |
    | `np.load("x.npz")["a"]`, `open(p).read()`, `json.load(open(p))` | 0 |

    With the usual limit of 1024, the list ends at about a thousand files with `OSError: [Errno 24] Too many open files`.

    A slide of OpenSlide keeps no descriptor, but a cache of tiles that it has decoded: 12 slides that are read and kept hold 357 MiB, 30 MiB each, and
    none where each is closed after it is read, or where all share one cache (OpenSlide 4.0.1).

    What is lazy does not stay so: an image closes its file when it is decoded, and then keeps its pixels, so that the list grows to the decoded
    dataset while samples are read. Where workers start by spawn or forkserver, opened files, slides and `.npz` archives cannot be sent to them, and a
    memory map is sent with all that it maps.

    ## Example

    ```python
    import numpy as np
    import torch
    from PIL import Image
    from torch.utils.data import Dataset


    class Photos(Dataset):
        def __init__(self, paths):
            self.images = [Image.open(path) for path in paths]

        def __len__(self):
            return len(self.images)

        def __getitem__(self, index):
            return torch.from_numpy(np.array(self.images[index]))
    ```

    ## Use instead

    ```python
    import numpy as np
    import torch
    from PIL import Image
    from torch.utils.data import Dataset


    class Photos(Dataset):
        def __init__(self, paths):
            self.paths = list(paths)

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, index):
            return torch.from_numpy(np.array(Image.open(self.paths[index])))
    ```

    ## Fix safety

    Advice only: keep the paths, and open each file where it is read. `Image.open(path).copy()` releases the descriptors as well, but then the decoded
    images are all in memory.

    ## References

    - [Pillow: file handling](https://pillow.readthedocs.io/en/stable/reference/open_files.html)
    - [python-pillow/Pillow#1237](https://github.com/python-pillow/Pillow/issues/1237)
    """

    code = "OOM312"
    slug = "lazy-file-objects-kept"
    severity = Severity.WARNING
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.MULTIPLIED, Resource.HANDLE, (Multiplier.FILES,))
    measured_as = Measurement(
        dataset=(DatasetSign.KEPT, DatasetSign.DESCRIPTORS, DatasetSign.PICKLING),
        growth=HANDLES,
        error=f"{PICKLE_ERROR}|Too many open files",
        traits=frozenset({Trait.AT_ROW, Trait.IN_WORKERS}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the calls that open a file for a container which keeps one for each path."""
        for kept in kept_files(module, project, LAZY_FILES):
            times = f"{kept.count} paths" if kept.count is not None else "each path"
            slide = kept.opening.kind is Opens.SLIDE
            limit = "each caches up to 32 MiB of decoded tiles" if slide else "each takes a file descriptor, of which a process often has only 1024"
            message = Message(f"{kept.words} keeps {kept.opening.kind.value} open for {times}", limit)
            place = module.place(kept.opening.call)
            one_cache = ", or give all slides one cache by `set_cache`" if slide else ""
            fix = Fix(Safety.DISPLAY, f"store the paths, and open each file where it is read{one_cache}")
            yield self.finding(place, message, confidence=confidence_of(kept.doubt), related=kept.places(), fix=fix, facts=container_facts(kept))
