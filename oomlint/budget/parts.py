"""What the constructors of a model make, as far as they can be followed: layers, objects of the project's classes, arrays, and what nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from oomlint.budget.costs import FLOAT
from oomlint.budget.nouns import LayerNumbers
from oomlint.budget.sizes import Name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import libcst as cst

    from oomlint.model.project import Module
    from oomlint.model.values import ClassRef, Frame, Value
    from oomlint.syntax.scopes import Scope

MOST_ROUNDS: Final = 2_000  # of a loop
CONTAINERS: Final = frozenset({"Sequential", "ModuleList", "ParameterList", "ModuleDict", "ParameterDict"})


class Missing(Struct, frozen=True, eq=False):
    """Something that nobody knows, as it is written."""

    text: str


class PlainValue(Missing, frozen=True, eq=False):
    """The same of what has no parameters: a number, a text, an array."""


class Rest(Missing, frozen=True, eq=False):
    """In a list or a dictionary: what else may be in it."""


class Layer(Struct, eq=False):
    """A layer of a library, or several put together: ``parts`` by their names."""

    kind: str = ""  # its name in ``torch.nn``
    numbers: int = 0  # that are trained, beside ``own``
    kept: int = 0  # bytes beside them
    parts: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    own: dict[str, Any] = field(default_factory=dict)  # its weight and its bias, where it has no more
    options: dict[str, Any] = field(default_factory=dict)  # what it was made with
    shards: str = ""  # as in ``Trained``
    item: int = FLOAT  # bytes of one of its numbers, where nothing around it has changed that


class Made(Struct, eq=False):
    """An object of a class of the project. What stands in ``missing`` may have put layers on it."""

    cls: ClassRef
    module: bool  # whether it is a module of torch
    attributes: dict[Any, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    shards: str = ""
    item: int = FLOAT


class ParameterTensor(Struct, eq=False):
    """A tensor: its shape, and bytes of one number; none where nobody knows what it is."""

    shape: tuple[int, ...]
    item: int
    parameter: bool = False
    kept: bool = False  # as a buffer of a module


class Function(Struct, frozen=True, eq=False):
    """A function of the project, with what it is a method of, and where it is defined."""

    module: Module
    scope: Scope
    this: Any = None  # an object, or a class
    around: Names | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of its parameters, where they are known since it was defined


class Class(Struct, frozen=True):
    """A class of the project."""

    ref: ClassRef


class Library(Struct, frozen=True):
    """Something of a library, or a built-in function, by its qualified name."""

    name: str


class ValueMethod(Struct, frozen=True, eq=False):
    """A method of a value that is no object of the project."""

    of: Any
    name: str


class Partly(Struct, frozen=True, eq=False):
    """A callable with some of its arguments given."""

    func: Any
    plain: tuple[Any, ...]
    named: Mapping[str, Any]


class ForeignOptions(Struct, frozen=True, eq=False):
    """Options or settings, and what the program has written to them. Under a ``Rest`` is what nobody knows the name of."""

    value: Value | None  # None of a namespace that the program has made, which has nothing else
    changed: dict[Any, Any] = field(default_factory=dict)
    by_code: bool = False  # the code hands over the words of the command, which the whole program does not look at


class Names(Struct, eq=False):
    """The names of a scope that is being run. Where ``frame`` is given, names that are not known have the values that they have in it."""

    module: Module
    scope: Scope
    known: dict[str, Any] = field(default_factory=dict)
    around: Names | None = None
    frame: Frame | None = None
    this: Made | None = None
    given: list[Any] | None = None  # what a generator has given


def items_of(value: Any) -> list[Any] | None:
    """What a loop over a value goes through; None where nobody knows all of it."""
    if isinstance(value, range):
        return list(value) if len(value) <= MOST_ROUNDS else None
    if isinstance(value, Layer) and value.kind in CONTAINERS:
        return None if value.missing else list(value.parts if value.kind.endswith("Dict") else value.parts.values())
    if isinstance(value, ParameterTensor) and value.shape and value.shape[0] <= MOST_ROUNDS:
        return [ParameterTensor(value.shape[1:], value.item) for _ in range(value.shape[0])]
    known = isinstance(value, list | tuple | dict | str) and not any(isinstance(one, Rest) for one in value)
    return list(value) if known else None


def hashable(value: Any) -> bool:
    """Whether a value can be a key."""
    if isinstance(value, tuple):
        return all(hashable(one) for one in value)
    return isinstance(value, str | int | float | bool | Class | Library) or value is None


def is_part(value: Any) -> bool:
    """Whether a value has parameters, or may have."""
    return (
        isinstance(value, Layer)
        or (isinstance(value, Missing) and not isinstance(value, PlainValue))
        or (isinstance(value, Made) and value.module)
        or (isinstance(value, ParameterTensor) and value.parameter)
    )


def parts_of(value: Any) -> list[Any]:
    """The layers inside a module, in their order."""
    if isinstance(value, Layer):
        return list(value.parts.values())
    found: list[Any] = []
    for key, one in value.attributes.items() if isinstance(value, Made) else ():
        if isinstance(key, str) and key.startswith("("):  # the layer that its class derives from
            found += parts_of(one)
        elif is_part(one) and not isinstance(one, Missing):
            found.append(one)
    return found


def all_parts(value: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """A module and all that is inside it, each once."""
    seen = set() if seen is None else seen
    if id(value) not in seen:
        seen.add(id(value))
        yield value
        for one in parts_of(value):
            yield from all_parts(one, seen)


def counted(value: Any, seen: dict[int, Any] | None = None) -> LayerNumbers:
    """The numbers of a module, each part once however many names it has, and none that is in ``seen``. An attribute that nobody knows may be a part."""
    seen = {} if seen is None else seen
    item = value.item if isinstance(value, Layer | Made) else FLOAT

    def of(value: Any) -> LayerNumbers:
        if isinstance(value, Missing):
            return lacking(value.text) if not isinstance(value, PlainValue) else LayerNumbers()
        if id(value) in seen:
            return LayerNumbers()
        seen[id(value)] = value  # it has to live: another one may have its id, else
        if isinstance(value, Layer | Made) and value.item not in {FLOAT, item}:
            return lacking("parts of another type")
        if isinstance(value, ParameterTensor):
            size = value.item
            for one in value.shape:
                size *= one
            if value.parameter:
                return LayerNumbers(size // value.item) if value.item == FLOAT else lacking("a parameter of another type")
            return LayerNumbers(0, size) if value.kept else LayerNumbers()
        if isinstance(value, Layer):
            total = LayerNumbers(value.numbers, value.kept)
            for one in (*value.own.values(), *value.parts.values()):
                total = total.plus(of(one))
        elif isinstance(value, Made) and value.module:
            total = LayerNumbers()
            for one in value.attributes.values():
                total = total.plus(of(one))  # torch does not find what a plain list holds
        else:
            return LayerNumbers()
        for text in value.missing:
            total = total.plus(lacking(text))
        return total

    return of(value)


def lacking(code: str) -> LayerNumbers:
    """Parameters of which nobody knows how many there are, of what is written so."""
    written = " ".join(code.split())
    return LayerNumbers(0, missing=(Name(f"parameters of {written}"),))


def text_of(node: cst.CSTNode, module: Module) -> str:
    """How something is written, on a line."""
    return " ".join(module.code(node).split())
