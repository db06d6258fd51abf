"""Formats of settings files, all read into the nodes of a YAML document: values, and the rows they stand in."""

from __future__ import annotations

import configparser
import re
import tomllib
from typing import TYPE_CHECKING, Any, Final

from oomlint.patterns import pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SECTION: Final = pattern(r"\s*\[{1,2}\s*([^\[\]]+?)\s*\]{1,2}\s*(?:[#;].*)?$")
_ENTRY: Final = pattern(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*|[^=:\s\[#;][^=:]*?)\s*[=:]\s*(\S.*?)?\s*$")
_BINDING: Final = pattern(r"\s*([\w./]+)\s*=\s*(.+?)\s*$")
_QUOTED: Final = pattern(r"\"[^\"]*\"|'[^']*'|[^.\s]+")

# Where each key stands: its path, its row and column, both from 0.
_Rows = dict[tuple[str, ...], tuple[int, int]]


def compose(text: str, form: str) -> Any:
    """The root node of a document, ``None`` where there is nothing in it. Raises what the format's parser raises where it is broken."""
    return _FORMATS[form](text)


def alike(text: str, other: str, suffix: str) -> bool:
    """Whether two texts hold the same values; not where the format has no comments, or where one of them is broken."""
    import yaml  # noqa: PLC0415 - most runs meet no settings file

    readers: Mapping[str, Callable[[str], object]] = {".yaml": yaml.safe_load, ".yml": yaml.safe_load, ".toml": tomllib.loads}
    try:
        return suffix in readers and readers[suffix](text) == readers[suffix](other)
    except (yaml.YAMLError, ValueError, RecursionError):
        return False


def _yaml(text: str) -> Any:
    import yaml  # noqa: PLC0415 - most runs meet no settings file

    return yaml.compose(text, Loader=yaml.SafeLoader)


def _json(text: str) -> Any:
    """The same from libyaml, where it is there, in a tenth of the time: files of JSON may be data. What it does not read, as half a pair, is for the other."""
    import yaml  # noqa: PLC0415 - most runs meet no settings file

    try:
        return yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return _yaml(text)


def _toml(text: str) -> Any:
    return _node(tomllib.loads(text), (), _rows(text, dotted=True))


def _ini(text: str) -> Any:
    parser = configparser.ConfigParser()
    parser.read_string(text)
    content = {name: dict(parser.items(name, raw=True)) for name in (*parser.sections(), parser.default_section)}
    return _node(content, (), {tuple(part if n == 0 else part.lower() for n, part in enumerate(path)): row for path, row in _rows(text, dotted=False).items()})


def _gin(text: str) -> Any:
    """``scope/module.function.parameter = value``, a row each; the key is what stands before the sign."""
    content: dict[str, object] = {}
    rows: _Rows = {}
    for number, row in enumerate(text.splitlines()):
        included = re.match(r"\s*include\s+['\"]([^'\"]+)['\"]", row)
        if included is not None:
            content[f"include {included[1]}"] = included[1]
        found = _BINDING.match(row.partition("#")[0])
        if found is not None:
            content[found[1]] = _literal(found[2])
            rows[(found[1],)] = (number, found.start(1))
    return _node(content, (), rows)


def _literal(text: str) -> object:
    """What a value of Python stands for where it is a number, a string or one of the three constants; else the text, as an interpolation."""
    known: dict[str, object] = {"True": True, "False": False, "None": None}
    if text in known:
        return known[text]
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    quoted = re.fullmatch(r"(['\"])(.*)\1", text)
    return quoted[2] if quoted is not None else "${" + text + "}"


_FORMATS: Final[Mapping[str, Callable[[str], Any]]] = {"yaml": _yaml, "json": _json, "toml": _toml, "ini": _ini, "gin": _gin}
SUFFIXES: Final = {".yaml": "yaml", ".yml": "yaml", ".json": "yaml", ".toml": "toml", ".ini": "ini", ".cfg": "ini", ".conf": "ini", ".gin": "gin"}


def _rows(text: str, *, dotted: bool) -> _Rows:
    found: _Rows = {}
    section: tuple[str, ...] = ()
    for number, row in enumerate(text.splitlines()):
        header = _SECTION.match(row)
        if header is not None:
            section = _parts(header[1]) if dotted else (header[1],)
            continue
        entry = _ENTRY.match(row)
        if entry is not None:
            path = (*section, *(_parts(entry[1]) if dotted else (entry[1],)))
            found.setdefault(path, (number, entry.start(1)))
    return found


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _QUOTED.findall(name))


def _node(value: object, path: tuple[str, ...], rows: _Rows) -> Any:
    """A value as a node of YAML, at the row of the nearest key that has one."""
    import yaml  # noqa: PLC0415

    near = next((rows[path[:n]] for n in range(len(path), 0, -1) if path[:n] in rows), (0, 0))
    start = yaml.Mark("", 0, *near, None, 0)
    if isinstance(value, dict):
        key = "tag:yaml.org,2002:str"
        items = [(yaml.ScalarNode(key, str(name), start, start), _node(inner, (*path, str(name)), rows)) for name, inner in value.items()]
        return yaml.MappingNode("tag:yaml.org,2002:map", items, start, start)
    if isinstance(value, list):
        return yaml.SequenceNode("tag:yaml.org,2002:seq", [_node(inner, path, rows) for inner in value], start, start)
    kind = "null" if value is None else {bool: "bool", int: "int", float: "float"}.get(type(value), "str")
    shown = str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
    end = yaml.Mark("", 0, near[0], near[1] + len(path[-1] if path else ""), None, 0)
    return yaml.ScalarNode(f"tag:yaml.org,2002:{kind}", shown, start, end)
