"""What rules on loops say that grows, read from what was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from oomlint.measurement import Quantity
from oomlint.verify.case import QuantityReading, Timeline
from oomlint.verify.thresholds import BENIGN, WARM_UP, Rate, amount, differences, rate, slope

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from oomlint.measurement import LoopPlan

    Answer = Mapping[str, Any]  # of loops:measure


class MetricKind(Enum):
    """How a column of a measurement is to be read."""

    DELTA = auto()  # differences from step to step
    LEVEL = auto()  # how many there are after each step
    EACH = auto()  # what one step takes; it counts where it is not 0
    SLOPE = auto()  # what one step takes; it counts where a step takes more than the one before
    REST = auto()  # differences from step to step; it counts what is there at the end of a step, against a program that frees it


class Ask(Enum):
    """What a quantity has to do with the symptom."""

    END = auto()  # it shows the symptom; a fix ends it
    EASE = auto()  # it shows the symptom; a fix makes it less
    ALSO = auto()  # it shows nothing by itself; it must not get more


@dataclass(frozen=True, slots=True)
class Signal:
    """A quantity of a measurement, and what it says."""

    column: str
    name: str
    unit: str
    kind: MetricKind = MetricKind.DELTA
    ask: Ask = Ask.END
    limit: float = 0.0


_SIGNALS: Final = {
    Quantity.NODES: Signal("nodes", "autograd nodes", "nodes"),
    Quantity.STORAGES: Signal("storages", "live tensors", "storages"),
    Quantity.TENSOR_BYTES: Signal("storage_bytes", "bytes of tensors", "bytes"),
    Quantity.PYTHON_BYTES: Signal("python_bytes", "bytes of Python objects", "bytes", limit=BENIGN),
    Quantity.ARRAY_BYTES: Signal("python_bytes", "bytes of arrays", "bytes", limit=BENIGN),
    Quantity.DEVICE_BYTES: Signal("device_bytes", "bytes on the device", "bytes"),
    Quantity.SAVED_BYTES: Signal("saved_bytes", "bytes saved for backward", "bytes", MetricKind.EACH),
    Quantity.COPIED_BYTES: Signal("copied_bytes", "copied bytes", "bytes", MetricKind.SLOPE),
    Quantity.LEFT_BYTES: Signal("storage_bytes", "bytes of tensors after a step", "bytes", MetricKind.REST),
    Quantity.LOADERS: Signal("loaders", "loaders built", "loaders", MetricKind.LEVEL),
    Quantity.PROCESSES: Signal("processes", "worker processes started", "processes", MetricKind.LEVEL),
    Quantity.ITERATORS: Signal("iterators", "passes begun", "passes", MetricKind.LEVEL),
    Quantity.DESCRIPTORS: Signal("descriptors", "open descriptors", "descriptors", MetricKind.LEVEL),
    Quantity.IDENTIFIERS: Signal("ids", "HDF5 identifiers", "identifiers", MetricKind.LEVEL),
}

_EPOCHS: Final = 2  # deltas to leave out, where the epochs are what is counted: an epoch is one delta then
_PART: Final = 0.9  # of what was kept: a part is less than that


@cache
def signals(plan: LoopPlan) -> tuple[Signal, ...]:
    """What a rule has declared to be looked at, what decides first."""
    asked = ((Ask.END, plan.ends), (Ask.EASE, plan.eases), (Ask.ALSO, plan.also))
    return tuple(replace(_SIGNALS[item], ask=ask) for ask, items in asked for item in items)


def columns(answer: Answer, plan: LoopPlan, signal: Signal) -> list[float]:
    """The values of one quantity; an epoch is one of them where epochs are counted. Empty where it was not measured."""
    deltas = answer.get("deltas") or {}
    values = [float(item) for item in (answer.get(signal.column) or deltas.get(signal.column) or ())]
    if plan.epochs > 1 and len(values) > plan.epochs and signal.kind is MetricKind.DELTA:
        size = len(values) // plan.epochs
        return [sum(values[start : start + size]) for start in range(0, size * plan.epochs, size)]
    return values


def measured(signal: Signal, before: list[float], after: list[float] | None = None, per: str = "step") -> Seen:
    """What comes of the values of a quantity."""
    rates: dict[MetricKind, Callable[[list[float]], Rate]] = {
        MetricKind.DELTA: lambda values: rate(values, _EPOCHS if per == "epoch" else WARM_UP),
        MetricKind.LEVEL: lambda values: rate(differences(values)),
        MetricKind.EACH: rate,
        MetricKind.SLOPE: slope,
        MetricKind.REST: lambda values: rate(list(accumulate(values))),
    }
    return Seen(signal, rates[signal.kind](before), None if after is None else rates[signal.kind](after), per)


@dataclass(frozen=True, slots=True)
class Seen:
    """How a quantity grows, before and after."""

    signal: Signal
    before: Rate
    after: Rate | None
    per: str = "step"

    @property
    def rates(self) -> list[float]:
        """Growth a step, of each part."""
        return [self.before.a_step, *([self.after.a_step] if self.after is not None else [])]

    @property
    def limit(self) -> float:
        """As much is no growth."""
        return self.after.a_step if self.after is not None and self.signal.kind is MetricKind.REST else self.signal.limit

    @property
    def shown(self) -> bool:
        """Whether it grows before the fix."""
        return self.before.enough and self.before.a_step > self.limit

    @property
    def shows(self) -> bool:
        """Whether it shows the symptom."""
        return self.signal.ask is not Ask.ALSO and self.shown

    @property
    def ended(self) -> bool:
        """Whether it does not grow after the fix."""
        return self.after is not None and self.after.enough and self.after.a_step <= self.limit

    @property
    def eased(self) -> bool:
        """Whether it grows less after the fix."""
        return self.after is not None and self.after.enough and self.after.a_step < self.before.a_step

    @property
    def fixed(self) -> bool:
        """Whether the fix did with it what it should."""
        if self.signal.ask is Ask.EASE and self.after is not None:
            return self.eased and self.after.a_step <= _PART * self.before.a_step
        return self.ended

    @property
    def worse(self) -> bool:
        """Whether it grows more after the fix."""
        return self.after is not None and self.after.enough and self.after.a_step > max(self.before.a_step, self.limit)

    @property
    def words(self) -> str:
        """For example: autograd nodes grow by 5 a step before, by 0 after."""
        signal, before, after = self.signal, self.before, self.after
        value = amount(before.a_step, signal.unit)
        then = "" if after is None else amount(after.a_step, signal.unit)
        match signal.kind:
            case MetricKind.EACH:
                return f"a step saves {value} for backward{f' before, {then} after' if then else ''}"
            case MetricKind.REST:
                return f"a step leaves {value} of tensors{f' before, {then} after' if then else ''}"
            case MetricKind.SLOPE:
                text = f"each step copies {value} more than the one before it" if before.a_step > 0 else "no step copies more than the one before it"
                return text if after is None else f"{text}; after the fix {f'{then} more' if after.a_step > 0 else 'no more'}"
            case _ if not before.enough:
                return f"too few steps to tell whether {signal.name} grow"
            case _:
                text = f"{signal.name} grow by {value} {'an' if self.per == 'epoch' else 'a'} {self.per}"
                return text if after is None else f"{text} before, by {then} after"


def seen(plan: LoopPlan, before: Answer, after: Answer | None) -> tuple[Seen, ...]:
    """All signals that were measured."""
    found = []
    for signal in signals(plan):
        old, new = columns(before, plan, signal), None if after is None else columns(after, plan, signal)
        if old and new != [] and (new is not None or signal.kind is not MetricKind.REST):
            found.append(measured(signal, old, new, "epoch" if plan.epochs > 1 else "step"))
    return tuple(found)


def readings(found: Sequence[Seen], under: str) -> tuple[QuantityReading, ...]:
    """What is reported, the one that decides first. Beside what shows the symptom, what stays at nothing is no evidence."""
    shown = any(item.shows for item in found)
    told = []
    for item in found:
        if not shown or item.shows or any(item.rates):
            name = item.signal.name if item.signal.kind is MetricKind.REST else f"{item.signal.name} a {item.per}"
            told.append(QuantityReading.of(name, item.signal.unit, item.rates, under))
    return tuple(told)


def timeline(plan: LoopPlan, item: Seen, before: Answer, after: Answer | None) -> Timeline:
    """How it adds up over the steps."""
    old = _curve(item.signal, columns(before, plan, item.signal))
    new = _curve(item.signal, columns(after, plan, item.signal)) if after is not None else ()
    return Timeline(item.signal.name, item.signal.unit, item.per, old, new)


def _curve(signal: Signal, values: Sequence[float]) -> tuple[tuple[float, float], ...]:
    heights = accumulate(values) if signal.kind in {MetricKind.DELTA, MetricKind.REST} else values
    return tuple((float(step), float(height)) for step, height in enumerate(heights, 1))
