"""Which functions a program runs, as far as calls can be followed: what is written for another script holds none of its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import is_inside
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.model.reach import path_conditions
from oomlint.model.values import ClassRef, FunctionRef, Instance, Partial

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oomlint.finding import Place
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame, Value
    from oomlint.syntax.scopes import Scope

_MOST: Final = 4000  # functions
_MOST_FRAMES: Final = 4
_STATEMENTS: Final = (cst.SimpleStatementLine, cst.BaseCompoundStatement)


class ProgramReach:
    """The functions that a file's run leads to."""

    def __init__(self, project: Project, modules: Sequence[Module]) -> None:
        self.evaluator = evaluator_of(project)
        self._modules = {module.path: module for module in modules}
        self._entry = modules[0] if modules else None
        self._seen: set[Scope] = set()
        self._left_out: dict[Scope, bool] = {}
        queue = [(module, module.root) for module in modules]
        if self._entry is not None:  # what an installed command or a framework calls
            functions = (scope for scope in self._entry.walk.scopes if isinstance(scope.node, cst.FunctionDef))
            queue += [(self._entry, scope) for scope in functions if not self._calls(self._entry, scope) and not self._is_left_out(self._entry, scope)]
        while queue and len(self._seen) < _MOST:
            module, scope = queue.pop()
            if scope not in self._seen:
                self._seen.add(scope)
                queue.extend(self._called(module, scope))

    def runs(self, place: Place) -> bool:
        """Whether the code at a place is run, or may be: a function that nobody is seen to call may be called by anybody."""
        module = self._modules.get(place.path)
        if module is None:
            return False
        inner = [scope for scope in module.walk.scopes if scope.is_function and scope.parent is not None and is_inside(place, module.place(scope.node))]
        if not all(scope in self._seen or not (self._calls(module, scope) or self._is_left_out(module, scope)) for scope in inner):
            return False
        scope = inner[-1] if inner else module.root
        around = [node for node in scope.nodes(inner=False) if isinstance(node, _STATEMENTS) and is_inside(place, module.place(node))]
        frames = self.evaluator.calls.frames(module, scope, most=_MOST_FRAMES) or [self.evaluator.calls.plain_frame(module, scope)]
        return not around or any(self.evaluator.where(around[-1], frame) for frame in frames)

    def _is_left_out(self, module: Module, scope: Scope) -> bool:
        """Whether a function that nobody calls by its name is only named under tests that this command fails: ``step = train_gan``."""
        if scope.parent is not module.root or not isinstance(scope.node, cst.FunctionDef):
            return False
        if scope not in self._left_out:
            named = [
                (one, node)
                for one in self._modules.values()
                if scope.name in one.source.text
                for node in one.root.nodes()
                if isinstance(node, cst.Name) and node.value == scope.name and not self._only_binds(one, node)
            ]
            plain = [(node, self.evaluator.calls.plain_frame(one, one.walk.scope_at(node))) for one, node in named]
            self._left_out[scope] = bool(plain) and not any(self.evaluator.where(node, frame) for node, frame in plain)
        return self._left_out[scope]

    @staticmethod
    def _only_binds(module: Module, node: cst.Name) -> bool:
        """Whether a name is where it is defined, imported or given as a keyword."""
        above = module.walk.parents.get(node)
        return isinstance(above, cst.FunctionDef | cst.ImportAlias | cst.AsName | cst.Param) or (isinstance(above, cst.Arg) and above.keyword is node)

    def _calls(self, module: Module, scope: Scope) -> bool:
        """Whether a call of a function is seen anywhere; of a method that a framework calls, one of its class."""
        if not isinstance(scope.node, cst.FunctionDef):
            return False
        if self.evaluator.calls.sites(module, scope, 1):
            return True
        method = names.is_method(scope) and scope.parent is not None
        return method and scope.parent is not None and bool(self.evaluator.calls.instances(module, scope.parent, most=1))

    def _called(self, module: Module, scope: Scope) -> Iterator[tuple[Module, Scope]]:
        frame = self.evaluator.calls.plain_frame(module, scope)
        for call in scope.calls:
            if scope is module.root and module is not self._entry and only_as_script(module, call):
                continue
            if not self.evaluator.where(call, frame):
                continue  # under a test that this command fails
            handed = [arg.value for arg in call.args if isinstance(arg.value, cst.Name | cst.Attribute)]
            for node in (call.func, *handed):
                yield from self._leads(node, frame)
        for inner in scope.children:
            if not inner.is_class and not isinstance(inner.node, cst.FunctionDef):
                yield module, inner  # a lambda, a comprehension

    def _leads(self, node: cst.BaseExpression, frame: Frame) -> Iterator[tuple[Module, Scope]]:
        for alt in [one for one in self.evaluator.values(node, frame) if not one.reach][:6]:
            value: Value = alt.value
            while isinstance(value, Partial):
                value = value.func
            if isinstance(value, FunctionRef):
                yield value.module, value.scope
            elif isinstance(value, Instance):
                yield from self._methods(value.cls)
            elif isinstance(value, ClassRef):
                yield from self._methods(value)

    def _methods(self, cls: ClassRef) -> Iterable[tuple[Module, Scope]]:
        for base in self.evaluator.lineage(cls):
            if isinstance(base, ClassRef):
                yield from ((base.module, child) for child in base.scope.children if child.is_function)


def only_as_script(module: Module, node: cst.CSTNode) -> bool:
    """Whether code at the top of a module stands under ``if __name__ == "__main__"``."""
    return any("__name__" in module.code(test) for test, _ in path_conditions(module.walk, module.root, node))
