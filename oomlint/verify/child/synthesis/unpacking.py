"""What a row of code is about to unpack a value into."""

from __future__ import annotations

import dis
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def unpacked(frame: FrameType | None) -> tuple[int, list[str]]:
    """Whether a frame is about to unpack a value: to how many names, and which; 0 if it goes through it otherwise."""
    if frame is None or frame.f_lasti < 0:
        return 0, []
    code = frame.f_code.co_code
    operation = dis.opname[code[frame.f_lasti]]
    if operation not in ("UNPACK_SEQUENCE", "UNPACK_EX"):
        return 0, []
    count = code[frame.f_lasti + 1]
    if operation == "UNPACK_EX":
        return count + 2, []
    names: list[str] = []
    skip = 0
    for step in dis.get_instructions(frame.f_code):
        if step.offset <= frame.f_lasti or len(names) >= count:
            continue
        if step.opname.startswith("UNPACK_"):
            skip += step.arg or 0
            names.append("")
        elif step.opname.startswith("STORE_"):
            stored = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            for name in stored[: 2 if step.opname == "STORE_FAST_STORE_FAST" else 1]:
                if skip:
                    skip -= 1
                else:
                    names.append(str(name))
        elif step.opname not in ("CACHE", "EXTENDED_ARG", "SWAP", "NOP") and not step.opname.startswith("LOAD_"):
            break
    return count, names[:count]
