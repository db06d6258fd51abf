"""What every kind of job does in the same way: generators at their start, attributes that are others meanwhile, and an exception told on one line."""

from __future__ import annotations

import os
import random
import sys
import traceback
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE: Final = 300  # characters of a message that are kept


def seed(number: int = 0) -> None:
    """Set all generators that the user's code may draw from; of the libraries, those that are imported."""
    random.seed(number)
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        # `torch.manual_seed` keeps a stack trace for each device that is not in use yet: a millisecond and some kilobytes a call.
        torch.default_generator.manual_seed(number)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(number)
    if numpy is not None:
        numpy.random.seed(number % 2**32)


def put(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Give an object another attribute until the stack is left; one that was not there goes again."""
    if hasattr(owner, name):
        stack.callback(setattr, owner, name, getattr(owner, name))
    else:
        stack.callback(delattr, owner, name)
    setattr(owner, name, value)


@contextmanager
def swapped(*others: tuple[Any, str, Any]) -> Iterator[None]:
    """Meanwhile these objects have other attributes of these names."""
    with ExitStack() as stack:
        for other in others:
            put(stack, *other)
        yield


def words(error: BaseException, most: int = LINE) -> str:
    """An exception on one line; of one in a worker, the worker's own.

    Files are named as in the project: a copy before a fix and one after it have folders that differ, and that say nothing to anyone.
    """
    try:
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:  # noqa: BLE001 -- of the user's class
        text = type(error).__name__
    if "Original Traceback" in text:
        text = [line for line in text.splitlines() if line.strip() and not line[0].isspace()][-1]
    if root := os.environ.get("OOMLINT_ROOT"):
        text = text.replace(os.path.join(root, ""), "")
    return " ".join(text.split())[:most]


def rows(error: BaseException, root: str) -> list[traceback.FrameSummary]:
    """The rows of files below a folder that an exception came through, outermost first."""
    top = os.path.join(os.path.realpath(root), "")
    found = traceback.extract_tb(error.__traceback__)
    return [frame for frame in found if frame.lineno and frame.filename[:1] != "<" and os.path.realpath(frame.filename).startswith(top)]


def place(error: BaseException, *roots: str) -> str:
    """The innermost of these rows below the first folder that it came through: ``data.py:12``; empty where it came through none."""
    found = next(((frames[-1], root) for root in roots if (frames := rows(error, root))), None)
    return f"{os.path.relpath(os.path.realpath(found[0].filename), os.path.realpath(found[1]))}:{found[0].lineno}" if found else ""


def located(error: BaseException, *roots: str) -> str:
    """``ValueError: what it says (data.py:12)``."""
    spot = place(error, *roots)
    return f"{words(error)} ({spot})" if spot else words(error)
