"""How grave it is that data is read before the first sample: what the code says of how much that is, and of who needs it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Final

import pytest

from oomlint.config import Settings
from oomlint.engine import RunOptions, run

if TYPE_CHECKING:
    from oomlint.finding import Finding

FIXTURES: Final = Path(__file__).parents[1] / "fixtures" / "rules"


def check(folder: Path, code: str, files: dict[str, str]) -> list[Finding]:
    """The findings of a code in a project of such files."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(dedent(text), encoding="utf-8")
    settings = Settings().with_overrides(select=[code], preview=True, severity="note")
    report = run([str(folder)], settings, folder, RunOptions(cache=False, processes=1))
    assert not report.failures
    return list(report.findings)


def severities(folder: Path, code: str, **files: str) -> list[str]:
    return [str(item.severity) for item in check(folder, code, files)]


def said(folder: Path, code: str, **files: str) -> list[str]:
    """What the messages say behind the last semicolon."""
    return [item.message.rpartition("; ")[2] for item in check(folder, code, files)]


GAITS = """
    import os

    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset


    class GaitsBefore(Dataset):
        def __init__(self, root):
            super(GaitsBefore, self).__init__()
            self.gaits = []
            for name in os.listdir(root):
                self.gaits.append(np.load(os.path.join(root, name)))

        def __len__(self):
            return len(self.gaits)

        def __getitem__(self, index):
            return torch.from_numpy(self.gaits[index][:64])


    class Gaits(Dataset):
        def __init__(self, root):
            self.paths = [os.path.join(root, name) for name in os.listdir(root)]

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, index):
            return torch.from_numpy(np.load(self.paths[index])[:64])
"""


@pytest.mark.parametrize(
    ("files", "severity"),
    [
        pytest.param(
            {"train": "from gaits import Gaits\nfrom torch.utils.data import DataLoader\nloader = DataLoader(Gaits('data'))"}, "note", id="not at all"
        ),
        pytest.param({"train": "from gaits import GaitsBefore\nloader = make(GaitsBefore('data'))"}, "warning", id="by name"),
        pytest.param({}, "warning", id="a library of datasets"),
        pytest.param(
            {"train": "import gaits\nfrom gaits import Gaits\nfrom torch.utils.data import DataLoader\nloader = DataLoader(getattr(gaits, name)('data'))"},
            "warning",
            id="by an option",
        ),
    ],
)
def test_a_dataset_that_the_project_never_makes_is_a_note(files: dict[str, str], severity: str, tmp_path: Path) -> None:
    assert severities(tmp_path, "OOM402", gaits=GAITS, **files) == [severity]


SCENES = """
    import os

    import h5py
    import numpy as np
    import torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset


    class Scenes(Dataset):
        def __init__(self, root, *, ready=False):
            self.root = root
            self.ready = ready
            self.file = None
            with h5py.File(os.path.join(root, "scenes.h5"), "r") as file:
                self.boxes = file["boxes"][:]
                self.first = list(file["first"])

        def __len__(self):
            return len(self.first) - 1

        def picture(self, index):
            return torch.from_numpy(np.asarray(Image.open(os.path.join(self.root, f"{{index}}.png"))))

        def __getitem__(self, index):
            {taken}


    loader = DataLoader(Scenes("data"))
"""


@pytest.mark.parametrize(
    ("taken", "severity"),
    [
        pytest.param("return self.picture(index), self.boxes[self.first[index]]", "note", id="always"),
        pytest.param("return self.boxes[self.first[index]]", "warning", id="nothing else is read"),
        pytest.param("return self.boxes[index] if self.ready else self.picture(index)", "warning", id="one or the other"),
        pytest.param("return (self.boxes[index], self.picture(index)) if self.ready else self.boxes[index]", "warning", id="by choice"),
        pytest.param("return self.picture(index), self.boxes[index, :, :, : self.first[0]]", "warning", id="pictures themselves"),
        pytest.param(
            "if self.file is None:\n                self.file = h5py.File(self.root, 'r')\n            return self.file['rows'][index], self.boxes[index]",
            "note",
            id="opened for the first sample",
        ),
    ],
)
def test_what_is_used_beside_the_file_of_each_sample_is_a_note(taken: str, severity: str, tmp_path: Path) -> None:
    assert severities(tmp_path, "OOM305", scenes=SCENES.format(taken=taken)) == [severity]


SPOKEN = """
    import pickle

    import numpy as np
    import torch


    class Spoken:
        def __init__(self, root, size):
            self.root, self.size = root, size
            self.texts = None

        def read(self):
            with open(f"{{self.root}}/spoken.pkl", "rb") as file:
                self.texts = pickle.load(file)

        def batches(self, names):
            for start in range(0, len(names), self.size):
                rows = []
                for name in names[start : start + self.size]:
                    {row}
                yield torch.from_numpy(np.stack(rows))


    def train(model, optimizer, root, names):
        data = Spoken(root, 8)
        data.read()
        for batch in data.batches(names):
            loss = model(batch)
            loss.backward()
            optimizer.step()
"""


@pytest.mark.parametrize(
    ("row", "severity"),
    [
        pytest.param("rows.append(np.concatenate([self.texts[name], np.load(f'{self.root}/{name}.npy')]))", "note", id="a file each round"),
        pytest.param("rows.append(self.texts[name])", "warning", id="no file"),
    ],
)
def test_what_a_round_uses_beside_the_file_that_it_reads_is_a_note(row: str, severity: str, tmp_path: Path) -> None:
    assert severities(tmp_path, "OOM402", spoken=SPOKEN.format(row=row)) == [severity]


THUMBNAILS = """
    import pickle

    import numpy as np
    from listing import names
    from torch.utils.data import DataLoader
    from torchvision import datasets


    class Thumbnails(datasets.{base}):
        def __init__(self, root, files):
            self.data = []
            for name in files:
                with open(f"{{root}}/{{name}}", "rb") as file:
                    self.data.append(pickle.load(file)["data"])
            self.data = np.concatenate(self.data)

        def __len__(self):
            return len(self.data)

        def __getitem__(self, index):
            return self.data[index]


    loader = DataLoader(Thumbnails("data", names), batch_size=64)
"""


@pytest.mark.parametrize(("base", "severity"), [("CIFAR10", "note"), ("VisionDataset", "warning")])
def test_what_a_dataset_of_torchvision_holds_in_any_case_is_a_note(base: str, severity: str, tmp_path: Path) -> None:
    assert severities(tmp_path, "OOM401", thumbnails=THUMBNAILS.format(base=base)) == [severity]


MOVEMENTS = """
    import joblib
    from torch.utils.data import DataLoader, Dataset


    class Movements(Dataset):
        def __init__(self, paths):
            self.movements = []
            for path in paths:
                self.movements.append(joblib.load(path)["positions"])

        def __len__(self):
            return len(self.movements)

        def __getitem__(self, index):
            return {item}


    loader = DataLoader(Movements(paths), batch_size=64, num_workers=4)
"""


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("self.movements[index]", "each of 4 workers copies the objects it reads"),
        ("self.movements[index][:, :3]", "each spawned worker gets a copy"),
        ("self.movements[index].reshape(-1, 3)", "each spawned worker gets a copy"),
    ],
)
def test_what_has_axes_is_an_array_whatever_file_it_came_from(item: str, words: str, tmp_path: Path) -> None:
    assert said(tmp_path, "OOM402", movements=MOVEMENTS.format(item=item)) == [words]


SOUNDS = """
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Sounds(Dataset):
        def __init__(self, path):
            {kept}

        def __len__(self):
            return len(self.sounds)

        def __getitem__(self, index):
            return self.sounds[index]


    loader = DataLoader(Sounds(path), batch_size=64, num_workers=4)
"""


@pytest.mark.parametrize(
    ("kept", "code", "copied"),
    [
        ("self.sounds, self.speakers = torch.load(path)", "OOM406", ""),  # tensors move to shared memory, which no worker copies
        ("self.sounds = [torch.from_numpy(one) for one in np.load(path)]", "OOM402", ""),
        ("self.sounds = np.load(path)", "OOM402", "each spawned worker gets a copy"),
        ("self.sounds = np.asarray(torch.load(path))", "OOM406", "each spawned worker gets a copy"),
    ],
)
def test_tensors_are_not_copied_for_workers(kept: str, code: str, copied: str, tmp_path: Path) -> None:
    (found,) = check(tmp_path, code, {"sounds": SOUNDS.format(kept=kept)})
    assert found.message.partition("; ")[2] == copied


ROWS = """
    import h5py
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Batches:
        def __init__(self, path, size):
            self.size = size
            with h5py.File(path, "r") as file:
                self.rows = file["rows"][:]

        def __len__(self):
            return len(self.rows) // self.size

        def __iter__(self):
            for first in range(0, len(self.rows), self.size):
                yield [self.rows[number] for number in range(first, first + self.size)]


    class Sounds(Dataset):
        def __init__(self, path):
            self.path = path

        def __getitem__(self, row):
            with h5py.File(self.path, "r") as file:
                return torch.from_numpy(file["sounds"][row])


    def train(model, optimizer, path):
        for batch in {loader}:
            loss = model(batch)
            loss.backward()
            optimizer.step()
"""


@pytest.mark.parametrize(
    ("loader", "severity"),
    [("DataLoader(Sounds(path), batch_sampler=Batches(path, 32))", "note"), ("DataLoader(Batches(path, 32), batch_size=None)", "warning")],
)
def test_what_a_sampler_goes_through_is_a_note(loader: str, severity: str, tmp_path: Path) -> None:
    assert severities(tmp_path, "OOM305", rows=ROWS.format(loader=loader)) == [severity]


SUBJECTS = """
    from listing import find
    from scipy.io import loadmat
    from torch.utils.data import ConcatDataset, DataLoader, Dataset


    class Recording(Dataset):
        def __init__(self, rows):
            self.rows = rows

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return self.rows[index]


    class Hands(ConcatDataset):
        subjects = [1, 2, 3]

        def __init__(self, root, subjects=None):
            subjects = self.subjects if subjects is None else subjects
            super().__init__([self.read(f"{{root}}/{{subject}}.mat") for subject in subjects{more}])

        def read(self, path):
            return Recording(loadmat(path)["rows"])


    def make(subjects):
        return {made}


    loader = DataLoader(make(None))
"""


@pytest.mark.parametrize(
    ("made", "more", "severity"),
    [
        pytest.param("Hands('data')", "", "note", id="three of them"),
        pytest.param("Hands('data', [1, 2])", "", "note", id="two of them"),
        pytest.param("Hands('data', subjects=find('data'))", "", "warning", id="any number"),
        pytest.param("Hands('data')", " for root in find(root)", "warning", id="three of any number"),
        pytest.param("[Hands(path) for path in find('data')]", "", "warning", id="three for any number"),
    ],
)
def test_a_handful_of_files_by_the_calls_in_sight_is_a_note(made: str, more: str, severity: str, tmp_path: Path) -> None:
    assert severities(tmp_path, "OOM402", subjects=SUBJECTS.format(made=made, more=more)) == [severity]


def test_files_that_a_derived_class_lists_are_no_handful(tmp_path: Path) -> None:
    listed = (FIXTURES / "OOM402" / "bad_files_listed_by_a_method.py").read_text(encoding="utf-8")
    assert severities(tmp_path, "OOM402", tiles=listed) == ["warning"]


DRIVES = """
    import os

    import numpy as np
    import torch
    from listing import names
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset


    class Drives(Dataset):
        def __init__(self, root, paths):
            self.root = root
            self.paths = paths
            self.kept = {made}

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, index):
            picture = Image.open(os.path.join(self.root, self.paths[index]))
            return torch.from_numpy(np.asarray(picture)), torch.from_numpy({taken})


    loader = DataLoader(Drives("data", names))
"""


@pytest.mark.parametrize(
    ("made", "taken", "severity"),
    [
        pytest.param(
            "{name: np.load(f'{root}/{name}/track.npy') for name in os.listdir(root)}", "self.kept[self.paths[index].split('/')[0]]", "note", id="of a drive"
        ),
        pytest.param("[np.load(path.replace('.png', '.npy')) for path in paths]", "self.kept[index]", "warning", id="of each picture"),
    ],
)
def test_an_array_for_each_picture_weighs_as_the_picture_does(made: str, taken: str, severity: str, tmp_path: Path) -> None:
    assert severities(tmp_path, "OOM402", drives=DRIVES.format(made=made, taken=taken)) == [severity]


ROOM = """
    import numpy as np
    from listing import read
    from torch.utils.data import DataLoader, Dataset


    class Room(Dataset):
        def __init__(self, texts):
            self.words = np.zeros((len(texts), {width}), dtype=np.int64)
            for number, text in enumerate(texts):
                self.words[number, : len(text)] = text

        def __len__(self):
            return len(self.words)

        def __getitem__(self, index):
            return self.words[index]


    loader = DataLoader(Room(read()))
"""


@pytest.mark.parametrize(("width", "severity"), [("80", "note"), ("1024", "warning")])
def test_an_array_of_short_rows_is_a_note(width: str, severity: str, tmp_path: Path) -> None:
    assert severities(tmp_path, "OOM407", room=ROOM.format(width=width)) == [severity]


POOLED = """
    import glob
    import sys

    import numpy as np
    from PIL import Image


    def train(network, optimizer, loader):
        for pictures, target in loader:
            loss = network(pictures, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


    def main(root):
        pictures = []
        for path in glob.glob(root + "/*.png"):
            pictures.append(np.asarray(Image.open(path)))
        show(pictures)


    if __name__ == "__main__":
        main(sys.argv[1])
"""


def test_where_no_dataset_is_in_sight_the_help_is_not_to_read_in_one(tmp_path: Path) -> None:
    (found,) = check(tmp_path, "OOM402", {"pooled": POOLED})
    assert "at once" in found.message
    assert found.help == "process one after the other: that needs the memory of one"


TOLD = """
    import copy
    import glob
    import pickle

    import numpy as np
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset


    class Told(Dataset):
        def __init__(self, root, pairs=False):
            self.pairs = pairs
            self.samples = []
            for folder in glob.glob(root + "/*"):
                with open(folder + "/told.pkl", "rb") as file:
                    told = pickle.load(file)
                with open(folder + "/steps.pkl", "rb") as file:
                    steps = pickle.load(file)
                {filled}

        def __len__(self):
            return len(self.samples)

        def __getitem__(self, index):
            sample = copy.copy(self.samples[index])
            if self.pairs:
                return {pair}, sample
            return self.picture(sample), sample

        def picture(self, sample):
            return np.array(Image.open(sample["path"]))


    loader = DataLoader(Told("data"))
"""
EACH_STEP = """for number, step in enumerate(steps.rows):
                    sample = {"told": told[0], "path": folder + f"/{number}.png"}
                    self.samples.append(sample)"""
FOR_FOLDER = """self.samples.append({"told": told, "path": folder + ".png"})"""


@pytest.mark.parametrize(
    ("filled", "pair", "severity"),
    [
        pytest.param(EACH_STEP, "self.picture(sample)", "note", id="of several pictures"),
        pytest.param(FOR_FOLDER, "self.picture(sample)", "warning", id="of each picture"),
        pytest.param(EACH_STEP, "sample", "warning", id="no picture on one way"),
    ],
)
def test_what_is_said_of_several_pictures_is_a_note(filled: str, pair: str, severity: str, tmp_path: Path) -> None:
    assert severities(tmp_path, "OOM402", told=TOLD.format(filled=filled, pair=pair)) == [severity]


GRAPHS = """\
    import numpy as np
    import torch
    from torch_geometric.data import Data, BASE

    class Roads(BASE):
        def __init__(self, root):
            super().__init__(root)
            self.data, self.slices = torch.load(self.processed_paths[0])

        def process(self):
            graphs = []
            for path in self.raw_paths:
                graphs.append(Data(x=torch.from_numpy(np.load(path))))
            torch.save(WRITTEN, self.processed_paths[0])

    print(Roads("roads"))
"""


@pytest.mark.parametrize(("base", "written", "severity"), [("InMemoryDataset", "self.collate(graphs)", "note"), ("Dataset", "graphs", "warning")])
def test_what_a_dataset_collects_that_is_in_memory_by_definition_is_a_note(base: str, written: str, severity: str, tmp_path: Path) -> None:
    assert severities(tmp_path, "OOM402", roads=GRAPHS.replace("BASE", base).replace("WRITTEN", written)) == [severity]


def test_what_the_dataset_of_a_library_keeps_may_be_read_by_the_library(tmp_path: Path) -> None:
    program = GRAPHS.replace("BASE", "InMemoryDataset").replace("WRITTEN", "self.collate(graphs)")
    (found,) = check(tmp_path, "OOM406", {"roads": program})
    assert "nothing reads" not in found.message


ANSWERS = """
    import pickle

    from torch.utils.data import Dataset


    class Answers(Dataset):
        def __init__(self, folder):
            with open(folder + "/answers.pkl", "rb") as file:
                self.answers = pickle.load(file)

        def __len__(self):
            return len(self.answers)

        def __getitem__(self, index):
            return self.answers[index]
"""
PREPARED = """
    import csv
    import os
    import pickle

    import numpy as np
    import pandas as pd
    from PIL import Image

    {made}


    def write(folder):
        rows = make(folder)
        with open(os.path.join(folder, "answers.pkl"), "wb") as file:
            pickle.dump(rows, file)
"""
SORTED = """
    def make(folder):
        names, _ = zip(*pd.read_csv(folder).values.tolist())
        return sorted(set(names))
"""
NUMBERED = """
    def make(folder):
        table = pd.read_csv(folder)
        numbers = {name: number for number, name in enumerate(np.unique(table["question"].values))}
        rows = []
        for student in np.unique(table["student"].values):
            own = table[table["student"] == student]
            rows.append([numbers[name] for name in own["question"].values])
        return rows
"""
DRAWN = """
    def make(folder):
        rows = []
        for name in os.listdir(folder):
            rows.append((name, np.asarray(Image.open(name))))
        return rows
"""
APPLIED = """
    def read(path):
        return np.asarray(Image.open(path))

    def make(folder):
        table = pd.read_csv(folder)
        table["picture"] = table["path"].map(read)
        return table
"""
FILLED = """
    def make(folder):
        rows = []
        fill(rows, folder)
        return rows
"""


@pytest.mark.parametrize(
    ("made", "severity"),
    [
        pytest.param(SORTED, "note", id="names of a column"),
        pytest.param(NUMBERED, "note", id="numbers of names"),
        pytest.param(DRAWN, "warning", id="pictures beside names"),
        pytest.param(APPLIED, "warning", id="pictures in a table"),
        pytest.param(FILLED, "warning", id="what another function fills"),
        pytest.param(SORTED + NUMBERED.replace("make", "other"), "note", id="of two makers the one that is called"),
    ],
)
def test_words_and_numbers_that_the_project_writes_itself_are_a_note(made: str, severity: str, tmp_path: Path) -> None:
    prepared = dedent(PREPARED).format(made=dedent(made))
    assert severities(tmp_path, "OOM402", answers=ANSWERS, prepared=prepared) == [severity]


def test_another_file_of_the_project_says_nothing_of_what_is_read(tmp_path: Path) -> None:
    prepared = dedent(PREPARED).format(made=dedent(SORTED)).replace("answers.pkl", "questions.pkl")
    assert severities(tmp_path, "OOM402", answers=ANSWERS, prepared=prepared) == ["warning"]


PARTS = """
    import os

    import cv2
    import numpy as np
    import torch
    from torch import nn

    shown = [cv2.imread(os.path.join("train", name)) for name in os.listdir("train")]
    shown = shown + [cv2.imread(os.path.join("other", name)) for name in os.listdir("other")]
    shown = shown + [cv2.imread(os.path.join("more", name)) for name in os.listdir("more")]
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1))
    for one in shown:
        print(network(torch.from_numpy(np.moveaxis(one, 2, 0)).float()[None]))
"""
TRAINED = """
    import torch


    def train(network, batches):
        optimizer = torch.optim.SGD(network.parameters())
        for picture, label in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(picture), label).backward()
            optimizer.step()
"""


def test_statements_that_fill_one_list_are_one_finding(tmp_path: Path) -> None:
    (found,) = check(tmp_path, "OOM402", {"parts": PARTS, "train": TRAINED})
    assert found.place.row == 9
    assert sum(place.message == "read here, too" for place in found.related) == 2


BY_HELPER = """
    import os
    import pickle

    import cv2
    from torch.utils.data import Dataset


    class Slices(Dataset):
        def __init__(self, folder, cache):
            if os.path.exists(cache):
                self.slices = self.restore(cache)
            else:
                self.slices = [cv2.imread(entry.path) for entry in os.scandir(folder)]

        def restore(self, cache):
            with open(cache, "rb") as file:
                return pickle.load(file)

        def __len__(self):
            return len(self.slices)

        def __getitem__(self, index):
            return self.slices[index]
"""


def test_of_reads_that_are_one_finding_it_is_said_where_a_function_reads(tmp_path: Path) -> None:
    (found,) = check(tmp_path, "OOM402", {"slices": BY_HELPER})
    rows = [place.row for place in found.related if place.message in {"read here, too", "`pickle.load` reads it here"}]
    assert rows == [12, 18]


def test_numbers_that_nothing_can_map_are_a_note(tmp_path: Path) -> None:
    text = (FIXTURES / "OOM406" / "bad_numbers_of_texts.py").read_text(encoding="utf-8")
    (item,) = check(tmp_path, "OOM406", {"texts": text})
    assert item.severity == "note"
    assert item.fix is None
    (item,) = check(tmp_path, "OOM406", {"texts": text.replace("torch.tensor([row.words for row in rows], dtype=torch.long)", "torch.stack([*rows])")})
    assert item.severity == "warning"


SPECTRA = """
    import numpy as np
    from torch.utils.data import Dataset


    class Spectra(Dataset):
        def __init__(self, root):
            self.links = np.load(root + "/links.npy")
            self.cubes = np.load(root + "/cubes.npy", mmap_mode="r")
            BUILT

        def __len__(self):
            return len(self.cubes)

        def chunk(self, epoch):
            return CHUNK

        def __getitem__(self, index):
            return SAMPLE


    def train(network, root):
        cubes = Spectra(root)
        for index in range(len(cubes)):
            network(cubes[index], USED).backward()
"""


@pytest.mark.parametrize(
    ("changed", "severity"),
    [
        ({}, "note"),
        ({"BUILT": "assert len(self.cubes) == len(self.links)"}, "note"),
        ({"BUILT": "self.rows = list(self.links)"}, "warning"),
        ({"CHUNK": "self.links[epoch]"}, "warning"),
        ({"SAMPLE": "self.cubes[index] - self.links[index]"}, "warning"),
        ({"USED": "cubes.links[index]"}, "warning"),
    ],
)
def test_what_no_sample_is_read_from_is_a_note(changed: dict[str, str], severity: str, tmp_path: Path) -> None:
    text = SPECTRA
    for word, code in {"BUILT": "pass", "CHUNK": "epoch", "SAMPLE": "self.cubes[index].copy()", "USED": "cubes.links", **changed}.items():
        text = text.replace(word, code)
    assert severity in severities(tmp_path, "OOM402", spectra=text)


PICTURES = """
    import glob
    import random

    import cv2
    import numpy as np
    import wave
    from torch.utils.data import DataLoader, Dataset


    class Pictures(Dataset):
        def __init__(self, root):
            paths = PATHS
            self.pictures = [READ(path) for path in paths]

        def __len__(self):
            return len(self.pictures)

        def __getitem__(self, index):
            return self.pictures[index]


    loader = DataLoader(Pictures("walks"), batch_size=4)
"""


@pytest.mark.parametrize(
    ("paths", "severity"),
    [
        ('sorted(glob.glob(root + "/*.png"))[:100]', "note"),
        ('random.sample(glob.glob(root + "/*.png"), 90)', "note"),
        ('sorted(glob.glob(root + "/*.png"))[:5000]', "warning"),
        ('sorted(glob.glob(root + "/*.png"))', "warning"),
    ],
)
def test_a_hundred_pictures_are_a_note(paths: str, severity: str, tmp_path: Path) -> None:
    text = PICTURES.replace("PATHS", paths).replace("READ", "cv2.imread")
    assert severities(tmp_path, "OOM402", pictures=text) == [severity]


def test_a_hundred_volumes_are_a_warning(tmp_path: Path) -> None:
    text = PICTURES.replace("PATHS", 'sorted(glob.glob(root + "/*.nii"))[:100]').replace("READ", "tifffile.imread").replace("import cv2", "import tifffile")
    assert severities(tmp_path, "OOM402", pictures=text) == ["warning"]


DRAWN = """
    import glob
    import io

    import cv2
    import numpy as np
    import torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset


    class Drawn(Dataset):
        def __init__(self, curves):
            self.pages = []
            for curve in curves:
                page = OPENED
                curve.figure.savefig(page)
                self.pages.append(np.array(Image.open(page)))

        def __len__(self):
            return len(self.pages)

        def __getitem__(self, index):
            return self.pages[index]


    def train(curves):
        return DataLoader(Drawn(curves), batch_size=4)
"""


@pytest.mark.parametrize(("opened", "found"), [("io.BytesIO()", []), ("io.BytesIO(curve.png)", ["warning"]), ("curve.path", ["warning"])])
def test_what_the_program_has_drawn_itself_is_no_file(opened: str, found: list[str], tmp_path: Path) -> None:
    assert severities(tmp_path, "OOM402", drawn=DRAWN.replace("OPENED", opened)) == found


def test_pictures_that_a_script_has_at_once_for_a_while_are_a_note(tmp_path: Path) -> None:
    text = (FIXTURES / "OOM402" / "bad_gathered_by_a_script.py").read_text(encoding="utf-8")
    assert severities(tmp_path, "OOM402", gathered=text) == ["note"] * 3


JOINED = """
    import os

    import numpy as np
    from PIL import Image
    import torch
    from torch import nn


    def train(model, loader):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()


    def gathered(folder):
        rows = []
        for name in os.listdir(folder):
            {read}
            rows.append(found)
        return np.concatenate(rows, axis=0)


    if __name__ == "__main__":
        {use}
"""
NUMBERS_READ: Final = "found = np.load(os.path.join(folder, name))"
IMAGES_READ: Final = "found = np.asarray(Image.open(os.path.join(folder, name)))"


@pytest.mark.parametrize(
    ("read", "use", "severity"),
    [
        (NUMBERS_READ, 'print(np.std(gathered("embeddings"), axis=0))', "note"),
        (NUMBERS_READ, 'np.save("all.npy", gathered("embeddings"))', "warning"),
        (IMAGES_READ, 'print(np.std(gathered("pictures"), axis=0))', "warning"),
    ],
)
def test_arrays_that_a_script_joins_for_itself_are_as_small_as_nobody_says(tmp_path: Path, read: str, use: str, severity: str) -> None:
    assert severities(tmp_path, "OOM401", gathered=JOINED.format(read=read, use=use)) == [severity]
