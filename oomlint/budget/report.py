"""A budget: what was asked, the rows, the verdict; and its form as JSON, with the schema."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from oomlint.budget.jobs import TYPED
from oomlint.budget.nouns import Certainty, Moment
from oomlint.budget.row import DEVICE, FILES, IN_WORKERS, MAIN_PROCESS, SHARED
from oomlint.budget.rows import at
from oomlint.budget.sizes import Name, labels
from oomlint.budget.values import BATCH, PREFETCH, WORKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oomlint.budget.fitting import FittingSetting
    from oomlint.budget.headers import DataFile
    from oomlint.budget.limits import JobResources
    from oomlint.budget.nouns import Program
    from oomlint.budget.row import Row, Setup
    from oomlint.budget.verdict import BudgetVerdict
    from oomlint.finding import Place

    Named = Callable[[str], str]

_FEW: Final = 0.25  # of the descriptors that a process may have
_BYTES: Final = {"type": ["integer", "null"], "minimum": 0}
_TEXT: Final = {"type": "string"}
_NAMES: Final = {"type": "array", "items": _TEXT}
_GROUPS: Final = {MAIN_PROCESS: "main", IN_WORKERS: "workers", SHARED: "shared", DEVICE: "device"}


class Budget(Struct, frozen=True):
    """One program, under one setup and its limits."""

    program: Program
    setup: Setup
    rows: tuple[Row, ...]
    verdict: BudgetVerdict
    limits: JobResources
    files: tuple[DataFile, ...]
    ranks_open: bool
    settings: tuple[FittingSetting, ...] = ()  # that would fit
    assumed: tuple[str, ...] = ()  # variables of the environment that nothing sets which was read: what depends on them has their defaults
    offered: tuple[str, ...] = ()  # data files that the code names, whose headers would tell what is not known

    @property
    def worth_showing(self) -> tuple[Row, ...]:
        """The rows, without those of open files where a process has far fewer than it may, and no dataset keeps any."""
        most = self.limits.files.size if self.limits.files is not None else None
        told = self.limits.files is not None and self.limits.files.written
        many = most is not None and any(one.files > most * _FEW for one in self.verdict.totals)
        kept = any(source.opened for source in self.program.sources)
        return self.rows if told or many or kept else tuple(row for row in self.rows if row.group != FILES)

    @property
    def replaced(self) -> list[Replaced]:
        """What ``--set`` says otherwise than the code."""
        found: dict[Replaced, None] = {}
        for name, given in ((name, self.setup.values.setting(name)) for name in (WORKERS, BATCH, PREFETCH)):
            for one in self.program.loaders if given is not None else ():
                said = one.setting(name)
                if given is not None and isinstance(said, int) and said != given:
                    found[Replaced(name, given, said, dict(one.literals).get(name, one.place))] = None
        return list(found)

    @property
    def workers(self) -> list[int | None]:
        """Workers of each loader."""
        given = self.setup.values.setting("num_workers")
        counts = [one.workers if given is None else given for one in self.program.loaders]
        return [None if isinstance(count, Name) else count for count in counts]


class Replaced(Struct, frozen=True):
    """A setting that ``--set`` gives another number than a loader has by the code."""

    name: str
    given: int
    said: int
    place: Place  # of the number, where the code writes it, else of the loader


def offered(program: Program, rows: Sequence[Row], folders: Sequence[str]) -> tuple[str, ...]:
    """Data files that the code names and that are there, below one of some folders: their headers would tell what the rows leave out."""
    wanted = {name for row in rows for name in row.size.missing}
    found: dict[str, None] = {}
    for one in (container for source in program.sources for container in source.containers):
        if one.named and wanted.intersection(one.size.missing):
            path = next((path for folder in folders if os.path.isfile(path := os.path.join(folder, one.named))), None)
            if path is not None:
                found[os.path.normpath(path)] = None
    return tuple(found)


def at_peak(budget: Budget) -> list[tuple[str, int]]:
    """Bytes of each holder on the host at the moment with the most."""
    here = at(budget.verdict.peak.moment, [row for row in budget.rows if not row.perhaps])
    return [(group, sum(row.bytes or 0 for row in here if row.group == group)) for group in (MAIN_PROCESS, IN_WORKERS, SHARED)]


def entries(budgets: Sequence[Budget], name: Named) -> list[dict[str, Any]]:
    """What ``--output-format json`` writes."""
    return [_entry(one, name) for one in budgets]


def _entry(budget: Budget, name: Named) -> dict[str, Any]:
    verdict, files = budget.verdict, budget.limits.files
    return {
        "filename": name(budget.program.path),
        "cell": budget.program.cell or None,
        "start_method": budget.setup.method,
        "start_method_known": not budget.setup.method_open,
        "ranks": budget.setup.ranks,
        "loaders": [
            {"name": one.name, "workers": count, "place": _place(one.place, name), "workers_from": _place(one.workers_from, name)}
            for one, count in zip(budget.program.loaders, budget.workers, strict=True)
        ],
        "rows": [{"holder": _GROUPS[row.group], "bytes": row.bytes, **_row(row, name)} for row in budget.rows if row.group in _GROUPS],
        "descriptors": [{"count": row.bytes, **_row(row, name)} for row in budget.rows if row.group == FILES],
        "totals": [
            {
                "moment": one.moment.value,
                "bytes": one.bytes,
                "workers": one.workers,
                "shared": one.shared,
                "missing": labels(one.missing),
                "device": one.device,
                "device_missing": labels(one.device_missing),
                "descriptors": one.files,
            }
            for one in verdict.totals
        ],
        "limits": {
            **{
                key: {"bytes": one.size, "source": one.source} if one is not None else None
                for key, one in (("memory", budget.limits.ram), ("shm", budget.limits.shm), ("device", budget.limits.vram))
            },
            "cores": budget.limits.cores,
            "descriptors": {"count": files.size, "source": files.source} if files is not None else None,
        },
        "verdict": {
            "fits": verdict.fits,
            "chunk_caches": verdict.perhaps,
            "complete": verdict.complete,
            "moment": verdict.moment.value if verdict.moment is not None else None,
            "short_of": verdict.by or None,
            "workers": [{"start_method": one.method, "most": one.workers, "bounded": one.bound} for one in verdict.workers],
            "settings": [{"name": one.name, "most": one.most, "places": [_place(place, name) for place in one.places]} for one in budget.settings],
        },
        "replaced": [{"name": one.name, "given": one.given, "said": one.said, "place": _place(one.place, name)} for one in budget.replaced],
        "unless_set": list(budget.assumed),
        "data_files": [name(path) for path in budget.offered],
    }


def _row(row: Row, name: Named) -> dict[str, Any]:
    return {
        "what": row.what,
        "formula": str(row.size),
        "known": row.known.value,
        "missing": labels(row.size.missing),
        "moments": [one.value for one in Moment if one in row.moments],
        "place": _place(row.place, name),
        "environment": [{"name": one.name, "value": one.value, "assumed": one.assumed, "place": _place(one.place, name)} for one in row.environment],
    }


def _place(place: Place | None, name: Named) -> dict[str, Any] | None:
    if place is None or place.path == TYPED:
        return None
    return {"filename": name(place.path), "cell": place.cell or None, "row": place.row, "column": place.column}


def schema() -> dict[str, Any]:
    """The JSON Schema of it."""
    moment = {"enum": [one.value for one in Moment]}
    place = {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}]}
    limit = {"anyOf": [_object({"bytes": _BYTES, "source": _TEXT}), {"type": "null"}]}
    files = {"anyOf": [_object({"count": {"type": "integer", "minimum": 0}, "source": _TEXT}), {"type": "null"}]}
    cores = {"type": ["number", "null"], "exclusiveMinimum": 0}
    total = {"moment": moment, "bytes": _BYTES, "workers": _BYTES, "shared": _BYTES, "missing": _NAMES, "device": _BYTES, "device_missing": _NAMES}
    total |= {"descriptors": {**_BYTES, "description": "of the process that has most files open, as far as they are known"}}
    row = {
        "what": {**_TEXT, "description": "for people: it changes from version to version"},
        "formula": {**_TEXT, "description": "a product; names stand for numbers that are not known"},
        "known": {"enum": [one.value for one in Certainty]},
        "missing": _NAMES,
        "moments": {"type": "array", "items": moment},
        "place": place,
        "environment": {
            "type": "array",
            "items": _object({"name": _TEXT, "value": {"type": ["string", "null"]}, "assumed": {"type": "boolean"}, "place": place}),
            "description": "variables of the environment that it depends on; assumed: that nothing sets which was read, so that the default holds",
        },
    }
    bytes_of = {
        "holder": {"enum": list(_GROUPS.values())},
        "bytes": {**_BYTES, "description": "of all ranks and workers together, on a device of one rank; null where a number is not known"},
    }
    count = {**_BYTES, "description": "open files of one process; null where a number is not known"}
    fit = {"start_method": _TEXT, "most": {**_BYTES, "description": "null where it does not fit without workers either"}, "bounded": {"type": "boolean"}}
    setting = {"name": _TEXT, "most": {"type": "integer", "minimum": 0}, "places": {"type": "array", "items": {"$ref": "#/$defs/place"}}}
    verdict = {
        "fits": {"type": "boolean", "description": "as far as it is known"},
        "chunk_caches": {"type": "integer", "minimum": 0, "description": "bytes of them, at most, with which it may not fit; 0 where they change nothing"},
        "complete": {"type": "boolean", "description": "whether the totals leave nothing out, on the device too, and no row is known at least only"},
        "moment": {"anyOf": [moment, {"type": "null"}], "description": "the first at which it does not fit"},
        "short_of": {"enum": ["memory", "shm", "device", "descriptors", None]},
        "workers": {"type": "array", "items": _object(fit)},
        "settings": {"type": "array", "items": _object(setting), "description": "each alone would make it fit"},
    }
    program = {
        "filename": _TEXT,
        "cell": {"type": ["integer", "null"], "minimum": 1, "description": "of a notebook"},
        "start_method": {"enum": ["fork", "spawn", "forkserver"]},
        "start_method_known": {"type": "boolean", "description": "false where the code chooses one that nobody knows"},
        "ranks": {"type": "integer", "minimum": 1},
        "loaders": {"type": "array", "items": _object({"name": _TEXT, "workers": _BYTES, "place": place, "workers_from": place})},
        "rows": {"type": "array", "items": _object({**bytes_of, **row})},
        "descriptors": {"type": "array", "items": _object({"count": count, **row})},
        "totals": {"type": "array", "items": _object(total)},
        "limits": _object({"memory": limit, "shm": limit, "device": limit, "cores": cores, "descriptors": files}),
        "verdict": _object(verdict),
        "replaced": {
            "type": "array",
            "items": _object({"name": _TEXT, "given": {"type": "integer"}, "said": {"type": "integer"}, "place": place}),
            "description": "settings that `--set` gives another number than the code says",
        },
        "unless_set": {**_NAMES, "description": "variables of the environment: the table holds unless it sets them, in a way that was not read"},
        "data_files": {**_NAMES, "description": "that the code names and that are there: given with `--data`, their headers would tell what is not known"},
    }
    spot = {"filename": _TEXT, "cell": {"type": ["integer", "null"]}, "row": {"type": "integer", "minimum": 1}, "column": {"type": "integer", "minimum": 1}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "oomlint budget",
        "type": "array",
        "items": _object(program),
        "$defs": {"place": _object(spot)},
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
