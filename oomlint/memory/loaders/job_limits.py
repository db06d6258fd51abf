"""What a container or a job of a cluster gives to the training that it starts, against what the loaders of that training take (OOM150, OOM151)."""

from __future__ import annotations

import os
import re
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from oomlint import amounts
from oomlint.memory.loaders.in_flight import case_under, workers_under
from oomlint.memory.loaders.loader_calls import loaders_of
from oomlint.model.yaml_nodes import member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oomlint.finding import Place
    from oomlint.memory.loaders.in_flight import Inflight
    from oomlint.memory.loaders.loader_calls import Loader, LoaderUse
    from oomlint.model.command_texts import Word
    from oomlint.model.commands import Command
    from oomlint.model.container_files import Service
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Alternative

DEFAULT_SHARED: Final = 64 * 1024 * 1024  # bytes of `/dev/shm`, where a container of Docker or Podman is told nothing
ENGINES: Final = frozenset({"docker", "podman", "nvidia-docker"})
_SHARED_FOLDER: Final = "/dev/shm"  # noqa: S108 - what is mounted there
_TASKS: Final = frozenset({"--ntasks-per-node", "--ntasks", "-n"})
_BATCH_MEMORY: Final = re.compile(r"(\d{1,12}(?:\.\d+)?[KMGT]?)B?", re.IGNORECASE)
_OTHER_JOBS: Final = frozenset({"sbatch", "salloc", "ssh"})  # what they start is no part of the job that the script is


class JobLimit(Struct, frozen=True):
    """What is given: bytes or processors, and where that is said."""

    amount: float
    place: Place
    default: bool = False


class Start(Struct, frozen=True):
    """A loader of a training that a command starts, and the ranks that have one each."""

    loader: Loader
    use: LoaderUse
    command: Command
    ranks: int


def starts(module: Module, project: Project) -> Iterator[Start]:
    """The loaders of a module under each command line that is known to reach them."""
    loaders = loaders_of(project)
    for loader in loaders.of(module):
        for use in loaders.uses(loader):
            script = _outermost(use)
            for command, ranks in loaders.evaluator.options.launches.starts(script):
                yield Start(loader, use, command, ranks)


def _outermost(use: LoaderUse) -> Module:
    """The module whose code leads to the loader, as far as that is known."""
    frame = use.frame
    while frame.bound:
        frame = frame.bound[-1].frame
    return frame.module


def workers_of(start: Start, project: Project) -> Alternative | None:
    """The workers of the loader under the command."""
    return workers_under(loaders_of(project), start.loader, start.use.frame, ("launch", start.command.place))


def inflight_of(start: Start, project: Project) -> Inflight | None:
    """The batches that wait for the loader under the command."""
    return case_under(project, start.loader, start.use.frame, ("launch", start.command.place))


# -- what is given -----------------------------------------------------------------------------------------------------------


def shared_memory(command: Command) -> JobLimit | None:
    """The shared memory of the container that a command runs in; ``None`` where there is none, where it has the host's, or where nobody knows."""
    if command.service is not None:
        return _of_service(command.service, command)
    run = _engine_words(command)
    if run is None:
        return None
    given: JobLimit | None = None
    for number, word in enumerate(run):
        flag, equals, text = word.text.partition("=")
        if flag in {"--ipc", "--mount", "--tmpfs", "-v", "--volume"}:
            text = text if equals else run[number + 1].text if number + 1 < len(run) else ""
            if flag == "--ipc" or _SHARED_FOLDER in text:
                return None
        if flag == "--shm-size":
            said = word if equals else run[number + 1] if number + 1 < len(run) else None
            size = _size(text if equals else said.text if said is not None else "")
            if said is None or size is None:
                return None
            given = JobLimit(size, command.text.place(said.start, said.end))
    if given is None and any("$" in word.text and not word.text.startswith("-") and "/" not in word.text and ":" not in word.text for word in run):
        return None  # a variable may hold options
    return given or JobLimit(DEFAULT_SHARED, command.text.place(run[0].start, run[-1].end), default=True)


def _of_service(service: Service, command: Command) -> JobLimit | None:
    if any(member(service.node, key) is not None for key in ("ipc", "extends")):
        return None
    mounts = [*_texts(member(service.node, "volumes")), *_texts(member(service.node, "tmpfs"))]
    if any(_SHARED_FOLDER in text for text in mounts):
        return None
    node = member(service.node, "shm_size")
    if node is None:
        own = command.text.path == service.text.path  # else the image says what is started
        return JobLimit(DEFAULT_SHARED, command.place if own else service.place_of(member(service.node, "build")), default=True)
    size = _size(str(node.value))
    return JobLimit(size, service.place_of(node)) if size is not None else None


def processors(command: Command) -> JobLimit | None:
    """The processors that a container or a task of a job may use; ``None`` where nobody says."""
    service = command.service
    if service is not None:
        limits = member(member(member(service.node, "deploy"), "resources"), "limits")
        for node in (member(service.node, "cpus"), member(limits, "cpus")):
            if node is not None:
                count = _count(str(node.value))
                return JobLimit(count, service.place_of(node)) if count else None
        return None
    run = _engine_words(command)
    flags = frozenset({"--cpus"}) if run is not None else frozenset({"--cpus-per-task", "-c"})
    words = run if run is not None else _words_of_srun(command)
    for number, word in enumerate(words):
        flag, equals, _ = word.text.partition("=")
        glued = run is None and word.text.startswith("-c") and len(word.text) > len("-c") and not equals  # `-c16`
        if flag in flags or glued:
            said = _behind(word) if glued else command.given_in(word) if equals else words[number + 1] if number + 1 < len(words) else None
            count = _count(said.text) or _counted(command, said) if said is not None else 0
            return JobLimit(count, command.text.place(said.start, said.end)) if said is not None and count else None
    asked = command.text.batch_processors if run is None and not _is_of_another_job(command) else None
    if not words and any(
        name == "--exclusive" or ((name == "-n" or name.startswith("--ntasks")) and given.text != "1") for name, given in command.text.batch_options
    ):
        return None  # what is not started by `srun` has the processors of all tasks
    return JobLimit(int(asked.text), command.text.place(asked.start, asked.end)) if asked is not None and int(asked.text) else None


def _counted(command: Command, word: Word) -> int:
    """The number that a variable stands for; 0 where that is not known."""
    number = command.number(word)
    return max(0, number.value) if number is not None else 0


def memory(command: Command) -> JobLimit | None:
    """The memory of the container or of the job on one machine; ``None`` where nobody says."""
    if command.service is not None:
        service = command.service
        limits = member(member(member(service.node, "deploy"), "resources"), "limits")
        nodes = (node for node in (member(service.node, "mem_limit"), member(limits, "memory")) if node is not None)
        return next((JobLimit(size, service.place_of(node)) for node in nodes if (size := _size(str(node.value))) is not None), None)
    run = _engine_words(command)
    for number, word in enumerate(run or ()):
        flag, equals, text = word.text.partition("=")
        if flag in {"-m", "--memory"} and run is not None:
            said = word if equals else run[number + 1] if number + 1 < len(run) else None
            size = _size(text if equals else said.text if said is not None else "")
            return JobLimit(size, command.text.place(said.start, said.end)) if said is not None and size else None
    asked = [(name, given) for name, given in command.text.batch_options if name.lower() in {"--mem", "--mem-per-cpu"}]
    if run is not None or len(asked) != 1 or _is_of_another_job(command):
        return None
    ((name, given),) = asked
    plain = _BATCH_MEMORY.fullmatch(given.text)
    if plain is None:
        return None
    text = plain[1] if plain[1][-1:].isalpha() else f"{plain[1]}M"  # Slurm counts in units of 1024
    each = 1.0
    if name == "--mem-per-cpu":
        cpus = command.text.batch_processors
        each = (int(cpus.text) if cpus is not None else 1) * (tasks(command) or 1)
    size = _size(text)
    return JobLimit(size * each, command.text.place(given.start, given.end)) if size else None  # `--mem=0` is all that there is


def tasks(command: Command) -> int | None:
    """The tasks of a job that ``srun`` starts the program in, on one machine; ``None`` where nobody says, or where something else starts it."""
    words = _words_of_srun(command)
    if not words:
        return None
    for number, word in enumerate(words):
        flag, equals, text = word.text.partition("=")
        if re.fullmatch(r"-n[1-9]\d{0,5}", word.text):
            return int(word.text[2:])
        if flag in _TASKS:
            given = text if equals else words[number + 1].text if number + 1 < len(words) else ""
            return int(given) if re.fullmatch(r"[1-9]\d{0,5}", given) else None
    found = [(name, int(given.text)) for name, given in command.text.batch_options if name in _TASKS and re.fullmatch(r"0*[1-9]\d{0,5}", given.text)]
    return next((count for name, count in found if name == "--ntasks-per-node"), found[0][1] if found else None)


def _is_of_another_job(command: Command) -> bool:
    words = (word.text for word in (*command.outer, *command.parts))
    return any(os.path.basename(word) in _OTHER_JOBS for word in takewhile(lambda word: not word.endswith(".py"), words))


def _behind(word: Word) -> Word:
    """The value of a short option that is written in the same word."""
    return word._replace(text=word.text[2:], start=word.end - len(word.text) + 2)


def _engine_words(command: Command) -> tuple[Word, ...] | None:
    """The words of ``docker run`` in front of what it runs; ``None`` where no container is started."""
    words = (*command.outer, *command.parts)
    for number, word in enumerate(words[:-1]):
        if os.path.basename(word.text) in ENGINES and words[number + 1].text == "run":
            end = next((n for n, each in enumerate(words) if n > number and (os.path.basename(each.text).startswith("python") or each.text.endswith(".py"))), 0)
            return words[number : end or len(command.outer) or len(words)]
    return None


def _words_of_srun(command: Command) -> tuple[Word, ...]:
    """The words of ``srun`` in front of the program."""
    words = (*command.outer, *command.parts)
    begin = next((n for n, word in enumerate(words) if os.path.basename(word.text) == "srun"), len(words))
    end = next((n for n, word in enumerate(words) if os.path.basename(word.text).startswith(("python", "torchrun", "accelerate", "bash"))), len(words))
    return words[begin:end]


def broken_size(command: Command) -> tuple[Place, str] | None:
    """Where memory is given by what is no size, and what is written there; ``None`` where all of it can be read, or a variable may say it."""
    for place, text, is_size in _sizes(command):
        if text and not re.search(r"[$%{<]", text) and not is_size(text):
            return place, text
    return None


def _sizes(command: Command) -> Iterator[tuple[Place, str, Callable[[str], object]]]:
    if command.service is not None:
        service = command.service
        limits = member(member(member(service.node, "deploy"), "resources"), "limits")
        nodes = (member(service.node, "shm_size"), member(service.node, "mem_limit"), member(limits, "memory"))
        yield from ((service.place_of(node), str(node.value), lambda text: _size(text) is not None) for node in nodes if node is not None)
        return
    run = _engine_words(command)
    for number, word in enumerate(run or ()):
        flag, equals, text = word.text.partition("=")
        if flag in {"-m", "--memory", "--shm-size"} and run is not None:
            said = word if equals else run[number + 1] if number + 1 < len(run) else word
            yield command.text.place(said.start, said.end), text if equals else said.text, lambda text: _size(text) is not None
    for name, given in command.text.batch_options:
        if name in {"--mem", "--mem-per-cpu", "--mem-per-gpu"}:
            yield command.text.place(given.start, given.end), given.text, _BATCH_MEMORY.fullmatch


def _texts(node: Any) -> list[str]:
    """The texts of a node that is a scalar, a list of them, or one of mappings."""
    value = getattr(node, "value", None)
    if isinstance(value, str):
        return [value]
    items = value if isinstance(value, list) else []
    return [text for item in items for part in (item if isinstance(item, tuple) else (item,)) for text in _texts(part)]


def _size(text: str) -> int | None:
    """Bytes, as Docker reads them: its units are powers of 1024."""
    plain = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", text.strip(), re.IGNORECASE)
    try:
        return amounts.size(plain[1] + plain[2]) if plain is not None else None
    except ValueError:
        return None


def _count(text: str) -> float:
    return float(text) if re.fullmatch(r"\d{1,6}(?:\.\d{1,6})?", text.strip()) else 0.0
