"""The rules say what their fixtures and pages say they say, and their fixes keep the laws.

A fixture is a file or a folder under fixtures/rules/<code>/. What must be found stands on its line: ``# expect: OOM101``, several codes with commas between,
and words of the message in brackets where they matter. Everything else must stay silent, whichever rule of the family looks at it. ``bad*`` holds the
pattern, ``good*`` what looks like it, and ``known_wrong*`` what is not judged rightly yet: its comments say what would be right.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from rule_cases import FAMILIES, FIXTURES, cases, check, family, put

from oomlint import registry
from oomlint.finding import Consequence, Resource, Safety, Severity
from oomlint.rule import HEADINGS, page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rule_cases import Look

    from oomlint.finding import Finding
    from oomlint.rule import Rule

ON_COMMENTS: Final = "OOM0"  # speaks of oomlint's own comments, not of training code: tests/test_engine.py
LEAST_BAD, LEAST_GOOD = 4, 6

_EXPECT = re.compile(r"#\s*expect:\s*(OOM\d{3}(?:,\s*OOM\d{3})*)(?:\s*\(([^)]*)\))?")

RULES: Final = [rule for rule in registry.all_rules() if rule.code.startswith(FAMILIES)]


class Mark(NamedTuple):
    """A code and the place it is found at or expected at."""

    file: str
    row: int
    code: str


def named(paths: Iterable[Path]) -> list[object]:
    return [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in paths]


JUDGED: Final = named([*cases("bad"), *cases("good")])
WRONG: Final = named(cases("known_wrong"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of its own, so that no fixture sees another one."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def programs(project: Path) -> dict[str, str]:
    """The Python files of a project."""
    return {path.relative_to(project).as_posix(): path.read_text(encoding="utf-8") for path in sorted(project.rglob("*.py"))}


def texts(project: Path) -> dict[str, str]:
    """All files of a project, code and what is beside it."""
    return {path.relative_to(project).as_posix(): path.read_text(encoding="utf-8", errors="replace") for path in sorted(project.rglob("*")) if path.is_file()}


def marks(findings: Iterable[Finding], project: Path) -> Counter[Mark]:
    return Counter(Mark(Path(item.place.path).relative_to(project).as_posix(), item.place.row, item.code or "") for item in findings)


def expected(project: Path) -> Iterator[tuple[Mark, str]]:
    """What the comments of a project ask for: a mark, and words of its message."""
    for name, text in texts(project).items():
        for row, line in enumerate(text.splitlines(), 1):
            match = _EXPECT.search(line)
            assert match or "expect:" not in line, f"{name}:{row}: not an expectation: {line}"
            if match:
                yield from ((Mark(name, row, code.strip()), match[2] or "") for code in match[1].split(","))


def comments(text: str) -> Counter[str]:
    return Counter(token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT)


def keywords(tree: ast.AST, name: str) -> list[ast.keyword]:
    """The arguments of a name, in the order of their lines."""
    return sorted((node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == name), key=lambda node: node.lineno)


# -- fixtures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", JUDGED)
def test_a_fixture_says_what_its_comments_say(case: Path, look: Look) -> None:
    project, findings = look(case)
    wanted = list(expected(project))
    assert marks(findings, project) == Counter(mark for mark, _ in wanted), "\n".join(item.message for item in findings)
    for mark, words in wanted:
        said = [item.message for item in findings if marks([item], project)[mark]]
        assert all(words in message for message in said), f"{mark} does not say {words!r}: {said}"


@pytest.mark.parametrize("case", JUDGED)
def test_a_finding_has_its_weight(case: Path, look: Look) -> None:
    for item in look(case).findings:
        assert item.weight is not None
        assert item.weight.of is not Resource.UNKNOWN, f"{item.code}: of what kind it is, the rule or its facts must say"
        assert item.severity is not Severity.ERROR or item.weight.consequence is not Consequence.ONCE, f"{item.code}: what is paid once is no error"


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="known wrong: once it is right, it moves to bad or good")
@pytest.mark.parametrize("case", WRONG)
def test_what_is_known_to_be_wrong_is_wrong_still(case: Path, project: Path) -> None:
    put(case, project)
    assert marks(check(project, case.parent.name).findings, project) == Counter(mark for mark, _ in expected(project))


@pytest.mark.parametrize("code", [rule.code for rule in RULES])
def test_a_rule_has_fixtures_of_both_kinds(code: str, project: Path) -> None:
    bad, good = cases("bad", code), cases("good", code)
    assert len(bad) >= LEAST_BAD
    assert len(good) >= LEAST_GOOD
    for case in (*bad, *good):
        folder = project / case.name
        folder.mkdir()
        put(case, folder)
        asked = {mark.code for mark, _ in expected(folder)}
        assert (code in asked) == (case in bad), f"{case.name} is in the wrong place: its comments expect {sorted(asked) or 'nothing'}"


def test_every_fixture_belongs_to_a_rule() -> None:
    owners = {rule.code for rule in registry.all_rules()}
    strays = [path for path in sorted(FIXTURES.glob("*/*")) if path.parent.name not in owners or not re.match(r"(bad|good|known_wrong)_\w", path.name)]
    assert [path.relative_to(FIXTURES).as_posix() for path in strays if path.name != "__pycache__"] == []


def test_every_family_is_tested() -> None:
    assert {family(rule.code) for rule in registry.all_rules()} <= {ON_COMMENTS, *FAMILIES}


# -- laws of fixes ---------------------------------------------------------------------------------------------------


def fixable(findings: Iterable[Finding], safety: Safety) -> bool:
    """Whether there is anything to apply."""
    return any(item.fix and item.fix.edits and item.fix.safety in {Safety.SAFE, safety} for item in findings)


@pytest.mark.parametrize("safety", [Safety.SAFE, Safety.UNSAFE], ids=str)
@pytest.mark.parametrize("case", JUDGED)
def test_a_fix_keeps_the_laws(case: Path, safety: Safety, look: Look, project: Path) -> None:
    before = look(case).findings
    if not fixable(before, safety):
        return  # as in most fixtures; what a run does where there is nothing to apply is the same for all: see below
    put(case, project)
    rule, old = case.parent.name, programs(project)
    report = check(project, rule, safety)
    after, new = check(project, rule).findings, programs(project)

    assert [notice.message for notice in report.notices] == [], "a fix that has to be left out is no fix"
    for name, text in new.items():
        ast.parse(text, name)
        if safety is Safety.SAFE:
            assert not comments(old[name]) - comments(text), "what would drop a comment is not safe"
    assert {item.fix.safety for item in report.fixed if item.fix} <= {Safety.SAFE, safety}

    # What is fixed is gone, and nothing as grave has come.
    fixed = Counter(item.code for item in report.fixed)
    left, had = Counter(item.code for item in after), Counter(item.code for item in before)
    assert left == Counter(item.code for item in report.findings)
    bar = max((item.severity.rank for item in report.fixed), default=-1)
    for code, count in left.items():
        grave = min(item.severity.rank for item in after if item.code == code)
        assert count <= had[code] - fixed[code] or grave > bar, f"{code} is added or stays"

    # Stable: fixing again changes nothing.
    if fixable(after, safety):
        again = check(project, rule, safety)
        assert not again.fixed
        assert not again.changes
        assert not again.notices
        assert programs(project) == new


@pytest.mark.parametrize("kind", ["bad", "good"])
@pytest.mark.parametrize("code", FAMILIES)
def test_where_there_is_nothing_to_apply_nothing_is_done(code: str, kind: str, look: Look, project: Path) -> None:
    """One fixture of each family and kind stands for all of them."""
    case, safety = next(
        (case, safety) for safety in (Safety.UNSAFE, Safety.SAFE) for case in cases(kind, f"{code}*") if not fixable(look(case).findings, safety)
    )
    put(case, project)
    old = programs(project)
    report = check(project, case.parent.name, safety)
    assert (report.fixed, report.changes, report.notices) == ((), (), ())
    assert programs(project) == old


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_with_a_fix_fixes_one_of_its_fixtures(rule: Rule, look: Look) -> None:
    best: set[Safety] = set()
    for case in cases("bad", rule.code):
        best |= {item.fix.safety for item in look(case).findings if item.fix and item.code == rule.code}
    ranks = list(Safety)
    assert min(best, key=ranks.index, default=None) == rule.fixable


@pytest.mark.parametrize("case", named([FIXTURES / "OOM111" / "bad_two_lambdas_in_one_module.py", FIXTURES / "OOM111" / "bad_two_lambdas_in_functions.py"]))
def test_two_lambdas_become_two_functions(case: Path, project: Path) -> None:
    put(case, project)
    old = ast.parse(case.read_text(encoding="utf-8"))
    lambdas = [ast.unparse(word.value.body) for word in keywords(old, "collate_fn") if isinstance(word.value, ast.Lambda)]
    assert len(set(lambdas)) == len(lambdas) == 2

    assert len(check(project, case.parent.name, Safety.SAFE).fixed) == len(lambdas)
    new = ast.parse(programs(project)[case.name])
    bodies = {node.name: ast.unparse(node.body[0]).removeprefix("return ") for node in new.body if isinstance(node, ast.FunctionDef)}
    assert len(bodies) == sum(isinstance(node, ast.FunctionDef) for node in new.body), "no name is taken twice"
    used = [word.value.id for word in keywords(new, "collate_fn") if isinstance(word.value, ast.Name)]
    assert [bodies[name] for name in used] == lambdas, "each loader keeps its own"


# -- pages -----------------------------------------------------------------------------------------------------------


def program(text: str, project: Path, code: str, section: str = "Example") -> list[Finding]:
    """What the family of a code finds in a program of one file, with the files beside it in a section of the page."""
    (project / "program.py").write_text(text, encoding="utf-8")
    for name, content in page(registry.load(code)).beside(section).items():
        (project / name).write_text(content, encoding="utf-8")
    return list(check(project, code).findings)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_page_is_whole(rule: Rule) -> None:
    text = page(rule)
    assert tuple(text.sections) == HEADINGS
    assert text.summary.endswith(".")
    assert all(text.sections.values())
    assert max(len(line) for line in text.example.splitlines()) <= 120


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_example_of_a_page_fires_by_itself(rule: Rule, project: Path) -> None:
    found = program(page(rule).example, project, rule.code)
    assert [item.code for item in found] == [rule.code]
    assert found[0].severity.rank >= rule.severity.rank


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_remedy_of_a_page_is_clean(rule: Rule, project: Path) -> None:
    assert [(item.code, item.message) for item in program(page(rule).remedy, project, rule.code, "Use instead")] == []


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.fixable in {Safety.SAFE, Safety.UNSAFE}], ids=lambda rule: rule.code)
def test_the_fix_turns_the_example_into_the_remedy(rule: Rule, project: Path) -> None:
    program(page(rule).example, project, rule.code)
    report = check(project, rule.code, rule.fixable)
    assert [item.code for item in report.fixed] == [rule.code]
    assert programs(project)["program.py"] == page(rule).remedy


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_findings_of_a_rule_are_as_grave_as_it_says(rule: Rule, look: Look) -> None:
    seen: set[Severity] = set()
    for case in cases("bad", rule.code):
        if case.is_dir() or "def test_" not in case.read_text(encoding="utf-8"):  # what is found in tests is one step lower
            seen |= {item.severity for item in look(case).findings if item.code == rule.code}
    assert min(seen, key=lambda severity: severity.rank, default=None) == rule.severity
    assert seen <= {rule.severity, *rule.lower}
