"""The trainers of transformers: each makes the optimizer of the model that it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomlint.model import arguments, names
from oomlint.model.values import ClassRef, External

if TYPE_CHECKING:
    import libcst as cst

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope

USUAL: Final = "AdamW"  # where nobody asks for another
UNTOLD: Final = "the optimizer"  # of a class that nobody knows
_GIVEN: Final = ("args", "train_dataset")


def model_of(call: cst.Call, module: Module, scope: Scope, evaluator: Evaluator) -> cst.BaseExpression | None:
    """The model that a call hands to a trainer; None for other calls."""
    if not any(arg.keyword is not None and arg.keyword.value in _GIVEN for arg in call.args):
        return None
    found = (alt.value for alt in evaluator.plainly(call.func, module, scope)[:2])
    bases = (base for value in found for base in (evaluator.lineage(value) if isinstance(value, ClassRef) else [value]))
    if not any(isinstance(base, External) and _is_trainer(names.canonical(base.name)) for base in bases):
        return None
    return arguments.argument_for(call, "model", place=0)


def optimizer_of(call: cst.Call, words: dict[str, str]) -> str:
    """The class of the optimizer that a trainer makes."""
    return UNTOLD if arguments.named(call, "optimizers") is not None or "--optim" in words else USUAL


def _is_trainer(name: str) -> bool:
    return name.startswith("transformers.") and name.endswith("Trainer")
