"""How many samples a part of a dataset has: that which ``random_split`` or ``Subset`` gives a loader."""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.budget.sizes import Name
from oomlint.memory.datasets.sample_values import Parts
from oomlint.memory.shared.shaped import elements
from oomlint.model import arguments, names
from oomlint.model.values import Const, Display, Element, ExternalCall

if TYPE_CHECKING:
    from oomlint.memory.shared.content_classifier import Contents
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.values import Frame, Value

_SUBSET, _SPLIT = "torch.utils.data.Subset", "torch.utils.data.random_split"
UNKNOWN: Final = Name("samples")


def part_of(value: Value, whole: object, evaluator: Evaluator, contents: Contents) -> int | Name | None:
    """Samples of a part of a dataset that has ``whole`` of them; a name where nobody knows, None for what is no part."""
    if isinstance(value, Element) and names.canonical(value.whole.name) == _SPLIT:
        place = value.accessors[0][1] if len(value.accessors) == 1 else None
        lengths = arguments.argument_for(value.whole.call, "lengths", place=1)
        inner = arguments.argument_for(value.whole.call, "dataset", place=0)
        if lengths is None or not isinstance(place, int):
            return UNKNOWN
        total = whole if inner is not None and not _is_part(inner, value.whole.frame, evaluator) else None
        return _split(lengths, place, total, value.whole.frame, Parts(evaluator, contents))
    if isinstance(value, ExternalCall) and names.canonical(value.name) == _SUBSET:
        indices = arguments.argument_for(value.call, "indices", place=1)
        count = _count(indices, value.frame, Parts(evaluator, contents)) if indices is not None else None
        return count if count is not None else UNKNOWN
    return None


def _is_part(node: cst.BaseExpression, frame: Frame, evaluator: Evaluator) -> bool:
    made = (alt.value for alt in evaluator.values(node, frame))
    called = (one.whole if isinstance(one, Element) else one for one in made)
    return any(isinstance(one, ExternalCall) and names.canonical(one.name) in {_SUBSET, _SPLIT} for one in called)


def _split(lengths: cst.BaseExpression, place: int, total: object, frame: Frame, parts: Parts) -> int | Name:
    """One of the lengths: a number, or a share of the whole."""
    found = [alt.value for alt in parts.evaluator.values(lengths, frame)]
    one = found[0] if len(found) == 1 else None
    listed = one.node.elements if isinstance(one, Display) and isinstance(one.node, cst.List | cst.Tuple) else ()
    if not isinstance(one, Display) or not -len(listed) <= place < len(listed):
        return UNKNOWN
    given = [_number(element.value, one.frame, parts) for element in listed]
    number = given[place]
    shares = [share for share in given if isinstance(share, float)]
    if isinstance(number, int):
        return number
    if len(shares) < len(given) or not isinstance(total, int):
        return UNKNOWN
    counts = [floor(total * share) for share in shares]
    rest = total - sum(counts)  # the first ones get one more each
    return counts[place] + (place % len(counts) < rest)


def _number(node: cst.BaseExpression, frame: Frame, parts: Parts) -> int | float | None:
    found = {alt.const for alt in parts.evaluator.values(node, frame) if isinstance(alt.value, Const)}
    share = found.pop() if len(found) == 1 else None
    number = parts.number(node, frame)
    return share if isinstance(share, float) else number if isinstance(number, int) else None


def _count(indices: cst.BaseExpression, frame: Frame, parts: Parts) -> int | None:
    """How many there are of the indices."""
    if isinstance(indices, cst.Call) and names.last_name(indices.func) == "range":
        sides = [parts.number(arg.value, frame) for arg in indices.args]
        known = [one for one in sides if isinstance(one, int)]
        return len(range(*known)) if len(known) == len(sides) and known and 0 not in known[2:] else None
    if isinstance(indices, cst.Call) and names.last_name(indices.func) in {"list", "sorted"} and indices.args:
        return _count(indices.args[0].value, frame, parts)
    return elements(parts.of(indices, frame))[1]
