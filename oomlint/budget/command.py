"""The command that starts a training: which script, with which options, in how many processes."""

from __future__ import annotations

import os
import re
import shlex
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from oomlint.budget.mistakes import BudgetError
from oomlint.model.launches import processes_of
from oomlint.model.yaml_nodes import documents, member

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MODULES: Final = {"accelerate.commands.launch": ("accelerate", "launch"), "deepspeed.launcher.runner": ("deepspeed",)}  # as they are started else
_LAUNCHERS: Final = frozenset({"torchrun", "accelerate", "deepspeed"})
_OF_TORCH: Final = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch"})
_BY_DEVICE: Final = ("auto", "cpu", "gpu", "xpu", "npu", "privateuseone")  # as many processes as there are of it
_REDIRECTS: Final = re.compile(r"(\d*|&)(>>?|<)(?P<to>&?[^<>]*)")
_NODES: Final = frozenset({"-N", "--nodes", "--num_machines", "--num-machines"})
_COUNT: Final = re.compile(r"[1-9]\d{0,5}")
_MOST_BYTES: Final = 100_000  # of a file of settings of a launcher


class ReadCommand(Struct, frozen=True):
    """A command that was read."""

    script: str  # its absolute path
    options: tuple[str, ...]  # what stands behind the script
    ranks: int | None  # on one machine; None where the command says nothing of them
    ranks_open: bool = False  # a launcher starts several processes, and nobody says how many
    launcher: str = ""  # of torch, which stays beside them
    refused: str = ""  # what that ends with an error for


def read(text: str, folder: str) -> ReadCommand:
    """The script that a command runs, and what it gives it. Raises BudgetError, whose message says what is wrong."""
    words = words_of(text)
    run = of_words(words, folder)
    if run is None:
        at = next(_candidates(words), None)
        if at is None:
            raise BudgetError("the command runs no Python script that can be seen: it needs a file that ends in `.py`, or `-m` and a module")
        raise BudgetError(f"the command runs {words[at]}, which is not there")
    return run


def words_of(text: str) -> list[str]:
    """The words of a command. Raises BudgetError where a quote is left open."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BudgetError(f"the command cannot be read: {str(error).lower()}") from None


def of_words(words: Sequence[str], folder: str) -> ReadCommand | None:
    """The same of words that are known to be a command; ``None`` where the script is not there."""
    words = _plain(words)
    for at in _candidates(words):
        path = _path_of(words[at], folder, module=at > 0 and words[at - 1] in {"-m", "--module"})
        if path is not None:
            count = _ranks(words[:at], words[at], folder)
            launcher = next((word for word in map(os.path.basename, words[:at]) if word in _OF_TORCH), "")
            refused = _refused(words[:at]) if launcher else ""
            return ReadCommand(path, tuple(words[at + 1 :]), count or None, count is None, launcher.rpartition(".")[2], refused)
    return None


def _refused(before: Sequence[str]) -> str:
    """A number of processes that torchrun does not take."""
    for name, text in options_of(before).items():
        if (
            name.replace("-", "_") == "__nproc_per_node"
            and re.fullmatch(r"[\w+-]+", text)
            and text not in _BY_DEVICE
            and not _COUNT.fullmatch(text.lstrip("+0"))
        ):
            return f"{name} {text}"
    return ""


def _plain(words: Sequence[str]) -> list[str]:
    """The words without redirections, and with the short names of launchers that are run as modules."""
    found: list[str] = []
    skips = False
    for word in words:
        redirect = _REDIRECTS.fullmatch(word)
        if skips or redirect:
            skips = redirect is not None and not redirect["to"]
        elif found[-1:] == ["-m"] and word in _MODULES:
            found[-1:] = _MODULES[word]
        else:
            found.append(word)
    return found


def _candidates(words: Sequence[str]) -> Iterator[int]:
    """Where the script may stand, or the module that is run as one: behind launchers and profilers, which may be modules themselves."""
    values = []  # that may be those of an option of the launcher
    for number, word in enumerate(words):
        if word.endswith((".py", ".ipynb")):
            if number == 0 or not words[number - 1].startswith("-") or "=" in words[number - 1]:
                yield number
            values.append(number)
        starts = any(os.path.basename(one) in _LAUNCHERS or os.path.basename(one).startswith("python") for one in words[:number])
        if word in {"-m", "--module"} and starts and number + 1 < len(words):  # to `docker run`, it is the memory
            yield number + 1
    yield from values


def _path_of(word: str, folder: str, *, module: bool) -> str | None:
    base = os.path.join(folder, *word.split(".")) if module else os.path.join(folder, word)
    places = [f"{base}.py", os.path.join(base, "__main__.py")] if module else [base]
    return next((os.path.abspath(place) for place in places if os.path.isfile(place)), None)


def _ranks(before: Sequence[str], script: str, folder: str) -> int | bool | None:
    """How many processes a launcher starts on one machine; None where it leaves that open, False where there is none."""
    given = options_of(before)
    count = processes_of([*before, script], os.path.basename(script))
    launcher = next((one for one in map(os.path.basename, before) if one in _LAUNCHERS), "")
    if launcher == "deepspeed" and count is None and "--include" in given:
        devices = given["--include"].partition(":")[2].split("@")[0].split(",")
        return len(devices) if devices != [""] else None
    if launcher == "accelerate":
        told = _settings(os.path.join(folder, given["--config_file"])) if "--config_file" in given else {}
        count = count or (int(told["num_processes"]) if _COUNT.fullmatch(told.get("num_processes", "")) else None)
        given = {"--num_machines": told.get("num_machines", ""), **given}
    per_node = any(word.startswith(("--nproc", "--ntasks-per-node", "--ntasks_per_node")) for word in before)
    return count if per_node or not count else max(1, count // nodes(given))


def nodes(options: dict[str, str]) -> int:
    """The machines that options speak of; of a range, the least."""
    return next((int(found[0]) for name in _NODES if (found := _COUNT.match(options.get(name, "")))), 1)


def options_of(words: Sequence[str]) -> dict[str, str]:
    """Options by name, with the word behind them or behind their `=`."""
    found: dict[str, str] = {}
    for word, after in pairwise([*words, ""]):
        name, equals, text = word.partition("=")
        if word.startswith("--"):
            found[name] = text if equals else after
        elif re.match(r"-[A-Za-z]", word):
            found[word[:2]] = word[2:].removeprefix("=") or after
    return found


def _settings(path: str) -> dict[str, str]:
    """The plain settings of a file of Accelerate."""
    try:
        with open(path, "rb") as file:
            found = documents(file.read(_MOST_BYTES).decode("utf-8", "replace"))
    except OSError:
        return {}
    return {name: str(node.value) for name in ("num_processes", "num_machines") if found and (node := member(found[0], name)) is not None}
