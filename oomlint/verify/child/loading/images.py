# ruff: noqa: D102 -- the methods are those of what it stands in for, or of the import system
"""Image functions that do more than hand their argument through, roughly right, for where torchvision or albumentations is not installed."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Compose:
    """One after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], *_: object, **__: object) -> None:
        self.transforms = transforms

    def __call__(self, value: Any = None, **keywords: Any) -> Any:
        if value is None and "image" in keywords:
            return {**keywords, "image": reduce(lambda done, step: step(done), self.transforms, keywords["image"])}
        return reduce(lambda done, step: step(done), self.transforms, value)


class ToTensor:
    """Channels first, 0 to 1 where it was bytes."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __call__(self, value: Any) -> Any:
        import numpy as np  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module
        import torch  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

        if isinstance(value, torch.Tensor):
            raise TypeError("pic should be PIL Image or ndarray. Got <class 'torch.Tensor'>")
        array = np.asarray(value)
        if array.ndim == len("hw"):
            array = array[:, :, None]
        if array.ndim != len("hwc"):
            raise ValueError(f"pic should be 2/3 dimensional. Got {array.ndim} dimensions.")
        tensor = torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))
        return tensor.float() / 255 if array.dtype == np.uint8 else tensor


TRANSFORMS: Final[dict[str, Any]] = {"Compose": Compose, "ToTensor": ToTensor, "ToTensorV2": ToTensor}  # all others hand on what they are given
