"""Fixes written by hand, which stand in place of oomlint's own fixes."""

from __future__ import annotations

import ast
import errno
import os
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final

from oomlint.config import ConfigError
from oomlint.source import NOTEBOOK_LIMIT, SourceError, read_source
from oomlint.syntax.tree import Tree
from oomlint.verify import folders
from oomlint.verify.folders import walk
from oomlint.verify.sandbox.secrets import is_secret

if TYPE_CHECKING:
    from collections.abc import Iterator

Changes = dict[str, tuple[bytes, bytes]]  # contents before and after, by path

_NOT_ENTERED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_PROGRAMS: Final = (".py", ".ipynb")


def files(folder: str) -> Iterator[str]:
    """The files below a folder, by their relative names."""
    for here, inside, names in walk(folder):
        inside[:] = sorted(name for name in inside if not name.startswith(".") and name not in _NOT_ENTERED)
        yield from (os.path.relpath(os.path.join(here, name), folder) for name in sorted(names))


def is_program(name: str) -> bool:
    """Whether it is a file that Python runs."""
    return name.endswith(_PROGRAMS)


@cache
def of_setting(root: str, folder: str) -> Changes:
    """The fixes of the setting `verify.patches`, for the files of the project that they are named like. Raises ConfigError where there are none."""
    top = os.path.join(root, os.path.expanduser(folder))
    label = f"verify.patches: {os.path.relpath(top)}"
    if not os.path.isdir(top):
        raise ConfigError(f"{label} is not a folder" if os.path.lexists(top) else f"{label}: No such file or directory")
    real = os.path.join(os.path.realpath(top), "")
    inside = real.startswith(os.path.join(os.path.realpath(root), ""))
    changes = {}
    for name in files(top):
        path = os.path.normpath(os.path.join(root, name))
        # The folder may be any, and a link in it may lead to any file of the user's.
        own = os.path.realpath(os.path.join(top, name)).startswith(real) and not is_secret(name) and (inside or is_program(name))
        if own and os.path.isfile(path):
            try:
                changes[path] = (content(path), content(os.path.join(top, name)))
            except OSError as error:
                raise ConfigError(f"verify.patches: {os.path.relpath(str(error.filename))}: {error.strerror}") from None
            check("verify.patches", os.path.join(top, name), changes[path][1])
    if not any(map(is_program, changes)):
        raise ConfigError(f"{label} holds no program that has the name of one of the project")
    return changes


def check(label: str, path: str, data: bytes, name: str | None = None) -> None:
    """Raise ConfigError where a fix is no program that could be run. ``name`` is that of the file that it fixes, where it is another."""
    if not is_program(name or path):
        return
    try:
        Tree(read_source(name or path, data))
    except SourceError as error:
        found = _plainer(name or path, data) or error
        cell = f"cell {found.cell}:" if found.cell else ""
        raise ConfigError(f"{label}: {os.path.relpath(path)}:{cell}{found.row}:{found.column}: {found.message}") from None


def _plainer(path: str, data: bytes) -> SourceError | None:
    """The error in the words of Python's own parser, which say what is wrong, where it sees one too."""
    with suppress(SourceError, ValueError, RecursionError, MemoryError):
        source = read_source(path, data)
        try:
            ast.parse(source.text)
        except SyntaxError as error:
            row, column = error.lineno or 1, error.offset or 1
            spot = source.place(row, column, row, column)
            return SourceError(path, error.msg, spot.cell, spot.row, spot.column)
    return None


def content(path: str) -> bytes:
    """Of a regular file. Raises OSError."""
    data = folders.content(path, NOTEBOOK_LIMIT + 1)
    if len(data) > NOTEBOOK_LIMIT:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data
