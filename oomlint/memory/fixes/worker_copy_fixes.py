"""Fixes for what workers copy: each changes what the dataset holds, so that it can be shared, or takes the workers away."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.api_names import NEEDS_WORKERS
from oomlint.finding import Fix, Safety
from oomlint.memory.datasets.worker_copies import cases
from oomlint.memory.fixes.lazy_property import lazily_opened
from oomlint.memory.fixes.list_to_array import NUMBERS, TENSORS, at_once, of_one_shape
from oomlint.memory.fixes.shared_memory import shared
from oomlint.memory.loaders.loader_calls import loaders_of
from oomlint.memory.shared.content_kinds import Form, PayloadKind
from oomlint.model import names
from oomlint.model.commands import number_edit
from oomlint.model.options import OptionSource
from oomlint.model.readings import FOUND, finder
from oomlint.syntax.edits import is_cheap_path, replace
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Callable

    from oomlint.memory.datasets.worker_copies import CopyCase
    from oomlint.memory.shared.content_kinds import Content
    from oomlint.model.project import Module

_PACK = Fix(Safety.DISPLAY, "pack the records into one byte buffer with an array of offsets, which workers share")
# An array of strings has the room of the longest for each of them, four bytes a character: of texts it may be larger than the list.
_PACK_TEXTS = Fix(
    Safety.DISPLAY, "pack the strings into one byte buffer with an array of offsets, which workers share (`np.array` would pad each to the longest)"
)
_NUMBERS = Fix(Safety.DISPLAY, "store the numbers in one NumPy array, which workers share")
_ROWS_OF_NUMBERS = Fix(Safety.DISPLAY, "store the numbers in one NumPy array, which workers share, with an array of offsets where rows differ in length")
_SEQUENCES = frozenset({Form.LIST, Form.TUPLE})
FEWER = "set `num_workers=0`, or fewer than now if samples take long to make"
_STACK = Fix(Safety.DISPLAY, "store one tensor: `torch.stack` for equal shapes, else `torch.cat` with an array of offsets")


def _value(case: CopyCase) -> cst.BaseExpression | None:
    """The expression that is put on the dataset, where it is the whole container and not an empty one that is filled later."""
    effect = case.holding.effect
    if effect is None or effect.kind != "assign" or effect.index or not isinstance(effect.value, cst.Call | cst.ListComp):
        return None
    return effect.value


def as_array(case: CopyCase) -> Fix | None:
    """OOM110: a list proven to hold numbers becomes one array."""
    content = case.holding.content
    if content.kind is PayloadKind.PATHS:
        return None
    if content.strings:
        return _PACK_TEXTS
    value, advice = _value(case), _packed(content)
    if value is None or not content.numbers or content.form is not Form.LIST:
        return advice
    # With many workers over what is then one array in memory, the next thing to say would be OOM114.
    few = isinstance(case.workers.const, int) and case.workers.const < case.loader.module.project.settings.workers_over_memory
    if not few and not case.dataset.opens_files:
        return advice
    return at_once(case.holding, value, NUMBERS) or advice


def _packed(content: Content) -> Fix:
    """What workers share in place of a container: one array where it is a sequence of numbers, or of rows of numbers."""
    if content.form not in _SEQUENCES:
        return _PACK
    row = content.element
    if row is not None and row.form in _SEQUENCES and row.numbers:
        return _ROWS_OF_NUMBERS
    return _NUMBERS if content.numbers else _PACK


def mapped_or_tensor(case: CopyCase) -> Fix | None:
    """OOM112: a memory map is opened in each process; an array is kept as a tensor, which goes to shared memory once."""
    if case.holding.content.kind is PayloadKind.MEMMAP:
        copied = [h for h in case.dataset.every() if h.content.kind in {PayloadKind.ARRAY, PayloadKind.ARRAYS}]
        return lazily_opened(case.holding, case.holding.module) if not copied else None  # with a `__getstate__`, nobody would see what is still copied
    # With one of them left, the finding would stay.
    arrays = [h for h in case.dataset.every() if h.read and h.content.kind in {PayloadKind.ARRAY, PayloadKind.ARRAYS}]
    return shared(arrays) if arrays and all(h.content.kind is PayloadKind.ARRAY for h in arrays) else None


def stacked(case: CopyCase) -> Fix | None:
    """OOM113: the list becomes one tensor, with one file descriptor."""
    value = _value(case)
    if value is None or not isinstance(value, cst.ListComp):
        return None
    return (at_once(case.holding, value, TENSORS) if of_one_shape(case, value) else None) or _STACK


def no_workers(case: CopyCase) -> Fix | None:
    """OOM114: the literal that the worker count comes from becomes 0."""
    written = case.loader.explicit("num_workers")
    if case.given and written is not None:
        return _told_none(case, written)
    last = case.workers.story[-1] if case.workers.story else None
    if written is not None and not is_cheap_path(written.value):
        module, node = case.loader.module, written.value  # a literal, or something worked out on the spot
    elif last is not None and last.module is not None and isinstance(last.node, cst.Integer) and last.node.evaluated_value == case.workers.const:
        module, node = last.module, last.node
    else:
        return None
    if not _for_it_alone(case, node, module) or _needs_workers(case):
        return _by_hand(case)
    edits = [number_edit(module.project, place, "0") for place in case.also]
    known = [edit for edit in edits if edit is not None]
    if len(known) != len(edits):
        return _by_hand(case)  # a command line would still ask for some
    return Fix(Safety.UNSAFE, "set `num_workers=0`, since nothing is left to load", (replace(module.tree, node, "0"), *known))


def _told_none(case: CopyCase, written: cst.Arg) -> Fix | None:
    """The same where files beside the code give the number."""
    project, steps = case.loader.module.project, case.workers.story
    words = {names.last_name(written.value)}
    for step in steps:
        if isinstance(step.node, cst.Call) and step.kind == "option":
            words |= {flag.lstrip("-").replace("-", "_") for flag in OptionSource.flags(step.node) if flag.startswith("--")}
    edits = [number_edit(project, place, "0") for place in case.given]
    direct = all(step.kind in {"shell", "option", "settings"} for step in steps) and isinstance(written.value, cst.Name | cst.Attribute)
    keyed = re.compile(rb"[\"'](?:" + b"|".join(re.escape(word.encode()) for word in sorted(words)) + rb")[\"']")
    direct = direct and not any(keyed.search(project.text(path)) for path in project.search(_names, sorted(words), case.loader.module.path))
    if not direct or _needs_workers(case) or not _read_for_it_alone(case, case.loader.module, words, lambda one: set(one.given) == set(case.given)):
        return _by_hand(case)
    known = tuple(edit for edit in edits if edit is not None)
    return Fix(Safety.UNSAFE, "set no workers, since nothing is left to load", known) if len(known) == len(edits) else _by_hand(case)


def _by_hand(case: CopyCase) -> Fix:
    """What to do where no literal can be changed."""
    given = _given(case)
    return Fix(Safety.DISPLAY, f"{FEWER}, and with 0 remove {' and '.join(f'`{name}`' for name in given)}" if given else FEWER)


def _given(case: CopyCase) -> list[str]:
    """The arguments that a loader without workers does not take."""
    return [name for name in sorted(NEEDS_WORKERS) if case.loader.explicit(name) is not None]


def _needs_workers(case: CopyCase) -> bool:
    return bool(case.loader.stars) or bool(_given(case))


def _for_it_alone(case: CopyCase, literal: cst.CSTNode, home: Module) -> bool:
    """Whether the literal counts the workers of such loaders and nothing else: what has a name may be read by others, and divided by."""
    holder = home.walk.parents.get(literal)
    if isinstance(holder, cst.Arg) and home.walk.parents.get(holder) is case.loader.call:
        return True
    written = case.loader.explicit("num_workers")
    if written is None:
        return False
    words = {names.last_name(written.value)}

    def same(one: CopyCase) -> bool:
        return bool(one.workers.story) and one.workers.story[-1].node is literal

    scope = case.loader.module.walk.scope_at(case.loader.call)
    passed = isinstance(holder, cst.Arg) and [step.kind for step in case.workers.story] in (["argument", "constant"], ["constant"])
    if (passed or (isinstance(holder, cst.Param) and holder in names.parameters(scope))) and words <= set(names.parameter_names(scope)):
        return _counts_only(case.loader.module, scope.node, words, case, same)  # a parameter is read in its function alone
    match holder:
        case cst.Param(name=cst.Name(value=name)) | cst.Arg(keyword=cst.Name(value=name)) | cst.AnnAssign(target=cst.Name(value=name)):
            words.add(name)
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name() | cst.Attribute() as target)]):
            words.add(names.last_name(target))
    return _read_for_it_alone(case, home, words, same)


def _read_for_it_alone(case: CopyCase, home: Module, words: set[str], same: Callable[[CopyCase], bool]) -> bool:
    """Whether what goes by these names counts the workers of such loaders, of those that have the ``same`` number, and nothing else."""
    project = case.loader.module.project
    for path in project.search(_names, sorted(words - {"default"}), home.path):
        if _meet(home, case.loader.module, path):
            module = project.find(path)
            if module is not None and not _counts_only(module, module.tree.module, words, case, same):
                return False
    return True


def _meet(home: Module, user: Module, path: str) -> bool:
    """Whether a file may have to do with what one file sets and another one reads: it is one of the two, or one of them and it speak of each other."""
    if path in {home.path, user.path}:
        return True
    own, text = _stem(path), home.project.raw(path)
    return any(_speaks(other.source.text.encode(), own) or _speaks(text, _stem(other.path)) for other in (home, user))


def _stem(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.basename(folder) if name == "__init__.py" else os.path.splitext(name)[0]


def _speaks(text: bytes, name: str) -> bool:
    return re.search(rb"(?<!\w)" + re.escape(os.fsencode(name)) + rb"(?!\w)", text) is not None


def _counts_only(module: Module, within: cst.CSTNode, words: set[str], case: CopyCase, same: Callable[[CopyCase], bool]) -> bool:
    """Whether what goes by these names is read there only to tell such loaders how many workers they have."""
    alike = [one for one in cases(module, module.project, "OOM114") if same(one)]
    told = {arg for one in (*alike, case) if (arg := one.loader.explicit("num_workers")) is not None}
    loaders = {loader.call for loader in loaders_of(module.project).of(module)}
    for node in descend(within):
        if not isinstance(node, cst.Name) or node.value not in words:
            continue
        holder = module.walk.parents.get(node)
        part: cst.CSTNode = node
        if isinstance(holder, cst.Attribute) and holder.attr is node:
            part, holder = holder, module.walk.parents.get(holder)
        if isinstance(holder, cst.Param | cst.AssignTarget | cst.AnnAssign) and getattr(holder, "value", None) is not part:
            continue
        if isinstance(holder, cst.Arg) and (holder.keyword is part or holder in told):
            continue
        if isinstance(holder, cst.Arg) and holder.keyword is not None and holder.keyword.value in words and module.walk.parents.get(holder) not in loaders:
            continue  # passed on under the same name
        return False
    return True


@finder
def _names(path: str, data: bytes, *words: str) -> str:
    """Whether a file has one of the words."""
    del path
    return FOUND if re.search(rb"\b(?:" + b"|".join(map(re.escape, map(str.encode, words))) + rb")\b", data) else ""
