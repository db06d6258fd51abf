"""From a thing that grows by concatenation to a list that is joined once, behind the loop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct

from oomlint.api_names import CONSTANTS
from oomlint.finding import Fix, Safety
from oomlint.model import names
from oomlint.model.lifetime import says_first
from oomlint.syntax.edits import Text, replace
from oomlint.syntax.nodes import block_of, descend, names_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.finding import Edit
    from oomlint.memory.buffers.concatenation import SelfConcatenation
    from oomlint.model.project import Module

_EMPTY = re.compile(
    r"^(\w+\.)?(array\(\[\]|empty\(\(?\[?0\b|zeros\(\(?\[?0\b|tensor\(\[\]|Tensor\((\[\])?|DataFrame\(\)$|(Float|Long)Tensor\((\[\])?).*$",
)
_LABELS = frozenset({"argmax", "argmin", "argsort", "nonzero", "bincount", "round"})
_ADVICE = "collect the parts in a list, and join them once after the loop"


class _Plan(Struct, frozen=True):
    init: cst.BaseExpression  # becomes a list, with what was there at first: its type has a say in that of the whole, and it is the whole after no round
    store: cst.CSTNode  # becomes `x.append(y)`
    appended: str
    behind: cst.CSTNode  # the statement that the join goes behind: the loop, or what holds it
    joined: str


def as_list(found: Sequence[SelfConcatenation], module: Module) -> Fix:
    """The rewrite where all of a loop's things are only read behind it, else advice."""
    plans: dict[int, list[_Plan]] = {}
    for growth in found:
        plan = _plan(growth, module) if sum(one.path == growth.path for one in found) == 1 else None
        if plan is not None:
            plans.setdefault(id(plan.behind), []).append(plan)
    # A name that stays would keep the finding, and with it the rest of the fix, alive.
    if sum(len(group) for group in plans.values()) < len(found):
        return Fix(Safety.DISPLAY, _ADVICE)
    text = Text(module.tree)
    edits: list[Edit] = []
    for group in plans.values():
        for plan in group:
            first = module.code(plan.init).strip()
            edits.append(replace(module.tree, plan.init, "[]" if first == "None" else f"[{first}]"))
            edits.append(replace(module.tree, plan.store, plan.appended))
        start, end = text.span(group[0].behind)
        stop = _line_end(text.text, end)
        indent = text.text[text.starts[text.spot(start)[0] - 1] : start]
        edits.append(text.replaced(stop, stop, "".join(f"\n{indent}{plan.joined}" for plan in group)))
    return Fix(Safety.UNSAFE, _ADVICE, tuple(edits))


def _line_end(text: str, offset: int) -> int:
    while offset and text[offset - 1] in "\r\n":
        offset -= 1
    while offset < len(text) and text[offset] not in "\r\n":
        offset += 1
    return offset


def _plan(growth: SelfConcatenation, module: Module) -> _Plan | None:
    name, accessors = growth.path
    call = growth.call
    if not isinstance(call, cst.Call) or growth.site is not None or (growth.package, growth.function) == ("pandas", "append"):
        return None
    own = call.args[0].value
    first = own.elements[0].value if isinstance(own, cst.List | cst.Tuple) else own
    if accessors or len(growth.added) != 1 or growth.function == "stack" or module.code(first).strip() != name or name in module.walk.shared:
        return None
    if not isinstance(call.func, cst.Attribute) or any(a.star or _names_in(a.value) - {name} for a in call.args[1 + (growth.function == "append") :]):
        return None
    if not _is_labels(growth, module):
        return None
    store = _whole_store(growth, module)
    init = _init(growth, module)
    if store is None or init is None:
        return None
    value, behind = init
    if not _only_behind(growth, store, value, behind, module):
        return None
    if isinstance(value, cst.Name) and store is growth.statement and growth.statement.value is call:
        return None  # `x = None` needs a test that asks for it
    return _Plan(value, store, f"{name}.append({module.code(growth.added[0]).strip()})", behind, f"{name} = {_joined(call, growth, module)}")


def _names_in(node: cst.CSTNode) -> set[str]:
    return names_in(node) - CONSTANTS


def _is_labels(growth: SelfConcatenation, module: Module) -> bool:
    """Whether what is added is one class a sample: what is larger is better reduced or streamed than kept in a list."""
    node = growth.added[0]
    parts: list[cst.CSTNode] = [node]
    for name in _names_in(node):
        inside = [e for e in growth.scope.effects.get(name, ()) if e.kind == "assign" and not e.path and names.within(e.statement, growth.loop, module)]
        parts.extend(e.value for e in inside if e.value is not None and not e.index)
    return any(isinstance(n, cst.Call) and names.last_name(n.func) in _LABELS for part in parts for n in descend(part))


def _whole_store(growth: SelfConcatenation, module: Module) -> cst.CSTNode | None:
    """The statement that the append takes the place of: with the test for the first round, where there is one."""
    statement, name = growth.statement, growth.path[0]
    added = module.code(growth.added[0]).strip()
    if isinstance(statement.value, cst.IfExp):
        other = statement.value.orelse if statement.value.body is growth.call else statement.value.body
        return statement if module.code(other).strip() == added else None
    holder = module.walk.parents.get(module.walk.parents.get(module.walk.parents.get(statement, statement), statement))
    choice = module.walk.parents.get(holder) if isinstance(holder, cst.Else) else holder
    if not isinstance(choice, cst.If) or not says_first(choice.test, growth.path, module):
        return statement
    if not isinstance(choice.orelse, cst.Else) or isinstance(module.walk.parents.get(choice), cst.If):
        return None
    both = [block_of(choice.body), block_of(choice.orelse.body)]
    others = [block for block in both if len(block) != 1 or block[0] is not statement]
    if len(others) != 1 or len(others[0]) != 1 or "#" in module.code(choice).strip().partition("\n")[2]:
        return None
    first = others[0][0]
    if not isinstance(first, cst.Assign) or len(first.targets) != 1 or module.code(first.targets[0].target).strip() != name:
        return None
    return choice if module.code(first.value).strip() == added else None


def _init(growth: SelfConcatenation, module: Module) -> tuple[cst.BaseExpression, cst.CSTNode] | None:
    """What the thing is at first, and the statement beside that one which holds all the growing."""
    effects = [e for e in growth.scope.effects.get(growth.path[0], ()) if not names.within(e.statement, growth.loop, module)]
    for effect in reversed(effects):
        if (
            effect.kind != "assign"
            or effect.index
            or effect.value is None
            or not isinstance(effect.statement, cst.Assign)
            or len(effect.statement.targets) != 1
        ):
            continue
        block = module.walk.parents.get(module.walk.parents.get(effect.statement, effect.statement))
        if not isinstance(block, cst.IndentedBlock | cst.Module):
            continue
        statements = block_of(block)
        holder = next((s for s in statements if names.within(growth.statement, s, module)), None)
        if holder is None or statements.index(effect.statement) > statements.index(holder) or not _always_runs(holder, growth, module):
            continue
        code = module.code(effect.value).strip()
        return (effect.value, holder) if code == "None" or _EMPTY.match(code) else None
    return None


def _always_runs(holder: cst.CSTNode, growth: SelfConcatenation, module: Module) -> bool:
    """Whether nothing but loops and `with` stands between a statement and the loop in it."""
    around = [growth.loop, *module.walk.ancestors(growth.loop)]
    between = around[: around.index(holder) + 1]
    return all(isinstance(node, cst.With | cst.IndentedBlock) or (isinstance(node, cst.For | cst.While) and node.orelse is None) for node in between)


def _only_behind(growth: SelfConcatenation, store: cst.CSTNode, init: cst.BaseExpression, behind: cst.CSTNode, module: Module) -> bool:
    """Whether the name stands nowhere but in the first assignment, in the growing, and behind the loop."""
    text = Text(module.tree)
    start, end = text.span(init)[0], text.span(behind)[1]
    target = module.walk.statement_of(init)
    suite = growth.scope.suite
    read = False
    for node in descend(suite):
        if not isinstance(node, cst.Name) or node.value != growth.path[0] or module.walk.is_word(node):
            continue
        if names.within(node, store, module) or names.within(node, target, module):
            continue
        here = text.span(node)[0]
        if start <= here <= end:
            return False
        read = read or here > end
    return read


def _joined(call: cst.Call, growth: SelfConcatenation, module: Module) -> str:
    """The call that joins the list, with the arguments that the concatenation had."""
    name = growth.path[0]
    func = call.func
    if growth.function == "append" and isinstance(func, cst.Attribute):
        rest = [module.code(a.with_changes(comma=cst.MaybeSentinel.DEFAULT)).strip() for a in call.args[2:]] or ["axis=None"]
        return f"{module.code(func.value).strip()}.concatenate({', '.join([name, *rest])})"
    rest = [module.code(a.with_changes(comma=cst.MaybeSentinel.DEFAULT)).strip() for a in call.args[1:]]
    return f"{module.code(func).strip()}({', '.join([name, *rest])})"
