"""Launches: the values that shell scripts, notebooks and other scripts of the project give to a script's options."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from typing import TYPE_CHECKING, Literal

import libcst as cst

from oomlint.finding import Place
from oomlint.model.readings import FOUND, Memory, finder
from oomlint.model.values import Alternative, Const, Step, picked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.model.questions import Questions

_MOST_LAUNCHES = 8
_WHOLE_NUMBER = re.compile(r"-?\d{1,18}")  # more digits say nothing, and Python reads only so many


# What starts a script in several processes, and the options that say in how many.
_LAUNCHERS = frozenset({"torchrun", "torch.distributed.launch", "torch.distributed.run", "accelerate", "deepspeed"})
_COUNTS = re.compile(r"--(nproc[_-]per[_-]node|num[_-]processes|num[_-]gpus|ntasks[_-]per[_-]node)")
_DEFAULT = re.compile(r"\$\{\w+:-(\d+)\}")


class Launches:
    """Finds the command lines that call a script."""

    def __init__(self, project: Project, evaluator: Questions) -> None:
        self.project = project
        self.evaluator = evaluator
        self._lines: Memory[str, list[tuple[Place, list[str]]]] = Memory(project.readings)

    def values(self, flags: list[str], script: Module, key: object, step: Step) -> list[Alternative]:
        """Values that shell scripts and notebooks of the project give to the option of this script."""
        found: list[Alternative] = []
        base = os.path.basename(script.path)
        spelt = {f for f in flags if f.startswith("-")}
        spelt |= {f.replace("_", "-") for f in spelt} | {f.replace("-", "_").replace("__", "--", 1) for f in spelt if f.startswith("--")}
        for place, words in self.shell_lines(script):
            if not any(w == base or w.endswith("/" + base) for w in words) and not _runs_module(words, script, self.project):
                continue
            for number, word in enumerate(words):
                flag, equals, given = word.partition("=")
                if flag in spelt:
                    text = given if equals else (words[number + 1] if number + 1 < len(words) else "")
                    if _WHOLE_NUMBER.fullmatch(text):
                        at = Step(None, None, f"launched with `{flag} {text}`", place, kind="shell")
                        found.append(picked(Alternative(Const(int(text)), (at, step)), key, ("launch", place)))
        found.extend(self._by_python(spelt, base, script, key, step))
        return found[:_MOST_LAUNCHES]

    def _by_python(self, spelt: set[str], base: str, script: Module, key: object, step: Step) -> list[Alternative]:
        """Values that another script of the project puts behind the option in a list of arguments."""
        found: list[Alternative] = []
        longest = max(spelt, key=len, default="")
        if not longest.startswith("--"):
            return found
        for flag in sorted(f for f in spelt if f.startswith("--")):
            for module in self.project.mentioning([flag.encode(), os.fsencode(base)], script.path):
                if module is script:
                    continue
                for node in module.walk.root.nodes():
                    if not isinstance(node, cst.List):
                        continue
                    elements = [e.value for e in node.elements]
                    for number, element in enumerate(elements[:-1]):
                        if isinstance(element, cst.SimpleString) and element.evaluated_value == flag:
                            found.extend(self._passed_on(module, elements[number + 1], flag, key, step))
        return found

    def _passed_on(self, module: Module, node: cst.BaseExpression, flag: str, key: object, step: Step) -> list[Alternative]:
        frame = self.evaluator.calls.plain_frame(module, module.walk.scope_at(node))
        found: list[Alternative] = []
        seen: set[str] = set()
        for alt in self.evaluator.values(node, frame):
            text = str(alt.const) if isinstance(alt.value, Const) else ""
            if _WHOLE_NUMBER.fullmatch(text) and text not in seen:
                seen.add(text)
                at = Step(module, node, f"launched with `{flag} {text}`", kind="shell")
                picks = (key, ("launch", module.path, text))
                found.append(picked(Alternative(Const(int(text)), (at, *alt.story, step), reach=True), *picks))
        return found

    def processes(self, script: Module) -> list[tuple[int | None, Place]]:
        """How many processes on a machine the command lines of the project start the script in; ``None`` where they leave that open."""
        base = os.path.basename(script.path)
        found = []
        for place, words in (*self.shell_lines(script), *self._told(script)):
            named = next((w for w in words if w == base or w.endswith("/" + base)), "")
            if (named and self._means(named, script, place)) or _runs_module(words, script, self.project):
                count = _processes(words, base)
                if count is not False:
                    found.append((count, place))
        return found

    def _means(self, word: str, script: Module, place: Place) -> bool:
        """Whether a path in a command line is that of the script, which may not be the only one of its name."""
        tail = "/" + "/".join(part for part in word.split("/") if part not in {"", ".", ".."} and "$" not in part)
        if not script.path.endswith(tail):
            return False
        alike = self.project.search(_ends_so, (tail,), script.path)
        return len(alike) < 2 or os.path.dirname(script.path) == os.path.dirname(place.path)  # noqa: PLR2004 - itself

    def _told(self, script: Module) -> list[tuple[Place, list[str]]]:
        """Command lines with a launcher that the project's own pages show."""
        known = self._lines.get("pages")
        if known is None:
            known = []
            for path in sorted(self._pages()):
                self.project.readings.read(path)
                text = self.project.raw(path).decode("utf-8", "replace")
                known.extend((place, words) for place, words in _commands(path, text) if any(word in _LAUNCHERS for word in words))
            self._lines["pages"] = known
        del script
        return known

    def _pages(self) -> list[str]:
        try:
            return [os.path.join(self.project.top, name) for name in os.listdir(self.project.top) if name.lower().startswith("readme") and name.endswith(".md")]
        except OSError:
            return []

    def shell_lines(self, script: Module) -> list[tuple[Place, list[str]]]:
        """Command lines of shell scripts and notebooks, as words, with their places."""
        notebooks = self.project.search(_notebooks, (), script.path)
        known = self._lines.get("")
        if known is None:
            known = []
            for path in self.project.shell_files():
                text = self.project.raw(path).decode("utf-8", "replace")
                if "python" in text or "torchrun" in text or "accelerate" in text:
                    known.extend(_commands(path, text))
            for path in notebooks:
                module = self.project.find(path)
                if module is None:
                    continue
                for line in module.source.shell:
                    known.append((Place(path, line.cell, line.row, 1, line.row, len(line.text) + 2), _words(line.text)))
            self._lines[""] = known
        return known


@finder
def _ends_so(path: str, data: bytes, tail: str) -> str:
    del data
    return FOUND if path.endswith(tail) else ""


@finder
def _notebooks(path: str, data: bytes) -> str:
    """A notebook that may run a script, by its content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest() if path.endswith(".ipynb") and b".py" in data else ""


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def _commands(path: str, text: str) -> Iterator[tuple[Place, list[str]]]:
    """Logical lines of a shell script that run Python."""
    rows = text.split("\n")
    number = 0
    while number < len(rows):
        first = number
        line = rows[number].rstrip("\r")
        while line.endswith("\\") and number + 1 < len(rows):
            number += 1
            line = line[:-1] + " " + rows[number].rstrip("\r")
        number += 1
        if ".py" in line or " -m " in line:
            end = rows[number - 1]
            yield Place(path, 0, first + 1, 1, number, len(end) + 1), _words(line)


def _processes(words: list[str], base: str) -> int | Literal[False] | None:
    """How many processes a command line starts a script in. ``False`` where no launcher stands before it, or nothing says that there are several."""
    end = next((n for n, word in enumerate(words) if word == base or word.endswith("/" + base)), len(words))
    before = words[:end]
    launcher = next((os.path.basename(word) for word in before if os.path.basename(word) in _LAUNCHERS or os.path.basename(word) == "srun"), "")
    if not launcher:
        return False
    for number, word in enumerate(before):
        flag, equals, given = word.partition("=")
        if _COUNTS.fullmatch(flag):
            text = given if equals else (before[number + 1] if number + 1 < len(before) else "")
            default = _DEFAULT.fullmatch(text)
            text = default.group(1) if default else text
            return int(text) if _WHOLE_NUMBER.fullmatch(text) and int(text) > 0 else None
    several = launcher == "deepspeed" or (launcher == "accelerate" and "--multi_gpu" in before)
    return None if several else False


def _runs_module(words: list[str], script: Module, project: Project) -> bool:
    if "-m" not in words or words.index("-m") + 1 >= len(words):
        return False
    dotted = words[words.index("-m") + 1]
    relative = os.path.relpath(script.path, project.root)
    module = re.sub(r"(/__main__|/__init__)?\.py$", "", relative).replace(os.sep, ".")
    return module == dotted or module.endswith("." + dotted)
