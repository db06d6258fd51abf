"""A fix of a dataset keeps its samples, whoever reads them: the main process, or workers under fork, spawn and forkserver.

A fixture takes part where it has, in one of its files, a function of the module

    def dataset(folder): ...

that writes tiny data, the same every time, into ``folder``, and returns a dataset with ``__len__`` and ``__getitem__``. The folder is the current one while
it runs, so paths may be relative. Samples must not be random. Code that makes a loader stands in functions, or behind ``__name__ == "__main__"``, because
workers import the file. ``main()`` may use the same function.

Every such program is fixed, and its dataset comes by itself, after ``len`` and a sample were asked for, through ``pickle``, ``copy.copy`` and
``copy.deepcopy``, and as an object of a subclass. All of these are read in another folder than they were made in. What comes out must be, to the last bit,
what the program gave before the fix, in the main process. tests/run_datasets.py builds and reads.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Final, Protocol

import pytest

from oomlint import engine, registry
from oomlint.config import load_settings
from oomlint.finding import Safety

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from conftest import Read

    from oomlint.finding import Finding

FIXTURES: Final = Path(__file__).parent.parent / "fixtures" / "rules"
BROKEN: Final = "BROKEN"
METHODS: Final = ("main", "fork", "spawn", "forkserver")
LIMIT: Final = 120  # seconds for one request
# After a fix of these, a dataset can be sent to a worker, whatever it was before.
SENDS: Final = frozenset({"OOM111", "OOM112", "OOM301", "OOM303", "OOM311"})
UNSAFE: Final = ("OOM112", "OOM3", "OOM4")  # families whose unsafe fixes keep the samples too
ALONE: Final = frozenset({"OOM112"})  # other unsafe fixes of its family give samples of another type
NEW_SAMPLES: Final = frozenset({"OOM403"})  # but for these, whose samples are of another type
LEAST_RUN: Final = 3

# -- programs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """A file with a function ``dataset(folder)``."""

    case: Path
    file: str  # relative to the folder of the case, or to the one that the case is in
    safety: Safety

    @property
    def code(self) -> str:
        return self.case.parent.name

    @property
    def name(self) -> str:
        return f"{self.code}-{self.case.stem}-{self.safety}"

    @property
    def missing(self) -> list[str]:
        """Modules that it imports and that are not installed."""
        files = self.case.rglob("*.py") if self.case.is_dir() else [self.case]
        trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
        wanted = {alias.name for tree in trees for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
        wanted |= {node.module or "" for tree in trees for node in tree.body if isinstance(node, ast.ImportFrom)} - {"", "__future__"}
        own = {path.stem for path in self.case.rglob("*")} if self.case.is_dir() else set()
        roots = {name.partition(".")[0] for name in wanted} - own - set(sys.stdlib_module_names)
        return sorted(name for name in roots if importlib.util.find_spec(name) is None)


def programs() -> Iterator[Program]:
    for case in sorted(FIXTURES.glob("*/bad*")):
        for file in sorted(case.rglob("*.py")) if case.is_dir() else [case]:
            tree = ast.parse(file.read_text(encoding="utf-8"))
            if any(isinstance(item, ast.FunctionDef) and item.name == "dataset" and len(item.args.args) == 1 for item in tree.body):
                name = file.relative_to(case if case.is_dir() else case.parent).as_posix()
                yield Program(case, name, Safety.SAFE)
                if case.parent.name.startswith(UNSAFE):
                    yield Program(case, name, Safety.UNSAFE)


PROGRAMS: Final = list(programs())
READY: Final = [program for program in PROGRAMS if not program.missing]


# -- fixing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A program before and after its fixes, each in a folder of its own."""

    name: str
    folder: Path
    file: str
    sends: bool  # after the fix it must be possible to send the dataset to a worker
    changed: bool = True
    stays: bool = False  # paths are relative when a sample is read: nothing is read elsewhere
    size: int | None = None

    def request(self, part: str) -> dict[str, object]:
        """The program in the words of tests/run_datasets.py."""
        path = self.folder / part / self.file
        packaged = (path.parent / "__init__.py").exists()
        module = self.file.removesuffix(".py").replace("/", ".") if packaged else path.stem
        folders = [str(self.folder / part), *([] if packaged or path.parent == self.folder / part else [str(path.parent)])]
        data = str(self.folder / "data" / "first")
        return {"name": self.name, "folders": folders, "module": module, "data": data, "stays": self.stays, "size": self.size}

    @cached_property
    def modules(self) -> set[str]:
        """Names that its imports take."""
        return {path.stem for path in (self.folder / "before").iterdir()} - {"__pycache__"}


def fixed(program: Program, folder: Path) -> Pair:
    """Lay out a fixture twice and apply to the second its fixes: the safe ones, or all."""
    file = program.file
    for part in ("before", "after"):
        if program.case.is_dir():
            shutil.copytree(program.case, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            file = f"{program.name.replace('-', '_')}.py"  # one process imports many programs
            (folder / part).mkdir(parents=True)
            shutil.copy(program.case, folder / part / file)
    fixed = fix(folder / "after", program.code, program.safety)
    codes = {item.code for item in fixed}
    changed = any(item.fix and item.fix.safety is program.safety for item in fixed)  # what safe fixes do is looked at once
    return Pair(program.name, folder, file, sends=bool(codes & SENDS), changed=changed and not codes & NEW_SAMPLES)


def fix(folder: Path, code: str, safety: Safety) -> tuple[Finding, ...]:
    """Apply the fixes of a family to the files of a folder."""
    settings, root = load_settings(None, False, folder)  # noqa: FBT003 - the engine's own signature
    wanted = code if code in ALONE else code[: len("OOM1")]
    settings = settings.with_overrides(select=[wanted], preview=True, severity="note", min_confidence="low", exclude=[])
    report = engine.run([str(folder)], settings, root, engine.RunOptions(fix=True, unsafe_fixes=safety is Safety.UNSAFE, cache=False, processes=1))
    assert not report.failures, "\n".join(failure.trace for failure in report.failures)
    return report.fixed


# -- reading -----------------------------------------------------------------------------------------------------------

Ways = dict[str, list[list[str]]]  # the length and the samples of a dataset, by how it was come by


class Ask(Protocol):
    def __call__(self, pairs: list[Pair], part: str, method: str) -> dict[str, Ways]: ...


@pytest.fixture(scope="module")
def ask(read: Read, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Reads the datasets of programs, as many as can be imported together at once; alone those that do not come to their end."""
    elsewhere = str(tmp_path_factory.mktemp("elsewhere"))

    def ask(pairs: list[Pair], part: str, method: str) -> dict[str, Ways]:
        found: dict[str, Ways] = {}
        for group in together(pairs):
            answer = read(programs=[pair.request(part) for pair in group], method=method, elsewhere=elsewhere, limit=LIMIT)
            if answer["error"] is None:
                found.update(answer["outcomes"])
            elif len(group) == 1:
                found[group[0].name] = {"as a whole": [[BROKEN, answer["error"]]]}
            else:
                middle = len(group) // 2
                found.update({**ask(group[:middle], part, method), **ask(group[middle:], part, method)})
        return found

    return ask


def together(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """Groups in which no two programs have a module of the same name."""
    groups: list[list[Pair]] = []
    for pair in pairs:
        fits = (group for group in groups if all(pair.modules.isdisjoint(other.modules) for other in group))
        group = next(fits, None)
        if group is None:
            groups.append([pair])
        else:
            group.append(pair)
    return groups


def broken(told: list[list[str]]) -> str:
    """What went wrong, empty if nothing did."""
    return next((lines[1] for lines in told if lines[0] == BROKEN), "")


def complaints(pairs: list[Pair], ask: Ask) -> dict[str, list[str]]:
    """What is not as it was, for each program: where, and how it differs."""
    before = ask(pairs, "before", "main")
    left = [replace(pair, stays=True) for pair in pairs if broken(before[pair.name].get("untouched", [[BROKEN, ""]]))]
    before.update(ask(left, "before", "main") if left else {})
    stay = {pair.name for pair in left}
    found: dict[str, list[str]] = {}
    ready: list[Pair] = []
    for pair in pairs:
        told = before[pair.name].get("untouched", before[pair.name].get("as a whole", []))
        found[pair.name] = [f"{pair.name}: before the fix: {broken(told)}"] if broken(told) else []
        if pair.changed and not broken(told):
            ready.append(replace(pair, stays=pair.name in stay, size=len(told) - 1, sends=pair.sends or not broken(before[pair.name]["pickled"])))
    for method in METHODS:
        sent = [pair for pair in ready if pair.sends or method in {"main", "fork"}]
        after = ask(sent, "after", method) if sent else {}
        for pair in sent:
            for way, told in after[pair.name].items():
                if pair.sends or not broken(before[pair.name].get(way.removesuffix(", afterwards"), [])):
                    wanted = before[pair.name]["untouched"]
                    found[pair.name] += [f"{pair.name}: {method}, {way}: {what}" for what in differences(wanted, told)]
    return found


def differences(wanted: list[list[str]], told: list[list[str]]) -> Iterator[str]:
    """How two datasets differ; what is the same for all samples is said once."""
    cause = broken(told)
    if cause:
        yield cause
        return
    for number, (one, two) in enumerate(zip(wanted, told, strict=True)):
        if one != two:
            yield f"{f'sample {number - 1}' if number else 'the length'} was {one} and is {two}"
            return


Found = dict[str, tuple[Pair, list[str]]]


@pytest.fixture(scope="module")
def found(ask: Ask, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What is wrong with each program: all are read together."""
    pairs = [fixed(program, tmp_path_factory.mktemp(program.name)) for program in READY]
    wrong: dict[str, list[str]] = {pair.name: [] for pair in pairs}
    asked = [pair for program, pair in zip(READY, pairs, strict=True) if pair.changed or program.safety is Safety.SAFE]
    forms = [written(name, text, tmp_path_factory.mktemp("form")) for name, text in FORMS.items()]
    forms += [spoilt(name, tmp_path_factory.mktemp("spoilt")) for name in SPOILT]
    wrong.update(complaints([*asked, *forms], ask))
    return {pair.name: (pair, wrong[pair.name]) for pair in (*pairs, *forms)}


# -- the law -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", [pytest.param(program, id=program.name) for program in PROGRAMS])
def test_a_fix_keeps_the_samples_of_a_dataset(program: Program, found: Found) -> None:
    if program.missing:
        pytest.skip(f"not installed: {', '.join(program.missing)}")
    _, wrong = found[program.name]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("code", sorted(SENDS & {code for code, _ in registry.catalogue()}))
def test_a_rule_that_lets_go_of_handles_has_programs_that_show_it(code: str, found: Found) -> None:
    shown = [program.name for program in READY if program.code == code and found[program.name][0].changed and found[program.name][0].sends]
    missing = {name for program in PROGRAMS if program.code == code for name in program.missing}
    if len(shown) < LEAST_RUN and missing:
        pytest.skip(f"not installed: {', '.join(sorted(missing))}")
    assert len(shown) >= LEAST_RUN, f"fixed and run: {shown}"


# -- forms that a class can have ---------------------------------------------------------------------------------------

PLAIN: Final = """\
import h5py
import numpy as np
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, path):
        self.f = h5py.File(path, "r")

    def __len__(self):
        return len(self.f["x"])

    def __getitem__(self, index):
        return self.f["x"][index], self.f["y"][index]


def dataset(folder):
    with h5py.File(f"{folder}/x.h5", "a") as file:
        if "x" not in file:
            file["x"] = np.arange(12).reshape(4, 3)
            file["y"] = np.arange(4.0)
    return Rows(f"{folder}/x.h5")


def loader(folder):
    return DataLoader(dataset(folder), num_workers=2)
"""
IMPORT: Final = "import h5py\n"
CLASS: Final = "class Rows(Dataset):\n"
INIT: Final = "    def __init__(self, path):\n"
OPENS: Final = '        self.f = h5py.File(path, "r")\n'
LENGTH: Final = '    def __len__(self):\n        return len(self.f["x"])\n'
ITEM: Final = '        return self.f["x"][index], self.f["y"][index]\n'
BLOCK: Final = PLAIN[PLAIN.index(CLASS) : PLAIN.index("\n\ndef dataset")]
MAKES: Final = 'Rows(f"{folder}/x.h5")'


# A worker moves the position in each open file; the main process tells whether that has moved its own: then they share a descriptor.
SHARES: Final = """\
        x, y = self.f["x"][index], self.f["y"][index]
        names = os.listdir(FILES) if os.path.isdir(FILES) else []
        files = [int(name) for name in names if os.path.realpath(f"{FILES}/{name}") == self.path]
        if get_worker_info():
            return x, y, [os.lseek(file, 4321, 0) for file in files][:0]
        return x, y, [number for file in files if (number := os.lseek(file, 0, 1)) == 4321]
"""
SHARING: Final = (
    (ITEM, SHARES),
    (INIT, f"{INIT}        self.path = path\n"),
    (IMPORT, f'import os\n\n{IMPORT}\nFILES = "/proc/self/fd"\n'),
    ("Dataset\n\n", "Dataset, get_worker_info\n\n"),
)


def form(*changes: tuple[str, str]) -> str:
    """The plain form with some of its text replaced."""
    text = PLAIN
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


FORMS: Final = {
    "plain": PLAIN,
    "tabs": form(("    ", "\t")),
    "two blanks": form(("    ", "  ")),
    "other line ends": form(("\n", "\r\n")),
    "a comment behind": form((OPENS, f"{OPENS.rstrip()}  # stays open\n")),
    "comments below": form((OPENS, f"{OPENS}        # stays open\n\n        # until the end\n\n    # the number of rows\n")),
    "a docstring": form((INIT, f'{INIT}        """Open it.\n\n        # once\n        """\n')),
    "an if at the end": form((OPENS, f"{OPENS}        if len(self.f) > 1:\n            self.n = 1\n        else:\n            self.n = 2  # few\n")),
    "a try at the end": form((OPENS, f"{OPENS}        try:\n            self.n = int('a')\n        except ValueError: self.n = 2\n")),
    "a string of lines at the end": form((OPENS, f'{OPENS}        self.words = """a\n    # b\nc"""\n')),
    "the last method of the file": f"{form((INIT + OPENS, ''), (CLASS, CLASS.replace('Rows', 'Base')), (MAKES, MAKES.replace('Rows', 'End')))}\n\n"
    f"class End(Base):\n{INIT}{OPENS.rstrip()}",
    "read at once": form((OPENS, f'{OPENS}        self.mean = self.f["x"][:].mean()\n        self.keys = sorted(self.f.keys())\n')),
    "read by a function inside": form((ITEM, f"        def get(key):\n            return self.f[key][index]\n\n{ITEM}")),
    "asked for by name": form((ITEM, f'        assert hasattr(self, "f") and getattr(self, "f")\n{ITEM}')),
    "a property beside it": form((LENGTH, f"    @property\n    def n(self):\n        return len(self.f['x'])\n\n{LENGTH}")),
    "generators and coroutines beside it": form(
        (LENGTH, f'    def rows(self):\n        yield from self.f["x"]\n\n    async def first(self):\n        return self.f\n\n{LENGTH}')
    ),
    "a registered class": form((CLASS, f"KNOWN = []\n\n\ndef known(cls):\n    KNOWN.append(cls)\n    return cls\n\n\n@known\n{CLASS}")),
    "a class in a class": form((BLOCK, f"class Outer:\n{indent(BLOCK, '    ')}"), (MAKES, f"Outer.{MAKES}")),
    "a generic class": form((CLASS, "T = TypeVar('T')\n\n\nclass Rows(Dataset, Generic[T]):\n"), (IMPORT, f"from typing import Generic, TypeVar\n\n{IMPORT}")),
    "a mixin that reads it": form(
        (CLASS, "class Sizes:\n    def size(self):\n        return len(self.f['x'])\n\n\nclass Rows(Sizes, Dataset):\n"),
        (ITEM, f"        assert self.size()\n{ITEM}"),
    ),
    "a subclass that reads it": form(
        ("def dataset", f"class More(Rows):\n    def __getitem__(self, index):\n{ITEM}\n\ndef dataset"), (MAKES, MAKES.replace("Rows", "More"))
    ),
    "a subclass that builds more": form(
        ("def dataset", f"class More(Rows):\n{INIT}        super().__init__(path)\n        self.n = len(self.f['x'])\n\n\ndef dataset"),
        (MAKES, MAKES.replace("Rows", "More")),
    ),
    "another name for the object": form((INIT + OPENS, (INIT + OPENS).replace("self", "this"))),
    "a private name": form((".f[", "._f["), (".f =", "._f =")),
    "a path of its own": form((OPENS, f"        self.path = path\n{OPENS.replace('path', 'self.path')}")),
    "a path put together": form(
        (OPENS, OPENS.replace("(path", "(path.parent / f'{path.stem}.h5'")),
        (MAKES, "Rows(Path(folder) / 'x.h5')"),
        (IMPORT, f"from pathlib import Path\n\n{IMPORT}"),
    ),
    "a path that is absolute": form((OPENS, OPENS.replace("path,", "os.path.abspath(path),")), (IMPORT, f"import os\n\n{IMPORT}")),
    "a relative path": form((MAKES, "Rows('x.h5')")),
    "a path of bytes": form((MAKES, 'Rows(f"{folder}/x.h5".encode())')),
    "a path by keyword": form(
        (INIT, "    def __init__(self, *, path):\n"), (MAKES, 'Rows(path=f"{folder}/x.h5")'), (OPENS, OPENS.replace('path, "r"', 'mode="r", name=path'))
    ),
    "os.path": form((IMPORT, f"import os.path\n\n{IMPORT}")),
    "path of os": form((IMPORT, f"from os import path as paths\n\n{IMPORT}"), ("(path,", "(paths.join(path),")),
    "os under another name": form((IMPORT, f"import os as system\n\n{IMPORT}")),
    "os for types only": form((IMPORT, f"from typing import TYPE_CHECKING\n\n{IMPORT}"), (CLASS, f"if TYPE_CHECKING:\n    import os\n\n\n{CLASS}")),
    "os for the main script only": form((IMPORT, f'if __name__ == "__main__":\n    import os\n\n{IMPORT}')),
    "an annotation for types only": form(
        (IMPORT, f"from typing import TYPE_CHECKING\n\n{IMPORT}"),
        (CLASS, f"if TYPE_CHECKING:\n    from h5py import File\n\n\n{CLASS}"),
        (OPENS, OPENS.replace("self.f", "self.f: File")),
    ),
    "signs that end no line": form((IMPORT, f'\x0c\n# one\x85two\nSEP = "a\u2028b\x0bc\x1cd"\n{IMPORT}')),
    "File by itself": form((IMPORT, "import h5py\nfrom h5py import File as Open\n"), ("= h5py.File(path", "= Open(path")),
    "an import that may fail": form((IMPORT, "try:\n    import h5py\nexcept ImportError:\n    h5py = None\n")),
    "an annotation": form((OPENS, OPENS.replace("self.f", "self.f: h5py.File"))),
    "numbers that are worked out": form(
        (OPENS, OPENS.replace('"r"', '"r", rdcc_nbytes=8 * 1024**2, rdcc_nslots=slots')), (INIT, "    def __init__(self, path, slots=521):\n")
    ),
    "several lines": form((OPENS, '        self.f = h5py.File(\n            path,\n            "r",\n        )\n')),
    "a key": form((OPENS, OPENS.replace('"r")', '"r")["/"]'))),
    "a key that is given": form((INIT, '    def __init__(self, path, key="/"):\n'), (OPENS, OPENS.replace('"r")', '"r")[key]'))),
    "its datasets": form(
        (OPENS, f'{OPENS}        self.x = self.f["x"]\n        self.y = (\n            self.f["y"]\n        )\n'),
        (ITEM, "        return self.x[index], self.y[index]\n"),
    ),
    "two files": form((OPENS, f'{OPENS}        self.g = h5py.File(path, "r")\n'), (ITEM, ITEM.replace('self.f["y"]', 'self.g["y"]'))),
    "its datasets by get": form((OPENS, f'{OPENS}        self.x = self.f.get("x")\n'), (ITEM, ITEM.replace('self.f["x"]', "self.x"))),
    "what a fork has left": form(*SHARING),
    "datasets that a fork has left": form(*SHARING, (OPENS, f'{OPENS}        self.x = self.f["x"]\n'), ('x, y = self.f["x"][index]', "x, y = self.x[index]")),
    "opened by a method": form(
        (INIT + OPENS, f"{INIT}        self.path = path\n        self.open()\n\n    def open(self):\n{OPENS.replace('path', 'self.path')}")
    ),
}


def written(name: str, text: str, folder: Path) -> Pair:
    """Lay out a form twice and fix the second."""
    file = f"form_{'_'.join(name.replace('.', '_').split())}.py"
    for part in ("before", "after"):
        (folder / part).mkdir()
        (folder / part / file).write_text(text, encoding="utf-8", newline="")
    fixed = fix(folder / "after", "OOM111", Safety.SAFE)
    return Pair(name, folder, file, sends=True, changed=[item.code for item in fixed] == ["OOM111"])


@pytest.mark.parametrize("name", FORMS)
def test_the_form_of_a_class_is_kept(name: str, found: Found) -> None:
    pair, wrong = found[name]
    assert pair.changed, "it is not fixed"
    assert not wrong, "\n".join(wrong)


# -- what is noticed ---------------------------------------------------------------------------------------------------

LAZY: Final = """\
    def __init__(self, path):
        self.path = path
        self.n = 4
        self.file = None

    def __getstate__(self):
        return {**self.__dict__, "file": None}

    @property
    def f(self):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return self.file
"""
LAZILY: Final = (INIT + OPENS, LAZY)
KNOWN: Final = (LENGTH, LENGTH.replace('len(self.f["x"])', "self.n"))
Y: Final = '["y"][index]'
WORKER: Final = [("Dataset\n\n", "Dataset, get_worker_info\n\n")]
SPOILT: dict[str, tuple[str, str]] = {
    "as good as before": (form(LAZILY), "^$"),
    "what cannot be sent": (PLAIN, "spawn, untouched: .*h5py objects cannot be pickled"),
    "what can be sent until it is used": (form(LAZILY, (', "file": None', "")), "forkserver, touched: .*cannot be pickled"),
    "a state that lacks something": (form(LAZILY, ("**self.__dict__", '"n": self.n')), "main, deeply copied: .*AttributeError"),
    "a state that is another": (form(LAZILY, KNOWN, ('"file": None', '"file": None, "n": 3')), "main, pickled: the length was .*4.* and is .*3"),
    "a path that is relative": (form(LAZILY, (" = path", " = __import__('os').path.relpath(path)")), "main, untouched: .*FileNotFoundError"),
    "another value": (form((Y, f"{Y} + 1")), "main, untouched: sample 0 was .* and is "),
    "another type": (form((Y, f'{Y}.astype("float32")')), "main, copied: sample 0 was .*float64.* and is .*float32"),
    "another length": (form((LENGTH, f"{LENGTH.rstrip()} - 1\n")), "main, untouched: the length was .*4.* and is .*3"),
    "another value in workers": (form(LAZILY, (Y, f"{Y} + (get_worker_info() is not None)"), *WORKER), "fork, touched: sample 0 was .* and is "),
    "another value in a process of its own": (form(LAZILY, (Y, f"{Y} + (get_worker_info() is not None)"), *WORKER), "spawn, copied: sample 0 was .* and is "),
    "another value in a subclass": (form((Y, f"{Y} + (type(self) is not Rows)")), "main, of a subclass: sample 0 was .* and is "),
}


if Path("/proc/self/fd").exists():
    SPOILT["a descriptor that a fork shares"] = (form(*SHARING), "fork, touched, afterwards: sample 0 was .* and is .*4321")


def spoilt(name: str, folder: Path) -> Pair:
    """A pair of programs as a fix that went wrong would leave it."""
    file = f"spoilt_{name.replace(' ', '_')}.py"
    for part, text in (("before", form(*SHARING) if "shares" in name else PLAIN), ("after", SPOILT[name][0])):
        (folder / part).mkdir()
        (folder / part / file).write_text(text, encoding="utf-8")
    return Pair(name, folder, file, sends=True)


@pytest.mark.parametrize("name", SPOILT)
def test_what_a_fix_spoils_is_noticed(name: str, found: Found) -> None:
    _, wrong = found[name]
    assert re.search(SPOILT[name][1], "\n".join(wrong), re.DOTALL), "\n".join(wrong)


def test_a_program_that_ends_its_process_is_told_from_the_others(ask: Ask, tmp_path: Path) -> None:
    pairs = []
    for number, crash in enumerate(("pass", "__import__('os').abort()", "__import__('time').sleep(1)")):
        folder = tmp_path / str(number)
        text = form((ITEM, f"        if get_worker_info():\n            {crash}\n{ITEM}"), *WORKER)
        for part in ("before", "after"):
            (folder / part).mkdir(parents=True)
            (folder / part / f"crash_{number}.py").write_text(text, encoding="utf-8")
        pairs.append(Pair(f"crash {number}", folder, f"crash_{number}.py", sends=False, size=1))
    answers = ask(pairs, "after", "fork")
    assert [name for name, ways in answers.items() if "as a whole" in ways] == ["crash 1"]
    # Which of the two torch says depends on who notices first.
    assert re.search("exited unexpectedly|killed by signal", broken(answers["crash 1"]["as a whole"]))
