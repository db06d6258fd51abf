"""A report of GitLab's code quality."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from oomlint.output.fingerprints import numbered, relative
from oomlint.output.github import level_of, more_of, repository
from oomlint.output.physical import physical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oomlint.finding import Finding
    from oomlint.output.github import Remark
    from oomlint.output.view import View

_SEVERITIES: Final = {"error": "critical", "warning": "major", "notice": "minor"}


def text(findings: Iterable[Finding], view: View, remark: Callable[[Finding], Remark | None] = lambda _: None) -> str:
    """The array. Paths are relative to the root of the repository that the view's folder is in."""
    root = repository(view.folder)
    entries = [_entry(item, fingerprint, root, view, remark(item)) for item, fingerprint in numbered(findings, view, root)]
    return json.dumps(entries, indent=2) + "\n"


def _entry(item: Finding, fingerprint: str, root: str, view: View, remark: Remark | None) -> dict[str, object]:
    place = physical(item.place, view)
    cell = f"cell {item.place.cell}, {item.place.row}:{item.place.column}: " if item.place.cell else ""
    message = f"{cell}{'' if item.code else 'cannot check: '}{item.message}{f' ({remark.title})' if remark else ''}"
    more = more_of(item, remark)
    return {
        "description": f"{item.code}: {message}" if item.code else message,
        "check_name": item.name,
        "fingerprint": fingerprint,
        "severity": _SEVERITIES[level_of(item, remark)],
        "location": {"path": relative(item.place.path, root), "lines": {"begin": place.row, "end": place.end_row}},
        **({"content": {"body": "\n\n".join(more)}} if more else {}),
    }
