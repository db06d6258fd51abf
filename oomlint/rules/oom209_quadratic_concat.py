"""OOM209 quadratic-concat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.finding import Confidence, Consequence, Fix, Message, Multiplier, Resource, Role, Safety, Severity, Weighs
from oomlint.measurement import LoopPlan, Measurement, Quantity, Trait
from oomlint.memory.buffers.concatenation import growths
from oomlint.memory.buffers.rejoined import rejoined
from oomlint.memory.facts import concat_facts, rejoin_facts
from oomlint.memory.fixes.concatenation_fixes import as_list
from oomlint.model.test_suites import holds_tests
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from oomlint.finding import Finding
    from oomlint.memory.buffers.concatenation import SelfConcatenation
    from oomlint.memory.buffers.rejoined import Rejoin
    from oomlint.model.project import Module, Project

_BEHIND = Fix(Safety.DISPLAY, "join the parts once, after the loop")


class QuadraticConcat(Rule):
    """An array, a tensor or a table is copied whole in each round of a loop to add a little to it.

    ## What it does

    Checks for `x = torch.cat([x, y])`, `np.append(x, y)`, `np.concatenate`, `vstack`, `hstack` and `pd.concat` with the assigned name, attribute or
    element among the inputs, in a loop over a loader, over epochs or training steps, over the files or scenes of a dataset that a model runs on, or
    in a counted loop of a thousand rounds and more. Other loops of more than ten rounds count where a round adds an array that it reads from a file,
    or takes from a list or dictionary of such, unless that is one of many groups (the objects of a room). Those of which it is unknown how often they
    go round also count where a round adds a window (`x[i : i + width]`), or an array of three and more axes with a row for each of its samples.
    Guards for the first round (`if x is None: x = y`) are seen through. A list that such a loop makes longer, and that each round joins into one
    array again, is the same. So is `np.r_[x, y]`, a table's own `append`, and a method that grows an attribute of its object so, where such a loop
    calls it: the finding stands at the statement, and the call is named beside it.

    It is silent where the loop uses what it grows (a decoder that feeds its output back, a key-value cache), where something bounds or
    empties it (a window, a test of its size, a new one in each round), where a round adds a few numbers only, in loops of ten rounds or
    fewer, and in methods of a module, unless they go over a loader. Where each sample adds one number or a few, it is a note, also with labels
    and names of samples beside them that the loop only joins; so is `np.append` without an axis, which leaves one row of numbers, unless maps
    are known to go into it, what begins as `np.array([])` or `np.empty(0)` and is joined to what each batch of a loader gives, and so are
    twenty rounds or fewer. In `__getitem__`, rows that an array picks count too, where one loop is inside another.

    ## Why is this bad

    Each round allocates a new block for everything so far and copies it. The time grows with the square of the rounds, and during each copy
    the old and the new block are in memory together. 600 rounds of 250 KiB, 146 MiB in the end (measured with torch 2.13.0 and NumPy 2.4.6):

    | form | seconds | peak MiB |
    |---|---|---|
    | `x = np.append(x, y)` | 19.4 | 294 |
    | `x = np.concatenate([x, y])` | 21.8 | 291 |
    | `x = torch.cat([x, y])` | 29.2 | 438 |
    | a list, joined once | 0.15 | 153 |
    | an array of the final size, filled | 0.04 | 147 |

    ## Example

    ```python
    import numpy as np
    import torch
    from torch.utils.data import DataLoader


    def predict(model, dataset):
        loader = DataLoader(dataset, batch_size=64)
        classes = np.array([])
        with torch.no_grad():
            for images in loader:
                classes = np.append(classes, model(images).argmax(dim=1).numpy())
        return classes
    ```

    ## Use instead

    ```python
    import numpy as np
    import torch
    from torch.utils.data import DataLoader


    def predict(model, dataset):
        loader = DataLoader(dataset, batch_size=64)
        classes = [np.array([])]
        with torch.no_grad():
            for images in loader:
                classes.append(model(images).argmax(dim=1).numpy())
        classes = np.concatenate(classes, axis=None)
        return classes
    ```

    ## Fix safety

    Unsafe. The empty array stays as the first of the list, so that the result has the type that it had (`np.array([])` makes floating-point numbers
    of integers); where the name starts as `None`, a loop without any round raises. The fix is made where the name starts empty beside the
    loop, is read behind it only, and what is added is one class a sample (`argmax`). Elsewhere it is advice: outputs of every step are often
    better reduced at once than kept in a list.

    ## References

    - [numpy.append](https://numpy.org/doc/stable/reference/generated/numpy.append.html)
    - [torch.cat](https://docs.pytorch.org/docs/stable/generated/torch.cat.html)
    """

    code = "OOM209"
    slug = "quadratic-concat"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.UNSAFE
    weighs = Weighs(Consequence.MULTIPLIED, Resource.ARRAYS, (Multiplier.STEPS,))
    measured_as = Measurement(loop=LoopPlan(ends=(Quantity.COPIED_BYTES,)), traits=frozenset({Trait.RETYPES, Trait.COPIES_BYTES}))

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield, for each loop, the first statement that copies what it grows; the branches of a function that grow the same array are told once."""
        if holds_tests(module):
            return  # the loops of tests are short
        loops: dict[cst.CSTNode, list[SelfConcatenation]] = {}
        for growth in growths(module, project):
            loops.setdefault(growth.loop, []).append(growth)
        told: dict[object, Finding] = {}
        for found in loops.values():
            ordered = sorted(found, key=lambda one: module.place(one.statement))
            first = ordered[0]
            square = "time grows quadratically, and memory holds the old and the new array at once"
            message = Message(f"The loop over {first.over} copies all of `{first.written}` each round", square)
            related = [module.place(one.statement, f"so is `{one.written}`") for one in ordered[1:]]
            if first.site is not None:
                related.append(first.site.module.place(first.site.call, "the loop calls it here"))
            confidence = Confidence.HIGH if first.known else Confidence.MEDIUM
            fix, facts = as_list(ordered, module), concat_facts(module, ordered)
            small = any(one.few for one in found) and all(one.few or one.alike for one in found)
            severity = Severity.NOTE if small else None
            finding = self.finding(module.place(first.statement), message, severity=severity, confidence=confidence, related=related, fix=fix, facts=facts)
            same = (first.scope, first.path) if first.site is None and not fix.edits else finding
            before = told.get(same)
            if before is None or before.severity is not finding.severity:
                told[finding if before is not None else same] = finding
            else:
                told[same] = replace(before, related=(*before.related, finding.place.saying("also here", Role.AGAIN)))
        yield from told.values()
        yield from self._rejoined(module, project)

    def _rejoined(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield, for each loop, the first call that joins all of a list again."""
        loops: dict[cst.CSTNode, list[Rejoin]] = {}
        for again in rejoined(module, project):
            loops.setdefault(again.loop, []).append(again)
        for found in loops.values():
            first, *others = found
            square = "time grows quadratically, and memory holds the parts and the result at once"
            message = Message(f"The loop over {first.over} joins all of `{first.written}` each round", square)
            related = [module.place(first.added.statement, "grows here"), *(module.place(one.call, f"so is `{one.written}`") for one in others)]
            confidence = Confidence.HIGH if first.known else Confidence.MEDIUM
            severity, facts = Severity.NOTE if all(one.few for one in found) else None, rejoin_facts(module, found)
            yield self.finding(module.place(first.call), message, severity=severity, confidence=confidence, related=related, fix=_BEHIND, facts=facts)
