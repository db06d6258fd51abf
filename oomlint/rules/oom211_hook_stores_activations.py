"""OOM211 hook-stores-activations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Confidence, Consequence, Fix, Message, Multiplier, Resource, Safety, Severity, StoreFact, Weighs
from oomlint.measurement import HELD, Measurement, Trait
from oomlint.memory.buffers.hooks import hooks_of, registrations, stored_by
from oomlint.memory.buffers.hooks_lifetime import grows, registered_again, registered_by_calls, removed
from oomlint.memory.facts import loop_fact
from oomlint.model import names
from oomlint.model.names import short
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact, Finding
    from oomlint.model.project import Module, Project

_ALL = "all copies of it run, and keep what they refer to"
_CLEAR = Fix(Safety.DISPLAY, "store under the layer's name, clear the container in each round, or call `remove()` on the hook's handle")
_ONCE = Fix(Safety.DISPLAY, "register the hook once before the loop, or call `remove()` on its handle in each round")


class HookStoresActivations(Rule):
    """A hook keeps the activations of every forward pass.

    ## What it does

    Checks for forward and backward hooks that append what they are given to a list from outside, where the model runs in a loop, nothing clears
    the list, and nobody removes the hook; and for hooks that a batch or epoch loop registers again in each round on the same module.

    It says nothing where the hook overwrites an entry by the layer's name, stores numbers or shapes, or runs once; where its handle is removed or
    managed by `with`; where the list is cleared or made again in each round; and for loops over modules.

    ## Why is this bad

    12.7 MiB stayed with every forward pass of a small network. With `detach()` it was still 11.4 MiB: the graph is the smaller part, the activations
    themselves remain (measured with torch 2.13.0). A hook that is registered in each round runs once more in each round than in the one before.

    ## Example

    ```python
    from torch import nn
    from torch.utils.data import DataLoader


    def train(model: nn.Module, dataset, optimizer, criterion):
        activations = []
        model.layer4.register_forward_hook(lambda module, inputs, output: activations.append(output.detach()))
        for x, y in DataLoader(dataset, batch_size=32):
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(activations[-1].abs().mean().item())
    ```

    ## Use instead

    ```python
    from torch import nn
    from torch.utils.data import DataLoader


    def train(model: nn.Module, dataset, optimizer, criterion):
        activations = {}
        model.layer4.register_forward_hook(lambda module, inputs, output: activations.update(layer4=output.detach()))
        for x, y in DataLoader(dataset, batch_size=32):
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(activations["layer4"].abs().mean().item())
    ```

    ## Fix safety

    Advice only: who reads the list decides how much of it is needed.

    ## References

    - [chr5tphr/zennit#13](https://github.com/chr5tphr/zennit/issues/13)
    - [pytorch/pytorch#46386](https://github.com/pytorch/pytorch/issues/46386)
    - [pytorch/pytorch#74831](https://github.com/pytorch/pytorch/issues/74831)
    """

    code = "OOM211"
    slug = "hook-stores-activations"
    severity = Severity.WARNING
    fixable = Safety.DISPLAY
    weighs = Weighs(Consequence.GROWS, Resource.TENSORS, (Multiplier.STEPS,))
    measured_as = Measurement(loop=HELD, traits=frozenset({Trait.BESIDE_LOOP}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the hooks that pile up what they see, and those that pile up themselves."""
        seen: set[cst.CSTNode] = set()
        for call, scope, given in registrations(module):
            if removed(call, module):
                continue
            for hook in hooks_of(given, module, scope, project):
                for stored in stored_by(hook):
                    loop = grows(stored, call, module, scope, project)
                    if loop is None or stored.node in seen:
                        continue
                    seen.add(stored.node)
                    held = ".".join((stored.root, *(str(part) for _, part in stored.path)))
                    passes = "backward" if "backward" in names.last_name(call.func) or names.last_name(call.func) == "register_hook" else "forward"
                    what = short(hook.module.code(stored.value), 40)
                    more = "nothing clears it or removes the hook, so memory grows with every pass"
                    message = Message(f"This hook appends `{what}` to `{held}` in every {passes} pass", more)
                    related = [module.place(call, "the hook is registered here")]
                    confidence = Confidence.MEDIUM if isinstance(loop, cst.ClassDef) else Confidence.HIGH
                    facts: list[Fact] = [StoreFact(hook.module.place(stored.node), held)]
                    facts += [loop_fact(module, loop)] if not isinstance(loop, cst.ClassDef) else []
                    yield self.finding(hook.module.place(stored.node), message, confidence=confidence, related=related, fix=_CLEAR, facts=facts)
            # Runners and trainers have a `register_hook` too; theirs takes objects.
            if names.last_name(call.func) == "register_hook" and not hooks_of(given, module, scope, project):
                continue
            again = registered_again(call, module, scope, project)
            calls = registered_by_calls(call, module, scope, project) if again is None else None
            if again is not None:
                head = again.target if isinstance(again, cst.For) else again.test
                message = Message("Each round registers this hook again and never removes it", _ALL)
                related = [module.place(head, "once for each round of this loop")]
                yield self.finding(module.place(call), message, related=related, fix=_ONCE, facts=[loop_fact(module, again)])
            elif calls is not None:
                message = Message(f"Each call of `{scope.name}` registers this hook again and never removes it", _ALL)
                where, site = calls
                related = [where.place(site, "called here in a loop")]
                loops = [node for node in where.walk.ancestors(site) if isinstance(node, cst.For | cst.While)]
                facts = [loop_fact(where, node) for node in loops[:1]]
                yield self.finding(module.place(call), message, related=related, fix=_ONCE, facts=facts)
