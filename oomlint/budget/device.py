"""The rows of what is trained: parameters, gradients, what the optimizer keeps, the batch; on the device, or in the main process where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.budget.costs import FLOAT
from oomlint.budget.nouns import Certainty, Moment, activations_of
from oomlint.budget.row import DEVICE, MAIN_PROCESS, Row, active
from oomlint.budget.sizes import Size
from oomlint.budget.values import BATCH
from oomlint.memory.loaders.pinned_memory import block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.budget.nouns import Program, Trained
    from oomlint.budget.row import Setup

_ALL: Final = frozenset(Moment)
_STEPS: Final = frozenset({Moment.TRAINING, Moment.EVALUATION, Moment.CHECKPOINT})  # gradients and states stay once a step has made them
_TRAINS: Final = frozenset({Moment.TRAINING})


def rows(program: Program, setup: Setup) -> Iterator[Row]:
    """The rows of all models that are trained."""
    for model in program.trained:
        yield from _of(model)
    if not any(model.on_device for model in program.trained):
        return
    for number, loader in enumerate(program.loaders):
        moments = active(loader, program) - {Moment.START}
        batch = setup.setting(BATCH, loader.batch)
        yield Row(DEVICE, f"the batch of `{loader.name}`", loader.sample.times(batch), Certainty.ABOUT, loader.place, moments, number)
        sample = loader.sample.filled(setup.values).value
        if loader.pinned and sample is not None and isinstance(batch, int):
            yield Row(
                MAIN_PROCESS,
                f"a pinned batch of `{loader.name}`, rounded up",
                Size((block(batch * sample),)),
                Certainty.AT_LEAST,
                loader.place,
                moments,
                number,
            )


def _of(model: Trained) -> Iterator[Row]:
    group = DEVICE if model.on_device else MAIN_PROCESS
    count, name = model.counted, f"`{model.name}`"
    known = Certainty.AT_LEAST if count.missing else Certainty.EXACT
    trained = 1 if model.optimizer else 0
    each = (("parameters", 1, _ALL), ("gradients", trained, _STEPS), (f"state of {model.optimizer}", model.state, _STEPS), ("copies", model.copies, _ALL))
    for what, times, moments in each:
        certain = Certainty.AT_MOST if model.frozen and moments is _STEPS and known is Certainty.EXACT else known
        if times != 0 and count.numbers:
            size = Size((count.numbers, FLOAT)) if times == 1 else Size((times, count.numbers, FLOAT))
            yield Row(group, f"{what} of {name}", size, certain, model.place, moments)
        if times != 0:
            for one in count.missing:
                size = Size((one, FLOAT)) if times == 1 else Size((times, one, FLOAT))
                yield Row(group, f"{what} of {name}, in part", size, Certainty.EXACT, model.place, moments)
    if count.kept:
        yield Row(group, f"buffers of {name}", Size((count.kept,)), Certainty.AT_LEAST, model.place, _ALL)
    yield Row(group, f"activations of {name}", Size((activations_of(model),)), Certainty.EXACT, model.place, _TRAINS)
