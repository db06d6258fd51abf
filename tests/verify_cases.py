"""Cases for tests of the verifier: a program before and after, in a project of its own."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from oomlint import engine, registry
from oomlint.config import Settings
from oomlint.finding import Confidence, Finding, Message, Place
from oomlint.model.project import Project
from oomlint.rule import page
from oomlint.verify.case import Case, Outcome, Verdict
from oomlint.verify.jobs import Job, Limits
from oomlint.verify.project_copy import Base, Trees
from oomlint.verify.run import asked
from oomlint.verify.session import Session, VerifyOptions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from oomlint.verify.sandbox_runner import SandboxRunner

FILE: Final = "program.py"
PATIENT: Final = Limits(seconds=240)  # a busy machine takes longer, and says the same
MARK: Final = re.compile(r"#\s*finding:\s*(OOM\d{3})")


def judge(
    runner: SandboxRunner,
    folder: Path,
    before: str,
    after: str | None,
    options: VerifyOptions | None = None,
    *,
    code: str = "",
    files: Mapping[str, str] | None = None,
) -> Verdict:
    """Verify what stands in ``folder`` as a project. The finding is where `# finding: CODE` stands; with ``code`` given, where oomlint finds it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    path.write_text(before, encoding="utf-8")
    for name, content in (files or {}).items():
        (folder / name).write_text(content, encoding="utf-8")
    finding = found(path, code) if code else marked(path)
    changes = {} if after is None else {str(path): (before.encode(), after.encode())}
    return verify(runner, Case(finding, str(folder), changes), options)


def judge_by_hand(runner: SandboxRunner, folder: Path, before: str, after: str) -> Verdict:
    """Verify a fix that was written by hand, at the mark."""
    path = folder / FILE
    path.write_text(before, encoding="utf-8")
    return verify(runner, Case(marked(path), str(folder), {str(path): (before.encode(), after.encode())}, by_hand=True))


def verify(runner: SandboxRunner, case: Case, options: VerifyOptions | None = None) -> Verdict:
    """The verdict on a case."""
    settings = Settings()
    with Base(case.root, within=runner.place) as base, Trees(base, case.changes) as trees:
        return asked(Session(case, Project(case.root, settings, {}), settings, options or VerifyOptions(limits=PATIENT), runner, trees))


def answer(runner: SandboxRunner, call: str, folder: Path, **arguments: Any) -> Any:
    """What a function of the child's side gives back, called with JSON as a strategy calls it."""
    done = runner.run(Job(call, {"root": str(folder), **arguments}, str(folder), PATIENT))
    assert not done.failure, f"{done.failure}\n{done.errors}"
    return done.answer


def search(runner: SandboxRunner, call: str, path: Path, **arguments: Any) -> Any:
    """What the search for data says of a program."""
    before = {each.name for each in path.parent.iterdir()}
    found = answer(runner, f"search.find_inputs:{call}", path.parent, path=str(path), **arguments)
    assert {each.name for each in path.parent.iterdir()} == before, "the search leaves nothing behind"
    return found


def marked(path: Path) -> Finding:
    """A finding where the program says that there is one."""
    for row, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = MARK.search(line)
        if match:
            rule = registry.load(match[1])
            start = len(line) - len(line.lstrip()) + 1
            return rule.finding(Place(str(path), 0, row, start, row, match.start() + 1), Message("as marked"), confidence=Confidence.HIGH)
    raise AssertionError(f"no finding is marked in {path}")


def found(path: Path, code: str) -> Finding:
    """The first finding of a rule."""
    settings = Settings().with_overrides(select=[code], preview=True, severity="note", min_confidence="low")
    report = engine.run([str(path)], settings, str(path.parent), engine.RunOptions(cache=False, processes=1))
    return next(item for item in report.findings if item.code == code)


def example(code: str, folder: Path) -> Case:
    """What the page of a rule calls wrong, and what it says to write instead."""
    rule = registry.load(code)
    path = folder / "project" / FILE
    path.parent.mkdir()
    path.write_text(page(rule).example, encoding="utf-8")
    for name, content in page(rule).beside("Example").items():
        (path.parent / name).write_text(content, encoding="utf-8")
    return Case(found(path, code), str(path.parent), {str(path): (page(rule).example.encode(), page(rule).remedy.encode())})


def garbled(finding: Finding) -> Finding:
    """The finding in words that nobody understands, and with none of the places that only tell its story."""
    fix = msgspec.structs.replace(finding.fix, message=garbled_text(finding.fix.message)) if finding.fix is not None else None
    headline, consequence, remedy = (garbled_text(part) for part in (finding.headline, finding.consequence, finding.help))
    return msgspec.structs.replace(finding, headline=headline, consequence=consequence, help=remedy, related=(), fix=fix)


def garbled_text(text: str) -> str:
    return codecs.encode(text, "rot13").replace("`", "'")[::-1]


def told(verdict: Verdict) -> str:
    """A verdict for the reader of a failure."""
    lines = [f"{verdict.outcome}: {verdict.reason}", *map(str, verdict.readings), *verdict.assumptions, *verdict.left_out]
    return "\n".join(lines)


UNPROVEN: Final = frozenset({Outcome.REGRESSED, Outcome.INCONCLUSIVE})
