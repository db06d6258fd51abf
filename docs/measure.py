"""Verifies the examples of all rules and the five incidents, and writes what was measured to docs/measured.json, from which docs/generate.py prints it.

usage: python docs/measure.py [CODE... | incidents]

With codes or `incidents` given only those are measured again. Needs the extra `verify`. Figures in bytes differ a little from run to run and from machine to
machine.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oomlint import engine, registry
from oomlint.cli.verification import VerifyRequest, surroundings
from oomlint.config import Settings, load_settings
from oomlint.rule import page
from oomlint.verify.case import Case
from oomlint.verify.run import cases_of, verdicts
from oomlint.verify.session import Surroundings, VerifyOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.verify.case import Verdict

DOCS: Final = Path(__file__).parent
MEASURED: Final = DOCS / "measured.json"
INCIDENTS: Final = DOCS.parent / "fixtures" / "incidents"
FILE: Final = "program.py"


def main(words: Sequence[str]) -> int:
    """Measure and write."""
    known: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {"rules": {}, "incidents": []}
    codes = [code for code, _ in registry.catalogue() if code != "OOM001"]
    if not words or "incidents" in words:
        known["incidents"] = list(incidents())
    for code, verdict in rules([code for code in codes if not words or code in words]):
        known["rules"][code] = plain(verdict)
        sys.stdout.write(f"{code} {verdict.outcome}: {verdict.reason} ({verdict.seconds:.1f} s)\n")
        sys.stdout.flush()
    known["rules"] = {code: known["rules"][code] for code in codes if code in known["rules"]}
    MEASURED.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    return 0


def rules(codes: Sequence[str]) -> Iterator[tuple[str, Verdict]]:
    """The verdict on what the page of each rule says to write instead of its example."""
    for code in codes:
        rule = registry.load(code)
        with tempfile.TemporaryDirectory(prefix="oomlint-") as folder:
            path = Path(folder, "project", FILE)
            path.parent.mkdir()
            path.write_text(page(rule).example, encoding="utf-8")
            for name, content in page(rule).beside("Example").items():
                (path.parent / name).write_text(content, encoding="utf-8")
            settings = Settings(preview=True).with_overrides(select=[code], severity="note", min_confidence="low")
            report = engine.run([str(path)], settings, path.parent, engine.RunOptions(cache=False, processes=1))
            finding = next(item for item in report.findings if item.code == code)
            case = Case(finding, str(path.parent), {str(path): (page(rule).example.encode(), page(rule).remedy.encode())})
            surroundings = Surroundings(str(path.parent), settings, VerifyOptions(), sys.executable)
            yield from ((code, verdict) for _, verdict in verdicts([case], surroundings))


def incidents() -> Iterator[dict[str, Any]]:
    """The verdicts on the findings of the five incidents: what `oomlint verify --trust fixtures/incidents` says."""
    settings, root = load_settings(None, False, INCIDENTS, [code for code, _ in registry.catalogue()])  # noqa: FBT003 - its own signature
    report = engine.run([str(INCIDENTS)], settings, root, engine.RunOptions(cache=False, processes=1))
    around = surroundings(settings, str(root), VerifyRequest(cache=False, trust=True))
    for case, verdict in verdicts(cases_of(report.findings, str(root), nested=True), around):
        place = case.finding.place
        name = Path(place.path).relative_to(INCIDENTS).as_posix()
        sys.stdout.write(f"{name}:{place.row} {case.code} {verdict.outcome}: {verdict.reason} ({verdict.seconds:.1f} s)\n")
        sys.stdout.flush()
        patch = "by hand" if case.by_hand else str(case.finding.fix.safety) if case.has_fix and case.finding.fix else "none"
        yield {"file": name, "row": place.row, "code": case.code, "fix": patch, **plain(verdict)}


def plain(verdict: Verdict) -> dict[str, Any]:
    """A verdict without what changes from run to run."""
    return {
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
        "fidelity": verdict.fidelity.value if verdict.fidelity else None,
        "readings": [
            {"name": item.name, "unit": item.unit, "under": item.under, "before": list(item.before), "after": list(item.after)} for item in verdict.readings[:3]
        ],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
