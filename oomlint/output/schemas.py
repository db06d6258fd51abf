"""JSON Schemas of what `oomlint rule`, `oomlint config` and `check --statistics` write as JSON, and of the file of a baseline."""

from __future__ import annotations

from typing import Any, Final

from oomlint.finding import Confidence, Safety, Severity
from oomlint.output.json_schema import array_of, object_of

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_TEXT: Final = {"type": "string"}
_CODE: Final = {"type": "string", "pattern": r"^[A-Z]+\d{3}$"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_SEVERITY: Final = {"enum": [each.value for each in Severity]}


def rules() -> dict[str, Any]:
    """What `oomlint rule --output-format json` writes: an object where one rule is named, else an array."""
    rule = {
        "code": _CODE,
        "name": _TEXT,
        "summary": _TEXT,
        "severity": {**_SEVERITY, "description": "the gravest that it reports"},
        "lower_severities": {**array_of(_SEVERITY), "description": "what it reports beside that, the graver first"},
        "fix": {"enum": [*(each.value for each in Safety), None], "description": "the best safety that a fix of it has"},
        "preview": {"type": "boolean"},
        "explanation": {**_TEXT, "description": "its page, in Markdown"},
        "url": {"type": ["string", "null"]},
    }
    one = {"$ref": "#/$defs/rule"}
    return {"$schema": _DRAFT, "title": "oomlint rule", "anyOf": [one, array_of(one)], "$defs": {"rule": object_of(rule)}}


def settings() -> dict[str, Any]:
    """What `oomlint config --output-format json` writes."""
    setting = {
        "key": {**_TEXT, "description": "of a setting within a table after the name of the table, such as `verify.time-limit`"},
        "type": {**_TEXT, "description": "for people"},
        "default": {"type": ["string", "boolean", "integer", "array", "object", "null"], "description": "null where it has none"},
        "meaning": _TEXT,
    }
    return {"$schema": _DRAFT, "title": "oomlint config", **array_of(object_of(setting))}


def statistics() -> dict[str, Any]:
    """What `oomlint check --statistics --output-format json` writes; with `json-lines` each row is one of its items."""
    row = {
        "code": {**_CODE, "type": ["string", "null"], "description": "null for files that cannot be read or parsed"},
        "name": _TEXT,
        "severity": {**_SEVERITY, "description": "the gravest of its findings"},
        "count": _COUNT,
        "fixable": {**_COUNT, "description": "those with a fix that can be applied"},
    }
    return {"$schema": _DRAFT, "title": "oomlint check --statistics", **array_of(object_of(row))}


def baseline() -> dict[str, Any]:
    """The file that `oomlint check --write-baseline` writes."""
    known = {
        "file": {**_TEXT, "description": "relative to the folder of the baseline, with `/`"},
        "definition": {**_TEXT, "description": "the class or function around it, such as `Trainer.fit`"},
        "code": _CODE,
        "name": _TEXT,
        "severity": _SEVERITY,
        "confidence": {"enum": [each.value for each in Confidence]},
        "fingerprint": {**_TEXT, "description": "by which a finding is known again"},
    }
    whole = {"version": {"const": 1}, "findings": array_of(object_of(known))}
    return {"$schema": _DRAFT, "title": "oomlint baseline", **object_of(whole)}
