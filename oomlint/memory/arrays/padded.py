"""Texts that are padded to the longest of all: more data than there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.memory.arrays.kept import kept_of
from oomlint.memory.arrays.loads import Load
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.construction import constructions_of
from oomlint.model import arguments
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import Const, FunctionRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_PADS: Final = frozenset({"padding", "pad_to_max_length"})
_CODES: Final = frozenset({"truncation", "max_length", "return_tensors", "add_special_tokens", "return_attention_mask"})
_SHORT: Final = 128  # tokens: so few of each text are no harm
_NO: Final = frozenset({"False", "'do_not_pad'", '"do_not_pad"'})


def padded(module: Module, project: Project) -> Iterator[Load]:
    """Texts that the module pads to the longest of all of them, and that a dataset keeps."""
    if holds_tests(module):
        return
    constructions = constructions_of(project)
    for scope in module.walk.scopes:
        if scope.is_class or constructions.per_item(module, scope):
            continue
        for call in scope.calls:
            yield from _padded(module, project, scope, call)


def _padded(module: Module, project: Project, scope: Scope, call: cst.Call) -> Iterator[Load]:
    """``tokenizer(texts, padding=True)``: each text as long as the longest one."""
    given = arguments.by_name(call)
    pads = next((given[name] for name in _PADS if name in given), None)
    if pads is None or _CODES.isdisjoint(given) or not call.args or module.code(pads) in _NO:
        return
    kept, evaluator = kept_of(project), evaluator_of(project)
    if kept.repeats(module, call):  # one text, or a batch of them
        return
    frame = evaluator.calls.plain_frame(module, scope)
    if any(isinstance(alt.value, FunctionRef) for alt in evaluator.values(call.func, frame)[:2]):
        return
    if "max_length" in given:
        frames = evaluator.calls.frames(module, scope, most=4)
        lengths = [alt.value for one in frames for alt in evaluator.values(given["max_length"], one)[:4]]
        if any(isinstance(one, Const) and isinstance(one.value, int) and one.value <= _SHORT for one in lengths):
            return
    keepers = tuple(k for k in kept.of(module, call) if k.owner is not None)
    if keepers:
        words = f"`{module.function_of(call)}` pads every text to the longest one"
        yield Load(module, scope, call, words, keepers, many=False)
