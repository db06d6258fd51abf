"""The GitHub action and what the documentation says of CI: valid by the schemas of GitHub and GitLab, and what the action runs is run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parent.parent
ACTION: Final = ROOT / "action.yml"
DEFINED: Final[dict[str, Any]] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
BLOCKS: Final = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "ci.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
BAD: Final = "from torch.utils.data import DataLoader\n\nloader = DataLoader(x, num_workers=0, persistent_workers=True)\n"


def schema_of(block: str) -> str:
    if block.startswith(("repos:", "- ")):
        return ""
    return "vendor.github-workflows" if "jobs:" in block else "vendor.gitlab-ci"


def validate(schema: str, path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_action_is_valid() -> None:
    validate("vendor.github-actions", ACTION)


@pytest.mark.parametrize("block", [block for block in BLOCKS if schema_of(block)])
def test_what_the_documentation_shows_is_valid(block: str, tmp_path: Path) -> None:
    (tmp_path / "file.yml").write_text(block)
    validate(schema_of(block), tmp_path / "file.yml")
    for job in yaml.safe_load(block).get("jobs", {}).values():
        used = next(step for step in job["steps"] if "/oomlint@" in step["uses"])
        assert used["with"].keys() <= DEFINED["inputs"].keys()


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.startswith("- ")])
def test_the_steps_that_are_shown_make_a_valid_workflow(block: str, tmp_path: Path) -> None:
    steps = yaml.safe_load(block)
    (tmp_path / "file.yml").write_text(yaml.safe_dump({"on": "push", "jobs": {"oomlint": {"runs-on": "ubuntu-latest", "steps": steps}}}))
    validate("vendor.github-workflows", tmp_path / "file.yml")
    sent = {str(step["uses"]) for step in [*DEFINED["runs"]["steps"], *steps] if "upload-sarif" in step.get("uses", "")}
    assert len(sent) == 1, "the action and the page send by the same version"


def commands() -> list[str]:
    """The calls of oomlint in all that is shown for CI."""
    found = [step.get("run", "") for block in BLOCKS if block.startswith("- ") for step in yaml.safe_load(block)]
    found += [line for block in BLOCKS if schema_of(block) == "vendor.gitlab-ci" for line in yaml.safe_load(block)["oomlint"]["script"]]
    return [line for line in found if line.startswith("oomlint ")]


@pytest.mark.parametrize("command", commands())
def test_the_commands_for_ci_write_what_the_service_reads(command: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BAD)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    done = subprocess.run([sys.executable, "-m", *command.split()], cwd=tmp_path, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if "--exit-zero" in command else 1), done.stderr
    name = command.partition("--output-file ")[2]
    assert "OOM101" in ((tmp_path / name).read_text() if name else done.stdout)


def test_the_documentation_has_every_input() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "ci.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == list(DEFINED["inputs"])


def test_inputs_come_in_as_variables_and_never_as_code() -> None:
    for step in DEFINED["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def step(name: str) -> str:
    script: str = next(each["run"] for each in DEFINED["runs"]["steps"] if each.get("name") == name)
    return script


def bash(script: str, folder: Path, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does, with an installed oomlint that is a script."""
    if os.name == "nt" or shutil.which("bash") is None:
        pytest.skip("the steps of the action are for bash")
    place = folder / "temp" / "oomlint" / "bin"
    place.mkdir(parents=True)
    for name in ("oomlint", "python"):
        (place / name).write_text(f"#!/bin/sh\n{program}\n")
        (place / name).chmod(0o755)
    environment = {**os.environ, "RUNNER_TEMP": str(folder / "temp"), **variables}
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_check_annotates_and_fails(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BAD)
    done = bash(step("Check"), tmp_path, f'exec "{sys.executable}" -m oomlint "$@"', PATHS="train.py", ARGS="--select OOM101 --isolated", SARIF="false")
    assert done.returncode == 1
    assert done.stdout.startswith("::error title=oomlint (OOM101),file=train.py,line=3")


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"PATHS": "src $(touch bad) ;x", "ARGS": "", "SARIF": "false"}, "check|--output-format|github|--|src|$(touch|bad)|;x|"),
        ({"PATHS": ".", "ARGS": "--severity\nerror", "SARIF": "true"}, "check|--output-format|sarif|--output-file|oomlint.sarif|--severity|error|--|.|"),
    ],
)
def test_inputs_are_words(variables: dict[str, str], said: str, tmp_path: Path) -> None:
    done = bash(step("Check"), tmp_path, 'printf "%s|" "$@"', **variables)
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize(("version", "wanted"), [("", "/the/action"), ("0.1.0", "oomlint==0.1.0")])
def test_what_is_installed(version: str, wanted: str, tmp_path: Path) -> None:
    done = bash(step("Install oomlint"), tmp_path, 'printf "%s|" "$@"', PYTHON="true", VERSION=version, GITHUB_ACTION_PATH="/the/action")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"-m|pip|install|--quiet|{wanted}|", "")
