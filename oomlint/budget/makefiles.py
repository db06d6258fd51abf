"""The variables of a Makefile, and which of them it exports."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.budget.variables import literal, read_file
from oomlint.model.environments import UNKNOWN_SETTING, UNSAID, Environment, Setting
from oomlint.model.shell_runs import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from oomlint.finding import Place

_ASSIGNMENT: Final = re.compile(
    r"(?:(?P<word>export|override|private|unexport)[ \t]+)*(?P<name>[\w.-]+)[ \t]*(?P<how>[?:+!]{0,3}=)[ \t]*(?P<text>.*)", re.DOTALL
)
_LOGICAL: Final = re.compile(r"(?:[^\\\n]|\\\r?\n|\\.)+")
_RULE: Final = re.compile(r"(?P<targets>[^\s#:=][^#:=]*):{1,2}(?!=)[ \t]*(?P<rest>.*)", re.DOTALL)
_OF_MAKE: Final = re.compile(r"\$\$|\$[({]([\w.-]+)[)}]|\$(.)", re.DOTALL)
_DEEPEST: Final = 6
OF_MAKE_FLAGS: Final = "MAKEFLAGS"  # the options of `make`, as it hands them on
_ENVIRONMENT_WINS: Final = re.compile(r"-?[BbikLmnpqrRsStvw]*e[A-Za-z]*|--environment-overrides")


def environment_wins(flags: Iterable[str]) -> bool:
    """Whether options of `make` let the environment win over what a Makefile assigns."""
    return any(_ENVIRONMENT_WINS.fullmatch(one) for one in flags)


class Makefile:
    """The variables of a Makefile, and which of them it exports."""

    def __init__(self, outer: Environment, pinned: Mapping[str, str]) -> None:
        self.outer = outer
        flags = outer.settings.get(OF_MAKE_FLAGS, UNSAID)
        self._by_environment = environment_wins((flags.text or "").split())  # whether it wins over what files assign
        own = outer.settings if self._by_environment else {}
        self.pinned = {**{name: one for name, one in own.items() if not one.unset}, **{name: Setting(text) for name, text in pinned.items()}}
        self._overridden: set[str] = set()
        self._set: dict[str, tuple[str | None, Place, bool]] = {}  # the text, and whether that holds only where the user's shell sets none
        self._of_targets: dict[tuple[str, str], Setting] = {}
        self._needs: dict[str, set[str]] = {}  # what targets are made of
        self._exported: dict[str, bool] = dict.fromkeys(pinned, True)
        self._all = False
        self._opened = False

    def read(self, path: str, content: str, depth: int = 0) -> None:
        """Read a Makefile, and those that it includes."""
        where = rows_of(path, content)
        tests = defined = 0
        for match in _LOGICAL.finditer(content):
            row = match[0]
            if row.startswith("\t"):
                continue
            row = re.sub(r"(?<!\\)#.*", "", row, flags=re.DOTALL).strip().replace("\\\n", " ")
            first, _, rest = row.partition(" ")
            defined += (first == "define") - (first == "endef")
            tests += first.startswith("if") and first.split("(")[0] in {"ifeq", "ifneq", "ifdef", "ifndef"}
            tests -= first == "endif"
            if defined or first in {"endef", "endif", "else"}:
                continue
            place = where(match.start(), match.end())
            if first in {"include", "-include", "sinclude"}:
                self._include(rest.split(), path, depth, place, needed=first == "include")
                continue
            if row == "export":
                self._all = True
                continue
            rule = _RULE.fullmatch(row) if _ASSIGNMENT.fullmatch(row) is None else None
            if rule is not None:
                self._all = self._all or rule["targets"].strip() == ".EXPORT_ALL_VARIABLES"
                self._row(rule["rest"], place, targets=rule["targets"].split(), tested=tests > 0)
                for target in rule["targets"].split() if _ASSIGNMENT.fullmatch(rule["rest"]) is None else ():
                    self._needs.setdefault(target, set()).update(rule["rest"].partition(";")[0].split())
            else:
                self._row(row, place, tested=tests > 0)

    def _row(self, row: str, place: Place, *, targets: Sequence[str] = (), tested: bool) -> None:
        found = _ASSIGNMENT.fullmatch(row)
        words = row.split()
        if found is None:
            if words[:1] in (["export"], ["unexport"]):
                self._opened = self._opened or "$" in row  # `export $(shell ...)`
                self._exported |= dict.fromkeys(words[1:], words[0] == "export")
            return
        name, how, text = found["name"], found["how"], found["text"].strip()
        marks = row[: found.start("name")].split()
        if "export" in marks:
            self._exported[name] = True
        wins = "override" in marks
        if not wins and (name in self.pinned or name in self._overridden):
            return
        plain, weak = None if tested or "!" in how else text, False
        if self._by_environment and not wins:
            outside = self.outer.says(name)
            plain, weak = None if outside.unknown else plain, outside.assumed
        for target in targets:
            self._of_targets[target, name] = replace(literal((plain if "+" not in how else None) or "$", place), assumed=weak)
        if targets:
            return
        if wins:
            self._overridden.add(name)
            given = self.pinned.pop(name, None)
            if given is not None:
                self._set[name] = (given.text, place, given.assumed)
        if "?" in how:
            said = self.outer.says(name) if name not in self._set else None
            if said is None:
                return
            self._set[name] = (None if said.unknown or tested else said.text if said.text is not None else text, place, said.assumed)
            return
        if how in {":=", "::="} and plain is not None:
            now = self._expanded(plain, 0)
            self._set[name] = (now.text.replace("$", "$$") if now.text is not None else None, place, now.assumed or weak)
            return
        before, _, assumed = self._set.get(name, ("", place, weak))
        if "+" in how:
            self._set[name] = (f"{before} {text}".strip() if before is not None and plain is not None else None, place, assumed)
        else:
            self._set[name] = (plain, place, weak)

    def _include(self, files: Sequence[str], path: str, depth: int, place: Place, *, needed: bool) -> None:
        for one in files:
            base = os.path.join(os.path.dirname(path), one)
            content = read_file(base) if "$" not in one and depth < _DEEPEST else None
            if content is not None:
                self.read(base, content, depth + 1)
            elif needed or "$" in one:
                self._opened = True
                self.outer.user.mistakes[place.path, place.row, f"{one}: there is no such file"] = None

    def value(self, name: str, depth: int = 0) -> Setting:
        """What a variable stands for."""
        if name in self.pinned:
            return self.pinned[name]
        if name not in self._set:
            return UNKNOWN_SETTING if self._opened else self.outer.says(name)
        text, place, assumed = self._set[name]
        if text is None or depth > _DEEPEST or self._opened:
            return UNKNOWN_SETTING
        found = self._expanded(text, depth)
        return Setting(found.text, place, assumed=assumed or found.assumed)

    def _expanded(self, text: str, depth: int) -> Setting:
        """A text with what its variables stand for."""
        found: list[str] = []
        end, assumed = 0, False
        for match in _OF_MAKE.finditer(text):
            one = Setting("$") if match[0] == "$$" else self.value(match[1], depth + 1) if match[1] else UNKNOWN_SETTING
            if one.text is None:
                return UNKNOWN_SETTING
            found += [text[end : match.start()], one.text]
            end, assumed = match.end(), assumed or one.assumed
        return Setting("".join((*found, text[end:])), assumed=assumed)

    def environment(self, targets: Sequence[str]) -> Environment:
        """What the recipe of a rule has."""
        names = {*self._set, *self.pinned} if self._all else {name for name, whether in self._exported.items() if whether}
        names |= {name for name in self._set if name in self.outer.settings}
        names -= {name for name, whether in self._exported.items() if not whether}
        settings = {name: said for name in names if (name in self._set or name in self.pinned) and (said := self.value(name)) != UNSAID}
        found = self.outer.having(settings, opened=self._opened)
        around = set(targets)
        while more := {target for target, needs in self._needs.items() if needs & around} - around:
            around |= more
        for about, name in self._of_targets:
            if about in around and about not in targets:
                found = found.having({name: UNKNOWN_SETTING})  # it holds for what the target needs, too
        for target in targets:
            own = {name: one for (about, name), one in self._of_targets.items() if about == target and (name in names or self._all or self._exported.get(name))}
            found = found.having(own)
        return found
