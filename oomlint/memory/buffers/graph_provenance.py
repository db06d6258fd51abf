"""Whether a loss has its whole graph from one round of a loop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import CONSTANTS, GOES_OVER, RANGES, REDUCTIONS
from oomlint.frameworks import TRAINING_STEP
from oomlint.memory.buffers.backward_regions import regions_of
from oomlint.memory.buffers.recurrent_state import bodies_of, callees, forward_of, modules_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.loop_kinds import loader_like
from oomlint.model import arguments, names, torch_tables
from oomlint.model.torch_tables import CASTS, SMALL_METHODS, TO_DEVICE, VIEWS
from oomlint.model.values import Bound, ClassRef, Const, Element, External, ExternalCall, FunctionRef, Instance, ModuleRef, ParsedOptions, SourceExpression
from oomlint.patterns import pattern
from oomlint.syntax.nodes import children_of, descend, is_attribute_of, names_in
from oomlint.syntax.scopes import DEFINES

if TYPE_CHECKING:
    from oomlint.memory.buffers.backward_regions import Region
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Effect, Scope

Loop = cst.For | cst.While

_DEEPEST: Final = 12
_WRAPPERS: Final = GOES_OVER | {"range", "next"}
_DATA: Final = pattern(
    r"(^|_)(data(set|loader)?s?|batch(es)?|loaders?|samples|iterator|(train|test|val|valid|training|validation)(_?(data|set|loader|iter|dl))?|stream|sentences|pairs"
    r"|corpus|images|examples)$",
    re.IGNORECASE,
)
# Names outside the loop that hold settings, modules and their like, not tensors with a graph.
_SETTINGS: Final = pattern(
    r"^(args?|opts?|cfg|conf|config|hparams|settings|FLAGS|device|dev|model|net|network|criterion|optim\w*|loader|writer|scaler|accelerator|fabric|logger|lr|alpha|"
    r"beta|gamma|eps|lambda\w*|lam\w*|weight_decay|temperature|\w*_(weight|coef\w*|factor|rate|size|fn|loader|model|net|optimizer|criterion)|loss_(fn|func|function))$",
)
_OF_TENSORS: Final = (
    VIEWS
    | REDUCTIONS
    | torch_tables.REDUCTIONS
    | CASTS
    | TO_DEVICE
    | SMALL_METHODS
    | frozenset(
        "to cpu clone detach item log exp abs sqrt pow sigmoid softmax tanh relu matmul mm bmm dot repeat gather index_select masked_fill clamp mul add div "
        "sub backward".split()
    )
)
_SAFE: Final = (Const, ModuleRef, External, FunctionRef, ClassRef, Instance, ParsedOptions, Element)


def made_in(loss: cst.BaseExpression, region: Region, project: Project) -> bool | None:
    """Whether nothing that the loss comes from has a graph of before the round: true where all is found, false where names say it, ``None`` where not."""
    tracer = _Tracer(project)
    return tracer.sure if tracer.follow(loss, region, 0) else None


class _Tracer:
    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)
        self.sure = True
        self.seen: set[tuple[str, Scope, int]] = set()

    def follow(self, node: cst.BaseExpression, region: Region, depth: int) -> bool:
        """Whether all data of an expression is new in the region."""
        if depth > _DEEPEST:
            return False
        used = self._used(node, region)
        return used is not None and all(self._data(each, region, depth) for each in used)

    def _used(self, node: cst.BaseExpression, region: Region) -> list[cst.Name | cst.Attribute] | None:
        """Names and attributes that an expression reads as data; ``None`` where something that it calls keeps a graph from call to call."""
        found: list[cst.Name | cst.Attribute] = []
        own = {name for loop in descend(node) if isinstance(loop, cst.CompFor) for name in names_in(loop.target)}
        stack: list[cst.CSTNode] = [node]
        while stack:
            here = stack.pop()
            if isinstance(here, cst.Name | cst.Attribute) and names.dotted(here).partition(".")[0] in own:
                continue
            if isinstance(here, cst.Name):
                found.append(here)
            elif isinstance(here, cst.Attribute):
                if names.dotted(here):
                    found.append(here)
                else:
                    stack.append(here.value)
            elif isinstance(here, cst.Call):
                stack.extend(arg.value for arg in here.args)
                if isinstance(here.func, cst.Attribute) and self._on_data(here.func, region):
                    stack.append(here.func.value)
                elif not self._fresh(here, region):
                    return None
            elif not isinstance(here, cst.Lambda):
                stack.extend(children_of(here))
        return found

    def _on_data(self, func: cst.Attribute, region: Region) -> bool:
        """Whether a method is called on data (``out.mean()``), and not on a module or a library."""
        dotted = names.dotted(func.value)
        if not dotted:
            return True
        root = dotted.partition(".")[0]
        if root != "self" and any(region.holds(e.statement) for e in region.scope.effects.get(root, ())):
            return True
        known = modules_of(func.value, self.evaluator.calls.plain_frame(region.module, region.scope), self.project)
        found = bool(known) and all(isinstance(v, (*_SAFE, ExternalCall)) for v in known)
        data = func.attr.value in _OF_TENSORS or (root != "self" and root in region.scope.effects)
        return data and not found and not _SETTINGS.match(names.last_name(func.value))

    def _fresh(self, call: cst.Call, region: Region) -> bool:
        """Whether what is called keeps no graph of its own from call to call."""
        for value in callees(call.func, region.module, region.scope, self.project):
            method = forward_of(value, self.project) or (value if isinstance(value, FunctionRef) else None)
            if method is not None:
                enclosing = method.scope.parent
                if enclosing is not None and enclosing.is_function:
                    return False  # a closure may hold on to anything
                if any(_carries(body.scope) for body in bodies_of(method, self.project)):
                    return False
            elif not isinstance(value, External | ExternalCall | ClassRef):
                self.sure = False
        return True

    def _data(self, used: cst.Name | cst.Attribute, region: Region, depth: int) -> bool:
        name, scope = names.dotted(used).partition(".")[0], region.scope
        key = (name, scope, id(used))
        if key in self.seen or name in CONSTANTS:
            return True
        self.seen.add(key)
        effects = [e for e in scope.effects.get(name, ()) if e.kind not in DEFINES | {"append", "extend", "pop", "update"}]
        inside = [e for e in effects if region.holds(e.statement) and _reaches(e, used)]
        if inside:
            return self._bound(inside, effects, used, region, depth)
        if isinstance(used, cst.Attribute) and (name == "self" or _SETTINGS.match(used.attr.value)):
            return self._outside(used, region) or _SETTINGS.match(used.attr.value) is not None
        if name in names.takes(scope) and region.loop is None:
            return self._given(name, region, depth)
        return self._outside(used, region) or _SETTINGS.match(name) is not None

    def _bound(self, inside: list[Effect], effects: list[Effect], used: cst.CSTNode, region: Region, depth: int) -> bool:
        """A name that the round sets: from what, and surely before it is read."""
        walk, tree = region.module.walk, region.module.tree
        row = tree.span(walk.statement_of(used))[0]
        plain = [e for e in inside if e.kind in {"assign", "for", "with"} and not e.path]
        before = [e for e in plain if tree.span(e.statement)[0] < row or (e.kind == "for" and e.statement in walk.ancestors(used))]
        if not before:
            return False  # carried over, or filled in place
        inner = region.loop if region.loop is not None else region.scope.node
        sure = any(not any(isinstance(a, cst.If | cst.Try | Loop) for a in region.module.walk.between(e.statement, inner)) for e in before)
        outside = [e for e in effects if not region.holds(e.statement) and not e.path]
        if not sure and any(not isinstance(e.value, cst.Integer | cst.Float) for e in outside) and not _both_sides(before, region.module):
            return False
        for effect in inside:
            if effect.kind == "for":
                if not self._iterated(effect, region, depth):
                    return False
            elif effect.value is not None and not self.follow(effect.value, region, depth + 1):
                return False
        return True

    def _iterated(self, effect: Effect, region: Region, depth: int) -> bool:
        """What a loop goes over: batches of a loader, numbers; or data of the round itself."""
        node = effect.value
        while isinstance(node, cst.Call) and names.last_name(node.func) in _WRAPPERS and node.args:
            if names.last_name(node.func) in RANGES:
                return True
            if names.last_name(node.func) == "zip":
                return all(self._source(arg.value, effect, region, depth) for arg in node.args)
            node = node.args[0].value
        return node is not None and self._source(node, effect, region, depth)

    def _source(self, node: cst.BaseExpression, effect: Effect, region: Region, depth: int) -> bool:
        bars = [e.value for e in region.scope.effects.get(node.value, ()) if e.kind in {"assign", "with"}] if isinstance(node, cst.Name) else []
        if len(bars) == 1 and isinstance(bars[0], cst.Call) and names.last_name(bars[0].func) in _WRAPPERS and bars[0].args:
            node = bars[0].args[0].value  # a progress bar around the loader
        if effect.statement is not region.loop and region.holds(effect.statement):
            return self.follow(node, region, depth + 1)
        if loader_like(self.project, node, region.module, region.scope) is not None:
            return True
        self.sure = False
        word = names.last_name(node.func) if isinstance(node, cst.Call) else names.last_name(node.value if isinstance(node, cst.Subscript) else node)
        return isinstance(node, cst.Integer | cst.List | cst.Tuple) or _DATA.search(word) is not None

    def _given(self, name: str, region: Region, depth: int) -> bool:
        """What the callers in loops give for a parameter is new in their rounds."""
        scope = region.scope
        if scope.name == TRAINING_STEP or name == names.self_name(scope):
            return True
        sites = self.evaluator.calls.sites(region.module, scope, most=4)
        for site in sites:
            outer = regions_of(site.call, site.module, site.scope, self.project, 1)
            bound = (Bound(site.args, self.evaluator.calls.plain_frame(site.module, site.scope), site.call),)
            given = arguments.given_to(scope, name, bound)
            if not outer:
                continue
            if given is None:
                if arguments.hides_positionals(bound):
                    return False
                continue
            if not self.follow(given.node.value, outer[0], depth + 1):
                return False
        return bool(sites)

    def _outside(self, used: cst.Name | cst.Attribute, region: Region) -> bool:
        """Whether what a name held before the round has no graph behind it: constants, modules, tensors made by hand."""
        if isinstance(used, cst.Name) and used.value in names.BUILTINS:
            return True
        frame = self.evaluator.calls.plain_frame(region.module, region.scope)
        return self._is_leaf(used, frame, 0)

    def _is_leaf(self, node: cst.BaseExpression, frame: Frame, depth: int) -> bool:
        known = modules_of(node, frame, self.project)
        return bool(known) and all(
            isinstance(v, _SAFE)
            or (isinstance(v, ExternalCall) and not _records(v))
            or (isinstance(v, SourceExpression) and depth < _DEEPEST and self._is_derived(v.node, v.frame, depth))
            for v in known
        )

    def _is_derived(self, node: cst.BaseExpression | None, frame: Frame, depth: int) -> bool:
        """Whether a method was called on a tensor without a graph: ``torch.from_numpy(x).unsqueeze(1)``."""
        method = isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _OF_TENSORS | {"from_numpy"}
        return method and self._is_leaf(node.func.value, frame, depth + 1)  # type: ignore[union-attr]


def _records(value: ExternalCall) -> bool:
    """Whether a library's result may carry a graph."""
    name = value.name
    if not name.startswith("torch."):
        return (
            re.match(
                r"(numpy|math|random|time|os|json|pandas|sklearn|scipy|timm|torchvision|transformers|accelerate|datasets|builtins\.(int|float|len|open))\b",
                name,
            )
            is None
        )
    made = re.match(
        r"torch\.(zeros|ones|empty|full|eye|arange|linspace|tensor|as_tensor|from_numpy|rand\w*|normal|load|device|nn\.[A-Z]|optim|utils|cuda|hub|compile|jit)",
        name,
    )
    return made is None


def _carries(scope: Scope) -> bool:
    """Whether a method sets an attribute of its object and reads it again: a state that may hold a graph."""
    own = names.self_name(scope)
    if own is None:
        return False
    written = {str(e.path[0][1]) for e in scope.effects.get(own, ()) if e.kind in {"assign", "augment"} and len(e.path) >= 1 and e.path[0][0] == "attr"}
    read: dict[str, int] = {}
    for node in scope.nodes():
        if is_attribute_of(node, own) and node.attr.value in written:
            read[node.attr.value] = read.get(node.attr.value, 0) + 1
    return any(count > 1 for count in read.values())


def _reaches(effect: Effect, used: cst.Name | cst.Attribute) -> bool:
    """Whether an effect on a root concerns the attribute that is read."""
    if not isinstance(used, cst.Attribute) or not effect.path:
        return True
    dotted = names.dotted(used).split(".")[1:]
    path = [part for kind, part in effect.path if kind == "attr"]
    return path[: len(dotted)] == dotted[: len(path)]


def _both_sides(effects: list[Effect], module: Module) -> bool:
    """Whether an ``if`` sets the name on both sides."""
    for effect in effects:
        for here in module.walk.ancestors(effect.statement):
            if isinstance(here, cst.If) and isinstance(here.orelse, cst.Else):
                rest = here.orelse
                if any(rest in module.walk.ancestors(e.statement) for e in effects) and here.body in module.walk.ancestors(effect.statement):
                    return True
    return False
