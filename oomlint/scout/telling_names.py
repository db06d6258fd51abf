"""Names that tell what something is: a loader, a step of training, a function that reads a file."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from oomlint.api_names import ALLOCATORS, DRAWS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

_MOST_NAMES: Final = 20_000  # that are remembered


class NamePattern:
    """A pattern that few names are asked for again and again: each is looked at once."""

    __slots__ = ("_known", "_pattern")

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._pattern = re.compile(pattern, flags)
        self._known: dict[str, re.Match[str] | None] = {}

    def search(self, name: str) -> re.Match[str] | None:
        """Where the pattern first fits; ``None`` where it does not."""
        try:
            return self._known[name]
        except KeyError:
            if len(self._known) > _MOST_NAMES:
                self._known.clear()
            found = self._known[name] = self._pattern.search(name)
            return found


# What a loader, or an iterator over one, is called; a number of loaders is none.
LOADER_NAME = NamePattern(
    r"^(?!(?:num|nb|n|max)_).*?(?:(^|_)(data_?)?loaders?\d*$|(^|_)dls?\d*$|dataloaders?\d*$|(^|_)loader(_\w+)?$|^(train|training|val|valid|validation|dev|test|eval|data|batch)_?(iter|iterator|gen|generator|batches|loader|queue|dl)\d*$"
    r"|^(batches|minibatches|mini_batches|batch_iterator|data_iterator|epoch_iterator|epoch_itr|eval_dataloader)$|[a-z]Loader$|[a-z]DataLoader$|[a-z]_loader_)",
)
# Calls in the body of a loop that trains.
_STEP_NAME = re.compile(r"^(backward|step|manual_backward)$|(?<!pre)train|pretrain(?!ed)|_step|optimi|update|(^|_)fit|^learn", re.IGNORECASE)
_TABLE = re.compile(
    r"hash|md5|sha\d*$|dict|kwargs|config|cfg|meta|params$|args_?$|opts?$|info|p?bar$|progress|tqdm|env(iron)?$|cache|context|ctx|items$|attrs$", re.IGNORECASE
)
# Names of torch in functions that run a model, and in the rounds of a loop that does.
MODES: Final = frozenset({"no_grad", "inference_mode", "set_grad_enabled"})
SWITCHES_OFF: Final = frozenset({"no_grad", "inference_mode"})  # as a decorator: of a method of a module, too, which then is no part of a forward pass
MOVES: Final = frozenset({"cuda", "cpu", "to", "detach"})  # what a round does that runs a model: its data goes to the device, or what comes is brought back
READY: Final = frozenset({"eval", "load_state_dict"})  # what makes a model ready for an evaluation
DRIVES: Final = frozenset({"eval", "backward"})  # what a method does that goes through batches itself, also one of a module: `forward` does neither
ADDS: Final = frozenset({"append", "extend"})
FIGURES: Final = frozenset({"figure", "subplots", "subplot_mosaic"})  # make one
# Methods that are run by others, or for each sample: not looked at by themselves.
NO_ROOTS: Final = frozenset({"forward", "__getitem__", "__init__", "__len__"})
_WORD = re.compile(r"[^\W\d]\w*")
STATES: Final = frozenset("zeros ones empty full rand randn tensor eye arange".split())  # functions of torch that make a tensor which a module may keep
# Methods that change a tensor in place, and give it back.
IN_PLACE: Final = frozenset(
    "add_ sub_ mul_ div_ copy_ lerp_ addcmul_ addcdiv_ zero_ fill_ clamp_ pow_ sqrt_ index_copy_ index_add_ index_fill_ scatter_ scatter_add_ masked_fill_ "
    "masked_scatter_ baddbmm_ addmm_ maximum_ minimum_ neg_ exp_ log_".split()
)
PAIRS: Final = frozenset({"cdist", "squareform"})  # a number for each pair of rows
# Calls that make an array or a tensor of a given shape.
MAKERS: Final = ALLOCATORS | DRAWS | PAIRS
FLOATS: Final = frozenset({"float", "half"})  # methods that convert a tensor
FLOAT_TENSORS: Final = frozenset({"FloatTensor", "HalfTensor"})
DENSE: Final = frozenset({"toarray", "todense", "to_dense"})  # methods that make a sparse matrix dense
MAPS: Final = frozenset({"map", "imap", "imap_unordered", "starmap", "thread_map", "process_map"})  # call a function for each element
ELEMENTWISE: Final = MAPS | frozenset("apply applymap progress_apply progress_map parallel_apply".split())  # and those of a table of pandas
BUILDERS: Final = frozenset({"__init__", "setup"})  # where a model makes what it keeps
LARGE_NUMBER: Final = 10_000  # no array is large without a dimension above
_DATA_CLASS = re.compile(r"Datasets?\d*$|DataModule$|Data$|DataPipe$|Dataset[A-Z]\w*$")
_WORKER_WORD = re.compile(
    r"(?<!net)(?<!frame)work(?!_?dir|space|flow)|thread(?!ing$|_?safe|_?id)|(?<!pre)(?<!pre_)(?<!post)(?<!post_)proc(?!essors?$|essing|ess_group|ess_fn)|jobs|persist|prefetch|timeout|cpus|^nw$"
    r"|multiprocessing_context",
)


class Words(Struct, frozen=True):
    """Names in a text that speak of loaders, and of steps of a training loop."""

    loaders: frozenset[str]
    steps: frozenset[str]


def is_no_root(name: str, *, method: bool) -> bool:
    """Whether a function is run by others, or for each sample: it is not looked at by itself."""
    return name == "collate_fn" or (method and name in NO_ROOTS)


@lru_cache(maxsize=1 << 10)  # the rules ask for those of a file that the scout has looked at
def words_of(text: str) -> Words:
    """The telling names of a text, wherever they stand."""
    found = {word: _tells(word) for word in set(_WORD.findall(text))}
    return Words(frozenset(word for word, tells in found.items() if tells[0]), frozenset(word for word, tells in found.items() if tells[1]))


@lru_cache(maxsize=1 << 16)
def _tells(word: str) -> tuple[bool, bool]:
    """Whether a name speaks of a loader, and whether of a step. Files share most of their words."""
    return "oader" in word or LOADER_NAME.search(word) is not None, _STEP_NAME.search(word) is not None


def is_table(word: str) -> bool:
    """Whether what has an ``update`` is a dictionary, a hash or a progress bar by its name."""
    return _TABLE.search(word) is not None


def is_worker_word(keyword: str) -> bool:
    """Whether the name of a keyword may speak of worker processes."""
    return _WORKER_WORD.search(keyword) is not None


def makes_data(name: str) -> bool:
    """Whether a call makes a dataset, by the name of what is called."""
    return _DATA_CLASS.search(name) is not None or name in {"random_split", "Subset"}


def is_data_class(bases: Iterable[str], members: AbstractSet[str]) -> bool:
    """Whether a class is a dataset or a data module, by the names of its bases and members."""
    return any(makes_data(base) for base in bases) or "__getitem__" in members or {"setup", "train_dataloader"} <= members
