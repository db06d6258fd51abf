"""Files beside the code that give it numbers: scripts that launch it, and files of settings. What they are is told by their names."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from typing import Final


class Beside(StrEnum):
    """What a file beside the code is."""

    SHELL = "shell"
    MAKE = "make"
    DOCKER = "docker"
    COMPOSE = "compose"
    EDITOR = "editor"  # `.vscode/launch.json`
    SETTINGS = "settings"


EDITOR_FOLDER: Final = ".vscode"
SHELL_SUFFIXES: Final = (".sh", ".bash", ".slurm", ".sbatch")
SETTINGS_SUFFIXES: Final = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".gin")
_NAMES: Final = (
    (Beside.SHELL, re.compile(rf".*(?:{'|'.join(map(re.escape, SHELL_SUFFIXES))})", re.DOTALL)),
    (Beside.MAKE, re.compile(r"(?:GNU)?[Mm]akefile|.*\.mk", re.DOTALL)),
    (Beside.DOCKER, re.compile(r"(?:Docker|Container)file(?:\..*)?|.*\.[Dd]ockerfile", re.DOTALL)),
    (Beside.COMPOSE, re.compile(r"(?:docker-)?compose(?:[.-].*)?\.ya?ml", re.DOTALL)),
    (Beside.SETTINGS, re.compile(rf".*(?:{'|'.join(map(re.escape, SETTINGS_SUFFIXES))})", re.DOTALL)),
)


def beside(path: str) -> Beside | None:
    """What a file beside the code is; ``None`` for code, and for what is neither."""
    folder, name = os.path.split(path)
    if name == "launch.json" and os.path.basename(folder) == EDITOR_FOLDER:
        return Beside.EDITOR
    return next((kind for kind, pattern in _NAMES if pattern.fullmatch(name)), None)


def launches(path: str) -> bool:
    """Whether a file of that name is one that starts programs."""
    return beside(path) not in {None, Beside.SETTINGS}


def is_settings(path: str) -> bool:
    """Whether a file of that name is one of settings."""
    return beside(path) is Beside.SETTINGS
