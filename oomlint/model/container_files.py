"""Files that say what a container starts: Dockerfiles with their stages, compose files with their services."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from oomlint.model.command_texts import CommandText, Word
from oomlint.model.commands import Command, names_program, scanned
from oomlint.model.yaml_nodes import MOST_CHARACTERS, entries, member

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Place

_STAGE: Final = re.compile(r"(?:--\S+[ \t]+)*(\S+)(?:[ \t]+AS[ \t]+(\S+))?", re.IGNORECASE)
_INSTRUCTION: Final = re.compile(r"^[ \t]*(FROM|CMD|ENTRYPOINT|RUN)[ \t]+((?:[^\n]*\\[ \t]*\r?\n)*[^\n]*)", re.MULTILINE | re.IGNORECASE)
_STRING: Final = re.compile(r'"((?:\\.|[^"\\\n])*)"')


def of_dockerfile(text: CommandText) -> list[Command]:
    """``CMD``, ``ENTRYPOINT`` and ``RUN``; the words of a ``CMD`` follow those of the entry point of its stage."""
    return [command for stage in _stages(text) for command in (*stage.commands, *stage.whole)]


class _Stage(Struct):
    """A stage of a Dockerfile."""

    name: str = ""
    base: str = ""
    commands: list[Command] = field(default_factory=list)  # as each instruction has them
    entry: list[Command] = field(default_factory=list)
    default: list[Command] = field(default_factory=list)  # what `CMD` says
    shell: bool = False  # whether the entry point is a text for a shell, which takes no more words

    @property
    def whole(self) -> list[Command]:
        """The entry point with the words of ``CMD``."""
        if self.shell or not self.entry or not self.default:
            return []
        return [Command(self.entry[0].text, (*self.entry[0].parts, *self.default[-1].parts))]

    @property
    def starts(self) -> list[Command]:
        """The commands that a container of this stage starts; nothing where the stage says none."""
        return self.whole or self.entry or self.default


def _stages(text: CommandText) -> list[_Stage]:
    found = [_Stage()]
    for match in _INSTRUCTION.finditer(text.content):
        name, start, end = match[1].upper(), match.start(2), match.end(2)
        if name == "FROM":
            said = _STAGE.match(match[2])
            found.append(_Stage(said[2] or "", said[1]) if said is not None else _Stage())
            continue
        stage = found[-1]
        listed = match[2].lstrip().startswith("[")
        if listed:
            words = tuple(Word(one[1], one.start(1), one.end(1)) for one in _STRING.finditer(text.content, start, end))
            inner = [command for word in words if " " in word.text for command in scanned(text, word.start, word.end)]
            own = [*([Command(text, words)] if words else []), *inner]
        else:
            own = list(scanned(text, start, end))
        stage.commands += own
        if name == "ENTRYPOINT":
            stage.entry, stage.shell = own, not listed
        elif name == "CMD":
            stage.default = own
    return found


def started_by_image(path: str, content: str, target: str = "") -> list[Command]:
    """The commands of a Dockerfile that a container of its last stage, or of the one that is named, starts with."""
    stages = _stages(CommandText(path, content))
    stage = next((one for one in stages if one.name.lower() == target.lower()), None) if target else stages[-1]
    for _ in stages:
        if stage is None or stage.starts:
            break
        stage = next((one for one in stages if one.name and one.name.lower() == stage.base.lower()), None)
    return [one for one in stage.starts if names_program(one.words)] if stage is not None else []


def image_of(build: Any, folder: str) -> tuple[str, str] | None:
    """The Dockerfile and the stage that a service of a compose file in a folder is built with; ``None`` where they are no texts."""
    parts = [getattr(member(build, key), "value", "") for key in ("context", "dockerfile", "target")] if entries(build) else [build.value, "", ""]
    if not all(isinstance(part, str) for part in parts):
        return None
    context, name, target = parts
    return os.path.normpath(os.path.join(folder, context, name or "Dockerfile")), target


class Service(Struct, frozen=True, eq=False, dict=True):
    """A service of a compose file."""

    text: CommandText
    node: Any  # of YAML

    def place_of(self, node: Any) -> Place:
        """The place of a node; of a mapping, that of its first entry."""
        first, last = node.value[0] if entries(node) else (node, node)
        return self.text.place(first.start_mark.index, last.end_mark.index)

    @property
    def image(self) -> tuple[str, str] | None:
        """The Dockerfile that says what it starts, and the stage; ``None`` where it says so itself, or has no such file."""
        build = member(self.node, "build")
        if build is None or any(member(self.node, key) is not None for key in ("command", "entrypoint", "extends")):
            return None
        return image_of(build, os.path.dirname(self.text.path))

    @property
    def sets_variables(self) -> bool:
        """Whether it sets variables for its program."""
        return any(member(self.node, key) is not None for key in ("environment", "env_file"))


def services_of(path: str, content: str) -> list[Service]:
    """The services of a compose file; none where it is broken."""
    if len(content) > MOST_CHARACTERS:
        return []
    try:
        return _services(CommandText(path, content))
    except Exception:  # noqa: BLE001 - a broken file is simply not known
        return []


def _services(text: CommandText) -> list[Service]:
    import yaml  # noqa: PLC0415 - most runs meet no such file

    return [Service(text, node) for _, node in entries(member(yaml.compose(text.content, Loader=yaml.SafeLoader), "services"))]


def of_compose(text: CommandText) -> Iterator[Command]:
    """What each service starts: the words of its ``entrypoint``, and behind them those of its ``command``."""
    for service in _services(text):
        nodes = [node for key in ("entrypoint", "command") if (node := member(service.node, key)) is not None]
        parts: list[Word] = []
        apart: list[Command] = []
        for node in nodes:
            words, inner = _words_of(text, node, service)
            if not isinstance(node.value, str) or len(nodes) > 1:
                parts += words
            elif " " in node.value or "\n" in node.value:
                inner = [Command(text, tuple(words), service), *inner] if words else inner
            apart += inner
        if parts:
            yield Command(text, tuple(parts), service)
        yield from apart


def _words_of(text: CommandText, node: Any, service: Service) -> tuple[list[Word], list[Command]]:
    """The words of a list or of a line, and the commands that stand in one of them; of a line with several commands, all of these."""
    import yaml  # noqa: PLC0415

    if isinstance(node, yaml.SequenceNode):
        scalars = [one for one in node.value if isinstance(one, yaml.ScalarNode) and (" " in one.value or "\n" in one.value)]
        return list(words_of_list(text, node)), [one for scalar in scalars for one in _scanned_node(text, scalar, service)]
    found = list(_scanned_node(text, node, service)) if isinstance(node, yaml.ScalarNode) else []
    whole = [one for one in found if not one.outer]
    return (list(whole[0].parts), [one for one in found if one.outer]) if len(whole) == 1 else ([], found)


def _scanned_node(text: CommandText, node: Any, service: Service) -> Iterator[Command]:
    start, end = characters_of(text, node)
    return scanned(text, start, end, service, folded=node.style != "|")


def words_of_list(text: CommandText, node: Any) -> Iterator[Word]:
    """The words of a list of strings."""
    import yaml  # noqa: PLC0415

    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            if isinstance(item, yaml.ScalarNode):
                yield Word(item.value, *characters_of(text, item))


def characters_of(text: CommandText, node: Any) -> tuple[int, int]:
    """The characters of a scalar without its quotes, or without the row that begins a block."""
    start, end = node.start_mark.index, node.end_mark.index
    if node.style in {"'", '"'}:
        return start + 1, end - 1
    return (text.content.find("\n", start) + 1 if node.style in {"|", ">"} else start), end
