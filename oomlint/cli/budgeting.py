"""What ``oomlint budget`` does: reads what is asked, finds the programs, adds up, and writes."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.amounts import size
from oomlint.beside_code import beside
from oomlint.budget import headers, held, limits, profiles, report, table
from oomlint.budget.dependence import marked
from oomlint.budget.environments import written_by
from oomlint.budget.find import ProgramFinder
from oomlint.budget.fitting import changes, fitting
from oomlint.budget.growing import Growing
from oomlint.budget.jobs import TYPED
from oomlint.budget.mistakes import BudgetError
from oomlint.budget.models import Models
from oomlint.budget.nouns import UNKNOWN_METHOD, Program
from oomlint.budget.reach import ProgramReach
from oomlint.budget.row import Setup
from oomlint.budget.rows import rows
from oomlint.budget.targets import targets
from oomlint.budget.values import values_of
from oomlint.budget.verdict import judge
from oomlint.checking import Checker, CheckJob, plain_mistake
from oomlint.cli.budget import BudgetFormat
from oomlint.cli.check import say, start_of
from oomlint.cli.files import current_folder, refuse_unwritable, write_report
from oomlint.cli.options import STANDARD
from oomlint.config import Settings, load_settings
from oomlint.discovery import discover
from oomlint.finding import Confidence, Severity, StoreFact
from oomlint.model.beside_mistakes import refuse_broken, unread
from oomlint.model.environments import UsersShell
from oomlint.model.given_command import GivenCommand
from oomlint.output import budget_html, diff
from oomlint.output.printer import Printer, wants_color
from oomlint.output.view import View
from oomlint.projects import Projects
from oomlint.registry import catalogue
from oomlint.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.budget.headers import DataFile
    from oomlint.budget.row import Row
    from oomlint.budget.targets import BudgetTarget
    from oomlint.budget.values import Values
    from oomlint.cli.budget import Arguments
    from oomlint.finding import Finding
    from oomlint.model.project import Module

_MOST_RANKS: Final = 4096
_LEAST_BYTES: Final = 1 << 20  # of a limit that is given without a unit
_MOST_GONE: Final = 3  # files that are named
_MOST_NAMES: Final = 8  # in a line
_FORKSERVER: Final = (3, 14)  # the default on Linux from this version of Python on


def budget(arguments: Arguments) -> int:
    """Add up, report, and return the exit status. Raises BudgetError and ConfigError."""
    view = View(current_folder())
    asked = [path for path in arguments.paths if os.path.isfile(path)]
    refuse_unwritable("--output-file", arguments.output_file, asked, Settings(), view.folder, force_exclude=False)
    found = budgets(arguments, view)
    _write(found, arguments, view)
    return 0 if all(one.verdict.fits for one in found) else 1


def budgets(arguments: Arguments, view: View) -> list[report.Budget]:
    """What all programs that are asked about take. Raises BudgetError and ConfigError."""
    user = UsersShell()
    try:
        asked = targets(arguments.paths, current_folder(), view.name, user)
    except BudgetError:
        for path in arguments.paths:  # a file without a command may be one that cannot be read
            _refuse_broken(path, view)
        raise
    given = values_of(arguments.set)
    ranks = _ranks(arguments.ranks)
    _limits(arguments, asked[0])  # what is wrong with options is no program's fault
    files = tuple(one for path in arguments.data for one in headers.read_all(path))
    for one in (one for one in files if one.broken):
        say(f"warning: --data {view.name(one.path)}: its pickle is broken: no more is known than the bytes of all that the file holds")
    known: dict[str, Projects] = {}
    programs = _all_programs(asked, files, arguments, known)
    given.refuse_unknown(name for _, program in programs for name in program.names)
    found, wrong = [], []
    for target, program in programs:
        try:
            found.append((_run_of(target, program), target.environment, _budget(target, program, arguments, given, ranks, files)))
        except BudgetError as error:
            wrong.append(f"{table.spot(error.place, view.name) or view.name(program.path)}: {error}")
    if not found:
        raise BudgetError(wrong[0])
    for line in wrong:
        say(f"error: {line}")
    for path, row, mistake in user.mistakes:
        where = "the command" if path == TYPED else f"{view.name(path)}:{row}"
        say(f"warning: {where}: {mistake}; what variables it sets is unknown")

    def hidden(names: frozenset[str]) -> dict[object, tuple[Row, ...]]:
        """The rows of all programs where nobody knows some variables of the environment."""
        with redirect_stderr(io.StringIO()), suppress(BudgetError):
            again = _all_programs(targets(arguments.paths, current_folder(), view.name, UsersShell(names)), files, arguments, known)
            return {_run_of(target, one): tuple(rows(one, _setup(target, one, arguments, given, ranks))) for target, one in again}
        return {}

    return marked(found, user.asked, hidden)


def _run_of(target: BudgetTarget, program: Program) -> object:
    """What tells the run of a program from those of others."""
    return target.path, target.place, program.path, program.cell


def _refuse_broken(path: str, view: View) -> None:
    """Raise BudgetError for a file of commands that cannot be read."""
    if beside(path) is None or not os.path.isfile(path):
        return
    try:
        refuse_broken(os.path.abspath(path))
    except SourceError as error:
        raise BudgetError(f"{view.name(error.path)}:{error.row}: {error.message}") from None


def _setup(target: BudgetTarget, program: Program, arguments: Arguments, given: Values, ranks: int | None) -> Setup:
    """What the table of a program holds for. Raises BudgetError."""
    said = next((one.method for one in program.loaders if one.method), "")
    opened_method = arguments.start_method is None and said == UNKNOWN_METHOD
    method = str(arguments.start_method) if arguments.start_method is not None else said if said and not opened_method else _default_method(arguments)
    count = ranks or target.ranks or (1 if target.command and not program.ranks_by_code else program.ranks)
    if count > _MOST_RANKS:
        raise BudgetError(f"the command starts {count} processes, and {_MOST_RANKS} on one machine are the most that is counted")
    return Setup(method, count, given, launcher=target.launcher, method_open=opened_method)


def _budget(target: BudgetTarget, program: Program, arguments: Arguments, given: Values, ranks: int | None, files: tuple[DataFile, ...]) -> report.Budget:
    """What one program takes. Raises BudgetError."""
    setup = _setup(target, program, arguments, given, ranks)
    opened = ranks is None and target.ranks is None and (target.ranks_open or (program.ranks_open and (not target.command or program.ranks_by_code)))
    here = _limits(arguments, target)
    if ranks or target.ranks:
        program = replace(program, ranks_place=None)  # not the line of another command that says the same
    listed = tuple(rows(program, setup))
    offered = report.offered(program, listed, (current_folder(), os.path.dirname(program.path)))
    return report.Budget(program, setup, listed, judge(program, setup, here), here, files, opened, fitting(program, setup, here), offered=offered)


def _write(found: Sequence[report.Budget], arguments: Arguments, view: View) -> None:
    if arguments.diff:
        changed = [change for one in found for change in changes(one.settings)]
        if not changed:
            say("nothing to change: " + ("it fits" if all(one.verdict.fits for one in found) else "no single setting that the code writes would make it fit"))
        _put(diff.patch(changed, view), arguments)
        return
    match arguments.output_format:
        case BudgetFormat.JSON:
            _put(json.dumps(report.entries(found, view.name), indent=2) + "\n", arguments)
        case BudgetFormat.HTML:
            _put(budget_html.text(found, view.name), arguments)
        case BudgetFormat.TABLE if arguments.output_file in {None, STANDARD}:
            plain = not table.holds(sys.stdout.encoding)
            Printer(sys.stdout, color=wants_color("auto", sys.stdout)).lines(table.lines(found, view.name, plain=plain))
        case BudgetFormat.TABLE:
            text = io.StringIO()
            Printer(text, color=False).lines(table.lines(found, view.name))
            _put(text.getvalue(), arguments)


def _put(text: str | bytes, arguments: Arguments) -> None:
    """Write to the file that is named, else to standard output. Raises ConfigError."""
    if arguments.output_file is not None and arguments.output_file != STANDARD:
        write_report(arguments.output_file, text)
    elif isinstance(text, bytes):
        sys.stdout.buffer.write(text)
    else:
        sys.stdout.write(text)


def _limits(arguments: Arguments, target: BudgetTarget) -> limits.JobResources:
    """What there is: by the options, else by the profile, else by the file that the command stands in, else this machine's."""
    chosen = arguments.profile
    known = profiles.profile(chosen) if chosen is not None else None

    def of(what: str, asked: str | None, told: limits.Limit | None, here: limits.Limit | None) -> limits.Limit | None:
        if asked is not None:
            return limits.Limit(_size(f"--{what}", asked), f"--{what}", asked)
        if known is not None and chosen is not None:
            return known.limit(chosen, what) or told or limits.Limit(None, f"--profile {chosen} does not say")
        return told or here

    cores = known.cores if known is not None else None
    return limits.JobResources(
        of("ram", arguments.ram, target.given.ram, limits.of_ram()),
        of("shm", arguments.shm, target.given.shm, limits.of_shm()),
        cores or target.given.cores,
        of("vram", arguments.vram, None, None) if arguments.vram or (known is not None and known.vram) else None,
        _descriptors(arguments.descriptors) or target.given.files or (limits.of_files() if known is None else None),
    )


def _size(option: str, given: str) -> int:
    try:
        found = size(given)
    except ValueError as error:
        raise BudgetError(f"{option}: {error}") from None
    if given.isdigit() and 0 < found < _LEAST_BYTES:
        raise BudgetError(f"{option}: {given} is a number of bytes; name the unit: {given}GiB")
    return found


def _descriptors(given: str | None) -> limits.Limit | None:
    if given is not None and not re.fullmatch(r"[1-9]\d{0,8}", given):
        raise BudgetError(f"--descriptors: {given!r} is no number of files from 1 to 999999999")
    return limits.Limit(int(given), "--descriptors", given) if given is not None else None


def _ranks(given: str | None) -> int | None:
    if given is None:
        return None
    if not re.fullmatch(r"\d{1,6}", given) or not 0 < int(given) <= _MOST_RANKS:
        raise BudgetError(f"--ranks: {given!r} is no number of processes from 1 to {_MOST_RANKS}")
    return int(given)


def _default_method(arguments: Arguments) -> str:
    if not sys.platform.startswith("linux") and arguments.profile is None:  # all profiles have Linux
        return "spawn"
    return "forkserver" if sys.version_info >= _FORKSERVER else "fork"


# -- programs ------------------------------------------------------------------------------------------------------------


def _all_programs(
    asked: Sequence[BudgetTarget], files: Sequence[DataFile], arguments: Arguments, known: dict[str, Projects]
) -> list[tuple[BudgetTarget, Program]]:
    """The programs of all targets. Of several, those that make no loader are left out. ``known`` are projects by folder."""
    found: list[tuple[BudgetTarget, Program]] = []
    wrong: list[BudgetError] = []
    for target in asked:
        try:
            found.extend((target, one) for one in _programs(target, files, arguments, known))
        except BudgetError as error:
            wrong.append(error)
    if not found:
        raise wrong[0]
    return found


def _programs(target: BudgetTarget, files: Sequence[DataFile], arguments: Arguments, known: dict[str, Projects]) -> list[Program]:
    """The programs of a target. ``known`` are the projects of those before it, by folder."""
    folder = target.path if os.path.isdir(target.path) else os.path.dirname(target.path)
    codes = [code for code, _ in catalogue()]
    config = Path(arguments.config) if arguments.config else None
    settings, root = load_settings(config, arguments.isolated, Path(start_of([target.path], folder)), codes, ())
    # What was learnt under another command does not hold under this one; files and their trees stay as they are.
    projects = known[folder].over({}) if folder in known else Projects(str(root), settings, {}, (folder,) if os.path.isdir(target.path) else (), held=True)
    known[folder] = projects
    paths = list(discover([target.path], settings, root).files) if os.path.isdir(target.path) else [target.path]
    try:
        found = _found(target, paths, projects, settings, str(root), files)
    except SourceError as error:
        mistake = plain_mistake(error)
        raise BudgetError(f"{table.spot(mistake.place, View(current_folder()).name)}: {mistake.message}") from None
    except RecursionError:
        raise BudgetError(f"{View(current_folder()).name(target.path)}: it is nested too deeply to be read") from None
    if not found:
        what = f"cell {target.cell} of {View(current_folder()).name(target.path)}" if target.cell else View(current_folder()).name(target.path)
        raise BudgetError(f"{what}: {_why_none(target, projects, files)}, so there is nothing to add up")
    return found


def _why_none(target: BudgetTarget, projects: Projects, files: Sequence[DataFile]) -> str:
    """Why no loader was found."""
    place = None if os.path.isdir(target.path) or target.cell else ProgramFinder(projects.of(target.path), files).any_loader(target.path)
    if place is None:
        return "no DataLoader is made there that could be seen"
    run = "the command" if target.command else "a plain run"
    return f"the DataLoader at {table.spot(place, View(current_folder()).name)} is made under options that {run} does not give"


def _found(target: BudgetTarget, paths: Sequence[str], projects: Projects, settings: Settings, root: str, files: Sequence[DataFile]) -> list[Program]:
    found: list[Program] = []
    wrong: list[BudgetError] = []
    unread_files: set[str] = set()
    by_project: dict[int, tuple[ProgramFinder, list[str]]] = {}
    if target.refused:
        say(f"warning: torchrun refuses `{target.refused}`: it takes a number above zero, or a kind of device; the run ends there")
    for path in paths:
        project = projects.of(path)
        by_project.setdefault(id(project), (ProgramFinder(project, files), []))[1].append(path)
    for finder, own in by_project.values():
        inside = written_by(target.environment, (module.source for path in own for module in finder.reached(path)))
        finder.project.command = GivenCommand(target.options, own[-1], inside, target.place)
        for flag, close in finder.evaluator.options.words_given.strays().items():
            meant = f"; did you mean `{close}`?" if close else ""
            say(f"warning: {View(current_folder()).name(own[0])} has no option `{flag}`, as far as its files show: it is left out{meant}")
        for words, wanted, declared in finder.evaluator.options.words_given.refused():
            say(f"warning: {table.spot(declared, View(current_folder()).name)}: argparse refuses `{words}`: the option takes {wanted}")
        for path in finder.scripts(own) if os.path.isdir(target.path) else own:
            try:
                programs = [one for one in finder.programs(path) if not target.cell or one.cell == target.cell]
            except BudgetError as error:
                wrong.append(BudgetError(f"{View(current_folder()).name(path)}: {error}"))
                continue
            alone = not programs and not target.cell and not os.path.isdir(target.path) and finder.any_loader(path) is None
            if programs or alone:
                made = _with_all(programs or [Program(path, 0, (), ())], path, finder, projects, settings, root)
                kept = [one for one in made if not alone or one.trained or one.held]
                for key, (where, close) in finder.evaluator.settings.strays.items():
                    meant = f"; did you mean `{close}`?" if close else ""
                    say(f"warning: {View(current_folder()).name(where)}: there is no `{key}`, which the command sets, and Hydra refuses that{meant}")
                for key, where in finder.evaluator.settings.repeated.items():
                    say(f"warning: {View(current_folder()).name(where)}: there is a `{key}`, and Hydra refuses to add it with `+`")
                finder.evaluator.settings.strays.clear()
                finder.evaluator.settings.repeated.clear()
                for place, shape in finder.containers.refused.items():
                    say(f"warning: {table.spot(place, View(current_folder()).name)}: no array has the shape {shape}: the run ends there")
                finder.containers.refused.clear()
                for word, place in dict.fromkeys(pair for one in kept for noun in one.loaders for pair in noun.refused):
                    say(f"warning: {table.spot(place, View(current_folder()).name)}: torch refuses {word}: the run ends there")
                for one in kept:
                    _say_unread(one, finder, unread_files)
                found += kept
    if wrong and not found:
        raise wrong[0]
    for mistake in wrong:
        say(f"error: {mistake}")
    return found


def _with_all(programs: Sequence[Program], path: str, finder: ProgramFinder, projects: Projects, settings: Settings, root: str) -> Iterator[Program]:
    """Programs of a file, with what they hold beside loaders and datasets."""
    reached = finder.reached(path)
    reach = ProgramReach(finder.project, reached)
    said = [item for item in _said(reached, projects, settings, root) if reach.runs(item.place)]
    stored = {fact.place for item in said for fact in item.of_noun(StoreFact)}
    checkpoints = held.one_at_a_time([one for one in held.checkpoints(reached, finder.project, finder.files) if reach.runs(one.place)])
    growing = Growing(finder.project, reached, reach.runs)
    trained = tuple(Models(finder.project).of(reached, reach.runs))
    for one in programs:
        containers = [container for source in one.sources for container in source.containers]
        told = tuple(held.of_findings(said, containers, growing, finder.phases(path), one))
        kept = (*told, *growing.of(one, told, stored))
        yield replace(one, held=(*kept, *checkpoints), trained=trained)


def _say_unread(program: Program, finder: ProgramFinder, told: set[str]) -> None:
    """Name the files of settings, or of data, that gave nothing, why, and what nobody knows of the program; each file once, since programs share them."""
    try:
        listed = rows(program, Setup("fork", 1, values_of(())))
    except BudgetError:
        return  # said where the table is made
    names = list(dict.fromkeys(str(name) for row in listed for name in row.size.missing))
    gone: list[str] = []
    for path in [path for path in finder.evaluator.settings.unread if path not in told] if names else ():
        told.add(path)
        project, name = finder.project, View(current_folder()).name(path)
        shown = path if name.startswith("../..") else name  # of another machine, most likely: as the code has it
        broken = unread(path, project.raw(path)) if os.path.isfile(path) else None
        where = f"{shown}:{broken[0]}" if broken is not None else shown
        if not os.path.isfile(path):
            gone.append(shown)
            continue
        why = broken[1] if broken is not None else "it cannot be read"
        say(f"warning: {where}: {why}; the program reads it, so that it may say what is unknown: {', '.join(names[:_MOST_NAMES])}")
    if gone:
        more = f" and {len(gone) - _MOST_GONE} more" if len(gone) > _MOST_GONE else ""
        where, why = ", ".join(gone[:_MOST_GONE]) + more, "there is no such file" if len(gone) == 1 else "there are no such files"
        it = "it, so that it" if len(gone) == 1 else "them, so that they"
        say(f"warning: {where}: {why}; the program reads {it} may say what is unknown: {', '.join(names[:_MOST_NAMES])}")


def _said(reached: Sequence[Module], projects: Projects, settings: Settings, root: str) -> list[Finding]:
    """What the rules find in the files that a program reaches."""
    every = settings.having(severity=Severity.NOTE, min_confidence=Confidence.LOW)
    checker = Checker(CheckJob(every, root, held.CODES, True, {}, suppress=False), projects)  # noqa: FBT003 - the scout is asked
    found: list[Finding] = []
    for module in reached:
        looked = checker.look(module.path)
        if looked.parse:
            linted = checker.lint(looked)
            found.extend(item for item in linted.findings if item.code is not None)
            for failure in linted.failures:
                say(f"internal error: {failure.code} failed on {failure.path}: {failure.cause}")
    return found
