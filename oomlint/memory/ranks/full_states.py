"""States of models that every rank gathers or copies into its host memory, where one of them saves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.finding import Fix, Safety
from oomlint.memory.fixes.add_argument import added_argument
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.ranks.gathers import Gathers
from oomlint.memory.ranks.ranks import Ranks, ranks_of
from oomlint.model import arguments, names
from oomlint.model.values import Const, ExternalCall
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope

_CONFIG: Final = "FullStateDictConfig"
_TO_HOST: Final = frozenset({"cpu", "numpy"})
_BEHIND: Final = 2  # the place of the configuration among the arguments


class FullState(Struct, frozen=True, eq=False):
    """A state of a whole model that every rank holds, and one reads."""

    module: Module
    node: cst.Call | cst.DictComp  # what gathers or copies it
    name: str
    read: cst.CSTNode
    ranks: Ranks | None
    config: tuple[Module, cst.Call] | None = None  # that has every rank gather it


def full_states(module: Module, project: Project) -> Iterator[FullState]:
    """The states of a module's functions that every rank holds in host memory."""
    for scope in module.walk.scopes:
        if scope.is_function or scope.parent is None:
            yield from _of_scope(module, scope, project)


def _of_scope(module: Module, scope: Scope, project: Project) -> Iterator[FullState]:
    for call in scope.calls:
        if names.last_name(call.func) != "state_dict" or not isinstance(call.func, cst.Attribute) or call.args:
            continue
        config = _config(module, scope, call, project)
        copied = _copied(module, call)
        node: cst.Call | cst.DictComp | None = call if config is not None else copied
        if node is None:
            continue
        statement = module.walk.statement_of(node)
        target = statement.targets[0].target if isinstance(statement, cst.Assign) else None
        ranks = ranks_of(project).at(module, scope, node)
        if not isinstance(target, cst.Name) or (ranks is None and config is None) or ranks_of(project).on_one(module, scope, node):
            continue
        reads = project.shared(Gathers).reads(module, scope, statement, target.value)
        if reads is not None:
            yield FullState(module, node, target.value, reads.first, ranks, config)


def _copied(module: Module, call: cst.Call) -> cst.DictComp | None:
    """The dictionary of copies in host memory that is made of a state: ``{k: v.cpu() for k, v in model.state_dict().items()}``."""
    around = next((a for a in module.walk.ancestors(call) if isinstance(a, cst.DictComp | cst.BaseSmallStatement)), None)
    if not isinstance(around, cst.DictComp) or not any(node is call for node in descend(around.for_in.iter)):
        return None
    for node in descend(around.value):
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            moved = node.func.attr.value == "to" and any(isinstance(a.value, cst.SimpleString) and a.value.evaluated_value == "cpu" for a in node.args)
            if node.func.attr.value in _TO_HOST or moved:
                return around
    return None


def _config(module: Module, scope: Scope, call: cst.Call, project: Project) -> tuple[Module, cst.Call] | None:
    """The configuration by which FSDP gathers the whole state on every rank, and moves it to the host."""
    for around in module.walk.ancestors(call):
        if not isinstance(around, cst.With):
            continue
        for item in around.items:
            made = item.item
            if not isinstance(made, cst.Call) or names.last_name(made.func) != "state_dict_type":
                continue
            if any(isinstance(n, cst.Call) and names.last_name(n.func) == "load_state_dict" for n in descend(around.body)):
                return None  # which takes it on every rank
            return _on_every_rank(module, scope, made, project)
    return None


def _on_every_rank(module: Module, scope: Scope, made: cst.Call, project: Project) -> tuple[Module, cst.Call] | None:
    given = arguments.argument_for(made, "state_dict_config", place=_BEHIND)
    if given is None:
        return None  # it stays on the devices
    evaluator = evaluator_of(project)
    for alt in evaluator.plainly(given, module, scope):
        value = alt.value
        if isinstance(value, ExternalCall) and value.name.rpartition(".")[2] == _CONFIG and not arguments.has_stars(value.call):
            config = [arguments.argument_for(value.call, name, place=place) for place, name in enumerate(("offload_to_cpu", "rank0_only"))]
            offload, one_rank = (_constant(given, value.frame, evaluator) for given in config)
            if offload is True and (config[1] is None or one_rank is False):
                return value.frame.module, value.call
    return None


def _constant(given: cst.BaseExpression | None, frame: Frame, evaluator: Evaluator) -> object:
    found = evaluator.values(given, frame) if given is not None else []
    return next((alt.value.value for alt in found if isinstance(alt.value, Const)), None)


def on_one_rank(found: FullState) -> Fix:
    """The fix that has one rank get the state: ``rank0_only=True``."""
    if found.config is None:
        return Fix(Safety.DISPLAY, "copy it only on the rank that saves it")
    module, call = found.config
    message = "gather the state on the first rank only"
    if arguments.has(call, "rank0_only") or any(a.keyword is None for a in call.args):
        return Fix(Safety.DISPLAY, f"{message}: `rank0_only=True`")
    if _has_other_users(module, call):
        return Fix(Safety.DISPLAY, f"{message}: `rank0_only=True`, in a config that nothing else uses")
    return Fix(Safety.UNSAFE, message, (added_argument(module, call, "rank0_only=True"),))


def _has_other_users(module: Module, call: cst.Call) -> bool:
    """Whether more than one place reads the name that settings are given: a state that is loaded needs all ranks."""
    statement = module.walk.statement_of(call)
    if not isinstance(statement, cst.Assign) or statement.value is not call:
        return False
    given = [one.target for one in statement.targets]
    named = {target.value for target in given if isinstance(target, cst.Name)}
    read = [node for name in named for node in module.walk.root.named(name) if node not in given]
    return len(read) > 1
