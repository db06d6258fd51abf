"""Comments that silence findings, and the report of those that silence nothing.

Three forms, each with codes or prefixes of codes:

- ``# noqa: OOM101`` at the end of a line, in any case, as flake8 reads it; a bare ``# noqa`` silences every rule;
- ``# oomlint: ignore[OOM101]`` at the end of a line, or on a line of its own for the whole logical line below;
- ``# oomlint: file-ignore[OOM101]`` anywhere, for the whole file. Without brackets, the last two silence every rule. ``# ruff: noqa: OOM101`` and
  ``# flake8: noqa: OOM101`` do the same, and so does ``# oomlint: ignore`` without codes above the first statement of a program, as mypy reads it.

Where a comment counts: a finding belongs to the logical line in which it begins (of a compound statement, the header). A comment on the first or the
last physical line of that logical line silences it, and so does one on any physical line that the finding itself covers. A comment beside *another*
entry of a long call or dictionary does not. On a line of its own between brackets, ``oomlint: ignore`` stands for the line of code below it.
A file that cannot be read has no such comments: its one finding, which has no code, always stays.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_right
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from oomlint.beside_code import beside
from oomlint.catalogue import catalogue, code_of
from oomlint.finding import Confidence, Consequence, Edit, Finding, Fix, Place, Resource, Safety, Severity, Weight
from oomlint.patterns import pattern
from oomlint.rows import ROW_END

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from oomlint.source import Source

UNUSED: Final = "OOM001"
UNUSED_NAME: Final = "unused-suppression"

_MENTION: Final = pattern(r"(?i:noqa)|oomlint[ \t]*:")
_OWN_MENTION: Final = pattern(r"(?i:noqa[ \t]*:[^\r\n]*(?:\boom\d|[a-z0-9]-[a-z])|(?:ruff|flake8)[ \t]*:[ \t]*noqa\b)|oomlint[ \t]*:")
_IGNORE: Final = pattern(r"#[ \t]*oomlint[ \t]*:[ \t]*(?P<form>file-ignore|ignore)(?![\w-])(?:[ \t]*\[(?P<codes>[^\]#]*)\])?")
# Meant for us, or for the whole file of another linter, and read as nothing.
_IN_VAIN: Final = pattern(
    r"#[ \t]*(?:(?P<own>oomlint[ \t]*:[ \t]*(?:noqa|ignore|file-ignore|disable|skip|off)\b[^#]*)|(?i:(?:ruff|flake8)[ \t]*:[ \t]*noqa\b))"
)
_ITEM: Final = pattern(r"[^\s,]+")
_OWN_CODE: Final = pattern(r"OOM\d*")
_FOREIGN_CODE: Final = pattern(r"(?!OOM)[A-Z]+\d+")
NOWHERE: Final = -1
_WEIGHT: Final = Weight(Consequence.ONCE, Resource.NOTHING)


@cache
def _noqa(names: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """How ``noqa`` is written: for a line, and for the whole file to a linter by its name, which with a code of ours is to us, too."""
    item = rf"(?:(?:{'|'.join(map(re.escape, names))})(?![\w-])|[a-z]+[0-9]+\b)"
    codes = rf"[ \t]*:[ \t]*(?P<codes>{item}(?:[, \t]+{item})*)"
    return re.compile(rf"#[ \t]*noqa\b(?:{codes})?", re.IGNORECASE), re.compile(rf"#[ \t]*(?:ruff|flake8)[ \t]*:[ \t]*noqa{codes}", re.IGNORECASE)


class _Code(NamedTuple):
    """A code as a comment writes it."""

    code: str  # in capitals
    start: int  # characters from the beginning of the comment
    end: int


class Comment(NamedTuple):
    """A comment and what it stands beside."""

    row: int
    column: int
    text: str
    alone: bool  # on a line of its own
    line: int  # index of the logical line that it is in, or that follows
    row_below: int  # the next row with code in the same logical line; the comment's own where there is none


class Directive(NamedTuple):
    """One request to stay silent. Rows and columns are the program's."""

    comment: Comment
    start: int  # where the request begins and ends within the comment
    end: int
    noqa: bool
    codes: tuple[_Code, ...]  # none: every rule
    line: int | None  # index of the logical line that it is for; None: the whole file
    row: int | None  # the row that it stands for; None: the whole logical line


class Scan(Struct, frozen=True):
    """The comments of a program and its logical lines."""

    comments: tuple[Comment, ...]
    lines: tuple[tuple[int, int], ...]  # first and last row
    exact: bool = True  # read as tokens; else a comment may be the inside of a string

    def line_of(self, row: int) -> int:
        """The index of the logical line that holds a row."""
        index = bisect_right(self.lines, row, key=lambda line: line[0]) - 1
        return index if index >= 0 and row <= self.lines[index][1] else NOWHERE


class Suppressions(Struct, frozen=True, dict=True):
    """The comments of one file. They are looked for only when somebody asks."""

    source: Source

    @classmethod
    def from_source(cls, source: Source) -> Suppressions:
        """The suppressions of a file."""
        return cls(source)

    @cached_property
    def present(self) -> bool:
        """Whether a comment could silence something."""
        text = self.source.text
        return ("oomlint" in text or any(part in text for part in ("qa", "QA", "Qa", "qA"))) and bool(_MENTION.search(text))

    @cached_property
    def reportable(self) -> bool:
        """Whether a comment could be reported as unused. False for nearly all files, found without reading their tokens."""
        return self.present and bool(_OWN_MENTION.search(self.source.text))

    @cached_property
    def scan(self) -> Scan:
        """The comments and logical lines of the file."""
        text = ROW_END.sub("\n", self.source.text)
        return (_by_tokens(text) if beside(self.source.path) is None else None) or _by_rows(text)

    @cached_property
    def directives(self) -> tuple[Directive, ...]:
        """What the comments ask for."""
        return tuple(directive for comment in self.scan.comments for directive in _requests(comment, exact=self.scan.exact)) if self.present else ()

    def silencing(self, finding: Finding) -> list[tuple[Directive, frozenset[str]]]:
        """The comments that silence a finding, each with those of its codes that fit."""
        if finding.code is None or not self.present:
            return []
        first = self.source.program_row(finding.place)
        last = first + finding.place.end_row - finding.place.row
        line = self.scan.line_of(first)
        rows = {*self.scan.lines[line], *range(first, min(last, self.scan.lines[line][1]) + 1)} if line != NOWHERE else set()
        found = []
        for directive in self.directives:
            names = frozenset(item.code for item in directive.codes if finding.code.startswith(item.code))
            here = directive.line is None or (directive.line == line and (directive.row is None or directive.row in rows))
            if here and (names or not directive.codes):
                found.append((directive, names))
        return found

    def needs(self, unused: Finding, finding: Finding) -> bool:
        """Whether a finding is silenced by codes that were reported as ``unused``."""
        spots = (place_in(self.source, each, item.start, item.end) for each, names in self.silencing(finding) for item in each.codes if item.code in names)
        begin, end = (unused.place.cell, unused.place.row, unused.place.column), unused.place.end_column
        return any(begin <= (spot.cell, spot.row, spot.column) and spot.row == unused.place.row and spot.end_column <= end for spot in spots)

    def unused(
        self, used: Collection[tuple[Directive, str]], selected: Collection[str], known: Collection[str], gravest: Severity = Severity.NOTE
    ) -> Iterator[Finding]:
        """A finding for every comment that names in vain a code of ours. ``gravest`` is what is found in the file beside."""
        if not self.reportable or not self.scan.exact:
            return
        for directive in self.directives:
            idle = [item for item in directive.codes if (directive, item.code) not in used and _is_idle(item.code, directive, selected, known)]
            if idle:
                finding = _report(self.source, directive, idle, known)
                if all(each is directive and UNUSED not in names for each, names in self.silencing(finding)):
                    yield finding
        yield from (finding for finding in self._in_vain(gravest) if not self.silencing(finding))

    def _in_vain(self, gravest: Severity) -> Iterator[Finding]:
        """A finding for every comment to us that asks for nothing that there is, and one for the first to another linter alone.

        That is a note, unless there is something graver in the file, which it may have been meant for.
        """
        heard = {(each.comment.row, each.start) for each in self.directives}
        others = 0
        for comment in self.scan.comments:
            for match in _IN_VAIN.finditer(comment.text):
                if (comment.row, match.start()) in heard:
                    continue
                others += match["own"] is None
                if match["own"] is None and others > 1:
                    continue
                row, column = comment.row, comment.column + match.start()
                written = match[0].strip()
                place = self.source.place(row, column, row, column + len(written))
                own = match["own"] is not None
                severity = Severity.WARNING if own or gravest is not Severity.NOTE else Severity.NOTE
                yield _vain(place, written, severity, own=own)


def apply(findings: Iterable[Finding], suppressions: Suppressions, selected_codes: Collection[str], known_codes: Collection[str] = ()) -> tuple[Finding, ...]:
    """The findings that no comment silences, then one for every comment that silences nothing (where OOM001 is selected).

    ``findings`` are all that the selected rules say, before severity and confidence filter them: a comment over a finding that is not shown is in use.
    A code that is not selected in this run is not reported, nor is a bare ``# noqa``, nor a code of another tool. ``known_codes`` (every code of the
    catalogue), where given, also lets prefixes be judged exactly and codes that do not exist be reported.
    """
    kept = []
    used: set[tuple[Directive, str]] = set()
    for finding in findings:
        silencing = suppressions.silencing(finding)
        used.update((directive, name) for directive, names in silencing for name in names)
        if not silencing:
            kept.append(_without_silenced(finding, suppressions, used))
    if UNUSED in selected_codes:
        gravest = min((item.severity for item in kept), key=lambda severity: severity.rank, default=Severity.NOTE)
        kept += suppressions.unused(used, selected_codes, {*known_codes, UNUSED} if known_codes else (), gravest)
    return tuple(kept)


def _without_silenced(finding: Finding, suppressions: Suppressions, used: set[tuple[Directive, str]]) -> Finding:
    """A finding without those of its other places that a comment silences, which is in ``used`` then."""
    silent = set()
    for one in finding.alike[1:]:
        silencing = suppressions.silencing(one) if one.place.path == finding.place.path else []
        used.update((directive, name) for directive, names in silencing for name in names)
        silent |= {one.place} if silencing else set()
    if not silent:
        return finding
    rows = {(place.cell, row) for place in silent for row in range(place.row, place.end_row + 1)}
    fix = finding.fix
    if fix is not None:
        fix = replace(fix, edits=tuple(edit for edit in fix.edits if (edit.place.cell, edit.place.row) not in rows))
    return replace(finding, related=tuple(place for place in finding.related if place.saying("") not in silent), fix=fix)


# Comments


def _by_tokens(text: str) -> Scan | None:
    """The scan of a program; None where it cannot be read as tokens."""
    import tokenize  # noqa: PLC0415 - only for files with such comments

    layout = {tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    comments: list[Comment] = []
    lines: list[tuple[int, int]] = []
    first = last = 0  # rows of the logical line so far; 0 between two
    waiting = 0  # comments before this index know their row below
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            row, column = token.start
            if token.type == tokenize.COMMENT:
                comments.append(Comment(row, column + 1, token.string, row != last, len(lines), row))
                if not first:
                    waiting = len(comments)
            elif token.type == tokenize.NEWLINE:
                lines.append((first, row))
                first, waiting = 0, len(comments)
            elif token.type not in layout:
                first, last = first or row, token.end[0]
                comments[waiting:] = [each._replace(row_below=row) if each.alone else each for each in comments[waiting:]]
                waiting = len(comments)
    except (tokenize.TokenError, SyntaxError):
        return None
    return Scan(tuple(comments), tuple(lines))


def _by_rows(text: str) -> Scan:
    """The scan of a text that is no program of Python: each row with code is a logical line, with those that a backslash adds; ``#`` begins a comment."""
    comments = []
    lines: list[tuple[int, int]] = []
    goes_on = False
    for row, line in enumerate(text.split("\n"), 1):
        code, mark, comment = line.partition("#")
        if mark:
            comments.append(Comment(row, len(code) + 1, mark + comment, not code.strip(), len(lines) - goes_on, row))
        if goes_on:
            lines[-1] = (lines[-1][0], row)
        elif code.strip():
            lines.append((row, row))
        goes_on = bool(lines) and lines[-1][1] == row and not mark and code.endswith("\\")
    return Scan(tuple(comments), tuple(lines), exact=False)


def _requests(comment: Comment, *, exact: bool) -> Iterator[Directive]:
    for_line, for_file = _noqa(tuple(slug for _, slug in catalogue()))
    for match in for_line.finditer(comment.text):
        # Like flake8: on a line of its own it speaks of that line, where nothing is, unless it stands between brackets.
        line = comment.line if not comment.alone or comment.row_below != comment.row else NOWHERE
        yield Directive(comment, match.start(), match.end(), noqa=True, codes=_codes(match), line=line, row=comment.row)
    for match in for_file.finditer(comment.text):
        yield Directive(comment, match.start(), match.end(), noqa=True, codes=_codes(match), line=None, row=None)
    for match in _IGNORE.finditer(comment.text):
        codes = _codes(match)
        if match["codes"] is not None and not codes:
            continue  # `ignore[]` names nothing
        if match["codes"] is None and re.match(r"[ \t]*(\[|[A-Za-z]+\d)", comment.text[match.end() :]):
            continue  # a code was meant, and a typo must not silence every rule
        on_top = exact and comment.alone and comment.line == 0 and comment.row_below == comment.row
        target = None if match["form"] == "file-ignore" or (on_top and not codes) else comment.line
        row = None if comment.alone and comment.row_below == comment.row else comment.row_below
        yield Directive(comment, match.start(), match.end(), noqa=False, codes=codes, line=target, row=row)


def _codes(match: re.Match[str]) -> tuple[_Code, ...]:
    if match["codes"] is None:
        return ()
    start = match.start("codes")
    return tuple(_Code(code_of(item[0]), start + item.start(), start + item.end()) for item in _ITEM.finditer(match["codes"]))


# Reports


def _is_idle(code: str, directive: Directive, selected: Collection[str], known: Collection[str]) -> bool:
    """Whether a code that silenced nothing may be called unused."""
    if code == UNUSED or (directive.noqa and not _OWN_CODE.fullmatch(code)):
        return False
    reach = [each for each in known if each.startswith(code)]
    if known and not reach:
        # No such rule; of another family, it may be one of a plugin that is not here.
        return not (_FOREIGN_CODE.fullmatch(code) and not any(each.rstrip("0123456789") == code.rstrip("0123456789") for each in known))
    return all(each in selected for each in reach) if known else any(each.startswith(code) for each in selected)


def _report(source: Source, directive: Directive, idle: list[_Code], known: Collection[str]) -> Finding:
    whole = len(idle) == len(directive.codes)
    start, end = (directive.start, directive.end) if whole else (idle[0].start, idle[-1].end)
    unknown = [item.code for item in idle if known and not any(each.startswith(item.code) for each in known)]
    silent = [item.code for item in idle if item.code not in unknown]
    causes = [f"no finding of {', '.join(silent)} here"] if silent else []
    causes += [f"no rule is named {', '.join(unknown)}"] if unknown else []
    edit = _without_directive(source, directive) if whole else _without_codes(source, directive, idle)
    fix = Fix(Safety.SAFE, "remove what silences nothing", (edit,))
    place, cause = place_in(source, directive, start, end), ", and ".join(causes)
    on_top = directive.line == 0 and directive.comment.alone and not directive.noqa and bool(silent)
    return Finding(
        UNUSED,
        UNUSED_NAME,
        "Unused suppression",
        Severity.WARNING,
        Confidence.HIGH,
        place,
        fix=fix,
        weight=_WEIGHT,
        consequence=cause,
        help=f"{fix.message}{', or write `file-ignore` for the whole file' if on_top else ''}",
    )


def _vain(place: Place, written: str, severity: Severity, *, own: bool) -> Finding:
    """What is said of a comment that asks for nothing that there is."""
    cause = f"oomlint knows no comment `{written}`" if own else f"`{written}` without a code of oomlint silences other linters only"
    advice = "write `# oomlint: ignore[CODE]` at the end of the line, or `# oomlint: file-ignore[CODE]` for the whole file"
    return Finding(UNUSED, UNUSED_NAME, "Unused suppression", severity, Confidence.HIGH, place, weight=_WEIGHT, consequence=cause, help=advice)


def place_in(source: Source, directive: Directive, start: int, end: int) -> Place:
    """A part of a comment, by the characters in it."""
    row, column = directive.comment.row, directive.comment.column
    return source.place(row, column + start, row, column + end)


def _without_directive(source: Source, directive: Directive) -> Edit:
    """Take the request away: with its comment and its line where nothing else is in them; other words stay a comment."""
    text = directive.comment.text
    place = place_in(source, directive, 0, len(text))
    before, after = text[: directive.start].rstrip(), text[directive.end :].strip()
    if before or after:
        rest = after if before or after.startswith("#") else f"# {after}"
        return Edit(place, "  ".join(part for part in (before, rest) if part))
    line = source.line(place.row, place.cell)
    code = line[: place.column - 1].rstrip()
    below = Place(place.path, place.cell, place.row, 1, place.row + 1, 1)
    if not code and _exists(source, below):
        return Edit(below, "")
    return Edit(Place(place.path, place.cell, place.row, len(code) + 1, place.row, len(line) + 1), "")


def _exists(source: Source, place: Place) -> bool:
    try:
        source.offsets(place)
    except ValueError:
        return False
    return True


def _without_codes(source: Source, directive: Directive, idle: list[_Code]) -> Edit:
    """Take some of the codes away; the others keep their spelling and the separator that the list uses."""
    codes, text = directive.codes, directive.comment.text
    kept = (text[item.start : item.end] for item in codes if item not in idle)
    return Edit(place_in(source, directive, codes[0].start, codes[-1].end), text[codes[0].end : codes[1].start].join(kept))
