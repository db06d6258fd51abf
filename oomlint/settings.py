"""The settings: one frozen record, what each of its fields means, and which values do not fit.

The record is a plain dataclass. :mod:`oomlint.config` reads it from files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, NamedTuple

from oomlint import amounts
from oomlint.catalogue import catalogue, code_of
from oomlint.finding import Confidence, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

DEFAULT_EXCLUDE: Final = (
    ".bzr", ".direnv", ".eggs", ".git", ".git-rewrite", ".hg", ".ipynb_checkpoints", ".mypy_cache", ".nox", ".oomlint_cache", ".pants.d",
    ".pyenv", ".pytest_cache", ".pytype", ".ruff_cache", ".svn", ".tox", ".venv", ".vscode", "__pycache__", "__pypackages__", "_build", "buck-out",
    "build", "dist", "node_modules", "site-packages",
)  # fmt: skip

BASELINE: Final = "oomlint-baseline.json"  # in the project's root, unless it is called otherwise
CODE: Final = re.compile(r"[Aa][Ll][Ll]|[Oo][Oo][Mm][0-9]{0,3}|(?![Oo][Oo][Mm])[A-Za-z]{2,9}[0-9]{0,3}")  # all, ours, those of plugins
SPECIFIERS: Final = re.compile(r"\s*(?:~=|===?|!=|<=?|>=?)\s*[\w.*+!-]+\s*(?:,\s*(?:~=|===?|!=|<=?|>=?)\s*[\w.*+!-]+\s*)*,?\s*")
VARIABLES: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")  # the name of one, or the beginning of several
FACTORY: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")  # module and function
CODE_FIELDS: Final = ("select", "ignore", "extend_select", "fixable", "unfixable")
# Fields that no finding depends on.
_OF_THE_REPORT: Final = ("extend", "fix", "unsafe_fixes", "fixable", "unfixable", "output_format", "sort", "baseline")
_SHOWN_LENGTH: Final = 40


class ConfigError(Exception):
    """Settings that cannot be used, in one line that names file, key and cause."""


class StartMethod(StrEnum):
    """How worker processes come to be. ``auto`` takes what the code says, else counts both kinds."""

    AUTO = "auto"
    FORK = "fork"
    SPAWN = "spawn"
    FORKSERVER = "forkserver"


class Sort(StrEnum):
    """In which order findings are reported."""

    PLACE = "place"  # files and rows
    WEIGHT = "weight"  # what is grave first: severity, what becomes of it, bytes


class OutputFormat(StrEnum):
    """How findings are written."""

    FULL = "full"
    CONCISE = "concise"
    GROUPED = "grouped"
    JSON = "json"
    JSON_LINES = "json-lines"
    GITHUB = "github"
    GITLAB = "gitlab"
    JUNIT = "junit"
    PYLINT = "pylint"
    SARIF = "sarif"


def key_of(name: str) -> str:
    """The TOML key of a field."""
    return name.replace("_", "-")


class _About(NamedTuple):
    """What the documentation says of a setting, and its lower bound."""

    text: str
    least: int | None = None


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """How ``oomlint verify`` runs code: the table ``[tool.oomlint.verify]``."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "alias_generator": key_of}

    command: Annotated[str | None, _About("A command of the project's own to run before and after a fix, such as `python train.py --epochs 1`.")] = None
    factory: Annotated[str | None, _About("A function of the project's that makes a dataset, as `package.module:function`.")] = None
    prepare: Annotated[str | None, _About("A command to run once in the copy of the project, before anything else, such as one that makes its data.")] = None
    patches: Annotated[str | None, _About("A folder with files fixed by hand, named as those that they replace, for findings without a fix to apply.")] = None
    python: Annotated[str | None, _About("The interpreter that has the project's libraries; that of its virtual environment where absent.")] = None
    time_limit: Annotated[str, _About("The time that one run may take, such as `5s` or `2m`.")] = "5s"
    memory_cap: Annotated[str, _About("The memory that one run and all its processes may take, such as `2GiB`.")] = "2GiB"
    disk_cap: Annotated[str, _About("What one run may write to disk, such as `2GiB`.")] = "2GiB"
    repeat: Annotated[int, _About("How often a noisy measurement is repeated.", least=1)] = 3
    pass_env: Annotated[
        tuple[str, ...], _About("Variables of the environment that the code is given beside a fixed few; `WANDB_*` are all that begin so.")
    ] = ()
    read: Annotated[tuple[str, ...], _About("Files and folders that the code may read beside the project, the interpreter and the system.")] = ()

    def as_table(self) -> dict[str, object]:
        """As :meth:`Settings.as_table`."""
        return {key_of(each.name): _plain(getattr(self, each.name)) for each in fields(self)}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is asked to do. The keys are the same in TOML, with hyphens."""

    extend: Annotated[str | None, _About("Another settings file, relative to the folder of this one: it counts where this one says nothing.")] = None
    select: Annotated[tuple[str, ...], _About("Codes, prefixes of codes and names of the rules to check.")] = ("ALL",)
    ignore: Annotated[tuple[str, ...], _About("Codes and prefixes of the rules to leave out.")] = ()
    extend_select: Annotated[tuple[str, ...], _About("Codes and prefixes to check beside those of `select`.")] = ()
    preview: Annotated[bool, _About("Check also the rules that are in preview.")] = False
    per_file_ignores: Annotated[Mapping[str, tuple[str, ...]], _About("Codes and prefixes to leave out in files that match a pattern.")] = field(
        default_factory=dict, hash=False
    )
    local_rules: Annotated[tuple[str, ...], _About("Files and folders of the project, from its root, with rules of its own: they are run.")] = ()
    fix: Annotated[bool, _About("Apply safe fixes, as `--fix` does.")] = False
    unsafe_fixes: Annotated[bool, _About("Apply unsafe fixes too, where fixes are applied.")] = False
    fixable: Annotated[tuple[str, ...], _About("Codes and prefixes of the rules whose fixes may be applied.")] = ("ALL",)
    unfixable: Annotated[tuple[str, ...], _About("Codes and prefixes of rules whose fixes are only shown.")] = ()
    exclude: Annotated[tuple[str, ...], _About("Files and folders to leave out, as lines of a .gitignore in the project's root.")] = DEFAULT_EXCLUDE
    extend_exclude: Annotated[tuple[str, ...], _About("Files and folders to leave out beside those of `exclude`.")] = ()
    respect_gitignore: Annotated[bool, _About("Leave out what .gitignore files and .git/info/exclude name.")] = True
    severity: Annotated[Severity, _About("The lowest severity to show.")] = Severity.WARNING
    min_confidence: Annotated[Confidence, _About("The lowest confidence to show.")] = Confidence.MEDIUM
    output_format: Annotated[OutputFormat, _About("How `oomlint check` writes findings.")] = OutputFormat.FULL
    sort: Annotated[Sort, _About("The order of findings: by `place`, or by `weight`, the gravest and heaviest first.")] = Sort.PLACE
    baseline: Annotated[str | None, _About("File of findings that are neither shown nor fixed, from the project's root; `--write-baseline` makes it.")] = None
    start_method: Annotated[StartMethod, _About("How worker processes start where the code does not say; `auto` counts both kinds.")] = StartMethod.AUTO
    requires_python: Annotated[str | None, _About("Versions of Python that the code runs under; from [project] where absent.")] = None
    workers_over_memory: Annotated[int, _About("OOM110, OOM114: the number of workers from which they are many for a dataset.", least=1)] = 4
    worker_limit: Annotated[int, _About("OOM114, OOM120: the number of workers from which they are many for any loader.", least=1)] = 16
    worker_cap: Annotated[int, _About("OOM120: the number of workers from which a number written in the code is a warning; below it is a note.", least=1)] = 32
    small_bytes: Annotated[int, _About("Data proven to be under this many bytes in all is small: no finding.", least=0)] = 16 * 2**20
    small_elements: Annotated[int, _About("Containers proven to hold under this many elements are small: no finding.", least=0)] = 50_000
    inflight_bytes: Annotated[int, _About("OOM121: bytes that the batches in flight may take.", least=0)] = 4 * 2**30
    array_bytes: Annotated[int, _About("OOM407, OOM404: bytes from which an array that is built up front, or a copy of one, is large.", least=0)] = 256 * 2**20
    cache_dir: Annotated[str, _About("Folder of the cache, from the project's root.")] = ".oomlint_cache"
    verify: Annotated[VerifySettings, _About("How `oomlint verify` runs code.")] = VerifySettings()

    def having(self, **changes: Any) -> Settings:
        """These settings with other values of some fields."""
        return replace(self, **changes)

    def with_overrides(self, **overrides: object) -> Settings:
        """These settings with the options of a command line in place; ``None`` stands for an option that was not given.

        Codes may come comma-separated, per-file-ignores as ``pattern:CODE,CODE``, choices as their words. Raises ConfigError for a value that does not fit.
        """
        known = {each.name for each in fields(self)}
        values = {name: _from_option(name, value) for name, value in overrides.items() if value is not None}
        if not known >= values.keys():
            raise TypeError(f"no such setting: {', '.join(sorted(values.keys() - known))}")
        settings = replace(self, **values)
        check_values(settings, values)
        return settings

    def check_codes(self, known: Iterable[str]) -> None:
        """Raise ConfigError where a code or prefix fits none of the ``known`` codes."""
        codes = tuple(known)
        for key, code in self.codes():
            if code != "ALL" and not any(each.startswith(code) for each in codes):
                raise ConfigError(f"{key}: unknown rule or prefix {code!r}")

    def known_only(self, known: Iterable[str]) -> Settings:
        """These settings without codes and prefixes of plugins that fit none of the ``known`` codes: their rules are not there."""
        codes = tuple(known)

        def kept(given: Iterable[str]) -> tuple[str, ...]:
            return tuple(code for code in given if code == "ALL" or code.startswith("OOM") or any(each.startswith(code) for each in codes))

        ignores = {pattern: kept(given) for pattern, given in self.per_file_ignores.items()}
        given: dict[str, Any] = {name: kept(getattr(self, name)) for name in CODE_FIELDS}
        return replace(self, per_file_ignores=ignores, **given)

    def codes(self) -> Iterator[tuple[str, str]]:
        """Every code and prefix, in capitals, with the key that holds it."""
        for name in CODE_FIELDS:
            for code in getattr(self, name):
                yield key_of(name), code
        for pattern, ignored in self.per_file_ignores.items():
            for code in ignored:
                yield f"per-file-ignores.{pattern!r}", code

    def of_findings(self) -> Settings:
        """These settings without those on which no finding depends."""
        plain = Settings()
        return replace(self, **{name: getattr(plain, name) for name in _OF_THE_REPORT})

    def as_table(self) -> dict[str, object]:
        """The settings as they would stand in TOML: plain lists, numbers and words. Equal settings give equal tables."""
        return {key_of(each.name): _plain(getattr(self, each.name)) for each in fields(self)}


def check_values(settings: Settings, given: Iterable[str]) -> None:
    """Raise ConfigError for a given value of the right type that means nothing."""
    for key, code in settings.codes():
        if not CODE.fullmatch(code):
            raise ConfigError(f"{key}: {quoted(code)} is not a rule code or a prefix of one, such as 'OOM101' or 'OOM1'{_meant(code)}")
    if "cache_dir" in given and os.path.normpath(settings.cache_dir).split(os.sep)[0] in {".", ".."}:
        raise ConfigError(f"cache-dir: {quoted(settings.cache_dir)} is not a folder of its own below the project's root")
    if "baseline" in given and settings.baseline is not None and (not settings.baseline.strip() or "\0" in settings.baseline):
        raise ConfigError("baseline: it is empty, or holds a null character")
    if not all(path.strip() and "\0" not in path for path in settings.local_rules):
        raise ConfigError("local-rules: a path is empty, or holds a null character")
    if "requires_python" in given and settings.requires_python is not None and not SPECIFIERS.fullmatch(settings.requires_python):
        raise ConfigError(f"requires-python: {quoted(settings.requires_python)} is not a version specifier such as '>=3.10'")
    if "verify" in given:
        _check_verify(settings.verify)


def _check_verify(settings: VerifySettings) -> None:
    if settings.repeat < 1:
        raise ConfigError(f"verify.repeat: {settings.repeat} is less than 1")
    for key in ("command", "prepare", "patches", "python"):
        value = getattr(settings, key)
        if value is not None and not value.strip():
            raise ConfigError(f"verify.{key}: it is empty")
        if value is not None and "\0" in value:
            raise ConfigError(f"verify.{key}: {quoted(value)} holds a null character")
    if settings.factory is not None and not FACTORY.fullmatch(settings.factory):
        raise ConfigError(f"verify.factory: {quoted(settings.factory)} is not of the form 'package.module:function'")
    for name in settings.pass_env:
        if not VARIABLES.fullmatch(name):
            raise ConfigError(f"verify.pass-env: {quoted(name)} is not the name of an environment variable")
    if not all(path.strip() and "\0" not in path for path in settings.read):
        raise ConfigError("verify.read: a path is empty, or holds a null character")
    parts: tuple[tuple[str, Callable[[str], object], str], ...] = (
        ("time-limit", amounts.seconds, settings.time_limit),
        ("memory-cap", amounts.cap, settings.memory_cap),
        ("disk-cap", amounts.cap, settings.disk_cap),
    )
    for key, parse, value in parts:
        try:
            parse(value)
        except ValueError as error:
            raise ConfigError(f"verify.{key}: {error}") from None


def capitals(name: str, value: Any) -> Any:
    """Codes in capitals, and those of names; other values as they are."""
    if name in CODE_FIELDS:
        return tuple(code_of(code) for code in value)
    if name == "per_file_ignores":
        return {pattern: tuple(code_of(code) for code in codes) for pattern, codes in value.items()}
    return value


def _from_option(name: str, value: Any) -> Any:
    """A value as a command line gives it."""
    choices: dict[str, type[StrEnum]] = {
        "severity": Severity,
        "min_confidence": Confidence,
        "sort": Sort,
        "output_format": OutputFormat,
        "start_method": StartMethod,
    }
    if name in choices:
        try:
            return choices[name](value)
        except ValueError:
            expected = ", ".join(repr(str(choice)) for choice in choices[name])
            raise ConfigError(f"{key_of(name)}: {quoted(value)} is not one of {expected}") from None
    if name in CODE_FIELDS:
        codes = _split(value)
        if value and not codes:  # an empty variable, say: nothing would be checked
            raise ConfigError(f"{key_of(name)}: {quoted(', '.join(value))} names no rule")
        return capitals(name, codes)
    if name == "per_file_ignores":
        return capitals(name, value if isinstance(value, Mapping) else _per_file_ignores(value))
    return tuple(value) if isinstance(value, list | tuple) else value


def _per_file_ignores(options: Iterable[str]) -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    for option in options:
        pattern, colon, codes = option.rpartition(":")  # the last colon: a path may hold others
        if not colon or not pattern or not codes.strip():
            raise ConfigError(f"per-file-ignores: {quoted(option)} is not of the form 'pattern:CODE'")
        table[pattern] = (*table.get(pattern, ()), *_split([codes]))
    return table


def _meant(name: str) -> str:
    """The name of a rule that was meant, perhaps."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for an error

    close = get_close_matches(name.lower().replace("_", "-"), [slug for _, slug in catalogue()], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _split(options: Iterable[str]) -> tuple[str, ...]:
    return tuple(code.strip() for option in options for code in option.split(",") if code.strip())


def quoted(value: object) -> str:
    """A value on one line, not too long."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 3] + "..."


def _plain(value: object) -> object:
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, VerifySettings):
        return value.as_table()
    if isinstance(value, Mapping):
        return {key: list(codes) for key, codes in sorted(value.items())}
    return list(value) if isinstance(value, tuple) else value
