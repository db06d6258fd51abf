"""Fixes files made from oomlint's own fixtures by chance, and counts what must not happen.

    python benchmarks/fuzz_fixes.py --files 10000 --seed 0

Each file is a fixture with rows and tokens moved, doubled or dropped, or a call put in that a fix fixes, and then with other line ends, form feeds, tabs,
encodings, byte order marks or damaged bytes. It lies alone in a folder and is fixed there, every third one with unsafe fixes too. The figures:

- internal errors: an exception, or a rule that failed;
- bytes changed outside of edits: the file is not what its bytes outside of the spans and the contents of the edits make, worked out here in another way;
- unlike the plain file: the same program with line feeds, in UTF-8 and without form feeds is fixed to another text;
- not at rest: a second run changes the file again;
- over 10 s: both runs together.

The same seed makes the same files. Files with a finding of each kind are kept in a folder that is named. The exit status is 1 where there are any.
"""

from __future__ import annotations

import argparse
import codecs
import json
import random
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest import mock

from oomlint import engine, fixing
from oomlint.config import Settings
from oomlint.engine import RunOptions
from oomlint.source import FileKind, apply_edits, read_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oomlint.finding import Edit
    from oomlint.source import Source

ROOT: Final = Path(__file__).resolve().parent.parent
LARGEST: Final = 6000  # bytes of a fixture
SLOW: Final = 10  # seconds
ROW_END: Final = re.compile(r"\r\n|\r|\n")
TOKEN: Final = re.compile(r"\w+|\s+|.", re.DOTALL)
LETTERS: Final = {"utf-8": "é表\U0001f600\u2028", "latin-1": "éÿ\x85", "cp1252": "é€", "shift_jis": "表ソ", "euc-jp": "表能", "koi8-r": "жЯ"}
ODD: Final = ("(", ")", "'''", "\\\n", ";", "# ", "{", "lambda: ", "f'", "await ", ":=", "*", "\x0b", "\0")
CALL: Final = "torch.utils.data.DataLoader(x, num_workers=0, persistent_workers=True)"


@dataclass(frozen=True, slots=True)
class Case:
    """A file, and the same program in a plain layout where it is comparable."""

    name: str
    data: bytes
    plain: bytes | None
    unsafe: bool


@dataclass(slots=True)
class Tally:
    """What has come of the files."""

    counts: Counter[str] = field(default_factory=Counter)
    kept: Path | None = None

    def say(self, kind: str, case: Case, words: str = "") -> None:
        """Count what must not happen, and keep the file."""
        self.counts[kind] += 1
        if self.kept is None:
            self.kept = Path(tempfile.mkdtemp(prefix="oomlint-fuzz-"))
        stem = f"{kind.replace(' ', '_')}_{self.counts[kind]}"
        (self.kept / f"{stem}_{case.name}").write_bytes(case.data)
        (self.kept / f"{stem}.txt").write_text(f"unsafe: {case.unsafe}\n{words}", encoding="utf-8")


def bases() -> list[tuple[str, str]]:
    """The fixtures that are small enough, and whether each is Python or a notebook."""
    paths = sorted(path for path in (ROOT / "fixtures").rglob("*") if path.suffix in {".py", ".ipynb"} and path.stat().st_size < LARGEST)
    found = []
    for path in paths:
        try:
            text = path.read_bytes().decode("utf-8")
            if path.suffix == ".py" or isinstance(json.loads(text), dict):
                found.append((path.suffix, text))
        except ValueError:
            continue
    return found


def moved(seed: random.Random, text: str) -> str:
    """A program with something else in it."""
    rows = text.split("\n")
    for _ in range(seed.choice([0, 0, 1, 1, 2])):
        here, there = seed.randrange(len(rows)), seed.randrange(len(rows))
        what = seed.randrange(6)
        if what == 0:
            rows.insert(here, rows[there])
        elif what == 1:
            del rows[here : here + 1]
        elif what == 2:  # noqa: PLR2004 - one of six
            tokens = TOKEN.findall(rows[here]) or [""]
            seed.shuffle(tokens)
            rows[here] = "".join(tokens)
        elif what == 3:  # noqa: PLR2004 - one of six
            tokens = TOKEN.findall(rows[here]) or [""]
            tokens.insert(seed.randrange(len(tokens)), seed.choice(ODD))
            rows[here] = "".join(tokens)
        else:
            indent = re.match(r"[ \t]*", rows[here])
            rows.insert(here, f"{indent[0] if indent else ''}import torch.utils.data; s = 'é'; b = {CALL}  # é")
        rows = rows or [""]
    return "\n".join(rows)


def laid_out(seed: random.Random, text: str) -> tuple[bytes, bytes | None]:
    """The bytes of a program in some layout, and in the plain one. ``None`` where the layout may change what the program means."""
    encoding = seed.choice(["utf-8", "utf-8", *LETTERS])
    if encoding != "utf-8":
        text = f"# coding: {encoding}\n{text}"
    text = re.sub("[^\x00-\x7f]", lambda _: seed.choice(LETTERS[encoding]), text)
    plain = text
    rows = text.split("\n")
    if seed.random() < 0.3:  # noqa: PLR2004 - some
        rows = [f"\f{row}" if seed.random() < 0.1 and not row.startswith(("#", "\f")) else row for row in rows]  # noqa: PLR2004 - some rows
    tabs = seed.random() < 0.1  # noqa: PLR2004 - some
    if tabs:
        rows = [re.sub(r"^( {4})+", lambda match: "\t" * (len(match[0]) // 4), row) for row in rows]
    ends = seed.choice([["\n"], ["\r\n"], ["\r"], ["\n", "\r\n"], ["\n", "\r\n", "\r"]])
    data = "".join(row + seed.choice(ends) for row in rows).encode(encoding, "replace")
    if encoding == "utf-8" and seed.random() < 0.1:  # noqa: PLR2004 - some
        data = codecs.BOM_UTF8 + data
    if seed.random() < 0.05:  # noqa: PLR2004 - few
        broken = bytearray(data)
        for _ in range(seed.randrange(1, 4)):
            broken[seed.randrange(len(broken))] = seed.randrange(256)
        return bytes(broken), None
    comparable = not tabs and not re.search(r"\\\n\s*\n|'''|\"\"\"|\\$", text) and "\f" not in text
    return data, (plain + "\n").replace(f"# coding: {encoding}", "# coding: utf-8").encode() if comparable else None


def made(seed: random.Random, known: Sequence[tuple[str, str]]) -> Case:
    """A file by chance."""
    suffix, text = seed.choice(known)
    unsafe = seed.random() < 1 / 3
    if suffix == ".py":
        return Case("a.py", *laid_out(seed, moved(seed, text)), unsafe)
    content = json.loads(text)
    cells = content.get("cells")
    for cell in cells if isinstance(cells, list) else []:
        source = cell.get("source") if isinstance(cell, dict) and cell.get("cell_type") == "code" else None
        if isinstance(source, list) and all(isinstance(row, str) for row in source):
            source = "".join(source)
        if isinstance(source, str):
            source = seed.choice(["\n", "\n", "\r\n", "\r"]).join(moved(seed, source).split("\n"))
            cell["source"] = re.findall(r"[^\n]*\n|[^\n]+", source) if seed.random() < 0.5 else source  # noqa: PLR2004 - half of them
    return Case("a.ipynb", json.dumps(content, indent=seed.choice([None, 1, 2]), ensure_ascii=seed.random() < 0.5).encode(errors="replace"), None, unsafe)  # noqa: PLR2004


def outside_kept(source: Source, edits: Sequence[Edit], after: bytes) -> bool:
    """Whether the result is what the edits make of the bytes, row by row."""
    if source.kind is FileKind.NOTEBOOK:
        return others_kept(source, edits, after)
    mark = len(codecs.BOM_UTF8) if source.bom else 0
    rows = [match[0] for match in re.finditer(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", source.data[mark:])] + [b""]
    starts = [mark]
    for row in rows:
        starts.append(starts[-1] + len(row))

    def offset(row: int, column: int) -> int:
        return starts[row - 1] + len(rows[row - 1].decode(source.encoding)[: column - 1].encode(source.encoding))

    parts, index = [], 0
    for edit in sorted(edits, key=lambda edit: edit.place):
        place = edit.place
        parts += [source.data[index : offset(place.row, place.column)], ROW_END.sub(source.newline, edit.content).encode(source.encoding)]
        index = offset(place.end_row, place.end_column)
    return b"".join([*parts, source.data[index:]]) == after


def others_kept(source: Source, edits: Sequence[Edit], after: bytes) -> bool:
    """Whether a notebook is the same but for the sources of the cells that were edited."""
    one, other = json.loads(source.data.decode("utf-8-sig")), json.loads(after.decode("utf-8-sig"))
    for edit in edits:
        for content in (one, other):
            cells = content.get("cells") or [cell for sheet in content["worksheets"] for cell in sheet.get("cells", [])]
            cells[edit.place.cell - 1].update(source="", input="")
    return bool(one == other)


def fix(case: Case, data: bytes) -> tuple[bytes, bool, list[str]]:
    """The bytes after a run, whether a second one leaves them alone, and what went wrong."""
    wrong: list[str] = []

    def watched(source: Source, edits: Sequence[Edit]) -> bytes:
        after = apply_edits(source, edits)
        if not outside_kept(source, edits, after):
            wrong.append("bytes changed outside of edits")
        return after

    with tempfile.TemporaryDirectory(prefix="oomlint-fuzz-") as folder, mock.patch.object(fixing, "apply_edits", watched):
        path = Path(folder, case.name)
        path.write_bytes(data)
        options = RunOptions(fix=True, unsafe_fixes=case.unsafe, cache=False, processes=1)
        report = engine.run([folder], Settings(preview=True), folder, options)
        wrong += [f"internal errors {failure.code}: {failure.cause}" for failure in report.failures]
        after = path.read_bytes()
        if after == data:
            return after, True, wrong
        read_source(path)
        again = engine.run([folder], Settings(preview=True), folder, options)
        return after, not again.changes and path.read_bytes() == after, wrong


def normal(data: bytes) -> str:
    """The text of a file without its layout. Where a carriage return meets the line feed of an empty row, that row is gone."""
    text = "\n".join(row for row in ROW_END.split(read_source("a.py", data).text.replace("\f", "")) if row.strip())
    return re.sub("[^\x00-\x7f]", "?", re.sub(r"(?<=# coding: )\S+", "", text))


def judge(case: Case, tally: Tally) -> None:
    """Fix a file and count what went wrong."""
    began = time.monotonic()
    try:
        after, rests, wrong = fix(case, case.data)
        tally.counts["fixed"] += after != case.data
        for words in wrong:
            tally.say(next(kind for kind in ("internal errors", "bytes changed outside of edits") if words.startswith(kind)), case, words)
        if not rests:
            tally.say("not at rest", case)
        if case.plain is not None and after != case.data and normal(fix(case, case.plain)[0]) != normal(after):
            tally.say("unlike the plain file", case, normal(after))
    except Exception:  # noqa: BLE001 - that is what is looked for
        tally.say("internal errors", case, traceback.format_exc())
    if time.monotonic() - began > SLOW:
        tally.say("over 10 s", case)


def main() -> int:
    """Make the files, fix and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    seed = random.Random(arguments.seed)  # noqa: S311 - no secret
    known = bases()
    tally = Tally()
    began = time.monotonic()
    for number in range(1, arguments.files + 1):
        judge(made(seed, known), tally)
        if number % 500 == 0 or number == arguments.files:
            kinds = ("internal errors", "bytes changed outside of edits", "unlike the plain file", "not at rest", "over 10 s")
            counts = ", ".join(f"{kind} {tally.counts[kind]}" for kind in kinds)
            print(f"{number} files, seed {arguments.seed}, {tally.counts['fixed']} fixed, {time.monotonic() - began:.0f} s: {counts}", flush=True)
    if tally.kept:
        print(f"kept in {tally.kept}")
    return int(tally.kept is not None)


if __name__ == "__main__":
    sys.exit(main())
