# ruff: noqa: D102 -- the methods are those of what it stands in for, or of the import system
"""Imports the user's files tolerantly: statement by statement, by their own dotted names, with stand-ins for libraries that are not there."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from oomlint.verify.ast_names import is_main
from oomlint.verify.child.loading import argparse_patch, import_names, stubs, toplevel
from oomlint.verify.child.server.exceptions import words

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator, Sequence

SECONDS: Final = 2.0  # for the statements of one module, imports aside
MODULES: Final = "OOMLINT_MODULES"  # environment: dotted names of the files that were loaded, for workers that are spawned
NOTED: Final = 40  # statements left out that are remembered


class LoadError(Exception):
    """The file cannot be loaded at all; one line says why."""


class _Late(BaseException):
    """A module takes longer than it may."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A module of the user, and what could not be run of it."""

    module: types.ModuleType
    skipped: list[str] = field(default_factory=list)  # "line 12: FileNotFoundError: ..."; other files of the project are named in front
    stubbed: list[str] = field(default_factory=list)  # libraries that are replaced by a stand-in
    assumed: list[str] = field(default_factory=list)  # what was put in: "argument --data is 'data'"


class Clock:
    """Seconds that the statements of a module have left; it stands still while another module is imported."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    @contextmanager
    def running(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        if self.left <= 0:
            raise _Late
        before = signal.signal(signal.SIGALRM, _late)
        # The interval repeats it: a bare `except:` of the user's may have swallowed the first.
        outer = signal.setitimer(signal.ITIMER_REAL, self.left, 0.05)
        try:
            yield
        finally:
            rest, _ = signal.setitimer(signal.ITIMER_REAL, 0)
            self.left = min(self.left, rest)
            signal.signal(signal.SIGALRM, before)
            signal.setitimer(signal.ITIMER_REAL, *outer)


def _late(_number: int, _frame: object) -> None:
    raise _Late


class TolerantFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of one project before all others, and stands in for libraries that its files import and nobody has."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.files: dict[str, str] = json.loads(os.environ.get(MODULES, "{}"))
        self.skipped: dict[str, list[str]] = {}
        self.stubbed: list[str] = []
        self.assumed: list[str] = []
        self.waiting: list[tuple[types.ModuleType, ast.stmt, str]] = []  # statements that a circle of imports has broken
        self.late: list[tuple[types.ModuleType, ast.stmt, str]] = []  # statements that need a file which is not there, and those that need them
        self.optional: dict[str, set[int]] = {}  # rows of imports whose absence the file provides for
        self.flags: dict[str, int] = {}

    # Finding

    def find_spec(self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        del target
        if name in self.files:
            return self.spec(name, self.files[name])
        if path is None:
            if name in sys.stdlib_module_names and not _beside(name):
                return None
            folders = [item for item in sys.path if self.own(item or os.curdir)]
        else:
            folders = [item for item in path if self.own(item)]
        tail = name.rpartition(".")[2]
        for folder in folders:
            for file in (os.path.join(folder, tail, "__init__.py"), os.path.join(folder, f"{tail}.py")):
                if os.path.isfile(file):
                    return self.spec(name, os.path.abspath(file))
        return None

    def own(self, folder: str) -> bool:
        """Whether a folder is the project's."""
        folder = os.path.abspath(folder)
        return (folder == self.root or folder.startswith(self.root + os.sep)) and "site-packages" not in folder

    def spec(self, name: str, file: str) -> importlib.machinery.ModuleSpec | None:
        """How a module of the project is made: from its file, or from a folder without `__init__.py`."""
        if os.path.isdir(file):  # a folder without `__init__.py`: other files of its name must not hide it
            spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [file]
            return spec
        package = os.path.basename(file) == "__init__.py"
        return importlib.util.spec_from_file_location(name, file, loader=self, submodule_search_locations=[os.path.dirname(file)] if package else None)

    def elsewhere(self, name: str) -> str | None:
        """The one file of the project whose path ends as a dotted name says: scripts that put other folders on `sys.path` import so."""
        tail = name.replace(".", os.sep)
        ends = (os.sep + tail + ".py", os.sep + os.path.join(tail, "__init__.py"))
        found = [file for file in import_names.programs(self.root) if file.endswith(ends)]
        return found[0] if len(found) == 1 else None

    # Loading

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        del spec

    def exec_module(self, module: types.ModuleType) -> None:
        file = module.__spec__.origin or "" if module.__spec__ else ""
        with open(file, "rb") as stream:
            source = stream.read()
        tree = ast.parse(importlib.util.decode_source(source), file)
        self.flags[file] = toplevel.flags(tree)
        self.optional[file] = toplevel.provided(tree)
        if isinstance(tree.body[0] if tree.body else None, ast.Expr):
            module.__doc__ = ast.get_docstring(tree, clean=False)
        clock = Clock(SECONDS)
        for statement in tree.body:
            self.attempt(module, statement, file, clock)

    def attempt(self, module: types.ModuleType, statement: ast.stmt, file: str, clock: Clock) -> None:
        """Run one statement; what it raises is noted."""
        try:
            match statement:
                case ast.If() if is_main(statement.test):
                    return
                case ast.If():
                    with clock.running():
                        chosen = eval(self._compiled(ast.Expression(statement.test), file, "eval"), module.__dict__)  # noqa: S307 -- the user's own program, in a child that is fenced in
                        branch = statement.body if chosen else statement.orelse
                    for inner in branch:
                        self.attempt(module, inner, file, clock)
                case ast.For() | ast.While() | ast.AsyncFor():
                    self.note(module, statement, "a loop, not run")
                case ast.Expr(ast.Call() as call) if not toplevel.harmless(call, module.__dict__):
                    self.note(module, statement, f"the call of {ast.unparse(call.func)[:60]}, not run")
                case ast.Import() | ast.ImportFrom():
                    self._run(module, statement, file)
                case _:
                    with clock.running():
                        self._run(module, statement, file)
        except ImportError as error:
            self._one_by_one(module, statement, file, error)
        except (Exception, SystemExit, _Late) as error:  # noqa: BLE001 -- the user's code raises what it likes
            if isinstance(statement, ast.Assign | ast.AnnAssign | ast.With | ast.Try) and not isinstance(error, _Late):
                missing = isinstance(error, OSError) or "No such file" in str(error)
                self.late += [(module, statement, file)] if missing or self.late else []
            if isinstance(error, NameError):
                self.waiting.append((module, statement, file))
            self.note(module, statement, _words(error))

    def _run(self, module: types.ModuleType, statement: ast.stmt, file: str) -> None:
        exec(self._compiled(ast.Module([statement], []), file, "exec"), module.__dict__)  # noqa: S102 -- the user's own program, in a child that is fenced in

    def _compiled(self, node: ast.Module | ast.Expression, file: str, mode: str) -> types.CodeType:
        code: types.CodeType = compile(node, file, mode, flags=self.flags.get(file, 0), dont_inherit=True)
        return code

    def _one_by_one(self, module: types.ModuleType, statement: ast.stmt, file: str, error: ImportError) -> None:
        """What can be had of `from x import a, b` although b cannot."""
        if isinstance(statement, (ast.ImportFrom, ast.Import)) and len(statement.names) > 1:
            for alias in statement.names:
                single = ast.ImportFrom(statement.module, [alias], statement.level) if isinstance(statement, ast.ImportFrom) else ast.Import([alias])
                self.attempt(module, ast.fix_missing_locations(ast.copy_location(single, statement)), file, Clock(SECONDS))
            return
        self.waiting.append((module, statement, file))
        self.note(module, statement, _words(error))

    def note(self, module: types.ModuleType, statement: ast.stmt, words: str) -> None:
        """Remember a statement that was left out."""
        noted = self.skipped.setdefault(module.__name__, [])
        if len(noted) < NOTED:
            noted.append(f"line {statement.lineno}: {words}")

    def again(self) -> None:
        """Run what a circle of imports has broken once more, now that all its modules are there."""
        waiting, self.waiting = self.waiting, []
        for module, statement, file in waiting:
            noted = self.skipped.get(module.__name__, [])
            before = [item for item in noted if not item.startswith(f"line {statement.lineno}:")]
            self.skipped[module.__name__] = before
            self.attempt(module, statement, file, Clock(SECONDS))
        self.waiting.clear()

    def revive(self) -> None:
        """Run what needed files once more: they are there now."""
        late = list(self.late)
        for module, statement, file in late:
            with contextlib.suppress(Exception, SystemExit, _Late), Clock(SECONDS).running():  # what it raises is noted already
                self._run(module, statement, file)


class LastResort(importlib.abc.MetaPathFinder):
    """After all other finders: files of the project that lie elsewhere, and stand-ins for what nobody has."""

    def __init__(self, finder: TolerantFinder) -> None:
        self.finder = finder

    def find_spec(self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        del target
        finder = self.finder
        frame = sys._getframe(1)  # noqa: SLF001 -- of the same stand-in, or there is no public way
        while frame.f_code.co_filename == __file__ or "importlib" in frame.f_code.co_filename:
            if frame.f_code.co_filename.endswith("util.py"):
                return None  # `importlib.util.find_spec` asks whether it is there; it is not
            if frame.f_back is None:
                return None
            frame = frame.f_back
        top = name.partition(".")[0]
        if top in finder.stubbed and isinstance(sys.modules.get(top), stubs.StubModule):
            return stubs.spec(name)
        file = frame.f_code.co_filename
        if not finder.own(os.path.dirname(file)) or frame.f_lineno in finder.optional.get(file, ()):
            return None
        if path is None and (found := finder.elsewhere(name)):
            sys.path.append(_above(found, name))
            return finder.spec(name, found)
        if top in sys.stdlib_module_names:
            return None
        whole = name if path is not None else top
        if path is not None and not any(finder.own(item) for item in path):
            return None  # a part of an installed library that its version does not have
        if whole not in finder.stubbed:
            finder.stubbed.append(whole)
        return stubs.spec(name)


def _above(file: str, name: str) -> str:
    folder = os.path.dirname(file)
    for _ in range(name.count(".") + (os.path.basename(file) == "__init__.py")):
        folder = os.path.dirname(folder)
    return folder


def _beside(name: str) -> bool:
    """Whether the script's own folder has a module of that name: it comes before the standard library there, as for Python."""
    return bool(sys.path) and os.path.isfile(os.path.join(sys.path[0], f"{name}.py"))


def _words(error: BaseException) -> str:
    if isinstance(error, _Late):
        return f"takes more than {SECONDS:g} s"
    return words(error)


# Public


_FINDERS: Final[list[tuple[TolerantFinder, LastResort]]] = []


def install(root: str) -> TolerantFinder:
    """Serve the modules of a project from now on; once for each root."""
    root = os.path.realpath(root)
    for finder, _ in _FINDERS:
        if finder.root == root:
            return finder
    finder = TolerantFinder(root)
    last = LastResort(finder)
    sys.meta_path.insert(0, finder)
    sys.meta_path.append(last)
    _FINDERS.append((finder, last))
    argparse_patch.install(finder.assumed)
    _reach(root, os.path.join(root, "src"))
    return finder


def _reach(*folders: str) -> None:
    for folder in reversed([item for item in folders if os.path.isdir(item)]):
        if folder in sys.path:
            sys.path.remove(folder)
        sys.path.insert(0, folder)


def load(path: str, root: str) -> Loaded:
    """Import a file of a project tolerantly, as a module by its own dotted name. Raises LoadError."""
    path, root = os.path.realpath(path), os.path.realpath(root)
    finder = install(root)
    name, above = import_names.dotted(path, root)
    # A script's own folder comes first, that of a package's module only after the folders that its packages lie in: as Python has it.
    own = os.path.dirname(path)
    _reach(*dict.fromkeys((own, above, root, os.path.join(root, "src")) if "." not in name else (above, root, os.path.join(root, "src"), own)))
    there = sys.modules.get(name)
    if there is not None and os.path.realpath(getattr(there, "__file__", None) or "") != path:
        name = f"{name}_of_the_project"  # another library has the name already: it stays what it is
    finder.files |= import_names.spaces(name, above) | {name: path}
    os.environ[MODULES] = json.dumps(finder.files)
    before, sys.argv = sys.argv, [path]
    try:
        tree = _parsed(path)
        module = importlib.import_module(name)
        finder.again()
        own_block = toplevel.fill(module, tree, lambda: partial(finder.attempt, module, file=path, clock=Clock(SECONDS)))
        finder.assumed += [f"{', '.join(own_block)} as the main block sets it"] if own_block else []
    except LoadError:
        raise
    except (Exception, SystemExit, _Late) as error:
        raise LoadError(_words(error)) from error
    finally:
        sys.argv = before
    return Loaded(module, _skipped(finder, name), list(finder.stubbed), list(dict.fromkeys(finder.assumed)))


def _parsed(path: str) -> ast.Module:
    try:
        with open(path, "rb") as stream:
            return ast.parse(importlib.util.decode_source(stream.read()), path)
    except (SyntaxError, ValueError, LookupError) as error:
        where = f"line {row}: " if (row := getattr(error, "lineno", None)) else ""
        raise LoadError(f"it is no Python 3: {where}{getattr(error, 'msg', None) or error}") from error
    except OSError as error:
        raise LoadError(f"it cannot be read: {error.strerror}") from error


def _skipped(finder: TolerantFinder, name: str) -> list[str]:
    own = list(finder.skipped.get(name, []))
    for other, noted in finder.skipped.items():
        if other != name:
            file = getattr(sys.modules.get(other), "__file__", None) or other
            own.extend(f"{os.path.relpath(file, finder.root)} {item}" for item in noted)
    return own[:NOTED]
