"""A value that takes its kind from the first use that is made of it."""

from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING, Any, Final

import torch

from oomlint.verify.child.loading.stubs import Entered
from oomlint.verify.child.measuring.tensor_census import tensors
from oomlint.verify.child.synthesis import name_heuristics, stub_registry
from oomlint.verify.child.synthesis.source_hints import unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oomlint.verify.child.synthesis.name_heuristics import Spec
    from oomlint.verify.child.synthesis.stub_registry import Book

TENSOR: Final = frozenset(name for name in dir(torch.Tensor) if not name.startswith("_")) - {"name", "names", "values", "data", "module_load", "H"}
PLAINLY_TENSOR: Final = frozenset(
    "cuda cpu detach numpy float long int half bool view reshape shape item unsqueeze squeeze permute transpose dim ndim backward requires_grad_ tolist numel "
    "flatten sum mean argmax contiguous dtype size".split(),
)
MODULE: Final = frozenset("parameters state_dict eval train named_parameters load_state_dict modules forward named_modules children".split())
MAPPING: Final = frozenset("items keys values get update pop setdefault".split())
TEXTUAL: Final = frozenset("split lower upper strip startswith endswith replace encode join format rstrip lstrip isdigit".split())
APPENDING: Final = frozenset("append extend insert sort index".split())
FACTORIES: Final = frozenset(
    "zeros ones empty full rand randn randint arange range linspace eye randperm view reshape repeat expand permute topk manual_seed narrow roll chunk split "
    "tile unflatten softmax log_softmax sum mean dropout clamp_ clamp pow unsqueeze squeeze transpose select tril triu flatten".split(),
)
PARTS: Final = ("leaf", "output", "batch")


class Late(Entered):
    """A stand-in whose kind is not known yet. After the first use it hands everything on to the value that it has become."""

    __slots__ = ("__weakref__", "_about", "_real")

    def __init__(self, book: Book, path: str, role: str, inputs: tuple[torch.Tensor, ...]) -> None:
        object.__setattr__(self, "_about", (book, path, role, inputs))
        object.__setattr__(self, "_real", None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and name not in ("__len__", "__getitem__", "__iter__", "__next__"):
            raise AttributeError(name)
        return getattr(become(self, lambda: by_attribute(self, name)), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(become(self, lambda: {"kind": "object"}), name, value)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """A first use like others."""
        book, path, role, _ = about(self)
        name = book.name(path)
        if is_open(self) and name.endswith(("loss", "criterion")) and [*tensors([settled(item) for item in args])]:
            return become(self, lambda: {"kind": "criterion"})(*args, **keywords)
        return become(self, lambda: {"kind": "object"})(*args, **keywords) if role != "batch" else call(book, path, role, args, keywords)

    def __iter__(self) -> Iterator[Any]:
        count, names = unpacked(sys._getframe(1))  # noqa: SLF001 -- the caller's next instruction says how many parts it wants
        return iter(become(self, lambda: by_iteration(self, count, names)))

    def __len__(self) -> int:
        if is_open(self) and about(self)[2] not in PARTS:
            return about(self)[0].samples  # a dataset's, most of the time; it may still become anything
        return len(become(self, lambda: as_leaf(self)))

    def __getitem__(self, key: Any) -> Any:
        return become(self, lambda: by_key(self, key))[settled(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        become(self, lambda: by_key(self, key))[settled(key)] = settled(value)

    def __contains__(self, key: Any) -> bool:
        return not is_open(self) and settled(key) in real(self)

    def __bool__(self) -> bool:
        return not is_open(self) and bool(real(self))

    def __index__(self) -> int:
        return int(become(self, lambda: as_number(self)))

    __int__ = __index__

    def __float__(self) -> float:
        return float(become(self, lambda: as_number(self)))

    def __round__(self, digits: int = 0) -> float:
        return round(float(self), digits)

    def __fspath__(self) -> str:
        return str(become(self, lambda: as_text(self)))

    def __str__(self) -> str:
        return (name_heuristics.last(about(self)[1]) or "stand-in") if is_open(self) else str(real(self))

    def __repr__(self) -> str:
        return f"<stand-in for {about(self)[1]}>"

    def __format__(self, spec: str) -> str:
        if spec and spec[-1] in "dfeg%":
            return format(become(self, lambda: as_number(self)), spec)
        return format(str(self), spec)

    def __hash__(self) -> int:
        return hash(about(self)[1]) if is_open(self) else hash(real(self))

    def __eq__(self, other: object) -> Any:
        other = settled(other)
        role = about(self)[2]
        if isinstance(other, str) and role not in PARTS:
            return become(self, lambda: {"kind": "const", "value": other}) == other
        if isinstance(other, (int, float, torch.Tensor)):
            return become(self, lambda: as_operand(self, other)) == other
        return not is_open(self) and real(self) == other

    def __ne__(self, other: object) -> Any:
        out = self == other
        return out.logical_not() if isinstance(out, torch.Tensor) else not out

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        del types
        name = getattr(func, "__name__", "")
        others = list(tensors([*args, *(kwargs or {}).values()]))
        convert: Callable[[Any], Any] = lambda item: _argument(item, name, others)  # noqa: E731 -- one line, used twice
        return func(*[convert(item) for item in args], **{key: convert(item) for key, item in (kwargs or {}).items()})


def late(book: Book, path: str, role: str, inputs: tuple[torch.Tensor, ...] = ()) -> Any:
    """A late stand-in. Its class carries the path in its name, so that messages of errors say which one it was."""
    made = type(f"stand-in:{path}", (Late,), {"__slots__": ()})
    return made(book, path, role, inputs)


def about(item: Late) -> tuple[Book, str, str, tuple[torch.Tensor, ...]]:
    """The book, path, role and inputs of a late stand-in."""
    found: tuple[Book, str, str, tuple[torch.Tensor, ...]] = object.__getattribute__(item, "_about")
    return found


def is_open(value: Any) -> bool:
    """Whether a value is a stand-in that nothing has looked at: it is of no kind yet."""
    return isinstance(value, Late) and object.__getattribute__(value, "_real") is None


def real(value: Any) -> Any:
    """What a stand-in has become; itself where it is open, as any other value."""
    while isinstance(value, Late) and not is_open(value):
        value = object.__getattribute__(value, "_real")
    return value


def become(item: Late, spec: Callable[[], Spec]) -> Any:
    """The value that a late stand-in is; ``spec`` says what it becomes with its first use."""
    real = object.__getattribute__(item, "_real")
    book, path, role, inputs = about(item)
    book.touch(path)
    if real is None:
        book.learn(path, spec())
        real = book.make(path, role, inputs)
        object.__setattr__(item, "_real", real)
    return real


def settled(value: Any) -> Any:
    """What a late stand-in has become; a part of a batch or an output becomes a tensor where it is still open."""
    if isinstance(value, Late):
        if is_open(value) and about(value)[2] in ("leaf", "output"):
            return become(value, lambda: as_leaf(value))
        return value if is_open(value) else settled(real(value))
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(settled(item) for item in value)
    return [settled(item) for item in value] if type(value) is list else value


def call(book: Book, path: str, role: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """What a call of a stand-in gives: something computed where tensors go in."""
    given = (*args, *keywords.values())
    inputs = tuple(tensors([settled(item) for item in given]))
    if inputs or role == "output" or any(isinstance(item, Late) and about(item)[2] in PARTS for item in given):
        return book.make(f"{path}()", "output", inputs)
    return book.make(f"{path}()", "any" if role == "config" else role)


def as_tensor(value: Any) -> Any:
    """As above, and an output that a loss function takes."""
    return become(value, lambda: as_leaf(value)) if is_open(value) else settled(value)


def settle(value: Any, depth: int = 4) -> None:
    """Take parts of batches and outputs that are kept and that nothing has looked at for tensors: in the next run they are."""
    if isinstance(value, Late):
        settled(value)
    elif depth and type(value) in (list, tuple, dict):
        for item in list(value.values() if type(value) is dict else value):
            settle(item, depth - 1)


# -- what it becomes -----------------------------------------------------------------------------------------------------------


def as_leaf(item: Late, shape: list[Any] | None = None, dtype: str = "float32") -> Spec:
    """A tensor."""
    book, path, role, _ = about(item)
    spec = name_heuristics.of_leaf(book.name(path))
    if role == "output":
        low = book.name(path).lower()
        usual: list[Any] = [] if name_heuristics.LOSS.search(low) else ["B", *(spec["shape"] if name_heuristics.BOXES.search(low) else [stub_registry.CLASSES])]
        return {"kind": "tensor", "shape": usual if shape is None else shape, "dtype": dtype}
    if role in ("batch", "leaf"):
        if shape is not None:
            return {"kind": "tensor", "shape": shape[1:], "dtype": dtype}
        return spec
    if shape is not None:
        return {"kind": "tensor", "shape": shape, "dtype": dtype}
    return {**spec, "shape": [book.batch, *spec.get("shape", [])], "kind": "tensor", "dtype": spec.get("dtype", "float32")}


def as_number(item: Late) -> Spec:
    """A number that fits the name."""
    book, path, _, _ = about(item)
    return {"kind": "const", "value": name_heuristics.number(book.name(path))}


def as_text(item: Late) -> Spec:
    """A text."""
    book, path, _, _ = about(item)
    return {"kind": "const", "value": book.name(path) or "text"}


def as_operand(item: Late, other: Any) -> Spec:
    """What can be added to a value, multiplied by it or compared with it."""
    other = settled(other)
    if about(item)[2] in PARTS:
        if isinstance(other, torch.Tensor):
            return as_leaf(item, _like(item, other))
        return as_leaf(item, [] if about(item)[2] == "output" else None)
    if isinstance(other, torch.Tensor) and other.dim() and other.is_floating_point() and name_heuristics.scalar(about(item)[0].name(about(item)[1])) is None:
        return as_leaf(item, _like(item, other))
    return as_text(item) if isinstance(other, str) else as_number(item)


def _like(item: Late, other: torch.Tensor) -> list[Any]:
    shape: list[Any] = list(other.shape)
    if about(item)[2] == "output" and shape and shape[0] == about(item)[0].batch:
        shape[0] = "B"
    return shape


def by_attribute(item: Late, name: str) -> Spec:
    """From the name of an attribute that is asked for."""
    role = about(item)[2]
    if name in MAPPING and (name != "update" or role in PARTS):
        return {"kind": "dict", "keys": ["loss"] if role == "output" and name in ("items", "values", "keys") else []}
    if name in APPENDING:
        return {"kind": "list", "n": 0}
    if role in PARTS:
        return as_leaf(item) if name in TENSOR else {"kind": "object"}
    if name in MODULE:
        return {"kind": "model"}
    if name == "zero_grad":
        return {"kind": "optimizer"}
    if name in TEXTUAL:
        return as_text(item)
    if name in PLAINLY_TENSOR:
        return as_leaf(item)
    if name in ("__iter__", "__next__", "batch_size", "dataset", "sampler") and role != "config":
        return {"kind": "loader"}
    return {"kind": "object", "config": role == "config"}


def by_iteration(item: Late, count: int, names: list[str]) -> Spec:
    """From being unpacked to a number of names, or gone through."""
    if count:
        return {"kind": "tuple", "n": count, "names": names}
    role = about(item)[2]
    if role in ("leaf", "output"):
        return as_leaf(item)
    return {"kind": "tuple" if role == "batch" else "list", "n": 2}


def by_key(item: Late, key: Any) -> Spec:
    """From a subscript."""
    role = about(item)[2]
    key = settled(key)
    if isinstance(key, str):
        return {"kind": "dict", "keys": [key]}
    if isinstance(key, int) and (role in ("batch", "any", "config") or "[*]" not in about(item)[1]) and role != "leaf":
        if role == "output":
            return as_leaf(item)
        return {"kind": "tuple", "n": max(key + 1, 2) if key >= 0 else 2}
    if role in ("any", "config", "member") and not isinstance(key, (slice, tuple, torch.Tensor)):
        return {"kind": "dict", "keys": []}
    if role == "output" and isinstance(key, tuple):
        taken = sum(isinstance(part, int) for part in key)  # dimensions; a part of the value has to be less than all of it
        return as_leaf(item, ["B", *[stub_registry.CLASSES] * max(taken, 1)])
    return as_leaf(item)


# -- operators -----------------------------------------------------------------------------------------------------------------


def _argument(item: Any, function: str, others: list[torch.Tensor]) -> Any:
    """An argument of a function of torch."""
    if type(item) in (list, tuple):
        return type(item)(_argument(part, function, others) for part in item)
    if not is_open(item):
        return settled(item) if isinstance(item, Late) else item
    role = about(item)[2]
    losing = function.endswith(("_loss", "cross_entropy", "_with_logits")) or function in ("cat", "stack", "cdist", "conv2d", "linear", "embedding")
    if role not in PARTS and (function in FACTORIES or not losing):
        return become(item, lambda: as_operand(item, others[0]) if others and function not in FACTORIES else as_number(item))
    if not others:
        return become(item, lambda: as_leaf(item))
    other = others[0]
    if function in ("cross_entropy", "nll_loss", "nll_loss_nd"):
        if other.is_floating_point() and other.dim() > 1 and role != "output":
            return become(item, lambda: as_leaf(item, [other.shape[0], *other.shape[2:]], "int64"))
        if not other.is_floating_point():
            return become(
                item, lambda: as_leaf(item, ["B" if other.dim() else stub_registry.CLASSES, stub_registry.CLASSES, *other.shape[1:]][: other.dim() + 1])
            )
    if function == "embedding":
        return become(item, lambda: as_leaf(item, None, "int64"))
    if function in ("matmul", "bmm", "mm", "linear"):
        return become(item, lambda: as_leaf(item, [*_like(item, other)[:-2], *_like(item, other)[:-3:-1]][-other.dim() :]))
    if function in ("__getitem__", "index_select", "gather"):
        return become(item, lambda: as_leaf(item, None, "int64"))
    return become(item, lambda: as_leaf(item, _like(item, other)))


def _binary(name: str, *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    function = getattr(operator, name)

    def operate(self: Late, other: Any) -> Any:
        mine = settled(become(self, lambda: as_operand(self, other)))
        if isinstance(other, Late):
            other = settled(become(other, lambda: as_operand(other, mine)))
        return function(other, mine) if reflected else function(mine, other)

    return operate


def _unary(name: str) -> Callable[[Any], Any]:
    return lambda self: getattr(settled(become(self, lambda: as_operand(self, 1))), name)()


for _name in "add sub mul truediv floordiv mod pow matmul and or xor".split():
    setattr(Late, f"__{_name}__", _binary(f"__{_name}__"))
    setattr(Late, f"__r{_name}__", _binary(f"__{_name}__", reflected=True))
for _name in "lt le gt ge".split():
    setattr(Late, f"__{_name}__", _binary(f"__{_name}__"))
for _name in "neg pos abs invert".split():
    setattr(Late, f"__{_name}__", _unary(f"__{_name}__"))
