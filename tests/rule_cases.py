"""Fixtures of the rules, laid out as projects and checked."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from oomlint import engine
from oomlint.config import load_settings
from oomlint.finding import Safety

if TYPE_CHECKING:
    import pytest

    from oomlint.finding import Finding

FIXTURES: Final = Path(__file__).parent.parent / "fixtures" / "rules"
KEEPS_GRAPH: Final = frozenset({"OOM201", "OOM202", "OOM203", "OOM205"})
EVALUATES: Final = "OOM204"
FAMILIES: Final = ("OOM1", "OOM2", "OOM3", "OOM4", "OOM5", "OOM6")  # a family to come is added here


def family(code: str) -> str:
    """The family of a rule's code, ``OOM2`` of ``OOM201``."""
    return code[: len("OOM1")]


def cases(kind: str, code: str = "*") -> list[Path]:
    found = (path for path in FIXTURES.glob(f"{code}/{kind}*") if path.parent.name.startswith(FAMILIES))
    return sorted(path for path in found if path.is_dir() or path.suffix == ".py")


def put(case: Path, project: Path) -> None:
    """Lay out a fixture as a project."""
    if case.is_dir():
        shutil.copytree(case, project, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(case, project)


def check(project: Path, code: str, fix: Safety | None = None) -> engine.CheckReport:
    """Check a project with everything of the code's family shown, and fix it on the disk up to the safety ``fix``.

    What keeps a graph is looked for alone: where an evaluation records it, the finding on the evaluation stands for it.
    """
    settings, root = load_settings(None, False, project)  # noqa: FBT003 - the engine's own signature
    ignored = [EVALUATES] if code in KEEPS_GRAPH else []
    settings = settings.with_overrides(select=[family(code)], ignore=ignored, preview=True, severity="note", exclude=[])
    options = engine.RunOptions(fix=fix is not None, unsafe_fixes=fix is Safety.UNSAFE, cache=False, processes=1)
    report = engine.run([str(project)], settings, root, options)
    assert not report.failures, "\n".join(failure.trace for failure in report.failures)
    assert [item.message for item in report.findings if item.code is None] == []
    return report


class Found(NamedTuple):
    """A fixture that has been checked."""

    project: Path
    findings: tuple[Finding, ...]


class Look(Protocol):
    """Checks a fixture."""

    def __call__(self, case: Path) -> Found: ...


def looks(folders: pytest.TempPathFactory) -> Look:
    """Each fixture is laid out and checked once, for all who ask."""

    @cache
    def found(case: Path) -> Found:
        project = folders.mktemp(f"{case.parent.name}-{case.stem}") / "project"
        project.mkdir()
        put(case, project)
        return Found(project, check(project, case.parent.name).findings)

    return found
