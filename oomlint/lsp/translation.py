"""Findings translated to the types of the Language Server Protocol."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lsprotocol import types

from oomlint import registry
from oomlint.commenting import comments_for
from oomlint.finding import Confidence, Fix, Safety, Severity
from oomlint.lsp.documents import uri_of
from oomlint.output.urls import address_of
from oomlint.rule import page, status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pygls.workspace.position_codec import PositionCodec

    from oomlint.finding import Finding, Place
    from oomlint.lsp.documents import Document
    from oomlint.output.view import View
    from oomlint.source import Source

SOURCE: Final = "oomlint"
FIX_ALL: Final = f"{types.CodeActionKind.SourceFixAll.value}.{SOURCE}"
_ROW: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")  # what editors take for one
_SEVERITY: Final = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.NOTE: types.DiagnosticSeverity.Information,
}


class Translator:
    """Puts places into the units of a client: characters that it counts in UTF-16, unless it has said otherwise."""

    def __init__(self, codec: PositionCodec, view: View, documents: Mapping[str, Document]) -> None:
        """``view`` knows the contents that places are in, ``documents`` what is open, by path."""
        self._codec = codec
        self._view = view
        self._documents = documents

    def range(self, place: Place) -> types.Range:
        """A span."""
        return types.Range(self._position(place, place.row, place.column), self._position(place, place.end_row, place.end_column))

    def _position(self, place: Place, row: int, column: int) -> types.Position:
        source = self._view.source(place.path)
        before = source.line(row, place.cell)[: column - 1] if source else " " * (column - 1)
        return types.Position(row - 1, self._codec.client_num_units(before))

    def uri(self, place: Place) -> str:
        """The address of what a place is in."""
        document = self._documents.get(place.path)
        return document.uri_of(place) if document else uri_of(place.path)

    def diagnostic(self, finding: Finding) -> types.Diagnostic:
        """A finding."""
        assumed = "" if finding.confidence is Confidence.HIGH else f" ({finding.confidence.value} confidence)"
        related = [types.DiagnosticRelatedInformation(types.Location(self.uri(place), self.range(place)), place.message) for place in finding.related]
        address = address_of(finding.code) if finding.code else None
        return types.Diagnostic(
            range=self.range(finding.place),
            message=finding.message + assumed + (f"\nhelp: {finding.advice}" if finding.advice else ""),
            severity=_SEVERITY[finding.severity],
            code=finding.code or finding.name,
            code_description=types.CodeDescription(address) if address else None,
            source=SOURCE,
            related_information=related or None,
        )

    def edit(self, fix: Fix) -> types.WorkspaceEdit:
        """The edits of a fix, by document."""
        changes: dict[str, list[types.TextEdit]] = {}
        for edit in fix.edits:
            changes.setdefault(self.uri(edit.place), []).append(types.TextEdit(self.range(edit.place), edit.content))
        return types.WorkspaceEdit(changes=changes)

    def quick_fix(self, finding: Finding) -> types.CodeAction | None:
        """The fix of a finding; ``None`` where it has none that could be applied."""
        fix = finding.fix
        if fix is None or not fix.edits or fix.safety is Safety.DISPLAY:
            return None
        title = f"{finding.code}: {fix.message}" + (" (unsafe: numerics, order or memory layout may change)" if fix.safety is Safety.UNSAFE else "")
        kind = types.CodeActionKind.QuickFix
        return types.CodeAction(title, kind, [self.diagnostic(finding)], is_preferred=fix.safety is Safety.SAFE, edit=self.edit(fix))

    def silencing(self, finding: Finding, source: Source) -> types.CodeAction | None:
        """The action that puts a comment beside a finding; ``None`` where none can stand."""
        edits = tuple(comments_for(source, [finding]))
        if not edits:
            return None
        kind = types.CodeActionKind.QuickFix
        return types.CodeAction(f"{finding.code}: disable for this line", kind, [self.diagnostic(finding)], edit=self.edit(Fix(Safety.SAFE, "", edits)))

    def replacement(self, before: str, after: str) -> types.TextEdit:
        """The edit of rows that turns one text into the other."""
        old, new = _ROW.findall(before), _ROW.findall(after)
        shortest = min(len(old), len(new))
        head = next((number for number in range(shortest) if old[number] != new[number]), shortest)
        tail = next((number for number in range(shortest - head) if old[-1 - number] != new[-1 - number]), shortest - head)
        end = types.Position(len(old) - tail, 0)
        if not tail and old and not old[-1].endswith(("\n", "\r")):
            end = types.Position(len(old) - 1, self._codec.client_num_units(old[-1]))
        return types.TextEdit(types.Range(types.Position(head, 0), end), "".join(new[head : len(new) - tail]))


def overlaps(one: types.Range, other: types.Range) -> bool:
    """Whether two spans touch."""
    return _pair(one.start) <= _pair(other.end) and _pair(other.start) <= _pair(one.end)


def _pair(position: types.Position) -> tuple[int, int]:
    return position.line, position.character


def explanation(codes: Iterable[str]) -> str:
    """The pages of rules, as Markdown."""
    rules = map(registry.load, dict.fromkeys(codes))
    return "\n\n---\n\n".join(f"# {rule.slug} ({rule.code})\n\n{status(rule)}{page(rule).text}" for rule in rules)
