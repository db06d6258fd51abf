"""The text of attributes that are opened on first use: what is kept, the properties, the state that is pickled."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct

from oomlint.finding import Edit, Fix, Safety
from oomlint.memory.fixes.rewrites import import_edit, imported_as, only_for_types
from oomlint.memory.handles.openings import Opens
from oomlint.syntax.edits import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Effect, Scope


class Lazy(Struct, frozen=True, eq=False):
    """An attribute that becomes a property."""

    name: str
    method: Scope  # where it is set
    statement: cst.Assign | cst.AnnAssign
    this: str  # what the method calls the object
    kind: Opens
    path: str  # code of the path; empty for a part of another attribute
    kept: tuple[tuple[str, str], ...]  # further attributes, and the code of what they are given
    opened: str  # code of the value, in a method whose object is ``self``
    returns: str  # annotation
    root: Lazy | None  # the attribute that this is a part of
    source: cst.BaseExpression | None  # the path

    @property
    def private(self) -> str:
        """The attribute that keeps what is open."""
        return private(self.name)

    @property
    def pid(self) -> str:
        """The attribute that tells which process has opened it; empty where all may use it."""
        return "" if self.kind is Opens.MEMMAP else f"{(self.root or self).private}_pid"

    @property
    def attributes(self) -> list[str]:
        """Attributes that the class gets."""
        own = [self.private] if self.root is not None else [f"{self.private}_path", self.private, *([self.pid] if self.pid else [])]
        return [*own, *(name for name, _ in self.kept)]


def private(name: str) -> str:
    """The attribute that keeps what is open behind a property."""
    return f"{name}_opened" if name.startswith("_") else f"_{name}"


def rewritten(module: Module, lazy: Sequence[Lazy], safety: Safety) -> Fix | None:
    """The fix that makes properties of these attributes of one class, in the order of their statements."""
    text = Text(module.tree)
    home = next((one.method for one in lazy if one.method.name in {"__init__", "__post_init__"}), lazy[0].method)
    outer = before(text, home.node)
    if outer.strip():
        return None
    operating = _os(module)
    edits: list[Edit] = []
    if operating is None:
        if not all(only_for_types(module, effect.statement) or _is_os(effect) for effect in module.root.effects.get("os", ())):
            return None  # something else has that name
        edits.append(import_edit(module, "import os", home.node))
    system = operating or "os"
    if any(shadowed(one.method, system) for one in lazy):
        return None
    unit = module.tree.module.default_indent
    for one in lazy:
        pad = before(text, one.statement)
        if pad.strip():
            return None
        if one.method is home and pad.startswith(outer) and pad != outer:
            unit = pad[len(outer) :]
        edits.append(_instead(text, one, system, pad))
    members = [_property(one, [part for part in lazy if part.root is one], system, unit) for one in lazy]
    dropped = "".join(f', "{one.private}": None' for one in lazy)
    members.append(["def __getstate__(self):", f"{unit}return {{**self.__dict__{dropped}}}"])
    body = "\n\n".join("\n".join(f"{outer}{line}" for line in member) for member in members)
    end = end_of(text, home, outer)
    edits.append(text.replaced(end, end, f"\n\n{body}"))
    opened = [f"`{one.name}`" for one in lazy if one.root is None]
    listed = opened[0] if len(opened) == 1 else f"{', '.join(opened[:-1])} and {opened[-1]}"
    return Fix(safety, f"store the path{'s' * (len(opened) > 1)}, and open {listed} on first use in each process", tuple(edits))


def _os(module: Module) -> str | None:
    """What ``os`` is called wherever the class is used; ``None`` where it is imported under a condition, such as in the main script alone."""
    name = imported_as(module, "os")
    return name if name is not None and any(always(module, effect.statement) for effect in module.root.effects[name] if effect.kind == "import") else None


def _is_os(effect: Effect) -> bool:
    return effect.kind == "import" and isinstance(effect.node, cst.ImportAlias) and effect.node.asname is None


def always(module: Module, statement: cst.CSTNode) -> bool:
    """Whether a statement of the module runs on every import of it."""
    return all(isinstance(here, cst.SimpleStatementLine | cst.Module) for here in module.walk.ancestors(statement))


def before(text: Text, node: cst.CSTNode) -> str:
    """What stands in front of a node in its line."""
    start = text.span(node)[0]
    return text.text[text.starts[text.spot(start)[0] - 1] : start]


def shadowed(method: Scope, name: str) -> bool:
    """Whether a method means something of its own by a name."""
    node = method.node
    params = node.params if isinstance(node, cst.FunctionDef) else None
    bound = {p.name.value for p in (*params.posonly_params, *params.params, *params.kwonly_params)} if params else set()
    stars = [star.name.value for star in (params.star_arg, params.star_kwarg) if isinstance(star, cst.Param)] if params else []
    return name in bound or name in stars or name in method.effects or name in method.outer


def _instead(text: Text, one: Lazy, system: str, pad: str) -> Edit:
    """What stands in the place of the statement that opened."""
    start, end = text.span(one.statement)
    lines = [f"{one.this}.{one.private}{f': {one.returns} | None' if one.returns else ''} = None"]
    if one.root is None:
        absolute = one.path.startswith(f"{system}.path.abspath(") and one.path.endswith(")") and one.path.count("(") == 1
        lines.insert(0, f"{one.this}.{one.private}_path = {one.path if absolute else f'{system}.path.abspath({one.path})'}")
        if one.pid:
            lines.append(f"{one.this}.{one.pid}{': int | None' if one.returns else ''} = None")
    lines += [f"{one.this}.{name} = {code}" for name, code in one.kept]
    return text.replaced(start, end, f"\n{pad}".join(lines))


def _property(one: Lazy, parts: list[Lazy], system: str, unit: str) -> list[str]:
    test = f"self.{one.private} is None"
    if one.pid:
        test += f" or self.{one.pid} != {system}.getpid()"
    lines = [f"self.{one.private} = {one.opened}"]
    if one.pid and one.root is None:
        # As long as something of it is held, HDF5 goes on with the parent's descriptor, and LMDB opens nothing.
        left = " = ".join(f"self.{each.private}" for each in (one, *parts))
        lines = [f"{left} = None  # let go of what a fork has left", *lines, f"self.{one.pid} = {system}.getpid()"]
    return [
        "@property",
        f"def {one.name}(self){f' -> {one.returns}' if one.returns else ''}:",
        f"{unit}if {test}:",
        *(f"{unit}{unit}{line}" for line in lines),
        f"{unit}return self.{one.private}",
    ]


def end_of(text: Text, method: Scope, outer: str) -> int:
    """Where the last line of a method ends, the comments at its end included."""
    last = max(text.span(node)[1] for node in method.nodes() if isinstance(node, cst.BaseSmallStatement))
    # Other signs that end a line for `str.splitlines`, a form feed for one, end none of Python.
    lines = [text.text[start:stop] for start, stop in pairwise([*text.starts, len(text.text)])]
    row = end = text.spot(last)[0]  # behind the last line
    while row < len(lines):
        line = lines[row].rstrip()
        if line and not (line.lstrip().startswith("#") and line.startswith((f"{outer} ", f"{outer}\t"))):
            break
        row += 1
        end = row if line else end
    return text.starts[end - 1] + len(lines[end - 1].rstrip("\r\n"))
