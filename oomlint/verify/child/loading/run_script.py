"""Runs a user's file as ``python file arguments`` or ``python -m module arguments`` would."""

from __future__ import annotations

import os
import runpy
import sys
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(path: str = "", arguments: Sequence[str] = (), module: str = "") -> dict[str, int]:
    """Run to the end, as the main module. Gives the status it exits with; what it raises goes through."""
    os.environ.pop("OOMLINT_ROOT", None)  # workers load the project as they ever do
    try:
        if module:
            sys.path.insert(0, os.getcwd())
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            _run_file(os.path.abspath(path), arguments)
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return {"status": left.code or 0}
        sys.stderr.write(f"{left.code}\n")
        return {"status": 1}
    return {"status": 0}


def _run_file(path: str, arguments: Sequence[str]) -> None:
    """The module stays in place afterwards: threads and exit functions of the user still look for it."""
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(path))
    with open(path, "rb") as file:
        program = compile(file.read(), path, "exec", dont_inherit=True)
    exec(program, main.__dict__)  # noqa: S102 - what this process is for
