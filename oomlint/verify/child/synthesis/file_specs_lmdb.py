# ruff: noqa: D102 -- the methods are those of what it stands in for
"""A recording stand-in for LMDB environments: which keys there are follows from which the code asks for. The real one is written from what was recorded.

Keys that differ in their last number share one entry of the specification: "image-000000001" is "image-#" of nine digits.
"""

from __future__ import annotations

import io
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.loading.stubs import Entered
from oomlint.verify.child.synthesis import file_specs_plain, spec_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Spec = dict[str, Any]
LENGTH: Final = 64  # bytes of a value
KINDS: Final = ("image", "number", "text", "pickle", "json", "npy", "keys", "bytes")  # what a value may be
NAMED: Final = (("keys", r"keys"), ("number", r"num|len|count|size|total"), ("image", r"ima?ge?"), ("text", r"label|text|caption|sent|name"))


def entry(spec: Spec, key: bytes) -> tuple[str, int]:
    """The shared entry of a key, and the number in it."""
    text = key.decode("latin-1")
    match = re.search(r"\d+(?!.*\d)", text)
    like = f"{text[: match.start()]}#{text[match.end() :]}" if match else text
    number = int(match.group()) if match else 0
    if like not in spec["keys"]:
        kind = next((kind for kind, words in NAMED if re.search(words, text, re.IGNORECASE)), "bytes")
        spec["keys"][like] = {"as": kind, "width": len(match.group()) if match and match.group().startswith("0") else 0, "first": number}
    spec["keys"][like]["first"] = min(spec["keys"][like]["first"], number)
    return like, number


def listed(spec: Spec, count: int) -> dict[bytes, tuple[str, int]]:
    """Every key, with its shared entry and its number."""
    found: dict[bytes, tuple[str, int]] = {}
    for like, item in spec["keys"].items():
        head, mark, tail = like.partition("#")
        first = min(item["first"], 1)
        for number in range(first, first + count) if mark else (0,):
            found[(head + (str(number).zfill(item["width"]) if mark else "") + tail).encode("latin-1")] = (like, number)
    return found


def value(spec: Spec, like: str, number: int, count: int) -> bytes:
    """What stands under a key."""
    import numpy as np  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

    made = file_specs_plain.array({"shape": [8], "dtype": "f4"}, f"{like}{number}", count)
    match spec["keys"][like]["as"]:
        case "number":
            return str(count).encode()
        case "text":
            return f"text{number}".encode()
        case "image":
            from PIL import Image  # noqa: PLC0415 -- it may be absent

            return file_specs_plain.picture({"size": [32, 32], "mode": "RGB"}, f"{like}{number}.png", Image)
        case "keys":
            names = [key for key, (other, _) in listed(spec, count).items() if other != like] or [f"id{i}".encode() for i in range(count)]
            return bytes(sys.modules["pickle"].dumps(names, protocol=4))
        case "pickle":
            return bytes(sys.modules["pickle"].dumps(made, protocol=4))
        case "json":
            return str(made.tolist()).encode()
        case "npy":
            buffer = io.BytesIO()
            np.save(buffer, made)
            return buffer.getvalue()
        case _:
            return np.random.default_rng(file_specs_plain.seed(f"{like}{number}")).integers(0, 255, LENGTH, dtype=np.uint8).tobytes()


def write(path: str, spec: Spec, count: int) -> None:
    """The real environment."""
    import lmdb  # type: ignore[import-untyped,import-not-found,unused-ignore]  # it has no types; nor need it be there  # noqa: PLC0415 -- the same

    if os.path.isfile(path):
        os.unlink(path)
    with lmdb.open(path, subdir=spec["subdir"], map_size=2**20 + 16 * size(spec, count)) as made, made.begin(write=True) as transaction:
        for key, (like, number) in listed(spec, count).items():
            transaction.put(key, value(spec, like, number, count))


def size(spec: Spec, count: int) -> int:
    """Bytes of its values, roughly."""
    return sum(len(value(spec, like, 0, 1)) * (count if "#" in like else 1) + LENGTH for like in spec["keys"])


def changes(state: dict[str, Any], log: list[list[str]]) -> Iterator[dict[str, Any]]:
    """Other values under the keys that were read last."""
    for key, like in reversed(log):
        spec = state["files"].get(key, {"kind": ""})
        for kind in KINDS if spec["kind"] == "lmdb" and like in spec["keys"] else ():
            if kind != spec["keys"][like]["as"]:
                yield spec_paths.changed(state, ["files", key, "keys", like], **{"as": kind})


def opening(actual: Callable[..., Any], world: Callable[[], Any]) -> Callable[..., Any]:
    """A stand-in for `lmdb.open`; environments that lie there, and those that the code writes, are the library's own."""

    def opened(path: Any, *arguments: Any, subdir: bool = True, **keywords: Any) -> Any:
        now = world()
        key = now.key(path)
        if key is None or now.there(key) or not (keywords.get("readonly") or now.made.get(key) or key.startswith("oomlint_data")):
            return actual(path, *arguments, subdir=subdir, **keywords)
        spec = now.specs.get(key)
        if spec is None or spec["kind"] != "lmdb":
            spec = now.specs[key] = {"kind": "lmdb", "subdir": bool(subdir), "keys": {}}
        now.use(key)
        return Environment(spec, now.count, lambda like: now.use(key, like))

    return opened


class Environment(Entered):
    """Stands in for an environment, its transactions and its cursors at once: they answer the same questions."""

    def __init__(self, spec: Spec, count: int, use: Callable[[str], None]) -> None:
        self._spec, self._count, self._use = spec, count, use

    def begin(self, *_: object, **__: object) -> Environment:
        return self

    cursor = open_db = begin

    def stat(self, *_: object) -> dict[str, int]:
        return {"entries": len(listed(self._spec, self._count)) or self._count, "depth": 1, "psize": 4096}

    def info(self) -> dict[str, int]:
        return {"map_size": 2**20, "last_pgno": 1, "last_txnid": 1}

    def get(self, key: Any, default: Any = None, *_: object, **__: object) -> Any:
        if isinstance(key, str):
            raise TypeError(f"a bytes-like object is required, not {type(key).__name__!r}")
        like, number = entry(self._spec, bytes(key))
        self._use(like)
        return value(self._spec, like, number, self._count) if number <= self._count else default

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        if not self._spec["keys"]:
            entry(self._spec, b"id0")
        for key, (like, number) in listed(self._spec, self._count).items():
            self._use(like)
            yield key, value(self._spec, like, number, self._count)

    iternext = __iter__

    def close(self) -> None:
        return None

    abort = commit = sync = close
