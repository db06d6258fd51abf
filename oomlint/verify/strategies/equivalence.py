"""Whether a loop did the same before and after: its result, what it printed, its exceptions and the state of the random generators."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.thresholds import Sameness, close, close_text, first_difference, same

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    Answer = Mapping[str, Any]  # of loops:measure


@dataclass(frozen=True, slots=True)
class Behaviour(Sameness):
    """How two runs of a loop compare."""

    rounding: bool = False  # they differ, by no more than another order of the same arithmetic does
    plain: str = ""  # they agree, but that numbers stand in place of tensors of one number: the part, as in "returned"
    objects: tuple[str, ...] = ()  # variables whose numbers are not known: they are passed over where all else agrees
    dtypes: str = ""  # values agree, and are of other dtypes: "`returned` is float64 (8,) before, int64 (8,) after"


_GRAPH: Final = re.compile(r", (?:grad_fn=<\w+>|requires_grad=True)")
_OF_ONE: Final = re.compile(r"\btensor\(([-+]?[\d.]+(?:[eE][-+]?\d+)?)(?:, (?:device='[\w:]+'|dtype=torch\.\w+))*\)")
_NUMBER: Final = re.compile(r"(?:(?<!\w)|(?<=\dT))\d+(?:\.\d+)?")  # not of a name
_BESIDE: Final = "beside the loop: "  # what has failed there, as oomlint.verify.child.driving.loop_job has it
_OPEN: Final = "open stand-ins in"  # as oomlint.verify.child.driving.loop_job has it
_EMPTY: Final = re.compile(r"\((?:\w+ )*of 0\)$")
_FIRM: Final = ("file ", "state of ", "global ", "self.")  # a fix may do without a variable
_DRAWS: Final = "the state of the random generators was not compared: each pass over a loader draws from them"
_DTYPE: Final = re.compile(r"\b(?:u?int|b?float|complex)\d+\b|\bbool(?= \()")
_SINGLE: Final = re.compile(r"\bb?float\d+ \(\)")  # a tensor without dimensions
_CLASS: Final = re.compile(r"(?!str$|None|bool$)[A-Za-z_]\w*")  # an object, as it is described
_TIMES: Final = "numbers in the printed text were not compared: they differ between two runs of the same program"


def compare(first: Answer, second: Answer, after: Answer, *, emptied: Collection[str] = (), draws: bool = True, types: bool = True) -> Behaviour:
    """Compare a run of the program after with one before; two runs before say what repeats at all.

    ``emptied``: names of what a fix may leave empty, without quotes. ``draws``: whether as many random numbers have to be drawn. ``types``:
    whether numbers of another type are more than rounding; without it other dtypes are told.
    """
    old, again, new = (parts(item) for item in (first, second, after))
    if {name for name in old if name.startswith(_OPEN)} != {name for name in new if name.startswith(_OPEN)}:
        return Behaviour(None, "what the loop keeps was replaced by a stand-in, and is of another kind after the fix")
    empty = [name for name, line in new.items() if name.strip("`") in emptied and _EMPTY.search(line) and line != old.get(name)]
    old, again, new = ({name: line for name, line in item.items() if name not in empty} for item in (old, again, new))
    notes = tuple(f"`{name.strip('`')}` is emptied on purpose: it was not compared" for name in empty)
    retyped = [name for name in new if _is_local(name) and name != "`self`" and old.get(name, new[name]) != new[name] and _agree(first, after, name)]
    if first.get("program"):  # what follows in the script or in another cell works with them
        retyped = [name for name in retyped if not _retyped(old[name], new[name])]
    old, again, new = ({name: line for name, line in item.items() if name not in retyped} for item in (old, again, new))
    notes += tuple(f"{name} is of another type after: a variable, whose values agree" for name in retyped)
    found = _compared(first, second, after, (old, again, new), draws=draws, types=types)
    if found.same or found.rounding:
        words = _left(first, second, after, emptied)
        found = replace(found, same=False, words=words, rounding=False, dtypes="") if words else found
    for name in empty if found.same or found.rounding else ():
        lost = next((kind for kind in ("fills", "reads") if _used(first, kind, name) and not _used(after, kind, name)), "")
        if lost:
            return Behaviour(None, f"nothing {lost} `{name.strip('`')}` after the fix: whether it is still of use was not found out")
    return replace(found, left_out=(*notes, *found.left_out))


def _compared(first: Answer, second: Answer, after: Answer, found: tuple[dict[str, str], ...], *, draws: bool, types: bool) -> Behaviour:
    old, again, new = found
    shared = [name for name in old if name in new or not _is_local(name)]
    shared += [name for name in new if name not in old and not _is_local(name)]
    one, two, three = ([item.get(name, f"{name}: nothing") for name in shared] for item in (old, again, new))
    result = same(one, two, three, "the result")
    if result.same is None:
        return Behaviour(None, result.words)
    tail = same([str(first.get("generators"))], [str(second.get("generators"))], [str(after.get("generators"))], "the state of the random generators")
    if tail.same is None and draws:
        return Behaviour(None, tail.words)
    printed, reprinted, text = (_text(item) for item in (first, second, after))
    repeats = _said(first) == _said(second) or printed == reprinted
    if not repeats and not close_text(printed, reprinted, tolerance=math.inf):
        return Behaviour(None, "the printed text differs between two runs of the same program")
    left_out: tuple[str, ...] = () if repeats else (_TIMES,)
    if not tail.same and not draws:
        left_out += (_DRAWS,)
    elif not tail.same:
        return Behaviour(same=False, words="the random generators end in another state", left_out=left_out)
    spoken = _said(first) == _said(after) or (printed == text if repeats else close_text(printed, text, tolerance=math.inf))
    spoken = spoken or (printed != _in_full(first) and close_text(printed, text, tolerance=0.0))  # numbers for tensors
    if result.same and spoken:
        return Behaviour(same=True, left_out=left_out)
    words = result.words or f"the printed text differs: {first_difference(printed.splitlines(), text.splitlines())}"
    objects = [] if first.get("program") else [name for name in shared if _is_object(first, after, name)]
    shared = [name for name in shared if name not in objects]
    near = (result.same or _near(first, after, shared, types=types)) and (spoken or close_text(printed, text))
    other = next((name for name in shared if _retyped(old.get(name, ""), new.get(name, ""))), "") if near else ""
    dtypes = f"{other if _is_local(other) else f'`{other}`'} is {_kind(old[other])} before, {_kind(new[other])} after" if other else ""
    plain = "" if near or not (spoken or close_text(printed, text)) else _plain(first, after, shared)
    return Behaviour(same=False, words=words, rounding=near, left_out=left_out, dtypes=dtypes, plain=plain, objects=tuple(objects))


def _used(answer: Answer, kind: str, name: str) -> bool:
    """Whether the program fills or reads what has this name."""
    return name.strip("`") in ((answer.get("uses") or {}).get(kind) or ())


def _left(first: Answer, second: Answer, after: Answer, emptied: Collection[str]) -> str:
    """What the loop leaves behind that differs: in objects, globals and files; empty where nothing does. What does not repeat itself is passed over."""
    old, again, new = (answer.get("left") or {} for answer in (first, second, after))
    elsewhere = any(name.startswith("file ") and name not in old for name in new)  # what is kept no longer may be written as it comes, to files of its own
    for name, (shape, numbers) in old.items():
        if name not in again or name.partition(" ")[2].strip("`") in emptied or name in emptied:
            continue
        if name not in new and name.startswith("file ") and elsewhere:
            continue
        if name not in new and name.startswith(_FIRM):
            return f"{name} is {'written' if name.startswith('file ') else 'changed'} before, and not after"
        repeats = again[name][0] == shape and close(numbers, again[name][1])
        if repeats and name in new and (new[name][0] != shape or not close(numbers, new[name][1])):
            return f"{name} is left with other values"
    return ""


def parts(answer: Answer) -> dict[str, str]:
    """The lines of a result, "name: digest (description)", by name."""
    found = answer.get("result") or []
    lines = [str(item) for item in (found if isinstance(found, list) else [found])]
    return {line.partition(": ")[0]: unnumbered(line) if line.startswith(_BESIDE) else line for line in lines}


def unnumbered(failure: str) -> str:
    """What a failure says, without the numbers of its row, of a job and of a clock."""
    return _NUMBER.sub("", failure)


def _kind(line: str) -> str:
    """What a line says of types and shapes."""
    return line.partition(" (")[2].removesuffix(")")


def _retyped(before: str, after: str) -> bool:
    """Whether two lines tell of arrays or tensors of other dtypes."""
    old, new = (_DTYPE.findall(_kind(line)) for line in (before, after))
    return bool(old and new) and old != new


def _is_local(name: str) -> bool:
    """Whether a part is a variable of the function: a fix may do without it, or need another."""
    return name.startswith("`")


def _said(answer: Answer) -> str:
    return str((answer.get("printed") or {}).get("digest"))


def _text(answer: Answer) -> str:
    """What was printed. That a tensor has a graph is shown with it, and is what a fix is to change; so is that one of one number is none."""
    return _OF_ONE.sub(r"\1", _in_full(answer))


def _in_full(answer: Answer) -> str:
    return _GRAPH.sub("", str((answer.get("printed") or {}).get("text") or ""))


def _is_object(first: Answer, after: Answer, name: str) -> bool:
    """Whether a part is a variable of one class before and after, in other states, and without numbers that could be compared."""
    old, new = parts(first).get(name, ""), parts(after).get(name, "")
    numbers = [(answer.get("numbers_by") or {}).get(name) for answer in (first, after)]
    return _is_local(name) and name != "`self`" and bool(_CLASS.fullmatch(_kind(old))) and old != new and _kind(old) == _kind(new) and not any(numbers)


def _agree(first: Answer, after: Answer, name: str) -> bool:
    """Whether the numbers of a part agree, of whatever type they are."""
    old, new = ((answer.get("numbers_by") or {}).get(name) for answer in (first, after))
    return bool(old and new) and close(old or (), new or ())


def _plain(first: Answer, after: Answer, shared: list[str]) -> str:
    """Parts with a number in place of a tensor of one number, where the numbers of all parts agree; empty where they do not."""
    kinds, others = parts(first), parts(after)
    changed = [name for name in shared if _kind(kinds.get(name, "")) != _kind(others.get(name, ""))]
    for name in changed:
        if _SINGLE.sub("float", _kind(kinds.get(name, ""))) != _kind(others.get(name, "")) or not _agree(first, after, name):
            return ""
    return ", ".join(changed) if changed and _near(first, after, shared, types=False) else ""


def _near(first: Answer, after: Answer, shared: list[str], *, types: bool) -> bool:
    kinds, others = parts(first), parts(after)
    if types and any(_kind(kinds.get(name, "")) != _kind(others.get(name, "")) for name in shared):
        return False  # a number for a tensor, or other digits
    old, new = (answer.get("numbers_by") or {} for answer in (first, after))
    # What has no numbers has nothing to be rounded.
    return all(close(old[name], new[name]) if old.get(name) and new.get(name) else kinds.get(name) == others.get(name) for name in shared)
