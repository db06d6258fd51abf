"""The nodes of a libcst tree without their punctuation: what stands below one, the statements of a suite, what a chain of names leads to."""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import libcst as cst

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

# Fields that hold punctuation, blanks and comments.
_SKIPPED: Final = frozenset(
    "comma semicolon lpar rpar lbracket rbracket lbrace rbrace equal dot colon first_colon second_colon header footer leading_lines "
    "lines_after_decorators asynchronous star operator operators indent trailing_whitespace encoding default_indent default_newline "
    "has_trailing_newline newline annotation returns type_parameters relative "
    "star_etc_whitespace leading_whitespace".split(),
)
_FIELDS: dict[type, tuple[str, ...]] = {}
_READERS: dict[type, Callable[[Any], tuple[Any, ...]]] = {}  # give the values of these fields

Accessor = tuple[str, object]  # ("attr", name), ("item", constant) or ("item", UNKNOWN_KEY)
UNKNOWN_KEY: Final = object()

Block = tuple[cst.CSTNode, ...]


def _below(kind: type) -> Iterator[type]:
    yield kind
    found: list[type] = type.__subclasses__(kind)
    for derived in found:
        yield from _below(derived)


# Sets of classes: to look one up costs a fraction of what ``isinstance`` does.
NODES: Final[frozenset[type]] = frozenset(_below(cst.CSTNode))
STATEMENTS: Final[frozenset[type]] = frozenset((*_below(cst.BaseSmallStatement), *_below(cst.BaseCompoundStatement)))
SCOPES: Final[frozenset[type]] = frozenset({cst.FunctionDef, cst.ClassDef, cst.Lambda})


def fields_of(node: cst.CSTNode) -> tuple[str, ...]:
    """Names of the fields of ``node`` that can hold meaning."""
    kind = type(node)
    found = _FIELDS.get(kind)
    if found is None:
        given = (f for f in dataclasses.fields(kind) if f.type is not str)
        found = tuple(f.name for f in given if f.name not in _SKIPPED and not f.name.startswith("whitespace"))
        _FIELDS[kind] = found
    return found


def _reader(node: cst.CSTNode) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of all fields of such a node that can hold meaning, in one step."""
    given = fields_of(node)
    found = attrgetter(*given) if given else None
    read = (lambda _: ()) if found is None else found if len(given) > 1 else (lambda node: (found(node),))
    _READERS[type(node)] = read
    return read


def children_of(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Child nodes that can hold meaning, in source order of their fields."""
    listed = _LISTED.get(node.__class__)
    if listed is not None:
        return listed(node)
    found: list[cst.CSTNode] = []
    for value in (_READERS.get(node.__class__) or _reader(node))(node):
        kind = value.__class__
        if kind in NODES:
            found.append(value)
        elif kind is tuple or kind is list:
            found += [item for item in value if item.__class__ in NODES]  # type: ignore[misc] # they are nodes
    return found


# The same for the kinds that most nodes are of.
_LISTED: Final[Mapping[type, Callable[[Any], list[cst.CSTNode]]]] = {
    cst.Name: lambda _: [],
    cst.Integer: lambda _: [],
    cst.SimpleString: lambda _: [],
    cst.Attribute: lambda node: [node.value, node.attr],
    cst.Call: lambda node: [node.func, *node.args],
    cst.Arg: lambda node: [node.value] if node.keyword is None else [node.value, node.keyword],
    cst.Expr: lambda node: [node.value],
    cst.Assign: lambda node: [*node.targets, node.value],
    cst.AssignTarget: lambda node: [node.target],
    cst.SimpleStatementLine: lambda node: [*node.body],
    cst.IndentedBlock: lambda node: [*node.body],
    cst.Subscript: lambda node: [node.value, *node.slice],
    cst.SubscriptElement: lambda node: [node.slice],
    cst.Index: lambda node: [node.value],
    cst.Element: lambda node: [node.value],
}


def orders(node: cst.CSTNode) -> TypeGuard[cst.Comparison]:
    """Whether it says of something that it is less than, or more than, another."""
    return isinstance(node, cst.Comparison) and any(
        isinstance(one.operator, cst.LessThan | cst.LessThanEqual | cst.GreaterThan | cst.GreaterThanEqual) for one in node.comparisons
    )


def descend(node: cst.CSTNode, *, into_scopes: bool = True) -> Iterator[cst.CSTNode]:
    """``node`` and everything below it; nested functions, classes and lambdas are left out on request."""
    stack = [node]
    while stack:
        here = stack.pop()
        yield here
        kind = here.__class__
        if kind is cst.Name or (not into_scopes and kind in SCOPES and here is not node):  # every third node is a name, and nothing stands below it
            continue
        below = children_of(here)
        below.reverse()
        stack += below


def is_attribute_of(node: object, name: str | None) -> TypeGuard[cst.Attribute]:
    """Whether it is an attribute of what goes by a name: ``self.data`` of ``self``."""
    return isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.value.value == name


def names_in(node: cst.CSTNode) -> set[str]:
    """Every name that stands in a piece of code; those of its attributes and keywords too."""
    return {part.value for part in descend(node) if isinstance(part, cst.Name)}


def texts_in(node: cst.CSTNode) -> Iterator[str]:
    """The text of each string in a piece of code; of one that is computed, what is written of it."""
    for part in descend(node):
        if isinstance(part, cst.SimpleString):
            yield str(part.evaluated_value)
        elif isinstance(part, cst.FormattedStringText):
            yield part.value


def parts_of(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The elements of a tuple or a list as it is written; any other expression is its only part."""
    return [element.value for element in node.elements] if isinstance(node, cst.Tuple | cst.List) else [node]


def uses_name(node: cst.CSTNode, words: Container[str]) -> bool:
    """Whether one of several names stands in a piece of code."""
    return any(isinstance(part, cst.Name) and part.value in words for part in descend(node))


def block_of(body: object) -> Block:
    """The statements of a suite, with the small statements of a line laid out one by one."""
    if isinstance(body, cst.SimpleStatementSuite):
        return tuple(body.body)
    items: Sequence[cst.CSTNode] = getattr(body, "body", ()) if not isinstance(body, tuple | list) else body
    flat: list[cst.CSTNode] = []
    for item in items:
        if type(item) is cst.SimpleStatementLine:
            flat.extend(item.body)
        else:
            flat.append(item)
    return tuple(flat)


def constant_key(node: cst.CSTNode) -> object:
    """The constant that a subscript names, or ``UNKNOWN_KEY``."""
    if isinstance(node, cst.SimpleString | cst.ConcatenatedString):
        value = node.evaluated_value
        return value if value is not None else UNKNOWN_KEY
    if isinstance(node, cst.Integer):
        return node.evaluated_value
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus) and isinstance(node.expression, cst.Integer):
        return -int(node.expression.evaluated_value)
    return UNKNOWN_KEY


def beginning(node: cst.CSTNode) -> str:
    """The text that a computed string begins with: ``layer`` of ``f"layer{i}"``, ``"layer" + i``, ``"layer%d" % i`` and ``"layer{}".format(i)``."""
    if isinstance(node, cst.FormattedString):
        first = node.parts[0] if node.parts else None
        return first.value if isinstance(first, cst.FormattedStringText) else ""
    if isinstance(node, cst.BinaryOperation):
        return beginning(node.left).partition("%")[0]
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "format":
        return beginning(node.func.value).partition("{")[0]
    known = constant_key(node)
    return known if isinstance(known, str) else ""


def path_of(node: cst.CSTNode) -> tuple[str, tuple[Accessor, ...]] | None:
    """``a.b["c"]`` as its root name and accessors; ``None`` where the expression is not such a chain."""
    accessors: list[Accessor] = []
    while True:
        if isinstance(node, cst.Name):
            accessors.reverse()
            return node.value, tuple(accessors)
        if isinstance(node, cst.Attribute):
            accessors.append(("attr", node.attr.value))
            node = node.value
        elif isinstance(node, cst.Subscript):
            if len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
                return None
            accessors.append(("item", constant_key(node.slice[0].slice.value)))
            node = node.value
        else:
            return None
