"""The formats that other programs read: what is in them, and what of a finding lasts from one run to the next."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from inline_snapshot import snapshot
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import validator_for

from oomlint import __version__, deduplication, registry
from oomlint.__main__ import main
from oomlint.config import OutputFormat
from oomlint.finding import Confidence, Edit, Finding, Fix, Place, Role, Safety, Severity
from oomlint.output import github, github_summary, gitlab, junit, pylint, sarif
from oomlint.output.fingerprints import Fingerprints, normal
from oomlint.output.github import Remark
from oomlint.output.view import View
from oomlint.rule import page
from oomlint.source import apply_edits, read_source

if TYPE_CHECKING:
    from collections.abc import Callable

# The schema of OASIS is not ours to hand on. It is taken where OOMLINT_SARIF_SCHEMA names it, or where it lies beside a checkout; a test below is skipped where
# it is not there, and says so. Every log is held against SHAPE in any case: what readers of SARIF cannot do without.
_BESIDE = [folder / "shared" / "schemas" / "sarif-2.1.0.json" for folder in Path(__file__).parents]
SCHEMA = next((path for path in (Path(os.environ.get("OOMLINT_SARIF_SCHEMA", "")), *_BESIDE) if path.is_file()), None)
_NUMBER: dict[str, Any] = {"type": "integer", "minimum": 1}
_REGION = {"type": "object", "properties": dict.fromkeys(("startLine", "startColumn", "endLine", "endColumn"), _NUMBER)}
_PHYSICAL = {
    "type": "object",
    "required": ["artifactLocation"],
    "properties": {"region": _REGION, "artifactLocation": {"type": "object", "required": ["uri"], "properties": {"uri": {"pattern": r"^[^\\\s]+$"}}}},
}
_LOCATIONS = {"type": "array", "items": {"type": "object", "properties": {"physicalLocation": _PHYSICAL}}}
_RESULT = {
    "type": "object",
    "required": ["message", "locations"],
    "properties": {
        "ruleId": {"type": "string"},
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": {"enum": ["none", "note", "warning", "error"]},
        "message": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}},
        "locations": {**_LOCATIONS, "minItems": 1},
        "relatedLocations": _LOCATIONS,
        "fixes": {"type": "array", "items": {"type": "object", "required": ["artifactChanges"]}},
    },
}
_RULE = {"type": "object", "required": ["id"], "properties": {"helpUri": {"pattern": "^https?://"}, "help": {"type": "object", "required": ["text"]}}}
_DRIVER = {"type": "object", "required": ["name", "rules"], "properties": {"rules": {"type": "array", "items": _RULE}}}
SHAPE: dict[str, Any] = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "properties": {
                    "tool": {"type": "object", "required": ["driver"], "properties": {"driver": _DRIVER}},
                    "results": {"type": "array", "items": _RESULT},
                },
            },
        },
    },
}
BAD = """\
import argparse

from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()


class Trainer:
    def fit(self, data):
        return DataLoader(data, num_workers=args.workers, persistent_workers=True)  # ü
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.oomlint]\nselect = ["OOM101"]\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(github_summary.VARIABLE, raising=False)
    return tmp_path


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(form: str, *words: str) -> str:
        main(["check", "--no-cache", "--output-format", form, *words])
        said = capsys.readouterr()
        assert said.err == ""
        return said.out

    return call


def notebook(*cells: str) -> str:
    parts = [{"cell_type": "code", "source": cell.splitlines(keepends=True), "outputs": [], "metadata": {}} for cell in cells]
    return json.dumps({"cells": parts, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}, indent=1)


def log(text: str) -> dict[str, Any]:
    """The run of a log, which is a valid one."""
    document: dict[str, Any] = json.loads(text)
    Draft202012Validator(SHAPE).validate(document)
    if SCHEMA is not None:
        schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
        validator_for(schema)(schema).validate(document)
    (run,) = document["runs"]
    return dict(run)


# -- sarif ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(SCHEMA is None, reason="the SARIF schema of OASIS is not here: name the file in OOMLINT_SARIF_SCHEMA to have all logs validated by it")
def test_logs_are_held_against_the_schema_of_oasis(folder: Path, out: Callable[..., str]) -> None:
    (folder / "a.py").write_text(BAD, encoding="utf-8")
    text = out("sarif")
    log(text)
    with pytest.raises(ValidationError):
        log(text.replace('"startLine"', '"startRow"', 1))


def test_sarif_tells_rule_place_and_story(folder: Path, out: Callable[..., str]) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "a b.py").write_text(BAD, encoding="utf-8")
    run = log(out("sarif"))
    driver = run["tool"]["driver"]
    assert (driver["version"], driver["semanticVersion"]) == (__version__, __version__)
    (rule,) = driver["rules"]
    assert (rule["id"], rule["name"]) == ("OOM101", "persistent-without-workers")
    assert "## Why is this bad" in rule["help"]["markdown"]
    (result,) = run["results"]
    assert (result["ruleId"], result["ruleIndex"], result["level"]) == ("OOM101", 0, "error")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "src/a%20b.py"
    assert place["region"] == {"startLine": 12, "startColumn": 16, "endLine": 12, "endColumn": 83}
    assert [item["id"] for item in result["relatedLocations"]] == [1]
    ((flow,),) = [[way["locations"] for way in each["threadFlows"]] for each in result["codeFlows"]]
    assert [step["location"]["physicalLocation"]["region"]["startLine"] for step in flow] == [6, 12]


def test_the_description_of_a_rule_is_prose_in_sarif() -> None:
    for rule in registry.all_rules():
        whole = sarif._plain(page(rule).sections.get("Why is this bad", "") or page(rule).summary)
        assert whole, rule.code
        assert not re.search(r"\|---|```|:$", whole), rule.code
    text = "It grows. Measured (torch 2.13.0):\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nSo it\nis.\n\n```python\nx = 1\n\ny = 2\n```\n"
    assert sarif._plain(text) == "It grows. So it is."


def test_a_code_flow_of_sarif_has_only_places_on_the_way(folder: Path) -> None:
    place = Place(str(folder / "a.py"), 0, 9, 1, 9, 2)
    said = {
        "the default": Role.WAY,
        deduplication.ALSO: Role.BESIDE,
        deduplication.AGAIN: Role.AGAIN,
        deduplication.COPY: Role.BESIDE,
        deduplication.GIVEN: Role.BESIDE,
        "": Role.WAY,
    }
    related = tuple(Place(place.path, 0, row, 1, row, 2, *each) for row, each in enumerate(said.items(), 1))
    found = Finding("OOM101", "persistent-without-workers", "message", Severity.ERROR, Confidence.HIGH, place, related)
    (result,) = log(sarif.text([found], View(str(folder))))["results"]
    assert len(result["relatedLocations"]) == len(said)
    ((way,),) = [flow["threadFlows"] for flow in result["codeFlows"]]
    assert [step["location"]["message"]["text"] for step in way["locations"]] == ["the default", "message"]


def test_sarif_of_nothing_and_of_what_cannot_be_read(folder: Path, out: Callable[..., str]) -> None:
    (folder / "a.py").write_text("")
    assert log(out("sarif"))["results"] == []
    (folder / "a.py").write_text("num_workers = (\n")
    run = log(out("sarif"))
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["cannot-check"]
    assert run["results"][0]["message"]["text"].startswith("cannot check: ")


@pytest.mark.parametrize("kind", ["plain", "mark and line ends", "latin", "notebook", "notebook in ascii"])
def test_the_replacements_of_sarif_are_bytes_of_the_file(folder: Path, out: Callable[..., str], kind: str) -> None:
    text = f"# größe 🙂\n{BAD}"
    name = "a.py"
    if kind == "mark and line ends":
        data = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
    elif kind == "latin":
        data = ("# coding: latin-1\n" + text.replace("🙂", "")).encode("latin-1")
    elif kind.startswith("notebook"):
        name, written = "a.ipynb", notebook("%matplotlib inline\n", text)
        data = (written if "ascii" in kind else json.dumps(json.loads(written), ensure_ascii=False, indent=2)).encode()
    else:
        data = text.encode()
    (folder / name).write_bytes(data)
    (result,) = log(out("sarif"))["results"]
    (change,) = result["fixes"][0]["artifactChanges"]
    (entry,) = json.loads(out("json"))
    edits = [
        Edit(
            Place(str(folder / name), one["cell"] or 0, *one["location"].values(), *one["end_location"].values()),
            one["content"],
        )
        for one in entry["fix"]["edits"]
    ]
    after = data
    whole = data.decode("latin-1" if kind == "latin" else "utf-8-sig")
    encoding = "latin-1" if kind == "latin" else "utf-8"
    for one in sorted(change["replacements"], key=lambda one: -one["deletedRegion"]["byteOffset"]):
        region, content = one["deletedRegion"], one["insertedContent"]["text"]
        start, end = region["byteOffset"], region["byteOffset"] + region["byteLength"]
        first = region["charOffset"]
        assert whole[first : first + region["charLength"]].encode(encoding) == data[start:end]
        row = whole.split("\n")[region["startLine"] - 1]
        assert row[region["startColumn"] - 1 :].startswith(data[start:end].decode(encoding))
        after = after[:start] + content.encode(encoding) + after[end:]
    assert after == apply_edits(read_source(str(folder / name)), edits)


def test_sarif_names_the_cell_of_a_notebook(folder: Path, out: Callable[..., str]) -> None:
    (folder / "a.ipynb").write_text(notebook("%cd data\n", BAD))
    (result,) = log(out("sarif"))["results"]
    location = result["locations"][0]
    assert location["logicalLocations"] == [{"name": "cell 2", "fullyQualifiedName": "cell 2, 12:16"}]
    region = location["physicalLocation"]["region"]
    row = (folder / "a.ipynb").read_text().splitlines()[region["startLine"] - 1]
    assert row[region["startColumn"] - 1 :].startswith("DataLoader(data,")


def test_advice_is_no_replacement(folder: Path, out: Callable[..., str]) -> None:
    (folder / "a.py").write_text(BAD)
    (result,) = log(out("sarif", "--unfixable", "OOM101"))["results"]
    assert "fixes" not in result
    assert result["properties"]["help"]
    (result,) = log(out("sarif"))["results"]
    assert result["fixes"][0]["description"]["text"].endswith(" (safe fix)")


def test_verdicts_travel(folder: Path) -> None:
    (folder / "a.py").write_text(BAD)
    place = Place(str(folder / "a.py"), 0, 12, 16, 12, 83)
    found = Finding("OOM101", "persistent-without-workers", "message", Severity.ERROR, Confidence.HIGH, place)
    view, remark = View(str(folder)), Remark("confirmed", "confirmed: it no longer crashes")
    (result,) = log(sarif.text([found], view, lambda _: {"verdict": {"outcome": "confirmed"}}, lambda _: remark))["results"]
    assert result["properties"]["verdict"] == {"outcome": "confirmed"}
    assert result["message"]["text"].endswith(remark.text)
    assert json.loads(gitlab.text([found], view, lambda _: remark))[0]["content"] == {"body": remark.text}
    assert remark.text in junit.text([found], view, lambda _: remark)
    assert "(confirmed)" in github_summary.text([found], 1, view, lambda _: remark)
    assert "[OOM101(persistent-without-workers)] message (confirmed)" in next(pylint.rows([found], view, lambda _: remark))


def test_what_is_fixed_is_told_with_its_verdict_and_is_no_failure(folder: Path) -> None:
    (folder / "a.py").write_text(BAD)
    place = Place(str(folder / "a.py"), 0, 12, 16, 12, 83)
    found = Finding("OOM101", "persistent-without-workers", "message", Severity.ERROR, Confidence.HIGH, place)
    view, remark = View(str(folder)), Remark("fixed, fix confirmed", "fixed; fix confirmed: it no longer crashes", "notice", fixed=True)
    run = log(sarif.text([found], view, lambda _: {"verdict": {"outcome": "confirmed"}}, lambda _: remark))
    assert run["results"] == []
    (notice,) = run["invocations"][0]["toolExecutionNotifications"]
    assert (notice["associatedRule"], notice["properties"]) == ({"id": "OOM101", "index": 0}, {"verdict": {"outcome": "confirmed"}})
    assert github.text([found], view, lambda _: remark).startswith("::notice title=oomlint (OOM101)%3A fixed%2C fix confirmed")
    (entry,) = json.loads(gitlab.text([found], view, lambda _: remark))
    assert (entry["severity"], entry["content"]["body"]) == ("minor", remark.text)
    (case,) = ET.fromstring(junit.text([found], view, lambda _: remark)).iter("testcase")
    assert [each.tag for each in case] == ["system-out"]
    assert ET.fromstring(junit.text([found], view, lambda _: remark)).attrib["failures"] == "0"
    page = github_summary.text([found], 1, view, lambda _: remark, "1 fix verified: 1 confirmed.")
    assert "No findings in 1 file.\n\n1 fix verified: 1 confirmed.\n" in page
    assert "(fixed, fix confirmed)" in page


# -- a bound -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", OutputFormat)
def test_a_report_has_a_bound_where_one_is_asked_for(folder: Path, form: OutputFormat, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.py").write_text("from torch.utils.data import DataLoader\n" + "DataLoader(data, num_workers=0, persistent_workers=True)\n" * 3)
    assert main(["check", "--output-format", form, "--limit", "2"]) == 1
    said = capsys.readouterr()
    assert "1 finding left out (--limit)" in said.out + said.err
    if form in {OutputFormat.JSON, OutputFormat.JSON_LINES}:
        entries = json.loads(said.out) if form is OutputFormat.JSON else [json.loads(row) for row in said.out.splitlines()]
        assert [entry.get("left_out") for entry in entries] == [None, 1]
    assert main(["check", "--output-format", form, "--limit", "3"]) == 1
    assert "left out" not in "".join(capsys.readouterr())
    assert main(["check", "--limit", "0"]) == 2


# -- fingerprints -----------------------------------------------------------------------------------------------------


def fingerprints(out: Callable[..., str]) -> list[str]:
    said = [result["partialFingerprints"]["primaryLocationLineHash"] for result in log(out("sarif"))["results"]]
    assert [item["fingerprint"] for item in json.loads(out("gitlab"))] == said
    assert len({*said}) == len(said)
    return said


def test_a_fingerprint_lasts_while_rows_move(folder: Path, out: Callable[..., str]) -> None:
    path = folder / "a.py"
    path.write_text(BAD)
    (before,) = fingerprints(out)
    path.write_text(BAD.replace("class Trainer:", 'x = 1  # more\n\n\nclass Trainer:\n    """Words."""\n').replace("  # ü", ""))
    assert fingerprints(out) == [before]
    for old, new in (("fit", "train"), ("data,", "data, 8,"), ("class Trainer", "class Other")):
        path.write_text(BAD.replace(old, new))
        assert fingerprints(out) != [before], new
    path.write_text(BAD)
    path.rename(folder / "b.py")
    assert fingerprints(out) != [before]


def test_equal_statements_are_counted(folder: Path, out: Callable[..., str]) -> None:
    row = BAD.splitlines(keepends=True)[-1]
    (folder / "a.py").write_text(BAD)
    (first,) = fingerprints(out)
    (folder / "a.py").write_text(BAD + row)
    assert fingerprints(out)[0] == first


def test_a_formatter_changes_no_fingerprint(folder: Path, out: Callable[..., str]) -> None:
    path = folder / "a.py"
    path.write_text("""\
from torch.utils.data import DataLoader
from given import data, decorator, x
loader = DataLoader ( data , num_workers = 0 , persistent_workers = ( True ) , collate_fn = lambda x : x [ 0X1F : ] ) ; print( 'it\\'s', u'x' )
def f ( x ) :
    for batch in ( DataLoader( x, 'a' 'b', timeout=1., generator = F'{x!r}' if x else None, num_workers=0, persistent_workers=True, y = None ) ) :
        if not ( batch ) : return ( batch )
    with open( 'x' ) as g, \\
         open( 'y' ) as h : return DataLoader( { 'a' : 1E5, 'b' : .5 }, num_workers=0, persistent_workers=True )
class A ( ) :
    @ decorator
    def g( self, y = DataLoader( x, num_workers = 0, persistent_workers = True )  ) : pass
""")
    before = fingerprints(out)
    assert len(before) == 4
    text = path.read_text()
    subprocess.run([sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "40", "a.py"], check=True, capture_output=True)
    assert path.read_text() != text
    assert fingerprints(out) == before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = f(a, b)", "x = f(\n    a,  # first\n    b,\n)"),
        ("x = 'a#b'  # c", 'x = "a#b"'),
        ("x = 1. + .5 + 0XFF", "x = 1.0 + 0.5 + 0xff"),
        ("x = R'a' U'b'", 'x = r"ab"'),
        ("for (a, b) in c:", "for a, b in c:"),
    ],
)
def test_layout_is_left_out(one: str, other: str) -> None:
    assert normal(one) == normal(other)


def test_what_is_no_program_for_this_python_has_fingerprints_too(folder: Path) -> None:
    (folder / "a.py").write_text("x = (\n")
    place = Place(str(folder / "a.py"), 0, 1, 1, 1, 2)
    found = [Finding(code, "x", "m", Severity.ERROR, Confidence.HIGH, place) for code in ("OOM101", None)]
    assert len({*Fingerprints(View(str(folder)), str(folder)).of(found)}) == 2


# -- the others -------------------------------------------------------------------------------------------------------


def test_gitlab(folder: Path, out: Callable[..., str]) -> None:
    (folder / "a.py").write_text(BAD)
    (entry,) = json.loads(out("gitlab"))
    assert entry["location"] == {"path": "a.py", "lines": {"begin": 12, "end": 12}}
    assert (entry["check_name"], entry["severity"]) == ("persistent-without-workers", "critical")
    assert entry["description"].startswith("OOM101: ")


def test_junit(folder: Path, out: Callable[..., str]) -> None:
    (folder / "a.py").write_text("")
    clean = ET.fromstring(out("junit"))
    assert [clean.get(key) for key in ("tests", "failures", "errors")] == ["1", "0", "0"]
    (folder / "a.py").write_text(BAD)
    (folder / "b.py").write_text("num_workers = (\n")
    root = ET.fromstring(out("junit"))
    assert [root.get(key) for key in ("tests", "failures", "errors")] == ["2", "1", "1"]
    assert [case.get("name") for case in root.iter("testcase")] == ["org.oomlint.OOM101", "org.oomlint.cannot-check"]
    (failure,) = root.iter("failure")
    assert "a.py:6:1: default of `--workers`" in (failure.text or "")


def test_junit_holds_any_characters(folder: Path) -> None:
    found = Finding("OOM101", "x", "a\x00\x1b\ud800\uffff<&\nb", Severity.ERROR, Confidence.HIGH, Place(str(folder / "\udcff.py"), 0, 1, 1, 1, 2))
    text = junit.text([found], View(str(folder)))
    assert text.isascii()
    assert ET.fromstring(text) is not None


def short(text: str) -> str:
    return re.sub("`persistent.*", "...", text)


def test_lines(folder: Path, out: Callable[..., str]) -> None:
    (folder / "a.py").write_text(BAD)
    (folder / "b.ipynb").write_text(notebook("x = 1\n", BAD.replace("fit(self, data)", "run(self, data, seed)")))  # no copy
    assert short(out("grouped", "-q")) == snapshot("""\
a.py:
  12:16  OOM101 error [*] ...

b.ipynb:
  cell 2:12:16  OOM101 error [*] ...

""")
    assert short(out("pylint")) == snapshot("""\
a.py:12: [OOM101(persistent-without-workers)] ...
b.ipynb:25: [OOM101(persistent-without-workers)] cell 2, 12:16: ...
""")
    assert short(out("concise", "-q")) == snapshot("""\
a.py:12:16: OOM101 error [*] ...
b.ipynb:cell 2:12:16: OOM101 error [*] ...
""")
    rows = out("json-lines").splitlines()
    assert [json.loads(row) for row in rows] == json.loads(out("json"))
    assert out("grouped", "--statistics", "-q") == "2  OOM101  persistent-without-workers (up to 2 fixable)\n"
    assert json.loads(out("json-lines", "--statistics"))["fixable"] == 2


def test_fixes_that_would_be_applied_are_marked(folder: Path) -> None:
    from oomlint.output import concise  # noqa: PLC0415

    place = Place(str(folder / "a.py"), 0, 1, 1, 1, 2)
    both = (Safety.SAFE, Safety.UNSAFE)
    for safety, edits, marked in ((Safety.SAFE, (Edit(place, ""),), both), (Safety.UNSAFE, (Edit(place, ""),), both[1:]), (Safety.SAFE, (), ())):
        found = Finding("OOM101", "x", "m", Severity.ERROR, Confidence.HIGH, place, (), Fix(safety, "", edits))
        for fixable in both:
            text = "".join(words for line in concise.lines([found], View(str(folder)), (Safety.SAFE, fixable)) for words, _ in line)
            assert ("[*]" in text) is (fixable in marked)


@pytest.mark.parametrize("form", ["sarif", "gitlab", "junit", "pylint"])
def test_statistics_are_no_findings(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--statistics", "--output-format", form]) == 2
    assert capsys.readouterr() == ("", f"oomlint: error: --statistics are not findings, and cannot be written as {form}\n")


@pytest.mark.parametrize("form", list(OutputFormat))
def test_every_format_goes_to_a_file_and_holds_odd_names(folder: Path, form: OutputFormat, capsys: pytest.CaptureFixture[str]) -> None:
    name = "größe|\udcff#%.py"
    try:
        (folder / name).write_text(BAD)
    except OSError:
        name = "größe#%.py"
        (folder / name).write_text(BAD)
    assert main(["check", "--output-format", form.value, "--output-file", "report"]) == 1
    assert capsys.readouterr() == ("", "")
    assert "OOM101" in (folder / "report").read_text(encoding="utf-8")


def test_github_has_a_page_for_the_step(folder: Path, out: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.py").write_text(BAD)
    (folder / "page.md").write_text("before\n")
    monkeypatch.setenv(github_summary.VARIABLE, str(folder / "page.md"))
    out("github")
    out("json")
    page = (folder / "page.md").read_text()
    assert page.startswith("before\n## oomlint\n\n1 error in 1 file.\n")
    assert page.count("| `a.py:12:16` | OOM101 persistent-without-workers | error |") == 1
    monkeypatch.setenv(github_summary.VARIABLE, str(folder / "no" / "page.md"))
    assert main(["check", "--output-format", "github"]) == 1
    assert capsys.readouterr().err == f"oomlint: the summary of the step is not written: {folder}/no/page.md: No such file or directory\n"
