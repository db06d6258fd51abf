"""The codes and names of all rules: of ours by the names of their files, so that no rule is imported for them, and of what plugins have added."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Final

_FILE: Final = re.compile(r"(oom\d{3})_([a-z0-9_]+)\.py")
_FOLDER: Final = os.path.join(os.path.dirname(__file__), "rules")


ADDED: Final[dict[str, str]] = {}  # slugs by codes: rules of plugins that were loaded
ADDED_PREVIEW: Final[set[str]] = set()  # the codes of those that are in preview
_PREVIEW: Final = frozenset({"OOM113", "OOM208", "OOM311", "OOM604"})  # of ours; docs/contributing.md says how one gets in and out


def catalogue() -> tuple[tuple[str, str], ...]:
    """Code and slug of every rule, sorted by code; those of plugins come last."""
    return (*own(), *sorted(ADDED.items())) if ADDED else own()


@cache
def own() -> tuple[tuple[str, str], ...]:
    """The same of our own rules only."""
    found = (_FILE.fullmatch(name) for name in os.listdir(_FOLDER))
    return tuple(sorted((match[1].upper(), match[2].replace("_", "-")) for match in found if match))


def in_preview(code: str) -> bool:
    """Whether a rule runs only where previews are asked for."""
    return code in _PREVIEW or code in ADDED_PREVIEW


def code_of(word: str) -> str:
    """The code that a name of a rule stands for, in any case. What is no name is a code, or the beginning of one, and comes back in capitals.

    A family may be written as the documentation does: ``OOM1xx``.
    """
    if word.isalnum():
        return word.upper().removesuffix("XX")
    return next((code for code, slug in catalogue() if slug == word.lower()), word)
