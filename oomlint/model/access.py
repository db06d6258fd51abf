"""Ways into a value: attributes, keys, what a computed key leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec.structs import replace

from oomlint.api_names import HAS_DATASET
from oomlint.model import arguments, names
from oomlint.model.expressions import Expressions
from oomlint.model.given_command import is_known
from oomlint.model.questions import UNKNOWN, constant, of_setting, parted, trim, written
from oomlint.model.values import (
    ABSENT,
    Absent,
    Alternative,
    Alternatives,
    Bound,
    ClassRef,
    Const,
    Display,
    Each,
    Element,
    External,
    ExternalCall,
    FilledObject,
    Frame,
    FunctionRef,
    Instance,
    Merged,
    ModuleRef,
    Namespace,
    ParsedOptions,
    Partial,
    PartOfEach,
    ReturnedTuple,
    SettingsNode,
    Unknown,
    Value,
)
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key, path_of

if TYPE_CHECKING:
    from oomlint.model.environments import Setting
    from oomlint.syntax.nodes import Accessor


_COPIES = frozenset({"copy.copy", "copy.deepcopy"})  # a copy holds what the original does
_ORDERS = ("randperm", "permutation", "arange", "argsort")  # calls that give indices
_NOBODY_KNOWS = "_"  # what stands for the words that a variable of the shell may be
_LITERALS: dict[str, object] = {"True": True, "False": False, "None": None}


class Access(Expressions):
    """Follows attributes and keys."""

    def access(self, node: cst.BaseExpression, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """The value of ``node`` followed by attributes and keys."""
        if type(node) is cst.Name:  # the most common form: no need to try the others
            if not accessors and node.value in _LITERALS:
                return [constant(_LITERALS[node.value], node, frame)]
            return self.resolve(node.value, accessors, frame, node)
        if isinstance(node, cst.Subscript):
            keyed = self._computed_key(node, accessors, frame)
            if keyed is not None:
                return keyed
            view = self._slice_of_graphs(node, frame)
            if view:
                return trim([found for alt in view for found in self.reach_into(alt, accessors)])
        path = path_of(node)
        if path is not None and all(key is not UNKNOWN_KEY for _, key in path[1][:-1]):  # a key on the way may be known by its value
            return self.resolve(path[0], (*path[1], *accessors), frame, node)
        if isinstance(node, cst.Attribute):
            return self.access(node.value, (("attr", node.attr.value), *accessors), frame)
        if isinstance(node, cst.Subscript):
            if len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
                return self.access(node.value, (("item", constant_key(node.slice[0].slice.value)), *accessors), frame)
            return [Alternative(UNKNOWN)] if accessors else [written(node, frame)]
        if not accessors:
            return self.values(node, frame)
        if isinstance(node, cst.IfExp):
            return self.choose(node, accessors, frame)
        if isinstance(node, cst.NamedExpr):
            return self.access(node.value, accessors, frame)
        if isinstance(node, cst.Dict | cst.List | cst.Tuple | cst.DictComp | cst.ListComp):
            return self.inside(node, accessors, frame)
        if isinstance(node, cst.Call):
            found = self._of_call(node, accessors, frame)
            if found is not None:
                return found
        return trim([found for alt in self.values(node, frame) for found in self.reach_into(alt, accessors)]) or [Alternative(UNKNOWN)]

    def _of_call(self, node: cst.Call, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives | None:
        """Attributes and keys of what a call returns; ``None`` where only the value of the call itself can tell."""
        if isinstance(node.func, cst.Attribute) and self.sources.is_clone(node, frame):
            return self.access(node.func.value, accessors, frame)
        if names.dotted(node.func) == "super" and accessors[0][0] == "attr":
            method = self.super_method(str(accessors[0][1]), frame)
            if method is not None:
                return self.reach_into(Alternative(method), accessors[1:])
        if self.method_on_value(node, frame) is not None:
            return None
        out: Alternatives = []
        # The element of what a project's function returns is looked up in its return statements.
        for callee in self.callees(node, frame):
            found: Alternatives
            if isinstance(callee.value, FunctionRef):
                found = self.returned(callee.value, (Bound(tuple(node.args), frame, node),), accessors)
            elif isinstance(callee.value, External) and callee.value.name in _COPIES and node.args:
                found = self.access(node.args[0].value, accessors, frame)
            else:
                found = [b for a in self.result(callee.value, node, frame) for b in self.reach_into(a, accessors)]
            out.extend(m for alt in found if (m := alt.under(callee.picks)) is not None)
        return trim(out) or [Alternative(UNKNOWN)]

    def _computed_key(self, node: cst.Subscript, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives | None:
        """``table[name]`` where ``name`` is known; ``None`` where the key is literal, or nobody knows it."""
        if len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
            return None
        key = node.slice[0].slice.value
        if isinstance(key, cst.Integer | cst.SimpleString | cst.ConcatenatedString) or (isinstance(key, cst.Name) and key.value in _LITERALS):
            return None
        found = self.values(key, frame)
        known = [a for a in found if isinstance(a.value, Const) and isinstance(a.value.value, str | int)]
        if not known or len(known) < len([a for a in found if not a.reach]):
            return None
        out: Alternatives = []
        for alt in known[:4]:
            for value in self.access(node.value, (("item", int(alt.const) if isinstance(alt.const, bool) else alt.const), *accessors), frame):
                merged = value.under(alt.picks)
                if merged is not None:
                    out.append(replace(merged, doubt=merged.doubt + alt.doubt, reach=merged.reach or alt.reach))
        return trim(out)

    def _slice_of_graphs(self, node: cst.Subscript, frame: Frame) -> Alternatives:
        """Datasets of graphs of which a slice, or a list or an array of indices, gives a view."""
        part = node.slice[0].slice if len(node.slice) == 1 else None
        several = isinstance(part, cst.Slice)
        if isinstance(part, cst.Index) and isinstance(part.value, cst.Name | cst.Attribute | cst.Call | cst.List):
            found = self.values(part.value, frame)
            several = all(isinstance(alt.value, Display) or (isinstance(alt.value, ExternalCall) and alt.value.name.endswith(_ORDERS)) for alt in found)
        if not several:
            return []
        return [alt for alt in self.values(node.value, frame) if self.gives_itself(alt.value, "index_select")]

    def reach_into(self, alt: Alternative, accessors: tuple[Accessor, ...]) -> Alternatives:
        """Attributes and keys of a value."""
        if not accessors:
            return [alt]
        out: Alternatives = []
        for found in self.into_value(alt.value, accessors):
            merged = found.under(alt.picks)
            if merged is not None:
                out.append(merged.doubting(alt.doubt))
        return out

    def into_value(self, value: Value, accessors: tuple[Accessor, ...]) -> Alternatives:
        """Attributes and keys of a bare value; there is at least one accessor."""
        kind, name = accessors[0]
        rest = accessors[1:]
        if isinstance(value, External):
            return self._into_external(value, accessors)
        if isinstance(value, ModuleRef):
            if kind == "attr":
                return self.reach_into(Alternative(value), rest) if name == "__dict__" else self.module_member(value, str(name), rest)
            return self.entry_of_module(value, name, rest)
        if isinstance(value, ClassRef):
            return self.class_member(value, str(name), rest, None) if isinstance(name, str) else [Alternative(UNKNOWN)]
        if isinstance(value, Instance):
            return self.attribute(value, str(name), rest) if kind == "attr" else self._getitem(value, name, rest)
        if isinstance(value, ParsedOptions):
            return self._into_options(value, kind, name, rest)
        if isinstance(value, SettingsNode):
            found = self.settings.member(value, name)
            return [b for a in found for b in self.reach_into(a, rest)]
        if isinstance(value, Merged):
            return self._merged(value, accessors)
        if isinstance(value, Display):
            return self.inside(value.node, accessors, value.frame)
        if isinstance(value, Partial) and kind == "attr":
            return [Alternative(UNKNOWN)]
        if isinstance(value, FilledObject):
            return [b for a in self.sources.field(value, str(name)) for b in self.reach_into(a, rest)]
        if isinstance(value, Namespace):
            return self.sources.named(value, accessors)
        if isinstance(value, ReturnedTuple):
            known = isinstance(name, int) and -len(value.parts) <= name < len(value.parts)
            return self.reach_into(Alternative(value.parts[int(str(name))] if known else UNKNOWN), rest)
        if isinstance(value, ExternalCall):
            given = arguments.argument_for(value.call, "dataset", place=0) if name == "dataset" and names.canonical(value.name) in HAS_DATASET else None
            if given is not None:
                return self.access(given, rest, value.frame)
            return self.sources.member(value, accessors) or [Alternative(Element(value, accessors))]
        return [Alternative(PartOfEach(whole=value, accessors=accessors) if isinstance(value, Each) else UNKNOWN)]

    def _into_external(self, value: External, accessors: tuple[Accessor, ...]) -> Alternatives:
        kind, name = accessors[0]
        rest = accessors[1:]
        if kind == "attr":
            deeper = External(names.canonical(f"{value.name}.{name}"))
            if deeper.name == "absl.flags.FLAGS":
                return self.into_value(ParsedOptions(self.project.any_module(), cst.Pass(), "absl"), rest) if rest else [Alternative(deeper)]
            return self.reach_into(Alternative(self._of_command(deeper)), rest)
        if value.name == "os.environ" and isinstance(name, str):
            said = self.variable(name)
            return self.reach_into(of_setting(name, said) if said is not None else Alternative(UNKNOWN), rest)
        listed = self._of_command(value)
        return [Alternative(UNKNOWN)] if listed is value else self.into_value(listed, accessors)

    def _into_options(self, value: ParsedOptions, kind: str, name: object, rest: tuple[Accessor, ...]) -> Alternatives:
        if kind == "item" and isinstance(name, int):  # (options, args) = parser.parse_args()
            return self.reach_into(Alternative(value), rest) if name == 0 else [Alternative(UNKNOWN)]
        if name == "__dict__":
            return self.reach_into(Alternative(value), rest)
        return [b for a in self.options.lookup(value, str(name)) for b in self.reach_into(a, rest)]

    def variable(self, name: str) -> Setting | None:
        """What the environment of the command that is asked about says of a variable; ``None`` where no command is."""
        asked = self.project.command
        return asked.environment.says(name) if asked is not None else None

    def _of_command(self, value: External) -> Value:
        """The words of the command that is asked about, where a value is ``sys.argv``; else the value itself."""
        asked = self.project.command
        if value.name != "sys.argv" or asked is None:
            return value
        written = (repr(word) if is_known(word) else f"*{_NOBODY_KNOWS}" for word in (asked.script, *asked.words))
        return Display(cst.parse_expression(f"[{', '.join(written)}]"), self.module_frame(self.project.any_module()))

    def _merged(self, value: Merged, accessors: tuple[Accessor, ...]) -> Alternatives:
        sections = self._sections(value, accessors) if value.deep else []
        if len(sections) > 1:
            return [Alternative(Merged(tuple(sections[::-1]), deep=True))]
        out: Alternatives = []
        for part in value.parts[::-1]:
            if value.deep and isinstance(part, SettingsNode) and self.settings.lacks(part, accessors):
                continue
            there, absent = parted(self.into_value(part, accessors))
            out.extend(there)
            if not absent:
                return out
        return [*out, Alternative(ABSENT)]

    def _sections(self, value: Merged, accessors: tuple[Accessor, ...]) -> list[Value]:
        """The mappings that stand at a key, the one that counts most first; what nobody knows may be below them."""
        found: list[Value] = []
        for part in value.parts[::-1]:
            if isinstance(part, SettingsNode) and self.settings.lacks(part, accessors):
                continue
            there = [alt.value for alt in self.into_value(part, accessors) if not isinstance(alt.value, Absent)]
            section = len(there) == 1 and (isinstance(there[0], Merged) or (isinstance(there[0], SettingsNode) and self.settings.is_mapping(there[0])))
            if there and (section or found):
                found.append(there[0])
            if there and not section:
                break
        return found

    def _getitem(self, value: Instance, name: object, rest: tuple[Accessor, ...]) -> Alternatives:
        # Config objects often read as mappings.
        if isinstance(name, str):
            found = self.attribute(value, name, rest)
            if found and not all(isinstance(a.value, Unknown | Absent) for a in found):
                return found
            return [Alternative(UNKNOWN)]
        method = self.method(value, "__getitem__")
        return self.returned(method, (), rest) if method is not None else [Alternative(UNKNOWN)]
