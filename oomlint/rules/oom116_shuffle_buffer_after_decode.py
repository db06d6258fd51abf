"""OOM116 shuffle-buffer-after-decode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.finding import Confidence, Consequence, Factor, Fix, Message, Multiplier, Resource, Safety, Severity, Weighs
from oomlint.memory.loaders.loader_calls import story_places
from oomlint.memory.loaders.shuffle_buffers import shuffled
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project

_ADVICE: Final = Fix(Safety.DISPLAY, "shuffle before decoding, so that the buffer holds encoded samples")
_MOST_RELATED: Final = 5


class ShuffleBufferAfterDecode(Rule):
    """Each worker process fills a shuffle buffer with decoded samples.

    ## What it does

    Checks for streams of [webdataset](https://github.com/webdataset/webdataset) that a `DataLoader` or `WebLoader` with workers reads, in which
    `shuffle(n)` of 1000 samples or more comes after a `decode(...)` that makes pictures: chains (`WebDataset(urls).decode("pil").shuffle(5000)`)
    and stages of a `DataPipeline`. And for a dataset of the project whose `__iter__` fills a list up to 1000 samples or more and gives random ones
    of it, where these are arrays or tensors: as it reads them itself, or as the stream gives them that it is made around.

    It is silent where the buffer comes first, where it is smaller or of unknown size, where `decode()` is given no handler for pictures, where
    `to_tuple` or a function of `map` leaves the pictures out, without workers, and behind the loader, where there is one buffer for all.

    ## Why is this bad

    The buffer holds what the stages before it give. A picture of 224 x 224 pixels is about 15 KiB as a JPEG file, 147 KiB in bytes and 588 KiB in
    floating-point numbers, and there is a buffer for each worker of each process. Measured with webdataset 1.0.2 and torch 2.13.0, such pictures
    decoded by `"torchrgb"`, two workers, after 3000 samples:

    | stages | memory of each worker |
    |---|---|
    | `decode("torchrgb")` | 91 MiB |
    | `shuffle(1000)`, `decode("torchrgb")` | 103 MiB |
    | `decode("torchrgb")`, `shuffle(1000)` | 667 MiB |

    ## Example

    ```python
    import webdataset as wds
    from torch.utils.data import DataLoader


    def train_loader(urls):
        dataset = wds.WebDataset(urls).decode("torchrgb").shuffle(5000).to_tuple("jpg", "cls")
        return DataLoader(dataset, batch_size=64, num_workers=8)
    ```

    ## Use instead

    ```python
    import webdataset as wds
    from torch.utils.data import DataLoader


    def train_loader(urls):
        dataset = wds.WebDataset(urls).shuffle(5000).decode("torchrgb").to_tuple("jpg", "cls")
        return DataLoader(dataset, batch_size=64, num_workers=8)
    ```

    ## Fix safety

    There is no fix: stages between the two may need what was decoded. The order of the samples is as random either way.

    ## References

    - [huggingface/datasets#5878](https://github.com/huggingface/datasets/issues/5878): workers x processes x buffer
    - [webdataset](https://webdataset.github.io/webdataset/)
    """

    code = "OOM116"
    slug = "shuffle-buffer-after-decode"
    severity = Severity.WARNING
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.MULTIPLIED, Resource.IMAGES, (Multiplier.SAMPLES, Multiplier.WORKERS))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the buffers that every worker fills with decoded samples."""
        for case in shuffled(module, project):
            number = str(case.workers.const) if case.workers is not None else ""
            who = f"Each of {number} workers" if number not in {"", "1"} else "The worker" if number else "Each worker"
            much = "a decoded sample usually takes several times the memory of its file"
            message = Message(f"{who} fills a shuffle buffer of {case.size} decoded samples", much)
            place = module.place(case.loader.call)
            stories = story_places(place, *(alt for alt in (case.given, case.workers) if alt is not None))
            related = (*case.related, *(one for one in stories if one not in case.related))[:_MOST_RELATED]
            weighs = replace(self.weighs, by=(Factor(Multiplier.SAMPLES, case.size), Multiplier.WORKERS))
            yield self.finding(place, message, confidence=Confidence.MEDIUM, related=related, fix=_ADVICE, facts=case.facts, weighs=weighs)
