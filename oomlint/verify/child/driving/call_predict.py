"""A prediction by a trainer of Lightning's: what is held from batch to batch, and what its callbacks are given."""

from __future__ import annotations

import importlib
from typing import Any, Final

from oomlint.verify.child.measuring import digests, tensor_census
from oomlint.verify.child.server.exceptions import words

BATCHES: Final = 12
WIDTH: Final = 2**14  # numbers that are predicted for a batch: 64 KiB
_QUIET: Final = dict.fromkeys("logger enable_checkpointing enable_progress_bar enable_model_summary".split(), False)


def measure(options: dict[str, Any]) -> dict[str, Any]:
    """``bytes`` holds how many more bytes of tensors live after each batch than after the one before; ``given`` digests what callbacks see."""
    library: Any = None
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            library = importlib.import_module(name)
            break
        except ImportError:
            continue
    if library is None:
        return {"failed": "`lightning` is not installed in this interpreter"}
    try:
        return {**_predicted(library, options), "failed": ""}
    except Exception as error:  # noqa: BLE001 -- the library raises what it likes
        return {"failed": f"`predict` fails: {words(error)}"}


def _predicted(library: Any, options: dict[str, Any]) -> dict[str, Any]:
    import torch  # noqa: PLC0415 -- the parent imports no torch
    from torch.utils.data import DataLoader  # noqa: PLC0415

    class Model(library.LightningModule):  # type: ignore[misc,unused-ignore]  # the library is that of the user
        def predict_step(self, batch: Any, *_: Any) -> Any:
            return batch.float().repeat(WIDTH // len(batch))

    given: list[str] = []
    with tensor_census.Growth(python=False, saved=False) as growth:

        class Watch(library.Callback):  # type: ignore[misc,unused-ignore]  # the same
            def on_predict_batch_end(self, trainer: Any, model: Any, outputs: Any, *_: Any) -> None:
                del trainer, model
                given.append(digests.digest(outputs))
                growth.step()

        trainer = library.Trainer(accelerator="cpu", devices=1, callbacks=[Watch()], **_QUIET)
        result = trainer.predict(Model(), DataLoader(torch.arange(4 * BATCHES), batch_size=4), **options)
    del result
    return {"bytes": growth.deltas()["storage_bytes"], "given": given}
