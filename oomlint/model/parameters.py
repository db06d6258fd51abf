"""Parameters: what callers, command lines and defaults give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from oomlint.model import arguments, names
from oomlint.model.displays import Displays
from oomlint.model.questions import UNKNOWN, parted
from oomlint.model.values import (
    ABSENT,
    ASSUMED,
    Alternative,
    Alternatives,
    Frame,
    ProvenanceStep,
    Unknown,
)

if TYPE_CHECKING:
    from oomlint.syntax.nodes import Accessor


# Parameters that hold the namespace of a command line, by convention.
_NAMESPACES = frozenset({"args", "opt", "opts", "options", "hparams", "FLAGS", "flags", "cfg", "config", "conf", "params"})


class Parameters(Displays):
    """Finds the argument behind a parameter."""

    def parameter(self, name: str, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """What a parameter of the frame's function holds."""
        scope, bound = frame.scope, frame.bound
        node = scope.node
        if not isinstance(node, cst.FunctionDef | cst.Lambda):
            return [Alternative(UNKNOWN)]
        is_rest = isinstance(node.params.star_kwarg, cst.Param) and node.params.star_kwarg.name.value == name
        if is_rest:
            return self._rest(accessors, frame)
        if isinstance(node.params.star_arg, cst.Param) and node.params.star_arg.name.value == name:
            return self._further(accessors, frame)
        out: Alternatives = []
        if bound is not None:
            given = arguments.given_to(scope, name, bound)
            if given is not None:
                return self.passed(given, name, accessors)
            for star in arguments.starred(bound):
                there, absent = parted(self.access(star.node.value, (("item", name), *accessors), star.bound.frame))
                out.extend(there)
                if not absent:
                    return out
            if arguments.hides_positionals(bound):
                unpacked = arguments.unpacked(scope, name, bound)
                if unpacked is not None:
                    return [*out, *self.passed(unpacked[0], name, accessors if unpacked[1] is None else (("item", unpacked[1]), *accessors))]
                return [*out, Alternative(UNKNOWN)]
        command = self.options.command_parameter(frame, name)
        if command is not None:
            return [b for a in command for b in self.reach_into(a, accessors)]
        configured = self.settings.entry_parameter(frame, name, accessors) if accessors else None
        if configured is not None:
            return configured
        filled = self.sources.parameter(frame, name, accessors)
        if filled is not None:
            return filled
        if bound is not None:
            return [*out, *self._default(name, accessors, frame, doubt=0)]
        if accessors and accessors[0][0] == "attr":
            option = str(accessors[0][1])
            guessed = self.options.of_class(frame, option) or (self.options.by_convention(frame.module, option) if name in _NAMESPACES else [])
            if guessed:
                return [b for a in guessed for b in self.reach_into(a, accessors[1:])]
        return self._default(name, accessors, frame, doubt=1)

    def _default(self, name: str, accessors: tuple[Accessor, ...], frame: Frame, doubt: int) -> Alternatives:
        scope = frame.scope
        param = next((p for p in names.parameters(scope) if p.name.value == name), None)
        if param is None or param.default is None:
            return [Alternative(Unknown(f"parameter {name}"))]
        outside = scope.parent
        outer = Frame(frame.module, outside) if outside is not None else self.module_frame(frame.module)
        unclaimed = self.options.words_given.unclaimed(name)
        if unclaimed is not None:  # a library may call the function with it; where the project does, nobody knows
            return self.reach_into(unclaimed if doubt else Alternative(Unknown(f"parameter {name}"), unclaimed.story), accessors)
        default = param.default
        if isinstance(default, cst.Call) and names.last_name(default.func) in {"Option", "Argument"}:
            return [b for a in self.options.typer_default(default, name, outer) for b in self.reach_into(a, accessors)]
        words = f"default of parameter `{name}` of `{scope.name}`"
        step = ProvenanceStep(frame.module, param, words, kind="default")
        found = [a.after(step) for a in self.access(default, accessors, outer)]
        found = self.options.by_annotation(param, found)
        found.extend(self.options.annotated(param, name, frame, found))
        if doubt:
            # Nobody in the project calls it: a caller elsewhere may give anything. That it is the default is assumed, once for all who ask.
            key = ("parameter", param)
            given = [a for a in found if a.reach]  # what a command line can give is no default
            found = [m for a in found if not a.reach and (m := a.under(frozenset({(key, ASSUMED)}))) is not None] + given
            found.append(Alternative(Unknown(f"parameter {name}"), (step,), frozenset({(key, "other")}), reach=True))
        return found

    def passed(self, given: arguments.GivenArgument, name: str, accessors: tuple[Accessor, ...]) -> Alternatives:
        """What a caller passes as ``name``."""
        frame = given.bound.frame
        found = self.access(given.node.value, accessors, frame)
        step = ProvenanceStep(frame.module, given.node, f"passed as `{name}`", kind="argument")
        return [a.after(step) for a in found]

    def _further(self, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """``*args`` of the function: the arguments by place that no parameter takes."""
        number = accessors[0][1] if accessors else None
        known = arguments.further(frame.scope, frame.bound) if frame.bound is not None else None
        if known is None or not isinstance(number, int) or number < 0:
            return [Alternative(UNKNOWN)]
        return self.passed(known[number], f"argument {number}", accessors[1:]) if number < len(known) else [Alternative(ABSENT)]

    def _rest(self, accessors: tuple[Accessor, ...], frame: Frame) -> Alternatives:
        """``**kwargs`` of the function: the keywords of its callers that no parameter takes."""
        bound = frame.bound
        if bound is None or not accessors:
            return [Alternative(UNKNOWN)]
        key = accessors[0][1]
        if not isinstance(key, str):
            return [Alternative(UNKNOWN)]
        if key in names.takes(frame.scope):
            return [Alternative(ABSENT)]
        given = arguments.keyword(bound, key)
        if given is not None:
            return self.passed(given, key, accessors[1:])
        out: Alternatives = []
        for star in arguments.starred(bound):
            there, absent = parted(self.access(star.node.value, accessors, star.bound.frame))
            out.extend(there)
            if not absent:
                return out
        return [*out, Alternative(ABSENT)]
