"""Lists what two versions of oomlint say differently of the same code.

    python benchmarks/diff_findings.py --before main fixtures/rules/*/* fixtures/incidents/*
    python benchmarks/diff_findings.py --before main~20 --after main --fixes ~/corpus/* ~/packages/timm
    python benchmarks/diff_findings.py --before main --verdicts fixtures/incidents/voxel_colab

A version is a git ref of this repository, or a folder that holds the package `oomlint`; `--after` is the working tree unless it is given. Each runs under this
interpreter from a copy of its own, so that files may be edited meanwhile. Each PATH, a file or a folder, is a project by itself: it is copied to a place where
nothing lies beside it (without environments, git's folder and files of more than 8,000,000 bytes), and checked there with
`oomlint check --isolated --no-cache --severity note --min-confidence low --output-format json`, in a process of its own. Neither settings nor a cache count.

- Findings are matched by code and place. A finding is *lost*, *new* or *changed* (message, severity, confidence, end, related places, fix: its text, safety and
  edits, and what would become of it); one that only stands elsewhere in its file is *changed* too. Rules that fail and runs that end otherwise are differences.
- `--fixes` also compares the files that `--fix --unsafe-fixes` leaves behind, and shows how the two results differ.
- `--verdicts FOLDER`, as often as wanted, compares code, place and outcome of `oomlint verify --trust --no-cache`, which runs in the folder as it is: with the
  settings of the project, and one folder after the other, since it measures.

The report names every difference, then counts them by code. `--json` writes it for a program. The exit status is 0 where nothing differs, 1 where something
does, and 2 where a version cannot be run. Needs a system with fork.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import traceback
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
LARGEST: Final = 8_000_000  # bytes of a file that is copied
WIDEST: Final = 400  # characters of a value that are shown
LONGEST: Final = 60  # rows of a difference between two files
CHECK: Final = ("check", "--isolated", "--no-cache", "--severity", "note", "--min-confidence", "low")
FIND: Final = (*CHECK, "--output-format", "json", ".")
FIX: Final = (*CHECK, "--fix", "--unsafe-fixes", "--quiet", "--exit-zero", ".")
VERIFY: Final = ("verify", "--trust", "--no-cache", "--output-format", "json", ".")
# What a first run loads is shared by all that follow: the parser and the rules.
FIRST: Final = "from torch.utils.data import DataLoader\nDataLoader(x, num_workers=0, persistent_workers=True)\n"
FAILED: Final = 70  # as sysexits has it


class VersionError(Exception):
    """A version of oomlint cannot be had or cannot be run; the message is one line."""


class Task(NamedTuple):
    """A command line and where to run it."""

    folder: str
    words: tuple[str, ...]


class Result(NamedTuple):
    """What came of a task."""

    status: int  # negative: the signal that ended it
    said: str  # standard output
    complaints: str  # standard error
    user: float  # seconds of user CPU


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that the versions do not agree on."""

    project: str
    kind: str  # lost, new or changed; fixes; verdict; run
    code: str
    place: str  # file, cell, row and column
    message: str
    details: tuple[tuple[str, str, str], ...] = ()  # what, before, after


# -- a process that has one version of oomlint, and runs command lines with it ---------------------------------------


def serve(version: str, jobs: int) -> None:
    """Run the tasks on standard input, ``jobs`` of them at a time, each in a fork of this process."""
    sys.path.insert(0, version)
    tasks = json.load(sys.stdin)
    from oomlint import __main__ as program  # noqa: PLC0415 - this version, not the one that is installed

    if not os.path.realpath(program.__file__ or "").startswith(os.path.realpath(version) + os.sep):
        raise SystemExit(f"{program.__file__} is not below {version}")
    with tempfile.TemporaryDirectory(prefix="oomlint-diff-") as folder:
        Path(folder, "train.py").write_text(FIRST, encoding="utf-8")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        program.main([*CHECK, "--output-format", "json", folder])
        sys.stdout.flush()  # not by each of the forks
    running: set[int] = set()
    for task in tasks:
        if len(running) == jobs:
            running.remove(reap(tasks))
        pid = os.fork()
        if not pid:
            os._exit(perform(program.main, task))
        task["pid"] = pid
        running.add(pid)
    for _ in range(len(running)):
        reap(tasks)


def reap(tasks: Sequence[dict[str, Any]]) -> int:
    """Wait for a task, and write down how it ended."""
    pid, status, usage = os.wait4(-1, 0)
    task = next(each for each in tasks if each.get("pid") == pid)
    Path(task["out"] + ".end").write_text(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_utime]), encoding="utf-8")
    del task["pid"]
    return pid


def perform(main: Callable[[Sequence[str]], int], task: dict[str, Any]) -> int:
    """Run a command line in its folder, with what it says in files."""
    try:
        os.chdir(task["folder"])
        for number, path in enumerate((os.devnull, task["out"] + ".out", task["out"] + ".err")):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), number)
        return main(task["words"])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever it is, the other tasks go on
        traceback.print_exc()
        return FAILED
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


class Version:
    """A copy of a version of oomlint."""

    def __init__(self, spec: str | None, folder: Path) -> None:
        self.name = spec or "the working tree"
        self._folder = folder
        folder.mkdir()
        given = Path(spec) if spec else ROOT
        if (given / "oomlint" / "__init__.py").is_file():
            shutil.copytree(given / "oomlint", folder / "oomlint", ignore=shutil.ignore_patterns("__pycache__"))
            return
        with (folder / "archive.tar").open("wb") as archive:
            git = ["git", "-C", str(ROOT), "archive", f"{spec}", "oomlint"]
            done = subprocess.run(git, stdout=archive, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise VersionError(f"{spec}: neither a ref of {ROOT} nor a folder that holds oomlint: {' '.join(done.stderr.split())}")
        with tarfile.open(folder / "archive.tar") as archived:
            archived.extractall(folder, filter="data")

    def run(self, tasks: Sequence[Task], jobs: int) -> list[Result]:
        """The results of tasks, in their order. Raises VersionError."""
        if not tasks:
            return []
        with tempfile.TemporaryDirectory(prefix="results-", dir=self._folder) as folder:
            asked = [{**task._asdict(), "out": os.path.join(folder, str(number))} for number, task in enumerate(tasks)]
            # With -P, nothing that lies in the current folder or beside this script is taken for a library.
            command = [sys.executable, "-P", __file__, "--serve", str(self._folder), "--jobs", str(jobs)]
            # By the environment: versions that have no rules in preview do not know the option.
            variables = {**os.environ, "OOMLINT_PREVIEW": "1"}
            done = subprocess.run(command, input=json.dumps(asked), env=variables, stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode or not all(os.path.exists(f"{task['out']}.end") for task in asked):
                cause = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
                raise VersionError(f"{self.name} cannot be run: {cause[-1]}")
            return [_result(task["out"]) for task in asked]


def _result(path: str) -> Result:
    status, user = json.loads(Path(f"{path}.end").read_text(encoding="utf-8"))
    out, err = (Path(path + suffix).read_text(encoding="utf-8", errors="replace") for suffix in (".out", ".err"))
    return Result(status, out, err, user)


# -- projects --------------------------------------------------------------------------------------------------------


def lay_out(path: Path, target: Path) -> None:
    """Copy a project to a place where it is its own root."""
    target.mkdir(parents=True)
    (target / ".git").mkdir()  # ends the search for a root
    if path.is_file():
        shutil.copy(path, target)
    else:
        shutil.copytree(path, target, ignore=_no_project, dirs_exist_ok=True, symlinks=True)


def _no_project(folder: str, names: Sequence[str]) -> set[str]:
    """What of a folder is not copied."""

    def foreign(name: str) -> bool:
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            return name in {".git", "__pycache__", "node_modules"} or os.path.exists(os.path.join(path, "pyvenv.cfg"))
        return os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > LARGEST

    return {name for name in names if foreign(name)}


def texts(folder: Path) -> dict[str, str]:
    """The files of a project that fixes may change."""
    paths = (path for path in sorted(folder.rglob("*")) if path.suffix in {".py", ".pyi", ".ipynb"} and path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes().decode("utf-8", "backslashreplace") for path in paths}


# -- what differs ----------------------------------------------------------------------------------------------------

Entry = dict[str, Any]


def place_of(entry: Entry) -> str:
    """Where a finding begins."""
    cell = f"cell {entry['cell']}:" if entry.get("cell") else ""
    return f"{entry['filename']}:{cell}{entry['location']['row']}:{entry['location']['column']}"


def entries_of(result: Result) -> list[Entry]:
    """The findings that a run has written, none where it has written no report."""
    try:
        return [dict(entry) for entry in json.loads(result.said)]
    except (ValueError, TypeError):
        return []


def complaints_of(result: Result, folder: str) -> str:
    """What a run says of itself: that it, or a rule, has failed. Places in memory and in temporary folders are no difference."""
    lines = [line.replace(folder, "") for line in result.complaints.splitlines() if "error" in line.lower()]
    ended = f"status {result.status}" if result.status not in {0, 1} else ""
    return "\n".join(filter(None, [ended, *lines]))


def facets(entry: Entry) -> dict[str, str]:
    """What is compared of a finding, in words."""
    fix = entry.get("fix") or {}
    told = {
        "message": entry.get("message"),
        "severity": entry.get("severity"),
        "confidence": entry.get("confidence"),
        "place": place_of(entry),
        "end": "{row}:{column}".format(**entry["end_location"]) if "end_location" in entry else None,
        "related": "; ".join(f"{place_of(each)} {each.get('message')}" for each in entry.get("related") or ()),
        "fix": fix.get("message"),
        "fix's safety": fix.get("safety"),
        "fix's edits": "; ".join(
            "{}-{row}:{column} {content!r}".format(place_of(each), content=each.get("content"), **each["end_location"]) for each in fix.get("edits") or ()
        ),
        "fixed by": entry.get("fixed_by"),
        "left out": entry.get("left_out"),
        "name": entry.get("name"),
    }
    verdict = entry.get("verdict")
    if verdict:  # its figures differ from run to run
        return {"place": place_of(entry), "outcome": str(verdict.get("outcome"))}
    return {what: "" if value is None else str(value) for what, value in told.items()}


def compare(project: str, before: Iterable[Entry], after: Iterable[Entry]) -> Iterator[Difference]:
    """Findings that are lost, new or changed, in the order of their places."""
    sides: tuple[list[Entry], list[Entry]] = (list(before), list(after))
    if all(sides):  # what one version does not say at all of any finding is no difference between findings
        known = [{key for entry in side for key in entry} for side in sides]
        for side in sides:
            side[:] = [{key: value for key, value in entry.items() if key in known[0] & known[1]} for entry in side]
    alike = Counter(_same(entry) for entry in sides[0]) & Counter(_same(entry) for entry in sides[1])
    for side in sides:
        left = Counter(alike)
        side[:] = [entry for entry in side if not _take(left, _same(entry))]
    found = []
    for match in (_at, _says):
        waiting: dict[tuple[str, ...], list[Entry]] = {}
        for entry in sides[0]:
            waiting.setdefault(match(entry), []).append(entry)
        for entry in list(sides[1]):
            partners = waiting.get(match(entry))
            if partners:
                found.append((_difference(project, "changed", partners[0], entry), entry))
                sides[0].remove(partners.pop(0))
                sides[1].remove(entry)
    found += [(_difference(project, kind, entry), entry) for kind, side in zip(("lost", "new"), sides, strict=True) for entry in side]
    found.sort(key=lambda item: (item[1]["filename"], item[1].get("cell") or 0, item[1]["location"]["row"], item[1]["location"]["column"], item[0].kind))
    return (difference for difference, _ in found)


def _same(entry: Entry) -> tuple[str, ...]:
    return (_code(entry), *facets(entry).values())


def _at(entry: Entry) -> tuple[str, ...]:
    return _code(entry), place_of(entry)


def _says(entry: Entry) -> tuple[str, ...]:
    return _code(entry), entry["filename"], str(entry.get("cell")), str(entry.get("message"))


def _code(entry: Entry) -> str:
    return entry.get("code") or entry.get("name") or ""


def _take(counts: Counter[tuple[str, ...]], what: tuple[str, ...]) -> bool:
    counts[what] -= 1
    return counts[what] >= 0


def _difference(project: str, kind: str, entry: Entry, after: Entry | None = None) -> Difference:
    if after is None:
        words = (entry.get("severity"), entry.get("confidence"), entry.get("message"), f"[{entry['verdict'].get('outcome')}]" if entry.get("verdict") else "")
        return Difference(project, kind, _code(entry), place_of(entry), " ".join(filter(None, words)))
    old, new = facets(entry), facets(after)
    details = tuple((what, old.get(what, ""), new.get(what, "")) for what in {**old, **new} if old.get(what) != new.get(what))
    return Difference(project, kind, _code(after), place_of(after), after.get("message") or "", details)


def compare_runs(project: str, folder: str, results: tuple[Result, Result]) -> Iterator[Difference]:
    """What two checks of a project say differently of themselves."""
    before, after = (complaints_of(result, folder) for result in results)
    if before != after:
        yield Difference(project, "run", "", "", "the runs do not end alike", (("standard error", before, after),))


def compare_fixes(projects: Sequence[tuple[str, Path]], versions: tuple[Version, Version], folder: Path, jobs: int) -> Iterator[Difference]:
    """Files that the fixes of two versions leave behind differently."""
    left: list[list[dict[str, str]]] = []
    for version in versions:
        copies = [folder / str(number) for number in range(len(projects))]
        for (_, project), copy in zip(projects, copies, strict=True):
            shutil.copytree(project, copy, symlinks=True)
        version.run([Task(str(copy), FIX) for copy in copies], jobs)
        left.append([texts(copy) for copy in copies])
        shutil.rmtree(folder, ignore_errors=True)
    for (path, _), before, after in zip(projects, *left, strict=True):
        for name in sorted(before.keys() | after.keys()):
            old, new = before.get(name, ""), after.get(name, "")
            if old != new:
                rows = list(difflib.unified_diff(old.splitlines(), new.splitlines(), "fixed before", "fixed after", lineterm="", n=2))
                yield Difference(path, "fixes", "", name, "fixed differently", (("text", "", "\n".join(rows)),))


# -- the report ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Report:
    """What there is to say."""

    versions: tuple[str, str]
    projects: int
    differences: list[Difference]
    counts: tuple[Counter[str], Counter[str]]  # findings by code
    seconds: tuple[float, float]  # user CPU of the checks
    outcomes: tuple[Counter[str], Counter[str]]  # of verdicts

    def rows(self) -> list[tuple[str, int, int, int, int, int]]:
        """By code: findings before and after, lost, new and changed."""
        kinds = Counter((each.code, each.kind) for each in self.differences)
        codes = sorted(self.counts[0].keys() | self.counts[1].keys() | {each.code for each in self.differences if each.kind in {"lost", "new", "changed"}})
        return [(code, self.counts[0][code], self.counts[1][code], kinds[code, "lost"], kinds[code, "new"], kinds[code, "changed"]) for code in codes]

    def json(self) -> str:
        """For a program."""
        verdicts = [dict(sorted(side.items())) for side in self.outcomes]
        table = [dict(zip(("code", "before", "after", "lost", "new", "changed"), row, strict=True)) for row in self.rows()]
        told = {"before": self.versions[0], "after": self.versions[1], "projects": self.projects, "user_seconds": self.seconds}
        return json.dumps({**told, "counts": table, "verdicts": verdicts, "differences": [asdict(each) for each in self.differences]}, indent=1)

    def markdown(self) -> Iterator[str]:
        """For a reader."""
        yield f"# {self.versions[0]} → {self.versions[1]}, {self.projects} projects"
        project = None
        for each in self.differences:
            if each.project != project:
                project = each.project
                yield f"\n## {project}\n"
            head = " ".join(filter(None, (each.code, each.place)))
            yield f"- **{each.kind}** {head}{': ' if head else ''}{_short(each.message)}"
            for what, before, after in each.details:
                if each.kind == "fixes":
                    rows = after.splitlines()
                    yield from ("", "  ```diff", *(f"  {row}" for row in rows[:LONGEST]), *(["  ..."] if len(rows) > LONGEST else []), "  ```", "")
                else:
                    yield f"  - {what}: {_short(before) or 'none'}\n    → {_short(after) or 'none'}"
        yield from self._tables()

    def _tables(self) -> Iterator[str]:
        rows = [row for row in self.rows() if row[3] or row[4] or row[5]]
        if rows:
            yield "\n| code | before | after | lost | new | changed |\n|---|---|---|---|---|---|"
            for row in rows:
                yield f"| {' | '.join(map(str, row))} |"
        outcomes = sorted(self.outcomes[0].keys() | self.outcomes[1].keys())
        if outcomes:
            yield "\nVerdicts: " + ", ".join(f"{self.outcomes[0][outcome]} → {self.outcomes[1][outcome]} {outcome}" for outcome in outcomes) + "."
        every = self.rows()
        sums = [sum(column) for column in zip(*(row[1:] for row in every), strict=True)] or [0] * 5
        kinds = Counter(each.kind for each in self.differences)
        others = "".join(f", {kinds[kind]} {words}" for kind, words in (("fixes", "fixed differently"), ("run", "not run alike")) if kinds[kind])
        verdict = "no difference" if not self.differences else f"{sums[2]} lost, {sums[3]} new, {sums[4]} changed{others}"
        yield f"\n{sums[0]} → {sums[1]} findings: {verdict}. User CPU of the checks: {self.seconds[0]:.1f} s → {self.seconds[1]:.1f} s."


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDEST else line[:WIDEST] + " ..."


def differ(arguments: argparse.Namespace) -> Report:
    """Run both versions over all projects. Raises VersionError."""
    with tempfile.TemporaryDirectory(prefix="oomlint-diff-") as temporary:
        folder = Path(os.path.realpath(temporary))
        versions = (Version(arguments.before, folder / "before"), Version(arguments.after, folder / "after"))
        copies = [folder / "projects" / f"{number}" for number in range(len(arguments.paths))]
        for path, copy in zip(arguments.paths, copies, strict=True):
            lay_out(Path(path), copy)
        report = Report((versions[0].name, versions[1].name), len(copies), [], (Counter(), Counter()), (0.0, 0.0), (Counter(), Counter()))
        found = [version.run([Task(str(copy), FIND) for copy in copies], arguments.jobs) for version in versions]
        report.seconds = (sum(result.user for result in found[0]), sum(result.user for result in found[1]))
        to_fix = []
        for path, copy, before, after in zip(arguments.paths, copies, *found, strict=True):
            entries = (entries_of(before), entries_of(after))
            for counts, side in zip(report.counts, entries, strict=True):
                counts.update(map(_code, side))
            report.differences += [*compare_runs(path, str(copy), (before, after)), *compare(path, *entries)]
            if any(entry.get("fix") for side in entries for entry in side):
                to_fix.append((path, copy))
        if arguments.fixes:
            report.differences += compare_fixes(to_fix, versions, folder / "fixed", arguments.jobs)
            report.differences.sort(key=lambda each: arguments.paths.index(each.project))  # stable: what was found, then what was fixed
        places = [os.path.abspath(each) for each in arguments.verdicts]
        judged = [version.run([Task(place, VERIFY) for place in places], 1) for version in versions]
        for path, place, before, after in zip(arguments.verdicts, places, *judged, strict=True):
            name = f"verdicts of {path}"
            entries = (entries_of(before), entries_of(after))
            for counts, side in zip(report.outcomes, entries, strict=True):
                counts.update(str(entry["verdict"]["outcome"]) for entry in side)
            report.differences += [*compare_runs(name, place, (before, after)), *compare(name, *entries)]
        return report


def main() -> int:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a project: a file, or a folder")
    parser.add_argument("--before", default="HEAD", metavar="REF", help="HEAD unless it is given")
    parser.add_argument("--after", metavar="REF", help="the working tree unless it is given")
    parser.add_argument("--fixes", action="store_true")
    parser.add_argument("--verdicts", action="append", default=[], metavar="FOLDER")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="projects that are checked at the same time")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.jobs)
        return 0
    absent = [path for path in (*arguments.paths, *arguments.verdicts) if not os.path.exists(path)]
    if absent or not (arguments.paths or arguments.verdicts):
        parser.error(f"no such file or folder: {absent[0]}" if absent else "name the files and folders to check")
    try:
        report = differ(arguments)
    except VersionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(report.json() if arguments.json else "\n".join(report.markdown()))
    return int(bool(report.differences))


if __name__ == "__main__":
    sys.exit(main())
