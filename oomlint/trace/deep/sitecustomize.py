# ruff: noqa: INP001
"""Has tracemalloc look, now and then, at which lines have taken the memory that a Python process holds: `oomlint trace --deep` puts this on its PYTHONPATH.

Standard library only; it is run by the interpreter of the traced program before anything else, and must never keep that from starting.
"""

import os
import sys

_SHORTEST = 0.5  # seconds between two looks
_PAUSE = 15  # times what a look takes: the time between two in a long run
_PART = 0.1  # of the time so far: the most that lies between two in a short one
_ROWS = 40  # lines that a look tells of, those that hold the most
_CALLS = 5  # that lead to where memory is taken: a library's own lie between that and the program's
_GLANCE = 0.05  # seconds between two looks at whether libraries are still imported
_GLANCES = 4  # in a row in which none is


def _watch(folder: str) -> None:
    import json  # noqa: PLC0415 - only where it is asked for
    import threading  # noqa: PLC0415
    import time  # noqa: PLC0415
    import tracemalloc  # noqa: PLC0415
    from collections import defaultdict  # noqa: PLC0415

    begin = time.monotonic()
    done = threading.Event()
    own = {tracemalloc.__file__, __file__}
    standard = os.path.join(os.path.dirname(os.__file__), "")
    installed = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)

    def is_library(path: str) -> bool:
        return path.startswith((standard, "<")) or any(part in path for part in installed)

    def line(calls: "tuple[tuple[str, int], ...]") -> "tuple[str, int]":
        return next((call for call in calls if not is_library(call[0])), calls[0])

    def imports() -> bool:
        """Whether the main thread is importing a library."""
        frame = sys._current_frames().get(main)  # noqa: SLF001
        while frame is not None:
            path = frame.f_code.co_filename
            if path.startswith("<frozen importlib"):
                return True
            if frame.f_code.co_name == "<module>":
                return frame.f_globals.get("__name__") != "__main__" and is_library(path)
            frame = frame.f_back
        return False

    def start_tracing() -> None:
        # What imports take does not grow, and to trace it makes them twenty times slower: each line is looked up in the table of a long file.
        seen = 0
        while seen < _GLANCES and not done.wait(_GLANCE):
            seen = 0 if imports() else seen + 1
        tracemalloc.start(_CALLS)

    def look() -> None:
        # The bare tuples, with no new number for each block, which would be traced in its turn: a seventh of the time of `Snapshot.statistics`.
        held: defaultdict[tuple[tuple[str, int], ...], list[int]] = defaultdict(list)
        for trace in tracemalloc.take_snapshot().traces._traces:  # type: ignore[attr-defined]  # noqa: SLF001
            held[trace[2]].append(trace[1])
        lines: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for calls, sizes in held.items():
            lines[line(calls)] += sizes
        most = sorted(((sum(sizes), len(sizes), *where) for where, sizes in lines.items() if where[0] not in own), reverse=True)
        rows = [(path, row, size, count) for size, count, path, row in most[:_ROWS]]
        # Opened each time: a forked process has a file of its own.
        with open(os.path.join(folder, str(os.getpid()) + ".jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps({"at": time.monotonic() - begin, "lines": rows}) + "\n")

    def look_again() -> None:
        if not tracemalloc.is_tracing():
            start_tracing()
        pause = _SHORTEST
        while not done.wait(pause):
            before = time.thread_time()
            look()
            # A run of a few seconds must still show a trend, however slow the machine is.
            pause = max(pause, min(_PAUSE * (time.thread_time() - before), _PART * (time.monotonic() - begin)))

    def start() -> None:
        threading.Thread(target=look_again, daemon=True, name="oomlint trace").start()

    main = threading.get_ident()
    start()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=start)
    import atexit  # noqa: PLC0415

    # No look at the end: what functions held is gone by then, and after torch it takes seconds.
    atexit.register(done.set)


def _go_on() -> None:
    """Run the one that would have been found without this one."""
    from importlib.machinery import PathFinder  # noqa: PLC0415
    from importlib.util import module_from_spec  # noqa: PLC0415

    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [item for item in sys.path if os.path.abspath(item) != here])
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if os.environ.get("OOMLINT_TRACE_DEEP"):
        try:
            _watch(os.environ["OOMLINT_TRACE_DEEP"])
        except Exception as error:  # noqa: BLE001 -- the program must start whatever happens here
            sys.stderr.write("oomlint: tracemalloc is not watched: " + repr(error) + "\n")
    _go_on()
