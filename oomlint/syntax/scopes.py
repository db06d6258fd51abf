"""What happens in a scope: what it binds, changes, calls and returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct, field

from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oomlint.syntax.nodes import Accessor

# Kinds of effects: what gives a name its only value as a rule, and what gives it another one.
DEFINES: Final = frozenset({"import", "from", "def", "class"})
REBINDS: Final = frozenset({"assign", "augment", "for", "with"})
BINDS: Final = DEFINES | REBINDS - {"augment"} | {"unknown", "declare"}
LENGTHENS: Final = frozenset({"append", "extend", "augment"})  # a container that is there
CHANGES: Final = LENGTHENS | {"update", "setdefault", "pop", "clear"}


class Effect(Struct, eq=False):
    """Something that binds a name or changes what it holds.

    ``path`` leads from the root name to what is set: ``args.n = 0`` has root ``args`` and path ``(("attr", "n"),)``.
    ``index`` is the position inside an unpacked value. ``node`` is what a story points at.
    """

    root: str
    path: tuple[Accessor, ...]
    kind: str
    statement: cst.CSTNode
    node: cst.CSTNode
    value: cst.BaseExpression | None = None
    index: tuple[int, ...] = ()
    call: cst.Call | None = None


class Scope(Struct, eq=False):
    """A module, a class body, a function or a lambda, with what happens directly in it."""

    node: cst.Module | cst.ClassDef | cst.FunctionDef | cst.Lambda
    parent: Scope | None
    name: str
    effects: dict[str, list[Effect]] = field(default_factory=dict)
    containing: dict[str, set[cst.CSTNode]] = field(default_factory=dict)
    views: dict[str, tuple[str, tuple[Accessor, ...]]] = field(default_factory=dict)  # names for the attributes of an object: `known = vars(args)`
    calls: list[cst.Call] = field(default_factory=list)
    returns: list[cst.Return] = field(default_factory=list)
    yields: bool = False
    outer: set[str] = field(default_factory=set)  # names declared global
    enclosing: set[str] = field(default_factory=set)  # names declared nonlocal
    children: list[Scope] = field(default_factory=list)
    loops: list[cst.For | cst.While] = field(default_factory=list)
    rows: list[cst.ListComp] = field(default_factory=list)
    comprehensions: list[cst.BaseComp] = field(default_factory=list)  # lists among them, and generators
    tries: list[cst.Try] = field(default_factory=list)
    flows: dict[cst.CSTNode, object] = field(default_factory=dict)  # what its blocks bind to what, where somebody has asked
    order: Sequence[cst.CSTNode] = ()  # all nodes of the file, in source order
    whole: tuple[int, int] = (0, 0)  # where the definition lies in that
    inside: tuple[int, int] = (0, 0)  # and its code
    _own: list[cst.CSTNode] | None = None
    _places: dict[cst.CSTNode, int] | None = None
    _mentions: dict[str, list[tuple[int, cst.Name]]] | None = None
    _named: dict[str, list[cst.Name]] | None = None
    method: bool | None = None  # what `names` has found out about it: whether it is a method, and the names of its parameters
    takes: frozenset[str] | None = None

    @property
    def is_function(self) -> bool:
        """Whether the scope has parameters."""
        return isinstance(self.node, cst.FunctionDef | cst.Lambda)

    @property
    def is_class(self) -> bool:
        """Whether the scope is a class body."""
        return isinstance(self.node, cst.ClassDef)

    @property
    def suite(self) -> cst.CSTNode:
        """What holds the scope's code: the body of a function, lambda or class, or the module."""
        return self.node if isinstance(self.node, cst.Module) else self.node.body

    def nodes(self, *, inner: bool = True) -> Sequence[cst.CSTNode]:
        """All that its code is made of, in source order; what stands in functions, classes and lambdas within it only with ``inner``."""
        at, end = self.inside
        if inner:
            return self.order[at:end]
        if self._own is None:
            if isinstance(self.suite, cst.Lambda):  # a lambda that gives another one
                self._own = list(descend(self.suite, into_scopes=False))
                return self._own
            own: list[cst.CSTNode] = []
            for child in self.children:
                first, last = child.whole
                if at <= first:  # else it stands in what another one is given: a decorator, a default
                    own += self.order[at : first + 1]
                    at = last
            self._own = [*own, *self.order[at:end]]
        return self._own

    @property
    def places(self) -> Mapping[cst.CSTNode, int]:
        """The number of each node of its own code among these."""
        if self._places is None:
            self._places = {node: number for number, node in enumerate(self.nodes(inner=False))}
        return self._places

    def mentions(self, name: str) -> Sequence[tuple[int, cst.Name]]:
        """Where a name stands in its own code, as a variable or as a word, each with its number among the nodes of that."""
        if self._mentions is None:
            self._mentions = {}
            for number, node in enumerate(self.nodes(inner=False)):
                if isinstance(node, cst.Name):
                    self._mentions.setdefault(node.value, []).append((number, node))
        return self._mentions.get(name, ())

    def named(self, name: str) -> Sequence[cst.Name]:
        """Where a name stands in its code and in that of functions inside, as a variable or as a word."""
        if self._named is None:
            self._named = {}
            for node in self.nodes():
                if isinstance(node, cst.Name):
                    self._named.setdefault(node.value, []).append(node)
        return self._named.get(name, ())

    def sets(self, name: str) -> bool:
        """Whether the scope binds the name itself, not only an attribute or an element of what it holds."""
        return any(not effect.path and effect.kind in REBINDS | {"import", "from"} for effect in self.effects.get(name, ()))

    @property
    def qualname(self) -> str:
        """Dotted name inside the module; empty for the module itself."""
        if self.parent is None:
            return ""
        above = self.parent.qualname
        return f"{above}.{self.name}" if above else self.name

    def child(self, name: str) -> Scope | None:
        """The last function or class of that name defined directly here."""
        for scope in reversed(self.children):
            if scope.name == name:
                return scope
        return None
