"""Whether the runs of a loop have come to what its fix changes; and other ways to call the function, where they have not.

Equal results say nothing of a line that neither program has run. Flags are turned over then, what is left out by default is replaced by a stand-in, and at last
the branches around such lines are taken whatever their condition says.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oomlint.measurement import Trait
from oomlint.source import SourceError
from oomlint.verify.ast_names import named
from oomlint.verify.case import Part
from oomlint.verify.strategies.changed_statements import ends, heads, of_case, parameters, readers, tested
from oomlint.verify.strategies.unseen_changes import beyond, copied, hidden, moves, precision

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from oomlint.verify.case import Case
    from oomlint.verify.session import Session
    from oomlint.verify.strategies.changed_statements import Function, Statement

_MOST: Final = 40  # statements that only read what is changed
_DROPS: Final = "drop_last"
Key = tuple[Part, str]  # a program's file


@dataclass(frozen=True, slots=True)
class Call:
    """A way to call the function, for loops:find: what is put in beside what is known."""

    known: Mapping[str, Any]
    opened: Sequence[str] = ()
    taken: Sequence[tuple[str, bool]] = ()  # branches: with some the program goes where it may never go


class ChangeCoverage:
    """The changed statements of a case, and which of them were run."""

    def __init__(self, case: Case, functions: Mapping[Part, str]) -> None:
        self._own = case.finding.place.path
        self._by_hand = case.by_hand
        self._functions = functions
        self._texts: dict[Key, str] = {}
        self.changed: dict[Key, list[Statement]] = {}
        self.reading: dict[Key, list[Statement]] = {}
        self._around: dict[Key, list[Statement]] = {}  # functions that changed statements stand in
        self._ran: set[tuple[Part, str, tuple[int, ...]]] = set()
        self._failed: set[tuple[Part, str, tuple[int, ...]]] = set()
        self._beyond = ""  # what the fix changes beside the statement of the finding
        self._blind = ""  # why equal results say nothing
        self._asides: list[str] = []
        self.moves = False  # whether the fix moves tensors in another way, which is nothing on the CPU
        self.drops = False  # whether the fix has to do with the last batch
        self.ends = False  # whether it has to do with when a loop ends
        for path in case.changes:
            self._compare(case, path)

    def _compare(self, case: Case, path: str) -> None:
        try:
            before, after = (case.source(part, path).text for part in Part)
            script = path == self._own and not self._functions[Part.BEFORE]
            pair = of_case(case, path, script=script)
        except (SourceError, SyntaxError, ValueError, RecursionError):
            return  # a file of settings, or of data
        self.drops |= before.count(_DROPS) != after.count(_DROPS)
        if case.by_hand and path == self._own:
            row = case.source(Part.BEFORE).program_row(case.finding.place)
            self._beyond = beyond(before, after, (self._functions[Part.BEFORE], self._functions[Part.AFTER]), row, [item for found in pair for item in found])
        if case.by_hand:
            simulated = case.plan.loop is not None and case.plan.loop.simulated
            self._unseen(before, after, copies=Trait.OF_STATES in case.plan.traits, simulated=simulated)
        self.ends |= case.by_hand and any(ends(text, found) for text, found in zip((before, after), pair, strict=True))
        for part, text, found in zip(Part, (before, after), pair, strict=True):
            key = part, path
            self._texts[key] = text
            self.changed[key] = found
            self.reading[key] = readers(text, found, script=script)[:_MOST]
            self._around[key] = heads(text, {item.function for item in found})

    def _unseen(self, before: str, after: str, *, copies: bool, simulated: bool) -> None:
        """What has no effect on the CPU, where the fix changes it."""
        name = precision(before, after)
        if name:
            self._blind = self._blind or f"the fix adds or takes out `{name}`, of which nothing is seen on the CPU"
        if simulated:
            return
        if copies and copied(before, after):
            self._blind = self._blind or f"the fix takes out `{copied(before, after)}`: what is kept may change afterwards, which these runs need not show"
        moved = moves(before, after)
        if moved:
            self.moves = True
            self._asides.append(f"on the CPU `{moved}` changes nothing: it was not compared")

    # -- runs ----------------------------------------------------------------------------------------------------------

    def asked(self, session: Session, part: Part) -> dict[str, list[list[int]]]:
        """For loops:measure: by file, the rows to look out for."""
        found = {}
        for (of, path), items in self.changed.items():
            rows = [item.asked for item in (*items, *self.reading[of, path], *self._around[of, path])]
            if of is part and rows:
                found[session.path(part, path)] = rows
        return found

    def ran(self, session: Session, part: Part, answer: Mapping[str, Any]) -> set[tuple[Part, str, tuple[int, ...]]]:
        """What loops:measure says was run."""
        told = answer.get("run") or {}
        found: set[tuple[Part, str, tuple[int, ...]]] = set()
        for of, path in self.changed:
            if of is part:
                name = session.path(part, path)
                asked = self.asked(session, part).get(name, [])
                found.update((part, path, tuple(rows)) for rows, was in zip(asked, told.get(name, ()), strict=False) if was)
        failed = self._raised(part, answer)
        self._failed |= failed
        return found - failed

    def _raised(self, part: Part, answer: Mapping[str, Any]) -> set[tuple[Part, str, tuple[int, ...]]]:
        """Statements that the run has come to, and has passed over as they raise or cannot be run."""
        rows = answer.get("passed") or ()
        key = part, self._own
        # A function has run where any row of it has: what raises in it is another statement.
        items = [item for item in (*self.changed.get(key, ()), *self.reading.get(key, ())) if not item.name]
        return {(*key, tuple(item.asked)) for item in items if any(item.asked[0] <= row <= item.asked[1] for row in rows)}

    def note(self, ran: set[tuple[Part, str, tuple[int, ...]]]) -> None:
        """Both programs were run and compared: what they have come to counts."""
        self._ran |= ran

    def _missing(self, items: Mapping[Key, Sequence[Statement]]) -> list[tuple[Key, Statement]]:
        return [(key, item) for key, found in items.items() for item in found if (*key, tuple(item.asked)) not in self._ran]

    @property
    def complete(self) -> bool:
        """Whether all that is changed, and all that reads it, was run."""
        return not self._missing(self.changed) and not self._missing(self.reading)

    @property
    def gap(self) -> str:
        """What the fix changes and no run has come to; empty where there is nothing."""
        missing = [entry for entry in self._missing(self.changed) if not self._elsewhere(*entry)]
        if not missing:
            return (self._broken if self._by_hand else "") or self._blind
        (part, _), item = next((entry for entry in missing if entry[0][0] is Part.AFTER), missing[0])
        more = sum(entry[0][0] is part for entry in missing) - 1
        does = "changes" if part is Part.AFTER else "takes out"
        return f"{item.words}, which the fix {does}, was not run{f', nor {more} more' if more else ''}"

    def unknown(self, left_out: Sequence[str]) -> str:
        """What a fix by hand changes of which nothing is known, as something that it may depend on was left out; empty where there is nothing."""
        missing = hidden(left_out) if self._by_hand else ""
        return f"{self._beyond}, which the fix changes, may do otherwise than is seen here: {missing}" if missing and self._beyond else ""

    @property
    def _broken(self) -> str:
        """What reads what the fix changes, and raises on stand-ins."""
        failed = [item for key, item in self._missing(self.reading) if (*key, tuple(item.asked)) in self._failed]
        return f"{failed[0].words}, which reads what the fix changes, could not be run" if failed else ""

    def _elsewhere(self, key: Key, item: Statement) -> bool:
        """Whether it stands in another function, into which no run has come: a fix may do more than what the finding is about."""
        part, _ = key
        if item.function in {"", self._functions[part]} or len(self._missing(self.changed)) == sum(map(len, self.changed.values())):
            return False
        return any(head.name == item.function and (*key, tuple(head.asked)) not in self._ran for head in self._around[key])

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not run although the fix changes it or a value that it reads."""
        changed, reading = (
            [(self._elsewhere(key, item), item) for key, item in self._missing(items) if key[0] is Part.AFTER] for items in (self.changed, self.reading)
        )
        other = [f"{item.words}: the fix changes it as well, and it was not run" for elsewhere, item in changed if elsewhere]
        return (*self._asides, *other, *(f"{item.words}: reads what the fix changes, and was not run" for elsewhere, item in reading if not elsewhere))

    # -- other ways ----------------------------------------------------------------------------------------------------

    def calls(self, known: Mapping[str, Any]) -> Iterator[Call]:
        """Ways to come to what is missing, the most faithful first. Ask for the next one only while something is missing."""
        name = self._functions[Part.AFTER]
        tree = ast.parse(self._texts.get((Part.AFTER, self._own), ""))
        function = named(tree, name) if name else None
        optional = parameters(function) if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) else {}
        done: list[Any] = []
        for names in (self._tested(function), list(optional)) if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) else ():
            wanted = [item for item in names if item in optional]
            flags = {item: not known.get(item, optional[item]) for item in wanted if optional[item] is not None}
            opened = [item for item in wanted if optional[item] is None and item not in known]
            for call in (Call({**known, **flags}, opened), Call({**known, **flags}), Call(known, opened)):
                what = dict(call.known), list(call.opened)
                if (flags or opened) and what not in done and what != (dict(known), []) and not self.complete:
                    done.append(what)
                    yield call
        if not self.complete:
            taken = self._branches()
            opened = [item for item in self._tested(function) if item in optional and optional[item] is None and item not in known] if optional else []
            if taken:
                yield Call(known, opened, taken)

    def _tested(self, function: Any) -> list[str]:
        items = [item for (_, path), item in (*self._missing(self.changed), *self._missing(self.reading)) if path == self._own]
        of: Function = function
        return tested(items, of) if items else []

    def _branches(self) -> list[tuple[str, bool]]:
        found: dict[str, bool] = {}
        for (_, path), item in (*self._missing(self.changed), *self._missing(self.reading)):
            if path == self._own:
                for test, way in item.tests:
                    found.setdefault(ast.unparse(test.test), way)
        return list(found.items())
