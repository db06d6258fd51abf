"""Larger rewrites that several rules offer: a lazily opened attribute, a lambda as a function, a value wrapped in a call."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.finding import Edit, Fix, Safety
from oomlint.memory.loaders import evaluator_of
from oomlint.model import names
from oomlint.model.values import ClassRef, ExternalCall
from oomlint.syntax.edits import Text, replace
from oomlint.syntax.walk import block_of, descend

if TYPE_CHECKING:
    from oomlint.memory.datasets import Holding
    from oomlint.model.project import Module
    from oomlint.syntax.walk import Scope

_READ_ONLY = re.compile(r"""^["']r[b]?["']$""")


def imported_as(module: Module, qualified: str) -> str | None:
    """The name under which a module (``numpy``, ``torch``, ``os``) can be written at the top of a file, or ``None``."""
    for name, effects in module.root.effects.items():
        for effect in effects:
            if effect.kind == "import" and isinstance(effect.node, cst.ImportAlias) and names.dotted(effect.node.name) == qualified:
                return name if effect.node.asname is not None or "." not in qualified else None
    return None


def import_edit(module: Module, statement: str) -> Edit:
    """The edit that adds an import, in front of the first one, or after the docstring and ``__future__`` imports."""
    text = Text(module.tree)
    for item in module.tree.module.body:
        if isinstance(item, cst.SimpleStatementLine):
            first = item.body[0]
            if isinstance(first, cst.Expr) and isinstance(first.value, cst.SimpleString):
                continue
            if isinstance(first, cst.ImportFrom) and names.dotted(first.module) == "__future__":
                continue
            if isinstance(first, cst.Import | cst.ImportFrom):
                start = text.span(first)[0]
                return text.replaced(start, start, f"{statement}\n")
        start = _statement_start(text, item)
        return text.replaced(start, start, f"{statement}\n\n")
    end = len(text.text)
    return text.replaced(end, end, f"{statement}\n")


def _statement_start(text: Text, item: cst.CSTNode) -> int:
    """Offset of a statement's first line: its decorators count, comments above it do not."""
    nodes: list[cst.CSTNode] = [item]
    if isinstance(item, cst.FunctionDef | cst.ClassDef):
        nodes.extend(item.decorators)
    start = min(text.span(node)[0] for node in nodes)
    row, _ = text.spot(start)
    return text.starts[row - 1]


def lambda_to_function(module: Module, node: cst.Lambda, wanted: str) -> Fix | None:
    """Make a lambda a function of the module, above the statement that uses it; ``None`` where it needs its surroundings."""
    params = node.params
    if params.kwonly_params or params.star_kwarg or isinstance(params.star_arg, cst.Param) or any(p.default is not None for p in params.params):
        return None
    own = {p.name.value for p in (*params.posonly_params, *params.params)}
    inner: set[str] = set()
    for child in descend(node.body):
        if isinstance(child, cst.CompFor):
            inner |= {n.value for n in descend(child.target) if isinstance(n, cst.Name)}
        elif isinstance(child, cst.Lambda):
            inner |= {p.name.value for p in child.params.params}
        elif isinstance(child, cst.NamedExpr | cst.Yield | cst.Await):
            return None
    used = {n.value for n in descend(node.body) if isinstance(n, cst.Name) and not _is_attribute_name(module, n) and not _is_keyword_name(module, n)} - own
    if used - inner - set(module.root.effects) - names.BUILTINS or used & _bound_around(module, node):
        return None
    top: cst.CSTNode = node
    for here in module.walk.ancestors(node):
        if isinstance(here, cst.Module):
            break
        top = here
    # A name that the module binds only after the function is fine: it is looked up when the function runs.
    # Several lambdas of a file are mended at once: each gets a name of its own.
    before_it = [n for n in descend(module.tree.module) if isinstance(n, cst.Lambda)].index(node)
    name = _free_name(module, wanted if before_it == 0 else f"{wanted}_{before_it + 1}")
    text = Text(module.tree)
    code = module.code(node.body)
    body = f"({code})" if "\n" in code else code
    signature = ", ".join(p.name.value for p in (*params.posonly_params, *params.params))
    indent = module.tree.module.default_indent
    start = _with_comments(text, _statement_start(text, top), top)
    before = text.text[:start]
    tail = before[len(before.rstrip()) :]
    lead = "" if not before.strip() else "\n" * max(0, 3 - tail.count("\n"))
    content = f"{lead}def {name}({signature}):\n{indent}return {body}\n\n\n"
    return Fix(Safety.SAFE, f"make the lambda a function of the module, `{name}`", (text.replaced(start, start, content), replace(module.tree, node, name)))


def _with_comments(text: Text, start: int, item: cst.CSTNode) -> int:
    """Where the comment lines that stand right above a statement begin."""
    row, _ = text.spot(start)
    lines = item.leading_lines if isinstance(item, cst.SimpleStatementLine | cst.BaseCompoundStatement) else ()
    for line in reversed(list(lines)):
        if line.comment is None or row == 1:
            break
        row -= 1
    return text.starts[row - 1]


def _is_attribute_name(module: Module, node: cst.Name) -> bool:
    holder = module.walk.parents.get(node)
    return isinstance(holder, cst.Attribute) and holder.attr is node


def _is_keyword_name(module: Module, node: cst.Name) -> bool:
    holder = module.walk.parents.get(node)
    return isinstance(holder, cst.Arg) and holder.keyword is node


def _bound_around(module: Module, node: cst.Lambda) -> set[str]:
    """Names that functions, comprehensions and patterns around the lambda bind: it would lose them."""
    found: set[str] = set()
    scope: Scope | None = module.walk.scope_of[node].parent
    while scope is not None and scope.parent is not None:
        found |= set(scope.effects)
        if isinstance(scope.node, cst.FunctionDef | cst.Lambda):
            found |= {n.name.value for n in descend(scope.node.params) if isinstance(n, cst.Param)}
        found |= {n.name.value for n in descend(scope.node) if isinstance(n, cst.MatchAs | cst.MatchStar) and n.name is not None}
        found |= {n.rest.value for n in descend(scope.node) if isinstance(n, cst.MatchMapping) and n.rest is not None}
        scope = scope.parent
    for here in module.walk.ancestors(node):
        if isinstance(here, cst.ListComp | cst.SetComp | cst.DictComp | cst.GeneratorExp):
            found |= {n.value for loop in descend(here.for_in) if isinstance(loop, cst.CompFor) for n in descend(loop.target) if isinstance(n, cst.Name)}
    return found


def _free_name(module: Module, wanted: str) -> str:
    taken = {n.value for n in descend(module.tree.module) if isinstance(n, cst.Name)}
    name, number = wanted, 2
    while name in taken:
        name = f"{wanted}_{number}"
        number += 1
    return name


_USUAL = {"numpy": ("np", "import numpy as np"), "torch": ("torch", "import torch")}


def wrap(module: Module, node: cst.BaseExpression, library: str, function: str, message: str) -> Fix | None:
    """``value`` → ``library.function(value)``; the library is imported where it is not yet, unless its usual name is taken."""
    alias = imported_as(module, library)
    edits: tuple[Edit, ...] = ()
    if alias is None:
        alias, statement = _USUAL[library]
        if alias in module.root.effects:
            return None
        edits = (import_edit(module, statement),)
    return Fix(Safety.UNSAFE, message, (*edits, replace(module.tree, node, f"{alias}.{function}({module.code(node)})")))


def lazily_opened(holding: Holding, module: Module) -> Fix | None:
    """Keep the path of what ``__init__`` opens, open it on first use in each process, drop it when pickled.

    Only where the attribute is set once, plainly, in ``__init__``, read-only, and closed or deleted nowhere.
    """
    effect = holding.effect
    if effect is None or holding.module is not module or not isinstance(effect.statement, cst.Assign) or len(effect.statement.targets) != 1:
        return None
    call = effect.statement.value
    if not isinstance(call, cst.Call) or not call.args or call.args[0].star or call.args[0].keyword is not None:
        return None
    kind = _read_only_kind(call)
    walk = module.walk
    scope = walk.scope_at(effect.statement)
    owner = scope.parent
    this = names.self_name(scope)
    if kind is None or scope.name != "__init__" or owner is None or this is None or not isinstance(owner.node, cst.ClassDef):
        return None
    line = walk.parents.get(effect.statement)
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1 or walk.parents.get(walk.parents[line]) is not scope.node:
        return None
    name = holding.name
    if (
        name.startswith("__")
        or _needs_more_care(holding, module, owner, call)
        or not _untouched(owner, name, scope)
        or _named(owner, {name, "__getstate__", "__reduce__", "__setstate__", "__slots__", "__getattr__"})
    ):
        return None
    return _lazy_fix(module, scope, effect.statement, call, name, this, with_pid=kind == "handle")


_PATH_CALLS = frozenset({"join", "str", "Path", "format", "abspath", "expanduser", "realpath", "fspath", "joinpath"})


def _needs_more_care(holding: Holding, module: Module, owner: Scope, call: cst.Call) -> bool:
    """Whether opening later, from a path, might not be the same: another class sets the attribute, the name is not a plain path, a name is taken."""
    name = holding.name
    private = name.lstrip("_")
    code = module.code(owner.node)
    if re.search(rf"\b_{private}(_path|_pid)?\b", code.replace(f".{name}", "") if name.startswith("_") else code) or "__dict__" in code or "vars(" in code:
        return True
    if re.search(r"\b(unlink|remove|rmtree|TemporaryDirectory|NamedTemporaryFile|mkstemp)\b", code):
        return True
    if any(a.keyword is not None and a.keyword.value in {"driver", "libver"} for a in call.args):
        return True
    written = call.args[0].value
    if isinstance(written, cst.Call) and names.last_name(written.func) not in _PATH_CALLS:
        return True
    if isinstance(written, cst.SimpleString) and "://" in written.value:
        return True
    project = module.project
    set_outside = re.compile(rb"(?<!\bself)\." + name.encode() + rb"\s*=(?!=)")
    if any(name.encode() in project.raw(path) and set_outside.search(project.raw(path)) for path in project.files()):
        return True
    evaluator = evaluator_of(project)
    cls = ClassRef(module, owner)
    relatives = [base for base in evaluator.lineage(cls) if isinstance(base, ClassRef) and base.scope is not owner]
    for other in (*relatives, *evaluator.calls.subclasses(owner)):
        if re.search(rf"\.{name}\b", other.module.code(other.scope.node)):
            return True
    # Values that are opened files or buffers rather than names of files.
    frame = evaluator.calls.plain_frame(module, module.walk.scope_at(call))
    return any(isinstance(a.value, ExternalCall) and a.value.name.rpartition(".")[2] not in _PATH_CALLS for a in evaluator.values(written, frame))


def _read_only_kind(call: cst.Call) -> str | None:
    """``"map"`` or ``"handle"`` where the call opens for reading only and needs nothing but its path and constants."""
    rest = call.args[1:]
    for arg in rest:
        if (
            arg.star
            or not isinstance(arg.value, cst.SimpleString | cst.Integer | cst.Name)
            or (isinstance(arg.value, cst.Name) and arg.value.value not in {"True", "False", "None"})
        ):
            return None
    keywords = {a.keyword.value: a.value for a in rest if a.keyword is not None}
    plain = [a.value for a in rest if a.keyword is None]
    name = names.last_name(call.func)
    if name == "load":
        return "map" if _READ_ONLY.match(_word(keywords.get("mmap_mode"))) else None
    if name == "memmap":
        return "map" if _READ_ONLY.match(_word(keywords.get("mode"))) else None
    if name == "File":
        mode = keywords.get("mode", plain[0] if plain else None)
        return "handle" if mode is None or _READ_ONLY.match(_word(mode)) else None
    if name == "open" and isinstance(call.func, cst.Attribute) and names.last_name(call.func.value) == "lmdb":
        return "handle" if _word(keywords.get("readonly")) == "True" else None
    return None


def _word(node: cst.BaseExpression | None) -> str:
    return node.value if isinstance(node, cst.SimpleString | cst.Name) else ""


def _untouched(owner: Scope, name: str, init: Scope) -> bool:
    """Whether the attribute is set just once, and never closed, deleted or changed in place."""
    set_times = 0
    for scope in owner.children:
        this = names.self_name(scope)
        if this is None:
            continue
        for effect in scope.effects.get(this, ()):
            if effect.path[:1] != (("attr", name),):
                continue
            if effect.kind == "assign" and len(effect.path) == 1 and scope is init:
                set_times += 1
            else:
                return False
        for call in scope.calls:
            if isinstance(call.func, cst.Attribute) and call.func.attr.value in {"close", "__exit__", "__enter__"}:
                inner = call.func.value
                if isinstance(inner, cst.Attribute) and inner.attr.value == name:
                    return False
    return set_times == 1


def _named(owner: Scope, taken: set[str]) -> bool:
    return any(name in owner.effects for name in taken)


def _lazy_fix(module: Module, init: Scope, statement: cst.Assign, call: cst.Call, name: str, this: str, *, with_pid: bool) -> Fix | None:
    if not isinstance(init.node, cst.FunctionDef):
        return None
    text = Text(module.tree)
    unit = module.tree.module.default_indent
    start, end = text.span(statement)
    column = text.spot(start)[1] - 1
    pad = text.text[start - column : start]
    outer = text.text[text.starts[text.spot(text.span(init.node)[0])[0] - 1] : text.span(init.node)[0]]
    if pad.strip() or outer.strip():
        return None
    os_name = imported_as(module, "os")
    operating = os_name or "os"
    path = module.code(call.args[0].value)
    private = f"_{name.lstrip('_')}" if not name.startswith("_") else f"{name}_opened"
    lines = [f"{this}.{private}_path = {operating}.path.abspath({path})", f"{this}.{private} = None"]
    if with_pid:
        lines.append(f"{this}.{private}_pid = None")
    opened = module.code(call.with_changes(args=[call.args[0].with_changes(value=cst.parse_expression(f"self.{private}_path")), *call.args[1:]]))
    test = f"self.{private} is None or self.{private}_pid != {operating}.getpid()" if with_pid else f"self.{private} is None"
    body = [
        "@property",
        f"def {name}(self):",
        f"{unit}if {test}:",
        f"{unit}{unit}self.{private} = {opened}",
        *([f"{unit}{unit}self.{private}_pid = {operating}.getpid()"] if with_pid else []),
        f"{unit}return self.{private}",
        "",
        "def __getstate__(self):",
        f'{unit}return {{**self.__dict__, "{private}": None}}',
    ]
    method = "\n".join(f"{outer}{item}" if item else "" for item in body)
    last = block_of(init.node.body)[-1]
    stop = text.span(last)[1]
    line_end = text.text.find("\n", stop)
    line_end = len(text.text) if line_end < 0 else line_end
    if text.text[line_end - 1 : line_end] == "\r":
        line_end -= 1
    joined = f"\n{pad}".join(lines)
    edits = [text.replaced(start, end, joined), text.replaced(line_end, line_end, f"\n\n{method}")]
    if os_name is None:
        edits.insert(0, import_edit(module, "import os"))
    return Fix(Safety.SAFE, f"keep the path, open `{name}` on first use in each process", tuple(edits))


_ENDLESS = """def {name}(loader):
{i}while True:
{i}{i}batch = None
{i}{i}for batch in loader:
{i}{i}{i}yield batch
{i}{i}if batch is None:
{i}{i}{i}return


"""


def endless(module: Module, call: cst.Call) -> Fix | None:
    """``itertools.cycle(x)`` → ``_cycle(x)``, with the generator above the statement that uses it."""
    text = Text(module.tree)
    top: cst.CSTNode = call
    for here in module.walk.ancestors(call):
        if isinstance(here, cst.Module):
            break
        top = here
    for scope in module.walk.root.children:
        if scope.name == "_cycle" and "for batch in loader" in module.code(scope.node) and len(names.parameters(scope)) == 1:
            return Fix(Safety.UNSAFE, "pass over the loader again and again, keep nothing", (replace(module.tree, call.func, "_cycle"),))
    name = _free_name(module, "_cycle")
    start = _with_comments(text, _statement_start(text, top), top)
    before = text.text[:start]
    tail = before[len(before.rstrip()) :]
    lead = "" if not before.strip() else "\n" * max(0, 3 - tail.count("\n"))
    content = lead + _ENDLESS.format(name=name, i=module.tree.module.default_indent)
    edits = (text.replaced(start, start, content), replace(module.tree, call.func, name))
    return Fix(Safety.UNSAFE, "pass over the loader again and again, keep nothing", edits)
