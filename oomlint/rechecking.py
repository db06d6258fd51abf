"""Checks a project again with other contents in place of some files: only what the difference can tell on is checked, and each state of it once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oomlint.basis import Basis
from oomlint.checking import Checker, cannot_check
from oomlint.source import SourceError, read_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from oomlint.checking import CheckJob, Looked
    from oomlint.finding import Finding
    from oomlint.fixing import Harmful
    from oomlint.projects import Projects

    Contents = Mapping[str, bytes]


class _Answer(Struct, frozen=True, eq=False):
    """Findings of a file, and the state of the project in which they hold."""

    findings: tuple[Finding, ...]
    contents: Contents
    basis: Basis
    reads: frozenset[str]


class Rechecker:
    """Checks again, as often as somebody asks."""

    def __init__(self, checker: Checker, findings: Mapping[str, tuple[Finding, ...]], looks: Mapping[str, Looked], basis: Callable[[], Basis]) -> None:
        """``looks`` are those of the files that the rules were asked about, ``findings`` those of all files, which rest on ``basis``."""
        self._job: CheckJob = checker.job
        self._projects = checker.take_projects()
        self._looks = looks
        self._found = dict(findings)
        self._originals: dict[str, bytes] = {}
        self._basis = basis
        self._answers: dict[str, list[_Answer]] = {}
        self._others: dict[tuple[int, str, bytes], set[str]] = {}
        self._bases: dict[int, Basis] = {}  # what is named by its id has to live
        self._harmed: dict[str, None] = {}  # files that harm was found in, the last one at the end
        self._again: _Again | None = None  # the check that was made last, where files are asked for one by one

    def __call__(self, overlay: Contents, harmful: Harmful | None = None) -> dict[str, tuple[Finding, ...]] | None:
        """Findings of every file with those contents in place. With ``harmful``, ``None`` as soon as that says so of a file and what is found in it."""
        contents = {path: data for path, data in overlay.items() if data != self._job.overlay.get(path, self._original(path))}
        if not self._answers:
            basis = self._basis()
            nothing: Contents = {}
            known = {path: [_Answer(items, nothing, basis, basis.reads[path])] if path in basis.reads else [] for path, items in self._found.items()}
            self._answers.update(known)
        results = dict(self._found)
        difference = _Difference(contents, self._otherwise)
        todo: list[str] = []
        for path in self._found:
            if path not in self._looks and path not in contents:
                continue
            found = next((answer.findings for answer in reversed(self._answers[path]) if difference.leaves(answer)), None)
            if found is None:
                todo.append(path)
                continue
            results[path] = found
            if harmful is not None and harmful(path, found):
                return None
        late = {path: number for number, path in enumerate(self._harmed)}
        todo.sort(key=lambda path: (-late.get(path, -1), path not in contents))
        if not todo:
            return results
        again = _Again(self._job, self._projects, contents, self._looks)
        self._projects = again.projects
        for path in todo:
            answer = again.answer(path)
            self._answers[path].append(answer)
            results[path] = answer.findings
            if harmful is not None and harmful(path, answer.findings):
                self._harmed.pop(path, None)
                self._harmed[path] = None
                return None
        return results

    def of(self, path: str, overlay: Contents, heard: Callable[[str, tuple[Finding, ...]], None] | None = None) -> tuple[Finding, ...]:
        """Findings of one file with those contents in place. Only what was found last is remembered: an editor may ask for days.

        ``heard`` is told what each rule says as soon as it has said it.
        """
        contents = dict(overlay)
        difference = _Difference(contents, self._otherwise)
        answer = next(iter(self._answers.get(path, ())), None)
        if answer is None or not difference.leaves(answer):
            if self._again is None or self._again.contents != contents:
                self._again = _Again(self._job, self._projects, contents, {})
                self._projects = self._again.projects
                self._others.clear()
                self._bases.clear()
            answer = self._again.answer(path, heard)
            self._answers[path] = [answer]
        return answer.findings

    @property
    def projects(self) -> Projects:
        """The projects as they were seen last."""
        return self._projects

    def _original(self, path: str) -> bytes | None:
        known = self._originals.get(path)
        if known is None:
            try:
                known = self._originals[path] = read_source(path).data
            except SourceError:
                return None
        return known

    def _otherwise(self, basis: Basis, path: str, contents: Contents) -> set[str]:
        """The files on whose behalf a search finds something else in a changed one."""
        data = contents.get(path)
        if data is None:
            data = self._job.overlay.get(path) or self._original(path) or b""
        known = self._others.get((id(basis), path, data))
        if known is None:
            known = self._others[id(basis), path, data] = basis.otherwise(path, data)
            self._bases[id(basis)] = basis
        return known


class _Difference:
    """What has changed since earlier checks."""

    def __init__(self, contents: Contents, otherwise: Callable[[Basis, str, Contents], set[str]]) -> None:
        self._contents = contents
        self._otherwise = otherwise
        self._touched: dict[int, set[str]] = {}  # by the check

    def leaves(self, answer: _Answer) -> bool:
        """Whether an answer that was found with other contents holds with these."""
        known = self._touched.get(id(answer.contents))
        if known is None:
            before = answer.contents
            changed = {path for path in (*before, *self._contents) if before.get(path) != self._contents.get(path)}
            known = changed.union(*(self._otherwise(answer.basis, path, self._contents) for path in changed))
            self._touched[id(answer.contents)] = known
        return answer.reads.isdisjoint(known)


class _Again:
    """One more check."""

    def __init__(self, job: CheckJob, projects: Projects, contents: Contents, looks: Mapping[str, Looked]) -> None:
        overlay = {**job.overlay, **contents}
        self.contents = contents
        self._looks = looks
        self._basis = Basis()
        self.projects = projects.over(overlay)
        self._checker = Checker(replace(job, overlay=overlay), self.projects)

    def answer(self, path: str, heard: Callable[[str, tuple[Finding, ...]], None] | None = None) -> _Answer:
        """What is found in a file."""
        self._checker.heard = heard
        looked = self._looks.get(path) if path not in self.contents else None
        if looked is None:
            looked = self._checker.look(path)
        if looked.broken is not None or not looked.concerns:
            return _Answer((looked.broken,) if looked.broken else (), self.contents, self._basis, frozenset({path}))
        linted = self._checker.lint(looked)
        self._basis.note(path, linted.reads, linted.searches)
        failed = tuple(cannot_check(failure.path, f"{failure.code} failed: {failure.cause}") for failure in linted.failures)
        # Where nobody knows what it rests on, it rests on everything: it holds for these contents and for no others.
        reads = self._basis.reads.get(path)
        return _Answer(linted.findings + failed, self.contents, self._basis, reads if reads is not None else _Everything())


class _Everything(frozenset[str]):
    """A set that has whatever is asked for."""

    __slots__ = ()

    def isdisjoint(self, other: Iterable[object]) -> bool:
        """Whether the other one is empty."""
        return not any(True for _ in other)
