# ruff: noqa: INP001
"""Makes the harness importable under its own names, and nothing else of the folder that it lies in.

The folder of this file goes on PYTHONPATH of a job: workers that are started by ``spawn`` and ``forkserver`` run it before anything else. The folder above the
package may be the site-packages of another interpreter, so it never goes on the path. Old interpreters may get here too: nothing newer than Python 3.6.
"""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location


class Finder:
    """Finds the package itself; what is in it is then found in the ordinary way."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":  # noqa: ARG002 -- the protocol of the import system
        """The import system asks this for every module."""
        if name != "oomlint":
            return None
        return spec_from_file_location(name, os.path.join(self.package, "__init__.py"), submodule_search_locations=[self.package])


def enter(package: str) -> None:
    """Make ``import oomlint.verify...`` mean the package in that folder."""
    sys.meta_path.insert(0, Finder(package))


def _install(package: str, root: str) -> None:
    enter(package)
    if not root or sys.version_info < (3, 10) or not os.path.exists(os.path.join(package, "verify", "child", "loading", "tolerant_import.py")):
        return
    try:
        from oomlint.verify.child.loading import tolerant_import  # noqa: PLC0415

        tolerant_import.install(root)
    except Exception as error:  # noqa: BLE001 -- a worker must start whatever happens here
        sys.stderr.write("the loader of the harness is not installed: " + repr(error) + "\n")


def _go_on() -> None:
    """Run the one that would have been found without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [item for item in sys.path if os.path.abspath(item) != here])
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if os.environ.get("OOMLINT_PACKAGE"):
        _install(os.environ["OOMLINT_PACKAGE"], os.environ.get("OOMLINT_ROOT", ""))
    _go_on()
