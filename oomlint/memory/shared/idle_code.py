"""Code that no program of the project reaches: a file that nothing imports any more, a class that nothing names.

What stands there costs nobody anything today. Only what is certain counts: a file by itself, code that a text or a registry may find, and a folder
of which no program imports any file are in use.
"""

from __future__ import annotations

import ast
import os
import re
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from oomlint.ast_trees import tree_of
from oomlint.discovery import METADATA, discover
from oomlint.memory.datasets.dataset_readers import readers_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.model.index import imports_of, index_of
from oomlint.model.readings import FOUND, AnswerMemory, finder
from oomlint.model.values import ClassRef
from oomlint.patterns import pattern

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
_MAY_FIND: Final = pattern(rb"\b(?:" + "|".join(sorted(_FINDERS)).encode() + rb")\b")
_BY_ATTRIBUTE: Final = pattern(rb"\bgetattr\(\s*(?:\w+\.)*(\w+)\s*,\s*[^'\"\s]|\b(\w+)\.__dict__\[")
_BY_OWN_NAME: Final = pattern(rb"\bglobals\(\)|\blocals\(\)|(?<![.\w])(?:eval|exec)\s*\(")  # of what the file itself binds
_TESTS: Final = pattern(rb"^\s*(?:async )?def test|\bunittest\b|\bpytest\b", re.MULTILINE)
_WRITTEN: Final = pattern(r"\.(?:ya?ml|json|toml|cfg|ini|gin|conf|txt|md|rst|sh|slurm|sbatch)$|[/\\](?:Makefile|Dockerfile)$")
_MOST_ENTRIES: Final = 20_000
_MOST_TEXTS: Final = 500
_MOST_USERS: Final = 64  # definitions that speak of each other
_IMPORTED, _NAMED, _TAKEN, _OTHERWISE, _OWN = "imported", "named", "taken", "otherwise", "own"  # how a file speaks of a name
_MOST_BESIDE: Final = 200  # files of the folders around, whose importers show that they belong together


class IdleCode:
    """Answers for the files of a project. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._texts: tuple[str, ...] | None = None
        self._idle: AnswerMemory[str, tuple[range, ...]] = AnswerMemory(project.readings)
        self._users: AnswerMemory[tuple[str, str], tuple[tuple[str, str], ...] | None] = AnswerMemory(project.readings)

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
        tree = _tree(self.project.raw(module.path))
        definitions = [node for node in tree.body if isinstance(node, _Definition)] if tree is not None else []
        idle = [node for node in definitions if self._is_idle(module.path, node.name)]
        return tuple(range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in idle)

    def _is_idle(self, path: str, name: str) -> bool:
        """Whether nothing that a program reaches speaks of a definition, itself or by way of others that speak of it."""
        waiting = [(path, name)]
        for one in waiting:  # it gets longer meanwhile
            users = self._users.answer(one, partial(self._users_of, *one))
            if users is None or len(waiting) > _MOST_USERS or any(self._is_test(*user) for user in users):
                return False
            waiting += (user for user in users if user not in waiting)
        return True

    def _is_test(self, path: str, name: str) -> bool:
        """Whether a definition is one that a runner of tests may call."""
        return name.lower().startswith("test") and _TESTS.search(self.project.raw(path)) is not None

    def _users_of(self, path: str, name: str) -> tuple[tuple[str, str], ...] | None:
        """The definitions that speak of one, each with its file; ``None`` where something else may reach it."""
        tree = _tree(self.project.raw(path))
        node = next((one for one in tree.body if isinstance(one, _Definition) and one.name == name), None) if tree is not None else None
        if tree is None or node is None or node.decorator_list or name in _used_when_run(self.project.raw(path)):
            return None
        imported = self._is_reached_from_others(path, path, {path: False})
        together = imported or self.belongs_together(path)
        users: tuple[tuple[str, str], ...] | None = ()
        if together:
            users = self._speakers(path, name, is_class=isinstance(node, ast.ClassDef)) if imported else ()
        elif not isinstance(node, ast.ClassDef) or not self._is_unnamed_dataset(path, name):
            return None
        if users is not None and self.project.search(_finds_by_text, (path, *_ways(path)), path):
            told = not imported or any(self._is_written(one.name) for one in tree.body if isinstance(one, _Definition))
            # Where no text of the project says a name of the file, whoever starts the program does.
            if not told or self._is_said(name if imported else _ways(path)[0], path):
                return None
        return users

    def _speakers(self, path: str, name: str, *, is_class: bool) -> tuple[tuple[str, str], ...] | None:
        """The definitions that speak of one of a file that is imported; ``None`` where there is more, or nothing says that it is out of use."""
        users: dict[tuple[str, str], None] = {}
        out_of_use = is_class
        for speaker, said in self.project.search(_speaks, (name,), path, name).items():
            lines = [line.split(" ") for line in said.splitlines()]
            sources = [self._means(speaker, int(level), dotted, path, name) for kind, level, dotted in (words for words in lines if words[0] == _IMPORTED)]
            # What is only imported was used before, and so was what has a namesake in another file of the project that is taken instead.
            out_of_use = out_of_use or any(source is not None for source in sources)
            unheard = {_IMPORTED, _OWN}
            if speaker != path:
                index = self.project.index(speaker)
                if [_OWN, ""] in lines or (sources and not any(sources)):
                    unheard.add(_NAMED)
                if index is not None and _ways(path)[path.endswith("__init__.py")] not in index.imported:
                    unheard.add(_TAKEN)
            heard = (words[1] for words in lines if words[0] not in unheard)
            users.update(((speaker, inside), None) for inside in heard if (speaker, inside) != (path, name))
        return None if any(not inside for _, inside in users) or not (out_of_use or users) else tuple(users)

    def _means(self, importer: str, level: int, dotted: str, path: str, name: str) -> bool | None:
        """Whether an import takes a name from a file and not from another one of the project that defines it, too; ``None`` where it is of a library."""
        found = self.project.locate(importer, dotted, level)
        if found is None:
            own = os.path.dirname(path) if path.endswith("__init__.py") else path.removesuffix(".py")
            return True if not dotted or os.path.basename(own) == dotted.rpartition(".")[2] else None
        tree = _tree(self.project.raw(found)) if found != path and found.endswith(".py") else None
        return tree is None or not any(isinstance(node, _Definition) and node.name == name for node in tree.body)

    def _is_unnamed_dataset(self, path: str, name: str) -> bool:
        """Whether no code speaks of a dataset of a file by itself, and loaders read others."""
        module = self.project.find(path)
        scope = next((scope for scope in module.root.children if scope.is_class and scope.name == name), None) if module is not None else None
        if module is None or scope is None or self.project.search(_names, (name,), path, name):
            return False
        return constructions_of(self.project).is_dataset(ClassRef(module, scope)) and readers_of(self.project).read_any(module)

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
        plain = name.encode(errors="surrogateescape").lower()
        word = re.compile(rb"(?<![^\W_])" + re.escape(plain) + rb"(?![^\W_])")
        return any(plain in (text := self.project.raw(path).lower()) and word.search(text) is not None for path in self._texts)

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
            word.search(self.project.raw(one)) is not None for one in (*(os.path.join(self.project.root, name) for name in METADATA), package)
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


@lru_cache(maxsize=64)
def _used_when_run(data: bytes) -> frozenset[str]:
    """The same of a file that does something when it runs; nothing of any other."""
    tree = _tree(data)
    return _used(tree) if tree is not None and _acts(tree) else frozenset()


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
def _speaks(path: str, data: bytes, name: str) -> str:
    """Where a file speaks of a name, on a line each: how, and in which of its definitions; for an import the module, and the dots before it."""
    spoken = None if path.endswith(".ipynb") else _spoken(data, package=os.path.basename(path) == "__init__.py")
    if spoken is None:
        return f"{_NAMED} " if re.search(r"(?<!\w)" + re.escape(name) + r"(?!\w)", data.decode(errors="surrogateescape")) else ""
    return "\n".join(spoken.get(name, ()))


@lru_cache(maxsize=256)
def _spoken(data: bytes, *, package: bool) -> Mapping[str, Iterable[str]] | None:
    """The same for all names, so that a file is gone through once; ``None`` where it cannot be parsed."""
    tree = _tree(data)
    if tree is None:
        return None
    found: dict[str, dict[str, None]] = {}
    for top in tree.body:
        inside = top.name if isinstance(top, _Definition) else ""
        for node in ast.walk(top):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    plain = alias.asname in {None, alias.name} and not package
                    told = f"{_IMPORTED} {node.level} {node.module or ''}" if plain else f"{_OTHERWISE} "
                    found.setdefault(alias.name, {})[told] = None
            elif isinstance(node, ast.Name):
                found.setdefault(node.id, {})[f"{_NAMED} {inside}" if inside or isinstance(node.ctx, ast.Load) else f"{_OWN} "] = None
            elif isinstance(node, ast.Attribute):
                found.setdefault(node.attr, {})[f"{_TAKEN} {inside}"] = None
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                found.setdefault(node.value, {})[f"{_TAKEN} {inside}"] = None
        if inside:
            found.setdefault(inside, {})[f"{_OWN} "] = None
    return found


@finder
def _finds_by_text(path: str, data: bytes, own: str, *ways: str) -> str:
    """Whether a file finds classes by what is written somewhere else, those of the file ``own`` among them."""
    beside = own.startswith(os.path.join(os.path.dirname(path), ""))
    calls, asked, by_own_name = _finding(data)
    parts = own.replace("\\", "/").removesuffix(".py").split("/")
    if calls is None or any(_may_find(call, parts, beside=beside) for call in calls):
        return FOUND
    if by_own_name and path == own:
        return FOUND
    index = index_of(data) if asked or by_own_name else None
    if index is None:
        return ""
    bound = any(module.rpartition(".")[2] in ways for module, _ in index.stars)
    return FOUND if not asked.isdisjoint(index.taken) or (by_own_name and bound) else ""


class _Found(NamedTuple):
    """A call that finds a module by a text."""

    said: tuple[str, ...]  # what is written of the text, part by part
    whole: bool  # whether that is all of it
    own: bool  # whether it goes through the folder of its own file


@lru_cache(maxsize=1024)
def _finding(data: bytes) -> tuple[tuple[_Found, ...] | None, frozenset[str], bool]:
    """The calls of a file that find modules by a text, ``None`` where it cannot be parsed; of what attributes are asked by one; whether its own names are."""
    asked = frozenset((found[1] or found[2]).decode(errors="surrogateescape") for found in _BY_ATTRIBUTE.finditer(data))
    by_own_name = _BY_OWN_NAME.search(data) is not None
    if _MAY_FIND.search(data) is None:
        return (), asked, by_own_name
    tree = _tree(data)
    if tree is None:
        return None, asked, by_own_name
    calls = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
        if name in _FINDERS:
            text = call.args[0] if call.args else None
            own = name in {"walk_packages", "iter_modules"} and isinstance(text, ast.Name) and text.id == "__path__"
            whole = isinstance(text, ast.Constant)
            while isinstance(text, ast.BinOp | ast.JoinedStr):  # "models." + name, f"models.{name}"
                text = text.left if isinstance(text, ast.BinOp) else text.values[0]
            said = text.value.strip(".").split(".") if isinstance(text, ast.Constant) and isinstance(text.value, str) else []
            calls.append(_Found(tuple(said), whole, own))
    return tuple(calls), asked, by_own_name


def _may_find(call: _Found, parts: list[str], *, beside: bool) -> bool:
    """Whether the text may say ``parts`` of a path: what begins with ``models.`` is below such a folder."""
    if call.own and not beside:
        return False
    return not set(call.said) - {""} or (call.said[-1] == parts[-1] if call.whole else call.said[-1] in parts)


@finder
def _imports(path: str, data: bytes, *stems: str) -> str:
    """What a file imports that may be a module of such a name: for each, on a line, the dots before it and its dotted name."""
    if path.endswith(".ipynb"):  # whose commands may run a file, too
        words = {word.decode() for word in re.findall(rb"\w+", data)}
        return "\n".join(f"0 {stem}" for stem in stems if stem in words)
    if b"import" not in data:
        return ""
    return "\n".join(told for told in dict.fromkeys(_imported(data)) if told.replace(".", " ").rpartition(" ")[2] in stems)


def _imported(data: bytes) -> Iterator[str]:
    """What a file imports that may be a module: for each the dots before it and its dotted name."""
    for one in imports_of(data):
        if one.module:
            yield f"{one.level} {one.module}"
        if one.name:
            yield f"{one.level} {one.module}.{one.name}".replace(" .", " ")
