"""The verdict of a fix, asked for in an editor: one at a time, by ``oomlint verify`` in a process of its own."""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from oomlint.finding import Place

VERIFY: Final = "oomlint.verify"
CANCEL: Final = "oomlint.cancel"
_PATIENCE: Final = 10  # seconds in which a run that is cancelled may end its processes itself
_LOOK: Final = 0.02  # seconds between looks at whether it has ended
# It ends with the server, whatever ends that, and is the command otherwise.
_COMMAND: Final = """
import sys
from oomlint.verify.signals import end_with
end_with(int(sys.argv.pop(1)))
from oomlint.__main__ import main
sys.exit(main())
"""
_LONGEST: Final = 100  # characters of a reason in a lens


class VerifiedFinding(Struct, frozen=True):
    """A finding whose fix is verified, in a file of this content."""

    code: str
    place: Place
    data: bytes


class Verifier:
    """Runs ``oomlint verify`` for one finding at a time, and knows what has come of it."""

    def __init__(self, changed: Callable[[], None], tell: Callable[[str], None]) -> None:
        """``changed`` is called when a title is another one, ``tell`` with what the user is to read."""
        self._changed = changed
        self._tell = tell
        self._verdicts: dict[VerifiedFinding, str] = {}
        self._running: VerifiedFinding | None = None
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    def title(self, subject: VerifiedFinding) -> tuple[str, str]:
        """What a lens says of a fix, and the command behind it."""
        if subject == self._running:
            return f"{subject.code}: verifying this fix... (cancel)", CANCEL
        known = self._verdicts.get(subject)
        if known is None:
            return f"{subject.code}: verify this fix", VERIFY
        return f"{subject.code}: {known if len(known) <= _LONGEST else known[: _LONGEST - 3] + '...'} (verify again)", VERIFY

    def start(self, subject: VerifiedFinding, folder: str) -> None:
        """Verify, unless something else is being verified."""
        if self._running is not None:
            self._tell("a fix is being verified already: wait for it, or cancel it")
        elif not _is_saved(subject):
            self._tell(f"{os.path.basename(subject.place.path)} is not saved: what is verified is the file")
        else:
            self._running = subject
            self._task = asyncio.ensure_future(self._verify(subject, folder))
            self._changed()

    def cancel(self) -> None:
        """End what is running."""
        if self._task is not None:
            self._task.cancel()

    async def end(self) -> None:
        """The same, once its processes are gone."""
        if self._task is not None:
            self.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def end_at_once(self) -> None:
        """The same where no loop runs any more, and nobody is left to be told."""
        self._changed = lambda: None
        self._tell = lambda text: None  # noqa: ARG005
        process = self._process
        if process is None or process.returncode is not None:
            return
        latest = time.monotonic() + _PATIENCE
        with suppress(ProcessLookupError):
            process.terminate()  # it ends what it has started
            while sys.platform != "win32" and time.monotonic() < latest:
                os.kill(process.pid, 0)  # a thread of the loop takes its status
                time.sleep(_LOOK)
            process.kill()

    async def _verify(self, subject: VerifiedFinding, folder: str) -> None:
        name = f"{subject.code} in {os.path.basename(subject.place.path)}, line {subject.place.row}"
        try:
            verdict = await self._verdict(subject, folder)
            self._verdicts = {known: said for known, said in self._verdicts.items() if known.place.path != subject.place.path or known.data == subject.data}
            self._verdicts[subject] = verdict
            self._tell(f"{name}: {verdict}")
        except asyncio.CancelledError:
            self._tell(f"{name}: cancelled")
        except (OSError, ValueError) as error:
            self._tell(f"{name}: {error}")
        finally:
            self._running = self._task = None
            self._changed()

    async def _verdict(self, subject: VerifiedFinding, folder: str) -> str:
        """The outcome and its reason. Raises ValueError with what the command says where it gives none."""
        # `-P`: Python would look for modules in the project's folder first.
        words = [
            "-P",
            "-c",
            _COMMAND,
            str(os.getpid()),
            "verify",
            "--output-format=json",
            "--quiet",
            f"--select={subject.code}",
            "--",
            f"{subject.place.path}:{subject.place.row}",
        ]
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, *words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            out, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.terminate()  # it ends what it has started
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(process.communicate(), _PATIENCE)
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        wanted = {"row": subject.place.row, "column": subject.place.column}
        found: list[dict[str, Any]] = []
        with suppress(ValueError):
            found = json.loads(out)
        verdict = next((entry["verdict"] for entry in found if (entry["code"], entry["location"]) == (subject.code, wanted)), None)
        if verdict is None:
            raise ValueError(errors.decode(errors="replace").strip()[-500:] or f"oomlint verify has ended with {process.returncode}")
        return ": ".join(filter(None, [verdict["outcome"], verdict["reason"]]))


def _is_saved(subject: VerifiedFinding) -> bool:
    try:
        with open(subject.place.path, "rb") as stream:
            return stream.read().removeprefix(codecs.BOM_UTF8) == subject.data.removeprefix(codecs.BOM_UTF8)  # editors keep it out of the text
    except OSError:
        return False
