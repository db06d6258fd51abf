"""Answers are looked for once, whatever they are, and carry the files that they rest on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from oomlint.config import Settings
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model.project import Project
from oomlint.model.readings import AnswerMemory, Readings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("answer", [7, None, ()], ids=["a number", "nothing", "an empty tuple"])
def test_an_answer_is_looked_for_once(answer: object) -> None:
    """``None`` is an answer like any other, and whoever is given it has read what it rests on."""
    readings = Readings()
    memory: AnswerMemory[str, object] = AnswerMemory(readings)
    asked = 0

    def find() -> object:
        nonlocal asked
        asked += 1
        readings.read("data.py")
        return answer

    assert [memory.answer("size", find) for _ in range(3)] == [answer] * 3
    assert asked == 1
    assert readings.end() == ("data.py",)
    assert memory.answer("size", find) == answer
    assert readings.end() == ("data.py",)


def test_an_answer_may_be_that_to_another_question() -> None:
    """To see whether there is one opens no question."""
    readings = Readings()
    memory: AnswerMemory[str, int] = AnswerMemory(readings)
    assert memory.known("all") is None
    assert not readings.asked

    def find() -> int:
        readings.read("data.py")
        return 3

    memory.answer("six", find)
    memory.answers_too("six", "all")
    readings.begin()
    assert memory.known("all") == 3
    assert readings.end() == ("data.py",)


def test_few_calls_that_are_all_there_are_answer_every_question(tmp_path: Path) -> None:
    """Calls of a function are looked for once, whoever asks for how many; where all are known, some of them are, too."""
    (tmp_path / "tools.py").write_text("def scale(x):\n    return x\n\n\ndef clip(x):\n    return x\n")
    (tmp_path / "use.py").write_text("from tools import clip, scale\n\nscale(1)\nscale(2)\nclip(1)\nclip(2)\nclip(3)\n")
    project = Project(str(tmp_path), Settings())
    module = project.module(str(tmp_path / "tools.py"))
    scale, clip = (scope for scope in module.walk.scopes if scope.is_function)
    calls = evaluator_of(project).calls
    asked = [calls.sites(module, scale, most=6), calls.sites(module, clip), calls.sites(module, clip, most=1)]
    assert [len(found) for found in asked] == [2, 3, 1]
    assert calls.sites(module, scale) is asked[0]
    assert asked[2] == asked[1][:1]
