"""Large arrays that take more memory than their values need: eight bytes for one, or a second copy."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

import libcst as cst
import msgspec
from msgspec import Struct

from oomlint.api_names import ALLOCATORS, FACTS
from oomlint.finding import AllocationFact, ByteSize, Fix, Message, Role, Safety, Severity
from oomlint.memory.arrays.element_bytes import element_bytes
from oomlint.memory.arrays.kept import DataTransform, kept_of
from oomlint.memory.arrays.kept_forms import byte_range
from oomlint.memory.arrays.loads import arrays_of
from oomlint.memory.arrays.said_small import axes_of, said_small
from oomlint.memory.datasets.samples import made_bytes
from oomlint.memory.facts import allocation_fact, keeper_facts
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.array_bytes import allocation
from oomlint.memory.shared.byte_size import item_bytes
from oomlint.memory.shared.construction import constructions_of, speaks_of_data
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.memory.shared.known_libraries import GENERATORS
from oomlint.memory.shared.operand_kinds import made_by_numpy, operand
from oomlint.memory.shared.test_suites import holds_tests
from oomlint.model import arguments, names
from oomlint.model.values import External, ExternalCall, Instance
from oomlint.scout.telling_names import FLOAT_TENSORS, FLOATS
from oomlint.syntax.edits import Text, replace
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.finding import Fact, Place, Weighs
    from oomlint.memory.arrays.kept import Keeper
    from oomlint.memory.arrays.loads import Load
    from oomlint.memory.shared.array_bytes import Bytes
    from oomlint.memory.shared.content_kinds import Content
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_WIDE: Final = 8  # bytes of a float64
_IN_PLACE: Final = r"(?!_)\w+(?<!_)_|sort|fill|put|partition|resize|setfield"
_SAY_WHAT_IS_COPIED: Final = ("__deepcopy__", "__getstate__", "__reduce__", "__reduce_ex__")


_LATER: Final = "convert each sample in `__getitem__`, or each batch on the device"


class Inflation(Struct, frozen=True):
    """A place where data take more memory than they need."""

    node: cst.BaseExpression
    message: Message
    related: tuple[Place, ...] = ()
    fix: Fix | None = None
    facts: tuple[Fact, ...] = ()
    severity: Severity | None = None  # where it is not that of most
    weighs: Weighs | None = None  # the same
    axes: int | None = None  # of what is joined with something else: how many are seen


def passed(module: Module, project: Project, does: DataTransform) -> Iterator[tuple[cst.BaseExpression, Load, Keeper]]:
    """What is done with loads, where it is done in this module; each place once."""
    seen: set[cst.CSTNode] = set()
    arrays = arrays_of(project)
    for load in (*arrays.h5(module), *arrays.files(module), *arrays.handed_on(module)):
        for keeper in load.keepers:
            if does is DataTransform.COPIES and any(done.does is DataTransform.JOINS for done in keeper.passed):
                continue  # the copy that counts is the one that makes an array of the list
            for done in keeper.passed:
                if done.does is does and done.module is module and done.node not in seen:
                    seen.add(done.node)
                    yield done.node, load, keeper


def building(module: Module, project: Project) -> Iterator[Scope]:
    """Code that may build a dataset."""
    if speaks_of_data(module):
        yield from _once(module, project)


def _once(module: Module, project: Project) -> Iterator[Scope]:
    """Code that does not run for each sample or batch."""
    if not holds_tests(module):
        for scope in module.walk.scopes:
            if not scope.is_class and not constructions_of(project).per_item(module, scope):
                yield scope


def keeper_of(module: Module, project: Project, node: cst.BaseExpression) -> Keeper | None:
    """Who keeps what an expression gives; nobody where its names say that it is small."""
    for keeper in kept_of(project).of(module, node):
        if not keeper.live and not said_small(project, keeper):
            return keeper
    return None


def _facts(module: Module, node: cst.BaseExpression, keeper: Keeper | None, size: Bytes | None = None) -> tuple[Fact, ...]:
    return (allocation_fact(module, node, size), *(keeper_facts(keeper) if keeper is not None else ()))


# -- bytes that become numbers of four or eight bytes -----------------------------------------------------------------------


def _weighed(project: Project, module: Module, found: Iterable[Inflation]) -> Iterator[Inflation]:
    """The same with the bytes of what is made, where shapes tell them; without those that are small."""
    for one in found:
        told = [fact for fact in one.facts if isinstance(fact, AllocationFact) and fact.bytes.exact is not None]
        size = made_bytes(project, module, one.node) if not told else ByteSize()
        if size.exact is None or size.exact >= project.settings.small_bytes:
            yield msgspec.structs.replace(one, facts=(allocation_fact(module, one.node, size), *one.facts[1:])) if size.known else one


def inflations(module: Module, project: Project) -> Iterator[Inflation]:
    """Bytes that become floating-point numbers, and arrays of ``float64`` that are converted at once."""
    yield from _weighed(project, module, _inflations(module, project))


def _inflations(module: Module, project: Project) -> Iterator[Inflation]:
    seen: set[cst.CSTNode] = set()
    for node, load, keeper in passed(module, project, DataTransform.SCALES):
        seen.add(node)
        read = (load.module.place(load.node, "read here"),)
        if isinstance(node, cst.BinaryOperation):
            yield from _divided(project, module, node, keeper, read)
        elif isinstance(node, cst.Call) and _reads_bytes(load) and not _narrowed(module, node):
            becomes = f"each number takes 8 bytes instead of 1, in {keeper.words}"
            message = Message(f"`{names.short(module.code(node.func))}` makes `float64` of all data before the first sample", becomes, _LATER)
            yield Inflation(node, message, read, facts=_facts(module, node, keeper))
    data = speaks_of_data(module)
    for scope in _once(module, project):
        for node in _candidates(scope):
            if node in seen:
                continue
            if isinstance(node, cst.BinaryOperation):
                yield from _scaled(module, project, scope, node) if data else ()
            elif isinstance(node, cst.Call) and (one := _converted(module, project, scope, node, data=data)) is not None:
                yield one


def _reads_bytes(load: Load) -> bool:
    """Whether a load is one of pictures, whose pixels are bytes most often."""
    return load.read is not None and load.read.origin.endswith(("imread", "PIL.Image.open"))


def _narrowed(module: Module, node: cst.Call) -> bool:
    """Whether what a call gives gets another type at once: ``resize(image, shape).astype(np.float32)``."""
    parents = module.walk.parents
    method = parents.get(node)
    return isinstance(method, cst.Attribute) and method.attr.value == "astype"


def _candidates(scope: Scope) -> Iterator[cst.BaseExpression]:
    """Conversions and divisions in the code of a scope."""
    for node in scope.nodes(inner=False):
        if (isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide) and byte_range(node.right)) or (
            isinstance(node, cst.Call) and names.last_name(node.func) in {"astype", *FLOATS, *FLOAT_TENSORS}
        ):
            yield node


def _divided(project: Project, module: Module, node: cst.BinaryOperation, keeper: Keeper, spots: tuple[Place, ...]) -> Iterator[Inflation]:
    """What the division makes of each number: nothing to tell where that takes no more bytes than before."""
    before, after = element_bytes(project, module, node)
    if before < after:
        wide = f"{after} bytes{' (`float64`)' if after == _WIDE else ''} instead of {before}, in {keeper.words}"
        message = Message("All data is divided before the first sample", f"each number takes {wide}", _LATER)
        yield Inflation(node, message, spots, facts=_facts(module, node, keeper))


def _scaled(module: Module, project: Project, scope: Scope, node: cst.BinaryOperation) -> Iterator[Inflation]:
    keeper = keeper_of(module, project, node)
    size = _made(module, project, scope, node.left) if keeper is not None else None
    if keeper is not None and size is not None and _is_large(project, size[1]):
        yield from _divided(project, module, node, keeper, ())


def _made(module: Module, project: Project, scope: Scope, node: cst.BaseExpression) -> tuple[str, Bytes, cst.Call] | None:
    """The call of NumPy that made an array, and its bytes."""
    evaluator = evaluator_of(project)
    if isinstance(node, cst.Name):
        effects = [e for e in scope.effects.get(node.value, ()) if not e.path]
        if len(effects) == 1 and isinstance(effects[0].value, cst.Call) and not effects[0].index:
            node = effects[0].value
    frames = evaluator.calls.frames(module, scope, most=2) or [evaluator.calls.plain_frame(module, scope)]
    for frame in frames:
        for alt in evaluator.values(node, frame)[:3]:
            if isinstance(alt.value, ExternalCall):
                call, where = alt.value.call, alt.value.frame
                name = names.canonical(alt.value.name)
                if name.startswith("numpy.random.default_rng") or (isinstance(call.func, cst.Attribute) and not name.startswith(("numpy", "torch"))):
                    continue
                size = allocation(name, call, evaluator, where)
                if size is not None:
                    return name, size, call
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and _is_generator(project, module, scope, node.func.value):
            size = allocation(f"numpy.{node.func.attr.value}", node, evaluator, frame)
            if size is not None:
                return f"Generator.{node.func.attr.value}", size, node
    return None


def _is_generator(project: Project, module: Module, scope: Scope, node: cst.BaseExpression) -> bool:
    evaluator = evaluator_of(project)
    return any(isinstance(a.value, ExternalCall) and a.value.name in GENERATORS for a in evaluator.plainly(node, module, scope))


def _is_large(project: Project, size: Bytes) -> bool:
    """Whether an array is large, or of a size that nobody knows."""
    small = project.settings.small_bytes
    return size.exact >= small if size.exact is not None else len(size.dimensions) > 1 or size.least >= small


def of_numbers(node: cst.BaseExpression) -> bool:
    """Whether an array is made of numbers that stand there: ``np.eye(4)``."""
    return isinstance(node, cst.Call) and bool(node.args) and all(isinstance(a.value, cst.Integer | cst.Float) for a in node.args)


def may_be_large(project: Project, content: Content) -> bool:
    """Whether what an expression holds is not proven to be small."""
    settings = project.settings
    return (content.size.exact is None or content.size.exact >= settings.small_bytes) and (content.count is None or content.count >= settings.small_elements)


def _converted(module: Module, project: Project, scope: Scope, call: cst.Call, *, data: bool) -> Inflation | None:
    """``np.ones(shape).astype(np.float32)``, ``torch.from_numpy(np.zeros(shape)).float()``, ``torch.FloatTensor(np.zeros(shape))``.

    Where its bytes are known it does not matter who keeps it, if anybody does: both arrays are there at once. Else only what a dataset keeps is large.
    """
    last = names.last_name(call.func)
    inner: cst.BaseExpression | None = None
    target = 4
    if last == "astype" and isinstance(call.func, cst.Attribute) and call.args:
        inner = call.func.value
        wanted = item_bytes(call.args[0].value, 8)
        if wanted is None:
            return None
        target = wanted
    elif last in FLOATS and isinstance(call.func, cst.Attribute) and isinstance(call.func.value, cst.Call) and call.func.value.args:
        inner = call.func.value.args[0].value if names.last_name(call.func.value.func) in {"from_numpy", "tensor", "as_tensor"} else None
    elif last in FLOAT_TENSORS and len(call.args) == 1:
        inner = call.args[0].value
    made = _made(module, project, scope, inner) if inner is not None else None
    if made is None or inner is None or not _is_large(project, made[1]):
        return None
    name, size, source = made
    keeper = keeper_of(module, project, call) if data else None
    if size.item is None or not (size.item == _WIDE > target or size.item == 1 < target):
        return None
    if keeper is None and (size.exact is None or size.item == 1 or source is not inner):
        return None
    dotted = names.dotted(source.func) or name
    if size.item == 1 and keeper is not None:
        becomes = f"each number takes {target} bytes instead of 1, in {keeper.words}"
        message = Message("All data is converted to floating-point before the first sample", becomes, _LATER)
        return Inflation(call, message, (), facts=_facts(module, call, keeper, size))
    both = f"it takes {size.words()}, and is in memory together with the converted array"
    message = Message(f"`{dotted}` creates `float64` only to convert it", both, "create the array with its final dtype")
    facts = _facts(module, call, keeper, size)
    fix = _typed(module, call, inner, name) if source is inner and last == "astype" else None
    # Nothing is kept of it: that matters where it is known to be large.
    return Inflation(call, message, (), fix, facts, Severity.NOTE if size.exact is None else None)


def _typed(module: Module, call: cst.Call, inner: cst.BaseExpression, name: str) -> Fix | None:
    """``np.ones(shape).astype(np.float32)`` → ``np.ones(shape, dtype=np.float32)``."""
    last = name.rpartition(".")[2]
    if not isinstance(inner, cst.Call) or not inner.args or arguments.has_stars(inner) or len(call.args) != 1:
        return None
    drawn = last in {"random", "standard_normal"} and name.startswith("Generator")  # the old generators take no type
    if (last not in ALLOCATORS and not drawn) or arguments.has(inner, "dtype"):
        return None
    if len(arguments.positionals(inner)) > (2 if last == "full" else 1):
        return None
    wanted = call.args[0].value
    word = str(wanted.evaluated_value) if isinstance(wanted, cst.SimpleString) else names.last_name(wanted)
    if (drawn and word not in {"float32", "single", "f4"}) or (last == "full" and not _fits(inner, word)):
        return None
    text = Text(module.tree)
    start, end = text.span(call)
    inner_end = text.span(inner)[1]
    given = text.text[start : inner_end - 1].rstrip().rstrip(",")
    written = f"{given}, dtype={module.code(call.args[0].value)})"
    return Fix(Safety.UNSAFE, "create the array with its final dtype", (text.replaced(start, end, written),))


def _fits(call: cst.Call, word: str) -> bool:
    """Whether `full` takes its value for this type: NumPy refuses an integer that the type cannot hold, where `astype` wraps it around."""
    value = arguments.argument_for(call, "fill_value", place=1)
    if word.startswith(("float", "f", "half", "single")) or isinstance(value, cst.Float):
        return True
    return isinstance(value, cst.Integer) and value.evaluated_value <= 127  # noqa: PLR2004 - what all of them hold


# -- copies -----------------------------------------------------------------------------------------------------------------


def copies(module: Module, project: Project) -> Iterator[Inflation]:
    """Copies of whole arrays. What a function joins in the same way several times is told once, with what has the most axes."""
    groups: dict[object, list[Inflation]] = {}
    for one in _weighed(project, module, _copies(module, project)):
        key = one.node if one.axes is None else (module.walk.scope_at(one.node), one.message.headline)
        groups.setdefault(key, []).append(one)
    for group in groups.values():
        first, *others = sorted(group, key=lambda one: -(one.axes or 0))
        again = tuple(module.place(one.node).saying("the same happens here", Role.AGAIN) for one in others)
        yield msgspec.structs.replace(first, related=(*again, *first.related)) if again else first


def _copies(module: Module, project: Project) -> Iterator[Inflation]:
    seen: set[cst.CSTNode] = set()
    seen.update(_joined(module, project))
    scaled = {node for node, _, _ in passed(module, project, DataTransform.SCALES)}
    for node, load, kept in passed(module, project, DataTransform.COMPUTES):
        if not kept.many and kept_of(project).gathering(module, node) is None and scaled.isdisjoint(descend(node)):
            seen.add(node)
            yield msgspec.structs.replace(_recomputed(module, node, kept, (load.module.place(load.node, "read here"),)), severity=Severity.WARNING)
    for node, load, kept in passed(module, project, DataTransform.COPIES):
        if load.node is node or load.many or kept_of(project).gathering(module, node) is not None:
            continue  # what a loop copies round after round is told by another rule
        read = load.module.place(load.node, "read here")
        if isinstance(node, cst.Subscript):
            yield _permuted(module, node, kept, read)
        elif isinstance(node, cst.Call) and not _written(kept):
            seen.add(node)
            yield _copied(project, module, node, kept, (read,))
    evaluator = evaluator_of(project)
    for scope in building(module, project):
        for call in scope.calls:
            if call in seen or not call.args or names.last_name(call.func) not in {"tensor", "array"} or call.args[0].star:
                continue
            frame = evaluator.calls.plain_frame(module, scope)
            if not any(isinstance(a.value, External) and a.value.name in {"torch.tensor", "numpy.array"} for a in evaluator.values(call.func, frame)):
                continue
            keeper = keeper_of(module, project, call)
            if keeper is None or _written(keeper) or of_numbers(call.args[0].value) or kept_of(project).gathering(module, call) is not None:
                continue  # of what one round has read, the copy is gone by the next one
            what = operand(project, module, scope, call.args[0].value)
            # What a round copies is one part of the data, and its copy is what stays.
            if what is not None and what.kind is PayloadKind.ARRAY and may_be_large(project, what) and kept_of(project).gathering(module, call) is None:
                yield _copied(project, module, call, keeper, ())
        yield from _casts(module, project, scope)
        yield from _duplicated(module, project, scope)
        yield from (one for one in _standardised(module, project, scope) if one.node not in seen)


def _joined(module: Module, project: Project) -> set[cst.CSTNode]:
    """Copies of what a list became: the list is what counts."""
    arrays = arrays_of(project)
    loads = (*arrays.h5(module), *arrays.files(module))
    every = [keeper.passed for load in loads for keeper in load.keepers]
    return {done.node for passed in every if any(one.does is DataTransform.JOINS for one in passed) for done in passed if done.does is DataTransform.COPIES}


def _written(keeper: Keeper) -> bool:
    """Whether the copy is written to: then it is one for a reason."""
    name = re.escape(keeper.attribute or (keeper.names[-1] if keeper.names else ""))
    node: cst.CSTNode = keeper.owner.scope.node if keeper.owner is not None else keeper.module.walk.scope_at(keeper.node).node
    return _changed(name, keeper.module.code(node))


def _changed(name: str, code: str) -> bool:
    """Whether code changes what goes by a name in place."""
    changed = rf"\b{name}\s*(\[[^\]]*\]\s*)?([-+*/|&]|//|\*\*)=|\b{name}\s*\[[^\]]*\]\s*=(?!=)|\b{name}\s*(\[[^\]]*\])?\.({_IN_PLACE})\("
    return bool(name) and re.search(changed, code) is not None


def _shares(module: Module, source: cst.BaseExpression, node: cst.BaseExpression) -> bool:
    """Whether the array goes on beside its copy, so that what is written to one would be seen in the other: it has a name that is read later or kept."""
    scope = module.walk.scope_at(node)
    while isinstance(source, cst.Subscript):
        source = source.value
    if isinstance(source, cst.Attribute):
        owner = scope.parent if scope.parent is not None and scope.parent.is_class else scope
        return _changed(re.escape(source.attr.value), module.code(owner.node))
    if not isinstance(source, cst.Name):
        return False
    for here in module.walk.ancestors(node):
        if isinstance(here, cst.For | cst.While):
            return True
        if here is scope.node:
            break
    text = Text(module.tree)
    end = text.span(node)[1]
    for one in scope.nodes():
        if not isinstance(one, cst.Name) or one.value != source.value:
            continue
        holder = module.walk.parents.get(one)
        if isinstance(holder, cst.Assign | cst.NamedExpr) and holder.value is one:
            return True
        if text.span(one)[0] < end or isinstance(holder, cst.AssignTarget | cst.Del):
            continue
        if isinstance(holder, cst.Attribute) and (holder.attr is one or holder.attr.value in FACTS):
            continue
        call = module.walk.parents.get(holder) if isinstance(holder, cst.Arg) else None
        if not (isinstance(call, cst.Call) and names.dotted(call.func) == "len"):
            return True
    return False


def _casts(module: Module, project: Project, scope: Scope) -> Iterator[Inflation]:
    """``.astype`` to the type that the array has."""
    for call in scope.calls:
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "astype" or len(call.args) != 1:
            continue
        keeper = keeper_of(module, project, call)
        made = _made(module, project, scope, call.func.value) if keeper is not None else None
        if keeper is None or made is None or not _is_large(project, made[1]):
            continue
        dtype = arguments.named(made[2], "dtype")
        given = module.code(dtype) if dtype is not None else ""
        if given and given == module.code(call.args[0].value):
            text = Text(module.tree)
            last = text.span(call.args[0].value)[1]
            shared = _shares(module, call.func.value, call)
            fix = None if shared else Fix(Safety.UNSAFE, "copy only if the dtype differs", (text.replaced(last, last, ", copy=False"),))
            yield Inflation(
                call,
                Message(
                    "`.astype` copies all data, which already has that dtype",
                    f"the array and its copy, for {keeper.words}, are in memory at once",
                    "pass `copy=False`, which copies only if the dtype differs",
                ),
                (),
                fix,
                _facts(module, call, keeper),
            )


def _duplicated(module: Module, project: Project, scope: Scope) -> Iterator[Inflation]:
    """``copy.deepcopy(dataset)`` of one that holds all of its data."""
    evaluator, arrays = evaluator_of(project), arrays_of(project)
    for call in scope.calls:
        if names.last_name(call.func) != "deepcopy" or not call.args:
            continue
        frame = evaluator.calls.plain_frame(module, scope)
        if not any(isinstance(alt.value, External) and names.canonical(alt.value.name) == "copy.deepcopy" for alt in evaluator.values(call.func, frame)[:2]):
            continue
        for alt in evaluator.values(call.args[0].value, frame)[:3]:
            cls = alt.value.cls if isinstance(alt.value, Instance) and not any(evaluator.method(alt.value, name) for name in _SAY_WHAT_IS_COPIED) else None
            loads = (*arrays.h5(cls.module), *arrays.files(cls.module)) if cls is not None else ()
            owned = (
                (load, keeper) for load in loads for keeper in load.keepers if keeper.owner is not None and cls is not None and keeper.owner.scope is cls.scope
            )
            for load, keeper in islice(owned, 1):
                message = Message("`deepcopy` copies all data of the dataset", f"{keeper.words} is in memory twice", "use `copy.copy`, which shares the data")
                yield Inflation(call, message, (load.module.place(load.node, "read here"),), None, _facts(module, call, keeper), Severity.WARNING)


def _standardised(module: Module, project: Project, scope: Scope) -> Iterator[Inflation]:
    """``(a - a.mean()) / a.std()``: two more arrays."""
    for node in scope.nodes(inner=False):
        if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Divide) or not isinstance(node.left, cst.BinaryOperation):
            continue
        left = node.left
        name = module.code(left.left).strip()
        if not isinstance(left.operator, cst.Subtract) or not re.search(rf"\b{re.escape(name)}\.mean\(|mean\({re.escape(name)}\b", module.code(left.right)):
            continue
        keeper = keeper_of(module, project, node)
        what = operand(project, module, scope, left.left) if keeper is not None else None
        if keeper is not None and what is not None and may_be_large(project, what):
            yield _recomputed(module, node, keeper, ())


def _recomputed(module: Module, node: cst.BaseExpression, keeper: Keeper, spots: tuple[Place, ...]) -> Inflation:
    three = f"for {keeper.words}, three arrays are in memory at once"
    message = Message("Each operation creates a copy of all data", three, "use `-=` and `/=`, which change the array in place")
    return Inflation(node, message, spots, facts=_facts(module, node, keeper))


def _permuted(module: Module, node: cst.Subscript, keeper: Keeper, read: Place) -> Inflation:
    code = " ".join(module.code(node).split())
    both = f"the old and the new array, for {keeper.words}, are in memory at once"
    message = Message(f"`{code}` copies all data into another order", both, "permute the indices, not the data")
    return Inflation(node, message, (read,), facts=_facts(module, node, keeper), severity=Severity.WARNING)


def _copied(project: Project, module: Module, node: cst.Call, keeper: Keeper, spots: tuple[Place, ...]) -> Inflation:
    both = f"the array and its copy, for {keeper.words}, are in memory at once"
    fix = None
    if names.last_name(node.func) == "tensor" and isinstance(node.func, cst.Attribute) and not _shares(module, node.args[0].value, node):
        given = [a.keyword.value for a in node.args[1:] if a.keyword is not None]
        if len(node.args) == 1 and made_by_numpy(project, module, module.walk.scope_at(node), node.args[0].value):
            fix = Fix(Safety.UNSAFE, "use `from_numpy`, which makes no copy", (replace(module.tree, node.func.attr, "from_numpy"),))
        elif given == ["dtype"] and len(node.args) == 2:  # noqa: PLR2004 - the array and its type
            fix = Fix(Safety.UNSAFE, "copy only if the dtype differs", (replace(module.tree, node.func.attr, "as_tensor"),))
    joins = names.last_name(node.func) not in {"tensor", "array"}  # with something else, into an array that is all of it again
    remedy = "allocate the result once, and fill it" if joins else "use `as_tensor` or `asarray`, which copy only if needed"
    message = Message(f"`{names.short(module.code(node.func))}` copies all data", both, remedy)
    facts = _facts(module, node, keeper)
    return Inflation(node, message, spots, fix, facts, *((Severity.WARNING, None, axes_of(project, keeper).least) if joins else ()))
