"""What a loader's workers copy of data of the kind that a finding names, which stand in for a dataset of the user's that cannot be run."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from oomlint.finding import AttributeFact, ContentKind, DatasetFact, LoaderFact
from oomlint.measurement import DatasetSign
from oomlint.verify.case import Fidelity, Outcome, Part, Verdict
from oomlint.verify.session import Stopped
from oomlint.verify.strategies import datasets
from oomlint.verify.strategies.changed_statements import of_case
from oomlint.verify.strategies.dataset_metrics import SIGNS
from oomlint.verify.strategies.dataset_runs import SCALED, DatasetRuns, evidence, first, weighed
from oomlint.verify.thresholds import human

if TYPE_CHECKING:
    from oomlint.verify.session import Session

_TENSOR: Final = 4096  # bytes of one in a list
_MANY: Final = 400  # tensors: forkserver refuses about 250
_DESCRIPTORS: Final = 1300  # tensors: more than a process may have descriptors
_DRAWS: Final = re.compile(r"\brandom\b|\brand\w*\(|\bnp\.random|\brng\b|shuffle\(|\bchoice\(|augment|RandomCrop|transform", re.IGNORECASE)
_RANDOM: Final = "{} draws random numbers: without workers its samples differ, and whether they are as good is not measured"
_EQUAL: Final = "equal up to worker RNG: the order of the samples is the same, random numbers drawn in a sample would differ"
_KINDS: Final = {
    ContentKind.OBJECTS: "lists",
    ContentKind.OBJECT_ARRAY: "objects",
    ContentKind.PATHS: "strings",
    ContentKind.BLOB: "dicts",
    ContentKind.ARRAY: "array",
    ContentKind.ARRAYS: "arrays",
    ContentKind.TENSOR: "tensor",
    ContentKind.TENSORS: "tensors",
    ContentKind.FRAME: "array",
    ContentKind.MEMMAP: "array",
}


@dataclass(slots=True)
class HeldRuns(DatasetRuns):
    """A dataset of ours, and what was measured of it."""

    kind: str = ""
    size: int = SCALED
    expression: str = ""  # what the fix makes of `__data__`
    path: str = ""  # the file that its names are of

    def arguments(self, part: Part) -> dict[str, Any]:
        """What the child has to know."""
        where = {"path": self.session.path(part, self.path or None), "root": self.session.folder(part)}
        return {"subject": {**where, "kind": self.kind, "size": self.size, "expression": self.expression if part is Part.AFTER else ""}}


def judge(session: Session) -> Verdict:
    """Measure what the dataset signs of the rule say. Raises Stopped."""
    case = session.case
    held, loader = next(iter(case.finding.of_noun(AttributeFact)), None), next(iter(case.finding.of_noun(LoaderFact)), None)
    if held is None or loader is None:
        raise Stopped("the finding does not say what the dataset holds")
    kind = "objects" if held.holds is ContentKind.OBJECT_ARRAY else held.items or _KINDS.get(held.holds, "lists")
    runs = HeldRuns(session, None, fidelity=Fidelity.SLICED, kind=kind)
    if DatasetSign.SENT in case.plan.dataset:
        runs.kind, runs.size = "tensors", _TENSOR * (_DESCRIPTORS if loader.start_method_known and loader.start_methods == ("spawn",) else _MANY)
    if case.has_fix and DatasetSign.WORKERS in case.plan.dataset:
        if drawn := _random(session):
            raise Stopped(_RANDOM.format(drawn))
        runs.assumed.append(_EQUAL)
    elif case.has_fix:
        runs.expression, runs.path = _wrapped(session)
    runs.assumed.insert(0, f"stand-in data: {human(runs.size)} of {runs.kind} for `{held.name}`")
    return first([runs], _judged, lambda runs, _: runs.look(Part.BEFORE), "")


def _judged(runs: HeldRuns) -> Verdict:
    if runs.expression and (difference := datasets.difference(runs)):
        return evidence(runs, Outcome.REGRESSED, difference)
    signs = [sign for wanted in runs.session.case.plan.dataset for sign in SIGNS[wanted](runs)]
    return weighed(runs, signs, f"not seen: {signs[0].words}", "the samples are the same")


def _wrapped(session: Session) -> tuple[str, str]:
    """What the fix makes of the value, as an expression over ``__data__``, and the file that it is in."""
    changes = {path: of_case(session.case, path, script=True) for path in session.case.changes}
    several = session.case.by_hand and sum(len(come) for _, come in changes.values()) > 1  # one of several changes is not the fix
    for path, (gone, come) in () if several else changes.items():
        for old, new in product((item.node for item in gone), (item.node for item in come)):
            if not isinstance(old, (ast.Assign, ast.AnnAssign)) or not isinstance(new, (ast.Assign, ast.AnnAssign)) or not isinstance(new.value, ast.Call):
                continue
            call = new.value
            if call.args and old.value is not None and ast.dump(call.args[0]) == ast.dump(old.value):
                others = [ast.unparse(item) for item in (*call.args[1:], *call.keywords)]
                return f"{ast.unparse(call.func)}({', '.join(['__data__', *others])})", path
    raise Stopped("the fix changes the dataset's class, which needs the user's own data to run")


def _random(session: Session) -> str:
    """The method of the dataset that draws random numbers, empty where none does by its text."""
    for fact in session.case.finding.of_noun(DatasetFact):
        module = session.project.find(fact.place.path)
        for scope in module.walk.scopes if module is not None else ():
            inside = scope.parent is not None and scope.parent.is_class and scope.parent.qualname == fact.name
            if module is not None and inside and scope.name == "__getitem__" and _DRAWS.search(module.code(scope.node)):
                return f"`__getitem__` of `{fact.name.rpartition('.')[2]}`"
    return ""
