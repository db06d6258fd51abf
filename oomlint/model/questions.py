"""What the parts of the evaluator ask of each other, and the small change that they share.

The evaluator is one class in several files, a chain of parts, from the elements of displays up to `evaluate.py`: each answers one kind of question, and asks
those before it by inheritance, and those behind it through the methods declared here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from oomlint.model.readings import AnswerMemory
from oomlint.model.values import FREE, Absent, Alternative, Const, External, ExternalCall, Frame, ProvenanceStep, SourceExpression, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import libcst as cst

    from oomlint.model.callee_changes import Change, Handing
    from oomlint.model.calls import Calls
    from oomlint.model.environments import Setting
    from oomlint.model.options import OptionSource
    from oomlint.model.project import Module, Project
    from oomlint.model.reach import Conditions
    from oomlint.model.settings_files import SettingsReader
    from oomlint.model.sources import Sources
    from oomlint.model.values import Alternatives, Bound, ClassRef, FunctionRef, Instance, Picks, Value
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Effect, Scope

    States = list[tuple[Picks, int]]  # ways on which something is reached, with how many assumptions
    Asked = tuple[cst.CSTNode | None, tuple[Accessor, ...]]  # where a name is asked for, and what of it

MOST = 32  # alternatives that are kept for one expression
DEEPEST = 40  # nested questions
BUDGET = 30_000  # questions for one outermost question
UNKNOWN = Unknown()
# What is said where a question is given up: always the same object, so that what follows from it is remembered, too.
NO_ANSWER: Alternatives = [Alternative(UNKNOWN)]
CPU_COUNTS = frozenset({"os.cpu_count", "multiprocessing.cpu_count", "psutil.cpu_count", "os.process_cpu_count"})


class Questions(ABC):
    """What all parts of the evaluator have, and what a part asks of those behind it."""

    calls: Calls
    options: OptionSource
    settings: SettingsReader
    sources: Sources

    def __init__(self, project: Project) -> None:
        self.project = project
        self.active: set[object] = set()  # questions that are being answered: whoever asks one of them again runs in a circle
        self.opened: dict[tuple[str, Frame], tuple[Asked, ...]] = {}  # what is being asked of the names of a frame, the outermost question first
        self.spent = 0  # questions since the outermost one
        self.given_up = 0  # questions that were not looked into: what follows from that may be otherwise for whoever comes by another way
        self.assumed = 0  # answers that rest on calls of which it is being found out what they change: what follows is remembered only until that is known
        self.meanwhile: list[dict[object, Any]] = []  # the answers that are, for each such question, the innermost last
        self.depth = 0
        self.resolved: AnswerMemory[tuple[str, tuple[Accessor, ...], Frame, cst.CSTNode | None], Alternatives] = AnswerMemory(project.readings)
        self.returns: AnswerMemory[tuple[FunctionRef, tuple[Bound, ...], tuple[Accessor, ...]], Alternatives] = AnswerMemory(project.readings)
        self.attributes: AnswerMemory[tuple[Instance, str, tuple[Accessor, ...]], Alternatives] = AnswerMemory(project.readings)
        self.rows: dict[tuple[Scope, cst.CSTNode], tuple[cst.BaseComp, ...]] = {}  # comprehensions around a name, the innermost first
        # What calls change of what a scope sees, what their functions set of it, and what they are given, by its name.
        self.changed: AnswerMemory[object, tuple[Change, ...]] = AnswerMemory(project.readings)
        self.touched: AnswerMemory[object, frozenset[object]] = AnswerMemory(project.readings)
        self.given: dict[Scope, Handing] = {}
        self.aliased: dict[Scope, dict[str, list[Effect]]] = {}
        self.shared: dict[Module, dict[str, set[Scope]]] = {}  # names that functions of a module change, which are not their own
        self.elsewhere: dict[object, bool] = {}  # whether other files of a program set parts of what one file gives a value
        self.programs: dict[str, list[Module]] = {}  # by their scripts, the files of the project that they import
        self.homes: dict[tuple[Module, str], tuple[str, str] | None] = {}  # where names come from that other files give a value
        self.nested: dict[Frame, int] = {}
        self.lines: AnswerMemory[ClassRef, list[ClassRef | External]] = AnswerMemory(project.readings)  # lineages by class

    def told_meanwhile(self, key: object) -> Any:
        """What was answered since it is being found out what calls change; ``None`` where nothing was."""
        known = self.meanwhile[-1].get(key) if self.meanwhile else None
        if known is not None:
            self.assumed += 1
        return known

    def module_frame(self, module: Module) -> Frame:
        """The frame of a module's own code."""
        return self.calls.plain_frame(module, module.root)

    @abstractmethod
    def values(self, node: cst.BaseExpression, frame: Frame) -> Alternatives:
        """Every value that ``node`` can have in ``frame``."""

    @abstractmethod
    def truth(self, node: cst.BaseExpression, frame: Frame) -> list[tuple[bool, Picks, int]]:
        """Whether a test can come out true or false, under which picks, with how many assumptions."""

    @abstractmethod
    def conditions(self, conditions: Conditions, frame: Frame, start: Picks = FREE) -> list[tuple[Picks, int]]:
        """Picks under which all conditions hold; empty where they cannot hold together."""

    @abstractmethod
    def where(self, node: cst.CSTNode, frame: Frame) -> list[Picks]:
        """Picks under which control reaches ``node``."""

    @abstractmethod
    def returned(self, function: FunctionRef, bound: tuple[Bound, ...], accessors: tuple[Accessor, ...]) -> Alternatives:
        """What a function of the project returns (or an element of it)."""

    @abstractmethod
    def access(self, node: cst.BaseExpression, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """The value of ``node`` followed by attributes and keys."""

    @abstractmethod
    def reach_into(self, alt: Alternative, accessors: tuple[Accessor, ...]) -> Alternatives:
        """Attributes and keys of a value."""

    @abstractmethod
    def into_value(self, value: Value, accessors: tuple[Accessor, ...]) -> Alternatives:
        """The same without what the value depends on; there is at least one accessor."""

    @abstractmethod
    def variable(self, name: str) -> Setting | None:
        """What the environment of the command that is asked about says of a variable; ``None`` where no command is."""

    @abstractmethod
    def method(self, instance: Instance, name: str) -> FunctionRef | None:
        """A method by the order of inheritance."""

    @abstractmethod
    def super_init(self, call: cst.Call, frame: Frame) -> Frame | None:
        """The frame of the base class's ``__init__`` that a ``super().__init__(...)`` runs."""

    @abstractmethod
    def changes(self, root: str, accessors: tuple[Accessor, ...], frame: Frame) -> list[Change]:
        """Calls of a scope that change what is asked for."""

    @abstractmethod
    def set_elsewhere(self, home: tuple[str, str], rest: tuple[Accessor, ...], reader: Module) -> bool:
        """Whether another file of the program that is asked about sets a part of what a file gives a value."""

    @abstractmethod
    def reaching(self, root: str, accessors: tuple[Accessor, ...], frame: Frame, at: cst.CSTNode | None, start: Callable[[], Alternatives]) -> Alternatives:
        """The same in one scope, whosever name it is; ``start`` tells what holds before its definitions."""

    @abstractmethod
    def resolve(self, root: str, accessors: tuple[Accessor, ...], frame: Frame, at: cst.CSTNode | None) -> Alternatives:
        """A name with accessors, seen from ``at`` (``None``: from the end of the scope)."""


# -- small change ------------------------------------------------------------------------------------------------------


def constant(value: object, node: cst.CSTNode, frame: Frame) -> Alternative:
    """A literal that stands at ``node``."""
    return Alternative(Const(value), (ProvenanceStep(frame.module, node, f"the value is {value!r} here", kind="constant"),))


def of_setting(name: str, said: Setting) -> Alternative:
    """A variable of the environment that is set, or may be."""
    step = ProvenanceStep(None, None, f"the command sets `{name}`", said.place, kind="option" if said.place is None else "shell")
    return Alternative(Const(said.text) if said.text is not None else UNKNOWN, (step,))


def as_default(given: Alternative, default: Alternatives) -> Alternative:
    """A text as a whole number, where the default is one."""
    text = given.const
    number = any(isinstance(one.const, int) and not isinstance(one.const, bool) for one in default)
    return replace(given, value=Const(int(text))) if isinstance(text, str) and text.isdigit() and number else given


def written(node: cst.BaseExpression, frame: Frame, picks: Picks = FREE) -> Alternative:
    """An expression that nothing reduces further."""
    return Alternative(SourceExpression(node=node, frame=frame), (), picks)


def is_cpu_count(value: Value) -> bool:
    """Whether the value is the number of cores of the machine."""
    return (isinstance(value, ExternalCall) and value.name in CPU_COUNTS) or (isinstance(value, External) and value.name == "os.cpu_count()")


def common(states: States, most: int) -> States:
    """The same ways; where there are more, one with what all of them ask for, so that none is lost and order decides nothing."""
    if len(states) <= max(1, most):
        return states
    return [(frozenset.intersection(*(picks for picks, _ in states)), min(doubt for _, doubt in states))]


def calls_itself(frame: Frame) -> bool:
    """Whether a function runs inside of a run of itself, on behalf of the same object: each round of a recursion multiplies the ways of the one before."""
    here = frame
    while here.bound:
        here = here.bound[-1].frame
        if here.scope is frame.scope and here.this == frame.this:
            return True
    return False


def parted(found: Alternatives) -> tuple[Alternatives, bool]:
    """The alternatives that are there, and whether there may be none."""
    there = [alt for alt in found if not isinstance(alt.value, Absent)]
    return there, len(there) < len(found)


def trim(found: Iterable[Alternative]) -> Alternatives:
    """Drop what says the same twice, and what is too much."""
    found = list(found)
    if len(found) <= 1:
        return found
    out = _once(found)
    if len(out) > MOST:
        out = _widened(out, MOST)
    if len(out) > MOST:
        kept, rest = out[: MOST // 2], out[MOST // 2 :]
        out = [*kept, *_widened(_once(Alternative(UNKNOWN, (), alt.picks, alt.doubt, alt.reach) for alt in rest), MOST - len(kept))]
    return out


def _once(found: Iterable[Alternative]) -> Alternatives:
    """Each value once for each set of conditions, by the way with the fewest assumptions."""
    seen: dict[tuple[Value, Picks], Alternative] = {}
    for alt in found:
        key = (alt.value, alt.picks)
        known = seen.get(key)
        if known is None or (alt.doubt, alt.reach) < (known.doubt, known.reach):
            seen[key] = alt
    return list(seen.values())


def _widened(found: Alternatives, most: int) -> Alternatives:
    """The same values under fewer conditions, so that there are not too many.

    What tells constants apart from the rest, such as the option that they come from, goes last: `n > 0` is never met by the way on which `n` is 0. Of the
    others, what has the most outcomes goes first. What is alike in that goes together, so that no order decides.
    """
    values: dict[Picks, set[object]] = {}  # many are alike in all conditions
    for alt in found:
        values.setdefault(alt.picks, set()).add(alt.value if isinstance(alt.value, Const) else None)
    outcomes: dict[tuple[object, object], set[object]] = {}
    for conditions, constants in values.items():
        for pick in conditions:
            outcomes.setdefault(pick, set()).update(constants)
    by_key: dict[object, list[tuple[object, object]]] = {}
    for pick in outcomes:
        by_key.setdefault(pick[0], []).append(pick)
    ranks: dict[tuple[bool, bool, int], set[tuple[object, object]]] = {}
    for picks in by_key.values():
        telling = len({frozenset(outcomes[pick]) for pick in picks}) > 1
        decides = telling and any(len(outcomes[pick]) == 1 for pick in picks)
        ranks.setdefault((telling, decides, -len(picks)), set()).update(picks)
    for rank in sorted(ranks):
        found = _once(alt if alt.picks.isdisjoint(ranks[rank]) else replace(alt, picks=alt.picks - ranks[rank]) for alt in found)
        if len(found) <= most:
            break
    return found
