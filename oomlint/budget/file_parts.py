"""What expressions are that read data files, by the headers of those files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import H5_FILES
from oomlint.budget.headers import HeaderArray
from oomlint.memory.datasets.sample_values import Parts
from oomlint.memory.shared.shaped import ShapedArray, ShapedGroup
from oomlint.model import arguments, names
from oomlint.model.computed_names import ending
from oomlint.model.values import Const, ExternalCall, SourceExpression

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oomlint.budget.headers import DataFile
    from oomlint.memory.shared.content_classifier import Contents
    from oomlint.memory.shared.shaped import Part
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.values import Frame

_READERS: Final = {
    **dict.fromkeys(H5_FILES | {"z5py.File"}, ("h5",)),
    "numpy.load": ("npy", "npz"),
    "torch.load": ("pt",),
    "safetensors.torch.load_file": ("safetensors",),
    "safetensors.numpy.load_file": ("safetensors",),
    "safetensors.safe_open": ("safetensors",),
    "pandas.read_parquet": ("parquet",),
}
_STAYS: Final = frozenset({"h5", "npz"})  # what is read when it is asked for
_BY_KEY: Final = frozenset({"get", "get_tensor", "get_slice", "pop"})
_VIEWS: Final = frozenset("reshape transpose swapaxes view squeeze ravel T".split())  # of a memory map, what is one still


class StoredArray(ShapedArray, frozen=True):
    """An array that is in a file still: of HDF5 until it is indexed, of a memory map (``mapped``) until it is copied."""

    mapped: bool = False


class FileGroup(ShapedGroup, frozen=True):
    """The arrays of a file, or of a group of it, by their keys."""

    bytes: int | None = None  # of what reading the file brings into memory; None where that is nothing before a key is asked for

    def at(self, key: object) -> Part:
        """The part under a key, or under several: ``f["group/x"]``."""
        one: Part = self
        for word in str(key).strip("/").split("/"):
            one = next((part for name, part in one.parts if name == word), None) if isinstance(one, ShapedGroup) else None
        return one


class DataReads:
    """Which of the given data files were asked, and which would have been."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        self.files = files
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.found: list[DataFile] = []
        self.missed: list[str] = []
        self.arrays: list[ShapedArray] = []  # as they were read

    def file(self, forms: Sequence[str], path: str | None, key: str | None = None) -> DataFile | None:
        """The data file that is read: by its name where the code says it, else the only one of its kind."""
        wanted = [one for one in self.files if one.format in forms]
        if path is not None and os.path.splitext(path)[1]:
            same = [one for one in wanted if os.path.basename(one.path) == os.path.basename(path)]
            near = [one for one in same if os.path.normpath(one.path).endswith(os.path.normpath(path).lstrip("./"))]
            wanted = (near if len(near) == 1 else same) or (wanted if len(wanted) == 1 and key and wanted[0].array(key) is not None else [])
        return wanted[0] if len(wanted) == 1 else None


class FileParts(Parts):
    """The same as :class:`Parts`, where headers say what a file gives."""

    def __init__(
        self, evaluator: Evaluator, contents: Contents, known: Mapping[str, ShapedArray] | None = None, launch: object = None, *, reads: DataReads
    ) -> None:
        super().__init__(evaluator, contents, known, launch)
        self.reads = reads

    def _called(self, name: str, call: cst.Call, frame: Frame) -> Part:
        forms = _READERS.get(names.canonical(name))
        return (self._read(names.canonical(name), forms, call, frame) if forms is not None else None) or super()._called(name, call, frame)

    def _read(self, name: str, forms: Sequence[str], call: cst.Call, frame: Frame) -> Part:
        given = next(iter(arguments.plain(call)), None) or arguments.named(call, "name", "file", "f", "filename", "path")
        paths = self._paths(given, frame) if given is not None else [None]
        files = [self.reads.file(forms, path) for path in paths]
        if None in files or len({one.path for one in files if one is not None}) != 1:
            self.reads.missed += [path for path, one in zip(paths, files, strict=True) if path is not None and one is None]
            return None
        file = files[0]
        if file is None or (name == "torch.load" and arguments.has(call, "mmap")):
            return None
        self.reads.found.append(file)
        maps = file.format == "npy" and arguments.has(call, "mmap_mode")
        stays = file.format in _STAYS or name.endswith("safe_open")
        made = _tree(
            file.arrays,
            "torch" if name.startswith(("torch", "safetensors.torch", "safetensors.safe_open")) else "numpy",
            StoredArray if stays and file.format != "npz" else ShapedArray,
        )
        if isinstance(made, FileGroup):
            return FileGroup(made.parts, None if stays else file.held)
        if isinstance(made, ShapedArray) and not maps:
            self.reads.arrays.append(made)
        return StoredArray(made.shape, made.dtype, made.of, mapped=True) if maps and isinstance(made, ShapedArray) else made

    def _paths(self, node: cst.BaseExpression, frame: Frame) -> list[str | None]:
        """The path that is read on each way."""
        told = [alt.const for alt in self.usual(node, frame) if isinstance(alt.const, str)]
        found = list(dict.fromkeys(str(one) for one in told))
        return [*found] if len(found) > 1 else [self.evaluator.settings.path_text(node, frame) or self._end_of_path(node, frame) or None]

    def _end_of_path(self, node: cst.BaseExpression, frame: Frame) -> str:
        """The last folders and the name of a file, where nobody knows where they are: ``"train/x.npy"`` of ``os.path.join(root, "train", "x.npy")``."""
        values = [alt.value for alt in self.usual(node, frame)]
        one = values[0] if len(values) == 1 else None
        if isinstance(one, Const):
            return one.value if isinstance(one.value, str) else ""
        if isinstance(one, SourceExpression | ExternalCall):
            node, frame = one.node if isinstance(one, SourceExpression) else one.call, one.frame
        match node:
            case cst.Call(func=func, args=[*_, last]) if names.last_name(func) in {"join", "joinpath"}:
                end = ""
                for arg in reversed(node.args):
                    found = [alt.const for alt in self.usual(arg.value, frame)]
                    if len(found) != 1 or not isinstance(found[0], str):
                        break
                    end = os.path.join(found[0], end) if end else found[0]
                return end or (self._end_of_path(last.value, frame) if last.value is not node else "")
            case cst.Call(func=func, args=[cst.Arg(value=inner), *_]) if names.last_name(func) in {"str", "Path", "open", "fspath"}:
                return self._end_of_path(inner, frame)
            case cst.BinaryOperation(operator=cst.Divide(), right=right):
                return self._end_of_path(right, frame)
        return ending(node).partition("/")[2]

    def _subscript(self, node: cst.Subscript, frame: Frame) -> Part:
        found, base = super()._subscript(node, frame), self.of(node.value, frame)
        if isinstance(base, StoredArray) and not base.mapped and isinstance(found, ShapedArray):
            return self._loaded(found)
        return self._loaded(found) if isinstance(base, FileGroup) and type(found) is ShapedArray and base.bytes is None else found

    def _loaded(self, array: ShapedArray) -> ShapedArray:
        """What is read into memory."""
        made = ShapedArray(array.shape, array.dtype, array.of)
        self.reads.arrays.append(made)
        return made

    def _call(self, node: cst.Call, frame: Frame) -> Part:
        if isinstance(node.func, cst.Attribute) and node.func.attr.value in _BY_KEY and node.args:
            base = self.of(node.func.value, frame)
            if isinstance(base, FileGroup):
                keys = {alt.const for alt in self.usual(node.args[0].value, frame)}
                found = base.at(keys.pop()) if len(keys) == 1 else None
                return self._loaded(found) if node.func.attr.value == "get_tensor" and isinstance(found, ShapedArray) else found
        return super()._call(node, frame)

    def method(self, name: str, base: ShapedArray, call: cst.Call, frame: Frame, first: int = 0) -> Part:
        """What a method gives: mostly what is in memory then."""
        found = super().method(name, base, call, frame, first)
        stays = isinstance(base, StoredArray) and (name in _VIEWS if base.mapped else name in {"astype", "asstr"})
        return found if stays else _plain(found)

    def function(self, name: str, call: cst.Call, frame: Frame) -> Part:
        """What a function makes: always what is in memory."""
        return _plain(super().function(name, call, frame))


def _plain(part: Part) -> Part:
    """What is in memory."""
    return ShapedArray(part.shape, part.dtype, part.of) if isinstance(part, StoredArray) else part


def _tree(arrays: Sequence[HeaderArray], of: str, kind: type[ShapedArray]) -> Part:
    """The arrays of a file by their keys; the one that the file is."""
    if len(arrays) == 1 and not arrays[0].key:
        return kind(arrays[0].shape, arrays[0].type, of)
    inner: dict[str, list[HeaderArray]] = {}
    for one in arrays:
        first, _, rest = one.key.strip("/").partition("/")
        inner.setdefault(first, []).append(HeaderArray(rest, one.shape, one.item, one.chunks, one.dtype))
    return FileGroup(tuple((key, _tree(below, of, kind)) for key, below in inner.items())) if arrays else None
