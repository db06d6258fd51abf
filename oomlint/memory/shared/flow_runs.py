"""Which functions of a module are run through the flow, and in which frames."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.frameworks import LIBRARIES, LOSS_METHODS, TRAINING_METHOD
from oomlint.memory.buffers.hooks import Hooks
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.loop_kinds import batch_loader, is_epoch_loop, loader_like
from oomlint.memory.shared.loop_phases import has_backward, is_evaluation
from oomlint.model import names
from oomlint.model.events import Backward
from oomlint.model.flow import Flow
from oomlint.model.flow_state import SharedRuns
from oomlint.model.gradients import EntryMode, Gradients
from oomlint.model.readings import AnswerMemory
from oomlint.model.tensor_state import Graph, Mode, ValueKind, join_all
from oomlint.model.values import ClassRef, External
from oomlint.scout.telling_names import ADDS, DRIVES, MODES, MOVES, READY, SWITCHES_OFF, is_no_root, is_table, words_of
from oomlint.syntax.nodes import descend, uses_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.events import Loop, Record
    from oomlint.model.project import Module, Project
    from oomlint.model.tensor_state import TensorState
    from oomlint.model.values import Frame
    from oomlint.scout.telling_names import Words
    from oomlint.syntax.scopes import Scope

# Other frameworks: what they call a model, and evaluate, records no graph of torch.
_OTHER: Final = re.compile(r"^\s*(?:import|from)\s+(?:paddle|tensorflow|keras|mxnet|jax|flax|mindspore|chainer)\b", re.MULTILINE)
_TORCH: Final = re.compile(r"^\s*(?:import|from)\s+.*torch", re.MULTILINE)
_MOST_FRAMES: Final = 4


class Runs:
    """Runs the functions of a project through the flow, each once."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator: Evaluator = evaluator_of(project)
        self.gradients = Gradients(self.evaluator)
        self._known = SharedRuns(project.readings, project.shared(Hooks).of)
        self._steps: AnswerMemory[object, Record] = AnswerMemory(project.readings)
        self._records: AnswerMemory[Scope, list[Record]] = AnswerMemory(project.readings)
        self._roots: AnswerMemory[str, list[Scope]] = AnswerMemory(project.readings)
        self._speaking: AnswerMemory[str, bool] = AnswerMemory(project.readings)

    def of(self, module: Module) -> list[Record]:
        """Records of all functions of a module that may go through batches."""
        return [record for scope in self.roots(module) for record in self.records(module, scope)]

    def roots(self, module: Module) -> list[Scope]:
        """Functions of a module that may go through batches."""
        return self._roots.answer(module.path, lambda: self._roots_of(module))

    def _roots_of(self, module: Module) -> list[Scope]:
        looping = [
            scope
            for scope in module.walk.scopes
            if (scope.loops or scope.comprehensions)
            and not isinstance(scope.node, cst.ClassDef | cst.Lambda)
            and not is_no_root(scope.name, method=names.is_method(scope))
        ]
        words = words_of(module.source.text)
        if not looping:
            return []
        return [scope for scope in looping if self._is_root(scope, module, words)]

    def records(self, module: Module, scope: Scope) -> list[Record]:
        """Records of one function, one for each way of calling it that matters."""
        known = self._records.get(scope)
        if known is None:
            known = []
            self._records.assume(scope, known)
            for frame in () if _is_of_another_framework(module.source.text) else self._frames(module, scope):
                known.append(self._flow().run(frame, EntryMode(self.gradients, frame), self._evaluating(frame)))
            self._records[scope] = known
        return known

    def loop(self, node: cst.CSTNode, module: Module, scope: Scope) -> Loop | None:
        """What a loop of a function repeats, where some way of calling the function tells."""
        return max(self._ways_through(node, module, scope), key=lambda loop: (loop.proven, loop.batches, loop.holds, loop.steps), default=None)

    def over_batches(self, node: cst.CSTNode, module: Module, scope: Scope) -> bool:
        """Whether a loop goes through batches: by what its rounds do, or by the loader that it goes over where no run comes by."""
        found = self.loop(node, module, scope)
        if found is not None:
            return found.batches
        return isinstance(node, cst.For) and batch_loader(self.project, node.iter, module, scope) is not None

    def looks(self, record: Record, loop: Loop) -> bool:
        """Whether a loop only looks at what a model gives: an evaluation, or a loop that stands where no gradients are recorded, whatever it is called."""
        if has_backward(record, loop):
            return False
        here = record.frame if record.frame is not None and record.frame.scope is loop.scope else self.evaluator.calls.plain_frame(loop.module, loop.scope)
        return is_evaluation(record, loop) or self.gradients.at(loop.node, here) is Mode.OFF

    def epochs(self, node: cst.CSTNode, module: Module, scope: Scope) -> bool:
        """Whether each round of a loop trains the same modules on the same batches again; by its words where no training is in sight."""
        if not isinstance(node, cst.For | cst.While):
            return False
        found = self._ways_through(node, module, scope)
        if any(loop.trains for loop in found):
            return any(loop.epochs for loop in found)
        return is_epoch_loop(node, module)

    def part(self, node: cst.CSTNode, module: Module, scope: Scope) -> TensorState | None:
        """What an operand of a call that joins arrays holds, or what is put into a list, on all ways of calling the function; ``None`` where no run came by."""
        found: list[TensorState] = []
        for record in self.records(module, scope):
            held = record.parts.get(node)
            found.extend([held] if held is not None else [store.value for store in record.stores if store.expression is node])
        return join_all(found) if found else None

    def _ways_through(self, node: cst.CSTNode, module: Module, scope: Scope) -> list[Loop]:
        """A loop of a function, once for each way of calling the function."""
        return [loop for record in self.records(module, scope) for loop in record.loops if loop.node is node]

    def step(self, module: Module, scope: Scope, position: int = 1, *, differentiated: bool = True) -> Record:
        """The record of a method that a framework calls once for each batch, which stands at ``position``; what a training step gives, it may differentiate."""
        key = ("step", scope)
        known = self._steps.get(key)
        if known is None:
            frame = self.evaluator.calls.frames(module, scope, most=1)[0]
            params = names.parameter_names(scope)
            batch = params[position] if len(params) > position else ""
            training = TRAINING_METHOD.search(scope.name) is not None
            known = self._steps[key] = self._flow().run(frame, EntryMode(self.gradients, frame), not training, batch_of=batch or "batch")
            if differentiated and scope.name in LOSS_METHODS:
                _differentiate(known)
        return known

    def _flow(self) -> Flow:
        def loader_of(node: cst.BaseExpression, module: Module, scope: Scope, frame: Frame) -> object:
            del frame
            return loader_like(self.project, node, module, scope)

        return Flow(self.evaluator, self.gradients, loader_of, self._known)

    def _frames(self, module: Module, scope: Scope) -> list[Frame]:
        most = 1 if scope.parent is None or not _tests_parameters(scope, module) else _MOST_FRAMES
        return self.evaluator.calls.frames(module, scope, most=most)

    @staticmethod
    def _evaluating(frame: Frame) -> bool | None:
        """Whether the callers put the model into evaluation before the call."""
        here = frame
        for _ in range(3):
            if not here.bound:
                return None
            layer = here.bound[-1]
            found: bool | None = None
            for call in layer.frame.scope.calls:
                if call is layer.call:
                    break
                if isinstance(call.func, cst.Attribute) and not call.args and call.func.attr.value in {"eval", "train"}:
                    found = call.func.attr.value == "eval"
            if found is not None:
                return found
            here = layer.frame
        return None

    def _is_root(self, scope: Scope, module: Module, words: Words) -> bool:
        """Whether a function with a loop names a loader, or steps in its loop; what is cheap to know is asked first."""
        if words.loaders and _names_one_of(words.loaders, scope):
            return True
        steps = any(names.last_name(call.func) in words.steps for call in scope.calls) and any(
            _may_go_through_batches(body, words) for body in _repeated(scope)
        )
        if not steps and not _may_run_a_model(scope) and not _runs_what_it_is_given(scope, module) and not _calls_what_moves(scope, module):
            return False
        method = scope.parent is not None and scope.parent.is_class
        drives = any(isinstance(call.func, cst.Attribute) and call.func.attr.value in DRIVES for call in scope.calls)
        of_module = method and scope.parent is not None and self.is_module(module, scope.parent)
        return self._speaks_of_torch(module) and (drives or not of_module or _is_decorated_off(scope))

    def _speaks_of_torch(self, module: Module) -> bool:
        return self._speaking.answer(module.path, lambda: _speaks_of_torch(module))

    def is_module(self, module: Module, cls: Scope) -> bool:
        """Whether a class is a module of torch, or a part of some: without a base of its own, and modules of the project derive from it."""
        own = ClassRef(module, cls)
        plain = all(isinstance(base, ClassRef) or base == External("builtins.object") for base in self.evaluator.lineage(own))
        return self._derives(own) or (plain and any(map(self._derives, self.evaluator.calls.subclasses(own))))

    def _derives(self, cls: ClassRef) -> bool:
        return any(isinstance(base, External) and base.name == "torch.nn.Module" for base in self.evaluator.lineage(cls))


def _is_decorated_off(scope: Scope) -> bool:
    """Whether a decorator switches gradients off: no part of a forward pass, but what a program calls, as the sampling of a diffusion."""
    decorators = (one.decorator for one in scope.node.decorators) if isinstance(scope.node, cst.FunctionDef) else ()
    return any(names.last_name(one.func if isinstance(one, cst.Call) else one) in SWITCHES_OFF for one in decorators)


def _is_of_another_framework(text: str) -> bool:
    """Whether a file imports another framework, and nothing of torch by name."""
    return _OTHER.search(text) is not None and _TORCH.search(text) is None


def _speaks_of_torch(module: Module) -> bool:
    for scope in module.walk.scopes:
        for effects in scope.effects.values():
            for effect in effects:
                if effect.kind == "import" and isinstance(effect.node, cst.ImportAlias) and names.dotted(effect.node.name).split(".")[0] in LIBRARIES:
                    return True
                if effect.kind in {"from", "star"}:
                    statement = effect.statement if effect.kind == "from" else effect.node
                    if isinstance(statement, cst.ImportFrom) and (
                        statement.relative or names.dotted(statement.module).split(".")[0] in LIBRARIES or effect.kind == "star"
                    ):
                        return True
                    if isinstance(statement, cst.ImportFrom) and module.project.locate(module.path, names.dotted(statement.module)) is not None:
                        return True
    return False


def _names_one_of(words: frozenset[str], scope: Scope) -> bool:
    if any(p.name.value in words for p in names.parameters(scope)):
        return True
    return any(isinstance(node, cst.Name) and node.value in words for node in descend(scope.node, into_scopes=False))


def _repeated(scope: Scope) -> Iterator[cst.CSTNode]:
    """What the loops of a function repeat; of a comprehension, all of it."""
    yield from (loop.body for loop in scope.loops)
    yield from scope.comprehensions


def _may_go_through_batches(body: cst.CSTNode, words: Words) -> bool:
    return any(
        isinstance(node, cst.Call) and (word := names.last_name(node.func)) in words.steps and not (word == "update" and _fills(node))
        for node in descend(body, into_scopes=False)
    )


def _may_run_a_model(scope: Scope) -> bool:
    """Whether a function makes a model ready, moves tensors in the rounds of a loop, or keeps something in them and switches gradients off."""
    if any(isinstance(call.func, cst.Attribute) and call.func.attr.value in READY for call in scope.calls):
        return True
    rounds = [node for body in _repeated(scope) for node in descend(body, into_scopes=False)]
    if any(isinstance(node, cst.Attribute) and node.attr.value in MOVES for node in rounds):
        return True
    return any(_keeps(node) for node in rounds) and any(_word(node) in MODES for node in descend(scope.node, into_scopes=False))


def _runs_what_it_is_given(scope: Scope, module: Module) -> bool:
    """Whether the rounds of a loop call an argument, in a file that makes a model ready."""
    given = set(names.parameter_names(scope))
    rounds = (node for body in _repeated(scope) for node in descend(body, into_scopes=False))
    if not any(isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in given and node.args for node in rounds):
        return False
    return any(isinstance(call.func, cst.Attribute) and call.func.attr.value in READY and not call.args for call, _ in module.walk.calls)


def _calls_what_moves(scope: Scope, module: Module) -> bool:
    """Whether the rounds of a loop call a function of the file, or of the class, that moves tensors or switches gradients off.

    What makes its model ready itself is told where it runs it, unless the rounds keep something.
    """
    rounds = [node for body in _repeated(scope) for node in descend(body, into_scopes=False)]
    keeps = any(_keeps(node) or _fills_place(node) for node in rounds)
    for node in rounds:
        func = node.func if isinstance(node, cst.Call) else None
        holder = module.root if isinstance(func, cst.Name) else scope.parent if isinstance(func, cst.Attribute) and isinstance(func.value, cst.Name) else None
        helper = holder.child(names.last_name(func)) if holder is not None and func is not None else None
        if helper is None or (not keeps and any(isinstance(call.func, cst.Attribute) and call.func.attr.value in READY for call in helper.calls)):
            continue
        if any(_word(part) in MOVES | MODES for part in descend(helper.node) if isinstance(part, cst.Attribute | cst.Name)):
            return True
    return False


def _fills_place(node: cst.CSTNode) -> bool:
    """Whether a statement sets an element under a key that may differ from round to round."""
    target = node.targets[0].target if isinstance(node, cst.Assign) else None
    index = target.slice[0].slice if isinstance(target, cst.Subscript) else None
    return isinstance(index, cst.Index) and not isinstance(index.value, cst.BaseNumber | cst.BaseString)


def _keeps(node: cst.CSTNode) -> bool:
    """Whether a statement of a round may keep something beyond it."""
    if isinstance(node, cst.Call):
        return names.last_name(node.func) in ADDS
    return isinstance(node, cst.AugAssign) and not isinstance(node.value, cst.BaseNumber | cst.BaseString)


def _word(node: cst.CSTNode) -> str:
    return node.attr.value if isinstance(node, cst.Attribute) else node.value if isinstance(node, cst.Name) else ""


def _fills(call: cst.Call) -> bool:
    """Whether an ``update`` is given entries, a number of rounds, or belongs to a table: no step of anything."""
    plain = [arg.value for arg in call.args if arg.keyword is None and arg.star != "**"]
    if not plain or isinstance(plain[0], cst.Dict | cst.DictComp | cst.BaseNumber | cst.BaseString):
        return True
    return isinstance(call.func, cst.Attribute) and is_table(names.last_name(call.func.value))


def _tests_parameters(scope: Scope, module: Module) -> bool:
    """Whether what a caller passes decides which branch runs, or whether gradients are recorded."""
    del module
    own = set(names.parameter_names(scope))
    for node in scope.nodes(inner=False):
        test: cst.BaseExpression | None = None
        if isinstance(node, cst.If | cst.IfExp):
            test = node.test
        elif isinstance(node, cst.Call) and names.last_name(node.func) in {"set_grad_enabled", "train", "inference_mode"} and node.args:
            test = node.args[0].value
        if test is not None and uses_name(test, own):
            return True
    return any(
        isinstance(arg.value, cst.Name) and arg.value.value in own and arg.value.value in {"train", "training", "is_train", "mode", "phase", "split"}
        for call in scope.calls
        for arg in call.args
    )


def _differentiate(record: Record) -> None:
    """Note the backward pass that the framework makes of what a training step returns: the loss itself, or a dictionary with it."""
    held = record.returned
    loss = (held.item("loss") or held.inside) if held.kind is ValueKind.PACK else held
    frame = record.frame
    if loss is None or frame is None or not (loss.tensorlike or loss.sources):
        return
    loops = tuple(record.loops[:1])
    record.backwards.append(Backward(frame.scope.node, frame.module, frame.scope, loops, (), Mode.ON, (), loss.all_sources, loss.all_tags))


def runs_of(project: Project) -> Runs:
    """The runs of a project."""
    return project.shared(Runs)


def records_graph(node: cst.CSTNode, module: Module, scope: Scope, project: Project) -> bool:
    """Whether operations at a place are known to be recorded, in some pass at least."""
    runs = runs_of(project)
    return runs.gradients.at(node, runs.evaluator.calls.plain_frame(module, scope)).records is Graph.YES
