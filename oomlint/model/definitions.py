"""Definitions of a name that reach its use, and what each means for the value asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import names
from oomlint.model.arithmetic import IN_PLACE, computed
from oomlint.model.displays import appended
from oomlint.model.elsewhere_changes import ElsewhereChanges
from oomlint.model.names import short
from oomlint.model.outside import set_only_inside
from oomlint.model.questions import BUDGET, DEEPEST, MOST, NO_ANSWER, UNKNOWN, common, trim
from oomlint.model.reach import Reach
from oomlint.model.setattr_loops import asks_for_entry, entries_of
from oomlint.model.sources import UNREAD, is_unread
from oomlint.model.values import (
    ABSENT,
    FREE,
    Absent,
    Alternative,
    Alternatives,
    Augmented,
    ClassRef,
    Const,
    Display,
    Each,
    Element,
    Frame,
    FunctionRef,
    Merged,
    ProvenanceStep,
    SettingsNode,
    Unknown,
    meet,
)
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key
from oomlint.syntax.scopes import BINDS, Effect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oomlint.model.project import Module
    from oomlint.model.questions import Asked, States
    from oomlint.model.reach import Condition, Conditions, Found, Payload
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Scope


_MUTATING = frozenset({"update", "setdefault", "pop", "clear", "merge"})
_LONGEST = 12  # attributes and keys after a name
_MOST_STATES = 6  # in which a definition is reached
_ROUNDS = 3  # of a loop, as in `node = node[key]`, that are followed backwards


class Definitions(ElsewhereChanges):
    """Resolves a name inside its scope."""

    def resolve(self, root: str, accessors: tuple[Accessor, ...], frame: Frame, at: cst.CSTNode | None) -> Alternatives:
        """A name with accessors, seen from ``at`` (``None``: from the end of the scope)."""
        if at is not None:
            bound = self._comprehension(root, accessors, frame, at)
            if bound is not None:
                return bound
        while self._passes(root, accessors, frame):
            frame, at = self.around(frame), None
        key = (root, accessors, frame, at)
        asked = self.opened.get((root, frame), ()) if accessors else ()
        if key in self.active or (len(asked) >= _ROUNDS and _goes_round(at, accessors, asked)):
            self.given_up += 1
            return NO_ANSWER
        known = self.told_meanwhile(key) if self.meanwhile else None
        if known is None:
            known = self.resolved.get(key)
        if known is not None:
            return known
        self.project.steps.take()
        self.active.add(key)
        if accessors:
            self.opened[root, frame] = (*asked, (at, accessors))
        self.spent += 1
        self.depth += 1
        assumed = self.assumed
        try:
            # What an object makes of another of its kind leads into that one, with one more accessor each time.
            if self.spent > BUDGET or self.depth > 4 * DEEPEST or len(accessors) > _LONGEST:
                self.given_up += 1
                return NO_ANSWER
            found = self.search(root, accessors, frame, at, start=lambda: self.seen_by_caller(root, accessors, frame) or self.outside(root, accessors, frame))
        finally:
            self.depth -= 1
            self.active.discard(key)
            if asked:
                self.opened[root, frame] = asked
            elif accessors:
                del self.opened[root, frame]
        if self.assumed == assumed:
            self.resolved[key] = found
        else:
            self.meanwhile[-1][key] = found
        return found

    def _passes(self, root: str, accessors: tuple[Accessor, ...], frame: Frame) -> bool:
        """Whether a function or a class has nothing to do with a name: it means there what it means around it, wherever it stands and whoever calls."""
        scope = frame.scope
        if scope.parent is None or root in scope.effects or root in scope.outer or names.is_parameter(scope, root):
            return False
        return not self.is_shared(root, frame.module) and not (accessors and self.changes(root, accessors, frame))

    def _comprehension(self, root: str, accessors: tuple[Accessor, ...], frame: Frame, at: cst.CSTNode) -> Alternatives | None:
        key = (frame.scope, at)
        rows = self.rows.get(key)
        if rows is None:
            rows = self.rows[key] = tuple(_rows_around(frame, at))
        for node in rows:
            loop: cst.CompFor | None = node.for_in
            while loop is not None:
                index = _target_index(loop.target, root)
                if index is not None:
                    return self.element(loop.iter, index, accessors, frame)
                loop = loop.inner_for_in
        return None

    def element(self, iterable: cst.BaseExpression, index: tuple[int, ...], accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """What a loop variable can be."""
        into: tuple[Accessor, ...] = (*(("item", i) for i in index), *accessors)
        if isinstance(iterable, cst.Call) and names.last_name(iterable.func) == "enumerate" and iterable.args and index:
            if index[0] == 0:
                return [Alternative(UNKNOWN)]
            return self.element(iterable.args[0].value, index[1:], accessors, frame)
        if isinstance(iterable, cst.Call) and names.last_name(iterable.func) == "zip" and index and index[0] < len(iterable.args):
            return self.element(iterable.args[index[0]].value, index[1:], accessors, frame)
        out: Alternatives = []
        for alt in self.values(iterable, frame):
            if isinstance(alt.value, Display) and isinstance(alt.value.node, cst.List | cst.Tuple | cst.Set):
                for number, element in enumerate((*(e.value for e in alt.value.node.elements[:8] if isinstance(e, cst.Element)), *appended(alt.value))):
                    pick = frozenset({(("element", iterable, frame), number)})
                    out.extend(m for a in self.access(element, into, alt.value.frame) if (m := a.under(pick)) is not None)
            elif isinstance(alt.value, Display) and isinstance(alt.value.node, cst.ListComp | cst.GeneratorExp | cst.SetComp):
                out.extend(self.access(alt.value.node.elt, into, alt.value.frame))
            else:
                out.extend(self.reach_into(Alternative(Each(iterable=iterable, frame=frame, index=index)), accessors))
        return trim(out) or [Alternative(UNKNOWN)]

    def search(self, root: str, accessors: tuple[Accessor, ...], frame: Frame, at: cst.CSTNode | None, start: Callable[[], Alternatives]) -> Alternatives:
        """Definitions in the scope that reach ``at``; ``start`` tells what holds before all of them."""
        scope = frame.scope
        walk = frame.module.walk
        if root in scope.outer and scope not in set_only_inside(walk, root):
            return list(self.resolve(root, accessors, self.module_frame(frame.module), None))
        if scope.parent is None and at is None and (setters := set_only_inside(walk, root)):
            given = [alt for one in setters for alt in self.resolve(root, accessors, self.calls.plain_frame(frame.module, one), None)]
            return given if len(setters) == 1 else [alt.doubting() for alt in given]
        if root in scope.enclosing and root in scope.effects:
            return [Alternative(UNKNOWN)]  # whoever else shares the name may have set it in between
        return self.reaching(root, accessors, frame, at, start)

    def reaching(self, root: str, accessors: tuple[Accessor, ...], frame: Frame, at: cst.CSTNode | None, start: Callable[[], Alternatives]) -> Alternatives:
        """The same, whosever name it is."""
        scope, walk = frame.scope, frame.module.walk
        changes = {one.call: one for one in self.changes(root, accessors, frame)} if scope.calls else {}
        also = self.aliases(root, scope) if accessors else []
        if root not in scope.effects and not changes and not also:
            return start()

        def judge(effect: Effect) -> tuple[Payload, bool] | None:
            if effect.kind == "call" and effect.call is not None:
                change = changes[effect.call]
                return (lambda: self.left_by(change, root, accessors, frame)), True
            if effect.kind == "augment" and not _is_mapping_update(effect) and _matches(effect.path, accessors):
                certain = not any(key is UNKNOWN_KEY for _, key in effect.path)
                return (lambda: self._augmented(effect, accessors, frame, start)), certain
            return self._judge(effect, accessors, frame, at)

        calls = [Effect(root, one.path, "call", walk.statement_of(call), call, call=call) for call, one in changes.items()]
        found, falls = self._there_before(*Reach(walk, scope, root, judge, [*calls, *also]).search(at), root, frame, start)
        merges = False
        out: Alternatives = []
        fallbacks: Alternatives = []
        several = len(found) + len(falls) > 1
        # Whoever asks for the same name with the same definitions in reach gets the same one of them.
        origin = ("reach", scope, root, tuple(id(effect) for effect, _, _ in found))
        for effect, payload, conditions in found[:MOST]:
            here = frozenset({(origin, id(effect))}) if several else FREE
            states = self.conditions(conditions, frame, here)
            if not states:
                continue
            bound = payload() if callable(payload) else payload
            merges = merges or (effect.kind == "merge" and any(is_unread(alt.value) for alt in bound))
            for picks, doubt in _told_apart(states, bound):
                for alt in bound:
                    if isinstance(alt.value, Absent) and effect.kind in {"update", "setdefault", "augment", "merge"}:
                        continue
                    merged = alt.under(picks)
                    if merged is not None:
                        if several and conditions and effect.kind == "assign":
                            merged = _under_test(merged, effect, conditions[-1], frame.module)
                        (fallbacks if effect.kind == "setdefault" else out).append(merged.doubting(doubt))
        if falls:
            base = start()
            here = frozenset({(origin, 0)}) if several else FREE
            states = [state for conditions in falls for state in _told_apart(self.conditions(conditions, frame, here), base)]
            out.extend(merged.doubting(doubt) for picks, doubt in states for alt in base if (merged := alt.under(picks)) is not None)
        if merges:
            out = _doubted(out)
        if fallbacks and (not out or any(isinstance(a.value, Absent) for a in out)):
            out = [*(a for a in out if not isinstance(a.value, Absent)), *fallbacks]
        if root in walk.shared and _set_from_inside(scope, root, whole_module=scope.parent is None):
            out = [alt.doubting(2) for alt in out]  # a function may have set it by the time it is read
        if at is None and (others := self.set_by_functions(root, accessors, frame)):
            out = [alt.doubting(2) for alt in (*out, *others)]
        return trim(out) or [Alternative(UNKNOWN)]

    @staticmethod
    def _there_before(
        found: list[Found], falls: list[Conditions], root: str, frame: Frame, start: Callable[[], Alternatives]
    ) -> tuple[list[Found], list[Conditions]]:
        """The same where loops set only the entries that are there before: whether this one is, is known by what else sets it."""
        walk = frame.module.walk
        tests = {test for _, _, conditions in found for test, _ in conditions}
        asked = {test: verdict for test in tests if (verdict := asks_for_entry(test, root, walk)) is not None}
        if not asked:
            return found, falls
        before = [payload() if callable(payload) else payload for effect, payload, _ in found if entries_of(effect, walk) is None]
        before += [start()] if falls else []
        there = any(not isinstance(alt.value, Absent | Unknown) for given in before for alt in given)

        def left(conditions: Conditions) -> Conditions | None:
            if any(test in asked and (wanted is asked[test]) is not there for test, wanted in conditions):
                return None
            return tuple(one for one in conditions if one[0] not in asked)

        return (
            [(effect, payload, rest) for effect, payload, conditions in found if (rest := left(conditions)) is not None],
            [rest for conditions in falls if (rest := left(conditions)) is not None],
        )

    def _judge(self, effect: Effect, accessors: tuple[Accessor, ...], frame: Frame, at: cst.CSTNode | None) -> tuple[Payload, bool] | None:
        """What an effect means for the value asked for: ``None`` (nothing) or (its alternatives, whether it settles the question)."""
        path, kind = effect.path, effect.kind
        depth = len(path)
        if kind in BINDS or kind == "delete":
            if depth > len(accessors) or not _matches(path, accessors[:depth]):
                return None
            certain = not any(key is UNKNOWN_KEY for _, key in path)
            if kind == "delete":
                step = ProvenanceStep(frame.module, effect.node, "deleted", kind="deleted")
                return ([Alternative(ABSENT, (step,))], certain) if depth else None
            if kind == "declare":
                return None
            if not certain and kind == "assign" and depth and (mapping := entries_of(effect, frame.module.walk)) is not None:
                told = self._told_by(mapping, (("item", accessors[depth - 1][1]), *accessors[depth:]), frame)
                if told is not None:
                    return self._updated(told)
                if effect.value is None:
                    return [Alternative(UNREAD)], certain
            return (lambda: self._bound(effect, accessors[depth:], frame)), certain
        if kind == "augment":
            if depth < len(accessors) and _matches(path, accessors[:depth]) and effect.value is not None and _is_mapping_update(effect):
                return self._updated(self.access(effect.value, accessors[depth:], frame))
            return None
        if kind in {"append", "extend"} and depth < len(accessors) and _matches(path, accessors[:depth]):
            key = accessors[depth][1]
            return ([Alternative(UNKNOWN)], True) if isinstance(key, int) and key < 0 else None  # another one is the last
        if kind in _MUTATING:
            if depth >= len(accessors) or not _matches(path, accessors[:depth]) or effect.call is None or accessors[depth][0] not in {"item", "attr"}:
                return None
            if effect.call is at or (at is not None and frame.module.walk.parents.get(effect.call) is at):
                return None
            return self._mutated(effect, accessors[depth:], frame)
        return None

    def _augmented(self, effect: Effect, accessors: tuple[Accessor, ...], frame: Frame, start: Callable[[], Alternatives]) -> Alternatives:
        """What ``x += y`` leaves in ``x``: a number or a text, where it is done once with what is known."""
        node, walk = effect.node, frame.module.walk
        if not isinstance(node, cst.AugAssign):
            return [Alternative(UNKNOWN)]
        found: Alternatives = []
        if not any(isinstance(one, cst.For | cst.While) for one in walk.between(effect.statement, frame.scope.node)):
            added = self.values(node.value, frame)
            for before in self.reaching(effect.root, accessors, frame, node, start) if all(isinstance(one.value, Const) for one in added) else ():
                for one in added:
                    picks = meet(before.picks, one.picks)
                    if picks is not None:
                        value = computed(IN_PLACE.get(type(node.operator), type(None)), before.value, one.value)
                        found.append(Alternative(value, before.story or one.story, picks, before.doubt + one.doubt, before.reach or one.reach))
        return found if found and all(isinstance(one.value, Const) for one in found) else [Alternative(Augmented(node=node, frame=frame))]

    def _mutated(self, effect: Effect, accessors: tuple[Accessor, ...], frame: Frame) -> tuple[Payload, bool] | None:
        call, key = effect.call, accessors[0][1]
        if call is None:
            return None
        if effect.kind == "merge":
            return self._updated(self.sources.merged(effect, accessors, frame))
        if effect.kind == "clear":
            return [Alternative(ABSENT)], True
        if effect.kind in {"pop", "setdefault"}:
            if not call.args or constant_key(call.args[0].value) != key or key is UNKNOWN_KEY:
                return None
            if effect.kind == "pop":
                return [Alternative(ABSENT, (ProvenanceStep(frame.module, call, "taken out", kind="deleted"),))], True
            if not call.args[1:]:
                return None
            # The default counts only where nothing was there before; keep both, the earlier first.
            return self.access(call.args[1].value, accessors[1:], frame), False
        return self._updated(self.inside_call(call, accessors, frame))

    def _told_by(self, mapping: tuple[cst.BaseExpression, ...], accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives | None:
        """What a mapping says under a key, or those that are its values, of which the last one counts; ``None`` where nobody knows the mapping."""
        if len(mapping) == 1:
            found = self.access(mapping[0], accessors, frame)
        else:
            known = [Merged(tuple(self.settings.sections(alt.value))) for alt in self.values(mapping[-1], frame) if isinstance(alt.value, SettingsNode)]
            found = [one for each in known for one in self.into_value(each, accessors)]
        return None if all(isinstance(alt.value, Unknown | Element) for alt in found) else found

    @staticmethod
    def _updated(found: Alternatives) -> tuple[Payload, bool] | None:
        if all(isinstance(a.value, Absent) for a in found):
            return None
        certain = not any(isinstance(a.value, Absent | Unknown) for a in found)
        return found, certain

    def _bound(self, effect: Effect, rest: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """The value that a binding gives, followed by ``rest``."""
        kind = effect.kind
        into: tuple[Accessor, ...] = (*(("item", i) for i in effect.index), *rest)
        if kind == "assign" and effect.value is not None:
            other = _other_name(effect, frame) if rest and effect.path else None
            if other is not None:
                return self.resolve(other, into, frame, None)
            return self.access(effect.value, into, frame) if into else self.values(effect.value, frame)
        if kind == "def":
            scope = frame.module.walk.scope_of.get(effect.node)
            if scope is None:
                return [Alternative(UNKNOWN)]
            return self.reach_into(Alternative(FunctionRef(frame.module, scope, None)), rest)
        if kind == "class":
            scope = frame.module.walk.scope_of.get(effect.node)
            if scope is None:
                return [Alternative(UNKNOWN)]
            return self.reach_into(Alternative(ClassRef(frame.module, scope)), rest)
        if kind == "import":
            return self.imported(effect, rest, frame)
        if kind == "from":
            return self.imported_from(effect, rest, frame)
        if kind == "for" and effect.value is not None:
            return self.element(effect.value, effect.index, rest, frame)
        if kind == "with" and effect.value is not None:
            return self.access(effect.value, into, frame)
        return [Alternative(UNKNOWN)]


def _told_apart(states: States, bound: Alternatives) -> States:
    """The ways to a definition, fewer of them where it has many values."""
    return common(states, min(_MOST_STATES, MOST // max(1, len(bound))))


def _goes_round(at: cst.CSTNode | None, accessors: tuple[Accessor, ...], asked: Sequence[Asked]) -> bool:
    """Whether a name leads to itself over and over, each time with more accessors: a loop sets it to a part of what it was, at one place or at several."""
    places = [place for place, one in asked if one[-1] == accessors[-1] and len(one) < len(accessors)]
    return at in places and len(places) - len({*places}) >= _ROUNDS - 1


def _doubted(found: Alternatives) -> Alternatives:
    """What was there before a file was merged that nobody knows: that may set it, too."""
    return [alt if is_unread(alt.value) else alt.doubting() for alt in found]


def _under_test(alt: Alternative, effect: Effect, condition: Condition, module: Module) -> Alternative:
    """The alternative with the test that its assignment stands under in its provenance."""
    test, wanted = condition
    holder = module.walk.parents.get(test)
    if not any(here is holder for here in module.walk.ancestors(effect.statement)):
        return alt
    return alt.after(ProvenanceStep(module, effect.node, f"set where `{short(module.code(test))}` is {'true' if wanted else 'false'}", kind="branch"))


def _rows_around(frame: Frame, at: cst.CSTNode) -> Iterator[cst.BaseComp]:
    """Comprehensions of the statement that a name stands in, the innermost first."""
    for node in frame.module.walk.ancestors(at):
        if isinstance(node, cst.BaseSmallStatement | cst.BaseCompoundStatement) or node is frame.scope.node:
            return
        if isinstance(node, cst.BaseComp):
            yield node


def _set_from_inside(scope: Scope, root: str, *, whole_module: bool) -> bool:
    """Whether a function inside the scope declares the name as the scope's (``nonlocal``, or ``global`` for a module) and sets it."""
    for inner in scope.children:
        if root in (inner.outer if whole_module else inner.enclosing) and inner.sets(root):
            return True
        if _set_from_inside(inner, root, whole_module=whole_module):
            return True
    return False


def _other_name(effect: Effect, frame: Frame) -> str | None:
    """Another name of what is kept as an attribute, through which it is filled: ``config.data = data = ConfigDict()``, then ``data.num_workers = 4``."""
    names_ = [t.target.value for t in effect.statement.targets if isinstance(t.target, cst.Name)] if isinstance(effect.statement, cst.Assign) else []
    if isinstance(effect.value, cst.Name):
        names_.append(effect.value.value)
    for name in names_:
        effects = frame.scope.effects.get(name, ())
        if name != effect.root and sum(not e.path for e in effects if e.kind in BINDS) == 1 and any(e.path and e.kind == "assign" for e in effects):
            return name
    return None


def _matches(path: Sequence[Accessor], accessors: Sequence[Accessor]) -> bool:
    if len(path) != len(accessors):
        return False
    for (_, key), (_, wanted) in zip(path, accessors, strict=True):
        if key is UNKNOWN_KEY:
            continue
        if key != wanted or isinstance(key, bool) is not isinstance(wanted, bool):
            return False
    return True


def _is_mapping_update(effect: Effect) -> bool:
    return isinstance(effect.node, cst.AugAssign) and isinstance(effect.node.operator, cst.BitOrAssign)


def _target_index(target: cst.CSTNode, name: str) -> tuple[int, ...] | None:
    if isinstance(target, cst.Name):
        return () if target.value == name else None
    if isinstance(target, cst.Tuple | cst.List):
        for number, element in enumerate(target.elements):
            inner = _target_index(element.value, name)
            if inner is not None:
                return (number, *inner)
    return None
