"""Fixes: which are applied, which are left out, and how files are written."""

from __future__ import annotations

import errno
import os
import random
import re
import signal
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oomlint import checking, engine, writing
from oomlint.config import Settings
from oomlint.finding import Confidence, Edit, Finding, Fix, Place, Safety, Severity
from oomlint.fixing import ROUNDS, Change, WriteRefusedError, fix_all, refusal, write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oomlint.fixing import FixOutcome, Harmful

ROOT = Path(__file__).parent.parent
ACCESS = "system.posix_acl_access"


class World:
    """A folder whose files are checked by a rule made for the test: every match of a pattern is a finding with a fix."""

    def __init__(self, folder: Path, **files: str) -> None:
        self.folder = folder
        self.paths = {name: str(folder / f"{name}.py") for name in files}
        self.rules: list[tuple[str, str, str | Callable[[re.Match[str]], str], Severity, Safety]] = []
        self.links: dict[str, str] = {}  # an edit in one file brings an edit at the start of another
        for name, text in files.items():
            Path(self.paths[name]).write_bytes(text.encode())

    def rule(
        self, code: str, pattern: str, new: str | Callable[[re.Match[str]], str], severity: Severity = Severity.ERROR, safety: Safety = Safety.SAFE
    ) -> World:
        self.rules.append((code, pattern, new, severity, safety))
        return self

    def lint(self, overlay: Mapping[str, bytes], harmful: Harmful | None = None) -> dict[str, tuple[Finding, ...]]:  # noqa: ARG002 - it may stop early, and need not
        return {path: tuple(self._lint(path, (overlay[path] if path in overlay else Path(path).read_bytes()).decode())) for path in self.paths.values()}

    def _lint(self, path: str, text: str) -> list[Finding]:
        if "!!" in text:
            return [Finding(None, "cannot-check", "a syntax error", Severity.ERROR, Confidence.HIGH, Place(path, 0, 1, 1, 1, 1))]
        found = []
        for code, pattern, new, severity, safety in self.rules:
            for match in re.finditer(pattern, text):
                place = _place(path, text, match)
                edits = [Edit(place, new if isinstance(new, str) else new(match))]
                if path in self.links:
                    edits.append(Edit(Place(self.links[path], 0, 1, 1, 1, 1), "# linked\n"))
                found.append(Finding(code, "made-up", code, severity, Confidence.HIGH, place, fix=Fix(safety, "fix it", tuple(edits))))
        return found

    def fix_all(self, *, unsafe: bool = False) -> FixOutcome:
        return fix_all(self.lint({}), self.lint, unsafe=unsafe)

    def text(self, outcome: FixOutcome, name: str = "a") -> str:
        return next((change.after for change in outcome.changes if change.path == self.paths[name]), Path(self.paths[name]).read_bytes()).decode()


def _place(path: str, text: str, match: re.Match[str]) -> Place:
    def spot(index: int) -> tuple[int, int]:
        before = text[:index]
        return before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1

    return Place(path, 0, *spot(match.start()), *spot(match.end()))


def messages(outcome: FixOutcome) -> list[str]:
    return [notice.message for notice in outcome.notices]


# -- which fixes ------------------------------------------------------------------------------------------------------


def test_safe_fixes_are_applied_and_unsafe_ones_are_left(tmp_path: Path) -> None:
    world = World(tmp_path, a="one\ntwo\n").rule("OOM901", "one", "1").rule("OOM902", "two", "2", safety=Safety.UNSAFE)
    outcome = world.fix_all()
    assert world.text(outcome) == "1\ntwo\n"
    assert [item.code for item in outcome.fixed] == ["OOM901"]
    assert [item.code for items in outcome.findings.values() for item in items] == ["OOM902"]
    assert Path(world.paths["a"]).read_text() == "one\ntwo\n", "nothing is written yet"


def test_unsafe_fixes_are_applied_when_asked_for(tmp_path: Path) -> None:
    world = World(tmp_path, a="one\ntwo\n").rule("OOM901", "one", "1").rule("OOM902", "two", "2", safety=Safety.UNSAFE)
    assert world.text(world.fix_all(unsafe=True)) == "1\n2\n"


def test_advice_is_never_applied(tmp_path: Path) -> None:
    world = World(tmp_path, a="one\n").rule("OOM901", "one", "1", safety=Safety.DISPLAY)
    assert world.fix_all(unsafe=True).changes == ()


def test_of_two_that_overlap_the_first_wins_and_the_next_round_sees_the_rest(tmp_path: Path) -> None:
    world = World(tmp_path, a="one two three\n").rule("OOM901", "one two", "1 two").rule("OOM902", "two three", "2 3")
    outcome = world.fix_all()
    assert world.text(outcome) == "1 2 3\n"
    assert [item.code for item in outcome.fixed] == ["OOM901", "OOM902"]


def test_insertions_at_one_point_go_into_different_rounds(tmp_path: Path) -> None:
    world = World(tmp_path, a="x\n").rule("OOM901", r"\A(?=x)", "1 + ").rule("OOM902", r"\A(?=(1 . )?x)", "2 + ")
    assert world.text(world.fix_all()) == "2 + 1 + x\n"


def test_findings_with_the_same_edits_are_fixed_by_one(tmp_path: Path) -> None:
    world = World(tmp_path, a="one\n").rule("OOM901", "one", "1").rule("OOM902", "one", "1")
    outcome = world.fix_all()
    assert world.text(outcome) == "1\n"
    assert [item.code for item in outcome.fixed] == ["OOM901", "OOM902"]


@pytest.mark.parametrize(
    ("new", "cause"),
    [
        ("'!!'", "the result would not parse (a syntax error)"),
        ("!!", "it cannot be applied: the result would not parse (invalid syntax)"),
        ("1\n# ", "it cannot be applied: it would change what stands around it"),
        ("bad", "it would add OOM903"),
        ("one ", "OOM901 would stay"),
        ("one + one", "OOM901 would stay"),
    ],
)
def test_a_fix_that_does_harm_is_left_out_and_said(tmp_path: Path, new: str, cause: str) -> None:
    world = World(tmp_path, a="one + two\nfour\n").rule("OOM901", "one", new).rule("OOM902", "four", "4").rule("OOM903", "bad", "good")
    outcome = world.fix_all()
    assert world.text(outcome) == "one + two\n4\n"
    assert [item.code for item in outcome.fixed] == ["OOM902"]
    assert messages(outcome) == [f"the fix of OOM901 at 1:1 is left out: {cause}"]


def test_a_fix_may_add_a_finding_that_is_less_grave(tmp_path: Path) -> None:
    world = World(tmp_path, a="one\n").rule("OOM901", "one", "bad").rule("OOM902", "bad", "worse", Severity.WARNING, Safety.DISPLAY)
    outcome = world.fix_all()
    assert world.text(outcome) == "bad\n"
    assert messages(outcome) == []


def test_one_bad_fix_among_many_spoils_none_of_them(tmp_path: Path) -> None:
    text = "".join(f"w{number}\n" for number in range(12))
    world = World(tmp_path, a=text).rule("OOM901", r"w\d+", lambda match: "!!" if match[0] in {"w3", "w9"} else match[0].upper())
    outcome = world.fix_all()
    assert world.text(outcome) == re.sub(r"w(?!3|9)", "W", text)
    assert [message[:34] for message in messages(outcome)] == ["the fix of OOM901 at 4:1 is left o", "the fix of OOM901 at 10:1 is left "]


def test_no_more_than_ten_rounds_and_what_is_left_is_said(tmp_path: Path) -> None:
    world = World(tmp_path, a=" ".join(f"w{number}" for number in range(15)))
    for number in range(15):  # all begin at the same point, so that each round applies one
        world.rule(f"OOM9{number:02}", rf"\A.*\bw{number}\b", lambda match: match[0][::-1].replace("w", "W", 1)[::-1])
    outcome = world.fix_all()
    assert len(outcome.fixed) == ROUNDS
    assert len(outcome.findings[world.paths["a"]]) == 15 - ROUNDS
    assert messages(outcome) == ["fixes are still to be applied after 10 rounds"]


def test_line_ends_and_byte_order_mark_stay(tmp_path: Path) -> None:
    world = World(tmp_path, a="")
    Path(world.paths["a"]).write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\x0c\r\nthree")

    def lint(overlay: Mapping[str, bytes], harmful: Harmful | None = None) -> dict[str, tuple[Finding, ...]]:  # noqa: ARG001 - as above
        data = overlay.get(world.paths["a"], Path(world.paths["a"]).read_bytes())
        if b"two" not in data:
            return {world.paths["a"]: ()}
        place = Place(world.paths["a"], 0, 2, 1, 2, 4)
        fix = Fix(Safety.SAFE, "", (Edit(place, "2\n2"),))
        return {world.paths["a"]: (Finding("OOM901", "", "", Severity.ERROR, Confidence.HIGH, place, fix=fix),)}

    outcome = fix_all(lint({}), lint)
    assert [change.after for change in outcome.changes] == [b"\xef\xbb\xbfone\r\n2\r\n2\r\n\x0c\r\nthree"]


def test_an_edit_outside_of_the_file_is_left_out(tmp_path: Path) -> None:
    world = World(tmp_path, a="one\n")
    place = Place(world.paths["a"], 0, 9, 1, 9, 2)
    finding = Finding("OOM901", "", "", Severity.ERROR, Confidence.HIGH, place, fix=Fix(Safety.SAFE, "", (Edit(place, "x"),)))
    outcome = fix_all({world.paths["a"]: (finding,)}, world.lint)
    assert outcome.changes == ()
    assert messages(outcome) == ["the fix of OOM901 at 9:1 is left out: it cannot be applied: row 9 is outside of the file"]


# -- several files ----------------------------------------------------------------------------------------------------


def test_edits_in_two_checked_files_go_together(tmp_path: Path) -> None:
    world = World(tmp_path, a="one\n", b="other\n").rule("OOM901", "one", "1")
    world.links[world.paths["a"]] = world.paths["b"]
    outcome = world.fix_all()
    assert (world.text(outcome, "a"), world.text(outcome, "b")) == ("1\n", "# linked\nother\n")


def test_edits_in_a_file_that_is_not_checked_are_not_made(tmp_path: Path) -> None:
    world = World(tmp_path, a="one\n").rule("OOM901", "one", "1")
    world.links[world.paths["a"]] = str(tmp_path / "elsewhere.py")
    outcome = world.fix_all()
    assert outcome.changes == ()
    assert messages(outcome) == []
    assert len(outcome.findings[world.paths["a"]]) == 1


def test_two_paths_to_one_file_are_one_file(tmp_path: Path) -> None:
    world = World(tmp_path, a="one\n").rule("OOM901", "one", "1")
    (tmp_path / "link.py").symlink_to("a.py")
    world.paths["link"] = str(tmp_path / "link.py")
    outcome = world.fix_all()
    assert [(Path(change.path).name, change.after) for change in outcome.changes] == [("a.py", b"1\n")]
    assert not any(outcome.findings.values())


@pytest.mark.parametrize(
    ("prepare", "cause"),
    [
        (lambda path: os.link(path, path + ".second"), "fixes are not applied: the file has 2 hard links, and writing it would part them"),
        (lambda path: os.rename(path, path + ".gone"), "fixes are not applied: No such file or directory"),
    ],
    ids=["hard links", "gone"],
)
def test_a_file_that_must_not_be_written_is_left_with_a_line(tmp_path: Path, prepare: Callable[[str], None], cause: str) -> None:
    world = World(tmp_path, a="one\n").rule("OOM901", "one", "1")
    found = world.lint({})
    prepare(world.paths["a"])
    outcome = fix_all(found, world.lint)
    assert outcome.changes == ()
    assert messages(outcome) == [cause]


def test_what_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.py"
    path.write_text("")
    assert refusal(str(path)) is None
    assert refusal(str(tmp_path)) == "fixes are not applied: not a regular file"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert refusal(str(path)) == "fixes are not applied: the file or its folder is not writable"


# -- writing ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def change(tmp_path: Path) -> Change:
    path = tmp_path / "train.py"
    path.write_bytes(b"old\r\n")
    return Change(str(path), "utf-8", b"old\r\n", b"new\r\n")


def test_bytes_are_written_as_they_are_and_the_mode_is_kept(change: Change) -> None:
    os.chmod(change.path, 0o751)
    write(change)
    assert Path(change.path).read_bytes() == b"new\r\n"
    assert stat.S_IMODE(os.stat(change.path).st_mode) == 0o751
    assert os.listdir(os.path.dirname(change.path)) == ["train.py"]


def marked(path: str, name: str, value: bytes) -> None:
    """Set an extended attribute, where there are any."""
    if sys.platform != "linux":
        pytest.skip("Python knows no extended attributes here")
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"{name}: {error}")


def rights(owner: int, group: int, mask: int, others: int, more: int = 1234) -> bytes:
    """An access control list, as Linux has it, with reading and writing for one user more."""
    nobody = 2**32 - 1
    entries = [(1, owner, nobody), (2, 6, more), (4, group, nobody), (16, mask, nobody), (32, others, nobody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def test_extended_attributes_and_access_control_lists_are_kept(change: Change) -> None:
    listed = rights(6, 0, 6, 0)
    marked(change.path, "user.origin", b"a notebook")
    marked(change.path, ACCESS, listed)
    write(change)
    assert Path(change.path).read_bytes() == b"new\r\n"
    assert os.getxattr(change.path, "user.origin") == b"a notebook"
    assert os.getxattr(change.path, ACCESS) == listed
    assert stat.S_IMODE(os.stat(change.path).st_mode) == 0o660


def test_the_rights_that_a_folder_gives_to_new_files_are_not_given_to_a_fixed_one(change: Change) -> None:
    os.chmod(change.path, 0o640)
    marked(os.path.dirname(change.path), "system.posix_acl_default", rights(7, 7, 7, 5))
    write(change)
    assert ACCESS not in os.listxattr(change.path)
    assert stat.S_IMODE(os.stat(change.path).st_mode) == 0o640


@pytest.mark.parametrize("unnamed", [writing._UNNAMED, 0], ids=["without a name", "under another name"])
def test_a_file_whose_access_control_list_cannot_be_kept_is_left_alone(change: Change, monkeypatch: pytest.MonkeyPatch, unnamed: int) -> None:
    marked(change.path, ACCESS, rights(6, 0, 6, 0))
    marked(change.path, "user.origin", b"a notebook")

    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(writing, "_UNNAMED", unnamed)
    monkeypatch.setattr(os, "setxattr", refuse)
    with pytest.raises(OSError, match="its access control list cannot be kept: Operation not supported"):
        write(change)
    assert Path(change.path).read_bytes() == b"old\r\n"
    assert os.listdir(os.path.dirname(change.path)) == ["train.py"]
    os.removexattr(change.path, ACCESS)
    write(change)
    assert os.listxattr(change.path) == [], "what says nothing of rights may be lost"


needs_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")


@needs_root
def test_the_group_is_kept_where_the_owner_cannot_be(change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(change.path, 4321, 1234)
    os.chmod(change.path, 0o4670)
    known = os.chown

    def refuse(path: int, user: int, group: int) -> None:
        if user != -1:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        known(path, user, group)

    monkeypatch.setattr(os, "chown", refuse)
    write(change)
    status = os.stat(change.path)
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (0, 1234, 0o670)


@needs_root
@pytest.mark.parametrize(("mode", "left"), [(0o640, 0o600), (0o644, 0o644), (0o664, 0o644), (0o604, 0o600), (0o2775, 0o755), (0o660, 0o600)], ids=oct)
def test_where_the_group_cannot_be_kept_no_other_gets_its_rights(change: Change, monkeypatch: pytest.MonkeyPatch, mode: int, left: int) -> None:
    os.chown(change.path, 0, 1234)
    os.chmod(change.path, mode)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    write(change)
    assert stat.S_IMODE(os.stat(change.path).st_mode) == left
    os.chmod(change.path, 0o600)
    monkeypatch.undo()
    os.chown(change.path, 0, 1234)
    marked(change.path, ACCESS, rights(6, 0, 6, 0))
    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(OSError, match="its group cannot be kept, and it has an access control list"):
        write(Change(change.path, "utf-8", change.after, change.before))


@needs_root
def test_a_folder_that_gives_its_group_to_new_files_gives_it_to_no_fixed_one(change: Change) -> None:
    folder = os.path.dirname(change.path)
    os.chown(folder, 0, 1234)
    os.chmod(folder, 0o2770)
    os.chmod(change.path, 0o640)
    os.chown(change.path, 0, 0)
    write(change)
    assert os.stat(change.path).st_gid == 0


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this system has no sticky folders")
def test_a_folder_that_lets_only_owners_replace_files(change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chmod(os.path.dirname(change.path), 0o1777)
    assert refusal(change.path) is None
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert refusal(change.path) == "fixes are not applied: the file is another user's, and its folder lets only owners replace files (the sticky bit)"
    os.chmod(os.path.dirname(change.path), 0o777)
    assert refusal(change.path) is None


def test_a_symbolic_link_stays_and_its_target_is_written(change: Change) -> None:
    link = Path(change.path).parent / "deep" / "link.py"
    link.parent.mkdir()
    link.symlink_to("../train.py")
    write(Change(str(link), "utf-8", change.before, change.after))
    assert link.is_symlink()
    assert Path(change.path).read_bytes() == b"new\r\n"


def test_a_file_that_has_changed_meanwhile_is_left_alone(change: Change) -> None:
    Path(change.path).write_bytes(b"edited\r\n")
    with pytest.raises(WriteRefusedError, match="has changed since it was read"):
        write(change)
    assert Path(change.path).read_bytes() == b"edited\r\n"


def test_a_file_with_several_links_is_not_parted(change: Change) -> None:
    os.link(change.path, change.path + ".second")
    with pytest.raises(WriteRefusedError, match="2 hard links"):
        write(change)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), MemoryError()], ids=lambda error: type(error).__name__
)
@pytest.mark.parametrize("call", ["replace", "fsync", "chmod"])
def test_an_interruption_leaves_the_old_file_and_no_litter(change: Change, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(type(error)):
        write(change)
    assert Path(change.path).read_bytes() == b"old\r\n"
    assert os.listdir(os.path.dirname(change.path)) == ["train.py"]


WRITER = """
import sys
from oomlint.fixing import Change, write
path = sys.argv[1]
old, new = b"a" * 300_000 + b"\\n", b"b" * 300_000 + b"\\n"
print("ready", flush=True)
while True:
    write(Change(path, "utf-8", old, new))
    old, new = new, old
"""


def test_a_kill_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    seed = random.Random(0)
    for _ in range(12):
        path.write_bytes(b"a" * 300_000 + b"\n")
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)})
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            time.sleep(seed.random() * 0.03)
            child.send_signal(signal.SIGKILL)
        data = path.read_bytes()
        assert len(data) == 300_001
        assert set(data) in ({ord("a"), ord("\n")}, {ord("b"), ord("\n")})


# -- what changes while oomlint works -----------------------------------------------------------------------------------


@pytest.mark.parametrize("late", ["before the first edit", "while it is checked"])
def test_a_file_that_changes_in_the_meantime_is_not_edited_at_old_places(tmp_path: Path, late: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.py"
    path.write_text("from torch.utils.data import DataLoader\nloader = DataLoader(range(8), num_workers=0, persistent_workers=True)\n")
    new = "from torch.utils.data import DataLoader\nmy_longer_name = DataLoader(range(8), num_workers=0, persistent_workers=True, collate_fn=len)\n"
    if late == "while it is checked":
        look = checking.Checker.look
        monkeypatch.setattr(checking.Checker, "look", lambda self, each: (look(self, each), path.write_text(new))[0])
    else:
        monkeypatch.setattr("oomlint.engine.fix_all", lambda *given, **more: (path.write_text(new), fix_all(*given, **more))[1])
    report = engine.run([str(path)], Settings(), tmp_path, engine.RunOptions(cache=False, fix=True, processes=1))
    assert path.read_text() == new
    assert not report.fixed
    assert "has changed" in "".join([*(notice.message for notice in report.notices), *(item.message for item in report.findings)])


def test_a_comment_in_the_midst_of_what_is_replaced_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    text = "from torch.utils.data import DataLoader\nloader = DataLoader(range(8), num_workers=0, persistent_workers=(  # for speed\n    True))\n"
    path.write_text(text)
    engine.run([str(path)], Settings(), tmp_path, engine.RunOptions(cache=False, fix=True, unsafe_fixes=True, processes=1))
    assert "# for speed" in path.read_text()


def test_a_link_that_leads_out_of_the_project_is_fixed_only_where_it_is_named(tmp_path: Path) -> None:
    text = "from torch.utils.data import DataLoader\nloader = DataLoader(range(8), num_workers=0, persistent_workers=True)\n"
    project, other = tmp_path / "project", tmp_path / "other.py"
    project.mkdir()
    other.write_text(text)
    (project / "link.py").symlink_to("../other.py")
    (project / "within.py").symlink_to("sub.py")
    (project / "sub.py").write_text(text)
    fixing = engine.RunOptions(cache=False, fix=True, processes=1)
    report = engine.run([str(project)], Settings(), project, fixing)
    assert (other.read_text(), (project / "within.py").is_symlink()) == (text, True)
    assert (project / "sub.py").read_text() != text
    assert [notice.message for notice in report.notices] == ["fixes are not applied: the link leads out of the project; name it to have its target fixed"]
    engine.run([str(project / "link.py")], Settings(), project, fixing)
    assert other.read_text() != text


def test_what_is_saved_while_the_new_file_is_synced_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = 1\n")
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (path.write_text("x = 3\n"), sync(handle))[1])
    with pytest.raises(WriteRefusedError, match="has changed"):
        write(Change(str(path), "utf-8", b"x = 1\n", b"x = 2\n"))
    assert (path.read_text(), os.listdir(tmp_path)) == ("x = 3\n", ["a.py"])
