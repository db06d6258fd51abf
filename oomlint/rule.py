"""What a rule is: one question about the nouns of a module, and the page that explains it."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec import Struct

from oomlint.finding import Confidence, Finding, Message, Role
from oomlint.measurement import UNMEASURED
from oomlint.source import as_written
from oomlint.weighing import weight_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from oomlint.finding import Fact, Fix, Place, Safety, Severity, Told, Weighs
    from oomlint.measurement import Measurement
    from oomlint.model.project import Module, Project

HEADINGS: Final = ("What it does", "Why is this bad", "Example", "Use instead", "Fix safety", "References")

_FENCE = re.compile(r"^\s*(```+|~~~+)")


class Rule(ABC):
    """One pattern. The docstring of the class is the rule's page: a summary, then the sections of ``HEADINGS`` in that order."""

    code: ClassVar[str]
    slug: ClassVar[str]
    severity: ClassVar[Severity]  # the gravest that it reports
    lower: ClassVar[tuple[Severity, ...]] = ()  # those that it reports beside that, the graver first
    fixable: ClassVar[Safety | None]  # the best safety that its fix can have; None where it has no fix
    weighs: ClassVar[Weighs]  # what its findings cost, unless one of them says otherwise
    measured_as: ClassVar[Measurement] = UNMEASURED  # how its findings are verified by running the code
    preview: ClassVar[bool] = False  # whether it runs only where previews are asked for
    help: ClassVar[str] = ""  # what to do about its findings, where neither they nor their fix say it
    per_rank: ClassVar[bool] = False  # whether what it speaks of is held once in each rank of a distributed training
    mentions: ClassVar[tuple[str, ...]] = ()  # of a plugin: it is asked about files in which one of these words stands; about all where there are none
    url: ClassVar[str] = ""  # of a plugin: the address of its page

    @abstractmethod
    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield what the rule has to say about one module. It prints nothing, opens nothing and changes nothing."""

    def finding(
        self,
        place: Place,
        message: Message,
        *,
        severity: Severity | None = None,
        confidence: Confidence = Confidence.HIGH,
        related: Iterable[Place] = (),
        fix: Fix | None = None,
        facts: Iterable[Fact] = (),
        weighs: Weighs | None = None,
        given: tuple[Place, ...] = (),
    ) -> Finding:
        """A finding of this rule, as grave as the rule unless ``severity`` says otherwise, and as heavy unless ``weighs`` does.

        ``given`` are the places in files beside the code that give the numbers it is about.
        """
        known = tuple(facts)
        weight = weight_of(weighs or self.weighs, known)
        remedy = fix.message if fix is not None else message.help or self.help
        told = Message(as_written(message.headline), as_written(message.consequence), as_written(remedy)).fitted()
        grave, spots = severity or self.severity, tuple(one for one in related if one != place or one.role is not Role.AGAIN)
        return Finding(self.code, self.slug, told.headline, grave, confidence, place, spots, fix, known, weight, told.consequence, told.help, given)

    def tell(self, told: Told, fix: Fix | None = None) -> Finding:
        """The finding of what a question has to tell, with a ``fix`` where it has none of its own."""
        return self.finding(
            told.place,
            told.message,
            severity=told.severity,
            confidence=told.confidence,
            related=told.related,
            fix=fix or told.fix,
            facts=told.facts,
            weighs=told.weighs,
            given=told.given,
        )


class Page(Struct, frozen=True):
    """A rule's documentation, taken apart."""

    summary: str
    sections: Mapping[str, str]  # by heading, in the order of the page
    text: str  # Markdown, without a title

    @property
    def example(self) -> str:
        """The program that the rule fires on."""
        return _program(self.sections["Example"])

    @property
    def remedy(self) -> str:
        """The same program without the bug."""
        return _program(self.sections["Use instead"])

    def beside(self, section: str) -> dict[str, str]:
        """The files beside the program of a section, by their names."""
        found = re.findall(r'^```\w+ title="([^"\n]+)"\n(.*?)^```', self.sections[section], re.MULTILINE | re.DOTALL)
        return dict(found)


def page(rule: Rule | type[Rule]) -> Page:
    """The page of a rule. A rule without a docstring has an empty one."""
    cls = rule if isinstance(rule, type) else type(rule)
    text = inspect.cleandoc(cls.__doc__ or "")
    blocks: dict[str, list[str]] = {}
    heading, fence = "", ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark and (not fence or mark.group(1).startswith(fence)):
            fence = "" if fence else mark.group(1)
        if not fence and line.startswith("## "):
            heading = line[3:].strip()
            blocks[heading] = []
        else:
            blocks.setdefault(heading, []).append(line)
    parts = {name: "\n".join(lines).strip() for name, lines in blocks.items()}
    return Page(parts.pop("", ""), parts, text)


def status(rule: Rule | type[Rule]) -> str:
    """A paragraph, with the empty line behind it, for a rule that is in preview; nothing for the others."""
    return "This rule is in preview: it runs only with `--preview`, or with `preview = true` in the settings.\n\n" if rule.preview else ""


def _program(section: str) -> str:
    """The first fenced Python block of a section."""
    found = re.search(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""
