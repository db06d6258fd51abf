"""``oomlint budget``: what the environment of a command says of a variable, and what a row says of the variables that it depends on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from commands import runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands import Done

    Budget = Callable[..., Done]

HEAD: Final = "import argparse, os, torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
LOOP: Final = "\nfor x in DataLoader(TensorDataset(torch.rand(n, 1000)), batch_size=8):\n    pass\n"
BY_VARIABLE: Final = f'{HEAD}n = int(os.environ.get("N", "100")){LOOP}'
BY_OPTION: Final = f'{HEAD}parser = argparse.ArgumentParser()\nparser.add_argument("--n", type=int, default=1)\nn = parser.parse_args().n{LOOP}'
RUN: Final = "python train.py\n"
OPTION: Final = "python option.py --n $N\n"
KNOWN, UNSET, UNKNOWN = "exact", "default", "unknown"
BY_HYDRA: Final = f"""import hydra
{HEAD}@hydra.main(config_path=".", config_name="config")
def main(cfg):
    n = cfg.n{LOOP.replace(chr(10), chr(10) + "    ")}
main()
"""


@pytest.fixture
def budget(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(BY_VARIABLE)
    Path("option.py").write_text(BY_OPTION)
    return runs(capsys, "budget")


def rows(budget: Budget, asked: str) -> list[dict[str, Any]]:
    found = json.loads(budget(asked, "--output-format", "json").out)
    return [row for entry in found for row in entry["rows"] if row["what"] == "`tensors` of TensorDataset"]


def told(budget: Budget, asked: str) -> list[tuple[int | None, str]]:
    """The rows of each table, and how well they are known."""
    return [(None if row["bytes"] is None else row["bytes"] // 4000, row["known"]) for row in rows(budget, asked)]


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        (RUN, [(100, UNSET)]),
        ("N=500\n" + RUN, [(100, UNSET)]),
        (". ./vars.sh\n" + RUN, [(500, KNOWN)]),
        ("export N=1\nsource vars.sh\n" + RUN, [(500, KNOWN)]),
        ("set -a\n. ./plain.sh\n" + RUN, [(600, KNOWN)]),
        (". ./plain.sh\n" + RUN, [(100, UNSET)]),
        ('source "$(dirname "$0")/vars.sh"\n' + RUN, [(500, KNOWN)]),
        (". ./asks.sh\n" + RUN, [(None, UNKNOWN)]),
        (". ./gone.sh\n" + RUN, [(None, UNKNOWN)]),
        ("source ~/.bashrc\nsource venv/bin/activate\n" + RUN, [(100, UNSET)]),
        ("N=7\n. ./plain.sh\n" + OPTION, [(600, KNOWN)]),
        ("export $(cat file.env | xargs)\n" + RUN, [(None, UNKNOWN)]),
        ("read N < file\nexport N\n" + RUN, [(None, UNKNOWN)]),
        ("eval 'export N=5'\n" + RUN, [(None, UNKNOWN)]),
        ("export N=1\n" + RUN + "export N=2\n" + RUN, [(1, KNOWN), (2, KNOWN)]),
        ("if [ -n '$X' ]; then\n  export N=5\n  " + RUN + "fi\n" + RUN, [(5, KNOWN), (None, UNKNOWN)]),
        ("case $X in\n  a) export N=5;;\n  *) export N=6;;\nesac\n" + RUN, [(None, UNKNOWN)]),
        ("true && export N=5 && " + RUN + RUN, [(5, KNOWN), (None, UNKNOWN)]),
        ("(export N=5; python train.py)\n" + RUN, [(5, KNOWN), (100, UNSET)]),
        ("export N=5 | cat\n" + RUN, [(100, UNSET)]),
        ("sets() {\n  export N=5\n}\nsets\n" + RUN, [(None, UNKNOWN)]),
        ('set -euo pipefail\npython option.py --n 5 "$@"\n', [(5, KNOWN)]),
        ("X=`export N=9; echo`\n" + RUN, [(100, UNSET)]),
        ("echo 'export N=9' >> vars.sh\nsource vars.sh\n" + RUN, [(None, UNKNOWN)]),
        ("env $(cat file.env) python train.py\n", [(None, UNKNOWN)]),
        ("#SBATCH --export=NONE\nexport N=5\nsrun python train.py\npython train.py\n", [(100, UNSET), (5, KNOWN)]),
        ("N=5\nrun() {\n  python option.py --n $N\n}\nN=7\nrun\n", [(None, UNKNOWN)]),
        ("N=5\nwhile [ $N -lt 20 ]; do\n  N=$((N*2))\ndone\n" + OPTION, [(None, UNKNOWN)]),
        ("B=5\nexport N=$((B * 3))\n" + RUN, [(15, KNOWN)]),
        ("export N=5\nunset N\n" + RUN, [(100, KNOWN)]),
        ("env N=5 " + RUN, [(5, KNOWN)]),
        ("export N=5\nenv -u N " + RUN, [(100, KNOWN)]),
        ("env -i " + RUN, [(100, KNOWN)]),
        (": ${N:=500}\nexport N\n" + RUN, [(500, UNSET)]),
        ("python option.py --n ${N:-500}\n", [(500, UNSET)]),
        ("N=\npython option.py --n ${N:-500}\n", [(500, KNOWN)]),
        ("export N=500\nbash inner.sh\n", [(500, KNOWN)]),
        ("N=500\n. ./inner.sh\n", [(500, KNOWN)]),
        ("N=500\nbash inner.sh\n", [(None, UNKNOWN)]),
        ("export N=3\ndocker run -e N=500 image python train.py\n", [(500, KNOWN)]),
        ("export N=3\ndocker run image python train.py\n", [(100, UNSET)]),
        ("export N=3\ndocker run -e N image python train.py\n", [(3, KNOWN)]),
        ("export N=3\ndocker run image bash -c 'export N=4; python train.py'\n", [(4, KNOWN)]),
        ("docker run --env-file file.env image python train.py\n", [(700, KNOWN)]),
        ("docker run --env-file gone.env image python train.py\n", [(None, UNKNOWN)]),
        ("docker run $OPTIONS image python train.py\n", [(None, UNKNOWN)]),
        ("apptainer exec --env N=5 image.sif python train.py\n", [(5, KNOWN)]),
        ("#SBATCH --export=ALL,N=5\n" + RUN, [(5, KNOWN)]),
        ("#SBATCH -c 6\nexport N=$SLURM_CPUS_PER_TASK\n" + RUN, [(6, KNOWN)]),
        ("export N=3\nsrun --export=M=5 python train.py\n", [(100, UNSET)]),
        ("export N=3\nsrun --export=N python train.py\n", [(3, KNOWN)]),
        ("mpirun -n 1 -x N=5 python train.py\n", [(5, KNOWN)]),
        ("export N=5\nsudo python train.py\nsudo -E python train.py\n", [(100, UNSET), (5, KNOWN)]),
    ],
)
def test_what_a_shell_script_sets(budget: Budget, script: str, wanted: list[tuple[int | None, str]]) -> None:
    Path("vars.sh").write_text("# numbers\nexport N=500\n")
    Path("plain.sh").write_text("N=600\n")
    Path("asks.sh").write_text('if [ -z "$N" ]; then export N=5; fi\n')
    Path("inner.sh").write_text(OPTION)
    Path("file.env").write_text("N=700\n")
    Path("run.sh").write_text(f"#!/bin/bash\n{script}")
    assert told(budget, "run.sh") == wanted


@pytest.mark.parametrize(
    ("lines", "asked", "wanted"),
    [
        ("", "make", (100, UNSET)),
        ("N := 500\n", "make", (100, UNSET)),
        ("export N := 500\n", "make", (500, KNOWN)),
        ("M = 50\nN = $(M)0\nexport\n", "make", (500, KNOWN)),
        ("export N ?= 500\n", "make", (500, UNSET)),
        ("include vars.mk\nexport\n", "make", (600, KNOWN)),
        ("include gone.mk\n", "make", (None, UNKNOWN)),
        ("ifdef X\nexport N = 500\nendif\n", "make", (None, UNKNOWN)),
        ("all: export N = 500\n", "make all", (500, KNOWN)),
        ("other: export N = 500\n", "make", (100, UNSET)),
        ("whole: export N = 500\nwhole: all\n", "make whole", (None, UNKNOWN)),
        ("M = 1\nexport N := $(M)\nM = 5\n", "make", (1, KNOWN)),
        (".ONESHELL:\n", "make", (100, UNSET)),
        ("", "make N=500", (500, KNOWN)),
        ("N = 3\n", "N=500 make", (3, KNOWN)),
        ("all: export N = 500\n", "make all N=3", (3, KNOWN)),
        ("all: override export N = 500\n", "make all N=3", (500, KNOWN)),
        ("override N = 500\nexport N\nN = 4\n", "make N=3", (500, KNOWN)),
        ("export N = 500\n", "N=3 make -e all", (3, KNOWN)),
        ("all: export N = 500\n", "N=3 make -e all", (3, KNOWN)),
        ("override export N = 500\n", "N=3 make -e all", (500, KNOWN)),
        ("export N = 500\n", "make -ke", (500, UNSET)),
    ],
)
def test_what_a_makefile_exports(budget: Budget, lines: str, asked: str, wanted: tuple[int | None, str]) -> None:
    Path("vars.mk").write_text("N = 600\n")
    Path("Makefile").write_text(f"{lines}all:\n\tpython train.py\n")
    assert told(budget, asked) == [wanted]


@pytest.mark.parametrize(("asked", "wanted"), [("make", (7, KNOWN)), ("make N=2", (2, KNOWN)), ("N=2 make -e all", (2, KNOWN)), ("N=2 make", (7, KNOWN))])
def test_what_a_makefile_sets_for_a_target_is_in_its_recipe(budget: Budget, asked: str, wanted: tuple[int, str]) -> None:
    Path("Makefile").write_text("N = 5\nall: N = 7\nall:\n\tpython option.py --n $(N)\n")
    assert told(budget, asked) == [wanted]


SERVICE: Final = "services:\n  a:\n    image: x\n    command: python train.py\n"


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("", (100, UNSET)),
        ("    environment:\n      N: 500\n", (500, KNOWN)),
        ("    environment:\n      - N=500\n", (500, KNOWN)),
        ("    environment:\n      - N\n", (100, UNSET)),
        ("    environment:\n      N: ${N:-500}\n", (500, UNSET)),
        ("    environment:\n      N: ${IN_FILE}\n", (800, UNSET)),
        ("    environment:\n      N: ${OTHER}\n", (None, UNKNOWN)),
        ("    env_file: a.env\n", (5, KNOWN)),
        ("    env_file: [a.env, b.env]\n", (6, KNOWN)),
        ("    env_file: a.env\n    environment: {N: 7}\n", (7, KNOWN)),
        ("    env_file:\n      - {path: gone.env, required: false}\n", (100, UNSET)),
        ("    env_file: gone.env\n", (None, UNKNOWN)),
        ("    extends: {file: other.yml, service: a}\n", (None, UNKNOWN)),
        ("    build: .\n", (900, KNOWN)),
        ("    build: {context: ., dockerfile: by_argument, args: {SIZE: 30}}\n", (30, KNOWN)),
        ("    build: {context: ., dockerfile: by_argument}\n", (20, UNSET)),
    ],
)
def test_what_a_service_of_compose_is_given(budget: Budget, lines: str, wanted: tuple[int | None, str]) -> None:
    Path("a.env").write_text("# numbers\nN='5'\n")
    Path("b.env").write_text("N=6 # more\n")
    Path(".env").write_text("IN_FILE=800\n")
    Path("Dockerfile").write_text("FROM x AS base\nENV N 900\nFROM base\nENV M=1\n")
    Path("by_argument").write_text("FROM x\nARG SIZE=20\nENV N=$SIZE\n")
    Path("compose.yml").write_text(SERVICE + lines)
    assert told(budget, "compose.yml") == [wanted]


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("    entrypoint: python\n    command: option.py --n 7\n", [7]),
        ('    entrypoint: ["python", "option.py"]\n    command: --n 7\n', [7]),
        ('    entrypoint: python option.py\n    command: ["--n", "7"]\n', [7]),
        ("    entrypoint: python\n    command: option.py\n", [1]),
        ("    entrypoint: torchrun --nproc_per_node 2\n    command: option.py --n 7\n", [14]),
        ("    entrypoint: sh -c\n    command: python option.py --n 7 && python option.py --n 8\n", [7, 8]),
        ('    command: bash -c "python option.py --n 7"\n', [7]),
        ('    command: ["bash", "-c", "python option.py --n 7"]\n', [7]),
    ],
)
def test_the_words_of_a_command_follow_those_of_an_entrypoint(budget: Budget, lines: str, wanted: list[int]) -> None:
    Path("compose.yml").write_text(f"services:\n  a:\n    image: x\n{lines}")
    assert [many for many, _ in told(budget, "compose.yml")] == wanted


def test_services_with_different_values_have_a_table_each(budget: Budget) -> None:
    other = SERVICE.partition("\n")[2].replace("  a:", "  b:")
    Path("compose.yml").write_text(f"{SERVICE}    environment: {{N: 5}}\n{other}    environment: {{N: 6}}\n")
    found = rows(budget, "compose.yml")
    assert [(row["bytes"] // 4000, row["environment"][0]["place"]["row"]) for row in found] == [(5, 5), (6, 9)]
    assert told(budget, "docker compose up b") == [(6, KNOWN)]
    assert told(budget, "docker compose run -e N=7 b") == [(7, KNOWN)]


def test_what_one_command_asks_the_users_shell_for_is_exact_for_another(budget: Budget) -> None:
    other = SERVICE.partition("\n")[2].replace("  a:", "  b:").replace("python train.py", '["sh", "-c", "M=$$N python train.py"]')
    Path("compose.yml").write_text(f"{SERVICE}    environment: {{N: 5}}\n{other}    environment: {{N: 6}}\n")
    assert told(budget, "compose.yml") == [(5, KNOWN), (6, KNOWN)]
    Path("run.sh").write_text("docker run -e N=3 image python option.py --n ${N:-500}\ndocker run -e N=3 image python train.py\n")
    assert told(budget, "run.sh") == [(500, UNSET), (3, KNOWN)]
    Path("run.sh").write_text("N=${N:-500}\ndocker run -e N=3 image python train.py\ndocker run -e N=3 image python option.py --n $N\n")
    assert told(budget, "run.sh") == [(3, KNOWN), (500, UNSET)]


POD: Final = "kind: Pod\nspec:\n  containers:\n  - name: t\n    command: [python, train.py]\n"


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ('    env:\n    - {name: N, value: "500"}\n', (500, KNOWN)),
        ('    env:\n    - {name: M, value: "50"}\n    - {name: N, value: "$(M)0"}\n', (500, KNOWN)),
        ("    env:\n    - {name: N, valueFrom: {secretKeyRef: {name: s, key: k}}}\n", (None, UNKNOWN)),
        ("    envFrom:\n    - configMapRef: {name: elsewhere}\n", (None, UNKNOWN)),
        ('    envFrom:\n    - configMapRef: {name: c}\n---\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  N: "500"\n', (500, KNOWN)),
    ],
)
def test_what_a_pod_is_given(budget: Budget, lines: str, wanted: tuple[int | None, str]) -> None:
    Path("pod.yaml").write_text(POD + lines)
    assert told(budget, "pod.yaml") == [wanted]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("FROM x\nENV N=500\nCMD python train.py\n", (500, KNOWN)),
        ('FROM x\nCMD ["python", "train.py"]\nENV M=1 \\\n  N=500\n', (500, KNOWN)),
        ("FROM x AS first\nENV N=500\nFROM y\nCMD python train.py\n", (100, UNSET)),
        ("FROM x\nARG N=500\nCMD python train.py\n", (100, UNSET)),
        ("FROM x\nARG N=500\nRUN python train.py\n", (500, UNSET)),
        ("FROM x\nARG N=3\nENV N=${N:-4}\nCMD python train.py\n", (3, UNSET)),
        ("FROM x\nARG N\nENV N=${N:-4}\nCMD python train.py\n", (4, UNSET)),
        ("ARG N=3\nFROM x\nARG N\nENV N=${N:-4}\nCMD python train.py\n", (3, UNSET)),
        ("ARG N=3\nFROM x\nENV N=${N:-4}\nCMD python train.py\n", (4, UNSET)),
        ("FROM x\nENV M=2\nARG M=3\nENV N=$M\nCMD python train.py\n", (2, KNOWN)),
    ],
)
def test_what_an_image_sets(budget: Budget, content: str, wanted: tuple[int, str]) -> None:
    Path("Dockerfile").write_text(content)
    assert told(budget, "Dockerfile") == [wanted]


@pytest.mark.parametrize(
    ("code", "plain", "given"),
    [
        ('n = int(os.getenv("N", default=100))', (100, UNSET), (500, KNOWN)),
        ('n = int(os.environ.get("N") or 100)', (100, UNSET), (500, KNOWN)),
        ('def number(name, default):\n    return int(os.environ.get(name, default))\nn = number("N", 100)', (100, UNSET), (500, KNOWN)),
        ('n = 100\nif "N" in os.environ:\n    n = 10', (100, UNSET), (10, KNOWN)),
        ('n = 10 if os.environ.get("N") == "500" else 100', (100, UNSET), (10, KNOWN)),
        ('os.environ["N"] = "7"\nn = int(os.environ.get("N", 100))', (None, UNKNOWN), (None, UNKNOWN)),
        ('os.environ.update(read())\nn = int(os.environ.get("N", 100))', (None, UNKNOWN), (None, UNKNOWN)),
        ('from dotenv import load_dotenv\nload_dotenv()\nn = int(os.environ.get("N", 100))', (None, UNKNOWN), (None, UNKNOWN)),
        ("from pydantic_settings import BaseSettings\nclass Numbers(BaseSettings):\n    n: int = 100\nn = Numbers().n", (100, UNSET), (500, KNOWN)),
        (
            'import configargparse\np = configargparse.ArgParser()\np.add_argument("--n", type=int, default=100, env_var="N")\nn = p.parse_args().n',
            (100, UNSET),
            (500, KNOWN),
        ),
    ],
)
def test_how_a_program_asks_for_a_variable(budget: Budget, code: str, plain: tuple[int | None, str], given: tuple[int | None, str]) -> None:
    Path("train.py").write_text(HEAD + code + LOOP)
    assert told(budget, "python train.py") == [plain]
    assert told(budget, "N=500 python train.py") == [given]


@pytest.mark.parametrize(("name", "known"), [("WORLD_SIZE", UNKNOWN), ("N", UNSET)])
def test_what_a_launcher_sets_is_not_its_default(budget: Budget, name: str, known: str) -> None:
    Path("train.py").write_text(f'{HEAD}n = 100 // int(os.environ.get("{name}", 1)){LOOP}')
    assert [row["known"] for row in rows(budget, "torchrun --nproc_per_node 2 train.py")] == [known]


def test_a_layer_of_a_model_may_be_as_wide_as_a_variable_says(budget: Budget) -> None:
    Path("train.py").write_text(
        f'{HEAD}model = torch.nn.Linear(int(os.getenv("WIDTH", 16)), 4)\nif os.environ.get("DEEP"):\n    model = torch.nn.Linear(99, 99)\n'
        f"optimizer = torch.optim.SGD(model.parameters(), lr=1)\nn = 10{LOOP}    optimizer.step()\n"
    )
    for asked, wanted in (("train.py", (272, UNSET)), ("WIDTH=32 DEEP= python train.py", (528, KNOWN)), ("DEEP=1 python train.py", (39600, KNOWN))):
        found = json.loads(budget(asked, "--output-format", "json").out)[0]["rows"]
        assert [(row["bytes"], row["known"]) for row in found if row["what"] == "parameters of `model`"] == [wanted]


def test_a_row_names_the_variables_that_it_depends_on(budget: Budget) -> None:
    Path("vars.sh").write_text("export N=500\n")
    Path("run.sh").write_text("source vars.sh\npython train.py\n")
    found = " ".join(budget("run.sh").out.split())
    assert "exact train.py:4; N=500 (vars.sh:1)" in found
    assert "The table holds" not in found
    found = " ".join(budget("train.py").out.split())
    assert "default train.py:4; unless N is set" in found
    assert "The table holds unless the environment sets `N`: nothing that was read does, so defaults are taken." in found


@pytest.mark.parametrize("asked", ["NONE,N=33", "ALL,N=33"])
def test_what_a_job_exports_has_its_place_in_the_job(budget: Budget, asked: str) -> None:
    Path("run.sh").write_text(f"#!/bin/bash\n#SBATCH --export={asked}\nsrun python train.py\n")
    assert [(row["bytes"], row["environment"][0]["place"]["row"]) for row in rows(budget, "run.sh")] == [(33 * 4000, 2)]


def test_what_depends_on_no_variable_says_nothing_of_it(budget: Budget) -> None:
    Path("train.py").write_text(f'{HEAD}port = os.environ.get("PORT", "29500")\nn = 10{LOOP}')
    found = json.loads(budget("train.py", "--output-format", "json").out)[0]
    assert found["unless_set"] == []
    assert not any(row["environment"] for row in found["rows"])


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("run.sh", "warning: run.sh:1: gone.sh: there is no such file; what variables it sets is unknown"),
        ("compose.yml", "warning: compose.yml:5: gone.env: there is no such file; what variables it sets is unknown"),
        ("docker run --env-file broken.env image python train.py", "warning: broken.env:2: 'two words=3' is no NAME=VALUE; what variables it sets is unknown"),
        ("shm.yml", "error: shm.yml:4: 'banana' is no size of memory, such as 2g"),
        ("pod.yaml", "error: pod.yaml:5: 'lots' is no size of memory, such as 2Gi"),
        ("job.sh", "error: job.sh:2: 'lots' is no size of memory, such as 2g"),
        ("docker run --shm-size=big image python train.py", "error: the command: 'big' is no size of memory, such as 2g"),
        ("python option.py --n four", "warning: option.py:4: argparse refuses `--n four`: the option takes a whole number"),
        (
            "python hydra_run.py +trainer.max_epochs=3",
            "warning: config.yaml: there is a `trainer.max_epochs`, and Hydra refuses to add it with `+`",
        ),
        (
            "python hydra_run.py trainer.max_epoch=3",
            "warning: config.yaml: there is no `trainer.max_epoch`, which the command sets, and Hydra refuses that; did you mean `trainer.max_epochs`?",
        ),
    ],
)
def test_what_is_wrong_around_a_command_is_one_clear_line(budget: Budget, asked: str, line: str) -> None:
    Path("run.sh").write_text("source gone.sh\npython train.py\n")
    Path("broken.env").write_text("N=5\ntwo words=3\n")
    Path("compose.yml").write_text(f"{SERVICE}    env_file: gone.env\n")
    Path("shm.yml").write_text(SERVICE.replace("    command", "    shm_size: banana\n    command"))
    Path("pod.yaml").write_text(POD.replace("    command", "    resources: {limits: {memory: lots}}\n    command"))
    Path("job.sh").write_text("#!/bin/bash\n#SBATCH --mem=lots\npython train.py\n")
    Path("config.yaml").write_text("trainer:\n  max_epochs: 1\nn: 10\n")
    Path("hydra_run.py").write_text(BY_HYDRA)
    done = budget(asked)
    assert done.err == f"oomlint: {line}\n"
    assert done.status == (2 if line.startswith("error") else 0)


@pytest.mark.parametrize("asked", ["python option.py --n 4", "python hydra_run.py trainer.max_epochs=3 +trainer.other=4 ++n=3", "run.sh"])
def test_nothing_is_said_of_what_is_right(budget: Budget, asked: str) -> None:
    Path("config.yaml").write_text("trainer:\n  max_epochs: 1\nn: 10\n")
    Path("hydra_run.py").write_text(BY_HYDRA)
    Path("run.sh").write_text("source ~/.bashrc\nsource /etc/profile\nconda activate x\npython train.py\n")
    assert not budget(asked).err
