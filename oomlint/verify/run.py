"""Takes findings through their verification: a case each, the strategies that know its rule, and the verdict."""

from __future__ import annotations

import ast
import importlib
import os
import time
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from oomlint.finding import Safety
from oomlint.measurement import Trait
from oomlint.model.project import Project
from oomlint.source import SourceError, apply_edits, read_source
from oomlint.verify import causes, patches, process_pool, recheck, signals
from oomlint.verify.ast_names import callee, quoted, spot
from oomlint.verify.case import Case, Fidelity, Outcome, Part, Verdict, plan_of
from oomlint.verify.preflight import prepare
from oomlint.verify.project_copy import Base, Trees
from oomlint.verify.sandbox.view import of_project
from oomlint.verify.sandbox_runner import SandboxRunner
from oomlint.verify.session import Session, nearest
from oomlint.verify.strategies import new_costs
from oomlint.verify.strategies.changed_statements import of_case

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from types import ModuleType

    from oomlint.config import Settings
    from oomlint.finding import Edit, Finding
    from oomlint.verify.session import Surroundings
    from oomlint.verify.store import VerdictStore

_MOST_PROCESSES: Final = 4  # each has a server with torch, and two workers of a loader now and then
_DECISIVE: Final = frozenset({Outcome.CONFIRMED, Outcome.REGRESSED, Outcome.SHOWN})


def cases_of(findings: Sequence[Finding], root: str, settings: Settings | None = None, *, nested: bool = False) -> Iterator[Case]:
    """A case for every finding that came of a rule. Fixes that are advice count as none.

    A fix by hand that the settings name stands in where there is no fix to apply. With ``nested`` a file belongs to the project of the settings file that is
    nearest to it, else to ``root`` with ``settings``. Raises ConfigError for settings that cannot be used.
    """
    for finding in findings:
        if finding.code is not None:
            own, home = nearest(os.path.dirname(finding.place.path)) if nested else (settings, root)
            if home != root and not home.startswith(os.path.join(root, "")):
                own, home = None, root  # it lies outside
            yield _case(finding, findings, home, own)


def verdicts(
    cases: Iterable[Case], surroundings: Surroundings, store: VerdictStore | None = None, begin: Callable[[Case], None] | None = None
) -> Iterator[tuple[Case, Verdict]]:
    """Verify case by case. ``begin`` is told of each before it starts. Raises SandboxError where no job can be run.

    Nothing is started where the store knows all verdicts.
    """
    listed = list(cases)
    known = [_trivial(case) or (store.get(case) if store else None) for case in listed]
    unknown = [case for case, verdict in zip(listed, known, strict=True) if verdict is None]
    found: dict[int, Verdict] = {}
    with closing(_judged(unknown, surroundings, begin or (lambda _: None))) as judged:
        number = 0
        for case, old in zip(listed, known, strict=True):
            if old is not None:
                yield case, old
                continue
            while number not in found:
                index, verdict = next(judged)
                found[index] = verdict
                if store is not None:
                    store.put(unknown[index], verdict)
            yield case, found.pop(number)
            number += 1


def _judged(cases: Sequence[Case], surroundings: Surroundings, begin: Callable[[Case], None]) -> Generator[tuple[int, Verdict]]:
    """Verdicts with the indices of their cases, as they come: from several processes where there is work for them."""

    def make(stack: ExitStack) -> Callable[[Case], Verdict]:
        projects = _Projects(surroundings, stack)
        return lambda case: projects.of(case).verify(case)

    number = min(len(cases), process_pool.processors(), _MOST_PROCESSES)
    if number > 1 and surroundings.keep is None and process_pool.possible():
        yield from process_pool.work(cases, make, number, begin)
        return
    with ExitStack() as stack:
        verify = make(stack)
        for index, case in enumerate(cases):
            begin(case)
            yield index, verify(case)


class _Projects:
    """The projects of a run, and a runner for each interpreter and what is let through to it. Each is made for the first case that needs it."""

    def __init__(self, surroundings: Surroundings, stack: ExitStack) -> None:
        self._surroundings = surroundings
        self._stack = stack
        self._sandboxes: dict[tuple[object, ...], SandboxRunner] = {}
        self._projects: dict[str, _Project] = {}

    def of(self, case: Case) -> _Project:
        """The project of a case."""
        if case.root not in self._projects:
            around = self._surroundings
            if case.root != around.root:
                settings, _ = nearest(case.root)
                around = around.elsewhere(settings, case.root) if around.elsewhere else replace(around, root=case.root, settings=settings)
            options = around.options
            allowed = (around.python, around.pass_env, around.read, options.command, options.prepare)  # what one project is given is not another's
            if allowed not in self._sandboxes:
                self._sandboxes[allowed] = self._stack.enter_context(self._runner(around))
            runner = self._sandboxes[allowed]
            keep = around.keep and os.path.join(around.keep, os.path.relpath(case.root, self._surroundings.root))
            with signals.held():
                base = self._stack.enter_context(Base(case.root, keep, runner.place))
            self._projects[case.root] = _Project(around, runner, base)
        return self._projects[case.root]

    def _runner(self, around: Surroundings) -> SandboxRunner:
        """It shows all projects of the run to its jobs: one server does for those that lie in each other."""
        top, options = self._surroundings, around.options
        view = of_project(top.root, around.read, " ".join(filter(None, (options.command, options.prepare))))
        kept = (os.path.realpath(top.keep),) if top.keep else ()
        return SandboxRunner(
            around.python,
            unsandboxed=around.unsandboxed,
            view=replace(view, writable=kept),
            pass_env=around.pass_env,
            shared_memory=2 * options.limits.memory,  # as much as jobs may take whose workers are spawned
        )


class _Project:
    def __init__(self, surroundings: Surroundings, runner: SandboxRunner, base: Base) -> None:
        self._surroundings = surroundings
        self._runner = runner
        self._base = base
        self._project = Project(surroundings.root, surroundings.settings, {})
        prepare(runner, base, surroundings)

    def verify(self, case: Case) -> Verdict:
        start = time.monotonic()
        with Trees(self._base, case.changes) as trees:
            session = Session(case, self._project, self._surroundings.settings, self._surroundings.options, self._runner, trees)
            try:
                verdict = asked(session)
            except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError):
                if os.environ.get("OOMLINT_DEBUG"):
                    raise
                verdict = Verdict(Outcome.INCONCLUSIVE, "what was run gives an answer that makes no sense")
        return replace(verdict, seconds=time.monotonic() - start, sandbox=str(self._runner.sandbox))


def asked(session: Session) -> Verdict:
    """The verdict on a case: what the strategies say, unless the patch makes something else worse."""
    verdict = causes.explained(session, new_costs.judged(session, recheck.judged(session, _said(session))))
    return replace(verdict, assumptions=(*verdict.assumptions, *_noted(session.case)))


def _noted(case: Case) -> Iterator[str]:
    """What is to be known of the changes, whatever was run."""
    if case.beside:
        yield f"the fix of {' and '.join(case.beside)} in the same place is made on both sides"
    if case.by_hand and case.finding.place.path not in case.changes:
        yield f"the fix leaves {os.path.basename(case.finding.place.path)} as it is"
    for path in case.changes if case.others else ():
        own = of_case(case, path, script=True)[1]
        for item in of_case(replace(case, others=()), path, script=True)[1]:
            if item not in own:
                yield f"{item.words}: the fix changes it for another finding"


def _said(session: Session) -> Verdict:
    """What the strategies say that know the rule.

    The first that sees the fix do something decides, for better or worse. That nothing was seen is believed only where no other strategy sees more, and where
    none says anything the reasons of all are told.
    """
    said: list[Verdict] = []
    nothing: set[str] = set()  # what those say that have nothing to try
    options, plan = session.options, session.case.plan
    asked_for = {name: words for name, words, given in (("command", "your command", options.command), ("datasets", "your factory", options.factory)) if given}
    shows = {*plan.strategies, *(["datasets"] if "workers" in plan.strategies else [])}
    # Why what the user asked to be run says nothing.
    unheard = [f"{words} cannot show what {session.case.code} speaks of" for name, words in asked_for.items() if name not in shows]
    for name in plan.strategies:
        if name == "command" and not session.options.command:
            continue
        strategy: ModuleType = importlib.import_module(f"oomlint.verify.strategies.{name}")
        verdict: Verdict = strategy.verify(session)
        nothing.add(getattr(strategy, "NONE", ""))
        if name in asked_for and verdict.outcome is Outcome.INCONCLUSIVE:
            words = asked_for[name]
            unheard.append(verdict.reason if verdict.reason.startswith(words) else f"{words}: {verdict.reason}")
        elif unheard:
            verdict = _instead("; ".join(unheard), verdict)
        verdict = _whole(session.case, verdict)
        if verdict.outcome in _DECISIVE:
            return verdict
        said.append(verdict)
    if not said:
        needs = session.case.plan.needs
        why = f": that takes {needs}, and code is run without one" if needs else ""
        return Verdict(Outcome.INCONCLUSIVE, f"what {session.case.code} speaks of is not measured{why}")
    quiet = next((item for item in said if item.outcome is not Outcome.INCONCLUSIVE), None)
    if quiet is not None:
        return quiet
    every = dict.fromkeys(item.reason for item in said)
    reasons = "; ".join([reason for reason in every if reason not in nothing] or every)
    return replace(max(said, key=lambda item: len(item.readings)), reason=reasons)


def _instead(unheard: str, verdict: Verdict) -> Verdict:
    """A verdict on something else than what was asked for, which says so before all."""
    if verdict.outcome is Outcome.INCONCLUSIVE:
        return verdict
    what = verdict.fidelity.value if verdict.fidelity else "a part of your code"
    return replace(verdict, reason=f"{unheard}; {what} was run instead: {verdict.reason}")


def _whole(case: Case, verdict: Verdict) -> Verdict:
    """The verdict, unless a fix by hand changes loaders that were not run: what is cut out says nothing of the rest."""
    if not case.by_hand or verdict.outcome is not Outcome.CONFIRMED or verdict.fidelity is Fidelity.COMMAND:
        return verdict
    changed = [call for path in case.changes for call in _changed_loaders(case, path)]
    if len(changed) <= (1 if Trait.OF_LOADER in case.plan.traits and verdict.fidelity is Fidelity.SLICED else 0):
        return verdict
    return replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=f"{verdict.reason}; but the fix also changes {changed[-1]}, which was not compared")


def _changed_loaders(case: Case, path: str) -> list[str]:
    """The loaders that a fix makes in another way, in the words of the program after."""
    old, new = (
        Counter(ast.unparse(node) for item in items for node in item.walk() if isinstance(node, ast.Call) and callee(node).endswith("DataLoader"))
        for items in of_case(case, path, script=True)
    )
    return [quoted(call) for call in (new - old).elements()]


def _trivial(case: Case) -> Verdict | None:
    """The verdict where there is nothing to run: no fix was found, or the fix leaves the program as it is, such as one of a comment."""
    if case.not_fixed:
        return Verdict(Outcome.INCONCLUSIVE, case.not_fixed, next_step="put the file there, as it is if the fix does not change it")
    if not case.has_fix:
        return None
    for path in case.changes:
        trees = [case.tree(part, path) for part in Part]
        if trees[0] is None or trees[1] is None or ast.dump(trees[0]) != ast.dump(trees[1]):
            return None
    alike = all(before == after for before, after in case.changes.values())
    return Verdict(Outcome.NO_EFFECT, "the fix is the same file" if alike else "the fix changes no statement: the program is the same")


# -- what the fix makes of the files ---------------------------------------------------------------------------------


def _case(finding: Finding, findings: Sequence[Finding], root: str, settings: Settings | None) -> Case:
    edits = _edits(finding)
    patch = patches.of_setting(root, settings.verify.patches) if settings and settings.verify.patches else {}
    if not edits:
        # The rows of a finding hold in the file as it is: a fix of other files only says nothing of it.
        fixed = finding.place.path in patch
        same = tuple(other.place for other in findings if fixed and other.place != finding.place and not _edits(other))
        return Case(finding, root, patch if fixed else {}, by_hand=fixed, others=same)
    others = [edit for other in findings if _beside(finding, other) for edit in _edits(other) if edit not in edits]
    try:
        beside = tuple(dict.fromkeys(str(other.code) for other in findings if _beside(finding, other) and _edits(other)))
        return Case(finding, root, _changes(others, edits), beside=beside)
    except (SourceError, ValueError):
        pass  # the fixes overlap
    try:
        return Case(finding, root, _changes([], edits))
    except (SourceError, ValueError):
        return Case(finding, root)


def _edits(finding: Finding) -> tuple[Edit, ...]:
    return finding.fix.edits if finding.fix and finding.fix.safety is not Safety.DISPLAY else ()


def _beside(finding: Finding, other: Finding) -> bool:
    """Whether another fix has to be in place for this one to be seen."""
    if other is finding or other.place.path != finding.place.path or any("\n" in edit.content for edit in _edits(other)):
        return False
    shared = plan_of(finding.code).traits & plan_of(other.code).traits
    if Trait.RAISES_FIRST in shared:
        return other.place == finding.place
    return Trait.KEEPS_GRAPH in shared and _function(finding) == _function(other)


def _function(finding: Finding) -> str:
    """The outermost function around a finding."""
    try:
        source = read_source(finding.place.path)
        return spot(ast.parse(source.text), source.program_row(finding.place)).function
    except (SourceError, SyntaxError, ValueError, RecursionError):
        return ""


def _changes(others: Sequence[Edit], edits: Sequence[Edit]) -> dict[str, tuple[bytes, bytes]]:
    """Contents before and after, by path. The edits of ``others`` are made in both. Raises SourceError, and ValueError where edits overlap."""
    changes = {}
    for path in dict.fromkeys(edit.place.path for edit in (*edits, *others)):
        source = read_source(path)
        shared = [edit for edit in others if edit.place.path == path]
        own = [edit for edit in edits if edit.place.path == path]
        before = apply_edits(source, sorted(shared, key=lambda edit: edit.place)) if shared else source.data
        changes[path] = (before, apply_edits(source, sorted((*shared, *own), key=lambda edit: edit.place)))
    return changes
