# ruff: noqa: D102 -- the methods are those of what it stands in for, or of the import system
"""Stand-ins for libraries that are not installed: they hand their first argument through, and refuse to make data up."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import re
import types
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


# What such a function gives cannot be guessed; what comes after would be about data that nobody has.
READING: Final = re.compile(
    r"^(i?read\w*|i?mread\w*|load\w*|open\w*|from_\w+|fetch\w*|download\w*|info|decode\w*|train_test_split|DataFrame|Series|get_dataset\w*|get_tokenizer)$"
)
CALLED: Final[dict[str, None]] = {}  # names of stand-ins that were called, in order


class NotInstalledError(RuntimeError):
    """Data from a library that is not installed is needed."""


class Entered:
    """What can be entered, as a file or a bar can."""

    __slots__ = ()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Stub(Entered):
    """Whatever a library that is not there would have under some name."""

    def __init__(self, name: str = "stand-in", *_: object, **__: object) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return named(f"{self._name}.{name}")

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        tail = self._name.rpartition(".")[2]
        CALLED[self._name.replace("()", "")] = None
        if READING.match(tail) or self._name.startswith("pandas."):
            missing(self._name)
        if tail[:1].isupper() and not self._name.endswith("()"):
            return Stub(f"{self._name}()")
        if not args:
            return next(iter(keywords.values())) if keywords and self._name.endswith("()") else Stub(f"{self._name}()")
        return args[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __getitem__(self, _key: object) -> Stub:
        return self

    def __setitem__(self, _key: object, _value: object) -> None:
        return None

    def __or__(self, _other: object) -> Stub:
        return self

    __ror__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __or__

    def __instancecheck__(self, _value: object) -> bool:
        return False

    def __subclasscheck__(self, _value: object) -> bool:
        return False

    def __mro_entries__(self, _bases: tuple[object, ...]) -> tuple[type, ...]:
        return (type("StandIn", (_base(self._name.rpartition(".")[2]),), {}),)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Stub, (self._name,))

    def __repr__(self) -> str:
        return f"<stand-in for {self._name}>"


def missing(name: str) -> NoReturn:
    """Raise what says that a library is needed."""
    raise NotInstalledError(f"{name.replace('()', '')} is needed, and {name.partition('.')[0]} is not installed")


class Lightning:
    """What a training framework's module has besides the methods of `torch.nn.Module`."""

    def log(self, *_: object, **__: object) -> None:
        return None

    log_dict = save_hyperparameters = log


class Plain:
    """A base class of no library in particular."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub(f"{type(self).__name__}.{name}")

    def __init_subclass__(cls, **_: object) -> None:
        super().__init_subclass__()


def _base(tail: str) -> type:
    from torch import nn  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module
    from torch.utils import data  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

    if tail == "LightningModule":
        return type("LightningModule", (Lightning, nn.Module), {})
    if tail.endswith("IterableDataset"):
        return data.IterableDataset
    if tail.endswith(("Dataset", "ImageFolder")):
        return data.Dataset
    if tail.endswith("DataLoader"):
        return data.DataLoader
    if tail.endswith("Sampler"):
        return data.Sampler
    if tail.endswith(("Module", "Model")) and not tail.endswith("DataModule"):
        return nn.Module
    if tail.endswith(("Error", "Exception")):
        return Exception
    return Plain


class StubModule(types.ModuleType):
    """A library, or a part of one, that is not there."""

    __path__: list[str] = []  # noqa: RUF012 -- the import system wants a list on the module
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return named(f"{self.__name__}.{name}")


def named(name: str) -> Any:
    """The stand-in for a dotted name; a few are done roughly right."""
    parts = name.split(".")
    tail = parts[-1]
    if parts[0] == "tqdm" and tail in ("tqdm", "trange", "tqdm_notebook"):
        return _Progress if tail != "trange" else lambda *args, **_: _Progress(range(*args))
    if ("transforms" in parts or parts[0] in ("albumentations", "torchvision")) and (known := TRANSFORMS.get(tail)) is not None:
        return known
    if tail.endswith(("Error", "Exception", "Warning")):
        return type(tail, (Exception,), {})
    return Stub(name)


class _Progress(Entered):
    """A progress bar that shows nothing."""

    def __init__(self, iterable: Any = (), *_: object, **__: object) -> None:
        self.iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        return iter(self.iterable if self.iterable is not None else ())

    def __len__(self) -> int:
        return len(self.iterable)

    def update(self, *_: object, **__: object) -> None:
        return None

    set_description = set_postfix = set_description_str = set_postfix_str = close = refresh = write = update


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return StubModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        del module


def spec(name: str) -> importlib.machinery.ModuleSpec:
    """How a stand-in module is made."""
    return importlib.machinery.ModuleSpec(name, _Loader(), is_package=True)


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
