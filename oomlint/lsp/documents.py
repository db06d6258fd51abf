"""The open documents of an editor: what stands in them, as bytes of the files that they stand for."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tokenize
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from pygls import uris

from oomlint.source import SourceError, read_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lsprotocol import types
    from pygls.workspace import Workspace

    from oomlint.finding import Place
    from oomlint.source import Source

_BUFFERS: Final = os.path.abspath(os.path.join(os.sep, "no file"))  # where buffers are that stand for no file: each in a folder of its own, that is not there
_PYTHON: Final = {"kernelspec": {"language": "python", "name": "python3", "display_name": "Python"}, "language_info": {"name": "python"}}


class Document(Struct, frozen=True):
    """A file that is open, as it stands in the editor."""

    uri: str
    path: str
    data: bytes
    cells: tuple[str, ...] = ()  # addresses of the cells of a notebook

    def uri_of(self, place: Place) -> str:
        """The address of what a place is in: this document or one of its cells."""
        return self.cells[place.cell - 1] if 0 < place.cell <= len(self.cells) else self.uri

    @property
    def is_file(self) -> bool:
        """Whether it stands for a file, be it one that is still to be written."""
        return not self.path.startswith(_BUFFERS + os.sep)

    @property
    def addresses(self) -> tuple[str, ...]:
        """What findings are sent for: the document, or each of its cells."""
        return self.cells or (self.uri,)

    @property
    def source(self) -> Source | None:
        """The program; ``None`` where it cannot be read as one."""
        try:
            return read_source(self.path, self.data)
        except SourceError:
            return None


def documents(workspace: Workspace) -> Iterator[Document]:
    """All that is open and belongs to a file, and the buffers of Python that belong to none yet."""
    cells: set[str] = set()
    for notebook in workspace.notebook_documents.values():
        cells.update(cell.document for cell in notebook.cells)
        if path := _path(notebook.uri) or _buffer(notebook.uri, ".ipynb"):
            yield Document(notebook.uri, path, _notebook(notebook, workspace), tuple(cell.document for cell in notebook.cells))
    for document in workspace.text_documents.values():
        path = _path(document.uri) or (_buffer(document.uri, ".py") if document.language_id == "python" else None)
        if document.uri not in cells and path:
            yield Document(document.uri, path, _encoded(document.source))


def uri_of(path: str) -> str:
    """The address of a file."""
    return uris.from_fs_path(path) or ""


def _path(uri: str) -> str | None:
    path = uris.to_fs_path(uri) if uri.startswith("file:") else None
    return os.path.abspath(path) if path else None


def _buffer(uri: str, suffix: str) -> str | None:
    """The path under which a buffer is known that stands for no file. What stands in another place than the disk is none."""
    if not uri.startswith("untitled:"):
        return None
    return os.path.join(_BUFFERS, hashlib.blake2b(uri.encode(errors="surrogatepass"), digest_size=8).hexdigest(), f"untitled{suffix}")


def _encoded(text: str) -> bytes:
    """The text in the encoding that it declares itself, as an editor would save it."""
    data = text.encode(errors="surrogatepass")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data if encoding.startswith("utf-8") else text.encode(encoding)
    except (SyntaxError, UnicodeError, LookupError):
        return data


def _notebook(notebook: types.NotebookDocument, workspace: Workspace) -> bytes:
    cells: list[dict[str, object]] = [
        {
            "cell_type": "code" if cell.kind.value == 2 else "markdown",  # noqa: PLR2004 - as the protocol has it
            "metadata": {},
            "source": workspace.get_text_document(cell.document).source,
        }
        for cell in notebook.cells
    ]
    return json.dumps({"cells": cells, "metadata": _PYTHON, "nbformat": 4, "nbformat_minor": 5}).encode()
