"""Variables that texts give to programs: as they are written, handed on, or in files of them, a row each."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from oomlint.model.environments import UNKNOWN_SETTING, UNSAID, Environment, Setting
from oomlint.model.shell_runs import ShellState, rows_of

if TYPE_CHECKING:
    from oomlint.finding import Place

_MOST_BYTES: Final = 1_000_000
NAME: Final = re.compile(r"[A-Za-z_][\w.-]*")
_INTERPOLATED: Final = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)(?:(:?[-=+?])([^{}]*))?\}|\$([A-Za-z_]\w*)")


def read_file(path: str) -> str | None:
    """The text of a file; None where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8-sig", "replace") if os.path.isfile(path) else None
    except OSError:
        return None


def literal(text: str, place: Place | None) -> Setting:
    """What a variable is given; nobody knows what a text stands for that a shell expands."""
    return Setting(text if "$" not in text and "`" not in text else None, place)


def passed(outer: Environment, name: str) -> dict[str, Setting]:
    """A variable that is handed on as it is."""
    said = outer.says(name)
    return {} if said == UNSAID else {name: said}


def with_file(inside: Environment, outer: Environment, path: str, place: Place, *, plain: bool = False) -> Environment:
    """With the variables of a file, a row each. Where it is not there, or no such file, nobody knows what it sets."""
    text = read_file(path) if "$" not in path else None
    if text is None:
        inside.user.mistakes[place.path, place.row, f"{os.path.basename(path)}: there is no such file"] = None
        return inside.having({}, opened=True)
    settings: dict[str, Setting] = {}
    where = rows_of(path, text)
    state = ShellState(outer, os.path.dirname(path))
    at = 0
    for number, row in enumerate(text.split("\n"), 1):
        written = row.strip()
        start, at = at, at + len(row) + 1
        if not written or written.startswith("#"):
            continue
        name, equals, value = (written if plain else written.removeprefix("export ")).partition("=")
        name = name if plain else name.strip()
        if not NAME.fullmatch(name):
            inside.user.mistakes[path, number, f"{written[:40]!r} is no NAME=VALUE"] = None
            return inside.having({}, opened=True)
        if not equals:
            settings |= passed(outer, name)
            continue
        found = Setting(value) if plain else _dotenv(value.strip(), state)
        settings[name] = Setting(found.text, where(start, start + len(row)), assumed=found.assumed)
        state.known[name] = settings[name]
    return inside.having(settings)


def _dotenv(value: str, state: ShellState) -> Setting:
    quoted = re.fullmatch(r"'([^']*)'[ \t]*(?:#.*)?", value)
    if quoted is not None:
        return Setting(quoted[1])
    double = re.fullmatch(r'"((?:\\.|[^"\\])*)"[ \t]*(?:#.*)?', value)
    return interpolated(double[1] if double is not None else re.sub(r"(?:^|[ \t]+)#.*", "", value).strip(), state)


def interpolated(text: str, state: ShellState) -> Setting:
    """A text of a compose file with what its variables stand for."""
    found, end, assumed = [], 0, False
    for match in _INTERPOLATED.finditer(text):
        if match[0] == "$$":
            one = Setting("$")
        elif match[2]:
            one = state.or_other(match[1], match[2], match[3])
        else:
            one = state.variable(match[1] or match[4])
            one = UNKNOWN_SETTING if one.text is None else one
        if one.text is None:
            return UNKNOWN_SETTING
        found += [text[end : match.start()], one.text]
        end, assumed = match.end(), assumed or one.assumed
    return Setting("".join((*found, text[end:])), assumed=assumed)
