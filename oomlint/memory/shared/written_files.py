"""What stands in a file that is read, where the project writes it: the objects that its calls dump under the same path."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.api_names import SAME_PATH
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import arguments, names
from oomlint.model.readings import AnswerMemory
from oomlint.model.values import Bound, Const, External, ExternalCall, Frame, FunctionRef, SourceExpression
from oomlint.syntax.nodes import descend, names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

# What writes an object to a file: the argument that is written, and the one that says where.
_DUMPS: Final = {
    **dict.fromkeys(("pickle.dump", "cPickle.dump", "_pickle.dump", "dill.dump", "cloudpickle.dump", "joblib.dump", "json.dump"), (("obj", 0), ("file", 1))),
    "torch.save": (("obj", 0), ("f", 1)),
    "numpy.save": (("arr", 1), ("file", 0)),
}
_METHODS: Final = frozenset({"to_pickle"})  # of tables, which they write themselves
_WRITING: Final = frozenset(name.rpartition(".")[2] for name in _DUMPS) | _METHODS
_OPENS: Final = frozenset({"open", "GzipFile", "BZ2File", "LZMAFile"})
_PERCENT: Final = re.compile(r"%[-+ #0-9.]*[a-zA-Z]")  # places for values in a text
_BRACES: Final = re.compile(r"\{[^{}]*\}")
_ANY: Final = "*"  # what nobody knows of a path
_DEEPEST: Final = 6  # names and calls between a path and its text
_MOST: Final = 4  # values of a path
_FEWEST: Final = 4  # characters that are known of a name of which others are not


class Dumped(Struct, frozen=True):
    """An object that a call writes to a file."""

    module: Module
    node: cst.BaseExpression  # the object
    frame: Frame
    call: cst.Call


class WrittenFiles:
    """Finds what writes a file. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)
        self._known: AnswerMemory[tuple[Scope, cst.BaseExpression], tuple[Dumped, ...]] = AnswerMemory(project.readings)

    def of(self, module: Module, scope: Scope, path: cst.BaseExpression | None) -> tuple[Dumped, ...]:
        """The objects that the project writes to the file that is read under a path; nothing where nobody knows."""
        if path is None:
            return ()
        return self._known.answer((scope, path), lambda: tuple(dict.fromkeys(self._found(module, scope, path))))

    def _found(self, module: Module, scope: Scope, path: cst.BaseExpression) -> Iterator[Dumped]:
        """What writes it: the same function or class, else the same file, else any other."""
        near = list(self._beside(module, scope, path))
        if near:
            yield from near
            return
        for frame in self.evaluator.calls.frames(module, scope, most=_MOST):
            for name in self.names_of(path, frame):
                piece = max(name.split(_ANY), key=len)
                if _ANY in name and len(piece.rpartition(".")[0] or piece) < _FEWEST:
                    continue  # `*.pkl` may be any file
                own = list(self._written_in(module, name, piece))
                others = (one for other in self.project.mentioning([piece.encode()], module.path) for one in self._written_in(other, name, piece))
                yield from own or others

    def _beside(self, module: Module, scope: Scope, path: cst.BaseExpression) -> Iterator[Dumped]:
        """What the same function, or another method of the class, writes under a path that is spelled in the same way."""
        asked = module.code(opened(module, scope, path)).strip()
        of_object = scope.parent is not None and scope.parent.is_class and asked.startswith(f"{names.self_name(scope)}.")
        for other in scope.parent.children if of_object and scope.parent is not None else (scope,):
            frame = self.evaluator.calls.plain_frame(module, other)
            for call in other.calls:
                for node, where in self._dump(call, frame):
                    if module.code(opened(module, other, where)).strip() == asked:
                        yield Dumped(module, node, frame, call)

    def _written_in(self, module: Module, name: str, piece: str) -> Iterator[Dumped]:
        """What the calls of a module write to a file of that name."""
        bound = {root for scope in module.walk.scopes for root, effects in scope.effects.items() for one in effects if _says(module, one.value, piece)}
        for call, scope in module.walk.calls:
            if not (names.last_name(call.func) in _WRITING or any(piece in module.code(arg.value) or bound & names_in(arg.value) for arg in call.args)):
                continue
            frame = self.evaluator.calls.plain_frame(module, scope)
            for node, where in self._dump(call, frame):
                if any(_same(name, other) for other in self.names_of(where, frame)):
                    yield Dumped(module, node, frame, call)
            if names.last_name(call.func) not in _WRITING:
                yield from self._by_function(call, frame, name)

    def _by_function(self, call: cst.Call, frame: Frame, name: str) -> Iterator[Dumped]:
        """What a function of the project writes for a call that hands it the path."""
        for alt in self.evaluator.values(call.func, frame)[:2]:
            function = alt.value
            if not isinstance(function, FunctionRef) or not any(names.last_name(one.func) in _WRITING for one in function.scope.calls):
                continue
            inner = Frame(function.module, function.scope, (Bound(tuple(call.args), frame, call),), function.this)
            for one in function.scope.calls:
                for node, where in self._dump(one, inner):
                    if any(_same(name, other) for other in self.names_of(where, inner)):
                        yield Dumped(function.module, node, inner, one)

    def _dump(self, call: cst.Call, frame: Frame) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
        """The object that a call writes, and the path."""
        last = names.last_name(call.func)
        if last not in _WRITING:
            return
        if last in _METHODS and isinstance(call.func, cst.Attribute) and call.args:
            yield call.func.value, call.args[0].value
            return
        for alt in self.evaluator.values(call.func, frame)[:2]:
            known = _DUMPS.get(names.canonical(alt.value.name)) if isinstance(alt.value, External) else None
            if known is not None:
                (word, place), (where, there) = known
                node, path = arguments.argument_for(call, word, place=place), arguments.argument_for(call, where, place=there)
                if node is not None and path is not None:
                    yield node, path

    def names_of(self, path: cst.BaseExpression, frame: Frame) -> list[str]:
        """The names of files that a path may have, without their folders; what is not known of them is ``*``."""
        texts = self._texts(opened(frame.module, frame.scope, path), frame, 0)
        found = (text.rpartition("/")[2] for text in texts)
        return [name for name in dict.fromkeys(found) if name.strip(_ANY)]

    def _texts(self, node: cst.BaseExpression, frame: Frame, depth: int) -> list[str]:
        if depth > _DEEPEST:
            return [_ANY]
        match node:
            case cst.SimpleString() | cst.ConcatenatedString():
                return [str(node.evaluated_value)]
            case cst.FormattedString():
                return ["".join(part.value if isinstance(part, cst.FormattedStringText) else _ANY for part in node.parts)]
            case cst.BinaryOperation(operator=cst.Add()):
                pairs = (self._texts(node.left, frame, depth + 1), self._texts(node.right, frame, depth + 1))
                return [left + right for left in pairs[0][:_MOST] for right in pairs[1][:_MOST]]
            case cst.BinaryOperation(operator=cst.Divide()):
                return self._texts(node.right, frame, depth + 1)
            case cst.BinaryOperation(operator=cst.Modulo()):
                return [_PERCENT.sub(_ANY, text) for text in self._texts(node.left, frame, depth + 1)]
            case cst.Call():
                return self._called(node, frame, depth)
        found: list[str] = []
        for alt in self.evaluator.values(node, frame)[:_MOST]:
            value = alt.value
            if isinstance(value, Const) and isinstance(value.value, str):
                found.append(value.value)
            elif isinstance(value, ExternalCall):
                found.extend(self._called(value.call, value.frame, depth + 1))
            elif isinstance(value, SourceExpression) and value.node is not node:
                found.extend(self._texts(value.node, value.frame, depth + 1))
        return found or [_ANY]

    def _called(self, call: cst.Call, frame: Frame, depth: int) -> list[str]:
        word, plain = names.last_name(call.func), list(arguments.plain(call))
        if word in {"join", "joinpath"} and plain:
            return self._texts(plain[-1], frame, depth + 1)
        if word in SAME_PATH | _OPENS and plain:
            return self._texts(plain[0], frame, depth + 1)
        if word in SAME_PATH | {"open"} and isinstance(call.func, cst.Attribute):
            return self._texts(call.func.value, frame, depth + 1)
        if word == "format" and isinstance(call.func, cst.Attribute):
            return [_BRACES.sub(_ANY, text) for text in self._texts(call.func.value, frame, depth + 1)]
        found: list[str] = []
        for alt in self.evaluator.values(call, frame)[:_MOST]:
            if isinstance(alt.value, Const) and isinstance(alt.value.value, str):
                found.append(alt.value.value)
            elif isinstance(alt.value, SourceExpression) and alt.value.node is not call:
                found.extend(self._texts(alt.value.node, alt.value.frame, depth + 1))
        return found or [_ANY]


def opened(module: Module, scope: Scope, path: cst.BaseExpression) -> cst.BaseExpression:
    """The call that opened what a name stands for where it is read: ``with open(path) as f``. One name may stand for one file after the other."""
    if isinstance(path, cst.Name):
        found = [effect for effect in scope.effects.get(path.value, ()) if isinstance(effect.value, cst.Call) and names.last_name(effect.value.func) in _OPENS]
        around = list(module.walk.ancestors(path))
        start = module.tree.span(path)
        inside = [effect for effect in found if effect.kind == "with" and effect.statement in around]
        before = inside or [effect for effect in found if module.tree.span(effect.node) < start] or found
        path = before[-1].value if before and before[-1].value is not None else path
    if isinstance(path, cst.Call) and names.last_name(path.func) in _OPENS and path.args:
        return path.args[0].value
    return path


def _says(module: Module, node: cst.BaseExpression | None, piece: str) -> bool:
    return node is not None and any(isinstance(part, cst.SimpleString | cst.FormattedString) and piece in module.code(part) for part in descend(node))


def _same(name: str, other: str) -> bool:
    """Whether two names of files may be the same."""
    return name == other or fnmatchcase(other, name) or fnmatchcase(name, other)


def written_files_of(project: Project) -> WrittenFiles:
    """What the files of a project hold that it writes itself."""
    return project.shared(WrittenFiles)
