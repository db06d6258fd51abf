"""What a trail is made of: what becomes of a file that a call opens, and the places where it stays."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

if TYPE_CHECKING:
    import libcst as cst

    from oomlint.memory.handles.h5_api import Grip
    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope


class End(Enum):
    """What becomes of the file, or of an object of it."""

    CLOSED = "closed"
    KEPT = "kept by something that outlives the function, or may be"
    RETURNED = "the file itself is returned or yielded"
    MAYBE_KEPT = "an object of the file is kept where a test says so"
    HANDED_OUT = "an object of the file is returned, yielded or collected"
    MAYBE_OUT = "an object of the file, or an array read from it, is returned, yielded or collected"
    UNKNOWN = "an object of the file is given to what nobody can look into"
    READ = "read, and dropped"


SETTLES: Final = frozenset({End.CLOSED, End.KEPT, End.RETURNED})


class ResourceStore(Struct, frozen=True, eq=False):
    """A place that puts the file, or an object of it, where it stays: the target, the comprehension, or the call of ``append``."""

    module: Module
    scope: Scope
    node: cst.CSTNode
    grip: Grip


class Trail(Struct, eq=False):
    """Where the value of one expression goes."""

    ends: dict[End, list[cst.CSTNode]] = field(default_factory=dict)
    uses: list[cst.CSTNode] = field(default_factory=list)  # every place that reads the file or an object of it
    names: list[str] = field(default_factory=list)  # names that the file itself is bound to
    stores: list[ResourceStore] = field(default_factory=list)  # where it goes into an attribute or a container
    captured: bool = False  # a function inside the function uses it

    @property
    def left_open(self) -> bool:
        """Whether nothing closes the file, keeps it or hands it on."""
        return not SETTLES & self.ends.keys()

    def add(self, end: End, node: cst.CSTNode) -> None:
        """Note an end."""
        self.ends.setdefault(end, []).append(node)
