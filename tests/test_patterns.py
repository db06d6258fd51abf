"""Expressions that are compiled when they are first used do what compiled ones do."""

from __future__ import annotations

import copy
import re

import pytest

from oomlint.patterns import pattern


def test_all_methods_are_there() -> None:
    later, now = pattern(r"(\w)=(\d)", re.ASCII), re.compile(r"(\w)=(\d)", re.ASCII)
    text = "a=1, b=2"
    assert later.sub(r"\2", text) == now.sub(r"\2", text) == "1, 2"
    assert later.findall(text) == now.findall(text)
    assert [found.span() for found in later.finditer(text)] == [(0, 3), (5, 8)]
    assert later.fullmatch("c=3")
    assert later.match("=") is None
    assert later.split(text) == now.split(text)
    assert (later.pattern, later.flags, later.groups) == (now.pattern, now.flags, now.groups)


def test_a_mistake_is_said_at_the_first_use() -> None:
    wrong = pattern("(")
    with pytest.raises(re.error):
        wrong.search("")


def test_a_copy_is_as_good() -> None:
    assert copy.deepcopy(pattern(rb"\d")).search(b"7")
