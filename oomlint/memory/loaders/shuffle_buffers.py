"""Streams of samples that are shuffled in a buffer after they are decoded: each worker process fills a buffer of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec import Struct

from oomlint.memory.facts import loader_fact
from oomlint.memory.loaders.loader_calls import evaluator_of, is_positive, loaders_of
from oomlint.memory.loaders.own_buffers import filled
from oomlint.model import arguments
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import Const, Display, External, ExternalCall, FunctionRef, Instance, SourceExpression
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Fact, Place
    from oomlint.memory.loaders.loader_calls import Loader, LoaderUse
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Alternative, Frame, Value

_LIBRARY: Final = "webdataset."
MANY: Final = 1000  # decoded samples in one buffer
_PICTURES: Final = frozenset("jpg jpeg png ppm pgm pbm pnm img image".split())  # keys that the image handlers decode (webdataset 1.0.2), and `jpg;png`
_HANDLERS: Final = frozenset({"imagehandler", "torch_video", "torch_audio"})
_TAKES_OUT: Final = frozenset({"to_tuple", "extract_keys"})
# What keeps the samples as large as they are, as far as anybody can tell: a function that is applied to a picture makes another one of it.
_SAME: Final = frozenset(
    "decode map map_dict map_tuple select rename rename_keys slice with_epoch with_length repeat batched unbatched listed unlisted log_keys".split()
)
_DEEPEST: Final = 24  # stages


class StreamStage(Struct, frozen=True):
    """One step of a stream: what is called, and with which arguments."""

    name: str
    call: cst.Call
    frame: Frame

    def place(self, message: str = "") -> Place:
        """Where it stands, without the chain before it."""
        call = self.call
        return self.frame.module.place(call.func.attr if isinstance(call.func, cst.Attribute) else call, message)


class ShuffledLoader(Struct, frozen=True):
    """A loader with workers over a stream that shuffles decoded samples."""

    loader: Loader
    size: int  # samples in one buffer
    workers: Alternative | None  # None where nobody knows their number
    given: Alternative  # the size of the buffer
    related: tuple[Place, ...]
    facts: tuple[Fact, ...]


def shuffled(module: Module, project: Project) -> Iterator[ShuffledLoader]:
    """Loaders of the module whose workers shuffle decoded samples, each with its largest buffer."""
    loaders = loaders_of(project)
    for loader in loaders.of(module) if not holds_tests(module) else ():
        found = [case for use in loaders.uses(loader) for case in _of_use(use, project)]
        if found:
            yield max(found, key=lambda case: (case.workers is not None, case.size))


def _of_use(use: LoaderUse, project: Project) -> Iterator[ShuffledLoader]:
    loaders = loaders_of(project)
    counts = loaders.workers(use.loader, use.frame)
    known = [alt for alt in counts if is_positive(alt.value) and alt.under(use.picks) is not None]
    workers = min(known, key=lambda alt: alt.reach, default=None)
    if workers is None and (all(isinstance(alt.value, Const) for alt in counts) or any(alt.const == 0 for alt in counts)):
        return  # one process, and one buffer, as far as anybody can tell
    for dataset in loaders.argument(use.loader, "dataset", use.frame):
        for buffer in filled(dataset.value, project) if isinstance(dataset.value, Instance) else ():
            if isinstance(buffer.given.const, int) and buffer.given.const >= MANY:
                facts = (loader_fact(use.loader, [workers] if workers is not None else []),)
                yield ShuffledLoader(use.loader, buffer.given.const, workers, buffer.given, (buffer.fills,), facts)
        decoded: StreamStage | None = None
        for stage in _stages(dataset.value, project):
            if stage.name == "decode" and _makes_pictures(stage, project):
                decoded = stage
            elif stage.name == "shuffle" and decoded is not None:
                given = _size(stage, project)
                if given is not None and isinstance(given.const, int) and given.const >= MANY:
                    places = (stage.place("this fills the buffer"), decoded.place("with samples that are decoded here"))
                    facts = (loader_fact(use.loader, [workers] if workers is not None else []),)
                    yield ShuffledLoader(use.loader, given.const, workers, given, places, facts)
            elif (stage.name == "map" and _leaves_out(stage, project)) or (
                stage.name not in _SAME and (stage.name not in _TAKES_OUT or not _keeps_pictures(stage, project))
            ):
                decoded = None  # they are gone, or nobody knows what it gives


def _stages(value: Value, project: Project, deepest: int = _DEEPEST) -> list[StreamStage]:
    """The steps of a stream of webdataset, in their order; empty for anything else."""
    evaluator = evaluator_of(project)
    if isinstance(value, ExternalCall) and value.name == f"{_LIBRARY}DataPipeline":
        return [stage for arg in value.call.args for stage in _listed(arg, value.frame, project)]
    if isinstance(value, ExternalCall) and value.name == f"{_LIBRARY}WebDataset":
        return [StreamStage("WebDataset", value.call, value.frame)]
    if not isinstance(value, SourceExpression) or not isinstance(value.node, cst.Call) or deepest == 0:
        return []
    func = value.node.func
    if not isinstance(func, cst.Attribute):
        return []
    before = max((_stages(alt.value, project, deepest - 1) for alt in evaluator.values(func.value, value.frame)[:4]), key=len, default=[])
    return [*before, StreamStage(func.attr.value, value.node, value.frame)] if before else []


def _listed(arg: cst.Arg, frame: Frame, project: Project) -> Iterator[StreamStage]:
    """The steps that an argument of `DataPipeline` gives: one, or a list of them that nobody adds to."""
    for alt in evaluator_of(project).values(arg.value, frame)[:1]:
        value = alt.value
        if isinstance(value, Display) and isinstance(value.node, cst.List | cst.Tuple):
            for element in value.node.elements:
                yield from _listed(cst.Arg(element.value), value.frame, project)
        elif isinstance(value, ExternalCall) and value.name.startswith(_LIBRARY):
            yield StreamStage(value.name.rpartition(".")[2], value.call, value.frame)
        else:
            yield StreamStage("", cst.Call(arg.value), frame)


def _makes_pictures(stage: StreamStage, project: Project) -> bool:
    """Whether a stage decodes pictures or videos: without an argument, `decode` leaves them as they are."""
    for arg in stage.call.args:
        for alt in evaluator_of(project).values(arg.value, stage.frame)[:2] if arg.keyword is None and not arg.star else ():
            value = alt.value
            if isinstance(value, Const) and isinstance(value.value, str):
                return True
            if isinstance(value, ExternalCall | External) and value.name.startswith(_LIBRARY) and value.name.rpartition(".")[2] in _HANDLERS:
                return True
    return False


def _keeps_pictures(stage: StreamStage, project: Project) -> bool:
    """Whether a picture is among the entries that a stage takes out of each sample."""
    for arg in stage.call.args:
        found = evaluator_of(project).values(arg.value, stage.frame)[:2] if arg.keyword is None else ()
        for alt in found:
            if not isinstance(alt.const, str) or any(key.rpartition(".")[2].lower() in _PICTURES for key in alt.const.replace(";", " ").split()):
                return True
    return False


def _leaves_out(stage: StreamStage, project: Project) -> bool:
    """Whether a function that is applied to each sample reads only entries of it that are no pictures."""
    for arg in stage.call.args[:1]:
        functions: list[cst.CSTNode] = [arg.value] if isinstance(arg.value, cst.Lambda) else []
        found = evaluator_of(project).values(arg.value, stage.frame)[:2] if not functions else []
        functions += [alt.value.scope.node for alt in found if isinstance(alt.value, FunctionRef)]
        return bool(functions) and len(functions) >= len(found) and all(_reads_no_picture(function) for function in functions)
    return False


def _reads_no_picture(function: cst.CSTNode) -> bool:
    if not isinstance(function, cst.FunctionDef | cst.Lambda) or len(function.params.params) != 1:
        return False
    sample = function.params.params[0].name.value
    uses = sum(isinstance(node, cst.Name) and node.value == sample for node in descend(function.body))
    keys = [
        _text(node.slice[0].slice.value)
        for node in descend(function.body)
        if isinstance(node, cst.Subscript)
        and isinstance(node.value, cst.Name)
        and node.value.value == sample
        and len(node.slice) == 1
        and isinstance(node.slice[0].slice, cst.Index)
    ]
    known = [key for key in keys if key is not None and not any(word.rpartition(".")[2].lower() in _PICTURES for word in key.replace(";", " ").split())]
    return bool(uses) and len(known) == uses


def _text(node: cst.BaseExpression) -> str | None:
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else None


def _size(stage: StreamStage, project: Project) -> Alternative | None:
    """The number of samples that a stage keeps."""
    given = arguments.argument_for(stage.call, "size", "bufsize", place=0)
    found = evaluator_of(project).values(given, stage.frame) if given is not None else []
    return max((alt for alt in found if is_positive(alt.value)), key=lambda alt: (not alt.reach, -alt.doubt), default=None)
