"""What ``oomlint budget`` does: reads what is asked, finds the programs, adds up, and writes."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from oomlint.amounts import size
from oomlint.budget import command, headers, held, limits, report, table
from oomlint.budget.find import Finder
from oomlint.budget.mistakes import BudgetError
from oomlint.budget.reach import Reach
from oomlint.budget.rows import Setup, rows
from oomlint.budget.values import values_of
from oomlint.budget.verdict import judge
from oomlint.checking import Checker, Job
from oomlint.cli.budget import Format
from oomlint.cli.check import say, start_of
from oomlint.cli.files import current_folder
from oomlint.config import load_settings
from oomlint.discovery import discover
from oomlint.finding import Confidence, Severity
from oomlint.output.view import View
from oomlint.projects import Projects
from oomlint.registry import catalogue
from oomlint.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.budget.headers import DataFile
    from oomlint.budget.nouns import Program
    from oomlint.cli.budget import Arguments
    from oomlint.config import Settings
    from oomlint.finding import Finding
    from oomlint.model.project import Module

_CELL: Final = re.compile(r"(.+\.ipynb):(\d+)")
_MOST_RANKS: Final = 4096
_FORKSERVER: Final = (3, 14)  # the default on Linux from this version of Python on


class _Target(NamedTuple):
    """What is asked about."""

    path: str
    options: tuple[str, ...] = ()
    ranks: int | None = None
    cell: int = 0
    command: bool = False


def budget(arguments: Arguments) -> int:
    """Add up, report, and return the exit status. Raises BudgetError and ConfigError."""
    folder = current_folder()
    target = _target(arguments.paths, folder)
    given = values_of(arguments.set)
    ram = limits.Limit(_size("--ram", arguments.ram), "--ram", arguments.ram) if arguments.ram else limits.of_ram()
    shm = limits.Limit(_size("--shm", arguments.shm), "--shm", arguments.shm) if arguments.shm else limits.of_shm()
    ranks = _ranks(arguments.ranks)
    files = tuple(headers.read(path) for path in arguments.data)
    programs = _programs(target, files, arguments)
    given.refuse_unknown(name for program in programs for name in program.names)
    found = []
    for program in programs:
        said = next((one.method for one in program.loaders if one.method), "")
        method = str(arguments.start_method) if arguments.start_method is not None else said or _default_method()
        count = ranks or target.ranks or (1 if target.command and not program.ranks_by_code else program.ranks)
        setup = Setup(method, count, given)
        opened = program.ranks_open and ranks is None and target.ranks is None and not target.command
        found.append(report.Budget(program, setup, tuple(rows(program, setup)), judge(program, setup, ram, shm), ram, shm, files, opened))
    view = View(folder)
    if arguments.output_format is Format.JSON:
        sys.stdout.write(json.dumps(report.entries(found, view.name), indent=2) + "\n")
    else:
        sys.stdout.write(table.text(found, view.name))
    return 0 if all(one.verdict.fits for one in found) else 1


def _target(paths: Sequence[str], folder: str) -> _Target:
    if len(paths) > 1:
        raise BudgetError("one script, folder or command at a time; a command stands in quotes")
    word = paths[0] if paths else "."
    if os.path.exists(word):
        return _Target(os.path.abspath(word))
    cell = _CELL.fullmatch(word)
    if cell and os.path.isfile(cell[1]):
        return _Target(os.path.abspath(cell[1]), cell=int(cell[2]))
    if len(word.split()) < 2:  # noqa: PLR2004 - a command has a script, too
        raise BudgetError(f"{word}: there is no such file or folder")
    run = command.read(word, folder)
    return _Target(run.script, run.options, run.ranks, command=True)


def _size(option: str, given: str) -> int:
    try:
        return size(given)
    except ValueError as error:
        raise BudgetError(f"{option}: {error}") from None


def _ranks(given: str | None) -> int | None:
    if given is None:
        return None
    if not re.fullmatch(r"\d{1,6}", given) or not 0 < int(given) <= _MOST_RANKS:
        raise BudgetError(f"--ranks: {given!r} is no number of processes from 1 to {_MOST_RANKS}")
    return int(given)


def _default_method() -> str:
    if not sys.platform.startswith("linux"):
        return "spawn"
    return "forkserver" if sys.version_info >= _FORKSERVER else "fork"


# -- programs ------------------------------------------------------------------------------------------------------------


def _programs(target: _Target, files: Sequence[DataFile], arguments: Arguments) -> list[Program]:
    folder = target.path if os.path.isdir(target.path) else os.path.dirname(target.path)
    known = [code for code, _ in catalogue()]
    config = Path(arguments.config) if arguments.config else None
    settings, root = load_settings(config, arguments.isolated, Path(start_of([target.path], folder)), known, ())
    projects = Projects(str(root), settings, {}, (folder,) if os.path.isdir(target.path) else ())
    paths = list(discover([target.path], settings, root).files) if os.path.isdir(target.path) else [target.path]
    try:
        found = _found(target, paths, projects, settings, str(root), files)
    except SourceError as error:
        raise BudgetError(f"{View(current_folder()).name(error.path)}:{error.row}: {error.message}") from None
    except RecursionError:
        raise BudgetError(f"{View(current_folder()).name(target.path)}: it is nested too deeply to be read") from None
    if not found:
        what = f"cell {target.cell} of {View(current_folder()).name(target.path)}" if target.cell else View(current_folder()).name(target.path)
        raise BudgetError(f"{what}: no DataLoader is made there that could be seen, so there is nothing to add up")
    return found


def _found(target: _Target, paths: Sequence[str], projects: Projects, settings: Settings, root: str, files: Sequence[DataFile]) -> list[Program]:
    found: list[Program] = []
    by_project: dict[int, tuple[Finder, list[str]]] = {}
    for path in paths:
        project = projects.of(path)
        project.command = target.options
        by_project.setdefault(id(project), (Finder(project, files), []))[1].append(path)
    for finder, own in by_project.values():
        for path in finder.scripts(own) if os.path.isdir(target.path) else own:
            programs = [one for one in finder.programs(path) if not target.cell or one.cell == target.cell]
            if not programs:
                continue
            reached = finder.reached(path)
            reach = Reach(finder.project, reached)
            said = [item for item in _said(reached, projects, settings, root) if reach.runs(item.place)]
            checkpoints = held.one_at_a_time([one for one in held.checkpoints(reached, finder.project, files) if reach.runs(one.place)])
            for one in programs:
                containers = [container for source in one.sources for container in source.containers]
                found.append(replace(one, held=(*held.of_findings(said, containers), *checkpoints)))
    return found


def _said(reached: Sequence[Module], projects: Projects, settings: Settings, root: str) -> list[Finding]:
    """What the rules find in the files that a program reaches."""
    every = replace(settings, severity=Severity.NOTE, min_confidence=Confidence.LOW)
    checker = Checker(Job(every, root, held.CODES, True, {}, suppress=False), projects)  # noqa: FBT003 - the scout is asked
    found: list[Finding] = []
    for module in reached:
        looked = checker.look(module.path)
        if looked.parse:
            linted = checker.lint(looked)
            found.extend(item for item in linted.findings if item.code is not None)
            for failure in linted.failures:
                say(f"internal error: {failure.code} failed on {failure.path}: {failure.cause}")
    return found
