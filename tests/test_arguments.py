"""How a call's arguments meet parameters: by name, by position, and where a starred argument hides them."""

from __future__ import annotations

import libcst as cst
import pytest

from oomlint.model import arguments


def call(code: str) -> cst.Call:
    node = cst.parse_expression(code)
    assert isinstance(node, cst.Call)
    return node


@pytest.mark.parametrize(
    ("code", "given"),
    [
        ("load(path, 'r')", "'r'"),
        ("load(path, mode='r')", "'r'"),
        ("load(mode='r', path=path)", "'r'"),
        ("load(path)", None),
        ("load(path, **options)", None),
        ("load(*both)", None),
        ("load(*both, 'r')", None),
        ("load(path, *rest)", None),
        ("load(path, 'r', *rest)", "'r'"),
        ("load(path, *rest, mode='r')", "'r'"),
    ],
)
def test_a_parameter_has_what_the_call_gives_it(code: str, given: str | None) -> None:
    found = arguments.argument_for(call(code), "mode", place=1)
    assert (cst.Module([]).code_for_node(found) if found is not None else None) == given


def test_only_positions_before_a_star_are_known() -> None:
    node = call("f(a, *more, b, key=c)")
    assert [arg is node.args[0] for arg in arguments.positionals(node)] == [True]
    assert arguments.has_stars(node)
    assert list(arguments.by_name(node)) == ["key"]
    assert arguments.has(node, "key")
    assert not arguments.has(node, "more")
