"""Rules in preview: they run where somebody asks for them, are known everywhere, and nobody is told off for naming them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import pytest
from commands import Done, runs

from oomlint import plugins, registry
from oomlint.lsp import open_project
from oomlint.lsp.translation import explanation
from oomlint.plugins import RuleSources
from oomlint.rule import page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CODE, SLUG, ROW = "OOM311", "lmdb-env-in-init", 8
LINE: Final = page(registry.load(CODE)).example.splitlines()[ROW - 1]
IDLE: Final = "oomlint: warning: Selection `{}` has no effect because preview is not enabled.\n"
RULE: Final = """
from oomlint.plugin import Consequence, Message, Rule, Severity, Weighs

class Says(Rule):
    code, slug, severity, fixable, weighs, preview = "LAB101", "says-so", Severity.WARNING, None, Weighs(Consequence.ONCE), {preview}

    def check(self, module, project):
        yield self.finding(module.place(module.tree.module.body[0]), Message("so"))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    settings(tmp_path)
    (tmp_path / "data.py").write_text(page(registry.load(CODE)).example)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OOMLINT_PREVIEW", raising=False)
    yield tmp_path
    plugins.use(RuleSources())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return runs(capsys, "check", "--output-format", "concise", "--no-cache")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return runs(capsys)


def codes(done: Done) -> list[str]:
    return re.findall(r": ([A-Z]+\d+) ", done.out)


def settings(folder: Path, *lines: str) -> None:
    selected = [] if any(line.startswith("select") for line in lines) else ['select = ["OOM0", "OOM31"]']
    (folder / "pyproject.toml").write_text("\n".join(["[tool.oomlint]", *selected, *lines, ""]))


def comment(folder: Path, text: str) -> None:
    (folder / "data.py").write_text(page(registry.load(CODE)).example.replace(LINE, f"{LINE}  # {text}"))


def test_the_catalogue_and_the_classes_agree() -> None:
    assert [code for code, _ in registry.catalogue() if registry.in_preview(code)] == [rule.code for rule in registry.all_rules() if rule.preview]


@pytest.mark.parametrize("selector", [CODE, SLUG, CODE.lower()])
def test_a_rule_in_preview_runs_where_it_is_asked_for(run: Callable[..., Done], selector: str) -> None:
    assert run("--select", selector) == (0, "No findings in 1 file.\n", IDLE.format(CODE))
    done = run("--preview", "--select", selector)
    assert (codes(done), done.status, done.err) == ([CODE], 1, "")
    assert run("-q", "--select", selector) == (0, "", "")


@pytest.mark.parametrize("words", [(), ("--select", "ALL"), ("--select", "OOM31"), ("--extend-select", "OOM3"), ("--ignore", "OOM1")])
def test_a_prefix_brings_it_with_the_others(run: Callable[..., Done], words: tuple[str, ...]) -> None:
    done = run(*words)
    assert (CODE in codes(done), done.err) == (False, "")
    assert CODE in codes(run(*words, "--preview"))


def test_the_line_the_environment_and_the_settings_may_ask(folder: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OOMLINT_PREVIEW", "1")
    assert codes(run()) == [CODE]
    assert codes(run("--no-preview")) == []
    monkeypatch.delenv("OOMLINT_PREVIEW")
    settings(folder, "preview = true")
    assert codes(run()) == [CODE]
    assert codes(run("--no-preview")) == codes(run("--preview", "--no-preview")) == []
    assert CODE not in codes(run("--isolated"))
    assert CODE in codes(run("--isolated", "--preview"))
    monkeypatch.setenv("OOMLINT_PREVIEW", "0")
    assert (codes(run()), codes(run("--preview"))) == ([], [CODE])


def test_a_selector_of_the_settings_is_told_where_it_holds(folder: Path, run: Callable[..., Done]) -> None:
    settings(folder, f'select = ["OOM2", "{CODE}"]', 'extend-select = ["OOM113"]')
    assert run().err == IDLE.format(CODE) + IDLE.format("OOM113")
    assert run("--select", "OOM2").err == ""
    assert run("--extend-select", "OOM604").err == IDLE.format(CODE) + IDLE.format("OOM113") + IDLE.format("OOM604")
    assert run("--preview").err == ""


def test_the_settings_are_shown(folder: Path, command: Callable[..., Done]) -> None:
    assert "preview = false" in command("check", "--show-settings").out.splitlines()
    assert "preview = true" in command("check", "--show-settings", "--preview").out.splitlines()
    settings(folder, "preview = 1")
    assert "preview: 1 is not true or false" in command("check").err


@pytest.mark.parametrize("text", [f"noqa: {CODE}", f"noqa: {SLUG}", f"oomlint: ignore[{CODE}]", f"oomlint: ignore[{SLUG}]", "oomlint: ignore[OOM31]"])
def test_a_comment_for_it_is_neither_unused_nor_unknown(folder: Path, run: Callable[..., Done], text: str) -> None:
    comment(folder, text)
    for words in ((), ("--preview",)):
        assert run("--severity", "note", *words).out == "No findings in 1 file.\n"
    comment(folder, f"oomlint: ignore[{CODE}, OOM312]")
    assert codes(run("--fix", "--exit-non-zero-on-fix")) == []
    assert f"# oomlint: ignore[{CODE}]\n" in (folder / "data.py").read_text(), "what is taken out is the other code"


def test_without_previews_a_baseline_keeps_what_it_knows(folder: Path, run: Callable[..., Done]) -> None:
    run("--preview", "--write-baseline")
    known = (folder / "oomlint-baseline.json").read_text()
    assert CODE in known
    settings(folder, 'baseline = "oomlint-baseline.json"')
    assert run().err == ""
    run("--write-baseline")
    assert (folder / "oomlint-baseline.json").read_text() == known
    assert codes(run("--preview")) == []


def test_a_page_says_that_its_rule_is_in_preview(command: Callable[..., Done]) -> None:
    said = "This rule is in preview: it runs only with `--preview`"
    assert said in command("rule", CODE).out
    assert said in explanation([CODE])
    assert said not in command("rule", "OOM101").out
    assert [json.loads(command("rule", code, "--output-format", "json").out)["preview"] for code in (CODE, "OOM101")] == [True, False]
    lines = command("rule").out.splitlines()
    assert [line.split()[0] for line in lines if "(preview)" in line] == [rule.code for rule in registry.all_rules() if rule.preview]


def test_sarif_says_so(command: Callable[..., Done]) -> None:
    report = json.loads(command("check", "--preview", "--select", f"{CODE},OOM001", "--output-format", "sarif").out)
    (rule,) = report["runs"][0]["tool"]["driver"]["rules"]
    assert (rule["id"], rule["properties"]["preview"]) == (CODE, True)


def test_an_editor_goes_by_the_settings(folder: Path) -> None:
    path = str(folder / "data.py")
    known = tuple(code for code, _ in registry.catalogue())
    for line, found in (("", []), ("preview = true", [CODE])):
        settings(folder, line)
        project = open_project.project_for(path, [], known)
        assert project is not None
        assert [item.code for item in project.findings(path, {})] == found


def test_what_it_finds_can_be_verified(command: Callable[..., Done]) -> None:
    done = command("verify", "--select", CODE, "data.py")
    assert (done.status, done.out, done.err) == (0, "Nothing to verify: no findings in 1 file.\n", IDLE.format(CODE))
    assert "no finding on this line" in command("verify", f"data.py:{ROW}").err
    assert "select: unknown rule or prefix 'OOM999'" in command("verify", "--select", "OOM999").err
    pytest.importorskip("torch")
    (entry,) = json.loads(command("verify", "--preview", "--select", CODE, "--output-format", "json", f"data.py:{ROW}").out)
    assert (entry["code"], bool(entry["verdict"]["reason"])) == (CODE, True)


def test_a_plugin_may_mark_its_rules(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "lint").mkdir()
    settings(folder, 'local-rules = ["lint/"]', 'exclude = ["lint/"]', 'select = ["LAB"]')
    (folder / "lint" / "says.py").write_text(RULE.format(preview=True))
    assert run() == (0, "No findings in 1 file.\n", IDLE.format("LAB"))
    assert codes(run("--preview")) == ["LAB101"]
    (folder / "lint" / "says.py").write_text(RULE.format(preview=False))
    assert codes(run()) == ["LAB101"]
    (folder / "lint" / "says.py").write_text(RULE.format(preview='"yes"'))
    assert "preview is missing, or no bool" in run().err
