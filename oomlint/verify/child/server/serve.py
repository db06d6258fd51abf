"""The first file that runs under the interpreter of the checked project. Whatever its version, it must get as far as saying that it is too old.

``serve.py server DESCRIPTOR`` forks jobs; ``serve.py job FILE`` is one job in a fresh interpreter. Both are confined already.
Nothing newer than Python 3.6.
"""

import json
import os
import sys

OLDEST = (3, 10)


def main() -> None:
    """Check the version, make the package importable, go on."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [item for item in sys.path if os.path.abspath(item or ".") != here]  # its modules have names that others have too
    if sys.version_info < OLDEST:
        message = "Python {}.{} is too old: jobs need {}.{} or newer".format(sys.version_info[0], sys.version_info[1], *OLDEST)
        os.write(int(sys.argv[2]), (json.dumps({"error": message}) + "\n").encode())
        return
    from importlib.util import module_from_spec, spec_from_file_location  # noqa: PLC0415

    child = os.path.dirname(here)
    spec = spec_from_file_location("oomlint_bootstrap", os.path.join(child, "bootstrap", "sitecustomize.py"))
    if spec is None or spec.loader is None:
        raise ImportError("the harness has lost its bootstrap")
    bootstrap = module_from_spec(spec)
    spec.loader.exec_module(bootstrap)
    bootstrap.enter(os.path.dirname(os.path.dirname(child)))
    from oomlint.verify.child.server import job, service  # noqa: PLC0415

    if sys.argv[1] == "server":
        service.serve(int(sys.argv[2]))
    else:
        job.perform(job.read_job(sys.argv[2]))


if __name__ == "__main__":
    main()
