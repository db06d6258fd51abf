"""A list that a dataset keeps becomes one array or one tensor: what reads of it are rewritten, so that they give what they gave."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import ALLOCATORS
from oomlint.finding import Edit, Fix
from oomlint.memory.fixes.class_family import Family
from oomlint.memory.fixes.rewrites import wrap
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.model.readings import FOUND, finder
from oomlint.model.values import Const
from oomlint.syntax.edits import Text
from oomlint.syntax.nodes import descend, is_attribute_of, names_in, uses_name

if TYPE_CHECKING:
    from oomlint.memory.datasets.dataset_classes import Holding
    from oomlint.memory.datasets.worker_copies import CopyCase
    from oomlint.model.project import Module

_GOES_THROUGH: Final = frozenset({"enumerate", "zip", "iter", "sum", "max", "min", "map"})
_BUILDS: Final = frozenset({"__init__", "__post_init__"})
_SHAPED: Final = ALLOCATORS | {"rand", "randn", "randint"}


class ListForm(Struct, frozen=True):
    """What becomes of a list, and how its parts are made again: before and after the code of a read; ``None`` where a read is the same."""

    package: str
    function: str
    message: str
    element: tuple[str, str] | None
    several: tuple[str, str]
    goes_through: bool  # a loop over it gives the same elements


NUMBERS: Final = ListForm("numpy", "asarray", "store one array instead of a list, which workers share", ("", ".item()"), ("", ".tolist()"), goes_through=False)
TENSORS: Final = ListForm("torch", "stack", "stack them into one tensor", None, ("list(", ")"), goes_through=True)


def at_once(holding: Holding, value: cst.BaseExpression, form: ListForm) -> Fix | None:
    """Keep the list as one array or tensor; ``None`` where some use of it is not proven to come out the same."""
    effect, module = holding.effect, holding.module
    method = module.walk.scope_at(effect.statement) if effect is not None else None
    owner = method.parent if method is not None else None
    if effect is None or owner is None or not isinstance(owner.node, cst.ClassDef) or holding.outside:
        return None
    family = Family(module, owner)
    if not family.can_change() or not family.settles(holding.name, effect) or _read_outside(family, holding.name):
        return None
    edits: list[Edit] = []
    for cls in family.members:
        own = {this for scope in cls.scope.children if (this := names.self_name(scope)) is not None}
        for node in descend(cls.scope.node):
            if not isinstance(node, cst.Attribute) or node.attr.value != holding.name:
                continue
            if not isinstance(node.value, cst.Name) or node.value.value not in own:
                return None
            if isinstance(cls.module.walk.parents.get(node), cst.AssignTarget | cst.AnnAssign):
                continue
            fresh = _rewritten(cls.module, node, form)
            if fresh is None or (fresh and cls.module is not module):
                return None
            edits += fresh
    wrapped = wrap(module, value, form.package, form.function, form.message)
    return Fix(wrapped.safety, wrapped.message, (*wrapped.edits, *edits)) if wrapped is not None else None


def _read_outside(family: Family, name: str) -> bool:
    """Whether any code but the class and its kin mentions such an attribute."""
    inside = {cls.scope.node for cls in family.members}
    homes = {cls.module.path: cls.module for cls in family.members}
    for path in family.project.search(_has_attribute, (name,), family.module.path, name):
        module = homes.get(path) or family.project.find(path)
        if module is None:
            return True
        for node in module.walk.root.nodes():
            named = (isinstance(node, cst.Attribute) and node.attr.value == name) or (isinstance(node, cst.SimpleString) and node.evaluated_value == name)
            if named and not any(here in inside for here in module.walk.ancestors(node)):
                called = module.walk.parents.get(node)
                if isinstance(called, cst.Call) and called.func is node:
                    continue  # no list
                other = module.walk.scope_at(node)
                if not is_attribute_of(node, names.self_name(other)):
                    return True  # not an object of another class
    return False


def _rewritten(module: Module, node: cst.Attribute, form: ListForm) -> list[Edit] | None:
    """The edits that make a read give what it gave; ``None`` where there are none."""
    holder = module.walk.parents.get(node)
    if isinstance(holder, cst.Subscript) and holder.value is node and len(holder.slice) == 1:
        if isinstance(holder.slice[0].slice, cst.Slice):
            step = holder.slice[0].slice.step
            return _around(module, holder, form.several) if step is None or isinstance(step, cst.Integer) else None
        return [] if form.element is None else _around(module, holder, form.element)
    call = module.walk.parents.get(holder) if isinstance(holder, cst.Arg) else None
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value == "len" and "len" not in module.root.effects:
        return []
    goes = isinstance(holder, cst.For | cst.CompFor) and holder.iter is node
    goes = goes or (isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value in _GOES_THROUGH and form.goes_through)
    if goes and form.goes_through:
        return []
    # Where it is read once, a list can be made of it again.
    return _around(module, node, form.several) if module.walk.scope_at(node).name in _BUILDS else None


def _around(module: Module, node: cst.CSTNode, code: tuple[str, str]) -> list[Edit]:
    text = Text(module.tree)
    start, end = text.span(node)
    return [*([text.replaced(start, start, code[0])] if code[0] else []), text.replaced(end, end, code[1])]


# -- tensors -------------------------------------------------------------------------------------------------------------------------------------------------


def of_one_shape(case: CopyCase, value: cst.ListComp) -> bool:
    """Whether the tensors of a list have one shape: they are made so, or what is made of them now would not be collated."""
    if _made_alike(value):
        return True
    loader = case.loader
    if loader.stars or any(loader.explicit(name) is not None for name in ("collate_fn", "batch_sampler")):
        return False
    size = loader.explicit("batch_size")
    if size is None:
        return False
    evaluator = evaluator_of(loader.module.project)
    frame = evaluator.calls.plain_frame(loader.module, loader.module.walk.scope_at(size.value))
    sizes = [alt.value for alt in evaluator.values(size.value, frame)]
    if not sizes or not all(isinstance(one, Const) and isinstance(one.value, int) and one.value > 1 for one in sizes):
        return False
    return _given_whole(case.holding)


def _made_alike(value: cst.ListComp) -> bool:
    """Whether the size of each tensor is written out, and depends on nothing that changes."""
    if not isinstance(value.elt, cst.Call) or names.last_name(value.elt.func) not in _SHAPED or not names.dotted(value.elt.func).startswith("torch."):
        return False
    bound = {name for part in descend(value.for_in) if isinstance(part, cst.CompFor) for name in names_in(part.target)}
    steady = cst.Integer | cst.Name | cst.Attribute | cst.Tuple | cst.Element | cst.Arg | cst.UnaryOperation
    return all(isinstance(node, steady) for arg in value.elt.args for node in descend(arg)) and not uses_name(value.elt, bound)


def _given_whole(holding: Holding) -> bool:
    """Whether ``__getitem__`` gives an element as it is, alone or in a tuple or dictionary."""
    module, effect = holding.module, holding.effect
    owner = module.walk.scope_at(effect.statement).parent if effect is not None else None
    item = owner.child("__getitem__") if owner is not None else None
    if item is None:
        return False
    given = [part for one in item.returns if one.value is not None for part in _parts(one.value)]
    kept = {name for name, effects in item.effects.items() if len(effects) == 1 and not effects[0].path and _is_element(effects[0].value, holding.name)}
    return bool(item.returns) and any(_is_element(part, holding.name) or (isinstance(part, cst.Name) and part.value in kept) for part in given)


def _parts(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    if isinstance(node, cst.Tuple | cst.List | cst.Dict):
        return [one.value for one in node.elements]
    return [node]


def _is_element(node: cst.BaseExpression | None, name: str) -> bool:
    return (
        isinstance(node, cst.Subscript)
        and isinstance(node.value, cst.Attribute)
        and node.value.attr.value == name
        and len(node.slice) == 1
        and isinstance(node.slice[0].slice, cst.Index)
    )


@finder
def _has_attribute(path: str, data: bytes, name: str) -> str:
    """Whether the text of a file has such an attribute, or its name in quotes."""
    del path
    return FOUND if re.search(rb"\.\s*" + re.escape(name.encode()) + rb"\b|[\"']" + re.escape(name.encode()) + rb"[\"']", data) else ""
