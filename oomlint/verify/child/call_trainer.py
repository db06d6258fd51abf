"""Training arguments of Hugging Face's `transformers`, and the loader that its trainer makes of them."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child import call_run, calls, load
from oomlint.verify.child.call_values import Need

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX: Final = "dataloader_"
_READ: Final = ("num_workers", "persistent_workers", "prefetch_factor", "multiprocessing_context")


def measure(path: str, root: str, plan: Mapping[str, Any], own: str) -> dict[str, Any]:
    """Make the arguments in all configurations, and of each the loader as `Trainer.get_train_dataloader` does; two epochs of it."""
    if importlib.util.find_spec("transformers") is None:
        return {"missing": "transformers", "runs": []}
    loaded = load.load(path, root)
    call_run.processors()  # before the program asks
    waiting: list[dict[str, Any]] = [dict(values) for values in plan["values"]]
    runs: list[dict[str, Any]] = []
    while waiting and len(runs) < calls.MOST:
        known = waiting.pop(0)
        try:
            runs.append({"values": calls.shown(known), "method": None, **_run(loaded.module, plan, own, known)})
        except Need as need:
            if need.text not in known:
                waiting[:0] = [known | {need.text: value} for value in need.domain]
    return {"missing": "", "runs": runs}


def _run(module: Any, plan: Mapping[str, Any], own: str, known: dict[str, Any]) -> dict[str, Any]:
    from torch.utils import data  # noqa: PLC0415 -- the parent imports no torch

    try:
        made = calls.evaluated(module, plan, own, known)
        if made is calls.ELSEWHERE:
            return {"reached": False, "cause": "control does not get there"}
        given: dict[str, Any] = {name: value for name in _READ if (value := getattr(made, _PREFIX + name, None)) is not None}
        workers = given["num_workers"] = min(int(given.get("num_workers", 0)), call_run.WORKERS)
        if not workers:
            given = {name: value for name, value in given.items() if name in ("num_workers", own) and (name != "persistent_workers" or value)}
        samples: Any = call_run.Samples("number")
        call_run.seeded()
        loader = data.DataLoader(samples, call_run.BATCH, shuffle=True, **given)
    except Exception as error:  # noqa: BLE001 -- what the user's program raises is the answer
        return {"reached": True, "built": False, "error": call_run.words(error)}
    return {"reached": True, "built": True, **call_run.observed(loader)}
