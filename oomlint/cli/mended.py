"""A mend written by hand, which stands in place of oomlint's own fixes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from oomlint.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.finding import Finding

_NOT_ENTERED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_PROGRAMS: Final = (".py", ".ipynb")

Changes = dict[str, tuple[bytes, bytes]]


def changes(after: str, findings: Sequence[Finding], folders: Sequence[str]) -> Changes:
    """Contents before and after, by path, of every file that the mend changes. Raises ConfigError.

    A file stands for the one file that the findings are in. Of a folder every file stands for the one of the same relative name below the first of
    ``folders`` that has any such file; a program that is new there is new in the mend.
    """
    try:
        found = _from_folder(after, folders) if os.path.isdir(after) else _from_file(after, findings)
    except OSError as error:
        raise ConfigError(f"--after: {error.filename or after}: {error.strerror or error}") from None
    if findings and not found:
        raise ConfigError(f"--after: {after} changes nothing")
    return found


def _from_file(after: str, findings: Sequence[Finding]) -> Changes:
    paths = list(dict.fromkeys(finding.place.path for finding in findings))
    content = _bytes(after)
    if len(paths) > 1:
        raise ConfigError(f"--after: {after} is one file, and the findings are in {len(paths)}: name one of them, or give a folder")
    return {path: (before, content) for path in paths if (before := _bytes(path)) != content}


def _from_folder(after: str, folders: Sequence[str]) -> Changes:
    names = list(_names(after))
    base = next((folder for folder in folders if any(os.path.isfile(os.path.join(folder, name)) for name in names)), None)
    if base is None:
        raise ConfigError(f"--after: no file below {after} has the name of one below {folders[0]}")
    found = {}
    for name in names:
        path = os.path.join(base, name)
        if os.path.isfile(path) or name.endswith(_PROGRAMS):
            before, content = _bytes(path) if os.path.isfile(path) else b"", _bytes(os.path.join(after, name))
            if before != content:
                found[os.path.abspath(path)] = (before, content)
    return found


def _names(folder: str) -> Iterator[str]:
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _NOT_ENTERED)
        yield from (os.path.relpath(os.path.join(here, name), folder) for name in sorted(names))


def _bytes(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()
