"""``oomlint rule``."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from oomlint import registry
from oomlint.catalogue import code_of
from oomlint.cli.check import with_plugins
from oomlint.cli.options import Color, choice, flag, words
from oomlint.config import ConfigError, load_settings
from oomlint.finding import Safety
from oomlint.output.printer import wants_color
from oomlint.output.urls import page_of
from oomlint.rule import page, status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.rule import Rule

_OUTPUT = "Output"


class PageFormat(StrEnum):
    """How a page is written."""

    TEXT = "text"
    CONCISE = "concise"  # a line a rule
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Explain rules: what they do, why it matters, and what to write instead. Without a rule, all are listed, a line each."""

    names: tuple[str, ...] = words("The codes or the names of rules; of a prefix of codes, such as OOM3, its rules are listed.", "RULES")
    all: bool = flag("Explain every rule.", _OUTPUT)
    output_format: PageFormat | None = choice("How pages are written; `text`, or `concise` where no rule is named.", _OUTPUT, PageFormat)
    color: Color = choice("When to colour the output.", _OUTPUT, Color, Color.AUTO)


def perform(arguments: Arguments) -> int:
    """Print pages and return the exit status."""
    if arguments.names and arguments.all:
        sys.stderr.write("oomlint: error: --all goes without the names of rules\n")
        return 2
    local = with_plugins(local=True)
    if local and not (arguments.names and all(map(registry.is_known, arguments.names))):
        with suppress(ConfigError):  # what is wrong with settings is not asked for
            load_settings(None, False, Path(), [code for code, _ in registry.catalogue()], local=local)  # noqa: FBT003 - its own signature
    try:
        named = [code for name in arguments.names for code in registry.beginning(code_of(name)) or [registry.find(name)]]
    except ValueError as error:
        sys.stderr.write(f"oomlint: error: {error}; `oomlint rule` lists them all\n")
        return 2
    codes = named or [code for code, _ in registry.catalogue()]
    one_each = len(codes) == len(arguments.names)
    form = arguments.output_format or (PageFormat.TEXT if one_each or arguments.all else PageFormat.CONCISE)
    rules = [registry.load(code) for code in codes]
    if form is PageFormat.CONCISE:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write("".join(f"{line if width is None or len(line) <= width else line[: width - 1] + '…'}\n" for line in _lines(rules)))
        return 0
    if form is PageFormat.JSON:
        entries = [_entry(rule) for rule in rules]
        sys.stdout.write(json.dumps(entries[0] if one_each and len(codes) == 1 else entries, indent=2) + "\n")
    else:
        _print("\n\n".join(map(markdown, rules)) + "\n", color=wants_color(arguments.color, sys.stdout))
    return 0


def _lines(rules: Sequence[Rule]) -> Iterator[str]:
    """Code, name, severity, fix and summary of each; before the summary, whether it is in preview."""
    rows = [(rule.code, rule.slug, severity_of(rule), fix_of(rule), f"{'(preview) ' if rule.preview else ''}{page(rule).summary}") for rule in rules]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for *cells, summary in rows:
        yield "  ".join([*(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)), " ".join(summary.split())])


def markdown(rule: Rule) -> str:
    """The page of a rule with its title."""
    about = f"Severity: **{rule.severity.value}**{_in_places(rule)} · Fix: **{fix_of(rule)}**"
    return f"# {rule.slug} ({rule.code})\n\n{about}\n\n{status(rule)}{page(rule).text}"


def severity_of(rule: Rule) -> str:
    """The gravest severity of a rule, and the others that it has in places."""
    return f"{rule.severity.value}{_in_places(rule)}"


def _in_places(rule: Rule) -> str:
    return f", in places {' or '.join(each.value for each in rule.lower)}" if rule.lower else ""


def fix_of(rule: Rule) -> str:
    """The best fix of a rule, in a word or two."""
    return {None: "none", Safety.DISPLAY: "advice only"}.get(rule.fixable, str(rule.fixable))


def _entry(rule: Rule) -> dict[str, object]:
    return {
        "code": rule.code,
        "name": rule.slug,
        "summary": page(rule).summary,
        "severity": rule.severity.value,
        "lower_severities": [each.value for each in rule.lower],
        "fix": rule.fixable.value if rule.fixable else None,
        "preview": rule.preview,
        "explanation": page(rule).text,
        "url": page_of(rule.code),
    }


def _print(text: str, *, color: bool) -> None:
    if not color:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        sys.stdout.write(text)
        return
    from rich.console import Console  # noqa: PLC0415 - only for colour
    from rich.markdown import Markdown  # noqa: PLC0415

    Console(force_terminal=True, color_system="standard", no_color=False).print(Markdown(text))
