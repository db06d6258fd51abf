"""A verdict does not depend on words: with every message of a finding garbled, what is run is the same, and what comes of it.

Nothing has to run to see that: what the strategies ask of a child is recorded, and every child fails. With OOMLINT_ALL_FIXTURES=1 that is done for all fixtures
of the rules, else for the first bad one of each; and all wrong fixes and all incidents are verified with garbled words as well. The examples of the rules
always are: test_verify_rules.py.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from jsonschema import Draft202012Validator
from verify_cases import FILE, MARK, example, garbled, garbled_text, marked, told, verify

from oomlint import cache, engine, facts, registry
from oomlint.cli.verification import VerifyRequest, surroundings
from oomlint.config import Settings, load_settings
from oomlint.model.project import Project
from oomlint.output import json_array
from oomlint.output.json_schema import schema
from oomlint.output.view import View
from oomlint.verify.case import Case, Outcome
from oomlint.verify.jobs import Done, JobEnd
from oomlint.verify.project_copy import Base, Trees
from oomlint.verify.run import _said, cases_of, verdicts
from oomlint.verify.session import Session, VerifyOptions
from oomlint.verify.strategies.growth_metrics import signals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding, Place
    from oomlint.verify.case import Part
    from oomlint.verify.sandbox_runner import SandboxRunner

ROOT: Final = Path(__file__).parent.parent
FIXTURES: Final = ROOT / "fixtures" / "rules"
WRONG: Final = ROOT / "fixtures" / "verify" / "wrong"
INCIDENTS: Final = ROOT / "fixtures" / "incidents"
VERIFY: Final = ROOT / "oomlint" / "verify"
ALL: Final = os.environ.get("OOMLINT_ALL_FIXTURES") == "1"
MEASURED: Final[dict[str, Any]] = json.loads((ROOT / "docs" / "measured.json").read_text(encoding="utf-8"))
RULES: Final = [code for code, _ in registry.catalogue() if code != "OOM001"]  # which is about comments
WITHOUT: Final = frozenset({"OOM210", "OOM224"})  # they speak of a call of backward alone, or of a switch, which is none of the nouns
BAD: Final = [
    path
    for code in RULES
    for number, path in enumerate(sorted(path for path in (FIXTURES / code).glob("bad*") if path.is_dir() or path.suffix in {".py", ".ipynb"}))
    if ALL or number == 0
]  # fmt: skip
# Where the harness tells people what a check says of a patch.
SHOWN: Final = {("recheck.py", "item.message")}


# -- garbling ----------------------------------------------------------------------------------------------------------


def retold(finding: Finding) -> Finding:
    """The finding with its places, in words that nobody understands."""
    return msgspec.structs.replace(garbled(finding), related=tuple(place.saying(garbled_text(place.message)) for place in finding.related))


# -- what is asked, and nothing run ------------------------------------------------------------------------------------


class Recorder(Session):
    """Every child fails; what it was asked is kept."""

    def __init__(self, case: Case, project: Project, trees: Trees) -> None:
        super().__init__(case, project, project.settings, VerifyOptions(), None, trees)  # type: ignore[arg-type]
        self.asked: list[str] = []

    def run(self, part: Part, call: str, arguments: dict[str, Any], **limits: Any) -> Done:
        self.asked.append(json.dumps([part, call, arguments, limits], sort_keys=True, default=str))
        return Done(JobEnd.EXIT, 1, None, "nothing is run", "", "", 0.0)


def assert_same(*listed: Case) -> None:
    """Each case asks the same of children, in whatever words its finding is."""
    for root in dict.fromkeys(case.root for case in listed):
        project = Project(root, Settings(), {})
        with Base(root) as base:
            for case in (case for case in listed if case.root == root):
                said = []
                with Trees(base, case.changes) as trees:
                    for finding in (case.finding, garbled(case.finding), retold(case.finding)):
                        session = Recorder(replace(case, finding=finding), project, trees)
                        said.append((_said(session), session.asked))
                assert said == said[:1] * 3, f"{case.finding.place}: {case.finding.message}"


def cases(folder: Path, code: str) -> Iterator[Case]:
    settings = Settings().with_overrides(select=[code], preview=True, severity="note", min_confidence="low", exclude=[])
    report = engine.run([str(folder)], settings, folder, engine.RunOptions(cache=False, processes=1))
    yield from cases_of(report.findings, str(folder))


@pytest.mark.parametrize("path", BAD, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_words_do_not_decide_what_is_run_of_a_fixture(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    if path.is_dir():
        shutil.copytree(path, folder, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        folder.mkdir()
        shutil.copy(path, folder)
    listed = list(cases(folder, path.parent.name))
    assert all(case.finding.facts or case.code in WITHOUT for case in listed)
    assert_same(*listed)


@pytest.mark.parametrize("code", RULES)
def test_words_do_not_decide_what_is_run_of_an_example(code: str, tmp_path: Path) -> None:
    assert_same(example(code, tmp_path))


def test_words_do_not_decide_what_is_run_of_an_incident() -> None:
    settings, root = load_settings(None, True, INCIDENTS)  # noqa: FBT003 - the engine's own signature
    report = engine.run([str(INCIDENTS)], settings, root, engine.RunOptions(cache=False, processes=1))
    assert_same(*cases_of(report.findings, str(INCIDENTS), nested=True))


# -- what is run -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not ALL, reason="with OOMLINT_ALL_FIXTURES=1")
@pytest.mark.parametrize("name", sorted(path.name for path in WRONG.iterdir() if path.is_dir()))
def test_words_let_no_wrong_fix_through(name: str, runner: SandboxRunner, tmp_path: Path) -> None:
    before, after = ((WRONG / name / f"{part}.py").read_text(encoding="utf-8") for part in ("before", "after"))
    path = tmp_path / FILE
    path.write_text(before, encoding="utf-8")
    code = next(match[1] for line in before.splitlines() if (match := MARK.search(line)))
    at = marked(path)
    said = engine.run([str(path)], Settings().with_overrides(select=[code], severity="note", min_confidence="low"), tmp_path, engine.RunOptions(cache=False))
    known = next((item for item in said.findings if item.place.row == at.place.row), None)
    for finding in (at, *([msgspec.structs.replace(known, fix=None)] if known is not None else [])):  # its own fix is another one
        verdict = verify(runner, Case(garbled(finding), str(tmp_path), {str(path): (before.encode(), after.encode())}))
        assert verdict.outcome in {Outcome.REGRESSED, Outcome.INCONCLUSIVE}, told(verdict)


@pytest.mark.skipif(not ALL, reason="with OOMLINT_ALL_FIXTURES=1")
def test_words_do_not_decide_the_verdicts_on_the_incidents() -> None:
    settings, root = load_settings(None, False, INCIDENTS, [code for code, _ in registry.catalogue()])  # noqa: FBT003 - the engine's own signature
    report = engine.run([str(INCIDENTS)], settings, root, engine.RunOptions(cache=False, processes=1))
    listed = cases_of([garbled(item) for item in report.findings], str(root), nested=True)
    around = surroundings(settings, str(root), VerifyRequest(cache=False, trust=True))
    said = [
        (Path(case.finding.place.path).relative_to(INCIDENTS).as_posix(), case.finding.place.row, case.code, verdict.outcome.value)
        for case, verdict in verdicts(listed, around)
    ]
    assert said == [(item["file"], item["row"], item["code"], item["outcome"]) for item in MEASURED["incidents"]]


# -- the law -----------------------------------------------------------------------------------------------------------


def test_the_verifier_reads_no_message() -> None:
    read = set()
    for path in sorted(VERIFY.rglob("*.py")):
        if VERIFY / "child" in path.parents or "finding" not in (text := path.read_text(encoding="utf-8")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and node.attr in {"message", "headline", "consequence", "help", "related"} and ast.unparse(node.value) != "self":
                read.add((path.name, ast.unparse(node)))
    assert read == SHOWN


def test_the_verifier_knows_no_rule_by_its_code() -> None:
    named = [path.name for path in sorted(VERIFY.rglob("*.py")) if re.search(r"OOM\d{3}", path.read_text(encoding="utf-8"))]
    assert not named


def test_every_rule_says_how_it_is_measured() -> None:
    unmeasured = {rule.code for rule in registry.all_rules() if not rule.measured_as.strategies}
    assert unmeasured == {"OOM001"} | {code for code, item in MEASURED["rules"].items() if "is not measured" in item["reason"]}
    for rule in registry.all_rules():
        for loop in filter(None, (rule.measured_as.loop, rule.measured_as.command_loop)):
            assert signals(loop)
        re.compile(rule.measured_as.error)


def test_facts_come_back_from_the_cache(tmp_path: Path) -> None:
    for code in RULES:
        folder = tmp_path / code
        folder.mkdir()
        finding = example(code, folder).finding
        assert finding.facts or code in WITHOUT
        stored = json.loads(json.dumps(cache._plain(finding)))
        assert cache._finding(stored) == finding


def test_facts_are_what_the_schema_says_and_have_no_words(tmp_path: Path) -> None:
    def silent(place: Place) -> str:
        assert not place.message
        return place.path

    validator = Draft202012Validator(schema())
    for code in RULES:
        folder = tmp_path / code
        folder.mkdir()
        finding = example(code, folder).finding
        validator.validate(json.loads(json_array.text([finding], View(str(folder)))))
        for fact in finding.facts:
            facts.entry(fact, silent)
