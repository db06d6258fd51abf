"""What variables a shell has in front of each of its commands, and which of them it exports: a script is walked as the shell would run it.

What is set on one way only (in a branch, in a loop, behind `&&`) is unknown behind it. Files that it sources are walked with it.
"""

from __future__ import annotations

import ast
import operator
import os
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from oomlint.model.environments import UNKNOWN_SETTING, UNSET, Environment, Setting
from oomlint.rows import starts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oomlint.finding import Place

    Locate = Callable[[int, int], Place]
    Read = Callable[[str], str | None]
    Through = Callable[[Sequence[str], Environment, str, Place], Environment]

_TOKEN: Final = re.compile(
    r"""(?P<blank>(?:[ \t\r]|\\\r?\n)+)
    |(?P<end>;;&?|&&|\|\||[\n;|()`]|&(?!>)(?<![<>]&))
    |(?P<comment>\#[^\n]*)
    |(?P<word>(?:\\[^\r\n]|'[^']*'|"(?:\\.|[^"\\])*"|\$\(\((?:[^()\n]|\([^()\n]*\))*\)\)|\$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\$\{[^{}\n]*\}
        |[<>]&|&>|[^\s;&|()`'"\\]|['"\\])+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_PIECE: Final = re.compile(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)|([^'\"\\]+)|.", re.DOTALL)
_EXPANDED: Final = re.compile(
    r"""\\(?P<plain>[$`"\\])
    |\$(?:(?P<name>[A-Za-z_]\w*|[0-9])|\{(?P<braced>[A-Za-z_]\w*|[0-9])\}
        |\{(?P<asked>[A-Za-z_]\w*|[0-9])(?P<how>:?[-=+?])(?P<other>[^{}]*)\}
        |\(\((?P<sum>[^$`]*?)\)\)|\((?P<by_make>\w+)\))
    |(?P<open>[$`])""",
    re.VERBOSE | re.DOTALL,
)
_SETS: Final = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=(.*)", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_FUNCTION: Final = re.compile(r"(?:function[ \t]+[\w:.-]+[ \t]*(?:\([ \t]*\))?|[\w:.-]+[ \t]*\([ \t]*\))\s*([{(])")
_ARITHMETIC: Final = re.compile(r"([A-Za-z_]\w*)[ \t]*(?:[-+*/%]?=(?!=)|\+\+|--)|(?:\+\+|--)([A-Za-z_]\w*)")
_DOCUMENT: Final = re.compile(r"(?<!<)<<(?!<)-?[ \t]*\\?(['\"]?)([A-Za-z_]\w*)\1")
_QUOTED: Final = re.compile(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"", re.DOTALL)
_RUNS: Final = re.compile(r"\s.*(?:\.(?:py|sh)\b|\s-m\s)", re.DOTALL)  # what is in quotes may be a command
_OPENERS: Final = frozenset({"if", "case", "for", "while", "until", "select"})
_CLOSERS: Final = frozenset({"fi", "esac", "done"})
_DECLARE: Final = frozenset({"export", "declare", "typeset", "readonly", "local"})
_TAKES_NAMES: Final = frozenset({"read", "mapfile", "readarray", "getopts", "let", "printf", "select", "for", "wait"})
_SOURCES: Final = frozenset({"source", "."})
# What they set is meant for programs and libraries, as what the shell of a user has by itself: the scripts of virtual environments and of conda.
_TOOLS: Final = re.compile(r"(?:^|/)(?:activate|conda\.sh|mamba\.sh|micromamba\.sh)$|\b(?:conda|mamba|micromamba|pyenv|ssh-agent)\b")
_WRITTEN: Final = r"(?:>|\b(?:cp|mv|ln|sed|tee|curl|wget|envsubst)\b)[^\n]*{}"  # a file that the script itself makes
_OUTSIDE: Final = re.compile(r"~|/|\$\{?(?:HOME|CONDA\w*|MODULE\w*|VIRTUAL_ENV)\b")
_DEEPEST: Final = 5
_LONGEST: Final = 200_000
_SUMS: Final = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_LARGEST: Final = 2**63


class ShellState(Struct):
    """The variables of a shell at one point."""

    inherited: Environment
    folder: str
    known: dict[str, Setting] = field(default_factory=dict)
    lists: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    exported: frozenset[str] = frozenset()
    exports_all: bool = False
    opened: bool = False
    arguments: tuple[str, ...] | None = None  # None where nobody knows them
    filled_by: ShellState | None = None  # the shell around it, which fills in its text: that stands in double quotes

    def copy(self) -> ShellState:
        """One that may change without this one."""
        return ShellState(
            self.inherited, self.folder, dict(self.known), dict(self.lists), self.exported, self.exports_all, self.opened, self.arguments, self.filled_by
        )

    def variable(self, name: str) -> Setting:
        """What a variable is here."""
        if self.filled_by is not None:
            return self.filled_by.variable(name)
        if name.isdigit():
            if self.arguments is None or not int(name) or any("$" in one for one in self.arguments[: int(name)]):
                return UNKNOWN_SETTING  # one that is not known may be several
            return Setting(self.arguments[int(name) - 1]) if int(name) <= len(self.arguments) else UNSET
        return self.known.get(name) or (UNKNOWN_SETTING if self.opened or name in self.lists else self.inherited.says(name))

    @property
    def environment(self) -> Environment:
        """What a program has that is started here. A variable that was inherited stays exported."""
        own = {name: one for name, one in self.known.items() if name in self.exported or name in self.inherited.settings or one == UNSET}
        own |= {name: Setting(None) for name in self.lists if name in self.inherited.settings}
        return self.inherited.having(own, opened=self.opened)

    def inner(self) -> ShellState:
        """Another shell that is started here."""
        return ShellState(self.environment, self.folder)

    # -- changes -----------------------------------------------------------------------------------------------------------

    def set(self, name: str, setting: Setting) -> None:
        """Set one variable."""
        self.known[name] = setting
        self.lists.pop(name, None)
        if self.exports_all:
            self.exported |= {name}

    def open(self) -> None:
        """From here on any variable may be anything."""
        self.known = dict.fromkeys(self.known, UNKNOWN_SETTING)
        self.lists = {}
        self.opened = True

    # -- words -------------------------------------------------------------------------------------------------------------

    def expanded(self, written: str, by_make: Callable[[str], Setting] | None = None) -> Setting:
        """What a word becomes; unknown where a part of it is."""
        if self.filled_by is not None and "\\$" in written:
            return UNKNOWN_SETTING  # which is for this shell
        found, assumed = [], False
        for piece in _PIECE.finditer(written):
            single, double, escaped, bare = piece.groups()
            one = self.substituted(double if double is not None else bare, by_make) if double is not None or bare is not None else None
            if one is None:
                found.append(single if single is not None else escaped if escaped is not None else "")
            elif one.text is None:
                return one
            else:
                found.append(one.text)
                assumed = assumed or one.assumed
        return Setting("".join(found), assumed=assumed)

    def substituted(self, text: str, by_make: Callable[[str], Setting] | None = None) -> Setting:
        """A text with what its variables stand for."""
        assumed, end = False, 0
        found: list[str] = []
        for match in _EXPANDED.finditer(text):
            one = self._stands_for(match, by_make)
            if one.text is None:
                return UNKNOWN_SETTING
            found += [text[end : match.start()], one.text]
            assumed, end = assumed or one.assumed, match.end()
        return Setting("".join((*found, text[end:])), assumed=assumed)

    def _stands_for(self, match: re.Match[str], by_make: Callable[[str], Setting] | None) -> Setting:
        if match["plain"]:
            return Setting(match["plain"])
        if match["by_make"]:
            return by_make(match["by_make"]) if by_make is not None else UNKNOWN_SETTING
        if match["sum"] is not None:
            return self._sum(match["sum"])
        name = match["name"] or match["braced"]
        if name:
            return self.variable(name)
        return self.or_other(match["asked"], match["how"], match["other"]) if match["asked"] else UNKNOWN_SETTING

    def or_other(self, name: str, how: str, other: str) -> Setting:
        """What ``${NAME:-other}`` and its kin stand for."""
        said = self.variable(name)
        if said.unknown:
            return UNKNOWN_SETTING
        lacks = said.unset or (how.startswith(":") and not said.text)
        if how[-1] == "+":
            return Setting("", assumed=said.assumed) if lacks else self._beside(other, said)
        if not lacks:
            return said
        if how[-1] == "?":
            return UNKNOWN_SETTING
        found = self._beside(other, said)
        if how[-1] == "=":
            self.set(name, found)
        return found

    def _beside(self, other: str, said: Setting) -> Setting:
        found = self.expanded(other)
        return Setting(found.text, assumed=found.assumed or said.assumed)

    def _sum(self, text: str) -> Setting:
        assumed = False

        def of(node: ast.expr) -> int:
            nonlocal assumed
            if isinstance(node, ast.Constant) and isinstance(node.value, int):
                return node.value
            if isinstance(node, ast.Name):
                said = self.variable(node.id)
                assumed = assumed or said.assumed
                return int(said.text or "")
            if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
                left, right = of(node.left), of(node.right)
                if min(left, right) < 0 or max(left, right) > _LARGEST:
                    raise ValueError  # division rounds otherwise there
                return int(_SUMS[type(node.op)](left, right))
            raise ValueError

        try:
            return Setting(str(of(ast.parse(text.strip(), mode="eval").body)), assumed=assumed)
        except (ValueError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
            return UNKNOWN_SETTING


class _Block(Struct):
    """Something that holds commands: a branch, a loop, a subshell, a function, a chain behind `&&`."""

    kind: str
    start: int
    entry: ShellState
    changed: set[str] = field(default_factory=set)
    exported: frozenset[str] = frozenset()  # in branches that have ended
    opened: bool = False


class _Part(Struct, frozen=True):
    """A word as it is written."""

    text: str
    start: int
    end: int


class ShellRun(Struct, eq=False, dict=True):
    """A text that a shell runs."""

    content: str
    locate: Locate
    state: ShellState
    read: Read | None = None  # the text of a file by its path
    where: Callable[[str], Locate] | None = None  # places in such a file
    span: tuple[int, int] | None = None
    by_make: Callable[[str], Setting] | None = None
    script: str = ""
    depth: int = 0
    through: Through | None = None  # what words in front of a program make of its environment
    points: list[tuple[int, ShellState]] = field(default_factory=list)
    _loops: dict[int, set[str]] = field(default_factory=dict)  # by where they begin
    _changes: dict[str, int] = field(default_factory=dict)  # where each name is changed last
    _blocks: list[_Block] = field(default_factory=list)

    def at(self, index: int) -> ShellState:
        """The variables in front of the command at a character."""
        if not self.points:
            self.walk()
        found = bisect_right(self.points, index, key=lambda one: one[0]) - 1
        return self.points[max(0, found)][1]

    def walk(self) -> ShellState:
        """Go through all of it; what holds at the end."""
        start, end = self.span or (0, len(self.content))
        begun = self.state.copy()
        if end - start > _LONGEST:
            self.state.open()
            self.points = [(start, self.state)]
            return self.state
        self._go(start, end)  # which tells what loops and functions change
        self.state, self.points, self._blocks = begun, [(start, begun.copy())], []
        self._go(start, end)
        while self._blocks:
            self._leave()
        self.points.sort(key=lambda one: one[0])
        return self.state

    # -- the walk ----------------------------------------------------------------------------------------------------------

    def _go(self, start: int, end: int) -> None:
        at, waits = start, False
        words: list[_Part] = []
        documents: list[tuple[str, bool]] = []
        while at < end and (match := _TOKEN.match(self.content, at, end)) is not None:
            at, kind, text = match.end(), match.lastgroup, match[0]
            if kind == "word":
                if not words and (made := _FUNCTION.match(self.content, match.start(), end)) is not None and made[0].split("(")[0].split()[0] != "for":
                    self._enter("function", made.start())
                    at, waits = made.end(), False
                    continue
                if at < end and self.content[at] == "(" and (sets := _SETS.fullmatch(text)) is not None and not sets[4]:
                    at = self._list(sets[1], at, end, more=bool(sets[3]))
                    continue
                words.append(_Part(text, match.start(), at))
                documents += [(one[2], bool(one[1])) for one in _DOCUMENT.finditer(self.content, match.start(), min(end, at + 40)) if one.start() < at]
                waits = False
            elif kind == "end":
                if text == "(" and self.content.startswith("((", match.start()) and not words:
                    at = self._arithmetic(match.start(), end)
                    continue
                if text == "\n" and waits and not words:
                    continue  # a chain goes on in the next row
                self._command(words, match.start(), piped=text == "|")
                words, waits = [], text in {"&&", "||", "|"}
                self._separated(text, match.start())
                if text == "\n":
                    for mark, quoted in documents:
                        at = self._document(mark, at, end, quoted=quoted)
                    documents = []
        self._command(words, end)

    def _separated(self, text: str, index: int) -> None:
        top = self._blocks[-1].kind if self._blocks else ""
        if text == "(" or (text == "`" and top != "`"):
            self._enter(text, index)
            return
        if text == "`":
            self.state = self._blocks.pop().entry
        if top == "chain" and text != "&&":
            self._leave()
            top = self._blocks[-1].kind if self._blocks else ""
        if text in {"&&", "||", "|"} and top != "chain":
            self._enter("chain", index)
        elif text == ")" and "(" in (kinds := [one.kind for one in self._blocks]) and "case" not in kinds[len(kinds) - kinds[::-1].index("(") :]:
            while self._blocks[-1].kind != "(":
                self._leave()
            self.state = self._blocks.pop().entry
        elif text.startswith(";;") and top == "case":
            self._again()
        self._point(index)

    def _point(self, index: int) -> None:
        self.points.append((index, self.state.copy()))

    def _enter(self, kind: str, index: int) -> None:
        self._blocks.append(_Block(kind, index, self.state.copy()))
        later = set()
        if kind in {"for", "while", "until", "select"}:
            later = self._loops.get(index, set())
        elif kind == "function":
            later = {name for name, where in self._changes.items() if where > index}
            self.state.arguments = None
        for name in later:
            self.state.set(name, UNKNOWN_SETTING)
        self._point(index)

    def _again(self) -> None:
        """The next branch of a block: it begins with what was known in front of it."""
        top = self._blocks[-1]
        top.opened, top.exported = top.opened or self.state.opened, top.exported | self.state.exported
        self.state = top.entry.copy()

    def _leave(self) -> None:
        top = self._blocks.pop()
        opened = top.opened or self.state.opened
        exported = self.state.exported | top.exported
        self.state = top.entry
        if opened and not self.state.opened:
            self.state.open()
        for name in top.changed:
            self.state.set(name, UNKNOWN_SETTING)
            self.state.exported |= {name} & exported
            self._changed(name, top.start)
        if top.kind in {"for", "while", "until", "select"}:
            self._loops.setdefault(top.start, set()).update(top.changed)

    def _changed(self, name: str, index: int) -> None:
        if self._blocks:
            self._blocks[-1].changed.add(name)
        self._changes[name] = max(index, self._changes.get(name, 0))

    def _set(self, name: str, setting: Setting, index: int) -> None:
        self.state.set(name, setting)
        self._changed(name, index)

    def _list(self, name: str, at: int, end: int, *, more: bool) -> int:
        """An array: ``at`` is its opening bracket; where it ends."""
        found: list[str] | None = list(self.state.lists.get(name) or ()) if more else []
        at += 1
        while at < end and (match := _TOKEN.match(self.content, at, end)) is not None:
            at = match.end()
            if match[0] == ")":
                break
            if match.lastgroup == "word":
                one = self.state.expanded(match[0], self.by_make)
                found = [*found, one.text] if found is not None and one.text is not None else None
        self._set(name, UNKNOWN_SETTING, at)
        self.state.known.pop(name)
        self.state.lists[name] = tuple(found) if found is not None else None
        return at

    def _arithmetic(self, at: int, end: int) -> int:
        close = self.content.find("))", at, end)
        close = close + 2 if close >= 0 else end
        for match in _ARITHMETIC.finditer(self.content, at, close):
            self._set(match[1] or match[2], UNKNOWN_SETTING, at)
        return close

    def _document(self, mark: str, at: int, end: int, *, quoted: bool) -> int:
        """A here-document: what it holds may be commands of another shell."""
        close = re.compile(rf"^[ \t]*{mark}[ \t]*\r?$", re.MULTILINE).search(self.content, at, end)
        last = close.start() if close is not None else end
        state = self.state.inner()
        state.filled_by = None if quoted else self.state.copy()
        self._within(at, last, state)
        return close.end() if close is not None else end

    def _within(self, start: int, end: int, state: ShellState) -> None:
        if self.depth < _DEEPEST:
            inner = ShellRun(self.content, self.locate, state, self.read, self.where, (start, end), self.by_make, self.script, self.depth + 1, self.through)
            inner.walk()
            self.points += [*inner.points, (end, self.state.copy())]

    # -- commands ----------------------------------------------------------------------------------------------------------

    def _command(self, words: list[_Part], end: int, *, piped: bool = False) -> None:
        while words:
            first = words[0].text
            if first in _OPENERS:
                self._enter(first, words[0].start)
                if first in {"for", "select"} and len(words) > 1 and _NAME.fullmatch(words[1].text):
                    self._set(words[1].text, UNKNOWN_SETTING, words[1].start)
                if first in {"for", "select", "case"}:
                    return
            elif first in {"elif", "else"}:
                if self._blocks and self._blocks[-1].kind == "if":
                    self._again()
            elif first in _CLOSERS or first == "}":
                kinds = {"fi": {"if"}, "esac": {"case"}, "}": {"{", "function"}}.get(first, {"for", "while", "until", "select"})
                while self._blocks and self._blocks[-1].kind == "chain" and kinds & {one.kind for one in self._blocks}:
                    self._leave()
                if self._blocks and self._blocks[-1].kind in kinds:
                    if self._blocks[-1].kind == "{":
                        group = self._blocks.pop()
                        for name in group.changed:
                            self._changed(name, group.start)
                            if piped:
                                self.state.set(name, UNKNOWN_SETTING)
                    else:
                        self._leave()
            elif first == "{":
                self._enter("{", words[0].start)
            elif first not in {"then", "do", "!", "time", "command", "builtin", "nohup"}:
                break
            words = words[1:]
        if words:
            self._point(words[0].start)
            before = self.state.copy()
            self._simple(words)
            if piped:
                self.state = before  # each part of a pipe is a shell of its own
            self._point(end)

    def _simple(self, words: Sequence[_Part]) -> None:
        given = 0
        while given < len(words) and _SETS.fullmatch(words[given].text):
            given += 1
        if given == len(words):
            for word in words:
                self._assign(word)
            return
        rest = words[given:]
        first, others = rest[0].text, rest[1:]
        if first in _DECLARE:
            self._declare(first, others)
        elif first == "set":
            self._options(others)
        elif first == "shift":
            by = others[0].text if others else "1"
            self.state.arguments = self.state.arguments[int(by) :] if self.state.arguments is not None and by.isdigit() and not self._blocks else None
        elif first in _SOURCES and others:
            self._source(others[0], [word.text for word in others[1:]])
        elif first == "eval" and not any(_TOOLS.search(word.text) for word in others):
            self.state.open()
        elif first in {"cd", "pushd"} and others:
            into = self.state.expanded(others[0].text)
            self.state.folder = os.path.join(self.state.folder, into.text) if into.text is not None else self.state.folder
        elif first == "unset" or (first in _TAKES_NAMES and (first != "printf" or (rest[1:2] and rest[1].text == "-v"))):
            for word in others:
                name = _NAME.match(word.text)
                if name is not None:
                    self._set(name[0], UNSET if first == "unset" else UNKNOWN_SETTING, word.start)
        self._in_words(rest)

    def _in_words(self, words: Sequence[_Part]) -> None:
        """What words of a command do to variables, and what commands stand in their quotes."""
        for number, word in enumerate(words):
            if "=" in word.text and "${" in word.text and not word.text.startswith("'"):
                for match in _EXPANDED.finditer(word.text):
                    if match["asked"] and match["how"].endswith("="):
                        self._set(match["asked"], self.state.or_other(match["asked"], match["how"], match["other"]), word.start)
            for quoted in _QUOTED.finditer(word.text) if re.search(r"\s", word.text) else ():
                group = 1 if quoted[1] is not None else 2
                if not _RUNS.search(quoted[group]):
                    continue
                state = self.state.inner()
                if self.through is not None:
                    known = ((one.text, self.state.expanded(one.text, self.by_make).text) for one in words[:number])
                    before = [written if text is None else text for written, text in known]
                    state.inherited = self.through(before, state.inherited, state.folder, self.locate(word.start, word.end))
                state.filled_by = self.state.copy() if quoted[2] is not None else None
                self._within(word.start + quoted.start(group), word.start + quoted.end(group), state)

    def _assign(self, word: _Part) -> Setting:
        sets = _SETS.fullmatch(word.text)
        assert sets is not None  # noqa: S101 - who calls has seen it
        name = sets[1]
        found = self.state.expanded(sets[4], self.by_make) if not sets[2] and self.content[word.end : word.end + 1] not in {"`", "("} else UNKNOWN_SETTING
        if sets[3]:
            before = self.state.variable(name)
            known = before.text is not None and found.text is not None
            found = Setting((before.text or "") + (found.text or ""), assumed=before.assumed or found.assumed) if known else UNKNOWN_SETTING
        self._set(name, Setting(found.text, self.locate(word.start, word.end), assumed=found.assumed), word.start)
        return found

    def _declare(self, kind: str, words: Sequence[_Part]) -> None:
        flags = "".join(word.text[1:] for word in words if word.text.startswith("-"))
        if "f" in flags or "p" in flags:
            return
        exports = kind == "export" or (kind != "readonly" and "x" in flags)
        for word in words:
            sets = _SETS.fullmatch(word.text)
            name = sets[1] if sets is not None else word.text
            if sets is None and ("$" in word.text or "`" in word.text) and exports:
                self.state.open()  # `export $(cat file)`
                return
            if not _NAME.fullmatch(name):
                continue
            if sets is not None:
                self._assign(word)
            elif kind == "local":
                self._set(name, UNKNOWN_SETTING, word.start)
            if exports and "n" not in flags:
                self.state.exported |= {name}
                self._changed(name, word.start)
            elif exports:
                self.state.exported -= {name}

    def _options(self, words: Sequence[_Part]) -> None:
        for number, word in enumerate(words):
            named = re.fullmatch(r"([-+])[A-Za-z]*o", words[number - 1].text) if number else None  # `-o pipefail`, `-euo pipefail`
            if named is not None:
                self.state.exports_all = named[1] == "-" if word.text == "allexport" else self.state.exports_all
            elif re.fullmatch(r"[-+][A-Za-z]*a[A-Za-z]*", word.text):
                self.state.exports_all = word.text.startswith("-")
            elif word.text == "--" or not word.text.startswith(("-", "+")):
                self.state.arguments = None
                return

    def _source(self, word: _Part, arguments: Sequence[str]) -> None:
        found = self.state.expanded(word.text)
        path = found.text if found.text is not None else re.sub(r".*(?:\)|\}|\$\w+)\"?/", "", word.text).strip("\"'")
        if _TOOLS.search(path):
            return
        places = [os.path.join(self.state.folder, path), *([os.path.join(os.path.dirname(self.script), path)] if self.script else [])]
        written = word.text.strip("\"'")
        near = os.path.join(os.path.dirname(self.script) if self.script else self.state.folder, "")
        if _OUTSIDE.match(written) and not os.path.normpath(path).startswith(near):
            return  # as the shell of a user reads files of its own
        if re.search(_WRITTEN.format(re.escape(os.path.basename(path))), self.content[: word.start]):
            self.state.open()
            return
        for place in dict.fromkeys(map(os.path.normpath, places)):
            text = self.read(place) if self.read is not None and self.depth < _DEEPEST else None
            if text is not None:
                locate = self.where(place) if self.where is not None else self.locate
                inner = ShellRun(text, locate, self.state.copy(), self.read, self.where, None, None, place, self.depth + 1, self.through)
                if arguments:
                    inner.state.arguments = None
                known, own = dict(self.state.known), self.state.arguments
                self.state = inner.walk()
                self.state.arguments = own
                for name in (name for name, one in self.state.known.items() if known.get(name) is not one):
                    self._changed(name, word.start)
                return
        if self.read is not None:
            here = self.locate(word.start, word.end)
            self.state.inherited.user.mistakes[here.path, here.row, f"{written}: there is no such file"] = None
        self.state.open()


def rows_of(path: str, content: str) -> Locate:
    """The places of characters of a file."""
    from oomlint.finding import Place  # noqa: PLC0415

    starts = starts_of(content)

    def place(start: int, end: int) -> Place:
        row, last = bisect_right(starts, start), bisect_right(starts, end)
        return Place(path, 0, row, start - starts[row - 1] + 1, last, end - starts[last - 1] + 1)

    return place
