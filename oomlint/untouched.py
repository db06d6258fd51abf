"""What edits must leave alone: a program parses again, and its tokens outside of the edits are those that were there, each in its place."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from oomlint.rows import ROW_END, starts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Replacement = tuple[int, int, str]  # start and end in a text, and the characters that take their place

# They have no text of their own, and what is put between brackets has fewer of them. The bytes around them are compared all the same.
_LAYOUT: Final = frozenset({tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER})


_FORM_FEED: Final = re.compile(r"[ \t]*\f")


class HarmError(ValueError):
    """What edits would do besides what they are for, in a line."""


class Code(NamedTuple):
    """A program. In a notebook its rows are written in another way: masked, and further to the right by so many characters."""

    text: str
    source: str | None = None
    indents: tuple[int, ...] = ()


def check(before: Code, after: Code, replacements: Sequence[Replacement]) -> None:
    """Raise HarmError where ``after`` is not ``before`` with the replacements made, which are in order and spans of its source.

    Where ``before`` is no program for this Python, ``after`` need not be one: then its tokens alone are compared.
    """
    cause = mistake_in(after.text)
    if cause is not None and mistake_in(before.text) is None:
        raise HarmError(f"the result would not parse ({cause})")
    source = before.text if before.source is None else before.source
    old, new, shift = [], [], 0
    for start, end, content in replacements:
        row = ROW_END.split(source[:start] + content)[-1] if _FORM_FEED.match(source, end) else ""
        if content and row and not row.strip():
            raise HarmError("a form feed behind it would undo the indentation")
        old.append((start, end))
        new.append((start + shift, start + shift + len(content)))
        shift += len(content) - (end - start)
    kept = _outside(_tokens(before), old)
    moves = [(end, fresh - end) for (_, end), (_, fresh) in zip(old, new, strict=True)]
    if _moved(kept, moves) != _outside(_tokens(after), new):
        raise HarmError("it would change what stands around it")


def keep_comments(source: str, replacements: Sequence[Replacement]) -> None:
    """Raise HarmError where a comment stands among code that is replaced, and does not stand in what takes its place."""
    starts = [start for start, _, _ in replacements]
    for text, first, last in _tokens(Code(source)) if replacements else ():
        if text.startswith("#"):
            start, end, content = replacements[max(0, bisect_right(starts, first) - 1)]
            among = source[start:first].strip() or source[last:end].strip()
            if start <= first and last <= end and among and text not in content:
                raise HarmError("it would drop a comment")


def mistake_in(text: str) -> str | None:
    """Why a text is no program, in a line; ``None`` where it is one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return error.msg
    except (RecursionError, MemoryError):
        return "nested too deeply"
    except ValueError as error:
        return str(error)
    return None


@lru_cache(maxsize=8)
def _tokens(code: Code) -> tuple[tuple[str, int, int], ...]:
    """The tokens and where they begin and end in the source, in order."""
    starts = starts_of(code.text if code.source is None else code.source)
    indents = code.indents or (0,) * len(starts)

    def offset(row: int, column: int) -> int:
        return starts[row - 1] + indents[row - 1] + column

    try:
        found = tokenize.generate_tokens(io.StringIO(ROW_END.sub("\n", code.text)).readline)
        return tuple((item.string, offset(*item.start), offset(*item.end)) for item in found if item.type not in _LAYOUT)
    except (tokenize.TokenError, SyntaxError) as error:
        raise HarmError(f"the file cannot be read as tokens ({error.args[0]})") from None


def _outside(tokens: Iterable[tuple[str, int, int]], spans: Sequence[tuple[int, int]]) -> list[tuple[str, int]]:
    """The tokens that no span has a part of, with their beginnings. Spans and tokens are in order."""
    found = []
    index = 0
    for text, start, end in tokens:
        while index < len(spans) and spans[index][1] <= start:
            index += 1
        if index == len(spans) or end <= spans[index][0]:
            found.append((text, start))
    return found


def _moved(tokens: Iterable[tuple[str, int]], moves: Sequence[tuple[int, int]]) -> list[tuple[str, int]]:
    """The tokens where they come to stand: each by the last edit that ends in front of it."""
    found = []
    index = shift = 0
    for text, start in tokens:
        while index < len(moves) and moves[index][0] <= start:
            shift = moves[index][1]
            index += 1
        found.append((text, start + shift))
    return found
