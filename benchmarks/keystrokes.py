"""How long the language server takes to answer an edit.

usage: python benchmarks/keystrokes.py [FILE ...] [--edits N]

Opens each FILE (fixtures/incidents/voxel_colab/train.py where none is named) in a server of its own, and edits it as often as asked, each time after the answer
to the edit before. An edit adds a row at the top, and renames a loader at the end whose arguments do not fit, so that there is always something new to say.
Prints the time from the change to the answer, with the pause in which the server waits for more to be typed, and the processor time that it takes for it.
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
LIMIT: Final = 120  # seconds for one answer


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured, in seconds."""

    first: float  # until the first answer
    times: list[float]  # until the answers after each edit
    processor: list[float]  # that the server used for them


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

    async def answered(want: int) -> float:
        start = time.perf_counter()
        while want not in rows:
            news.clear()
            await asyncio.wait_for(news.wait(), LIMIT)
        return time.perf_counter() - start

    def used() -> float:
        times = server.cpu_times()
        return float(times.user + times.system)

    def edited(number: int) -> tuple[str, int]:
        whole = "#\n" * number + text + ADDED.format(number)
        return whole, whole.count("\n") - 1

    whole, row = edited(0)
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "python", 0, whole)))
    first = await answered(row)
    times, processor = [], []
    for number in range(1, edits + 1):
        await asyncio.sleep(0.1)
        whole, row = edited(number)
        change = types.TextDocumentContentChangeWholeDocument(whole)
        client.text_document_did_change(types.DidChangeTextDocumentParams(types.VersionedTextDocumentIdentifier(number, uri), [change]))
        before = used()
        times.append(await answered(row))
        processor.append(used() - before)
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()  # type: ignore[no-untyped-call]
    return Figures(first, times, processor)


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
            f"{name} median {statistics.median(each) * 1e3:.0f} ms, at most {max(each) * 1e3:.0f} ms"
            for name, each in (("answer", figures.times), ("processor", figures.processor))
        )
        print(f"{file}: {text.count(chr(10))} rows; first answer {figures.first * 1e3:.0f} ms; {len(figures.times)} edits: {said}", flush=True)


if __name__ == "__main__":
    main()
