"""The schemas that are published say what the commands write, no more and no less."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from commands import Done, runs
from jsonschema import Draft202012Validator

if TYPE_CHECKING:
    from collections.abc import Callable

DOCS: Final = Path(__file__).parent.parent / "docs"
BAD: Final = "from torch.utils.data import DataLoader\n\nloader = DataLoader(data, num_workers=0, persistent_workers=True)\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "a.py").write_text(BAD)
    (tmp_path / "b.py").write_text("DataLoader(\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return runs(capsys)


def validator(name: str) -> Draft202012Validator:
    schema: dict[str, Any] = json.loads((DOCS / f"{name}.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize(
    ("name", "words", "several"),
    [
        ("rule", ("rule", "OOM101"), False),
        ("rule", ("rule", "OOM3"), True),
        ("rule", ("rule",), True),
        ("config", ("config",), True),
        ("config", ("config", "verify.time-limit"), True),
        ("statistics", ("check", "--statistics"), True),
        ("statistics", ("check", "--statistics", "--select", "OOM4", "a.py"), True),
    ],
)
def test_a_command_writes_what_its_schema_says(name: str, words: tuple[str, ...], several: bool, run: Callable[..., Done]) -> None:  # noqa: FBT001
    found = json.loads(run(*words, "--output-format", "json").out)
    assert isinstance(found, list) is several
    schema = validator(name)
    schema.validate(found)
    one = found[0] if several and found else found
    if one:
        assert not schema.is_valid([{**one, "more": 1}])
        assert not any(schema.is_valid([{key: value for key, value in one.items() if key != left}]) for left in one)


def test_a_baseline_is_what_its_schema_says(folder: Path, run: Callable[..., Done]) -> None:
    schema = validator("baseline")
    for names in (("a.py",), ("c.py",)):  # some, and none
        (folder / "c.py").write_text("")
        (folder / "oomlint-baseline.json").unlink(missing_ok=True)
        run("check", "--write-baseline", *names)
        known = json.loads((folder / "oomlint-baseline.json").read_text())
        schema.validate(known)
        assert len(known["findings"]) == (names == ("a.py",))
        assert not schema.is_valid({**known, "version": 2})


def test_every_schema_is_named_on_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    for path in DOCS.glob("*.schema.json"):
        assert f"({path.name})" in pages, path.name
