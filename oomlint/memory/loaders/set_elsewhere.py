"""What the settings and the command lines of a project make of an option, and the processors that its jobs ask for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model.readings import finder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.options import OptionSource
    from oomlint.model.project import Project
    from oomlint.model.values import Alternative

_WORD: Final = "--cpus-per-task"
_ASKED: Final = re.compile(_WORD.encode() + rb"[=\s]\s*(\d{1,4})\b")


def is_set_lower(alt: Alternative, limit: int, project: Project, options: OptionSource) -> bool:
    """Whether a number is but the default of an option that settings and command lines of the project set, most of them to no more than a limit."""
    calls = (step.node for step in alt.story if step.kind == "option" and isinstance(step.node, cst.Call))
    words = {flag.lstrip("-").replace("-", "_") for call in calls for flag in options.flags(call)}
    given = [number for word in words for number in _numbers(word, project)]
    return sum(number <= limit for number in given) * 2 > len(given)


def _numbers(word: str, project: Project) -> Iterator[int]:
    """What settings and command lines give to an option."""
    name = re.escape(word).replace("_", "[_-]")
    setting = re.compile(rf"(?<![\w-])[\"']?{name}[\"']?\s*[:=]\s*[\"']?(\d+)\b")
    command = re.compile(rf"--{name}[=\s]+[\"']?(\d+)\b")
    for files, pattern in ((project.settings_files(), setting), (project.launch_files(), command)):
        for path in files:
            yield from (int(found[1]) for found in pattern.finditer(project.text(path).decode(errors="replace")))


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
