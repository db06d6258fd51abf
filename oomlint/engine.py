"""Runs a check: finds the files, lets the scout choose, asks the rules, and puts what they say in order.

Rules and libcst are imported only where the scout lets a file through. What comes out depends on the files and the settings alone: not on the number of
processes, the cache or the clock.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from oomlint import registry
from oomlint.cache import Cache, project_key, refusal
from oomlint.discovery import PerFileIgnores, discover, tops_of, unreached
from oomlint.finding import Confidence, Finding, Place, Safety, Severity
from oomlint.fixing import Notice, WriteRefusedError, key, mend, write
from oomlint.scout.look import triage
from oomlint.scout.mistakes import is_old, mistake_of, parsed
from oomlint.source import Kind, SourceError, content_digest, read_source
from oomlint.suppress import Suppressions, apply
from oomlint.writing import sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from oomlint.cache import Verdict
    from oomlint.config import Settings
    from oomlint.fixing import Change
    from oomlint.model.project import Project
    from oomlint.rule import Rule
    from oomlint.source import Source

CANNOT_CHECK: Final = "cannot-check"  # stands in place of a rule's name where a file cannot be read or parsed
PYTHON_2: Final = "python-2"  # the same where it is of that language
UNFINISHED: Final = "unfinished"  # the same where its analysis takes more steps than any

# Work that is worth one more process, whose start costs about as much as a tenth of it.
_TRIAGE_BYTES: Final = 8_000_000
_LINT_BYTES: Final = 400_000

# A check that was made once more with all fixes in place says what most of them do; to find the one that does harm takes a few.
_FORESEEN_CHECKS: Final = 12

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Options:
    """How to run, apart from what the settings say."""

    fix: bool = False  # mend what was found, in memory
    unsafe_fixes: bool = False
    write: bool = True  # put what was mended on the disk
    force_exclude: bool = False
    cache: bool = True
    processes: int | None = None  # None: as many as the work is worth
    scout: bool = True  # False: libcst reads every file; slow, and finds the same
    overlay: Mapping[str, bytes] = field(default_factory=dict)  # contents that stand in for files, by absolute path
    approve: Callable[[Finding], bool] | None = None  # whether the fix of a finding may be applied, beside what its safety says
    suppress: bool = True  # False: comments silence nothing
    foresee: bool = False  # find out which fixes could be applied


@dataclass(frozen=True, slots=True)
class Failure:
    """A rule that raised: a bug of oomlint, not of the file."""

    code: str
    path: str
    cause: str
    trace: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What ``--fix`` would do to the findings of a run. A finding with a fix that is in none of these goes with the fix of another."""

    safe: frozenset[Finding] = frozenset()  # mended by safe fixes
    unsafe: frozenset[Finding] = frozenset()  # mended by unsafe fixes besides
    left_out: Mapping[Finding, str] = field(default_factory=dict)  # why a fix would not be applied
    certain: bool = True  # False: to find out would take too long; all fixes count


class _TooMuchError(Exception):
    """It would take too long to find out what fixes do."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has come to."""

    findings: tuple[Finding, ...]  # after fixing: what is left
    files: int
    fixed: tuple[Finding, ...] = ()
    changes: tuple[Change, ...] = ()
    notices: tuple[Notice, ...] = ()
    failures: tuple[Failure, ...] = ()
    foreseen: Foreseen | None = None
    old: tuple[str, ...] = ()  # files of Python 2 that were found in folders: they are not checked


def run(paths: Sequence[str], settings: Settings, root: str | os.PathLike[str], options: Options | None = None) -> Report:
    """Check the files under ``paths``. Raises ConfigError for a code that no rule has."""
    options = options or Options()
    root = os.path.abspath(root)
    settings.check_codes(code for code, _ in registry.catalogue())
    codes = registry.codes(settings.select, settings.ignore, settings.extend_select)
    given = [path for path in paths if os.path.abspath(path) not in options.overlay or (options.force_exclude and os.path.lexists(path))]
    found = discover(given, settings, root, options.force_exclude)
    named = {os.path.abspath(path) for path in paths} - {os.path.abspath(path) for path in given}
    files = tuple(sorted({*found.files, *(named & options.overlay.keys())}))
    job = _Job(settings, root, codes, options.scout, options.overlay, unreached(tops_of(paths), settings, root), suppress=options.suppress)
    folder = os.path.join(root, settings.cache_dir) if options.cache and options.suppress and not options.overlay else None
    refused = refusal(folder, root) if folder else None
    notices = (Notice(folder, f"no cache is kept: {refused}"),) if folder and refused else ()
    cache = Cache(None if refused else folder)
    by_file, looks, failures = _check(job, files, options, cache)
    looks = looks._replace(foreign=_foreign(files, given, root))
    problems = [cannot_check(problem.path, problem.message) for problem in found.problems]
    if not options.fix:
        foreseen = _foresee(job, by_file, looks, options, cache) if options.foresee else None
        left = _ordered([*problems, *(item for items in by_file.values() for item in items)])
        return _told_apart(Report(left, len(files), notices=notices, failures=failures, foreseen=foreseen), paths)
    if options.write:
        for place in sorted({os.path.dirname(os.path.realpath(path)) for path in files}):
            sweep(place)
    report = _mend(job, by_file, looks, options)
    shown = _ordered([*problems, *report.findings])
    return _told_apart(Report(shown, len(files), report.fixed, report.changes, (*notices, *report.notices), failures, report.foreseen), paths)


def _told_apart(report: Report, paths: Iterable[str]) -> Report:
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


def _foreign(files: Iterable[str], given: Iterable[str], root: str) -> frozenset[str]:
    """The files that are links to places outside of the project and of the folders that were named. A project may hold links to anything of the user's."""
    named = {os.path.abspath(path) for path in given}
    tops = tuple(os.path.join(os.path.realpath(path), "") for path in (root, *named))
    return frozenset(path for path in files if path not in named and os.path.islink(path) and not os.path.realpath(path).startswith(tops))


def cannot_check(path: str, cause: str, cell: int = 0, row: int = 1, column: int = 1) -> Finding:
    """What is said of a file that cannot be read or parsed."""
    return Finding(None, CANNOT_CHECK, cause, Severity.ERROR, Confidence.HIGH, Place(path, cell, row, column, row, column))


def _ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sorted, and what says the same of the same place said once."""
    unique: dict[tuple[object, ...], Finding] = {}
    for item in sorted(findings, key=lambda item: item.sort_key):
        unique.setdefault((item.code, item.place, item.message), item)
    return tuple(unique.values())


# -- one file ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Job:
    """What a process must know to check a file."""

    settings: Settings
    root: str
    codes: tuple[str, ...]
    scout: bool
    overlay: Mapping[str, bytes]
    folders: tuple[str, ...] = ()  # of the project, though a walk over its root passes them by
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)  # what is known of contents
    suppress: bool = True


class _Looked(NamedTuple):
    """What a first look at a file says."""

    path: str
    digest: str = ""
    size: int = 0
    verdict: Verdict | None = None  # the scout's, where it had to be asked
    parse: bool = False  # a rule may have something to say
    comments: bool = False  # a suppression may be unused
    broken: Finding | None = None


class _Looks(NamedTuple):
    """What the first look at all files says."""

    candidates: set[str]  # paths that the scout lets through
    digests: dict[str, str]  # of the contents that were checked, by path
    foreign: frozenset[str] = frozenset()  # links that lead out of the project, and that nobody has named


class _Linted(NamedTuple):
    """What the rules say of a file."""

    findings: tuple[Finding, ...] = ()
    failures: tuple[Failure, ...] = ()


class _Checker:
    """Checks files one by one. Every process has its own."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._ignores = PerFileIgnores(job.settings, job.root)
        self._project: Project | None = None

    def look(self, path: str) -> _Looked:
        """Read a file and ask the scout."""
        try:
            source = read_source(path, self._job.overlay.get(path))
        except SourceError as error:
            return _Looked(path, broken=_broken(error))
        digest = content_digest(path, source.data)
        comments = Suppressions.from_source(source).reportable
        if not self._job.scout:
            return _Looked(path, digest, len(source.data), None, parse=True, comments=comments)
        fresh: Verdict | None = None
        known = self._job.verdicts.get(digest)
        if known is None:
            seen = triage(source.text, notebook=source.kind is Kind.NOTEBOOK)
            known = fresh = (seen.parse, seen.error)
        parse, mistake = known
        broken = None
        if mistake is not None:
            row, column, cause = mistake
            place = source.place(row, column, row, column)
            broken = cannot_check(path, cause, place.cell, place.row, place.column)
            if is_old(source.text):
                broken = replace(broken, name=PYTHON_2)
        return _Looked(path, digest, len(source.data), fresh, parse, comments, broken)

    def lint(self, looked: _Looked) -> _Linted:
        """Ask the rules about a file, silence what its comments silence, and leave out what is not to be shown."""
        settings = self._job.settings
        ignored = tuple("" if code == "ALL" else code for code in self._ignores.codes(looked.path))
        codes = [code for code in self._job.codes if not code.startswith(ignored)] if ignored else self._job.codes
        try:
            said, failures, source = self._said(looked, codes)
            known = [code for code, _ in registry.catalogue()]
            findings = apply(said, Suppressions.from_source(source), codes, known) if self._job.suppress else tuple(said)
        except SourceError as error:
            return _Linted((self._mistake(error),))
        except RecursionError:
            return _Linted((cannot_check(looked.path, "nested too deeply to be checked"),))
        shown = (item for item in findings if item.severity.rank <= settings.severity.rank and item.confidence.rank <= settings.min_confidence.rank)
        return _Linted(_ordered(shown), tuple(failures))

    def _mistake(self, error: SourceError) -> Finding:
        """What is said of a file that libcst does not read: what the interpreter says, which is plainer, unless libcst has got further."""
        with suppress(SourceError, ValueError, RecursionError, MemoryError):
            source = read_source(error.path, self._job.overlay.get(error.path))
            try:
                parsed(source.text)
            except SyntaxError as mistake:
                row, column, cause = mistake_of(mistake)
                old = is_old(source.text)
                place = source.place(row, column, row, column)
                if old or "never closed" in cause or (place.cell, place.row + 1) >= (error.cell, error.row):  # libcst names the row below what is missing
                    said = cannot_check(error.path, cause, place.cell, place.row, place.column)
                    return replace(said, name=PYTHON_2) if old else said
        return _broken(error)

    def _said(self, looked: _Looked, codes: Iterable[str]) -> tuple[list[Finding], list[Failure], Source]:
        """What the rules say, what failed, and the content that they have seen. Raises SourceError where it is not the one that was looked at."""
        if looked.parse:
            said, failures, source = self._ask(looked.path, codes)
        else:
            said, failures, source = [], [], read_source(looked.path, self._job.overlay.get(looked.path))
        if content_digest(looked.path, source.data) != looked.digest:
            raise SourceError(looked.path, "it has changed while it was checked")
        return said, failures, source

    def _ask(self, path: str, codes: Iterable[str]) -> tuple[list[Finding], list[Failure], Source]:
        from oomlint.model import budget  # noqa: PLC0415 - brings libcst, as the next one does
        from oomlint.model.project import Project  # noqa: PLC0415

        if self._project is None:
            self._project = Project(self._job.root, self._job.settings, self._job.overlay, self._job.folders)
        codes = tuple(codes)
        self._project.steps.left = budget.STEPS // 2
        found = self._answers(path, codes, self._project)
        if self._project.steps.left >= 0:
            return found
        # It goes on from nothing, so that where it ends does not depend on the files before it; what was half learnt is no use to those behind it.
        self._project = None
        alone = Project(self._job.root, self._job.settings, self._job.overlay, self._job.folders)
        alone.steps.left = budget.STEPS
        findings, failures, source = self._answers(path, codes, alone)
        if alone.steps.left < 0:
            findings.append(replace(cannot_check(path, "it is not checked to its end: that would take too many steps"), name=UNFINISHED))
        return findings, failures, source

    @staticmethod
    def _answers(path: str, codes: Iterable[str], project: Project) -> tuple[list[Finding], list[Failure], Source]:
        """What the rules say of a file, as far as its budget goes."""
        from oomlint.model.budget import OutOfStepsError  # noqa: PLC0415

        module = project.module(path)
        findings: list[Finding] = []
        failures: list[Failure] = []
        for rule in map(registry.load, codes):
            try:
                findings += list(rule.check(module, project))
            except OutOfStepsError:
                break
            except (RecursionError, SourceError):  # of the file, not of the rule
                raise
            except Exception as error:  # noqa: BLE001 - whatever a rule does wrong, the other rules and files are checked
                failures.append(_failure(rule, path, error))
        return findings, failures, module.source


def _broken(error: SourceError) -> Finding:
    return cannot_check(error.path, error.message, error.cell, error.row, error.column)


def _failure(rule: Rule, path: str, error: Exception) -> Failure:
    import traceback  # noqa: PLC0415 - never needed, one hopes

    cause = " ".join(f"{type(error).__name__}: {error}".split())
    return Failure(rule.code, path, cause, "".join(traceback.format_exception(error)))


# -- all files ---------------------------------------------------------------------------------------------------


def _check(job: _Job, files: Sequence[str], options: Options, cache: Cache) -> tuple[dict[str, tuple[Finding, ...]], _Looks, tuple[Failure, ...]]:
    """Findings of every file, what the first look at them said, and the rules that failed."""
    looks = _each(replace(job, verdicts=cache.verdicts), _Checker.look, files, _weigh(files), options.processes)
    by_file: dict[str, tuple[Finding, ...]] = {}
    waiting: list[_Looked] = []
    for looked in looks:
        if looked.verdict is not None:
            cache.keep_verdict(looked.digest, looked.verdict)
        by_file[looked.path] = (looked.broken,) if looked.broken else ()
        if looked.broken is None and (looked.parse or looked.comments):
            waiting.append(looked)
    if waiting and cache.in_use:
        cache.open_findings(project_key(job.root, job.settings.as_table(), job.codes, job.folders))
    fresh: list[_Looked] = []
    for looked in waiting:
        known = cache.findings(looked.path, looked.digest)
        if known is None:
            fresh.append(looked)
        else:
            by_file[looked.path] = known
    results = _lint(job, fresh, options)
    for looked, linted in zip(fresh, results, strict=True):
        by_file[looked.path] = linted.findings
        # Of what lies outside of the root the key tells less than a rule may see.
        if not linted.failures and looked.path.startswith(os.path.join(job.root, "")):
            cache.keep_findings(looked.path, looked.digest, linted.findings)
    cache.save()
    seen = _Looks({looked.path for looked in waiting}, {looked.path: looked.digest for looked in looks})
    return by_file, seen, tuple(failure for linted in results for failure in linted.failures)


def _lint(job: _Job, items: Sequence[_Looked], options: Options) -> list[_Linted]:
    if any(item.parse for item in items):
        importlib.import_module("oomlint.model.project")  # before any fork, so that it is paid for once
        for code in job.codes:
            registry.load(code)
    return _each(job, _Checker.lint, items, sum(item.size for item in items if item.parse) / _LINT_BYTES, options.processes)


def _weigh(files: Iterable[str]) -> float:
    """How many processes a first look at the files is worth."""
    total = 0
    for path in files:
        try:
            total += os.stat(path).st_size
        except OSError:
            continue
    return total / _TRIAGE_BYTES


def _mend(job: _Job, by_file: dict[str, tuple[Finding, ...]], looks: _Looks, options: Options) -> Report:
    """Apply fixes and write what has changed. A file that cannot be written keeps its findings."""
    if not any(item.fix for items in by_file.values() for item in items):
        return Report(tuple(item for items in by_file.values() for item in items), len(by_file))

    def lint(overlay: Mapping[str, bytes]) -> dict[str, tuple[Finding, ...]]:
        return _again(job, by_file, looks.candidates, overlay, options)

    outcome = mend(by_file, lint, looks.digests, looks.foreign, unsafe=options.unsafe_fixes, overlay=options.overlay, approve=options.approve)
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
        left[change.path] = by_file[change.path]
    written = {change.path for change in changes}
    fixed = tuple(item for item in outcome.fixed if item.fix and all(edit.place.path in written for edit in item.fix.edits))
    foreseen = None
    if options.foresee and not options.unsafe_fixes:
        applied = replace(options, overlay={**options.overlay, **{change.path: change.after for change in changes}})
        foreseen = _foresee(job, left, looks, applied, Cache(None))
    return Report(tuple(item for items in left.values() for item in items), len(by_file), fixed, tuple(changes), tuple(notices), foreseen=foreseen)


def _foresee(job: _Job, by_file: Mapping[str, tuple[Finding, ...]], looks: _Looks, options: Options, cache: Cache) -> Foreseen:
    """Apply fixes as ``--fix`` would, in memory. Only the files that they may tell on are checked again, mostly once."""
    fixable = [item for items in by_file.values() for item in items if item.fix and item.fix.edits and item.fix.safety is not Safety.DISPLAY]
    if not fixable:
        return Foreseen()
    known = cache.foreseen(fixable)
    if known is None:
        left_over = _FORESEEN_CHECKS
        affected = _affected(by_file, looks.candidates, fixable)

        def lint(overlay: Mapping[str, bytes]) -> dict[str, tuple[Finding, ...]]:
            nonlocal left_over
            left_over -= 1
            if left_over < 0:
                raise _TooMuchError
            return _again(job, by_file, affected, overlay, options)

        try:
            both = mend(by_file, lint, looks.digests, looks.foreign, unsafe=True, overlay=options.overlay)
            if not both.left_out:  # mostly: all of them do no harm, and some of them hardly will
                safe = replace(both, fixed=tuple(item for item in both.fixed if item.fix and item.fix.safety is Safety.SAFE))
            else:
                safe = mend(by_file, lint, looks.digests, looks.foreign, overlay=options.overlay)
                contents = {**options.overlay, **{change.path: change.after for change in safe.changes}}
                both = mend(safe.findings, lint, looks.digests, looks.foreign, unsafe=True, overlay=contents)
        except _TooMuchError:
            safe_ones, unsafe_ones = (frozenset(item for item in fixable if item.fix and item.fix.safety is safety) for safety in (Safety.SAFE, Safety.UNSAFE))
            return Foreseen(safe_ones, unsafe_ones, certain=False)
        causes = {key(item): cause for outcome in (safe, both) for item, cause in outcome.left_out.items()}
        mended = [Counter(map(key, outcome.fixed)) for outcome in (safe, both)]
        left = {key(item) for items in both.findings.values() for item in items}
        known = []
        for item in fixable:
            by = next((number for number, tally in enumerate(mended) if tally[key(item)]), None)
            if by is not None:
                mended[by][key(item)] -= 1
            known.append(("safe", "unsafe")[by] if by is not None else causes.get(key(item), "it overlaps another fix" if key(item) in left else ""))
        cache.keep_foreseen(fixable, known)
        cache.save()
    told = list(zip(fixable, known, strict=True))
    safe_ones, unsafe_ones = (frozenset(item for item, what in told if what == word) for word in ("safe", "unsafe"))
    return Foreseen(safe_ones, unsafe_ones, {item: what for item, what in told if what not in {"safe", "unsafe", ""}})


def _affected(by_file: Mapping[str, tuple[Finding, ...]], candidates: set[str], fixable: Iterable[Finding]) -> set[str]:
    """Files that fixes may tell on: those with findings to fix, those that are edited, and those that name one of these."""
    own = {place.path for item in fixable if item.fix for place in (item.place, *(edit.place for edit in item.fix.edits))}
    modules = (os.path.dirname(path) if os.path.basename(path) == "__init__.py" else os.path.splitext(path)[0] for path in own)
    words = {os.fsencode(os.path.basename(path)) for path in modules}
    named = re.compile(rb"\b(?:" + b"|".join(sorted(map(re.escape, words))) + rb")\b")
    found = set()
    for path in candidates & by_file.keys():
        with suppress(OSError), open(path, "rb") as stream:
            if path in own or named.search(stream.read()):
                found.add(path)
    return found


def _again(
    job: _Job, by_file: Mapping[str, tuple[Finding, ...]], candidates: set[str], overlay: Mapping[str, bytes], options: Options
) -> dict[str, tuple[Finding, ...]]:
    """Findings of every file, with other contents in place. A change may tell on any file that the scout lets through."""
    changed = replace(job, overlay=overlay)
    results = dict(by_file)
    checker = _Checker(changed)
    waiting = []
    for path in (path for path in by_file if path in candidates or path in overlay):
        looked = checker.look(path)
        results[path] = (looked.broken,) if looked.broken else ()
        if looked.broken is None and (looked.parse or looked.comments):
            waiting.append(looked)
    for looked, linted in zip(waiting, _lint(changed, waiting, options), strict=True):
        failed = tuple(cannot_check(failure.path, f"{failure.code} failed: {failure.cause}") for failure in linted.failures)
        results[looked.path] = linted.findings + failed
    return results


# -- processes ---------------------------------------------------------------------------------------------------

_checker: _Checker | None = None  # in a child process


def _each(job: _Job, method: Callable[[_Checker, _Item], _Result], items: Sequence[_Item], worth: float, processes: int | None) -> list[_Result]:
    """The results for all items, in their order, from as many processes as the work is worth."""
    number = processes or min(_processors(), round(worth))
    results: list[_Result] = []
    if number > 1 and len(items) > 1:
        # The system may allow no processes, or one is killed, for want of memory most likely: one at a time takes less.
        with suppress(ImportError, OSError, RuntimeError):
            _spread(job, method, items, number, results)
    checker = _Checker(job)
    results += [method(checker, item) for item in items[len(results) :]]
    return results


def _spread(job: _Job, method: Callable[[_Checker, _Item], _Result], items: Sequence[_Item], number: int, results: list[_Result]) -> None:
    import multiprocessing  # noqa: PLC0415 - most runs need none of it
    import threading  # noqa: PLC0415
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415

    # A fork is cheap and shares what is imported, and is sound only while there is one thread.
    fork = sys.platform == "linux" and threading.active_count() == 1
    context = multiprocessing.get_context("fork" if fork else "spawn")
    with ProcessPoolExecutor(number, context, _begin, (job,)) as pool:
        try:
            for result in pool.map(partial(_in_child, method), items, chunksize=max(1, len(items) // (4 * number))):
                results.append(result)  # noqa: PERF402 - what has come before a failure is kept
        except (KeyboardInterrupt, SystemExit):
            for child in multiprocessing.active_children():
                child.terminate()  # else the pool waits until their work is done
            raise


def _begin(job: _Job) -> None:
    import signal  # noqa: PLC0415
    import threading  # noqa: PLC0415

    global _checker  # noqa: PLW0603 - a process of the pool has no other place for it
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # they end it at once; the parent speaks for all
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    _checker = _Checker(job)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed tells nobody, and this process would wait for work for ever."""
    import multiprocessing  # noqa: PLC0415

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _in_child(method: Callable[[_Checker, _Item], _Result], item: _Item) -> _Result:
    if _checker is None:
        raise RuntimeError("this process was not made to check files")
    return method(_checker, item)


def _processors() -> int:
    """Processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1
