"""Which files are worth a full parse: trigger words in the text, then one look over ``ast``.

The scout only ever says "cannot have a finding". It must let through whatever a rule could start from; which values are
behind the names is none of its business.
"""

from __future__ import annotations

from msgspec import Struct

from oomlint.ast_trees import tree_of
from oomlint.patterns import pattern
from oomlint.scout.look import DRAWS, READS, Look
from oomlint.scout.telling_names import words_of
from oomlint.scout.unparsable import is_mistake_for_ever, mistake_of

# Words without which no rule of the family has anything to say.
_WORDS = pattern(
    r"num_workers|[Ll]oader|persistent_workers|prefetch_factor|TrainingArguments|SFTConfig|GRPOConfig|DPOConfig|worker|itertools|\bcycle\b",
)
_TORCH_WORD = pattern(r"torch|lightning|transformers|accelerate|monai|timm|fairseq|\bdgl\b|(?:\A|[\r\n])\s*from \.")
# What a text has to say before it can open a file that a rule knows, or read one.
_FILE_WORD = pattern(
    r"h5py|h5pickle|zarr|netCDF4|\btables\b|lmdb|mmap|rasterio|xarray|\bPIL\b|tarfile|\b(load|read_\w+|load_\w+|unpickle\w*|File|Dataset|"
    + "|".join(sorted(READS))
    + r")\s*\(",
)
_ROOM_WORD = pattern(r"\b(zeros|ones|empty|full|toarray|todense|to_dense|astype)\s*\(")
# What most files have in their first rows comes first: a text that does not have a word is gone through to its end.
_ANY_OF = (_TORCH_WORD, _WORDS, _FILE_WORD, _ROOM_WORD, DRAWS)


class Triage(Struct, frozen=True):
    """What the scout says of a file: whether to parse it, or why it is not Python."""

    parse: bool
    error: tuple[int, int, str] | None = None  # row, column, cause
    readers: tuple[str, ...] = ()  # functions of others that it calls, with their modules: to be parsed only if one of them reads a file


def triage(text: str, *, notebook: bool = False) -> Triage:
    """Look at the text of a program."""
    if not any(word.search(text) for word in _ANY_OF) and not words_of(text).loaders:
        return Triage(parse=False)
    try:
        tree = tree_of(text)
    except SyntaxError as error:
        if is_mistake_for_ever(error):
            return Triage(parse=False, error=mistake_of(error))
        return Triage(parse=True)  # the program may be newer than the interpreter: libcst says
    except (RecursionError, MemoryError):
        return Triage(parse=False, error=(1, 1, "nested too deeply to be parsed"))
    except ValueError as error:
        return Triage(parse=False, error=(1, 1, f"not valid Python: {error}"))
    try:
        look = Look(text, notebook=notebook)
        parse = look.over(tree)
        return Triage(parse, readers=() if parse else look.others.told())
    except RecursionError:
        return Triage(parse=False, error=(1, 1, "nested too deeply to be checked"))
