"""Code that no program of the project reaches: a file that nothing imports any more, a class that nothing names.

What stands there costs nobody anything today. Only what is certain counts: a file by itself, code that a text or a registry may find, and a folder
of which no program imports any file are in use.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oomlint.ast_trees import tree_of
from oomlint.discovery import discover
from oomlint.memory.datasets.dataset_readers import readers_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.model.index import imports_of, index_of
from oomlint.model.readings import FOUND, AnswerMemory, finder
from oomlint.model.values import ClassRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from oomlint.finding import Place
    from oomlint.model.project import Module, Project

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

# What finds a class by a text that only the run knows: a setting, an option, the name of a file.
_FINDERS: Final = frozenset(
    "import_module __import__ __subclasses__ instantiate locate LightningCLI walk_packages iter_modules entry_points iter_entry_points "
    "spec_from_file_location".split()
)
_MAY_FIND: Final = re.compile(rb"\b(?:" + "|".join(sorted(_FINDERS)).encode() + rb")\b")
_BY_ATTRIBUTE: Final = re.compile(rb"\bgetattr\(\s*(?:\w+\.)*(\w+)\s*,\s*[^'\"\s]|\b(\w+)\.__dict__\[")
_BY_OWN_NAME: Final = re.compile(rb"\bglobals\(\)|\blocals\(\)|(?<![.\w])(?:eval|exec)\s*\(")  # of what the file itself binds
_TESTS: Final = re.compile(rb"^\s*(?:async )?def test|\bunittest\b|\bpytest\b", re.MULTILINE)
_PACKAGING: Final = ("pyproject.toml", "setup.cfg", "setup.py")
_WRITTEN: Final = re.compile(r"\.(?:ya?ml|json|toml|cfg|ini|gin|conf|txt|md|rst|sh|slurm|sbatch)$|[/\\](?:Makefile|Dockerfile)$")
_MOST_ENTRIES: Final = 20_000
_MOST_TEXTS: Final = 500
_IMPORTED: Final = "imported"
_MOST_BESIDE: Final = 200  # files of the folders around, whose importers show that they belong together


class IdleCode:
    """Answers for the files of a project. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._texts: tuple[str, ...] | None = None
        self._idle: AnswerMemory[str, tuple[range, ...]] = AnswerMemory(project.readings)

    def holds(self, place: Place, module: Module) -> bool:
        """Whether a place stands in a function or class that no program of the project reaches."""
        if module.source.cells or place.path != module.path or not _ways(module.path)[0].isidentifier():
            return False
        return any(place.row in rows for rows in self._idle.answer(module.path, lambda: self._idle_rows(module)))

    def is_imported(self, path: str) -> bool:
        """Whether another file of the project imports this one."""
        return any(True for _ in self._importers(path, path))

    def belongs_together(self, path: str) -> bool:
        """Whether a program imports another file of its folder, or of a folder around it: files that stand alone are no project."""
        around = {str(folder) for folder in Path(path).parents if folder.is_relative_to(self.project.root)}
        beside = [one for one in self.project.files() if one != path and os.path.dirname(one) in around and one.endswith(".py")][:_MOST_BESIDE]
        stems = tuple(sorted({os.path.basename(one).removesuffix(".py") for one in beside}))
        used = ((importer, self.project.locate(importer, dotted, level)) for importer, dotted, level in self._imports(path, stems) if importer != path)
        known: dict[str, bool] = {}
        return bool(stems) and any(found in beside and self._is_reached(importer, path, known) for importer, found in used)

    # -- a file ---------------------------------------------------------------------------------------------------------

    def _idle_rows(self, module: Module) -> tuple[range, ...]:
        """The rows of the definitions in a file that nothing reaches."""
        path = module.path
        tree = _tree(self.project.raw(path))
        if tree is None or not any(isinstance(node, _Definition) for node in tree.body):
            return ()
        imported = self._is_reached_from_others(path, path, {path: False})
        together = imported or self.belongs_together(path)
        used = _used(tree) if _acts(tree) else frozenset()
        idle = [
            node
            for node in tree.body
            if isinstance(node, _Definition)
            and not node.decorator_list
            and node.name not in used
            and (
                (together and not imported)
                or (self._is_unnamed(module, node.name, together=together) if isinstance(node, ast.ClassDef) else imported and self._is_left(path, node.name))
            )
        ]
        if idle and self.project.search(_finds_by_text, (path, *_ways(path)), path):
            told = not imported or any(self._is_written(node.name) for node in tree.body if isinstance(node, _Definition))
            # Where no text of the project says a name of the file, whoever starts the program does.
            idle = [node for node in idle if told and not self._is_said(node.name if imported else _ways(path)[0], path)]
        return tuple(range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in idle)

    def _is_unnamed(self, module: Module, name: str, *, together: bool) -> bool:
        """Whether no code of the project speaks of a class but its own; in a file by itself only where it is a dataset, and loaders read others."""
        scope = next((scope for scope in module.root.children if scope.is_class and scope.name == name), None)
        if scope is None or self.project.search(_names, (name,), module.path, name):
            return False
        return together or (constructions_of(self.project).is_dataset(ClassRef(module, scope)) and readers_of(self.project).read_any(module))

    def _is_left(self, path: str, name: str) -> bool:
        """Whether all that is left of the use of a function is that files import it."""
        return set(self.project.search(_leaves, (name,), path, name).values()) == {_IMPORTED}

    def _is_said(self, name: str, path: str) -> bool:
        """Whether a program or a text of the project holds a name: who finds code by a text has it from there."""
        return bool(self.project.search(_names, (name,), path, name)) or self._is_written(name)

    def _is_written(self, name: str) -> bool:
        """Whether a setting, a command or a text of the project holds a name."""
        if self._texts is None:
            found = discover(
                [self.project.top], self.project.settings, self.project.root, most_entries=_MOST_ENTRIES, wanted=lambda path: _WRITTEN.search(path) is not None
            ).files
            self._texts = tuple(found[:_MOST_TEXTS])
        word = re.compile(rb"(?<![^\W_])" + re.escape(name.encode(errors="surrogateescape")) + rb"(?![^\W_])", re.IGNORECASE)
        return any(word.search(self.project.raw(path)) is not None for path in self._texts)

    def _is_reached(self, path: str, near: str, known: dict[str, bool]) -> bool:
        """Whether a program of the project runs a file: it does something itself, or one that does imports it; so do files that import each other."""
        if path not in known:
            known[path] = True
            acts = path.endswith(".ipynb") or bool(self.project.search(_runs, (path,), near, only=path))
            known[path] = acts or self._is_reached_from_others(path, near, known)
        return known[path]

    def _is_reached_from_others(self, path: str, near: str, known: dict[str, bool]) -> bool:
        return self._is_shipped(path) or any(self._is_reached(importer, near, known) for importer in self._importers(path, near))

    def _importers(self, path: str, near: str) -> Iterable[str]:
        """The files that import one; also those that may, by ways that are not seen."""
        parts = path.replace("\\", "/").removesuffix(".py").removesuffix("/__init__").split("/")
        if not parts[-1].isidentifier():
            return  # no import names it
        for importer, dotted, level in self._imports(near, (parts[-1],)):
            found = self.project.locate(importer, dotted, level)
            may_be = found is None and parts[-1 - dotted.count(".") :] == dotted.split(".")
            if importer != path and (found == path or may_be):
                yield importer

    def _imports(self, near: str, stems: tuple[str, ...]) -> Iterable[tuple[str, str, int]]:
        found: Mapping[str, str] = self.project.search(_imports, stems, near, stems[0] if len(stems) == 1 else "")
        for importer, said in found.items():
            for line in said.splitlines():
                level, _, dotted = line.partition(" ")
                yield importer, dotted, int(level)

    def _is_shipped(self, path: str) -> bool:
        """Whether what is installed may start it, or its package lists its modules by a text."""
        stem = os.path.basename(path).removesuffix(".py").encode(errors="surrogateescape")
        word = re.compile(rb"\b" + re.escape(stem) + rb"\b")
        package = os.path.join(os.path.dirname(path), "__init__.py")
        return stem in {b"__init__", b"__main__", b"conftest"} or any(
            word.search(self.project.raw(one)) is not None for one in (*(os.path.join(self.project.root, name) for name in _PACKAGING), package)
        )


def _tree(data: bytes) -> ast.Module | None:
    try:
        return tree_of(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _acts(tree: ast.Module) -> bool:
    """Whether a file does something when it runs: it calls anything outside of its functions and classes."""
    outside = (node for node in tree.body if not isinstance(node, _Definition | ast.Import | ast.ImportFrom))
    return any(isinstance(part, ast.Call) for node in outside for part in ast.walk(node))


def _used(tree: ast.Module) -> frozenset[str]:
    """Names of which a program speaks: at its top level, and in the definitions that it speaks of."""
    defined = {node.name: node for node in tree.body if isinstance(node, _Definition)}
    waiting: list[ast.AST] = [node for node in tree.body if not isinstance(node, _Definition) or node.decorator_list]
    used: set[str] = set()
    while waiting:
        for part in ast.walk(waiting.pop()):
            name = part.id if isinstance(part, ast.Name) else part.value if isinstance(part, ast.Constant) else None
            if isinstance(name, str) and name not in used:
                used.add(name)
                waiting += [defined[name]] if name in defined else []
    return frozenset(used)


def _ways(path: str) -> tuple[str, ...]:
    """By which modules the names of a file may be imported whole: its own, and the package that it is in."""
    folder, file = os.path.split(path)
    return os.path.splitext(file)[0], os.path.basename(folder)


@finder
def _runs(path: str, data: bytes, wanted: str) -> str:
    """Whether a file is the one that is asked about, and does something when it runs, or holds tests."""
    if path != wanted:
        return ""
    tree = _tree(data)
    return FOUND if tree is None or _acts(tree) or _TESTS.search(data) is not None else ""


@finder
def _names(path: str, data: bytes, name: str) -> str:
    """Whether a file speaks of a class anywhere but in the definition of one of that name."""
    del path
    word = re.escape(name.encode(errors="surrogateescape"))
    outside = re.sub(rb"^class[ \t]+" + word + rb"\b.*\n(?:(?:[ \t#].*)?\r?\n)*(?:[ \t].*)?", b"", data, flags=re.MULTILINE)
    return FOUND if re.search(rb"\b" + word + rb"\b", outside) else ""


@finder
def _leaves(path: str, data: bytes, name: str) -> str:
    """Whether a file uses a name, in whichever way, or only imports it."""
    if path.endswith(".ipynb") or (tree := _tree(data)) is None:
        return FOUND if re.search(rb"\b" + re.escape(name.encode(errors="surrogateescape")) + rb"\b", data) else ""
    imported = False
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            imported = imported or any(alias.name == name for alias in node.names)
            if any(alias.name == name and alias.asname not in {None, name} for alias in node.names):
                return FOUND
        elif name in {getattr(node, "id", None), getattr(node, "attr", None)} or (isinstance(node, ast.Constant) and node.value == name):
            return FOUND
    exported = imported and os.path.basename(path) == "__init__.py"
    return FOUND if exported else _IMPORTED if imported else ""


@finder
def _finds_by_text(path: str, data: bytes, own: str, *ways: str) -> str:
    """Whether a file finds classes by what is written somewhere else, those of the file ``own`` among them."""
    if _MAY_FIND.search(data) is not None and _finds_among(data, own.replace("\\", "/").removesuffix(".py").split("/")):
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


def _finds_among(data: bytes, parts: list[str]) -> bool:
    """Whether a program finds modules by a text that may say ``parts`` of a path: what begins with ``models.`` is below such a folder."""
    tree = _tree(data)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree is not None else []
    for call in calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
        if name in _FINDERS:
            text = call.args[0] if call.args else None
            whole = isinstance(text, ast.Constant)
            while isinstance(text, ast.BinOp | ast.JoinedStr):  # "models." + name, f"models.{name}"
                text = text.left if isinstance(text, ast.BinOp) else text.values[0]
            said = text.value.strip(".").split(".") if isinstance(text, ast.Constant) and isinstance(text.value, str) else []
            if not set(said) - {""} or (said[-1] == parts[-1] if whole else said[-1] in parts):
                return True
    return tree is None


@finder
def _imports(path: str, data: bytes, *stems: str) -> str:
    """What a file imports that may be a module of such a name: for each, on a line, the dots before it and its dotted name."""
    if path.endswith(".ipynb"):  # whose commands may run a file, too
        words = {word.decode() for word in re.findall(rb"\w+", data)}
        return "\n".join(f"0 {stem}" for stem in stems if stem in words)
    if not re.search(rb"^\s*(?:import\s|from\s)", data, re.MULTILINE):
        return ""
    return "\n".join(told for told in dict.fromkeys(_imported(data)) if told.replace(".", " ").rpartition(" ")[2] in stems)


def _imported(data: bytes) -> Iterator[str]:
    """What a file imports that may be a module: for each the dots before it and its dotted name."""
    for one in imports_of(data):
        if one.module:
            yield f"{one.level} {one.module}"
        if one.name:
            yield f"{one.level} {one.module}.{one.name}".replace(" .", " ")
