"""Epochs and steps of a Hugging Face trainer on the timeline: ``Trainer(..., callbacks=[TraceCallback()])``."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback  # type: ignore[import-not-found]

from oomlint.trace.marks import watch


class TraceCallback(TrainerCallback):  # type: ignore[misc]
    """Marks epochs and steps for `oomlint trace`; without it, does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._marks = watch()

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        """An epoch begins."""
        self._marks.epoch()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """A step is done: an update of the weights, whatever it accumulates."""
        self._marks.step()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Write what is left."""
        self._marks.close()
