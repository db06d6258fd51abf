"""What findings rest on, and what of them still holds when files have changed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, field

from oomlint.beside_code import EDITOR_FOLDER, beside
from oomlint.discovery import ENVIRONMENT_MARKS, ignores_above, is_paper, is_passed_by, repository_excludes
from oomlint.model.readings import FileSearch
from oomlint.model.search_paths import SPEAKS
from oomlint.settings import BASELINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from oomlint.discovery import Patterns
    from oomlint.model.readings import Searched

MANY_ENTRIES: Final = 200_000  # a project with more, datasets included, is not looked over
FRESH: Final = 2 * 10**9  # nanoseconds; a file written within them may be written again under the same time stamp
CODE: Final = (".py", ".pyi", ".ipynb")  # what is told apart file by file: any other one may tell on all findings
_WORD: Final = re.compile(r"\w+")


class Basis(Struct):
    """What findings rest on."""

    reads: dict[str, frozenset[str]] = field(default_factory=dict)  # the files that were read, by the file that was checked; not there: nobody knows
    searches: dict[str, dict[FileSearch, Mapping[str, str]]] = field(default_factory=dict)  # what was looked for in all files, by the file on whose behalf
    _groups: dict[FileSearch, tuple[Mapping[str, str], list[str]]] | None = None

    def note(self, path: str, reads: Iterable[str] | None, searches: Iterable[Searched]) -> None:
        """Remember what the findings of a file rest on, and what was looked for meanwhile."""
        self._groups = None
        if reads is not None:
            self.reads[path] = frozenset((path, *reads))
        for near, what, found in searches:
            self.searches.setdefault(near, {})[what] = found

    def kept(self, paths: Iterable[str]) -> Basis:
        """The part of it that the findings of these files rest on."""
        reads = {path: self.reads[path] for path in paths if path in self.reads}
        near = set().union(*reads.values())
        return Basis(reads, {path: found for path, found in self.searches.items() if path in near})

    def fallen(self, before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
        """The files whose findings may be others now, by the marks of all files then and now."""
        changed = {path for path in (*before, *after) if before.get(path) != after.get(path)}
        if not changed:
            return set()
        moved = {path for path in changed if not (before.get(path) and after.get(path))}
        if any(os.path.basename(path).startswith("__init__.") or any(word in _content(path) for word in SPEAKS) for path in moved):
            return set(self.reads)  # what is a package, and what is put into the search path, decides where imports begin
        words = {word.encode() for path in moved for word in _WORD.findall(os.path.basename(path[:-1]) if path.endswith(os.sep) else os.path.splitext(path)[0])}
        doubtful = set().union(*(self.otherwise(path, _content(path) if after.get(path) else None) for path in changed))
        if words:
            doubtful |= {near for near in set().union(*self.reads.values()) if _names_one(near, words)}
        return {path for path, reads in self.reads.items() if not reads.isdisjoint(changed) or not reads.isdisjoint(doubtful)}

    def otherwise(self, path: str, data: bytes | None) -> set[str]:
        """The files on whose behalf a search finds something else in that one, now that this is its content; ``None``: it is gone."""
        return set().union(
            *(nears for what, (found, nears) in self._grouped().items() if found.get(path, "") != (what.of(path, data) if data is not None else ""))
        )

    def beside(self, state: DiskState) -> dict[str, str]:
        """Marks of the files that findings rest on and that a look over the project passes by: in hidden folders, outside of it, or not there."""
        return {path: mark_of(path, state.now) for path in sorted(set().union(*self.reads.values())) if path not in state.files}

    def _grouped(self) -> dict[FileSearch, tuple[Mapping[str, str], list[str]]]:
        """Each search once: what it has found, and on whose behalf it was made."""
        if self._groups is None:
            self._groups = {}
            for near, table in self.searches.items():
                for what, found in table.items():
                    self._groups.setdefault(what, (found, []))[1].append(near)
        return self._groups

    def plain(self) -> dict[str, Any]:
        """The same for a file."""
        numbers: dict[str, int] = {}

        def number(path: str) -> int:
            return numbers.setdefault(path, len(numbers))

        reads = [[number(path), sorted(map(number, files))] for path, files in self.reads.items()]
        searches = [
            [number(near), what.finder, what.words, what.below, [[number(path), said] for path, said in found.items()]]
            for near, table in self.searches.items()
            for what, found in table.items()
        ]
        return {"files": list(numbers), "reads": reads, "searches": searches}

    @classmethod
    def from_plain(cls, known: Mapping[str, Any]) -> Basis:
        """The basis in a file. Raises ValueError, TypeError, LookupError or AttributeError where it has another shape."""
        files: list[str] = [str(path) for path in known["files"]]
        basis = cls({files[path]: frozenset(files[number] for number in reads) for path, reads in known["reads"]})
        for near, finder, words, below, found in known["searches"]:
            what = FileSearch(str(finder), tuple(map(str, words)), str(below))
            basis.searches.setdefault(files[near], {})[what] = {files[path]: str(said) for path, said in found}
        return basis


def _content(path: str) -> bytes:
    if not os.path.isfile(path):
        return b""  # to read a pipe waits for who writes to it, and a device may have no end
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def _names_one(path: str, words: set[bytes]) -> bool:
    """Whether a file has one of the words: only then can it import what is called so."""
    data = _content(path)
    return any(word in data for word in words)


class DiskState(NamedTuple):
    """The state of a project on the disk."""

    key: str  # stands for the tool, its settings and all that is not code
    files: dict[str, str]  # marks of the files of code, which change when they do, and of the folders that a name may mean, with a separator at the end
    now: int  # when it was looked at


def state_of(root: str, tool: str, settings: object, codes: Iterable[str], folders: Sequence[str] = ()) -> DiskState | None:
    """The state of the files that a rule may read. ``None`` where it cannot be told.

    ``folders`` are further ones that belong to the project. Where they lie in one that is not entered, all of it is looked at: imports search it, too.
    """
    rest = hashlib.blake2b(json.dumps([tool, root, settings, list(codes), list(folders)], sort_keys=True).encode(), digest_size=16)
    files: dict[str, str] = {}
    newest = number = 0
    now = time.time_ns()
    pending = [root, *sorted({_hidden_above(folder, root) for folder in folders} - {root})]
    for each in (root, *folders):
        _tell_ignores(rest, ignores_above(each, root))
    linked: set[str] = set()  # folders that a link leads to
    behind: set[str] = set()  # the same and those in them: rules know their files by other names
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            continue
        number += len(entries)
        if number > MANY_ENTRIES:
            return None
        if folder in linked and not any(entry.name.endswith(".py") for entry in entries):
            continue  # a dataset, most likely
        for entry in entries:
            try:
                if entry.is_dir():
                    target = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                    if entry.name == ".git" or entry.name in ENVIRONMENT_MARKS:  # it says where a repository or an environment begins, which bounds searches
                        rest.update(f"{entry.path}\0".encode(errors="surrogateescape"))
                        _tell_ignores(rest, repository_excludes(folder) if entry.name == ".git" else ())
                    if (is_passed_by(entry.name) and entry.name != EDITOR_FOLDER) or target in linked:
                        continue
                    if entry.name.isidentifier():
                        files[os.path.join(entry.path, "")] = os.sep
                    pending.append(target)
                    if entry.is_symlink():
                        linked.add(target)
                    if entry.is_symlink() or folder in behind:
                        behind.add(target)
                    continue
                # What makes a folder look like a repository says where a project begins, and a README how it is launched.
                if _is_read(entry) and entry.name != BASELINE:
                    status = entry.stat()
                    if entry.name.endswith(CODE) and folder not in behind:
                        files[entry.path] = _mark(status, now)
                    else:
                        rest.update(f"{entry.path}\0{_mark(status)}\n".encode(errors="surrogateescape"))
                        newest = max(newest, status.st_mtime_ns)
            except OSError:
                continue
    return None if newest > now - FRESH else DiskState(rest.hexdigest(), files, now)


def mark_of(path: str, now: int) -> str:
    """The mark of a file, as :func:`state_of` makes it at that time; empty where there is none."""
    with suppress(OSError, ValueError):
        status = os.stat(path)
        if stat.S_ISREG(status.st_mode):
            return _mark(status, now)
    return ""


def _mark(status: os.stat_result, now: int | None = None) -> str:
    """What changes with a file. One that was written just ``now`` may be written again unseen: it is not the same in any later run."""
    mark = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    return mark if now is None or status.st_mtime_ns < now - FRESH else f"{mark} {now}"


def _tell_ignores(rest: hashlib.blake2b, patterns: Iterable[Patterns]) -> None:
    """Add what leaves files out from outside of the project's own folders."""
    for each in patterns:
        rest.update("\n".join([each.base, *each.lines, ""]).encode(errors="surrogateescape"))


def _is_read(entry: os.DirEntry[str]) -> bool:
    """Whether a rule may read a file."""
    return entry.name.endswith((*CODE, ".gitignore")) or is_paper(entry.name) or beside(entry.path) is not None


def _hidden_above(folder: str, root: str) -> str:
    """The outermost folder that a look over the root passes by on its way to ``folder``; the root where there is none, ``folder`` where it lies elsewhere."""
    if not folder.startswith(os.path.join(root, "")):
        return folder
    here = root
    for part in os.path.relpath(folder, root).split(os.sep):
        here = os.path.join(here, part)
        if is_passed_by(part):
            return here
    return root
