"""``oomlint version``, and what ``oomlint --version`` says."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from oomlint import __version__

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SHOWN: Final = 9  # characters of a commit
COMMIT: Final = "commit.txt"  # in the package, where it was built from a repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Show the version."""


def perform(_: Arguments) -> int:
    """Print the version and return the exit status."""
    sys.stdout.write(f"{text()}\n")
    return 0


def text() -> str:
    """Name, version, and the commit where it is known: in a checkout, and where the package was built from one."""
    commit = checked_out(os.path.dirname(_PACKAGE)) or _built()
    return f"oomlint {__version__}{f' ({commit[:_SHOWN]})' if commit else ''}"


def checked_out(folder: str) -> str:
    """The commit of the repository whose top a folder is, as far as plain files tell it; empty where they do not."""
    with suppress(OSError, UnicodeDecodeError):
        git = os.path.join(folder, ".git")
        if os.path.isfile(git):  # a worktree
            git = os.path.join(folder, _content(git).removeprefix("gitdir: "))
        head = _content(os.path.join(git, "HEAD"))
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        common = os.path.join(git, _content(os.path.join(git, "commondir"))) if os.path.isfile(os.path.join(git, "commondir")) else git
        if os.path.isfile(os.path.join(common, name)):
            return _content(os.path.join(common, name))
        packed = (line.split(" ") for line in _content(os.path.join(common, "packed-refs")).splitlines())
        return next((words[0] for words in packed if words[1:] == [name]), "")
    return ""


def _built() -> str:
    """The commit that the build has noted."""
    with suppress(OSError, UnicodeDecodeError):
        return _content(os.path.join(_PACKAGE, COMMIT))
    return ""


def _content(path: str) -> str:
    with open(path, encoding="utf-8") as stream:
        return stream.read().strip()
