"""A run over files: what is checked, what comes out, and that processes and the cache change nothing."""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from msgspec.structs import replace
from shapes import variants

from oomlint import cache, engine, processes, registry
from oomlint.basis import DiskState
from oomlint.config import ConfigError, Settings
from oomlint.engine import CheckReport, RunOptions
from oomlint.finding import (
    ByteSize,
    Confidence,
    Consequence,
    Edit,
    Factor,
    Finding,
    Fix,
    Message,
    Multiplier,
    Place,
    Resource,
    Safety,
    Severity,
    Weighs,
    Weight,
)
from oomlint.fixing import Change, write
from oomlint.model.readings import Readings
from oomlint.output import full, json_array
from oomlint.output.view import View
from oomlint.rule import Rule, page
from oomlint.scout.triage import triage
from oomlint.source import FileKind, read_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module, Project

FIXTURES = Path(__file__).parent.parent / "fixtures"
LOADER = "from torch.utils.data import DataLoader\n"


class Fake(Rule):
    """Says what the comments of a file tell it to say: ``num_workers=0  # say: warning medium words``."""

    code = "OOM901"
    slug = "fake"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    weighs = Weighs(Consequence.ONCE, Resource.NOTHING)
    seen: ClassVar[list[str]] = []

    def check(self, module: Module, project: Project) -> Iterator[Finding]:  # noqa: ARG002
        self.seen.append(os.path.basename(module.path))
        if "# die" in module.source.text and os.getpid() != PARENT:
            os._exit(9)
        for row, line in enumerate(module.source.text.splitlines(), 1):
            if match := re.search(r"# say: (\w+) (\w+) (.*)", line):
                yield self._finding(module, row, match)
            if match := re.search(r"# raise: (\w+)", line):
                raise {"KeyError": KeyError, "RecursionError": RecursionError}[match[1]]("boo")

    def _finding(self, module: Module, row: int, match: re.Match[str]) -> Finding:
        place = module.source.place(row, match.start() + 1, row, match.end() + 1)
        fix = Fix(Safety.SAFE, "take it out", (Edit(place, "#"),)) if "fix" in match[3] else None
        return self.finding(place, Message(match[3]), severity=Severity(match[1]), confidence=Confidence(match[2]), fix=fix)


PARENT = os.getpid()


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """The only rule, beside the one about comments."""
    rule, real = Fake(), registry.load
    Fake.seen.clear()
    monkeypatch.setattr(registry, "catalogue", lambda: (("OOM001", "unused-suppression"), ("OOM901", "fake")))
    monkeypatch.setattr(registry, "load", lambda code: rule if code == "OOM901" else real(code))
    return rule


def program(*says: str) -> str:
    """A program that the scout lets through, with something said in each of its rows."""
    return LOADER + "".join(f"DataLoader(x, num_workers=0)  # {say}\n" for say in says)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    return tmp_path


def check(folder: Path, settings: Settings | None = None, *paths: str, **options: object) -> CheckReport:
    options = {"cache": False, "processes": 1} | options
    return engine.run([str(folder / path) for path in paths] or [str(folder)], settings or Settings(), folder, RunOptions(**options))  # type: ignore[arg-type]


def said(report: CheckReport) -> list[tuple[str, int, str]]:
    return [(os.path.basename(item.place.path), item.place.row, item.message) for item in report.findings]


# -- what comes out ---------------------------------------------------------------------------------------------------


def test_findings_come_sorted_and_each_once(folder: Path) -> None:
    (folder / "b.py").write_text(program("say: error high first"))
    (folder / "a.py").write_text(program("say: error high z", "say: error high a") + "DataLoader(x, num_workers=0)  # say: error high a\n")
    assert said(check(folder)) == [("a.py", 2, "z"), ("a.py", 3, "a"), ("a.py", 4, "a"), ("b.py", 2, "first")]
    twice = check(folder, None, "a.py", "./a.py")
    assert (twice.files, len(twice.findings)) == (1, 3)


def test_what_says_the_same_of_the_same_place_is_said_once(folder: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.py").write_text(program("say: error high once"))
    once = fake.check
    monkeypatch.setattr(fake, "check", lambda module, project: [*once(module, project), *once(module, project)])
    assert said(check(folder)) == [("a.py", 2, "once")]


def test_one_place_is_told_once_whatever_comes_of_it(folder: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.py").write_text(program("say: error high moved: for a loader"))
    once = fake.check

    def both(module: Module, project: Project) -> Iterator[Finding]:
        yield from (replace(item, consequence="for a subset", severity=Severity.NOTE) for item in once(module, project))
        yield from once(module, project)

    monkeypatch.setattr(fake, "check", both)
    assert [item.severity for item in check(folder).findings] == [Severity.ERROR]


def test_what_is_said_of_copies_of_a_loop_is_said_once(folder: Path) -> None:
    loop = "def train(x):\n    for epoch in x:\n        DataLoader(x, num_workers=0)  # say: error high rebuilt, fix\n"
    (folder / "a.py").write_text(LOADER + loop)
    (folder / "b.py").write_text(LOADER + "\n\nSETTING = 1\n\n\n" + loop.replace("  #", "    # of this script\n        #"))
    (folder / "c.py").write_text(LOADER + "class Trainer:\n" + "".join(f"    {line}\n" for line in loop.splitlines()))
    (folder / "d.py").write_text(LOADER + loop.replace("num_workers=0", "num_workers=0, batch_size=2"))
    (folder / "e.py").write_text(LOADER + "DataLoader(x, num_workers=0)  # say: error high rebuilt, fix\n")
    few = said(check(folder))
    assert (few[0], len(few)) == (("a.py", 4, "rebuilt, fix: also in 1 more file"), 4)
    for name in "fgh":
        (folder / f"{name}.py").write_text("\n" * ord(name) + LOADER + loop)
    report = check(folder)
    assert said(report) == [
        ("a.py", 4, "rebuilt, fix: also in 4 more files"),
        ("b.py", 10, "rebuilt, fix"),
        ("d.py", 4, "rebuilt, fix"),
        ("e.py", 2, "rebuilt, fix"),
    ]
    copies = [(os.path.basename(place.path), place.row, place.message) for place in report.findings[0].related]
    assert copies == [("c.py", 5, "a copy of it"), *((f"{name}.py", ord(name) + 4, "a copy of it") for name in "fgh")]
    assert len(check(folder, once=False).findings) == 8
    assert len(check(folder, fix=True).fixed) == 8
    assert all("say:" not in (folder / f"{name}.py").read_text() for name in "abcdefgh")


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ({}, "em wh wm"),
        ({"severity": "error"}, "em"),
        ({"severity": "note"}, "em wh wm nh"),
        ({"min_confidence": "high"}, "wh"),
        ({"min_confidence": "low", "severity": "note"}, "el em wh wm nh"),
        ({"ignore": ["OOM9"]}, ""),
    ],
)
def test_severity_and_confidence_have_limits(folder: Path, change: dict[str, object], messages: str) -> None:
    says = ("say: error low el", "say: error medium em", "say: warning high wh", "say: warning medium wm", "say: note high nh")
    (folder / "a.py").write_text(program(*says))
    assert [message for *_, message in said(check(folder, Settings().with_overrides(**change)))] == messages.split()


def test_rules_can_be_left_out_by_file(folder: Path) -> None:
    for name in ("a.py", "tests/b.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(program("say: error high words"))
    for pattern, codes in {"tests/": ["OOM9"], "tests/*.py": ["ALL"], "b.py": ["OOM901"]}.items():
        settings = Settings(per_file_ignores={pattern: tuple(codes)})
        assert said(check(folder, settings)) == [("a.py", 2, "words")]


def test_an_unknown_code_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="select: unknown rule or prefix 'OOM8'"):
        check(folder, Settings(select=("OOM8",)))


def test_only_files_with_something_to_say_are_parsed(folder: Path) -> None:
    (folder / "a.py").write_text("import torch\n# say: error high never read\n")
    (folder / "b.py").write_text(program("say: error high read"))
    assert said(check(folder)) == [("b.py", 2, "read")]
    assert Fake.seen == ["b.py"]
    assert check(folder).files == 2


# -- comments ---------------------------------------------------------------------------------------------------------


def test_comments_silence_and_are_reported_where_they_do_not(folder: Path) -> None:
    (folder / "a.py").write_text(program("say: error high words # noqa: OOM901", "noqa: OOM901"))
    (folder / "b.py").write_text("x = 1  # oomlint: ignore[OOM901]\n")  # no rule could have anything to say here
    (folder / "c.py").write_text("x = 1  # noqa: E501\n")
    assert [(name, row) for name, row, _ in said(check(folder))] == [("a.py", 3), ("b.py", 1)]
    assert said(check(folder, Settings(ignore=("OOM001",)))) == []


def test_the_page_of_unused_suppressions_holds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    rule, settings = registry.load("OOM001"), Settings(select=("OOM001", "OOM101"))
    path = folder / "a.py"
    path.write_text(page(rule).example)
    assert [item.code for item in check(folder, settings).findings] == ["OOM001"]
    check(folder, settings, fix=True)
    assert path.read_text() == page(rule).remedy
    assert check(folder, settings).findings == ()


@pytest.mark.parametrize("path", sorted((FIXTURES / "rules" / "OOM001").glob("*.py")), ids=lambda path: path.stem)
def test_the_fixtures_of_unused_suppressions_hold(folder: Path, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.undo()
    text = path.read_text(encoding="utf-8")
    (folder / "a.py").write_text(text)
    found = [item.place.row for item in check(folder, Settings(select=("OOM001", "OOM101", "OOM102"))).findings if item.code == "OOM001"]
    assert found == [row for row, line in enumerate(text.splitlines(), 1) if "# expect: OOM001" in line]
    assert bool(found) is path.stem.startswith("bad")


# -- files that cannot be checked -------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_checked(folder: Path) -> None:
    (folder / "a.py").write_text(program("say: error high words"))
    (folder / "b.py").write_text("def f(num_workers:\n")
    (folder / "c.py").write_bytes(b"x = '\xff'\n")
    (folder / "d.ipynb").write_text("{")
    (folder / "e.py").symlink_to("nowhere.py")
    report = check(folder, None, ".", "missing.py")
    assert [(name, row) for name, row, _ in said(report)] == [("a.py", 2), ("b.py", 1), ("c.py", 1), ("d.ipynb", 1), ("e.py", 1), ("missing.py", 1)]
    assert {item.code for item in report.findings[1:]} == {None}
    assert {item.severity for item in report.findings[1:]} == {Severity.ERROR}
    assert all(item.message and "\n" not in item.message and str(folder) not in item.message for item in report.findings)
    assert report.files == 5


def test_a_broken_file_without_trigger_words_is_not_parsed(folder: Path) -> None:
    (folder / "a.py").write_text("print 'hello'\n")
    assert said(check(folder)) == []


def test_a_syntax_error_in_a_notebook_is_at_its_cell(folder: Path) -> None:
    cells = [{"cell_type": "markdown", "source": "x"}, {"cell_type": "code", "source": "import os\nDataLoader(num_workers=0"}]
    (folder / "a.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}))
    (item,) = check(folder).findings
    assert (item.code, item.place.cell, item.place.row) == (None, 2, 2)


# -- rules that fail --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2])
def test_a_rule_that_raises_is_told_and_the_rest_is_checked(folder: Path, processes: int) -> None:
    (folder / "a.py").write_text(program("say: error high before", "raise: KeyError", "say: error high after"))
    (folder / "b.py").write_text(program("say: error high words"))
    report = check(folder, processes=processes)
    assert said(report) == [("a.py", 2, "before"), ("b.py", 2, "words")]
    (failure,) = report.failures
    assert (failure.code, os.path.basename(failure.path), failure.cause) == ("OOM901", "a.py", "KeyError: 'boo'")
    assert failure.trace.startswith("Traceback")


def test_code_too_deep_for_a_rule_is_no_failure(folder: Path) -> None:
    (folder / "a.py").write_text(program("raise: RecursionError"))
    report = check(folder)
    assert said(report) == [("a.py", 1, "nested too deeply to be checked")]
    assert report.failures == ()


# -- processes --------------------------------------------------------------------------------------------------------


def many(folder: Path, number: int = 30) -> None:
    for n in range(number):
        (folder / f"m{n:02}.py").write_text(program(f"say: error high from {n}", "say: warning medium more") if n % 3 else "x = 1\n")
    (folder / "broken.py").write_text("num_workers = (\n")


@pytest.mark.parametrize("processes", [2, 3])
def test_the_number_of_processes_changes_nothing(folder: Path, processes: int) -> None:
    many(folder)
    assert check(folder, processes=processes) == check(folder, processes=1)
    assert Fake.seen.count("m01.py") == 1, "the children have done it"


@pytest.mark.skipif(sys.platform != "linux", reason="the rule made for the test reaches children by fork")
def test_a_process_that_is_killed_leaves_its_work_to_the_parent(folder: Path) -> None:
    many(folder)
    expected = check(folder)
    (folder / "m13.py").write_text((folder / "m13.py").read_text() + "# die\n")
    assert check(folder, processes=2) == expected


def test_a_system_without_processes_checks_all_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many(folder, 6)
    expected = check(folder)

    def refuse(*_: object) -> None:
        raise PermissionError("no semaphores here")

    monkeypatch.setattr(processes, "_spread", refuse)
    assert check(folder, processes=2) == expected


# -- the cache --------------------------------------------------------------------------------------------------------


def aged(folder: Path) -> None:
    """As if all files had been written an hour ago: what is fresh is not trusted."""
    for path in folder.rglob("*"):
        if path.is_file():
            status = path.stat()
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - 3600 * 10**9))


def test_the_cache_changes_nothing_and_saves_the_rules(folder: Path) -> None:
    many(folder)
    (folder / "quiet.py").write_text(program("noqa: OOM901"))
    aged(folder)
    expected = check(folder)
    assert check(folder, cache=True) == expected
    Fake.seen.clear()
    assert check(folder, cache=True) == expected
    assert Fake.seen == []


def test_findings_come_back_from_the_cache_whole(folder: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(folder / "a.py")
    place = Place(path, 0, 2, 1, 2, 9, "primary")
    fix = Fix(Safety.UNSAFE, "fix", (Edit(replace(place, end_column=3), "new\udcff"),))
    weight = Weight(Consequence.MULTIPLIED, Resource.ARRAYS, ByteSize(None, "N * 4", 400), (Factor(Multiplier.WORKERS, 8),))
    related = (replace(place, cell=2, message="why"),)
    whole = Finding("OOM901", "fake", "words “quoted”", Severity.WARNING, Confidence.MEDIUM, place, related, fix, weight=weight)
    monkeypatch.setattr(fake, "check", lambda *_: [whole])
    (folder / "a.py").write_text(program(""))
    aged(folder)
    (first,), (second,) = (check(folder, cache=True).findings for _ in range(2))
    assert first == second == whole
    assert second.place.message == "primary"
    assert second.related[0].message == "why"


@pytest.mark.parametrize("change", ["other file", "added file", "removed file", "file unread", "yaml", "settings", "selection", "content"])
def test_what_a_rule_has_read_invalidates_the_cache(folder: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    alone = fake.check

    def reading(module: Module, project: Project) -> Iterator[Finding]:
        found = project.locate(module.path, "b")
        if found is not None:
            project.raw(found)
        return alone(module, project)

    monkeypatch.setattr(fake, "check", reading)
    (folder / "a.py").write_text(program("say: error high words") + "import b\n")
    (folder / "b.py").write_text("x = 1\n")
    (folder / "c.py").write_text("x = 1\n")
    (folder / "conf").mkdir()
    (folder / "conf" / "train.yaml").write_text("workers: 4\n")
    aged(folder)
    check(folder, cache=True)
    settings = Settings()
    match change:
        case "other file":
            (folder / "b.py").write_text("x = 2\n")
        case "added file":
            (folder / "conf" / "b.py").write_text("")
        case "removed file":
            (folder / "b.py").unlink()
        case "yaml":
            (folder / "conf" / "train.yaml").write_text("workers: 0\n")
        case "settings":
            settings = Settings(worker_limit=99)
        case "selection":
            settings = Settings(select=("OOM901",))
        case "content":
            (folder / "a.py").write_text(program("say: error high other"))
        case "file unread":
            (folder / "c.py").write_text("x = 2\n")
    Fake.seen.clear()
    report = check(folder, settings, cache=True)
    assert Fake.seen == ([] if change == "file unread" else ["a.py"])
    assert said(report) == [("a.py", 2, "other" if change == "content" else "words")]


def test_code_behind_a_link_is_part_of_the_project(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "options.py").write_text("x = 1\n")
    (outside / "round").symlink_to(outside)
    (folder / "shared").symlink_to(outside)
    (folder / "a.py").write_text(program("say: error high words"))
    aged(folder)
    aged(outside)
    check(folder, cache=True)
    check(folder, cache=True)
    (outside / "options.py").write_text("x = 2\n")
    check(folder, cache=True)
    assert Fake.seen == ["a.py", "a.py"]


def test_what_was_written_just_now_is_not_kept(folder: Path) -> None:
    (folder / "a.py").write_text(program("say: error high words"))
    check(folder, cache=True)
    Fake.seen.clear()
    check(folder, cache=True)
    assert Fake.seen == ["a.py"], "it could change again without a new time stamp"


def test_failures_are_not_kept(folder: Path) -> None:
    (folder / "a.py").write_text(program("raise: KeyError"))
    aged(folder)
    for _ in range(2):
        assert len(check(folder, cache=True).failures) == 1


@pytest.mark.parametrize(
    "damage", [b"", b"{}", b"\xff\x00", b"0" * 32 + b"\n{}", b"[" * 100_000, None], ids=["empty", "object", "bytes", "digest", "deep", "cut"]
)
def test_a_damaged_cache_is_passed_over(folder: Path, damage: bytes | None) -> None:
    many(folder, 4)
    aged(folder)
    expected = check(folder, cache=True)
    for path in (folder / ".oomlint_cache").glob("*.json"):
        path.write_bytes(path.read_bytes()[:-9] if damage is None else damage)
    assert check(folder, cache=True) == expected
    Fake.seen.clear()
    assert check(folder, cache=True) == expected
    assert Fake.seen == [], "and rewritten"


def _kept(path: Path) -> Any:
    return json.loads(path.read_bytes().partition(b"\n")[2])


def test_a_cache_of_another_shape_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its digest is right, whoever has written it."""
    monkeypatch.setattr(cache, "_tool", lambda: "tool")
    (folder / "a.py").write_text(program("say: error high words fix"))
    (folder / "b.py").write_text("def f(:\n")
    aged(folder)
    check(folder, cache=True)
    documents = {name: _kept(folder / ".oomlint_cache" / name) for name in ("basis.json", "findings.json", "verdicts.json")}
    state = DiskState(documents["findings.json"]["key"], documents["findings.json"]["content"]["files"], 0)
    later = DiskState(state.key, {**state.files, str(folder / "c.py"): "1 2 3"}, 0)
    for name, document in documents.items():
        path = folder / ".oomlint_cache" / name
        before = path.read_bytes()
        assert document["content"]
        seen = 0
        for other in variants(document):
            body = json.dumps(other).encode()
            path.write_bytes(cache._digest(body).encode() + b"\n" + body)
            kept = cache.Cache(str(path.parent))
            kept.open_findings(later if seen % 2 else state)
            kept.basis()
            for digest, (parse, mistake, readers) in kept.verdicts.items():
                assert (type(digest), type(parse), mistake is None or [type(part) for part in mistake] == [int, int, str]) == (str, bool, True)
                assert {type(name) for name in readers} <= {str}
            for file, entry in list(kept._findings.items()):
                digest = entry[0] if isinstance(entry, list) and entry and isinstance(entry[0], str) else ""
                for finding in kept.findings(file, digest) or ():
                    list(full.lines([finding], View(str(folder))))
                    json_array.text([finding], View(str(folder)))
            seen += 1
        assert seen > 50
        path.write_bytes(before)
    path.write_bytes(b"")
    report = check(folder, cache=True)
    assert report == check(folder)


def test_a_cache_that_cannot_be_written_is_passed_over(folder: Path) -> None:
    many(folder, 4)
    (folder / ".oomlint_cache").write_text("a file stands in the way")
    assert replace(check(folder, cache=True), notices=()) == check(folder)


def test_the_cache_folder_says_what_it_is(folder: Path) -> None:
    many(folder, 4)
    aged(folder)
    check(folder, cache=True)
    inside = folder / ".oomlint_cache"
    assert (inside / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    assert (inside / ".gitignore").read_text().endswith("\n*\n")
    assert sorted(path.name for path in inside.iterdir()) == [".gitignore", "CACHEDIR.TAG", "basis.json", "findings.json", "verdicts.json"]


def test_without_the_cache_nothing_is_read_or_written(folder: Path) -> None:
    many(folder, 4)
    check(folder)
    assert not (folder / ".oomlint_cache").exists()


def test_old_verdicts_are_forgotten(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MANY_VERDICTS", 3)
    many(folder, 9)
    check(folder, cache=True)
    body = json.loads((folder / ".oomlint_cache" / "verdicts.json").read_bytes().partition(b"\n")[2])
    assert len(body["content"]) == 3


# -- contents that stand in for files ---------------------------------------------------------------------------------


def test_an_overlay_is_checked_in_place_of_the_file(folder: Path) -> None:
    path = folder / "a.py"
    overlay = {str(path): program("say: error high from memory").encode()}
    assert said(check(folder, None, "a.py", overlay=overlay)) == [("a.py", 2, "from memory")]
    path.write_text(program("say: error high from the disk"))
    assert said(check(folder, None, "a.py", overlay=overlay)) == [("a.py", 2, "from memory")]


def test_an_excluded_overlay_is_left_out_where_excludes_are_forced(folder: Path) -> None:
    path = folder / "build" / "a.py"
    path.parent.mkdir()
    path.write_text("")
    overlay = {str(path): program("say: error high words").encode()}
    assert check(folder, None, "build/a.py", overlay=overlay, force_exclude=True).files == 0
    assert check(folder, None, "build/a.py", overlay=overlay).files == 1


# -- fixing -----------------------------------------------------------------------------------------------------------


def test_fixes_are_written_and_what_is_left_is_reported(folder: Path) -> None:
    path = folder / "a.py"
    path.write_text(program("say: error high fix me", "say: error high words"))
    report = check(folder, fix=True)
    assert path.read_text() == program("", "say: error high words").replace("# \n", "#\n")
    assert said(report) == [("a.py", 3, "words")]
    assert [item.message for item in report.fixed] == ["fix me"]
    assert check(folder, fix=True).changes == ()


def test_without_leave_to_write_nothing_is_written(folder: Path) -> None:
    path = folder / "a.py"
    path.write_text(program("say: error high fix me"))
    report = check(folder, fix=True, write=False)
    assert [change.path for change in report.changes] == [str(path)]
    assert path.read_text() == program("say: error high fix me")


def test_a_file_that_cannot_be_written_keeps_its_findings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.py").write_text(program("say: error high fix me"))
    (folder / "b.py").write_text(program("say: error high fix me"))

    def fail(change: Change) -> None:
        if change.path.endswith("a.py"):
            raise OSError(28, "No space left on device")
        write(change)

    monkeypatch.setattr(engine, "write", fail)
    report = check(folder, fix=True)
    assert said(report) == [("a.py", 2, "fix me")]
    assert [os.path.basename(item.place.path) for item in report.fixed] == ["b.py"]
    assert [notice.message for notice in report.notices] == ["fixes are not applied: No space left on device"]


def test_a_fix_that_harms_another_file_is_left_out(folder: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other file had no finding before, so that only checking it again tells."""
    (folder / "a.py").write_text(program("say: error high fix me"))
    (folder / "b.py").write_text(program("quiet"))
    alone = fake.check

    def together(module: Module, project: Project) -> Iterator[Finding]:
        yield from alone(module, project)
        if module.path.endswith("b.py") and b"fix" not in project.raw(str(folder / "a.py")):
            yield fake.finding(Place(module.path, 0, 1, 1, 1, 2), Message("the other file has changed"))

    monkeypatch.setattr(fake, "check", together)
    report = check(folder, fix=True)
    assert said(report) == [("a.py", 2, "fix me")]
    assert [notice.message for notice in report.notices] == ["the fix of OOM901 at 2:31 is left out: it would add OOM901"]


# -- the scout --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("corpus", ["incidents", "notebooks", "rules"])
def test_the_scout_hides_nothing(monkeypatch: pytest.MonkeyPatch, corpus: str) -> None:
    monkeypatch.undo()
    settings = Settings(preview=True, severity=Severity.NOTE, min_confidence=Confidence.LOW, exclude=())
    left_out = 0
    for root in sorted(path for path in (FIXTURES / corpus).glob("*/") if path.is_dir()) or [FIXTURES / corpus]:
        # Of all others libcst reads the same with the scout and without.
        sources = [read_source(str(path)) for path in sorted(root.rglob("*")) if path.suffix in {".py", ".ipynb"}]
        files = [source.path for source in sources if not triage(source.text, notebook=source.kind is FileKind.NOTEBOOK).parse]
        with_scout, without = (engine.run(files, settings, root, RunOptions(cache=False, processes=1, scout=scout, causes=False)) for scout in (True, False))
        assert with_scout.findings == without.findings
        left_out += len(files)
    assert left_out


# -- budgets ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def asking(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule asks as many questions of the evaluator as a file says, before it says anything."""
    plain = Fake.check

    def check(self: Fake, module: Module, project: Project) -> Iterator[Finding]:
        for match in re.findall(r"# ask: (\d+)", module.source.text):
            for _ in range(int(match)):
                project.steps.take()
        yield from plain(self, module, project)

    monkeypatch.setattr(type(fake), "check", check)
    monkeypatch.setattr("oomlint.model.step_limits.STEPS", 100)


@pytest.mark.usefixtures("asking")
@pytest.mark.parametrize("options", [{}, {"processes": 2}, {"cache": True}, {"fix": True}])
def test_the_budget_of_a_file_is_its_own_and_its_end_is_a_notice(folder: Path, options: dict[str, Any]) -> None:
    for name, steps in {"a": 40, "b": 60, "c": 100, "d": 101, "e": 10**6, "f": 40}.items():
        (folder / f"{name}.py").write_text(program(f"say: error high words of {name}") + f"# ask: {steps}\n")
    aged(folder)
    for _ in range(2):
        report = check(folder, **options)
        assert sorted(os.path.basename(item.place.path) for item in report.findings) == ["a.py", "b.py", "c.py", "f.py"]
        cause = "it is not checked to its end: that would take too many steps"
        assert [(os.path.basename(notice.path), notice.message) for notice in report.notices] == [("d.py", cause), ("e.py", cause)]
        assert not report.failures


@pytest.mark.usefixtures("asking")
def test_what_was_learnt_for_files_that_take_too_many_steps_is_freed_where_nobody_collects(folder: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        (folder / f"{number}.py").write_text(program("say: error high words") + "# ask: 101\n")
    plain = type(fake).check
    answers: weakref.WeakSet[Readings] = weakref.WeakSet()

    class Room:
        def __init__(self, project: Project) -> None:
            self.project = project
            self.answer = Readings()
            answers.add(self.answer)

    def check_more(self: Fake, module: Module, project: Project) -> Iterator[Finding]:
        project.shared(Room)
        yield from plain(self, module, project)

    monkeypatch.setattr(type(fake), "check", check_more)
    gc.disable()
    try:
        assert len(check(folder).notices) == 8
        assert len(answers) <= 1
    finally:
        gc.enable()
