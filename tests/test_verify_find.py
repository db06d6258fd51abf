"""The search for data that the user's own code reads: found in forked processes, replayed on real files, the same every time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from verify_cases import search

from oomlint.verify.child.search import find_inputs

if TYPE_CHECKING:
    from oomlint.verify.sandbox_runner import SandboxRunner

pytest.importorskip("torch")

HEAD = "import torch, numpy as np, json, csv, pickle, os, glob\nfrom torch.utils.data import Dataset\n"
HOME = str(Path(find_inputs.__file__).parents[4])


class Find(Protocol):
    def __call__(self, root: Path, text: str, **more: Any) -> Any: ...


@pytest.fixture
def dataset(runner: SandboxRunner) -> Find:
    """Searches for data that a dataset `D` reads."""

    def find(root: Path, text: str, **more: Any) -> Any:
        (root / "data.py").write_text(HEAD + textwrap.dedent(text))
        return search(runner, "dataset", root / "data.py", name="D", seconds=20.0, **more)

    return find


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            """
            import h5py
            class D(Dataset):
                def __init__(self, path):
                    self.f = h5py.File(path, "r")
                    self.x = self.f["train/images"]
                def __len__(self):
                    return self.x.shape[0]
                def __getitem__(self, i):
                    return self.x[i, :, :, 0], int(self.f["labels"][i])
            """,
            id="h5",
        ),
        pytest.param(
            """
            from h5py import File
            class D(Dataset):
                def __init__(self, root):
                    self.file = os.path.join(root, "all.hdf5")
                    with File(self.file) as f:
                        self.keys = sorted(f.keys())
                def __len__(self):
                    return len(self.keys)
                def __getitem__(self, i):
                    with File(self.file) as f:
                        return torch.from_numpy(f[self.keys[i]]["x"][:])
            """,
            id="h5 groups",
        ),
        pytest.param(
            """
            class D(Dataset):
                def __init__(self, folder):
                    self.files = sorted(glob.glob(os.path.join(folder, "*.npy")))
                def __len__(self):
                    return len(self.files)
                def __getitem__(self, i):
                    return torch.from_numpy(np.load(self.files[i]).transpose(2, 0, 1))
            """,
            id="npy files",
        ),
        pytest.param(
            """
            class D(Dataset):
                def __init__(self, npz_file, train=True):
                    z = np.load(npz_file)
                    self.x, self.y = z["x_train" if train else "x_test"], z["y_train" if train else "y_test"]
                    assert self.y.dtype.kind == "i"
                def __len__(self):
                    return len(self.x)
                def __getitem__(self, i):
                    return self.x[i], self.y[i]
            """,
            id="npz",
        ),
        pytest.param(
            """
            class D(Dataset):
                def __init__(self, ann_file, features):
                    with open(ann_file) as f:
                        ann = json.load(f)
                    self.names = {a["id"]: a["file_name"] for a in ann["images"]}
                    self.rows = [(a["image_id"], a["caption"].lower().split(), a["scores"][0] * 2.0) for a in ann["annotations"]]
                    self.features = features
                def __len__(self):
                    return len(self.rows)
                def __getitem__(self, i):
                    image, words, score = self.rows[i]
                    x = np.load(os.path.join(self.features, self.names[image] + ".npy"))
                    return torch.tensor(x), len(words), score
            """,
            id="json",
        ),
        pytest.param(
            """
            class D(Dataset):
                def __init__(self, csv_path, root_dir):
                    with open(csv_path) as f:
                        self.rows = list(csv.DictReader(f))
                    self.root_dir = root_dir
                def __len__(self):
                    return len(self.rows)
                def __getitem__(self, i):
                    with open(os.path.join(self.root_dir, self.rows[i]["name"]), "rb") as f:
                        x = pickle.load(f)
                    return np.asarray(x["emb"], dtype="f4").sum(), int(self.rows[i]["label"])
            """,
            id="csv and pickle",
        ),
        pytest.param(
            """
            class D(Dataset):
                def __init__(self, txt):
                    self.rows = []
                    for line in open(txt):
                        a, b, c = line.strip().split(",")
                        self.rows.append((float(a), float(b), int(c)))
                def __len__(self):
                    return len(self.rows)
                def __getitem__(self, i):
                    return self.rows[i]
            """,
            id="text",
        ),
        pytest.param(
            """
            class D(Dataset):
                def __init__(self, args, data):
                    self.data, self.seq = data["samples"], args.seq_len
                    assert self.data.shape[1] >= self.seq
                def __len__(self):
                    return self.data.shape[0]
                def __getitem__(self, i):
                    return self.data[i][: self.seq]
            """,
            id="arguments",
        ),
        pytest.param(
            """
            class D(Dataset):
                def __init__(self, pt_path):
                    self.data = torch.load(pt_path)
                def __len__(self):
                    return len(self.data["labels"])
                def __getitem__(self, i):
                    return self.data["features"][i].float(), self.data["labels"][i]
            """,
            id="torch",
        ),
    ],
)
def test_data_is_found(tmp_path: Path, dataset: Find, text: str) -> None:
    found = dataset(tmp_path, text)
    assert found["found"], found["reason"]
    assert found["fidelity"] == "synthetic"
    assert found["length"] >= 1


def test_images(tmp_path: Path, dataset: Find) -> None:
    pytest.importorskip("PIL")
    found = dataset(
        tmp_path,
        """
        from PIL import Image
        class D(Dataset):
            def __init__(self, root, split="train"):
                self.items = []
                for number, name in enumerate(sorted(os.listdir(os.path.join(root, split)))):
                    for file in os.listdir(os.path.join(root, split, name)):
                        if file.endswith(".jpg"):
                            self.items.append((os.path.join(root, split, name, file), number))
            def __len__(self):
                return len(self.items)
            def __getitem__(self, i):
                path, number = self.items[i]
                return torch.from_numpy(np.array(Image.open(path).convert("RGB"))), number
        """,
    )
    assert found["found"], found["reason"]
    assert found["length"] > 1


def test_the_data_of_the_user_comes_first(tmp_path: Path, dataset: Find) -> None:
    (tmp_path / "list.txt").write_text("1\n2\n3\n")
    text = """
    class D(Dataset):
        def __init__(self, path, scale=2):
            self.rows = [int(row) * scale for row in open(path)]
        def __len__(self):
            return len(self.rows)
        def __getitem__(self, i):
            return self.rows[i]
    """
    found = dataset(tmp_path, text, known={"path": ["list.txt"]})
    assert (found["found"], found["fidelity"], found["length"]) == (True, "data", 3)


def test_what_is_missing_is_named(tmp_path: Path, dataset: Find) -> None:
    text = """
    import no_such_tables
    class D(Dataset):
        def __init__(self, path):
            self.rows = no_such_tables.read_csv(path)
        def __len__(self):
            return len(self.rows)
        def __getitem__(self, i):
            return self.rows[i]
    """
    assert dataset(tmp_path, text) | {"seconds": 0, "trials": 0, "steps": 0} == {
        "found": False,
        "reason": "no_such_tables.read_csv is needed, and no_such_tables is not installed",
        "seconds": 0,
        "trials": 0,
        "steps": 0,
    }


def test_the_same_state_gives_the_same_items_anywhere(tmp_path: Path, dataset: Find) -> None:
    text = """
    class D(Dataset):
        def __init__(self, npy_path):
            self.x = np.load(npy_path)
        def __len__(self):
            return len(self.x)
        def __getitem__(self, i):
            return self.x[i]
    """
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    state = dataset(one, text)["state"]
    assert dataset(two, text)["state"] == state
    code = (
        "import sys, json\nfrom oomlint.verify.child.driving import dataset_job\n"
        "subject = {'path': sys.argv[1] + '/data.py', 'root': sys.argv[1], 'name': 'D', 'state': json.loads(sys.argv[2])}\n"
        "d = dataset_job.made(subject)\nprint(len(d), float(d[0].sum()), float(d[7].sum()))\n"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-c", code, str(root), json.dumps(state)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": HOME},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for root in (one, two)
    ]
    assert texts[0] == texts[1] != ""


def test_a_dataset_grows_to_the_size_that_is_asked_for(tmp_path: Path, dataset: Find, runner: SandboxRunner) -> None:
    text = """
    class D(Dataset):
        def __init__(self, json_path):
            self.rows = [row["text"] for row in json.load(open(json_path))]
        def __len__(self):
            return len(self.rows)
        def __getitem__(self, i):
            return self.rows[i]
    """
    state = dataset(tmp_path, text)["state"]
    grown = search(runner, "scaled", tmp_path / "data.py", cls="D", state=state, size=2**20)
    assert grown["found"], grown["reason"]
    assert grown["length"] > 10_000


def test_functions_and_methods(tmp_path: Path, runner: SandboxRunner) -> None:
    (tmp_path / "m.py").write_text(
        HEAD
        + textwrap.dedent(
            """
            def load_all(path, count):
                x = np.load(path)
                return x[:count].mean()
            class Reader:
                def __init__(self, root, size=3):
                    self.root = root
                def rows(self, name: str):
                    for line in open(os.path.join(self.root, name)):
                        yield line.strip()
            """
        )
    )
    for name in ("load_all", "Reader.rows"):
        found = search(runner, "function", tmp_path / "m.py", name=name, seconds=20.0)
        assert found["found"], found["reason"]


def test_code_that_hangs_or_crashes_is_no_data(tmp_path: Path, dataset: Find) -> None:
    for body in ("while True: pass", "os.kill(os.getpid(), 9)", "raise SystemExit(0)"):
        found = dataset(
            tmp_path, f"class D(Dataset):\n    def __init__(self, path):\n        {body}\n    def __getitem__(self, i):\n        return i\n", trials=4
        )
        assert not found["found"]
