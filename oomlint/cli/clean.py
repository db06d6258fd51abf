"""``oomlint clean``."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oomlint.cache import refusal
from oomlint.cli.check import say
from oomlint.cli.files import current_folder
from oomlint.cli.options import flag, words
from oomlint.config import ConfigError, Settings, load_settings
from oomlint.output.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK: Final = b"# A cache of oomlint."  # in a CACHEDIR.TAG
_PASSED_BY: Final = frozenset({".git", ".hg", "node_modules", "site-packages"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Remove the caches of a project and of those in its folders."""

    paths: tuple[str, ...] = words("Folders to clean. The current one by default.", "FOLDERS")
    quiet: bool = flag("Say nothing of what is removed.", "Output", "-q")


def perform(arguments: Arguments) -> int:
    """Remove caches and return the exit status."""
    try:
        view = View(current_folder())
        caches = sorted({cache for path in arguments.paths or (".",) for cache in _caches(path)})
    except ConfigError as error:
        say(f"error: {error}")
        return 2
    status = 0
    for cache in caches:
        try:
            shutil.rmtree(cache)
        except OSError as error:
            say(f"error: {view.name(cache)}: {error.strerror or error}")
            status = 2
        else:
            if not arguments.quiet:
                sys.stdout.write(f"removed {view.name(cache)}\n")
    return status


def _caches(path: str) -> Iterator[str]:
    """The caches of the project around a folder, and of the folders below. Links are not followed. Raises ConfigError."""
    if not os.path.isdir(path):
        raise ConfigError(f"{path}: {'Not a directory' if os.path.lexists(path) else 'No such file or directory'}")
    folder = os.path.abspath(path)
    settings, root = load_settings(None, False, Path(folder))  # noqa: FBT003
    own = os.path.join(root, settings.cache_dir)
    if _is_cache(own) and refusal(own, str(root)) is None:
        yield own
    name = os.path.basename(Settings().cache_dir)
    for top, folders, _ in os.walk(folder):
        if name in folders and _is_cache(os.path.join(top, name)):
            yield os.path.join(top, name)
        folders[:] = [each for each in folders if each not in _PASSED_BY and each != name]


def _is_cache(folder: str) -> bool:
    """Whether oomlint has made a folder."""
    try:
        with open(os.path.join(folder, "CACHEDIR.TAG"), "rb") as stream:
            return not os.path.islink(folder) and _MARK in stream.read(1000)
    except OSError:
        return False
