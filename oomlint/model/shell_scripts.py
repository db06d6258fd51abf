"""What the text of a shell script says outside of its commands: the variables that it sets, and what it asks a batch system for."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from oomlint.patterns import pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

_ASSIGNED: Final = pattern(
    r"""^[ \t]*(export[ \t]+|readonly[ \t]+|declare[ \t]+|local[ \t]+)?(\w+)=
        ((?>\((?:[^()"'`$\#]|\$\w|\$\{\w+\}|"[^"\n]*"|'[^'\n]*'|(?<=\s)\#[^\n]*)*\)|(?:"[^"\n]*"|'[^'\n]*'|[^\s;\#"'])*))(?=([ \t]+[^\s;&|\#])?)""",
    re.MULTILINE | re.VERBOSE,
)
# What else may set a variable: an assignment behind another command or with `+=`, arithmetic, and commands that take its name.
_ASSIGNED_ELSEWHERE: Final = pattern(
    r"(?:[;&|({]|\b(?:then|do|else)\b|[;&|({][ \t]*export\b)[ \t]*(\w+)\+?=|^[ \t]*(\w+)\+=|\(\([ \t]*(\w+)[ \t]*(?:[-+*/]?=(?!=)|\+\+|--)", re.MULTILINE
)
_NAMES_SET: Final = pattern(r"(?<![\w.$-])(?:read|mapfile|readarray|unset|getopts|for|select|let|printf[ \t]+-v)[ \t]([^\n;|&]*)")
_LOOP: Final = pattern(r"(?:^|[;&|({]|\bdo\b)[ \t]*for[ \t]+(\w+)[ \t]+in[ \t]+([^;\n$`\"'*?{}()\[\]\\#&|]+)(?:;|\n)\s*do\b", re.MULTILINE)
_SHOWS: Final = pattern(r"(?:^|[;&|({]|\b(?:then|do|else)\b)[ \t]*cat\b([^\n]*)$", re.MULTILINE)
_INTO: Final = pattern(r">>?[ \t]*([^\s<>;&|]+)")
_NAME: Final = pattern(r"(?<![\w${-])[A-Za-z_]\w*")
_APART: Final = pattern(
    r"""\\.
    |(?P<comment>(?:(?<=[\s;&|()])|(?<![\s\S]))\#[^\n]*)
    |(?P<text>'[^']*(?:'|\Z)
        |"(?:\\.|[^"\\])*(?:"|\Z)
        |(?<!<)<<-?[ \t]*\\?(?P<quote>['"]?)(?P<mark>[A-Za-z_]\w*)(?P=quote)[^\n]*\n(?s:.*?)(?:^[ \t]*(?P=mark)[ \t]*\r?$|\Z))""",
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_FUNCTION: Final = pattern(
    r"^([ \t]*)(?:function[ \t]+[\w:-]+[ \t]*(?:\([ \t]*\))?|[\w:-]+[ \t]*\([ \t]*\))\s*[{(](?![^\n]*[;\s][})][ \t]*$).*?(?:^\1[})]|\Z)",
    re.MULTILINE | re.DOTALL,
)
_BATCH: Final = pattern(r"#SBATCH[ \t]")
_OPTION_WORD: Final = pattern(r"[^\s'\"]+|'[^'\n]*'|\"[^\"\n]*\"")


class ShellValue(NamedTuple):
    """A value that is written in the text, and its characters."""

    text: str
    start: int
    end: int


def assigned(content: str) -> dict[str, ShellValue | None]:
    """Variables that a script sets, with what it sets them to; ``None`` where that is not plain: more than once, in a function or a text, by a command."""
    comments, texts = _apart(content)
    functions = [match.span() for match in _FUNCTION.finditer(content)]
    found: dict[str, ShellValue | None] = {}
    for match in _ASSIGNED.finditer(content):
        start = match.start(2)
        if content.endswith(("\\\n", "\\\r\n"), 0, match.start()):
            continue  # a word of the command above
        half = match[3].startswith("(") and not match[3].endswith(")")
        plain = not (half or _within(start, texts) or _within(start, functions) or (match[1] or "").startswith("local") or (match[4] and not match[1]))
        found[match[2]] = ShellValue(match[3].strip("\"'"), match.start(3), match.end(3)) if plain and match[2] not in found else None
    for match in _ASSIGNED_ELSEWHERE.finditer(content):
        if not _within(match.start(match.lastindex or 0), comments):
            found[match[match.lastindex or 0]] = None
    for match in _NAMES_SET.finditer(content):
        if not _within(match.start(1), comments):
            found.update(dict.fromkeys(_NAME.findall(match[1])))
    return found


def loops(content: str) -> dict[str, list[ShellValue]]:
    """Variables that a loop over words alone sets, with these words, each of which is one turn."""
    found: dict[str, list[list[ShellValue]]] = {}
    for match in _LOOP.finditer(content):
        found.setdefault(match[1], []).append([ShellValue(one[0], *one.span()) for one in re.compile(r"\S+").finditer(content, *match.span(2))])
    others = {*(match[2] for match in _ASSIGNED.finditer(content)), *(match[match.lastindex or 0] for match in _ASSIGNED_ELSEWHERE.finditer(content))}
    return {name: lists[0] for name, lists in found.items() if len(lists) == 1 and name not in others}


def shown(content: str) -> list[tuple[int, int]]:
    """The characters of here-documents that are printed: neither does a pipe take them, nor a file that the script names again."""
    found = []
    for match in _APART.finditer(content):
        begin = content.rfind("\n", 0, match.start()) + 1
        said = _SHOWS.search(content[begin : match.start()]) if match["mark"] else None
        if said is not None:
            row = said[1] + content[match.start() : match.end()].partition("\n")[0]
            into = _INTO.search(row.replace("<<", ""))
            if "|" not in row and (into is None or content.count(os.path.basename(into[1])) == 1):
                found.append(match.span())
    return found


def _apart(content: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The characters of comments, and those of texts in quotes and here-documents."""
    matches = [match for match in _APART.finditer(content) if match.lastgroup]
    return [match.span() for match in matches if match["comment"] is not None], [match.span() for match in matches if match["comment"] is None]


def _within(index: int, spans: list[tuple[int, int]]) -> bool:
    number = bisect_right(spans, (index, 0)) - 1
    return number >= 0 and spans[number][0] < index < spans[number][1]


def batch_options(content: str) -> Iterator[tuple[str, ShellValue]]:
    """The options that ``sbatch`` reads in a script, with their values: it stops at the first command."""
    at = 0
    for line in content.splitlines(keepends=True):
        if line.strip() and not line.startswith("#"):
            return
        if _BATCH.match(line):
            yield from options(content, at + len("#SBATCH"), at + len(line))
        at += len(line)


def options(content: str, start: int, end: int) -> Iterator[tuple[str, ShellValue]]:
    """The options of ``sbatch`` that stand between two characters, with their values."""
    words = []
    for match in _OPTION_WORD.finditer(content, start, end):
        if match[0].startswith("#"):
            break
        words.append(ShellValue(match[0].strip("\"'"), *match.span()))
    for number, word in enumerate(words):
        following = words[number + 1] if number + 1 < len(words) else ShellValue("", word.end, word.end)
        name, equals, _ = word.text.partition("=")
        if word.text.startswith("--"):
            size = len(name) + 1
            yield name, ShellValue(word.text[size:], word.start + size, word.end) if equals else following
        elif word.text.startswith("-"):
            yield (
                word.text[:2],
                ShellValue(word.text[2:].removeprefix("="), word.end - len(word.text[2:].removeprefix("=")), word.end) if word.text[2:] else following,
            )
