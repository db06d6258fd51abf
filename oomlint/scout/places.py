"""Where the look at a file is: the function, the class or the loop, and what has been seen there."""

from __future__ import annotations

import ast

from msgspec import Struct, field


class TriggerFound(Exception):  # noqa: N818 - the good end of the search
    """A rule may have something to say."""


class ScoutLoop(Struct):
    """A loop, and what has been seen in it."""

    batches: bool  # it may go over batches
    given: bool = False  # it goes over something, and does not just count
    targets: frozenset[str] = frozenset()  # names that it sets in each round
    carries: bool = False  # a call is given what it sets
    trains: bool = False
    node: ast.stmt | None = None


class ScoutPlace(Struct):
    """The function, class body or module that the look is in, and what has been seen there."""

    node: ast.AST
    above: ScoutPlace | None = None
    loops: list[ScoutLoop] = field(default_factory=list)  # around this spot, the innermost last
    bound: set[str] = field(default_factory=set)  # names that the function makes empty for itself
    rooms: set[str] = field(default_factory=set)  # names of arrays that it makes before a loop
    looped: bool = False
    loader: bool = False  # a name of a loader is used
    steps: bool = False  # a step is made in a loop
    runs: bool = False  # gradients are switched off somewhere
    keeps: bool = False  # a round may keep something
    places: bool = False  # a round sets an element
    helpers: set[str] = field(default_factory=set)  # what its rounds call
    evaluates: bool = False  # a model is made ready for an evaluation, or tensors are moved in a loop
    drives: bool = False  # it puts a model into evaluation, or goes backward
    often: bool = False  # a loop counts epochs or makes steps
    copies: bool = False  # a model's parameters may be copied
    emptied: set[str] | None = None  # attributes out of which methods of the class take something, once somebody has asked

    @property
    def in_module(self) -> bool:
        """Whether the place is a method of a class that names ``Module`` as its base: the frameworks run it."""
        above = self.above.node if self.above is not None else None
        return isinstance(above, ast.ClassDef) and any(isinstance(base, ast.Attribute) and base.attr == "Module" for base in above.bases)
