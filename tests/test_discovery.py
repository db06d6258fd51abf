"""The files of a run: what is named is checked, what is found below it is filtered as git would."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore import GitIgnorePatternError

from oomlint.config import Settings
from oomlint.discovery import Patterns, PerFileIgnores, Problem, discover

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent


def tree(top: Path, *names: str, **contents: str) -> None:
    """Empty files, and folders where a name ends with a slash; ``gitignore=...`` writes the top's .gitignore."""
    for name in names:
        path = top / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text("")
    for name, content in contents.items():
        (top / f".{name}").write_text(content)


def found(top: Path, *paths: str, settings: Settings | None = None, force_exclude: bool = False) -> list[str]:
    """Names of the files found, from the top."""
    discovery = discover([top / path for path in paths or ("",)], settings or Settings(), top, force_exclude)
    assert discovery.problems == ()
    return [os.path.relpath(path, top) for path in discovery.files]


# What is taken


def test_python_files_and_notebooks_in_order(tmp_path: Path) -> None:
    tree(tmp_path, "b.py", "a.pyi", "c/d.ipynb", "c/e.txt", "f.PY", "g.pyc", ".hidden/h.py", "py", "j/")
    assert found(tmp_path) == [".hidden/h.py", "a.pyi", "b.py", "c/d.ipynb"]


def test_a_named_file_is_python_whatever_its_name_and_comes_once(tmp_path: Path) -> None:
    tree(tmp_path, "script", "a/b.py", "build/c.py")
    assert found(tmp_path, "script", "a", "a/b.py", "a/../a/b.py", "build/c.py") == ["a/b.py", "build/c.py", "script"]


def test_paths_are_absolute_and_relative_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "a/b.py")
    monkeypatch.chdir(tmp_path / "a")
    assert discover(["."], Settings(), "..").files == discover(["b.py"], Settings(), "..").files == (str(tmp_path / "a/b.py"),)


def test_nothing_to_check(tmp_path: Path) -> None:
    assert found(tmp_path) == []
    assert discover([], Settings(), tmp_path).files == ()


# Problems


def test_a_path_that_does_not_exist_is_one_problem_and_the_others_are_checked(tmp_path: Path) -> None:
    tree(tmp_path, "a.py")
    discovery = discover([tmp_path / "gone.py", tmp_path, tmp_path / "gone.py", tmp_path / "n\0l"], Settings(), tmp_path)
    assert discovery.files == (str(tmp_path / "a.py"),)
    assert discovery.problems == tuple(Problem(str(tmp_path / name), "No such file or directory") for name in ("gone.py", "n\0l"))


def test_a_folder_that_cannot_be_listed_is_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "a.py", "secret/b.py")
    real = os.scandir

    def scandir(path: str) -> Iterator[os.DirEntry[str]]:
        if path.endswith("secret"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    discovery = discover([tmp_path], Settings(), tmp_path)
    assert discovery.files == (str(tmp_path / "a.py"),)
    assert discovery.problems == (Problem(str(tmp_path / "secret"), "Permission denied: the folder cannot be listed"),)


def test_links_to_files_are_taken_and_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    tree(tmp_path, "real/a.py", "real/deeper/")
    (tmp_path / "real/deeper/up").symlink_to("../..")
    (tmp_path / "real/self.py").symlink_to("../real")
    (tmp_path / "data").symlink_to("real")
    (tmp_path / "b.py").symlink_to("real/a.py")
    (tmp_path / "dead.py").symlink_to("gone")
    (tmp_path / "circle.py").symlink_to("circle.py")
    (tmp_path / ".#lock.py").symlink_to("user@host.1234")
    assert found(tmp_path) == ["b.py", "circle.py", "dead.py", "real/a.py"]  # reading the dead one tells what is wrong with it
    assert found(tmp_path, "data") == ["data/a.py"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a thing of Unix")
def test_pipes_are_passed_by(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    os.mkfifo(tmp_path / ".gitignore")
    assert found(tmp_path) == []


def test_depth_does_not_matter(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(300):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "a.py").touch()
    assert len(found(tmp_path)) == 1
    shutil.rmtree(tmp_path / "d")


# Excludes


def test_default_excludes(tmp_path: Path) -> None:
    tree(tmp_path, ".git/a.py", "node_modules/a.py", "x/build/a.py", "dist/a.py", "__pypackages__/a.py", ".venv/a.py", ".ipynb_checkpoints/a.ipynb")
    tree(tmp_path, "build.py", "data/build.py", "x/distribution/a.py")
    assert found(tmp_path) == ["build.py", "data/build.py", "x/distribution/a.py"]


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta/"])
def test_an_environment_is_known_by_what_is_in_it(tmp_path: Path, mark: str) -> None:
    tree(tmp_path, f"env/{mark}", "env/lib/a.py", "venv/b.py")
    assert found(tmp_path) == ["venv/b.py"]
    assert found(tmp_path, "env/lib") == ["env/lib/a.py"]
    assert found(tmp_path, "env") == ["env/lib/a.py"]


def test_a_folder_in_site_packages_is_checked_where_it_is_named(tmp_path: Path) -> None:
    tree(tmp_path, ".venv/pyvenv.cfg", ".venv/lib/site-packages/timm/a.py", ".venv/lib/site-packages/timm/build/b.py", gitignore=".venv\n*.egg\n")
    tree(tmp_path, ".git/")
    assert found(tmp_path) == []
    assert found(tmp_path, ".venv/lib/site-packages/timm") == [".venv/lib/site-packages/timm/a.py"]
    assert found(tmp_path, ".venv/lib/site-packages/timm", force_exclude=True) == []


def test_excludes_of_the_settings(tmp_path: Path) -> None:
    tree(tmp_path, "src/a.py", "src/gen/b.py", "lib/gen/c.py", "src/d_pb2.py", "build/e.py", "old/f.py")
    assert found(tmp_path, settings=Settings(exclude=("/src/gen", "*_pb2.py", "old/*"))) == ["build/e.py", "lib/gen/c.py", "src/a.py"]
    assert found(tmp_path, settings=Settings(extend_exclude=("gen",))) == ["old/f.py", "src/a.py", "src/d_pb2.py"]
    assert found(tmp_path, "old", settings=Settings(exclude=("old",))) == ["old/f.py"]
    assert found(tmp_path, "old", settings=Settings(exclude=("old/*",))) == []  # not the folder is left out, but what is in it
    assert found(tmp_path / "src", "..", settings=Settings(exclude=("gen", "a.py"))) == ["../build/e.py", "../old/f.py", "d_pb2.py"]


def test_force_exclude_filters_what_is_named(tmp_path: Path) -> None:
    top = tmp_path / "build"  # the root's own name is no reason
    tree(top, "a.py", "dist/b.py", "docs/c.py")
    everything = ("", "dist", "dist/b.py", "docs/c.py")
    assert found(top, *everything, settings=Settings(extend_exclude=("docs",)), force_exclude=True) == ["a.py"]
    assert found(top, *everything, settings=Settings(extend_exclude=("docs",))) == ["a.py", "dist/b.py", "docs/c.py"]


# .gitignore

IGNORED = """\
# a comment
__pycache__/
*.py[cod]
*$py.class
/site
docs/_build/
data/*
!data/keep
*_generated.py
gen?.py
logs/**/x
**/deep/er
!important_generated.py
\\!odd.py
[z-a].py
trailing.py<space>
"""
TREE = (
    "a.py", "site/a.py", "x/site/a.py", "docs/_build/a.py", "x/docs/_build/a.py", "data/a.py", "data/keep/a.py", "x_generated.py", "gen1.py", "gen12.py",
    "important_generated.py", "logs/x/a.py", "logs/a/b/x/a.py", "logs/y/a.py", "x/y/deep/er/a.py", "deep/other/a.py", "!odd.py", "trailing.py",
    "trailing.py.py", "__pycache__/a.py", "x/__pycache__.py", "sub/a.py", "sub/b.py", "sub/more/b.py", "sub/x_generated.py",
)  # fmt: skip


@pytest.mark.parametrize("negated", [True, False], ids=["with negation", "without negation"])
@pytest.mark.skipif(shutil.which("git") is None, reason="git is the judge")
def test_gitignore_files_as_git_reads_them(tmp_path: Path, negated: bool) -> None:  # noqa: FBT001
    lines = [line for line in IGNORED.replace("<space>", " ").splitlines() if negated or not line.startswith("!")]
    tree(tmp_path, *TREE, gitignore="\n".join(lines))
    (tmp_path / "sub/.gitignore").write_bytes(b"\xef\xbb\xbfb.py\r\n!x_generated.py\r\n/more\r\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".git/info").mkdir(exist_ok=True)
    (tmp_path / ".git/info/exclude").write_text("/deep\nx_generated.py\n")
    listing = ["git", "-c", "core.excludesFile=", "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=tmp_path, check=True, capture_output=True, text=True)
    expected = sorted(name for name in listed.stdout.split("\0") if name.endswith(".py"))
    assert "a.py" in expected
    plain = Settings(exclude=(".git",))
    assert found(tmp_path, settings=plain) == expected
    assert found(tmp_path, "sub", settings=plain) == [name for name in expected if name.startswith("sub/")]
    assert found(tmp_path, settings=Settings(respect_gitignore=False, exclude=(".git",))) == sorted(TREE)


def test_files_above_count_up_to_the_top_of_the_repository(tmp_path: Path) -> None:
    tree(tmp_path, "repo/.git/", "repo/a/b/c.py", "repo/a/b/d.py", gitignore="c.py\n")
    tree(tmp_path / "repo", gitignore="d.py\n")
    assert found(tmp_path / "repo", "a/b") == ["a/b/c.py"]
    assert found(tmp_path, "repo") == ["repo/a/b/c.py"]


def test_files_above_count_up_to_the_root_where_there_is_no_repository(tmp_path: Path) -> None:
    tree(tmp_path, "a/b/c.py", "a/b/d.py", gitignore="c.py\n")
    assert found(tmp_path, "a/b") == ["a/b/d.py"]
    assert [Path(path).name for path in discover([tmp_path / "a/b"], Settings(), tmp_path / "a").files] == ["c.py", "d.py"]


def test_a_repository_within_a_repository_has_its_own_say(tmp_path: Path) -> None:
    tree(tmp_path, ".git/", "sub/a.py", "sub/b.py", "main.git/info/exclude", "main.git/worktrees/sub/", gitignore="a.py\n")
    (tmp_path / "sub/.git").write_text("gitdir: ../main.git/worktrees/sub\n")
    (tmp_path / "main.git/worktrees/sub/commondir").write_text("../..\n")
    (tmp_path / "main.git/info/exclude").write_text("b.py\n")
    assert found(tmp_path) == found(tmp_path, "sub") == ["sub/a.py"]


def test_a_named_folder_overrules_only_the_patterns_that_cover_it(tmp_path: Path) -> None:
    tree(tmp_path, ".git/", "out/a.py", "out/b.py", "out/out/c.py", gitignore="/out\nb.py\n")
    assert found(tmp_path) == []
    assert found(tmp_path, "out") == ["out/a.py", "out/out/c.py"]


NAMES = ["a", "b.py", "ab", "a.py", "c"]
PARTS = st.sampled_from([*NAMES, "*", "*.py", "a*", "?", "[ab]", "[!a]", "**", "", " "])
LINES = st.builds(
    lambda sign, parts, end: sign + "/".join(parts) + end,
    st.sampled_from(["", "", "!", "/", "#"]),
    st.lists(PARTS, min_size=1, max_size=3),
    st.sampled_from(["", "/"]),
)


@pytest.mark.parametrize(
    "lines", [["a", "!*/", "a"], ["*", "!a"], ["*", "!a/"], ["!*", "a"], ["!*", "*/"], ["a*", "!?"], ["a", "!a", "!!a", "!#a"], ["!"]], ids=" ".join
)
def test_the_last_line_that_speaks_of_a_folder_decides_as_in_git(lines: list[str], tmp_path: Path) -> None:
    tree(tmp_path, "a/b.py", gitignore="".join(f"{line}\n" for line in lines))
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    said = subprocess.run(["git", "-C", str(tmp_path), "check-ignore", "--quiet", "--no-index", "a"], check=False).returncode
    assert bool(Patterns(str(tmp_path), lines).verdict(str(tmp_path / "a"), folder=True)) == (said == 0)


@given(st.lists(LINES.filter(lambda line: not line.startswith("!")), max_size=4), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), st.booleans())
def test_lookups_say_what_pathspec_says(lines: list[str], parts: list[str], folder: bool) -> None:  # noqa: FBT001
    try:
        spec = GitIgnoreSpec.from_lines(lines)
    except GitIgnorePatternError:
        return
    patterns = Patterns("/r", lines)
    expected = ours = None
    for depth in range(1, len(parts) + 1):  # as a walk goes: what is below an ignored folder is not looked at
        is_folder = folder or depth < len(parts)
        expected = spec.check_file("/".join(parts[:depth]) + ("/" if is_folder else "")).include
        ours = patterns.verdict("/r/" + "/".join(parts[:depth]), folder=is_folder)
        assert bool(ours) == bool(expected)
        if expected:
            break


def test_usual_patterns_cost_no_import(tmp_path: Path) -> None:
    usual = "__pycache__/\n*.py[cod]\n*$py.class\nbuild/\n/site\ndocs/_build/\n*.egg-info/\n"
    tree(tmp_path, *(f"p{i}/a{j}.py" for i in range(70) for j in range(10)), gitignore=usual)
    code = """
import sys
from oomlint.config import Settings
from oomlint.discovery import discover
print(len(discover(["."], Settings(), ".").files), "pathspec" in sys.modules)
"""
    child = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
    assert child.stdout.split() == ["700", "False"]


# per-file-ignores


def test_per_file_ignores() -> None:
    settings = Settings(per_file_ignores={"tests": ("OOM1",), "*.ipynb": ("OOM201",), "/src/legacy/*.py": ("OOM",), "tests/**/conftest.py": ("OOM3",)})
    ignores = PerFileIgnores(settings, "/r")
    expected = {
        "/r/tests/a.py": {"OOM1"},
        "/r/tests/b/c.ipynb": {"OOM1", "OOM201"},
        "/r/tests/b/conftest.py": {"OOM1", "OOM3"},
        "/r/src/legacy/x.py": {"OOM"},
        "/r/src/new.py": set(),
        "/elsewhere/x.ipynb": {"OOM201"},
        "/elsewhere/tests/x.py": set(),
    }
    assert {path: set(ignores.codes(path)) for path in expected} == expected
    assert PerFileIgnores(Settings(), "/r").codes("/r/a.py") == frozenset()


def test_a_bounded_search_sees_near_folders_first(tmp_path: Path) -> None:
    for name in ("near.py", "deep/er/far.py", "data/1.txt", "data/2.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")
    found = discover([tmp_path], Settings(), tmp_path, most_entries=4).files
    assert found == (str(tmp_path / "near.py"),)
    assert len(discover([tmp_path], Settings(), tmp_path, most_entries=100).files) == 2
