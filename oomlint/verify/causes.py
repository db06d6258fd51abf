"""Why nothing could be found out, as a kind with a next step; and reasons in words that are the same in each run."""

from __future__ import annotations

import ast
import os
import re
from dataclasses import replace
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Final

from oomlint.model.users import users_of
from oomlint.verify.ast_names import is_main
from oomlint.verify.case import Outcome, Part

if TYPE_CHECKING:
    from oomlint.verify.case import Verdict
    from oomlint.verify.session import Session


class Cause(Enum):
    """What is missing, and what would help. Patterns are of the harness' own words and of Python's, the most telling kind first."""

    ADDS = (r"the patch adds (OOM\d+)", "fix what the patch adds, too")
    MEANT = (r"is for you to say", "compare both results: whether the difference is meant only you know")
    MODULE = (r"No module named '(\w+)|, and (\w+) is not installed", "install what provides the module `{}` for the interpreter that runs the code")
    TIME = (r"not at its end after|took more than [\d.]+ s\b|takes too long", "give it more time: `--time-limit 60`")
    MEMORY = (r"more than [\d,]+ MiB of memory", "allow it more memory: `--memory-cap 8GiB`, or a command with less data: `--command`")
    COMMAND = (r"[Yy]our command", "choose a command that runs the row of the finding, for ten steps or more: `--command`")
    RANDOM = (r"at random|random numbers|between two runs|does not repeat", "seed all generators in the program, or run it as you do: `--command`")
    DATA = (
        r"not in the project|no data was found|FileNotFound|No such file|with the data that|[Tt]oo (?:few|small|little)|are needed to see|could not be made",
        "put a sample of your data where the program reads it, or name a function that makes the dataset: `--factory package.module:function`",
    )
    UNMEASURED = (
        r"what OOM\d+ speaks of is not measured",
        "compare runs of your own without the change and with it: `oomlint trace -- python {script}` watches their memory",
    )
    UNRUN = (r"", 'run the program itself: `--command "python {script}"`, with your options and few steps')

    @property
    def pattern(self) -> str:
        """What a reason of this kind holds."""
        return self.value[0]

    @property
    def hint(self) -> str:
        """The next step; `{}` stands for what the pattern has caught, `{script}` for a program that runs the code."""
        return self.value[1]


_PASSING: Final = (
    (re.compile(r"(?<![\w./])(?:/[^\s/'\"`,;:()]+)+/([^\s/'\"`,;:()]+)"), r"\1"),  # whole paths lead to copies of the project
    (re.compile(r"\b0x[0-9a-fA-F]{4,}\b"), "0x..."),
    (re.compile(r"\btmp[a-z0-9_]{8}\b"), "tmp..."),
    (re.compile(r"\b(pid|process|port)([ =:]+)\d+\b"), r"\1\2..."),
    (re.compile(r"\b\d+\.\d{2,}(?= ?(?:m?s|seconds)\b)"), "..."),
    (re.compile(r"\b\d+(?= (?:attempts?|trials?|retries)\b)"), "some"),
)


def explained(session: Session, verdict: Verdict) -> Verdict:
    """An inconclusive verdict in words that stay, with its next step."""
    if verdict.outcome is not Outcome.INCONCLUSIVE:
        return verdict
    reason = steady(verdict.reason)
    return replace(verdict, reason=reason, next_step=step(reason, commanded=bool(session.options.command), script=_script(session)))


def _script(session: Session) -> str:
    """A file that is started as a program, the finding's own or the nearest that uses it, as the project's root names it; empty where none is known."""
    own = session.case.finding.place.path
    files = (own, *users_of(session.project, own))
    trees = {path: session.case.tree(Part.BEFORE, path) for path in files if path.endswith(".py")}
    guarded = (path for path, tree in trees.items() if tree is not None and any(isinstance(item, ast.If) and is_main(item.test) for item in tree.body))
    # Without a guard it is a program if it does something and nobody imports it.
    plain = (path for path, tree in trees.items() if tree is not None and _acts(tree) and not any(users_of(session.project, path)))
    found = next(chain(guarded, plain), None)
    return os.path.relpath(found, session.case.root) if found is not None else ""


def _acts(tree: ast.Module) -> bool:
    """Whether a file does more than define when it is run: a loop, a block, or a call for what it does."""
    calls = (isinstance(item, ast.Expr) and isinstance(item.value, ast.Call) for item in tree.body)
    return any(calls) or any(isinstance(item, ast.For | ast.While | ast.With) for item in tree.body)


def steady(reason: str) -> str:
    """The reason without what differs from run to run: places of copies, addresses, names made at random, numbers of processes and times."""
    for pattern, word in _PASSING:
        reason = pattern.sub(word, reason)
    return reason


def step(reason: str, *, commanded: bool = False, script: str = "") -> str:
    """What to do next; empty where nothing helps."""
    for cause in Cause:
        found = re.search(cause.pattern, reason)
        if found is not None:
            return (
                Cause.COMMAND.hint
                if commanded and cause is Cause.UNRUN
                else cause.hint.format(*filter(None, found.groups()), script=script or "YOUR_SCRIPT.py")
            )
    return ""
