"""OOM220 keeps-outputs-on-device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.finding import Confidence, Consequence, Factor, Fix, Message, Multiplier, Resource, Safety, Severity, StoreFact, Weighs
from oomlint.measurement import LoopPlan, Measurement, Quantity, Trait
from oomlint.memory.buffers.buffer_readers import thrown_away
from oomlint.memory.buffers.growth import buffers_of
from oomlint.memory.buffers.growth_messages import advice, loop_of, target_of, told, what_of
from oomlint.memory.buffers.metric_lists import kept_by_metrics
from oomlint.memory.fixes.growth_fixes import fix, on_host, suffixed
from oomlint.model.test_suites import holds_tests
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class KeepsOutputsOnDevice(Rule):
    """The outputs of each step are kept in the memory of the GPU.

    ## What it does

    Checks for a loop over a loader that stores dense outputs of a model on an accelerator beyond the step, without their graph: under
    `torch.no_grad()`, or by `.detach()`. The steps of Lightning are rounds of such a loop: what they keep on the module until the end of the
    epoch, or return for a hook that reads the outputs of the epoch. What the device goes on to compute with (a bank of features) says nothing.
    A batch that goes to the device by a test (`if use_cuda:`) counts as there.

    So does a metric of torchmetrics that keeps what it is given, as a curve without `thresholds` does, where the loop gives it maps: a score for each
    pixel. With `compute_on_cpu=True` the host has them (OOM219).

    So do the states of a class that derives from `torchmetrics.Metric`, where `update` appends the maps that it is given and `compute` moves them to
    the host one by one.

    So does a loop without gradients that makes each state of the one before with a module, as a diffusion makes its images (`img = step(img)`), and
    keeps each on the device: where it goes round 64 times or more. Where it is unknown how often, it is a note. `deque(maxlen=n)` says nothing.

    It is a warning where each sample is known to have an array of two axes or more: a mask, a picture, a sequence. What has one axis (features, scores of
    classes), or of which nobody knows the axes, is a note, as are outputs for what somebody has handed over as one, and for as few rounds as an option
    asks for by its default. Where the loop copies the output to the host and does not take the copy (`output.cpu()` as a statement), it is a warning.

    Scalars, labels, the class of each sample (`argmax`), what is moved to the host first, what is flushed every few batches and the parts of a batch
    that `next(batches)` gave say nothing. Nor does what is written with `json.dump` as it is: JSON takes no tensor, so that none is held. The scores of
    classes, which the loop brings to a scale (`softmax`) or takes the best of, are a note unless they are known to be maps. The place where the list
    becomes one array is reported with it.

    ## Why is this bad

    The memory of the GPU then holds the model, the activations of a step, and the outputs of all steps before it: bytes per output times the
    samples of the loader. The run dies late, in a step that needs no more than the ones before, and a smaller batch does not help. Whatever
    reads the outputs afterwards (NumPy, scikit-learn, a file) needs them on the host anyway.

    ## Example

    ```python
    import numpy as np
    import torch
    from torch.nn.functional import interpolate, mse_loss
    from torch.utils.data import DataLoader


    def train(model, dataset, optimizer, device, epoch):
        loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)
        model.to(device).train()
        depths = []
        for images, targets in loader:
            found = interpolate(model(images.to(device)), (64, 64))
            loss = mse_loss(found, targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            depths.append(found.detach())
        np.save(f"depths-{epoch}.npy", torch.cat(depths).cpu().numpy())
    ```

    ## Use instead

    ```python
    import numpy as np
    import torch
    from torch.nn.functional import interpolate, mse_loss
    from torch.utils.data import DataLoader


    def train(model, dataset, optimizer, device, epoch):
        loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)
        model.to(device).train()
        depths = []
        for images, targets in loader:
            found = interpolate(model(images.to(device)), (64, 64))
            loss = mse_loss(found, targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            depths.append(found.detach().cpu())
        np.save(f"depths-{epoch}.npy", torch.cat(depths).cpu().numpy())
    ```

    ## Fix safety

    `.cpu()` is added to what is stored. Unsafe: what is computed from the list afterwards runs on the host, where sums may round differently,
    and may meet tensors of the other device. The copy waits for the GPU once a step.

    It moves the memory, it does not bound it. Reduce the outputs first where you can, or write them out every few batches.

    ## References

    - [huggingface/transformers#12878](https://github.com/huggingface/transformers/issues/12878)
    """

    code = "OOM220"
    slug = "keeps-outputs-on-device"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.UNSAFE
    help = "move it to the CPU before it is stored, or reduce it first"
    weighs = Weighs(Consequence.MULTIPLIED, Resource.TENSORS, (Multiplier.STEPS,))
    measured_as = Measurement(loop=LoopPlan(ends=(Quantity.DEVICE_BYTES,), also=(Quantity.NODES,), simulated=True), traits=frozenset({Trait.ON_DEVICE}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the statements that keep dense outputs on the accelerator."""
        for growth in buffers_of(project).told_as(self.code, module):
            store = growth.store
            count = growth.facts.get("rounds")
            grows = "memory grows with the number of samples"
            if growth.facts.get("carried"):
                grows = f"at the end it holds {f'{count} states, one' if isinstance(count, int) else 'a state'} for each round"
            copy = thrown_away(store, growth.loop)
            if copy is not None:
                grows += f"; the result of `{store.module.code(copy)}` is unused"
            message = Message(f"`{target_of(store)}` collects `{what_of(store)}` on the device in {loop_of(growth)}", grows, advice(growth))
            # In an evaluation the host would be what grows.
            patch = (
                None
                if growth.facts.get("evaluation") or growth.facts.get("metric")
                else fix(growth, module, self.help, on_host(module), lambda _: Safety.UNSAFE)
            )
            weighs = replace(self.weighs, by=(Factor(Multiplier.STEPS, count),)) if isinstance(count, int) else None
            yield self.tell(told(growth, module, message, weighs), patch)
        for kept in kept_by_metrics(module, project) if not holds_tests(module) else ():
            place = module.place(kept.node)
            given = module.code(kept.given).strip()
            message = Message(f"`self.{kept.state}` collects `{given}` on the device in every update", "`compute` reads it on the host only")
            related = [module.place(kept.read, "here it is brought to the host"), *(module.place(call, "beside it") for call in kept.others)]
            edits = [edit for call in (kept.node, *kept.others) for edit in suffixed(module, call.args[0].value, ".cpu()")]
            patch = Fix(Safety.UNSAFE, self.help, tuple(edits))
            facts = [StoreFact(place, f"self.{kept.state}")]
            yield self.finding(place, message, confidence=Confidence.MEDIUM, related=related, fix=patch, facts=facts)
