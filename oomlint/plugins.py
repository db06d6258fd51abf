"""Rules from elsewhere: of installed packages, by the entry point ``oomlint.rules``, and from folders of the project that its settings name.

What is loaded holds for the whole process: a run begins with :func:`use`. Whatever is wrong with a plugin is told in a line and leaves all other rules alone.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import sys
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from oomlint import catalogue
from oomlint.finding import Safety, Severity, Weighs
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

GROUP: Final = "oomlint.rules"  # of entry points
_CODE: Final = re.compile(r"([A-Z]{2,9})[0-9]{3}")
_SLUG: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")
_PACKAGE: Final = "oomlint_local_rules"  # what the modules of local rules lie in: `oomlint_local_rules.f0.name`
_RAISED: Final = (Exception, SystemExit)  # what the code of others may do


class Terminated(SystemExit):
    """A signal has ended this run, wherever it was: that is nothing that the code of others has done."""


class RuleSources(NamedTuple):
    """Where rules come from beside our own."""

    installed: bool = False
    local: tuple[str, ...] = ()  # files and folders of the project


class _Loaded(Struct, frozen=True):
    origin: str  # as messages name it: "plugin lab-rules 1.2", "local rules lint/loaders.py"
    rule: Rule


_now: RuleSources | None = None
_loaded: dict[str, _Loaded] = {}  # by code
_problems: list[str] = []
_signature: list[str] = []  # what findings of these rules depend on: versions, and the content of files


def use(sources: RuleSources) -> None:
    """Load the rules of these sources, and forget those of any others. What is installed is loaded once; local files are read again each time."""
    global _now  # noqa: PLW0603 - rules are known to the whole process, as ours are
    if sources == _now and not sources.local:
        return
    _now = sources
    _loaded.clear()
    _problems.clear()
    _signature.clear()
    catalogue.ADDED.clear()
    catalogue.ADDED_PREVIEW.clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
        del sys.modules[name]
    if sources.installed and _is_there(sys.path):
        _load_installed()
    for number, path in enumerate(sources.local):
        _load_local(f"{_PACKAGE}.f{number}", path)


def used() -> RuleSources:
    """The sources that were loaded last."""
    return _now or RuleSources()


def rule(code: str) -> Rule | None:
    """The rule of a plugin that has this code."""
    found = _loaded.get(code)
    return None if found is None else found.rule


def origin(code: str) -> str:
    """The plugin that a rule comes from; empty for ours."""
    found = _loaded.get(code)
    return "" if found is None else found.origin


def by_origin() -> list[tuple[str, list[str]]]:
    """The codes of each plugin."""
    found: dict[str, list[str]] = {}
    for code, loaded in _loaded.items():
        found.setdefault(loaded.origin, []).append(code)
    return list(found.items())


def problems() -> tuple[str, ...]:
    """What could not be loaded, and why: a line each."""
    return tuple(_problems)


def whole() -> bool:
    """Whether all rules are there that were asked for."""
    return not _problems


def signature() -> tuple[str, ...]:
    """What stands for the state of all that is loaded."""
    return tuple(_signature)


# -- installed packages --------------------------------------------------------------------------------------------------


def _is_there(folders: Sequence[str]) -> bool:
    """Whether some package may have rules. Reading the metadata of all packages properly takes longer than many a check."""
    wanted = f"[{GROUP}]".encode()
    for folder in dict.fromkeys(folders):
        with suppress(OSError):
            for name in os.listdir(folder or os.curdir):
                if name.endswith((".dist-info", ".egg-info")):
                    with suppress(OSError), open(os.path.join(folder, name, "entry_points.txt"), "rb") as stream:
                        if wanted in stream.read():
                            return True
    return False


def _load_installed() -> None:
    from importlib import metadata  # noqa: PLC0415 - it brings much

    points = metadata.entry_points(group=GROUP)
    for point in sorted(points, key=lambda point: (point.dist.name if point.dist else "", point.name, point.value)):
        origin = f"plugin {point.dist.name} {point.dist.version}" if point.dist else f"plugin {point.value}"
        try:
            with _as_ever():
                found = point.load()
            rules = list(_rules_of(found))
            if not rules:
                raise TypeError(f"{point.value} has no rules")
            _signature.append(f"{origin} {point.value} {_state_of(sys.modules[rules[0].__module__])}")
            _add(origin, rules)
        except Terminated:
            raise
        except _RAISED as error:
            _problems.append(f"{origin}: {cause(error)}: {point.name} = {point.value} is left out")


def _state_of(module: ModuleType) -> str:
    """What stands for the files of the package that a module belongs to: an editable one changes without a new version."""
    name = module.__name__.partition(".")[0]
    top = sys.modules.get(name, module)
    folders = list(getattr(top, "__path__", ()))
    files = [os.path.join(folder, name) for top in folders for folder, _, names in os.walk(top) for name in names if name.endswith(".py")]
    return _digest(files or [str(top.__file__)])


# -- local rules ---------------------------------------------------------------------------------------------------------


def _load_local(package: str, path: str) -> None:
    folder, only = os.path.split(path) if os.path.isfile(path) else (path, "")
    try:
        found = [only] if only else sorted(name for name in os.listdir(path) if name.endswith(".py"))
    except OSError as error:
        _problems.append(f"local rules {_shown(path)}: {error.strerror or error}")
        return
    for name, where in ((_PACKAGE, []), (package, [folder])):
        made = ModuleType(name)
        made.__path__ = where
        sys.modules.setdefault(name, made)
    importlib.invalidate_caches()
    for name in found:
        if name.startswith("_") and not only:  # for the others to import
            continue
        origin = f"local rules {_shown(os.path.join(folder, name))}"
        try:
            with _as_ever():
                module = importlib.import_module(f"{package}.{name.removesuffix('.py')}")
            _add(origin, list(_rules_of(module)))
        except Terminated:
            raise
        except _RAISED as error:
            _problems.append(f"{origin}: {cause(error)}: the file is left out")
    # What they import of their own folder is theirs, too.
    theirs = [str(getattr(module, "__file__", None) or "") for name, module in sys.modules.items() if name.startswith(f"{package}.")]
    _signature.append(f"{path} {_digest(dict.fromkeys([*(os.path.join(folder, name) for name in found), *theirs]))}")


@contextmanager
def _as_ever() -> Iterator[None]:
    """While the code of others is loaded: it leaves no files, and nothing that it says gets into a report."""
    known, kept = sys.dont_write_bytecode, sys.stdout
    sys.dont_write_bytecode, sys.stdout = True, sys.stderr
    try:
        yield
    finally:
        sys.dont_write_bytecode, sys.stdout = known, kept


# -- their rules ---------------------------------------------------------------------------------------------------------


def _rules_of(found: object) -> Iterator[type[Rule]]:
    """The rules that an entry point or a file stands for: a class, or those that a module defines. Raises TypeError where there are none."""
    if isinstance(found, type) and issubclass(found, Rule):
        yield found
        return
    if not isinstance(found, ModuleType):
        raise TypeError(f"{found!r} is neither a rule nor a module")
    package = found.__name__.partition(".")[0] if not found.__name__.startswith(f"{_PACKAGE}.") else found.__name__
    for item in vars(found).values():
        base = isinstance(item, type) and issubclass(item, Rule) and (item.__abstractmethods__ or item.__name__.startswith("_"))  # of others
        if isinstance(item, type) and issubclass(item, Rule) and not base and f"{item.__module__}.".startswith(f"{package}."):
            yield item


def _add(origin: str, classes: Sequence[type[Rule]]) -> None:
    """Make the rules known. One that is wrong is told and left out."""
    for cls in classes:
        wrong = _wrong(cls)
        if wrong:
            _problems.append(f"{origin}: {cls.__name__}: {wrong}: the rule is left out")
            continue
        try:
            made = cls()
        except Terminated:
            raise
        except _RAISED as error:
            _problems.append(f"{origin}: {cls.__name__}: {cause(error)}: the rule is left out")
            continue
        _loaded[cls.code] = _Loaded(origin, made)
        catalogue.ADDED[cls.code] = cls.slug
        if cls.preview:
            catalogue.ADDED_PREVIEW.add(cls.code)


def _wrong(cls: type[Rule]) -> str:
    """Why a class is no rule that could be used; empty where it is one."""
    code, slug = getattr(cls, "code", None), getattr(cls, "slug", None)
    match = _CODE.fullmatch(code) if isinstance(code, str) else None
    if match is None:
        return f"code {code!r} is not of the form 'LAB101': two to nine capitals and three digits"
    if not isinstance(slug, str) or not _SLUG.fullmatch(slug):
        return f"slug {slug!r} is not of the form 'words-with-hyphens'"
    family = match[1]
    others = dict(catalogue.catalogue())
    if code in others:
        return f"code {code} is one of {origin(code) or 'oomlint itself'}"
    for known, name in others.items():
        letters = known.rstrip("0123456789")
        whose = origin(known) or "oomlint itself"
        if name == slug:
            return f"slug {slug!r} is one of {whose} ({known})"
        if (letters.startswith(family) or family.startswith(letters)) and not (letters == family and origin(known)):  # plugins may share a family
            return f"code {code}: {letters} is a family of {whose}, and prefixes of codes would mean both"
    if family.startswith("ALL"):
        return f"code {code}: ALL stands for all rules"
    wanted: tuple[tuple[str, type | tuple[type, ...]], ...] = (
        ("severity", Severity),
        ("fixable", (Safety, type(None))),
        ("weighs", Weighs),
        ("url", str),
        ("preview", bool),
    )
    for field, kind in wanted:
        if not isinstance(getattr(cls, field, Rule), kind):
            return f"{field} is missing, or no {getattr(kind, '__name__', 'Safety')}"
    lower: object = cls.lower
    if not isinstance(lower, tuple) or not all(isinstance(each, Severity) for each in lower):
        return "lower is no tuple of severities"
    mentions: object = cls.mentions
    if not isinstance(mentions, tuple) or not all(isinstance(word, str) for word in mentions):
        return "mentions is no tuple of words"
    return ""


def cause(error: BaseException) -> str:
    """What an exception is and says, on a line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _shown(path: str) -> str:
    with suppress(ValueError, OSError):
        shown = os.path.relpath(path)
        return path if shown.startswith(os.pardir) else shown.replace(os.sep, "/")
    return path


def _digest(paths: Iterable[str]) -> str:
    state = hashlib.blake2b(digest_size=16)
    for path in sorted(paths):
        with suppress(OSError), open(path, "rb") as stream:
            data = stream.read()
            state.update(f"{path}\0{len(data)}\0".encode(errors="surrogateescape") + data)
    return state.hexdigest()
