"""What findings say: a short headline, what it costs, what to do about it, and no more places than one reads."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from rule_cases import FAMILIES, cases

from oomlint import engine, registry
from oomlint.config import load_settings
from oomlint.finding import Confidence, Edit, Finding, Fix, Message, Place, Safety, Severity, joined
from oomlint.output import full
from oomlint.output.view import View

if TYPE_CHECKING:
    from rule_cases import Look

ROOT: Final = Path(__file__).parent.parent
CODE: Final = re.compile(r"`[^`]*`")
MOST_WORDS: Final = 12  # of a headline; a piece of code is one
MOST: Final = 160  # characters of a message: what annotations show
SENTENCE_ENDS: Final = re.compile(r"[.;!?](\s|$)")
RARE: Final = 4  # letters of words that do not count as said twice


@cache
def found_below(folder: str) -> tuple[Finding, ...]:
    settings, root = load_settings(None, False, ROOT)  # noqa: FBT003 - the engine's own signature
    settings = settings.with_overrides(select=["OOM"], preview=True, severity="note", exclude=[])
    return engine.run([str(ROOT / "fixtures" / folder)], settings, root, engine.RunOptions(cache=False, processes=1)).findings


@pytest.fixture(params=[*(rule.code for rule in registry.all_rules()), "incidents"])
def findings(request: pytest.FixtureRequest, look: Look) -> tuple[Finding, ...]:
    """All findings of the fixtures of a rule, or of the incidents."""
    code = request.param
    if not code.startswith(FAMILIES):
        return found_below(code if code == "incidents" else f"rules/{code}")
    return tuple(item for kind in ("bad", "good") for case in cases(kind, code) for item in look(case).findings)


def told(finding: Finding) -> str:
    return f"{os.path.relpath(finding.place.path, ROOT)}:{finding.place.row} {finding.code}\n  {finding.headline}\n  {finding.consequence}\n  {finding.help}"


def test_a_headline_has_at_most_twelve_words(findings: tuple[Finding, ...]) -> None:
    assert findings
    assert [told(one) for one in findings if len(CODE.sub("x", one.headline).split()) > MOST_WORDS] == []


def test_headline_and_consequence_fit_an_annotation_and_are_whole(findings: tuple[Finding, ...]) -> None:
    assert [told(one) for one in findings if len(one.message) >= MOST] == []
    assert [told(one) for one in findings if one.consequence.endswith("…")] == []


def test_each_part_is_one_sentence_without_a_full_stop(findings: tuple[Finding, ...]) -> None:
    for one in findings:
        headline, consequence, remedy = (CODE.sub("x", part) for part in (one.headline, one.consequence, one.help))
        assert headline, told(one)
        assert consequence, told(one)
        assert remedy, told(one)
        assert headline[0] == headline[0].upper() or one.headline[0] == "`", told(one)
        assert one.consequence[0] == one.consequence[0].lower() or one.consequence.split()[0] in {"CPython", "IPython"}, told(one)
        assert not re.search(r"[.:;!?](\s|$)", headline), told(one)
        assert not re.search(r"[.!?](\s|$)", consequence), told(one)
        assert not SENTENCE_ENDS.search(remedy), told(one)


def test_no_part_repeats_another(findings: tuple[Finding, ...]) -> None:
    for one in findings:
        parts = [set(re.findall(r"[a-z]+", CODE.sub(" ", part).lower())) for part in (one.headline, one.consequence, one.help)]
        for part, other in ((0, 1), (0, 2), (1, 2)):
            rare = [{word for word in parts[which] if len(word) > RARE} for which in (part, other)]
            smaller = min(map(len, rare))
            assert len(rare[0] & rare[1]) <= max(1, smaller / 2), told(one)


def test_full_shows_at_most_three_related_places_unless_all_are_asked_for(findings: tuple[Finding, ...]) -> None:
    view = View(str(ROOT))
    for one in findings:
        few, every = (shown(one, view, every_place=every) for every in (False, True))
        assert (few, every) == (min(len(one.related), full.MOST_RELATED), len(one.related)), told(one)


def shown(finding: Finding, view: View, *, every_place: bool) -> int:
    """How many related places are printed; another file that a fix changes is not one of them."""
    text = "".join("".join(span for span, _ in line) + "\n" for line in full.lines([finding], view, every_place=every_place))
    places = text.partition("= help")[0]
    return len(re.findall(r"^ +::: (?!\d+ more)", places, re.MULTILINE))


def test_a_long_fix_is_shown_by_its_first_rows_unless_all_are_asked_for(tmp_path: Path) -> None:
    path = str(tmp_path / "test.py")
    loop = ["    for images in loader:", *(f"        kept_{number} = model(images)" for number in range(30))]
    Path(path).write_text("\n".join(["def test(model, loader):", *loop, ""]))
    indented = "\n".join(["    with torch.no_grad():", *(f"    {row}" for row in loop)])
    fix = Fix(Safety.SAFE, "help", (Edit(Place(path, 0, 2, 1, 32, len(loop[-1]) + 1), indented),))
    found = Finding("OOM204", "a-rule", "what", Severity.WARNING, Confidence.HIGH, Place(path, 0, 2, 5, 2, 20), help="x", fix=fix)
    few, every = (rows_of_fix(found, View(str(tmp_path)), every_place=each) for each in (False, True))
    assert len(few) <= full.LONGEST + 1
    assert few[-1] == "   | ... all rows of the fix: --verbose"
    assert " 2 +     with torch.no_grad():" in few, few
    assert len([line for line in every if re.match(r" *\d+ [-+]", line)]) == 31 + 32
    assert not any("--verbose" in line for line in every)


def rows_of_fix(finding: Finding, view: View, *, every_place: bool) -> list[str]:
    rows = ["".join(span for span, _ in line) for line in full.lines([finding], view, every_place=every_place)]
    return rows[next(index for index, row in enumerate(rows) if "= help" in row) + 1 : -1]


# -- the shortening ------------------------------------------------------------------------------------------------------


def test_code_is_shortened_until_the_message_fits() -> None:
    code = "self.network.decoder(self.network.encoder(batch['image'].to(device)))[:, 0].detach().cpu().numpy()"
    message = Message(f"`found` collects `{code}`", "host memory grows with the number of samples, and\n with every epoch").fitted()
    assert len(joined(message.headline, message.consequence)) == MOST - 1
    assert message.headline.startswith("`found` collects `self.network.decoder(")
    assert message.headline.endswith("…`")
    assert message.consequence == "host memory grows with the number of samples, and with every epoch"
    assert message.fitted() == message


def test_code_of_the_consequence_is_shortened_first() -> None:
    message = Message(f"`{'h' * 50}` is read", f"it stays in `{'c' * 50}` and in `short`, {'and so on' * 6}").fitted()
    assert "`" + "h" * 50 + "`" in message.headline
    assert "…`" in message.consequence
    assert "`short`" in message.consequence


def test_without_code_the_consequence_ends_earlier() -> None:
    message = Message("A headline", "a consequence that goes on " * 10).fitted()
    assert len(joined(message.headline, message.consequence)) < MOST
    assert message.consequence.endswith(" …")


def test_what_is_added_fits_too() -> None:
    place = Place("a.py", 0, 1, 1, 1, 2)
    finding = Finding("OOM901", "x", f"`{'h' * 80}` is read", Severity.NOTE, Confidence.LOW, place, consequence="it stays in memory", help="h")
    more = finding.adding("again on each of 8 ranks").adding("also in 4 more files")
    assert more.message.endswith("it stays in memory; again on each of 8 ranks; also in 4 more files")
    assert len(more.message) < MOST
    assert finding.adding("again").help == "h"
