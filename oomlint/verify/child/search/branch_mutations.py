"""Changes of a state that works, so that a row behind a condition runs: what the condition asks of arguments and of configurations."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.loading import import_names
from oomlint.verify.child.synthesis import argument_specs
from oomlint.verify.child.synthesis.spec_paths import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

State = dict[str, Any]
ASKS: Final = frozenset({"exists", "isfile", "isdir", "is_file", "is_dir", "lexists"})  # whether there is a file
PLAIN: Final[tuple[Any, ...]] = (True, False, None, 0, 1, 2)


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition that a row stands behind."""

    names: frozenset[str]  # that it speaks of, attributes among them
    constants: tuple[Any, ...]  # that it compares with


def guards(path: str, rows: Sequence[int]) -> list[Guard]:
    """The conditions around some rows of a file, the outermost first."""
    if not rows:
        return []
    try:
        tree = ast.parse(import_names.text(path))
    except SyntaxError:
        return []
    found: list[Guard] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and any(node.lineno <= row <= (node.end_lineno or row) for row in rows):
            inner = list(ast.walk(node.test))
            spoken = {item.id for item in inner if isinstance(item, ast.Name)} | {item.attr for item in inner if isinstance(item, ast.Attribute)}
            constants = [item.value for item in inner if isinstance(item, ast.Constant) and isinstance(item.value, str | int | float | None)]
            found.append(Guard(frozenset(spoken | {name for constant in constants if isinstance(constant, str) for name in [constant]}), tuple(constants)))
    return found


def reaching(state: State, conditions: list[Guard]) -> Iterator[tuple[str, State]]:
    """States in which what a condition speaks of is what it compares with."""
    for guard in conditions:
        if guard.names & ASKS:
            yield from _without(state)
        for where in ("arguments", "owner"):
            for name, spec in state.get(where, {}).items():
                if name in guard.names or name.strip("_") in guard.names:
                    yield from _others(state, [where, name], guard)
                if spec["is"] == "settings":
                    for entry in [entry for entry in spec["has"] if entry in guard.names]:
                        yield from _others(state, [where, name, "has", entry], guard)


def _others(state: State, place: list[Any], guard: Guard) -> Iterator[tuple[str, State]]:
    name = place[-1]
    specs: list[Any] = []
    for constant in guard.constants:
        if isinstance(constant, str) and constant.startswith(".") and len(constant) > 1:
            specs.append(argument_specs.path_spec(name, constant))
        else:
            specs.append({"is": "json", "value": constant})
    for spec in [*specs, *({"is": "json", "value": value} for value in PLAIN), argument_specs.path_spec(name)]:
        made = replaced(state, place, spec)
        made["files"] = {}
        yield f"{name} is {spec}, as a condition asks", made


def _without(state: State) -> Iterator[tuple[str, State]]:
    """States without one of the files, what was asked for last first: that is what the program itself makes."""
    for key, spec in reversed(list(state["files"].items())):
        if spec["kind"] != "absent":
            folder = {os.path.dirname(key): {"kind": "empty"}} if os.path.dirname(key) else {}
            yield f"{key} is not there, as a condition asks", {**state, "files": {**folder, **state["files"], key: {"kind": "absent"}}}
