"""Where `torch.load` sends the tensors of a checkpoint, by its `map_location`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import arguments, names
from oomlint.model.values import Const, Display, External, ExternalCall, FunctionRef, SourceExpression
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope

_PLACE: Final = 1  # of `map_location` among the arguments


def goes_to_host(module: Module, scope: Scope, call: cst.Call, project: Project) -> bool:
    """Whether the tensors are sent to host memory. Those that go to a device are read one after the other, and let go (torch 2.13)."""
    where = arguments.argument_for(call, "map_location", place=_PLACE)
    if where is None:
        return False  # to the device that it was saved from: OOM502
    if isinstance(where, cst.Lambda):
        first = where.params.params[0].name.value if where.params.params else ""
        return (isinstance(where.body, cst.Name) and where.body.value == first) or "cpu" in module.code(where.body)
    words = _words(module, scope, where, project)
    return "cpu" in words and not any(map(_is_accelerator, words))


def goes_to_device(module: Module, scope: Scope, call: cst.Call, project: Project) -> bool:
    """Whether the tensors are sent to an accelerator that is written: ``"cuda"``, ``f"cuda:{rank}"``, ``lambda storage, _: storage.cuda(rank)``."""
    where = arguments.argument_for(call, "map_location", place=_PLACE)
    if where is None:
        return False
    if isinstance(where, cst.Lambda):
        return isinstance(where.body, cst.Call) and names.last_name(where.body.func) == "cuda"
    return any(map(_is_accelerator, _words(module, scope, where, project)))


def saved_from_host(module: Module, scope: Scope, project: Project) -> bool:
    """Whether all states that the class around writes, or the file where there is none, are copies in host memory: ``save({k: v.cpu() for ...}, path)``."""
    owner = scope.parent if scope.parent is not None and scope.parent.is_class else None
    writers = [one for one in module.walk.scopes if owner is None or one.parent is owner]
    found: list[bool] = []
    for writer in writers:
        frame = evaluator_of(project).calls.plain_frame(module, writer)
        for call in writer.calls:
            if names.last_name(call.func) == "save" and call.args and _is_torch(call.func, frame, project):
                saved = call.args[0].value
                states = list(_states(saved, writer, frame, project))
                if not (len(states) == 1 and states[0] is saved and _is_of_optimizer(states[0], module, writer, project)):
                    moved = _moved_in_place(saved, writer)
                    found += [moved or _is_host(state, module, frame, project) for state in states]
    return bool(found) and all(found)


def _is_of_optimizer(state: cst.Call, module: Module, writer: Scope, project: Project) -> bool:
    """Whether a state is an optimizer's, as far as the callers say: a file with nothing else in it is not read for a network."""
    of, evaluator = cst.ensure_type(state.func, cst.Attribute).value, evaluator_of(project)
    values = [alt.value for frame in evaluator.calls.frames(module, writer, most=2) for alt in evaluator.values(of, frame)[:2]]
    return any(isinstance(one, ExternalCall) and one.name.startswith("torch.optim.") for one in values)


def _moved_in_place(saved: cst.BaseExpression, writer: Scope) -> bool:
    """Whether what a name stands for is copied to the host entry by entry: ``for key, value in state.items(): state[key] = value.cpu()``."""
    effects = writer.effects.get(saved.value, ()) if isinstance(saved, cst.Name) else ()
    return any(effect.path and effect.value is not None and _copies(effect.value) for effect in effects)


def _is_torch(func: cst.BaseExpression, frame: Frame, project: Project) -> bool:
    return any(isinstance(alt.value, External) and alt.value.name.startswith("torch.") for alt in evaluator_of(project).values(func, frame)[:2])


def _states(saved: cst.BaseExpression, writer: Scope, frame: Frame, project: Project) -> Iterator[cst.Call]:
    """The calls of ``state_dict`` in what is saved, also where a name stands for it; those of a library's own settings hold few tensors."""
    parts = [saved]
    if isinstance(saved, cst.Name):
        parts = [effect.value for effect in writer.effects.get(saved.value, ()) if effect.kind == "assign" and effect.value is not None]
    for node in (one for part in parts for one in descend(part)):
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "state_dict":
            of = evaluator_of(project).values(node.func.value, frame)[:2]
            if not any(isinstance(alt.value, External) for alt in of):
                yield node


def _is_host(state: cst.Call, module: Module, frame: Frame, project: Project) -> bool:
    """Whether what stands around a state copies it to the host, or the model is there: ``to_host(model.state_dict())``, ``model.cpu().state_dict()``."""
    if _copies(state.func):
        return True
    for here in module.walk.ancestors(state):
        if isinstance(here, cst.DictComp) and _copies(here.value):
            return True
        if isinstance(here, cst.Call) and here.func is not state.func:
            called = [alt.value for alt in evaluator_of(project).values(here.func, frame)[:2]]
            if any(isinstance(one, FunctionRef) and any(map(_copies, one.scope.calls)) for one in called):
                return True
        if isinstance(here, cst.BaseSmallStatement):
            break
    return False


def _copies(node: cst.CSTNode) -> bool:
    """Whether an expression puts a tensor into host memory."""
    return any(isinstance(one, cst.Call) and isinstance(one.func, cst.Attribute) and one.func.attr.value == "cpu" for one in descend(node))


def _is_accelerator(word: str) -> bool:
    return word.startswith("cuda")


def _words(module: Module, scope: Scope, where: cst.BaseExpression, project: Project) -> set[str]:
    evaluator = evaluator_of(project)
    return set(_names_of_devices(where, evaluator.calls.plain_frame(module, scope), evaluator))


def _names_of_devices(node: cst.BaseExpression, frame: Frame, evaluator: Evaluator) -> Iterator[str]:
    """The names of devices that an expression can be, as far as they are written; of a text with a number in it, what stands in front of that."""
    for alt in evaluator.values(node, frame):
        value = alt.value
        if isinstance(value, Const) and isinstance(value.value, str):
            yield value.value
        elif isinstance(value, ExternalCall) and names.canonical(value.name) == "torch.device" and value.call.args:
            yield from _names_of_devices(value.call.args[0].value, value.frame, evaluator)
        elif isinstance(value, Display) and isinstance(value.node, cst.Dict):  # from one device to another
            for element in value.node.elements:
                yield from _names_of_devices(element.value, value.frame, evaluator)
        elif isinstance(value, SourceExpression):
            yield from _beginning(value.node)
    for part in (node, *(step.node for alt in evaluator.values(node, frame) for step in alt.story)):
        yield from _beginning(part)


def _beginning(node: cst.CSTNode | None) -> Iterator[str]:
    """What a text begins with that is filled in: ``f"cuda:{n}"``, ``"cuda:{}".format(n)``, ``"cuda:%d" % n``."""
    if isinstance(node, cst.FormattedString) and node.parts and isinstance(node.parts[0], cst.FormattedStringText):
        yield node.parts[0].value
    text = node.func.value if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "format" else None
    text = node.left if isinstance(node, cst.BinaryOperation) else text
    if isinstance(text, cst.SimpleString):
        yield str(text.evaluated_value)
