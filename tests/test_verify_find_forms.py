"""Forms of data that the search knows: rows of paths, tensors in files of torch's, globals that need files, LMDB, and code that makes too much itself."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from verify_cases import search

from oomlint.verify.child.driving import trial
from oomlint.verify.child.search import find_inputs, generic_mutations, mutations
from oomlint.verify.child.synthesis import sizes

if TYPE_CHECKING:
    from oomlint.verify.sandbox_runner import SandboxRunner

pytest.importorskip("torch")

HEAD = "import torch, numpy as np, json, csv, pickle, os, glob, h5py\nfrom torch.utils.data import Dataset, TensorDataset\n"
HOME = str(Path(find_inputs.__file__).parents[4])


class Found(Protocol):
    def __call__(self, text: str, name: str = "D", call: str = "dataset", **more: Any) -> Any: ...


@pytest.fixture
def found(runner: SandboxRunner, tmp_path: Path) -> Found:
    """Searches for data, and finds some."""

    def find(text: str, name: str = "D", call: str = "dataset", **more: Any) -> Any:
        (tmp_path / "data.py").write_text(HEAD + textwrap.dedent(text))
        answer = search(runner, call, tmp_path / "data.py", name=name, seconds=20.0, **more)
        assert answer["found"], answer
        return answer

    return find


def test_arrays_in_files_of_like_names_change_one_after_the_other() -> None:
    """A change of one file forgets those of like names, and what was to be changed in them."""
    files = {name: {"kind": "npy", "shape": ["n", 8]} for name in ("a1.npy", "a2.npy")}
    changed = generic_mutations.with_axes({"files": files}, [["files", "a1.npy"], ["files", "a2.npy"]], (3, 3))
    assert changed["files"] == {"a1.npy": {"kind": "npy", "shape": ["n", 8, 8]}}


def test_an_index_of_paths_and_rows(found: Found) -> None:
    """More files than a cache of 16 holds."""
    answer = found(
        """
        class D(Dataset):
            def __init__(self, index):
                self.index, self.files = index, {}
            def __len__(self):
                return len(self.index)
            def __getitem__(self, i):
                path, row = self.index[i]
                if path not in self.files:
                    self.files[path] = h5py.File(path, "r")
                return torch.from_numpy(self.files[path]["patches"][row])
        """,
    )
    assert answer["length"] == find_inputs.MANY
    assert sum(spec["kind"] == "h5" for spec in answer["state"]["files"].values()) == find_inputs.MANY
    longer = sizes.scale_to(answer["state"], 2**23)
    assert longer["n"] == find_inputs.MANY
    assert all(spec["nodes"]["/patches"]["shape"][0] > find_inputs.MANY for spec in longer["files"].values() if spec["kind"] == "h5")


def test_rows_of_arrays_and_labels(found: Found) -> None:
    found(
        """
        class D(Dataset):
            def __init__(self, dataset):
                self.dataset = dataset
            def __len__(self):
                return len(self.dataset)
            def __getitem__(self, i):
                wave, name, label = self.dataset[i]
                return wave - wave.mean(), label
        """,
    )


def test_files_of_torch_hold_tensors_by_name(found: Found) -> None:
    answer = found(
        """
        class D(Dataset):
            def __init__(self, path):
                data = torch.load(path)
                self.samples, self.labels = data["samples"], data["labels"]
            def __len__(self):
                return len(self.samples)
            def __getitem__(self, i):
                return self.samples[i], self.labels[i]
        """,
    )
    (spec,) = answer["state"]["files"].values()
    assert spec["kind"] == "torch"
    assert {item["t"] for item in spec["value"]["keys"].values()} == {"array"}


def test_globals_that_need_a_file(found: Found) -> None:
    answer = found(
        """
        features = h5py.File("features.h5", "r")
        class D(Dataset):
            def __len__(self):
                return len(features["train"])
            def __getitem__(self, i):
                return torch.from_numpy(features["train"][i])
        """,
    )
    assert list(answer["state"]["files"]) == ["features.h5"]


def test_lmdb(found: Found) -> None:
    pytest.importorskip("lmdb")
    answer = found(
        """
        import lmdb
        class D(Dataset):
            def __init__(self, path):
                self.env = lmdb.open(path, readonly=True, lock=False)
                with self.env.begin(write=False) as txn:
                    self.size = int(txn.get("num-samples".encode()))
            def __len__(self):
                return self.size
            def __getitem__(self, i):
                with self.env.begin() as txn:
                    return torch.frombuffer(bytearray(txn.get(b"image-%09d" % (i + 1))), dtype=torch.uint8)[:8]
        """,
    )
    (spec,) = answer["state"]["files"].values()
    assert set(spec["keys"]) == {"num-samples", "image-#"}
    assert spec["keys"]["image-#"]["width"] == len("000000001")


def test_numbers_of_the_code_are_smaller_where_it_makes_too_much(found: Found) -> None:
    answer = found(
        """
        class D(Dataset):
            def __init__(self):
                self.images = torch.ones(500_000_000, 3, 64, 64)
            def __len__(self):
                return 500_000_000
            def __getitem__(self, i):
                return self.images[i], i % 1000
        """,
    )
    assert set(answer["state"]["shrunk"]) == {"500000000"}  # a 256th of it is still more than most machines let a program ask for
    assert any(text.startswith("500000000 in the code is ") for text in answer["assumed"])


def test_a_number_that_a_tensor_is_as_long_as_is_no_sample(found: Found) -> None:
    answer = found(
        """
        class D(Dataset):
            def __init__(self, path):
                with open(path + "/captions.json") as stream:
                    self.captions = json.load(stream)
            def __len__(self):
                return len(self.captions)
            def __getitem__(self, i):
                return torch.LongTensor(self.captions[i])
        """,
    )
    (value,) = [spec["value"] for spec in answer["state"]["files"].values() if spec["kind"] == "json"]
    assert value["of"]["t"] == "list"


def test_a_row_behind_a_condition_is_reached(tmp_path: Path, found: Found) -> None:
    text = """
        def read(path, mode="small"):
            if path.endswith(".pth"):
                if mode == "whole":
                    return torch.load(path)
                return {}
            return None
        """
    row = HEAD.count("\n") + 5
    answer = found(text, "read", "function", rows=[row])
    assert answer["reached"]
    assert [len(item.constants) for item in mutations.guards(str(tmp_path / "data.py"), [row])] == [1, 1]


def test_a_class_whose_parameters_a_fix_changes_is_made_as_the_file_makes_it(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(HEAD + "class D(Dataset):\n    def __init__(self, path):\n        self.path = path\nloader = D('features.h5')\n")
    state = {"n": 8, "arguments": {"gone": {"is": "json", "value": 1}}, "owner": {}, "files": {}}
    subject = {"path": "data.py", "root": ".", "name": "D", "state": state}
    code = f"import torch, h5py\nfrom oomlint.verify.child.driving import dataset_job\nprint(dataset_job.made({subject!r}).path)"
    environment = {**os.environ, "PYTHONPATH": HOME, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=environment, check=False, timeout=120)
    assert done.stdout.strip() == "features.h5", done.stderr


def test_a_file_that_the_function_makes_itself(found: Found) -> None:
    """The row runs only where what it writes is not there yet."""
    answer = found(
        """
        def convert(source, folder):
            target = os.path.join(folder, os.path.basename(source) + "_means.h5")
            with h5py.File(source, "r") as file:
                if not os.path.exists(target):
                    out = h5py.File(target, "w")
                    out["mean"] = file["waves"][:].mean()
                    out.close()
        """,
        "convert",
        "function",
        rows=[8],
    )
    assert answer["reached"]


def test_the_file_as_a_script(found: Found) -> None:
    answer = found(
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--folder", required=True)
        if __name__ == "__main__":
            for path in sorted(glob.glob(os.path.join(parser.parse_args().folder, "*.h5"))):
                file = h5py.File(path, "r")
                np.save(path + ".npy", file["waves"][:].mean())
        """,
        trial.SCRIPT,
        "function",
        rows=[9],
    )
    assert answer["reached"]
    assert any(spec["kind"] == "h5" for spec in answer["state"]["files"].values())


def test_what_a_message_says_of_a_setting_and_what_an_argument_is_used_as(found: Found) -> None:
    """A configuration's entry that has to be one of some words, and an argument that is asked as `pathlib` has it."""
    answer = found(
        """
        def convert(source, args):
            assert source.exists(), source
            if args.challenge not in ("singlecoil", "multicoil"):
                raise ValueError("challenge should be either singlecoil or multicoil")
            with h5py.File(source, "r") as file:
                return file["kspace"][:].mean()
        """,
        "convert",
        "function",
    )
    assert answer["state"]["arguments"]["source"]["is"] == "pathlib"
    assert answer["state"]["arguments"]["args"]["has"]["challenge"]["value"] == "singlecoil"
