"""Runs a check: finds the files, lets the scout choose, asks the rules, and puts what they say in order.

Rules and libcst are imported only where the scout lets a file through. What comes out depends on the files and the settings alone: not on the number of
processes, the cache or the clock.
"""

from __future__ import annotations

import gc
import importlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint import plugins, registry
from oomlint.basis import Basis
from oomlint.beside_code import Beside, beside
from oomlint.cache import Cache, project_state, refusal
from oomlint.causes import Causes, causes_of
from oomlint.checking import CANNOT_CHECK, PYTHON_2, UNFINISHED, UNREAD, Checker, CheckJob, cannot_check, ordered
from oomlint.config import Sort
from oomlint.deduplication import copies_once, said_once, where_given
from oomlint.discovery import Reached, discover, tops_of, unreached
from oomlint.finding import Safety, Severity
from oomlint.fixing import Notice, WriteRefusedError, fix_all, write
from oomlint.processes import each
from oomlint.rechecking import Rechecker
from oomlint.source import PYTHON_LIMIT, SourceError, read_bytes
from oomlint.writing import sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from oomlint.checking import Failure, Linted, Looked
    from oomlint.config import Settings
    from oomlint.finding import Finding
    from oomlint.fixing import Change

# Work that is worth one more process, whose start costs about as much as a tenth of it.
_TRIAGE_BYTES: Final = 8_000_000
_LINT_BYTES: Final = 400_000

_PATIENT: Final = (200_000, 20, 50)  # objects, then how often the older ones are looked at


class RunOptions(Struct, frozen=True):
    """How to run, apart from what the settings say."""

    fix: bool = False  # fix what was found, in memory
    unsafe_fixes: bool = False
    write: bool = True  # put what was fixed on the disk
    force_exclude: bool = False
    cache: bool = True
    cache_folder: str | None = None  # the user's own, in place of that of the settings
    processes: int | None = None  # None: as many as the work is worth
    scout: bool = True  # False: libcst reads every file; slow, and finds the same
    overlay: Mapping[str, bytes] = field(default_factory=dict)  # contents that stand in for files, by absolute path
    approve: Callable[[Finding], bool] | None = None  # whether the fix of a finding may be applied, beside what its safety says
    finish: Callable[[CheckReport], CheckReport] | None = None  # what becomes of the report, before repeats are left out of it
    suppress: bool = True  # False: comments silence nothing
    once: bool = True  # False: what several findings say of one container is said at each loader
    causes: bool = True  # where files are named: show also what they cause in others


class Looks(NamedTuple):
    """What the first look at all files says."""

    candidates: dict[str, Looked]  # files that the scout lets through, by path
    digests: dict[str, str]  # of the contents that were checked, by path
    unread: tuple[Finding, ...] = ()  # what is said of files beside the code that were asked for values
    foreign: frozenset[str] = frozenset()  # links that lead out of the project, and that nobody has named


class CheckReport(Struct, frozen=True):
    """What a run has come to."""

    findings: tuple[Finding, ...]  # after fixing: what is left
    files: int
    fixed: tuple[Finding, ...] = ()
    changes: tuple[Change, ...] = ()
    notices: tuple[Notice, ...] = ()
    failures: tuple[Failure, ...] = ()
    old: tuple[str, ...] = ()  # files of Python 2 that were found in folders: they are not checked
    checked: tuple[str, ...] = ()  # the files, those that cannot be read included
    known: int = 0  # findings that would be shown but for ``RunOptions.finish``
    told: int = 0  # where repeats are not left out: how many findings there are without them
    left_out: int = 0  # fixes that were tried, and not applied
    hidden: tuple[Finding, ...] = ()  # what a lower ``severity`` would show beside the findings


def run(paths: Sequence[str], settings: Settings, root: str | os.PathLike[str], options: RunOptions | None = None) -> CheckReport:
    """Check the files under ``paths``. Raises ConfigError for a code that no rule has."""
    options = options or RunOptions()
    root = os.path.abspath(root)
    settings.check_codes(code for code, _ in registry.catalogue())
    codes = registry.chosen(settings)
    given = [path for path in paths if os.path.abspath(path) not in options.overlay or (options.force_exclude and os.path.lexists(path))]
    found = discover(given, settings, root, options.force_exclude)
    overlaid = {os.path.abspath(path) for path in paths} - {os.path.abspath(path) for path in given}
    listed = sorted({*found.files, *(overlaid & options.overlay.keys())})
    files = tuple(path for path in listed if beside(path) is None)
    reached = Reached(found.files if options.force_exclude else paths, settings, root)
    # How findings are reported says nothing of what a run finds, nor of what the cache holds.
    outside = unreached(tops_of(paths), settings, root)
    job = CheckJob(settings.of_findings(), root, codes, options.scout, options.overlay, outside, suppress=options.suppress, sources=plugins.used())
    keeps = options.cache and options.suppress and not options.overlay
    folder = options.cache_folder or os.path.join(root, settings.cache_dir) if keeps else None
    refused = refusal(folder, os.path.dirname(folder) if options.cache_folder else root) if folder else None
    notices = (Notice(folder, f"no cache is kept: {refused}"),) if folder and refused else ()
    cache = Cache(None if refused else folder)
    # All severities are asked for, and what is hidden is told: how much that is is worth knowing.
    checker = Checker(replace(job, settings=job.settings.having(severity=Severity.NOTE)))
    causes = Causes()
    if options.causes:
        causes = causes_of(Checker(replace(job, verdicts=cache.verdicts)), files, {os.path.abspath(path) for path in paths}.intersection(listed))
    every, looks, failures = _check(checker, sorted({*files, *causes.beside}), options, cache)
    by_file = {path: tuple(item for item in items if item.severity.rank <= settings.severity.rank) for path, items in every.items()}
    hidden = [item for items in every.values() for item in items if item.severity.rank > settings.severity.rank]
    edits = (edit for items in by_file.values() for item in items if item.fix is not None for edit in item.fix.edits)
    told = frozenset(edit.place.path for edit in edits if beside(edit.place.path) is not None and edit.place.path in reached)
    comments = checker.comments_in_use([item for items in every.values() for item in items])
    options = replace(options, approve=_sparing(comments, options.approve))
    looks = looks._replace(foreign=foreign((*files, *told), given, root))
    problems = [cannot_check(problem.path, problem.message) for problem in found.problems]
    problems += _broken_beside([path for path in listed if beside(path) is not None], options.overlay)
    report = CheckReport(tuple(item for items in by_file.values() for item in items), len(listed))
    if options.fix:
        if options.write:
            for place in sorted({os.path.dirname(os.path.realpath(path)) for path in files}):
                sweep(place)
        shown = Checker(job, checker.take_projects())
        report = replace(_fix_all(Rechecker(shown, by_file, looks.candidates, cache.basis), by_file, looks, options, causes.beside, told), files=len(listed))
    comments = checker.comments_in_use([*report.findings, *hidden])
    left = ordered([*problems, *causes.of((item for item in report.findings if item not in comments), checker.is_silent)])
    hidden = [*causes.of((item for item in hidden if item not in comments), checker.is_silent)]
    failures = tuple(failure for failure in failures if failure.path not in causes.beside)
    fixed = tuple(causes.of(report.fixed, checker.is_silent))
    programs = (*files, *causes.beside)
    unread = (
        Notice(item.place.path, item.message, item.place.row)
        for item in looks.unread
        if item.place.path not in listed and _concerns(item.place.path, programs, options.overlay)
    )
    whole = replace(report, findings=left, fixed=fixed, notices=(*notices, *report.notices, *unread), failures=failures, checked=files)
    return _shown(replace(whole, hidden=tuple(hidden)), paths, options, settings.sort, causes, reached, root)


def _shown(report: CheckReport, paths: Iterable[str], options: RunOptions, sort: Sort, causes: Causes, reached: Container[str], root: str) -> CheckReport:
    """The report as it is shown: without what is no finding, without repeats, and in the order that is asked for."""
    report = _told_apart(report, paths)
    report = replace(report, findings=tuple(_within_reach(item, report.checked, reached, root) for item in report.findings))
    every = report.findings
    hidden = report.hidden
    if options.finish is not None:
        hidden = options.finish(replace(report, findings=hidden)).findings if hidden else ()
        report = options.finish(report)

    def told(findings: Iterable[Finding]) -> list[Finding]:
        return where_given(copies_once(said_once(findings, causes.beside, reached), options.overlay), reached)

    known = max(0, len(told(every)) - len(told(report.findings))) if len(report.findings) < len(every) else 0
    if not options.once:
        report = replace(report, told=len(told(item for item in every if item.code is not None)))
    if hidden:  # one that is said by a finding that is shown is not hidden
        lower = {item.severity for item in hidden}
        hidden = tuple(item for item in told([*report.findings, *hidden]) if item.severity in lower)
    findings: Iterable[Finding] = report.findings
    fixed: Iterable[Finding] = report.fixed
    if options.once:
        findings, fixed = copies_once(said_once(findings, causes.beside, reached), options.overlay), said_once(fixed, causes.beside, reached)
    if options.causes:
        groups = [list(findings)] if options.once else [[item] for item in findings]
        findings, fixed = [item for group in groups for item in where_given(group, reached)], where_given(fixed, reached)
        findings = map(causes.at_cause, findings)
        fixed = map(causes.at_cause, fixed)
    left = ordered(findings) if options.once else tuple(sorted(findings, key=lambda item: item.sort_key))
    report = replace(report, known=known, hidden=hidden, findings=left, fixed=tuple(fixed))
    if sort is Sort.WEIGHT:
        return replace(report, findings=tuple(sorted(report.findings, key=lambda item: item.weight_key)))
    return report


def _within_reach(item: Finding, files: Container[str], reached: Container[str], root: str) -> Finding:
    """The finding; a fix that edits a file that nobody asked about is advice, and says where it can be applied."""
    if item.fix is None or item.fix.safety is Safety.DISPLAY:
        return item
    paths = dict.fromkeys(edit.place.path for edit in item.fix.edits)
    if all(path in files or (beside(path) is not None and path in reached) for path in paths):
        return item
    option = "--fix" if item.fix.safety is Safety.SAFE else "--fix --unsafe-fixes"
    names = " and ".join(os.path.relpath(path, root) for path in paths)
    return replace(item, fix=replace(item.fix, safety=Safety.DISPLAY), help=f"{item.help} (run {option} on {names})", found=item.as_found)


def _told_apart(report: CheckReport, paths: Iterable[str]) -> CheckReport:
    """The report, with what is no finding taken out: that a file is not checked to its end, and those of Python 2. One that is named is a mistake."""
    unfinished = tuple(Notice(item.place.path, item.message) for item in report.findings if item.name == UNFINISHED)
    if unfinished:
        findings = tuple(item for item in report.findings if item.name != UNFINISHED)
        report = replace(report, findings=findings, notices=(*report.notices, *unfinished))
    old = [item.place.path for item in report.findings if item.name == PYTHON_2]
    if not old:
        return report
    named = {os.path.abspath(path) for path in paths}
    told = (replace(item, name=CANNOT_CHECK) if item.name == PYTHON_2 else item for item in report.findings if item.place.path not in {*old} - named)
    left = tuple(path for path in old if path not in named)
    return replace(report, findings=tuple(told), files=report.files - len(left), old=left)


def _concerns(path: str, programs: Iterable[str], overlay: Mapping[str, bytes]) -> bool:
    """Whether a broken file is about what is checked: settings that were asked for, or commands that may start one of these programs.

    To follow a value, the commands of the whole project are read.
    """
    from oomlint.model.beside_mistakes import may_start  # noqa: PLC0415 - few files are broken

    if beside(path) is Beside.SETTINGS:
        return True
    try:
        return may_start(path, overlay.get(path) or read_bytes(path, PYTHON_LIMIT), programs)
    except SourceError:
        return False


def _broken_beside(named: Iterable[str], overlay: Mapping[str, bytes]) -> Iterator[Finding]:
    """What is said of named files beside the code that cannot be read."""
    for path in named:
        from oomlint.model.beside_mistakes import refuse_broken  # noqa: PLC0415 - few runs name such a file

        try:
            refuse_broken(path, overlay.get(path))
        except SourceError as error:
            yield cannot_check(path, error.message, row=error.row, column=error.column)


def foreign(files: Iterable[str], given: Iterable[str], root: str) -> frozenset[str]:
    """The files that are links to places outside of the project and of the folders that were named. A project may hold links to anything of the user's."""
    named = {os.path.abspath(path) for path in given}
    tops = tuple(os.path.join(os.path.realpath(path), "") for path in (root, *named))
    return frozenset(path for path in files if path not in named and os.path.islink(path) and not os.path.realpath(path).startswith(tops))


# -- all files ---------------------------------------------------------------------------------------------------


def _check(checker: Checker, files: Sequence[str], options: RunOptions, cache: Cache) -> tuple[dict[str, tuple[Finding, ...]], Looks, tuple[Failure, ...]]:
    """Findings of every file, what the first look at them said, and the rules that failed."""
    job = checker.job
    looks = each(Checker(replace(job, verdicts=cache.verdicts)), Checker.look, files, _weigh(files), options.processes)
    by_file: dict[str, tuple[Finding, ...]] = {}
    waiting: list[Looked] = []
    for looked in looks:
        if looked.verdict is not None:
            cache.keep_verdict(looked.digest, looked.verdict)
        by_file[looked.path] = (looked.broken,) if looked.broken else ()
        if looked.broken is None and looked.concerns:
            waiting.append(looked)
    if waiting and cache.in_use:
        cache.open_findings(project_state(job.root, [job.settings.as_table(), plugins.signature()], job.codes, job.folders))
    fresh: list[Looked] = []
    unread: list[Finding] = []
    for looked in waiting:
        known = cache.findings(looked.path, looked.digest)
        if known is None:
            fresh.append(looked)
        else:
            by_file[looked.path] = tuple(item for item in known if item.name != UNREAD)
            unread += (item for item in known if item.name == UNREAD)
    results = _lint(checker, fresh, options)
    basis = cache.basis() if fresh else Basis()
    for looked, linted in zip(fresh, results, strict=True):
        by_file[looked.path] = linted.findings
        unread += linted.unread
        basis.note(looked.path, linted.reads, linted.searches)
        # Of what lies outside of the root the key tells less than a rule may see.
        if not linted.failures and looked.path.startswith(os.path.join(job.root, "")):
            cache.keep_findings(looked.path, looked.digest, (*linted.findings, *linted.unread))
    if fresh:
        cache.keep_basis(basis)
    cache.save()
    seen = Looks({looked.path: looked for looked in waiting}, {looked.path: looked.digest for looked in looks}, ordered(unread))
    return by_file, seen, tuple(failure for linted in results for failure in linted.failures)


def _lint(checker: Checker, items: Sequence[Looked], options: RunOptions) -> list[Linted]:
    if any(item.parse or item.plugged for item in items):
        importlib.import_module("oomlint.model.project")  # before any fork, so that it is paid for once
        for code in checker.job.codes:
            registry.load(code)
    with _patience():
        worth = sum(item.size for item in items if item.parse) / _LINT_BYTES
        return each(checker, Checker.lint, items, worth, options.processes, lambda item: checker.projects.top_of(item.path))


@contextmanager
def _patience() -> Iterator[None]:
    """While files are checked, the garbage collector runs seldom: trees are many objects and no garbage. ``Projects`` bounds what they take."""
    known = gc.get_threshold()
    gc.set_threshold(*_PATIENT)
    try:
        yield
    finally:
        gc.set_threshold(*known)


def _weigh(files: Iterable[str]) -> float:
    """How many processes a first look at the files is worth."""
    total = 0
    for path in files:
        try:
            total += os.stat(path).st_size
        except OSError:
            continue
    return total / _TRIAGE_BYTES


def _fix_all(
    lint: Rechecker, by_file: dict[str, tuple[Finding, ...]], looks: Looks, options: RunOptions, beside: Container[str], told: Container[str]
) -> CheckReport:
    """Apply fixes and write what has changed, but nothing in files ``beside``. ``told`` are files that are no code and may be changed.

    What would be fixed in a file that cannot be written is still found.
    """
    if not any(item.fix for items in by_file.values() for item in items):
        return CheckReport(tuple(item for items in by_file.values() for item in items), len(by_file))
    outcome = fix_all(by_file, lint, looks.digests, looks.foreign, beside, told, unsafe=options.unsafe_fixes, overlay=options.overlay, approve=options.approve)
    left = {path: tuple(items) for path, items in outcome.findings.items()}
    notices, changes = list(outcome.notices), []
    for change in outcome.changes:
        try:
            if options.write and change.path not in options.overlay:
                write(change)
        except WriteRefusedError as error:
            notices.append(Notice(change.path, str(error)))
        except OSError as error:
            notices.append(Notice(change.path, f"fixes are not applied: {error.strerror or error}"))
        else:
            changes.append(change)
            continue
        left |= {path: items for path, items in by_file.items() if path == change.path or any(_edits(item, change.path) for item in items)}
    written = {change.path for change in changes}
    fixed = tuple(item for item in outcome.fixed if item.fix and all(edit.place.path in written for edit in item.fix.edits))
    return CheckReport(
        tuple(item for items in left.values() for item in items), len(by_file), fixed, tuple(changes), tuple(notices), left_out=len(outcome.left_out)
    )


def _edits(item: Finding, path: str) -> bool:
    return item.fix is not None and any(edit.place.path == path for edit in item.fix.edits)


def _sparing(comments: frozenset[Finding], approve: Callable[[Finding], bool] | None) -> Callable[[Finding], bool] | None:
    """What allows fixes, but for those of such ``comments``."""
    return (lambda item: item not in comments and (approve is None or approve(item))) if comments else approve
