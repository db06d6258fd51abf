"""Finds stand-ins with which a loop of the user's program runs, and measures what it keeps from step to step."""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import os
import tempfile
from array import array
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import torch

from oomlint.verify import ast_names, process_tree
from oomlint.verify.child.driving import side_effects, torch_patches
from oomlint.verify.child.driving.piece_runner import Outcome, Program, run
from oomlint.verify.child.loading.tolerant_import import LoadError
from oomlint.verify.child.measuring import digests, tensor_census
from oomlint.verify.child.search import loop_search
from oomlint.verify.child.server.exceptions import swapped, words
from oomlint.verify.child.slicing import slicer
from oomlint.verify.child.synthesis import deferred_value, name_heuristics, stub_objects, stub_optimizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LONG: Final = 4.0  # seconds of processor time of a trial that is to come to all rows
EQUAL: Final = "batches of equal size: the loop does not bear a last one that is smaller"
OPEN: Final = "open stand-ins in"  # begins the line of a part that holds one
SHAPES: Final = (["B", 8], ["B", 8, 8], ["B", 3, 8, 8], [8], [2, "B", 3, 8, 8])  # of what a custom autograd function is applied to
PRINTED: Final = 16384  # characters of what the program printed


def find(  # noqa: PLR0913, PLR0917 - from JSON, each by its name
    path: str,
    root: str,
    function: str,
    row: int,
    known: dict[str, Any],
    seconds: float = 4.0,
    trials: int = 200,
    opened: Sequence[str] = (),
    taken: Sequence[tuple[str, bool]] = (),
    context: str = "",
) -> dict[str, Any]:
    """Search for a state with which the loop around a row goes over its batches. ``function``: the outermost one around the row, empty for none.

    Where it runs into a graph that an earlier step has freed, whatever goes in, none is found; the answer tells the state with which it does.
    ``opened``: parameters that get a stand-in in place of their default. ``taken``: conditions of branches that are taken or not, whatever they say.
    """
    program = _program(path, root, function, row, {}, context)
    if isinstance(program, str):
        return {"found": False, "reason": program.partition(": ")[2] or program}
    loaded = program.loaded
    specs = {name: name_heuristics.of_name(name, "any") or {"kind": "object"} for name in opened} | _given(known)
    state: dict[str, Any] = {"specs": specs, "globals": [], "skips": [], "open": [*opened], "force": False, "loader": False}
    if taken:
        state["taken"] = [[*item] for item in taken]
    found = loop_search.search(program, _applied(program, state) if program.inputs else state, seconds, trials)
    state, report = found.state or found.failing or {}, found.report
    if not state:
        return {"found": False, "reason": found.reason}
    assumed = [*loaded.assumed, *report["branches"], *_words(state, report)]
    if found.state is not None:
        uneven = {**state, "uneven": True}
        if loop_search.good(loop_search.trial(program, uneven)):
            state = uneven
        else:
            assumed.append(EQUAL)
    return {
        "found": found.state is not None,
        "reason": found.reason,
        "state": state,
        "whole": bool(function) and not report["left_out"] and not report["failures"] and not report["branches"] and not state["loader"],
        "assumed": list(dict.fromkeys(assumed)),
        "stubbed": list(loaded.stubbed),
        "skipped": [*loaded.skipped, *report["failures"], *report["left_out"]],
        "reached": report["marks"] > 0,
    }


def _applied(program: Program, state: dict[str, Any]) -> dict[str, Any]:
    """The state with tensors of one shape for what a custom autograd function is applied to, and with numbers where the names say so and that works."""
    numbers = {name: spec for name in program.inputs if (spec := name_heuristics.scalar(name))}
    states = []
    for given, shape in itertools.product([numbers, {}] if numbers else [{}], SHAPES):
        tensors = {name: {"kind": "tensor", "shape": shape, "dtype": "float32", "learns": True} for name in program.inputs}
        states.append({**state, "specs": {**state["specs"], **tensors, **given}})
    return next((one for one in states if loop_search.good(loop_search.trial(program, one))), states[0])


def measure(  # noqa: PLR0913, PLR0917 - from JSON, each by its name
    path: str,
    root: str,
    function: str,
    row: int,
    state: dict[str, Any],
    steps: int = 12,
    simulate_device: bool = False,  # noqa: FBT001, FBT002 -- from JSON, by its name
    workers: int = 0,
    epochs: int = 1,
    release: bool = False,  # noqa: FBT001, FBT002 -- as above
    asked: dict[str, list[list[int]]] | None = None,
    context: str = "",
) -> dict[str, Any]:
    """Run the loop with the stand-ins that were found, and count what is alive before each step and after the last one.

    ``release``: no backward pass keeps its graph, whatever it is asked for. ``asked``: by file, rows of which the answer says whether they were run.
    """
    program = _program(path, root, function, row, state, context)
    if isinstance(program, str):
        return {"ok": False, "exception": program, "steps": 0}
    if context:  # the row is not in the loop
        asked = {**(asked or {}), path: [*(asked or {}).get(path, []), [row, row, -1]]}
    ran = _rows_run(program, state, steps, epochs, asked)
    if ran is None:
        return {"ok": False, "exception": "TimeoutError: a short run takes too long", "steps": 0}
    left = side_effects.Left(program)
    meter = Meter(steps * epochs + 1)
    with Printed() as printed:
        with _device(simulate_device), _releasing(release), contextlib.redirect_stdout(printed), meter.growth:
            outcome = run(program, state, steps=steps, workers=workers, epochs=epochs, device=simulate_device, reading=meter.read, counts=meter.counts)
        text = printed.text()
    generators = digests.generators()
    result, numbers = results(outcome)
    guide = outcome.guide
    return {
        "ok": outcome.error is None and guide.taken > 0,
        "steps": guide.taken,
        "reached": ran[path][-1] if context else guide.marks > 0,
        "sharing": stub_optimizer.shared(outcome.book, len(outcome.modules)),
        "exception": None if outcome.error is None else f"{words(outcome.error)}{_place(outcome)}",
        **meter.columns(),
        "result": result,
        "numbers_by": numbers,
        "printed": {"digest": digests.digest(text), "text": text[-PRINTED:]},
        "generators": generators,
        "left": left.parts(outcome),
        "uses": side_effects.uses(program.tree),
        "failures": [*guide.failures.values()],
        "left_out": [*guide.left_out],
        "passed": sorted(guide.passed),
        "omitted": sorted(guide.omitted),
        "missing": _missing(program, state, outcome),
        "run": ran,
        "program": not outcome.piece.name,
        "cut": guide.cut,
    }


def _program(path: str, root: str, function: str, row: int, state: dict[str, Any], context: str) -> Program | str:
    """The program, imported before anything is measured; or why there is none."""
    try:
        program = Program(path, root, function, row, context)
        program.piece(state)
        program.loaded  # noqa: B018 -- a property that imports
        if "optim" in program.text:  # what optimizers import with their first use takes a second
            torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
    except (SyntaxError, slicer.SliceError, LoadError, OSError, UnicodeDecodeError) as error:
        return words(error)
    return program


def _rows_run(program: Program, state: dict[str, Any], steps: int, epochs: int, asked: dict[str, list[list[int]]] | None) -> dict[str, Any] | None:
    """Of the rows to look out for, by file, which are run; None where even a short run takes too long."""
    short = loop_search.trial(program, state, loop_search.STEPS, asked=asked)
    ran: dict[str, Any] = short.get("run") or {}
    if not all(all(rows) for rows in ran.values()):  # some are come to in later steps only
        ran = loop_search.trial(program, state, steps, LONG, epochs, asked).get("run") or ran
    return None if short.get("hung") else ran


def _missing(program: Program, state: dict[str, Any], outcome: Outcome) -> int:
    """Statements that the state leaves out and that this program does not have: they run here, and failed there."""
    constructors = {ast_names.key_of(item) for node in ast.walk(program.tree) if isinstance(node, ast.FunctionDef) for item in node.body}
    return sum(key not in constructors for key in outcome.piece.missing if key in state["skips"])


def _device(simulate: bool) -> AbstractContextManager[Any]:  # noqa: FBT001 -- the caller's own flag
    if not simulate:
        return nullcontext()
    from oomlint.verify.child.measuring import fake_cuda  # noqa: PLC0415 -- it replaces functions of torch

    return fake_cuda.Pretend()


class Printed(io.TextIOBase):
    """Takes what the program prints into a file: in memory it would grow with each step. What workers print comes in no order and is dropped."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile("w+b", buffering=0)  # noqa: SIM115 -- closed with the object
        self._process = os.getpid()

    def write(self, text: str) -> int:
        """Of this process alone."""
        if os.getpid() == self._process:
            self._file.write(text.encode("utf-8", "replace"))
        return len(text)

    def text(self) -> str:
        """All of it."""
        self._file.seek(0)
        return self._file.read().decode("utf-8")

    def close(self) -> None:
        """And the file is gone."""
        self._file.close()


def _releasing(release: bool) -> AbstractContextManager[None]:  # noqa: FBT001 -- as above
    """Have backward passes free their graphs."""
    backward = torch.autograd.backward

    def free(tensors: Any, grad_tensors: Any = None, retain_graph: Any = None, create_graph: Any = False, *args: Any, **options: Any) -> None:  # noqa: FBT002 -- torch's own signature
        del retain_graph, create_graph
        backward(tensors, grad_tensors, None, False, *args, **options)  # noqa: FBT003 -- as above

    return swapped(*([(torch.autograd, "backward", free)] if release else []))


class Meter:
    """What is read before each step and after the last one."""

    def __init__(self, readings: int) -> None:
        self.growth = tensor_census.StepGrowth(readings)
        self.counts = torch_patches.Counts()
        # Allocated beforehand: what the measurement keeps must not count as growth.
        self._own = {name: array("q", bytes(8 * readings)) for name in ("descriptors", "processes", "loaders", "iterators", "read")}
        self._count = 0

    def read(self) -> None:
        """Take all counts of this moment."""
        at = self._count
        if at < len(self._own["descriptors"]):
            self.growth.step()
            self._own["descriptors"][at] = torch_patches.tensor_files(self.counts.running)
            self._own["read"][at] = process_tree.read_bytes(os.getpid())
            for name in ("processes", "loaders", "iterators"):
                self._own[name][at] = getattr(self.counts, name)
            self._count = at + 1

    def columns(self) -> dict[str, Any]:
        """Differences for what is kept, what each step took, and how many there were after each."""
        column = self.growth.column
        return {
            "deltas": self.growth.deltas(),
            "saved_bytes": column("saved")[1:],
            "copied_bytes": [new - old for old, new in itertools.pairwise(column("copied"))],
            "peak_bytes": column("peak")[1:],
            "python_peak_bytes": column("python_peak")[1:],
            **{name: column[1 : self._count].tolist() for name, column in self._own.items()},
        }


# -- results -------------------------------------------------------------------------------------------------------------------


def results(outcome: Outcome) -> tuple[list[str], dict[str, list[float | None]]]:
    """Lines "name: digest (description)" of all that the piece has come to, and the numbers in each."""
    lines: list[str] = []
    numbers: dict[str, list[float | None]] = {}
    for name, value in _values(outcome):
        if _open(value):
            lines.append(f"{OPEN} {name}: yes")
        value = plain(value)  # noqa: PLW2901 -- what a stand-in has become
        written = digests.write(value, name)
        lines.append(f"{name}: {written.hash} ({digests.describe(value)})")
        numbers[name] = side_effects.numbers(value)
    # What is left behind for the code that comes next.
    lines.append(f"gradient mode: {torch.is_grad_enabled()}")
    for index, module in enumerate(outcome.modules):
        modes = {name: item.training for name, item in module.named_modules()} | {
            f"{name} learns": item.requires_grad for name, item in module.named_parameters()
        }
        lines.append(f"modes of model {index}: {digests.digest(modes)} ({'training' if module.training else 'evaluating'})")
    lines.extend(f"beside the loop: {text.partition(': ')[2]}" for text in outcome.guide.failures.values())
    return lines, numbers


def _values(outcome: Outcome) -> Iterator[tuple[str, Any]]:
    guide = outcome.guide
    yield "returned", outcome.value
    for name in outcome.piece.watched:
        if name in guide.locals and not isinstance(guide.locals[name], torch.nn.Module):
            yield f"`{name}`", guide.locals[name]
    if outcome.self_object is not None:
        for name, value in list(vars(outcome.self_object).items()):
            if isinstance(value, (list, dict, float, int, torch.Tensor)) and name[:1] != "_":
                yield f"self.{name}", value
    for index, module in enumerate(outcome.modules):
        state = module.state_dict()
        if state:
            yield f"parameters of model {index}", dict(state)
            yield f"gradients of model {index}", {name: item.grad for name, item in module.named_parameters() if item.grad is not None}


def _open(value: Any, depth: int = 4) -> bool:
    """Whether a stand-in that is open is in a value."""
    if isinstance(value, deferred_value.Late):
        return deferred_value.is_open(value)
    if depth and type(value) in (list, tuple):
        return any(_open(item, depth - 1) for item in value)
    return bool(depth) and type(value) is dict and any(_open(item, depth - 1) for item in value.values())


def plain(value: Any, depth: int = 6) -> Any:
    """A value with stand-ins replaced by what they have become; what stayed open by its path."""
    value = deferred_value.real(value)
    if isinstance(value, deferred_value.Late):
        return repr(value)
    if isinstance(value, stub_objects.Thing):
        return "stand-in"
    if depth and type(value) in (list, tuple):
        return type(value)(plain(item, depth - 1) for item in value)
    if depth and isinstance(value, dict) and type(value) in (dict, stub_objects.Learning):
        return {key: plain(item, depth - 1) for key, item in value.items()}
    return value


# -- words ---------------------------------------------------------------------------------------------------------------------


def _place(outcome: Outcome) -> str:
    return f" ({outcome.frames[-1][0]}, line {outcome.frames[-1][1]})" if outcome.frames else ""


def _given(known: dict[str, Any]) -> dict[str, Any]:
    """Specs of what the caller knows."""
    return {name: {"kind": "const", "value": value} for name, value in known.items() if isinstance(value, (bool, int, float, str))}


def _words(state: dict[str, Any], report: dict[str, Any]) -> list[str]:
    """What was put in, in words."""
    kinds: dict[str, list[str]] = {}
    for path, spec in state["specs"].items():
        if "[" not in path and "(" not in path and spec["kind"] != "object":
            kinds.setdefault(spec["kind"], []).append(path)
    said = []
    for kind, paths in kinds.items():
        shown = [f"{path}={state['specs'][path]['value']!r}" if kind == "const" else path for path in paths[:8]]
        said.append(f"stand-in {'values' if kind == 'const' else kind}: {', '.join(shown)}{', ...' if len(paths) > len(shown) else ''}")
    if state["loader"]:
        said.append("a stand-in for what the loop goes over")
    if state.get("later"):
        said.append("loops around it begin with their second turn: in the first one the statement is not reached")
    if report.get("capped"):
        said.append("loaders of the program have as many workers as the measurement wants")
    if report.get("pinned"):
        said.append("loaders of the program copy their batches instead of pinning them, as there is no accelerator")
    return said
