"""benchmarks/diff_findings.py: what two versions of oomlint say differently, shown on versions that say what a test wants them to say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parent.parent
SCRIPT: Final = ROOT / "benchmarks" / "diff_findings.py"
# Reads its findings from a file of the project, and fixes by putting its own word into each file.
PROGRAM: Final = """
    import json, pathlib, sys

    def main(words):
        if words[0] == "verify":
            print(json.dumps([{{**entry, "verdict": {{"outcome": {outcome!r}, "seconds": {seconds}}}}} for entry in {findings!r}]))
            return 0
        if "--fix" in words:
            for path in pathlib.Path().glob("*.py"):
                path.write_text(path.read_text() + {fixed!r})
            return 0
        sys.stderr.write({complaint!r})
        print(json.dumps({findings!r}))
        return 1
"""

if not SCRIPT.exists():
    pytest.skip("the benchmarks are not part of this distribution", allow_module_level=True)


def finding(row: int, code: str = "OOM101", message: str = "it is so", **more: Any) -> dict[str, Any]:
    place = {"filename": "train.py", "cell": None, "location": {"row": row, "column": 1}, "end_location": {"row": row, "column": 9}}
    edit = {**place, "content": more.pop("content", "")}
    fix = {"safety": more.pop("safety", "safe"), "message": "fix it", "edits": [edit]}
    return {"code": code, "name": "a-rule", "message": message, "severity": "warning", "confidence": "high", **place, "related": [], "fix": fix, **more}


def version(folder: Path, findings: list[dict[str, Any]], fixed: str = "", complaint: str = "", outcome: str = "confirmed", seconds: int = 1) -> str:
    """A folder that holds a package oomlint."""
    package = folder / "oomlint"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    program = dedent(PROGRAM).format(findings=findings, fixed=fixed, complaint=complaint, outcome=outcome, seconds=seconds)
    (package / "__main__.py").write_text(program, encoding="utf-8")
    return str(folder)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def differences(before: str, after: str, *words: str) -> tuple[int, list[dict[str, Any]]]:
    done = run("--before", before, "--after", after, "--json", *words)
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, json.loads(done.stdout)["differences"]


@pytest.fixture
def project(tmp_path: Path) -> str:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("x = 1\n", encoding="utf-8")
    return str(folder)


def test_equal_versions_do_not_differ(tmp_path: Path, project: str) -> None:
    says = [finding(1), finding(1), finding(2)]
    one, two = version(tmp_path / "one", says), version(tmp_path / "two", says[::-1])
    assert differences(one, two, "--fixes", "--verdicts", project, project) == (0, [])


@pytest.mark.parametrize(
    ("before", "after", "kind", "what"),
    [
        pytest.param([finding(1)], [], "lost", [], id="lost"),
        pytest.param([finding(1)], [finding(1), finding(1)], "new", [], id="new at a place that has one already"),
        pytest.param([finding(1)], [finding(1, message="it may be so")], "changed", ["message"], id="message"),
        pytest.param([finding(1)], [finding(1, severity="note", confidence="low")], "changed", ["severity", "confidence"], id="severity and confidence"),
        pytest.param([finding(1)], [finding(3)], "changed", ["place", "end", "fix's edits"], id="place"),
        pytest.param([finding(1)], [finding(1, safety="unsafe")], "changed", ["fix's safety"], id="safety of the fix"),
        pytest.param([finding(1)], [finding(1, content="x")], "changed", ["fix's edits"], id="edits of the fix"),
        pytest.param([finding(1, fixed_by="--fix")], [finding(1, fixed_by=None)], "changed", ["fixed by"], id="what the fix comes to"),
    ],
)
def test_each_kind_of_difference_is_named(
    before: list[dict[str, Any]], after: list[dict[str, Any]], kind: str, what: list[str], tmp_path: Path, project: str
) -> None:
    status, (found,) = differences(version(tmp_path / "one", before), version(tmp_path / "two", after), project)
    assert (status, found["kind"], found["code"], [detail[0] for detail in found["details"]]) == (1, kind, "OOM101", what)


def test_what_one_version_never_says_is_no_difference(tmp_path: Path, project: str) -> None:
    one, two = version(tmp_path / "one", [finding(1)]), version(tmp_path / "two", [finding(1, fixed_by="--fix")])
    assert differences(one, two, project) == (0, [])


def test_a_rule_that_fails_is_a_difference(tmp_path: Path, project: str) -> None:
    one, two = version(tmp_path / "one", []), version(tmp_path / "two", [], complaint="oomlint: internal error: OOM101 failed\n")
    status, (found,) = differences(one, two, project)
    assert (status, found["kind"], found["details"]) == (1, "run", [["standard error", "", "oomlint: internal error: OOM101 failed"]])


def test_what_fixes_write_is_compared_and_the_project_stays_as_it_is(tmp_path: Path, project: str) -> None:
    one, two = (version(tmp_path / name, [finding(1)], fixed=f"y = {name!r}\n") for name in ("one", "two"))
    status, (found,) = differences(one, two, "--fixes", project)
    assert (status, found["kind"], found["place"]) == (1, "fixes", "train.py")
    assert "-y = 'one'\n+y = 'two'" in found["details"][0][2]
    assert Path(project, "train.py").read_text(encoding="utf-8") == "x = 1\n"


def test_of_verdicts_only_the_outcome_counts(tmp_path: Path, project: str) -> None:
    one = version(tmp_path / "one", [finding(1)])
    assert differences(one, version(tmp_path / "two", [finding(1, message="other words")], seconds=2), "--verdicts", project) == (0, [])
    status, (found,) = differences(one, version(tmp_path / "three", [finding(1)], outcome="regressed"), "--verdicts", project)
    assert (status, found["kind"], found["details"]) == (1, "changed", [["outcome", "confirmed", "regressed"]])
    done = run("--before", one, "--after", str(tmp_path / "three"), "--verdicts", project)
    assert "Verdicts: 1 → 0 confirmed, 0 → 1 regressed." in done.stdout


def test_a_version_that_cannot_be_run_is_no_difference(tmp_path: Path, project: str) -> None:
    broken = Path(version(tmp_path / "one", []))
    (broken / "oomlint" / "__main__.py").write_text("import nothing_of_the_kind\n", encoding="utf-8")
    for spec, says in ((str(broken), "nothing_of_the_kind"), ("no-such-ref", "no-such-ref: neither a ref")):
        done = run("--before", spec, project)
        assert (done.returncode, done.stdout) == (2, "")
        assert says in done.stderr


def test_the_report_can_be_read(tmp_path: Path, project: str) -> None:
    one = version(tmp_path / "one", [finding(1), finding(2, "OOM102"), finding(3, "OOM103")])
    two = version(tmp_path / "two", [finding(1, message="it may be so"), finding(3, "OOM103"), finding(4, "OOM104")])
    done = run("--before", one, "--after", two, project)
    shown = done.stdout.replace(project, "project").replace(str(tmp_path), "").replace(f"{done.stdout.rsplit('User', 1)[1]}", "")
    assert shown == dedent("""\
        # /one → /two, 1 projects

        ## project

        - **changed** OOM101 train.py:1:1: it may be so
          - message: it is so
            → it may be so
        - **lost** OOM102 train.py:2:1: warning high it is so
        - **new** OOM104 train.py:4:1: warning high it is so

        | code | before | after | lost | new | changed |
        |---|---|---|---|---|---|
        | OOM101 | 1 | 1 | 0 | 0 | 1 |
        | OOM102 | 1 | 0 | 1 | 0 | 0 |
        | OOM104 | 0 | 1 | 0 | 1 | 0 |

        3 → 3 findings: 1 lost, 1 new, 1 changed. User""")


def test_the_working_tree_agrees_with_itself(project: str) -> None:
    """The real thing: a file by itself, which is its own project."""
    Path(project, "train.py").write_text("from torch.utils.data import DataLoader\nDataLoader(x, num_workers=0, persistent_workers=True)\n", encoding="utf-8")
    done = run("--before", str(ROOT), "--fixes", f"{project}/train.py")
    assert (done.returncode, "1 → 1 findings: no difference" in done.stdout) == (0, True), done.stdout + done.stderr
