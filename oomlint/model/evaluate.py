"""What an expression can be, in a frame, with the story of each alternative."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model.access import Access
from oomlint.model.attributes import Attributes
from oomlint.model.classes import Classes
from oomlint.model.definitions import Definitions
from oomlint.model.displays import Displays, display_truth, is_grown
from oomlint.model.expressions import Expressions
from oomlint.model.outside import Outside
from oomlint.model.parameters import Parameters
from oomlint.model.questions import BUDGET, CPU_COUNTS, DEEPEST, MOST, UNKNOWN, trim
from oomlint.model.reach import path_conditions
from oomlint.model.results import Results
from oomlint.model.values import (
    FREE,
    Alternative,
    Alternatives,
    Display,
    Frame,
    Picks,
    join,
    truth_of,
)

if TYPE_CHECKING:
    from oomlint.model.project import Project
    from oomlint.model.reach import Conditions


class Evaluator(Expressions, Results, Access, Displays, Definitions, Outside, Parameters, Classes, Attributes):
    """Answers what expressions of a project can be. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        self._memo: dict[tuple[cst.CSTNode, Frame], Alternatives] = {}

    def values(self, node: cst.BaseExpression, frame: Frame) -> Alternatives:
        """Every value that ``node`` can have in ``frame``."""
        key = (node, frame)
        known = self._memo.get(key)
        if known is not None:
            return known
        if self.depth == 0:
            self.spent = 0  # an outermost question: what earlier ones cost is over
        if key in self.active or self.depth > DEEPEST or self.spent > BUDGET:
            return [Alternative(UNKNOWN)]
        self.active.add(key)
        self.depth += 1
        self.spent += 1
        try:
            found = trim(self.expression(node, frame))
        except RecursionError:
            found = [Alternative(UNKNOWN)]
        finally:
            self.depth -= 1
            self.active.discard(key)
        if self.depth == 0 or self.spent < BUDGET:
            self._memo[key] = found
        return found

    def truth(self, node: cst.BaseExpression, frame: Frame) -> list[tuple[bool, Picks, int]]:
        """Whether a test can come out true or false, under which picks, with how many assumptions."""
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            return [(not verdict, picks, doubt) for verdict, picks, doubt in self.truth(node.expression, frame)]
        if isinstance(node, cst.BooleanOperation):
            return self._both(node, frame)
        out: list[tuple[bool, Picks, int]] = []
        for alt in self.values(node, frame):
            known = display_truth(alt.value) if isinstance(alt.value, Display) else truth_of(alt.value)
            if known is not None:
                out.append((known, alt.picks, alt.doubt))
                continue
            # Nobody knows: both, tied to the words of the test, so that the same test elsewhere goes the same way.
            key = ("test", frame.module.path, frame.scope.qualname, frame.module.code(node).strip())
            for guess in (True, False):
                merged = join(alt.picks, frozenset({(key, guess)}))
                if merged is not None:
                    out.append((guess, merged, alt.doubt))
        return out[:MOST]

    def _both(self, node: cst.BooleanOperation, frame: Frame) -> list[tuple[bool, Picks, int]]:
        conj = isinstance(node.operator, cst.And)
        out: list[tuple[bool, Picks, int]] = []
        right: list[tuple[bool, Picks, int]] | None = None
        for verdict, picks, doubt in self.truth(node.left, frame):
            if verdict is not conj:
                out.append((verdict, picks, doubt))
                continue
            right = self.truth(node.right, frame) if right is None else right
            for other, more, doubts in right:
                merged = join(picks, more)
                if merged is not None:
                    out.append((other, merged, doubt + doubts))
        return out[:MOST]

    def conditions(self, conditions: Conditions, frame: Frame, start: Picks = FREE) -> list[tuple[Picks, int]]:
        """Picks under which all conditions hold; empty where they cannot hold together."""
        states = [(start, 0)]
        for test, wanted in conditions:
            verdicts = self.truth(test, frame)
            fresh: list[tuple[Picks, int]] = []
            for picks, doubt in states:
                for verdict, more, doubts in verdicts:
                    if verdict is wanted:
                        merged = join(picks, more)
                        if merged is not None and (merged, doubt + doubts) not in fresh:
                            fresh.append((merged, doubt + doubts))
            states = fresh[:MOST]
            if not states:
                break
        return states

    def where(self, node: cst.CSTNode, frame: Frame) -> list[Picks]:
        """Picks under which control reaches ``node``."""
        found = path_conditions(frame.module.walk, frame.scope, node)
        return [picks for picks, _ in self.conditions(found, frame)]


__all__ = ["CPU_COUNTS", "Evaluator", "is_grown"]
