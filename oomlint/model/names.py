"""Names: what an import, a definition or a builtin means."""

from __future__ import annotations

import builtins
from functools import lru_cache
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.api_names import GOES_OVER, HANDS_ON, WRAPPERS
from oomlint.syntax.nodes import block_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.project import Module
    from oomlint.syntax.scopes import Scope
    from oomlint.syntax.walk import Walk

BUILTINS = frozenset(dir(builtins))

# One library under several names, one class under several paths.
_ALIASES = {
    "lightning.pytorch": "pytorch_lightning",
    "lightning": "pytorch_lightning",
    "torch.utils.data.dataloader": "torch.utils.data",
    "torch.utils.data.dataset": "torch.utils.data",
    "torch.utils.data.distributed": "torch.utils.data",
    "torch.multiprocessing": "multiprocessing",
    "torchdata.stateful_dataloader.stateful_dataloader": "torchdata.stateful_dataloader",
    "h5py._hl.files": "h5py",
    "absl.flags.FLAGS": "absl.flags.FLAGS",
    "pickle5": "pickle",
    "joblib.parallel": "joblib",
    "sklearn.externals.joblib": "joblib",
    "sklearn.utils.parallel": "joblib",
}
# What `from torch.utils.data import *` and its like bring in.
STAR_EXPORTS = {
    "torch.utils.data": frozenset(
        "BatchSampler ChainDataset ConcatDataset DataChunk DataLoader Dataset DistributedSampler IterDataPipe IterableDataset MapDataPipe RandomSampler "
        "Sampler SequentialSampler StackDataset Subset SubsetRandomSampler TensorDataset WeightedRandomSampler default_collate default_convert get_worker_info "
        "random_split".split(),
    ),
}
# Libraries that call other things of their own by such names.
NAMESAKES = frozenset("datasets paddle mxnet flax haiku tensorflow keras mindspore tinygrad mlx".split())
# What files all over the world call the parts of these libraries: read so where only a star import of a module that nobody can see may bring the name.
USUAL = {
    "torch": "torch",
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "optim": "torch.optim",
    "torchvision": "torchvision",
    "np": "numpy",
    "pd": "pandas",
    **{name: f"torch.utils.data.{name}" for name in ("DataLoader", "Dataset", "IterableDataset", "TensorDataset", "ConcatDataset", "Subset", "random_split")},
}


@lru_cache(maxsize=1 << 12)
def canonical(name: str) -> str:
    """The one name that we use for a library's object."""
    head = name
    tail = ""
    while head:
        alias = _ALIASES.get(head)
        if alias is not None:
            return alias + tail
        head, dot, last = head.rpartition(".")
        if not dot:
            return name
        tail = f".{last}{tail}"
    return name


def dotted(node: cst.CSTNode | None) -> str:
    """``a.b.c`` as text; empty where the node is something else."""
    said = ""
    while isinstance(node, cst.Attribute):
        said = f".{node.attr.value}{said}"
        node = node.value
    return f"{node.value}{said}" if isinstance(node, cst.Name) else ""


def is_main(test: cst.BaseExpression) -> bool:
    """``__name__ == "__main__"``."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1 or not isinstance(test.comparisons[0].operator, cst.Equal):
        return False
    sides = (test.left, test.comparisons[0].comparator)
    return any(dotted(side) == "__name__" for side in sides) and any(
        isinstance(side, cst.SimpleString) and side.evaluated_value == "__main__" for side in sides
    )


def last_name(node: cst.CSTNode) -> str:
    """The name that a call is written with: ``c`` of ``a.b.c(...)``."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


def handed_on(node: cst.BaseExpression) -> cst.BaseExpression:
    """The function that an expression stands for: the one inside of ``partial(read, scale=2)`` and of ``delayed(read)``."""
    while isinstance(node, cst.Call) and node.args and not node.args[0].star and last_name(node.func) in HANDS_ON:
        node = node.args[0].value
    return node


def adds_axis(node: cst.CSTNode) -> bool:
    """Whether an index makes a new axis and picks nothing: ``None``, ``np.newaxis``."""
    return last_name(node) in {"None", "newaxis"}


def written_as(node: cst.BaseExpression) -> str:
    """The last name of what is called: ``read`` in ``delayed(read)(path)``, ``TABLE[]`` of what a table has: ``TABLE["train"]``, ``m.TABLE[key]["train"]``."""
    node = table = handed_on(node)
    while isinstance(table, cst.Subscript):
        table = table.value
    return last_name(node) if table is node else f"{last_name(table)}[]"


def iterated(node: cst.BaseExpression, through: frozenset[str] = GOES_OVER) -> cst.BaseExpression:
    """What a loop goes over, taken out of ``enumerate``, ``tqdm``, ``zip`` and their like, and of the name that such a bar is given there."""
    while isinstance(node, cst.NamedExpr) or (isinstance(node, cst.Call) and node.args and last_name(node.func) in through):
        node = node.value if isinstance(node, cst.NamedExpr) else node.args[0].value
    return node


def gone_through(loop: cst.For | cst.CompFor) -> tuple[cst.BaseExpression, cst.BaseExpression]:
    """What a loop goes through, and the part of its target that stands for an element of it: not the number that ``enumerate`` gives."""
    node = loop.iter
    target: cst.BaseExpression = loop.target
    while isinstance(node, cst.Call) and node.args and last_name(node.func) in WRAPPERS:
        if last_name(node.func) == "enumerate" and isinstance(target, cst.Tuple | cst.List) and len(target.elements) > 1:
            target = target.elements[1].value
        node = node.args[0].value
    return node, target


def within(node: cst.CSTNode, holder: cst.CSTNode, module: Module) -> bool:
    """Whether ``node`` stands inside ``holder``."""
    return node is holder or any(here is holder for here in module.walk.ancestors(node))


def headers(walk: Walk, node: cst.CSTNode) -> Iterator[cst.For | cst.CompFor]:
    """The headers of the loops and comprehensions around a node in its function, the innermost first."""
    for here in walk.ancestors(node):
        if isinstance(here, cst.FunctionDef):
            return
        if isinstance(here, cst.For | cst.BaseComp):
            yield here if isinstance(here, cst.For) else here.for_in


def parameters(scope: Scope) -> list[cst.Param]:
    """Positional parameters, then keyword-only ones, without the starred."""
    if not isinstance(scope.node, cst.FunctionDef | cst.Lambda):
        return []
    params = scope.node.params
    return [*params.posonly_params, *params.params, *params.kwonly_params]


def parameter_names(scope: Scope) -> list[str]:
    """What its parameters are called, in the order of :func:`parameters`."""
    return [param.name.value for param in parameters(scope)]


def takes(scope: Scope) -> frozenset[str]:
    """The same, to ask whether a name is one of them."""
    known = scope.takes
    if known is None:
        known = scope.takes = frozenset(parameter_names(scope))
    return known


def is_parameter(scope: Scope, name: str) -> bool:
    """Whether a name is one of those that a call binds, ``*args`` and ``**kwargs`` among them."""
    node = scope.node
    if not isinstance(node, cst.FunctionDef | cst.Lambda):
        return False
    rest = (node.params.star_arg, node.params.star_kwarg)
    return name in takes(scope) or any(isinstance(one, cst.Param) and one.name.value == name for one in rest)


def is_static(scope: Scope) -> bool:
    """Whether a method is a ``staticmethod``."""
    return _decorated(scope, "staticmethod")


def takes_class(scope: Scope) -> bool:
    """Whether a method is a ``classmethod``: what it is called on is the class, also where that is asked of an object."""
    return _decorated(scope, "classmethod")


def _decorated(scope: Scope, word: str) -> bool:
    return isinstance(scope.node, cst.FunctionDef) and any(dotted(d.decorator) == word for d in scope.node.decorators)


def is_open(scope: Scope) -> bool:
    """Whether a method only says that derived classes have it: all that it does is to raise, or its decorator says so."""
    if not isinstance(scope.node, cst.FunctionDef):
        return False
    if any(last_name(d.decorator) == "abstractmethod" for d in scope.node.decorators):
        return True
    done = [one for one in block_of(scope.node.body) if not (isinstance(one, cst.Expr) and isinstance(one.value, cst.BaseString))]
    return len(done) == 1 and isinstance(done[0], cst.Raise)


def is_property(scope: Scope) -> bool:
    """Whether reading the attribute calls the function."""
    return isinstance(scope.node, cst.FunctionDef) and any(
        dotted(d.decorator).rpartition(".")[2] in {"property", "cached_property"} for d in scope.node.decorators
    )


def is_method(scope: Scope) -> bool:
    """Whether the first parameter is the object or the class."""
    known = scope.method
    if known is None:
        known = scope.method = scope.parent is not None and scope.parent.is_class and isinstance(scope.node, cst.FunctionDef) and not is_static(scope)
    return known


def is_called_on_self(call: cst.Call, scope: Scope) -> bool:
    """Whether a method calls another one of its own object: ``self.load(path)``."""
    own = self_name(scope)
    return own is not None and isinstance(call.func, cst.Attribute) and isinstance(call.func.value, cst.Name) and call.func.value.value == own


def self_name(scope: Scope) -> str | None:
    """The name of the first parameter of a method."""
    if not is_method(scope):
        return None
    params = scope.node.params if isinstance(scope.node, cst.FunctionDef) else None
    own = (params.posonly_params or params.params or params.kwonly_params) if params is not None else ()
    return own[0].name.value if own else None


def short(code: str, most: int = 60) -> str:
    """The code in one line of at most ``most`` characters."""
    text = " ".join(code.split())
    return text if len(text) <= most else text[: most - 1] + "…"
