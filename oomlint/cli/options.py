"""A command's options: fields of a record, from which both readers of the command line are made."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_Record = TypeVar("_Record")
STANDARD: Final = "-"  # standard input or output, in place of a file
_KEY: Final = "option"
_WORDS: Final = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}  # for a switch in the environment


class Color(StrEnum):
    """When to colour the output."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class OptionKind(StrEnum):
    """What an option takes."""

    FLAG = "flag"
    TEXT = "text"
    LIST = "list"  # may be given several times
    CHOICE = "choice"
    WORDS = "words"  # what stands on the line without an option
    REST = "rest"  # the first of those words and all that follows it: a command, with options of its own


@dataclass(frozen=True, slots=True)
class Option:
    """What the command line must know of a field."""

    kind: OptionKind
    help: str
    panel: str | None = None
    short: str | None = None
    metavar: str | None = None
    choices: type[StrEnum] | None = None
    variable: str | None = None  # of the environment, which stands in for the option
    bare: str | None = None  # what the option stands for without a value; with one it is written `--option=value`


def flag(text: str, panel: str, short: str | None = None, variable: str | None = None) -> Any:
    """A switch, off unless given."""
    return field(default=False, metadata={_KEY: Option(OptionKind.FLAG, _with(text, variable), panel, short, variable=variable)})


def text(text: str, panel: str, metavar: str, bare: str | None = None, variable: str | None = None, short: str | None = None) -> Any:
    """A single value."""
    return field(default=None, metadata={_KEY: Option(OptionKind.TEXT, _with(text, variable), panel, short, metavar=metavar, variable=variable, bare=bare)})


def several(text: str, panel: str, metavar: str) -> Any:
    """A value that may be given several times."""
    return field(default=(), metadata={_KEY: Option(OptionKind.LIST, text, panel, metavar=metavar)})


def choice(
    text: str,
    panel: str,
    choices: type[StrEnum],
    default: StrEnum | None = None,
    metavar: str | None = None,
    bare: StrEnum | None = None,
    variable: str | None = None,
) -> Any:
    """One of a few words."""
    option = Option(OptionKind.CHOICE, _with(text, variable), panel, metavar=metavar, choices=choices, variable=variable, bare=bare)
    return field(default=default, metadata={_KEY: option})


def words(text: str, metavar: str) -> Any:
    """What stands on the line without an option."""
    return field(default=(), metadata={_KEY: Option(OptionKind.WORDS, text, metavar=metavar)})


def rest(text: str, metavar: str) -> Any:
    """A command: what stands behind ``--``, or behind the options."""
    return field(default=(), metadata={_KEY: Option(OptionKind.REST, text, metavar=metavar)})


def _with(text: str, variable: str | None) -> str:
    return f"{text} `{variable}` in the environment does the same." if variable else text


def with_environment(record: _Record) -> _Record:
    """The record with what the environment says of options that the line does not give. Raises ValueError for a value that is none of the choices."""
    values: dict[str, Any] = {}
    for name, (option, default) in options_of(type(record)).items():
        given = os.environ.get(option.variable, "") if option.variable else ""
        if given and getattr(record, name) == default:
            if option.kind is OptionKind.FLAG:
                if given.lower() not in _WORDS:
                    raise ValueError(f"{option.variable}: {given!r} is not one of {', '.join(_WORDS)}")
                values[name] = _WORDS[given.lower()]
                if not values[name] and hasattr(record, f"no_{name}"):
                    values[f"no_{name}"] = True  # it goes over the settings
            elif not _take(values, name, option, given):
                raise ValueError(f"{option.variable}: {given!r} is not one of {', '.join(map(str, option.choices or ()))}")
    return replace(record, **values)  # type: ignore[type-var]


def options_of(record: type[_Record]) -> dict[str, tuple[Option, Any]]:
    """The options of a record and their defaults, by field."""
    return {each.name: (each.metadata[_KEY], each.default) for each in fields(record)}  # type: ignore[arg-type]


def spelling(name: str) -> str:
    """How a field is written on the command line."""
    return "--" + name.replace("_", "-")


def read(record: type[_Record], line: Sequence[str]) -> _Record | None:
    """The record that a command line means; ``None`` where it asks for help, is wrong, or is written in a way that is left to typer.

    Raises ValueError for a value that is none of the choices: one line says more than what typer makes of it.
    """
    options = options_of(record)
    names = {spelling(name): name for name, (option, _) in options.items() if option.kind not in {OptionKind.WORDS, OptionKind.REST}}
    names |= {option.short: name for name, (option, _) in options.items() if option.short}
    free = next((name for name, (option, _) in options.items() if option.kind in {OptionKind.WORDS, OptionKind.REST}), None)
    values: dict[str, Any] = {}
    waiting = list(line)
    while waiting:
        word = waiting.pop(0)
        if free is not None and options[free][0].kind is OptionKind.REST and (word == "--" or not word.startswith("-")):
            values[free] = tuple(waiting if word == "--" else [word, *waiting])
            break
        if not word.startswith("-") or word == "-":
            if free is None:
                return None
            values[free] = (*values.get(free, ()), word)
            continue
        word, equals, value = word.partition("=")
        name = names.get(word)
        if name is None:
            return None
        option = options[name][0]
        if option.kind is OptionKind.FLAG:
            if equals:
                return None
            values[name] = True
            continue
        if not equals and option.bare is not None:
            value = option.bare
        elif not equals:
            if not waiting or waiting[0].startswith("-"):
                return None
            value = waiting.pop(0)
        if not _take(values, name, option, value):
            raise ValueError(f"{word}: {value!r} is not one of {', '.join(map(str, option.choices or ()))}")
    return record(**values)


def spelt_out(record: type[_Record], line: Sequence[str]) -> list[str]:
    """The line with a value for each option that may go without one: typer knows no such options."""
    bare = {spelling(name): option.bare for name, (option, _) in options_of(record).items() if option.bare is not None}
    end = line.index("--") if "--" in line else len(line)
    return [f"{word}={bare[word]}" if word in bare else word for word in line[:end]] + list(line[end:])


def _take(values: dict[str, Any], name: str, option: Option, value: str) -> bool:
    """Keep the value of an option, unless it is none of the choices."""
    if option.choices is not None:
        if value not in {str(each) for each in option.choices}:
            return False
        values[name] = option.choices(value)
    else:
        values[name] = (*values.get(name, ()), value) if option.kind is OptionKind.LIST else value
    return True


def from_typer(record: type[_Record], values: Mapping[str, Any]) -> _Record:
    """The record of what typer has read."""
    several = {name for name, (option, _) in options_of(record).items() if option.kind in {OptionKind.LIST, OptionKind.WORDS, OptionKind.REST}}
    return record(**{name: tuple(value or ()) if name in several else value for name, value in values.items()})
