"""What a mend changes that has no effect on the CPU: where tensors are, and mixed precision. Equal results say nothing of it there.

A function is gone through in the order of its text, each loop twice. What `.to(device)` or `.cuda()` give is on the device, and so is what is computed from
it; what `.cpu()` gives is on the host. An expression that takes both of them raises where there is a device.
"""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING, Final

from oomlint.verify.ast_location import FILLING, callee, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

HOST: Final = "host"
DEVICE: Final = "device"
_MOVES: Final = frozenset({"to", "cpu", "cuda"})
_PRECISION: Final = frozenset({"autocast", "GradScaler", "custom_fwd", "custom_bwd"})
_COPYING: Final = frozenset({"deepcopy", "clone", "copy", "save", "dumps"})
_SCALING: Final = frozenset({"scale", "unscale_"})  # of an object that is called a scaler
_PLAIN: Final = frozenset(
    "item tolist size dim numel len int float str bool print format append_text isinstance shape dtype device ndim data_ptr range type is_cuda".split()
)  # give numbers, not tensors
_OUT: Final = frozenset({"print", "save", "info", "debug", "write", "log", "warning"})  # take anything, from anywhere


def precision(before: str, after: str) -> str:
    """What of mixed precision a mend adds or takes out; empty where it does neither."""
    old, new = (Counter(_precise(ast.parse(text))) for text in (before, after))
    return next((name for name in (*old, *new) if old[name] != new[name]), "")


def copied(before: str, after: str) -> str:
    """A way of copying of which a mend leaves none; empty where there is none, or another one."""
    old, new = ([callee(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and callee(node) in _COPYING] for text in (before, after))
    return old[0] if old and not new else ""


def moves(before: str, after: str) -> str:
    """A way of moving tensors that a mend adds or takes out, as in ".cpu()"; empty where there is none."""
    old, new = (Counter(_moved(ast.parse(text))) for text in (before, after))
    return next((name for name in (*new, *old) if old[name] != new[name]), "")


def mixed(before: str, after: str) -> str:
    """An expression of the program after that takes tensors of the host and of the device, where none of the program before does."""
    old, new = ({ast.unparse(item): item.lineno for item in _conflicts(ast.parse(text))} for text in (before, after))
    return next((f"line {row}, {quoted(text)}" for text, row in new.items() if text not in old), "")


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


def _conflicts(tree: ast.Module) -> list[ast.expr]:
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.extend(_Places().of(node.body))
    found.extend(_Places().of(tree.body))
    return found


class _Places:
    """Where the values of a function's names are."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str]] = {}
        self._found: list[ast.expr] = []

    def of(self, body: list[ast.stmt]) -> list[ast.expr]:
        """The expressions that take both."""
        self._block(body)
        return self._found

    def _block(self, body: list[ast.stmt]) -> None:
        for node in body:
            self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._bind(node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            here = self._place(node.value) | self._place(node.target)
            if len(here) > 1:
                self._found.append(node.value)
            self._names[ast.unparse(node.target)] = here
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            for _ in range(2):
                self._turn(node.target, node.iter)
                self._block(node.body)
            self._block(node.orelse)
        else:
            for value in ast.iter_child_nodes(node):
                if isinstance(value, ast.expr):
                    self._place(value)
            for name in ("body", "body", "orelse", "finalbody"):
                inner = getattr(node, name, None)
                if isinstance(inner, list):
                    self._block(inner)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            if isinstance(value, (ast.Tuple, ast.List)) and same:
                for item, its in zip(target.elts, value.elts, strict=True):
                    self._bind(item, its)
                return
            for item in target.elts:
                self._names[ast.unparse(item)] = self._place(value)
        elif isinstance(target, ast.Subscript):
            self._fill(target.value, self._place(value))
        else:
            self._names[ast.unparse(target)] = self._place(value)

    def _turn(self, target: ast.expr, value: ast.expr) -> None:
        """The names of a loop."""
        if isinstance(value, ast.Call) and callee(value) == "enumerate" and value.args and isinstance(target, ast.Tuple):
            self._turn(target.elts[-1], value.args[0])
        elif isinstance(value, ast.Call) and callee(value) == "zip" and isinstance(target, ast.Tuple) and len(target.elts) == len(value.args):
            for item, its in zip(target.elts, value.args, strict=True):
                self._turn(item, its)
        else:
            for item in target.elts if isinstance(target, ast.Tuple) else [target]:
                self._names[ast.unparse(item)] = self._place(value)

    def _fill(self, holder: ast.expr, more: frozenset[str]) -> None:
        name = ast.unparse(holder)
        self._names[name] = self._names.get(name, frozenset()) | more

    def _place(self, node: ast.expr) -> frozenset[str]:
        """On the host, on the device, unknown (none) or both."""
        if isinstance(node, (ast.Name, ast.Attribute)):
            known = self._names.get(ast.unparse(node))
            if known is not None or isinstance(node, ast.Name) or node.attr in _PLAIN:
                return known or frozenset()
            return self._place(node.value)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, (ast.Constant, ast.Lambda, ast.JoinedStr)):
            return frozenset()
        if isinstance(node, ast.Subscript):
            return self._place(node.value)
        parts = [self._place(item) for item in ast.iter_child_nodes(node) if isinstance(item, ast.expr)]
        here = frozenset[str]().union(*parts)
        if isinstance(node, (ast.BinOp, ast.Compare)) and len(here) > 1:
            self._found.append(node)
        return here

    def _call(self, node: ast.Call) -> frozenset[str]:
        name = callee(node)
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        given = [*node.args, *(item.value for item in node.keywords)]
        taken = frozenset[str]().union(*(self._place(item) for item in given))
        if receiver is not None and name in FILLING:
            self._fill(receiver, taken)
            return frozenset()
        own = self._place(receiver) if receiver is not None else frozenset[str]()
        if name in {"cpu", "numpy"}:
            return frozenset({HOST})
        if name == "cuda":
            return frozenset({DEVICE})
        if name == "to" and given:
            told = ast.unparse(given[0])
            return frozenset({HOST}) if "cpu" in told else own if "dtype" in told or "float" in told else frozenset({DEVICE})
        if name in _PLAIN or name in _OUT:
            return frozenset()
        here = own | taken
        if len(here) > 1:
            self._found.append(node)
        return here
