"""Stand-ins for values of training code: one book of them by access path, what is known of each, and what a run has learned.

A value that nothing is known of is *late*: it takes its kind from the first use that is made of it
(:mod:`oomlint.verify.child.synthesis.deferred_value`), and the book remembers that kind for the next run.
A spec is plain JSON, ``{"kind": "tensor", "shape": [8], "dtype": "float32"}``. The kinds: const, path, tensor, strings,
tuple, list, dict, object, loader, model, criterion, optimizer, scaler, device.

A role says what a value is part of, for where its use leaves a choice: "config" (options), "batch" (what a loader gives), "leaf" (a part of that),
"output" (what a model gives), "any".
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import torch

from oomlint.verify.child.synthesis import name_heuristics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from oomlint.verify.child.synthesis.name_heuristics import Spec

CLASSES = 8  # size of the last dimension of what models give, and of features


class Book:
    """The stand-ins of one run, but for how they are made: see :class:`oomlint.verify.child.synthesis.stub_objects.Stubs`."""

    def __init__(
        self, specs: Mapping[str, Spec], *, batch: int, steps: int, workers: int = 0, options: Mapping[str, Any] | None = None, uneven: bool = False
    ) -> None:
        self.specs: dict[str, Spec] = {path: dict(spec) for path, spec in specs.items()}
        self.learned: dict[str, Spec] = {}
        self.batch = batch
        self.steps = steps
        self.workers = workers
        self.uneven = uneven  # the last batch of a loader is smaller than the others
        self.options = options or {}  # defaults of the program's command line, by name
        self.modules: list[torch.nn.Module] = []  # all that an optimizer may have to step
        self.steppers: list[str] = []  # paths of optimizers
        self.owners: dict[str, str] = {}  # models by the optimizers that have their parameters, both by name
        self.layers: dict[str, torch.nn.Module] = {}  # parts of models that hooks are registered on, by path
        self.batches: set[str] = set()  # paths of what loaders have given
        self.device = "cpu"
        self.touched: list[str] = []  # paths in the order of their last use
        self._values: dict[str, Any] = {}
        self._weights: dict[str, torch.nn.Parameter] = {}

    @property
    def short(self) -> int:
        """The size of the last batch. One sample alone would be too few for layers that take a mean over the batch."""
        return self.batch - 1 if self.uneven and self.batch > 2 else self.batch  # noqa: PLR2004 -- see above

    @property
    def samples(self) -> int:
        """How many a loader goes over."""
        return self.batch * (self.steps - 1) + self.short

    # -- what is known -----------------------------------------------------------------------------------------------------

    def name(self, path: str) -> str:
        """The name that stands for a path."""
        return name_heuristics.variable(self.specs, path)

    def learn(self, path: str, spec: Spec) -> None:
        """Remember what a path has turned out to be."""
        self.specs[path] = spec
        self.learned[path] = spec

    def add(self, path: str, field: str, values: Iterable[str]) -> None:
        """Remember more keys of a dictionary, or names of the parts of a tuple."""
        spec = dict(self.specs[path])
        spec[field] = [*dict.fromkeys([*spec.get(field, ()), *values])]
        self.learn(path, spec)

    def touch(self, path: str) -> None:
        """Note that a path is in use: it may be what fails next."""
        if path in self.touched:
            self.touched.remove(path)
        self.touched.append(path)

    def spec(self, path: str, role: str) -> Spec | None:
        """What is known of a path or can be guessed from its name; ``None`` where its use has to tell."""
        if path in self.specs:
            return self.specs[path]
        name = self.name(path)
        if role in ("batch", "output", "leaf"):
            return None
        if role == "config" and name in self.options and name not in name_heuristics.SMALL and "batch" not in name:
            found: Spec | None = {"kind": "const", "value": self.options[name]}
        else:
            found = name_heuristics.of_name(name, role) if name else None
        if found:
            self.learn(path, found)
        return found

    def settle(self) -> None:
        """Take batches that nothing has looked into for tensors: in the next run a real loader can make them."""
        for path in sorted(self.batches - self.specs.keys()):
            self.leaf(path)

    # -- values ------------------------------------------------------------------------------------------------------------

    def value(self, path: str, role: str = "any") -> Any:
        """The stand-in for a path, always the same one."""
        if path not in self._values:
            self._values[path] = self.make(path, role)
        self.touch(path)
        return self._values[path]

    def make(self, path: str, role: str, inputs: tuple[torch.Tensor, ...] = ()) -> Any:
        """A new stand-in for a path; what a model gives depends on its inputs."""
        raise NotImplementedError

    def tree(self, path: str) -> Spec | None:
        """All that is known of a batch, for its samples to be made in workers too; ``None`` where its structure is not known."""
        spec = self.specs.get(path)
        if spec is None:
            return None
        name = self.name(path)
        match spec["kind"]:
            case "tuple" | "list":
                parts = [self.leaf(f"{path}[{index}]") for index in range(spec["n"])]
            case "dict" | "object":
                parts = [self.leaf(f"{path}['{key}']" if spec["kind"] == "dict" else f"{path}.{key}") for key in spec.get("keys", ())]
            case _:
                parts = []
        return {**spec, "path": path, "name": name, "parts": parts}

    def leaf(self, path: str) -> Spec:
        """The tree of a part of a batch; one that was never used is guessed."""
        if path not in self.specs:
            self.learn(path, name_heuristics.of_leaf(self.name(path)))
        return self.tree(path) or {}

    # -- tensors -----------------------------------------------------------------------------------------------------------

    def weight(self, path: str) -> torch.nn.Parameter:
        """A parameter for what a stand-in that is no module computes."""
        root = path.partition("(")[0].partition("[")[0]
        if root not in self._weights:
            self._weights[root] = torch.nn.Parameter(torch.full((4,), 0.25))
        return self._weights[root]

    def output(self, path: str, spec: Spec, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """What a model gives: values in (0, 1), differentiable in its parameter and its inputs. A "B" in the shape is the batch size of the inputs."""
        batch = next((item.shape[0] for item in inputs if item.dim() > 0), self.batch)
        shape = [batch if size == "B" else size for size in spec["shape"]]
        noise = tensor(path, {**spec, "shape": shape, "dtype": "float32"}, [])
        weight: torch.Tensor = self.weight(path)
        for item in inputs:
            if item.is_floating_point() and item.numel():
                weight = weight + item.mean()
        out = torch.sigmoid(noise * weight.sum())
        if spec["dtype"] == "float32":
            return out
        return (out > out.mean()).to(getattr(torch, spec["dtype"]))


def tensor(path: str, spec: Spec, lead: list[int], index: int = 0) -> torch.Tensor:
    """Numbers that depend on the path and the index alone: floats in (0, 1), integers below ``high``."""
    generator = torch.Generator().manual_seed(zlib.crc32(path.encode()) + index)
    shape = [*lead, *(size if isinstance(size, int) else 1 for size in spec["shape"])]
    match spec["dtype"]:
        case "float32":
            return torch.rand(shape, generator=generator)
        case "bool":
            return torch.rand(shape, generator=generator) > 0.5  # noqa: PLR2004 -- a half of them
        case dtype:
            return torch.randint(0, spec.get("high", 2), shape, generator=generator).to(getattr(torch, dtype))
