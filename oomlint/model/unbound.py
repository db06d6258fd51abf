"""Names that nothing binds: no scope of the file, no builtin, nothing that a star brings; and imports of what a file of the project does not have.

To read such a name raises a NameError, to import it an ImportError.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import names
from oomlint.model.readings import FOUND, AnswerMemory, finder
from oomlint.syntax.scopes import BINDS

if TYPE_CHECKING:
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

# What gives a file names that no statement of it binds, and files that another program runs with names of its own.
_GIVEN: Final = re.compile(
    r"\b(?:exec|execfile|globals|locals|vars|__builtin__|__builtins__|builtins|get_ipython|pylab)\b|\bsys\.modules\b|^# Databricks notebook|^# ?%%|^# In\[",
    re.MULTILINE,
)
# The same in a file from which names are taken, and what answers for all names.
_MADE: Final = re.compile(rb"\b(?:exec|execfile|globals|locals|vars|setattr|__getattr__)\b|\bsys\.modules\b")
_MAKES_MODULES: Final = re.compile(rb"\b(?:__path__|__getattr__|sys\.modules)\b")
# Names that an interpreter knows, if not each: of Python 2, of newer ones, of `site`, of profilers, notebooks and other programs that run files.
_KNOWN: Final = frozenset(
    "xrange unicode raw_input basestring long unichr reduce cmp file reload intern apply buffer coerce execfile exit quit copyright credits license help "
    "aiter anext ExceptionGroup BaseExceptionGroup EncodingWarning PythonFinalizationError WindowsError profile display In Out reveal_type snakemake "
    "spark sc sqlContext dbutils ic".split()
)


class Unbound:
    """Answers for the names of one file."""

    def __init__(self, module: Module, project: Project) -> None:
        self.module = module
        self.project = project
        # A file that defines nothing may be a fragment, whose names somebody has in a session.
        fragment = not any(scope.is_class or isinstance(scope.node, cst.FunctionDef) for scope in module.root.children)
        self.given = fragment or bool(module.source.cells) or _GIVEN.search(module.source.text) is not None
        self._known: AnswerMemory[tuple[Scope, str], bool] = AnswerMemory(project.readings)
        self._caught: frozenset[str] | None = None

    def reads(self, node: cst.Name) -> bool:
        """Whether nothing binds a name that is read there."""
        word = node.value
        if self.given or word in names.BUILTINS or word in _KNOWN or (word.startswith("__") and word.endswith("__")) or word == "_":
            return False
        scope = self.module.walk.scope_at(node)
        return self._known.answer((scope, word), lambda: self._judge(scope, word))

    def _judge(self, scope: Scope, word: str) -> bool:
        walk = self.module.walk
        if word in walk.shared:
            return False
        here: Scope | None = scope
        while here is not None:
            if (here is scope or not here.is_class) and binds(here, word):
                return False
            here = here.parent
        return not self._starred(word) and word not in self._in_patterns() and not self._set_elsewhere(word)

    def _starred(self, word: str) -> bool:
        """Whether ``from x import *`` may bring a name."""
        for scope in self.module.walk.scopes:
            for effect in scope.effects.get("*", ()):
                statement = effect.node
                if not isinstance(statement, cst.ImportFrom) or scope.parent is not None:
                    return True
                source = names.dotted(statement.module) if statement.module is not None else ""
                path = self.project.locate(self.module.path, source, len(statement.relative))
                if path is None or may_bring(self.project, path, word):
                    return True
        return False

    def _in_patterns(self) -> frozenset[str]:
        """Names that the patterns of ``match`` bind, and those of types."""
        if self._caught is None:
            found: set[str] = set()
            text = self.module.source.text
            if "match " in text or "type " in text or re.search(r"^\s*(?:def|class) \w+\[", text, re.MULTILINE):
                for node in self.module.walk.root.nodes():
                    if isinstance(node, cst.MatchAs | cst.MatchStar | cst.TypeVar | cst.TypeAlias) and node.name is not None:
                        found.add(node.name.value)
                    elif isinstance(node, cst.MatchMapping) and node.rest is not None:
                        found.add(node.rest.value)
                    elif isinstance(node, cst.FunctionDef | cst.ClassDef) and node.type_parameters is not None:
                        found.update(param.param.name.value for param in node.type_parameters.params)
            self._caught = frozenset(found)
        return self._caught

    def _set_elsewhere(self, word: str) -> bool:
        """Whether another file gives this module, or all of them, such a name."""
        stem = self.module.path.replace("\\", "/").rpartition("/")[2].removesuffix(".py")
        return any(path != self.module.path for path in self.project.search(_sets, (word, stem), self.module.path, word))

    # -- imports -----------------------------------------------------------------------------------------------------------

    def misses(self, node: cst.ImportFrom) -> bool:
        """Whether an import asks a file of the project for a name that it does not have."""
        if isinstance(node.names, cst.ImportStar) or self.module.source.cells:
            return False
        level, source = len(node.relative), names.dotted(node.module) if node.module is not None else ""
        path = self.project.locate(self.module.path, source, level) if source else None
        if source and path is None:
            return self._lacks(source, level)
        if path is None or not path.endswith(".py") or not self.project.text(path).strip():
            return False
        # A folder that is put ahead of the project's own ones may have another file of that name.
        if not level and "sys.path.insert" in self.module.source.text:
            return False
        package = path.replace("\\", "/").endswith("/__init__.py")
        for alias in node.names:
            word = names.dotted(alias.name)
            if word.startswith("__") or may_bring(self.project, path, word):
                continue
            if not level and any(other != path and may_bring(self.project, other, word) for other in self._alike(path)):
                continue
            # A package may hold what a build makes: that is a module, and nobody calls it.
            bound = names.dotted(alias.asname.name) if alias.asname is not None else word
            if not package or any(names.dotted(call.func) == bound for call, _ in self.module.walk.calls):
                return True
        return False

    def _lacks(self, source: str, level: int) -> bool:
        """Whether a package of the project has no module of a name: it was moved, or never put there."""
        parts = source.split(".")
        if "sys.path" in self.module.source.text or parts[-1].startswith("_") or (not level and self.project.locate(self.module.path, parts[0]) is None):
            return False
        package = self.project.locate(self.module.path, ".".join(parts[:-1]), level) if level or parts[1:] else None
        if package is None or not package.endswith(("__init__.py", os.sep)) or _MAKES_MODULES.search(self.project.text(package)):
            return False
        tail = "/".join(parts)
        alike = (path.replace("\\", "/").removesuffix(".py").removesuffix("/__init__") for path in self.project.files())
        if not level and (any(path.endswith(f"/{tail}") for path in alike) or not self._is_ours(parts[0], source)):
            return False
        # What a build makes stands beside its source, or is told to whoever installs it.
        folder = os.path.dirname(package)
        beside = os.listdir(folder) if os.path.isdir(folder) else [parts[-1]]
        told = (self.project.raw(os.path.join(above, "setup.py")) for above in {folder, os.path.dirname(folder), self.project.root, self.project.top})
        return not any(name.partition(".")[0] == parts[-1] for name in beside) and not any(parts[-1].encode() in text for text in told)

    def _is_ours(self, root: str, source: str) -> bool:
        """Whether a folder is a package of the project, and no library has its name: it says so, or the file takes something else from it."""
        if (self.project.locate(self.module.path, root) or "").endswith(".py"):
            return True
        index = self.project.index(self.module.path)
        others = {one.module for one in index.imports if not one.level and one.module.partition(".")[0] == root} - {source} if index is not None else set()
        return any((self.project.locate(self.module.path, other) or "").endswith(".py") for other in others)

    def _alike(self, path: str) -> list[str]:
        """Files that an import may mean as well: those of the same name."""
        tail = path.replace("\\", "/").rpartition("/")[2]
        if tail == "__init__.py":
            tail = "/".join(path.replace("\\", "/").split("/")[-2:])
        return [other for other in self.project.files() if other.replace("\\", "/").endswith(f"/{tail}")]


@lru_cache(maxsize=256)
def _makes_names(data: bytes) -> bool:
    return _MADE.search(data) is not None


def may_bring(project: Project, path: str, word: str) -> bool:
    """Whether a file of the project may have a name, in whichever way it comes by it. False is certain."""
    for here in project.imported_whole(path):
        index = project.index(here) if here is not None else None
        if here is None or index is None or word in index.names or _makes_names(project.raw(here)) or project.submodule(here, word) is not None:
            return True
    return False


def binds(scope: Scope, word: str) -> bool:
    """Whether a scope gives a name a value."""
    return names.is_parameter(scope, word) or any(not effect.path and effect.kind in BINDS for effect in scope.effects.get(word, ()))


@finder
def _sets(path: str, data: bytes, word: str, stem: str) -> str:
    """Whether a file may give another one a name: it speaks of that, and sets such an attribute of something."""
    del path
    name, module = (re.escape(each.encode(errors="surrogateescape")) for each in (word, stem))
    sets = re.search(rb"(?<!\bself)\." + name + rb"\s*=(?!=)|setattr\([^)\n]*['\"]" + name + rb"\b", data)
    return FOUND if sets and re.search(rb"\b(?:" + module + rb"|builtins|__builtins?__|sys\.modules)\b", data) else ""
