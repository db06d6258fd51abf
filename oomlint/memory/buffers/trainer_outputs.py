"""Trainers that keep the whole evaluation: Hugging Face's for ``compute_metrics``, Lightning's for the result of ``predict``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.api_names import SAME_MODEL
from oomlint.finding import Message, StoreFact, StoreKind, Told
from oomlint.frameworks import HUGGING_FACE_TRAINERS, LIGHTNING_TRAINER
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import arguments, names
from oomlint.model.values import Absent, ClassRef, Const, Element, External, ExternalCall, Frame, FunctionRef, Instance, Partial, SourceExpression
from oomlint.patterns import pattern
from oomlint.syntax.nodes import parts_of, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Value
    from oomlint.syntax.scopes import Scope

_OWN_WAY = ("evaluation_loop", "prediction_loop", "prediction_step", "evaluate", "predict")  # a trainer with one of these keeps what it likes
_ARGUMENTS = pattern(r"^(transformers|trl|unsloth)\b.*\.(\w*TrainingArguments|SFTConfig)$")
_STEPPED = pattern(r"\b(eval_accumulation_steps|batch_eval_metrics|preprocess_logits_for_metrics|prediction_loss_only|include_for_metrics)\b")
_COMMENT = pattern(r"#.*")
_GENERATES = pattern(r"(Seq2SeqLM|ForConditionalGeneration|EncoderDecoderModel|SpeechSeq2Seq|Vision2Seq)$")
_TOKENS = pattern(r"(ForCausalLM|LMHeadModel|WithLMHead|ForMaskedLM|ImageTextToText|FastLanguageModel)$")
_PIXELS = pattern(r"For(Semantic|Universal|Instance|Image|Panoptic)Segmentation$|ForDepthEstimation$")
_HANDS_ON = frozenset(
    {
        "peft.get_peft_model",
        "peft.prepare_model_for_kbit_training",
        "peft.prepare_model_for_int8_training",
        "peft.PeftModel.from_pretrained",
        "torch.compile",
        "unsloth.FastLanguageModel.get_peft_model",
    },
)
_DEEPEST = 6


def _is_stepped(module: Module) -> bool:
    """Whether a file sets one of the options that keep outputs small; a comment sets none."""
    text = module.source.text
    return _STEPPED.search(text) is not None and _STEPPED.search(_COMMENT.sub("", text)) is not None


def whole_evaluations(module: Module, project: Project) -> Iterator[Told]:
    """Hugging Face trainers of the module that keep the logits of the whole evaluation set on the device."""
    evaluator = evaluator_of(project)
    if "compute_metrics" not in module.source.text or _is_stepped(module):
        return
    for call, scope in module.walk.calls:
        given = arguments.by_name(call)
        if "compute_metrics" not in given or arguments.has_stars(call):
            continue
        trainer = _trainer(evaluator, call, evaluator.calls.plain_frame(module, scope))
        if not trainer:
            continue
        for frame in evaluator.calls.frames(module, scope)[:4]:
            found = _evaluation(evaluator, call, given, frame, trainer)
            if found is not None:
                yield found
                break


def _trainer(evaluator: Evaluator, call: cst.Call, frame: Frame) -> str:
    """The library's trainer that a call makes, directly or by a class of the project that leaves the evaluation as it is."""
    for alt in evaluator.values(call.func, frame):
        value = alt.value
        if isinstance(value, External):
            return value.name if value.name in HUGGING_FACE_TRAINERS else ""
        if isinstance(value, ClassRef):
            line = evaluator.lineage(value)
            if any(evaluator.method(Instance(value, None), name) is not None for name in _OWN_WAY):
                return ""
            if any(isinstance(c, ClassRef) and _is_stepped(c.module) for c in line):
                return ""
            return next((c.name for c in line if isinstance(c, External) and c.name in HUGGING_FACE_TRAINERS), "")
    return ""


def _evaluation(evaluator: Evaluator, call: cst.Call, given: dict[str, cst.BaseExpression], frame: Frame, trainer: str) -> Told | None:
    if any(isinstance(a.value, Const) for a in evaluator.values(given["compute_metrics"], frame)):
        return None
    positional = arguments.plain(call)
    model = given.get("model", positional[0] if positional else given.get("model_init"))
    head = _head(evaluator, model, frame) if model is not None else ""
    if not head and trainer == "trl.SFTTrainer":
        head = "AutoModelForCausalLM"
    what = "samples x pixels x classes" if _PIXELS.search(head) else "samples x tokens x vocabulary"
    if not (_GENERATES.search(head) or _TOKENS.search(head) or _PIXELS.search(head)):
        return None
    written = given.get("args", positional[1] if len(positional) > 1 else None)
    made = _made(evaluator, written, frame) if written is not None else None
    if made is None or _is_stepped(made.frame.module):
        return None
    options = {name: _option(evaluator, made, name) for name in ("eval_accumulation_steps", "predict_with_generate", "eval_strategy", "evaluation_strategy")}
    if any(value is None for value in options.values()) or options["eval_accumulation_steps"] or options["predict_with_generate"]:
        return None
    asked = any(names.last_name(c.func) in {"evaluate", "predict"} for c, _ in frame.module.walk.calls)
    planned = any(options[name] not in {"", "no"} for name in ("eval_strategy", "evaluation_strategy"))
    if not asked and not (planned and "eval_dataset" in given):
        return None
    message = Message("`compute_metrics` keeps the logits of the whole evaluation on the device", f"{what} values stay there (`{head}`)")
    place, related = frame.module.place(call), (made.frame.module.place(made.call, "`eval_accumulation_steps` is not given"),)
    return Told(place, message, related=related, facts=(StoreFact(place, "predictions", StoreKind.WHOLE),))


def _head(evaluator: Evaluator, node: cst.BaseExpression, frame: Frame, depth: int = 0) -> str:
    """The class of a library's model, through what only wraps or moves it; empty where it is not known."""
    if depth > _DEEPEST:
        return ""
    for alt in evaluator.values(node, frame):
        found = _class_of(evaluator, alt.value, depth)
        if found:
            return found
    return ""


def _class_of(evaluator: Evaluator, value: Value, depth: int) -> str:
    if isinstance(value, Element):
        value = value.whole if value.accessors and value.accessors[0][1] == 0 else value
    if isinstance(value, ExternalCall):
        if value.name in _HANDS_ON:
            first = arguments.argument_for(value.call, "model", place=0)
            return _head(evaluator, first, value.frame, depth + 1) if first is not None else ""
        made = value.name.removesuffix(".from_pretrained").removesuffix(".from_config").removesuffix(".from_encoder_decoder_pretrained")
        return made.rpartition(".")[2] if value.name.startswith(("transformers.", "unsloth.", "optimum.")) else ""
    if isinstance(value, Instance):
        return next((c.name.rpartition(".")[2] for c in evaluator.lineage(value.cls) if isinstance(c, External) and c.name.startswith("transformers.")), "")
    if isinstance(value, Partial):
        value = value.func
    if isinstance(value, FunctionRef):  # model_init
        return next((found for a in evaluator.returned(value, (), ()) if (found := _class_of(evaluator, a.value, depth + 1))), "")
    if isinstance(value, SourceExpression) and isinstance(value.node, cst.Call) and isinstance(value.node.func, cst.Attribute):
        return _head(evaluator, value.node.func.value, value.frame, depth + 1) if value.node.func.attr.value in SAME_MODEL else ""
    return ""


def _made(evaluator: Evaluator, node: cst.BaseExpression, frame: Frame) -> ExternalCall | None:
    """The call that makes the trainer's arguments, where there is one and only one."""
    found = [a.value for a in evaluator.values(node, frame)]
    calls = [v for v in found if isinstance(v, ExternalCall) and _ARGUMENTS.match(v.name)]
    return calls[0] if len(found) == len(calls) == 1 else None


def _option(evaluator: Evaluator, made: ExternalCall, name: str) -> str | None:
    """An argument as text, empty where it is not given, off or None; ``None`` where nobody knows."""
    arg = arguments.named_arg(made.call, name)
    if arg is not None:
        found = evaluator.values(arg.value, made.frame)
    else:
        found = [a for star in made.call.args if star.star == "**" for a in evaluator.access(star.value, (("item", name),), made.frame)]
    texts: set[str | None] = {"" if isinstance(a.value, Absent) else (str(a.value.value or "") if isinstance(a.value, Const) else None) for a in found}
    if name.endswith("strategy") and texts == {None}:
        return "given"
    return next(iter(texts)) if len(texts) == 1 else ("" if not texts else None)


# -- Lightning -----------------------------------------------------------------------------------------------------------

_LOOKS_IN = pattern(r"predict_loop((\.\w+)*\._?predictions\b|\s*$|\s*[,)]|\.epoch_loop)", re.MULTILINE)
_WRITES_ALL = pattern(r"^\s+def write_on_epoch_end\(", re.MULTILINE)  # of a writer with the interval "epoch", for which the trainer keeps them anyway
_MOST_POSITIONAL = 3  # model, dataloaders, datamodule; the next one is return_predictions


def discarded_predictions(module: Module, project: Project) -> Iterator[tuple[cst.Call, Scope]]:
    """Calls of ``predict`` of a Lightning trainer whose result nobody takes and nobody switched off."""
    for call, scope in module.walk.calls:
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "predict" or not isinstance(module.walk.parents.get(call), cst.Expr):
            continue
        if arguments.has_stars(call) or arguments.has(call, "return_predictions") or not call.args:
            continue
        if len(arguments.positionals(call)) > _MOST_POSITIONAL or _is_shown(module, call):
            continue
        if not _is_lightning(module, project, call.func.value, scope) or _is_read(project, module) or _gives_nothing(module, project, call, scope):
            continue
        if not _is_written(module, project, call.func.value, scope):
            yield call, scope


def _gives_nothing(module: Module, project: Project, call: cst.Call, scope: Scope) -> bool:
    """Whether the module's own step of a prediction returns nothing: then there is nothing to keep."""
    evaluator = evaluator_of(project)
    model = arguments.argument_for(call, "model", place=0)
    found = evaluator.plainly(model, module, scope) if model is not None else ()
    steps = [evaluator.method(alt.value, "predict_step") if isinstance(alt.value, Instance) else None for alt in found]
    return bool(steps) and all(step is not None and not step.scope.yields and not any(item.value is not None for item in step.scope.returns) for step in steps)


def _is_shown(module: Module, call: cst.Call) -> bool:
    """Whether the call is the last expression of a notebook's cell, which shows and keeps it."""
    statement = module.walk.statement_of(call)
    line = module.walk.parents.get(statement)
    body = module.tree.module.body
    place = next((n for n, other in enumerate(body) if other is line), None)
    cell = module.place(call).cell
    if not cell or place is None:
        return False
    return place + 1 == len(body) or module.place(body[place + 1]).cell != cell


def _is_read(project: Project, module: Module) -> bool:
    """Whether code of the project looks into the trainer's loop, where the predictions lie as well."""
    return any(_LOOKS_IN.search(other.source.text) for other in (module, *project.mentioning([b"predict_loop"], module.path)))


def _is_written(module: Module, project: Project, trainer: cst.BaseExpression, scope: Scope) -> bool:
    """Whether a writer is given all predictions at the end; where nobody knows the callbacks of the trainer, whether the project has such a writer."""
    evaluator = evaluator_of(project)
    made = [alt.value for frame in evaluator.calls.frames(module, scope)[:4] for alt in evaluator.values(trainer, frame)]
    writes = {_writes_all(value, evaluator) for value in made}
    if True in writes or writes == {False}:
        return True in writes
    return any(_WRITES_ALL.search(other.source.text) for other in (module, *project.mentioning([b"write_on_epoch_end"], module.path)))


def _writes_all(trainer: Value, evaluator: Evaluator) -> bool | None:
    """Whether one of the callbacks that a trainer is made with writes all at the end; ``None`` where not all of them are known."""
    if not isinstance(trainer, ExternalCall) or names.canonical(trainer.name) != LIGHTNING_TRAINER or arguments.has_stars(trainer.call):
        return None
    given = arguments.named(trainer.call, "callbacks")
    if given is None:
        return False
    callbacks = parts_of(given)
    values = [alt.value for node in callbacks for alt in evaluator.values(node, trainer.frame)]
    if any(isinstance(one, Instance) and evaluator.method(one, "write_on_epoch_end") is not None for one in values):
        return True
    return False if all(isinstance(one, Instance | ExternalCall) for one in values) else None


def _is_lightning(module: Module, project: Project, node: cst.BaseExpression, scope: Scope) -> bool:
    evaluator = evaluator_of(project)
    for frame in evaluator.calls.frames(module, scope)[:4]:
        for alt in evaluator.values(node, frame):
            value = alt.value
            if isinstance(value, ExternalCall) and names.canonical(value.name) == LIGHTNING_TRAINER:
                return True
            if isinstance(value, Instance) and any(
                isinstance(c, External) and names.canonical(c.name) == LIGHTNING_TRAINER for c in evaluator.lineage(value.cls)
            ):
                return evaluator.method(value, "predict") is None
    return _is_annotated(evaluator, module, node, scope)


def _is_annotated(evaluator: Evaluator, module: Module, node: cst.BaseExpression, scope: Scope) -> bool:
    """Whether the name is a parameter or a variable that is declared to be a trainer."""
    if not isinstance(node, cst.Name):
        return False
    notes = [p.annotation for p in names.parameters(scope) if p.name.value == node.value]
    for effect in scope.effects.get(node.value, ()):
        holder = effect.statement
        if isinstance(holder, cst.AnnAssign):
            notes.append(holder.annotation)
        elif not effect.path and effect.kind == "assign":
            return False
    paths = [path_of(note.annotation) for note in notes if note is not None]
    return any(
        isinstance(a.value, External) and names.canonical(a.value.name) == LIGHTNING_TRAINER
        for path in paths
        if path is not None
        for a in evaluator.resolve(path[0], path[1], evaluator.module_frame(module), None)
    )
