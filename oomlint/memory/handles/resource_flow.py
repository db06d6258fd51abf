"""What becomes of a file that a call opens: closed, kept, handed on, or only read and left to the garbage collector.

A trail follows the value of the opening call forward: through names, h5py objects that are taken from it, and functions of the project that get it. Whatever
may close or keep the file ends the question, also where nobody can look into it; so what is left was seen to be neither closed nor kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.memory.handles.h5_api import Grip, after_call
from oomlint.memory.handles.openings import Opens
from oomlint.memory.handles.resource_state import End, Trail
from oomlint.memory.handles.resource_values import INTO, TrailValues
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import arguments, names
from oomlint.model.values import ClassRef, External, FunctionRef, Instance, Partial

if TYPE_CHECKING:
    from oomlint.memory.handles.openings import Opening
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_DEEPEST = 3
# Libraries that read what they are given, and let it go.
_READERS = frozenset("numpy torch scipy cv2 PIL skimage sklearn math json pandas matplotlib builtins os logging h5py cupy jax tqdm torchvision einops".split())
# They keep what they are given, to read it later.
_LAZY = ("torch.utils.data", "dask", "xarray", "zarr", "tensorflow", "anndata")


def trail_of(opening: Opening, project: Project) -> Trail:
    """The trail of a file from its opening call; it covers the function that opens it."""
    return project.memo.answer(
        ("trail", opening.call), lambda: _Follower(opening.module, opening.scope, evaluator_of(project), opening.kind).from_node(opening.call)
    )  # type: ignore[return-value]


def trail_from(node: cst.BaseExpression, module: Module, scope: Scope, kind: Opens, project: Project) -> Trail:
    """The trail of a file that another function opened and returned, from the call of that function."""
    return _Follower(module, scope, evaluator_of(project), kind).from_node(node)


class _Follower(TrailValues):
    """Follows one value through one function."""

    def from_node(self, node: cst.BaseExpression) -> Trail:
        """Follow the file that an expression opens."""
        self.start = node
        self.follow(node, Grip.FILE)
        self.lazily(node)
        return self.finish()

    def from_parameter(self, name: str, grip: Grip) -> Trail:
        """Follow what a caller gives."""
        self.bind(name, None, grip)
        return self.finish()

    def given(self, node: cst.CSTNode, arg: cst.Arg, call: cst.Call, grip: Grip) -> None:
        """The value is an argument of a call."""
        add = self.trail.add
        last = names.last_name(call.func)
        if "close" in last or last in {"closing", "enter_context"}:
            add(End.CLOSED if grip is Grip.FILE else End.READ, node)
            return
        found = [alt.value for alt in self.evaluator.values(call.func, self.frame)[:6]]
        if isinstance(call.func, cst.Attribute) and last in INTO and not any(isinstance(v, FunctionRef) for v in found):
            self.stored(node, grip, local=self.is_local(call.func.value), at=call)
            return
        if last == "setattr" and call.args[0] is not arg:
            self.stored(node, grip, local=False)
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
                self.stored(node, grip, local=False)
            elif grip is Grip.FILE:
                add(End.KEPT, node)
            else:
                add(End.UNKNOWN, node)

    def _given_to_library(self, name: str, node: cst.CSTNode, call: cst.Call, grip: Grip) -> None:
        if name.startswith(_LAZY):
            self.stored(node, grip, local=False)
            return
        if self.kind is Opens.IMAGE:
            # Whatever looks at the pixels decodes the image, and that closes its file.
            self.trail.add(End.READ if name in {"builtins.print", "builtins.isinstance", "builtins.type"} else End.CLOSED, node)
            return
        after = after_call(name, grip) if self.kind is Opens.H5 else None
        if after is not None:
            self.follow(call, after)
        elif name.partition(".")[0] in _READERS:
            self.trail.add(End.READ, node)
        else:
            self.trail.add(End.KEPT if grip is Grip.FILE else End.UNKNOWN, node)

    def _given_to_function(self, function: FunctionRef, node: cst.CSTNode, arg: cst.Arg, call: cst.Call, grip: Grip, *, alone: bool) -> None:
        """The value goes into a function of the project: what that does with its parameter happens to the file."""
        if isinstance(function.scope.node, cst.FunctionDef) and function.scope.name == "__init__":
            self.stored(node, grip, local=False)
            return
        name = arguments.parameter_of(function, call, arg)
        if name is None or self.depth >= _DEEPEST or function.scope is self.scope:
            self.trail.add(End.KEPT if grip is Grip.FILE else End.UNKNOWN, node)
            return
        inner = _Follower(function.module, function.scope, self.evaluator, self.kind, self.depth + 1).from_parameter(name, grip)
        self.trail.stores.extend(inner.stores)
        if function.scope.yields:
            self.follow(call, Grip.KEYS)
        for end in inner.ends:
            if end is End.RETURNED:
                self.follow(call, Grip.FILE)
            elif end is End.HANDED_OUT:
                self.follow(call, Grip.OBJECT if alone else Grip.MAYBE)
            elif end is End.MAYBE_OUT:
                self.follow(call, Grip.MAYBE)
            else:
                self.trail.add(end, node)
