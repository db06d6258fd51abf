"""What `numpy.load` maps into memory, and what it never maps: archives of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.model import arguments
from oomlint.model.values import Const, Each, ExternalCall, SourceExpression, is_usual
from oomlint.syntax.nodes import texts_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    import libcst as cst

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.values import Frame, Value

_MOST = 8  # paths that a call is given


def loads_archive(call: cst.Call, frame: Frame, evaluator: Evaluator) -> bool:
    """Whether `numpy.load` is given the path of an `.npz`, as it is written or as one of its values says: then `mmap_mode` does nothing.

    Where nothing is known of the callers, all are asked that are in sight.
    """
    path = arguments.argument_for(call, "file", place=0)
    if path is None:
        return False
    if _names_archive(texts_in(path)):
        return True
    frames = evaluator.calls.frames(frame.module, frame.scope, most=_MOST) if frame.bound is None else [frame]
    found = [text for one in frames for alt in evaluator.values(path, one)[:_MOST] for text in _texts(alt.value)]
    return _names_archive(found) and not any(".npy" in text for text in found)


def maps_file(call: cst.Call, frame: Frame, evaluator: Evaluator) -> bool | None:
    """Whether `numpy.load` maps a file in a plain run; ``None`` where nobody knows, or whoever runs it has the choice."""
    mode = arguments.argument_for(call, "mmap_mode", place=1)
    if mode is None or loads_archive(call, frame, evaluator):
        return False
    frames = evaluator.calls.frames(frame.module, frame.scope, most=_MOST) if frame.bound is None else [frame]
    found = [alt for one in frames or [frame] for alt in evaluator.values(mode, one)[:_MOST]]
    usual = [alt.value for alt in found if is_usual(alt.picks)] or [alt.value for alt in found]
    asked = {value.value is not None if isinstance(value, Const) else None for value in usual}
    return asked.pop() if len(asked) == 1 else None


def _names_archive(texts: Iterable[str]) -> bool:
    return any(".npz" in text for text in texts)


def _texts(path: Value) -> Iterable[str]:
    """The strings that a path comes from: its own, those that it is put together of, or of the listing that a loop goes through."""
    if isinstance(path, Const):
        return [str(path.value)]
    node = (
        path.call if isinstance(path, ExternalCall) else path.iterable if isinstance(path, Each) else path.node if isinstance(path, SourceExpression) else None
    )
    return texts_in(node) if node is not None else ()
