"""Changes of a state that works, so that a row behind a condition runs: what the condition asks of arguments and of configurations."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.loading import import_names
from oomlint.verify.child.synthesis import argument_specs
from oomlint.verify.child.synthesis.spec_paths import fresh, given

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


def reaching(state: State, conditions: list[Guard]) -> Iterator[State]:
    """States in which what a condition speaks of is what it compares with."""
    for guard in conditions:
        if guard.names & ASKS:
            yield from _without(state)
        for place, spec in given(state):
            if {place[1], place[1].strip("_")} & guard.names:
                yield from _others(state, place, guard)
            if spec["is"] == "settings":
                for entry in [entry for entry in spec["has"] if entry in guard.names]:
                    yield from _others(state, [*place, "has", entry], guard)


def _others(state: State, place: list[Any], guard: Guard) -> Iterator[State]:
    name = place[-1]
    ends = [constant for constant in guard.constants if isinstance(constant, str) and constant.startswith(".") and len(constant) > 1]
    for value in (*guard.constants, *PLAIN):
        yield fresh(state, place, argument_specs.path_spec(name, value) if value in ends else {"is": "json", "value": value})
    yield fresh(state, place, argument_specs.path_spec(name))


def _without(state: State) -> Iterator[State]:
    """States without one of the files, what was asked for last first: that is what the program itself makes."""
    for key, spec in reversed(list(state["files"].items())):
        if spec["kind"] != "absent":
            folder = {os.path.dirname(key): {"kind": "empty"}} if os.path.dirname(key) else {}
            yield {**state, "files": {**folder, **state["files"], key: {"kind": "absent"}}}
