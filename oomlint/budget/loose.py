"""Arrays that a script keeps beside its datasets: those that its own code, or a function that it calls, gives a name or puts into a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.budget.nouns import Certainty, Held, Moment
from oomlint.budget.sizes import Name, Size, named
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.shared.array_shapes import allocation
from oomlint.memory.shared.content_kinds import PAYLOAD
from oomlint.memory.shared.training_loops import loops_over, rounds
from oomlint.model import arguments, names
from oomlint.model.values import ExternalCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.budget.nouns import Source
    from oomlint.memory.shared.training_loops import Loop
    from oomlint.model.project import Module, Project
    from oomlint.model.questions import Questions
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope

_LARGE: Final = 1 << 20  # bytes
_ALL: Final = frozenset(Moment)


def arrays(project: Project, entry: Module, sources: Sequence[Source], told: Sequence[Held]) -> Iterator[Held]:
    """The arrays that are in no dataset. ``told`` is what the rules say is held: what they know to grow has its row."""
    datasets = datasets_of(project)
    counted = {one.same for source in sources for one in source.containers if one.same is not None}
    for frame in _frames(entry, datasets.evaluator):
        for call in frame.scope.calls:
            bound = [root for root, path in entry.walk.bound_to(call) if not path]
            if bound and not arguments.has(call, "device"):
                found = datasets.evaluator.values(call, frame)
                value = found[0].value if len(found) == 1 else None
                made = allocation(names.canonical(value.name), call, datasets.evaluator, frame) if isinstance(value, ExternalCall) else None
                known = made is not None and made.item is not None and value not in counted
                if known and made is not None and made.item is not None and (made.exact is None or made.exact >= _LARGE):
                    yield Held(f"`{bound[0]}`", Size((*named(made.dimensions, ""), made.item)), Certainty.EXACT, entry.place(call), _ALL)
                continue
            word, loops = _grown(call, entry, frame.scope)
            content = datasets.contents.of(call.args[0].value, frame) if word and not any(f"`{word}`" in one.what for one in told) else None
            if content is not None and content.kind in PAYLOAD:
                each = content.size.exact
                counts = [rounds(project, loop, entry, frame.scope) for loop in loops]
                many = (Name(f"len({word})"),) if None in counts else tuple(one for one in counts if one is not None)
                size = Size((*many, each)) if each is not None else Size((Name(word),))
                yield Held(f"what a loop puts into `{word}`", size, Certainty.EXACT, entry.place(call), _ALL - {Moment.CONSTRUCTION, Moment.START})


def _grown(call: cst.Call, module: Module, scope: Scope) -> tuple[str, list[Loop]]:
    """The list that a round of a loop puts something into, and the loops; empty where the call does no such thing."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "append" or len(call.args) != 1:
        return "", []
    loops = list(loops_over(call, module, scope))
    return names.dotted(call.func.value) if loops else "", loops


def _frames(entry: Module, evaluator: Questions) -> Iterator[Frame]:
    """The code of a script, and that of its functions which this code calls."""
    yield evaluator.module_frame(entry)
    for scope in entry.root.children:
        if scope.is_function and any(site.scope is entry.root for site in evaluator.calls.sites(entry, scope)):
            yield from evaluator.calls.frames(entry, scope)[:1]
