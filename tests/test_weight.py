"""How grave a finding is follows from what it costs, and what several findings would repeat is said once."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from oomlint.config import Settings
from oomlint.engine import CheckReport, RunOptions, run
from oomlint.finding import ByteSize, Consequence, Factor, Multiplier, Resource, Weight
from oomlint.output import summary
from oomlint.output.view import View

if TYPE_CHECKING:
    from pathlib import Path

    from oomlint.finding import Finding


def check(folder: Path, files: dict[str, str], code: str, options: RunOptions | None = None) -> CheckReport:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    settings = Settings().with_overrides(select=[code], preview=True, severity="note")
    report = run([str(folder)], settings, folder, options or RunOptions(cache=False, processes=1))
    assert not report.failures
    return report


def only(report: CheckReport) -> Finding:
    (found,) = report.findings
    return found


LOADER = "from torch.utils.data import DataLoader, Dataset\n"


@pytest.mark.parametrize(("count", "severity"), [("24", "note"), ("32", "warning"), ("os.cpu_count()", "warning")])
def test_a_number_of_workers_that_the_code_states_is_a_note(count: str, severity: str, tmp_path: Path) -> None:
    text = f"import os\n{LOADER}def make(data):\n    return DataLoader(data, num_workers={count})\n"
    assert only(check(tmp_path, {"train.py": text}, "OOM120")).severity == severity


IN_CORE = """\
import h5py
from torch.utils.data import DataLoader, Dataset

class Clips(Dataset):
    def __init__(self, path):
        self.file = h5py.File(path, "r", driver="core")

    def __len__(self):
        return len(self.file["frames"])

    def __getitem__(self, index):
        return self.file["frames"][index]

loader = DataLoader(Clips("clips.h5"), num_workers=WORKERS)
"""


@pytest.mark.parametrize(("workers", "consequence"), [("0", Consequence.ONCE), ("4", Consequence.MULTIPLIED)])
def test_a_whole_file_in_memory_is_a_warning_however_many_processes_have_it(workers: str, consequence: Consequence, tmp_path: Path) -> None:
    found = only(check(tmp_path, {"train.py": IN_CORE.replace("WORKERS", workers)}, "OOM309"))
    assert (found.severity, found.weight and found.weight.consequence) == ("warning", consequence)


SCENES = """\
import os
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

class Scenes(Dataset):
    def __init__(self, root, listing):
        self.root = root
        self.taken = [row.rstrip() for row in open(listing)]

    def __len__(self):
        return len(self.taken)

    def _path(self, which):
        return f"{self.root}/{which}.npy"

    def __getitem__(self, index):
        one = self.taken[index]
        return EXPRESSION

loader = DataLoader(Scenes("scenes", "train.txt"), num_workers=4)
"""


@pytest.mark.parametrize(
    ("expression", "severity"),
    [
        ("np.load(os.path.join(self.root, one + '.npy'))", "note"),
        ("np.load(f'{self.root}/{one}.npy')", "note"),
        ("np.load('%s/%06d.npy' % (self.root, int(one)))", "note"),
        ("np.load(self._path(one))", "note"),
        ("self.root[one]", "note"),
        ("torch.frombuffer(one.encode(), dtype=torch.uint8)", "warning"),
        ("self.root.encode(one + ' end')", "warning"),
    ],
)
def test_strings_that_name_files_are_a_note_and_texts_are_a_warning(expression: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"train.py": SCENES.replace("EXPRESSION", expression)}, "OOM110")).severity == severity


@pytest.mark.parametrize(
    ("expression", "severity"),
    [
        ("torch.load(one[0]), one[1]", "note"),
        ("torch.load(self.taken[index][0])", "note"),
        ("self.both(*one)", "warning"),
        ("one[0].lower(), one[1].lower()", "warning"),
    ],
)
def test_records_with_the_path_of_a_file_are_a_note_and_pairs_of_texts_are_a_warning(expression: str, severity: str, tmp_path: Path) -> None:
    records = SCENES.replace("row.rstrip() for", "tuple(row.rstrip().split()) for").replace("EXPRESSION", expression)
    assert only(check(tmp_path, {"train.py": records}, "OOM110")).severity == severity


STEMS = """
import soundfile
import torch
from torch.utils.data import DataLoader, Dataset

class Stems(Dataset):
    def __init__(self, songs):
        self.count = len(songs)
        self.kinds = ["voice", "drums", "bass"]
        self.stems = {number: MADE for number in range(self.count)}

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.stack([self.part(index, kind) for kind in self.kinds])

    def part(self, index, kind):
        told = {"KEY": self.stems[index][kind], "start": 0}
        return torch.from_numpy(soundfile.read(**told)[0])

loader = DataLoader(Stems(songs), num_workers=4)
"""


@pytest.mark.parametrize(
    ("made", "key", "severity"),
    [
        pytest.param("{kind: songs[number].sources[kind].path for kind in self.kinds}", "file", "note", id="paths"),
        pytest.param("{kind: songs[number].sources[kind].text for kind in self.kinds}", "title", "warning", id="another argument"),
        pytest.param("{'voice': songs[number].path, 'text': songs[number].text}", "file", "warning", id="beside a text"),
    ],
)
def test_paths_that_a_call_is_given_by_a_dictionary_are_a_note(made: str, key: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"train.py": STEMS.replace("MADE", made).replace("KEY", key)}, "OOM110")).severity == severity


CLIPS = """\
import pickle

import torch
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, path):
        self.clips = pickle.load(open(path, "rb"))

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        return TAKEN, self.clips[index]["text"]


loader = DataLoader(Clips("clips.pkl"), num_workers=4MORE)
"""


@pytest.mark.parametrize(
    ("taken", "more", "code"),
    [
        ("torch.from_numpy(self.clips[index]['frames'])", "", "OOM114"),
        ("torch.from_numpy(self.clips[index]['frames'])", ", multiprocessing_context='spawn'", "OOM110"),
        ("self.clips[index]['frames'][:, :3]", "", "OOM114"),
        ("self.clips[index]['words']", "", "OOM110"),
    ],
)
def test_forked_workers_do_not_copy_the_arrays_in_records(taken: str, more: str, code: str, tmp_path: Path) -> None:
    text = CLIPS.replace("TAKEN", taken).replace("MORE", more)
    assert only(check(tmp_path, {"train.py": text}, "OOM11")).code == code


FRAMES = """\
import h5py
import numpy as np
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, path, transform):
        self.frames = READ
        self.transform = transform

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, index):
        return TAKEN


def make(path, transform):
    return DataLoader(Frames(path, transform), num_workers=COUNT)
"""


@pytest.mark.parametrize(
    ("read", "taken", "count", "severity"),
    [
        ("np.load(path)", "self.frames[index]", 8, "warning"),
        ("np.load(path)", "np.random.permutation(self.frames[index])", 8, "warning"),
        ("np.load(path)", "self.transform(self.frames[index])", 8, "note"),
        ("np.load(path)", "self.transform(self.frames[index])", 16, "warning"),
        ("np.zeros((4096, 256, 256))", "self.transform(self.frames[index])", 8, "warning"),
        ("h5py.File(path)['frames'][:]", "self.transform(self.frames[index])", 8, "warning"),
    ],
)
def test_workers_that_transform_what_they_index_are_a_note(read: str, taken: str, count: int, severity: str, tmp_path: Path) -> None:
    text = FRAMES.replace("READ", read).replace("TAKEN", taken).replace("COUNT", str(count))
    assert only(check(tmp_path, {"train.py": text}, "OOM114")).severity == severity


BLOCKS = """\
import h5py
import torch
from torch.utils.data import DataLoader, Dataset


class Blocks(Dataset):
    def __init__(self, path):
        self.blocks = []
        with h5py.File(path, "r") as f:
            rows = f["blocks"][:]
        for row in rows:
            self.blocks.append(torch.from_numpy(row))

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        return self.blocks[index]


loader = DataLoader(Blocks("blocks.h5"), num_workers=4)
"""


def test_workers_share_the_storages_of_tensors_in_a_list(tmp_path: Path) -> None:
    """Under spawn and forkserver, too: what is pickled is where a storage lies."""
    (tmp_path / "train.py").write_text(BLOCKS)
    settings = Settings().with_overrides(select=["OOM114"], severity="note")
    found = only(run([str(tmp_path)], settings, tmp_path, RunOptions(cache=False, processes=1)))
    assert (found.severity, "copy" in found.message) == ("note", False)


TITLES = """\
import json
import numpy as np
from torch.utils.data import DataLoader, Dataset


class Songs(Dataset):
    def __init__(self, path):
        self.songs = json.load(open(path))

    def __len__(self):
        return len(self.songs)

    def __getitem__(self, index):
        return self.songs[index]["words"], WAVE


loader = DataLoader(Songs("songs.json"), num_workers=COUNT)
"""


@pytest.mark.parametrize(
    ("wave", "count", "severity"), [('np.load(f"{index}.npy")', 2, "note"), ('np.load(f"{index}.npy")', 4, "warning"), ("index", 2, "warning")]
)
def test_a_few_workers_copy_little_of_records_that_stand_beside_files(wave: str, count: int, severity: str, tmp_path: Path) -> None:
    text = TITLES.replace("WAVE", wave).replace("COUNT", str(count))
    assert only(check(tmp_path, {"train.py": text}, "OOM110")).severity == severity


CALLS = """
import json
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Calls(Dataset):
    def __init__(self, path):
        self.calls = [[one["file"], one["words"]] for one in json.load(open(path))]

    def __len__(self):
        return len(self.calls)

    def __getitem__(self, index):
        return self.calls[index]


def together(rows):
    return torch.stack([READ for row in rows])


class CallLoader(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.collate_fn = together


loader = MADE
"""


@pytest.mark.parametrize(
    ("read", "made", "severity"),
    [
        ("torch.from_numpy(np.load(row[0]))", 'DataLoader(Calls("calls.json"), num_workers=2, collate_fn=together)', "note"),
        ("torch.from_numpy(np.load(row[0]))", 'CallLoader(Calls("calls.json"), num_workers=2)', "note"),
        ("torch.from_numpy(np.load(row[0]))", 'CallLoader(Calls("calls.json"), num_workers=4)', "warning"),
        ("torch.tensor(len(row[1]))", 'CallLoader(Calls("calls.json"), num_workers=2)', "warning"),
    ],
)
def test_records_whose_files_are_read_as_they_are_put_together_stand_beside_files(read: str, made: str, severity: str, tmp_path: Path) -> None:
    text = CALLS.replace("READ", read).replace("MADE", made)
    assert only(check(tmp_path, {"train.py": text}, "OOM110")).severity == severity


@pytest.mark.parametrize(
    ("made", "more", "severity"),
    [("", "", "note"), ("", ", persistent_workers=True", "warning"), ("dataset = Songs('songs.json')", "", "warning")],
)
def test_a_loader_that_is_built_again_alone_is_a_note(made: str, more: str, severity: str, tmp_path: Path) -> None:
    text = f"""\
    from songs import Songs
    from torch.utils.data import DataLoader

    def train(model, dataset, epochs):
        for epoch in range(epochs):
            {made or "pass"}
            for batch in DataLoader(dataset, num_workers=4{more}):
                model.step(batch)
    """
    files = {"train.py": text, "songs.py": TITLES.replace("WAVE", "index").partition("loader =")[0]}
    assert only(check(tmp_path, files, "OOM123")).severity == severity


def test_a_context_that_may_be_none_says_nothing_of_how_workers_start(tmp_path: Path) -> None:
    text = FRAMES.replace("READ", "np.load(path)").replace("TAKEN", "self.frames[index]").replace("COUNT", "8, multiprocessing_context=context")
    text = text.replace("def make(path, transform)", "def make(path, transform, main=True)").replace(
        "    return DataLoader", "    context = None if main else 'forkserver'\n    return DataLoader"
    )
    assert only(check(tmp_path, {"train.py": text}, "OOM11")).code == "OOM114"


PICTURES = """\
import json

from PIL import Image
from torch.utils.data import DataLoader, Dataset


def opened(path):
    return Image.open(path)


def measured(text):
    return len(text)


class Pictures(Dataset):
    def __init__(self, root, train=True, read=READ):
        self.rows = [(row.split()[0], [word == "1" for word in row.split()[1:]]) for row in open(root)]
        self.train, self.read = train, read

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        rows = self.rows if self.train else []
        path, label = rows[index]
        return self.read(path), label


loader = DataLoader(Pictures("rows.txt"), num_workers=4)
"""


@pytest.mark.parametrize(("read", "severity"), [("opened", "note"), ("Image.open", "note"), ("measured", "warning")])
def test_a_path_is_followed_into_a_function_that_the_dataset_was_given(read: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"train.py": PICTURES.replace("READ", read)}, "OOM110")).severity == severity


READS = """\
    import h5py

    def read(path):
        file = h5py.File(path, "MODE")
        return file["x"][:]

    CALL
    """


@pytest.mark.parametrize(
    ("call", "mode", "severity"),
    [
        ("data = read('a.h5')", "r", "note"),
        ("data = read('a.h5')", "r+", "note"),
        ("data = [read(path) for path in open('files')]", "r", "note"),
        ("for path in open('files'):\n        read(path)", "r", "note"),
        ("for path in open('files'):\n        read(path)", "a", "note"),
        ("import torch\nclass D:\n    def __len__(self): return 1\n    def __getitem__(self, i): return read(i)", "r", "warning"),
        ("class D:\n    def __init__(self, loader=read): self.loader = loader", "r", "warning"),
    ],
)
def test_a_file_that_is_read_but_not_for_every_sample_is_a_note(call: str, mode: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"train.py": textwrap.dedent(READS).replace("MODE", mode).replace("CALL", call)}, "OOM307")).severity == severity


SCORES = """\
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    def evaluate(network, dataset, words):
        network.eval()
        criterion = nn.CrossEntropyLoss()
        parts = []
        for inputs, targets in DataLoader(dataset, batch_size=8):
            with torch.no_grad():
                output = network(inputs)
            parts.append(output.cpu())
            print(criterion(SCORES, targets))
        return torch.cat(parts)

    def report(network, dataset, path):
        torch.save(evaluate(network, dataset, 50_000), path)
    """


UNUSED_COPY = """\
    import numpy as np
    import torch
    from torch.utils.data import DataLoader

    @torch.no_grad()
    def index(dataset, encoder):
        encoder.eval()
        vectors = {}
        for name, batch in DataLoader(dataset):
            vector = encoder(batch.cuda())
            COPY
            vectors[name] = vector
        return vectors

    def search(dataset, encoder):
        found = index(dataset, encoder.cuda())
        return {name: vector.cpu().numpy() for name, vector in found.items()}
    """


@pytest.mark.parametrize(("copy", "severity"), [("vector.to('cpu')", "warning"), ("vector.cpu()", "warning"), ("print(name)", "note")])
def test_a_copy_on_the_host_that_nobody_takes_is_a_warning(copy: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"index.py": textwrap.dedent(UNUSED_COPY).replace("COPY", copy)}, "OOM220")).severity == severity


CHUNKS = """\
    import torch

    @torch.no_grad()
    def render(network, rays, chunk):
        network.eval()
        TAKES
        found = []
        for start in range(0, rays.shape[0], chunk):
            found.append(network(rays[start : start + chunk].cuda()).view(chunk, 80, 3))
        return torch.cat(found).cpu()
    """


@pytest.mark.parametrize("steps", [("0, rays.shape[0], chunk", "chunk"), ("rays.shape[0]", "1")])
@pytest.mark.parametrize(("takes", "severity"), [("pass", "note"), ('rays = torch.load("rays.pt")', "warning")])
def test_outputs_for_chunks_of_an_argument_are_a_note(takes: str, severity: str, steps: tuple[str, str], tmp_path: Path) -> None:
    counted, size = steps
    program = textwrap.dedent(CHUNKS).replace("TAKES", takes).replace("0, rays.shape[0], chunk", counted).replace("+ chunk", f"+ {size}")
    assert only(check(tmp_path, {"render.py": program}, "OOM220")).severity == severity


CLIP = """\
    import numpy as np
    import torch

    def prepared(frames):
        pictures = torch.from_numpy(np.float32(frames).transpose(0, 3, 1, 2))
        return pictures, torch.tensor([1, 2])

    @torch.no_grad()
    def detect(network, frames, chunk):
        network.eval()
        SHAPE
        pictures, scale = prepared(frames)
        found = []
        for start in range(0, number, chunk):
            found.append(network(pictures[start : start + chunk]).view(chunk, 80, 3).cpu())
        return torch.cat(found)
    """


@pytest.mark.parametrize(
    ("shape", "severity"),
    [
        pytest.param("number, height, width, channels = frames.shape", "note", id="all axes"),
        pytest.param("number = frames.shape[0]", "note", id="the first"),
        pytest.param("number = len(np.load('frames.npy'))", "warning", id="of something else"),
    ],
)
def test_outputs_for_chunks_of_what_is_made_of_an_argument_are_a_note(shape: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"detect.py": textwrap.dedent(CLIP).replace("SHAPE", shape)}, "OOM219")).severity == severity


DESCRIBED = """\
    import argparse
    import os

    import cv2
    import torch
    from torchvision.models import resnet50

    def describe(network, path):
        image = torch.from_numpy(cv2.imread(path)).permute(2, 0, 1).float()[None]
        return network(image).argmax().item()

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--images", nargs="+")
        parser.add_argument("--folder")
        options = parser.parse_args()
        network = resnet50()
        network.eval()
        for path in PATHS:
            print(path, describe(network, path))

    main()
    """


BEST = """\
    import os

    import cv2
    import torch
    from torchvision.models import resnet50

    def show(folder):
        network = resnet50()
        network.eval()
        best = []
        for name in os.listdir(folder):
            image = torch.from_numpy(cv2.imread(os.path.join(folder, name))).permute(2, 0, 1).float()[None]
            best.append((image.mean().item(), image))
            best.sort(key=lambda one: one[0])
            CUT
        for bar, (_, image) in enumerate(best):
            print(network(image).argmax().item())
    """


@pytest.mark.parametrize(("cut", "severity"), [("best = best[:5]", "note"), ("pass", "warning")])
def test_an_evaluation_of_the_best_of_all_is_a_note(cut: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"show.py": textwrap.dedent(BEST).replace("CUT", cut)}, "OOM204")).severity == severity


@pytest.mark.parametrize(("paths", "severity"), [("options.images", "note"), ("os.listdir(options.folder)", "warning")])
def test_an_evaluation_of_what_somebody_types_is_a_note(paths: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"describe.py": textwrap.dedent(DESCRIBED).replace("PATHS", paths)}, "OOM204")).severity == severity


POOLED = """\
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils.data import DataLoader

    class Embedder(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Conv2d(3, 256, 3)
            self.pool = nn.AdaptiveAvgPool2d(PLACES)

        def forward(self, images):
            return self.pool(self.body(images))

    @torch.no_grad()
    def embed(dataset, model):
        found = []
        for images in DataLoader(dataset, batch_size=8):
            maps = model(images.cuda())
            MEASURED
            found.append(KEPT.cpu())
        return torch.cat(found)

    def report(dataset, model):
        print(embed(dataset, MODEL.cuda().eval()).std())
    """


@pytest.mark.parametrize(
    ("kept", "measured", "model", "places", "severity"),
    [
        ("maps", "pass", "Embedder()", "(1, 1)", "note"),  # one number of each channel
        ("maps", "pass", "model", "1", "note"),  # nobody knows how many axes
        ("maps", "count, channels, height, width = maps.shape", "model", "1", "warning"),
        ("maps", "[count, channels, height, width] = maps.size()", "model", "1", "warning"),
        ("maps.argmax(1)", "count, channels, height, width = maps.shape", "model", "1", "warning"),
        ("maps", "count, width = maps.shape", "model", "1", "note"),
        ("functional.avg_pool2d(maps, (height, width))", "count, channels, height, width = maps.shape", "model", "1", "note"),
        ("functional.adaptive_avg_pool2d(maps, 1)", "count, channels, height, width = maps.shape", "model", "1", "note"),
        ("functional.max_pool2d(maps, 2)", "count, channels, height, width = maps.shape", "model", "1", "warning"),
    ],
)
def test_a_measured_shape_tells_the_axes_and_a_pooling_to_one_place_leaves_a_row(
    kept: str, measured: str, model: str, places: str, severity: str, tmp_path: Path
) -> None:
    program = textwrap.dedent(POOLED).replace("KEPT", kept).replace("MEASURED", measured).replace("MODEL", model).replace("PLACES", places)
    assert only(check(tmp_path, {"embed.py": program}, "OOM219")).severity == severity


@pytest.mark.parametrize(("scores", "severity"), [("output", "note"), ("output.view(-1, words)", "warning")])
def test_scores_of_the_classes_of_a_sample_are_a_note_and_those_of_each_token_a_warning(scores: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"train.py": textwrap.dedent(SCORES).replace("SCORES", scores)}, "OOM219")).severity == severity


KEPT = """\
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    class Made(nn.Module):
        @classmethod
        def restored(cls, state, **settings):
            network = cls(**settings)
            network.load_state_dict(state)
            return network

    class Tokens(Made):
        def __init__(self, width):
            super().__init__()
            self.words = nn.Embedding(1000, width)

        def forward(self, texts, lengths):
            return self.words(texts).view(texts.shape[0], -1, 64)

    class Pooled(Made):
        def __init__(self, width):
            super().__init__()
            self.steps = nn.GRU(64, width)
            self.head = nn.Linear(width, 300)

        def forward(self, series, lengths):
            found, _ = self.steps(series)
            return self.head(found[tuple(torch.stack((lengths - 1, torch.arange(len(lengths)))))])

    @torch.no_grad()
    def over_a_loader(network, dataset):
        network.cuda().eval()
        kept = []
        for inputs, lengths in DataLoader(dataset, batch_size=8):
            kept.append(network(inputs.cuda(), lengths).HOST)
        return torch.cat(kept).numpy()

    over_a_loader(NETWORK.restored(STATE, width=64), DATA)
    """


@pytest.mark.parametrize(("network", "severity"), [("Tokens", "warning"), ("Pooled", "note")])
@pytest.mark.parametrize(("host", "code"), [("cpu()", "OOM219"), ("float()", "OOM220")])
def test_outputs_weigh_by_their_axes_wherever_they_are_kept(network: str, severity: str, host: str, code: str, tmp_path: Path) -> None:
    program = textwrap.dedent(KEPT).replace("NETWORK", network).replace("HOST", host)
    assert only(check(tmp_path, {"train.py": program}, code)).severity == severity


JOINED = """\
    import torch
    from torch.utils.data import DataLoader

    def gates_of(network, dataset):
        network.cuda().eval()
        kept = [[] for _ in range(3)]
        for batch in DataLoader(dataset, batch_size=8):
            with torch.no_grad():
                out = network(batch.cuda())
                for j in range(3):
                    kept[j].append(out["gates"][j])
        for j in range(3):
            kept[j] = torch.JOIN(kept[j])
            found = kept[j].cpu().numpy()
            SHOWN
            print(found)
    """


@pytest.mark.parametrize(
    ("join", "shown", "severity"),
    [
        ("cat", "samples, steps, width = found.shape", "warning"),
        ("cat", "found = found[:, 3, :]", "warning"),
        ("cat", "samples, width = found.shape", "note"),
        ("stack", "rounds, samples, width = found.shape", "note"),
        ("stack", "rounds, samples, steps, width = found.shape", "warning"),
    ],
)
def test_outputs_weigh_by_the_axes_of_the_array_that_they_are_joined_to(join: str, shown: str, severity: str, tmp_path: Path) -> None:
    program = textwrap.dedent(JOINED).replace("JOIN", join).replace("SHOWN", shown)
    assert only(check(tmp_path, {"gates.py": program}, "OOM220")).severity == severity


STATES = """\
    import torch
    from torch.utils.data import DataLoader
    from transformers import AutoModel

    @torch.no_grad()
    def embed(dataset, path):
        model = AutoModel.from_pretrained("encoder").cuda().eval()
        kept = []
        for batch in DataLoader(dataset, batch_size=8):
            out = model(batch.cuda())
            kept.append(TAKEN)
        torch.save(torch.cat(kept).cpu(), path)
    """


@pytest.mark.parametrize(
    ("taken", "code", "severity"),
    [
        ("out.last_hidden_state.cpu()", "OOM219", "warning"),
        ('out["last_hidden_state"].cpu()', "OOM219", "warning"),
        ("out.hidden_states[-1].cpu()", "OOM219", "warning"),
        ("out.last_hidden_state", "OOM220", "warning"),
        ("out.last_hidden_state[:, None].cpu()", "OOM219", "warning"),
        ("out.last_hidden_state[:, 0].cpu()", "OOM219", "note"),
        ("out.pooler_output.cpu()", "OOM219", "note"),
    ],
)
def test_the_states_of_all_tokens_have_two_axes_for_each_sample(taken: str, code: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"embed.py": textwrap.dedent(STATES).replace("TAKEN", taken)}, code)).severity == severity


REPEATED = """\
    import argparse
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=TIMES)
    options = parser.parse_args()

    def generate(network):
        network.cuda().eval()
        kept = []
        for number in range(options.repeats):
            with torch.no_grad():
                noise = torch.randn(8, 100, 64).cuda()
                made = network(noise).permute(0, 2, 1)
            kept.append(made.cpu())
        return torch.cat(kept).numpy()
    """


@pytest.mark.parametrize(("times", "severity"), [("3", "note"), ("50_000", "warning")])
def test_rounds_that_an_option_counts_weigh_as_its_default_does(times: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"sample.py": textwrap.dedent(REPEATED).replace("TIMES", times)}, "OOM219")).severity == severity


HANDED = """\
    import numpy as np
    import torch

    class Speaker:
        def speak(self, texts, size=8):
            rows = [encode(text) for text in ROWS]
            parts = [rows[start : start + size] for start in range(0, len(rows), size)]
            kept = []
            for part in parts:
                with torch.no_grad():
                    made = self.network(torch.tensor(part)).permute(0, 2, 1)
                kept.append(made.cpu().numpy())
            return kept
    """


@pytest.mark.parametrize(("rows", "severity"), [("texts", "note"), ('open("lines.txt")', "warning")])
def test_outputs_for_what_a_caller_hands_over_and_gets_back_are_a_note(rows: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"speak.py": textwrap.dedent(HANDED).replace("ROWS", rows)}, "OOM219")).severity == severity


ERRORS = """\
    import numpy as np
    import torch

    class Frame:
        def __init__(self, sizes):
            self.top, self.left = sizes[-2] % 8, sizes[-1] % 8

        def inner(self, x):
            high, wide = x.shape[-2:]
            return CUT

    @torch.no_grad()
    def validate(network, samples):
        network.eval()
        errors = []
        for index in range(len(samples)):
            image, wanted = samples[index]
            found = Frame(image.shape).inner(network(image[None].cuda())[0]).cpu()
            error = torch.sum((found - wanted) ** 2, dim=AXIS).sqrt()
            errors.append(error.view(-1).numpy())
        return np.mean(np.concatenate(errors))
    """


@pytest.mark.parametrize(("cut", "axis", "told"), [("x[..., self.top : high, self.left : wide]", "0", ["warning"]), ("x[..., self.left : wide]", "1", [])])
def test_an_error_for_each_pixel_weighs_as_the_image_does(cut: str, axis: str, told: list[str], tmp_path: Path) -> None:
    program = textwrap.dedent(ERRORS).replace("CUT", cut).replace("AXIS", axis)
    assert [found.severity for found in check(tmp_path, {"validate.py": program}, "OOM219").findings] == told


FUNCTION = """\
    import torch

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, features, idx: torch.Tensor):
            ctx.kept = KEPT
            return features.gather(1, idx)

        @staticmethod
        def backward(ctx, grad):
            return grad.sum(dim=0), None
    """


@pytest.mark.parametrize(("kept", "severity"), [("(idx, 3)", "note"), ("(features, 3)", "warning")])
def test_an_input_without_a_gradient_on_the_context_is_a_note(kept: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"ops.py": FUNCTION.replace("KEPT", kept)}, "OOM216")).severity == severity


ASKS = f"{LOADER}import argparse\ndef parse():\n    return argparse.ArgumentParser().parse_args()\n"
DRAWS = f"{LOADER}import torch\nimport matplotlib.pyplot as plt\ndef show(x):\n    plt.imshow(x)\n    plt.show()\n"
STEP = "def step(x):\n    x.sum().backward()\n    return x\n"
CRASH = "DataLoader(range(8), num_workers=0, persistent_workers=True)\n"


@pytest.mark.parametrize(
    ("files", "severity"),
    [
        ({"data.py": f"{LOADER}loader = {CRASH}"}, "error"),
        ({"data.py": f"{LOADER}if __name__ == '__main__':\n    loader = {CRASH}"}, "error"),
        ({"data.py": f"{LOADER}if __name__ == '__main__':\n    loader = {CRASH}", "train.py": "from data import DataLoader\n"}, "warning"),
        ({"data.py": f"{LOADER}def main():\n    loader = {CRASH}\nif __name__ == '__main__':\n    main()\n", "train.py": "import data\n"}, "warning"),
        (
            {"data.py": f"{LOADER}def main():\n    loader = {CRASH}\nif __name__ == '__main__':\n    main()\n", "run.py": "from data import main\nmain()\n"},
            "error",
        ),
        ({"data.py": f"{LOADER}if __name__ == '__main__':\n    loader = {CRASH}", "train.py": "from other import data\n"}, "error"),
        ({"data.py": f"{LOADER}if __name__ == '__main__':\n    for x in {CRASH.strip()}:\n        x.backward()\n", "train.py": "import data\n"}, "error"),
        ({"data.py": f"{ASKS}if __name__ == '__main__':\n    args = parse()\n    loader = {CRASH}", "train.py": "import data\n"}, "error"),
        (
            {"data.py": f"{LOADER}import numpy\nif __name__ == '__main__':\n    loader = {CRASH}    numpy.save('x', [*loader])\n", "a.py": "import data\n"},
            "error",
        ),
        ({"data.py": f"{LOADER}import pytest\nloader = {CRASH}"}, "warning"),
        ({"look.py": f"{DRAWS}for x in {CRASH.strip()}:\n    show(x)\n"}, "warning"),
        ({"look.py": f"{DRAWS}for x in {CRASH.strip()}:\n    show(x)\n", "train.py": "from look import show\n"}, "error"),
        ({"look.py": f"{DRAWS}for x in {CRASH.strip()}:\n    show(x)\ntorch.save(x, 'x.pt')\n"}, "error"),
        ({"look.py": f"{DRAWS}from steps import step\nfor x in {CRASH.strip()}:\n    show(step(x))\n", "steps.py": STEP}, "error"),
        ({"look.py": f"{DRAWS}model = torch.nn.Linear(4, 2)\nmodel.eval()\nfor x in {CRASH.strip()}:\n    y = model(x)\nshow(y)\n"}, "error"),
    ],
)
def test_code_that_does_not_train_is_one_step_less_grave(files: dict[str, str], severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, files, "OOM101")).severity == severity


OLD = f"{LOADER}def make():\n    return {CRASH}"
USED = {"data.py": "size = 3\n", "train.py": "import data\nprint(data.size)\n"}
BY_TEXT = "import data\nfrom importlib import import_module\nimport_module({}).make()\n"
OTHER = {"other.py": "def make():\n    return 1\n"}
SPEAKS = "def start():\n    return Old()\n"
TESTED = "from data import start\ndef test_start():\n    assert start()\n"
WALKS = "import pkgutil\nfor finder, name, _ in pkgutil.walk_packages(__path__):\n    finder.find_module(name).load_module(name)\n"
CLASS = f"{LOADER}class Old:\n    loader = {CRASH}size = 3\n"


TRIED = f"{LOADER}class Net:\n    pass\n\nif __name__ == '__main__':\n    net = Net()\n    for x in {CRASH.strip()}:\n        print(net(x))\n"


@pytest.mark.parametrize(
    ("files", "severity"),
    [
        ({**USED, "net.py": TRIED}, "warning"),
        ({"net.py": TRIED}, "error"),
        ({**USED, "net.py": TRIED.replace("class Net", "class Other").replace("Net()", "print")}, "error"),
        ({**USED, "net.py": f"{TRIED}    net.backward()\n"}, "error"),
    ],
)
def test_what_tries_a_part_of_its_own_is_one_step_less_grave(files: dict[str, str], severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, files, "OOM101")).severity == severity


@pytest.mark.parametrize(
    ("files", "severity"),
    [
        ({**USED, "old.py": OLD}, "warning"),
        ({**USED, "old.py": OLD, "older.py": "import old\ndef f():\n    return old.make()\n"}, "warning"),
        ({**USED, "old.py": OLD, "newer.py": "import old\nprint(old.make())\n"}, "error"),
        ({**USED, "old.py": OLD, "test_old.py": "import old\ndef test_make():\n    assert old.make()\n"}, "error"),
        ({**USED, "old.py": f"{OLD}\nmake()\n"}, "error"),
        ({"old.py": OLD}, "error"),
        ({"old.py": OLD, "train.py": "print('files that stand alone')\n"}, "error"),
        ({**USED, "old.py": OLD, "train.py": BY_TEXT.format("data.name")}, "warning"),
        ({**USED, "old.py": OLD, "train.py": BY_TEXT.format("data.name"), "settings.yaml": "loader: old\n"}, "error"),
        ({**USED, "old.py": OLD, "train.py": BY_TEXT.format("'models.' + data.name"), "settings.yaml": "loader: old\n"}, "warning"),
        ({"data.py": CLASS, "train.py": "from data import size\nprint(size)\n"}, "warning"),
        ({"data.py": CLASS, "train.py": "from data import Old\nprint(Old)\n"}, "error"),
        ({"data.py": f"{OLD}size = 3\n", "train.py": "from data import make, size\nprint(size)\n"}, "warning"),
        ({"data.py": f"{OLD}size = 3\n", "train.py": "from data import make, size\nprint(make, size)\n"}, "error"),
        ({"data.py": f"{OLD}size = 3\n", "train.py": "from data import make as other, size\nprint(other, size)\n"}, "error"),
        ({"data.py": f"{OLD}size = 3\n", "train.py": "from data import size\nprint(size)\n"}, "error"),  # whoever reads it may call it
        ({"data.py": f"{OLD}first = [make]\n", "train.py": "from data import first, make\nprint(first)\n"}, "error"),
        ({"kit/data.py": OLD, "kit/__init__.py": "from kit.data import make\n", "train.py": "import kit\nprint(kit)\n"}, "error"),
        ({"data.py": f"{OLD}size = 3\n", "train.py": "from data import size\nprint(size)\n", "new.py": "from other import make\nmake()\n", **OTHER}, "warning"),
        ({"data.py": f"{OLD}size = 3\n", "train.py": "import data\nprint(data.make())\n", "new.py": "from other import make\nmake()\n", **OTHER}, "error"),
        ({"data.py": f"{OLD}size = 3\n", "train.py": "from data import size\nprint(size)\n", "new.py": "from library import make\nmake()\n"}, "error"),
        ({"data.py": f"{CLASS}{SPEAKS}", "train.py": "from data import size, start\nprint(size)\n"}, "warning"),
        ({"data.py": f"{CLASS}{SPEAKS}", "train.py": "from data import size, start\nprint(size, start())\n"}, "error"),
        ({"data.py": f"{CLASS}{SPEAKS}", "train.py": "from data import size, start\nprint(size)\n", "test_data.py": TESTED}, "error"),
        ({"data.py": CLASS, "train.py": "from data import Old, size\nprint(size)  # Old\n"}, "warning"),
        ({"data.py": f"{OLD}size = 3\n", "train.py": "from data import make, size\nprint(size)\n", "kit/__init__.py": WALKS}, "warning"),
        ({"kit/data.py": f"{OLD}size = 3\n", "train.py": "from kit.data import make, size\nprint(size)\n", "kit/__init__.py": WALKS}, "error"),
    ],
)
def test_what_no_program_of_the_project_reaches_is_one_step_less_grave(files: dict[str, str], severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, files, "OOM101")).severity == severity


def test_layers_of_files_that_nothing_runs_are_gone_through_once(tmp_path: Path) -> None:
    layers = {f"part_{row}_{n}.py": "".join(f"import part_{row + 1}_{m}\n" for m in range(4)) for row in range(12) for n in range(4)}
    last = {f"part_12_{n}.py": "import old\n" for n in range(4)}
    assert only(check(tmp_path, {**USED, "old.py": OLD, **layers, **last}, "OOM101")).severity == "warning"


def test_a_call_in_another_file_is_weighed_by_what_that_file_is_there_for(tmp_path: Path) -> None:
    speech = f"{LOADER}class Speech(DataLoader):\n    def __init__(self, data, **options):\n        super().__init__(data, **options)\n"
    shown = f"{speech}if __name__ == '__main__':\n" + "    print(len(Speech(range(8))))\n" * 9
    train = "from loaders import Speech\n" + "\n" * 7 + "loader = Speech(range(8), num_workers=48)\n"
    assert only(check(tmp_path, {"loaders.py": shown, "train.py": train}, "OOM120")).severity == "warning"


LINES = """\
from torch.utils.data import DataLoader, Dataset

class Lines(Dataset):
    def __init__(self, path):
        self.lines = open(path).read().splitlines()

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        return self.lines[index]

"""


def test_what_loaders_of_several_files_say_of_one_container_is_said_once(tmp_path: Path) -> None:
    files = {
        "data.py": f"{LINES}loader = DataLoader(Lines('a'), num_workers=2)\n",
        "train.py": f"{LOADER}from data import Lines\ntrain = DataLoader(Lines('a'), num_workers=3)\nvalid = DataLoader(Lines('b'), num_workers=2)\n",
    }
    found = only(check(tmp_path, files, "OOM110"))
    assert (found.place.path, found.place.row) == (str(tmp_path / "train.py"), 3), "the one with the most workers"
    assert {(place.path.rpartition("/")[2], place.row) for place in found.related} >= {("data.py", 13), ("train.py", 4), ("data.py", 5)}
    each = check(tmp_path, files, "OOM110", RunOptions(cache=False, processes=1, once=False))
    assert len(each.findings) == 3


def test_what_is_said_once_is_fixed_at_each_place(tmp_path: Path) -> None:
    data = """\
        import numpy as np
        from torch.utils.data import DataLoader, Dataset

        class Rows(Dataset):
            def __init__(self, path):
                self.rows = np.load(path)

            def __len__(self):
                return len(self.rows)

            def __getitem__(self, index):
                return self.rows[index]

        train = DataLoader(Rows("train.npy"), num_workers=8)
        valid = DataLoader(Rows("valid.npy"), num_workers=8)
        """
    assert only(check(tmp_path, {"train.py": data}, "OOM114")).place.row == 14
    fixed = check(tmp_path, {"train.py": data}, "OOM114", RunOptions(cache=False, processes=1, fix=True, unsafe_fixes=True))
    assert fixed.findings == ()
    assert (tmp_path / "train.py").read_text(encoding="utf-8").count("num_workers=0") == 2


CLOUDS = (
    LOADER
    + """\
import numpy as np
import torch

class Clouds(Dataset):
    def __init__(self, files):
        self.files = files
        self.clouds = []
        for file in files:
            self.clouds.append(torch.from_numpy(np.load(file)))

    def __len__(self):
        return len(self.files) * 500

    def __getitem__(self, index):
        {reads}
        return self.clouds[cloud]

def make(files):
    return DataLoader(Clouds(files), num_workers=2)
"""
)


@pytest.mark.parametrize(
    ("reads", "severity"), [("cloud = index", "warning"), ("cloud = index % 7", "warning"), ("cloud = int(torch.argmin(self.clouds[0]))", "note")]
)
def test_tensors_of_which_there_is_not_one_for_each_sample_are_a_note(reads: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"data.py": CLOUDS.format(reads=reads)}, "OOM113")).severity == severity


def test_loaders_that_share_a_function_which_cannot_be_sent_are_one_finding(tmp_path: Path) -> None:
    text = f"""\
{LOADER}
def make(train, valid):
    def seed(worker):
        print(worker)

    first = DataLoader(train, num_workers=2, worker_init_fn=seed)
    return first, DataLoader(valid, num_workers=2, worker_init_fn=seed)
"""
    found = only(check(tmp_path, {"data.py": text}, "OOM111"))
    assert (found.place.row, [place.row for place in found.related]) == (7, [4, 8])


def test_what_becomes_part_of_a_path_is_a_name_whatever_file_it_came_from(tmp_path: Path) -> None:
    text = f"""
{LOADER}
import pickle
import numpy as np
class Pictures(Dataset):
    def __init__(self, root, listed):
        self.root = root
        with open(listed, "rb") as file:
            self.listed = pickle.load(file)
    def __len__(self):
        return len(self.listed)
    def __getitem__(self, index):
        suffix = self.listed[index]
        return np.load(self.root + "/pictures/" + suffix)
loader = DataLoader(Pictures("data", "listed.p"), batch_size=4, num_workers=3)
"""
    assert only(check(tmp_path, {"data.py": text}, "OOM110")).severity == "note"


def test_scripts_that_repeat_the_same_function_are_one_finding(tmp_path: Path) -> None:
    text = f"""\
{LOADER}
def make(train):
    def seed(worker):
        print(worker)

    return DataLoader(train, num_workers=2, worker_init_fn=seed)
"""
    found = only(check(tmp_path, {f"train_{number:02}.py": text for number in range(12)}, "OOM111"))
    assert [place.path.rpartition("/")[2] for place in found.related] == ["train_00.py", *(f"train_{number:02}.py" for number in range(1, 8))]
    assert found.message.endswith("; also in 4 more loaders")


PASSAGES = f"""\
import pickle
{LOADER}
class Passages(Dataset):
    def __init__(self, path):
        {{first}}
        with open(path, "rb") as file:
            self.passages = {{read}}

    def __len__(self):
        return len(self.passages)

    def __getitem__(self, index):
        return self.passages[index]

loader = DataLoader(Passages("passages.pkl"), num_workers=2)
"""


@pytest.mark.parametrize(("read", "told"), [("pickle.load(file)", 1), ("pickle.load(file)[0]", 2)])
def test_a_copy_of_a_function_that_was_changed_elsewhere_is_one_still(read: str, told: int, tmp_path: Path) -> None:
    first = PASSAGES.format(first="self.path = path", read="pickle.load(file)")
    found = check(tmp_path, {"first.py": first, "second.py": PASSAGES.format(first="super().__init__()", read=read)}, "OOM402").findings
    assert len(found) == told
    assert found[0].message.endswith("; also in 1 more file") is (told == 1)


def test_what_is_told_with_a_copy_goes_with_it(tmp_path: Path) -> None:
    text = f"""\
import h5py
{LOADER}
class Pairs(Dataset):
    def __init__(self, path):
        with h5py.File(path, "r") as file:
            self.left = file["left"][:]
            self.right = file["right"][:]

    def __len__(self):
        return len(self.left)

    def __getitem__(self, index):
        return self.left[index], self.right[index]

loader = DataLoader(Pairs("pairs.h5"), num_workers=2)
"""
    found = only(check(tmp_path, {"first.py": text, "second.py": text}, "OOM305"))
    assert sorted((place.path.rpartition("/")[2], place.row) for place in (found.place, *found.related)) == [
        ("first.py", row := found.place.row),
        ("first.py", row + 1),
        ("second.py", row),
        ("second.py", row + 1),
    ]


def test_what_a_loop_keeps_besides_is_told_where_it_stands(tmp_path: Path) -> None:
    text = """
        import torch
        from torch import nn
        from torch.utils.data import DataLoader
        def main(data):
            model = nn.Linear(8, 1)
            for epoch in range(9):
                train(model, DataLoader(data), torch.optim.SGD(model.parameters(), lr=0.1))
        def train(model, loader, optimizer):
            first, second = [], []
            for x, y in loader:
                one = nn.functional.mse_loss(model(x), y)
                two = nn.functional.l1_loss(model(x), y)
                optimizer.zero_grad()
                (one + two).backward()
                optimizer.step()
                first.append(one)
                second.append(two)
            return len(first), len(second)
        main(torch.load("data.pt"))
    """
    found = only(check(tmp_path, {"train.py": text}, "OOM202"))
    assert (found.place.row, [place.row for place in found.related]) == (17, [18])


def test_rows_name_where_their_objects_come_from_and_who_holds_them(tmp_path: Path) -> None:
    files = {
        "features.py": """
            import os
            import torch
            from torch.utils.data import TensorDataset

            class Feature:
                def __init__(self, tokens):
                    self.tokens = tokens

            def features_of(lines, tokenizer, cached):
                if os.path.exists(cached):
                    return torch.load(cached)
                found = []
                for line in lines:
                    found.append(Feature(tokenizer(line)))
                return found

            def dataset_of(found):
                return TensorDataset(torch.tensor([one.tokens for one in found]))
        """,
        "train.py": """
            from features import dataset_of, features_of

            def main(lines, tokenizer):
                found = features_of(lines, tokenizer, "cached.pt")
                return dataset_of(found)
        """,
    }
    found = only(check(tmp_path, files, "OOM401"))
    places = [(place.path.rpartition("/")[2], place.row) for place in found.related[:3]]
    assert (found.place.row, places) == (19, [("features.py", 12), ("features.py", 15), ("train.py", 5)])


def test_each_statement_that_keeps_a_read_and_each_entry_of_an_archive_is_a_place(tmp_path: Path) -> None:
    files = {
        "reading.py": """
            import numpy as np

            def scans_of(names):
                return np.stack([np.load(name + ".npy") for name in names])
        """,
        "data.py": f"""
            {LOADER.strip()}
            import numpy as np
            from reading import scans_of

            class Scans(Dataset):
                def __init__(self, split, names):
                    if split == "train":
                        self.scans = scans_of(names)
                    else:
                        self.scans = scans_of(names[:-1])

                def __len__(self):
                    return len(self.scans)

                def __getitem__(self, index):
                    return self.scans[index]

            class Pairs(Dataset):
                def __init__(self, path):
                    arrays = np.load(path + ".npz")
                    self.first = arrays["first"]
                    self.second = arrays["second"][:, 0]
                    self.labels = arrays["labels"]

                def __len__(self):
                    return len(self.first)

                def __getitem__(self, index):
                    return self.first[index], self.second[index], self.labels[index]
        """,
    }
    kept = only(check(tmp_path, files, "OOM401"))
    assert [place.row for place in kept.related][1:] == [5, 9]
    archive = only(check(tmp_path, files, "OOM402"))
    assert [place.row for place in archive.related][:2] == [22, 23]


EVALUATION = """\
import numpy as np
import torch
from torch.utils.data import DataLoader

def features(model, dataset, path):
    model.eval()
    first, second = [], []
    with torch.no_grad():
        for images in DataLoader(dataset, batch_size=8):
            one, other = model(images)
            first.append(one.numpy())
            second.append(other.numpy())
    {join}
    np.savez(path, first, second)
"""


@pytest.mark.parametrize(
    "join", ["first = np.concatenate(first); second = np.concatenate(second)", "first, second = [np.concatenate(part) for part in (first, second)]"]
)
def test_where_outputs_become_one_array_is_told_with_the_list(join: str, tmp_path: Path) -> None:
    files = {"features.py": EVALUATION.format(join=join)}
    found = only(check(tmp_path, files, "OOM219"))
    assert (found.place.row, [place.row for place in found.related]) == (11, [12, 13])
    assert not check(tmp_path, files, "OOM401").findings


@pytest.mark.parametrize(("beside", "rows"), [("loss.item()", []), ("len(images)", []), ("labels", [15])])
def test_numbers_of_a_batch_are_not_told_beside_outputs(beside: str, rows: list[int], tmp_path: Path) -> None:
    text = f"""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader

        def evaluate(model, dataset):
            model.eval()
            masks, others = [], []
            with torch.no_grad():
                for images, labels in DataLoader(dataset, batch_size=8):
                    logits = nn.functional.interpolate(model(images), (64, 64))
                    loss = nn.functional.cross_entropy(logits, labels)
                    masks.append(
                        logits.cpu()
                    )
                    others.append({beside})
            return masks, others
    """
    found = only(check(tmp_path, {"evaluate.py": text}, "OOM219"))
    assert [place.row for place in found.related] == rows


# -- the weight as a fact ------------------------------------------------------------------------------------------------------

HEAVY = f"""\
import numpy as np
import torch
{LOADER}
class Rows(Dataset):
    def __init__(self):
        self.rows = np.ones((8192, 128, 128), np.float32)

    def __len__(self):
        return 8192

    def __getitem__(self, index):
        return self.rows[index]


class More(Dataset):
    def __init__(self):
        self.rows = np.ones((16384, 128, 128), np.float32)

    def __len__(self):
        return 16384

    def __getitem__(self, index):
        return self.rows[index]


first = DataLoader(Rows(), num_workers=8, multiprocessing_context="spawn")
second = DataLoader(More(), num_workers=8, multiprocessing_context="spawn")
third = {CRASH}
"""


def in_order(folder: Path, sort: str) -> list[tuple[str | None, int]]:
    (folder / "train.py").write_text(HEAVY, encoding="utf-8")
    settings = Settings().with_overrides(select=["OOM1", "OOM407"], sort=sort)
    return [(item.code, item.place.row) for item in run([str(folder)], settings, folder, RunOptions(cache=False, processes=1)).findings]


def test_findings_are_sorted_by_place_or_by_weight(tmp_path: Path) -> None:
    placed = [("OOM407", 7), ("OOM407", 18), ("OOM112", 27), ("OOM112", 28), ("OOM101", 29)]
    assert in_order(tmp_path, "place") == placed
    assert in_order(tmp_path, "weight") == [("OOM101", 29), ("OOM112", 28), ("OOM112", 27), ("OOM407", 18), ("OOM407", 7)]


def test_a_weight_has_the_bytes_of_one_and_what_multiplies_them(tmp_path: Path) -> None:
    first, second = check(tmp_path, {"train.py": HEAVY}, "OOM112").findings
    rows = ByteSize(8192 * 128 * 128 * 4)
    assert first.weight == Weight(Consequence.MULTIPLIED, Resource.ARRAYS, rows, (Factor(Multiplier.WORKERS, 8),))
    assert first.message.endswith("; about 512.0 MiB each")
    assert second.message.endswith("; about 1.0 GiB each")
    assert (first.weight.total, second.weight and second.weight.total) == (4 << 30, 8 << 30)


def test_the_heaviest_three_are_named_where_there_are_more(tmp_path: Path) -> None:
    found = check(tmp_path, {"train.py": HEAVY}, "OOM1").findings
    view = View(str(tmp_path))
    assert list(summary.heaviest(found[:3], view)) == []
    more = (*found, *check(tmp_path, {"train.py": HEAVY}, "OOM407").findings)
    ((line, _),) = next(summary.heaviest(more, view))
    assert line == "Heaviest: OOM112 train.py:28:10 (8.0 GiB), OOM112 train.py:27:9 (4.0 GiB), OOM407 train.py:18:21 (1.0 GiB)."


SHARDED = f"""\
import numpy as np
import torch.distributed as dist
{LOADER}from torch.utils.data import DistributedSampler

class Rows(Dataset):
    def __init__(self):
        self.rows = np.ones((8192, 128, 128), np.float32)

    def __len__(self):
        return 8192

    def __getitem__(self, index):
        return self.rows[index]


dist.init_process_group("nccl")
rows = Rows()
loader = DataLoader(rows, num_workers=8, multiprocessing_context="spawn"SAMPLER)
"""


def test_what_each_rank_holds_is_multiplied_by_the_ranks(tmp_path: Path) -> None:
    launched = {"run.sh": "torchrun --nproc_per_node 4 train.py\n"}
    rows = ByteSize(8192 * 128 * 128 * 4)
    by_ranks = only(check(tmp_path, {**launched, "train.py": SHARDED.replace("SAMPLER", ", sampler=DistributedSampler(rows)")}, "OOM605"))
    assert by_ranks.weight == Weight(Consequence.MULTIPLIED, Resource.ARRAYS, rows, (Factor(Multiplier.RANKS, 4),))
    assert by_ranks.message.startswith("Each of 4 ranks holds all of `rows`: ")
    assert by_ranks.message.endswith("a machine holds a NumPy array (about 512.0 MiB) once per rank")
    by_both = only(check(tmp_path, {**launched, "train.py": SHARDED.replace("SAMPLER", "")}, "OOM112"))
    assert by_both.weight == Weight(Consequence.MULTIPLIED, Resource.ARRAYS, rows, (Factor(Multiplier.WORKERS, 8), Factor(Multiplier.RANKS, 4)))
    assert by_both.weight.total == 16 << 30
    assert by_both.message.endswith("; about 512.0 MiB each; again on each of 4 ranks")


STARTED = """
import argparse

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler


class Rows(Dataset):
    def __init__(self, path):
        self.rows = np.load(path)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    args = parser.parse_args()
    JOINED
    rows = Rows("rows.npy")
    sampler = RandomSampler(rows) if args.local_rank == -1 else DistributedSampler(rows)
    for batch in DataLoader(rows, batch_size=8, sampler=sampler):
        print(batch.mean())


if __name__ == "__main__":
    main()
"""
WAITING = "if args.local_rank != -1:\n        dist.init_process_group('nccl')"


@pytest.mark.parametrize(
    ("joined", "command", "severity"),
    [
        (WAITING, "python train.py", "note"),
        (WAITING, "python train.py --local_rank 0", "warning"),
        (WAITING, "python -m torch.distributed.launch train.py", "warning"),
        (WAITING, "srun python train.py", "warning"),
        (WAITING, "python other.py", "warning"),
        ("dist.init_process_group('nccl')", "python train.py", "warning"),
    ],
)
def test_a_file_that_is_started_in_one_process_has_no_other_ranks(joined: str, command: str, severity: str, tmp_path: Path) -> None:
    files = {"train.py": STARTED.replace("JOINED", joined), "train.sh": f"{command}\n"}
    assert only(check(tmp_path, files, "OOM605")).severity == severity


MIDDLE = """
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset


class Scans(Dataset):
    def __init__(self, root, count):
        self.root, self.count = root, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.from_numpy(np.load(f"{self.root}/{index}.npy"))

    def drawn(self, number):
        return Subset(self, np.random.randint(0, self.count, number).tolist())


def middle(scans):
    loader = DataLoader(READ, batch_size=4, num_workers=2)
    kept = []
    for scan in loader:
        kept.append(scan)
    return torch.cat(kept).median()


print(middle(Scans("scans", 40_000)))
"""


@pytest.mark.parametrize(("read", "severity"), [("scans", "error"), ("scans.drawn(256)", "warning")])
def test_descriptors_of_picked_samples_need_not_run_out(read: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"train.py": MIDDLE.replace("READ", read)}, "OOM207")).severity == severity


JOINED_ANEW = """
import torch
from torch.utils.data import DataLoader


def evaluate(model, dataset):
    parts = []
    for images, classes in DataLoader(dataset, batch_size=64):
        with torch.no_grad():
            outputs = model(images)
        parts.append(PART)
        print(torch.cat(parts).float().mean())
"""


@pytest.mark.parametrize(("part", "severity"), [("outputs.max(1)[1].cpu().eq(classes)", "note"), ("outputs.cpu()", "warning")])
def test_a_hit_for_each_sample_that_is_joined_anew_is_a_note(part: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"evaluate.py": textwrap.dedent(JOINED_ANEW).replace("PART", part)}, "OOM209")).severity == severity


GROWN_BESIDE_CLASSES = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader


def evaluate(dataset):
    model = nn.Sequential(nn.Flatten(), nn.Linear(4096, 10)).eval()
    found = None
    for batch in DataLoader(dataset, batch_size=64):
        with torch.no_grad():
            outputs = model(batch[0])
        classes = outputs.argmax(dim=-1).cpu().numpy()
        if found is None:
            found = classes
            others = OTHER
        else:
            found = np.append(found, classes, axis=0)
            others = np.append(others, OTHER, axis=0)
    return found, others
"""


@pytest.mark.parametrize(("other", "severity"), [("batch[1]", "note"), ("batch[1].long().numpy()", "note"), ("batch[0]", "warning")])
def test_what_is_only_joined_beside_classes_is_as_small_as_they_are(other: str, severity: str, tmp_path: Path) -> None:
    text = GROWN_BESIDE_CLASSES.replace("OTHER", other)
    assert only(check(tmp_path, {"evaluate.py": text}, "OOM209")).severity == severity


GROWN_FROM_EMPTY = """
import numpy as np
import torch
from torch.utils.data import DataLoader


def evaluate(model, dataset):
    found = EMPTY
    for images, truth in DataLoader(dataset, batch_size=64):
        with torch.no_grad():
            scores = model(images).cpu().numpy()
        found = np.concatenate((found, scores))
    return found
"""


@pytest.mark.parametrize(("empty", "severity"), [("np.empty(0)", "note"), ("np.array([])", "note"), ("np.empty((0, 512))", "warning")])
def test_what_begins_as_an_array_of_one_axis_is_numbers(empty: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"evaluate.py": GROWN_FROM_EMPTY.replace("EMPTY", empty)}, "OOM209")).severity == severity


SEPARATED = """\
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Pieces(Dataset):
        def __init__(self, track, width):
            SHAPE
            self.track, self.width = track, width

        def __len__(self):
            return len(self.track) // self.width

        def __getitem__(self, index):
            return self.track[index * self.width : (index + 1) * self.width]

    @torch.no_grad()
    def separate(model, track, device):
        model.to(device).eval()
        waves = []
        for piece in DataLoader(Pieces(track, 44100), batch_size=8):
            waves.append(torch.stft(model(piece.to(device)), 2048, 1024).cpu().numpy())
        np.save("spectra.npy", np.concatenate(waves))
"""


@pytest.mark.parametrize(("shape", "severity"), [("assert track.shape[1] == 2", "note"), ("print(track)", "warning")])
def test_pieces_of_an_array_that_is_handed_over_are_a_note(shape: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"separate.py": textwrap.dedent(SEPARATED).replace("SHAPE", shape)}, "OOM219")).severity == severity


VOLUME = """\
    import torch

    class Segmenter:
        def __init__(self, net, size, margin):
            self.net, self.size, self.margin = net, size, margin

        def predict(self, volume):
            self.net.eval()
            _, depth, height, width = volume.shape
            m = self.margin
            found = []
            with torch.no_grad():
                LOOP
            return torch.cat(found).permute(1, 0, 2, 3)
"""
SLABS = """\
volume = volume.view(depth, 1, height, width)
                at = 0
                while at < depth:
                    found.append(self.net(SCANS[at : at + self.size].repeat(1, 3, 1, 1)))
                    at += self.size"""
NEIGHBOURS = """\
volume = torch.cat([volume[:, :m], volume, volume[:, -m:]], dim=1)
                for at in range(m, depth + m):
                    found.append(self.net(SCANS[:, at - m : at + m + 1]))"""


@pytest.mark.parametrize("loop", [SLABS, NEIGHBOURS])
@pytest.mark.parametrize(("sliced", "severity"), [("volume", "note"), ("torch.load('scans.pt')", "warning")])
def test_what_is_made_of_the_slices_of_an_argument_is_a_note(loop: str, sliced: str, severity: str, tmp_path: Path) -> None:
    text = VOLUME.replace("LOOP", loop).replace("SCANS", sliced)
    assert only(check(tmp_path, {"segment.py": text}, "OOM219")).severity == severity


BLENDED = """\
    import numpy as np
    import torch
    from torch.utils.data import DataLoader

    def blend(tiles, grid, mode):
        return np.stack(tiles).reshape(*grid, -1) * len(mode)

    def compare(model, dataset, grid, modes):
        tiles = []
        with torch.no_grad():
            for images in DataLoader(dataset, batch_size=32):
                tiles.append(torch.sigmoid(model(images.cuda()))[:, :, 1:, 1:].cpu().numpy())
        LATER
"""


@pytest.mark.parametrize(
    ("later", "severity"),
    [("for mode in modes:\n            print(mode, blend(tiles, grid, mode).mean())", "note"), ("print(blend(tiles, grid, 'cosine').mean())", "warning")],
)
def test_what_each_round_of_a_later_loop_is_given_is_a_note(later: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"compare.py": BLENDED.replace("LATER", later)}, "OOM219")).severity == severity


PICTURED = """\
    from torch.utils.data import DataLoader

    def show(model, loader, count):
        rows, columns = count // 4, 4
        for row in range(rows):
            for column in range(columns):
                print(row, column, model(next(iter(loader))))

    def main(model, dataset):
        show(model, DataLoader(dataset, batch_size=1, num_workers=1), COUNT)
"""


@pytest.mark.parametrize(("count", "severity"), [("10", "note"), ("400", "warning"), ("len(dataset)", "warning")])
def test_workers_that_are_started_again_a_few_times_are_a_note(count: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"show.py": PICTURED.replace("COUNT", count)}, "OOM124")).severity == severity


SERIES = """
    import torch
    import torch.nn.functional as F
    from torch.utils.data import DataLoader


    def encode(net, rows, device):
        net.eval()
        kept = []
        with torch.no_grad():
            for batch in DataLoader(rows, batch_size=8):
                out = net(batch.to(device))
                LEFT
                kept.append(out)
        return torch.cat(kept)
"""


@pytest.mark.parametrize(
    ("left", "severity"),
    [
        ("out = out.transpose(1, 2).cpu()", "warning"),
        ("out = F.max_pool1d(out.transpose(1, 2), kernel_size=out.size(1)).transpose(1, 2).cpu(); out = out.squeeze(1)", "note"),
        ("steps, width = out.shape[1], out.shape[2]; out = out.cpu()", "warning"),
        ("steps, width = out.shape[1], out.shape[2]; out = out.cpu() / 2", "warning"),
        ("steps, width = out.shape[1], out.shape[2]; out = out[:, :5].cpu()", "warning"),
        ("steps, width = out.shape[1], out.shape[2]; out = out[:, 0].cpu()", "note"),
        ("steps, width = out.shape[1], out.shape[2]; out = out.mean(dim=1).cpu()", "note"),
        ("steps, width = out.shape[1], out.shape[2]; out = torch.mean(out, dim=(1, 2)).cpu()", "note"),
    ],
)
def test_axes_count_that_are_left_where_it_is_kept(left: str, severity: str, tmp_path: Path) -> None:
    found = check(tmp_path, {"encode.py": textwrap.dedent(SERIES).replace("LEFT", left)}, "OOM219").findings
    assert [str(item.severity) for item in found] == [severity]


PLACES = """
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Windows(Dataset):
        def __init__(self, path):
            self.windows = WINDOWS

        def __len__(self):
            return len(self.windows)

        def __getitem__(self, index):
            row, part = self.windows[index]
            return torch.tensor([row, len(str(part))])


    loader = DataLoader(Windows(SOURCE), num_workers=4)
"""


@pytest.mark.parametrize(
    ("windows", "severity"),
    [
        ("[(row, part) for row in range(len(path)) for part in range(row)]", "note"),
        ("[(row, str(part)) for row in range(len(path)) for part in range(row)]", "warning"),
        ("[(row, [part, row]) for row in range(len(path)) for part in range(row)]", "warning"),
    ],
)
def test_places_in_the_data_are_numbers(windows: str, severity: str, tmp_path: Path) -> None:
    text = textwrap.dedent(PLACES).replace("WINDOWS", windows).replace("SOURCE", "open('rows.txt').readlines()")
    assert only(check(tmp_path, {"train.py": text}, "OOM110")).severity == severity


STANDARDISED = """
import numpy as np
import torch
from torch.utils.data import Dataset


class Fields(Dataset):
    def __init__(self, path):
        fields = np.load(path)
        self.fields = (fields - fields.mean(axis=0)) / fields.std(axis=0)

    def __len__(self):
        return len(self.fields)

    def __getitem__(self, index):
        return torch.from_numpy(self.fields[index])
"""


@pytest.mark.parametrize(("read", "severity"), [("self.fields[index]", "note"), ("self.fields[index, :, ::2]", "warning")])
def test_a_copy_that_is_gone_at_once_weighs_where_it_is_known_to_be_large(read: str, severity: str, tmp_path: Path) -> None:
    found = check(tmp_path, {"fields.py": STANDARDISED.replace("self.fields[index]", read)}, "OOM404")
    assert only(found).severity == severity


RESUMED = """
import argparse

import torch
import torch.distributed as dist
from torchvision.models import resnet18


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--distributed", action="store_true")
    args = parser.parse_args()
    JOINED
    model = resnet18().cuda()
    checkpoint = torch.load("last.pt")
    model.load_state_dict(checkpoint["model"])
    print(model(torch.zeros(1, 3, 64, 64).cuda()))


if __name__ == "__main__":
    main()
"""
OPTIONAL = "if args.distributed:\n        dist.init_process_group('nccl')"


@pytest.mark.parametrize(
    ("joined", "command", "severity"),
    [
        (OPTIONAL, "python train.py", "note"),
        (OPTIONAL, "torchrun --nproc_per_node 4 train.py --distributed", "warning"),
        ("dist.init_process_group('nccl')", "python train.py", "warning"),
    ],
)
def test_a_checkpoint_of_one_device_weighs_where_several_processes_are_known_to_load_it(joined: str, command: str, severity: str, tmp_path: Path) -> None:
    files = {"train.py": RESUMED.replace("JOINED", joined), "train.sh": f"{command}\n"}
    assert only(check(tmp_path, files, "OOM502")).severity == severity


BESIDE_A_FILE = """import json

import h5py
import torch
from torch.utils.data import DataLoader, Dataset


class Scenes(Dataset):
    def __init__(self, path, texts):
        self.path = path
        self.texts = json.load(open(texts))

    PROPERTY
    def frames(self):
        return h5py.File(self.path, "r")["frames"]

    def __getitem__(self, index):
        return torch.from_numpy(FRAMES[index]), torch.LongTensor(self.texts[index])


loader = DataLoader(Scenes("scenes.h5", "texts.json"), batch_size=16, num_workers=2)
"""


@pytest.mark.parametrize(("getter", "frames"), [("", "self.frames()"), ("@property", "self.frames"), ("@functools.cached_property", "self.frames")])
def test_a_property_reads_files_as_a_method_does(getter: str, frames: str, tmp_path: Path) -> None:
    """The fix of OOM301 writes properties: it must not make more of what is held beside the file."""
    text = BESIDE_A_FILE.replace("    PROPERTY\n", f"    {getter}\n" if getter else "").replace("FRAMES", frames)
    assert only(check(tmp_path, {"train.py": f"import functools\n{text}"}, "OOM110")).severity == "note"


JOINED_SESSIONS = """
from glob import glob

import numpy as np
import torch

ORDER = np.array([NUMBERS])


def prepare(part):
    sessions = LISTED
    chosen = sessions[: int(len(sessions) * part)]
    signals = np.load(f"raw/{chosen[0]}.npz")["x"]
    for name in chosen[1:]:
        signals = np.concatenate((signals, np.load(f"raw/{name}.npz")["x"]), axis=0)
    return torch.from_numpy(signals)
"""


@pytest.mark.parametrize("listed", ["[NAMES]", "np.array(sorted(glob('raw/*')))[ORDER]"])
@pytest.mark.parametrize(("sessions", "severity"), [(18, "note"), (40, "warning")])
def test_files_of_a_list_that_is_written_out_are_few_whatever_part_of_it_is_taken(listed: str, sessions: int, severity: str, tmp_path: Path) -> None:
    names, numbers = ", ".join(f'"s{number}"' for number in range(sessions)), ", ".join(map(str, range(sessions)))
    text = JOINED_SESSIONS.replace("LISTED", listed).replace("NAMES", names).replace("NUMBERS", numbers)
    assert only(check(tmp_path, {"prepare.py": text}, "OOM209")).severity == severity


JUDGED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Rates(nn.Module):
    def __init__(self, inputs, width=128, depth=3):
        super().__init__()
        layers = [nn.Linear(inputs, width), nn.ReLU()]
        for _ in range(depth - 1):
            layers += [LAYER, nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)

def judge(rows, truth, many):
    loader = DataLoader(TensorDataset(rows, truth), batch_size=BATCH)
    net = Rates(16)
    net.eval()
    total = 0
    for x, y in loader:
        total += nn.functional.mse_loss(net(x), y).item()
    return total
"""


@pytest.mark.parametrize(
    ("layer", "batch", "severity"),
    [
        pytest.param("nn.Linear(width, width)", "64", "note", id="narrow layers"),
        pytest.param("nn.Linear(width, width)", "65536", "warning", id="very many rows"),
        pytest.param("nn.Linear(width, width)", "many", "warning", id="nobody knows how many rows"),
        pytest.param("nn.Conv1d(width, width, 3)", "64", "warning", id="a layer that gives more for a longer sample"),
    ],
)
def test_an_evaluation_of_a_few_narrow_layers_is_a_note(layer: str, batch: str, severity: str, tmp_path: Path) -> None:
    text = JUDGED.replace("LAYER", layer).replace("BATCH", batch)
    assert only(check(tmp_path, {"train.py": text}, "OOM204")).severity == severity


ALONE = """\
import glob

import numpy as np
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, inputs=3, classes=10):
        super().__init__()
        self.body = nn.Sequential(nn.TransformerEncoderLayer(inputs, 4), nn.ReLU(), LAYER)
        self.head = nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))

    def forward(self, x):
        return self.head(self.body(x))

def load(path):
    return np.load(path).astype("float32")

def judge(folder, kept):
    net = Net()
    net.eval()
    scores = []
    for path in sorted(glob.glob(folder)):
        sample = torch.from_numpy(load(path))
        sample = GIVEN
        scores.append(net(sample.to("cuda")).KEEPS)
    return scores
"""


@pytest.mark.parametrize(
    ("given", "severity"),
    [
        pytest.param("sample.unsqueeze(0)", "note", id="an axis for one"),
        pytest.param("torch.unsqueeze(sample, dim=0).float()", "note", id="by a function"),
        pytest.param("sample[None, ...]", "note", id="by an index"),
        pytest.param("torch.stack([sample])", "note", id="a list of one"),
        pytest.param("sample.view(1, 3, 64, 64)", "note", id="laid out"),
        pytest.param("sample.unsqueeze(1)", "warning", id="another axis"),
        pytest.param("sample.unsqueeze(0).repeat(64, 1, 1, 1)", "warning", id="many times"),
        pytest.param("torch.stack([sample, sample])", "warning", id="two"),
        pytest.param("sample", "warning", id="nobody knows how many"),
    ],
)
def test_an_evaluation_of_one_sample_at_a_time_is_a_note(given: str, severity: str, tmp_path: Path) -> None:
    text = ALONE.replace("GIVEN", given).replace("LAYER", "nn.ReLU()").replace("KEEPS", "argmax().item()")
    assert only(check(tmp_path, {"train.py": text}, "OOM204")).severity == severity


@pytest.mark.parametrize(
    ("layer", "keeps", "severity"),
    [
        pytest.param("nn.ConvTranspose2d(64, 64, 2, 2)", "argmax().item()", "warning", id="a network that gives a map"),
        pytest.param("nn.Conv3d(64, 64, 3)", "argmax().item()", "warning", id="volumes"),
        pytest.param("nn.Conv2d(64, 64, 3)", "argmax().item()", "warning", id="pictures"),
        pytest.param("nn.ReLU()", "squeeze()", "error", id="the graphs stay"),
    ],
)
def test_one_sample_may_be_large_and_its_graph_may_stay(layer: str, keeps: str, severity: str, tmp_path: Path) -> None:
    text = ALONE.replace("GIVEN", "sample.unsqueeze(0)").replace("LAYER", layer).replace("KEEPS", keeps)
    assert only(check(tmp_path, {"train.py": text}, "OOM204")).severity == severity


PLAYS = """\
import torch
from torch import nn

class Actor(nn.Module):
    def __init__(self, seen, actions, width):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(seen, width, 3), nn.ReLU(), nn.LazyLinear(actions))

    def forward(self, x):
        return self.net(x)

def evaluate(env, actor: Actor, episodes):
    actor.eval()
    for _ in range(episodes):
        seen, over, total = env.reset(), False, 0
        while not over:
            action = actor(torch.as_tensor(seen).float()).argmax().item()
            STEP
            total += reward
        print(total)
"""


@pytest.mark.parametrize(
    ("step", "severity"), [("seen, reward, over, _ = env.step(action)", "note"), ("seen, reward, over = env.next_batch(action)", "warning")]
)
def test_an_evaluation_that_plays_sees_one_thing_at_a_time(step: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"train.py": PLAYS.replace("STEP", step)}, "OOM204")).severity == severity


@pytest.mark.parametrize(("width", "severity"), [("128", "note"), ("262144", "error")])
def test_what_narrow_layers_give_for_one_row_at_a_time_is_a_note_with_its_graph(width: str, severity: str, tmp_path: Path) -> None:
    text = JUDGED.partition("def judge")[0].replace("LAYER", "nn.Linear(width, width)").replace("128", width)
    text += "def judge(rows):\n    net = Rates(16)\n    net.eval()\n    found = [net(row.unsqueeze(0)) for row in rows]\n    return len(found)\n"
    assert only(check(tmp_path, {"train.py": text}, "OOM202")).severity == severity


WRITES = """\
import h5py

def save(path, rows):
    out = h5py.File(path, "w")
    for name, row in rows.items():
        out.create_dataset(name, data=row)
    print("saved", path)
MORE"""


@pytest.mark.parametrize(
    ("more", "severity"), [("", "note"), ("    for row in rows:\n        train(row)\n\ndef train(row):\n    print(row)\n", "warning")], ids=["last", "trains"]
)
def test_a_new_file_that_a_function_lets_go_of_at_once_is_a_note(more: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"save.py": WRITES.replace("MORE", more)}, "OOM307")).severity == severity


@pytest.mark.parametrize(("side", "severity"), [("128", "note"), ("512", "warning")])
def test_a_second_copy_for_a_moment_is_a_warning_where_it_is_large(side: str, severity: str, tmp_path: Path) -> None:
    text = f"import numpy as np\nimport torch\nnoise = torch.Tensor(np.random.standard_normal([1, {side}, 128, 1024]).astype(np.float32))\n"
    assert only(check(tmp_path, {"export.py": text}, "OOM403")).severity == severity


@pytest.mark.parametrize(("asked", "severity"), [("72", "note"), ("8", "warning")])
def test_workers_for_which_a_job_asks_processors_are_a_note(asked: str, severity: str, tmp_path: Path) -> None:
    text = LOADER + "def load(data):\n    return DataLoader(data, batch_size=8, num_workers=72)\n"
    job = f"#!/bin/bash\n#SBATCH --cpus-per-task={asked}\n#SBATCH --mem=400G\necho started\n"
    assert only(check(tmp_path, {"train.py": text, "job.sh": job}, "OOM120")).severity == severity


PICKLED_TABLE = """\
import pickle

from torch.utils.data import Dataset

def columns(name):
    if name == "pump":
        return WIDE
    return 38

class Series(Dataset):
    def __init__(self, name, width):
        with open(f"{name}.pkl", "rb") as stream:
            self.rows = pickle.load(stream).reshape((-1, columns(name)))
        self.width = width

    def __len__(self):
        return len(self.rows) - self.width

    def __getitem__(self, index):
        return self.rows[index : index + self.width]
"""


@pytest.mark.parametrize(("wide", "severity"), [("55", "note"), ("4096", "warning")])
def test_a_table_of_few_known_columns_is_a_note(wide: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"series.py": PICKLED_TABLE.replace("WIDE", wide)}, "OOM402")).severity == severity


@pytest.mark.parametrize("changed", ["self.path = path", "super().__init__()"])
def test_a_copy_in_which_variables_have_other_names_is_one_still(changed: str, tmp_path: Path) -> None:
    first = PASSAGES.format(first="self.path = path", read="pickle.load(file)")
    second = PASSAGES.format(first=changed, read="pickle.load(opened)").replace("as file", "as opened").replace("path)", "where)").replace("path, ", "where, ")
    assert only(check(tmp_path, {"first.py": first, "second.py": second.replace("= path", "= where")}, "OOM402")).message.endswith("; also in 1 more file")


LOADS = f"""import torch
{LOADER}
model = torch.nn.Linear(512, 512)
loader = DataLoader(data, batch_size=8)
model.eval()
for batch in loader:
    print(model(batch))
"""


def test_a_headline_that_says_how_a_variable_is_called_is_that_of_a_copy(tmp_path: Path) -> None:
    first = LOADS.replace("loader =", "from rows import data\n\nloader =")
    second = first.replace("model", "net").replace("batch in", "rows in").replace("(batch)", "(rows)").replace("loader", "parts")
    assert only(check(tmp_path, {"first.py": first, "second.py": second}, "OOM204")).message.endswith("; also in 1 more file")


REPLAYED = """\
import torch
from torch.utils.data import Dataset

class Seen(Dataset):
    def __init__(self, max_size, space):
        self.frames = torch.empty([max_size] + [len(space.low)])
        self.length, self.place = max_size, 0

    def add(self, frame):
        WRITES
        self.place = (self.place + 1) % self.length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.frames[index]
"""


@pytest.mark.parametrize(("writes", "severity"), [("self.frames[self.place] = frame", "note"), ("self.frames[:] = frame", "warning")])
def test_room_that_is_written_in_turn_is_a_note(writes: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"seen.py": REPLAYED.replace("WRITES", writes)}, "OOM407")).severity == severity


SHOTS = f"""\
import json
import os
import random
import torch
from PIL import Image
{LOADER}
class Shots(Dataset):
    def __init__(self, root):
        self.root = root
        with open("parts.json") as file:
            self.parts = json.load(file)
        with open("views.json") as file:
            self.views = json.load(file)

    def __len__(self):
        return len(self.parts)

    def __getitem__(self, index):
        part = self.parts[index]
        views = self.views[part]
        view = random.choice(views)
        picture = Image.open(os.path.join(self.root, part + "_" + str(view) + ".png"))
        return picture, {{given}}

loader = DataLoader(Shots("data"), num_workers=16)
"""


@pytest.mark.parametrize(("given", "severity"), [("part", "note"), ("torch.tensor(views)", "warning")])
def test_what_is_only_taken_for_paths_is_light(given: str, severity: str, tmp_path: Path) -> None:
    assert only(check(tmp_path, {"shots.py": SHOTS.format(given=given)}, "OOM110")).severity == severity
