"""What the imports of a project call its files."""

from __future__ import annotations

import importlib.util
import os
import re
from functools import lru_cache
from typing import Final

LEFT_OUT: Final = frozenset(("node_modules", "__pycache__", "site-packages", "venv", "env"))
FOLDERS: Final = 2000  # at most so many are looked into
FILES: Final = 1000  # at most so many are read for their imports


@lru_cache(maxsize=4)
def programs(root: str) -> tuple[str, ...]:
    """Every file of Python in a project."""
    found: list[str] = []
    for count, (folder, inner, files) in enumerate(os.walk(root)):
        inner[:] = sorted(item for item in inner if not item.startswith(".") and item not in LEFT_OUT)
        found += [os.path.join(folder, file) for file in sorted(files) if file.endswith(".py")]
        if count > FOLDERS:
            break
    return tuple(found)


@lru_cache(maxsize=1024)
def text(path: str) -> str:
    """A program, decoded as it says; empty where it cannot be."""
    try:
        with open(path, "rb") as stream:
            return importlib.util.decode_source(stream.read())
    except (OSError, SyntaxError, UnicodeDecodeError, LookupError):
        return ""


@lru_cache(maxsize=4)
def _imported(root: str) -> frozenset[str]:
    """Dotted names that the files of a project import: those with more than one part."""
    found: set[str] = set()
    for path in programs(root)[:FILES]:
        for source, bound in re.findall(r"^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+\(?[ \t]*([\w, \t]*)", text(path), re.MULTILINE):
            found.add(source)
            found.update(f"{source}.{name.strip().split(' ')[0]}" for name in bound.split(","))
        found.update(re.findall(r"^[ \t]*import[ \t]+([\w.]+)", text(path), re.MULTILINE))
    return frozenset(found)


def dotted(path: str, root: str) -> tuple[str, str]:
    """What a file is called, and the folder that has to be on `sys.path` for it."""
    stem = os.path.basename(path)[: -len(".py")] if path.endswith(".py") else os.path.basename(path)
    folder = os.path.dirname(path)
    parts = [] if stem == "__init__" else [stem]
    while folder.startswith(root + os.sep) and os.path.isfile(os.path.join(folder, "__init__.py")):
        parts.insert(0, os.path.basename(folder))
        folder = os.path.dirname(folder)
    levels = max((len(dots) for dots in re.findall(r"^\s*from\s+(\.+)", text(path), re.MULTILINE)), default=0)
    while folder.startswith(root + os.sep) and len(parts) <= levels:
        parts.insert(0, os.path.basename(folder))
        folder = os.path.dirname(folder)
    if len(parts) == 1:  # folders without `__init__.py` are packages as well, if others import it so
        longer, above = list(parts), folder
        while above.startswith(root + os.sep):
            longer.insert(0, os.path.basename(above))
            above = os.path.dirname(above)
            if ".".join(longer) in _imported(root):
                parts, folder = list(longer), above
    return ".".join(parts) or os.path.basename(root), folder


def spaces(name: str, above: str) -> dict[str, str]:
    """The packages around a dotted name and where they lie: their `__init__.py`, or the folder that has none."""
    parts = name.split(".")
    found: dict[str, str] = {}
    for count in range(1, len(parts)):
        folder = os.path.join(above, *parts[:count])
        if os.path.isdir(folder):
            init = os.path.join(folder, "__init__.py")
            found[".".join(parts[:count])] = init if os.path.isfile(init) else folder
    return found
