"""How a dataset's ``__getitem__`` reads an attribute: an element for each sample, an element whose parts are arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import libcst as cst

from oomlint.api_names import OF_ARRAYS, TENSOR_TYPES
from oomlint.memory.datasets.sample_body import item_of
from oomlint.model import arguments, names
from oomlint.model.arguments import parameter_of
from oomlint.model.values import Const, External, FunctionRef, Instance
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key, descend, is_attribute_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.datasets.dataset_classes import Dataset
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.values import Value

_TAKE_ARRAYS: Final = ("numpy.", "torch.from_numpy", "torch.as_tensor", "torch.tensor")
_ITERATE: Final = frozenset("len list tuple set dict sorted enumerate zip sum max min iter next map filter any all array asarray tensor sample choice".split())
_READ: Final = frozenset("operator itertools functools collections copy heapq bisect".split())  # modules whose functions read containers
_DEEPEST: Final = 3


def one_a_sample(dataset: Dataset, attribute: str, evaluator: Evaluator) -> bool:
    """Whether an attribute has an element for each sample: ``len(dataset)`` is its length, or the index of the sample is that of the element."""
    instance = dataset.instance
    if instance is None:
        return True  # the container itself is what the loader reads
    length = evaluator.method(instance, "__len__")
    if length is not None:
        this = names.self_name(length.scope)
        for node in length.scope.nodes():
            if isinstance(node, cst.Call) and names.last_name(node.func) == "len" and node.args and is_attribute_named(node.args[0].value, this, attribute):
                return True
    return takes_index(dataset, attribute, evaluator)


def has_arrays(dataset: Dataset, attribute: str, evaluator: Evaluator) -> bool:
    """Whether parts of an attribute's elements are used as arrays where a sample is read."""
    instance = dataset.instance
    return instance is not None and any(_uses_arrays(way, attribute, evaluator) for way in sample_ways(instance, evaluator))


def is_numpy(dataset: Dataset, attribute: str, evaluator: Evaluator) -> bool:
    """Whether the elements of an attribute go into ``torch.from_numpy`` as they are, which takes nothing but arrays."""
    if dataset.instance is None:
        return False
    for way in sample_ways(dataset.instance, evaluator):
        for call in way.function.scope.calls:
            if names.last_name(call.func) == "from_numpy" and call.args and _is_element(call.args[0].value, way.this, attribute):
                return True
    return False


class SampleWay(NamedTuple):
    """A method that runs for a sample, and what holds the sample's index there."""

    function: FunctionRef
    given: frozenset[str]

    @property
    def this(self) -> str | None:
        """What the object is called."""
        return names.self_name(self.function.scope)


def sample_ways(instance: Instance, evaluator: Evaluator) -> Iterator[SampleWay]:
    """``__getitem__``, and the methods of the object that it calls."""
    item = item_of(instance, evaluator)
    queue = [SampleWay(item, frozenset(_parameters(item)[:1]))] if item is not None else []
    seen = set()
    for _ in range(_DEEPEST):
        further: list[SampleWay] = []
        for way in queue:
            if way.function.scope in seen:
                continue
            seen.add(way.function.scope)
            yield way
            index = same_numbers(way)
            for call in way.function.scope.calls:
                for method in evaluator.own_methods(call, way.function, instance):
                    numbers = (arguments.parameter_of(method, call, arg) for arg in call.args if is_number(arg.value, index))
                    further.append(SampleWay(method, frozenset(name for name in numbers if name is not None)))
        queue = further


def _parameters(function: FunctionRef) -> list[str]:
    return names.parameter_names(function.scope)[1 if names.is_method(function.scope) else 0 :]


def same_numbers(way: SampleWay) -> set[str]:
    """Names of the sample's index, and of what is reckoned from it."""
    known = set(way.given)
    for node in way.function.scope.nodes():
        if isinstance(node, cst.Assign) and isinstance(node.targets[0].target, cst.Name) and is_number(node.value, known):
            known.add(node.targets[0].target.value)
    return known


def is_number(node: cst.BaseExpression, known: set[str]) -> bool:
    """Whether an expression is the sample's index, or is reckoned from it."""
    if isinstance(node, cst.BinaryOperation):
        return is_number(node.left, known) or is_number(node.right, known)
    if isinstance(node, cst.Call):
        return names.last_name(node.func) in {"int", "item", "tolist"} and any(is_number(arg.value, known) for arg in node.args)
    return isinstance(node, cst.Name) and node.value in known


def is_attribute_named(node: cst.BaseExpression, this: str | None, attribute: str) -> bool:
    """Whether an expression is that attribute of the object."""
    return is_attribute_of(node, this) and node.attr.value == attribute


def _takes_index(way: SampleWay, attribute: str) -> bool:
    index = same_numbers(way)
    for node in way.function.scope.nodes():
        if isinstance(node, cst.Subscript) and is_attribute_named(node.value, way.this, attribute):
            part = node.slice[0].slice
            if isinstance(part, cst.Index) and is_number(part.value, index):
                return True
        if isinstance(node, cst.Call) and _asks(node, way.this, attribute) and any(is_number(arg.value, index) for arg in node.args):
            return True
    return False


def _asks(call: cst.Call, this: str | None, attribute: str) -> bool:
    return isinstance(call.func, cst.Attribute) and call.func.attr.value == "__getitem__" and is_attribute_named(call.func.value, this, attribute)


def takes_index(dataset: Dataset, attribute: str, evaluator: Evaluator) -> bool:
    """Whether the index of a sample is that of an attribute's element."""
    return dataset.instance is not None and any(_takes_index(way, attribute) for way in sample_ways(dataset.instance, evaluator))


def is_room(dataset: Dataset, attribute: str, evaluator: Evaluator) -> bool:
    """Whether an attribute is room that each sample is put together in: code that reads one writes into it, at other places than the sample's own."""
    instance = dataset.instance
    if instance is None:
        return False
    for way in sample_ways(instance, evaluator):
        index = same_numbers(way)
        for node in way.function.scope.nodes():
            target = node.target if isinstance(node, cst.AssignTarget) else None
            if isinstance(target, cst.Subscript) and is_attribute_named(target.value, way.this, attribute):
                part = target.slice[0].slice
                return not (isinstance(part, cst.Index) and is_number(part.value, index))
    return False


def is_looked_into(dataset: Dataset, attribute: str, evaluator: Evaluator) -> bool:
    """Whether code that reads a sample may take an element out of an attribute: a number of the settings is only passed on."""
    instance = dataset.instance
    if instance is None:
        return True
    for way in sample_ways(instance, evaluator):
        for node in way.function.scope.nodes():
            if isinstance(node, cst.Attribute) and is_attribute_named(node, way.this, attribute):
                parts = _unpacked(node, way.function)
                if _are_indexed(parts, way.function) if parts else _takes_out(node, way.function, instance, evaluator, 0):
                    return True
    return False


def holds_containers(dataset: Dataset, attribute: str, evaluator: Evaluator) -> bool:
    """Whether code that reads a sample looks into an element of an attribute: goes through it, or takes a part out of it."""
    instance = dataset.instance
    return instance is not None and any(
        isinstance(node, cst.Subscript) and is_attribute_named(node.value, way.this, attribute) and _takes_out(node, way.function, instance, evaluator, 0)
        for way in sample_ways(instance, evaluator)
        for node in way.function.scope.nodes()
    )


def gives_records(instance: Instance, attribute: str, evaluator: Evaluator) -> bool:
    """Whether a sample is made of a record in an attribute: one that has the sample's own index, or a field of which is a sequence."""
    for way in sample_ways(instance, evaluator):
        index = same_numbers(way)
        named = {
            node.targets[0].target.value: node.value
            for node in way.function.scope.nodes()
            if isinstance(node, cst.Assign) and isinstance(node.targets[0].target, cst.Name) and isinstance(node.value, cst.Subscript)
        }
        for node in way.function.scope.nodes():
            if not isinstance(node, cst.Subscript) or not _is_field(node, way.function, evaluator):
                continue
            record = named.get(node.value.value) if isinstance(node.value, cst.Name) else node.value
            if isinstance(record, cst.Subscript) and is_attribute_named(record.value, way.this, attribute):
                key = record.slice[0].slice
                chosen = key.value if isinstance(key, cst.Index) else None
                if chosen is None or _is_text(chosen, way.function, evaluator):
                    continue
                if is_number(chosen, index) or _is_sequence(node, way.function):
                    return True
    return False


def _is_field(node: cst.Subscript, function: FunctionRef, evaluator: Evaluator) -> bool:
    part = node.slice[0].slice
    return isinstance(part, cst.Index) and _is_text(part.value, function, evaluator)


def _is_text(node: cst.BaseExpression, function: FunctionRef, evaluator: Evaluator) -> bool:
    """Whether an index is a text that is written down, here or where its name is set."""
    if not isinstance(node, cst.Name | cst.Attribute):
        return isinstance(constant_key(node), str)
    found = evaluator.values(node, evaluator.calls.plain_frame(function.module, function.scope))[:1]
    return any(isinstance(alt.value, Const) and isinstance(alt.value.value, str) for alt in found)


def _is_sequence(node: cst.BaseExpression, function: FunctionRef) -> bool:
    """Whether a value has elements: one is taken by a number that is not written there, a loop goes through it, or a tensor is made of it alone."""
    parents = function.module.walk.parents
    above = parents.get(node)
    if isinstance(above, cst.Assign) and above.value is node and isinstance(above.targets[0].target, cst.Name):
        name = above.targets[0].target.value
        return any(not isinstance(parents.get(one), cst.Assign) and _is_sequence(one, function) for one in function.scope.named(name))
    if isinstance(above, cst.Subscript) and above.value is node:
        part = above.slice[0].slice
        return isinstance(part, cst.Slice) or (isinstance(part, cst.Index) and constant_key(part.value) is UNKNOWN_KEY)
    if isinstance(above, cst.For | cst.CompFor):
        return above.iter is node
    call = parents.get(above) if isinstance(above, cst.Arg) else None
    return isinstance(call, cst.Call) and len(call.args) == 1 and names.last_name(call.func) in TENSOR_TYPES  # a number would be how long it is to be


def _unpacked(node: cst.CSTNode, function: FunctionRef) -> set[str]:
    """The names that a value is unpacked into: ``mean, std = self.scale``."""
    above = function.module.walk.parents.get(node)
    target = above.targets[0].target if isinstance(above, cst.Assign) and above.value is node else None
    names_given = [one.value for one in target.elements] if isinstance(target, cst.Tuple | cst.List) else []
    return {one.value for one in names_given if isinstance(one, cst.Name)}


def _are_indexed(parts: set[str], function: FunctionRef) -> bool:
    """Whether an element is taken of one of the names, by a number or key that is not written there."""
    for node in function.scope.nodes():
        if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Name) and node.value.value in parts:
            index = node.slice[0].slice
            if not isinstance(index, cst.Index) or not isinstance(index.value, cst.BaseNumber | cst.BaseString):
                return True
    return False


def _takes_out(node: cst.CSTNode, function: FunctionRef, instance: Instance, evaluator: Evaluator, depth: int) -> bool:
    """Whether an expression is more than compared, reckoned with or handed to a library, here or in what it is given to."""
    walk = function.module.walk
    above = walk.parents.get(node)
    if isinstance(above, cst.ComparisonTarget):
        return isinstance(above.operator, cst.In | cst.NotIn)
    if isinstance(above, cst.BooleanOperation) or (isinstance(above, cst.IfExp) and node is not above.test):
        return _takes_out(above, function, instance, evaluator, depth)
    if isinstance(above, cst.Assign) and above.value is node and isinstance(above.targets[0].target, cst.Name) and depth <= _DEEPEST:
        return _is_taken_out_of(above.targets[0].target.value, function, instance, evaluator, depth)
    if isinstance(above, cst.Element | cst.DictElement):
        display = walk.parents[above]
        return isinstance(walk.parents.get(display), cst.Return) and function.scope.name != "__getitem__"  # who called may take it out again
    if isinstance(
        above,
        # As a key or an end of a slice, it says which element is taken of something else.
        cst.BinaryOperation | cst.Comparison | cst.UnaryOperation | cst.If | cst.IfExp | cst.FormattedStringExpression | cst.Index | cst.Slice,
    ):
        return False
    call = walk.parents.get(above) if isinstance(above, cst.Arg) else None
    if not isinstance(call, cst.Call) or not isinstance(above, cst.Arg) or depth > _DEEPEST:
        return True
    called = _called(call, function, instance, evaluator)
    if not called or not all(isinstance(one, FunctionRef) for one in called):
        return names.last_name(call.func) in _ITERATE or not all(isinstance(one, External) and one.name.partition(".")[0] not in _READ for one in called)
    for one in called:
        param = parameter_of(one, call, above) if isinstance(one, FunctionRef) else None
        if param is None or not isinstance(one, FunctionRef):
            return True
        if _is_taken_out_of(param, one, instance, evaluator, depth):
            return True
    return False


def _is_taken_out_of(name: str, function: FunctionRef, instance: Instance, evaluator: Evaluator, depth: int) -> bool:
    """Whether a function takes something out of what a name of it has."""
    parents = function.module.walk.parents
    reads = (node for node in function.scope.named(name) if not isinstance(parents.get(node), cst.Param | cst.AssignTarget))
    return any(_takes_out(read, function, instance, evaluator, depth + 1) for read in reads)


def _called(call: cst.Call, function: FunctionRef, instance: Instance, evaluator: Evaluator) -> list[Value]:
    own = evaluator.own_methods(call, function, instance)
    func = call.func
    if own or not is_attribute_of(func, names.self_name(function.scope)):
        return list(own) or [alt.value for alt in evaluator.values(func, evaluator.calls.plain_frame(function.module, function.scope))[:1]]
    held = (alt.value for alt in evaluator.attribute(instance, func.attr.value, ())[:3])
    return [called for one in held if isinstance(one, Instance) and (called := evaluator.method(one, "__call__")) is not None]


def _uses_arrays(way: SampleWay, attribute: str, evaluator: Evaluator) -> bool:
    module, scope = way.function.module, way.function.scope
    bound = [pair for node in scope.nodes() if isinstance(node, cst.Assign) for pair in _one_by_one(node)]
    parts = {name.value for target, value in bound if _is_element(value, way.this, attribute) for name in descend(target) if isinstance(name, cst.Name)}
    grown = True
    while grown:  # a part of a part: `image = volume[n]`
        grown = False
        for target, value in bound:
            if isinstance(target, cst.Name) and _is_part(value, parts):
                grown |= target.value not in parts
                parts.add(target.value)
    frame = evaluator.calls.plain_frame(module, scope)
    for node in scope.nodes():
        if isinstance(node, cst.Attribute) and node.attr.value in OF_ARRAYS and (_is_part(node.value, parts) or _is_element(node.value, way.this, attribute)):
            return True
        cut = isinstance(node, cst.Subscript) and len(node.slice) > 1 and any(isinstance(one.slice, cst.Slice) for one in node.slice)
        if cut and isinstance(node, cst.Subscript) and (_is_part(node.value, parts) or _is_element(node.value, way.this, attribute)):
            return True  # no list has axes
        if isinstance(node, cst.Call) and node.args and names.last_name(node.func) == "from_numpy" and _is_element(node.args[0].value, way.this, attribute):
            return True  # it takes nothing else
        if isinstance(node, cst.Call) and any(_is_part(arg.value, parts) for arg in node.args):
            for alt in evaluator.values(node.func, frame)[:2]:
                if isinstance(alt.value, External) and names.canonical(alt.value.name).startswith(_TAKE_ARRAYS):
                    return True
    return False


def _is_element(node: cst.BaseExpression, this: str | None, attribute: str) -> bool:
    while isinstance(node, cst.Subscript):
        if is_attribute_named(node.value, this, attribute):
            return True
        node = node.value
    return False


def _one_by_one(node: cst.Assign) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """What an assignment sets to what; of a tuple that takes the elements of another, each to its own: ``low, high = lows[i], highs[i]``."""
    target, value = node.targets[0].target, node.value
    both = (target.elements, value.elements) if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple) else ((), ())
    if both[0] and len(both[0]) == len(both[1]) and all(isinstance(one, cst.Element) for side in both for one in side):
        yield from ((one.value, other.value) for one, other in zip(*both, strict=True))
    else:
        yield target, value


def _is_part(node: cst.BaseExpression, parts: set[str]) -> bool:
    while isinstance(node, cst.Subscript):
        node = node.value
    return isinstance(node, cst.Name) and node.value in parts
