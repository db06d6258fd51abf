"""The files around a file: found by the project's own layout, opened only when a name leads there."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from oomlint.discovery import discover
from oomlint.model.budget import Steps
from oomlint.model.search_paths import SPEAKS, added, laid_out
from oomlint.source import SourceError, read_source
from oomlint.syntax.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    import libcst as cst

    from oomlint.config import Settings
    from oomlint.finding import Place
    from oomlint.source import Source
    from oomlint.syntax.walk import Scope, Walk

# A folder beside a script may share its name with one of these; inside a package the installed one is meant.
_INSTALLED = frozenset(
    "torch torchvision torchaudio numpy pandas scipy sklearn h5py transformers datasets tokenizers accelerate evaluate lightning pytorch_lightning "
    "monai timm tqdm yaml omegaconf hydra wandb PIL cv2 json os sys itertools functools random math types typing".split(),
)
_CALLED = re.compile(rb"(?<!def )(?<!class )\b(\w+)\s*\(")
_PARTIAL = re.compile(rb"partial\(\s*(?:\w+\.)*(\w+)")
_MAX_ENTRIES = 50_000  # files and folders that are looked at: a home folder is no project
_MAX_PROJECT_FILES = 20_000
_MAX_CALLER_FILES = 24
_MAX_BESIDE = 500  # names in a folder that are looked at for the sake of an import


@dataclass(eq=False)
class Module:
    """A parsed file of the project."""

    path: str
    source: Source
    tree: Tree
    project: Project = field(repr=False)

    @property
    def walk(self) -> Walk:
        """Scopes, effects and parents."""
        return self.tree.walk

    @property
    def root(self) -> Scope:
        """The module's own scope."""
        return self.tree.walk.root

    def place(self, node: cst.CSTNode, message: str = "") -> Place:
        """Where a node stands."""
        return self.tree.place(node, message)

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node."""
        return self.tree.code(node)


class Project:
    """A folder of training code, read on demand.

    ``root`` is the folder that bounds every search. ``overlay`` maps absolute paths to bytes that stand in for the files. ``folders`` are those of
    what is checked: their files belong to the project, also where a walk over the root passes them by.
    """

    def __init__(self, root: Path | str, settings: Settings, overlay: Mapping[str, bytes] | None = None, folders: Iterable[str] = ()) -> None:
        self.root = os.path.abspath(root)
        self._folders = tuple(folders)
        self.settings = settings
        self.overlay = dict(overlay or {})
        self._modules: dict[str, Module | SourceError] = {}
        self._bytes: dict[str, bytes] = {}
        self._files: tuple[str, ...] | None = None
        self._exists: dict[str, bool] = {}
        self._additions: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._additions_beside: dict[str, tuple[str, ...]] = {}
        self._laid_out: dict[str, tuple[tuple[str, str], ...]] = {}
        self._located: dict[tuple[str, str], str | None] = {}
        self._called: dict[str, frozenset[bytes]] = {}
        self._mentioned: dict[tuple[bytes, ...], list[str]] = {}
        self.steps = Steps()
        self.memo: dict[object, object] = {}  # what the rooms above learn once for a run

    # -- files ---------------------------------------------------------------------------------------------------

    def module(self, path: str) -> Module:
        """The parsed file.

        Raises SourceError where it cannot be read or parsed.
        """
        path = os.path.abspath(path)
        known = self._modules.get(path)
        if known is None:
            try:
                source = read_source(path, self.overlay.get(path))
                known = Module(path, source, Tree(source), self)
            except SourceError as error:
                known = error
            self._modules[path] = known
        if isinstance(known, SourceError):
            raise known
        return known

    def any_module(self) -> Module:
        """Some parsed file, for what belongs to the project as a whole."""
        return next(m for m in self._modules.values() if isinstance(m, Module))

    def find(self, path: str) -> Module | None:
        """The parsed file, or ``None`` where there is none that can be parsed."""
        try:
            return self.module(path)
        except SourceError:
            return None

    def files(self) -> tuple[str, ...]:
        """Python files and notebooks of the project, in order."""
        if self._files is None:
            found = discover([self.root, *self._folders], self.settings, self.root, most_entries=_MAX_ENTRIES).files
            self._files = tuple(sorted({*found, *self.overlay}))[:_MAX_PROJECT_FILES]
        return self._files

    @cached_property
    def listed(self) -> frozenset[str]:
        """The same as a set."""
        return frozenset(self.files())

    def raw(self, path: str) -> bytes:
        """Bytes of a file; empty where it cannot be read."""
        known = self._bytes.get(path)
        if known is None:
            known = self.overlay.get(path)
            if known is None:
                try:
                    with open(path, "rb") as stream:
                        known = stream.read(4_000_000)
                except OSError:
                    known = b""
            self._bytes[path] = known
        return known

    def _called_in(self, path: str) -> frozenset[bytes]:
        """Names that a file calls, or hands to ``partial``."""
        known = self._called.get(path)
        if known is None:
            data = self.raw(path)
            known = self._called[path] = frozenset((*_CALLED.findall(data), *_PARTIAL.findall(data)))
        return known

    def callers(self, name: str, near: str, owner: str = "") -> Iterator[Module]:
        """Modules that call something of that name, the nearest to ``near`` first.

        For a method ``owner`` is its class: other files count only where they speak of the class or of its module.
        """
        word = name.encode()
        listed = self.files()
        searched = listed if near in self.listed else (*listed, near)
        hits = [path for path in searched if (path in self._called or word in self.raw(path)) and word in self._called_in(path)]
        stem = os.path.basename(near).removesuffix(".py").encode()
        if stem == b"__init__":
            stem = os.path.basename(os.path.dirname(near)).encode()
        if owner:
            hits = [path for path in hits if path == near or owner.encode() in self.raw(path) or stem in self.raw(path)]
        hits.sort(key=lambda path: (path != near, -len(os.path.commonpath([path, near])), path))
        for path in hits[:_MAX_CALLER_FILES]:
            module = self.find(path)
            if module is not None:
                yield module

    def mentioning(self, words: Iterable[bytes], near: str) -> Iterator[Module]:
        """Modules whose bytes hold all of the words, the nearest first."""
        wanted = tuple(words)
        known = self._mentioned.get(wanted)
        if known is None:
            known = self._mentioned[wanted] = [path for path in self.files() if all(word in self.raw(path) for word in wanted)]
        hits = list(known)
        hits.sort(key=lambda path: (path != near, -len(os.path.commonpath([path, near])), path))
        for path in hits[:_MAX_CALLER_FILES]:
            module = self.find(path)
            if module is not None:
                yield module

    # -- imports -------------------------------------------------------------------------------------------------

    def _is_file(self, path: str) -> bool:
        known = self._exists.get(path)
        if known is None:
            known = path in self.overlay or os.path.isfile(path)
            self._exists[path] = known
        return known

    def _is_folder(self, path: str) -> bool:
        known = self._exists.get(path + os.sep)
        if known is None:
            known = os.path.isdir(path)
            self._exists[path + os.sep] = known
        return known

    def _chain(self, path: str) -> list[str]:
        """The folder of a file and those above it, up to the root."""
        found = [os.path.dirname(path)]
        while found[-1] != self.root and self._is_inside(found[-1]):
            found.append(os.path.dirname(found[-1]))
        return found

    def _roots(self, path: str) -> Iterator[tuple[str, str]]:
        """Folders from which an absolute import of the file may start, likeliest first, each with the package that it stands for, mostly none."""
        first, last = self._added(path)
        yield from (("", folder) for folder in first)
        above = self._chain(path)
        own = above[0]
        # A script sees its own folder first; a module of a package sees what its package lies in.
        if self._is_file(os.path.join(own, "__init__.py")):
            yield from (("", folder) for folder in above[1:])
            yield "", own
        else:
            yield from (("", folder) for folder in above)
        yield from (("", folder) for folder in last)
        for folder in above:
            known = self._laid_out.get(folder)
            if known is None:
                known = self._laid_out[folder] = tuple(place for place in laid_out(folder) if self._is_inside(place[1]) and self._is_folder(place[1]))
            yield from known

    def _is_inside(self, path: str) -> bool:
        return path == self.root or path.startswith(os.path.join(self.root, ""))

    def _added(self, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Folders that a file puts at the beginning and at the end of Python's search path."""
        known = self._additions.get(path)
        if known is None:
            known = (), ()
            data = self.raw(path)
            if any(word in data for word in SPEAKS):
                with suppress(SourceError):
                    known = added(read_source(path, self.overlay.get(path)).text, path, self.root)
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
        for package, root in chain(self._roots(importer), (("", place) for folder in beside for place in self._added_beside(folder))):
            if (package and package != parts[0]) or (installed and packaged and root == own):
                continue
            found = self._descend(root, parts[1:] if package else parts)
            if found is None or found == importer:
                continue
            if not found.endswith(os.sep):
                return found
            if installed:
                continue  # a folder of data called `datasets` is not the package
            if self._holds_python(found):
                return found
            spare = spare or found
        return spare

    def _holds_python(self, folder: str) -> bool:
        """Whether a folder without ``__init__.py`` is a package, rather than one of data that has its name."""
        known = self._exists.get(folder + "*.py")
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
            self._exists[folder + "*.py"] = known
        return known

    def submodule(self, package: str, name: str) -> str | None:
        """The file of ``name`` inside a package's file or folder."""
        folder = package if package.endswith(os.sep) else os.path.dirname(package)
        if not package.endswith(os.sep) and os.path.basename(package) != "__init__.py":
            return None
        return self._descend(folder.rstrip(os.sep), [name])
