"""What a check finds in the program after that it does not find in the one before. A patch may end its symptom and bring another."""

from __future__ import annotations

import ast
import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from oomlint import engine, registry
from oomlint.finding import Severity
from oomlint.fixing import added
from oomlint.source import SourceError
from oomlint.verify.ast_names import spot
from oomlint.verify.case import Outcome, Part, Verdict
from oomlint.verify.session import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oomlint.finding import Finding
    from oomlint.verify.session import Session

    Findings = Mapping[str, tuple[Finding, ...]]

_MOST: Final = 24  # files that import what is changed, the nearest first: as many as the model asks for callers
_TOLD: Final = 2  # new findings
_UNDOUBTED: Final = frozenset({Outcome.CONFIRMED, Outcome.NO_EFFECT})


def judged(session: Session, verdict: Verdict) -> Verdict:
    """The verdict, unless the patch adds a finding.

    One as grave as the finding that is patched, or graver, is a regression, unless nothing could be run. One that is less grave and that a check would show
    leaves it open whether the patch is an improvement; only a fix of oomlint's own may lead from a grave finding to a milder one. What a check says of a
    dataset that was measured to take clearly less than before is no news: one kind of container has taken the place of another.
    """
    finding = session.case.finding
    if not session.case.has_fix or verdict.outcome is Outcome.REGRESSED:
        return verdict
    new = sorted((item for item in _new(session) if not _measured(session, item)), key=lambda item: (item.severity.rank, item.sort_key))
    if not new:
        return verdict
    words = "; ".join(f"the patch adds {item.code} at {_spot(session, item)}: {item.message}" for item in new[:_TOLD])
    if new[0].severity.rank <= finding.severity.rank:
        if verdict.outcome is Outcome.INCONCLUSIVE and verdict.fidelity is None:  # nothing has run: measured, it might be the better of two
            return replace(verdict, reason=f"{verdict.reason}; and {words}")
        return replace(verdict, outcome=Outcome.REGRESSED, reason=words)
    own = finding.fix is not None and not session.case.by_hand
    if not own and new[0].severity.rank <= session.settings.severity.rank and verdict.outcome in _UNDOUBTED:
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=f"{verdict.reason}; but {words}")
    return verdict


def _spot(session: Session, finding: Finding) -> str:
    place = finding.place
    return f"{os.path.relpath(place.path, session.case.root)}:{f'cell {place.cell}:' if place.cell else ''}{place.row}"


def _new(session: Session) -> list[Finding]:
    """Findings that only the program after has. What has moved from one file to another is none of them."""
    case = session.case
    paths = tuple(dict.fromkeys([case.finding.place.path, *case.changes, *_importers(session)]))
    before, after = (_checked(session, paths, {path: pair[part is Part.AFTER] for path, pair in case.changes.items()}) for part in Part)
    codes = [[item.code for items in found.values() for item in items] for found in (before, after)]
    return [item for item in added(before, after) if item.code is not None and codes[1].count(item.code) > codes[0].count(item.code)]


def _measured(session: Session, finding: Finding) -> bool:
    """Whether it speaks of the class that takes less after."""
    if not session.eased:
        return False
    for place in finding.places:
        with suppress(SourceError, SyntaxError, ValueError, RecursionError):
            source = session.case.source(Part.AFTER, place.path)
            if session.eased.rpartition(".")[2] in spot(ast.parse(source.text), source.program_row(place)).cls.split("."):
                return True
    return False


def _importers(session: Session) -> list[str]:
    """Files that name a changed one, the nearest first."""
    project = session.project
    found: list[str] = []
    for path in session.case.changes:
        stem = os.path.basename(path).partition(".")[0]
        word = (os.path.basename(os.path.dirname(path)) if stem == "__init__" else stem).encode()
        hits = [other for other in project.files() if other != path and word in project.raw(other)]
        found += sorted(hits, key=lambda other: (-len(os.path.commonpath([other, path])), other))[:_MOST]
    return found


def _checked(session: Session, paths: tuple[str, ...], overlay: dict[str, bytes]) -> Findings:
    """What all rules that the project is checked with say of the files, comments that silence them or not."""
    chosen, _ = nearest(session.case.root)
    codes = {code for each in (chosen, session.settings) for code in registry.chosen(each)}
    settings = session.settings.having(select=tuple(sorted(codes)), ignore=(), extend_select=(), preview=True, severity=Severity.NOTE)
    present = [path for path in paths if overlay.get(path) or os.path.exists(path)]
    options = engine.RunOptions(cache=False, processes=1, overlay=overlay, suppress=False, once=False, causes=False)
    report = engine.run(present, settings, session.case.root, options)
    found: dict[str, list[Finding]] = {path: [] for path in paths}
    for item in report.findings:
        found.setdefault(item.place.path, []).append(item)
    return {path: tuple(items) for path, items in found.items()}
