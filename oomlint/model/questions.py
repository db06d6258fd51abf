"""What the parts of the evaluator ask of each other, and the small change that they share.

The evaluator is one class in several files: each part answers one kind of question and asks the others through the methods declared here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.model.calls import Calls
from oomlint.model.options import OptionSource
from oomlint.model.readings import AnswerMemory
from oomlint.model.settings_files import SettingsReader
from oomlint.model.sources import Sources
from oomlint.model.stops import Stops
from oomlint.model.values import FREE, Absent, Alternative, Const, External, ExternalCall, Frame, ProvenanceStep, SourceExpression, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import libcst as cst

    from oomlint.model.arguments import GivenArgument
    from oomlint.model.project import Module, Project
    from oomlint.model.reach import Conditions
    from oomlint.model.values import Alternatives, Bound, ClassRef, FunctionRef, Instance, ModuleRef, Picks, Value
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Effect, Scope

MOST = 32  # alternatives that are kept for one expression
DEEPEST = 40  # nested questions
BUDGET = 30_000  # questions for one outermost question
UNKNOWN = Unknown()
# What is said where a question is given up: always the same object, so that what follows from it is remembered, too.
NO_ANSWER: Alternatives = [Alternative(UNKNOWN)]
CPU_COUNTS = frozenset({"os.cpu_count", "multiprocessing.cpu_count", "psutil.cpu_count", "os.process_cpu_count"})


class Questions(ABC):
    """All that one part of the evaluator may ask of another."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.active: set[object] = set()  # questions that are being answered: whoever asks one of them again runs in a circle
        self.spent = 0  # questions since the outermost one
        self.given_up = 0  # questions that were not looked into: what follows from that may be otherwise for whoever comes by another way
        self.depth = 0
        self.resolved: AnswerMemory[tuple[str, tuple[Accessor, ...], Frame, cst.CSTNode | None], Alternatives] = AnswerMemory(project.readings)
        self.returns: AnswerMemory[tuple[FunctionRef, tuple[Bound, ...], tuple[Accessor, ...]], Alternatives] = AnswerMemory(project.readings)
        self.attributes: AnswerMemory[tuple[Instance, str, tuple[Accessor, ...]], Alternatives] = AnswerMemory(project.readings)
        self.rows: dict[tuple[Scope, cst.CSTNode], tuple[cst.BaseComp, ...]] = {}  # comprehensions around a name, the innermost first
        self.handed: AnswerMemory[tuple[Scope, str], tuple[tuple[Effect, Frame, cst.Call], ...]] = AnswerMemory(
            project.readings
        )  # what callees merge into an object
        self.lines: AnswerMemory[ClassRef, list[ClassRef | External]] = AnswerMemory(project.readings)  # lineages by class
        self.calls = Calls(project, self)
        self.options = OptionSource(project, self)
        self.settings = SettingsReader(project, self)
        self.sources = Sources(project, self)
        self.stops = Stops(project, self)

    def module_frame(self, module: Module) -> Frame:
        """The frame of a module's own code."""
        return self.calls.plain_frame(module, module.root)

    # -- evaluate ------------------------------------------------------------------------------------------------------

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

    # -- expressions ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def expression(self, node: cst.BaseExpression, frame: Frame) -> Alternatives:
        """The values of an expression, by its form; nothing is remembered."""

    @abstractmethod
    def choose(self, node: cst.IfExp, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """Either side of a conditional expression, under what its test says."""

    # -- results -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def called(self, node: cst.Call, frame: Frame) -> Alternatives:
        """What a call gives."""

    @abstractmethod
    def result(self, callee: Value, node: cst.Call, frame: Frame, extra: tuple[Bound, ...] = ()) -> Alternatives:
        """What calling ``callee`` with the arguments of ``node`` gives."""

    @abstractmethod
    def returned(self, function: FunctionRef, bound: tuple[Bound, ...], accessors: tuple[Accessor, ...]) -> Alternatives:
        """What a function of the project returns (or an element of it)."""

    @abstractmethod
    def method_on_value(self, node: cst.Call, frame: Frame) -> Alternatives | None:
        """What a method of a plain Python value hands through; ``None`` where the call is no such method."""

    @abstractmethod
    def callees(self, call: cst.Call, frame: Frame) -> Alternatives:
        """What a call may call; of several, no class that cannot be made with its arguments."""

    @abstractmethod
    def fits(self, call: cst.Call, value: ClassRef | FunctionRef, frame: Frame) -> bool:
        """Whether a function or a class of the project can take what a call gives; yes where nobody knows."""

    # -- access and displays -------------------------------------------------------------------------------------------

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
    def variable(self, name: str) -> Alternative | None:
        """A variable of the environment, where the command that is asked about sets it."""

    @abstractmethod
    def inside(self, node: cst.BaseExpression, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """An element of a display."""

    @abstractmethod
    def inside_call(self, node: cst.Call, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """An element of ``dict(a=1, **b)`` and its like."""

    # -- names ---------------------------------------------------------------------------------------------------------

    @abstractmethod
    def resolve(self, root: str, accessors: tuple[Accessor, ...], frame: Frame, at: cst.CSTNode | None) -> Alternatives:
        """A name with accessors, seen from ``at`` (``None``: from the end of the scope)."""

    @abstractmethod
    def search(self, root: str, accessors: tuple[Accessor, ...], frame: Frame, at: cst.CSTNode | None, start: Callable[[], Alternatives]) -> Alternatives:
        """Definitions in the scope that reach ``at``; ``start`` tells what holds before all of them."""

    @abstractmethod
    def outside(self, root: str, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """A name that the scope itself did not bind before its use."""

    @abstractmethod
    def imported(self, effect: Effect, rest: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """What ``import a.b`` binds, followed by ``rest``."""

    @abstractmethod
    def imported_from(self, effect: Effect, rest: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """What ``from a import b`` binds, followed by ``rest``."""

    @abstractmethod
    def module_member(self, value: ModuleRef, name: str, rest: tuple[Accessor, ...]) -> Alternatives:
        """A name of a module of the project, followed by ``rest``."""

    @abstractmethod
    def module_at(self, path: str) -> Value:
        """The module of the project at a path."""

    @abstractmethod
    def own_methods(self, call: cst.Call, function: FunctionRef, instance: Instance) -> list[FunctionRef]:
        """Methods of an object that a call in one of its methods runs: ``self.read(row)``, ``getattr(self, "read_" + kind)(row)``."""

    @abstractmethod
    def attribute_by_name(self, node: cst.Call, frame: Frame) -> Alternatives:
        """``getattr(x, name)``."""

    @abstractmethod
    def entry_of_module(self, value: ModuleRef, key: object, rest: tuple[Accessor, ...]) -> Alternatives:
        """``vars(module)[name]``."""

    @abstractmethod
    def evaluated(self, node: cst.BaseExpression, frame: Frame) -> Alternatives:
        """``eval(text)``."""

    @abstractmethod
    def imported_by_name(self, node: cst.BaseExpression, frame: Frame) -> Alternatives:
        """``importlib.import_module(name)``."""

    @abstractmethod
    def by_path(self, text: str, frame: Frame) -> Alternatives:
        """What a dotted path leads to."""

    @abstractmethod
    def parameter(self, name: str, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """What a parameter of the frame's function holds."""

    @abstractmethod
    def passed(self, given: GivenArgument, name: str, accessors: tuple[Accessor, ...]) -> Alternatives:
        """What a caller passes as ``name``."""

    # -- classes and attributes ----------------------------------------------------------------------------------------

    @abstractmethod
    def bases(self, cls: ClassRef) -> list[Value]:
        """Base classes as they are written, resolved."""

    @abstractmethod
    def lineage(self, cls: ClassRef) -> list[ClassRef | External]:
        """The class and what it derives from, nearest first."""

    @abstractmethod
    def is_enum(self, cls: ClassRef) -> bool:
        """Whether the class is an enumeration."""

    @abstractmethod
    def gives_itself(self, value: Value, method: str) -> bool:
        """Whether a method that an object has of a library gives the object itself, or a view of it."""

    @abstractmethod
    def method(self, instance: Instance, name: str) -> FunctionRef | None:
        """A method by the order of inheritance."""

    @abstractmethod
    def filled_in(self, method: FunctionRef, name: str) -> list[FunctionRef]:
        """What a call of a method may run: where its class only says that there is one, what the derived classes make of it."""

    @abstractmethod
    def class_member(self, cls: ClassRef, name: str, rest: tuple[Accessor, ...], this: Instance | None) -> Alternatives:
        """What class bodies say of a name; methods are bound to ``this``."""

    @abstractmethod
    def fields(self, cls: ClassRef) -> list[tuple[str, cst.BaseExpression | None, Module]] | None:
        """Fields of a dataclass or named tuple in order, with defaults; ``None`` for other classes."""

    @abstractmethod
    def init_frame(self, instance: Instance) -> Frame | None:
        """The frame in which ``__init__`` runs for this object."""

    @abstractmethod
    def super_method(self, name: str, frame: Frame) -> FunctionRef | None:
        """The method of a base class that ``super().name`` is in a frame."""

    @abstractmethod
    def super_init(self, call: cst.Call, frame: Frame) -> Frame | None:
        """The frame of the base class's ``__init__`` that a ``super().__init__(...)`` runs."""

    @abstractmethod
    def attribute(self, instance: Instance, name: str, rest: tuple[Accessor, ...]) -> Alternatives:
        """``self.name`` followed by more: what ``__init__``, the class body, other methods and the bases say."""


# -- small change ------------------------------------------------------------------------------------------------------


def constant(value: object, node: cst.CSTNode, frame: Frame) -> Alternative:
    """A literal that stands at ``node``."""
    return Alternative(Const(value), (ProvenanceStep(frame.module, node, f"the value is {value!r} here", kind="constant"),))


def written(node: cst.BaseExpression, frame: Frame, picks: Picks = FREE) -> Alternative:
    """An expression that nothing reduces further."""
    return Alternative(SourceExpression("", node, frame), (), picks)


def is_cpu_count(value: Value) -> bool:
    """Whether the value is the number of cores of the machine."""
    return (isinstance(value, ExternalCall) and value.name in CPU_COUNTS) or (isinstance(value, External) and value.name == "os.cpu_count()")


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
    outcomes: dict[object, dict[object, set[object]]] = {}
    for alt in found:
        for key, pick in alt.picks:
            outcomes.setdefault(key, {}).setdefault(pick, set()).add(alt.value if isinstance(alt.value, Const) else None)
    ranks: dict[tuple[bool, bool, int], set[object]] = {}
    for key, picks in outcomes.items():
        telling = len({frozenset(constants) for constants in picks.values()}) > 1
        decides = telling and any(len(constants) == 1 for constants in picks.values())
        ranks.setdefault((telling, decides, -len(picks)), set()).add(key)
    for rank in sorted(ranks):
        found = _once(replace(alt, picks=frozenset(pick for pick in alt.picks if pick[0] not in ranks[rank])) for alt in found)
        if len(found) <= most:
            break
    return found
