"""Verdicts of earlier runs, by all that they depend on: oomlint, the project, the finding and its fix, the interpreter and the options.

JSON in the cache's folder, with a digest of itself. Whatever goes wrong with it is silent, and the run goes on without it.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
from contextlib import suppress
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import msgspec

from oomlint import facts
from oomlint.cache import project_key, read_kept, refusal
from oomlint.discovery import is_passed_by
from oomlint.verify.case import Fidelity, Outcome, Verdict
from oomlint.verify.folders import walk
from oomlint.verify.session import nearest
from oomlint.writing import write_whole

if TYPE_CHECKING:
    from oomlint.verify.case import Case
    from oomlint.verify.session import Surroundings

MOST_FILES: Final = 50_000  # that are looked at
MANY: Final = 2000  # verdicts; more are forgotten, the oldest first
_NAME: Final = "fixes.json"
# What the user's own command and data come to depends on files that no key covers.
_PASSING: Final = frozenset({Fidelity.COMMAND, Fidelity.FACTORY, Fidelity.DATA})
_OF_THE_CLOCK: Final = re.compile(r"\b(?:time[ds]?|timeout|seconds?|longer|slow(?:er)?|\d s)\b", re.IGNORECASE)


class VerdictStore:
    """The verdicts of a project. Without a folder, or where the state of the project cannot be told, it keeps nothing."""

    def __init__(self, folder: str | None, around: Surroundings) -> None:
        self._around = around
        if folder is not None and refusal(folder, around.root) is not None:
            folder = None  # the check that found the cases has said so
        self._project = project_key(around.root, around.settings.as_table()) if folder is not None else None
        self._path = os.path.join(folder, _NAME) if folder is not None and self._project is not None else None
        self._states: dict[str, bytes] = {}  # by root
        self._verdicts: dict[str, Any] = _load(self._path) if self._path else {}
        self._changed = False

    def get(self, case: Case) -> Verdict | None:
        """The verdict on the same contents, if there is one."""
        known = self._verdicts.get(self._key(case)) if self._path else None
        try:
            return None if known is None else replace(msgspec.convert(known, Verdict), cached=True)
        except msgspec.ValidationError:
            return None

    def put(self, case: Case, verdict: Verdict) -> None:
        """Keep a verdict, unless another run might come to another."""
        passing = verdict.outcome is Outcome.INCONCLUSIVE and _OF_THE_CLOCK.search(verdict.reason)
        if self._path and not passing and verdict.fidelity not in _PASSING:
            self._verdicts[self._key(case)] = asdict(verdict)
            self._changed = True

    def save(self) -> None:
        """Write what is new."""
        if self._path is None or not self._changed:
            return
        body = json.dumps(dict(list(self._verdicts.items())[-MANY:]), separators=(",", ":")).encode()
        with suppress(OSError):
            write_whole(self._path, _digest(body) + b"\n" + body)

    def _state(self, root: str) -> bytes:
        """What stands for the project, the options and the interpreter of the cases below a root."""
        if root not in self._states:
            around = self._around
            if root != around.root and around.elsewhere is not None:
                around = around.elsewhere(nearest(root)[0], root)
            known = [
                self._project,
                data_state(root),
                around.settings.as_table(),
                asdict(around.options),
                interpreter_state(around.python),
                around.unsandboxed,
                sorted((name, value) for name, value in os.environ.items() if any(fnmatchcase(name, each) for each in around.pass_env)),
                [(path, data_state(path)) for path in around.read],
            ]
            self._states[root] = json.dumps(known, sort_keys=True).encode()
        return self._states[root]

    def _key(self, case: Case) -> str:
        finding = case.finding
        spot = finding.place
        state = hashlib.blake2b(self._state(case.root), digest_size=16)
        place = [spot.path, spot.cell, spot.row, spot.column, spot.end_row, spot.end_column]
        told = [facts.row(fact, lambda place: [place.path, place.cell, place.row, place.column]) for fact in finding.facts]
        others = [[other.path, other.cell, other.row] for other in case.others]
        state.update(json.dumps([case.code, told, place, others, case.root]).encode())
        for path, contents in sorted(case.changes.items()):
            for part in (os.fsencode(path), *contents):
                state.update(b"%d\0" % len(part) + part)
        return state.hexdigest()


def data_state(root: str) -> str:
    """What stands for the files that are no programs, by name and size: where data have come, a verdict on made-up data is out of date."""
    state = hashlib.blake2b(digest_size=16)
    number = 0
    for folder, folders, names in walk(root):
        folders[:] = sorted(name for name in folders if not is_passed_by(name))
        number += len(names)
        if number > MOST_FILES:
            break
        for name in sorted(names):
            with suppress(OSError):
                path = os.path.join(folder, name)
                state.update(f"{os.path.relpath(path, root)}\0{os.stat(path).st_size}\0".encode(errors="surrogateescape"))
    return state.hexdigest()


def interpreter_state(python: str) -> list[object]:
    """What stands for an interpreter and for what is installed beside it: a package that comes or goes changes the folder it is in."""
    seen: list[object] = [python]
    base = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    folders = [
        found
        for pattern in ("lib*/python*/site-packages", "lib*/python*/dist-packages", "Lib/site-packages")
        for found in glob.glob(os.path.join(glob.escape(base), pattern))
    ]
    for path in (os.path.realpath(python), *sorted(folders)):
        with suppress(OSError):
            status = os.stat(path)
            seen += [path, status.st_size, status.st_mtime_ns]
    return seen


def _load(path: str) -> dict[str, Any]:
    try:
        digest, _, body = read_kept(path).partition(b"\n")
        content = json.loads(body) if digest == _digest(body) else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).hexdigest().encode()
