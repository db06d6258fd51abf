"""What methods give and do: those of tensors, batches and containers, and those of things that nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import OF_DICTS, SAME_MODEL, SELECTS
from oomlint.frameworks import BACKWARDS
from oomlint.model import names
from oomlint.model.events import AS_ARRAY
from oomlint.model.flow_definitions import batch
from oomlint.model.flow_modules import FlowModules
from oomlint.model.flow_state import flag, module_of
from oomlint.model.tensor_shapes import PIXELS, axes_of, is_few, is_flat, is_spread, pixels, reduced_along, viewed
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
    in_lists,
    is_of_two,
    join,
    known_mode,
    mixed,
    pack,
    smaller,
    tensor,
)
from oomlint.model.torch_tables import (
    AXIS_ORDERS,
    CASTS,
    COMPARES,
    FROZEN_NAME,
    LOSS_NAME,
    MODULE_NAME,
    PAIRS,
    PICKS,
    PLAIN_METHODS,
    REDUCTIONS,
    SMALL_METHODS,
    TO_DEVICE,
    VIEWS,
)
from oomlint.model.values import ExternalCall, Instance
from oomlint.scout.telling_names import ADDS, IN_PLACE
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key

if TYPE_CHECKING:
    from oomlint.model.flow_state import State
    from oomlint.model.tensor_state import Path

APPENDS: Final = frozenset({"append", "appendleft", "insert"})
_ADDS: Final = APPENDS | {"add", "put"}
# A gradient scaler, and the scalers of scikit-learn, give as much as they are given.
_AS_LARGE: Final = frozenset({"scale", "inverse_transform"})
_OF_DISTRIBUTIONS: Final = frozenset({"log_prob", "entropy", "rsample", "cdf", "icdf"})  # what hangs on the parameters of one, as its samples do not
_EMPTIES: Final = frozenset({"clear", "reset"})
_TAKES: Final = frozenset({"pop", "popleft", "popitem"})
_WAITS: Final = frozenset({"retain_grad", "register_hook"})  # for a backward pass
# What an unknown thing that has such a method is taken for.
_OF_TENSORS: Final = frozenset(
    "numpy detach cpu cuda to float long clone argmax softmax squeeze view reshape mean sum size numel unsqueeze permute".split(),
)
_WHOLE_NUMBERS: Final = frozenset({"long", "int", "short", "byte", "bool"})  # the same numbers in another type
# Libraries whose `encode` and `predict` run under `torch.inference_mode()` (read in sentence-transformers 6.2.0 and ultralytics 8.4.190).
_WITHOUT_GRADIENTS: Final = ("sentence_transformers.", "ultralytics.")
_FREEZES: Final = ("freeze", "requires_grad", "toggle_grad")


class FlowMethods(FlowModules):
    """Follows method calls."""

    def method_call(self, node: cst.Call, func: cst.Attribute, base: TensorState, state: State) -> TensorState:
        """What a method call gives, and what it does."""
        method = func.attr.value
        args = self.arguments(node, state)
        if base.kind is ValueKind.MODULE:
            return self.module_method(node, func, base, args, state)
        if base.kind is ValueKind.PACK:
            return self._pack_method(node, method, base, args, state)
        if base.kind is ValueKind.ITERABLE:
            return self._iterable_method(method, base)
        if base.kind is ValueKind.PLAIN:
            return PLAIN
        return self._tensor_method(node, method, base, args, state)

    def _iterable_method(self, method: str, base: TensorState) -> TensorState:
        if method in {"next", "__next__"}:
            return base.each or UNKNOWN
        if method in {"__iter__", "log_every"}:
            return base
        if method in {"items", "enumerate"}:
            return TensorState(ValueKind.ITERABLE, each=pack([(0, PLAIN), (1, self.element_of(base))]), loader=base.loader)
        return UNKNOWN

    # -- tensors and batches -------------------------------------------------------------------------------------------

    def _tensor_method(self, node: cst.Call, method: str, base: TensorState, args: list[TensorState], state: State) -> TensorState:
        self._note_write(node, method, base, args, state)
        done = self._done_to_graph(node, method, base, args, state)
        if done is not None:
            return done
        if method == "split" and (not node.args or isinstance(node.args[0].value, cst.SimpleString)):
            return TensorState(ValueKind.PACK, inside=PLAIN, sure=True)  # what has been a text all along
        if method not in OF_DICTS | ADDS and isinstance(node.func, cst.Attribute):
            self.note_tensor(node.func.value, base)
        if base.kind is ValueKind.OPAQUE and method in OF_DICTS:
            return self._of_batch(method, base, args, state)
        proven = base.having(kind=ValueKind.TENSOR, sure=True) if base.kind is ValueKind.OPAQUE else base
        moved = self._moved(node, method, base, proven, state)
        if moved is not None:
            return moved
        computed = self._computed(node, method, base, proven) if not is_of_two(method, args) else None
        if computed is not None:
            return computed
        if method.endswith("_") and not method.startswith("_"):
            return mixed([proven, *args]).having(kind=proven.kind, storage=base.storage, home=base.home)
        if method in ADDS and base.kind is ValueKind.OPAQUE:
            return PLAIN
        return mixed([proven, *args]).having(kind=proven.kind, home=(), sure=proven.sure)

    def _done_to_graph(self, node: cst.Call, method: str, base: TensorState, args: list[TensorState], state: State) -> TensorState | None:
        """What a method gives that asks for gradients, computes them or cuts them off; also what has none, like a number."""
        if method in {"eval", "train"} and not node.args and base.kind is not ValueKind.ARRAY:
            return self._made_ready(node, method, base, state)  # `build(name).cuda().eval()`
        if method == "backward":
            if base.home and base.graph is not Graph.YES:
                base = self._differentiated(node, base, state)
            self.went_backward(node, state, base, retain=flag(node, "retain_graph") or flag(node, "create_graph"))
            return PLAIN
        if method in PLAIN_METHODS:
            return in_lists(base) if method == "tolist" else PLAIN
        if method in _WAITS:
            self.put_hook(node, state)
            return base
        if method == "requires_grad_" and not (args and names.dotted(node.args[0].value) == "False"):
            self.used(node, state, "gradients")
            return base
        if method in {"detach", "detach_"}:
            cut = base.without_graph(moved="detach", kind=ValueKind.TENSOR if base.kind is ValueKind.OPAQUE else base.kind, sure=True)
            if method == "detach_" and base.home:
                state.env[base.home] = cut
            return cut.having(home=())
        return None

    def _of_batch(self, method: str, base: TensorState, args: list[TensorState], state: State) -> TensorState:
        """What a method of dictionaries gives of a batch of unknown structure."""
        if method == "update" and args:
            if base.home:
                added = args[0]
                state.env[base.home] = base.having(
                    graph=max(base.graph, added.carries), sources=base.sources | added.all_sources, tags=base.tags | added.all_tags
                )
            return PLAIN
        part = base.having(home=())
        if method == "items":
            return TensorState(ValueKind.ITERABLE, each=pack([(0, PLAIN), (1, part)]))
        if method == "values":
            return TensorState(ValueKind.ITERABLE, each=part)
        return PLAIN if method == "keys" else part

    def _moved(self, node: cst.Call, method: str, base: TensorState, proven: TensorState, state: State) -> TensorState | None:
        """What a method gives that keeps the numbers, on another device, in another type or in memory of its own."""
        if method in {"numpy", "__array__"}:
            if base.graph is Graph.YES:
                self.used(node, state, AS_ARRAY, base)
            return proven.without_graph(kind=ValueKind.ARRAY, home=(), device=Device.HOST)
        if method == "cpu":
            return _on_host(base, proven, "cpu()")
        if method in TO_DEVICE:
            return proven.having(device=Device.ACCELERATOR, storage=Storage.OWN, view=False, home=())
        if method == "to":
            return self._to(node, base, proven)
        if method in {"clone", "copy", "contiguous", "pin_memory"}:
            own = method != "contiguous"
            return proven.having(storage=Storage.OWN if own else base.storage, view=base.view and not own, home=())
        return self._cast(node, method, base, proven) if method in CASTS else None

    def _cast(self, node: cst.Call, method: str, base: TensorState, proven: TensorState) -> TensorState:
        if any("int" in self.code(arg.value) or "bool" in self.code(arg.value) for arg in node.args):
            size = min(base.size, SampleSize.SMALL) if base.size is not SampleSize.DENSE else base.size
            made = proven.without_graph(size=size, storage=Storage.OWN, home=())
            return pixels(made) if any(self.code(arg.value).endswith(PIXELS) for arg in node.args) else made
        copies = method in {"astype", "double", "half"}
        return proven.having(
            moved=f"{method}()" if base.graph else base.moved, storage=Storage.OWN if copies else base.storage, view=base.view and not copies, home=()
        )

    def _computed(self, node: cst.Call, method: str, base: TensorState, proven: TensorState) -> TensorState | None:
        """What a method gives that compares, picks, reduces or rearranges numbers."""
        if method in SMALL_METHODS:
            found = proven.without_graph(storage=Storage.OWN, view=False, home=(), moved="")
            if method in COMPARES:
                return compared(found)
            if method in _WHOLE_NUMBERS:
                return found if base.size is SampleSize.DENSE else found.having(size=min(base.size, SampleSize.SMALL))
            return smaller(found, axes_of(node, 0) if method in PICKS | {"all", "any"} else None)
        if method in PAIRS:
            fresh = proven.having(storage=Storage.OWN, view=False, moved="")
            picked = smaller(fresh)
            values = picked if method in SELECTS and base.size is SampleSize.DENSE else fresh
            if node.args:
                index = picked.without_graph()
                return pack([(0, values), (1, index), ("values", values), ("indices", index)])
            return values.having(size=SampleSize.SCALAR, dims=0)
        if method in REDUCTIONS or method in {"amax", "amin"}:
            return reduced_along(proven.having(storage=Storage.OWN, view=False, home=(), moved=""), node, 0)
        if method in {"sigmoid", "softmax"}:
            return proven.having(storage=Storage.OWN, view=False, home=(), moved="unit")
        return _rearranged(node, method, base, proven) if method in VIEWS else None

    def _made_ready(self, node: cst.Call, method: str, base: TensorState, state: State) -> TensorState:
        """What ``eval()`` of something unknown gives: only modules are put into evaluation, and give themselves. Who trains may give anything."""
        self.was_switched(base.home, state, evaluating=method == "eval")
        taken = method == "eval" and not isinstance(self.act.module.walk.parents.get(node), cst.Expr)
        return module_of(home=base.home) if taken and not isinstance(base.value, Instance) else base

    def _note_write(self, node: cst.Call, method: str, base: TensorState, args: list[TensorState], state: State) -> None:
        """Note a method that changes a tensor in place: ``x.copy_(y)``."""
        if args and method in IN_PLACE:
            self.wrote(node, state, base.home, mixed(args), base)

    def _to(self, node: cst.Call, base: TensorState, proven: TensorState) -> TensorState:
        device = Device.UNKNOWN
        for arg in node.args:
            if arg.keyword is None or arg.keyword.value == "device":
                device = self.device_of(arg.value)
                if device is not Device.UNKNOWN:
                    break
        if device is Device.ACCELERATOR:
            return proven.having(device=device, storage=Storage.OWN, view=False, home=())
        if device is Device.HOST:
            return _on_host(base, proven, "to('cpu')")
        return proven.having(storage=Storage.UNKNOWN if base.storage is Storage.LOADER else base.storage, home=())

    # -- containers ----------------------------------------------------------------------------------------------------

    def _pack_method(self, node: cst.Call, method: str, base: TensorState, args: list[TensorState], state: State) -> TensorState:
        path = base.home
        if method in _ADDS and args:
            added = args[-1]
            if base.moved == "bounded":
                return PLAIN
            self.stored(node, state, "append", path, added, node.args[-1].value, base)
            self._grow(path, base, added, node, state)
            return PLAIN
        if method == "extend" and args:
            if base.moved == "bounded":
                return PLAIN
            added = self.row_of(args[0])
            self.stored(node, state, "extend", path, added, node.args[0].value, base)
            self._grow(path, base, added, node, state)
            return PLAIN
        if method in _EMPTIES:
            self.was_reset(node, state, path)
            if path:
                state.env[path] = TensorState(ValueKind.PACK, home=path, sure=True)
            return PLAIN
        if method in _TAKES:
            self.was_reset(node, state, path, bound=True)
            key = constant_key(node.args[0].value) if node.args else UNKNOWN_KEY
            item = base.item(key) if isinstance(key, str) else None
            if item is not None and path:
                state.env[path] = base.having(items=tuple((name, held) for name, held in base.items if name != key))
            return item if item is not None else base.any()
        if method == "update" and args and path and base.kind is ValueKind.PACK and args[0].exact and all(isinstance(key, str) for key, _ in args[0].items):
            for key, held in args[0].items:
                base = base.with_item(key, held.having(home=()))
                state.env[(*path, key)] = held.having(home=held.home or (*path, key))
            state.env[path] = base
            return PLAIN
        if method == "update" and args:
            added = args[0].any() if args[0].kind is ValueKind.PACK else args[0]
            if base.kind is ValueKind.PACK and args[0].kind is ValueKind.PACK and not args[0].exact:
                self.stored(node, state, "item", path, added, node.args[0].value, base)
            self._grow(path, base, added, node, state)
            return PLAIN
        if method == "items":
            each = pack([(0, PLAIN), (1, base.any().having(home=(*path, "*") if path else ()))])
            known = tuple((n, pack([(0, PLAIN), (1, held)])) for n, (_, held) in enumerate(base.items)) if base.exact else ()
            return TensorState(ValueKind.ITERABLE, each=each, tags=base.tags, items=known, exact=bool(known))
        if method == "values":
            return TensorState(ValueKind.ITERABLE, each=base.any().having(home=(*path, "*") if path else ()), tags=base.tags)
        if method == "keys":
            return TensorState(ValueKind.ITERABLE, each=PLAIN)
        if method in {"get", "setdefault"} and node.args:
            key = constant_key(node.args[0].value)
            default = args[1] if len(args) > 1 else PLAIN
            item = base.item(key)
            found = item if item is not None else base.any() if (base.inside is not None or base.items) else default
            return found.having(home=(*path, key if isinstance(key, str | int) else "*")) if path else found
        if method == "copy":
            return base.having(home=())
        return PLAIN if method in {"count", "index", "remove", "sort", "reverse"} else UNKNOWN

    def _grow(self, path: Path, base: TensorState, added: TensorState, node: cst.CSTNode, state: State) -> None:
        """Note in a container what a statement adds to it."""
        if path:
            inside = added.having(home=())
            state.env[path] = base.having(
                inside=join(base.inside, inside) if base.inside is not None else inside,
                tags=base.tags | {id(node)},
                exact=False,
                kind=ValueKind.PACK,
            )

    def _differentiated(self, node: cst.Call, base: TensorState, state: State) -> TensorState:
        """What is known of a value once it went backward: only a tensor with a graph does. It is one number, whose graph this pass frees."""
        found = tensor(graph=Graph.YES, size=SampleSize.SCALAR, sources=base.sources or frozenset({id(node)}), tags=base.tags, home=base.home)
        for path in [path for path, held in state.env.items() if held.home == base.home and held.kind is base.kind]:
            state.env[path] = found  # other names of the same
        state.env[base.home] = found
        self._stored_before(node, base, found, state)
        # A container that nobody knows holds a graph then, too.
        part = found
        for end in range(len(base.home) - 1, 0, -1):
            holder, key = base.home[:end], base.home[end]
            known = state.env.get(holder)
            if known is None or known.kind is not ValueKind.UNKNOWN or key == "*":
                break
            part = pack([(key, part)]).having(home=holder, inside=UNKNOWN, exact=False)
            state.env[holder] = part
        return found

    def _stored_before(self, node: cst.Call, base: TensorState, found: TensorState, state: State) -> None:
        """What the round kept of the same value ahead of the pass holds that graph, too: `losses.append(loss)`, then `loss.backward()`."""
        act = self.act
        if not self.recording or len(base.home) != 1:
            return
        name = base.home[0][1] if isinstance(base.home[0], tuple) else ""
        span = act.module.tree.span
        bound = [span(effect.statement)[0] for effect in act.scope.effects.get(str(name), ()) if not effect.path]
        for store in self.record.stores:
            same = store.value.home == base.home and store.value.kind is base.kind and store.value.sources == base.sources
            if (
                not same
                or store.value.graph is Graph.YES
                or store.scope is not act.scope
                or store.loops != act.loops
                or store.mode is not known_mode(state.mode)
            ):
                continue
            if not any(span(store.node)[0] <= row <= span(node)[0] for row in bound):
                store.value = found.having(tags=store.value.tags)

    # -- unknown things ------------------------------------------------------------------------------------------------

    def method_of_unknown(self, node: cst.Call, func: cst.Attribute, base: TensorState, args: list[TensorState], state: State) -> TensorState:
        """A method of something that nobody knows: what its name says."""
        method = func.attr.value
        self._note_write(node, method, base, args, state)
        if method in IN_PLACE and base.home:
            return mixed([base, *args]).having(kind=base.kind, home=base.home)
        if method in BACKWARDS:
            value = args[0] if args and not (base.graph or base.sources) else mixed([base, *args])
            told = args[0] if args else base
            unknown = told.kind is ValueKind.UNKNOWN or (told.kind is ValueKind.OBJECT and told is base and isinstance(told.value, ExternalCall))
            if unknown and told.home and told.graph is not Graph.YES and not (args and self.passed(value)):
                value = self._differentiated(node, told, state)
            self.went_backward(node, state, value, retain=flag(node, "retain_graph"))
            return PLAIN
        if method in _AS_LARGE and args:
            return args[0].having(home=())
        if method in _OF_DISTRIBUTIONS and base.sources:
            return mixed([base, *args])  # what a network gives are its parameters
        if method in {"item", "tolist"}:
            return PLAIN
        if method in _OF_TENSORS:
            found = self._tensor_method(node, method, base.having(kind=ValueKind.TENSOR, home=()), args, state)
            return found.having(value=base.value) if method in SAME_MODEL else found
        kept = self._kept_by_unknown(node, method, base, args, state)
        if kept is not None:
            return kept
        if method in {"eval", "train"} and not node.args:
            return self._made_ready(node, method, base, state)
        if method in {"next", "__next__"}:
            return base.each or batch() if base.kind is ValueKind.ITERABLE else UNKNOWN
        if isinstance(base.value, ExternalCall) and base.value.name.startswith(_WITHOUT_GRADIENTS):
            return TensorState(ValueKind.OPAQUE, size=SampleSize.DENSE, storage=Storage.OWN)
        return self._run_by_unknown(node, func, args, state)

    def _kept_by_unknown(self, node: cst.Call, method: str, base: TensorState, args: list[TensorState], state: State) -> TensorState | None:
        """What a method of containers gives and does, as its name says."""
        if method in APPENDS and args and base.home and base.kind is ValueKind.OBJECT and base.value is not None:
            return UNKNOWN  # an object with an `append` of its own: a writer, a file
        if method in APPENDS and args and base.home:
            self.stored(node, state, "append", base.home, args[-1], node.args[-1].value, base)
            if base.kind is not ValueKind.OBJECT:
                self._grow(base.home, base, args[-1], node, state)
            return PLAIN
        if method == "extend" and args and base.home and base.kind is not ValueKind.OBJECT:
            added = self.row_of(args[0])
            self.stored(node, state, "extend", base.home, added, node.args[0].value, base)
            self._grow(base.home, base, added, node, state)
            return PLAIN
        if method in _EMPTIES:
            self.was_reset(node, state, base.home)
            if base.home:
                for path in [path for path in state.env if path[: len(base.home)] == base.home and path != base.home]:
                    del state.env[path]
            return PLAIN
        if method in _TAKES and base.home:
            self.was_reset(node, state, base.home, bound=True)
            return UNKNOWN
        if method == "items":
            return TensorState(ValueKind.ITERABLE, each=pack([(0, PLAIN), (1, base.having(home=(*base.home, "*") if base.home else ()))]))
        if method == "values" and not node.args:
            return TensorState(ValueKind.ITERABLE, each=base.having(home=(*base.home, "*") if base.home else ()))
        if method in {"get", "setdefault"} and base.home and node.args:
            key = constant_key(node.args[0].value)
            path = (*base.home, key if isinstance(key, str | int) else "*")
            return state.env.get(path) or (args[1] if method == "setdefault" and len(args) > 1 else UNKNOWN).having(home=path)
        return None

    def _run_by_unknown(self, node: cst.Call, func: cst.Attribute, args: list[TensorState], state: State) -> TensorState:
        """What a method gives that may run a module, a loss or an optimizer."""
        method = func.attr.value
        word = names.last_name(func.value)
        if LOSS_NAME.search(method):
            return self.loss_of(args)
        if method == "forward":
            return self.forward(node, module_of(frozen=FROZEN_NAME.search(word) is not None), state, args)
        code = names.dotted(func)
        if self.is_module_name(func) or (code.startswith("self.") and MODULE_NAME.search(method) and takes_data(args)):
            return self.forward(node, module_of(frozen=FROZEN_NAME.search(method) is not None), state, args)
        if method == "step" and any(word.lower().startswith(start) for start in ("opt", "trainer", "accelerator", "scaler")):
            self.used(node, state, "step")
            return UNKNOWN
        if method.startswith(_FREEZES):
            return UNKNOWN
        return self.unknown_call(node, method, args, state)


def takes_data(args: list[TensorState]) -> bool:
    """Whether what a call is given may be data: not only names, numbers and modules, as ``save_model(model, path)`` is."""
    return not args or any(held.kind not in {ValueKind.PLAIN, ValueKind.MODULE} for held in args)


def _rearranged(node: cst.Call, method: str, base: TensorState, proven: TensorState) -> TensorState:
    """What a method gives that looks at the same numbers in another shape."""
    part = base.size is SampleSize.DENSE
    found = proven.having(home=(), view=base.view or (part and method in {"narrow", "select"}), moved=base.moved, dims=viewed(method, node, 0, base.dims))
    few = base.dims < MAP and is_few(method, node, 0)  # of a map it would be one of many places
    if few or (base.size is SampleSize.SMALL and base.dims >= MAP and method in AXIS_ORDERS):
        found = found.having(size=min(base.size, SampleSize.SMALL))
    elif ((method in AXIS_ORDERS and found.dims >= MAP) or is_spread(method, node, 0)) and base.size is not SampleSize.SCALAR:
        found = found.having(size=SampleSize.DENSE)  # whatever it is called
    elif base.size is SampleSize.LEFT and is_flat(method, node, 0):
        found = found.having(size=SampleSize.DENSE)
    if method in {"chunk", "split", "unbind"}:
        return TensorState(ValueKind.PACK, inside=found.having(view=base.view or part), sure=True)
    return found


def _on_host(base: TensorState, proven: TensorState, written: str) -> TensorState:
    """A tensor on the host: a copy of its own only where it lay on the device, as whoever writes the call believes."""
    storage = Storage.OWN if base.device is Device.ACCELERATOR else base.storage
    return proven.having(device=Device.HOST, storage=storage, view=False, moved=written if base.graph else "", home=())
