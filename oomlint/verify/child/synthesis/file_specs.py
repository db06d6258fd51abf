"""What synthesised files hold: specifications as plain JSON, and the real files that they describe.

A specification names sizes by number or as "n", the number of samples of the state: a state with more samples describes the same files, longer.
All random numbers are seeded by the path that a file has in the state, never by where it lies: every folder holds the same data.
"""

from __future__ import annotations

import io
import json
import os
import sys
import wave
from typing import Any, Final

import torch

from oomlint.verify.child.synthesis import file_specs_h5, file_specs_lmdb, file_specs_plain
from oomlint.verify.child.synthesis.file_specs_plain import FOLDER, SAMPLES, array, seed

IMAGES: Final = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".gif", ".tif", ".tiff", ".webp")

Spec = dict[str, Any]


def kind_of(path: str) -> str:
    """What a file is by its name."""
    end = os.path.splitext(path)[1].lower()
    if end in IMAGES:
        return "image"
    table = {
        ".npy": "npy",
        ".npz": "npz",
        ".json": "json",
        ".jsonl": "jsonl",
        ".pkl": "pickle",
        ".pickle": "pickle",
        ".p": "pickle",
        ".pt": "torch",
        ".pth": "torch",
        ".wav": "wav",
        ".h5": "h5",
        ".hdf5": "h5",
        ".yaml": "json",
        ".yml": "json",
        ".bin": "bytes",
    }
    return table.get(end, "text")


def default(kind: str, hints: file_specs_plain.Hints, path: str = "") -> Spec:
    """What a file of a kind holds at first."""
    match kind:
        case "npy":
            return {"kind": "npy", "shape": ["n", 8], "dtype": "f4"}
        case "npz":
            return {"kind": kind, "arrays": {key: {"shape": ["n", 8], "dtype": "f4"} for key in hints.keys[:12]}}
        case "json" | "pickle" | "torch":
            return {"kind": kind, "value": {"t": "?"}, "clay": True}
        case "jsonl":
            return {"kind": kind, "value": file_specs_plain.shapes(hints)[0]}
        case "image":
            return {"kind": "image", "size": [32, 32], "mode": "RGB"}
        case "wav":
            return {"kind": "wav", "samples": 1600}
        case "bytes":
            return {"kind": "bytes", "size": 4096}
        case "h5":
            return {"kind": "h5", "nodes": {}}
        case "numbers":
            return {"kind": "text", "columns": ["float"] * 4, "delimiter": "," if path.endswith(".csv") else hints.delimiter, "header": []}
        case "folder":
            return {"kind": "folder", "names": file_specs_plain.names(hints)[0]}
        case _:
            end = os.path.splitext(path)[1].lower()
            mark = "," if end == ".csv" else "\t" if end == ".tsv" else hints.delimiter
            return {
                "kind": "text",
                "columns": ["str"] if end not in (".csv", ".tsv") else ["str", "int"],
                "delimiter": mark,
                "header": list(hints.keys) if end in (".csv", ".tsv") else [],
            }


def write(path: str, spec: Spec, key: str, count: int) -> None:
    """Write one file. What lies there is replaced."""
    if spec["kind"] in ("absent", "pattern"):
        return
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    if spec["kind"] == "folder" or (spec["kind"] == "empty" and not os.path.splitext(path)[1]):
        os.makedirs(path, exist_ok=True)
        return
    if os.path.isdir(path):
        if os.listdir(path):
            return
        os.rmdir(path)
    if spec["kind"] == "h5":
        file_specs_h5.write(path, spec, key, count)
        return
    if spec["kind"] == "lmdb":
        file_specs_lmdb.write(path, spec, count)
        return
    with open(path, "wb") as stream:
        stream.write(content(spec, key, count))


def content(spec: Spec, key: str, count: int) -> bytes:
    """The bytes of a file that is not HDF5."""
    import numpy as np  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

    buffer = io.BytesIO()
    match spec["kind"]:
        case "npy":
            if "value" in spec:
                box = np.empty((), dtype=object)
                box[()] = file_specs_plain.value(spec["value"], key, count)
                np.save(buffer, box, allow_pickle=True)
            else:
                np.save(buffer, array(spec, key, count))
        case "npz":
            held: dict[str, Any] = {name: array(item, f"{key}:{name}", count) for name, item in spec["arrays"].items()}
            np.savez(buffer, **held)
        case "json":
            return json.dumps(file_specs_plain.plain(file_specs_plain.value(spec["value"], key, count))).encode()
        case "jsonl":
            made = file_specs_plain.plain(file_specs_plain.value(spec["value"], key, count))
            return "".join(json.dumps(item) + "\n" for item in (made if isinstance(made, list) else [made] * count)).encode()
        case "pickle":
            # By its place among the loaded modules: torch has it anyway.
            return bytes(sys.modules["pickle"].dumps(file_specs_plain.value(spec["value"], key, count), protocol=4))
        case "torch":
            torch.save(file_specs_plain.value({"tensors": True, **spec["value"]}, key, count), buffer)
        case "image":
            from PIL import Image  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

            return file_specs_plain.picture(spec, key, Image)
        case "wav":
            with wave.open(buffer, "wb") as sound:
                sound.setnchannels(1)
                sound.setsampwidth(2)
                sound.setframerate(16000)
                sound.writeframes(np.random.default_rng(seed(key)).integers(-3000, 3000, spec["samples"]).astype("<i2").tobytes())
        case "empty":
            return b""
        case "bytes":
            return np.random.default_rng(seed(key)).integers(0, 255, spec["size"], dtype=np.uint8).tobytes()
        case _:
            return file_specs_plain.text(spec, key, count).encode()
    return buffer.getvalue()


def listed(spec: Spec, count: int) -> list[str]:
    """The names in a folder as specified: a form with a number in it."""
    names = spec["names"]
    return [names["form"].format(i) for i in range(count if names["count"] == "n" else int(names["count"]))]


def materialise(state: dict[str, Any]) -> None:
    """Write all files of a state that are not there yet, and make the folder that the program may write its own to."""
    os.makedirs(FOLDER, exist_ok=True)
    count = state.get("n", SAMPLES)
    for path, spec in state.get("files", {}).items():
        if not os.path.exists(path) or (os.path.isdir(path) and spec["kind"] != "folder"):
            write(path, spec, path, count)
