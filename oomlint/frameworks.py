"""What training frameworks call by themselves, and what code calls of them: their hooks, steps, trainers and backward calls. Each fact once, for all rooms.

Lightning's hooks: https://lightning.ai/docs/pytorch/stable/common/lightning_module.html#hooks. Those of `transformers.Trainer`: its methods `training_step` and
`compute_loss`.
"""

from __future__ import annotations

import re
from typing import Final

from oomlint.patterns import pattern

# A backward pass: of a tensor, an accelerator, an engine; and of Lightning's manual optimization.
BACKWARDS: Final = frozenset({"backward", "manual_backward"})
# What gradients are computed by.
DIFFERENTIATES: Final = BACKWARDS | {"grad"}
# What an optimizer steps by. A scheduler has a `step`, too.
STEPS: Final = BACKWARDS | {"step"}
# What is called `step` without being a scheduler, by a word of its name.
STEPPED: Final = pattern(r"optim|scaler|trainer|(^|[._])opt(_\w+)?$|engine|accelerator", re.IGNORECASE)

# Methods whose result a framework goes backward from: of Lightning's modules and of the trainer of transformers.
LOSS_METHODS: Final = frozenset({"training_step", "compute_loss"})
TRAINING_STEP: Final = "training_step"
# The steps of a Lightning module, by what their names begin with, and the stage that the trainer names.
STAGES: Final = {"training": "train", "train": "train", "validation": "validation", "test": "test", "predict": "predict"}
STEP_METHODS: Final = ("training_step", "validation_step", "test_step", "predict_step")
# What Lightning calls for each batch, of a module or of a callback.
BATCH_HOOK: Final = pattern(
    r"^(training|validation|test|predict)_step$|^on_(train|validation|test|predict)_batch_(start|end)$|^(training|validation|test)_step_end$"
)
# Of these, the ones of a fit: what they leave behind grows with the training.
FIT_HOOK: Final = pattern(r"^(training|validation)_step$|^on_(train|validation)_batch_(start|end)$")
# What it calls while gradients are off.
EVALUATION_HOOK: Final = pattern(r"^(validation|test|predict)_step$|^(on_)?(validation|test|predict|sanity_check)_|^(validation|test)_(step|epoch)_end$")
# What it calls once, before the first batch.
START_HOOKS: Final = frozenset("__init__ setup prepare_data configure_optimizers configure_model on_fit_start __setstate__ on_train_start".split())
# Methods of a training, by their names, as opposed to those of an evaluation.
TRAINING_METHOD: Final = pattern(r"^(on_)?train|^compute_loss$")

# Classes: modules and trainers.
LIGHTNING_MODULE: Final = "pytorch_lightning.LightningModule"
LIGHTNING_TRAINER: Final = "pytorch_lightning.Trainer"
HUGGING_FACE_TRAINERS: Final = frozenset({"transformers.Trainer", "transformers.Seq2SeqTrainer", "transformers.trainer.Trainer", "trl.SFTTrainer"})
# Libraries that go through the batches by themselves, and the methods that make them do it.
RUNS_TRAINING: Final = pattern(r"^(lightning|pytorch_lightning|transformers|accelerate|ignite|fastai|skorch|catalyst|mmengine|mmcv|deepspeed)\.")
RUNS: Final = frozenset("fit fit_one_cycle train run validate test predict evaluate train_batch".split())
FITS: Final = frozenset({"fit", "train"})  # of these, the ones that go backward
# Those that call methods of classes that derive from theirs.
CALLS_BACK: Final = pattern(r"^(torch|lightning|pytorch_lightning|transformers|ignite)\.")
# Libraries of modules and tensors of torch: a file that imports one of them may run a model.
LIBRARIES: Final = frozenset("torch pytorch_lightning lightning transformers torchvision accelerate torch_geometric timm monai fairseq dgl".split())

# Datasets of torch_geometric whose data is in memory by definition: `collate` makes one graph of a list of all.
IN_MEMORY_DATASETS: Final = ("torch_geometric.data.InMemoryDataset", "torch_geometric.data.in_memory_dataset.InMemoryDataset")

# Objects that give back the models, optimizers and loaders that they are handed, made ready for a device and for ranks; and the methods that do.
# Source: `prepare*` of accelerate's `Accelerator`, `setup*` of Lightning's `Fabric`.
PREPARERS: Final = {
    "accelerate.Accelerator": frozenset("prepare prepare_data_loader prepare_model prepare_optimizer prepare_scheduler".split()),
    **dict.fromkeys(("lightning.Fabric", "lightning.fabric.Fabric"), frozenset("setup setup_dataloaders setup_module setup_optimizers".split())),
}
PREPARES: Final = frozenset().union(*PREPARERS.values())
# Libraries of servers, whose objects have functions called for each request: `@router.post("/batch")`.
SERVERS: Final = ("fastapi.", "flask.", "starlette.", "quart.", "sanic.", "bottle.", "aiohttp.web.", "litestar.")
