"""Bytes of what is read or made, where constants, names or the author's comment reach: exact, at least so many, or a formula."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.amounts import readable
from oomlint.memory.shared.byte_size import ITEM_BYTES, Size, allocates, item_bytes
from oomlint.model import arguments, names
from oomlint.model.tensor_shapes import measured_axis, shape_of
from oomlint.model.values import Display, External
from oomlint.patterns import pattern
from oomlint.scout.telling_names import MAKERS, PAIRS
from oomlint.syntax.quick import MOST_DIGITS

if TYPE_CHECKING:
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module
    from oomlint.model.values import Frame

_SHAPE: Final = pattern(r"[\(\[]\s*(\w+(?:\s*(?:,|\bx\b|\u00d7|\*)\s*\w+)+)\s*,?\s*[\)\]]")
_FEW: Final = pattern(r"\(\s*[A-Za-z]\w*\s*,\s*(\d*)\s*\)")
_MOST_NUMBERS: Final = 16
_DTYPE: Final = pattern(r"\b(u?int(?:8|16|32|64)|b?float(?:16|32|64)|bool)\b")
_LAST: Final = -1  # of the axes
SHORT_ROW: Final = 512  # bytes of one of an unknown number of rows that are not worth a word
_LONGEST: Final = 40  # characters of one dimension in a formula


class Bytes(Struct, frozen=True):
    """How many bytes something has.

    ``dimensions`` are numbers, or the words of a dimension that nobody knows; ``item`` is bytes of one element, ``None`` where the type is unknown.
    """

    dimensions: tuple[int | str, ...]
    item: int | None
    by_comment: bool = False

    @property
    def exact(self) -> int | None:
        """The number, where all of it is known."""
        known = [d for d in self.dimensions if isinstance(d, int)]
        return prod(known) * self.item if self.item is not None and len(known) == len(self.dimensions) else None

    @property
    def least(self) -> int:
        """A number of bytes that it has at least: what is unknown counts as one."""
        return prod(max(1, d) for d in self.dimensions if isinstance(d, int)) * (self.item or 1)

    @property
    def elements(self) -> int | None:
        """The number of elements, where it is known."""
        known = [d for d in self.dimensions if isinstance(d, int)]
        return prod(known) if len(known) == len(self.dimensions) else None

    @property
    def formula(self) -> str:
        """``N * 3 * 480 * 640 * 4``; numbers alone are multiplied."""
        if self.exact is not None:
            return readable(self.exact)
        return " * ".join([*(str(d) for d in self.dimensions), *([str(self.item)] if self.item is not None else [])])

    def words(self) -> str:
        """For a message, with its unit."""
        much = self.formula if self.exact is not None else f"`{self.formula}` {'bytes' if self.item is not None else 'elements'}"
        return f"comment: {much}" if self.by_comment else much


def few_a_sample(module: Module, node: cst.CSTNode) -> bool:
    """Whether the comment behind a statement says that each sample has a few numbers: ``# (N,)``, ``# (N, 4)``."""
    for here in (node, *module.walk.ancestors(node)):
        if isinstance(here, cst.SimpleStatementLine):
            comment = here.trailing_whitespace.comment
            found = _FEW.search(comment.value) if comment is not None else None
            return found is not None and int(found.group(1) or 1) <= _MOST_NUMBERS
        if isinstance(here, cst.BaseCompoundStatement):
            return False
    return False


def commented(module: Module, node: cst.CSTNode) -> Bytes | None:
    """The shape that the comment at the end of a statement's line gives: ``# (N, 3, 640, 480) uint8``."""
    for here in module.walk.ancestors(node):
        if isinstance(here, cst.SimpleStatementLine):
            comment = here.trailing_whitespace.comment
            found = _SHAPE.search(comment.value) if comment is not None else None
            if comment is None or found is None:
                return None
            parts = re.split(r"\s*(?:,|\bx\b|\u00d7|\*)\s*", found.group(1))
            if not any(part.isdigit() for part in parts) or any(len(part) > MOST_DIGITS for part in parts):
                return None
            dtype = _DTYPE.search(comment.value)
            dimensions = tuple(int(part) if part.isdigit() else part for part in parts if part)
            return Bytes(dimensions, ITEM_BYTES.get(dtype.group(1)) if dtype is not None else None, by_comment=True)
        if isinstance(here, cst.BaseCompoundStatement):
            return None
    return None


def allocation(name: str, call: cst.Call, evaluator: Evaluator, frame: Frame, *, sure: bool = False) -> Bytes | None:
    """Bytes of ``np.zeros((n, 3))``, ``torch.randn(n, 3)`` and their like, by the qualified name of what is called; ``None`` for other calls."""
    if name.rpartition(".")[2] in PAIRS:
        return _all_pairs(name, call, frame)
    shape, dtype, default = allocates(name, call)
    dimensions = _dimensions(shape, evaluator, frame, sure=sure) if shape else None
    return Bytes(dimensions, item_bytes(dtype, ITEM_BYTES[default])) if dimensions is not None else None


def allocated(call: cst.Call, evaluator: Evaluator, frame: Frame) -> Bytes | None:
    """Bytes of an array that a call makes, by what it calls; ``None`` for other calls."""
    if names.last_name(call.func) not in MAKERS | PAIRS:
        return None
    made = next((a.value.name for a in evaluator.values(call.func, frame) if isinstance(a.value, External)), "")
    return allocation(made, call, evaluator, frame)


def known_size(name: str, call: cst.Call, evaluator: Evaluator, frame: Frame) -> Size:
    """Bytes of the same, and of ``np.arange(n)``, where all of it follows from constants."""
    if name.endswith((".arange", ".randperm")) and len(call.args) == 1:
        dimensions = _dimensions(arguments.plain(call), evaluator, frame, sure=True)
        made = Bytes(dimensions, ITEM_BYTES["int64"]) if dimensions else None
    else:
        made = allocation(name, call, evaluator, frame, sure=True)
    return Size(made.exact) if made is not None else Size()


def along_columns(name: str, call: cst.Call, frame: Frame) -> bool:
    """Whether a call makes an array of one axis that is as long as an axis of another array after its first: ``np.zeros(rows.shape[1])``."""
    shape, _, _ = allocates(name, call)
    if len(shape) == 1 and isinstance(shape[0], cst.Tuple | cst.List):
        shape = [element.value for element in shape[0].elements]
    return len(shape) == 1 and _is_later_axis(shape[0], frame)


def _is_later_axis(node: cst.BaseExpression, frame: Frame) -> bool:
    """``x.shape[1]``, ``x.size(-1)``, or the name that ``rows, columns = x.shape`` gives it."""
    place = measured_axis(node)
    if isinstance(place, int):
        return place > 0 or place == _LAST
    given = [effect for effect in frame.scope.effects.get(node.value, ()) if not effect.path] if isinstance(node, cst.Name) else []
    return bool(given) and all(effect.index and effect.index[0] > 0 and shape_of(effect.value) is not None for effect in given)


def _all_pairs(name: str, call: cst.Call, frame: Frame) -> Bytes | None:
    """Bytes of the distances between all rows of one array: ``cdist(x, x)``, ``squareform(pdist(x))``."""
    plain = arguments.plain(call)
    if name in {"scipy.spatial.distance.cdist", "torch.cdist"}:
        rows = plain[0] if len(plain) > 1 and plain[0].deep_equals(plain[1]) else None
    else:
        inner = plain[0] if name == "scipy.spatial.distance.squareform" and plain else None
        rows = inner.args[0].value if isinstance(inner, cst.Call) and names.last_name(inner.func) == "pdist" and inner.args else None
    if rows is None:
        return None
    code = " ".join(frame.module.code(rows).split())
    dimension = f"len({code if len(code) <= _LONGEST else '...'})"
    return Bytes((dimension, dimension), 4 if name.startswith("torch.") else 8)


def _dimensions(nodes: list[cst.BaseExpression], evaluator: Evaluator, frame: Frame, *, sure: bool) -> tuple[int | str, ...] | None:
    """Dimensions as a call is given them; a number that is one of several values is taken for it where one need not be ``sure``."""
    if len(nodes) == 1:
        only = nodes[0]
        if isinstance(only, cst.BinaryOperation) and isinstance(only.operator, cst.Add):  # `(capacity,) + shape`
            left, right = (_written(part, evaluator, frame, sure=sure) for part in (only.left, only.right))
            if left is not None and right is not None:
                return (*left, *right)
        known = _written(only, evaluator, frame, sure=sure)
        if known is not None:
            return known
        if any(isinstance(alt.value, Display) and isinstance(alt.value.node, cst.Tuple | cst.List) for alt in evaluator.values(only, frame)):
            return None
    return tuple(_dimension(node, evaluator, frame, sure=sure) for node in nodes)


def _written(node: cst.BaseExpression, evaluator: Evaluator, frame: Frame, *, sure: bool) -> tuple[int | str, ...] | None:
    """The dimensions of a tuple that is written out, those of tuples inside it included; ``None`` where that is not known."""
    for alt in evaluator.values(node, frame):
        if isinstance(alt.value, Display) and isinstance(alt.value.node, cst.Tuple | cst.List):
            found: list[int | str] = []
            for element in alt.value.node.elements:
                inner = _written(element.value, evaluator, alt.value.frame, sure=sure) if isinstance(element, cst.StarredElement) else None
                if isinstance(element, cst.StarredElement) and inner is None:
                    return None
                found.extend(inner if inner is not None else (_dimension(element.value, evaluator, alt.value.frame, sure=sure),))
            return tuple(found)
    return None


def _dimension(node: cst.BaseExpression, evaluator: Evaluator, frame: Frame, *, sure: bool) -> int | str:
    found = evaluator.values(node, frame)
    numbers = {alt.const for alt in found if isinstance(alt.const, int) and not isinstance(alt.const, bool)}
    if len(numbers) == 1 and (len(found) == 1 or not sure):
        return numbers.pop()
    code = " ".join(frame.module.code(node).split())
    return code if len(code) <= _LONGEST else names.last_name(node) or "..."


def counts_samples(dimension: int | str) -> bool:
    """Whether a dimension is, by its words, the number of samples."""
    return isinstance(dimension, str) and _COUNT.search(dimension) is not None and _WORDS.search(dimension) is None


# The rows of a table of words or classes, not samples: `len(self.wtoi) + 1`.
_WORDS: Final = pattern(r"vocab|word|token|class|label|categ|dict|embed|2(idx|id|ind)|(^|[._(])[a-z]to[a-z]\b|_to_", re.IGNORECASE)
_COUNT: Final = pattern(
    r"^len\(|\.shape\[0\]|\.size\(0\)|(^|[._])(n|num|nb|number_of|total)_?(samples?|items?|imgs?|images?|data|examples?|files?|frames?|videos?|clips?|instances|points|seqs?|"
    r"sequences|graphs|windows|trials|epochs|total|entries|rows|slices|scans|patches|docs|records)$|(^|[._])(N|N_samples|n_total|num|data_len|dataset_size|data_size|"
    r"n_data|n_train|nsamples|ntotal|ntrain|num_train|size|dataset_len|num_total)$|^\w*(shape|dims|idx_cfd)\[0\]",
)
