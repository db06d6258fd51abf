"""Where a rule's page is."""

from __future__ import annotations

from typing import Final

HOME: Final = ""  # the address of oomlint's repository, with a `/` at the end, once it has a public one


def page_of(code: str) -> str:
    """The page of a rule, relative to the root of oomlint's repository."""
    return f"docs/rules/{code}.md"
