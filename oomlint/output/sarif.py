"""SARIF 2.1.0, which code scanning of GitHub, Azure DevOps and editors read."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from oomlint import __version__, registry
from oomlint.finding import Confidence, Role, Safety, Severity
from oomlint.output.fingerprints import numbered, relative
from oomlint.output.github import repository
from oomlint.output.physical import physical, span
from oomlint.output.urls import HOME, address_of
from oomlint.rule import page
from oomlint.source import FileKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from oomlint.finding import Edit, Finding, Fix, Place
    from oomlint.output.github import Remark
    from oomlint.output.view import View

    More = Callable[[Finding], dict[str, object]]

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
_PROBLEMS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "recommendation"}
_PRECISIONS: Final = {Confidence.HIGH: "high", Confidence.MEDIUM: "medium", Confidence.LOW: "low"}
_CODE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_BASE: Final = "SRCROOT"  # the repository, by the name that is usual for it


def text(findings: Iterable[Finding], view: View, more: More = lambda _: {}, remark: Callable[[Finding], Remark | None] = lambda _: None) -> str:
    """The log. ``more`` gives properties of a finding, ``remark`` words behind its message."""
    return json.dumps(_Log(view, more, remark).log(list(findings)), indent=2) + "\n"


class _Log:
    def __init__(self, view: View, more: More, remark: Callable[[Finding], Remark | None]) -> None:
        self._view = view
        self._root = repository(view.folder)
        self._more = more
        self._remark = remark

    def log(self, findings: Sequence[Finding]) -> dict[str, Any]:
        """All of it."""
        # The least sure finding of a rule speaks for how precise it is.
        rules = {item.code or item.name: item for item in sorted(findings, key=lambda item: (item.code or "", item.name, item.confidence.rank))}
        driver = {
            "name": "oomlint",
            "version": __version__,
            "semanticVersion": __version__,
            "rules": [_rule(item) for item in rules.values()],
        }
        index = {name: number for number, name in enumerate(rules)}
        fixed = [item for item in findings if (said := self._remark(item)) and said.fixed]
        numbers = numbered([item for item in findings if item not in fixed], self._view, self._root)
        run = {
            "tool": {"driver": {**driver, **({"informationUri": HOME} if HOME else {})}},
            "columnKind": "unicodeCodePoints",
            "originalUriBaseIds": {_BASE: {"description": {"text": "the root of the repository"}}},
            "results": [self._result(item, fingerprint, index) for item, fingerprint in numbers],
            # What is no longer there is no result: whoever reads those would take it for a finding.
            **({"invocations": [{"executionSuccessful": True, "toolExecutionNotifications": [self._notice(item, index) for item in fixed]}]} if fixed else {}),
        }
        return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}

    def _result(self, item: Finding, fingerprint: str, index: dict[str, int]) -> dict[str, Any]:
        name = item.code or item.name
        remark = self._remark(item)
        message = f"{item.message}\n{remark.text}" if remark else item.message
        result: dict[str, Any] = {
            "ruleId": name,
            "ruleIndex": index[name],
            "level": _LEVELS[item.severity],
            "message": {"text": message if item.code else f"cannot check: {message}"},
            "locations": [self._location(item.place)],
            "partialFingerprints": {"primaryLocationLineHash": fingerprint, "oomlint/v1": fingerprint},
            "properties": {"confidence": item.confidence.value, **self._more(item)},
        }
        if item.related:
            result["relatedLocations"] = [{"id": number, **self._location(place)} for number, place in enumerate(item.related, 1)]
        chain = [place for place in item.related if place.message and place.role in {Role.WAY, Role.INSIDE}]
        if chain:
            result["codeFlows"] = [self._flow([*reversed(chain), item.place.saying(item.message)])]
        if item.help:
            result["properties"]["help"] = item.help
        if item.fix is not None and item.fix.edits and item.fix.safety is not Safety.DISPLAY:  # who reads `fixes` may apply them
            result["fixes"] = [self._fix(item.fix)]
        return result

    def _notice(self, item: Finding, index: dict[str, int]) -> dict[str, Any]:
        """That a finding is fixed, with its verdict."""
        remark, name = self._remark(item), item.code or item.name
        return {
            "level": "note",
            "message": {"text": f"{item.message}\n{remark.text}" if remark else item.message},
            "locations": [self._location(item.place)],
            "associatedRule": {"id": name, "index": index[name]},
            "properties": self._more(item),
        }

    def _flow(self, places: Sequence[Place]) -> dict[str, Any]:
        """The way of a value to the finding."""
        return {"threadFlows": [{"locations": [{"location": self._location(place)} for place in places]}]}

    def _location(self, place: Place) -> dict[str, Any]:
        here = physical(place, self._view)
        location: dict[str, Any] = {"physicalLocation": {"artifactLocation": self._artifact(place.path), "region": _region(here)}}
        if place.cell:
            location["logicalLocations"] = [{"name": f"cell {place.cell}", "fullyQualifiedName": f"cell {place.cell}, {place.row}:{place.column}"}]
        return location | ({"message": {"text": place.message}} if place.message else {})

    def _artifact(self, path: str) -> dict[str, str]:
        return {"uri": uri(relative(path, self._root)), "uriBaseId": _BASE}

    def _fix(self, fix: Fix) -> dict[str, Any]:
        by_path: dict[str, list[Edit]] = {}
        for edit in fix.edits:
            by_path.setdefault(edit.place.path, []).append(edit)
        changes = [
            {"artifactLocation": self._artifact(path), "replacements": [self._replacement(edit) for edit in sorted(edits, key=lambda edit: edit.place)]}
            for path, edits in by_path.items()
        ]
        return {"description": {"text": f"{fix.message} ({fix.safety.value} fix)"}, "artifactChanges": changes}

    def _replacement(self, edit: Edit) -> dict[str, Any]:
        region: dict[str, Any] = _region(physical(edit.place, self._view))
        where = span(edit.place, self._view)
        if where is not None:
            region |= {"charOffset": where.start, "charLength": where.end - where.start}
            region |= {"byteOffset": where.byte_start, "byteLength": where.byte_end - where.byte_start}
        return {"deletedRegion": region, "insertedContent": {"text": self._written(edit)}}

    def _written(self, edit: Edit) -> str:
        """What takes the place of a span, as the file spells it."""
        source = self._view.source(edit.place.path)
        if source is None:
            return edit.content
        if source.kind is FileKind.NOTEBOOK:
            return json.dumps(edit.content, ensure_ascii=source.data.isascii())[1:-1]
        return edit.content.replace("\n", source.newline)


def _region(place: Place) -> dict[str, Any]:
    return {"startLine": place.row, "startColumn": place.column, "endLine": place.end_row, "endColumn": place.end_column}


def _rule(item: Finding) -> dict[str, Any]:
    """What a rule says of itself. A file that cannot be checked is under one of no page."""
    if item.code is None:
        return {"id": item.name, "shortDescription": {"text": "a file that cannot be read or parsed"}, "defaultConfiguration": {"level": "error"}}
    rule = registry.load(item.code)
    about = page(rule)
    return {
        "id": item.code,
        "name": item.name,
        "shortDescription": {"text": _plain(about.summary)},
        "fullDescription": {"text": _plain(about.sections.get("Why is this bad", "") or about.summary)},
        "help": {"text": about.text, "markdown": about.text},
        **({"helpUri": address} if (address := address_of(item.code)) else {}),
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {
            "tags": ["memory", "pytorch"],
            "precision": _PRECISIONS[item.confidence],
            "problem.severity": _PROBLEMS[rule.severity],
            **({"preview": True} if rule.preview else {}),
        },
    }


def _plain(markdown: str) -> str:
    """The sentences, without tables and code and the sentence that leads to one: the page under ``help`` has these."""
    kept = [""]
    for part in _CODE.sub("|", markdown).split("\n\n"):
        if part.lstrip().startswith("|"):
            *before, last = re.split(r"(?<=\.) ", kept[-1])
            kept[-1] = " ".join(before if last.endswith(":") else [*before, last])
        else:
            kept.append(" ".join(part.split()))
    return " ".join(filter(None, kept))


def uri(name: str) -> str:
    """A relative path as a reference of a URI."""
    if name.startswith("/") or name[1:2] == ":":
        return PurePosixPath("/" + name.lstrip("/")).as_uri()
    return PurePosixPath("/" + name).as_uri().removeprefix("file:///")
