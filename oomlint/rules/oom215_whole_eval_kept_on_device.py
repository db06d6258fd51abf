"""OOM215 whole-eval-kept-on-device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Fix, Message, Multiplier, Resource, Role, Safety, Severity, StoreFact, StoreKind, Weighs
from oomlint.measurement import HELD, CallCheck, Measurement
from oomlint.memory.buffers.trainer_outputs import discarded_predictions, whole_evaluations
from oomlint.memory.fixes.add_argument import added_argument
from oomlint.model.test_suites import holds_tests
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_ADVICE = Fix(Safety.DISPLAY, "reduce the logits in `preprocess_logits_for_metrics`, for example to their argmax")


class WholeEvalKeptOnDevice(Rule):
    """A trainer keeps the predictions of the whole evaluation, large ones or ones that nobody takes.

    ## What it does

    Checks for a Hugging Face `Trainer` with `compute_metrics` whose model predicts for each token or pixel (causal and masked language models,
    sequence to sequence without `predict_with_generate`, segmentation), with neither `preprocess_logits_for_metrics` nor
    `eval_accumulation_steps` nor `batch_eval_metrics`.

    Checks as well for `trainer.predict(...)` of a Lightning trainer whose result is not used, once for each function. A `predict_step` that returns
    nothing leaves nothing to keep, and for a writer with `write_on_epoch_end` the trainer keeps the predictions anyway.

    Models that predict one class for a sample say nothing, nor do models and arguments that are not known.

    ## Why is this bad

    With `compute_metrics` the trainer keeps all logits on the device until the evaluation ends: samples x tokens x vocabulary.
    `eval_accumulation_steps` moves them to the host's memory, where they are as many. `preprocess_logits_for_metrics` makes them small before
    they are kept.

    `trainer.predict` keeps all predictions to return them: 4.7 MiB in a small test, and nothing with `return_predictions=False` (measured
    with torch 2.13.0).

    ## Example

    ```python
    import lightning as L


    def export(model, loader, writer):
        trainer = L.Trainer(callbacks=[writer], logger=False)
        trainer.predict(model, loader)
    ```

    ## Use instead

    ```python
    import lightning as L


    def export(model, loader, writer):
        trainer = L.Trainer(callbacks=[writer], logger=False)
        trainer.predict(model, loader, return_predictions=False)
    ```

    ## Fix safety

    `return_predictions=False` is safe where the result of the call is dropped and no file of the project looks into the trainer's
    `predict_loop`: callbacks that write predictions get them as before. What to do with the logits is only shown.

    ## References

    - [huggingface/transformers#12878](https://github.com/huggingface/transformers/issues/12878)
    - [huggingface/transformers#15466](https://github.com/huggingface/transformers/issues/15466)
    - [huggingface/transformers#18947](https://github.com/huggingface/transformers/issues/18947)
    - [huggingface/transformers#25313](https://github.com/huggingface/transformers/issues/25313)
    """

    code = "OOM215"
    slug = "whole-eval-kept-on-device"
    severity = Severity.WARNING
    fixable = Safety.SAFE
    weighs = Weighs(Consequence.MULTIPLIED, Resource.TENSORS, (Multiplier.STEPS,))
    measured_as = Measurement(loop=HELD, call=CallCheck.PREDICT)

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the trainers that keep the predictions of a whole evaluation."""
        yield from (self.tell(one, _ADVICE) for one in whole_evaluations(module, project))
        told: dict[Scope, list[cst.Call]] = {}
        for call, scope in discarded_predictions(module, project) if not holds_tests(module) else ():
            told.setdefault(scope, []).append(call)
        for call, *others in told.values():
            message = Message("`predict` returns all predictions, and nothing uses them", "they stay in memory until the last batch is through")
            edits = tuple(added_argument(module, one, "return_predictions=False") for one in (call, *others))
            fix = Fix(Safety.SAFE, "pass `return_predictions=False`", edits)
            facts = [StoreFact(module.place(call), "predictions", StoreKind.WHOLE)]
            related = [module.place(one).saying("here, too", Role.AGAIN) for one in others]
            yield self.finding(module.place(call), message, related=related, fix=fix, facts=facts)
