"""Settings files: ``[tool.oomlint]`` of pyproject.toml, or an oomlint.toml, validated into the record of :mod:`oomlint.settings`.

pydantic, which validates a table and writes the JSON Schema, is built from the record and imported only where a table has to be read: a run without
settings pays nothing for them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_type_hints

from oomlint.settings import (
    CODE,
    CODE_FIELDS,
    DEFAULT_EXCLUDE,
    FACTORY,
    SPECIFIERS,
    VARIABLES,
    ConfigError,
    OutputFormat,
    Settings,
    Sort,
    StartMethod,
    VerifySettings,
    capitals,
    check_values,
    key_of,
    quoted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import BaseModel, ValidationError

__all__ = (
    "DEFAULT_EXCLUDE",
    "FACTORY",
    "VARIABLES",
    "ConfigError",
    "OutputFormat",
    "Settings",
    "Sort",
    "StartMethod",
    "VerifySettings",
    "json_schema",
    "key_of",
    "load_own",
    "load_settings",
    "of_lines",
    "settings_file",
)

SETTINGS_FILES: Final = (".oomlint.toml", "oomlint.toml")  # keys at their top; in a folder they win over pyproject.toml
LOCAL: Final = "local-rules"
_NAMES_IT: Final = (b"oomlint", "oomlint".encode("utf-16-le")[:-1])  # also in UTF-16, which TOML must not be in
PROJECT_MARKERS: Final = ("pyproject.toml", "setup.py", "setup.cfg", ".git")

# Given files and folders with rules, loads them: the codes of plugins, and whether none is missing.
Local = Callable[[Sequence[str]], tuple[Sequence[str], bool]]


class _Known(NamedTuple):
    """The codes that there are; none: nobody asks."""

    codes: tuple[str, ...] = ()
    whole: bool = True  # whether no plugin is missing: else a code that is not there may be one of its


_ANY: Final = _Known()


def load_settings(
    config: Path | None,
    isolated: bool,  # noqa: FBT001
    start: Path,
    known: Iterable[str] = (),
    over: Iterable[str] = (),
    local: Local | None = None,
) -> tuple[Settings, Path]:
    """The settings that hold in ``start``, and the project's root. Raises ConfigError.

    ``config`` names a settings file, ``isolated`` ignores them all, ``over`` are lines of TOML that go over what a file
    says; else the nearest of ``start`` and the folders above it is taken. With ``known``
    codes given, codes that fit none of them are refused. ``local`` is told where rules of the project's own lie; without it they are not there, and what
    settings say of codes that may be theirs means nothing. The root is the folder of the settings file, else the nearest folder that looks like a project,
    else ``start``.
    """
    if config is not None and isolated:
        raise ConfigError("a settings file is given and is to be ignored: --config and --isolated exclude each other")
    start = Path(os.path.abspath(start))
    folder = start.parent if os.path.isfile(start) else start
    codes = _Known(tuple(known))
    if isolated:
        return _settings_of("--config: ", _lines(over, codes), codes), _project_root(folder)
    found = _given(Path(os.path.abspath(config))) if config else _nearest(folder)
    root = found[0].parent if found else _project_root(folder)
    if codes.codes and (local or (found and LOCAL in found[1])):
        folders = _settings_of(_origin(found[0]), {LOCAL: found[1][LOCAL]}).local_rules if found and LOCAL in found[1] else ()
        more, whole = local([_inside(found[0], each) for each in folders] if found else []) if local else ((), not folders)
        codes = _Known((*codes.codes, *more), whole)
    lines = _lines(over, codes)
    if found:
        table = _inherited(*found, codes)
        settings = _settings_of(_origin(found[0]), {**table, **lines, **_joined("verify", table, lines)}, codes)
    else:
        settings = _settings_of("--config: ", lines, codes)
    if settings.requires_python is None:
        settings = settings.having(requires_python=_requires_python(root / "pyproject.toml"))
    return settings, root


def _inside(file: Path, path: str) -> str:
    """The whole path of local rules that a settings file names: they are part of the project. Raises ConfigError."""
    found = os.path.normpath(os.path.join(file.parent, path))
    if not os.path.join(found, "").startswith(os.path.join(file.parent, "")):
        raise ConfigError(f"{_origin(file)}{LOCAL}: {path!r} lies outside of the project")
    return found


def settings_file(config: Path | None, start: Path) -> tuple[Path, frozenset[str]] | None:
    """The file that :func:`load_settings` reads, and the fields that its table of the verifier sets. Raises ConfigError."""
    start = Path(os.path.abspath(start))
    found = _given(Path(os.path.abspath(config))) if config else _nearest(start.parent if os.path.isfile(start) else start)
    if found is None:
        return None
    path, table = found
    return path, _of_verify(table)


def _of_verify(table: Mapping[str, object]) -> frozenset[str]:
    """The fields that a table sets of the verifier."""
    verify = table.get("verify")
    return frozenset(each.name for each in fields(VerifySettings) if isinstance(verify, dict) and key_of(each.name) in verify)


def of_lines(lines: Iterable[str]) -> dict[str, Any]:
    """What lines of TOML say of the verifier, by field. Raises ConfigError."""
    table = _lines(lines, _ANY)
    verify = _settings_of("--config: ", table).verify
    return {name: getattr(verify, name) for name in _of_verify(table)}


def load_own(path: Path, data: bytes) -> dict[str, object]:
    """What the user's own settings say of the verifier, by field. Raises ConfigError."""
    table = _parsed(path, data)
    stray = next((key for key in table if key != "verify"), None)
    if stray is not None:
        raise ConfigError(f"{_shown(path)}: unknown key {stray!r}: the user's own settings hold the table `verify` and nothing else")
    verify = _settings_of(_origin(path), table).verify
    return {name: getattr(verify, name) for name in _of_verify(table)}


def json_schema() -> dict[str, object]:
    """The JSON Schema of ``[tool.oomlint]``."""
    schema: dict[str, Any] = _model().model_json_schema(by_alias=True)
    code = {"type": "string", "pattern": f"^(?:{CODE.pattern}|[A-Za-z0-9]+(?:-[A-Za-z0-9]+)+)$"}  # or the name of a rule
    properties = schema["properties"]
    for name in CODE_FIELDS:
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
        if os.path.isfile(path) and any(word in _bytes(path) for word in _NAMES_IT):  # cheap: no TOML parser for a file that cannot hold the table
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
        raise ConfigError(f"{_shown(path)}: tool.oomlint: {quoted(table)} is not a table")
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
    return value.strip() if isinstance(value, str) and SPECIFIERS.fullmatch(value) else None


def _project_root(folder: Path) -> Path:
    return next((each for each in (folder, *folder.parents) if any(os.path.exists(each / marker) for marker in PROJECT_MARKERS)), folder)


def _shown(path: Path) -> str:
    """A path as a message gives it: from the current folder where it lies below it."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return path.as_posix()


def _inherited(path: Path, table: dict[str, object], known: _Known, below: tuple[Path, ...] = ()) -> dict[str, object]:
    """A table, and where it says nothing what the file says that it extends. How code is run is nothing to inherit: each project has to be trusted itself."""
    given = table.get("extend")
    if not isinstance(given, str):
        return table
    other = Path(os.path.normpath(path.parent / os.path.expanduser(given)))
    if other in {path, *below}:
        raise ConfigError(f"{_origin(path)}extend: {quoted(given)} leads in a circle")
    try:
        above = {key: value for key, value in _inherited(other, _given(other)[1], known, (*below, path)).items() if key not in {"verify", LOCAL}}
        _settings_of(_origin(other), above, known)
    except ConfigError as error:
        raise error if below else ConfigError(f"{_origin(path)}extend: {error}") from None
    joined = {**above, **table}
    for key in ("extend-select", "extend-exclude", "per-file-ignores"):
        match above.get(key), table.get(key):
            case list(first), list(last):
                joined[key] = [*first, *last]
            case dict(first), dict(last):
                joined[key] = {**first, **last}
    return joined


def _lines(lines: Iterable[str], known: _Known) -> dict[str, object]:
    """The table that lines of TOML make, a setting each."""
    table: dict[str, object] = {}
    for line in lines:
        import tomllib  # noqa: PLC0415 - as above

        try:
            setting = tomllib.loads(line)
        except (tomllib.TOMLDecodeError, RecursionError):
            raise ConfigError(f"--config: {quoted(line)} is neither a file nor a setting as in TOML, such as 'worker-limit = 8'") from None
        stray = next((key for key in ("extend", LOCAL) if key in setting), None)
        if stray is not None:
            raise ConfigError(f"--config: {stray!r} is a setting of files only")
        _settings_of("--config: ", setting, known)
        table |= setting | {name: value for key in setting for name, value in _joined(key, table, setting).items()}
    return table


def _joined(key: str, first: Mapping[str, object], last: Mapping[str, object]) -> dict[str, object]:
    """A table that is a value of both, with what either says; nothing where it is not."""
    match first.get(key), last.get(key):
        case dict(one), dict(other):
            return {key: {**one, **other}}
    return {}


# Values


def _origin(path: Path) -> str:
    """How a message begins that speaks of a settings file."""
    return f"{_shown(path)}: [tool.oomlint] " if path.name == "pyproject.toml" else f"{_shown(path)}: "


def _settings_of(origin: str, table: dict[str, object], known: _Known = _ANY) -> Settings:
    if not table:
        return Settings()
    try:
        values = _validated(table)
        settings = Settings(**{name: capitals(name, value) for name, value in values.items()})
        if not known.whole:
            settings = settings.known_only(known.codes)
        check_values(settings, values)
        if known.codes:
            settings.check_codes(known.codes)
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
    return f"{key}: {quoted(first['input'])} {cause}{more}"


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
