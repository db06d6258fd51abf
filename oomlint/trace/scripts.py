"""Which files of a project a command runs: the scripts of its processes, and what they import of the project."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oomlint.model.index import imports_of
from oomlint.trace.roles import script_of
from oomlint.trace.timeline import ProcessRole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.model.project import Project
    from oomlint.trace.timeline import Trace

_MOST: Final = 400  # files of a project


def scripts_of(trace: Trace) -> list[str]:
    """The absolute paths of the scripts that the processes of a trace ran, each once."""
    lines = [(each.words, each.folder) for each in trace.processes if each.role not in {ProcessRole.WORKER, ProcessRole.HELPER}]
    found: dict[str, None] = {}
    for words, folder in [*lines, (trace.command, trace.folder)]:
        script, module = script_of(words)
        paths = (os.path.abspath(os.path.join(folder or trace.folder, name)) for name in _names(script, module))
        path = next((path for path in paths if os.path.isfile(path)), None)
        if path is not None and not _is_installed(path):
            found[path] = None
    return list(found)


def _names(script: str, module: str) -> Iterator[str]:
    if script:
        yield script
        yield os.path.join(script, "__main__.py")
    elif module:
        base = module.replace(".", os.sep)
        yield base + ".py"
        yield os.path.join(base, "__main__.py")


def _is_installed(path: str) -> bool:
    """Whether it belongs to an environment, such as a launcher."""
    parts = Path(path).parts
    return "site-packages" in parts or any(os.path.isfile(os.path.join(folder, "pyvenv.cfg")) for folder in map(str, Path(path).parents))


def closure(project: Project, scripts: Sequence[str]) -> list[str]:
    """The scripts and the files of the project that they import, at whatever distance."""
    found, waiting = dict.fromkeys(scripts), list(scripts)
    while waiting and len(found) < _MOST:
        path = waiting.pop(0)
        for target in _imported(project, path):
            if target not in found:
                found[target] = None
                waiting.append(target)
    return list(found)


def _imported(project: Project, path: str) -> Iterator[str]:
    for one in imports_of(project.text(path)):
        for dotted in (one.module, f"{one.module}.{one.name}".strip(".")):
            target = project.locate(path, dotted, one.level) if dotted or one.level else None
            if target is not None and not target.endswith(os.sep):
                yield target
