"""What is left open in scripts of a shell and in Makefiles. Where one cannot be sure, nothing is."""

from __future__ import annotations

import re
from typing import Final

from oomlint.patterns import pattern

_OTHER_LANGUAGE: Final = pattern(r"#!(?![^\n]*\b(?:ba|da|k|z|a)?sh\b)")
_SHELL: Final = pattern(
    r"""\\.
    |(?P<comment>(?:(?<=[\s;&|()`])|(?<![\s\S]))\#[^\n]*)
    |(?P<case>\bcase\b)
    |(?P<here><<<|<<-?[ \t]*\\?(?P<mark>['"]?[\w.!@+-]+['"]?))
    |(?P<open>\$\(\(|\(\(|\$\(|\(|\$\{)
    |(?P<ansi>\$')
    |(?P<one>[)}'"`\n])""",
    re.VERBOSE | re.DOTALL,
)
_ANSI: Final = pattern(r"(?:\\.|[^'\\])*'", re.DOTALL)
_ROWS: Final = pattern(r"(?:[^\\\n]|\\\r?\n|\\.|\\\Z)+")  # of a Makefile, continued ones as one
_COMMENT: Final = pattern(r"(?<!\\)#.*", re.DOTALL)
_REFERENCE: Final = pattern(r"\$\$|(?P<open>\$?[({])|(?P<close>[)}])")
_WORD: Final = pattern(r"[ \t]*(\w+)[ \t]*")


def in_shell(text: str) -> int | None:
    """Where a quote begins that never ends."""
    if _OTHER_LANGUAGE.match(text):
        return None
    opened: list[tuple[str, int]] = []
    marks: list[str] = []  # of here-documents that begin in the next row
    at = 0
    while (match := _SHELL.search(text, at)) is not None:
        at = match.end()
        kind, inside = match.lastgroup if match["here"] is None else "here", opened[-1][0] if opened else ""
        written = match[0]
        if inside == '"' and written not in {'"', "`", "$(", "$((", "${"}:
            if kind in {"comment", "here", "ansi", "open"}:
                at = match.start() + 1
        elif kind == "case" and any(one == "(" for one, _ in opened):
            return None  # its patterns close what nobody has opened
        elif kind == "here":
            if match["mark"] and inside != "((":
                marks.append(match["mark"].strip("'\""))
        elif kind == "open":
            opened += [(written.lstrip("$"), match.start())]
        elif kind == "ansi":
            end = _ANSI.match(text, at)
            if end is None:
                return match.start() + 1
            at = end.end()
        elif written == "'":
            if inside == "{" and any(one == '"' for one, _ in opened):
                return None  # what it means depends on the operator
            at = text.find("'", at) + 1
            if not at:
                return match.start()
        elif written in {'"', "`"}:
            _close_or_open(opened, written, match.start())
        elif (written, inside) in {(")", "("), ("}", "{")}:
            opened.pop()
        elif (written, inside) == (")", "(("):
            opened[-1:] = [("(", opened[-1][1])]
        elif written == "\n" and marks:
            at = _behind_documents(text, at, marks)
            marks = []
    return opened[-1][1] if opened and opened[-1][0] in {'"', "`"} else None


def _close_or_open(opened: list[tuple[str, int]], quote: str, index: int) -> None:
    if opened and opened[-1][0] == quote:
        opened.pop()
    else:
        opened.append((quote, index))


def _behind_documents(text: str, at: int, marks: list[str]) -> int:
    for mark in marks:
        end = re.compile(rf"^\t*{re.escape(mark)}\r?$", re.MULTILINE).search(text, at)
        at = len(text) if end is None else end.end()
    return at


def in_makefile(text: str) -> tuple[int, str] | None:
    """Where a reference to a variable or a condition begins that never ends, and what that is."""
    conditions: list[int] = []
    defined = 0
    for match in _ROWS.finditer(text):
        row, start = match[0], match.start()
        said = _WORD.match(row) if not row.startswith("\t") else None
        word = said[1] if said is not None else ""
        defined += (word == "define") - (word == "endef")
        if defined or word == "endef":
            continue
        bare = row if row.startswith("\t") else _COMMENT.sub("", row)
        left, left_bare = _left_open(row), _left_open(bare)
        if left is not None and left_bare is not None:
            return start + left, "a reference to a variable is never closed"
        if word in {"ifeq", "ifneq"} and said is not None and bare[said.end() :].startswith("(") and bare.count("(") > bare.count(")"):
            return start + said.end(), f"the `(` of `{word}` is never closed"
        if word in {"ifeq", "ifneq", "ifdef", "ifndef"}:
            conditions.append(start)
        elif word == "endif" and conditions:
            conditions.pop()
    return (conditions[-1], "a condition without `endif`") if conditions else None


def _left_open(row: str) -> int | None:
    """Where the outermost reference begins that does not end in a row."""
    opened: list[tuple[str, int]] = []
    for match in _REFERENCE.finditer(row):
        written = match[0]
        if match["open"]:
            if written.startswith("$") or (opened and opened[-1][0] == written):
                opened.append((written[-1], match.start()))
        elif match["close"] and opened and (opened[-1][0], written) in {("(", ")"), ("{", "}")}:
            opened.pop()
    return opened[0][1] if opened else None
