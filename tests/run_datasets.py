"""Builds the datasets of programs and reads their samples: in this process, or in workers of a loader under each start method.

A server for tests/test_handles_run.py, which says what takes part; like tests/run_programs.py, it imports torch once. A line of standard input is a JSON
object: ``programs``, a list of objects as ``Program`` below; ``method``, "main" or a start method; ``elsewhere``, a folder to go to before anything is read;
``limit``, seconds for all of it. The answer is a line with an object:

    error     what stopped it, null if nothing did
    outcomes  for each program, and each way to come by its dataset: its length and its samples, each a list of lines, exact to the last bit; where
              something went wrong, the first line says BROKEN and the second how

Start methods that pickle take seconds to start a process, so all datasets of a request are read by the same two workers.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import pickle
import random
import shutil
import sys
import traceback
from dataclasses import dataclass
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from run_programs import SEED, Run, lines, refuse_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

BROKEN = "BROKEN"
WORKERS = 2
MOST_SAMPLES = 16  # of a dataset
HEIR = "import {module}\n\n\nclass Heir({module}.{name}):\n    pass\n"


@dataclass(frozen=True)
class Program:
    """A file with a function ``dataset(folder)``."""

    name: str
    folders: list[str]  # what its imports need
    module: str
    data: str  # folder of its data; each dataset has a copy of it, because LMDB opens an environment only once in a process
    stays: bool  # its samples are read in the folder of the data, not elsewhere


@dataclass(frozen=True)
class Case:
    """A dataset of a program, and how it has been come by."""

    program: Program
    way: str
    place: str  # the current folder when it is read
    dataset: Any
    size: int  # samples


# -- datasets and how to come by them ----------------------------------------------------------------------------------


def touched(dataset: Any) -> Any:
    """The same dataset, after the main process has asked it for its length and a sample."""
    len(dataset)
    dataset[0]
    return dataset


def heir(dataset: Any, folder: str, name: str) -> Any:
    """The dataset as an object of a subclass, of which a worker can import the class."""
    cls = type(dataset)
    with open(os.path.join(folder, f"{name}.py"), "w", encoding="utf-8") as file:
        file.write(HEIR.format(module=cls.__module__, name=cls.__qualname__))
    dataset.__class__ = importlib.import_module(name).Heir
    return dataset


def built(program: Program, way: str) -> Any:
    """A new dataset of a program, made in the folder of its data."""
    folder = os.path.join(os.path.dirname(program.data), way.replace(" ", "-"))
    if not os.path.isdir(folder):
        os.makedirs(program.data, exist_ok=True)
        shutil.copytree(program.data, folder)
    os.chdir(folder)
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - the one that programs share
    torch.manual_seed(SEED)
    return importlib.import_module(program.module).dataset(folder)


WAYS: dict[str, Callable[[Any, Program], Any]] = {
    "untouched": lambda dataset, _: dataset,
    "touched": lambda dataset, _: touched(dataset),
    "pickled": lambda dataset, _: pickle.loads(pickle.dumps(touched(dataset))),
    "copied": lambda dataset, _: copy.copy(touched(dataset)),
    "deeply copied": lambda dataset, _: copy.deepcopy(touched(dataset)),
    "of a subclass": lambda dataset, program: touched(heir(dataset, program.folders[0], f"{program.module}_heir")),
}


# -- reading -----------------------------------------------------------------------------------------------------------


def sample(case: Case, index: int | None) -> list[str]:
    """The lines of a sample, or of the length where there is no index; what went wrong, if anything did."""
    os.chdir(case.place)
    try:
        return list(lines(len(case.dataset) if index is None else case.dataset[index]))
    except Exception:  # noqa: BLE001 - whatever a fix has broken
        return [BROKEN, traceback.format_exc()]


class Everything:
    """The samples of all datasets. An index is the number of a dataset and the index of a sample of it."""

    def __init__(self, cases: list[Case]) -> None:
        self.cases = cases

    def __getitem__(self, index: tuple[int, int | None]) -> list[str]:
        return sample(self.cases[index[0]], index[1])


def read(wanted: dict[str, Any]) -> dict[str, object]:
    """Build the datasets of a request, go elsewhere, and read them."""
    try:
        return {"error": None, "outcomes": outcomes(wanted)}
    except BaseException:  # noqa: BLE001 - sys.exit, too, is something that it can come to
        return {"error": traceback.format_exc()}


def outcomes(wanted: dict[str, Any]) -> dict[str, dict[str, list[list[str]]]]:
    method = wanted["method"]
    found: dict[str, dict[str, list[list[str]]]] = {}
    cases: list[Case] = []
    sys.dont_write_bytecode = True
    for item in wanted["programs"]:
        size = item.pop("size")
        program = Program(**item)
        sys.path[:0] = [folder for folder in program.folders if folder not in sys.path]
        ways = found[program.name] = {}
        for way, come_by in WAYS.items():
            ways[way] = []
            try:
                dataset = come_by(built(program, way), program)
                if method in {"spawn", "forkserver"}:
                    ForkingPickler.dumps(dataset)  # one that cannot be sent must not stop the others
                place = os.getcwd() if program.stays else wanted["elsewhere"]
                cases.append(Case(program, way, place, dataset, len(dataset) if size is None else size))
            except Exception:  # noqa: BLE001 - whatever a fix has broken
                ways[way].append([BROKEN, traceback.format_exc()])
    os.chdir(wanted["elsewhere"])
    everything = Everything(cases)
    indices = [(number, index) for number, case in enumerate(cases) for index in (None, *range(min(case.size, MOST_SAMPLES)))]
    given: Iterable[list[str]] = map(everything.__getitem__, indices)
    if method != "main":
        given = torch.utils.data.DataLoader(everything, sampler=indices, batch_size=None, num_workers=WORKERS, multiprocessing_context=method)
    for (number, _), told in zip(indices, given, strict=True):
        case = cases[number]
        found[case.program.name][case.way].append(told)
    if method != "main":  # what workers have done must not have changed what the main process has
        for number, case in enumerate(cases):
            found[case.program.name][f"{case.way}, afterwards"] = [everything[other, index] for other, index in indices if other == number]
    return found


def serve() -> None:
    torch.set_num_threads(1)  # before any fork: a process that has started threads must not be copied
    sys.addaudithook(refuse_network)
    for line in sys.stdin:
        wanted = json.loads(line)
        print(json.dumps(Run(partial(read, wanted), wanted["limit"]).outcome()), flush=True)  # noqa: T201 - how it answers


if __name__ == "__main__":
    serve()
