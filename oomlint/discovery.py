"""Paths, .gitignore files and excludes: which files a run checks.

What the user names is checked; what is found below it is filtered. A folder that is itself ignored, or lies in one, is walked where it is named:
patterns from above that cover it have been overruled, and only those.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from oomlint.beside_code import EDITOR_FOLDER
from oomlint.source import cause_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pathspec import GitIgnoreSpec

    from oomlint.config import Settings

SUFFIXES: Final = (".py", ".pyi", ".ipynb")
METADATA: Final = ("pyproject.toml", "setup.cfg", "setup.py")  # of a project
ENVIRONMENT_MARKS: Final = frozenset({"pyvenv.cfg", "conda-meta"})  # a folder that holds one is an environment, whatever its name

_ROWS: Final = re.compile(r"(?::\d+)+\Z")  # as compilers write them behind a path
_PAPERS: Final = ("license", "licence", "requirements", "setup.py", "setup.cfg", "pyproject.toml", "environment.y", ".gitignore")
_NOT_ENTERED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_WILD: Final = re.compile(r"[*?\[]")
_SIMPLE_SET: Final = re.compile(r"\[[A-Za-z0-9_.]+\]")
_GLOB_PART: Final = re.compile(r"\*+|\?|\[[A-Za-z0-9_.]+\]|[^*?\[]+")


class Problem(Struct, frozen=True, order=True):
    """A path that cannot be checked, and why, in one line without the path."""

    path: str
    message: str


class Discovery(Struct, frozen=True):
    """Absolute paths in order, each once."""

    files: tuple[str, ...]
    problems: tuple[Problem, ...]


def discover(
    paths: Iterable[str | os.PathLike[str]],
    settings: Settings,
    root: str | os.PathLike[str],
    force_exclude: bool = False,  # noqa: FBT001, FBT002
    most_entries: int | None = None,
    wanted: Callable[[str], bool] | None = None,
) -> Discovery:
    """The files to check.

    A file is taken whatever its suffix, a folder for the Python files and notebooks below it. Excludes and .gitignore files filter what is found in
    folders; with ``force_exclude``, the excludes also filter ``paths``. Virtual environments are not entered. Symbolic links to files are taken (reading
    a dead or circular one tells its cause), links to folders are not followed: datasets hang on them, and loops. With ``most_entries``, the search of
    each path goes from near folders to deep ones and ends once it has seen so many files and folders. ``wanted`` says by their paths which files are found
    in folders, where it is not Python files and notebooks.
    """
    walk = _Walk(settings, os.path.abspath(root), most_entries, wanted)
    for path in paths:
        if os.fspath(path):
            walk.take(os.path.abspath(path), force_exclude=force_exclude)
        else:  # a variable of a shell that is not set; made absolute, it would be the current folder
            walk.problems.add(Problem("", "No such file or directory: the path is empty"))
    return Discovery(tuple(sorted(walk.files)), tuple(sorted(walk.problems)))


def tops_of(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """The folders that what the user names belongs to: a folder itself, and for a file the one that it would be imported from."""
    found = set()
    for path in map(os.path.abspath, paths):
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        while folder != path and os.path.isfile(os.path.join(folder, "__init__.py")):
            folder = os.path.dirname(folder)
        found.add(folder)
    return tuple(sorted(found))


class Reached:
    """The files that belong to what the user names, code or not."""

    def __init__(self, paths: Iterable[str | os.PathLike[str]], settings: Settings, root: str | os.PathLike[str]) -> None:
        self._named = frozenset(map(os.path.abspath, paths))
        self._folders = tuple(os.path.join(path, "") for path in self._named if os.path.isdir(path))
        self._walk = _Walk(settings, os.path.abspath(root))
        self._known: dict[str, bool] = {}

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, str):
            return False
        if path not in self._known:
            self._known[path] = path in self._named or (path.startswith(self._folders) and self._walk.meets(path))
        return self._known[path]


def is_laid_out(names: Iterable[str]) -> bool:
    """Whether a folder with these entries looks like the top of a repository: a README, and a license, requirements or the like."""
    lower = [name.lower() for name in names]
    return any(name.startswith("readme") for name in lower) and any(name.startswith(_PAPERS) for name in lower)


def is_paper(name: str) -> bool:
    """Whether an entry is one of those that make a folder look like the top of a repository."""
    return name.lower().startswith(("readme", *_PAPERS))


def is_passed_by(name: str) -> bool:
    """Whether a look over the state of a project does not enter a folder of that name."""
    return name.startswith(".") or name in _NOT_ENTERED


def unreached(folders: Iterable[str], settings: Settings, root: str | os.PathLike[str]) -> tuple[str, ...]:
    """The folders that a walk over the root does not enter: they are ignored, excluded, linked or in an environment, or lie elsewhere."""
    walk = _Walk(settings, os.path.abspath(root))
    return tuple(folder for folder in folders if not walk.enters(folder))


class Patterns:
    """Lines of a .gitignore, or of a setting that is written like one, as they hold below the folder ``base``.

    What nearly all lines are (a name, a name with ``*``, a path) is looked up here; only the rest cost the import of pathspec. Where a line begins with
    ``!``, the last one that speaks of a path decides, as in git: each is looked up by itself.
    """

    __slots__ = ("_folder_glob", "_folder_names", "_folder_paths", "_glob", "_names", "_ordered", "_paths", "_prefix", "_spec", "base", "lines")

    def __init__(self, base: str, lines: Iterable[str]) -> None:
        self.base = base
        self.lines = [line for line in lines if line.strip() and not line.startswith("#")]
        self._prefix = base if base.endswith(os.sep) else base + os.sep
        self._names: set[str] = set()
        self._folder_names: set[str] = set()
        self._paths: set[str] = set()
        self._folder_paths: set[str] = set()
        globs: list[str] = []
        folder_globs: list[str] = []
        rest: list[str] = []
        self._ordered: list[tuple[bool, Patterns]] = []  # where the order counts, the last line first: whether it leaves out, and what it says without its mark
        if any(line.startswith("!") for line in self.lines):
            self._ordered = [(not line.startswith("!"), Patterns(base, [_unmarked(line)])) for line in reversed(self.lines)]
        for line in () if self._ordered else self.lines:
            name = line.rstrip(" ")
            folder = name.endswith("/")
            body = name[:-1] if folder else name
            if "\\" in name or "//" in name or not body:
                rest.append(line)
            elif "/" in body:
                if _WILD.search(body):
                    rest.append(line)
                else:
                    (self._folder_paths if folder else self._paths).add(body.removeprefix("/"))
            elif not _WILD.search(body):
                (self._folder_names if folder else self._names).add(body)
            elif "[" not in _SIMPLE_SET.sub("", body) and body.strip("*"):
                (folder_globs if folder else globs).append(_as_regex(body))
            else:
                rest.append(line)
        self._glob = re.compile("|".join(globs), re.DOTALL) if globs else None
        self._folder_glob = re.compile("|".join(folder_globs), re.DOTALL) if folder_globs else None
        self._spec = _spec(rest) if rest else None

    def verdict(self, path: str, *, folder: bool) -> bool | None:
        """Whether the lines leave a path out: True, False where one brings it back, None where none speaks of it. Folders above are not looked at."""
        if self._ordered:
            return next((leaves for leaves, line in self._ordered if line._is_of(path, folder=folder)), None)  # noqa: SLF001 - the same class
        name = path[path.rfind(os.sep) + 1 :]
        if name in self._names or (self._glob and self._glob.fullmatch(name)):
            return True
        if folder and (name in self._folder_names or (self._folder_glob and self._folder_glob.fullmatch(name))):
            return True
        if not (self._paths or self._folder_paths or self._spec):
            return None
        relative = self._relative(path)
        if relative in self._paths or (folder and relative in self._folder_paths):
            return True
        return self._spec.check_file(relative + "/" if folder else relative).include if self._spec else None

    def _is_of(self, path: str, *, folder: bool) -> bool:
        """Whether the only line is one of the path itself. pathspec takes ``a/*`` for all that lies below ``a/b``, too, which git looks at no more."""
        if not self.verdict(path, folder=folder):
            return False
        above = os.path.dirname(path)
        inside = self._spec is not None and len(above) >= len(self._prefix) and not self.lines[0].rstrip(" /").endswith("**")
        return not (inside and self.verdict(above, folder=True))

    def without_covering(self, path: str) -> Patterns:
        """These patterns less the lines that leave out ``path`` or a folder above it."""
        chain = list(_chain(path, self.base))
        if not any(self.verdict(each, folder=True) for each in chain):
            return self
        kept = [line for line in self.lines if line.startswith("!") or not any(Patterns(self.base, [line]).verdict(each, folder=True) for each in chain)]
        return Patterns(self.base, kept)

    def _relative(self, path: str) -> str:
        """The path from the base, with ``/``. Out of the base it begins with ``..``, so that only patterns for names can match."""
        relative = path[len(self._prefix) :] if path.startswith(self._prefix) else os.path.relpath(path, self.base)
        return relative if os.sep == "/" else relative.replace(os.sep, "/")


class PerFileIgnores:
    """The setting ``per-file-ignores``: the codes that files leave out. A pattern that names a folder holds for all below it."""

    def __init__(self, settings: Settings, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(root)
        self._table = [(Patterns(self._root, [pattern]), codes) for pattern, codes in settings.per_file_ignores.items()]

    def codes(self, path: str) -> frozenset[str]:
        """Codes and prefixes to leave out in the file ``path`` (absolute)."""
        found: set[str] = set()
        for patterns, codes in self._table:
            if patterns.verdict(path, folder=False) or any(patterns.verdict(each, folder=True) for each in _chain(os.path.dirname(path), self._root)):
                found.update(codes)
        return frozenset(found)


class _Walk:
    """One run's search. Files of patterns are read once."""

    def __init__(self, settings: Settings, root: str, most_entries: int | None = None, wanted: Callable[[str], bool] | None = None) -> None:
        self._wanted = wanted
        self._most = self._left = most_entries
        self._entered: set[str] = set()  # folders that were walked
        self.files: set[str] = set()
        self.problems: set[Problem] = set()
        self._root = root
        self._excludes = Patterns(root, (*settings.exclude, *settings.extend_exclude))
        self._beside_default = Patterns(root, settings.extend_exclude)
        self._respect_gitignore = settings.respect_gitignore

    def take(self, path: str, *, force_exclude: bool) -> None:
        """Add what the user names."""
        folder = os.path.isdir(path)
        if not os.path.lexists(path):
            file = _ROWS.sub("", path)
            hint = "; `oomlint verify` takes rows of a file, `oomlint check` whole files" if file != path and os.path.isfile(file) else ""
            self.problems.add(Problem(path, f"No such file or directory{hint}"))
            return
        if force_exclude and self._is_excluded(path, folder=folder):
            return
        if folder:
            self._walk(path)
        else:
            self.files.add(path)

    def _is_excluded(self, path: str, *, folder: bool) -> bool:
        """Whether the excludes leave out a path or a folder between it and the root."""
        if path == self._root:
            return False
        above = _chain(os.path.dirname(path), self._root)
        return bool(self._excludes.verdict(path, folder=folder)) or any(self._excludes.verdict(each, folder=True) for each in above)

    def enters(self, folder: str) -> bool:
        """Whether a walk over the root comes to the folder."""
        return self._patterns_of(folder) is not None

    def meets(self, path: str) -> bool:
        """Whether a walk over the root comes to the file, be it code or not."""
        folder = os.path.dirname(path)
        if os.path.basename(folder) == EDITOR_FOLDER and not self._beside_default.verdict(folder, folder=True):
            folder = os.path.dirname(folder)  # it is left out by default for what else is in it
        patterns = self._patterns_of(folder)
        return patterns is not None and not _is_left_out(path, patterns, folder=False)

    def _patterns_of(self, folder: str) -> tuple[Patterns, ...] | None:
        """The patterns that hold in a folder; ``None`` where a walk over the root does not come to it."""
        chain = [*_chain(folder, self._root)][::-1]
        if not chain and folder != self._root:
            return None
        ignores = self._ignores_in(self._root, self._ignores_above(self._root), start=True)
        excludes = self._excludes.without_covering(self._root)
        for each in chain:
            if os.path.islink(each) or _is_left_out(each, (excludes, *ignores), folder=True):
                return None
            if any(os.path.lexists(os.path.join(each, mark)) for mark in ENVIRONMENT_MARKS):
                return None
            ignores = self._ignores_in(each, ignores)
        return (excludes, *ignores)

    def _walk(self, start: str) -> None:
        if start in self._entered:  # what is left out below it was left out by patterns that do not cover it: they would do so again
            return
        self._left = self._most
        excludes = self._excludes.without_covering(start)
        pending = [(start, self._ignores_above(start))]
        while pending:
            if self._left is not None and self._left <= 0:
                return
            folder, ignores = pending.pop() if self._left is None else pending.pop(0)
            try:
                with os.scandir(folder) as found:
                    entries = {entry.name: entry for entry in found}
                if self._left is not None:
                    self._left -= len(entries)
                    entries = dict(sorted(entries.items()))
                if folder != start and not ENVIRONMENT_MARKS.isdisjoint(entries):
                    continue
                self._entered.add(folder)
                if ".git" in entries or ".gitignore" in entries:
                    ignores = self._ignores_in(folder, ignores, start=folder == start)
                for entry in entries.values():
                    if entry.is_dir(follow_symlinks=False):
                        if not _is_left_out(entry.path, (excludes, *ignores), folder=True):
                            pending.append((entry.path, ignores))
                    elif (
                        (self._wanted(entry.path) if self._wanted else entry.name.endswith(SUFFIXES))
                        and _is_checkable(entry)
                        and not _is_left_out(entry.path, (excludes, *ignores), folder=False)
                    ):
                        self.files.add(entry.path)
            except OSError as error:
                self.problems.add(Problem(folder, f"{cause_of(folder, error)}: the folder cannot be listed"))

    def _ignores_in(self, folder: str, above: tuple[Patterns, ...], *, start: bool = False) -> tuple[Patterns, ...]:
        """The patterns that hold in a folder: its own, and those from above."""
        if not self._respect_gitignore:
            return ()
        if not start and os.path.lexists(os.path.join(folder, ".git")):
            above = repository_excludes(folder)  # a repository of its own: the one around it has no say
        own = _read_patterns(folder, os.path.join(folder, ".gitignore"))
        return (own, *above) if own.lines else above

    def _ignores_above(self, start: str) -> tuple[Patterns, ...]:
        return ignores_above(start, self._root) if self._respect_gitignore else ()


def ignores_above(start: str, root: str) -> tuple[Patterns, ...]:
    """Patterns from the folders above ``start`` (nearest first), up to its repository's top; without a repository, up to the project's root."""
    if os.path.lexists(os.path.join(start, ".git")):
        return tuple(patterns.without_covering(start) for patterns in repository_excludes(start))
    above = [start]
    while os.path.dirname(above[-1]) != above[-1]:
        above.append(os.path.dirname(above[-1]))
    above = above[1:]
    top = next((folder for folder in above if os.path.lexists(os.path.join(folder, ".git"))), None)
    limit = top or (root if root in above else None)
    if limit is None:
        return ()
    found = [_read_patterns(folder, os.path.join(folder, ".gitignore")) for folder in above[: above.index(limit) + 1]]
    found += repository_excludes(top) if top else ()
    return tuple(patterns.without_covering(start) for patterns in found if patterns.lines)


def _is_left_out(path: str, listed: Iterable[Patterns], *, folder: bool) -> bool:
    """The first list that speaks of the path decides: the excludes, then the nearest .gitignore."""
    verdicts = (patterns.verdict(path, folder=folder) for patterns in listed)
    return next((verdict for verdict in verdicts if verdict is not None), False)


def _is_checkable(entry: os.DirEntry[str]) -> bool:
    """A regular file, or a link to anything but a folder. Emacs's locks are dead links of the form ``.#name``."""
    if entry.is_symlink():
        return not entry.name.startswith(".#") and not os.path.isdir(entry.path)
    return entry.is_file(follow_symlinks=False)


def _chain(path: str, base: str) -> Iterator[str]:
    """The path and the folders above it, as far as they lie below ``base``; nothing where it does not."""
    prefix = base if base.endswith(os.sep) else base + os.sep
    while path != base and path.startswith(prefix):
        yield path
        path = os.path.dirname(path)


def repository_excludes(top: str) -> tuple[Patterns, ...]:
    """The patterns of .git/info/exclude. In a work tree or submodule ``.git`` is a file that says where the repository is."""
    repository = os.path.join(top, ".git")
    if os.path.isfile(repository):
        repository = os.path.join(top, _first_line(repository).removeprefix("gitdir:").strip())
        common = _first_line(os.path.join(repository, "commondir"))
        repository = os.path.join(repository, common) if common else repository
    patterns = _read_patterns(top, os.path.join(repository, "info", "exclude"))
    return (patterns,) if patterns.lines else ()


def _first_line(path: str) -> str:
    return next(iter(_lines(path)), "").strip()


def _read_patterns(base: str, path: str) -> Patterns:
    return Patterns(base, _lines(path))


def _lines(path: str) -> list[str]:
    """Lines of a small text file; none where it cannot be read."""
    if not os.path.isfile(path):
        return []
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
            return [line.removesuffix("\r") for line in stream.read().split("\n")]
    except OSError:
        return []


def _as_regex(glob: str) -> str:
    """A glob for one name, of ``*``, ``?`` and simple sets, as a regular expression."""
    parts = []
    for part in _GLOB_PART.findall(glob):
        if part.startswith("*"):
            parts.append(".*")
        elif part == "?":
            parts.append(".")
        else:
            parts.append(part if part.startswith("[") else re.escape(part))
    return "".join(parts)


def _unmarked(line: str) -> str:
    """A line without the mark that it brings back what it matches."""
    rest = line.removeprefix("!")
    return f"\\{rest}" if rest != line and rest.startswith(("!", "#")) else rest


def _spec(lines: list[str]) -> GitIgnoreSpec:
    """The patterns that need a whole matcher. Like git, this passes over a line that is no valid pattern."""
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - its import takes longer than a walk over hundreds of files
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # noqa: PLC0415

    patterns = []
    for line in lines:
        try:
            patterns.append(GitIgnoreSpecPattern(line))
        except (ValueError, re.error):
            continue
    return GitIgnoreSpec(patterns, backend="simple")
