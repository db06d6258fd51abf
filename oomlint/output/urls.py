"""Where a rule's page is."""

from __future__ import annotations

from typing import Final

from oomlint import plugins

HOME: Final = ""  # the address of oomlint's repository, with a `/` at the end, once it has a public one


def page_of(code: str) -> str | None:
    """The page of a rule, relative to the root of oomlint's repository; of a plugin's rule the address that it gives, if it does."""
    rule = plugins.rule(code)
    return f"docs/rules/{code}.md" if rule is None else rule.url or None


def address_of(code: str) -> str | None:
    """Where the page is in the web, if it is there."""
    page = page_of(code)
    return page if page is None or plugins.rule(code) else HOME + page if HOME else None
