"""How long the language server takes to answer an edit.

usage: python benchmarks/keystrokes.py [FILE ...] [--edits N]

Opens each FILE (fixtures/incidents/voxel_colab/train.py where none is named) in a server of its own, and edits it as often as asked, each time after the answer
to the edit before. An edit adds a row at the top, and renames a loader at the end whose arguments do not fit and a sum that keeps its graph, so that there is
always something new to say. Prints the time from the change to the first of these findings, and to the other one, which is among the last, with the pause in
which the server waits for more to be typed, and the processor time that it takes to either.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil  # type: ignore[import-untyped,unused-ignore]
from lsprotocol import types
from pygls.lsp.client import LanguageClient

DEFAULT: Final = Path(__file__).parent.parent / "fixtures" / "incidents" / "voxel_colab" / "train.py"
ADDED: Final = "\nfrom torch.utils.data import DataLoader as Added\nadded_{0} = Added([], num_workers=0, persistent_workers=True)\n"
SUMMED: Final = """
def summed(loader, model):
    total_{0} = 0
    for batch in loader:
        loss = model(batch).sum()
        loss.backward()
        total_{0} += loss
    return total_{0}
"""
LIMIT: Final = 120  # seconds for one answer


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured, in seconds."""

    opened: float  # until the answer to the file as it is
    first: list[tuple[float, float]]  # until the first finding after each edit, and processor time of the server
    last: list[tuple[float, float]]  # until the last one


async def measure(uri: str, text: str, edits: int) -> Figures:
    """Open a file and edit it."""
    client = LanguageClient("keystrokes", "1")
    news = asyncio.Event()
    rows: list[int] = []  # of findings, in the last answer

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)  # type: ignore[untyped-decorator]
    def published(params: types.PublishDiagnosticsParams) -> None:
        if params.uri == uri:
            rows[:] = [each.range.start.line for each in params.diagnostics]
            news.set()

    await client.start_io(sys.executable, "-m", "oomlint", "server")
    server = psutil.Process(client._server.pid)  # type: ignore[union-attr] # noqa: SLF001 - the client shows it nowhere
    await client.initialize_async(types.InitializeParams(types.ClientCapabilities(), root_uri=uri.rpartition("/")[0]))
    client.initialized(types.InitializedParams())

    async def answered(*want: int) -> list[tuple[float, float]]:
        start, before = time.perf_counter(), used()
        found = []
        for row in want:
            while row not in rows:
                news.clear()
                await asyncio.wait_for(news.wait(), LIMIT)
            found.append((time.perf_counter() - start, used() - before))
        return found

    def used() -> float:
        times = server.cpu_times()
        return float(times.user + times.system)

    def edited(number: int) -> tuple[str, int, int]:
        front = "#\n" * number + text + ADDED.format(number)
        whole = front + SUMMED.format(number)
        return whole, front.count("\n") - 1, whole.count("\n") - 2

    whole, *wanted = edited(0)
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "python", 0, whole)))
    opened = await answered(*wanted)
    first, last = [], []
    for number in range(1, edits + 1):
        await asyncio.sleep(0.1)
        whole, *wanted = edited(number)
        change = types.TextDocumentContentChangeWholeDocument(whole)
        client.text_document_did_change(types.DidChangeTextDocumentParams(types.VersionedTextDocumentIdentifier(number, uri), [change]))
        soon, late = await answered(*wanted)
        first.append(soon)
        last.append(late)
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()  # type: ignore[no-untyped-call]
    return Figures(opened[-1][0], first, last)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=[DEFAULT])
    parser.add_argument("--edits", type=int, default=30)
    arguments = parser.parse_args()
    for file in arguments.files:
        path = file.resolve()
        text = path.read_text(encoding="utf-8")
        figures = asyncio.run(measure(path.as_uri(), text, arguments.edits))
        said = ", ".join(
            f"{name} finding {statistics.median(wall) * 1e3:.0f} ms, at most {max(wall) * 1e3:.0f}, of the processor {statistics.median(cpu) * 1e3:.0f}"
            for name, (wall, cpu) in (("first", zip(*figures.first, strict=True)), ("last", zip(*figures.last, strict=True)))
        )
        print(f"{file}: {text.count(chr(10))} rows; opened {figures.opened * 1e3:.0f} ms; {len(figures.first)} edits: {said}", flush=True)


if __name__ == "__main__":
    main()
