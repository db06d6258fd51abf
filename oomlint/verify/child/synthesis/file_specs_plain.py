"""Arrays, text, structured values and pictures that synthesised files and arguments hold."""

from __future__ import annotations

import io
import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

Spec = dict[str, Any]
FOLDER: Final = "oomlint_data"  # where synthesised files lie that no path of the user's names, relative to the current folder
SAMPLES: Final = 8  # of a state, unless told
TEXTS: Final = re.compile(
    r"name|path|file|text|caption|question|answer|sentence|word|token|title|desc|url|image|img|split|uid|key|type|lang|query|content|prompt|src|tgt|dir|str"
)
WHOLE: Final = re.compile(r"id$|ids$|idx|index|label|target|num|count|len|class|cls|size|width|height|start|end|year|age|frame|n_")


@dataclass(frozen=True, slots=True)
class Hints:
    """What the text of a file of the user's says about the data that it reads."""

    keys: list[str] = field(default_factory=list)  # strings that something is subscripted with
    suffixes: list[str] = field(default_factory=list)  # ".png"
    numbers: list[int] = field(default_factory=list)  # whole numbers over 1
    words: list[str] = field(default_factory=list)  # other short strings
    delimiter: str = " "


def seed(key: str) -> int:
    """The seed of what stands at a path in a state."""
    return zlib.crc32(key.encode())


def array(spec: Spec, key: str, count: int) -> NDArray[Any]:
    """An array as specified: ``shape`` (numbers or "n"), ``dtype``, ``high`` (for integers)."""
    import numpy as np  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

    shape = tuple(count if side == "n" else int(side) for side in spec.get("shape", ["n", 8]))
    random = np.random.default_rng(seed(key))
    match spec.get("dtype", "f4"):
        case "S":
            return np.array([f"id{i}".encode() for i in range(int(np.prod(shape, dtype=int)))], dtype="S12").reshape(shape)
        case "u1":
            return random.integers(0, 255, shape, dtype=np.uint8)
        case "b1":
            return random.integers(0, 2, shape).astype(bool)
        case "i8":
            return random.integers(0, int(spec.get("high", 4)), shape)
        case _:
            return random.random(shape, dtype=np.float32)


class Options(dict[str, Any]):
    """What a configuration is for most code: attributes and keys at once. What is not there is None."""

    def __missing__(self, name: str) -> Any:
        if not isinstance(name, str):
            raise KeyError(name)
        self[name] = self._first(name)
        return self[name]

    def _first(self, _name: str) -> Any:
        """What a key holds that is asked for and not there."""
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: object) -> None:
        self[name] = value

    def __reduce__(self) -> tuple[Any, ...]:
        return (Options, (dict(self),))


def leaf(name: str) -> Spec:
    """What stands under a key, by its name."""
    low = name.lower()
    if WHOLE.search(low):
        return {"t": "int"}
    if TEXTS.search(low):
        return {"t": "str"}
    return {"t": "floats", "n": 4}


def record(hints: Hints) -> Spec:
    """A dict with every key that the code asks for."""
    return {"t": "dict", "keys": {key: leaf(key) for key in hints.keys[:24]}}


def shapes(hints: Hints) -> list[Spec]:
    """What a structured file may hold, the likeliest first."""
    rows: list[Spec] = [
        {"t": "list", "n": "n", "of": {"t": "str"}},
        {"t": "list", "n": "n", "of": {"t": "int"}},
        {"t": "map", "n": "n", "of": {"t": "int"}},
        {"t": "map", "n": "n", "of": {"t": "str"}},
        {"t": "map", "n": "n", "of": {"t": "list", "n": 4, "of": {"t": "int"}}},
        {"t": "list", "n": "n", "of": {"t": "list", "n": 2, "of": {"t": "int"}}},
        {"t": "list", "n": "n", "of": {"t": "list", "n": 2, "of": {"t": "str"}}},
        {"t": "array", "shape": ["n", 8], "dtype": "f4"},
        {"t": "list", "n": "n", "of": {"t": "array", "shape": [8, 8], "dtype": "f4"}},
        {"t": "map", "n": "n", "of": {"t": "array", "shape": [8], "dtype": "f4"}},
        {"t": "list", "n": 2, "of": {"t": "array", "shape": ["n", 8], "dtype": "f4"}},
        {"t": "list", "n": 2, "of": {"t": "map", "n": "n", "of": {"t": "int"}}},
    ]
    if not hints.keys:
        return rows
    keyed = record(hints)
    column: Spec = {"t": "dict", "keys": {key: {"t": "list", "n": "n", "of": leaf(key)} for key in hints.keys[:24]}}
    arrays: Spec = {"t": "dict", "keys": {key: {"t": "array", "shape": ["n", 8], "dtype": "f4"} for key in hints.keys[:24]}}
    inner: Spec = {"t": "dict", "keys": {key: {"t": "list", "n": "n", "of": keyed} for key in hints.keys[:24]}}
    return [{"t": "list", "n": "n", "of": keyed}, column, inner, {"t": "map", "n": "n", "of": keyed}, arrays, keyed, *rows]


def value(spec: Spec, key: str, count: int, place: int = 0) -> Any:
    """A value as specified. ``place`` is its number among its like: ids differ."""
    if spec["t"] == "?":
        spec = {**spec, **leaf(last(key))}
    size = count if spec.get("n") == "n" else int(spec.get("n", 4))
    inner = {"tensors": True} if spec.get("tensors") else {}
    match spec["t"]:
        case "list":
            return [value({**inner, **spec["of"]}, f"{key}[]", count, i) for i in range(size)]
        case "row":
            return tuple(value({**inner, **item}, f"{key}.{name}", count, place) for item, name in zip(spec["of"], spec["names"], strict=True))
        case "dict":
            made = {name: value({**inner, **item}, f"{key}.{name}", count, place) for name, item in spec["keys"].items()}
            return Options(made) if spec.get("object") else made
        case "map":
            names: list[Any] = list(range(size)) if spec.get("whole") else [str(spec.get("form", "{}")).format(i) for i in range(size)]
            return {name: value({**inner, **spec["of"]}, f"{key}{{}}", count, i) for i, name in enumerate(names)}
        case "array":
            filled = array(spec, f"{key}#{place}", count)
            if not spec.get("tensors"):
                return filled
            return torch.from_numpy(filled) if filled.dtype.kind in "fiub" else filled
        case "int":
            return place % int(spec.get("high", count))
        case "float":
            return (zlib.crc32(f"{key}#{place}".encode()) % 1000) / 1000
        case "floats":
            return [(zlib.crc32(f"{key}#{place},{i}".encode()) % 1000) / 1000 for i in range(size)]
        case _:
            return str(spec.get("form", "id{}")).format(place)


def last(key: str) -> str:
    """The name that a value stands under."""
    return re.sub(r"\[\]|\{\}", "", key).rpartition(".")[2]


def plain(made: Any) -> Any:
    """As JSON has it."""
    if isinstance(made, dict):
        return {str(name): plain(item) for name, item in made.items()}
    if isinstance(made, (list, tuple)):
        return [plain(item) for item in made]
    return made.tolist() if hasattr(made, "tolist") else made


def cell(kind: str, row: int, column: int) -> str:
    """One field of a text file."""
    match kind:
        case "int":
            return str((row + column) % 4)
        case "row":
            return str(row)
        case "float":
            return f"{(zlib.crc32(f'{row},{column}'.encode()) % 1000) / 1000:.3f}"
        case "words":
            return f"some words of line {row}"
        case _:
            return kind.format(row) if "{" in kind else f"id{row}" if kind == "str" else kind


def text(spec: Spec, key: str, count: int) -> str:
    """The lines of a text file: columns by kind, parted by the delimiter."""
    del key
    mark = spec.get("delimiter", " ")
    header = spec.get("header") or []
    columns = list(spec["columns"])
    if header:
        columns = [column_kind(name) for name in header]
    rows = [mark.join(cell(kind, row, number) for number, kind in enumerate(columns)) for row in range(count)]
    return "\n".join([*([mark.join(header)] if header else []), *rows]) + "\n"


def column_kind(name: str) -> str:
    """What a column holds, by its name."""
    return {"int": "int", "str": "str"}.get(leaf(name)["t"], "float")


def picture(spec: Spec, key: str, library: Any) -> bytes:
    """A picture of random colours, in the format that its path asks for."""
    import numpy as np  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

    width, height = spec["size"]
    channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[spec["mode"]]
    made = library.fromarray(np.random.default_rng(zlib.crc32(key.encode())).integers(0, 255, (height, width, *channels), dtype=np.uint8))
    form = {"jpg": "JPEG", "jpeg": "JPEG", "bmp": "BMP", "ppm": "PPM", "gif": "GIF", "tif": "TIFF", "tiff": "TIFF", "webp": "WEBP"}.get(
        key.rpartition(".")[2].lower(), "PNG"
    )
    buffer = io.BytesIO()
    made.save(buffer, form if not (form == "JPEG" and spec["mode"] == "RGBA") else "PNG")
    return buffer.getvalue()


def names(hints: Hints) -> list[Any]:
    """What the names in a folder may be, the likeliest first."""
    forms = [{"form": "s{:03d}" + suffix, "count": "n"} for suffix in hints.suffixes[:6]]
    forms += [
        {"form": "s{:03d}" + suffix, "count": "n"} for suffix in (".npy", ".png", ".h5", ".txt", ".json", ".jpg", ".pt", ".wav") if suffix not in hints.suffixes
    ]
    folders: list[Any] = [{"form": "class{}", "count": 2}, {"form": "{}", "count": "n"}]
    return [forms[0], *folders, *forms[1:]]
