"""Verdicts to text, in every format."""

from __future__ import annotations

import io
import json
import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from inline_snapshot import snapshot
from jsonschema import Draft202012Validator
from shapes import variants

from oomlint.finding import Confidence, Finding, Place, Severity
from oomlint.output import github, json_array, verdicts_html, verdicts_json, verdicts_svg, verdicts_text
from oomlint.output.json_schema import schema
from oomlint.output.printer import Printer
from oomlint.output.verdicts_numbers import amount, bar, measured, sparkline, total
from oomlint.output.verdicts_remark import remark
from oomlint.output.view import View
from oomlint.verify.case import Case, Fidelity, Outcome, QuantityReading, Timeline, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from oomlint.output.verdicts_numbers import Item
    from oomlint.output.view import Line

PYTHON = "/usr/bin/python3"
BEFORE, AFTER = "losses.append(loss)\n", "losses.append(loss.detach())\n"


@pytest.fixture
def view(tmp_path: Path) -> View:
    (tmp_path / "train.py").write_text(BEFORE)
    return View(str(tmp_path))


@pytest.fixture
def item(view: View) -> Item:
    path = f"{view.folder}/train.py"
    headline = "`losses` keeps the graph of every step"
    place = Place(path, 0, 1, 1, 1, 20)
    finding = Finding("OOM201", "graph-kept", headline, Severity.ERROR, Confidence.HIGH, place, consequence="it is never cleared")
    verdict = Verdict(
        Outcome.CONFIRMED,
        "4 storages a step are kept before the fix and none after",
        Fidelity.SYNTHETIC,
        (
            QuantityReading("storages kept a step", "storages", (4.0, 4.0, 4.0), (0.0, 0.0, 0.0), "10 steps"),
            QuantityReading("memory", "bytes", (148.4e6, 148.5e6, 156.5e6), (24.5e6, 24.5e6, 24.5e6)),
        ),
        (Timeline("memory of all processes", "bytes", "seconds", tuple((n / 10, n * 1e7) for n in range(16)), ((0.0, 0.0), (0.8, 2e7))),),
        ("`num_workers` swept over 0 and 2",),
        tuple(f"line {n}: failed with FileNotFoundError" for n in range(1, 8)),
        1.234,
    )
    return Case(finding, view.folder, {path: (BEFORE.encode(), AFTER.encode())}), verdict


def other(item: Item, outcome: Outcome, *, fixed: bool = True, **values: Any) -> Item:
    case, verdict = item
    return replace(case, changes=case.changes if fixed else {}), replace(verdict, outcome=outcome, **values)


def as_json(items: Sequence[Item], view: View, form: Callable[..., str] = json_array.text) -> str:
    entries = iter(items)
    return form([case.finding for case, _ in items], view, lambda _: {"verdict": verdicts_json.verdict_entry(next(entries), PYTHON)})


def as_github(items: Sequence[Item], view: View) -> str:
    entries = iter(items)
    return github.text([case.finding for case, _ in items], view, lambda _: remark(next(entries)))


def plain(lines: Iterable[Line]) -> str:
    stream = io.StringIO()
    Printer(stream, color=False).lines(lines)
    return stream.getvalue()


def test_a_kept_verdict_of_another_shape_is_passed_over_or_shown(item: Item, view: View) -> None:
    case, verdict = item
    short = replace(verdict, timelines=(replace(verdict.timelines[0], before=((0.0, 1.0), (0.5, 2.0))),), left_out=("line 1",))
    kept = json.loads(json.dumps(asdict(short)))
    assert msgspec.convert(kept, Verdict) == short
    shown = passed = 0
    for other_one in variants(kept):
        try:
            known = msgspec.convert(other_one, Verdict)
        except msgspec.ValidationError:
            passed += 1
            continue
        shown += 1
        verdicts_html.text([(case, known)], view, PYTHON)
        json.loads(as_json([(case, known)], view))
        as_github([(case, known)], view)
        plain(verdicts_text.full([(case, known)], view, PYTHON))
        plain(verdicts_text.concise([(case, known)], view))
        total([(case, known)])
    assert min(shown, passed) > 50


# -- text -------------------------------------------------------------------------------------------------------------


def test_full(item: Item, view: View) -> None:
    assert plain(verdicts_text.full([item], view, PYTHON)) == snapshot("""\
train.py:1:1: OOM201 confirmed: `losses` keeps the graph of every step
  4 storages a step are kept before the fix and none after
  storages kept a step, 10 steps (median of 3)
    before ████████████████████████████████ 4 storages
    after  ▏ 0 storages
  memory: 141.6 MiB ±3.9 MiB before, 23.4 MiB after
  memory of all processes, over 1.5 s, up to 143.1 MiB
    before ▁▁▁▁▂▂▂▂▃▃▃▃▄▄▄▄▄▅▅▅▅▆▆▆▆▇▇▇▇███
    after  ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▂
  run: your code on synthesised data, /usr/bin/python3, 1.2 s
  assumed: `num_workers` swept over 0 and 2
  left out: line 1: failed with FileNotFoundError
            line 2: failed with FileNotFoundError
            line 3: failed with FileNotFoundError
            line 4: failed with FileNotFoundError
            line 5: failed with FileNotFoundError
    and 2 more (all of it by `--output-format json`)

""")


def test_full_in_ascii(item: Item, view: View) -> None:
    text = plain(verdicts_text.full([item], view, PYTHON, plain=True))
    assert text.isascii()
    assert "before ################################ 4 storages\n    after  | 0 storages\n" in text


def test_nothing_but_a_reason(item: Item, view: View) -> None:
    case, _ = item
    verdict = Verdict(Outcome.INCONCLUSIVE, "no dataset\x1b[31m can be\nmade", cached=True)
    assert plain(verdicts_text.full([(case, verdict)], view, PYTHON)) == snapshot("""\
train.py:1:1: OOM201 inconclusive (cached): `losses` keeps the graph of every step
  no dataset␛[31m can be made

""")


def test_concise(item: Item, view: View) -> None:
    items = [item, other(item, Outcome.NO_EFFECT, cached=True), other(item, Outcome.SHOWN, fixed=False)]
    assert plain(verdicts_text.concise(items, view)) == snapshot("""\
train.py:1:1: OOM201 confirmed: 4 storages a step are kept before the fix and none after
train.py:1:1: OOM201 no effect (cached): 4 storages a step are kept before the fix and none after
train.py:1:1: OOM201 symptom shown: 4 storages a step are kept before the fix and none after
""")


def test_the_outcome_has_a_colour(item: Item, view: View) -> None:
    stream = io.StringIO()
    Printer(stream, color=True).lines(verdicts_text.full([item], view, PYTHON))
    assert "\x1b[1;32mOOM201 confirmed\x1b[0m" in stream.getvalue()


def test_the_closing_line(item: Item) -> None:
    def of(*outcomes: Outcome, fixed: bool = True) -> list[Item]:
        return [other(item, outcome, fixed=fixed) for outcome in outcomes]

    assert total(of(Outcome.CONFIRMED)) == "1 fix verified: 1 confirmed."
    many = of(Outcome.INCONCLUSIVE, Outcome.CONFIRMED, Outcome.CONFIRMED, Outcome.REGRESSED, Outcome.NO_EFFECT)
    assert total(many) == "5 fixes verified: 2 confirmed, 1 no effect, 1 regressed, 1 inconclusive."
    bare = of(Outcome.SHOWN, Outcome.SHOWN, Outcome.NOT_SHOWN, fixed=False)
    assert total(many[:1] + bare) == "1 fix verified: 1 inconclusive; 3 findings without a fix: 2 shown, 1 not shown."
    assert total([other(item, Outcome.CONFIRMED, cached=True), *many[:1]]) == "2 fixes verified: 1 confirmed, 1 inconclusive (1 cached)."


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0, "bytes", "0 B"),
        (999, "bytes", "999 B"),
        (1023.4, "bytes", "1023 B"),
        (1023.96, "bytes", "1.0 KiB"),
        (1_048_550, "bytes", "1.0 MiB"),
        (1_048_500, "bytes", "1023.9 KiB"),
        (0.4, "bytes", "0.4 B"),
        (148_500_000, "bytes", "141.6 MiB"),
        (-3_200_000, "bytes", "-3.1 MiB"),
        (5e15, "bytes", "4547.5 TiB"),
        (0.0125, "seconds", "12.5 ms"),
        (2, "seconds", "2.0 s"),
        (1, "nodes", "1 node"),
        (3, "nodes", "3 nodes"),
        (0.333333, "copies", "0.333 copies"),
        (12345.5, "descriptors", "12,346 descriptors"),
        (float("nan"), "bytes", "unknown"),
    ],
)
def test_amounts(value: float, unit: str, shown: str) -> None:
    assert amount(value, unit) == shown


def test_bars_and_rows_of_blocks() -> None:
    assert bar(10, 10, 4) == "████"
    assert bar(5, 10, 4) == "██"
    assert bar(1, 32, 4) == "▏"
    assert bar(0, 10, 4) == bar(-1, 10, 4) == bar(0, 0, 4) == "▏"
    assert bar(5, 10, 4, plain=True) == "##"
    assert sparkline(tuple((x, float(x)) for x in range(9)), 8, 8, 8) == "▁▁▂▃▄▅▆█"
    assert sparkline(((0, 8.0), (4, 8.0)), 8, 8, 8) == "█████", "it ends where its run has ended"
    assert sparkline(((0, 0.0),), 0, 0, 8) == "▁"
    assert sparkline((), 0, 0, 8) == "▁"
    assert measured((), "bytes") == "not measured"


# -- for programs -----------------------------------------------------------------------------------------------------


def test_json(item: Item, view: View) -> None:
    text = as_json([item, other(item, Outcome.NOT_SHOWN, fixed=False, fidelity=None)], view)
    Draft202012Validator(schema()).validate(json.loads(text))
    assert text.isascii()
    first, second = json.loads(text)
    assert (first["code"], first["filename"], first["location"]) == ("OOM201", "train.py", {"row": 1, "column": 1})
    verdict = first["verdict"]
    assert {key: verdict[key] for key in ("outcome", "has_fix", "fidelity", "python", "seconds", "cached")} == {
        "outcome": "confirmed",
        "has_fix": True,
        "fidelity": "your code on synthesised data",
        "python": PYTHON,
        "seconds": 1.234,
        "cached": False,
    }
    assert verdict["readings"][0] == {"name": "storages kept a step", "unit": "storages", "under": "10 steps", "before": [4, 4, 4], "after": [0, 0, 0]}
    assert verdict["timelines"][0]["after"] == [[0, 0], [0.8, 2e7]]
    assert len(verdict["left_out"]) == 7, "nothing is shortened for a program"
    assert (second["verdict"]["outcome"], second["verdict"]["has_fix"], second["verdict"]["fidelity"]) == ("symptom not shown", False, None)


def test_json_lines(item: Item, view: View) -> None:
    items = [item, other(item, Outcome.NO_EFFECT)]
    rows = as_json(items, view, json_array.rows).splitlines()
    assert [json.loads(row) for row in rows] == json.loads(as_json(items, view))


def test_json_holds_only_numbers_that_json_knows(item: Item, view: View) -> None:
    odd = other(item, Outcome.CONFIRMED, readings=(QuantityReading("memory", "bytes", (float("nan"), float("inf"))),))
    (entry,) = json.loads(as_json([odd], view), parse_constant=pytest.fail)
    Draft202012Validator(schema()).validate([entry])
    assert entry["verdict"]["readings"][0]["before"] == [None, None]


def test_github(item: Item, view: View) -> None:
    items = [item, *(other(item, outcome) for outcome in (Outcome.NO_EFFECT, Outcome.REGRESSED, Outcome.INCONCLUSIVE))]
    items += [other(item, outcome, fixed=False) for outcome in (Outcome.SHOWN, Outcome.NOT_SHOWN)]
    rows = as_github(items, view).splitlines()
    assert [re.match(r"::(\w+) title=oomlint \(OOM201\)%3A ([\w ]+),file=train.py,line=1,", row).groups() for row in rows] == [  # type: ignore[union-attr]
        ("error", "fix confirmed"),
        ("notice", "fix has no effect"),
        ("error", "fix regressed"),
        ("notice", "fix inconclusive"),
        ("error", "symptom shown"),
        ("notice", "symptom not shown"),
    ]
    assert rows[0].endswith("never cleared%0Afix confirmed: 4 storages a step are kept before the fix and none after (your code on synthesised data)")


# -- the page ---------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """A page whose tags fit into each other."""

    EMPTY = frozenset({"meta", "rect", "line", "polyline", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_has_all_of_it(item: Item, view: View) -> None:
    page = Page(verdicts_html.text([item, other(item, Outcome.INCONCLUSIVE, cached=True)], view, PYTHON))
    words = "".join(page.words)
    for part in ("train.py:1:1", "OOM201", "confirmed", "141.6 MiB ±3.9 MiB", "num_workers swept", "line 7: failed", "(cached)", PYTHON, f"-{BEFORE}+{AFTER}"):
        assert part in words
    assert [tag for tag, _ in page.tags].count("svg") == 4
    assert {attributes["href"] for tag, attributes in page.tags if tag == "a"} == {"#v1", "#v2"}
    assert {attributes["id"] for tag, attributes in page.tags if tag == "section"} == {"v1", "v2"}


@pytest.mark.parametrize(
    ("unit", "values", "beside", "above"),
    [
        ("HDF5 identifiers", (30.0, 30.0), ["0", "10", "20", "30"], True),
        ("storages", (1.0, 2.0), ["0", "1", "2"], True),  # there is no half of one
        ("bytes", (0.0, 4096.0), ["0 B", "1.0 KiB", "2.0 KiB", "3.0 KiB", "4.0 KiB"], False),
    ],
)
def test_a_chart_has_room_for_what_stands_beside_it(unit: str, values: tuple[float, ...], beside: list[str], above: bool) -> None:  # noqa: FBT001
    """A long unit was cut off at its beginning, the number with it."""
    points = tuple((float(number), value) for number, value in enumerate(values))
    drawn = verdicts_svg.lines(Timeline("what is open", unit, "step", points, points))
    assert re.findall(r'text-anchor="end">([^<]*)<', drawn) == beside + [unit] * above


def test_readings_without_a_fix_have_one_column(view: View, item: Item) -> None:
    case, verdict = item
    readings = tuple(replace(one, after=()) for one in (*verdict.readings, *verdict.readings))
    shown = verdicts_html.text([(case, replace(verdict, readings=readings))], view, PYTHON)
    assert '<th class="number">Before</th></tr>' in shown


def test_the_page_loads_and_runs_nothing(item: Item, view: View) -> None:
    hostile = '</title></svg><script>alert("x")</script><img src=//example.org onerror=x>'
    case, verdict = other(item, Outcome.REGRESSED, reason=hostile, assumptions=(hostile,), left_out=(hostile,))
    verdict = replace(
        verdict,
        readings=(QuantityReading(hostile, hostile, (1.0, 2.0), (float("nan"),), hostile),),
        timelines=(Timeline(hostile, hostile, hostile, ((0.0, 1.0), (float("inf"), 2.0))), Timeline("x", "bytes", "step", ())),
    )
    case = replace(case, finding=msgspec.structs.replace(case.finding, headline=hostile), changes={path: (hostile.encode(), b"\x00") for path in case.changes})
    text = verdicts_html.text([(case, verdict)], view, hostile)
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"script", "img", "link", "iframe", "object", "image", "use"}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on") or name in {"src", "style"}]
    assert "default-src 'none'" in text
    assert "nan" not in re.sub(r"<title>.*?</title>", "", text).lower().replace("unknown", "")


def test_a_page_about_nothing(view: View) -> None:
    assert "Nothing to verify." in "".join(Page(verdicts_html.text([], view, PYTHON)).words)


def test_a_chart_that_shows_no_difference_is_left_out(item: Item, view: View) -> None:
    flat = tuple((float(step), 64.0) for step in range(1, 13))
    nothing = tuple((step, 0.0) for step, _ in flat)
    grown = Timeline("what grows", "bytes", "step", tuple((step, 8.0 * step) for step, _ in flat), flat)
    case, verdict = other(
        item, Outcome.INCONCLUSIVE, timelines=(Timeline("nothing", "nodes", "step", nothing, nothing), Timeline("level", "bytes", "step", flat, flat), grown)
    )
    shown = plain(verdicts_text.full([(case, verdict)], view, PYTHON))
    assert [name for name in ("nothing, over", "level, over", "what grows, over") if name in shown] == ["what grows, over"]
    assert "<h3>nothing</h3>" not in verdicts_html.text([(case, verdict)], view, PYTHON)
