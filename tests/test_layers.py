"""The rooms keep their order, a check loads no more than it needs, and every rule has all that belongs to it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from oomlint import registry

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "oomlint"

# From top to bottom. A room imports from itself and from the rooms below it.
ROOMS: Final = (
    "__main__",
    "cli",
    "lsp",
    "mcp",
    "output",
    "trace",
    "verify",
    "budget",
    "engine",
    "rechecking",
    "processes",
    "causes",
    "checking",
    "projects",
    "cache",
    "basis",
    "fixing",
    "rules",
    "registry",
    "plugins",
    "plugin",
    "rule",
    "memory",
    "model",
    "syntax",
    "scout",
    "commenting",
    "suppress",
    "discovery",
    "source",
    "deduplication",
    "notebooks",
    "untouched",
    "beside_code",
    "rows",
    "writing",
    "config",
    "settings",
    "weighing",
    "amounts",
    "cgroups",
    "facts",
    "measurement",
    "catalogue",
    "finding",
    "ast_trees",
    "api_names",
    "frameworks",
    "patterns",
    "__init__",
)
MODULES: Final = sorted(PACKAGE.rglob("*.py"))
THIRD_PARTY: Final = {  # who may import what is not in the standard library, anywhere in a file
    "libcst": {"syntax", "model", "memory", "rules", "plugin", "verify", "budget"},
    "msgspec": {*ROOMS},
    "typer": {"cli"},
    "rich": {"cli", "output"},
    "watchfiles": {"cli"},
    "anyio": {"mcp"},
    "lsprotocol": {"lsp"},
    "mcp": {"mcp"},
    "pygls": {"lsp"},
    "pydantic": {"config"},
    "pathspec": {"discovery"},
    "yaml": {"model", "memory"},
    **{name: {"trace"} for name in ("psutil", "lightning", "pytorch_lightning", "transformers")},  # each where it is asked for
    **{name: {"verify"} for name in ("torch", "h5py", "numpy", "PIL", "lmdb")},  # of it, what runs in child processes: see below
}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: a relative import"
            yield node.lineno, node.module or ""
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names if node.module == "oomlint")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_point_downwards(path: Path) -> None:
    assert room(path) in ROOMS, f"{room(path)} has no place in the list of rooms"
    for line, name in imported(path):
        parts = name.split(".")
        if parts[0] == "oomlint" and len(parts) > 1 and parts[1] in ROOMS:
            assert ROOMS.index(parts[1]) >= ROOMS.index(room(path)), f"{path.name}:{line}: {room(path)} imports {name}, which is above it"
        elif parts[0] not in sys.stdlib_module_names and parts[0] not in {"oomlint", "__future__"}:
            assert room(path) in THIRD_PARTY.get(parts[0], set()), f"{path.name}:{line}: {room(path)} imports {name}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "rules").glob("oom*.py")), ids=lambda path: path.stem)
def test_rules_do_not_know_each_other(path: Path) -> None:
    assert not [name for _, name in imported(path) if name.startswith("oomlint.rules")]


SHARED: Final = ("ast_names", "process_tree", "signals")  # of the verifier, with children: the standard library alone


@pytest.mark.parametrize("path", sorted((PACKAGE / "verify").rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE / "verify").as_posix())
def test_children_have_torch_and_little_of_oomlint(path: Path) -> None:
    """What runs in a child process runs under the interpreter of the checked project, which has none of oomlint's libraries; what does not has no torch."""
    child = PACKAGE / "verify" / "child" in path.parents
    for line, name in imported(path):
        where = f"{path.name}:{line}: {name}"
        package = name.split(".")[0]
        if not child:
            assert package not in {"torch", "h5py", "numpy", "PIL", "lmdb"}, where
        else:
            assert package not in {"libcst", "msgspec"}, where
            assert (
                package != "oomlint" or name.startswith("oomlint.verify.child") or name in {"oomlint.verify", *(f"oomlint.verify.{each}" for each in SHARED)}
            ), where


def test_what_children_take_from_the_verifier_is_theirs() -> None:
    for path in (PACKAGE / "verify" / "child").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "oomlint.verify":
                assert {alias.name for alias in node.names} <= {"child", *SHARED}, f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("name", SHARED)
def test_what_is_shared_with_children_needs_nothing_else(name: str) -> None:
    assert {found.split(".")[0] for _, found in imported(PACKAGE / "verify" / f"{name}.py")} <= {*sys.stdlib_module_names}


def test_what_opens_hdf5_files_for_a_budget_has_nothing_of_oomlint() -> None:
    """It runs as a process of its own: a broken file can end it."""
    assert {name.split(".")[0] for _, name in imported(PACKAGE / "budget" / "h5_child.py")} <= {*sys.stdlib_module_names}


def test_nothing_is_pickled_or_fetched() -> None:
    names = {name.split(".")[0] for path in MODULES for _, name in imported(path)}
    assert not names & {"pickle", "marshal", "shelve", "socket", "urllib", "http", "requests"}


# -- what a run loads -------------------------------------------------------------------------------------------------

HEAVY: Final = ("torch", "h5py", "numpy", "libcst", "typer", "rich", "pydantic", "pathspec", "yaml", "pygls", "multiprocessing", "email", "asyncio", "unittest")


def loaded(folder: Path, *words: str, names: tuple[str, ...] = HEAVY) -> set[str]:
    """The heavy packages that a command line loads, and what of the verifier it does."""
    program = (
        f"import sys; from oomlint.__main__ import main; main({list(words)!r}); "
        f"print('\\n' + ' '.join(n for n in sys.modules if n in {names!r} or n.startswith('oomlint.verify')))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_the_version_needs_nothing(tmp_path: Path) -> None:
    assert loaded(tmp_path, "--version") == set()


def test_a_check_without_candidates_loads_no_parser_and_no_library(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import torch\nnet = torch.nn.Linear(2, 2)\n")
    (tmp_path / ".gitignore").write_text("*.log\n/build/\n")
    assert loaded(tmp_path, "check", "--output-format", "concise", "--no-cache", ".") == set()


def test_a_check_with_findings_loads_the_parser_and_neither_torch_nor_a_console(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from torch.utils.data import DataLoader\nDataLoader(x, num_workers=0, persistent_workers=True)\n")
    seen = loaded(tmp_path, "check", "--select", "OOM101", "--exit-zero", "--color", "never", ".")
    assert "libcst" in seen
    assert not seen & {"torch", "h5py", "numpy", "typer", "rich", "pygls"}


def test_a_fix_without_verification_loads_nothing_of_the_verifier(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from torch.utils.data import DataLoader\nDataLoader(x, num_workers=0, persistent_workers=True)\n")
    assert loaded(tmp_path, "check", "--fix", "--output-format", "github", "--color", "never", ".", names=("torch", "h5py", "numpy")) == set()


def test_the_verifier_itself_loads_no_torch(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import torch\n")
    seen = loaded(tmp_path, "verify", "--color", "never", ".")
    assert "oomlint.verify.run" in seen
    assert not [name for name in seen if name in {"torch", "h5py", "numpy", "typer", "rich", "pygls"} or name.startswith("oomlint.verify.child.")]


def test_a_budget_loads_the_parser_and_neither_torch_nor_the_verifier(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from torch.utils.data import DataLoader\nDataLoader([1], num_workers=2)\n")
    assert loaded(tmp_path, "budget", "train.py", names=("torch", "h5py", "numpy", "libcst", "pygls")) == {"libcst"}


@pytest.mark.parametrize("command", ["check", "verify", "budget", "trace", "rule"])
def test_help_loads_no_parser(tmp_path: Path, command: str) -> None:
    program = f"import sys; from oomlint.__main__ import main; main([{command!r}, '--help']); print('\\n', 'libcst' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "False"


# -- what belongs to a rule -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "slug"), registry.catalogue())
def test_a_rule_has_fixtures_and_a_line_in_the_changelog(code: str, slug: str) -> None:
    folder = ROOT / "fixtures" / "rules" / code
    assert list(folder.glob("bad*"))
    assert list(folder.glob("good*"))
    assert re.search(rf"^- \*\*{code}\*\* `{slug}`", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("path", sorted((PACKAGE / "rules").glob("oom*.py")), ids=lambda path: path.stem)
def test_a_rule_is_short(path: Path) -> None:
    """Without its page: what two rules share moves down into the model."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = sum((node.body[0].end_lineno or 0) - node.body[0].lineno for node in tree.body if isinstance(node, ast.ClassDef))
    assert (tree.body[-1].end_lineno or 0) - documented < 200


def test_the_generated_documentation_is_current() -> None:
    done = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
