"""An array that a dataset keeps becomes a tensor behind a property: it is moved to shared memory once, and whoever reads it still gets an array.

Only what is kept is another: the property gives an array over the memory of the tensor, of the same type, shape and strides, so that no use of the attribute,
here, in a subclass or elsewhere, has to be looked into. What has to be proven is that a tensor can be made of the array, and that nobody writes to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import FACTS
from oomlint.finding import Fix, Safety
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.fixes.class_family import Family
from oomlint.memory.fixes.notebook_imports import is_bound_before
from oomlint.memory.fixes.property_writer import before, end_of, private, shadowed
from oomlint.memory.fixes.rewrites import import_edit, imported_as
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.model import arguments, names
from oomlint.model.values import ExternalCall, Frame
from oomlint.patterns import pattern
from oomlint.syntax.edits import Text
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.finding import Edit
    from oomlint.memory.datasets.dataset_classes import Holding
    from oomlint.model.values import Value
    from oomlint.syntax.scopes import Effect, Scope

# Their elements are numbers, where no type is asked for.
_NUMBERS: Final = frozenset("zeros ones empty arange linspace logspace eye fromfile loadtxt load zeros_like ones_like empty_like".split())
# They take the type of what they are given.
_OF_OTHERS: Final = frozenset(
    "array asarray ascontiguousarray stack concatenate vstack hstack column_stack dstack transpose reshape repeat tile swapaxes moveaxis expand_dims squeeze "
    "pad take clip where full full_like".split()
)
_NUMERIC: Final = pattern(
    r"^(?:bool_?|u?int(?:8|16|32|64)|u?int|byte|half|single|double|float(?:16|32|64)?|complex(?:64|128)|[<=|]?[biufc][1248]|[bBhHiIlLfd?])$",
)
_TEXTS: Final = pattern(r"(?i)name|text|caption|sentence|word|tag|key|string|question|answer|url|path|title|transcript")  # may be an array of strings
_SAME_ELEMENTS: Final = frozenset({"copy", "reshape", "ravel", "flatten", "squeeze", "transpose", "swapaxes"})
_TO_TENSOR: Final = frozenset({"torch.from_numpy", "torch.as_tensor", "torch.tensor"})
_ARITHMETIC: Final = cst.Divide | cst.Multiply | cst.Subtract | cst.Power
# A negative stride, memory that must not be written, a mask: no tensor keeps them.
_ODD: Final = pattern(r"\[::-|,\s*::-|\b(?:flip|fliplr|flipud|rot90|frombuffer|broadcast_to|to_numpy|allow_pickle|ma|matrix|recarray|rec|structured_to\w+)\b")
# What writes to the array that it is called on, or that it is given first.
_WRITERS: Final = frozenset("sort fill put partition setflags byteswap resize itemset shuffle copyto place putmask fill_diagonal".split())
_COPIES: Final = frozenset("copy deepcopy clone astype array tensor int len mean std sum min max item tolist stack concatenate".split())


def shared(holdings: Sequence[Holding]) -> Fix | None:
    """Keep tensors, give arrays: for all arrays of a class, or for none. ``None`` where no tensor may be made of one, or where somebody may write to it."""
    module = holdings[0].module
    edits: list[Edit] = []
    groups: dict[Scope, list[str]] = {}
    family: Family | None = None
    for holding in holdings:
        effect = holding.effect
        if effect is None or effect.kind != "assign" or effect.index or holding.module is not module or holding.outside:
            return None
        method = module.walk.scope_at(effect.statement)
        owner = method.parent
        if owner is None or not isinstance(owner.node, cst.ClassDef) or method.name == "__getitem__" or (family is not None and family.owner is not owner):
            return None
        family = family or Family(module, owner)
        swapped = _swapped(family, holding, method, effect)
        if swapped is None:
            return None
        edits += swapped
        groups.setdefault(method, []).append(holding.name)
    if family is None or not family.can_change():
        return None
    text = Text(module.tree)
    unit = module.tree.module.default_indent
    for method, attributes in groups.items():
        outer = before(text, method.node)
        if outer.strip():
            return None
        members = [f"\n\n{outer}@property\n{outer}def {name}(self):\n{outer}{unit}return self.{private(name)}.numpy()" for name in attributes]
        end = end_of(text, method, outer)
        edits.append(text.replaced(end, end, "".join(members)))
    if imported_as(module, "torch") is None:
        edits.append(import_edit(module, "import torch", family.owner.node))
    said = " and ".join(f"`{holding.name}`" for holding in holdings)
    return Fix(Safety.UNSAFE, f"store {said} as a tensor, which moves to shared memory once, and return it as an array", tuple(edits))


def _swapped(family: Family, holding: Holding, method: Scope, effect: Effect) -> list[Edit] | None:
    """The edits that put a tensor under another name in the place of the array."""
    module, statement, value, this = family.module, effect.statement, effect.value, names.self_name(method)
    kept = private(holding.name)
    match statement:
        case (
            cst.Assign(targets=[cst.AssignTarget(target=cst.Attribute(value=cst.Name(value=own)))])
            | cst.AnnAssign(target=cst.Attribute(value=cst.Name(value=own)))
        ) if own == this:
            pass
        case _:
            return None
    if not isinstance(value, cst.Call | cst.Subscript) or statement.value is not value or module.walk.scope_at(value) is not method:
        return None
    if (
        not family.settles(holding.name, effect)
        or not family.free([kept])
        or _written(family, holding.name)
        or not _is_numbers(family, holding, method, effect)
    ):
        return None
    alias = imported_as(module, "torch")
    if shadowed(method, alias or "torch") or (alias is None and "torch" in module.root.effects) or (alias and not is_bound_before(module, alias, value)):
        return None
    text = Text(module.tree)
    start, end = text.span(statement)[0], text.span(value)[0]
    if "#" in text.text[start:end] or "(" in text.text[start:end]:
        return None
    return [text.replaced(start, end, f"{this}.{kept} = {alias or 'torch'}.from_numpy("), text.replaced(stop := text.span(value)[1], stop, ")")]


# -- whether a tensor can be made of it ----------------------------------------------------------------------------------------------------------------------


def _is_numbers(family: Family, holding: Holding, method: Scope, effect: Effect) -> bool:
    """Whether the value is proven to be a plain array of numbers, whichever way it comes."""
    assert effect.value is not None  # noqa: S101 - the caller looked
    evaluator = family.evaluator
    by_use = _becomes_numbers(family, holding.name)
    frames = list(evaluator.calls.frames(family.module, method)) or [Frame(family.module, method)]
    return all(_numbers(family, effect.value, frame, holding.name, by_use=by_use) for frame in frames)


def _numbers(family: Family, node: cst.BaseExpression, frame: Frame, name: str, *, by_use: bool) -> bool:
    code = frame.module.code(node)
    if _ODD.search(code):
        return False
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        word = node.func.attr.value
        if word == "astype":
            is_array = datasets_of(family.project).contents.of(node, frame).kind is PayloadKind.ARRAY
            return is_array and bool(node.args) and _is_type(node.args[0].value)
        if word in _SAME_ELEMENTS and imported_as(frame.module, "numpy") != names.dotted(node.func.value):
            return _numbers(family, node.func.value, frame, name, by_use=by_use)
    if isinstance(node, cst.Subscript) and _is_part(node):
        return _numbers(family, node.value, frame, name, by_use=by_use)
    found = [alt.value for alt in family.evaluator.values(node, frame)]
    return bool(found) and all(_made(family, value, node, name, by_use=by_use) for value in found)


def _is_part(node: cst.Subscript) -> bool:
    """Whether a subscript gives an array: a slice of one, or one of those in an archive."""
    parts = [element.slice for element in node.slice]
    return any(isinstance(part, cst.Slice) for part in parts) or (
        len(parts) == 1 and isinstance(parts[0], cst.Index) and isinstance(parts[0].value, cst.SimpleString)
    )


def _made(family: Family, value: Value, asked: cst.BaseExpression, name: str, *, by_use: bool) -> bool:
    """Whether a value is what NumPy makes, of numbers."""
    if not isinstance(value, ExternalCall) or not value.name.startswith("numpy."):
        # A method of what a function of the project has given, and the like.
        node, frame = getattr(value, "node", None), getattr(value, "frame", None)
        return isinstance(node, cst.Call) and node is not asked and isinstance(frame, Frame) and _numbers(family, node, frame, name, by_use=by_use)
    call, last = value.call, value.name.rpartition(".")[2]
    if _ODD.search(value.frame.module.code(call)):
        return False
    asked_for = arguments.named(call, "dtype")
    if asked_for is not None:
        return _is_type(asked_for) and last != "memmap"
    if arguments.has_stars(call):
        return False
    if last == "load":
        return by_use or _TEXTS.search(name) is None
    if value.name.startswith("numpy.random."):
        return last not in {"choice", "permutation", "default_rng", "RandomState", "Generator"} or by_use
    if last in {"zeros", "ones", "empty"} and len(call.args) > 1:
        return _is_type(call.args[1].value)
    return last in _NUMBERS or (last in _OF_OTHERS and by_use)


def _is_type(node: cst.BaseExpression) -> bool:
    word = node.evaluated_value if isinstance(node, cst.SimpleString) else names.last_name(node)
    return isinstance(word, str) and _NUMERIC.match(word) is not None


def _becomes_numbers(family: Family, name: str) -> bool:
    """Whether the class makes a tensor of the attribute or of its rows, or computes with them."""
    for cls in family.members:
        parents = cls.module.walk.parents
        for node in _reads(cls.scope, name):
            part: cst.CSTNode = node
            here = parents.get(part)
            while isinstance(here, cst.Subscript) and here.value is part:
                part, here = here, parents.get(here)
            if isinstance(here, cst.BinaryOperation) and isinstance(here.operator, _ARITHMETIC):
                return True
            call = parents.get(here) if isinstance(here, cst.Arg) else None
            if isinstance(call, cst.Call) and call.args[0] is here:
                frame = family.evaluator.calls.plain_frame(cls.module, cls.module.walk.scope_at(call))
                if any(getattr(alt.value, "name", "") in _TO_TENSOR for alt in family.evaluator.values(call.func, frame)):
                    return True
    return False


def _reads(scope: Scope, name: str) -> Iterator[cst.Attribute]:
    for node in descend(scope.node):
        if isinstance(node, cst.Attribute) and node.attr.value == name:
            yield node


# -- whether somebody writes to it ---------------------------------------------------------------------------------------------------------------------------


def _written(family: Family, name: str) -> bool:
    """Whether a method writes to what it has read of the attribute: all workers, and the main process, would see that."""
    return any(_writes(scope, name) for cls in family.members for scope in _functions(cls.scope))


def _functions(scope: Scope) -> Iterator[Scope]:
    for child in scope.children:
        if isinstance(child.node, cst.FunctionDef):
            yield child
        yield from _functions(child)


def _writes(scope: Scope, name: str) -> bool:
    views: set[str] = set()
    for _ in range(3):
        for root, effects in scope.effects.items():
            if any(not one.path and one.value is not None and one.kind in {"assign", "for", "augment"} and _view(one.value, name, views) for one in effects):
                views.add(root)
    for root, effects in scope.effects.items():
        if root in views and any(one.path or one.kind == "augment" for one in effects if one.kind in {"assign", "augment", "delete"}):
            return True
    for node in scope.nodes():
        if isinstance(node, cst.AugAssign) and _view(node.target, name, views):
            return True
        if not isinstance(node, cst.Call):
            continue
        word = names.last_name(node.func)
        changes = word in _WRITERS or (word.endswith("_") and not word.endswith("__"))
        if changes and isinstance(node.func, cst.Attribute) and _view(node.func.value, name, views):
            return True
        if changes and node.args and _view(node.args[0].value, name, views):
            return True
        if any(arg.keyword is not None and arg.keyword.value == "out" and _view(arg.value, name, views) for arg in node.args):
            return True
    return False


def _view(node: cst.CSTNode, name: str, views: set[str]) -> bool:
    """Whether an expression may give memory of the attribute: not a copy, not what is computed of it."""
    match node:
        case cst.Name():
            return node.value in views
        case cst.Attribute():
            return node.attr.value == name or (node.attr.value not in FACTS and _view(node.value, name, views))
        case cst.Subscript():
            return _view(node.value, name, views)
        case cst.Call():
            if names.last_name(node.func) in _COPIES:
                return False
            return (isinstance(node.func, cst.Attribute) and _view(node.func.value, name, views)) or any(_view(arg.value, name, views) for arg in node.args)
        case cst.IfExp():
            return _view(node.body, name, views) or _view(node.orelse, name, views)
        case cst.Tuple() | cst.List():
            return any(_view(one.value, name, views) for one in node.elements)
        case _:
            return False
