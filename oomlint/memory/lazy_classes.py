"""A class with its bases and subclasses: whether an attribute of it may become a property, and what it keeps beside it."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.content import Kind
from oomlint.memory.datasets import DATASET_BASES, datasets_of
from oomlint.memory.lazy_values import keeps_a_part
from oomlint.memory.loaders import evaluator_of
from oomlint.model import names
from oomlint.model.values import ClassRef, External
from oomlint.syntax.walk import descend

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomlint.model.project import Module
    from oomlint.syntax.walk import Effect, Scope

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
_UNPICKLABLE: Final = frozenset({Kind.HANDLE, Kind.H5, Kind.LOCK, Kind.GENERATOR, Kind.FUNCTION})
_ENDS: Final = frozenset({"close", "__enter__", "__exit__", "detach"})
_WAITS: Final = frozenset({"raises", "assertRaises", "assertRaisesRegex", "suppress"})
_BY_NAME: Final = frozenset({"setattr", "delattr"})


class Family:
    """A class, what it derives from, and what derives from it."""

    def __init__(self, module: Module, owner: Scope) -> None:
        self.module = module
        self.owner = owner
        self.project = module.project
        self.evaluator = evaluator_of(module.project)
        own = ClassRef(module, owner)
        self._heirs = self.evaluator.calls.subclasses(owner)
        found: dict[Scope, ClassRef] = {}
        self._bases: list[External] = []
        for cls in (own, *self._heirs):
            for base in self.evaluator.lineage(cls):
                if isinstance(base, ClassRef):
                    found.setdefault(base.scope, base)
                else:
                    self._bases.append(base)
        self.members: Final = list(found.values())

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
            return isinstance(node.func, cst.Attribute) and isinstance(node.func.value, cst.Name) and node.func.value.value == "os"
        return name in _REMOVES or (name == "vars" and isinstance(node.func, cst.Name))

    def _made_in_try(self) -> bool:
        """Whether an object is built where an exception is waited for: it would come later."""
        for cls in (ClassRef(self.module, self.owner), *self._heirs):
            name = cls.scope.name
            for module in self.project.callers(name, cls.module.path):
                for call, _ in module.walk.calls:
                    if names.last_name(call.func) == name and _awaited(module, call):
                        return True
        return False

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
        return not self._set_outside(name)

    def _set_outside(self, name: str) -> bool:
        """Whether any code of the project sets or deletes such an attribute of something that is not called like the object in its own methods."""
        own = {this.encode() for cls in self.members for scope in cls.scope.children if (this := names.self_name(scope)) is not None}
        word = name.encode()
        pattern = re.compile(rb"(\w+)[\])]*\." + re.escape(word) + rb"\s*(?:=(?!=)|:[^=\n]+=(?!=))|\bdel\s[^\n]*\." + re.escape(word) + rb"\b")
        for path in self.project.files():
            data = self.project.raw(path)
            if word in data and any(match[1] not in own for match in pattern.finditer(data)):
                return True
        return False

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


def _awaited(module: Module, call: cst.Call) -> bool:
    """Whether an exception of a call is waited for in its own function: by ``try`` with handlers, or by ``with`` ``raises`` or ``suppress``."""
    child: cst.CSTNode = call
    for here in module.walk.ancestors(call):
        if isinstance(here, cst.FunctionDef | cst.ClassDef | cst.Lambda):
            return False
        if isinstance(here, cst.Try | cst.TryStar) and child is here.body and here.handlers:
            return True
        if isinstance(here, cst.With) and any(isinstance(item.item, cst.Call) and names.last_name(item.item.func) in _WAITS for item in here.items):
            return True
        child = here
    return False


def _has_slots(cls: ClassRef) -> bool:
    """Whether a decorator may put attributes elsewhere than into ``__dict__``: ``dataclass(slots=True)``, attrs."""
    decorators = cls.scope.node.decorators if isinstance(cls.scope.node, cst.ClassDef) else ()
    written = [cls.module.code(one.decorator) for one in decorators]
    return any("slots" in code or code.partition("(")[0].rpartition(".")[2] in _SLOTTED or code.startswith(("attr.", "attrs.")) for code in written)
