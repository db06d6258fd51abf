"""Values with their story.

An expression of training code rarely has one value: the worker count is 4 by default, 0 under low memory, and whatever the command line says.
So an expression has *alternatives*. Each says what it is, through which places it came, and which *picks* it depends on: a pick
names a branch or an option and what was chosen there. Two alternatives whose picks disagree cannot hold at the same time, which is how a guard such
as ``persistent_workers=num_workers > 0`` silences a rule without anybody having to know the forms that guards take.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oomlint.model.names import short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import libcst as cst

    from oomlint.finding import Place
    from oomlint.model.project import Module
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Scope

Picks = frozenset[tuple[object, object]]
FREE: Picks = frozenset()
ASSUMED = "assumed"  # the pick of a default that nobody in the project confirms


def meet(first: Picks, second: Picks) -> Picks | None:
    """Both sets of picks together, or ``None`` where they contradict each other."""
    if not second or first is second:
        return first
    if not first or first <= second:
        return second
    if second <= first:
        return first
    rest = second - first
    known = _by_key(first)
    for key, pick in rest:
        if known.get(key, pick) != pick:
            return None
    return first | rest if len(rest) == 1 or len(dict(rest)) == len(rest) else None


@lru_cache(maxsize=1 << 10)
def _by_key(picks: Picks) -> Mapping[object, object]:
    """The same by their keys: those of one way are met with those of many others."""
    return dict(picks)


# -- what a value can be -------------------------------------------------------------------------------------------------


class Value(Struct, frozen=True, cache_hash=True):  # a chain of calls is looked up often
    """Anything that an expression can stand for."""


class Const(Value, frozen=True):
    """A literal."""

    value: object

    def __hash__(self) -> int:
        return hash((type(self.value), repr(self.value)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and type(other.value) is type(self.value) and other.value == self.value


class External(Value, frozen=True):
    """Something of a library, by its qualified name."""

    name: str


class ModuleRef(Value, frozen=True):
    """A module of the project, or a package without ``__init__.py`` (then ``module`` is ``None``)."""

    path: str
    module: Module | None


class FunctionRef(Value, frozen=True):
    """A function of the project, bound to an instance or not."""

    module: Module
    scope: Scope
    this: Instance | None = None


class ClassRef(Value, frozen=True):
    """A class of the project."""

    module: Module
    scope: Scope


class Instance(Value, frozen=True):
    """An object of a class of the project; ``bound`` is ``None`` where nobody knows how it was made."""

    cls: ClassRef
    bound: tuple[Bound, ...] | None
    call: cst.Call | None = None
    at: Frame | None = None


class ExternalCall(Value, frozen=True):
    """What a library's function or class returned."""

    name: str
    call: cst.Call
    frame: Frame


class Element(Value, frozen=True):
    """Part of what a library returned: ``random_split(...)[0]``, ``namespace.attribute``."""

    whole: ExternalCall
    accessors: tuple[tuple[str, object], ...]


class Display(Value, frozen=True):
    """A list, tuple, set, dictionary or comprehension as it is written."""

    node: cst.BaseExpression
    frame: Frame


class Partial(Value, frozen=True):
    """``functools.partial``: a callable with some arguments given."""

    func: Value
    bound: Bound


class ParsedOptions(Value, frozen=True):
    """The namespace that a command-line parser returned."""

    module: Module
    call: cst.CSTNode
    style: str  # "argparse", "absl"


class SettingsNode(Value, frozen=True):
    """A node of a settings file (YAML or JSON)."""

    file: SettingsFile
    node: object  # yaml.Node


class Merged(Value, frozen=True):
    """Several mappings laid over each other, the last one first (``{**a, **b}``, Hydra defaults)."""

    parts: tuple[Value, ...]
    deep: bool = False  # whether a mapping inside the last one leaves what it lacks to those before


class Namespace(Value, frozen=True):
    """The names of a configuration file that is written in Python."""

    module: Module


class FilledObject(Value, frozen=True):
    """An object whose fields the command line of a script may set; ``path`` leads to it from the outermost one."""

    instance: Instance
    script: Module
    path: tuple[str, ...] = ()


class ReturnedTuple(Value, frozen=True):
    """A tuple of values that a library returned."""

    parts: tuple[Value, ...]


class SettingsFile(Struct, frozen=True, eq=False):
    """A settings file that was read."""

    path: str


class Unknown(Value, frozen=True):
    """Nobody can know. Rules stay silent."""

    why: str = ""


class SourceExpression(Unknown, frozen=True, kw_only=True):
    """An expression that nothing reduces further, as it is written where the value is made. Unknown to whoever asks for constants."""

    node: cst.BaseExpression
    frame: Frame


class Augmented(Unknown, frozen=True, kw_only=True):
    """What ``x += y`` leaves in ``x``. Unknown to whoever asks for constants."""

    node: cst.AugAssign
    frame: Frame


class Each(Unknown, frozen=True, kw_only=True):
    """What a loop variable goes through: an element of the iterable, at ``index`` inside it. Unknown to whoever asks for constants."""

    iterable: cst.BaseExpression
    frame: Frame
    index: tuple[int, ...] = ()


class PartOfEach(Unknown, frozen=True, kw_only=True):
    """An attribute or entry of what a loop variable goes through."""

    whole: Each
    accessors: tuple[Accessor, ...] = ()


class Absent(Value, frozen=True):
    """Not given: a key that a mapping lacks, a parameter that a call leaves out."""


ABSENT = Absent()


# -- where it is evaluated ----------------------------------------------------------------------------------------------


class Bound(Struct, frozen=True, cache_hash=True):
    """Arguments of one call, with the frame that they are evaluated in."""

    args: tuple[cst.Arg, ...]
    frame: Frame
    call: cst.Call


class Frame(Struct, frozen=True, cache_hash=True):
    """A scope, and what its parameters are bound to. ``bound`` is ``None`` where no call is known."""

    module: Module
    scope: Scope
    bound: tuple[Bound, ...] | None = None
    this: Instance | None = None
    outer: Frame | None = None  # the enclosing function's frame, for closures

    @property
    def depth(self) -> int:
        """How many calls lead here."""
        deepest = max((b.frame.depth for b in self.bound), default=0) if self.bound else 0
        return deepest + 1


class ProvenanceStep(Struct, frozen=True):
    """One place of a story."""

    module: Module | None
    node: cst.CSTNode | None
    text: str
    at: Place | None = None  # where the place is not a node (settings files, shell lines)
    kind: str = ""  # "argument", "default", "option", "branch", "constant", "settings", "shell"

    def place(self) -> Place | None:
        """The place with the step's text as its message; without one, with how the node is written, which is worked out only here."""
        if self.at is not None:
            return self.at.saying(self.text)
        if self.module is None or self.node is None:
            return None
        return self.module.place(self.node, self.text or f"`{short(self.module.code(self.node))}`")


class Alternative(Struct, frozen=True):
    """One value that an expression may have.

    ``doubt`` counts assumptions (0: follows from constants). ``reach`` marks a value that can occur but is not what a plain run has.
    """

    value: Value
    story: tuple[ProvenanceStep, ...] = ()
    picks: Picks = FREE
    doubt: int = 0
    reach: bool = False

    def after(self, *steps: ProvenanceStep) -> Alternative:
        """The same with steps put before the story (nearest first)."""
        return Alternative(self.value, (*steps, *self.story), self.picks, self.doubt, self.reach) if steps else self

    def under(self, picks: Picks) -> Alternative | None:
        """The same under more picks, or ``None`` where they contradict it."""
        merged = meet(self.picks, picks)
        if merged is None or merged is self.picks:
            return None if merged is None else self
        return Alternative(self.value, self.story, merged, self.doubt, self.reach)

    def doubting(self, more: int = 1) -> Alternative:
        """The same with more assumptions."""
        return Alternative(self.value, self.story, self.picks, self.doubt + more, self.reach) if more else self

    @property
    def const(self) -> object:
        """The literal, or ``None``; ask ``isinstance(value, Const)`` to tell a literal None apart."""
        return self.value.value if isinstance(self.value, Const) else None


Alternatives = list[Alternative]


def picked(alt: Alternative, key: object, pick: object) -> Alternative:
    """The alternative, tied to what was picked at ``key``, whatever it picked there before."""
    return replace(alt, picks=frozenset({*alt.picks, (key, pick)}))


def is_usual(picks: Picks) -> bool:
    """Whether a plain run has these picks: options at their defaults, or as the command gives them."""
    return all(
        pick in {"default", "command", ASSUMED} or (isinstance(pick, tuple) and pick[:1] == ("launch",))
        for key, pick in picks
        if isinstance(key, tuple) and key[:1] == ("option",)
    )


def is_tested(picks: Picks) -> bool:
    """Whether they hold under a test whose outcome nobody knows."""
    return any(isinstance(key, tuple) and key[:1] == ("test",) for key, _ in picks)


def assumptions(*alternatives: Alternative | None) -> int:
    """How much has to be assumed for all of these to hold: their doubts, and each assumed default once."""
    picked = {key for alt in alternatives if alt is not None for key, pick in alt.picks if pick is ASSUMED}
    return len(picked) + sum(alt.doubt for alt in alternatives if alt is not None)


def greatest(found: Sequence[Alternative]) -> int | None:
    """The greatest whole number among alternatives; ``None`` where one of them need not be a number, or there is none."""
    numbers = [alt.const for alt in found if isinstance(alt.const, int) and not isinstance(alt.const, bool)]
    return max(numbers) if numbers and len(numbers) == len(found) else None


def is_typed(found: Sequence[Alternative]) -> bool:
    """Whether an option of the command line gives a value, whatever it is: somebody types it."""
    return bool(found) and all(isinstance(alt.value, Const | Unknown) and any(step.kind == "option" for step in alt.story) for alt in found)


def truth_of(value: Value) -> bool | None:
    """Whether the value counts as true; ``None`` where nobody knows."""
    if isinstance(value, Const):
        return bool(value.value)
    if isinstance(value, Absent):
        return False
    if isinstance(value, FunctionRef | ClassRef | Instance | ModuleRef | External | Partial | ParsedOptions | FilledObject):
        return True
    return None
