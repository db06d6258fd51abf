"""The command that starts a training: which script, with which options, in how many processes."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from typing import Final

from oomlint.budget.mistakes import BudgetError
from oomlint.model.launches import processes_of

_SHELL: Final = re.compile(r"&&|\|\||[|&;<>`$(){}*?~\n#]")
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"$`]*\"")
_SETS: Final = re.compile(r"\w+=")


@dataclass(frozen=True, slots=True)
class Command:
    """A command that was read."""

    script: str  # its absolute path
    options: tuple[str, ...]  # what stands behind the script
    ranks: int | None  # None where the command says nothing of them
    ranks_open: bool = False  # a launcher starts several processes, and nobody says how many


def refuse_shell(text: str) -> None:
    """Raise BudgetError where a command is one for a shell."""
    found = _SHELL.search(_QUOTED.sub("", text))
    if found:
        sign = found.group().strip() or "a line break"
        raise BudgetError(f"the command has shell syntax (`{sign}`): give the plain command, such as `python train.py --num_workers 4`")
    first = text.split(maxsplit=1)[0]
    if _SETS.match(first):
        raise BudgetError(f"the command has shell syntax (`{first}`): give it without variables in front")


def read(text: str, folder: str) -> Command:
    """The script that a command runs, and what it gives it. Raises BudgetError, whose message says what is wrong."""
    words = words_of(text)
    at = _script_at(words)
    if at is None:
        raise BudgetError("the command runs no Python script that can be seen: it needs a file that ends in `.py`, or `-m` and a module")
    run = of_words(words, folder)
    if run is None:
        raise BudgetError(f"the command runs {words[at]}, which is not there")
    return run


def words_of(text: str) -> list[str]:
    """The words of a command. Raises BudgetError where a quote is left open."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BudgetError(f"the command cannot be read: {str(error).lower()}") from None


def of_words(words: list[str], folder: str) -> Command | None:
    """The same of words that are known to be a command; ``None`` where the script is not there."""
    at = _script_at(words)
    path = _path_of(words[at], folder, module=at > 0 and words[at - 1] == "-m") if at is not None else None
    if at is None or path is None:
        return None
    count = processes_of(words[: at + 1], os.path.basename(words[at]))
    return Command(path, tuple(words[at + 1 :]), count or None, count is None)


def _script_at(words: list[str]) -> int | None:
    """Where the script stands, or the module that is run as one: behind launchers, which may be modules themselves."""
    values = []  # that may be those of an option of the launcher
    for number, word in enumerate(words):
        if word.endswith((".py", ".ipynb")):
            if number == 0 or not words[number - 1].startswith("-") or "=" in words[number - 1]:
                return number
            values.append(number)
        python = any(os.path.basename(one).startswith("python") for one in words[:number])  # to `docker run`, it is the memory
        if word == "-m" and python and number + 1 < len(words) and not words[number + 1].startswith(("torch.", "accelerate.", "deepspeed.")):
            return number + 1
    return values[0] if values else None


def _path_of(word: str, folder: str, *, module: bool) -> str | None:
    base = os.path.join(folder, *word.split(".")) if module else os.path.join(folder, word)
    places = [f"{base}.py", os.path.join(base, "__main__.py")] if module else [base]
    return next((os.path.abspath(place) for place in places if os.path.isfile(place)), None)
