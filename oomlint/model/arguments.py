"""How arguments meet parameters: of one call as it is written, and of the layers that a call collects on its way (``partial``, ``*args``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import libcst as cst

from oomlint.api_names import COLLECTIONS, ITERATORS
from oomlint.model import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.model.values import Bound, FunctionRef
    from oomlint.syntax.scopes import Scope


class Called(Protocol):
    """A call, or a layer of arguments."""

    @property
    def args(self) -> Sequence[cst.Arg]:
        """The arguments in their order."""


def positionals(call: Called) -> list[cst.Arg]:
    """The positional arguments whose place is known: those before the first starred one."""
    found: list[cst.Arg] = []
    for arg in call.args:
        if arg.star == "*":
            break
        if arg.keyword is None and not arg.star:
            found.append(arg)
    return found


def plain(call: Called) -> list[cst.BaseExpression]:
    """The values of the positional arguments whose place is known."""
    return [arg.value for arg in positionals(call)]


def by_name(call: Called) -> dict[str, cst.BaseExpression]:
    """The values of the keyword arguments."""
    return {arg.keyword.value: arg.value for arg in call.args if arg.keyword is not None}


def named_arg(call: Called, *words: str) -> cst.Arg | None:
    """The first keyword argument of one of these names."""
    return next((arg for arg in call.args if arg.keyword is not None and arg.keyword.value in words), None)


def named(call: Called, *words: str) -> cst.BaseExpression | None:
    """The value of the first keyword argument of one of these names."""
    found = named_arg(call, *words)
    return found.value if found is not None else None


def has(call: Called, *words: str) -> bool:
    """Whether a keyword argument of one of these names stands in the call."""
    return named_arg(call, *words) is not None


def has_stars(call: Called) -> bool:
    """Whether a starred argument may give any parameter."""
    return any(arg.star for arg in call.args)


def arg_for(call: Called, *words: str, place: int) -> cst.Arg | None:
    """The argument that a call gives to a parameter, by keyword or position; ``None`` where it gives none or a starred one hides it."""
    found = named_arg(call, *words)
    if found is not None:
        return found
    known = positionals(call)
    return known[place] if 0 <= place < len(known) else None


def argument_for(call: Called, *words: str, place: int) -> cst.BaseExpression | None:
    """The value of what a call gives to a parameter."""
    found = arg_for(call, *words, place=place)
    return found.value if found is not None else None


def parameter_of(function: FunctionRef, call: cst.Call, arg: cst.Arg, part: int | str | None = None, filled: int = 0) -> str | None:
    """The parameter that an argument of the call fills, or a ``part`` of it: an element of ``*pair``, an entry of ``**parts``.

    ``filled`` are the first parameters by place that have been given something before. ``None`` where a starred one hides it or a rest parameter takes it.
    """
    given = part if arg.star == "**" else arg.keyword.value if arg.keyword is not None else None
    if isinstance(given, str):
        return given if given in names.takes(function.scope) else None
    ordered = _ordered(function.scope, bound=function.this is not None or function.scope.name == "__init__")[filled:]
    if arg.star == "*" and isinstance(part, int):
        first = call.args[: call.args.index(arg)]
        place = len(first) + part
        return ordered[place] if not any(one.star or one.keyword is not None for one in first) and place < len(ordered) else None
    return next((name for name, one in zip(ordered, positionals(call), strict=False) if one is arg), None)


def _ordered(scope: Scope, *, bound: bool = True) -> list[str]:
    """Parameters that positional arguments fill; of a bound method without the object."""
    if not isinstance(scope.node, cst.FunctionDef | cst.Lambda):
        return []
    params = scope.node.params
    return [p.name.value for p in (*params.posonly_params, *params.params)][bound and names.is_method(scope) :]


def binds(scope: Scope, call: Called) -> bool:
    """Whether a call can be one of a function, of a method on its object: it gives what has no default, and nothing that the function does not take."""
    if not isinstance(scope.node, cst.FunctionDef | cst.Lambda) or has_stars(call):
        return True
    params, ordered = scope.node.params, _ordered(scope)
    place, words = len(positionals(call)), by_name(call).keys()
    free = [p for p in names.parameters(scope) if p.name.value in ordered[place:] or p in params.kwonly_params]
    if place > len(ordered) and not isinstance(params.star_arg, cst.Param):
        return False
    needed = {p.name.value for p in free if p.default is None}
    return needed <= words and (params.star_kwarg is not None or words <= {p.name.value for p in free})


class GivenArgument:
    """The argument that a call gives to one parameter."""

    __slots__ = ("bound", "node")

    def __init__(self, node: cst.Arg, bound: Bound) -> None:
        self.node = node
        self.bound = bound


def positional(bound: tuple[Bound, ...]) -> list[GivenArgument] | None:
    """Positional arguments of all layers; ``None`` where a starred one hides how many there are."""
    found: list[GivenArgument] = []
    for layer in bound:
        for arg in layer.args:
            if arg.star == "*":
                handed = _handed_through(arg, layer)
                if handed is None:
                    return None
                found.extend(handed)
            elif arg.star == "" and arg.keyword is None:
                found.append(GivenArgument(arg, layer))
    return found


def _handed_through(arg: cst.Arg, layer: Bound) -> list[GivenArgument] | None:
    """What ``*args`` stands for where it is the rest parameter of the function around the call."""
    scope, outer = layer.frame.scope, layer.frame.bound
    if not isinstance(scope.node, cst.FunctionDef) or not isinstance(arg.value, cst.Name) or outer is None:
        return None
    rest = scope.node.params.star_arg
    if not isinstance(rest, cst.Param) or rest.name.value != arg.value.value:
        return None
    return further(scope, outer)


def keyword(bound: tuple[Bound, ...], name: str) -> GivenArgument | None:
    """The keyword argument of that name, from the outermost layer that gives it."""
    for layer in reversed(bound):
        for arg in layer.args:
            if arg.keyword is not None and arg.keyword.value == name:
                return GivenArgument(arg, layer)
    return None


def starred(bound: tuple[Bound, ...]) -> list[GivenArgument]:
    """The ``**mapping`` arguments, the one that wins first."""
    return [GivenArgument(arg, layer) for layer in reversed(bound) for arg in reversed(layer.args) if arg.star == "**"]


def given(bound: tuple[Bound, ...], name: str, ordered: Sequence[str]) -> GivenArgument | None:
    """What the layers give to a parameter, by keyword or by its place among the ``ordered`` ones."""
    found = keyword(bound, name)
    if found is not None or name not in ordered:
        return found
    place, known = ordered.index(name), positional(bound)
    if known is None:
        known = _leading(bound)
    return known[place] if place < len(known) else None


def given_to(scope: Scope, name: str, bound: tuple[Bound, ...]) -> GivenArgument | None:
    """The explicit argument that the layers give to a parameter of a function."""
    return given(bound, name, _ordered(scope)) if isinstance(scope.node, cst.FunctionDef | cst.Lambda) else None


def further(scope: Scope, bound: tuple[Bound, ...]) -> list[GivenArgument] | None:
    """The arguments by place that no parameter of a function with ``*args`` takes; ``None`` where nobody knows how many there are."""
    known = positional(bound)
    return known[len(_ordered(scope)) :] if known is not None else None


def unpacked(scope: Scope, name: str, bound: tuple[Bound, ...]) -> tuple[GivenArgument, int | None] | None:
    """The argument that fills a parameter beside a starred one, ``make(*pair, flag)``, with the place in it where it is that one.

    How long the starred one is follows from the parameters that have no default: each of them is filled.
    """
    if not isinstance(scope.node, cst.FunctionDef | cst.Lambda):
        return None
    known = [GivenArgument(arg, layer) for layer in bound for arg in layer.args if arg.star != "**" and arg.keyword is None]
    stars = [number for number, one in enumerate(known) if one.node.star]
    ordered = [word for word in _ordered(scope) if keyword(bound, word) is None]
    if len(stars) != 1 or name not in ordered:
        return None
    unpacks = known[stars[0]].node.value
    if isinstance(unpacks, cst.BaseComp) or (isinstance(unpacks, cst.Call) and names.last_name(unpacks.func) in ITERATORS | COLLECTIONS):
        return None  # its elements are not those of what it is given
    needed = {param.name.value for param in names.parameters(scope) if param.default is None}
    at, place, behind = stars[0], ordered.index(name), len(known) - stars[0] - 1
    length = sum(word in needed for word in ordered) - at - behind
    if place < at + length:
        return known[at], place - at
    follows = place - length + 1
    return (known[follows], None) if needed >= set(ordered) and follows < len(known) else None


def _leading(bound: tuple[Bound, ...]) -> list[GivenArgument]:
    """The positional arguments before the first starred one."""
    found: list[GivenArgument] = []
    for layer in bound:
        known = positionals(layer)
        found.extend(GivenArgument(arg, layer) for arg in known)
        if any(arg.star == "*" for arg in layer.args):
            break
    return found


def hides_positionals(bound: tuple[Bound, ...]) -> bool:
    """Whether a ``*args`` in the call may fill any parameter."""
    return positional(bound) is None
