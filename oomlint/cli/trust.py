"""Whether the settings of a project may name what is run, and what is let into the sandbox: only where the user has said so."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from oomlint.cli.check import say
from oomlint.cli.user_config import absolute, inside, program
from oomlint.config import key_of
from oomlint.verify.interpreters import repository

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from oomlint.cli.user_config import Own

GUARDED: Final = ("python", "command", "prepare", "factory", "pass_env", "read")  # fields that name something to execute, or let something through
_BETWEEN_WORDS: Final = re.compile(r"[\s'\"|&;<>()$`{}=,]+")
_MODULE: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def refused(file: str, values: Mapping[str, Any], root: str, own: Own) -> list[str]:
    """The fields among ``values``, which a settings file of the project gives, that the user does not allow. Asks where there is somebody to ask."""
    if not values:
        return []
    real = os.path.realpath(file)
    known = own.trusted(real)
    digests = {_key(name): _digest(name, value, root) for name, value in values.items()}
    unknown = [name for name in values if known.get(_key(name)) != digests[_key(name)]]
    if not unknown:
        return []
    shown = _plain(os.path.relpath(file))
    if _somebody_is_there():
        answer = _answer(shown, {_key(name): _value(name, values[name], root) for name in unknown})
        if answer == "a":
            own.trust(real, {_key(name): digests[_key(name)] for name in unknown})
        if answer in {"a", "y"}:
            return []
    keys = ", ".join(map(_key, unknown))
    say(f"{shown}: {keys} are ignored: settings of a project may not name what is run or let through, unless you allow it; `--trust` does for this run")
    return unknown


def _key(name: str) -> str:
    return f"verify.{key_of(name)}"


def _somebody_is_there() -> bool:
    """Whether a question would be read and answered."""
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()) and os.environ.get("CI", "").lower() in {"", "0", "false"}


def _answer(file: str, shown: Mapping[str, str]) -> str:
    rows = "".join(f"  {key} = {value}\n" for key, value in shown.items())
    sys.stderr.write(f"oomlint: {file}, which is part of the project, asks to run or to let through:\n{rows}")
    sys.stderr.write("Allow it? y = in this run, a = always, as long as it stays as it is, Enter = no: ")
    sys.stderr.flush()
    try:
        return sys.stdin.readline().strip().lower()
    except (OSError, UnicodeDecodeError):
        return ""


def _value(name: str, value: Any, root: str) -> str:
    """A value as the question shows it, with the places that its paths lead to."""
    if name not in {"python", "read"}:
        return _quoted(value)
    paths = [value] if isinstance(value, str) else value
    leads = [os.path.realpath((program(path, root) if name == "python" else None) or absolute(path, root)) for path in paths]
    return f"{_quoted(value)} ({', '.join(map(_plain, leads))})"


def _quoted(value: Any) -> str:
    return ascii(value) if isinstance(value, str) else ascii(list(value))


def _plain(text: str) -> str:
    """A text that shows all that it is: nothing in it moves the cursor, or hides or turns what stands beside it."""
    return ascii(text)[1:-1]


# -- what an answer holds for ----------------------------------------------------------------------------------------


def _digest(name: str, value: Any, root: str) -> str:
    """What stands for a value, the project, and the files of the project that the value names: when they change, the user is asked again."""
    state = hashlib.blake2b(json.dumps([name, value, os.path.realpath(root)]).encode(), digest_size=32)
    top = repository(root) or root
    for path in dict.fromkeys(_named(name, value, root)):
        real = os.path.realpath(path)
        content = b""
        if name != "read":
            if not (inside(path, top) and os.path.isfile(real)):
                continue
            with suppress(OSError), open(real, "rb") as stream:
                content = hashlib.file_digest(stream, "sha256").digest()
        state.update(f"\0{path}\0{real}\0".encode(errors="surrogateescape") + content)
    return state.hexdigest()


def _named(name: str, value: Any, root: str) -> Iterator[str]:
    """The paths that a value names, or may name."""
    match name:
        case "python":
            path = absolute(value, root)
            yield from (path, os.path.join(path, "bin", "python"), os.path.join(path, "pyvenv.cfg"))
        case "read":
            yield from (absolute(path, root) for path in value)
        case "factory":
            yield from _module(value.partition(":")[0], root)
        case "command" | "prepare":
            words = dict.fromkeys(filter(None, [*_BETWEEN_WORDS.split(value), *_words(value)]))
            for folder in (root, *filter(os.path.isdir, (absolute(word, root) for word in words))):  # `cd tools; ./make.sh`
                for word in words:
                    yield absolute(word, folder)
                    if _MODULE.fullmatch(word):
                        yield from _module(word, folder)


def _words(command: str) -> list[str]:
    """As a shell takes it apart."""
    with suppress(ValueError):
        return shlex.split(command)
    return []


def _module(name: str, root: str) -> Iterator[str]:
    for folder in (root, os.path.join(root, "src")):
        path = os.path.join(folder, *name.split("."))
        yield from (f"{path}.py", os.path.join(path, "__init__.py"), os.path.join(path, "__main__.py"))
