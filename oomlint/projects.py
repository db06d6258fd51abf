"""The projects that the files of a run belong to."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oomlint.config import Settings
    from oomlint.model.project import Project

_MOST_PARSED: Final = 4_000_000  # characters whose trees are kept; each takes about 100 bytes. What is let go of may have to be parsed again


class Projects:
    """The projects below a root, each made when one of its files is checked.

    A file belongs with those of its repository, the outermost one where they lie in each other; where it lies in none, with all below the root.
    """

    def __init__(self, root: str, settings: Settings, overlay: Mapping[str, bytes], folders: Sequence[str]) -> None:
        """``folders`` belong to the project that they lie in, though a walk over its top passes them by."""
        self._root = root
        self._settings = settings
        self._overlay = overlay
        self._folders = folders
        self._tops: dict[str, str] = {}
        self._known: dict[str, Project] = {}

    def of(self, path: str) -> Project:
        """The project of a file. Trees of all projects are let go of where they are many: ask for it while no question is open."""
        if sum(project.parsed for project in self._known.values()) > _MOST_PARSED:
            for project in self._known.values():
                project.let_go()
            gc.collect()
        top = self._top(os.path.dirname(path))
        known = self._known.get(top)
        if known is None:
            known = self._known[top] = self.new(path)
        return known

    def new(self, path: str) -> Project:
        """The same, knowing nothing yet."""
        from oomlint.model.project import Project  # noqa: PLC0415 - brings libcst

        top = self._top(os.path.dirname(path))
        folders = tuple(folder for folder in self._folders if self._top(folder) == top)
        return Project(self._root, self._settings, self._overlay, folders, top)

    def forget(self, path: str) -> None:
        """Have the project of a file made anew."""
        self._known.pop(self._top(os.path.dirname(path)), None)

    def over(self, overlay: Mapping[str, bytes]) -> Projects:
        """The same projects with other contents in place of files."""
        other = Projects(self._root, self._settings, overlay, self._folders)
        other._tops = self._tops
        other._known.update({top: project.over(overlay) for top, project in self._known.items()})
        return other

    def _top(self, folder: str) -> str:
        """The folder that bounds what belongs to a file in this one."""
        known = self._tops.get(folder)
        if known is None:
            known = self._root
            if folder != self._root and folder.startswith(os.path.join(self._root, "")):
                known = self._top(os.path.dirname(folder))
                if known == self._root and not _is_repository(self._root) and _is_repository(folder):
                    known = folder
            self._tops[folder] = known
        return known


def _is_repository(folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, ".git"))
