"""The projects that the files of a run belong to."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Final

from oomlint.discovery import is_laid_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from oomlint.config import Settings
    from oomlint.model.project import Project

# Characters whose trees are kept; each takes about 100 bytes. What is let go of may have to be parsed again, in the middle of a project more likely than
# behind its end: files come in the order of their paths.
_MOST_PARSED: Final = 5_000_000
_MOST_KEPT: Final = 3_000_000  # of these, where the rest is let go of: files that all others of the project import
_MOST_PARSED_BEHIND: Final = 1_500_000
_MOST_LEARNT: Final = 100_000  # steps of the engines whose answers are kept; each takes 3 to 10 kB


class Projects:
    """The projects below a root, each made when one of its files is checked.

    A file belongs with those of its repository, the outermost one where they lie in each other; where it lies in none, with all below the root. Below a root
    that holds no code itself, a folder that is laid out like a repository (a README beside a license or requirements) is one, also where ``.git`` is missing.
    """

    def __init__(self, root: str, settings: Settings, overlay: Mapping[str, bytes], folders: Sequence[str], *, held: bool = False) -> None:
        """``folders`` belong to the project that they lie in, though a walk over its top passes them by.

        ``held`` says that somebody keeps what he has learnt of one project while files of others are asked for.
        """
        self._held = held
        self._root = root
        self._settings = settings
        self._overlay = overlay
        self._folders = folders
        self._tops: dict[str, str] = {}
        self._collects: bool | None = None  # whether the root is a collection of repositories
        self._known: dict[str, Project] = {}
        self._last = ""

    def of(self, path: str) -> Project:
        """The project of a file. Trees and answers of all projects are let go of where they are many: ask for it while no question is open."""
        top = self.top_of(path)
        if sum(project.parsed for project in self._known.values()) > (_MOST_PARSED if top == self._last else _MOST_PARSED_BEHIND):
            for where, project in self._known.items():
                project.let_go(_MOST_KEPT if where == top else 0, held=self._held)
            gc.collect()
        elif sum(project.learnt for project in self._known.values()) > _MOST_LEARNT:
            for project in self._known.values():
                project.let_go(_MOST_PARSED, held=self._held)
        self._last = top
        known = self._known.get(top)
        if known is None:
            known = self._known[top] = self.new(path)
        return known

    def new(self, path: str) -> Project:
        """The same, knowing nothing yet."""
        from oomlint.model.project import Project  # noqa: PLC0415 - brings libcst

        top = self.top_of(path)
        folders = tuple(folder for folder in self._folders if self._top(folder) == top)
        return Project(self._root, self._settings, self._overlay, folders, top)

    def forget(self, path: str) -> None:
        """Have all forgotten that was learnt of the project of a file, but for the trees."""
        known = self._known.get(self.top_of(path))
        if known is not None:
            self._known[self.top_of(path)] = known.over(self._overlay)
            known.let_go(held=self._held)

    def opened(self) -> Iterator[str]:
        """The files whose content is known by now, those among them that stand for others included."""
        for project in self._known.values():
            yield from project.opened()

    def over(self, overlay: Mapping[str, bytes]) -> Projects:
        """The same projects with other contents in place of files."""
        other = Projects(self._root, self._settings, overlay, self._folders, held=self._held)
        other._tops = self._tops
        other._known.update({top: project.over(overlay) for top, project in self._known.items()})
        return other

    def top_of(self, path: str) -> str:
        """The folder of the project that a file belongs to."""
        return self._top(os.path.dirname(path))

    def _top(self, folder: str) -> str:
        """The folder that bounds what belongs to a file in this one."""
        known = self._tops.get(folder)
        if known is None:
            known = self._root
            if folder != self._root and folder.startswith(os.path.join(self._root, "")):
                known = self._top(os.path.dirname(folder))
                if (
                    known == self._root
                    and not _is_repository(self._root)
                    and (_is_repository(folder) or (self._is_collection() and is_laid_out(_names_in(folder))))
                ):
                    known = folder
            self._tops[folder] = known
        return known

    def _is_collection(self) -> bool:
        """Whether the root holds no code and no repository's papers itself."""
        if self._collects is None:
            names = _names_in(self._root)
            self._collects = not is_laid_out(names) and not any(name.endswith((".py", ".ipynb")) for name in names)
        return self._collects


def _is_repository(folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, ".git"))


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
