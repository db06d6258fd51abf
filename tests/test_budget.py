"""``oomlint budget``: the rows by hand, the command line as a source, data files by their headers, limits, and what is wrong with the input."""

from __future__ import annotations

import json
import re
import shlex
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest
from commands import Done, runs

from oomlint.amounts import size
from oomlint.budget import command, headers, limits
from oomlint.budget.costs import PIECES_GIVEN_BACK
from oomlint.budget.mistakes import BudgetError
from oomlint.budget.report import schema
from oomlint.budget.sizes import MOST, Name, SizeProduct, Sum
from oomlint.budget.values import Values, values_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Budget = Callable[..., Done]

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = (ROOT / "docs" / "budget.md").read_text(encoding="utf-8")
EXCERPTS: Final = list(re.findall(r"```console\n(\$ oomlint budget fixtures.*?)```", PAGE, re.DOTALL))
MIB: Final = 1 << 20

ARRAY: Final = """
import argparse
import numpy as np
from torch.utils.data import DataLoader, Dataset

class Frames(Dataset):
    def __init__(self):
        self.x = np.zeros((1000, 300, 1000), dtype=np.float32)

    def __len__(self):
        return 1000

    def __getitem__(self, i):
        return self.x[i]

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    loader = DataLoader(Frames(), batch_size=args.batch, shuffle=True, num_workers=args.num_workers, persistent_workers=args.keep)

if __name__ == "__main__":
    main()
"""
PAYLOAD: Final = 1000 * 300 * 1000 * 4
SAMPLE: Final = 300 * 1000 * 4


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(tmp_path)
    return runs(capsys, "budget")


def table(budget: Budget, *words: str) -> dict[str, Any]:
    """The one entry of the JSON, which fits its schema."""
    done = budget(*words, "--output-format", "json")
    assert done.status in (0, 1), done.err
    found = json.loads(done.out)
    jsonschema.validate(found, schema())
    (only,) = found
    assert isinstance(only, dict)
    return only


def held(found: dict[str, Any], holder: str, moment: str = "first epoch") -> dict[str, int | None]:
    return {row["what"]: row["bytes"] for row in found["rows"] if row["holder"] == holder and moment in row["moments"]}


# -- rows ----------------------------------------------------------------------------------------------------------------


def test_fork_shares_an_array(budget: Budget) -> None:
    Path("train.py").write_text(ARRAY)
    found = table(budget, "python train.py --num-workers 4", "--start-method", "fork")
    assert held(found, "main") == {"interpreter, torch and numpy": 146 * MIB, "`x` of Frames": PAYLOAD}
    assert held(found, "workers") == {
        "forked processes of `loader`": 4 * 10 * MIB,
        "samples that become a batch of `loader`": 4 * (4 + PIECES_GIVEN_BACK) * SAMPLE,
    }
    assert held(found, "shared") == {"batches in flight of `loader`": (2 * 4 + 1) * 4 * SAMPLE}
    totals = {one["moment"]: one["bytes"] for one in found["totals"]}
    assert totals["first epoch"] == 146 * MIB + PAYLOAD + 40 * MIB + (16 + 4 * PIECES_GIVEN_BACK + 36) * SAMPLE
    assert found["verdict"]["complete"]


def test_spawn_pickles_it(budget: Budget) -> None:
    Path("train.py").write_text(ARRAY)
    found = table(budget, "python train.py --num-workers 2", "--start-method", "spawn")
    assert held(found, "workers", "first epoch")["`x` of Frames, pickled"] == 2 * PAYLOAD
    assert held(found, "main", "start of workers")["`x` of Frames, while it is pickled"] == 2 * PAYLOAD
    assert held(found, "workers", "start of workers")["`x` of Frames, in the other workers by then"] == PAYLOAD


def test_a_tensor_moves_to_shared_memory_under_spawn(budget: Budget) -> None:
    Path("train.py").write_text(ARRAY.replace("import numpy as np", "import torch").replace("np.zeros", "torch.zeros").replace("np.float32", "torch.float32"))
    found = table(budget, "python train.py --num-workers 2", "--start-method", "spawn")
    assert held(found, "shared")["`x` of Frames"] == PAYLOAD
    assert not [what for what in held(found, "workers") if "`x`" in what]


def test_without_workers_the_batch_is_in_the_main_process(budget: Budget) -> None:
    Path("train.py").write_text(ARRAY)
    found = table(budget, "python train.py --num-workers 0")
    assert held(found, "workers") == held(found, "shared") == {}
    assert held(found, "main")["two batches of `loader`"] == 2 * 4 * SAMPLE
    assert found["verdict"]["workers"] == []


def test_python_objects_are_copied_by_fork(budget: Budget) -> None:
    Path("train.py").write_text(
        "import json\nfrom torch.utils.data import DataLoader, Dataset\n"
        "class Notes(Dataset):\n    def __init__(self, path):\n        self.notes = json.load(open(path))\n"
        "    def __len__(self):\n        return len(self.notes)\n    def __getitem__(self, i):\n        return self.notes[i]\n"
        "loader = DataLoader(Notes('a.json'), num_workers=2, batch_size=8)\n"
    )
    found = table(budget, "train.py", "--set", "notes=100MiB", "--start-method", "fork")
    (copied,) = (row for row in found["rows"] if "copied as it is read" in row["what"])
    assert copied["formula"] == f"2 * 0.6 * {100 * MIB}"
    assert copied["known"] == "about"
    assert not found["verdict"]["complete"]  # nobody knows a sample


def test_ranks_multiply_everything(budget: Budget) -> None:
    Path("train.py").write_text(ARRAY)
    one = table(budget, "python train.py")
    eight = table(budget, "torchrun --nproc_per_node 8 train.py")
    assert eight["ranks"] == 8
    rows = [row for row in eight["rows"] if row["what"] != "torchrun, which imports torch"]
    assert [8 * row["bytes"] for row in one["rows"]] == [row["bytes"] for row in rows]
    assert len(rows) == len(eight["rows"]) - 1  # of which there is one, however many ranks there are
    assert table(budget, "torchrun --nproc_per_node 8 train.py", "--ranks", "2")["ranks"] == 2


@pytest.mark.parametrize(
    ("made", "size"),
    [
        ("np.zeros((1000, 1000))", 8 * 10**6),
        ("np.zeros((1000, 1000)).astype(np.float32)", 4 * 10**6),
        ("np.zeros((1000, 1000)).astype('uint8').reshape(-1, 10)", 10**6),
        ("torch.zeros(1000, 1000).double()", 8 * 10**6),
        ("torch.zeros(1000, 1000).half()", 2 * 10**6),
        ("torch.from_numpy(np.zeros((1000, 1000)))", 8 * 10**6),
        ("torch.full((1000, 1000), 7)", 8 * 10**6),
        ("torch.full((1000, 1000), 0.5)", 4 * 10**6),
        ("np.zeros((1000, 1000), dtype=np.uint8) / 255", 8 * 10**6),
        ("np.zeros((1000, 1000), dtype=np.uint8).repeat(3)", 3 * 10**6),
        ("torch.zeros(1000, 1000).repeat(2, 2)", 16 * 10**6),
        ("np.arange(5, 10**6)", 8 * (10**6 - 5)),
        ("torch.linspace(1, 2, 10**6)", 4 * 10**6),
        ("np.zeros((1000, 1000))[:10]", 8 * 10**6),
        ("np.zeros((1000, 1000)) @ unknown", None),
        ("np.zeros((1000, 1000)).astype(unknown)", None),
    ],
)
def test_what_becomes_of_an_array_on_its_way(budget: Budget, made: str, size: int | None) -> None:
    text = ARRAY.replace("import numpy as np", "import numpy as np\nimport torch").replace("np.zeros((1000, 300, 1000), dtype=np.float32)", made)
    for written in (text, text.replace(f"self.x = {made}", f"x = {made}\n        self.x = x")):
        Path("train.py").write_text(written)
        (row,) = (row for row in table(budget, "train.py")["rows"] if row["what"] == "`x` of Frames")
        assert (row["bytes"], row["known"]) == (size, "exact" if size else "unknown")


@pytest.mark.parametrize(
    "made",
    [
        "np.load('a.npy')",
        "open('a').read()",
        "np.logspace(0, 1, 10**8)",
        "np.eye(10000)",
        "torch.eye(10000)",
        "bytearray(10**9)",
        "bytes(10**9)",
        "{name: unknown(name) for name in range(10**6)}",
    ],
)
def test_what_nobody_counts_is_told_as_left_out(budget: Budget, made: str) -> None:
    text = ARRAY.replace("import numpy as np", "import numpy as np\nimport torch").replace("np.zeros((1000, 300, 1000), dtype=np.float32)", made)
    Path("train.py").write_text(text)
    assert "x" in next(one for one in table(budget, "train.py")["totals"] if one["moment"] == "construction")["missing"]


@pytest.mark.parametrize("made", ["[str(i) for i in range(10**6)]", "{i: str(i) for i in range(10**6)}"])
def test_strings_are_objects_that_take_57_bytes_at_least(budget: Budget, made: str) -> None:
    Path("train.py").write_text(ARRAY.replace("np.zeros((1000, 300, 1000), dtype=np.float32)", f"{made}\n        kept = self.x\n        self.names = kept"))
    rows = {row["what"]: (row["bytes"], row["known"]) for row in table(budget, "train.py")["rows"]}
    assert rows["`x` of Frames"] == (57 * 10**6, "at least")
    assert "`names` of Frames" not in rows  # the same object


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ("self.x[i], i", SAMPLE + 8),
        ("{'x': self.x[i], 'y': np.zeros((5, 5), dtype=np.float32).astype(np.float64)}", SAMPLE + 200),
        ("self.x[i], decoded(i)", None),
        ("np.array(self.x[i], dtype=np.float64)", 2 * SAMPLE),
        ("{'x': self.x[i], 'y': decoded(i)}", None),
        ("self.x[i], (np.zeros((5, 5)), decoded(i))", None),
        ("np.zeros((5, 5)) / 255, self.x[i]", SAMPLE + 200),
    ],
)
def test_a_sample_with_a_part_that_nobody_knows_is_unknown(budget: Budget, given: str, size: int | None) -> None:
    Path("train.py").write_text(ARRAY.replace("return self.x[i]", f"return {given}"))
    found = held(table(budget, "python train.py", "--start-method", "fork"), "shared")
    assert found == {"batches in flight of `loader`": 3 * 4 * size if size is not None else None}
    assert table(budget, "python train.py", "--set", "sample=100")["verdict"]["complete"] if size is None else True


def test_the_second_dataset_of_a_class_has_names_of_its_own(budget: Budget) -> None:
    Path("train.py").write_text(
        "import numpy as np\nfrom torch.utils.data import DataLoader, Dataset\n"
        "class Clips(Dataset):\n    def __init__(self, path):\n        self.clips = np.load(path)\n"
        "    def __len__(self):\n        return len(self.clips)\n    def __getitem__(self, i):\n        return self.clips[i]\n"
        "train = DataLoader(Clips('a.npy'), shuffle=True)\nval = DataLoader(Clips('b.npy'))\n"
    )
    found = table(budget, "train.py", "--set", "clips=2GiB", "--set", "clips#2=1GiB")
    assert sorted(row["bytes"] for row in found["rows"] if row["what"] == "`clips` of Clips") == [1 << 30, 2 << 30]


def test_what_another_script_runs_is_left_out(budget: Budget) -> None:
    Path("common.py").write_text(
        "import glob\nimport numpy as np\n"
        "def all_of(folder):\n    found = []\n    for path in glob.glob(folder):\n        found.append(np.load(path))\n    return np.stack(found)\n"
    )
    Path("other.py").write_text("from common import all_of\nfrom torch.utils.data import DataLoader, TensorDataset\nx = all_of('a/*')\n")
    own = "import common\n" + ARRAY
    Path("train.py").write_text(own)
    assert not [row for row in table(budget, "python train.py")["rows"] if "pieces" in row["what"]]
    Path("train.py").write_text(own.replace("loader =", "x = common.all_of('b/*')\n    loader ="))
    assert [row["known"] for row in table(budget, "python train.py")["rows"] if "pieces" in row["what"]] in ([], ["unknown"])


GRAPHS: Final = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def evaluate(model, loader):
    model.eval()
    outputs = []
    for images, labels in loader:
        outputs.append(model(images))
    return outputs

data = TensorDataset(torch.zeros(1000, 3, 32, 32), torch.zeros(1000))
evaluate(nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU()), DataLoader(data, batch_size=10, num_workers=0))
"""


def test_a_list_that_two_findings_name_is_counted_once(budget: Budget) -> None:
    Path("train.py").write_text(GRAPHS)
    found = table(budget, "train.py")
    assert [row["what"] for row in found["rows"] if "grows" in row["what"]] == ["`outputs` grows with the steps"]


def test_a_row_of_each_tensor_is_a_sample(budget: Budget) -> None:
    Path("train.py").write_text(GRAPHS)
    found = table(budget, "train.py", "--set", "num_workers=2")
    assert [row["bytes"] for row in found["rows"] if row["what"].startswith("batches in flight")] == [5 * 10 * (3 * 32 * 32 * 4 + 4)]


def test_a_setting_of_the_command_line_is_no_number_that_the_code_lacks(budget: Budget) -> None:
    Path("train.py").write_text(GRAPHS)
    said = budget("train.py", "--set", "num_workers=2", "--ram", "160MiB").out
    assert "num_workers=0." in said
    assert "does not write" not in said


def test_what_the_code_says_otherwise_is_named(budget: Budget) -> None:
    """Who gives a number in place of one that is known should not take the table for that of the program."""
    Path("train.py").write_text(GRAPHS)
    words = ("train.py", "--set", "num_workers=2", "--set", "batch_size=10", "--set", "prefetch_factor=4")
    found = table(budget, *words)
    assert [(one["name"], one["given"], one["said"], one["place"]["row"]) for one in found["replaced"]] == [
        ("num_workers", 2, 0, GRAPHS[: GRAPHS.index("num_workers=0")].count("\n") + 1),
        ("prefetch_factor", 4, 2, GRAPHS[: GRAPHS.index("DataLoader(data")].count("\n") + 1),
    ]
    row = GRAPHS[: GRAPHS.index("num_workers=0")].count("\n") + 1
    for form in ("table", "html"):
        said = budget(*words, "--output-format", form).out.replace("<code>", "`").replace("</code>", "`")
        assert f"`--set num_workers=2` replaces what the code says: 0 (train.py:{row})." in said
        assert "--set batch_size" not in said
    assert table(budget, "train.py")["replaced"] == []


@pytest.mark.parametrize("form", ["table", "json", "html"])
def test_a_budget_can_go_to_a_file(budget: Budget, form: str) -> None:
    Path("train.py").write_text(GRAPHS)
    shown = budget("train.py", "--output-format", form)
    done = budget("train.py", "--output-format", form, "--output-file", "budget.out")
    assert (done.status, done.out, done.err) == (shown.status, "", shown.err)
    assert Path("budget.out").read_text(encoding="utf-8") == shown.out
    refused = budget("train.py", "-o", "train.py")
    assert (refused.status, refused.out) == (2, "")
    assert refused.err == "oomlint: error: --output-file: train.py is one of the files to check, and would be overwritten\n"
    assert Path("train.py").read_text() == GRAPHS


def test_a_diff_can_go_to_a_file(budget: Budget) -> None:
    Path("train.py").write_text(ARRAY)
    words = ("python train.py --num-workers 8", "--ram", "3GiB", "--shm", "1GiB", "--start-method", "spawn", "--diff")
    shown = budget(*words)
    budget(*words, "-o", "fits.diff")
    assert Path("fits.diff").read_text() == shown.out


def test_outputs_that_are_joined_peak_in_the_evaluation(budget: Budget) -> None:
    found = table(budget, str(ROOT / "fixtures" / "incidents" / "streaming_encoder" / "encode_v1.py"))
    moments = [row["moments"] for row in found["rows"] if "the pieces" in row["what"] or "grows with the steps" in row["what"]]
    assert moments
    assert all(one == ["evaluation"] for one in moments)


# -- the command ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "workers"),
    [("", 1), ("--num-workers 3", 3), ("--num-workers=5", 5), ("--num-workers 3 --num-workers 6", 6)],
)
def test_options_of_the_command_become_values(budget: Budget, given: str, workers: int) -> None:
    Path("train.py").write_text(ARRAY)
    assert table(budget, f"python train.py {given}")["loaders"][0]["workers"] == workers


@pytest.mark.parametrize(
    "program",
    [
        """
        import click
        @click.command()
        @click.option("--num-workers", default=1)
        def main(num_workers):
            DataLoader([1], num_workers=num_workers)
        main()
        """,
        """
        import typer
        def main(num_workers: int = typer.Option(1, "--num-workers")):
            DataLoader([1], num_workers=num_workers)
        typer.run(main)
        """,
        """
        from dataclasses import dataclass
        from transformers import HfArgumentParser
        @dataclass
        class Settings:
            num_workers: int = 1
        def main():
            (settings,) = HfArgumentParser(Settings).parse_args_into_dataclasses()
            DataLoader([1], num_workers=settings.num_workers)
        main()
        """,
    ],
    ids=["click", "typer", "transformers"],
)
def test_other_parsers_are_fed_too(budget: Budget, program: str) -> None:
    Path("train.py").write_text("from torch.utils.data import DataLoader\n" + dedent(program))
    assert table(budget, "python train.py --num-workers 7 --num_workers 7")["loaders"][0]["workers"] == 7
    assert table(budget, "python train.py")["loaders"][0]["workers"] == 1


def test_the_command_decides_which_way_is_taken(budget: Budget) -> None:
    Path("train.py").write_text(
        "import argparse\nfrom torch.utils.data import DataLoader\n"
        "def truth(word):\n    return word.lower() in ('true', 'yes')\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--test', type=truth, default=False)\nargs = parser.parse_args()\n"
        "if args.test:\n    loader = DataLoader([1], num_workers=3)\nelse:\n    loader = DataLoader([1], num_workers=5)\n"
    )
    for given, workers in (("", 5), (" --test true", 3), (" --test False", 5)):
        assert [one["workers"] for one in table(budget, f"python train.py{given}")["loaders"]] == [workers], given


TABLE: Final = """
import argparse
import os

import torch
from torch.utils.data import DataLoader, Dataset

class Frames(Dataset):
    def __init__(self, root):
        self.path = os.path.join(root, "frames.h5")

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.zeros(3, 4)

def small(args):
    return DataLoader(Frames("."), batch_size=4, num_workers=2)

def large(args):
    return DataLoader(Frames("."), batch_size=400, num_workers=2)

LOADERS = {"small": {"train": small}}
LOADERS["large"] = {"train": large}

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="small")
    args = parser.parse_args()
    for batch in LOADERS[args.kind]["train"](args):
        print(batch)

main()
"""


@pytest.mark.parametrize(("words", "loader", "size"), [("", "small", 4), (" --kind large", "large", 400)])
def test_of_the_loaders_in_a_table_the_one_counts_that_the_option_names(budget: Budget, words: str, loader: str, size: int) -> None:
    Path("train.py").write_text(TABLE)
    found = table(budget, f"python train.py{words}")
    assert held(found, "shared") == {f"batches in flight of `{loader}`": (2 * 2 + 1) * size * 3 * 4 * 4}
    assert held(found, "main") == {"interpreter, torch and numpy": 146 * MIB}  # a path is no container


def test_ranks_that_the_command_says_are_no_other_lines(budget: Budget) -> None:
    Path("train.py").write_text(ARRAY)
    Path("README.md").write_text("```\ntorchrun --nproc_per_node 4 train.py\n```\n")
    assert "4 ranks (README.md:2)" in budget("train.py").out
    assert budget("torchrun --nproc_per_node 4 train.py").out.splitlines()[0].endswith("4 ranks")


def test_a_plain_command_has_one_rank_whatever_the_readme_shows(budget: Budget) -> None:
    Path("train.py").write_text(ARRAY)
    Path("README.md").write_text("    torchrun --nproc_per_node 4 train.py\n")
    assert table(budget, "train.py")["ranks"] == 4
    assert table(budget, "python train.py")["ranks"] == 1


def test_a_switch_of_the_command(budget: Budget) -> None:
    """Workers that persist are there in the evaluation, too."""
    Path("train.py").write_text(ARRAY)
    assert held(table(budget, "python train.py"), "workers", "evaluation") == {}
    assert held(table(budget, "python train.py --keep"), "workers", "evaluation") != {}


PARSED: Final = {
    "parsing.py": """
import json

def parsed(parser):
    args = parser.parse_args()
    if args.config is not None:
        for key, value in json.load(open(args.config)).items():
            setattr(args, key, value)
    return args
""",
    "train.py": """
import argparse
import torch
from torch.utils.data import DataLoader, Dataset
from parsing import parsed

class Pieces(Dataset):
    def __init__(self, length):
        self.length = length

    def __getitem__(self, i):
        return torch.zeros(self.length)

def prepare(args):
    args.devices = torch.cuda.device_count()

def loader_of(args):
    return DataLoader(Pieces(10 if args.kind == "short" else 1000), batch_size=args.batch // args.devices, num_workers=2)

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="long")
    parser.add_argument("--config")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--devices", type=int, default=1)
    args = parsed(parser)
    PREPARE
    for batch in loader_of(args):
        print(batch)

main()
""",
}


@pytest.mark.parametrize(("prepare", "formula"), [("pass", "(2 * 2 + 1) * 8 * 1000 * 4"), ("prepare(args)", "(2 * 2 + 1) * batch_size * 1000 * 4")])
def test_options_go_through_other_files_and_functions(budget: Budget, prepare: str, formula: str) -> None:
    """Another file parses; a function that is handed the options sets one of them to what nobody knows."""
    for name, text in PARSED.items():
        Path(name).write_text(text.replace("PREPARE", prepare))
    assert next(row["formula"] for row in table(budget, "train.py")["rows"] if row["what"].startswith("batches in flight")) == formula


def test_a_loader_that_a_function_uses_up_counts_once(budget: Budget) -> None:
    program = (
        "from torch.utils.data import DataLoader\ndef total(data):\n    loader = DataLoader(data, batch_size=2, num_workers=2)\n    GONE\n"
        "def again(data):\n    return total(data)\ndef main(data):\n    return total(data), again(data)\nmain(open('a').read())\n"
    )
    for gone, count in (("return sum(x for x in loader)", 2), ("result = 0\n    for x in loader: result += x.sum()\n    return result", 1)):
        Path("train.py").write_text(program.replace("GONE", gone))
        assert len([row for row in table(budget, "train.py")["rows"] if row["what"].startswith("forked processes")]) == count


def test_a_loader_that_nobody_goes_through_takes_nothing(budget: Budget) -> None:
    made = "from torch.utils.data import DataLoader\nused = DataLoader([1], num_workers=2)\nspare = DataLoader([1], num_workers=3)\n"
    for more, workers in (("for x in used: print(x)\n", [2]), ("", [2, 3])):
        Path("train.py").write_text(made + more)
        assert [one["workers"] for one in table(budget, "train.py")["loaders"]] == workers


def test_tensors_of_one_dataset_have_names_of_their_own(budget: Budget) -> None:
    Path("train.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\nx, y = torch.load('x'), torch.load('y')\n"
        "loader = DataLoader(TensorDataset(x, y), batch_size=2)\n"
    )
    rows = table(budget, "train.py", "--set", "tensors[0]=2GiB", "--set", "tensors[1]=3MiB")["rows"]
    assert [row["bytes"] for row in rows if row["what"].endswith("of TensorDataset")] == [2048 * MIB, 3 * MIB]


def test_a_loader_under_an_option_that_nobody_gives_is_named(budget: Budget) -> None:
    Path("train.py").write_text(ARRAY.replace("    loader = ", "    if args.keep:\n        loader = "))
    assert table(budget, "python train.py --keep")["loaders"]
    done = budget("python train.py")
    assert (done.status, done.out) == (2, "")
    assert "train.py: the DataLoader at train.py:23 is made under options that the command does not give" in done.err


def test_what_is_left_out_may_not_fit(budget: Budget) -> None:
    Path("train.py").write_text("from torch.utils.data import DataLoader\nfrom data import text\nloader = DataLoader(text, batch_size=2)\n")
    assert "\nWhat is known fits: 146.0 MiB at least, at the moment `construction`; what is left out may not.\n" in budget("train.py", "--ram", "1GiB").out


@pytest.mark.parametrize(
    ("text", "options", "ranks"),
    [
        ("python train.py --a 1", ("--a", "1"), None),
        ("train.py", (), None),
        ("torchrun --nproc-per-node=4 train.py", (), 4),
        ("python -m torch.distributed.launch --nproc_per_node 2 train.py -x", ("-x",), 2),
        ("accelerate launch --num_processes 3 --multi_gpu train.py", (), 3),
        ("python -m pkg.run 'a b'", ("a b",), None),
        ("python train.py --note 'a; b | c'", ("--note", "a; b | c"), None),
        ("torchrun --nproc_per_node 4 -m pkg.run", (), 4),
        ("accelerate launch --num_processes 8 --num_machines 2 train.py", (), 4),
        ("accelerate launch --config_file acc.yaml train.py", (), 3),
        ("python -m accelerate.commands.launch --num_processes 4 train.py", (), 4),
        ("python -m deepspeed.launcher.runner --num_gpus 4 train.py", (), 4),
        ("deepspeed --include localhost:0,1,2 train.py", (), 3),
        ("python -m cProfile -o out -s cumtime train.py -x", ("-x",), None),
        ("python train.py -x > log 2>&1", ("-x",), None),
        ("python train.py --pad '<pad>'", ("--pad", "<pad>"), None),
        ("python train.py -x 2>/dev/null -y", ("-x", "-y"), None),
    ],
)
def test_commands(tmp_path: Path, text: str, options: tuple[str, ...], ranks: int | None) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "acc.yaml").write_text("num_machines: 2\nnum_processes: 6\n")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "run.py").write_text("")
    found = command.read(text, str(tmp_path))
    assert (found.options, found.ranks) == (options, ranks)


# -- data files ----------------------------------------------------------------------------------------------------------


def npy(shape: tuple[int, ...], descr: str = "<f4") -> bytes:
    head = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head


def test_headers_without_any_payload(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(npy((10, 3)))
    (array,) = headers.read(str(tmp_path / "a.npy")).arrays
    assert (array.shape, array.bytes) == ((10, 3), 120)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", npy((7,), "|u1"))
        archive.writestr("y.npy", npy((2,), "|O"))
    found = headers.read(str(tmp_path / "a.npz"))
    assert [(one.key, one.bytes) for one in found.arrays] == [("x", 7), ("y", None)]
    about = json.dumps({"w": {"dtype": "BF16", "shape": [5, 5], "data_offsets": [0, 50]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(about)) + about)
    assert headers.read(str(tmp_path / "a.safetensors")).held == 50
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", b"")
        archive.writestr("a/data/0", b"\0" * 40)
    assert headers.read(str(tmp_path / "a.pt")).held == 40
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "1.png").write_bytes(b"12345")
    found = headers.read(str(tmp_path / "folder"))
    assert (found.count, found.held) == (1, 5)


def test_files_of_the_libraries_themselves(tmp_path: Path) -> None:
    np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    np.save(tmp_path / "a.npy", np.zeros((4, 5), dtype="f8"))
    np.savez_compressed(tmp_path / "a.npz", names=np.array(["ab", "c"]))
    torch.save({"x": torch.zeros(100), "y": [torch.zeros(3)]}, tmp_path / "a.pt")
    assert [headers.read(str(tmp_path / name)).held for name in ("a.npy", "a.npz", "a.pt")] == [160, 16, 412]


def test_a_parquet_footer(tmp_path: Path) -> None:
    """Field 3 is the number of rows, field 4 a list of groups whose field 2 is their bytes."""
    group = bytes([0x26, 0xD0, 0x0F, 0x00])  # field 2, i64: 1000
    footer = bytes([0x36, 0x14]) + bytes([0x19, 0x1C]) + group + b"\0"  # field 3, i64: 10; field 4: a list of one struct
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + b"data" + footer + struct.pack("<I", len(footer)) + b"PAR1")
    found = headers.read(str(tmp_path / "a.parquet"))
    assert (found.count, found.held) == (10, 1000)


def test_a_parquet_file_of_pyarrow(tmp_path: Path) -> None:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    parquet.write_table(arrow.table({"x": list(range(1000))}), tmp_path / "a.parquet")
    found = headers.read(str(tmp_path / "a.parquet"))
    assert found.count == 1000
    assert found.held == sum(parquet.read_metadata(tmp_path / "a.parquet").row_group(n).total_byte_size for n in range(1))


def test_a_container_that_is_read_from_a_file_has_its_shape(budget: Budget) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File("frames.h5", "w") as file:
        file.create_dataset("group/x", (50, 3, 8, 8), dtype="u1")
    Path("train.py").write_text(
        "import h5py\nfrom torch.utils.data import DataLoader, Dataset\n"
        "class Frames(Dataset):\n    def __init__(self, path):\n        with h5py.File(path) as f:\n            self.x = f['group/x'][:]\n"
        "    def __len__(self):\n        return len(self.x)\n    def __getitem__(self, i):\n        return self.x[i]\n"
        "loader = DataLoader(Frames('frames.h5'), batch_size=2, num_workers=2)\n"
    )
    (row,) = (row for row in table(budget, "train.py", "--data", "frames.h5")["rows"] if row["what"] == "`x` of Frames")
    assert (row["formula"], row["bytes"], row["known"]) == ("50 * 3 * 8 * 8 * 1", 9600, "exact")


def test_entries_of_an_archive(budget: Budget) -> None:
    with zipfile.ZipFile("a.npz", "w") as archive:
        archive.writestr("images.npy", npy((9, 100), "|u1"))
        archive.writestr("labels.npy", npy((9,), "<i8"))
    Path("train.py").write_text(
        "import numpy as np\nfrom torch.utils.data import DataLoader, Dataset\n"
        "class Frames(Dataset):\n    def __init__(self, path):\n        data = np.load(path)\n        self.x = data['images']\n"
        "    def __len__(self):\n        return len(self.x)\n    def __getitem__(self, i):\n        return self.x[i]\n"
        "loader = DataLoader(Frames('a.npz'), batch_size=2)\n"
    )
    (row,) = (row for row in table(budget, "train.py", "--data", "a.npz")["rows"] if row["what"] == "`x` of Frames")
    assert row["formula"] == "9 * 100 * 1"


def test_a_data_file_that_is_there_is_offered(budget: Budget) -> None:
    Path("data").mkdir()
    Path("data/a.npy").write_bytes(npy((9, 100), "|u1"))
    Path("train.py").write_text(
        "import numpy as np\nfrom torch.utils.data import DataLoader, Dataset\n"
        "class Frames(Dataset):\n    def __init__(self, root):\n        self.x = np.load(root + '/a.npy')\n        self.y = np.load('gone.npy')\n"
        "    def __len__(self):\n        return len(self.x)\n    def __getitem__(self, i):\n        return self.x[i], self.y[i]\n"
        "loader = DataLoader(Frames('data'), batch_size=2)\n"
    )
    assert table(budget, "train.py")["data_files"] == ["data/a.npy"]
    assert "The code reads data/a.npy, which is there: `--data data/a.npy` takes the shape from its header." in budget("train.py").out.splitlines()
    given = table(budget, "train.py", "--data", "data/a.npy")
    assert given["data_files"] == []
    assert next(row["bytes"] for row in given["rows"] if row["what"] == "`x` of Frames") == 900


# -- moments -------------------------------------------------------------------------------------------------------------

TURNS: Final = """
import torch
from torch.utils.data import DataLoader, Dataset

class Frames(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, i):
        return torch.zeros(1000, 1000)

def train(model, loader, other, optimizer):
    for x in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        INNER

def validate(model, loader):
    model.eval()
    with torch.no_grad():
        for x in loader:
            print(model(x).sum())

def look(model, loader):
    with torch.no_grad():
        for x in loader:
            print(model(x).sum())

def draw(model):
    with torch.no_grad():
        print(model(torch.zeros(1000)))

def show(model, loader):
    print(model(next(iter(loader))))

def main():
    model = torch.nn.Linear(1000, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    first = DataLoader(Frames(), batch_size=8, shuffle=True, num_workers=2)
    second = DataLoader(Frames(), batch_size=4, shuffle=True, num_workers=2)
    for epoch in range(3):
        train(model, first, second, optimizer)
        OUTER

main()
"""
FIRST, SECOND = 5 * 8 * 4_000_000, 5 * 4 * 4_000_000  # bytes of their batches in flight


@pytest.mark.parametrize(
    ("inner", "outer", "training", "evaluation"),
    [
        pytest.param("pass", "validate(model, second)", FIRST, SECOND, id="one after the other"),
        pytest.param("validate(model, other)", "pass", FIRST, FIRST + SECOND, id="one inside the other"),
        pytest.param("pass", "train(model, second, first, optimizer)", FIRST, 0, id="both train"),
        pytest.param("pass", "print(next(iter(second)))", FIRST, SECOND, id="a first batch between the epochs"),
        pytest.param("pass", "show(model, second)", FIRST, SECOND, id="a first batch that a function takes"),
        pytest.param("model(next(iter(other)))", "pass", FIRST + SECOND, 0, id="a first batch in each step"),
        pytest.param("show(model, other)", "pass", FIRST + SECOND, 0, id="a first batch that a function takes in each step"),
        pytest.param("pass", "look(model, second)", FIRST, SECOND, id="no gradients in a function of any name"),
        pytest.param("draw(model)", "pass", FIRST + SECOND, 0, id="no gradients in a part of the rounds that train"),
        pytest.param("pass", "waiting = iter(second); next(waiting)", FIRST + SECOND, 0, id="workers that wait for who asks next"),
    ],
)
def test_what_loops_go_through_tells_which_loaders_are_at_work(budget: Budget, inner: str, outer: str, training: int, evaluation: int) -> None:
    Path("train.py").write_text(TURNS.replace("INNER", inner).replace("OUTER", outer))
    shared = {one["moment"]: one["shared"] for one in table(budget, "train.py")["totals"]}
    assert (shared["first epoch"], shared.get("evaluation", 0)) == (training, evaluation)


@pytest.mark.parametrize(("device", "holder"), [("model.cuda()", "device"), ("pass", "main")])
def test_a_graph_that_grows_lies_where_the_model_is(budget: Budget, device: str, holder: str) -> None:
    Path("train.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader\nmodel = torch.nn.Linear(9, 1)\n"
        f"{device}\noptimizer = torch.optim.SGD(model.parameters(), 0.1)\nloader = DataLoader([torch.zeros(9)], batch_size=2)\ntotal = 0\n"
        "for x in loader:\n    loss = model(x).sum()\n    loss.backward()\n    optimizer.step()\n    total += loss\nprint(total)\n"
    )
    assert [row["holder"] for row in table(budget, "train.py")["rows"] if "grows with the steps" in row["what"]] == [holder]


# -- limits --------------------------------------------------------------------------------------------------------------


def system(top: Path, files: dict[str, str]) -> str:
    charged = {name.replace("memory.max", "memory.current").replace("memory.limit_in", "memory.usage_in"): "0\n" for name in files if "/memory." in name}
    for name, content in {"proc/meminfo": "MemTotal:  1000000 kB\n", **charged, **files}.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(content)
    return str(top)


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, 1_024_000_000),
        ({"proc/self/cgroup": "0::/job/step\n", "sys/fs/cgroup/job/step/memory.max": "max\n", "sys/fs/cgroup/job/memory.max": "5000000\n"}, 5_000_000),
        ({"proc/self/cgroup": "0::/elsewhere\n", "sys/fs/cgroup/memory.max": "7000000\n"}, 7_000_000),
        ({"proc/self/cgroup": "4:cpu,memory:/j\n", "sys/fs/cgroup/memory/j/memory.limit_in_bytes": "6000000\n"}, 6_000_000),
        ({"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 1_024_000_000),
    ],
    ids=["none", "version 2, a group around", "version 2, in a container", "version 1", "version 1 without a limit"],
)
def test_the_limit_is_that_of_the_control_group(tmp_path: Path, files: dict[str, str], wanted: int) -> None:
    assert limits.of_ram(system(tmp_path, files)).size == wanted


def test_there_may_be_no_limit_to_find(tmp_path: Path) -> None:
    assert limits.of_shm(str(tmp_path / "none")).size is None


def test_decimal_units_are_said_in_binary_ones() -> None:
    assert limits.Limit(size("12GB"), "--ram", "12GB").words == "12GB = 11.2 GiB (--ram)"
    assert limits.Limit(size("12GiB"), "--ram", "12GiB").words == "12.0 GiB (--ram)"


def test_what_does_not_fit_says_when_and_what_would(budget: Budget) -> None:
    Path("train.py").write_text(ARRAY)
    done = budget("python train.py --num-workers 8", "--ram", "3GiB", "--shm", "1GiB", "--start-method", "spawn")
    assert done.status == 1
    assert "It does not fit: at the moment `start of workers`" in done.out
    assert "Workers that fit: none under spawn; 64 or more under fork." in done.out
    found = table(budget, "python train.py --num-workers 8", "--ram", "3GiB", "--shm", "1GiB", "--start-method", "spawn")
    most = {one["start_method"]: one["most"] for one in found["verdict"]["workers"] if one["bounded"]}
    assert most.keys() == {"spawn"}
    for method, count in most.items():
        fits = table(budget, f"python train.py --num-workers {count}", "--ram", "3GiB", "--shm", "1GiB", "--start-method", method)
        more = table(budget, f"python train.py --num-workers {count + 1}", "--ram", "3GiB", "--shm", "1GiB", "--start-method", method)
        assert (fits["verdict"]["fits"], more["verdict"]["fits"]) == (True, False), method


def test_shared_memory_has_a_limit_of_its_own(budget: Budget) -> None:
    Path("train.py").write_text(ARRAY)
    found = table(budget, "python train.py --num-workers 8", "--ram", "64GiB", "--shm", "64MiB")
    assert (found["verdict"]["short_of"], found["verdict"]["moment"]) == ("shm", "first epoch")


# -- what is wrong -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plain.py"], "plain.py: no DataLoader is made there that could be seen"),
        (["gone.py"], "gone.py: there is no such file or folder"),
        (["broken.py"], "broken.py:2: not valid Python 3"),
        (["broken.py"], "'(' was never closed"),
        (["train.py", "-o", "no/such/folder.txt"], "no/such/folder.txt: No such file or directory"),
        (["train.py", "--output-file", "."], ".: Is a directory"),
        (["train.py", "--set", "Q=1"], "--set Q: nothing is called so; there are "),
        (["train.py", "--set", "N"], "it is written NAME=VALUE"),
        (["train.py", "--set", "N=x"], "neither a whole number nor a size"),
        (["train.py", "--set", "N=1.5"], "'1.5' is no whole number from 0 on"),
        (["train.py", "--ram", "4"], "--ram: 4 is a number of bytes; name the unit: 4GiB"),
        (["train.py", "--set", "num_workers=8GiB"], "'8GiB' is no whole number"),
        (["train.py", "--set", "batch_size=1.5"], "'1.5' is no whole number"),
        (["train.py", "--set", "prefetch_factor=0"], "it is 1 at least"),
        (["train.py", "--set", "num_workers=99999999999999999999"], "more than 64 bits can count"),
        (["train.py", "--set", "batch_size=9000000000000000000"], "more than 64 bits can count"),
        (["train.py", "--ram", "12XB"], "--ram: '12XB' is not a size"),
        (["train.py", "--ram", "99999999999TiB"], "--ram: '99999999999TiB' is more than 1,048,576 TiB, the most that is counted"),
        (["train.py", "--set", "N=99999999999TiB"], "--set N=99999999999TiB: '99999999999TiB' is more than 1,048,576 TiB"),
        (["train.py", "--ranks", "0"], "--ranks: '0' is no number of processes"),
        (["train.py", "--data", "gone.npy"], "--data gone.npy: No such file or directory"),
        (["train.py", "--data", "junk.npy"], "--data junk.npy: its header cannot be read"),
        (["train.py", "--data", "cut.npy"], "--data cut.npy: its header cannot be read"),
        (["train.py", "--data", "cut.parquet"], "--data cut.parquet: its header cannot be read"),
        (["train.py", "--data", "old.pt"], "--data old.pt: its header cannot be read"),
        (["train.py", "--data", "cut.safetensors"], "--data cut.safetensors: its header cannot be read"),
        (["train.py", "--data", "empty.safetensors"], "--data empty.safetensors: its header cannot be read: it is empty"),
        (["train.py", "--data", "list.safetensors"], "--data list.safetensors: its header cannot be read: it is cut short, or no safetensors file"),
        (["train.py", "--data", "short.parquet"], "--data short.parquet: its header cannot be read: it does not end like a parquet file"),
        (["torchrun --nproc_per_node 99999 train.py"], "the command starts 99999 processes, and 4096 on one machine are the most"),
        (["CUDA_VISIBLE_DEVICES=0 python gone.py | tee log"], "the command runs gone.py, which is not there"),
        (["python -m gone train"], "the command runs gone, which is not there"),
        (["cut.yaml"], "cut.yaml:3: not valid YAML: "),
        (["make"], "make: there is no such file or folder"),
        (["make train"], "the command runs no Python script"),
        (["python gone.py"], "the command runs gone.py, which is not there"),
        (["ls -l"], "the command runs no Python script"),
        (["python 'train.py"], "the command cannot be read"),
        (["train.py", "plain.py"], "one script, folder or command at a time"),
    ],
)
def test_one_clear_line(budget: Budget, words: list[str], said: str) -> None:
    Path("train.py").write_text(ARRAY)
    Path("plain.py").write_text("print(1)\n")
    Path("cut.yaml").write_text("spec:\n  containers: [\n")
    Path("broken.py").write_text("from torch.utils.data import DataLoader\nDataLoader(\n")
    for name in ("junk.npy", "old.pt", "cut.safetensors"):
        Path(name).write_bytes(b"junk")
    Path("cut.npy").write_bytes(npy((3, 3))[:20])
    Path("cut.parquet").write_bytes(b"PAR1xxxxxxxxxxxx")
    Path("short.parquet").write_bytes(b"PAR1")
    Path("empty.safetensors").touch()
    Path("list.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0[]")
    done = budget(*words)
    assert done.status == 2
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert said in done.err


def test_a_command_without_quotes_is_told_about_them(budget: Budget) -> None:
    Path("train.py").write_text(ARRAY)
    done = budget("train.py", "--keep")
    assert done.status == 2
    assert done.err.splitlines()[-1] == "oomlint: hint: a command with options of its own stands in quotes: oomlint budget 'train.py --keep'"
    done = budget("python train.py --keep", "--gpu", "8GiB")  # it stands in quotes
    assert done.status == 2
    assert "hint" not in done.err


def test_a_truncated_hdf5_file(budget: Budget) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File("whole.h5", "w") as file:
        file.create_dataset("x", data=[1.0] * 10_000)
    Path("cut.h5").write_bytes(Path("whole.h5").read_bytes()[:5000])
    Path("train.py").write_text(ARRAY)
    done = budget("train.py", "--data", "cut.h5")
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "truncated" in done.err


def test_a_cycle_of_imports(budget: Budget) -> None:
    Path("train.py").write_text("import data\nfrom torch.utils.data import DataLoader\ndef loader(x):\n    return DataLoader(x, num_workers=2)\n")
    Path("data.py").write_text("import train\nif __name__ == '__main__':\n    train.loader([1])\n")
    assert table(budget, "data.py")["loaders"][0]["workers"] == 2


def test_a_folder_has_a_table_for_each_script(budget: Budget) -> None:
    Path("one.py").write_text(ARRAY)
    Path("two.py").write_text(ARRAY.replace("default=1", "default=2"))
    done = budget(".", "--output-format", "json")
    assert [(one["filename"], one["loaders"][0]["workers"]) for one in json.loads(done.out)] == [("one.py", 1), ("two.py", 2)]


# -- sizes ---------------------------------------------------------------------------------------------------------------


def test_sizes_are_products() -> None:
    name = Name("N", "Frames")
    whole = SizeProduct((Sum("(2 * 3 + 1)", 7), name, 4))
    assert (str(whole), whole.value, whole.missing) == ("(2 * 3 + 1) * N * 4", None, (name,))
    assert whole.filled(values_of(["N=10"])).value == 280
    assert whole.filled(Values({"Frames.N": 2, "N": 10})).value == 56
    with pytest.raises(BudgetError, match="more than 64 bits"):
        _ = SizeProduct((MOST, 2)).value


# -- the page ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=lambda block: block.split("\n")[0][-30:])
def test_the_page_shows_what_is_printed(excerpt: str) -> None:
    line, _, expected = excerpt.partition("\n")
    words = [sys.executable, "-m", *shlex.split(line.removeprefix("$ "))]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    if expected.startswith("...\n"):
        assert done.stdout.endswith(expected.removeprefix("...\n"))
    else:
        assert done.stdout == expected


def test_there_are_excerpts() -> None:
    assert len(EXCERPTS) == 2
