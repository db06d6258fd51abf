"""``oomlint baseline``: what ``oomlint check --write-baseline`` does, under a name of its own."""

from __future__ import annotations

from dataclasses import field, fields, make_dataclass
from typing import Any, Final

from oomlint.cli import check

_DOC: Final = """Write all findings to the baseline, which leaves them out of later runs: the same as `oomlint check --write-baseline`.

    The file is `oomlint-baseline.json` in the project's root, unless --baseline or the settings name another.
    """
# What says which findings there are, where they go, and how the rest is told; nothing is fixed or shown.
_TAKEN: Final = (
    "paths select ignore extend_select preview no_preview per_file_ignores extend_per_file_ignores no_local_rules severity min_confidence output_format "
    "color quiet verbose baseline config isolated exclude extend_exclude force_exclude no_respect_gitignore cache_dir no_cache"
).split()

Arguments: Final[Any] = make_dataclass(
    "Arguments",
    [(each.name, each.type, field(default=each.default, metadata=each.metadata)) for each in fields(check.Arguments) if each.name in _TAKEN],
    namespace={"__doc__": _DOC},
    frozen=True,
    kw_only=True,
)


def perform(arguments: Any) -> int:
    """Check, write the file, and return the exit status."""
    return check.perform(check.Arguments(write_baseline=True, **{name: getattr(arguments, name) for name in _TAKEN}))
