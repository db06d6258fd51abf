"""Why a text is no program, as the interpreter says it, and whether it is one of Python 2."""

from __future__ import annotations

import re
import sys
from typing import Final

from oomlint.patterns import pattern

Mistake = tuple[int, int, str]  # row, column, cause

_LONG_STRING: Final = pattern(r"[rRuUbB]{0,2}(\"\"\"|''')(?:\\.|(?!\1).)*\1", re.DOTALL)
_STRING_OR_COMMENT: Final = pattern(r"""#[^\n]*|(?P<quote>["'])(?:\\.|(?!(?P=quote))[^\\\n])*(?P=quote)""")
# What Python 3 has never read, in a text without strings and comments: what was a string is a quote.
_OLD: Final = pattern(
    r"(?m)(?:^|[:;])[ \t]*(?:print|exec)(?:[ \t]+(?![\[(=.,:;)\]]|(?:in|is|not|and|or|if|else|for)\b)[\w`~]|[ \t]*>>[ \t]*\w)"
    r"|(?:^|[:;])[ \t]*print[ \t]*\"|(?:^|[:;])[ \t]*print[ \t]*\([^\n()]*\)[ \t]*(?:%|,[ \t]*\w)|^[ \t]*exec[ \t]+\w+[ \t]+in\b|^[ \t]*exec[ \t]*\""
    r"|^[ \t]*except\b[^:\n()]*(?:\([^()\n]*\))?[ \t]*,[ \t]*\w+[ \t]*:|^[ \t]*raise[ \t]+[\w.]+[ \t]*,|\w[ \t]*<>[ \t]*\w|`[^`\n]+`"
    r"|(?<![\w.])0[0-7]+(?![\w.])|(?<![\w.])\d+[lL](?!\w)|^[ \t]*def[ \t]+\w+[ \t]*\((?:[^()\n]*,)?[ \t]*\(|\b[uU][rR]\""
)
# What Python 2 has never read.
_NEW: Final = pattern(
    r"(?m)\b[fF][rR]?\"|\b[rR][fF]\"|^[ \t]*async[ \t]+(?:def|with|for)\b|^[ \t]*nonlocal[ \t]|\bsuper\(\)|\)[ \t]*->|:=|\byield[ \t]+from\b"
    r"|^[ \t]*def[ \t]+\w+[ \t]*\((?:[^()\n]*,)?[ \t]*\w+[ \t]*:"
    r"|^[ \t]*(?!(?:else|try|finally)\b)\w+[ \t]*:[ \t]*\w+[\w.\[\], ]*=[^=]|\bprint\([^\n]*\b(?:end|flush|sep)[ \t]*="
)


def mistake_of(error: SyntaxError) -> Mistake:
    """What the interpreter says of a text that it cannot parse."""
    return (error.lineno or 1, error.offset or 1, f"not valid Python {sys.version_info[0]}.{sys.version_info[1]}: {error.msg}")


def is_mistake_for_ever(error: SyntaxError) -> bool:
    """Whether no newer Python reads the text either: its indentation is wrong, or an escape in a string (``(unicode error) ...``), or it nests too deeply."""
    return isinstance(error, IndentationError) or error.msg.startswith(("(", "too many"))


def is_python_2(text: str) -> bool:
    """Whether a text that is no program of Python 3 is one of Python 2: it has what only that reads, and nothing that it cannot read."""
    bare = _STRING_OR_COMMENT.sub(lambda match: '"' if match["quote"] else "", _LONG_STRING.sub(lambda match: '"' + "\n" * match[0].count("\n"), text))
    return _OLD.search(bare) is not None and _NEW.search(bare) is None
