"""What the command that is asked about gives to the options that a program declares: by flags, by place, and by the name of a sub-command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.model import arguments, names
from oomlint.model.given_command import DeclaredOption, GivenCommand, ParsedWords, constant_of, is_known, placed, read
from oomlint.model.values import Alternative, Const, Display, External, ProvenanceStep, SourceExpression, Unknown, picked
from oomlint.syntax.nodes import constant_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.finding import Place
    from oomlint.model.options import Declared, OptionSource
    from oomlint.model.project import Module
    from oomlint.model.values import Frame, ParsedOptions, Value

_BARE: Final = frozenset({"store_true", "store_false", "store_const", "append_const", "count", "help", "version", "BooleanOptionalAction"})
_REPEATED: Final = frozenset({"append", "extend", "append_const", "count", "store_const"})  # what these make of their words is not read
_GROUPS: Final = frozenset({"add_argument_group", "add_mutually_exclusive_group"})
_TRUTHS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}  # what a function of the project makes of a word
_OWN_WORDS: Final = re.compile(r"\bhydra\b|\bfrom_cli\b|\bfrom_dotlist\b|\bsys\.argv\b")
_LITERALS: Final = (cst.SimpleString, cst.Integer, cst.Float)
_MOST_CHOICES: Final = 6  # that are named
_LEAVES_WORDS: Final = "parse_known_args"  # by which others may read them
_MOST_GROUPS: Final = 4  # inside each other
_TEXTS: Final = ("pathlib.", "os.path.", "click.", "builtins.str")  # types that leave a word as it is


class ParserWords:
    """The words of the command as one parser reads them."""

    def __init__(self, declared: list[Declared], chosen: str | None, found: ParsedWords, by_place: dict[cst.Call, list[str]]) -> None:
        self.declared = declared
        self.chosen = chosen  # the sub-command; None where nobody knows which
        self.read = found
        self.by_place = by_place


class OptionWords:
    """Answers for the options of one project."""

    def __init__(self, options: OptionSource) -> None:
        self.options = options
        self.evaluator = options.evaluator
        self.project = options.project
        self._lines: dict[tuple[Module, Module, cst.CSTNode | None], ParserWords] = {}
        self._unclaimed: dict[str, str | None] | None = None

    def given(self, one: Declared, name: str, script: Module) -> list[Alternative] | None:
        """What the command gives to an option: nothing where it leaves it out; ``None`` where no command is asked about."""
        if self.project.command is None:
            return None
        line = self._line(script, one.module, _decorated(one))
        key, flags = ("option", one.call), self.options.flags(one.call)
        written = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else f"--{name}")
        if _is_placed(flags) and one.style != "absl":
            words = line.by_place.get(one.call)
            if line.read.opened or (words == [] and self._count(one) is None):
                return [self._unknown(one, written)]
            return self._alternatives(one, words, written, key) if words else []
        forms = [form for form in line.read.given if form in {(one.call, True), (one.call, False)}]
        if not forms:
            return [self._unknown(one, written)] if line.read.opened else []
        action, words = self._action(one), line.read.given[forms[-1]]
        if action in {"store_true", "store_false", "BooleanOptionalAction"} or (self._count(one) == 0 and not action):
            told = _TRUTHS.get(words[0].lower()) if words else (forms[-1] == (one.call, True)) is (action != "store_false")
            at = ProvenanceStep(one.module, one.call, f"the command gives `{written}`", kind="option")
            return [picked(Alternative(Const(told) if told is not None else Unknown(written), (at,)), key, "command")]
        return self._alternatives(one, words, written, key)

    def active(self, declared: list[Declared], script: Module) -> list[Declared]:
        """Those of several declarations that the command's sub-command has."""
        if self.project.command is None:
            return declared
        return [one for one in declared if one in self._line(script, one.module).declared] or declared

    def of_parser(self, options: ParsedOptions, name: str) -> list[Alternative] | None:
        """The name of the sub-command, and what it sets beside its options; ``None`` where neither is called so.

        Where nobody asks about one command, what each of them sets: ``args.run(args)`` runs the function of any.
        """
        module = options.module
        if self.project.command is None:
            step = ProvenanceStep(module, options.call, f"`{name}` of the parser", kind="option")
            given = ((arguments.named(call, name), scope) for call, scope in module.calls_of(("set_defaults",)))
            plain = self.evaluator.calls.plain_frame
            found = [alt for value, scope in given if value is not None for alt in self.evaluator.values(value, plain(module, scope))]
            return [alt.after(step) for alt in found] or None
        line = self._line(module, module)
        step = ProvenanceStep(module, options.call, f"`{name}` of the command", kind="option")
        for call, _ in module.calls_of(("add_subparsers",)):
            dest = arguments.named(call, "dest")
            if dest is not None and constant_key(dest) == name:
                chosen = Unknown("sub-command") if line.chosen is None else Const(line.chosen or None)
                return [picked(Alternative(chosen, (step,)), ("option", call), "command")]
        for call, scope in module.calls_of(("set_defaults",)):
            value = arguments.named(call, name)
            frame = self.evaluator.calls.plain_frame(module, scope)
            if value is not None and isinstance(call.func, cst.Attribute) and self._sub(call.func.value, frame) in {"", line.chosen}:
                return [alt.after(step) for alt in self.evaluator.values(value, frame)]
        return None

    def unclaimed(self, name: str) -> Alternative | None:
        """What the command gives under a name that no parser in sight has, which may reach a default of that name; ``None`` where it gives nothing so.

        Where the command has words that nobody knows, that may be anything.
        """
        asked = self.project.command
        if asked is None or not asked.words:
            return None
        if self._unclaimed is None:
            self._unclaimed = {}
            self._unclaimed = dict(self._found_unclaimed(asked.words))
        key = name if name in self._unclaimed else "*" if "*" in self._unclaimed else ""
        if not key:
            return None
        text = self._unclaimed[key]
        value = Const(constant_of(text)) if text is not None and is_known(text) else Unknown(f"`{name}` of the command")
        return Alternative(value, (asked.gives(f"{name}{'' if text is None else f' {text}'}"),))

    def strays(self) -> dict[str, str]:
        """Options of the command that no parser in sight has, where one reads all words: with the closest that there is, or nothing."""
        from difflib import get_close_matches  # noqa: PLC0415 - only for a command

        asked, (declared, claimed, own) = self.project.command, self._in_sight()
        modules = {one.module for one in declared}
        if asked is None or own or not declared or any(one.style != "argparse" for one in declared) or any(_LEAVES_WORDS in one.source.text for one in modules):
            return {}
        flags = (word.partition("=")[0] for word in asked.words if word.startswith("--") and is_known(word))
        return {flag: (get_close_matches(flag, claimed, n=1) or [""])[0] for flag in flags if not _has(claimed, flag) and flag not in {"--", "--help"}}

    def refused(self) -> Iterator[tuple[str, str, Place]]:
        """What the command gives to options that argparse does not take there: the words, what is wanted, and where the option is declared."""
        entry = self.project.find(self.project.command.script) if self.project.command is not None else None
        if entry is None:
            return
        line = self._line(entry, entry)
        for one in line.declared if not line.read.opened else ():
            flags = self.options.flags(one.call)
            if one.style != "argparse" or any(set(flags) & set(self.options.flags(other.call)) for other in line.declared if other is not one):
                continue
            words = line.by_place.get(one.call, []) if _is_placed(flags) else line.read.given.get((one.call, True), [])
            wanted = self._wanted(one)
            for word in (word for word in words if wanted is not None and is_known(word) and not self._takes(one, word)):
                yield f"{'' if _is_placed(flags) else f'{flags[-1]} '}{word}", wanted or "", one.module.place(one.call)

    def _wanted(self, one: Declared) -> str | None:
        kind, listed = arguments.named(one.call, "type"), self._listed(one)
        if listed:
            return f"one of {', '.join(map(str, listed[:_MOST_CHOICES]))}" + (" and so on" if len(listed) > _MOST_CHOICES else "")
        named = names.dotted(kind) if kind is not None else ""
        return {"int": "a whole number", "float": "a number"}.get(named or "")

    def _takes(self, one: Declared, word: str) -> bool:
        made = self._made(one, word)
        listed = self._listed(one)
        return made.value in listed if listed and isinstance(made, Const) else not isinstance(made, Unknown)

    @staticmethod
    def _listed(one: Declared) -> list[object]:
        """The choices of an option, where they are written out and of a type that is known."""
        choices, kind = arguments.named(one.call, "choices"), arguments.named(one.call, "type")
        elements = choices.elements if isinstance(choices, cst.List | cst.Tuple) else ()
        known = kind is None or names.dotted(kind) in {"int", "float", "str"}
        return [constant_key(element.value) for element in elements] if known and all(isinstance(e.value, _LITERALS) for e in elements) else []

    def _in_sight(self) -> tuple[list[Declared], set[str], bool]:
        """The options that the script may have, by what they are called, and whether it looks at the words itself."""
        entry = self.project.find(self.project.command.script) if self.project.command is not None else None
        reached = [entry, *self.options.imported(entry)] if entry is not None else []
        declared = [one for module in reached for one in self.options.all_declared(module)]
        claimed = {word for one in declared for option in self._options(one) for word in option.flags}
        return declared, claimed, any(_OWN_WORDS.search(module.source.text) for module in reached)

    def _found_unclaimed(self, words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
        if self.project.command is None or self.project.find(self.project.command.script) is None:
            return
        declared, claimed, own = self._in_sight()
        for number, word in enumerate(words):
            flag, equals, text = word.partition("=")
            if not is_known(word):
                if not declared and not own and not (number and words[number - 1].startswith("-")):
                    yield "*", None
                continue
            if _has(claimed, flag) or not (flag.startswith("--") or equals):
                continue
            following = words[number + 1] if number + 1 < len(words) and not words[number + 1].startswith("--") else "True"
            name = flag.lstrip("-+~").rpartition(".")[2].replace("-", "_")
            if name.isidentifier() and not (own and not word.startswith("-")):
                yield name, text if equals else following

    # -- how the words are read ------------------------------------------------------------------------------------------------

    def _line(self, script: Module, home: Module, function: cst.CSTNode | None = None) -> ParserWords:
        key = (script, home, function)
        known = self._lines.get(key)
        if known is None:
            self._lines[key] = ParserWords([], None, ParsedWords(opened=True), {})  # for whoever asks on the way
            known = self._lines[key] = self._parsed(script, home, function)
        return known

    def _parsed(self, script: Module, home: Module, function: cst.CSTNode | None) -> ParserWords:
        words = self.project.command.words if self.project.command is not None else ()
        modules = list(dict.fromkeys([home, script, *self.options.imported(script)]))
        every = [one for module in modules for one in self.options.all_declared(module) if _decorated(one) in {None, function} or function is None]
        subs = {one: self._sub(one.call.func.value, one.frame) for one in every if isinstance(one.call.func, cst.Attribute) and one.style == "argparse"}
        parsers = {sub for sub in subs.values() if sub} | {sub for sub in self._named_parsers(home) if sub}
        first = read(words, [option for one in every for option in self._options(one)])
        chosen = next((word for word in first.plain if word in parsers), "")
        if not chosen and parsers and (first.opened or first.left or not all(map(is_known, first.plain))):
            return ParserWords(every, None, ParsedWords(opened=True), {})
        declared = [one for one in every if subs.get(one, "") in {"", chosen}]
        found = read(words, [option for one in declared for option in self._options(one)])
        listed: list[tuple[cst.Call, int | str | None]] = []
        own = [one for one in declared if one.module is home and one.style == "argparse" and _is_placed(self.options.flags(one.call))]
        mains = [one for one in own if not subs.get(one)]
        listed += [(one.call, self._count(one)) for one in mains]
        listed += [(call, None) for call, _ in home.calls_of(("add_subparsers",))][:1] if parsers else []
        listed += [(one.call, self._count(one)) for one in own if subs.get(one)]
        shares = placed(found.plain, [count for _, count in listed])
        return ParserWords(declared, chosen, found, {call: share for (call, _), share in zip(listed, shares, strict=True)})

    def _options(self, one: Declared) -> Iterator[DeclaredOption]:
        """The forms of an option, each with whether it says yes."""
        written = [f"--{constant_key(one.call.args[0].value)}"] if one.style == "absl" else self.options.flags(one.call)
        yes = {flag for word in written for flag in word.split("/") if flag.startswith("-")}
        no = {word.partition("/")[2] for word in written if "/" in word}
        yes |= {flag[1:] for flag in yes} if one.style == "absl" else set()
        count = self._count(one)
        if count == 0 and (one.style == "absl" or self._action(one) == "BooleanOptionalAction"):
            no |= {f"--no{'' if one.style == 'absl' else '-'}{flag.lstrip('-')}" for flag in yes if flag.startswith("--")}
        for said, these in ((True, yes - no), (False, no)):
            if these:
                yield DeclaredOption((one.call, said), frozenset(these), count)

    def _action(self, one: Declared) -> str:
        given = arguments.named(one.call, "action")
        text = constant_key(given) if given is not None else ""
        return text if isinstance(text, str) else names.last_name(given) if given is not None else ""

    def _count(self, one: Declared) -> int | str | None:
        """How many words an option takes."""
        if one.style == "absl":
            return 0 if "bool" in names.last_name(one.call.func) else None
        switch = arguments.named(one.call, "is_flag", "count")
        if self._action(one) in _BARE or (switch is not None and names.dotted(switch) == "True") or any("/" in flag for flag in self.options.flags(one.call)):
            return 0
        given = arguments.named(one.call, "nargs")
        if given is None:
            return None
        found = next((alt.const for alt in self.evaluator.values(given, one.frame)), None)
        return ("*" if found < 0 else found) if isinstance(found, int) else found if isinstance(found, str) else "..."

    def _sub(self, node: cst.BaseExpression, frame: Frame) -> str:
        """The sub-command whose parser an expression is; empty for that of the whole command."""
        for _ in range(_MOST_GROUPS):
            calls = [
                alt.value.node for alt in self.evaluator.values(node, frame) if isinstance(alt.value, SourceExpression) and isinstance(alt.value.node, cst.Call)
            ]
            made = next(iter(calls), node)
            if not isinstance(made, cst.Call) or not isinstance(made.func, cst.Attribute):
                return ""
            if made.func.attr.value == "add_parser" and made.args:
                name = constant_key(made.args[0].value)
                return name if isinstance(name, str) else ""
            if made.func.attr.value not in _GROUPS:
                return ""
            node = made.func.value
        return ""

    def _named_parsers(self, module: Module) -> Iterator[str]:
        for call, _ in module.calls_of(("add_parser",)):
            name = constant_key(call.args[0].value) if call.args else ""
            if isinstance(name, str):
                yield name

    # -- what the words are ------------------------------------------------------------------------------------------------

    def _unknown(self, one: Declared, written: str) -> Alternative:
        return Alternative(Unknown(f"`{written}` of the command"), (ProvenanceStep(one.module, one.call, f"option `{written}`", kind="option"),))

    def _alternatives(self, one: Declared, words: list[str], written: str, key: object) -> list[Alternative]:
        count = self._count(one)
        if not all(map(is_known, words)) or self._action(one) in _REPEATED:
            return [self._unknown(one, written)]
        at = (self.project.command or GivenCommand()).gives(" ".join((written, *words)))
        if count == "?" and not words:
            const = arguments.named(one.call, "const")
            return [alt.after(at) for alt in self.evaluator.values(const, one.frame)] if const is not None else [Alternative(Const(None), (at,))]
        made = [self._made(one, word) for word in words]
        if any(isinstance(value, Unknown) for value in made) or not made:
            return [self._unknown(one, written)]
        value: Value = made[0]
        if count is not None and count != "?":
            value = Display(cst.parse_expression(repr([value.value for value in made if isinstance(value, Const)])), one.frame)
        return [picked(Alternative(value, (at,)), key, "command")]

    def _made(self, one: Declared, word: str) -> Const | Unknown:
        """What the type of an option makes of a word."""
        kind = arguments.named(one.call, "type")
        name = names.last_name(one.call.func).rpartition("_")[2] if one.style == "absl" else names.last_name(kind) if kind is not None else ""
        if isinstance(kind, cst.SimpleString):
            name = str(kind.evaluated_value)
        try:
            if name.lower().removesuffix("range") in {"int", "integer"}:
                return Const(int(word))
            if name.lower().removesuffix("range") == "float":
                return Const(float(word))
        except ValueError:
            return Unknown(word)
        if name == "bool":
            return Const(_TRUTHS.get(word.lower(), bool(word)) if one.style != "argparse" else bool(word))
        if name in {"str", "string", "enum"} or (kind is None and one.style == "argparse"):
            return Const(word)
        if word.lower() in _TRUTHS and not word.isdigit():
            return Const(_TRUTHS[word.lower()])
        value = constant_of(word)
        known = kind is None or any(isinstance(a.value, External) and a.value.name.startswith(_TEXTS) for a in self.evaluator.values(_callee(kind), one.frame))
        return Const(value) if known or not isinstance(value, str) else Unknown(word)


def _callee(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.func if isinstance(node, cst.Call) else node


def _has(claimed: set[str], flag: str) -> bool:
    """Whether an option is one of those that there are, or the beginning of a long one."""
    return flag in claimed or (flag.startswith("--") and any(one.startswith(flag) for one in claimed))


def _decorated(one: Declared) -> cst.CSTNode | None:
    """The function that an option of ``click`` decorates: others of the file may have options of the same names."""
    decorator = one.module.walk.parents.get(one.call)
    return one.module.walk.parents.get(decorator) if isinstance(decorator, cst.Decorator) else None


def _is_placed(flags: list[str]) -> bool:
    return bool(flags) and not any(flag.startswith("-") for flag in flags)
