"""Training arguments of Hugging Face's `transformers` and the loader that its trainer makes of them; a prediction by a trainer of Lightning's."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils import data

from oomlint.verify.child.driving import call_job, loader_runs
from oomlint.verify.child.loading import stubs, tolerant_import
from oomlint.verify.child.measuring import digests, tensor_census
from oomlint.verify.child.server.exceptions import seed, words
from oomlint.verify.child.synthesis.symbolic_sweep import swept

if TYPE_CHECKING:
    from collections.abc import Mapping


BATCHES: Final = 12
WIDTH: Final = 2**14  # numbers that are predicted for a batch: 64 KiB
_QUIET: Final = dict.fromkeys("logger enable_checkpointing enable_progress_bar enable_model_summary".split(), False)
_PREFIX: Final = "dataloader_"
_READ: Final = ("num_workers", "persistent_workers", "prefetch_factor", "multiprocessing_context")


def arguments(path: str, root: str, plan: Mapping[str, Any], own: str) -> dict[str, Any]:
    """Make the arguments in all configurations, and of each the loader as `Trainer.get_train_dataloader` does; two epochs of it.

    Where the library is not installed the call's own arguments stand in for the object that it would make of them. ``missing`` is the library then.
    """
    missing = "" if importlib.util.find_spec("transformers") is not None else "transformers"
    loader_runs.processors()  # before the program asks
    loaded = tolerant_import.load(path, root)
    if missing:
        source = _standing_in(loaded.module, plan["source"])
        if not source:  # a class of the user's may have defaults of its own
            return {"missing": missing, "stood_in": False, "runs": []}
        plan = {**plan, "source": source}
    configurations = islice(swept(plan["values"], lambda known: _run(loaded.module, plan, own, known)), call_job.MOST)
    runs = [{"values": call_job.shown(known), "method": None, **found} for known, found in configurations if found is not None]
    return {"missing": missing, "stood_in": bool(missing), "runs": runs}


def _standing_in(module: Any, source: str) -> str:
    """The cut-out call with a plain namespace in the place of the library's class; empty where another class is called."""
    tree = ast.parse(source)
    last = next((node for node in reversed(list(ast.walk(tree))) if isinstance(node, ast.Return) and isinstance(node.value, ast.Call)), None)
    if last is None or not isinstance(last.value, ast.Call):
        return ""
    try:
        found = eval(ast.unparse(last.value.func), dict(vars(module)))  # noqa: S307 -- the user's own program, in a child that is fenced in
    except Exception:  # noqa: BLE001 -- it is imported inside of the function
        found = None
    if found is not None and not isinstance(found, stubs.Stub):
        return ""
    module.__arguments__ = _arguments
    last.value.func = ast.Name("__arguments__", ast.Load())
    return ast.unparse(ast.fix_missing_locations(tree))


def _arguments(*_: Any, **named: Any) -> SimpleNamespace:
    """As far as loaders go: read from transformers 5.23.0, `Trainer._get_dataloader` hands these five on to the loader as they are.

    Its `TrainingArguments.__post_init__` refuses a prefetch factor without workers, as the loader does.
    """
    return SimpleNamespace(**named)


def _run(module: Any, plan: Mapping[str, Any], own: str, known: dict[str, Any]) -> dict[str, Any]:
    try:
        made = call_job.evaluated(module, plan, own, known)
        if made is call_job.ELSEWHERE:
            return {"reached": False}
        given: dict[str, Any] = {name: value for name in _READ if (value := getattr(made, _PREFIX + name, None)) is not None}
        workers = given["num_workers"] = min(int(given.get("num_workers", 0)), loader_runs.WORKERS)
        if not workers:
            given = {name: value for name, value in given.items() if name in ("num_workers", own) and (name != "persistent_workers" or value)}
        samples: Any = loader_runs.Samples("number")
        seed(loader_runs.SEED)
        loader = data.DataLoader(samples, loader_runs.BATCH, shuffle=True, **given)
    except Exception as error:  # noqa: BLE001 -- what the user's program raises is the answer
        return {"reached": True, "built": False, "error": loader_runs.words(error)}
    return {"reached": True, "built": True, **loader_runs.observed(loader)}


def predictions(options: dict[str, Any]) -> dict[str, Any]:
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
    class Model(library.LightningModule):  # type: ignore[misc,unused-ignore]  # the library is that of the user
        def predict_step(self, batch: Any, *_: Any) -> Any:
            return batch.float().repeat(WIDTH // len(batch))

    given: list[str] = []
    with tensor_census.StepGrowth(python=False, saved=False) as growth:

        class Watch(library.Callback):  # type: ignore[misc,unused-ignore]  # the same
            def on_predict_batch_end(self, trainer: Any, model: Any, outputs: Any, *_: Any) -> None:
                del trainer, model
                given.append(digests.digest(outputs))
                growth.step()

        trainer = library.Trainer(accelerator="cpu", devices=1, callbacks=[Watch()], **_QUIET)
        result = trainer.predict(Model(), data.DataLoader(torch.arange(4 * BATCHES), batch_size=4), **options)
    del result
    return {"bytes": growth.deltas()["storage_bytes"], "given": given}
