"""Rules are found by the names of their files, and selected by code and prefix."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oomlint import registry
from oomlint.finding import (
    ByteSize,
    Confidence,
    Consequence,
    Factor,
    Finding,
    Fix,
    Message,
    Multiplier,
    Place,
    Resource,
    Role,
    Safety,
    Severity,
    Weighs,
    Weight,
)
from oomlint.rule import HEADINGS, Rule, page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project

ROOT = Path(__file__).parent.parent
MADE_UP = (("OOM101", "a"), ("OOM102", "b"), ("OOM110", "c"), ("OOM201", "d"))


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "catalogue", lambda: MADE_UP)


def test_the_catalogue_is_the_folder_of_rules() -> None:
    files = sorted(path.stem for path in (ROOT / "oomlint" / "rules").glob("oom*.py"))
    assert [f"{code.lower()}_{slug.replace('-', '_')}" for code, slug in registry.catalogue()] == files
    assert len({code for code, _ in registry.catalogue()}) == len({slug for _, slug in registry.catalogue()}) == len(files)


def test_the_catalogue_imports_no_rule() -> None:
    program = "import sys; from oomlint import registry; registry.codes(['OOM']); print([name for name in sys.modules if '.oom' in name])"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_file_holds_the_rule_that_its_name_says() -> None:
    for rule, (code, slug) in zip(registry.all_rules(), registry.catalogue(), strict=True):
        assert (rule.code, rule.slug) == (code, slug)
        assert isinstance(rule.severity, Severity)
        assert isinstance(rule.weighs, Weighs)
        assert rule.fixable is None or isinstance(rule.fixable, Safety)


def test_a_file_without_its_rule_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    code, slug = registry.catalogue()[0]
    registry.load_own.cache_clear()
    monkeypatch.setattr(type(registry.load(code)), "slug", "another")
    registry.load_own.cache_clear()
    with pytest.raises(TypeError, match=f"must hold one rule, with code {code} and slug {slug}"):
        registry.load(code)
    registry.load_own.cache_clear()


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(
    ("select", "ignore", "extend", "codes"),
    [
        (["OOM"], [], [], "101 102 110 201"),
        (["ALL"], [], [], "101 102 110 201"),
        (["OOM1"], [], [], "101 102 110"),
        (["OOM10"], [], [], "101 102"),
        (["oom101"], [], [], "101"),
        (["OOM"], ["OOM1"], [], "201"),
        (["OOM"], ["OOM1"], ["OOM101"], "101 201"),
        (["OOM101"], ["OOM1"], [], "101"),
        (["OOM101"], ["OOM101"], [], ""),
        (["OOM2"], [], ["OOM101", "OOM11"], "101 110 201"),
        ([], [], [], ""),
        (["OOM"], ["ALL"], [], "101 102 110 201"),
        (["ALL"], ["ALL"], ["OOM2"], "201"),
    ],
)
def test_the_longest_selector_decides(select: list[str], ignore: list[str], extend: list[str], codes: str) -> None:
    assert registry.codes(select, ignore, extend) == tuple(f"OOM{number}" for number in codes.split())


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(
    ("ignore", "extend", "codes"),
    [([], [], "101 201"), (["OOM1"], [], "201"), (["OOM101"], ["OOM1"], "102 110 201"), ([], ["OOM10"], "101 102 201"), (["ALL"], [], "")],
)
def test_a_selection_can_build_on_another(ignore: list[str], extend: list[str], codes: str) -> None:
    assert registry.codes([], ignore, extend, ["OOM101", "OOM201"]) == tuple(f"OOM{number}" for number in codes.split())


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("selector", ["OOM3", "OOM1011", "E501", "OO", "", "OOM-1", "persistent"])
@pytest.mark.parametrize("where", ["select", "ignore", "extend"])
def test_a_selector_that_fits_nothing_is_refused(selector: str, where: str) -> None:
    with pytest.raises(ValueError, match=f"unknown rule or prefix '{selector}'"):
        registry.codes(**{"select": ["OOM"], "ignore": [], "extend": [], where: [selector]})


@pytest.mark.usefixtures("made_up")
def test_a_rule_is_found_by_code_and_by_name() -> None:
    assert registry.find("oom102") == registry.find("B") == "OOM102"
    with pytest.raises(ValueError, match="unknown rule 'x'"):
        registry.find("x")


# -- rules and their pages --------------------------------------------------------------------------------------------


class Silent(Rule):
    """One line.

    ## What it does

    A `#` in a fence is no heading:

    ```python
    ## Example
    ```

    ## Example

    ~~~
    not this
    ~~~

    ```python
    loader = 1

    del loader
    ```
    """

    code = "OOM999"
    slug = "silent"
    severity = Severity.WARNING
    fixable = None
    weighs = Weighs(Consequence.GROWS, Resource.GRAPH, (Multiplier.STEPS,))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:  # noqa: ARG002
        yield from ()


def test_a_page_is_taken_apart() -> None:
    text = page(Silent)
    assert text.summary == "One line."
    assert list(text.sections) == ["What it does", "Example"]
    assert "## Example" in text.sections["What it does"]
    assert text.example == "loader = 1\n\ndel loader\n"
    assert page(Silent()) == text


def test_a_rule_makes_findings_of_its_own() -> None:
    place = Place("/x.py", 0, 1, 1, 1, 2)
    weight = Weight(Consequence.GROWS, Resource.GRAPH, ByteSize(), (Factor(Multiplier.STEPS),))
    assert Silent().finding(place, Message("m", "c", "h")) == Finding(
        "OOM999", "silent", "m", Severity.WARNING, Confidence.HIGH, place, weight=weight, consequence="c", help="h"
    )
    once = Weighs(Consequence.ONCE, Resource.ARRAYS, bytes=ByteSize(8))
    assert Silent().finding(place, Message("m"), weighs=once).weight == Weight(Consequence.ONCE, Resource.ARRAYS, ByteSize(8))
    assert Silent().finding(place, Message("m"), severity=Severity.NOTE, related=[place]).severity is Severity.NOTE
    # The code of a place is shown once: that it happens there, too, says nothing more.
    other = Place("/x.py", 0, 2, 1, 2, 2, "too", Role.AGAIN)
    said = [place.saying("too", Role.AGAIN), place.saying("made here"), other]
    assert [one.message for one in Silent().finding(place, Message("m"), related=said).related] == ["made here", "too"]
    assert Silent().finding(place, Message("m", help="h"), fix=Fix(Safety.DISPLAY, "what the fix says")).help == "what the fix says"


@pytest.mark.parametrize("code", [code for code, _ in registry.catalogue()])
def test_every_page_has_its_sections_in_order(code: str) -> None:
    text = page(registry.load(code))
    assert tuple(text.sections) == HEADINGS
    assert text.summary
    assert all(text.sections.values())
    compile(text.example, "example", "exec", dont_inherit=True)
    compile(text.remedy, "remedy", "exec", dont_inherit=True)
