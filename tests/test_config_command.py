"""``oomlint config``: what a user who looks for a setting is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from commands import Done, runs

from oomlint.config import Settings

if TYPE_CHECKING:
    import pytest


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Done:
    return runs(capsys, "config")(*words)


def test_all_keys_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    keys = {key for key in Settings().as_table() if key != "verify"} | {f"verify.{name}" for name in Settings().verify.as_table()}
    assert set(asked(capsys).out.splitlines()) == keys


def test_a_key_has_its_meaning_type_default_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    text = asked(capsys, "start-method").out
    assert text.startswith("start-method: How worker processes start")
    assert 'Type: auto, fork, spawn, forkserver\nDefault: "auto"\n' in text
    assert '    [tool.oomlint]\n    start-method = "auto"\n' in text


def test_a_table_stands_for_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(asked(capsys, "verify", "--output-format", "json").out)
    assert {each["key"] for each in found} == {f"verify.{name}" for name in Settings().verify.as_table()}
    assert all(each["meaning"] for each in found)
    assert "    [tool.oomlint.verify]\n    repeat = 3\n" in asked(capsys, "verify.repeat").out


def test_an_unknown_key_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "selct") == Done(2, "", "oomlint: error: unknown setting 'selct'; did you mean 'select'?\n")
