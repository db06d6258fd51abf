"""What a fix changes that its runs do not show, or need not.

That is what stands in the function beside the finding's statement where runs have left something out, what has no effect on the CPU, and what the rest of the
program asks of a value that is a number after.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

from oomlint.verify.ast_names import callee, named, spot
from oomlint.verify.case import Part
from oomlint.verify.strategies.changed_statements import statements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from oomlint.verify.case import Case
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


_MOVES: Final = frozenset({"to", "cpu", "cuda"})
_PRECISION: Final = frozenset({"autocast", "GradScaler", "custom_fwd", "custom_bwd"})
_COPYING: Final = frozenset({"deepcopy", "clone", "copy", "save", "dumps"})
_SCALING: Final = frozenset({"scale", "unscale_"})  # of an object that is called a scaler


def precision(before: str, after: str) -> str:
    """What of mixed precision a fix adds or takes out; empty where it does neither."""
    return _differing(_precise, before, after)


def copied(before: str, after: str) -> str:
    """A way of copying of which a fix leaves none; empty where there is none, or another one."""
    old, new = ([callee(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and callee(node) in _COPYING] for text in (before, after))
    return old[0] if old and not new else ""


def moves(before: str, after: str) -> str:
    """A way of moving tensors that a fix adds or takes out, as in ".cpu()"; empty where there is none."""
    return _differing(_moved, after, before)


def _differing(read: Callable[[ast.AST], Iterable[str]], *texts: str) -> str:
    """What two programs do not have as often as each other; empty where there is nothing."""
    one, other = (Counter(read(ast.parse(text))) for text in texts)
    return next((name for name in (*one, *other) if one[name] != other[name]), "")


def _precise(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = callee(node)
            scaler = isinstance(node.func, ast.Attribute) and "scaler" in ast.unparse(node.func.value).lower()
            if name in _PRECISION or (scaler and name in _SCALING):
                yield name


def _moved(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = callee(node)
            if isinstance(node.func, ast.Attribute) and name in _MOVES:
                yield f".{name}({', '.join(ast.unparse(item) for item in node.args)})"
            yield from ("non_blocking" for item in node.keywords if item.arg == "non_blocking")


_TENSOR: Final = frozenset(
    "item cpu detach numpy backward tolist clone to cuda dim size shape dtype device mean sum sqrt exp log view reshape unsqueeze requires_grad grad_fn".split()
)
_TAKING: Final = frozenset({"stack", "cat", "isnan", "isfinite", "isinf", "all_reduce", "exp", "sqrt", "log"})  # functions of torch that take tensors only


def asked_of(case: Case, names: str) -> str:
    """What the file after the fix asks of those parts ("returned, self.total") and a number has not; empty where nothing."""
    tree, before = case.tree(Part.AFTER), case.tree(Part.BEFORE)
    if tree is None or before is None:
        return "its uses cannot be looked at"
    where = spot(before, case.source(Part.BEFORE).program_row(case.finding.place))
    wanted = {name.removeprefix("self.").strip("`") for name in names.split(", ")}
    function = where.function.rpartition(".")[2]
    held = set(_results(tree, function)) if "returned" in wanted else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _TENSOR and _is(node.value, held, wanted, function):
            return f"line {node.lineno} asks it for `.{node.attr}`"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _TAKING
            and ast.unparse(node.func.value).startswith("torch")
        ):
            inside = [item for part in node.args for item in (part.elts if isinstance(part, (ast.List, ast.Tuple)) else [part])]
            if any(_is(item, held, wanted, function) for item in inside):
                return f"line {node.lineno} gives it to `{ast.unparse(node.func)}`"
    return ""


def own(case: Case) -> set[str]:
    """Variables of the function of the finding that nothing outside of it has given."""
    tree = case.tree(Part.BEFORE)
    function = named(tree, spot(tree, case.source(Part.BEFORE).program_row(case.finding.place)).function) if tree is not None else None
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return set()
    outer = {item.arg for item in ast.walk(function) if isinstance(item, ast.arg)}
    outer |= {name for item in ast.walk(function) if isinstance(item, (ast.Global, ast.Nonlocal)) for name in item.names}
    made = {
        target.id
        for item in ast.walk(function)
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call)
        for target in item.targets
        if isinstance(target, ast.Name)
    }
    return made - outer


def _is(node: ast.expr, held: set[str], wanted: set[str], function: str) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr in wanted - {"returned"}
    if isinstance(node, ast.Call):
        return "returned" in wanted and callee(node) == function
    return isinstance(node, ast.Name) and (node.id in held or node.id in wanted - {"returned"})


def _results(tree: ast.AST, function: str) -> Iterator[str]:
    """Names that hold what the function gives."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(isinstance(item, ast.Call) and callee(item) == function for item in ast.walk(node.value)):
            yield from (item.id for target in node.targets for item in ast.walk(target) if isinstance(item, ast.Name))
