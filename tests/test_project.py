"""What belongs to a project, and which file an import means: told by what is found across files."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oomlint.config import Settings, load_settings
from oomlint.engine import RunOptions, run
from oomlint.model.calls import _derives
from oomlint.model.index import index_of
from oomlint.model.project import Project
from oomlint.model.settings_formats import compose
from oomlint.model.statements import call_at
from oomlint.model.words import WordIndex
from oomlint.processes import _bundles
from oomlint.syntax.tree import Tree

if TYPE_CHECKING:
    from oomlint.source import Source

FACTORY = """\
from torch.utils.data import DataLoader

def get_loaders(ds, num_workers=4):
    return DataLoader(ds, num_workers=num_workers, persistent_workers=True)
"""
CALL = "get_loaders(range(8), num_workers=0)\n"


def write(top: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def found(*paths: Path, cache: bool = False) -> list[str]:
    """Names of the files with OOM101 in a run as the command line makes it."""
    start = Path(os.path.commonpath([path if path.is_dir() else path.parent for path in paths]))
    settings, root = load_settings(None, False, start)  # noqa: FBT003
    report = run([str(path) for path in paths], settings, root, RunOptions(cache=cache, processes=1))
    assert not report.failures
    assert {item.code for item in report.findings} <= {"OOM101"}
    return [os.path.basename(item.place.path) for item in report.findings]


def means(top: Path, importer: str, dotted: str) -> str | None:
    """What an import in a file means, from the top."""
    path = Project(top, Settings()).locate(str(top / importer), dotted)
    return path and os.path.relpath(path, top) + "/" * path.endswith("/")


# What belongs to it


@pytest.mark.parametrize("ignored", [".cache/x", "data/x", "build", ".venv/lib/site-packages/x"])
@pytest.mark.parametrize("named", ["", "train.py"], ids=["folder", "file"])
def test_what_is_checked_belongs_to_the_project_although_it_is_ignored(ignored: str, named: str, tmp_path: Path) -> None:
    write(tmp_path, {".git/HEAD": "", ".gitignore": ".cache/\ndata\n", ".venv/pyvenv.cfg": ""})
    write(tmp_path / ignored, {"data.py": FACTORY, "train.py": f"from data import get_loaders\n{CALL}", "more/unrelated.py": ""})
    assert found(tmp_path / ignored / named) == ["train.py"]
    assert found(tmp_path, tmp_path / ignored / named) == ["train.py"]
    assert found(tmp_path) == []


def test_the_package_of_a_file_belongs_to_the_project_although_it_is_ignored(tmp_path: Path) -> None:
    write(tmp_path, {".git/HEAD": "", ".gitignore": "old/\n", "old/pkg/__init__.py": "", "old/pkg/data.py": FACTORY})
    write(tmp_path, {"old/pkg/sub/__init__.py": "", "old/pkg/sub/more.py": "", "old/train.py": f"from pkg.data import get_loaders\n{CALL}"})
    assert found(tmp_path / "old/pkg/sub/more.py", tmp_path / "old/train.py") == ["train.py"]


def test_the_cache_knows_of_a_change_beside_an_ignored_file(tmp_path: Path) -> None:
    write(tmp_path, {".git/HEAD": "", ".gitignore": ".cache/\n"})
    inner = tmp_path / ".cache/x"
    write(inner, {"data.py": FACTORY, "train.py": f"from data import get_loaders\n{CALL}"})

    def age() -> None:  # what is fresh is not kept
        for path in inner.iterdir():
            os.utime(path, (time.time() - 100 - path.stat().st_size,) * 2)

    age()
    assert found(inner, cache=True) == found(inner, cache=True) == ["train.py"]
    write(inner, {"data.py": FACTORY.replace("True", "False")})
    age()
    assert found(inner, cache=True) == []


# sys.path


HERE = "os.path.dirname(os.path.abspath(__file__))"


@pytest.mark.parametrize(
    "line",
    [
        "sys.path.append('../lib2')",
        "sys.path.append('lib2')",  # as it is run from the root
        f"sys.path.insert(0, os.path.join({HERE}, '..', 'lib2'))",
        f"sys.path.insert(0, os.path.join(os.path.dirname({HERE}), 'lib2'))",
        f"sys.path.append({HERE} + '/../lib2')",
        f"sys.path.append(f'{{{HERE}}}/../lib2')",
        f"here = {HERE}\nlib = os.path.join(here, os.pardir, 'lib2')\nsys.path.append(lib)",
        f"here = {HERE}\nhere = os.path.dirname(here)\nsys.path.append(here + '/lib2')",
        "sys.path.append(str(Path(__file__).resolve().parent.parent / 'lib2'))",
        "ROOT = Path(__file__).resolve().parents[1]\nif str(ROOT) not in sys.path:\n    sys.path.insert(0, str(ROOT.joinpath('lib2')))",
        "sys.path.append(os.path.realpath(os.path.join(os.getcwd(), '..', 'lib2')))",
        "sys.path.append(os.path.join(os.path.split(os.path.realpath(__file__))[0], '../lib2'))",
        "sys.path.append(os.path.dirname(os.path.abspath(inspect.getfile(inspect.currentframe()))) + '/../lib2')",
        "site.addsitedir('../lib2')",
        "sys.path += ['../none', '../lib2']",
        "sys.path = ['../lib2'] + sys.path",
        "sys.path[0:0] = ['../lib2']",
        "sys.path.extend(os.path.join(os.path.dirname(__file__), '..', name) for name in ('none', 'lib2'))",
        "sys.path.extend(glob.glob('../lib?'))",
        "sys.path.append(glob.glob('l*b2')[0])",
        "sys.path.extend(glob.glob(os.path.join(os.path.dirname(__file__), '..', 'l*2')))",
        "for each in ('../none', '../lib2'):\n    sys.path.append(each)",
        "def add(path):\n    if path not in sys.path:\n        sys.path.insert(0, path)\n\nadd(os.path.join(os.path.dirname(__file__), '..', 'lib2'))",
    ],
)
def test_what_is_added_to_the_search_path_is_followed(line: str, tmp_path: Path) -> None:
    imports = "import glob, inspect, os, site, sys\nfrom pathlib import Path\n"
    write(tmp_path, {".git/HEAD": "", "lib2/loaders.py": FACTORY, "tools/train.py": f"{imports}{line}\nfrom loaders import get_loaders\n{CALL}"})
    assert found(tmp_path) == ["train.py"]


@pytest.mark.parametrize(("beside", "way"), [("tools/_init_paths.py", "../lib2"), ("__init__.py", "lib2")])
def test_what_a_script_beside_or_a_package_around_adds_is_followed(beside: str, way: str, tmp_path: Path) -> None:
    adds = f"import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), {way!r}))\n"
    write(tmp_path, {".git/HEAD": "", "lib2/loaders.py": FACTORY, "tools/train.py": f"from loaders import get_loaders\n{CALL}", beside: adds})
    assert found(tmp_path) == ["train.py"]


def test_what_goes_first_is_searched_first(tmp_path: Path) -> None:
    write(tmp_path, {"a/x.py": "", "b/x.py": "", "c/one.py": "import sys\nsys.path.insert(0, '../a')\nsys.path.insert(0, '../b')\n", "c/x.py": ""})
    write(tmp_path, {"c/two.py": "import sys\nsys.path.append('../a')\n"})
    assert (means(tmp_path, "c/one.py", "x"), means(tmp_path, "c/two.py", "x")) == ("b/x.py", "c/x.py")


@pytest.mark.parametrize("line", ["'/usr/lib/python3'", "'../../outside'", "os.environ['HERE']", "__file__ + unknown", "glob.glob('/*/*')", "p", "'['"])
def test_only_folders_of_the_project_are_followed(line: str, tmp_path: Path) -> None:
    write(tmp_path, {"outside/x.py": "", "root/a/b.py": f"import sys, os, glob\np = p + '/..'\nsys.path.append({line})\nsys.path.extend({line})\n"})
    assert means(tmp_path / "root", "a/b.py", "x") is None


def test_a_file_that_is_no_program_adds_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"a/b.py": "", "a/old.py": "print 'sys.path'\n", "a/bad.py": "# coding: nonsense\nsys.path.append('../c')\n", "c/x.py": ""})
    assert means(tmp_path, "a/b.py", "x") is None


# Layouts


@pytest.mark.parametrize(
    ("metadata", "content"),
    [
        ("pyproject.toml", '[tool.setuptools]\npackage-dir = {"" = "code"}\n'),
        ("pyproject.toml", '[tool.setuptools]\npackage-dir = {"pkg" = "code/pkg"}\n'),
        ("pyproject.toml", '[tool.setuptools.packages.find]\nwhere = ["code"]\n'),
        ("pyproject.toml", '[[tool.poetry.packages]]\ninclude = "pkg"\nfrom = "code"\n'),
        ("pyproject.toml", '[tool.hatch.build.targets.wheel]\npackages = ["code/pkg"]\n'),
        ("pyproject.toml", '[tool.pdm.build]\npackage-dir = "code"\n'),
        ("setup.cfg", "[options]\npackage_dir =\n    = code\npackages = find:\n"),
        ("setup.cfg", "[options.packages.find]\nwhere = code\n"),
        ("setup.py", "from setuptools import setup\nsetup(package_dir={'': 'code'})\n"),
        ("setup.py", "from setuptools import setup, find_packages\nsetup(packages=find_packages('code'), package_dir={'pkg': 'code/pkg'})\n"),
    ],
)
def test_packages_are_where_the_metadata_says(metadata: str, content: str, tmp_path: Path) -> None:
    write(tmp_path, {"sub/code/pkg/__init__.py": "", "sub/code/pkg/x.py": "", "sub/scripts/train.py": ""})
    assert means(tmp_path, "sub/scripts/train.py", "pkg.x") is None
    write(tmp_path, {f"sub/{metadata}": content})
    assert means(tmp_path, "sub/scripts/train.py", "pkg.x") == "sub/code/pkg/x.py"
    write(tmp_path, {f"sub/{metadata}": "[tool.setuptools]\npackage-dir = 3\n[[" if metadata.endswith("toml") else "\0"})
    assert means(tmp_path, "sub/scripts/train.py", "pkg.x") is None


def test_a_package_may_lie_in_a_folder_of_another_name(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": '[tool.setuptools.package-dir]\nmine = "code"\n', "code/__init__.py": "", "code/x.py": "", "train.py": ""})
    assert (means(tmp_path, "train.py", "mine.x"), means(tmp_path, "train.py", "mine")) == ("code/x.py", "code/__init__.py")


def test_the_src_folder_of_a_project_within_a_project_is_searched(tmp_path: Path) -> None:
    write(tmp_path, {".git/HEAD": "", "libs/one/src/pkg/data.py": FACTORY, "libs/one/scripts/train.py": f"from pkg.data import get_loaders\n{CALL}"})
    assert found(tmp_path) == ["train.py"]


@pytest.mark.parametrize("imports", ["from ns.data import get_loaders", "from ns import data\nget_loaders = data.get_loaders", "import ns.data as d"])
def test_a_package_without_init_may_lie_in_several_folders(imports: str, tmp_path: Path) -> None:
    call = CALL.replace("get_loaders", "d.get_loaders") if imports.endswith("as d") else CALL
    write(tmp_path, {".git/HEAD": "", "ns/other.py": "", "src/ns/data.py": FACTORY, "train.py": f"{imports}\n{call}"})
    assert found(tmp_path) == ["train.py"]
    write(tmp_path, {"train.py": "import ns.data\n" + CALL.replace("get_loaders", "ns.data.get_loaders")})
    assert found(tmp_path) == ["train.py"]


def test_a_folder_of_data_is_not_the_package_of_its_name(tmp_path: Path) -> None:
    write(tmp_path, {"tools/models/a.ckpt": "", "models/net.py": "", "tools/train.py": ""})
    assert means(tmp_path, "tools/train.py", "models") == "models/"
    assert means(tmp_path, "tools/train.py", "models.net") == "models/net.py"


def test_a_package_named_like_an_installed_one_is_not_what_its_modules_import(tmp_path: Path) -> None:
    write(tmp_path, {"spread/__init__.py": "", "spread/torch/__init__.py": "", "spread/torch/ops.py": "", "spread/torch/more/ops.py": "", "train.py": ""})
    assert means(tmp_path, "spread/torch/ops.py", "torch") is None
    assert means(tmp_path, "spread/torch/more/ops.py", "torch") is None
    assert means(tmp_path, "train.py", "spread.torch.ops") == "spread/torch/ops.py"


# What is opened for it


def parsed(top: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The files that libcst reads in a check of a folder."""
    opened: set[str] = set()
    make = Tree.__init__

    def init(self: Tree, source: Source) -> None:
        opened.add(os.path.basename(source.path))
        make(self, source)

    monkeypatch.setattr(Tree, "__init__", init)
    found(top)
    return opened


LOADER = "from torch.utils.data import DataLoader\nDataLoader(range(8), num_workers=0, persistent_workers=True)\n"


def test_a_file_is_not_opened_for_a_name_that_it_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"train.py": f"from a import *\nfrom b import c\n{LOADER}unknown(DataLoader(range(8), num_workers=2))\nc()\n", "a.py": "d = 1\n"})
    write(tmp_path, {"b/__init__.py": "e = 1\n", "b/c.py": "f = 1\n"})
    assert parsed(tmp_path, monkeypatch) == {"train.py", "c.py"}


def test_a_name_is_found_behind_stars(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"train.py": f"from a import *\n{CALL}", "a.py": "from b import *\n", "b.py": "try:\n    from c import get_loaders\nexcept ImportError:\n    pass\n"},
    )
    write(tmp_path, {"c.py": FACTORY})
    assert found(tmp_path) == ["train.py"]


def test_callers_are_sought_where_a_name_can_have_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    factory = FACTORY.replace("=4", "")
    write(tmp_path, {"data.py": factory, "train.py": f"def main():\n    from data import get_loaders\n    {CALL}"})
    write(tmp_path, {"other.py": "from elsewhere import x\nx.get_loaders(1)\n", "whole.py": f"import data\ndata.{CALL}"})
    assert parsed(tmp_path, monkeypatch) == {"data.py", "train.py", "whole.py"}


def test_who_looks_up_a_class_by_any_name_does_not_read_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {f"parts/part_{number}.py": f"class Part{number}:\n    pass\n" for number in range(40)})
    write(tmp_path, {"parts/__init__.py": "".join(f"from .part_{number} import *\n" for number in range(40))})
    write(tmp_path, {"train.py": f"import sys\nimport parts\n{LOADER}part = getattr(parts, sys.argv[1])()\nDataLoader(part, num_workers=part.workers)\n"})
    assert len(parsed(tmp_path, monkeypatch)) < 20


def test_a_method_of_a_common_name_is_sought_in_a_few_files(tmp_path: Path) -> None:
    sought: list[int] = []
    for number in (20, 30):
        folder = tmp_path / str(number)
        write(folder, {"model.py": "class Model:\n    def load(self, path):\n        pass\n"})
        write(folder, {f"use_{one}.py": "from model import Model\nModel().load(1)\n" for one in range(number)})
        sought.append(len([*Project(folder, Settings()).callers("load", str(folder / "model.py"), "Model")]))
    assert sought == [20, 6]


@pytest.mark.parametrize("limit", ["_MOST_PARSED", "_MOST_LEARNT"])
def test_findings_do_not_depend_on_how_much_is_kept(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"data.py": FACTORY, **{f"train_{number}.py": f"from data import get_loaders\n{CALL}" for number in range(5)}})
    monkeypatch.setattr(f"oomlint.projects.{limit}", 0)
    assert found(tmp_path) == [f"train_{number}.py" for number in range(5)]


def test_repositories_side_by_side_are_projects_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    for name in ("one/.git", "one/parts/.git", "two/.git"):
        (tmp_path / name).mkdir(parents=True)
    call = "from data import get_loaders\nget_loaders(range(8), 0)\n"
    # The function of `one` is called in a part of it, and one of that name in `two`.
    write(tmp_path, {"one/data.py": FACTORY.replace("=4", ""), "one/parts/train.py": call, "two/other.py": call})
    assert parsed(tmp_path, monkeypatch) == {"data.py", "train.py"}
    assert found(tmp_path) == ["data.py"]


def test_a_folder_of_repositories_without_git_is_a_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = "from data import get_loaders\nget_loaders(range(8), 0)\n"
    papers = {f"{name}/{paper}": "" for name in ("one", "two") for paper in ("README.md", "LICENSE")}
    write(tmp_path, {**papers, "one/data.py": FACTORY.replace("=4", ""), "one/train.py": call, "two/other.py": call})
    assert parsed(tmp_path, monkeypatch) == {"data.py", "train.py"}
    assert found(tmp_path) == ["data.py"]


def test_a_library_beside_code_is_part_of_its_project(tmp_path: Path) -> None:
    write(tmp_path, {"lib/README.md": "", "lib/setup.py": "", "lib/data.py": FACTORY, "train.py": f"from lib.data import get_loaders\n{CALL}"})
    assert found(tmp_path) == ["train.py"]


def test_the_project_is_whole_where_its_root_is_a_repository(tmp_path: Path) -> None:
    for name in (".git", "library/.git"):
        (tmp_path / name).mkdir(parents=True)
    write(tmp_path, {"library/__init__.py": "", "library/data.py": FACTORY.replace("=4", ""), "train.py": f"from library.data import get_loaders\n{CALL}"})
    assert found(tmp_path) == ["train.py"]


def test_imports_lead_from_one_repository_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    for name in ("one/.git", "two/.git"):
        (tmp_path / name).mkdir(parents=True)
    write(tmp_path, {"one/data.py": "WORKERS = 0\n"})
    loader = "DataLoader([1, 2], num_workers=data.WORKERS, persistent_workers=True)"
    write(tmp_path, {"two/train.py": f"import sys\nsys.path.append('../one')\nimport data\nfrom torch.utils.data import DataLoader\nloader = {loader}\n"})
    assert found(tmp_path) == ["train.py"]


@pytest.mark.parametrize("body", ["np.load(path)", "path.upper()"])
def test_a_call_of_a_reader_is_looked_at_where_that_reads(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path,
        {"tools.py": f"import numpy as np\n\ndef load_room(path):\n    return {body}\n", "use.py": "import torch\nimport tools\nx = tools.load_room('a')\n"},
    )
    assert ("use.py" in parsed(tmp_path, monkeypatch)) == (body == "np.load(path)")


@pytest.mark.parametrize(
    "lines",
    [
        "export PYTHONPATH=$SRC_ROOT/data/:$PYTHONPATH\n",
        'export PYTHONPATH="${PYTHONPATH}:`pwd`/src/data"\n',
        "PYTHONPATH=./src/data python bin/train.py\n",
    ],
)
def test_what_a_shell_script_puts_into_the_search_path_is_found(lines: str, tmp_path: Path) -> None:
    script = f"MAIN_ROOT=$PWD/../..\nSRC_ROOT=$MAIN_ROOT/src\n{lines}"
    write(tmp_path, {"recipes/one/path.sh": script, "src/data/loaders.py": FACTORY, "bin/train.py": f"from loaders import get_loaders\n{CALL}"})
    assert found(tmp_path) == ["train.py"]


@pytest.mark.parametrize("line", ["export PYTHONPATH=$UNKNOWN/src/data\n", "export PYTHONPATH=/src/data\n", "# export PYTHONPATH=src/data\n"])
def test_a_search_path_that_nobody_knows_adds_nothing(line: str, tmp_path: Path) -> None:
    write(tmp_path, {"path.sh": line, "src/data/loaders.py": FACTORY, "bin/train.py": f"from loaders import get_loaders\n{CALL}"})
    assert found(tmp_path) == []


def test_a_file_in_the_search_path_goes_before_a_folder_of_its_name(tmp_path: Path) -> None:
    files = {"path.sh": "export PYTHONPATH=src/data:$PYTHONPATH\n", "src/data/data.py": FACTORY, "src/bin/train.py": f"from data import get_loaders\n{CALL}"}
    write(tmp_path, files)
    assert found(tmp_path) == ["train.py"]


@pytest.mark.parametrize(
    "text", [b"loader", b"load", b"def load(", b".reset", b"(", b"caf\xc3\xa9", b"A" * 20, b"A" * 60, b"nowhere", b"train_loader = load", b"x\nload"]
)
def test_an_index_of_words_finds_what_a_search_finds(text: bytes) -> None:
    files = [b"train_loader = load(x)\n", b"def load(y): return caf\xc3\xa9.reset()", b"", b"picture = '" + b"A" * 80 + b"'", b"x\nload\nloader"]
    assert WordIndex(files).holding([text]) == [number for number, file in enumerate(files) if text in file]


def test_an_index_knows_imports_wherever_they_stand() -> None:
    text = b"import a.b\ndef f(): import c\ntry:\n    from ..d import e as g\nexcept E:\n    from . import h\nmatch x:\n    case 1: from k import *\n"
    index = index_of(text)
    assert index is not None
    told = {(one.bound, one.module, one.level, one.name) for one in index.imports}
    assert told == {("a", "a.b", 0, ""), ("c", "c", 0, ""), ("g", "d", 2, "e"), ("h", "", 1, "h"), ("*", "k", 0, "*")}
    assert {"a", "b", "c", "e", "g", "h"} <= index.taken


@pytest.mark.parametrize("text", ['{"workers": 4,\n "rows": [1.5, null, true, "a\\u00e9"]}', '{"face": "\\ud83d\\ude00"}', "[]"])
def test_json_is_read_as_yaml_is(text: str) -> None:
    def laid_out(node: Any) -> object:
        below = [laid_out(part) for part in flattened(node.value)] if isinstance(node.value, list) else node.value
        return node.tag, below, (node.start_mark.line, node.start_mark.column, node.end_mark.line, node.end_mark.column)

    def flattened(parts: list[Any]) -> list[Any]:
        return [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]

    assert laid_out(compose(text, "json")) == laid_out(compose(text, "yaml"))


@pytest.mark.parametrize("place", ["if first(x):", "elif second(y):", "third(z)"])
def test_the_call_at_a_place_is_found_in_its_statement(place: str, tmp_path: Path) -> None:
    text = "if first(x):\n    pass\nelif second(y):\n    pass\nelse:\n    third(z)\n"
    write(tmp_path, {"train.py": text})
    project = Project(tmp_path, Settings())
    module = project.module(str(tmp_path / "train.py"))
    calls = {module.code(call.func): module.place(call) for call, _ in module.walk.calls}
    word = next(name for name in calls if name in place)
    found = call_at(module, calls[word])
    assert found is not None
    assert module.code(found[0].func) == word


def test_what_belongs_together_is_handed_out_at_once() -> None:
    items = ["a1", "a2", "a3", "b1", "c1", "c2", "d1", "d2"]
    assert [*_bundles(items, 2, lambda item: item[0])] == [["a1", "a2", "a3"], ["b1"], ["c1", "c2"], ["d1", "d2"]]
    assert [*_bundles(items, 2, lambda _: None)] == [[item] for item in items]


def test_what_was_looked_for_is_looked_for_again_in_what_has_changed(tmp_path: Path) -> None:
    """In a project that has answered many questions, as one that an editor has open, and whose files are then edited."""
    names = [f"part_{number}" for number in range(30)]
    write(tmp_path, {f"{name}.py": f"import torch\n\n\ndef {name}(x):\n    return x\n" for name in names})
    first, second = (str(tmp_path / f"{name}.py") for name in names[:2])
    states: list[dict[str, bytes]] = [
        {},
        {first: b"from part_1 import part_1\n\n\nclass Deep(part_2):\n    y = part_1(3)\n"},
        {first: b"from part_1 import part_1\n\n\nclass Deep(part_3):\n    y = part_1(3)\n", second: b"part_2 = 1\n"},
        {second: b"from part_0 import part_0\npart_0(part_29)\n"},
        {},
    ]

    def told(project: Project) -> list[object]:
        wanted = [b"part_1", b"part_2(x", b"Deep", b"part_0", b"from part_"]
        called = [[module.path for module in project.callers(name, str(tmp_path / f"{name}.py"))] for name in names[:3]]
        derived = [project.search(_derives, (name,), first, name) for name in names[:4]]
        return [[project.holding([word]) for word in wanted], [list(found.items()) for found in derived], called, project.may_import(second, first)]

    project = Project(tmp_path, Settings())
    for name in names:
        project.holding([name.encode()])
    for state in [*states, *reversed(states)]:
        project = project.over(state)
        assert told(project) == told(Project(tmp_path, Settings(), state))
