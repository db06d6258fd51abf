"""Notebooks and other files that are run piece by piece: which of their names are lost since nothing but statements that fail binds them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model.statements import evaluated, headers
from oomlint.model.unbound import binds
from oomlint.syntax.scopes import BINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from oomlint.model.project import Module
    from oomlint.source import Source

# What gives a notebook names that none of its statements binds.
_MAKES_NAMES: Final = re.compile(r"\b(?:exec|execfile|globals|locals|setattr|get_ipython|builtins)\b")
_LOADS: Final = re.compile(r"^\s*%{1,2}(?:run|store|load|loadpy|recall|rerun|macro|pylab|capture)\b", re.MULTILINE)
_CELLS: Final = re.compile(r"^# ?%%|^# In\[|get_ipython", re.MULTILINE)


def lost_names(module: Module, fails: Callable[[cst.CSTNode], bool]) -> frozenset[str]:
    """Names of a notebook that only statements bind which fail, as far as it is known of these; what else may give it names is asked first."""
    return frozenset(word for word in module.root.effects if _only_fails(module, word, fails))


def _only_fails(module: Module, word: str, fails: Callable[[cst.CSTNode], bool]) -> bool:
    if word in module.walk.shared:
        return False
    bound = [effect.statement for effect in module.root.effects[word] if not effect.path and effect.kind in BINDS]
    # What reads the name itself has it from another one: `model = model.to(device)`.
    first = [one for one in bound if not any(isinstance(part, cst.Name) and part.value == word for head in headers(one) for part in evaluated(head))]
    return bool(first) and all(map(fails, first))


def is_given_names(module: Module) -> bool:
    """Whether anything but its statements gives a notebook names."""
    source = module.source
    return "*" in module.root.effects or _MAKES_NAMES.search(source.text) is not None or any(_LOADS.search(one.source) for one in source.cells)


def is_never_bound(module: Module, name: cst.Name, lost: frozenset[str]) -> bool:
    """Whether a notebook has a name from statements alone that raise before they bind it: other cells run without it."""
    walk, word = module.walk, name.value
    here = walk.scope_at(name)
    while here.parent is not None:
        if not here.is_class and binds(here, word):
            return False
        here = here.parent
    return word in here.effects and word in lost


def in_cells(source: Source) -> bool:
    """Whether the top level of a file is run piece by piece."""
    return bool(source.cells) or _speaks_of_cells(source.text)


@lru_cache(maxsize=64)
def _speaks_of_cells(text: str) -> bool:
    return _CELLS.search(text) is not None
