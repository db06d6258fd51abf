"""OOM140 hf-args."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Resource, Safety, Severity, Weighs
from oomlint.measurement import CallCheck, Measurement, Trait
from oomlint.memory.loaders.hf_arguments import contradictions
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class HfArgs(Rule):
    """Hugging Face training arguments ask for worker options without workers.

    ## What it does

    Checks for `TrainingArguments` of `transformers`, and classes derived from it such as `Seq2SeqTrainingArguments`, `SFTConfig` or
    `GRPOConfig`, with `dataloader_persistent_workers=True`, `dataloader_prefetch_factor` or `dataloader_multiprocessing_context` while
    `dataloader_num_workers` is missing, 0, or can be 0.

    ## Why is this bad

    The three fail at three moments (measured with transformers 5.23):

    - `dataloader_prefetch_factor` raises `ValueError` as soon as the arguments are made;
    - `dataloader_persistent_workers=True` is accepted there. The `ValueError` comes from `get_train_dataloader()`, after the model and the
      data were loaded;
    - so it is for `dataloader_multiprocessing_context`.

    `dataloader_num_workers` is 0 by default.

    ## Example

    ```python
    from transformers import Trainer, TrainingArguments


    def finetune(model, dataset):
        args = TrainingArguments(
            output_dir="out",
            per_device_train_batch_size=8,
            dataloader_persistent_workers=True,
            num_train_epochs=3,
        )
        Trainer(model=model, args=args, train_dataset=dataset).train()
    ```

    ## Use instead

    ```python
    from transformers import Trainer, TrainingArguments


    def finetune(model, dataset):
        args = TrainingArguments(
            output_dir="out",
            per_device_train_batch_size=8,
            num_train_epochs=3,
        )
        Trainer(model=model, args=args, train_dataset=dataset).train()
    ```

    ## Fix safety

    Safe: where the number is missing or written as 0 in the call, the argument is removed; where it is a name, an attribute or a constant
    subscript, the guard `> 0` is added, with `None` as the other value of the prefetch factor and the context. Only what raised before
    changes.

    ## References

    - [transformers.TrainingArguments](https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments)
    """

    code = "OOM140"
    slug = "hf-args"
    severity = Severity.ERROR
    lower = (Severity.WARNING,)
    fixable = Safety.SAFE
    help = "set `dataloader_num_workers` above 0, or remove the argument"
    weighs = Weighs(Consequence.CRASHES, Resource.NOTHING)
    measured_as = Measurement(call=CallCheck.TRAINER, error="prefetch|persistent|num_workers", traits=frozenset({Trait.OF_LOADER}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the trainer arguments that ask for worker options without workers."""
        yield from map(self.tell, contradictions(module, project))
