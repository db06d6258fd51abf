"""Which files hold a text: by an index of all their words, so that a question costs what it finds, not what there is to look through."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_WORD: Final = re.compile(rb"\w+")
_LONGEST: Final = 48  # bytes of a word; what is longer is data, as the pictures in a notebook are


class WordIndex:
    """The words of some texts."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._texts = list(texts)
        self._numbers: dict[bytes, list[int]] = {}  # of the texts that have a word
        self._data: dict[int, bytes] = {}  # texts with longer ones
        for number, text in enumerate(self._texts):
            for word in set(_WORD.findall(text)):
                if len(word) > _LONGEST:
                    self._data[number] = text
                else:
                    self._numbers.setdefault(word, []).append(number)
        self._words = list(self._numbers)
        # What is looked for may stand within a longer word. All words together are much less than what is written with them.
        self._joined = b"\n".join(self._words)
        self._ends = list(accumulate(len(word) + 1 for word in self._words))
        self._known: dict[bytes, frozenset[int]] = {}

    def holding(self, wanted: Iterable[bytes]) -> list[int]:
        """The numbers of the texts in which all that is wanted stands, in order."""
        found = frozenset(range(len(self._texts)))
        for part in wanted:
            for word in _WORD.findall(part):
                found &= self._with(word)
            if not _WORD.fullmatch(part):
                found = frozenset(number for number in found if part in self._texts[number])
        return sorted(found)

    def _with(self, word: bytes) -> frozenset[int]:
        known = self._known.get(word)
        if known is None:
            numbers = {number for number, text in self._data.items() if word in text}
            place = self._joined.find(word)
            while place >= 0:
                at = bisect_right(self._ends, place)
                numbers.update(self._numbers[self._words[at]])
                place = self._joined.find(word, self._ends[at])
            known = self._known[word] = frozenset(numbers)
        return known
