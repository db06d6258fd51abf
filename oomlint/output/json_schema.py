"""The JSON Schema of what `--output-format json` writes, of `oomlint check` and of `oomlint verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from oomlint import facts
from oomlint.finding import Confidence, Safety, Severity
from oomlint.verify.case import Fidelity, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import StrEnum

_PLACE: Final = "#/$defs/place"
_TEXT: Final = {"type": "string"}
_NUMBERS: Final = {"type": "array", "items": {"type": ["number", "null"]}}


def schema() -> dict[str, Any]:
    """An array of findings, each with its verdict where it was verified."""
    spot = object_of({"row": {"type": "integer", "minimum": 1}, "column": {"type": "integer", "minimum": 1}})
    at = {
        "filename": {**_TEXT, "description": "relative to the current folder, with `/`"},
        "cell": {"type": ["integer", "null"], "minimum": 1, "description": "of a notebook; rows then count within it"},
        "location": {"$ref": "#/$defs/spot"},
        "end_location": {"$ref": "#/$defs/spot", "description": "exclusive"},
    }
    fix = {"safety": _enum(Safety), "message": _TEXT, "edits": array_of(object_of({**at, "content": _TEXT}))}
    finding = {
        "code": {"type": ["string", "null"], "pattern": r"^[A-Z]+\d+$", "description": "null for a file that cannot be read or parsed"},
        "name": _TEXT,
        "message": {**_TEXT, "description": "headline and consequence, for people: their words change from version to version"},
        "headline": {**_TEXT, "description": "what is wrong; the cause where a file cannot be read or parsed"},
        "consequence": {**_TEXT, "description": "what it costs"},
        "help": {**_TEXT, "description": "what to do about it"},
        "severity": _enum(Severity),
        "confidence": _enum(Confidence),
        **at,
        "related": array_of(object_of({**at, "message": _TEXT})),
        "fix": {"anyOf": [object_of(fix), {"type": "null"}]},
        "facts": {"type": "array", "items": {"anyOf": [{"$ref": f"#/$defs/{noun}"} for noun in facts.NOUNS]}},
        "weight": {"anyOf": [{"$ref": "#/$defs/weight"}, {"type": "null"}], "description": "null for a file that cannot be read or parsed"},
        "url": {"type": ["string", "null"]},
    }
    some = {
        "fixed_by": {"enum": ["--fix", "--fix --unsafe-fixes", None]},
        "fixed": {"const": True, "description": "of `oomlint check --fix --verify`: the fix is applied, and the place is that before it"},
        "verdict": {"anyOf": [{"$ref": "#/$defs/verdict"}, {"type": "null"}]},
        "left_out": {"type": "integer", "minimum": 1, "description": "of the last finding, with `--limit`: how many there are behind it"},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "oomlint findings",
        "type": "array",
        "items": {"$ref": "#/$defs/finding"},
        "$defs": {
            "finding": object_of({**finding, **some}, finding),
            "spot": {**spot, "description": "Counted from 1, in characters."},
            "place": object_of(at),
            "weight": facts.weight_schema(),
            **facts.schema(_PLACE),
            "verdict": _verdict(),
        },
    }


def _verdict() -> dict[str, Any]:
    reading = {"name": _TEXT, "unit": _TEXT, "under": _TEXT, "before": _NUMBERS, "after": _NUMBERS}
    points = {"type": "array", "items": {**_NUMBERS, "minItems": 2, "maxItems": 2}}
    timeline = {"name": _TEXT, "unit": _TEXT, "axis": {"enum": ["seconds", "step"]}, "before": points, "after": points}
    return object_of(
        {
            "outcome": _enum(Outcome),
            "reason": _TEXT,
            "next_step": {"type": ["string", "null"]},
            "has_fix": {"type": "boolean", "description": "whether there was a fix to compare with"},
            "fidelity": {"anyOf": [_enum(Fidelity), {"type": "null"}]},
            "readings": array_of(object_of(reading)),
            "timelines": array_of(object_of(timeline)),
            "assumptions": array_of(_TEXT),
            "left_out": array_of(_TEXT),
            "python": _TEXT,
            "seconds": {"type": "number"},
            "sandbox": {"type": ["string", "null"]},
            "cached": {"type": "boolean"},
        }
    )


def object_of(properties: dict[str, Any], required: Iterable[str] | None = None) -> dict[str, Any]:
    """An object with these properties and no others; all of them are there, unless ``required`` names those that are."""
    needed = list(properties if required is None else required)
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def array_of(items: dict[str, Any]) -> dict[str, Any]:
    """An array of such items."""
    return {"type": "array", "items": items}


def _enum(values: type[StrEnum]) -> dict[str, Any]:
    return {"enum": [one.value for one in values]}
