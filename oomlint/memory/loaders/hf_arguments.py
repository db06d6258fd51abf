"""Hugging Face training arguments: the loaders that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Fix, LoaderFact, Message, Safety, Severity, Told
from oomlint.memory.facts import worker_count
from oomlint.memory.loaders.loader_calls import confidence_of, evaluator_of, is_given, is_true, is_zero, story_places
from oomlint.model import arguments, names
from oomlint.model.values import ABSENT, Absent, Alternative, Bound, ClassRef, Const, External, Frame, ProvenanceStep, assumptions, meet
from oomlint.syntax.edits import delete_argument, is_cheap_path, replace, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_ARGUMENTS = frozenset(
    {
        "TrainingArguments",
        "Seq2SeqTrainingArguments",
        "SFTConfig",
        "GRPOConfig",
        "DPOConfig",
        "RewardConfig",
        "PPOConfig",
        "KTOConfig",
        "ORPOConfig",
        "SentenceTransformerTrainingArguments",
        "CPOConfig",
        "RLOOConfig",
        "OnlineDPOConfig",
    },
)
_OPTIONS = {
    "dataloader_persistent_workers": (is_true, "`get_train_dataloader()` raises ValueError", "{count} > 0", "{given} and {count} > 0"),
    "dataloader_prefetch_factor": (is_given, "the constructor raises ValueError", "", "{given} if {count} > 0 else None"),
    "dataloader_multiprocessing_context": (is_given, "`get_train_dataloader()` raises ValueError", "", "{given} if {count} > 0 else None"),
}


def contradictions(module: Module, project: Project) -> Iterator[Told]:
    """Training arguments of the module that cannot go together."""
    evaluator = evaluator_of(project)
    for call, scope in module.walk.calls:
        if not any((a.keyword is not None and a.keyword.value in _OPTIONS) or a.star == "**" for a in call.args):
            continue
        if not _makes_arguments(evaluator, module, call, scope):
            continue
        for name in _OPTIONS:
            case = _case(evaluator, module, call, scope, name)
            if case is not None:
                yield case


def _makes_arguments(evaluator: Evaluator, module: Module, call: cst.Call, scope: Scope) -> bool:
    for alt in evaluator.plainly(call.func, module, scope):
        value = alt.value
        if isinstance(value, External):
            library, _, name = value.name.rpartition(".")
            if name in _ARGUMENTS and library.partition(".")[0] in {"transformers", "trl", "sentence_transformers", "unsloth"}:
                return True
        if isinstance(value, ClassRef) and any(isinstance(b, External) and b.name.rpartition(".")[2] in _ARGUMENTS for b in evaluator.lineage(value)):
            return True
    return False


def _argument(evaluator: Evaluator, call: cst.Call, name: str, frame: Frame) -> list[Alternative]:
    bound = (Bound(tuple(call.args), frame, call),)
    given = arguments.keyword(bound, name)
    if given is not None:
        return evaluator.values(given.node.value, frame)
    out: list[Alternative] = []
    for star in arguments.starred(bound):
        found = evaluator.access(star.node.value, (("item", name),), frame)
        if not any(isinstance(a.value, Absent) for a in found):
            return [*out, *found]
        out.extend(found)
    return out or [Alternative(ABSENT)]


def _case(evaluator: Evaluator, module: Module, call: cst.Call, scope: Scope, name: str) -> Told | None:
    harmful, crash, _, _ = _OPTIONS[name]
    best: tuple[Alternative, Alternative, bool] | None = None
    for frame in evaluator.calls.frames(module, scope)[:6]:
        definite = True
        hits: list[tuple[Alternative, Alternative]] = []
        for given in _argument(evaluator, call, name, frame):
            for workers in _argument(evaluator, call, "dataloader_num_workers", frame):
                count = workers
                if isinstance(workers.value, Absent):
                    count = Alternative(
                        Const(0), (ProvenanceStep(module, call, "`dataloader_num_workers` is not given, so it is 0", kind="missing"),), workers.picks
                    )
                if meet(given.picks, count.picks) is None:
                    continue
                if harmful(given.value) and is_zero(count.value):
                    hits.append((count, given))
                elif not (given.reach or count.reach):
                    definite = False
        if hits:
            count, given = min(hits, key=lambda h: (h[0].reach or h[1].reach, assumptions(*h)))
            if best is None or (definite and not best[2]):
                best = (count, given, definite)
    if best is None:
        return None
    count, given, definite = best
    reachable = count.reach or given.reach or not definite
    place = module.place(call)
    zero = "is 0" if not reachable else "can be 0"
    message = Message(f"`{name}` requires `dataloader_num_workers > 0`", f"`dataloader_num_workers` {zero}; {crash}")
    confidence = confidence_of(assumptions(count, given) + (1 if count.reach or given.reach else 0))
    severity = Severity.WARNING if reachable else Severity.ERROR
    fact = LoaderFact(place, names.last_name(call.func), name, (worker_count(count),))
    return Told(place, message, severity, confidence, tuple(story_places(place, count, given)), _fix(module, call, name), (fact,))


def _fix(module: Module, call: cst.Call, name: str) -> Fix | None:
    arg, workers = arguments.named_arg(call, name), arguments.named_arg(call, "dataloader_num_workers")
    if arg is None:
        return None
    if workers is None and arguments.has_stars(call):
        return None
    if workers is None or (isinstance(workers.value, cst.Integer) and workers.value.evaluated_value == 0):
        edit = delete_argument(module.tree, call, arg)
        return Fix(Safety.SAFE, f"remove `{name}`: there are no workers", (edit,)) if edit is not None else None
    if not is_cheap_path(workers.value):
        return None
    literal, guarded = _OPTIONS[name][2:]
    count = module.code(workers.value)
    is_literal = isinstance(arg.value, cst.Name) and arg.value.value == "True"
    content = (literal if literal and is_literal else guarded).format(count=count, given=wrapped(module.code(arg.value), arg.value))
    return Fix(Safety.SAFE, f"set it only when there are workers: `{name}={content}`", (replace(module.tree, arg.value, content),))
