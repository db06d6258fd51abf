"""OOM502 torch-load-to-saved-device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst
from msgspec.structs import replace

from oomlint.finding import Confidence, Consequence, Fix, Message, Multiplier, ReadFact, Resource, Safety, Severity, Weighs
from oomlint.measurement import ON_DEVICE
from oomlint.memory.arrays.torch_load import LoadedCheckpoint, chosen_by_device, falls_back, loaded
from oomlint.memory.facts import ranks_fact
from oomlint.memory.fixes.add_argument import added_argument
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.ranks.checkpoint_devices import goes_to_device, saved_from_host
from oomlint.memory.ranks.checkpoints import LOADS, kept_while_training, released
from oomlint.memory.ranks.ranks import ranks_of
from oomlint.memory.shared.qualified_names import library_name
from oomlint.model import arguments
from oomlint.model.names import last_name
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import Absent
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact, Finding
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_DEVICES = re.compile(r"cuda|\bgpus?\b|device|nccl", re.IGNORECASE)
_CUDA = re.compile(r"cuda|nccl")
_RANKS = Weighs(Consequence.MULTIPLIED, Resource.TENSORS, (Multiplier.RANKS,))
_MEANWHILE = "trained here, with the checkpoint still held"
_OF_LIGHTNING = "load_from_checkpoint"  # reads by `torch.load` with its default (pytorch-lightning 2.6, `core/saving.py`)


class TorchLoadToSavedDevice(Rule):
    """A checkpoint is loaded onto the device that it was saved from.

    ## What it does

    Checks for `torch.load` without `map_location` whose result is a checkpoint: it goes to `load_state_dict`, or an entry such as
    `state_dict` or `model` is taken out of it. It is a warning where the script runs in several processes with CUDA: it makes a
    `DistributedDataParallel` or a process group, or has a `local_rank`. There Lightning's `load_from_checkpoint` counts, too, also beside
    a `Trainer` that is given a `strategy` or nodes, or that is asked for its `world_size`. A second try, where loading with `map_location` has
    failed, says nothing, and neither does what reads the states that the same class, or the file where there is none, writes as copies in host
    memory (`v.cpu()`). What only another script calls, which never makes the group, is run by one process. With one process it is a note, and so it
    is where an option makes it one of several (`if args.distributed:`), and no command of the project starts more.

    A checkpoint that is sent to an accelerator (`map_location="cuda"`, `f"cuda:{rank}"`, `lambda storage, _: storage.cuda()`) counts where
    a name keeps it, or a section of it, while the training runs: a warning with several processes, a note with one. To bind the name to something
    else helps where every process does so before the training: not in its rounds, and not behind a test that only some pass (`if rank == 0:`).

    ## Why is this bad

    The tensors are read into host memory first and are then moved to the device they were saved from. There the checkpoint lies beside the
    model until its last name is gone. With one process for each GPU all of them move it to the same device, usually `cuda:0`, which runs out
    of memory while the others have plenty.

    A name that is left over keeps it there for the whole training: the weights a second time. The state of an optimizer is not there twice, since
    `load_state_dict` of the optimizer takes tensors over that are on the right device already (torch 2.13.0).

    With `map_location="cpu"` nothing of it goes to a device: `load_state_dict` copies each tensor into the parameter that is there.

    ## Example

    ```python
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel


    def resume(model, path, local_rank):
        dist.init_process_group("nccl")
        torch.cuda.set_device(local_rank)
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["model"])
        return DistributedDataParallel(model.cuda(), device_ids=[local_rank])
    ```

    ## Use instead

    ```python
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel


    def resume(model, path, local_rank):
        dist.init_process_group("nccl")
        torch.cuda.set_device(local_rank)
        checkpoint = torch.load(path, map_location="cpu")
        model.load_state_dict(checkpoint["model"])
        return DistributedDataParallel(model.cuda(), device_ids=[local_rank])
    ```

    ## Fix safety

    Unsafe where the tensors go to `load_state_dict` alone, which copies them to wherever the parameters are; what an optimizer or a project's
    own class makes of them is not looked at. What names would then keep in the host memory of each process while the training runs is deleted behind
    its last use (OOM601). Elsewhere the argument is only shown: code that uses the tensors directly may count on the device.

    Where it is sent to a device, the fix is `del` behind the last use, offered as unsafe, too, and advice where the name may have no value there.

    ## References

    - [torch.load](https://docs.pytorch.org/docs/stable/generated/torch.load.html)
    """

    code = "OOM502"
    slug = "torch-load-to-saved-device"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.UNSAFE
    weighs = Weighs(Consequence.ONCE, Resource.TENSORS)
    measured_as = ON_DEVICE

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the checkpoints that go to the device they were saved from, and those that stay on one."""
        if holds_tests(module):
            return
        named = _DEVICES.search(module.source.text) is not None  # Lightning takes the devices that there are
        for call, scope in module.walk.calls:
            if not last_name(call.func) or not call.args or any(a.star == "*" for a in call.args):
                continue
            whole = isinstance(call.func, cst.Attribute) and call.func.attr.value == _OF_LIGHTNING
            if not whole and (not named or library_name(project, call.func, module, scope) not in LOADS):
                continue
            found = LoadedCheckpoint(checkpoint=True) if whole else loaded(module, scope, call)
            if not found.checkpoint:
                continue
            if not self._is_open(call, module, project, scope):
                if not whole and goes_to_device(module, scope, call, project):
                    yield from self._stays(call, module, scope, project)
            elif not chosen_by_device(module, call) and not falls_back(module, call) and (whole or not saved_from_host(module, scope, project)):
                yield from self._saved(call, found, module, scope, project)

    def _saved(self, call: cst.Call, found: LoadedCheckpoint, module: Module, scope: Scope, project: Project) -> Iterator[Finding]:
        """A checkpoint that goes to the device it was saved from."""
        place = module.place(call)
        whole = isinstance(call.func, cst.Attribute) and call.func.attr.value == _OF_LIGHTNING
        facts: list[Fact] = [ReadFact(place, _OF_LIGHTNING if whole else "torch.load")]
        ranks = ranks_of(project).at(module, scope, call)
        several = ranks if ranks is not None and (whole or _CUDA.search(ranks.module.source.text)) else None
        safety = Safety.UNSAFE if found.only_states and not whole else Safety.DISPLAY
        edits = [added_argument(module, call, 'map_location="cpu"')]
        kept = kept_while_training(module, scope, call, project) if not whole else None
        let_go = released(kept, project) if kept is not None else None
        edits += let_go.edits if let_go is not None else ()  # or each rank would hold it in host memory
        fix = Fix(safety, 'pass `map_location="cpu"`', tuple(edits))
        related = [module.place(kept.training, _MEANWHILE)] if kept is not None else []
        if several is not None:
            message = Message("Each process loads the checkpoint onto the device it was saved from", "for all processes, that is usually `cuda:0`")
            facts.append(ranks_fact(several))
            # Where it was saved is not known.
            severity = Severity.NOTE if several.optional else Severity.WARNING
            yield self.finding(place, message, severity=severity, confidence=Confidence.MEDIUM, related=related, fix=fix, facts=facts, weighs=_RANKS)
        elif not whole:  # the model is made where the checkpoint goes
            beside = kept.words if kept is not None else "it takes device memory beside the model"
            message = Message("The checkpoint is loaded onto the device it was saved from", beside)
            yield self.finding(place, message, severity=Severity.NOTE, related=related, fix=fix, facts=facts)

    def _stays(self, call: cst.Call, module: Module, scope: Scope, project: Project) -> Iterator[Finding]:
        """A checkpoint that is sent to a device, and that names keep there while something trains."""
        kept = kept_while_training(module, scope, call, project)
        if kept is not None:
            message = Message("The checkpoint stays in the memory of the device, beside the model", kept.words)
            place = module.place(call)
            let_go = released(kept, project)
            fix = Fix(Safety.DISPLAY, "delete it after its last use") if let_go is None else replace(let_go, safety=Safety.UNSAFE)
            related = [module.place(kept.training, _MEANWHILE)]
            ranks = ranks_of(project).at(module, scope, call)
            severity = Severity.WARNING if ranks is not None else Severity.NOTE  # by one process as a rule for a small model
            facts: list[Fact] = [ReadFact(place, "torch.load"), *([ranks_fact(ranks)] if ranks is not None else [])]
            yield self.finding(place, message, severity=severity, confidence=Confidence.MEDIUM, related=related, fix=fix, facts=facts)

    @staticmethod
    def _is_open(call: cst.Call, module: Module, project: Project, scope: Scope) -> bool:
        """Whether the call leaves the device to the checkpoint; a mapping of arguments may say it, unless all that is in it is known."""
        if arguments.has(call, "map_location"):
            return False
        evaluator = evaluator_of(project)
        for arg in call.args:
            if arg.star:
                found = evaluator.access(arg.value, (("item", "map_location"),), evaluator.calls.plain_frame(module, scope))
                if not found or not all(isinstance(alt.value, Absent) for alt in found):
                    return False
        return len(arguments.positionals(call)) <= 1
