"""What rules of other packages and of projects may use: ``from oomlint.plugin import Rule``.

Only what stands here keeps its form from version to version: names, parameters, fields. `docs/plugins.md` has it with examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.finding import (
    AllocationFact,
    AttributeFact,
    ByteSize,
    Confidence,
    Consequence,
    DatasetFact,
    Edit,
    Factor,
    Finding,
    Fix,
    HandleFact,
    LoaderFact,
    LoopFact,
    LoopKind,
    Message,
    Multiplier,
    Place,
    ReadFact,
    Resource,
    Role,
    Safety,
    Severity,
    StoreFact,
    StoreKind,
    Weighs,
    WorkerCount,
)
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import libcst as cst

    from oomlint.memory.loaders.loader_calls import Loader
    from oomlint.model.project import Module as Module  # noqa: PLC0414 - exported
    from oomlint.model.project import Project as Project  # noqa: PLC0414
    from oomlint.model.values import Alternative

__all__ = (
    "AllocationFact",
    "AttributeFact",
    "ByteSize",
    "Confidence",
    "Consequence",
    "DatasetFact",
    "Edit",
    "Factor",
    "Finding",
    "Fix",
    "HandleFact",
    "Known",
    "LoaderCall",
    "LoaderFact",
    "LoopFact",
    "LoopKind",
    "Message",
    "Module",
    "Multiplier",
    "Place",
    "Project",
    "ReadFact",
    "Resource",
    "Role",
    "Rule",
    "Safety",
    "Severity",
    "StoreFact",
    "StoreKind",
    "Weighs",
    "WorkerCount",
    "batch_loop",
    "calls",
    "is_library",
    "loaders",
    "replaced",
    "values",
)


def __getattr__(name: str) -> object:
    """The classes that bring a parser: who only names them in annotations pays nothing for them."""
    if name in {"Module", "Project"}:
        from oomlint.model import project  # noqa: PLC0415

        return getattr(project, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Known(Struct, frozen=True):
    """A value that an expression can have."""

    value: object  # a number, a text, True, False or None
    confidence: Confidence  # high where it follows from constants
    related: tuple[Place, ...] = ()  # the places that it came through


class LoaderCall(Struct, frozen=True):
    """A call that makes a ``DataLoader``."""

    call: cst.Call
    place: Place
    fact: LoaderFact
    _loader: Loader
    _project: Project

    def argument(self, name: str) -> tuple[Known, ...]:
        """The constants that an argument can be, whoever passes it; nothing where it is left out or nobody can tell."""
        from oomlint.memory.loaders.loader_calls import loaders_of  # noqa: PLC0415 - brings libcst

        known = loaders_of(self._project)
        uses = known.uses(self._loader)
        return _known((alt for use in uses for alt in known.argument(self._loader, name, use.frame) if alt.under(use.picks) is not None), self.place)


def loaders(module: Module, project: Project) -> Iterator[LoaderCall]:
    """The loaders that a file makes, in the order of its rows."""
    from oomlint.memory.facts import loader_fact  # noqa: PLC0415 - as above
    from oomlint.memory.loaders.loader_calls import loaders_of  # noqa: PLC0415

    for loader in loaders_of(project).of(module):
        yield LoaderCall(loader.call, module.place(loader.call), loader_fact(loader), loader, project)


def calls(module: Module) -> Iterator[cst.Call]:
    """All calls of a file, in the order of its rows."""
    for call, _ in module.walk.calls:
        yield call


def is_library(module: Module, project: Project, node: cst.BaseExpression, *names: str) -> bool:
    """Whether an expression is what a library has under one of these names, such as ``torch.cuda.empty_cache``, whatever it was imported as."""
    from oomlint.memory.loaders.loader_calls import evaluator_of  # noqa: PLC0415 - as above
    from oomlint.model.names import canonical  # noqa: PLC0415
    from oomlint.model.values import External  # noqa: PLC0415

    evaluator = evaluator_of(project)
    found = evaluator.plainly(node, module, module.walk.scope_at(node))
    wanted = {canonical(name) for name in names}
    return any(isinstance(alt.value, External) and canonical(alt.value.name) in wanted for alt in found)


def values(module: Module, project: Project, node: cst.BaseExpression) -> tuple[Known, ...]:
    """The constants that an expression can be: through variables, parameters and their callers, command lines, settings files. Others are left out."""
    from oomlint.memory.loaders.loader_calls import evaluator_of  # noqa: PLC0415 - as above

    evaluator = evaluator_of(project)
    scope = module.walk.scope_at(node)
    return _known((alt for frame in evaluator.calls.frames(module, scope) for alt in evaluator.values(node, frame)), module.place(node))


def batch_loop(module: Module, project: Project, node: cst.CSTNode) -> LoopFact | None:
    """The loop over batches that a node stands in, if it does."""
    from oomlint.memory.facts import loop_fact  # noqa: PLC0415 - as above
    from oomlint.memory.shared import batch_loops  # noqa: PLC0415

    loop = batch_loops.batch_loop(project, node, module, module.walk.scope_at(node))
    return None if loop is None else loop_fact(module, loop, LoopKind.BATCH)


def replaced(module: Module, node: cst.CSTNode, content: str) -> Edit:
    """The edit that puts other code in the place of a node. Parentheses around it stay."""
    from oomlint.syntax.edits import replace  # noqa: PLC0415 - as above

    return replace(module.tree, node, content)


def _known(alternatives: Iterable[Alternative], place: Place) -> tuple[Known, ...]:
    from oomlint.memory.loaders.loader_calls import confidence_of, story_places  # noqa: PLC0415 - as above
    from oomlint.model.values import Const, assumptions  # noqa: PLC0415

    found: dict[str, Known] = {}
    for alt in alternatives:
        if isinstance(alt.value, Const):
            value = alt.value.value
            found.setdefault(repr(value), Known(value, confidence_of(assumptions(alt)), tuple(story_places(place, alt))))
    return tuple(found.values())
