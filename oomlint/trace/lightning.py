"""Epochs and steps of a Lightning trainer on the timeline: ``Trainer(callbacks=[TraceCallback()])``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oomlint.trace.marks import watch

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback


class TraceCallback(Callback):
    """Marks epochs, steps and validations for `oomlint trace`; without it, does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._marks = watch()
        self._validation: Any = None

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - the hook of Lightning
        """An epoch begins."""
        self._marks.epoch(trainer.current_epoch)

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """A step is done."""
        self._marks.step()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """A validation begins."""
        self._validation = self._marks.phase("validation")
        self._validation.__enter__()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """A validation ends."""
        if self._validation is not None:
            self._validation.__exit__(None, None, None)
            self._validation = None

    def teardown(self, *_: Any, **__: Any) -> None:
        """Write what is left."""
        self._marks.close()
