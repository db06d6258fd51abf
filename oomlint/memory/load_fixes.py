"""What the rules on loaded data propose: maps in place of copies, arrays that are allocated once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.finding import Fix, Safety
from oomlint.syntax.edits import Text

if TYPE_CHECKING:
    from oomlint.memory.arrays import Load

_FILLED: Final = Fix(Safety.DISPLAY, "allocate the array once, from the shape and type of the first file, and fill it in the loop", ())
_PER_SAMPLE: Final = Fix(Safety.DISPLAY, "keep the paths, and read one sample in `__getitem__`", ())


def filled() -> Fix:
    """Advice for a list that becomes an array."""
    return _FILLED


def lazily(load: Load) -> Fix | None:
    """Advice for a data set that is read whole."""
    return _PER_SAMPLE if load.many else None


def torch_mapped(load: Load) -> Fix | None:
    """``torch.load(path)`` → ``torch.load(path, mmap=True)``; ``None`` where a file is already open, or the arguments are not plain."""
    call = load.node
    if not isinstance(call, cst.Call) or load.read is None or load.read.name != "torch.load" or any(a.star for a in call.args):
        return None
    given = {a.keyword.value for a in call.args if a.keyword is not None}
    if given & {"mmap", "f"} or not call.args or call.args[0].keyword is not None:
        return None
    path = call.args[0].value
    if isinstance(path, cst.Call) and not load.module.code(path.func).endswith(("join", "Path", "str", "format", "abspath", "expanduser")):
        return None
    text = Text(load.module.tree)
    last = text.span(call.args[-1].value)[1]
    return Fix(Safety.UNSAFE, "map the file: what is indexed is read", (text.replaced(last, last, ", mmap=True"),))
