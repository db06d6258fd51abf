"""The baseline: a file of findings that are known, and that a check neither shows nor fixes."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from oomlint.beside_code import beside
from oomlint.cache import typed
from oomlint.cli.files import write_report
from oomlint.config import ConfigError
from oomlint.discovery import PerFileIgnores
from oomlint.finding import Confidence, Severity
from oomlint.output.fingerprints import Fingerprints
from oomlint.output.view import View
from oomlint.registry import catalogue
from oomlint.source import is_special

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from oomlint.config import Settings
    from oomlint.engine import CheckReport
    from oomlint.finding import Finding

_VERSION: Final = 1  # of the file's format and of how fingerprints are made
_HEAD: Final = re.compile(rf'"version": {_VERSION}\b')


class Entry(NamedTuple):
    """A finding that is known. Only the fingerprint tells it from others; the rest says what it is, to people and to runs that check less."""

    file: str  # from the folder of the baseline
    definition: str
    code: str
    name: str
    severity: Severity
    confidence: Confidence
    fingerprint: str


@dataclass(frozen=True, slots=True)
class BaselineScope:
    """What a run looks at: an entry that lies outside of it is not gone because it is not found."""

    settings: Settings
    root: str
    codes: Collection[str]
    paths: Sequence[str]  # that the line names
    usual: bool = True  # False: settings hold for this run alone, and what it does not find may be found by others

    def leaves_out(self, path: str, code: str) -> bool:
        """Whether the rule is not asked about the file, or not as other runs ask it."""
        ignored = PerFileIgnores(self.settings, self.root).codes(path)
        return not self.usual or "ALL" in ignored or code.startswith(tuple(ignored)) or not (code in self.codes or code not in dict(catalogue()))


class Baseline:
    """The findings of a file, and how they are told from new ones."""

    def __init__(self, path: str, entries: Iterable[Entry], folder: str, overlay: Mapping[str, bytes]) -> None:
        """``overlay`` has contents that stand in for files."""
        self.path = path
        self._folder = os.path.dirname(os.path.abspath(path))
        self._here = folder
        self._overlay = overlay
        self._entries = {entry.fingerprint: entry for entry in entries}
        self._found: set[str] = set()
        self._before = self._fingerprints({})

    def knows(self, finding: Finding) -> bool:
        """Whether all places of a finding are known, or others of the same statements: it is not fixed then."""
        return finding.code is not None and all(mark in self._entries for mark in self._before.of(_each([finding])))

    def filtered(self, report: CheckReport) -> CheckReport:
        """The report with what is not known: a finding that stands for several places is, if one of them is new."""
        findings = [item for item in report.findings if item.code is not None]
        marks = iter(self._after(report).of(_each(findings)))
        by_finding = {item: [next(marks) for _ in item.alike] for item in findings}
        self._found = {mark for each in by_finding.values() for mark in each}
        new = {item for item, each in by_finding.items() if any(mark not in self._entries for mark in each)}
        return replace(report, findings=tuple(item for item in report.findings if item.code is None or item in new))

    def gone(self, report: CheckReport, scope: BaselineScope) -> int:
        """How many known findings a run has looked for and not found."""
        checked = _looked_at(report)
        return sum(entry.fingerprint not in self._found and self._reached(entry, checked, scope) for entry in self._entries.values())

    def write(self, report: CheckReport, scope: BaselineScope) -> int:
        """Write all findings of a report to the file, beside those that the run could not find; at how many places. Raises ConfigError."""
        findings = _each(item for item in report.findings if item.code is not None)
        marks = self._after(report)
        fresh = [_entry(item, mark, marks) for item, mark in zip(findings, marks.of(findings), strict=True)]
        checked = _looked_at(report)
        rest = [entry for entry in self._entries.values() if not self._reached(entry, checked, scope)]
        write_report(self.path, text([*fresh, *rest]))
        self._entries = {entry.fingerprint: entry for entry in (*fresh, *rest)}
        return len(fresh)

    def _reached(self, entry: Entry, checked: Collection[str], scope: BaselineScope) -> bool:
        path = os.path.normpath(os.path.join(self._folder, entry.file))
        named = any(os.path.join(path, "").startswith(os.path.join(os.path.abspath(each), "")) for each in scope.paths)
        if not (path in checked or (named and (beside(path) is not None or not os.path.lexists(path)))):
            return False
        shown = entry.severity.rank <= scope.settings.severity.rank and entry.confidence.rank <= scope.settings.min_confidence.rank
        return shown and not scope.leaves_out(path, entry.code)

    def _after(self, report: CheckReport) -> Fingerprints:
        """Fingerprints of what a report says, which may be of files that it has changed."""
        return self._fingerprints({change.path: change.after for change in report.changes})

    def _fingerprints(self, changed: Mapping[str, bytes]) -> Fingerprints:
        return Fingerprints(View(self._here, {**self._overlay, **changed}), self._folder)


def _at_number(finding: Finding) -> Finding:
    """The finding at the number that a file beside the code gives, if it comes from one: the same loader may be given another one elsewhere."""
    return replace(finding, place=finding.given[0]) if finding.given else finding


def _each(findings: Iterable[Finding]) -> list[Finding]:
    """Findings at each of their places."""
    return [_at_number(one) for item in findings for one in item.alike]


def read(path: str, option: str, folder: str, overlay: Mapping[str, bytes], *, new: bool = False) -> Baseline:
    """The baseline of a file. Raises ConfigError, unless it is to be ``new`` and is not there, or is a broken one: of that the entries are kept that fit."""
    if is_special(path):
        raise ConfigError(f"{option}: {path}: not a regular file")
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except FileNotFoundError as error:
        if not new:
            raise ConfigError(f"{option}: {path}: {error.strerror}; --write-baseline makes it") from None
        return Baseline(path, (), folder, overlay)
    except OSError as error:
        raise ConfigError(f"{option}: {path}: {error.strerror or error}") from None
    try:
        entries = _entries(path, data)
    except ConfigError:
        rescued = _rescued(data) if new else None
        if rescued is None:
            raise
        entries = rescued
    return Baseline(path, entries, folder, overlay)


def _looked_at(report: CheckReport) -> set[str]:
    """The files that the rules have seen: of one that cannot be read nobody knows what is in it."""
    return {*report.checked} - {item.place.path for item in report.findings if item.code is None} - {*report.old}


def text(entries: Iterable[Entry]) -> str:
    """The content of a file, an entry a line, so that changes of it can be read and joined."""
    rows = ",\n  ".join(json.dumps(entry._asdict()) for entry in sorted(set(entries)))
    listed = f"[\n  {rows}\n ]" if rows else "[]"
    return f'{{\n "version": {_VERSION},\n "findings": {listed}\n}}\n'


def _entry(finding: Finding, fingerprint: str, marks: Fingerprints) -> Entry:
    spot = marks.spot(finding)
    return Entry(marks.file(finding), spot.definition, finding.code or "", finding.name, finding.severity, finding.confidence, fingerprint)


def _entries(path: str, data: bytes) -> list[Entry]:
    wrong = f"{path}: not a baseline of oomlint"
    try:
        document: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        where = f"not valid JSON at row {error.lineno}, column {error.colno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else "not valid JSON"
        raise ConfigError(f"{wrong}: {where}") from None
    if not isinstance(document, dict) or not isinstance(document.get("findings"), list):
        raise ConfigError(f"{wrong}: no list of findings")
    if document.get("version") != _VERSION:
        raise ConfigError(f"{wrong} that this version reads: its format is {document.get('version')!r}, not {_VERSION}")
    found = []
    for number, row in enumerate(document["findings"], 1):
        entry = _fitting(row)
        if entry is None:
            raise ConfigError(f"{wrong}: entry {number} of its findings does not fit")
        found.append(entry)
    return found


def _fitting(row: Any) -> Entry | None:
    try:
        return Entry(**{name: kind(typed(row[name], str)) for name, kind in _KINDS.items()})
    except (LookupError, TypeError, ValueError):
        return None


def _rescued(data: bytes) -> list[Entry] | None:
    """The entries of both sides of a merge, or of what is left of a file, which are a row each; ``None`` where it is no baseline of this version."""
    content = data.decode(errors="replace")
    if content.strip() and not (_HEAD.search(content) and '"findings"' in content):
        return None
    found = []
    for row in content.splitlines():
        with suppress(ValueError, RecursionError):
            found.append(_fitting(json.loads(row.strip().rstrip(","))))
    return [entry for entry in found if entry is not None]


_KINDS: Final[Mapping[str, Any]] = {
    "file": str,
    "definition": str,
    "code": str,
    "name": str,
    "severity": Severity,
    "confidence": Confidence,
    "fingerprint": str,
}
