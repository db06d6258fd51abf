"""Checks files one by one: a first look, the rules, and the comments that silence them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from oomlint import plugins, registry
from oomlint.ast_trees import is_at_hand, tree_of
from oomlint.beside_code import Beside, beside
from oomlint.deduplication import copied
from oomlint.discovery import PerFileIgnores
from oomlint.finding import Confidence, Finding, Place, Severity
from oomlint.model.index import index_of
from oomlint.plugins import RuleSources
from oomlint.projects import Projects
from oomlint.scout.triage import triage
from oomlint.scout.unparsable import is_python_2, mistake_of
from oomlint.source import FileKind, SourceError, content_digest, read_source
from oomlint.suppress import UNUSED, Suppressions, apply

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from oomlint.cache import Verdict
    from oomlint.config import Settings
    from oomlint.model.project import Module, Project
    from oomlint.model.readings import Searched
    from oomlint.rule import Rule
    from oomlint.source import Source

CANNOT_CHECK: Final = "cannot-check"  # stands in place of a rule's name where a file cannot be read or parsed
PYTHON_2: Final = "python-2"  # the same where it is of that language
UNREAD: Final = "unread"  # the same where a file beside the code has kept its values from those that asked for them
UNFINISHED: Final = "unfinished"  # the same where its analysis takes more steps than any


class Failure(Struct, frozen=True):
    """A rule that raised: a bug of oomlint, or of a plugin, not of the file."""

    code: str
    path: str
    cause: str
    trace: str
    origin: str = ""  # the plugin


def cannot_check(path: str, cause: str, cell: int = 0, row: int = 1, column: int = 1) -> Finding:
    """What is said of a file that cannot be read or parsed."""
    return Finding(None, CANNOT_CHECK, cause, Severity.ERROR, Confidence.HIGH, Place(path, cell, row, column, row, column))


def plain_mistake(error: SourceError, data: bytes | None = None) -> Finding:
    """What is said of a file that libcst does not read: what the interpreter says, which is plainer, unless libcst has got further."""
    with suppress(SourceError, ValueError, RecursionError, MemoryError):
        source = read_source(error.path, data)
        try:
            tree_of(source.text)
        except SyntaxError as mistake:
            row, column, cause = mistake_of(mistake)
            old = is_python_2(source.text)
            place = source.place(row, column, row, column)
            # libcst names the row below what is missing. What CPython has a guess at is no syntax of a newer one.
            guessed = "never closed" in cause or "Perhaps you forgot" in cause
            if old or guessed or (place.cell, place.row + 1) >= (error.cell, error.row):
                said = cannot_check(error.path, cause, place.cell, place.row, place.column)
                return replace(said, name=PYTHON_2) if old else said
    return _broken(error)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sorted, and what says the same of the same place, and of the same container, said once."""
    unique: dict[tuple[object, ...], Finding] = {}
    for item in sorted(findings, key=lambda item: item.sort_key):
        unique.setdefault((item.code, item.place, item.message, item.given, copied(item)), item)
    return tuple(unique.values())


class CheckJob(Struct, frozen=True):
    """What a process must know to check a file."""

    settings: Settings
    root: str
    codes: tuple[str, ...]
    scout: bool
    overlay: Mapping[str, bytes]
    folders: tuple[str, ...] = ()  # of the project, though a walk over its root passes them by
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)  # what is known of contents
    suppress: bool = True
    sources: RuleSources = field(default_factory=RuleSources)  # of rules beside ours


class Looked(NamedTuple):
    """What a first look at a file says."""

    path: str
    digest: str = ""
    size: int = 0
    verdict: Verdict | None = None  # the scout's, where it had to be asked
    parse: bool = False  # a rule may have something to say
    comments: bool = False  # a suppression may be unused
    broken: Finding | None = None
    readers: tuple[str, ...] = ()  # functions that it calls: a rule may have something to say only if one of them reads a file
    plugged: bool = False  # a rule of a plugin may have something to say

    @property
    def concerns(self) -> bool:
        """Whether anybody has to look again."""
        return self.parse or self.comments or self.plugged


class Linted(NamedTuple):
    """What the rules say of a file."""

    findings: tuple[Finding, ...] = ()
    failures: tuple[Failure, ...] = ()
    reads: tuple[str, ...] | None = None  # the files that this rests on, beside its own; None where that is not known
    searches: tuple[Searched, ...] = ()  # what was looked for in all files since the file before
    unread: tuple[Finding, ...] = ()  # what is said of files beside the code that it has asked for values


class Checker:
    """Checks files one by one. Every process has its own."""

    def __init__(self, job: CheckJob, projects: Projects | None = None) -> None:
        """``projects`` are those that the rules see; made again where there are none."""
        self.job = job
        self.projects = projects or Projects(job.root, job.settings, job.overlay, job.folders)
        self._ignores = PerFileIgnores(job.settings, job.root)
        rules = [rule for code in job.codes if (rule := plugins.rule(code))]
        # None: their rules are asked about all files.
        self._mentions = None if any(not rule.mentions for rule in rules) else frozenset(word for rule in rules for word in rule.mentions)
        self._noted: tuple[str, ...] = ()  # what was read to find out that only rules of plugins are asked
        self.heard: Callable[[str, tuple[Finding, ...]], None] | None = None  # is told what each rule says before the next one is asked
        self._finished = True  # whether the last file was checked within half its budget; else nobody has noted what was read for it

    def take_projects(self) -> Projects:
        """Hand the projects on, for others to change: this one starts with new ones, so that no tree is kept twice."""
        taken, self.projects = self.projects, Projects(self.job.root, self.job.settings, self.job.overlay, self.job.folders)
        return taken

    def look(self, path: str) -> Looked:
        """Read a file and ask the scout."""
        try:
            source = read_source(path, self.job.overlay.get(path))
        except SourceError as error:
            return Looked(path, broken=_broken(error))
        digest = content_digest(path, source.data)
        comments = Suppressions.from_source(source).reportable
        plugged = self._mentions is None or any(word in source.text for word in self._mentions)
        if not self.job.scout:
            return Looked(path, digest, len(source.data), None, parse=True, comments=comments, plugged=plugged)
        fresh: Verdict | None = None
        known = self.job.verdicts.get(digest)
        if known is None:
            seen = triage(source.text, notebook=source.kind is FileKind.NOTEBOOK)
            known = fresh = (seen.parse, seen.error, seen.readers)
            if source.kind is FileKind.PYTHON and is_at_hand(source.text):
                index_of(source.data)  # nearly all are asked for theirs, when the tree is long gone
        parse, mistake, readers = known
        broken = None
        if mistake is not None:
            row, column, cause = mistake
            place = source.place(row, column, row, column)
            broken = cannot_check(path, cause, place.cell, place.row, place.column)
            if is_python_2(source.text):
                broken = replace(broken, name=PYTHON_2)
        return Looked(path, digest, len(source.data), fresh, parse or bool(readers), comments, broken, readers, plugged)

    def lint(self, looked: Looked) -> Linted:
        """Ask the rules about a file, silence what its comments silence, and leave out what is not to be shown."""
        ignored = tuple("" if code == "ALL" else code for code in self._ignores.codes(looked.path))
        codes = [code for code in self.job.codes if not code.startswith(ignored)] if ignored else self.job.codes
        reads: tuple[str, ...] | None = ()
        readings = self.projects.of(looked.path).readings if looked.parse or looked.plugged else None
        try:
            said, failures, source = self._said(looked, codes)
            if readings is not None:
                reads = None if failures or not self._finished else (*readings.end(), *self._noted)
            findings = self._shown(said, source, codes)
        except SourceError as error:
            return Linted((plain_mistake(error, self.job.overlay.get(error.path)),))
        except RecursionError:
            return Linted((cannot_check(looked.path, "nested too deeply to be checked"),))
        searches = readings.news() if readings is not None else ()
        return Linted(findings, tuple(failures), reads, searches, tuple(self._unread(looked.path, reads or ())))

    def _shown(self, said: list[Finding], source: Source, codes: Collection[str]) -> tuple[Finding, ...]:
        """What comments leave of what the rules of these codes say, as far as the settings ask for it."""
        limits = self.job.settings
        known = [code for code, _ in registry.catalogue()] if plugins.whole() else ()  # else one that is not there may be of what is missing
        findings = apply(said, Suppressions.from_source(source), codes, known) if self.job.suppress else tuple(said)
        left = [item for found in findings if (item := self._beside_silence(found)) is not None]
        return ordered(item for item in left if item.severity.rank <= limits.severity.rank and item.confidence.rank <= limits.min_confidence.rank)

    def _unread(self, path: str, reads: Iterable[str]) -> Iterator[Finding]:
        """What is said of files that were opened for values and have none to give, because they are broken."""
        opened = sorted(name for name in reads if not name.endswith(".py") and beside(name) is not None)
        if not opened:
            return
        from oomlint.model.beside_mistakes import may_start, unread  # noqa: PLC0415 - few files have asked one

        project = self.projects.of(path)
        programs = [path, *(name for name in reads if name.endswith(".py"))]
        for name in opened:
            data = project.text(name)
            found = unread(name, data) if beside(name) is Beside.SETTINGS or may_start(name, data, programs) else None
            if found is not None:
                yield replace(cannot_check(name, found[1], row=found[0]), name=UNREAD)

    def _beside_silence(self, item: Finding) -> Finding | None:
        """The finding, without the places beside the code at which it is silenced; ``None`` where it is at all of them."""
        silent = {place for place in item.given if self.is_silent(item, place)}
        if not silent:
            return item
        edits = tuple(edit for edit in item.fix.edits if edit.place not in silent) if item.fix is not None else ()
        fix = replace(item.fix, edits=edits) if item.fix is not None else None
        left = tuple(place for place in item.given if place not in silent)
        return replace(item, given=left, fix=fix) if left else None

    def is_silent(self, item: Finding, place: Place) -> bool:
        """Whether a comment, or a setting, would silence a finding that is told at a place of another file."""
        ignored = self._ignores.codes(place.path)
        if item.code is None or "ALL" in ignored or item.code.startswith(tuple(ignored)):
            return True
        if not self.job.suppress:
            return False
        try:
            source = read_source(place.path, self.job.overlay.get(place.path))
        except SourceError:
            return False
        if place.cell:  # commands are no part of a notebook's program
            cell = next((cell.source for cell in source.cells if cell.number == place.cell), "")
            source = replace(source, kind=FileKind.PYTHON, text=cell, cells=())
        return bool(Suppressions.from_source(source).silencing(replace(item, place=replace(place, cell=0))))

    def comments_in_use(self, findings: Collection[Finding]) -> frozenset[Finding]:
        """Those of the findings that call a comment unused which silences another one of them, where that is told in the file of the comment."""
        by_file: dict[str, list[Finding]] = {}
        for item in findings:
            for place in item.related:
                if place.path != item.place.path:
                    by_file.setdefault(place.path, []).append(replace(item, place=place))
        found: set[Finding] = set()
        for unused in (item for item in findings if item.code == UNUSED and item.place.path in by_file):
            path = unused.place.path
            with suppress(SourceError):
                comments = Suppressions.from_source(read_source(path, self.job.overlay.get(path)))
                if any(comments.needs(unused, item) for item in by_file[path]):
                    found.add(unused)
        return frozenset(found)

    def _said(self, looked: Looked, codes: Iterable[str]) -> tuple[list[Finding], list[Failure], Source]:
        """What the rules say, what failed, and the content that they have seen. Raises SourceError where it is not the one that was looked at."""
        self._noted = ()
        ours = looked.parse and self._may_read(looked)
        asked = [code for code in codes if (looked.plugged if plugins.rule(code) else ours)]
        if asked:
            if looked.parse and not ours:
                self._noted = self.projects.of(looked.path).readings.end()
            said, failures, source = self._ask(looked.path, asked)
        else:
            said, failures, source = [], [], read_source(looked.path, self.job.overlay.get(looked.path))
        if content_digest(looked.path, source.data) != looked.digest:
            raise SourceError(looked.path, "it has changed while it was checked")
        return said, failures, source

    def _may_read(self, looked: Looked) -> bool:
        """Whether one of the functions that a file calls may read a file, as far as that matters for it."""
        if not looked.readers:
            return True
        from oomlint.memory.arrays.reading_functions import may_read  # noqa: PLC0415 - brings libcst

        project = self.projects.of(looked.path)
        project.readings.begin()
        return may_read(project, looked.readers, looked.path)

    def _ask(self, path: str, codes: Iterable[str]) -> tuple[list[Finding], list[Failure], Source]:
        from oomlint.model import step_limits  # noqa: PLC0415 - brings libcst

        codes = tuple(codes)
        project = self.projects.of(path)
        project.readings.begin()
        project.steps.left = step_limits.STEPS // 2
        found = self._answers(path, codes, project)
        self._finished = project.steps.left >= 0
        project.learnt += step_limits.STEPS // 2 - max(0, project.steps.left)
        if self._finished:
            return found
        # It goes on from nothing, so that where it ends does not depend on the files before it; what was half learnt is no use to those behind it.
        self.projects.forget(path)
        alone = self.projects.of(path)
        alone.steps.left = step_limits.STEPS
        findings, failures, source = self._answers(path, codes, alone)
        if alone.steps.left < 0:
            findings.append(replace(cannot_check(path, "it is not checked to its end: that would take too many steps"), name=UNFINISHED))
        del alone
        self.projects.forget(path)
        return findings, failures, source

    def _answers(self, path: str, codes: Iterable[str], project: Project) -> tuple[list[Finding], list[Failure], Source]:
        """What the rules say of a file, as far as its budget goes."""
        from oomlint.memory.ranks.ranks import by_ranks  # noqa: PLC0415
        from oomlint.memory.shared.demo_code import weighed  # noqa: PLC0415 - brings libcst
        from oomlint.memory.shared.never_run import Reached, reached  # noqa: PLC0415
        from oomlint.model.step_limits import OutOfStepsError  # noqa: PLC0415

        module = project.module(path)
        findings: list[Finding] = []
        failures: list[Failure] = []
        for rule in map(registry.load, codes):
            said: list[Finding] = []
            try:
                for item in _said_by(rule, module, project):
                    comes = reached(item, project)
                    if comes is Reached.NEVER:
                        continue
                    # A call of another file that brings a bad value is told there, and weighed there.
                    home = module if item.place.path == module.path else project.find(item.place.path) or module
                    told = weighed(item, home, sure=comes is Reached.YES)
                    said.append(by_ranks(told, home, project) if rule.per_rank else told)
            except OutOfStepsError:
                break  # what a rule says in the middle of its work may be half of it
            except plugins.Terminated:
                raise
            except (Exception, SystemExit) as error:  # whatever a rule does wrong, the other rules and files are checked
                if isinstance(error, RecursionError | SourceError) and not plugins.origin(rule.code):  # of the file, not of the rule
                    raise
                failures.append(_failure(rule, path, error))
            findings += said
            if self.heard is not None:
                self.heard(rule.code, self._shown(said, module.source, (rule.code,)))
        return findings, failures, module.source


def _broken(error: SourceError) -> Finding:
    return cannot_check(error.path, error.message, error.cell, error.row, error.column)


def _said_by(rule: Rule, module: Module, project: Project) -> Iterable[Finding]:
    """What a rule says, which must be its own findings where it is one of a plugin."""
    if not plugins.origin(rule.code):
        return rule.check(module, project)
    found: list[object] = list(rule.check(module, project))
    stray = next((item for item in found if not isinstance(item, Finding) or item.code != rule.code), None)
    if stray is not None:
        raise TypeError(f"it says {str(stray)[:80]!r}, which is no finding of {rule.code}")
    return [item for item in found if isinstance(item, Finding)]


def _failure(rule: Rule, path: str, error: BaseException) -> Failure:
    import traceback  # noqa: PLC0415 - never needed, one hopes

    return Failure(rule.code, path, plugins.cause(error), "".join(traceback.format_exception(error)), plugins.origin(rule.code))
