"""OOM307 h5-open-unclosed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from oomlint.api_names import PYTABLES
from oomlint.finding import Confidence, Consequence, Message, Multiplier, Resource, Role, Safety, Severity, Weighs
from oomlint.measurement import HANDLES, DatasetSign, FunctionSign, Measurement, Trait
from oomlint.memory.facts import opening_fact
from oomlint.memory.fixes.with_fixes import under_with
from oomlint.memory.handles.dataset_handles import handles_of
from oomlint.memory.handles.open_file_collections import keeps_many
from oomlint.memory.handles.openings import openings_of
from oomlint.memory.handles.resource_state import End
from oomlint.memory.handles.unclosed import closed_after_loop, ends_with_function, opened_once, passed_by, runs_for_samples, unclosed
from oomlint.model.test_suites import holds_tests
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.memory.handles.openings import Opening
    from oomlint.memory.handles.resource_state import Trail
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope


_MANY = Weighs(Consequence.MULTIPLIED, Resource.HANDLE, (Multiplier.FILES,))


class H5OpenUnclosed(Rule):
    """An HDF5 file is opened, and nothing closes it.

    ## What it does

    Checks for functions that open an `h5py.File` or a PyTables file, or build an object of one, and leave the closing to chance: no `with`, no `close()`
    on the way out, nobody else who takes the file over. `h5py.File(path)["x"][i]` in one expression counts too. It is a warning where a dataset opens the
    file for every sample, where it can be written to, where an object of it leaves the function, and with PyTables. A file that is only read otherwise, be
    it in a loop, is a note, not shown by default: CPython closes it with the next round.

    It is silent in tests; where the file is closed in any way, be it by a function that gets it, `contextlib.closing`, an `ExitStack`, `atexit` or
    `del`; where the file itself is returned or yielded, or kept on an object or in a container, which other rules look at; where it is given to what
    cannot be looked into; and at the top level of a module, except where it takes the name of the `with` around it, which then closes something else.

    ## Why is this bad

    It is not a leak of descriptors, whatever it is often called: CPython closes the file as soon as the last reference to it is gone, and 1000 calls of
    such a function left 0 descriptors open (measured with h5py 3.16). What it does cost:

    - *Written files*: what is not flushed is lost when the process is killed. Twenty datasets, written without `close()` before a `SIGKILL`, left
      a file that could not be opened at all; after `flush()` all twenty were there.
    - *Returned objects*: an `h5py.Dataset` that leaves the function keeps the file open, with up to 8 MiB of chunk cache (HDF5 2.0).
    - *Exceptions*: an exception that is kept also keeps the file open, by the frames of its traceback. To open the file for writing then raises
      `OSError: ... file is already open for read-only`.
    - *Other interpreters*, like PyPy, close the file at some later time.
    - *PyTables*: its register of open files holds each file that `tables.open_file` opens until it is closed or the program ends; here it *is* a leak.

    To open, read and close a file takes about half a millisecond, with or without `with`.

    ## Example

    ```python
    import h5py
    import torch
    from torch.utils.data import Dataset


    class Scans(Dataset):
        def __init__(self, paths):
            self.paths = paths

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, index):
            f = h5py.File(self.paths[index], "r")
            return torch.from_numpy(f["scan"][:]), int(f["label"][()])
    ```

    ## Use instead

    ```python
    import h5py
    import torch
    from torch.utils.data import Dataset


    class Scans(Dataset):
        def __init__(self, paths):
            self.paths = paths

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, index):
            with h5py.File(self.paths[index], "r") as f:
                return torch.from_numpy(f["scan"][:]), int(f["label"][()])
    ```

    ## Fix safety

    The opening becomes a `with` statement around all that uses the file. It is safe where each use is proven to give arrays, numbers or names
    (`f["x"][:]`, `f["x"].shape`, `list(f.keys())`), and unsafe elsewhere: an `h5py.Dataset` or a group that leaves is of no use after the `with`, although
    it is valid without one for as long as somebody holds it, and a file without a name is closed later than before.

    Where an object of the file is known to leave, where functions inside the function use the file, or where its uses are in several blocks, the fix is
    advice only.

    ## References

    - [h5py: closing files](https://docs.h5py.org/en/stable/high/file.html#closing-files)
    - [ruff: open-file-with-context-handler (SIM115)](https://docs.astral.sh/ruff/rules/open-file-with-context-handler/)
    """

    code = "OOM307"
    slug = "h5-open-unclosed"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.SAFE
    help = "open it in a `with` block"
    weighs = Weighs(Consequence.ONCE, Resource.HANDLE)
    measured_as = Measurement(
        dataset=(DatasetSign.DESCRIPTORS, DatasetSign.INTERRUPTED),
        function=FunctionSign.HANDLES,
        growth=HANDLES,
        error="Too many open files|unable to open file|unable to lock file",
        traits=frozenset({Trait.AT_ROW, Trait.CLOSED_BY_PYTHON, Trait.IN_WORKERS}),
    )

    def check(self, module: Module, project: Project) -> Iterator[Finding]:
        """Yield the calls that open an HDF5 file which nothing closes."""
        if not any(word in module.source.text for word in ("File", "open_file", "openFile")) or holds_tests(module):
            return
        told: dict[tuple[Scope, tuple[str, ...], str], Finding] = {}
        for opening in openings_of(project).of(module):
            trail = unclosed(opening, project)
            if trail is None or _told(opening, project):
                continue
            related = []
            spot = passed_by(opening, trail)
            if spot is not None:
                related.append(module.place(spot, "closes the last one only" if closed_after_loop(opening, trail) else "leaves it open"))
            unsure = {End.UNKNOWN, End.MAYBE_KEPT} & trail.ends.keys()
            confidence = Confidence.MEDIUM if unsure else Confidence.HIGH
            once = opened_once(opening, project)
            rare = once or (opening.name not in PYTABLES and not runs_for_samples(opening, project))
            harmless = (opening.reads_only and End.HANDED_OUT not in trail.ends and rare) or (
                not opening.reads_only and ends_with_function(opening, trail, project)
            )
            severity = Severity.NOTE if harmless else Severity.WARNING
            fix = under_with(opening, trail) if opening.name not in PYTABLES else None  # a node that leaves is of use only while its file is open
            facts, place = [opening_fact(opening)], module.place(opening.call)
            message, weighs = _message(opening, trail), None if once else _MANY
            found = self.finding(place, message, severity=severity, confidence=confidence, related=related, fix=fix, facts=facts, weighs=weighs)
            # Each branch of a function opens a file of its own under one name: one handle, told once.
            same = opening.scope, tuple(trail.names) or (str(place),), str(message)
            first = told.setdefault(same, found)
            if first is not found:
                told[same] = replace(first, related=(*first.related, place.saying("opened here, too", Role.AGAIN)))
        yield from told.values()


def _told(opening: Opening, project: Project) -> bool:
    """Whether a rule on what a dataset keeps speaks of this file."""
    return keeps_many(opening, project) or any(handle.opening is opening for handle in handles_of(project).of(opening.module))


def _message(opening: Opening, trail: Trail) -> Message:
    """What is not closed, and what it costs, although CPython mostly closes it."""
    mode = f" (mode `{opening.mode}`)" if opening.mode is not None else ""
    if End.CLOSED in trail.ends and closed_after_loop(opening, trail) is None:
        headline = f"This HDF5 file{mode} is not closed on every path"
    elif End.CLOSED in trail.ends:
        headline = f"`close()` after the loop closes only its last HDF5 file{mode}"
    elif End.HANDED_OUT in trail.ends and opening.name not in PYTABLES:
        held = "the file stays open as long as the object lives, with up to 8 MiB of chunk cache"
        return Message(f"An object of this unclosed HDF5 file{mode} leaves the function", held)
    else:
        headline = f"This HDF5 file{mode} has no `with` and no `close()`"
    if opening.name in PYTABLES:
        return Message(headline, "the register of PyTables holds it, and so keeps it open, until the program ends")
    if opening.mode is not None and not opening.reads_only:
        lost = "the new file is unreadable" if opening.mode.startswith(("w", "x")) else "what was written is lost"
        return Message(headline, f"if the process is killed before CPython closes it, {lost}")
    last = f" to `{trail.names[0]}`" if trail.names else ""
    return Message(headline, f"CPython closes it with the last reference{last}; PyPy or a kept traceback leaves it open")
