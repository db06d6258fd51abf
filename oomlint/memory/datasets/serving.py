"""What reads data piece by piece for as long as a training runs: its loops, its datasets, and objects of the project that hand out batches."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.frameworks import BACKWARDS, FITS
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.model import names
from oomlint.model.readings import FOUND, AnswerMemory, finder
from oomlint.model.values import ClassRef, ExternalCall, FunctionRef
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

Loop = cst.For | cst.While
Leaves = Callable[["Module", cst.BaseExpression], bool]
_TRAINS: Final = re.compile(rb"backward\(|\boptim\b|Trainer\b")
EVALUATION: Final = "the evaluation loop"
_MOST_SITES: Final = 6
_DEEPEST: Final = 3  # functions between a loop and the backward of its rounds


class Entered(Struct, frozen=True):
    """The call that hands a value to a function, and what gave it the name that it goes by there."""

    module: Module
    call: cst.Call
    since: cst.CSTNode | None
    outer: Entered | None = None  # the call that handed it to the caller, where that was followed, too


class Serving:
    """Answers for loops, classes and uses. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)
        self.constructions = constructions_of(project)
        self._steps: AnswerMemory[Scope, bool] = AnswerMemory(project.readings)
        self._loops: AnswerMemory[Loop, bool] = AnswerMemory(project.readings)
        self._programs: AnswerMemory[Scope, bool] = AnswerMemory(project.readings)

    def reader(self, module: Module, use: cst.BaseExpression, since: cst.CSTNode | None, entered: Entered | None, leaves: Leaves) -> str:
        """Who takes a part of a value at ``use``, again and again, for as long as a training runs: in words, empty where nobody does.

        ``since`` is where the value got its name: a loop around that starts over with another value. ``entered`` is the call that handed it to the
        function: a part that is returned goes back there, and to no other caller. ``leaves`` says whether a function gives back a part, or what it has
        collected of them.
        """
        return self._reader(module, use, since, 0, entered, leaves)

    def _reader(self, module: Module, use: cst.BaseExpression, since: cst.CSTNode | None, depth: int, entered: Entered | None, leaves: Leaves) -> str:
        below: cst.CSTNode = use
        around = set(module.walk.ancestors(since)) if since is not None else set()
        looped, found = False, ""
        for here in module.walk.ancestors(use):
            if here in around:
                return found
            if isinstance(here, cst.For | cst.While) and below is here.body:
                who = self.loop_with_model(module, here)
                if who and who != EVALUATION:
                    return who  # also where the evaluation is part of it
                looped, found = True, who or found
            if isinstance(here, cst.FunctionDef):
                return found or self._of_function(module, module.walk.scope_at(here.body), use, depth, entered, leaves, looped=looped)
            below = here
        return found

    def _of_function(self, module: Module, scope: Scope, use: cst.BaseExpression, depth: int, entered: Entered | None, leaves: Leaves, *, looped: bool) -> str:
        """A method that reads a sample, a generator of parts, or a function that gives a part to the loop that calls it."""
        owner = scope.parent
        if owner is not None and owner.is_class and self.constructions.per_item(module, scope):
            cls = ClassRef(module, owner)
            if self.constructions.is_dataset(cls):
                return f"`{owner.name}`"
        if depth >= _DEEPEST or not self.project_trains(module):
            return ""
        if not leaves(module, use):
            return ""
        if scope.yields and looped:
            if entered is not None and not self._trained_on(entered, leaves):
                return ""
            return f"`{scope.name}`" if not (owner is not None and owner.is_function) else f"`{owner.name}`"
        if scope.yields:
            return ""
        if entered is not None:
            return self._reader(entered.module, entered.call, entered.since, depth + 1, entered.outer, leaves)
        sites = self.evaluator.calls.sites(module, scope, most=_MOST_SITES)
        return next((who for site in sites if (who := self._reader(site.module, site.call, None, depth + 1, None, leaves))), "")

    def _trained_on(self, entered: Entered, leaves: Leaves) -> bool:
        """Whether something may train on what a generator yields of the value that a call hands to it.

        Not where loops of the function that calls it take all of it, go forward only, and nothing of it leaves that function.
        """
        module, call = entered.module, entered.call
        scope = module.walk.scope_at(call)
        takers: list[cst.CSTNode] = [call]
        holder = module.walk.parents.get(call)
        if isinstance(holder, cst.Assign) and isinstance(holder.targets[0].target, cst.Name):
            name = holder.targets[0].target.value
            takers = [node for node in scope.named(name) if not isinstance(module.walk.parents.get(node), cst.AssignTarget)]
        loops = [_loop_over(module, node) for node in takers]
        return scope.yields or leaves(module, call) or any(loop is None or self.trains(module, loop) for loop in loops)

    def loop_with_model(self, module: Module, loop: Loop) -> str:
        """What a loop is whose rounds run a model, in words; empty where they run none."""
        if self.trains(module, loop):
            return "the training loop"
        runs = (event.loops for record in runs_of(self.project).of(module) for event in record.forwards)
        return EVALUATION if any(one.node is loop for loops in runs for one in loops) else ""

    def trains(self, module: Module, loop: Loop) -> bool:
        """Whether the rounds of a loop go backward, themselves or in a function of the project that they call."""
        known = self._loops.get(loop)
        if known is None:
            scope = module.walk.scope_at(loop)
            calls = (node for node in descend(loop.body, into_scopes=False) if isinstance(node, cst.Call))
            known = self._loops[loop] = self.project_trains(module) and any(self._goes_back(module, scope, call, 0) for call in calls)
        return known

    def call_trains(self, module: Module, scope: Scope, call: cst.Call) -> bool:
        """Whether what a call runs goes backward: a function of the project, or a trainer of a library."""
        if names.last_name(call.func) in FITS and isinstance(call.func, cst.Attribute):
            given = self.evaluator.plainly(call.func.value, module, scope)
            if any(isinstance(alt.value, ExternalCall) and alt.value.name.endswith("Trainer") for alt in given):
                return True
        return self.project_trains(module) and self._goes_back(module, scope, call, 0)

    def _goes_back(self, module: Module, scope: Scope, call: cst.Call, depth: int) -> bool:
        if names.last_name(call.func) in BACKWARDS and isinstance(call.func, cst.Attribute):
            return True
        if depth >= _DEEPEST or not self._may_lead(module, names.last_name(call.func)):
            return False
        for alt in self.evaluator.plainly(call.func, module, scope):
            value = alt.value
            if isinstance(value, FunctionRef) and not isinstance(value.scope.node, cst.Lambda) and self._makes_steps(value.module, value.scope, depth + 1):
                return True
        return False

    def _makes_steps(self, module: Module, scope: Scope, depth: int) -> bool:
        known = self._steps.get(scope)
        if known is None:
            self._steps.assume(scope, False)  # noqa: FBT003 - a function that calls itself
            known = self._steps[scope] = any(self._goes_back(module, scope, call, depth) for call in scope.calls)
        return known

    def _may_lead(self, module: Module, name: str) -> bool:
        """Whether some function of that name is in a file that goes backward, or that calls one that does: a look at the text."""
        return bool(self.project.search(_goes_back_in, (name,), module.path, name)) or bool(_goes_back_in(module.path, self.project.raw(module.path), name))

    def project_trains(self, module: Module) -> bool:
        """Whether any code of the project goes backward, itself or in a library."""
        return bool(_trains(module.path, self.project.raw(module.path)) or self.project.search(_trains, (), module.path))

    def may_train_with(self, cls: ClassRef) -> bool:
        """Whether a program that makes an object of the class may train: not where none of those seen leads to code that does, or is led to by it."""
        return self._programs.answer(cls.scope, lambda: self._leads_to_training(cls))

    def _leads_to_training(self, cls: ClassRef) -> bool:
        made = next((method for method in cls.scope.children if method.name == "__init__"), None)
        sites = self.evaluator.calls.sites(cls.module, made, most=_MOST_SITES) if made is not None else []
        training = self.project.search(_trains, (), cls.module.path)
        may_import = self.project.may_import
        return (
            not sites
            or len(sites) >= _MOST_SITES
            or any(may_import(site.module.path, path) or may_import(path, site.module.path) for site in sites for path in training)
        )


def _loop_over(module: Module, node: cst.CSTNode) -> cst.For | None:
    """The loop that goes over a value, counted (``enumerate``) or not."""
    parents = module.walk.parents
    holder = parents.get(node)
    while isinstance(holder, cst.Arg) and isinstance(call := parents[holder], cst.Call) and names.last_name(call.func) in {"enumerate", "tqdm"}:
        node, holder = call, parents.get(call)
    return holder if isinstance(holder, cst.For) and holder.iter is node else None


def picks_some(node: cst.Subscript) -> bool:
    """Whether an index is one that changes, along any axis: a slice with bounds that are computed, a number or an array that is."""
    return any(_picks(element.slice) for element in node.slice)


def _picks(index: cst.BaseSlice) -> bool:
    if isinstance(index, cst.Slice):
        return any(_computed(bound) for bound in (index.lower, index.upper) if bound is not None)
    return isinstance(index, cst.Index) and _computed(index.value)


def _computed(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.UnaryOperation):
        return _computed(node.expression)
    if isinstance(node, cst.Tuple):
        return any(_computed(element.value) for element in node.elements)
    return not (isinstance(node, cst.BaseNumber | cst.BaseString | cst.Ellipsis | cst.Comparison | cst.BooleanOperation) or names.adds_axis(node))


@finder
def _trains(path: str, data: bytes) -> str:
    """Whether a file goes backward, or has an optimizer or a trainer of a library do it."""
    del path
    return _speaks_of_training(data)


@lru_cache(maxsize=4096)  # asked of the same file for each of its loops
def _speaks_of_training(data: bytes) -> str:
    return FOUND if _TRAINS.search(data) else ""


@finder
def _goes_back_in(path: str, data: bytes, name: str) -> str:
    """Whether a file defines a function of the name: only those that somebody wrote can lead to a backward."""
    del path
    return FOUND if b"def " + name.encode() + b"(" in data else ""
