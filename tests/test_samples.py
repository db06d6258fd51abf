"""What a batch of a loader is, said without running it: shapes and types, against what torch collates, and by hand for what needs pictures."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils import data

from oomlint.config import Settings
from oomlint.memory.datasets.samples import Sample, batches_of
from oomlint.memory.loaders.loader_calls import loaders_of
from oomlint.memory.shared.shaped import Least
from oomlint.model.project import Project

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Said = Callable[[str], list[Sample]]

HEAD: Final = """
import cv2, numpy as np, torch, torch.nn.functional as F
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, default_collate, random_split
from torchvision import datasets, transforms
from torchvision.transforms import v2
"""
CLASS: Final = """
class Mine:
    def __call__(self, x):
        return torch.from_numpy(np.array(x)).permute(2, 0, 1).float()

def collate(rows):
    images, labels = zip(*rows)
    return torch.stack(images).double(), torch.tensor(labels)

def padded(rows):
    return torch.nn.utils.rnn.pad_sequence([x for x, _ in rows], batch_first=True)

class Data(Dataset):
    def __init__(self, frames=4, size=8):
        self.frames = frames
        self.size = size
{init}

    def __len__(self):
        return 16

    def __getitem__(self, index):
        return {sample}

    def window(self, index):
        begin = index * 2
        end = begin + self.frames * 16
        return torch.tensor(self.x[begin:end]), index

    def clip(self):
        frames = np.zeros((self.frames, self.size, self.size, 3), dtype=np.float32)
        for i in range(self.frames):
            frames[i] = i
        return torch.from_numpy(frames).permute(3, 0, 1, 2)

    def filled(self):
        n = self.frames
        out = torch.zeros(n, 2, 3, self.size, self.size)
        for i in range(n):
            out[i] = self.part(i)
        return {{"out": out, "n": n}}

    def part(self, i):
        return torch.ones(2, 3, self.size, self.size)

    def steps(self):
        history = []
        for t in range(12):
            history.append((torch.tensor(t), self.features))
        return history, self.features

    def growing(self, index):
        images = []
        for k in range(6):
            images.append(torch.from_numpy(self.a[index]))
        return torch.stack(images)

    def entries(self, index):
        sample = {{"a": self.a[index]}}
        sample["b"] = torch.zeros(2)
        return sample

    def tested(self):
        sample, rows = {{"a": torch.zeros(2)}}, []
        if self.frames > 3:
            sample["b"] = torch.zeros(3)
            rows.append(torch.zeros(4))
        else:
            sample["a"] = torch.zeros(5)
            rows.append(torch.zeros(6))
        return sample, rows

    def scaled(self, index):
        x = self.a[index]
        x = torch.from_numpy(x.copy())
        x /= 255
        x -= x.mean()
        return x.unsqueeze(0)

    def drawn(self):
        sample, rows = {{"a": torch.zeros(2)}}, []
        if torch.rand(1) > 0.5:
            sample["b"] = torch.zeros(3)
            rows.append(torch.zeros(4))
        return sample, rows

    def image(self, path):
        img = Image.open(path).convert("RGB")
        img = img.resize((20, 10))
        return self.t(img)

    def listed(self, path):
        steps = []
        if self.size > unknown:
            steps.append(transforms.CenterCrop(4))
        steps.append(transforms.ToTensor())
        return transforms.Compose(steps)(Image.new("RGB", (9, 9)))

    def perhaps(self, path):
        img = Image.open(path).convert("RGB")
        if self.t:
            img = self.t(img)
        return img

    def cv(self, path):
        img = cv2.imread(path)
        img = cv2.cvtColor(img, cv2.COLOR_BGR2RGB)
        img = cv2.resize(img, (32, 16))
        img = img.astype(np.float32) / 255.0
        return torch.from_numpy(img.transpose(2, 0, 1))

loader = {loader}
"""
PLAIN: Final = "DataLoader(Data(), batch_size=4)"
PAIRS: Final = "torch.rand(3, 4), index"
X: Final = "self.x = np.zeros((20, 8, 6), dtype=np.uint8)"
T: Final = "self.x = torch.zeros((20, 8, 6), dtype=torch.uint8)"
A: Final = "self.a = np.zeros((100, 5, 4), dtype='f4')"
R: Final = "self.a = torch.randn(100, 5, 4)"


@pytest.fixture
def said(tmp_path: Path) -> Said:
    def ask(text: str) -> list[Sample]:
        (tmp_path / "main.py").write_text(text, encoding="utf-8")
        project = Project(tmp_path, Settings())
        loaders = loaders_of(project)
        (loader,) = loaders.of(project.module(str(tmp_path / "main.py")))
        return [way for use in loaders.uses(loader) for _, ways in batches_of(project, loader, use.frame, 4) for way in ways]

    return ask


def program(init: str, sample: str, loader: str = PLAIN) -> str:
    return CLASS.format(init=textwrap.indent(init, " " * 8), sample=sample, loader=loader)


def arrays(way: Sample) -> list[object]:
    """Shape and type of each array."""
    return [None if one is None else (one.shape, one.dtype) for one in way.arrays]


def collated(batch: Any) -> list[object]:
    """The same of what a loader has given."""
    if isinstance(batch, dict | list | tuple):
        return [leaf for one in (batch.values() if isinstance(batch, dict) else batch) for leaf in collated(one)]
    return [(tuple(batch.shape), str(batch.dtype).removeprefix("torch."))]


@pytest.mark.parametrize(
    ("init", "sample", "loader"),
    [
        ("", "torch.rand(3, self.size, self.size)", PLAIN),
        ("", "torch.rand(3, self.size, self.size).double(), index, 0.5, True", PLAIN),
        ("", "torch.rand(3, self.size, self.size)", "DataLoader(Data(2, size=5), batch_size=4)"),
        (X, "self.x[index].astype(np.float32) / 255., index", PLAIN),
        (X, "self.x[index] / 255.", PLAIN),
        (T, "self.x[index] / 255.", PLAIN),
        (T, "torch.stack([self.x[index]] * 3)", PLAIN),
        (T, "self.x[index].unsqueeze(0).repeat(3, 1, 1).float()", PLAIN),
        (T, "self.x[index, :5]", PLAIN),
        (T, "self.x[index, :500, 1:-1]", PLAIN),
        ("self.x = np.zeros((2000, 6))", "self.x[index:index + 512]", PLAIN),
        ("self.x = np.zeros((2000, 6))", "self.window(index)", PLAIN),
        ("", "{'a': [torch.zeros(2, 3) for _ in range(4)], 'b': (index, 0.5)}", PLAIN),
        ("", "np.arange(12).reshape(3, -1), np.linspace(0, 1, 7), np.arange(2, 9, 2)", PLAIN),
        ("", "np.zeros((4, 8, 8, 3), dtype=np.float32).transpose(3, 0, 1, 2)", PLAIN),
        ("", "self.clip()", PLAIN),
        ("", "self.filled()", PLAIN),
        ("self.features = torch.rand(50, 7)", "self.steps()", PLAIN),
        ("", "torch.from_numpy(np.random.randn(5, 6)).float().permute(1, 0)", PLAIN),
        ("", "torch.LongTensor([1, 2, 3]), torch.FloatTensor(3, 2), np.float32(1.5), torch.tensor([0.5, 1.5])", PLAIN),
        ("", "torch.cat([torch.zeros(2, 3), torch.zeros(4, 3)], dim=0)", PLAIN),
        ("", "np.concatenate((np.zeros((2, 3)), np.zeros((4, 3), np.float32)), axis=0)", PLAIN),
        ("", "F.interpolate(torch.zeros(1, 3, 8, 8), size=(16, 12))[0]", PLAIN),
        ("self.mean = torch.zeros(3, 1, 1)", "(torch.zeros(3, 9, 9) - self.mean) / self.mean", PLAIN),
        ("self.a = np.random.randn(100, 5)\nself.p = np.random.permutation(100)", "self.a[self.p[index]]", PLAIN),
        (R, "self.a[index][None], self.a[index, None], self.a[..., 0][:7], self.a[index, [0, 2]]", PLAIN),
        (R, "self.a[index].mean(0), self.a[index].sum(dim=1, keepdim=True), self.a[index].max(dim=0)[0]", PLAIN),
        (R, "self.a[index].view(-1), self.a[index].flatten(), self.a[index].transpose(0, 1), self.a[index].t()", PLAIN),
        (A, "np.stack([self.a[index], self.a[index - 1]], axis=-1), self.a[index].T, np.expand_dims(self.a[index], 0)", PLAIN),
        (A, "self.a[index].repeat(2, axis=0), np.clip(self.a[index] * 2, 0, 1), self.a[index] > 0", PLAIN),
        (A, "np.array(self.a[index], np.float64), torch.from_numpy(self.a[index]).type(torch.LongTensor), np.asarray([1, 2], np.uint8)", PLAIN),
        (A, "self.growing(index)", PLAIN),
        (A, "self.entries(index)", PLAIN),
        (A, "self.tested()", PLAIN),
        (A, "self.scaled(index)", PLAIN),
        ("", PAIRS, "DataLoader(Data(), batch_size=4, collate_fn=collate)"),
        ("", PAIRS, "DataLoader(Data(), batch_size=4, collate_fn=lambda rows: torch.stack([row[0] for row in rows]).double())"),
        ("", PAIRS, "DataLoader(Data(), batch_size=4, collate_fn=lambda rows: {'x': torch.stack([x for x, y in rows]), 'all': default_collate(rows)})"),
        ("", PAIRS, "DataLoader(Subset(Data(), [0, 1, 2, 3]), batch_size=4)"),
        ("", PAIRS, "DataLoader(ConcatDataset([Data(), Data()]), batch_size=4)"),
        ("", PAIRS, "DataLoader(random_split(Data(), [8, 8])[0], batch_size=4)"),
        ("", "0", "DataLoader(random_split(TensorDataset(torch.zeros(8, 3, 4).half(), torch.arange(8)), [4, 4])[0], batch_size=4)"),
        ("", "0", "DataLoader([(torch.zeros(3), 1) for _ in range(8)], batch_size=4)"),
    ],
)
def test_a_batch_is_what_torch_collates(said: Said, init: str, sample: str, loader: str) -> None:
    text = program(init, sample, loader)
    names = {**vars(data), "np": np, "torch": torch, "F": functional}
    exec(compile(text, "main.py", "exec"), names)
    real = collated(next(iter(names["loader"])))
    found = said(HEAD + text)
    assert found
    assert all(arrays(way) == real for way in found)


@pytest.mark.parametrize(
    ("init", "sample", "expected"),
    [
        (
            "self.t = transforms.Compose([transforms.Resize((16, 24)), transforms.ToTensor()])",
            "self.t(Image.open(index).convert('RGB')), index",
            [((4, 3, 16, 24), "float32"), ((4,), "int64")],
        ),
        (
            "self.t = transforms.Compose([transforms.Resize(32), transforms.CenterCrop(16), transforms.ToTensor()])",
            "self.image(index)",
            [((4, 3, 16, 16), "float32")],
        ),
        ("self.t = transforms.Compose([transforms.Resize(32), transforms.ToTensor()])", "self.image(index)", [((4, 3, Least(32), Least(32)), "float32")]),
        (
            "self.t = transforms.Compose([transforms.RandomResizedCrop(16), transforms.Grayscale(), transforms.ToTensor()])",
            "self.t(Image.open(index))",
            [((4, 1, 16, 16), "float32")],
        ),
        (
            "self.t = v2.Compose([v2.ToImage(), v2.RandomCrop((8, 9)), v2.ToDtype(torch.float32, scale=True)])",
            "self.t(Image.open(index).convert('RGB'))",
            [((4, 3, 8, 9), "float32")],
        ),
        (
            "self.t = transforms.Compose([transforms.PILToTensor(), transforms.ConvertImageDtype(torch.float16), transforms.Resize((5, 6))])",
            "self.image(index)",
            [((4, 3, 5, 6), "float16")],
        ),
        ("self.t = transforms.Compose([transforms.Resize((12, 12)), Mine()])", "self.image(index)", [((4, 3, 12, 12), "float32")]),
        (
            "self.t = transforms.Compose([transforms.Resize((16, 24)), transforms.ToTensor()])",
            "self.perhaps(index)",
            [((4, 3, 16, 24), "float32")],
        ),
        ("self.x = np.memmap('x', dtype='float32', mode='r', shape=(99, 3, 8, 4))", "self.x[index]", [((4, 3, 8, 4), "float32")]),
        ("", "self.cv(index)", [((4, 3, 16, 32), "float32")]),
        ("", "np.array(Image.open(index).convert('L').resize((20, 10)))", [((4, 10, 20), "uint8")]),
        (
            "self.t = transforms.Compose([transforms.ToPILImage(), transforms.Resize((5, 5)), transforms.ToTensor()])",
            "self.t(self.clip()[0])",
            [((4, 4, 5, 5), "float32")],
        ),
        (
            "self.t = transforms.Compose([transforms.Grayscale(), transforms.ToTensor(), transforms.Lambda(lambda x: x.repeat(3, 1, 1))])",
            "self.t(Image.open(index).resize((5, 4)))",
            [((4, 3, 4, 5), "float32")],
        ),
        ("self.t = transforms.ToTensor()", "self.t(np.zeros((9, 9, 3), np.float64))", [((4, 3, 9, 9), "float64")]),
    ],
)
def test_pictures_have_the_size_that_their_transforms_give_them(said: Said, init: str, sample: str, expected: list[object]) -> None:
    """Checked with torchvision 0.28, Pillow 13 and OpenCV 5, which the tests do without."""
    (way,) = said(HEAD + program(init, sample))
    assert arrays(way) == expected


@pytest.mark.parametrize(
    "sample",
    [
        "decoded(index)",
        "torch.load(index)",
        "torch.zeros(3, unknown)",
        "torch.zeros(shape)",
        "torch.zeros(3, 4).reshape(unknown)",
        "np.zeros((3, 4), dtype=unknown)",
        "np.zeros((3, 4)) * unknown(index)",
        "unknown(index) + 1",
        "torch.zeros(9, 4)[mask]",
        "torch.zeros(9, 4)[:unknown]",
        "[torch.zeros(3) for _ in unknown]",
        "torch.zeros(3) if unknown else torch.zeros(4)",
        "transforms.Compose([unknown, transforms.ToTensor()])(Image.open(index))",
        "self.listed(index)",
    ],
)
def test_what_nobody_knows_has_no_bytes(said: Said, sample: str) -> None:
    ways = said(HEAD + program("", sample))
    assert ways
    assert not [one for way in ways for one in way.arrays if one is not None and one.exact is not None]


def test_what_a_test_decides_is_not_counted(said: Said) -> None:
    (way,) = said(HEAD + program("", "self.drawn()"))
    assert arrays(way) == [((4, 2), "float32"), None, None]


@pytest.mark.parametrize("steps", [["x = x + 1"] * 300, ["n = n + 1", "x = x[:n]", "for n in x: n = n + n", "x = torch.zeros(n, n)"]], ids=["long", "circle"])
def test_no_program_is_too_deep(said: Said, steps: list[str]) -> None:
    body = "\n".join(["def make(x):", *(f"    {step}" for step in steps), "    return x"])
    (way,) = said(HEAD + body + "\n" + program("", "make(torch.zeros(3))"))
    assert way.at_least in {0, 16}  # a number that nobody knows counts as one


@pytest.mark.parametrize(
    ("sample", "shape"),
    [
        ("torch.zeros(3, n)", (4, 3, Least(5))),
        ("torch.zeros(2 * n + 1, 3)", (4, Least(11), 3)),
        ("torch.zeros(n // 2)", (4, Least(2))),
        ("torch.zeros(12 - n)", (4, Least(5))),
        ("torch.zeros(1 + torch.zeros(n).size(0))", (4, Least(6))),
        ("torch.zeros(3, 9 - torch.zeros(n).size(0))", (4, 3, "9 - torch.zeros(n).size(0)")),
        ("torch.zeros(3, torch.zeros(n).size(0) % 3)", (4, 3, "torch.zeros(n).size(0) % 3")),
        ("torch.zeros(size)", (4, Least(224), Least(128))),
        ("torch.zeros(n, 2).view(-1)", (4, Least(10))),
        ("torch.zeros(n, 2)[1:]", (4, Least(4), 2)),
        ("torch.zeros(n, 2)[:4]", (4, 4, 2)),
        ("torch.zeros(n, 2)[-6:5]", (4, "...", 2)),
        ("torch.zeros(1, 2) + torch.zeros(n, 1)", (4, Least(5), 2)),
        ("torch.cat([torch.zeros(n, 2), torch.zeros(3, 2)])", (4, Least(8), 2)),
        ("torch.zeros(3, 4) if index else torch.zeros(2, 4)", (4, Least(2), 4)),
    ],
)
def test_of_several_lengths_the_smallest_counts(said: Said, sample: str, shape: tuple[object, ...]) -> None:
    """What is at least so large is never taken for so large."""
    text = "if unknown:\n    n = 5\n    size = 256, 128\nelse:\n    n = 7\n    size = 224, 224\n"
    (way,) = said(HEAD + text + program("", sample))
    (one,) = way.arrays
    assert one is not None
    assert one.shape == shape
    assert (one.exact is None) == any(not isinstance(side, int) or isinstance(side, Least) for side in shape)


@pytest.mark.parametrize(
    ("dataset", "count"),
    [
        ("datasets.CIFAR10('.', train=False)", 10_000),
        ("datasets.CIFAR100('.', False)", 10_000),
        ("datasets.FashionMNIST('.')", 60_000),
        ("datasets.SVHN('.', split='extra')", 531_131),
        ("datasets.STL10('.', 'test')", 8_000),
        ("datasets.MNIST('.', train=unknown)", "len(kept)"),
        ("datasets.MNIST('.', train=bool(unknown))", "len(kept)"),
        ("datasets.MNIST('.', **unknown)", "len(kept)"),
        ("datasets.ImageFolder('.')", "len(kept)"),
        ("datasets.CIFAR10('.') if unknown else datasets.CIFAR100('.', train=False)", Least(10_000)),
    ],
)
def test_datasets_of_torchvision_have_a_length(said: Said, dataset: str, count: object) -> None:
    """Where the part that is read is known."""
    (way,) = said(HEAD + f"kept = {dataset}\n" + program("", "torch.zeros(2, len(kept))"))
    assert arrays(way) == [((4, 2, count), "float32")]


@pytest.mark.parametrize(
    ("dataset", "shape"),
    [("MNIST('.', train=False)", (10_000, 28, 28)), ("CIFAR10('.')", (50_000, 32, 32, 3)), ("SVHN('.', 'test')", (26_032, 3, 32, 32))],
)
def test_datasets_of_torchvision_keep_an_array(said: Said, dataset: str, shape: tuple[int, ...]) -> None:
    (way,) = said(HEAD + f"kept = datasets.{dataset}\n" + program("", "kept.data"))
    assert arrays(way) == [((4, *shape), "uint8")]


def test_padding_makes_a_batch_larger(said: Said) -> None:
    (way,) = said(HEAD + program("", PAIRS, "DataLoader(Data(), batch_size=4, collate_fn=padded)"))
    assert arrays(way) == [((4, Least(3), 4), "float32")]


def test_a_list_that_repeats_an_array_has_it_as_often(said: Said) -> None:
    """A batch has a copy of each."""
    (way,) = said(HEAD + program("self.features = torch.rand(1000, 100)", "[self.features] * 12"))
    assert way.at_least == 12 * 4 * 1000 * 100 * 4
