"""Says what fixing would do, without doing it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from oomlint.finding import Safety
from oomlint.fixing import key, mend

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from oomlint.cache import Cache
    from oomlint.checking import Looked
    from oomlint.finding import Finding
    from oomlint.fixing import Findings, Harmful
    from oomlint.rechecking import Rechecker

# A check that was made once more with all fixes in place says what most of them do; to find the one that does harm takes a few.
_FORESEEN_CHECKS: Final = 12
_TOO_MUCH: Final = "too much"  # stands in the cache where it would take too long


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What ``--fix`` would do to the findings of a run. A finding with a fix that is in none of these goes with the fix of another."""

    safe: frozenset[Finding] = frozenset()  # mended by safe fixes
    unsafe: frozenset[Finding] = frozenset()  # mended by unsafe fixes besides
    left_out: Mapping[Finding, str] = field(default_factory=dict)  # why a fix would not be applied
    certain: bool = True  # False: to find out would take too long; all fixes count

    def said_by(self, other: Mapping[Finding, Finding]) -> Foreseen:
        """The same where some findings stand for others."""
        safe, unsafe = (frozenset(other.get(item, item) for item in items) for items in (self.safe, self.unsafe))
        left_out = {other.get(item, item): cause for item, cause in self.left_out.items()}
        mended = safe | unsafe
        return Foreseen(safe, unsafe - safe, {item: cause for item, cause in left_out.items() if item not in mended}, self.certain)


class _TooMuchError(Exception):
    """It would take too long to find out what fixes do."""


class Looks(NamedTuple):
    """What the first look at all files says."""

    candidates: dict[str, Looked]  # files that the scout lets through, by path
    digests: dict[str, str]  # of the contents that were checked, by path
    foreign: frozenset[str] = frozenset()  # links that lead out of the project, and that nobody has named


def foresee(lint: Rechecker, by_file: Mapping[str, tuple[Finding, ...]], looks: Looks, overlay: Mapping[str, bytes], cache: Cache) -> Foreseen:
    """Apply fixes as ``--fix`` would, in memory, where ``overlay`` stands in for files. What they may tell on is checked again, mostly once."""
    fixable = [item for items in by_file.values() for item in items if item.fix and item.fix.edits and item.fix.safety is not Safety.DISPLAY]
    if not fixable:
        return Foreseen()
    known = cache.foreseen(fixable)
    if known is None:
        left_over = _FORESEEN_CHECKS

        def limited(contents: Mapping[str, bytes], harmful: Harmful | None = None) -> Findings | None:
            nonlocal left_over
            left_over -= 1
            if left_over < 0:
                raise _TooMuchError
            return lint(contents, harmful)

        try:
            both = mend(by_file, limited, looks.digests, looks.foreign, unsafe=True, overlay=overlay)
            if not both.left_out:  # mostly: all of them do no harm, and some of them hardly will
                safe = replace(both, fixed=tuple(item for item in both.fixed if item.fix and item.fix.safety is Safety.SAFE))
            else:
                safe = mend(by_file, limited, looks.digests, looks.foreign, overlay=overlay)
                contents = {**overlay, **{change.path: change.after for change in safe.changes}}
                both = mend(safe.findings, limited, looks.digests, looks.foreign, unsafe=True, overlay=contents)
        except _TooMuchError:
            cache.keep_foreseen(fixable, [_TOO_MUCH] * len(fixable))
            cache.save()
            return _uncertain(fixable)
        causes = {key(item): cause for outcome in (safe, both) for item, cause in outcome.left_out.items()}
        mended = [Counter(map(key, outcome.fixed)) for outcome in (safe, both)]
        left = {key(item) for items in both.findings.values() for item in items}
        known = []
        for item in fixable:
            by = next((number for number, tally in enumerate(mended) if tally[key(item)]), None)
            if by is not None:
                mended[by][key(item)] -= 1
            known.append(("safe", "unsafe")[by] if by is not None else causes.get(key(item), "it overlaps another fix" if key(item) in left else ""))
        cache.keep_foreseen(fixable, known)
        cache.save()
    if known[0] == _TOO_MUCH:
        return _uncertain(fixable)
    told = list(zip(fixable, known, strict=True))
    safe_ones, unsafe_ones = (frozenset(item for item, what in told if what == word) for word in ("safe", "unsafe"))
    return Foreseen(safe_ones, unsafe_ones, {item: what for item, what in told if what not in {"safe", "unsafe", ""}})


def _uncertain(fixable: Iterable[Finding]) -> Foreseen:
    """What would be foreseen if all fixes were applied."""
    items = [item for item in fixable if item.fix]
    safe, unsafe = (frozenset(item for item in items if item.fix and item.fix.safety is safety) for safety in (Safety.SAFE, Safety.UNSAFE))
    return Foreseen(safe, unsafe, certain=False)
