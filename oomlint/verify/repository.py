"""Asks git about a project that may be anybody's: nothing that its configuration names is started, and nothing is fetched."""

from __future__ import annotations

import os
import subprocess
from typing import Final

_GIT: Final = (
    *("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.bareRepository=explicit"),
    *("--literal-pathspecs", "ls-files", "-z", "-c"),
)
_QUIET: Final = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0"}
_SECONDS: Final = 20


def files(folder: str, *words: str, ceiling: str = "") -> list[str]:
    """The files below a folder that its repository knows, relative to it; ``words`` go to ``git ls-files``. Repositories above ``ceiling`` do not count.

    Raises OSError or subprocess.SubprocessError where there is no repository, or no git.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # those of a hook speak of another work
    done = subprocess.run(  # noqa: S603 -- fixed words, and paths that are taken literally
        [*_GIT, *words],
        cwd=folder,
        env={**own, **_QUIET, **({"GIT_CEILING_DIRECTORIES": ceiling} if ceiling else {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=_SECONDS,
    )
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]
