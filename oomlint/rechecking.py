"""Checks a project again with other contents in place of some files: only what the difference can tell on is checked, and each state of it once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oomlint.basis import Basis
from oomlint.checking import Checker, cannot_check
from oomlint.source import SourceError, read_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from oomlint.checking import Job, Looked
    from oomlint.finding import Finding
    from oomlint.fixing import Harmful
    from oomlint.model.project import Project

    Contents = Mapping[str, bytes]


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    """Findings of a file, and the state of the project in which they hold."""

    findings: tuple[Finding, ...]
    contents: Contents
    basis: Basis
    reads: frozenset[str]


class Rechecker:
    """Checks again, as often as somebody asks."""

    def __init__(self, checker: Checker, findings: Mapping[str, tuple[Finding, ...]], looks: Mapping[str, Looked], basis: Callable[[], Basis]) -> None:
        """``looks`` are those of the files that the rules were asked about, ``findings`` those of all files, which rest on ``basis``."""
        self._job: Job = checker.job
        self._project: Project | None = checker.project_so_far
        self._looks = looks
        self._found = dict(findings)
        self._originals: dict[str, bytes] = {}
        self._basis = basis
        self._answers: dict[str, list[_Answer]] = {}
        self._same: dict[tuple[int, str, str, bytes], bool] = {}
        self._tables: list[Basis] = []  # those that are named by their ids have to live
        self._harmed: dict[str, None] = {}  # files that harm was found in, the last one at the end

    def __call__(self, overlay: Contents, harmful: Harmful | None = None) -> dict[str, tuple[Finding, ...]] | None:
        """Findings of every file with those contents in place. With ``harmful``, ``None`` as soon as that says so of a file and what is found in it."""
        contents = {path: data for path, data in overlay.items() if data != self._job.overlay.get(path, self._original(path))}
        if not self._answers:
            basis = self._basis()
            known = {path: [_Answer(items, {}, basis, basis.reads[path])] if path in basis.reads else [] for path, items in self._found.items()}
            self._answers.update(known)
        results = dict(self._found)
        todo: list[str] = []
        for path in self._found:
            if path not in self._looks and path not in contents:
                continue
            found = next((answer.findings for answer in reversed(self._answers[path]) if self._holds(answer, contents)), None)
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
        again = _Again(self._job, self._project, contents, self._looks)
        self._project = again.project
        for path in todo:
            answer = again.answer(path)
            self._answers[path].append(answer)
            results[path] = answer.findings
            if harmful is not None and harmful(path, answer.findings):
                self._harmed.pop(path, None)
                self._harmed[path] = None
                return None
        return results

    def _original(self, path: str) -> bytes | None:
        known = self._originals.get(path)
        if known is None:
            try:
                known = self._originals[path] = read_source(path).data
            except SourceError:
                return None
        return known

    def _holds(self, answer: _Answer, contents: Contents) -> bool:
        """Whether the answer, found with other contents, holds with these."""
        changed = [path for path in {**answer.contents, **contents} if answer.contents.get(path) != contents.get(path)]
        return answer.reads.isdisjoint(changed) and all(self._finds_the_same(answer, near, path, contents) for near in answer.reads for path in changed)

    def _finds_the_same(self, answer: _Answer, near: str, path: str, contents: Contents) -> bool:
        """Whether all searches on behalf of a file find in a changed one what they have found before."""
        table = answer.basis.searches.get(near)
        if not table:
            return True
        data = contents.get(path)
        if data is None:
            data = self._job.overlay.get(path) or self._original(path) or b""
        key = (id(answer.basis), near, path, data)
        known = self._same.get(key)
        if known is None:
            known = self._same[key] = all(found.get(path, "") == what.of(path, data) for what, found in table.items())
            self._tables.append(answer.basis)
        return known


class _Again:
    """One more check."""

    def __init__(self, job: Job, project: Project | None, contents: Contents, looks: Mapping[str, Looked]) -> None:
        from oomlint.model.project import Project  # noqa: PLC0415 - brings libcst

        overlay = {**job.overlay, **contents}
        self._contents = contents
        self._looks = looks
        self._basis = Basis()
        self.project = project.over(overlay) if project is not None else Project(job.root, job.settings, overlay)
        self._checker = Checker(replace(job, overlay=overlay), self.project)

    def answer(self, path: str) -> _Answer:
        """What is found in a file."""
        looked = self._looks.get(path) if path not in self._contents else None
        if looked is None:
            looked = self._checker.look(path)
        if looked.broken is not None or not (looked.parse or looked.comments):
            return _Answer((looked.broken,) if looked.broken else (), self._contents, self._basis, frozenset({path}))
        linted = self._checker.lint(looked)
        self._basis.note(path, linted.reads, linted.searches)
        failed = tuple(cannot_check(failure.path, f"{failure.code} failed: {failure.cause}") for failure in linted.failures)
        # Where nobody knows what it rests on, it rests on everything: it holds for these contents and for no others.
        reads = self._basis.reads.get(path)
        return _Answer(linted.findings + failed, self._contents, self._basis, reads if reads is not None else _Everything())


class _Everything(frozenset[str]):
    """A set that has whatever is asked for."""

    __slots__ = ()

    def isdisjoint(self, other: Iterable[object]) -> bool:
        """Whether the other one is empty."""
        return not any(True for _ in other)
