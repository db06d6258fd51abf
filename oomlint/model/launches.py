"""Launches: the values that shell scripts, notebooks and other scripts of the project give to a script's options."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Place
from oomlint.model.readings import Memory, finder
from oomlint.model.values import Alternative, Const, Step, picked
from oomlint.syntax.walk import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.model.questions import Questions

_SHELL_FILES = (".sh", ".bash", ".slurm", ".sbatch")
_MOST_ENTRIES = 50_000  # files and folders that are looked at
_MOST_SHELL_FILES = 400  # more scripts than anyone reads
_MOST_LAUNCHES = 8
_WHOLE_NUMBER = re.compile(r"-?\d+")


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
            for module in self.project.mentioning([flag.encode(), base.encode()], script.path):
                if module is script:
                    continue
                for node in descend(module.tree.module):
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

    def shell_lines(self, script: Module) -> list[tuple[Place, list[str]]]:
        """Command lines of shell scripts and notebooks, as words, with their places."""
        notebooks = self.project.search(_notebooks, (), script.path)
        known = self._lines.get("")
        if known is None:
            known = []
            for path in self._shell_files():
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

    def _shell_files(self) -> list[str]:
        found: list[str] = []
        seen = 0
        for folder, folders, files in os.walk(self.project.top):
            seen += len(folders) + len(files)
            folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in {"node_modules", "venv", "site-packages", "__pycache__"})
            found.extend(os.path.join(folder, f) for f in sorted(files) if f.endswith(_SHELL_FILES))
            if len(found) > _MOST_SHELL_FILES or seen > _MOST_ENTRIES:
                break
        return found


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


def _runs_module(words: list[str], script: Module, project: Project) -> bool:
    if "-m" not in words or words.index("-m") + 1 >= len(words):
        return False
    dotted = words[words.index("-m") + 1]
    relative = os.path.relpath(script.path, project.root)
    module = re.sub(r"(/__main__|/__init__)?\.py$", "", relative).replace(os.sep, ".")
    return module == dotted or module.endswith("." + dotted)
