"""What functions of torch, numpy and Python give."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import ALLOCATORS, AS_ARRAY, COLLECTIONS, PARTIALS, SELECTS, STACKS, TENSOR_TYPES
from oomlint.model import arguments, names
from oomlint.model.events import AS_JSON
from oomlint.model.flow_state import flag, instance_of, makes_step, part_of
from oomlint.model.flow_values import FlowValues
from oomlint.model.freezing import ADDS_MODULE
from oomlint.model.tensor_parts import FEW_OF_SAMPLE
from oomlint.model.tensor_shapes import CONVOLVED, PIXELS, POOLS, SPECTRA, axes_of, pixels, pooled, reduced_along, resized, viewed
from oomlint.model.tensor_state import (
    MAP,
    PLAIN,
    UNKNOWN,
    Device,
    Graph,
    SampleSize,
    Storage,
    TensorState,
    ValueKind,
    compared,
    is_of_two,
    join,
    join_all,
    mixed,
    pack,
    smaller,
    tags_of,
    tensor,
)
from oomlint.model.torch_tables import COMPARES, HOST_LIBRARIES, PAIRS, PICKS, REDUCTIONS, SCORES, SMALL_FUNCTIONS, VIEWS
from oomlint.model.values import Const, ExternalCall, Partial
from oomlint.syntax.nodes import UNKNOWN_KEY, beginning, constant_key

if TYPE_CHECKING:
    from oomlint.model.flow_state import State

# Functions that go through what they are given, element by element.
_HANDS_ON: Final = frozenset({"rich.progress.track", "itertools.islice", "fastprogress.progress_bar"})
_JOINS: Final = frozenset({"torch.cat", "torch.stack", "torch.vstack", "torch.hstack", "torch.concat", "torch.concatenate", "torch.nn.utils.rnn.pad_sequence"})
_RESHAPES: Final = frozenset("reshape ravel argsort unique bincount nonzero diff histogram dot matmul mean sum std max min median prod linspace arange".split())
_ANYTHING: Final = frozenset({"__import__", "eval", "globals", "locals"})  # built-in functions that may give a module or a class
_BY_SIZES: Final = ALLOCATORS - {"full"} | {"rand", "randn"}
_NEW: Final = frozenset("zeros ones empty full rand randn zeros_like ones_like rand_like randn_like eye linspace full_like empty_like".split())


class FlowLibraries(FlowValues):
    """Follows calls of libraries."""

    def _note_parts(self, node: cst.Call, args: list[TensorState]) -> None:
        """Note what a call makes one array of, operand by operand."""
        first = node.args[0].value if node.args else None
        if isinstance(first, cst.List | cst.Tuple) and args:
            listed = dict(args[0].items)
            found = [(element.value, listed.get(place)) for place, element in enumerate(first.elements)]
        else:
            found = [(arg.value, held) for arg, held in zip(node.args, args, strict=False)]
        for part, held in found:
            if held is not None:
                self.record.parts[part] = join(self.record.parts.get(part), held)

    def external(self, name: str, node: cst.Call, args: list[TensorState], state: State) -> TensorState:
        """What a library's function gives, and what it does."""
        last = name.rpartition(".")[2]
        if last in STACKS or name == "numpy.append":
            self._note_parts(node, args)
        if name in {"torch.autograd.grad", "torch.autograd.backward"}:
            self.went_backward(node, state, join_all(args[:1]), retain=flag(node, "retain_graph") or flag(node, "create_graph"))
            self.used(node, state, "gradients")
            return TensorState(ValueKind.PACK, inside=tensor(graph=Graph.MAYBE)) if last == "grad" else PLAIN
        if name in {"json.dump", "json.dumps"} and args and not arguments.has(node, "cls", "default"):
            self.used(node, state, AS_JSON, args[0].unrecorded())
        if name == "torch.is_grad_enabled":
            self.used(node, state, "gradients")
            return PLAIN
        if name.startswith(("torch.distributions.", "torch.nn.utils.rnn.pack_")):
            found = mixed(args)
            return UNKNOWN.having(graph=found.graph, sources=found.sources, tags=found.tags)
        aside = ("torch.nn.utils.clip_grad", "torch.manual_seed", "torch.cuda.", "torch.save", "torch.distributed.")
        if name.startswith(aside) and not name.endswith("Tensor"):
            return tensor(size=SampleSize.SCALAR, device=Device.UNKNOWN) if "clip_grad" in name else PLAIN
        if name.startswith("builtins."):
            return self._builtin(last, node, args, state)
        if name.startswith(("tqdm.", "itertools.cycle", "itertools.chain")) or name in _HANDS_ON:
            return args[0] if args else UNKNOWN
        if name in PARTIALS:
            partial = next((alt.value for alt in self.evaluator.values(node, self.act.frame) if isinstance(alt.value, Partial)), None)
            return TensorState(ValueKind.OBJECT, value=partial) if partial is not None else UNKNOWN
        if name.startswith("copy."):
            return (args[0].copied() if last == "deepcopy" else args[0]).having(home=()) if args else UNKNOWN
        if name in _JOINS:
            return _together(args, node if last == "stack" else None)
        return self._object_of_library(name, node, args, state)

    def _object_of_library(self, name: str, node: cst.Call, args: list[TensorState], state: State) -> TensorState:
        last = name.rpartition(".")[2]
        made = self.made_outside(name, node, self.act.frame)
        if made.kind is ValueKind.MODULE and not name.startswith("torch.nn.Sequential"):
            made = next((held for held in args if held.kind is ValueKind.MODULE), made)  # what it wraps
        if made.kind in {ValueKind.MODULE, ValueKind.ITERABLE, ValueKind.PACK}:
            return made
        if name.startswith("torch."):
            return self._torch(name, last, node, args)
        if name.startswith("numpy."):
            return _numpy(last, args)
        if name.startswith(
            ("torchmetrics.functional", "torch_scatter.", "einops.", "torchvision.", "kornia.", "torch_sparse.", "pytorch3d.", "horovod.torch.")
        ):
            return mixed(args)
        if SCORES.match(name):
            return PLAIN
        if name.startswith(HOST_LIBRARIES):
            return UNKNOWN.having(size=SampleSize.UNKNOWN, device=Device.HOST)
        if made.kind is ValueKind.OBJECT:
            live = [held for held in args if held.carries]
            if makes_step(node, args):
                self.went_backward(node, state, join_all([held.having(home=()) for held in args]), known=False)
            elif live:
                self.used(node, state, f"given to {last}", live[0])
            return made.having(tags=tags_of(args), sources=self.presume(node, state, last, args))
        return self.unknown_call(node, last, args, state)

    def _builtin(self, last: str, node: cst.Call, args: list[TensorState], state: State) -> TensorState:
        if last == "enumerate" and args:
            each = pack([(0, PLAIN), (1, self.element_of(args[0]))])
            return TensorState(
                ValueKind.ITERABLE, each=each, loader=args[0].loader, tags=args[0].tags, moved=args[0].moved if args[0].kind is ValueKind.ITERABLE else ""
            )
        if last == "zip" and args:
            loader = next((held.loader for held in args if held.loader is not None), None)
            return TensorState(
                ValueKind.ITERABLE,
                each=pack([(n, PLAIN if held.kind is ValueKind.PLAIN else self.element_of(held)) for n, held in enumerate(args)]),
                loader=loader,
            )
        if last in {"iter", "reversed"} and args:
            return args[0]
        if last == "next" and args:
            return args[0].each or UNKNOWN
        if last in COLLECTIONS:
            if not args:
                return TensorState(ValueKind.PACK, sure=True, exact=True, moved="list" if last == "list" else "")
            if args[0].kind is ValueKind.PACK:
                return args[0].having(home=())
            return TensorState(ValueKind.PACK, inside=self.element_of(args[0]), sure=True, tags=args[0].tags)
        if last == "dict" and args and args[0].kind is ValueKind.ITERABLE and args[0].each is not None and args[0].each.item(1) is not None:
            return TensorState(ValueKind.PACK, inside=args[0].each.item(1), sure=True, tags=args[0].tags)  # `dict(zip(keys, values))`
        if last in {"dict", "defaultdict"}:
            parts: list[tuple[object, TensorState]] = [(arg.keyword.value, held) for arg, held in zip(node.args, args, strict=True) if arg.keyword is not None]
            # What only keywords make is known as a whole.
            return pack(parts) if parts and len(parts) == len(node.args) and not arguments.has_stars(node) else pack(parts).having(exact=False)
        if last == "sum" and args:
            inner = args[0].any() if args[0].kind is ValueKind.PACK else self.element_of(args[0])
            return mixed([inner]).having(size=inner.size) if inner.kind is not ValueKind.UNKNOWN else UNKNOWN.having(tags=args[0].all_tags, graph=inner.graph)
        if last in {"max", "min", "abs", "pow"}:
            return join_all(args) if args else UNKNOWN
        if last == "map" and len(args) > 1:
            return TensorState(ValueKind.ITERABLE, each=UNKNOWN)
        if last == "range":
            return TensorState(ValueKind.ITERABLE, each=PLAIN)
        if last == "getattr":
            return self._by_computed_name(node, args, state)
        if last == "super":
            return TensorState(ValueKind.OBJECT, home=self.act.this)
        return UNKNOWN if last in _ANYTHING else PLAIN

    def _by_computed_name(self, node: cst.Call, args: list[TensorState], state: State) -> TensorState:
        """``getattr(x, "name")``: an attribute, of which only the object is known where the name is computed.

        What a network is asked for by a computed name, and what is called then, is one of its layers where layers have such names.
        """
        if len(args) > 1 and args[0].kind is ValueKind.MODULE and constant_key(node.args[1].value) is UNKNOWN_KEY:
            above = self.act.module.walk.parents.get(node)
            if isinstance(above, cst.Call) and above.func is node and self._is_layer_by_name(args[0], node.args[1].value):
                return part_of(args[0])
        if len(args) < 2 or not args[0].home:  # noqa: PLR2004 - an object and a name
            return UNKNOWN
        key = constant_key(node.args[1].value)
        path = (*args[0].home, key if isinstance(key, str) else "*")
        return state.env.get(path) or UNKNOWN.having(home=path)

    def _is_layer_by_name(self, module: TensorState, name: cst.BaseExpression) -> bool:
        """Whether a computed name is that of a layer: some are stored under names that begin like it, and no method or function is."""
        this, start = instance_of(module), beginning(name)
        stored: list[TensorState] = []
        for cls in self.evaluator.line(this.cls) if this is not None else []:
            for scope in cls.scope.children:
                if start and scope.name.startswith(start):
                    return False
                effects = scope.effects.get(names.self_name(scope) or "", ()) if start else ()
                given = {effect.path[0][1] for effect in effects if effect.kind == "assign" and len(effect.path) == 1}
                stored += [self.member(module, word) for word in given if isinstance(word, str) and word.startswith(start)]
                for call in scope.calls:
                    word, value = names.last_name(call.func), call.args[-1].value if call.args else None
                    made = scope.effects.get(value.value, ())[-1:] if isinstance(value, cst.Name) else ()
                    if word in ADDS_MODULE or (word == "setattr" and (isinstance(value, cst.Call) or any(isinstance(one.value, cst.Call) for one in made))):
                        stored.append(TensorState(ValueKind.MODULE))
        called = [held for held in stored if held.kind not in {ValueKind.PLAIN, ValueKind.PACK}]  # numbers and lists are not called
        return bool(called) and all(held.kind is ValueKind.MODULE for held in called)

    def _torch(self, name: str, last: str, node: cst.Call, args: list[TensorState]) -> TensorState:
        if last in {"no_grad", "enable_grad", "inference_mode"}:
            return UNKNOWN
        functional = name.startswith("torch.nn.functional.")
        if last in SMALL_FUNCTIONS:
            found = mixed(args)
            if not found.tensorlike:
                return tensor(size=SampleSize.SMALL, device=found.device)
            found = tensor(size=found.size, device=found.device, dims=found.dims)
            return compared(found) if last in COMPARES else smaller(found, axes_of(node, 1) if last in PICKS else None)
        if last in AS_ARRAY | TENSOR_TYPES | {"Variable", "as_strided"}:
            inner = args[0] if args else UNKNOWN
            graph = Graph.YES if flag(node, "requires_grad") else Graph.NO
            if last == "Variable":
                # What `volatile` asked for is not heard since torch 0.4.
                found = inner if inner.tensorlike else tensor(device=Device.UNKNOWN, size=inner.size)
                return found.having(graph=graph, sources=frozenset({id(node)})) if graph else found
            keeps = last in {"as_tensor", "from_numpy"} and inner.tensorlike
            device = Device.ACCELERATOR if self._to_accelerator(node) else Device.UNKNOWN if not keeps else inner.device
            return tensor(
                graph=graph,
                # `from_numpy` takes an array; one that a worker sends came through a pipe, and only a tensor's lies in shared memory.
                storage=inner.storage if keeps and (last == "as_tensor" or inner.kind is ValueKind.ARRAY) else Storage.OWN,
                size=inner.size,
                device=device,
                sources=frozenset({id(node)}) if graph else frozenset(),
                tags=inner.all_tags,
            )
        if last == "load":
            return UNKNOWN.having(value=ExternalCall(name, node, self.act.frame))  # a module, if it is called
        if last in _NEW:
            graph = Graph.YES if flag(node, "requires_grad") else Graph.NO
            few = last in _BY_SIZES and _has_few_for_each(node)
            return tensor(
                graph=graph,
                device=Device.ACCELERATOR if self._to_accelerator(node) else Device.UNKNOWN,
                sources=frozenset({id(node)}) if graph else frozenset(),
                size=SampleSize.SMALL if few or (last in _BY_SIZES and self._is_one_number(node, args)) else SampleSize.UNKNOWN,
                dims=MAP if few else 0,
            )
        if last in PAIRS and not is_of_two(last, args[1:]):
            found = mixed(args[:1])
            picked = smaller(found)
            index = picked.without_graph(kind=ValueKind.TENSOR)
            dims = len(node.args) > 1 or any(arg.keyword is not None for arg in node.args)
            values = (picked if last in SELECTS and found.size is SampleSize.DENSE else found).having(kind=ValueKind.TENSOR, sure=True)
            return pack([(0, values), (1, index), ("values", values), ("indices", index)]) if dims else values.having(size=SampleSize.SCALAR, dims=0)
        self.note_tensors(node, args)
        found = mixed(args)
        if functional and (
            last.endswith("loss") or last in {"cross_entropy", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "nll_loss"}
        ):
            reduction = arguments.named(node, "reduction")
            reduced = reduction is None or constant_key(reduction) != "none"
            if not found.tensorlike:
                return tensor(
                    graph=Graph.MAYBE if found.graph else Graph.NO,
                    size=SampleSize.SCALAR if reduced else SampleSize.SMALL,
                    tags=found.tags,
                    sources=found.sources,
                )
            return found.having(kind=ValueKind.TENSOR, size=SampleSize.SCALAR if reduced else SampleSize.SMALL, sure=True, dims=0)
        if last in SPECTRA:
            known = found if found.tensorlike else UNKNOWN.having(graph=Graph.MAYBE if found.graph else Graph.NO, tags=found.tags, sources=found.sources)
            return known.having(kind=ValueKind.TENSOR, sure=True, size=SampleSize.DENSE, dims=SPECTRA[last], storage=Storage.OWN, view=False)
        if not found.tensorlike:
            if found.kind is ValueKind.PLAIN and not args:
                return UNKNOWN
            return tensor(graph=Graph.MAYBE if found.graph else Graph.NO, tags=found.tags, sources=found.sources, device=Device.UNKNOWN)
        if last in REDUCTIONS:
            return reduced_along(found.having(kind=ValueKind.TENSOR, sure=True), node, 1)
        if last in VIEWS and args and args[0].tensorlike:
            return args[0].having(kind=ValueKind.TENSOR, sure=True, view=args[0].view, home=(), dims=viewed(last, node, 1, args[0].dims))
        if last in {"sigmoid", "softmax"}:
            return found.having(kind=ValueKind.TENSOR, sure=True, moved="unit")
        if functional and last in {"interpolate", "upsample"}:
            return found.having(kind=ValueKind.TENSOR, sure=True, dims=max(found.dims, resized(node)))
        if functional and POOLS.fullmatch(last):
            return found.having(kind=ValueKind.TENSOR, sure=True, dims=pooled(node, found.dims))
        if functional and last in CONVOLVED:
            found = found.having(dims=CONVOLVED[last], size=SampleSize.DENSE)
        return found.having(kind=ValueKind.OPAQUE if last[:1].isupper() and not functional else ValueKind.TENSOR, sure=True)

    def _is_one_number(self, node: cst.Call, args: list[TensorState]) -> bool:
        """Whether the sizes that a tensor is made with are one number: it is a vector. What a ``range`` counts to is a number, too."""
        sizes = [(arg.value, held) for arg, held in zip(node.args, args, strict=True) if arg.keyword is None]
        if len(sizes) != 1 or node.args[0].star:
            return False
        size, held = sizes[0]
        counts = (call for call in self.act.scope.calls if isinstance(size, cst.Name) and names.last_name(call.func) == "range")
        return held.kind is ValueKind.PLAIN or any(arg.value.deep_equals(size) for call in counts for arg in call.args)

    def _to_accelerator(self, node: cst.Call) -> bool:
        for arg in node.args:
            if arg.keyword is not None and arg.keyword.value == "device":
                return self.device_of(arg.value) is Device.ACCELERATOR
        return False

    def device_of(self, node: cst.BaseExpression) -> Device:
        """Where `.to(node)` puts a tensor; UNKNOWN where the argument is no device."""
        word = names.dotted(node)
        code = self.code(node)
        if isinstance(node, cst.SimpleString):
            return Device.HOST if "cpu" in code else Device.ACCELERATOR
        if "dtype" in code or word.startswith("torch."):
            return Device.UNKNOWN
        found = [alt.value for alt in self.evaluator.values(node, self.act.frame)[:4]]
        for value in found:
            spot = value.value if isinstance(value, Const) else None
            if isinstance(value, ExternalCall) and value.name == "torch.device" and value.call.args:
                inner = [alt.value.value for alt in self.evaluator.values(value.call.args[0].value, value.frame) if isinstance(alt.value, Const)]
                words = [str(text) for text in inner]
                if words and all(text.startswith("cpu") for text in words):
                    return Device.HOST
                return Device.ACCELERATOR
            if isinstance(spot, str) and len(found) == 1:
                return Device.HOST if spot.startswith("cpu") else Device.ACCELERATOR
        if "cpu" in code.lower():
            return Device.HOST
        if any(part in code.lower() for part in ("device", "cuda", "gpu", "rank", "dev")) or isinstance(node, cst.Integer):
            return Device.ACCELERATOR
        return Device.UNKNOWN


def _has_few_for_each(node: cst.Call) -> bool:
    """Whether a tensor is made with a few numbers for each sample, in rows and columns: ``torch.zeros(n, 4, 4)``."""
    given = [arg.value for arg in node.args if arg.keyword is None]
    if len(given) == 1 and isinstance(given[0], cst.Tuple | cst.List):
        given = [element.value for element in given[0].elements]
    sizes = [int(one.evaluated_value) if isinstance(one, cst.Integer) else None for one in given[1:]]
    return len(sizes) > 1 and None not in sizes and prod(size for size in sizes if size is not None) <= FEW_OF_SAMPLE


def _together(args: list[TensorState], stacks: cst.Call | None) -> TensorState:
    """What joins the elements of a list; they are stacked along an axis of their own where that is the call."""
    parts = args[0] if args else UNKNOWN
    inside = parts.any() if parts.kind is ValueKind.PACK else parts.each or parts
    if not inside.tensorlike:
        return tensor(
            graph=Graph.MAYBE if inside.graph else Graph.NO, tags=parts.all_tags, sources=parts.all_sources, size=SampleSize.UNKNOWN, device=Device.UNKNOWN
        )
    found = mixed(list(parts.leaves()) if parts.kind is ValueKind.PACK else [inside])
    size = SampleSize.SMALL if inside.size is SampleSize.SCALAR else inside.size
    along = arguments.argument_for(stacks, "dim", place=1) if stacks is not None else None
    # Along any but the first axis each element is a batch: a step, a channel. How many there are is known where all are written out.
    batches = found.dims > 1 and not parts.exact and along is not None and constant_key(along) not in {0, UNKNOWN_KEY}
    dims = found.dims + 1 if batches else found.dims
    return found.having(kind=ValueKind.TENSOR, tags=parts.all_tags, sources=parts.all_sources, size=size, dims=dims, storage=Storage.OWN, sure=True)


def _numpy(last: str, args: list[TensorState]) -> TensorState:
    found = mixed([leaf for held in args for leaf in held.leaves()])
    tags = tags_of(args)
    size = found.size if found.tensorlike else SampleSize.UNKNOWN
    if last in {"mean", "sum", "std", "float32", "float64", "int64", "isnan", "max", "min", "median", "sqrt", "log", "exp"} and len(args) == 1:
        return TensorState(ValueKind.ARRAY, size=SampleSize.SCALAR, device=Device.HOST, tags=tags)
    if last in {"argsort", "unique", "bincount", "equal", "nonzero"}:
        size = min(size, SampleSize.SMALL)
    keeps = last in {"asarray", "squeeze", "reshape", "ravel", "transpose", "expand_dims"} and found.tensorlike
    storage = args[0].storage if keeps and args else Storage.OWN
    view = args[0].view if keeps and args else False
    dims = 0 if last in _RESHAPES else found.dims
    made = TensorState(ValueKind.ARRAY, Graph.NO, Device.HOST, storage, size, sure=True, view=view, tags=tags, dims=dims)
    if last == PIXELS:
        return pixels(made)
    return smaller(made) if last in PICKS else compared(made) if last in COMPARES else made
