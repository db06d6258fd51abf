"""Passes that are given one sample: what they keep for a backward is that of one sample, and goes before the next.

That is no more than the network weighs itself, but for networks that convolve: the maps of one picture or volume may weigh more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst

from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.seen_axes import SAME_AXES
from oomlint.model import arguments, names
from oomlint.model.torch_tables import AXIS_ORDERS, CASTS, MAPS, TO_DEVICE
from oomlint.model.uses import NameUses
from oomlint.model.values import ClassRef, External, ExternalCall, FunctionRef, Instance
from oomlint.patterns import pattern
from oomlint.syntax.nodes import constant_key, descend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oomlint.model.events import Forward, Loop, Via
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame, Value
    from oomlint.syntax.scopes import Scope

    Asked = tuple[Scope, cst.CSTNode]

_DEEPEST: Final = 8  # names of names, functions in functions
_MOST_SITES: Final = 4
_MOST_PARTS: Final = 64
_KEEP: Final = SAME_AXES | CASTS | TO_DEVICE | frozenset("requires_grad_ detach_ div mul sub add div_ mul_ sub_ clamp".split())
_WRAP: Final = frozenset("Variable from_numpy as_tensor asarray ascontiguousarray".split())  # what they are given, as it is
_LISTS: Final = frozenset("tensor Tensor FloatTensor LongTensor DoubleTensor IntTensor array asarray as_tensor stack".split())
_ROOMS: Final = frozenset({"torch", "np", "numpy"})  # whose functions are given what methods are called on
_LAYS: Final = frozenset({"view", "reshape"})
_MAKES: Final = frozenset("rand randn zeros ones empty full randint".split())
_STEP: Final = range(4, 6)  # what an environment gives for an action: what is seen then, the reward, whether it is the end, and more
_RESIZES: Final = frozenset({"interpolate", "upsample", "pixel_shuffle"})
_GROWS: Final = pattern(r"^(?:(?:Lazy)?Conv(?:Transpose)?\dd|MaxPool3d|PixelShuffle|Upsample|UpsamplingBilinear2d|UpsamplingNearest2d|MaxUnpool\dd)$")
_LIBRARIES: Final = (*MAPS, "torchvision.models.", "timm.", "monai.", "diffusers.")
_LANGUAGE: Final = pattern(r"^transformers\.\w*(?:CausalLM|LMHead|Generation|Seq2Seq|Vision2Seq|ImageTextToText)")


def steps_environment(event: Forward, loop: Loop) -> bool:
    """Whether a round hands an action to an environment, ``seen, reward, done, info = env.step(action)``: what it passes is one thing that is seen."""
    here = event.loops[event.loops.index(loop) :] if loop in event.loops else (loop,)
    bodies = (around.repeated for around in here)
    return any(isinstance(node, cst.Assign) and _is_step(node) for body in bodies for node in descend(body, into_scopes=False))


def _is_step(node: cst.Assign) -> bool:
    target, value = node.targets[0].target, node.value
    parts = len(target.elements) if isinstance(target, cst.Tuple) else 0
    return parts in _STEP and isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value == "step"


class OneSample:
    """Answers for the passes of a project."""

    def __init__(self, project: Project) -> None:
        self.evaluator = evaluator_of(project)

    def is_given(self, event: Forward) -> bool:
        """Whether the first thing that a pass is given has one sample: ``net(x.unsqueeze(0))``, ``net(torch.tensor([x]))``."""
        call = event.node
        first = next((arg for arg in call.args if not arg.star), None) if isinstance(call, cst.Call) else None
        return first is not None and self._is_one(event.module, event.scope, first.value, event.via, ())

    def may_be_large(self, event: Forward) -> bool:
        """Whether the activations of one sample may weigh more than the network: it is unknown, convolves, gives maps, or sees volumes."""
        call, calls = event.node, self.evaluator.calls
        frames = calls.frames(event.module, event.scope, most=_MOST_SITES) or [calls.plain_frame(event.module, event.scope)]
        found = [alt for frame in frames for alt in self.evaluator.values(call.func, frame)] if isinstance(call, cst.Call) else []
        made = [alt.value.this if isinstance(alt.value, FunctionRef) else alt.value for alt in found]
        networks = [one for one in made if isinstance(one, Instance | ExternalCall)]
        return not networks or len(networks) < len(made) or any(map(self._is_dense, networks))

    # -- one sample ------------------------------------------------------------------------------------------------------

    def _is_one(self, module: Module, scope: Scope, node: cst.BaseExpression, via: Sequence[Via], asked: tuple[Asked, ...]) -> bool:
        """Whether the first axis of a value counts one sample; ``via`` are the calls that led to its function."""
        if len(asked) > _DEEPEST:
            return False
        match node:
            case cst.Name():
                return (scope, node) in asked or self._is_one_by_name(module, scope, node, via, (*asked, (scope, node)))
            case cst.Subscript(slice=[cst.SubscriptElement(slice=cst.Index(value=first)), *_]) if names.adds_axis(first):
                return not isinstance(first, cst.Ellipsis)
            case cst.Call():
                return self._is_one_by_call(module, scope, node, via, asked)
        return False

    def _is_one_by_name(self, module: Module, scope: Scope, node: cst.Name, via: Sequence[Via], asked: tuple[Asked, ...]) -> bool:
        held = NameUses(module.walk, scope, node.value).bindings(node)
        made = [effect for effect in held if effect is not None]
        if any(effect.kind != "assign" or effect.path or effect.index or effect.value is None for effect in made):
            return False
        given = self._given(module, scope, node.value, via) if None in held else []
        if not held or (None in held and not given):
            return False
        inside = ((module, scope, effect.value, via) for effect in made if effect.value is not None)
        return all(self._is_one(*one, asked) for one in (*inside, *given))

    def _given(self, module: Module, scope: Scope, name: str, via: Sequence[Via]) -> list[tuple[Module, Scope, cst.BaseExpression, Sequence[Via]]]:
        """What the calls of a function give to a parameter: the one that led there, or all of them."""
        if name not in names.parameter_names(scope):
            return []
        place = names.parameter_names(scope).index(name) - names.is_method(scope)
        if via and via[-1].callee is scope:
            calls = [(via[-1].module, via[-1].module.walk.scope_at(via[-1].call), via[-1].call, via[:-1])]
        else:
            sites = self.evaluator.calls.sites(module, scope, most=_MOST_SITES)
            calls = [(site.module, site.scope, site.call, ()) for site in sites]
        given = [(where, around, arguments.argument_for(call, name, place=place), before) for where, around, call, before in calls]
        return [(where, around, value, before) for where, around, value, before in given if value is not None] if all(one[2] for one in given) else []

    def _is_one_by_call(self, module: Module, scope: Scope, call: cst.Call, via: Sequence[Via], asked: tuple[Asked, ...]) -> bool:
        last, given = names.last_name(call.func), arguments.plain(call)
        on = call.func.value if isinstance(call.func, cst.Attribute) else None
        if on is None or names.dotted(on) in _ROOMS:
            on, plain = (given[0], given[1:]) if given else (None, given)
        else:
            plain = given
        again = (module, scope)
        if last in {"unsqueeze", "expand_dims"}:
            axis = next((one for word in ("dim", "axis") if (one := arguments.named(call, word)) is not None), plain[0] if plain else None)
            return (axis is not None and constant_key(axis) == 0) or (on is not None and self._is_one(*again, on, via, asked))
        if last in _LAYS | _MAKES:
            shape = given if last in _MAKES else plain
            sizes = [one.value for one in shape[0].elements] if shape and isinstance(shape[0], cst.Tuple | cst.List) else shape
            return len(sizes) > 1 and constant_key(sizes[0]) == 1
        if last in AXIS_ORDERS and on is not None and plain:
            axes = [constant_key(one) for one in plain]
            keeps = axes[0] == 0 if last == "permute" else 0 not in axes and None not in axes
            return keeps and self._is_one(*again, on, via, asked)
        if last in _LISTS and given and isinstance(given[0], cst.List):
            only = [one for one in given[0].elements if isinstance(one, cst.Element)]
            return len(only) == len(given[0].elements) == 1
        if last in _LISTS | _WRAP and given:
            return self._is_one(*again, given[0], via, asked)
        if last in _KEEP and on is not None:
            return self._is_one(*again, on, via, asked)
        return self._gives_one(module, scope, call, asked)

    def _gives_one(self, module: Module, scope: Scope, call: cst.Call, asked: tuple[Asked, ...]) -> bool:
        """Whether a function of the project gives one sample in any case."""
        found = self.evaluator.plainly(call.func, module, scope)
        made = [alt.value for alt in found if isinstance(alt.value, FunctionRef)]
        if not made or len(made) < len(found) or any(one.scope.yields or (one.scope, call) in asked for one in made):
            return False
        ways = [(one, back.value) for one in made for back in one.scope.returns]
        return bool(ways) and all(back is not None and self._is_one(one.module, one.scope, back, (), (*asked, (one.scope, call))) for one, back in ways)

    # -- what keeps more than the network weighs -------------------------------------------------------------------------

    def _is_dense(self, network: Value) -> bool:
        return any(map(_GROWS.match, self._layers(network, [])))

    def _layers(self, value: Value, asked: list[object]) -> Iterator[str]:
        """The layers of torch that a network is made of, by the last part of their names."""
        if isinstance(value, ExternalCall):
            if value.name.startswith(_LIBRARIES) or _LANGUAGE.match(value.name):
                yield "Upsample"
            yield value.name.rpartition(".")[2]
            if value.name.startswith("torch.nn."):
                yield from self._made_in(value.frame, asked)  # what it holds is made there, too
        elif isinstance(value, Instance) and value.cls not in asked and len(asked) < _MOST_PARTS:
            asked.append(value.cls)
            frame = self.evaluator.init_frame(value)
            for base in self.evaluator.lineage(value.cls):
                if isinstance(base, ClassRef):
                    inside = base.scope.child("__init__")
                    if inside is not None:
                        plain = self.evaluator.calls.plain_frame(base.module, inside)
                        yield from self._made_in(frame if frame is not None and frame.scope is inside else plain, asked)
                    if any(names.last_name(call.func) in _RESIZES for method in base.scope.children for call in method.calls):
                        yield "Upsample"

    def _made_in(self, frame: Frame, asked: list[object]) -> Iterator[str]:
        if frame.scope in asked:
            return
        asked.append(frame.scope)
        for call in frame.scope.calls:
            for alt in self.evaluator.values(call.func, frame)[:2]:
                match alt.value:
                    case ClassRef():
                        yield from self._layers(Instance(alt.value, None), asked)
                    case FunctionRef():
                        yield from self._made_in(self.evaluator.calls.plain_frame(alt.value.module, alt.value.scope), asked)
                    case External(name=name) if name.startswith("torch.nn."):
                        yield name.rpartition(".")[2]
                    case External(name=name) if name.startswith(_LIBRARIES) or _LANGUAGE.match(name):
                        yield "Upsample"
