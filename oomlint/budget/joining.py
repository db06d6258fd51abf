"""Arrays that are joined of pieces: ``np.concatenate([a, b])``, ``torch.stack(rows)``."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import AS_ARRAY, STACKS
from oomlint.budget.casts import AS_MADE, item_of, made_as
from oomlint.memory.shared.content_kinds import Kind
from oomlint.model import arguments, names
from oomlint.model.values import ExternalCall

if TYPE_CHECKING:
    from oomlint.memory.shared.content_classifier import Contents
    from oomlint.memory.shared.content_kinds import Content
    from oomlint.model.values import Frame

_ALONG: Final = frozenset({"concatenate", "concat", "cat"})  # the first axis, unless they are told another one
_Shape = tuple[int, ...]  # the dimensions, and bytes of one element


def joined(node: cst.BaseExpression, frame: Frame, contents: Contents) -> _Shape | None:
    """The dimensions and the bytes of an element of what is joined; all bytes as one where the axis is another one; None where a piece is not known."""
    while isinstance(node, cst.Call) and names.last_name(node.func) in AS_ARRAY and len(node.args) == 1:
        node = node.args[0].value
    found = contents.evaluator.values(node, frame)
    made = found[0].value if len(found) == 1 else None
    library, _, word = names.canonical(made.name).rpartition(".") if isinstance(made, ExternalCall) else ("", "", "")
    if not isinstance(made, ExternalCall) or word not in STACKS or library not in {"numpy", "torch"} or not made.call.args:
        return None
    pieces = _pieces(made.call.args[0].value, made.frame, contents)
    if not pieces or len({piece[-1] for piece in pieces}) > 1:
        return None
    plain = len(arguments.plain(made.call)) == 1 and not any(arguments.has(made.call, one) for one in ("axis", "dim", "dtype", "out"))
    if plain and word == "stack" and len(set(pieces)) == 1:
        return len(pieces), *pieces[0]
    if plain and word in _ALONG and len({piece[1:] for piece in pieces}) == 1:
        return sum(piece[0] for piece in pieces), *pieces[0][1:]
    return None if arguments.has(made.call, "dtype") else (sum(map(prod, pieces)),)


def _pieces(node: cst.BaseExpression, frame: Frame, contents: Contents) -> list[_Shape] | None:
    if isinstance(node, cst.List | cst.Tuple):
        found = [_shape(one.value, contents.of(one.value, frame), frame, contents) for one in node.elements]
        return [one for one in found if one is not None] if None not in found else None
    whole = contents.of(node, frame)
    put = whole.node.elt if isinstance(whole.node, cst.ListComp) else whole.node.args[0].value if isinstance(whole.node, cst.Call) and whole.node.args else None
    one = _shape(put, whole.element, frame, contents) if put is not None and whole.element is not None else None
    return [one] * whole.count if one is not None and whole.count is not None else None


def _shape(node: cst.BaseExpression, content: Content, frame: Frame, contents: Contents) -> _Shape | None:
    """The shape of one piece, as it is where it is put in."""
    item = item_of(node, frame, content, contents.evaluator) if content.kind in {Kind.ARRAY, Kind.TENSOR} else None
    made = made_as(content, frame, contents.evaluator) if item is not None else None
    if made is None or made.item is None or not all(isinstance(one, int) for one in made.dimensions):
        return None
    return (*(one for one in made.dimensions if isinstance(one, int)), made.item if item == AS_MADE else item or 0)
