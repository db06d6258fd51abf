"""Lists that get longer with each round of a loop, and that each round joins into one array again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct

from oomlint.memory.buffers.concatenation import resolved, role
from oomlint.memory.buffers.concatenation_scalars import adds_labels, scalars
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.memory.shared.loop_kinds import loops_around
from oomlint.memory.shared.training_loops import SHORT, rounds
from oomlint.model import names
from oomlint.model.displays import is_empty_list, unpacked
from oomlint.model.lifetime import ended_in, says_first
from oomlint.scout.forms import JOINS
from oomlint.scout.telling_names import ADDS
from oomlint.syntax.nodes import descend, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.lifetime import Loop, Path
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Effect, Scope


class Rejoin(Struct, frozen=True, eq=False):
    """A call that joins all that a list has so far, in each round of the loop that the list grows in."""

    call: cst.Call
    added: Effect  # what makes the list longer
    written: str  # the list
    loop: Loop
    over: str  # how the loop is called in a message
    known: bool  # whether what the loop goes over is known, not only named so
    few: bool = False  # of each sample a number


def rejoined(module: Module, project: Project) -> Iterator[Rejoin]:
    """The first of such calls for each list and loop."""
    if not any(name in module.source.text for name in ("append", "extend", "+=")):
        return
    seen: set[tuple[Path, cst.CSTNode]] = set()
    for call, scope in module.walk.calls:
        if names.last_name(call.func) not in JOINS or not call.args or isinstance(scope.node, cst.Lambda | cst.ClassDef):
            continue
        path = path_of(call.args[0].value)
        found = _rejoin(module, project, call, path, scope) if path is not None and scope.loops else None
        if path is not None and found is not None and (path, found.loop) not in seen:
            seen.add((path, found.loop))
            yield found


def _rejoin(module: Module, project: Project, call: cst.Call, path: Path, scope: Scope) -> Rejoin | None:
    for loop in _around(module, scope, call):
        added = [effect for effect in _longer(scope, path) if names.within(effect.statement, loop, module)]
        if not added or _sometimes(module, call, loop, path):
            return None
        grows = {effect.statement for effect in added}
        if ended_in(path, loop, module, scope, grows) or not _is_list(scope, path) or resolved(project, call, module, scope) is None:
            return None
        most = rounds(project, loop, module, scope)
        values = tuple(effect.value for effect in added if effect.value is not None)
        where = role(module, project, loop, values, scope, most, call) if most is None or most > SHORT else None
        if where is None:
            continue
        if scalars(project, values, scope, module, epochs=runs_of(project).epochs(loop, module, scope)):
            return None
        few = adds_labels(project, values, scope, module)
        return Rejoin(call, added[0], module.code(call.args[0].value).strip(), loop, *where, few=few)
    return None


def _around(module: Module, scope: Scope, call: cst.Call) -> Iterator[Loop]:
    """The loops whose rounds run a call, the innermost first: in their body, or in the test of a ``while``."""
    for here in module.walk.ancestors(call):
        if here is scope.node:
            break
        if isinstance(here, cst.While) and any(part is call for part in descend(here.test)):
            yield here
    yield from loops_around(call, module, scope)


def _longer(scope: Scope, path: Path) -> Iterator[Effect]:
    """What makes a list longer: ``append``, ``extend``, ``+=``."""
    for effect in scope.effects.get(path[0], ()):
        if effect.path == path[1] and (effect.kind in ADDS or (effect.kind == "augment" and isinstance(effect.value, cst.List))):
            yield effect


def _is_list(scope: Scope, path: Path) -> bool:
    """Whether the function makes the list, empty, itself: what it is given may be short."""
    return any(
        effect.path == path[1] and effect.kind == "assign" and is_empty_list(unpacked(effect.value, effect.index)) for effect in scope.effects.get(path[0], ())
    )


def _sometimes(module: Module, call: cst.Call, loop: Loop, path: Path) -> bool:
    """Whether a test lets only some of the rounds join; one that asks whether there is anything yet does not."""
    child: cst.CSTNode = call
    for here in module.walk.ancestors(call):
        if here is loop:
            return False
        if isinstance(here, cst.If | cst.IfExp) and child is not here.test and not _asks_for_any(here.test, path) and not says_first(here.test, path, module):
            return True
        child = here
    return False


def _asks_for_any(test: cst.BaseExpression, path: Path) -> bool:
    """Whether a test is ``len(x)`` or ``x`` alone."""
    if isinstance(test, cst.Call) and names.last_name(test.func) == "len" and len(test.args) == 1:
        test = test.args[0].value
    return path_of(test) == path
