"""The processors that the jobs of a project ask for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from oomlint.model.readings import finder

if TYPE_CHECKING:
    from oomlint.model.project import Project

_WORD: Final = "--cpus-per-task"
_ASKED: Final = re.compile(_WORD.encode() + rb"[=\s]\s*(\d{1,4})\b")


def are_asked_for(count: int, near: str, project: Project) -> bool:
    """Whether a job of the project asks for so many processors for one task: whoever starts so many workers has thought of it."""
    texts = (project.raw(path) for path in project.launch_files())
    found = [int(number) for text in texts for number in _ASKED.findall(text)]
    found += [int(number) for said in project.search(_asks, (), near, _WORD).values() for number in said.split()]
    return any(number >= count for number in found)


@finder
def _asks(path: str, data: bytes) -> str:
    """The processors that a job asks for which a program writes."""
    del path
    return " ".join(number.decode() for number in _ASKED.findall(data))
