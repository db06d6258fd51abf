"""Tries the attacks of a hostile project in jobs, as whoever runs this file. Reads what to do from a file of JSON, and prints what each attack came to."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

from oomlint.verify.jobs import Job, Limits
from oomlint.verify.sandbox.view import of_project
from oomlint.verify.sandbox_runner import SandboxRunner


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        asked = json.load(file)
    results = {}
    with SandboxRunner(sys.executable, view=of_project(asked["project"]), shared_memory=2**24, unsandboxed=asked["unsandboxed"]) as runner:
        folder = os.path.join(runner.place, "copy")
        os.mkdir(folder)
        for name, program in asked["attacks"].items():
            attack = os.path.join(folder, "attack.py")
            with open(attack, "w", encoding="utf-8") as file:
                file.write(program)
            done = runner.run(Job("loading.run_script:run", {"path": attack}, folder, Limits(seconds=30, disk=2**25)))
            results[name] = {"ended": done.ended, "printed": done.printed, "failure": done.failure}
        sys.stdout.write(json.dumps({"sandbox": asdict(runner.sandbox), "results": results}))


if __name__ == "__main__":
    main(sys.argv[1])
