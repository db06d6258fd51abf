"""Cuts a call out of its function, with the statements that its arguments hang on, as the source of a function of its own.

Control flow stays where it decides whether the call is reached; what cannot be worked out becomes an unknown that the child sweeps.
"""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Final

from oomlint.memory.loaders.loader_calls import PARAMETERS
from oomlint.verify.ast_names import blocks, is_main, loaded, root, scopes, spot, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROUNDS: Final = 12  # of following names to their definitions
_EXITS: Final = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_SYSTEM: Final = re.compile(r"\bsys\.platform\b|\bos\.name\b|\bplatform\.system\b")
_KEPT: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Cut:
    """A call cut out: JSON for the child, and what the parent wants to know of it."""

    name: str
    source: str
    parameters: tuple[str, ...]  # unknown names that the function itself would have
    names: tuple[str, ...]  # other names that are read
    cls: str
    me: str
    call: ast.Call
    kept: tuple[ast.stmt, ...]  # statements of the function that are run before it
    around: tuple[ast.stmt, ...]  # those that it stands in
    head: str  # parameters of the function
    takers: tuple[str, ...]  # calls that what it gives is handed to at once

    def plan(self, values: list[dict[str, object]]) -> dict[str, object]:
        """What oomlint.verify.child.calls.measure takes."""
        return {
            "name": self.name,
            "source": self.source,
            "parameters": list(self.parameters),
            "names": list(self.names),
            "cls": self.cls,
            "me": self.me,
            "values": values,
        }


@dataclass(frozen=True, slots=True)
class SliceSite:
    """A call in a program."""

    tree: ast.Module
    call: ast.Call
    function: str  # dotted name of the innermost function, empty for the module
    ordinal: int  # among the calls of that function that are written the same way


def sites(tree: ast.Module) -> Iterator[SliceSite]:
    """All calls of a program, in source order."""
    counts: dict[tuple[str, str], int] = {}
    for call in sorted((node for node in ast.walk(tree) if isinstance(node, ast.Call)), key=lambda node: (node.lineno, node.col_offset, -_end(node))):
        function = spot(tree, call.lineno).inner
        key = (function, ast.unparse(call.func))
        counts[key] = counts.get(key, -1) + 1
        yield SliceSite(tree, call, function, counts[key])


def _end(node: ast.expr) -> int:
    return (node.end_lineno or 0) * 10_000 + (node.end_col_offset or 0)


def counterpart(site: SliceSite, tree: ast.Module) -> SliceSite | None:
    """The same call in the program after the fix."""
    written = ast.unparse(site.call.func)
    return next((one for one in sites(tree) if (one.function, one.ordinal) == (site.function, site.ordinal) and ast.unparse(one.call.func) == written), None)


def cut(site: SliceSite, leaves: frozenset[str], *, inherited: bool = False, plain: bool = False) -> Cut:
    """Cut a call out. ``leaves`` are expressions whose values the caller sets; ``inherited`` says that it is ``super().__init__(...)``.

    ``plain`` is for a call of anything else than a loader: its first argument is no dataset.
    """
    return _Cutter(site, leaves, inherited=inherited, plain=plain).cut()


class _Cutter:
    def __init__(self, site: SliceSite, leaves: frozenset[str], *, inherited: bool, plain: bool) -> None:
        self.site = site
        self.plain = plain
        self.inherited = inherited
        self.leaves = leaves
        self.parents = {child: node for node in ast.walk(site.tree) for child in ast.iter_child_nodes(node)}
        self.dataset = "" if plain else self._dataset()
        self.chain = self._chain()
        self.wanted: set[str] = set()  # names whose definitions are part of the slice
        self.kept: set[ast.stmt] = set()
        # What decides over the values that are tried matters, also for a call that no longer takes them.
        self.texts = {text for item in (*site.call.args[1:], *site.call.keywords) for text in texts(item)} | leaves

    def cut(self) -> Cut:
        call = self._call()
        self.wanted = loaded(call)
        for _ in range(_ROUNDS):
            for statement in self.kept:
                self.texts |= texts(statement)
            size = len(self.wanted), len(self.kept)
            self._collect()
            if size == (len(self.wanted), len(self.kept)):
                break
        body = self._body()
        body.append(ast.Return(call))
        function = next((node for node in self.chain if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))), None)
        parameters = self._parameters()
        reads = {item.id for statement in body for item in ast.walk(statement) if isinstance(item, ast.Name)}
        unknown = tuple(sorted(name for name in reads if name in parameters))
        arguments = ast.arguments(posonlyargs=[], args=[ast.arg(name) for name in unknown], kwonlyargs=[], kw_defaults=[], defaults=[])
        name = function.name if function is not None else "main"
        made = ast.FunctionDef(name=name, args=arguments, body=body, decorator_list=[], type_params=[])  # type: ignore[call-arg,unused-ignore]  # 3.12 and later
        module = ast.fix_missing_locations(ast.Module([made], []))
        cls, me = self._class()
        others = tuple(sorted(name for name in reads - set(unknown) if not name.startswith("__")))
        around = tuple(item for item in self.chain if isinstance(item, ast.stmt))
        takers = tuple(ast.unparse(node.func) for node in takewhile(lambda node: not isinstance(node, ast.stmt), self.chain) if isinstance(node, ast.Call))
        head = ast.unparse(function.args) if function is not None else ""
        return Cut(name, ast.unparse(module), unknown, others, cls, me, self.site.call, tuple(self.kept), around, head, takers)

    # -- the call ------------------------------------------------------------------------------------------------------

    def _dataset(self) -> str:
        call = self.site.call
        given = next((item.value for item in call.keywords if item.arg == "dataset"), call.args[0] if call.args else None)
        return "" if given is None or isinstance(given, ast.Starred) else ast.unparse(given)

    def _call(self) -> ast.Call:
        call = self.site.call
        callee: ast.expr = ast.Constant(None) if self.inherited else lazy(call.func)
        func: ast.expr = call.func if self.plain else ast.Call(ast.Name("__callee__", ast.Load()), [callee], [])
        keywords: list[ast.keyword] = []
        positions: list[ast.expr] = []
        for place, arg in enumerate(call.args):
            if isinstance(arg, ast.Starred):
                positions.append(ast.Starred(ast.Call(ast.Name("__positions__", ast.Load()), [lazy(arg.value)], []), ast.Load()))
            elif place == 0 and not self.plain:
                positions.append(ast.Name("__dataset__", ast.Load()))
            else:
                positions.append(self._argument(PARAMETERS[place] if place < len(PARAMETERS) else "argument", arg))
        for item in call.keywords:
            if item.arg is None:
                text = ast.unparse(item.value)
                value: ast.expr = ast.Call(ast.Name("__unpacked__", ast.Load()), [ast.Constant(text), lazy(self._put(item.value))], [])
            elif item.arg == "dataset" and not self.plain:
                value = ast.Name("__dataset__", ast.Load())
            else:
                value = self._argument(item.arg, item.value)
            keywords.append(ast.keyword(item.arg, value))
        return ast.Call(func, positions, keywords)

    def _argument(self, name: str, value: ast.expr) -> ast.expr:
        return ast.Call(ast.Name("__argument__", ast.Load()), [ast.Constant(name), lazy(self._put(value))], [])

    def _put(self, node: ast.expr) -> ast.expr:
        """The expression with the dataset replaced by a stand-in and the leaves asked for by name."""
        made = Putter(self.dataset, self.leaves).visit(copy.deepcopy(node))
        assert isinstance(made, ast.expr)  # noqa: S101 -- an expression stays one
        return made

    # -- statements before it --------------------------------------------------------------------------------------------

    def _chain(self) -> list[ast.AST]:
        """What the call stands in, from inside."""
        found: list[ast.AST] = []
        node: ast.AST = self.site.call
        while node in self.parents:
            node = self.parents[node]
            found.append(node)
        return found

    def _before(self) -> list[tuple[ast.stmt, ast.AST]]:
        """Statements that run before the call, each with what holds it, outermost first; those around the call are among them."""
        line: list[ast.AST] = [self.site.call, *self.chain]
        found: list[tuple[ast.stmt, ast.AST]] = []
        for inner, outer in reversed(list(pairwise(line))):
            if isinstance(outer, ast.ClassDef) or (isinstance(outer, ast.Module) and any(isinstance(item, _KEPT) for item in self.chain)):
                continue
            for field in ("body", "orelse", "handlers", "finalbody"):
                block = getattr(outer, field, None)
                if isinstance(block, list) and inner in block:
                    found += [(item, outer) for item in block[: block.index(inner)] if isinstance(item, ast.stmt)]
                    if field == "orelse" and isinstance(outer, ast.Try):
                        found += [(item, outer) for item in outer.body]
            if isinstance(inner, ast.stmt):
                found.append((inner, outer))
        return found

    def _collect(self) -> None:
        for statement, _ in reversed(self._before()):
            if statement in self.chain:
                self.wanted |= self._condition_names(statement)
            else:
                self._consider(statement)
        for node in self.chain:
            for part in getattr(node, "generators", ()):
                if self.wanted.intersection(stored(part.target)):
                    self.wanted |= loaded(part.iter)

    def _condition_names(self, statement: ast.stmt) -> set[str]:
        """Names that decide whether control goes on towards the call: what is known to matter, or is a plain value."""
        if isinstance(statement, ast.If):
            return loaded(statement.test) if self._matters(statement.test) else set()
        if isinstance(statement, (ast.For, ast.AsyncFor)) and self.wanted.intersection(stored(statement.target)):
            return loaded(statement.iter)
        return set()

    def _matters(self, test: ast.expr) -> bool:
        """Whether a condition is about something that the call's arguments are made of. Of any other it is assumed that the call is reached."""
        return not is_main(test) and bool(texts(test) & self.texts)

    def _consider(self, statement: ast.stmt) -> bool:
        """Keep a statement that defines what is wanted, or leaves the function where what is wanted says so."""
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            if self.wanted.intersection(stored(statement)):
                self.kept.add(statement)
            return statement in self.kept
        if isinstance(statement, _KEPT):
            if statement.name in self.wanted and not isinstance(self.parents[statement], ast.Module):
                self.kept.add(statement)
                self.wanted |= loaded(statement)
            return statement in self.kept
        if isinstance(statement, ast.Assert):
            keep = self._matters(statement.test)
        elif isinstance(statement, _EXITS):
            keep = False  # with the condition that it stands under
        elif isinstance(statement, (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.AsyncFor, ast.AsyncWith)):
            inner = [item for block in blocks(statement) for item in block]
            kept = [item for item in reversed(inner) if self._consider(item)]
            leaves = isinstance(statement, ast.If) and any(isinstance(item, _EXITS) or ends(item) for item in inner)
            decides = leaves and isinstance(statement, ast.If) and self._matters(statement.test)
            keep = bool(kept) or decides
            if keep:
                self.wanted |= header(statement)
        else:
            keep = bool(changed(statement) & self.wanted)
            if keep:
                self.wanted |= loaded(statement)
        if keep:
            self.kept.add(statement)
        return keep

    def _body(self) -> list[ast.stmt]:
        body: list[ast.stmt] = []
        for statement, _ in self._before():
            if statement in self.chain:
                body += self._entered(statement)
            elif statement in self.kept:
                body += self._block([statement])
        for node in reversed(self.chain):
            for part in getattr(node, "generators", ()):
                if self.wanted.intersection(stored(part.target)):
                    body += self._first(part.target, part.iter)
            if isinstance(node, ast.Lambda):
                body += [unknown(arg.arg) for arg in ast.walk(node.args) if isinstance(arg, ast.arg)]
        return body

    def _entered(self, statement: ast.stmt) -> list[ast.stmt]:
        """What happens on the way into a statement that the call stands in."""
        if isinstance(statement, ast.If) and self._matters(statement.test):
            inside = next((item for item in statement.body if item in self.chain), None)
            test = ast.Call(ast.Name("__holds__", ast.Load()), [self._test(statement.test), ast.Constant(inside is not None)], [])
            wanted: ast.expr = ast.UnaryOp(ast.Not(), test) if inside is not None else test
            return [ast.If(wanted, [ast.Return(ast.Name("__elsewhere__", ast.Load()))], [])]
        if isinstance(statement, (ast.For, ast.AsyncFor)) and self.wanted.intersection(stored(statement.target)):
            return self._first(statement.target, statement.iter)
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            bound = [item.optional_vars for item in statement.items if item.optional_vars is not None]
            return [unknown(name) for target in bound for name in sorted(self.wanted.intersection(stored(target)))]
        return []

    def _first(self, target: ast.expr, iterable: ast.expr) -> list[ast.stmt]:
        names = sorted(stored(target))
        loop = ast.For(copy.deepcopy(target), self._put(iterable), [ast.Break()], [ast.Raise(ast.Name("LookupError", ast.Load()))])
        return [tried([loop], names)]

    def _pruned(self, statement: ast.stmt) -> ast.stmt | None:
        if isinstance(statement, _EXITS) or ends(statement):
            return ast.Return(ast.Name("__elsewhere__", ast.Load()))
        if statement not in self.kept:
            return None
        if isinstance(statement, ast.Assert):
            test = ast.Call(ast.Name("__holds__", ast.Load()), [self._test(statement.test), ast.Constant(value=True)], [])
            return ast.If(ast.UnaryOp(ast.Not(), test), [ast.Return(ast.Name("__elsewhere__", ast.Load()))], [])
        if isinstance(statement, ast.If):
            test = ast.Call(ast.Name("__holds__", ast.Load()), [self._test(statement.test), ast.Constant(value=False)], [])
            body = self._block(statement.body)
            return ast.If(test, body or [ast.Pass()], self._block(statement.orelse))
        made = Putter(self.dataset, self.leaves).visit(copy.deepcopy(statement))
        assert isinstance(made, ast.stmt)  # noqa: S101 -- a statement stays one
        return made

    def _test(self, test: ast.expr) -> ast.expr:
        """A condition, to be asked for by the child; unknown where the system decides it."""
        if not asks_the_system(test):
            return lazy(self._put(test))
        unknown = ast.Call(ast.Name("__opaque__", ast.Load()), [ast.Constant(ast.unparse(test))], [])
        return lazy(unknown)

    def _block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """Statements without what does not belong to the slice; where one fails, what it defines is unknown."""
        pairs = [(item, pruned) for item in block if (pruned := self._pruned(item)) is not None]
        return [pruned if isinstance(pruned, (ast.If, ast.Return, *_KEPT)) else tried([pruned], sorted(stored(item))) for item, pruned in pairs]

    # -- names -----------------------------------------------------------------------------------------------------------

    def _parameters(self) -> set[str]:
        """Names that belong to the functions around the call: no global of theirs is meant."""
        found: set[str] = set()
        for node in self.chain:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found |= {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)}
                shared = {name for item in ast.walk(node) if isinstance(item, (ast.Global, ast.Nonlocal)) for name in item.names}
                imported = {name for item in ast.walk(node) if isinstance(item, (ast.Import, ast.ImportFrom)) for name in stored(item)}
                inner = {name for item in ast.walk(node) if isinstance(item, (ast.Name, ast.NamedExpr)) for name in stored(item)}
                found |= inner - shared - imported
        for statement in self.kept:
            if isinstance(statement, _KEPT):
                found.discard(statement.name)
        return found

    def _class(self) -> tuple[str, str]:
        for number, node in enumerate(self.chain):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and number + 1 < len(self.chain) and isinstance(self.chain[number + 1], ast.ClassDef):
                dotted = next((name for name, item in scopes(self.site.tree) if item is self.chain[number + 1]), "")
                positions = [*node.args.posonlyargs, *node.args.args]
                static = any(ast.unparse(item) == "staticmethod" for item in node.decorator_list)
                return (dotted, positions[0].arg) if positions and not static else ("", "")
        return "", ""


# -- what statements read and bind, and small pieces of program to put in their place --------------------------------------


class Putter(ast.NodeTransformer):
    """Puts the stand-in for the dataset's expression, and asks for leaves by name."""

    def __init__(self, dataset: str, leaves: frozenset[str]) -> None:
        self.dataset = dataset
        self.leaves = leaves

    def visit(self, node: ast.AST) -> ast.AST:  # noqa: D102 -- of the base class
        if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and not isinstance(node, ast.Constant):
            text = ast.unparse(node)
            if text == self.dataset:
                return ast.Name("__dataset__", ast.Load())
            if text in self.leaves:
                return ast.Call(ast.Name("__leaf__", ast.Load()), [ast.Constant(text), lazy(copy.deepcopy(node))], [])
        seen: ast.AST = super().visit(node)
        return seen


def lazy(node: ast.expr) -> ast.Lambda:
    """``lambda: node``."""
    return ast.Lambda(ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[]), node)


def unknown(name: str) -> ast.stmt:
    """``name = __opaque__("name")``."""
    return ast.Assign([ast.Name(name, ast.Store())], ast.Call(ast.Name("__opaque__", ast.Load()), [ast.Constant(name)], []))


def tried(body: list[ast.stmt], names: list[str]) -> ast.stmt:
    """Statements that may fail: what they define is unknown then."""
    handler = ast.ExceptHandler(
        ast.Tuple([ast.Name("Exception", ast.Load()), ast.Name("SystemExit", ast.Load())], ast.Load()), None, [unknown(name) for name in names] or [ast.Pass()]
    )
    return ast.Try(body, [handler], [], [])


def texts(node: ast.AST) -> set[str]:
    """Names and dotted names that are read, as they are written."""
    found: set[str] = set()
    waiting = [node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, (ast.Name, ast.Attribute, ast.Subscript)) and root(item):
            found.add(ast.unparse(item))
        elif isinstance(item, ast.Call):
            waiting += [*item.args, *item.keywords]
            if not isinstance(item.func, ast.Name):
                waiting += list(ast.iter_child_nodes(item.func))
        else:
            waiting += list(ast.iter_child_nodes(item))
    return found


def changed(statement: ast.stmt) -> set[str]:
    """Names that a plain statement binds or changes: also ``x[...] = y``, ``x.a = y`` and ``x.update(...)``."""
    found = set(stored(statement))
    for item in ast.walk(statement):
        if isinstance(item, (ast.Subscript, ast.Attribute)) and isinstance(item.ctx, (ast.Store, ast.Del)):
            found.add(root(item))
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and isinstance(statement.value.func, ast.Attribute):
        found.add(root(statement.value.func))
    return found - {""}


def header(statement: ast.stmt) -> set[str]:
    """Names that a compound statement reads before its blocks."""
    parts = [getattr(statement, name, None) for name in ("test", "iter")] + [item.context_expr for item in getattr(statement, "items", ())]
    return {name for part in parts if part is not None for name in loaded(part)}


def ends(statement: ast.stmt) -> bool:
    """Whether a statement ends the program."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func) in {"sys.exit", "exit", "os._exit"}


def asks_the_system(test: ast.expr) -> bool:
    """Whether a condition depends on the system that the program runs on: another one decides otherwise."""
    return bool(_SYSTEM.search(ast.unparse(test)))
