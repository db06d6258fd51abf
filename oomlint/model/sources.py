"""Where settings come from beside plain code: classes that a command line fills, configuration objects and files, and what binds parameters from outside.

Each library is a row of a table that says what its call gives; what a key of it holds is then asked of the reader of settings files and of the evaluator.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.model import arguments, names
from oomlint.model.given_command import constant_of, spellings
from oomlint.model.questions import of_setting
from oomlint.model.settings_files import MAINS
from oomlint.model.values import (
    ABSENT,
    Absent,
    Alternative,
    ClassRef,
    Const,
    Display,
    External,
    ExternalCall,
    FilledObject,
    Frame,
    FunctionRef,
    Instance,
    Merged,
    Namespace,
    ProvenanceStep,
    ReturnedTuple,
    SettingsNode,
    Unknown,
    Value,
    picked,
)
from oomlint.syntax.nodes import constant_key, descend, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.syntax.nodes import Accessor
    from oomlint.syntax.scopes import Effect

# Calls that make an object of a class whose fields the command line may set; the class is the first argument, or has one of these names.
_FILLS: Final = frozenset(
    {
        "draccus.parse", "pyrallis.parse", "tyro.cli", "dcargs.cli", "simple_parsing.parse", "jsonargparse.CLI", "jsonargparse.auto_cli", "chz.entrypoint",
        "omegaconf.OmegaConf.structured", "datargs.parse", "chz.nested_entrypoint",
    },
)  # fmt: skip
_CLASS_WORDS: Final = ("config_class", "f", "components", "obj", "cls")
# Parsers that are made of several such classes, and their methods that give the objects, in that order.
_PARSERS: Final = frozenset(
    {"transformers.HfArgumentParser", "transformers.hf_argparser.HfArgumentParser", "trl.TrlParser", "trl.commands.cli_utils.TrlParser"}
)
_PARSES: Final = frozenset({"parse_args_into_dataclasses", "parse_json_file", "parse_yaml_file", "parse_dict", "parse_args_and_config"})
# Decorators that fill the parameter of a function, by its annotation where no file says more.
_ENTRIES: Final = MAINS | {"draccus.wrap", "pyrallis.wrap"}
# Objects that keep what is set on them, and what gives one of the same content.
CONTAINERS: Final = frozenset(
    {
        "yacs.config.CfgNode", "fvcore.common.config.CfgNode", "detectron2.config.CfgNode", "ml_collections.ConfigDict",
        "ml_collections.config_dict.ConfigDict",
        "mmengine.ConfigDict", "mmengine.config.ConfigDict", "mmcv.ConfigDict", "mmcv.utils.ConfigDict",
    },
)  # fmt: skip
_CLONES: Final = frozenset({"clone", "copy", "copy_and_resolve_references", "to_dict", "deepcopy"})
_FILES: Final = frozenset({f"{owner}.Config.fromfile" for owner in ("mmengine", "mmengine.config", "mmcv", "mmcv.utils")})  # of Python, YAML or JSON
_SECTIONS: Final = frozenset({f"configparser.{name}" for name in ("ConfigParser", "RawConfigParser", "SafeConfigParser")})
_GETS: Final = {"get": str, "getint": int, "getfloat": float, "getboolean": bool}
_CONFIG_FLAGS: Final = "config_flags.DEFINE_config_file"
_LIGHTNING: Final = "LightningCLI"
_MOST_BASES: Final = 12
_MOST_FILES: Final = 6  # that are merged by turns
UNREAD: Final = Unknown("a file that is named elsewhere")


class Sources:
    """Answers what libraries of configuration make of a program's files and command lines."""

    def __init__(self, project: Project, evaluator: Evaluator) -> None:
        self.project = project
        self.evaluator = evaluator

    # -- calls ---------------------------------------------------------------------------------------------------------

    def called(self, name: str, node: cst.Call, frame: Frame) -> list[Alternative] | None:
        """What a call of a library gives; ``None`` where it is none of those."""
        if name in _FILLS:
            given = _argument(node, *_CLASS_WORDS)
            found = [] if given is None else [self.filled(a.value, frame.module) for a in self.evaluator.values(given, frame)[:1]]
            return [Alternative(value) for value in found if not isinstance(value, Unknown)] or None
        if name == "omegaconf.OmegaConf.merge":
            return [Alternative(Merged(tuple(alts[0].value for arg in node.args if (alts := self.evaluator.values(arg.value, frame))), deep=True))]
        if name in {"omegaconf.OmegaConf.from_cli", "omegaconf.OmegaConf.from_dotlist"}:
            told = self.evaluator.settings.overrides()
            written = self.evaluator.settings.dotted(told) if told else None
            return [Alternative(Unknown("words of the command") if told is None else written if written is not None else Merged(()))]
        if name in _FILES and node.args:
            text = self.evaluator.settings.path_text(node.args[0].value, frame)
            path = self.evaluator.settings.path_of(text, frame.module) if text is not None else None
            return [Alternative(self._layers(path, set()))] if path is not None else None
        if name == "decouple.config" and (default := _argument(node, "default", place=1)) is not None:
            key = constant_key(node.args[0].value) if node.args else None
            said = self.evaluator.variable(key) if isinstance(key, str) else None
            if said is None:
                return [Alternative(Unknown("environment"), reach=True), *self.evaluator.values(default, frame)]
            return self.evaluator.values(default, frame) if said.unset else [of_setting(str(key), said)]
        return None

    def filled(self, value: Value, script: Module) -> Value:
        """An object of a class with fields, as a command line makes it; unknown where it is no such class."""
        if isinstance(value, ClassRef) and self.evaluator.fields(value) is not None:
            return FilledObject(Instance(value, ()), script)
        if isinstance(value, Instance) and self.evaluator.fields(value.cls) is not None:
            return FilledObject(value, script)
        return Unknown("class")

    def method(self, node: cst.Call, frame: Frame) -> list[Alternative] | None:
        """What a method of such an object gives; ``None`` where it is no such method."""
        func = node.func
        if not isinstance(func, cst.Attribute):
            return None
        attr = func.attr.value
        if attr in _PARSES:
            for alt in self.evaluator.values(func.value, frame):
                if isinstance(alt.value, ExternalCall) and alt.value.name in _PARSERS:
                    return self._parsed(alt.value, node, frame)
        if attr in _GETS and node.args:
            return self._section(attr, func.value, node, frame)
        if attr in _CLONES and not node.args and self.is_clone(node, frame):
            return list(self.evaluator.values(func.value, frame))
        return None

    def is_clone(self, node: cst.Call, frame: Frame) -> bool:
        """Whether a call gives a configuration object with the content of the one whose method it is."""
        func = node.func
        if not isinstance(func, cst.Attribute) or func.attr.value not in _CLONES or node.args:
            return False
        return any(isinstance(a.value, ExternalCall) and a.value.name in CONTAINERS for a in self.evaluator.values(func.value, frame))

    def _parsed(self, parser: ExternalCall, node: cst.Call, frame: Frame) -> list[Alternative]:
        given = _argument(parser.call, "dataclass_types")
        if given is None:
            return [Alternative(Unknown("classes"))]
        rows = [a.value for a in self.evaluator.values(given, parser.frame)[:1]]
        row = rows[0] if rows else Unknown("classes")
        if isinstance(row, Display) and isinstance(row.node, cst.Tuple | cst.List):
            classes = [(self.evaluator.values(e.value, row.frame) or [Alternative(Unknown())])[0].value for e in row.node.elements]
        else:
            classes = [row]
        parts: list[Value] = [self.filled(cls, frame.module) for cls in classes]
        text = self.evaluator.settings.path_text(node.args[0].value, frame) if node.args and names.last_name(node.func).endswith("_file") else None
        file = self.evaluator.settings.opened(text, frame.module) if text is not None else None
        if file is not None:
            parts = [Merged((part, file)) for part in parts]
        return [Alternative(ReturnedTuple(tuple(parts)))]

    def _section(self, attr: str, base: cst.BaseExpression, node: cst.Call, frame: Frame) -> list[Alternative] | None:
        """``parser.getint("loader", "num_workers", fallback=0)``, ``parser["loader"].getint("num_workers")``."""
        owner = [a.value for a in self.evaluator.values(base, frame)]
        whole = any(isinstance(v, ExternalCall) and v.name in _SECTIONS for v in owner)
        if not whole and (attr == "get" or not any(isinstance(v, SettingsNode | Merged) for v in owner)):
            return None
        keys = [constant_key(arg.value) for arg in node.args if arg.keyword is None][: 2 if whole else 1]
        if not all(isinstance(key, str) for key in keys):
            return None
        into: tuple[Accessor, ...] = tuple(("item", key) for key in keys)
        fallback = _argument(node, "fallback", place=9 if whole else 1)
        out: list[Alternative] = []
        for alt in self.evaluator.access(base, into, frame):
            if isinstance(alt.value, Absent) and fallback is not None:
                out.extend(self.evaluator.values(fallback, frame))
            elif isinstance(alt.value, Const):
                out.append(_converted(alt, attr))
            else:
                out.append(alt)
        return out

    # -- ways into values ----------------------------------------------------------------------------------------------

    def field(self, value: FilledObject, name: str) -> list[Alternative]:
        """A field of an object that the command line fills: its default, what shell lines give it, and what anybody may give."""
        fields = {field[0] for field in self.evaluator.fields(value.instance.cls) or ()}
        found = self.evaluator.attribute(value.instance, name, ())
        if name not in fields:
            return found
        flag = "--" + ".".join((*value.path, name))
        flags = [flag, *sorted(spellings([flag, f"--{name}"]) - {flag})]
        key = ("option", value.instance.cls, name)
        out: list[Alternative] = []
        for alt in found:
            inner = alt.value
            if isinstance(inner, Instance) and self.evaluator.fields(inner.cls) is not None:
                out.append(Alternative(FilledObject(inner, value.script, (*value.path, name)), alt.story, alt.picks, alt.doubt, alt.reach))
            else:
                out.append(picked(alt, key, "default"))
        commanded = self.evaluator.options.launches.commanded(flags, key, ProvenanceStep(None, None, f"option `{flag}`", kind="option"))
        if commanded is not None and not any(isinstance(a.value, FilledObject) for a in out):
            return commanded or out
        numbers = [a for a in out if isinstance(a.const, int) and not isinstance(a.const, bool) and a.story]
        if numbers:
            step = numbers[0].story[0]
            given = ProvenanceStep(step.module, step.node, f"option `{flag}`", step.at, kind="option")
            out = self.evaluator.options.launches.values(flags, value.script, key, given, out)
            zero = ProvenanceStep(step.module, step.node, f"`{flag} 0` can be given", step.at, kind="option")
            out.append(picked(Alternative(Const(0), (zero,), reach=True), key, "zero"))
        if not all(isinstance(a.value, FilledObject) for a in out):
            out.append(picked(Alternative(Unknown(f"`{flag}` from the command line"), reach=True), key, "other"))
        return out

    def member(self, value: ExternalCall, accessors: tuple[Accessor, ...]) -> list[Alternative] | None:
        """Attributes and keys of what a library made; ``None`` where nothing here knows it."""
        if value.name in _SECTIONS:
            files = Merged(tuple(self._read_later(value)))
            return self.evaluator.into_value(files, accessors) if files.parts else None
        if value.name.endswith(_CONFIG_FLAGS) and accessors[0] == ("attr", "value"):
            return self.config_file(value.call, value.frame, accessors[1:])
        return None

    def _read_later(self, parser: ExternalCall) -> Iterator[Value]:
        """The files that a parser of sections reads after it was made, in the same scope."""
        bound = parser.frame.module.walk.bound_to(parser.call)
        for call in parser.frame.scope.calls:
            if isinstance(call.func, cst.Attribute) and call.func.attr.value in {"read", "read_file"} and call.args and path_of(call.func.value) in bound:
                text = self.evaluator.settings.path_text(call.args[0].value, parser.frame)
                found = self.evaluator.settings.opened(text, parser.frame.module, "ini") if text is not None else None
                if found is not None:
                    yield found

    def config_file(self, call: cst.Call, frame: Frame, accessors: tuple[Accessor, ...]) -> list[Alternative]:
        """What ``get_config`` of the file gives that ``config_flags.DEFINE_config_file("config", "path.py")`` names."""
        given = _argument(call, "default", place=1)
        text = self.evaluator.settings.path_text(given, frame) if given is not None else None
        path = self.evaluator.settings.path_of(text.partition(":")[0], frame.module) if text is not None else None
        module = self.project.find(path) if path is not None else None
        scope = module.root.child("get_config") if module is not None else None
        if module is None or scope is None:
            return [Alternative(Unknown("config file"))]
        return self.evaluator.returned(FunctionRef(module, scope), (), accessors)

    # -- files of Python that inherit ----------------------------------------------------------------------------------

    def _layers(self, path: str, seen: set[str]) -> Value:
        """A configuration file over those that its ``_base_`` names. What cannot be found, or leads back, is not known."""
        if path in seen or len(seen) > _MOST_BASES:
            return Unknown("configuration in a circle")
        seen.add(path)
        top: Value | None
        if path.endswith(".py"):
            module = self.project.find(path)
            top = Namespace(module) if module is not None else None
        else:
            top = self.evaluator.settings.read(path)
        if top is None:
            return Unknown("configuration")
        parts: list[Value] = []
        for text in self._bases(top):
            below = os.path.normpath(os.path.join(os.path.dirname(path), text))
            self.project.readings.read(below)
            parts.append(self._layers(below, seen) if os.path.isfile(below) else Unknown("configuration"))
        return Merged((*parts, top), deep=True) if parts else top

    def _bases(self, value: Value) -> list[str]:
        found: list[str] = []
        for alt in [a for word in ("_base_", "_BASE_") for a in self.evaluator.into_value(value, (("attr", word),))]:
            if isinstance(alt.value, Const) and isinstance(alt.value.value, str):
                found.append(alt.value.value)
            elif isinstance(alt.value, Display) and isinstance(alt.value.node, cst.List | cst.Tuple):
                texts = [constant_key(element.value) for element in alt.value.node.elements]
                found.extend(text for text in texts if isinstance(text, str))
            elif isinstance(alt.value, SettingsNode):
                entries = (self.evaluator.settings.member(alt.value, number) for number in range(_MOST_BASES))
                found.extend(a.const for entry in entries for a in entry if isinstance(a.const, str))
        return found

    def named(self, value: Namespace, accessors: tuple[Accessor, ...]) -> list[Alternative]:
        """A name of a configuration file in Python, and what is in it."""
        name = str(accessors[0][1])
        if name not in value.module.root.effects:
            return [Alternative(ABSENT)]
        frame = self.evaluator.module_frame(value.module)
        found = self.evaluator.resolve(name, accessors[1:], frame, None)
        if len(accessors) > 1 and all(isinstance(a.value, Absent) for a in found):
            alone = self.evaluator.resolve(name, (("item", "_delete_"),), frame, None)
            if any(a.const is True for a in alone):
                return [Alternative(Unknown("nothing is inherited"))]
        return found

    # -- objects that files are merged into ----------------------------------------------------------------------------

    def merged(self, effect: Effect, accessors: tuple[Accessor, ...], frame: Frame) -> list[Alternative]:
        """What ``cfg.merge_from_file(path)`` and its like give a key; ``ABSENT`` where they leave it as it is."""
        call = effect.call
        if call is None or not call.args or not isinstance(call.func, cst.Attribute):
            return [Alternative(ABSENT)]
        given, method = call.args[0].value, call.func.attr.value
        if method == "merge_from_file":
            several = [alt for alt in self.evaluator.values(given, frame) if isinstance(alt.const, str)]
            if len(several) > 1:  # each command line names one
                return [one for alt in several[:_MOST_FILES] for one in self._merged_under(alt, accessors, frame)]
            text = self.evaluator.settings.path_text(given, frame)
            path = self.evaluator.settings.path_of(text, frame.module) if text is not None else None
            if path is None:
                return [Alternative(UNREAD, reach=True)]
            return self.evaluator.into_value(self._layers(path, set()), accessors)
        if method == "merge_from_list":
            return self._listed(given, accessors, frame)
        return [a if isinstance(a.value, Const | Absent) else Alternative(UNREAD, reach=True) for a in self.evaluator.access(given, accessors, frame)]

    def _merged_under(self, named: Alternative, accessors: tuple[Accessor, ...], frame: Frame) -> list[Alternative]:
        """What one of several files gives a key, where it is the one that is merged."""
        path = self.evaluator.settings.path_of(str(named.const), frame.module)
        if path is None:
            return [Alternative(UNREAD, reach=True)]
        found = (one.under(named.picks) for one in self.evaluator.into_value(self._layers(path, set()), accessors))
        return [one for one in found if one is not None]

    def _listed(self, given: cst.BaseExpression, accessors: tuple[Accessor, ...], frame: Frame) -> list[Alternative]:
        """``["DATALOADER.NUM_WORKERS", 0]``, also from the command: names and values by turns."""
        out: list[Alternative] = []
        for alt in self.evaluator.values(given, frame):
            if isinstance(alt.value, Const) and alt.value.value is None:
                out.append(replace(alt, value=ABSENT))
            elif isinstance(alt.value, Display) and isinstance(alt.value.node, cst.List | cst.Tuple):
                elements = [element.value for element in alt.value.node.elements]
                wanted = ".".join(str(key) for _, key in accessors)
                told = [value for name, value in zip(elements[::2], elements[1::2], strict=False) if constant_key(name) == wanted]
                found = self.evaluator.values(told[-1], alt.value.frame) if told else [Alternative(ABSENT)]
                if told and told[-1] not in alt.value.frame.module.walk.parents:  # words of the command, which stand nowhere in the code
                    found = [replace(one, value=_decoded(one.value), story=alt.story) for one in found]
                out += [m for one in found if (m := one.under(alt.picks)) is not None]
            else:
                out.append(Alternative(Unknown("list"), reach=True))
        return out

    # -- parameters ----------------------------------------------------------------------------------------------------

    def parameter(self, frame: Frame, name: str, accessors: tuple[Accessor, ...]) -> list[Alternative] | None:
        """A parameter that a library fills where a call leaves it out; ``None`` where none does."""
        node, scope = frame.scope.node, frame.scope
        if not isinstance(node, cst.FunctionDef):
            return None
        owner = scope.parent if scope.name == "__init__" and scope.parent is not None and scope.parent.is_class else scope
        holder = owner.node
        decorators = (*node.decorators, *(holder.decorators if isinstance(holder, cst.ClassDef) else ()))
        found: list[Alternative] = []
        marks = {a.value.name for d in decorators for a in self._decorates(d, frame.module) if isinstance(a.value, External)} if decorators else set()
        if marks & {"gin.configurable", "gin.register", "gin.external_configurable"}:
            found = list(self._bound_by_gin(frame.module, f"{owner.name}.{name}"))
        elif owner is not scope and not frame.bound:
            found = list(self._bound_by_lightning(ClassRef(frame.module, owner), name))
        if found:
            return [b for a in found for b in self.evaluator.reach_into(a, accessors)]
        filled = bool(marks & _ENTRIES)
        return self._annotated(frame, name, accessors, filled=filled) if accessors and (filled or not frame.bound) else None

    def _decorates(self, node: cst.Decorator, module: Module) -> list[Alternative]:
        call = node.decorator
        return self.evaluator.values(call.func if isinstance(call, cst.Call) else call, self.evaluator.module_frame(module))

    def _annotated(self, frame: Frame, name: str, accessors: tuple[Accessor, ...], *, filled: bool) -> list[Alternative] | None:
        """A parameter without default that is said to be of a class with fields: nobody in the project makes it, so their defaults are assumed."""
        param = next((p for p in names.parameters(frame.scope) if p.name.value == name), None)
        if param is None or param.default is not None or param.annotation is None or accessors[0][0] != "attr":
            return None
        path = path_of(param.annotation.annotation)
        if path is None:
            return None
        # Annotations are no part of the walk: the name is looked up as the module leaves it.
        for alt in self.evaluator.resolve(path[0], path[1], self.evaluator.module_frame(frame.module), None)[:1]:
            value = self.filled(alt.value, frame.module)
            fields = self.evaluator.fields(alt.value) if isinstance(alt.value, ClassRef) else None
            if isinstance(value, FilledObject) and any(field[0] == accessors[0][1] for field in fields or ()):
                found = self.evaluator.into_value(value, accessors)
                return found if filled else [a.doubting() for a in found]
        return None

    def _bound_by_gin(self, near: Module, wanted: str) -> Iterator[Alternative]:
        for module in self.project.mentioning([b"parse_config_file"], near.path):
            for call, scope in module.walk.calls:
                if names.last_name(call.func) in {"parse_config_file", "parse_config_files_and_bindings"} and call.args:
                    given = call.args[0].value
                    frame = self.evaluator.calls.plain_frame(module, scope)
                    for item in [e.value for e in given.elements] if isinstance(given, cst.List) else [given]:
                        text = self.evaluator.settings.path_text(item, frame)
                        if text is not None:
                            yield from self._in_gin(text, module, wanted, set())

    def _in_gin(self, text: str, module: Module, wanted: str, seen: set[str]) -> Iterator[Alternative]:
        root = self.evaluator.settings.opened(text, module, "gin")
        if root is None or root.file.path in seen:
            return
        seen.add(root.file.path)
        for key, _ in self.evaluator.settings.entries(root):
            bare = key.rpartition("/")[2]
            if bare == wanted or bare.endswith("." + wanted):
                yield from self.evaluator.settings.member(root, key)
            elif key.startswith("include "):
                yield from self._in_gin(key.removeprefix("include "), module, wanted, seen)

    def _bound_by_lightning(self, cls: ClassRef, name: str) -> Iterator[Alternative]:
        """What the YAML of a ``LightningCLI`` gives the constructor of its data module."""
        for module in self.project.mentioning([_LIGHTNING.encode()], cls.module.path):
            for call, scope in module.walk.calls:
                if names.last_name(call.func) != _LIGHTNING:
                    continue
                frame = self.evaluator.calls.plain_frame(module, scope)
                given = _argument(call, "datamodule_class", place=1)
                own = given is not None and any(a.value == cls for a in self.evaluator.values(given, frame))
                for text in dict.fromkeys(self._config_files(module, call)):
                    root = self.evaluator.settings.opened(text, module)
                    if root is not None:
                        yield from self._in_section(root, cls, name, own=own)

    def _config_files(self, module: Module, call: cst.Call) -> Iterator[str]:
        for node in descend(call):
            if isinstance(node, cst.SimpleString) and str(node.evaluated_value).endswith((".yaml", ".yml")):
                yield str(node.evaluated_value)
        base = os.path.basename(module.path)
        for command in self.evaluator.options.launches.commands(module):
            words = command.words
            if any(word == base or word.endswith("/" + base) for word in words):
                for number, word in enumerate(words):
                    flag, equals, text = word.partition("=")
                    if flag in {"-c", "--config"}:
                        yield text if equals else "".join(words[number + 1 : number + 2])

    def _in_section(self, root: SettingsNode, cls: ClassRef, name: str, *, own: bool) -> Iterator[Alternative]:
        for way in (("data",), ("fit", "data")):
            section = self.evaluator.into_value(root, tuple(("item", key) for key in way))
            for alt in section:
                if not isinstance(alt.value, SettingsNode):
                    continue
                path = [a.const for a in self.evaluator.settings.member(alt.value, "class_path")]
                named = [text.rpartition(".")[2] for text in path if isinstance(text, str)]
                if named == [cls.scope.name] or (own and not named):
                    into: tuple[Accessor, ...] = (("item", "init_args"), ("item", name)) if named else (("item", name),)
                    yield from (a for a in self.evaluator.into_value(alt.value, into) if isinstance(a.value, Const))


def is_unread(value: Value) -> bool:
    """Whether a value stands for a file that nobody knows."""
    return isinstance(value, Unknown) and value.why == UNREAD.why


def _decoded(value: Value) -> Value:
    """What yacs makes of a word."""
    return Const(constant_of(value.value)) if isinstance(value, Const) and isinstance(value.value, str) else value


def _argument(call: cst.Call, *words: str, place: int = 0) -> cst.BaseExpression | None:
    named = arguments.named(call, *words)
    plain = arguments.plain(call)
    return named if named is not None else plain[place] if place < len(plain) else None


def _converted(alt: Alternative, attr: str) -> Alternative:
    text = str(alt.const)
    try:
        value: object = text.strip().lower() in {"1", "yes", "true", "on"} if attr == "getboolean" else _GETS[attr](text)
    except ValueError:
        return Alternative(Unknown("number"), alt.story, alt.picks)
    return Alternative(Const(value), alt.story, alt.picks, alt.doubt, alt.reach)
