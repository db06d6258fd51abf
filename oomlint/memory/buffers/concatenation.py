"""Arrays, tensors and tables that a loop grows by copying them whole: ``x = torch.cat([x, y])``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct

from oomlint.api_names import AS_ARRAY, SIZES
from oomlint.memory.buffers.bounds import limited
from oomlint.memory.buffers.concatenation_calls import calling_loops, given_at
from oomlint.memory.buffers.concatenation_samples import adds_samples, in_groups
from oomlint.memory.buffers.concatenation_scalars import adds_few, may_be_few, scalars
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.array_bytes import allocated
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.known_libraries import uses_torch
from oomlint.memory.shared.loop_kinds import batch_loader, loops_around
from oomlint.memory.shared.training_loops import SHORT, along_axis, rounds, usual_rounds
from oomlint.model import names
from oomlint.model.counters import TestSpot
from oomlint.model.lifetime import ended_in, is_about, says_first
from oomlint.model.names import short
from oomlint.model.reach import path_conditions
from oomlint.model.uses import NameUses
from oomlint.model.values import External, FunctionRef
from oomlint.scout.forms import JOINS
from oomlint.syntax.nodes import descend, names_in, orders, path_of, uses_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.calls import CallSite
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.lifetime import Loop, Path
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope

Join = cst.Call | cst.Subscript  # `np.r_[x, y]` is a join, too

_ROWS_OF = frozenset({"numpy.r_", "numpy.c_"})
_LIBRARIES = frozenset({"torch", "numpy", "pandas"})
_TWO_INPUTS = "numpy.append"
_SAME_AXES = frozenset({"numpy.concatenate", "numpy.hstack"})  # which refuse an array with more axes than the one before, an empty one too
_WIDEST = 50  # characters of what is iterated
_SEVERAL = 20  # rounds that copy about ten times what there is in the end
_LONG = 1000  # rounds that are many, whatever the loop is about


class SelfConcatenation(Struct, frozen=True, eq=False):
    """A statement that replaces a thing by itself with more at its end, and the loop that it stands in."""

    statement: cst.Assign
    call: Join
    package: str  # "torch", "numpy", "pandas"
    function: str  # the last name, as the library spells it
    written: str  # the target
    path: Path
    added: tuple[cst.BaseExpression, ...]
    loop: Loop
    over: str  # how the loop is called in a message
    known: bool  # whether what the loop goes over is known, not only named so
    scope: Scope
    site: CallSite | None = None  # the call in the loop, where a method grows what its object has
    few: bool = False  # a round adds a few numbers for each sample, or rounds are known to be few
    alike: bool = False  # nothing says that it adds more than others of its loop do: a label of which nobody knows the axes, an element that it only joins


def growths(module: Module, project: Project) -> Iterator[SelfConcatenation]:
    """Self-concatenations of a module, in loops that go round often."""
    if not any(name in module.source.text for name in ("append", "stack", "cat", "r_[", "c_[")):
        return
    seen: set[cst.CSTNode] = set()
    for call, scope in _joins(module):
        if isinstance(scope.node, cst.Lambda | cst.ClassDef):
            continue
        statement = module.walk.statement_of(call)
        if not isinstance(statement, cst.Assign) or len(statement.targets) != 1 or statement in seen:
            continue
        found = _growth(module, project, statement, call, scope)
        if found is not None:
            seen.add(statement)
            yield found


def _joins(module: Module) -> Iterator[tuple[Join, Scope]]:
    yield from ((call, scope) for call, scope in module.walk.calls if names.last_name(call.func) in JOINS)
    if "r_[" in module.source.text or "c_[" in module.source.text:
        for node in module.walk.root.nodes():
            if isinstance(node, cst.Subscript) and names.last_name(node.value) in {"r_", "c_"}:
                yield node, module.walk.scope_at(node)


def _growth(module: Module, project: Project, statement: cst.Assign, call: Join, scope: Scope) -> SelfConcatenation | None:
    target = statement.targets[0].target
    path = path_of(target)
    if path is None or not _is_value(statement, call, path, module):
        return None
    written = module.code(target).strip()
    added = _added(call, written, module)
    if added is None:
        return None
    name = (
        _table(project, call, module, scope) if isinstance(call, cst.Call) and _is_append(call) and _is_method(call) else resolved(project, call, module, scope)
    )
    if name is None:
        return None
    library, _, function = name.partition(".")
    function = function.rpartition(".")[2]
    if next(loops_around(statement, module, scope), None) is None:
        called = _called(module, project, statement, call, path, added, scope)
        return SelfConcatenation(statement, call, library, function, written, path, added, *called[:3], scope, called[3]) if called is not None else None
    where = _loop(module, project, statement, call, path, target, added, scope)
    if where is None:
        return None
    most = rounds(project, where[0], module, scope)
    # A batch has a row for each sample: what has one axis there has a number for each. A round over files may give a million.
    flat = _flattens(call) or (name in _SAME_AXES and _over_batches(project, where[0], module, scope) and _begins_flat(project, path, where[0], scope, module))
    few = (most is not None and most <= _SEVERAL) or adds_few(project, added, scope, module, flat=flat)
    alike = may_be_few(project, added, scope, module) or all(_is_only_joined(node, where[0], path, module) for node in added)
    return SelfConcatenation(statement, call, library, function, written, path, added, *where, scope, few=few, alike=alike)


def _is_value(statement: cst.Assign, call: Join, path: Path, module: Module) -> bool:
    """Whether the call is what is assigned: whole, or one side of ``call if x is not None else y``."""
    value = statement.value
    if value is call:
        return True
    return isinstance(value, cst.IfExp) and call in {value.body, value.orelse} and says_first(value.test, path, module)


def _added(call: Join, written: str, module: Module) -> tuple[cst.BaseExpression, ...] | None:
    """What is put to the target, which is one of the inputs; ``None`` where it is none of them."""
    inputs = _inputs(call)
    own = [node for node in inputs if module.code(node).strip() == written]
    others = tuple(node for node in inputs if node not in own)
    return others if len(own) == 1 and others else None


def _inputs(call: Join) -> list[cst.BaseExpression]:
    """What a join makes one of; nothing where that is not written out."""
    if isinstance(call, cst.Subscript):
        return [part.slice.value for part in call.slice if isinstance(part.slice, cst.Index)]
    if not call.args or call.args[0].star:
        return []
    first = call.args[0].value
    if names.last_name(call.func) == "append":
        given = [arg.value for arg in call.args[:2] if arg.star == "" and (arg.keyword is None or arg.keyword.value in {"arr", "values", "other"})]
        return [call.func.value, *given[:1]] if _is_method(call) and isinstance(call.func, cst.Attribute) else given
    if isinstance(first, cst.List | cst.Tuple) and all(isinstance(element, cst.Element) for element in first.elements):
        return [element.value for element in first.elements]
    return []


def _is_method(call: cst.Call) -> bool:
    """Whether an ``append`` is given one thing to add to what it belongs to: that of a table gives a new one, that of a list gives nothing."""
    return len(call.args) == 1 or (call.args[1].keyword is not None and call.args[1].keyword.value != "values")


def resolved(project: Project, call: Join, module: Module, scope: Scope) -> str | None:
    """The function of a library that joins, by its full name."""
    evaluator = evaluator_of(project)
    frame = evaluator.calls.plain_frame(module, scope)
    for alt in evaluator.values(call.func if isinstance(call, cst.Call) else call.value, frame)[:3]:
        if isinstance(alt.value, External):
            name = names.canonical(alt.value.name)
            if isinstance(call, cst.Subscript):
                return name if name in _ROWS_OF else None
            library, _, function = name.partition(".")
            if library in _LIBRARIES and function in JOINS and (function != "append" or name == _TWO_INPUTS) and (library != "pandas" or function == "concat"):
                return name
    return None


def _table(project: Project, call: cst.Call, module: Module, scope: Scope) -> str | None:
    """An ``append`` that gives a new table, as no method of the project does; not of one row that is written out."""
    if isinstance(call.args[0].value, cst.Dict):
        return None
    evaluator = evaluator_of(project)
    own = any(isinstance(alt.value, FunctionRef) for alt in evaluator.plainly(call.func, module, scope))
    return None if own else "pandas.append"


# -- the loop ------------------------------------------------------------------------------------------------------------


def _loop(
    module: Module,
    project: Project,
    statement: cst.Assign,
    call: Join,
    path: Path,
    target: cst.BaseExpression,
    added: tuple[cst.BaseExpression, ...],
    scope: Scope,
) -> tuple[Loop, str, bool] | None:
    """The innermost loop that grows the target round after round, and goes round often."""
    growing = {statement, *_other_growing(scope, path, module)}
    of_module = _of_module(project, module, scope)
    for loop in loops_around(statement, module, scope):
        if ended_in(path, loop, module, scope, growing):
            return None
        if _bounded(statement, loop, path, module):
            return None
        if _key_changes(target, loop, scope, module) or along_axis(loop) or _leaves_one_out(loop):
            continue
        if of_module and not _over_batches(project, loop, module, scope):
            continue  # it goes over the parts of one input
        most = rounds(project, loop, module, scope)
        usual = usual_rounds(project, loop, module, scope) if most is None and isinstance(loop, cst.For) else most
        if usual is not None and usual <= SHORT:
            continue
        found = role(module, project, loop, added, scope, most, call)
        # What a round reads or cuts out is large, whatever it is called; where nobody knows how often that is, it is often.
        proven = found is None and not _flattens(call) and adds_samples(project, added, loop, scope, module)
        if proven and not in_groups(project, path, loop, growing, scope, module):
            found = f"`{short(module.code(loop.iter), _WIDEST)}`" if isinstance(loop, cst.For) else "what it reads", False
        if found is None:
            continue
        if _used_in(loop, path, growing, module):
            return None
        epochs = runs_of(project).epochs(loop, module, scope)
        if not proven and not (epochs and _arrays(project, added, loop, scope, module)) and scalars(project, added, scope, module, epochs=epochs):
            return None
        return loop, *found
    return None


def _leaves_one_out(loop: Loop) -> bool:
    """Whether each round takes all of a list but its own place, ``keys[:k] + keys[k + 1 :]``: each with each other is for lists that are short."""
    if not isinstance(loop, cst.For):
        return False
    first = loop.target.elements[0].value if isinstance(loop.target, cst.Tuple) else loop.target
    for node in descend(loop.body):
        sides = (node.left, node.right) if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add) else ()
        before, behind = (side.slice[0].slice if isinstance(side, cst.Subscript) else None for side in sides) if sides else (None, None)
        if not isinstance(before, cst.Slice) or not isinstance(behind, cst.Slice) or before.upper is None or behind.lower is None:
            continue
        if before.upper.deep_equals(first) and isinstance(behind.lower, cst.BinaryOperation) and behind.lower.left.deep_equals(first):
            return True
    return False


def _of_module(project: Project, module: Module, scope: Scope) -> bool:
    """Whether a function is a method of a module of torch."""
    return scope.parent is not None and scope.parent.is_class and runs_of(project).is_module(module, scope.parent)


def _over_batches(project: Project, loop: Loop, module: Module, scope: Scope) -> bool:
    return isinstance(loop, cst.For) and batch_loader(project, loop.iter, module, scope) is not None


def _called(
    module: Module, project: Project, statement: cst.Assign, call: Join, path: Path, added: tuple[cst.BaseExpression, ...], scope: Scope
) -> tuple[Loop, str, bool, CallSite] | None:
    """The loop that calls the method in which the statement stands."""
    growing = {statement, *_other_growing(scope, path, module)}
    if _in_bounds(statement, scope.node, path, module):
        return None
    for site, loop in calling_loops(project, path, growing, module, scope):
        given = tuple(given_at(project, site, node, scope) for node in added)
        most = rounds(project, loop, site.module, site.scope)
        found = role(site.module, project, loop, given, site.scope, most, call) if most is None or most > SHORT else None
        if found is None or (_of_module(project, module, scope) and not _over_batches(project, loop, site.module, site.scope)):
            continue
        epochs = runs_of(project).epochs(loop, site.module, site.scope)
        if scalars(project, added, scope, module, epochs=epochs) or scalars(project, given, site.scope, site.module, epochs=epochs):
            return None
        return loop, *found, site
    return None


def _other_growing(scope: Scope, path: Path, module: Module) -> Iterator[cst.CSTNode]:
    """Other statements that concatenate the same thing to itself."""
    for effect in scope.effects.get(path[0], ()):
        if effect.path == path[1] and isinstance(effect.statement, cst.Assign) and isinstance(effect.value, cst.Call):
            written = module.code(effect.statement.targets[0].target).strip()
            if names.last_name(effect.value.func) in JOINS and _added(effect.value, written, module) is not None:
                yield effect.statement


def role(
    module: Module, project: Project, loop: Loop, added: tuple[cst.BaseExpression, ...], scope: Scope, most: int | None, call: Join
) -> tuple[str, bool] | None:
    """How the loop is called, and whether that is known; ``None`` where it may well be short."""
    if isinstance(loop, cst.For):
        like = batch_loader(project, loop.iter, module, scope)
        if like is not None:
            return (f"`{like.name}`" if like.name else "a loader"), like.known
    if not uses_torch(module):
        return None
    if runs_of(project).epochs(loop, module, scope):
        return "the epochs", most is not None
    if most is not None and most >= _LONG and all(not isinstance(node, cst.List | cst.Tuple) for node in added) and not _is_append(call):
        return f"{most:,} rounds", True
    repeats = runs_of(project).loop(loop, module, scope)
    if repeats is not None and (repeats.batches or repeats.holds or repeats.steps):
        return (f"`{module.code(loop.iter).strip()}`" if isinstance(loop, cst.For) and (repeats.batches or repeats.holds) else "the training steps"), False
    return None


def _is_append(call: Join) -> bool:
    return isinstance(call, cst.Call) and names.last_name(call.func) == "append"


def _flattens(call: Join) -> bool:
    """Whether it is an ``np.append`` without an axis: of one number, more often than not."""
    if not isinstance(call, cst.Call) or not _is_append(call) or _is_method(call):
        return False
    return not call.args[2:] and all(arg.keyword is None or arg.keyword.value != "axis" for arg in call.args)


def _begins_flat(project: Project, path: Path, loop: Loop, scope: Scope, module: Module) -> bool:
    """Whether a variable is an array of one axis where a loop that grows it begins: ``np.array([])``, ``np.empty(0)``."""
    begun = NameUses(module.walk, scope, path[0]).bindings(loop) if not path[1] else set()
    made = [effect.value if effect is not None and not names.within(effect.statement, loop, module) else None for effect in begun]
    frame = evaluator_of(project).calls.plain_frame(module, scope)
    return bool(made) and all(isinstance(value, cst.Call) and _is_flat(value, evaluator_of(project), frame) for value in made)


def _is_flat(call: cst.Call, evaluator: Evaluator, frame: Frame) -> bool:
    listed = call.args[0].value if call.args else None
    if isinstance(listed, cst.List) and names.last_name(call.func) in AS_ARRAY:
        return all(isinstance(element.value, cst.BaseNumber) for element in listed.elements)
    made = allocated(call, evaluator, frame)
    return made is not None and len(made.dimensions) == 1


def _bounded(statement: cst.Assign, loop: Loop, path: Path, module: Module) -> bool:
    """Whether a test of a size decides if the thing grows, or ends the loop."""
    if _in_bounds(statement, loop, path, module):
        return True
    if isinstance(loop, cst.While) and uses_name(loop.test, (path[0],)):
        return True
    for node in descend(loop.body, into_scopes=False):
        if isinstance(node, cst.If) and uses_name(node.test, (path[0],)):
            ends = any(isinstance(n, cst.Break | cst.Return | cst.Raise) for n in descend(node.body, into_scopes=False))
            if ends and _tests_size(node.test, path, module):
                return True
    return False


def _in_bounds(statement: cst.Assign, around: cst.CSTNode, path: Path, module: Module) -> bool:
    """Whether a test of a size decides if the thing grows."""
    scope = module.walk.scope_at(statement)
    tests = (test for test, _ in path_conditions(module.walk, scope, statement) if around in module.walk.ancestors(test))
    return limited(TestSpot(module, scope, statement, around)) or any(_tests_size(test, path, module) for test in tests)


def _tests_size(test: cst.BaseExpression, path: Path, module: Module) -> bool:
    return any(orders(node) and is_about(node, path) and not says_first(node, path, module) for node in descend(test))


def _key_changes(target: cst.BaseExpression, loop: Loop, scope: Scope, module: Module) -> bool:
    """Whether each round of the loop has a key of its own: ``d[i] = ...``."""
    keys = {name for sub in descend(target) if isinstance(sub, cst.Subscript) for name in names_in(sub.slice[0])}
    for name in keys:
        for effect in scope.effects.get(name, ()):
            if effect.path or (effect.kind == "for" and effect.statement is not loop):
                continue
            if effect.statement is loop or names.within(effect.statement, loop, module):
                return True
    return False


def _used_in(loop: Loop, path: Path, growing: set[cst.CSTNode], module: Module) -> bool:
    """Whether the loop reads what it grows, other than to ask for its size."""
    for node in descend(loop.body, into_scopes=False):
        if not isinstance(node, cst.Name | cst.Attribute | cst.Subscript) or path_of(node) != path:
            continue
        if any(names.within(node, statement, module) for statement in growing) or _is_target(node, module) or _asks_for_size(node, module):
            continue
        return True
    return False


def _is_only_joined(node: cst.BaseExpression, loop: Loop, into: Path, module: Module) -> bool:
    """Whether a round does nothing with an element of its target but to join it, first or later: what a model is given is no such element."""
    here = path_of(node)
    if here is None or not isinstance(loop, cst.For) or here[0] not in names_in(loop.target):
        return False
    for part in descend(loop.body):
        path = path_of(part) if isinstance(part, cst.Name | cst.Attribute | cst.Subscript) else None
        if path is None or path[0] != here[0] or path[1] != here[1][: len(path[1])]:
            continue
        above = module.walk.parents.get(part)
        if isinstance(above, cst.Attribute | cst.Subscript) and above.value is part and path != here:
            continue  # the beginning of a longer one
        statement = module.walk.statement_of(part)
        joins = isinstance(statement, cst.Assign) and any(path_of(target.target) == into for target in statement.targets)
        if not joins and not _asks_for_size(part, module):
            return False
    return True


def _is_target(node: cst.CSTNode, module: Module) -> bool:
    """Whether it is set, or a part of it filled: ``x[n:, ..., 0] = patches``."""
    above = module.walk.parents.get(node)
    if isinstance(above, cst.Subscript) and above.value is node:
        above = module.walk.parents.get(above)
    while isinstance(above, cst.Element | cst.Tuple):
        above = module.walk.parents.get(above)
    return isinstance(above, cst.AssignTarget)


def _asks_for_size(node: cst.CSTNode, module: Module) -> bool:
    holder = module.walk.parents.get(node)
    if isinstance(holder, cst.Attribute):
        return holder.attr.value in SIZES and holder.value is node
    if isinstance(holder, cst.Arg):
        call = module.walk.parents.get(holder)
        return isinstance(call, cst.Call) and names.last_name(call.func) in {"len", "print"}
    return isinstance(holder, cst.Comparison | cst.ComparisonTarget | cst.If | cst.UnaryOperation | cst.IfExp)


# -- what is added ---------------------------------------------------------------------------------------------------------


def _arrays(project: Project, added: tuple[cst.BaseExpression, ...], loop: Loop, scope: Scope, module: Module) -> bool:
    """Whether a function of the project is known to give an array or a tensor."""
    evaluator = evaluator_of(project)
    frame = evaluator.calls.plain_frame(module, scope)
    for node in added:
        given = node
        if isinstance(node, cst.Name):
            inside = [e.value for e in scope.effects.get(node.value, ()) if e.kind == "assign" and not e.path and names.within(e.statement, loop, module)]
            given = inside[0] if len(inside) == 1 and inside[0] is not None else node
        if not isinstance(given, cst.Call) or not any(isinstance(a.value, FunctionRef) for a in evaluator.values(given.func, frame)[:2]):
            continue
        if datasets_of(project).contents.of(given, frame).kind in {PayloadKind.ARRAY, PayloadKind.ARRAYS, PayloadKind.TENSOR, PayloadKind.TENSORS}:
            return True
    return False
