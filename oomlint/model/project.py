"""The files around a file: found by the project's own layout, opened only when a name leads there."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

import oomlint.syntax.quick  # noqa: F401 - before anybody imports libcst by itself
from oomlint.beside_code import EDITOR_FOLDER, SHELL_SUFFIXES, beside, is_settings, launches
from oomlint.discovery import discover
from oomlint.model.imports import Locator
from oomlint.model.index import Index, index_of
from oomlint.model.names import short, written_as
from oomlint.model.readings import FOUND, AnswerMemory, Readings, finder, search_by
from oomlint.model.step_limits import Steps
from oomlint.model.words import WordIndex
from oomlint.source import FileKind, SourceError, kind_of, read_source
from oomlint.syntax.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import libcst as cst

    from oomlint.config import Settings
    from oomlint.finding import Place
    from oomlint.model.given_command import GivenCommand
    from oomlint.model.readings import FileSearch
    from oomlint.source import Source
    from oomlint.syntax.scopes import Scope
    from oomlint.syntax.walk import Walk

_CALLED = re.compile(rb"\b(?<!def )(?<!class )(\w++)\s*\(")  # what a word has taken it keeps: what is behind it is no word
_WORD = re.compile(r"\w+")
_PARTIAL = re.compile(rb"(?:partial|delayed)\(\s*(?:\w+\.)*(\w+)")
_ASSIGNED = re.compile(  # `cls = Images`, `build = resnet if args.small else vgg`
    rb"^[ \t]*(\w+)[ \t]*=[ \t]*(?:\w+\.)*([A-Za-z_]\w*)(?:[ \t]+if\b.*[ \t]else[ \t]+(?:\w+\.)*([A-Za-z_]\w*))?[ \t]*(?:#.*)?\r?$", re.MULTILINE
)
_ALIAS = re.compile(rb"\b(\w++)[ \t]+as[ \t]+(\w+)")
_MOST_LAUNCH_FILES = 400  # more scripts than anyone reads
_MOST_SETTINGS_FILES = 400
_MAX_ENTRIES = 50_000  # files and folders that are looked at: a home folder is no project
_MAX_PROJECT_FILES = 20_000
_MAX_CALLER_FILES = 24
_FEW_CALLER_FILES = 6  # of a method whose name more files call than that: most of them call another one's
_FEW_QUESTIONS = 16  # for words, that are answered by looking through the files
_MOST_CHANGED = 32  # files that are looked through beside an index of words, which knows what stood in them before
_MOST_SEARCHES = 4_000  # that are remembered for the project with other contents
_Shared = TypeVar("_Shared")


@finder
def _calls(path: str, data: bytes, name: str, owner: str, *ways: str) -> str:
    """Whether a file calls something of that name, which it can have come by."""
    del path
    word = name.encode()
    if word not in data or word not in _called(data):
        return ""
    return FOUND if _may_have(data, owner) or _imports(index_of(data), ways, owner) else ""


def _may_have(data: bytes, owner: str) -> bool:
    """Whether a file may have an object of a class without an import: it names the class, or has Hydra make what the settings name."""
    return owner != "" and (owner.encode() in data or (b"hydra" in data and b"instantiate(" in data))


def _imports(index: Index | None, names: Iterable[str], owner: str) -> bool:
    """Whether a file may import one of the names, or everything that some module has. An object, whose methods have an ``owner``, may have any name."""
    return index is None or bool(index.stars) or not (index.imported if owner else index.taken).isdisjoint(names)


@lru_cache(maxsize=256)
def _called(data: bytes) -> frozenset[bytes]:
    """Names that are called, as they are, as they are imported or as a statement names them anew, or handed to ``partial``."""
    called = frozenset((*_CALLED.findall(data), *_PARTIAL.findall(data)))
    assigned = (name for alias, *named in _ASSIGNED.findall(data) if alias in called for name in named if name)
    return called.union((name for name, alias in _ALIAS.findall(data) if alias in called), assigned)


@finder
def _mentions(path: str, data: bytes, *words: str) -> str:
    del path
    return FOUND if all(word.encode(errors="surrogateescape") in data for word in words) else ""


class Module(Struct, eq=False, dict=True):
    """A parsed file of the project."""

    path: str
    source: Source
    tree: Tree
    project: Project
    walk: Walk  # that of the tree: scopes, effects and parents

    @cached_property
    def words(self) -> str:
        """Each word of the text once: to look for one in these takes a tenth of the time."""
        return "\n".join({*_WORD.findall(self.source.text)})

    @property
    def root(self) -> Scope:
        """The module's own scope."""
        return self.tree.walk.root

    @cached_property
    def called(self) -> Mapping[str, Sequence[int]]:
        """The numbers of its calls, by the last name of what each calls, ``TABLE[]`` where that is taken out of a table."""
        found: dict[str, list[int]] = {}
        for number, (call, _) in enumerate(self.walk.calls):
            found.setdefault(written_as(call.func), []).append(number)
        return found

    def calls_of(self, written: Iterable[str]) -> list[tuple[cst.Call, Scope]]:
        """The calls of what has one of these last names, in source order, with the scopes that they stand in."""
        return [self.walk.calls[number] for number in sorted({number for name in written for number in self.called.get(name, ())})]

    def place(self, node: cst.CSTNode, message: str = "") -> Place:
        """Where a node stands."""
        return self.tree.place(node, message)

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node."""
        return self.tree.code(node)

    def function_of(self, call: cst.Call) -> str:
        """How what a call runs is written, short enough for a message."""
        return short(self.code(call.func))


class Project:
    """A folder of training code, read on demand.

    Imports are followed within ``root``, and what a file's surroundings are asked for (callers, mentions) is looked for below ``top``: a repository, where
    the root holds several, else the root. ``overlay`` maps absolute paths to bytes that stand in for the files. ``folders`` are those of what is checked:
    their files belong to the project, also where a walk over the root passes them by.
    """

    def __init__(
        self, root: Path | str, settings: Settings, overlay: Mapping[str, bytes] | None = None, folders: Iterable[str] = (), top: str | None = None
    ) -> None:
        self.root = os.path.abspath(root)
        self.top = top or self.root
        self._folders = tuple(folders)
        self._searched_below = "" if self._folders else os.path.join(self.top, "")
        self.settings = settings
        self.overlay = dict(overlay or {})
        self._modules: dict[str, Module | SourceError] = {}
        self._bytes: dict[str, bytes] = {}
        self._files: tuple[str, ...] | None = None
        self._launch_files: tuple[str, ...] | None = None
        self._settings_files: tuple[str, ...] | None = None
        self._indexes: dict[str, Index | None] = {}
        self._stems: dict[str, list[str]] = {}  # files by what an import calls them
        self._parsed = 0  # characters
        self._wanted: Counter[str] = Counter()  # how often each file was asked for since trees were let go of
        self.steps = Steps()
        self.learnt = 0  # the steps whose answers are kept
        self.command: GivenCommand | None = None  # where it is asked what one certain command does
        self._called: dict[str, frozenset[bytes]] = {}
        self._words: WordIndex | None = None
        self._changed: frozenset[str] = frozenset()  # files that have other contents than when the index was made
        self._asked = 0
        self._mentioned: dict[tuple[bytes, ...], list[str]] = {}
        self._searched: dict[FileSearch, dict[str, str]] = {}
        # What searches have found with other contents, and the files that have changed since: what is found in a file rests on that file alone.
        self._searched_before: dict[FileSearch, tuple[dict[str, str], frozenset[str]]] = {}
        self.readings = Readings()
        self._locator = Locator(self)
        self.memo: AnswerMemory[object, object] = AnswerMemory(self.readings)  # what the rooms above learn once for a run

    def shared(self, make: Callable[[Project], _Shared]) -> _Shared:
        """What is made of the project once, for all who ask for it."""
        known = self.memo.get(make)
        if known is None:
            known = self.memo[make] = make(self)
        return cast("_Shared", known)

    def over(self, overlay: Mapping[str, bytes]) -> Project:
        """The same project with other contents in place of files. What is known of the files that stay as they are need not be learnt again."""
        other = Project(self.root, self.settings, overlay, self._folders, self.top)
        changed = frozenset(path for path in (*self.overlay, *overlay) if self.overlay.get(path) != overlay.get(path))
        if self._files is not None and {path for path in changed if beside(path) is None} <= self.listed:
            other._files, other._launch_files = self._files, self._launch_files
            other._locator.exists.update(self._locator.exists)
            other._stems = self._stems
            other._asked = self._asked
            if self._words is not None and len(self._changed | changed) <= _MOST_CHANGED:
                other._words, other._changed = self._words, self._changed | changed
            if len(self._searched_before) <= _MOST_SEARCHES:
                other._searched_before = {what: (found, since | changed) for what, (found, since) in self._searched_before.items()}
            other._searched_before |= {what: (found, changed) for what, found in self._searched.items()}
        other._parsed = self._parsed
        kept = ((path, known) for path, known in self._modules.items() if path not in changed)
        other._modules.update({path: replace(known, project=other) if isinstance(known, Module) else known for path, known in kept})
        other._bytes.update({path: data for path, data in self._bytes.items() if path not in changed})
        other._called.update({path: names for path, names in self._called.items() if path not in changed})
        other._indexes.update({path: index for path, index in self._indexes.items() if path not in changed})
        return other

    # -- files ---------------------------------------------------------------------------------------------------

    def module(self, path: str) -> Module:
        """The parsed file.

        Raises SourceError where it cannot be read or parsed.
        """
        path = os.path.abspath(path)
        self.readings.read(path)
        self._wanted[path] += 1
        known = self._modules.get(path)
        if known is None:
            try:
                source = read_source(path, self.overlay.get(path))
                tree = Tree(source)
                known = Module(path, source, tree, self, tree.walk)
                self._parsed += len(source.text)
            except SourceError as error:
                known = error
            self._modules[path] = known
        if isinstance(known, SourceError):
            raise known
        return known

    @property
    def parsed(self) -> int:
        """Characters of the trees that are kept."""
        return self._parsed

    def let_go(self, most: int = 0, *, held: bool = False) -> None:
        """Forget what was learnt from trees, and all but those asked for most often, of so many characters. Not while a question is open.

        ``held`` says that somebody may go on with what is forgotten here; else it is of no use from then on.
        """
        kept: dict[str, Module | SourceError] = {}
        self._parsed = 0
        for path, _ in self._wanted.most_common():
            known = self._modules.get(path)
            if isinstance(known, Module):
                if self._parsed + len(known.source.text) > most:
                    break
                kept[path] = known
                self._parsed += len(known.source.text)
        self._modules = kept
        self.learnt = 0
        self._wanted.clear()
        # What was learnt refers to itself in circles, and to all trees: once these are cut, nobody has to look for what is free.
        for room in self.memo.answers() if not held else ():
            if hasattr(room, "__dict__"):
                vars(room).clear()
        self.memo = AnswerMemory(self.readings)

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
            found = discover([self.top, *self._folders], self.settings, self.root, most_entries=_MAX_ENTRIES).files
            self._files = tuple(sorted({*found, *(path for path in self.overlay if path.startswith(self._searched_below) and beside(path) is None)}))[
                :_MAX_PROJECT_FILES
            ]
        return self._files

    @cached_property
    def listed(self) -> frozenset[str]:
        """The same as a set."""
        return frozenset(self.files())

    def raw(self, path: str) -> bytes:
        """Bytes of a file, of a notebook those of its program; empty where it cannot be read."""
        self.readings.read(path)
        return self.text(path)

    def text(self, path: str) -> bytes:
        """The same for a search over many files, which notes what it rests on itself."""
        known = self._bytes.get(path)
        if known is None:
            known = self._bytes[path] = self._program(path) if kind_of(path) is FileKind.NOTEBOOK else self._content(path)
        return known

    def _content(self, path: str) -> bytes:
        known = self.overlay.get(path)
        if known is not None:
            return known
        try:
            with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as stream:  # a pipe would wait for whoever writes to it
                return stream.read(4_000_000) if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else b""
        except OSError:
            return b""

    def _program(self, path: str) -> bytes:
        """The program of a notebook, and its commands as comments behind it: what stands between quotes in its JSON has no rows."""
        try:
            source = read_source(path, self.overlay.get(path))
        except SourceError:
            return b""
        return "\n".join((source.text, *(f"# {line.text}" for line in source.shell))).encode(errors="surrogatepass")

    def opened(self) -> Iterator[str]:
        """The files whose content is known by now."""
        yield from self._bytes
        yield from self._modules.keys() - self._bytes.keys()

    def _called_in(self, path: str) -> frozenset[bytes]:
        """Names that a file calls, as they are or as it imports them, or hands to ``partial``."""
        known = self._called.get(path)
        if known is None:
            known = self._called[path] = _called(self.text(path))
        return known

    def holding(self, texts: Sequence[bytes]) -> list[str]:
        """The files of the project that hold all of the texts, in order: each is searched at first, and all are put into an index once that pays."""
        files = self.files()
        self._asked += 1
        if self._words is None:
            if self._asked <= _FEW_QUESTIONS:
                return self._among(files, texts)
            self._words = WordIndex(map(self.text, files))
        found = [files[number] for number in self._words.holding(texts)]
        if self._changed:
            found = sorted([*(path for path in found if path not in self._changed), *self._among(self._changed & self.listed, texts)])
        return found

    def _among(self, files: Iterable[str], texts: Sequence[bytes]) -> list[str]:
        """Those of the files that hold all of the texts."""
        return [path for path in files if all(text in self.text(path) for text in texts)]

    def callers(self, name: str, near: str, owner: str = "") -> Iterator[Module]:
        """Modules that call something of that name, the nearest to ``near`` first.

        For a method ``owner`` is its class: other files count only where they speak of the class or of its module.
        """
        word = name.encode()
        # What a file calls has to come from somewhere: it is imported by name, with its module or a package of that, or with everything that there is.
        folders, stem = os.path.split(near.removesuffix(".py"))
        ways = sorted({name, stem, *os.path.relpath(folders, self.root).split(os.sep), *([owner] if owner else [])})
        calling = [path for path in self.holding([word]) if word in self._called_in(path)]
        if near not in self.listed and word in self._called_in(near):
            calling.append(near)
        hits = [path for path in calling if self._reaches(path, owner, ways)]
        self.readings.search(near, search_by(_calls, (name, owner, *ways), self._searched_below), dict.fromkeys(hits, FOUND))
        if near in calling and near not in hits:
            hits.append(near)
        hits.sort(key=lambda path: (path != near, -len(os.path.commonpath([path, near])), path))
        for path in hits[: _FEW_CALLER_FILES if owner and len(hits) > _MAX_CALLER_FILES else _MAX_CALLER_FILES]:
            module = self.find(path)
            if module is not None:
                yield module

    def mentioning(self, texts: Iterable[bytes], near: str) -> Iterator[Module]:
        """Modules whose bytes hold all of the texts, the nearest first."""
        wanted = tuple(texts)
        known = self._mentioned.get(wanted)
        if known is None:
            known = self._mentioned[wanted] = self.holding(wanted)
        words = [word.decode(errors="surrogateescape") for word in wanted]
        self.readings.search(near, search_by(_mentions, words, self._searched_below), dict.fromkeys(known, FOUND))
        hits = list(known)
        hits.sort(key=lambda path: (path != near, -len(os.path.commonpath([path, near])), path))
        for path in hits[:_MAX_CALLER_FILES]:
            module = self.find(path)
            if module is not None:
                yield module

    def index(self, path: str) -> Index | None:
        """What a file binds at its top level. ``None`` where it cannot be read, or CPython cannot parse it."""
        if path not in self._indexes:
            self._indexes[path] = index_of(self.text(path))
        return self._indexes[path]

    def may_bind(self, path: str, name: str) -> bool:
        """Whether a file may bind a name at its top level, itself or by what it imports whole. False is certain."""
        indexes = (self.index(here) if here is not None else None for here in self.imported_whole(path))
        return any(index is None or name in index.names for index in indexes)

    def imported_whole(self, path: str) -> Iterator[str | None]:
        """A file, and those whose names it has by ``from m import *``; ``None`` for one of a library, or that is made, or kept, elsewhere."""
        asked: set[str] = set()
        waiting = [path]
        while waiting:
            here = waiting.pop()
            if here in asked or here.endswith(os.sep):
                continue
            asked.add(here)
            self.readings.read(here)
            yield here
            index = self.index(here)
            for source, level in index.stars if index is not None else ():
                found = self.locate(here, source, level)
                if found is None:
                    yield None
                else:
                    waiting.append(found)

    def may_import(self, path: str, wanted: str) -> bool:
        """Whether a file may lead to another by imports, its own or those of what it imports. False is certain but for names that are made at run time."""
        if not self._stems:
            for one in self.files():
                folder, _, name = one.replace("\\", "/").rpartition("/")
                self._stems.setdefault(folder.rpartition("/")[2] if name == "__init__.py" else name.partition(".")[0], []).append(one)
        asked: set[str] = set()
        waiting = [path]
        while waiting:
            here = waiting.pop()
            if here == wanted:
                return True
            if here in asked:
                continue
            asked.add(here)
            self.readings.read(here)
            index = self.index(here)
            if index is None:
                return True
            waiting += [one for name in index.imported for one in self._stems.get(name, ())]
        return False

    def _reaches(self, path: str, owner: str, ways: Iterable[str]) -> bool:
        return _may_have(self.text(path), owner) or _imports(self.index(path), ways, owner)

    def search(self, function: Callable[..., str], words: Iterable[str], near: str, holding: str = "", only: str = "") -> dict[str, str]:
        """What a function finds in the files of the project, by file, those where it finds nothing left out.

        ``near`` is the file on whose behalf it looks. In a file that does not hold the text ``holding``, or is not the ``only`` one, it must find nothing.
        """
        what = search_by(function, words, self._searched_below)
        known = self._searched.get(what)
        if known is None:
            before, changed = self._searched_before.get(what, ({}, self.listed))
            files = [only] if only else self.holding([holding.encode()]) if holding else self.files()
            told = ((path, function(path, self.text(path), *what.words) if path in changed else before.get(path, "")) for path in files)
            known = self._searched[what] = {path: found for path, found in told if found}
        self.readings.search(near, what, known)
        return known

    # -- imports -------------------------------------------------------------------------------------------------

    def launch_files(self) -> tuple[str, ...]:
        """Files of the project that start programs, in order: shell scripts, Makefiles, and those of Docker and of an editor."""
        if self._launch_files is None:
            found = discover([self.top], self.settings, self.root, most_entries=_MAX_ENTRIES, wanted=launches).files
            of_editors = (os.path.join(folder, EDITOR_FOLDER, "launch.json") for folder in {self.top, self.root})
            beside_files = (path for path in self.overlay if path.startswith(self._searched_below) and launches(path))
            self._launch_files = tuple(sorted({*found, *filter(os.path.isfile, of_editors), *beside_files}))[:_MOST_LAUNCH_FILES]
        return self._launch_files

    def settings_files(self) -> tuple[str, ...]:
        """Files of settings beside the code, in order."""
        if self._settings_files is None:
            found = discover([self.top], self.settings, self.root, most_entries=_MAX_ENTRIES, wanted=is_settings).files
            beside_files = (path for path in self.overlay if path.startswith(self._searched_below) and is_settings(path))
            self._settings_files = tuple(sorted({*found, *beside_files}))[:_MOST_SETTINGS_FILES]
        return self._settings_files

    def shell_files(self) -> tuple[str, ...]:
        """Shell scripts among them."""
        return tuple(path for path in self.launch_files() if path.endswith(SHELL_SUFFIXES))

    def locate(self, importer: str, dotted: str, level: int = 0) -> str | None:
        """The file that ``import dotted`` (or ``from ...dotted import``) in ``importer`` means: see :meth:`Locator.locate`."""
        return self._locator.locate(importer, dotted, level)

    def submodule(self, package: str, name: str) -> str | None:
        """The file of ``name`` inside a package's file or folder."""
        return self._locator.submodule(package, name)
