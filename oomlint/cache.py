"""What earlier runs have learnt: verdicts of the scout by content, findings by the state of the whole project.

JSON, each file with a digest of itself. Whatever goes wrong with the cache is silent, and the run goes on without it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import oomlint
from oomlint import facts
from oomlint.finding import Confidence, Edit, Finding, Fix, Place, Safety, Severity
from oomlint.writing import LEFTOVER, is_own, sweep, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Verdict = tuple[bool, tuple[int, int, str] | None]  # whether to parse; row, column and cause of a syntax error

_Kind = TypeVar("_Kind")

WRONG: Final = (ValueError, TypeError, LookupError, AttributeError)  # what reading an entry raises that has another shape
MANY_VERDICTS: Final = 50_000  # more are forgotten, the oldest first
MANY_ENTRIES: Final = 200_000  # a project with more, data sets included, is not looked over
FRESH: Final = 2 * 10**9  # nanoseconds; a file written within them may be written again under the same time stamp
READ_BY_RULES: Final = (".py", ".pyi", ".ipynb", ".yaml", ".yml", ".toml", ".json", ".cfg", ".ini", ".sh")
_MOST: Final = 2**31  # rows and columns
_FIXES: Final = ""  # no path: the entry of what becomes of fixes
_LEFTOVER: Final = re.compile(rf"{LEFTOVER.pattern}|(?:findings|verdicts|fixes)-[a-z0-9_]{{8}}\.tmp")  # older versions wrote the latter
NOT_ENTERED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


class Cache:
    """The cache of a project. Without a folder it keeps nothing."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self.verdicts: dict[str, Verdict] = {}  # of the scout, by digest of the content
        self._key = ""
        self._findings: dict[str, Any] = {}
        self._changed: set[str] = set()
        if folder is not None:
            for digest, known in self._load("verdicts", _tool()).items():
                with suppress(*WRONG):
                    self.verdicts[digest] = _verdict(known)

    @property
    def in_use(self) -> bool:
        """Whether it keeps anything."""
        return self._folder is not None

    def keep_verdict(self, digest: str, verdict: Verdict) -> None:
        """Remember what the scout says of a content."""
        if self._folder is not None:
            self.verdicts[digest] = verdict
            self._changed.add("verdicts")

    def open_findings(self, key: str | None) -> None:
        """Read the findings of the project in the state that ``key`` stands for; ``None`` is a state that cannot be told."""
        if self._folder is not None and key is not None:
            self._key = key
            self._findings = self._load("findings", key)

    def findings(self, path: str, digest: str) -> tuple[Finding, ...] | None:
        """What a run has found in a file with that content."""
        with suppress(*WRONG):
            known, items = self._findings[path]
            return tuple(map(_finding, items)) if known == digest else None
        return None

    def keep_findings(self, path: str, digest: str, findings: Sequence[Finding]) -> None:
        """Remember what was found in a file."""
        if self._key:
            self._findings[path] = [digest, [_plain(item) for item in findings]]
            self._changed.add("findings")

    def foreseen(self, findings: Sequence[Finding]) -> list[str] | None:
        """What a run has learnt of the fixes of these very findings, a word each."""
        with suppress(*WRONG):
            state, said = self._findings[_FIXES]
            if state == _state(findings) and len(said) == len(findings):
                return [typed(word, str) for word in said]
        return None

    def keep_foreseen(self, findings: Sequence[Finding], said: Sequence[str]) -> None:
        """Remember what would become of fixes."""
        if self._key:
            self._findings[_FIXES] = [_state(findings), list(said)]
            self._changed.add("findings")

    def save(self) -> None:
        """Write what is new, and remove what killed runs have left."""
        if self._folder is None:
            return
        sweep(self._folder, _LEFTOVER)
        if not self._changed:
            return
        with suppress(OSError):
            os.makedirs(self._folder, exist_ok=True)
            _mark(self._folder)
            if "verdicts" in self._changed:
                newest = list(self.verdicts.items())[-MANY_VERDICTS:]
                self._store("verdicts", _tool(), dict(newest))
            if "findings" in self._changed:
                self._store("findings", self._key, self._findings)

    def _load(self, name: str, key: str) -> dict[str, Any]:
        try:
            digest, _, body = read_kept(os.path.join(self._folder or "", f"{name}.json")).partition(b"\n")
            if digest.decode() != _digest(body):
                return {}
            document = json.loads(body)
            content = document["content"] if document["key"] == key else {}
        except (OSError, RecursionError, *WRONG):
            return {}
        return content if isinstance(content, dict) else {}

    def _store(self, name: str, key: str, content: dict[str, Any]) -> None:
        body = json.dumps({"key": key, "content": content}, separators=(",", ":")).encode()
        write_whole(os.path.join(self._folder or "", f"{name}.json"), _digest(body).encode() + b"\n" + body)


def refusal(folder: str, root: str) -> str | None:
    """Why nothing is read from a cache in ``folder`` or written to it, in a line; ``None`` where all is well.

    What lies in a project is not always the user's own work: a link in it would lead the cache's files to wherever its author likes.
    """
    try:
        relative = os.path.relpath(folder, root)
    except ValueError:  # on another drive
        relative = os.pardir
    parts = relative.split(os.sep)
    if parts[0] in {os.curdir, os.pardir}:
        return "it is not below the project's root"
    path = root
    for part in parts:
        path = os.path.join(path, part)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            return error.strerror or str(error)
        what = "it" if path == os.path.join(root, relative) else part
        if stat.S_ISLNK(status.st_mode):
            return f"{what} is a symbolic link"
        if not stat.S_ISDIR(status.st_mode):
            return f"{what} is not a folder"
        if not is_own(status):
            return f"{what} belongs to another user"
    return None


def read_kept(path: str) -> bytes:
    """The bytes of a file in the cache's folder. OSError where it is not there, or is a link or anything else but a file."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(f"{path}: not a file")
        return stream.read()


def project_key(root: str, settings: object, codes: Iterable[str]) -> str | None:
    """What stands for the tool, its settings and the state of every file that a rule may read. ``None`` where that cannot be told."""
    state = hashlib.blake2b(json.dumps([_tool(), root, settings, list(codes)], sort_keys=True).encode(), digest_size=16)
    newest = number = 0
    pending = [root]
    linked: set[str] = set()  # folders that a link leads to
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
            continue  # a data set, most likely
        for entry in entries:
            try:
                if entry.is_dir():
                    target = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                    if entry.name.startswith(".") or entry.name in NOT_ENTERED or target in linked:
                        continue
                    pending.append(target)
                    if entry.is_symlink():
                        linked.add(target)
                elif entry.name.endswith(READ_BY_RULES):
                    status = entry.stat()
                    state.update(f"{entry.path}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_ctime_ns}\n".encode(errors="surrogateescape"))
                    newest = max(newest, status.st_mtime_ns)
            except OSError:
                continue
    return None if newest > time.time_ns() - FRESH else state.hexdigest()


@cache
def _tool() -> str:
    """What stands for this version of oomlint, as it lies on the disk, and for the Python that parses."""
    state = hashlib.blake2b(f"{oomlint.__version__} {sys.version}".encode(), digest_size=16)
    for folder, folders, names in os.walk(os.path.dirname(__file__)):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                with suppress(OSError):
                    status = os.stat(os.path.join(folder, name))
                    state.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return state.hexdigest()


def _state(findings: Sequence[Finding]) -> str:
    return _digest(json.dumps([_plain(item) for item in findings]).encode())


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def _mark(folder: str) -> None:
    """Keep backups and git away from the folder."""
    marks = {
        "CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc55\n# A cache of oomlint. See https://bford.info/cachedir/\n",
        ".gitignore": "# Made by oomlint.\n*\n",
    }
    for name, content in marks.items():
        with suppress(FileExistsError), open(os.path.join(folder, name), "x", encoding="utf-8") as stream:
            stream.write(content)


def _plain(item: Finding) -> list[Any]:
    fix = None if item.fix is None else [item.fix.safety, item.fix.message, [[_spot(edit.place), edit.content] for edit in item.fix.edits]]
    told = [facts.row(fact, _bare) for fact in item.facts]
    return [item.code, item.name, item.message, item.severity, item.confidence, _spot(item.place), [_spot(place) for place in item.related], fix, told]


def _spot(place: Place) -> list[Any]:
    return [place.path, place.cell, place.row, place.column, place.end_row, place.end_column, place.message]


def _bare(place: Place) -> list[Any]:
    """A place of a fact, which has no message."""
    return [place.path, place.cell, place.row, place.column, place.end_row, place.end_column]


def typed(value: Any, kind: type[_Kind]) -> _Kind:
    """The value, which must be of that very type. Raises TypeError."""
    if type(value) is not kind:
        raise TypeError
    return value


def _verdict(known: Any) -> Verdict:
    """Raises one of ``WRONG`` where the entry is not what the scout says; so do the next ones."""
    parse, mistake = known
    if mistake is None:
        return typed(parse, bool), None
    row, column, cause = mistake
    return typed(parse, bool), (_number(row), _number(column), typed(cause, str))


def _finding(known: Any) -> Finding:
    code, name, message, severity, confidence, spot, related, fix, told = known
    mended = None
    if fix is not None:
        safety, said, edits = fix
        mended = Fix(Safety(safety), typed(said, str), tuple(Edit(_place(place), typed(content, str)) for place, content in edits))
    code = None if code is None else typed(code, str)
    places = tuple(map(_place, related))
    known_facts = tuple(facts.of_row(fact, lambda known: _place([*known, ""])) for fact in told)
    return Finding(code, typed(name, str), typed(message, str), Severity(severity), Confidence(confidence), _place(spot), places, mended, known_facts)


def _place(known: Any) -> Place:
    path, cell, row, column, end_row, end_column, message = known
    if not os.path.isabs(path) or "\0" in path:
        raise ValueError
    return Place(path, _number(cell), _number(row), _number(column), _number(end_row), _number(end_column), typed(message, str))


def _number(known: Any) -> int:
    if not 0 <= typed(known, int) < _MOST:
        raise ValueError
    return int(known)
