"""Constants that the model of the project knows: what names and options in a function stand for."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

import libcst as cst

from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model.values import Const
from oomlint.source import SourceError
from oomlint.syntax.nodes import descend
from oomlint.syntax.scopes import REBINDS
from oomlint.verify.ast_names import named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame
    from oomlint.syntax.scopes import Scope

_MOST: Final = 120  # expressions that are asked for
_FRAMES: Final = 3  # callers
_PLAIN: Final = bool | int | float | str
_UNKNOWN: Final = object()
_TRAINS: Final = frozenset({"train", "training", "is_train", "is_training", "do_train"})
_EVALUATES: Final = frozenset({"eval", "evaluate", "is_eval", "test", "is_test", "validation", "is_validation"})
_WORDS: Final = frozenset({"mode", "phase", "split", "stage"})


def known_in(project: Project, path: str, function: str) -> dict[str, Any]:
    """Constants by the text that reads them: ``num_classes``, ``args.lr``. Of several callers the first that knows a value decides."""
    try:
        module = project.module(path)
    except (SourceError, RecursionError):
        return {}
    scope = _scope(module, function)
    if scope is None:
        return {}
    evaluator = evaluator_of(project)
    frames = evaluator.calls.frames(module, scope)[:_FRAMES]
    bound = {name for name, effects in scope.effects.items() if any(effect.kind in REBINDS and not effect.path for effect in effects)}
    found: dict[str, Any] = {}
    for name, node in _reads(scope, bound):
        values = [_constant(evaluator, node, frame) for frame in frames]
        constant = next((value for value in values if value is not _UNKNOWN), None)
        if constant is not None and None not in values:  # where one caller leaves it out, the function may do more without it
            found[name] = constant
    return found


def _constant(evaluator: Evaluator, node: cst.BaseExpression, frame: Frame) -> object:
    """The one plain value of an expression, command lines aside."""
    try:
        alternatives = [alt for alt in evaluator.values(node, frame) if not alt.reach]
    except RecursionError:
        return _UNKNOWN
    constants = [alt.value.value for alt in alternatives if isinstance(alt.value, Const)]
    return constants[0] if len(alternatives) == len(constants) == 1 and isinstance(constants[0], _PLAIN | None) else _UNKNOWN


def _scope(module: Module, function: str) -> Scope | None:
    scope: Scope | None = module.root
    for name in function.split(".") if function else ():
        scope = scope.child(name) if scope else None
    return scope


def _reads(scope: Scope, bound: set[str]) -> Iterator[tuple[str, cst.BaseExpression]]:
    """Names and their attributes that are read in a function and not set there, each once."""
    seen: set[str] = set()
    labels: set[cst.CSTNode] = set()  # names that are no expressions: of attributes and keywords; they come after what holds them
    for node in descend(scope.suite):
        if isinstance(node, cst.Attribute):
            labels.add(node.attr)
        elif isinstance(node, cst.Arg) and node.keyword is not None:
            labels.add(node.keyword)
        if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
            name = f"{node.value.value}.{node.attr.value}"
            first = node.value.value
        elif isinstance(node, cst.Name) and node not in labels:
            name = first = node.value
        else:
            continue
        if name in seen or first in bound or first in {"self", "True", "False", "None"}:
            continue
        seen.add(name)
        if len(seen) > _MOST:
            return
        yield name, node


def modes(text: str, function: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Values of parameters that make a function evaluate, and such that make it train. Empty where it has no parameter for that."""
    found = named(ast.parse(text), function) if function else None
    if not isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [], []
    names = [item.arg for item in (*found.args.posonlyargs, *found.args.args, *found.args.kwonlyargs)]
    flags: dict[str, Any] = {name: name in _TRAINS for name in names if name in _TRAINS | _EVALUATES}
    words = [name for name in names if name in _WORDS]
    evaluating: list[dict[str, Any]] = [{**{name: not trains for name, trains in flags.items()}, **dict.fromkeys(words, "val")}] if flags or words else []
    training: list[dict[str, Any]] = [{**flags, **dict.fromkeys(words, "train")}] if flags or words else []
    return evaluating, training
