#!/usr/bin/env python3
"""A hook for coding agents: it runs when the agent wants to end its turn, and sends it back while files that it has changed have new findings.

The exit status is 2 where the agent has to go on, with the findings on standard error; 0 where it may stop; 1 where nothing could be checked, with the cause,
which keeps nobody. What is known by the baseline of the settings is not new. An agent that has changed nothing in answer to the same findings may stop: a
finding that it cannot fix does not keep it for ever.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

KINDS = ("*.py", "*.pyi", "*.ipynb", "*.sh", "*.yaml", "*.yml")
GO_ON = 2


def git(*words: str) -> str:
    """What git says, without its last line end; empty where it fails."""
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.rstrip("\n")


def changed() -> list[str]:
    """The files that differ from the last commit, and those that git does not know yet, relative to the current folder."""
    last = git("rev-parse", "--quiet", "--verify", "HEAD") or git("hash-object", "-t", "tree", "/dev/null")
    named = git("diff", "--name-only", "--relative", "-z", "--diff-filter=d", last, "--", *KINDS)
    return [name for name in (named + git("ls-files", "-z", "--others", "--exclude-standard", "--", *KINDS)).split("\0") if name]


def main() -> int:
    """Check what has changed and return the exit status."""
    sys.stdin.close()  # what the client says of the session is not needed
    files = changed()
    told = Path(git("rev-parse", "--git-path", "oomlint-stop"))  # what the agent was sent back with
    if not files:
        told.unlink(missing_ok=True)
        return 0
    command = ["oomlint", "check", "--force-exclude", "--output-format", "concise", "--", *files]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        sys.stderr.write(f"oomlint cannot be started: {error.strerror}\n")
        return 1
    if done.returncode not in {0, 1}:
        sys.stderr.write(done.stderr)
        return 1
    if done.returncode == 0 or (told.is_file() and told.read_text(encoding="utf-8") == done.stdout):
        told.unlink(missing_ok=True)
        return 0
    told.write_text(done.stdout, encoding="utf-8")
    sys.stderr.write(
        f"{done.stdout}`oomlint rule CODE` says what to write instead. Fix these, or silence what is wrong at its line, with the reason, and say so.\n"
    )
    return GO_ON


if __name__ == "__main__":
    sys.exit(main())
