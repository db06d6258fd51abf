"""OOM214 unbounded-cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.finding import Confidence, Consequence, Fix, Message, Multiplier, Safety, Severity, Weighs, in_own_rows
from oomlint.measurement import HELD, DatasetSign, Measurement, Trait
from oomlint.memory.arrays.whole_file_caches import each_filled, whole_caches
from oomlint.memory.buffers.caches import caches, facts_of
from oomlint.memory.buffers.changed_records import written_records
from oomlint.memory.buffers.functools_caches import cached_functions
from oomlint.memory.loaders.loader_calls import story_places
from oomlint.model.test_suites import holds_tests
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding, Place
    from oomlint.memory.buffers.caches import SampleCache
    from oomlint.model.project import Module, Project

_SHARED: Final = Fix(Safety.DISPLAY, "read it before the workers start, or memory-map the file")
_ADVICE: Final = Fix(Safety.DISPLAY, "limit its size, for example by `lru_cache(maxsize=...)`, or fill it before the workers start and share it")


class UnboundedCache(Rule):
    """What reading a sample decodes is kept for good, in every worker process.

    ## What it does

    Checks for caches that `__getitem__` of a dataset fills, or the `collate_fn` of its loader, or a function that one of them calls:
    `self.cache[key] = value` on a dictionary or a list of placeholders, `self.known.append(value)` on a list, a dictionary of the module,
    `@functools.cache` and `@lru_cache(maxsize=None)`. The value is an array, a tensor, an image,
    the contents of a file, the sample itself, or an object that holds such. Where the loader is known, the message says how many workers it
    has, and the places say where that number comes from.

    So it is with one file that holds all samples, where `__getitem__` reads it whole and keeps it as an attribute: `if self.data is None:
    self.data = np.load(path)`. A handle or a map that is opened there is no such thing, and neither is the file that was asked for last.

    So it is with objects of which the dataset holds one for each sample, where each reads its file when it is asked for it the first time.

    So it is with what is written into the records that the dataset holds itself: `row = self.rows[i]; row["image"] = cv2.imread(...)` keeps the
    image, and so does `row.update({"image": cv2.imread(...)})`; `self.paths[i] = np.load(...)` keeps the array, and `self.boxes[i].append(...)` makes a
    list longer each time that the sample is read.

    It is silent where something bounds the cache (a size that is tested, unless that lets in 10,000 and more, `pop`, `maxsize=64`, `cachetools`),
    starts it again or fills it before the workers start; where it is shared (`Manager().dict()`, a cache on disk); where its values are small
    (paths, lengths, numbers, strings); and where a key stands for a process. Without workers there is one cache, with all of the data in it
    after the first epoch.

    ## Why is this bad

    Workers are processes, and a dictionary that one of them fills is its own. With persistent workers each of them ends up with most of the
    dataset; without them each starts every epoch with an empty cache, so that nothing is ever found in it. A dataset of 95 MiB (measured
    with torch 2.13.0):

    | workers | memory of the workers | found in the cache |
    |---|---|---|
    | 0 | 96 MiB, in the main process | from the second epoch on |
    | any, not persistent | grows through each epoch | never |
    | 2, persistent | 159 MiB after one epoch, 199 MiB after four | more and more |
    | 4, persistent | 199 MiB after one epoch, 292 MiB after four | more and more |

    It tends to the number of workers times the dataset. `lru_cache` on a method also keeps the object alive, with all that it holds.

    ## Example

    ```python
    import numpy as np
    from torch.utils.data import DataLoader, Dataset


    class Volumes(Dataset):
        def __init__(self, index):
            self.index = index
            self.cache = {}

        def __len__(self):
            return len(self.index)

        def __getitem__(self, i):
            path, z = self.index[i]
            if path not in self.cache:
                self.cache[path] = np.load(path)
            return self.cache[path][z]


    def make_loader(index):
        return DataLoader(Volumes(index), num_workers=8)
    ```

    ## Use instead

    ```python
    import numpy as np
    from torch.utils.data import DataLoader, Dataset


    class Volumes(Dataset):
        def __init__(self, index, keep=4):
            self.index = index
            self.keep = keep
            self.cache = {}

        def __len__(self):
            return len(self.index)

        def __getitem__(self, i):
            path, z = self.index[i]
            if path not in self.cache:
                if len(self.cache) >= self.keep:
                    self.cache.pop(next(iter(self.cache)))
                self.cache[path] = np.load(path)
            return self.cache[path][z]


    def make_loader(index):
        return DataLoader(Volumes(index), num_workers=8)
    ```

    ## Fix safety

    Advice only: what bounds a cache best depends on the order in which samples are read. A small `maxsize` suits slices that follow each
    other; one tensor that is filled before the workers start is shared by all of them.

    ## References

    - [ultralytics/yolov3#642](https://github.com/ultralytics/yolov3/issues/642)
    - [ruff: cached-instance-method (B019)](https://docs.astral.sh/ruff/rules/cached-instance-method/)
    """

    code = "OOM214"
    slug = "unbounded-cache"
    severity = Severity.WARNING
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.MULTIPLIED, by=(Multiplier.SAMPLES, Multiplier.WORKERS))
    measured_as = Measurement(dataset=(DatasetSign.CACHES,), growth=HELD, scale=8, traits=frozenset({Trait.AT_ROW, Trait.MORE_DATA, Trait.IN_WORKERS}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the caches that reading samples fills without an end."""
        if holds_tests(module):
            return
        found = (caches, cached_functions, whole_caches, each_filled, written_records)
        for cache in (cache for ask in found for cache in ask(module, project)):
            place = module.place(cache.place)
            message, confidence, related = _message(cache), _confidence(cache), _related(cache, place)
            yield self.finding(
                place, message, confidence=confidence, related=related, fix=_SHARED if cache.whole else _ADVICE, facts=facts_of(cache), weighs=_weighs(cache)
            )


def _message(cache: SampleCache) -> Message:
    grows = f"{cache.words} grows to its limit of {cache.limit:,} entries" if cache.limit else f"{cache.words} grows without a size limit"
    if not cache.readers:
        return Message(grows, f"for each argument it keeps {cache.what.words}, in every process that calls it")
    many = max((int(alt.const) for one in cache.readers if (alt := one.most) is not None and isinstance(alt.const, int)), default=0)
    if cache.whole:
        who = f"Each of {many} workers" if many > 1 else "Each worker"
        return Message(f"{who} fills its own {cache.words}", f"it keeps {cache.what.words} from the first sample on")
    alone = bool(cache.readers) and all(one.without_workers for one in cache.readers)
    if cache.each:
        where = "" if alone else f", in each of {many} workers" if many > 1 else ", in each worker"
        return Message(f"Each {cache.words} keeps {cache.what.words}", f"from the first use on it stays in `{cache.name}`{where}")
    each = "" if alone else f", in each of {many} workers" if many > 1 else ", in each worker"
    if cache.adds:
        return Message(grows, f"reading samples adds {cache.what.words} each time and drops nothing{each}")
    return Message(grows, f"for each key it keeps {cache.what.words}{each or ', until all of the data is in memory'}")


def _weighs(cache: SampleCache) -> Weighs:
    if cache.whole:
        return Weighs(Consequence.MULTIPLIED, cache.what.of, (Multiplier.WORKERS,))
    ends = Consequence.GROWS if cache.adds or not cache.readers else Consequence.MULTIPLIED
    return Weighs(ends, cache.what.of, (Multiplier.SAMPLES, Multiplier.WORKERS))


def _confidence(cache: SampleCache) -> Confidence:
    known = any(one.most is not None for one in cache.readers)
    return Confidence.HIGH if known and not cache.doubt else Confidence.MEDIUM


def _related(cache: SampleCache, place: Place) -> list[Place]:
    found: list[Place] = []
    if cache.made is not None:
        found.append(cache.made[0].place(cache.made[1], "made here, once for each process"))
    for one in cache.readers:
        if one.loader is None:
            continue
        spots = [one.loader.module.place(one.loader.call, f"this loader reads `{one.scope.name}`")]
        if one.most is not None:
            spots.extend(story_places(place, one.most))
        found += spots
    return in_own_rows(place, found)[:8]
