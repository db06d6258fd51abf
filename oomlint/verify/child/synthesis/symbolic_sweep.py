"""Values that nobody knows, until the code asks what they are: then they are swept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

from oomlint.verify.child.loading.stubs import Entered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_WORKERS: Final = re.compile(r"(?<!persistent_)(?<!persist_)worker|num_proc|n_jobs|cpus|threads|nproc", re.IGNORECASE)
_BATCH: Final = re.compile(r"batch|\bbs\b|_bs$", re.IGNORECASE)
COUNTS: Final = [2, 0]  # numbers of workers that are tried
_SEED: Final = re.compile(r"seed", re.IGNORECASE)
_ROWS: Final = re.compile(r"(label|target|class|weight|length|size|ind(ice|exe)|idx)e?s$|(?<![a-z])(y|ys|idx)$", re.IGNORECASE)  # a value for each sample
_AMOUNT: Final = re.compile(r"^(n|num|nb|max|min|total)_|^(n|num|nb)(?=[A-Z])", re.IGNORECASE)
SAMPLES: Final = 26  # of the stand-in dataset; no multiple of the batch size: the last batch is smaller


class Need(BaseException):  # not an Exception: a handler of the user's must not swallow it
    """The code asks for a value; ``domain`` is what it could be."""

    def __init__(self, text: str, domain: list[Any]) -> None:
        super().__init__(text)
        self.text = text
        self.domain = domain


class Opaque(Entered):
    """An unknown value, with the expression that it is read by. What is known of its parts is in ``known``, by expression."""

    def __init__(self, text: str, known: dict[str, Any]) -> None:
        self.__dict__["_text"] = text
        self.__dict__["_known"] = known

    def _part(self, text: str) -> Any:
        return self._known[text] if text in self._known else Opaque(text, self._known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        known = rows(self._text)
        if known and hasattr(known[0], name):
            self._need(known)
        return self._part(f"{self._text}.{name}")

    def __setattr__(self, name: str, value: object) -> None:
        self._known[f"{self._text}.{name}"] = value

    def __getitem__(self, key: object) -> Any:
        return self._part(f"{self._text}[{key!r}]")

    def __setitem__(self, key: object, value: object) -> None:
        self._known[f"{self._text}[{key!r}]"] = value

    def __call__(self, *args: object, **keywords: object) -> Any:  # noqa: D102 -- what a call gives is as unknown as what is called
        shown = [repr(item) for item in args] + [f"{name}={item!r}" for name, item in keywords.items()]
        return self._part(f"{self._text}({', '.join(shown)})")

    def _need(self, domain: list[Any]) -> NoReturn:
        raise Need(self._text, domain)

    def _number(self, *others: object) -> NoReturn:
        self._need(numbers(self._text, *others))

    def __bool__(self) -> bool:  # noqa: PLE0304 -- it never returns
        if _WORKERS.search(self._tail()) or _BATCH.search(self._tail()):
            self._number()
        self._need([False, True])

    def _tail(self) -> str:
        return str(self._text).rpartition(".")[2]

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        if isinstance(other, (bool, type(None))):
            self._need([other, not other])
        if isinstance(other, str):
            self._need([other, f"not {other}"])
        if isinstance(other, (int, float)):
            self._number(other)
        return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._text)

    def __lt__(self, other: object) -> bool:
        self._number(other)

    __le__ = __gt__ = __ge__ = __lt__

    def __array__(self, *_: object, **__: object) -> Any:
        self._need(rows(self._text) or numbers(self._text))

    def __int__(self) -> int:
        self._number()

    __index__ = __abs__ = __neg__ = __round__ = __int__

    def __len__(self) -> int:  # noqa: PLE0303 -- it never returns
        self._need(rows(self._text) or numbers(self._text))

    def __float__(self) -> float:
        self._number()

    def __add__(self, other: object) -> Any:
        if isinstance(other, (int, float)):
            self._number()
        return Opaque(f"({self._text} and more)", self._known)

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __or__ = __add__

    def __iter__(self) -> Iterator[Any]:
        return iter([self._part(f"{self._text}[0]"), self._part(f"{self._text}[1]")])

    def __contains__(self, item: object) -> bool:
        key = f"{item!r} in {self._text}"
        if key in self._known:
            return bool(self._known[key])
        raise Need(key, [False, True])

    def keys(self) -> list[str]:
        """Unpacked as keywords, it has none that are not known."""
        prefix = f"{self._text}['"
        return [text[len(prefix) : -2] for text in self._known if text.startswith(prefix) and text.endswith("']")]

    def __fspath__(self) -> str:
        return "unknown"

    def __repr__(self) -> str:
        return str(self._text)


def swept(values: Iterable[Mapping[str, Any]], run: Callable[[dict[str, Any]], Any]) -> Iterator[tuple[dict[str, Any], Any]]:
    """Each configuration and what ``run`` gives of it, with all that a value can be once it is asked for; None where one cannot be settled."""
    waiting = [dict(known) for known in values]
    while waiting:
        known = waiting.pop(0)
        try:
            found = run(known)
        except Need as need:
            if need.text not in known:
                waiting[:0] = [known | {need.text: value} for value in need.domain]
                continue
            found = None
        yield known, found


def numbers(text: str, *others: object) -> list[Any]:
    """What an unknown number could be, by the name that it has."""
    tail = text.rpartition(".")[2]
    if _WORKERS.search(tail):
        return list(COUNTS)
    if _BATCH.search(tail):
        return [4]
    if _SEED.search(tail):
        return [0]
    bounds = [item for item in others if isinstance(item, (int, float)) and not isinstance(item, bool)]
    return [bounds[0], bounds[0] + 1, bounds[0] - 1] if bounds else [2]


def rows(text: str) -> list[Any]:
    """What an unknown list could be, by its name: a small whole number for each sample."""
    tail = text.rpartition(".")[2]
    if not _ROWS.search(tail) or _AMOUNT.search(tail):
        return []
    import numpy as np  # noqa: PLC0415 -- it may be absent

    return [np.arange(SAMPLES) % 3]


def text_of(value: object) -> str:
    """The expression of an unknown value, empty for any other."""
    return str(value._text) if isinstance(value, Opaque) else ""  # noqa: SLF001 -- its own class, whose attributes are all the user's


def myself(cls: type, name: str, known: dict[str, Any]) -> Any:
    """An instance of the user's class that was never initialised: its methods run, its attributes are unknown."""

    def attribute(self: object, attr: str) -> Any:
        del self
        if attr.startswith("__") and attr.endswith("__"):
            raise AttributeError(attr)
        return Opaque(name, known)._part(f"{name}.{attr}")  # noqa: SLF001 -- as above

    def put(self: object, attr: str, value: object) -> None:
        del self
        known[f"{name}.{attr}"] = value

    body: dict[str, Callable[..., Any]] = {"__getattr__": attribute, "__setattr__": put}
    try:
        made: Any = type(cls.__name__, (cls,), body)
        return made.__new__(made)
    except Exception:  # noqa: BLE001 -- a metaclass of the user's may refuse
        return Opaque(name, known)
