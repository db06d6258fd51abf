"""Which loaders a finding speaks of, and what is known of their arguments."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from oomlint.finding import LoaderFact
from oomlint.memory.loaders.loader_calls import PARAMETERS, loaders_of
from oomlint.model.project import Project
from oomlint.model.questions import CPU_COUNTS
from oomlint.model.values import Absent, Const, ExternalCall
from oomlint.source import SourceError
from oomlint.syntax.edits import is_cheap_path
from oomlint.verify.case import Part
from oomlint.verify.session import Stopped
from oomlint.verify.strategies.slicing import SliceSite, counterpart, cut, sites

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oomlint.finding import Place
    from oomlint.memory.loaders.loader_calls import Loader
    from oomlint.model.project import Module
    from oomlint.model.values import Alternative, Frame
    from oomlint.verify.session import Session

OPTIONS: Final = (*PARAMETERS[1:], "prefetch_factor", "persistent_workers", "pin_memory_device", "in_order")
WORKERS: Final = 2
LOST: Final = "the call of the loader was not found in the program"
MOVED: Final = "the loader is not made at the same place after the fix"
_LEFT_OUT: Final = object()  # a keyword that a mapping does not have
_MOST: Final = 12  # combinations of values that are handed to the child
_MOST_LOADERS: Final = 4
_MOST_COUNTS: Final = 4  # numbers of workers beside none and two
_HIGHEST: Final = 64
_SECONDS: Final = 30.0  # a call with its sweep, two workers at a time
_SPAWN_SECONDS: Final = 60.0
_WORKER_BYTES: Final = 4096 * 2**20  # spawned workers import torch
_WORKERS: Final = re.compile(r"(?<!persistent_)(?<!persist_)worker|num_proc|n_jobs|cpus|threads|nproc", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LoaderTarget:
    """A loader that a finding speaks of."""

    loader: Loader
    site: SliceSite
    path: str


@dataclass(frozen=True, slots=True)
class Domain:
    """Values for expressions of a call, and what is assumed with them."""

    leaves: frozenset[str]
    values: list[dict[str, object]]
    assumptions: list[str] = field(default_factory=list)


def targets(session: Session, at: tuple[Place, ...] = ()) -> list[LoaderTarget]:
    """The loaders that stand ``at`` some places; else those that the fix edits, that the finding stands in, that it names."""
    finding = session.case.finding
    edits = [edit.place for edit in finding.fix.edits] if finding.fix is not None else []
    named = [fact.place for fact in finding.of_noun(LoaderFact)]
    for places in ([*at],) if at else (edits, [finding.place], named):
        found = [one for place in places for one in _around(session, place)]
        if found:
            unique = {(one.path, one.site.call.lineno, one.site.call.col_offset): one for one in found}
            return list(unique.values())[:_MOST_LOADERS]
    return []


def _around(session: Session, place: Place) -> Iterator[LoaderTarget]:
    module = session.project.find(place.path)
    if module is None:  # a file of settings
        return
    for loader in loaders_of(session.project).of(module):
        if _covers(module.place(loader.call), place):
            site = site_of(module, loader)
            if site is not None:
                yield LoaderTarget(loader, site, place.path)


def _covers(outer: Place, inner: Place) -> bool:
    """Whether a place lies in another, or is the statement around it."""
    if outer.path != inner.path or outer.cell != inner.cell:
        return False
    start, end = (outer.row, outer.column), (outer.end_row, outer.end_column)
    first, last = (inner.row, inner.column), (inner.end_row, inner.end_column)
    return (start <= first and last <= end) or (first <= start and end <= last)


def at_row(session: Session, place: Place, fits: Callable[[ast.Call], bool]) -> SliceSite | None:
    """The call that begins at the row of a place and fits."""
    module = session.project.find(place.path)
    tree = session.case.tree(Part.BEFORE, place.path) if module is not None else None
    row = module.source.program_row(place) if module is not None else 0
    return next((one for one in sites(tree) if one.call.lineno == row and fits(one.call)), None) if tree is not None else None


def site_in(session: Session, part: Part, site: SliceSite, path: str) -> SliceSite | None:
    """The same call in one part."""
    tree = session.case.tree(part, path)
    return counterpart(site, tree) if tree is not None else None


def planned(session: Session, part: Part, target: LoaderTarget, values: Domain, *, here: bool = False) -> dict[str, object]:
    """What the child is to run: the call as it is cut out of the program of one part; of that part is the site where it is ``here``. Raises Stopped."""
    site = target.site if here else site_in(session, part, target.site, target.path)
    if site is None:
        raise Stopped(MOVED if part is Part.AFTER else LOST)
    return cut(site, values.leaves, inherited=target.loader.inherited).plan(values.values)


def measured(
    session: Session, part: Part, target: LoaderTarget, values: Domain, *, own: str, counts: list[int], here: bool = False, **how: Any
) -> dict[str, Any]:
    """What the child answers of the call in all its configurations; for the rest see :func:`oomlint.verify.child.driving.call_job.measure`. Raises Stopped."""
    how = {"methods": [None], **how, "own": own, "counts": counts, "plan": planned(session, part, target, values, here=here)}
    seconds = _SPAWN_SECONDS if "spawn" in how["methods"] else _SECONDS
    where = {"path": session.path(part, target.path), "root": session.folder(part)}
    return session.answer(part, "driving.call_job:measure", {**where, **how}, seconds=seconds, memory=_WORKER_BYTES)


def worker_counts(session: Session) -> list[int | None]:
    """How many workers the loader of a finding has before and after; none where that is not known."""
    found: list[int | None] = []
    for target in targets(session)[:1]:
        for one in (target, *([after_fix(session, target)] if session.case.has_fix else [])):
            loaders = loaders_of(one.loader.module.project)
            counts = _counts([alt for frame in _frames(one) for alt in loaders.argument(one.loader, "num_workers", frame)], _HIGHEST)
            found.append(counts[0] if counts else 0 if one.loader.explicit("num_workers") is None and not one.loader.stars else None)
    return found or [None] * len(session.case.parts)


def _frames(target: LoaderTarget) -> list[Frame]:
    """The ways in which control gets to a loader."""
    loader, loaders = target.loader, loaders_of(target.loader.module.project)
    return [use.frame for use in loaders.uses(loader)] or [loaders.evaluator.calls.plain_frame(loader.module, loader.scope)]


def site_of(module: Module, loader: Loader) -> SliceSite | None:
    """The loader's call in the program as it stands on the disk."""
    try:
        tree = ast.parse(module.source.text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    row, text = module.source.program_row(module.place(loader.call)), _normal(module.code(loader.call))
    return next((site for site in sites(tree) if site.call.lineno == row and ast.unparse(site.call) == text), None)


def _normal(text: str) -> str | None:
    try:
        return ast.unparse(ast.parse(f"({text})", mode="eval"))
    except (SyntaxError, ValueError):
        return None


def after_fix(session: Session, target: LoaderTarget) -> LoaderTarget:
    """The same loader in the program after the fix: what its arguments are known to be may have changed with it. Raises Stopped."""
    here = site_in(session, Part.AFTER, target.site, target.path)
    with suppress(SourceError):
        module = Project(session.folder(Part.AFTER), session.settings, {}).module(session.path(Part.AFTER, target.path))
        for loader in loaders_of(module.project).of(module):
            site = site_of(module, loader)
            if site and here and (site.function, site.ordinal, ast.unparse(site.call)) == (here.function, here.ordinal, ast.unparse(here.call)):
                return LoaderTarget(loader, site, target.path)
    raise Stopped(MOVED)


def told_apart(trees: Iterable[ast.Module]) -> tuple[int, ...]:
    """Numbers of workers that programs may treat differently: one, those that the count is compared with or limited to, and one above them."""
    found: set[int] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"min", "max"}:
            sides = node.args
        else:
            continue
        if any(not isinstance(side, ast.Constant) and _WORKERS.search(ast.unparse(side)) for side in sides):
            found |= {side.value for side in sides if isinstance(side, ast.Constant) and type(side.value) is int and 0 <= side.value < _HIGHEST}
    if found:
        found = {*sorted(found)[: _MOST_COUNTS - 1], max(found) + 1}
    return tuple(sorted({1, *found} - {0, WORKERS}))[:_MOST_COUNTS]


def domain(target: LoaderTarget, *own: str, least: int = 0, processors: int = 0, counts: tuple[int, ...] = ()) -> Domain:
    """What the arguments of a loader can be, for what the linter's model can follow. ``least`` is the lowest worker count that matters.

    ``counts`` are tried beside none and two workers where the count is not known.

    With ``processors`` of the machine worker counts are what the program asks for; else two workers stand for any number.
    """
    loader = target.loader
    loaders = loaders_of(loader.module.project)
    frames = _frames(target)
    found: dict[str, list[object]] = {}
    said: list[str] = []
    for name in ("num_workers", *own):
        arg = loader.explicit(name)
        if name not in OPTIONS or arg is None or not is_cheap_path(arg.value):
            continue
        text = _normal(loader.module.code(arg.value))
        alternatives = [alt for frame in frames for alt in loaders.argument(loader, name, frame)]
        values: list[object] = [*_counts(alternatives, processors)] if processors and name == "num_workers" else _values(alternatives, name, least, counts)
        if text is not None and values and isinstance(ast.parse(text, mode="eval").body, (ast.Name, ast.Attribute, ast.Subscript)):
            found[text] = values
            said += _said(text, alternatives, values)
    mapping = None if processors else _mapping(target, frames, least)
    if mapping is not None:
        text, dicts = mapping
        found[text] = list(dicts)
        said.append(f"`**{text}` holds {' or '.join(repr(item) for item in dicts)}")
    names = list(found)
    combined = [dict(zip(names, row, strict=True)) for row in product(*found.values())][:_MOST]
    return Domain(frozenset(names), combined or [{}], said)


def _values(alternatives: Iterable[Alternative], name: str, least: int, counts: tuple[int, ...] = ()) -> list[object]:
    """Distinct values, the unknown ones by what such an option can be."""
    found: list[object] = []
    unknown = False
    for alt in alternatives:
        value = alt.value
        if isinstance(value, Const) and isinstance(value.value, (bool, int, float, str, type(None))):
            one = value.value
            if name == "num_workers" and isinstance(one, int) and not isinstance(one, bool):
                one = one if counts else min(one, WORKERS)
            if not any(type(one) is type(other) and one == other for other in found):
                found.append(one)
        elif not isinstance(value, Absent):
            unknown = True
    if name == "num_workers":
        for one in (WORKERS, 0, *counts):
            if (unknown or not found) and one >= least and one not in found:
                found.append(one)
        found = [one for one in found if not isinstance(one, int) or one >= least] or [WORKERS]
    elif unknown:
        return []
    return found


def _counts(alternatives: Iterable[Alternative], processors: int) -> list[int]:
    """The numbers of workers that the program asks for, the usual one first; none where one of them is not known."""
    found: list[int] = []
    for alt in alternatives:
        value = alt.value
        if isinstance(value, ExternalCall) and value.name in CPU_COUNTS:
            found.append(processors)
        elif isinstance(value, Const) and isinstance(value.value, int):
            found.append(int(value.value))
        elif not isinstance(value, Absent) and not alt.reach:
            return []
    return list(dict.fromkeys(found))


def _said(text: str, alternatives: Iterable[Alternative], values: list[object]) -> list[str]:
    story = next((step.text for alt in alternatives for step in alt.story if step.text and isinstance(alt.value, Const) and alt.value.value in (0, False)), "")
    return [f"`{text}` is {' and then '.join(repr(value) for value in values)}" + (f" ({story})" if story and 0 in values else "")]


def _mapping(target: LoaderTarget, frames: list[Frame], least: int) -> tuple[str, list[dict[str, object]]] | None:
    """Keywords that a ``**mapping`` from outside of the function brings, as far as they are known."""
    loader = target.loader
    if len(loader.stars) != 1 or not is_cheap_path(loader.stars[0].value):
        return None
    text = _normal(loader.module.code(loader.stars[0].value))
    if text is None or _local(target, text):
        return None
    loaders = loaders_of(loader.module.project)
    given: dict[str, list[object]] = {}
    for name in OPTIONS:
        if loader.explicit(name) is not None:
            continue
        alternatives = [alt for frame in frames for alt in loaders.argument(loader, name, frame)]
        known = [alt for alt in alternatives if isinstance(alt.value, Const)]
        if name == "num_workers":
            left_out = [_LEFT_OUT] if least == 0 and any(isinstance(alt.value, Absent) for alt in alternatives) else []
            some = [alt for alt in alternatives if not isinstance(alt.value, Absent)]
            given[name] = [*(_values(some, name, least) if some or not left_out else []), *left_out]
        elif known:
            given[name] = _values(known, name, least)[:2]
    rows = [{name: value for name, value in zip(given, row, strict=True) if value is not _LEFT_OUT} for row in product(*given.values())][:4]
    return text, rows


def _local(target: LoaderTarget, text: str) -> bool:
    """Whether the function itself makes the mapping: then its statements are run."""
    root = text.partition(".")[0].partition("[")[0]
    scope = target.loader.scope
    parameters = {param.name.value for param in getattr(getattr(scope.node, "params", None), "params", ())}
    kwargs = getattr(getattr(scope.node, "params", None), "star_kwarg", None)
    if kwargs is not None:
        parameters.add(kwargs.name.value)
    return root not in parameters and any(effect.kind == "assign" for effect in scope.effects.get(root, ()))
