"""What an expression holds in memory: the kinds, and what the parts of the classifier ask of each other.

The kinds follow what a forked worker was measured to copy (torch 2.13, CPython 3.8 to 3.13): Python objects carry reference counts
that every read writes, so their pages are copied; the payload of one array or tensor is not touched.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from oomlint.memory.shared.byte_size import Size

if TYPE_CHECKING:
    from collections.abc import Sequence

    import libcst as cst

    from oomlint.model.project import Module
    from oomlint.model.values import Instance


class PayloadKind(Enum):
    """How a worker process gets hold of it."""

    UNKNOWN = "something unknown"
    SCALAR = "a scalar"
    TEXT = "a string"  # one object: shared
    SMALL = "a small container"
    PATHS = "file names"
    OBJECTS = "Python objects"
    BLOB = "a loaded object"  # pickle.load, torch.load: whole in memory, of unknown make
    ARRAY = "a NumPy array"
    OBJECT_ARRAY = "a NumPy array of objects"
    ARRAYS = "a container of NumPy arrays"
    TENSOR = "a tensor"
    TENSORS = "a container of tensors"
    MEMMAP = "a memory-mapped array"
    FRAME = "a DataFrame"
    SHARED = "an Arrow table"
    HANDLE = "an open file"
    H5 = "an object of an open HDF5 file"
    LOCK = "a lock"
    GENERATOR = "a generator"
    FUNCTION = "a local function"
    DATASET = "another dataset"


class Form(Enum):
    """What it is beside its kind, where that tells what its parts are."""

    ANNOTATIONS = "all annotations of a data set"
    ARCHIVE = "an archive of arrays"
    CELL = "a value of a table"  # a string or a number: a Python object
    COLUMN = "a column of a table, or the names of all"
    DICT = "a dictionary"
    FIELD = "a field of a record"  # of a JSON file: the same, or a container of such
    LIST = "a list"
    NUMBERED_ROWS = "rows of a table, each behind its number"
    PICKLED = "objects of a pickle"
    RANGE = "numbers that are counted, and not kept"
    RECORDS = "what a parser makes of a text"
    ROW = "a row of a table"
    ROWS = "rows of a table"
    TENSORS = "tensors of a file"
    TEXT_OF_FILE = "the text of a file"
    TUPLE = "a tuple"
    WHOLE_HDF5 = "all of an array in an HDF5 file"


IN_MEMORY = frozenset(
    {
        PayloadKind.OBJECTS,
        PayloadKind.BLOB,
        PayloadKind.ARRAY,
        PayloadKind.OBJECT_ARRAY,
        PayloadKind.ARRAYS,
        PayloadKind.TENSOR,
        PayloadKind.TENSORS,
        PayloadKind.FRAME,
    }
)
PAYLOAD = frozenset({PayloadKind.ARRAY, PayloadKind.ARRAYS, PayloadKind.TENSOR, PayloadKind.TENSORS})  # what samples are made of
_GRAVITY = [
    PayloadKind.OBJECTS, PayloadKind.OBJECT_ARRAY, PayloadKind.TENSORS, PayloadKind.BLOB, PayloadKind.ARRAYS, PayloadKind.ARRAY, PayloadKind.TENSOR,
    PayloadKind.FRAME, PayloadKind.MEMMAP, PayloadKind.H5, PayloadKind.HANDLE, PayloadKind.LOCK, PayloadKind.GENERATOR, PayloadKind.FUNCTION,
    PayloadKind.PATHS, PayloadKind.SHARED, PayloadKind.DATASET, PayloadKind.TEXT, PayloadKind.SMALL, PayloadKind.SCALAR, PayloadKind.UNKNOWN,
]  # fmt: skip
DEEPEST = 8  # nested questions


class Content(Struct, frozen=True):
    """What is held, how it is called in a message, where it is made, how much of it."""

    kind: PayloadKind
    words: str
    module: Module | None = None
    node: cst.CSTNode | None = None
    element: Content | None = None
    count: int | None = None  # elements, at most
    size: Size = Size()
    doubt: int = 0
    dataset: Instance | None = None
    strings: bool = False  # elements proven to be strings
    numbers: bool = False  # elements proven to be numbers
    form: Form | None = None

    @property
    def gravity(self) -> int:
        """0 for what hurts most."""
        return _GRAVITY.index(self.kind)


ROW = Content(PayloadKind.SMALL, "a row of a table", form=Form.ROW)
CELL = Content(PayloadKind.TEXT, "a value of a table", form=Form.CELL)
FIELD = Content(PayloadKind.TEXT, "a field of a record", form=Form.FIELD)
NOTHING = Content(PayloadKind.UNKNOWN, "something unknown")


def whole_hdf5(module: Module, node: cst.CSTNode) -> Content:
    """All of an array in an HDF5 file."""
    return Content(PayloadKind.ARRAY, "an array read whole from HDF5", module, node, form=Form.WHOLE_HDF5)


def worst(found: Sequence[Content]) -> Content:
    """The gravest, with the fewest assumptions; what is unknown weighs nothing."""
    return min(found, key=lambda content: (content.gravity, content.doubt), default=NOTHING)
