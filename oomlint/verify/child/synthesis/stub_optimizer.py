"""A stand-in for an optimizer: it makes real steps, so that a program without them does not look the same."""

from __future__ import annotations

import dis
import re
import sys
import weakref
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from oomlint.verify.child.synthesis import deferred_value, name_heuristics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from oomlint.verify.child.synthesis.stub_registry import Book

OWN: Final = frozenset(
    "param_groups state defaults grad_scale found_inf foreach fused differentiable capturable maximize".split()
)  # that torch asks an optimizer for
STEPPING: Final = frozenset({"zero_grad", "param_groups", "step"})  # asked of an optimizer


_MADE: Final = re.compile(
    r"([\w.]+)\s*=\s*(?:[\w.]*\boptim\.\w+|\w*(?:SGD|Adam\w*|RMSprop|Optimizer))\(\s*(?:params\s*=\s*)?([\w.]+?)(?:\.module)?\.parameters\(\)"
)
_AFFIX: Final = re.compile(r"optim(?:izer)?|opt|net|model|solver|_|\d")


def owners(text: str) -> dict[str, str]:
    """Which model's parameters an optimizer of the program has, both by their last names: ``opt_g = Adam(G.parameters())``."""
    return {name_heuristics.last(made): name_heuristics.last(model) for made, model in _MADE.findall(text)}


class Optimizer(torch.optim.SGD):  # type: ignore[misc] # as above
    """Plain gradient descent over the parameters of the model that it is made of in the program, or that has its name, else of all models of the run.

    Also of those that come later, and of the program's own that are called.
    """

    def __init__(self, book: Book, path: str) -> None:
        self.__dict__["_stand_in"] = book, path
        called: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # weak: what the program lets go has to go
        self.__dict__["_called"] = called
        book.steppers.append(path)
        super().__init__([nn.Parameter(torch.zeros(1))], lr=0.01)
        nn.modules.module.register_module_forward_pre_hook(lambda module, _: called.add(module))

    def _own(self) -> Iterator[nn.Parameter]:
        """Parameters of the program's own models that have gradients."""
        if self._of() is not None:
            return
        known = {id(item) for group in self.param_groups for item in group["params"]}
        for module in list(self.__dict__["_called"]):
            for item in module.parameters(recurse=False):
                if id(item) not in known and item.grad is not None:
                    known.add(id(item))
                    yield item

    def _of(self) -> nn.Module | None:
        """The one model that it steps; ``None`` where that is not known."""
        book, path = self.__dict__["_stand_in"]
        return model_of(book, name_heuristics.last(path))

    def _adopt(self) -> None:
        book, _ = self.__dict__["_stand_in"]
        known = {id(item) for group in self.param_groups for item in group["params"]}
        own = self._of()
        for module in book.modules if own is None else [own]:
            for parameter in module.parameters():
                if id(parameter) not in known and parameter.requires_grad:
                    known.add(id(parameter))
                    self.param_groups[0]["params"].append(parameter)

    def zero_grad(self, *args: Any, **keywords: Any) -> None:
        """Of all models."""
        self._adopt()
        super().zero_grad(*args, **keywords)
        for item in self._own():
            item.grad = None

    def step(self, *args: Any, **_: Any) -> Any:
        """Of all models; arguments of other optimizers are dropped."""
        self._adopt()
        out = super().step(*[item for item in args if callable(item)])
        with torch.no_grad():
            for item in self._own():
                if item.grad is not None and item.grad.layout is torch.strided:
                    item.sub_(item.grad, alpha=0.01)
        return out

    def load_state_dict(self, *_: Any) -> None:
        """A checkpoint does not fit a stand-in."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in OWN or "_stand_in" not in self.__dict__:
            raise AttributeError(name)
        if "step" in name:
            return self.step
        book, path = self.__dict__["_stand_in"]
        return book.value(f"{path}.{name}")


def model_of(book: Book, name: str) -> nn.Module | None:
    """The one stand-in for a model that an optimizer of a name steps, where there are several of both."""
    if len(book.steppers) < 2:  # noqa: PLR2004 -- one steps all there is
        return None
    models = {name_heuristics.last(pair[1]): module for module in book.modules if (pair := vars(module).get("_stand_in"))}
    if len(models) < len(book.modules) or len(models) < 2:  # noqa: PLR2004 -- as above
        return None
    made = models.get(book.owners.get(name, ""))
    own = _AFFIX.sub("", name.lower())
    alike = [module for other, module in models.items() if own and (bare := _AFFIX.sub("", other.lower())) and (bare.startswith(own) or own.startswith(bare))]
    return made or (alike[0] if len(alike) == 1 else None)


def shared(book: Book, models: int) -> list[str]:
    """Optimizers that step all models, as it is not known which is whose: where there are several of both."""
    names = list(dict.fromkeys(name_heuristics.last(path) for path in book.steppers))
    return [name for name in names if model_of(book, name) is None] if min(len(names), models) > 1 else []


def optimizer(thing: Any) -> Optimizer:
    """The optimizer that an object has turned out to be: without one its steps would do nothing, and a program without them would look the same."""
    book, path, _, _ = thing.__dict__["_stand_in"]
    made: Optimizer = thing.__dict__.setdefault("_optimizer", None) or Optimizer(book, path)
    thing.__dict__["_optimizer"] = made
    return made


def optimizes(thing: Any, name: str, frame: FrameType) -> bool:
    """Whether an object is an optimizer: it zeroes gradients, or makes a step after a backward pass. A number may be called `step` as well."""
    book, path, _, _ = thing.__dict__["_stand_in"]
    if name != "step" or "_optimizer" in thing.__dict__:
        return True
    if frame.f_code is deferred_value.Late.__getattr__.__code__ and frame.f_back is not None:
        frame = frame.f_back
    at = next((item for item in dis.get_instructions(frame.f_code) if item.offset == frame.f_lasti), None)
    method = at is not None and (at.opname == "LOAD_METHOD" or (at.opname == "LOAD_ATTR" and sys.version_info >= (3, 12) and bool((at.arg or 0) & 1)))
    called = method or str(frame.f_globals.get("__name__")).startswith("torch.")
    learned = any(item.grad is not None for module in book.modules for item in module.parameters())
    return called and learned and not name_heuristics.STEPPED.search(name_heuristics.last(path).lower())
