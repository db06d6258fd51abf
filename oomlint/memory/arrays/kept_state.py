"""What a search for those who keep data carries along: what it finds, what it knows of the value on its way, and what its parts ask of each other."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct, field
from msgspec.structs import replace

from oomlint.api_names import WRAPPERS
from oomlint.memory.buffers.bounds import ends_itself
from oomlint.memory.datasets.serving import Entered, Serving
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.model import arguments, names
from oomlint.model.loops import way_out
from oomlint.model.torch_tables import TO_DEVICE
from oomlint.model.values import Const, External, ExternalCall, Unknown
from oomlint.scout.telling_names import ELEMENTWISE, MAPS
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from oomlint.model.project import Module, Project
    from oomlint.model.values import ClassRef
    from oomlint.syntax.scopes import Scope
    from oomlint.syntax.walk import Walk

DEEPEST: Final = 12  # functions on the way
STEPS: Final = 4_000  # for one read
EACH: Final = "[]"  # an element of a container, on the way to a value
_DEEPEST_FIELDS: Final = 6  # objects and containers around a value
_FILES: Final = re.compile(r"path|file|glob|listdir|walk|iterdir|\bfn|fname|json|scandir")


class DataTransform(Enum):
    """What is done with the data on its way."""

    JOINS = "a list of it becomes one array"
    SCALES = "bytes become floating-point numbers"
    LISTS = "numbers become Python objects"
    COPIES = "it is copied"
    COMPUTES = "operation after operation makes another array of it"
    MOVES = "it goes to an accelerator"
    READS = "what was only opened is read"
    PICTURES = "a picture is made of it"


COMPUTED: Final = frozenset({DataTransform.SCALES, DataTransform.COMPUTES})


class Passed(Struct, frozen=True):
    """One thing that is done with the data on its way."""

    does: DataTransform
    module: Module
    node: cst.BaseExpression


class Keeper(Struct, frozen=True):
    """Who keeps the data: an attribute of a dataset, or a call that makes a dataset of it."""

    module: Module
    node: cst.CSTNode  # the statement or call
    attribute: str  # empty for a call
    owner: ClassRef | None  # the dataset's class
    words: str  # for a message: ```data` of `Clips```
    many: bool  # read again and again, in a loop without a small bound
    collected: bool  # its elements went into another container
    names: tuple[str, ...]  # of variables and keys on the way, the last one last
    passed: tuple[Passed, ...] = ()  # what was done with it on the way
    given: bool = False  # the dataset did not make it: it was handed over as an argument
    hazy: bool = False  # what it is by now is not known: a name may tell
    live: bool = False  # no dataset keeps it: it is there because the code around a loop that runs a model still uses it
    put: tuple[Module, cst.CSTNode] | None = None  # what puts it into the first container on the way
    saver: str = ""  # the call that writes it to a file once all of it is there; then it is `live`, too
    evaluated: bool = False  # it is `live` for a loop that runs a model and trains nothing
    opened: bool = False  # a picture in it is only opened
    own: int | None = None  # so many of the names are its own: the later ones are of records in which it stands beside other things

    @property
    def own_names(self) -> tuple[str, ...]:
        """The names that may say what it is."""
        return self.names[: self.own]


class Going(Struct, frozen=True):
    """What is known of the value on its way."""

    many: bool = False
    collected: bool = False
    index: int | None = None  # its place in a tuple that a function returns
    place: tuple[int, int] | None = None  # its place in a list that is gone through, and how many stand there: what is made of each comes out in their order
    names: tuple[str, ...] = ()
    part: bool = False  # an element of it
    some: bool = False  # so many rows of it, however many there are, or one place of each
    cut: bool = False  # rows of it that an index or two bounds pick, which another round may pick elsewhere
    fields: tuple[str, ...] = ()  # the way to it in the object that holds it, the outermost last: attributes, and `EACH` for elements of a container
    opened: bool = False  # a field holds a picture that is only opened
    listed: bool = False  # it is in a list, not yet in an array
    mixed: bool = False  # it is in a small list beside things that are no arrays: no array can hold both, but by reference
    given: bool = False  # it was handed to a dataset
    rebuilt: bool = False  # its elements are in another container than they were read into
    drawn: bool = False  # a generator makes it when it is asked for the next one: nothing holds them all
    passed: tuple[Passed, ...] = ()
    depth: int = 0
    hazy: bool = False  # it came through a call that nobody knows: it may be anything by now
    since: cst.CSTNode | None = None  # what gave it the name that it goes by
    entered: Entered | None = None  # the call whose argument it came in by
    into: tuple[Scope, str] | None = None  # the function and its parameter
    gathered: cst.CSTNode | None = None  # the loop whose rounds put it into a container
    put: tuple[Module, cst.CSTNode] | None = None  # the statement that does, the first time; of new objects that hold it, the first time for them
    keys: tuple[tuple[str, str], ...] = ()  # the keys of the dictionaries that hold it, the outermost last: how each begins and ends
    own: int | None = None  # so many of the names are its own: the later ones are of records in which it stands beside other things
    retyped: bool = False  # it was written into an array that was there: its numbers have the type of that array

    @property
    def whole(self) -> bool:
        """Whether it is all of the data, in one array, as far as anybody knows."""
        return not (self.part or self.some or self.cut or self.listed or self.fields or self.hazy)

    def doing(self, does: DataTransform, module: Module, node: cst.BaseExpression) -> Going:
        """The same after something was done with it."""
        done = Passed(does, module, node)
        return self if done in self.passed else replace(self, passed=(*self.passed, done))

    def once_more(self, *, repeats: bool) -> Going:
        """The same where rounds of a loop make it: many then, of which each round has its own, whatever the making of that one put into a container."""
        return replace(self, many=True, gathered=None) if repeats and not self.many else self

    def as_bytes(self) -> Going:
        """The same after numbers were made bytes again: of one file of many, whose wide numbers are gone by the next round."""
        if not self.many or self.gathered is not None:
            return self
        return replace(self, passed=tuple(one for one in self.passed if one.does is not DataTransform.SCALES))

    def kept_by(
        self, module: Module, node: cst.CSTNode, words: str, attribute: str = "", owner: ClassRef | None = None, *, live: bool = False, saver: str = ""
    ) -> Keeper:
        """Who keeps the value, with all that is known of its way."""
        return Keeper(
            module, node, attribute, owner, words, self.many, self.collected, self.names, self.passed, self.given, self.hazy, live, self.put, saver,
            opened=self.opened, own=self.own,
        )  # fmt: skip

    def gathered_by(self, loop: cst.CSTNode | None, module: Module, node: cst.CSTNode, *, part: bool = False) -> Going:
        """The same after a statement in a loop has put it, or a ``part`` of it, into a container: what made one array of it made one of many then."""
        if loop is None:
            return self
        passed = self.passed if part else tuple(one for one in self.passed if one.does is not DataTransform.JOINS)
        return replace(self, gathered=loop, put=self.put or (module, node), passed=passed)

    @property
    def in_object(self) -> bool:
        """Whether it is in one object, and not in each of a container of objects."""
        return self.fields[-1:] not in ((), (EACH,))

    def held_by(self, field: str) -> Going:
        """The same in an attribute of an object; of what is in an object already, in a container."""
        if len(self.fields) >= _DEEPEST_FIELDS or (field == EACH and not self.fields):
            return self
        return replace(self, fields=(*self.fields, field))

    def element(self) -> Going:
        """What an element of a container holds of it."""
        return replace(self, fields=self.fields[:-1]) if self.fields[-1:] == (EACH,) else self

    def under(self, key: cst.BaseExpression | None) -> Going:
        """The same in a dictionary, under a key."""
        return replace(self, keys=(*self.keys, ends_of(key))) if not self.fields else self

    def taken(self, key: str) -> Going | None:
        """What the dictionary that holds it has under a key; ``None`` where that is something else."""
        if not self.keys:
            return self
        start, end = self.keys[-1]
        return replace(self, keys=self.keys[:-1]) if key.startswith(start) and key.endswith(end) else None

    def named(self, name: str) -> Going:
        """The same under another name."""
        return replace(self, names=(*self.names, name)) if name not in self.names[-1:] else self


class Given(Struct, frozen=True):
    """Where a function gives back a value, and what it is by then."""

    index: int | None  # its place in a tuple
    fields: tuple[str, ...] = ()
    opened: bool = False
    hazy: bool = False
    put: tuple[Module, cst.CSTNode] | None = None  # what puts it into a container there


class Met(Struct, frozen=True):
    """An operation that takes all of a value."""

    module: Module
    node: cst.Call | cst.BinaryOperation
    operand: cst.CSTNode  # an argument, or the side of an operator, or ``x.mm`` of ``x.mm(y)``
    going: Going


class KeptSearch(Struct):
    """One search: what it has found and what it has seen."""

    found: list[Keeper] = field(default_factory=list)
    objects: list[Keeper] = field(default_factory=list)  # objects of other classes that it stays in, whatever they do with it
    moves: list[Keeper] = field(default_factory=list)  # calls that put all of it on an accelerator
    joined: list[Keeper] = field(default_factory=list)  # calls that make one array of a list of many, whatever becomes of the array
    pools: bool = False  # containers that a script puts many values into are found, whatever becomes of them
    seen: set[object] = field(default_factory=set)
    steps: int = 0
    todo: deque[tuple[Module, cst.CSTNode, Going]] = field(default_factory=deque)
    origin: tuple[Module, cst.CSTNode] | None = None  # the expression that it starts at
    pickled: bool = False  # it starts at an array that was saved with pickle: of one object, a dictionary most often
    inside: Scope | None = None  # the one function that is looked at, where it is not all of them
    parts: bool = False  # a container of its parts counts too
    sure: bool = False  # what a function that nobody knows makes of it does not count
    late: bool = False  # an object that takes it once it is built keeps it, too
    returns: set[int | None] = field(default_factory=set)  # where it gives back the value
    gives: dict[Given, None] = field(default_factory=dict)  # where it gives back the value, or an object that holds it
    stores: dict[Given, None] = field(default_factory=dict)  # which attributes it gives the value to
    made: dict[Passed, None] = field(default_factory=dict)  # what it has computed of all of it by then
    meets: list[Met] | None = None  # the operations that take all of it, where they are asked for
    picks: dict[tuple[Scope, str], list[tuple[Module, cst.Subscript | cst.Call, Going]]] = field(default_factory=dict)  # parts of a parameter

    @property
    def start(self) -> cst.CSTNode | None:
        """The expression that it starts at, where that is one."""
        return self.origin[1] if self.origin is not None else None


def is_for_each(module: Module, node: cst.CSTNode) -> bool:
    """Whether it stands in what is called for each element of something: ``table.apply(lambda row: read(row["path"]), axis=1)``."""
    inside = next((here for here in module.walk.ancestors(node) if isinstance(here, cst.Lambda | cst.FunctionDef)), None)
    arg = module.walk.parents.get(inside) if isinstance(inside, cst.Lambda) else None
    call = module.walk.parents.get(arg) if isinstance(arg, cst.Arg) else None
    return isinstance(call, cst.Call) and names.last_name(call.func) in ELEMENTWISE


class Keeping(ABC):
    """The questions of a run, and what a part asks of those that build on it.

    The parts are a chain of classes, from names and callers up to the expressions of ``kept.py``; each asks those before it by inheritance.
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)
        self.constructions = constructions_of(project)
        self.serving = project.shared(Serving)

    @abstractmethod
    def run(self, search: KeptSearch) -> None:
        """Follow what is still to be followed."""

    @abstractmethod
    def picked(self, search: KeptSearch, module: Module, node: cst.Subscript | cst.Call, going: Going) -> None:
        """A part of the value is taken: by an index, or drawn by a call."""

    @staticmethod
    def climb(search: KeptSearch, module: Module, node: cst.CSTNode, going: Going) -> None:
        """Follow the value of ``node`` next."""
        search.todo.append((module, node, going))

    # -- loops ---------------------------------------------------------------------------------------------------------

    def repeats(self, module: Module, node: cst.CSTNode) -> bool:
        """Whether an expression is evaluated many times, as far as anybody knows."""
        loop = self.loop_of(module, node)
        if loop is not None:
            return self._unbounded(module, loop.iter)
        return self.mapped(module, node) is not None or self.gathering(module, node) is not None or is_for_each(module, node)

    def mapped(self, module: Module, node: cst.CSTNode) -> cst.BaseExpression | None:
        """The function that a call has called for each element of something: ``map(read, paths)``, ``frame["path"].apply(read)``."""
        last = names.last_name(node.func) if isinstance(node, cst.Call) else ""
        if last not in ELEMENTWISE or not isinstance(node, cst.Call) or not node.args or node.args[0].keyword is not None:
            return None
        several = len(node.args) > 1 and node.args[1].keyword is None
        if (last in MAPS and several) or (isinstance(node.func, cst.Attribute) and self._is_frame(module, node.func.value)):
            return node.args[0].value
        return None

    def _is_frame(self, module: Module, node: cst.BaseExpression) -> bool:
        """Whether an expression is a table of pandas, or a column of one."""
        frames = self.evaluator.calls.frames(module, module.walk.scope_at(node), most=2)
        parts = (node, node.value) if isinstance(node, cst.Subscript | cst.Attribute) else (node,)
        return any(self.constructions.contents.of(part, frame).kind is PayloadKind.FRAME for frame in frames for part in parts)

    @staticmethod
    def loop_of(module: Module, node: cst.CSTNode) -> cst.For | cst.CompFor | None:
        """The loop whose variable a name is, where it stands in the head of that."""
        below = node
        for here in module.walk.ancestors(node) if isinstance(node, cst.Name) else ():
            if isinstance(here, cst.For | cst.CompFor):
                return here if here.target is below else None
            if not isinstance(here, cst.Tuple | cst.List | cst.Element):
                return None
            below = here
        return None

    @staticmethod
    def over_many(module: Module, node: cst.CSTNode) -> bool:
        """Whether the innermost loop around a node goes through as many as an object has, or, by the words of its header, through files."""
        header = next(names.headers(module.walk, node), None)
        if header is None:
            return False
        counted = isinstance(header.iter, cst.Call) and any(isinstance(n, cst.Call) and names.last_name(n.func) == "len" for n in descend(header.iter))
        return counted or _FILES.search(f"{module.code(header.iter)} {module.code(header.target)}") is not None

    def gathering(self, module: Module, node: cst.CSTNode) -> cst.CSTNode | None:
        """The innermost loop around an expression that may go round often."""
        below: cst.CSTNode = node
        first = False  # whether it stands in what the first loop of a comprehension goes through, which is evaluated once
        left = False  # whether the loop around is left in the round that evaluates it
        for here in module.walk.ancestors(node):
            if isinstance(here, cst.CompFor):
                first = below is here.iter
            if isinstance(here, cst.BaseSuite) and not isinstance(module.walk.parents[here], cst.FunctionDef) and (end := way_out(here)) is not None:
                if isinstance(end, cst.Return):
                    return None
                left = True
            if isinstance(here, cst.For | cst.While) and below is here.body:
                goes_on = not left and (isinstance(here, cst.While) or self._unbounded(module, here.iter))
                if goes_on and not ends_itself(module, module.walk.scope_at(here), here, stated=True):
                    return here
                left = False
            if isinstance(here, cst.BaseComp) and not (below is here.for_in and first) and self._unbounded(module, here.for_in.iter):
                return here
            if isinstance(here, cst.FunctionDef | cst.ClassDef | cst.Lambda):
                return None
            below = here
        return None

    def moves(self, module: Module, call: cst.Call) -> bool:
        """Whether a call puts a tensor on an accelerator, or on a device that nobody knows: a method, or a maker that is given a ``device``."""
        given = arguments.named(call, "device")
        if given is not None:
            return self._names_accelerator(module, call, given)
        method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        if method in TO_DEVICE or self._makes_on_device(module, call):
            return True
        if method != "to" or not call.args or call.args[0].star:
            return False
        return self._names_accelerator(module, call, call.args[0].value)

    def _makes_on_device(self, module: Module, call: cst.Call) -> bool:
        """Whether a call makes a tensor of what it is given, of a type that lies on an accelerator: ``torch.cuda.FloatTensor(rows)``."""
        found = self.evaluator.plainly(call.func, module, module.walk.scope_at(call))[:2]
        return any(isinstance(alt.value, External) and alt.value.name.startswith("torch.cuda.") and alt.value.name.endswith("Tensor") for alt in found)

    def _names_accelerator(self, module: Module, call: cst.Call, where: cst.BaseExpression) -> bool:
        frames = self.evaluator.calls.frames(module, module.walk.scope_at(call), most=2)
        return any(_is_accelerator(alt.value) for frame in frames for alt in self.evaluator.values(where, frame)[:4])

    def bounded(self, module: Module, iterable: cst.BaseExpression) -> bool:
        """Whether an iterable is known to have a handful of elements."""
        return self.constructions.count(module, iterable) is not None

    def _unbounded(self, module: Module, iterable: cst.BaseExpression) -> bool:
        """Whether an iterable may have more than a handful of elements."""
        return not across(iterable) and self.constructions.count(module, iterable) is None


def across(iterable: cst.BaseExpression) -> bool:
    """Whether it gives one field of all rows after the other: ``zip(*rows)``."""
    return isinstance(iterable, cst.Call) and names.dotted(iterable.func) == "zip" and len(iterable.args) == 1 and iterable.args[0].star == "*"


def _is_accelerator(value: object) -> bool:
    """Whether a value may name a device other than the host: by what it is, not by what it is called."""
    if isinstance(value, Const):
        return isinstance(value.value, int) or (isinstance(value.value, str) and not value.value.startswith("cpu"))
    if isinstance(value, ExternalCall) and value.name == "torch.device" and value.call.args:
        first = value.call.args[0].value
        return not isinstance(first, cst.SimpleString) or not str(first.evaluated_value).startswith("cpu")
    return isinstance(value, Unknown)


def ends_of(key: cst.BaseExpression | None) -> tuple[str, str]:
    """How a key is known to begin and to end: the text itself, or the constant parts of ``"x_" + part``."""
    match key:
        case cst.SimpleString():
            text = str(key.evaluated_value)
            return text, text
        case cst.BinaryOperation(operator=cst.Add()):
            return ends_of(key.left)[0], ends_of(key.right)[1]
        case cst.FormattedString() if key.parts:
            first, last = (part.value if isinstance(part, cst.FormattedStringText) else "" for part in (key.parts[0], key.parts[-1]))
            return first, last
    return "", ""


def one_of_zipped(walk: Walk, call: cst.Call, arg: cst.Arg) -> tuple[cst.For | cst.CompFor, cst.BaseExpression] | None:
    """The loop that goes through one of several things together, and the part of its target that is an element of that one."""
    if names.dotted(call.func) != "zip" or any(other.star for other in call.args):
        return None
    places = [call.args.index(arg)]
    node: cst.CSTNode = call
    while isinstance(outer := walk.parents.get(node), cst.Arg) and isinstance(around := walk.parents[outer], cst.Call):
        if names.last_name(around.func) not in WRAPPERS or around.args[0] is not outer:
            return None
        places = [1, *places] if names.dotted(around.func) == "enumerate" else places
        node = around
    if not isinstance(outer, cst.For | cst.CompFor) or outer.iter is not node:
        return None
    target: cst.BaseExpression = outer.target
    for place in places:
        if not isinstance(target, cst.Tuple | cst.List) or len(target.elements) <= place:
            break
        target = target.elements[place].value
    return outer, target
