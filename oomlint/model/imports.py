"""Where an import leads: the file that a dotted name means, by the project's layout, its metadata and what is put into the search path."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from oomlint.discovery import is_passed_by
from oomlint.model.readings import AnswerMemory
from oomlint.model.search_paths import SPEAKS, added, exported, laid_out
from oomlint.source import SourceError, read_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Project

# A folder beside a script may share its name with one of these; inside a package the installed one is meant.
_INSTALLED = frozenset(
    "torch torchvision torchaudio numpy pandas scipy sklearn h5py transformers datasets tokenizers accelerate evaluate lightning pytorch_lightning "
    "monai timm tqdm yaml omegaconf hydra wandb PIL cv2 json os sys itertools functools random math types typing".split(),
)
_MAX_BESIDE = 500  # names in a folder that are looked at for the sake of an import


class Locator:
    """Finds the files that imports of a project mean."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.exists: dict[str, bool] = {}  # of files; of folders with a separator at the end
        self._hidden: dict[str, bool] = {}
        self._additions: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._laid_out: dict[str, tuple[tuple[str, str], ...]] = {}
        self._additions_beside: AnswerMemory[str, tuple[str, ...]] = AnswerMemory(project.readings)
        self._located: AnswerMemory[tuple[str, str], str | None] = AnswerMemory(project.readings)

    def _is_file(self, path: str) -> bool:
        if self._is_hidden(os.path.dirname(path)):
            self._project.readings.read(path)  # nobody else sees it come
        known = self.exists.get(path)
        if known is None:
            known = path in self._project.overlay or os.path.isfile(path)
            self.exists[path] = known
        return known

    def _is_hidden(self, folder: str) -> bool:
        """Whether a look over the project passes the folder by."""
        known = self._hidden.get(folder)
        if known is None:
            known = self._hidden[folder] = any(map(is_passed_by, os.path.relpath(folder, self._project.root).split(os.sep))) and folder != self._project.root
        return known

    def _is_folder(self, path: str) -> bool:
        known = self.exists.get(path + os.sep)
        if known is None:
            known = os.path.isdir(path)
            self.exists[path + os.sep] = known
        return known

    def _chain(self, path: str) -> list[str]:
        """The folder of a file and those above it, up to the root."""
        found = [os.path.dirname(path)]
        while found[-1] != self._project.root and self._is_inside(found[-1]):
            found.append(os.path.dirname(found[-1]))
        return found

    def _roots(self, path: str) -> Iterator[tuple[str, str]]:
        """Folders from which an absolute import of the file may start, likeliest first, each with the package that it stands for, mostly none."""
        first, last = self._added(path)
        yield from (("", folder) for folder in first)
        above = self._chain(path)
        own = above[0]
        # A script sees its own folder first, and then what a shell script exports; a module of a package sees what its package lies in.
        if self._is_file(os.path.join(own, "__init__.py")):
            yield from (("", folder) for folder in above[1:])
            yield "", own
        else:
            yield "", own
            yield from (("", folder) for folder in self._exported())
            yield from (("", folder) for folder in above[1:])
        yield from (("", folder) for folder in last)
        for folder in above:
            self._project.readings.read(os.path.join(folder, "setup.py"))
            known = self._laid_out.get(folder)
            if known is None:
                known = self._laid_out[folder] = tuple(place for place in laid_out(folder) if self._is_inside(place[1]) and self._is_folder(place[1]))
            yield from known

    def _is_inside(self, path: str) -> bool:
        return path == self._project.root or path.startswith(os.path.join(self._project.root, ""))

    def _added(self, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Folders that a file puts at the beginning and at the end of Python's search path."""
        data = self._project.raw(path)
        known = self._additions.get(path)
        if known is None:
            known = (), ()
            if any(word in data for word in SPEAKS):
                with suppress(SourceError):
                    known = added(read_source(path, self._project.overlay.get(path)).text, path, self._project.root)
            self._additions[path] = known
        return known

    def _added_beside(self, folder: str) -> tuple[str, ...]:
        """Folders that the scripts in a folder put into the search path, and the packages above it."""
        known = self._additions_beside.get(folder)
        if known is None:
            names: list[str] = []
            with suppress(OSError):
                names = sorted(name for name in os.listdir(folder) if name.endswith(".py"))[:_MAX_BESIDE]
            around = [os.path.join(each, "__init__.py") for each in self._chain(os.path.join(folder, ""))[1:]]
            files = filter(self._is_file, [*(os.path.join(folder, name) for name in names), *around])
            known = tuple(dict.fromkeys(place for path in files for places in self._added(path) for place in places))
            self._additions_beside[folder] = known
        return known

    def _descend(self, folder: str, parts: list[str]) -> str | None:
        here = folder
        for number, part in enumerate(parts):
            deeper = os.path.join(here, part)
            if number == len(parts) - 1 and self._is_file(deeper + ".py") and not self._is_file(os.path.join(deeper, "__init__.py")):
                return deeper + ".py"
            if not self._is_folder(deeper):
                return None
            here = deeper
        init = os.path.join(here, "__init__.py")
        return init if self._is_file(init) else here + os.sep

    def _exported(self) -> tuple[str, ...]:
        """Folders that shell scripts of the project put into ``PYTHONPATH``."""
        known = self._additions_beside.get("")
        if known is None:
            texts = ((path, self._project.raw(path)) for path in self._project.shell_files())
            found = (place for path, data in texts if b"PYTHONPATH" in data for place in exported(data.decode("utf-8", "replace"), path, self._project.top))
            known = self._additions_beside[""] = tuple(dict.fromkeys(found))
        return known

    def locate(self, importer: str, dotted: str, level: int = 0) -> str | None:
        """The file that ``import dotted`` (or ``from ...dotted import``) in ``importer`` means.

        A package without ``__init__.py`` comes back as its folder with a separator at the end; ``None`` is outside the project. Searched are the folder of
        the importer and those above it, up to the root; what the metadata of a project in one of them names, or its ``src``; and what the importer, a script
        beside it or a package around it adds to ``sys.path``, as far as it lies below the root.
        """
        parts = dotted.split(".") if dotted else []
        if level:
            folder = os.path.dirname(importer)
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            if not parts:
                init = os.path.join(folder, "__init__.py")
                return init if self._is_file(init) else folder + os.sep
            return self._descend(folder, parts)
        key = (importer, dotted)
        if key not in self._located:
            self._located[key] = self._locate(importer, parts)
        return self._located[key]

    def _locate(self, importer: str, parts: list[str]) -> str | None:
        own = os.path.dirname(importer)
        installed = parts[0] in _INSTALLED
        beside = () if installed or parts[0] in sys.stdlib_module_names else (own,)
        packaged = self._is_file(os.path.join(own, "__init__.py"))
        spare: str | None = None
        elsewhere = (("", place) for folder in beside for place in (*self._added_beside(folder), *self._exported()))
        for package, root in chain(self._roots(importer), elsewhere):
            if (package and package != parts[0]) or (installed and packaged and root == own):
                continue
            found = self._descend(root, parts[1:] if package else parts)
            if found is None or found == importer or (installed and self._is_around(found, importer, root)):
                continue
            if not found.endswith(os.sep):
                return found
            if installed:
                continue  # a folder of data called `datasets` is not the package
            if self._holds_python(found):
                # A folder without `__init__.py` is what a name means where no file anywhere in the search path has it.
                files = (self._descend(place, parts) for place in self._exported() if beside)
                return next((file for file in files if file is not None and file.endswith(".py")), found)
            spare = spare or found
        return spare

    def _is_around(self, found: str, importer: str, root: str) -> bool:
        """Whether it is the importer's own package, inside another: `import torch` in `package/torch/ops.py` means the installed one."""
        inner = root != self._project.root and self._is_file(os.path.join(root, "__init__.py"))
        return inner and os.path.basename(found) == "__init__.py" and importer.startswith(os.path.join(os.path.dirname(found), ""))

    def _holds_python(self, folder: str) -> bool:
        """Whether a folder without ``__init__.py`` is a package, rather than one of data that has its name."""
        known = self.exists.get(folder + "*.py")
        if known is None:
            try:
                entries = sorted(os.listdir(folder))[:_MAX_BESIDE]
                known = any(name.endswith(".py") for name in entries) or any(
                    name.isidentifier() and any(inner.endswith(".py") for inner in os.listdir(os.path.join(folder, name)))
                    for name in entries
                    if self._is_folder(os.path.join(folder, name))
                )
            except OSError:
                known = False
            self.exists[folder + "*.py"] = known
        return known

    def submodule(self, package: str, name: str) -> str | None:
        """The file of ``name`` inside a package's file or folder."""
        folder = package if package.endswith(os.sep) else os.path.dirname(package)
        if not package.endswith(os.sep) and os.path.basename(package) != "__init__.py":
            return None
        return self._descend(folder.rstrip(os.sep), [name])
