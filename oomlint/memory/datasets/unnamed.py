"""Datasets that a project defines and never makes: nothing names them, while its loaders read others."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.datasets.dataset_readers import readers_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.model.index import index_of
from oomlint.model.readings import FOUND, AnswerMemory, finder

if TYPE_CHECKING:
    from oomlint.model.project import Project
    from oomlint.model.values import ClassRef
    from oomlint.syntax.scopes import Scope

# What finds a class by a text that only the run knows: a setting, an option, the name of a file.
_BY_TEXT: Final = re.compile(rb"\bimport_module\b|\b__import__\b|\b__subclasses__\b|\binstantiate\b|\bpydoc\b|\bLightningCLI\b|\bentry_points\b")
_BY_ATTRIBUTE: Final = re.compile(rb"\bgetattr\(\s*(?:\w+\.)*(\w+)\s*,\s*[^'\"\s]|\b(\w+)\.__dict__\[")
_BY_OWN_NAME: Final = re.compile(rb"\bglobals\(\)|\blocals\(\)|(?<![.\w])eval\s*\(")  # of what the file itself binds


class Unnamed:
    """Answers for classes. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._known: AnswerMemory[Scope, bool] = AnswerMemory(project.readings)

    def is_idle(self, cls: ClassRef) -> bool:
        """Whether a class is a dataset that no code of the project speaks of but its own, in a project whose loaders read others.

        Not where a decorator may register it, nor where the project finds classes by a text.
        """
        return self._known.answer(cls.scope, lambda: self._judge(cls))

    def _judge(self, cls: ClassRef) -> bool:
        node, module = cls.scope.node, cls.module
        if not isinstance(node, cst.ClassDef) or node.decorators or module.source.cells or not constructions_of(self.project).is_dataset(cls):
            return False
        if self.project.search(_names, (cls.scope.name,), module.path, cls.scope.name) or self.project.search(
            _finds_by_text, (module.path, *_ways(module.path)), module.path
        ):
            return False
        return readers_of(self.project).read_any(module)


@finder
def _names(path: str, data: bytes, name: str) -> str:
    """Whether a file speaks of a class anywhere but in the definition of one of that name."""
    del path
    word = re.escape(name.encode(errors="surrogateescape"))
    outside = re.sub(rb"^class[ \t]+" + word + rb"\b.*\n(?:(?:[ \t#].*)?\r?\n)*(?:[ \t].*)?", b"", data, flags=re.MULTILINE)
    return FOUND if re.search(rb"\b" + word + rb"\b", outside) else ""


def _ways(path: str) -> tuple[str, ...]:
    """By which modules the names of a file may be imported whole: its own, and the package that it is in."""
    folder, file = os.path.split(path)
    return os.path.splitext(file)[0], os.path.basename(folder)


@finder
def _finds_by_text(path: str, data: bytes, own: str, *ways: str) -> str:
    """Whether a file finds classes by what is written somewhere else, those of the file ``own`` among them."""
    if _BY_TEXT.search(data) is not None:
        return FOUND
    asked = {(found[1] or found[2]).decode(errors="surrogateescape") for found in _BY_ATTRIBUTE.finditer(data)}
    by_own_name = _BY_OWN_NAME.search(data) is not None
    if by_own_name and path == own:
        return FOUND
    index = index_of(data) if asked or by_own_name else None
    if index is None:
        return ""
    bound = any(module.rpartition(".")[2] in ways for module, _ in index.stars)
    return FOUND if not asked.isdisjoint(index.taken) or (by_own_name and bound) else ""
