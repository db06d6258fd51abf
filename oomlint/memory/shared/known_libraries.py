"""What the functions and classes of libraries return: data tables, and the few that need a closer look."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst
from msgspec.structs import replace

from oomlint.api_names import ALLOCATORS, AS_ARRAY, EMPTY_CONTAINERS, FACTS, H5_FILES, OF_ARRAYS, STACKS, TENSOR_TYPES
from oomlint.memory.shared.archives import loads_archive, maps_file
from oomlint.memory.shared.array_bytes import along_columns, known_size
from oomlint.memory.shared.byte_size import Size
from oomlint.memory.shared.computed import Computed, computed, is_computing
from oomlint.memory.shared.content_kinds import NOTHING, Content, Form, PayloadKind, whole_hdf5, worst
from oomlint.model import arguments, names
from oomlint.model.values import Const, External

if TYPE_CHECKING:
    from oomlint.memory.shared.content_classifier import Contents
    from oomlint.model.project import Module
    from oomlint.model.values import Element, ExternalCall, Frame


COCO_INDEX = "a COCO index of dicts"
COCO_DATASETS = ("torchvision.datasets.CocoDetection", "torchvision.datasets.CocoCaptions")  # each keeps such an index as `coco`
GENERATORS = frozenset({"numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.Generator"})
_FRAME_LOADERS = re.compile(r"^pandas\.(read_\w+|DataFrame|concat|merge)$|^(polars|dask\.dataframe)\.")
_NUMPY_MAKERS = frozenset(
    "array asarray zeros ones empty full arange linspace stack concatenate vstack hstack column_stack dstack fromfile loadtxt genfromtxt ascontiguousarray "
    "transpose reshape repeat tile random rand randn randint normal uniform choice permutation zeros_like ones_like empty_like full_like swapaxes moveaxis "
    "expand_dims squeeze pad where take clip abs log exp sqrt flip roll meshgrid load memmap frombuffer fromstring float32 float64 int64 uint8 nan_to_num "
    "standard_normal split array_split".split(),
)
_TORCH_MAKERS = frozenset(
    "tensor as_tensor from_numpy zeros ones empty full rand randn randint randperm arange linspace stack cat concat concatenate hstack vstack FloatTensor "
    "LongTensor IntTensor DoubleTensor BoolTensor ByteTensor Tensor zeros_like ones_like randn_like normal eye cartesian_prod meshgrid logspace".split(),
)


_PARSERS = (
    "json.load json.loads orjson.loads ujson.load ujson.loads simplejson.load jsonlines.open xmltodict.parse srsly.read_json toml.load "
    "builtins.eval ast.literal_eval"
)
_FORMS: dict[str, Form] = {
    "builtins.range": Form.RANGE,
    "pycocotools.coco.COCO": Form.ANNOTATIONS,
    "torch.load": Form.TENSORS,
    **dict.fromkeys("pickle.load _pickle.load dill.load joblib.load pickle.loads cloudpickle.load".split(), Form.PICKLED),
    **dict.fromkeys(_PARSERS.split(), Form.RECORDS),
}
# The kind, how it is called in a message, and whose result it is.
_RESULTS: dict[str, tuple[PayloadKind, str]] = {
    name: (kind, words)
    for kind, words, known in (
        (PayloadKind.OBJECTS, "what `{plain}` returns", _PARSERS),
        (
            PayloadKind.BLOB,
            "what `{name}` returns",
            "pickle.load cPickle.load _pickle.load dill.load joblib.load torch.load pickle.loads cloudpickle.load mmengine.load mmcv.load scipy.io.loadmat",
        ),
        (PayloadKind.OBJECTS, COCO_INDEX, "pycocotools.coco.COCO"),
        (
            PayloadKind.PATHS,
            "file names of `{name}`",
            "glob.glob glob.iglob os.listdir os.scandir os.walk os.path.join os.path.abspath os.path.basename pathlib.Path natsort.natsorted",
        ),
        (PayloadKind.H5, "an open `{name}`", " ".join(H5_FILES | {"z5py.File"})),
        (
            PayloadKind.HANDLE,
            "what `{plain}` opened",
            (
                "builtins.open io.open lmdb.open lmdb.Environment sqlite3.connect zipfile.ZipFile tarfile.open gzip.open cv2.VideoCapture boto3.client "
                "boto3.resource codecs.open decord.VideoReader bz2.open tarfile.TarFile mmap.mmap"
            ),
        ),
        (
            PayloadKind.LOCK,
            "a `{name}`",
            "threading.Lock threading.RLock threading.Thread threading.local threading.Event queue.Queue threading.Condition threading.Semaphore",
        ),
        (
            PayloadKind.ARRAY,
            "a decoded image",
            (
                "PIL.Image.open cv2.imread imageio.imread imageio.v2.imread imageio.v3.imread skimage.io.imread matplotlib.pyplot.imread tifffile.imread "
                "nibabel.load"
            ),
        ),
        (PayloadKind.MEMMAP, "a memory-mapped array", "numpy.memmap numpy.lib.format.open_memmap"),
        (PayloadKind.TENSOR, "a tensor", "torchvision.transforms.functional.to_tensor torchvision.transforms.functional.pil_to_tensor"),
        (PayloadKind.TENSORS, "tensors", "torch.split torch.unbind torch.chunk"),
        (PayloadKind.SMALL, "a range", "builtins.range"),
        (
            PayloadKind.SCALAR,
            "a number",
            "builtins.len builtins.sum builtins.abs builtins.round builtins.hash builtins.id random.random random.randint",
        ),
        (PayloadKind.OBJECTS, "the rows of a CSV file", "csv.reader csv.DictReader"),
    )
    for name in known.split()
}
# The same by the beginning of the name.
_FAMILIES = (
    ("datasets.", PayloadKind.SHARED, "an Arrow table"),
    ("pyarrow.", PayloadKind.SHARED, "an Arrow table"),
    ("torchvision.io.", PayloadKind.TENSOR, "a decoded image"),
    ("scipy.sparse.", PayloadKind.ARRAY, "a sparse matrix"),
)
_ITERATED = frozenset("builtins.zip builtins.map builtins.enumerate itertools.product itertools.chain itertools.combinations".split())


class Libraries:
    """Classifies what comes out of libraries."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.evaluator = contents.evaluator

    def external(self, value: ExternalCall) -> Content:
        """What a library's function or class returns."""
        name, call, frame = value.name, value.call, value.frame
        module = frame.module
        last = name.rpartition(".")[2]
        known = _RESULTS.get(name)
        if name == "torch.load" and self._is_asked(call, "mmap", frame):
            return Content(PayloadKind.SHARED, "tensors of a mapped file", module, call)
        if known is not None:
            words = known[1].format(name=name, last=last, library=name.partition(".")[0], plain=name.removeprefix("builtins."))
            form = _FORMS.get(name)
            element = Content(PayloadKind.ARRAY, "a NumPy array", module, call) if form is Form.PICKLED and _has_arrays(call, frame) else None
            return Content(known[0], words, module, call, element, numbers=known[0] is PayloadKind.SCALAR, form=form)
        if _FRAME_LOADERS.match(name):
            return Content(PayloadKind.FRAME, "a DataFrame", module, call)
        if name == "numpy.load":
            return self._numpy_load(call, frame)
        if name in {"numpy.unique", "pandas.unique"}:
            return Content(PayloadKind.SMALL, "the distinct values", module, call)
        if name.startswith(("numpy.", "cupy.")) and name not in GENERATORS and (last in _NUMPY_MAKERS or name.startswith("numpy.random.")):
            return self._array(name, last, call, frame)
        if name in {"torch.from_numpy", "torch.as_tensor"} and call.args and self.contents.of(call.args[0].value, frame).kind is PayloadKind.MEMMAP:
            return Content(PayloadKind.SHARED, "a tensor of a mapped file", module, call)
        if name.startswith("torch.") and last in _TORCH_MAKERS:
            if along_columns(name, call, frame):
                return Content(PayloadKind.SMALL, "a number for each column", module, call)
            return Content(PayloadKind.TENSOR, "a tensor", module, call, size=self._tensor_size(name, last, call, frame))
        if name in _ITERATED:
            return self._iterated(name, call, frame)
        if name in EMPTY_CONTAINERS:
            return self.contents.containers.grown(call, frame) or Content(PayloadKind.SMALL, f"an empty {last}", module, call)
        for beginning, kind, words in _FAMILIES:
            if name.startswith(beginning):
                return Content(kind, words, module, call)
        return self._computed(last, call, frame, torch=name.startswith("torch.")) if is_computing(name) else NOTHING

    def _computed(self, last: str, call: cst.Call, frame: Frame, *, torch: bool) -> Content:
        """What a function computes of arrays that it is given."""
        given = worst([self.contents.of(arg.value, frame) for arg in call.args if not arg.star])
        if torch and given.kind is PayloadKind.BLOB:
            given = replace(given, doubt=1)  # torch computes with tensors alone
        elif given.kind not in {PayloadKind.ARRAY, PayloadKind.TENSOR}:
            return NOTHING
        match computed(last, call, before=1):
            case Computed.ARRAY:
                kind, words = (PayloadKind.TENSOR, "a tensor") if torch else (PayloadKind.ARRAY, "a NumPy array")
                return replace(given, kind=kind, words=words, module=frame.module, node=call, form=None)
            case Computed.NUMBER:
                return Content(PayloadKind.SCALAR, "a number", numbers=True)
        return NOTHING

    def _is_asked(self, call: cst.Call, word: str, frame: Frame) -> bool:
        """Whether a call is given an argument, and, for all that is known, one that is true: ``mmap=True``, ``allow_pickle=True``."""
        given = arguments.named(call, word)
        return given is not None and any(not isinstance(a.value, Const) or a.const for a in self.evaluator.values(given, frame))

    def _numpy_load(self, call: cst.Call, frame: Frame) -> Content:
        if loads_archive(call, frame, self.evaluator):
            return Content(PayloadKind.HANDLE, "an open `.npz` file", frame.module, call, form=Form.ARCHIVE)
        if maps_file(call, frame, self.evaluator):
            return Content(PayloadKind.MEMMAP, "a memory-mapped array", frame.module, call)
        form = Form.PICKLED if self._is_asked(call, "allow_pickle", frame) else None
        return Content(PayloadKind.ARRAY, "an array that `numpy.load` reads", frame.module, call, form=form)

    def _array(self, name: str, last: str, call: cst.Call, frame: Frame) -> Content:
        module = frame.module
        dtype = arguments.named(call, "dtype")
        if dtype is not None and names.last_name(dtype) in {"object", "object_", "O"}:
            return Content(PayloadKind.OBJECT_ARRAY, "a NumPy array of objects", module, call)
        if last in AS_ARRAY and call.args:
            inner = self.contents.of(call.args[0].value, frame)
            if inner.kind is PayloadKind.H5:
                return whole_hdf5(module, call)
            return Content(PayloadKind.ARRAY, "a NumPy array", module, call, count=inner.count)
        if last in STACKS:
            return Content(PayloadKind.ARRAY, "a NumPy array", module, call)
        if along_columns(name, call, frame):
            return Content(PayloadKind.SMALL, "a number for each column", module, call)
        size = known_size(name, call, self.evaluator, frame)
        shape = call.args[0].value if call.args and last in ALLOCATORS else None
        plain = not isinstance(arguments.named(call, "dtype"), cst.Tuple)
        column = plain and isinstance(shape, cst.Call) and names.dotted(shape.func) == "len"  # `np.zeros(len(rows))`: a number for each
        return Content(PayloadKind.ARRAY, "a NumPy array", module, call, size=size, numbers=column)

    def _tensor_size(self, name: str, last: str, call: cst.Call, frame: Frame) -> Size:
        size = known_size(name, call, self.evaluator, frame)
        plain = last in AS_ARRAY or (last in TENSOR_TYPES and len(call.args) == 1)  # `Tensor(rows, columns)` makes one of that shape
        if plain and call.args:
            inner = self.contents.of(call.args[0].value, frame)
            if inner.size.known:
                return inner.size
            if inner.count is not None and inner.element is not None and inner.element.kind is PayloadKind.SCALAR:
                return Size(inner.count * 8)
        return size

    def _iterated(self, name: str, call: cst.Call, frame: Frame) -> Content:
        inner = [self.contents.of(a.value, frame) for a in call.args if a.star == ""]
        if name == "builtins.map" and len(inner) > 1:
            maker = next((alt.value.name for alt in self.evaluator.values(call.args[0].value, frame) if isinstance(alt.value, External)), "")
            numbers, strings = maker in {"builtins.int", "builtins.float", "builtins.len"}, maker == "builtins.str"
            count = min((one.count for one in inner[1:] if one.count is not None), default=None)
            return Content(PayloadKind.OBJECTS, "a list of mapped values", frame.module, call, count=count, doubt=1, numbers=numbers, strings=strings)
        if any(c.kind is PayloadKind.PATHS for c in inner):
            return Content(PayloadKind.PATHS, "file names", frame.module, call)
        if any(
            c.kind in {PayloadKind.OBJECTS, PayloadKind.ARRAY, PayloadKind.ARRAYS, PayloadKind.TENSOR, PayloadKind.TENSORS, PayloadKind.FRAME} for c in inner
        ):
            counts = [c.count for c in inner if c.count is not None]
            return Content(PayloadKind.OBJECTS, "a list of tuples", frame.module, call, count=min(counts) if counts else None)
        return NOTHING

    def element(self, value: Element) -> Content:
        """A part of what a library returned."""
        whole = self.external(value.whole)
        module, node = value.whole.frame.module, value.whole.call
        attr = value.accessors[-1][1] if value.accessors else ""
        first = value.accessors[0]
        if whole.kind is PayloadKind.H5:
            keys = [k for k, _ in value.accessors]
            if "attrs" in [k for _, k in value.accessors]:
                return Content(PayloadKind.SCALAR, "an attribute of an HDF5 file")
            if any(key in FACTS for kind, key in value.accessors if kind == "attr"):
                return Content(PayloadKind.SCALAR, "a shape")
            if "value" in [k for _, k in value.accessors]:
                return whole_hdf5(module, node)
            if keys.count("item") > 1 and not isinstance(attr, str):
                return Content(PayloadKind.ARRAY, "an array read from HDF5", module, node, doubt=1)
            return Content(PayloadKind.H5, "an open `h5py.Dataset`", module, node)
        if whole.form is Form.ARCHIVE:
            return Content(PayloadKind.ARRAY, "an array of an `.npz` file", module, node)
        if whole.kind is PayloadKind.FRAME:
            if {"columns", "shape", "dtypes"} & {key for kind, key in value.accessors if kind == "attr"}:
                return Content(PayloadKind.SMALL, "the names of the columns", module, node, form=Form.COLUMN)
            if attr in {"values", "T"}:
                column = Form.COLUMN if first[0] == "item" and isinstance(first[1], str) else None
                return Content(PayloadKind.ARRAY, "the values of a DataFrame", module, node, doubt=1, form=column)
            if first[0] == "item":
                return Content(PayloadKind.FRAME, "a column of a DataFrame", module, node, form=Form.COLUMN)
            return Content(PayloadKind.FRAME, "a DataFrame", module, node)
        if whole.kind is PayloadKind.SHARED and value.whole.name == "torch.load":
            return whole
        if whole.kind in {PayloadKind.BLOB, PayloadKind.OBJECTS}:
            if any(kind == "attr" for kind, _ in value.accessors):
                return NOTHING  # settings read from a file, most likely
            if whole.numbers and first[0] == "item":
                return Content(PayloadKind.SCALAR, "a number", numbers=True)
            if whole.element is not None and len(value.accessors) == 1 and not isinstance(first[1], str):
                return whole.element
            return replace(whole, doubt=whole.doubt + len(value.accessors) - 1)
        if whole.kind in {PayloadKind.ARRAY, PayloadKind.TENSOR} and first[0] == "item":
            return whole if isinstance(first[1], int) else replace(whole, size=Size())
        if attr in FACTS:
            return Content(PayloadKind.SCALAR, "a shape")
        return NOTHING


def _has_arrays(call: cst.Call, frame: Frame) -> bool:
    """Whether the function that reads a container of objects takes its elements for arrays: ``for name, one in rows.items(): one.shape[1]``."""
    found = {path[0] for path in frame.module.walk.bound_to(call) if not path[1]}
    parts: set[str] = set()
    for loop in frame.scope.loops if found else ():
        match names.gone_through(loop) if isinstance(loop, cst.For) else None:
            case cst.Call(func=cst.Attribute(value=cst.Name(value=name), attr=cst.Name(value="items"))), cst.Tuple(elements=[_, cst.Element(value=one)]):
                parts |= {one.value} if name in found and isinstance(one, cst.Name) else set()
            case cst.Call(func=cst.Attribute(value=cst.Name(value=name), attr=cst.Name(value="values"))) | cst.Name(value=name), cst.Name(value=word):
                parts |= {word} if name in found else set()
    uses = (node.value for node in frame.scope.nodes() if isinstance(node, cst.Attribute) and node.attr.value in OF_ARRAYS) if found else ()
    return any(_is_one_of(node, found, parts) for node in uses)


def _is_one_of(node: cst.BaseExpression, wholes: set[str], parts: set[str]) -> bool:
    if isinstance(node, cst.Subscript):
        return isinstance(node.value, cst.Name) and node.value.value in wholes
    return isinstance(node, cst.Name) and node.value in parts


def uses_torch(module: Module) -> bool:
    """Whether a file imports something of torch, or of what is called after it."""
    return any(e.kind in {"import", "from"} and "torch" in module.code(e.statement) for effects in module.root.effects.values() for e in effects)
