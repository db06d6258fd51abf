# ruff: noqa: D102 -- the methods are those of what it stands in for, or of the import system
"""The commonest image functions, roughly right, for where torchvision or OpenCV are not installed."""

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


class Normalize:
    """Less the mean, by the deviation, a channel each."""

    def __init__(self, mean: Any = 0.5, std: Any = 0.5, *_: object, **__: object) -> None:
        self.mean, self.std = mean, std

    def __call__(self, value: Any) -> Any:
        import torch  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

        if not isinstance(value, torch.Tensor):
            return value
        mean, std = (torch.as_tensor(item, dtype=value.dtype).reshape(-1, 1, 1) for item in (self.mean, self.std))
        return (value - mean) / std


class Resize:
    """To a size: height and width, or the shorter side."""

    def __init__(self, size: Any = 32, *_: object, **__: object) -> None:
        self.size = size if isinstance(size, int) else next(iter(size)) if len(tuple(size)) == 1 else tuple(size)

    def __call__(self, value: Any) -> Any:
        import torch  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

        if isinstance(value, torch.Tensor):
            height, width = self._wanted(value.shape[-2], value.shape[-1])
            return torch.nn.functional.interpolate(value.float().reshape(1, -1, *value.shape[-2:]), (height, width)).reshape(*value.shape[:-2], height, width)
        if hasattr(value, "resize") and hasattr(value, "convert"):
            height, width = self._wanted(value.height, value.width)
            return value.resize((width, height))
        return value

    def _wanted(self, height: int, width: int) -> tuple[int, int]:
        if not isinstance(self.size, int):
            return int(self.size[0]), int(self.size[1])
        short = min(height, width)
        return round(height * self.size / short), round(width * self.size / short)


class Crop(Resize):
    """Any crop: to its size, whatever the picture's."""

    def _wanted(self, height: int, width: int) -> tuple[int, int]:
        del height, width
        return (self.size, self.size) if isinstance(self.size, int) else (int(self.size[0]), int(self.size[1]))


class Same:
    """A change of colours or a flip, not done."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __call__(self, value: Any = None, *_: object, **__: object) -> Any:
        return value


class Lambda(Same):
    """The user's own function."""

    def __init__(self, function: Callable[[Any], Any], *_: object, **__: object) -> None:
        super().__init__()
        self.function = function

    def __call__(self, value: Any = None, *_: object, **__: object) -> Any:
        return self.function(value)


class ToPicture(Same):
    """A tensor or an array as a picture of Pillow's."""

    def __call__(self, value: Any = None, *_: object, **__: object) -> Any:
        import numpy as np  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module
        from PIL import Image  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

        array = np.asarray(value)
        if hasattr(value, "permute"):
            array = (np.asarray(value).transpose(1, 2, 0) * 255).astype("uint8")
        return Image.fromarray(array.squeeze())


TRANSFORMS: Final[dict[str, Any]] = {
    "Compose": Compose,
    "ToTensor": ToTensor,
    "ToTensorV2": ToTensor,
    "Normalize": Normalize,
    "Resize": Resize,
    "Scale": Resize,
    "Lambda": Lambda,
    "ToPILImage": ToPicture,
    **dict.fromkeys(("CenterCrop", "RandomCrop", "RandomResizedCrop", "RandomSizedCrop"), Crop),
    **dict.fromkeys(
        "RandomHorizontalFlip RandomVerticalFlip ColorJitter RandomRotation RandomGrayscale GaussianBlur RandomErasing RandomAffine RandomApply".split(), Same
    ),
}


def imread(path: Any, flags: int = 1, *_: object) -> Any:
    """A picture as bytes, blue first; ``None`` where there is none, as OpenCV does."""
    import numpy as np  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module
    from PIL import Image  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

    try:
        picture = Image.open(path)
    except OSError:
        return None
    if flags == 0:
        return np.asarray(picture.convert("L"))
    return np.ascontiguousarray(np.asarray(picture.convert("RGB"))[:, :, ::-1])


def resize(array: Any, size: Any, *_: object, **__: object) -> Any:
    """Nearest neighbours; the size is width and height."""
    import numpy as np  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

    width, height = int(size[0]), int(size[1])
    rows = np.arange(height) * array.shape[0] // max(height, 1)
    columns = np.arange(width) * array.shape[1] // max(width, 1)
    return np.ascontiguousarray(array[rows][:, columns])


def convert(array: Any, code: Any = None, *_: object) -> Any:
    """Blue first to red first; grey as the mean."""
    import numpy as np  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

    if code == GREY:
        return array.mean(axis=2).astype(array.dtype) if array.ndim == len("hwc") else array
    return np.ascontiguousarray(array[:, :, ::-1]) if array.ndim == len("hwc") else np.repeat(array[:, :, None], 3, axis=2)


GREY: Final = 6
CV2: Final[dict[str, Any]] = {
    "imread": imread,
    "resize": resize,
    "cvtColor": convert,
    "COLOR_BGR2GRAY": GREY,
    "COLOR_RGB2GRAY": GREY,
    "IMREAD_GRAYSCALE": 0,
    "IMREAD_COLOR": 1,
    "setNumThreads": lambda *_: None,
    "INTER_LINEAR": 1,
}
