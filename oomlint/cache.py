"""What earlier runs have learnt: verdicts of the scout by content, findings by the state of the files that they rest on.

JSON, each file with a digest of itself. Whatever goes wrong with the cache is silent, and the run goes on without it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import oomlint
from oomlint import facts
from oomlint.basis import Basis, mark_of, state_of
from oomlint.finding import Confidence, Edit, Finding, Fix, Place, Role, Safety, Severity
from oomlint.writing import LEFTOVER, is_own, sweep, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oomlint.basis import DiskState

    # Whether to parse; row, column and cause of a syntax error; functions of which one has to read a file.
    Verdict = tuple[bool, tuple[int, int, str] | None, tuple[str, ...]]

_Kind = TypeVar("_Kind")

WRONG: Final = (ValueError, TypeError, LookupError, AttributeError)  # what reading an entry raises that has another shape
MANY_VERDICTS: Final = 50_000  # more are forgotten, the oldest first
_MOST: Final = 2**31  # rows and columns
_LEFTOVER: Final = re.compile(rf"{LEFTOVER.pattern}|(?:findings|verdicts|fixes)-[a-z0-9_]{{8}}\.tmp")  # older versions wrote the latter


class Cache:
    """The cache of a project. Without a folder it keeps nothing."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self.verdicts: dict[str, Verdict] = {}  # of the scout, by digest of the content
        self._state: DiskState | None = None
        self._findings: dict[str, Any] = {}
        self._kept: Basis | None = None
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

    def open_findings(self, state: DiskState | None) -> None:
        """Read what of the findings of earlier runs holds in this state of the project; ``None`` is one that cannot be told."""
        if self._folder is None or state is None:
            return
        self._state = state
        known = self._load("findings", state.key)
        with suppress(*WRONG):
            before, beside, entries = (typed(known[name], dict) for name in ("files", "beside", "findings"))
            beside_now = {path: mark_of(path, state.now) for path in beside}
            if before == state.files and beside == beside_now:
                self._findings = entries
                return
            basis = self._basis_of(state.key, before)
            sound = basis.reads.keys() - basis.fallen(beside | before, beside_now | state.files)
            self._findings = {path: item for path, item in entries.items() if path in sound}
            self._kept = basis.kept(self._findings)

    def _basis_of(self, key: str, files: object) -> Basis:
        """What the findings rest on that were kept for this state."""
        return Basis.from_plain(self._load("basis", _basis_key(key, files)))

    def basis(self) -> Basis:
        """What the findings rest on that are known from earlier runs."""
        if self._kept is None:
            self._kept = Basis()
            if self._state is not None and self._findings:
                with suppress(*WRONG):
                    self._kept = self._basis_of(self._state.key, self._state.files).kept(self._findings)
        return self._kept

    def findings(self, path: str, digest: str) -> tuple[Finding, ...] | None:
        """What a run has found in a file with that content."""
        with suppress(*WRONG):
            known, items = self._findings[path]
            return tuple(map(_finding, items)) if known == digest else None
        return None

    def keep_findings(self, path: str, digest: str, findings: Sequence[Finding]) -> None:
        """Remember what was found in a file."""
        if self._state is not None:
            self._findings[path] = [digest, [_plain(item) for item in findings]]
            self._changed.add("findings")

    def keep_basis(self, basis: Basis) -> None:
        """Remember what the findings rest on, those that were known before included."""
        if self._state is not None:
            self._kept = basis
            self._changed.add("basis")

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
            if self._state is None:
                return
            if "findings" in self._changed:
                content = {"files": self._state.files, "beside": self.basis().beside(self._state), "findings": self._findings}
                self._store("findings", self._state.key, content)
            if "basis" in self._changed and self._kept is not None:
                self._store("basis", _basis_key(self._state.key, self._state.files), self._kept.kept(self._findings).plain())

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


def project_state(root: str, settings: object, codes: Iterable[str], folders: Sequence[str] = ()) -> DiskState | None:
    """The state of a project for this version of oomlint. ``None`` where it cannot be told."""
    return state_of(root, _tool(), settings, codes, folders)


def project_key(root: str, settings: object) -> str | None:
    """What stands for that state as a whole."""
    state = project_state(root, settings, ())
    return None if state is None else _basis_key(state.key, state.files)


def _basis_key(key: str, files: object) -> str:
    """What ties the two files together: the one is of no use with another state of the other."""
    return f"{key} {_digest(json.dumps(files, sort_keys=True).encode())}"


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
    weight = None if item.weight is None else facts.weight_row(item.weight)
    spots = [_spot(place) for place in item.related]
    parts = [item.headline, item.consequence, item.help]
    given = [_spot(place) for place in item.given]
    return [item.code, item.name, parts, item.severity, item.confidence, _spot(item.place), spots, fix, told, weight, given]


def _spot(place: Place) -> list[Any]:
    return [*_bare(place), place.message, place.role]


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
    parse, mistake, readers = known
    names = tuple(typed(name, str) for name in readers)
    if mistake is None:
        return typed(parse, bool), None, names
    row, column, cause = mistake
    return typed(parse, bool), (_number(row), _number(column), typed(cause, str)), names


def _finding(known: Any) -> Finding:
    code, name, parts, severity, confidence, spot, related, fix, told, weighed, given = known
    headline, consequence, remedy = (typed(part, str) for part in parts)
    fixed = None
    if fix is not None:
        safety, said, edits = fix
        fixed = Fix(Safety(safety), typed(said, str), tuple(Edit(_place(place), typed(content, str)) for place, content in edits))
    code = None if code is None else typed(code, str)
    places = tuple(map(_place, related))
    known_facts = tuple(facts.of_row(fact, lambda known: _place([*known, "", Role.WAY])) for fact in told)
    weight = None if weighed is None else facts.weight_of_row(typed(weighed, list))
    grave, sure, beside = Severity(severity), Confidence(confidence), tuple(map(_place, given))
    return Finding(code, typed(name, str), headline, grave, sure, _place(spot), places, fixed, known_facts, weight, consequence, remedy, beside)


def _place(known: Any) -> Place:
    path, cell, row, column, end_row, end_column, message, role = known
    if not os.path.isabs(path) or "\0" in path:
        raise ValueError
    return Place(path, _number(cell), _number(row), _number(column), _number(end_row), _number(end_column), typed(message, str), Role(role))


def _number(known: Any) -> int:
    if not 0 <= typed(known, int) < _MOST:
        raise ValueError
    return int(known)
