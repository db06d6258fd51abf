"""The five incidents say what fixtures/incidents/expected.toml lays down, row by row."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INCIDENTS = Path(__file__).parent.parent / "fixtures" / "incidents"


class Spot(TypedDict):
    row: int
    column: int


class Related(TypedDict):
    filename: str
    cell: int
    location: Spot
    end_location: Spot
    message: str


class Reported(Related):
    code: str | None
    severity: str
    related: list[Related]


class Check(Protocol):
    def __call__(self, incident: str, start_method: str | None) -> list[Reported]: ...


@dataclass(frozen=True, slots=True)
class Where:
    """Some rows of one file; ``text`` None means all of them."""

    file: str
    text: str | None = None

    def rows(self, incident: str) -> tuple[int, range]:
        """The cell (0 outside notebooks) and the rows that the text takes up; refuses a text that is absent or ambiguous."""
        found = [
            (cell, source.count("\n", 0, start) + 1)
            for cell, source in _sources(INCIDENTS / incident / self.file)
            for start in _starts(source, self.text or "")
        ]
        if len(found) != 1:
            raise LookupError(f"{incident}/{self.file}: {len(found)} places read {self.text!r}")
        cell, first = found[0]
        return cell, range(first, first + (self.text or "").count("\n") + 1)

    def is_met_by(self, incident: str, place: Related) -> bool:
        if place["filename"] != self.file:
            return False
        if self.text is None:
            return True
        cell, rows = self.rows(incident)
        first, last = place["location"]["row"], place["end_location"]["row"]
        if place["end_location"]["column"] == 1:  # the end is exclusive
            last = max(first, last - 1)
        return (place["cell"] or 0) == cell and first < rows.stop and rows.start <= last


@dataclass(frozen=True, slots=True)
class Row:
    incident: str
    where: Where
    code: str | None  # None: silent
    related: tuple[Where, ...]
    says: tuple[str, ...]
    start_method: str | None
    pending: bool

    @property
    def name(self) -> str:
        words = (self.where.text or "whole file").split("\n")[0].strip()
        method = f" under {self.start_method}" if self.start_method else ""
        return f"{self.incident}/{self.where.file}: {self.code or 'silent'}{method} at {words}"


def _sources(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        yield 0, text
        return
    for number, cell in enumerate(json.loads(text)["cells"], start=1):
        if cell["cell_type"] == "code":
            yield number, "".join(cell["source"])


def _starts(source: str, text: str) -> Iterator[int]:
    start = source.find(text)
    while start >= 0:
        yield start
        start = source.find(text, start + 1)


def _where(entry: dict[str, str]) -> Where:
    text = entry.get("place")
    return Where(entry["file"], None if text is None else text.removesuffix("\n"))


def _rows() -> Iterator[Row]:
    table = tomllib.loads((INCIDENTS / "expected.toml").read_text(encoding="utf-8"))
    for entry in cast("list[dict[str, Any]]", table["row"]):
        unknown = entry.keys() - {"incident", "file", "place", "fires", "silent", "related", "says", "start_method", "pending"}
        if unknown or ("fires" in entry) == entry.get("silent", False):
            raise ValueError(f"expected.toml: {entry}")
        for code in entry.get("fires", [None]):
            yield Row(
                incident=entry["incident"],
                where=_where(entry),
                code=code,
                related=tuple(_where(place) for place in entry.get("related", ())),
                says=tuple(entry.get("says", ())),
                start_method=entry.get("start_method"),
                pending=entry.get("pending", False),
            )


ROWS = tuple(_rows())
NAMES = tuple(sorted(path.parent.name for path in INCIDENTS.glob("*/INCIDENT.md")))


def _case(row: Row) -> object:
    marks = [pytest.mark.xfail(strict=True, raises=AssertionError, reason="no rule says this yet")] if row.pending else []
    return pytest.param(row, marks=marks, id=row.name)


def _generated(folder: str, names: Sequence[str]) -> set[str]:
    """What make_data.py and the runs leave behind; voxel_colab's ``data`` is a package."""
    package = os.path.exists(os.path.join(folder, "data", "__init__.py"))
    return {name for name in names if name in {"__pycache__", "outputs", "checkpoints", "ModelNet40"} or (name == "data" and not package)}


def _environment() -> dict[str, str]:
    """Children see the package that this process sees, installed or not."""
    spec = importlib.util.find_spec("oomlint")
    assert spec is not None
    assert spec.origin is not None
    home = str(Path(spec.origin).parent.parent)
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))}


@pytest.fixture(scope="session")
def check(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Findings of ``oomlint check`` over a copy of an incident, run once for each incident and start method."""
    known: dict[tuple[str, str | None], list[Reported]] = {}

    def run(incident: str, start_method: str | None) -> list[Reported]:
        if (incident, start_method) not in known:
            copy = tmp_path_factory.mktemp(incident) / incident
            shutil.copytree(INCIDENTS / incident, copy, ignore=_generated)
            command = [sys.executable, "-m", "oomlint", "check", "--output-format", "json", "--no-cache"]
            if start_method is None:
                command.append("--isolated")
            else:
                (copy / "oomlint.toml").write_text(f'start-method = "{start_method}"\n', encoding="utf-8")
            done = subprocess.run([*command, "."], cwd=copy, env=_environment(), capture_output=True, text=True, encoding="utf-8", check=False, timeout=300)
            if done.returncode not in {0, 1} or not done.stdout.startswith("["):
                raise RuntimeError(f"{' '.join(command)} exits {done.returncode}\n{done.stdout}{done.stderr}")
            known[incident, start_method] = json.loads(done.stdout)
        return known[incident, start_method]

    return run


def _shown(findings: Sequence[Reported]) -> list[str]:
    """Findings in a line each, for the assertion's message."""
    return [
        f"{f['filename']}:{f['cell']}:{f['location']['row']} {f['code']} {f['message']} | "
        + ", ".join(f"{r['filename']}:{r['cell']}:{r['location']['row']}" for r in f["related"])
        for f in findings
    ]


@pytest.mark.parametrize("row", [_case(row) for row in ROWS])
def test_row(row: Row, check: Check) -> None:
    shown = [f for f in check(row.incident, row.start_method) if f["severity"] in {"error", "warning"}]
    here = [f for f in shown if row.where.is_met_by(row.incident, f)]
    if row.code is None:
        assert not here, _shown(here)
        return
    coded = [f for f in here if f["code"] is not None and f["code"].startswith(row.code)]
    assert coded, f"no {row.code} here, only {_shown(here)}; elsewhere {_shown([f for f in shown if f not in here])}"
    told = [f for f in coded if all(any(place.is_met_by(row.incident, r) for r in f["related"]) for place in row.related)]
    assert told, f"not every related place: {_shown(coded)}"
    assert any(all(words in f["message"] for words in row.says) for f in told), _shown(told)


@pytest.mark.parametrize("incident", NAMES)
def test_every_file_is_read(incident: str, check: Check) -> None:
    unread = [f for f in check(incident, None) if f["code"] is None]
    assert not unread, _shown(unread)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_every_place_is_found_once(row: Row) -> None:
    """Not left to test_row, where a pending row would hide it."""
    for place in (row.where, *row.related):
        assert (INCIDENTS / row.incident / place.file).is_file()
        if place.text is not None:
            place.rows(row.incident)


def test_the_five_incidents_are_there() -> None:
    assert NAMES == ("fewshot_detector", "fmri_h5", "nyu_colab", "streaming_encoder", "voxel_colab")
    assert {row.incident for row in ROWS} == set(NAMES)
    for name in NAMES:
        assert (INCIDENTS / name / "make_data.py").is_file()


@pytest.mark.parametrize("path", sorted(INCIDENTS.glob("*/*.ipynb")), ids=lambda path: path.name)
def test_notebooks_are_nbformat_4(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    for cell in notebook["cells"]:
        assert cell.keys() >= {"cell_type", "metadata", "source"}
        assert cell["cell_type"] == "markdown" or (cell["outputs"] == [] and cell["execution_count"] is None)
