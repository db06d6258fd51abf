"""Options, settings and the environment: which of them holds, and what the less common ones do."""

from __future__ import annotations

import io
import json
import tomllib
from typing import TYPE_CHECKING

import pytest
from commands import Done, runs

from oomlint.__main__ import main
from oomlint.cli.showing import settings_text
from oomlint.config import OutputFormat, Settings, load_settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BAD = "from torch.utils.data import DataLoader\n\nloader = DataLoader(data, num_workers=0, persistent_workers=True)\n"
FIXED = BAD.replace(", persistent_workers=True", "")
VARIABLES = ("OOMLINT_OUTPUT_FORMAT", "OOMLINT_OUTPUT_FILE", "OOMLINT_CACHE_DIR", "OOMLINT_NO_CACHE", "OOMLINT_PREVIEW", "NO_COLOR", "FORCE_COLOR")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.oomlint]\nselect = ["OOM101"]\n')
    (tmp_path / "a.py").write_text(BAD)
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return runs(capsys, "check")


def settings(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(f'[tool.oomlint]\nselect = ["OOM101"]\n{text}\n')


# -- the environment --------------------------------------------------------------------------------------------------


def test_the_environment_stands_in_for_options(folder: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    settings(folder, 'output-format = "grouped"')
    assert run().out.startswith("a.py:\n  3:10  OOM101")
    monkeypatch.setenv("OOMLINT_OUTPUT_FORMAT", "json")
    assert json.loads(run().out)
    assert run("--output-format", "concise").out.startswith("a.py:3:10: ")
    monkeypatch.setenv("OOMLINT_OUTPUT_FILE", "report.json")
    monkeypatch.setenv("OOMLINT_CACHE_DIR", "elsewhere/cache")
    assert run() == (1, "", "")
    assert json.loads((folder / "report.json").read_text())
    assert (folder / "elsewhere" / "cache" / "CACHEDIR.TAG").is_file()
    monkeypatch.setenv("OOMLINT_CACHE_DIR", "second")
    monkeypatch.setenv("OOMLINT_NO_CACHE", "1")
    run()
    assert not (folder / "second").exists()
    monkeypatch.setenv("OOMLINT_NO_CACHE", "0")
    run()
    assert (folder / "second").exists()


def test_a_cache_may_be_anywhere_if_the_user_says_so(tmp_path: Path, folder: Path, run: Callable[..., Done]) -> None:
    place = tmp_path.parent / f"{tmp_path.name}-cache"
    assert run("--cache-dir", str(place), "-q", "--output-format", "json").err == ""
    assert (place / "verdicts.json").is_file()
    assert not (folder / ".oomlint_cache").exists()
    (folder / "link").symlink_to(place)
    assert "no cache is kept: it is a symbolic link" in run("--cache-dir", "link").err


def test_a_wrong_value_in_the_environment_is_a_line(run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OOMLINT_OUTPUT_FORMAT", "xml")
    status, out, err = run()
    assert (status, out) == (2, "")
    assert err == f"oomlint: error: OOMLINT_OUTPUT_FORMAT: 'xml' is not one of {', '.join(OutputFormat)}\n"


# -- names of rules ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["persistent-without-workers", "Persistent-Without-Workers", "oom101"])
def test_names_stand_for_codes(folder: Path, run: Callable[..., Done], name: str) -> None:
    assert run("--isolated", "--select", f"OOM102,{name}", "--statistics", "-q").out.startswith("1  OOM101")
    assert run("--ignore", name).status == 0
    assert run("--per-file-ignores", f"*.py:{name}").status == 0
    settings(folder, f'ignore = ["{name}"]')
    assert run().status == 0
    settings(folder, f'per-file-ignores = {{"a.py" = ["{name}"]}}')
    assert run().status == 0
    settings(folder, "")
    (folder / "a.py").write_text(BAD.replace("=True)", f"=True)  # oomlint: ignore[{name}]"))
    assert run().status == 0


@pytest.mark.parametrize("option", ["--select", "--ignore", "--extend-select", "--fixable", "--unfixable"])
def test_a_selector_that_is_empty_is_a_line(run: Callable[..., Done], option: str) -> None:
    assert run(option, "") == (2, "", f"oomlint: error: {option[2:]}: '' names no rule\n")
    assert run(option, " , ").status == 2
    assert run(option, "OOM101,").status in {0, 1}


def test_a_name_that_is_none_is_a_line(folder: Path, run: Callable[..., Done]) -> None:
    message = "'persistent-with-workers' is not a rule code or a prefix of one, such as 'OOM101' or 'OOM1'; did you mean 'persistent-without-workers'?"
    assert run("--select", "persistent-with-workers") == (2, "", f"oomlint: error: select: {message}\n")
    settings(folder, 'ignore = ["persistent-with-workers"]')
    assert run().err == f"oomlint: error: pyproject.toml: [tool.oomlint] ignore: {message}\n"


def test_a_name_with_underscores_is_quoted_as_it_is_written(run: Callable[..., Done]) -> None:
    err = run("--select", "persistent_without_workers").err
    assert err.startswith("oomlint: error: select: 'persistent_without_workers' is not a rule code")
    assert err.endswith("; did you mean 'persistent-without-workers'?\n")


def test_a_switch_in_the_environment_is_yes_or_no(run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OOMLINT_PREVIEW", "maybe")
    assert run() == (2, "", "oomlint: error: OOMLINT_PREVIEW: 'maybe' is not one of 1, true, yes, on, 0, false, no, off\n")


def test_options_that_users_of_ruff_type(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "b.py").unlink(missing_ok=True)
    (folder / ".gitignore").write_text("c.py\n")
    (folder / "c.py").write_text(BAD)
    (folder / "a.py").write_text(BAD.rstrip("\n") + "  # noqa\n")
    settings(folder, 'fixable = ["OOM102"]\nunsafe-fixes = true\nper-file-ignores = {"x.py" = ["OOM2"]}')
    assert run().status == 0
    assert "a.py:" in run("--ignore-noqa").out
    assert "c.py:" in run("--no-respect-gitignore").out
    assert run("--no-respect-gitignore", "--extend-per-file-ignores", "c.py:OOM101").status == 0
    assert run("--no-respect-gitignore", "-n", "-e").status == 0
    shown = run("--show-settings", "--extend-fixable", "OOM101", "--no-unsafe-fixes", "--extend-per-file-ignores=c.py:OOM1,x.py:OOM3").out
    assert 'fixable = ["OOM102", "OOM101"]' in shown
    assert "unsafe-fixes = false" in shown
    run("--no-respect-gitignore", "-o", "report.txt")
    assert "c.py:" in (folder / "report.txt").read_text()


def test_a_note_of_a_rule_that_is_selected_by_itself_is_shown(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "a.py").write_text("from torch.utils.data import DataLoader\n\nloader = DataLoader([1, 2], num_workers=20)\n")
    assert "OOM120 note" in run("--select", "OOM120").out
    assert "OOM120 note" in run("--select", "OOM120,OOM101").out
    assert "OOM120 note" not in run("--select", "OOM12").out
    assert "OOM120 note" not in run("--select", "OOM120", "--severity", "warning").out


# -- settings on the line, and files that build on others ----------------------------------------------------------------


def test_a_setting_on_the_line_goes_over_the_file(folder: Path, run: Callable[..., Done]) -> None:
    settings(folder, 'exclude = ["b.py"]\nworker-limit = 3')
    assert run("--config", 'exclude = ["a.py"]').err == "oomlint: warning: no Python files under .\n"
    assert run("--config", "select = ['OOM102']", "--config", "worker-limit=4").status == 0
    assert run("--isolated", "--config", "select = ['OOM102']").status == 0
    assert run("--config", "select = ['OOM102']", "--select", "OOM101").status == 1
    (folder / "other.toml").write_text('select = ["OOM102"]\n')
    assert run("--config", "other.toml").status == 0
    assert run("--config", "other.toml", "--config", 'select = ["OOM101"]').status == 1
    (folder / "a=b.toml").write_text('select = ["OOM102"]\n')
    assert run("--config", "a=b.toml").status == 0


def test_settings_of_the_verifier_on_the_line_join_those_of_the_file(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "pyproject.toml").write_text('[tool.oomlint.verify]\ntime-limit = "9s"\nrepeat = 2\n')
    shown = run("--show-settings", "--config", "verify.repeat = 5", "--config", "verify.disk-cap = '1GiB'").out
    assert all(row in shown for row in ('time-limit = "9s"', "repeat = 5", 'disk-cap = "1GiB"'))


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ("worker-limit=many", "'worker-limit=many' is neither a file nor a setting as in TOML, such as 'worker-limit = 8'"),
        ("worker-limit='8'", "worker-limit: '8' is not a whole number"),
        ("worker=8", "unknown key 'worker'; did you mean 'workers-over-memory'?"),
        ("extend='x'", "'extend' is a setting of files only"),
        ("verify.repeat='x'", "verify.repeat: 'x' is not a whole number"),
        ("select=['OOM9']", "select: unknown rule or prefix 'OOM9'"),
    ],
)
def test_a_setting_on_the_line_that_is_wrong_is_a_line(run: Callable[..., Done], given: str, cause: str) -> None:
    status, out, err = run("--config", given)
    assert (status, out) == (2, "")
    assert err.startswith(f"oomlint: error: --config: {cause}"[:60])
    assert err.count("\n") == 1


def test_two_settings_files_are_one_too_many(run: Callable[..., Done]) -> None:
    assert run("--config", "x.toml", "--config", "y.toml").err == "oomlint: error: --config: two files are named: x.toml and y.toml\n"


def test_a_file_builds_on_another(folder: Path) -> None:
    (folder / "team").mkdir()
    (folder / "team" / "base.toml").write_text('extend = "root.toml"\nignore = ["OOM102"]\nextend-exclude = ["gen"]\n[verify]\ncommand = "rm -rf ."\n')
    (folder / "team" / "root.toml").write_text('worker-limit = 5\nworker-cap = 6\n[per-file-ignores]\n"tests/" = ["OOM1"]\n"a.py" = ["OOM2"]\n')
    settings(folder, 'extend = "team/base.toml"\nworker-cap = 7\nextend-exclude = ["old"]\nper-file-ignores = {"a.py" = ["OOM3"]}')
    found, root = load_settings(None, False, folder)  # noqa: FBT003
    assert root == folder
    assert (found.select, found.ignore, found.worker_limit, found.worker_cap) == (("OOM101",), ("OOM102",), 5, 7)
    assert found.extend_exclude == ("gen", "old")
    assert found.per_file_ignores == {"tests/": ("OOM1",), "a.py": ("OOM3",)}
    assert found.verify.command is None, "what runs code is not taken from elsewhere"


@pytest.mark.parametrize(
    ("base", "cause"),
    [
        (None, "extend: base.toml: No such file or directory"),
        ("worker = 1", "extend: base.toml: unknown key 'worker'"),
        ('extend = "pyproject.toml"', "extend: base.toml: extend: 'pyproject.toml' leads in a circle"),
        ('extend = "base.toml"', "extend: base.toml: extend: 'base.toml' leads in a circle"),
    ],
)
def test_a_file_that_builds_on_nothing_is_a_line(folder: Path, run: Callable[..., Done], base: str | None, cause: str) -> None:
    settings(folder, 'extend = "base.toml"')
    if base is not None:
        (folder / "base.toml").write_text(base)
    status, out, err = run()
    assert (status, out) == (2, "")
    assert err.startswith(f"oomlint: error: pyproject.toml: [tool.oomlint] {cause}")
    assert err.count("\n") == 1


# -- files ------------------------------------------------------------------------------------------------------------


def test_excludes(folder: Path, run: Callable[..., Done]) -> None:
    for name in ("b.py", "c.py", "build/d.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(BAD)
    assert run("--show-files") == (0, "a.py\nb.py\nc.py\n", "")
    assert run("--show-files", "--exclude", "b.py,c.py") == (0, "a.py\nbuild/d.py\n", "")
    assert run("--show-files", "--extend-exclude", "b.py", "--extend-exclude", "c.py") == (0, "a.py\n", "")
    assert run("--show-files", "a.py", "gone.py", "--extend-exclude", "a.py", "--force-exclude") == (1, "", "oomlint: gone.py: No such file or directory\n")


def test_settings_are_shown_as_a_file_would_have_them(folder: Path, run: Callable[..., Done]) -> None:
    settings(folder, 'per-file-ignores = {"tests/*" = ["OOM1"]}\nworker-limit = 3')
    status, out, err = run("--show-settings", "--ignore", "OOM1", "--sort", "weight")
    assert (status, err) == (0, "")
    assert out.startswith(f"# settings: {folder}/pyproject.toml\n# root: {folder}\n")
    (folder / "shown.toml").write_text(out)
    shown, _ = load_settings(folder / "shown.toml", False, folder)  # noqa: FBT003
    assert (shown.worker_limit, shown.sort, shown.select) == (3, "weight", ())
    assert shown.per_file_ignores == {"tests/*": ("OOM1",)}
    assert run("--baseline", "gone.json", "--show-settings").status == run("--baseline", "gone.json", "--show-files").status == 0
    assert run("--isolated", "--show-settings").out.startswith("# settings: none\n")
    assert tomllib.loads(settings_text(Settings()))["verify"]["repeat"] == 3


def test_a_run_can_say_more_of_itself(folder: Path, run: Callable[..., Done]) -> None:
    err = run("-v").err.splitlines()
    assert err[0] == f"oomlint: settings: {folder}/pyproject.toml; root: {folder}; 1 rule"
    assert err[1].startswith("oomlint: checked 1 file in 0.") or err[1].startswith("oomlint: checked 1 file in ")


# -- fixes ------------------------------------------------------------------------------------------------------------


def test_settings_may_ask_for_fixes(folder: Path, run: Callable[..., Done]) -> None:
    settings(folder, "fix = true")
    assert run("--no-fix").status == 1
    assert run("--write-baseline").status == 0
    assert run("--add-ignore").status == 0
    (folder / "a.py").write_text(BAD)
    assert run() == (0, "Fixed 1 finding in 1 file.\n", "")
    assert (folder / "a.py").read_text() == FIXED


def test_fixes_may_be_all_that_is_told(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "b.py").write_text(BAD.replace("data,", "data, timeout=1,"))
    (folder / "c.py").write_text("num_workers = (\n")
    status, out, _ = run("--fix-only", "--unfixable", "OOM102", "--select", "OOM1", "--output-format", "concise")
    assert (folder / "a.py").read_text() == FIXED
    assert status == 1
    assert [line.split(":")[0] for line in out.splitlines() if ": " in line] == ["c.py"], "a file that cannot be read is told all the same"
    (folder / "c.py").unlink()
    (folder / "b.py").write_text(BAD)
    assert run("--fix-only", "--unfixable", "OOM101") == (0, "Nothing to fix in 2 files.\n", "")


@pytest.mark.parametrize("words", [("--unfixable", "OOM101"), ("--unfixable", "persistent-without-workers"), ("--fixable", "OOM2")])
def test_some_fixes_are_only_shown(folder: Path, run: Callable[..., Done], words: tuple[str, ...]) -> None:
    status, out, err = run("--fix", *words)
    assert (status, err) == (1, "")
    assert "= help: " in out
    assert out.endswith("Found 1 error in 1 file.\nMore about a rule: oomlint rule OOM101\n")
    assert (folder / "a.py").read_text() == BAD
    (entry,) = json.loads(run("--output-format", "json", *words).out)
    assert (entry["fix"]["safety"], entry["fixed_by"]) == ("display", None)
    assert run("--fix", "--fixable", "OOM9").err == "oomlint: error: fixable: unknown rule or prefix 'OOM9'\n"


def test_settings_exempt_fixes(folder: Path, run: Callable[..., Done]) -> None:
    settings(folder, 'unfixable = ["OOM1"]')
    assert run("--fix").status == 1
    assert run("--fix", "--config", "unfixable=[]").status == 0


def test_standard_input_is_fixed_where_the_settings_say_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings(folder, "fix = true")

    class Input:
        buffer = io.BytesIO(BAD.encode())

    monkeypatch.setattr("sys.stdin", Input())
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(kept := io.BytesIO(), write_through=True))
    assert main(["check", "-"]) == 0
    assert kept.getvalue().decode() == FIXED
