"""Whether the path of a file says that it has one small value a sample, or a summary."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import SAME_PATH
from oomlint.memory.shared.attribute_names import small_name
from oomlint.memory.shared.qualified_names import library_name
from oomlint.memory.shared.written_files import opened
from oomlint.model import arguments, names
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from oomlint.memory.arrays.read_calls import FileRead
    from oomlint.model.project import Module

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|(?<=[A-Za-z])2(?=[A-Za-z])(?![dD](?![a-z]))")  # `word2id`, but not `pose2d` or `rgb21c`
_DEEPEST_PATH: Final = 6  # calls and names between a path and its text
_PATH_WORDS: Final = frozenset({"path", "file", "filename", "filepath", "dir", "name"})


def of_small_file(read: FileRead) -> bool:
    """Whether the path that a call is given says that the file has one small value a sample, or a summary."""
    path = opened(read.module, read.scope, read.path) if read.path is not None else None
    if read.by and isinstance(path, cst.Name | cst.Attribute) and not _PATH_WORDS.intersection(_words(names.last_name(path))[-1:]):
        return False  # what a function of the project is given may be the number of a sample: it says which file, and not what is in it
    return small_file(read.module, path)


def small_file(module: Module, path: cst.BaseExpression | None, depth: int = 0) -> bool:
    """Whether a path says by its last words that the file has one small value a sample, or a summary; a name of it only where its value is not in sight."""
    if path is None or depth > _DEEPEST_PATH:
        return False
    if isinstance(path, cst.Call):
        plain = arguments.plain(path)
        called = library_name(module.project, path.func, module, module.walk.scope_at(path))
        word = called.rpartition(".")[2] or names.last_name(path.func)
        if word == "open" and plain:
            return small_file(module, plain[0], depth + 1)
        if word in SAME_PATH | {"join", "joinpath"} and plain:
            return small_file(module, plain[-1], depth + 1)
        if isinstance(path.func, cst.Attribute) and path.func.attr.value in {"format", "replace"}:
            return small_file(module, path.func.value, depth + 1)
    if isinstance(path, cst.BinaryOperation):
        last = path.right if isinstance(path.operator, cst.Divide | cst.Add) else path.left
        if isinstance(path.operator, cst.Add) and isinstance(last, cst.SimpleString) and not _stem(str(last.evaluated_value)):
            last = path.left  # `name + ".npy"`
        return small_file(module, last, depth + 1)
    bound = _bound(module, path)
    if bound:
        return all(small_file(module, value, depth + 1) for value in bound)
    if isinstance(path, cst.FormattedString):
        text = "".join(part.value for part in path.parts if isinstance(part, cst.FormattedStringText))
    elif isinstance(path, cst.SimpleString):
        text = str(path.evaluated_value)
    else:
        text = names.last_name(path)
    words = _stem(text)
    while words and words[-1] in _PATH_WORDS:
        words.pop()
    return small_name("_".join(words)) or any(word in {"to", "2"} for word in words[1:-1])


def _bound(module: Module, path: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The paths that a local name is bound to, where they are written out: made of a string."""
    if not isinstance(path, cst.Name):
        return []
    effects = [effect for effect in module.walk.scope_at(path).effects.get(path.value, ()) if not effect.path and effect.kind != "with"]
    values = [effect.value for effect in effects if effect.kind == "assign" and not effect.index and effect.value is not None]
    told = [value for value in values if any(isinstance(part, cst.BaseString | cst.FormattedString) for part in descend(value))]
    return told if len(told) == len(effects) else []


def _stem(text: str) -> list[str]:
    """The words of a file's name, without its folder and its ending."""
    return _words(text.rpartition("/")[2].partition(".")[0])


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]
