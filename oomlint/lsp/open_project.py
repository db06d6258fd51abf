"""Checks the open files of a project again and again, with what is in the editor in place of the files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint import plugins, registry
from oomlint.basis import Basis
from oomlint.beside_code import beside
from oomlint.causes import Causes, causes_of
from oomlint.checking import Checker, CheckJob, ordered
from oomlint.config import Sort, load_settings
from oomlint.deduplication import said_once
from oomlint.discovery import discover, tops_of, unreached
from oomlint.engine import RunOptions, run
from oomlint.rechecking import Rechecker
from oomlint.suppress import UNUSED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from oomlint.config import Settings
    from oomlint.finding import Finding

    Contents = Mapping[str, bytes]

_GONE: Final = (-1, -1)


class OpenProject:
    """The files of one project that somebody works on."""

    def __init__(self, settings: Settings, root: str, path: str) -> None:
        """``path`` is the file for whose sake the project is looked at. Raises ConfigError for a code that no rule has."""
        settings.check_codes(code for code, _ in registry.catalogue())
        codes = registry.chosen(settings)
        self.settings = settings.having(sort=Sort.PLACE)
        self.root = root
        self._job = CheckJob(self.settings, root, codes, scout=True, overlay={}, folders=unreached(tops_of([path]), settings, root), sources=plugins.used())
        self._in_use: dict[str, frozenset[Finding]] = {}  # comments that silence what a file causes in others, by its path
        self._marks: dict[str, tuple[int, int]] = {}
        self._lint = self._begin()

    def findings(self, path: str, contents: Contents, heard: Callable[[str, tuple[Finding, ...]], None] | None = None) -> tuple[Finding, ...]:
        """What is found in a file. One that is no code has nothing of its own. ``heard`` is told what each rule says as soon as it has said it."""
        if beside(path) is not None:
            return ()
        self._refresh(contents)
        found = said_once(self._lint.of(path, contents, heard))
        self._note(contents)
        return self.without_used(path, ordered(found))

    def without_used(self, path: str, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """The findings, without comments that are in use, as far as that is known from what the file was last seen to cause."""
        used = self._in_use.get(path, frozenset())
        return tuple(item for item in findings if item not in used)

    def causes(self, path: str, contents: Contents) -> Causes:
        """Where what the file causes in others is to be looked for."""
        self._refresh(contents)
        projects = self._lint.projects.over(contents)
        return causes_of(Checker(replace(self._job, overlay=contents), projects), (path,), (path,))

    def caused(self, path: str, contents: Contents, causes: Causes) -> tuple[Finding, ...]:
        """What a file causes in others, at the places in it."""
        self._refresh(contents)
        found = [item for other in sorted(causes.beside) for item in self._lint.of(other, contents)]
        # Where one of several loaders of a dataset is in the file itself, the others are no news.
        checker = Checker(replace(self._job, overlay=contents), self._lint.projects)
        own = self._lint.of(path, contents) if beside(path) is None else ()
        self._in_use[path] = checker.comments_in_use([*own, *found])
        alike = [*own, *causes.of(found, checker.is_silent)]
        self._note(contents)
        return ordered(causes.at_cause(item) for item in said_once(alike, causes.beside) if item.place.path in causes.beside)

    def fixed_content(self, path: str, contents: Contents) -> bytes | None:
        """The file with all safe fixes applied; ``None`` where there is nothing to apply."""
        # A comment that silences nothing in the file itself may silence what it causes.
        causes = any(item.code == UNUSED for item in self._lint.of(path, contents))
        options = RunOptions(fix=True, write=False, cache=False, processes=1, overlay=contents, causes=causes)
        report = run([path], self.settings, self.root, options)
        return next((change.after for change in report.changes if change.path == path), None)

    def _begin(self) -> Rechecker:
        self._marks.clear()
        return Rechecker(Checker(self._job), {}, {}, Basis)

    def _refresh(self, contents: Contents) -> None:
        """Begin again where a file has changed that is not open: everything may rest on it."""
        if any(path not in contents and _mark(path) != mark for path, mark in self._marks.items()):
            self._lint = self._begin()

    def _note(self, contents: Contents) -> None:
        """Remember as what the files were read."""
        for path in self._lint.projects.opened():
            if path not in self._marks and path not in contents:
                self._marks[path] = _mark(path)


def project_for(path: str, known: list[OpenProject], codes: tuple[str, ...]) -> OpenProject | None:
    """The project of a file, a new one where its settings are those of none. ``None`` where the settings leave it out. Raises ConfigError."""
    settings, folder = load_settings(None, isolated=False, start=_folder_of(path), known=codes)
    root = str(folder)
    if os.path.lexists(path) and not discover([path], settings, root, force_exclude=True).files:
        return None
    wanted = settings.having(sort=Sort.PLACE)
    project = next((each for each in known if each.root == root and each.settings == wanted), None)
    if project is None:
        project = OpenProject(settings, root, path)
        known.append(project)
    return project


def project_of_buffer(path: str, folder: str | None, codes: tuple[str, ...]) -> OpenProject:
    """The project of a buffer that stands for no file: it is a program of its own, with the settings of the folder that is worked in. Raises ConfigError."""
    from pathlib import Path  # noqa: PLC0415 - what load_settings takes

    settings, _ = load_settings(None, isolated=folder is None, start=Path(folder or os.curdir), known=codes)
    return OpenProject(settings, os.path.dirname(path), path)


def _folder_of(path: str) -> Path:
    from pathlib import Path  # noqa: PLC0415 - what load_settings takes

    return Path(os.path.dirname(path))


def _mark(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return _GONE
    return status.st_mtime_ns, status.st_size
