"""Lets `ArgumentParser.parse_args` succeed without a command line: required arguments get a value that fits."""

from __future__ import annotations

import argparse
import os
import re
from typing import Any, Final

_ORIGINAL: Final = argparse.ArgumentParser.parse_known_args
_NOTES: Final[list[list[str]]] = []


class CommandLineError(Exception):
    """A parser of the user's would have ended the program."""


def install(notes: list[str]) -> None:
    """Fill required arguments in from now on; what is put in is written to ``notes``."""
    _NOTES.append(notes)
    argparse.ArgumentParser.parse_known_args = _parse  # type: ignore[method-assign]  # a stand-in on purpose


def _parse(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
    for action in self._actions:
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 -- of the same stand-in, or there is no public way
            action.required = False
        elif action.required and args is None:
            _satisfy(action)
    error, self.error = self.error, _error  # type: ignore[method-assign,assignment]  # an end of the program is an exception here
    try:
        return _ORIGINAL(self, args, namespace)
    finally:
        self.error = error  # type: ignore[method-assign]  # as it was


def _error(message: str) -> None:
    raise CommandLineError(message)


def _satisfy(action: argparse.Action) -> None:
    value = _value(action)
    if action.nargs in ("+", "*") or isinstance(action.nargs, int):
        value = [value] * (action.nargs if isinstance(action.nargs, int) else 1)
    action.required = False
    if action.default is None or action.default is argparse.SUPPRESS:
        action.default = value
    if not action.option_strings:
        action.nargs = "?" if not isinstance(value, list) else "*"
    for notes in _NOTES:
        notes.append(f"argument {action.option_strings[-1] if action.option_strings else action.dest} is {action.default!r}")


def _value(action: argparse.Action) -> object:
    if action.choices:
        return next(iter(action.choices))
    name = action.dest.lower()
    if action.type is int:
        return 4
    if action.type is float:
        return 0.5
    if action.type is bool:
        return True
    text = f"{name}{os.extsep}txt" if re.search(r"path|file", name) and not re.search(r"dir|root|folder", name) else name
    if action.type in (None, str):
        return text
    for candidate in (text, "4", "0.5"):
        try:
            return action.type(candidate) if callable(action.type) else candidate
        except Exception:  # noqa: BLE001, S112 -- another value may fit
            continue
    return text
