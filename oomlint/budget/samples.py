"""Bytes of one sample, as the rows of a table have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.budget.costs import ONE_ARRAY
from oomlint.budget.sizes import Name, SizeProduct, Sum
from oomlint.finding import ContentKind
from oomlint.memory.datasets.samples import samples_of
from oomlint.memory.shared.shaped import ShapedArray, certain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.budget.nouns import BudgetDataset, Container
    from oomlint.memory.datasets.dataset_classes import Dataset
    from oomlint.memory.datasets.samples import PartsMaker, Sample
    from oomlint.model.project import Project


def sample_of(project: Project, dataset: Dataset | None, containers: Sequence[Container], owner: str, make: PartsMaker) -> SizeProduct:
    """Bytes of a sample of a dataset, the largest that it gives; a name where a part of it is not known."""
    known = {one.name: array for one in containers if (array := _array(one)) is not None}
    sizes = [_size(sample) for sample in samples_of(project, dataset, known, make=make)] if dataset is not None else []
    largest = max((size for size in sizes if size is not None), key=lambda size: size.value or 0, default=None)
    return largest if largest is not None and None not in sizes else SizeProduct((Name("sample", owner),))


def _array(kept: Container) -> ShapedArray | None:
    """An array whose shape is known, perhaps by the header of a file."""
    if kept.shown is not None:
        return kept.shown if kept.shown.shape else None
    if kept.kind in {ContentKind.OBJECTS, ContentKind.BLOB, ContentKind.TEXT, ContentKind.SMALL}:
        return None
    *shape, item = kept.size.factors or ("",)
    return ShapedArray(tuple(one if isinstance(one, int) else str(one) for one in shape), str(item), "numpy") if shape and isinstance(item, int) else None


def _size(sample: Sample) -> SizeProduct | None:
    arrays = [one for one in sample.arrays if one is not None and one.exact is not None and one.shape is not None and min(certain(one.shape), default=0) >= 0]
    if not arrays or len(arrays) < len(sample.arrays):
        return None
    parts = [SizeProduct((*(side for side in one.shape or () if isinstance(side, int)), one.item or 0)) for one in arrays]
    return parts[0] if len(parts) == 1 else SizeProduct((Sum(f"({' + '.join(map(str, parts))})", sum(one.exact or 0 for one in arrays)),))


def samples_in(sources: Sequence[BudgetDataset]) -> object:
    """The number of samples of datasets: the first dimension of the arrays that they are taken from; None where nobody knows."""
    held = (one.size.factors for source in sources for one in source.containers if one.read and one.kind in ONE_ARRAY and one.shown is None)
    return next((factors[0] for factors in held if len(factors) > 1), None)
