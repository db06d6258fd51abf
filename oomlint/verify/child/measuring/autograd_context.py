"""Runs a custom autograd function on its own: forward, backward, and then what its node still holds while the graph is kept, as by a sum of losses."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import sys
from typing import TYPE_CHECKING, Any, Final

import torch

from oomlint.verify.child.loading.tolerant_import import LoadError, load
from oomlint.verify.child.measuring import digests, handles, line_coverage, tensor_census
from oomlint.verify.child.server.exceptions import words
from oomlint.verify.child.synthesis import name_heuristics, stub_registry

if TYPE_CHECKING:
    from collections.abc import Iterator

SHAPES: Final = ([4, 8], [4, 8, 8], [4, 3, 8, 8], [8], [2, 4, 3, 8, 8])
KINDS: Final = ("number", "tensor")  # of an argument whose name says that it is a number
NUMBERS: Final = 4096  # of a result that are given back


def measure(
    path: str, root: str, cls: str, row: int, steps: int = 12, state: dict[str, Any] | None = None, asked: dict[str, list[list[int]]] | None = None
) -> dict[str, Any]:
    """Apply the function once a step and keep its node; what goes in is found unless ``state`` says it. ``asked``: rows to tell of whether they were run."""
    try:
        loaded = load(path, root)
    except (LoadError, OSError, SyntaxError, UnicodeDecodeError) as error:
        return {"ok": False, "exception": words(error)}
    function: Any = loaded.module
    for name in cls.split("."):
        function = getattr(function, name, None)
    if not (isinstance(function, type) and issubclass(function, torch.autograd.Function)):
        return {"ok": False, "exception": f"AttributeError: there is no autograd function `{cls}`"}
    errors: list[str] = []
    for candidate in [state] if state else states(function):
        try:
            torch.manual_seed(0)
            reached = handles.rows_run(functools.partial(once, function, candidate, {}, 0), path, [row])
        except Exception as error:  # noqa: BLE001 -- whatever the user's code raises
            errors.append(words(error))
            continue
        ran = _ran(function, candidate, line_coverage.Rows(os.path.realpath(root), asked), os.path.realpath(path))
        told = {"assumed": loaded.assumed, "stubbed": loaded.stubbed, "run": ran}
        return {"state": candidate, "reached": bool(reached), **_measured(function, candidate, steps), **told}
    return {"ok": False, "exception": errors[0] if errors else "nothing was tried"}


def _ran(function: Any, state: dict[str, Any], rows: line_coverage.Rows, path: str) -> dict[str, list[bool]]:
    sys.settrace(rows.trace)
    try:
        once(function, state, {}, 0)
    finally:
        sys.settrace(None)
    return rows.run(path, ())


def _measured(function: Any, state: dict[str, Any], steps: int) -> dict[str, Any]:
    kept: list[Any] = [None] * steps  # allocated beforehand
    lines: list[str] = []
    numbers: dict[str, list[float]] = {}
    leaves: dict[str, torch.Tensor] = {}
    growth = tensor_census.StepGrowth(steps + 2)
    try:
        with growth:
            for step in range(steps):
                growth.step()
                kept[step] = once(function, state, leaves, step)[0]
            growth.step()
        kept.clear()
        for step in range(2):
            _, outputs, gradients = once(function, state, leaves, step)
            for name, value in (("outputs", outputs), ("gradients", gradients)):
                title = f"{name} of step {step}"
                lines.append(f"{title}: {digests.digest(value)} ({digests.describe(value)})")
                numbers[title] = [item for part in tensor_census.tensors(value) for item in part.detach().double().reshape(-1)[:NUMBERS].tolist()]
    except Exception as error:  # noqa: BLE001 -- as above
        return {"ok": False, "exception": words(error)}
    printed = {"digest": "", "text": ""}
    columns = {"deltas": growth.deltas(), "saved_bytes": growth.column("saved")[1:], "result": lines, "numbers_by": numbers}
    return {"ok": True, "steps": steps, "exception": None, "printed": printed, "generators": digests.generators(), **columns}


def once(function: Any, state: dict[str, Any], leaves: dict[str, torch.Tensor], step: int) -> tuple[Any, Any, list[torch.Tensor | None]]:
    """Forward and backward: the node of the loss, the outputs, and the gradients of the inputs. The graph holds the leaves: they are the same in each step."""
    arguments: list[Any] = []
    for name, value in state["arguments"]:
        if not isinstance(value, list):
            arguments.append(value)
            continue
        leaf = leaves.setdefault(name, torch.zeros(value, requires_grad=True))
        with torch.no_grad():
            leaf.copy_(stub_registry.tensor(name, {"shape": value, "dtype": "float32"}, [], step))
        leaf.grad = None
        arguments.append(leaf * 1)  # as what a layer before it gives: nothing else holds it
    outputs = function.apply(*arguments)
    del arguments
    parts = [part for part in tensor_census.tensors(outputs) if part.is_floating_point() and part.requires_grad]
    if not parts:
        raise ValueError("the function gives nothing that has a gradient")
    loss = torch.stack([part.sum() for part in parts]).sum()
    loss.backward()
    return loss.grad_fn, tuple(part.detach().clone() for part in parts), [leaf.grad for leaf in leaves.values()]


def states(function: Any) -> Iterator[dict[str, Any]]:
    """What may go in: tensors of one shape, numbers where the names say so."""
    separate = function.setup_context is not torch.autograd.Function.setup_context
    parameters = list(inspect.signature(function.forward).parameters.values())[0 if separate else 1 :]
    asked = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    named = {item.name: spec["value"] for item in asked if (spec := name_heuristics.scalar(item.name)) and spec["kind"] == "const"}
    for kind, shape in itertools.product(KINDS if named else KINDS[1:], SHAPES):
        given: list[tuple[str, Any]] = []
        for item in asked:
            if item.default is not item.empty:
                break
            given.append((item.name, named[item.name] if kind == "number" and item.name in named else shape))
        yield {"arguments": given}
