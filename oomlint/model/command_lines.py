"""Command lines as files beside the code hold them: shell scripts, Makefiles, Dockerfiles, compose files, the launches of an editor.

All become words with their places, so that one reader serves them all. What is broken gives no command.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from oomlint.beside_code import Beside, beside
from oomlint.model import shell_scripts
from oomlint.model.command_texts import CommandText, Word
from oomlint.model.commands import Command, names_program, scanned
from oomlint.model.container_files import characters_of, of_compose, of_dockerfile, words_of_list
from oomlint.model.yaml_nodes import MOST_CHARACTERS, member

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_CHARACTERS: Final = 1_000_000  # who launches a training writes less
_COMMENT: Final = r"//[^\n]*|/\*.*?(?:\*/|\Z)"
_NO_JSON: Final = re.compile(rf'("(?:\\.|[^"\\\n])*")|{_COMMENT}|,(?=(?>(?:\s|{_COMMENT})*)[\]}}])|\t', re.DOTALL)


@lru_cache(maxsize=256)  # an editor asks after each edit
def commands_of(path: str, content: str) -> tuple[Command, ...]:
    """The commands of a file that run Python."""
    if not (".py" in content or "-m" in content or "module" in content):
        return ()
    return tuple(one for one in every_command(path, content) if names_program(one.words))


@lru_cache(maxsize=256)
def every_command(path: str, content: str) -> tuple[Command, ...]:
    """The commands of a file."""
    return commands_in_text(CommandText(path, content))


def commands_in_text(text: CommandText) -> tuple[Command, ...]:
    """The commands of a file that is read already."""
    if len(text.content) > _MOST_CHARACTERS:
        return ()
    content, kind = text.content, beside(text.path)
    if kind is Beside.DOCKER:
        found = of_dockerfile(text)
    elif kind in {Beside.COMPOSE, Beside.EDITOR}:
        if len(content) > MOST_CHARACTERS:
            return ()
        try:
            found = list(of_compose(text) if kind is Beside.COMPOSE else _of_editor(text))
        except Exception:  # noqa: BLE001 - a broken file is simply not known
            return ()
    else:
        found = list(scanned(text, 0, len(content)))
    printed = shell_scripts.shown(content) if kind is Beside.SHELL else []
    found = [one for one in found if not one.prints and not any(start <= one.start < end for start, end in printed)]
    return tuple(each for one in found for each in one.spread())


def plain_json(text: str) -> str:
    """JSON with blanks in place of comments, of tabs and of commas behind a last entry."""
    return _NO_JSON.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)


def _of_editor(text: CommandText) -> Iterator[Command]:
    """The configurations of ``launch.json``, which is JSON with comments."""
    import yaml  # noqa: PLC0415

    for one in getattr(member(yaml.compose(plain_json(text.content), Loader=yaml.SafeLoader), "configurations"), "value", ()):
        program, module, args = (member(one, key) for key in ("program", "module", "args"))
        head: list[Word] = []
        if isinstance(program, yaml.ScalarNode):
            head = [Word(program.value, *characters_of(text, program))]
        elif isinstance(module, yaml.ScalarNode):
            head = [Word("-m", *characters_of(text, module)), Word(module.value, *characters_of(text, module))]
        given = [*words_of_list(text, args)]
        if isinstance(args, yaml.ScalarNode):
            given = [word for command in scanned(text, *characters_of(text, args)) for word in command.parts]
        if head:
            yield Command(text, (*head, *given))
