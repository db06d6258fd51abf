"""What agents use: the tools of the Model Context Protocol, asked by a real client, and the commands of the skill."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest
import yaml

from oomlint.mcp.answers import bounded
from oomlint.verify.case import Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp import ClientSession

ROOT: Final = Path(__file__).parent.parent
SKILL: Final = ROOT / "skills" / "oomlint" / "SKILL.md"
LIMIT: Final = 120  # seconds
BAD: Final = (
    "from torch.utils.data import DataLoader\n\nloader = DataLoader([1, 2], num_workers=0, persistent_workers=True)\nfor item in loader:\n    print(item)\n"
)
FIXED: Final = BAD.replace(", persistent_workers=True", "")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the extra verify is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "train.py").write_text(BAD)
    (tmp_path / "train_fixed.py").write_text(FIXED)
    (tmp_path / "datasets.py").write_text("NUMBERS = [1, 2]\n")
    return tmp_path


def session(folder: Path, talk: Callable[[ClientSession], Awaitable[None]], *options: str) -> None:
    """Talk to the tools that look at a folder."""
    mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")
    stdio = pytest.importorskip("mcp.client.stdio")

    async def whole() -> None:
        server = stdio.StdioServerParameters(command=sys.executable, args=["-m", "oomlint", "mcp", *options], cwd=folder, env=dict(os.environ))
        async with stdio.stdio_client(server) as (reader, writer), mcp.ClientSession(reader, writer) as client:
            with anyio.fail_after(LIMIT):
                await client.initialize()
                await talk(client)

    anyio.run(whole)


async def ask(client: ClientSession, tool: str, **arguments: Any) -> tuple[bool, str]:
    result: Any = await client.call_tool(tool, arguments)
    return bool(result.is_error), result.content[0].text


def test_findings_come_with_what_a_program_needs(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.oomlint]\nlocal-rules = ["lint"]\nselect = ["ALL", "LAB1"]\nextend-exclude = ["lint"]\n')
    (folder / "lint").mkdir()
    (folder / "lint" / "rule.py").write_text("import pathlib\npathlib.Path('run').write_text('')\n")

    async def talk(client: ClientSession) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"check", "explain"}, "nothing is run unless that is allowed"
        failed, text = await ask(client, "check", paths=["train.py"])
        answer = json.loads(text)
        assert (failed, answer["total"], len(answer["findings"])) == (False, 1, 1)
        (finding,) = answer["findings"]
        assert (finding["code"], finding["filename"], finding["location"]) == ("OOM101", "train.py", {"row": 3, "column": 10})
        assert finding["facts"][0]["noun"] == "loader"
        assert finding["weight"]["consequence"] == "crashes"
        assert (finding["fix"]["safety"], finding["fix"]["edits"][0]["content"]) == ("safe", "")
        assert (finding["severity"], finding["confidence"], answer["severities"]) == ("error", "high", {"error": 1})
        answer = json.loads((await ask(client, "check", paths=["."], select=["OOM101"], limit=0))[1])
        assert (answer["total"], answer["findings"], answer["left_out"]) == (1, [], 1)
        for word in ("persistent-without-workers", "oom101"):
            assert json.loads((await ask(client, "check", paths=["train.py"], select=[word]))[1])["total"] == 1
        assert json.loads((await ask(client, "check", paths=["datasets.py"]))[1]) == {"total": 0, "findings": []}
        assert await ask(client, "check") == await ask(client, "check", paths=["."])

        failed, text = await ask(client, "explain", rule="persistent-without-workers")
        assert (failed, text.splitlines()[0]) == (False, "# persistent-without-workers (OOM101)")
        for tool, arguments, said in (
            ("explain", {"rule": "OOM999"}, "unknown rule 'OOM999'"),
            ("check", {"paths": ["train.py"], "select": ["--fix"]}, "is no code of a rule"),
            ("check", {"paths": ["."], "select": ["OOM9"]}, "OOM9"),
            ("check", {"paths": ["train\0.py"]}, "paths: embedded null byte"),
            ("check", {"paths": ["x" * 300_000]}, "paths: Argument list too long"),
        ):
            failed, text = await ask(client, tool, **arguments)
            assert failed
            assert said in text
        failed, text = await ask(client, "check", paths=["--fix", "train.py"])
        assert "--fix" in text, "a path is no option"

    session(folder, talk)
    assert not (folder / "run").exists(), "nothing of a project is run"
    assert (folder / "train.py").read_text() == BAD


def test_what_a_baseline_knows_is_told_and_shown(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.oomlint]\nbaseline = "known.json"\n')
    subprocess.run([sys.executable, "-m", "oomlint", "baseline", "."], cwd=folder, check=True, capture_output=True)

    async def talk(client: ClientSession) -> None:
        answer = json.loads((await ask(client, "check", paths=["."]))[1])
        assert answer == {"total": 0, "findings": [], "warnings": ["1 known finding not shown; --no-baseline shows them"]}
        answer = json.loads((await ask(client, "check", paths=["."], no_baseline=True))[1])
        assert (answer["total"], "warnings" in answer) == (1, False)

    session(folder, talk)


@needs_torch
def test_code_is_run_where_that_is_allowed(folder: Path) -> None:
    async def talk(client: ClientSession) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"check", "explain", "verify"}
        failed, text = await ask(client, "verify", paths=["train.py:3"], after="train_fixed.py", time_limit="20s")
        assert not failed, text
        (entry,) = json.loads(text)["verdicts"]
        assert entry["verdict"]["outcome"] == "confirmed", entry["verdict"]
        assert "timelines" not in entry["verdict"]

    session(folder, talk, "--allow-run")


def test_findings_of_low_severity_are_shown_where_that_is_asked_for(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.oomlint]\nselect = ["OOM101", "OOM120"]\n')
    (folder / "many.py").write_text("from torch.utils.data import DataLoader\n\nloader = DataLoader([1, 2], num_workers=20)\n")

    async def talk(client: ClientSession) -> None:
        (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "check"]
        assert all(f'"{word}"' in json.dumps(tool.input_schema) for word in ("error", "warning", "note", "high", "medium", "low"))
        for arguments, severities in (({}, ["error"]), ({"severity": "note"}, ["error", "note"]), ({"severity": "error"}, ["error"])):
            answer = json.loads((await ask(client, "check", paths=["train.py", "many.py"], **arguments))[1])
            assert [each["severity"] for each in answer["findings"]] == list(answer["severities"]) == severities
        failed, text = await ask(client, "check", paths=["."], severity="grave")
        assert failed
        assert "'error', 'warning' or 'note'" in text
        (folder / "pyproject.toml").write_text('[tool.oomlint]\nseverity = "note"\nmin-confidence = "high"\nselect = ["OOM120"]\n')
        answer = json.loads((await ask(client, "check", paths=["."]))[1])
        assert [each["severity"] for each in answer["findings"]] == ["note"], "the settings say it"
        answer = json.loads((await ask(client, "check", paths=["."], severity="warning"))[1])
        assert answer == {"total": 0, "findings": []}
        (text,) = json.loads((await ask(client, "check", paths=["."], select=["OOM311"]))[1])["warnings"]
        assert text == "Selection `OOM311` has no effect because preview is not enabled."

    session(folder, talk)


def test_an_answer_has_a_bound() -> None:
    entries = [{"code": f"OOM{number}", "message": "x" * 1000, "related": list(range(50))} for number in range(100)]
    text = bounded("findings", entries, 100)
    answer = json.loads(text)
    assert len(text) <= 40_000
    assert answer["total"] == len(answer["findings"]) + answer["left_out"] == 100
    assert answer["findings"][0] == entries[0]
    (huge,) = json.loads(bounded("findings", [{"message": "y" * 10**6, "related": [{"message": "z"}] * 10_000}], 9))["findings"]
    assert (len(huge["message"]), len(huge["related"]), huge["cut"]) == (2003, 8, True)


# -- the skill ------------------------------------------------------------------------------------------------------------------


def test_the_skill_has_the_open_format() -> None:
    _, front, body = SKILL.read_text(encoding="utf-8").split("---\n", 2)
    about = yaml.safe_load(front)
    assert about["name"] == SKILL.parent.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", about["name"])
    assert 0 < len(about["description"]) <= 1024
    assert len(body.splitlines()) < 500
    outcomes = re.findall(r"^- `([a-z ]+)`: ", body.partition("`verdict.outcome` is one of")[2], re.MULTILINE)
    assert sorted(outcomes) == sorted(Outcome)


COMMANDS: Final = [
    line for block in re.findall(r"^```sh\n(.*?)^```", SKILL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL) for line in block.splitlines()
]


@pytest.mark.parametrize("command", [pytest.param(line, marks=needs_torch if " verify " in line else ()) for line in COMMANDS])
def test_the_commands_of_the_skill_run(command: str, folder: Path) -> None:
    program, *words = shlex.split(command)
    assert program == "oomlint"
    done = subprocess.run([sys.executable, "-m", "oomlint", *words], cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode in {0, 1}, done.stderr
    assert "error:" not in done.stderr
    if "json" in words:
        assert [each["code"] for each in json.loads(done.stdout)] == ["OOM101"]


# -- the stop hook -----------------------------------------------------------------------------------------------------------

HOOK: Final = SKILL.parent / "stop_hook.py"


@pytest.fixture
def stop(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], tuple[int, str]]:
    """Runs the command of the page in a repository, as the client does when the agent wants to stop."""
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    (settings,) = (json.loads(block) for block in re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if "hooks" in block)
    ((group,),) = settings["hooks"].values()
    (hook,) = group["hooks"]
    place = folder / ".claude" / "skills" / "oomlint"
    place.mkdir(parents=True)
    shutil.copy(HOOK, place)
    programs = tmp_path_factory.mktemp("bin")
    for name, words in (("oomlint", "-m oomlint"), ("python3", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "CLAUDE_PROJECT_DIR": str(folder), "OOMLINT_NO_CACHE": "1"}
    environment |= {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for step in (["init", "--quiet"], ["add", "-A"], ["commit", "--quiet", "-m", "first"]):
        subprocess.run(["git", *step], cwd=folder, env=environment, check=True)

    def call() -> tuple[int, str]:
        said = json.dumps({"hook_event_name": "Stop", "stop_hook_active": False})
        done = subprocess.run(hook["command"], shell=True, cwd=folder, env=environment, input=said, capture_output=True, text=True, check=False, timeout=LIMIT)
        return done.returncode, done.stderr

    return call


@pytest.mark.skipif(os.name == "nt", reason="the command is for a shell of POSIX")
class TestStopHook:
    def test_an_agent_may_stop_that_has_changed_nothing(self, stop: Callable[[], tuple[int, str]]) -> None:
        assert stop() == (0, ""), "what was there before is not its own"

    def test_an_agent_is_sent_back_until_it_has_fixed_what_is_new(self, folder: Path, stop: Callable[[], tuple[int, str]]) -> None:
        (folder / "new loader.py").write_text(BAD)
        (folder / "notes.md").write_text("DataLoader(\n")
        status, said = stop()
        assert status == 2
        assert "new loader.py:3:10: OOM101 error" in said
        assert "train.py" not in said
        (folder / "train.py").write_text(BAD + "\n")
        status, said = stop()
        assert (status, said.count("OOM101")) == (2, 2), "another finding has come"
        (folder / "new loader.py").write_text(FIXED)
        (folder / "train.py").unlink()
        assert stop() == (0, "")

    def test_a_finding_that_nobody_fixes_keeps_no_agent_for_ever(self, folder: Path, stop: Callable[[], tuple[int, str]]) -> None:
        (folder / "train.py").write_text(BAD + "\n")
        assert [stop()[0] for _ in range(4)] == [2, 0, 2, 0]

    def test_what_a_baseline_knows_is_not_new(self, folder: Path, stop: Callable[[], tuple[int, str]]) -> None:
        (folder / "pyproject.toml").write_text('[tool.oomlint]\nbaseline = "oomlint-baseline.json"\n')
        subprocess.run([sys.executable, "-m", "oomlint", "check", "--write-baseline", "--no-cache", "."], cwd=folder, check=True, capture_output=True)
        (folder / "train.py").write_text("\n" + BAD)
        assert stop() == (0, "")
        (folder / "pyproject.toml").write_text("[tool.oomlint]\nnonsense = 1\n")
        status, said = stop()
        assert status == 1, "a wrong setting keeps nobody"
        assert "nonsense" in said
