"""The language server, spoken to by a real client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec.structs import replace

pytest.importorskip("pygls", reason="the extra lsp is not installed")

from lsprotocol import types
from pygls.lsp.client import LanguageClient
from pygls.workspace.position_codec import PositionCodec

from oomlint.finding import Confidence, Finding, Place, Severity
from oomlint.lsp.documents import Document
from oomlint.lsp.moved import moved
from oomlint.lsp.open_project import project_of_buffer
from oomlint.lsp.server import make
from oomlint.lsp.translation import FIX_ALL, Translator
from oomlint.output import urls
from oomlint.output.view import View

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

LIMIT: Final = 60  # seconds for one answer
LOADER: Final = "from torch.utils.data import DataLoader\n"
BAD: Final = LOADER + "loader = DataLoader(x, num_workers=0, persistent_workers=True)\n"
RUN: Final = LOADER + "\nloader = DataLoader([1, 2], num_workers=0, persistent_workers=True)\nfor item in loader:\n    print(item)\n"
GOOD: Final = LOADER + "loader = DataLoader(x, num_workers=0)\n"


class Client:
    """An editor: it opens and changes documents, and waits for what is sent about them."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.options = options
        self.folder = folder
        self.client = LanguageClient("test", "1")
        self.sent: dict[str, list[types.Diagnostic]] = {}
        self.messages: list[str] = []
        self._news = asyncio.Event()
        self._version = 0

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)  # type: ignore[untyped-decorator]
        def published(params: types.PublishDiagnosticsParams) -> None:
            self.sent[params.uri] = list(params.diagnostics)
            self._news.set()

        @self.client.feature(types.WINDOW_SHOW_MESSAGE)  # type: ignore[untyped-decorator]
        def shown(params: types.ShowMessageParams) -> None:
            self.messages.append(params.message)
            self._news.set()

        @self.client.feature(types.WINDOW_LOG_MESSAGE)  # type: ignore[untyped-decorator]
        def logged(params: types.LogMessageParams) -> None:
            raise AssertionError(params.message)

    async def begin(self) -> types.InitializeResult:
        await self.client.start_io(sys.executable, "-m", "oomlint", "server", "--stdio", *self.options)
        parameters = types.InitializeParams(types.ClientCapabilities(), root_uri=self.folder.as_uri())
        result = await asyncio.wait_for(self.client.initialize_async(parameters), LIMIT)
        self.client.initialized(types.InitializedParams())
        return result

    async def end(self) -> None:
        await asyncio.wait_for(self.client.shutdown_async(None), LIMIT)
        self.client.exit(None)
        await asyncio.wait_for(self.client.stop(), LIMIT)  # type: ignore[no-untyped-call]

    def uri(self, name: str) -> str:
        return name if name.startswith("untitled:") else (self.folder / name).as_uri()

    def open(self, name: str, text: str | None = None) -> None:
        text = (self.folder / name).read_text() if text is None else text
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(self.uri(name), "python", 1, text)))

    def change(self, name: str, text: str) -> None:
        self._version += 1
        document = types.VersionedTextDocumentIdentifier(self._version, self.uri(name))
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [types.TextDocumentContentChangeWholeDocument(text)]))

    async def until(self, condition: Callable[[], bool]) -> None:
        async def wait() -> None:
            while not condition():
                self._news.clear()
                await self._news.wait()

        await asyncio.wait_for(wait(), LIMIT)

    def codes(self, name: str) -> list[tuple[Any, int]] | None:
        found = self.sent.get(self.uri(name))
        return None if found is None else [(each.code, each.range.start.line) for each in found]

    async def shows(self, name: str, *codes: tuple[str, int]) -> list[types.Diagnostic]:
        await self.until(lambda: self.codes(name) == list(codes))
        return self.sent[self.uri(name)]

    async def actions(self, name: str, span: types.Range, *only: str) -> list[types.CodeAction]:
        context = types.CodeActionContext([], only=list(only) or None)
        parameters = types.CodeActionParams(types.TextDocumentIdentifier(self.uri(name)), span, context)
        found = await asyncio.wait_for(self.client.text_document_code_action_async(parameters), LIMIT)
        return [each for each in found or () if isinstance(each, types.CodeAction)]

    async def lenses(self, name: str) -> list[types.CodeLens]:
        parameters = types.CodeLensParams(types.TextDocumentIdentifier(self.uri(name)))
        found = await asyncio.wait_for(self.client.text_document_code_lens_async(parameters), LIMIT)
        return list(found or ())

    async def run(self, lens: types.CodeLens) -> None:
        assert lens.command is not None
        parameters = types.ExecuteCommandParams(lens.command.command, list(lens.command.arguments or ()))
        await asyncio.wait_for(self.client.workspace_execute_command_async(parameters), LIMIT)

    async def says(self, text: str) -> None:
        await self.until(lambda: any(message.startswith(text) for message in self.messages))

    async def hover(self, name: str, line: int, character: int) -> str:
        parameters = types.HoverParams(types.TextDocumentIdentifier(self.uri(name)), types.Position(line, character))
        found = await asyncio.wait_for(self.client.text_document_hover_async(parameters), LIMIT)
        if found is None:
            return ""
        assert isinstance(found.contents, types.MarkupContent)
        return found.contents.value


def session(folder: Path, talk: Callable[[Client], Awaitable[None]], *options: str) -> Client:
    """Talk to a server that looks at a folder."""

    async def whole() -> Client:
        client = Client(folder, *options)
        await client.begin()
        await talk(client)
        await client.end()
        return client

    return asyncio.run(whole())


def applied(text: str, edits: list[types.TextEdit]) -> str:
    """A text of characters that count one each, with edits."""
    starts = [0]
    for row in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))
    for edit in sorted(edits, key=lambda each: (each.range.start.line, each.range.start.character), reverse=True):
        start, end = (starts[each.line] + each.character for each in (edit.range.start, edit.range.end))
        text = text[:start] + edit.new_text + text[end:]
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.oomlint]\nselect = ["OOM1"]\n')
    return tmp_path


def test_a_buffer_is_checked_as_it_is_typed_and_fixed(folder: Path) -> None:
    (folder / "train.py").write_text(GOOD)

    async def talk(client: Client) -> None:
        client.open("train.py")
        await client.shows("train.py")
        client.change("train.py", BAD)
        (found,) = await client.shows("train.py", ("OOM101", 1))
        assert (found.source, found.severity) == ("oomlint", types.DiagnosticSeverity.Error)
        assert (found.range.start.character, found.range.end.character) == (9, len(BAD.splitlines()[1]))
        assert found.message.endswith("help: remove `persistent_workers`: this loader has no workers (safe fix)")
        fix, silence = await client.actions("train.py", found.range)
        assert silence.title == "OOM101: disable for this line"
        assert silence.edit
        assert silence.edit.changes
        silent = applied(BAD, list(silence.edit.changes[client.uri("train.py")]))
        assert silent.splitlines()[1].endswith("  # oomlint: ignore[OOM101]")
        client.change("train.py", silent)
        await client.shows("train.py")
        client.change("train.py", BAD)
        await client.shows("train.py", ("OOM101", 1))
        assert fix.kind == types.CodeActionKind.QuickFix
        assert fix.edit
        assert fix.edit.changes
        assert applied(BAD, list(fix.edit.changes[client.uri("train.py")])) == GOOD
        (every,) = await client.actions("train.py", found.range, "source.fixAll")
        assert every.kind == FIX_ALL
        assert every.edit
        assert every.edit.changes
        assert applied(BAD, list(every.edit.changes[client.uri("train.py")])) == GOOD
        assert "# persistent-without-workers (OOM101)" in await client.hover("train.py", 1, 12)
        assert await client.hover("train.py", 0, 3) == ""
        client.change("train.py", GOOD + "# noqa: OOM101")
        await client.shows("train.py")
        assert "(OOM101)" in await client.hover("train.py", 2, 10), "a code in a comment"
        client.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(client.uri("train.py"))))
        await client.shows("train.py")

    session(folder, talk)
    assert (folder / "train.py").read_text() == GOOD, "nothing is written"


def test_what_is_typed_elsewhere_counts(folder: Path) -> None:
    """A value comes from the unsaved buffer of another file, and then from what is saved."""
    (folder / "settings.py").write_text("WORKERS = 2\n")
    (folder / "train.py").write_text(LOADER + "from settings import WORKERS\nloader = DataLoader(x, num_workers=WORKERS, persistent_workers=True)\n")

    async def talk(client: Client) -> None:
        client.open("train.py")
        client.open("settings.py")
        await client.shows("train.py")
        client.change("settings.py", "# none\nWORKERS = 0\n")
        (found,) = await client.shows("train.py", ("OOM101", 2))
        assert found.related_information
        assert (found.related_information[0].location.uri, found.related_information[0].location.range.start.line) == (client.uri("settings.py"), 1)
        await client.shows("settings.py", ("OOM101", 1))  # what it causes
        client.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(client.uri("settings.py"))))
        client.change("train.py", (folder / "train.py").read_text() + "\n")
        await client.shows("train.py")
        (folder / "settings.py").write_text("WORKERS = 0  # saved\n")
        client.change("train.py", (folder / "train.py").read_text())
        await client.shows("train.py", ("OOM101", 2))

    session(folder, talk)


def test_what_is_closed_while_it_is_checked_has_no_findings(folder: Path) -> None:
    async def talk(client: Client) -> None:
        client.open("train.py", BAD)
        client.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(client.uri("train.py"))))
        assert await client.hover("train.py", 1, 12) == "", "nothing is said of a file that is not open"
        client.open("other.py", BAD)
        await client.shows("other.py", ("OOM101", 1))
        assert client.codes("train.py") == []

    session(folder, talk)


def test_findings_stay_while_a_program_is_broken(folder: Path) -> None:
    async def talk(client: Client) -> None:
        client.open("train.py", BAD)  # a file that is not on the disk yet
        await client.shows("train.py", ("OOM101", 1))
        client.change("train.py", "\n" + BAD + "loader.(\n")
        await client.shows("train.py", ("OOM101", 2))
        client.change("train.py", "\n\n" + BAD + "def f(\n")
        (found,) = await client.shows("train.py", ("OOM101", 3))
        assert not await client.actions("train.py", found.range)
        client.change("train.py", LOADER + "loader = DataLoader(\n")
        await client.shows("train.py")
        client.change("train.py", BAD)
        await client.shows("train.py", ("OOM101", 1))

    session(folder, talk)


def test_what_the_first_rules_say_is_sent_while_the_others_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"""{RUN}
def train(model, loader):
    total = 0
    for x in loader:
        loss = model(x).sum()
        loss.backward()
        total += loss
    return total


DataLoader([], num_workers=0, persistent_workers=True)  # noqa: OOM101
"""
    path = str(tmp_path / "train.py")
    project = project_of_buffer(path, str(tmp_path), ())
    heard: dict[str, tuple[Finding, ...]] = {}
    found = project.findings(path, {path: text.encode()}, heard.__setitem__)
    assert {code: [item.place.row for item in items] for code, items in heard.items() if items} == {"OOM101": [3], "OOM201": [12]}
    assert list(heard) == sorted(heard)

    server = make(allow_run=False)
    sent: list[list[tuple[str | None, int]]] = []
    monkeypatch.setattr(server, "_send", lambda path: sent.append([(item.code, item.place.row) for item in server.seen[path].own]))
    server._moved(Document("file:", path, text.encode())).own = found
    after = Document("file:", path, b"#\n" + text.encode())
    server._send_early(after, {"OOM101": tuple(replace(item, place=replace(item.place, row=4, end_row=4)) for item in heard["OOM101"])})
    assert sent == []  # an editor moves what it shows by itself
    server._send_early(after, {"OOM101": ()})
    assert sent == [[("OOM201", 13)]]  # of which nothing newer is known


def test_characters_are_counted_in_utf_16(folder: Path) -> None:
    row = '"\U0001d54e\u2028é"; loader = DataLoader(x, num_workers=0, persistent_workers=True)\n'
    text = LOADER + "\x0c\n" + row

    async def talk(client: Client) -> None:
        client.open("train.py", text)
        (found,) = await client.shows("train.py", ("OOM101", 2))
        assert found.range.start == types.Position(2, row.index("DataLoader") + 1)

    session(folder, talk)


def test_each_folder_has_its_settings(folder: Path) -> None:
    for name, select in {"one": "OOM101", "two": "OOM2"}.items():
        (folder / name).mkdir()
        (folder / name / "oomlint.toml").write_text(f'select = ["{select}"]\nexclude = ["left_out.py"]\n')
        (folder / name / "train.py").write_text(BAD)
        (folder / name / "left_out.py").write_text(BAD)

    async def talk(client: Client) -> None:
        client.open("one/left_out.py")
        client.open("two/train.py")
        client.open("one/train.py")
        await client.shows("one/train.py", ("OOM101", 1))
        await client.shows("two/train.py")
        assert client.codes("one/left_out.py") is None
        (folder / "two" / "oomlint.toml").write_text("selection = 3\n")
        client.client.workspace_did_change_watched_files(
            types.DidChangeWatchedFilesParams([types.FileEvent(client.uri("two/oomlint.toml"), types.FileChangeType.Changed)])
        )
        await client.until(lambda: bool(client.messages))
        assert "unknown key 'selection'" in client.messages[0]

    session(folder, talk)


def test_a_notebook_is_one_program_with_findings_in_its_cells(folder: Path) -> None:
    cells = {"a": "%matplotlib inline\n" + LOADER, "b": "loader = DataLoader(x, num_workers=0, persistent_workers=True)"}

    async def talk(client: Client) -> None:
        items = [types.TextDocumentItem(f"cell:{name}", "python", 1, text) for name, text in cells.items()]
        notebook = types.NotebookDocument(
            client.uri("book.ipynb"), "jupyter-notebook", 1, [types.NotebookCell(types.NotebookCellKind.Code, item.uri) for item in items]
        )
        client.client.notebook_document_did_open(types.DidOpenNotebookDocumentParams(notebook, items))
        await client.until(lambda: [each.code for each in client.sent.get("cell:b", [])] == ["OOM101"])
        (found,) = client.sent["cell:b"]
        assert found.range.start == types.Position(0, 9)
        context = types.CodeActionContext([])
        parameters = types.CodeActionParams(types.TextDocumentIdentifier("cell:b"), found.range, context)
        fix, silence = await client.client.text_document_code_action_async(parameters) or ()
        assert isinstance(fix, types.CodeAction)
        assert isinstance(silence, types.CodeAction)
        assert silence.edit
        assert silence.edit.changes
        assert applied(cells["b"], list(silence.edit.changes["cell:b"])) == cells["b"] + "  # oomlint: ignore[OOM101]"
        assert fix.edit
        assert fix.edit.changes
        assert applied(cells["b"], list(fix.edit.changes["cell:b"])) == "loader = DataLoader(x, num_workers=0)"
        content = types.NotebookDocumentCellContentChanges(
            types.VersionedTextDocumentIdentifier(2, "cell:b"), [types.TextDocumentContentChangeWholeDocument("loader = DataLoader(x, num_workers=0)")]
        )
        change = types.NotebookDocumentChangeEvent(cells=types.NotebookDocumentCellChanges(text_content=[content]))
        client.client.notebook_document_did_change(types.DidChangeNotebookDocumentParams(types.VersionedNotebookDocumentIdentifier(2, notebook.uri), change))
        await client.until(lambda: client.sent["cell:b"] == [])

    session(folder, talk)


def test_rows_in_what_is_edited_are_gone() -> None:
    from oomlint.finding import Confidence, Finding, Place, Severity  # noqa: PLC0415

    findings = [Finding("OOM1", "n", str(row), Severity.ERROR, Confidence.HIGH, Place("a.py", 0, row, 1, row, 2)) for row in (1, 2, 3)]
    found = list(moved(findings, "a.py", "a\nb\nc\n", "a\nx\ny\nc\n"))
    assert [(item.message, item.place.row) for item in found] == [("1", 1), ("3", 4)]


def test_a_fix_is_verified_where_that_is_allowed(folder: Path) -> None:
    pytest.importorskip("torch", reason="the extra verify is not installed")
    (folder / "train.py").write_text(RUN)

    async def talk(client: Client) -> None:
        client.open("train.py")
        await client.shows("train.py", ("OOM101", 2))
        (lens,) = await client.lenses("train.py")
        assert (lens.range.start.line, lens.command and lens.command.title) == (2, "OOM101: verify this fix")

        await client.run(lens)
        (running,) = await client.lenses("train.py")
        assert running.command is not None
        assert running.command.title == "OOM101: verifying this fix... (cancel)"
        await client.run(lens)
        await client.says("oomlint: a fix is being verified already: wait for it, or cancel it")
        await client.says("oomlint: OOM101 in train.py, line 3: confirmed: ")
        (done,) = await client.lenses("train.py")
        assert done.command is not None
        assert done.command.title.startswith("OOM101: confirmed: ")
        assert done.command.title.endswith(" (verify again)")

        client.change("train.py", "#\n" + RUN)
        await client.shows("train.py", ("OOM101", 3))
        (edited,) = await client.lenses("train.py")
        assert edited.command is not None
        assert edited.command.title == "OOM101: verify this fix", "a verdict holds for what was verified"
        await client.run(edited)
        await client.says("oomlint: train.py is not saved: what is verified is the file")
        await client.run(lens)
        await client.says("oomlint: OOM101 is no longer there")

    session(folder, talk, "--allow-run")
    assert (folder / "train.py").read_text() == RUN


def test_a_run_that_takes_long_is_cancelled(folder: Path) -> None:
    pytest.importorskip("torch", reason="the extra verify is not installed")
    (folder / "train.py").write_text("import time\n\ntime.sleep(600)\n" + RUN)

    async def talk(client: Client) -> None:
        client.open("train.py")
        await client.shows("train.py", ("OOM101", 5))
        (lens,) = await client.lenses("train.py")
        await client.run(lens)
        (running,) = await client.lenses("train.py")
        await client.run(running)
        await client.says("oomlint: OOM101 in train.py, line 6: cancelled")
        (again,) = await client.lenses("train.py")
        assert again.command is not None
        assert again.command.title == "OOM101: verify this fix"
        await client.run(again)  # and the end of the session ends it, too

    session(folder, talk, "--allow-run")


def test_modules_of_the_project_are_not_imported_by_the_verifier(folder: Path) -> None:
    for name in ("types", "warnings", "operator", "runpy", "asyncio"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'marker')!r}, 'w').close()\nraise ImportError('{name} of the project')\n")
    (folder / "train.py").write_text(RUN)

    async def talk(client: Client) -> None:
        client.open("train.py")
        await client.shows("train.py", ("OOM101", 2))
        (lens,) = await client.lenses("train.py")
        await client.run(lens)
        await client.says("oomlint: OOM101 in train.py, line 3: ")
        assert not any("of the project" in message for message in client.messages)

    session(folder, talk, "--allow-run")
    assert not (folder / "marker").exists()


def test_a_mark_of_the_encoding_is_no_edit(tmp_path: Path) -> None:
    from oomlint.finding import Place  # noqa: PLC0415
    from oomlint.lsp import verifying  # noqa: PLC0415

    (tmp_path / "train.py").write_bytes(b"\xef\xbb\xbf" + RUN.encode())
    place = Place(str(tmp_path / "train.py"), 0, 1, 1, 1, 2)
    assert verifying._is_saved(verifying.VerifiedFinding("OOM101", place, RUN.encode()))
    assert not verifying._is_saved(verifying.VerifiedFinding("OOM101", place, GOOD.encode()))


@pytest.mark.parametrize(("asked", "status"), [(["shutdown", "exit"], 0), (["exit"], 1)])
def test_a_session_ends_as_the_protocol_has_it(asked: list[str], status: int) -> None:
    requests: dict[str, dict[str, object]] = {
        "initialize": {"id": 1, "params": {"processId": None, "rootUri": None, "capabilities": {}}},
        "shutdown": {"id": 2},
        "exit": {},
    }
    bodies = [json.dumps({"jsonrpc": "2.0", "method": name, **requests[name]}) for name in ("initialize", *asked)]
    sent = "".join(f"Content-Length: {len(body)}\r\n\r\n{body}" for body in bodies)
    done = subprocess.run([sys.executable, "-m", "oomlint", "server"], input=sent, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("way", ["exit", "SIGTERM", "SIGINT", pytest.param("SIGKILL", marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux"))])
def test_a_server_that_ends_takes_the_run_with_it(folder: Path, way: str) -> None:
    pytest.importorskip("torch", reason="the extra verify is not installed")
    (folder / "train.py").write_text("import time\n\ntime.sleep(600)\n" + RUN)

    async def talk() -> None:
        client = Client(folder, "--allow-run")
        await client.begin()
        server = client.client._server
        assert server is not None
        client.open("train.py")
        await client.shows("train.py", ("OOM101", 5))
        (lens,) = await client.lenses("train.py")
        await client.run(lens)
        await asyncio.sleep(2)  # it starts
        (child,) = _children(server.pid)
        if way == "exit":
            client.client.exit(None)
        else:
            server.send_signal(getattr(signal, way))
        assert await asyncio.wait_for(server.wait(), LIMIT) == (1 if way == "exit" else -getattr(signal, way))
        assert _is_gone(child, LIMIT if way == "SIGKILL" else 0)  # nobody waits for it then
        with suppress(Exception):
            await client.client.stop()  # type: ignore[no-untyped-call]

    asyncio.run(talk())


def _is_gone(process: int, seconds: float) -> bool:
    """Whether a process has ended, at the latest after so many seconds; one whose status nobody takes has."""
    latest = time.monotonic() + seconds
    while True:
        listed = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False).stdout.strip()
        if not listed or listed.startswith("Z"):
            return True
        if time.monotonic() >= latest:
            return False
        time.sleep(0.05)


def _children(process: int) -> list[int]:
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return [pid for pid, parent in (map(int, line.split()) for line in listed.splitlines()) if parent == process]


def test_nothing_is_run_unless_that_is_allowed(folder: Path) -> None:
    async def whole() -> None:
        client = Client(folder)
        result = await client.begin()
        assert result.capabilities.code_lens_provider is None
        assert not (result.capabilities.execute_command_provider and result.capabilities.execute_command_provider.commands)
        await client.end()

    asyncio.run(whole())


def test_a_buffer_without_a_file_is_a_program_of_its_own(folder: Path) -> None:
    (folder / "settings.py").write_text("WORKERS = 0\n")
    (folder / "train.py").write_text("from torch.utils.data import DataLoader\n\n\ndef make(workers):\n    return DataLoader([], num_workers=workers)\n")

    async def talk(client: Client) -> None:
        client.open("train.py")
        await client.shows("train.py")
        client.open("untitled:Untitled-1", BAD)
        (said,) = await client.shows("untitled:Untitled-1", ("OOM101", 1))
        fixes = await client.actions("untitled:Untitled-1", said.range, "quickfix")
        assert fixes[0].edit is not None
        assert fixes[0].edit.changes is not None
        assert applied(BAD, list(fixes[0].edit.changes["untitled:Untitled-1"])) == GOOD
        client.change("untitled:Untitled-1", GOOD + "import settings\n\nmore = DataLoader(x, num_workers=settings.WORKERS, persistent_workers=True)\n")
        await client.shows("untitled:Untitled-1")
        client.open("untitled:Untitled-2", "from train import make\n\nmake(0)\n" + BAD)
        await client.shows("untitled:Untitled-2", ("OOM101", 4))
        client.client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem("untitled:Untitled-3", "plaintext", 1, BAD)))
        client.change("untitled:Untitled-2", BAD)
        await client.shows("untitled:Untitled-2", ("OOM101", 1))
        assert "untitled:Untitled-3" not in client.sent, "what is no Python is not checked"
        assert client.codes("train.py") == [], "and what is typed elsewhere is no part of a project"

    session(folder, talk)


def test_a_finding_leads_to_the_page_of_its_rule_where_that_has_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place("/a.py", 0, 1, 1, 1, 5)
    finding = Finding("OOM101", "persistent-without-workers", "wrong", Severity.ERROR, Confidence.HIGH, place)
    translator = Translator(PositionCodec(), View("/", {"/a.py": b"x = 1\n"}), {})
    assert translator.diagnostic(finding).code_description is None
    monkeypatch.setattr(urls, "HOME", "https://oomlint.example/")
    about = translator.diagnostic(finding).code_description
    assert about is not None
    assert about.href == "https://oomlint.example/docs/rules/OOM101.md"
    assert translator.diagnostic(replace(finding, code=None)).code_description is None
