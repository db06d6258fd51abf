"""Makes files come into being as the user's code asks for them, in the process of one trial that ends soon after.

An audit hook sees each file that is about to be opened and each folder that is about to be listed; what is missing within the project's copy
is written just before, with the real format, so that the real libraries read it. HDF5 alone is replaced by a stand-in (:mod:`files_h5`).
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.loading.stubs import Entered
from oomlint.verify.child.synthesis import file_specs, file_specs_h5, file_specs_lmdb, file_specs_plain
from oomlint.verify.child.synthesis.inferred_value import Clay

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

LEAVE: Final = re.compile(r"(\.py[cdoxi]?|\.so|\.pth\.tar\.gz|\.toml|\.cfg|\.egg-info)$|/\.|__pycache__|site-packages|CMakeLists|\.ipynb$")

OPENED: Final = (  # by file and function of the library that opens it, the first that fits
    (r"numpy.*:(loadtxt|genfromtxt)$", "numbers"),
    (r"numpy.*:fromfile$", "bytes"),
    (r"numpy.*:", "npy"),
    (r"/PIL/", "image"),
    (r"/torch/serialization", "torch"),
    (r"/pandas/", "text"),
    (r"/wave\.py:", "wav"),
)


class World:
    """The files of a state, and what was asked for that the project does not have."""

    def __init__(self, state: dict[str, Any], home: str, root: str, hints: file_specs_plain.Hints) -> None:
        self.state, self.home, self.root, self.hints = state, os.path.realpath(home), root, hints
        self.specs: dict[str, file_specs.Spec] = state.setdefault("files", {})
        self.count: int = state.get("n", file_specs_plain.SAMPLES)
        self.log: list[list[str]] = []  # [path in the state, node of HDF5 or ""], the latest last
        self.made: dict[str, str] = {}  # paths that were made here: "file", "empty" or "folder"
        self.outside: list[str] = []  # what is missing where nothing may be written
        self.used: dict[str, None] = {}  # paths in the state that were asked for
        self.busy = False

    # Which paths are ours

    def key(self, path: object) -> str | None:
        """The path in the state of something that the project does not have; ``None`` of all else."""
        try:
            text = os.fsdecode(path)  # type: ignore[arg-type]  # whatever the user opens
        except (TypeError, ValueError):
            return None
        if not text or "\0" in text:
            return None
        whole = os.path.normpath(os.path.join(self.home, text))
        if not whole.startswith(self.home + os.sep) or LEAVE.search(whole[len(self.home) :]):
            return None
        return whole[len(self.home) + 1 :]

    def there(self, key: str) -> bool:
        """Whether it lies there and is not an empty one of ours."""
        return os.path.lexists(os.path.join(self.home, key)) and self.made.get(key) in (None, "file")

    def use(self, key: str, node: str = "") -> None:
        """Note that it is used now."""
        self.used[key] = None
        if [key, node] in self.log:
            self.log.remove([key, node])
        self.log.append([key, node])

    # What is asked

    def event(self, name: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook."""
        if self.busy or name not in ("open", "os.mkdir", "os.listdir", "os.scandir", "glob.glob", "glob.glob/2", "pathlib.Path.glob", "pathlib.Path.rglob"):
            return
        self.busy = True
        try:
            if name == "open":
                path, mode, flags = arguments[:3]
                writes = any(letter in (mode or "") for letter in "wax+") or (mode is None and isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR))
                if not isinstance(path, int):
                    self.written(path) if writes else self.opened(path)
            elif name == "os.mkdir":
                self.written(arguments[0])
            elif name.startswith("os."):
                if not isinstance(arguments[0], int):
                    self.listed(arguments[0] or ".")
            elif name.startswith("glob"):
                self.matched(os.fsdecode(arguments[0]))
            else:
                self.matched(os.path.join(os.fsdecode(arguments[0]), ("**/" if name.endswith("rglob") else "") + arguments[1]))
        finally:
            self.busy = False

    def written(self, path: object) -> None:
        """The code makes a file of its own: it is not ours, but goes away with the trial."""
        if (key := self.key(path)) and not os.path.lexists(os.path.join(self.home, key)):
            self.made[key] = "file"

    def opened(self, path: object) -> None:
        """Something is about to be read."""
        key = self.key(path)
        if key is None:
            if isinstance(path, (str, os.PathLike)) and not os.path.exists(path) and os.fspath(path) not in self.outside:
                self.outside.append(str(os.fspath(path)))
            return
        if key in self.specs and self.made.get(key) == "file":
            self.use(key)
        if self.there(key):
            return
        spec = self.specs.get(key)
        if spec is None or spec["kind"] in ("folder", "empty"):
            spec = self.alike(key) or file_specs.default(self._kind(key), self.hints, key)
            self.specs[key] = spec
        self.make(key, spec)

    def alike(self, key: str, fits: Callable[[str, str], bool] = lambda _, kind: kind not in ("folder", "empty", "h5")) -> file_specs.Spec | None:
        """What a path of the same name but for digits holds whose path and kind fit: it holds the same."""
        like = re.sub(r"\d+", "#", key)
        return next((spec for other, spec in self.specs.items() if fits(other, spec["kind"]) and re.sub(r"\d+", "#", other) == like), None)

    def make(self, key: str, spec: file_specs.Spec) -> None:
        """Write it."""
        path = os.path.join(self.home, key)
        self._above(key)
        file_specs.write(path, spec, key, self.count)
        self.made[key] = "file"
        self.use(key)

    def _above(self, key: str) -> None:
        """The folders that it lies in are ours from now on."""
        parts = key.split(os.sep)
        for count in range(1, len(parts)):
            folder = os.sep.join(parts[:count])
            path = os.path.join(self.home, folder)
            if self.made.get(folder) == "empty" and os.path.isfile(path):
                os.unlink(path)
            if not os.path.isdir(path):
                os.mkdir(path)
                self.made[folder] = "folder"

    def listed(self, path: object) -> None:
        """A folder is about to be listed."""
        key = self.key(path)
        if key is None or (os.path.lexists(os.path.join(self.home, key)) and self.made.get(key) not in ("empty", "folder")):
            return
        whole = os.path.join(self.home, key)
        if os.path.isdir(whole) and os.listdir(whole) and key not in self.specs:
            return
        spec = self.specs.get(key)
        if spec is None or spec["kind"] != "folder":
            deep = any(other["kind"] == "folder" and key.startswith(name + os.sep) for name, other in self.specs.items())
            beside = self.alike(key, lambda other, kind: kind == "folder" and os.path.dirname(other) == os.path.dirname(key))
            spec = beside or file_specs.default("folder", self.hints)
            if deep and isinstance(spec["names"], dict) and spec["names"]["count"] == "n" and not spec.get("set"):
                spec = {**spec, "names": {**spec["names"], "count": 4}}
            self.specs[key] = spec
        self._above(os.path.join(key, "x"))
        for name in file_specs.listed(spec, self.count):
            self.empty(os.path.join(key, name))
        self.made[key] = "folder full"
        self.use(key)

    def empty(self, key: str) -> None:
        """A name in a folder: what it is follows from how it is used."""
        path = os.path.join(self.home, key)
        if os.path.lexists(path):
            return
        self._above(key)
        if os.path.splitext(key)[1]:
            with open(path, "wb"):
                pass
        else:
            os.mkdir(path)
        self.made[key] = "empty"
        self.used[key] = None
        self.specs.setdefault(key, {"kind": "empty"})

    def matched(self, pattern: str) -> None:
        """A pattern is about to be looked for: something fits it."""
        key = self.key(pattern)
        if key is None or not re.search(r"[*?\[]", key):
            return
        spec = self.specs.setdefault(f"{key} ", {"kind": "pattern", "count": "n"})
        if (
            os.path.isdir(head := os.path.join(self.home, re.split(r"[^/]*[*?\[]", key)[0]))
            and any(os.scandir(head))
            and self.made.get(os.path.relpath(head, self.home)) != "folder"
        ):
            known = [name for name in self.made if name.startswith(os.path.relpath(head, self.home))]
            if not known:
                return
        parts = [part for part in key.split("/") if part != "**"]
        wild = [place for place, part in enumerate(parts) if re.search(r"[*?\[]", part)]
        if not wild:
            return
        count = self.count if spec["count"] == "n" else int(spec["count"])
        for number in range(count):
            made = list(parts)
            for place in wild:
                last = place == wild[-1]
                text = f"s{number:03d}" if last else f"class{number % 2}"
                if parts[place] == "*" and last and place == len(parts) - 1:
                    text = file_specs.listed({"names": spec.get("names") or file_specs_plain.names(self.hints)[0]}, number + 1)[number]
                made[place] = re.sub(r"\*+", text, re.sub(r"\[[^\]]*\]|\?", "0", parts[place]), count=1).replace("*", "")
            self.empty("/".join(made))
        self.use(f"{key} ")

    def stat(self, path: object) -> None:
        """Whether something is there is about to be asked: it is, unless the state says no."""
        key = self.key(path)
        if key is None or os.path.lexists(os.path.join(self.home, key)):
            return
        spec = self.specs.get(key)
        if spec is None:
            cached = re.search(r"cache|process|tmp|out|result|\block\b|checkpoint", key)
            spec = self.specs[key] = {"kind": "absent" if cached else "empty"}
            self.use(key)
        if spec["kind"] == "absent":
            self.use(key)
            if os.path.dirname(key) in self.specs:
                self.empty(os.path.dirname(key))  # the program makes the file there
            return
        self.empty(key)

    def _kind(self, key: str) -> str:
        """What kind of file is about to be opened: by who opens it, by the line that does, by its name."""
        frame: FrameType | None = sys._getframe(3)  # noqa: SLF001 -- one stand-in or loader in several classes
        while frame is not None:
            file, function = frame.f_code.co_filename, frame.f_code.co_name
            for pattern, kind in OPENED:
                if re.search(pattern, f"{file}:{function}"):
                    return "npz" if kind == "npy" and key.endswith(".npz") else kind
            if file.startswith(self.root):
                near = "".join(linecache.getline(file, frame.f_lineno + step) for step in range(4))
                for kind, words in (
                    ("pickle", r"[pP]ickle\.|pkl\.load|dill"),
                    ("jsonl", r"json\.loads\(\w*(line|l)\b"),
                    ("json", r"json\.load|yaml\."),
                    ("torch", r"torch\.load"),
                    ("npy", r"np\.load\("),
                ):
                    if re.search(words, near):
                        return kind
                return file_specs.kind_of(key)
            frame = frame.f_back
        return file_specs.kind_of(key)


_NOW: Final[list[World]] = []


def enter(world: World) -> None:
    """Make the files of a state come into being in this process from now on. There is no way back: for a process that ends after its trials."""
    fresh = not _NOW
    _NOW[:] = [world]
    if not fresh:
        return
    real: Callable[..., Any] = os.stat

    def stat(path: Any, *arguments: Any, **keywords: Any) -> Any:
        now = _NOW[0]
        if not now.busy and not isinstance(path, int) and _asked(now.root):
            now.busy = True
            try:
                now.stat(path)
            finally:
                now.busy = False
        return real(path, *arguments, **keywords)

    os.stat = stat
    sys.addaudithook(_told)
    for library, name in (("json", "load"), ("pickle", "load"), ("torch", "load")):
        module = sys.modules[library]
        swap(module, {name: _reading(getattr(module, name))}, world.root)
    h5py = sys.modules.get("h5py")
    if h5py is not None:
        swap(h5py, {"File": _file(h5py.File), "Group": file_specs_h5.Group, "Dataset": file_specs_h5.Dataset}, world.root)

    lmdb = sys.modules.get("lmdb")
    if lmdb is not None and hasattr(lmdb, "Environment"):
        swap(lmdb, {name: file_specs_lmdb.opening(getattr(lmdb, name), lambda: _NOW[0]) for name in ("open", "Environment")}, world.root)


def _told(name: str, arguments: tuple[Any, ...]) -> None:
    _NOW[0].event(name, arguments)


def _reading(actual: Callable[..., Any]) -> Callable[..., Any]:
    """A reader of structured files that gives clay where the state does not know yet what a file holds."""

    def read(source: Any, *arguments: Any, **keywords: Any) -> Any:
        now = _NOW[0]
        made = actual(source, *arguments, **keywords)
        key = now.key(getattr(source, "name", source))
        spec = now.specs.get(key or "")
        return Clay(spec["value"], key, now.count, tensors=spec["kind"] == "torch") if spec is not None and spec.get("clay") and key else made

    return read


def _file(actual: Any) -> type:
    class File(file_specs_h5.Node, Entered):
        """A stand-in for `h5py.File`; files that lie there are read by the library itself."""

        def __new__(cls, name: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
            now = _NOW[0]
            key = now.key(name)
            if key is None and isinstance(name, (str, os.PathLike)) and not os.path.exists(name):
                now.outside.append(str(name))
            if key is None or mode not in ("r", "r+", "a", None) or now.there(key):
                return actual(name, mode, *arguments, **keywords)
            return super().__new__(cls)

        def __init__(self, name: Any, mode: str = "r", *_: Any, **__: Any) -> None:
            del mode
            now = _NOW[0]
            key = now.key(name) or ""
            now.used[key] = None
            spec = now.specs.get(key)
            if spec is None or spec["kind"] != "h5":
                spec = now.alike(key, lambda _, kind: kind == "h5")
                spec = {"kind": "h5", "nodes": spec["nodes"] if spec else {}}
                now.specs[key] = spec
            self.filename, self.mode, self.swmr_mode, self.id = str(name), "r", False, 1
            super().__init__(file_specs_h5.H5Specs(key, spec, now.count, now.log), "/")
            self._entry["is"] = "group"

        def close(self) -> None:
            return None

        flush = close

    return File


def swap(library: Any, others: dict[str, Any], root: str) -> None:
    """Put stand-ins into a library and into the modules of the project that have taken names from it."""
    pairs = [(getattr(library, name), other) for name, other in others.items()]
    for name, other in others.items():
        setattr(library, name, other)
    for module in list(sys.modules.values()):
        if (getattr(module, "__file__", None) or "").startswith(root):
            for name, value in list(vars(module).items()):
                for old, new in pairs:
                    if value is old:
                        setattr(module, name, new)


def _asked(root: str) -> bool:
    """Whether the user's own code asks, directly or through `os.path` and `pathlib`."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 -- one stand-in or loader in several classes
    for _ in range(6):
        if frame is None:
            return False
        file = frame.f_code.co_filename
        if file.startswith(root):
            return True
        if not re.search(r"genericpath|posixpath|pathlib|glob\.py|os\.py|frozen", file):
            return False
        frame = frame.f_back
    return False
