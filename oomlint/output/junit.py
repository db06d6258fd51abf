"""JUnit XML: a suite for each file with findings, in it a test that fails for each of them; one test that passes where there are none.

One whose remark makes it a notice passes, with words of its own.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from oomlint.finding import Severity
from oomlint.output.github import more_of
from oomlint.output.view import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oomlint.finding import Finding
    from oomlint.output.github import Remark
    from oomlint.output.view import View


def text(findings: Iterable[Finding], view: View, remark: Callable[[Finding], Remark | None] = lambda _: None) -> str:
    """The document, in ASCII, so that any encoding of the stream holds it."""
    items = sorted(findings, key=lambda item: item.sort_key)
    passed = [item for item in items if _passes(item, remark(item))]
    errors = sum(item.code is None for item in items)
    root = ET.Element("testsuites", name="oomlint", tests=str(max(len(items), 1)), failures=str(len(items) - len(passed) - errors), errors=str(errors))
    for path, group in groupby(items, key=lambda item: item.place.path):
        members = list(group)
        errors = sum(item.code is None for item in members)
        suite = _suite(root, _safe(view.name(path)), len(members), sum(item not in passed for item in members) - errors, errors)
        for item in members:
            _case(suite, item, view, remark(item))
    if not items:
        ET.SubElement(_suite(root, "oomlint", 1, 0, 0), "testcase", name="org.oomlint", classname="oomlint")
    ET.indent(root)
    body: bytes = ET.tostring(root, "us-ascii", xml_declaration=False)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body.decode("ascii")}\n'


def _passes(item: Finding, remark: Remark | None) -> bool:
    return item.code is not None and remark is not None and remark.level == "notice"


def _suite(root: ET.Element, name: str, tests: int, failures: int, errors: int) -> ET.Element:
    return ET.SubElement(root, "testsuite", name=name, package="org.oomlint", tests=str(tests), failures=str(failures), errors=str(errors), skipped="0")


def _case(suite: ET.Element, item: Finding, view: View, remark: Remark | None) -> None:
    name = _safe(view.name(item.place.path))
    about = {"name": f"org.oomlint.{item.code or item.name}", "classname": name.rpartition(".")[0] or name, "file": name}
    case = ET.SubElement(suite, "testcase", about, line=str(item.place.row), column=str(item.place.column))
    if _passes(item, remark):
        told = ET.SubElement(case, "system-out")
    else:
        kind = "error" if item.code is None else "failure"
        told = ET.SubElement(case, kind, message=_safe(item.message), type=item.severity.value if item.code else Severity.ERROR.value)
    spots = [f"{view.spot(item.place)}: {item.message}", *(f"{view.spot(place)}: {place.message}" for place in item.related if place.message)]
    told.text = _safe("\n".join([*spots, *more_of(item, remark)]))


def _safe(words: str) -> str:
    """What XML can hold: no control characters, and no halves of characters."""
    return "\n".join(map(visible, words.split("\n"))).encode(errors="backslashreplace").decode().replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")
