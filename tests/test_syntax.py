"""libcst made quicker: the same positions, the same trees."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider

from oomlint.source import SourceError, read_source
from oomlint.syntax import quick
from oomlint.syntax.nodes import descend
from oomlint.syntax.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
PROGRAMS = [*sorted((ROOT / "fixtures" / "rules").rglob("bad_a*.py")), *sorted((ROOT / "oomlint" / "memory").glob("c*.py"))]
FORMS = """\
# a comment

@decorate(1,
          2)
class A(B, metaclass=C):

    x: int = 1; y = 2  ;

    async def f(self, é="ü", *args, **kw) -> None:
        async with open("é") as f, g() as h:
            async for (i, j) in k(): l = i; m += j
            else:
                n(o)[p]
        try: q()
        except (R, S) as t:
            u = (v
                 + w)
        except X: pass
        else: y
        finally:
            z = f"{a!r:>{b}} é" "c"
        if (d): e
        elif f < g: h
        elif not i:
            j = [k for k in l if m]
        else: n
        match o:
            case [p, *_] if q:
                r(s, *t, u=v, **w)
        while x: del y, z
        return (yield), lambda a, b=1: (a)

\tif a: pass
"""


def theirs(tree: Tree) -> dict[cst.CSTNode, tuple[int, int, int, int]]:
    found = MetadataWrapper(tree.module, unsafe_skip_copy=True).resolve(PositionProvider)
    return {node: (at.start.line, at.start.column + 1, at.end.line, at.end.column + 1) for node, at in found.items()}


@pytest.fixture
def parsed(tmp_path: Path) -> Callable[[str], Tree]:
    def parse(text: str) -> Tree:
        path = tmp_path / "a.py"
        path.write_text(text, encoding="utf-8", newline="")
        return Tree(read_source(str(path)))

    return parse


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_nodes_stand_where_libcst_says(path: Path) -> None:
    try:
        tree = Tree(read_source(str(path)))
    except SourceError:
        pytest.skip("not for libcst")
    known = theirs(tree)
    for node in tree.walk.parents:
        if node in known:
            assert tree.span(node) == known[node], tree.code(node)


def test_all_forms_of_statements(parsed: Callable[[str], Tree]) -> None:
    tree = parsed(FORMS.replace("\tif a: pass\n", ""))
    known = theirs(tree)
    assert {node: tree.span(node) for node in tree.walk.parents if node in known} == {node: at for node, at in known.items() if node in tree.walk.parents}


def test_syntax_that_only_libcst_knows(parsed: Callable[[str], Tree]) -> None:
    tree = parsed("type A[T] = list[T]\n\ndef f[T](x: T) -> T:\n    return g(x)\n")
    known = theirs(tree)
    call = next(call for call, _ in tree.walk.calls)
    assert tree.span(call) == known[call] == (4, 12, 4, 16)


def test_nodes_made_by_hand_are_validated_still() -> None:
    with quick.parsing():
        cst.parse_module("a = 1\n")
    with pytest.raises(cst.CSTValidationError):
        cst.Name("")
    assert gc.isenabled()


def test_nodes_are_told_apart_by_identity_and_inheritance() -> None:
    one, other = cst.Name("a"), cst.Name("a")
    assert one != other
    assert len({one, other}) == 2
    assert isinstance(one, cst.BaseExpression)
    assert not isinstance(one, cst.BaseSmallStatement)
    assert cst.SimpleString('"a\\n"').evaluated_value == "a\n"


def test_classes_of_nodes_are_plain_ones() -> None:
    """Where nobody has imported libcst before; those of others are what they ask for."""
    program = "import oomlint.model.project, libcst, contextlib, abc; print(type(libcst.Name), type(contextlib.AbstractContextManager), abc.ABC)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.split(" <") == ["<class 'type'>", "class 'abc.ABCMeta'>", "class 'abc.ABC'>\n"]


def test_defaults_of_nodes_made_by_hand_are_as_before() -> None:
    assert (
        cst.Module([cst.SimpleStatementLine([cst.Return(cst.Call(cst.Name("f"), [cst.Arg(cst.Name("a")), cst.Arg(cst.Name("b"))]))])]).code
        == "return f(a, b)\n"
    )
    assert cst.Comma().whitespace_after is not cst.Comma().whitespace_after


def test_a_number_of_more_digits_than_python_reads() -> None:
    """`int` and `ast` refuse it; the file is read, and the number is larger than what anybody asks for."""
    with quick.parsing():
        tree = cst.parse_module(f"wide = {'9' * 5000}\nlow = {'9' * 4300}\n")
    wide, low = (node for node in descend(tree) if isinstance(node, cst.Integer))
    assert (wide.evaluated_value, low.evaluated_value) == (sys.maxsize, 10**4300 - 1)


@pytest.mark.parametrize("program", ["x = " + "(" * 1500 + "1" + ")" * 1500, "x = " + "[" * 200_000 + "]" * 200_000])
def test_brackets_too_deep_for_libcst_are_refused(program: str, tmp_path: Path) -> None:
    """At 2,000 brackets libcst ends the process."""
    (tmp_path / "a.py").write_text(program)
    with pytest.raises(SourceError, match="nested too deeply to be parsed"):
        Tree(read_source(str(tmp_path / "a.py")))
