"""Folders in Python's search path: what files put there, by ``sys.path`` or ``PYTHONPATH``, and where a project's own metadata puts its packages."""

from __future__ import annotations

import ast
import glob
import os
import re
from typing import TYPE_CHECKING, Final

from oomlint.api_names import SAME_PATH
from oomlint.ast_trees import tree_of
from oomlint.discovery import METADATA
from oomlint.scout.telling_names import ADDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

SPEAKS: Final = (b"sys.path", b"addsitedir")  # a file without these words changes nothing
_SAME_METHODS: Final = frozenset({"resolve", "absolute", "as_posix", "expanduser", "__str__"})
_DIRECTORIES: Final = re.compile(r"^package_dir[ \t]*=[ \t]*([^\n]*\n(?:[ \t]+[^\n]*\n?)*)", re.MULTILINE)
_ASSIGNED: Final = re.compile(r"^[ \t]*(?:export[ \t]+)?(\w+)=(\"[^\"\n]*\"|'[^'\n]*'|[^\s;&]*)", re.MULTILINE)
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}|\$(\w+)|`pwd`|\$\(pwd\)")
_OPEN: Final = "\0"  # stands for what nobody knows
_DEEPEST_VARIABLE: Final = 8
_MOST: Final = 16  # strings that an expression can be, and folders that a file adds
_DEEPEST: Final = 40
_MOST_GLOBBED: Final = 2_000  # names that a glob may find
_MOST_STARS: Final = 2  # parts of a path that it may leave open


def added(text: str, path: str, root: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Folders below ``root`` that the program ``text``, in the file ``path``, puts at the beginning of the search path, and those that it puts at its end.

    Followed are ``sys.path.append``, ``insert`` and ``extend``, ``sys.path += [...]``, ``sys.path = [...] + sys.path``, ``sys.path[0:0] = [...]`` and
    ``site.addsitedir``, given constants, ``__file__``, names bound to such, parameters of a helper that the file itself calls, what ``os.path`` and
    ``pathlib`` make of them, and ``glob``. What is relative is looked for from the file's folder and from the root: nobody knows where it is run.
    """
    try:
        tree = tree_of(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return (), ()
    nodes = sorted((node for node in ast.walk(tree) if hasattr(node, "lineno")), key=lambda node: node.lineno)
    changes = [(node, *found) for node in nodes if (found := _change(node)) is not None][:_MOST]
    look = _Look(nodes, [node.lineno for node, _, _ in changes], path, root)
    first: list[str] = []
    last: list[str] = []
    for _, value, at_beginning in changes:
        if at_beginning:
            first[:0] = look.folders(value)
        else:
            last.extend(look.folders(value))
    return tuple(dict.fromkeys(first))[:_MOST], tuple(dict.fromkeys(last))[:_MOST]


def exported(text: str, path: str, root: str) -> tuple[str, ...]:
    """Folders below ``root`` that a shell script puts into ``PYTHONPATH``.

    Variables that the script sets are put in, and where it is run is taken to be its own folder or the root. A part that rests on anything else is left out.
    """
    known = {name: value for name, value in _ASSIGNED.findall(text) if name != "PYTHONPATH"}
    found: list[str] = []
    for name, value in _ASSIGNED.findall(text):
        for part in _expanded(value, known).split(":") if name == "PYTHONPATH" else ():
            if part and _OPEN not in part:
                found.extend(_inside(part, (os.path.dirname(path), root), root))
    return tuple(dict.fromkeys(found))[:_MOST]


def _expanded(value: str, known: Mapping[str, str], depth: int = 0) -> str:
    """A value of a shell script with what its variables stand for, ``_OPEN`` where nobody knows. What was in ``PYTHONPATH`` before adds nothing."""
    if depth > _DEEPEST_VARIABLE:
        return _OPEN

    def given(match: re.Match[str]) -> str:
        name = match[1] or match[2] or ""
        if name in {"PYTHONPATH", "PWD", ""}:
            return "" if name == "PYTHONPATH" else "."
        return _expanded(known[name], known, depth + 1) if name in known else _OPEN

    bare = _VARIABLE.sub(given, value.strip("\"'"))
    return bare if "$" not in bare and "`" not in bare else _OPEN


def _inside(text: str, bases: Iterable[str], root: str) -> Iterator[str]:
    """The folders below ``root`` that a path means, seen from some of its folders."""
    for base in bases:
        folder = os.path.normpath(os.path.join(base, text))
        if (folder == root or folder.startswith(os.path.join(root, ""))) and os.path.isdir(folder):
            yield folder


def _change(node: ast.AST) -> tuple[ast.expr, bool] | None:
    """What a node adds to the search path, and whether it goes first."""
    if isinstance(node, ast.Call) and node.args:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "addsitedir":
            return node.args[0], False
        if isinstance(node.func, ast.Attribute) and _is_search_path(node.func.value):
            if name in ADDS:
                return node.args[0], False
            if name == "insert" and len(node.args) > 1:
                return node.args[1], True
    if isinstance(node, ast.AugAssign) and _is_search_path(node.target):
        return node.value, False
    if isinstance(node, ast.Assign) and any(_is_search_path(t.value if isinstance(t, ast.Subscript) else t) for t in node.targets):
        return node.value, True
    return None


def _is_search_path(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "path" and isinstance(node.value, ast.Name) and node.value.id in {"sys", "_sys"}


class _Look:
    """What names of a file hold, as far as it is a path."""

    def __init__(self, nodes: Iterable[ast.AST], changes: Sequence[int], path: str, root: str) -> None:
        self.path = path
        self.root = root
        self.bound: dict[str, list[ast.expr]] = {}
        self.known: dict[str, tuple[str, ...]] = {}
        self.deep = 0
        helpers: dict[str, list[str]] = {}
        for node in nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self._bind([t.id for t in targets if isinstance(t, ast.Name)], node.value)
            elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
                self._bind([node.target.id], node.iter)
            elif isinstance(node, ast.ListComp | ast.GeneratorExp):
                for part in node.generators:
                    self._bind([part.target.id] if isinstance(part.target, ast.Name) else [], part.iter)
            elif isinstance(node, ast.FunctionDef) and any(node.lineno <= row <= (node.end_lineno or row) for row in changes):
                helpers[node.name] = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
        for node in nodes if helpers else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in helpers:
                for parameter, value in zip(helpers[node.func.id], node.args, strict=False):
                    self._bind([parameter], value)

    def _bind(self, names: Iterable[str], value: ast.expr) -> None:
        for name in names:
            known = self.bound.setdefault(name, [])
            if len(known) < _MOST:
                known.append(value)

    def folders(self, node: ast.expr) -> Iterator[str]:
        """The folders of the project that an expression names."""
        for text in self._strings(node):
            yield from _inside(text, (os.path.dirname(self.path), self.root), self.root)

    def _strings(self, node: ast.AST) -> tuple[str, ...]:
        """The strings that an expression can be, or that are in it; what is unknown adds none."""
        if self.deep > _DEEPEST:
            return ()
        self.deep += 1
        try:
            return tuple(dict.fromkeys(self._of(node)))[:_MOST]
        finally:
            self.deep -= 1

    def _of(self, node: ast.AST) -> Iterable[str]:
        if isinstance(node, ast.Constant):
            return (node.value,) if isinstance(node.value, str) else ()
        if isinstance(node, ast.Name):
            if node.id == "__file__":
                return (self.path,)
            return self._held(node.id)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return [text for item in node.elts for text in self._strings(item)]
        if isinstance(node, ast.Starred):
            return self._strings(node.value)
        if isinstance(node, ast.IfExp):
            return (*self._strings(node.body), *self._strings(node.orelse))
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self._strings(node.elt)
        if isinstance(node, ast.JoinedStr):
            return self._joined([self._strings(part.value if isinstance(part, ast.FormattedValue) else part) for part in node.values], "".join)
        if isinstance(node, ast.BinOp):
            return self._operation(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        return self._call(node) if isinstance(node, ast.Call) else ()

    def _held(self, name: str) -> tuple[str, ...]:
        """What a name is bound to. While one of its values is looked at, it holds the earlier ones: ``here = dirname(here)``."""
        if name not in self.known:
            self.known[name] = ()
            for value in self.bound.get(name, ()):
                self.known[name] = (*self.known[name], *self._strings(value))[-_MOST:]
        return self.known[name]

    def _operation(self, node: ast.BinOp) -> Iterable[str]:
        left, right = self._strings(node.left), self._strings(node.right)
        if isinstance(node.op, ast.Div):
            return self._joined([left, right], _path)
        if not isinstance(node.op, ast.Add):
            return ()
        if any(isinstance(side, ast.List) or _is_search_path(side) for side in (node.left, node.right)):
            return (*left, *right)
        return self._joined([left, right], "".join)

    @staticmethod
    def _joined(parts: Iterable[tuple[str, ...]], join: Callable[[tuple[str, ...]], str]) -> list[str]:
        rows: list[tuple[str, ...]] = [()]
        for part in parts:
            rows = [(*row, text) for row in rows for text in part][:_MOST]
        return [join(row) for row in rows if row]

    def _attribute(self, node: ast.Attribute) -> Iterable[str]:
        constant = {"pardir": os.pardir, "curdir": os.curdir, "sep": "/"}.get(node.attr)
        if constant is not None:
            return (constant,)
        if node.attr == "parent":
            return [_above(text) for text in self._strings(node.value)]
        return ()

    def _subscript(self, node: ast.Subscript) -> Iterable[str]:
        number = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(number, int):
            return ()
        value = node.value
        if isinstance(value, ast.Attribute) and value.attr == "parents" and 0 <= number < _MOST:
            found = self._strings(value.value)
            for _ in range(number + 1):
                found = tuple(_above(text) for text in found)
            return found
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == "sys" and number == 0:
            return {"argv": (self.path,), "path": (os.path.dirname(self.path),)}.get(value.attr, ())
        if isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "split" and value.args:
            return [os.path.split(text)[number] for text in self._strings(value.args[0]) if number in {0, 1, -1}]
        return self._strings(value)[number : number + 1 or None]

    def _call(self, node: ast.Call) -> Iterable[str]:
        func = node.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if name in {"getcwd", "cwd"}:
            return (os.curdir,)
        if name in {"getfile", "getsourcefile"}:
            return (self.path,)
        if name == "dirname" and node.args:
            return map(os.path.dirname, self._strings(node.args[0]))
        if name in {"join", "joinpath"} and not (isinstance(func, ast.Attribute) and isinstance(func.value, ast.Constant)):
            parts = [self._strings(arg) for arg in node.args]
            if name == "joinpath" and isinstance(func, ast.Attribute):
                parts.insert(0, self._strings(func.value))
            return self._joined(parts, _path)
        if name in {"glob", "iglob"} and node.args:
            patterns = self._strings(node.args[0])
            if isinstance(func, ast.Attribute) and not (isinstance(func.value, ast.Name) and func.value.id == "glob"):
                patterns = tuple(self._joined([self._strings(func.value), patterns], _path))
            return [found for pattern in patterns for found in self._globbed(pattern)]
        if name in _SAME_METHODS and isinstance(func, ast.Attribute) and not node.args:
            return self._strings(func.value)
        if name in {"sorted", "list", "reversed", *SAME_PATH} and node.args:
            return self._joined([self._strings(arg) for arg in node.args], _path)
        return ()

    def _globbed(self, pattern: str) -> list[str]:
        """The folders of the project that a pattern fits. One that leads out of it, or down any number of folders, is not followed."""
        found: list[str] = []
        for base in (os.path.dirname(self.path), self.root):
            whole = os.path.normpath(os.path.join(base, pattern))
            below = whole.removeprefix(os.path.join(self.root, ""))
            if below != whole and sum(map(glob.has_magic, below.split(os.sep))) <= _MOST_STARS and "**" not in below:
                found += (each for each, _ in zip(glob.iglob(os.path.join(glob.escape(self.root), below)), range(_MOST_GLOBBED), strict=False))
        return sorted(each for each in found if os.path.isdir(each))


def _path(parts: tuple[str, ...]) -> str:
    return os.path.join(*parts)


def _above(path: str) -> str:
    """``Path.parent``."""
    return os.path.dirname(path.rstrip("/"))


# -- metadata ----------------------------------------------------------------------------------------------------------


def laid_out(folder: str) -> Iterator[tuple[str, str]]:
    """Where the packages of the project in ``folder`` lie, as its metadata says or as is usual: a package, or nothing for all, and a path that need not exist.

    Read are the ``package-dir`` and ``where`` of setuptools, also in ``setup.cfg`` and ``setup.py``, and what Poetry, PDM and Hatch have for the same.
    """
    for name in METADATA:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            try:
                with open(path, "rb") as stream:
                    text = stream.read(1_000_000).decode(errors="replace")
            except OSError:
                continue
            for package, place in {"pyproject.toml": _pyproject, "setup.cfg": _setup_cfg, "setup.py": _setup_py}[name](text):
                if "." not in package:
                    yield package, os.path.normpath(os.path.join(folder, place))
    for name in ("src", "lib", "python"):
        yield "", os.path.join(folder, name)


def _pyproject(text: str) -> Iterator[tuple[str, str]]:
    if "tool." not in text:
        return
    import tomllib  # noqa: PLC0415 - for few files

    try:
        tool = tomllib.loads(text).get("tool", {})
    except (ValueError, RecursionError):
        return
    setuptools = _at(tool, "setuptools")
    yield from ((package, place) for package, place in _at(setuptools, "package-dir").items() if isinstance(place, str))
    wheel = _at(tool, "hatch", "build", "targets", "wheel")
    poetry = _at(tool, "poetry").get("packages")
    places = [
        *_texts(_at(setuptools, "packages", "find").get("where")),
        *_texts([package.get("from") for package in poetry if isinstance(package, dict)] if isinstance(poetry, list) else ()),
        *_texts([_at(tool, "pdm", "build").get("package-dir")]),
        *(os.path.dirname(package) for package in _texts(wheel.get("packages"))),
        *_texts(wheel.get("sources")),
    ]
    yield from (("", place) for place in places)


def _at(table: object, *keys: str) -> dict[str, object]:
    """The table below the keys; an empty one where there is none."""
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def _texts(values: object) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list | dict) else []


def _setup_cfg(text: str) -> Iterator[tuple[str, str]]:
    found = _DIRECTORIES.search(text)
    if found:
        yield from re.findall(r"^\s*(\w*)\s*=\s*(\S+)", found[1], re.MULTILINE)
    yield from (("", place) for place in re.findall(r"^where\s*=\s*(\S+)", text, re.MULTILINE))


def _setup_py(text: str) -> Iterator[tuple[str, str]]:
    for table in re.findall(r"package_dir\s*=\s*\{([^}]*)\}", text):
        yield from re.findall(r"""['"](\w*)['"]\s*:\s*['"]([^'"\n]+)['"]""", table)
    yield from (("", place) for place in re.findall(r"""find_(?:namespace_)?packages\(\s*(?:where\s*=\s*)?['"]([^'"\n]+)['"]""", text))
