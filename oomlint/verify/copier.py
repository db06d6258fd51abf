"""Copying a project: small files are copied, large ones and folders full of data are linked."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections import deque
from typing import TYPE_CHECKING, Final

from oomlint.config import DEFAULT_EXCLUDE
from oomlint.discovery import ENVIRONMENT_MARKS
from oomlint.verify.sandbox.secrets import is_secret

if TYPE_CHECKING:
    from collections.abc import Iterator


LARGE: Final = 2**20  # bytes from which a file is linked
MOST_COPIED: Final = 5_000  # files; the rest is linked
MOST_FOLDERS: Final = 2_000  # likewise, unless a repository knows them
MOST_ENTRIES: Final = 500  # of a folder without programs: with more it holds data, and is linked as a whole
_LINKED: Final = frozenset({"_build", "buck-out", "build", "dist", "site-packages"})  # what was built may be needed, and is not changed
_LEFT_OUT: Final = frozenset(DEFAULT_EXCLUDE) - _LINKED


class Copier:
    """Copies and links from one folder to another, near folders first, until enough is copied."""

    def __init__(self, source: str, target: str, besides: str = "") -> None:
        self._source = source
        self._target = target
        self._besides = besides  # a folder that may lie in the source and is none of it
        self._copied = 0
        self._made = 0

    def project(self, names: set[str] | None) -> None:
        """The files that are part of the project (all, where nobody knows), then what else lies about: ignored files, mostly data. Of secrets nothing."""
        os.makedirs(self._target)
        device = os.stat(self._source).st_dev  # what is mounted below is data, or no files at all
        known = None if names is None else {folder for name in names for folder in _above(name)}
        waiting, later = deque([""]), deque[str]()
        while waiting or later:
            ours = bool(waiting)
            folder = waiting.popleft() if ours else later.popleft()
            for entry in self._entries(folder):
                name = os.path.join(folder, entry.name)
                if is_secret(entry.path):
                    continue
                if not entry.is_dir(follow_symlinks=False):
                    if names is None or name in names or entry.name not in _LEFT_OUT:
                        self.entry(name)
                elif known is not None and name in known:
                    self._folder(name)
                    waiting.append(name)
                elif entry.name in _LEFT_OUT or self._environment(name) or entry.path == self._besides:
                    continue
                elif entry.name in _LINKED or self._full() or self._data(name) or entry.stat(follow_symlinks=False).st_dev != device:
                    os.symlink(os.path.join(self._source, name), os.path.join(self._target, name))
                else:
                    self._folder(name)
                    (waiting if names is None else later).append(name)

    def all(self) -> None:
        """Everything."""
        os.makedirs(self._target)
        waiting = deque([""])
        while waiting:
            folder = waiting.popleft()
            for entry in self._entries(folder):
                name = os.path.join(folder, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    self._folder(name)
                    waiting.append(name)
                else:
                    self.entry(name)

    def entry(self, name: str) -> None:
        """A file, a link, or an empty folder."""
        source, target = os.path.join(self._source, name), os.path.join(self._target, name)
        try:
            about = os.lstat(source)
            content = _content(source) if stat.S_ISREG(about.st_mode) and about.st_size <= LARGE and self._copied < MOST_COPIED else None
        except OSError:  # the program misses it too, if it needs it
            return
        if stat.S_ISLNK(about.st_mode):
            self._copy_link(source, target, name)
        elif stat.S_ISDIR(about.st_mode):
            os.mkdir(target)
        elif content is not None:
            self._copied += 1
            _write(target, content, about.st_mode & 0o111)
        elif stat.S_ISREG(about.st_mode):
            os.symlink(source, target)

    def _copy_link(self, source: str, target: str, name: str) -> None:
        """A relative one that leads out of the project has to lead to the same place."""
        aim = os.readlink(source)
        inside = os.path.normpath(os.path.join(os.path.dirname(name), aim))
        if not os.path.isabs(aim) and (inside == os.pardir or inside.startswith(os.pardir + os.sep)):
            aim = os.path.join(os.path.dirname(source), aim)
        os.symlink(aim, target)

    def _folder(self, name: str) -> None:
        self._made += 1
        os.mkdir(os.path.join(self._target, name))

    def _entries(self, name: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(os.path.join(self._source, name)) as found:
                return sorted(found, key=lambda entry: entry.name)
        except OSError:
            return []

    def _full(self) -> bool:
        return self._made > MOST_FOLDERS or self._copied >= MOST_COPIED

    def _environment(self, name: str) -> bool:
        return any(os.path.exists(os.path.join(self._source, name, mark)) for mark in ENVIRONMENT_MARKS)

    def _data(self, name: str) -> bool:
        """Whether a folder holds so much, and no programs, that it is data. Of a very large one only the beginning is looked at."""
        count = 0
        with contextlib.suppress(OSError), os.scandir(os.path.join(self._source, name)) as found:
            for entry in found:
                count += 1
                if entry.name.endswith(".py"):
                    return False
                if count > 4 * MOST_ENTRIES:
                    break
        return count > MOST_ENTRIES


def listed(root: str) -> set[str] | None:
    """The files below a folder that its repository knows or would take, relative to it; ``None`` where there is no repository, or no git."""
    try:
        names = {name for name in files(root, "-o", "--exclude-standard") if not name.endswith("/")}
    except (OSError, subprocess.SubprocessError):
        return None
    return names or None


def _above(name: str) -> Iterator[str]:
    while name := os.path.dirname(name):
        yield name


def _content(source: str) -> bytes:
    """Of a small file. Plain reads and writes: thousands of them take a tenth of the time of shutil."""
    reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(reader, LARGE + 1)
    finally:
        os.close(reader)


def _write(target: str, content: bytes, executable: int) -> None:
    writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644 | executable)
    try:
        os.write(writer, content)
    finally:
        os.close(writer)


_GIT: Final = (
    *("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.bareRepository=explicit"),
    *("--literal-pathspecs", "ls-files", "-z", "-c"),
)
_QUIET: Final = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0"}
_SECONDS: Final = 20


def files(folder: str, *words: str, ceiling: str = "") -> list[str]:
    """The files below a folder that its repository knows, relative to it; ``words`` go to ``git ls-files``. Repositories above ``ceiling`` do not count.

    Raises OSError or subprocess.SubprocessError where there is no repository, or no git.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # those of a hook speak of another work
    done = subprocess.run(  # noqa: S603 -- fixed words, and paths that are taken literally
        [*_GIT, *words],
        cwd=folder,
        env={**own, **_QUIET, **({"GIT_CEILING_DIRECTORIES": ceiling} if ceiling else {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=_SECONDS,
    )
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]
