# ruff: noqa: INP001
"""Has tracemalloc look, now and then, at which lines have taken the memory that a Python process holds: `oomlint trace --deep` puts this on its PYTHONPATH.

Standard library only; it is run by the interpreter of the traced program before anything else, and must never keep that from starting.
"""

import os
import sys

_UNHURRIED = 3  # looks before their cost decides how often


def _watch(folder: str) -> None:
    import json  # noqa: PLC0415 - only where it is asked for
    import threading  # noqa: PLC0415
    import time  # noqa: PLC0415
    import tracemalloc  # noqa: PLC0415

    tracemalloc.start()
    begin = time.monotonic()
    done = threading.Event()
    skipped = (tracemalloc.Filter(False, tracemalloc.__file__), tracemalloc.Filter(False, __file__))  # noqa: FBT003 - its own signature

    def look() -> None:
        lines = tracemalloc.take_snapshot().filter_traces(skipped).statistics("lineno")[:40]
        rows = [(each.traceback[0].filename, each.traceback[0].lineno, each.size, each.count) for each in lines]
        # Opened each time: a forked process has a file of its own.
        with open(os.path.join(folder, str(os.getpid()) + ".jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps({"at": time.monotonic() - begin, "lines": rows}) + "\n")

    def look_again() -> None:
        pause, looks = 0.5, 0
        while not done.wait(pause):
            before = time.thread_time()
            look()
            looks += 1
            # A run of a few seconds must still show a trend, however slow the machine is.
            if looks > _UNHURRIED:
                pause = max(pause, 30 * (time.thread_time() - before))

    def start() -> None:
        threading.Thread(target=look_again, daemon=True, name="oomlint trace").start()

    start()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=start)
    import atexit  # noqa: PLC0415

    def end() -> None:
        done.set()
        look()

    atexit.register(end)


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
