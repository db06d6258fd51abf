"""What functions and methods of NumPy and torch compute of an array: another one, or one number."""

from __future__ import annotations

from enum import Enum
from typing import Final

import libcst as cst

from oomlint.api_names import REDUCTIONS
from oomlint.model import arguments, names, torch_tables
from oomlint.syntax.nodes import constant_key

_LIBRARIES: Final = frozenset("torch torch.nn.functional torch.fft torch.linalg torch.special numpy numpy.fft numpy.linalg cupy cupy.fft cupy.linalg".split())
_BY_NAME: Final = frozenset("norm vector_norm matrix_norm percentile nanpercentile quantile nanquantile".split())  # no axis stands behind the array
_REDUCES: Final = REDUCTIONS | torch_tables.REDUCTIONS | torch_tables.PICKS | _BY_NAME | {"nanmax", "nanmin", "average"}
# What gives no array, several of them, or few numbers of many.
_OTHERS: Final = torch_tables.PLAIN_METHODS | frozenset(
    "split array_split chunk unbind tensor_split unique unique_consecutive nonzero argwhere flatnonzero bincount histogram histogramdd histogram2d histc topk "
    "kthvalue mode sort argsort count_nonzero equal allclose array_equal is_tensor result_type isscalar save load backward register_hook storage eig eigh svd "
    "qr slogdet lstsq tobytes interp trapz det cond matrix_rank untyped_storage".split()
)
_PLACES: Final = frozenset("argsort lexsort nonzero flatnonzero argwhere".split())
_COUNTS: Final = frozenset({"arange", "permutation", "randperm"})  # of as many as there are of something; of any number it may stand for data


class Computed(Enum):
    """What comes out."""

    ARRAY = "an array, about as large or with fewer axes"
    NUMBER = "one number"
    OTHER = "something else, or nobody knows"


def is_computing(name: str) -> bool:
    """Whether a function of a library computes with arrays, by its place: ``torch.nn.functional.pad``, and not ``torch.nn.Linear``."""
    library, _, last = name.rpartition(".")
    return library in _LIBRARIES and last[:1].islower()


def computed(last: str, call: cst.Call, *, before: int) -> Computed:
    """What a function or a method makes of an array; the first ``before`` arguments are the array itself."""
    if last in _OTHERS or (last == "where" and len(call.args) == 1):
        return Computed.OTHER
    if last not in _REDUCES:
        return Computed.ARRAY
    given = () if last in _BY_NAME else arguments.plain(call)[before : before + 1]
    axis = next(iter([*filter(None, [arguments.named(call, "dim", "axis")]), *given]), None)
    if axis is None:
        return Computed.OTHER if arguments.has_stars(call) else Computed.NUMBER
    return Computed.OTHER if constant_key(axis) == 0 else Computed.ARRAY  # along the rows: a summary of all of them


def gives_places(node: cst.CSTNode | None) -> bool:
    """Whether an array has the places of samples, one number for each at most, and none of their data: ``np.arange(len(rows))``, ``np.where(rows > 0)[0]``."""
    if not isinstance(node, cst.Call):
        return False
    last = names.last_name(node.func)
    if last == "where":
        return len(node.args) == 1
    first = node.args[0].value if node.args else None
    counts = isinstance(first, cst.Call) and names.last_name(first.func) == "len"
    between = last == "arange" and len(arguments.positionals(node)) > 1
    return last in _PLACES or (last in _COUNTS and (counts or between))
