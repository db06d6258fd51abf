"""What `oomlint check` costs, beside `ruff check --select ALL` over the same files in the same run.

    python benchmarks/speed.py
    python benchmarks/speed.py --research ~/corpus/dev ~/corpus/second --packages ~/packages/transformers ~/packages/timm ~/packages/ultralytics
    python benchmarks/speed.py --packages ~/packages/* --only growth --sizes 10000 100000 1000000 2500000

`--research` names folders that hold repositories, `--packages` packages as they are installed. Where none are given, the fixtures of oomlint and what is
installed beside it (torch and others) stand for them, so that anyone can run it. All is copied first; settings and, unless said otherwise, caches have no say.

- corpora: the research code and the packages, each as one run; with the share of the lines that libcst parses: a wrapper around `libcst.parse_module` counts
  them, each text once;
- apart: each research repository by itself, in sum;
- warm: the research code with a cache: filled, with nothing changed, and with a row added to one file;
- start: one file of 300 lines, all of a run included, and an interpreter that imports libcst and typer: the median of several runs;
- fixes: a check and `--fix --unsafe-fixes --diff`, over the repository with the most findings (`--repository` names another);
- growth: more and more of the packages, folder by folder, in an order by chance that is always the same;
- literals: files with a literal or a nesting of a size that nobody writes by hand.

Every run has one processor, so that oomlint is one process and its peak of resident memory is the whole of it; `--processors` gives it more, and the peak is
then that of its largest process. Whatever else runs on the machine shares the processor: user CPU tells more than the time on the wall. A run that takes longer
than `--limit` seconds is ended. Needs Linux, and ruff, which the group of dependencies `dev` brings.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
INSTALLED: Final = ("torch", "libcst", "lightning", "torchmetrics", "networkx", "sympy")
SUFFIXES: Final = {".py", ".pyi", ".ipynb"}
KEPT: Final = SUFFIXES | {".sh", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".json", ".gitignore"}  # what a check may open
PAPERS: Final = ("readme", "license", "licence", "requirements")  # what the names of files begin with that make a folder look like a repository
LARGEST: Final = 3_000_000  # bytes of a file that is copied
PARTS: Final = ("fewshot_detector/src/training/trainer.py", "voxel_colab/data/mesh_dataset.py", "nyu_colab/nyu/loaders.py")
RUNS: Final = 7
SIZES: Final = (10_000, 100_000, 1_000_000, 2_500_000)
CHECK: Final = ("check", "--isolated", "--exit-zero")
COLD: Final = (*CHECK, "--no-cache")
RUFF: Final = ("check", "--select", "ALL", "--isolated", "--no-cache", "--exit-zero", "--output-format", "concise")
MEBIBYTE: Final = 1024  # ru_maxrss counts kibibytes


class Cost(NamedTuple):
    """What a run has taken."""

    user: float  # seconds
    wall: float  # seconds
    peak: float  # megabytes of resident memory
    ended: bool = True  # before the limit

    def cells(self) -> str:
        """Three cells of a table."""
        return f"{self._sign}{self.user:.2f} s | {self._sign}{self.wall:.2f} s | {self._sign}{self.peak:,.0f} MiB"

    @property
    def _sign(self) -> str:
        return "" if self.ended else "> "

    def times(self, other: Cost) -> str:
        """How much more user CPU it has taken than another run."""
        return f"{self._sign}{self.user / max(other.user, 0.01):,.1f} x"


@dataclass(slots=True)
class Session:
    """Runs programs in a folder and measures them."""

    folder: Path
    limit: float

    def run(self, command: Sequence[str], out: Path | None = None) -> Cost:
        """The cost of a command. What it says goes to a file, or nowhere. Raises SystemExit where it fails."""
        complaints = self.folder / "standard-error"
        start = time.perf_counter()
        with complaints.open("wb") as said, (out or Path(os.devnull)).open("wb") as told:
            around = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # as it is for a user: compiled once
            child = subprocess.Popen(command, cwd=self.folder, env=around, stdin=subprocess.DEVNULL, stdout=told, stderr=said, start_new_session=True)
            until, ended = start + self.limit, True
            signal.signal(signal.SIGALRM, lambda *_: os.killpg(child.pid, signal.SIGKILL))
            signal.setitimer(signal.ITIMER_REAL, self.limit)
            try:
                _, status, usage = os.wait4(child.pid, 0)
            except BaseException:  # an interrupt: nothing is left running
                os.killpg(child.pid, signal.SIGKILL)
                raise
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode == -signal.SIGKILL and time.perf_counter() >= until:
            ended = False
        elif child.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {child.returncode}: {complaints.read_text(encoding='utf-8', errors='replace')[-500:]}")
        return Cost(usage.ru_utime, time.perf_counter() - start, usage.ru_maxrss / MEBIBYTE, ended)

    def oomlint(self, *words: str, out: Path | None = None) -> Cost:
        """The cost of a command line of oomlint."""
        # With -P, nothing that lies in the folder is taken for a library.
        return self.run([sys.executable, "-P", "-c", _PROGRAM, str(ROOT), *words], out)

    def counted(self, *words: str, out: Path) -> tuple[Cost, Parsed]:
        """The same, and what libcst has parsed."""
        with tempfile.NamedTemporaryFile(dir=self.folder) as told:
            cost = self.run([sys.executable, "-P", __file__, "--counted", told.name, *words], out)
            return cost, Parsed(*json.loads(told.read() or b"[0, 0, 0]"))

    def ruff(self, *paths: str) -> Cost:
        """The cost of ruff over paths."""
        own = Path(sys.executable).with_name("ruff")
        return self.run([str(own) if own.exists() else shutil.which("ruff") or "ruff", *RUFF, *paths])


_PROGRAM: Final = "import sys; sys.path.insert(0, sys.argv.pop(1)); from oomlint.__main__ import main; sys.exit(main())"


class Parsed(NamedTuple):
    """What libcst has parsed."""

    calls: int
    texts: int  # that differ
    lines: int  # of these


def count(told: str, words: Sequence[str]) -> int:
    """Run oomlint in this process, and write down what libcst parses."""
    sys.path.insert(0, str(ROOT))
    import libcst  # noqa: PLC0415 - only the process that is counted

    from oomlint.__main__ import main as program  # noqa: PLC0415

    plain, calls, seen = libcst.parse_module, 0, dict[bytes, int]()
    usual = libcst.PartialParserConfig()

    def parse(source: str | bytes, config: libcst.PartialParserConfig = usual) -> libcst.Module:
        nonlocal calls
        calls += 1
        data = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
        seen.setdefault(hashlib.blake2b(data, digest_size=16).digest(), data.count(b"\n") + (not data.endswith(b"\n")))
        return plain(source, config)

    libcst.parse_module = parse
    status = program(words)
    Path(told).write_text(json.dumps([calls, len(seen), sum(seen.values())]), encoding="utf-8")
    return status


def aside(function: Callable[..., Any], *arguments: object) -> Any:
    """What a function returns, worked out in a fork: what it takes up would else count as memory of all processes that are started later."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        with os.fdopen(writer, "w") as told:
            json.dump(function(*arguments), told)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as heard:
        answer = heard.read()
    os.waitpid(pid, 0)
    return json.loads(answer)


# -- corpora ---------------------------------------------------------------------------------------------------------


def copy(paths: Sequence[Path], target: Path) -> Path:
    """Copy folders below one, by their names, without what no check opens. What was a repository still looks like one."""

    def foreign(folder: str, names: Sequence[str]) -> set[str]:
        if ".git" in names:
            repositories.append(Path(folder))
        left = set()
        for name in names:
            path = Path(folder, name)
            known = (path.suffix or path.name) in KEPT or name.lower().startswith(PAPERS)
            unread = path.is_file() and (not known or path.stat().st_size > LARGEST)
            if unread or path.is_symlink() or name in {".git", "__pycache__"}:
                left.add(name)
        return left

    target.mkdir()
    for path in paths:
        place = target / path.resolve().name
        number = 1
        while place.exists():
            number += 1
            place = target / f"{path.resolve().name}_{number}"
        repositories: list[Path] = []
        shutil.copytree(path, place, ignore=foreign)
        for folder in repositories:
            (place / folder.relative_to(path) / ".git").mkdir()
    return target


def lines_of(path: Path) -> int:
    """Lines of code, in a notebook those of its cells."""
    text = path.read_bytes().decode("utf-8", "replace")
    if path.suffix != ".ipynb":
        return text.count("\n") + (not text.endswith("\n"))
    try:
        return sum("".join(cell["source"]).count("\n") + 1 for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
    except (ValueError, KeyError, TypeError):
        return 0


def lines_below(folder: Path) -> dict[str, int]:
    """The lines of all files that a check reads, by path."""
    return dict(aside(lambda: {str(path): lines_of(path) for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES and path.is_file()}))


def single(folder: Path) -> Path:
    """Training code of about 300 lines in one file."""
    folder.mkdir()
    target = folder / "train.py"
    target.write_text("\n\n".join((ROOT / "fixtures" / "incidents" / part).read_text(encoding="utf-8") for part in PARTS), encoding="utf-8")
    return target


class Corpora:
    """The folders that are measured, copied when they are first asked for."""

    def __init__(self, research: Sequence[str], packages: Sequence[str], folder: Path) -> None:
        self._given = {
            "research": [Path(path) for path in research] or [ROOT / "fixtures"],
            "packages": [Path(path) for path in packages] or list(_installed()),
        }
        self._folder = folder
        self.findings: Counter[Path] = Counter()  # by repository

    def get(self, name: str) -> Path:
        """The folder of ``research`` or ``packages``."""
        target = self._folder / name
        return target if target.exists() else copy(self._given[name], target)

    def repositories(self) -> list[Path]:
        """The folders in the folders of the research code."""
        return sorted(path for path in self.get("research").glob("*/*") if path.is_dir())

    def note(self, report: Path) -> None:
        """Count the findings of a report in lines by repository."""
        with report.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                path = line.partition(":")[0].split("/")
                if path[0] == "research" and len(path) > len(("research", "folder", "repository")):
                    self.findings[self._folder.joinpath(*path[:3])] += 1


def _installed() -> Iterator[Path]:
    for name in INSTALLED:
        spec = importlib.util.find_spec(name)
        if spec and spec.origin:
            yield Path(spec.origin).parent


# -- sections --------------------------------------------------------------------------------------------------------


def heading(title: str, *columns: str) -> None:
    """Begin a table."""
    print(f"\n## {title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)


def row(*cells: object) -> None:
    """One row of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


BOTH: Final = ("oomlint: user CPU", "wall", "peak", "ruff: user CPU", "wall", "peak", "user CPU to ruff's")


def corpora(session: Session, folders: Corpora, _: argparse.Namespace) -> None:
    """The corpora, each as one run."""
    heading("Corpora, each as one run", "", "files", "lines", *BOTH, "lines parsed by libcst", "texts parsed")
    for name in ("research", "packages"):
        files = lines_below(folders.get(name))
        lines = sum(files.values())
        report = session.folder / "report"
        ours, parsed = session.counted(*COLD, "--output-format", "concise", name, out=report)
        if name == "research":
            folders.note(report)
        theirs = session.ruff(name)
        share = f"{parsed.lines:,} ({parsed.lines / max(lines, 1):.0%})" if ours.ended else "?"
        texts = f"{parsed.texts:,} in {parsed.calls:,} calls" if ours.ended else "?"
        row(name, f"{len(files):,}", f"{lines:,}", ours.cells(), theirs.cells(), ours.times(theirs), share, texts)


def apart(session: Session, folders: Corpora, _: argparse.Namespace) -> None:
    """Each repository by itself."""
    heading("Research repositories, each by itself", "", *BOTH)
    repositories = [str(path) for path in folders.repositories()]
    ours, theirs = ([run(path) for path in repositories] for run in (lambda path: session.oomlint(*COLD, path), session.ruff))
    one, other = (Cost(sum(each.user for each in costs), sum(each.wall for each in costs), max(each.peak for each in costs)) for costs in (ours, theirs))
    row(f"{len(repositories)} runs in sum, peak of the largest", one.cells(), other.cells(), one.times(other))


def warm(session: Session, folders: Corpora, _: argparse.Namespace) -> None:
    """With a cache."""
    heading("Research with a cache", "", "user CPU", "wall", "peak")
    name, report = folders.get("research").name, session.folder / "report"
    row("cache filled", session.oomlint(*CHECK, "--output-format", "concise", name, out=report).cells())
    folders.note(report)
    row("nothing changed", session.oomlint(*CHECK, name).cells())
    with report.open(encoding="utf-8", errors="replace") as lines:  # with findings, where there are any
        target = next((path for line in lines if (path := session.folder / line.partition(":")[0]).suffix == ".py"), None)
    target = target or next(path for path in folders.get(name).rglob("*.py"))
    with target.open("ab") as file:
        file.write(b"\n# a row more\n")
    row(f"a row added to {target.relative_to(session.folder)}", session.oomlint(*CHECK, name).cells())


def start(session: Session, _: Corpora, __: argparse.Namespace) -> None:
    """One file, and an interpreter that imports as much."""
    file = single(session.folder / "single")
    number = lines_of(file)
    heading(f"One file of {number} lines, the median of {RUNS} runs", "", "user CPU", "wall", "peak")
    ways: dict[str, Callable[[], Cost]] = {
        "oomlint check --no-cache": lambda: session.oomlint(*COLD, str(file)),
        "python -c 'import libcst, typer'": lambda: session.run([sys.executable, "-P", "-c", "import libcst, typer"]),
        "ruff": lambda: session.ruff(str(file)),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for run in ways.values():  # writes the bytecode
        run()
    for _number in range(RUNS):
        for name, run in ways.items():
            costs[name].append(run())
    for name, runs in costs.items():
        row(name, Cost(*(statistics.median(values) for values in list(zip(*runs, strict=True))[:3])).cells())


def fixes(session: Session, folders: Corpora, arguments: argparse.Namespace) -> None:
    """What fixing costs more than checking."""
    if arguments.repository:
        target = next(copy([Path(arguments.repository)], session.folder / "repository").iterdir())
    elif not folders.findings:
        report = session.folder / "report"
        session.oomlint(*COLD, "--output-format", "concise", "--quiet", folders.get("research").name, out=report)
        folders.note(report)
    if not arguments.repository:
        if not folders.findings:
            print("\nno repository with findings")
            return
        target = folders.findings.most_common(1)[0][0]
    files = lines_below(target)
    heading(f"Fixing {target.name}: {len(files)} files, {sum(files.values()):,} lines", "", "user CPU", "wall", "peak", "to the check")
    check = session.oomlint(*COLD, str(target))
    row("check", check.cells(), "")
    fixed = session.oomlint(*COLD, "--fix", "--unsafe-fixes", "--diff", str(target))
    row("check --fix --unsafe-fixes --diff", fixed.cells(), fixed.times(check))


def growth(session: Session, folders: Corpora, arguments: argparse.Namespace) -> None:
    """Whether twice the code takes twice the time."""
    heading(
        "Growth over the packages",
        "files",
        "lines",
        "user CPU",
        "wall",
        "peak",
        "user CPU for 10,000 lines",
        "exponent since the row above",
        "parsed by libcst",
    )
    source, target = folders.get("packages"), session.folder / "growing"
    known = lines_below(source)
    by_folder: dict[Path, list[Path]] = {}
    for path in map(Path, known):
        by_folder.setdefault(path.parent, []).append(path)
    # What belongs together comes together; and no part is all tests, or all of one package.
    waiting = sorted(by_folder, key=lambda path: hashlib.blake2b(path.relative_to(source).as_posix().encode()).digest())
    lines = number = 0
    last: tuple[int, float] | None = None
    for size in sorted(arguments.sizes):
        before = lines
        while waiting and lines < size:
            for path in by_folder[waiting.pop(0)]:
                place = target / path.relative_to(source)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)
                lines, number = lines + known[str(path)], number + 1
        if lines == before:
            break
        cost, parsed = session.counted(*COLD, target.name, out=session.folder / "report")
        exponent = f"{math.log(cost.user / last[1]) / math.log(lines / last[0]):.2f}" if last and lines > last[0] and cost.ended else ""
        row(f"{number:,}", f"{lines:,}", cost.cells(), f"{cost.user / lines * 10_000:.2f} s", exponent, f"{parsed.lines / lines:.0%}" if cost.ended else "?")
        last = (lines, cost.user)
    if lines < max(arguments.sizes):
        print(f"\n{lines:,} lines are all there are.")


def literal_files() -> Iterator[tuple[str, str]]:
    """Names and texts of files that no analysis may choke on."""
    head = "from torch.utils.data import DataLoader, Dataset\n\n\n"
    holder = "class Samples(Dataset):\n    def __init__(self):\n        self.items = {}\n\n    def __getitem__(self, i):\n        return self.items[i]\n\n\n"
    loader = "loader = DataLoader(Samples(), num_workers=4, persistent_workers=True)\n"
    dicts = "".join(f'    {{"path": "images/{number:06}.png", "label": {number % 10}}},\n' for number in range(50_000))
    yield "50,000 dicts in a list", f"{head}ITEMS = [\n{dicts}]\n\n\n{holder.format('ITEMS')}{loader}"
    numbers = ", ".join(map(str, range(290_000)))
    yield f"a list of {len(numbers) / 2**20:.1f} MiB in one row", f"{head}ITEMS = [{numbers}]\n\n\n{holder.format('ITEMS')}{loader}"
    chain = "".join(
        f"loader_{number} = DataLoader(loader_{number - 1}.dataset, num_workers=loader_{number - 1}.num_workers, persistent_workers=True)\n"
        for number in range(1, 3_000)
    )
    yield (
        "3,000 loaders, each made from the one before",
        f"{head}def make(data, workers=0):\n    return DataLoader(data, num_workers=workers)\n\n\nloader_0 = make([])\n{chain}",
    )
    opened = "".join(f"{'    ' * (depth + 1)}if flags[{depth}]:\n{'    ' * (depth + 2)}workers = {depth}\n" for depth in range(60))
    closed = "".join(f"{'    ' * (depth + 1)}else:\n{'    ' * (depth + 2)}workers = workers + {depth}\n" for depth in reversed(range(60)))
    nested = f"def make(data, flags):\n    workers = 0\n{opened}{closed}    return DataLoader(data, num_workers=workers, persistent_workers=True)\n"
    yield "60 nested if/else", head + nested
    entries = "".join(f'    "sample_{number}": ["images/{number:06}.png", {number}],\n' for number in range(30_000))
    yield "a dict of 30,000 entries", f"{head}ITEMS = {{\n{entries}}}\n\n\n{holder.format('ITEMS')}{loader}"


def literals(session: Session, _: Corpora, __: argparse.Namespace) -> None:
    """Files of a size that nobody writes by hand."""
    heading("Literals and nestings", "", "bytes", *BOTH)
    for name, path, size in aside(_write_literals, session.folder):
        ours, theirs = session.oomlint(*COLD, path), session.ruff(path)
        row(name, f"{size:,}", ours.cells(), theirs.cells(), ours.times(theirs))


def _write_literals(folder: Path) -> list[tuple[str, str, int]]:
    written = []
    for number, (name, text) in enumerate(literal_files()):
        path = folder / f"literal_{number}" / "train.py"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        written.append((name, str(path), len(text)))
    return written


SECTIONS: Final[dict[str, Callable[[Session, Corpora, argparse.Namespace], None]]] = {
    "start": start,
    "literals": literals,
    "corpora": corpora,
    "apart": apart,
    "warm": warm,
    "fixes": fixes,
    "growth": growth,
}


def main() -> int:
    """Measure, and print tables."""
    if sys.argv[1:2] == ["--counted"]:
        return count(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--research", nargs="*", default=[], metavar="DIR", help="folders that hold repositories")
    parser.add_argument("--packages", nargs="*", default=[], metavar="DIR", help="packages, as they are installed")
    parser.add_argument("--repository", metavar="DIR", help="the one that is fixed")
    parser.add_argument("--only", nargs="*", choices=SECTIONS, default=[], metavar="SECTION", help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--literals", action="store_true", help="only the section of literals")
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES, metavar="LINES", help="of the section of growth")
    parser.add_argument("--processors", type=int, default=1, metavar="N")
    parser.add_argument("--limit", type=float, default=1800, metavar="SECONDS", help="for one run")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = [name for name in SECTIONS if name in arguments.only or (arguments.literals and name == "literals")] or list(SECTIONS)
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[-arguments.processors :]))  # children inherit it
    with tempfile.TemporaryDirectory(prefix="oomlint-speed-") as name:
        session = Session(Path(os.path.realpath(name)), arguments.limit)
        folders = Corpora(arguments.research, arguments.packages, session.folder)
        revision = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False).stdout.strip()  # noqa: S607
        print(f"oomlint {revision or 'without a revision'}, Python {sys.version.split()[0]}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} processors")
        for section in chosen:
            SECTIONS[section](session, folders, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
