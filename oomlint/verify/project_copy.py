"""Copies of a project for jobs to run in and write to: the files of the user are read, never touched.

Small files are copied, large ones and folders full of data are linked: a job may read them, and the sandbox refuses to write through the link. One pristine
copy serves a whole run; before and after a fix have a folder each, which differs from it by the files of the case and is put right again after every job.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, NamedTuple

from oomlint.source import read_source
from oomlint.verify.case import Part
from oomlint.verify.copier import Copier, listed
from oomlint.verify.folders import remove
from oomlint.verify.jobs import SandboxError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType


DATA: Final = frozenset(".bin .csv .gz .h5 .hdf5 .jpeg .jpg .jsonl .mat .mdb .npy .npz .p .pickle .pkl .png .pt .pth .tar .tif .tsv .wav .zip".split())
_NAMES: Final = {Part.BEFORE: "old", Part.AFTER: "new"}  # of one length: a path that is printed or hashed takes the same room in both


class Base(AbstractContextManager["Base"]):
    """The pristine copy of a project, and the two folders that cases run in. Made once for a run."""

    def __init__(self, root: str, keep: str | None = None, within: str | None = None) -> None:
        """``keep`` names a folder in which the trees of every case stay; else they lie in a fresh one ``within`` another, which jobs can write to."""
        self.root = os.path.realpath(root)
        self._keep = os.path.realpath(keep) if keep else None
        self.place = self._keep or os.path.realpath(tempfile.mkdtemp(prefix="oomlint-", dir=within))
        self._name = os.path.basename(self.root) or "root"
        self._folder = ""
        self._slots: dict[Part, _Slot] = {}
        self._cases = 0

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Remove all copies, unless they are to stay."""
        if self._keep is None:
            remove(self.place)
        elif self._folder:
            remove(os.path.dirname(self._folder))

    @property
    def folder(self) -> str:
        """The pristine copy. What is written to it before the first case, every case finds."""
        if not self._folder:
            self._folder = os.path.join(self.place, "raw", self._name)
            remove(self._folder)
            try:
                Copier(self.root, self._folder, self.place).project(listed(self.root))
            except OSError as error:
                raise SandboxError(f"{self.root} cannot be copied to {self.place}: {error.strerror}") from None
        return self._folder

    def slot(self, part: Part) -> _Slot:
        """The folder of one part: of this case alone where the trees are kept."""
        if part not in self._slots:
            number = f"{self._cases:03}" if self._keep else ""
            folder = os.path.join(self.place, number, _NAMES[part], self._name)
            remove(folder)
            self._slots[part] = _Slot(self.root, self.folder, folder)
        return self._slots[part]

    def next_case(self) -> None:
        """What is kept is not used again. What was run before the first case is not kept."""
        if self._keep:
            if not self._cases:
                remove(os.path.join(self.place, f"{0:03}"))
            self._slots = {}
        self._cases += 1


class Trees(AbstractContextManager["Trees"]):
    """The project before and after the fix of one case."""

    def __init__(self, base: Base, changes: Mapping[str, tuple[bytes, bytes]]) -> None:
        self._base = base
        base.next_case()
        self._changes = {os.path.realpath(path): pair for path, pair in changes.items()}
        self._contents: dict[Part, dict[str, bytes]] = {
            part: {self._relative(path): pair[part is Part.AFTER] for path, pair in self._changes.items()} for part in Part
        }
        self._hidden: frozenset[str] = frozenset()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """The folders serve the next case; their base removes them."""

    def folder(self, part: Part) -> str:
        """The copy of the project, as the project is, whatever an earlier job has written."""
        return self._base.slot(part).put_right(self._contents[part], self._hidden)

    @contextlib.contextmanager
    def without_data(self) -> Iterator[None]:
        """Meanwhile the copies lack what looks like data by its name, so that others can be made in its place."""
        known = self._base.folder
        self._hidden = frozenset(
            name for name, _ in _marks(known) if os.path.splitext(name)[1].lower() in DATA and not os.path.isdir(os.path.join(known, name))
        )
        try:
            yield
        finally:
            self._hidden = frozenset()

    def program(self, part: Part, path: str) -> str:
        """The copy of a file; of a notebook the program that its cells are, in a file beside it. Raises SourceError for a notebook that cannot be read."""
        path = os.path.realpath(path)
        relative = self._relative(path)
        if path.endswith(".ipynb"):
            pair = self._changes.get(path)
            program = read_source(path, None if pair is None else pair[part is Part.AFTER]).text
            relative = f"{relative.removesuffix('.ipynb')}_ipynb.py"
            self._contents[part][relative] = program.encode("utf-8", "surrogatepass")
        folder = self.folder(part)
        target = os.path.join(folder, relative)
        if not os.path.lexists(target) and os.path.isfile(path):
            with open(path, "rb") as file:
                self._contents[part][relative] = file.read()
            self.folder(part)
        return target

    def _relative(self, path: str) -> str:
        """Below the root; a file from elsewhere lies in a folder of its own."""
        if path.startswith(self._base.root.rstrip(os.sep) + os.sep):
            return os.path.relpath(path, self._base.root)
        return os.path.join("outside", os.path.basename(os.path.dirname(path)), os.path.basename(path))


class _Mark(NamedTuple):
    """What a file looks like from outside. Writing to it changes the time of its last change, which no program can set back."""

    mode: int
    inode: int
    size: int
    changed: int  # nanoseconds


class _Slot:
    """A copy of the pristine copy, with some files of another content."""

    def __init__(self, root: str, pristine: str, folder: str) -> None:
        self._pristine = pristine
        self._folder = folder
        self._root = root
        self._contents: dict[str, bytes] = {}
        self._hidden: frozenset[str] = frozenset()
        Copier(pristine, folder).all()
        with open(os.path.join(os.path.dirname(folder), "origin"), "w", encoding="utf-8") as file:
            file.write(root)  # jobs read it: an installed package may point at the original
        self._marks = dict(_marks(folder))
        self._identity = _identity(folder)

    def put_right(self, contents: Mapping[str, bytes], hidden: frozenset[str] = frozenset()) -> str:
        """Undo what jobs have written, give these files their contents, and take the ``hidden`` ones away."""
        if _identity(self._folder) != self._identity:  # a job has put something else there, such as a link
            raise SandboxError(f"{self._folder} has been replaced by what was run")
        now = dict(_marks(self._folder))
        wrong = {name for name in self._marks.keys() | now.keys() if self._marks.get(name) != now.get(name)}
        wrong.update(name for name, content in self._contents.items() if contents.get(name) != content)
        wrong.update(self._hidden - hidden)
        fresh = {name for name, content in contents.items() if self._contents.get(name) != content or name in wrong}
        for name in sorted(wrong):  # folders come before what is in them
            self._restore(name)
        for name in sorted(fresh):
            self._put(name, contents[name])
        for name in hidden:
            if os.path.lexists(target := os.path.join(self._folder, name)):
                remove(target)
        if wrong or fresh or hidden != self._hidden:
            self._marks = dict(_marks(self._folder))
        self._contents, self._hidden = dict(contents), hidden
        return self._folder

    def _restore(self, name: str) -> None:
        source, target = os.path.join(self._pristine, name), os.path.join(self._folder, name)
        if os.path.isdir(source) and not os.path.islink(source) and os.path.isdir(target) and not os.path.islink(target):
            os.chmod(target, stat.S_IRWXU)
            return
        if os.path.lexists(target):
            remove(target)
        if os.path.lexists(source) and os.path.isdir(os.path.dirname(target)):
            Copier(self._pristine, self._folder).entry(name)

    def _put(self, name: str, content: bytes) -> None:
        self._make_folders(os.path.dirname(name))
        target = os.path.join(self._folder, name)
        if os.path.lexists(target):
            remove(target)
        with open(target, "wb") as file:
            file.write(content)

    def _make_folders(self, name: str) -> None:
        """Real folders down to there. One that was linked or left out becomes a folder of links."""
        reached = ""
        for part in name.split(os.sep) if name else ():
            reached = os.path.join(reached, part)
            target, original = os.path.join(self._folder, reached), os.path.join(self._root, reached)
            if os.path.isdir(target) and not os.path.islink(target):
                continue
            if os.path.lexists(target):
                remove(target)
            os.mkdir(target)
            with contextlib.suppress(OSError):
                for entry in os.listdir(original):
                    os.symlink(os.path.join(original, entry), os.path.join(target, entry))


def _identity(folder: str) -> tuple[int, int] | None:
    """What a folder is, whatever its name: of none where a link stands in its place or above it."""
    if os.path.realpath(folder) != folder:
        return None
    about = os.lstat(folder)
    return about.st_dev, about.st_ino


def _marks(folder: str) -> Iterator[tuple[str, _Mark]]:
    """Everything below a folder. Of folders only whether they are there, and their rights."""
    waiting = [""]
    while waiting:
        current = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(os.path.join(folder, current)) as found:
            for entry in found:
                name = os.path.join(current, entry.name) if current else entry.name
                about = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(name)
                    yield name, _Mark(about.st_mode, about.st_ino, 0, 0)
                else:
                    yield name, _Mark(about.st_mode, about.st_ino, about.st_size, about.st_ctime_ns)
