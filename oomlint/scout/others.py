"""The functions of other files that a file calls, as far as its text tells whose they are."""

from __future__ import annotations

import ast
import builtins
from typing import Final

from oomlint.scout.forms import name_of

_BUILTINS: Final = frozenset(dir(builtins))


class Others:
    """Notes imports and calls, in any order; what a name means is asked at the end."""

    def __init__(self) -> None:
        self._called: set[tuple[str, str, bool]] = set()  # what the name of a function begins with, its last name, and whether that is all of it
        self._imported: dict[str, tuple[str, str]] = {}  # names and the module that they are from, with what they are called there
        self._stars: set[str] = set()  # modules of which everything is imported

    def imports(self, node: ast.Import | ast.ImportFrom) -> None:
        """Note what an import binds."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                self._imported[alias.asname or top] = (alias.name if alias.asname else top, "")
            return
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self._stars.add(module)
            else:
                self._imported[alias.asname or alias.name] = (module, alias.name)

    def note(self, function: ast.expr) -> None:
        """Note a function that is called, or handed to a call."""
        name = name_of(function)
        if not name or name[:1].isupper():
            return
        base = function
        while isinstance(base, ast.Attribute):
            base = base.value
        if not isinstance(base, ast.Constant):
            self._called.add((base.id if isinstance(base, ast.Name) else "", name, base is function))

    def told(self) -> tuple[str, ...]:
        """The functions noted: ``module:name`` where an import says whose it is, ``name`` for a method of who knows what. Others stand in the file itself."""
        found = set()
        for base, name, bare in self._called:
            module, original = self._imported.get(base, ("", ""))
            if module:
                found.add(f"{module}:{original if bare and original else name}")
            elif not bare:
                found.add(name)
            elif name not in _BUILTINS:
                found.update(f"{star}:{name}" for star in self._stars)
        return tuple(sorted(found))
