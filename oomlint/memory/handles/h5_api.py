"""What the parts of h5py hand on: which attribute, subscript, method or function gives another object of the file, and which gives an array or a scalar."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import COLLECTIONS, ITERATORS
from oomlint.model import names
from oomlint.model.values import ClassRef, Const, Each, External, ExternalCall, SourceExpression

if TYPE_CHECKING:
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.values import Frame, Value
    from oomlint.syntax.walk import Walk


class Grip(Enum):
    """What an expression has hold of. Each of them keeps the file open."""

    FILE = "the file"
    OBJECT = "a group or a dataset"
    VIEW = "the view that goes through groups and datasets"
    ITEMS = "the view that goes through names with their groups and datasets"
    PAIR = "a name with its group or dataset"
    KEYS = "a view of names or attributes"
    NODE = "a node of PyTables, whose attributes are nodes too"
    MAYBE = "a dataset, or what was read from one"


# What h5py objects have (h5py 3.16), by what it gives.
_PLAIN: Final = frozenset(
    "shape dtype size ndim name chunks compression compression_opts nbytes maxshape fillvalue scaleoffset fletcher32 shuffle filename mode swmr_mode driver "
    "libver userblock_size is_virtual is_scale external virtual_sources in_memory filter_names value ref regionref len read_direct write_direct resize flush "
    "visit visititems visit_links visititems_links clear copy move update modify create build_virtual_dataset refresh make_scale meta_block_size track_order "
    "filter_ids".split(),
)
_OBJECTS: Final = frozenset(
    "get create_dataset create_dataset_like create_group create_virtual_dataset require_dataset require_group pop popitem setdefault parent id dims astype "
    "asstr fields iter_chunks get_id".split(),
)
_SLICERS: Final = frozenset("int len randint arange where argsort unique nonzero slice sort argmax argmin randrange flatnonzero linspace".split())
_WITHOUT: Final = frozenset(
    "len int float str bool repr isinstance type hasattr print sum any all id round abs format bytes min max vars dir callable issubclass".split(),
)


def after_attribute(node: cst.Attribute, grip: Grip, walk: Walk) -> Grip | None:
    """What ``x.name``, or a call of it, has hold of; ``None`` for arrays, scalars and names."""
    name = node.attr.value
    called = isinstance(walk.parents.get(node), cst.Call)
    if grip in {Grip.KEYS, Grip.VIEW, Grip.ITEMS, Grip.PAIR}:
        return grip if grip is Grip.KEYS and name in {"items", "values"} else None
    if grip is Grip.NODE:
        return None if called or name in _PLAIN or name == "nrows" else grip
    if name in {"root", "get_node"}:
        return Grip.NODE
    if name == "file":
        return Grip.FILE
    if name == "attrs" or (name == "keys" and called):
        return Grip.KEYS
    if name in {"values", "items"} and called:
        return Grip.MAYBE if grip is Grip.MAYBE else Grip.VIEW if name == "values" else Grip.ITEMS
    if name in _PLAIN:
        return None
    if name in _OBJECTS:
        return Grip.MAYBE if grip is Grip.MAYBE else Grip.OBJECT
    # No h5py object has it, so this is an array; of a file or group it would be an error.
    return None


def after_subscript(node: cst.Subscript, grip: Grip, frame: Frame, evaluator: Evaluator) -> Grip | None:
    """What ``x[...]`` has hold of."""
    if grip is Grip.FILE:
        return Grip.OBJECT
    if grip is Grip.KEYS:
        return None
    if grip in {Grip.VIEW, Grip.ITEMS, Grip.PAIR}:
        return Grip.OBJECT
    if len(node.slice) != 1:
        return None
    index = node.slice[0].slice
    if not isinstance(index, cst.Index) or _reads(index.value, frame, evaluator):
        return None
    if grip in {Grip.OBJECT, Grip.NODE} and _is_text(index.value, frame, evaluator):
        return grip
    return Grip.MAYBE


def iterated(grip: Grip) -> Grip | None:
    """What a loop over it gives: names of a group, rows of a dataset, objects of ``values()``."""
    return Grip.PAIR if grip is Grip.ITEMS else Grip.OBJECT if grip is Grip.VIEW else None


def after_call(name: str, grip: Grip) -> Grip | None:
    """What a function of a library gives for it; ``None`` for arrays, scalars and lists of names."""
    last = name.rpartition(".")[2]
    if not name.startswith("builtins."):
        return grip if last in {"tqdm", "trange", "islice", "chain"} else None
    if last in _WITHOUT:
        return iterated(grip) if last in {"min", "max"} else None
    if last in COLLECTIONS:
        return grip if grip in {Grip.VIEW, Grip.ITEMS} else None
    if last == "dict":
        return None if grip is Grip.KEYS else Grip.OBJECT
    if last in ITERATORS:
        return grip
    if last == "next":
        return iterated(grip)
    return Grip.OBJECT if last == "getattr" else None


def _is_text(node: cst.BaseExpression, frame: Frame, evaluator: Evaluator) -> bool:
    if isinstance(node, cst.SimpleString | cst.FormattedString | cst.ConcatenatedString):
        return True
    if isinstance(node, cst.Call):
        return names.last_name(node.func) in {"str", "format", "join", "zfill"}
    if isinstance(node, cst.BinaryOperation):
        return _is_text(node.left, frame, evaluator) or (isinstance(node.operator, cst.Add) and _is_text(node.right, frame, evaluator))
    found = evaluator.values(node, frame)[:6]
    return bool(found) and all(isinstance(a.value, Const) and isinstance(a.value.value, str) for a in found)


def _reads(node: cst.BaseExpression, frame: Frame, evaluator: Evaluator) -> bool:
    """Whether an index can only read from a dataset: groups take names alone."""
    if isinstance(node, cst.Integer | cst.Ellipsis | cst.Tuple | cst.List | cst.Comparison | cst.UnaryOperation | cst.ListComp):
        return True
    if isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, cst.Add):
            return _reads(node.left, frame, evaluator) or _reads(node.right, frame, evaluator)
        return not (isinstance(node.operator, cst.Modulo | cst.Divide) and not _reads(node.left, frame, evaluator))
    if isinstance(node, cst.Call):
        return names.last_name(node.func) in _SLICERS
    if isinstance(node, cst.Name) and _numbers_samples(node.value, frame, evaluator):
        return True
    found = evaluator.values(node, frame)[:6]
    return bool(found) and all(_number(a.value) for a in found)


def _numbers_samples(name: str, frame: Frame, evaluator: Evaluator) -> bool:
    """Whether a name is what a dataset of torch is asked for: a sampler gives numbers."""
    scope = frame.scope
    if scope.name != "__getitem__" or not names.is_method(scope) or scope.parent is None or scope.sets(name):
        return False
    asked = [param.name.value for param in names.parameters(scope)[1:2]]
    bases = evaluator.lineage(ClassRef(frame.module, scope.parent)) if asked == [name] else []
    return any(isinstance(base, External) and base.name.startswith("torch") for base in bases)


def _number(value: Value) -> bool:
    if isinstance(value, Const):
        return isinstance(value.value, int)
    if isinstance(value, ExternalCall):
        return value.name.rpartition(".")[2] in _SLICERS
    if isinstance(value, Each) and isinstance(value.iterable, cst.Call):
        last = names.last_name(value.iterable.func)
        return (last in {"range", "trange"} and not value.index) or (last == "enumerate" and value.index == (0,))
    return (
        isinstance(value, SourceExpression)
        and isinstance(value.node, cst.BinaryOperation)
        and isinstance(value.node.operator, cst.Subtract | cst.Multiply | cst.FloorDivide)
    )
