"""What the files of a program set of each other: names of a module, and parts of what it gives a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec.structs import replace

from oomlint.model import names
from oomlint.model.callee_changes import FILLS, SETS, CalleeChanges, is_free, keys_of
from oomlint.syntax.nodes import UNKNOWN_KEY, path_of
from oomlint.syntax.scopes import CHANGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Effect, Scope


class ElsewhereChanges(CalleeChanges):
    """Tells whether another file of the program sets what is asked for."""

    def _home(self, root: str, module: Module) -> tuple[str, str] | None:
        """Where a name of a module comes from, that is given a value in another file of the project: that file, and its name there."""
        effects = [one for one in module.root.effects.get(root, ()) if not one.path]
        if len(effects) != 1 or effects[0].kind != "from":
            return None
        key = (module, root)
        if key not in self.homes:
            alias, statement = effects[0].node, effects[0].statement
            path, name = None, ""
            if isinstance(alias, cst.ImportAlias) and isinstance(statement, cst.ImportFrom):
                name = names.dotted(alias.name)
                path = self.project.locate(module.path, names.dotted(statement.module) if statement.module is not None else "", len(statement.relative))
            known = self.project.find(path) if path is not None and not path.endswith("/") and self.project.may_bind(path, name) else None
            given = known is not None and any(one.kind in {"assign", "class"} and not one.path for one in known.root.effects.get(name, ()))
            self.homes[key] = (path, name) if path is not None and given else None
        return self.homes[key]

    def set_elsewhere(self, home: tuple[str, str], rest: tuple[Accessor, ...], reader: Module) -> bool:
        """Whether another file of the program that is asked about sets a part of what a file gives a value: when it does so, nobody knows."""
        script = self.project.command.script if self.project.command is not None else ""
        key = ("elsewhere", script, home, rest, reader)
        if not script or key in self.active:
            return False
        if key not in self.elsewhere:
            self.active.add(key)
            try:
                others = [one for one in self._program(script) if one is not reader and one.path != home[0] and home[1] in one.source.text]
                named = ((one, name) for one in others for name in one.root.effects if rest and self._home(name, one) == home)
                self.elsewhere[key] = any(self._sets_part(name, rest, one) for one, name in named) or any(self._sets_member(home, rest, one) for one in others)
            finally:
                self.active.discard(key)
        return self.elsewhere[key]

    def _sets_part(self, root: str, rest: tuple[Accessor, ...], module: Module) -> bool:
        """Whether code of a module sets what is asked for of a name of it, or hands it to a function that does."""
        for scope in module.walk.scopes:
            if scope is module.root or is_free(root, scope, bound=True):
                keys = {key for one in scope.effects.get(root, ()) for key in keys_of(one, shared=False)}
                if not keys.isdisjoint({rest[0][1], UNKNOWN_KEY}) or self.changes(root, rest, self.calls.plain_frame(module, scope)):
                    return True
        return False

    def _sets_member(self, home: tuple[str, str], rest: tuple[Accessor, ...], module: Module) -> bool:
        """Whether code of a module does so by the name of the other file: ``settings.N = 5``, ``settings.kept["n"] = 5``."""
        wanted = (("attr", home[1]), *rest)
        for scope in module.walk.scopes:
            own = module.root.effects if scope is module.root else {**module.root.effects, **scope.effects}
            for root in own:
                binds = scope if scope.sets(root) else module.root
                given = [one for one in binds.effects.get(root, ()) if one.kind in {"import", "from"} and not one.path]
                ways = {way for one in given if (way := self._way_to_file(one, home[0], module)) is not None}
                for asked in ((*way, *wanted) for way in ways):
                    effects = [*scope.effects.get(root, ()), *_by_another_name(scope, root, asked)]
                    if any(_meets(one, asked) for one in effects) or self.changes(root, asked, self.calls.plain_frame(module, scope)):
                        return True
        return False

    def _way_to_file(self, effect: Effect, path: str, module: Module) -> tuple[Accessor, ...] | None:
        """What follows the name that an import binds, up to a file of the project; ``None`` where it leads to another one."""
        alias, statement = effect.node, effect.statement
        if not isinstance(alias, cst.ImportAlias):
            return None
        full, level = names.dotted(alias.name), 0
        parts = full.split(".")[1:] if effect.kind == "import" and alias.asname is None else []
        if isinstance(statement, cst.ImportFrom):
            level = len(statement.relative)
            full = f"{names.dotted(statement.module)}.{full}" if statement.module is not None else full
        return tuple(("attr", one) for one in parts) if self.project.locate(module.path, full, level) == path else None

    def _program(self, script: str) -> list[Module]:
        """The files of the project that a script imports, and itself."""
        if script not in self.programs:
            self.programs[script] = self.options.reached(script)
        return self.programs[script]


def _by_another_name(scope: Scope, root: str, wanted: tuple[Accessor, ...]) -> Iterator[Effect]:
    """Effects on what a name was given that leads to what is asked for: ``kept = settings.kept`` and ``kept["n"] = 5``."""
    for effects in scope.effects.values():
        for path in {way[1] for one in effects if one.value is not None and not one.path and (way := path_of(one.value)) is not None and way[0] == root}:
            if path == wanted[: len(path)]:
                yield from (replace(one, root=root, path=(*path, *one.path)) for one in effects if one.path or one.kind in FILLS)


def _meets(effect: Effect, wanted: tuple[Accessor, ...]) -> bool:
    """Whether an effect sets what is asked for, or something around it, or what nobody knows of that."""
    pairs = zip(effect.path, wanted, strict=False)
    return bool(effect.path) and effect.kind in SETS | CHANGES and all(UNKNOWN_KEY in {one[1], other[1]} or one[1] == other[1] for one, other in pairs)
