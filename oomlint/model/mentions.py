"""What a project does with a function or a class of its own: the calls of it, where it does nothing else, and nothing finds it by a text."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.discovery import METADATA
from oomlint.model import names
from oomlint.model.index import index_of
from oomlint.model.readings import FOUND, finder
from oomlint.model.values import Absent, ClassRef, FunctionRef, Unknown
from oomlint.scout.unparsable import is_python_2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Value
    from oomlint.syntax.scopes import Scope

# What calls a function by its name, and what may do so in a file that imports all of another one.
BY_TEXT: Final = re.compile(r"(?<![.\w])eval\s*\(|\b(?:globals|locals|getattr|Fire|sys\.modules|__dict__|ScriptModule)\b")
_RUNS_TEXT: Final = re.compile(rb"(?<![.\w])(?:eval|exec)\s*\(|\b(?:Fire|sys\.modules|__dict__)\b")
_GETS: Final = re.compile(rb"\bgetattr\(\s*(?:\w+\.)*(\w+)\s*,\s*[^'\"\s]|\b(?:import_module|__import__)\b")
_MOST_DERIVED: Final = 4  # classes, one of another
_MOST_FILES: Final = 24  # that speak of a name


class Mentions:
    """Answers for the definitions of a project."""

    def __init__(self, project: Project, evaluator: Evaluator) -> None:
        self.project = project
        self.evaluator = evaluator

    # -- classes ---------------------------------------------------------------------------------------------------------

    def of_class(self, module: Module, cls: Scope, depth: int = 0) -> list[tuple[Module, cst.Call, ClassRef]] | None:
        """The calls of a class, and of those that derive from it; ``None`` where anything else is done with one of them."""
        others = self._others(module, cls.name) if cls.parent is module.root and depth < _MOST_DERIVED else None
        if others is None:
            return None
        word = re.compile(rf"\b{re.escape(cls.name)}\b")
        calls: list[tuple[Module, cst.Call, ClassRef]] = []
        for other in (module, *others):
            if BY_TEXT.search(other.source.text):
                return None
            for part in other.walk.root.nodes():
                if isinstance(part, cst.SimpleString) and word.search(part.value):
                    return None  # a registry may find it
                if isinstance(part, cst.Name) and part.value == cls.name:
                    found = self._class_mentioned(other, part, ClassRef(module, cls), depth)
                    if found is None:
                        return None
                    calls += found
        return calls

    def _class_mentioned(self, module: Module, part: cst.Name, cls: ClassRef, depth: int) -> list[tuple[Module, cst.Call, ClassRef]] | None:
        """The calls that a mention of a class stands for; ``None`` where it is something else, or nobody knows."""
        above = module.walk.parents.get(part)
        holder = module.walk.parents.get(above) if above is not None else None
        if above is cls.scope.node or (isinstance(above, cst.ImportAlias) and above.asname is None):
            return []
        if isinstance(above, cst.Arg) and above.value is part and isinstance(holder, cst.ClassDef):
            return self.of_class(module, module.walk.scope_of[holder], depth + 1)
        if not isinstance(above, cst.Call) or above.func is not part:
            return None
        found = [alt.value for alt in self.evaluator.values(part, self.evaluator.calls.plain_frame(module, module.walk.scope_at(above)))]
        return [(module, above, cls)] if found == [cls] else None

    # -- functions -------------------------------------------------------------------------------------------------------

    def here(self, module: Module, scope: Scope) -> list[cst.Call] | None:
        """The calls of a function of a file outside of itself, where nothing else can be done with it, by another file or by its name."""
        calls = self._named_here(module, scope)
        if calls is None or self._is_entry(scope.name):
            return None
        found = self.project.search(_speaks_of, (scope.name, _stem(module.path)), module.path, scope.name)
        return None if any(path != module.path for path in found) else calls or None

    def of_function(self, module: Module, scope: Scope) -> Iterator[tuple[Module, cst.Call] | None]:
        """The calls of a function outside of itself, those of its file first; ``None`` where something else is done with it, or may be."""
        calls = self._named_here(module, scope)
        yield from ((module, call) for call in calls or ())
        others = None if calls is None or self._is_entry(scope.name) else self._others(module, scope.name)
        if others is None:
            yield None
            return
        for other in others:
            yield from self._named_there(other, FunctionRef(module, scope))
        if others and self.project.search(_looks_up, (_stem(module.path),), module.path):
            yield None

    def _named_here(self, module: Module, scope: Scope) -> list[cst.Call] | None:
        node, walk = scope.node, module.walk
        refs = [part for part in walk.root.named(scope.name) if not self._means_another(module, scope, part)]
        calls = [walk.parents.get(part) for part in refs]
        if not all(isinstance(call, cst.Call) and call.func is part for call, part in zip(calls, refs, strict=True)):
            return None
        return [call for call in calls if isinstance(call, cst.Call) and node not in walk.ancestors(call)]

    @staticmethod
    def _means_another(module: Module, scope: Scope, part: cst.Name) -> bool:
        """Whether a name is not that of a function of its file: it is the one in its definition, a keyword, an attribute, or of a parameter or a variable."""
        above, here = module.walk.parents.get(part), module.walk.scope_at(part)
        if above is scope.node or module.walk.is_word(part) or (isinstance(above, cst.Param) and above.name is part):
            return True
        while here.parent is not None:
            if not here.is_class and (here.sets(part.value) or part.value in names.parameter_names(here)):
                return True
            here = here.parent
        return False

    def _named_there(self, module: Module, function: FunctionRef) -> Iterator[tuple[Module, cst.Call] | None]:
        """The calls of a function of another file; ``None`` for what may be something else that is done with it."""
        name, walk = function.scope.name, module.walk
        index = self.project.index(module.path)
        imports = index is None or bool({_stem(function.module.path), name} & index.imported) or bool(index.stars)
        for part in walk.root.nodes():
            above = walk.parents.get(part)
            if isinstance(part, cst.SimpleString):
                if imports and part.evaluated_value == name:
                    yield None
            elif isinstance(part, cst.ImportAlias):
                source = walk.parents.get(part)
                if (
                    isinstance(source, cst.ImportFrom)
                    and names.dotted(part.name) == name
                    and (part.asname is not None or _stem(module.path) != _file(module.path))
                ):
                    yield None  # under another name, or by way of a package
            elif isinstance(part, cst.Name) and part.value == name and not isinstance(above, cst.ImportAlias | cst.Attribute):
                if not self._means_another(module, function.scope, part):
                    yield from self._use(module, part, function)
            elif isinstance(part, cst.Attribute) and part.attr.value == name and self._is_of_a_file(module, part):
                yield from self._use(module, part, function)

    def _use(self, module: Module, node: cst.BaseExpression, function: FunctionRef) -> Iterator[tuple[Module, cst.Call] | None]:
        """What is done with something of the name of a function: nothing where it is known to be something else."""
        above = module.walk.parents.get(node)
        if isinstance(above, cst.AssignTarget | cst.FunctionDef | cst.ClassDef | cst.Import | cst.ImportFrom):
            return
        found = [alt.value for alt in self.evaluator.values(node, self.evaluator.calls.plain_frame(module, module.walk.scope_at(node)))]
        if not found or any(_may_be(value, function) for value in found):
            yield (module, above) if isinstance(above, cst.Call) and above.func is node and found == [function] else None

    @staticmethod
    def _is_of_a_file(module: Module, node: cst.Attribute) -> bool:
        """Whether the root of a dotted name is imported, and no object that has a method of that name."""
        root = names.dotted(node).partition(".")[0]
        bound = [effect for scope in module.walk.scopes for effect in scope.effects.get(root, ()) if not effect.path]
        return any(effect.kind in {"import", "from"} for effect in bound)

    def _others(self, module: Module, name: str) -> list[Module] | None:
        """The other files that speak of a name and may mean that of this file, nearest first; ``None`` where they are too many, or one cannot be read."""
        spoken, leads = self.project.search(_speaks_of, (name, name), module.path, name), self.project.may_import
        found = [path for path in spoken if path != module.path and leads(path, module.path)]
        if len(found) > _MOST_FILES:
            return None
        others = [(path, self.project.find(path)) for path in sorted(found, key=lambda path: (-len(os.path.commonpath([path, module.path])), path))]
        if any(other is None and not self._is_no_program(path) for path, other in others):
            return None
        return [other for _, other in others if other is not None]

    def _is_no_program(self, path: str) -> bool:
        """Whether no interpreter runs a file."""
        data = self.project.raw(path)
        return index_of(data) is None and not is_python_2(data.decode(errors="replace"))

    def _is_entry(self, name: str) -> bool:
        """Whether the metadata of the project make a command of a function."""
        spoken = re.compile(rf":\s*{re.escape(name)}\b".encode())
        return any(spoken.search(self.project.raw(os.path.join(folder, one))) for folder in {self.project.root, self.project.top} for one in METADATA)


def _may_be(value: Value, function: FunctionRef) -> bool:
    """Whether a value may be a function: it is that one, or nobody knows what it is."""
    return isinstance(value, Unknown | Absent) or (isinstance(value, FunctionRef) and value.scope is function.scope)


def _file(path: str) -> str:
    return os.path.basename(path).removesuffix(".py")


def _stem(path: str) -> str:
    """By which name imports speak of a file: of that of a package by its folder's."""
    return os.path.basename(os.path.dirname(path)) if _file(path) == "__init__" else _file(path)


@finder
def _speaks_of(path: str, data: bytes, name: str, stem: str) -> str:
    """Whether a file speaks of a module, and of a name."""
    del path
    words = (re.escape(word.encode(errors="surrogateescape")) for word in (name, stem))
    return FOUND if all(re.search(rb"\b" + word + rb"\b", data) for word in words) else ""


@finder
def _looks_up(path: str, data: bytes, stem: str) -> str:
    """Whether a file may find what is in one of such a name by a text that only the run knows."""
    del path
    owners = {found[1] for found in _GETS.finditer(data)}
    by_text = _RUNS_TEXT.search(data) is not None
    index = index_of(data) if owners or by_text else None
    if index is None:
        return FOUND if owners or by_text else ""
    if None in owners and len(owners) > 1:
        return FOUND  # of a module that it imports by a text
    ours = {one.bound.encode() for one in index.imports if (one.name or one.module.rpartition(".")[2]) == stem}
    return FOUND if owners & ours or (by_text and stem in index.imported) else ""
