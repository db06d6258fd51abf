"""Manifests of Kubernetes: the commands of their containers, with what each may take of memory, processors and /dev/shm; services of compose."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from oomlint.amounts import size
from oomlint.budget.container_environments import of_container, referred
from oomlint.budget.environments import shell_text
from oomlint.budget.limits import JobResources, Limit
from oomlint.budget.mistakes import BudgetError
from oomlint.finding import Place
from oomlint.memory.loaders.job_limits import DEFAULT_SHARED
from oomlint.model.command_lines import commands_in_text
from oomlint.model.commands import names_program
from oomlint.model.container_files import of_compose
from oomlint.model.yaml_nodes import documents, entries, member

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.model.command_texts import CommandText
    from oomlint.model.commands import Command
    from oomlint.model.environments import Environment

_LONGEST: Final = 200_000  # characters: YAML takes long to read
_DEEPEST: Final = 12
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)(?:[eE](\d{1,2})|([KMGT]i?|k|))")
_SHM: Final = "/dev/shm"  # noqa: S108 - what is mounted there


def commands(shown: str, text: CommandText, outer: Environment, folder: str) -> list[tuple[Command, JobResources | None]]:
    """The commands of all containers, or of the services of a compose file of another name; none where the file is neither, or is broken."""
    path, content = text.path, text.content
    if len(content) > _LONGEST:
        return []
    roots = documents(content) if "containers:" in content or "services:" in content else []
    if any(member(root, "services") is not None for root in roots):
        return [(one, None) for one in of_compose(text) if names_program(one.words)]
    pods = [found for root in roots for found in _of_node(shown, root, 0)]
    return [
        (one, replace(given, place=_place(path, last)))
        for container, given, last in pods
        for one in _of_container(container, of_container(container, roots, path, outer), folder)
    ]


def _of_container(container: Any, inside: Environment, folder: str) -> tuple[Command, ...]:
    words = [one.value for key in ("command", "args") for one in _items(member(container, key)) if isinstance(one.value, str)]
    line = shlex.join(told if (told := referred(word, inside)) is not None else word for word in words)
    return tuple(one for one in commands_in_text(shell_text("job.sh", line, inside, folder, ())) if names_program(one.words))


def _place(path: str, node: Any) -> Place:
    start, end = node.start_mark, node.end_mark
    return Place(path, 0, start.line + 1, start.column + 1, end.line + 1, end.column + 1)


def started(shown: str, content: str, asked: Sequence[str]) -> set[int]:
    """Where the services of a compose file begin that ``up`` starts: all, else those that it names, and what they need. Raises BudgetError."""
    roots = documents(content)
    services = dict(entries(member(roots[0], "services"))) if roots else {}
    wanted = list(asked or services)
    for one in wanted:
        if one not in services:
            raise BudgetError(f"{shown}: no service is called {one}" + (f"; there are {', '.join(services)}" if services else ""))
        needs = member(services[one], "depends_on")
        listed = [key for key, _ in entries(needs)] or [str(node.value) for node in _items(needs)]
        wanted += [other for other in listed if other in services and other not in wanted]
    return {services[one].start_mark.index for one in wanted}


def _of_node(path: str, node: Any, depth: int) -> Iterator[tuple[Any, JobResources, Any]]:
    """The containers of the pods in a document, however deep a job or a deployment has them, each with the node of its last words."""
    own = entries(node)
    keys = dict(own)
    if "containers" in keys:
        for container in _items(keys["containers"]):
            last = member(container, "args") or member(container, "command")
            if last is not None:
                yield container, _given(path, container, keys.get("volumes")), last
    elif depth < _DEEPEST:
        for value in (value for _, value in own):
            for inner in (value, *_items(value)):
                yield from _of_node(path, inner, depth + 1)


def _items(node: Any) -> list[Any]:
    found = getattr(node, "value", None)
    return [one for one in found if not isinstance(one, tuple)] if isinstance(found, list) else []


def _given(path: str, container: Any, volumes: Any) -> JobResources:
    limits = member(member(container, "resources"), "limits")
    ram, cpu = member(limits, "memory"), member(limits, "cpu")
    memory = _limit(path, ram)
    mounted = next((member(one, "name") for one in _items(member(container, "volumeMounts")) if _text(member(one, "mountPath")) == _SHM), None)
    volume = next((one for one in _items(volumes) if mounted is not None and _text(member(one, "name")) == mounted.value), None)
    shared = _limit(path, member(member(volume, "emptyDir"), "sizeLimit"))
    if mounted is None:
        shared = Limit(DEFAULT_SHARED, "what a pod has that mounts none")
    elif shared is None:
        shared = memory
    text = _text(cpu)
    cores = float(text) if re.fullmatch(r"\d{1,5}(\.\d+)?", text) else int(text[:-1]) / 1000 if re.fullmatch(r"\d{1,8}m", text) else None
    return JobResources(memory, shared, cores)


def _text(node: Any) -> str:
    return str(getattr(node, "value", ""))


def _limit(path: str, node: Any) -> Limit | None:
    """Bytes as Kubernetes reads them: `Gi` is 1024 * 1024 * 1024, `G` 1000 * 1000 * 1000."""
    text = _text(node).strip()
    found = _AMOUNT.fullmatch(text)
    if found is None:
        if text and not re.search(r"[$%{<]", text):
            raise BudgetError(f"{path}:{node.start_mark.line + 1}: {text!r} is no size of memory, such as 2Gi")
        return None
    amount = int(float(found[1]) * 10 ** int(found[2])) if found[2] else size(f"{found[1]}{found[3]}B")
    return Limit(amount, f"{path}:{node.start_mark.line + 1}", _text(node))
