"""Training arguments that ask for worker options without workers: made by the library, where it is installed."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oomlint.finding import LoaderFact
from oomlint.verify.case import Outcome, Part
from oomlint.verify.recipes import calls_judge
from oomlint.verify.recipes.calls_judge import Judged
from oomlint.verify.recipes.calls_slice import counterpart, cut, sites
from oomlint.verify.recipes.calls_values import program

if TYPE_CHECKING:
    from oomlint.verify.bench import Bench
    from oomlint.verify.recipes.calls_slice import Site

_PREFIX: Final = "dataloader_"
_OPTIONS: Final = frozenset({"persistent_workers", "prefetch_factor", "multiprocessing_context"})
_SECONDS: Final = 60.0  # the library imports much
_WORKERS: Final = "dataloader_num_workers"


@dataclass(frozen=True, slots=True)
class _Ran:
    """What came of the configurations."""

    runs: list[dict[str, Any]]
    missing: str  # the library, where the call's own arguments stand in for its object


def judge(bench: Bench) -> Judged:
    """Make the arguments and the loader that follows from them."""
    found = next(iter(bench.case.finding.of_noun(LoaderFact)), None)
    own = found.option.removeprefix(_PREFIX) if found is not None else ""
    module = bench.project.find(found.place.path) if found is not None else None
    if found is None or module is None or own not in _OPTIONS:
        return Judged(Outcome.INCONCLUSIVE, "the call of the training arguments was not found in the program")
    row = module.source.program_row(found.place)
    site = next((one for one in sites(ast.parse(module.source.text)) if one.call.lineno == row and _concerns(one.call)), None)
    if site is None:
        return Judged(Outcome.INCONCLUSIVE, "the call of the training arguments was not found in the program")
    before = _measured(bench, Part.BEFORE, site, own)
    if isinstance(before, str):
        return Judged(Outcome.INCONCLUSIVE, before)
    after = _measured(bench, Part.AFTER, site, own) if bench.case.mended else None
    if isinstance(after, str):
        return Judged(Outcome.INCONCLUSIVE, f"after the fix: {after}")
    judged = calls_judge.exceptions(own, before.runs, after.runs if after else None)
    other = _changed(bench, site) if bench.case.by_hand and judged.outcome in {Outcome.CONFIRMED, Outcome.NO_EFFECT} else ""
    if other:
        return Judged(Outcome.INCONCLUSIVE, f"the mend changes `{other}` as well, and training was not run", judged.readings)
    said = "the loader is made of the arguments as `Trainer` makes it, over a stand-in dataset"
    missing = ["`transformers` is not installed: the loader is made of the call's own arguments, as version 5.23 does"] if before.missing else []
    return Judged(judged.outcome, judged.reason, judged.readings, (said, *missing))


def _changed(bench: Bench, site: Site) -> str:
    """An argument that the mend changes and that is not about loaders; empty where there is none."""
    tree = program(bench, Part.AFTER, bench.case.finding.place.path)
    here = counterpart(site, tree) if tree is not None else None
    old, new = ({item.arg or "**": ast.unparse(item.value) for item in call.keywords} for call in (site.call, here.call if here is not None else site.call))
    return next((name for name in {**old, **new} if not name.startswith(_PREFIX) and old.get(name) != new.get(name)), "")


def _concerns(call: ast.Call) -> bool:
    return any(item.arg is None or item.arg.startswith(_PREFIX) for item in call.keywords)


def _measured(bench: Bench, part: Part, site: Site, own: str) -> _Ran | str:
    """The runs; else why there are none."""
    path = bench.case.finding.place.path
    tree = program(bench, part, path)
    here = counterpart(site, tree) if tree is not None else None
    if here is None:
        return "the call of the training arguments was not found"
    given = next((item.value for item in here.call.keywords if item.arg == _WORKERS), None)
    leaves: dict[str, object] = {}
    if isinstance(given, (ast.Name, ast.Attribute, ast.Subscript)):
        leaves = {ast.unparse(given): 0}
    piece = cut(here, frozenset(leaves), plain=True)
    values: list[dict[str, object]] = [dict.fromkeys(leaves, count) for count in ((2, 0) if leaves else (0,))]
    arguments = {"path": bench.path(part, path), "root": bench.folder(part), "plan": piece.plan(values), "own": own}
    done = bench.run(part, "call_trainer:measure", arguments, seconds=_SECONDS)
    if not isinstance(done.answer, dict):
        return done.failure
    if done.answer["missing"] and not done.answer["stood_in"]:
        return f"{done.answer['missing']} is not installed in this interpreter"
    return _Ran(list(done.answer["runs"]), done.answer["missing"])
