"""What CPython's parser makes of a text, once for all that ask within a short while: the scout, the index of names, positions."""

from __future__ import annotations

import ast
import codecs
import warnings
from collections import OrderedDict
from typing import Final

KEPT: Final = 500_000  # characters of the texts whose trees are kept; a tree takes about 43 bytes for each (measured with CPython 3.11)
_trees: OrderedDict[str, ast.Module] = OrderedDict()


def tree_of(text: str | bytes) -> ast.Module:
    """The tree of a program, which nobody may change. Raises what ``ast.parse`` raises, and shows no warning."""
    key = text if isinstance(text, str) else _decoded(text)
    known = None if key is None else _trees.get(key)
    if known is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            known = ast.parse(text)
        if key is not None and len(key) <= KEPT:
            _trees[key] = known
            while sum(map(len, _trees)) > KEPT:
                _trees.popitem(last=False)
    elif key is not None:
        _trees.move_to_end(key)
    return known


def is_at_hand(text: str) -> bool:
    """Whether the tree of a program is kept."""
    return text in _trees


def _decoded(data: bytes) -> str | None:
    """The text of a file as the scout has it; ``None`` where the parser has to find out its encoding."""
    if b"coding" in data[:500]:
        return None
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError:
        return None
