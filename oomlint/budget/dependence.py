"""Which rows depend on variables of the environment: those that are others where nobody knows what a variable is.

So nothing has to be handed along with each number, and no way on which a variable decides, a test or a name for one, can be forgotten.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.budget.row import EnvironmentUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from oomlint.budget.report import Budget
    from oomlint.budget.row import Row
    from oomlint.model.environments import Environment

    Rows = Mapping[object, Sequence[Row]]  # by what tells a program from others
    Hidden = Callable[[frozenset[str]], Rows]

_MOST_RUNS: Final = 16  # in which it is sought which variables a row depends on


def marked(budgets: Sequence[tuple[object, Environment, Budget]], names: Iterable[str], hidden: Hidden) -> list[Budget]:
    """Budgets whose rows say on which variables they depend.

    ``hidden`` gives the rows of all programs where nobody knows some.
    """
    every = sorted(names)
    if not every:
        return [one for _, _, one in budgets]
    joint = hidden(frozenset(every))
    alone: dict[tuple[str, ...], Rows] = {}
    left = _MOST_RUNS

    def look(group: tuple[str, ...], found: Rows) -> None:
        """Halve a group of variables until it is known which of them change a row."""
        nonlocal left
        if not any(_changed(one.rows, found.get(key, ())) or _more(one.rows, found.get(key, ())) for key, _, one in budgets):
            return
        if len(group) == 1 or left < 2:  # noqa: PLR2004 - halves
            alone[group] = found
            return
        left -= 2
        for half in (group[: len(group) // 2], group[len(group) // 2 :]):
            look(half, hidden(frozenset(half)))

    look(tuple(every), joint)
    if not alone and not any(_changed(one.rows, joint.get(key, ())) for key, _, one in budgets):
        return [one for _, _, one in budgets]
    alone = alone or {tuple(every): joint}
    return [_marked(key, partial(_use, environment), one, joint, alone, tuple(every)) for key, environment, one in budgets]


def _marked(
    key: object, use: Callable[[str], EnvironmentUse], budget: Budget, joint: Rows, alone: Mapping[tuple[str, ...], Rows], every: tuple[str, ...]
) -> Budget:
    found: list[Row] = []
    names: dict[str, None] = {}
    together = _changed(budget.rows, joint.get(key, ()))
    changed = {group: _changed(budget.rows, rows.get(key, ())) for group, rows in alone.items()}
    for number, row in enumerate(budget.rows):
        groups = [group for group in alone if number in changed[group]] or ([every] if number in together else [])
        uses = tuple(use(name) for group in groups for name in group)
        names |= dict.fromkeys(one.name for one in uses if one.assumed)
        found.append(replace(row, environment=uses) if row.bytes is not None else row)
    for group, rows in alone.items():
        if _more(budget.rows, rows.get(key, ())):
            names |= dict.fromkeys(name for name in group if use(name).assumed)
    return replace(budget, rows=tuple(found), assumed=tuple(names))


def _use(environment: Environment, name: str) -> EnvironmentUse:
    said = environment.settings.get(name)
    if said is None:
        return EnvironmentUse(name, None, None, assumed=not environment.alone)
    return EnvironmentUse(name, said.text, said.place, said.assumed)


def _key(row: Row) -> object:
    return row.group, row.what, row.place, str(row.size), row.certainty


def _changed(rows: Sequence[Row], others: Sequence[Row]) -> set[int]:
    """The rows that the others do not have."""
    left = Counter(map(_key, others))
    found = set()
    for number, row in enumerate(rows):
        if left[_key(row)]:
            left[_key(row)] -= 1
        else:
            found.add(number)
    return found


def _more(rows: Sequence[Row], others: Sequence[Row]) -> bool:
    """Whether the others have something more."""
    return bool({(row.group, row.what) for row in others} - {(row.group, row.what) for row in rows})
