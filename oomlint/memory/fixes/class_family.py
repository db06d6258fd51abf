"""A class with its bases and subclasses: whether an attribute of it may become a property, and what it keeps beside it."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.api_names import EXPECTS
from oomlint.memory.datasets.dataset_classes import DATASET_BASES, datasets_of
from oomlint.memory.handles.file_taint import keeps_a_part
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.content_kinds import PayloadKind
from oomlint.model import names
from oomlint.model.readings import FOUND, finder
from oomlint.model.values import ClassRef, External
from oomlint.syntax.nodes import descend, is_attribute_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Effect, Scope

# Who defines one of these has a say in what is pickled, or in what an attribute is.
_OWN_WAYS: Final = frozenset(
    "__getstate__ __setstate__ __reduce__ __reduce_ex__ __slots__ __getattr__ __getattribute__ __setattr__ __delattr__ __getnewargs__ __getnewargs_ex__ "
    "__copy__ __deepcopy__".split(),
)
# Base classes of libraries that have none of these.
_PLAIN_BASES: Final = DATASET_BASES | {"torch.utils.data.ChainDataset", "torch.utils.data.StackDataset", "builtins.object", "abc.ABC"}
_PLAIN_LIBRARIES: Final = (
    "collections.abc.",
    "torchvision.datasets.",
    "typing.Generic",
    "typing.Protocol",
    "typing.Sequence",
    "typing.Mapping",
    "typing_extensions.",
)
_SLOTTED: Final = frozenset({"define", "frozen", "mutable", "attrs"})
_REMOVES: Final = frozenset("unlink rmtree removedirs TemporaryDirectory NamedTemporaryFile TemporaryFile mkstemp mkdtemp".split())
_UNPICKLABLE: Final = frozenset({PayloadKind.HANDLE, PayloadKind.H5, PayloadKind.LOCK, PayloadKind.GENERATOR, PayloadKind.FUNCTION})
_ENDS: Final = frozenset({"close", "__enter__", "__exit__", "detach"})
_BY_NAME: Final = frozenset({"setattr", "delattr"})
_STOPS: Final = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit"})
# What programs keep their settings in: its attributes are not those of a dataset.
SETTINGS: Final = re.compile(r"(?i)args|opts?$|^options|cfg|conf|param|namespace|^self$")


class Family:
    """A class, what it derives from, and what derives from it."""

    def __init__(self, module: Module, owner: Scope) -> None:
        self.module = module
        self.owner = owner
        self.project = module.project
        self.evaluator = evaluator_of(module.project)
        own = ClassRef(module, owner)
        self._heirs = self.evaluator.calls.subclasses(own)
        found: dict[Scope, ClassRef] = {}
        self._bases: list[External] = []
        for cls in (own, *self._heirs):
            for base in self.evaluator.lineage(cls):
                if isinstance(base, ClassRef):
                    found.setdefault(base.scope, base)
                else:
                    self._bases.append(base)
        self.members: Final = list(found.values())

    def own(self) -> list[ClassRef]:
        """The class and those that derive from it: what objects of it may be built as."""
        return [ClassRef(self.module, self.owner), *self._heirs]

    def makers(self) -> list[Module]:
        """Files that build objects of the class, and those that it is written in."""
        found = [cls.module for cls in self.members]
        found += [module for cls in self.own() for module in self.project.callers(cls.scope.name, cls.module.path)]
        return list(dict.fromkeys(found))

    # -- the class as a whole ------------------------------------------------------------------------------------------

    def can_change(self) -> bool:
        """Whether an attribute can become a property, and a ``__getstate__`` be written, without a say of anybody else."""
        if self.owner.parent is None or self.owner.parent.is_function:
            return False  # a class inside a function cannot be pickled, whatever it holds
        if not all(base.name in _PLAIN_BASES or base.name.startswith(_PLAIN_LIBRARIES) for base in self._bases):
            return False
        for cls in self.members:
            if _OWN_WAYS & cls.scope.effects.keys() or self._unknown_base(cls) or _has_slots(cls):
                return False
        return not any(self._looks_inside(node) for node in self._nodes) and not self._made_in_try()

    def _unknown_base(self, cls: ClassRef) -> bool:
        node = cls.scope.node
        if not isinstance(node, cst.ClassDef):
            return True
        found = self.evaluator.bases(cls)
        return len(found) < len(node.bases) or not all(isinstance(base, ClassRef | External) for base in found)

    @cached_property
    def _nodes(self) -> list[cst.CSTNode]:
        return [node for cls in self.members for node in descend(cls.scope.node)]

    @staticmethod
    def _looks_inside(node: cst.CSTNode) -> bool:
        """Whether the code asks for all attributes at once, sets one by a name that it works out, or removes a file."""
        if isinstance(node, cst.Attribute):
            return node.attr.value == "__dict__"
        if not isinstance(node, cst.Call):
            return False
        name = names.last_name(node.func)
        if isinstance(node.func, cst.Name) and name in _BY_NAME:
            return len(node.args) < 2 or not isinstance(node.args[1].value, cst.SimpleString)  # noqa: PLR2004 - the object and the name
        if name == "remove":
            return is_attribute_of(node.func, "os")
        return name in _REMOVES or (name == "vars" and isinstance(node.func, cst.Name))

    def _made_in_try(self) -> bool:
        """Whether an object is built where an exception is waited for: it would come later."""
        for cls in self.own():
            name = cls.scope.name
            for module in self.project.callers(name, cls.module.path):
                for call, _ in module.walk.calls:
                    if names.last_name(call.func) == name and awaited(module, call):
                        return True
        return any(awaited(cls.module, call) for cls in self.own() for call in built_by_itself(cls))

    # -- one attribute -------------------------------------------------------------------------------------------------

    def settles(self, name: str, effect: Effect) -> bool:
        """Whether the attribute is set by this statement alone, and closed, deleted or changed in place nowhere."""
        if name.startswith("__") or any(name in cls.scope.effects for cls in self.members):
            return False
        step = ("attr", name)
        for cls in self.members:
            for scope in _inside(cls.scope):
                if any(one is not effect and step in one.path for effects in scope.effects.values() for one in effects):
                    return False
        for node in self._nodes:
            if isinstance(node, cst.Attribute) and node.attr.value in _ENDS and _is(node.value, name):
                return False
            if isinstance(node, cst.WithItem) and _is(node.item, name):
                return False
            if isinstance(node, cst.Call) and names.last_name(node.func) in _BY_NAME and any(_spelt(arg.value) == name for arg in node.args):
                return False
        return not self.set_outside(name)

    def set_outside(self, name: str) -> bool:
        """Whether any code of the project sets or deletes such an attribute of something that is not called like the object in its own methods."""
        own = sorted({this for cls in self.members for scope in cls.scope.children if (this := names.self_name(scope)) is not None})
        if self.project.search(_sets, (name, *own), self.module.path, name):
            return True
        return any(_reaches_in(node) for module in self.makers() for node, _ in module.walk.calls)

    def free(self, wanted: Iterable[str]) -> bool:
        """Whether nobody in the family has attributes of these names."""
        taken = {node.attr.value for node in self._nodes if isinstance(node, cst.Attribute)}
        taken |= {word for node in self._nodes if (word := _spelt(node))}
        return not taken & set(wanted) and not any(name in cls.scope.effects for cls in self.members for name in wanted)

    # -- what stays ----------------------------------------------------------------------------------------------------

    def keeps_open(self, lazy: frozenset[str]) -> bool:
        """Whether anything else stays that cannot be pickled, or that is part of what will be opened lazily."""
        contents = datasets_of(self.project).contents
        for cls in self.members:
            for scope in cls.scope.children:
                this = names.self_name(scope)
                if this is None:
                    continue
                frame = self.evaluator.calls.plain_frame(cls.module, scope)
                for effect in scope.effects.get(this, ()):
                    if effect.value is None or not effect.path or effect.path[0][0] != "attr" or effect.path[0][1] in lazy:
                        continue
                    if contents.of(effect.value, frame).kind in _UNPICKLABLE:
                        return True
                if keeps_a_part(scope, this, lazy):
                    return True
        return False


def _inside(scope: Scope) -> Iterator[Scope]:
    yield scope
    for child in scope.children:
        yield from _inside(child)


def _is(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Attribute) and node.attr.value == name


def _spelt(node: cst.CSTNode) -> str:
    """The text of a plain string."""
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else ""
    return value if isinstance(value, str) else ""


def awaited(module: Module, call: cst.Call) -> bool:
    """Whether an exception of a call is waited for in its own function: by ``try`` with handlers, or by ``with`` ``raises`` or ``suppress``."""
    child: cst.CSTNode = call
    for here in module.walk.ancestors(call):
        if isinstance(here, cst.FunctionDef | cst.ClassDef | cst.Lambda):
            return False
        if isinstance(here, cst.Try | cst.TryStar) and child is here.body and not all(_stops(one) for one in here.handlers):
            return True
        if isinstance(here, cst.With) and any(isinstance(item.item, cst.Call) and names.last_name(item.item.func) in EXPECTS for item in here.items):
            return True
        child = here
    return False


def _reaches_in(call: cst.Call) -> bool:
    """Whether a call sets attributes of some object by names that are worked out, or all at once."""
    name = names.last_name(call.func)
    if name in {*_BY_NAME, "__setattr__", "__delattr__"} and call.args:
        return not any(isinstance(arg.value, cst.SimpleString) for arg in call.args[:3]) and not SETTINGS.search(names.last_name(call.args[0].value))
    if name in {"update", "pop", "clear", "setdefault", "__setitem__"} and isinstance(call.func, cst.Attribute):
        held = call.func.value
        if isinstance(held, cst.Attribute) and held.attr.value == "__dict__":
            return not SETTINGS.search(names.last_name(held.value))
        return isinstance(held, cst.Call) and names.last_name(held.func) == "vars" and not any(SETTINGS.search(names.last_name(a.value)) for a in held.args)
    return False


def _stops(handler: cst.ExceptHandler | cst.ExceptStarHandler) -> bool:
    """Whether a handler waits for the end of the program alone."""
    kinds = [element.value for element in handler.type.elements] if isinstance(handler.type, cst.Tuple) else [handler.type]
    return all(kind is not None and names.last_name(kind) in _STOPS for kind in kinds)


def built_by_itself(cls: ClassRef) -> Iterator[cst.Call]:
    """Calls in a class that build an object of it without its name: ``cls(...)``, ``type(self)(...)``, ``self.__class__(...)``."""
    for node in descend(cls.scope.node):
        match node:
            case cst.Call(func=cst.Name(value="cls" | "klass") | cst.Attribute(attr=cst.Name(value="__class__")) | cst.Call(func=cst.Name(value="type"))):
                yield node


def _has_slots(cls: ClassRef) -> bool:
    """Whether a decorator may put attributes elsewhere than into ``__dict__``: ``dataclass(slots=True)``, attrs."""
    decorators = cls.scope.node.decorators if isinstance(cls.scope.node, cst.ClassDef) else ()
    written = [cls.module.code(one.decorator) for one in decorators]
    return any("slots" in code or code.partition("(")[0].rpartition(".")[2] in _SLOTTED or code.startswith(("attr.", "attrs.")) for code in written)


@finder
def _sets(path: str, data: bytes, name: str, *own: str) -> str:
    """Whether a file sets or deletes such an attribute of something that is called otherwise than ``own``."""
    del path
    word = name.encode()
    if word not in data:
        return ""
    attribute = rb"(\w+)[\])]*\." + re.escape(word) + rb"\b"
    single = attribute + rb"\s*(?:=(?!=)|:[^=\n]+=(?!=))|\bdel\s[^\n]*\." + re.escape(word) + rb"\b"
    several = rb"^[ \t]*[(\[]?[\w.\[\], *\"']*?" + attribute + rb"\s*[,)\]][\w.\[\], *\"')]*=(?!=)"
    bound = rb"\bas\s+" + attribute + rb"|\bfor\s+(?:[\w.]+,\s*)*" + attribute + rb"[\w., )]*\bin\b"
    pattern = re.compile(rb"|".join((single, several, bound)), re.MULTILINE)
    named = re.compile(rb"\b(?:setattr|delattr|patch(?:\.\w+)*)\s*\([^\n]*[\"'.]" + re.escape(word) + rb"[\"']")
    ours = set(map(str.encode, own))
    for row in data.split(b"\n"):  # what sets it stands in one row
        if word in row and (any(ours.isdisjoint(group for group in match.groups() if group) for match in pattern.finditer(row)) or named.search(row)):
            return FOUND
    return ""
