"""What expressions hold: names, attributes, subscripts, operators, displays; and what they are by their definition alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import names
from oomlint.model.flow_state import Flowing, instance_of, module_of
from oomlint.model.held import PLAIN, UNKNOWN, Device, Graph, Held, Kind, Mode, Size, Storage, meet, meet_all, mixed, pack, tensor
from oomlint.model.torch_tables import (
    DENSE_NAME,
    FAST_PATH,
    FROZEN_NAME,
    LOSS_NAME,
    MODULE_NAME,
    PARAMETERLESS,
    PLAIN_ATTRIBUTES,
    SCALAR_NAME,
    SMALL_NAME,
    TRAINABLE_FACTORIES,
)
from oomlint.model.values import Alternative, ClassRef, Const, Display, Each, External, ExternalCall, FunctionRef, Instance, ModuleRef, Partial, Written
from oomlint.scout import LOADER_NAME
from oomlint.syntax.walk import UNKNOWN_KEY, constant_key

if TYPE_CHECKING:
    from oomlint.model.flow_state import State
    from oomlint.model.held import Path
    from oomlint.model.values import Alternatives, Frame, Value

_WIDE: Final = re.compile(r"hidden|token|feat|embed|state|attn|latent", re.IGNORECASE)  # what still is an array for each sample when one index is fixed
NAMED: Final = "named"  # stands for a loader that is one by its name alone
_DEEPEST_STATIC: Final = 4
_KEEPS_MODULE: Final = frozenset(
    {"to", "cuda", "cpu", "eval", "train", "half", "float", "double", "requires_grad_", "apply", "compile", "bfloat16", "type", "share_memory"}
)
_WRAPS_MODULE: Final = frozenset(
    {
        "torch.nn.DataParallel", "torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.DataParallel", "torch.compile", "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
        "apex.parallel.DistributedDataParallel", "torch.jit.script", "torch.jit.trace", "copy.deepcopy", "torch.nn.utils.weight_norm", "torch.nn.utils.spectral_norm",
    },
)  # fmt: skip


class FlowValues(Flowing):
    """Evaluates expressions."""

    def value(self, node: cst.BaseExpression, state: State) -> Held:
        """What an expression holds."""
        if isinstance(node, cst.Name):
            return self._name(node, state)
        if isinstance(node, cst.Attribute):
            return self._attribute(node, state)
        if isinstance(node, cst.Call):
            found = self.call(node, state)
            return found.unrecorded() if state.mode is Mode.OFF else found
        if isinstance(node, cst.Subscript):
            return self._subscript(node, state)
        if isinstance(node, cst.BaseNumber | cst.BaseString):
            if isinstance(node, cst.FormattedString):
                return PLAIN
            return PLAIN
        if isinstance(node, cst.BinaryOperation):
            left, right = self.value(node.left, state), self.value(node.right, state)
            if Kind.TENSOR in {left.kind, right.kind} or Kind.OPAQUE is left.kind is right.kind:
                self.is_tensor(node.left, left)
                self.is_tensor(node.right, right)
            found = self._arithmetic(left, right)
            return found.unrecorded() if state.mode is Mode.OFF else found
        if isinstance(node, cst.UnaryOperation):
            inner = self.value(node.expression, state)
            return PLAIN if isinstance(node.operator, cst.Not) else mixed([inner]) if inner.tensorlike else inner
        if isinstance(node, cst.Comparison):
            operands = [node.left, *(part.comparator for part in node.comparisons)]
            parts = [self.value(operand, state) for operand in operands]
            for operand, held in zip(operands, parts, strict=True):
                if any(other.kind is Kind.TENSOR for other in parts):
                    self.is_tensor(operand, held)
            if any(isinstance(part.operator, cst.Is | cst.IsNot | cst.In | cst.NotIn) for part in node.comparisons):
                return PLAIN
            found = mixed(parts)
            return found.having(graph=Graph.NO, sources=frozenset(), size=min(found.size, Size.SMALL)) if found.tensorlike else PLAIN
        if isinstance(node, cst.BooleanOperation):
            return meet(self.value(node.left, state), self.value(node.right, state))
        if isinstance(node, cst.IfExp):
            self.value(node.test, state)
            verdicts = self.verdicts(node.test)
            if len(verdicts) == 1:
                return self.value(node.body if True in verdicts else node.orelse, state)
            return meet(self.value(node.body, state), self.value(node.orelse, state))
        if isinstance(node, cst.Tuple | cst.List | cst.Set):
            return self._display(node, state)
        if isinstance(node, cst.Dict):
            return self._dictionary(node, state)
        if isinstance(node, cst.ListComp | cst.SetComp | cst.GeneratorExp):
            inner = state.copy()
            self._comprehension(node.for_in, inner)
            each = self.value(node.elt, inner)
            return (
                Held(Kind.PACK, inside=each, sure=True, moved="list") if not isinstance(node, cst.GeneratorExp) else Held(Kind.ITERABLE, each=each, inside=each)
            )
        if isinstance(node, cst.DictComp):
            inner = state.copy()
            self._comprehension(node.for_in, inner)
            return Held(Kind.PACK, inside=self.value(node.value, inner), sure=True)
        if isinstance(node, cst.NamedExpr):
            held = self.value(node.value, state)
            self.assign(node.target, held, state, node.value, node)
            return held
        if isinstance(node, cst.Await):
            return self.value(node.expression, state)
        if isinstance(node, cst.Yield):
            inside = node.value
            if isinstance(inside, cst.From):
                each = self.value(inside.item, state).each
            else:
                each = self.value(inside, state) if inside is not None else PLAIN
            self.act.yielded = meet(self.act.yielded, each) if each is not None else self.act.yielded
            return UNKNOWN
        return UNKNOWN

    def verdicts(self, test: cst.BaseExpression) -> frozenset[bool]:
        """How a test can come out in this activation, where only constants of the call decide; both where anything else does."""
        known = self.act.decided.get(test)
        if known is None:
            known = frozenset({True, False})
            if self._decidable(test):
                found = frozenset(verdict for verdict, _, _ in self.evaluator.truth(test, self.act.frame))
                known = found or known
            self.act.decided[test] = known
        return known

    def _decidable(self, test: cst.BaseExpression) -> bool:
        """Whether only parameters and constants stand in a test: what they are cannot change from pass to pass."""
        if isinstance(test, cst.UnaryOperation):
            return self._decidable(test.expression)
        if isinstance(test, cst.BooleanOperation):
            return self._decidable(test.left) and self._decidable(test.right)
        if isinstance(test, cst.Comparison):
            return self._decidable(test.left) and all(self._decidable(part.comparator) for part in test.comparisons)
        if isinstance(test, cst.Name):
            if test.value in {"True", "False", "None"}:
                return True
            return self.act.scope.parent is not None and test.value in {p.name.value for p in names.parameters(self.act.scope)}
        return isinstance(test, cst.SimpleString | cst.Integer)

    # -- names and attributes ------------------------------------------------------------------------------------------

    def _name(self, node: cst.Name, state: State) -> Held:
        path = self.act.path(node.value)
        known = state.env.get(path)
        if known is not None:
            if known.kind in {Kind.PACK, Kind.OBJECT} and known.home != path and known.home in state.env:
                return state.env[known.home]  # another name of the same object
            return self._by_name(known, node, path) if known.kind is Kind.UNKNOWN else known
        if node.value in self.act.params:
            return self.act.params[node.value]
        if node.value in {"True", "False", "None"}:
            return PLAIN
        local = self._is_local(node.value)
        found = UNKNOWN if local else self.static(node, self.act.frame)
        own = local or any(p.name.value == node.value for p in names.parameters(self.act.scope))
        home = path if own else (("global", node.value),)
        return self._by_name(found, node, home)

    def _is_local(self, name: str) -> bool:
        """Whether the scope itself binds the name to data: then only the run tells what it holds."""
        effects = self.act.scope.effects.get(name)
        if not effects or name in self.act.scope.outer or name in self.act.scope.enclosing:
            return False
        return (
            all(effect.kind not in {"import", "from", "def", "class"} for effect in effects)
            and any(not effect.path and effect.kind in {"assign", "for", "with"} for effect in effects)
            and not any(p.name.value == name for p in names.parameters(self.act.scope))
        )

    def member(self, base: Held, name: str) -> Held:
        """An attribute of an object, a class or a module of the project, or of a library."""
        value = base.value
        if not isinstance(value, Instance | ClassRef | ModuleRef | External):
            return UNKNOWN
        key = (value, name)
        known = self.known.statics.get(key)
        if known is not None:
            return known
        self.known.statics[key] = UNKNOWN
        found: Held | None = None
        for alt in self.members(value, name)[:4]:
            held = self._classified(alt.value, None, self.act.frame, 0)
            if held is not None:
                found = held if found is None or found.kind is Kind.UNKNOWN or (found.kind is Kind.PLAIN and held.kind is not Kind.UNKNOWN) else found
        self.known.statics[key] = found or UNKNOWN
        return found or UNKNOWN

    def members(self, value: Value, name: str) -> Alternatives:
        """What an attribute of a resolved thing can be."""
        if isinstance(value, Instance):
            return self.evaluator.attribute(value, name, ())
        if isinstance(value, External):
            return [Alternative(External(names.canonical(f"{value.name}.{name}")))]
        return self.evaluator.into_value(value, (("attr", name),))

    def _by_name(self, found: Held, node: cst.BaseExpression, home: Path) -> Held:
        """What the name of something unknown says of it, and where it lives."""
        if (
            found.kind is Kind.OBJECT
            and not isinstance(found.value, FunctionRef | ClassRef | External | ModuleRef)
            and LOADER_NAME.search(names.last_name(node))
        ):
            found = found.having(kind=Kind.ITERABLE, each=_batch(), loader=NAMED)
        elif found.kind is Kind.UNKNOWN or (
            isinstance(found.value, ExternalCall) and not found.value.name.startswith(("torch.", "torchmetrics.", "builtins."))
        ):
            word = names.last_name(node)
            if self.is_module_name(node) or MODULE_NAME.search(word):
                found = module_of(frozen=FROZEN_NAME.search(word) is not None, home=found.home)
            elif LOADER_NAME.search(word):
                found = Held(Kind.ITERABLE, each=_batch(), loader=NAMED)
            elif found.value is None:
                found = found.having(size=_size_by_name(word, found.size))
        return found if found.home else found.having(home=home)

    def _attribute(self, node: cst.Attribute, state: State) -> Held:
        base = self.value(node.value, state)
        word = node.attr.value
        path = (*base.home, word) if base.home else ()
        known = state.env.get(path) if path else None
        if known is not None:
            return known
        if word in {"param_groups", "training", "lr"}:
            return PLAIN
        if base.kind is Kind.PACK and (item := base.item(word)) is not None:
            return item
        if base.kind in {Kind.TENSOR, Kind.ARRAY}:
            if word in PLAIN_ATTRIBUTES:
                return PLAIN
            if word in {"data", "grad"}:
                return base.having(graph=Graph.NO, sources=frozenset())
            if word in {"T", "mT", "H", "real", "imag"}:
                return base.having(home=())
            return base if word not in {"values", "indices"} else self.method_pair(base, word)
        if base.kind is Kind.OPAQUE:
            if word in PLAIN_ATTRIBUTES:
                return PLAIN
            if word in {"data", "grad"}:
                return base.having(graph=Graph.NO, sources=frozenset())
            return base.having(size=_size_by_name(word, base.size), home=path)
        if base.kind is Kind.PLAIN:
            return PLAIN
        if base.kind is Kind.MODULE and word == "module":
            return base
        this = instance_of(base)
        if this is not None and path and not base.frozen:
            getter = self.evaluator.method(this, word)
            if getter is not None and names.is_property(getter.scope):
                return self.run_function(getter, cst.Call(node), [], {}, base.home, state)
        found = self.member(base, word)
        if base.kind is Kind.MODULE and found.kind is Kind.UNKNOWN and instance_of(base) is None and word in {"training", "device", "dtype"}:
            return PLAIN
        return self._by_name(found, node, path)

    @staticmethod
    def method_pair(base: Held, word: str) -> Held:
        """``.values`` and ``.indices`` of a (values, indices) result that was not taken apart."""
        return base if word == "values" else base.having(graph=Graph.NO, sources=frozenset(), size=Size.SMALL)

    # -- subscripts ----------------------------------------------------------------------------------------------------

    def _subscript(self, node: cst.Subscript, state: State) -> Held:
        base = self.value(node.value, state)
        indices = [element.slice for element in node.slice]
        index = [self.value(item.value, state) for item in indices if isinstance(item, cst.Index)]
        key = constant_key(indices[0].value) if len(indices) == 1 and isinstance(indices[0], cst.Index) else UNKNOWN_KEY
        path = (*base.home, key if key is not UNKNOWN_KEY else "*") if base.home else ()
        if path and path in state.env and base.kind is not Kind.PACK:
            return state.env[path]
        if base.kind is Kind.PACK:
            if len(indices) == 1 and isinstance(indices[0], cst.Slice):
                return base.having(home=())
            if isinstance(key, int) and key < 0 and base.exact:
                key = len(base.items) + key
            item = base.item(key) if key is not UNKNOWN_KEY else None
            found = item if item is not None else base.inside if key is not UNKNOWN_KEY and base.inside is not None and not base.exact else base.any()
            return found if found.home or not path else found.having(home=path)
        if base.kind is Kind.OPAQUE and (len(indices) > 1 or any(held.kind in {Kind.TENSOR, Kind.ARRAY} for held in index)):
            return self._part(node, base.having(kind=Kind.TENSOR, sure=True), indices, index)
        if base.kind is Kind.OPAQUE:
            word = key if isinstance(key, str) else ""
            return base.having(size=_size_by_name(word, base.size), home=path)
        if base.kind in {Kind.TENSOR, Kind.ARRAY}:
            return self._part(node, base, indices, index)
        if base.kind is Kind.PLAIN:
            return PLAIN
        if base.kind is Kind.ITERABLE:
            return base.each or UNKNOWN
        if base.kind is Kind.MODULE:
            return module_of(home=path, frozen=base.frozen)
        found = UNKNOWN
        if isinstance(key, str | int) and base.kind is Kind.UNKNOWN:
            found = self._by_key(found, key)
        return found if found.home or not path else found.having(home=path)

    @staticmethod
    def _by_key(found: Held, key: object) -> Held:
        if found.kind is not Kind.UNKNOWN or not isinstance(key, str):
            return found
        if LOADER_NAME.search(key):
            return Held(Kind.ITERABLE, each=_batch(), loader=NAMED)
        return found.having(size=_size_by_name(key, found.size))

    @staticmethod
    def _part(node: cst.Subscript, base: Held, indices: list[cst.BaseSlice], index: list[Held]) -> Held:
        """Part of a tensor: basic indices give a view, masks and lists of indices a copy."""
        copies = any(held.kind in {Kind.TENSOR, Kind.ARRAY, Kind.PACK, Kind.OPAQUE} for held in index)
        whole = all(
            (isinstance(item, cst.Slice) and item.lower is None and item.upper is None)
            or (isinstance(item, cst.Index) and isinstance(item.value, cst.Ellipsis))
            or (isinstance(item, cst.Index) and isinstance(item.value, cst.Name) and item.value.value == "None")
            for item in indices
        )
        if copies:
            return base.having(storage=Storage.OWN, view=False, moved="", home=())
        drops = [n for n, item in enumerate(indices) if isinstance(item, cst.Index) and not isinstance(item.value, cst.Ellipsis)]
        size = base.size
        if drops and drops[-1] > 0 and size is Size.DENSE and not _WIDE.search(names.last_name(node.value)):
            size = Size.UNKNOWN  # one column of each sample
        if drops and size is Size.SMALL:
            size = Size.SCALAR
        whole = whole or all(isinstance(item, cst.Slice) and _trims(item) for item in indices)
        return base.having(view=base.view or (not whole and base.size in {Size.DENSE, Size.UNKNOWN}), size=size, home=())

    # -- operators and displays ----------------------------------------------------------------------------------------

    @staticmethod
    def _arithmetic(left: Held, right: Held) -> Held:
        if left.kind is Kind.PACK or right.kind is Kind.PACK:
            packs = [held for held in (left, right) if held.kind is Kind.PACK]
            if len(packs) == 2:  # noqa: PLR2004 - both sides: a longer list
                return Held(Kind.PACK, inside=meet(left.any(), right.any()), sure=True, tags=left.all_tags | right.all_tags)
            other = right if left.kind is Kind.PACK else left
            if other.kind is Kind.PLAIN:
                return packs[0].having(home=())
            if other.kind is Kind.UNKNOWN:
                return packs[0].having(home=(), sure=False)
        return mixed([left, right])

    def _display(self, node: cst.Tuple | cst.List | cst.Set, state: State) -> Held:
        parts: list[tuple[object, Held]] = []
        inside: Held | None = None
        for number, element in enumerate(node.elements):
            held = self.value(element.value, state)
            if isinstance(element, cst.StarredElement):
                inside = meet(inside, held.any() if held.kind is Kind.PACK else held.each or held)
            else:
                parts.append((number, held))
        found = pack(parts)
        if isinstance(node, cst.List):
            found = found.having(moved="list")
        return found.having(inside=inside, exact=False) if inside is not None or len(parts) != len(found.items) else found

    def _dictionary(self, node: cst.Dict, state: State) -> Held:
        parts: list[tuple[object, Held]] = []
        inside: Held | None = None
        for element in node.elements:
            held = self.value(element.value, state)
            if isinstance(element, cst.DictElement):
                key = constant_key(element.key)
                if key is UNKNOWN_KEY:
                    inside = meet(inside, held)
                else:
                    parts.append((key, held))
            else:
                inside = meet(inside, held.any() if held.kind is Kind.PACK else UNKNOWN)
        found = pack(parts)
        return found.having(inside=inside, exact=False) if inside is not None else found

    def _comprehension(self, loop: cst.CompFor, state: State) -> None:
        here: cst.CompFor | None = loop
        while here is not None:
            self.assign(here.target, self.element_of(self.value(here.iter, state)), state, None, here)
            for condition in here.ifs:
                self.value(condition.test, state)
            here = here.inner_for_in

    @staticmethod
    def element_of(held: Held) -> Held:
        """What going through a value gives."""
        if held.each is not None:
            return held.each
        if held.kind is Kind.PACK:
            return held.any().having(home=(*held.home, "*") if held.home else ())
        if held.kind is Kind.ARRAY and held.size in {Size.SMALL, Size.SCALAR}:
            return PLAIN  # the elements of a vector are numbers of their own
        if held.kind in {Kind.TENSOR, Kind.ARRAY}:
            return held.having(view=held.view or held.size is Size.DENSE, home=(), size=Size.SCALAR if held.size is Size.SMALL else held.size)
        if held.kind is Kind.OPAQUE:
            return held.having(home=())
        return UNKNOWN

    # -- by definition -------------------------------------------------------------------------------------------------

    def static(self, node: cst.BaseExpression, frame: Frame, depth: int = 0) -> Held:
        """What an expression is wherever it stands, by its definition: a module, an object, a constant."""
        if depth > _DEEPEST_STATIC:
            return UNKNOWN
        key = (node, frame)
        known = self.known.statics.get(key)
        if known is not None:
            return known
        found: Held | None = None
        for alt in self.evaluator.values(node, frame)[:4]:
            held = self._classified(alt.value, node, frame, depth)
            if held is None:
                continue
            found = held if found is None or found.kind is Kind.UNKNOWN or (found.kind is Kind.PLAIN and held.kind is not Kind.UNKNOWN) else found
        if depth == 0:
            self.known.statics[key] = found or UNKNOWN
        return found or UNKNOWN

    def _classified(self, value: Value, node: cst.BaseExpression | None, frame: Frame, depth: int) -> Held | None:
        if isinstance(value, Const):
            # None says only that something is filled in later.
            return PLAIN.having(value=value) if value.value is not None else None
        if isinstance(value, Instance):
            return self.object_of(value)
        if isinstance(value, FunctionRef | ClassRef | External | Partial | ModuleRef):
            return Held(Kind.OBJECT, value=value)
        if isinstance(value, ExternalCall):
            return self.made_outside(names.canonical(value.name), value.call, value.frame, depth)
        if isinstance(value, Display):
            display = value.node
            if isinstance(display, cst.List | cst.Tuple | cst.Set):
                parts = [self.static(e.value, value.frame, depth + 1) for e in display.elements[:6] if isinstance(e, cst.Element)]
                kinds = {part.kind for part in parts}
                if kinds == {Kind.MODULE}:
                    return Held(Kind.PACK, inside=parts[0], sure=True)
                return Held(Kind.PACK, inside=PLAIN if kinds and kinds <= {Kind.PLAIN} else meet_all(parts) if parts else None, sure=True, moved="list")
            if isinstance(display, cst.ListComp | cst.SetComp):
                return Held(Kind.PACK, inside=self.static(display.elt, value.frame, depth + 1), sure=True)
            if isinstance(display, cst.DictComp):
                return Held(Kind.PACK, inside=self.static(display.value, value.frame, depth + 1), sure=True)
            if isinstance(display, cst.Dict):
                values = [self.static(e.value, value.frame, depth + 1) for e in display.elements[:6] if isinstance(e, cst.DictElement)]
                if values and all(_is_metric(held) or held.kind in {Kind.MODULE, Kind.OBJECT} for held in values):
                    return Held(Kind.PACK, inside=meet_all(values), sure=True)
            return Held(Kind.PACK, sure=True)
        if isinstance(value, Written) and value.node is not None and value.frame is not None and (value.node is not node or value.frame is not frame):
            return self._written(value.node, value.frame, depth)
        if isinstance(value, Each):
            return None
        if isinstance(node, cst.Call):
            return self._written(node, frame, depth)
        return None

    def _written(self, node: cst.BaseExpression, frame: Frame, depth: int) -> Held | None:
        """An expression that the evaluator leaves as it is: a module that was moved, wrapped or put into evaluation."""
        if not isinstance(node, cst.Call):
            return None
        func = node.func
        if isinstance(func, cst.Attribute):
            if func.attr.value in _KEEPS_MODULE:
                base = self.static(func.value, frame, depth + 1)
                if base.kind is Kind.MODULE or _is_metric(base):
                    return base
                return module_of() if func.attr.value == "eval" and not node.args else None
            if func.attr.value == "clone":
                base = self.static(func.value, frame, depth + 1)
                return base if _is_metric(base) else None
            if func.attr.value in {"prepare", "setup", "initialize"} and node.args:
                found = self.static(node.args[0].value, frame, depth + 1)
                return found if found.kind is Kind.MODULE and len(node.args) == 1 else None
        return None

    def object_of(self, value: Instance) -> Held:
        """An object of a class of the project."""
        line = self.evaluator.lineage(value.cls)
        outside = [base.name for base in line if isinstance(base, External)]
        if any(
            base.startswith(("torch.nn.", "torch_geometric.nn.", "transformers.")) and not base.endswith(("Trainer", "Config", "Arguments", "Tokenizer"))
            for base in outside
        ) or any(base.endswith(("LightningModule", "torch.nn.Module")) for base in outside):
            return module_of(value=value, frozen=False)
        if "torch.autograd.Function" in outside:
            return Held(Kind.OBJECT, value=value)
        return Held(Kind.OBJECT, value=value, sure=True)

    def made_outside(self, name: str, call: cst.Call, frame: Frame, depth: int = 0) -> Held:
        """What a library made: a module, a loader, something else."""
        last = name.rpartition(".")[2]
        if name in _WRAPS_MODULE and call.args:
            base = self.static(call.args[0].value, frame, depth + 1)
            return base if base.kind is Kind.MODULE else module_of() if not name.startswith("copy") else UNKNOWN
        if name.startswith("torch.nn.") and not name.startswith(("torch.nn.functional.", "torch.nn.init.", "torch.nn.utils.")):
            if last in {"ModuleDict", "ModuleList"} and call.args:
                inside = self.static(call.args[0].value, frame, depth + 1).inside
                if inside is not None and _is_metric(inside):
                    return Held(Kind.PACK, inside=inside, sure=True)
            if last == "Parameter":
                return tensor(graph=Graph.YES, sources=frozenset({id(call)}), size=Size.UNKNOWN)
            if last[:1].isupper():
                fast = FAST_PATH.search(frame.module.code(call)) is not None
                return module_of(value=External(name), frozen=PARAMETERLESS.search(last) is not None, moved="fast" if fast else "")
        if name.startswith(TRAINABLE_FACTORIES):
            if (
                last.endswith(("Tokenizer", "TokenizerFast", "Config", "Processor", "FeatureExtractor", "Arguments", "Trainer", "Weights"))
                or "okenizer" in name
                or "schedule" in name.lower()
            ):
                return Held(Kind.OBJECT, value=External(name))
            plain = name.startswith("torchvision.models.") and not FAST_PATH.search(name)
            return module_of(value=External(name) if plain else None, frozen=FROZEN_NAME.search(name) is not None)
        if name.startswith("torch.optim."):
            return Held(Kind.OBJECT, value=External(name))
        loader = self.loader_of(call, frame.module, frame.scope, frame) if "oader" in name else None
        if loader is not None:
            return Held(Kind.ITERABLE, loader=loader, each=_batch())
        if name.startswith("torchmetrics.") or name.startswith("torcheval."):
            return Held(Kind.OBJECT, value=ExternalCall(name, call, frame))
        if name == "torch.device":
            return PLAIN
        if name in {"torch.tensor", "torch.zeros", "torch.ones", "torch.empty", "torch.rand", "torch.randn", "torch.FloatTensor"}:
            return tensor(device=Device.UNKNOWN)
        if name.startswith("collections.deque") or last == "deque":
            return Held(Kind.PACK, sure=True, moved="bounded" if is_bounded(call) else "")
        if name == "collections.defaultdict" and call.args:
            return Held(Kind.PACK, sure=True, inside=self._made_by(call.args[0].value, frame, depth + 1))
        if name in {"builtins.list", "builtins.dict", "builtins.set", "collections.defaultdict", "collections.OrderedDict", "builtins.tuple"}:
            return Held(Kind.PACK, sure=True)
        if name.startswith("numpy.") and last in {"zeros", "empty", "ones", "full", "array"}:
            return Held(Kind.ARRAY, sure=True, device=Device.HOST)
        return Held(Kind.OBJECT, value=ExternalCall(name, call, frame))

    def _made_by(self, factory: cst.BaseExpression, frame: Frame, depth: int) -> Held | None:
        """What the factory of a defaultdict makes."""
        if isinstance(factory, cst.Lambda):
            return None
        for alt in self.evaluator.values(factory, frame)[:2]:
            if isinstance(alt.value, ClassRef):
                return self.object_of(Instance(alt.value, None))
            if isinstance(alt.value, External) and alt.value.name in {"builtins.float", "builtins.int"}:
                return PLAIN
        del depth
        return None


def _trims(item: cst.Slice) -> bool:
    """Whether a slice leaves out an element or two at an end: ``[:-1]``, ``[1:]``."""
    if item.step is not None:
        return False
    if item.upper is None:
        return isinstance(item.lower, cst.Integer) and len(item.lower.value) == 1
    return item.lower is None and isinstance(item.upper, cst.UnaryOperation)


def is_bounded(call: cst.Call) -> bool:
    """Whether a ``deque`` has a greatest length."""
    if len([arg for arg in call.args if arg.keyword is None]) > 1:
        return True
    return any(arg.keyword is not None and arg.keyword.value == "maxlen" and names.dotted(arg.value) != "None" for arg in call.args)


def _is_metric(held: Held) -> bool:
    return held.kind is Kind.OBJECT and isinstance(held.value, ExternalCall) and held.value.name.startswith(("torchmetrics.", "torcheval."))


def _batch() -> Held:
    """What a loader gives: nobody knows its structure, but its tensors are the workers'."""
    return Held(Kind.OPAQUE, storage=Storage.LOADER, device=Device.HOST)


def batch() -> Held:
    """What a loader gives."""
    return _batch()


def _size_by_name(word: str, otherwise: Size) -> Size:
    if not word:
        return otherwise
    if SCALAR_NAME.search(word):
        return Size.SCALAR
    if SMALL_NAME.search(word):
        return Size.SMALL
    if DENSE_NAME.search(word):
        return Size.DENSE if otherwise is not Size.SCALAR else otherwise
    return otherwise


def named_size(word: str, held: Held) -> Held:
    """A value under the name that it is given: `loss` is one number, `labels` one a sample."""
    if held.kind is Kind.OPAQUE or (held.kind is Kind.TENSOR and held.size is Size.UNKNOWN):
        return held.having(size=_size_by_name(word, held.size))
    if held.kind is Kind.TENSOR and held.size is Size.DENSE and (SCALAR_NAME.search(word) or SMALL_NAME.search(word)):
        return held.having(size=_size_by_name(word, held.size))
    return held


__all__ = ["LOSS_NAME", "FlowValues", "Mode", "batch", "named_size"]
