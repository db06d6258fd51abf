"""Names that the scope itself does not bind: parameters, enclosing functions, module globals, imports, builtins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import names
from oomlint.model.parameters import Parameters
from oomlint.model.questions import UNKNOWN
from oomlint.model.values import (
    Alternative,
    Alternatives,
    ClassRef,
    Const,
    External,
    Frame,
    Instance,
    ModuleRef,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Effect, Scope
    from oomlint.syntax.walk import Walk


class Outside(Parameters):
    """Looks a name up outside of its scope."""

    def outside(self, root: str, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """A name that the scope itself did not bind before its use."""
        scope = frame.scope
        if scope.is_function and root == names.self_name(scope):
            return self._self(accessors, frame)
        if names.is_parameter(scope, root):
            return self.parameter(root, accessors, frame)
        return self._builtin(root, accessors, frame) if scope.parent is None else self.resolve(root, accessors, self.around(frame), None)

    def around(self, frame: Frame) -> Frame:
        """The frame of the function, or of the module, that a scope stands in: a method does not see the names of its class."""
        parent = frame.scope.parent
        while parent is not None and parent.is_class:
            parent = parent.parent
        if parent is None or parent.parent is None:
            return self.module_frame(frame.module)
        if frame.outer is not None and frame.outer.scope is parent:
            return frame.outer
        return Frame(frame.module, parent, None, frame.this if names.is_method(parent) else None)

    def _builtin(self, root: str, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        unseen = False
        for effect in frame.scope.effects.get("*", ()):
            statement = effect.node
            if not isinstance(statement, cst.ImportFrom):
                continue
            source = names.dotted(statement.module) if statement.module is not None else ""
            path = self.project.locate(frame.module.path, source, len(statement.relative))
            if path is not None:
                if not self.project.may_bind(path, root) and self.project.submodule(path, root) is None:
                    continue
                value = self.module_at(path)
                if isinstance(value, ModuleRef) and value.module is not None and value.module is not frame.module:
                    found = self.module_member(value, root, accessors)
                    if not all(isinstance(a.value, Unknown) for a in found):
                        return found
            elif root in names.STAR_EXPORTS.get(names.canonical(source), ()):
                return self.reach_into(Alternative(External(f"{names.canonical(source)}.{root}")), accessors)
            else:
                unseen = unseen or source.partition(".")[0] not in names.NAMESAKES
        if root == "__file__":
            return self.reach_into(Alternative(Const(frame.module.path)), accessors)
        if root in names.BUILTINS:
            return self.reach_into(Alternative(External(f"builtins.{root}")), accessors)
        if unseen and root in names.USUAL:
            return self.reach_into(Alternative(External(names.USUAL[root])), accessors)
        return [Alternative(UNKNOWN)]

    def _self(self, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        this = frame.this
        if this is None:
            parent = frame.scope.parent
            if parent is None:
                return [Alternative(UNKNOWN)]
            this = Instance(ClassRef(frame.module, parent), None)
        found = this.cls if names.takes_class(frame.scope) else this
        return self.into_value(found, accessors) if accessors else [Alternative(found)]

    def imported(self, effect: Effect, rest: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """What ``import a.b`` binds, followed by ``rest``."""
        alias = effect.node
        if not isinstance(alias, cst.ImportAlias):
            return [Alternative(UNKNOWN)]
        full = names.dotted(alias.name)
        name = full if alias.asname is not None else full.split(".")[0]  # `import a.b` binds `a`
        path = self.project.locate(frame.module.path, name)
        while path is not None and path.endswith("/") and rest and rest[0][0] == "attr":
            # A package without `__init__.py` may lie in several folders: only what is asked for tells which one is meant.
            deeper = self.project.locate(frame.module.path, f"{name}.{rest[0][1]}")
            if deeper is None:
                break
            path, name, rest = deeper, f"{name}.{rest[0][1]}", rest[1:]
        value: Value = self.module_at(path) if path is not None else External(names.canonical(name))
        return self._unless_set(path, self.reach_into(Alternative(value), rest), rest, frame)

    def _unless_set(self, path: str | None, found: Alternatives, rest: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """What a file gives a name of it, and that this is unknown where another file of the program sets it."""
        while path is not None and len(rest) > 1 and not self.project.may_bind(path, str(rest[0][1])):  # `package.settings.N`
            path, rest = self.project.submodule(path, str(rest[0][1])), rest[1:]
        told = bool(rest) and rest[0][0] == "attr" and path is not None and not path.endswith("/")
        return [*found, Alternative(UNKNOWN)] if told and path is not None and self.set_elsewhere((path, str(rest[0][1])), rest[1:], frame.module) else found

    def imported_from(self, effect: Effect, rest: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """What ``from a import b`` binds, followed by ``rest``."""
        alias, statement = effect.node, effect.statement
        if not isinstance(alias, cst.ImportAlias) or not isinstance(statement, cst.ImportFrom):
            return [Alternative(UNKNOWN)]
        name = names.dotted(alias.name)
        source = names.dotted(statement.module) if statement.module is not None else ""
        path = self.project.locate(frame.module.path, source, len(statement.relative))
        if path is None:
            if statement.relative:
                return [Alternative(UNKNOWN)]
            return self.reach_into(Alternative(External(names.canonical(f"{source}.{name}"))), rest)
        if path.endswith("/") and not statement.relative:
            path = self.project.locate(frame.module.path, f"{source}.{name}")
            return self.reach_into(Alternative(self.module_at(path) if path is not None else UNKNOWN), rest)
        if not self.project.may_bind(path, name):
            return self._unless_set(self.project.submodule(path, name), self._submodule(path, name, rest), rest, frame)
        value = self.module_at(path)
        if isinstance(value, ModuleRef):
            found = self.module_member(value, name, rest)
            return [*found, Alternative(UNKNOWN)] if rest and self.set_elsewhere((path, name), rest, frame.module) else found
        return [Alternative(UNKNOWN)]

    def module_member(self, value: ModuleRef, name: str, rest: tuple[Accessor, ...]) -> Alternatives:
        """A name of a module of the project, followed by ``rest``."""
        if value.module is not None:
            scope = value.module.root
            if name in scope.effects or "*" in scope.effects:
                found = self.resolve(name, rest, self.module_frame(value.module), None)
                if not all(isinstance(a.value, Unknown) for a in found):
                    return found
        return self._submodule(value.path, name, rest)

    def _submodule(self, path: str, name: str, rest: tuple[Accessor, ...]) -> Alternatives:
        deeper = self.project.submodule(path, name)
        return [Alternative(UNKNOWN)] if deeper is None else self.reach_into(Alternative(self.module_at(deeper)), rest)

    def module_at(self, path: str) -> Value:
        """The module of the project at a path."""
        if path.endswith("/"):
            return ModuleRef(path, None)
        module = self.project.find(path)
        return ModuleRef(path, module) if module is not None else UNKNOWN


def set_only_inside(walk: Walk, root: str) -> list[Scope]:
    """Functions that set a name of their module, ``global args``, where the module itself gives it nothing, or ``None``: it is what they make of it."""
    if root not in walk.shared:
        return []
    own = [effect for effect in walk.root.effects.get(root, ()) if not effect.path]
    if any(not (isinstance(effect.value, cst.Name) and effect.value.value == "None") for effect in own):
        return []
    return [scope for scope in walk.scopes if root in scope.outer and scope.sets(root)]
