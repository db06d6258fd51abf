"""What becomes of a file that a call opens: closed, kept, handed on, or only read and left to the garbage collector.

A trail follows the value of the opening call forward: through names, h5py objects that are taken from it, and functions of the project that get it. Whatever
may close or keep the file ends the question, also where nobody can look into it; so what is left was seen to be neither closed nor kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.h5_objects import Grip, after_attribute, after_call, after_subscript, iterated
from oomlint.memory.loaders import evaluator_of
from oomlint.memory.open_paths import left_open
from oomlint.memory.openings import Opens
from oomlint.model import names
from oomlint.model.reach import Reach, path_conditions
from oomlint.model.values import ClassRef, External, FunctionRef, Instance, Partial
from oomlint.syntax.walk import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.memory.openings import Opening
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.syntax.walk import Effect, Scope

H5PY: Final = frozenset({"h5py.File", "h5py._hl.files.File"})
_DEEPEST = 3
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.GeneratorExp, cst.DictComp)
_HEADER = frozenset("size mode format info width height filename palette".split())  # of an image: read without decoding it
_INTO = frozenset("append add insert extend put setdefault update appendleft push register submit send put_nowait".split())
# Methods of h5py objects, and functions that call what they are given at once.
_AT_ONCE = frozenset("visit visititems visit_links visititems_links sorted map filter min max any all sum sort list".split())
# Libraries that read what they are given, and let it go.
_READERS = frozenset("numpy torch scipy cv2 PIL skimage sklearn math json pandas matplotlib builtins os logging h5py cupy jax tqdm torchvision einops".split())
# They keep what they are given, to read it later.
_LAZY = ("torch.utils.data", "dask", "xarray", "zarr", "tensorflow", "anndata")


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


_SETTLES: Final = frozenset({End.CLOSED, End.KEPT, End.RETURNED})


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """A place that puts the file, or an object of it, where it stays: the target, the comprehension, or the call of ``append``."""

    module: Module
    scope: Scope
    node: cst.CSTNode
    grip: Grip


@dataclass(slots=True, eq=False)
class Trail:
    """Where the value of one expression goes."""

    ends: dict[End, list[cst.CSTNode]] = field(default_factory=dict)
    uses: list[cst.CSTNode] = field(default_factory=list)  # every place that reads the file or an object of it
    names: list[str] = field(default_factory=list)  # names that the file itself is bound to
    stores: list[Store] = field(default_factory=list)  # where it goes into an attribute or a container
    captured: bool = False  # a function inside the function uses it

    @property
    def left_open(self) -> bool:
        """Whether nothing closes the file, keeps it or hands it on."""
        return not _SETTLES & self.ends.keys()

    def add(self, end: End, node: cst.CSTNode) -> None:
        """Note an end."""
        self.ends.setdefault(end, []).append(node)


def trail_of(opening: Opening, project: Project) -> Trail:
    """The trail of a file from its opening call; it covers the function that opens it."""
    key = ("trail", opening.call)
    known = project.memo.get(key)
    if known is None:
        known = project.memo[key] = _Follower(opening.module, opening.scope, evaluator_of(project), opening.kind).from_node(opening.call)
    return known  # type: ignore[return-value]


def trail_from(node: cst.BaseExpression, module: Module, scope: Scope, kind: Opens, project: Project) -> Trail:
    """The trail of a file that another function opened and returned, from the call of that function."""
    return _Follower(module, scope, evaluator_of(project), kind).from_node(node)


def unclosed(opening: Opening, project: Project) -> Trail | None:
    """The trail of an HDF5 file that a function opens and nobody closes; ``None`` where somebody does or may."""
    if opening.kind is not Opens.H5 or opening.name not in H5PY or _in_memory(opening):
        return None
    hides = _hides_with(opening)
    if not hides and not (opening.scope.is_function and isinstance(opening.scope.node, cst.FunctionDef | cst.Lambda)):
        return None
    trail = trail_of(opening, project)
    if trail.left_open:
        return trail
    return trail if set(trail.ends) & _SETTLES == {End.CLOSED} and passed_by(opening, trail) is not None else None


def passed_by(opening: Opening, trail: Trail) -> cst.CSTNode | None:
    """Where a file that is closed somewhere is left open all the same: behind a loop that opens many, or on a way that does not pass the closing."""
    if End.CLOSED not in trail.ends:
        return None
    return closed_after_loop(opening, trail) or left_open(opening, trail, trail.ends[End.CLOSED])


def closed_after_loop(opening: Opening, trail: Trail) -> cst.CSTNode | None:
    """The close behind a loop that opens a file in each round: it closes the last one only."""
    walk = opening.module.walk
    statement = walk.statement_of(opening.call)
    holder = walk.parents.get(walk.parents.get(statement, statement))
    loop = walk.parents.get(holder) if isinstance(holder, cst.IndentedBlock) else None
    if not isinstance(loop, cst.For) or loop.body is not holder:
        return None
    if any(isinstance(node, cst.Break | cst.Return) for node in descend(loop.body, into_scopes=False)):
        return None
    closers = trail.ends.get(End.CLOSED, [])
    inside = set(descend(loop))
    return closers[0] if closers and not any(node in inside for node in closers) else None


def _in_memory(opening: Opening) -> bool:
    """Whether there is no file behind it."""
    given = {a.keyword.value for a in opening.call.args if a.keyword is not None}
    code = opening.module.code(opening.path) if opening.path is not None else ""
    return "backing_store" in given or "BytesIO" in code or "fileobj" in given


def _hides_with(opening: Opening) -> bool:
    """Whether it takes the name of the `with` that it stands in."""
    walk = opening.module.walk
    bound = {root for root, path in walk.bound_to(opening.call) if not path}
    for here in walk.ancestors(opening.call):
        if here is opening.scope.node:
            break
        if isinstance(here, cst.With):
            for item in here.items:
                name = item.asname.name if item.asname is not None else None
                if isinstance(name, cst.Name) and name.value in bound and isinstance(item.item, cst.Call) and names.last_name(item.item.func) == "File":
                    return True
    return False


class _Follower:
    """Follows one value through one function."""

    def __init__(self, module: Module, scope: Scope, evaluator: Evaluator, kind: Opens, depth: int = 0) -> None:
        self.kind = kind
        self.module = module
        self.scope = scope
        self.walk = module.walk
        self.evaluator = evaluator
        self.frame = evaluator.calls.plain_frame(module, scope)
        self.depth = depth
        self.trail = Trail()
        self.todo: list[tuple[str, Effect | None, Grip]] = []
        self.done: set[tuple[object, Grip]] = set()
        self.reaches: dict[str, Reach] = {}
        self.generators: set[cst.CSTNode] = set()
        self.start: cst.CSTNode | None = None  # the opening, where it is in this function

    def from_node(self, node: cst.BaseExpression) -> Trail:
        """Follow the file that an expression opens."""
        self.start = node
        self._value(node, Grip.FILE)
        self._lazily(node)
        return self._finish()

    def from_parameter(self, name: str, grip: Grip) -> Trail:
        """Follow what a caller gives."""
        self._bind(name, None, grip)
        return self._finish()

    def _finish(self) -> Trail:
        while self.todo:
            name, effect, grip = self.todo.pop()
            for load in self._loads(name, effect):
                self.trail.uses.append(load)
                self._value(load, grip)
                self._lazily(load)
            # `f = None` gives the file up on purpose.
            for other in self.scope.effects.get(name, ()) if grip is Grip.FILE and effect is not None else ():
                gives_up = other.kind == "delete" or (other.kind == "assign" and isinstance(other.value, cst.Name) and other.value.value == "None")
                if not other.path and gives_up and effect in self._reaching(name, other.statement):
                    self.trail.add(End.CLOSED, other.node)
        return self.trail

    # -- names ---------------------------------------------------------------------------------------------------------

    def _bind(self, name: str, effect: Effect | None, grip: Grip) -> None:
        if (name in self.scope.outer or name in self.scope.enclosing) and grip is not Grip.KEYS:
            self.trail.add(End.KEPT, self.scope.node)
            return
        if grip is Grip.FILE and name not in self.trail.names:
            self.trail.names.append(name)
        key = (effect if effect is not None else name, grip)
        if key not in self.done:
            self.done.add(key)
            self.todo.append((name, effect, grip))

    def _target(self, target: cst.CSTNode, grip: Grip) -> None:
        """Give the value to a target of an assignment or a loop."""
        if isinstance(target, cst.Tuple | cst.List):
            for number, element in enumerate(target.elements):
                if grip is Grip.PAIR and isinstance(element.value, cst.Tuple):
                    self._target(element.value, grip)  # `for i, (name, group) in enumerate(f.items())`
                elif grip is not Grip.PAIR or number:
                    self._target(element.value, Grip.OBJECT if grip in {Grip.VIEW, Grip.ITEMS, Grip.PAIR} else grip)
            return
        if isinstance(target, cst.Name):
            effect = next((e for e in self.scope.effects.get(target.value, ()) if e.node is target), None)
            if effect is None:
                effect = next((e for e in self.scope.effects.get(target.value, ()) if not e.path and e.statement is self.walk.statement_of(target)), None)
            if effect is not None:
                self._bind(target.value, effect, grip)
            return
        self._stored(target, grip, local=isinstance(target, cst.Subscript) and self._is_local(target.value))

    def _is_local(self, node: cst.BaseExpression) -> bool:
        while isinstance(node, cst.Subscript):
            node = node.value
        return (
            isinstance(node, cst.Name)
            and self.scope.sets(node.value)
            and node.value not in self.scope.outer | self.scope.enclosing
            and not any(p.name.value == node.value for p in names.parameters(self.scope))
        )

    def _stored(self, node: cst.CSTNode, grip: Grip, *, local: bool, at: cst.CSTNode | None = None) -> None:
        self.trail.stores.append(Store(self.module, self.scope, at or node, grip))
        if grip is Grip.MAYBE:
            self.trail.add(End.MAYBE_OUT, node)
        elif grip is Grip.KEYS or (local and grip is not Grip.FILE):
            self.trail.add(End.HANDED_OUT, node)
        elif grip is not Grip.FILE and self._by_test(node):
            self.trail.add(End.MAYBE_KEPT, node)
        else:
            self.trail.add(End.KEPT, node)

    def _by_test(self, node: cst.CSTNode) -> bool:
        """Whether a test behind the opening decides if control gets there."""
        opened = path_conditions(self.walk, self.scope, self.start) if self.start is not None else ()
        return any(condition not in opened for condition in path_conditions(self.walk, self.scope, node))

    def _reaching(self, name: str, at: cst.CSTNode) -> set[Effect | None]:
        """Bindings of the name that hold at a place; ``None`` stands for what the caller gave."""
        reach = self.reaches.get(name)
        if reach is None:
            reach = self.reaches[name] = Reach(self.walk, self.scope, name, lambda effect: None if effect.path or effect.kind == "augment" else ([], True))
        found, falls = reach.search(at)
        return {effect for effect, _, _ in found} | ({None} if falls else set())

    def _loads(self, name: str, effect: Effect | None) -> Iterator[cst.Name]:
        """Uses of the name that may mean this binding."""
        bound_at = {e.node for e in self.scope.effects.get(name, ()) if not e.path}
        for node in descend(self.scope.suite):
            if not isinstance(node, cst.Name) or node.value != name or node in bound_at:
                continue
            above = self.walk.parents.get(node)
            if (isinstance(above, cst.Attribute) and above.attr is node) or (isinstance(above, cst.Arg) and above.keyword is node):
                continue
            inner = self.walk.scope_at(node)
            if self._shadowed(node, name, inner) or effect not in self._reaching(name, node):
                continue
            if inner is not self.scope:
                self.trail.captured = True
                if not self._stays(inner):
                    self.trail.add(End.KEPT, node)
            yield node

    def _shadowed(self, node: cst.CSTNode, name: str, inner: Scope) -> bool:
        """Whether the name means something else there: the target of a comprehension, a local name of an inner function."""
        child = node
        for here in self.walk.ancestors(node):
            if here is self.scope.node:
                break
            if isinstance(here, _COMPREHENSIONS) and any(
                isinstance(part, cst.Name) and part.value == name for part in _comp_targets(here) if part is not child
            ):
                outermost = here.for_in.iter
                if not any(part is node for part in descend(outermost)):
                    return True
            child = here
        scope: Scope | None = inner
        while scope is not None and scope is not self.scope:
            if any(p.name.value == name for p in names.parameters(scope)) or (scope.sets(name) and name not in scope.enclosing):
                return True
            scope = scope.parent
        return False

    def _stays(self, inner: Scope) -> bool:
        """Whether an inner function does not outlive this one: it is only called here, or given to what calls it at once."""
        if isinstance(inner.node, cst.ClassDef):
            return False
        mentions: list[cst.CSTNode] = [inner.node]
        if isinstance(inner.node, cst.FunctionDef):
            if inner.parent is not self.scope:
                return False
            mentions = [n for n in descend(self.scope.suite) if isinstance(n, cst.Name) and n.value == inner.name and n is not inner.node.name]
        for node in mentions:
            above = self.walk.parents.get(node)
            if isinstance(above, cst.Call) and above.func is node:
                continue
            call = self.walk.parents.get(above) if isinstance(above, cst.Arg) else None
            if not (isinstance(call, cst.Call) and names.last_name(call.func) in _AT_ONCE):
                return False
        return True

    # -- values --------------------------------------------------------------------------------------------------------

    def _value(self, node: cst.CSTNode, grip: Grip) -> None:
        """Follow a value from the expression that gives it to what it is used for."""
        above = self.walk.parents.get(node)
        add = self.trail.add
        if isinstance(above, cst.WithItem):
            if above.item is node:
                add(End.CLOSED if grip is Grip.FILE else End.READ, node)
            return None
        if isinstance(above, cst.Attribute):
            if above.attr.value in {"close", "__exit__", "__enter__"}:
                add(End.CLOSED, node)
                return None
            if self.kind is not Opens.H5:
                return add(End.CLOSED if self.kind is Opens.IMAGE and above.attr.value not in _HEADER else End.READ, node)
            if above.attr.value.startswith("visititems"):
                self.trail.captured = True  # the function that it calls may keep the objects
            return self._onward(above, after_attribute(above, grip, self.walk), node)
        if isinstance(above, cst.Subscript):
            if above.value is not node:
                return add(End.READ, node)
            if isinstance(self.walk.parents.get(above), cst.Del) or self.kind is not Opens.H5:
                return add(End.READ, node)
            return self._onward(above, after_subscript(above, grip, self.frame, self.evaluator), node)
        if isinstance(above, cst.Arg):
            call = self.walk.parents.get(above)
            return self._given(node, above, call, grip) if isinstance(call, cst.Call) else add(End.UNKNOWN, node)
        if isinstance(above, cst.Assign):
            for target in above.targets:
                self._assigned(target.target, grip, node)
            return None
        if isinstance(above, cst.AnnAssign):
            return self._assigned(above.target, grip, node)
        if isinstance(above, cst.NamedExpr):
            self._target(above.target, grip)
            return self._value(above, grip)
        if isinstance(above, cst.Return | cst.Yield | cst.Lambda | cst.From):
            return self._out(node, grip)
        if isinstance(above, cst.Element | cst.DictElement | cst.StarredElement | cst.StarredDictElement):
            return self._element(node, above, grip)
        if isinstance(above, cst.IfExp):
            return self._value(above, grip) if above.test is not node else add(End.READ, node)
        if isinstance(above, cst.BooleanOperation | cst.Await):
            return self._value(above, grip)
        if isinstance(above, cst.For) and above.iter is node:
            each = iterated(grip)
            add(End.READ, node)
            return self._target(above.target, each) if each is not None else None
        if isinstance(above, cst.CompFor) and above.iter is node:
            return self._comprehension(above, grip, node)
        if isinstance(above, _COMPREHENSIONS):
            return self._collected(above, grip, node)
        if isinstance(above, cst.AugAssign):
            return self._stored(node, grip, local=True)
        if isinstance(above, cst.Del):
            return add(End.CLOSED if grip is Grip.FILE else End.READ, node)
        return add(End.READ, node)

    def _onward(self, node: cst.CSTNode, grip: Grip | None, before: cst.CSTNode) -> None:
        if grip is None:
            self.trail.add(End.READ, before)
            return
        if isinstance(node, cst.Attribute):
            call = self.walk.parents.get(node)
            if isinstance(call, cst.Call) and call.func is node:
                node = call
        self._value(node, grip)

    def _assigned(self, target: cst.BaseExpression, grip: Grip, node: cst.CSTNode) -> None:
        if isinstance(target, cst.Tuple | cst.List) and isinstance(node, cst.Tuple | cst.List):
            return  # each element was given to its own target
        self._target(target, grip)

    def _out(self, node: cst.CSTNode, grip: Grip) -> None:
        self.trail.add(End.RETURNED if grip is Grip.FILE else End.MAYBE_OUT if grip is Grip.MAYBE else End.HANDED_OUT, node)

    def _lazily(self, node: cst.CSTNode) -> None:
        """A generator expression reads the file only when something goes through it."""
        for here in self.walk.ancestors(node):
            if isinstance(here, cst.BaseStatement | cst.BaseSmallStatement):
                break
            if isinstance(here, cst.GeneratorExp) and here not in self.generators:
                self.generators.add(here)
                self._value(here, Grip.KEYS)

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
                    self._target(target.target.elements[place].value, grip)
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
        self._value(container, grip)

    def _stored_inside(self, container: cst.CSTNode) -> None:
        """Where a tuple, list or dictionary that holds the file is put."""
        above = self.walk.parents.get(container)
        if isinstance(above, _COMPREHENSIONS):
            self.trail.stores.append(Store(self.module, self.scope, above, Grip.FILE))
        elif isinstance(above, cst.Assign):
            for target in above.targets:
                if isinstance(target.target, cst.Subscript):
                    self.trail.stores.append(Store(self.module, self.scope, target.target, Grip.FILE))
        elif isinstance(above, cst.Arg):
            call = self.walk.parents.get(above)
            if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and call.func.attr.value in _INTO:
                self.trail.stores.append(Store(self.module, self.scope, call, Grip.FILE))

    def _comprehension(self, loop: cst.CompFor, grip: Grip, node: cst.CSTNode) -> None:
        each = iterated(grip)
        self.trail.add(End.READ, node)
        if each is None:
            return
        holder: cst.CSTNode | None = loop
        while holder is not None and not isinstance(holder, _COMPREHENSIONS):
            holder = self.walk.parents.get(holder)
        if holder is None:
            return
        target: cst.CSTNode = loop.target
        if each is Grip.PAIR and isinstance(target, cst.Tuple):
            target, each = target.elements[-1], Grip.OBJECT
        targets = {part.value for part in descend(target) if isinstance(part, cst.Name)}
        inside = {id(part) for part in descend(loop.target)}
        for part in descend(holder):
            if isinstance(part, cst.Name) and part.value in targets and id(part) not in inside:
                above = self.walk.parents.get(part)
                if not (isinstance(above, cst.Attribute) and above.attr is part):
                    self._value(part, each)

    def _collected(self, comprehension: cst.CSTNode, grip: Grip, node: cst.CSTNode) -> None:
        if isinstance(comprehension, cst.DictComp) and comprehension.key is node:
            self.trail.add(End.READ, node)
            return
        self.trail.stores.append(Store(self.module, self.scope, comprehension, grip))
        if grip is Grip.FILE:
            self.trail.add(End.KEPT, node)
        else:
            self._value(comprehension, grip)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _given(self, node: cst.CSTNode, arg: cst.Arg, call: cst.Call, grip: Grip) -> None:
        """The value is an argument of a call."""
        add = self.trail.add
        last = names.last_name(call.func)
        if "close" in last or last in {"closing", "enter_context"}:
            add(End.CLOSED if grip is Grip.FILE else End.READ, node)
            return
        found = [alt.value for alt in self.evaluator.values(call.func, self.frame)[:6]]
        if isinstance(call.func, cst.Attribute) and last in _INTO and not any(isinstance(v, FunctionRef) for v in found):
            self._stored(node, grip, local=self._is_local(call.func.value), at=call)
            return
        if isinstance(call.func, cst.Attribute) and last in {"copy", "read_direct", "write_direct", "create_dataset", "visititems", "visit", "format", "join"}:
            add(End.READ, node)
            return
        if not found:
            add(End.KEPT if grip is Grip.FILE else End.UNKNOWN, node)
        for value in found:
            if isinstance(value, External):
                self._given_to_library(value.name, node, call, grip)
            elif isinstance(value, FunctionRef):
                self._given_to_function(value, node, arg, call, grip, alone=len(found) == 1)
            elif isinstance(value, ClassRef | Instance | Partial):
                self._stored(node, grip, local=False)
            elif grip is Grip.FILE:
                add(End.KEPT, node)
            else:
                add(End.UNKNOWN, node)

    def _given_to_library(self, name: str, node: cst.CSTNode, call: cst.Call, grip: Grip) -> None:
        if name.startswith(_LAZY):
            self._stored(node, grip, local=False)
            return
        if self.kind is Opens.IMAGE:
            # Whatever looks at the pixels decodes the image, and that closes its file.
            self.trail.add(End.READ if name in {"builtins.print", "builtins.isinstance", "builtins.type"} else End.CLOSED, node)
            return
        after = after_call(name, grip) if self.kind is Opens.H5 else None
        if after is not None:
            self._value(call, after)
        elif name.partition(".")[0] in _READERS:
            self.trail.add(End.READ, node)
        else:
            self.trail.add(End.KEPT if grip is Grip.FILE else End.UNKNOWN, node)

    def _given_to_function(self, function: FunctionRef, node: cst.CSTNode, arg: cst.Arg, call: cst.Call, grip: Grip, *, alone: bool) -> None:
        """The value goes into a function of the project: what that does with its parameter happens to the file."""
        if isinstance(function.scope.node, cst.FunctionDef) and function.scope.name == "__init__":
            self._stored(node, grip, local=False)
            return
        name = _parameter(function, arg, call)
        if name is None or self.depth >= _DEEPEST or function.scope is self.scope:
            self.trail.add(End.KEPT if grip is Grip.FILE else End.UNKNOWN, node)
            return
        inner = _Follower(function.module, function.scope, self.evaluator, self.kind, self.depth + 1).from_parameter(name, grip)
        self.trail.stores.extend(inner.stores)
        if function.scope.yields:
            self._value(call, Grip.KEYS)
        for end in inner.ends:
            if end is End.RETURNED:
                self._value(call, Grip.FILE)
            elif end is End.HANDED_OUT:
                self._value(call, Grip.OBJECT if alone else Grip.MAYBE)
            elif end is End.MAYBE_OUT:
                self._value(call, Grip.MAYBE)
            else:
                self.trail.add(end, node)


def _parameter(function: FunctionRef, arg: cst.Arg, call: cst.Call) -> str | None:
    """The parameter that an argument fills."""
    if arg.star or any(a.star for a in call.args):
        return None
    if arg.keyword is not None:
        return arg.keyword.value if any(p.name.value == arg.keyword.value for p in names.parameters(function.scope)) else None
    place = next(n for n, a in enumerate(call.args) if a is arg)
    if names.is_method(function.scope) and (function.this is not None or isinstance(call.func, cst.Attribute)):
        place += 1
    node = function.scope.node
    params = [*node.params.posonly_params, *node.params.params] if isinstance(node, cst.FunctionDef | cst.Lambda) else []
    return params[place].name.value if place < len(params) else None


def _comp_targets(comprehension: cst.BaseComp) -> Iterator[cst.CSTNode]:
    """What the loops of a comprehension bind."""
    loop: cst.CompFor | None = getattr(comprehension, "for_in", None)
    while loop is not None:
        yield from descend(loop.target)
        loop = loop.inner_for_in
