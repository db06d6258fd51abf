"""What a class opens when it is built becomes a property: each process opens it for itself, on first use, and nothing open is pickled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import libcst as cst

from oomlint.api_names import CONSTANTS
from oomlint.finding import Safety
from oomlint.memory.fixes.class_family import Family
from oomlint.memory.fixes.path_stability import PATH_CALLS, in_doubt, no_file
from oomlint.memory.fixes.property_writer import Lazy, always, private, rewritten, shadowed
from oomlint.memory.handles.openings import Opens, openings_of
from oomlint.model import names
from oomlint.model.values import Const, ExternalCall
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fix
    from oomlint.memory.handles.openings import Opening
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Effect, Scope

_READS: Final = {
    Opens.H5: frozenset({"h5py.File", "h5py._hl.files.File"}),
    Opens.LMDB: frozenset({"lmdb.open", "lmdb.Environment"}),
    Opens.MEMMAP: frozenset({"numpy.memmap", "numpy.load", "numpy.lib.format.open_memmap"}),
    Opens.NPZ: frozenset({"numpy.load"}),
}
_PARTS: Final = {Opens.H5: frozenset({"[", ".get("}), Opens.LMDB: frozenset({".begin(", ".cursor("})}  # how a part is asked for
_OTHER_WAYS: Final = frozenset({"driver", "libver", "swmr", "fclone"})  # what is read depends on when it is opened, or it is no plain file
# Numbers and types: what an argument of these names is given can be kept and pickled.
_PLAIN_ARGUMENTS: Final = frozenset("shape dtype offset order rdcc_nbytes rdcc_nslots rdcc_w0 map_size max_readers max_dbs max_spare_txns".split())
# Methods that run again and again: what they open is another matter.
_TYPES: Final = frozenset({"int", "float", "bool"})
_REPEATED: Final = frozenset("__getitem__ __getitems__ __iter__ __next__ __len__ __call__ forward __setstate__ __enter__ __new__".split())


_NEVER_SAFE: Final = frozenset({Opens.LMDB, Opens.MEMMAP})


class SetAttribute(Protocol):
    """An attribute, and the statement that sets it."""

    @property
    def name(self) -> str:
        """The attribute."""

    @property
    def effect(self) -> Effect | None:
        """What sets it."""

    @property
    def module(self) -> Module:
        """The file of the statement."""


def lazily_opened(holding: SetAttribute, module: Module) -> Fix | None:
    """Keep the path of what a class opens, open it on first use in each process, drop it when pickled; ``None`` where that might not be the same.

    All that the class opens and that cannot be pickled is opened lazily, or nothing is: one ``__getstate__`` serves them. Groups and datasets of an HDF5
    file that are kept beside it become properties too.
    """
    effect = holding.effect
    if effect is None or holding.module is not module:
        return None
    owner = module.walk.scope_at(effect.statement).parent
    if owner is None or not isinstance(owner.node, cst.ClassDef):
        return None
    family = Family(module, owner)
    if not family.can_change():
        return None
    found: dict[str, Lazy] = {}
    for method in owner.children:
        this = _building(method)
        if this is None:
            continue
        reader = _Reader(family, method, this)
        for one in reader.effects():
            lazy = reader.opened(one) or reader.part(one, found)
            if lazy is not None:
                found[lazy.name] = lazy
    wanted = found.get(holding.name)
    if wanted is None or wanted.statement is not effect.statement or family.keeps_open(frozenset(found)):
        return None
    if any(lazy.source is not None and no_file(family, lazy.method, lazy.source) for lazy in found.values()):
        return None
    order = {node: number for number, node in enumerate(descend(owner.node))}
    # The path is another text than it was: an absolute one.
    named = any(b".filename" in family.project.raw(maker.path) for maker in family.makers())
    # A second environment of the same file cannot be opened in a process; a map that was pickled could be written.
    sure = not named and not any(lazy.kind in _NEVER_SAFE or (lazy.root is None and in_doubt(family, lazy.method, lazy.source)) for lazy in found.values())
    return rewritten(module, sorted(found.values(), key=lambda lazy: order[lazy.statement]), Safety.SAFE if sure else Safety.UNSAFE)


def _building(method: Scope) -> str | None:
    """What a method that can open lazily calls its object; ``None`` for other methods."""
    node = method.node
    if not isinstance(node, cst.FunctionDef) or node.asynchronous is not None or node.decorators or method.yields or method.name in _REPEATED:
        return None
    return names.self_name(method)


class _Reader:
    """Reads what one method of a class opens and keeps."""

    def __init__(self, family: Family, method: Scope, this: str) -> None:
        self.family = family
        self.module = family.module
        self.method = method
        self.this = this

    def effects(self) -> Iterator[Effect]:
        """The plain statements of the method that set an attribute."""
        for effect in self.method.effects.get(self.this, ()):
            if effect.kind == "assign" and not effect.index and len(effect.path) == 1 and effect.path[0][0] == "attr" and self._plain(effect.statement):
                yield effect

    def _plain(self, statement: cst.CSTNode) -> bool:
        """Whether a statement has its line for itself, at the top of the method, and sets one thing."""
        targets = [one.target for one in statement.targets] if isinstance(statement, cst.Assign) else []
        if not isinstance(statement, cst.AnnAssign) and (len(targets) != 1 or isinstance(targets[0], cst.Tuple | cst.List)):
            return False
        parents = self.module.walk.parents
        line = parents.get(statement)
        return isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 and parents.get(parents[line]) is self.method.node

    def _lazy(
        self, effect: Effect, kind: Opens, path: cst.BaseExpression | None, kept: list[tuple[str, str]], opened: str, root: Lazy | None = None
    ) -> Lazy | None:
        """The attribute as a property, where it is set here alone and its new names are free."""
        statement = effect.statement
        assert isinstance(statement, cst.Assign | cst.AnnAssign)  # noqa: S101 - what `effects` yields
        if "#" in _without_strings(self.module, statement):
            return None  # a comment would be lost
        name = str(effect.path[0][1])
        lazy = Lazy(
            name,
            self.method,
            statement,
            self.this,
            kind,
            self.module.code(path) if path is not None else "",
            tuple(kept),
            opened,
            self._annotation(statement),
            root,
            path,
        )
        return lazy if self.family.settles(name, effect) and self.family.free(lazy.attributes) else None

    # -- what is opened --------------------------------------------------------------------------------------------------

    def opened(self, effect: Effect) -> Lazy | None:
        """The property for what an opening call gives, or a part of it."""
        name = str(effect.path[0][1])
        kept: list[tuple[str, str]] = []
        call, tail = self._tail(effect.value, name, kept)
        opening = openings_of(self.module.project).at(self.module, call) if isinstance(call, cst.Call) else None
        if opening is None or opening.path is None or opening.name not in _READS.get(opening.kind, ()) or opening.mode != "r":
            return None
        if not self._parts(opening.kind, tail) or not self._global(opening.call.func) or not self._is_path(opening.path):
            return None
        path = self.module.code(opening.path)
        if opening.kind is Opens.NPZ and not path.rstrip("')\"").endswith(".npz"):
            return None
        args = [self._argument(arg, opening, name, kept) for arg in opening.call.args]
        if not all(args):
            return None
        return self._lazy(effect, opening.kind, opening.path, kept, f"{self.module.code(opening.call.func)}({', '.join(map(str, args))}){''.join(tail)}")

    def _argument(self, arg: cst.Arg, opening: Opening, name: str, kept: list[tuple[str, str]]) -> str | None:
        """An argument as the property gives it: the path that is kept, a constant, or a number that is kept."""
        word = arg.keyword.value if arg.keyword is not None else ""
        if arg.star or word in _OTHER_WAYS:
            return None
        start = f"{word}=" if word else ""
        if arg.value is opening.path:
            return f"{start}self.{private(name)}_path"
        if self._constant(arg.value):
            return start + self.module.code(arg.value)
        if word not in _PLAIN_ARGUMENTS:
            return None
        kept.append((f"{private(name)}_{word}", self.module.code(arg.value)))
        return f"{start}self.{private(name)}_{word}"

    def _tail(self, node: cst.BaseExpression | None, name: str, kept: list[tuple[str, str]]) -> tuple[cst.BaseExpression | None, list[str]]:
        """What a part is asked of, and the code that asks. A key that is no constant is kept."""
        tail: list[str] = []
        while True:
            match node:
                case cst.Subscript(value=whole, slice=[cst.SubscriptElement(slice=cst.Index(value=key))]):
                    code = self.module.code(key)
                    if isinstance(key, cst.Name | cst.FormattedString | cst.Attribute) and not kept and not isinstance(whole, cst.Subscript):
                        kept.append((f"{private(name)}_key", code))
                        code = f"self.{private(name)}_key"
                    elif not isinstance(key, cst.SimpleString | cst.ConcatenatedString):
                        return node, tail  # a number or a slice reads data
                    tail.insert(0, f"[{code}]")
                case cst.Call(func=cst.Attribute(value=whole, attr=cst.Name(value=method)), args=args) if method in {"get", "begin", "cursor"}:
                    said = [self.module.code(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT)) for arg in args]
                    if not all(arg.star == "" and self._constant(arg.value) for arg in args) or "write=True" in said:
                        return node, tail
                    tail.insert(0, f".{method}({', '.join(said)})")
                case _:
                    return node, tail
            node = whole

    @staticmethod
    def _parts(kind: Opens, tail: list[str]) -> bool:
        """Whether such a thing has such parts."""
        return all(step.startswith(tuple(_PARTS.get(kind, ()))) for step in tail)

    def part(self, effect: Effect, found: dict[str, Lazy]) -> Lazy | None:
        """The property for a group or dataset of a file, or a transaction of an environment, that is opened lazily."""
        kept: list[tuple[str, str]] = []
        whole, tail = self._tail(effect.value, str(effect.path[0][1]), kept)
        if not tail or not isinstance(whole, cst.Attribute) or not isinstance(whole.value, cst.Name) or whole.value.value != self.this:
            return None
        source = found.get(whole.attr.value)
        if source is None or not self._parts(source.kind, tail):
            return None
        return self._lazy(effect, source.kind, None, kept, f"self.{source.name}{''.join(tail)}", source.root or source)

    # -- what a property can say again -----------------------------------------------------------------------------------

    def _global(self, node: cst.BaseExpression) -> bool:
        """Whether a dotted name begins with an import of the module that the method does not cover."""
        root = names.dotted(node).partition(".")[0]
        effects = self.module.root.effects.get(root)
        return effects is not None and effects[0].kind in {"import", "from"} and not shadowed(self.method, root)

    def _constant(self, node: cst.CSTNode) -> bool:
        match node:
            case cst.Integer() | cst.Float() | cst.SimpleString():
                return True
            case cst.Name():
                return node.value in CONSTANTS or (node.value in _TYPES and node.value not in self.module.root.effects) or self._global(node)
            case cst.Attribute():
                return self._global(node)
            case cst.UnaryOperation():
                return self._constant(node.expression)
            case cst.BinaryOperation():
                return self._constant(node.left) and self._constant(node.right)
            case cst.Tuple():
                return all(isinstance(e, cst.Element) and self._constant(e.value) for e in node.elements)
            case _:
                return False

    def _is_path(self, node: cst.BaseExpression) -> bool:
        """Whether an expression may be the name of a file: no address, no buffer, no open file."""
        if any(isinstance(here, cst.NamedExpr | cst.Await | cst.Yield) for here in descend(node)):
            return False
        if isinstance(node, cst.Call) and names.last_name(node.func) not in PATH_CALLS:
            return False
        evaluator = self.family.evaluator
        for alt in evaluator.plainly(node, self.module, self.method):
            value = alt.value
            if isinstance(value, ExternalCall) and value.name.rpartition(".")[2] not in PATH_CALLS:
                return False
            if isinstance(value, Const) and (not isinstance(value.value, str | bytes) or "://" in str(value.value)):
                return False
        return not any("://" in here.value for here in descend(node) if isinstance(here, cst.SimpleString | cst.FormattedStringText))

    def _annotation(self, statement: cst.Assign | cst.AnnAssign) -> str:
        """The annotation, where a property can have it."""
        if not isinstance(statement, cst.AnnAssign):
            return ""
        node = statement.annotation.annotation
        if not isinstance(node, cst.Name | cst.Attribute) or not self._global(node):
            return ""
        # In a method it is never worked out, but that of a property is, at once.
        effects = self.module.root.effects[names.dotted(node).partition(".")[0]]
        return self.module.code(node) if all(always(self.module, effect.statement) for effect in effects) else ""


def _without_strings(module: Module, node: cst.CSTNode) -> str:
    """The code of a statement without its strings."""
    code = module.code(node)
    for here in descend(node):
        if isinstance(here, cst.SimpleString | cst.FormattedStringText):
            code = code.replace(here.value, " ")
    return code
