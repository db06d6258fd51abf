"""The way of an opened file through expressions: what an attribute, an index, a container or a loop does with it, up to the statement."""

from __future__ import annotations

from abc import abstractmethod

import libcst as cst

from oomlint.api_names import PUTS_IN
from oomlint.memory.handles.h5_api import Grip, after_attribute, after_subscript, iterated
from oomlint.memory.handles.openings import Opens
from oomlint.memory.handles.resource_names import COMPREHENSIONS, TrailNames
from oomlint.memory.handles.resource_state import End, ResourceStore
from oomlint.syntax.nodes import descend, names_in

_HEADER = frozenset("size mode format info width height filename palette".split())  # of an image: read without decoding it
INTO = PUTS_IN | frozenset("register submit send put_nowait".split())


class TrailValues(TrailNames):
    """Follows one value through the expressions of one function."""

    @abstractmethod
    def given(self, node: cst.CSTNode, arg: cst.Arg, call: cst.Call, grip: Grip) -> None:
        """The value is an argument of a call."""

    def follow(self, node: cst.CSTNode, grip: Grip) -> None:
        """Follow a value from the expression that gives it to what it is used for."""
        above = self.walk.parents.get(node)
        add = self.trail.add
        if isinstance(above, cst.WithItem):
            if above.item is node:
                add(End.CLOSED if grip is Grip.FILE else End.READ, node)
            return None
        if isinstance(above, cst.Attribute):
            return self._attribute(node, above, grip)
        if isinstance(above, cst.Subscript):
            if above.value is not node or isinstance(self.walk.parents.get(above), cst.Del) or self.kind is not Opens.H5:
                return add(End.READ, node)
            return self._onward(above, after_subscript(above, grip, self.frame, self.evaluator), node)
        if isinstance(above, cst.Arg):
            call = self.walk.parents.get(above)
            return self.given(node, above, call, grip) if isinstance(call, cst.Call) else add(End.UNKNOWN, node)
        if isinstance(above, cst.Assign | cst.AnnAssign | cst.NamedExpr | cst.AugAssign):
            return self._stored(node, above, grip)
        if isinstance(above, cst.Return | cst.Yield | cst.Lambda | cst.From):
            return self._out(node, grip)
        if isinstance(above, cst.Element | cst.DictElement | cst.StarredElement | cst.StarredDictElement):
            return self._element(node, above, grip)
        if isinstance(above, cst.BooleanOperation | cst.Await) or (isinstance(above, cst.IfExp) and above.test is not node):
            return self.follow(above, grip)
        if isinstance(above, cst.For) and above.iter is node:
            each = iterated(grip)
            add(End.READ, node)
            return self.put(above.target, each) if each is not None else None
        if isinstance(above, cst.CompFor) and above.iter is node:
            return self._comprehension(above, grip, node)
        if isinstance(above, COMPREHENSIONS):
            return self._collected(above, grip, node)
        return add(End.CLOSED if isinstance(above, cst.Del) and grip is Grip.FILE else End.READ, node)

    def _attribute(self, node: cst.CSTNode, above: cst.Attribute, grip: Grip) -> None:
        if above.attr.value in {"close", "__exit__", "__enter__"}:
            return self.trail.add(End.CLOSED, node)
        if self.kind is not Opens.H5:
            return self.trail.add(End.CLOSED if self.kind is Opens.IMAGE and above.attr.value not in _HEADER else End.READ, node)
        if above.attr.value.startswith("visititems"):
            self.trail.captured = True  # the function that it calls may keep the objects
        return self._onward(above, after_attribute(above, grip, self.walk), node)

    def _stored(self, node: cst.CSTNode, above: cst.Assign | cst.AnnAssign | cst.NamedExpr | cst.AugAssign, grip: Grip) -> None:
        if isinstance(above, cst.AugAssign):
            return self.stored(node, grip, local=True)
        if isinstance(above, cst.NamedExpr):
            self.put(above.target, grip)
            return self.follow(above, grip)
        for target in [above.target] if isinstance(above, cst.AnnAssign) else [each.target for each in above.targets]:
            self._assigned(target, grip, node)
        return None

    def _onward(self, node: cst.CSTNode, grip: Grip | None, before: cst.CSTNode) -> None:
        if grip is None:
            self.trail.add(End.READ, before)
            return
        if isinstance(node, cst.Attribute):
            call = self.walk.parents.get(node)
            if isinstance(call, cst.Call) and call.func is node:
                node = call
        self.follow(node, grip)

    def _assigned(self, target: cst.BaseExpression, grip: Grip, node: cst.CSTNode) -> None:
        if isinstance(target, cst.Tuple | cst.List) and isinstance(node, cst.Tuple | cst.List):
            return  # each element was given to its own target
        self.put(target, grip)

    def _out(self, node: cst.CSTNode, grip: Grip) -> None:
        self.trail.add(End.RETURNED if grip is Grip.FILE else End.MAYBE_OUT if grip is Grip.MAYBE else End.HANDED_OUT, node)

    def lazily(self, node: cst.CSTNode) -> None:
        """A generator expression reads the file only when something goes through it."""
        for here in self.walk.ancestors(node):
            if isinstance(here, cst.BaseStatement | cst.BaseSmallStatement):
                break
            if isinstance(here, cst.GeneratorExp) and here not in self.generators:
                self.generators.add(here)
                self.follow(here, Grip.KEYS)

    def _element(self, node: cst.CSTNode, element: cst.CSTNode, grip: Grip) -> None:
        holder = self.walk.parents.get(element)
        above = self.walk.parents.get(holder) if holder is not None else None
        if isinstance(element, cst.DictElement) and element.key is node:
            self.trail.add(End.READ, node)
            return
        if isinstance(holder, cst.Tuple | cst.List) and isinstance(above, cst.Assign):
            bound = self.walk.bound_to(node)
            place = next(n for n, e in enumerate(holder.elements) if e is element)
            for target in above.targets:
                if bound and isinstance(target.target, cst.Tuple | cst.List):
                    self.put(target.target.elements[place].value, grip)
                elif not isinstance(target.target, cst.Tuple | cst.List):
                    self._whole(holder, grip)
            return
        if holder is not None:
            self._whole(holder, grip)

    def _whole(self, container: cst.CSTNode, grip: Grip) -> None:
        """A container that holds the value."""
        above = self.walk.parents.get(container)
        if grip is Grip.FILE and not isinstance(above, cst.Return | cst.Yield):
            self.trail.add(End.KEPT, container)
            self._stored_inside(container)
            return
        self.follow(container, grip)

    def _stored_inside(self, container: cst.CSTNode) -> None:
        """Where a tuple, list or dictionary that holds the file is put."""
        above = self.walk.parents.get(container)
        if isinstance(above, COMPREHENSIONS):
            self.trail.stores.append(ResourceStore(self.module, self.scope, above, Grip.FILE))
        elif isinstance(above, cst.Assign):
            for target in above.targets:
                if isinstance(target.target, cst.Subscript):
                    self.trail.stores.append(ResourceStore(self.module, self.scope, target.target, Grip.FILE))
        elif isinstance(above, cst.Arg):
            call = self.walk.parents.get(above)
            if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and call.func.attr.value in INTO:
                self.trail.stores.append(ResourceStore(self.module, self.scope, call, Grip.FILE))

    def _comprehension(self, loop: cst.CompFor, grip: Grip, node: cst.CSTNode) -> None:
        each = iterated(grip)
        self.trail.add(End.READ, node)
        if each is None:
            return
        holder: cst.CSTNode | None = loop
        while holder is not None and not isinstance(holder, COMPREHENSIONS):
            holder = self.walk.parents.get(holder)
        if holder is None:
            return
        target: cst.CSTNode = loop.target
        if each is Grip.PAIR and isinstance(target, cst.Tuple):
            target, each = target.elements[-1], Grip.OBJECT
        targets = names_in(target)
        inside = {id(part) for part in descend(loop.target)}
        for part in descend(holder):
            if isinstance(part, cst.Name) and part.value in targets and id(part) not in inside and not self.walk.is_word(part):
                self.follow(part, each)

    def _collected(self, comprehension: cst.CSTNode, grip: Grip, node: cst.CSTNode) -> None:
        if isinstance(comprehension, cst.DictComp) and comprehension.key is node:
            self.trail.add(End.READ, node)
            return
        self.trail.stores.append(ResourceStore(self.module, self.scope, comprehension, grip))
        if grip is Grip.FILE:
            self.trail.add(End.KEPT, node)
        else:
            self.follow(comprehension, grip)
