"""The documentation is a site without dead links, and names files that are there."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("how-it-works.md", "contributing.md", "releasing.md")


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    done = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in (ROOT / "docs").rglob("*.md"):
        built = page.relative_to(ROOT / "docs").with_suffix("")
        assert (tmp_path / "site" / (built.parent if built.name == "index" else built) / "index.html").exists(), page
    first = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert not re.findall(r'(?:src|href)="https?://(?!zensical\.org)[^"]*\.(?:js|css|woff2?)', first)  # the page stands without the network


def test_every_page_can_be_reached() -> None:
    listed = set(re.findall(r'= "([\w/-]+\.md)"', (ROOT / "zensical.toml").read_text(encoding="utf-8")))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").glob("*.md")} | {"rules/index.md"}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_files_that_are_there(page: str) -> None:
    named = re.findall(r"(?<![\w/<>*])(?:[\w-]+/)*[\w-]+\.py\b|(?<=`)(?:[\w-]+/)+(?=`)", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert len(named) > 3
    for name in named:
        places = (ROOT, ROOT / "oomlint", ROOT / "oomlint" / "model", ROOT / "fixtures" / "incidents" / "voxel_colab")
        assert any((place / name).exists() for place in places), name


def test_the_benchmark_writes_its_table_in_the_place_of_the_one_on_the_page() -> None:
    script = ROOT / "benchmarks" / "budget.py"
    if not script.is_file():
        pytest.skip("the benchmarks are not part of this distribution")
    benchmark = runpy.run_path(str(script))
    page = (ROOT / "docs" / "budget.md").read_text(encoding="utf-8")
    head, rule = str(benchmark["HEADER"]), "| --- | --- | --- | --- | --- | --- | --- |"
    row = "| nyu_colab | 0, fork | all | 1 | about | 2 | -50 % |"
    written = str(benchmark["with_table"](page, [head, rule, row]))
    before, table, behind = written.partition(f"{head}\n{rule}\n{row}\n\n")
    assert table
    assert page.startswith(before)
    assert page.endswith(behind)
    assert behind.startswith("What is off by 20 % and more")
    with pytest.raises(SystemExit, match="no such table"):
        benchmark["with_table"]("# Another page\n", [head, rule, row])
