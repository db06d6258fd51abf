"""OOM204 eval-without-no-grad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Consequence, LoopKind, Message, Multiplier, Resource, Role, Safety, Severity, Weighs
from oomlint.measurement import LoopPlan, Measurement, Quantity, Trait
from oomlint.memory.buffers.evaluation import Evaluations
from oomlint.memory.buffers.growth_messages import over
from oomlint.memory.facts import growth_facts, loop_fact
from oomlint.memory.fixes.evaluation_fixes import without_gradients
from oomlint.model.flow_state import flag
from oomlint.rule import Rule
from oomlint.syntax.edits import Text
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding, Place
    from oomlint.model.events import Forward, Loop
    from oomlint.model.project import Module, Project

_MOST_PLACES: Final = 6  # of the passes of a round, and the calls that lead to them


_WAITS: Final = "each step stores activations for a backward that never runs"
_BESIDE: Final = "its activations stay in memory beside those of the pass that is trained"
_MODE: Final = "even after `.eval()`"
_EACH: Final = Weighs(Consequence.ONCE, Resource.GRAPH)  # its graph goes when the next step begins


class EvalWithoutNoGrad(Rule):
    """An evaluation builds graphs that nothing uses.

    ## What it does

    Checks for a loop over a loader that evaluates a model in grad mode: the function calls `.eval()`, or it or its loader is named after validation,
    test, inference or prediction; the model, or a method of it that takes the batch, runs in the loop; and no `backward()` and no optimizer is in it. A
    loop that asks an object for a batch in each round (`loader.get_batch(split)`) goes over batches, too, and so does a comprehension, or a generator
    expression that is gone through at once. A loop over other things (files, patches of an image) counts too where the callers call `.eval()`, or
    nothing in the file goes backward and nobody gets what carries the graph. So does a function that calls `.eval()`, runs the model at once outside of
    its loops (a whole split, a graph) and is called in a loop, also where it trains first: the finding is at the model's call. In
    `for phase in ["train", "val"]` each round is judged by itself.

    In a training loop it is the pass of a network that gets a name with its graph, while nothing of it goes backward: pseudo-labels, the output of a
    teacher, a fake that only the discriminator sees. What is detached in the same expression says nothing: its graph goes at once.

    `torch.no_grad()` and `torch.inference_mode()` are looked for around the loop, in the function, in its decorators, in the model and in all
    callers. An evaluation that needs gradients says nothing: attacks, saliency maps, adaptation at test time, forces as derivatives of an
    energy. Neither do the steps of Lightning and the like, where the framework turns gradients off, and a network that is frozen: by a loop over
    its parameters, by `requires_grad_(False)`, by its own constructor, or by the function that loads it. Nor does a loop that calls `.numpy()` of
    what the passes give, which raises an error in grad mode, and a single layer beside a network that runs without gradients.

    ## Why is this bad

    In grad mode each forward pass keeps its activations for a `backward()` that does not come. The peak of one forward was 24.9 MiB, against
    3.8 MiB under `no_grad`. `model.eval()` changes nothing there: 24.9 MiB with it alone (measured with torch 2.13.0).

    By itself this does not grow: the activations go with the batch. It is an error where the same loop keeps something that carries a graph
    (OOM201, OOM202, OOM203, OOM205), because then they stay: what keeps it is a related place, and a finding of its own only where that has a
    safe fix and this has none. It is a note where the loop goes over what somebody types into the command line
    (`nargs="+"`), or over a list that is cut as it grows, as the best of all: a few things, one after the other. So is a pass of one sample
    (`model(x.unsqueeze(0))`, `batch_size=1`) through a network that is known and does not convolve, or an action for an environment, whose graph goes
    before the next one: what it keeps weighs no more than the network. The maps of one picture or volume may weigh more.

    ## Example

    ```python
    import torch
    from torch import nn
    from torch.utils.data import DataLoader


    def evaluate(model, dataset):
        model.eval()
        loader = DataLoader(dataset, batch_size=64)
        correct = 0
        for images, labels in loader:
            logits = model(images)
            correct += (logits.argmax(dim=1) == labels).sum().item()
        return correct / len(dataset)


    def test(dataset):
        model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
        model.load_state_dict(torch.load("classifier.pt"))
        return evaluate(model, dataset)
    ```

    ## Use instead

    ```python
    import torch
    from torch import nn
    from torch.utils.data import DataLoader


    @torch.no_grad()
    def evaluate(model, dataset):
        model.eval()
        loader = DataLoader(dataset, batch_size=64)
        correct = 0
        for images, labels in loader:
            logits = model(images)
            correct += (logits.argmax(dim=1) == labels).sum().item()
        return correct / len(dataset)


    def test(dataset):
        model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
        model.load_state_dict(torch.load("classifier.pt"))
        return evaluate(model, dataset)
    ```

    ## Fix safety

    `@torch.no_grad()` is put on the function where all of it is evaluation. Else the loop is put under `with torch.no_grad():`. Both are safe
    where the model is known and nothing in the loop asks for gradients: the numbers are the same. They are unsafe where the model is not
    known, because its `forward` might differentiate something itself. Where the loop computes gradients beside, for a saliency map, only the
    forward pass is put under it.

    `torch.inference_mode()` is not what the fix writes: its tensors raise when they are changed in place or used in a graph later.

    ## References

    - [PyTorch FAQ: my model reports out of memory](https://docs.pytorch.org/docs/stable/notes/faq.html)
    - [torch.no_grad](https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html)
    """

    code = "OOM204"
    slug = "eval-without-no-grad"
    severity = Severity.ERROR
    lower = (Severity.WARNING, Severity.NOTE)
    fixable = Safety.SAFE
    help = "run the evaluation under `torch.no_grad()` or `torch.inference_mode()`"
    weighs = Weighs(Consequence.GROWS, Resource.GRAPH, (Multiplier.STEPS,))
    measured_as = Measurement(
        loop=LoopPlan(ends=(Quantity.SAVED_BYTES,), also=(Quantity.NODES, Quantity.STORAGES)),
        traits=frozenset({Trait.EVALUATES, Trait.OTHER_KERNELS, Trait.SAVES, Trait.RECORDS_GRAPH}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the evaluation loops that record a graph for nothing."""
        for found in project.shared(Evaluations).of(module):
            loop = found.loop
            model = found.forwards[0].name
            what = f"in `while {over(loop)}`" if isinstance(loop.node, cst.While) else f"of `{over(loop)}`"
            how = "what the loop stores keeps the activations of every step" if found.keeps_graph else _WAITS
            if all(forward.evaluating for forward in found.forwards):
                how += f", {_MODE}"
            message = Message(f"Evaluation {what} runs `{model}` without `torch.no_grad()`", how)
            text = Text(module.tree)
            node = loop.node
            header = node.iter if isinstance(node, cst.For | cst.CompFor) else node.test if isinstance(node, cst.While) else node.name
            place = text.place(text.span(node)[0], text.span(header)[1])
            places = (place for forward in found.forwards for place in _way_to(forward, loop, module))
            related = list(dict.fromkeys((*_not_heard(loop, module), *places)))[:_MOST_PLACES]
            severity = Severity.ERROR if found.keeps_graph else Severity.NOTE if found.few else Severity.WARNING
            facts = [loop_fact(module, node, LoopKind.BATCH, loop.name, related), *(fact for growth in found.growths for fact in growth_facts(growth)[1:])]
            fix = without_gradients(found, module, project)
            weighs = None if found.keeps_graph else _EACH
            yield self.finding(place, message, severity=severity, confidence=found.confidence, related=related, fix=fix, facts=facts, weighs=weighs)
        evaluations = project.shared(Evaluations)
        for one in (*evaluations.at_once(module), *evaluations.between_steps(module), *evaluations.beside_steps(module)):
            message = Message(f"Evaluation runs `{one.forward.name}` without `torch.no_grad()`", f"{_WAITS}, {_MODE}")
            if one.training:
                message = Message(f"A pass of `{one.forward.name}` that never goes backward runs without `torch.no_grad()`", _BESIDE)
            facts = [loop_fact(one.caller, one.loop)]
            place, related = module.place(one.forward.node), [one.call] if one.call is not None else []
            related += [module.place(other.node).saying("so does this pass", Role.AGAIN) for other in one.others]
            severity = Severity.NOTE if one.few else Severity.WARNING
            yield self.finding(place, message, severity=severity, confidence=one.confidence, related=related, facts=facts, weighs=_EACH)


def _not_heard(loop: Loop, module: Module) -> Iterator[Place]:
    """Where a loop asks for no graph in a way that torch has not heard since 0.4."""
    for node in descend(loop.repeated, into_scopes=False):
        if isinstance(node, cst.Call) and flag(node, "volatile"):
            yield module.place(node, "`volatile=True` has had no effect since PyTorch 0.4")


def _way_to(forward: Forward, loop: Loop, module: Module) -> Iterator[Place]:
    """The forward pass of a round, and the calls that lead from the loop to it, as far as they stand in the file."""
    if forward.module is module:
        yield module.place(forward.node, "the forward pass")
    for via in forward.via[len(loop.via) :]:
        if via.module is module:
            yield module.place(via.call, "leads to the forward pass")
