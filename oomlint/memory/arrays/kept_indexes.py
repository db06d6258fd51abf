"""What an index picks of a value: one number, a few rows, rows that are drawn, all of them in another order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.arrays.kept_calls import KeptCalls
from oomlint.memory.arrays.kept_forms import is_object, makes_array
from oomlint.memory.shared.array_bytes import allocated
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.memory.shared.known_reads import opens_text
from oomlint.model import arguments, names
from oomlint.model.values import Bound, ExternalCall
from oomlint.syntax.nodes import constant_key, names_in

if TYPE_CHECKING:
    from oomlint.memory.arrays.kept_state import Going, KeptSearch
    from oomlint.model.project import Module

_DRAWS: Final = frozenset({"torch.randint", "torch.multinomial", "numpy.random.randint", "numpy.random.choice"})
_PERMUTATIONS: Final = frozenset({"numpy.random.permutation", "torch.randperm"})
_ARRAYS: Final = frozenset({PayloadKind.ARRAY, PayloadKind.TENSOR, PayloadKind.ARRAYS, PayloadKind.TENSORS})
_FEW: Final = 1000  # elements of a list
_SINGLE: Final = frozenset({PayloadKind.SCALAR, PayloadKind.TEXT})


class KeptIndexes(KeptCalls):
    """Answers for the indexes of a value."""

    def picks_number(self, search: KeptSearch, module: Module, node: cst.Subscript) -> bool:
        """Whether an index of each axis picks one number of the array that the search has started at: ``made[i][j]``."""
        start = search.start
        if not isinstance(start, cst.Call) or not makes_array(start):
            return False
        keys: list[cst.BaseExpression] = []
        array: cst.BaseExpression = node
        while isinstance(array, cst.Subscript):
            keys.extend(one.slice.value for one in array.slice if isinstance(one.slice, cst.Index))
            array = array.value
        single = all(isinstance(key, cst.Integer) or (isinstance(key, cst.Name) and self.counts(module, node, key.value)) for key in keys)
        scope = module.walk.scope_at(node)
        given = scope.effects.get(array.value, ()) if single and isinstance(array, cst.Name) else ()
        if [effect.value for effect in given if effect.kind == "assign" and not effect.path] != [start]:
            return False
        size = allocated(start, self.evaluator, self.evaluator.calls.plain_frame(module, scope))
        return size is not None and len(size.dimensions) == len(keys)

    def picks_line(self, search: KeptSearch, node: cst.Subscript, going: Going) -> bool:
        """Whether a number picks one line, or one word, of the text of the file that the search has started at."""
        index = node.slice[0].slice
        if search.origin is None or going.collected or going.rebuilt or len(node.slice) != 1 or not isinstance(index, cst.Index):
            return False
        if not isinstance(constant_key(index.value), int):
            return False
        module, start = search.origin
        if not isinstance(start, cst.Call):
            return False
        opened = self.evaluator.values(start, self.evaluator.calls.plain_frame(module, module.walk.scope_at(start)))
        return any(isinstance(alt.value, ExternalCall) and opens_text(alt.value.name) for alt in opened)

    def is_short(self, module: Module, rows: cst.BaseSlice, most: int | None = None) -> bool:
        """Whether a slice ends at a number that is known, of ``most`` rows."""
        if not isinstance(rows, cst.Slice) or rows.upper is None:
            return False
        found = self.evaluator.plainly(rows.upper, module, module.walk.scope_at(rows))
        return bool(found) and all(isinstance(alt.const, int) and alt.const > 0 and (most is None or alt.const <= most) for alt in found)

    def leaves_few(self, search: KeptSearch, module: Module, rows: cst.BaseSlice, going: Going) -> bool:
        """Whether a slice makes a short list of one that was pickled: the others are gone with the list, where of an array a slice would keep all."""
        start = search.start
        return start is not None and is_object(start) and going.whole and self.is_short(module, rows, _FEW)

    def lists(self, module: Module, key: cst.BaseExpression, going: Going) -> bool:
        """Whether an index is a list whose numbers stand in the code, also in the call that the value came in by: ``rows[[first, last]]``."""
        name, entered = (key.value, going.entered) if isinstance(key, cst.Name) else ("", None)
        scope = module.walk.scope_at(key)
        if entered is not None and name in names.takes(scope) and name not in scope.effects:
            bound = Bound(tuple(entered.call.args), self.evaluator.calls.plain_frame(entered.module, entered.module.walk.scope_at(entered.call)), entered.call)
            given = arguments.given_to(scope, name, (bound,))
            key = given.node.value if given is not None else key
        return isinstance(key, cst.List) and not any(isinstance(one, cst.StarredElement) for one in key.elements)

    def draws(self, module: Module, key: cst.BaseExpression) -> bool:
        """Whether an index is a draw of some rows: random numbers, as many as are asked for, or the first of a permutation."""
        if isinstance(key, cst.Name):
            given = [e.value for e in module.walk.scope_at(key).effects.get(key.value, ()) if e.kind == "assign" and not e.path]
            return len(given) == 1 and given[0] is not None and not isinstance(given[0], cst.Name) and self.draws(module, given[0])
        if isinstance(key, cst.Subscript):
            rows = key.slice[0].slice
            return isinstance(rows, cst.Slice) and rows.upper is not None and self.permutes(module, key.value)
        if not isinstance(key, cst.Call):
            return False
        found = self.evaluator.plainly(key, module, module.walk.scope_at(key))[:3]
        return any(isinstance(alt.value, ExternalCall) and names.canonical(alt.value.name) in _DRAWS for alt in found)

    def is_mixed(self, module: Module, holder: cst.List | cst.Tuple, element: cst.CSTNode) -> bool:
        """Whether an array stands in a list or tuple together with numbers, strings or paths."""
        others = [one.value for one in holder.elements if one is not element]
        if not others or not isinstance(element, cst.Element):
            return False
        contents, frame = self.constructions.contents, self.evaluator.calls.plain_frame(module, module.walk.scope_at(holder))
        return contents.of(element.value, frame).kind in _ARRAYS and any(contents.of(one, frame).kind in _SINGLE for one in others)

    def has_beside(self, module: Module, holder: cst.CSTNode, element: cst.CSTNode) -> bool:
        """Whether a record is known to have arrays or lists beside one of its elements."""
        others = [one.value for one in holder.elements if one is not element] if isinstance(holder, cst.Tuple) else []
        contents, frame = self.constructions.contents, self.evaluator.calls.plain_frame(module, module.walk.scope_at(holder))
        return any(contents.of(one, frame).kind not in {*_SINGLE, PayloadKind.UNKNOWN} for one in others)

    def permutes(self, module: Module, key: cst.BaseExpression) -> bool:
        """Whether an index is a permutation of all rows: what it gives is all of them once more."""
        frame = self.evaluator.calls.plain_frame(module, module.walk.scope_at(key))
        found = (alt.value for alt in self.evaluator.values(key, frame)[:3]) if isinstance(key, cst.Name | cst.Call) else ()
        return any(isinstance(one, ExternalCall) and names.canonical(one.name) in _PERMUTATIONS for one in found)

    def counts(self, module: Module, node: cst.CSTNode, name: str) -> bool:
        """Whether a name is the variable of a loop around the node: what it picks is an element."""
        return any(name in names_in(header.target) for header in names.headers(module.walk, node))
