"""Settings: ``[tool.oomlint]`` of pyproject.toml, or an oomlint.toml, validated into one frozen record.

The record is a plain dataclass. pydantic, which validates a table and writes the JSON Schema, is built from it and imported only where a table
has to be read: a run without settings pays nothing for them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, NamedTuple, get_type_hints

from oomlint import amounts
from oomlint.finding import Confidence, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pydantic import BaseModel, ValidationError

SETTINGS_FILES: Final = (".oomlint.toml", "oomlint.toml")  # keys at their top; in a folder they win over pyproject.toml
PROJECT_MARKERS: Final = ("pyproject.toml", "setup.py", "setup.cfg", ".git")
DEFAULT_EXCLUDE: Final = (
    ".bzr", ".direnv", ".eggs", ".git", ".git-rewrite", ".hg", ".ipynb_checkpoints", ".mypy_cache", ".nox", ".oomlint_cache", ".pants.d",
    ".pyenv", ".pytest_cache", ".pytype", ".ruff_cache", ".svn", ".tox", ".venv", ".vscode", "__pycache__", "__pypackages__", "_build", "buck-out",
    "build", "dist", "node_modules", "site-packages",
)  # fmt: skip

_CODE: Final = re.compile(r"[Aa][Ll][Ll]|[Oo][Oo][Mm][0-9]{0,3}")
_SPECIFIERS: Final = re.compile(r"\s*(?:~=|===?|!=|<=?|>=?)\s*[\w.*+!-]+\s*(?:,\s*(?:~=|===?|!=|<=?|>=?)\s*[\w.*+!-]+\s*)*,?\s*")
VARIABLES: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")  # the name of one, or the beginning of several
FACTORY: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")  # module and function
_OF_THE_REPORT: Final = ("sort", "baseline")
_CODE_FIELDS: Final = ("select", "ignore", "extend_select")
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


class Format(StrEnum):
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
    factory: Annotated[str | None, _About("A function of the project's that makes a data set, as `package.module:function`.")] = None
    prepare: Annotated[str | None, _About("A command to run once in the copy of the project, before anything else: one that makes its data, say.")] = None
    mends: Annotated[str | None, _About("A folder with mends by hand, under the names of the files they mend, for findings without a fix to apply.")] = None
    python: Annotated[str | None, _About("The interpreter that has the project's libraries; that of its virtual environment where absent.")] = None
    time_limit: Annotated[str, _About("The time that one run may take, such as `5s` or `2m`.")] = "5s"
    memory_cap: Annotated[str, _About("The memory that one run and all its processes may take, such as `2GiB`.")] = "2GiB"
    disk_cap: Annotated[str, _About("What one run may write to disk, such as `2GiB`.")] = "2GiB"
    repeat: Annotated[int, _About("How often is repeated what is measured with noise.", least=1)] = 3
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

    select: Annotated[tuple[str, ...], _About("Codes and prefixes of the rules to check.")] = ("OOM",)
    ignore: Annotated[tuple[str, ...], _About("Codes and prefixes of the rules to leave out.")] = ()
    extend_select: Annotated[tuple[str, ...], _About("Codes and prefixes to check beside those of `select`.")] = ()
    per_file_ignores: Annotated[Mapping[str, tuple[str, ...]], _About("Codes and prefixes to leave out in files that match a pattern.")] = field(
        default_factory=dict, hash=False
    )
    exclude: Annotated[tuple[str, ...], _About("Files and folders to leave out, as lines of a .gitignore in the project's root.")] = DEFAULT_EXCLUDE
    extend_exclude: Annotated[tuple[str, ...], _About("Files and folders to leave out beside those of `exclude`.")] = ()
    respect_gitignore: Annotated[bool, _About("Leave out what .gitignore files and .git/info/exclude name.")] = True
    severity: Annotated[Severity, _About("The lowest severity to show.")] = Severity.WARNING
    min_confidence: Annotated[Confidence, _About("The lowest confidence to show.")] = Confidence.MEDIUM
    sort: Annotated[Sort, _About("The order of findings: by `place`, or by `weight`, the gravest and heaviest first.")] = Sort.PLACE
    baseline: Annotated[str | None, _About("File of findings that are neither shown nor fixed, from the project's root; `--write-baseline` makes it.")] = None
    start_method: Annotated[StartMethod, _About("How worker processes start where the code does not say; `auto` counts both kinds.")] = StartMethod.AUTO
    requires_python: Annotated[str | None, _About("Versions of Python that the code runs under; from [project] where absent.")] = None
    workers_over_memory: Annotated[int, _About("OOM114: workers from which a data set in memory is worth a word.", least=1)] = 4
    worker_limit: Annotated[int, _About("OOM120: workers from which a loader is worth a word.", least=1)] = 16
    worker_cap: Annotated[int, _About("OOM120: workers from which a number that the code states is a warning; fewer are a note.", least=1)] = 32
    small_bytes: Annotated[int, _About("Data proven to be under this many bytes in all is small: no finding.", least=0)] = 16 * 2**20
    small_elements: Annotated[int, _About("Containers proven to hold under this many elements are small: no finding.", least=0)] = 50_000
    inflight_bytes: Annotated[int, _About("OOM121: bytes that the batches in flight may take.", least=0)] = 4 * 2**30
    array_bytes: Annotated[int, _About("OOM407: bytes from which an array built in `__init__` is large.", least=0)] = 256 * 2**20
    cache_dir: Annotated[str, _About("Folder of the cache, from the project's root.")] = ".oomlint_cache"
    verify: Annotated[VerifySettings, _About("How `oomlint verify` runs code.")] = VerifySettings()

    def with_overrides(self, **overrides: object) -> Settings:
        """These settings with the options of a command line in place; ``None`` stands for an option that was not given.

        Codes may come comma-separated, per-file-ignores as ``pattern:CODE,CODE``, choices as their words. Raises ConfigError for a value that does not fit.
        """
        known = {each.name for each in fields(self)}
        values = {name: _from_option(name, value) for name, value in overrides.items() if value is not None}
        if not known >= values.keys():
            raise TypeError(f"no such setting: {', '.join(sorted(values.keys() - known))}")
        settings = replace(self, **values)
        _check_values(settings, values)
        return settings

    def check_codes(self, known: Iterable[str]) -> None:
        """Raise ConfigError where a code or prefix fits none of the ``known`` codes."""
        codes = tuple(known)
        for key, code in self.codes():
            if code != "ALL" and not any(each.startswith(code) for each in codes):
                raise ConfigError(f"{key}: unknown rule or prefix {code!r}")

    def codes(self) -> Iterator[tuple[str, str]]:
        """Every code and prefix, in capitals, with the key that holds it."""
        for name in _CODE_FIELDS:
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


def load_settings(config: Path | None, isolated: bool, start: Path, known: Iterable[str] = ()) -> tuple[Settings, Path]:  # noqa: FBT001
    """The settings that hold in ``start``, and the project's root. Raises ConfigError.

    ``config`` names a settings file, ``isolated`` ignores them all; else the nearest of ``start`` and the folders above it is taken. With ``known``
    codes given, codes that fit none of them are refused. The root is the folder of the settings file, else the nearest folder that looks like a project,
    else ``start``.
    """
    if config is not None and isolated:
        raise ConfigError("a settings file is given and is to be ignored: --config and --isolated exclude each other")
    start = Path(os.path.abspath(start))
    folder = start.parent if os.path.isfile(start) else start
    if isolated:
        return Settings(), _project_root(folder)
    found = _given(Path(os.path.abspath(config))) if config else _nearest(folder)
    root = found[0].parent if found else _project_root(folder)
    settings = _settings_of(*found, tuple(known)) if found else Settings()
    if settings.requires_python is None:
        settings = replace(settings, requires_python=_requires_python(root / "pyproject.toml"))
    return settings, root


def settings_file(config: Path | None, start: Path) -> tuple[Path, frozenset[str]] | None:
    """The file that :func:`load_settings` reads, and the fields that its table of the verifier sets. Raises ConfigError."""
    start = Path(os.path.abspath(start))
    found = _given(Path(os.path.abspath(config))) if config else _nearest(start.parent if os.path.isfile(start) else start)
    if found is None:
        return None
    path, table = found
    verify = table.get("verify")
    return path, frozenset(each.name for each in fields(VerifySettings) if isinstance(verify, dict) and key_of(each.name) in verify)


def load_own(path: Path, data: bytes) -> dict[str, object]:
    """What the user's own settings say of the verifier, by field. Raises ConfigError."""
    table = _parsed(path, data)
    stray = next((key for key in table if key != "verify"), None)
    if stray is not None:
        raise ConfigError(f"{_shown(path)}: unknown key {stray!r}: the user's own settings hold the table `verify` and nothing else")
    verify = _settings_of(path, table, ()).verify
    given = table.get("verify")
    return {each.name: getattr(verify, each.name) for each in fields(verify) if isinstance(given, dict) and key_of(each.name) in given}


def json_schema() -> dict[str, object]:
    """The JSON Schema of ``[tool.oomlint]``."""
    schema: dict[str, Any] = _model().model_json_schema(by_alias=True)
    code = {"type": "string", "pattern": f"^(?:{_CODE.pattern})$"}
    properties = schema["properties"]
    for name in _CODE_FIELDS:
        properties[key_of(name)]["items"] = code
    properties["per-file-ignores"]["additionalProperties"]["items"] = code
    verify = schema["$defs"]["VerifySettings"]["properties"]
    properties["verify"]["default"] = Settings().verify.as_table()
    for name, hint in get_type_hints(VerifySettings, include_extras=True).items():
        if key_of(name) in verify:  # what pydantic takes of a nested record are its types and defaults
            (about,) = hint.__metadata__
            verify[key_of(name)] |= {"description": about.text} | ({} if about.least is None else {"minimum": about.least})
    for part in (*properties.values(), *verify.values(), *schema["$defs"].values()):
        part.pop("title", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "oomlint"}


# Files


def _given(path: Path) -> tuple[Path, dict[str, object]]:
    document = _document(path)
    return path, (_tool_table(path, document) or {}) if path.name == "pyproject.toml" else document


def _nearest(folder: Path) -> tuple[Path, dict[str, object]] | None:
    """The nearest settings file and its table. A pyproject.toml without the table is passed by."""
    for each in (folder, *folder.parents):
        for name in SETTINGS_FILES:
            path = each / name
            if os.path.isfile(path):  # unlike Path.is_file, False also where a folder above may not be read
                return path, _document(path)
        path = each / "pyproject.toml"
        if os.path.isfile(path) and b"oomlint" in _bytes(path):  # cheap: no TOML parser for a file that cannot hold the table
            table = _tool_table(path, _document(path))
            if table is not None:
                return path, table
    return None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{_shown(path)}: {error.strerror}") from None


def _document(path: Path) -> dict[str, object]:
    return _parsed(path, _bytes(path))


def _parsed(path: Path, data: bytes) -> dict[str, object]:
    import tomllib  # noqa: PLC0415 - only where there is a file to read

    try:
        document: dict[str, object] = tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{_shown(path)}: not valid UTF-8 at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{_shown(path)}: not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{_shown(path)}: not valid TOML: nested too deeply") from None
    return document


def _tool_table(path: Path, document: dict[str, object]) -> dict[str, object] | None:
    tool = document.get("tool")
    table = tool.get("oomlint") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ConfigError(f"{_shown(path)}: tool.oomlint: {_value(table)} is not a table")
    return table


def _requires_python(path: Path) -> str | None:
    """What the project's own metadata say; nothing where they cannot be read, which is not for this tool to judge."""
    try:
        if not os.path.isfile(path) or b"requires-python" not in path.read_bytes():
            return None
        project = _document(path).get("project")
    except (OSError, ConfigError):
        return None
    value = project.get("requires-python") if isinstance(project, dict) else None
    return value.strip() if isinstance(value, str) and _SPECIFIERS.fullmatch(value) else None


def _project_root(folder: Path) -> Path:
    return next((each for each in (folder, *folder.parents) if any(os.path.exists(each / marker) for marker in PROJECT_MARKERS)), folder)


def _shown(path: Path) -> str:
    """A path as a message gives it: from the current folder where it lies below it."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return path.as_posix()


# Values


def _settings_of(path: Path, table: dict[str, object], known: tuple[str, ...]) -> Settings:
    if not table:
        return Settings()
    origin = f"{_shown(path)}: [tool.oomlint] " if path.name == "pyproject.toml" else f"{_shown(path)}: "
    try:
        values = _validated(table)
        settings = Settings(**{name: _capitals(name, value) for name, value in values.items()})
        _check_values(settings, values)
        if known:
            settings.check_codes(known)
    except ConfigError as error:
        raise ConfigError(f"{origin}{error}") from None
    return settings


def _validated(table: dict[str, object]) -> dict[str, Any]:
    """The fields that a table sets, with their types."""
    from pydantic import ValidationError  # noqa: PLC0415 - a tenth of a second, paid only where there is a table

    try:
        # By way of JSON: there, strict validation takes lists for tuples and words for choices, and still no "4" for 4.
        model = _model().model_validate_json(json.dumps(table, default=str), strict=True)
    except ValidationError as error:
        raise ConfigError(_first_cause(error)) from None
    return {name: getattr(model, name) for name in model.model_fields_set}


@cache
def _model() -> type[BaseModel]:
    """The pydantic model of a table, made from the record's own fields."""
    from pydantic import ConfigDict, Field, create_model  # noqa: PLC0415 - see above

    defaults = Settings()
    definitions: dict[str, Any] = {}
    for name, hint in get_type_hints(Settings, include_extras=True).items():
        (about,) = hint.__metadata__
        definitions[name] = (hint.__origin__, Field(getattr(defaults, name), description=about.text, ge=about.least))
    config = ConfigDict(extra="forbid", frozen=True, alias_generator=key_of, json_schema_extra={"description": "Settings of oomlint."})
    model: type[BaseModel] = create_model("Table", __config__=config, **definitions)
    return model


_UNKNOWN: Final = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_CAUSES: Final = {
    "int_type": "is not a whole number",
    "int_from_float": "is not a whole number",
    "string_type": "is not a string",
    "bool_type": "is not true or false",
    "tuple_type": "is not a list",
    "dict_type": "is not a table",
    "mapping_type": "is not a table",
    "dataclass_type": "is not a table",
    "dataclass_exact_type": "is not a table",
}


def _first_cause(error: ValidationError) -> str:
    """The first thing that pydantic refuses, in the words of this tool. A key that is not known comes first: it often explains the rest."""
    problems = sorted(error.errors(include_url=False), key=lambda problem: problem["type"] not in _UNKNOWN)
    first, kind, context = problems[0], problems[0]["type"], problems[0].get("ctx", {})
    nested = first["loc"][0] == "verify"
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part if nested else repr(part)}" if index else part for index, part in enumerate(first["loc"]))
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    if kind in _UNKNOWN:
        hint = ": the keys stand at the top of this file, without a table" if key == "tool" else _suggestion(key, nested=nested)
        return f"unknown key {key!r}{hint}{more}"
    if kind == "enum":
        cause = f"is not one of {context['expected']}"
    elif kind == "greater_than_equal":
        cause = f"is less than {context['ge']}"
    else:
        cause = _CAUSES.get(kind) or f"does not fit: {first['msg']}"
    return f"{key}: {_value(first['input'])} {cause}{more}"


def _check_values(settings: Settings, given: Iterable[str]) -> None:
    """Raise ConfigError for a given value of the right type that means nothing."""
    for key, code in settings.codes():
        if not _CODE.fullmatch(code):
            raise ConfigError(f"{key}: {_value(code)} is not a rule code or a prefix of one, such as 'OOM101' or 'OOM1'")
    if "cache_dir" in given and os.path.normpath(settings.cache_dir).split(os.sep)[0] in {".", ".."}:
        raise ConfigError(f"cache-dir: {_value(settings.cache_dir)} is not a folder of its own below the project's root")
    if "baseline" in given and settings.baseline is not None and (not settings.baseline.strip() or "\0" in settings.baseline):
        raise ConfigError("baseline: it is empty, or holds a null character")
    if "requires_python" in given and settings.requires_python is not None and not _SPECIFIERS.fullmatch(settings.requires_python):
        raise ConfigError(f"requires-python: {_value(settings.requires_python)} is not a version specifier such as '>=3.10'")
    if "verify" in given:
        _check_verify(settings.verify)


def _check_verify(settings: VerifySettings) -> None:
    if settings.repeat < 1:
        raise ConfigError(f"verify.repeat: {settings.repeat} is less than 1")
    for key in ("command", "prepare", "mends", "python"):
        value = getattr(settings, key)
        if value is not None and not value.strip():
            raise ConfigError(f"verify.{key}: it is empty")
        if value is not None and "\0" in value:
            raise ConfigError(f"verify.{key}: {_value(value)} holds a null character")
    if settings.factory is not None and not FACTORY.fullmatch(settings.factory):
        raise ConfigError(f"verify.factory: {_value(settings.factory)} is not of the form 'package.module:function'")
    for name in settings.pass_env:
        if not VARIABLES.fullmatch(name):
            raise ConfigError(f"verify.pass-env: {_value(name)} is not the name of an environment variable")
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


def _capitals(name: str, value: Any) -> Any:
    """Codes in capitals; other values as they are."""
    if name in _CODE_FIELDS:
        return tuple(code.upper() for code in value)
    if name == "per_file_ignores":
        return {pattern: tuple(code.upper() for code in codes) for pattern, codes in value.items()}
    return value


def _from_option(name: str, value: Any) -> Any:
    """A value as a command line gives it."""
    choices: dict[str, type[StrEnum]] = {"severity": Severity, "min_confidence": Confidence, "sort": Sort, "start_method": StartMethod}
    if name in choices:
        try:
            return choices[name](value)
        except ValueError:
            expected = ", ".join(repr(str(choice)) for choice in choices[name])
            raise ConfigError(f"{key_of(name)}: {_value(value)} is not one of {expected}") from None
    if name in _CODE_FIELDS:
        return _capitals(name, _split(value))
    if name == "per_file_ignores":
        return _capitals(name, value if isinstance(value, Mapping) else _per_file_ignores(value))
    return tuple(value) if isinstance(value, list | tuple) else value


def _per_file_ignores(options: Iterable[str]) -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    for option in options:
        pattern, colon, codes = option.rpartition(":")  # the last colon: a path may hold others
        if not colon or not pattern or not codes.strip():
            raise ConfigError(f"per-file-ignores: {_value(option)} is not of the form 'pattern:CODE'")
        table[pattern] = (*table.get(pattern, ()), *_split([codes]))
    return table


def _split(options: Iterable[str]) -> tuple[str, ...]:
    return tuple(code.strip() for option in options for code in option.split(",") if code.strip())


def _suggestion(key: str, *, nested: bool) -> str:
    """The key of the same table that is spelt most like it; or where the key belongs, if it is one of the other table."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for an error

    tables = ("", Settings().as_table()), ("verify.", VerifySettings().as_table())
    (above, own), (beside, other) = reversed(tables) if nested else tables
    word = key.removeprefix(above).replace("_", "-")
    close = get_close_matches(word, list(own), n=1)
    if close:
        return f"; did you mean {above + close[0]!r}?"
    return f"; did you mean {beside + word!r}?" if word in other else ""


def _value(value: object) -> str:
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
