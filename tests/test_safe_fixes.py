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


def h5(*, base: str = "Dataset", before: str = "super().__init__()", path: str = "path", item: str = 'self.data["x"][i]', after: str = "") -> str:
    return HEAD + H5.format(base=base, before=before, path=path, item=item, after=after)


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
    "two handles": h5(before='self.more = h5py.File(path + "2", "r")'),
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
    engine.run([str(path)], Settings(), tmp_path, engine.Options(fix=True, cache=False, processes=1))
    assert path.read_text(encoding="utf-8") == program


def test_a_function_is_not_put_into_a_string(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    program = HEAD + 'HELP = """text\n# usage: train"""\nloader = DataLoader(data, num_workers=2, collate_fn=lambda b: tuple(b))\n'
    path.write_text(program, encoding="utf-8")
    engine.run([str(path)], Settings(), tmp_path, engine.Options(fix=True, cache=False, processes=1))
    mended = path.read_text(encoding="utf-8")
    assert 'HELP = """text\n# usage: train"""\n' in mended
    assert "def _collate(b):" in mended


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
    report = engine.run([str(path)], Settings(), tmp_path, engine.Options(cache=False, processes=1))
    assert [finding.message for finding in report.findings] == []
