"""Whether who keeps data keeps one small value a sample, or a summary: by what is done with it, and by a name where nothing is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.attribute_names import small_arrays, small_name
from oomlint.memory.shared.seen_axes import Axes, SeenAxes, of_name
from oomlint.model.values import ClassRef

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.memory.arrays.kept_state import Keeper
    from oomlint.model.project import Project


def owner_of(keeper: Keeper) -> ClassRef | None:
    """The class of whose objects an attribute keeps it: a dataset, or the class around the statement."""
    home = keeper.module.walk.scope_at(keeper.node).parent
    return keeper.owner or (ClassRef(keeper.module, home) if home is not None and home.is_class else None)


def axes_of(project: Project, keeper: Keeper) -> Axes:
    """The axes that are seen of what somebody keeps: an attribute, or a local name."""
    if not keeper.attribute:
        scope = keeper.module.walk.scope_at(keeper.node)
        return of_name(keeper.module, scope, keeper.names[-1], keeper.node) if keeper.names else Axes()
    owner = owner_of(keeper)
    return project.shared(SeenAxes).of_attribute(evaluator_of(project).lineage(owner), keeper.attribute) if owner is not None else Axes()


def said_small(project: Project, keeper: Keeper, asked: Sequence[str] | None = None, *, arrays: bool = False) -> bool:
    """Whether it is one number a sample, or may be by one of the names: of those ``asked``, or the first and the last on the way.

    ``arrays`` says that arrays are known to be in it.
    """
    says = small_arrays if arrays else small_name
    seen = axes_of(project, keeper)
    named = asked if asked is not None else (*keeper.own_names[:1], *keeper.own_names[-1:])
    return seen.one_number or (not seen.has_rows and any(says(name) for name in named))
