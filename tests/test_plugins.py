"""Rules of packages and of projects: found, selected, silenced and cached as ours are, and whatever is wrong with one leaves the others alone."""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from commands import Done, runs

from oomlint import checking, engine, plugin, plugins, registry
from oomlint.checking import Checker, Linted, Looked
from oomlint.lsp import open_project
from oomlint.plugins import RuleSources
from oomlint.settings import Settings
from oomlint.verify.session import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
SAMPLES: Final = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
LOCAL, TRAIN, PACKAGED = (text for language, text in SAMPLES if language == "python")
SETTINGS: Final = '[tool.oomlint]\nlocal-rules = ["lint/"]\nextend-exclude = ["lint/"]\n'
OURS: Final = "from torch.utils.data import DataLoader\nloader = DataLoader([], persistent_workers=True)\n"
RULE: Final = """
from oomlint.plugin import Consequence, Message, Rule, Severity, Weighs

class Says(Rule):
    code, slug, severity, fixable, weighs, mentions = "{code}", "{slug}", Severity.WARNING, None, Weighs(Consequence.ONCE), ("special",)

    def check(self, module, project):
        {body}
"""
SAYS: Final = 'yield self.finding(module.place(module.tree.module.body[0]), Message("special"))'


def rule(code: str = "LAB101", slug: str = "says-special", body: str = SAYS) -> str:
    return RULE.format(code=code, slug=slug, body=body)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "project"
    (root / "lint").mkdir(parents=True)
    (root / "pyproject.toml").write_text(SETTINGS)
    (root / "a.py").write_text("special = 1\n")
    monkeypatch.chdir(root)
    yield root
    plugins.use(RuleSources())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return runs(capsys, "check", "--output-format", "concise", "-q", "--no-cache")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Installs a package of one module with an entry point, in a folder of the search path."""
    place = tmp_path / "site"

    def install(source: str, points: str = "lab = lab_rules") -> None:
        about = place / "lab_rules-1.2.dist-info"
        about.mkdir(parents=True, exist_ok=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-rules\nVersion: 1.2\n")
        (about / "entry_points.txt").write_text(f"[oomlint.rules]\n{points}\n")
        (place / "lab_rules.py").write_text(source)
        sys.modules.pop("lab_rules", None)
        importlib.invalidate_caches()
        plugins.use(RuleSources())

    monkeypatch.syspath_prepend(str(place))
    return install


def codes(done: Done) -> list[str]:
    return re.findall(r": ([A-Z]+\d+) ", done.out)


# -- the examples of the page --------------------------------------------------------------------------------------------


def test_the_example_in_the_project(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "lint" / "nodes.py").write_text(LOCAL)
    (folder / "train.py").write_text(TRAIN)
    shown = next(text for language, text in SAMPLES if language == "console")
    said = ""
    for line in (line for line in shown.splitlines() if line.startswith("$ oomlint ")):
        said += f"{line}\n{runs(capsys)(*line.split()[2:]).out}"
    assert said.startswith(shown.removesuffix("...\n"))


def test_the_example_in_a_package(folder: Path, site: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    site(PACKAGED)
    (folder / "b.py").write_text('import torch.multiprocessing as mp\n\nHOW = "file_descriptor"\nmp.set_sharing_strategy(HOW)\n')
    done = runs(capsys, "check")("--verbose", "--fix", "--unsafe-fixes", "b.py")
    assert (done.status, done.out.splitlines()[-1]) == (0, "Fixed 1 finding in 1 file.")
    assert "oomlint: plugin lab-rules 1.2: LAB201\n" in done.err
    assert (folder / "b.py").read_text().endswith('mp.set_sharing_strategy("file_system")\n')


def test_the_examples_are_typed(tmp_path: Path) -> None:
    for name, text in (("nodes", LOCAL), ("lab_rules", PACKAGED)):
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "--cache-dir", str(ROOT / ".mypy_cache"), "nodes.py", "lab_rules.py"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"MYPYPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# -- selection and silence -----------------------------------------------------------------------------------------------


def test_rules_of_plugins_are_selected_and_silenced_as_ours(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "lint" / "says.py").write_text(rule())
    (folder / "b.py").write_text(OURS + "special = 1\n")
    assert codes(run()) == ["LAB101", "LAB101", "OOM101"]
    for words, found in (
        (["--select", "OOM"], ["OOM101"]),
        (["--select", "LAB"], ["LAB101", "LAB101"]),
        (["--select", "lab1"], ["LAB101", "LAB101"]),
        (["--select", "says-special"], ["LAB101", "LAB101"]),
        (["--ignore", "LAB101"], ["OOM101"]),
        (["--per-file-ignores", "a.py:LAB"], ["LAB101", "OOM101"]),
        (["--select", "OOM1", "--extend-select", "LAB101", "b.py"], ["LAB101", "OOM101"]),
    ):
        assert codes(run(*words)) == found, words
    for word in ("LAB2", "LA", "L", "LABEL"):
        assert run("--select", word).status == 2, word
    for comment, left in (("noqa: LAB101", []), ("oomlint: ignore[LAB1]", []), ("oomlint: ignore[says-special]", []), ("noqa: OOM101", ["LAB101", "OOM001"])):
        (folder / "a.py").write_text(f"special = 1  # {comment}\n")
        assert codes(run("a.py")) == left, comment
    (folder / "a.py").write_text("x = 'special'\ny = 1  # oomlint: ignore[LAB101]\n")
    assert codes(run("a.py")) == ["LAB101", "OOM001"]


def test_a_rule_is_asked_about_files_that_have_its_words(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "lint" / "says.py").write_text(rule())
    (folder / "b.py").write_text("usual = 1\n")
    (folder / "c.py").write_text("usual = (\n")
    assert codes(run()) == ["LAB101"]
    (folder / "lint" / "says.py").write_text(rule().replace('("special",)', "()"))
    done = run()
    assert codes(done) == ["LAB101", "LAB101"]
    assert "c.py:1:9: cannot check: not valid Python" in done.out


def test_reports_know_the_page_of_a_rule(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "docs" / "findings.schema.json").read_text())
    for line, url in (("", None), ("    url = 'https://lab.example/LAB101'", "https://lab.example/LAB101")):
        (folder / "lint" / "says.py").write_text(rule() + line)
        entries = json.loads(runs(capsys, "check")("--output-format", "json").out)
        jsonschema.validate(entries, schema)
        assert [entry["url"] for entry in entries] == [url]
        (about,) = json.loads(runs(capsys, "check")("--output-format", "sarif").out)["runs"][0]["tool"]["driver"]["rules"]
        assert (about["id"], about.get("helpUri")) == ("LAB101", url)


# -- whose code is run ---------------------------------------------------------------------------------------------------

MARK: Final = "import pathlib\npathlib.Path('run').write_text('')\n"


def test_local_rules_are_loaded_where_a_check_may(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "lint" / "says.py").write_text(MARK + rule())
    (folder / "pyproject.toml").write_text(SETTINGS + 'select = ["OOM", "LAB101", "says-special"]\n[tool.oomlint.per-file-ignores]\n"x.py" = ["LAB1"]\n')
    for words in (["--isolated"], ["--no-local-rules"], ["--no-local-rules", "--config", "ignore = ['LAB1']"]):
        assert run(*words) == (0, "", ""), words
    assert "unknown rule or prefix 'OOM9'" in run("--no-local-rules", "--config", "ignore = ['OOM9']").err
    open_project.project_for(str(folder / "a.py"), [], tuple(code for code, _ in registry.catalogue()))
    assert nearest(str(folder))[0].select == ("OOM",)
    assert runs_verify(folder) == 0
    other = folder / "other"
    other.mkdir()
    (other / "oomlint.toml").write_text('extend = "../pyproject.toml"\n')
    (other / "a.py").write_text("special = 1\n")
    (folder / "pyproject.toml").write_text(SETTINGS)
    assert run("other") == (0, "", "")
    assert not (folder / "run").exists()
    assert run("--config", "local-rules = ['lint']").err == "oomlint: error: --config: 'local-rules' is a setting of files only\n"
    assert codes(run("a.py")) == ["LAB101"]
    assert (folder / "run").exists()
    assert not (folder / "lint" / "__pycache__").exists()


def runs_verify(folder: Path) -> int:
    return subprocess.run(
        [sys.executable, "-m", "oomlint", "verify", "-q", "."], cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False
    ).returncode


def test_local_rules_may_be_files_and_share_what_begins_with_an_underscore(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "lint" / "_words.py").write_text("MESSAGE = 'shared'\n")
    body = "from ._words import MESSAGE\n        yield self.finding(module.place(module.tree.module.body[0]), Message(MESSAGE))"
    (folder / "lint" / "says.py").write_text(rule(body=body))
    (folder / "one.py").write_text(rule("ONE101", "one-rule"))
    (folder / "pyproject.toml").write_text('[tool.oomlint]\nlocal-rules = ["lint", "one.py"]\nexclude = ["lint", "one.py"]\n')
    assert run().out == "a.py:1:1: LAB101 warning shared\na.py:1:1: ONE101 warning special\n"


def test_bases_of_rules_are_none(folder: Path, run: Callable[..., Done]) -> None:
    base = rule().replace("class Says(Rule)", "class _Says(Rule)") + "class Says(_Says):\n    code = 'LAB102'\n"
    (folder / "lint" / "says.py").write_text(base)
    assert run() == (1, "a.py:1:1: LAB102 warning special\n", "")
    (folder / "pyproject.toml").write_text('[tool.oomlint]\nlocal-rules = ["../"]\n')
    assert run() == (2, "", "oomlint: error: pyproject.toml: [tool.oomlint] local-rules: '../' lies outside of the project\n")
    (folder / "pyproject.toml").write_text('[tool.oomlint]\nlocal-rules = [""]\n')
    assert run().err == "oomlint: error: pyproject.toml: [tool.oomlint] local-rules: a path is empty, or holds a null character\n"


# -- what is wrong with a plugin ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nothing_of_the_kind\n", "ModuleNotFoundError: No module named 'nothing_of_the_kind': the file is left out"),
        ("def broken(:\n", "SyntaxError: invalid syntax (bad.py, line 1): the file is left out"),
        ("raise SystemExit(0)\n", "SystemExit: 0: the file is left out"),
        (
            "import sys\nsys.setrecursionlimit(sys.getrecursionlimit())\ndef f(): f()\nf()\n",
            "RecursionError: maximum recursion depth exceeded: the file is left out",
        ),
        (rule("OOM101"), "Says: code 'OOM101' is not"),
        (rule("LAB102", "persistent-without-workers"), "Says: slug 'persistent-without-workers' is one of oomlint itself (OOM101): the rule is left out"),
        (rule("LAB101", "other-name"), "Says: code LAB101 is one of local rules lint/a_good.py: the rule is left out"),
        (rule("LAB102"), "Says: slug 'says-special' is one of local rules lint/a_good.py (LAB101): the rule is left out"),
        (
            rule("LABEL101", "other-name"),
            "Says: code LABEL101: LAB is a family of local rules lint/a_good.py, and prefixes of codes would mean both: the rule is left out",
        ),
        (rule("OO101", "other-name"), "Says: code OO101: OOM is a family of oomlint itself, and prefixes of codes would mean both: the rule is left out"),
        (rule("ALL101", "other-name"), "Says: code ALL101: ALL stands for all rules: the rule is left out"),
        (rule("lab102", "other-name"), "Says: code 'lab102' is not of the form 'LAB101': two to nine capitals and three digits: the rule is left out"),
        (rule("LAB102", "Other"), "Says: slug 'Other' is not of the form 'words-with-hyphens': the rule is left out"),
        (rule("LAB102", "other-name").replace("Severity.WARNING", "'warning'"), "Says: severity is missing, or no Severity: the rule is left out"),
        (rule("LAB102", "other-name") + "    lower = 'note'\n", "Says: lower is no tuple of severities: the rule is left out"),
        (rule("LAB102", "other-name").replace('("special",)', '"special"'), "Says: mentions is no tuple of words: the rule is left out"),
        (rule("LAB102", "other-name") + "    def __init__(self): raise ValueError('x')\n", "Says: ValueError: x: the rule is left out"),
    ],
)
def test_what_cannot_be_loaded_is_told_and_left_out(folder: Path, run: Callable[..., Done], source: str, said: str) -> None:
    (folder / "lint" / "a_good.py").write_text(rule())
    (folder / "lint" / "bad.py").write_text(source)
    (folder / "b.py").write_text(OURS)
    if "OOM101" in source:
        said = "Says: code OOM101 is one of oomlint itself: the rule is left out"
    status, out, err = run("--ignore", "ALL", "--extend-select", "LAB1,OOM101", "a.py", "b.py")
    assert (status, err) == (2, f"oomlint: local rules lint/bad.py: {said}\n")
    assert re.findall(r": ([A-Z]+\d+) ", out) == ["LAB101", "OOM101"]


def test_a_package_that_cannot_be_loaded_is_told(site: Callable[..., None], run: Callable[..., Done]) -> None:
    site("import nothing_of_the_kind\n")
    assert run("--select", "OOM") == (
        2,
        "",
        "oomlint: plugin lab-rules 1.2: ModuleNotFoundError: No module named 'nothing_of_the_kind': lab = lab_rules is left out\n",
    )
    site("x = 1\n")
    assert run().err == "oomlint: plugin lab-rules 1.2: TypeError: lab_rules has no rules: lab = lab_rules is left out\n"
    site(rule(), "lab = lab_rules:Says\nworse = lab_rules:x")
    status, out, err = run()
    assert (status, err) == (2, "oomlint: plugin lab-rules 1.2: AttributeError: module 'lab_rules' has no attribute 'x': worse = lab_rules:x is left out\n")
    assert out == "a.py:1:1: LAB101 warning special\n"


def test_a_folder_that_is_not_there_is_told(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "lint").rmdir()
    assert run() == (2, "", "oomlint: local rules lint: No such file or directory\n")
    assert run("--isolated").status == 0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('x')", "ValueError: x"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise TimeoutError", "TimeoutError"),
        ("return 3", "TypeError: 'int' object is not iterable"),
        ("return ['a']", "TypeError: it says 'a', which is no finding of LAB101"),
        ("return self.check(module, project)", "RecursionError: maximum recursion depth exceeded"),
        (
            "import dataclasses; yield dataclasses.replace(self.finding(module.place(module.tree.module), Message('')), code='OOM101')",
            "TypeError",
        ),
    ],
)
def test_a_rule_that_fails_is_told_and_the_others_go_on(folder: Path, run: Callable[..., Done], body: str, said: str) -> None:
    (folder / "lint" / "says.py").write_text(rule(body=body))
    (folder / "a.py").write_text(OURS + "special = 1\n")
    status, out, err = run("a.py")
    assert (status, codes(Done(status, out, err))) == (2, ["OOM101"])
    assert err.startswith(f"oomlint: local rules lint/says.py: LAB101 failed on a.py: {said}")
    assert err.endswith(" (OOMLINT_DEBUG=1 shows where)\n")
    assert err.count("\n") == 1


def test_a_rule_that_fails_on_many_files_is_told_once(folder: Path, run: Callable[..., Done]) -> None:
    (folder / "lint" / "says.py").write_text(rule(body="raise ValueError('no')"))
    for name in ("a.py", "b.py", "c.py"):
        (folder / name).write_text("special = 1\n")
    err = run("a.py", "b.py", "c.py").err
    assert err == "oomlint: local rules lint/says.py: LAB101 failed on a.py and 2 more files: ValueError: no (OOMLINT_DEBUG=1 shows where)\n"


def test_what_a_plugin_prints_on_its_way_is_in_no_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "lint" / "says.py").write_text("print('hello')\n" + rule())
    done = runs(capsys, "check")("--output-format", "json")
    assert len(json.loads(done.out)) == 1
    assert done.err == "hello\n"


# -- the cache, and processes --------------------------------------------------------------------------------------------


def test_findings_are_kept_until_a_rule_changes(
    folder: Path, site: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    real = Checker.lint

    def lint(self: Checker, looked: Looked) -> Linted:
        seen.append(looked.path)
        return real(self, looked)

    monkeypatch.setattr(checking.Checker, "lint", lint)
    run = runs(capsys, "check", "--output-format", "concise", "-q")
    (folder / "lint" / "_words.py").write_text("MESSAGE = 'special'\n")
    (folder / "lint" / "says.py").write_text(rule())
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (1_700_000_000, 1_700_000_000))

    def checked() -> tuple[str, bool]:
        seen.clear()
        return run("a.py").out, bool(seen)

    first = "a.py:1:1: LAB101 warning special\n"
    assert [checked(), checked()] == [(first, True), (first, False)]
    for name, text in (("says.py", rule(body=SAYS.replace('"special"', '"spezial"'))), ("_words.py", "MESSAGE = 'spezial'\n")):
        (folder / "lint" / name).write_text(text)
        os.utime(folder / "lint" / name, (1_700_000_000, 1_700_000_000))
        second = first.replace("special", "spezial")
        assert [checked(), checked()] == [(second, True), (second, False)], name
    site(rule("PKG101", "package-rule"))
    third = second + "a.py:1:1: PKG101 warning special\n"
    assert [checked(), checked()] == [(third, True), (third, False)]
    site(rule("PKG101", "package-rule", SAYS.replace('"special"', '"other"')))
    assert checked() == (third.replace("PKG101 warning special", "PKG101 warning other"), True)
    (folder / "pyproject.toml").write_text("[tool.oomlint]\nselect = ['OOM']\n")
    assert checked()[0] == ""


@pytest.mark.parametrize("spawned", [False, True])
def test_processes_have_the_rules(folder: Path, *, spawned: bool) -> None:
    (folder / "lint" / "says.py").write_text(rule())
    for number in range(4):
        (folder / f"b{number}.py").write_text("special = 1\n")
    sources = RuleSources(local=(str(folder / "lint"),))
    plugins.use(sources)
    done = threading.Event()
    if spawned:  # a fork is sound with one thread only
        threading.Thread(target=done.wait, daemon=True).start()
    try:
        one, two = (engine.run([str(folder)], Settings(), folder, engine.RunOptions(cache=False, processes=number)) for number in (1, 2))
    finally:
        done.set()
    assert one == two
    assert len(one.findings) == 6, "those of the rule's own file, too: without settings it is not excluded"


def test_without_plugins_nothing_is_read_of_them(tmp_path: Path) -> None:
    program = "import sys; from oomlint.__main__ import main; main(['check', '--no-cache', '-q', '.']); print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# -- what plugins may use ------------------------------------------------------------------------------------------------


def described(name: str) -> str:
    """The form of what is exported: a change of it breaks plugins."""
    item: Any = getattr(plugin, name)
    if inspect.isfunction(item):
        return str(inspect.signature(item))
    if isinstance(item, enum.EnumMeta):
        return " ".join(str(member.value) for member in list[enum.Enum](item))
    methods = {
        key: str(inspect.signature(value))
        for key, value in vars(item).items()
        if inspect.isfunction(value) and not key.startswith("_") and key in USED.get(name, (key,))
    }
    given = item.__struct_fields__ if issubclass(item, msgspec.Struct) and name not in USED else ()
    shown = [f"{key}: {item.__annotations__[key]}" for key in given if not key.startswith("_")]
    return "; ".join([*shown, *(f"{key}{text}" for key, text in methods.items())])


USED: Final = {"Module": ("place", "code"), "Project": (), "Rule": ("check", "finding")}  # of these, what the page names


def test_what_plugins_may_use_keeps_its_form() -> None:
    """Where this fails, a plugin may break: add, and change nothing that is there."""
    assert {name: described(name) for name in plugin.__all__} == SURFACE
    assert set(plugin.__all__) <= set(dir(plugin)) | {"Module", "Project"}
    assert all(
        f"`{name}" in PAGE or name.endswith("Fact") or name in {"Known", "LoaderCall", "LoopKind", "StoreKind", "WorkerCount", "Module", "Project"}
        for name in plugin.__all__
    )
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        plugin.nothing  # noqa: B018


SURFACE: Final[dict[str, str]] = {
    "AllocationFact": "place: Place; bytes: ByteSize",
    "AttributeFact": "name: str; owner: str; holds: ContentKind; items: str; count: int | None; bytes: ByteSize; copied_under: tuple[str, ...]; place: Place | None",  # noqa: E501
    "ByteSize": "exact: int | None; formula: str; least: int | None",
    "Confidence": "high medium low",
    "Consequence": "crashes grows multiplied once",
    "DatasetFact": "place: Place; name: str",
    "Edit": "place: Place; content: str",
    "Factor": "by: Multiplier; count: int | None",
    "Finding": "code: str | None; name: str; headline: str; severity: Severity; confidence: Confidence; place: Place; related: tuple[Place, ...]; fix: Fix | None; facts: tuple[Fact, ...]; weight: Weight | None; consequence: str; help: str; given: tuple[Place, ...]; found: Finding | None; adding(self, words: 'str') -> 'Finding'; of_noun(self, noun: 'type[_Noun]') -> 'tuple[_Noun, ...]'",  # noqa: E501
    "Fix": "safety: Safety; message: str; edits: tuple[Edit, ...]",
    "HandleFact": "place: Place; library: str; cache_bytes: ByteSize | None; in_core: bool",
    "Known": "value: object; confidence: Confidence; related: tuple[Place, ...]",
    "LoaderCall": "call: cst.Call; place: Place; fact: LoaderFact; argument(self, name: 'str') -> 'tuple[Known, ...]'",
    "LoaderFact": "place: Place; name: str; option: str; workers: tuple[WorkerCount, ...]; start_methods: tuple[str, ...]; start_method_known: bool",
    "LoopFact": "place: Place; kind: LoopKind; over: str; runs: tuple[Place, ...]",
    "LoopKind": "batch epoch round",
    "Message": "headline: str; consequence: str; help: str; fitted(self, more: 'str' = '') -> 'Message'",
    "Module": "place(self, node: 'cst.CSTNode', message: 'str' = '') -> 'Place'; code(self, node: 'cst.CSTNode') -> 'str'",
    "Multiplier": "workers ranks prefetch steps epochs files samples",
    "Place": "path: str; cell: int; row: int; column: int; end_row: int; end_column: int; message: str; role: Role; saying(self, message: 'str', role: 'Role' = <Role.WAY: 'way'>) -> 'Place'",  # noqa: E501
    "Project": "",
    "ReadFact": "place: Place; what: str; bytes: ByteSize; opened: Place | None; gives: Resource; within: Place | None",
    "Resource": "images arrays tensors records names graph handle process figure nothing unknown",
    "Role": "way again beside inside",
    "Rule": "check(self, module: 'Module', project: 'Project') -> 'Iterator[Finding]'; finding(self, place: 'Place', message: 'Message', *, severity: 'Severity | None' = None, confidence: 'Confidence' = <Confidence.HIGH: 'high'>, related: 'Iterable[Place]' = (), fix: 'Fix | None' = None, facts: 'Iterable[Fact]' = (), weighs: 'Weighs | None' = None, given: 'tuple[Place, ...]' = ()) -> 'Finding'",  # noqa: E501
    "Safety": "safe unsafe display",
    "Severity": "error warning note",
    "StoreFact": "place: Place; container: str; kind: StoreKind",
    "StoreKind": "append extend item augment concat metric assign whole",
    "Weighs": "consequence: Consequence; of: Resource; by: tuple[Multiplier | Factor, ...]; bytes: ByteSize | None",
    "WorkerCount": "count: int | None; per_processor: bool; usual: bool; place: Place | None; option: Place | None",
    "batch_loop": "(module: 'Module', project: 'Project', node: 'cst.CSTNode') -> 'LoopFact | None'",
    "calls": "(module: 'Module') -> 'Iterator[cst.Call]'",
    "is_library": "(module: 'Module', project: 'Project', node: 'cst.BaseExpression', *names: 'str') -> 'bool'",
    "loaders": "(module: 'Module', project: 'Project') -> 'Iterator[LoaderCall]'",
    "replaced": "(module: 'Module', node: 'cst.CSTNode', content: 'str') -> 'Edit'",
    "values": "(module: 'Module', project: 'Project', node: 'cst.BaseExpression') -> 'tuple[Known, ...]'",
}
