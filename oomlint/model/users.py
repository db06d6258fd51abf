"""The files that share names with some files: those that use what they define, and those whose names they use, the nearest first.

A name is followed through the definitions that speak of it: who imports `make_loader` is reached from the class that `make_loader` speaks of, and who imports
only its neighbour is not. CPython's parser reads the files, and only those that may import what is asked for.
"""

from __future__ import annotations

import ast
import os
import re
from abc import ABC, abstractmethod
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from oomlint.ast_trees import tree_of
from oomlint.beside_code import launches
from oomlint.model.command_lines import commands_of
from oomlint.model.commands import commands_in
from oomlint.model.index import imports_of
from oomlint.source import FileKind, SourceError, kind_of, read_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from oomlint.model.commands import Command
    from oomlint.model.index import Imported
    from oomlint.model.project import Project

_ANYTHING: Final = frozenset({"*"})  # stands for all names of a file


class _Links(Struct, frozen=True):
    """What a file imports, and what each of its top-level statements speaks of."""

    imports: tuple[Imported, ...]
    mentions: Mapping[str, frozenset[str]]  # by the names that the statements bind; what binds none is behind ""


def around(project: Project, paths: Iterable[str]) -> Iterator[str]:
    """Other files of the project that use names of these files, then those whose names these or their users use, each after all that are nearer."""
    seen = set(paths)
    users = _Users(project, dict.fromkeys(paths, _ANYTHING))
    used = _Used(project, users.names.copy())
    # What uses a dataset hands it to a function of a third file, which makes the loader.
    for steps in (users, used), (_Used(project, users.names),):
        while any(each.waiting for each in steps):
            for each in steps:
                for path in each.level():
                    if path not in seen:
                        seen.add(path)
                        yield path


def users_of(project: Project, path: str) -> Iterator[str]:
    """Other files of the project that use names of a file, and those that use what these make of them, the nearest first."""
    seen = {path}
    users = _Users(project, {path: _ANYTHING})
    while users.waiting:
        for user in users.level():
            if user not in seen:
                seen.add(user)
                yield user


def told_by(project: Project, paths: Iterable[str]) -> list[str]:
    """The files of code that files beside the code, and the commands of notebooks, speak of: the scripts that they start, and who names a file of settings."""
    names: set[bytes] = set()
    scripts: set[str] = set()
    modules: set[str] = set()
    for path in paths:
        if launches(path) or kind_of(path) is FileKind.NOTEBOOK:
            for command in _commands(project, path):
                scripts |= {os.path.basename(word) for word in command.words if word.endswith(".py")}
                modules |= {command.words[n + 1].rpartition(".")[2] for n, word in enumerate(command.words[:-1]) if word == "-m"}
        else:
            names.add(os.fsencode(os.path.splitext(os.path.basename(path))[0]))
    scripts |= {f"{name}.py" for name in modules}
    pattern = re.compile(rb"(?<!\w)(?:" + b"|".join(map(re.escape, sorted(names))) + rb")(?!\w)") if names else None
    found = []
    for path in project.files():
        named = os.path.basename(path) in scripts or (os.path.basename(path) == "__main__.py" and os.path.basename(os.path.dirname(path)) in modules)
        if named or (pattern is not None and pattern.search(project.text(path))):
            found.append(path)
    return found


def imported_by(project: Project, path: str, name: str) -> frozenset[str] | None:
    """The packages that what has this name in a file leads to, here and in the files of the project that it leads to; for no name the whole file.

    ``None`` where a file on the way cannot be read.
    """
    used = _Used(project, {path: frozenset({name}) if name else _ANYTHING})
    while used.waiting:
        deque(used.level(), 0)
    found: set[str] = set()
    for file, names in used.names.items():
        links = _links_of(project.text(file))
        if links is None:
            return None
        spoken = _spoken_by(links, names)
        found |= {each.module.partition(".")[0] for each in links.imports if names == _ANYTHING or each.bound in {"*", *spoken}}
    return frozenset(found)


def _commands(project: Project, path: str) -> Iterable[Command]:
    if kind_of(path) is not FileKind.NOTEBOOK:
        return commands_of(path, project.text(path).decode("utf-8-sig", "replace"))
    try:
        return commands_in(read_source(path, project.overlay.get(path)))
    except SourceError:
        return ()


class _Steps(ABC):
    """Goes from file to file in one direction, and remembers which names of each it has come by."""

    def __init__(self, project: Project, names: dict[str, frozenset[str]]) -> None:
        self._project = project
        self.names = names
        self._waiting: deque[str] | None = None

    @property
    def waiting(self) -> bool:
        """Whether there are files to go on from."""
        return bool(self._waiting) if self._waiting is not None else bool(self.names)

    def level(self) -> Iterator[str]:
        """Go one step on from all files that were reached last."""
        if self._waiting is None:
            self._waiting = deque(self.names)
        for _ in range(len(self._waiting)):
            here = self._waiting.popleft()
            for path, names in self._from(here, self.names[here]):
                known = self.names.get(path)
                if known is None or not (names <= known or known == _ANYTHING):
                    self.names[path] = names | (known or frozenset())
                    self._waiting.append(path)
                    yield path

    @abstractmethod
    def _from(self, here: str, names: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
        """The files that these names of a file lead to, and to which of theirs."""

    def _targets(self, path: str, wanted: Imported) -> Iterator[tuple[str, str]]:
        """The files of the project that an import means, each with the name that is taken of it."""
        found = self._project.locate(path, wanted.module, wanted.level)
        if found is None:
            return
        inner = self._project.submodule(found, wanted.name) if wanted.name not in {"", "*"} else None
        if inner is not None:
            yield inner, ""
        elif not found.endswith(os.sep):
            yield found, wanted.name


class _Users(_Steps):
    """Leads to the files that import some of the names, with what they bind that speaks of them."""

    def _from(self, here: str, names: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
        word, pattern, package = _module_of(here), _importing(here), _is_package(here)
        for path in self._project.files() if package else self._project.holding([word.encode(errors="surrogateescape")]):
            text = self._project.text(path)
            if path == here or not pattern.search(text):
                continue
            bound: set[str] = set()
            # Of most files the imports are all that is asked for: who imports nothing of this one is read no further.
            for each in imports_of(text):
                if each.module and each.name != word and word not in each.module.split(".") and not package:
                    continue
                for target, name in self._targets(path, each):
                    if target != here:
                        continue
                    if name == "*":
                        own = _links_of(self._project.text(here)) if names == _ANYTHING else None
                        bound |= names if names != _ANYTHING else own.mentions.keys() if own else _spoken_in(text)
                    elif names == _ANYTHING or name in names or (not name and names & _spoken_in(text)):
                        bound.add(each.bound)
            links = _links_of(text) if bound else None
            if links is not None:
                yield path, frozenset(_speaking_of(links, bound))


class _Used(_Steps):
    """Leads to the files that the statements behind the names import from, with what is taken of them."""

    def _from(self, here: str, names: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
        links = _links_of(self._project.text(here))
        if links is None:
            return
        spoken = frozenset().union(*links.mentions.values()) if names == _ANYTHING else _spoken_by(links, names)
        for each in links.imports:
            if each.bound not in {"*", *spoken} and names != _ANYTHING:
                continue
            for target, name in self._targets(here, each):
                yield target, frozenset({name}) if name not in {"", "*"} else spoken


def _speaking_of(links: _Links, names: set[str]) -> set[str]:
    """The names, and those of the file whose statements speak of one of them."""
    found = set(names)
    grown = True
    while grown:
        more = {name for name, spoken in links.mentions.items() if name not in found and not spoken.isdisjoint(found)}
        found |= more
        grown = bool(more)
    return found


def _spoken_by(links: _Links, names: Iterable[str]) -> frozenset[str]:
    """The names, and those that their statements speak of, and so on."""
    found = set(names)
    waiting = list(found)
    while waiting:
        more = links.mentions.get(waiting.pop(), frozenset()) - found
        found |= more
        waiting += more
    return frozenset(found)


def _is_package(path: str) -> bool:
    return os.path.splitext(os.path.basename(path))[0] == "__init__"


def _module_of(path: str) -> str:
    """The last part of what an import calls a file."""
    return os.path.basename(os.path.dirname(path) if _is_package(path) else os.path.splitext(path)[0])


def _spoken_in(text: bytes) -> frozenset[str]:
    """All that the statements of a file speak of."""
    links = _links_of(text)
    return frozenset().union(*links.mentions.values()) if links is not None else frozenset()


@lru_cache(maxsize=256)
def _importing(path: str) -> re.Pattern[bytes]:
    """What stands in a file that imports this one."""
    word = re.escape(_module_of(path).encode(errors="surrogateescape"))
    ways = [rb"\b(?:from|import)\b[^\n#]*\b" + word + rb"\b", rb"\bfrom\s+[.\w]+\s+import\s*\([^)]*\b" + word + rb"\b"]
    return re.compile(b"|".join([*ways, rb"\bfrom\s+\.+\s+import\b"] if _is_package(path) else ways))


@lru_cache(maxsize=2048)
def _links_of(data: bytes) -> _Links | None:
    """What a file imports and speaks of. ``None`` where it cannot be read, or CPython cannot parse it."""
    try:
        tree = tree_of(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    mentions: dict[str, set[str]] = {}
    for statement in tree.body:
        binds: set[str] = set()
        speaks: set[str] = set()
        defines = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            binds.add(statement.name)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                speaks.add(node.id)
                if not defines and isinstance(node.ctx, ast.Store):
                    binds.add(node.id)
            elif isinstance(node, ast.Attribute):
                speaks.add(node.attr)
        for name in binds or {""}:
            mentions.setdefault(name, set()).update(speaks)
    return _Links(imports_of(data), {name: frozenset(spoken) for name, spoken in mentions.items()})
