"""The codes and names of all rules, by the names of their files: no rule is imported for them."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Final

_FILE: Final = re.compile(r"(oom\d{3})_([a-z0-9_]+)\.py")
_FOLDER: Final = os.path.join(os.path.dirname(__file__), "rules")


@cache
def catalogue() -> tuple[tuple[str, str], ...]:
    """Code and slug of every rule, sorted by code."""
    found = (_FILE.fullmatch(name) for name in os.listdir(_FOLDER))
    return tuple(sorted((match[1].upper(), match[2].replace("_", "-")) for match in found if match))


def code_of(word: str) -> str:
    """The code that a name of a rule stands for, in any case. What is no name is a code, or the beginning of one, and comes back in capitals."""
    if "-" not in word:
        return word.upper()
    return next((code for code, slug in catalogue() if slug == word.lower()), word)
