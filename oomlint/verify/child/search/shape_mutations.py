"""Changes of stand-ins where the message of an exception speaks of shapes, the likeliest first."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oomlint.verify.child.synthesis.name_heuristics import Spec

    Edit = dict[str, Spec | None]  # by path; ``None`` forgets what is known of it
    Change = Callable[[re.Match[str], dict[str, Spec], list[str]], Iterator[Edit]]

FLOATING: Final = ("float32",)
BIG: Final = (32, 64, 128, 224)
LARGEST: Final = 4096  # a dimension beyond it would make the trial slow


def tensors(specs: dict[str, Spec], paths: list[str]) -> list[str]:
    """The paths that stand for tensors."""
    return [path for path in paths if specs[path]["kind"] == "tensor"]


def altered(specs: dict[str, Spec], path: str, **fields: Any) -> Edit:
    """A spec with other fields."""
    return {path: {**specs[path], **fields}}


def sized(specs: dict[str, Spec], path: str, axis: int, size: int) -> Edit:
    """A tensor with another size of one dimension."""
    shape = specs[path]["shape"]
    return altered(specs, path, shape=[*shape[:axis], size, *shape[axis + 1 :]])


def batched(specs: dict[str, Spec], path: str, inner: list[Any]) -> Edit:
    """A tensor with other dimensions; that of the batch stays where there is one."""
    return altered(specs, path, shape=[*(["B"] if "B" in specs[path]["shape"] else []), *inner])


def numbers(found: re.Match[str], count: int) -> list[int]:
    """The numbers in a message, of the alternative that it matched; none where there are fewer."""
    got = [int(text) for text in found.groups() if text is not None and text.isdigit()]
    return got[:count] if len(got) >= count else []


def replaced(specs: dict[str, Spec], path: str, old: int, new: int) -> Iterator[Edit]:
    """A dimension of one size gets another."""
    shape = specs[path]["shape"]
    for index in reversed(range(len(shape))) if new <= LARGEST else ():
        if shape[index] == old:
            yield sized(specs, path, index, new)


def match(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """Two sizes have to be the same: each takes the other."""
    one, other = numbers(found, 2) or (-1, -1)
    for path in tensors(specs, paths):
        yield from replaced(specs, path, one, other)
        yield from replaced(specs, path, other, one)
    yield from ranks(found, specs, paths)


def matmul(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """The last dimension is that of a matrix."""
    had, wanted = numbers(found, 2) or (-1, -1)
    if wanted < 0:
        return
    for path in tensors(specs, paths):
        yield from replaced(specs, path, had, wanted)
    for path in tensors(specs, paths):
        shape = specs[path]["shape"]
        if shape and wanted <= LARGEST:
            yield altered(specs, path, shape=[*shape[:-1], wanted])
            yield altered(specs, path, shape=[*shape[:1], wanted] if shape[0] == "B" else [wanted])
    for path in tensors(specs, paths):
        yield from replaced(specs, path, wanted, had)


def channels(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A layer wants so many channels."""
    wanted, had = numbers(found, 2) or (-1, -1)
    for path in tensors(specs, paths):
        yield from (sized(specs, path, index, wanted) for index, size in enumerate(specs[path]["shape"]) if size == had)


def rank(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A layer wants so many dimensions."""
    rank = (numbers(found, 1) or [-1])[0]
    for path in tensors(specs, paths):
        shape = [size for size in specs[path]["shape"] if size != "B"]
        image = {1: [8], 2: [3, 16], 3: [3, 16, 16], 4: [3, 8, 16, 16]}.get(rank - 1)
        if image is not None and len(shape) != rank - 1:
            yield batched(specs, path, image)


def exactly(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """So many dimensions, the batch's among them."""
    rank = (numbers(found, 1) or [-1])[0]
    for path in tensors(specs, paths):
        shape = specs[path]["shape"]
        outer = 0 if "B" in shape or "(" in path else 1
        if len(shape) + outer != rank and rank - outer >= 0:
            for filler in (3, 8):
                yield altered(specs, path, shape=[*shape, *[filler] * rank][: rank - outer])


def shaped(*ways: Callable[[list[Any]], list[Any] | None]) -> Change:
    """For one way after the other each tensor in the shape that it gives; None leaves it as it is."""

    def change(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
        for way in ways:
            for path in tensors(specs, paths):
                shape = way(specs[path]["shape"])
                if shape is not None:
                    yield altered(specs, path, shape=shape)

    return change


deeper: Final = shaped(lambda shape: [*shape, 8 if len(shape) <= 1 else 3], lambda shape: [*shape, *([8, 8] if len(shape) <= 1 else [3, 3])])
flatter: Final = shaped(lambda shape: shape[:-1] if shape else None)
scalar: Final = shaped(lambda shape: [] if shape else None, lambda shape: (["B"] if "B" in shape else [1]) if shape else None)


def ranks(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """Fewer dimensions, then more."""
    yield from flatter(found, specs, paths)
    yield from deeper(found, specs, paths)


def larger(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """Larger dimensions."""
    for size in BIG:
        for path in tensors(specs, paths):
            shape = specs[path]["shape"]
            rank = len(shape) - ("B" in shape)
            if rank >= 1:
                largest = max(range(len(shape)), key=lambda at: shape[at] if isinstance(shape[at], int) else 0)
                yield sized(specs, path, largest, size)
            if rank > 1:
                keep = len(shape) - max(1, rank - 1)
                yield altered(specs, path, shape=[*shape[:keep], *([size] * (len(shape) - keep))])


def beyond(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """An index is beyond a dimension."""
    index, size = numbers(found, 2) or (-1, -1)
    for path in tensors(specs, paths):
        yield from replaced(specs, path, size, index + 1)


def square(_found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """Square matrices."""
    for path in tensors(specs, paths):
        for size in (3, 4):
            yield batched(specs, path, [size, size])


def targets(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A loss wants its target in another shape."""
    sizes = [int(text) for text in re.findall(r"\d+", found[1])]
    for path in tensors(specs, paths):
        if sizes and specs[path]["dtype"] == "int64" and "B" not in specs[path]["shape"]:
            yield altered(specs, path, shape=sizes[1:])
    yield from ranks(found, specs, paths)


def rows(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """A loss takes so many rows, and as many targets: a sample has more of them, such as one for each point."""
    wanted, had = numbers(found, 2) or (-1, -1)
    for path in tensors(specs, paths):
        inner = [size for size in specs[path]["shape"] if size != "B"]
        each = math.prod(inner)
        if specs[path]["dtype"] == "int64" and each and had % each == 0 and wanted % (had // each or 1) == 0:
            count = wanted // (had // each or 1)
            if count != each and 0 < count <= LARGEST:
                yield batched(specs, path, [count])
    yield from match(found, specs, paths)


def agree(found: re.Match[str], specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """Two shapes have to be the same: each takes the other's."""
    one, other = ([int(text) for text in re.findall(r"\d+", group)] for group in (found[1], found[2]))
    for path in tensors(specs, paths):
        inner = [size for size in specs[path]["shape"] if size != "B"]
        for mine, its in ((one, other), (other, one)):
            if inner == mine[1:]:
                yield batched(specs, path, its[1:])
    yield from ranks(found, specs, paths)


def anything(specs: dict[str, Spec], paths: list[str]) -> Iterator[Edit]:
    """Small changes of what was used last, where the message is no help."""
    for path in tensors(specs, paths)[:4]:
        shape = specs[path]["shape"]
        yield altered(specs, path, shape=[*shape, 8])
        if shape:
            yield altered(specs, path, shape=shape[:-1])
        yield altered(specs, path, dtype="int64" if specs[path]["dtype"] in FLOATING else "float32")
