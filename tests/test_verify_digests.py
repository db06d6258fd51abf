"""The digests of values: the same if and only if the values are, to the last bit."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
from collections import OrderedDict, deque, namedtuple
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

from oomlint.verify.child.measuring.digests import describe, digest, generators, write  # noqa: E402 - not without torch

Point = namedtuple("Point", "x y")  # noqa: PYI024 - the kind that programs make


@dataclasses.dataclass
class Sample:
    image: Any
    label: int = 0


@dataclasses.dataclass(slots=True)
class Slotted:
    value: Any


class Meter:
    def __init__(self, total: Any) -> None:
        self.total = total


class Named(dict):  # type: ignore[type-arg]
    pass


NAN = float("nan")
T = torch.arange(6.0)
SAME = {
    "floats": (0.1 + 0.2, 0.30000000000000004),
    "nan": (NAN, -NAN),
    "sets": ({"a", "b", "c"}, {"c", "a", "b"}),
    "strides": (T.view(2, 3).t().contiguous(), T.view(2, 3).t()),
    "gradient": (T.clone().requires_grad_(), T),
    "graph": (T.clone().requires_grad_() * 1, T),
    "parts of a storage": (T[2:4], T[2:4].clone()),
    "shared": ([T, T], [T, T.clone()]),
    "empty": (torch.zeros(0, 3), torch.zeros(0, 3)),
    "bfloat16": (T.bfloat16(), T.bfloat16()),
    "conjugate": (torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j])),
    "objects": (Meter([1, T]), Meter([1, T.clone()])),
    "slots": (Slotted(3), Slotted(3)),
    "object arrays": (np.array([1, "a", None], object), np.array([1, "a", None], object)),
    "generators": (np.random.default_rng(3), np.random.default_rng(3)),
    "long lists": (list(range(1000)), list(range(1000))),
    "modules": (torch.nn.ReLU(), torch.nn.ReLU()),
    "sparse": (T.to_sparse(), T.to_sparse()),
}
DIFFERENT = {
    "a bit": (1.0, 1.0000000000000002),
    "sign of zero": (0.0, -0.0),
    "int and bool": (1, True),
    "int and float": (1, 1.0),
    "type of elements": ({"x": np.zeros((2, 2), "f4")}, {"x": np.zeros((2, 2), "f8")}),
    "array and tensor": (np.zeros(2), torch.zeros(2)),
    "array and list": (np.zeros(2), [0.0, 0.0]),
    "late element": (torch.arange(9), torch.arange(9) + torch.eye(9)[8].long()),
    "list and tuple": ([1], (1,)),
    "lengths": ([1, 2], [1]),
    "namedtuple": (Point(1, 2), Point(1, 3)),
    "dataclass": (Sample(T, 1), Sample(T, 2)),
    "slots": (Slotted([1]), Slotted([2])),
    "order of keys": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "kind of mapping": ({"a": 1}, OrderedDict(a=1)),
    "sets": ({1, 2}, {1, 3}),
    "long lists": (list(range(99)), [*range(98), 0]),
    "mode": (torch.nn.ReLU(), torch.nn.ReLU().eval()),
    "deque": (deque([1]), deque([2])),
    "errors": (ValueError("a"), ValueError("b")),
    "long text": ("a" * 300, "a" * 299 + "b"),
    "meta": (torch.zeros(2, device="meta"), torch.zeros(3, device="meta")),
}


@pytest.mark.parametrize("name", SAME)
def test_same(name: str) -> None:
    one, other = SAME[name]
    assert write(one).lines == write(other).lines
    assert digest(one) == digest(other)
    assert write(one).comparable


@pytest.mark.parametrize("name", DIFFERENT)
def test_different(name: str) -> None:
    one, other = DIFFERENT[name]
    assert digest(one) != digest(other)


def test_what_cannot_be_looked_into_is_named_and_left_alone() -> None:
    numbers = iter([1, 2])
    with Path(__file__).open(encoding="utf-8") as file:
        written = write({"a": numbers, "b": (x for x in [1]), "c": file, "d": 1})
    assert written.opaque == ("['a']", "['b']", "['c']")
    assert list(numbers) == [1, 2]
    assert not write([object()]).comparable
    assert write([print, int, np.zeros, len]).comparable


def test_cycles_end() -> None:
    one: list[Any] = [1]
    one.append(one)
    other: list[Any] = [1]
    other.append(other)
    assert digest(one) == digest(other)
    meter = Meter(None)
    meter.total = {"me": meter}
    assert len(write(meter).lines) == 3
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert not write(deep).comparable


def test_subclasses_of_containers_tell_their_attributes() -> None:
    one, other = Named(a=1), Named(a=1)
    other.__dict__["extra"] = 2
    assert digest(one) != digest(other)


def test_generators_of_random_numbers() -> None:
    before = generators()
    assert before == generators()
    for draw in (random.random, np.random.rand, lambda: torch.rand(1)):
        draw()
        assert generators() != before
        before = generators()


def test_a_digest_is_the_same_in_every_process() -> None:
    program = "from oomlint.verify.child.measuring.digests import digest; print(digest({'a': {1.5, 'x', None, (1, 2)}, 'b': [1, b'2', range(3)]}))"
    seen = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": str(n)}).stdout for n in range(3)
    }
    assert len(seen) == 1


def test_describe() -> None:
    assert describe({"image": torch.zeros(3, 8, 8), "label": 3}) == "dict of 2: image float32 (3, 8, 8), label int"
    assert describe((np.zeros(2), [1, 2, 3, 4, 5, 6])) == "tuple of 2: float64 (2,), list of 6: int, int, int, int, ..."
    assert describe(3) == "int"
