"""Finds the rules by the names of their files, beside those that plugins have, and selects them by code and prefix.

Codes and slugs of ours are known without importing a rule, so that a run without candidates pays for none.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Final

from oomlint import plugins
from oomlint.catalogue import catalogue, in_preview
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.settings import Settings

__all__ = ("all_rules", "catalogue", "chosen", "codes", "family_of", "find", "idle", "in_preview", "is_known", "load", "load_own", "select")

_NONE: Final = -1  # the length of no selector: less than that of `ALL`, which is empty


def load(code: str) -> Rule:
    """The rule of that code.

    Raises KeyError where there is none, and TypeError where its file does not hold exactly one rule of that code and slug.
    """
    return plugins.rule(code) or load_own(code)


@cache
def load_own(code: str) -> Rule:
    """The same of our own rules only."""
    slug = dict(catalogue())[code]
    module = importlib.import_module(f"oomlint.rules.{code.lower()}_{slug.replace('-', '_')}")
    classes = [item for item in vars(module).values() if isinstance(item, type) and issubclass(item, Rule) and item.__module__ == module.__name__]
    if len(classes) != 1 or (classes[0].code, classes[0].slug) != (code, slug):
        raise TypeError(f"{module.__file__} must hold one rule, with code {code} and slug {slug}")
    rule: Rule = classes[0]()
    return rule


def all_rules() -> tuple[Rule, ...]:
    """Every rule, sorted by code."""
    return tuple(load(code) for code, _ in catalogue())


def codes(select: Iterable[str], ignore: Iterable[str] = (), extend: Iterable[str] = (), base: Iterable[str] = ()) -> tuple[str, ...]:
    """The codes that a selection means, sorted.

    The longest selector that fits a code decides, and ``ignore`` wins a tie: ``select = ["OOM"], ignore = ["OOM1"], extend = ["OOM101"]`` keeps OOM101
    of the first family. Codes that no selector fits stay as they are in ``base``. Raises ValueError for a selector that fits no code.
    """
    wanted = [_selector(item) for item in (*select, *extend)]
    unwanted = [_selector(item) for item in ignore]
    kept = set(base)

    def chosen(code: str) -> bool:
        for_it, against_it = _reach(code, wanted), _reach(code, unwanted)
        return for_it > against_it or (for_it == against_it == _NONE and code in kept)

    return tuple(code for code, _ in catalogue() if chosen(code))


def chosen(settings: Settings) -> tuple[str, ...]:
    """The codes that settings select, sorted; those of rules in preview only where the settings ask for previews. Raises ValueError as :func:`codes`."""
    found = codes(settings.select, settings.ignore, settings.extend_select)
    return found if settings.preview else tuple(code for code in found if not in_preview(code))


def idle(selectors: Iterable[str]) -> Iterator[str]:
    """The selectors, each once, that fit nothing but rules in preview: without previews they have no effect."""
    for item in dict.fromkeys(selectors):
        fitting = [code for code, _ in catalogue() if code.startswith(_selector(item))]
        if all(map(in_preview, fitting)):
            yield item


def select(select: Iterable[str], ignore: Iterable[str] = (), extend: Iterable[str] = ()) -> tuple[Rule, ...]:
    """The rules that a selection means, imported, sorted by code. Raises ValueError for a selector that fits no code."""
    return tuple(load(code) for code in codes(select, ignore, extend))


def find(name: str) -> str:
    """The code that a code or a slug names, in any case. Raises ValueError where there is none."""
    for code, slug in catalogue():
        if name.upper() == code or name.lower() == slug:
            return code
    raise ValueError(f"unknown rule {name!r}")


def beginning(name: str) -> tuple[str, ...]:
    """The codes that begin so; those of a family for its letters and first digit."""
    return tuple(code for code, _ in catalogue() if code.startswith(name) and name.startswith(family_of(code)))


def is_known(name: str) -> bool:
    """Whether a code or a slug, in any case, is one of a rule."""
    return any(name.upper() == code or name.lower() == slug for code, slug in catalogue())


def family_of(code: str) -> str:
    """The letters that a code begins with."""
    return code.rstrip("0123456789")


def _selector(item: str) -> str:
    """A code or a prefix of one, in upper case. ``ALL`` is the empty prefix."""
    name = item.strip().upper()
    if name == "ALL":
        return ""
    if not beginning(name):
        raise ValueError(f"unknown rule or prefix {item!r}")
    return name


def _reach(code: str, selectors: Iterable[str]) -> int:
    """Length of the longest selector that fits the code."""
    return max((len(item) for item in selectors if code.startswith(item)), default=_NONE)
