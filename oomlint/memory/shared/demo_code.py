"""Code that does not train: test suites, what a library's module shows when it is started by itself, scripts that only show something, idle code.

What is paid there is paid by whoever looks at it, so a finding is one step less grave. What a piece of code does decides, and who imports its file.
"""

from __future__ import annotations

import re
from enum import Flag, auto
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.finding import Resource, Severity
from oomlint.frameworks import BACKWARDS, RUNS, RUNS_TRAINING
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.idle_code import IdleCode
from oomlint.model import arguments, names
from oomlint.model.readings import AnswerMemory
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import ClassRef, External, ExternalCall, FunctionRef, Instance
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

    Called = tuple[cst.Call, Scope]

_LOWER: Final = {Severity.ERROR: Severity.WARNING, Severity.WARNING: Severity.NOTE, Severity.NOTE: Severity.NOTE}
_DEEPEST: Final = 3  # functions of other files that are followed
_MOST_SITES: Final = 8
# What opens a window, or draws a figure.
_SHOWS: Final = re.compile(
    r"^(matplotlib\.pyplot|matplotlib\.pylab|pylab)\.(show|savefig)$|^cv2\.imshow$|^open3d\.visualization\.|^mayavi\.mlab\.(show|savefig)$|^pyvista\.|^plotly\."
)
_MAY_SHOW: Final = re.compile(r"pyplot|pylab|imshow|open3d|mayavi|pyvista|plotly")
# What leaves results behind, by the names that libraries give it.
_WRITES: Final = frozenset(
    "save savez savez_compressed savetxt dump tofile to_csv to_json to_pickle to_parquet to_hdf create_dataset writerow writerows writelines write write_text "
    "write_bytes save_pretrained imwrite imsave mimsave save_image savemat export".split()
)
_ASKS: Final = frozenset("parse_args parse_known_args parse_args_into_dataclasses Fire".split())
_COMMANDS: Final = frozenset({"command", "main"})  # click, typer, hydra


class CodeEffects(Flag):
    """What code does, besides."""

    NOTHING = 0
    TRAINS = auto()
    WRITES = auto()  # results
    ASKS = auto()  # for options: it is a program
    SHOWS = auto()


def weighed(finding: Finding, module: Module, *, sure: bool = True) -> Finding:
    """A finding with its severity, one step lower where it stands in code that does not train, or of which it is not ``sure`` that it can run."""
    if finding.severity is Severity.NOTE:
        return finding
    drivers = module.project.shared(Drivers)
    idle = module.project.shared(IdleCode)
    draws = finding.weight is not None and finding.weight.of is Resource.FIGURE  # what a script that draws has most of
    if (
        not sure
        or holds_tests(module)
        or drivers.demonstrates(finding, module)
        or (drivers.visualises(module) and not draws)
        or idle.holds(finding.place, module)
    ):
        return replace(finding, severity=_LOWER[finding.severity])
    return finding


class Drivers:
    """Says what the files of a project are there for. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)
        self._shown: AnswerMemory[str, bool] = AnswerMemory(project.readings)
        self._demos: AnswerMemory[str, frozenset[cst.CSTNode]] = AnswerMemory(project.readings)
        self._idle = project.shared(IdleCode)

    # -- a demo in a file of a library -----------------------------------------------------------------------------------

    def demonstrates(self, finding: Finding, module: Module) -> bool:
        """Whether it stands in what a part of a library shows when it is started: in its ``if __name__ == "__main__"``, or in what that alone calls."""
        if "__main__" not in module.source.text:
            return False
        spots = (module.place(node) for node in self._demos.answer(module.path, lambda: self._demos_of(module)))
        return any(spot.cell == finding.place.cell and spot.row <= finding.place.row <= spot.end_row for spot in spots)

    def _demos_of(self, module: Module) -> frozenset[cst.CSTNode]:
        blocks = [statement for statement in module.tree.module.body if isinstance(statement, cst.If) and names.is_main(statement.test)]
        if not blocks or not (self._idle.is_imported(module.path) or self._tries_its_own(module, blocks)):
            return frozenset()
        parts: list[cst.CSTNode] = list(blocks)
        for scope in module.root.children:
            if scope.is_function and self._only_from(module, scope, parts):
                parts.append(scope.node)
        inside = [(call, scope) for call, scope in module.walk.calls if any(here in parts for here in module.walk.ancestors(call))]
        program = CodeEffects.TRAINS | CodeEffects.WRITES | CodeEffects.ASKS
        return frozenset() if self._done(module, inside, 0, set()) & program or _reads_arguments(blocks) else frozenset(parts)

    def _tries_its_own(self, module: Module, blocks: Sequence[cst.If]) -> bool:
        """Whether a file among others that are imported tries a class of its own when it is started: a part that nothing imports any more, or not yet."""
        own = {scope.name for scope in module.root.children if scope.is_class}
        made = (call for call, _ in module.walk.calls if isinstance(call.func, cst.Name) and call.func.value in own)
        return any(here in blocks for call in made for here in module.walk.ancestors(call)) and self._idle.belongs_together(module.path)

    def _only_from(self, module: Module, scope: Scope, parts: list[cst.CSTNode]) -> bool:
        """Whether nothing but these parts of its file calls a function, and nobody else has a hold of it."""
        used = [node for node in module.walk.root.named(scope.name) if node is not _name_of(scope.node)]
        if not used or not all(any(here in parts for here in module.walk.ancestors(node)) for node in used):
            return False
        sites = self.evaluator.calls.sites(module, scope, _MOST_SITES)
        return bool(sites) and all(site.module is module for site in sites)

    # -- a script that only shows something ------------------------------------------------------------------------------

    def visualises(self, module: Module) -> bool:
        """Whether a file is a script that draws or shows what it reads, and neither trains nor leaves results behind."""
        text = module.source.text
        if module.source.cells or "backward(" in text or not _MAY_SHOW.search(text):
            return False
        return self._shown.answer(module.path, lambda: self._visualises(module))

    def _visualises(self, module: Module) -> bool:
        done = self._done(module, module.walk.calls, 0, set())
        if CodeEffects.SHOWS not in done or done & (CodeEffects.TRAINS | CodeEffects.WRITES) or self._idle.is_imported(module.path):
            return False
        # What runs a model on all batches and draws at the end evaluates it.
        passes = {event.node: event.loops for record in runs_of(self.project).of(module) for event in record.forwards if event.loops}
        return all(any(self._shows_in(loop.node, loop.module) for loop in loops) for loops in passes.values())

    def _shows_in(self, node: cst.CSTNode, module: Module) -> bool:
        inside = [(call, scope) for call, scope in module.walk.calls if node in module.walk.ancestors(call)]
        return CodeEffects.SHOWS in self._done(module, inside, 0, set())

    # -- what code does ----------------------------------------------------------------------------------------------------

    def _done(self, module: Module, calls: Iterable[Called], depth: int, seen: set[Scope]) -> CodeEffects:
        """What calls do, and the functions of the project that they lead to."""
        done = CodeEffects.NOTHING
        for call, scope in calls:
            done |= self._does(module, scope, call)
            if depth >= _DEEPEST:
                continue
            for where, target in self._targets(module, scope, call):
                if target not in seen:
                    seen.add(target)
                    done |= self._done(where, [(inner, target) for inner in target.calls], depth + 1, seen)
        return done

    def _does(self, module: Module, scope: Scope, call: cst.Call) -> CodeEffects:
        last = names.last_name(call.func)
        method = isinstance(call.func, cst.Attribute)
        if last in BACKWARDS and method:
            return CodeEffects.TRAINS
        if last in _ASKS:
            return CodeEffects.ASKS
        if last == "open":
            return CodeEffects.WRITES if _opens_to_write(call) else CodeEffects.NOTHING
        frame = self.evaluator.calls.plain_frame(module, scope)
        if any(isinstance(alt.value, External) and _SHOWS.match(alt.value.name) for alt in self.evaluator.values(call.func, frame)[:2]):
            return CodeEffects.SHOWS
        if isinstance(call.func, cst.Attribute) and last in RUNS:
            made = (alt.value for alt in self.evaluator.values(call.func.value, frame)[:2])
            if any(isinstance(value, ExternalCall) and RUNS_TRAINING.match(value.name) for value in made):
                return CodeEffects.TRAINS
        return CodeEffects.WRITES if last in _WRITES and not any(True for _ in self._targets(module, scope, call)) else CodeEffects.NOTHING

    def _targets(self, module: Module, scope: Scope, call: cst.Call) -> Iterator[tuple[Module, Scope]]:
        """The functions of the project that a call may run."""
        for alt in self.evaluator.plainly(call.func, module, scope)[:2]:
            value = alt.value
            if isinstance(value, ClassRef):
                made = self.evaluator.method(Instance(value, None), "__init__")
                if made is not None:
                    yield made.module, made.scope
            elif isinstance(value, FunctionRef):
                if any(names.last_name(one.decorator) in _COMMANDS for one in getattr(value.scope.node, "decorators", ())):
                    continue
                yield value.module, value.scope


def _reads_arguments(blocks: Iterable[cst.CSTNode]) -> bool:
    return any(isinstance(node, cst.Attribute) and names.dotted(node) == "sys.argv" for block in blocks for node in descend(block))


def _opens_to_write(call: cst.Call) -> bool:
    mode = arguments.argument_for(call, "mode", place=1)
    return isinstance(mode, cst.SimpleString) and any(letter in str(mode.evaluated_value) for letter in "wax")


def _name_of(node: cst.CSTNode) -> cst.CSTNode | None:
    return node.name if isinstance(node, cst.FunctionDef) else None
