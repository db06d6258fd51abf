"""A page that stands alone: it loads nothing, runs nothing, and has colours for light and for dark."""

from __future__ import annotations

import re
from html import escape
from typing import Final

from oomlint.output.view import one_line

_CODE: Final = re.compile(r"`([^`]+)`")
STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2329; --soft: #5c6670; --paper: #fff; --line: #d5dbe1; --panel: #f5f7f9;
  --before: #c8553d; --after: #2f7f86; --good: #1a7f37; --bad: #c11f2e; --mild: #8a6100; --open: #7a3fa0 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --soft: #9aa5b0; --paper: #14181c; --line: #363f48; --panel: #1d2329;
  --before: #e07a5f; --after: #58b4bb; --good: #4cc26a; --bad: #ff6b74; --mild: #d8a53a; --open: #c694e8 } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper) }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin: 2.5rem 0 .3rem; border-top: 1px solid var(--line); padding-top: 1.2rem }
h3 { font-size: .95rem; margin: 1rem 0 .2rem; font-weight: 600 }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0;
  border-bottom: 1px solid var(--line) } td.number, th.number { text-align: right; white-space: nowrap }
td.place { min-width: 17rem; overflow-wrap: anywhere } td.prose { min-width: 20rem }
code, pre { font: 13px/1.45 ui-monospace, monospace } pre { background: var(--panel); padding: .8rem; overflow-x: auto } a { color: inherit }
.soft { color: var(--soft) } .confirmed { color: var(--good) } .regressed { color: var(--bad) } .no-effect, .symptom-shown { color: var(--mild) }
.inconclusive { color: var(--open) } .symptom-not-shown { color: var(--soft) } .outcome { font-weight: 600; white-space: nowrap }
.added { color: var(--good) } .removed { color: var(--bad) } ul { margin: .2rem 0 .6rem; padding-left: 1.2rem } p { margin: .3rem 0 }
""".strip()


def whole(title: str, style: str, body: str) -> str:
    """The page. ``style`` comes after that of all pages; ``body`` is HTML."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}\n{style}\n</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )


def prose(text: str) -> str:
    """A sentence of a report, in one line: what stands between backticks is code."""
    return _CODE.sub(r"<code>\1</code>", escape(one_line(text)))
