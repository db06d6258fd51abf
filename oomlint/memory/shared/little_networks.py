"""Networks of which the code itself says that a pass keeps little: linear layers and tables of known widths, run on a known handful of rows."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.loaders.loader_calls import evaluator_of, loaders_of
from oomlint.memory.shared.loop_kinds import loops_around
from oomlint.memory.shared.one_sample import OneSample
from oomlint.memory.shared.training_loops import rounds
from oomlint.model import arguments
from oomlint.model.torch_tables import PARAMETERLESS, TRAINABLE_FACTORIES
from oomlint.model.values import ClassRef, External, ExternalCall, FunctionRef, Instance, greatest

if TYPE_CHECKING:
    from oomlint.memory.shared.loop_kinds import LoaderLike
    from oomlint.model.events import Forward
    from oomlint.model.project import Project
    from oomlint.model.values import Frame, Value

# How wide is what each of these gives for a row, by the place and the name of an argument.
_WIDTHS: Final = {
    "Linear": (1, "out_features"),
    "Embedding": (1, "embedding_dim"),
    "BatchNorm1d": (0, "num_features"),
    "LayerNorm": (0, "normalized_shape"),
}
_HOLDERS: Final = frozenset({"Module", "Sequential", "ModuleList", "ModuleDict", "Parameter", "Flatten"})
_KEPT: Final = 3  # arrays for each layer: its output, that of what is applied to it, and what it was given
_STEPS: Final = 16  # rows that a sample may have, where nobody knows
_BYTES: Final = 4
_DEEPEST: Final = 3  # modules inside modules


def keeps_little(project: Project, event: Forward, loader: LoaderLike | None = None) -> bool:
    """Whether what a pass keeps for a backward is known to be little, at the batch size that is known of it."""
    if not isinstance(event.node, cst.Call):
        return False
    evaluator = evaluator_of(project)
    made = [alt.value for alt in evaluator.values(event.node.func, evaluator.calls.plain_frame(event.module, event.scope))]
    one = project.shared(OneSample).is_given(event)
    rows = 1 if one else _batch(project, loader) if loader is not None else None
    widths = [_width(project, value, 0) for value in made] if rows is not None else []
    if not widths or rows is None or None in widths:
        return False
    return rows * _STEPS * max(width for width in widths if width is not None) * _KEPT * _BYTES < project.settings.small_bytes


def keeps_one_sample(project: Project, event: Forward, loader: LoaderLike | None = None) -> bool:
    """Whether a pass keeps what one sample costs, and that is no more than the network weighs itself."""
    samples = project.shared(OneSample)
    return (samples.is_given(event) or (loader is not None and _batch(project, loader) == 1)) and not samples.may_be_large(event)


def _batch(project: Project, loader: LoaderLike) -> int | None:
    """The greatest batch that a loader gives, as the code has it; what somebody may set by an option is anything."""
    if loader.loader is None:
        return None
    found = loaders_of(project).argument(loader.loader, "batch_size", loader.frame)
    return greatest(found) if not any(step.kind == "option" for alt in found for step in alt.story) else None


def _width(project: Project, value: Value, depth: int) -> int | None:
    """How many numbers the layers of a network give for a row, all together; ``None`` where one of them is another kind of layer, or its width is not known."""
    if isinstance(value, ExternalCall):
        room, _, last = value.name.rpartition(".")
        return _made_in(project, value.frame, depth) or None if room.startswith("torch.nn") and last in _HOLDERS | _WIDTHS.keys() else None
    evaluator = evaluator_of(project)
    if not isinstance(value, Instance) or depth > _DEEPEST:
        return None
    line = evaluator.lineage(value.cls)
    frame = evaluator.init_frame(value)
    if frame is None or any(isinstance(base, External) and base.name not in {"torch.nn.Module", "builtins.object"} for base in line):
        return None
    own = [base for base in line if isinstance(base, ClassRef) and base.scope.child("__init__") is not None]
    return _made_in(project, frame, depth) or None if len(own) == 1 else None


def _made_in(project: Project, frame: Frame, depth: int) -> int | None:
    """The same of all layers that a function makes: at least those of the network in question."""
    evaluator, total = evaluator_of(project), 0
    for call in frame.scope.calls if depth <= _DEEPEST else ():
        for alt in evaluator.values(call.func, frame)[:2]:
            width: int | None = 0
            match alt.value:
                case ClassRef() if any(isinstance(base, External) and base.name.startswith("torch.nn.") for base in evaluator.lineage(alt.value)):
                    made = evaluator.values(call, frame)
                    width = _width(project, made[0].value, depth + 1) if made else None
                case External():
                    width = _of_layer(project, alt.value.name, call, frame)
                case FunctionRef():  # it may make some
                    width = _made_in(project, evaluator.calls.plain_frame(alt.value.module, alt.value.scope), depth + 1)
            times = _times(project, call, frame) if width else 1
            if width is None or times is None:
                return None
            total += width * times
    return total if depth <= _DEEPEST else None


def _of_layer(project: Project, name: str, call: cst.Call, frame: Frame) -> int | None:
    room, _, last = name.rpartition(".")
    if not room.startswith("torch.nn") or not last[:1].isupper():
        return None if name.startswith(TRAINABLE_FACTORIES) or name == "torch.load" else 0
    if last not in _WIDTHS:
        return 0 if last in _HOLDERS or PARAMETERLESS.search(last) else None
    place, word = _WIDTHS[last]
    node = arguments.argument_for(call, word, place=place)
    return greatest(evaluator_of(project).values(node, frame)) if node is not None else None


def _times(project: Project, call: cst.Call, frame: Frame) -> int | None:
    """How often a function makes a layer."""
    module, scope = frame.module, frame.scope
    around = [*loops_around(call, module, scope), *(here.for_in for here in module.walk.ancestors(call) if isinstance(here, cst.BaseComp))]
    counts = [rounds(project, loop, module, scope, frame) for loop in around]
    return prod(count for count in counts if count is not None) if None not in counts else None
