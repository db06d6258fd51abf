"""``oomlint server``: what is sent to an editor, and what it asks for."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lsprotocol import types
from msgspec import Struct, field
from pygls.lsp.server import LanguageServer

from oomlint import __version__, plugins, registry
from oomlint.beside_code import SETTINGS_SUFFIXES, SHELL_SUFFIXES, beside
from oomlint.checking import ordered
from oomlint.config import ConfigError
from oomlint.deduplication import said_once
from oomlint.discovery import SUFFIXES
from oomlint.lsp import translation
from oomlint.lsp.documents import documents
from oomlint.lsp.moved import moved
from oomlint.lsp.open_project import project_for, project_of_buffer
from oomlint.lsp.verifying import CANCEL, VERIFY, VerifiedFinding, Verifier
from oomlint.output.view import View
from oomlint.source import FileKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oomlint.causes import Causes
    from oomlint.finding import Finding
    from oomlint.lsp.documents import Document
    from oomlint.lsp.open_project import OpenProject

_PAUSE: Final = 0.02  # seconds without a change before a file is checked
_REST: Final = 0.4  # seconds more before it is asked what the file causes in others
_SOON: Final = 0.1  # seconds after which what the first rules say is shown, while the others are still asked
_IDLE: Final = 1.0  # seconds without a change before what earlier checks have left behind is looked for, which takes as long as a check
_MOST_LEFT: Final = 40  # checks, behind which it is looked for in any case
_CODE: Final = re.compile(r"\b[A-Z]{2,}\d+\b")
_SUFFIXES: Final = ",".join(suffix.removeprefix(".") for suffix in (*SUFFIXES, *SHELL_SUFFIXES, *SETTINGS_SUFFIXES, ".mk"))
_WATCHED: Final = (f"**/*.{{{_SUFFIXES}}}", "**/{Makefile,makefile,Dockerfile,.gitignore}")
# Opened, changed, saved, closed.
_EVENTS: Final = (
    (types.TEXT_DOCUMENT_DID_OPEN, types.TEXT_DOCUMENT_DID_CHANGE, types.TEXT_DOCUMENT_DID_SAVE, types.TEXT_DOCUMENT_DID_CLOSE),
    (types.NOTEBOOK_DOCUMENT_DID_OPEN, types.NOTEBOOK_DOCUMENT_DID_CHANGE, types.NOTEBOOK_DOCUMENT_DID_SAVE, types.NOTEBOOK_DOCUMENT_DID_CLOSE),
)
_Answer = TypeVar("_Answer")


class _Seen(Struct):
    """What is known of an open file."""

    document: Document  # as it was when it was checked
    own: tuple[Finding, ...] = ()
    caused: tuple[Finding, ...] = ()
    causes: Causes | None = None  # where what it causes is looked for; None: to be found
    broken: bool = False  # whether the document does not parse; what was found is older than it then
    sent: dict[str, list[types.Diagnostic]] = field(default_factory=dict)


class EditorServer(LanguageServer):
    """A language server with one check at a time."""

    def __init__(self, *, allow_run: bool) -> None:
        """With ``allow_run`` the fix of a finding can be verified, which runs code of the project."""
        notebooks = types.NotebookDocumentFilterWithCells([types.NotebookCellLanguage("python")], "jupyter-notebook")
        super().__init__(
            "oomlint",
            __version__,
            types.TextDocumentSyncKind.Full,  # pygls takes a form feed for the end of a line, and would put later changes in the wrong place
            types.NotebookDocumentSyncOptions([notebooks], save=True),
        )
        self.seen: dict[str, _Seen] = {}  # by path
        self._open_projects: list[OpenProject] = []
        self._of: dict[str, OpenProject | None] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._thread = ThreadPoolExecutor(1, "check")  # one check at a time
        self._sweep: asyncio.Task[None] | None = None
        self._left = 0  # checks since what they leave behind was looked for
        self._told: set[str] = set()
        self.verifier = Verifier(self._refresh_lenses, self._tell) if allow_run else None
        self._refresh: asyncio.Future[None] | None = None
        self.is_shut_down = False
        plugins.use(plugins.RuleSources(installed=True))  # and nothing of a project, which is opened to be looked at
        self._codes = tuple(code for code, _ in registry.catalogue())

    # -- what is open --------------------------------------------------------------------------------------------

    def open_documents(self) -> dict[str, Document]:
        """What is open, by path."""
        return {document.path: document for document in documents(self.workspace)}

    def document_at(self, uri: str) -> Document | None:
        """The open document, or the notebook of the cell, that has this address."""
        return next((document for document in documents(self.workspace) if uri == document.uri or uri in document.cells), None)

    def check_soon(self, uri: str, pause: float = _PAUSE, *, again: bool = False) -> None:
        """Check a document once nothing has been typed for a moment, and after it the others: they may rest on it."""
        document = self.document_at(uri)
        if document is None:
            return
        if again and document.path in self.seen:
            self.seen[document.path].causes = None
        self._start(document.path, pause)
        for path in self.seen.keys() - {document.path}:
            self._start(path, pause + _REST)
        if self._sweep:
            self._sweep.cancel()
        self._sweep = asyncio.ensure_future(self._swept(_IDLE))

    def begin_again(self) -> None:
        """Forget all that rests on files and settings: some have changed."""
        self._open_projects.clear()
        self._of.clear()
        self._told.clear()
        for path, document in self.open_documents().items():
            if path in self.seen:
                self.seen[path].causes = None
            self.check_soon(document.uri)

    def forget(self, uris: set[str]) -> None:
        """Take the findings of documents back that are closed."""
        still = self.open_documents()
        for path in [path for path in {*self.seen, *self._tasks} if path not in still]:
            if seen := self.seen.pop(path, None):
                uris.update(seen.sent)
            if task := self._tasks.pop(path, None):  # which may be in the middle of its first check
                task.cancel()
            self._of.pop(path, None)
        for uri in uris:
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def _start(self, path: str, pause: float) -> None:
        if task := self._tasks.get(path):
            task.cancel()
        self._tasks[path] = asyncio.ensure_future(self._check(path, pause))

    # -- checks --------------------------------------------------------------------------------------------------

    async def _check(self, path: str, pause: float) -> None:
        await asyncio.sleep(pause)
        try:
            await self._findings(path)
            await asyncio.sleep(_REST)
            await self._causes(path)
        except ConfigError as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                self.window_show_message(types.ShowMessageParams(types.MessageType.Error, f"oomlint: {error}"))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong with one state of a file, the next one is checked
            self.window_log_message(types.LogMessageParams(types.MessageType.Error, f"oomlint: {os.path.basename(path)}: {type(error).__name__}: {error}"))

    async def _swept(self, pause: float) -> None:
        """Let go of what earlier checks have left behind. Python would look for it in the middle of an answer."""
        await asyncio.sleep(pause)
        self._left = 0
        await self._asked(gc.collect)

    async def _asked(self, function: Callable[..., _Answer], *arguments: object) -> _Answer:
        """What a check comes to, in a thread of its own. One that has begun is not given up, and the next one waits for it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def _findings(self, path: str) -> None:
        current = self.open_documents()
        document = current.get(path)
        if document is None:
            return
        if path not in self._of:
            asked = (project_for, path, self._open_projects) if document.is_file else (project_of_buffer, path, self.workspace.root_path)
            self._of[path] = await self._asked(*asked, self._codes)
        project = self._of[path]
        if project is None:
            return
        contents = self._contents(document)
        early: dict[str, tuple[Finding, ...]] = {}  # by the rule
        check = asyncio.ensure_future(self._asked(project.findings, path, contents, early.__setitem__))
        try:
            while not check.done():
                await asyncio.wait({check}, timeout=_SOON)
                if not check.done() and not document.cells:
                    self._send_early(document, early.copy())
        finally:
            check.cancel()
        found = check.result()
        self._left += 1
        known = self._moved(document)
        known.broken = any(item.code is None for item in found)
        if not known.broken:  # else what was found before it broke stays; to say where it is broken is for others
            known.own = found
        self._send(path)
        if self._left >= _MOST_LEFT:
            await self._swept(0)

    def _moved(self, document: Document) -> _Seen:
        """What is known of a document, where it stands now."""
        known = self.seen.setdefault(document.path, _Seen(document))
        if known.document.data != document.data:
            texts = [each.decode(errors="replace") for each in (known.document.data, document.data)]
            # Which cell of a notebook was edited, nobody has told.
            known.own, known.caused = (() if document.cells else tuple(moved(items, document.path, *texts)) for items in (known.own, known.caused))
        known.document = document
        return known

    def _send_early(self, document: Document, early: Mapping[str, tuple[Finding, ...]]) -> None:
        """Send what some rules say, if that is news, beside what the others have said of the document before."""
        found = said_once(item for items in early.values() for item in items)
        known = self._moved(document)
        before = [item for item in known.own if item.code in early]
        if {(item.code, item.place, item.message) for item in found} != {(item.code, item.place, item.message) for item in before}:
            known.own = ordered([*found, *(item for item in known.own if item.code not in early)])
            self._send(document.path)

    def _contents(self, document: Document) -> dict[str, bytes]:
        """What is open in the project of a document. A buffer without a file is a program of its own."""
        return {each.path: each.data for each in self.open_documents().values() if each.path == document.path or (each.is_file and document.is_file)}

    async def _causes(self, path: str) -> None:
        known, project = self.seen.get(path), self._of.get(path)
        if known is None or project is None or known.broken:
            return
        contents = self._contents(known.document)
        if contents.get(path) != known.document.data:
            return
        if known.causes is None:
            known.causes = await self._asked(project.causes, path, contents)
        if not known.causes.beside:
            return
        found = await self._asked(project.caused, path, contents, known.causes)
        own = project.without_used(path, known.own)
        if (found, own) != (known.caused, known.own) and known.document.data == contents[path]:
            known.caused, known.own = found, own
            self._send(path)

    # -- what is sent --------------------------------------------------------------------------------------------

    def translator(self) -> translation.Translator:
        """What translates findings of the open files, as they were checked, for the client."""
        current = self.open_documents() | {path: seen.document for path, seen in self.seen.items()}
        return translation.Translator(self.workspace.position_codec, View("", {path: each.data for path, each in current.items()}), current)

    def _send(self, path: str) -> None:
        seen, translator = self.seen[path], self.translator()
        wanted: dict[str, list[types.Diagnostic]] = {uri: [] for uri in (*seen.sent, *seen.document.addresses)}
        for finding in (*seen.own, *seen.caused):
            wanted.setdefault(seen.document.uri_of(finding.place), []).append(translator.diagnostic(finding))
        for uri, diagnostics in wanted.items():
            if seen.sent.get(uri) != diagnostics:
                self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, diagnostics, self._version_of(uri, seen.document)))
        seen.sent = {uri: wanted[uri] for uri in wanted if uri in seen.document.addresses}
        self._refresh_lenses()

    def _version_of(self, uri: str, checked: Document) -> int | None:
        """The version of a document that was checked, where it is still the one that is open."""
        current, text = self.document_at(uri), self.workspace.text_documents.get(uri)
        return text.version if text is not None and current is not None and current.data == checked.data else None

    def at(self, uri: str, span: types.Range) -> list[Finding]:
        """The findings at a span, where the document is as it was checked."""
        document = self.document_at(uri)
        seen = self.seen.get(document.path) if document else None
        if document is None or seen is None or seen.document.data != document.data:
            return []
        translator = self.translator()
        here = (item for item in (*seen.own, *seen.caused) if seen.document.uri_of(item.place) == uri)
        return [item for item in here if translation.overlaps(translator.range(item.place), span)]

    # -- verdicts ------------------------------------------------------------------------------------------------

    def lenses(self, uri: str, verifier: Verifier) -> list[types.CodeLens]:
        """What stands above the findings of a file whose fixes can be verified."""
        translator = self.translator()
        found = []
        for subject in self._subjects(uri):
            title, command = verifier.title(subject)
            arguments = [uri, subject.code, subject.place.row, subject.place.column] if command == VERIFY else None
            found.append(types.CodeLens(translator.range(subject.place), types.Command(title, command, arguments=arguments)))
        return found

    def verify(self, uri: str, code: str, row: int, column: int, verifier: Verifier) -> None:
        """Verify the fix of the finding at a place."""
        document = self.document_at(uri)
        project = self._of.get(document.path) if document else None
        subject = next((one for one in self._subjects(uri) if (one.code, one.place.row, one.place.column) == (code, row, column)), None)
        if project is None or subject is None:
            self._tell(f"{code} is no longer there")
        else:
            verifier.start(subject, project.root)

    def _subjects(self, uri: str) -> list[VerifiedFinding]:
        document = self.document_at(uri)
        seen = self.seen.get(document.path) if document else None
        if document is None or seen is None or seen.document.data != document.data or document.cells or not document.is_file:
            return []
        own = (item for item in seen.own if item.place.path == document.path and item.fix is not None and item.fix.edits)
        return list(dict.fromkeys(VerifiedFinding(item.code, item.place, document.data) for item in own if item.code is not None))

    def _refresh_lenses(self) -> None:
        """Have the editor ask for lenses again."""
        workspace = self.client_capabilities.workspace
        if self.verifier is not None and workspace and workspace.code_lens and workspace.code_lens.refresh_support:
            self._refresh = asyncio.ensure_future(self._refreshed())

    async def _refreshed(self) -> None:
        with suppress(Exception):  # a client that refuses asks by itself
            await self.workspace_code_lens_refresh_async(None)

    def _tell(self, text: str) -> None:
        self.window_show_message(types.ShowMessageParams(types.MessageType.Info, f"oomlint: {text}"))

    async def fix_all(self, uri: str) -> types.CodeAction | None:
        """The action that applies all safe fixes to a file. In a notebook each is applied by itself."""
        document = self.document_at(uri)
        project = self._of.get(document.path) if document else None
        if document is None or project is None or document.cells:
            return None
        source = document.source
        contents = self._contents(document)
        after = await self._asked(project.fixed_content, document.path, contents)
        if after is None or source is None or source.kind is not FileKind.PYTHON:
            return None
        edit = types.WorkspaceEdit(changes={uri: [self.translator().replacement(source.text, after.decode(source.encoding))]})
        return types.CodeAction("oomlint: apply all safe fixes", translation.FIX_ALL, edit=edit)


def make(*, allow_run: bool) -> EditorServer:
    """The server with all that it answers; with ``allow_run``, it runs code of the project where the user asks for it."""
    server = EditorServer(allow_run=allow_run)
    if server.verifier is not None:
        _offer_verdicts(server, server.verifier)

    for opened, changed, saved, closed in _EVENTS:
        server.feature(opened)(lambda params: server.check_soon(_uri_of(params), 0))
        server.feature(changed)(lambda params: server.check_soon(_uri_of(params)))
        server.feature(saved)(lambda params: server.check_soon(_uri_of(params), 0, again=True))
        server.feature(closed)(lambda params: server.forget(_uris_of(params)))

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def watched(params: types.DidChangeWatchedFilesParams) -> None:
        still = {document.uri for document in documents(server.workspace)}
        if any(change.uri not in still for change in params.changes):
            server.begin_again()

    @server.feature(types.INITIALIZED)
    async def initialized(params: types.InitializedParams) -> None:  # noqa: ARG001
        for problem in plugins.problems():
            server.window_show_message(types.ShowMessageParams(types.MessageType.Warning, f"oomlint: {problem}"))
        workspace = server.client_capabilities.workspace
        if workspace and workspace.did_change_watched_files and workspace.did_change_watched_files.dynamic_registration:
            watchers = [types.FileSystemWatcher(pattern) for pattern in _WATCHED]
            options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
            registration = types.Registration("oomlint", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
            with suppress(Exception):  # a client that refuses goes without
                await server.client_register_capability_async(types.RegistrationParams([registration]))

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions([types.CodeActionKind.QuickFix, translation.FIX_ALL]),
    )
    async def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        only = [str(getattr(kind, "value", kind)) for kind in params.context.only or ()]

        def asked(kind: str) -> bool:
            return any(kind == each or kind.startswith(f"{each}.") for each in only)

        found: list[types.CodeAction] = []
        if not only or asked(types.CodeActionKind.QuickFix.value):
            translator = server.translator()
            items = server.at(params.text_document.uri, params.range)
            document = server.document_at(params.text_document.uri)
            source = document.source if document and beside(document.path) is None else None
            offered = [*map(translator.quick_fix, items), *(translator.silencing(item, source) for item in items if source)]
            found += [action for action in offered if action is not None]
        # It takes a check of its own: only for who asks for such an action.
        if asked(translation.FIX_ALL) and (every := await server.fix_all(params.text_document.uri)):
            found.append(every)
        return found

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        uri, position = params.text_document.uri, params.position
        codes = [item.code for item in server.at(uri, types.Range(position, position)) if item.code]
        document = server.workspace.text_documents.get(uri)
        lines = document.source.split("\n") if document else []
        line = lines[position.line] if position.line < len(lines) else ""
        known = dict(registry.catalogue())
        codes += [each.group() for each in _CODE.finditer(line) if each.start() <= position.character <= each.end() and each.group() in known]
        text = translation.explanation(codes)
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text)) if text else None

    @server.feature(types.SHUTDOWN)
    async def ended(params: None) -> None:  # noqa: ARG001
        server.is_shut_down = True
        if server.verifier is not None:
            await server.verifier.end()

    @server.feature(types.EXIT)
    def left(params: None) -> None:  # noqa: ARG001
        if server.verifier is not None:
            server.verifier.end_at_once()

    return server


def serve(*, allow_run: bool) -> int:
    """Serve over standard input and output until the editor ends it, and return the exit status that the protocol asks for."""
    server = make(allow_run=allow_run)
    gc.disable()  # the server looks for what is free itself, when nothing is typed

    def end(number: int, _: object) -> None:
        if server.verifier is not None:
            server.verifier.end_at_once()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # an orderly end would wait for standard input

    if server.verifier is not None:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), end)
    with open(os.dup(sys.stdout.fileno()), "wb") as output:  # it is closed at the end, and the stream that Python writes to must stay open
        server.start_io(stdout=output)
    return 0 if server.is_shut_down else 1


def _offer_verdicts(server: EditorServer, verifier: Verifier) -> None:
    @server.feature(types.TEXT_DOCUMENT_CODE_LENS)
    def lenses(params: types.CodeLensParams) -> list[types.CodeLens]:
        return server.lenses(params.text_document.uri, verifier)

    @server.command(VERIFY)
    def verify(uri: str, code: str, row: int, column: int) -> None:
        server.verify(uri, code, row, column, verifier)

    @server.command(CANCEL)
    def cancel() -> None:
        verifier.cancel()


def _uri_of(params: Any) -> str:
    """The address of the document or notebook that a message is about."""
    about = params.notebook_document if hasattr(params, "notebook_document") else params.text_document
    return str(about.uri)


def _uris_of(params: Any) -> set[str]:
    """The addresses of what is closed: a document, or the cells of a notebook."""
    cells = getattr(params, "cell_text_documents", None)
    return {_uri_of(params)} if cells is None else {cell.uri for cell in cells}
