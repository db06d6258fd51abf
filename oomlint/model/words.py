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
        self._texts: dict[bytes, list[int]] = {}  # the numbers of the texts that hold a word
        self._open: set[int] = set()  # texts that may hold anything
        for number, text in enumerate(texts):
            for word in set(_WORD.findall(text)):
                if len(word) > _LONGEST:
                    self._open.add(number)
                else:
                    self._texts.setdefault(word, []).append(number)
        self._words = list(self._texts)
        # A text may stand within a longer word. All words together are much less than what is written with them.
        self._joined = b"\n".join(self._words)
        self._ends = list(accumulate(len(word) + 1 for word in self._words))
        self._known: dict[bytes, frozenset[int]] = {}

    def numbers(self, text: bytes) -> frozenset[int] | None:
        """The texts that may hold a text: its words are there. ``None`` where it has no words, and any may."""
        found: frozenset[int] | None = None
        for word in _WORD.findall(text):
            here = self._holding(word)
            found = here if found is None else found & here
        return found

    def _holding(self, word: bytes) -> frozenset[int]:
        known = self._known.get(word)
        if known is None:
            numbers = set(self._open)
            place = self._joined.find(word)
            while place >= 0:
                at = bisect_right(self._ends, place)
                numbers.update(self._texts[self._words[at]])
                place = self._joined.find(word, self._ends[at])
            known = self._known[word] = frozenset(numbers)
        return known
