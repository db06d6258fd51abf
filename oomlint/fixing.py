"""Applies fixes: the first of two that overlap wins, the result is checked again, and a file is written whole or not at all."""

from __future__ import annotations

import os
import stat
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from oomlint.finding import Safety, overlap
from oomlint.source import FileKind, SourceError, apply_edits, content_digest, read_source, replacements_of
from oomlint.writing import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from oomlint.finding import Edit, Finding, Place

    Findings = Mapping[str, Sequence[Finding]]  # by the file they are in, one entry for every checked file
    Harmful = Callable[[str, Sequence[Finding]], bool]  # whether what is found in a file says that fixes do harm
    # Checks again, with these contents in place of the files. It may stop, and give nothing, as soon as fixes are known to do harm.
    Lint = Callable[[Mapping[str, bytes], Harmful | None], Findings | None]

ROUNDS: Final = 10


class Notice(Struct, frozen=True):
    """Something that the user should know about a file and that is no finding."""

    path: str
    message: str
    row: int = 0  # 0: it is about the whole file


class Change(Struct, frozen=True):
    """A file before and after its fixes."""

    path: str
    encoding: str
    before: bytes
    after: bytes


class FixOutcome(Struct, frozen=True):
    """What fixing came to. Nothing is written yet."""

    changes: tuple[Change, ...]
    fixed: tuple[Finding, ...]
    findings: Findings  # what is left, places in the changed files
    notices: tuple[Notice, ...]
    left_out: Mapping[Finding, str] = field(default_factory=dict)  # why a fix was not applied


class WriteRefusedError(Exception):
    """A file must not be written; the message is one line."""


def fix_all(
    found: Findings,
    lint: Lint,
    digests: Mapping[str, str] | None = None,
    foreign: Container[str] = (),
    beside: Container[str] = (),
    told: Container[str] = (),
    *,
    unsafe: bool = False,
    overlay: Mapping[str, bytes] | None = None,
    approve: Callable[[Finding], bool] | None = None,
) -> FixOutcome:
    """Apply the fixes of ``found`` in memory until nothing is left to apply, in at most ``ROUNDS`` rounds.

    Safe fixes are applied, with ``unsafe`` the unsafe ones too. A fix whose result does not parse, leaves its own finding or adds one of equal or higher
    severity is left out. ``digests`` stand for the contents that were checked: a file that has another one by now is not edited. ``foreign`` holds links that
    lead out of the project: they are not edited either, nor are files ``beside``, of which only findings are known. ``told`` holds files that
    are no code and may be edited. ``overlay`` holds contents that stand in for files (standard input). With ``approve``, a fix is applied only where all
    findings that it fixes are approved.
    """
    fixer = _Fixer(found, lint, digests or {}, foreign, beside, told, unsafe=unsafe, overlay=overlay or {}, approve=approve)
    fixer.run()
    return fixer.outcome()


class _Candidate(Struct):
    """A set of edits and the findings that it fixes."""

    edits: tuple[Edit, ...]
    findings: list[Finding]


class _State(Struct):
    """Contents of the changed files and what a check says of them."""

    contents: dict[str, bytes] = field(default_factory=dict)
    findings: Findings = field(default_factory=dict)


class _Fixer:
    def __init__(
        self,
        found: Findings,
        lint: Lint,
        digests: Mapping[str, str],
        foreign: Container[str],
        beside: Container[str],
        told: Container[str],
        *,
        unsafe: bool,
        overlay: Mapping[str, bytes],
        approve: Callable[[Finding], bool] | None,
    ) -> None:
        self._lint = lint
        self._foreign = foreign
        self._beside = beside
        self._told = told
        self._digests = digests
        self._overlay = overlay
        self._approvals = _Approvals(approve) if approve else None
        self._allowed = {Safety.SAFE, Safety.UNSAFE} if unsafe else {Safety.SAFE}
        self._state = _State(findings=found)
        self._changed: dict[str, tuple[str, bytes]] = {}  # encoding and bytes of the files before the first edit
        self._fixed: list[Finding] = []
        self._dropped: set[tuple[object, ...]] = set()
        self._notices: dict[Notice, None] = {}  # ordered, each once
        self._left_out: dict[Finding, str] = {}
        self._refusals: dict[str, str | None] = {}
        self._twins: dict[str, list[str]] | None = None
        self._harmed = ""  # the file in which the last attempt was seen to do harm

    def run(self) -> None:
        """Apply fixes round by round."""
        for _ in range(ROUNDS):
            candidates = self._candidates()
            if not candidates:
                return
            self._settle(candidates)
        for path in sorted({item.findings[0].place.path for item in self._candidates()}):
            self._say(path, f"fixes are still to be applied after {ROUNDS} rounds")

    def outcome(self) -> FixOutcome:
        """What has come of it."""
        changes = []
        for path, (encoding, before) in sorted(self._changed.items()):
            after = self._state.contents.get(path, before)
            if after != before:
                changes.append(Change(path, encoding, before, after))
        return FixOutcome(tuple(changes), tuple(self._fixed), self._state.findings, tuple(self._notices), self._left_out)

    # -- one round -----------------------------------------------------------------------------------------------

    def _candidates(self) -> list[_Candidate]:
        """Fixes that can be applied together, in the order of their findings."""
        chosen: dict[tuple[Edit, ...], _Candidate] = {}
        taken: list[Place] = []
        findings = sorted((item for items in self._state.findings.values() for item in items if self._may_apply(item)), key=lambda item: item.sort_key)
        within = [item for item in findings if item.fix and all(self._in_reach(edit.place.path) for edit in item.fix.edits)]
        granted = self._approvals.of(within) if self._approvals is not None else {}
        refused = {item.fix.edits for item in within if item.fix and not granted.get(item, True)}
        for finding in findings:
            fix = finding.fix
            if fix is None or fix.edits in refused or key(finding) in self._dropped:
                continue
            if fix.edits in chosen:
                chosen[fix.edits].findings.append(finding)
                continue
            if any(edit.place.path in self._state.findings and self._family(edit.place.path)[0] != edit.place.path for edit in fix.edits):
                continue  # the other path to the same file has this fix, too
            if not all(self._may_edit(edit.place.path) for edit in fix.edits):
                if self._in_reach(finding.place.path):  # else it is not shown, and nobody has asked for it
                    self._left_out[finding] = next((why for edit in fix.edits if (why := self._refusals.get(edit.place.path))), "another file is not checked")
                continue
            places = [edit.place for edit in fix.edits]
            if not any(overlap(one, other) for one in places for other in taken):
                chosen[fix.edits] = _Candidate(fix.edits, [finding])
                taken += places
        return list(chosen.values())

    def _may_apply(self, finding: Finding) -> bool:
        return finding.fix is not None and bool(finding.fix.edits) and finding.fix.safety in self._allowed

    def _settle(self, candidates: list[_Candidate]) -> None:
        """Apply the candidates that do good. Those that do harm are found by halving, first of all among those that edit the file in which it is seen."""
        base = dict(self._state.contents)
        good: list[_Candidate] = []
        waiting = [candidates]
        while waiting:
            group = waiting.pop()
            cause = self._attempt(base, good, group)
            if cause is None:
                good += group
            elif len(group) == 1:
                self._drop(group[0], cause)
            else:
                there = [item for item in group if any(edit.place.path == self._harmed for edit in item.edits)]
                others = [item for item in group if item not in there]
                middle = len(group) // 2
                waiting += [there, others] if there and others else [group[middle:], group[:middle]]
        fixed = [finding for item in good for finding in item.findings]
        self._fixed += fixed
        if self._approvals is not None:
            self._approvals.take_out(fixed)

    def _attempt(self, base: dict[str, bytes], good: list[_Candidate], group: list[_Candidate]) -> str | None:
        """Apply the group beside what is good already. On success the state moves on; else the cause comes back."""
        self._harmed = ""
        try:
            contents = self._apply(base, (*good, *group))
        except (SourceError, ValueError) as error:
            return f"it cannot be applied: {error}"
        before = self._state.findings
        fixed = [finding for item in group for finding in item.findings]

        def harmful(path: str, found: Sequence[Finding]) -> bool:
            self._harmed = path
            return _harm({path: before[path]}, {path: found}, [item for item in fixed if item.place.path == path], _bar(fixed)) is not None

        # What harm a single fix does is said; of several it is enough to know that they do any.
        findings = self._lint({**self._overlay, **self._spread(contents)}, harmful if len(group) > 1 else None)
        if findings is None:
            return "one of several does harm"
        cause = _harm(before, findings, fixed, _bar(fixed))
        if cause is None:
            self._state = _State(contents, findings)
        return cause

    def _apply(self, base: dict[str, bytes], candidates: Iterable[_Candidate]) -> dict[str, bytes]:
        """The contents of the changed files with the edits made. Raises SourceError or ValueError where one does not fit."""
        from oomlint.untouched import Code, check, keep_comments  # noqa: PLC0415 - brings ast and tokenize, which most runs need not

        by_path: dict[str, list[Edit]] = {}
        kept: set[Edit] = set()  # of safe fixes, which drop no comment
        for item in candidates:
            for edit in item.edits:
                by_path.setdefault(edit.place.path, []).append(edit)
            if all(finding.fix and finding.fix.safety is Safety.SAFE for finding in item.findings):
                kept.update(item.edits)
        contents = dict(base)
        for path, items in by_path.items():
            source = read_source(path, base.get(path, self._overlay.get(path)))
            if path not in base and path not in self._overlay and self._digests.get(path, "") not in {"", content_digest(path, source.data)}:
                raise ValueError("the file has changed since it was checked")
            self._changed.setdefault(path, (source.encoding, source.data))
            items.sort(key=lambda item: item.place)
            contents[path] = apply_edits(source, items)
            if source.kind is FileKind.PYTHON and path not in self._told:  # each cell of a notebook has been looked at
                replacements = replacements_of(source, items)
                check(Code(source.text), Code(read_source(path, contents[path]).text), replacements)
                keep_comments(source.text, replacements_of(source, [edit for edit in items if edit in kept]))
        return contents

    def _drop(self, candidate: _Candidate, cause: str) -> None:
        for finding in candidate.findings:
            self._dropped.add(key(finding))
            self._left_out[finding] = cause
        first = candidate.findings[0]
        cell = f"cell {first.place.cell}:" if first.place.cell else ""
        self._say(first.place.path, f"the fix of {first.code} at {cell}{first.place.row}:{first.place.column} is left out: {cause}")

    def _say(self, path: str, message: str) -> None:
        self._notices[Notice(path, message)] = None

    # -- files ---------------------------------------------------------------------------------------------------

    def _may_edit(self, path: str) -> bool:
        """Whether the file is one of those checked and can be written. What forbids it is said once."""
        if not self._in_reach(path):
            return False
        if path not in self._refusals:
            outside = "fixes are not applied: the link leads out of the project; name it to have its target fixed" if path in self._foreign else None
            self._refusals[path] = None if path in self._overlay else outside or refusal(path)
        cause = self._refusals[path]
        if cause is not None:
            self._say(path, cause)
        return cause is None

    def _in_reach(self, path: str) -> bool:
        return (path in self._state.findings or path in self._told) and path not in self._beside

    def _family(self, path: str) -> list[str]:
        """The checked paths that lead to the same file, this one included. Only the first of them is edited."""
        if self._twins is None:
            self._twins = {}
            for other in sorted(self._state.findings):
                self._twins.setdefault(os.path.realpath(other), []).append(other)
        return self._twins.get(os.path.realpath(path), [path])

    def _spread(self, contents: Mapping[str, bytes]) -> dict[str, bytes]:
        """The contents under every path that leads to the files."""
        return {twin: data for path, data in contents.items() for twin in self._family(path)}


class _Approvals:
    """Which fixes may be applied, round after round. Findings that are alike are told apart by their order, which stays while lines move."""

    def __init__(self, approve: Callable[[Finding], bool]) -> None:
        self._approve = approve
        self._granted: dict[Finding, bool] = {}  # of this round
        self._left: dict[tuple[object, ...], list[bool]] = {}  # of the round before, without what was fixed

    def of(self, findings: Sequence[Finding]) -> dict[Finding, bool]:
        """The answers for the findings of a round, which come in order. Only what is new is asked for."""
        alike: dict[tuple[object, ...], list[Finding]] = {}
        for finding in findings:
            alike.setdefault(key(finding), []).append(finding)
        self._granted = {}
        for each, items in alike.items():
            known = self._left.get(each)
            if known is None:
                answers = [self._approve(item) for item in items]
            elif len(known) == len(items):
                answers = known
            else:  # nobody knows which is which
                answers = [bool(known) and all(known)] * len(items)
            self._granted |= dict(zip(items, answers, strict=True))
        return self._granted

    def take_out(self, fixed: Iterable[Finding]) -> None:
        """End a round."""
        gone = set(fixed)
        self._left = {each: [] for each in (*self._left, *map(key, self._granted))}
        for finding, granted in self._granted.items():
            if finding not in gone:
                self._left[key(finding)].append(granted)


def key(finding: Finding) -> tuple[object, ...]:
    """What stays the same of a finding and its fix while lines above it move."""
    contents = tuple(edit.content for edit in finding.fix.edits) if finding.fix else ()
    return (finding.place.path, finding.place.cell, finding.code, finding.message, contents)


def _harm(before: Findings, after: Findings, fixed: list[Finding], bar: int) -> str | None:
    """Why the fixes of ``fixed`` must not be applied; ``None`` where they do what they should."""
    for path, items in after.items():
        broken = next((item for item in items if item.code is None), None)
        if broken is not None and all(item.code is not None for item in before.get(path, ())):
            return f"the result would not parse ({broken.message})"
    old, new = _tally(before), _tally(after)
    for spot, count in Counter((item.place.path, item.code) for item in fixed).items():
        if new[spot] > old[spot] - count:
            return f"{spot[1]} would stay"
    worse = next((item for item in added(before, after) if item.severity.rank <= bar), None)
    return f"it would add {worse.code}" if worse else None


def _bar(fixed: list[Finding]) -> int:
    """The mildest of what is fixed sets the bar: what is as grave as that, or graver, must not appear."""
    return max(item.severity.rank for item in fixed)


def added(before: Findings, after: Findings) -> Iterator[Finding]:
    """The findings of each rule that a file has more of. Which of several are new cannot be told: places move."""
    old, new = _tally(before), _tally(after)
    for path, items in after.items():
        yield from (item for item in items if new[path, item.code] > old[path, item.code])


def _tally(findings: Findings) -> Counter[tuple[str, str | None]]:
    return Counter((path, item.code) for path, items in findings.items() for item in items)


# -- writing -----------------------------------------------------------------------------------------------------


def refusal(path: str) -> str | None:
    """Why a file must not be written, in one line; ``None`` where it may be."""
    target = os.path.realpath(path)
    try:
        status = os.stat(target)
    except OSError as error:
        return f"fixes are not applied: {error.strerror or error}"
    if not stat.S_ISREG(status.st_mode):
        return "fixes are not applied: not a regular file"
    if status.st_nlink > 1:
        return f"fixes are not applied: the file has {status.st_nlink} hard links, and writing it would part them"
    if not os.access(target, os.W_OK) or not os.access(os.path.dirname(target), os.W_OK):
        return "fixes are not applied: the file or its folder is not writable"
    folder = os.stat(os.path.dirname(target))
    if folder.st_mode & stat.S_ISVTX and hasattr(os, "geteuid") and os.geteuid() not in {0, folder.st_uid, status.st_uid}:
        return "fixes are not applied: the file is another user's, and its folder lets only owners replace files (the sticky bit)"
    return None


def write(change: Change) -> None:
    """Replace a file by its fixed content: another process sees the old bytes or the new ones, never a half.

    Who may do what with it is kept (see :func:`write_whole`); a symbolic link stays and its target is written. Raises WriteRefusedError where the file is
    not what it was when it was checked or must not be written, and OSError where the system cannot write it or who may use it cannot be kept.
    """
    cause = refusal(change.path)
    if cause is not None:
        raise WriteRefusedError(cause)
    target = os.path.realpath(change.path)

    def compare() -> None:
        with open(target, "rb") as stream:
            if stream.read() != change.before:
                raise WriteRefusedError("fixes are not applied: the file has changed since it was read")

    compare()
    write_whole(target, change.after, keep=True, durable=True, before=compare)  # syncing takes time, in which somebody may save
