"""Archives of arrays: what `numpy.load` opens, and never maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.model import arguments
from oomlint.model.values import Const, Each, ExternalCall, SourceExpression

if TYPE_CHECKING:
    import libcst as cst

    from oomlint.model.questions import Questions
    from oomlint.model.values import Frame, Value

_MOST = 8  # paths that a call is given


def loads_archive(call: cst.Call, frame: Frame, evaluator: Questions) -> bool:
    """Whether `numpy.load` is given the path of an `.npz`, as it is written or as one of its values says: then `mmap_mode` does nothing.

    Where nothing is known of the callers, all are asked that are in sight.
    """
    path = arguments.argument_for(call, "file", place=0)
    if path is None:
        return False
    if ".npz" in frame.module.code(path):
        return True
    frames = evaluator.calls.frames(frame.module, frame.scope, most=_MOST) if frame.bound is None else [frame]
    texts = [_text(alt.value) for one in frames for alt in evaluator.values(path, one)[:_MOST]]
    return any(".npz" in text for text in texts) and not any(".npy" in text for text in texts)


def _text(path: Value) -> str:
    """What is written where a path comes from: the path, what it is put together of, or the listing that a loop goes through."""
    if isinstance(path, Const):
        return str(path.value)
    if isinstance(path, ExternalCall):
        return path.frame.module.code(path.call)
    node = path.iterable if isinstance(path, Each) else path.node if isinstance(path, SourceExpression) else None
    return path.frame.module.code(node) if isinstance(path, Each | SourceExpression) and path.frame is not None and node is not None else ""
