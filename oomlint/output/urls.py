"""Where a rule's page is."""

from __future__ import annotations


def page_of(code: str) -> str:
    """The page of a rule, relative to the root of oomlint's repository."""
    return f"docs/rules/{code}.md"
