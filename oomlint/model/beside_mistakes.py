"""What is broken in a file beside the code. It is told where somebody has named the file; else such a file is simply not known."""

from __future__ import annotations

import json
import os
import re
import tomllib
from typing import TYPE_CHECKING, Final

from oomlint.beside_code import Beside, beside
from oomlint.model.command_lines import plain_json
from oomlint.model.settings_formats import SUFFIXES
from oomlint.model.yaml_nodes import MOST_CHARACTERS
from oomlint.source import PYTHON_LIMIT, SourceError, read_bytes, read_source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TEMPLATE: Final = re.compile(r"\{\{|\{%")  # of Helm, Jinja and the like: it becomes YAML later
_OF_TOML: Final = re.compile(r"(.*) \(at line (\d+), column (\d+)\)", re.DOTALL)
_SEVERAL: Final = "Extra data"  # as in a file of a JSON document a row
_Mistake = tuple[int, int, str]  # row and column, from 1, and what is wrong


def refuse_broken(path: str, data: bytes | None = None) -> None:
    """Raise SourceError where a file beside the code cannot be read as what its name says. ``data`` stands in for its content.

    Of formats without a grammar that all agree on (shells, Makefiles, INI) only that a file is text can be said.
    """
    data = read_bytes(path, PYTHON_LIMIT) if data is None else data
    mistake_of = _READERS.get(_form(path))
    if mistake_of is None and b"\0" not in data:
        return
    text = read_source(path, data).text
    if mistake_of is None or not text.strip():
        return
    try:
        found = mistake_of(text)
    except RecursionError:
        found = 1, 1, "nested too deeply to be read"
    if found is not None:
        row, column, cause = found
        raise SourceError(path, cause, row=row, column=column)


def _form(path: str) -> str:
    """The format of a file; empty for one of commands."""
    kind, suffix = beside(path), os.path.splitext(path)[1]
    if kind is Beside.EDITOR or suffix == ".json":
        return "json"
    return "yaml" if kind is Beside.COMPOSE else SUFFIXES.get(suffix, "") if kind is Beside.SETTINGS else ""


def _in_yaml(text: str) -> _Mistake | None:
    import yaml  # noqa: PLC0415 - few runs name such a file

    if len(text) > MOST_CHARACTERS or _TEMPLATE.search(text):
        return None
    try:
        for _ in yaml.compose_all(text, Loader=yaml.SafeLoader):
            pass
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return (mark.line + 1 if mark else 1), (mark.column + 1 if mark else 1), f"not valid YAML: {error.problem or error.context}"
    except yaml.reader.ReaderError as error:
        before = text[: error.position].split("\n")
        return len(before), len(before[-1]) + 1, f"not valid YAML: {error.reason}"
    return None


def _in_json(text: str) -> _Mistake | None:
    """With comments and commas behind the last entry it is valid."""
    try:
        json.loads(plain_json(text))
    except json.JSONDecodeError as error:
        return None if error.msg == _SEVERAL else (error.lineno, error.colno, f"not valid JSON: {error.msg}")
    return None


def _in_toml(text: str) -> _Mistake | None:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _OF_TOML.fullmatch(str(error))
        return (int(found[2]), int(found[3]), f"not valid TOML: {found[1]}") if found else (1, 1, f"not valid TOML: {error}")
    return None


_READERS: Final[Mapping[str, Callable[[str], _Mistake | None]]] = {"yaml": _in_yaml, "json": _in_json, "toml": _in_toml}
