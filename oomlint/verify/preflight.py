"""What a user has named for a run is tried before anything is judged: a command that prepares the copy, and a function that makes the dataset."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from oomlint.verify.case import Part
from oomlint.verify.jobs import Job, SandboxError

if TYPE_CHECKING:
    from oomlint.verify.jobs import Done
    from oomlint.verify.project_copy import Base
    from oomlint.verify.sandbox_runner import SandboxRunner
    from oomlint.verify.session import Surroundings

SECONDS: Final = 60.0  # for what makes the project's data, and for a dataset


def prepare(runner: SandboxRunner, base: Base, around: Surroundings) -> None:
    """Run the user's command in the copy, then see whether the user's function makes a dataset. Raises SandboxError where either does not work."""
    options = around.options
    limits = replace(options.limits, seconds=max(SECONDS, options.limits.seconds))
    if options.prepare:
        done = runner.run(Job("server.preflight:prepare", {"command": options.prepare}, base.folder, limits))
        cause = _cause(done)
        if cause:
            cause = cause.replace(os.path.join(base.folder, ""), "")  # a copy is nothing to look for
            raise SandboxError(f"{_label(base, 'verify.prepare')}: `{options.prepare}` {cause}")
    if options.factory:
        folder = base.slot(Part.BEFORE).put_right({})
        done = runner.run(Job("server.preflight:factory", {"name": options.factory, "root": folder}, folder, limits))
        cause = done.answer["cause"] if done.answer else f"`{options.factory}`: {done.failure}"
        if cause:
            name = "verify.factory" if around.settings.verify.factory == options.factory else "--factory"
            raise SandboxError(f"{_label(base, name)}: {cause}")


def _cause(done: Done) -> str:
    """Why the command has not come to its end; empty where it has."""
    if done.answer is None:
        return f"fails: {done.failure}"
    if done.answer["cause"]:
        return f"cannot be started: {done.answer['cause']}"
    if not done.answer["status"]:
        return ""
    lines = [line.strip() for line in (done.errors.strip() or done.printed.strip()).splitlines()]
    return f"exits with {done.answer['status']}" + (f": {lines[-1]}" if lines else "")


def _label(base: Base, name: str) -> str:
    """The setting, with the folder of its project where that is not the current one."""
    folder = os.path.relpath(base.root, os.path.realpath(os.curdir))
    return name if folder == os.curdir else f"{folder}: {name}"
