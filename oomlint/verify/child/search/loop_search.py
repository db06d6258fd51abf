"""The search for stand-ins: trials in forked processes, led by the exceptions that they end with."""

from __future__ import annotations

import ast
import contextlib
import heapq
import io
import itertools
import json
import os
import select
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify import ast_names
from oomlint.verify.child.driving.piece_runner import run
from oomlint.verify.child.measuring.line_coverage import Rows
from oomlint.verify.child.search.hill_climb import forked
from oomlint.verify.child.search.loop_mutations import moves

if TYPE_CHECKING:
    from collections.abc import Callable

    from oomlint.verify.child.driving.piece_runner import Outcome, Program
    from oomlint.verify.child.measuring.line_coverage import Asked

    State = dict[str, Any]

STEPS: Final = 4  # of a trial
LIMIT: Final = 1.5  # seconds of processor time of a trial
WALL: Final = 2  # times as long may it take on a machine that others use too
PATIENCE: Final = 1.5  # times as long as its processor time may a search take by the clock
ENOUGH: Final = 3  # steps that a loop has to come to, unless it ends by itself
AGAIN: Final = "backward through the graph a second time"
ESSENTIAL: Final = (".backward(", ".step(", "zero_grad(", ".append(", ".extend(", "return", "yield", "+=")


@dataclass(slots=True)
class SearchResult:
    """The end of a search."""

    state: State | None
    report: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    failing: State | None = None  # with which the loop runs into the graph that an earlier step has freed: no other input fixes that


def trial(program: Program, state: State, steps: int = STEPS, limit: float = LIMIT, epochs: int = 1, asked: Asked | None = None) -> dict[str, Any]:
    """Run the piece in a process of its own, and report. ``asked``: which rows of files to look out for."""
    beat, pulse = os.pipe()
    program.prepare(state)
    sys.stdout.flush()
    sys.stderr.flush()

    def ran() -> dict[str, Any]:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return _report(program, state, steps, epochs, Rows(program.root, asked or {}), lambda key: _beat(pulse, key))

    report: dict[str, Any] = forked(ran, WALL * limit, limit)
    os.close(pulse)
    last = os.read(beat, 65536).decode() if select.select([beat], [], [], 0)[0] else ""
    os.close(beat)
    if "late" in report:
        return {"hung": report["late"], "died": not report["late"], "at": last.rstrip("\n").rpartition("\n")[2]}
    return {"broken": report["crash"]} if "crash" in report else report


def _beat(descriptor: int, key: str) -> None:
    os.set_blocking(descriptor, False)
    with contextlib.suppress(OSError):
        os.write(descriptor, (key or "loop").encode() + b"\n")


def _report(program: Program, state: State, steps: int, epochs: int, rows: Rows, pulse: Callable[[str], None]) -> dict[str, Any]:
    sys.settrace(rows.trace)
    try:
        outcome = run(program, state, steps=steps, epochs=epochs, pulse=pulse)
    finally:
        sys.settrace(None)
    guide, book = outcome.guide, outcome.book
    report: dict[str, Any] = {
        "steps": guide.taken,
        "finished": guide.finished,
        "marks": guide.marks,
        "more": guide.more,
        "own": sum(code.co_filename == program.path and code.co_name in (outcome.piece.name, "<module>") for code, _ in rows.seen),
        "rows": len(rows.seen),
        "learned": {path: spec for path, spec in book.learned.items() if state["specs"].get(path) != spec},
        "touched": book.touched[-40:],
        "failures": [*guide.failures.values()],
        "failed": [*guide.failures],
        "slow": guide.slow,
        "left_out": [*guide.left_out],
        "branches": [*guide.branches],
        "capped": outcome.counts.capped,
        "pinned": outcome.counts.pinned,
        "run": rows.run(program.path, guide.passed),
        "error": None,
    }
    if outcome.error is not None:
        report["error"] = _error(program, outcome)
    return report


def _error(program: Program, outcome: Outcome) -> dict[str, Any]:
    """The exception, and what stands where it was raised."""
    error = outcome.error
    own = [row for file, row in outcome.frames if os.path.join(program.root, file) == program.path]
    chain = ast_names.around(program.tree, own[0]) if own else []
    statement = chain[-1] if chain else None
    names = _names(_own(statement)) if statement is not None else []
    text = ast_names.head(statement) if isinstance(statement, ast.stmt) else ""
    row_in = isinstance(statement, ast.stmt) and ast_names.first_row(statement) <= program.row <= (statement.end_lineno or 0)
    return {
        "kind": type(error).__name__,
        "message": str(error)[:600],
        "row": own[0] if own else 0,
        "where": f"{outcome.frames[-1][0]}:{outcome.frames[-1][1]}" if outcome.frames else "",
        "key": outcome.key,
        "names": names,
        "touched": outcome.book.touched[-40:],
        "defaults": [*ast_names.defaults(outcome.piece.arguments)] if outcome.piece.arguments else [],
        "choices": program.choices,
        "head": isinstance(statement, (ast.For, ast.While)),
        "deep": len(outcome.frames) > 1,
        "makers": _makers(program, outcome, names),
        "cost": time.process_time(),
        "dispensable": bool(text)
        and not row_in
        and not isinstance(statement, (ast.Raise, ast.Return, ast.Break, ast.Continue))
        and not any(word in ast.unparse(statement) for word in ESSENTIAL)
        if statement is not None
        else False,
    }


def _own(statement: ast.AST) -> ast.AST:
    """Of a compound statement the head."""
    match statement:
        case ast.For() | ast.AsyncFor():
            return statement.iter
        case ast.While() | ast.If():
            return statement.test
        case ast.With() | ast.AsyncWith():
            return ast.Tuple([item.context_expr for item in statement.items], ast.Load())
        case _:
            return statement


def _names(node: ast.AST) -> list[str]:
    """What a statement reads, attributes of ``self`` by their own names; in the order of the text."""
    attributes = [
        f"self.{item.attr}" for item in ast.walk(node) if isinstance(item, ast.Attribute) and isinstance(item.value, ast.Name) and item.value.id == "self"
    ]
    return [*dict.fromkeys(attributes), *sorted(ast_names.loaded(node) - {"self"})]


def _makers(program: Program, outcome: Outcome, names: list[str]) -> list[list[str]]:
    """For each name that the failing statement uses: the statements before the loop, and of the constructor, that make it."""
    makers = dict(outcome.piece.makers)
    constructor = ast_names.named(program.tree, f"{outcome.piece.cls}.__init__")
    for statement in constructor.body if constructor is not None else ():
        for name in ast_names.bound(statement):
            makers.setdefault(name, []).append(ast_names.key_of(statement))
    groups = [list(dict.fromkeys(makers[name])) for name in names if name in makers]
    return sorted(groups, key=lambda keys: not any(_computes(outcome, key) for key in keys))


def _computes(outcome: Outcome, key: str) -> bool:
    """Whether a statement calls something: what it makes is likelier to be at fault than a number."""
    return "(" in outcome.piece.keys.get(key, (0, "("))[1]


class _Trials:
    """The trials of a search, as long as it has time for them. None is made twice."""

    def __init__(self, program: Program, seconds: float, most: int) -> None:
        self.count = 0
        self._program, self._seconds, self._most = program, seconds, most
        # Processor time, so that a busy machine does not change what is found; the clock only ends what hangs.
        self._end, self._before = time.monotonic() + PATIENCE * seconds, _spent()
        self._seen: set[str] = set()

    @property
    def over(self) -> bool:
        """Whether it has to end."""
        return self.count >= self._most or _spent() - self._before > self._seconds or time.monotonic() > self._end

    def settled(self, candidate: State) -> tuple[State, dict[str, Any]] | None:
        """Run a state until it learns nothing more."""
        report: dict[str, Any] = {}
        for _ in range(8):
            text = json.dumps(candidate, sort_keys=True)
            if text in self._seen or self.over:
                return (candidate, report) if report else None
            self._seen.add(text)
            self.count += 1
            report = trial(self._program, candidate, limit=LIMIT)
            learned = report.get("learned")
            slow = [key for key in report.get("slow", ()) if key not in candidate["skips"]]
            if report.get("hung") and report["at"] not in ("", "loop", *candidate["skips"]):
                slow.append(report["at"])
            if not learned and not slow:
                break
            candidate = {**candidate, "specs": {**candidate["specs"], **(learned or {})}, "skips": [*candidate["skips"], *slow]}
        return candidate, report


def search(program: Program, state: State, seconds: float, most: int) -> SearchResult:
    """Best first: the states that came furthest are changed first."""
    trials = _Trials(program, seconds, most)
    serial = itertools.count()
    waiting: list[tuple[tuple[Any, ...], int, State, dict[str, Any]]] = []
    best: tuple[tuple[Any, ...], State, dict[str, Any]] | None = None

    def consider(candidate: State) -> SearchResult | None:
        nonlocal best
        done = trials.settled(candidate)
        if done is None:
            return None
        candidate, report = done
        if good(report):
            return SearchResult(candidate, report)
        if AGAIN in (report.get("error") or {}).get("message", "") and not candidate["skips"] and not candidate["loader"]:
            return SearchResult(None, report, _reason(report), candidate)
        score = _score(report)
        if best is None or score < best[0]:
            best = score, candidate, report
        heapq.heappush(waiting, (score, next(serial), candidate, report))
        return None

    found = consider(state)
    errors: set[str] = set()
    begun: set[str] = set()
    while found is None and waiting and not trials.over:
        score, _, candidate, report = heapq.heappop(waiting)
        text = _signature(report)
        if text in errors and best is not None and score > best[0]:
            continue
        errors.add(text)
        begun.add(text)
        for other in _next(candidate, report):
            # Where a change of the stand-ins has led to another failure, see where that leads before something of the program's own is given up.
            later = bool(_leaves_out(other, candidate) and waiting and waiting[0][0] <= score and _signature(waiting[0][3]) not in begun)
            found = None if later else consider(other)
            if found or (not later and trials.over):
                break
            if later or (waiting and waiting[0][0] < score):
                # Something came further: go on from there, and come back to this one only if that leads nowhere.
                heapq.heappush(waiting, (score, next(serial), candidate, report))
                errors.discard(text)
                break
    if found:
        return found
    return SearchResult(None, best[2] if best else {}, _reason(best[2]) if best else "no trial was made")


def _leaves_out(other: State, state: State) -> bool:
    """Whether a state runs less of the program than another."""
    return len(other["skips"]) > len(state["skips"]) or bool(other["loader"] and not state["loader"])


def _spent() -> float:
    """Seconds of processor time of this process and of the trials."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def good(report: dict[str, Any]) -> bool:
    """Whether a run is what is wanted: the loop went over its batches, and its row was come to."""
    return (
        not report.get("error")
        and report.get("finished", 0) > 0
        and report.get("steps", 0) > 0
        and report.get("marks", 0) > 0
        and not report.get("learned")
        and not report.get("slow")
    )


def _score(report: dict[str, Any]) -> tuple[Any, ...]:
    """Smaller is further."""
    return (-min(report.get("steps", -1), ENOUGH), -report.get("own", 0), -report.get("rows", 0), len(report.get("failures", ())))


def _signature(report: dict[str, Any]) -> str:
    error = report.get("error") or {}
    return f"{error.get('where')} {error.get('kind')} {error.get('message')} {report.get('hung')} {report.get('at')} {report.get('steps')}"


def _next(state: State, report: dict[str, Any]) -> Any:
    """What to try after a report."""
    error = report.get("error")
    if report.get("hung") or report.get("died"):
        if report["at"] and report["at"] != "loop" and report["at"] not in state["skips"]:
            yield {**state, "skips": [*state["skips"], report["at"]]}
        return
    if error is None:
        missed = report.get("finished") and report.get("steps") and not report.get("marks")
        if missed and report.get("more") and not state.get("later"):
            yield {**state, "later": 1}
        if report.get("finished") and report.get("steps") and not state["force"]:
            yield {**state, "force": True}
        if not report.get("steps"):
            for key in report.get("failed", ()):
                if key not in state["skips"]:
                    yield {**state, "skips": [*state["skips"], key]}
            if not state["loader"]:
                yield {**state, "loader": True}
        return
    if AGAIN not in error["message"]:
        yield from moves(state, error)


def _reason(report: dict[str, Any]) -> str:
    """Why nothing was found, in one line."""
    error = report.get("error")
    if report.get("broken"):
        return str(report["broken"])[:200]
    if report.get("hung") or report.get("died"):
        return "a short run takes too long" if report["hung"] else "a short run kills its process"
    if error:
        return f"no stand-ins were found that fit: {error['where']}: {error['kind']}: {' '.join(error['message'].split())[:160]}"
    if not report.get("steps"):
        return "the loop went over nothing"
    return "the statement was never reached" if not report.get("marks") else "the loop did not run to its end"
