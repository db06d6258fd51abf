"""What the flow carries along: the state at a point of the program, the activation of a function, and what its parts ask of each other."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct, field

from oomlint.api_names import MOVES_MODEL
from oomlint.model import arguments, names
from oomlint.model.events import HOOKED, Backward, Forward, Loop, Record, Reset, Store, Use, Via
from oomlint.model.readings import AnswerMemory
from oomlint.model.tensor_state import NONE, TOLD_PLAIN, UNKNOWN, Device, Ids, LaterMode, Mode, Path, TensorState, ValueKind, join, joined_modes, known_mode
from oomlint.model.values import External, Instance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.events import Hooked
    from oomlint.model.gradients import Gradients
    from oomlint.model.project import Module
    from oomlint.model.readings import Readings
    from oomlint.model.values import ClassRef, Frame, FunctionRef
    from oomlint.syntax.scopes import Scope

    # What memory/ says of an expression that is iterated: a loader, or None.
    LoaderOf = Callable[[cst.BaseExpression, Module, Scope, Frame], object]
    HookedOf = Callable[[Module], tuple[Hooked, ...]]  # the containers that forward hooks of a file fill

BUDGET: Final = 6_000  # statements and calls of one run
FORWARD_BUDGET: Final = 3_000  # of one `forward`
DEEPEST: Final = 5  # calls inside calls
_MODULE_CALLS: Final = frozenset(
    "eval train parameters named_parameters modules named_modules register_forward_hook state_dict load_state_dict zero_grad".split(),
)
_OTHERS_CALLS: Final = frozenset({"step", "minimize"})  # of optimizers, schedulers and scalers, which have some of those as well
_NO_MODULE: Final = re.compile(r"^opt|optim|sched|scaler|trainer|metric", re.IGNORECASE)  # what has some of these methods and is no module


class State(Struct):
    """What is known at one point: what every path holds, the gradient mode, whether a model was put into evaluation: each module, or else the last one."""

    env: dict[Path, TensorState]
    mode: Mode | LaterMode
    evaluating: bool | None = None
    modules: dict[Path, bool | None] = field(default_factory=dict)  # shared by states until `put` changes it

    def copy(self) -> State:
        """A state that changes apart from this one."""
        return State(dict(self.env), self.mode, self.evaluating, self.modules)

    def put(self, home: Path, *, evaluating: bool | None) -> None:
        """A module was put into evaluation, with what it holds, or into training."""
        self.evaluating = evaluating
        if home:
            self.modules = {path: told for path, told in self.modules.items() if path[: len(home)] != home}
            self.modules[home] = evaluating

    def evaluates(self, home: Path) -> bool | None:
        """Whether a module was put into evaluation: itself, or what holds it."""
        for end in range(len(home), 0, -1):
            if home[:end] in self.modules:
                return self.modules[home[:end]]
        return self.evaluating


def joined(first: State | None, second: State | None) -> State | None:
    """The state where two ways come together; ``None`` is a way that is never gone."""
    if first is None or second is None:
        return first or second
    env = dict(first.env)
    for path, held in second.env.items():
        known = env.get(path)
        # A path that one way does not know was not bound there: whoever reads it later came by the other.
        env[path] = held if known is None or known is TOLD_PLAIN else known if known is held or held is TOLD_PLAIN else join(known, held)
    modules = first.modules
    if second.modules is not modules:
        # A module that only one way told of is as the other way left all of them.
        modules = {path: _agreed(first.evaluates(path), second.evaluates(path)) for path in {**first.modules, **second.modules}}
    return State(env, joined_modes(first.mode, second.mode), _agreed(first.evaluating, second.evaluating), modules)


def _agreed(first: bool | None, second: bool | None) -> bool | None:  # noqa: FBT001 - yes, no, nobody knows
    return first if first is second else None


class Activation(Struct, eq=False):
    """One run of a function's body."""

    number: int
    frame: Frame
    loops: tuple[Loop, ...]
    via: tuple[Via, ...]
    this: Path = ()
    returned: TensorState | None = None
    left: State | None = None  # what holds where it returns
    yielded: TensorState | None = None
    source: object = None  # the loader whose batches it yields something for
    params: dict[str, TensorState] = field(default_factory=dict)
    tests: tuple[cst.CSTNode, ...] = ()  # the branches around whose tests may be false
    outside: Mode | LaterMode | None = None  # the gradient mode around the outermost ``with`` that is running: that in which a ``return`` leaves
    decided: dict[object, frozenset[bool]] = field(default_factory=dict)
    entered: tuple[Loop, ...] = ()  # the loops that it was called in
    rounds: dict[str, cst.BaseExpression] = field(default_factory=dict)  # literals that the targets of loops stand for in this round

    @property
    def scope(self) -> Scope:
        """The function."""
        return self.frame.scope

    @property
    def module(self) -> Module:
        """The file that it stands in."""
        return self.frame.module

    def path(self, name: str) -> Path:
        """Where a local name lives."""
        return ((self.number, name),)


class Output(Struct, frozen=True):
    """What `forward` of a class gives in a mode."""

    held: TensorState | None = None
    unrecorded: bool = False  # it runs all parts of its module without gradients, whatever the mode


class SharedRuns:
    """What all runs of a project share."""

    def __init__(self, readings: Readings, hooked_of: HookedOf) -> None:
        self.hooked_of = hooked_of
        self.module_names: dict[str, frozenset[str]] = {}  # file -> expressions that it treats as modules
        self.outputs: AnswerMemory[object, Output] = AnswerMemory(readings)  # what `forward` of a class gives
        self.codes: dict[cst.CSTNode, str] = {}
        self.written: dict[cst.BaseExpression, str] = {}
        self.bound: dict[tuple[Scope, str], bool] = {}  # whether a scope itself binds a name to data
        self.operators: dict[cst.CSTNode, cst.Call] = {}  # the calls of methods that statements with an operator are
        self.freezing: dict[cst.CSTNode, cst.BaseExpression | None] = {}  # what a loop over parameters freezes
        self.frames: dict[object, Frame] = {}  # of functions that are run in place: the same object for the same call, as most that is remembered asks for it
        self.statics: AnswerMemory[object, TensorState] = AnswerMemory(readings)
        self.trainable: AnswerMemory[Scope, bool] = AnswerMemory(readings)  # classes that may have parameters
        self.frozen: AnswerMemory[Scope, frozenset[str]] = AnswerMemory(readings)  # attributes that constructors freeze
        self.frozen_names: AnswerMemory[str, frozenset[str]] = AnswerMemory(readings)  # of files, outside of functions
        self.fast: AnswerMemory[Scope, bool] = AnswerMemory(readings)  # classes that hold layers with another path for inference
        self.asking: dict[Scope, frozenset[str]] = {}  # what `forward` methods ask for themselves: gradients, or to be told should there be some


class Flowing(ABC):
    """One run: the record, the activation, and what a part asks of those that build on it.

    The parts are a chain of classes, from definitions and values up to the statements of ``flow.py``; each asks those before it by inheritance.
    """

    def __init__(self, evaluator: Evaluator, gradients: Gradients, loader_of: LoaderOf, known: SharedRuns) -> None:
        self.evaluator = evaluator
        self.gradients = gradients
        self.loader_of = loader_of
        self.known = known
        self.asks: set[str] = set()  # whether gradients were asked for, or hooks put on what they may come to
        self.modes: set[Mode] = set()  # in which modules ran that have parameters
        self.device = Device.UNKNOWN  # where modules run of which nothing tells
        self.record = Record()
        self.recording = True
        self.spent = 0
        self.limit = BUDGET
        self.wrapping: list[cst.Call] = []  # those whose arguments are being asked for
        self.presumed: dict[int, Forward] = {}  # calls of what nobody knows, given data in a loop: passes of a module, should the result go backward
        self.numbers = 0
        self.turns: dict[object, TensorState] = {}  # what a call in a loop gave in an earlier turn, with notes and without
        self.act: Activation
        self.stack: list[Scope] = []

    # -- what later parts answer ---------------------------------------------------------------------------------------

    @abstractmethod
    def call(self, node: cst.Call, state: State) -> TensorState:
        """What a call gives, and what it does."""

    @abstractmethod
    def assign(self, target: cst.BaseExpression, held: TensorState, state: State, expression: cst.BaseExpression | None, statement: cst.CSTNode) -> None:
        """Bind a target."""

    @abstractmethod
    def run_function(
        self, function: FunctionRef, node: cst.Call, args: list[TensorState], params: dict[str, TensorState], this: Path, state: State
    ) -> TensorState:
        """Run a function of the project in place."""

    @abstractmethod
    def comprehension(self, node: cst.BaseSimpleComp | cst.DictComp, state: State) -> TensorState:
        """What a comprehension or a generator gives."""

    @abstractmethod
    def trainable(self, cls: ClassRef, depth: int = 0) -> bool:
        """Whether a class may have parameters."""

    @abstractmethod
    def unknown_call(self, node: cst.Call, written: str, args: list[TensorState], state: State) -> TensorState:
        """A call that nobody can follow."""

    @abstractmethod
    def block(self, statements: Sequence[cst.CSTNode], state: State | None) -> State | None:
        """Run statements one after the other; ``None`` where control does not come out at the end."""

    # -- events --------------------------------------------------------------------------------------------------------

    def _around(self, state: State) -> tuple[Module, Scope, tuple[Loop, ...], tuple[Via, ...], Mode | LaterMode, tuple[cst.CSTNode, ...]]:
        act = self.act
        return act.module, act.scope, act.loops, act.via, state.mode, act.tests

    def stored(
        self, node: cst.CSTNode, state: State, kind: str, path: Path, value: TensorState, expression: cst.BaseExpression | None, before: TensorState = UNKNOWN
    ) -> None:
        """Note that a value was put somewhere."""
        if self.recording and path and self.act.loops:
            self.record.stores.append(Store(node, *self._around(state), kind, path, value, expression, before))

    def wrote(self, node: cst.CSTNode, state: State, path: Path, value: TensorState, before: TensorState) -> None:
        """Note that a value was written into a tensor that lives at a path."""
        if self.recording and path and self.act.loops:
            self.record.writes.append(Store(node, *self._around(state), "write", path, value, None, before))

    def was_switched(self, home: Path, state: State, *, evaluating: bool | None) -> None:
        """Note that a module was put into evaluation or into training."""
        state.put(home, evaluating=evaluating)
        loop = self.act.loops[-1] if self.recording and self.act.loops else None
        if evaluating is False and loop is not None and not any(loop in event.loops for event in self.record.forwards):
            loop.begins_training = True

    def was_reset(self, node: cst.CSTNode, state: State, path: Path, *, bound: bool = False, network: bool = False) -> None:
        """Note that a path was made again."""
        if self.recording and path and self.act.loops:
            self.record.resets.append(Reset(node, *self._around(state), path, bound, network))

    def went_backward(self, node: cst.CSTNode, state: State, held: TensorState, *, retain: bool = False, known: bool = True) -> None:
        """Note a backward pass."""
        self.asks.add("gradients")
        if known:
            self._was_a_pass(held)
        if self.recording:
            self.record.backwards.append(Backward(node, *self._around(state), held.all_sources, held.all_tags, retain, known))

    def presume(self, node: cst.Call, state: State, name: str, args: list[TensorState]) -> frozenset[int]:
        """Note that a call which nobody can follow may run a module on data of a round; the answer goes to what it gives, which may go backward.

        Whoever is given what such a call made is a loss, or a later part: the first one stands for all.
        """
        given = frozenset[int]().union(*(held.all_sources for held in args))
        data = any(held.kind in {ValueKind.TENSOR, ValueKind.OPAQUE, ValueKind.PACK, ValueKind.UNKNOWN} for held in args) and not any(
            held.kind is ValueKind.MODULE for held in args
        )
        if not data or not self.act.loops or given - {id(node)} or known_mode(state.mode) is Mode.OFF:
            return given
        if self.recording:
            self.presumed[id(node)] = Forward(node, *self._around(state), name, evaluating=state.evaluating, presumed=True)
        return frozenset({id(node)})

    def _was_a_pass(self, held: TensorState) -> None:
        """Only what a module has made goes backward."""
        for source in sorted(held.all_sources & self.presumed.keys(), key=list(self.presumed).index):
            self.record.forwards.append(self.presumed.pop(source))

    def passed(self, held: TensorState) -> bool:
        """Whether a forward pass that is known as one made a value."""
        return not held.all_sources <= self.presumed.keys()

    def went_forward(
        self, node: cst.CSTNode, state: State, name: str, *, known: bool, network: bool, trainable: bool, plain: bool = False, tags: Ids = NONE
    ) -> None:
        """Note a module's call."""
        if trainable:
            self.modes.add(known_mode(state.mode))
        if self.recording:
            self.record.forwards.append(Forward(node, *self._around(state), name, known, network, trainable, plain, state.evaluating, tags))

    def used(self, node: cst.CSTNode, state: State, what: str, held: TensorState = UNKNOWN) -> None:
        """Note something else that matters."""
        self.asks.update({what} & {"gradients", HOOKED})
        if self.recording:
            self.record.uses.append(Use(node, *self._around(state), what, held))

    def put_hook(self, node: cst.CSTNode, state: State) -> None:
        """Note a hook on a tensor. Who puts it there means to go backward; a module's `forward` does it for whoever may, and asks for no gradients itself."""
        self.asks.add(HOOKED)
        if self.recording:
            self.record.uses.append(Use(node, *self._around(state), "gradients"))

    # -- small change --------------------------------------------------------------------------------------------------

    def is_module_name(self, node: cst.BaseExpression) -> bool:
        """Whether the file treats the expression as a module: asks for its parameters, puts it into evaluation."""
        code = self.known.written.get(node)
        if code is None:
            code = self.known.written[node] = _written(node)
        return bool(code) and code in self._module_names()

    def holds_modules(self, node: cst.BaseExpression) -> bool:
        """Whether the file treats the elements of what is gone through as modules."""
        code = _written(_container(node))
        return bool(code) and f"{code}[]" in self._module_names()

    def _module_names(self) -> frozenset[str]:
        module = self.act.module
        known = self.known.module_names.get(module.path)
        if known is None:
            known = self.known.module_names[module.path] = _used_as_module(module)
        return known

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node, kept."""
        known = self.known.codes.get(node)
        if known is None:
            known = self.known.codes[node] = self.act.module.code(node)
        return known


def _written(node: cst.BaseExpression) -> str:
    """How a name or attribute is written; elements of a container are all alike, and what is moved stays what it was."""
    if isinstance(node, cst.Subscript):
        code = _written(node.value)
        return f"{code}[]" if code else ""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in MOVES_MODEL:
        return _written(node.func.value)
    return names.dotted(node)


def _container(node: cst.BaseExpression) -> cst.BaseExpression:
    """What a loop goes through: that whose ``values()`` are asked for."""
    return node.func.value if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "values" else node


def _used_as_module(module: Module) -> frozenset[str]:
    found: set[str] = set()
    for call, _ in module.walk.calls:
        func = call.func
        if isinstance(func, cst.Attribute) and func.attr.value in _MODULE_CALLS and not (func.attr.value == "train" and len(call.args) > 1):
            code = _written(func.value)
            if code and code not in {"self", "torch"}:
                found.add(code)
                found.add(code.removesuffix(".module"))
        elif names.last_name(func) in {"DataParallel", "DistributedDataParallel", "DDP"} and call.args:
            code = names.dotted(call.args[0].value)
            if code:
                found.add(code)
    called = (call.func for call, _ in module.walk.calls if isinstance(call.func, cst.Attribute))
    steppers = {names.dotted(func.value) for func in called if func.attr.value in _OTHERS_CALLS}
    found = {code for code in found if code not in steppers and not _NO_MODULE.search(code.rpartition(".")[2])}
    for scope in module.walk.scopes:
        for loop in scope.loops:
            if isinstance(loop, cst.For) and isinstance(loop.target, cst.Name) and loop.target.value in found:
                found |= {f"{code}[]" for code in (_written(_container(loop.iter)),) if code}
        for effect in scope.effects.get("self", ()):
            if effect.kind == "assign" and len(effect.path) == 1 and effect.value is not None and names.dotted(effect.value) in found:
                found.add(f"self.{effect.path[0][1]}")
    return frozenset(found)


def instance_of(held: TensorState) -> Instance | None:
    """The object of the project that a value is."""
    return held.value if isinstance(held.value, Instance) else None


def module_of(**fields: object) -> TensorState:
    """A module."""
    return TensorState(ValueKind.MODULE).having(**fields)


def part_of(module: TensorState) -> TensorState:
    """One of the modules that a module is made of, where nobody can tell which."""
    return module_of(frozen=module.frozen, sure=module.sure)


def flag(node: cst.Call, name: str) -> bool:
    """Whether a keyword argument is there and not literally False."""
    given = arguments.named(node, name)
    return given is not None and names.dotted(given) not in {"False", "None"}


def makes_step(node: cst.Call, args: Sequence[TensorState]) -> bool:
    """Whether a function that nobody can follow is given an optimizer, or the parameters of a module, beside a tensor: it makes a step."""
    if not any(held.kind is ValueKind.TENSOR or held.carries for held in args):
        return False
    if any(isinstance(held.value, External) and held.value.name.startswith("torch.optim.") for held in args):
        return True
    called = (arg.value.func for arg in node.args if isinstance(arg.value, cst.Call) and not arg.value.args)
    return any(isinstance(func, cst.Attribute) and func.attr.value == "parameters" for func in called)
