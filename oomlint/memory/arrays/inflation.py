"""Large arrays whose numbers take more bytes than their values need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
import msgspec

from oomlint.api_names import ALLOCATORS
from oomlint.finding import AllocationFact, ByteSize, Confidence, Fix, Message, Safety, Severity, Told
from oomlint.memory.arrays.element_bytes import element_bytes
from oomlint.memory.arrays.kept import DataTransform, kept_of
from oomlint.memory.arrays.kept_forms import byte_range
from oomlint.memory.arrays.loads import arrays_of
from oomlint.memory.arrays.said_small import said_small
from oomlint.memory.datasets.samples import made_bytes
from oomlint.memory.facts import allocation_fact, keeper_facts
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.array_bytes import allocation
from oomlint.memory.shared.byte_size import item_bytes
from oomlint.memory.shared.construction import constructions_of, speaks_of_data
from oomlint.memory.shared.known_libraries import GENERATORS
from oomlint.model import arguments, names
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import ExternalCall
from oomlint.scout.telling_names import FLOAT_TENSORS, FLOATS
from oomlint.syntax.edits import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.finding import Fact, Place
    from oomlint.memory.arrays.kept import Keeper
    from oomlint.memory.arrays.loads import Load
    from oomlint.memory.shared.array_bytes import Bytes
    from oomlint.memory.shared.content_kinds import Content
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_WIDE: Final = 8  # bytes of a float64


_LATER: Final = "convert each sample in `__getitem__`, or each batch on the device"


class Inflation(Told, frozen=True, kw_only=True):
    """A place where data take more memory than they need."""

    confidence: Confidence = Confidence.MEDIUM
    node: cst.BaseExpression
    axes: int | None = None  # that are seen of what is there twice for a moment alone
    joins: bool = False  # it is joined with something else


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


def keeper_of(module: Module, project: Project, node: cst.BaseExpression, *, arrays: bool = False) -> Keeper | None:
    """Who keeps what an expression gives; nobody where its names say that it is small. ``arrays`` says that it is made of a list of arrays."""
    for keeper in kept_of(project).of(module, node):
        if not keeper.live and not said_small(project, keeper, arrays=arrays):
            return keeper
    return None


def held_facts(module: Module, node: cst.BaseExpression, keeper: Keeper | None, size: Bytes | None = None) -> tuple[Fact, ...]:
    """What a finding knows of an array: how it is made, of which size, and who keeps it."""
    return (allocation_fact(module, node, size), *(keeper_facts(keeper) if keeper is not None else ()))


def weighed(project: Project, module: Module, found: Iterable[Inflation]) -> Iterator[Inflation]:
    """The same with the bytes of what is made, where shapes tell them; without those that are small."""
    for one in found:
        told = [fact for fact in one.facts if isinstance(fact, AllocationFact) and fact.bytes.exact is not None]
        size = made_bytes(project, module, one.node) if not told else ByteSize()
        if size.exact is None or size.exact >= project.settings.small_bytes:
            yield msgspec.structs.replace(one, facts=(allocation_fact(module, one.node, size), *one.facts[1:])) if size.known else one


def inflations(module: Module, project: Project) -> Iterator[Inflation]:
    """Bytes that become floating-point numbers, and arrays of ``float64`` that are converted at once."""
    yield from weighed(project, module, _inflations(module, project))


def _inflations(module: Module, project: Project) -> Iterator[Inflation]:
    seen: set[cst.CSTNode] = set()
    for node, load, keeper in passed(module, project, DataTransform.SCALES):
        seen.add(node)
        read = (load.module.place(load.node, "read here"),)
        if isinstance(node, cst.BinaryOperation):
            yield from _divided(project, module, node, keeper, read)
        elif isinstance(node, cst.Call) and _reads_bytes(load) and not _narrowed(module, node):
            becomes = f"each number takes 8 bytes instead of 1, in {keeper.words}"
            message = Message(f"`{module.function_of(node)}` makes `float64` of all data before the first sample", becomes, _LATER)
            yield Inflation(module.place(node), message, related=read, facts=held_facts(module, node, keeper), node=node)
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
        yield Inflation(module.place(node), message, related=spots, facts=held_facts(module, node, keeper), node=node)


def _scaled(module: Module, project: Project, scope: Scope, node: cst.BinaryOperation) -> Iterator[Inflation]:
    keeper = keeper_of(module, project, node)
    size = allocated(module, project, scope, node.left) if keeper is not None else None
    if keeper is not None and size is not None and is_large(project, size[1]):
        yield from _divided(project, module, node, keeper, ())


def allocated(module: Module, project: Project, scope: Scope, node: cst.BaseExpression) -> tuple[str, Bytes, cst.Call] | None:
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


def is_large(project: Project, size: Bytes) -> bool:
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
    made = allocated(module, project, scope, inner) if inner is not None else None
    if made is None or inner is None or not is_large(project, made[1]):
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
        return Inflation(module.place(call), message, facts=held_facts(module, call, keeper, size), node=call)
    both = f"it takes {size.words()}, and is in memory together with the converted array"
    message = Message(f"`{dotted}` creates `float64` only to convert it", both, "create the array with its final dtype")
    facts = held_facts(module, call, keeper, size)
    fix = _typed(module, call, inner, name) if source is inner and last == "astype" else None
    # Nothing is kept of it: that matters where it is known to be large.
    little = size.exact is None or (keeper is None and size.exact < project.settings.array_bytes)
    return Inflation(module.place(call), message, Severity.NOTE if little else None, fix=fix, facts=facts, node=call)


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
