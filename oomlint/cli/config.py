"""``oomlint config``."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from oomlint.cli.check import say
from oomlint.cli.options import choice, words
from oomlint.config import json_schema

if TYPE_CHECKING:
    from collections.abc import Iterator


class ConfigFormat(StrEnum):
    """How settings are described."""

    TEXT = "text"
    JSON = "json"


class SchemaKey(NamedTuple):
    """What the schema says of a key."""

    key: str  # one of a table after the name of the table
    type: str
    default: object
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Describe the settings: what they mean, their types, their defaults. Without a key, all keys are listed."""

    keys: tuple[str, ...] = words("Keys such as `select` or `verify.time-limit`, or the name of a table, such as `verify`.", "KEYS")
    output_format: ConfigFormat = choice("How settings are described.", "Output", ConfigFormat, ConfigFormat.TEXT, "FORMAT")


def perform(arguments: Arguments) -> int:
    """Describe settings and return the exit status."""
    known = {each.key: each for each in settings()}
    found: dict[str, SchemaKey] = {}
    for asked in arguments.keys or known:
        mine = {key: each for key, each in known.items() if key == asked or key.startswith(f"{asked}.")}
        if not mine:
            from difflib import get_close_matches  # noqa: PLC0415 - only for an error

            near = get_close_matches(asked, known, 1)
            say(f"error: unknown setting {asked!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
            return 2
        found |= mine
    if arguments.output_format is ConfigFormat.JSON:
        sys.stdout.write(json.dumps([each._asdict() for each in found.values()], indent=2) + "\n")
    elif arguments.keys:
        sys.stdout.write("\n".join(map(_described, found.values())))
    else:
        sys.stdout.write("".join(f"{key}\n" for key in found))
    return 0


def settings() -> Iterator[SchemaKey]:
    """All settings, in the order of the documentation."""
    schema: dict[str, Any] = json_schema()
    for key, about in schema["properties"].items():
        inner = _definition(about, schema).get("properties", {})
        for name, each in inner.items():
            yield SchemaKey(f"{key}.{name}", _type(each, schema), each["default"], each["description"])
        if not inner:
            yield SchemaKey(key, _type(about, schema), about["default"], about["description"])


def _definition(about: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema["$defs"][about["$ref"].rpartition("/")[2]] if "$ref" in about else {}
    return found


def _type(about: dict[str, Any], schema: dict[str, Any]) -> str:
    if "$ref" in about:
        return " ".join(f"`{word}`" for word in _definition(about, schema)["enum"])
    names = {"array": "list of strings", "object": "table of lists", "boolean": "true or false", "integer": "whole number", "string": "string"}
    return names[about.get("type", "string")]


def _described(each: SchemaKey) -> str:
    table, _, name = each.key.rpartition(".")
    header = f"[tool.oomlint.{table}]" if table else "[tool.oomlint]"
    default = "" if each.default is None else f"Default: {json.dumps(each.default)}\nExample:\n\n    {header}\n    {name} = {json.dumps(each.default)}\n"
    return f"{each.key}: {each.meaning}\n\nType: {each.type.replace('` `', ', ').strip('`')}\n{default or 'It is not set by default.' + chr(10)}"
