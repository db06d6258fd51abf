"""What an expression can be, in a frame, with the story of each alternative."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import libcst as cst

from oomlint.model import names
from oomlint.model.calls import Calls
from oomlint.model.options import OptionSource
from oomlint.model.reach import Reach, path_conditions
from oomlint.model.settings_files import SettingsReader
from oomlint.model.values import (
    ABSENT,
    ASSUMED,
    FREE,
    Absent,
    Alternative,
    Bound,
    ClassRef,
    Const,
    Display,
    Element,
    External,
    ExternalCall,
    Frame,
    FunctionRef,
    Instance,
    Merged,
    ModuleRef,
    Options,
    Partial,
    Picks,
    Settings,
    Step,
    Unknown,
    Value,
    Written,
    join,
    truth_of,
)
from oomlint.syntax.walk import UNKNOWN_KEY, Effect, constant_key, path_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oomlint.model.project import Module, Project
    from oomlint.model.reach import Conditions
    from oomlint.syntax.walk import Accessor, Scope

Alternatives = list[Alternative]
_LITERALS: dict[str, object] = {"True": True, "False": False, "None": None}
_MOST = 32  # alternatives that are kept for one expression
_DEEPEST = 40  # nested questions
_BUDGET = 30_000  # questions for one outermost question
_UNKNOWN = Unknown()

_COMPARE: dict[type, Any] = {
    cst.Equal: operator.eq,
    cst.NotEqual: operator.ne,
    cst.LessThan: operator.lt,
    cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt,
    cst.GreaterThanEqual: operator.ge,
    cst.Is: operator.is_,
    cst.IsNot: operator.is_not,
}
_ARITHMETIC: dict[type, Any] = {
    cst.Add: operator.add,
    cst.Subtract: operator.sub,
    cst.Multiply: operator.mul,
    cst.FloorDivide: operator.floordiv,
    cst.Divide: operator.truediv,
    cst.Modulo: operator.mod,
    cst.Power: operator.pow,
    cst.LeftShift: operator.lshift,
}
_BINDING = frozenset({"assign", "for", "with", "def", "class", "import", "from", "unknown", "declare"})
CPU_COUNTS = frozenset({"os.cpu_count", "multiprocessing.cpu_count", "psutil.cpu_count", "os.process_cpu_count"})
# Calls that hand their first argument through, as far as a value is concerned.
_SAME = frozenset(
    {
        "builtins.int", "builtins.str", "builtins.bool", "builtins.float", "builtins.sorted", "builtins.list", "builtins.tuple", "builtins.dict",
        "builtins.vars", "copy.deepcopy", "copy.copy", "easydict.EasyDict", "addict.Dict", "munch.Munch", "munch.munchify", "box.Box", "argparse.Namespace",
        "omegaconf.OmegaConf.create", "omegaconf.OmegaConf.to_container", "types.SimpleNamespace", "omegaconf.DictConfig", "dotmap.DotMap",
        "pytorch_lightning.utilities.AttributeDict", "tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm", "tqdm.std.tqdm", "builtins.reversed", "builtins.iter",
        "natsort.natsorted", "builtins.set", "builtins.frozenset", "rich.progress.track",
    },
)  # fmt: skip


class Evaluator:
    """Answers what expressions of a project can be. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._memo: dict[tuple[cst.CSTNode, Frame], Alternatives] = {}
        self._active: set[object] = set()
        self._spent = 0
        self._depth = 0
        self.calls = Calls(project, self)
        self.options = OptionSource(project, self)
        self.settings = SettingsReader(project, self)

    # -- the two questions -------------------------------------------------------------------------------------------

    def values(self, node: cst.BaseExpression, frame: Frame) -> Alternatives:
        """Every value that ``node`` can have in ``frame``."""
        key = (node, frame)
        known = self._memo.get(key)
        if known is not None:
            return known
        if key in self._active or self._depth > _DEEPEST or self._spent > _BUDGET:
            return [Alternative(_UNKNOWN)]
        if self._depth == 0:
            self._spent = 0
        self._active.add(key)
        self._depth += 1
        self._spent += 1
        try:
            found = _trim(self._expression(node, frame))
        except RecursionError:
            found = [Alternative(_UNKNOWN)]
        finally:
            self._depth -= 1
            self._active.discard(key)
        if self._depth == 0 or self._spent < _BUDGET:
            self._memo[key] = found
        return found

    def truth(self, node: cst.BaseExpression, frame: Frame) -> list[tuple[bool, Picks, int]]:
        """Whether a test can come out true or false, under which picks, with how many assumptions."""
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            return [(not verdict, picks, doubt) for verdict, picks, doubt in self.truth(node.expression, frame)]
        if isinstance(node, cst.BooleanOperation):
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
            return out[:_MOST]
        out = []
        for alt in self.values(node, frame):
            verdict = truth_of(alt.value)
            if verdict is None and isinstance(alt.value, Display):
                verdict = _display_truth(alt.value)
            if verdict is not None:
                out.append((verdict, alt.picks, alt.doubt))
                continue
            # Nobody knows: both, tied to the words of the test, so that the same test elsewhere goes the same way.
            key = ("test", frame.module.path, frame.scope.qualname, frame.module.code(node).strip())
            for guess in (True, False):
                merged = join(alt.picks, frozenset({(key, guess)}))
                if merged is not None:
                    out.append((guess, merged, alt.doubt))
        return out[:_MOST]

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
            states = fresh[:_MOST]
            if not states:
                break
        return states

    def where(self, node: cst.CSTNode, frame: Frame) -> list[Picks]:
        """Picks under which control reaches ``node``."""
        found = path_conditions(frame.module.walk, frame.scope, node)
        return [picks for picks, _ in self.conditions(found, frame)]

    # -- expressions ---------------------------------------------------------------------------------------------------

    def _expression(self, node: cst.BaseExpression, frame: Frame) -> Alternatives:
        if isinstance(node, cst.Integer):
            return [self._constant(node.evaluated_value, node, frame)]
        if isinstance(node, cst.SimpleString | cst.ConcatenatedString | cst.Float):
            return [self._constant(node.evaluated_value, node, frame)]
        if isinstance(node, cst.Name | cst.Attribute | cst.Subscript):
            return self.access(node, (), frame)
        if isinstance(node, cst.Call):
            return self._call(node, frame)
        if isinstance(node, cst.IfExp):
            return self._choose(node.test, node.body, node.orelse, (), frame)
        if isinstance(node, cst.BooleanOperation):
            return self._boolean(node, frame)
        if isinstance(node, cst.Comparison):
            return self._comparison(node, frame)
        if isinstance(node, cst.UnaryOperation):
            return self._unary(node, frame)
        if isinstance(node, cst.BinaryOperation):
            return self._binary(node, frame)
        if isinstance(node, cst.Dict | cst.List | cst.Tuple | cst.Set | cst.ListComp | cst.DictComp | cst.SetComp | cst.GeneratorExp):
            return [Alternative(Display(node, frame))]
        if isinstance(node, cst.Lambda):
            return [Alternative(FunctionRef(frame.module, frame.module.walk.scope_of[node], None))]
        if isinstance(node, cst.NamedExpr):
            return self.values(node.value, frame)
        if isinstance(node, cst.FormattedString):
            return self._formatted(node, frame)
        if isinstance(node, cst.Await):
            return self.values(node.expression, frame)
        return [_written(node, frame)]

    def _constant(self, value: object, node: cst.CSTNode, frame: Frame) -> Alternative:
        return Alternative(Const(value), (Step(frame.module, node, f"{value!r} here", kind="constant"),))

    def _formatted(self, node: cst.FormattedString, frame: Frame) -> Alternatives:
        text = ""
        for part in node.parts:
            if isinstance(part, cst.FormattedStringText):
                text += part.value
                continue
            found = [a.const for a in self.values(part.expression, frame) if isinstance(a.value, Const)]
            if len(found) != 1:
                return [_written(node, frame)]
            text += str(found[0])
        return [Alternative(Const(text))]

    def _choose(self, test: cst.BaseExpression, yes: cst.BaseExpression, no: cst.BaseExpression, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        out: Alternatives = []
        verdicts = self.truth(test, frame)
        both = len({v for v, _, _ in verdicts}) > 1
        for verdict, picks, doubt in verdicts:
            for alt in self.access(yes if verdict else no, accessors, frame):
                merged = alt.under(picks)
                if merged is not None:
                    step = Step(frame.module, test, f"where `{_short(frame.module.code(test))}` is {'true' if verdict else 'false'}", kind="branch")
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
                        merged = replace(merged, value=Const(False))  # whatever it is, it counts as false here
                    out.append(merged.doubting(doubt))
        return out

    def _comparison(self, node: cst.Comparison, frame: Frame) -> Alternatives:
        if len(node.comparisons) != 1:
            return [Alternative(_UNKNOWN)]
        target = node.comparisons[0]
        compare = _COMPARE.get(type(target.operator))
        out: Alternatives = []
        for left in self.values(node.left, frame):
            for right in self.values(target.comparator, frame):
                picks = join(left.picks, right.picks)
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
                elif isinstance(target.operator, cst.In | cst.NotIn):
                    verdict = self._contained(left.value, right.value, frame, negated=isinstance(target.operator, cst.NotIn))
                out.append(Alternative(Const(verdict) if verdict is not None else _UNKNOWN, (), picks, doubt, left.reach or right.reach))
        return out

    def _contained(self, left: Value, right: Value, frame: Frame, *, negated: bool) -> bool | None:
        del frame
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
                out.append(Alternative(Const(value), (Step(frame.module, node, f"{value!r} here", kind="constant"),), alt.picks, alt.doubt, alt.reach))
            else:
                out.append(Alternative(_UNKNOWN, (), alt.picks))
        return out

    def _binary(self, node: cst.BinaryOperation, frame: Frame) -> Alternatives:
        act = _ARITHMETIC.get(type(node.operator))
        out: Alternatives = []
        for left in self.values(node.left, frame):
            if self._is_cpu_count(left.value) and isinstance(node.operator, cst.FloorDivide | cst.Subtract):
                out.append(Alternative(External("os.cpu_count()"), left.story, left.picks, left.doubt))
                continue
            for right in self.values(node.right, frame):
                picks = join(left.picks, right.picks)
                if picks is None:
                    continue
                if isinstance(node.operator, cst.BitOr) and (isinstance(left.value, Display | Merged) or isinstance(right.value, Display | Merged)):
                    out.append(Alternative(Merged((left.value, right.value)), (), picks, left.doubt + right.doubt))
                    continue
                value: Value = _UNKNOWN
                if act is not None and isinstance(left.value, Const) and isinstance(right.value, Const):
                    try:
                        number = act(left.value.value, right.value.value)
                        if not isinstance(number, str | bytes | list | tuple) or len(number) < 10_000:
                            value = Const(number)
                    except (TypeError, ValueError, ZeroDivisionError, OverflowError, MemoryError):
                        value = _UNKNOWN
                elif isinstance(node.operator, cst.Add) and isinstance(left.value, Display | Merged) and isinstance(right.value, Display | Merged):
                    value = Merged((left.value, right.value))
                elif isinstance(node.operator, cst.Divide):
                    value = self.settings.joined_path(left.value, right.value)
                if isinstance(value, Unknown):
                    value = Written("", node, frame)
                story = left.story or right.story
                out.append(Alternative(value, story, picks, left.doubt + right.doubt, left.reach or right.reach))
        return out

    @staticmethod
    def _is_cpu_count(value: Value) -> bool:
        return (isinstance(value, ExternalCall) and value.name in CPU_COUNTS) or (isinstance(value, External) and value.name == "os.cpu_count()")

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, node: cst.Call, frame: Frame) -> Alternatives:
        method = self._method_on_value(node, frame)
        if method is not None:
            return method
        out: Alternatives = []
        for callee in self.values(node.func, frame):
            for alt in self.result(callee.value, node, frame):
                merged = alt.under(callee.picks)
                if merged is not None:
                    known = type(alt.value) is not Unknown
                    out.append(merged.doubting(callee.doubt) if known else _written(node, frame, merged.picks))
        return out or [_written(node, frame)]

    def result(self, callee: Value, node: cst.Call, frame: Frame, extra: tuple[Bound, ...] = ()) -> Alternatives:
        """What calling ``callee`` with the arguments of ``node`` gives."""
        bound = (*extra, Bound(tuple(node.args), frame, node))
        if isinstance(callee, ClassRef):
            if self.is_enum(callee):
                return [Alternative(_UNKNOWN)]
            return [Alternative(Instance(callee, bound, node, frame))]
        if isinstance(callee, FunctionRef):
            return self.returned(callee, bound, ())
        if isinstance(callee, Partial):
            return self.result(callee.func, node, frame, (callee.bound, *extra))
        if isinstance(callee, Instance):
            called = self.method(callee, "__call__")
            return self.returned(called, bound, ()) if called is not None else [Alternative(_UNKNOWN)]
        if isinstance(callee, External):
            return self._external(names.canonical(callee.name), node, frame)
        return [Alternative(_UNKNOWN)]

    def returned(self, function: FunctionRef, bound: tuple[Bound, ...], accessors: tuple[Accessor, ...]) -> Alternatives:
        """What a function of the project returns (or an element of it)."""
        scope = function.scope
        inner = Frame(function.module, scope, bound, function.this, self._closure(function, bound))
        if inner.depth > 8:
            return [Alternative(_UNKNOWN)]
        if isinstance(scope.node, cst.Lambda):
            return self.access(scope.node.body, accessors, inner)
        if scope.yields:
            return [Alternative(_UNKNOWN)]
        out: Alternatives = []
        several = len(scope.returns) > 1
        origin = ("return", scope, bound[-1].call if bound else None)
        for statement in scope.returns[:12]:
            if statement.value is None:
                out.append(Alternative(Const(None)))
                continue
            states = self.where(statement, inner)
            if several:
                states = [m for picks in states if (m := join(picks, frozenset({(origin, id(statement))}))) is not None]
            if not states:
                continue
            for alt in self.access(statement.value, accessors, inner):
                for picks in states[:4]:
                    merged = alt.under(picks)
                    if merged is not None:
                        out.append(merged)
        return _trim(out) or [Alternative(Const(None) if not scope.returns else _UNKNOWN)]

    def _closure(self, function: FunctionRef, bound: tuple[Bound, ...]) -> Frame | None:
        parent = function.scope.parent
        if parent is None or not parent.is_function:
            return None
        for layer in bound:
            here: Frame | None = layer.frame
            while here is not None:
                if here.scope is parent:
                    return here
                here = here.outer
        return None

    def _argument(self, node: cst.Call, position: int, name: str = "") -> cst.BaseExpression | None:
        place = 0
        for arg in node.args:
            if arg.keyword is not None:
                if name and arg.keyword.value == name:
                    return arg.value
            elif arg.star == "":
                if place == position:
                    return arg.value
                place += 1
            else:
                return None
        return None

    def _external(self, name: str, node: cst.Call, frame: Frame) -> Alternatives:
        first = self._argument(node, 0)
        if name == "functools.partial" and first is not None:
            rest = Bound(tuple(node.args[1:]), frame, node)
            return [Alternative(Partial(a.value, rest), a.story, a.picks, a.doubt) for a in self.values(first, frame)]
        if name in {"builtins.min", "builtins.max"}:
            return self._extreme(name == "builtins.min", node, frame)
        if name in {"builtins.dict", "argparse.Namespace", "types.SimpleNamespace", "easydict.EasyDict", "addict.Dict", "munch.Munch", "dotmap.DotMap"} and any(
            a.keyword is not None or a.star == "**" for a in node.args
        ):
            return [Alternative(Display(node, frame))]
        if name == "os.getenv" and len(node.args) > 1:
            return [Alternative(_UNKNOWN, reach=True), *self.values(node.args[1].value, frame)]
        if name == "builtins.getattr":
            return self._getattr(node, frame)
        if name in _SAME and first is not None:
            return self._convert(name, self.values(first, frame))
        loaded = self.settings.loaded(name, node, frame)
        if loaded is not None:
            return loaded
        if name in {"os.path.join", "pathlib.Path", "os.path.abspath", "os.path.expanduser", "pathlib.PurePath", "os.path.dirname", "os.path.realpath"}:
            path = self.settings.path_call(name, node, frame)
            if isinstance(path, Const):
                return [Alternative(path)]
        if name == "builtins.len" and first is not None:
            return self._length(first, frame)
        return [Alternative(ExternalCall(name, node, frame), (Step(frame.module, node, f"`{_short(frame.module.code(node))}`", kind="call"),))]

    def _convert(self, name: str, found: Alternatives) -> Alternatives:
        convert = {"builtins.int": int, "builtins.str": str, "builtins.bool": bool, "builtins.float": float}.get(name)
        if convert is None:
            return found
        out: Alternatives = []
        for alt in found:
            if isinstance(alt.value, Const):
                try:
                    out.append(Alternative(Const(convert(alt.value.value)), alt.story, alt.picks, alt.doubt, alt.reach))  # type: ignore[arg-type]
                except (TypeError, ValueError):
                    out.append(Alternative(_UNKNOWN, (), alt.picks))
            elif convert is bool and (verdict := truth_of(alt.value)) is not None:
                out.append(Alternative(Const(verdict), alt.story, alt.picks, alt.doubt, alt.reach))
            elif convert is int and self._is_cpu_count(alt.value):
                out.append(alt)
            else:
                out.append(Alternative(_UNKNOWN, (), alt.picks))
        return out

    def _length(self, node: cst.BaseExpression, frame: Frame) -> Alternatives:
        out: Alternatives = []
        for alt in self.values(node, frame):
            value: Value = _UNKNOWN
            if isinstance(alt.value, Display) and isinstance(alt.value.node, cst.List | cst.Tuple | cst.Set | cst.Dict):
                elements = alt.value.node.elements
                if not is_grown(alt.value) and not any(isinstance(e, cst.StarredElement | cst.StarredDictElement) for e in elements):
                    value = Const(len(elements))
            elif isinstance(alt.value, Const) and isinstance(alt.value.value, str):
                value = Const(len(alt.value.value))
            elif isinstance(alt.value, ExternalCall) and alt.value.name == "os.sched_getaffinity":
                value = External("os.sched_getaffinity()")
            out.append(Alternative(value, alt.story, alt.picks, alt.doubt))
        return out

    def _extreme(self, least: bool, node: cst.Call, frame: Frame) -> Alternatives:  # noqa: FBT001
        """``min`` and ``max`` over numbers. An unknown operand still bounds: ``min(x, 0)`` is never above 0, ``max(1, x)`` never below 1."""
        operands = [arg.value for arg in node.args if arg.keyword is None and arg.star == ""]
        if len(operands) == 1:
            inner = operands[0]
            if not isinstance(inner, cst.List | cst.Tuple):
                return [Alternative(_UNKNOWN)]
            operands = [e.value for e in inner.elements if isinstance(e, cst.Element)]
        states: list[tuple[list[float], bool, Alternative | None, Picks, int, bool]] = [([], False, None, FREE, 0, False)]
        cores = any(self._is_cpu_count(a.value) for operand in operands for a in self.values(operand, frame))
        for operand in operands:
            fresh = []
            for numbers, open_, best, picks, doubt, reach in states:
                for alt in self.values(operand, frame):
                    merged = join(picks, alt.picks)
                    if merged is None:
                        continue
                    if isinstance(alt.const, int | float):
                        better = best is None or best.const is None or ((alt.const < best.const) if least else (alt.const > best.const))  # type: ignore[operator]
                        fresh.append(([*numbers, alt.const], open_, alt if better else best, merged, doubt + alt.doubt, reach or alt.reach))
                    else:
                        fresh.append((numbers, True, best, merged, doubt + alt.doubt, reach))
            states = fresh[:_MOST]
        out: Alternatives = []
        for numbers, open_, best, picks, doubt, reach in states:
            if not numbers or best is None:
                out.append(Alternative(_UNKNOWN, (), picks))
                continue
            number = min(numbers) if least else max(numbers)
            if not open_ or (least and number == 0):
                out.append(Alternative(Const(number), best.story, picks, doubt, reach))
            elif not least and cores:
                # `max(1, os.cpu_count() - 1)` is the number of cores on any machine that trains.
                out.append(Alternative(External("os.cpu_count()"), best.story, picks, doubt, reach))
            else:
                # A bound and an unknown: take the bound for the plain run, with an assumption more.
                out.append(Alternative(Const(number), best.story, picks, doubt + 1, reach))
        return out

    def _getattr(self, node: cst.Call, frame: Frame) -> Alternatives:
        if len(node.args) < 2:
            return [Alternative(_UNKNOWN)]
        key = constant_key(node.args[1].value)
        if not isinstance(key, str):
            return [Alternative(_UNKNOWN)]
        found = self.access(node.args[0].value, (("attr", key),), frame)
        if len(node.args) == 3:
            fallback = self.values(node.args[2].value, frame)
            return [b for a in found for b in (fallback if isinstance(a.value, Absent) else [a])]
        return found

    def _method_on_value(self, node: cst.Call, frame: Frame) -> Alternatives | None:
        """Methods of plain Python values that hand a value through: ``d.get("k", 0)``, ``parser.parse_args()``, ``d.copy()``."""
        func = node.func
        if not isinstance(func, cst.Attribute):
            return None
        attr = func.attr.value
        if attr in {"get", "pop", "setdefault"} and node.args and node.args[0].keyword is None:
            key = constant_key(node.args[0].value)
            if key is UNKNOWN_KEY:
                return None
            base = self.values(func.value, frame)
            if any(isinstance(a.value, External) and a.value.name == "os.environ" for a in base) and len(node.args) > 1:
                return [Alternative(_UNKNOWN, reach=True), *self.values(node.args[1].value, frame)]
            if not any(isinstance(a.value, Display | Settings | Merged | Options | Absent | Unknown) for a in base):
                return None
            found = self.access(func.value, (("item", key),), frame) if attr != "pop" else self._before_pop(func.value, key, frame)
            if len(node.args) < 2:
                return [Alternative(Const(None), a.story, a.picks, a.doubt) if isinstance(a.value, Absent) else a for a in found]
            default = self.values(node.args[1].value, frame)
            out: Alternatives = []
            for alt in found:
                if isinstance(alt.value, Absent):
                    out.extend(m for d in default if (m := d.under(alt.picks)) is not None)
                elif isinstance(alt.value, Unknown):
                    # Whoever leaves the key out gets the default.
                    out.append(replace(alt, reach=True))
                    step = Step(frame.module, node, f"where `{key}` is left out", kind="branch")
                    out.extend(replace(d.after(step), picks=m.picks) for d in default if (m := d.under(alt.picks)) is not None)
                else:
                    out.append(alt)
            return out
        if attr in {"copy", "items"} and not node.args:
            found = self.values(func.value, frame)
            if any(isinstance(a.value, Display | Settings | Merged | Instance | Options) for a in found):
                return found
            return None
        if attr in {"parse_args", "parse_known_args", "parse_args_and_config"}:
            return [Alternative(Options(frame.module, node, "argparse"))]
        if attr == "parse_args_into_dataclasses":
            return [Alternative(_UNKNOWN)]
        return None

    def _before_pop(self, base: cst.BaseExpression, key: object, frame: Frame) -> Alternatives:
        # The pop itself is an effect in this very statement; it removes the key after the value was read.
        path = path_of(base)
        if path is None:
            return self.access(base, (("item", key),), frame)
        return self.resolve(path[0], (*path[1], ("item", key)), frame, base)

    # -- access: names, attributes, keys -------------------------------------------------------------------------------

    def access(self, node: cst.BaseExpression, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """The value of ``node`` followed by attributes and keys."""
        if not accessors and isinstance(node, cst.Name) and node.value in _LITERALS:
            return [self._constant(_LITERALS[node.value], node, frame)]
        if isinstance(node, cst.Subscript):
            keyed = self._computed_key(node, accessors, frame)
            if keyed is not None:
                return keyed
        path = path_of(node)
        if path is not None:
            if path[1] or accessors or isinstance(node, cst.Name):
                return self.resolve(path[0], (*path[1], *accessors), frame, node)
            return [Alternative(_UNKNOWN)]
        if isinstance(node, cst.Attribute):
            return self.access(node.value, (("attr", node.attr.value), *accessors), frame)
        if isinstance(node, cst.Subscript):
            if len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
                return self.access(node.value, (("item", constant_key(node.slice[0].slice.value)), *accessors), frame)
            return [Alternative(_UNKNOWN)] if accessors else [_written(node, frame)]
        if not accessors:
            return self.values(node, frame)
        if isinstance(node, cst.IfExp):
            return self._choose(node.test, node.body, node.orelse, accessors, frame)
        if isinstance(node, cst.NamedExpr):
            return self.access(node.value, accessors, frame)
        if isinstance(node, cst.Dict | cst.List | cst.Tuple | cst.DictComp | cst.ListComp):
            return self._inside(node, accessors, frame)
        out: Alternatives = []
        if isinstance(node, cst.Call) and self._method_on_value(node, frame) is None:
            # The element of what a project's function returns is looked up in its return statements.
            for callee in self.values(node.func, frame):
                found: Alternatives
                if isinstance(callee.value, FunctionRef):
                    found = self.returned(callee.value, (Bound(tuple(node.args), frame, node),), accessors)
                else:
                    found = [b for a in self.result(callee.value, node, frame) for b in self.reach_into(a, accessors)]
                out.extend(m for alt in found if (m := alt.under(callee.picks)) is not None)
            return _trim(out) or [Alternative(_UNKNOWN)]
        for alt in self.values(node, frame):
            out.extend(self.reach_into(alt, accessors))
        return _trim(out) or [Alternative(_UNKNOWN)]

    def _computed_key(self, node: cst.Subscript, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives | None:
        """``table[name]`` where ``name`` is known; ``None`` where the key is literal, or nobody knows it."""
        if len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
            return None
        key = node.slice[0].slice.value
        if not isinstance(key, cst.Name | cst.Attribute) or (isinstance(key, cst.Name) and key.value in _LITERALS):
            return None
        found = self.values(key, frame)
        known = [a for a in found if isinstance(a.value, Const) and isinstance(a.value.value, str | int)]
        if not known or len(known) < len([a for a in found if not a.reach]):
            return None
        out: Alternatives = []
        for alt in known[:4]:
            for value in self.access(node.value, (("item", alt.const), *accessors), frame):
                merged = value.under(alt.picks)
                if merged is not None:
                    out.append(replace(merged, doubt=merged.doubt + alt.doubt, reach=merged.reach or alt.reach))
        return _trim(out)

    def reach_into(self, alt: Alternative, accessors: tuple[Accessor, ...]) -> Alternatives:
        """Attributes and keys of a value."""
        if not accessors:
            return [alt]
        out: Alternatives = []
        for found in self._into(alt.value, accessors):
            merged = found.under(alt.picks)
            if merged is not None:
                out.append(merged.doubting(alt.doubt))
        return out

    def _into(self, value: Value, accessors: tuple[Accessor, ...]) -> Alternatives:
        kind, name = accessors[0]
        rest = accessors[1:]
        if isinstance(value, External):
            if kind == "attr":
                deeper = External(names.canonical(f"{value.name}.{name}"))
                if deeper.name in {"absl.flags.FLAGS"}:
                    return self._into(Options(self._any_module(), cst.Pass(), "absl"), rest) if rest else [Alternative(deeper)]
                return self.reach_into(Alternative(deeper), rest)
            return [Alternative(_UNKNOWN)]
        if isinstance(value, ModuleRef):
            return self._module_member(value, str(name), rest) if kind == "attr" else [Alternative(_UNKNOWN)]
        if isinstance(value, ClassRef):
            return self._class_member(value, str(name), rest, None) if kind == "attr" else self._enum_item(value, name, rest)
        if isinstance(value, Instance):
            return self.attribute(value, str(name), rest) if kind == "attr" else self._getitem(value, name, rest)
        if isinstance(value, Options):
            if kind == "item" and isinstance(name, int):  # (options, args) = parser.parse_args()
                return self.reach_into(Alternative(value), rest) if name == 0 else [Alternative(_UNKNOWN)]
            if name == "__dict__":
                return self.reach_into(Alternative(value), rest)
            found = self.options.lookup(value, str(name))
            return [b for a in found for b in self.reach_into(a, rest)]
        if isinstance(value, Settings):
            found = self.settings.member(value, name)
            return [b for a in found for b in self.reach_into(a, rest)]
        if isinstance(value, Merged):
            return self._merged(value, accessors)
        if isinstance(value, Display):
            return self._inside(value.node, accessors, value.frame)
        if isinstance(value, Partial) and kind == "attr":
            return [Alternative(_UNKNOWN)]
        if isinstance(value, ExternalCall):
            return [Alternative(Element(value, accessors))]
        return [Alternative(_UNKNOWN)]

    def _any_module(self) -> Module:
        return next(iter(m for m in self.project._modules.values() if not isinstance(m, Exception)))  # noqa: SLF001

    def _merged(self, value: Merged, accessors: tuple[Accessor, ...]) -> Alternatives:
        out: Alternatives = []
        for part in value.parts[::-1]:
            absent = False
            for alt in self._into(part, accessors):
                if isinstance(alt.value, Absent):
                    absent = True
                else:
                    out.append(alt)
            if not absent:
                return out
        return [*out, Alternative(ABSENT)]

    def _getitem(self, value: Instance, name: object, rest: tuple[Accessor, ...]) -> Alternatives:
        # Config objects often read as mappings.
        if isinstance(name, str):
            found = self.attribute(value, name, rest)
            if found and not all(isinstance(a.value, Unknown | Absent) for a in found):
                return found
        return [Alternative(_UNKNOWN)]

    def _enum_item(self, value: ClassRef, name: object, rest: tuple[Accessor, ...]) -> Alternatives:
        return self._class_member(value, name, rest, None) if isinstance(name, str) else [Alternative(_UNKNOWN)]

    def _inside(self, node: cst.BaseExpression, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """An element of a display."""
        _kind, key = accessors[0]
        rest = accessors[1:]
        if isinstance(node, cst.Call):  # dict(a=1, **b), Namespace(a=1)
            return self._inside_call(node, accessors, frame)
        if isinstance(node, cst.Dict):
            return self._inside_dict(node, accessors, frame)
        if isinstance(node, cst.List | cst.Tuple):
            elements = node.elements
            if isinstance(key, int) and not any(isinstance(e, cst.StarredElement) for e in elements) and -len(elements) <= key < len(elements):
                return self.access(elements[key].value, rest, frame)
            if key is UNKNOWN_KEY:
                return [a for e in elements[:6] if isinstance(e, cst.Element) for a in self.access(e.value, rest, frame)] or [Alternative(_UNKNOWN)]
            return [Alternative(_UNKNOWN)]
        if isinstance(node, cst.DictComp):
            return self.access(node.value, rest, frame)
        if isinstance(node, cst.ListComp | cst.GeneratorExp):
            return self.access(node.elt, rest, frame)
        return [Alternative(_UNKNOWN)]

    def _inside_dict(self, node: cst.Dict, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        key = accessors[0][1]
        rest = accessors[1:]
        out: Alternatives = []
        if key is UNKNOWN_KEY:
            return [a for e in node.elements[:6] if isinstance(e, cst.DictElement) for a in self.access(e.value, rest, frame)] or [Alternative(_UNKNOWN)]
        unknown_keys = False
        for element in reversed(node.elements):
            if isinstance(element, cst.DictElement):
                known = constant_key(element.key)
                if known is UNKNOWN_KEY:
                    known = self._one_constant(element.key, frame)
                if known is UNKNOWN_KEY:
                    unknown_keys = True
                elif known == key and type(known) is type(key):
                    return [*out, *self.access(element.value, rest, frame)]
                continue
            absent: list[Alternative] = []
            for alt in self.access(element.value, accessors, frame):
                (absent if isinstance(alt.value, Absent) else out).append(alt)
            if not absent:
                return out
        out.append(Alternative(_UNKNOWN if unknown_keys else ABSENT))
        return out

    def _one_constant(self, node: cst.BaseExpression, frame: Frame) -> object:
        found = self.values(node, frame)
        return found[0].const if len(found) == 1 and isinstance(found[0].value, Const) else UNKNOWN_KEY

    def _inside_call(self, node: cst.Call, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        key = accessors[0][1]
        out: Alternatives = []
        for arg in reversed(node.args):
            if arg.keyword is not None:
                if arg.keyword.value == key:
                    return [*out, *self.access(arg.value, accessors[1:], frame)]
                continue
            absent = False
            for alt in self.access(arg.value, accessors, frame):
                if isinstance(alt.value, Absent):
                    absent = True
                else:
                    out.append(alt)
            if not absent:
                return out
        return [*out, Alternative(ABSENT)]

    # -- modules, classes, instances -------------------------------------------------------------------------------------

    def module_frame(self, module: Module) -> Frame:
        """The frame of a module's own code."""
        return Frame(module, module.root)

    def _module_member(self, value: ModuleRef, name: str, rest: tuple[Accessor, ...]) -> Alternatives:
        if value.module is not None:
            scope = value.module.root
            if name in scope.effects or "*" in scope.effects:
                found = self.resolve(name, rest, self.module_frame(value.module), None)
                if not all(isinstance(a.value, Unknown) for a in found):
                    return found
        deeper = self.project.submodule(value.path, name)
        if deeper is not None:
            return self.reach_into(Alternative(self._module_value(deeper)), rest)
        return [Alternative(_UNKNOWN)]

    def _module_value(self, path: str) -> Value:
        if path.endswith("/"):
            return ModuleRef(path, None)
        module = self.project.find(path)
        return ModuleRef(path, module) if module is not None else _UNKNOWN

    def bases(self, cls: ClassRef) -> list[Value]:
        """Base classes as they are written, resolved."""
        node = cls.scope.node
        if not isinstance(node, cst.ClassDef):
            return []
        frame = self.module_frame(cls.module)
        out: list[Value] = []
        for arg in node.bases:
            base = arg.value.value if isinstance(arg.value, cst.Subscript) else arg.value  # Dataset[int]
            out.extend(a.value for a in self.values(base, frame)[:2])
        return out

    def lineage(self, cls: ClassRef) -> list[ClassRef | External]:
        """The class and what it derives from, nearest first."""
        key = ("lineage", cls)
        known = self.project.memo.get(key)
        if known is not None:
            return known  # type: ignore[return-value]
        out: list[ClassRef | External] = []
        queue: list[Value] = [cls]
        while queue and len(out) < 20:
            here = queue.pop(0)
            if here in out:
                continue
            if isinstance(here, ClassRef):
                out.append(here)
                queue.extend(self.bases(here))
            elif isinstance(here, External):
                out.append(External(names.canonical(here.name)))
        self.project.memo[key] = out
        return out

    def derives(self, cls: ClassRef, *wanted: str) -> bool:
        """Whether the class derives from one of these library classes."""
        return any(isinstance(base, External) and base.name in wanted for base in self.lineage(cls))

    def is_enum(self, cls: ClassRef) -> bool:
        """Whether the class is an enumeration."""
        return any(isinstance(base, External) and base.name.startswith("enum.") for base in self.lineage(cls))

    def method(self, instance: Instance, name: str) -> FunctionRef | None:
        """A method by the order of inheritance."""
        for cls in self.lineage(instance.cls):
            if isinstance(cls, ClassRef):
                scope = cls.scope.child(name)
                if scope is not None and isinstance(scope.node, cst.FunctionDef):
                    return FunctionRef(cls.module, scope, instance)
        return None

    def _class_member(self, cls: ClassRef, name: str, rest: tuple[Accessor, ...], this: Instance | None) -> Alternatives:
        for base in self.lineage(cls):
            if not isinstance(base, ClassRef):
                continue
            effects = base.scope.effects.get(name)
            if not effects:
                continue
            if effects[-1].kind == "def":
                scope = base.scope.child(name)
                if scope is None:
                    return [Alternative(_UNKNOWN)]
                function = FunctionRef(base.module, scope, this if not names.is_static(scope) else None)
                if names.is_property(scope) and this is not None:
                    return self.returned(function, (), rest)
                return self.reach_into(Alternative(function), rest)
            return self.resolve(name, rest, Frame(base.module, base.scope), None)
        if any(isinstance(base, External) and not base.name.startswith("builtins.") for base in self.lineage(cls)):
            return [Alternative(_UNKNOWN)]
        return [Alternative(ABSENT)]

    def init_frame(self, instance: Instance) -> Frame | None:
        """The frame in which ``__init__`` runs for this object."""
        init = self.method(instance, "__init__")
        if init is None:
            return None
        return Frame(init.module, init.scope, instance.bound, instance)

    def fields(self, cls: ClassRef) -> list[tuple[str, cst.BaseExpression | None, Module]] | None:
        """Fields of a dataclass or named tuple in order, with defaults; ``None`` for other classes."""
        out: dict[str, tuple[str, cst.BaseExpression | None, Module]] = {}
        seen = False
        for base in reversed(self.lineage(cls)):
            if isinstance(base, External):
                seen = seen or base.name in {"typing.NamedTuple", "pydantic.BaseModel", "pydantic_settings.BaseSettings"} or base.name.endswith("TrainingArguments")
                continue
            node = base.scope.node
            if isinstance(node, cst.ClassDef) and any("dataclass" in names.last_name(_decorator(d)) or names.last_name(_decorator(d)) in {"define", "attrs", "s", "frozen", "configclass"} for d in node.decorators):
                seen = True
            for name, effects in base.scope.effects.items():
                for effect in effects:
                    if effect.kind in {"assign", "declare"} and isinstance(effect.statement, cst.AnnAssign) and not effect.path:
                        out[name] = (name, effect.value, base.module)
        return list(out.values()) if seen else None

    def attribute(self, instance: Instance, name: str, rest: tuple[Accessor, ...]) -> Alternatives:
        """``self.name`` followed by more: what ``__init__``, the class body, other methods and the bases say."""
        guard = ("attribute", instance.cls, instance.bound is None, instance.call, name, rest)
        if guard in self._active:
            return [Alternative(_UNKNOWN)]
        self._active.add(guard)
        try:
            return self._attribute(instance, name, rest)
        finally:
            self._active.discard(guard)

    def _attribute(self, instance: Instance, name: str, rest: tuple[Accessor, ...]) -> Alternatives:
        init = self.init_frame(instance)
        out: Alternatives = []
        if init is not None:
            found = self._own_attribute(init, name, rest)
            if found is not None:
                if not any(isinstance(a.value, Absent) for a in found):
                    return found
                out = [a for a in found if not isinstance(a.value, Absent)]
            if name in {"hparams", "_hparams"} and rest and not out and rest[0][0] in {"attr", "item"} and self._saves_hyperparameters(init):
                return self._hyperparameter(init, str(rest[0][1]), rest[1:])
        field = self._field(instance, name, rest)
        if field is not None:
            return field
        other = self._set_elsewhere(instance, name, rest)
        if other:
            return [*out, *other]
        found = self._class_member(instance.cls, name, rest, instance)
        if out and all(isinstance(a.value, Absent) for a in found):
            return out
        return [*out, *found]

    def _own_attribute(self, init: Frame, name: str, rest: tuple[Accessor, ...]) -> Alternatives | None:
        """What ``__init__`` (with the ``super().__init__`` that it calls) leaves in an attribute; ``None`` where it does not set it."""
        this = names.self_name(init.scope)
        if this is not None and any(e.path[:1] == (("attr", name),) and e.kind in {"assign", "with", "for", "unknown", "augment"} for e in init.scope.effects.get(this, ())):
            return self._search(this, (("attr", name), *rest), init, None, start=lambda: [Alternative(ABSENT)])
        for call in init.scope.calls:
            parent = self.super_init(call, init)
            if parent is not None:
                found = self._own_attribute(parent, name, rest)
                if found is not None:
                    return found
        return None

    def super_init(self, call: cst.Call, frame: Frame) -> Frame | None:
        """The frame of the base class's ``__init__`` that a ``super().__init__(...)`` runs."""
        func = call.func
        if not (isinstance(func, cst.Attribute) and func.attr.value == "__init__"):
            return None
        args = list(call.args)
        own = frame.scope.parent
        start: ClassRef | None = None
        if isinstance(func.value, cst.Call) and names.last_name(func.value.func) == "super":
            pass
        else:
            named = self.values(func.value, frame)
            if len(named) == 1 and isinstance(named[0].value, ClassRef):
                start = named[0].value
                args = args[1:]
            else:
                return None
        if frame.this is None:
            return None
        line = [c for c in self.lineage(frame.this.cls) if isinstance(c, ClassRef)]
        if start is None:
            place = next((n for n, c in enumerate(line) if c.scope is own), None)
            if place is None:
                return None
            line = line[place + 1 :]
        else:
            line = [start, *[c for c in self.lineage(start) if isinstance(c, ClassRef)]]
        for cls in line:
            scope = cls.scope.child("__init__")
            if scope is not None and scope is not frame.scope:
                return Frame(cls.module, scope, (Bound(tuple(args), frame, call),), frame.this)
        return None

    def _saves_hyperparameters(self, init: Frame) -> bool:
        return any(names.last_name(call.func) == "save_hyperparameters" for call in init.scope.calls)

    def _hyperparameter(self, init: Frame, name: str, rest: tuple[Accessor, ...]) -> Alternatives:
        params = {p.name.value for p in names.parameters(init.scope)}
        if name in params:
            return self._parameter(name, rest, init)
        node = init.scope.node
        if isinstance(node, cst.FunctionDef) and node.params.star_kwarg is not None:
            return self._parameter(node.params.star_kwarg.name.value, (("item", name), *rest), init)
        # save_hyperparameters(args): the namespace itself
        for call in init.scope.calls:
            if names.last_name(call.func) == "save_hyperparameters" and call.args and call.args[0].star == "" and not isinstance(call.args[0].value, cst.SimpleString):
                return self.access(call.args[0].value, (("attr", name), *rest), init)
        return [Alternative(_UNKNOWN)]

    def _field(self, instance: Instance, name: str, rest: tuple[Accessor, ...]) -> Alternatives | None:
        fields = self.fields(instance.cls)
        if fields is None:
            return None
        found = next(((n, f) for n, f in enumerate(fields) if f[0] == name), None)
        if found is None:
            return None
        position, (_, default, module) = found
        bound = instance.bound
        if bound is not None:
            given = names.keyword(bound, name)
            if given is None:
                ordered = names.positional(bound)
                given = ordered[position] if ordered is not None and position < len(ordered) else None
            if given is not None:
                return self._passed(given, name, rest)
            for star in names.starred(bound):
                got = self.access(star.node.value, (("item", name), *rest), star.bound.frame)
                if not all(isinstance(a.value, Absent) for a in got):
                    return got
        if default is None:
            return [Alternative(_UNKNOWN)]
        frame = self.module_frame(module)
        if isinstance(default, cst.Call) and names.last_name(default.func) in {"field", "Field", "ib", "attrib"}:
            inner = next((a.value for a in default.args if a.keyword is not None and a.keyword.value == "default"), None)
            if inner is None and default.args and default.args[0].keyword is None:
                inner = default.args[0].value
            if inner is None:
                factory = next((a.value for a in default.args if a.keyword is not None and a.keyword.value == "default_factory"), None)
                if factory is None:
                    return [Alternative(_UNKNOWN)]
                made = [b for a in self.values(factory, frame) for b in self._make(a.value, default, frame)]
                return [b for a in made for b in self.reach_into(a, rest)]
            default = inner
        step = Step(module, default, f"default of field `{name}`", kind="default")
        return [a.after(step) for a in self.access(default, rest, frame)]

    def _make(self, factory: Value, node: cst.Call, frame: Frame) -> Alternatives:
        if isinstance(factory, ClassRef):
            return [Alternative(Instance(factory, (), node, frame))]
        if isinstance(factory, FunctionRef):
            return self.returned(factory, (), ())
        return [Alternative(_UNKNOWN)]

    def _set_elsewhere(self, instance: Instance, name: str, rest: tuple[Accessor, ...]) -> Alternatives:
        """Attributes that other methods set (``setup``, ``prepare_data``, a builder that ``__init__`` calls)."""
        out: Alternatives = []
        for cls in self.lineage(instance.cls):
            if not isinstance(cls, ClassRef):
                continue
            for scope in cls.scope.children:
                this = names.self_name(scope)
                if this is None or scope.name == "__init__":
                    continue
                if any(e.path[:1] == (("attr", name),) and e.kind == "assign" for e in scope.effects.get(this, ())):
                    frame = self._method_frame(cls, scope, instance)
                    found = self._search(this, (("attr", name), *rest), frame, None, start=lambda: [Alternative(ABSENT)])
                    out.extend(a for a in found if not isinstance(a.value, Absent))
        return _trim(out)

    def _method_frame(self, cls: ClassRef, scope: Scope, instance: Instance) -> Frame:
        """The frame of a method, bound to the arguments with which ``__init__`` calls it where it does."""
        init = self.init_frame(instance)
        if init is not None:
            for call in init.scope.calls:
                if names.last_name(call.func) == scope.name and isinstance(call.func, cst.Attribute) and isinstance(call.func.value, cst.Name) and call.func.value.value == names.self_name(init.scope):
                    return Frame(cls.module, scope, (Bound(tuple(call.args), init, call),), instance)
        return Frame(cls.module, scope, None, instance)

    # -- names ---------------------------------------------------------------------------------------------------------

    def resolve(self, root: str, accessors: tuple[Accessor, ...], frame: Frame, at: cst.CSTNode | None) -> Alternatives:
        """A name with accessors, seen from ``at`` (``None``: from the end of the scope)."""
        if at is not None:
            bound = self._comprehension(root, accessors, frame, at)
            if bound is not None:
                return bound
        key = ("resolve", root, accessors, frame, at)
        if key in self._active:
            return [Alternative(_UNKNOWN)]
        known = self.project.memo.get(key)
        if known is not None:
            return known  # type: ignore[return-value]
        self._active.add(key)
        self._spent += 1
        self._depth += 1
        try:
            if self._spent > _BUDGET or self._depth > 4 * _DEEPEST:
                return [Alternative(_UNKNOWN)]
            found = self._search(root, accessors, frame, at, start=lambda: self._outside(root, accessors, frame))
        finally:
            self._depth -= 1
            self._active.discard(key)
        self.project.memo[key] = found
        return found

    def _comprehension(self, root: str, accessors: tuple[Accessor, ...], frame: Frame, at: cst.CSTNode) -> Alternatives | None:
        walk = frame.module.walk
        for node in walk.ancestors(at):
            if isinstance(node, cst.BaseSmallStatement | cst.BaseCompoundStatement) or node is frame.scope.node:
                return None
            if isinstance(node, cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp):
                loop: cst.CompFor | None = node.for_in
                while loop is not None:
                    index = _target_index(loop.target, root)
                    if index is not None:
                        return self._element(loop.iter, index, accessors, frame)
                    loop = loop.inner_for_in
        return None

    def _element(self, iterable: cst.BaseExpression, index: tuple[int, ...], accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """What a loop variable can be."""
        into: tuple[Accessor, ...] = (*(("item", i) for i in index), *accessors)
        if isinstance(iterable, cst.Call) and names.last_name(iterable.func) == "enumerate" and iterable.args and index:
            if index[0] == 0:
                return [Alternative(_UNKNOWN)]
            return self._element(iterable.args[0].value, index[1:], accessors, frame)
        if isinstance(iterable, cst.Call) and names.last_name(iterable.func) == "zip" and index and index[0] < len(iterable.args):
            return self._element(iterable.args[index[0]].value, index[1:], accessors, frame)
        out: Alternatives = []
        for alt in self.values(iterable, frame):
            if isinstance(alt.value, Display) and isinstance(alt.value.node, cst.List | cst.Tuple | cst.Set):
                for number, element in enumerate(alt.value.node.elements[:8]):
                    if isinstance(element, cst.Element):
                        pick = frozenset({(("element", iterable, frame), number)})
                        out.extend(m for a in self.access(element.value, into, alt.value.frame) if (m := a.under(pick)) is not None)
            else:
                return [Alternative(_UNKNOWN)]
        return _trim(out) or [Alternative(_UNKNOWN)]

    def _search(self, root: str, accessors: tuple[Accessor, ...], frame: Frame, at: cst.CSTNode | None, start: Any) -> Alternatives:
        scope = frame.scope
        if root in scope.outer:
            return [*self._global(root, accessors, frame)]
        walk = frame.module.walk
        if root not in scope.effects:
            return start()  # type: ignore[no-any-return]

        def judge(effect: Effect) -> tuple[object, bool] | None:
            return self._judge(effect, accessors, frame, at)

        found, falls = Reach(walk, scope, root, judge).search(at)
        out: Alternatives = []
        fallbacks: Alternatives = []
        several = len(found) + len(falls) > 1
        # Whoever asks for the same name with the same definitions in reach gets the same one of them.
        origin = ("reach", scope, root, tuple(id(effect) for effect, _, _ in found))
        for effect, payload, conditions in found[:_MOST]:
            here = frozenset({(origin, id(effect))}) if several else FREE
            states = self.conditions(conditions, frame, here)
            for picks, doubt in states[:6]:
                alternatives: Alternatives = payload() if callable(payload) else payload  # type: ignore[assignment]
                for alt in alternatives:
                    if isinstance(alt.value, Absent) and effect.kind in {"update", "setdefault", "augment"}:
                        continue
                    merged = alt.under(picks)
                    if merged is not None:
                        if several and conditions and effect.kind == "assign":
                            test = conditions[-1][0]
                            words = _short(frame.module.code(test))
                            # A value under a test that nobody can decide is possible, not usual.
                            guessed = any(isinstance(k, tuple) and k and k[0] == "test" for k, _ in picks - alt.picks)
                            step = Step(frame.module, effect.node, f"set where `{words}` is {'true' if conditions[-1][1] else 'false'}", kind="branch")
                            merged = merged.after(step)
                            if guessed:
                                merged = Alternative(merged.value, merged.story, merged.picks, merged.doubt, reach=True)
                        (fallbacks if effect.kind == "setdefault" else out).append(merged.doubting(doubt))
        if falls:
            base: Alternatives = start()
            here = frozenset({(origin, 0)}) if several else FREE
            for conditions in falls:
                for picks, doubt in self.conditions(conditions, frame, here)[:6]:
                    for alt in base:
                        merged = alt.under(picks)
                        if merged is not None:
                            out.append(merged.doubting(doubt))
        if fallbacks and (not out or any(isinstance(a.value, Absent) for a in out)):
            out = [*(a for a in out if not isinstance(a.value, Absent)), *fallbacks]
        return _trim(out) or [Alternative(_UNKNOWN)]

    def _judge(self, effect: Effect, accessors: tuple[Accessor, ...], frame: Frame, at: cst.CSTNode | None) -> tuple[object, bool] | None:
        """What an effect means for the value asked for: ``None`` (nothing) or (its alternatives, whether it settles the question)."""
        path, kind = effect.path, effect.kind
        depth = len(path)
        if kind in _BINDING or kind == "delete":
            if depth > len(accessors) or not _matches(path, accessors[:depth]):
                return None
            certain = not any(key is UNKNOWN_KEY for _, key in path)
            if kind == "delete":
                return ([Alternative(ABSENT)], certain) if depth else None
            if kind == "declare":
                return None
            return (lambda: self._bound(effect, accessors[depth:], frame)), certain
        if kind == "augment":
            if depth < len(accessors) and _matches(path, accessors[:depth]) and effect.value is not None and isinstance(effect.node, cst.AugAssign) and isinstance(effect.node.operator, cst.BitOrAssign):
                return self._updated(self.access(effect.value, accessors[depth:], frame))
            if depth == len(accessors) and _matches(path, accessors) and not _is_mapping_update(effect):
                return [Alternative(_UNKNOWN)], True
            return None
        if kind in {"update", "setdefault", "pop", "clear"}:
            if depth >= len(accessors) or not _matches(path, accessors[:depth]) or effect.call is None or accessors[depth][0] not in {"item", "attr"}:
                return None
            if effect.call is at or (at is not None and frame.module.walk.parents.get(effect.call) is at):
                return None
            return self._mutated(effect, accessors[depth:], frame)
        return None

    def _mutated(self, effect: Effect, accessors: tuple[Accessor, ...], frame: Frame) -> tuple[object, bool] | None:
        call, key = effect.call, accessors[0][1]
        if call is None:
            return None
        if effect.kind == "clear":
            return [Alternative(ABSENT)], True
        if effect.kind in {"pop", "setdefault"}:
            if not call.args or constant_key(call.args[0].value) != key or key is UNKNOWN_KEY:
                return None
            if effect.kind == "pop":
                return [Alternative(ABSENT)], True
            if len(call.args) < 2:
                return None
            # The default counts only where nothing was there before; keep both, the earlier first.
            return self.access(call.args[1].value, accessors[1:], frame), False
        return self._updated(self._inside_call(call, accessors, frame))

    @staticmethod
    def _updated(found: Alternatives) -> tuple[object, bool] | None:
        if all(isinstance(a.value, Absent) for a in found):
            return None
        certain = not any(isinstance(a.value, Absent | Unknown) for a in found)
        return found, certain

    def _bound(self, effect: Effect, rest: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """The value that a binding gives, followed by ``rest``."""
        kind = effect.kind
        into: tuple[Accessor, ...] = (*(("item", i) for i in effect.index), *rest)
        if kind == "assign" and effect.value is not None:
            return self.access(effect.value, into, frame) if into else self.values(effect.value, frame)
        if kind == "def":
            scope = frame.module.walk.scope_of.get(effect.node)
            if scope is None:
                return [Alternative(_UNKNOWN)]
            return self.reach_into(Alternative(FunctionRef(frame.module, scope, None)), rest)
        if kind == "class":
            scope = frame.module.walk.scope_of.get(effect.node)
            if scope is None:
                return [Alternative(_UNKNOWN)]
            return self.reach_into(Alternative(ClassRef(frame.module, scope)), rest)
        if kind == "import":
            return self._imported(effect, rest, frame)
        if kind == "from":
            return self._imported_from(effect, rest, frame)
        if kind == "for" and effect.value is not None:
            return self._element(effect.value, effect.index, rest, frame)
        if kind == "with" and effect.value is not None:
            return self.access(effect.value, into, frame)
        return [Alternative(_UNKNOWN)]

    def _imported(self, effect: Effect, rest: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        alias = effect.node
        if not isinstance(alias, cst.ImportAlias):
            return [Alternative(_UNKNOWN)]
        full = names.dotted(alias.name)
        if alias.asname is None:
            head = full.split(".")[0]
            path = self.project.locate(frame.module.path, head)
            if path is None:
                return self.reach_into(Alternative(External(names.canonical(head))), rest)
            return self.reach_into(Alternative(self._module_value(path)), rest)
        path = self.project.locate(frame.module.path, full)
        if path is None:
            return self.reach_into(Alternative(External(names.canonical(full))), rest)
        return self.reach_into(Alternative(self._module_value(path)), rest)

    def _imported_from(self, effect: Effect, rest: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        alias, statement = effect.node, effect.statement
        if not isinstance(alias, cst.ImportAlias) or not isinstance(statement, cst.ImportFrom):
            return [Alternative(_UNKNOWN)]
        name = names.dotted(alias.name)
        source = names.dotted(statement.module) if statement.module is not None else ""
        path = self.project.locate(frame.module.path, source, len(statement.relative))
        if path is None:
            if statement.relative:
                return [Alternative(_UNKNOWN)]
            return self.reach_into(Alternative(External(names.canonical(f"{source}.{name}"))), rest)
        value = self._module_value(path)
        if isinstance(value, ModuleRef):
            return self._module_member(value, name, rest)
        return [Alternative(_UNKNOWN)]

    def _global(self, root: str, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        return self.resolve(root, accessors, self.module_frame(frame.module), None)

    def _outside(self, root: str, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """A name that the scope itself did not bind before its use."""
        scope = frame.scope
        if scope.is_function:
            if root == names.self_name(scope):
                return self._self(accessors, frame)
            node = scope.node
            if isinstance(node, cst.FunctionDef | cst.Lambda):
                params = node.params
                if any(p.name.value == root for p in names.parameters(scope)):
                    return self._parameter(root, accessors, frame)
                if isinstance(params.star_kwarg, cst.Param) and params.star_kwarg.name.value == root:
                    return self._parameter(root, accessors, frame)
                if isinstance(params.star_arg, cst.Param) and params.star_arg.name.value == root:
                    return [Alternative(_UNKNOWN)]
        parent = scope.parent
        while parent is not None and parent.is_class:
            parent = parent.parent
        if parent is None:
            if scope.parent is None:
                return self._builtin(root, accessors, frame)
            # A module's global that some function rebinds can hold anything by the time this runs.
            if any(root in s.outer and root in s.effects for s in frame.module.walk.scopes):
                return [a.doubting(2) for a in self.resolve(root, accessors, self.module_frame(frame.module), None)]
            return self.resolve(root, accessors, self.module_frame(frame.module), None)
        outer = frame.outer if frame.outer is not None and frame.outer.scope is parent else Frame(frame.module, parent, None, frame.this if names.is_method(parent) else None)
        return self.resolve(root, accessors, outer, None)

    def _builtin(self, root: str, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        for effect in frame.scope.effects.get("*", ()):
            statement = effect.node
            if not isinstance(statement, cst.ImportFrom):
                continue
            source = names.dotted(statement.module) if statement.module is not None else ""
            path = self.project.locate(frame.module.path, source, len(statement.relative))
            if path is not None:
                value = self._module_value(path)
                if isinstance(value, ModuleRef) and value.module is not None and value.module is not frame.module:
                    found = self._module_member(value, root, accessors)
                    if not all(isinstance(a.value, Unknown) for a in found):
                        return found
            elif root in names.STAR_EXPORTS.get(names.canonical(source), ()):
                return self.reach_into(Alternative(External(f"{names.canonical(source)}.{root}")), accessors)
        if root == "__file__":
            return self.reach_into(Alternative(Const(frame.module.path)), accessors)
        if root in names.BUILTINS:
            return self.reach_into(Alternative(External(f"builtins.{root}")), accessors)
        return [Alternative(_UNKNOWN)]

    def _self(self, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        this = frame.this
        if this is None:
            parent = frame.scope.parent
            if parent is None:
                return [Alternative(_UNKNOWN)]
            this = Instance(ClassRef(frame.module, parent), None)
        if not accessors:
            return [Alternative(this)]
        return self._into(this, accessors)

    def _parameter(self, name: str, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        scope, bound = frame.scope, frame.bound
        node = scope.node
        if not isinstance(node, cst.FunctionDef | cst.Lambda):
            return [Alternative(_UNKNOWN)]
        is_rest = isinstance(node.params.star_kwarg, cst.Param) and node.params.star_kwarg.name.value == name
        if is_rest:
            return self._rest(accessors, frame)
        out: Alternatives = []
        if bound is not None:
            given = names.argument_for(scope, name, bound, skip_first=names.is_method(scope))
            if given is not None:
                return self._passed(given, name, accessors)
            for star in names.starred(bound):
                absent = False
                for alt in self.access(star.node.value, (("item", name), *accessors), star.bound.frame):
                    if isinstance(alt.value, Absent):
                        absent = True
                    else:
                        out.append(alt)
                if not absent:
                    return out
            if names.hides_positionals(bound):
                return [*out, Alternative(_UNKNOWN)]
        command = self.options.command_parameter(frame, name)
        if command is not None:
            return [b for a in command for b in self.reach_into(a, accessors)]
        configured = self.settings.entry_parameter(frame, name, accessors)
        if configured is not None:
            return configured
        if bound is not None:
            return [*out, *self._default(name, accessors, frame, doubt=0)]
        if name in {"args", "opt", "opts", "options", "hparams", "FLAGS", "flags", "cfg", "config", "conf", "params"} and accessors and accessors[0][0] == "attr":
            guessed = self.options.by_convention(frame.module, str(accessors[0][1]))
            if guessed:
                return [b for a in guessed for b in self.reach_into(a, accessors[1:])]
        return self._default(name, accessors, frame, doubt=1)

    def _default(self, name: str, accessors: tuple[Accessor, ...], frame: Frame, doubt: int) -> Alternatives:
        scope = frame.scope
        param = next((p for p in names.parameters(scope) if p.name.value == name), None)
        if param is None or param.default is None:
            return [Alternative(Unknown(f"parameter {name}"))]
        outside = scope.parent
        outer = Frame(frame.module, outside) if outside is not None else self.module_frame(frame.module)
        default = param.default
        if isinstance(default, cst.Call) and names.last_name(default.func) in {"Option", "Argument"}:
            return [b for a in self.options.typer_default(default, name, outer) for b in self.reach_into(a, accessors)]
        words = f"default of parameter `{name}` of `{scope.name}`"
        step = Step(frame.module, param, words, kind="default")
        found = [a.after(step) for a in self.access(default, accessors, outer)]
        found.extend(self.options.annotated(param, name, frame, found))
        if doubt:
            # Nobody in the project calls it: a caller elsewhere may give anything. That it is the default is assumed, once for all who ask.
            key = ("parameter", param)
            given = [a for a in found if a.reach]  # what a command line can give is no default
            found = [m for a in found if not a.reach and (m := a.under(frozenset({(key, ASSUMED)}))) is not None] + given
            found.append(Alternative(Unknown(f"parameter {name}"), (step,), frozenset({(key, "other")}), reach=True))
        return found

    def _passed(self, given: names.Given, name: str, accessors: tuple[Accessor, ...]) -> Alternatives:
        frame = given.bound.frame
        found = self.access(given.node.value, accessors, frame)
        step = Step(frame.module, given.node, f"passed as `{name}`", kind="argument")
        return [a.after(step) for a in found]

    def _rest(self, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """``**kwargs`` of the function: the keywords of its callers that no parameter takes."""
        bound = frame.bound
        if bound is None or not accessors:
            return [Alternative(_UNKNOWN)]
        key = accessors[0][1]
        if not isinstance(key, str):
            return [Alternative(_UNKNOWN)]
        if any(p.name.value == key for p in names.parameters(frame.scope)):
            return [Alternative(ABSENT)]
        given = names.keyword(bound, key)
        if given is not None:
            return self._passed(given, key, accessors[1:])
        out: Alternatives = []
        for star in names.starred(bound):
            absent = False
            for alt in self.access(star.node.value, accessors, star.bound.frame):
                if isinstance(alt.value, Absent):
                    absent = True
                else:
                    out.append(alt)
            if not absent:
                return out
        return [*out, Alternative(ABSENT)]


# -- small helpers -----------------------------------------------------------------------------------------------------


def _written(node: cst.BaseExpression, frame: Frame, picks: Picks = FREE) -> Alternative:
    return Alternative(Written("", node, frame), (), picks)


def _decorator(node: cst.Decorator) -> cst.BaseExpression:
    return node.decorator.func if isinstance(node.decorator, cst.Call) else node.decorator


def _matches(path: Sequence[Accessor], accessors: Sequence[Accessor]) -> bool:
    if len(path) != len(accessors):
        return False
    for (_, key), (_, wanted) in zip(path, accessors, strict=True):
        if key is UNKNOWN_KEY:
            continue
        if key != wanted or isinstance(key, bool) is not isinstance(wanted, bool):
            return False
    return True


def _is_mapping_update(effect: Effect) -> bool:
    return isinstance(effect.node, cst.AugAssign) and isinstance(effect.node.operator, cst.BitOrAssign)


def _target_index(target: cst.CSTNode, name: str) -> tuple[int, ...] | None:
    if isinstance(target, cst.Name):
        return () if target.value == name else None
    if isinstance(target, cst.Tuple | cst.List):
        for number, element in enumerate(target.elements):
            inner = _target_index(element.value, name)
            if inner is not None:
                return (number, *inner)
    return None


def is_grown(value: Display) -> bool:
    """Whether a list or dictionary is bound to a name and filled afterwards."""
    holder = value.frame.module.walk.parents.get(value.node)
    if not isinstance(holder, cst.Assign | cst.AnnAssign):
        return False
    for target in [t.target for t in holder.targets] if isinstance(holder, cst.Assign) else [holder.target]:
        path = path_of(target)
        if path is None:
            continue
        if path[1] and path[0] == names.self_name(value.frame.scope):
            return True  # some method may fill it
        for effect in value.frame.scope.effects.get(path[0], ()):
            deeper = len(effect.path) > len(path[1])
            if effect.path[: len(path[1])] == path[1] and (effect.kind in {"append", "extend", "augment", "update", "setdefault", "pop", "clear"} or (effect.kind == "assign" and deeper)):
                return True
    return False


def _display_truth(value: Display) -> bool | None:
    node = value.node
    if is_grown(value):
        return None
    if isinstance(node, cst.List | cst.Tuple | cst.Set | cst.Dict):
        if not node.elements:
            return False
        return True if any(isinstance(e, cst.Element | cst.DictElement) for e in node.elements) else None
    return None


def _trim(found: Iterable[Alternative]) -> Alternatives:
    """Drop what says the same twice, and what is too much."""
    seen: dict[tuple[Value, Picks], Alternative] = {}
    for alt in found:
        key = (alt.value, alt.picks)
        known = seen.get(key)
        if known is None or (alt.doubt, alt.reach) < (known.doubt, known.reach):
            seen[key] = alt
    out = list(seen.values())
    if len(out) > _MOST:
        out = out[: _MOST - 1]
        out.append(Alternative(_UNKNOWN))
    return out


def _short(code: str, most: int = 60) -> str:
    text = " ".join(code.split())
    return text if len(text) <= most else text[: most - 1] + "…"
