"""Arrays as far as their shape and type are known, what samples and batches are put together of them, and what arithmetic makes of them."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from oomlint.api_names import TURNS
from oomlint.memory.shared.byte_size import ITEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Shape = tuple[int | str, ...]


class Least(int):
    """A length that is so large at least: the smallest of several. It is equal to no number, as nobody knows it, and only to one that is known as well."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Least) and int(self) == int(other)

    def __hash__(self) -> int:
        return hash((Least, int(self)))


# Methods that leave the numbers of an array as they are, and give them another shape.
MOVES: Final = TURNS | frozenset("reshape view flatten ravel unsqueeze expand_dims squeeze repeat tile expand broadcast_to".split())
_MOST_PARTS: Final = 10_000
_NUMBER: Final = 8  # bytes of a number of Python, of which a batch has a tensor
_INTEGRAL: Final = 1  # of the ranks of types: the higher wins


class ShapedArray(Struct, frozen=True):
    """An array, a tensor, a picture or a number.

    ``shape`` has a word for a dimension that nobody knows, ``Least`` for one that may be larger, and is ``None`` where nobody knows how many there are.
    ``dtype`` is empty where nobody knows it, and bytes of an element where nobody knows more. ``of`` is "torch", "numpy", "picture" (height, width, channels)
    or "python".
    """

    shape: Shape | None = None
    dtype: str = ""
    of: str = ""

    @property
    def item(self) -> int | None:
        """Bytes of an element."""
        return int(self.dtype) if self.dtype.isdigit() else ITEM_BYTES.get(self.dtype, _NUMBER if self.of == "python" else None)

    @property
    def exact(self) -> int | None:
        """Bytes of all of it, where they are known."""
        known = certain(self.shape or ())
        whole = self.shape is not None and len(known) == len(self.shape)
        return prod(known) * self.item if whole and self.item is not None else None

    @property
    def at_least(self) -> int:
        """Bytes that it has at least: what nobody knows counts as one."""
        return prod(one for one in self.shape if isinstance(one, int)) * (self.item or 1) if self.shape is not None else 0

    def cast(self, dtype: str, of: str = "") -> ShapedArray:
        """The same with elements of another type."""
        return replace(self, dtype=dtype, of=of or self.of)

    def real(self) -> ShapedArray:
        """The same of real numbers, of which a complex one has two."""
        return replace(self, dtype={"complex64": "float32", "complex128": "float64", "8": "", "16": ""}.get(self.dtype, self.dtype))

    def shaped(self, *shape: int | str) -> ShapedArray:
        """The same in another shape."""
        return replace(self, shape=shape)


class ShapedGroup(Struct, frozen=True):
    """A tuple, a list or a dictionary: its parts by their place or key."""

    parts: tuple[tuple[object, Part], ...]

    def at(self, key: object) -> Part:
        """The part under a key; of all of them where nobody knows the key and they are alike."""
        place = key + len(self.parts) if isinstance(key, int) and key < 0 else key
        found = [part for name, part in self.parts if type(name) is type(place) and name == place]
        return found[-1] if found else None


class Many(Struct, frozen=True):
    """A list of parts that are alike; ``count`` is ``None`` where nobody knows how many."""

    element: Part
    count: int | None


class ShapedText(Struct, frozen=True):
    """A string: no tensor is made of it."""


Part = ShapedArray | ShapedGroup | Many | ShapedText | None  # `None` is what nobody knows
NUMBER: Final = ShapedArray((), "int64", "python")
TENSOR: Final = ShapedArray(None, "", "torch")


def group(parts: Sequence[Part]) -> ShapedGroup:
    """A tuple or a list of parts."""
    return ShapedGroup(tuple(enumerate(parts)))


def leaves(part: Part) -> Iterator[ShapedArray | ShapedText | None]:
    """The arrays that it is put together of, each as often as it is there: a batch has a copy of each."""
    if isinstance(part, ShapedGroup):
        for _, one in part.parts:
            yield from leaves(one)
    elif isinstance(part, Many):
        inner = tuple(leaves(part.element))
        yield from inner * part.count if part.count is not None and len(inner) * part.count <= _MOST_PARTS else (None,)
    else:
        yield part


def elements(part: Part) -> tuple[Part, int | None]:
    """What a loop over it goes through, and how often; of a group only where all are alike."""
    if isinstance(part, Many):
        return part.element, part.count
    if isinstance(part, ShapedGroup):
        found = [one for _, one in part.parts]
        return (joined(found) if found else None), len(found)
    if isinstance(part, ShapedArray) and part.shape:
        first = part.shape[0]
        return part.shaped(*part.shape[1:]), first if isinstance(first, int) else None
    return None, None


def joined(found: Sequence[Part]) -> Part:
    """What is true of each of several ways: of two arrays the shape of the smaller, as the least. A picture is what has yet to become an array on some way."""
    made = [one for one in found if not (isinstance(one, ShapedArray) and one.of == "picture")]
    found = made or found
    if not found or any(one is None or type(one) is not type(found[0]) for one in found):
        return None
    first = found[0]
    for one in found[1:]:
        first = _both(first, one)
    return first


def _both(a: Part, b: Part) -> Part:
    if a == b:
        return a
    if isinstance(a, ShapedArray) and isinstance(b, ShapedArray):
        dtype = a.dtype if a.dtype == b.dtype else ""
        of = a.of if a.of == b.of else ""
        if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
            return ShapedArray(None, dtype, of)
        return ShapedArray(tuple(smallest(pair) for pair in zip(a.shape, b.shape, strict=True)), dtype, of)
    if isinstance(a, ShapedGroup) and isinstance(b, ShapedGroup) and [key for key, _ in a.parts] == [key for key, _ in b.parts]:
        return ShapedGroup(tuple((key, joined([x, y])) for (key, x), (_, y) in zip(a.parts, b.parts, strict=True)))
    if isinstance(a, Many) and isinstance(b, Many):
        count = smallest(["..." if one.count is None else one.count for one in (a, b)])
        return Many(joined([a.element, b.element]), count if isinstance(count, int) else None)
    return None


# -- lengths -----------------------------------------------------------------------------------------------------------------


def certain(shape: Sequence[int | str]) -> list[int]:
    """The lengths that are known, and not only how large they are at least."""
    return [one for one in shape if isinstance(one, int) and not isinstance(one, Least)]


def smallest(found: Sequence[int | str]) -> int | str:
    """What a length is where it is one of several: the smallest is true of each."""
    if len(set(found)) == 1:
        return found[0]
    numbers = [one for one in found if isinstance(one, int)]
    return Least(min(numbers)) if numbers and len(numbers) == len(found) and min(numbers) >= 0 else "..."


def longer(length: int | str) -> int | str:
    """A length that something unknown may have stretched."""
    return Least(length) if isinstance(length, int) else length


def counted(number: int, *of: int) -> int:
    """What was counted up from lengths: at least so many where they are."""
    return Least(number) if any(isinstance(one, Least) for one in of) else number


# -- arithmetic --------------------------------------------------------------------------------------------------------------


def combined(a: ShapedArray, b: ShapedArray, *, divides: bool = False) -> ShapedArray:
    """What an operator makes of two arrays or numbers."""
    of = next((one for one in ("torch", "numpy", "python") if one in {a.of, b.of}), "")
    dtype = _together(a, b, of)
    if divides and dtype and _rank(dtype) <= _INTEGRAL:
        dtype = "float32" if of == "torch" else "float64"
    return ShapedArray(broadcast(a.shape, b.shape), dtype, of)


def multiplied(a: ShapedArray, b: ShapedArray) -> ShapedArray:
    """What ``a @ b`` is: the rows of one by the columns of the other."""
    both = combined(a, b)
    if not a.shape or not b.shape:
        return replace(both, shape=None)
    outer = broadcast(a.shape[:-2], b.shape[:-2]) or ()
    return both.shaped(*outer, *a.shape[-2:-1], *(b.shape[-1:] if len(b.shape) > 1 else ()))


def broadcast(a: Shape | None, b: Shape | None) -> Shape | None:
    """The shape that two shapes are stretched to."""
    if a is None or b is None:
        return None
    longest = max(len(a), len(b))
    pairs = zip(*((1,) * (longest - len(one)) + one for one in (a, b)), strict=True)
    return tuple(_stretched(x, y) for x, y in pairs)


def _stretched(x: int | str, y: int | str) -> int | str:
    """The longer of two lengths that fit: what is known well, then what is known at all."""
    if 1 in (x, y):
        return y if x == 1 else x
    numbers = certain([x, y]) or [one for one in (x, y) if isinstance(one, int)]
    return max(numbers) if numbers else x if x == y else "..."


def _rank(dtype: str) -> int:
    return next(rank for rank, word in enumerate(("bool", "int", "float", "complex")) if word in dtype)


def _together(a: ShapedArray, b: ShapedArray, of: str) -> str:
    """The type of a result."""
    if any(not one.dtype or one.dtype.isdigit() for one in (a, b)):
        return ""
    weak = [one for one in (a, b) if one.of == "python" or (of == "torch" and one.shape == ())]
    if len(weak) == 1:  # a number leaves the type of an array, unless it is of a higher kind
        strong, number = (b if weak[0] is a else a).dtype, weak[0].dtype
        return strong if _rank(number) <= _rank(strong) else "float32" if of == "torch" and number == "float64" else number
    return promoted(a.dtype, b.dtype, of)


def promoted(a: str, b: str, of: str) -> str:
    """The type that two types are brought to."""
    low, high = sorted((a, b), key=lambda dtype: (_rank(dtype), ITEM_BYTES[dtype]))
    if _rank(low) == _INTEGRAL and _rank(high) > _INTEGRAL and of != "torch":
        return max(high, f"float{8 * min(8, 2 * ITEM_BYTES[low])}", key=lambda dtype: ITEM_BYTES[dtype])
    mixed = _rank(low) == _rank(high) == _INTEGRAL and low.startswith("u") != high.startswith("u")
    if mixed and (high.startswith("u") or ITEM_BYTES[low] == ITEM_BYTES[high]):
        return f"int{min(64, 16 * ITEM_BYTES[high])}"
    return high


def times(size: int | str, count: int | str | None) -> int | str:
    """A dimension so many times."""
    if isinstance(size, int) and isinstance(count, int):
        return counted(size * count, size, count)
    return size if count == 1 else count if size == 1 and count is not None else "..."


def reshaped(shape: Shape, wanted: Shape) -> Shape:
    """A shape in which one dimension may be what the others leave: ``-1``."""
    before = [one for one in shape if isinstance(one, int)]
    others = [one for one in certain(wanted) if one >= 0]
    product = prod(others)
    known = len(before) == len(shape) and len(others) == len(wanted) - 1 and product
    rest: int | str = counted(prod(before) // product, *before) if known else "..."
    return tuple(rest if one == -1 else one for one in wanted)


def stacked(parts: Part, axis: int) -> Part:
    """Arrays of one shape that become one with another axis."""
    one, count = elements(parts)
    if not isinstance(one, ShapedArray) or one.shape is None:
        return one if isinstance(one, ShapedArray) else None
    place = axis + len(one.shape) + 1 if axis < 0 else axis
    return one.shaped(*one.shape[:place], "..." if count is None else count, *one.shape[place:])


def nested(part: Part) -> Part:
    """The array that ``np.array`` makes of numbers, of arrays, and of lists of them in lists: one type for all."""
    if isinstance(part, Many):
        return stacked(Many(nested(part.element), part.count), 0)
    if not isinstance(part, ShapedGroup):
        return part
    inner = [nested(one) for _, one in part.parts]
    numbers = [one for one in inner if isinstance(one, ShapedArray) and one.of == "python" and one.dtype in ITEM_BYTES]
    if numbers and len(numbers) == len(inner):
        dtype = reduce(lambda a, b: promoted(a, b, "numpy"), (one.dtype for one in numbers))
        inner = [one.cast(dtype) for one in numbers]
    return stacked(group(inner), 0)


def concatenated(parts: Part, axis: int) -> Part:
    """Arrays that are joined along an axis that they have; along the others all are as long as those of which that is known."""
    listed = [part for _, part in parts.parts] if isinstance(parts, ShapedGroup) else [parts.element] if isinstance(parts, Many) else []
    arrays = [one for one in listed if isinstance(one, ShapedArray)]
    shapes = [one.shape for one in arrays if one.shape is not None]
    ranks = {len(shape) for shape in shapes}
    rank = ranks.pop() if len(ranks) == 1 else 0
    if not -rank <= axis < rank or any(one is not None and one not in arrays for one in listed):
        return None
    numbers = [length for shape in shapes if isinstance(length := shape[axis], int)]
    whole = counted(sum(numbers), *numbers) if len(numbers) == len(listed) else "..."
    total = times(whole, parts.count) if isinstance(parts, Many) else whole
    shape = tuple(reduce(_stretched, lengths) for lengths in zip(*shapes, strict=True))
    dtypes = [one.dtype for one in arrays] if len(arrays) == len(listed) else [""]
    dtype = reduce(lambda a, b: promoted(a, b, arrays[0].of) if a and b else "", dtypes)
    return with_axis(ShapedArray(shape, dtype, arrays[0].of), axis, total)


def with_axis(array: ShapedArray, axis: int, size: int | str) -> ShapedArray:
    """The same with another length along an axis."""
    shape = array.shape or ()
    return array.shaped(*(size if n == axis % len(shape) else one for n, one in enumerate(shape))) if shape else array


def moved(name: str, base: ShapedArray, wanted: Shape, axis: int | None) -> Shape | None:
    """The shape that a method gives which leaves the numbers as they are; ``None`` where nobody knows."""
    shape, given = base.shape or (), certain(wanted)
    count = len(shape)
    if name in {"reshape", "view"}:
        return reshaped(shape, wanted)
    if len(given) < len(wanted):
        return None
    if name in {"flatten", "ravel"} and len(given) <= 1:
        start = given[0] % max(count, 1) if given else 0
        return (*shape[:start], *reshaped(shape[start:], (-1,)))
    if name in TURNS:
        order = given or list(reversed(range(count)))
        if name in {"swapaxes", "t"} or (len(given) == len(("first", "second")) and (count != len(given) or (base.of == "torch" and name == "transpose"))):
            first, second = order if given else (0, 1)
            order = [second if n == first % count else first if n == second % count else n for n in range(count)]
        return tuple(shape[one] for one in order) if len(order) == count and all(-count <= one < count for one in order) else None
    if name in {"unsqueeze", "expand_dims"} and len(given) == 1:
        place = given[0] + (count + 1 if given[0] < 0 else 0)
        return (*shape[:place], 1, *shape[place:])
    if name == "squeeze":
        axes = {one % count for one in given} if count else set()
        return tuple(one for n, one in enumerate(shape) if one != 1 or (axes and n not in axes))
    if name == "repeat" and base.of == "numpy":
        return with_axis(base, axis, times(shape[axis], given[0])).shape if axis is not None and -count <= axis < count and given else None
    if name in {"repeat", "tile", "expand", "broadcast_to"}:
        longest = max(len(given), count)
        old, new = ((1,) * (longest - len(one)) + tuple(one) for one in (shape, given))
        if name in {"repeat", "tile"}:
            return tuple(times(x, y) for x, y in zip(old, new, strict=True))
        return broadcast(old, tuple(1 if one == -1 else one for one in new))
    return None
