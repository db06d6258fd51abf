"""What calls give: functions and classes of the project, a few of the standard library, methods of plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import libcst as cst
from msgspec.structs import replace

from oomlint.api_names import H5_FILES, PARTIALS, SAME_GRAPHS, SAME_MODEL
from oomlint.frameworks import PREPARERS, PREPARES
from oomlint.model import arguments, names
from oomlint.model.displays import is_grown
from oomlint.model.lookups import Lookups
from oomlint.model.questions import BUDGET, MOST, NO_ANSWER, UNKNOWN, calls_itself, constant, is_cpu_count, of_setting, trim, written
from oomlint.model.registries import REGISTRIES, registered
from oomlint.model.sources import CONTAINERS
from oomlint.model.values import (
    FREE,
    Absent,
    Alternative,
    Alternatives,
    Bound,
    ClassRef,
    Const,
    Display,
    Element,
    External,
    ExternalCall,
    Frame,
    FunctionRef,
    Instance,
    Merged,
    ModuleRef,
    ParsedOptions,
    Partial,
    Picks,
    ProvenanceStep,
    SettingsNode,
    Unknown,
    Value,
    meet,
    picked,
    truth_of,
)
from oomlint.syntax.nodes import UNKNOWN_KEY, constant_key, path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from oomlint.model.project import Module
    from oomlint.syntax.nodes import Accessor


_DEEPEST_CALL = 8  # calls inside calls that are followed
_DEEPEST_NEST = 7
_MOST_RETURNS = 12
# Calls that hand their first argument through, as far as a value is concerned.
_SAME = frozenset(
    {
        "builtins.int", "builtins.str", "builtins.bool", "builtins.float", "builtins.sorted", "builtins.list", "builtins.tuple", "builtins.dict",
        "builtins.vars", "copy.deepcopy", "copy.copy", "easydict.EasyDict", "addict.Dict", "munch.Munch", "munch.munchify", "box.Box", "argparse.Namespace",
        "omegaconf.OmegaConf.create", "omegaconf.OmegaConf.to_container", "types.SimpleNamespace", "omegaconf.DictConfig", "dotmap.DotMap",
        "pytorch_lightning.utilities.AttributeDict", "tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm", "tqdm.std.tqdm", "builtins.reversed", "builtins.iter",
        "natsort.natsorted", "builtins.set", "builtins.frozenset", "rich.progress.track",
    },
)  # fmt: skip
# Those that read what they are given into a container of their own: a list of an HDF5 dataset is no part of the file any more.
_CONTAINERS = frozenset({"builtins.sorted", "builtins.list", "builtins.tuple", "builtins.set", "builtins.frozenset", "natsort.natsorted"})
# Calls whose keywords are read as the entries of a mapping.
_MAPPINGS = frozenset(
    {"builtins.dict", "argparse.Namespace", "types.SimpleNamespace", "easydict.EasyDict", "addict.Dict", "munch.Munch", "dotmap.DotMap"},
)
_PATHS = frozenset(
    {"os.path.join", "pathlib.Path", "os.path.abspath", "os.path.expanduser", "pathlib.PurePath", "os.path.dirname", "os.path.realpath"},
)
# Classes that derive from nothing that a test asks for.
_ROOTS = frozenset({"builtins.object", "abc.ABC", "torch.nn.Module", "torch.utils.data.Dataset"})
_INSTANTIATES = frozenset({"hydra.utils.instantiate", "hydra.utils.call", "hydra.instantiate"})
_BY_NAME = frozenset({"builtins.eval", "importlib.import_module", "builtins.__import__"})
_CONVERSIONS: dict[str, Callable[[Any], object]] = {"builtins.int": int, "builtins.str": str, "builtins.bool": bool, "builtins.float": float}


def _is_read(value: Value) -> bool:
    """Whether a container of a value is something else than the value: of an HDF5 file or a part of one, or of a range, whose numbers it makes."""
    whole = value.whole if isinstance(value, Element) else value
    return isinstance(whole, ExternalCall) and (whole.name in H5_FILES or whole.name == "builtins.range")


class Results(Lookups):
    """Follows a call into what it returns."""

    def called(self, node: cst.Call, frame: Frame) -> Alternatives:
        """What a call gives."""
        method = self.method_on_value(node, frame)
        if method is not None:
            return method
        out: Alternatives = []
        for callee in self.callees(node, frame):
            for alt in self.result(callee.value, node, frame):
                merged = alt.under(callee.picks)
                if merged is not None:
                    known = type(alt.value) is not Unknown
                    out.append(merged.doubting(callee.doubt) if known else written(node, frame, merged.picks))
        return out or [written(node, frame)]

    def result(self, callee: Value, node: cst.Call, frame: Frame, extra: tuple[Bound, ...] = ()) -> Alternatives:
        """What calling ``callee`` with the arguments of ``node`` gives."""
        bound = (*extra, Bound(tuple(node.args), frame, node))
        if isinstance(callee, ClassRef):
            if self.is_enum(callee):
                return [Alternative(UNKNOWN)]
            return [Alternative(Instance(callee, bound, node, frame))]
        if isinstance(callee, FunctionRef):
            return self.returned(callee, bound, ())
        if isinstance(callee, Partial):
            return self.result(callee.func, node, frame, (callee.bound, *extra))
        if isinstance(callee, Instance):
            called = self.method(callee, "__call__")
            return self.returned(called, bound, ()) if called is not None else [Alternative(UNKNOWN)]
        if isinstance(callee, External):
            return self._external(names.canonical(callee.name), node, frame)
        return [Alternative(UNKNOWN)]

    def returned(self, function: FunctionRef, bound: tuple[Bound, ...], accessors: tuple[Accessor, ...]) -> Alternatives:
        """What a function of the project returns (or an element of it)."""
        key = (function, bound, accessors)
        if key in self.active:
            self.given_up += 1
            return NO_ANSWER
        known = self.told_meanwhile(key) if self.meanwhile else None
        if known is None:
            known = self.returns.get(key)
        if known is not None:
            return known
        self.active.add(key)
        assumed = self.assumed
        try:
            found = self._returned(function, bound, accessors)
        finally:
            self.active.discard(key)
        if self.depth == 0 or self.spent < BUDGET:
            if self.assumed == assumed:
                self.returns[key] = found
            else:
                self.meanwhile[-1][key] = found
        return found

    def _returned(self, function: FunctionRef, bound: tuple[Bound, ...], accessors: tuple[Accessor, ...]) -> Alternatives:
        scope = function.scope
        inner = Frame(function.module, scope, bound, function.this, self._closure(function, bound))
        if inner.depth > _DEEPEST_CALL or self._nesting(inner) > _DEEPEST_NEST or calls_itself(inner):
            return [Alternative(UNKNOWN)]
        if isinstance(scope.node, cst.Lambda):
            return self.access(scope.node.body, accessors, inner)
        if scope.yields:
            return [Alternative(UNKNOWN)]
        out: Alternatives = []
        several = len(scope.returns) > 1
        origin = ("return", scope, bound[-1].call if bound else None)
        for statement in scope.returns[:_MOST_RETURNS]:
            if statement.value is None:
                out.append(Alternative(Const(None)))
                continue
            states = self.where(statement, inner)
            if several:
                states = [m for picks in states if (m := meet(picks, frozenset({(origin, id(statement))}))) is not None]
            if not states:
                continue
            for alt in self.access(statement.value, accessors, inner):
                for picks in states[:4]:
                    merged = alt.under(picks)
                    if merged is not None:
                        out.append(merged)
        return trim(out) or [Alternative(Const(None) if not scope.returns else UNKNOWN)]

    def _nesting(self, frame: Frame) -> int:
        """How many calls lead to a frame, or to where its object was made, whichever are more: of what each has, there are as many as both together."""
        known = self.nested.get(frame)
        if known is None:
            around = [one.frame for one in frame.bound or ()]
            if frame.this is not None and frame.this.at is not None:
                around.append(frame.this.at)
            known = self.nested[frame] = 1 + max(map(self._nesting, around), default=0)
        return known

    def _closure(self, function: FunctionRef, bound: tuple[Bound, ...]) -> Frame | None:
        parent = function.scope.parent
        if parent is None or not parent.is_function:
            return None
        for layer in bound:
            here: Frame | None = layer.frame
            while here is not None:
                if here.scope is parent:
                    return here
                here = here.outer
        return None

    @staticmethod
    def _first(node: cst.Call) -> cst.BaseExpression | None:
        """The first argument, where it is given by position."""
        plain = next((arg for arg in node.args if arg.keyword is None), None)
        return plain.value if plain is not None and plain.star == "" else None

    def _external(self, name: str, node: cst.Call, frame: Frame) -> Alternatives:
        first = self._first(node)
        if name in PARTIALS and first is not None:
            rest = Bound(tuple(node.args[1:]), frame, node)
            return [Alternative(Partial(a.value, rest), a.story, a.picks, a.doubt) for a in self.values(first, frame)]
        if name in {"builtins.min", "builtins.max"}:
            return self._extreme(node, frame, least=name == "builtins.min")
        if (name in _MAPPINGS or name in CONTAINERS) and any(a.keyword is not None or a.star == "**" for a in node.args):
            return [Alternative(Display(node, frame))]
        if name == "os.getenv" and first is not None and (told := self._environment(node, frame)) is not None:
            return told
        if name == "builtins.getattr":
            return self.attribute_by_name(node, frame)
        if name == "builtins.type" and first is not None and len(node.args) == 1:
            return [
                replace(alt, value=alt.value.cls) if isinstance(alt.value, Instance) else written(node, frame, alt.picks) for alt in self.values(first, frame)
            ]
        if name == "builtins.globals":
            return [Alternative(ModuleRef(frame.module.path, frame.module))]
        if name in _BY_NAME and first is not None:
            found = self.evaluated(first, frame) if name == "builtins.eval" else self.imported_by_name(first, frame)
            if found:
                return found
        if name == "builtins.isinstance" and first is not None and len(node.args) == 2:  # noqa: PLR2004 - what, and of which class
            told = [replace(alt, value=self._is_one(alt.value, node, frame)) for alt in self.values(first, frame)]
            if any(isinstance(alt.value, Const) for alt in told):
                return told
        if name in _INSTANTIATES and (made := self._instantiated(node, frame)):
            return made
        if (name in _SAME or name in CONTAINERS) and first is not None:
            if isinstance(first, cst.GeneratorExp):
                return [written(node, frame)]  # a container of what the generator yields
            found = self._convert(name, self.values(first, frame))
            return [written(node, frame, a.picks) if name in _CONTAINERS and _is_read(a.value) else a for a in found]
        loaded = self.settings.loaded(name, node, frame) or self.sources.called(name, node, frame)
        if loaded is not None:
            return loaded
        if name in _PATHS:
            path = self.settings.path_call(name, node, frame)
            if isinstance(path, Const):
                return [Alternative(path)]
        if name == "builtins.len" and first is not None:
            return self._length(first, frame)
        if name == "builtins.sum" and first is not None and len(node.args) == 1:
            return self._sum(first, node, frame)
        return [Alternative(ExternalCall(name, node, frame), (ProvenanceStep(frame.module, node, "", kind="call"),))]

    def _is_one(self, value: Value, node: cst.Call, frame: Frame) -> Value:
        """Whether an object of the project is one of a class, as far as its bases are known; one that is only called `self` may be of a derived class."""
        asked = [alt.value for alt in self.values(node.args[1].value, frame)]
        unknown = ExternalCall("builtins.isinstance", node, frame)
        if len(asked) != 1 or not isinstance(value, Instance) or not isinstance(asked[0], ClassRef | External):
            return unknown
        line = self.lineage(value.cls)
        if asked[0] in line:
            return Const(value=True)
        known = all(base.name in _ROOTS if isinstance(base, External) else all(isinstance(b, ClassRef | External) for b in self.bases(base)) for base in line)
        return Const(value=False) if known and value.bound is not None else unknown

    def _instantiated(self, node: cst.Call, frame: Frame) -> Alternatives:
        """What Hydra makes of settings: an object of the class of the project that `_target_` names, with the other settings as its arguments."""
        given = arguments.positional((Bound(tuple(node.args), frame, node),))
        if not given:
            return []
        first, where = given[0].node.value, given[0].bound.frame
        beside = tuple(arg for arg in node.args if arg.keyword is not None or arg.star == "**")
        bound = (Bound((cst.Arg(first, star="**"),), where, node), Bound(beside, frame, node))
        found: Alternatives = []
        for told in self.access(first, (("item", "_target_"),), where):
            for target in self.by_path(told.const, frame) if isinstance(told.const, str) else ():
                if isinstance(target.value, ClassRef):
                    made = [Alternative(Instance(target.value, bound, node, frame))]
                else:
                    made = self.returned(target.value, bound, ()) if isinstance(target.value, FunctionRef) else []
                found.extend(merged for alt in made if (merged := alt.under(told.picks)) is not None)
        return found

    def _environment(self, node: cst.Call, frame: Frame) -> Alternatives | None:
        """What ``os.environ.get("NAME", default)`` gives: what the environment of the command says, else the default. Without a command anything may be set."""
        key = constant_key(node.args[0].value)
        default = node.args[1].value if len(node.args) > 1 else None
        if self.project.command is None:
            return [Alternative(UNKNOWN, reach=True), *self.values(default, frame)] if default is not None else None
        if not isinstance(key, str):
            names = {alt.const for alt in self.values(node.args[0].value, frame)}
            key = names.pop() if len(names) == 1 else None
        said = self.variable(key) if isinstance(key, str) else None
        if said is None or not said.unset or not isinstance(key, str):
            return [of_setting(key, said) if said is not None and isinstance(key, str) else Alternative(UNKNOWN)]
        return self.values(default, frame) if default is not None else [constant(None, node, frame)]

    @staticmethod
    def _convert(name: str, found: Alternatives) -> Alternatives:
        convert = _CONVERSIONS.get(name)
        if convert is None:
            return found
        out: Alternatives = []
        for alt in found:
            if isinstance(alt.value, Const):
                try:
                    out.append(Alternative(Const(convert(alt.value.value)), alt.story, alt.picks, alt.doubt, alt.reach))
                except (TypeError, ValueError, OverflowError):
                    out.append(Alternative(UNKNOWN, (), alt.picks))
            elif name == "builtins.bool" and (verdict := truth_of(alt.value)) is not None:
                out.append(Alternative(Const(verdict), alt.story, alt.picks, alt.doubt, alt.reach))
            elif name == "builtins.int" and is_cpu_count(alt.value):
                out.append(alt)
            else:
                out.append(Alternative(UNKNOWN, (), alt.picks))
        return out

    def _length(self, node: cst.BaseExpression, frame: Frame) -> Alternatives:
        out: Alternatives = []
        for alt in self.values(node, frame):
            value: Value = UNKNOWN
            if isinstance(alt.value, Display) and isinstance(alt.value.node, cst.List | cst.Tuple | cst.Set | cst.Dict):
                elements = alt.value.node.elements
                if not is_grown(alt.value) and not any(isinstance(e, cst.StarredElement | cst.StarredDictElement) for e in elements):
                    value = Const(len(elements))
            elif isinstance(alt.value, Const) and isinstance(alt.value.value, str):
                value = Const(len(alt.value.value))
            elif isinstance(alt.value, ExternalCall) and alt.value.name == "os.sched_getaffinity":
                value = External("os.sched_getaffinity()")
            out.append(Alternative(value, alt.story, alt.picks, alt.doubt))
        return out

    def _sum(self, first: cst.BaseExpression, node: cst.Call, frame: Frame) -> Alternatives:
        """The sum of a list of numbers."""
        out: Alternatives = []
        for alt in self.values(first, frame):
            held = alt.value.node if isinstance(alt.value, Display) and not is_grown(alt.value) else None
            numbers = [constant_key(one.value) for one in held.elements] if isinstance(held, cst.List | cst.Tuple) else [None]
            whole = [one for one in numbers if isinstance(one, int)]
            known = replace(alt, value=Const(sum(whole)))
            out.append(known if len(whole) == len(numbers) else Alternative(ExternalCall("builtins.sum", node, frame), (), alt.picks))
        return out

    def _extreme(self, node: cst.Call, frame: Frame, *, least: bool) -> Alternatives:
        """``min`` and ``max`` over numbers. An unknown operand still bounds: ``min(x, 0)`` is never above 0, ``max(1, x)`` never below 1."""
        operands = arguments.plain(node)
        if len(operands) == 1:
            inner = operands[0]
            if not isinstance(inner, cst.List | cst.Tuple):
                return [Alternative(UNKNOWN)]
            operands = [e.value for e in inner.elements if isinstance(e, cst.Element)]
        states: list[tuple[list[float], bool, Alternative | None, Picks, int, bool]] = [([], False, None, FREE, 0, False)]
        cores = any(is_cpu_count(a.value) for operand in operands for a in self.values(operand, frame))
        others = any(not isinstance(a.const, int | float) and not is_cpu_count(a.value) for operand in operands for a in self.values(operand, frame))
        for operand in operands:
            fresh = []
            for numbers, open_, best, picks, doubt, reach in states:
                for alt in self.values(operand, frame):
                    merged = meet(picks, alt.picks)
                    if merged is None:
                        continue
                    if isinstance(alt.const, int | float):
                        known = best.const if best is not None else None
                        better = not isinstance(known, int | float) or ((alt.const < known) if least else (alt.const > known))
                        fresh.append(([*numbers, alt.const], open_, alt if better else best, merged, doubt + alt.doubt, reach or alt.reach))
                    else:
                        fresh.append((numbers, True, best, merged, doubt + alt.doubt, reach))
            states = fresh[:MOST]
        out: Alternatives = []
        for numbers, open_, best, picks, doubt, reach in states:
            if not numbers or best is None:
                out.append(Alternative(UNKNOWN, (), picks))
                continue
            number = min(numbers) if least else max(numbers)
            if not open_ or (least and number == 0):
                out.append(Alternative(Const(number), best.story, picks, doubt, reach))
            elif not least and cores:
                # `max(1, os.cpu_count() - 1)` is the number of cores on any machine that trains.
                out.append(Alternative(External("os.cpu_count()"), best.story, picks, doubt, reach))
            elif least and not others:
                # `min(8, os.cpu_count())`: what a machine that trains gives, and no more than that anywhere.
                step = ProvenanceStep(frame.module, node, f"at most {number:g}", kind="bound")
                out.append(Alternative(Const(number), (step, *best.story), picks, doubt + 1, reach))
            else:
                out.append(Alternative(UNKNOWN, (), picks))
        return out

    def method_on_value(self, node: cst.Call, frame: Frame) -> Alternatives | None:
        """Methods of plain Python values that hand a value through: ``d.get("k", 0)``, ``parser.parse_args()``, ``d.copy()``."""
        func = node.func
        if not isinstance(func, cst.Attribute):
            return None
        attr = func.attr.value
        told = self.sources.method(node, frame)
        if told is not None:
            return told
        if attr in {"get", "pop", "setdefault"} and node.args and node.args[0].keyword is None:
            key = constant_key(node.args[0].value)
            if attr == "get" and (classes := self._registered(func.value, key, frame)):
                return classes
            if key is UNKNOWN_KEY and self.project.command is None:
                return None
            base = self.values(func.value, frame)
            if any(isinstance(a.value, External) and a.value.name == "os.environ" for a in base):
                return self._environment(node, frame)
            if key is UNKNOWN_KEY:
                return None
            if not any(isinstance(a.value, Display | SettingsNode | Merged | ParsedOptions | Absent | Unknown) for a in base):
                return None
            found = self.access(func.value, (("item", key),), frame) if attr != "pop" else self._before_pop(func.value, key, frame)
            if not node.args[1:]:
                return [Alternative(Const(None), a.story, a.picks, a.doubt) if isinstance(a.value, Absent) else a for a in found]
            default = self.values(node.args[1].value, frame)
            entry = ("entry", names.dotted(func.value) or node, key, frame)  # a test of what one look-up gives tells of another's
            out: Alternatives = []
            for alt in found:
                if isinstance(alt.value, Absent):
                    out.extend(m for d in default if (m := d.under(alt.picks)) is not None)
                elif isinstance(alt.value, Unknown):
                    # Whoever leaves the key out gets the default.
                    out.append(picked(replace(alt, reach=True), entry, "given"))
                    step = ProvenanceStep(frame.module, node, f"where `{key}` is left out", kind="branch")
                    out.extend(picked(replace(d.after(step), picks=m.picks), entry, "left out") for d in default if (m := d.under(alt.picks)) is not None)
                else:
                    out.append(alt)
            return out
        if attr in SAME_MODEL or (attr in SAME_GRAPHS and not any(arg.keyword is not None for arg in node.args)):
            found = self.values(func.value, frame)
            if any(self.gives_itself(a.value, attr) for a in found):
                return [a if self.gives_itself(a.value, attr) else written(node, frame, a.picks) for a in found]
        if attr in PREPARES:
            return self._prepared(node, func, frame)
        if attr in {"copy", "items"} and not node.args:
            found = self.values(func.value, frame)
            if any(isinstance(a.value, Display | SettingsNode | Merged | Instance | ParsedOptions) for a in found):
                return found
            return None
        if attr in {"parse_args", "parse_known_args", "parse_args_and_config"}:
            return [Alternative(ParsedOptions(*_parses(func.value, node, frame), "argparse"))]
        return None

    def _prepared(self, node: cst.Call, func: cst.Attribute, frame: Frame) -> Alternatives | None:
        """What an accelerator makes ready: what it is handed, several in a tuple."""
        makers = [names.canonical(alt.value.name) for alt in self.values(func.value, frame) if isinstance(alt.value, ExternalCall)]
        if not any(func.attr.value in PREPARERS.get(maker, ()) for maker in makers):
            return None
        given = arguments.positionals(node)
        if not given or arguments.has_stars(node):
            return None
        if len(given) == 1:
            return self.values(given[0].value, frame)
        return [Alternative(Display(cst.Tuple([cst.Element(one.value) for one in given]), frame))]

    def _registered(self, base: cst.BaseExpression, key: object, frame: Frame) -> Alternatives:
        """Classes that a registry of fvcore gives under a key."""
        made = (alt.value for alt in self.values(base, frame))
        return [found for one in made if isinstance(one, ExternalCall) and one.name in REGISTRIES for found in registered(one, key)]

    def _before_pop(self, base: cst.BaseExpression, key: object, frame: Frame) -> Alternatives:
        # The pop itself is an effect in this very statement; it removes the key after the value was read.
        path = path_of(base)
        if path is None:
            return self.access(base, (("item", key),), frame)
        return self.resolve(path[0], (*path[1], ("item", key)), frame, base)


def _parses(parser: cst.BaseExpression, call: cst.Call, frame: Frame) -> tuple[Module, cst.Call]:
    """The call that gives the options, in the file that makes the parser: of a function that is handed the parser, the call of that function."""
    while isinstance(parser, cst.Name) and frame.bound:
        given = arguments.given_to(frame.scope, parser.value, frame.bound)
        if given is None or given.node.star:
            break
        parser, call, frame = given.node.value, given.bound.call, given.bound.frame
    return frame.module, call
