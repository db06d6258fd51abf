"""Gradient mode: whether operations at a place are recorded, by what stands around it, decorates it, or calls it."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.frameworks import EVALUATION_HOOK, LOSS_METHODS
from oomlint.model import arguments, names
from oomlint.model.readings import AnswerMemory
from oomlint.model.tensor_state import Mode
from oomlint.model.values import ClassRef, Const, External, ExternalCall, FunctionRef, Instance, Partial, SourceExpression, Unknown
from oomlint.patterns import pattern
from oomlint.syntax.nodes import block_of, descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope

_DEEPEST: Final = 5
_MOST_SITES: Final = 6  # calls of a function that are looked at
_OFF: Final = frozenset({"no_grad", "inference_mode", "eval_no_grad"})
_SWITCH: Final = frozenset({"set_grad_enabled", "inference_mode", "set_grad"})
_LASTING: Final = frozenset({"set_grad_enabled", "enter_context", "__enter__", "__exit__"})  # calls whose mode stays after the statement
# Context managers that have nothing to do with gradients, by a word of their name.
_HARMLESS: Final = pattern(
    r"autocast|amp|profil|time|tqdm|progress|bar|lock|open|file|writer|record|device|sync|accumulat|suppress|cache|ema|swap|average|stream|cuda|warn|null"
    r"|span|trace|nvtx|range|scope|session|pool|executor|temp|chdir|join|log|mlflow|run|status|live|seed|rng|dist|mesh|path|zip|tar|h5|env|precision|dtype",
    re.IGNORECASE,
)
_TELLING: Final = pattern(r"grad|infer|eval|freez|frozen", re.IGNORECASE)
_PLAIN_BASES: Final = pattern(r"^(builtins\.object|abc\.|typing\.|torch\.nn\.|torch\.utils\.data\.|collections\.|enum\.|unittest\.)")


class EntryMode:
    """The mode in which the function of a frame begins, found out when somebody asks."""

    __slots__ = ("_frame", "_gradients")

    def __init__(self, gradients: Gradients, frame: Frame) -> None:
        self._gradients = gradients
        self._frame = frame

    def told(self) -> Mode:
        """The mode. Whoever asks has read what it rests on."""
        return self._gradients.later.answer(self, lambda: self._gradients.entry(self._frame))


class Gradients:
    """Answers in which mode code runs."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self._bodies: AnswerMemory[Scope, Mode | None] = AnswerMemory(evaluator.project.readings)
        self._entries: AnswerMemory[Scope, Mode] = AnswerMemory(evaluator.project.readings)
        self.later: AnswerMemory[EntryMode, Mode] = AnswerMemory(evaluator.project.readings)
        self._global: AnswerMemory[str, Mode | None] = AnswerMemory(evaluator.project.readings)

    # -- expressions that set a mode -----------------------------------------------------------------------------------

    def context(self, node: cst.BaseExpression, frame: Frame, depth: int = 0) -> Mode | None:
        """The mode inside ``with node:`` (or under the decorator ``node``); ``None`` where it leaves the mode as it is."""
        if depth > _DEEPEST:
            return Mode.UNKNOWN
        if isinstance(node, cst.IfExp):
            verdicts = {verdict for verdict, _, _ in self.evaluator.truth(node.test, frame)}
            sides = [self.context(side, frame, depth + 1) for side, wanted in ((node.body, True), (node.orelse, False)) if wanted in verdicts]
            if len(set(sides)) == 1:
                return sides[0]
            return Mode.SWITCHED
        if isinstance(node, cst.Call):
            written = names.last_name(node.func)
            if written in _OFF | _SWITCH or written == "enable_grad":
                return self.switch(node, frame)
        elif isinstance(node, cst.Name | cst.Attribute) and names.last_name(node) in _OFF:
            return Mode.OFF
        target = node.func if isinstance(node, cst.Call) else node
        for alt in self.evaluator.values(target, frame)[:3]:
            value = alt.value
            while isinstance(value, Partial):
                value = value.func
            if isinstance(value, FunctionRef):
                return self._body(value.scope, value.module)
            if isinstance(value, ClassRef):
                return self._body(value.scope, value.module)
            if isinstance(value, Instance):
                return self._body(value.cls.scope, value.cls.module)
            if isinstance(value, External):
                last = value.name.rpartition(".")[2]
                return Mode.OFF if last in _OFF else Mode.UNKNOWN if _TELLING.search(last) else None
            if isinstance(value, ExternalCall):
                return self.context(value.call, value.frame, depth + 1)
            if isinstance(value, SourceExpression) and value.node is not node:
                return self.context(value.node, value.frame, depth + 1)
            if isinstance(value, Const):
                return None
        word = names.last_name(target)
        if _TELLING.search(word):
            return Mode.UNKNOWN
        return None if not word or _HARMLESS.search(word) or not isinstance(node, cst.Call) else Mode.UNKNOWN

    def switch(self, node: cst.Call, frame: Frame) -> Mode:
        """The mode that ``no_grad()``, ``set_grad_enabled(x)`` and their like set."""
        written = names.last_name(node.func)
        if written == "enable_grad":
            return Mode.ON
        if written in _SWITCH and node.args:
            for alt in self.evaluator.values(node.args[0].value, frame)[:1]:
                if isinstance(alt.value, ExternalCall) and alt.value.name == "torch.is_grad_enabled":
                    return self.at(alt.value.call, alt.value.frame)  # back to what it was
            verdicts = {verdict for verdict, _, _ in self.evaluator.truth(node.args[0].value, frame)}
            if written == "inference_mode":
                verdicts = {not verdict for verdict in verdicts}
            if len(verdicts) == 1:
                return Mode.ON if verdicts.pop() else Mode.OFF
            return Mode.SWITCHED
        return Mode.OFF

    def left_by(self, node: cst.BaseExpression, frame: Frame) -> Mode | None:
        """The mode in which a call leaves what comes after it: ``set_grad_enabled(x)``, or a context manager entered by hand; ``None`` for any other."""
        written = names.last_name(node.func) if isinstance(node, cst.Call) else ""
        if not isinstance(node, cst.Call) or written not in _LASTING:
            return None
        if written == "set_grad_enabled":
            of_library = any(isinstance(alt.value, External) for alt in self.evaluator.values(node.func, frame)[:2])
            return self.switch(node, frame) if of_library else None
        if written == "enter_context":
            return self.context(node.args[0].value, frame) if node.args else None
        mode = self.context(node.func.value, frame) if isinstance(node.func, cst.Attribute) else None
        return mode if mode is None or written == "__enter__" else self._before(node.func, frame)

    def _before(self, leaving: cst.BaseExpression, frame: Frame) -> Mode:
        """The mode to which ``guard.__exit__`` goes back: that at its ``guard.__enter__()``."""
        guard = cst.ensure_type(leaving, cst.Attribute).value
        entries = (call for call in frame.scope.calls if isinstance(call.func, cst.Attribute) and call.func.attr.value == "__enter__")
        entered = next((call for call in entries if isinstance(call.func, cst.Attribute) and call.func.value.deep_equals(guard)), None)
        return self.at(entered, frame) if entered is not None else Mode.UNKNOWN

    def _body(self, scope: Scope, module: Module) -> Mode | None:
        """What a context manager or decorator of the project does, by what its body names."""
        if scope in self._bodies:
            return self._bodies[scope]
        found: Mode | None = None
        for node in descend(scope.node):
            if isinstance(node, cst.Attribute) and node.attr.value in {"requires_grad", "requires_grad_"}:
                found = found or Mode.UNKNOWN  # what it does to the parameters, nobody can say for a call
            if isinstance(node, cst.Call):
                word = names.last_name(node.func)
                if word in _OFF or word in _SWITCH:
                    tests = any(isinstance(above, cst.If | cst.IfExp) for above in module.walk.ancestors(node) if above is not scope.node)
                    plain = word in _OFF or (node.args and isinstance(node.args[0].value, cst.Name) and node.args[0].value.value == "False")
                    found = Mode.OFF if plain and not tests and found in {None, Mode.OFF} else found or Mode.UNKNOWN
        self._bodies[scope] = found
        return found

    # -- places --------------------------------------------------------------------------------------------------------

    def decorated(self, scope: Scope, module: Module) -> Mode | None:
        """The mode that the decorators of a function set."""
        if not isinstance(scope.node, cst.FunctionDef):
            return None
        for decorator in scope.node.decorators:
            found = self.context(decorator.decorator, self.evaluator.module_frame(module))
            if found is not None and not (found is Mode.UNKNOWN and not _TELLING.search(module.code(decorator.decorator))):
                return found
        return None

    def at(self, node: cst.CSTNode, frame: Frame, depth: int = 0) -> Mode:
        """The mode at a place, by what stands around and before it, and by who calls its function."""
        walk = frame.module.walk
        here = node
        for above in walk.ancestors(node):
            if isinstance(above, cst.With):
                for item in reversed(above.items):
                    if here is above.body and (found := self.context(item.item, frame)) is not None:
                        return found
            if isinstance(above, cst.IndentedBlock | cst.Module):
                before = None
                for statement in block_of(above):
                    if statement is here or (isinstance(here, cst.SimpleStatementLine) and any(statement is small for small in here.body)):
                        break
                    if isinstance(statement, cst.Expr):
                        found = self.left_by(statement.value, frame)
                        before = before if found is None else found
                if before is not None:
                    return before
            if above is frame.scope.node:
                break
            here = above
        return self.entry(frame, depth)

    def entry(self, frame: Frame, depth: int = 0) -> Mode:
        """The mode in which a function begins: by its decorators, its class, or its callers."""
        scope, module = frame.scope, frame.module
        found = self.decorated(scope, module)
        if found is not None:
            return found
        if scope.parent is None:
            return Mode.ON
        if depth > _DEEPEST:
            return Mode.UNKNOWN
        found = self._left_by_constructor(scope, module)
        if found is not None:
            return found
        if frame.bound:
            layer = frame.bound[-1]
            return self.at(layer.call, layer.frame, depth + 1)
        known = self._entries.get(scope)
        if known is None:
            self._entries.assume(scope, Mode.UNKNOWN)  # whoever asks again runs in a circle
            known = self._entries[scope] = self._entry(scope, module, depth)
        return known

    def _entry(self, scope: Scope, module: Module, depth: int) -> Mode:
        if isinstance(scope.node, cst.Lambda):
            return Mode.UNKNOWN
        found: Mode | None = None
        for mode in self.callers(module, scope, depth):
            found = mode if found is None else found.joined(mode)
            if found is Mode.UNKNOWN:
                break  # whatever the others say
        if found is not None:
            return found
        if scope.parent is not None and scope.parent.is_class:
            hook = self._hook(ClassRef(module, scope.parent), scope.name)
            if hook is not None:
                return hook
        if self.handed_on(scope, module):
            return Mode.UNKNOWN
        return self._for_all(module) or Mode.ON

    def callers(self, module: Module, scope: Scope, depth: int = 0) -> Iterator[Mode]:
        """The modes at the calls of a function, those of the base class's method of that name included. What nobody waits for is not looked into."""
        calls = self.evaluator.calls
        targets = [(module, scope)]
        if scope.parent is not None and scope.parent.is_class:
            above = [base for base in self.evaluator.lineage(ClassRef(module, scope.parent))[1:] if isinstance(base, ClassRef)]
            targets += [(base.module, own) for base in above if (own := base.scope.child(scope.name)) is not None]
        sites = [(site.call, site.module, site.scope) for where, target in targets for site in calls.sites(where, target, most=_MOST_SITES)]
        if not sites and scope.parent is not None and scope.parent.is_class and not scope.name.startswith("__") and scope.name != "forward":
            sites = list(islice(self._by_name(scope, module), _MOST_SITES))
        # A function that calls itself, or another of its name, begins in the mode that it was called in.
        outside = [site for site in sites if site[2] is not scope] or sites
        for call, where, around in outside:
            yield self.at(call, calls.plain_frame(where, around), depth + 1)

    def _by_name(self, method: Scope, module: Module) -> Iterator[tuple[cst.Call, Module, Scope]]:
        """Calls of a method whose object nobody knows: one of that name, with arguments that it can take, is as likely this one."""
        for where in self.evaluator.project.mentioning((f".{method.name}(".encode(),), module.path):
            for call, around in where.walk.calls:
                named = isinstance(call.func, cst.Attribute) and call.func.attr.value == method.name
                if (
                    named
                    and not self._is_of_others(call, where, around, method)
                    and arguments.binds(method, call)
                    and not self._is_of_library(call, where, around)
                ):
                    yield call, where, around

    def _is_of_others(self, call: cst.Call, where: Module, around: Scope, method: Scope) -> bool:
        """Whether it is `super().method()` in a class that does not derive from the one of the method: it calls what that class takes over."""
        held = call.func.value if isinstance(call.func, cst.Attribute) else None
        if not (isinstance(held, cst.Call) and names.last_name(held.func) == "super") or around.parent is None or not around.parent.is_class:
            return False
        above = self.evaluator.lineage(ClassRef(where, around.parent))[1:]
        return not any(isinstance(base, ClassRef) and base.scope is method.parent for base in above)

    def _is_of_library(self, call: cst.Call, where: Module, around: Scope) -> bool:
        """Whether the object of a method call is a module of torch: `self.model.train()` is no call of a method of the project."""
        held = call.func.value if isinstance(call.func, cst.Attribute) else call.func
        found = self.evaluator.plainly(held, where, around)
        return any(isinstance(alt.value, ExternalCall) and alt.value.name.startswith("torch.nn.") for alt in found)

    def _hook(self, cls: ClassRef, name: str) -> Mode | None:
        """What a framework does around a method that nobody in the project calls."""
        line = self.evaluator.lineage(cls)
        outside = [base.name for base in line if isinstance(base, External)]
        if any(base.endswith("LightningModule") for base in outside):
            return Mode.OFF if EVALUATION_HOOK.search(name) else Mode.ON
        own = [self._known(base) for base in line if isinstance(base, ClassRef)]
        if any(not base for base in own) or any(not _PLAIN_BASES.search(base) for base in outside):
            return Mode.ON if name.startswith(tuple(LOSS_METHODS)) else Mode.UNKNOWN
        return None

    def _known(self, cls: ClassRef) -> bool:
        """Whether all bases of a class are known."""
        return all(not isinstance(base, Unknown) for base in self.evaluator.bases(cls))

    @staticmethod
    def handed_on(scope: Scope, module: Module) -> bool:
        """Whether the function is given to somebody who may call it: named without a call."""
        walk = module.walk
        method = scope.parent is not None and scope.parent.is_class
        for node in module.walk.root.nodes():
            if isinstance(node, cst.Attribute) and method and node.attr.value == scope.name:
                above = walk.parents.get(node)
                if not (isinstance(above, cst.Call) and above.func is node):
                    return True
            elif isinstance(node, cst.Name) and not method and node.value == scope.name:
                above = walk.parents.get(node)
                if isinstance(above, cst.Call) and above.func is node:
                    continue
                if isinstance(above, cst.FunctionDef | cst.Attribute | cst.ImportAlias | cst.AsName | cst.Param) or (
                    isinstance(above, cst.Arg) and above.keyword is node
                ):
                    continue
                return True
        return False

    def _left_by_constructor(self, method: Scope, module: Module) -> Mode | None:
        """The mode in which the constructor of an object leaves all that comes after it: ``torch.set_grad_enabled(False)`` in ``__init__``."""
        built = method.parent.child("__init__") if method.parent is not None and method.parent.is_class and method.name != "__init__" else None
        if built is None or not any(names.last_name(call.func) in _LASTING for call in built.calls):
            return None
        frame = self.evaluator.calls.plain_frame(module, built)
        left = [self.left_by(statement.value, frame) for statement in block_of(built.suite) if isinstance(statement, cst.Expr)]
        return next((mode for mode in reversed(left) if mode is not None), None)

    def _for_all(self, module: Module) -> Mode | None:
        """A mode that the module sets once for all its functions."""
        if module.path not in self._global:
            found: Mode | None = None
            for statement in block_of(module.tree.module):
                if isinstance(statement, cst.Expr):
                    found = self.left_by(statement.value, self.evaluator.module_frame(module)) or found
            self._global[module.path] = found
        return self._global[module.path]
