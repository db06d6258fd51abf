"""What the calls in a constructor give: layers of torch, arrays, built-in functions, methods of containers and of modules."""

from __future__ import annotations

import math
from itertools import accumulate, chain, pairwise, product
from typing import TYPE_CHECKING, Any, Final

from oomlint.budget.building_arrays import array
from oomlint.budget.building_layers import copied, layer
from oomlint.budget.building_methods import Methods
from oomlint.budget.layers import LAYERS
from oomlint.budget.parts import (
    CONTAINERS,
    MOST_ROUNDS,
    Class,
    ForeignOptions,
    Function,
    Layer,
    Library,
    Made,
    Missing,
    ParameterTensor,
    Partly,
    PlainValue,
    Rest,
    ValueMethod,
    hashable,
    items_of,
    text_of,
)
from oomlint.model import names
from oomlint.model.freezing import has_no_parameters
from oomlint.model.values import External as ExternalValue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import libcst as cst

    from oomlint.budget.parts import Names

KNOWN: Final = frozenset({*LAYERS, *CONTAINERS, "Dropout", "ReLU", "Identity"})  # layers of which none is a kind of another
_COPIES: Final = frozenset({"deepcopy", "copy"})
WRAPPERS: Final = frozenset({"DataParallel", "DistributedDataParallel", "compile", "convert_sync_batchnorm", "script", "checkpoint_wrapper"})
_SHARDS: Final = frozenset({"FullyShardedDataParallel", "fully_shard"})
_OFFLOADS: Final = frozenset({"CPUOffload", "CPUOffloadPolicy"})
_WEIGHED: Final = frozenset({"weight_norm", "spectral_norm", "orthogonal"})

_PLAIN: Final[dict[str, Callable[..., Any]]] = {
    "len": lambda value: len(value.parts) if isinstance(value, Layer) else len(value),
    **{one.__name__: one for one in (range, int, float, str, bool, max, min, sum, abs, round, sorted, divmod, any, all, pow)},
    **{f"math.{word}": getattr(math, word) for word in ("sqrt", "ceil", "floor", "log2", "log", "prod", "exp", "pow")},
    **{f"numpy.{word}": getattr(math, word) for word in ("sqrt", "ceil", "floor", "log2", "prod")},
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
    "itertools.chain.from_iterable": lambda lists: list(chain(*lists)),
    "itertools.product": lambda *lists, repeat=1: list(product(*lists, repeat=min(repeat, 4))),
    "itertools.pairwise": lambda items: list(pairwise(items)),
    "itertools.repeat": lambda value, times: [value] * min(times, MOST_ROUNDS),
    "iter": list,
}
_NAMESPACES: Final = {  # objects that are made with their attributes, and the libraries that have them
    "SimpleNamespace": {"types"},
    "Namespace": {"argparse"},
    "EasyDict": {"easydict"},
    "AttrDict": {"attrdict"},
    "Munch": {"munch"},
    "ConfigDict": {"ml_collections"},
}
_NUMBERS: Final = frozenset("len int float bool str round".split())  # built-in functions that give a number or a text, whatever they are given
_TUPLES: Final = {"_single": 1, "_pair": 2, "_triple": 3, "to_1tuple": 1, "to_2tuple": 2, "to_3tuple": 3}
_MORE: Final = "getattr setattr delattr isinstance print map hasattr vars type any all next filter set super globals".split()
_OF_ENVIRONMENT: Final = frozenset({"os.getenv", "os.environ.get"})
BUILT_IN: Final = frozenset({*(word for word in (*_PLAIN, *_TOGETHER) if "." not in word), *_MORE})
_KINDS: Final = {"int": int, "float": float, "str": str, "list": list, "tuple": tuple, "dict": dict, "bool": bool, "range": range}


class BuildingCalls(Methods):
    """Calls of what a constructor names."""

    def call(self, called: Any, plain: Sequence[Any], named: dict[str, Any], node: cst.Call, around: Names) -> Any:
        """What a call gives."""
        match called:
            case Partly():
                return self.call(called.func, [*called.plain, *plain], {**called.named, **named}, node, around)
            case Function():
                value = self.run(called, plain, named)
                this = called.this if called.this is not None else plain[0] if plain else None
                if called.scope.name == "__init__" and isinstance(value, Missing) and isinstance(this, Made):
                    this.missing.append(this.cls.scope.name)
                return value
            case Class():
                return self.construct(called.ref, plain, named)
            case Library():
                return self._library(called.name, plain, named, node, around)
            case ValueMethod():
                found = self.method(called.of, called.name, plain, named, text_of(node, around.module))
                self.spoil_given([*plain, *named.values()] if isinstance(found, Missing) else [], text_of(node, around.module))
                return found
            case Made():
                own = self.of_class(Class(called.cls), "__call__")
                if isinstance(own, Function):
                    return self.run(Function(own.module, own.scope, called), plain, named)
        return self.unknown([*plain, *named.values()], node, around)

    # -- libraries -----------------------------------------------------------------------------------------------------------

    def _library(self, name: str, plain: Sequence[Any], named: dict[str, Any], node: cst.Call, around: Names) -> Any:
        name = names.canonical(name).removeprefix("builtins.")
        library, _, word = name.rpartition(".")
        text = text_of(node, around.module)
        if name == "dict" and plain and isinstance(plain[0], ForeignOptions):
            plain = [self.entries(plain[0])]
        if name in _TOGETHER or name in _PLAIN:
            found = _computed(name, plain, named, text)
            return PlainValue(text) if isinstance(found, Missing) and name in _NUMBERS else found
        if not library and name in _MORE:
            return self._built_in(name, plain, node, around)
        if name in _OF_ENVIRONMENT:
            return self.outside(node, around.frame or self.evaluator.calls.plain_frame(around.module, around.scope))
        if library == "dataclasses" or name == "functools.partial":
            return self._of_standard(word, plain, named, node, around)
        if name == "importlib.import_module" and plain and isinstance(plain[0], str):
            found = self.project.find(self.project.locate(around.module.path, plain[0]) or "")
            return self.root(found) if found is not None else self.unknown(plain, node, around)
        if word == "__init__" and plain and isinstance(plain[0], Made):
            return self.set_base(plain[0], name, plain[1:], named)
        if (library == "copy" and word in _COPIES and plain) or (name == "torch.optim.swa_utils.AveragedModel" and plain):
            return copied(plain[0], deep=word != "copy")
        if word in _NAMESPACES and library.partition(".")[0] in _NAMESPACES[word] and not any(not isinstance(one, dict) for one in plain):
            return namespace(
                {**(plain[0] if plain else {}), **{Rest(text) if key == "**" else key: one for key, one in named.items()}}, deep=word[-9:] != "Namespace"
            )
        return self._of_layers(name, plain, named, node, around)

    def _of_layers(self, name: str, plain: Sequence[Any], named: dict[str, Any], node: cst.Call, around: Names) -> Any:
        """What functions give that make layers and arrays, wrap them and share them out."""
        library, _, word = name.rpartition(".")
        text = text_of(node, around.module)
        if library.startswith("torch.distributed") and word in _SHARDS and plain:
            return _sharded(word, plain[0], named, text)
        if library.startswith("torch.distributed") and word in _OFFLOADS:
            return namespace({"offload_params": plain[0] if plain else named.get("offload_params", word.endswith("Policy"))}, deep=False)
        wrapped = plain[0] if plain else named.get("module", named.get("model"))
        if word in WRAPPERS and library.startswith("torch") and wrapped is not None:
            return wrapped
        if word in _WEIGHED and library.startswith("torch.nn.utils") and plain:
            if word != "spectral_norm" and isinstance(plain[0], Layer | Made):
                plain[0].missing.append(f"the norms of {text}")
            return plain[0]
        if word == "register_parametrization" and len(plain) > 2:  # noqa: PLR2004 - a module, a name, what is put on it
            held = plain[0].attributes if isinstance(plain[0], Made) else plain[0].parts if isinstance(plain[0], Layer) else {}
            held[f"parametrizations.{plain[1]}.{len(held)}"] = plain[2]
            return plain[0]
        if library.startswith(("torch.nn.init", "torch.nn.functional")):
            return plain[0] if plain else Missing(text)
        if library == "torch.nn.parameter" or name in {"torch.nn.Parameter", "torch.nn.parameter.Parameter"}:
            value = plain[0] if plain else named.get("data")
            return ParameterTensor(value.shape, value.item, parameter=True) if isinstance(value, ParameterTensor) else Missing(text)
        if word in _TUPLES and library.startswith(("torch.nn.modules", "timm")) and plain:
            return plain[0] if isinstance(plain[0], tuple | list | Missing) else (plain[0],) * _TUPLES[word]
        if library.startswith("torch.nn") and not library.startswith("torch.nn.utils"):
            return layer(word, plain, named, text)
        if library in {"torch", "numpy"}:
            found = array(word, plain, named, text) if library == "torch" or word == "linspace" else PlainValue(text)
            return PlainValue(text) if isinstance(found, Missing) and word != "load" else found  # only what is read from a file may be a module
        if library.startswith("einops.layers"):
            return Layer(word)  # they move numbers, and have none
        found = self.unknown([*plain, *named.values()], node, around)
        return PlainValue(text) if isinstance(found, Missing) and has_no_parameters(name) else found

    @staticmethod
    def set_base(made: Made, name: str, plain: Sequence[Any], named: dict[str, Any]) -> None:
        """Run the ``__init__`` of a layer of a library that the class of an object derives from."""
        library, _, word = name.removesuffix(".__init__").rpartition(".")
        if library.startswith("torch.nn") and word != "Module":
            made.attributes[f"({word})"] = layer(word, plain, named, word)

    def _built_in(self, name: str, plain: Sequence[Any], node: cst.Call, around: Names) -> Any:
        text = text_of(node, around.module)
        first, items = plain[0] if plain else None, items_of(plain[-1]) if plain else None
        if name in {"getattr", "hasattr"} and len(plain) > 1 and isinstance(plain[1], str):
            found = self.attribute(first, plain[1], text)
            if isinstance(first, Made) and isinstance(found, Missing | ValueMethod) and self._lacks(first, plain[1]):
                return plain[2] if len(plain) > 2 else False if name == "hasattr" else found  # noqa: PLR2004 - a default
            sure = not isinstance(found, Missing | ValueMethod) and isinstance(first, Made | Layer | Class)
            return found if name == "getattr" else True if sure else Missing(text)
        if name == "setattr" and len(plain) > 2:  # noqa: PLR2004 - what it takes
            if isinstance(plain[1], str):
                self.set_attribute(first, plain[1], plain[2])
            else:
                self.spoil_given([first], text, settings=True)
            return None
        if name == "delattr" and len(plain) > 1:
            self.remove(first, plain[1], text)
            return None
        if name == "isinstance" and len(plain) > 1:
            return self._is_instance(first, plain[1], text)
        if name in {"any", "all"} and items is not None:
            return _computed(name, [items], {}, text)
        if name == "globals":
            return self.root(around.module)
        if name == "vars" and plain:
            return self.attribute(first, "__dict__", text)
        if name == "type" and len(plain) == 1:
            return (
                Class(first.cls)
                if isinstance(first, Made)
                else Library(f"torch.nn.{first.kind}")
                if isinstance(first, Layer) and first.kind
                else _kind_of(first, text)
            )
        if name == "map" and len(plain) > 1 and items is not None:
            return [self.call(first, [one], {}, node, around) for one in items]
        if name == "set" and items is not None and all(hashable(one) for one in items):
            return tuple(dict.fromkeys(items))
        if name in {"map", "filter", "next"}:
            self.spoil_given(plain, text)
        return None if name == "print" else Missing(text)

    def _lacks(self, made: Made, word: str) -> bool:
        """Whether an object surely has no such attribute."""
        return not made.module and not made.missing and word not in made.attributes and isinstance(self.of_class(Class(made.cls), "__getattr__"), Missing)

    def _of_standard(self, word: str, plain: Sequence[Any], named: dict[str, Any], node: cst.Call, around: Names) -> Any:
        first = plain[0] if plain else None
        if word == "partial" and plain:
            return Partly(first, tuple(plain[1:]), named)
        if word == "field":
            made = named.get("default_factory")
            return self.call(made, [], {}, node, around) if made is not None else named.get("default", Missing("a field"))
        if word in {"asdict", "replace"} and isinstance(first, Made):
            return Made(first.cls, first.module, {**first.attributes, **named}, list(first.missing)) if word == "replace" else copied(first.attributes)
        return self.unknown([*plain, *named.values()], node, around)

    def _is_instance(self, value: Any, kinds: Any, text: str) -> Any:
        """Whether a value is of some classes."""
        verdicts = [self._is_a(value, one) for one in (kinds if isinstance(kinds, tuple) else (kinds,))]
        return True if True in verdicts else Missing(text) if None in verdicts else False

    def _is_a(self, value: Any, kind: Any) -> bool | None:
        word = kind.name.removeprefix("builtins.") if isinstance(kind, Library) else ""
        if isinstance(value, Made):
            lineage = self.evaluator.lineage(value.cls)
            if isinstance(kind, Class):
                return True if kind.ref in lineage else None if value.missing else False
            above = {names.canonical(one.name).rpartition(".")[2] for one in lineage if isinstance(one, ExternalValue)}
            last = word.rpartition(".")[2]
            return True if last in above or (last == "Module" and value.module) else False if word in _KINDS or (last in KNOWN and not value.missing) else None
        if isinstance(value, Layer):
            if isinstance(kind, Class):
                return False if value.kind else None
            last = word.rpartition(".")[2]
            if not value.kind or not word.startswith("torch.nn"):
                return False if word in _KINDS else None
            return last in {value.kind, "Module"} or (False if last in KNOWN and value.kind in KNOWN else None)
        if isinstance(value, Missing | ForeignOptions | ParameterTensor | ValueMethod):
            return None
        plain = _KINDS.get(word)
        return isinstance(value, plain) if plain is not None else False if word.startswith("torch.nn.") else None


def _sharded(word: str, model: Any, named: dict[str, Any], text: str) -> Any:
    """A module whose parameters, gradients and states are shared out among the ranks, unless it is told another strategy."""
    if not isinstance(model, Layer | Made) or "sharding_strategy" in named or "process_group" in named or "mesh" in named:
        return Missing(text)
    policy = named.get("cpu_offload" if word == "FullyShardedDataParallel" else "offload_policy")
    offloads = policy.changed.get("offload_params") if isinstance(policy, ForeignOptions) else None if policy is None else Missing(text)
    if isinstance(offloads, Missing):
        return offloads
    model.shards = "host" if offloads else "device"
    return model


def namespace(given: dict[Any, Any], *, deep: bool) -> ForeignOptions:
    """An object with attributes; in a deep one, dictionaries have attributes too."""
    return ForeignOptions(None, {key: namespace(one, deep=True) if deep and isinstance(one, dict) else one for key, one in given.items()})


def _kind_of(value: Any, text: str) -> Any:
    word = "functools.partial" if isinstance(value, Partly) else "type" if isinstance(value, Class | Library) else type(value).__name__
    return Library(word) if word in _KINDS or isinstance(value, Partly | Class | Library) else Missing(text)


def _computed(name: str, plain: Sequence[Any], named: dict[str, Any], text: str) -> Any:
    """A built-in function of known arguments."""
    together = _TOGETHER.get(name)
    named = {key: value for key, value in named.items() if key != "strict"}
    given = [items_of(one) if isinstance(one, Layer | ParameterTensor) else one for one in plain]
    if any(one is None and whole is not None for one, whole in zip(given, plain, strict=True)):
        return Missing(text)
    known = not any(isinstance(one, Missing | ForeignOptions | Made | ValueMethod) for one in (*given, *(() if name == "dict" else named.values())))
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
