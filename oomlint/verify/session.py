"""One case on the session: the trees of its two parts, and a way to run jobs on either."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oomlint.config import load_settings
from oomlint.model.users import imported_by
from oomlint.registry import catalogue
from oomlint.verify.case import Part
from oomlint.verify.jobs import Job, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from oomlint.config import Settings
    from oomlint.model.project import Project
    from oomlint.verify.case import Case
    from oomlint.verify.jobs import Done
    from oomlint.verify.project_copy import Trees
    from oomlint.verify.sandbox_runner import SandboxRunner
    from oomlint.verify.thresholds import Price


@cache
def nearest(folder: str) -> tuple[Settings, str]:
    """The settings that hold in a folder, and the root of its project."""
    settings, root = load_settings(None, False, Path(folder), [code for code, _ in catalogue()])  # noqa: FBT003 - its own signature
    return settings, str(root)


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """How a verification is run."""

    limits: Limits = field(default_factory=Limits)
    repeat: int = 3  # repetitions of what is measured with noise
    factory: str | None = None  # "package.module:function", a dataset
    command: str | None = None  # of the user, run as it stands
    prepare: str | None = None  # of the user, run once before anything else, such as one that makes data


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all cases of a project share.

    ``elsewhere`` gives those of another project, which lies in this one and has settings of its own.
    """

    root: str
    settings: Settings
    options: VerifyOptions
    python: str
    unsandboxed: bool = False
    keep: str | None = None  # a folder in which the trees of all cases stay
    pass_env: tuple[str, ...] = ()  # environment variables that jobs are given beside the usual
    read: tuple[str, ...] = ()  # absolute: files and folders that jobs see beside the usual
    elsewhere: Callable[[Settings, str], Surroundings] | None = field(default=None, compare=False)


class Stopped(Exception):  # noqa: N818 -- nothing is wrong with the harness
    """It cannot be found out; the message says why."""


class Session:
    """What a strategy works with."""

    def __init__(self, case: Case, project: Project, settings: Settings, options: VerifyOptions, runner: SandboxRunner, trees: Trees) -> None:
        self.case = case
        self.project = project  # the model of the program *before*; ask it for constants, callers and classes
        self.settings = settings
        self.options = options
        self.prices: list[Price] = []  # what the strategies have seen the program take, before and after
        self.eased = ""  # the class that was measured to take clearly less memory after, and no more reads
        self._runner = runner
        self._trees = trees

    def folder(self, part: Part) -> str:
        """The copy of the project, absolute. It is as the project is, whatever an earlier job has written."""
        return self._trees.folder(part)

    def path(self, part: Part, path: str | None = None) -> str:
        """The copy of a file, the finding's own by default. Of a notebook the program that its cells are, in a file of Python beside it."""
        path = path or self.case.finding.place.path
        return self._trees.program(part, path)

    def without_data(self) -> AbstractContextManager[None]:
        """Meanwhile the copies lack the user's data files, so that others can be made up in their place."""
        return self._trees.without_data()

    def stood_in(self, path: str, name: str, answer: Mapping[str, Any]) -> list[str]:
        """What an answer says of libraries that were replaced by a stand-in, as far as the code under a name of a file has to do with them."""
        used = imported_by(self.project, path, name.partition(".")[0])
        return [f"{library}: replaced by a stand-in" for library in answer.get("stubbed", ()) if used is None or library.partition(".")[0] in used]

    def answer(self, part: Part, call: str, arguments: dict[str, Any], **how: Any) -> dict[str, Any]:
        """What a function answers that is run as by :meth:`run`. Raises Stopped where there is no answer."""
        done = self.run(part, call, arguments, **how)
        if not isinstance(done.answer, dict):
            raise Stopped(f"after the fix: {done.failure}" if part is Part.AFTER else done.failure)
        return done.answer

    def run(
        self, part: Part, call: str, arguments: dict[str, Any], *, seconds: float | None = None, fresh: bool = False, timeline: bool = False, **limits: int
    ) -> Done:
        """Run a function of :mod:`oomlint.verify.child` on one part.

        ``seconds`` and ``memory`` are what it may take where the user has no other wish: less time for all is less for it too, more is more.
        """
        asked, usual = self.options.limits, Limits()
        share = min(1.0, asked.seconds / usual.seconds)
        if "seconds" in arguments:
            arguments = {**arguments, "seconds": arguments["seconds"] * share}
        most = max(seconds or usual.seconds, asked.seconds) if share == 1.0 else (seconds or usual.seconds) * share
        if asked.memory < usual.memory and "memory" in limits:
            limits["memory"] = min(limits["memory"], asked.memory)
        allowed = replace(asked, seconds=most, **limits)
        return self._runner.run(Job(call, arguments, self.folder(part), allowed, fresh=fresh, timeline=timeline))
