"""What the calls in a constructor give: layers of torch, arrays, built-in functions, methods of containers and of modules."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import reduce
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final

from oomlint.api_names import CASTS_MODEL, SAME_MODEL
from oomlint.budget.building_arrays import array, item_of, shape_of
from oomlint.budget.building_layers import copied, layer
from oomlint.budget.costs import FLOAT
from oomlint.budget.parts import (
    Array,
    Class,
    Function,
    Layer,
    Library,
    Made,
    Method,
    Missing,
    Outside,
    Partly,
    Rest,
    all_parts,
    is_part,
    items_of,
    parts_of,
    text_of,
)
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.byte_size import ITEM_BYTES
from oomlint.model import names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import libcst as cst

    from oomlint.budget.parts import Names
    from oomlint.model.project import Project
    from oomlint.model.values import ClassRef

_COPIES: Final = frozenset({"deepcopy", "copy"})
_WRAPPERS: Final = frozenset({"DataParallel", "DistributedDataParallel", "compile", "convert_sync_batchnorm", "script", "checkpoint_wrapper"})
_WEIGHED: Final = frozenset({"weight_norm", "spectral_norm", "orthogonal"})
_AS_LARGE: Final = frozenset({"contiguous", "clone", "detach", "abs", "normal_", "uniform_", "fill_", "zero_", "mul_", "add_", "sqrt", "exp", "log", "t"})
_TYPES: Final = frozenset({"half", "double", "bfloat16", "long", "int", "bool", "to", "type"})

_PLAIN: Final[dict[str, Callable[..., Any]]] = {
    "len": lambda value: len(value.parts) if isinstance(value, Layer) else len(value),
    "range": range,
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "max": max,
    "min": min,
    "sum": sum,
    "abs": abs,
    "round": round,
    "sorted": sorted,
    "divmod": divmod,
    "pow": pow,
    "math.sqrt": math.sqrt,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.log2": math.log2,
    "math.log": math.log,
    "math.prod": math.prod,
    "math.exp": math.exp,
    "math.pow": math.pow,
    "numpy.sqrt": math.sqrt,
    "numpy.ceil": math.ceil,
    "numpy.floor": math.floor,
    "numpy.log2": math.log2,
    "numpy.prod": math.prod,
}
# Those that only put their arguments together, whatever these are.
_TOGETHER: Final[dict[str, Callable[..., Any]]] = {
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "collections.OrderedDict": dict,
    "zip": lambda *lists: list(zip(*lists, strict=False)),
    "enumerate": lambda items, start=0: list(enumerate(items, start)),
    "reversed": lambda items: list(reversed(items)),
    "itertools.chain": lambda *lists: list(chain(*lists)),
    "itertools.accumulate": lambda items: list(accumulate(items)),
}
BUILT_IN: Final = frozenset({*(word for word in (*_PLAIN, *_TOGETHER) if "." not in word), "getattr", "setattr", "isinstance", "print", "map", "hasattr"})
_OF_LISTS: Final = frozenset({"append", "extend", "insert", "pop", "index", "count", "copy", "reverse"})
_OF_DICTS: Final = frozenset({"items", "keys", "values", "get", "pop", "update", "copy", "setdefault"})
_OF_STRINGS: Final = frozenset({"format", "lower", "upper", "split", "startswith", "endswith", "replace", "strip", "join", "isdigit"})
# Methods that change no part.
_LOOKS: Final = frozenset(
    "parameters named_parameters state_dict load_state_dict modules named_modules children named_children buffers named_buffers size dim numel zero_grad "
    "get_parameter get_submodule forward __call__ __class__ training register_forward_hook register_backward_hook weight bias data extra_repr".split()
)
_FILLS: Final = frozenset({"append", "extend", "insert", "add_module", "register_module", "register_parameter", "update", "pop", "setdefault"})


class Calls(ABC):
    """Calls of what a constructor names."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)

    @abstractmethod
    def run(self, function: Function, plain: Sequence[Any], named: dict[str, Any]) -> Any:
        """What a function of the project gives."""

    @abstractmethod
    def construct(self, cls: ClassRef, plain: Sequence[Any], named: dict[str, Any]) -> Any:
        """An object of a class of the project."""

    @abstractmethod
    def of_class(self, cls: Class, word: str) -> Any:
        """An attribute of a class."""

    def call(self, called: Any, plain: Sequence[Any], named: dict[str, Any], node: cst.Call, around: Names) -> Any:
        """What a call gives."""
        match called:
            case Partly():
                return self.call(called.func, [*called.plain, *plain], {**called.named, **named}, node, around)
            case Function():
                return self.run(called, plain, named)
            case Class():
                return self.construct(called.ref, plain, named)
            case Library():
                return self._library(called.name, plain, named, node, around)
            case Method():
                return self._method(called.of, called.name, plain, named, text_of(node, around.module))
        # Nobody knows what it does with what it is given.
        self.spoil_given([*plain, *named.values()], text_of(node, around.module))
        return Missing(text_of(node, around.module))

    @staticmethod
    def spoil_given(given: Sequence[Any], text: str) -> None:
        """Nobody knows what becomes of what is handed to something unknown."""
        for one in given:
            if isinstance(one, Made | Layer):
                one.missing.append(text)
            elif isinstance(one, list):
                one.append(Rest(text))
            elif isinstance(one, dict):
                one[Rest(text)] = None

    # -- attributes ----------------------------------------------------------------------------------------------------------

    def attribute(self, value: Any, word: str, text: str) -> Any:
        """An attribute of a value."""
        match value:
            case Made():
                if word in value.attributes:
                    return value.attributes[word]
                found = self.of_class(Class(value.cls), word)
                if isinstance(found, Function):
                    bound = Function(found.module, found.scope, None if names.is_static(found.scope) else value)
                    return self.run(bound, [], {}) if names.is_property(found.scope) else bound
                return Method(value, word) if isinstance(found, Missing) and value.module else found
            case Class():
                return self.of_class(value, word) if word != "__name__" else value.ref.scope.name
            case Library():
                return math.pi if value.name == "math" and word == "pi" else Library(f"{value.name}.{word}")
            case Layer():
                return value.parts.get(word, value.options.get(word, Method(value, word)))
            case Array():
                return value.shape if word == "shape" else Method(value, word)
            case list() | tuple() | dict() | str():
                return Method(value, word)
        return Missing(text)

    def set_attribute(self, value: Any, word: str, new: Any) -> None:
        """Set an attribute of an object, or the weight of a layer, which is another one's from then on."""
        if isinstance(value, Made):
            for base in [key for key in value.attributes if key.startswith("(") and (new is None or is_part(new))]:
                del value.attributes[base]  # it may have been a part of the layer that the class derives from
                value.missing.append(f"the rest of {base}")
            value.attributes[word] = new
        elif isinstance(value, Layer) and word == "weight":
            shared = isinstance(new, Method) and isinstance(new.of, Layer) and value.without_weight is not None
            value.missing += [] if shared else ["a weight that is replaced"]
            value.numbers = value.without_weight or 0
        elif isinstance(value, Layer) and word == "bias":
            value.missing.append("a bias that is replaced")
            value.numbers = 0
        elif isinstance(value, Layer) and is_part(new):
            value.parts[word] = new

    def fill(self, value: Any, word: str, more: Any) -> None:
        """Say that a method may have put something on a container."""
        if word not in _FILLS:
            return
        if isinstance(value, Layer | Made):
            value.missing.append(more.text)
        elif isinstance(value, list):
            value.append(Rest(more.text))
        elif isinstance(value, dict):
            value[Rest(more.text)] = more

    # -- methods -------------------------------------------------------------------------------------------------------------

    def _method(self, of: Any, word: str, plain: Sequence[Any], named: dict[str, Any], text: str) -> Any:
        missing = Missing(text)
        if isinstance(of, Layer | Made):
            return self._of_module(of, word, plain, named, text)
        if isinstance(of, Array):
            return self._of_array(of, word, plain, text)
        known = _OF_LISTS if isinstance(of, list | tuple) else _OF_DICTS if isinstance(of, dict) else _OF_STRINGS
        if word not in known or any(isinstance(one, Missing) for one in plain[:1] if word not in {"append", "insert", "setdefault"}):
            self.spoil_given([of], text)
            return missing
        if items_of(of) is None and word != "append":
            return missing
        if isinstance(of, list) and word == "extend":
            items = items_of(plain[0]) if plain else None
            of.extend(items if items is not None else [Rest(text)])
            return None
        if isinstance(of, dict) and word in {"items", "keys", "values"}:
            return list(getattr(of, word)())
        if isinstance(of, str) and any(not isinstance(one, str | int | float) for one in (*plain, *named.values())):
            return missing
        try:
            return getattr(of, word)(*plain, **named)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):
            return missing

    def _of_module(self, of: Layer | Made, word: str, plain: Sequence[Any], named: dict[str, Any], text: str) -> Any:
        parts = of.parts if isinstance(of, Layer) else of.attributes
        if word in CASTS_MODEL - SAME_MODEL or (
            word in _TYPES and any(isinstance(one, Library) and item_of(one) != FLOAT for one in (*plain, *named.values()))
        ):
            of.missing.append(text)
            return of
        if word in {"half", "double", "bfloat16"}:
            _lose(of, text)
            return of
        if word in SAME_MODEL or word in {"apply", "requires_grad_", "share_memory"}:
            return of
        if word in {"append", "insert"} and plain:
            parts[str(len(parts))] = plain[-1]
            return of
        if word == "extend" and plain:
            items = items_of(plain[0])
            for one in items if items is not None else [Missing(text)]:
                parts[str(len(parts))] = one
            return of
        if word in {"add_module", "register_module", "register_parameter"}:
            given = [*plain, *named.values()]
            parts[given[0] if given and isinstance(given[0], str) else f"({len(parts)})"] = given[1] if len(given) > 1 else Missing(text)
            return None
        if word == "register_buffer":
            value = plain[1] if len(plain) > 1 else named.get("tensor")
            if isinstance(value, Array) and plain and isinstance(plain[0], str):
                parts[plain[0]] = Array(value.shape, value.item, kept=True)
            return None
        if word == "children":
            return parts_of(of) if _whole(of) else Missing(text)
        if word == "modules":
            return list(all_parts(of)) if _whole(of) else Missing(text)
        if word == "update" and plain and isinstance(plain[0], dict):
            parts.update(plain[0])
            return None
        if word in {"keys", "values", "items"} and isinstance(of, Layer):
            return list(getattr(of.parts, word)())
        if word not in _LOOKS:
            of.missing.append(text)
            if word in {"pop", "popitem", "clear", "__delitem__", "__delattr__"}:
                parts.clear()
        return Missing(text)

    def _of_array(self, of: Array, word: str, plain: Sequence[Any], text: str) -> Any:
        if word in _AS_LARGE:
            return Array(of.shape, of.item)
        if word in {"float", "cuda", "cpu"} or (word == "to" and plain and not isinstance(plain[0], Library)):
            return Array(of.shape, FLOAT if word == "float" else of.item)
        if word == "unsqueeze":
            return Array((*of.shape, 1), of.item)
        if word in {"view", "reshape", "permute", "transpose"}:
            return Array((math.prod(of.shape),), of.item)
        if word in {"repeat", "expand"}:
            times = shape_of(plain)
            return Array((math.prod(of.shape), *times), of.item) if times is not None and word == "repeat" else Missing(text)
        return Array(of.shape, ITEM_BYTES[word]) if word in {"half", "double", "long", "int", "bool"} else Missing(text)

    # -- libraries -----------------------------------------------------------------------------------------------------------

    def _library(self, name: str, plain: Sequence[Any], named: dict[str, Any], node: cst.Call, around: Names) -> Any:
        name = names.canonical(name).removeprefix("builtins.")
        library, _, word = name.rpartition(".")
        text = text_of(node, around.module)
        if name in _TOGETHER or name in _PLAIN:
            return _computed(name, plain, named, text)
        if name in {"getattr", "hasattr"} and len(plain) > 1 and isinstance(plain[1], str):
            found = self.attribute(plain[0], plain[1], text)
            return found if name == "getattr" else Missing(text)
        if name == "setattr" and len(plain) > 2:  # noqa: PLR2004 - what it takes
            if isinstance(plain[1], str):
                self.set_attribute(plain[0], plain[1], plain[2])
            elif isinstance(plain[0], Made):
                plain[0].missing.append(text)
            return None
        if name == "isinstance" and len(plain) > 1:
            return _is_instance(plain[0], plain[1], text)
        if name == "print":
            return None
        if name == "map" and len(plain) > 1:
            items = items_of(plain[1])
            return [self.call(plain[0], [one], {}, node, around) for one in items] if items is not None else Missing(text)
        if name == "functools.partial" and plain:
            return Partly(plain[0], tuple(plain[1:]), named)
        if library == "copy" and word in _COPIES and plain:
            return copied(plain[0]) if word == "deepcopy" else plain[0]
        if word in _WRAPPERS and library.startswith("torch") and plain:
            return plain[0]
        if word in _WEIGHED and library.startswith("torch.nn.utils") and plain:
            if word != "spectral_norm" and isinstance(plain[0], Layer | Made):
                plain[0].missing.append(f"the norms of {text}")
            return plain[0]
        if library.startswith(("torch.nn.init", "torch.nn.functional")):
            return plain[0] if plain else Missing(text)
        if library == "torch.nn.parameter" or name in {"torch.nn.Parameter", "torch.nn.parameter.Parameter"}:
            value = plain[0] if plain else named.get("data")
            return Array(value.shape, value.item, parameter=True) if isinstance(value, Array) else Missing(text)
        if library.startswith("torch.nn") and library != "torch.nn.utils":
            return layer(word, plain, named, text)
        if library == "torch":
            return array(word, plain, named, text)
        if library.startswith("einops.layers"):
            return Layer()  # they move numbers, and have none
        self.spoil_given([*plain, *named.values()], text)
        return Missing(text)


def _whole(value: Layer | Made) -> bool:
    return not value.missing and all(not isinstance(one, Missing) for one in (value.parts.values() if isinstance(value, Layer) else ()))


def _lose(of: Layer | Made, text: str) -> None:
    """Numbers that have another type from now on."""
    for one in all_parts(of):
        if isinstance(one, Layer):
            one.numbers = 0
        if isinstance(one, Layer | Made):
            one.missing.append(text)


def _computed(name: str, plain: Sequence[Any], named: dict[str, Any], text: str) -> Any:
    """A built-in function of known arguments."""
    together = _TOGETHER.get(name)
    given = [items_of(one) if isinstance(one, Layer) else one for one in plain]
    if any(one is None and whole is not None for one, whole in zip(given, plain, strict=True)):
        return Missing(text)
    known = not any(isinstance(one, Missing | Outside | Made | Array) for one in (*given, *(() if name == "dict" else named.values())))
    known = known and not any(isinstance(one, list | tuple | dict | range) and items_of(one) is None for one in given)
    known = known and "**" not in named
    if together is None:
        known = known and not any(isinstance(each, Missing) for one in given if isinstance(one, list | tuple) for each in one)
    if not known:
        return Missing(text)
    try:
        return (together or _PLAIN[name])(*given, **named)
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        return Missing(text)


def _is_instance(value: Any, kinds: Any, text: str) -> Any:
    """Whether a plain value is of some built-in kinds; of layers nobody is asked."""
    words = {"int": int, "float": float, "str": str, "list": list, "tuple": tuple, "dict": dict, "bool": bool}
    wanted = [words.get(one.name.removeprefix("builtins.")) if isinstance(one, Library) else None for one in (kinds if isinstance(kinds, tuple) else (kinds,))]
    if isinstance(value, Missing | Outside | Layer | Made | Array) or None in wanted:
        return Missing(text)
    return reduce(lambda found, kind: found or (kind is not None and isinstance(value, kind)), wanted, False)  # noqa: FBT003 - where it begins
