"""Copies of a model that a program keeps beside it: teachers, averages of its weights, the best weights so far; on its device, or on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import names
from oomlint.model.values import ExternalCall, Instance, SourceExpression, is_tested
from oomlint.syntax.nodes import descend, path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oomlint.finding import Place
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module
    from oomlint.model.values import Frame, Value

_MOST_COPIES: Final = 32
_MOST_FRAMES: Final = 4
_WHOLE: Final = frozenset({"deepcopy", "AveragedModel"})
_ALL_OF_IT: Final = frozenset({"state_dict", "parameters", "named_parameters"})
_NEW: Final = frozenset({"clone", "deepcopy", "zeros_like", "empty_like", "ones_like"})


class Copies:
    """Answers for the modules of one program."""

    def __init__(self, evaluator: Evaluator, reached: Sequence[Module], runs: Callable[[Place], bool]) -> None:
        self.evaluator = evaluator
        self._found = [(module, *one) for module in reached for one in _copied(module) if runs(module.place(one[0]))][:_MOST_COPIES]

    def of(self, model: cst.BaseExpression, frame: Frame) -> tuple[int, int, bool]:
        """How many of a model there are where it lies, and on the host; and whether that is certain: a test may decide it."""
        written, values = frame.module.code(model).strip(), self._values(model, [frame])
        kept: dict[tuple[str, str], bool] = {}  # what stores a model again has it once
        certain = True
        for module, node, name, on_host in self._found:
            frames = self.evaluator.calls.frames(module, module.walk.scope_at(node))[:_MOST_FRAMES]
            if module.code(node).strip() == written or any(value in values for value in self._values(node, frames)):
                kept[module.path, name] = on_host
                ways = [picks for one in frames for picks in self.evaluator.where(node, one)]
                certain = certain and not (ways and all(map(is_tested, ways)))
        return len(kept) - sum(kept.values()), sum(kept.values()), certain

    def _values(self, node: cst.BaseExpression, frames: Sequence[Frame]) -> list[Value]:
        """What is known of an expression that stands for an object."""
        found = (alt.value for frame in frames for alt in self.evaluator.values(node, frame)[:_MOST_FRAMES])
        return [value for value in found if isinstance(value, Instance | SourceExpression | ExternalCall)]


def _copied(module: Module) -> Iterator[tuple[cst.BaseExpression, str, bool]]:
    """The models of which a module keeps a copy, what it keeps it in, and whether that is on the host."""
    for call, _ in module.calls_of(_WHOLE):
        if call.args:
            whole = _around(call, module)
            bound = module.walk.bound_to(whole)
            yield _whose(call.args[0].value) or call.args[0].value, str(bound or module.place(call)), _to_host(whole)
    for node in descend(module.root.node) if any(word in module.source.text for word in _ALL_OF_IT) else ():
        if isinstance(node, cst.DictComp | cst.ListComp):
            model, bound = _whose(node.for_in.iter), module.walk.bound_to(node)
            stores = [(str(bound), node.value if isinstance(node, cst.DictComp) else node.elt)] if bound else []
        elif isinstance(node, cst.For):
            model = _whose(node.iter)
            assigned = [one for one in descend(node.body) if isinstance(one, cst.Assign)] if model is not None else []
            stores = [(str(path_of(one.targets[0].target.value)), one.value) for one in assigned if isinstance(one.targets[0].target, cst.Subscript)]
        else:
            continue
        yield from ((model, name, _to_host(made)) for name, made in stores if model is not None and _is_new(made))


def _whose(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """``model`` of ``model.state_dict().items()`` and its like."""
    here: cst.BaseExpression = node
    while isinstance(here, cst.Call) and isinstance(here.func, cst.Attribute):
        method, here = here.func.attr.value, here.func.value
        if method in _ALL_OF_IT:
            return here
    return None


def _is_new(made: cst.BaseExpression) -> bool:
    """Whether what is kept of a parameter has memory of its own."""
    return _to_host(made) or any(isinstance(one, cst.Call) and names.last_name(one.func) in _NEW for one in (made, *descend(made)))


def _around(call: cst.Call, module: Module) -> cst.BaseExpression:
    """A call with the methods that are called on what it gives: ``deepcopy(model).eval().cpu()``."""
    node = call
    while isinstance(above := module.walk.parents.get(node), cst.Attribute):
        whole = module.walk.parents.get(above)
        if not isinstance(whole, cst.Call):
            break
        node = whole
    return node


def _to_host(node: cst.BaseExpression) -> bool:
    """Whether what is made ends on the host: ``p.detach().cpu()``, ``model.to("cpu")``."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        method, given = node.func.attr.value, [arg.value for arg in node.args[:1]]
        if method == "cpu" or (method == "to" and any(isinstance(one, cst.SimpleString) and one.evaluated_value == "cpu" for one in given)):
            return True
        if method in {"cuda", "to"}:
            return False
        node = node.func.value
    return False
