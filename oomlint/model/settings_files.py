"""Settings files beside the script: YAML, JSON, TOML and INI, plainly loaded or through OmegaConf and Hydra."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import libcst as cst

from oomlint.finding import Place
from oomlint.model import arguments, names
from oomlint.model.given_command import GivenCommand, is_known
from oomlint.model.questions import of_setting
from oomlint.model.readings import AnswerMemory
from oomlint.model.settings_formats import SUFFIXES, compose
from oomlint.model.values import (
    ABSENT,
    Alternative,
    Const,
    Element,
    External,
    ExternalCall,
    Frame,
    Merged,
    ProvenanceStep,
    SettingsFile,
    SettingsNode,
    Unknown,
    Value,
)
from oomlint.model.yaml_nodes import entries, member
from oomlint.patterns import pattern
from oomlint.syntax.nodes import Accessor, constant_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project

# What reads a settings file, and the format that it reads; where it reads several, the file's suffix says which.
_LOADERS = {
    **dict.fromkeys(("yaml.safe_load", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "yaml.round_trip_load", "ruamel.yaml.YAML.load"), "yaml"),
    **dict.fromkeys(("json.load", "json.loads", "omegaconf.OmegaConf.load", "yacs.config.load_cfg", "yacs.config.CfgNode.load_cfg"), "yaml"),
    **dict.fromkeys(("tomllib.load", "tomllib.loads", "tomli.load", "tomli.loads", "toml.load", "toml.loads", "pytoml.load", "tomlkit.load"), "toml"),
    "hydra.compose": "",
}
MAINS = frozenset({"hydra.main", "hydra.main.main", "nemo.core.config.hydra_runner", "nemo.core.config.hydra_runner.hydra_runner"})
_SAME_PATH = frozenset({"resolve", "absolute", "expanduser", "read_text", "open", "read"})
_OF_ENVIRONMENT = pattern(r"\$\{(?:oc\.)?env:(\w+)(?:,[ \t]*([^{}]*))?\}")
_PACKAGE = pattern(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*?[ \t]*#[ \t]*@package[ \t]+(\S+)")
_NUMBER_OF_HYDRA = pattern(r"[+-]?(?:(?:0|[1-9]\d*(?:_\d+)*)|(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d{1,2})?|\d+[eE][+-]?\d{1,2})")
_NO_TEXT_OF_YAML = pattern(r"[+.\d-][\w.+:-]*|on|off|yes|no|~", re.IGNORECASE)  # or not always
MOST_BYTES = 512_000  # a settings file is small; annotations are not settings


class SettingsReader:
    """Reads settings files and answers what stands at a key."""

    def __init__(self, project: Project, evaluator: Evaluator) -> None:
        self.project = project
        self.evaluator = evaluator
        self._files: AnswerMemory[tuple[str, str], SettingsNode | None] = AnswerMemory(project.readings)
        self.strays: dict[str, tuple[str, str]] = {}  # keys that the command sets and the settings of a file do not have, with the closest that there is
        self.repeated: dict[str, str] = {}  # keys that the command adds to the settings of a file, and that these have
        self.unread: dict[str, None] = {}  # files that the program reads its settings from, and that give none: they are broken, or not there

    # -- paths -------------------------------------------------------------------------------------------------------

    def path_call(self, name: str, node: cst.Call, frame: Frame) -> Value:
        """A path that is put together from constants."""
        parts: list[str] = []
        for arg in node.args:
            text = self.path_text(arg.value, frame)
            if text is None:
                return Unknown("path")
            parts.append(text)
        if not parts:
            return Unknown("path")
        if name == "os.path.dirname":
            return Const(os.path.dirname(parts[0]))
        return Const(os.path.join(*parts)) if name in {"os.path.join", "pathlib.Path", "pathlib.PurePath"} else Const(parts[0])

    def joined_path(self, left: Value, right: Value) -> Value:
        """``Path(...) / "x"``."""
        if isinstance(left, Const) and isinstance(right, Const) and isinstance(left.value, str) and isinstance(right.value, str):
            return Const(os.path.join(left.value, right.value))
        return Unknown("path")

    def path_text(self, node: cst.BaseExpression, frame: Frame) -> str | None:
        """The text of a path that is known, also where it is wrapped in what opens or reads it."""
        if isinstance(node, cst.Attribute) and node.attr.value in {"parent", "parents"}:
            inner = self.path_text(node.value, frame)
            return os.path.dirname(inner) if inner is not None else None
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _SAME_PATH:
            return self.path_text(node.func.value, frame)
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide):
            left, right = self.path_text(node.left, frame), self.path_text(node.right, frame)
            return os.path.join(left, right) if left is not None and right is not None else None
        if isinstance(node, cst.Call) and names.last_name(node.func) == "open" and node.args:
            return self.path_text(node.args[0].value, frame)
        for alt in self.evaluator.values(node, frame):
            if isinstance(alt.value, Const) and isinstance(alt.value.value, str):
                return alt.value.value
            if isinstance(alt.value, ExternalCall) and names.last_name(alt.value.call.func) == "open" and alt.value.call.args:
                return self.path_text(alt.value.call.args[0].value, alt.value.frame)
        return None

    # -- loading -------------------------------------------------------------------------------------------------------

    def loaded(self, name: str, node: cst.Call, frame: Frame) -> list[Alternative] | None:
        """What a loading call gives; ``None`` where the call loads no settings."""
        if name not in _LOADERS or not node.args:
            return None
        text = self.path_text(node.args[0].value, frame)
        if text is None:
            # `yaml.load(path.read_text())`
            return None
        found = self.opened(text, frame.module, _LOADERS[name])
        if found is None:
            self.unread[self.path_of(text, frame.module) or os.path.normpath(os.path.join(os.path.dirname(frame.module.path), text))] = None
            return None
        return [Alternative(found)]

    def opened(self, text: str, module: Module, form: str = "") -> SettingsNode | None:
        """The root node of the settings file that a module of the project names so."""
        path = self.path_of(text, module)
        return self.read(path, form) if path is not None else None

    def path_of(self, text: str, module: Module) -> str | None:
        """The file of the project that a module names so, from its own folder or from one above."""
        folder = os.path.dirname(module.path)
        folders = [folder]
        while folder != self.project.root and folder.startswith(self.project.root):
            folder = os.path.dirname(folder)
            folders.append(folder)
        for folder in folders:
            path = os.path.normpath(os.path.join(folder, text))
            self.project.readings.read(path)
            if os.path.isfile(path):
                return path
        return None

    def read(self, path: str, form: str = "") -> SettingsNode | None:
        """The root node of a settings file, or ``None`` where it cannot be read as one."""
        self.project.readings.read(path)
        form = form or SUFFIXES.get(os.path.splitext(path)[1], "")
        key = (path, form)
        if key in self._files:
            return self._files[key]
        self._files.assume(key, None)
        try:
            if not form or os.path.getsize(path) > MOST_BYTES:
                return None
            text = self.project.raw(path).decode("utf-8-sig", "replace")
            as_json = form == "yaml" and path.endswith(".json")
            node = compose(text.replace("\t", " "), "json") if as_json else compose(text, form)  # YAML has no tabs between values
        except Exception:  # noqa: BLE001 - any broken settings file is simply not known
            return None
        self._files[key] = SettingsNode(SettingsFile(path), node) if node is not None else None
        return self._files[key]

    # -- asking ---------------------------------------------------------------------------------------------------------

    def member(self, value: SettingsNode, key: object) -> list[Alternative]:
        """What stands at a key (or index) of a node."""
        import yaml  # noqa: PLC0415

        node = value.node
        if isinstance(node, yaml.MappingNode):
            if value.file.path and (given := self.evaluator.options.words_given.unclaimed(str(key))) is not None:
                return [Alternative(Unknown("a word of the command"), given.story)]
            for name_node, child in reversed(node.value):
                if name_node.value == str(key):
                    return [self._alternative(value.file, child, str(key))]
            return [Alternative(ABSENT)]
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and -len(node.value) <= key < len(node.value):
            return [self._alternative(value.file, node.value[key], str(key))]
        return [Alternative(Unknown("settings"))]

    def lacks(self, value: SettingsNode, accessors: tuple[Accessor, ...]) -> bool:
        """Whether a key is missing on the way into a node, be it the last one or one before."""
        here: Value = value
        for _, key in accessors:
            if not isinstance(here, SettingsNode):
                return False
            here = self.member(here, key)[0].value
            if here is ABSENT:
                return True
        return False

    def anywhere(self, value: Element) -> list[Alternative]:
        """What stands at the keys that the code asks for in all files that it may have read, where nobody knows which one it is.

        Those are the files in the folder of the code, or below it, that have the keys; else those of the folder above.
        """
        form = _LOADERS.get(value.whole.name)
        if not form or not all(isinstance(key, str) for _, key in value.accessors):
            return []
        folder = os.path.dirname(value.whole.frame.module.path)
        paths = [path for path in self.project.settings_files() if SUFFIXES.get(os.path.splitext(path)[1], "") == form]
        while True:
            roots = (self.read(path, form) for path in paths if path.startswith(os.path.join(folder, "")))
            having = [root for root in roots if root is not None and self.is_mapping(root) and not self.lacks(root, value.accessors)]
            if having:
                return [alt for root in having for alt in self.evaluator.into_value(root, value.accessors)]
            if folder == self.project.root or folder == os.path.dirname(folder):
                return []
            folder = os.path.dirname(folder)

    def entries(self, value: SettingsNode) -> list[tuple[str, Any]]:
        """The keys of a mapping, with their nodes."""
        import yaml  # noqa: PLC0415

        node = value.node
        return [(str(key.value), child) for key, child in node.value] if isinstance(node, yaml.MappingNode) else []

    @staticmethod
    def is_mapping(value: SettingsNode) -> bool:
        """Whether a node has keys, and not places."""
        return getattr(value.node, "id", "") == "mapping"

    def sections(self, value: SettingsNode) -> list[Value]:
        """What stands at the keys of a mapping."""
        return [self._alternative(value.file, child, key).value for key, child in self.entries(value)]

    def _alternative(self, file: SettingsFile, node: Any, key: str) -> Alternative:
        import yaml  # noqa: PLC0415

        if isinstance(node, yaml.ScalarNode):
            try:
                constant = yaml.SafeLoader("").construct_object(node)
            except (yaml.YAMLError, ValueError):
                return Alternative(Unknown("settings"))
            if isinstance(constant, str) and "${" in constant:
                asked = _OF_ENVIRONMENT.fullmatch(constant)
                said = self.evaluator.variable(asked[1]) if asked is not None else None
                if asked is not None and said is not None and (said.text is not None or (said.unset and asked[2] is not None)):
                    return of_setting(asked[1], said) if said.text is not None else Alternative(Const(asked[2]))
                return Alternative(Unknown("interpolated"))
            if not file.path:
                return Alternative(Const(constant), ((self.project.command or GivenCommand()).gives(f"{key}={node.value}"),))
            start, end = node.start_mark, node.end_mark
            place = Place(file.path, 0, start.line + 1, start.column + 1, end.line + 1, end.column + 1)
            return Alternative(Const(constant), (ProvenanceStep(None, None, f"`{key}: {node.value}` in the settings file", place, kind="settings"),))
        return Alternative(SettingsNode(file, node))

    # -- Hydra -----------------------------------------------------------------------------------------------------------

    def entry_parameter(self, frame: Frame, name: str, accessors: tuple[Accessor, ...]) -> list[Alternative] | None:
        """The first parameter of a function under ``@hydra.main``."""
        node = frame.scope.node
        if not isinstance(node, cst.FunctionDef):
            return None
        params = names.parameters(frame.scope)
        if not params or params[0].name.value != name:
            return None
        for decorator in node.decorators:
            call = decorator.decorator
            if not isinstance(call, cst.Call):
                continue
            outer = Frame(frame.module, frame.module.root)
            found = self.evaluator.values(call.func, outer)
            if not any(isinstance(a.value, External) and a.value.name in MAINS for a in found):
                continue
            folder = self._asked("--config-path", "-cp") or self._text(arguments.argument_for(call, "config_path", place=0), outer, "")
            base = self._asked("--config-name", "-cn") or self._text(arguments.argument_for(call, "config_name", place=1), outer, "config")
            value = self._hydra(os.path.join(os.path.dirname(frame.module.path), folder), base)
            return self.evaluator.reach_into(Alternative(value), accessors) if value is not None else None
        return None

    def _text(self, given: cst.BaseExpression | None, frame: Frame, default: str) -> str:
        if given is None:
            return default
        text = constant_key(given)
        return text if isinstance(text, str) else self.path_text(given, frame) or ""

    def _asked(self, option: str, short: str) -> str:
        """What the command gives for an option of Hydra's own; empty where it does not."""
        words = self.project.command.words if self.project.command is not None else ()
        joined = [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
        apart = [words[place + 1] for place, word in enumerate(words[:-1]) if word in {option, short}]
        return next(iter([*joined, *apart]), "")

    def _hydra(self, folder: str, base: str) -> Value | None:
        import yaml  # noqa: PLC0415

        told = self.overrides()
        if told is None:
            return Unknown("words of the command")
        stem = base.removesuffix(".yaml").removesuffix(".yml")
        root = self.read(os.path.normpath(os.path.join(folder, f"{stem}.yaml"))) or self.read(os.path.normpath(os.path.join(folder, f"{stem}.yml")))
        if root is None:
            self.unread[os.path.normpath(os.path.join(folder, f"{stem}.yaml"))] = None
            return None
        node = root.node
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        listed = next((child for name_node, child in pairs if name_node.value == "defaults" and isinstance(child, yaml.SequenceNode)), None)
        groups = {key: text for key, text in told.items() if os.path.isdir(os.path.join(folder, *key.split("/")))}
        defaults = listed.value if listed is not None else []
        parts = self._defaults(folder, defaults, {**self._overridden(folder, defaults, groups), **groups}, root)
        written = self.dotted({key: _as_hydra_reads(text) for key, text in told.items() if key not in groups})
        self._note_repeated(told.keys() - groups.keys(), [one.node for one in parts if isinstance(one, SettingsNode)], root.file.path)
        if told and all(isinstance(one, SettingsNode) for one in parts) and self._is_complete(folder, defaults):
            self._note_strays([key for key in told if key not in groups], [one.node for one in parts if isinstance(one, SettingsNode)], root.file.path)
        every = (*parts, *([written] if written is not None else []))
        return Merged(every, deep=True) if len(every) > 1 else root

    def _is_complete(self, folder: str, listed: Sequence[Any]) -> bool:
        """Whether all that a list of defaults names is a file that is there."""
        for item in listed:
            if entries(item):
                (group, chosen), *_ = entries(item)
                if group.startswith(("override ", "/")) or "@" in group or not isinstance(chosen.value, str):
                    return False
                path = os.path.join(folder, group.removeprefix("optional "), f"{chosen.value.removesuffix('.yaml')}.yaml")
            else:
                path = os.path.join(folder, f"{item.value}.yaml")
            if getattr(item, "value", "") != "_self_" and self.read(os.path.normpath(path)) is None:
                return False
        return True

    def _note_strays(self, keys: Sequence[str], nodes: Sequence[Any], path: str) -> None:
        """Keys that the command sets, without `+`, and that no part of a configuration has: Hydra takes none of these."""
        from difflib import get_close_matches  # noqa: PLC0415 - only for a command

        asked = self.project.command.words if self.project.command is not None else ()
        for key in (key for key in keys if any(word.startswith(f"{key}=") for word in asked) and "/" not in key and not key.startswith("hydra")):
            here = list(nodes)
            *above, last = key.split(".")
            for name in above:
                here = [inner for node in here if (inner := member(node, name)) is not None]
            there = [name for node in here for name, _ in entries(node)]
            if last not in there and all(entries(node) or not getattr(node, "value", "") for node in here):
                close = get_close_matches(last, there, n=1)
                self.strays[key] = (path, ".".join((*above, close[0])) if close else "")

    def _note_repeated(self, keys: Iterable[str], nodes: Sequence[Any], path: str) -> None:
        """Keys that the command adds with one `+`, and that have a value already: Hydra refuses that, too."""
        asked = self.project.command.words if self.project.command is not None else ()
        for key in sorted(key for key in keys if any(word.startswith(f"+{key}=") and not word.endswith(("}", "]")) for word in asked)):
            here = list(nodes)
            for name in key.split("."):
                here = [inner for node in here if (inner := member(node, name)) is not None]
            if any(not str(node.tag).endswith(":null") and node.value != "???" for node in here):
                self.repeated[key] = path

    def overrides(self) -> dict[str, str] | None:
        """The words ``key=value`` of the command that is asked about, by key; ``None`` where nobody knows what they give."""
        found: dict[str, str] = {}
        asked = self.project.command
        for word in asked.words if asked is not None else ():
            key, equals, text = word.partition("=")
            if equals and key.lstrip("+") and not key.startswith(("-", "~")) and is_known(word):
                found[key.lstrip("+")] = text
            elif word in {"-m", "--multirun"} or word.startswith("~") or (not is_known(word) and not word.startswith("-")):
                return None
        return found

    def dotted(self, given: Mapping[str, str]) -> SettingsNode | None:
        """Settings of dotted keys, as OmegaConf and Hydra read them."""
        if not given:
            return None
        root: dict[str, Any] = {}
        for key, text in given.items():
            *above, last = key.replace("/", ".").split(".")
            here = root
            for name in above:
                deeper = here.setdefault(name, {})
                here[name] = here = deeper if isinstance(deeper, dict) else {}
            here[last] = text
        node = compose(_as_yaml(root), "yaml")
        return SettingsNode(SettingsFile(""), node) if node is not None else None

    def _defaults(self, folder: str, listed: Sequence[Any], groups: Mapping[str, str], root: SettingsNode) -> list[Value]:
        """What a configuration is made of, the last of which wins: the files of its list of defaults, itself at `_self_`, and groups that the command adds."""
        import yaml  # noqa: PLC0415

        found: list[Value] = []
        left = dict(groups)
        for item in listed:
            if isinstance(item, yaml.MappingNode) and item.value:
                group, chosen = item.value[0][0].value, item.value[0][1].value
                if isinstance(chosen, str) and isinstance(group, str):
                    group = _group_name(group)
                    found += self._group(folder, group, left.pop(group, None), chosen)
            elif isinstance(item, yaml.ScalarNode) and item.value == "_self_":
                found.append(root)
            elif isinstance(item, yaml.ScalarNode):
                inner = self.read(os.path.normpath(os.path.join(folder, f"{item.value}.yaml")))
                found += [inner] if inner is not None else []
        found += [root] if root not in found else []
        return [*found, *(one for group, text in left.items() for one in self._group(folder, group, text, ""))]

    def _overridden(self, folder: str, listed: Sequence[Any], groups: Mapping[str, str]) -> dict[str, str]:
        """The groups that the files of other groups choose anew, as experiments do: ``override /model: big``."""
        named = {_group_name(key): str(chosen.value) for item in listed for key, chosen in entries(item)[:1]}
        found: dict[str, str] = {}
        for group, chosen in {**named, **groups}.items():
            inner = self.read(os.path.normpath(os.path.join(folder, group, f"{chosen.removesuffix('.yaml')}.yaml")))
            own = member(inner.node, "defaults") if inner is not None else None
            for key, other in (pair for item in getattr(own, "value", None) or () for pair in entries(item)[:1]):
                if key.startswith("override /") and isinstance(other.value, str) and os.path.isdir(os.path.join(folder, _group_name(key))):
                    found[_group_name(key)] = other.value
        return found

    def _group(self, folder: str, group: str, told: str | None, default: str) -> list[Value]:
        """The file of a group that the command chooses, else that of the list of defaults, where it is there."""
        inner = self.read(os.path.normpath(os.path.join(folder, group, f"{(told or default).removesuffix('.yaml')}.yaml")))
        if inner is None:
            if told is not None:
                self.unread[os.path.normpath(os.path.join(folder, group, f"{told.removesuffix('.yaml')}.yaml"))] = None
            return [Unknown("a group of the command")] if told is not None else []
        return [_grouped(self._package(inner.file.path, group), inner)]

    def _package(self, path: str, group: str) -> list[str]:
        """The keys under which the content of a group's file stands: those of the group, unless its first comment says others."""
        said = _PACKAGE.match(self.project.raw(path).decode("utf-8-sig", "replace"))
        stem = os.path.splitext(os.path.basename(path))[0]
        keys = (said[1] if said is not None else "_group_").replace("_group_", group.replace("/", ".")).replace("_name_", stem).split(".")
        return keys[1:] if keys[0] == "_global_" else keys


def _group_name(written: str) -> str:
    """A group as an entry of a list of defaults names it."""
    return written.replace("override ", "").replace("optional ", "").strip().lstrip("/")


def _as_yaml(given: Mapping[str, Any]) -> str:
    """A mapping of mappings and of what is written as YAML. A value with commas is a sweep, or none that can be read."""
    parts = (f"{json.dumps(key)}: {_as_yaml(value) if isinstance(value, dict) else value or 'null'}" for key, value in given.items())
    return f"{{{', '.join(parts)}}}"


def _as_hydra_reads(text: str) -> str:
    """A value of the command as YAML, which takes more words for numbers than Hydra does: `0x10`, `010`, and fewer: `1e3`."""
    if _NUMBER_OF_HYDRA.fullmatch(text):
        return json.dumps(float(text)) if re.search(r"[.eE]", text) else text
    return json.dumps(text) if _NO_TEXT_OF_YAML.fullmatch(text) else text


def _grouped(path: list[str], inner: SettingsNode) -> SettingsNode:
    """A Hydra group: the file's content under the group's name."""
    import yaml  # noqa: PLC0415

    node: Any = inner.node
    for name in reversed(path):
        key = yaml.ScalarNode("tag:yaml.org,2002:str", name)
        node = yaml.MappingNode("tag:yaml.org,2002:map", [(key, node)])
    return SettingsNode(inner.file, node)
