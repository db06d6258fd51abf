"""Options of command lines: argparse, optparse, click, typer and absl."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import libcst as cst
from msgspec.structs import replace

from oomlint.model import arguments, names
from oomlint.model.index import index_of
from oomlint.model.launches import Launches
from oomlint.model.option_words import OptionWords
from oomlint.model.questions import as_default, of_setting
from oomlint.model.readings import FOUND, finder
from oomlint.model.values import Absent, Alternative, Const, ExternalCall, Frame, ParsedOptions, ProvenanceStep, Unknown, picked
from oomlint.syntax.nodes import constant_key, descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_DECLARES = frozenset({"add_argument", "add_option", "add_arg", "option", "argument"})
_ABSL = re.compile(r"^DEFINE_(integer|bool|boolean|float|string|enum)$")
_BY_TEXT = re.compile(rb"\b(?:import_module|__import__|instantiate|run_path|runpy)\b")  # leads to modules that only the run knows
_MODULES_SEARCHED = 24
_TRUTHS = {"true": True, "yes": True, "false": False, "no": False}  # what a function of the project makes of a word


class Declared:
    """One declaration of an option."""

    __slots__ = ("call", "frame", "module", "style")

    def __init__(self, module: Module, frame: Frame, call: cst.Call, style: str) -> None:
        self.module = module
        self.frame = frame
        self.call = call
        self.style = style


class OptionSource:
    """What an option can be: its default, its choices, and what shell lines of the project give it."""

    def __init__(self, project: Project, evaluator: Evaluator) -> None:
        self.project = project
        self.evaluator = evaluator
        self.launches = Launches(project, evaluator)
        self.words_given = OptionWords(self)
        self._active: set[object] = set()
        self._declared: dict[Module, dict[tuple[str, object], list[Declared]]] = {}  # by style and name

    # -- argparse, optparse, absl ----------------------------------------------------------------------------------

    def lookup(self, options: ParsedOptions, name: str) -> list[Alternative]:
        """An attribute of the namespace that a parser returned."""
        declared = self.words_given.active(self._declarations(options, name), options.module)
        if not declared:
            grouped = self.words_given.of_parser(options, name) or self._group(options, name)
            if grouped is not None:
                return grouped
            return [Alternative(Unknown(f"option {name}"))]
        found: list[Alternative] = []
        for number, one in enumerate(declared[:4]):
            mine = self._values(one, name, options.module, options.call)
            if len(declared) > 1:
                key = ("declared", declared[0].call)
                mine = [m for a in mine if (m := a.under(frozenset({(key, number)}))) is not None]
            found.extend(mine)
        return found

    def words(self, options: ParsedOptions) -> tuple[list[str], bool]:
        """The names of the options that a namespace has, and whether these are all."""
        self._declared_in(options.module, "", options.style)
        found = [str(name) for style, name in self._declared[options.module] if style == options.style]
        others = (path for path in self.imports(options.module) if b"add_argument" in self.project.raw(path))
        return [word for word in found if word.isidentifier()], all(map(str.isidentifier, found)) and next(others, None) is None

    def _group(self, options: ParsedOptions, name: str) -> list[Alternative] | None:
        """An option that stands for a whole object: ``parser.add_arguments(TrainConfig, dest="data")``, ``config_flags.DEFINE_config_file("config", path)``."""
        word = b"DEFINE_config_file" if options.style == "absl" else b"add_arguments"
        for module in self.project.mentioning([word, name.encode()], options.module.path):
            for call, scope in module.calls_of((word.decode(),)):
                if not call.args:
                    continue
                frame = self._frame(module, scope)
                if options.style == "absl" and constant_key(call.args[0].value) == name:
                    return self.evaluator.sources.config_file(call, frame, ())
                dest = arguments.argument_for(call, "dest", place=1)
                if options.style != "absl" and dest is not None and constant_key(dest) == name:
                    return [Alternative(self.evaluator.sources.filled(a.value, module)) for a in self.evaluator.values(call.args[0].value, frame)[:1]]
        return None

    def by_convention(self, module: Module, name: str) -> list[Alternative]:
        """The option of that name, where the whole project declares just one; the namespace's way here is not known."""
        words = [b"add_argument", name.replace("_", "-").split("-")[-1].encode()]
        seen: list[Declared] = []
        for other in self.project.mentioning(words, module.path):
            seen.extend(self._declared_in(other, name, "argparse"))
        seen = [one for one in seen if self._may_meet(one.module, module)]
        if not seen:
            return []
        found = [a for one in seen[:6] for a in self._values(one, name, one.module)]
        defaults = {a.value if isinstance(a.value, Const) else a.value.name for a in found if isinstance(a.value, Const | ExternalCall) and not a.reach}
        if len(defaults) != 1:
            return []
        return [a.doubting() for a in self._values(seen[0], name, seen[0].module)]

    def _may_meet(self, program: Module, module: Module) -> bool:
        """Whether a file that declares options may run in one program with another: nobody imports it, and it does not lead there, else."""
        if program is module or program.source.cells or module.source.cells or self.project.may_import(program.path, module.path):
            return True
        stem = os.path.splitext(os.path.basename(program.path))[0]
        return stem.startswith("__") or bool(self.project.search(_leads_to, (stem,), module.path))

    def of_class(self, frame: Frame, name: str) -> list[Alternative]:
        """The option of that name that another method of the class declares, for whoever builds its objects: ``add_model_specific_args`` by any name."""
        owner = frame.scope.parent
        if owner is None or not owner.is_class:
            return []
        mine = [one for one in self._declared_in(frame.module, name, "argparse") if one.frame.scope.parent is owner]
        return [a.doubting() for a in self._values(mine[0], name, frame.module)] if mine else []

    def _declarations(self, options: ParsedOptions, name: str) -> list[Declared]:
        if options.style == "absl":
            found: list[Declared] = []
            for module in self.project.mentioning([b"DEFINE_", name.encode()], options.module.path):
                found.extend(self._declared_in(module, name, "absl"))
            return found[:1]
        here = self._declared_in(options.module, name, "argparse")
        scope = options.module.walk.scope_at(options.call)
        same = [d for d in here if d.frame.scope is scope]
        if same or here:
            return same or here
        for module in self.imported(options.module):
            found = self._declared_in(module, name, "argparse")
            if found:
                return found
        return []

    def imported(self, module: Module) -> Iterator[Module]:
        """Modules of the project that this one imports, near ones first."""
        queue, seen = [module], {module.path}
        while queue and len(seen) < _MODULES_SEARCHED:
            here = queue.pop(0)
            for path in self.imports(here):
                if path not in seen and b"add_" in self.project.raw(path):
                    seen.add(path)
                    found = self.project.find(path)
                    if found is not None:
                        yield found
                        queue.append(found)

    def reached(self, path: str, most: int = 400) -> list[Module]:
        """The file and those of the project that it imports, near ones first, as far as ``most`` of them."""
        found: dict[str, Module] = {}
        queue = [path]
        while queue and len(found) < most:
            here = queue.pop(0)
            module = self.project.find(here) if here not in found else None
            if module is not None:
                found[here] = module
                queue.extend(one for one in self.imports(module, inner=True) if one not in found)
        return list(found.values())

    def imports(self, module: Module, *, inner: bool = False) -> list[str]:
        """The files of the project that a module imports; with ``inner`` also those that its functions do."""
        found: list[str] = []
        for scope in module.walk.scopes if inner else (module.root,):
            for effect in (one for effects in scope.effects.values() for one in effects):
                statement = effect.statement
                if effect.kind == "import" and isinstance(effect.node, cst.ImportAlias):
                    path = self.project.locate(module.path, names.dotted(effect.node.name))
                    if path is not None and not path.endswith(os.sep):
                        found.append(path)
                elif effect.kind in {"from", "star"} and isinstance(statement, cst.ImportFrom):
                    source = names.dotted(statement.module) if statement.module is not None else ""
                    path = self.project.locate(module.path, source, len(statement.relative))
                    if path is None:
                        continue
                    if isinstance(effect.node, cst.ImportAlias):
                        name = names.dotted(effect.node.name)
                        spread = path.endswith(os.sep) and not statement.relative
                        deeper = self.project.locate(module.path, f"{source}.{name}") if spread else self.project.submodule(path, name)
                        if deeper is not None and not deeper.endswith(os.sep):
                            found.append(deeper)
                    if not path.endswith(os.sep):
                        found.append(path)
        return found

    def all_declared(self, module: Module) -> list[Declared]:
        """All options that a file declares, in source order of each way to do so."""
        self._declared_in(module, "", "argparse")
        return sorted((one for found in self._declared[module].values() for one in found), key=lambda one: module.place(one.call))

    def _declared_in(self, module: Module, name: str, style: str) -> list[Declared]:
        known = self._declared.get(module)
        if known is None:
            known = self._declared[module] = {}
            for call, scope in module.calls_of(filter(_ABSL.match, module.called)):
                if call.args:
                    known.setdefault(("absl", constant_key(call.args[0].value)), []).append(Declared(module, self._frame(module, scope), call, "absl"))
            for call, scope in module.calls_of(_DECLARES):
                if isinstance(call.func, cst.Attribute):
                    known.setdefault(("argparse", self._destination(call)), []).append(Declared(module, self._frame(module, scope), call, "argparse"))
        return known.get((style, name), [])

    def _frame(self, module: Module, scope: Scope) -> Frame:
        return self.evaluator.calls.plain_frame(module, scope)

    @staticmethod
    def _keyword(call: cst.Call, name: str) -> cst.BaseExpression | None:
        return arguments.named(call, name)

    def _destination(self, call: cst.Call) -> str:
        dest = self._keyword(call, "dest")
        if dest is not None:
            key = constant_key(dest)
            return key if isinstance(key, str) else ""
        flags = self.flags(call)
        chosen = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
        return chosen.lstrip("-").replace("-", "_")

    @staticmethod
    def flags(call: cst.Call) -> list[str]:
        """``["-j", "--num-workers"]`` of a declaration."""
        found = []
        for arg in call.args:
            if arg.keyword is None and arg.star == "":
                key = constant_key(arg.value)
                if isinstance(key, str):
                    found.append(key)
        return found

    def _values(self, one: Declared, name: str, script: Module, parsed: cst.CSTNode | None = None) -> list[Alternative]:
        key = ("option", one.call)
        if key in self._active:
            return [Alternative(Unknown())]
        self._active.add(key)
        try:
            return self._option_values(one, name, script, parsed)
        finally:
            self._active.discard(key)

    def _option_values(self, one: Declared, name: str, script: Module, parsed: cst.CSTNode | None) -> list[Alternative]:
        call, frame = one.call, one.frame
        flags = self.flags(call) if one.style != "absl" else [f"--{name}"]
        flag = next((f for f in flags if f.startswith("--")), flags[0] if flags else name)
        if not flag.startswith("-"):
            flag = name
        key = ("option", call)

        def at(text: str) -> ProvenanceStep:
            return ProvenanceStep(one.module, call, text, kind="option")

        default = call.args[1].value if one.style == "absl" and len(call.args) > 1 else self._keyword(call, "default")
        action = self._keyword(call, "action")
        action_name = constant_key(action) if action is not None else ""
        if action is not None and not isinstance(action_name, str):
            action_name = names.last_name(action)
        out: list[Alternative] = []
        overridden = self._set_defaults(one, name, parsed)
        if overridden:
            out.extend(picked(a.after(at(f"option `{flag}`, default set elsewhere")), key, "default") for a in overridden)
        elif default is not None:
            read = self._read(self.evaluator.values(default, frame), self._keyword(call, "type"))
            out.extend(picked(a.after(at(f"default of `{flag}`")), key, "default") for a in read)
        elif action_name in {"store_true", "store_false"}:
            out.append(picked(Alternative(Const(action_name == "store_false"), (at(f"default of `{flag}`"),)), key, "default"))
        elif self._keyword(call, "required") is None:
            out.append(picked(Alternative(Const(None), (at(f"`{flag}` has no default"),)), key, "default"))
        commanded = self.words_given.given(one, name, script)
        if commanded is not None:
            return commanded or self.by_variable(call, out) or [Alternative(Unknown(f"option {flag}"))]
        if action_name in {"store_true", "store_false"}:
            given = action_name == "store_true"
            out = self.launches.switched(flags, script, key, at(f"option `{flag}`"), out, given=given)
            return [*out, picked(Alternative(Const(given), (at(f"`{flag}` given"),), reach=True), key, "given")]
        if action_name == "BooleanOptionalAction":
            out.extend(picked(Alternative(Const(v), (at(f"`{flag}` given"),), reach=True), key, f"given {v}") for v in (True, False))
            return out
        out = self.launches.values(flags, script, key, at(f"option `{flag}`"), out)
        out.extend(self._choices(call, frame, key, flag, whole=self._is_int(one, out)))
        if self._keyword(call, "choices") is None:
            other = Alternative(Unknown(f"`{flag}` from the command line"), (at(f"option `{flag}`"),), reach=True)
            out.append(picked(other, key, "other"))
        return out

    def by_variable(self, call: cst.Call, default: list[Alternative]) -> list[Alternative]:
        """What an option is that the command leaves out: by the variable of the environment that it names, else its default."""
        given = self._keyword(call, "envvar") or self._keyword(call, "env_var")
        for node in [element.value for element in given.elements] if isinstance(given, cst.List | cst.Tuple) else [given] if given is not None else []:
            name = constant_key(node)
            said = self.evaluator.variable(name) if isinstance(name, str) else None
            if said is None or said.unknown:
                return [Alternative(Unknown("environment"))]
            if said.text is not None:
                read = self._read([of_setting(str(name), said)], self._keyword(call, "type"))
                return [as_default(one, default) for one in read]
        return default

    @staticmethod
    def _read(found: list[Alternative], kind: cst.BaseExpression | None) -> list[Alternative]:
        """Words as the type of an option reads them."""
        word = names.last_name(kind) if kind is not None else "str"
        own = word not in {"int", "float", "str", "bool", "Path"}
        whole = [replace(a, value=Const(int(str(a.const)))) if word == "int" and isinstance(a.const, str) and a.const.isdigit() else a for a in found]
        return [replace(a, value=Const(_TRUTHS[str(a.const).lower()])) if own and str(a.const).lower() in _TRUTHS else a for a in whole]

    def _is_int(self, one: Declared, out: list[Alternative]) -> bool:
        kind = self._keyword(one.call, "type")
        if kind is not None:
            written = constant_key(kind) if isinstance(kind, cst.SimpleString) else names.last_name(kind)
            return written in {"int", "INT", "IntRange"}
        if one.style == "absl":
            return names.last_name(one.call.func) == "DEFINE_integer"
        if one.style == "click":
            return _has_whole_number(out)
        return False

    def _choices(self, call: cst.Call, frame: Frame, key: object, flag: str, *, whole: bool) -> list[Alternative]:
        choices = self._keyword(call, "choices")
        if choices is not None:
            if not isinstance(choices, cst.List | cst.Tuple):
                return []
            found = []
            for element in choices.elements:
                for alt in self.evaluator.values(element.value, frame):
                    if isinstance(alt.value, Const):
                        text = f"`{flag} {alt.value.value}` is a choice"
                        found.append(
                            picked(
                                Alternative(alt.value, (ProvenanceStep(frame.module, call, text, kind="option"),), reach=True),
                                key,
                                ("choice", repr(alt.value.value)),
                            )
                        )
            return found
        if not whole:
            return []
        # A whole number from the command line can always be 0; what else it can be does not matter to any rule.
        step = ProvenanceStep(frame.module, call, f"`{flag} 0` can be given", kind="option")
        return [picked(Alternative(Const(0), (step,), reach=True), key, "zero")]

    def _set_defaults(self, one: Declared, name: str, parsed: cst.CSTNode | None) -> list[Alternative]:
        """What ``parser.set_defaults(workers=4, **read)`` says of an option, unless the words were parsed before: ``read`` may be of a file that they name."""
        walk = one.module.walk
        parsed = parsed if parsed in walk.parents else None
        for call, scope in one.module.calls_of(("set_defaults",)):
            if parsed is not None and walk.scope_at(parsed) is scope and one.module.place(parsed) < one.module.place(call):
                continue
            frame = self._frame(one.module, scope)
            value = self._keyword(call, name)
            if value is not None:
                return self.evaluator.values(value, frame)
            for star in (arg.value for arg in call.args if arg.star == "**"):
                found = self.evaluator.access(star, (("item", name),), frame)
                if not any(isinstance(alt.value, Absent) for alt in found):
                    return found
        return []

    # -- click and typer ---------------------------------------------------------------------------------------------

    def command_parameter(self, frame: Frame, name: str) -> list[Alternative] | None:
        """A parameter that ``click`` fills; ``None`` where none does."""
        node = frame.scope.node
        if not isinstance(node, cst.FunctionDef):
            return None
        for decorator in node.decorators:
            call = decorator.decorator
            if isinstance(call, cst.Call) and names.last_name(call.func) in {"option", "argument"} and self._click_name(call) == name:
                outer = frame.scope.parent
                around = self._frame(frame.module, outer) if outer is not None else frame
                return self._values(Declared(frame.module, around, call, "click"), name, frame.module)
        return None

    def _click_name(self, call: cst.Call) -> str:
        flags = self.flags(call)
        plain = [f for f in flags if not f.startswith("-")]
        if plain:
            return plain[0].replace("-", "_")
        long = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
        return long.split("/")[0].lstrip("-").replace("-", "_")

    def typer_default(self, call: cst.Call, name: str, frame: Frame) -> list[Alternative]:
        """A parameter whose default is ``typer.Option(4, "--num-workers")``."""
        if not call.args or call.args[0].keyword is not None:
            return [Alternative(Unknown(f"option {name}"))]
        flag = next((f for f in self.flags(call) if f.startswith("--")), "--" + name.replace("_", "-"))
        key = ("option", call)
        step = ProvenanceStep(frame.module, call, f"default of `{flag}`", kind="option")
        out = [picked(a.after(step), key, "default") for a in self.evaluator.values(call.args[0].value, frame)]
        commanded = self.launches.commanded([flag], key, step)
        if commanded is not None:
            return commanded or self.by_variable(call, out)
        if _has_whole_number(out):
            zero = ProvenanceStep(frame.module, call, f"`{flag} 0` can be given", kind="option")
            out.append(picked(Alternative(Const(0), (zero,), reach=True), key, "zero"))
        return out

    def by_annotation(self, param: cst.Param, default: list[Alternative]) -> list[Alternative]:
        """The default of a parameter that is ``Annotated[int, typer.Option(envvar="N")]``, or what the variable is."""
        marks = (n for n in descend(param.annotation.annotation) if isinstance(n, cst.Call)) if param.annotation is not None else ()
        mark = next((n for n in marks if names.last_name(n.func) in {"Option", "Argument"}), None)
        return self.by_variable(mark, default) if mark is not None and self.project.command is not None else default

    def annotated(self, param: cst.Param, name: str, frame: Frame, found: list[Alternative]) -> list[Alternative]:
        """What the command line can give beside the default, where the parameter is ``Annotated[int, typer.Option()]`` or of a command."""
        node = frame.scope.node
        if not isinstance(node, cst.FunctionDef) or not _has_whole_number(found):
            return []
        marked = param.annotation is not None and any(
            isinstance(n, cst.Call) and names.last_name(n.func) in {"Option", "Argument"} for n in descend(param.annotation.annotation)
        )
        command = any(names.last_name(d.decorator.func if isinstance(d.decorator, cst.Call) else d.decorator) == "command" for d in node.decorators)
        if not marked and not (command and any(e.kind == "import" for e in frame.module.root.effects.get("typer", ()))):
            return []
        flag = "--" + name.replace("_", "-")
        if self.project.command is not None:
            return []
        return [
            Alternative(
                Const(0),
                (ProvenanceStep(frame.module, param, f"`{flag} 0` can be given", kind="option"),),
                frozenset({(("option", param), "zero")}),
                reach=True,
            )
        ]


def _has_whole_number(found: list[Alternative]) -> bool:
    return any(isinstance(alt.const, int) and not isinstance(alt.const, bool) for alt in found)


@finder
def _leads_to(path: str, data: bytes, stem: str) -> str:
    """Whether a file imports a module of that name, or modules by a text that only the run knows."""
    if os.path.splitext(os.path.basename(path))[0] == stem:
        return ""
    if _BY_TEXT.search(data) is not None:
        return FOUND
    if stem.encode(errors="surrogateescape") not in data:
        return ""
    index = index_of(data)
    return FOUND if index is None or stem in index.imported else ""
