"""What the rules on loaded data propose: maps in place of copies, arrays that are allocated once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Fix, Safety
from oomlint.memory.arrays.let_go import LetGo
from oomlint.memory.arrays.load_messages import STREAMS
from oomlint.memory.fixes.path_stability import PATH_CALLS
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import arguments, names
from oomlint.model.torch_versions import LOAD_MAPPED, torch_versions
from oomlint.model.values import Const, ExternalCall
from oomlint.syntax.edits import Text

if TYPE_CHECKING:
    from oomlint.memory.arrays.loads import Load
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_FILLED: Final = Fix(Safety.DISPLAY, "allocate the array once, with shape and dtype of the first file, and fill it in the loop", ())
_STREAMED: Final = Fix(Safety.DISPLAY, STREAMS, ())
_PER_SAMPLE: Final = Fix(Safety.DISPLAY, "store the paths, and read each sample in `__getitem__`", ())
# What can be written where a path is.
_PLAIN: Final = (cst.Name, cst.Attribute, cst.Subscript, cst.Call, cst.SimpleString, cst.FormattedString, cst.ConcatenatedString, cst.BinaryOperation)
_OPEN: Final = re.compile(r"(^|_)(fh|fp|fd|fin|f|buf|buff|buffer|bytes|stream|handle|fileobj)$|file_?obj|bytes_?io|file_?like", re.IGNORECASE)
_OPENS: Final = frozenset(
    "open fdopen BytesIO BufferedReader FileIO GzipFile BZ2File LZMAFile urlopen TemporaryFile NamedTemporaryFile SpooledTemporaryFile".split(),
)
_MOST: Final = 6


def filled() -> Fix:
    """Advice for a list that becomes an array."""
    return _FILLED


def per_sample(load: Load) -> Fix | None:
    """Advice for a dataset that is read whole."""
    if not load.many or load.all_at_once or load.module.project.shared(LetGo).is_for_building(load.keeper):
        return None
    return _STREAMED if load.keeper.saver else _PER_SAMPLE


def torch_mapped(load: Load, project: Project) -> Fix | None:
    """``torch.load(path)`` → ``torch.load(path, mmap=True)``, for a file that a dataset keeps."""
    call = load.node
    return mapped(load.module, call, project) if isinstance(call, cst.Call) and load.read is not None and load.read.name == "torch.load" else None


def mapped(module: Module, call: cst.Call, project: Project) -> Fix | None:
    """The fix that gives a ``torch.load`` the argument ``mmap=True``.

    ``None`` where a file is already open, where the program writes the same file, where the arguments are not plain, and where the project may run with a
    torch that has no such argument.
    """
    if arguments.has_stars(call) or torch_versions(project, module).lacks(LOAD_MAPPED):
        return None
    given = set(arguments.by_name(call))
    if given & {"mmap", "f"} or not call.args or call.args[0].keyword is not None:
        return None
    path = call.args[0].value
    if _may_be_open(path, module, call, project):
        return None
    if isinstance(path, cst.Call) and names.last_name(path.func) not in PATH_CALLS:
        return None
    if _written(path, module, call, project):
        return None
    text = Text(module.tree)
    last = text.span(call.args[-1].value)[1]
    return Fix(Safety.UNSAFE, "pass `mmap=True`, which reads only what is indexed", (text.replaced(last, last, ", mmap=True"),))


def _written(path: cst.BaseExpression, module: Module, call: cst.Call, project: Project) -> bool:
    """Whether the program also saves to the file. To write a file that is mapped ends the process with a bus error, and the file is lost (torch 2.13)."""
    scope = module.walk.scope_at(call)
    read = _names(path, module, scope, project)
    modules = {module, *(frame.module for frame in evaluator_of(project).calls.frames(module, scope)[:_MOST])}
    for one in modules:
        for other, there in one.walk.calls:
            if names.dotted(other.func) != "torch.save":
                continue
            given = arguments.named(other, "f")
            target = given or (other.args[1].value if len(other.args) > 1 else None)
            if target is not None and read & _names(target, one, there, project):
                return True
    return False


def _names(path: cst.BaseExpression, module: Module, scope: Scope, project: Project) -> set[str]:
    """What a path is written as, and the texts that it stands for."""
    evaluator = evaluator_of(project)
    frames = (evaluator.calls.plain_frame(module, scope), *evaluator.calls.frames(module, scope)[:_MOST])
    known = [alt.value.value for frame in frames for alt in evaluator.values(path, frame)[:_MOST] if isinstance(alt.value, Const)]
    return {module.code(path), *(value for value in known if isinstance(value, str))}


def _may_be_open(path: cst.BaseExpression, module: Module, call: cst.Call, project: Project) -> bool:
    """Whether an argument is, or may be, an open file or a buffer, which cannot be mapped."""
    if not isinstance(path, _PLAIN):
        return True
    if not isinstance(path, cst.Name | cst.Attribute):
        return False
    scope = module.walk.scope_at(call)
    if _OPEN.search(names.last_name(path)) or any(e.kind == "with" and not e.path for e in scope.effects.get(names.dotted(path), ())):
        return True
    evaluator = evaluator_of(project)
    calls = evaluator.calls
    for frame in (calls.plain_frame(module, scope), *calls.frames(module, scope)[:_MOST]):
        for alt in evaluator.values(path, frame)[:_MOST]:
            if isinstance(alt.value, ExternalCall) and alt.value.name.rpartition(".")[2] in _OPENS:
                return True
    return False
