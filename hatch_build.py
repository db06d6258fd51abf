"""Puts the commit that oomlint is built from into the package: what pip, uvx and pipx install has no repository beside it."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):
    """Adds the file that `oomlint --version` reads, where the commit is known. A wheel made of an sdist gets that of the sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Find the commit, as an installation finds that of a checkout."""
        sys.path.insert(0, self.root)
        from oomlint.cli.version import COMMIT, checked_out  # noqa: PLC0415 - the package is not installed

        commit = checked_out(self.root)
        if version != "editable" and commit:
            self._folder = tempfile.TemporaryDirectory()
            path = os.path.join(self._folder.name, COMMIT)
            with open(path, "w", encoding="ascii") as stream:
                stream.write(commit)
            build_data["force_include"][path] = f"oomlint/{COMMIT}"
