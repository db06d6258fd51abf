"""``oomlint mcp``: the tools ``check`` and ``explain``, and ``verify`` where running code is allowed.

Checks run in a process of their own: what they take is given back, and nothing of theirs comes in between the messages on standard output.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from oomlint import __version__, plugins, registry
from oomlint.finding import Confidence, Severity  # noqa: TC001 - the server reads the annotations of tools
from oomlint.mcp.answers import bounded
from oomlint.rule import page, status

if TYPE_CHECKING:
    from collections.abc import Callable

_LIMIT: Final = 20  # findings in an answer, unless another number is asked for
_CODES: Final = re.compile(r"\w[\w-]*")  # codes, prefixes, names: nothing that could be an option, or several
_SAID: Final = re.compile(r"oomlint: (?:warning: )?(.*)")
_ABOUT: Final = """Finds the memory bugs of PyTorch training code: workers that copy the dataset, growing lists of tensors, leaked graphs and handles.
check reads code and runs nothing of it, explain gives the page of a rule. Findings come with the heaviest first. fix.edits are spans with rows and columns
from 1, the end exclusive."""


def make(*, allow_run: bool) -> MCPServer[Any]:
    """The server; with ``allow_run`` it has a tool that runs code of the project."""
    plugins.use(plugins.RuleSources(installed=True))
    server: MCPServer[Any] = MCPServer("oomlint", version=__version__, instructions=_ABOUT, log_level="WARNING")

    async def check(
        paths: list[str] | None = None,
        select: list[str] | None = None,
        severity: Severity | None = None,
        min_confidence: Confidence | None = None,
        limit: int = _LIMIT,
        no_baseline: bool = False,  # noqa: FBT001, FBT002 - arguments of tools are given by name
    ) -> str:
        """Check Python files, notebooks and folders for memory bugs. None of their code is executed, and nothing is changed.

        paths: files and folders, relative to the folder that the server was started in, which is checked without any. For a single file, what it causes
        in other files is found, too.
        select: codes, prefixes or names of rules, such as OOM101 or OOM2; all by default.
        severity: the lowest severity to show, of error, warning and note; warning unless the settings of the project say otherwise.
        min_confidence: the lowest confidence to show, of high, medium and low; medium unless the settings say otherwise.
        limit: how many findings to show at most.
        no_baseline: show what the baseline of the project knows, too; without it, a warning says how many findings are known.
        Returns JSON: total, severities (how many findings of each), and findings with code, severity, confidence, message, help, place, related places, facts,
        weight, and fix with its safety and edits; warnings: what the check says beside them, such as that a selected rule does not run.
        """
        words = ["check", "--no-local-rules", "--output-format", "json", "--sort", "weight", "--exit-zero", *_selected(select, severity, min_confidence)]
        entries, warnings = await _entries([*words, *(["--no-baseline"] if no_baseline else [])], paths or ["."])
        return bounded("findings", entries, limit, warnings=warnings)

    async def explain(rule: str) -> str:
        """Explain a rule: what it finds, why that is bad, and what to write instead. Give its code, such as OOM101, or its name."""
        try:
            found = registry.load(registry.find(rule))
        except ValueError as error:
            raise ToolError(str(error)) from None
        return f"# {found.slug} ({found.code})\n\n{status(found)}{page(found).text}"

    async def verify(
        paths: list[str],
        after: str | None = None,
        time_limit: str = "5s",
        severity: Severity | None = None,
        min_confidence: Confidence | None = None,
        limit: int = _LIMIT,
    ) -> str:
        """Run the code around findings before and after their fixes, in a sandbox and in a copy of the project, and measure both.

        paths: findings as PATH:LINE, or files and folders for all in them.
        after: a file that was fixed by hand, to be judged in place of oomlint's own fix; or a folder of such files.
        time_limit: for one run, such as 500ms, 5s or 2m.
        severity, min_confidence: the lowest to verify, as those of check.
        Returns JSON: total, severities, and verdicts: each finding with verdict.outcome (confirmed, no effect, regressed or inconclusive), its reason and
        readings.
        """
        words = ["verify", "--output-format", "json", "--quiet", f"--time-limit={time_limit}", *([f"--after={after}"] if after else [])]
        entries, _ = await _entries([*words, *_selected(None, severity, min_confidence)], paths)
        for entry in entries:
            entry.get("verdict", {}).pop("timelines", None)  # many points, for charts
        return bounded("verdicts", entries, limit)

    tools: list[Callable[..., Any]] = [check, explain, *([verify] if allow_run else [])]
    for tool in tools:
        server.add_tool(tool, structured_output=False)
    return server


def _selected(codes: list[str] | None, severity: Severity | None, confidence: Confidence | None) -> list[str]:
    """The options that choose findings. Raises ToolError for what could be another option."""
    strange = next((code for code in codes or () if not _CODES.fullmatch(code)), None)
    if strange is not None:
        raise ToolError(f"{strange!r} is no code of a rule")
    lowest = (("severity", severity), ("min-confidence", confidence))
    return [*(f"--select={code}" for code in codes or ()), *(f"--{name}={value}" for name, value in lowest if value is not None)]


async def _entries(words: list[str], paths: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """The JSON that a command prints, and what it says beside it. Raises ToolError with what it says where it prints none."""
    # Paths stand behind what ends the options: none of them can be one.
    try:
        done = await anyio.run_process([sys.executable, "-m", "oomlint", *words, "--", *(paths or ["."])], check=False, stdin=subprocess.DEVNULL)
    except (OSError, ValueError) as error:  # a line that is too long, or no line
        raise ToolError(f"paths: {error.strerror or error}" if isinstance(error, OSError) else f"paths: {error}") from None
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = None
    said = done.stderr.decode(errors="replace").strip()
    if not isinstance(found, list):
        raise ToolError(said[-2000:] or f"oomlint has ended with {done.returncode}")
    return found, [line[1] for line in map(_SAID.fullmatch, said.splitlines()) if line]
