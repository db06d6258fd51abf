"""Figures of pyplot that code makes again and again, and who closes them.

pyplot keeps every figure that it makes until it is closed; that nothing else names it changes nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.finding import Confidence, Message, Role, Severity, Told
from oomlint.frameworks import CALLS_BACK
from oomlint.memory.facts import loop_fact
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.loop_kinds import loops_around
from oomlint.memory.shared.training_loops import rounds, usual_rounds
from oomlint.model import arguments, names
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import Bound, ClassRef, Const, External, Frame, FunctionRef
from oomlint.scout.telling_names import FIGURES
from oomlint.syntax.nodes import descend, names_in, parts_of, uses_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.calls import CallSite
    from oomlint.model.lifetime import Loop
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_LIBRARY: Final = re.compile(r"^(matplotlib\.pyplot|pylab|matplotlib\.pylab)\.(\w+)$")
_ENDS: Final = frozenset({"close", "show"})  # a window that is shown takes its figure with it when it is closed
_READERS: Final = re.compile(r"^(matplotlib\.|seaborn\.|mpl_toolkits\.|wandb\.Image$|wandb\.log$)")  # they draw it, or copy its picture
_DEEPEST: Final = 3  # calls between the loop and the figure
_MOST_SITES: Final = 8
_COST: Final = "pyplot keeps every figure, about 2 MiB each"
_KEPT_OPEN: Final = 20  # figures, above which pyplot warns itself


class _Way(Struct, frozen=True):
    """A function on the way from the figure to the loop."""

    module: Module
    scope: Scope
    call: cst.Call  # that makes the figure, or that leads there
    gives: bool = True  # whether what it gives is the figure


class UnclosedFigures:
    """Finds them, module by module."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)

    def of(self, module: Module) -> Iterator[Told]:
        """Figures of a module that nothing closes, one for each loop: closing all of them at the end of a round is one change."""
        if module.source.cells or holds_tests(module):
            return  # the cells of a notebook close what they have drawn
        groups: dict[Loop, list[list[_Way]]] = {}
        for call, scope in module.walk.calls:
            if names.last_name(call.func) in FIGURES and self._pyplot(call, module, scope) in FIGURES and not self._reuses(call, module, scope):
                found = self._repeated([_Way(module, scope, call)])
                if found is not None:
                    groups.setdefault(found[0], []).append(found[1])
        for loop, ways in groups.items():
            way, *others = sorted(ways, key=lambda way: not self._trains(way[-1]))
            message = Message(f"`{names.dotted(way[0].call.func)}` creates figures in a loop, and nothing closes them", _COST)
            again = [module.place(one[0].call).saying("here, too", Role.AGAIN) for one in others]
            related = tuple(one.module.place(one.call, "on the way from the loop") for one in reversed(way[1:]))
            severity, facts = Severity.WARNING if self._trains(way[-1]) else Severity.NOTE, (loop_fact(way[-1].module, loop),)
            yield Told(module.place(way[0].call), message, severity, Confidence.MEDIUM, (*again, *related), facts=facts)

    def _pyplot(self, call: cst.Call, module: Module, scope: Scope) -> str:
        """The function of pyplot that is called; empty for others."""
        for alt in self.evaluator.plainly(call.func, module, scope)[:2]:
            match = _LIBRARY.match(alt.value.name) if isinstance(alt.value, External) else None
            if match is not None:
                return match.group(2)
        return ""

    def _reuses(self, call: cst.Call, module: Module, scope: Scope) -> bool:
        """Whether the call asks for a figure by a number or a name: the second call gives the first one's figure."""
        number = arguments.argument_for(call, "num", place=0 if names.last_name(call.func) == "figure" else -1)
        if number is None:
            return arguments.has_stars(call)
        targets = {name for loop in loops_around(call, module, scope) if isinstance(loop, cst.For) for name in names_in(loop.target)}
        if uses_name(number, targets):
            return False  # each round has a number of its own
        found = self.evaluator.plainly(number, module, scope)
        return not found or not all(isinstance(alt.value, Const) and alt.value.value is None for alt in found)

    def _repeated(self, way: list[_Way]) -> tuple[Loop, list[_Way]] | None:
        """The loop of many rounds that leads to the last call of a way, where nothing on the way closes the figure."""
        here = way[-1]
        if self._is_asked(here) or (here.gives and self._handed_over(here)):
            return None
        loops = list(loops_around(here.call, here.module, here.scope))
        if self._ends(here, loops[0] if loops else None):
            return None
        for loop in loops:
            count = rounds(self.project, loop, here.module, here.scope)
            if count is None and isinstance(loop, cst.For):
                count = usual_rounds(self.project, loop, here.module, here.scope)
            if _is_left(loop, here.call, here.module) or _at_first(loop, here.call, here.module):
                return None
            if count is None or count > _KEPT_OPEN:
                return loop, way
        if len(way) > _DEEPEST or not here.scope.is_function or any(one.scope is here.scope for one in way[:-1]):
            return None
        found = None
        for site in self._sites(here):
            if not self._comes_to(site, here):
                continue
            found = found or self._repeated([*way, _Way(site.module, site.scope, site.call, here.gives and self._returns(here))])
        return found

    def _comes_to(self, site: CallSite, way: _Way) -> bool:
        """Whether a call of a function, by what it gives the function's tests, comes to where the figure is made."""
        outer = self.evaluator.calls.plain_frame(site.module, site.scope)
        frame = Frame(way.module, way.scope, (Bound(site.args, outer, site.call),), site.this)
        return bool(self.evaluator.where(way.call, frame))

    @staticmethod
    def _returns(way: _Way) -> bool:
        """Whether a function gives its caller the figure, so that somebody else may close it."""
        holder = way.module.walk.parents.get(way.call)
        bound = names_in(holder) if isinstance(holder, cst.Assign) else set()
        for node in way.scope.returns:
            for part in descend(node) if node.value is not None else ():
                above = way.module.walk.parents.get(part)
                if part is way.call or (isinstance(part, cst.Name) and part.value in bound and not isinstance(above, cst.Attribute)):
                    return True
        return False

    def _sites(self, way: _Way) -> list[CallSite]:
        """The calls of a function, and of the methods of base classes that it takes the place of."""
        found = self.evaluator.calls.sites(way.module, way.scope, most=_MOST_SITES)
        owner = way.scope.parent
        if owner is not None and owner.is_class:
            for base in self.evaluator.lineage(ClassRef(way.module, owner))[1:]:
                method = base.scope.child(way.scope.name) if isinstance(base, ClassRef) else None
                if isinstance(base, ClassRef) and method is not None:
                    found = [*found, *self.evaluator.calls.sites(base.module, method, most=_MOST_SITES)]
        return found

    def _trains(self, way: _Way) -> bool:
        """Whether a loop around a call goes over batches or epochs, or a framework runs the function."""
        owner = way.scope.parent
        if owner is not None and owner.is_class:
            bases = self.evaluator.lineage(ClassRef(way.module, owner))
            if any(isinstance(base, External) and CALLS_BACK.match(base.name) for base in bases):
                return True
        for node in loops_around(way.call, way.module, way.scope):
            loop = runs_of(self.project).loop(node, way.module, way.scope)
            if loop is not None and (loop.batches or loop.holds or loop.steps or loop.trains):
                return True
        return False

    def _ends(self, way: _Way, loop: Loop | None) -> bool:
        """Whether the function, or each round of a loop in it, closes or shows figures, itself or in a function of the project that is called."""
        calls = way.scope.calls if loop is None else [node for node in descend(loop.body, into_scopes=False) if isinstance(node, cst.Call)]
        # What the code itself calls is told by its name at once; what functions do is asked only where that says nothing.
        return any(self._closes(call, way.module, way.scope) for call in calls) or any(self._leads_to_end(call, way.module, way.scope) for call in calls)

    def _closes(self, call: cst.Call, module: Module, scope: Scope) -> bool:
        return names.last_name(call.func) in _ENDS and self._pyplot(call, module, scope) in _ENDS

    def _leads_to_end(self, call: cst.Call, module: Module, scope: Scope) -> bool:
        """Whether a call runs a function of the project that closes or shows figures itself."""
        found = self.evaluator.plainly(call.func, module, scope)[:2]
        called = (alt.value for alt in found if isinstance(alt.value, FunctionRef))
        return any(self._closes(one, function.module, function.scope) for function in called for one in function.scope.calls)

    @staticmethod
    def _is_asked(way: _Way) -> bool:
        """Whether the code asks pyplot what is there before it makes a figure."""
        return any(names.last_name(call.func) in {"fignum_exists", "get_fignums"} for call in way.scope.calls)

    def _handed_over(self, way: _Way) -> bool:
        """Whether somebody out of sight gets the figure: a logger that closes it, an object that keeps it for the next round."""
        walk = way.module.walk
        holder = walk.parents.get(way.call)
        if isinstance(holder, cst.Arg):
            return not self._only_reads(holder, way.module, way.scope)
        if not isinstance(holder, cst.Assign | cst.AnnAssign | cst.NamedExpr):
            return False
        target = holder.targets[0].target if isinstance(holder, cst.Assign) else holder.target
        first = target.elements[0].value if isinstance(target, cst.Tuple) and target.elements else target
        if not isinstance(first, cst.Name):
            return True  # an attribute, or an element
        return self._goes_out(first.value, way.module, way.scope)

    def _goes_out(self, name: str, module: Module, scope: Scope, depth: int = 0) -> bool:
        """Whether a function gives what a name holds to somebody out of sight, or keeps it."""
        for node in scope.nodes():
            if isinstance(node, cst.Name) and node.value == name:
                above = module.walk.parents.get(node)
                if isinstance(above, cst.Yield | cst.DictElement) or (isinstance(above, cst.Arg) and not self._only_reads(above, module, scope, depth)):
                    return True
                if isinstance(above, cst.Assign) and node is above.value:
                    return True  # another name, or an attribute
        return False

    def _only_reads(self, arg: cst.Arg, module: Module, scope: Scope, depth: int = 0) -> bool:
        """Whether a call that is given the figure is known to leave it open."""
        call = module.walk.parents.get(arg)
        if not isinstance(call, cst.Call):
            return False
        found = [alt.value for alt in self.evaluator.plainly(call.func, module, scope)[:2]]
        return bool(found) and all(
            not self._hands_on(value, call, arg, depth)
            if isinstance(value, FunctionRef)
            else isinstance(value, External) and _READERS.match(value.name) is not None
            for value in found
        )

    def _hands_on(self, called: FunctionRef, call: cst.Call, arg: cst.Arg, depth: int) -> bool:
        """Whether a function of the project gives the figure that it is handed to somebody out of sight: ``self.writer.add_figure(name, figure)``."""
        name = arguments.parameter_of(called, call, arg)
        return depth < _DEEPEST and name is not None and self._goes_out(name, called.module, called.scope, depth + 1)


def _is_left(loop: Loop, node: cst.CSTNode, module: Module) -> bool:
    """Whether the round that runs a node is the last one of its loop."""
    for here in module.walk.ancestors(node):
        if here is loop:
            return False
        if isinstance(here, cst.IndentedBlock) and here.body:
            last = here.body[-1]
            if isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Break | cst.Return | cst.Raise):
                return True
    return False


def _at_first(loop: Loop, node: cst.CSTNode, module: Module) -> bool:
    """Whether a node runs in one round alone: ``if i == 0:``, ``if figure is None:``."""
    bound = names_in(loop.target) if isinstance(loop, cst.For) else set()
    for here in module.walk.ancestors(node):
        if here is loop:
            return False
        if not isinstance(here, cst.If) or not isinstance(here.test, cst.Comparison) or len(here.test.comparisons) != 1:
            continue
        left, test = here.test.left, here.test.comparisons[0]
        if isinstance(test.operator, cst.Equal) and isinstance(left, cst.Name) and left.value in bound and isinstance(test.comparator, cst.Integer):
            return True
        if isinstance(test.operator, cst.Is) and any(left.deep_equals(target) for target in _targets(node, module)):
            return True
    return False


def _targets(node: cst.CSTNode, module: Module) -> list[cst.BaseExpression]:
    """What an expression is bound to, part by part."""
    holder = module.walk.parents.get(node)
    if not isinstance(holder, cst.Assign):
        return []
    target = holder.targets[0].target
    return parts_of(target)
