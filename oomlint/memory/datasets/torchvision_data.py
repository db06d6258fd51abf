"""What the datasets of torchvision hold whose size never changes: pictures, how many, and the array that they are kept in (torchvision 0.28)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from oomlint.memory.shared.shaped import ShapedArray

_BY_TRAIN: Final = "train"  # the arguments that choose a part, behind the folder
_BY_SPLIT: Final = "split"


class TorchvisionDataset(Struct, frozen=True):
    """A dataset of torchvision: a decoded picture of it, and the place of the argument that says what becomes of that.

    ``counts`` has how many samples there are under each value of the argument ``by``, of which the first is its default. ``kept`` is one sample as the
    attribute ``data`` has it.
    """

    picture: ShapedArray
    place: int
    by: str = ""
    counts: tuple[tuple[object, int], ...] = ()
    kept: ShapedArray | None = None


def _picture(*shape: int | str) -> ShapedArray:
    return ShapedArray(shape, "uint8", "picture")


# The numbers are those of the datasets' own pages, which torchvision's documentation leads to.
_FOLDERS: Final = TorchvisionDataset(_picture("height", "width", 3), 1)  # they read pictures as RGB
_THUMBNAILS: Final = TorchvisionDataset(_picture(32, 32, 3), 2, _BY_TRAIN, ((True, 50_000), (False, 10_000)), ShapedArray((32, 32, 3), "uint8", "numpy"))
_DIGITS: Final = TorchvisionDataset(_picture(28, 28, 1), 2, _BY_TRAIN, ((True, 60_000), (False, 10_000)), ShapedArray((28, 28), "uint8", "torch"))
TORCHVISION: Final = {
    "ImageFolder": _FOLDERS,
    "ImageNet": TorchvisionDataset(_FOLDERS.picture, _FOLDERS.place, _BY_SPLIT, (("train", 1_281_167), ("val", 50_000))),
    **dict.fromkeys(("CIFAR10", "CIFAR100"), _THUMBNAILS),
    **dict.fromkeys(("MNIST", "FashionMNIST", "KMNIST"), _DIGITS),
    "QMNIST": TorchvisionDataset(_picture(28, 28, 1), 2),  # `what` may choose other parts
    "SVHN": TorchvisionDataset(
        _picture(32, 32, 3), 2, _BY_SPLIT, (("train", 73_257), ("test", 26_032), ("extra", 531_131)), ShapedArray((3, 32, 32), "uint8", "numpy")
    ),
    "STL10": TorchvisionDataset(
        _picture(96, 96, 3),
        3,
        _BY_SPLIT,
        (("train", 5_000), ("test", 8_000), ("unlabeled", 100_000), ("train+unlabeled", 105_000)),
        ShapedArray((3, 96, 96), "uint8", "numpy"),
    ),
    "USPS": TorchvisionDataset(_picture(16, 16, 1), 2, _BY_TRAIN, ((True, 7_291), (False, 2_007)), ShapedArray((16, 16), "uint8", "numpy")),
}


def torchvision_data(name: str) -> TorchvisionDataset | None:
    """What is known of the dataset that a class of torchvision makes."""
    return TORCHVISION.get(name.rpartition(".")[2]) if name.startswith("torchvision.datasets.") else None
