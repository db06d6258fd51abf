"""``oomlint check --fix --verify``: fixes are verified first, and only those that are confirmed are applied."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint import engine
from oomlint.cli.verification import VerifyRequest, shown_python, surroundings, verified
from oomlint.config import ConfigError, of_lines
from oomlint.finding import Safety
from oomlint.fixing import key
from oomlint.output.verdicts_json import verdict_entry
from oomlint.output.verdicts_numbers import total
from oomlint.output.verdicts_remark import remark
from oomlint.output.view import one_line
from oomlint.verify.case import Outcome
from oomlint.verify.jobs import SandboxError
from oomlint.verify.run import cases_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.cli import check
    from oomlint.config import Settings
    from oomlint.finding import Finding
    from oomlint.output.github import Remark
    from oomlint.output.verdicts_numbers import Item
    from oomlint.output.view import View

    Config = tuple[str | None, Sequence[str]]  # the settings file that a line names, and settings that go over those of files


class Approval:
    """Which fixes are confirmed. It knows them again after lines have moved."""

    def __init__(self, items: Sequence[Item], python: str) -> None:
        self._items = items
        self._python = python
        self._known = {(key(case.finding), case.finding.place): verdict for case, verdict in items}
        self._late: dict[tuple[object, ...], Finding] = {}  # that came up only when others were fixed

    def __call__(self, finding: Finding) -> bool:
        """Whether the fix of a finding may be applied. Nothing has moved yet when a finding is asked for: later rounds ask only for what is new."""
        known = self._known.get((key(finding), finding.place))
        if known is None:
            self._late[key(finding)] = finding
        return known is not None and known.outcome is Outcome.CONFIRMED

    @property
    def complete(self) -> bool:
        """Whether every fix that was tried is confirmed."""
        return not self._late and all(verdict.outcome is Outcome.CONFIRMED for _, verdict in self._items)

    def summary(self) -> str:
        """How many of which; empty where there was nothing to verify."""
        return total(self._items) if self._items else ""

    def notices(self, view: View) -> Iterator[str]:
        """The fixes that are not applied, and why."""
        for case, verdict in self._items:
            if verdict.outcome is not Outcome.CONFIRMED:
                yield f"{view.spot(case.finding.place)}: the fix of {case.code} is not applied: {verdict.outcome.value}: {one_line(verdict.reason)}"
        for finding in self._late.values():
            yield f"{view.spot(finding.place)}: the fix of {finding.code} is not applied: it came up with other fixes, and is not verified yet"

    def confirmed(self, view: View) -> Iterator[str]:
        """The fixes that may be applied, and why."""
        for case, verdict in self._items:
            if verdict.outcome is Outcome.CONFIRMED:
                yield f"{view.spot(case.finding.place)}: the fix of {case.code} is confirmed: {one_line(verdict.reason)}"

    def remark(self, finding: Finding, *, fixed: bool = False) -> Remark | None:
        """What an annotation says of the verdict. What is left is as grave as it was."""
        item = self._item(finding, fixed=fixed)
        return (remark(item, fixed=True) if fixed else remark(item)._replace(level=None)) if item else None

    def entry(self, finding: Finding, *, fixed: bool = False) -> dict[str, object]:
        """What JSON says of the verdict, ``None`` where there is none."""
        item = self._item(finding, fixed=fixed)
        return {"verdict": verdict_entry(item, self._python) if item else None}

    def _item(self, finding: Finding, *, fixed: bool = False) -> Item | None:
        finding = finding.as_found
        alike = [item for item in self._items if key(item[0].finding) == key(finding)]
        same = [item for item in alike if (item[1].outcome is Outcome.CONFIRMED) is fixed] or alike
        return min(same, key=lambda item: abs(item[0].finding.place.row - finding.place.row), default=None)


def approval(settings: Settings, root: str, options: engine.RunOptions, view: View, arguments: check.Arguments, config: Config, start: str) -> Approval:
    """Verify the fixes that ``options`` would apply. Raises ConfigError.

    ``config`` is what the line says of settings, ``start`` the folder from which settings were looked for.
    """
    paths = arguments.paths or (".",)
    allowed = {Safety.SAFE, Safety.UNSAFE} if options.unsafe_fixes else {Safety.SAFE}
    file, lines = config
    nested = file is None and not arguments.isolated  # a project in the project has its own settings
    asked = VerifyRequest(cache=options.cache, config=file, over=of_lines(lines), start=start, isolated=arguments.isolated, trust=arguments.trust)
    around = surroundings(settings, os.path.abspath(root), asked)
    report = engine.run(paths, settings, root, replace(options, fix=False, write=False, once=False))
    within = [item for item in report.findings if item.fix is not None and item.fix.safety is not Safety.DISPLAY]
    cases = [
        case
        for case in cases_of([item.as_found for item in within], around.root, settings, nested=nested)
        if case.has_fix and not case.by_hand and case.finding.fix and case.finding.fix.safety in allowed
    ]
    try:
        with closing(verified(cases, around, view, cache=asked.cache, bar=not arguments.quiet)) as found:
            return Approval(list(found), shown_python(around.python, view))
    except SandboxError as error:
        raise ConfigError(str(error)) from None
