"""How long a container lives: what the engine says of small programs, in which it is called `kept` and the loop that matters is the first one."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import libcst as cst
import pytest

from oomlint.config import Settings
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model.lifetime import How, ended_in, endings, endings_by_name, endings_from_outside, endings_of, is_capped, length_tests, runs_once
from oomlint.model.project import Project
from oomlint.model.values import ClassRef

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope

    Made = Callable[[str], tuple[Module, Scope]]

KEPT = ("kept", ())
OF_OBJECT = ("self", (("attr", "kept"),))


@pytest.fixture
def program(tmp_path: Path) -> Made:
    """The file, and its function that is called `f`."""

    def make(text: str) -> tuple[Module, Scope]:
        (tmp_path / "main.py").write_text(textwrap.dedent(text), encoding="utf-8")
        module = Project(tmp_path, Settings()).module(str(tmp_path / "main.py"))
        return module, next(scope for scope in module.walk.scopes if scope.name == "f")

    return make


@pytest.mark.parametrize(
    ("statement", "how"),
    [
        ("kept.clear()", How.EMPTIED),
        ("del kept[:]", How.EMPTIED),
        ("kept[:] = []", How.EMPTIED),
        ("kept.pop()", How.CUT),
        ("kept.popleft()", How.CUT),
        ("kept.remove(x)", How.CUT),
        ("del kept[0]", How.CUT),
        ("del kept[:-9]", How.CUT),
        ("kept[0] = None", How.CUT),
        ("heapq.heappop(kept)", How.CUT),
        ("kept['a'].clear()", How.PART),
        ("kept['a'].popleft()", How.PART),
        ("kept['a'] = []", How.PART),
        ("kept.rows.clear()", How.PART),
        ("kept = []", How.BOUND),
        ("for kept in rows: pass", How.BOUND),
        ("del kept", How.DELETED),
        ("kept.append(x)", None),
        ("kept[0] = x", None),
        ("kept[2:4] = x", None),
        ("other.clear()", None),
    ],
)
def test_what_a_statement_does_to_a_container(statement: str, how: How | None, program: Made) -> None:
    module, scope = program(f"def f(kept, x, rows):\n    {statement}\n")
    assert [ending.how for ending in endings(KEPT, module, scope)] == ([how] if how is not None else [])


@pytest.mark.parametrize(
    ("body", "ends"),
    [
        ("kept = []", True),
        ("kept.clear()", True),
        ("del kept[:-9]", True),
        ("if len(kept) > 9: kept.popleft()", True),
        ("if i == 0: kept = []", False),
        ("if kept is None: kept = []", False),
        ("if kept is not None: pass\nelse: kept = []", False),
        ("if i > 0: kept = []", True),
        ("kept.append(i)", False),
        ("def g(): kept.clear()", False),
    ],
)
def test_whether_a_round_ends_a_container(body: str, ends: bool, program: Made) -> None:  # noqa: FBT001 - a parameter
    module, scope = program("def f(kept, rows):\n    for i, x in enumerate(rows):\n" + textwrap.indent(body, " " * 8) + "\n    kept = []\n")
    assert ended_in(KEPT, scope.loops[0], module, scope) == ends


@pytest.mark.parametrize(
    ("body", "inner", "outer"),
    [
        ("if i == 0: kept = []", False, True),
        ("if not i: kept = []", False, True),
        ("if fresh: kept = []\nfresh = False", False, True),
        ("if kept is None: kept = []", False, False),
        ("if once: kept = []\nonce = False", False, False),
        ("if not hasattr(self, 'kept'): self.kept = []", False, False),
        ("if 'kept' not in locals(): kept = []", False, False),
        ("if once is None: kept, once = [], x", False, False),
        ("if rows is None: kept = []", True, True),
        ("if kept: kept = []", True, True),
        ("if not kept: kept = []", False, False),
        ("if len(kept) > 0: kept = []", True, True),
        ("if len(kept) == 0: kept = []", False, False),
        ("if kept is not None: kept = []", True, True),
        ("if kept is None or n > 5: kept = []", True, True),
        ("if kept is None and n > 5: kept = []", False, False),
        ("if kept is not None and n > 5: pass\nelse: kept = []", True, True),
        ("if rows.first: kept = []", True, True),
        ("if self.train: kept = []", True, True),
        ("if len(kept) % 50 == 0: kept = []", True, True),
        ("if kept: kept.clear()", True, True),
    ],
)
def test_whether_it_ends_at_first_alone_in_an_inner_loop_and_in_the_one_around(body: str, inner: bool, outer: bool, program: Made) -> None:  # noqa: FBT001
    head = "def f(self, kept, rows):\n    once = True\n    for n in range(9):\n        fresh = True\n        for i, x in enumerate(rows):\n"
    module, scope = program(head + textwrap.indent(body, " " * 12))
    path = ("self", (("attr", "kept"),)) if "self.kept" in body else KEPT
    assert [ended_in(path, loop, module, scope) for loop in scope.loops] == [outer, inner]


def test_a_statement_that_makes_it_grow_is_left_out(program: Made) -> None:
    module, scope = program("def f(kept, rows):\n    for x in rows:\n        kept = kept + [x]\n")
    grows = next(node for node in scope.nodes() if isinstance(node, cst.Assign))
    assert ended_in(KEPT, scope.loops[0], module, scope)
    assert not ended_in(KEPT, scope.loops[0], module, scope, {grows})


OBJECT = """
class Base:
    def drop(self):
        self.kept.pop()


class Rows(Base):
    def __init__(self):
        self.kept = []

    def f(self, rows):
        for x in rows:
            self.kept.append(x)
            self.{call}()

    def look(self):
        return len(self.kept)

    def flush(self):
        self.kept = []


class More(Rows):
    def other(self):
        del self.kept[:]
"""


@pytest.mark.parametrize(("call", "ends"), [("flush", True), ("look", False)])
def test_a_round_that_calls_a_method_which_ends_an_attribute(call: str, ends: bool, program: Made) -> None:  # noqa: FBT001 - a parameter
    module, scope = program(OBJECT.format(call=call))
    assert ended_in(OF_OBJECT, scope.loops[0], module, scope) == ends


def test_which_methods_end_an_attribute(program: Made) -> None:
    module, scope = program(OBJECT.format(call="look"))
    assert scope.parent is not None
    found = endings_of(ClassRef(module, scope.parent), "kept", evaluator_of(module.project))
    assert {(ending.scope.name, ending.how) for ending in found} == {
        ("__init__", How.BOUND),
        ("flush", How.BOUND),
        ("drop", How.CUT),
        ("other", How.EMPTIED),
    }


def test_a_method_that_only_building_calls_runs_once(program: Made) -> None:
    module, scope = program("""
        class Rows:
            def __init__(self):
                self.start()

            def start(self):
                self.kept = []

            def f(self):
                self.flush()

            def flush(self):
                self.kept = []

            def unused(self):
                self.kept = []
    """)
    assert scope.parent is not None
    cls = ClassRef(module, scope.parent)
    once = {method.name for method in scope.parent.children if runs_once(method, cls, module.project)}
    assert once == {"__init__", "start"}


def test_who_ends_a_container_by_its_name(program: Made) -> None:
    module, scope = program("""
        def f(rows):
            kept = []
            def add(x):
                kept.append(x)
            def drop():
                kept.clear()
            def other(kept):
                kept.clear()
            def own():
                kept = []
            flush(kept, rows)
            return add

        def flush(held, rows):
            del held[:]
            held = rows

        def g(kept):
            kept.clear()
    """)
    found = endings_by_name("kept", scope, module, evaluator_of(module.project))
    assert [(ending.scope.name, ending.how) for ending in found] == [("f", How.BOUND), ("flush", How.EMPTIED), ("drop", How.EMPTIED)]


def test_who_ends_an_attribute_of_another_object(program: Made) -> None:
    module, _ = program("""
        class Rows:
            def f(self):
                self.kept.clear()

        def flush(rows, holder):
            rows.kept.clear()
            holder.rows.kept = []
            rows.kept.popleft()
            holder.kept.append(1)
    """)
    found = endings_from_outside("kept", module.project, module.path)
    assert [(ending.scope.name, ending.how) for ending in found] == [("flush", How.EMPTIED), ("flush", How.CUT), ("flush", How.BOUND)]


@pytest.mark.parametrize(
    ("made", "capped"),
    [
        ("collections.deque(maxlen=9)", True),
        ("collections.deque([], 9)", True),
        ("collections.deque(maxlen=None)", False),
        ("collections.deque()", False),
        ("[]", False),
        ("dict()", False),
        ("cachetools.LRUCache(9)", True),
        ("Own()", True),
        ("rows", False),
    ],
)
def test_what_keeps_no_more_than_so_many(made: str, capped: bool, program: Made) -> None:  # noqa: FBT001 - a parameter
    module, scope = program(f"import cachetools\nimport collections\n\nclass Own: pass\n\ndef f(rows):\n    kept = {made}\n")
    evaluator = evaluator_of(module.project)
    values = evaluator.resolve("kept", (), evaluator.calls.plain_frame(module, scope), None)
    assert [is_capped(alt.value) for alt in values] == [capped]


def test_tests_of_a_length(program: Made) -> None:
    module, scope = program("def f(kept, n):\n    if len(kept) == 0 or len(kept) > 0: pass\n    while n <= len(kept): pass\n    return len(kept)\n")
    assert [module.code(test).strip() for test in length_tests(KEPT, module, scope)] == ["n <= len(kept)"]
