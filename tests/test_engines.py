"""What the engines answer, each asked one question of a small program: a value, a gradient mode, what a loop repeats, how long a list lives.

A program asks by calling `ask(...)`: the test is about the argument, or about the place of the call.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import libcst as cst
import pytest

from oomlint.config import Settings
from oomlint.memory.buffers.growing_loops import growing_loops, unrenewed_epochs
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.flow_runs import runs_of
from oomlint.model.gradients import Gradients
from oomlint.model.project import Project
from oomlint.model.tensor_shapes import reduced_along
from oomlint.model.tensor_state import Mode, SampleSize, tensor
from oomlint.model.values import Const, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.events import Loop, Record
    from oomlint.model.project import Module
    from oomlint.model.values import Alternative, Frame
    from oomlint.syntax.scopes import Scope

    Made = Callable[..., "Asked"]


@dataclass(frozen=True)
class Asked:
    """A program, and the place in it that asks."""

    project: Project
    module: Module
    call: cst.Call
    scope: Scope

    def frames(self) -> list[Frame]:
        return evaluator_of(self.project).calls.frames(self.module, self.scope)

    def values(self) -> list[Alternative]:
        """What the argument can be in a plain run, over all ways that lead here."""
        found = [alt for frame in self.frames() for alt in evaluator_of(self.project).values(self.call.args[0].value, frame)]
        return [alt for alt in found if not alt.reach]

    def constants(self) -> set[object]:
        """The constants among them; everything else is ``...``."""
        return {alt.value.value if isinstance(alt.value, Const) else ... for alt in self.values()}

    def records(self) -> list[Record]:
        return runs_of(self.project).records(self.module, self.scope)

    def loop(self) -> Loop:
        """The innermost loop around the place."""
        node = next(above for above in self.module.walk.ancestors(self.call) if isinstance(above, cst.For | cst.While))
        found = runs_of(self.project).loop(node, self.module, self.scope)
        assert found is not None
        return found


@pytest.fixture
def program(tmp_path: Path) -> Made:
    def make(text: str, **others: str) -> Asked:
        for name, content in {"main": text, **others}.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(content), encoding="utf-8")
        project = Project(tmp_path, Settings())
        module = project.module(str(tmp_path / "main.py"))
        call, scope = next((call, scope) for call, scope in module.walk.calls if isinstance(call.func, cst.Name) and call.func.value == "ask")
        return Asked(project, module, call, scope)

    return make


# What can this expression be?


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ask(4)", {4}),
        ("n = 4\nask(n)", {4}),
        ("n = 4\nn = 0\nask(n)", {0}),
        ("n = 4\nn += 1\nask(n)", {5}),
        ("n = 0 if flag else 8\nask(n)", {0, 8}),
        ("if flag:\n    n = 0\nelse:\n    n = 8\nask(n)", {0, 8}),
        ("a, (b, c) = 1, (2, 3)\nask(c)", {3}),
        ("settings = {'workers': 2}\nask(settings['workers'])", {2}),
        ("settings = dict(workers=2)\nsettings['workers'] = 6\nask(settings['workers'])", {6}),
        ("def f(n=3):\n    ask(n)\nf()", {3}),
        ("def f(n=3):\n    ask(n)\nf(7)", {7}),
        ("def f(n=3):\n    ask(n)\nf(*rest)", {...}),
        ("def f(n):\n    return n + 1\nask(f(1))", {2}),
        ("def outer():\n    n = 5\n    def inner():\n        ask(n)\n    inner()\nouter()", {5}),
        ("class C:\n    n = 5\nask(C.n)", {5}),
        ("class C:\n    def __init__(self, n):\n        self.n = n\n    def f(self):\n        ask(self.n)\nC(9).f()", {9}),
        ("class C:\n    def __init__(self, n):\n        self._n = n\n    @property\n    def n(self):\n        return self._n * 2\nask(C(3).n)", {6}),
        ("import functools\ndef f(a, n=1):\n    return n\nask(functools.partial(f, n=4)(0))", {4}),
        ("import dataclasses\n@dataclasses.dataclass\nclass C:\n    n: int = 12\nask(C().n)", {12}),
        ("import argparse\np = argparse.ArgumentParser()\np.add_argument('--num-workers', type=int, default=4)\nask(p.parse_args().num_workers)", {4}),
        ("import os\nask(os.cpu_count())", {...}),
        ("ask(anything())", {...}),
        ("def f(n):\n    ask(n)", {...}),
        ("for n in (1, 2):\n    ask(n)", {1, 2}),
        ("n = 4\nfor i in rest:\n    n *= 2\nask(n)", {4, ...}),
        ("def f(d):\n    d['n'] *= 3\ng = {'n': 2}\nf(g)\nask(g['n'])", {6}),
        ("def f(d):\n    d['n'] *= 3\ng = {'n': 2}\nf(g)\nf(g)\nask(g['n'])", {18}),
        ("def f(d):\n    d['n'] *= 3\ng = {'n': 2}\nask(g['n'])\nf(g)", {2}),
        ("def f(d):\n    d['n'] *= 3\ng = {'n': 2}\nf(g)\ng['n'] = 5\nask(g['n'])", {5}),
        ("def f(d):\n    d['n'] *= 3\ndef h(d):\n    f(d)\ng = {'n': 2}\nh(g)\nask(g['n'])", {6}),
        ("def f(d):\n    d['n'] *= 3\ng = {'a': {'n': 2}}\nf(g['a'])\nask(g['a']['n'])", {6}),
        ("def f(d, on):\n    if on:\n        d['n'] = 9\ng = {'n': 2}\nf(g, False)\nask(g['n'])", {2}),
        ("def f(d):\n    d = dict(d)\n    d['n'] = 9\ng = {'n': 2}\nf(g)\nask(g['n'])", {2}),
        ("def f(d):\n    if d['n'] < 9:\n        d['n'] *= 2\n        f(d)\ng = {'n': 5}\nf(g)\nask(g['n'])", {10}),
        ("def f(d):\n    d.pop('n')\ng = {'n': 2}\nf(g)\nask(g.get('n', 7))", {7}),
        ("def f(d):\n    d[0] += 1\ng = [2]\nf(g)\nask(g[0])", {3}),
        ("def f(d):\n    d.append(9)\ng = [2]\nf(g)\nask(g[-1])", {...}),
        ("g = {'n': 2}\nh = g\nh['n'] = 3\nask(g['n'])", {3}),
        ("class C:\n    def __init__(self, d):\n        self.d = d\n        self.d['n'] *= 4\ng = {'n': 2}\nC(g)\nask(g['n'])", {8}),
        ("class C:\n    def __init__(self):\n        self.n = 2\n    def f(self):\n        self.n *= 4\nc = C()\nc.f()\nask(c.n)", {8}),
        ("class C:\n    def __init__(self):\n        self.n = 2\n    def f(self):\n        ask(self.n)\nc = C()\nc.n = 7\nc.f()", {7}),
        ("class C:\n    def __init__(self):\n        self.n = 2\n        self.f()\n    def f(self):\n        self.n = 7\nask(C().n)", {7}),
        ("class B:\n    def __init__(self):\n        self.n = 2\nclass C(B):\n    def __init__(self):\n        super().__init__()\nask(C().n)", {2}),
        ("N = 2\ndef f():\n    global N\n    N *= 2\nf()\nask(N)", {4}),
        ("N = 2\ndef f():\n    global N\n    N *= 2\ndef h():\n    ask(N)\nf()\nh()", {4}),
        ("G = {'n': 2}\ndef f(n):\n    G['n'] = n\ndef h():\n    ask(G['n'])\nf(3)\nh()", {3}),
        ("def h():\n    n = 2\n    def f():\n        nonlocal n\n        n *= 2\n    f()\n    ask(n)\nh()", {4}),
    ],
)
def test_what_an_expression_can_be(text: str, expected: set[object], program: Made) -> None:
    assert program(text).constants() == expected


def test_a_value_tells_through_which_places_it_came(program: Made) -> None:
    asked = program("from settings import WORKERS\nn = WORKERS\nask(n)", settings="WORKERS = 3\n")
    (only,) = asked.values()
    assert only.const == 3
    places = [place for step in only.story if (place := step.place()) is not None]
    assert (Path(places[-1].path).name, places[-1].row) == ("settings.py", 1)


def test_branches_that_exclude_each_other_are_not_mixed(program: Made) -> None:
    asked = program("if flag:\n    n, keep = 0, False\nelse:\n    n, keep = 4, True\nask((n, keep))")
    evaluator = evaluator_of(asked.project)
    both = asked.call.args[0].value
    assert isinstance(both, cst.Tuple)
    (frame,) = asked.frames()
    workers, keeps = (list(evaluator.values(element.value, frame)) for element in both.elements)
    together = {(one.const, other.const) for one in workers for other in keeps if one.under(other.picks) is not None}
    assert together == {(0, False), (4, True)}


def test_what_a_function_does_not_bind_is_looked_up_once_for_all_that_call_it(program: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = program("""
        LIMIT = 4

        def most(n):
            def least():
                return LIMIT
            return LIMIT if n > LIMIT else least()

        ask([most(1), most(3), most(5), most(7)])
    """)
    evaluator = evaluator_of(asked.project)
    looked_up: list[str] = []
    search = type(evaluator).search

    def noted(self: Evaluator, root: str, *rest: Any, **named: Any) -> list[Alternative]:
        looked_up.append(root)
        return search(self, root, *rest, **named)

    monkeypatch.setattr(type(evaluator), "search", noted)
    row = asked.call.args[0].value
    assert isinstance(row, cst.List)
    found = [evaluator.values(one.value, frame) for frame in asked.frames() for one in row.elements]
    assert [alt.const for alt in found[-1]] == [4]
    assert looked_up.count("LIMIT") == 1


def test_a_cycle_of_imports_and_calls_ends_in_unknown(program: Made) -> None:
    asked = program("from other import g\ndef f(n):\n    return g(n)\nask(f(1))", other="from main import f\ndef g(n):\n    return f(n)\n")
    assert all(isinstance(alt.value, Unknown) for alt in asked.values())


# In which gradient mode does this run?

IMPORT = "import torch\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ask()", "on"),
        ("with torch.no_grad():\n    ask()", "off"),
        ("with torch.inference_mode():\n    ask()", "off"),
        ("with torch.inference_mode(False):\n    ask()", "on"),
        ("with torch.no_grad():\n    with torch.enable_grad():\n        ask()", "on"),
        ("with torch.no_grad(), open('x') as f:\n    ask()", "off"),
        ("torch.set_grad_enabled(False)\nask()", "off"),
        ("torch.set_grad_enabled(False)\ntorch.set_grad_enabled(True)\nask()", "on"),
        ("with torch.set_grad_enabled(phase == 'train'):\n    ask()", "switched"),
        ("@torch.no_grad()\ndef f():\n    ask()\nf()", "off"),
        ("def f():\n    ask()\nwith torch.no_grad():\n    f()", "off"),
        ("def f():\n    ask()\nf()\nwith torch.no_grad():\n    f()", "switched"),
        ("def f():\n    ask()\ndef g():\n    f()\nwith torch.no_grad():\n    g()", "off"),
        ("def f():\n    ask()\nrun_later(f)", "unknown"),
        ("def f():\n    ask()", "on"),
        ("with helper():\n    ask()", "unknown"),
        ("import lightning\nclass M(lightning.LightningModule):\n    def validation_step(self, batch, i):\n        ask()", "off"),
        ("import lightning\nclass M(lightning.LightningModule):\n    def training_step(self, batch, i):\n        ask()", "on"),
    ],
)
def test_in_which_gradient_mode_code_runs(text: str, expected: str, program: Made) -> None:
    asked = program(IMPORT + text)
    frame = evaluator_of(asked.project).calls.plain_frame(asked.module, asked.scope)
    assert Gradients(evaluator_of(asked.project)).at(asked.call, frame).value == expected


def test_the_mode_of_a_function_is_sought_only_where_it_matters(program: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    sought: list[str] = []
    entry = Gradients.entry

    def asked_for(self: Gradients, frame: Frame, depth: int = 0) -> Mode:
        sought.append(frame.scope.name)
        return entry(self, frame, depth)

    monkeypatch.setattr(Gradients, "entry", asked_for)
    text = "import torch\ndef names(items):\n    found = []\n    for item in items:\n        found.append(1)\n    ask(found)\nnames([1])\n"
    (record,) = program(text).records()
    assert record.stores
    assert not sought
    assert record.stores[0].mode is Mode.ON
    assert sought[:1] == ["names"]


# What repeats?

MODEL = "import torch\nfrom torch import nn\nnet = nn.Linear(8, 2)\nopt = torch.optim.SGD(net.parameters())\n"
TRAINING = """\
def train(net, {batches}):
    for x, y in {batches}:
        opt.zero_grad()
        loss = (net(x) - y).sum()
        loss.backward()
        opt.step()
        ask()
"""


@pytest.mark.parametrize("batches", ["train_loader", "batches", "q", "items", "graph"])
def test_a_round_that_runs_a_module_on_what_it_takes_is_a_batch_whatever_it_is_called(batches: str, program: Made) -> None:
    loop = program(MODEL + TRAINING.format(batches=batches)).loop()
    assert loop.batches
    assert loop.proven
    assert loop.steps


@pytest.mark.parametrize(
    "head",
    [
        "for i, x in enumerate(data):\n    net(x)",
        "for i in range(0, len(data), 32):\n    x = data[i:i + 32]\n    net(x)",
        "for x in torch.randn(100, 8).split(10):\n    net(x)",
        "for x in (y.cuda() for y in data):\n    net(x)",
        "it = iter(data)\nwhile True:\n    x = next(it)\n    net(x)",
        "for path in paths:\n    x = torch.load(path)\n    net(x)",
    ],
    ids=["enumerate", "slices", "split", "generator", "while", "files"],
)
def test_what_a_round_takes_its_batch_from_does_not_matter(head: str, program: Made) -> None:
    body = textwrap.indent(head + "\n    ask()\n", "    ")
    assert program(f"{MODEL}def evaluate(net, data, paths):\n{body}").loop().batches


@pytest.mark.parametrize(
    "body",
    [
        "for layer in net.children():\n    x = layer(x)\n    ask()",
        "for name in names:\n    print(name)\n    ask()",
        "for x in data:\n    net(x)\n    ask()\n    break",
        "for n, name in enumerate(['cat', 'dog', 'frog']):\n    net(torch.load(name))\n    ask()",
    ],
    ids=["layers", "no model", "first round only", "a few rounds"],
)
def test_what_is_no_loop_over_batches(body: str, program: Made) -> None:
    asked = program(f"{MODEL}def f(net, x, names, data):\n{textwrap.indent(body, '    ')}\n    for z in data:\n        net(z)\n")
    node = next(above for above in asked.module.walk.ancestors(asked.call) if isinstance(above, cst.For))
    found = runs_of(asked.project).loop(node, asked.module, asked.scope)
    assert found is None or not found.batches


RESULTS = """\
def scored(results, net):
    net.eval()
    results["number"] = results["scores"].argmax(1).tolist()
    results["kept"] = results["scores"]
    return results


class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)

    def forward(self, results):
        results["scores"] = self.layer(results["x"])
        return results


def run(data):
    net, kept = Scores(), []
    for results in data:
        results = net(results)
        results = scored(results, net)
        kept.append(results[{key}])
        ask()
"""


@pytest.mark.parametrize(("key", "carries"), [("'number'", False), ("'kept'", True), ("'scores'", True)])
def test_what_a_function_does_to_what_it_returns_is_seen(key: str, carries: bool, program: Made) -> None:  # noqa: FBT001 - a parameter
    asked = program(MODEL + RESULTS.replace("{key}", key))
    (store,) = [store for record in asked.records() for store in record.stores if asked.module.code(store.node).startswith("kept.append")]
    assert (store.value.carries > 0) == carries


def test_a_helper_that_returns_something_leaves_a_model_in_evaluation(program: Made) -> None:
    helper = "def ready(net):\n    net.eval()\n    return 1\n\n\n"
    asked = program(f"{MODEL}{helper}def f(data):\n    net = nn.Linear(8, 2)\n    ready(net)\n    for x in data:\n        net(x)\n        ask()\n")
    assert [forward.evaluating for record in asked.records() for forward in record.forwards] == [True]


def test_a_dictionary_that_another_updates_has_the_entries_of_both(program: Made) -> None:
    update = "losses.update({'loss': net(x).sum(), 'right': 1})"
    body = f"    for x in data:\n        losses = {{}}\n        {update}\n        kept.append(losses['right'])\n        ask()\n"
    asked = program(f"{MODEL}def f(net, data, kept=[]):\n{body}")
    (store,) = [store for record in asked.records() for store in record.stores if asked.module.code(store.node).startswith("kept.append")]
    assert store.value.carries == 0


def test_a_loop_around_training_goes_over_epochs(program: Made) -> None:
    text = """
def train(net, data):
    for n in range(100):
        ask()
        for x in data:
            opt.zero_grad()
            net(x).sum().backward()
"""
    loop = program(MODEL + text).loop()
    assert loop.trains
    assert loop.epochs
    assert not loop.batches


# How long does a list live?


@pytest.mark.parametrize(
    ("before", "inside", "after", "lives"),
    [
        ("kept = []", "pass", "pass", "all epochs"),
        ("pass", "kept = []", "pass", "an epoch"),
        ("kept = []", "pass", "kept.clear()", "an epoch"),
        ("kept = []", "pass", "kept = []", "an epoch"),
        ("kept = []", "pass", "del kept[:]", "an epoch"),
        ("kept = []", "pass", "if n % 10 == 0: kept.clear()", "an epoch"),
    ],
    ids=["never emptied", "made for each epoch", "cleared", "bound again", "deleted from", "cleared now and then"],
)
def test_how_long_what_a_list_takes_stays(before: str, inside: str, after: str, lives: str, program: Made) -> None:
    text = f"""
def train(net, data):
    {before}
    for n in range(100):
        {inside}
        for x in data:
            opt.zero_grad()
            loss = net(x).sum()
            loss.backward()
            kept.append(loss.item())
        {after}
    ask()
"""
    asked = program(MODEL + text)
    (record,) = asked.records()
    (store,) = [store for store in record.stores if asked.module.code(store.node).startswith("kept.append")]
    assert [asked.module.code(loop.node).split(":")[0] for loop in growing_loops(store, record)] == ["for x in data"]
    assert (unrenewed_epochs(store, record) is not None) == (lives == "all epochs")


@pytest.mark.parametrize(
    ("code", "size", "dims"),
    [
        ("x.sum([1, 2, 3])", SampleSize.SMALL, 1),
        ("x.mean(dim=(1, 2, 3, 4))", SampleSize.SMALL, 1),
        ("x.sum([2, 3, 4])", SampleSize.DENSE, 3),
        ("x.sum([1, 2])", SampleSize.DENSE, 4),
    ],
)
def test_a_sum_along_all_axes_from_the_second_on_leaves_a_number_a_sample(code: str, size: SampleSize, dims: int) -> None:
    call = cst.parse_expression(code)
    assert isinstance(call, cst.Call)
    found = reduced_along(tensor(size=SampleSize.DENSE, dims=6), call, 0)
    assert (found.size, found.dims) == (size, dims)


def test_a_loop_that_goes_further_into_a_value_is_followed_for_few_rounds(program: Made) -> None:
    asked = program(
        """
        def find(node, names, tables):
            for name in names:
                if name in tables:
                    node = node.inner
                elif name:
                    node = node[name]
                else:
                    node = node.outer[0]
            ask(node["size"])

        find(open("nodes"), open("names"), {})
        """
    )
    asked.values()
    assert len(evaluator_of(asked.project).resolved.answers()) < 1000  # as many ways as there are through twelve rounds are half a million
