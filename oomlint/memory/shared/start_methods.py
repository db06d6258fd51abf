"""How worker processes start: what the settings, the code and ``requires-python`` say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.beside_code import Beside, beside
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.model import names
from oomlint.model.torch_versions import TorchVersions
from oomlint.model.values import Alternative, Const, ExternalCall

if TYPE_CHECKING:
    from oomlint.memory.loaders.loader_calls import Loader, Loaders
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Frame

# Private memory of a worker that reads nothing, in MiB: torch 2.13.0 on Linux, CPU; under spawn and forkserver it imports torch again.
FORKED_MIB, SPAWNED_MIB = 10, 139
FORKED = FORKED_MIB << 20  # bytes
METHODS = ("fork", "spawn", "forkserver")


class StartMethods(Struct, frozen=True):
    """The start methods that count for a loader.

    ``known`` says that just one can be meant; ``source`` where that comes from, in words. ``forks`` says that the project's own files make it run where
    fork is the default: what hurts under the others only is worth knowing, and no more.
    """

    counted: frozenset[str]
    known: bool
    source: str
    forks: bool = False

    @property
    def pickles(self) -> bool:
        """Whether the dataset is pickled under at least one counted method."""
        return bool(self.counted & {"spawn", "forkserver"})

    @property
    def only_pickles(self) -> bool:
        """Whether the dataset is pickled under every counted method."""
        return "fork" not in self.counted


ALL = StartMethods(frozenset(METHODS), known=False, source="")
FORKS = StartMethods(frozenset(METHODS), known=False, source="", forks=True)
PORTABLE = "spawn (macOS, Windows) and forkserver (Python 3.14+)"


def start_methods(loaders: Loaders, loader: Loader, frame: Frame) -> StartMethods:
    """What counts for one loader: its own argument, the settings, ``set_start_method`` in the project, ``requires-python``."""
    own = [_named(alt) for alt in loaders.argument(loader, "multiprocessing_context", frame)]
    known = {m for m in own if m}
    if len(known) == 1 and None not in own:
        method = known.pop()
        return StartMethods(frozenset({str(method)}), known=True, source="`multiprocessing_context`")
    return methods_of(loaders.project, _chain(loader.module, frame))


def _chain(module: Module, frame: Frame) -> tuple[Module, ...]:
    """The loader's module and those whose calls lead to it: where ``set_start_method`` would be heard."""
    found = [module]
    queue = [frame]
    while queue:
        here = queue.pop()
        if here.module not in found:
            found.append(here.module)
        queue.extend(layer.frame for layer in here.bound or ())
        if here.this is not None and here.this.at is not None:
            queue.append(here.this.at)
    return tuple(found)


def _named(alt: Alternative) -> str | None:
    if isinstance(alt.value, Const):
        return alt.value.value if isinstance(alt.value.value, str) and alt.value.value in METHODS else None
    if isinstance(alt.value, ExternalCall) and alt.value.name.endswith("get_context") and alt.value.call.args:
        key = alt.value.frame.module.code(alt.value.call.args[0].value).strip("\"' ")
        return key if key in METHODS else None
    return None


def methods_of(project: Project, modules: tuple[Module, ...]) -> StartMethods:
    """What counts where these modules run: the settings, what they say themselves, ``requires-python``."""
    setting = project.settings.start_method
    if setting != "auto":
        return StartMethods(frozenset({setting}), known=True, source="the setting `start-method`")
    said = _said(project, modules)
    if len(said) == 1:
        return StartMethods(frozenset(said), known=True, source="`set_start_method`")
    if _needs_314(project.settings.requires_python):
        return StartMethods(frozenset({"forkserver", "spawn"}), known=True, source="`requires-python`")
    return FORKS if _forks(project, modules) else ALL


def _forks(project: Project, modules: tuple[Module, ...]) -> bool:
    """Whether the project starts itself on Linux, by shell scripts or in containers, under a Python that forks there."""
    runs_on_linux = any(beside(path) in {Beside.SHELL, Beside.DOCKER, Beside.COMPOSE} for path in project.launch_files())
    return runs_on_linux and bool(modules) and project.shared(TorchVersions).forks(modules[0])


def _said(project: Project, modules: tuple[Module, ...]) -> set[str]:
    evaluator = evaluator_of(project)
    found: set[str] = set()
    for module in modules:
        if "set_start_method" not in module.source.text:
            continue
        for call, scope in module.walk.calls:
            if names.last_name(call.func) == "set_start_method" and call.args:
                for alt in evaluator.plainly(call.args[0].value, module, scope):
                    if isinstance(alt.const, str) and alt.const in METHODS:
                        found.add(alt.const)
    return found


def _needs_314(requires: str | None) -> bool:
    if not requires:
        return False
    floor = re.search(r"(?:>=|~=|==|>)\s*3\.(\d+)", requires)
    return floor is not None and int(floor.group(1)) >= 14  # noqa: PLR2004 - Python 3.14 made forkserver the default on Linux
