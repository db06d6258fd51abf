"""Stand-ins that do something: models, loaders, loss functions, optimizers, and objects with whatever is asked of them."""

from __future__ import annotations

import os
import pathlib
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn
from torch.utils import data

from oomlint.verify.child.loading.stubs import Entered
from oomlint.verify.child.measuring.tensor_census import tensors
from oomlint.verify.child.synthesis import deferred_value, name_heuristics, stub_optimizer, stub_registry
from oomlint.verify.child.synthesis.stub_registry import Book

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.verify.child.synthesis.name_heuristics import Spec

HOOKING: Final = re.compile(r"register_\w*hook$")


class Stubs(Book):
    """The stand-ins of one run."""

    def make(self, path: str, role: str, inputs: tuple[torch.Tensor, ...] = ()) -> Any:
        """A new stand-in for a path; what a model gives depends on its inputs."""
        spec = self.spec(path, role)
        self.touch(path)
        if spec is None:
            return deferred_value.late(self, path, role, inputs)
        part = "leaf" if role == "batch" else role
        match spec["kind"]:
            case "const" | "path" as kind:
                value = spec["value"]
                if isinstance(value, str) and name_heuristics.FOLDER.search(self.name(path)):
                    os.makedirs(value, exist_ok=True)  # programs write into such; the current folder is a copy
                if type(value) is int and name_heuristics.STEPS.search(self.name(path)):
                    value = max(value, self.steps)  # it may end the loop
                return pathlib.Path(value) if kind == "path" else value
            case "tensor":
                computed = role == "output" or spec.get("learns", False)
                return self.output(path, spec, inputs) if computed else stub_registry.tensor(path, spec, [self.batch] if part == "leaf" else [])
            case "strings":
                return [f"{self.name(path) or 'text'}{index}" for index in range(self.batch)]
            case "tuple" | "list" as kind:
                children = [self.make(f"{path}[{index}]", part, inputs) for index in range(spec["n"])]
                return tuple(children) if kind == "tuple" else children
            case "dict":
                return Learning(self, path, part, inputs)
            case "loader":
                return loader(self, path)
            case "device":
                return torch.device(self.device)
            case "model":
                self.modules.append(model := StubModel(self, path))
                return model
            case "criterion":
                return Criterion(self, path)
            case "optimizer":
                return stub_optimizer.Optimizer(self, path)
            case "scaler":
                return torch.amp.GradScaler("cpu", enabled=False)
            case _:
                return Thing(self, path, "config" if spec.get("config") else part, inputs)


class Thing(Entered):
    """An object with whatever is asked of it. It can be called, entered, and gone through as if it were empty."""

    def __init__(self, book: Book, path: str, role: str, inputs: tuple[torch.Tensor, ...] = ()) -> None:
        self.__dict__["_stand_in"] = book, path, role, inputs

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        book, path, role, inputs = self.__dict__["_stand_in"]
        if role in ("leaf", "output"):
            book.add(path, "keys", [name])
        if role not in ("leaf", "output") and name in stub_optimizer.STEPPING and stub_optimizer.optimizes(self, name, sys._getframe(1)):  # noqa: SLF001 -- whether the caller is to call it
            return getattr(stub_optimizer.optimizer(self), name)
        if role == "member" and HOOKING.match(name):
            return getattr(book.layers.setdefault(path, StubLayer()), name)
        value = book.make(f"{path}.{name}", role, inputs) if role == "output" else book.value(f"{path}.{name}", role)
        self.__dict__[name] = value
        return value

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """It gives something computed where tensors go in."""
        book, path, role, _ = self.__dict__["_stand_in"]
        return deferred_value.call(book, path, role, args, keywords)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return int(self.__dict__["_stand_in"][0].samples)

    def __bool__(self) -> bool:
        return True

    def __contains__(self, _key: object) -> bool:
        return False

    def __getitem__(self, key: Any) -> Any:
        book, path, role, inputs = self.__dict__["_stand_in"]
        return book.make(f"{path}[{key!r}]", role, inputs)

    def __setitem__(self, key: Any, value: Any) -> None:
        return None

    def get(self, key: Any, default: Any = None) -> Any:
        """Of a mapping of options: the default, where there is one."""
        return default if default is not None else getattr(self, str(key))


class Learning(dict[Any, Any]):
    """A dictionary that has every key that is asked for."""

    def __init__(self, book: Book, path: str, role: str, inputs: tuple[torch.Tensor, ...] = ()) -> None:
        keys = book.specs[path].get("keys", ())
        super().__init__({key: book.make(f"{path}[{key!r}]", role, inputs) for key in keys})
        self._about = book, path, role, inputs

    def __missing__(self, key: Any) -> Any:
        book, path, role, inputs = self._about
        if isinstance(key, str):
            book.add(path, "keys", [key])
        self[key] = value = book.make(f"{path}[{key!r}]", role, inputs)
        return value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]


class StubLayer(nn.Module):
    """A part of a model that the program registers hooks on."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """A value of its own."""
        return value * 1


class StubModule(nn.Module):
    """A module that has whatever is asked of it."""

    def __init__(self, book: Book, path: str) -> None:
        self.__dict__["_stand_in"] = book, path  # before all else: torch asks for attributes
        super().__init__()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):
                raise
        book, path = self.__dict__["_stand_in"]
        return self._asked(book, f"{path}.{name}", name)

    def _asked(self, book: Book, path: str, _name: str) -> Any:
        """What is there under a name that torch does not know."""
        return book.value(path)


class StubModel(StubModule):
    """A module with one parameter, whose output is what the code makes of it."""

    def __init__(self, book: Book, path: str) -> None:
        super().__init__(book, path)
        self._parameters["weight"] = book.weight(f"{path}()")

    def forward(self, *args: Any, **keywords: Any) -> Any:
        """Compute an output of the shape that was found, through all layers that have hooks."""
        book, path = self.__dict__["_stand_in"]
        inputs = tuple(tensors([deferred_value.settled(item) for item in (*args, *keywords.values())]))
        spec = {"kind": "tensor", "shape": ["B", stub_registry.CLASSES, stub_registry.CLASSES], "dtype": "float32"}
        passed = [layer(book.output(f"{name}()", spec, inputs)).mean() for name, layer in book.layers.items() if name.startswith(f"{path}.")]
        return deferred_value.call(book, path, "output", (*args, *passed), keywords)

    def _asked(self, book: Book, path: str, name: str) -> Any:
        if name == "module":
            return self
        spec = book.specs.get(path) or name_heuristics.scalar(name)
        if spec is None or spec["kind"] != "const" or not isinstance(spec["value"], (int, float)):
            value = Thing(book, path, "member") if spec is None or spec["kind"] == "const" else book.value(path, "any")
        else:
            value = spec["value"]
            book.learn(path, spec)
        self.__dict__[name] = value
        return value

    def load_state_dict(self, *_: Any, **__: Any) -> Any:
        """A checkpoint does not fit a stand-in."""
        return super().load_state_dict(self.state_dict())


class Criterion(StubModule):
    """A scalar that depends on all tensors that go in."""

    def forward(self, *args: Any, **keywords: Any) -> torch.Tensor:
        """The mean of their squares."""
        book, _ = self.__dict__["_stand_in"]
        total: torch.Tensor = book.weight("criterion()").detach().sum() * 0
        for item in tensors([deferred_value.as_tensor(item) for item in (*args, *keywords.values())]):
            total = total + (item.float() ** 2).mean() if item.numel() else total
        return total


# -- loaders -------------------------------------------------------------------------------------------------------------------


class StubSamples(data.Dataset[Any]):
    """Samples of a known structure; plain data, for workers."""

    def __init__(self, tree: Spec, length: int) -> None:
        self.tree = tree
        self.length = length
        self.told: tuple[Book, str] | None = None  # of the dataset that it stands in for

    def __len__(self) -> int:
        return self.length

    def __getattr__(self, name: str) -> Any:
        told = self.__dict__.get("told")
        if told is None or name.startswith("__"):
            raise AttributeError(name)
        return told[0].value(f"{told[1]}.{name}")

    def __getstate__(self) -> dict[str, Any]:
        return {"tree": self.tree, "length": self.length, "told": None}  # a worker needs no more

    def __getitem__(self, index: int) -> Any:
        return sample(self.tree, index)


def sample(tree: Spec, index: int) -> Any:
    """One sample."""
    match tree["kind"]:
        case "tensor":
            return stub_registry.tensor(tree["path"], tree, [], index)
        case "strings":
            return f"{tree['name'] or 'text'}{index}"
        case "const":
            return tree["value"]
        case "tuple" | "list":
            return tuple(sample(part, index) for part in tree["parts"])
        case _:
            return {part["name"]: sample(part, index) for part in tree["parts"]}


class StubRecord:
    """A batch with attributes."""

    def __init__(self, items: dict[str, Any]) -> None:
        self.__dict__.update(items)

    def to(self, *_: Any, **__: Any) -> StubRecord:
        """All is where it has to be."""
        return self

    def cuda(self, *_: Any, **__: Any) -> StubRecord:
        """As above."""
        return self

    def __getitem__(self, key: str) -> Any:
        return self.__dict__[key]


class Collate:
    """The default way to make a batch; objects for those that have attributes."""

    def __init__(self, tree: Spec) -> None:
        self.tree = tree

    def __call__(self, samples: list[Any]) -> Any:
        """Make a batch."""
        return _shaped(self.tree, data.default_collate(samples))


def _shaped(tree: Spec, value: Any) -> Any:
    match tree["kind"]:
        case "object":
            return StubRecord({part["name"]: _shaped(part, value[part["name"]]) for part in tree["parts"]})
        case "tuple" | "list":
            return [_shaped(part, item) for part, item in zip(tree["parts"], value, strict=True)]
        case "dict":
            return {part["name"]: _shaped(part, value[part["name"]]) for part in tree["parts"]}
        case "const":
            return tree["value"]
        case _:
            return value


class Sequence(data.SequentialSampler):
    """In order, with the method of distributed samplers."""

    def set_epoch(self, _epoch: int) -> None:
        """Nothing depends on it."""


class StubLoader(data.DataLoader[Any]):
    """A real loader over synthesised samples. What else is asked of it is replaced by a stand-in."""

    def __getattr__(self, name: str) -> Any:
        about = self.__dict__.get("_stand_in")
        if about is None or name.startswith("_"):
            raise AttributeError(name)
        return about[0].value(f"{about[1]}.{name}")


def unsettled(book: Book, path: str) -> Iterator[Any]:
    """Batches that take their structure from use."""
    book.batches.add(f"{path}[*]")
    for _ in range(book.steps):
        yield book.make(f"{path}[*]", "batch")


def loader(book: Book, path: str) -> Any:
    """A loader, whose batches take their structure from use as long as it is not known."""
    tree = book.tree(f"{path}[*]")
    samples = StubSamples(tree or {"kind": "tensor", "path": path, "shape": [], "dtype": "float32"}, book.samples)
    workers = book.workers if tree else 0
    made = StubLoader(samples, book.batch, sampler=Sequence(samples), num_workers=workers, collate_fn=Collate(samples.tree))
    made.__dict__["_stand_in"] = book, path
    if tree is None:
        made.__dict__["_unsettled"] = book, path
        samples.told = book, f"{path}.dataset"
    return made
