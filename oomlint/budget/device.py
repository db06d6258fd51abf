"""The rows of what is trained: parameters, gradients, what the optimizer keeps, the batch; on the device, or in the main process where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.budget.costs import FLOAT
from oomlint.budget.nouns import GRADIENTS, PARAMETERS, STATE, Certainty, Moment, activations_of
from oomlint.budget.row import DEVICE, MAIN_PROCESS, Row, active
from oomlint.budget.sizes import SizeProduct
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
        yield from _of(model, setup.ranks)
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
                SizeProduct((block(batch * sample),)),
                Certainty.AT_LEAST,
                loader.place,
                moments,
                number,
            )


def _of(model: Trained, ranks: int) -> Iterator[Row]:
    count, name = model.counted, f"`{model.name}`"
    lies = DEVICE if model.on_device else MAIN_PROCESS
    each = (
        ("parameters", PARAMETERS, 1, _ALL),
        ("gradients", GRADIENTS, 1 if model.optimizer else 0, _STEPS),
        (f"state of {model.optimizer}", STATE, model.state, _STEPS),
        ("a copy in float32", STATE, 1 if model.master else 0, _ALL),
        ("copies", PARAMETERS, model.copies, _ALL),
        ("copies on the host", PARAMETERS, model.host_copies, _ALL),
    )
    for what, part, times, moments in each:
        on_host = part in model.on_host or what == "copies on the host"
        item = FLOAT if model.master and (part == STATE or (part == GRADIENTS and on_host)) else model.item  # DeepSpeed adds up on the host in four bytes
        shared = part in model.sharded and ranks > 1
        # Shards are filled up, and what is offloaded has buffers beside it.
        known = Certainty.AT_LEAST if count.missing or shared or (model.master and on_host) else Certainty.EXACT
        fewer = (model.frozen and moments is _STEPS) or (what.startswith("copies") and not model.copied)
        certain = Certainty.AT_MOST if fewer and known is Certainty.EXACT else known
        more = (*((times,) if times != 1 else ()), *((1 / ranks,) if shared else ()))
        where = MAIN_PROCESS if on_host else lies
        if times != 0 and count.numbers:
            yield Row(where, f"{what} of {name}", SizeProduct((*more, count.numbers, item)), certain, model.place, moments)
        for one in count.missing if times != 0 else ():
            yield Row(where, f"{what} of {name}, in part", SizeProduct((*more, one, item)), Certainty.EXACT, model.place, moments)
    if count.kept:
        certain = Certainty.AT_LEAST if model.item >= FLOAT else Certainty.AT_MOST  # those of numbers with a fraction are cast, too
        yield Row(lies, f"buffers of {name}", SizeProduct((count.kept,)), certain, model.place, _ALL)
    saved = MAIN_PROCESS if model.saved_on_host else lies
    what = f"activations of {name}{', saved on the host' if model.saved_on_host else ''}"
    yield Row(saved, what, SizeProduct((activations_of(model),)), Certainty.EXACT, model.place, _TRAINS)
