"""What a run would do, without doing it: its settings, and its files."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from oomlint.discovery import discover
from oomlint.output.view import View, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from oomlint.settings import Settings


def show_settings(settings: Settings, file: Path | None, root: Path) -> None:
    """Write settings to standard output, as a file of their own would have them."""
    sys.stdout.write(f"# settings: {visible(str(file)) if file else 'none'}\n# root: {visible(str(root))}\n{settings_text(settings)}")


def settings_text(settings: Settings) -> str:
    """An oomlint.toml with all keys. Those without a value are comments."""
    table = settings.as_table()
    tables = {key: value for key, value in table.items() if isinstance(value, dict)}
    lines = [*_rows({key: value for key, value in table.items() if key not in tables})]
    for key, value in tables.items():
        lines += ["", f"[{key}]", *_rows(value)]
    return "".join(f"{line}\n" for line in lines)


def _rows(table: Mapping[str, object]) -> Iterator[str]:
    for key, value in table.items():
        name = key if key.replace("-", "").isalnum() and key.isascii() else json.dumps(key)
        yield f"# {name} is not set" if value is None else f"{name} = {json.dumps(value)}"


def show_files(paths: Sequence[str], settings: Settings, root: Path, view: View, *, force_exclude: bool) -> int:
    """Write the files that would be checked to standard output, and what cannot be to standard error. The exit status."""
    found = discover(paths, settings, root, force_exclude)
    sys.stdout.write("".join(f"{visible(view.name(path))}\n" for path in found.files))
    sys.stderr.write("".join(f"oomlint: {visible(view.name(problem.path))}: {problem.message}\n" for problem in found.problems))
    return int(bool(found.problems))
