"""What a safe fix must leave alone: code in which the usual rewrite would change what the program does."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from oomlint import engine
from oomlint.config import Settings

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "import argparse\nimport io\n\nimport h5py\nimport numpy as np\nfrom torch.utils.data import DataLoader, Dataset\n\n"
H5 = """
class H5({base}):
    def __init__(self, path):
        {before}
        self.data = h5py.File({path}, "r")

    def __len__(self):
        return 10

    def __getitem__(self, i):
        return {item}

{after}
loader = DataLoader(H5("x.h5"), num_workers=2)
"""


LAZY = """
class H5(Dataset):
    def __init__(self, path):
        self.path = path
        self.data = None
        self.ready = False

    def open(self):
        {test}:
            self.data = h5py.File(self.path, "r")
            self.ready = True

    def __len__(self):
        return 10

    def __getitem__(self, i):
        {call}
        return self.data["x"][i]


{after}
data = H5("x.h5")
first = data[0]
loader = DataLoader(data, num_workers=2)
"""


def lazy(*, test: str = "if self.data is None", call: str = "self.open()", after: str = "") -> str:
    return HEAD + LAZY.format(test=test, call=call, after=after)


def h5(*, base: str = "Dataset", before: str = "super().__init__()", path: str = "path", item: str = 'self.data["x"][i]', after: str = "") -> str:
    return HEAD + H5.format(base=base, before=before, path=path, item=item, after=after)


PART = """
class Part(Dataset):
    def __init__(self, path, flip=False):
        self.path, self.flip = path, flip

    def __len__(self):
        return 6

    def __getitem__(self, i):
        with h5py.File(self.path, "r") as f:
            {before}
            return {item}

"""


def part(item: str, *before: str) -> str:
    return HEAD + PART.format(before="\n            ".join(before or ["pass"]), item=item)


LEFT_ALONE = {
    "a positional argument in the middle": "loader = DataLoader(data, 8, False, None, None, 0, None, False, False, 10, init)",
    "a base class that sets the attribute": "class Base(Dataset):\n    def __init__(self):\n        self.data = None\n" + h5(base="Base"),
    "a subclass that sets the attribute": h5(
        after="class Sub(H5):\n    def __init__(self, p):\n        super().__init__(p)\n        self.data = self.data['train']\n"
    ),
    "the attribute set from outside": h5(after="one = H5('y')\none.data = one.data['train']\n"),
    "the private name taken": h5(before="self._data = {}", item="self._data.setdefault(i, self.data['x'][i])"),
    "a buffer in place of a path": h5(path="io.BytesIO(path)"),
    "an address in place of a path": h5(path='"https://example.org/x.h5"'),
    "a file that is removed": h5(before="import os; os.unlink(path)"),
    "the attribute read through __dict__": h5(item='self.__dict__["data"]["x"][i]'),
    "a second handle that is written": h5(before='self.more = h5py.File(path + "2", "a")'),
    "a list of handles beside it": h5(before='self.more = [h5py.File(p, "r") for p in path.glob("*")]'),
    "a lock beside it": h5(before="self.lock = threading.Lock()").replace("import io\n", "import io\nimport threading\n"),
    "a part of it in a list": h5(item="self.parts[i]").replace("    def __len__", "        self.parts = [self.data[k] for k in ('a', 'b')]\n\n    def __len__"),
    "a part of it by way of a variable": h5().replace("\n    def __len__", "        file = self.data\n        self.x = file['x']\n\n    def __len__", 1),
    "a view of its keys": h5().replace("\n    def __len__", "        self.keys = self.data.keys()\n\n    def __len__", 1),
    "a row that is read by a number": h5(before="self.n = 3").replace("\n    def __len__", "        self.row = self.data['x'][self.n]\n\n    def __len__", 1),
    "an object that reads it": h5().replace("\n    def __len__", "        self.reader = Reader(self.data)\n\n    def __len__", 1),
    "slots": h5(before="self.n = 1").replace("    def __init__", "    __slots__ = ('data', 'n', '__dict__')\n\n    def __init__", 1),
    "slots of a dataclass": "import dataclasses\n"
    + h5(before="self.n = 1")
    .replace("class H5", "@dataclasses.dataclass(slots=True)\nclass H5")
    .replace("    def __init__", "    n: int = 0\n\n    def __init__", 1),
    "slots of a base class": "class Base(Dataset):\n    __slots__ = ('n',)\n" + h5(base="Base"),
    "attributes by __getattr__": h5(item="self.x[i]").replace(
        "    def __len__", "    def __getattr__(self, name):\n        return self.data[name]\n\n    def __len__"
    ),
    "a base class with a state of its own": "class Base(Dataset):\n    def __getstate__(self):\n        return {'n': 1}\n" + h5(base="Base"),
    "a base class that sets attributes its own way": "class Base(Dataset):\n    def __setattr__(self, k, v):\n        print(k)\n" + h5(base="Base"),
    "a base class that nobody knows": h5(base="elsewhere.Base").replace("import io\n", "import io\nimport elsewhere\n"),
    "a subclass with a state of its own": h5(after="class Sub(H5):\n    def __getstate__(self):\n        return {}\n"),
    "a subclass with an attribute of that name": h5(after="class Sub(H5):\n    data = None\n"),
    "a subclass with a method of that name": h5(after="class Sub(H5):\n    def data(self):\n        return 1\n"),
    "a subclass with the private name": h5(after="class Sub(H5):\n    def f(self):\n        self._data = 1\n"),
    "a class attribute of that name": h5().replace("    def __init__", "    data = None\n\n    def __init__", 1),
    "a declaration of that name": h5().replace("    def __init__", "    data: object\n\n    def __init__", 1),
    "the attribute set by its name": h5().replace("\n    def __len__", "\n    def turn(self):\n        setattr(self, 'data', None)\n\n    def __len__", 1),
    "attributes set by names": h5(before="for k in path.names: setattr(self, k, 1)"),
    "all attributes": h5(item="vars(self)['data']['x'][i]"),
    "a tuple": h5().replace('self.data = h5py.File(path, "r")', 'self.data, self.n = h5py.File(path, "r"), 1'),
    "two names at once": h5().replace("self.data = h5py", "self.data = self.other = h5py"),
    "two statements in a line": h5().replace('self.data = h5py.File(path, "r")', 'self.data = h5py.File(path, "r"); self.n = 1'),
    "a body in the line of its function": h5().replace("        super().__init__()\n", "").replace("path):\n        self.data", "path): self.data"),
    "a condition": h5().replace('        self.data = h5py.File(path, "r")', '        if path:\n            self.data = h5py.File(path, "r")'),
    "a try": h5().replace(
        '        self.data = h5py.File(path, "r")', '        try:\n            self.data = h5py.File(path, "r")\n        except OSError:\n            raise'
    ),
    "a comment in the call": h5().replace('h5py.File(path, "r")', 'h5py.File(\n            path,  # of the volume\n            "r",\n        )'),
    "a name bound in the call": h5(path="(p := path)"),
    "a mode that is given": h5().replace("(self, path)", "(self, path, mode='r')").replace('(path, "r")', "(path, mode)"),
    "a driver": h5().replace('(path, "r")', '(path, "r", driver="core")'),
    "a file that is written meanwhile": h5().replace('(path, "r")', '(path, "r", swmr=True)'),
    "a file that is closed by with": h5(item="self.read(i)").replace(
        "    def __len__", "    def read(self, i):\n        with self.data:\n            return self.data['x'][i]\n\n    def __len__"
    ),
    "a file that is closed by a name": h5().replace("    def __len__", "    def __del__(self):\n        self.data.close()\n\n    def __len__"),
    "a file that is closed later": h5(before="import atexit; atexit.register(lambda: self.data.close())"),
    "os that is a parameter": h5().replace("(self, path)", "(self, path, os=None)"),
    "os that is something else": "os = 'linux'\n" + h5(),
    "a library imported where it is used": h5(before="import h5py"),
    "a library that is a parameter": h5().replace("(self, path)", "(self, path, h5py=h5py)"),
    "a class inside a function": h5()
    .replace("class H5", "def make():\n  class H5")
    .replace("\n    def", "\n      def")
    .replace("        s", "          s")
    .replace("        return", "          return")
    .replace("loader =", "  return H5\n\n\nH5 = make()\nloader ="),
    "an object built where an error is waited for": h5(after="def get(path):\n    try:\n        return H5(path)\n    except OSError:\n        return None\n"),
    "an object built where a test waits for an error": h5(after="def test():\n    with pytest.raises(OSError):\n        H5('nowhere')\n\n"),
    "a factory that is called where an error is waited for": h5(
        after="def make(p):\n    return H5(p)\n\n\ndef get(p):\n    try:\n        return make(p)\n    except OSError:\n        return None\n"
    ),
    "a factory of the class that tries two ways": h5(item="0").replace(
        "    def __len__",
        "    @classmethod\n    def open(cls, p):\n        try:\n            return cls(p)\n"
        "        except KeyError:\n            return cls(p + '5')\n\n    def __len__",
    ),
    "an object whose error is suppressed": "import contextlib\n" + h5(after="def get():\n    with contextlib.suppress(OSError):\n        return H5('y')\n"),
    "a file in a folder that goes": "import tempfile\n"
    + h5(after="def get():\n    with tempfile.TemporaryDirectory() as tmp:\n        return H5(tmp + '/x.h5')\n"),
    "a file that is removed by the caller": "import os\n" + h5(after="one = H5('y')\nos.remove('y')\n"),
    "a file that another takes the place of": "import os\n" + h5(after="one = H5('y')\nos.replace('z', 'y')\n"),
    "a file that a helper is given": h5(before="drop(path)", after="def drop(path):\n    print(path)\n"),
    "a buffer that a caller hands over": h5(
        after="def fetch(p):\n    with open(p, 'rb') as f:\n        return io.BytesIO(f.read())\n\n\none = H5(fetch('y'))\n"
    ),
    "what an unknown function gives": "from elsewhere import fetch\n" + h5(after="one = H5(fetch('y'))\n"),
    "what an unknown function gives, by a name": "from elsewhere import fetch\n" + h5(after="def get():\n    source = fetch('y')\n    return H5(source)\n"),
    "an open file of a caller": h5(after="def get(p):\n    with open(p, 'rb') as file:\n        return H5(file)\n"),
    "the attribute set by its name from outside": h5(after="one = H5('y')\nsetattr(one, 'data', None)\n"),
    "attributes set by names from outside": h5(after="def put(d, **values):\n    for k, v in values.items():\n        setattr(d, k, v)\n"),
    "attributes set all at once from outside": h5(after="one = H5('y')\none.__dict__.update(data=None)\n"),
    "two attributes set from outside": h5(after="one = H5('y')\none.data, one.n = {}, 3\n"),
    "the attribute replaced for a test": "from unittest import mock\n" + h5(after="one = H5('y')\nwith mock.patch.object(one, 'data', {}):\n    one[0]\n"),
    "a part of it in a cached property": "import functools\n"
    + h5(item="self.x[i]").replace("    def __len__", "    @functools.cached_property\n    def x(self):\n        return self.data['x']\n\n    def __len__"),
    "a flag beside the handle": lazy(test="if not self.ready"),
    "a flag and the handle": lazy(test="if self.data is None or not self.ready"),
    "a flag around the call that opens": lazy(call="if not self.ready: self.open()"),
    "a flag that ends the method": lazy(test="if self.ready: return\n        if self.data is None"),
    "an environment that is opened on first use": lazy().replace("h5py", "lmdb").replace('lmdb.File(self.path, "r")', "lmdb.open(self.path, readonly=True)"),
    "a file that is opened on first use and removed": "import os\n" + lazy(after="os.remove('y')\n"),
    "a file that is opened on first use and replaced from outside": lazy(after="def put(d):\n    d.data, d.ready = {}, True\n"),
    "an environment": h5(item="self.data.stat()[i]")
    .replace("import h5py", "import lmdb")
    .replace('h5py.File(path, "r")', "lmdb.open(path, readonly=True, lock=False)"),
    "a map": h5(item="self.data[i]").replace('h5py.File(path, "r")', 'np.load(path, mmap_mode="r")').replace("2)\n", "2, multiprocessing_context='spawn')\n"),
    "an environment that may be written": h5().replace("h5py", "lmdb").replace('lmdb.File(path, "r")', "lmdb.open(path, lock=False)"),
    "a transaction that writes": h5()
    .replace("import h5py", "import lmdb")
    .replace('h5py.File(path, "r")', "lmdb.open(path, readonly=True)\n        self.txn = self.data.begin(write=True)"),
    "a map that is written privately": h5().replace('h5py.File(path, "r")', 'np.memmap(path, mode="c")'),
    "a name of a comprehension around the lambda": """
        def make(sets):
            return [DataLoader(d, num_workers=2, collate_fn=lambda b: (b, d)) for d in sets]
        d = 1
    """,
    "a name that is bound inside the lambda and outside": "def f(x):\n    return DataLoader(data, num_workers=2, collate_fn=lambda b: [x for x in b] + [x])",
    "a name of a pattern": """
        pad = 0
        def f(cfg):
            match cfg:
                case {"pad": pad}:
                    return DataLoader(data, num_workers=2, collate_fn=lambda b: (b, pad))
    """,
    "the worker count put into the mapping later": """
        def f(data, workers=0):
            kw = {}
            kw["persistent_workers"] = True
            kw["num_workers"] = workers
            return DataLoader(data, **kw)
    """,
    "the worker count changed in the mapping": """
        def f(data, workers):
            kw = {"num_workers": 0, "persistent_workers": True}
            if workers:
                kw["num_workers"] = workers
            return DataLoader(data, **kw)
    """,
    "a mapping that two loaders share": """
        def f(data, val, train_workers=0, val_workers=0):
            kw = {"persistent_workers": True}
            return DataLoader(data, num_workers=train_workers, **kw), DataLoader(val, num_workers=val_workers, **kw)
    """,
    "a worker count with an effect": """
        class Pool:
            def __init__(self):
                self.q = [0, 2]
            def get(self):
                return self.q.pop(0)
            def loader(self, data):
                return DataLoader(data, num_workers=self.get() or 0, persistent_workers=True)
    """,
    "an index behind a choice of datasets": part('np.array(f["flipped"] if self.flip else f["images"])[int(i)]'),
    "an array of another type": part('np.float32(f["x"])[int(i)] / 3'),
    "an array in another order": part('np.asfortranarray(f["x"])[int(i)]'),
    "a value that may be a string": part('f["x"][()][int(i)]'),
    "the length of a value": part('len(f["x"][()])'),
    "the shape of elements that may be arrays": part('f["x"][:].shape'),
    "an index of elements that may be arrays": part('f["x"][:][int(i), 0]'),
    "an index that may be a list": part('f["x"][:][i]') + 'loader = DataLoader(Part("x.h5"), batch_size=2)\n',
    "an array under a name": part("x[int(i)]", 'x = f["x"][:]'),
    "a default in place of a dataset": part('np.array(f.get("x", [1, 2, 3]))[int(i)]'),
    "a dataset under a name that is given twice": part("np.array(x)[int(i)]", 'x = f["x"]', "if self.flip: x = [1, 2, 3]"),
    "an argument that binds a name": "loader = DataLoader(data, prefetch_factor=(pf := 2))\nprint(pf)",
}


@pytest.mark.parametrize("case", LEFT_ALONE, ids=str)
def test_it_is_left_alone(tmp_path: Path, case: str) -> None:
    source = LEFT_ALONE[case]
    program = source if source.startswith(("import", "class Base")) else HEAD + dedent(source).strip() + "\n"
    if source.startswith("class Base"):
        program = HEAD + source
    compile(program, "train.py", "exec")
    path = tmp_path / "train.py"
    path.write_text(program, encoding="utf-8")
    engine.run([str(path)], Settings(), tmp_path, engine.RunOptions(fix=True, cache=False, processes=1))
    assert path.read_text(encoding="utf-8") == program


@pytest.mark.parametrize("program", [h5(), lazy(), lazy(call="if self.data is None: self.open()")])
def test_what_is_left_alone_is_fixed_without_its_reason(tmp_path: Path, program: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(program, encoding="utf-8")
    engine.run([str(path)], Settings(), tmp_path, engine.RunOptions(fix=True, cache=False, processes=1))
    assert "def __getstate__(self):" in path.read_text(encoding="utf-8")


def test_a_function_is_not_put_into_a_string(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    program = HEAD + 'HELP = """text\n# usage: train"""\nloader = DataLoader(data, num_workers=2, collate_fn=lambda b: tuple(b))\n'
    path.write_text(program, encoding="utf-8")
    engine.run([str(path)], Settings(), tmp_path, engine.RunOptions(fix=True, cache=False, processes=1))
    fixed = path.read_text(encoding="utf-8")
    assert 'HELP = """text\n# usage: train"""\n' in fixed
    assert "def _collate(b):" in fixed


GUARDED = {
    "a chained comparison": "if 0 < w <= 8:\n    DataLoader(data, num_workers=w, persistent_workers=True)",
    "a table of two": "DataLoader(data, num_workers=w, persistent_workers=[False, True][w > 0])",
    "a table with bool": "DataLoader(data, num_workers=w, persistent_workers=(False, True)[bool(w)])",
    "an expected error": "try:\n    DataLoader(data, persistent_workers=True)\nexcept ValueError:\n    DataLoader(data)",
    "a test of the error": "import pytest\nwith pytest.raises(ValueError):\n    DataLoader(data, persistent_workers=True)",
    "a guarded call": """
        def outer(data, workers=0):
            def inner():
                return DataLoader(data, num_workers=workers, persistent_workers=True)
            return inner() if workers else None
    """,
    "a comprehension with a test": "[DataLoader(data, num_workers=w, persistent_workers=True) for _ in range(2) if w]",
}


@pytest.mark.parametrize("case", GUARDED, ids=str)
def test_a_guard_is_understood(tmp_path: Path, case: str) -> None:
    options = "parser = argparse.ArgumentParser()\nparser.add_argument('--w', type=int, default=4)\nw = parser.parse_args().w\n"
    path = tmp_path / "train.py"
    path.write_text(HEAD + options + dedent(GUARDED[case]).strip() + "\n", encoding="utf-8")
    report = engine.run([str(path)], Settings(), tmp_path, engine.RunOptions(cache=False, processes=1))
    assert [finding.message for finding in report.findings] == []
