"""The tolerant loader: what it runs, what it leaves out, what it stands in for."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from oomlint.verify.child.loading import import_names, stubs, tolerant_import

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("torch")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """An empty project; what is loaded from it is forgotten afterwards."""
    before, path = set(sys.modules), list(sys.path)
    parse = argparse.ArgumentParser.parse_known_args
    yield tmp_path
    for pair in tolerant_import._FINDERS:
        for finder in pair:
            sys.meta_path.remove(finder)
    tolerant_import._FINDERS.clear()
    argparse.ArgumentParser.parse_known_args = parse  # type: ignore[method-assign]  # as it was
    os.environ.pop(tolerant_import.MODULES, None)
    sys.path[:] = path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        file = root / (name.replace("__slash__", "/") + ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))


def loaded(root: Path, name: str) -> tolerant_import.Loaded:
    return tolerant_import.load(str(root / name), str(root))


def test_a_statement_that_fails_is_noted_and_the_rest_runs(project: Path) -> None:
    write(project, a="X = open('nowhere.txt')\nimport sys\nsys.exit(3)\nY = 1 / 0\nclass Z:\n    pass\n")
    found = loaded(project, "a.py")
    assert found.module.Z.__module__ == "a"
    assert [item.split(":")[0] for item in found.skipped] == ["line 1", "line 3", "line 4"]
    assert "FileNotFoundError" in found.skipped[0]


def test_loops_and_starts_are_not_run(project: Path) -> None:
    write(project, a="def main():\n    raise RuntimeError\nmain()\nwhile True:\n    pass\nif __name__ == '__main__':\n    main()\nDONE = True\n")
    found = loaded(project, "a.py")
    assert found.module.DONE is True
    assert len(found.skipped) == 2


def test_a_statement_that_takes_too_long_is_left(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tolerant_import, "SECONDS", 0.2)
    write(project, a="import time\nA = time.sleep(20)\nclass B:\n    pass\n")
    found = loaded(project, "a.py")
    assert "takes more than" in found.skipped[0]


def test_circular_imports(project: Path) -> None:
    write(project, a="from b import B\nclass A:\n    other = B\n", b="from a import A\nclass B:\n    pass\nclass C(A):\n    pass\n")
    module: Any = loaded(project, "a.py").module
    assert module.A.other is module.B
    assert issubclass(sys.modules["b"].C, module.A)


def test_names_that_others_have_are_left_to_them(project: Path) -> None:
    write(project, json="X = 1\n")
    module = loaded(project, "json.py").module
    assert module.X == 1
    assert module.__name__ != "json"
    assert sys.modules["json"].__file__ != module.__file__


@pytest.mark.parametrize(
    ("files", "path", "name"),
    [
        pytest.param({"pkg__slash____init__": "", "pkg__slash__m": ""}, "pkg/m.py", "pkg.m", id="package"),
        pytest.param({"src__slash__pkg__slash____init__": "", "src__slash__pkg__slash__m": ""}, "src/pkg/m.py", "pkg.m", id="src"),
        pytest.param({"scripts__slash__m": ""}, "scripts/m.py", "m", id="script"),
        pytest.param({"data__slash__m": "", "train": "from data.m import x\n"}, "data/m.py", "data.m", id="no init, imported so"),
        pytest.param({"data__slash__m": "from .n import y\n", "data__slash__n": "y = 1\n"}, "data/m.py", "data.m", id="relative imports"),
    ],
)
def test_dotted_names(project: Path, files: dict[str, str], path: str, name: str) -> None:
    write(project, **files)
    assert import_names.dotted(str(project / path), str(project))[0] == name
    assert not loaded(project, path).skipped


def test_libraries_that_are_missing_are_stood_in_for(project: Path) -> None:
    write(
        project,
        a="""
        import no_such_library.deep as deep
        from no_such_bars import *
        from tqdm import tqdm
        from no_such_framework import Module, wraps
        @wraps(3)
        def f(x):
            return x
        class Net(Module):
            pass
        TOTAL = [deep.change(i) for i in tqdm([1, 2])]
        try:
            import no_such_speedup
            FAST = True
        except ImportError:
            FAST = False
        """,
    )
    found = loaded(project, "a.py")
    assert found.module.TOTAL == [1, 2]
    assert found.module.FAST is False
    assert found.module.Net()
    assert {"no_such_library", "no_such_bars", "no_such_framework"} <= set(found.stubbed)
    assert "no_such_speedup" not in found.stubbed


def test_a_stand_in_makes_no_data_up(project: Path) -> None:
    write(project, a="import no_such_reader\ndef f():\n    return no_such_reader.read_csv('x')\n")
    with pytest.raises(stubs.NotInstalledError, match=r"no_such_reader\.read_csv is needed, and no_such_reader is not installed"):
        loaded(project, "a.py").module.f()


def test_globals_of_the_main_block(project: Path) -> None:
    write(
        project,
        a="""
        import argparse
        def f():
            return args.data, args.size, args.kind
        if __name__ == "__main__":
            parser = argparse.ArgumentParser()
            parser.add_argument("--data", required=True)
            parser.add_argument("--size", type=int, required=True)
            parser.add_argument("kind", choices=["x", "y"])
            args = parser.parse_args()
            raise RuntimeError
        """,
    )
    found = loaded(project, "a.py")
    assert found.module.f() == ("data", 4, "x")
    assert "argument --data is 'data'" in found.assumed


@pytest.mark.parametrize("text", ["print 'x'\n", "def f(:\n"])
def test_what_is_no_python(project: Path, text: str) -> None:
    write(project, a=text)
    with pytest.raises(tolerant_import.LoadError, match=r"no Python 3: line 1"):
        loaded(project, "a.py")


def test_encodings(project: Path) -> None:
    (project / "a.py").write_bytes("# -*- coding: latin-1 -*-\nX = '\xe9'\n".encode("latin-1"))
    assert loaded(project, "a.py").module.X == "\xe9"


def test_part_of_an_import(project: Path) -> None:
    write(project, a="from b import GOOD, BAD\n", b="GOOD = 1\nBAD = 1 / 0\n")
    found = loaded(project, "a.py")
    assert found.module.GOOD == 1
    assert any("BAD" in item for item in found.skipped)


def test_workers_that_are_spawned_find_the_classes_again(project: Path) -> None:
    write(
        project,
        data__slash__m="from .n import y\nclass D:\n    def __len__(self):\n        return 4\n    def __getitem__(self, i):\n        return i + y\n",
        data__slash__n="y = 1\n",
    )
    boot = project / "boot"
    boot.mkdir()
    (boot / "sitecustomize.py").write_text(
        "import os\nif 'OOMLINT_ROOT' in os.environ:\n"
        "    from oomlint.verify.child.loading.tolerant_import import install\n    install(os.environ['OOMLINT_ROOT'])\n"
    )
    (project / "go.py").write_text(
        "from oomlint.verify.child.loading.tolerant_import import load\n"
        "if __name__ == '__main__':\n"
        f"    m = load({str(project / 'data/m.py')!r}, {str(project)!r}).module\n"
        "    from torch.utils.data import DataLoader\n"
        "    print([int(x) for x in DataLoader(m.D(), batch_size=None, num_workers=1, multiprocessing_context='spawn')])\n"
    )
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(tolerant_import.__file__))))
    environment = {**os.environ, "PYTHONPATH": f"{boot}{os.pathsep}{home}", "OOMLINT_ROOT": str(project)}
    done = subprocess.run([sys.executable, str(project / "go.py")], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "[1, 2, 3, 4]", done.stderr[-2000:]
