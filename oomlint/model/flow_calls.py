"""What calls give and do: methods of tensors and containers, modules, functions of the project run in place, functions of libraries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import names
from oomlint.model.flow_state import State, instance_of, module_of
from oomlint.model.flow_values import FlowValues, batch, is_bounded
from oomlint.model.held import PLAIN, UNKNOWN, Device, Graph, Held, Kind, Mode, Size, Storage, meet, meet_all, mixed, pack, tensor
from oomlint.model.torch_tables import (
    BACKWARD_NAME,
    CASTS,
    FAST_PATH,
    FROZEN_NAME,
    HARMLESS_CALL,
    HOST_LIBRARIES,
    LOSS_NAME,
    MODULE_NAME,
    PAIRS,
    PARAMETERLESS,
    PLAIN_METHODS,
    REDUCTIONS,
    SMALL_FUNCTIONS,
    SMALL_METHODS,
    TO_DEVICE,
    VIEWS,
)
from oomlint.model.values import Bound, ClassRef, Const, External, ExternalCall, FunctionRef, Instance, ModuleRef, Partial
from oomlint.syntax.walk import constant_key

if TYPE_CHECKING:
    from oomlint.model.held import Path
    from oomlint.model.values import Alternatives, Value
    from oomlint.syntax.walk import Scope

_ADDS: Final = frozenset({"append", "add", "appendleft", "insert", "put"})
_EMPTIES: Final = frozenset({"clear", "reset"})
_TAKES: Final = frozenset({"pop", "popleft", "popitem"})
_ASKS_GRADIENTS: Final = frozenset({"requires_grad_", "retain_grad", "register_hook"})
_ITERATES: Final = frozenset(
    {
        "builtins.enumerate",
        "builtins.zip",
        "tqdm.tqdm",
        "builtins.iter",
        "builtins.reversed",
        "itertools.islice",
        "builtins.sorted",
        "builtins.list",
        "builtins.tuple",
    }
)
_PROGRESS: Final = frozenset(
    {
        "tqdm",
        "trange",
        "track",
        "progress_bar",
        "prog",
        "ProgressBar",
        "Bar",
        "notebook_tqdm",
        "auto_tqdm",
        "iter",
        "log_every",
        "data_prefetcher",
        "DataPrefetcher",
        "MpDeviceLoader",
        "per_device_loader",
        "ParallelLoader",
    }
)
_DEEPEST_PARTS: Final = 6  # modules inside modules
_GATHERS: Final = frozenset(
    {"gather", "gather_for_metrics", "all_gather", "reduce", "reduce_tensor", "reduce_value", "reduce_mean", "all_reduce_mean", "distributed_concat"}
)
_LIKE_FORWARD: Final = re.compile(r"^forward_|^extract_feat|^embed$|^get_\w*(features|embeddings?)$|^encode_(image|text|audio|video)s?$|^features$")
_FREEZES: Final = ("freeze", "requires_grad", "toggle_grad")


class FlowCalls(FlowValues):
    """Follows calls."""

    def call(self, node: cst.Call, state: State) -> Held:
        """What a call gives, and what it does."""
        self.spent += 1
        func = node.func
        if isinstance(func, cst.Attribute):
            base = self._receiver(func, state)
            known = base.tensorlike or base.kind in {Kind.PACK, Kind.MODULE, Kind.PLAIN}
            if known or (base.kind is Kind.ITERABLE and (base.value is None or func.attr.value in {"next", "__next__", "__iter__", "items"})):
                return self.method_call(node, func, base, state)
            return self._named_call(node, func, base, state)
        if isinstance(func, cst.Name):
            known = state.env.get(self.act.path(func.value)) or self.act.params.get(func.value)
            if known is not None and known.kind is Kind.MODULE:
                return self.forward(node, known, state)
            if known is not None and known.tensorlike:
                return mixed([known, *self._arguments(node, state)])
        elif isinstance(func, cst.Call | cst.Subscript):
            base = self.value(func, state)
            if base.kind is Kind.MODULE:
                return self.forward(node, base, state)
        return self._named_call(node, func, UNKNOWN, state)

    def _receiver(self, func: cst.Attribute, state: State) -> Held:
        """What stands before the dot; names of libraries are not looked at."""
        return self.value(func.value, state)

    def _arguments(self, node: cst.Call, state: State) -> list[Held]:
        return [self.value(arg.value, state) for arg in node.args]

    def _named_call(self, node: cst.Call, func: cst.BaseExpression, base: Held, state: State) -> Held:
        """A call that only the names tell about: a function or class of the project or of a library, a module, something unknown."""
        written = names.last_name(func)
        args = self._arguments(node, state)
        metric = self._metric(node, func, base, args, state)
        if metric is not None:
            return metric
        this = instance_of(base)
        if this is not None and isinstance(func, cst.Attribute):
            method = self.evaluator.method(this, written)
            if method is not None:
                return self._run(method, node, args, base.home, state)
        for value in self._callees(func, base):
            if isinstance(value, External):
                return self._external_call(names.canonical(value.name), node, args, state)
            if isinstance(value, FunctionRef):
                return self._run(value, node, args, base.home if isinstance(func, cst.Attribute) else (), state)
            if isinstance(value, ClassRef):
                return self._construct(value, node, state)
            if isinstance(value, Instance):
                held = self.object_of(value)
                if held.kind is Kind.MODULE:
                    return self.forward(node, held, state, args)
                method = self.evaluator.method(value, "__call__")
                return self._run(method, node, args, self._home(func), state) if method is not None else self._unknown(node, written, args, state)
            if isinstance(value, ExternalCall):
                held = self.made_outside(names.canonical(value.name), value.call, value.frame)
                if held.kind is Kind.MODULE:
                    return self.forward(node, held, state, args)
        held = self.member(base, written) if isinstance(func, cst.Attribute) else self.value(func, state) if isinstance(func, cst.Name) else UNKNOWN
        if held.kind is Kind.MODULE:
            return self.forward(node, held, state, args)
        if isinstance(func, cst.Attribute):
            return self._method_of_unknown(node, func, base, args, state)
        if LOSS_NAME.search(written):
            self._are_tensors(node, args)
            return self._loss(args)
        if self.is_module_name(func) or MODULE_NAME.search(written):
            return self.forward(node, module_of(frozen=FROZEN_NAME.search(written) is not None), state, args)
        return self._unknown(node, written, args, state)

    def _metric(self, node: cst.Call, func: cst.BaseExpression, base: Held, args: list[Held], state: State) -> Held | None:
        """A metric of a library: `update` and the call itself hand it a batch."""
        held = base
        method = names.last_name(func)
        if isinstance(func, cst.Name):
            held, method = self.value(func, state), "__call__"
        elif isinstance(func, cst.Attribute) and not _is_metric(base):
            held, method = state.env.get((*base.home, method), UNKNOWN) if base.home else UNKNOWN, "__call__"
            if held.kind is Kind.UNKNOWN:
                held = self.member(base, names.last_name(func))
        if not _is_metric(held):
            return None
        if method in {"to", "cuda", "cpu", "clone", "eval", "train", "set_dtype"}:
            return held
        if method == "reset":
            self.was_reset(node, state, held.home)
            return PLAIN
        if method in {"update", "forward", "__call__"}:
            self.stored(node, state, "metric", held.home or (("metric", id(node)),), meet_all(args) if len(args) == 1 else pack(enumerate(args)), None, held)
            tags = frozenset({id(node)})
            return tensor(graph=Graph.MAYBE, size=Size.SCALAR, tags=tags) if method != "update" else PLAIN
        return UNKNOWN

    def _callees(self, func: cst.BaseExpression, base: Held) -> list[Value]:
        """What is called, as far as its name tells."""
        found: Alternatives = []
        if isinstance(func, cst.Name):
            if not self._is_local(func.value):
                found = self.evaluator.values(func, self.act.frame)[:3]
        elif isinstance(func, cst.Attribute) and isinstance(base.value, Instance | ClassRef | ModuleRef | External):
            found = self.members(base.value, func.attr.value)[:3]
        out: list[Value] = []
        for alt in found:
            value = alt.value
            while isinstance(value, Partial):
                value = value.func
            out.append(value)
        return out

    def _home(self, func: cst.BaseExpression) -> Path:
        return self.act.path(func.value) if isinstance(func, cst.Name) else ()

    # -- unknown -------------------------------------------------------------------------------------------------------

    def _unknown(self, node: cst.Call, written: str, args: list[Held], state: State) -> Held:
        """A call that nobody can follow. What goes in may come out."""
        live = [held for held in args if held.carries or held.all_tags]
        if live and BACKWARD_NAME.search(written):
            self.went_backward(node, state, meet_all([held.having(home=()) for held in live]), known=False)
        elif live and not HARMLESS_CALL.search(written):
            for held in live:
                self.used(node, state, f"given to {written}", held)
        if written in _PROGRESS or written.endswith(("tqdm", "Prefetcher", "prefetcher", "progress")):
            for held in args:
                if held.kind is Kind.ITERABLE or held.each is not None:
                    return held
        if written == "deque":
            return Held(Kind.PACK, sure=True, moved="bounded" if is_bounded(node) else "")
        if written in _GATHERS and args:
            return args[0].having(home=())
        if written == "enter_context" and node.args:
            mode = self.gradients.context(node.args[0].value, self.act.frame)
            state.mode = state.mode if mode is None else mode
            return UNKNOWN
        if written.endswith("Meter") or written in {"AverageMeter", "SmoothedValue", "MetricLogger"}:
            return Held(Kind.OBJECT)
        found = mixed([held for held in args if held.kind is not Kind.UNKNOWN and held.kind is not Kind.OBJECT and held.kind is not Kind.MODULE])
        tags = frozenset().union(*(held.all_tags for held in args)) if args else frozenset[int]()
        graph = Graph.MAYBE if any(held.carries for held in args) else Graph.NO
        return UNKNOWN.having(graph=graph, sources=found.sources, tags=tags)

    @staticmethod
    def _loss(args: list[Held]) -> Held:
        """A criterion: one number, with the graph of what goes in."""
        parts = [held for held in args if held.kind not in {Kind.OBJECT, Kind.MODULE}]
        found = mixed(parts)
        if not found.tensorlike:
            return found if found.kind is not Kind.PLAIN else UNKNOWN
        return found.having(kind=Kind.TENSOR, size=Size.SCALAR, moved="", sure=found.sure and all(part.kind is not Kind.UNKNOWN for part in parts[:1]))

    # -- modules -------------------------------------------------------------------------------------------------------

    def forward(self, node: cst.Call, module: Held, state: State, args: list[Held] | None = None) -> Held:
        """A module's call: its output carries a graph where the mode records one."""
        given = self._arguments(node, state) if args is None else args
        value = module.value
        name = names.last_name(node.func) if not isinstance(node.func, cst.Call) else "module"
        if name in {"forward", "__call__"} and isinstance(node.func, cst.Attribute):
            name = names.last_name(node.func.value)
        if isinstance(value, External) and PARAMETERLESS.search(value.name.rpartition(".")[2]):
            last = value.name.rpartition(".")[2]
            self._are_tensors(node, given)
            found = mixed([held for held in given if held.kind is not Kind.OBJECT])
            scalar = last.endswith("Loss") and not self._unreduced(value)
            if not found.tensorlike:
                return found if found.kind is not Kind.PLAIN else UNKNOWN
            return found.having(kind=Kind.TENSOR, size=Size.SCALAR if scalar else found.size, sure=True)
        this = instance_of(module)
        self._are_tensors(node, given)
        if this is None and (LOSS_NAME.search(name)) and not MODULE_NAME.search(name):
            return self._loss(given)
        mode = state.mode
        if any(leaf.moved == "volatile" for held in given for leaf in held.leaves()):
            mode = Mode.OFF  # code of before 0.4, whose author meant it so
        inner: Held | None = None
        own = True
        if this is not None:
            own = not LOSS_NAME.search(this.cls.scope.name) or self._has_parameters(this)
            method = self.evaluator.method(this, "forward")
            if method is not None:
                mode = self.gradients.decorated(method.scope, method.module) or mode
            if own:
                self.went_forward(node, State(state.env, mode, state.evaluating), name, known=True, trainable=not module.frozen and self._trainable(this.cls), plain=self._is_plain(this.cls))
            if method is not None:
                inner = self.output_of(method, self._params(method.scope, node, given), mode)
                if method.scope in self.known.asking:
                    self.used(node, state, "gradients")
            if not own:
                loss = self._loss(given)
                if inner is not None and inner.kind is not Kind.UNKNOWN:
                    return self._adopted(inner, loss)
                return loss
        else:
            self.went_forward(
                node,
                State(state.env, mode, state.evaluating),
                name,
                known=module.value is not None,
                trainable=not module.frozen,
                plain=module.value is not None and module.moved != "fast",
            )
        records = mode.records
        if this is not None and not self._trainable(this.cls):
            records = min(records, mixed(given).graph)
        if module.frozen and records is Graph.YES:
            # By its name, a module may be frozen; where it was frozen in sight, only what goes in brings a graph.
            records = mixed(given).graph if module.sure else max(mixed(given).graph, Graph.MAYBE)
        device = Device.ACCELERATOR if any(leaf.device is Device.ACCELERATOR for held in given for leaf in held.leaves()) else Device.UNKNOWN
        fallback = Held(
            Kind.OPAQUE,
            records,
            device,
            Storage.OWN,
            Size.DENSE if not LOSS_NAME.search(name) else Size.SCALAR,
            sources=frozenset({id(node)}).union(*(held.all_sources for held in given)),
        )
        fallback = fallback.having(tags=frozenset().union(*(held.all_tags for held in given)) if given else frozenset())
        if inner is None or inner.kind in {Kind.UNKNOWN, Kind.OBJECT, Kind.MODULE, Kind.ITERABLE, Kind.PLAIN}:
            return fallback
        return self._trusted(inner, fallback)

    def _trainable(self, cls: ClassRef, depth: int = 0) -> bool:
        """Whether a class may have parameters; not where all that it makes is in sight and none of it has any."""
        known = self.known.trainable.get(cls.scope)
        if known is not None:
            return known
        self.known.trainable[cls.scope] = False
        found = depth > _DEEPEST_PARTS
        for base in self.evaluator.lineage(cls):
            if not isinstance(base, ClassRef):
                found = found or base.name not in {"torch.nn.Module", "builtins.object", "abc.ABC"}
                continue
            for scope in base.scope.children:
                found = found or self._makes_parameters(base, scope, depth)
        self.known.trainable[cls.scope] = found
        return found

    def _makes_parameters(self, base: ClassRef, scope: Scope, depth: int) -> bool:
        own = {p.name.value for p in names.parameters(scope)}
        for effect in scope.effects.get(names.self_name(scope) or "", ()):
            if effect.kind == "assign" and isinstance(effect.value, cst.Name) and effect.value.value in own:
                return True  # what somebody hands over may be a module
        frame = self.evaluator.calls.plain_frame(base.module, scope)
        for call in scope.calls:
            if isinstance(call.func, cst.Attribute) and names.dotted(call.func).startswith(("self.register_buffer", "super")):
                continue
            found = self.evaluator.values(call.func, frame)[:2]
            for alt in found:
                value = alt.value
                if isinstance(value, External):
                    last = value.name.rpartition(".")[2]
                    if value.name.startswith("torch.nn.") and last[:1].isupper() and not PARAMETERLESS.search(last):
                        return True
                    if not value.name.startswith(("torch.", "builtins.", "numpy.", "math.")):
                        return True
                elif isinstance(value, ClassRef):
                    if value.scope is not base.scope and self._trainable(value, depth + 1):
                        return True
                elif not isinstance(value, FunctionRef | Instance | ExternalCall) and not isinstance(call.func, cst.Attribute):
                    return True
        return False

    def _is_plain(self, cls: ClassRef, depth: int = 0) -> bool:
        """Whether neither a class nor what it is made of has another path for inference."""
        known = self.known.fast.get(cls.scope)
        if known is not None:
            return not known
        self.known.fast[cls.scope] = False
        fast = depth > _DEEPEST_PARTS
        for base in self.evaluator.lineage(cls):
            if not isinstance(base, ClassRef):
                fast = fast or not (base.name.startswith(("torch.nn.Module", "builtins.", "abc.")) or base.name.endswith("LightningModule"))
                continue
            fast = fast or FAST_PATH.search(base.module.code(base.scope.node)) is not None
            for scope in base.scope.children:
                for call in scope.calls if not fast else ():
                    if isinstance(call.func, cst.Name | cst.Attribute):
                        for alt in self.evaluator.values(call.func, self.evaluator.calls.plain_frame(base.module, scope))[:1]:
                            if isinstance(alt.value, ClassRef) and alt.value.scope is not cls.scope:
                                fast = fast or not self._is_plain(alt.value, depth + 1)
        self.known.fast[cls.scope] = fast
        return not fast

    def _are_tensors(self, node: cst.Call, given: list[Held]) -> None:
        for arg, held in zip(node.args, given, strict=True):
            if not arg.star:
                self.is_tensor(arg.value, held)

    def _trusted(self, inner: Held, fallback: Held, depth: int = 0) -> Held:
        """What `forward` returns, where that could be followed; what could not be carries a graph like any output."""
        if inner.kind is Kind.PACK and depth < 3:  # noqa: PLR2004
            return inner.having(
                items=tuple((key, self._trusted(held, fallback, depth + 1)) for key, held in inner.items),
                inside=self._trusted(inner.inside, fallback, depth + 1) if inner.inside is not None else None,
                home=(),
            )
        if inner.kind is Kind.PLAIN:
            return inner
        handed_back = inner.kind is Kind.OPAQUE and inner.graph is Graph.NO  # what went in, changed by somebody on the way
        if inner.kind is Kind.UNKNOWN or handed_back or (inner.tensorlike and inner.graph is Graph.MAYBE and fallback.graph is Graph.YES):
            return fallback.having(size=inner.size if inner.size is not Size.UNKNOWN else fallback.size)
        if inner.tensorlike:
            device = fallback.device if inner.device is Device.UNKNOWN else inner.device
            size = inner.size if inner.size is not Size.UNKNOWN else Size.DENSE
            return inner.having(device=device, size=size, home=(), sources=fallback.sources if inner.graph else frozenset(), tags=fallback.tags)
        return inner

    def _adopted(self, inner: Held, loss: Held, depth: int = 0) -> Held:
        """What a loss without parameters returns, with the graph of what went in."""
        if inner.kind is Kind.PACK and depth < 3:  # noqa: PLR2004
            items = tuple((key, self._adopted(held, loss, depth + 1)) for key, held in inner.items)
            return inner.having(items=items, inside=self._adopted(inner.inside, loss, depth + 1) if inner.inside is not None else None, home=())
        if inner.graph is Graph.NO and inner.kind is not Kind.UNKNOWN:
            return inner.having(tags=loss.tags, home=())
        if inner.kind is Kind.UNKNOWN:
            return loss if loss.tensorlike else inner.having(tags=loss.tags, sources=loss.sources)
        return inner.having(graph=inner.graph if loss.graph is Graph.YES else loss.graph, sources=loss.sources, tags=loss.tags, home=())

    @staticmethod
    def _unreduced(value: External) -> bool:
        del value
        return False

    def _has_parameters(self, this: Instance) -> bool:
        """Whether a class of the project makes parameters or layers of its own."""
        for base in self.evaluator.lineage(this.cls):
            if not isinstance(base, ClassRef):
                continue
            for scope in base.scope.children:
                for call in scope.calls:
                    last = names.last_name(call.func)
                    if last == "Parameter" or (last in {"Linear", "Conv2d", "Embedding", "Conv1d", "Conv3d", "LSTM", "GRU"}):
                        return True
        return False

    def _construct(self, cls: ClassRef, node: cst.Call, state: State) -> Held:
        """An object of a class of the project."""
        del state
        value = Instance(cls, (Bound(tuple(node.args), self.act.frame, node),), node, self.act.frame)
        return self.object_of(value)

    # -- functions of the project --------------------------------------------------------------------------------------

    def _run(self, function: FunctionRef, node: cst.Call, args: list[Held], this: Path, state: State) -> Held:
        scope = function.scope
        tags = frozenset().union(*(held.all_tags for held in args)) if args else frozenset[int]()
        params = self._params(scope, node, args)
        found = self.run_function(function, node, args, params, this, state)
        if found.kind is Kind.UNKNOWN:
            live = any(held.carries for held in args)
            return found.having(graph=max(found.graph, Graph.MAYBE if live else Graph.NO), tags=found.tags | tags)
        return found

    @staticmethod
    def _params(scope: Scope, node: cst.Call, args: list[Held]) -> dict[str, Held]:
        """Arguments by the names of the parameters."""
        params: dict[str, Held] = {}
        if isinstance(scope.node, cst.FunctionDef | cst.Lambda):
            own = scope.node.params
            ordered = [p.name.value for p in (*own.posonly_params, *own.params)]
            if names.is_method(scope):
                ordered = ordered[1:]
            place = 0
            rest: list[Held] = []
            named: list[tuple[object, Held]] = []
            for arg, held in zip(node.args, args, strict=True):
                if arg.star:
                    if arg.star == "*":
                        spread = [item for _, item in held.items] if held.kind is Kind.PACK and held.exact else []
                        if not spread and held.kind in {Kind.OPAQUE, Kind.PACK}:
                            spread = [held.any() if held.kind is Kind.PACK else held.having(home=())] * (len(ordered) - place)
                        for item in spread:
                            if place < len(ordered):
                                params[ordered[place]] = item
                                place += 1
                    continue
                if arg.keyword is not None:
                    params[arg.keyword.value] = held
                    named.append((arg.keyword.value, held))
                elif place < len(ordered):
                    params[ordered[place]] = held
                    place += 1
                else:
                    rest.append(held)
            if isinstance(own.star_arg, cst.Param):
                params[own.star_arg.name.value] = pack(enumerate(rest))
            if isinstance(own.star_kwarg, cst.Param):
                params[own.star_kwarg.name.value] = pack([(k, h) for k, h in named if k not in {p.name.value for p in names.parameters(scope)}])
        return params

    # -- libraries -----------------------------------------------------------------------------------------------------

    def _external_call(self, name: str, node: cst.Call, args: list[Held], state: State) -> Held:
        if name == "torch.set_grad_enabled" or name.endswith(".set_grad_enabled"):
            state.mode = self.gradients.switch(node, self.act.frame)
            return PLAIN
        return self.external(name, node, args, state)

    def external(self, name: str, node: cst.Call, args: list[Held], state: State) -> Held:
        """What a library's function gives."""
        last = name.rpartition(".")[2]
        if name in {"torch.autograd.grad", "torch.autograd.backward"}:
            self.went_backward(node, state, meet_all(args[:1]), retain=_flag(node, "retain_graph") or _flag(node, "create_graph"))
            self.used(node, state, "gradients")
            return Held(Kind.PACK, inside=tensor(graph=Graph.MAYBE)) if last == "grad" else PLAIN
        if name == "torch.is_grad_enabled":
            self.used(node, state, "gradients")
            return PLAIN
        if name.startswith(("torch.distributions.", "torch.nn.utils.rnn.pack_")):
            found = mixed(args)
            return UNKNOWN.having(graph=found.graph, sources=found.sources, tags=found.tags)
        if name.startswith(("torch.nn.utils.clip_grad", "torch.manual_seed", "torch.cuda.", "torch.save", "torch.distributed.")):
            return tensor(size=Size.SCALAR, device=Device.UNKNOWN) if "clip_grad" in name else PLAIN
        if name.startswith("builtins."):
            return self._builtin(last, node, args, state)
        if name.startswith("tqdm.") or name in {"rich.progress.track", "itertools.islice", "fastprogress.progress_bar"}:
            return args[0] if args else UNKNOWN
        if name.startswith(("itertools.cycle", "itertools.chain")):
            return args[0] if args else UNKNOWN
        if name.startswith(("copy.",)):
            return args[0].having(home=()) if args else UNKNOWN
        if name in {"torch.cat", "torch.stack", "torch.vstack", "torch.hstack", "torch.concat", "torch.concatenate", "torch.nn.utils.rnn.pad_sequence"}:
            return self._together(args)
        made = self.made_outside(name, node, self.act.frame)
        if made.kind is Kind.MODULE and self._wraps(name, args):
            return next(held for held in args if held.kind is Kind.MODULE)
        if made.kind in {Kind.MODULE, Kind.ITERABLE, Kind.PACK}:
            return made
        if name.startswith("torch.nn.functional.") or name.startswith("torch."):
            return self._torch(name, last, node, args, state)
        if name.startswith("numpy."):
            return self._numpy(last, args)
        if name.startswith(("torchmetrics.functional", "torch_scatter.", "einops.", "torchvision.", "kornia.", "torch_sparse.", "pytorch3d.")):
            return mixed(args)
        if name.startswith(HOST_LIBRARIES):
            return UNKNOWN.having(size=Size.UNKNOWN, device=Device.HOST)
        if made.kind is Kind.OBJECT:
            live = [held for held in args if held.carries]
            if live:
                self.used(node, state, f"given to {last}", live[0])
            tags = frozenset().union(*(held.all_tags for held in args)) if args else frozenset[int]()
            return made.having(tags=tags)
        return self._unknown(node, last, args, state)

    @staticmethod
    def _wraps(name: str, args: list[Held]) -> bool:
        return any(held.kind is Kind.MODULE for held in args) and not name.startswith("torch.nn.Sequential")

    def _builtin(self, last: str, node: cst.Call, args: list[Held], state: State) -> Held:
        if last == "enumerate" and args:
            return Held(Kind.ITERABLE, each=pack([(0, PLAIN), (1, self.element_of(args[0]))]), loader=args[0].loader, tags=args[0].tags)
        if last == "zip" and args:
            loader = next((held.loader for held in args if held.loader is not None), None)
            return Held(Kind.ITERABLE, each=pack([(n, self.element_of(held)) for n, held in enumerate(args)]), loader=loader)
        if last in {"iter", "reversed"} and args:
            return args[0]
        if last == "next" and args:
            return args[0].each or UNKNOWN
        if last in {"list", "tuple", "sorted", "set"}:
            if not args:
                return Held(Kind.PACK, sure=True, exact=True, moved="list" if last == "list" else "")
            if args[0].kind is Kind.PACK:
                return args[0].having(home=())
            return Held(Kind.PACK, inside=self.element_of(args[0]), sure=True, tags=args[0].tags)
        if last in {"dict", "defaultdict"}:
            parts: list[tuple[object, Held]] = [(arg.keyword.value, held) for arg, held in zip(node.args, args, strict=True) if arg.keyword is not None]
            return pack(parts).having(exact=False)
        if last == "sum" and args:
            inner = args[0].any() if args[0].kind is Kind.PACK else self.element_of(args[0])
            return mixed([inner]).having(size=inner.size) if inner.kind is not Kind.UNKNOWN else UNKNOWN.having(tags=args[0].all_tags, graph=inner.graph)
        if last in {"max", "min", "abs", "pow"}:
            return meet_all(args) if args else UNKNOWN
        if last == "map" and len(args) > 1:
            return Held(Kind.ITERABLE, each=UNKNOWN)
        if last == "range":
            return Held(Kind.ITERABLE, each=PLAIN)
        if last in {"getattr"}:
            return UNKNOWN
        if last == "super":
            return Held(Kind.OBJECT, home=self.act.this)
        if last == "setattr":
            return PLAIN
        del state
        return PLAIN

    @staticmethod
    def _together(args: list[Held]) -> Held:
        parts = args[0] if args else UNKNOWN
        inside = parts.any() if parts.kind is Kind.PACK else parts.each or parts
        if not inside.tensorlike:
            return tensor(
                graph=Graph.MAYBE if inside.graph else Graph.NO, tags=parts.all_tags, sources=parts.all_sources, size=Size.UNKNOWN, device=Device.UNKNOWN
            )
        found = mixed([leaf for leaf in parts.leaves()] if parts.kind is Kind.PACK else [inside])
        size = Size.SMALL if inside.size is Size.SCALAR else inside.size
        return found.having(kind=Kind.TENSOR, tags=parts.all_tags, sources=parts.all_sources, size=size, storage=Storage.OWN, sure=True)

    def _torch(self, name: str, last: str, node: cst.Call, args: list[Held], state: State) -> Held:
        if last in {"no_grad", "enable_grad", "inference_mode"}:
            return UNKNOWN
        functional = name.startswith("torch.nn.functional.")
        if last in SMALL_FUNCTIONS:
            found = mixed(args)
            return tensor(size=min(found.size, Size.SMALL) if found.tensorlike else Size.SMALL, device=found.device)
        if last in {"as_tensor", "tensor", "from_numpy", "FloatTensor", "LongTensor", "Tensor", "Variable", "as_strided"}:
            inner = args[0] if args else UNKNOWN
            graph = Graph.YES if _flag(node, "requires_grad") else Graph.NO
            if last == "Variable":
                off = any(arg.keyword is not None and arg.keyword.value == "volatile" for arg in node.args)
                found = inner if inner.tensorlike else tensor(device=Device.UNKNOWN, size=inner.size)
                return found.having(moved="volatile" if off else found.moved)
            keeps = last in {"as_tensor", "from_numpy"} and inner.tensorlike
            device = Device.ACCELERATOR if self._to_accelerator(node) else Device.UNKNOWN if not keeps else inner.device
            return tensor(
                graph=graph,
                storage=inner.storage if keeps else Storage.OWN,
                size=inner.size,
                device=device,
                sources=frozenset({id(node)}) if graph else frozenset(),
            )
        if last in {
            "zeros",
            "ones",
            "empty",
            "full",
            "rand",
            "randn",
            "zeros_like",
            "ones_like",
            "rand_like",
            "randn_like",
            "eye",
            "linspace",
            "full_like",
            "empty_like",
            "load",
        }:
            graph = Graph.YES if _flag(node, "requires_grad") else Graph.NO
            if last == "load":
                return UNKNOWN
            return tensor(
                graph=graph,
                device=Device.ACCELERATOR if self._to_accelerator(node) else Device.UNKNOWN,
                sources=frozenset({id(node)}) if graph else frozenset(),
            )
        if last in PAIRS:
            found = mixed(args[:1])
            index = found.having(graph=Graph.NO, sources=frozenset(), size=min(found.size, Size.SMALL), kind=Kind.TENSOR)
            dims = len(node.args) > 1 or any(arg.keyword is not None for arg in node.args)
            values = found.having(
                kind=Kind.TENSOR, sure=True, size=Size.SMALL if last in {"max", "min", "median", "mode"} and found.size is Size.DENSE else found.size
            )
            return pack([(0, values), (1, index), ("values", values), ("indices", index)]) if dims else values.having(size=Size.SCALAR)
        self._are_tensors(node, args)
        found = mixed(args)
        if functional and (
            last.endswith("loss") or last in {"cross_entropy", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "nll_loss"}
        ):
            reduced = not any(arg.keyword is not None and arg.keyword.value == "reduction" and constant_key(arg.value) == "none" for arg in node.args)
            if not found.tensorlike:
                return tensor(
                    graph=Graph.MAYBE if found.graph else Graph.NO, size=Size.SCALAR if reduced else Size.SMALL, tags=found.tags, sources=found.sources
                )
            return found.having(kind=Kind.TENSOR, size=Size.SCALAR if reduced else Size.SMALL, sure=True)
        if not found.tensorlike:
            if found.kind is Kind.PLAIN and not args:
                return UNKNOWN
            return tensor(graph=Graph.MAYBE if found.graph else Graph.NO, tags=found.tags, sources=found.sources, device=Device.UNKNOWN)
        if last in REDUCTIONS:
            return found.having(kind=Kind.TENSOR, sure=True, size=Size.SCALAR if len(node.args) == 1 else Size.UNKNOWN)
        if last in VIEWS and args and args[0].tensorlike:
            return args[0].having(kind=Kind.TENSOR, sure=True, view=args[0].view, home=())
        if last in {"sigmoid", "softmax"}:
            return found.having(kind=Kind.TENSOR, sure=True, moved="unit")
        if last in {
            "relu",
            "softmax",
            "sigmoid",
            "log_softmax",
            "tanh",
            "normalize",
            "dropout",
            "interpolate",
            "clamp",
            "abs",
            "exp",
            "log",
            "sqrt",
            "square",
            "where",
            "clone",
        }:
            return found.having(kind=Kind.TENSOR, sure=True)
        del state
        return found.having(kind=Kind.TENSOR if functional else Kind.OPAQUE if last[:1].isupper() else Kind.TENSOR, sure=True)

    @staticmethod
    def _numpy(last: str, args: list[Held]) -> Held:
        found = mixed([leaf for held in args for leaf in held.leaves()])
        tags = frozenset().union(*(held.all_tags for held in args)) if args else frozenset[int]()
        size = found.size if found.tensorlike else Size.UNKNOWN
        if last in {"mean", "sum", "std", "float32", "float64", "int64", "isnan", "max", "min", "median", "sqrt", "log", "exp"} and len(args) == 1:
            return Held(Kind.ARRAY, size=Size.SCALAR, device=Device.HOST, tags=tags)
        if last in {"argmax", "argmin", "argsort", "unique", "bincount", "equal", "nonzero"}:
            size = min(size, Size.SMALL)
        keeps = last in {"asarray", "squeeze", "reshape", "ravel", "transpose", "expand_dims"} and found.tensorlike
        storage = args[0].storage if keeps and args else Storage.OWN
        view = args[0].view if keeps and args else False
        return Held(Kind.ARRAY, Graph.NO, Device.HOST, storage, size, sure=True, view=view, tags=tags)

    def _to_accelerator(self, node: cst.Call) -> bool:
        for arg in node.args:
            if arg.keyword is not None and arg.keyword.value == "device":
                return self._device(arg.value) is Device.ACCELERATOR
        return False

    def _device(self, node: cst.BaseExpression) -> Device:
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

    # -- methods -------------------------------------------------------------------------------------------------------

    def method_call(self, node: cst.Call, func: cst.Attribute, base: Held, state: State) -> Held:
        """What a method call gives, and what it does."""
        method = func.attr.value
        args = self._arguments(node, state)
        if base.kind is Kind.MODULE:
            return self._module_method(node, func, base, args, state)
        if base.kind is Kind.PACK:
            return self._pack_method(node, method, base, args, state)
        if base.kind is Kind.ITERABLE:
            if method in {"next", "__next__"}:
                return base.each or UNKNOWN
            if method in {"__iter__", "log_every"}:
                return base
            if method in {"items", "enumerate"}:
                return Held(Kind.ITERABLE, each=pack([(0, PLAIN), (1, self.element_of(base))]), loader=base.loader)
            return UNKNOWN
        if base.kind is Kind.PLAIN:
            return PLAIN
        return self._tensor_method(node, method, base, args, state)

    def _tensor_method(self, node: cst.Call, method: str, base: Held, args: list[Held], state: State) -> Held:
        if method == "backward":
            self.went_backward(node, state, base, retain=_flag(node, "retain_graph") or _flag(node, "create_graph"))
            return PLAIN
        if method in PLAIN_METHODS:
            return PLAIN
        if method in _ASKS_GRADIENTS and not (method == "requires_grad_" and args and names.dotted(node.args[0].value) == "False"):
            self.used(node, state, "gradients")
            return base
        if method in {"detach", "detach_"}:
            return base.having(
                graph=Graph.NO, sources=frozenset(), home=(), moved="detach", kind=Kind.TENSOR if base.kind is Kind.OPAQUE else base.kind, sure=True
            )
        if method not in {"items", "keys", "values", "get", "update", "copy", "pop", "append", "extend"} and isinstance(node.func, cst.Attribute):
            self.is_tensor(node.func.value, base)
        proven = (
            base.having(kind=Kind.TENSOR, sure=True)
            if base.kind is Kind.OPAQUE and method not in {"items", "keys", "values", "get", "update", "copy", "pop"}
            else base
        )
        if method == "update" and base.kind is Kind.OPAQUE and args:
            if base.home:
                added = args[0]
                state.env[base.home] = base.having(graph=max(base.graph, added.carries), sources=base.sources | added.all_sources, tags=base.tags | added.all_tags)
            return PLAIN
        if method in {"items", "keys", "values", "get", "pop", "copy"} and base.kind is Kind.OPAQUE:
            return self._opaque_mapping(node, method, base, args)
        if method in {"numpy", "__array__"}:
            return proven.having(kind=Kind.ARRAY, graph=Graph.NO, sources=frozenset(), home=(), device=Device.HOST)
        if method == "cpu":
            own = base.device is Device.ACCELERATOR
            return proven.having(
                device=Device.HOST, storage=Storage.OWN if own else base.storage, view=base.view and not own, moved="cpu()" if base.graph else "", home=()
            )
        if method in TO_DEVICE:
            return proven.having(device=Device.ACCELERATOR, storage=Storage.OWN, view=False, home=())
        if method == "to":
            return self._to(node, base, proven)
        if method in {"clone", "copy", "contiguous", "pin_memory"}:
            own = method != "contiguous"
            return proven.having(storage=Storage.OWN if own else base.storage, view=base.view and not own, home=())
        if method in CASTS:
            integer = any("int" in self.code(arg.value) or "bool" in self.code(arg.value) for arg in node.args)
            if integer:
                return proven.having(
                    graph=Graph.NO,
                    sources=frozenset(),
                    size=min(base.size, Size.SMALL) if base.size is not Size.DENSE else base.size,
                    storage=Storage.OWN,
                    home=(),
                )
            copies = method in {"astype", "double", "half"}
            return proven.having(
                moved=f"{method}()" if base.graph else base.moved, storage=Storage.OWN if copies else base.storage, view=base.view and not copies, home=()
            )
        if method in SMALL_METHODS:
            size = Size.SMALL if method in {"argmax", "argmin", "unique", "bincount", "nonzero", "argsort"} or base.size is not Size.DENSE else base.size
            size = min(size, Size.SMALL) if method in {"eq", "ne", "ge", "gt", "le", "lt", "all", "any", "argmax", "argmin"} else min(size, base.size)
            return proven.having(graph=Graph.NO, sources=frozenset(), size=size, storage=Storage.OWN, view=False, home=(), moved="")
        if method in PAIRS:
            index = proven.having(graph=Graph.NO, sources=frozenset(), size=Size.SMALL, storage=Storage.OWN, view=False, moved="")
            values = proven.having(
                size=Size.SMALL if method in {"max", "min", "median", "mode"} and base.size is Size.DENSE else base.size,
                storage=Storage.OWN,
                view=False,
                moved="",
            )
            if node.args:
                return pack([(0, values), (1, index), ("values", values), ("indices", index)])
            return values.having(size=Size.SCALAR)
        if method in REDUCTIONS:
            dims = [arg for arg in node.args if arg.keyword is None or arg.keyword.value in {"dim", "axis"}]
            return proven.having(
                size=Size.SCALAR if not dims else Size.UNKNOWN if base.size is Size.DENSE else base.size, storage=Storage.OWN, view=False, home=(), moved=""
            )
        if method in {"amax", "amin"}:
            return proven.having(size=Size.SCALAR if not node.args else Size.UNKNOWN, storage=Storage.OWN, view=False, home=(), moved="")
        if method in {"sigmoid", "softmax"}:
            return proven.having(storage=Storage.OWN, view=False, home=(), moved="unit")
        if method in VIEWS:
            parts = method in {"chunk", "split", "unbind"}
            part = base.size is Size.DENSE
            found = proven.having(home=(), view=base.view or (part and method in {"narrow", "select"}), moved=base.moved)
            return Held(Kind.PACK, inside=found.having(view=base.view or part), sure=True) if parts else found
        if method.endswith("_") and not method.startswith("_"):
            return mixed([proven, *args]).having(kind=proven.kind, storage=base.storage, home=base.home)
        if method in {"append", "extend"} and base.kind is Kind.OPAQUE:
            return PLAIN
        found = mixed([proven, *args])
        return found.having(kind=proven.kind, home=(), sure=proven.sure)

    def _to(self, node: cst.Call, base: Held, proven: Held) -> Held:
        device = Device.UNKNOWN
        for arg in node.args:
            if arg.keyword is None or arg.keyword.value == "device":
                device = self._device(arg.value)
                if device is not Device.UNKNOWN:
                    break
        if device is Device.ACCELERATOR:
            return proven.having(device=device, storage=Storage.OWN, view=False, home=())
        if device is Device.HOST:
            own = base.device is Device.ACCELERATOR
            return proven.having(
                device=device, storage=Storage.OWN if own else base.storage, view=base.view and not own, moved="to('cpu')" if base.graph else "", home=()
            )
        return proven.having(storage=Storage.UNKNOWN if base.storage is Storage.LOADER else base.storage, home=())

    @staticmethod
    def _opaque_mapping(node: cst.Call, method: str, base: Held, args: list[Held]) -> Held:
        del node, args
        if method == "items":
            return Held(Kind.ITERABLE, each=pack([(0, PLAIN), (1, base.having(home=()))]))
        if method == "values":
            return Held(Kind.ITERABLE, each=base.having(home=()))
        return PLAIN if method == "keys" else base.having(home=())

    def _pack_method(self, node: cst.Call, method: str, base: Held, args: list[Held], state: State) -> Held:
        path = base.home
        if method in _ADDS and args:
            added = args[-1]
            if base.moved == "bounded":
                return PLAIN
            self.stored(node, state, "append", path, added, node.args[-1].value, base)
            self._grow(path, base, added.having(tags=added.tags), node, state)
            return PLAIN
        if method == "extend" and args:
            if base.moved == "bounded":
                return PLAIN
            added = args[0].any() if args[0].kind is Kind.PACK else self.element_of(args[0])
            self.stored(node, state, "extend", path, added, node.args[0].value, base)
            self._grow(path, base, added, node, state)
            return PLAIN
        if method in _EMPTIES:
            self.was_reset(node, state, path)
            if path:
                state.env[path] = Held(Kind.PACK, home=path, sure=True)
            return PLAIN
        if method in _TAKES:
            self.was_reset(node, state, path, bound=True)
            return base.any()
        if method == "update" and args:
            self._grow(path, base, args[0].any() if args[0].kind is Kind.PACK else args[0], node, state)
            return PLAIN
        if method == "items":
            each = pack([(0, PLAIN), (1, base.any().having(home=(*path, "*") if path else ()))])
            known = tuple((n, pack([(0, PLAIN), (1, held)])) for n, (_, held) in enumerate(base.items)) if base.exact else ()
            return Held(Kind.ITERABLE, each=each, tags=base.tags, items=known, exact=bool(known))
        if method == "values":
            return Held(Kind.ITERABLE, each=base.any().having(home=(*path, "*") if path else ()), tags=base.tags)
        if method == "keys":
            return Held(Kind.ITERABLE, each=PLAIN)
        if method in {"get", "setdefault"} and node.args:
            key = constant_key(node.args[0].value)
            default = args[1] if len(args) > 1 else PLAIN
            item = base.item(key)
            found = item if item is not None else base.any() if (base.inside is not None or base.items) else default
            return found.having(home=(*path, key if isinstance(key, str | int) else "*")) if path else found
        if method == "copy":
            return base.having(home=())
        return PLAIN if method in {"count", "index", "remove", "sort", "reverse"} else UNKNOWN

    def _grow(self, path: Path, base: Held, added: Held, node: cst.CSTNode, state: State) -> None:
        if path:
            tagged = frozenset({id(node)})
            state.env[path] = base.having(
                inside=meet(base.inside, added.having(home=())) if base.inside is not None else added.having(home=()),
                tags=base.tags | tagged,
                exact=False,
                kind=Kind.PACK,
            )

    def _module_method(self, node: cst.Call, func: cst.Attribute, base: Held, args: list[Held], state: State) -> Held:
        method = func.attr.value
        metric = self._metric(node, func, base, args, state)
        if metric is not None:
            return metric
        if method in {"forward", "__call__"}:
            return self.forward(node, base, state, args)
        if method in {"eval", "train"}:
            off = method == "train" and bool(node.args) and names.dotted(node.args[0].value) == "False"
            told = not node.args or names.dotted(node.args[0].value) in {"True", "False"}
            if told and not base.frozen:
                state.evaluating = method == "eval" or off
            elif not told:
                state.evaluating = None
            return base
        if method == "requires_grad_":
            frozen = bool(node.args) and names.dotted(node.args[0].value) == "False"
            found = base.having(frozen=frozen)
            if base.home:
                state.env[base.home] = found
            return found
        if method in {"to", "cuda", "cpu", "half", "float", "double", "bfloat16", "apply", "compile", "share_memory", "type"}:
            return base
        if method in {"backward", "manual_backward"} and args:
            self.went_backward(node, state, args[0], retain=_flag(node, "retain_graph"))
            return PLAIN
        if method in {"zero_grad", "load_state_dict", "log", "log_dict", "save_hyperparameters", "print", "save_pretrained"}:
            return PLAIN
        if method in {"parameters", "named_parameters", "buffers", "modules", "named_modules", "children", "state_dict", "named_children"}:
            return UNKNOWN
        this = instance_of(base)
        if this is not None:
            found = self.evaluator.method(this, method)
            if found is not None:
                return self._run(found, node, args, base.home, state)
            held = self.member(base, method)
            if held.kind is Kind.MODULE:
                return self.forward(node, held, state, args)
        known = state.env.get((*base.home, method)) if base.home else None
        if known is not None and known.kind is Kind.MODULE:
            return self.forward(node, known, state, args)
        if LOSS_NAME.search(method):
            return self._loss(args)
        if MODULE_NAME.search(method):
            return self.forward(node, module_of(frozen=FROZEN_NAME.search(method) is not None), state, args)
        if _LIKE_FORWARD.search(method):
            return self.forward(node, module_of(frozen=base.frozen, sure=base.sure), state, args)
        if method == "generate":
            return Held(Kind.OPAQUE, size=Size.SMALL, device=Device.UNKNOWN)  # Hugging Face and its like generate without gradients
        self.used(node, state, f"module.{method}")
        tags = frozenset().union(*(held.all_tags for held in args)) if args else frozenset[int]()
        return UNKNOWN.having(graph=Graph.MAYBE, tags=tags)

    def _method_of_unknown(self, node: cst.Call, func: cst.Attribute, base: Held, args: list[Held], state: State) -> Held:
        """A method of something that nobody knows: what its name says."""
        method = func.attr.value
        word = names.last_name(func.value)
        if method in {"backward", "manual_backward"}:
            self.went_backward(node, state, args[0] if args and not (base.graph or base.sources) else mixed([base, *args]), retain=_flag(node, "retain_graph"))
            return PLAIN
        if method == "scale" and args:
            return args[0]
        if method in {"item", "tolist"}:
            return PLAIN
        if method in {
            "numpy",
            "detach",
            "cpu",
            "cuda",
            "to",
            "float",
            "long",
            "clone",
            "argmax",
            "softmax",
            "squeeze",
            "view",
            "reshape",
            "mean",
            "sum",
            "size",
            "numel",
            "unsqueeze",
            "permute",
        }:
            if method == "sum" and node.args:
                return self._tensor_method(node, method, base.having(kind=Kind.TENSOR), args, state)
            return self._tensor_method(node, method, base.having(kind=Kind.TENSOR, device=base.device, home=()), args, state)
        if method in _ADDS - {"put", "add"} and args and base.home and base.kind is Kind.OBJECT and base.value is not None:
            return UNKNOWN  # an object with an `append` of its own: a writer, a file
        if method in _ADDS - {"put", "add"} and args and base.home:
            self.stored(node, state, "append", base.home, args[-1], node.args[-1].value, base)
            if base.kind is not Kind.OBJECT:
                self._grow(base.home, base, args[-1], node, state)
            return PLAIN
        if method == "extend" and args and base.home and base.kind is not Kind.OBJECT:
            added = args[0].any() if args[0].kind is Kind.PACK else self.element_of(args[0])
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
        if method in {"eval", "train"} and not node.args:
            state.evaluating = method == "eval"
            return base
        if method == "items":
            return Held(Kind.ITERABLE, each=pack([(0, PLAIN), (1, base.having(home=(*base.home, "*") if base.home else ()))]))
        if method == "values" and not node.args:
            return Held(Kind.ITERABLE, each=base.having(home=(*base.home, "*") if base.home else ()))
        if method in {"get", "setdefault"} and base.home and node.args:
            key = constant_key(node.args[0].value)
            path = (*base.home, key if isinstance(key, str | int) else "*")
            return state.env.get(path) or (args[1] if method == "setdefault" and len(args) > 1 else UNKNOWN).having(home=path)
        if method in {"next", "__next__"}:
            return base.each or batch() if base.kind is Kind.ITERABLE else UNKNOWN
        if LOSS_NAME.search(method):
            return self._loss(args)
        if method == "forward":
            return self.forward(node, module_of(frozen=FROZEN_NAME.search(word) is not None), state, args)
        code = names.dotted(func)
        if self.is_module_name(func) or (code.startswith("self.") and MODULE_NAME.search(method)):
            return self.forward(node, module_of(frozen=FROZEN_NAME.search(method) is not None), state, args)
        if method == "step" and any(word.lower().startswith(start) for start in ("opt", "trainer", "accelerator", "scaler")):
            self.used(node, state, "step")
            return UNKNOWN
        if method.startswith(_FREEZES):
            return UNKNOWN
        return self._unknown(node, method, args, state)


def _is_metric(held: Held) -> bool:
    return held.kind is Kind.OBJECT and isinstance(held.value, ExternalCall) and held.value.name.startswith(("torchmetrics.", "torcheval."))


def _flag(node: cst.Call, name: str) -> bool:
    """Whether a keyword argument is there and not literally False."""
    return any(arg.keyword is not None and arg.keyword.value == name and names.dotted(arg.value) not in {"False", "None"} for arg in node.args)
