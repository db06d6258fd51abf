"""Which modules are frozen: none of their parameters asks for gradients, so that nothing that only goes through them has a graph."""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import PARAMETERS, SAME_MODEL, SCALARS
from oomlint.model import arguments, names
from oomlint.model.torch_tables import HOST_LIBRARIES, PARAMETERLESS
from oomlint.model.values import ClassRef, Const, Display, ExternalCall, FunctionRef
from oomlint.syntax.nodes import block_of, constant_key, descend, parts_of, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
ALL = ""  # in place of an attribute's name: the whole object
_DEEPEST: Final = 4  # methods that a constructor calls, one inside the other
_MOST_RUNS: Final = 2  # of one method: what it makes once more is the same, but may come behind a freeze
ADDS_MODULE: Final = frozenset({"add_module", "register_module"})
# Methods of a module that make nothing in it learn.
_LEAVES: Final = SAME_MODEL | PARAMETERS | frozenset("load_state_dict state_dict children named_children modules named_modules".split())
_NUMBERS: Final = SCALARS | {"len", "max", "min", "round"}
_NO_MODULES: Final = (  # whose calls make no network
    *("builtins.", "numpy.", "os.", "math.", "torchvision.transforms.", "torch.device", "torch.optim.", "torch.utils."),
    *HOST_LIBRARIES,
)


def switches_gradients(node: cst.CSTNode, *, on: bool = False, given: Mapping[str, str] = _NOTHING) -> bool:
    """Whether gradients are switched off here, or on, of a module or of a parameter; ``given`` says how names of the function are written at its call."""
    wanted = "True" if on else "False"
    if isinstance(node, cst.Assign):
        said = names.dotted(node.value)
        return names.last_name(node.targets[0].target) == "requires_grad" and given.get(said, said) == wanted
    if not isinstance(node, cst.Call) or names.last_name(node.func) != "requires_grad_":
        return False
    said = names.dotted(node.args[0].value) if node.args else "True"
    return given.get(said, said) == wanted


def learns(parameter: cst.Call) -> bool:
    """Whether a call of `Parameter` makes one that asks for gradients."""
    said = arguments.argument_for(parameter, "requires_grad", place=1)
    return said is None or names.dotted(said) != "False"


def frozen_by(node: cst.CSTNode, given: Mapping[str, str] = _NOTHING) -> cst.BaseExpression | None:
    """The module that a loop over its parameters, ``for p in model.parameters(): p.requires_grad = False``, or a call freezes."""
    switches = partial(switches_gradients, given=given)
    if isinstance(node, cst.ListComp):
        return _whose_parameters(node.for_in.iter) if switches(node.elt) and not node.for_in.ifs else None
    if isinstance(node, cst.For):
        all_of_them = not any(isinstance(one, cst.BaseCompoundStatement) for one in block_of(node.body))  # a test picks some
        freezes = all_of_them and any(switches(step) or _leaves_graph(step, node.target) for step in descend(node.body))
        return _whose_parameters(node.iter) if freezes else None
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and switches(node):
        return node.func.value
    return None


def frozen_names(module: Module) -> frozenset[str]:
    """The names of a file that the file itself freezes, outside of functions, for who reads them: ``for p in net.parameters(): p.requires_grad = False``."""
    if "requires_grad" not in module.source.text and "detach_" not in module.source.text:
        return frozenset()
    if any(switches_gradients(node, on=True) for node in module.walk.root.nodes()):
        return frozenset()
    frozen = (frozen_by(node) for node in module.walk.root.nodes(inner=False))
    return frozenset(node.value for node in frozen if isinstance(node, cst.Name))


def _leaves_graph(node: cst.CSTNode, target: cst.BaseExpression) -> bool:
    """``p.detach_()`` of what a loop goes through: a parameter asks for no gradients from then on."""
    func = node.func if isinstance(node, cst.Call) else None
    return isinstance(func, cst.Attribute) and func.attr.value == "detach_" and names.dotted(func.value) in map(names.dotted, parts_of(target))


def _whose_parameters(node: cst.BaseExpression) -> cst.BaseExpression | None:
    func = node.func if isinstance(node, cst.Call) else None
    if isinstance(node, cst.Call) and names.last_name(node.func) == "chain":  # of its parameters and its buffers
        return next((whose for arg in node.args if (whose := _whose_parameters(arg.value)) is not None), None)
    return func.value if isinstance(func, cst.Attribute) and func.attr.value in PARAMETERS else None


def frozen_parts(cls: ClassRef, evaluator: Evaluator) -> frozenset[str]:
    """The attributes whose modules a constructor freezes whatever happens, ``ALL`` for those of the whole object; none where a method lets them learn again."""
    line = [base for base in evaluator.lineage(cls) if isinstance(base, ClassRef)]
    if not any("requires_grad" in base.module.source.text for base in line):
        return frozenset()
    made = _Construction(line, evaluator)
    made.run("__init__")
    found = {name for name, frozen in made.parts.items() if frozen}
    if not (made.whole or found):
        return frozenset()
    learns = {name for base in line for scope in base.scope.children for name in made.lets_learn(base.module, scope)}
    if ALL in learns:
        return frozenset()
    return frozenset({*found, ALL} if made.whole and not learns else found - learns)


class _Construction:
    """A constructor, step by step: the parts that it makes, and which of them are frozen when it is done."""

    def __init__(self, line: list[ClassRef], evaluator: Evaluator) -> None:
        self.line = line
        self.evaluator = evaluator
        self.parts: dict[str, bool] = {}
        self.whole = False  # all of the object was frozen, and nothing that learns was made since
        self.running: list[Scope] = []
        self.runs: Counter[Scope] = Counter()

    def lets_learn(self, module: Module, scope: Scope) -> Iterator[str]:
        """The parts of which a method switches gradients on, ``ALL`` where nobody knows: by itself, or by ``set_requires_grad(self.net.layer4, True)``."""
        for node in scope.nodes():
            if switches_gradients(node, on=True):
                yield ALL
            for function, given in self._called(module, scope, node):
                if any(switches_gradients(step, on=True, given=given) for step in function.scope.nodes()):
                    yield _first(cst.ensure_type(node, cst.Call).args[0].value, names.self_name(scope) or "")
            own = self._own(node, names.self_name(scope) or "")
            if own is not None and any(switches_gradients(step, on=True, given=_as_written(own, cst.ensure_type(node, cst.Call))) for step in own.nodes()):
                yield ALL

    def _own(self, node: cst.CSTNode, this: str) -> Scope | None:
        """The method of the object that a call runs."""
        name = _attribute(node.func, this) if isinstance(node, cst.Call) else ""
        return next((scope for base in self.line for scope in base.scope.children if name and scope.name == name), None)

    def _called(self, module: Module, scope: Scope, node: cst.CSTNode) -> Iterator[tuple[FunctionRef, Mapping[str, str]]]:
        """The function of the project that a call runs, in a file that speaks of gradients, and how its arguments are written."""
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Name) or not node.args:
            return
        for alt in self.evaluator.plainly(node.func, module, scope)[:1]:
            if isinstance(alt.value, FunctionRef) and "requires_grad" in alt.value.module.source.text:
                yield alt.value, _as_written(alt.value.scope, node)

    def run(self, name: str, above: int = 0, *, sure: bool = True, call: cst.Call | None = None) -> None:
        """Run a method, as the first class from ``above`` on has it; what is not ``sure`` to run may make something, and freezes nothing."""
        methods = ((number, base, scope) for number, base in enumerate(self.line) for scope in base.scope.children if number >= above and scope.name == name)
        number, base, scope = next(methods, (0, self.line[0], None))
        this = names.self_name(scope) if scope is not None else None
        if scope is None or this is None or scope in self.running or len(self.running) > _DEEPEST or self.runs[scope] >= _MOST_RUNS:
            return
        self.runs[scope] += 1
        self.running.append(scope)
        given = _as_written(scope, call) if call is not None else _NOTHING
        stands_for: dict[str, list[str]] = {}  # local names: the attributes that hold the same, "?" for what is frozen and not stored yet
        for node in scope.nodes(inner=False):
            if isinstance(node, cst.Assign | cst.AnnAssign) and node.value is not None:
                targets = [one.target for one in node.targets] if isinstance(node, cst.Assign) else [node.target]
                for target, value in _pairs(targets, node.value):
                    self._stores(base.module, scope, this, target, value, stands_for)
            elif isinstance(node, cst.AugAssign) and _attribute(node.target, this) and self._may_learn(base.module, scope, node.value):
                self._learns(_attribute(node.target, this))  # `self.layers += [nn.Linear(8, 8)]`
            elif isinstance(node, cst.For) and isinstance(node.target, cst.Name) and isinstance(node.iter, cst.List | cst.Tuple):
                held = [_attribute(element.value, this) for element in node.iter.elements]
                stands_for[node.target.value] = [name for name in held if name]
            elif isinstance(node, cst.Call):
                self._calls(base.module, node, this, number, sure=sure)
            for frozen in self._freezes(base.module, scope, node, given):
                if sure and _always_runs(base.module, node, self.evaluator, short=isinstance(frozen, cst.Name) and frozen.value in stands_for):
                    self._freeze(frozen, this, stands_for)
        self.running.pop()

    def _stores(self, module: Module, scope: Scope, this: str, target: cst.BaseExpression, value: cst.BaseExpression, stands_for: dict[str, list[str]]) -> None:
        value = itself(value)
        told = stands_for.get(value.value, []) if isinstance(value, cst.Name) else []
        if isinstance(target, cst.Name):
            stands_for[target.value] = ["?"] if _is_frozen(value) else list(told)
            return
        name = _attribute(target, this)
        if name:
            if isinstance(value, cst.Name):
                stands_for.setdefault(value.value, []).append(name)
            if _is_frozen(value) or "?" in told or self._gives_frozen(module, scope, value):
                # Where a test decides, what was stored before may be there still.
                self.parts[name] = self.parts.get(name, True) or _always_runs(module, value, self.evaluator)
            elif self._may_learn(module, scope, value):
                self._learns(name)
        elif self._may_learn(module, scope, value):
            # A part of a part: `self.net.fc = nn.Linear(512, 10)`, or the same of a local name.
            root = path_of(target)
            if root is not None and root[0] in stands_for:
                for part in stands_for[root[0]]:
                    self._learns(part)
                stands_for[root[0]] = [part for part in stands_for[root[0]] if part != "?"]
            elif _first(target, this):
                self._learns(_first(target, this))

    def _gives_frozen(self, module: Module, scope: Scope, value: cst.BaseExpression) -> bool:
        """Whether a function of the project freezes what it gives back: ``self.net = load_and_freeze(path)``."""
        if not isinstance(value, cst.Call):
            return False
        made = [alt.value for alt in self.evaluator.values(value.func, self.evaluator.calls.plain_frame(module, scope))]
        return bool(made) and all(isinstance(one, FunctionRef) and self._freezes_result(one) for one in made)

    def _freezes_result(self, function: FunctionRef) -> bool:
        """Whether each way out of a function gives back a name that it has frozen for certain, and has not changed since."""
        module, scope = function.module, function.scope
        given = {names.dotted(itself(one.value)) for one in scope.returns if one.value is not None}
        if len(given) != 1 or "requires_grad" not in module.source.text or scope.yields or len(scope.returns) != 1:
            return False
        name, frozen = given.pop(), False
        for node in scope.nodes(inner=False):
            if isinstance(node, cst.Assign | cst.AnnAssign | cst.AugAssign):
                targets = [one.target for one in node.targets] if isinstance(node, cst.Assign) else [node.target]
                frozen = frozen and all((path := path_of(target)) is not None and path[0] != name for target in targets)
            elif isinstance(node, cst.Call) and switches_gradients(node, on=True):
                return False
            named = any(names.dotted(itself(one)) == name for one in self._freezes(module, scope, node))
            frozen = frozen or (named and _always_runs(module, node, self.evaluator))
        return frozen

    def _calls(self, module: Module, node: cst.Call, this: str, number: int, *, sure: bool) -> None:
        func = node.func
        if names.dotted(func) == "setattr" and len(node.args) > 1 and names.dotted(node.args[0].value) == this:
            self._learns(constant_key(node.args[1].value))
        if not isinstance(func, cst.Attribute):
            return
        method, holder = func.attr.value, func.value
        sure = sure and _always_runs(module, node, self.evaluator)
        if isinstance(holder, cst.Call) and names.dotted(holder.func) == "super":
            self.run(method, number + 1, sure=sure, call=node)
        elif names.dotted(holder) == this:
            if method in ADDS_MODULE | {"register_parameter"} and node.args:
                self._learns(constant_key(node.args[0].value))
            self.run(method, sure=sure, call=node)
        elif _first(holder, this) and method not in _LEAVES:
            self._learns(_first(holder, this))  # `self.net.append(layer)`, `self.net.add_adapter(config)`

    def _freezes(self, module: Module, scope: Scope, node: cst.CSTNode, given: Mapping[str, str] = _NOTHING) -> Iterator[cst.BaseExpression]:
        frozen = frozen_by(node, given)
        if frozen is not None:
            yield frozen
            return
        for function, written in self._called(module, scope, node):
            first = next((param.name.value for param in names.parameters(function.scope)), None)
            for step in function.scope.nodes():
                frozen = frozen_by(step, written)
                if frozen is not None and names.dotted(frozen) == first and _always_runs(function.module, step, self.evaluator):
                    yield cst.ensure_type(node, cst.Call).args[0].value

    def _freeze(self, node: cst.BaseExpression, this: str, stands_for: dict[str, list[str]]) -> None:
        if names.dotted(node) == this:
            self.parts = dict.fromkeys(self.parts, True)
            self.whole = True
        elif isinstance(node, cst.Name):
            stands_for[node.value] = [*stands_for.get(node.value, []), "?"]
            self.parts.update((name, True) for name in stands_for[node.value] if name != "?")
        elif name := _attribute(node, this):
            self.parts[name] = True

    def _learns(self, name: object) -> None:
        """Something was made that learns: under a name, or under one that nobody knows."""
        self.whole = False
        for part in [name] if isinstance(name, str) else list(self.parts):
            self.parts[part] = False

    def _may_learn(self, module: Module, scope: Scope, value: cst.BaseExpression) -> bool:
        """Whether what is stored may be a network: a call that makes no number, text or array."""
        if not any(isinstance(part, cst.Call) and names.dotted(part.func) not in _NUMBERS for part in descend(value)):
            return False
        made = [alt.value for alt in self.evaluator.plainly(value, module, scope)]
        plain = (isinstance(one, Const) or (isinstance(one, ExternalCall) and has_no_parameters(one.name)) for one in made)
        return any(isinstance(one, Display) for one in made) or not all(plain)


def _as_written(scope: Scope, call: cst.Call) -> Mapping[str, str]:
    """How the arguments of a call are written, by the names that a function has for them."""
    taken = [name for name in names.parameter_names(scope) if name != names.self_name(scope)]
    written = {name: names.dotted(value) for name, value in arguments.by_name(call).items()}
    return {**dict(zip(taken, map(names.dotted, arguments.plain(call)), strict=False)), **written}


def has_no_parameters(name: str) -> bool:
    """Whether what a library's function makes is no network, or a layer without weights."""
    return name.startswith(_NO_MODULES) or (name.startswith("torch.nn.") and PARAMETERLESS.search(name.rpartition(".")[2]) is not None)


def _pairs(targets: Sequence[cst.BaseExpression], value: cst.BaseExpression) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """What an assignment binds, and to what: ``a, b = x, y`` is two."""
    for target in targets:
        if not isinstance(target, cst.Tuple | cst.List):
            yield target, value
        elif isinstance(value, cst.Tuple | cst.List) and len(value.elements) == len(target.elements):
            yield from ((one.value, other.value) for one, other in zip(target.elements, value.elements, strict=True))
        else:
            yield from ((one.value, value) for one in target.elements)


def _attribute(node: cst.BaseExpression, this: str) -> str:
    """``name`` of ``self.name``."""
    return node.attr.value if isinstance(node, cst.Attribute) and names.dotted(node.value) == this else ""


def _first(node: cst.BaseExpression, this: str) -> str:
    """``name`` of ``self.name.other[0].more``."""
    while isinstance(node, cst.Attribute | cst.Subscript):
        if name := _attribute(node, this):
            return name
        node = node.value
    return ""


def itself(node: cst.BaseExpression) -> cst.BaseExpression:
    """The name that a module has, without what gives it back: ``net`` of ``net.eval().to(device)``."""
    inner = node
    while isinstance(inner, cst.Call) and isinstance(inner.func, cst.Attribute) and inner.func.attr.value in SAME_MODEL:
        inner = inner.func.value
    return inner if isinstance(inner, cst.Name) else node


def _is_frozen(node: cst.BaseExpression) -> bool:
    """Whether a module is frozen where it is made: ``models.vgg16().features.eval().requires_grad_(False)``."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        if switches_gradients(node):
            return True
        node = node.func.value
    return False


def _always_runs(module: Module, node: cst.CSTNode, evaluator: Evaluator, *, short: bool = False) -> bool:
    """Whether each test around a statement can come out in one way only, by its constants and defaults, and that way leads to it.

    In a loop through what is written out (``short``) it runs, too.
    """
    scope, inner = module.walk.scope_at(node), node
    for above in module.walk.ancestors(node):
        if above is scope.node:
            return True
        if isinstance(above, cst.If):
            came_out = above.orelse is not inner
            if came_out and isinstance(above.test, cst.Call) and names.dotted(above.test.func) == "isinstance":
                inner = above
                continue
            frames = evaluator.calls.frames(module, scope)
            if {verdict for frame in frames for verdict, _, _ in evaluator.truth(above.test, frame)} != {came_out}:
                return False
        elif isinstance(above, cst.For) and short and isinstance(above.iter, cst.List | cst.Tuple):
            pass
        elif isinstance(above, cst.For | cst.While | cst.ExceptHandler | cst.Match):
            return False
        inner = above
    return True
