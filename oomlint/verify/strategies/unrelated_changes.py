"""What a fix does to a function beside the statement that the finding is about: where runs leave something of the function out, nothing is known of it."""

from __future__ import annotations

import ast
import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

from oomlint.verify.ast_location import callee
from oomlint.verify.strategies.changed_statements import statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.verify.strategies.changed_statements import Statement

# They take a value out of its graph or to the host, or hold a context around others.
_PLAIN: Final = frozenset("detach item cpu numpy tolist clone float int no_grad inference_mode append extend clear len list print".split())
_TAKEN: Final = re.compile(r"\.(?:detach|item|cpu|tolist|numpy|clone)\(\)")
_AROUND: Final = (ast.With,)
_SHOWS: Final = frozenset("colorama loguru matplotlib mlflow rich seaborn tensorboard tensorboardX termcolor tqdm visdom wandb".split())
_HIDES: Final = re.compile(
    r"line \d+: (`.*` was left out|\w*(?:Error|Exception|Warning|Interrupt|Iteration|Exit)\b)|: replaced by a stand-in$|: each steps all models$"
)


def beyond(before: str, after: str, functions: tuple[str, str], row: int, changed: Sequence[Statement]) -> str:
    """The first of the changed statements of a function beside the one at ``row``, in words; empty where there is none. Raises SyntaxError, ValueError."""
    old, new = (
        [item for item in statements(ast.parse(text), script=True) if item.function == name and not item.silent and not isinstance(item.node, _AROUND)]
        for text, name in zip((before, after), functions, strict=True)
    )
    own = next((item for item in reversed(old) if item.node.lineno <= row <= (item.node.end_lineno or 0)), None)
    texts = [[_text(item) for item in items] for items in (old, new)]
    for kind, start, end, first, last in SequenceMatcher(None, texts[0], texts[1], autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        gone, come = ([item for item in items if item in changed] for items in (old[start:end], new[first:last]))
        other = next((item for item in gone if item is not own), None) or _other(come, own)
        if other is not None:
            return other.words
    return ""


def hidden(left_out: Sequence[str]) -> str:
    """What of the function itself was not run as it stands; empty where nothing was left out. What only shows how far it has come computes nothing."""
    return next((item for item in left_out if _HIDES.search(item) and item.strip("` ").split(":")[0].split(".")[0] not in _SHOWS), "")


def _other(come: Sequence[Statement], own: Statement | None) -> Statement | None:
    """A statement that does more than to let go of what the finding is about."""
    return next((item for item in come if not (own is not None and _aim(item.node) == _aim(own.node)) and not _plain(item.node)), None)


def _text(item: Statement) -> str:
    """A statement as it is written; of one that adds to a sum or a list it does not matter how a value is taken out of its graph."""
    node, text = item.node, ast.unparse(item.node).partition("\n")[0]
    adds = isinstance(node, ast.AugAssign) or _aim(node).endswith((".append", ".extend"))
    return _TAKEN.sub("", text) if adds else text


def _aim(node: ast.stmt) -> str:
    """What a statement sets, or calls."""
    match node:
        case ast.AugAssign() | ast.AnnAssign():
            return ast.unparse(node.target)
        case ast.Assign():
            return ast.unparse(node.targets[0])
        case ast.Expr(ast.Call() as call):
            return ast.unparse(call.func)
        case _:
            return ""


def _plain(node: ast.stmt) -> bool:
    if isinstance(node, (ast.Delete, ast.Pass)):
        return True
    if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr)):
        return False
    calls = {callee(item) for item in ast.walk(node) if isinstance(item, ast.Call)}
    return calls <= _PLAIN and not any(isinstance(item, (ast.BinOp, ast.AugAssign)) for item in ast.walk(node))
