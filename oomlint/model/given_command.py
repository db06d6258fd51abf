"""The command that is asked about: the words behind its script, as a parser of options reads them, and the variables that it sets.

What a command leaves out is not set; what it gives in a way that nobody can read is not known. These are two things: a word such as ``$ARGS`` may stand
for any option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from oomlint.model.environments import Environment
from oomlint.model.values import ProvenanceStep
from oomlint.patterns import pattern

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from oomlint.finding import Place

_OPEN: Final = pattern(r"\$(?:\w+|[@*#?]|\{[^{}]*\}|\([^()]*\))|`[^`]*`")  # a word that the shell makes of something else, as a whole
_NUMBER: Final = pattern(r"-\.?\d.*")
MANY: Final = frozenset({"*", "+", "A...", "..."})


class GivenCommand(Struct, frozen=True):
    """One command."""

    words: tuple[str, ...] = ()  # behind the script
    script: str = ""
    environment: Environment = field(default_factory=Environment)
    place: Place | None = None  # where it is written

    def gives(self, text: str) -> ProvenanceStep:
        """That it gives something, as a step in how a value comes about."""
        return ProvenanceStep(None, None, f"the command gives `{text}`", self.place, kind="option" if self.place is None else "shell")


class DeclaredOption(Struct, frozen=True):
    """An option as a parser declares it."""

    key: Hashable
    flags: frozenset[str]
    values: int | str | None = None  # how many words it takes; one where nothing is said, as in ``argparse``


class ParsedWords(Struct):
    """What a parser makes of words."""

    given: dict[Hashable, list[str]] = field(default_factory=dict)  # by the keys of the options; the last ones count
    opened: bool = False  # whether any option may be given that ``given`` lacks
    plain: list[str] = field(default_factory=list)  # words that are no option's
    left: list[str] = field(default_factory=list)  # options that the parser does not have


def is_known(word: str) -> bool:
    """Whether nothing in a word is for the shell to fill in."""
    return not _OPEN.search(word)


def read(words: Sequence[str], options: Iterable[DeclaredOption]) -> ParsedWords:
    """Read words as ``argparse`` does: ``--num-work 3``, ``--num-workers=3``, ``-j 3`` and ``-j3`` are one. Two parsers may have the same option."""
    every = tuple(options)
    flags = {flag: option for option in every for flag in option.flags}
    found, at = ParsedWords(), 0
    while at < len(words):
        word = words[at]
        at += 1
        if _OPEN.fullmatch(word):
            found.given.clear()
            found.opened = True
            continue
        if word == "--":
            found.plain += words[at:]
            break
        if not _is_flag(word):
            found.plain.append(word)
            continue
        flag, equals, text = word.partition("=")
        option = flags.get(flag) or _abbreviated(flag, flags)
        if option is None and word[:2] != "--" and (short := flags.get(word[:2])) is not None and short.values != 0:
            option, flag, equals, text = short, word[:2], "=", word[2:]
        if option is None:
            found.left.append(word)
            if not equals and at < len(words) and not _is_flag(words[at]):  # it may be its value
                found.left.append(words[at])
                at += 1
            continue
        end = at
        if not equals:
            most = option.values if isinstance(option.values, int) else len(words) if option.values in MANY else 1
            exact = option.values is None or isinstance(option.values, int)
            while end < len(words) and end - at < most and (not _is_flag(words[end]) or (exact and end == at)):
                end += 1
        full = flag if flag in flags else next(one for one in option.flags if one.startswith(flag))
        for one in (other for other in every if full in other.flags and other.values == option.values):
            found.given.pop(one.key, None)  # the last one counts
            found.given[one.key] = [text] if equals else list(words[at:end])
        at = end
    return found


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word != "-" and not _NUMBER.fullmatch(word)


def _abbreviated(flag: str, flags: Mapping[str, DeclaredOption]) -> DeclaredOption | None:
    """The one option that a flag begins."""
    found = {option.key: option for full, option in flags.items() if flag.startswith("--") and len(flag) > len("--") and full.startswith(flag)}
    return next(iter(found.values())) if len(found) == 1 else None


def placed(plain: Sequence[str], wanted: Sequence[int | str | None]) -> list[list[str]]:
    """The words of each positional argument, by how many each of them takes."""
    rest, found = list(plain), []
    for place, count in enumerate(wanted):
        needed = sum(1 if other in {None, "+"} else other if isinstance(other, int) else 0 for other in wanted[place + 1 :])
        room = max(0, len(rest) - needed)
        taken = count if isinstance(count, int) else 1 if count is None else min(1, room) if count == "?" else room
        found.append(rest[:taken])
        rest = rest[taken:]
    return found


def constant_of(word: str) -> object:
    """What a parser makes of a word whose type nobody says: a number or a truth where it is one."""
    if word in {"True", "False", "None"}:
        return {"True": True, "False": False, "None": None}[word]
    for kind in (int, float):
        try:
            return kind(word) if len(word) < len(str(2**63)) else word
        except ValueError:
            continue
    return word


def spellings(flags: Iterable[str]) -> set[str]:
    """The ways in which a field of a class may be written, which some parsers take with hyphens, and some with both."""
    spelt = {flag for flag in flags if flag.startswith("-")}
    return spelt | {flag.replace("_", "-") for flag in spelt} | {flag.replace("-", "_").replace("__", "--", 1) for flag in spelt if flag.startswith("--")}
