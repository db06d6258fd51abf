"""What answers rest on: the files that were read for them, and what was looked for in all files.

Findings of a file are good for as long as everything that they rest on stays as it is. Answers are remembered and serve several files, so each one carries
what was read for it: whoever is given it has read that, too.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FOUND: Final = "1"  # what a search says of a file where there is no more to say

_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")
_Finder = TypeVar("_Finder", bound=Callable[..., str])


class FileSearch(NamedTuple):
    """Something that is looked for in every file of a project."""

    finder: str  # the function that looks: its module and its name
    words: tuple[str, ...]  # what it is told beside the file
    below: str = ""  # what the paths of the files begin with

    def of(self, path: str, data: bytes) -> str:
        """What the search finds in a file. Raises LookupError where there is no such finder."""
        if not path.startswith(self.below):
            return ""
        if self.finder not in _FINDERS and _NAME.fullmatch(self.finder):
            with suppress(ImportError):
                importlib.import_module(self.finder.partition(":")[0])
        return _FINDERS[self.finder](path, data, *self.words)


Searched = tuple[str, FileSearch, "Mapping[str, str]"]  # on behalf of which file, what, and what was found in each file that has any of it

_NAME: Final = re.compile(r"oomlint\.(?:model|memory)(?:\.\w+)+:\w+")  # what is kept on the disk may name no other function
_FINDERS: Final[dict[str, Callable[..., str]]] = {}


def finder(function: _Finder) -> _Finder:
    """Mark a function of a module as one that looks for something in a file: it is given its path, its bytes and words, and says what it finds, or nothing."""
    _FINDERS[_name(function)] = function
    return function


def search_by(function: Callable[..., str], words: Iterable[str], below: str) -> FileSearch:
    """The search that such a function makes in the files whose paths begin with ``below``."""
    return FileSearch(_name(function), tuple(words), below)


@cache
def _name(function: Callable[..., str]) -> str:
    return f"{function.__module__}:{function.__name__}"


class Readings:
    """Notes what is read while a file is checked.

    A question is open from the moment that nobody remembers its answer until the answer is kept; what is read meanwhile belongs to it and to the questions
    around it. Files are bits of a number: there are many answers, and their files are joined all the time.
    """

    def __init__(self) -> None:
        self.searched: dict[str, dict[FileSearch, Mapping[str, str]]] = {}  # by the file on whose behalf: what was found, by file; nothing for the others
        self._news: list[Searched] = []
        self.now = 0  # files that the innermost open question has read
        self.asked: list[
            tuple[AnswerMemory[Any, Any], object, int]
        ] = []  # open questions: who remembers them, their keys, and what those around them have read
        self._bits: dict[str, int] = {}
        self._paths: list[str] = []
        self._alike: dict[int, int] = {}  # one number for all answers that rest on the same files

    def begin(self) -> None:
        """Start with a file to be checked."""
        while self.asked:
            memory, key, _ = self.asked.pop()
            memory.forget(key, len(self.asked))
        self.now = 0

    def end(self) -> tuple[str, ...]:
        """The files that have been read since then."""
        files = self._all()
        self.begin()
        return tuple(path for number, path in enumerate(self._paths) if files >> number & 1)

    def read(self, path: str) -> None:
        """Note that a file's content, or that it has none, is known from here on."""
        bit = self._bits.get(path)
        if bit is None:
            bit = self._bits[path] = 1 << len(self._paths)
            self._paths.append(path)
        self.now |= bit

    def search(self, near: str, what: FileSearch, found: Mapping[str, str]) -> None:
        """Note that all files were searched on behalf of one of them. Whoever has read that one rests on what was found."""
        known = self.searched.setdefault(near, {})
        if what not in known:
            known[what] = found
            self._news.append((near, what, found))

    def news(self) -> tuple[Searched, ...]:
        """Searches that nobody has been told of yet."""
        found = tuple(self._news)
        self._news.clear()
        return found

    def close(self, number: int | None) -> int:
        """The files that were read for an answer since its question was opened as that one. Questions inside of it that were given up are over, too."""
        asked = self.asked
        if number is None:
            files = self._all()  # nobody has said when the question came up
        else:
            while len(asked) > number + 1:
                self.give_up()
            files = self.now
            if len(asked) > number:
                self.now = files | asked.pop()[2]
        return self._alike.setdefault(files, files)

    def give_up(self) -> None:
        """Note that the question opened last is not looked into."""
        memory, key, before = self.asked.pop()
        memory.forget(key, len(self.asked))
        self.now |= before

    def _all(self) -> int:
        files = self.now
        for _, _, before in self.asked:
            files |= before
        return files


class AnswerMemory(Generic[_Key, _Answer]):
    """Answers to questions, with the files that were read for them. To ask for one that is not there is to begin looking for it."""

    __slots__ = ("_known", "_open", "_readings")

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._known: dict[_Key, tuple[_Answer, int]] = {}
        self._open: dict[_Key, int] = {}  # how many questions were open when this one came up first

    def get(self, key: _Key) -> _Answer | None:
        """The answer, or ``None`` where there is none yet."""
        known = self._known.get(key)
        readings = self._readings
        if known is None:
            # As `_ask` does: nothing is asked more often.
            asked = readings.asked
            self._open.setdefault(key, len(asked))
            asked.append((self, key, readings.now))
            readings.now = 0
            return None
        readings.now |= known[1]
        return known[0]

    def answer(self, key: _Key, find: Callable[[], _Answer]) -> _Answer:
        """The answer, which ``find`` gives where there is none yet."""
        known = self._known.get(key)
        if known is None:  # an answer may be ``None``, too
            self._ask(key)
            answer = self[key] = find()
            return answer
        self._readings.now |= known[1]
        return known[0]

    def known(self, key: _Key) -> _Answer | None:
        """The same, of an answer that is not looked for where there is none."""
        known = self._known.get(key)
        if known is None:
            return None
        self._readings.now |= known[1]
        return known[0]

    def answers_too(self, key: _Key, other: _Key) -> None:
        """Say that the answer to a question is that to another one as well."""
        self._known[other] = self._known[key]

    def __contains__(self, key: _Key) -> bool:
        if key in self._known:
            return True
        self._ask(key)
        return False

    def __getitem__(self, key: _Key) -> _Answer:
        answer, files = self._known[key]
        self._readings.now |= files
        return answer

    def __setitem__(self, key: _Key, answer: _Answer) -> None:
        self._known[key] = (answer, self._readings.close(self._open.pop(key, None)))

    def _ask(self, key: _Key) -> None:
        """Note that an answer is not remembered and will be looked for."""
        readings = self._readings
        self._open.setdefault(key, len(readings.asked))
        readings.asked.append((self, key, readings.now))
        readings.now = 0

    def answers(self) -> list[_Answer]:
        """All answers."""
        return [answer for answer, _ in self._known.values()]

    def assume(self, key: _Key, answer: _Answer) -> None:
        """What is said to whoever asks again before the answer is there."""
        self._known[key] = (answer, 0)

    def give_up(self) -> None:
        """Say that the question which came up just now is not looked into. To forget it costs no more than that others seem to have read more."""
        self._readings.give_up()

    def forget(self, key: _Key, number: int) -> None:
        """Take the question from those that are open, if it is the one with that number."""
        if self._open.get(key) == number:
            del self._open[key]
