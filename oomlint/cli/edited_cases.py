"""`--after`: a fix written by hand, which stands in place of oomlint's own fixes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from oomlint.config import ConfigError
from oomlint.verify import patches
from oomlint.verify.case import Case

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.finding import Finding


class _Edited(NamedTuple):
    """What was found: the changes, the files of the project that there is a fix for, changed or not, and the folder that their names begin at."""

    changes: patches.Changes
    paths: set[str]
    base: str


def cases(after: str, findings: Sequence[Finding], known: Sequence[Finding], root: str, folders: Sequence[str]) -> list[Case]:
    """A case for every finding, with the fix, which is for all that are known. Raises ConfigError.

    A file stands for the one file that the findings are in. Of a folder every file stands for the one of the same relative name below the first of
    ``folders`` that has any such file; a program that is new there is new in the fix. A finding whose file the folder does not hold has no fix.
    """
    whole = os.path.isdir(after)
    try:
        edited = _from_folder(after, folders) if whole else _from_file(after, findings)
    except OSError as error:
        raise ConfigError(f"--after: {error.filename or after}: {error.strerror or error}") from None
    missing = {finding.place.path: os.path.relpath(finding.place.path, edited.base) for finding in findings if finding.place.path not in edited.paths}
    if findings and all(finding.place.path in missing for finding in findings):
        raise ConfigError(f"--after: {after} holds no file that has a finding, such as {next(iter(missing.values()))}")
    if findings and not edited.changes:
        raise ConfigError(f"--after: {after} changes nothing: {'its files are' if whole else 'it is'} the same as in the project")
    return [
        Case(finding, root, by_hand=True, not_fixed=f"{after} holds no `{missing[path]}`")
        if (path := finding.place.path) in missing
        else Case(finding, root, edited.changes, by_hand=True, others=tuple(other.place for other in known if other.place != finding.place))
        for finding in findings
    ]


def _from_file(after: str, findings: Sequence[Finding]) -> _Edited:
    paths = list(dict.fromkeys(finding.place.path for finding in findings))
    content = patches.content(after)
    if len(paths) > 1:
        raise ConfigError(f"--after: {after} is one file, and the findings are in {len(paths)}: name one of them, or give a folder")
    changes = {path: (before, content) for path in paths if (before := patches.content(path)) != content}
    for path in changes:
        patches.check("--after", after, content, path)
    return _Edited(changes, set(paths), "")


def _from_folder(after: str, folders: Sequence[str]) -> _Edited:
    names = list(patches.files(after))
    base = next((folder for folder in folders if any(os.path.isfile(os.path.join(folder, name)) for name in names)), None)
    if base is None:
        raise ConfigError(f"--after: no file below {after} has the name of one below {os.path.relpath(folders[0])}")
    edited = _Edited({}, set(), base)
    for name in names:
        path = os.path.abspath(os.path.join(base, name))
        known = os.path.isfile(path)
        if not known and not patches.is_program(name):
            continue
        edited.paths.add(path)
        before, content = patches.content(path) if known else b"", patches.content(os.path.join(after, name))
        if before != content:
            patches.check("--after", os.path.join(after, name), content)
            edited.changes[path] = (before, content)
    return edited
