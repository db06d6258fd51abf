"""Which metrics of torchmetrics store the very tensors that they are given."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import arguments, names
from oomlint.model.values import ExternalCall
from oomlint.patterns import pattern
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from oomlint.model.events import Store

# Metrics that store what they are given (torchmetrics 1.9, run): the others count, or change their input under no_grad first.
_LIST_METRICS: Final = pattern(r"^(CatMetric|SpearmanCorrCoef|CosineSimilarity|CalibrationError|BinaryCalibrationError|MeanAveragePrecision|Retrieval\w+)$")
# Curves store what they are given only for two classes, and only probabilities: logits are made into some under no_grad.
_CURVES: Final = pattern(r"^(Binary)?(AUROC|AveragePrecision|ROC|PrecisionRecallCurve|PrecisionAtFixedRecall|RecallAtFixedPrecision|SpecificityAtSensitivity)$")
# What has a list for its state whatever it makes of its input first (torchmetrics 1.9, the states of all metrics looked at); curves without thresholds.
_LISTS: Final = pattern(
    r"^(CatMetric|SpearmanCorrCoef|KendallRankCorrCoef|CosineSimilarity|(Binary|Multiclass)?CalibrationError|MeanAveragePrecision|Retrieval\w+"
    r"|ErrorRelativeGlobalDimensionlessSynthesis|Sp(ectral|atial)DistortionIndex)$"
)
_LIST_CURVES: Final = pattern(
    r"^(Binary|Multiclass|Multilabel)?(AUROC|AveragePrecision|EER|LogAUC|ROC|PrecisionRecallCurve|(Precision|Sensitivity)At\w+|(Recall|Specificity)At\w+)$"
)
_UNIT_NAME: Final = pattern(r"prob|score|sigmoid|softmax|confiden", re.IGNORECASE)


def list_metric(store: Store) -> bool:
    """Whether a torchmetrics object keeps what it is handed here."""
    value = store.before.value
    if not isinstance(value, ExternalCall):
        return False
    unit = any(leaf.moved == "unit" for leaf in store.value.leaves())
    if isinstance(store.node, cst.Call) and store.node.args:
        unit = unit or _UNIT_NAME.search(store.module.code(store.node.args[0].value)) is not None
    return _keeps_all(value.name, value.call, unit=unit)


def _keeps_all(name: str, call: cst.Call, *, unit: bool) -> bool:
    """Whether a metric that is made like this stores its input; ``unit`` says that it is given probabilities."""
    last = name.rpartition(".")[2]
    if last == "MetricCollection":
        inner = [node for arg in call.args for node in descend(arg.value) if isinstance(node, cst.Call)]
        return any(_keeps_all(names.last_name(node.func), node, unit=unit) for node in inner)
    curve = _CURVES.match(last)
    if not curve and not _LIST_METRICS.match(last):
        return False
    given = arguments.by_name(call)
    positional = arguments.plain(call)
    for word in ("thresholds", "compute_on_cpu"):
        if word in given and names.dotted(given[word]) not in {"None", "False"}:
            return False
    if not curve:
        return True
    if not curve.group(1):
        task = given.get("task", positional[0] if positional else None)
        if not isinstance(task, cst.SimpleString) or task.raw_value != "binary":
            return False
    elif positional and curve.group(2) in {"AveragePrecision", "ROC", "PrecisionRecallCurve"}:
        return False  # thresholds come first
    return unit


def on_host(value: object) -> bool:
    """Whether a metric was told to move its state to the host with each update."""
    return isinstance(value, ExternalCall) and names.dotted(arguments.named(value.call, "compute_on_cpu")) == "True"


def grows(value: object) -> bool:
    """Whether a value is a metric of torchmetrics whose state gets longer with each update, until it is reset."""
    return isinstance(value, ExternalCall) and _has_lists(value.name, value.call)


def _has_lists(name: str, call: cst.Call) -> bool:
    last = name.rpartition(".")[2]
    if last == "MetricCollection":
        inner = [node for arg in call.args for node in descend(arg.value) if isinstance(node, cst.Call)]
        return any(_has_lists(names.last_name(node.func), node) for node in inner)
    if _LISTS.match(last):
        return True
    if not _LIST_CURVES.match(last) or arguments.has_stars(call) or sum(arg.keyword is None for arg in call.args) > 1:
        return False
    return not arguments.has(call, "thresholds") or names.dotted(arguments.named(call, "thresholds")) == "None"
