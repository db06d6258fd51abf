"""``oomlint budget``: what a command gives reaches the table, what nobody can read of it is unknown, and scripts are those of the folder that it is in."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final

import pytest
from commands import runs
from test_budget import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Done

    Budget = Callable[..., Done]

HEAD: Final = "import argparse, os, sys, torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
TRAIN: Final = "for x in DataLoader(TensorDataset(torch.rand({n}, 1000)), batch_size=8, num_workers={workers}):\n    pass\n"


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(tmp_path)
    return runs(capsys, "budget")


def script(code: str, n: str = "n", workers: str = "workers", path: str = "train.py") -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(HEAD + dedent(code) + TRAIN.format(n=n, workers=workers))


def told(found: dict[str, Any]) -> tuple[int | None, int | None]:
    """The workers, and the rows of the tensor."""
    (held,) = (row["bytes"] for row in found["rows"] if row["what"] == "`tensors` of TensorDataset")
    return found["loaders"][0]["workers"], None if held is None else held // 4000


ARGPARSE: Final = """
parser = argparse.ArgumentParser()
parser.add_argument("-j", "--num-workers", dest="workers", type=int, default=1)
parser.add_argument("-n", type=int, default=10)
parser.add_argument("times", nargs="?", type=int, default=1)
parser.add_argument("--quick", action="store_true")
a = parser.parse_args()
workers, n = a.workers, (5 if a.quick else a.n) * a.times
"""


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("-j3 -n20", (3, 20)),
        ("--num-work 4", (4, 10)),
        ("-n 20 3", (1, 60)),
        ("7 --quick", (1, 35)),
        ("--num-workers=2 -- 6", (2, 60)),
        ("-n -j", (1, None)),
    ],
)
def test_words_are_read_as_argparse_does(budget: Budget, given: str, wanted: tuple[int | None, int | None]) -> None:
    script(ARGPARSE)
    assert told(table(budget, f"python train.py {given}")) == wanted


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ('args="-n 20 --num-workers 3"\npython train.py $args\n', (3, 20)),
        ("python train.py $args\n", (None, None)),
        ('python train.py -n 20 "${ARGS[@]}"\n', (None, None)),
        ('python train.py "${ARGS[@]}" -n 20 -j 2\n', (2, None)),  # what goes before may hold `--quick` or a word by place
        ("python train.py -n $N 1\n", (1, None)),
        ('python train.py "$@"\n', (1, 10)),
        ("python train.py -n ${N:-30}\n", (1, 30)),
    ],
)
def test_variables_of_a_shell_are_followed_or_unknown(budget: Budget, line: str, wanted: tuple[int | None, int | None]) -> None:
    script(ARGPARSE)
    Path("run.sh").write_text(line)
    assert told(table(budget, "run.sh")) == wanted


def test_the_words_of_a_shell_script_are_handed_on(budget: Budget) -> None:
    script(ARGPARSE)
    Path("run.sh").write_text('python train.py -j $1 "${@}"\n'.replace("${@}", "$@"))
    assert told(table(budget, "bash run.sh 3")) == (3, 30)


@pytest.mark.parametrize(("given", "rows"), [("20", 20), ("20 --debug", 10), ("", 1000)])
def test_what_sys_argv_holds(budget: Budget, given: str, rows: int) -> None:
    script("n = int(sys.argv[1]) if len(sys.argv) > 1 else 1000\nif '--debug' in sys.argv:\n    n = 10\n", workers="2")
    assert told(table(budget, f"python train.py {given}")) == (2, rows)


def test_words_that_nobody_knows_choose_no_branch(budget: Budget) -> None:
    script("n = 1000\nif '--debug' in sys.argv:\n    n = 10\nworkers = 2 if 'fast' in sys.argv else 4\n", workers="int(sys.argv[1])")
    found = table(budget, "bash -c 'python train.py $WORDS'")
    assert told(found) == (None, 10), "the branch with the least is true of each"
    assert [row["known"] for row in found["rows"] if row["what"] == "`tensors` of TensorDataset"] == ["at least"]


@pytest.mark.parametrize(
    ("lines", "workers"),
    [
        ("export NW=6", 6),
        ("export OTHER NW\nNW=6", 6),
        ("set -a\nNW=6", 6),
        ("export OTHER=1 NW=6", 6),
        ("declare -x NW=6", 6),
        ("if true; then export NW=6; fi", None),
        ("export OTHER=6", 2),
    ],
)
def test_the_default_of_a_variable_counts_where_no_line_exports_it(lines: str, workers: int | None, budget: Budget) -> None:
    script("workers = int(os.getenv('NW', 2))\nn = 10\n")
    Path("run.sh").write_text(f"{lines}\npython train.py\n")
    assert told(table(budget, "run.sh")) == (workers, 10)


@pytest.mark.parametrize("command", ["env NW=6 N=20 python train.py", "bash -c 'NW=6 N=20 python train.py'", "run.sh"])
def test_variables_of_the_environment_that_the_command_sets(budget: Budget, command: str) -> None:
    Path("run.sh").write_text("export NW=6\nexport N=20\npython train.py\n")
    script("workers = int(os.getenv('NW', 2))\nn = int(os.environ['N']) if 'N' in os.environ else 8\n")
    assert told(table(budget, command)) == (6, 20)


@pytest.mark.parametrize("library", ["fire.Fire", "typer.run"])
def test_a_library_that_calls_a_function_fills_its_parameters(budget: Budget, library: str) -> None:
    Path("train.py").write_text(
        f"import {library.partition('.')[0]}\n{HEAD}def main(n=10, workers=2):\n    {TRAIN.format(n='n', workers='workers').replace('pass', '    pass')}"
        f"{library}(main)\n"
    )
    assert told(table(budget, "python train.py --n 40 --workers 3")) == (3, 40)
    assert told(table(budget, "bash -c 'python train.py $ARGS'")) == (None, None)


HYDRA: Final = f"""
import hydra
{HEAD}
@hydra.main(config_path="conf", config_name="config")
def main(cfg):
    {TRAIN.format(n="cfg.data.n", workers="cfg.workers").replace("pass", "    pass")}
if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("", (3, 50)),
        ("workers=7", (7, 50)),
        ("++workers=1 +data.extra=2", (1, 50)),
        ("data=big", (3, 900)),
        ("data=big data.n=4", (3, 4)),
        ("workers=2,4 -m", (None, None)),
        ("data=gone", (3, None)),
        ("data.n=1_000", (3, 1000)),
        ("data.n=0x10", (3, None)),
        ("data.n=010", (3, None)),
        ("data=whole", (3, 70)),
        ("data=elsewhere", (3, None)),
        ("+experiment=large", (6, 900)),
        ("+experiment=large data=small", (6, 50)),
    ],
)
def test_overrides_of_hydra(budget: Budget, given: str, wanted: tuple[int | None, int | None]) -> None:
    Path("train.py").write_text(HYDRA)
    for name, text in (
        ("config", "defaults:\n  - data: small\n  - _self_\nworkers: 3\n"),
        ("data/small", "n: 50\n"),
        ("data/big", "n: 900\n"),
        ("data/whole", "# a note\n# @package _global_\nworkers: 5\ndata:\n  n: 70\n"),
        ("data/elsewhere", "# @package other.part\nn: 900\n"),
        ("experiment/large", "# @package _global_\ndefaults:\n  - override /data: big\n  - override /hydra/launcher: basic\nworkers: 6\n"),
    ):
        path = Path("conf", f"{name}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert told(table(budget, f"python train.py {given}")) == wanted


PLACE: Final = """
parser = argparse.ArgumentParser()
parser.add_argument("mode", choices=["train", "test"])
parser.add_argument("--n", type=int, default=10)
"""
SUBS: Final = """
parser = argparse.ArgumentParser()
subs = parser.add_subparsers(dest="mode")
train_words, test_words = subs.add_parser("train"), subs.add_parser("test")
group = train_words.add_argument_group("data")
group.add_argument("--n", type=int, default=10)
"""
RUN: Final = """
def train(a):
    for x in DataLoader(TensorDataset(torch.rand(a.n, 1000)), batch_size=8, num_workers=3):
        pass
def test(a):
    for x in DataLoader(TensorDataset(torch.rand(70, 1000)), batch_size=8, num_workers=1):
        pass
"""


@pytest.mark.parametrize(
    "ending",
    [
        PLACE + "a = parser.parse_args()\nif a.mode == 'train':\n    train(a)\nelif a.mode == 'test':\n    test(a)\n",
        SUBS + "a = parser.parse_args()\nif a.mode == 'train':\n    train(a)\nelse:\n    test(a)\n",
        SUBS + "train_words.set_defaults(run=train)\ntest_words.set_defaults(run=test)\na = parser.parse_args()\na.run(a)\n",
    ],
    ids=["by place", "dest", "set_defaults"],
)
def test_a_word_chooses_what_is_run(budget: Budget, ending: str) -> None:
    Path("train.py").write_text(HEAD + RUN + ending)
    assert told(table(budget, "python train.py train --n 40")) == (3, 40)
    assert told(table(budget, "python train.py test")) == (1, 70)


def test_a_start_method_that_nobody_knows_is_said_to_be_unknown(budget: Budget) -> None:
    script("a = argparse.ArgumentParser()\na.add_argument('--how', default='spawn')\n", n="10", workers="2, multiprocessing_context=a.parse_args().how")
    assert table(budget, "python train.py --how forkserver")["start_method"] == "forkserver"
    assert table(budget, "python train.py")["start_method_known"]
    found = table(budget, "bash -c 'python train.py --how $HOW'", "--ram", "4GiB", "--shm", "1GiB")
    assert not found["start_method_known"]
    assert not found["verdict"]["complete"]
    assert "start method unknown" in budget("bash -c 'python train.py --how $HOW'").out


# -- folders -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("", "bash -c 'cd sub && python train.py'"),
        ("run.sh", "cd sub\npython train.py\n"),
        ("run.sh", "(cd other)\npushd sub\ncd deep\ncd ..\npython train.py\n"),
        ("scripts/run.sh", "cd sub\npython train.py\n"),
        ("scripts/run.sh", 'cd "$(dirname "$0")/../sub"\npython train.py\n'),
        ("run.sh", "cd $HOME/project/sub\npython train.py\n"),
        ("Makefile", "all:\n\tcd other\n\tcd sub && python train.py\n"),
        ("Dockerfile", "FROM x\nWORKDIR /app\nWORKDIR sub\nCMD python train.py\n"),
        ("nb/run.ipynb", ["%cd ../sub", "!python train.py"]),
        ("nb/run.ipynb", ["import os\nos.chdir('../sub')", "!python train.py"]),
    ],
)
def test_a_script_is_that_of_the_folder_that_the_command_is_in(budget: Budget, name: str, content: str | list[str]) -> None:
    for place, count in ((".", 10), ("sub", 20), ("scripts", 30), ("nb", 40)):
        script("", n=str(count), workers="2", path=f"{place}/train.py")
    if name:
        cells = [{"cell_type": "code", "source": source, "metadata": {}, "outputs": []} for source in content]
        Path(name).write_text(content if isinstance(content, str) else json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    found = table(budget, name or str(content))
    assert found["filename"] == "sub/train.py"
    assert told(found) == (2, 20)


def test_a_shell_script_starts_in_the_current_folder(budget: Budget) -> None:
    script("", n="10", workers="2")
    script("", n="20", workers="2", path="scripts/train.py")
    Path("scripts/run.sh").write_text("python train.py\n")
    assert told(table(budget, "bash scripts/run.sh")) == (2, 10)


def test_a_script_that_is_not_in_the_folder_is_not_another_one(budget: Budget) -> None:
    script("", n="10", workers="2")
    Path("sub").mkdir()
    done = budget("bash -c 'cd sub && python train.py'")
    assert (done.status, done.err) == (2, "oomlint: error: the command runs train.py, which is not there\n")


GROUP: Final = """
import click
import numpy as np
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self, n):
        self.x = np.zeros((n, 1000), np.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]

@click.group()
def cli():
    pass

@cli.command()
@click.option("--n", default=1000)
@click.option("--workers", default=2)
def train(n, workers):
    for batch in DataLoader(Rows(n), num_workers=workers):
        pass

@cli.command("look-at")
@click.option("--n", default=50)
def look(n):
    for batch in DataLoader(Rows(n), num_workers=5):
        pass

if __name__ == "__main__":
    cli()
"""


@pytest.mark.parametrize(
    ("words", "workers", "rows"), [("train --n 4000 --workers 3", 3, 4000), ("look-at --n 70", 5, 70), ("look-at", 5, 50), ("train", 2, 1000)]
)
def test_a_command_of_a_group_is_what_is_run(budget: Budget, words: str, workers: int, rows: int) -> None:
    Path("train.py").write_text(GROUP)
    found = table(budget, f"python train.py {words}")
    assert [one["workers"] for one in found["loaders"]] == [workers]
    assert [row["bytes"] for row in found["rows"] if row["what"] == "`x` of Rows"] == [rows * 4000]


FILE: Final = """
import argparse
import json
from torch.utils.data import DataLoader

def overwrite(options, path):
    for name, value in json.load(open(path)).items():
        setattr(options, name, value)

parser = argparse.ArgumentParser()
parser.add_argument("--readers", type=int, default=1)
parser.add_argument("--settings", default=None)
options = parser.parse_args()
if options.settings is not None:
    overwrite(options, options.settings)
loader = DataLoader([1], num_workers=options.readers)
for x in loader:
    pass
"""


@pytest.mark.parametrize(("line", "workers"), [("--readers 4", "4 workers"), ("--readers 4 --settings more.json", "workers unknown")])
def test_a_file_overwrites_options_only_where_it_is_given(budget: Budget, line: str, workers: str) -> None:
    Path("train.py").write_text(FILE, encoding="utf-8")
    assert budget(f"python train.py {line}").out.startswith(f"train.py: {workers}")


READ: Final = """
import argparse
import json
import sys
import yaml
from types import SimpleNamespace
from torch.utils.data import DataLoader, TensorDataset

class Entries(dict):
    __getattr__ = dict.get

class Handed(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self

class Deep(dict):
    def __init__(self, read=None):
        read = {} if read is None else read
        for key, value in read.items():
            if type(value) is dict:
                read[key] = Deep(value)
        super(Deep, self).__init__(read)

    def __getattr__(self, name):
        if name in self:
            return self[name]
        raise AttributeError(name)

class Held:
    def __init__(self, read):
        self.__dict__.update(read)

class Set:
    def __init__(self, **kwargs):
        for name, value in kwargs.items():
            setattr(self, name, value)

def sections(read):
    flat = {}
    for section in read:
        for name, value in read[section].items():
            flat[name] = value
    return flat

def values(read):
    flat = {}
    for section in read.values():
        for name, value in section.items():
            flat[name] = value
    return flat

parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("--readers", type=int, default=1)
args = parser.parse_args()
with open(args.file) as stream:
    read = yaml.safe_load(stream)
"""


@pytest.mark.parametrize(
    "merge",
    [
        "vars(args).update(read)",
        "known = vars(args)\nknown.update(read)",
        "known = args.__dict__\nfor name, value in read.items():\n    known[name] = value",
        "args.__dict__.update(read)",
        "for name, value in read.items(): setattr(args, name, value)",
        "for name in read: setattr(args, name, read[name])",
        "for name in read.keys():\n    args.__dict__[name] = read[name]",
        "for name, value in sorted(read.items()):\n    vars(args)[name] = value",
        "for number, (name, value) in enumerate(read.items()): setattr(args, name, value)",
        "parser.set_defaults(**read)\nargs = parser.parse_args()",
        "args = Entries(read)",
        "args = Handed(read)",
        "args = Handed(**read)",
        "args = Deep(read)",
        "args = Held(read)",
        "args = Set(**read)",
        "args = Entries(sections({'a': {'readers': 3}, 'b': read}))",
        "args = Entries(sections(read['parts']))",
        "args = Entries(values(read['parts']))",
    ],
)
def test_what_a_settings_file_says_is_read_in_each_way_to_merge_it(budget: Budget, merge: str) -> None:
    loop = "for x in DataLoader(TensorDataset(torch.zeros(8, 2)), num_workers=args.readers):\n    pass\n"
    Path("train.py").write_text(f"import torch{READ}{merge}\n{loop}", encoding="utf-8")
    Path("told.yaml").write_text("readers: 7\nparts:\n  first: {other: 1}\n  second: {readers: 7}\n", encoding="utf-8")
    (found,) = json.loads(budget("python train.py told.yaml", "--output-format", "json").out)
    told = [one["workers"] for one in found["loaders"]]
    assert told == ([None] if "'b'" in merge else [7])  # sections that are written down beside those of a file are not followed
    if "args =" not in merge or "parse_args" in merge:
        (found,) = json.loads(budget("python train.py gone.yaml", "--output-format", "json").out)
        assert [one["workers"] for one in found["loaders"]] == [None]  # and not the default, which a file that nobody has read may overwrite


@pytest.mark.parametrize(("words", "workers"), [("", 7), ("readers 3", 3), ("deep.readers 5 other 4", 7)])
def test_words_of_the_command_are_merged_by_yacs(budget: Budget, words: str, workers: int) -> None:
    Path("train.py").write_text(
        "import argparse\nimport torch\nfrom torch.utils.data import DataLoader, TensorDataset\nfrom yacs.config import CfgNode\n"
        "settings = CfgNode()\nsettings.readers = 1\nsettings.other = 1\nsettings.deep = CfgNode(new_allowed=True)\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--file')\nparser.add_argument('words', nargs=argparse.REMAINDER)\n"
        "args = parser.parse_args()\nsettings.merge_from_file(args.file)\nsettings.merge_from_list(args.words)\n"
        "for x in DataLoader(TensorDataset(torch.zeros(8, 2)), num_workers=settings.readers):\n    pass\n",
        encoding="utf-8",
    )
    Path("told.yaml").write_text("readers: 7\n", encoding="utf-8")
    (found,) = json.loads(budget(f"python train.py --file told.yaml {words}", "--output-format", "json").out)
    assert [one["workers"] for one in found["loaders"]] == [workers]


@pytest.mark.parametrize(
    ("line", "workers"),
    [
        ("", 5),
        ("++args.model=small", 5),
        ("+args=more", 6),
        ("+args=more.yaml ++args.n=9", 9),
        ("--config-name other", 7),
        ("-cn other +args=more", 6),
        ("--config-name=before args=more", 6),
        ("--config-name=behind", 8),
    ],
)
def test_of_the_files_of_hydra_the_last_wins(budget: Budget, line: str, workers: int) -> None:
    Path("engine.py").write_text(
        "from torch.utils.data import DataLoader\n\ndef run(n):\n    for x in DataLoader([1], num_workers=n):\n        pass\n", encoding="utf-8"
    )
    Path("train.py").write_text(
        'import hydra\n\n@hydra.main(config_path="config", config_name="first")\ndef main(cfg):\n    from engine import run as start\n'
        '    start(cfg.args.n)\n\nif __name__ == "__main__":\n    main()\n',
        encoding="utf-8",
    )
    Path("config/args").mkdir(parents=True)
    for name, content in {
        "first": "defaults:\n  - _self_\nargs:\n  n: 5\n",
        "other": "args:\n  n: 7\n",
        "before": "defaults:\n  - args: less\n  - _self_\nargs:\n  m: 7\n",
        "behind": "defaults:\n  - _self_\n  - args: less\nargs:\n  n: 7\n",
        "args/more": "n: 6\n",
        "args/less": "n: 8\n",
    }.items():
        Path(f"config/{name}.yaml").write_text(content, encoding="utf-8")
    assert f", {workers} workers, " in budget(f"python train.py {line}").out.replace(": ", ", ", 1)


def test_two_parsers_of_a_file_may_have_the_same_option(budget: Budget) -> None:
    Path("options.py").write_text(
        "import argparse\n\ndef of_training():\n    parser = argparse.ArgumentParser()\n    parser.add_argument('--readers', type=int, default=1)\n"
        "    return parser.parse_args()\n\ndef of_evaluation(parser):\n    parser.add_argument('--readers', type=int, default=0)\n",
        encoding="utf-8",
    )
    Path("train.py").write_text(
        "from torch.utils.data import DataLoader\nimport options\n\nargs = options.of_training()\n"
        "for x in DataLoader([1], num_workers=args.readers):\n    pass\n",
        encoding="utf-8",
    )
    assert [budget(f"python train.py {words}").out.partition(",")[0] for words in ("", "--readers 4", "--read=4")] == [
        "train.py: 1 worker",
        "train.py: 4 workers",
        "train.py: 4 workers",
    ]


@pytest.mark.parametrize(
    ("merge", "rows", "workers"),
    [
        ("for k, v in read.items():\n        setattr(args, k, v)", 20000, 3),
        ("for k, v in read.items():\n        if hasattr(args, k):\n            setattr(args, k, v)", 20000, 3),
        ("for k in read:\n        if k in vars(args): setattr(args, k, read[k])", 20000, 3),
        ("for k, v in read.items():\n        if not hasattr(args, k):\n            raise KeyError(k)\n        setattr(args, k, v)", 20000, 3),
        ("for k, v in read.items():\n        if k not in args.__dict__:\n            setattr(args, k, v)", 1000, 1),
        ("vars(args).update(read)", 20000, 3),
        ("parser.set_defaults(**read)\n    args = parser.parse_args()", 20000, 3),
        ("args = argparse.Namespace(**read)", 20000, 3),
    ],
)
def test_what_a_loop_over_settings_sets_is_what_the_option_is_from_then_on(budget: Budget, merge: str, rows: int, workers: int) -> None:
    Path("run.yaml").write_text("n: 20000\nworkers: 3\nwidth: 50\n")
    code = (
        "import argparse\nimport yaml\nfrom torch import nn, optim\n" + HEAD + "def main():\n    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--n', type=int, default=1000)\n    parser.add_argument('--workers', type=int, default=1)\n"
        "    parser.add_argument('--width', type=int, default=10)\n"
        "    args = parser.parse_args()\n    with open('run.yaml') as file:\n        read = yaml.safe_load(file)\n    {}\n"
        "    loader = DataLoader(TensorDataset(torch.rand(args.n, 1000)), num_workers=args.workers)\n    model = nn.Linear(args.width, 1)\n"
        "    optimizer = optim.SGD(model.parameters())\n    for x in loader:\n        model(x).backward()\n        optimizer.step()\nmain()\n"
    )
    Path("train.py").write_text(code.format(merge))
    found = table(budget, "train.py")
    assert told(found) == (workers, rows)
    numbers = [row["bytes"] for row in found["rows"] if row["what"].startswith("parameters of")]
    assert numbers == [(51 if rows > 1000 else 11) * 4]


@pytest.mark.parametrize(
    ("job", "wanted"),
    [
        ("#SBATCH --cpus-per-task=16\npython train.py -j ${SLURM_CPUS_PER_TASK:-4}", 16),
        ("#SBATCH --cpus-per-task=16\nJ=${SLURM_CPUS_PER_TASK:-4}\npython train.py -j $J", 16),
        ("#SBATCH -n 6\npython train.py -j ${SLURM_NTASKS:-1}", 6),
        ("#SBATCH -n 6\npython train.py -j ${SLURM_CPUS_PER_TASK:-4}", 4),
        ("#SBATCH -n 6\npython train.py -j ${SLURM_CPUS_ON_NODE:-4}", None),
        ("python train.py -j ${SLURM_CPUS_PER_TASK:-4}", 4),
        ("export N=8\npython train.py -j ${N:-2}", 8),
        ("N=${N:-8}\npython train.py -j $N", 8),
        ("if [ $1 ]; then N=8; fi\npython train.py -j ${N:-2}", None),
    ],
)
def test_the_default_of_a_variable_holds_where_nothing_sets_it(budget: Budget, job: str, wanted: int | None) -> None:
    script(ARGPARSE)
    Path("run.sh").write_text(f"#!/bin/bash\n{job}\n")
    assert told(table(budget, "run.sh"))[0] == wanted


def test_the_default_of_a_variable_is_not_the_number_of_processes_either(budget: Budget) -> None:
    script(ARGPARSE)
    Path("run.sh").write_text("export N=8\ntorchrun --nproc_per_node ${N:-2} train.py\n")
    assert table(budget, "run.sh")["ranks"] == 8


SPAWNED: Final = "if __name__ == '__main__':\n    mp.spawn(work, args=(4,), nprocs={})\n"


@pytest.mark.parametrize(
    ("started", "ranks"),
    [
        ("L.Trainer(devices=4).fit(None, loader)", 4),
        ("L.Trainer(devices=[0, 1]).fit(None, loader)", 2),
        ("L.Trainer(gpus='0,1').fit(None, loader)", 2),
        ("L.Fabric(devices=4).launch()\nfor x in loader: pass", 4),
        ("L.Trainer(devices=-1).fit(None, loader)", None),
        ("L.Trainer(devices='auto').fit(None, loader)", None),
        ("L.Trainer(devices=torch.cuda.device_count()).fit(None, loader)", None),
        ("L.Trainer(devices=[1]).fit(None, loader)", 1),
        ("L.Trainer(accelerator='gpu').fit(None, loader)", 1),
        (SPAWNED.format(4), 4),
        (SPAWNED.format(1), 1),
        (SPAWNED.format("torch.cuda.device_count()"), None),
    ],
)
def test_processes_that_the_code_starts_without_a_word_of_how_they_work_together(budget: Budget, started: str, ranks: int | None) -> None:
    made = "loader = DataLoader(TensorDataset(torch.rand(10, 1000)), num_workers=1)\n"
    work = "def work(rank, n):\n    for x in DataLoader(TensorDataset(torch.rand(10, 1000)), num_workers=1): pass\n" if "work" in started else made
    Path("train.py").write_text(f"import lightning as L\nimport torch.multiprocessing as mp\n{HEAD}{work}{started}\n")
    told = budget("train.py").out.partition("\n")[0]
    assert f"{ranks or 1} rank" in told
    assert ("of how many, nobody says" in told) is (ranks is None)


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ("", 10 * 20 + 20),
        ("model.hidden=400", 400 * 20 + 20),
        ("model=large model.width=3", 50 * 3 + 3),
        ("model=huge", None),
        ("model=huge model.width=3", None),
    ],
)
def test_an_override_leaves_the_rest_of_its_group_as_it_is(budget: Budget, words: str, numbers: int | None) -> None:
    for path, text in {"config": "defaults:\n  - model: base\n", "model/base": "hidden: 10\nwidth: 20\n", "model/large": "hidden: 50\nwidth: 60\n"}.items():
        Path(f"conf/{path}.yaml").parent.mkdir(parents=True, exist_ok=True)
        Path(f"conf/{path}.yaml").write_text(text)
    code = "import hydra\nfrom torch import nn, optim\n@hydra.main(config_path='conf', config_name='config')\ndef main(cfg):\n"
    code += "    model = nn.Linear(cfg.model.hidden, cfg.model.width)\n    optimizer = optim.SGD(model.parameters())\n"
    Path("train.py").write_text(f"{HEAD}{code}    {TRAIN.format(n=10, workers=1).replace('pass', '    optimizer.step()')}main()\n")
    found = table(budget, f"python train.py {words}".strip())
    told = [row["bytes"] for row in found["rows"] if row["what"].startswith("parameters of")]
    assert told == [None if numbers is None else numbers * 4]


POD: Final = 'kind: Pod\nspec:\n  containers:\n  - name: a\n    command: ["python", "train.py"]\n    args: ["-j", "7"]\n'


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("job.sh", "#!/bin/bash\n\npython train.py -j 5\n", "job.sh:3"),
        ("Makefile", "run:\n\tpython train.py -j 5\n", "Makefile:2"),
        ("pod.yaml", POD, "pod.yaml:6"),
        ("python train.py -j 5", "", "the command"),
        ("train.py", "", "train.py:5"),
    ],
)
def test_the_row_of_the_workers_says_where_their_number_comes_from(budget: Budget, name: str, text: str, place: str) -> None:
    script(ARGPARSE)
    if text:
        Path(name).write_text(text)
    (row,) = (line for line in budget(name).out.splitlines() if "forked processes" in line)
    assert row.rstrip().endswith(place)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("n: [1,\n - {", "told.yaml:2: not valid YAML"),
        (None, "told.yaml: there is no such file"),
        ("n: 20\nworkers: 3\n", ""),
    ],
)
def test_a_settings_file_that_gives_nothing_is_named_with_what_is_unknown(budget: Budget, content: str | None, said: str) -> None:
    if content is not None:
        Path("told.yaml").write_text(content)
    code = "import yaml\nparser = argparse.ArgumentParser()\nparser.add_argument('--config')\nargs = parser.parse_args()\n"
    script(code + "with open(args.config) as file:\n    read = yaml.safe_load(file)\n", n="read['n']", workers="read['workers']")
    done = budget("python train.py --config told.yaml")
    assert (said in done.err and "unknown: " in done.err and "num_workers" in done.err) if said else not done.err
    assert len(done.err.splitlines()) == bool(said)


def test_a_settings_file_of_another_machine_is_named_as_the_code_names_it(budget: Budget) -> None:
    script("import yaml\nread = yaml.safe_load(open('/home/somebody/told.yaml'))\n", n="read['n']", workers="read['workers']")
    assert budget("python train.py").err.startswith("oomlint: warning: /home/somebody/told.yaml: there is no such file; ")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python train.py --num_workers 5", "train.py has no option `--num_workers`, as far as its files show: it is left out; did you mean `--num-workers`?"),
        ("python train.py --zz=1", "train.py has no option `--zz`, as far as its files show: it is left out"),
        ("python train.py --num-work 5 -n 3", ""),
    ],
)
def test_an_option_that_the_script_does_not_have_is_named(budget: Budget, command: str, said: str) -> None:
    script(ARGPARSE)
    assert budget(command).err.removeprefix("oomlint: warning: ").strip() == said


def test_a_settings_file_that_several_programs_miss_is_named_once(budget: Budget) -> None:
    for name in ("first.py", "second.py"):
        script("import yaml\nwith open('told.yaml') as file:\n    read = yaml.safe_load(file)\n", n="read['n']", workers="read['workers']", path=name)
    assert budget(".").err.count("told.yaml: there is no such file") == 1


def test_defaults_that_are_set_after_the_words_were_parsed_change_the_next_ones_only(budget: Budget) -> None:
    Path("base.yaml").write_text("n: 20\nworkers: 3\n")
    code = "import yaml\nparser = argparse.ArgumentParser()\nparser.add_argument('--config', default='base.yaml')\n"
    code += "parser.add_argument('--n', type=int, default=1)\nparser.add_argument('--workers', type=int, default=1)\nfirst = parser.parse_args()\n"
    code += "with open(first.config) as file:\n    read = yaml.safe_load(file)\nparser.set_defaults(**read)\nlast = parser.parse_args()\n"
    script(code, n="last.n", workers="last.workers")
    assert told(table(budget, "train.py")) == (3, 20)
    script(code, n="first.n", workers="first.workers")
    assert told(table(budget, "train.py")) == (1, 1)
