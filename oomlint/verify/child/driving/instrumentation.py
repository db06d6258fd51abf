"""What the code of a piece calls while it runs: it limits the turns of loops, counts steps, notes what fails, and stands in."""

from __future__ import annotations

import time
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.server.exceptions import words
from oomlint.verify.child.synthesis import deferred_value, name_heuristics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oomlint.verify.child.synthesis.stub_registry import Book

_now: Final = time.process_time  # the program may have a clock of its own

SLOW: Final = 0.05  # seconds of processor time; a statement that takes so long and fails is left out of later trials


class Guide:
    """Leads one run. ``reading`` is called before each step and after the last one, ``reached`` before each statement beside the loop."""

    def __init__(self, book: Book, *, steps: int, epochs: int, reading: Callable[[], None], pulse: Callable[[str], None], stand_in: bool = False) -> None:
        self.book = book
        self.steps = steps
        self.epochs = epochs
        self.reading = reading
        self.pulse = pulse
        self.stand_in = stand_in  # go over a stand-in loader, whatever the loop goes over
        self.taken = 0  # steps, over all epochs
        self.marks = 0  # how often the row was come to
        self.finished = 0  # how often the loop came to its end
        self.error: BaseException | None = None  # what the loop raised
        self.failures: dict[str, str] = {}  # by key: "line 12: FileNotFoundError: ..."
        self.left_out: dict[str, None] = {}
        self.branches: dict[str, None] = {}
        self.locals: dict[str, Any] = {}
        self.later = 0  # items of loops around the loop that come last: their turns do not come to the row
        self.more = False  # whether such a loop had items that no turn was made for
        self.look = False  # whether a loop that has made its steps is to be asked for one item more
        self.cut = 0  # how often there was one, or a loop with a condition was ended before its condition did
        self.passed: set[int] = set()  # rows of statements that were left out or have failed
        self.omitted: set[int] = set()  # those that were left out, compound ones with all that is in them
        self.slow: list[str] = []  # keys of statements that took their time and failed
        self._since = 0.0
        self.calls = False  # the function is the body of the loop: it ends in each step
        self.silent = False  # not the function, but what prepares it
        self._turn = 0
        self._open = False  # steps were taken since the last reading

    # -- beside the loop ---------------------------------------------------------------------------------------------------

    def at(self, key: str) -> None:
        """A statement beside the loop begins."""
        self._since = _now()
        self.pulse(key)

    def failed(self, key: str, row: int, error: BaseException) -> None:
        """It has failed; the run goes on."""
        self.failures[key] = f"line {row}: {words(error)}"
        self.passed.add(row)
        if _now() - self._since > SLOW:
            self.slow.append(key)

    def skipped(self, row: int, text: str) -> None:
        """A statement is left out."""
        self.passed.add(row)
        self.omitted.add(row)
        self.left_out[f"line {row}: `{text}` was left out"] = None

    def instead(self, name: str) -> Any:
        """The stand-in for a name that nothing has bound."""
        return self.book.value(name)

    def again(self, name: str) -> Any:
        """In each step a new stand-in for what a statement in the loop would have computed."""
        low = name.lower()
        named = low in name_heuristics.SMALL or not name_heuristics.FRACTION.search(low)  # "output_mean" is no number where a model has computed it
        spec = self.book.specs.get(name) or (name_heuristics.scalar(name) if named else None)
        if spec and spec["kind"] == "const":
            self.book.learn(name, spec)
            return spec["value"]
        return self.book.make(name, "output")

    def branch(self, test: Any, wanted: bool, row: int) -> bool:  # noqa: FBT001 -- called from generated code
        """The condition of a branch around the loop: it is taken."""
        try:
            holds = bool(test)
        except Exception:  # noqa: BLE001 -- the condition is the user's
            holds = not wanted
        if holds != wanted:
            self.branches[f"the branch of line {row} is taken"] = None
        return wanted

    def outer(self, items: Any) -> Iterator[Any]:
        """A loop around the loop makes a few turns."""
        count = 0
        if items is not None and not isinstance(items, deferred_value.Late):
            rest = iter(items)
            last = [*islice(rest, self.later)]
            for item in chain(rest, last):
                if count >= self.epochs:
                    self.more = True
                    return
                count += 1
                yield item
        yield from range(count, self.epochs)

    def round(self) -> bool:
        """As above, for a loop with a condition."""
        self._turn += 1
        return self._turn <= self.epochs

    # -- the loop ----------------------------------------------------------------------------------------------------------

    def loop(self, items: Any, text: str, again: Callable[[], Any] | None = None) -> Iterator[Any]:
        """The items of the loop, so many as there are to be steps. ``again``: makes the items again, for a loop that has too few of them."""
        self.pulse("")
        source = self._source(items, text)
        for _ in range(self.steps):
            self._step()
            try:
                item = next(source)
            except StopIteration:
                if again is None:
                    self._back()
                    return
                source = self._source(again(), text)
                item = next(source, self)
                if item is self:  # there are none, or they can be gone through but once
                    self._back()
                    return
            yield item
        if self.look and next(source, self) is not self:
            self.cut += 1

    def _source(self, items: Any, text: str) -> Iterator[Any]:
        if deferred_value.is_open(items):
            items = deferred_value.become(items, lambda: {"kind": "loader"})
        if items is None or self.stand_in:
            if "loop" not in self.book.specs:
                self.book.learn("loop", {"kind": "loader"})
            items = self.book.value("loop")
            if text.startswith("enumerate("):
                items = enumerate(items)
        if isinstance(items, range) and len(items) < self.steps:
            items = range(items.start, items.start + self.steps * items.step, items.step)
        return iter(items)

    def turn(self) -> bool:
        """Whether a loop with a condition may make one more turn."""
        if self._turn == 0:
            self.pulse("")
        if self._turn >= self.steps:
            self._turn = 0
            self.cut += 1
            return False
        self._turn += 1
        self._step()
        return True

    def _step(self) -> None:
        self.reading()
        self.taken += 1
        self._open = True

    def _back(self) -> None:
        """The step that was begun has not come to be: its reading is that of the end."""
        self.taken -= 1
        self._open = False

    def mark(self) -> None:
        """The row of the finding is come to."""
        self.marks += 1

    def raised(self, error: BaseException) -> None:
        """The loop raises."""
        if not isinstance(error, GeneratorExit):
            self.error = error

    def ended(self) -> None:
        """The loop has come to its end."""
        self.finished += 1
        if self.epochs == 1:
            self.close()

    def close(self) -> None:
        """Take the reading after the last step."""
        if self._open:
            self._open = False
            self.reading()

    def final(self, names: dict[str, Any]) -> None:
        """The function ends, with these local names."""
        if self.silent:
            return
        if not self.calls:
            self.close()
        self.locals = {name: value for name, value in names.items() if not name.startswith("_oomlint_")}


def nothing(*_: object) -> None:
    """For readings that nobody wants."""


def every(items: Iterable[Any]) -> int:
    """Go through all items; how many there were."""
    return sum(1 for _ in items)
