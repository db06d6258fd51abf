"""Which rows of a program were executed."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import CodeType, FrameType

    Asked = Mapping[str, list[list[int]]]  # by file: first row, last row, and the column from which on it is; -1 for whole rows


class Rows:
    """The rows of the project that were executed: how far a run came. ``asked``: what is told of in the end.

    A statement that stands in the row of its own condition is told by its instructions, as the row is executed in any case.
    """

    def __init__(self, root: str, asked: Asked | None = None) -> None:
        self.root = root
        self.seen: set[tuple[CodeType, int]] = set()
        self.columns: dict[str, set[tuple[int, int]]] = {}
        self.asked = {os.path.realpath(path): rows for path, rows in (asked or {}).items()}
        self.names = {os.path.realpath(path): path for path in asked or {}}
        self.closely = {path for path, rows in self.asked.items() if any(column >= 0 for _, _, column in rows)} if sys.version_info >= (3, 11) else set()

    def trace(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        """For `sys.settrace`."""
        del event, argument
        if not frame.f_code.co_filename.startswith(self.root):
            return None
        frame.f_trace_opcodes = frame.f_code.co_filename in self.closely
        return self._line

    def _line(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        del argument
        if event == "line":
            self.seen.add((frame.f_code, frame.f_lineno))
        elif event == "opcode" and sys.version_info >= (3, 11):
            positions = _positions(frame.f_code)
            self.columns.setdefault(frame.f_code.co_filename, set()).add(positions[frame.f_lasti // 2])
        return self._line

    def run(self, path: str, passed: Collection[int]) -> dict[str, list[bool]]:
        """Of what was asked for, what was executed. ``passed``: rows of the program at ``path`` that were left out or have failed."""
        lines: dict[str, set[int]] = {}
        for code, row in self.seen:
            lines.setdefault(os.path.realpath(code.co_filename), set()).add(row)
        lines[path] = lines.get(path, set()).difference(passed)
        return {self.names[file]: [self._was(file, lines.get(file, set()), *item) for item in rows] for file, rows in self.asked.items()}

    def _was(self, file: str, lines: set[int], first: int, last: int, column: int) -> bool:
        if column >= 0 and file in self.closely:
            return any(row in lines for row in range(first, last + 1)) and any(
                (first <= row <= last) and (row > first or at >= column) for row, at in self.columns.get(file, ())
            )
        return any(row in lines for row in range(first, last + 1))


_known: dict[CodeType, list[tuple[int, int]]] = {}


def _positions(code: CodeType) -> list[tuple[int, int]]:
    """Row and column of each instruction."""
    if code not in _known:
        _known[code] = [(row or 0, -1 if column is None else column) for row, _, column, _ in code.co_positions()]
    return _known[code]
