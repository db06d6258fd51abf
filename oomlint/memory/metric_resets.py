"""Whether the metric of a Lightning module is reset between epochs: by the module itself, or by Lightning, which resets the metrics that it is given to log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.loaders import evaluator_of
from oomlint.model import names
from oomlint.model.values import ClassRef, External
from oomlint.syntax.walk import descend

if TYPE_CHECKING:
    from oomlint.model.events import Store
    from oomlint.model.project import Module, Project
    from oomlint.syntax.walk import Scope

_STEP: Final = re.compile(r"^(training|validation)_step$|^on_(train|validation)_batch_(start|end)$")
_UPDATES: Final = frozenset({"update", "forward", "compute", "to", "cpu", "cuda"})


def never_reset(store: Store, project: Project) -> bool:
    """Whether a step hands an attribute of its module a batch that nobody resets, in any epoch."""
    step = next((scope for scope in store.loops[-1].module.walk.scopes if scope.node is store.loops[-1].node), None)
    owner = step.parent if step is not None and step.parent is not None and step.parent.is_class and _STEP.match(step.name) else None
    name = store.path[1] if len(store.path) == 2 and store.path[0] == (0, names.self_name(step) if step is not None else None) else None  # noqa: PLR2004
    if owner is None or not isinstance(name, str):
        return False
    evaluator, cls = evaluator_of(project), ClassRef(store.loops[-1].module, owner)
    lightning = any(isinstance(base, External) and base.name.endswith("LightningModule") for base in evaluator.lineage(cls))
    if not lightning or any(_may_reset(method, one.module, name) for one in evaluator.line(cls) for method in one.scope.children if method.is_function):
        return False
    pattern = re.compile(rb"\.%s\.reset\(" % re.escape(name.encode()))
    return not any(pattern.search(module.source.text.encode()) for module in project.mentioning((name.encode(),), cls.module.path))


def _may_reset(method: Scope, module: Module, name: str) -> bool:
    """Whether a method resets the metric, hands it on, or resets what it does not name."""
    for node in descend(method.suite):
        above = module.walk.parents.get(node)
        if isinstance(node, cst.Attribute) and node.attr.value == name and isinstance(node.value, cst.Name):
            updates = isinstance(above, cst.Attribute) and above.attr.value in _UPDATES
            called = isinstance(above, cst.Call) and above.func is node
            if not updates and not called and not isinstance(above, cst.AssignTarget):
                return True
        own = isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and isinstance(node.func.value, cst.Attribute)
        if isinstance(node, cst.Call) and names.last_name(node.func) == "reset" and not own:
            return True  # `for metric in self.modules(): metric.reset()`
    return False
