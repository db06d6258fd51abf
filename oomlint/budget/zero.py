"""What DeepSpeed makes of a model, by its settings (ZeRO): what each rank has a part of, and what lies on the host."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from oomlint.budget import trainers
from oomlint.budget.command import options_of
from oomlint.budget.nouns import GRADIENTS, PARAMETERS, STATE
from oomlint.budget.parts import lacking
from oomlint.memory.shared.qualified_names import library_name
from oomlint.model import arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import libcst as cst

    from oomlint.budget.nouns import Trained
    from oomlint.budget.walking import Walking
    from oomlint.finding import Place
    from oomlint.model.project import Module, Project

_STAGES: Final = ((1, STATE), (2, GRADIENTS), (3, PARAMETERS))  # from which stage on each rank has a part of it
_HALF: Final = 2  # bytes of a number of 16 bits
_MOST_BYTES: Final = 1_000_000


class Zero:
    """The calls of ``deepspeed.initialize`` in the modules of one program, with their settings; ``None`` where nobody knows these."""

    def __init__(self, project: Project, building: Walking, reached: Sequence[Module], runs: Callable[[Place], bool]) -> None:
        self._project = project
        self._building = building
        self._found = {call: (module.code(model), settings) for module in reached for call, model, settings in self._calls(module, runs)}

    def _calls(self, module: Module, runs: Callable[[Place], bool]) -> Iterator[tuple[cst.Call, cst.BaseExpression, dict[str, Any] | None]]:
        calls = self._building.evaluator.calls
        words = self.words
        for call, scope in module.walk.calls if "--deepspeed" in words else ():  # what a trainer of transformers is told
            trained = trainers.model_of(call, module, scope, self._building.evaluator)
            if trained is not None and runs(module.place(call)):
                yield call, trained, self._read(words["--deepspeed"])
        for call, scope in module.calls_of(("initialize",)) if b"deepspeed" in module.source.data else ():
            model = arguments.argument_for(call, "model", place=1)
            frame = next(iter(calls.frames(module, scope)), None) or calls.plain_frame(module, scope)
            if model is None or library_name(self._project, call.func, module, scope) != "deepspeed.initialize" or not runs(module.place(call)):
                continue
            given = arguments.argument_for(call, "config", place=10) or arguments.argument_for(call, "config_params", place=11)
            told: Any = self._building.values([given], frame)[0] if given is not None else words.get("--deepspeed_config")
            yield call, model, self._read(told) if isinstance(told, str) else told if isinstance(told, dict) else None

    @property
    def words(self) -> dict[str, str]:
        """The options of the command."""
        return options_of(self._project.command.words) if self._project.command is not None else {}

    def _read(self, path: str) -> dict[str, Any] | None:
        """The settings in a file, which is named from the folder of the script or the current one."""
        script = self._project.command.script if self._project.command is not None else ""
        for folder in (os.getcwd(), os.path.dirname(script)):
            try:
                with open(os.path.join(folder, path), "rb") as file:
                    found = json.loads(file.read(_MOST_BYTES))
            except (OSError, ValueError, RecursionError):
                continue
            return found if isinstance(found, dict) else None
        return None

    def optimizer(self, call: cst.Call) -> str:
        """The class of the optimizer that a call makes by its settings; empty where it makes none."""
        settings = self._found[call][1] if call in self._found else None
        made = (settings or {}).get("optimizer")
        return str(made.get("type", "")) if isinstance(made, dict) else ""

    def spread(self, one: Trained) -> Trained:
        """A model as it lies once DeepSpeed has it."""
        own = [settings for name, settings in self._found.values() if name == one.name]
        if not own:
            return one
        settings = own[0]
        if settings is None:
            return replace(one, counted=lacking(f"{one.name} under DeepSpeed"))
        zero = settings.get("zero_optimization")
        zero = zero if isinstance(zero, dict) else {}
        stage = zero.get("stage")
        states, parameters = _on_host(zero.get("offload_optimizer")) or zero.get("cpu_offload") is True, _on_host(zero.get("offload_param"))
        half = any(_enabled(settings.get(key)) for key in ("fp16", "bf16", "bfloat16"))
        return replace(
            one,
            sharded=frozenset(what for least, what in _STAGES if isinstance(stage, int) and stage >= least),
            on_host=frozenset({STATE, GRADIENTS} if states else ()) | frozenset({PARAMETERS} if parameters else ()),
            item=_HALF if half else one.item,
            master=half,
        )


def _on_host(settings: object) -> bool:
    return isinstance(settings, dict) and settings.get("device") == "cpu"


def _enabled(settings: object) -> bool:
    return isinstance(settings, dict) and settings.get("enabled") is True
