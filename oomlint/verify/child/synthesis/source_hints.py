"""What the user's own code says about the data that it reads: the text of its file, and the row that is about to unpack a value."""

from __future__ import annotations

import ast
import dis
import re
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.loading import import_names
from oomlint.verify.child.synthesis.file_specs_plain import Hints

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType


KEYED: Final = frozenset(("get", "pop", "require_group"))
LONG: Final = 24  # characters of a key
LARGEST: Final = 1024  # of an axis


def read(paths: Iterable[str], name: str) -> Hints:
    """Hints of the class or function of that name, then of the rest of its files."""
    hints = Hints()
    marks: list[str] = []
    for path in paths:
        try:
            tree = ast.parse(import_names.text(path))
        except SyntaxError:
            continue
        last = name.rpartition(".")[2]
        heads = [node for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in (last, name.partition(".")[0])]
        for head in [*heads, tree]:
            for node in ast.walk(head):
                _key(node, hints) if head is not tree or not heads else None
                _constant(node, hints)
                _mark(node, marks)
    if marks:
        return Hints(hints.keys, hints.suffixes, hints.numbers, hints.words, marks[0])
    return hints


def _add(found: list[str], text: str) -> None:
    if text not in found:
        found.append(text)


def _key(node: ast.AST, hints: Hints) -> None:
    text: object = None
    match node:
        case ast.Subscript(value, ast.Constant(str(text)), ast.Load()) if "environ" not in ast.unparse(value):
            pass
        case ast.Call(ast.Attribute(_, attr), [ast.Constant(str(text)), *_]) if attr in KEYED:
            pass
        case ast.Compare(ast.Constant(str(text)), [ast.In() | ast.NotIn()]):
            pass
    if isinstance(text, str) and 0 < len(text) <= LONG and re.search(r"\w", text) and "/" not in text:
        _add(hints.keys, text)


def called(path: str, name: str, parameters: list[str]) -> dict[str, Any]:
    """The constants that the first call of a class in a file hands over, by parameter."""
    for node in ast.walk(ast.parse(import_names.text(path))):
        match node:
            case ast.Call(ast.Name(id=function) | ast.Attribute(attr=function), args, keywords) if function == name:
                pairs = [*zip(parameters, args, strict=False), *((item.arg, item.value) for item in keywords)]
                return {key: value.value for key, value in pairs if key and isinstance(value, ast.Constant)}
    return {}


def _constant(node: ast.AST, hints: Hints) -> None:
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return
    if isinstance(node.value, int) and 1 < node.value <= LARGEST and node.value not in hints.numbers:
        hints.numbers.append(node.value)
    if isinstance(node.value, str) and 0 < len(node.value) <= LONG and "\n" not in node.value:
        if match := re.fullmatch(r"[\w*{}]*(\.[a-zA-Z][a-zA-Z0-9]{1,4})", node.value):
            _add(hints.suffixes, match.group(1))
        _add(hints.words, node.value)


def _mark(node: ast.AST, marks: list[str]) -> None:
    match node:
        case ast.Call(ast.Attribute(_, "split"), [ast.Constant(str(mark)), *_]) if mark in (",", "\t", " ", ";", "|", ":"):
            _add(marks, mark)
        case ast.keyword("delimiter" | "sep", ast.Constant(str(mark))) if mark in (",", "\t", " ", ";", "|"):
            _add(marks, mark)


def unpacked(frame: FrameType | None) -> tuple[int, list[str]]:
    """Whether a frame is about to unpack a value: to how many names, and which; 0 if it goes through it otherwise."""
    if frame is None or frame.f_lasti < 0:
        return 0, []
    code = frame.f_code.co_code
    operation = dis.opname[code[frame.f_lasti]]
    if operation not in ("UNPACK_SEQUENCE", "UNPACK_EX"):
        return 0, []
    count = code[frame.f_lasti + 1]
    if operation == "UNPACK_EX":
        return count + 2, []
    names: list[str] = []
    skip = 0
    for step in dis.get_instructions(frame.f_code):
        if step.offset <= frame.f_lasti or len(names) >= count:
            continue
        if step.opname.startswith("UNPACK_"):
            skip += step.arg or 0
            names.append("")
        elif step.opname.startswith("STORE_"):
            stored = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            for name in stored[: 2 if step.opname == "STORE_FAST_STORE_FAST" else 1]:
                if skip:
                    skip -= 1
                else:
                    names.append(str(name))
        elif step.opname not in ("CACHE", "EXTENDED_ARG", "SWAP", "NOP") and not step.opname.startswith("LOAD_"):
            break
    return count, names[:count]
