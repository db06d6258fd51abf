"""What operators, literals and conditions give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec.structs import replace

from oomlint.model.arithmetic import COMPARE, computed
from oomlint.model.names import last_name, short
from oomlint.model.questions import UNKNOWN, constant, is_cpu_count, trim, written
from oomlint.model.results import Results
from oomlint.model.values import (
    Alternative,
    Alternatives,
    Const,
    Display,
    External,
    Frame,
    FunctionRef,
    Merged,
    ProvenanceStep,
    SourceExpression,
    Unknown,
    Value,
    meet,
    truth_of,
)
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key
from oomlint.syntax.quick import MOST_DIGITS

if TYPE_CHECKING:
    from oomlint.syntax.nodes import Accessor


_MAKES = frozenset({"assign", "for", "with", "import", "from"})  # what gives a name a value, and leaves the one that it had as it is


class Expressions(Results):
    """Reduces an expression by its form."""

    def expression(self, node: cst.BaseExpression, frame: Frame) -> Alternatives:
        """The values of an expression, by its form; nothing is remembered."""
        if isinstance(node, cst.Integer):
            return [constant(node.evaluated_value, node, frame) if len(node.value) <= MOST_DIGITS else written(node, frame)]
        if isinstance(node, cst.SimpleString | cst.ConcatenatedString | cst.Float):
            return [constant(node.evaluated_value, node, frame)]
        if isinstance(node, cst.Name | cst.Attribute | cst.Subscript):
            return self.access(node, (), frame)
        if isinstance(node, cst.Call):
            return self.called(node, frame)
        if isinstance(node, cst.IfExp):
            return self.choose(node, (), frame)
        if isinstance(node, cst.BooleanOperation):
            return self._boolean(node, frame)
        if isinstance(node, cst.Comparison):
            return self._comparison(node, frame)
        if isinstance(node, cst.UnaryOperation):
            return self._unary(node, frame)
        if isinstance(node, cst.BinaryOperation):
            return self._binary(node, frame)
        if isinstance(node, cst.Dict | cst.List | cst.Tuple | cst.Set | cst.BaseComp):
            return [Alternative(Display(node, frame))]
        if isinstance(node, cst.Lambda):
            return [Alternative(FunctionRef(frame.module, frame.module.walk.scope_of[node], None))]
        if isinstance(node, cst.NamedExpr):
            return self.values(node.value, frame)
        if isinstance(node, cst.FormattedString):
            return self._formatted(node, frame)
        if isinstance(node, cst.Await):
            return self.values(node.expression, frame)
        return [written(node, frame)]

    def _formatted(self, node: cst.FormattedString, frame: Frame) -> Alternatives:
        text = ""
        for part in node.parts:
            if isinstance(part, cst.FormattedStringText):
                text += part.value
                continue
            if not isinstance(part, cst.FormattedStringExpression):
                return [written(node, frame)]
            found = [a.const for a in self.values(part.expression, frame) if isinstance(a.value, Const)]
            if len(found) != 1:
                return [written(node, frame)]
            text += str(found[0])
        return [Alternative(Const(text))]

    def choose(self, node: cst.IfExp, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """Either side of a conditional expression, under what its test says."""
        out: Alternatives = []
        verdicts = self.truth(node.test, frame)
        both = len({v for v, _, _ in verdicts}) > 1
        for verdict, picks, doubt in verdicts:
            for alt in self.access(node.body if verdict else node.orelse, accessors, frame):
                merged = alt.under(picks)
                if merged is not None:
                    step = ProvenanceStep(
                        frame.module, node.test, f"where `{short(frame.module.code(node.test))}` is {'true' if verdict else 'false'}", kind="branch"
                    )
                    out.append((merged.after(step) if both else merged).doubting(doubt))
        return out

    def _boolean(self, node: cst.BooleanOperation, frame: Frame) -> Alternatives:
        conj = isinstance(node.operator, cst.And)
        out: Alternatives = []
        for verdict, picks, doubt in self.truth(node.left, frame):
            side = node.right if verdict is conj else node.left
            for alt in self.values(side, frame):
                if side is node.left and truth_of(alt.value) is (not verdict):
                    continue
                merged = alt.under(picks)
                if merged is not None:
                    if conj and side is node.left and truth_of(alt.value) is None:
                        merged = replace(merged, value=Const(value=False))  # whatever it is, it counts as false here
                    out.append(merged.doubting(doubt))
        return out

    def _comparison(self, node: cst.Comparison, frame: Frame) -> Alternatives:
        """``a < b``; of ``a < b < c`` every pair has to hold."""
        out = [Alternative(Const(value=True))]
        left = node.left
        for target in node.comparisons:
            fresh: Alternatives = []
            for one in self._pair(left, target, frame):
                for known in out:
                    picks = meet(known.picks, one.picks)
                    if picks is None:
                        continue
                    both = [alt.value for alt in (known, one)]
                    value: Value = next((v for v in both if truth_of(v) is False), next((v for v in both if isinstance(v, Unknown)), Const(value=True)))
                    fresh.append(Alternative(value, (), picks, known.doubt + one.doubt, known.reach or one.reach))
            out = trim(fresh)
            left = target.comparator
        return out

    def _pair(self, first: cst.BaseExpression, target: cst.ComparisonTarget, frame: Frame) -> Alternatives:
        compare = COMPARE.get(type(target.operator))
        out: Alternatives = []
        for left in self.values(first, frame):
            for right in self.values(target.comparator, frame):
                picks = meet(left.picks, right.picks)
                if picks is None:
                    continue
                doubt = left.doubt + right.doubt
                verdict: object = None
                if compare is not None and isinstance(left.value, Const) and isinstance(right.value, Const):
                    try:
                        verdict = bool(compare(left.value.value, right.value.value))
                    except TypeError:
                        verdict = None
                elif isinstance(target.operator, cst.Is | cst.IsNot) and right.const is None and isinstance(right.value, Const):
                    known = truth_of(left.value)
                    if known:
                        verdict = isinstance(target.operator, cst.IsNot)
                elif isinstance(target.operator, cst.In | cst.NotIn) and right.value == External("os.environ"):
                    said = self.variable(left.const) if isinstance(left.const, str) else None
                    if said is not None and not said.unknown:
                        verdict = isinstance(target.operator, cst.NotIn if said.unset else cst.In)
                elif isinstance(target.operator, cst.In | cst.NotIn):
                    verdict = self._contained(left.value, right.value, negated=isinstance(target.operator, cst.NotIn))
                    written = isinstance(target.comparator, cst.List | cst.Tuple | cst.Set | cst.Dict)
                    if verdict is not None and not written and self._changed(target.comparator, frame, right.value):
                        verdict = None
                out.append(Alternative(Const(verdict) if verdict is not None else UNKNOWN, (), picks, doubt, left.reach or right.reach))
        return out

    @staticmethod
    def _changed(container: cst.BaseExpression, frame: Frame, found: Value) -> bool:
        """Whether anything that goes by the container's name is changed after it was made, where the test stands or where it is written out."""
        word = last_name(container)
        homes = {frame.module, *([found.frame.module] if isinstance(found, Display) else [])}
        return any(
            (next((str(key) for kind, key in reversed(effect.path) if kind == "attr"), root) == word)
            and (effect.kind not in _MAKES or (bool(effect.path) and effect.path[-1][0] == "item"))
            for module in homes
            for scope in module.walk.scopes
            for root in (scope.effects if not isinstance(container, cst.Name) else ([word] if word in scope.effects else ()))
            for effect in scope.effects[root]
        )

    @staticmethod
    def _contained(left: Value, right: Value, *, negated: bool) -> bool | None:
        if not isinstance(left, Const) or not isinstance(right, Display) or not isinstance(right.node, cst.List | cst.Tuple | cst.Set | cst.Dict):
            return None
        held: list[object] = []
        for element in right.node.elements:
            if isinstance(element, cst.DictElement):
                held.append(constant_key(element.key))
            elif isinstance(element, cst.Element):
                held.append(constant_key(element.value))
            else:
                return None
        if UNKNOWN_KEY in held:
            return None
        return (left.value in held) is not negated

    def _unary(self, node: cst.UnaryOperation, frame: Frame) -> Alternatives:
        if isinstance(node.operator, cst.Not):
            return [Alternative(Const(not v), (), picks, doubt) for v, picks, doubt in self.truth(node.expression, frame)]
        out: Alternatives = []
        for alt in self.values(node.expression, frame):
            if isinstance(node.operator, cst.Minus) and isinstance(alt.const, int | float):
                value = -alt.const
                out.append(
                    Alternative(
                        Const(value), (ProvenanceStep(frame.module, node, f"the value is {value!r} here", kind="constant"),), alt.picks, alt.doubt, alt.reach
                    )
                )
            else:
                out.append(Alternative(UNKNOWN, (), alt.picks))
        return out

    def _binary(self, node: cst.BinaryOperation, frame: Frame) -> Alternatives:
        out: Alternatives = []
        for left in self.values(node.left, frame):
            if is_cpu_count(left.value) and isinstance(node.operator, cst.FloorDivide | cst.Subtract):
                out.append(Alternative(External("os.cpu_count()"), left.story, left.picks, left.doubt))
                continue
            for right in self.values(node.right, frame):
                picks = meet(left.picks, right.picks)
                if picks is None:
                    continue
                if isinstance(node.operator, cst.BitOr) and (isinstance(left.value, Display | Merged) or isinstance(right.value, Display | Merged)):
                    out.append(Alternative(Merged((left.value, right.value)), (), picks, left.doubt + right.doubt))
                    continue
                value: Value = computed(type(node.operator), left.value, right.value)
                if isinstance(left.value, Const) and isinstance(right.value, Const):
                    pass
                elif isinstance(node.operator, cst.Add) and isinstance(left.value, Display | Merged) and isinstance(right.value, Display | Merged):
                    value = Merged((left.value, right.value))
                elif isinstance(node.operator, cst.Multiply) and (many := _many_cores(left.value, right.value)) is not None:
                    value = many
                elif isinstance(node.operator, cst.Divide):
                    value = self.settings.joined_path(left.value, right.value)
                if isinstance(value, Unknown):
                    value = SourceExpression(node=node, frame=frame)
                story = left.story or right.story
                out.append(Alternative(value, story, picks, left.doubt + right.doubt, left.reach or right.reach))
        return out


def _many_cores(left: Value, right: Value) -> Value | None:
    """The number of cores where one of two factors is that, and the other a number that makes it no smaller."""
    for cores, times in ((left, right), (right, left)):
        if is_cpu_count(cores) and isinstance(times, Const) and isinstance(times.value, int | float) and times.value >= 1:
            return cores
    return None
