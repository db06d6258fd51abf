"""What else is held: what grows, caches, buffers, peaks, checkpoints. The rules know where; their facts say how much."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.budget.nouns import RUNNING, Certainty, Holdings, Moment
from oomlint.budget.sizes import Factor, Name, SizeProduct
from oomlint.finding import AllocationFact, Consequence, LoopFact, LoopKind, Multiplier, ReadFact, Resource, StoreFact, is_inside
from oomlint.memory.arrays.torch_load import loaded
from oomlint.memory.ranks.checkpoints import LOADS
from oomlint.memory.shared.qualified_names import library_name
from oomlint.model import arguments, names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from oomlint.budget.growing import Growing
    from oomlint.budget.headers import DataFile
    from oomlint.budget.nouns import Container, Program
    from oomlint.budget.phases import Phases
    from oomlint.finding import ByteSize, Finding, Place
    from oomlint.model.project import Module, Project

_EVALUATION: Final = frozenset({"OOM204", "OOM219"})
_GROWS: Final = frozenset(
    {"OOM201", "OOM202", "OOM203", "OOM204", "OOM205", "OOM206", "OOM207", "OOM211", "OOM213", "OOM217", "OOM219", "OOM221", "OOM222", "OOM223"}
)
_CACHE, _SHUFFLE = "OOM214", "OOM116"
_EPOCHS: Final = frozenset({"OOM130", "OOM131"})
_PEAKS: Final = {
    "OOM401": "the pieces, beside the array that is made of them",
    "OOM403": "the array in a wider type, until it is converted",
    "OOM404": "a copy beside the original",
    "OOM409": "the dense form of a sparse matrix",
    "OOM410": "the matrix of all pairs",
    "OOM209": "the array, beside the one that is a round longer",
}
CODES: Final = tuple(sorted({*_GROWS, _CACHE, _SHUFFLE, *_EPOCHS, *_PEAKS}))
_LONGEST: Final = 24  # of an expression in a row
_PRODUCT: Final = re.compile(r"[^*]+(?: \* [^*]+)*")


def of_findings(found: Iterable[Finding], containers: Sequence[Container], growing: Growing, phases: Phases, program: Program) -> Iterator[Holdings]:
    """What findings say is held. What several say of one statement that stores is counted once."""
    counted: set[tuple[Place, str]] = set()
    for item in found:
        stores = {(fact.place, fact.container) for fact in item.of_noun(StoreFact)} if item.code in _GROWS else set()
        held = _of_finding(item, containers, growing, phases, program) if not stores or stores - counted else None
        if held is not None:
            counted |= stores
            yield held
            if item.code in _EVALUATION and (joined := _joined(item)) is not None:
                yield replace(held, what=f"{held.what.split(' grows')[0]}, once more where it is joined", place=joined)


def _joined(item: Finding) -> Place | None:
    """Where what a loop has kept becomes one array: the place behind the loop that the finding tells."""
    loop = next(iter(item.of_noun(LoopFact)), None)
    behind = (place for place in item.related if loop is not None and place.path == loop.place.path and place.row > loop.place.end_row)
    return next(behind, None)


def _of_finding(item: Finding, containers: Sequence[Container], growing: Growing, phases: Phases, program: Program) -> Holdings | None:
    code, place = item.code or "", item.place
    if code in _GROWS:
        if item.weight is None or item.weight.consequence is Consequence.ONCE or (code == "OOM204" and item.weight.consequence is not Consequence.GROWS):
            return None  # a peak of each step, on whatever device the model is
        stores = item.of_noun(StoreFact)
        what = f"`{stores[0].container}`" if stores and stores[0].container else f"what {_spot(place)} keeps"
        loops = item.of_noun(LoopFact)
        often = _often(item, loops, phases)
        moment = Moment.EVALUATION if code in _EVALUATION else Moment.TRAINING
        container = stores[0].container if stores and stores[0].container else _spot(place)
        size, certainty = _size(_known(item), Name(f"{container} a {often.text.partition(' ')[0][:-1]}"))
        graph = item.weight.of is Resource.GRAPH
        counts = growing.often(stores[0].place, program) if stores else None
        return Holdings(f"{what} grows with the {often}", size.times(*(counts or (often,))), certainty, place, frozenset({moment}), with_model=graph)
    if code == _CACHE:
        size, certainty = _size(_known(item), Name(f"cache at {_spot(place)}"))
        filled = growing.filled(place) if size.value is None else None
        # Between entries that stay, the allocator comes to hold what was freed: three to eight times as much was measured without workers.
        size, certainty = (filled, Certainty.AT_MOST) if filled is not None else (size, Certainty.AT_LEAST)
        return Holdings("a cache of what is read", size, certainty, place, RUNNING - {Moment.START}, in_workers=True)
    if code == _SHUFFLE:
        count = next((one.count for one in item.weight.factors if one.by is Multiplier.SAMPLES), None) if item.weight is not None else None
        size, certainty = _size(_known(item), Name("sample"))
        return Holdings(
            "a shuffle buffer of decoded samples", size.times(count or Name("shuffle buffer")), certainty, place, RUNNING - {Moment.START}, in_workers=True
        )
    if code in _EPOCHS:
        return Holdings("all batches of an epoch", SizeProduct((Name("batches"), Name("batch"))), Certainty.EXACT, place, frozenset({Moment.TRAINING}))
    kept = next((one for one in containers if one.place is not None and is_inside(place, one.place)), None)
    if kept is not None and code in {"OOM401", "OOM404"}:
        return Holdings(f"{_PEAKS[code]} (`{kept.name}`)", kept.size, kept.certainty, place, frozenset({Moment.CONSTRUCTION}))
    size, certainty = _size(_known(item), Name(f"bytes at {_spot(place)}"))
    joined = any(one.kind is LoopKind.BATCH for one in item.of_noun(LoopFact))  # what the steps of an evaluation have left
    moment = phases.at(place) or (Moment.EVALUATION if joined else Moment.CONSTRUCTION)
    return Holdings(_PEAKS[code], size, certainty, place, frozenset({moment}))


def _often(item: Finding, loops: Sequence[LoopFact], phases: Phases) -> Name:
    """How often a loop stores what grows: epochs, steps of a loop over batches, or rounds of another loop, which has a number of its own."""
    if (loops and loops[0].kind is LoopKind.EPOCH) or _by(item, Multiplier.EPOCHS):
        return Name("epochs")
    if loops and loops[0].kind is LoopKind.ROUND and phases.at(loops[0].place) is None and phases.at(item.place) is None:
        return Name(f"rounds of {_spot(loops[0].place)}")
    return Name("steps")


def _known(item: Finding) -> ByteSize | None:
    sizes = [fact.bytes for fact in item.facts if isinstance(fact, AllocationFact | ReadFact)]
    if item.weight is not None:
        sizes.insert(0, item.weight.bytes)
    return next((one for one in sizes if one.known is not None or one.formula), None)


def _size(known: ByteSize | None, name: Name) -> tuple[SizeProduct, Certainty]:
    """Bytes by a fact: the number, else the formula, else the least."""
    if known is None:
        return SizeProduct((name,)), Certainty.EXACT
    if known.exact is not None:
        return SizeProduct((known.exact,)), Certainty.EXACT
    if known.formula and _PRODUCT.fullmatch(known.formula):
        parts = tuple(_factor(part.strip().removesuffix(" B").strip()) for part in known.formula.split(" * "))
        return SizeProduct(parts), Certainty.EXACT
    return (SizeProduct((known.least,)), Certainty.AT_LEAST) if known.least is not None else (SizeProduct((name,)), Certainty.EXACT)


def _factor(text: str) -> Factor:
    return int(text) if text.isdigit() and len(text) < 19 else Name(text)  # noqa: PLR2004 - digits that 64 bits hold


def _by(item: Finding, wanted: Multiplier) -> bool:
    return item.weight is not None and any(one.by is wanted for one in item.weight.factors)


def _spot(place: Place) -> str:
    return f"{os.path.basename(place.path)}:{place.row}"


def checkpoints(modules: Iterable[Module], project: Project, files: Sequence[DataFile]) -> Iterator[Holdings]:
    """Checkpoints that are read into host memory before a model takes them over."""
    for module in modules:
        if b"load" not in module.source.data:
            continue
        for call, scope in module.walk.calls:
            if names.last_name(call.func) != "load" or not call.args or library_name(project, call.func, module, scope) not in LOADS:
                continue
            mapped = arguments.has(call, "mmap")
            if mapped or not loaded(module, scope, call).checkpoint:
                continue
            place = module.place(call)
            written = " ".join(module.code(call.args[0].value).split())
            known = [one for one in files if one.format == "pt" and one.held is not None]
            size = SizeProduct((known[0].held or 0,)) if len(known) == 1 else SizeProduct((Name("checkpoint"),))
            shown = written if len(written) <= _LONGEST else written[: _LONGEST - 3] + "..."
            yield Holdings(f"the checkpoint `{shown}`, until the model has it", size, Certainty.EXACT, place, frozenset({Moment.CHECKPOINT}))


def one_at_a_time(found: Sequence[Holdings]) -> tuple[Holdings, ...]:
    """A row for all checkpoints: a program has one of them in its hands at a time."""
    if len(found) < 2:  # noqa: PLR2004 - nothing to choose from
        return tuple(found)
    return (replace(found[0], what=f"{found[0].what}; {len(found) - 1} more, one at a time"),)
