"""What expressions are by their definition alone, wherever they stand: modules, loaders, metrics, objects, constants."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import ALLOCATORS, EMPTY_CONTAINERS, SAME_MODEL
from oomlint.model import arguments, names
from oomlint.model.flow_state import Flowing, instance_of, module_of
from oomlint.model.freezing import ALL, frozen_parts, learns
from oomlint.model.lifetime import has_maxlen
from oomlint.model.tensor_shapes import pools_all
from oomlint.model.tensor_state import FEW, MAP, NOWHERE, PLAIN, UNKNOWN, Device, Graph, SampleSize, Storage, TensorState, ValueKind, join_all, pack, tensor
from oomlint.model.torch_tables import AXES, FAST_PATH, FROZEN_NAME, MAPS, PARAMETERLESS, SEQUENCES, TRAINABLE_FACTORIES, WEIGHTED, WEIGHTS
from oomlint.model.values import (
    Alternative,
    ClassRef,
    Const,
    Display,
    Each,
    External,
    ExternalCall,
    FunctionRef,
    Instance,
    ModuleRef,
    Partial,
    SourceExpression,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oomlint.model.values import Alternatives, Frame, Value

_UNREDUCED: Final = re.compile(r"""reduction\s*=\s*["']none|reduce\s*=\s*False""")  # a loss for each sample
_NO_MODULES: Final = ("Config", "Processor", "FeatureExtractor", "Arguments", "Trainer", "_Weights")  # classes of such libraries that make or hold no network
_DEEPEST_STATIC: Final = 4
_MOST_ELEMENTS: Final = 6  # of a display that are looked at
_METRICS: Final = ("torchmetrics.", "torcheval.")
# Meters whose sums take a tensor with its graph, and the method that adds (run: timm 1.0.31, torchnet 0.0.4).
_SUMS: Final = {
    "timm.utils.AverageMeter": "update",
    "timm.utils.metrics.AverageMeter": "update",
    "torchnet.meter.MovingAverageValueMeter": "add",
    "torchnet.meter.MSEMeter": "add",
}
_WRAPS_MODULE: Final = frozenset(
    "torch.nn.DataParallel torch.nn.parallel.DistributedDataParallel torch.nn.parallel.DataParallel torch.nn.SyncBatchNorm.convert_sync_batchnorm "
    "torch.optim.swa_utils.AveragedModel apex.parallel.DistributedDataParallel torch.compile torch.jit.script torch.jit.trace copy.deepcopy "
    "torch.nn.utils.weight_norm torch.nn.utils.spectral_norm".split()
)


class FlowDefinitions(Flowing):
    """Says what things are made as."""

    def static(self, node: cst.BaseExpression, frame: Frame, depth: int = 0) -> TensorState:
        """What an expression is wherever it stands, by its definition: a module, an object, a constant."""
        if depth > _DEEPEST_STATIC:
            return UNKNOWN
        key = (node, frame)
        known = self.known.statics.get(key)
        if known is not None:
            return known
        found = _likeliest(self._classified(alt.value, node, frame, depth) for alt in self.evaluator.values(node, frame)[:4])
        if depth == 0:
            self.known.statics[key] = found
        return found

    def member(self, base: TensorState, name: str) -> TensorState:
        """An attribute of an object, a class or a module of the project, or of a library."""
        value = base.value
        if not isinstance(value, Instance | ClassRef | ModuleRef | External):
            return UNKNOWN
        key = (value, name)
        known = self.known.statics.get(key)
        if known is not None:
            return known
        self.known.statics.assume(key, UNKNOWN)
        found = _likeliest(self._classified(alt.value, None, self.act.frame, 0) for alt in self.members(value, name)[:4])
        if found.kind is ValueKind.UNKNOWN and isinstance(value, Instance) and name in WEIGHTS and self._is_layer(value):
            found = tensor(graph=Graph.YES, sources=frozenset({id(value.cls.scope)}), size=SampleSize.UNKNOWN)
        frozen = self.frozen_parts(value.cls) if isinstance(value, Instance) else ()
        if name in frozen or (found.kind is ValueKind.MODULE and ALL in frozen):
            found = (found if found.kind is ValueKind.MODULE else TensorState(ValueKind.MODULE)).having(frozen=True, sure=True)
        self.known.statics[key] = found
        return found

    def frozen_parts(self, cls: ClassRef) -> frozenset[str]:
        """The attributes whose modules the constructor of a class freezes."""
        return self.known.frozen.answer(cls.scope, lambda: frozen_parts(cls, self.evaluator))

    def _is_layer(self, value: Instance) -> bool:
        """Whether the class of an object derives from a layer of torch that has weights."""
        return any(isinstance(base, External) and WEIGHTED.search(base.name) for base in self.evaluator.lineage(value.cls))

    def members(self, value: Value, name: str) -> Alternatives:
        """What an attribute of a resolved thing can be."""
        if isinstance(value, Instance):
            return self.evaluator.attribute(value, name, ())
        if isinstance(value, External):
            return [Alternative(External(names.canonical(f"{value.name}.{name}")))]
        return self.evaluator.into_value(value, (("attr", name),))

    def _classified(self, value: Value, node: cst.BaseExpression | None, frame: Frame, depth: int) -> TensorState | None:
        """What the evaluator's answer is in terms of memory; ``None`` where it says nothing."""
        if isinstance(value, Const):
            # None says only that something is filled in later.
            return PLAIN.having(value=value) if value.value is not None else None
        if isinstance(value, Instance):
            return self.object_of(value)
        if isinstance(value, FunctionRef | ClassRef | External | Partial | ModuleRef):
            return TensorState(ValueKind.OBJECT, value=value)
        if isinstance(value, ExternalCall):
            return self.made_outside(names.canonical(value.name), value.call, value.frame, depth)
        if isinstance(value, Display):
            return self._displayed(value.node, value.frame, depth)
        if isinstance(value, SourceExpression) and (value.node is not node or value.frame is not frame):
            return self._written(value.node, value.frame, depth)
        if isinstance(value, Each):
            return None
        if isinstance(node, cst.Call):
            return self._written(node, frame, depth)
        return None

    def _displayed(self, display: cst.BaseExpression, frame: Frame, depth: int) -> TensorState:
        """A list, tuple, set or dictionary, by the first of its elements."""
        if isinstance(display, cst.List | cst.Tuple | cst.Set):
            parts = [self.static(e.value, frame, depth + 1) for e in display.elements[:_MOST_ELEMENTS] if isinstance(e, cst.Element)]
            kinds = {part.kind for part in parts}
            if kinds == {ValueKind.MODULE}:
                return TensorState(ValueKind.PACK, inside=parts[0], sure=True)
            return TensorState(
                ValueKind.PACK, inside=PLAIN if kinds and kinds <= {ValueKind.PLAIN} else join_all(parts) if parts else None, sure=True, moved="list"
            )
        if isinstance(display, cst.ListComp | cst.SetComp):
            return TensorState(ValueKind.PACK, inside=self.static(display.elt, frame, depth + 1), sure=True)
        if isinstance(display, cst.DictComp):
            return TensorState(ValueKind.PACK, inside=self.static(display.value, frame, depth + 1), sure=True)
        if isinstance(display, cst.Dict):
            values = [self.static(e.value, frame, depth + 1) for e in display.elements[:_MOST_ELEMENTS] if isinstance(e, cst.DictElement)]
            if values and all(is_metric(held) or held.kind in {ValueKind.MODULE, ValueKind.OBJECT} for held in values):
                return TensorState(ValueKind.PACK, inside=join_all(values), sure=True)
        if isinstance(display, cst.Call) and names.last_name(display.func) != "dict":  # `SimpleNamespace(net=net)`
            named = ((arg.keyword.value, self.static(arg.value, frame, depth + 1)) for arg in display.args[:_MOST_ELEMENTS] if arg.keyword is not None)
            return TensorState(ValueKind.OBJECT, items=pack((name, held.having(home=NOWHERE)) for name, held in named).items)
        return TensorState(ValueKind.PACK, sure=True)

    def _written(self, node: cst.BaseExpression, frame: Frame, depth: int) -> TensorState | None:
        """An expression that the evaluator leaves as it is: a module that was moved, wrapped or put into evaluation; a list that is repeated."""
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply) and isinstance(node.left, cst.List):
            return self._displayed(node.left, frame, depth)
        if not isinstance(node, cst.Call):
            return None
        func = node.func
        if isinstance(func, cst.Attribute):
            if func.attr.value in SAME_MODEL:
                base = self.static(func.value, frame, depth + 1)
                if base.kind is ValueKind.MODULE or is_metric(base):
                    return base
                return module_of() if func.attr.value == "eval" and not node.args else None
            if func.attr.value == "clone":
                base = self.static(func.value, frame, depth + 1)
                return base if is_metric(base) else None
            if func.attr.value in {"prepare", "setup", "initialize"} and node.args:
                found = self.static(node.args[0].value, frame, depth + 1)
                return found if found.kind is ValueKind.MODULE and len(node.args) == 1 else None
        return None

    def object_of(self, value: Instance) -> TensorState:
        """An object of a class of the project."""
        line = self.evaluator.lineage(value.cls)
        outside = [base.name for base in line if isinstance(base, External)]
        if any(
            base.startswith(("torch.nn.", "torch_geometric.nn.", "transformers.")) and not base.endswith(("Trainer", "Config", "Arguments", "Tokenizer"))
            for base in outside
        ) or any(base.endswith(("LightningModule", "torch.nn.Module")) for base in outside):
            own = self.evaluator.method(value, "forward")
            return module_of(value=value, dims=0 if own is not None else max((_axes(base.rpartition(".")[2]) for base in outside), default=0))
        if "torch.autograd.Function" in outside:
            return TensorState(ValueKind.OBJECT, value=value)
        return TensorState(ValueKind.OBJECT, value=value, sure=True)

    def made_outside(self, name: str, call: cst.Call, frame: Frame, depth: int = 0) -> TensorState:
        """What a library made: a module, a loader, something else."""
        last = name.rpartition(".")[2]
        if name in _WRAPS_MODULE and call.args:
            base = self.static(call.args[0].value, frame, depth + 1)
            return base if base.kind is ValueKind.MODULE else module_of() if not name.startswith("copy") else UNKNOWN
        if name.startswith("torch.nn.") and not name.startswith(("torch.nn.functional.", "torch.nn.init.", "torch.nn.utils.")):
            if last in {"ModuleDict", "ModuleList"} and call.args:
                inside = self.static(call.args[0].value, frame, depth + 1).inside
                if inside is not None and is_metric(inside):
                    return TensorState(ValueKind.PACK, inside=inside, sure=True)
            if last == "Parameter":
                return tensor(graph=Graph.YES, sources=frozenset({id(call)}), size=SampleSize.UNKNOWN) if learns(call) else tensor(size=SampleSize.UNKNOWN)
            if last[:1].isupper():
                path = _way_of(frame.module.code(call)) if _way_of(frame.module.source.text) else ""  # to write out a call takes long
                dims, size = self._output(last, call, frame, depth)
                frozen = PARAMETERLESS.search(last) is not None or (last == "Sequential" and self._only_transforms(call, frame, depth))
                return module_of(value=External(name), frozen=frozen, moved=path, dims=dims, size=size)
        if name.startswith(TRAINABLE_FACTORIES):
            parts = name.split(".")
            aside = "utils" in parts[1:-1] or any(part.endswith(_NO_MODULES) for part in parts)
            if aside or "okenizer" in name or "schedule" in name.lower():
                return TensorState(ValueKind.OBJECT, value=External(name))
            plain = name.startswith("torchvision.models.") and not FAST_PATH.search(name)
            return module_of(value=External(name) if plain else None, frozen=FROZEN_NAME.search(name) is not None, dims=MAP + 1 if name.startswith(MAPS) else 0)
        if name.startswith("torch.optim."):
            return TensorState(ValueKind.OBJECT, value=External(name))
        loader = self.loader_of(call, frame.module, frame.scope, frame) if "oader" in name else None
        if loader is not None:
            return TensorState(ValueKind.ITERABLE, loader=loader, each=batch())
        if name.startswith(_METRICS):
            return TensorState(ValueKind.OBJECT, value=ExternalCall(name, call, frame))
        if name == "torch.device":
            return PLAIN
        if name in {"torch.tensor", "torch.zeros", "torch.ones", "torch.empty", "torch.rand", "torch.randn", "torch.FloatTensor"}:
            return tensor(device=Device.UNKNOWN)
        if name.startswith("collections.deque") or last == "deque":
            return TensorState(ValueKind.PACK, sure=True, moved="bounded" if has_maxlen(call) else "")
        if name == "collections.defaultdict" and call.args:
            return TensorState(ValueKind.PACK, sure=True, inside=self._made_by(call.args[0].value, frame))
        if name in EMPTY_CONTAINERS | {"builtins.tuple"}:
            return TensorState(ValueKind.PACK, sure=True)
        if name.startswith("numpy.") and last in ALLOCATORS | {"array"}:
            return TensorState(ValueKind.ARRAY, sure=True, device=Device.HOST)
        return TensorState(ValueKind.OBJECT, value=ExternalCall(name, call, frame))

    def _output(self, last: str, call: cst.Call, frame: Frame, depth: int) -> tuple[int, SampleSize]:
        """How many axes the result of a layer has at least, and how much it is for each row.

        0 where the axes depend on what it is given. `SampleSize.SMALL` for a few numbers, as the last layer of a classifier gives.
        """
        if axes := _axes(last):
            return axes, SampleSize.UNKNOWN
        if last.startswith("Adaptive"):
            return 2 if pools_all(call, 0) else 0, SampleSize.UNKNOWN
        if last in SEQUENCES:
            return MAP, SampleSize.UNKNOWN
        if last == "Linear":
            number = arguments.argument_for(call, "out_features", place=1)
            # What `forward` gives is learnt once a class: whoever makes one of it counts.
            frames = (frame, *self.evaluator.calls.frames(frame.module, frame.scope))
            return 0, SampleSize.SMALL if number is not None and all(self._is_few(number, one) for one in frames) else SampleSize.UNKNOWN
        if last != "Sequential" or depth > _DEEPEST_STATIC:
            return 0, SampleSize.UNKNOWN
        size: SampleSize | None = None
        for arg in reversed(call.args):
            layer = self.static(arg.value, frame, depth + 1) if not arg.star else UNKNOWN
            kind = layer.value.name.rpartition(".")[2] if isinstance(layer.value, External) else ""
            if size is None and not (layer.frozen and kind):
                size = layer.size if layer.kind is ValueKind.MODULE else SampleSize.UNKNOWN
            if layer.dims or kind == "Flatten":
                return layer.dims or 2, size or SampleSize.UNKNOWN  # flattened: a row for each sample
            if kind != "Linear" and (PARAMETERLESS.search(kind) is None or kind.endswith("latten")):
                break
        return 0, size or SampleSize.UNKNOWN

    def _only_transforms(self, call: cst.Call, frame: Frame, depth: int) -> bool:
        """Whether a `Sequential` is made of nothing that has parameters."""
        if depth > _DEEPEST_STATIC or not call.args or any(arg.star for arg in call.args):
            return False
        parts = [self.static(arg.value, frame, depth + 1) for arg in call.args]
        return all(self._is_transform(part) if part.kind is ValueKind.MODULE else part.kind is ValueKind.OBJECT for part in parts)

    def _is_transform(self, part: TensorState) -> bool:
        this = instance_of(part)
        return part.frozen or (this is not None and not self.trainable(this.cls))

    def _is_few(self, number: cst.BaseExpression, frame: Frame) -> bool:
        """Whether a number is known, and no more than a sample's label may have."""
        found = self.evaluator.values(number, frame)
        return bool(found) and all(isinstance(alt.const, int) and alt.const <= FEW for alt in found)

    def _made_by(self, factory: cst.BaseExpression, frame: Frame) -> TensorState | None:
        """What the factory of a defaultdict makes."""
        if isinstance(factory, cst.Lambda):
            return None
        for alt in self.evaluator.values(factory, frame)[:2]:
            if isinstance(alt.value, ClassRef):
                return self.object_of(Instance(alt.value, None))
            if isinstance(alt.value, External) and alt.value.name in {"builtins.float", "builtins.int"}:
                return PLAIN
        return None


@lru_cache(maxsize=1024)
def _way_of(code: str) -> str:
    """Which other way than most the layers take that a piece of code makes."""
    return "fast" if FAST_PATH.search(code) is not None else "unreduced" if _UNREDUCED.search(code) is not None else ""


def _axes(layer: str) -> int:
    """How many axes the result of a layer of torch has by its class; 0 where that depends on what it is given."""
    told = AXES.search(layer)
    return int(next(filter(None, told.groups()), 2)) + 2 if told is not None else 0


def _likeliest(parts: Iterable[TensorState | None]) -> TensorState:
    """The first of several values that says something; a plain value only where none says more."""
    found = UNKNOWN
    for held in parts:
        if held is not None and (found.kind is ValueKind.UNKNOWN or (found.kind is ValueKind.PLAIN and held.kind is not ValueKind.UNKNOWN)):
            found = held
    return found


def is_metric(held: TensorState) -> bool:
    """Whether a value is a metric of a library."""
    return held.kind is ValueKind.OBJECT and isinstance(held.value, ExternalCall) and held.value.name.startswith(_METRICS)


def adds_up(held: TensorState, method: str) -> bool:
    """Whether a method of a library's meter adds what it is given to a sum."""
    return held.kind is ValueKind.OBJECT and isinstance(held.value, ExternalCall) and _SUMS.get(names.canonical(held.value.name)) == method


def batch() -> TensorState:
    """What a loader gives: nobody knows its structure, but its tensors are the workers'."""
    return TensorState(ValueKind.OPAQUE, storage=Storage.LOADER, device=Device.HOST)
