"""Cuts the piece of a program around one of its loops, so that it runs where not all that it needs is there.

The function (or the cells, or the script) keeps all its statements. Those before and after the loop are run tolerantly: one that fails is noted, and what it
would have assigned is replaced by a stand-in. Loops around the loop make a few turns, branches around it are taken. The loop itself runs as it stands.
"""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.ast_names import around, bound, filled_names, head, key_of, loaded, root, stored, within

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    Function = ast.FunctionDef | ast.AsyncFunctionDef
    Loop = ast.For | ast.AsyncFor | ast.While

GUIDE: Final = "__oomlint__"  # the name under which the code finds its guide
HIDDEN: Final = "_oomlint_"  # what names begin with that the code has got from here
KEPT_DECORATORS: Final = re.compile(r"^@?(torch\.(no_grad|inference_mode|enable_grad|set_grad_enabled|autograd)|no_grad|inference_mode|contextmanager)\b")
BATCHY: Final = re.compile(
    r"(loader|_dl\b|\bdl\b|_iter\b|batches|dataset|iterator|pbar|prefetch|\bbar\b|data_iter|generator\b|progress|_gen\b|\bdata\b|_data\b)", re.IGNORECASE
)
GENERATORS: Final = frozenset({"torch", "numpy", "random"})  # libraries whose generators, and whose gradient mode, are compared after a run
EPOCHS: Final = re.compile(r"^(_?epochs?|e|ep|fold|trial|run|it_epoch|epoch_\w+|\w+_epoch|seed|phase|split|mode|stage|round)$")
ONCE: Final = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)  # what cannot stand in a function of its own, or must not be done twice
PRIVATE: Final = re.compile(r"\.__\w*[^_\W]\b|\bsuper\(")


@dataclass(slots=True)
class Piece:
    """A function, or a program, made ready to run."""

    code: ast.Module  # defines the function, or is the program
    name: str  # of the function as it is defined in ``code``; empty for a program
    cls: str  # dotted name of the class that it is a method of, empty otherwise
    kind: str  # "for", "while", "comprehension", or "calls" where the function itself is the step
    arguments: ast.arguments | None = None
    static: str = ""  # "staticmethod" or "classmethod"
    watched: list[str] = field(default_factory=list)  # names whose values at the end are results
    keys: dict[str, tuple[int, str]] = field(default_factory=dict)  # of statements that may be left out: row and text
    loads: list[str] = field(default_factory=list)  # global names that the function asks for
    missing: list[str] = field(default_factory=list)  # keys to be left out that no statement has: a fix has changed it
    compiled: Any = None
    makers: dict[str, list[str]] = field(default_factory=dict)  # by name ("model", "self.model"): keys of the statements beside the loop that bind it


class SliceError(Exception):
    """There is nothing here that can be run; one line says why."""


def chosen(chain: list[ast.AST]) -> Loop | None:
    """The loop whose turns are the steps: the outermost that goes over batches, else the outermost that does not count epochs, else the innermost."""
    loops = [item for item in chain if isinstance(item, (ast.For, ast.AsyncFor, ast.While))]
    for loop in loops:
        if isinstance(loop, (ast.For, ast.AsyncFor)) and BATCHY.search(ast.unparse(loop.iter)) and not _counts_epochs(loop):
            return loop
    return next((loop for loop in loops if not _counts_epochs(loop)), loops[-1] if loops else None)


def _counts_epochs(loop: Loop) -> bool:
    if isinstance(loop, ast.While):
        return any("epoch" in name for name in stored(loop)) and any(isinstance(item, (ast.For, ast.AsyncFor)) for item in ast.walk(loop))
    targets = [item.id for item in ast.walk(loop.target) if isinstance(item, ast.Name)]
    return any(EPOCHS.match(name) for name in targets) or "epoch" in ast.unparse(loop.iter).lower()


class Cutter:
    """Rewrites one function or program."""

    def __init__(self, tree: ast.Module, row: int, skips: Collection[str], *, force: bool) -> None:
        self.tree = tree
        self.row = row
        self.skips = frozenset(skips)
        self.force = force
        self.keys: dict[str, tuple[int, str]] = {}
        self.makers: dict[str, list[str]] = {}
        self.matched: set[str] = set()
        self.loop: Loop | None = None
        self.chain: list[ast.AST] = []

    def cut(self) -> Piece:
        """The piece around the row. Raises SliceError."""
        chain = around(self.tree, self.row)
        functions = [item for item in chain if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
        if not chain:
            raise SliceError("there is no statement at that row")
        function: Function | None = functions[-1] if functions else None
        for candidate in reversed(functions):  # a closure inside the loop belongs to the function around it
            self.chain = chain[chain.index(candidate) + 1 :]
            if chosen([item for item in self.chain if not isinstance(item, ast.FunctionDef)]) is not None:
                function = candidate
                break
        self.chain = chain[chain.index(function) + 1 :] if function else chain
        if isinstance(function, ast.AsyncFunctionDef):
            raise SliceError("the function is asynchronous")
        self.loop = chosen(self.chain)
        body = function.body if function else self._needed(self.tree.body)
        classes = [item.name for item in (chain[: chain.index(function)] if function else []) if isinstance(item, ast.ClassDef)]
        new_body = self.block(body, self.chain)
        kind = "calls" if self.loop is None else "while" if isinstance(self.loop, ast.While) else "for"
        if function is None:
            if self.loop is None:
                raise SliceError("there is no loop around the row")
            flags = [item for item in body if isinstance(item, ast.ImportFrom) and item.module == "__future__"]
            code = ast.Module([*flags, *(item for item in new_body if item not in flags)], [])
            piece = Piece(code, "", "", kind)
        else:
            made = copy.copy(function)
            made.body = new_body or [ast.Pass()]
            made.decorator_list = [item for item in function.decorator_list if KEPT_DECORATORS.match(ast.unparse(item))]
            made.returns = None
            made.args = _plain(function.args)
            static = next((name for item in function.decorator_list if (name := ast.unparse(item)) in ("staticmethod", "classmethod")), "")
            code = ast.Module([_holder(made)], [])
            if classes:
                code = _Mangler(classes[-1]).visit(code)
            inner = chain.index(function) > 0 and isinstance(chain[chain.index(function) - 1], ast.ClassDef)
            piece = Piece(code, function.name, ".".join(classes) if inner else "", kind, function.args, static)
        piece.watched = self._watched(body)
        piece.keys = self.keys
        piece.missing = sorted(self.skips - self.matched)
        piece.makers = self.makers
        piece.loads = sorted(loaded(function)) if function else []
        located(piece.code)
        return piece

    # -- blocks ------------------------------------------------------------------------------------------------------------

    def block(self, statements: list[ast.stmt], spine: list[ast.AST]) -> list[ast.stmt]:
        """A block around the loop: what is on the way to it stays, the rest is run tolerantly."""
        new: list[ast.stmt] = []
        for statement in statements:
            if statement is self.loop:
                new.extend(self.steps(statement, spine[1:]))
            elif spine and statement is spine[0]:
                new.extend(self.enclosing(statement, spine[1:]) if self.loop else self.inside([statement], spine))
            elif self.loop is None:
                new.extend(self.inside([statement], []))
            else:
                new.extend(self.tolerant(statement))
        return new

    def enclosing(self, statement: ast.stmt, spine: list[ast.AST]) -> list[ast.stmt]:
        """A statement that the loop stands in."""
        made = copy.copy(statement)
        prepared: list[ast.stmt] = []
        match made:
            case ast.For() | ast.AsyncFor():
                prepared = self._evaluated(made.iter, statement, "turns")
                made.iter = _call("outer", _name("turns"))
            case ast.While():
                made.test = ast.BoolOp(ast.And(), [_call("round"), made.test])
            case ast.If() if not isinstance(spine[0] if spine else None, ast.AST):
                pass
            case ast.If():
                wanted = spine[0] in made.body
                prepared = self._evaluated(made.test, statement, "test")
                made.test = _call("branch", _name("test"), ast.Constant(wanted), ast.Constant(statement.lineno))
            case _:
                pass
        _rebuild(made, partial(self.block, spine=spine))
        return [*prepared, made]

    def steps(self, loop: ast.stmt, spine: list[ast.AST]) -> list[ast.stmt]:
        """The loop itself."""
        made = copy.copy(loop)
        prepared: list[ast.stmt] = []
        if isinstance(made, ast.For):
            prepared = self._evaluated(made.iter, loop, "items")
            made.iter = _call("loop", _name("items"), ast.Constant(ast.unparse(made.iter)))
        elif isinstance(made, ast.While):
            made.test = ast.BoolOp(ast.And(), [_call("turn"), made.test])
        else:
            raise SliceError("the loop is asynchronous")
        made.body = self.inside(made.body, spine)
        if not spine:
            made.body = [_mark(loop), *made.body]
        made.orelse = self.inside(made.orelse, spine) if made.orelse else []
        handler = ast.ExceptHandler(ast.Name("BaseException", ast.Load()), f"{HIDDEN}error", [ast.Expr(_call("raised", _name("error"))), ast.Raise()])
        return [*prepared, ast.copy_location(ast.Try([made], [handler], [ast.Expr(_call("ended"))], []), loop)]

    def inside(self, statements: list[ast.stmt], spine: list[ast.AST]) -> list[ast.stmt]:
        """A block in the loop: it stays, but for what a search has found to be left out; the row is marked."""
        new: list[ast.stmt] = []
        for statement in statements:
            if spine and statement is spine[0] and len(spine) == 1:
                new.append(_mark(statement))
            on_way = bool(spine) and statement is spine[0]
            key = key_of(statement)
            if key in self.skips and not on_way:
                self.matched.add(key)
                new.extend(self._left_out(statement, inside=True))
                continue
            made = copy.copy(statement)
            rest = spine[1:] if on_way else []
            if on_way and rest and self.force and isinstance(made, ast.If):
                new.extend(self._evaluated(made.test, statement, "test"))
                made.test = _call("branch", _name("test"), ast.Constant(rest[0] in made.body), ast.Constant(statement.lineno))
            if not isinstance(made, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
                _rebuild(made, partial(self.inside, spine=rest))
            self.keys.setdefault(key, (statement.lineno, head(statement)))
            new.append(made)
        return new

    # -- statements --------------------------------------------------------------------------------------------------------

    def tolerant(self, statement: ast.stmt) -> list[ast.stmt]:
        """A statement beside the loop."""
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Pass, ast.Break, ast.Continue)):
            return [statement]
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            return [statement]
        key = key_of(statement)
        self.keys.setdefault(key, (statement.lineno, head(statement)))
        for name in bound(statement):
            self.makers.setdefault(name, []).append(key)
        if key in self.skips:
            self.matched.add(key)
            return self._left_out(statement)
        failed = ast.Expr(_call("failed", ast.Constant(key), ast.Constant(statement.lineno), _name("error")))
        handler = ast.ExceptHandler(_failures(), f"{HIDDEN}error", [failed, *_instead(statement)])
        at = ast.Expr(_call("at", ast.Constant(key)))
        return [ast.copy_location(ast.Try([at, statement], [handler], [], []), statement)]

    def _left_out(self, statement: ast.stmt, *, inside: bool = False) -> list[ast.stmt]:
        note = ast.copy_location(ast.Expr(_call("skipped", ast.Constant(statement.lineno), ast.Constant(head(statement)[:80]))), statement)
        names = stored(statement) if inside and isinstance(statement, (ast.Assign, ast.AnnAssign)) else []
        again: list[ast.stmt] = [ast.Assign([ast.Name(name, ast.Store())], _call("again", ast.Constant(name))) for name in names]
        return [note, *(ast.copy_location(item, statement) for item in (again or _instead(statement)))]

    def _evaluated(self, value: ast.expr, statement: ast.stmt, name: str) -> list[ast.stmt]:
        """An expression in the head of a statement, whose failure is noted."""
        key = key_of(statement)
        target = ast.Name(f"{HIDDEN}{name}", ast.Store())
        failed = ast.Assign([target], _call("failed", ast.Constant(key), ast.Constant(statement.lineno), _name("error")))
        handler = ast.ExceptHandler(_failures(), f"{HIDDEN}error", [failed])
        return [ast.copy_location(ast.Try([ast.Expr(_call("at", ast.Constant(key))), ast.Assign([target], value)], [handler], [], []), statement)]

    # -- what is needed ----------------------------------------------------------------------------------------------------

    def _needed(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The statements of a program that the loop needs: what defines its names before it, what reads its results after it."""
        spine = self.chain[0]
        at = next(index for index, item in enumerate(body) if item is spine)
        filled = set(filled_names(spine))
        own = {item.id for loop in self.chain if isinstance(loop, ast.For) for item in ast.walk(loop.target) if isinstance(item, ast.Name)}
        # What sets generators tells on the loop whether or not this names the library, which a fix may be the first to do.
        state = {name for item in body[:at] if isinstance(item, ast.Import) for name in _bound_to(item, GENERATORS)}
        wanted = loaded(spine) - own
        kept: list[ast.stmt] = [body[at]]
        for statement in reversed(body[:at]):
            if self._wants(statement, wanted | state if isinstance(statement, ast.Expr) else wanted):
                wanted |= loaded(statement)
                kept.insert(0, statement)
        for statement in body[at + 1 :]:
            simple = isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr))
            if simple and loaded(statement) & filled:
                kept.append(statement)
                filled |= set(stored(statement))
        return kept

    def _wants(self, statement: ast.stmt, wanted: set[str]) -> bool:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            return bool(wanted.intersection(stored(statement))) or (
                isinstance(statement, ast.ImportFrom) and (statement.names[0].name == "*" or statement.module == "__future__")
            )
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            return statement.name in wanted
        if isinstance(statement, ast.Expr):
            base = statement.value
            return isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute) and root(base.func) in wanted
        if isinstance(statement, (ast.For, ast.While, ast.With, ast.If, ast.Try)):
            text = ast.unparse(statement)
            return bool(wanted.intersection([*stored(statement), *filled_names(statement)])) and ".backward(" not in text and "__main__" not in text
        return bool(wanted.intersection(stored(statement)))

    def _watched(self, body: list[ast.stmt]) -> list[str]:
        """Names that the loop fills or adds to, and those that are made of them after it."""
        if self.loop is None:
            return []
        names = filled_names(self.loop)
        for statement in body:
            for inner in within(statement):
                if isinstance(inner, (ast.Assign, ast.AugAssign)) and inner.lineno > (self.loop.end_lineno or 0) and loaded(inner) & set(names):
                    names.extend(stored(inner))
        return list(dict.fromkeys(names))


def tolerant_function(function: ast.FunctionDef, cls: str, skips: Collection[str]) -> ast.Module:
    """A function, all of whose statements are run tolerantly: for constructors."""
    cutter = Cutter(ast.Module([], []), 0, skips, force=False)
    cutter.loop = ast.For(ast.Name("_", ast.Store()), ast.Name("_", ast.Load()), [], [])
    made = copy.copy(function)
    made.body = cutter.block(function.body, []) or [ast.Pass()]
    made.decorator_list = []
    made.returns = None
    made.args = _plain(function.args)
    module = _Mangler(cls).visit(ast.Module([_holder(made)], []))
    fixed: ast.Module = ast.fix_missing_locations(module)
    return fixed


# -- small nodes ---------------------------------------------------------------------------------------------------------------


class _Mangler(ast.NodeTransformer):
    """Private names of a class, as they are called outside of it."""

    def __init__(self, cls: str) -> None:
        self.prefix = "_" + cls.lstrip("_")

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr.startswith("__") and not node.attr.endswith("__"):
            return ast.copy_location(ast.Attribute(node.value, self.prefix + node.attr, node.ctx), node)
        return node


def _holder(function: ast.FunctionDef) -> ast.FunctionDef:
    """Around a function: the class that `super` asks for, and the results at its end."""
    final = ast.Expr(_call("final", ast.Call(ast.Name("locals", ast.Load()), [], [])))
    inner = copy.copy(function)
    documented = inner.body[:1] if ast.get_docstring(inner) is not None else []
    inner.body = [*documented, ast.Try(inner.body[len(documented) :] or [ast.Pass()], [], [], [final])]
    names = ast.arguments([], [ast.arg("__class__")], None, [], [], None, [])
    made = ast.FunctionDef(f"{HIDDEN}make", names, [inner, ast.Return(ast.Name(function.name, ast.Load()))], [], None, None)
    made.type_params = []  # type: ignore[attr-defined] # a field from Python 3.12 on
    return ast.copy_location(made, function)


def _bound_to(statement: ast.Import, libraries: Collection[str]) -> list[str]:
    """The names that stand for one of these libraries, or for a part of it, after an import."""
    return [(item.asname or item.name).partition(".")[0] for item in statement.names if item.name.partition(".")[0] in libraries]


def _plain(arguments: ast.arguments) -> ast.arguments:
    """Arguments without annotations and defaults: a stand-in or the original's default goes in for each."""
    made = copy.deepcopy(arguments)
    for item in (*made.posonlyargs, *made.args, *made.kwonlyargs, *(item for item in (made.vararg, made.kwarg) if item)):
        item.annotation = None
    return made


def _rebuild(statement: ast.stmt, rebuilt: Callable[[list[ast.stmt]], list[ast.stmt]]) -> None:
    """Give a copy of a statement other blocks."""
    for part in ("body", "orelse", "finalbody"):
        block = getattr(statement, part, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            setattr(statement, part, rebuilt(block))
    if isinstance(statement, ast.Try):
        statement.handlers = [ast.copy_location(ast.ExceptHandler(item.type, item.name, rebuilt(item.body)), item) for item in statement.handlers]


def _failures() -> ast.Tuple:
    """What a statement beside the loop may raise; programs end themselves where data are missing."""
    return ast.Tuple([ast.Name("Exception", ast.Load()), ast.Name("SystemExit", ast.Load())], ast.Load())


def _call(method: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name(GUIDE, ast.Load()), method, ast.Load()), list(args), [])


def _name(name: str) -> ast.Name:
    return ast.Name(f"{HIDDEN}{name}", ast.Load())


def _mark(statement: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.Expr(_call("mark")), statement)


def _instead(statement: ast.stmt) -> list[ast.stmt]:
    """For each name that a statement binds and that is not bound: a stand-in."""
    made: list[ast.stmt] = []
    for name in stored(statement):
        put = ast.Assign([ast.Name(name, ast.Store())], _call("instead", ast.Constant(name)))
        handler = ast.ExceptHandler(ast.Name("NameError", ast.Load()), None, [put])
        made.append(ast.Try([ast.Expr(ast.Name(name, ast.Load()))], [handler], [], []))
    return made


def compiled(code: ast.Module, path: str, flags: int = 0) -> Any:
    """Code that shows the rows of the file in its tracebacks."""
    return compile(code, path, "exec", flags=flags, dont_inherit=True)


# -- for a run to come where it would not by itself: branches that are taken in any case, loops that go over their items again ---


def located(node: ast.AST, row: int = 1, column: int = 0) -> None:
    """Give nodes without a place the beginning of what they stand in: of that row alone, for them not to look like rows of the program that were run."""
    if "lineno" in node._attributes:  # noqa: SLF001 -- documented: what a node of this class can tell of its place
        if hasattr(node, "lineno"):
            row, column = node.lineno, node.col_offset  # type: ignore[attr-defined] # there are such
        else:
            for name, value in (("lineno", row), ("end_lineno", row), ("col_offset", column), ("end_col_offset", column)):
                setattr(node, name, value)
    for child in ast.iter_child_nodes(node):
        located(child, row, column)


class _Branches(ast.NodeTransformer):
    def __init__(self, wanted: dict[str, bool]) -> None:
        self.wanted = wanted

    def visit_If(self, node: ast.If) -> ast.AST:
        text = ast.unparse(node.test)
        self.generic_visit(node)
        if text in self.wanted:
            asked = ast.Attribute(ast.Name(GUIDE, ast.Load()), "branch", ast.Load())
            call = ast.Call(asked, [node.test, ast.Constant(self.wanted[text]), ast.Constant(node.lineno)], [])
            made = ast.copy_location(ast.If(call, node.body, node.orelse), node)
            ast.copy_location(call, node.test)
            return ast.fix_missing_locations(made)
        return node


def taken(tree: ast.Module, branches: Iterable[tuple[str, bool]]) -> ast.Module:
    """A copy of a program in which branches with these conditions are taken, or not."""
    wanted = {text: bool(way) for text, way in branches}
    if not wanted:
        return tree
    made: ast.Module = _Branches(wanted).visit(copy.deepcopy(tree))
    return made


def endless(code: ast.Module) -> None:
    """Tell the guide of each loop how its items are made, so that it can go over them again."""
    for node in ast.walk(code):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "loop"):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == GUIDE and isinstance(node.args[-1], ast.Constant)):
            continue
        text: Any = node.args[-1].value
        items = ast.parse(text, mode="eval").body
        if not PRIVATE.search(text) and not any(isinstance(item, ONCE) for item in ast.walk(items)):
            nothing = ast.arguments([], [], None, [], [], None, [])
            node.args.append(ast.fix_missing_locations(ast.copy_location(ast.Lambda(nothing, items), node)))
