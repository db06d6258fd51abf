"""Calls that open something: a file, a database, a video. What they open, for reading or writing, and from which path."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import H5_FILES
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.archives import loads_archive, maps_file
from oomlint.model import arguments, names
from oomlint.model.readings import AnswerMemory
from oomlint.model.values import Const, External

if TYPE_CHECKING:
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope


class Opens(Enum):
    """What a call opens, in the words of a message."""

    H5 = "an HDF5 file"
    LMDB = "an LMDB environment"
    NPZ = "an `.npz` archive"
    MEMMAP = "a memory map"
    FILE = "a file"
    IMAGE = "an image file"
    ARCHIVE = "an archive"
    DATABASE = "a database"
    VIDEO = "a video"
    RASTER = "a raster file"
    SLIDE = "a slide"


_BY_NAME: Final = {
    name: kind
    for kind, listed in (
        (Opens.H5, " ".join(H5_FILES)),
        (Opens.LMDB, "lmdb.open lmdb.Environment"),
        (Opens.MEMMAP, "numpy.memmap numpy.lib.format.open_memmap"),
        (Opens.FILE, "builtins.open io.open codecs.open gzip.open bz2.open lzma.open mmap.mmap"),
        (Opens.IMAGE, "PIL.Image.open"),
        (Opens.ARCHIVE, "zipfile.ZipFile tarfile.open tarfile.TarFile tarfile.TarFile.open"),
        (Opens.DATABASE, "sqlite3.connect"),
        (Opens.VIDEO, "cv2.VideoCapture decord.VideoReader"),
        (Opens.RASTER, "rasterio.open osgeo.gdal.Open tifffile.TiffFile"),
        (Opens.SLIDE, "openslide.OpenSlide openslide.open_slide"),
    )
    for name in listed.split()
}
# Where the mode stands, by position; ``mode`` is its keyword.
_MODE_AT: Final = {Opens.H5: 1, Opens.FILE: 1, Opens.ARCHIVE: 1, Opens.RASTER: 1, Opens.MEMMAP: 2}
# The mode of a call that gives none (h5py: since 3.0).
_READS: Final = {Opens.H5: "r", Opens.FILE: "r", Opens.ARCHIVE: "r", Opens.RASTER: "r", Opens.MEMMAP: "r+"}


class Opening(Struct, frozen=True, eq=False):
    """One call that opens something."""

    kind: Opens
    name: str  # qualified name of what is called
    module: Module
    scope: Scope  # whose code the call is part of
    call: cst.Call
    path: cst.BaseExpression | None  # the first argument
    mode: str | None  # ``None`` where nobody knows

    @property
    def reads_only(self) -> bool:
        """Whether nothing can be written through it, proven by its mode."""
        if self.kind in {Opens.NPZ, Opens.IMAGE, Opens.VIDEO, Opens.SLIDE}:
            return True
        if self.kind is Opens.LMDB:
            return self.mode == "r"
        return self.mode is not None and not set(self.mode) & set("wax+")


class Openings:
    """Finds what opens something. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.evaluator: Evaluator = evaluator_of(project)
        self._memo: AnswerMemory[Module, tuple[Opening, ...]] = AnswerMemory(project.readings)
        self._by_call: dict[cst.Call, Opening] = {}

    def of(self, module: Module) -> tuple[Opening, ...]:
        """Every opening call of a module, in the order of the text."""
        known = self._memo.get(module)
        if known is None:
            known = self._memo[module] = tuple(one for call, scope in module.walk.calls if (one := self._read(module, scope, call)) is not None)
            self._by_call.update({one.call: one for one in known})
        return known

    def at(self, module: Module, call: cst.Call) -> Opening | None:
        """What a call of a module opens; ``None`` where it opens nothing that is known."""
        self.of(module)
        return self._by_call.get(call)

    def _read(self, module: Module, scope: Scope, call: cst.Call) -> Opening | None:
        if names.last_name(call.func) not in _LAST and not self._renamed(module, call):
            return None
        frame = self.evaluator.calls.plain_frame(module, scope)
        for alt in self.evaluator.values(call.func, frame):
            if not isinstance(alt.value, External):
                continue
            name = alt.value.name
            kind = _BY_NAME.get(name)
            if name == "numpy.load":
                kind = self._numpy(frame, call)
            if kind is None:
                continue
            first = arguments.argument_for(call, "name", "filename", "file", "path", "fp", place=0)
            return Opening(kind, name, module, scope, call, first, self._mode(kind, module, scope, call))
        return None

    def _numpy(self, frame: Frame, call: cst.Call) -> Opens | None:
        if loads_archive(call, frame, self.evaluator):
            return Opens.NPZ
        return Opens.MEMMAP if maps_file(call, frame, self.evaluator) is not False else None

    @staticmethod
    def _renamed(module: Module, call: cst.Call) -> bool:
        """Whether the name that is called is an import under another name."""
        effects = module.root.effects.get(call.func.value, ()) if isinstance(call.func, cst.Name) else ()
        return any(effect.kind == "from" for effect in effects)

    @staticmethod
    def _keyword(call: cst.Call, *wanted: str) -> cst.BaseExpression | None:
        return arguments.named(call, *wanted)

    def _mode(self, kind: Opens, module: Module, scope: Scope, call: cst.Call) -> str | None:
        if arguments.has_stars(call):
            return None
        if kind is Opens.LMDB:
            readonly = self._keyword(call, "readonly")
            return "r" if readonly is not None and module.code(readonly) == "True" else "w"
        if kind is Opens.DATABASE:
            return "w"
        if kind not in _MODE_AT:
            return "r"
        node = arguments.argument_for(call, "mode", "mmap_mode", place=_MODE_AT[kind])
        if node is None:
            return _READS[kind]
        found = {a.value.value for a in self.evaluator.plainly(node, module, scope) if isinstance(a.value, Const)}
        return str(found.pop()) if len(found) == 1 else None


_LAST: Final = frozenset(name.rpartition(".")[2] for name in _BY_NAME) | {"load"}


def opened_by(name: str) -> Opens | None:
    """What the function or class of that qualified name opens."""
    return _BY_NAME.get(name)


def openings_of(project: Project) -> Openings:
    """The project's openings."""
    return project.shared(Openings)
