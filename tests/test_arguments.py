"""How a call's arguments meet parameters: by name, by position, and where a starred argument hides them."""

from __future__ import annotations

import libcst as cst
import pytest

from oomlint.model import arguments
from oomlint.syntax.scopes import Scope


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


@pytest.mark.parametrize(
    ("code", "binds"),
    [
        ("it.train()", False),
        ("it.train(rows)", True),
        ("it.train(rows=rows)", True),
        ("it.train(rows, 3)", True),
        ("it.train(rows, epochs=3)", True),
        ("it.train(rows, 3, 4)", False),
        ("it.train(rows, rows=rows)", False),
        ("it.train(rows, mode=True)", False),
        ("it.train(*given)", True),
        ("it.train(**given)", True),
    ],
)
def test_a_call_of_a_method_gives_what_it_takes(code: str, binds: bool) -> None:  # noqa: FBT001 - a parameter of the test
    function = cst.parse_statement("def train(self, rows, epochs=1): pass")
    assert isinstance(function, cst.FunctionDef)
    owner = Scope(cst.ensure_type(cst.parse_statement("class It: pass"), cst.ClassDef), None, "It")
    assert arguments.binds(Scope(function, owner, "train"), call(code)) is binds
