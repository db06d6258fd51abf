"""What a job may see: the interpreter, the project, and the data that its code or the user names."""

from __future__ import annotations

import ast
import contextlib
import glob
import os
import re
import site
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from oomlint.config import DEFAULT_EXCLUDE
from oomlint.verify.environment import CACHES
from oomlint.verify.folders import SYSTEM, content, walk
from oomlint.verify.sandbox.secrets import found, is_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PROGRAMS: Final = (".py", ".ipynb", ".sh", ".yaml", ".yml", ".toml", ".json", ".cfg", ".ini")
_LARGEST: Final = 2**20  # bytes of a file that is searched for paths
_MOST_PROGRAMS: Final = 5_000
_MOST_IN_DATA: Final = 20_000  # files and folders of named data that are looked at for secrets
_PATH: Final = re.compile(rb"(?<![\w./~:}\\])/(?:[\w.+@-]+/)*[\w.+@-]+")
_OF_THE_SYSTEM: Final = (*SYSTEM, "/boot", "/dev", "/proc", "/run", "/var", "/lost+found")
_HOMES: Final = ("/home", "/Users")
_EDITABLE: Final = re.compile(r"^MAPPING\b[^=]*=\s*(\{.*\})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SandboxView:
    """Absolute paths, as the launcher takes them."""

    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


def of_project(root: str, named: Iterable[str] = (), words: str = "") -> SandboxView:
    """What jobs of a project may see beside the interpreter and their own folders.

    The project itself (large files are links into it), weights in the user's caches, the files and folders that its programs and settings name, those that
    the user does (``named``), and what a command of the user's (``words``) speaks of.
    """
    root = os.path.realpath(root)
    cached = [os.path.join(os.path.expanduser("~"), ".cache", name) for name in CACHES]
    data = sorted({path for text in (*_contents(root), words.encode()) for path in _named(text)})
    own = [os.path.abspath(path) for path in named]
    hidden = dict.fromkeys([*found(root), *(path for folder in (*data, *own) for path in found(folder, _MOST_IN_DATA))])
    if root == os.path.realpath(os.path.expanduser("~")):
        hidden |= dict.fromkeys(entry.path for entry in os.scandir(root) if entry.name.startswith("."))
    return SandboxView(readable=(root, *cached, *data, *own), hidden=tuple(path for path in hidden if path not in own))


def of_interpreter(python: str) -> tuple[str, ...]:
    """The folders that an interpreter needs: its environment, the installation that this was made of, and projects that are installed from their folders."""
    shown = dict.fromkeys([_PACKAGE, os.path.join(site.getuserbase(), "lib"), *_prefixes(python)])
    shown |= dict.fromkeys(os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)
    for prefix in list(shown):
        for pattern in ("", "lib*/python*/site-packages/", "python*/site-packages/"):
            for name in ("*.pth", "__editable__*finder.py"):
                for path in glob.glob(os.path.join(glob.escape(prefix), pattern + name)):
                    shown |= dict.fromkeys(_linked(path))
    return tuple(shown)


def private_of_system() -> tuple[str, ...]:
    """What of /etc other users may not read: root without its rights could, as its owner."""
    if os.geteuid() != 0:
        return ()
    return tuple(_closed("/etc"))


def _closed(folder: str) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            continue
        if not mode & stat.S_IROTH:
            yield entry.path
        elif stat.S_ISDIR(mode):
            yield from _closed(entry.path)


def _prefixes(python: str) -> Iterator[str]:
    """The installation that each link on the way to an interpreter lies in."""
    home = os.path.realpath(os.path.expanduser("~"))
    path = os.path.abspath(python)
    for _ in range(20):
        folder = os.path.dirname(path)
        prefix = os.path.dirname(folder)
        yield folder if _is_above(prefix, home) else prefix
        settings = os.path.join(prefix, "pyvenv.cfg")
        with contextlib.suppress(OSError):
            for line in content(settings, _LARGEST).decode("utf-8", "replace").splitlines():
                key, _, value = line.partition("=")
                base = os.path.dirname(value.strip())
                if key.strip() == "home" and os.path.isdir(value.strip()):
                    yield value.strip() if _is_above(base, home) else base
        following = _led_to(path)
        if not following:
            return
        path = following


def _led_to(path: str) -> str:
    """What a link, or a script in the place of an interpreter, leads to; empty where it is the interpreter itself."""
    try:
        if os.path.islink(path):
            return os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
        text = content(path, _LARGEST)
    except OSError:
        return ""
    named = (os.fsdecode(match) for match in _PATH.findall(text.partition(b"\n")[2])) if text.startswith(b"#!") else ()
    return next((each for each in named if os.path.isfile(each) and os.access(each, os.X_OK)), "")


def _linked(path: str) -> Iterator[str]:
    """The folders that a file of an environment brings onto the path of modules."""
    try:
        text = content(path, _LARGEST).decode("utf-8", "replace")
    except OSError:
        return
    if path.endswith(".pth"):
        lines = [os.path.join(os.path.dirname(path), line.strip()) for line in text.splitlines() if not line.startswith(("#", "import ", "import\t"))]
    else:
        match = _EDITABLE.search(text)
        try:
            mapping = ast.literal_eval(match[1]) if match else {}
        except (ValueError, SyntaxError):
            return
        lines = [os.path.dirname(value) for value in mapping.values() if isinstance(value, str)]
    home = os.path.realpath(os.path.expanduser("~"))
    yield from (line for line in map(os.path.normpath, lines) if os.path.isdir(line) and not _is_above(line, home))


def _contents(root: str) -> Iterator[bytes]:
    """The programs and settings of a project."""
    left = _MOST_PROGRAMS
    for folder, inside, names in walk(root):
        inside[:] = sorted(name for name in inside if name not in DEFAULT_EXCLUDE and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg")))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not name.endswith(_PROGRAMS) or is_secret(path):
                continue
            left -= 1
            if left < 0:
                return
            with contextlib.suppress(OSError):
                yield content(path, _LARGEST)


def _named(text: bytes) -> Iterator[str]:
    """Files and folders outside of the system that a text names, as far as a text that somebody else has written may: no homes, nothing hidden, no secrets."""
    home = os.path.realpath(os.path.expanduser("~"))
    for match in dict.fromkeys(_PATH.findall(text)):
        path = os.path.normpath(os.fsdecode(match))
        if _starts(path, _OF_THE_SYSTEM) or not os.path.exists(path):
            continue
        real = os.path.realpath(path)
        if _starts(real, _OF_THE_SYSTEM) or _is_above(real, home) or _is_above(real, "/tmp"):  # noqa: S108
            continue
        if real in _HOMES or os.path.dirname(real) in _HOMES or not (os.path.isfile(real) or os.path.isdir(real)):
            continue
        if not any(part.startswith(".") or is_secret(part) for part in real.split(os.sep)[1:]):
            yield path


def _starts(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder + os.sep) for folder in folders)


def _is_above(folder: str, path: str) -> bool:
    """Whether a folder is another or holds it."""
    return os.path.join(path, "").startswith(os.path.join(folder, ""))
