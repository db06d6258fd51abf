"""Settings: where they are found, what they mean, and the one line that says what is wrong with them."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_type_hints

import pytest

from oomlint import config
from oomlint.config import ConfigError, OutputFormat, Settings, Sort, StartMethod, VerifySettings, json_schema, key_of, load_settings
from oomlint.finding import Confidence, Severity

ROOT = Path(__file__).parent.parent


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project that is the current folder."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cause(table: str, name: str = "pyproject.toml", known: tuple[str, ...] = ()) -> str:
    Path(name).write_text(table)
    with pytest.raises(ConfigError) as caught:
        load_settings(None, False, Path(), known)  # noqa: FBT003
    assert "\n" not in str(caught.value)
    return str(caught.value)


def load(start: Path, given: Path | None = None, *, isolated: bool = False) -> tuple[Settings, Path]:
    return load_settings(given, isolated, start)


# Where settings are found


def test_without_settings_the_defaults_hold_and_the_root_is_the_nearest_project(project: Path) -> None:
    (project / "a/b").mkdir(parents=True)
    assert load(project / "a/b") == (Settings(), project)
    for marker in ("setup.py", "setup.cfg", "pyproject.toml"):
        (project / "a" / marker).write_text("")
        assert load(project / "a/b") == (Settings(), project / "a")
        (project / "a" / marker).unlink()


def test_the_root_is_the_start_where_nothing_looks_like_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "PROJECT_MARKERS", ())
    (tmp_path / "x.py").touch()
    assert load(tmp_path)[1] == load(tmp_path / "x.py")[1] == tmp_path


def test_the_nearest_settings_win_and_a_pyproject_without_a_table_is_passed_by(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.oomlint]\nworker-limit = 1\n")
    (project / "a/b").mkdir(parents=True)
    (project / "a/pyproject.toml").write_text("# no oomlint\n[project]\nname = 'x'\n")
    settings, root = load(project / "a/b")
    assert (settings.worker_limit, root) == (1, project)
    for limit, name in enumerate(("pyproject.toml", "oomlint.toml", ".oomlint.toml"), 2):  # in a folder, the last of these wins
        (project / "a" / name).write_text(f"{'[tool.oomlint]' if limit == 2 else ''}\nworker-limit = {limit}\n")
        settings, root = load(project / "a/b")
        assert (settings.worker_limit, root) == (limit, project / "a")


def test_a_given_file_and_isolation(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.oomlint]\nworker-limit = 1\n")
    (project / "other").mkdir()
    (project / "other/pyproject.toml").write_text("[tool.oomlint]\nworker-limit = 2\n")
    (project / "other/mine.toml").write_text("worker-limit = 3\n")
    (project / "other/bare").mkdir()
    (project / "other/bare/pyproject.toml").write_text("")
    assert load(project, Path("other/pyproject.toml"))[0].worker_limit == 2
    assert load(project, Path("other/mine.toml")) == (Settings(worker_limit=3), project / "other")
    assert load(project, Path("other/bare/pyproject.toml")) == (Settings(), project / "other/bare")
    assert load(project, isolated=True) == (Settings(), project)
    with pytest.raises(ConfigError, match="exclude each other"):
        load(project, Path("other/mine.toml"), isolated=True)


@pytest.mark.parametrize(
    ("content", "requires"),
    [
        ('[project]\nrequires-python = ">=3.9"\n', ">=3.9"),
        ('[project]\nrequires-python = ">=3.9"\n[tool.oomlint]\nworker-limit = 1\n', ">=3.9"),
        ('[project]\nrequires-python = ">=3.9"\n[tool.oomlint]\nrequires-python = ">=3.14"\n', ">=3.14"),
        ('[tool.black]\nrequires-python = ">=3.9"\n', None),
        ("[project]\nrequires-python = 3.9\n", None),
        ('[project]\nrequires-python = "three"\n', None),
        ("project = 'requires-python'\n", None),
        ("[project\nrequires-python = '>=3.9'\n", None),
    ],
)
def test_requires_python_comes_from_the_project_where_it_is_not_set(project: Path, content: str, requires: str | None) -> None:
    (project / "pyproject.toml").write_text(content)
    assert load(project)[0].requires_python == requires


def test_requires_python_beside_a_settings_file(project: Path) -> None:
    (project / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.9"\n')
    (project / "oomlint.toml").write_text("worker-limit = 1\n")
    assert load(project)[0] == Settings(worker_limit=1, requires_python=">=3.9")


# What they mean


def test_a_whole_table(project: Path) -> None:
    (project / "base.toml").write_text("")
    (project / "pyproject.toml").write_bytes(
        b"""\xef\xbb\xbf[tool.oomlint]
select = ["OOM1", "oom201"]
ignore = ["OOM114"]
extend-select = ["all"]
exclude = ["old"]
extend-exclude = ["gen/*.py"]
respect-gitignore = false
severity = "note"
min-confidence = "low"
extend = "base.toml"
fix = true
unsafe-fixes = true
fixable = ["OOM1"]
preview = true
unfixable = ["persistent-without-workers"]
output-format = "sarif"
sort = "weight"
baseline = "known.json"
start-method = "spawn"
requires-python = ">=3.10, <4"
workers-over-memory = 8
worker-limit = 32
worker-cap = 48
small-bytes = 0
small-elements = 1_000
inflight-bytes = 1
array-bytes = 2
cache-dir = "/tmp/cache"
local-rules = ["lint/"]
[tool.oomlint.per-file-ignores]
"tests/*" = ["OOM1", "oom2"]
[tool.oomlint.verify]
command = "python train.py"
factory = "data.sets:make"
prepare = "python make.py"
patches = "fixed"
python = "/usr/bin/python3"
time-limit = "500ms"
memory-cap = "1.5GB"
disk-cap = "100MiB"
repeat = 5
pass-env = ["DATA_ROOT", "MLFLOW_*"]
read = ["~/data"]
"""
    )
    expected = Settings(
        select=("OOM1", "OOM201"),
        ignore=("OOM114",),
        extend_select=("ALL",),
        preview=True,
        per_file_ignores={"tests/*": ("OOM1", "OOM2")},
        exclude=("old",),
        extend_exclude=("gen/*.py",),
        respect_gitignore=False,
        severity=Severity.NOTE,
        min_confidence=Confidence.LOW,
        extend="base.toml",
        fix=True,
        unsafe_fixes=True,
        fixable=("OOM1",),
        unfixable=("OOM101",),
        output_format=OutputFormat.SARIF,
        sort=Sort.WEIGHT,
        baseline="known.json",
        start_method=StartMethod.SPAWN,
        requires_python=">=3.10, <4",
        workers_over_memory=8,
        worker_limit=32,
        worker_cap=48,
        small_bytes=0,
        small_elements=1000,
        inflight_bytes=1,
        array_bytes=2,
        cache_dir="/tmp/cache",
        local_rules=("lint/",),
        verify=VerifySettings(
            command="python train.py",
            factory="data.sets:make",
            prepare="python make.py",
            patches="fixed",
            python="/usr/bin/python3",
            time_limit="500ms",
            memory_cap="1.5GB",
            disk_cap="100MiB",
            repeat=5,
            pass_env=("DATA_ROOT", "MLFLOW_*"),
            read=("~/data",),
        ),
    )
    assert load(project)[0] == expected
    assert all(getattr(expected, each.name) != getattr(Settings(), each.name) for each in fields(Settings))


def test_every_code_has_its_key() -> None:
    settings = Settings(select=("OOM1",), ignore=("OOM2",), extend_select=("ALL",), per_file_ignores={"*.py": ("OOM3",)})
    assert list(settings.codes()) == [("select", "OOM1"), ("ignore", "OOM2"), ("extend-select", "ALL"), ("fixable", "ALL"), ("per-file-ignores.'*.py'", "OOM3")]
    settings.check_codes(["OOM101", "OOM201", "OOM301"])


def test_settings_can_be_compared_hashed_and_sent() -> None:
    settings = Settings(per_file_ignores={"b": ("OOM1",), "a": ("OOM2",)})
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert hash(settings) == hash(Settings(per_file_ignores={"a": ("OOM2",), "b": ("OOM1",)}))
    assert json.dumps(settings.as_table()) == json.dumps(Settings(per_file_ignores={"a": ("OOM2",), "b": ("OOM1",)}).as_table())
    assert list(settings.as_table()["per-file-ignores"]) == ["a", "b"]  # type: ignore[call-overload]


# Options of the command line


def test_overrides() -> None:
    settings = Settings(ignore=("OOM1",), severity=Severity.ERROR)
    assert settings.with_overrides() == settings.with_overrides(select=None, severity=None) == settings
    changed = settings.with_overrides(
        select=["OOM1,oom2", " OOM301 "],
        ignore=(),
        severity="note",
        min_confidence=Confidence.HIGH,
        start_method="fork",
        per_file_ignores=["tests/*:OOM1,oom2", "tests/*:OOM3", "c:/x.py:all"],
        extend_exclude=["old"],
        respect_gitignore=False,
        worker_limit=3,
    )
    assert changed == Settings(
        select=("OOM1", "OOM2", "OOM301"),
        severity=Severity.NOTE,
        min_confidence=Confidence.HIGH,
        start_method=StartMethod.FORK,
        per_file_ignores={"tests/*": ("OOM1", "OOM2", "OOM3"), "c:/x.py": ("ALL",)},
        extend_exclude=("old",),
        respect_gitignore=False,
        worker_limit=3,
    )
    assert settings.with_overrides(per_file_ignores={"a": ("oom1",)}).per_file_ignores == {"a": ("OOM1",)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"severity": "fatal"}, "severity: 'fatal' is not one of 'error', 'warning', 'note'"),
        ({"select": ["E501"]}, "select: 'E501' is not a rule code or a prefix of one, such as 'OOM101' or 'OOM1'"),
        ({"per_file_ignores": ["tests/*"]}, "per-file-ignores: 'tests/*' is not of the form 'pattern:CODE'"),
        ({"per_file_ignores": [":OOM1"]}, "per-file-ignores: ':OOM1' is not of the form 'pattern:CODE'"),
        ({"requires_python": "new"}, "requires-python: 'new' is not a version specifier such as '>=3.10'"),
    ],
)
def test_overrides_that_do_not_fit(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings().with_overrides(**options)
    assert str(caught.value) == message


def test_an_override_that_is_no_setting_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError, match="no such setting: selct"):
        Settings().with_overrides(selct=["OOM1"])


# What is wrong with them


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('selct = ["OOM"]', "unknown key 'selct'; did you mean 'select'?"),
        ('extend_select = ["OOM"]', "unknown key 'extend_select'; did you mean 'extend-select'?"),
        ("xyzzy = 1", "unknown key 'xyzzy'"),
        ("xyzzy = 1\nworker-limit = 0", "unknown key 'xyzzy' (and 1 more)"),
        ('select = "OOM"', "select: 'OOM' is not a list"),
        ("select = [1]", "select[0]: 1 is not a string"),
        ('select = ["E501"]', "select: 'E501' is not a rule code or a prefix of one, such as 'OOM101' or 'OOM1'"),
        ('select = ["OOM1010"]', "select: 'OOM1010' is not a rule code or a prefix of one, such as 'OOM101' or 'OOM1'"),
        ('ignore = ["OOM102"]', "ignore: unknown rule or prefix 'OOM102'"),
        ('per-file-ignores = ["OOM1"]', """per-file-ignores: ["OOM1"] is not a table"""),
        ('per-file-ignores = {"a/*" = ["OOM1", 2]}', "per-file-ignores.'a/*'[1]: 2 is not a string"),
        ('per-file-ignores = {"a/*" = "OOM1"}', "per-file-ignores.'a/*': 'OOM1' is not a list"),
        ('per-file-ignores = {"a/*" = ["OOM9"]}', "per-file-ignores.'a/*': unknown rule or prefix 'OOM9'"),
        ('severity = "fatal"', "severity: 'fatal' is not one of 'error', 'warning' or 'note'"),
        ("start-method = 1", "start-method: 1 is not one of 'auto', 'fork', 'spawn' or 'forkserver'"),
        ('worker-limit = "4"', "worker-limit: '4' is not a whole number"),
        ("worker-limit = 4.0", "worker-limit: 4.0 is not a whole number"),
        ("worker-limit = true", "worker-limit: true is not a whole number"),
        ("worker-limit = 0", "worker-limit: 0 is less than 1"),
        ("small-bytes = -1", "small-bytes: -1 is less than 0"),
        ("array-bytes = inf", "array-bytes: Infinity is not a whole number"),
        ('respect-gitignore = "no"', "respect-gitignore: 'no' is not true or false"),
        ("cache-dir = []", "cache-dir: [] is not a string"),
        ("verify = 3", "verify: 3 is not a table"),
        ("verify.repeat = 0", "verify.repeat: 0 is less than 1"),
        ('verify.repeat = "3"', "verify.repeat: '3' is not a whole number"),
        ('verify.time-limt = "5s"', "unknown key 'verify.time-limt'; did you mean 'verify.time-limit'?"),
        ('verify.select = ["OOM1"]', "unknown key 'verify.select'; did you mean 'select'?"),
        ("verify.severty = 1", "unknown key 'verify.severty'"),
        ("verify.exclude = []", "unknown key 'verify.exclude'; did you mean 'exclude'?"),
        ("verify.repat = 3", "unknown key 'verify.repat'; did you mean 'verify.repeat'?"),
        ('verify.memory_cap = "2G"', "unknown key 'verify.memory_cap'; did you mean 'verify.memory-cap'?"),
        ('verify.patch = "x"', "unknown key 'verify.patch'; did you mean 'verify.patches'?"),
        ('factory = "a:b"', "unknown key 'factory'; did you mean 'verify.factory'?"),
        ("repeat = 3", "unknown key 'repeat'; did you mean 'verify.repeat'?"),
        ("verfy.repeat = 3", "unknown key 'verfy'; did you mean 'verify'?"),
        ("verify.repeat = -1", "verify.repeat: -1 is less than 1"),
        ("verify.time-limit = 5", "verify.time-limit: 5 is not a string"),
        ('verify.command = " "', "verify.command: it is empty"),
        ('verify.prepare = ""', "verify.prepare: it is empty"),
        ('verify.time-limit = "5x"', "verify.time-limit: '5x' is not a time such as '5s', '500ms' or '2m'"),
        ('verify.memory-cap = "much"', "verify.memory-cap: 'much' is not a size such as '2GiB', '512MiB' or '1.5GB'"),
        ('verify.disk-cap = "all"', "verify.disk-cap: 'all' is not a size such as '2GiB', '512MiB' or '1.5GB'"),
        ('verify.pass-env = ["A", "*"]', "verify.pass-env: '*' is not the name of an environment variable"),
        ('verify.pass-env = "A"', "verify.pass-env: 'A' is not a list"),
        ('verify.read = [""]', "verify.read: a path is empty, or holds a null character"),
        ('verify.command = "a\\u0000"', r"verify.command: 'a\x00' holds a null character"),
        ('verify.factory = "data"', "verify.factory: 'data' is not of the form 'package.module:function'"),
        ('requires-python = "3.9+"', "requires-python: '3.9+' is not a version specifier such as '>=3.10'"),
        (f"cache-dir = [{'1, ' * 50}]", "cache-dir: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ... is not a string"),
    ],
)
@pytest.mark.usefixtures("project")
def test_one_line_names_file_key_and_cause(table: str, message: str) -> None:
    known = ("OOM101", "OOM201")
    assert cause(f"[tool.oomlint]\n{table}\n", known=known) == f"pyproject.toml: [tool.oomlint] {message}"
    Path("pyproject.toml").unlink()
    assert cause(f"{table}\n", "oomlint.toml", known) == f"oomlint.toml: {message}"


@pytest.mark.usefixtures("project")
def test_files_that_are_no_settings() -> None:
    assert cause("[tool.oomlint\n") == "pyproject.toml: not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 14)"
    assert cause("[tool]\noomlint = 3\n") == "pyproject.toml: tool.oomlint: 3 is not a table"
    assert cause("[tool.oomlint]\nselect = []\n", "oomlint.toml") == "oomlint.toml: unknown key 'tool': the keys stand at the top of this file, without a table"
    Path("oomlint.toml").write_bytes(b"cache-dir = '\xe9'\n")
    with pytest.raises(ConfigError, match=r"^oomlint\.toml: not valid UTF-8 at byte 13$"):
        load(Path())


@pytest.mark.usefixtures("project")
def test_a_pyproject_of_others_is_not_judged() -> None:
    Path("pyproject.toml").write_text("[broken\n")
    assert load(Path())[0] == Settings()
    Path("pyproject.toml").write_text("# oomlint\ntool = 1\n")
    assert load(Path())[0] == Settings()


def test_a_given_file_that_cannot_be_read(project: Path) -> None:
    (project / "folder.toml").mkdir()
    for name, message in (("gone.toml", "No such file or directory"), ("folder.toml", "Is a directory")):
        with pytest.raises(ConfigError, match=f"^{name}: {message}$"):
            load(project, Path(name))
    with pytest.raises(ConfigError, match=r"^/elsewhere/gone\.toml: "):
        load(project, Path("/elsewhere/gone.toml"))


# The record and its model


def test_the_model_has_the_fields_and_defaults_of_the_record() -> None:
    model = config._model()
    hints = get_type_hints(Settings)
    assert list(model.model_fields) == [each.name for each in fields(Settings)] == list(hints)
    for each in fields(Settings):
        info = model.model_fields[each.name]
        assert info.alias == key_of(each.name)
        assert info.annotation == hints[each.name]
        assert info.default == (each.default if each.default is not MISSING else {})
        assert info.description is not None
        assert info.description.endswith(".")
    assert {key_of(name): getattr(model(), name) for name in model.model_fields} == {
        key_of(each.name): getattr(Settings(), each.name) for each in fields(Settings)
    }


def test_the_schema_knows_every_key() -> None:
    schema = json_schema()
    properties = schema["properties"]
    assert isinstance(properties, dict)
    assert list(properties) == list(Settings().as_table())
    assert schema["additionalProperties"] is False
    assert "required" not in schema
    assert properties["select"]["items"]["pattern"] == properties["per-file-ignores"]["additionalProperties"]["items"]["pattern"]
    assert properties["worker-limit"]["minimum"] == 1
    assert {key: properties[key].get("default") for key in properties} == Settings().as_table()
    assert json_schema() == schema == json.loads(json.dumps(schema))


@pytest.mark.parametrize(
    ("content", "imported"),
    [(None, "False"), ("[project]\nname = 'oomlint'\n", "False"), ("[tool.oomlint]\n", "False"), ("[tool.oomlint]\nselect = []\n", "True")],
)
def test_pydantic_is_imported_for_a_table_only(project: Path, content: str | None, imported: str) -> None:
    if content:
        (project / "pyproject.toml").write_text(content)
    code = """
import sys
from pathlib import Path
from oomlint.config import load_settings
load_settings(None, False, Path())[0].with_overrides(select=["OOM1"], severity="note")
print("pydantic" in sys.modules)
"""
    child = subprocess.run([sys.executable, "-c", code], cwd=project, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
    assert child.stdout.strip() == imported


@pytest.mark.parametrize("folder", ["", ".", "..", "../elsewhere"])
def test_the_cache_has_a_folder_of_its_own(folder: str) -> None:
    with pytest.raises(ConfigError, match="cache-dir"):
        Settings().with_overrides(cache_dir=folder)
