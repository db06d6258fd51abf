"""Shapes and types of the arrays of data files, from their headers alone: no payload is read, nothing is unpickled."""

from __future__ import annotations

import ast
import json
import os
import re
import struct
import subprocess
import sys
import zipfile
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.budget import thrift, torch_pickle
from oomlint.budget.mistakes import BudgetError
from oomlint.budget.sizes import MOST
from oomlint.memory.shared.byte_size import ITEM_BYTES
from oomlint.source import is_special

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MOST_FILES: Final = 2_000  # of a folder, whose headers are read
_OF_H5: Final = 40  # as many as that one in an HDF5 file takes as long as
_H5: Final = (".h5", ".hdf5", ".hdf", ".he5", ".mat")
_KNOWN: Final = (*_H5, ".npy", ".npz", ".pt", ".pth", ".safetensors", ".parquet")
_LONGEST: Final = 64 << 20  # bytes of a header: a longer one is none
_MOST_AXES: Final = 4  # that a message shows
_LONGEST_SHAPE: Final = 80  # characters of it
_PATIENCE: Final = 60  # seconds for the process that opens an HDF5 file
_LETTERS: Final = {"b": "bool", "f": "float", "i": "int", "u": "uint", "c": "complex"}
_SAFETENSORS: Final = {"BOOL": "bool", "BF16": "bfloat16", "F8_E4M3": "", "F8_E5M2": ""} | {
    f"{letter}{bits}": f"{word}{bits}" for letter, word in (("U", "uint"), ("I", "int"), ("F", "float")) for bits in (8, 16, 32, 64)
}
_NUMPY: Final = re.compile(r"[<>|=]?([biufcSaUVOmM])(\d*)(?:\[\w+\])?")


_BROKEN: Final = (struct.error, zipfile.BadZipFile)


class _UnreadableError(Exception):
    """A header that says nothing; the message says why."""


class HeaderArray(Struct, frozen=True):
    """One array of a file."""

    key: str  # its name in the file; empty where the file is the array
    shape: tuple[int, ...]
    item: int | None  # bytes of one element; None for Python objects, whose size no header tells
    chunks: int | None = None  # bytes of all chunks, of an array in an HDF5 file; 0 where it lies in one piece, None where in other files
    dtype: str = ""  # of one element, where NumPy or torch has a name for it

    @property
    def type(self) -> str:
        """The type of an element, else its bytes; empty where not even those are known."""
        return self.dtype if self.dtype in ITEM_BYTES else str(self.item or "")

    @property
    def bytes(self) -> int | None:
        """All of it."""
        return None if self.item is None else prod(self.shape) * self.item


class DataFile(Struct, frozen=True):
    """What the header of a file says, or the listing of a folder, or of those of its files that are of one kind."""

    path: str
    format: str  # "h5", "npy", "npz", "pt", "safetensors", "parquet", "folder"
    arrays: tuple[HeaderArray, ...] = ()
    held: int | None = None  # bytes of all arrays at least, or of all files of a folder
    count: int = 0  # files of a folder, rows of a table
    kinds: tuple[DataFile, ...] = ()  # of a folder: what its data files are, each kind with their number and their bytes
    beside: bool = False  # whether it is one of the files of a folder, of which no line tells
    unreadable: int = 0  # of the files of a folder, those whose headers cannot be read
    broken: bool = False  # whether its bytes are known, and what they are cannot be read

    def array(self, key: str | None) -> HeaderArray | None:
        """The array of a key, or the only one; None where it is not there or not certain which."""
        if key:
            wanted = key.strip("/")
            return next((one for one in self.arrays if one.key.strip("/") == wanted), None)
        return self.arrays[0] if len(self.arrays) == 1 else None


def read_all(path: str) -> Iterator[DataFile]:
    """What the header of a file says, or those of the data files in a folder, behind what the folder is. Raises BudgetError, as :func:`read`."""
    if not os.path.isdir(path):
        yield read(path)
        return
    found: list[DataFile] = []
    broken = asked = 0
    for place in sorted(_files_in(path)):
        if place.lower().endswith(_KNOWN) and asked < _MOST_FILES:
            asked += _OF_H5 if place.lower().endswith(_H5) else 1
            try:
                found.append(replace(read(place), beside=True))
            except BudgetError:
                broken += 1
    by_kind = {kind: [one for one in found if one.format == kind] for kind in dict.fromkeys(one.format for one in found)}
    kinds = tuple(DataFile(path, kind, held=sum(one.held or 0 for one in each), count=len(each)) for kind, each in by_kind.items())
    yield replace(read(path), kinds=kinds, unreadable=broken)
    yield from found


def read(path: str) -> DataFile:
    """What the header of a file says. Raises BudgetError, whose message says what is wrong."""
    form = ""
    try:
        if os.path.isdir(path):
            return _folder(path)
        if is_special(path):
            raise BudgetError(f"--data {path}: not a regular file")
        with open(path, "rb") as file:
            reader = _reader_of(path, file.read(8))
            form = reader.__name__.strip("_")
            file.seek(0)
            return _possible(reader(path, file))
    except OSError as error:
        raise BudgetError(f"--data {path}: {error.strerror or error}") from None
    except _UnreadableError as error:
        cause = str(error)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, SyntaxError, TypeError, ValueError, EOFError, NotImplementedError, *_BROKEN):
        cause = f"it is cut short, or no {form} file"  # what a library says of it names no file of the user's
    raise BudgetError(f"--data {path}: its header cannot be read: {cause}")


def _reader_of(path: str, start: bytes) -> Callable[[str, BinaryIO], DataFile]:
    """By what the file begins with, else by its name."""
    name = path.lower()
    if not start:
        raise _UnreadableError("it is empty")
    if start.startswith(b"\x93NUMPY"):
        return _npy
    if start.startswith(b"\x89HDF\r\n") or name.endswith(_H5):
        return _h5
    if start.startswith(b"PAR1"):
        return _parquet
    if start.startswith(b"PK"):
        return _npz if name.endswith(".npz") else _pt
    if name.endswith(".safetensors"):
        return _safetensors
    if name.endswith((".pt", ".pth", ".bin", ".ckpt")):
        raise _UnreadableError("torch has written it before version 1.6, or it is cut short")
    raise _UnreadableError("it is no .npy, .npz, .pt, .safetensors, .parquet or HDF5 file")


def _possible(file: DataFile) -> DataFile:
    """The same; a broken header may say lengths that no array has."""
    for one in file.arrays:
        if any(length < 0 for length in one.shape) or (one.bytes or 0) > MOST:
            shape = ", ".join(map(str, one.shape[:_MOST_AXES])) + (", ..." if len(one.shape) > _MOST_AXES else "")
            raise _UnreadableError(f"no array has the shape ({shape[:_LONGEST_SHAPE]})")
    return file


def _folder(path: str) -> DataFile:
    sizes = [os.path.getsize(place) for place in _files_in(path)]
    return DataFile(path, "folder", held=sum(sizes), count=len(sizes))


def _files_in(path: str) -> Iterator[str]:
    for folder, _, names in os.walk(path):
        yield from (place for name in names if os.path.isfile(place := os.path.join(folder, name)))


def _refuse_cut(path: str, start: int, length: int) -> None:
    """Raise where a file has a part of what its header tells. One that is a header alone tells the shapes as well."""
    if 0 < os.path.getsize(path) - start < length:
        raise _UnreadableError("it is cut short: it says that there is more in it")


def _npy(path: str, file: BinaryIO) -> DataFile:
    array = _npy_header(file, "")
    _refuse_cut(path, file.tell(), array.bytes or 0)
    return DataFile(path, "npy", (array,), array.bytes)


def _npz(path: str, file: BinaryIO) -> DataFile:
    found = []
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as inner:
                    found.append(_npy_header(inner, name.removesuffix(".npy")))  # type: ignore[arg-type]
    return _of(path, "npz", found)


def _npy_header(file: BinaryIO, key: str) -> HeaderArray:
    start = file.read(8)
    if not start.startswith(b"\x93NUMPY"):
        raise _UnreadableError("it is no array of numpy")
    wide = start[6] > 1
    length = struct.unpack("<I" if wide else "<H", file.read(4 if wide else 2))[0]
    if length > _LONGEST:
        raise _UnreadableError("its header is too long")
    about = ast.literal_eval(file.read(length).decode("latin-1"))
    if not all(type(length) is int for length in about["shape"]):
        raise _UnreadableError(f"{str(about['shape'])[:_LONGEST_SHAPE]} is no shape")
    return HeaderArray(key, tuple(about["shape"]), _item(about["descr"]), dtype=_type(about["descr"]))


def _item(described: Any) -> int | None:
    """Bytes of one element, by numpy's way of writing a type."""
    if isinstance(described, list):
        parts = [_item(field[1]) for field in described]
        widths = [prod(field[2]) if len(field) > 2 else 1 for field in described]  # noqa: PLR2004 - name, type, shape
        return None if None in parts else sum(width * (part or 0) for width, part in zip(widths, parts, strict=True))
    found = _NUMPY.fullmatch(str(described))
    if found is None or not (found[2] or found[1] == "O"):
        raise _UnreadableError(f"{described!r} is no type of numpy")
    return None if found[1] == "O" else int(found[2]) * (4 if found[1] == "U" else 1)


def _type(described: Any) -> str:
    """The name of such a type; empty where it has none."""
    found = _NUMPY.fullmatch(str(described))
    letter = _LETTERS.get(found[1], "") if found is not None and found[2] else ""
    return letter if letter in {"", "bool"} or found is None else f"{letter}{8 * int(found[2])}"


def _pt(path: str, file: BinaryIO) -> DataFile:
    """The storages of ``torch.save``: each is an entry of an archive, whose listing says how long it is."""
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        pickled = next((entry for entry in entries if entry.filename.endswith("/data.pkl")), None)
        data = archive.read(pickled) if pickled is not None and pickled.file_size <= torch_pickle.LONGEST else b""
    if not any(entry.filename.endswith(("/data.pkl", "/constants.pkl")) for entry in entries):
        raise _UnreadableError("it is an archive, and none of torch")
    held = sum(entry.file_size for entry in entries if re.search(r"/data/\d+$", entry.filename))
    found: list[HeaderArray] = []
    broken = False  # then only the bytes of all storages are known
    try:
        found = [HeaderArray(key, one.shape, ITEM_BYTES.get(one.dtype), dtype=one.dtype) for key, one in torch_pickle.tensors(data)]
    except (ValueError, LookupError):
        broken = bool(data) or (pickled is not None and not pickled.file_size)
    except (TypeError, ArithmeticError):
        pass
    return DataFile(path, "pt", tuple(found), held, broken=broken)


def _safetensors(path: str, file: BinaryIO) -> DataFile:
    length = struct.unpack("<Q", file.read(8))[0]
    if length > _LONGEST:
        raise _UnreadableError("its header is too long")
    about = json.loads(file.read(length))
    ends = [one["data_offsets"][1] for key, one in about.items() if key != "__metadata__"]
    _refuse_cut(path, file.tell(), max(ends, default=0))
    listed = [(key, one["shape"], one["dtype"]) for key, one in about.items() if key != "__metadata__"]
    found = [HeaderArray(key, tuple(int(n) for n in shape), ITEM_BYTES.get(_SAFETENSORS[dtype], 1), dtype=_SAFETENSORS[dtype]) for key, shape, dtype in listed]
    return _of(path, "safetensors", found)


def _parquet(path: str, file: BinaryIO) -> DataFile:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = struct.unpack("<I", end[:4])[0]
    if end[4:] != b"PAR1" or length > min(_LONGEST, size - 8):
        raise _UnreadableError("it does not end like a parquet file: it is cut short")
    file.seek(size - 8 - length)
    rows, held = thrift.rows_and_bytes(file.read(length))
    return DataFile(path, "parquet", held=held, count=rows)


def _h5(path: str, file: BinaryIO) -> DataFile:
    """What a process of its own finds: a broken file can end the process that opens it."""
    del file
    child = Path(__file__).with_name("h5_child.py")
    try:
        done = subprocess.run([sys.executable, "-I", str(child), path], capture_output=True, text=True, timeout=_PATIENCE, check=False)  # noqa: S603 - our own
    except subprocess.TimeoutExpired:
        raise _UnreadableError(f"HDF5 has not opened it within {_PATIENCE} seconds") from None
    if done.returncode:
        raise _UnreadableError((done.stderr.strip().splitlines() or [f"HDF5 ended with status {done.returncode}"])[-1])
    return _of(path, "h5", [HeaderArray(key, tuple(shape), item, inside, dtype) for key, shape, item, inside, dtype in json.loads(done.stdout)])


def _of(path: str, form: str, found: list[HeaderArray]) -> DataFile:
    return DataFile(path, form, tuple(found), sum(one.bytes or 0 for one in found))
