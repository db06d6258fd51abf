"""Qualified names of what libraries give, and functions of the project that an expression stands for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.api_names import PARAMETERS
from oomlint.frameworks import LIGHTNING_MODULE
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.model.readings import finder
from oomlint.model.values import ClassRef, External, FunctionRef
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

MODULES = frozenset({"torch.nn.Module", LIGHTNING_MODULE, "transformers.PreTrainedModel"})
# What rules look for by a library's name, apart from classes; and where it is given another name: `self.read = torch.load`.
_ASKED = frozenset("load collect empty_cache init_process_group initialize spawn fully_shard all_gather_object all_gather".split())
_ALIAS = re.compile(rb"(?:\.|[=:] ?)(?:load|collect|empty_cache|init_process_group|initialize)\b(?! *[(=])")
_BOUND = re.compile(rb"(\w+)[\"']? *[=:]")


def library_name(project: Project, node: cst.BaseExpression, module: Module, scope: Scope) -> str:
    """The qualified name of what a library gives, as ``torch.cuda.empty_cache``; empty where it is something else."""
    if not _may_be_asked_for(project, node, module):
        return ""
    evaluator = evaluator_of(project)
    for alt in evaluator.plainly(node, module, scope):
        if isinstance(alt.value, External):
            return names.canonical(alt.value.name)
    return ""


def _may_be_asked_for(project: Project, node: cst.BaseExpression, module: Module) -> bool:
    """Whether a method can be one of the functions and classes that a rule asks for, by its name: to follow each `x.append` to its end is not cheap."""
    if not isinstance(node, cst.Attribute):
        return True
    word = node.attr.value
    if word in _ASKED or word[:1].isupper() or word in _other_names(project, module):
        return True
    # The class of an optimizer has any name: `self.kind(model.parameters())`.
    call = module.walk.parents.get(node)
    return isinstance(call, cst.Call) and any(
        isinstance(part, cst.Call) and names.last_name(part.func) in PARAMETERS for arg in call.args for part in descend(arg.value)
    )


def _other_names(project: Project, module: Module) -> frozenset[str]:
    """Names that the files of the project give to such functions."""
    found = project.search(_aliases, (), module.path)
    return project.memo.answer("other names of functions", lambda: frozenset(word for words in found.values() for word in words.split()))  # type: ignore[return-value]


@finder
def _aliases(path: str, data: bytes) -> str:
    """Names that a file gives to such functions."""
    del path
    found: set[str] = set()
    for match in _ALIAS.finditer(data):
        line = data[data.rfind(b"\n", 0, match.start()) + 1 : match.end()]
        found.update(word.decode() for word in _BOUND.findall(line))
    return " ".join(sorted(found))


def project_function(project: Project, node: cst.BaseExpression, module: Module, scope: Scope) -> FunctionRef | None:
    """The function of the project that an expression stands for."""
    evaluator = evaluator_of(project)
    for alt in evaluator.plainly(node, module, scope):
        if isinstance(alt.value, FunctionRef):
            return alt.value
        if isinstance(alt.value, ClassRef | External):
            return None
    return None
