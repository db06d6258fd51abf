"""What the flow saw happen: stores, resets, forward and backward passes, each with the loops around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct, field

from oomlint.model.tensor_state import Ids, LaterMode, Mode, Path, TensorState, known_mode

if TYPE_CHECKING:
    from oomlint.model.project import Module
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope

AS_JSON: Final = "written as JSON"  # a use
AS_ARRAY: Final = "made an array"  # a use: of what carries a graph, that raises an error
HOOKED: Final = "hooked"  # a use: the module that is called puts hooks on tensors, which wait for a backward pass


class Loop(Struct, eq=False):
    """A loop while it runs: what it goes through, and whether the model was in evaluation when it began.

    A method that a framework calls for each batch is the body of a loop, too: ``node`` is its definition. So is the ``for`` of a comprehension.
    """

    node: cst.For | cst.While | cst.FunctionDef | cst.CompFor
    module: Module
    scope: Scope
    name: str  # how the iterated thing is called
    loader: object = None  # what memory/ said of the iterated expression, where it is a loader
    named: bool = False  # whether its name says that it gives batches
    evaluating: bool | None = None  # `.eval()` was called before, `.train()` was, or nobody knows
    around: tuple[Loop, ...] = ()  # the loops that it runs in
    via: tuple[Via, ...] = ()  # the calls that led to it
    counts: bool = False  # what it goes over are numbers
    of_parts: bool = False  # as many as something has parts
    generated: bool = False  # a function of the project yields what it goes over
    short: bool = False  # it is known to go round a few times at most
    begins_training: bool = False  # each round puts a module into training before it runs any
    body: object = None  # what `model/loops.py` knows of its body
    passes: frozenset[cst.CSTNode] = frozenset()  # calls of the run that run a module, or lead there
    # What `model/loops.py` says of it at the end of the run.
    batches: bool = False  # each round is a batch
    proven: bool = False  # by what its rounds do, not by a name
    steps: bool = False  # each round goes backward
    holds: bool = False  # each round goes over batches of its own data
    trains: bool = False  # a loop over batches inside goes backward
    epochs: bool = False  # and each round trains the same modules on the same batches again

    @property
    def repeated(self) -> cst.CSTNode:
        """What each round runs: a block; of a comprehension, all of it."""
        return self.module.walk.parents[self.node] if isinstance(self.node, cst.CompFor) else self.node.body

    @property
    def iterable(self) -> cst.BaseExpression | None:
        """What it goes through, where that is written."""
        return self.node.iter if isinstance(self.node, cst.For | cst.CompFor) else None


class Via(Struct, frozen=True):
    """One call between the root and an event."""

    module: Module
    call: cst.Call
    this: Path  # where the object lives whose method it is
    given: tuple[tuple[cst.Arg, TensorState], ...] = ()
    callee: Scope | None = None


class Hooked(Struct, frozen=True):
    """A container that a forward hook fills: a name of a function or file, or an attribute of a class."""

    scope: Scope
    name: str
    detached: bool  # the hook keeps the output without its graph
    on_host: bool


class Event(Struct, eq=False):
    """Something that happened at a node, inside loops (the outermost first), through calls."""

    node: cst.CSTNode
    module: Module
    scope: Scope
    loops: tuple[Loop, ...]
    via: tuple[Via, ...]
    entered: Mode | LaterMode
    tests: tuple[cst.CSTNode, ...] = ()  # the branches around it whose tests may be false

    @property
    def mode(self) -> Mode:
        """The gradient mode that it happened in."""
        return known_mode(self.entered)


class Store(Event, eq=False):
    """A value was put into something that lives at ``path``.

    ``kind`` is "append", "extend", "item", "augment", "concat" or "metric": a library's metric was given a batch. ``value`` is what was added,
    ``expression`` its code, ``before`` what was there.
    """

    kind: str = "append"
    path: Path = ()
    value: TensorState = field(default_factory=TensorState)
    expression: cst.BaseExpression | None = None
    before: TensorState = field(default_factory=TensorState)

    @property
    def attributes(self) -> tuple[str, ...]:
        """Names of attributes, and constant keys, on the way to where it was put."""
        return tuple(part for part in self.path[1:] if isinstance(part, str) and part != "*")

    @property
    def way(self) -> cst.CSTNode | None:
        """What the statement names: the method that is called, or the target of the assignment."""
        match self.node:
            case cst.Call(func=named) | cst.AugAssign(target=named) | cst.Assign(targets=[cst.AssignTarget(target=named), *_]):
                return named
        return None

    @property
    def target(self) -> cst.CSTNode | None:
        """What is added to, as the statement has it; ``None`` where it is what a function returns."""
        node = self.node
        if isinstance(node, cst.AugAssign):
            return node.target
        if isinstance(node, cst.Assign):
            target = node.targets[0].target
            return target.value if isinstance(target, cst.Subscript) and self.kind == "item" else target
        return node.func.value if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and self.kind != "augment" else None


class Reset(Event, eq=False):
    """What lives at ``path`` was made again or emptied.

    ``bound`` says that only a part was taken out, ``network`` that a module was made.
    """

    path: Path = ()
    bound: bool = False
    network: bool = False


class Backward(Event, eq=False):
    """Gradients were computed of a value with these sources and tags."""

    sources: Ids = frozenset()
    tags: Ids = frozenset()
    retain: bool = False
    known: bool = True  # whether it is certain that this is a backward pass


class Forward(Event, eq=False):
    """A module was called."""

    name: str = ""
    known: bool = False  # whether it is a module by its class, not by its name
    network: bool = True  # no single layer of torch
    trainable: bool = True
    plain: bool = False  # whether its numbers are the same bit for bit without gradients
    evaluating: bool | None = None  # `.eval()` was called before, `.train()` was, or nobody knows
    tags: Ids = frozenset()  # of what it was given
    presumed: bool = False  # nobody knows what was called, only that what it gave went backward


class Use(Event, eq=False):
    """Something that matters to a judgement: gradients are asked for, a value goes where nobody can follow."""

    what: str = ""
    value: TensorState = field(default_factory=TensorState)


class Record(Struct):
    """All that happened in one run of a root function."""

    stores: list[Store] = field(default_factory=list)
    writes: list[Store] = field(default_factory=list)  # into tensors that are there already: `x[:] = y`, `x.copy_(y)`
    resets: list[Reset] = field(default_factory=list)
    backwards: list[Backward] = field(default_factory=list)
    forwards: list[Forward] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    parts: dict[cst.CSTNode, TensorState] = field(default_factory=dict)  # what calls make one array of: the operands of `torch.cat([x, y])`
    loops: list[Loop] = field(default_factory=list)
    made: dict[int, tuple[Loop, ...]] = field(default_factory=dict)  # activation number -> loops around its call
    returned: TensorState = field(default_factory=TensorState)
    returns: dict[cst.Return, TensorState] = field(default_factory=dict)  # what each statement of the root gives
    frame: Frame | None = None
    proven: set[tuple[Scope, str]] = field(default_factory=set)  # expressions that are used as only tensors can be
    recorded: set[int] = field(default_factory=set)  # passes whose result carries their graph
    handed: set[int] = field(default_factory=set)  # passes whose result, with its graph, a module or a function of the project was given
    complete: bool = True  # False where the budget ran out
