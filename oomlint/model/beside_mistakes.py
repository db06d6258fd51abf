"""What is broken in a file beside the code: said where somebody has named the file, or where the code would have had values from it."""

from __future__ import annotations

import codecs
import configparser
import json
import os
import re
import tomllib
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from oomlint.beside_code import Beside, beside
from oomlint.model import shell_mistakes
from oomlint.model.command_lines import plain_json
from oomlint.model.settings_files import MOST_BYTES
from oomlint.model.settings_formats import SUFFIXES
from oomlint.model.yaml_nodes import MOST_CHARACTERS
from oomlint.source import PYTHON_LIMIT, SourceError, read_bytes, read_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_TEMPLATE: Final = re.compile(r"\{\{|\{%")  # of Helm, Jinja and the like: it becomes YAML later
_OF_TOML: Final = re.compile(r"(.*) \(at line (\d+), column (\d+)\)", re.DOTALL)
_OPEN_SECTION: Final = re.compile(r"^\[[^\]\n]*$", re.MULTILINE)
_SCRIPT: Final = re.compile(r"[\w-]+\.py\b")
_MODULE: Final = re.compile(r"(?:-m|\bmodule)[\s\"',:]+([\w.]+)")
_WIDE: Final = (  # those of UTF-32 first: one of them begins with a mark of UTF-16
    ("UTF-32", (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)),
    ("UTF-16", (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)),
)
_SEVERAL: Final = "Extra data"  # as in a file of a JSON document a row
_Mistake = tuple[int, int, str]  # row and column, from 1, and what is wrong


def refuse_broken(path: str, data: bytes | None = None) -> None:
    """Raise SourceError where a file beside the code cannot be read as what its name says. ``data`` stands in for its content.

    Of formats without a grammar that all agree on (Dockerfiles, gin, INI under other names) only that a file is text can be said.
    """
    data = read_bytes(path, PYTHON_LIMIT) if data is None else data
    _refuse_wide(path, data)
    mistake_of = _reader_of(path)
    if mistake_of in _OF_ANY and b"\0" not in data:
        text = data.decode("utf-8-sig", "replace")
    elif mistake_of is None and b"\0" not in data:
        return
    else:
        try:
            text = read_source(path, data).text
        except SourceError as error:
            raise SourceError(path, error.message.removesuffix(" (no encoding declared)"), row=error.row, column=error.column) from None
    _refuse(path, text, mistake_of)


@lru_cache(maxsize=1024)  # most files of a project ask for the same ones
def unread(path: str, data: bytes) -> tuple[int, str] | None:
    """The row and the mistake that keep the values of a file from whoever has opened it for them, or that leave doubt about them."""
    kind = beside(path)
    if kind is None or (kind is Beside.SETTINGS and len(data) > MOST_BYTES):
        return None
    try:
        _refuse_wide(path, data)
        _refuse(path, data.decode("utf-8-sig", "replace"), _in_ini if _form(path) == "ini" else _reader_of(path))
    except SourceError as error:
        return error.row, error.message
    return None


@lru_cache(maxsize=1024)
def programs_in(data: bytes) -> frozenset[str]:
    """The names of the files of Python that a text may start, wherever they lie: of one that is broken nobody knows more."""
    text = data.decode("utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8", "replace")
    return frozenset((*_SCRIPT.findall(text), *(f"{module.rpartition('.')[2]}.py" for module in _MODULE.findall(text))))


def may_start(path: str, data: bytes, programs: Iterable[str]) -> bool:
    """Whether a broken file may be about one of these programs: it has its name, and lies above it, beside it or below, or names its folder, too."""
    names, here = programs_in(data), os.path.dirname(path)
    for program in programs:
        folder = os.path.dirname(program)
        if os.path.basename(program) in names and (os.path.commonpath((here, folder)) in {here, folder} or os.path.basename(folder).encode() in data):
            return True
    return False


def _refuse_wide(path: str, data: bytes) -> None:
    """Raise SourceError for text that is not read because its characters take two bytes or more each."""
    wide = next((name for name, marks in _WIDE if data.startswith(marks)), "")
    if wide:
        raise SourceError(path, f"{wide} text: save it as UTF-8")


def _refuse(path: str, text: str, mistake_of: Callable[[str], _Mistake | None] | None) -> None:
    if mistake_of is None or not text.strip():
        return
    try:
        found = mistake_of(text)
    except RecursionError:
        found = 1, 1, "nested too deeply to be read"
    if found is not None:
        row, column, cause = found
        raise SourceError(path, cause, row=row, column=column)


def _reader_of(path: str) -> Callable[[str], _Mistake | None] | None:
    kind = beside(path)
    if kind in {Beside.SHELL, Beside.MAKE}:
        return _in_shell if kind is Beside.SHELL else _in_makefile
    return _in_ini_of_any if path.endswith(".ini") else _READERS.get(_form(path))


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


def _in_ini_of_any(text: str) -> _Mistake | None:
    """What no reader of such files takes."""
    found = _OPEN_SECTION.search(text)
    return (text.count("\n", 0, found.start()) + 1, 1, "not valid INI: a section without its `]`") if found is not None else None


def _in_ini(text: str) -> _Mistake | None:
    """What ``configparser`` does not take, however it is set up."""
    found = _in_ini_of_any(text)
    if found is not None:
        return found
    try:
        configparser.RawConfigParser(allow_no_value=True, strict=False).read_string(text)
    except configparser.MissingSectionHeaderError as error:
        return error.lineno, 1, "not valid INI: a value in front of the first section"
    except configparser.Error:
        return None
    return None


def _in_shell(text: str) -> _Mistake | None:
    at = shell_mistakes.in_shell(text)
    return None if at is None else (*_spot(text, at), f"the quote {text[at]} is never closed")


def _in_makefile(text: str) -> _Mistake | None:
    found = shell_mistakes.in_makefile(text)
    return None if found is None else (*_spot(text, found[0]), found[1])


def _spot(text: str, index: int) -> tuple[int, int]:
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


_READERS: Final[Mapping[str, Callable[[str], _Mistake | None]]] = {"yaml": _in_yaml, "json": _in_json, "toml": _in_toml}
_OF_ANY: Final = (_in_shell, _in_makefile, _in_ini_of_any)  # which may be in any encoding
