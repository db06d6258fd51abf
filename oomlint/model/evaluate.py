"""What an expression can be, in a frame, with the story of each alternative."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model.access import Access
from oomlint.model.calls import Calls
from oomlint.model.displays import display_truth, is_grown
from oomlint.model.options import OptionSource
from oomlint.model.questions import BUDGET, CPU_COUNTS, DEEPEST, MOST, NO_ANSWER, common, trim
from oomlint.model.reach import path_conditions
from oomlint.model.readings import AnswerMemory
from oomlint.model.settings_files import SettingsReader
from oomlint.model.sources import Sources
from oomlint.model.stops import Stops
from oomlint.model.values import (
    FREE,
    Alternative,
    Alternatives,
    Const,
    Display,
    Frame,
    Picks,
    meet,
    truth_of,
)

if TYPE_CHECKING:
    from oomlint.model.project import Module, Project
    from oomlint.model.questions import States
    from oomlint.model.reach import Conditions
    from oomlint.syntax.scopes import Scope

    Verdicts = list[tuple[bool, Picks, int]]

_NONE: Verdicts = []
_WAYS: Final = 8  # ways that are told apart; more than these become one, under what they have in common


class Evaluator(Access):
    """Answers what expressions of a project can be. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        self.calls = Calls(project, self)
        self.options = OptionSource(project, self)
        self.settings = SettingsReader(project, self)
        self.sources = Sources(project, self)
        self.stops = Stops(project, self)
        self.sure_stops = Stops(project, self, names=False)
        self._memo: AnswerMemory[tuple[cst.CSTNode, Frame], Alternatives] = AnswerMemory(project.readings)
        # What follows from answers that are the very same objects is the same again.
        self._reached: AnswerMemory[tuple[cst.CSTNode, Frame], list[Picks]] = AnswerMemory(project.readings)
        self._verdicts: dict[tuple[cst.CSTNode, Frame], tuple[Alternatives, Verdicts]] = {}
        self._denied: dict[int, tuple[Verdicts, Verdicts]] = {}
        self._pairs: dict[tuple[int, int, bool], tuple[Verdicts, Verdicts, Verdicts]] = {}
        self._starts: dict[Picks, States] = {}
        self._narrowed: dict[tuple[int, int, bool], tuple[States, Verdicts, States]] = {}
        self._ways: dict[tuple[Scope, cst.CSTNode], Conditions] = {}

    def plainly(self, node: cst.BaseExpression, module: Module, scope: Scope) -> Alternatives:
        """Every value that ``node`` can have in a scope of whose callers nothing is known."""
        return self.values(node, self.calls.plain_frame(module, scope))

    def values(self, node: cst.BaseExpression, frame: Frame) -> Alternatives:
        """Every value that ``node`` can have in ``frame``."""
        key = (node, frame)
        known = self.told_meanwhile(key) if self.meanwhile else None
        if known is None:
            known = self._memo.get(key)
        if known is not None:
            return known
        if self.depth == 0:
            self.spent = 0  # an outermost question: what earlier ones cost is over
        if key in self.active or self.depth > DEEPEST or self.spent > BUDGET:
            self._memo.give_up()
            self.given_up += 1
            return NO_ANSWER
        self.project.steps.take()
        self.active.add(key)
        self.depth += 1
        self.spent += 1
        assumed = self.assumed
        try:
            found = trim(self.expression(node, frame))
        except RecursionError:
            self.given_up += 1
            found = NO_ANSWER
        finally:
            self.depth -= 1
            self.active.discard(key)
        if self.depth == 0 or self.spent < BUDGET:
            if self.assumed == assumed:
                self._memo[key] = found
            else:
                self.meanwhile[-1][key] = found
        return found

    def truth(self, node: cst.BaseExpression, frame: Frame) -> Verdicts:
        """Whether a test can come out true or false, under which picks, with how many assumptions."""
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            inner = self.truth(node.expression, frame)
            denied = self._denied.get(id(inner))
            if denied is None:
                denied = self._denied[id(inner)] = (inner, [(not verdict, picks, doubt) for verdict, picks, doubt in inner])
            return denied[1]
        if isinstance(node, cst.BooleanOperation):
            return self._both(node, frame)
        values = self.values(node, frame)
        told = self._verdicts.get((node, frame))
        if told is not None and told[0] is values:
            return told[1]
        out: Verdicts = []
        for alt in values:
            known = display_truth(alt.value) if isinstance(alt.value, Display) else truth_of(alt.value)
            if known is not None:
                out.append((known, alt.picks, alt.doubt))
                continue
            # Nobody knows: both, tied to the words of the test, so that the same test elsewhere goes the same way.
            key = ("test", frame.module.path, frame.scope.qualname, frame.module.code(node).strip())
            for guess in (True, False):
                merged = meet(alt.picks, frozenset({(key, guess)}))
                if merged is not None:
                    out.append((guess, merged, alt.doubt))
        if len(out) > MOST:
            out = [(one.const is True, one.picks, one.doubt) for one in trim(Alternative(Const(verdict), (), picks, doubt) for verdict, picks, doubt in out)]
        self._verdicts[node, frame] = (values, out)
        return out

    def _both(self, node: cst.BooleanOperation, frame: Frame) -> Verdicts:
        conj = isinstance(node.operator, cst.And)
        left = self.truth(node.left, frame)
        right = self.truth(node.right, frame) if any(verdict is conj for verdict, _, _ in left) else _NONE
        key = (id(left), id(right), conj)
        known = self._pairs.get(key)
        if known is not None:
            return known[2]
        out: Verdicts = []
        for verdict, picks, doubt in left:
            if verdict is not conj:
                out.append((verdict, picks, doubt))
                continue
            for other, more, doubts in right:
                merged = meet(picks, more)
                if merged is not None:
                    out.append((other, merged, doubt + doubts))
        out = _widened(out)
        self._pairs[key] = (left, right, out)
        return out

    def conditions(self, conditions: Conditions, frame: Frame, start: Picks = FREE) -> States:
        """Picks under which all conditions hold; empty where they cannot hold together."""
        states = self._starts.get(start)
        if states is None:
            states = self._starts[start] = [(start, 0)]
        for test, wanted in conditions:
            states = self._narrow(states, self.truth(test, frame), wanted=wanted)
            if not states:
                break
        return states

    def _narrow(self, states: States, verdicts: Verdicts, *, wanted: bool) -> States:
        """What is left of the states where a test comes out as wanted."""
        key = (id(states), id(verdicts), wanted)
        known = self._narrowed.get(key)
        if known is not None:
            return known[2]
        fresh: dict[tuple[Picks, int], None] = {}
        for picks, doubt in states:
            for verdict, more, doubts in verdicts:
                if verdict is wanted:
                    merged = meet(picks, more)
                    if merged is not None:
                        fresh[merged, doubt + doubts] = None
        left = common(list(fresh), _WAYS)
        self._narrowed[key] = (states, verdicts, left)  # what is named by its id has to live
        return left

    def where(self, node: cst.CSTNode, frame: Frame) -> list[Picks]:
        """Picks under which control reaches ``node``."""
        known = self._reached.get((node, frame))
        if known is not None:
            return known
        key = (frame.scope, node)
        way = self._ways.get(key)
        if way is None:
            way = self._ways[key] = path_conditions(frame.module.walk, frame.scope, node)
        found = [picks for picks, _ in self.conditions(way, frame)]
        if self.depth == 0 or self.spent < BUDGET:
            self._reached[node, frame] = found
        return found


def _widened(verdicts: Verdicts) -> Verdicts:
    """The same verdicts; where there are many ways to one of them, what these have in common. A test of ten parts has a thousand ways."""
    if len(verdicts) <= _WAYS:
        return verdicts
    return [(one, *way) for one in (True, False) for way in common([(picks, doubt) for verdict, picks, doubt in verdicts if verdict is one], _WAYS)]


__all__ = ["CPU_COUNTS", "Evaluator", "is_grown"]
