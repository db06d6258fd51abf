"""What reading one sample of a dataset does: the attributes that it reads, whether it opens files, whether it is work."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.api_names import RANDOM
from oomlint.memory.datasets.constant_flags import Flags
from oomlint.memory.shared.known_reads import known_read
from oomlint.model import names
from oomlint.model.reach import path_conditions
from oomlint.model.values import External, FunctionRef, Unknown
from oomlint.syntax.nodes import is_attribute_of, uses_name

if TYPE_CHECKING:
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module
    from oomlint.model.values import Frame, Instance
    from oomlint.syntax.scopes import Effect, Scope

# Calls that read or open a file, by their last name; what the functions of libraries read is known besides.
_READS_FILE = frozenset(
    "open imread load read_image read_video File Image imdecode read_json memmap sf_read VideoReader VideoCapture decode_image decode_jpeg open_memmap "
    "read_file download urlopen load_image pil_loader default_loader load_audio load_wav get_image read_text read_bytes img_loader imread_rgb load_mesh "
    "load_obj loadz get_object begin cursor".split(),
)
_WORKS = frozenset(
    "tokenize encode encode_plus tokenizer transform transforms augment resize crop flip rotate preprocess process feature_extractor processor "
    "batch_encode_plus interpolate resample spectrogram pad_sequence fft stft warp normalize Compose apply".split(),
)
_QUIET = frozenset({"torch", "numpy", "builtins", "random", "math", "copy", "collections", "pandas", "itertools", "functools", "operator", "scipy", "time"})
_WORDS_OF_WORK = ("transform", "augment", "token", "process", "decode", "crop", "resize", "extract")


def item_of(value: Instance, evaluator: Evaluator) -> FunctionRef | None:
    """The method that reads a sample: that of a dataset of graphs, whose library has the other one, is ``get``."""
    item = evaluator.method(value, "__getitem__")
    return item or (evaluator.method(value, "get") if evaluator.gives_itself(value, "index_select") else None)


class SampleBody:
    """What ``__getitem__`` does, with the methods and functions of the project that it calls."""

    def __init__(self, evaluator: Evaluator, instance: Instance, start: FunctionRef | None) -> None:
        self.evaluator = evaluator
        self.instance = instance
        self._flags = evaluator.project.shared(Flags)
        self.attributes: set[str] = set()
        self.reads_files = False
        self.works = False
        self.draws = False  # random numbers, an order or a choice: less work than a process costs
        self.unknown = False  # something is called of which nobody can say what it does
        self.stores: list[tuple[Effect, Module, Scope]] = []
        self._seen: set[Scope] = set()
        if start is not None:
            self._visit(start, 0)

    @cached_property
    def scopes(self) -> set[Scope]:
        """Functions that run for a sample."""
        return set(self._seen)

    def _visit(self, function: FunctionRef, depth: int) -> None:
        scope = function.scope
        if scope in self._seen or depth > 3:  # noqa: PLR2004 - deeper is another story
            return
        self._seen.add(scope)
        this = names.self_name(scope)
        for node in scope.nodes():
            if is_attribute_of(node, this):
                if node.attr.value not in self.attributes and not self._flags.rule_out(node, function, self.instance):
                    self.attributes.add(node.attr.value)
                    getter = self.evaluator.method(function.this or self.instance, node.attr.value)
                    if getter is not None and names.is_property(getter.scope):
                        self._visit(getter, depth + 1)
            elif isinstance(node, cst.Call):
                self._called(node, function, this, depth)

    def _called(self, node: cst.Call, function: FunctionRef, this: str | None, depth: int) -> None:
        name = names.last_name(node.func)
        base = node.func.value if isinstance(node.func, cst.Attribute) else None
        own = self.evaluator.own_methods(node, function, function.this or self.instance)  # what a sample is read with has methods of its own
        for method in own:
            for one in self.evaluator.filled_in(method, method.scope.name):
                self._visit(one, depth + 1)
        if own:
            return
        if isinstance(base, cst.Name) and base.value == this:
            if self._flags.lacks((function.this or self.instance).cls, name):
                return  # a method of other classes that derive from the one that calls it
            # A callable that somebody gave the dataset: a transform, a tokenizer, a loader of files.
            lowered = name.lower()
            if "load" in lowered or "read" in lowered:
                self.reads_files = True
            else:
                self.works = True
            return
        frame = self.evaluator.calls.plain_frame(function.module, function.scope)
        for alt in self.evaluator.values(node.func, frame)[:2]:
            if isinstance(alt.value, FunctionRef) and alt.value.scope not in self._seen:
                self._visit(alt.value, depth + 1)
                return
        if reads_file(node, frame, self.evaluator):
            self.reads_files = self.reads_files or not _replaces_held(node, function, this)
            return
        if not self._harmless(node, frame):
            self.unknown = True
        if name in _WORKS or any(word in name.lower() for word in _WORDS_OF_WORK):
            self.works = True
        elif name in RANDOM or "random" in name.lower():
            self.draws = True

    def _harmless(self, node: cst.Call, frame: Frame) -> bool:
        """Whether a call is of a library that reads no files, or a method of a plain value."""
        for alt in self.evaluator.values(node.func, frame)[:2]:
            value = alt.value
            if isinstance(value, External) and value.name.partition(".")[0] not in _QUIET:
                return False
            if isinstance(value, Unknown) and isinstance(node.func, cst.Name):
                return False
        return True


def _replaces_held(node: cst.Call, function: FunctionRef, this: str | None) -> bool:
    """Whether a read stands in for a part of what the dataset holds that is not as it should be: ``if not row.any(): row = np.load(path)``."""
    walk, scope = function.module.walk, function.scope
    statement = walk.statement_of(node)
    targets = [one.target.value for one in statement.targets if isinstance(one.target, cst.Name)] if isinstance(statement, cst.Assign) else []
    for name in targets:
        parts = [effect.value for effect in scope.effects.get(name, ()) if effect.kind == "assign" and isinstance(effect.value, cst.Subscript)]
        tested = any(uses_name(test, (name,)) for test, _ in path_conditions(walk, scope, node))
        if tested and any(is_attribute_of(part.value, this) for part in parts):
            return True
    return False


def reads_file(call: cst.Call, frame: Frame, evaluator: Evaluator) -> bool:
    """Whether a call reads or opens a file."""
    if names.last_name(call.func) in _READS_FILE:
        return True
    return any(isinstance(alt.value, External) and known_read(alt.value.name) is not None for alt in evaluator.values(call.func, frame)[:2])
