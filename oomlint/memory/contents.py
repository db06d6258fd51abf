"""What an expression holds in memory: in which kind of container, how much of it, and made where.

The kinds follow what a forked worker was measured to copy (torch 2.13, CPython 3.8 to 3.13): Python objects carry reference counts
that every read writes, so their pages are copied; the payload of one array or tensor is not touched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.memory.bytes import Size, allocated
from oomlint.model import names
from oomlint.model.values import (
    Alternative,
    Bound,
    Const,
    Display,
    Element,
    ExternalCall,
    Frame,
    FunctionRef,
    Instance,
    Merged,
    Settings,
    Unknown,
    Value,
    Written,
)
from oomlint.syntax.walk import path_of

if TYPE_CHECKING:
    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module
    from oomlint.syntax.walk import Effect, Scope


class Kind(Enum):
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


IN_MEMORY = frozenset({Kind.OBJECTS, Kind.BLOB, Kind.ARRAY, Kind.OBJECT_ARRAY, Kind.ARRAYS, Kind.TENSOR, Kind.TENSORS, Kind.FRAME})
_GRAVITY = [
    Kind.OBJECTS, Kind.OBJECT_ARRAY, Kind.TENSORS, Kind.BLOB, Kind.ARRAYS, Kind.ARRAY, Kind.TENSOR, Kind.FRAME, Kind.MEMMAP, Kind.H5, Kind.HANDLE,
    Kind.LOCK, Kind.GENERATOR, Kind.FUNCTION, Kind.PATHS, Kind.SHARED, Kind.DATASET, Kind.TEXT, Kind.SMALL, Kind.SCALAR, Kind.UNKNOWN,
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Content:
    """What is held, how it is called in a message, where it is made, how much of it."""

    kind: Kind
    words: str
    module: Module | None = None
    node: cst.CSTNode | None = None
    element: Content | None = None
    count: int | None = None  # elements, at most
    size: Size = Size()  # noqa: RUF009 - frozen
    doubt: int = 0
    dataset: Instance | None = None
    strings: bool = False  # elements proven to be strings
    numbers: bool = False  # elements proven to be numbers

    @property
    def gravity(self) -> int:
        """0 for what hurts most."""
        return _GRAVITY.index(self.kind)


NOTHING = Content(Kind.UNKNOWN, "something unknown")

# By convention one small value a sample, or a summary.
_SMALL_NAME = re.compile(
    r"(^|_)(labels?|targets?|y|class|classes|ids?|index|indices|idxs?|inds?|split|splits|lengths?|lens?|offsets?|mean|std|attrs|vocab|vocabulary|"
    r"tokenizer|dictionary|config|cfg|args|opt|opts|options|params|hparams|mapping|map|lookup|weights?|sampler|metadata|meta|stats?|sizes?|shapes?|"
    r"anchors?|colors?|palette|categories|cats|ix|perm|permutation|order|fold|folds|columns|transforms?|augmentations?|augs?|pipelines?|cumulative\w*|cumsum|"
    r"filters?|modalities|modality|channels|bands|keys_to_\w+|metrics?|losses|schedule)$|(2|_to_)(idx|id|ind|index|ix|label|name|word|cls|class|int|str|shard|split|path|file)s?$|"
    r"^(stoi|itos|char2idx|word2idx|class_to_idx)$",
)
_PATH_NAME = re.compile(r"(^|_)(paths?|files?|filenames?|fnames?|file_?list|filelist|dirs?|folders?|img_?list|image_?list|images?_list|urls?|videos_list|fns?)$|_?(path|file)s?$")

_PATH_CALLS = frozenset({"glob.glob", "glob.iglob", "os.listdir", "os.scandir", "os.walk", "os.path.join", "os.path.abspath", "os.path.basename", "pathlib.Path", "natsort.natsorted"})
_OBJECT_LOADERS = frozenset({"json.load", "json.loads", "orjson.loads", "ujson.load", "ujson.loads", "simplejson.load", "jsonlines.open", "xmltodict.parse", "srsly.read_json", "toml.load"})
_BLOB_LOADERS = frozenset({"pickle.load", "cPickle.load", "_pickle.load", "dill.load", "joblib.load", "torch.load", "pickle.loads", "cloudpickle.load", "mmengine.load", "mmcv.load", "scipy.io.loadmat"})
_FRAME_LOADERS = re.compile(r"^pandas\.(read_\w+|DataFrame|concat|merge)$|^(polars|dask\.dataframe)\.")
_H5_FILES = frozenset({"h5py.File", "h5pickle.File", "tables.open_file", "netCDF4.Dataset", "z5py.File"})
_HANDLES = frozenset(
    {
        "builtins.open", "io.open", "lmdb.open", "lmdb.Environment", "sqlite3.connect", "zipfile.ZipFile", "tarfile.open", "gzip.open", "cv2.VideoCapture",
        "boto3.client", "boto3.resource", "codecs.open", "decord.VideoReader", "bz2.open", "tarfile.TarFile", "mmap.mmap",
    },
)  # fmt: skip
_LOCKS = frozenset({"threading.Lock", "threading.RLock", "threading.Thread", "threading.local", "threading.Event", "queue.Queue", "threading.Condition", "threading.Semaphore"})
_NUMPY_MAKERS = frozenset(
    "array asarray zeros ones empty full arange linspace stack concatenate vstack hstack column_stack dstack fromfile loadtxt genfromtxt ascontiguousarray "
    "transpose reshape repeat tile random rand randn randint normal uniform choice permutation zeros_like ones_like empty_like full_like swapaxes moveaxis "
    "expand_dims squeeze pad where take clip abs log exp sqrt flip roll meshgrid load memmap frombuffer fromstring float32 float64 int64 uint8 nan_to_num "
    "standard_normal split array_split".split(),
)
_TORCH_MAKERS = frozenset(
    "tensor as_tensor from_numpy zeros ones empty full rand randn randint randperm arange linspace stack cat concat concatenate hstack vstack FloatTensor LongTensor "
    "IntTensor DoubleTensor BoolTensor ByteTensor Tensor zeros_like ones_like randn_like normal eye cartesian_prod meshgrid logspace".split(),
)
_ARRAY_METHODS = frozenset(
    "astype reshape copy transpose squeeze flatten ravel swapaxes view T repeat clip round mean sum to_numpy values numpy cumsum take".split(),
)
_TENSOR_METHODS = frozenset(
    "float long int double half bool byte to cpu cuda clone detach contiguous permute reshape view transpose squeeze unsqueeze type t share_memory_ expand "
    "pin_memory type_as repeat flatten narrow index_select".split(),
)
_STRING_METHODS = frozenset("strip rstrip lstrip lower upper replace format decode join encode title".split())
_GENERATORS = frozenset({"numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.Generator"})
_DRAWS = frozenset("random standard_normal normal uniform integers rand randn randint random_sample choice permutation".split())
_IMAGE_READS = frozenset({"PIL.Image.open", "cv2.imread", "imageio.imread", "imageio.v2.imread", "skimage.io.imread", "matplotlib.pyplot.imread", "tifffile.imread", "imageio.v3.imread", "nibabel.load"})
_GROWTH = frozenset({"append", "extend", "augment", "assign", "setdefault", "update"})
_DEEPEST = 8


class Contents:
    """Classifies expressions."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self._memo: dict[tuple[cst.CSTNode, Frame], Content] = {}
        self._active: set[object] = set()
        self._depth = 0

    def of(self, node: cst.BaseExpression, frame: Frame) -> Content:
        """What ``node`` holds: the gravest of its alternatives."""
        key = (node, frame)
        known = self._memo.get(key)
        if known is not None:
            return known
        if key in self._active or self._depth > _DEEPEST:
            return NOTHING
        self._active.add(key)
        self._depth += 1
        try:
            found = self.worst([self.of_value(alt.value, alt) for alt in self.evaluator.values(node, frame)[:12]])
        finally:
            self._depth -= 1
            self._active.discard(key)
        self._memo[key] = found
        return found

    @staticmethod
    def worst(found: list[Content]) -> Content:
        """The gravest; what is unknown beside it is one more assumption."""
        if not found:
            return NOTHING
        best = min(found, key=lambda c: (c.gravity, c.doubt))
        return best

    def of_value(self, value: Value, alt: Alternative | None = None) -> Content:
        """What a value holds."""
        doubt = alt.doubt if alt is not None else 0
        found = self._of_value(value)
        return replace(found, doubt=found.doubt + doubt) if doubt and found is not NOTHING else found

    def _of_value(self, value: Value) -> Content:
        if isinstance(value, Const):
            return Content(Kind.TEXT if isinstance(value.value, str | bytes) else Kind.SCALAR, "a constant", strings=isinstance(value.value, str), numbers=isinstance(value.value, int | float))
        if isinstance(value, Display):
            return self._display(value)
        if isinstance(value, ExternalCall):
            return self._external(value)
        if isinstance(value, Element):
            return self._element(value)
        if isinstance(value, Instance):
            return Content(Kind.DATASET, f"`{value.cls.scope.name}`", dataset=value, module=value.cls.module, node=value.call)
        if isinstance(value, FunctionRef):
            local = isinstance(value.scope.node, cst.Lambda) or (value.scope.parent is not None and value.scope.parent.is_function)
            return Content(Kind.FUNCTION, "a lambda" if isinstance(value.scope.node, cst.Lambda) else "a local function", value.module, value.scope.node) if local else Content(Kind.SCALAR, "a function")
        if isinstance(value, Settings | Merged):
            return Content(Kind.SMALL, "settings")
        if isinstance(value, Written) and value.node is not None and value.frame is not None:
            return self._written(value.node, value.frame)
        return NOTHING

    # -- containers ----------------------------------------------------------------------------------------------------

    def _display(self, value: Display) -> Content:
        node, frame = value.node, value.frame
        module = frame.module
        if isinstance(node, cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp):
            inner = node.value if isinstance(node, cst.DictComp) else node.elt
            element = self.of(inner, frame)
            count = self.count(node.for_in.iter, frame)
            if isinstance(node, cst.GeneratorExp):
                return Content(Kind.GENERATOR, "a generator", module, node, element, count)
            word = {"ListComp": "list", "SetComp": "set", "DictComp": "dict"}[type(node).__name__]
            return self._container(word, element, count, module, node)
        if isinstance(node, cst.Call):
            return Content(Kind.OBJECTS, "a dict", module, node, count=len(node.args))
        literal = self._literal(node, frame)
        grown = self._grown(node, frame)
        return grown if grown is not None else literal

    def _literal(self, node: cst.BaseExpression, frame: Frame) -> Content:
        elements = getattr(node, "elements", ())
        inner = [self.of(e.value, frame) for e in elements[:6] if isinstance(e, cst.Element | cst.DictElement)]
        word = {cst.List: "list", cst.Tuple: "tuple", cst.Set: "set", cst.Dict: "dict"}.get(type(node), "container")
        starred = any(isinstance(e, cst.StarredElement | cst.StarredDictElement) for e in elements)
        content = self._container(word, self.worst(inner) if inner else NOTHING, None if starred else len(elements), frame.module, node)
        if not inner:
            return replace(content, kind=Kind.SMALL, words=f"an empty {word}", count=0)
        if content.kind is Kind.UNKNOWN:
            return replace(content, kind=Kind.OBJECTS, words=f"a {word}")
        return content

    def _container(self, word: str, element: Content, count: int | None, module: Module, node: cst.CSTNode) -> Content:
        kind, words, doubt = Kind.UNKNOWN, f"a {word}", element.doubt
        inner = element.kind
        strings = numbers = False
        if element.node is not None and isinstance(element.node, cst.Dict) and inner in {Kind.ARRAYS, Kind.TENSORS, Kind.OBJECTS, Kind.UNKNOWN}:
            # A record a sample: its header and its values are Python objects, whatever they hold.
            kind, words = Kind.OBJECTS, f"a {word} of dicts"
        elif inner in {Kind.ARRAY, Kind.ARRAYS, Kind.MEMMAP, Kind.OBJECT_ARRAY}:
            kind, words = (Kind.ARRAYS, f"a {word} of NumPy arrays")
        elif inner in {Kind.TENSOR, Kind.TENSORS} or (inner is Kind.BLOB and "torch.load" in element.words):
            kind, words = Kind.TENSORS, f"a {word} of tensors"
        elif inner is Kind.PATHS:
            kind, words = Kind.PATHS, f"a {word} of file names"
        elif inner is Kind.TEXT:
            kind, words, strings = Kind.OBJECTS, f"a {word} of strings", True
        elif inner is Kind.SCALAR:
            kind, words, numbers = Kind.OBJECTS, f"a {word} of numbers", element.numbers
        elif inner in {Kind.OBJECTS, Kind.SMALL, Kind.FRAME, Kind.BLOB}:
            kind, words = Kind.OBJECTS, f"a {word} of {_plural(element.words).removeprefix('empty ')}"
        elif inner in {Kind.HANDLE, Kind.H5, Kind.GENERATOR, Kind.FUNCTION, Kind.DATASET, Kind.LOCK}:
            kind, words = inner, f"a {word} of {_plural(element.words)}"
        return Content(kind, words, module, node, element, count, doubt=doubt, strings=strings, numbers=numbers, dataset=element.dataset)

    def _grown(self, node: cst.BaseExpression, frame: Frame) -> Content | None:
        """A container that is bound to a name and filled afterwards."""
        module = frame.module
        holder = module.walk.parents.get(node)
        if not isinstance(holder, cst.Assign | cst.AnnAssign):
            return None
        targets = [t.target for t in holder.targets] if isinstance(holder, cst.Assign) else [holder.target]
        for target in _leaves(targets, node):
            path = path_of(target)
            if path is None:
                continue
            growth = self._growth(path[0], path[1], frame)
            if not growth:
                continue
            elements: list[Content] = []
            count: int | None = 0
            for effect, where in growth[:6]:
                content = self._added(effect, where)
                elements.append(content)
                bound = self._rounds(effect, where)
                count = None if bound is None or count is None else count + bound
            word = "dict" if isinstance(node, cst.Dict) or any(e.kind in {"assign", "setdefault", "update"} for e, _ in growth) else "list"
            return self._container(word, self.worst(elements), count, module, growth[0][0].node if growth[0][1].module is module else node)
        return None

    def grown_call(self, value: ExternalCall) -> Content | None:
        """The same for ``list()``, ``dict()`` and ``defaultdict(...)``."""
        return self._grown(value.call, value.frame)

    def _growth(self, root: str, path: tuple[tuple[str, object], ...], frame: Frame) -> list[tuple[Effect, Frame]]:
        """Effects that add to the container: in the same scope, or in any method where it hangs on the object."""
        found: list[tuple[Effect, Frame]] = []
        scopes: list[tuple[Scope, Frame, str]] = [(frame.scope, frame, root)]
        if path and root == names.self_name(frame.scope) and frame.scope.parent is not None:
            classes = [c for c in self.evaluator.lineage(frame.this.cls) if not hasattr(c, "name")] if frame.this is not None else []
            for cls in classes:
                for scope in getattr(cls, "scope", frame.scope.parent).children:
                    this = names.self_name(scope)
                    if this is not None and scope is not frame.scope:
                        inner = Frame(cls.module, scope, None, frame.this)  # type: ignore[union-attr]
                        scopes.append((scope, inner, this))
        for scope, where, name in scopes:
            for effect in scope.effects.get(name, ()):
                if effect.kind not in _GROWTH:
                    continue
                if effect.kind in {"append", "extend", "augment"} and effect.path[: len(path)] == path and all(k == "item" for k, _ in effect.path[len(path) :]):
                    if self._in_getitem(scope):
                        continue
                    found.append((effect, where))
                elif effect.kind in {"assign", "setdefault", "update"} and len(effect.path) >= len(path) + (effect.kind == "assign") and effect.path[: len(path)] == path:
                    if all(k == "item" for k, _ in effect.path[len(path) :]) and not self._in_getitem(scope) and self._looped(effect, where):
                        found.append((effect, where))
        return found

    @staticmethod
    def _in_getitem(scope: Scope) -> bool:
        return scope.name in {"__getitem__", "__len__", "__iter__"}

    @staticmethod
    def _looped(effect: Effect, frame: Frame) -> bool:
        return any(isinstance(a, cst.For | cst.While) for a in _until(frame, effect.statement))

    def _added(self, effect: Effect, frame: Frame) -> Content:
        if effect.value is None:
            return NOTHING
        content = self.of(effect.value, frame)
        if effect.kind in {"extend", "augment", "update"}:
            if isinstance(effect.value, cst.List | cst.Tuple) and effect.value.elements:
                return self.worst([self.of(e.value, frame) for e in effect.value.elements[:3]])
            return content.element if content.element is not None else content
        return content

    def _rounds(self, effect: Effect, frame: Frame) -> int | None:
        """How often an effect happens at most; ``None`` where nobody knows."""
        total = 1
        for node in _until(frame, effect.statement):
            if isinstance(node, cst.While):
                return None
            if isinstance(node, cst.For):
                rounds = self.count(node.iter, frame)
                if rounds is None:
                    return None
                total *= rounds
        if effect.kind in {"extend", "augment", "update"} and effect.value is not None:
            inner = self.count(effect.value, frame)
            return None if inner is None else total * inner
        if frame.scope.name not in {"__init__"} and frame.scope.is_function and total == 1:
            return None
        return total

    def count(self, node: cst.BaseExpression, frame: Frame) -> int | None:
        """How many elements an iterable has at most; ``None`` where nobody knows."""
        if isinstance(node, cst.Call):
            name = names.last_name(node.func)
            if name in {"enumerate", "tqdm", "sorted", "list", "tuple", "reversed", "track"} and node.args:
                return self.count(node.args[0].value, frame)
            if name == "zip" and node.args:
                counts = [c for a in node.args if (c := self.count(a.value, frame)) is not None]
                return min(counts) if counts else None
            if name == "range" and node.args:
                return self._range(node, frame)
        if isinstance(node, cst.Subscript):
            return self._sliced(node, frame)
        key = ("count", node, frame)
        if key in self._active or self._depth > _DEEPEST:
            return None
        self._active.add(key)
        self._depth += 1
        try:
            most = 0
            for alt in self.evaluator.values(node, frame)[:6]:
                one = self._count_value(alt.value)
                if one is None:
                    return None
                most = max(most, one)
            return most
        finally:
            self._depth -= 1
            self._active.discard(key)

    def _count_value(self, value: Value) -> int | None:
        if isinstance(value, Display):
            if isinstance(value.node, cst.List | cst.Tuple | cst.Set | cst.Dict):
                grown = self._grown(value.node, value.frame)
                if grown is not None:
                    return grown.count
                return len(value.node.elements)
            if isinstance(value.node, cst.ListComp | cst.GeneratorExp | cst.SetComp | cst.DictComp):
                return self.count(value.node.for_in.iter, value.frame)
        if isinstance(value, ExternalCall) and value.name == "builtins.range":
            return self._range(value.call, value.frame)
        if isinstance(value, Written) and isinstance(value.node, cst.Subscript) and value.frame is not None:
            return self._sliced(value.node, value.frame)
        return None

    def _range(self, call: cst.Call, frame: Frame) -> int | None:
        bounds: list[int] = []
        for arg in call.args[:2]:
            found = self.evaluator.values(arg.value, frame)
            constants = [a.const for a in found if isinstance(a.const, int)]
            if not constants or len(constants) != len(found):
                return None
            bounds.append(max(constants))
        return max(0, bounds[-1] - (bounds[0] if len(bounds) > 1 else 0)) if bounds else None

    def _sliced(self, node: cst.Subscript, frame: Frame) -> int | None:
        if len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Slice):
            return None
        upper = node.slice[0].slice.upper
        if upper is None:
            return self.count(node.value, frame)
        found = self.evaluator.values(upper, frame)
        constants = [a.const for a in found if isinstance(a.const, int) and not isinstance(a.const, bool)]
        if constants and len(constants) == len(found) and min(constants) >= 0:
            return max(constants)
        return None

    # -- what libraries return ----------------------------------------------------------------------------------------

    def _external(self, value: ExternalCall) -> Content:  # noqa: C901, PLR0911, PLR0912 - a table in the form of code
        name, call, frame = value.name, value.call, value.frame
        module = frame.module
        made = lambda kind, words, **more: Content(kind, words, module, call, **more)  # noqa: E731 - short for this table
        last = name.rpartition(".")[2]
        if name in _OBJECT_LOADERS:
            return made(Kind.OBJECTS, f"what `{last}` of {name.partition('.')[0]} returns")
        if name in _BLOB_LOADERS:
            return made(Kind.BLOB, f"what `{name}` returns")
        if name == "pycocotools.coco.COCO":
            return made(Kind.OBJECTS, "a COCO index of dicts")
        if name in _PATH_CALLS:
            return made(Kind.PATHS, f"file names of `{name}`")
        if name in _H5_FILES:
            return made(Kind.H5, f"an open `{name}`")
        if name in _HANDLES:
            return made(Kind.HANDLE, f"what `{name.removeprefix('builtins.')}` opened")
        if name in _LOCKS:
            return made(Kind.LOCK, f"a `{name}`")
        if _FRAME_LOADERS.match(name):
            return made(Kind.FRAME, "a DataFrame")
        if name in _IMAGE_READS:
            return made(Kind.ARRAY, "a decoded image")
        if name in {"numpy.memmap", "numpy.lib.format.open_memmap"}:
            return made(Kind.MEMMAP, "a memory-mapped array")
        if name == "numpy.load":
            return self._numpy_load(call, frame)
        if name in _GENERATORS:
            return NOTHING
        if name in {"torchvision.transforms.functional.to_tensor", "torchvision.transforms.functional.pil_to_tensor"}:
            return made(Kind.TENSOR, "a tensor")
        if name.startswith(("numpy.", "cupy.")) and (last in _NUMPY_MAKERS or name.startswith("numpy.random.")):
            return self._array(name, last, call, frame)
        if name.startswith("torch.") and last in _TORCH_MAKERS:
            return made(Kind.TENSOR, "a tensor", size=self._tensor_size(name, last, call, frame))
        if name in {"torch.split", "torch.unbind", "torch.chunk"}:
            return made(Kind.TENSORS, "tensors")
        if name.startswith("datasets.") or name.startswith("pyarrow."):
            return made(Kind.SHARED, "an Arrow table")
        if name.startswith("torchvision.io."):
            return made(Kind.TENSOR, "a decoded image")
        if name in {"builtins.range"}:
            return made(Kind.SMALL, "a range")
        if name in {"builtins.len", "builtins.sum", "builtins.abs", "builtins.round", "builtins.hash", "builtins.id", "random.random", "random.randint"}:
            return made(Kind.SCALAR, "a number", numbers=True)
        if name in {"builtins.zip", "builtins.map", "builtins.enumerate", "itertools.product", "itertools.chain", "itertools.combinations"}:
            return self._iterated(name, call, frame)
        if name in {"collections.defaultdict", "collections.OrderedDict", "collections.Counter", "collections.deque", "builtins.list", "builtins.dict", "builtins.set"}:
            grown = self.grown_call(value)
            return grown if grown is not None else made(Kind.SMALL, f"an empty {last}")
        if name in {"csv.reader", "csv.DictReader"}:
            return made(Kind.OBJECTS, "the rows of a CSV file")
        if name.startswith("scipy.sparse."):
            return made(Kind.ARRAY, "a sparse matrix")
        return NOTHING

    def _numpy_load(self, call: cst.Call, frame: Frame) -> Content:
        for arg in call.args:
            if arg.keyword is not None and arg.keyword.value == "mmap_mode":
                found = self.evaluator.values(arg.value, frame)
                if any(isinstance(a.const, str) for a in found):
                    return Content(Kind.MEMMAP, "a memory-mapped array", frame.module, call)
        if call.args and ".npz" in frame.module.code(call.args[0].value):
            return Content(Kind.HANDLE, "an open `.npz` file", frame.module, call)
        return Content(Kind.ARRAY, "an array that `numpy.load` reads", frame.module, call)

    def _array(self, name: str, last: str, call: cst.Call, frame: Frame) -> Content:
        module = frame.module
        dtype = next((a.value for a in call.args if a.keyword is not None and a.keyword.value == "dtype"), None)
        if dtype is not None and names.last_name(dtype) in {"object", "object_", "O"}:
            return Content(Kind.OBJECT_ARRAY, "a NumPy array of objects", module, call)
        if last in {"array", "asarray", "ascontiguousarray"} and call.args:
            inner = self.of(call.args[0].value, frame)
            if inner.kind is Kind.H5:
                return Content(Kind.ARRAY, "an array read whole from HDF5", module, call)
            return Content(Kind.ARRAY, "a NumPy array", module, call, count=inner.count)
        if last in {"stack", "concatenate", "vstack", "hstack"}:
            return Content(Kind.ARRAY, "a NumPy array", module, call)
        size = allocated(name if name.count(".") == 1 else f"numpy.{last}", call, self.evaluator, frame)
        return Content(Kind.ARRAY, "a NumPy array", module, call, size=size)

    def _tensor_size(self, name: str, last: str, call: cst.Call, frame: Frame) -> Size:
        if last in {"zeros", "ones", "empty", "full", "rand", "randn", "arange"}:
            return allocated(name, call, self.evaluator, frame)
        if last == "randint":
            positional = [a.value for a in call.args if a.keyword is None]
            shape = positional[-1:] if len(positional) in {2, 3} else []
            return allocated("torch.empty", call.with_changes(args=[cst.Arg(shape[0]), cst.Arg(cst.parse_expression("torch.int64"), keyword=cst.Name("dtype"))]), self.evaluator, frame) if shape else Size()
        if last in {"tensor", "as_tensor", "from_numpy", "FloatTensor", "LongTensor"} and call.args:
            inner = self.of(call.args[0].value, frame)
            if inner.size.known:
                return inner.size
            if inner.count is not None and inner.element is not None and inner.element.kind is Kind.SCALAR:
                return Size(inner.count * 8)
        return Size()

    def _iterated(self, name: str, call: cst.Call, frame: Frame) -> Content:
        inner = [self.of(a.value, frame) for a in call.args if a.star == ""]
        if name == "builtins.map" and len(inner) > 1:
            return Content(Kind.OBJECTS, "a list of mapped values", frame.module, call, doubt=1)
        if any(c.kind is Kind.PATHS for c in inner):
            return Content(Kind.PATHS, "file names", frame.module, call)
        if any(c.kind in {Kind.OBJECTS, Kind.ARRAY, Kind.ARRAYS, Kind.TENSOR, Kind.TENSORS, Kind.FRAME} for c in inner):
            counts = [c.count for c in inner if c.count is not None]
            return Content(Kind.OBJECTS, "a list of tuples", frame.module, call, count=min(counts) if counts else None)
        return NOTHING

    def _element(self, value: Element) -> Content:
        whole = self._external(value.whole)
        module, node = value.whole.frame.module, value.whole.call
        attr = value.accessors[-1][1] if value.accessors else ""
        first = value.accessors[0]
        if whole.kind is Kind.H5:
            keys = [k for k, _ in value.accessors]
            if "attrs" in [k for _, k in value.accessors]:
                return Content(Kind.SCALAR, "an attribute of an HDF5 file")
            if "value" in [k for _, k in value.accessors]:
                return Content(Kind.ARRAY, "an array read whole from HDF5", module, node)
            if keys.count("item") > 1 and not isinstance(attr, str):
                return Content(Kind.ARRAY, "an array read from HDF5", module, node, doubt=1)
            if attr in {"shape", "size", "ndim", "dtype", "attrs"}:
                return Content(Kind.SCALAR, "a shape")
            return Content(Kind.H5, "a dataset of an open HDF5 file", module, node)
        if whole.kind is Kind.HANDLE and ".npz" in whole.words:
            return Content(Kind.ARRAY, "an array of an `.npz` file", module, node)
        if whole.kind is Kind.FRAME:
            if attr in {"values", "T"}:
                return Content(Kind.ARRAY, "the values of a DataFrame", module, node, doubt=1)
            return Content(Kind.FRAME, "a column of a DataFrame" if first[0] == "item" else "a DataFrame", module, node)
        if whole.kind in {Kind.BLOB, Kind.OBJECTS}:
            if any(kind == "attr" for kind, _ in value.accessors):
                return NOTHING  # settings read from a file, most likely
            return replace(whole, doubt=whole.doubt + len(value.accessors) - 1)
        if whole.kind in {Kind.ARRAY, Kind.TENSOR} and first[0] == "item":
            return whole if isinstance(first[1], int) else replace(whole, size=Size())
        if attr in {"shape", "size", "ndim", "dtype"}:
            return Content(Kind.SCALAR, "a shape")
        return NOTHING

    # -- what is only written ---------------------------------------------------------------------------------------

    def _written(self, node: cst.BaseExpression, frame: Frame) -> Content:
        module = frame.module
        if isinstance(node, cst.FormattedString):
            return Content(Kind.TEXT, "a string", module, node, strings=True)
        if isinstance(node, cst.BinaryOperation):
            return self._operation(node, frame)
        if isinstance(node, cst.Subscript):
            return self._subscript(node, frame)
        if isinstance(node, cst.Call):
            return self._method(node, frame)
        return NOTHING

    def _operation(self, node: cst.BinaryOperation, frame: Frame) -> Content:
        sides = [self.of(node.left, frame), self.of(node.right, frame)]
        if isinstance(node.operator, cst.Modulo) and sides[0].kind is Kind.TEXT:
            return Content(Kind.TEXT, "a string", frame.module, node, strings=True)
        best = self.worst(sides)
        if isinstance(node.operator, cst.Multiply) and any(s.kind is Kind.SCALAR for s in sides) and isinstance(node.left, cst.List):
            return Content(Kind.SMALL, "a list of one value", frame.module, node)
        if best.kind in {Kind.ARRAY, Kind.TENSOR, Kind.OBJECTS, Kind.PATHS, Kind.ARRAYS, Kind.TENSORS, Kind.FRAME}:
            counts = [s.count for s in sides]
            known = counts[0] + counts[1] if isinstance(node.operator, cst.Add) and counts[0] is not None and counts[1] is not None else None
            return replace(best, module=frame.module, node=node, count=known)
        return best

    def _subscript(self, node: cst.Subscript, frame: Frame) -> Content:
        base = self.of(node.value, frame)
        if base.kind is Kind.H5:
            return Content(Kind.ARRAY, "an array read whole from HDF5", frame.module, node)
        if base.kind is Kind.MEMMAP:
            return base
        if base.kind in {Kind.OBJECTS, Kind.PATHS, Kind.ARRAYS, Kind.TENSORS}:
            return replace(base, count=self._sliced(node, frame))
        if base.kind in {Kind.ARRAY, Kind.TENSOR, Kind.FRAME, Kind.BLOB}:
            return replace(base, size=Size())
        return base if base.kind is Kind.TEXT else NOTHING

    def _method(self, node: cst.Call, frame: Frame) -> Content:  # noqa: C901, PLR0911, PLR0912 - a table in the form of code
        func = node.func
        module = frame.module
        if not isinstance(func, cst.Attribute):
            made = self.evaluator.values(func, frame)
            if any(isinstance(a.value, ExternalCall) and a.value.name.endswith((".ToTensor", ".PILToTensor")) for a in made):
                return Content(Kind.TENSOR, "a tensor", module, node)
            return NOTHING
        name = func.attr.value
        if name in _DRAWS and any(isinstance(a.value, ExternalCall) and a.value.name in _GENERATORS for a in self.evaluator.values(func.value, frame)):
            shaped = "numpy.zeros" if name in {"random", "standard_normal", "random_sample"} else f"numpy.random.{name}"
            return Content(Kind.ARRAY, "a NumPy array", module, node, size=allocated(shaped, node, self.evaluator, frame))
        if name in {"readlines", "splitlines"}:
            return Content(Kind.OBJECTS, "a list of lines", module, node, strings=True)
        if name in {"glob", "rglob", "iterdir"}:
            return Content(Kind.PATHS, "file names", module, node)
        if name in {"loadAnns", "loadImgs", "loadCats"}:
            return Content(Kind.OBJECTS, "a list of dicts", module, node)
        base = self.of(func.value, frame)
        if name == "split":
            return Content(Kind.OBJECTS, "a list of strings", module, node, strings=True)
        if name in _STRING_METHODS and (base.kind in {Kind.TEXT, Kind.UNKNOWN} or isinstance(func.value, cst.SimpleString)):
            return Content(Kind.TEXT, "a string", module, node, strings=True)
        if name == "read" and base.kind is Kind.HANDLE:
            return Content(Kind.TEXT, "the text of a file", module, node)
        if base.kind is Kind.H5:
            if name == "get":
                return Content(Kind.H5, "a dataset of an open HDF5 file", module, node)
            if name in {"keys", "attrs", "items"}:
                return Content(Kind.PATHS, "the keys of a file", module, node)
            return Content(Kind.ARRAY, "an array read whole from HDF5", module, node)
        if name == "tolist":
            label = base.kind in {Kind.ARRAY, Kind.TENSOR, Kind.FRAME, Kind.UNKNOWN}
            return Content(Kind.OBJECTS, "a list of `tolist()`", module, node, doubt=0 if label else 1, size=base.size)
        if name in {"to_dict", "iterrows", "itertuples", "to_records"}:
            return Content(Kind.OBJECTS, f"what `{name}` makes of a DataFrame", module, node)
        if base.kind is Kind.FRAME:
            if name in {"to_numpy"}:
                return Content(Kind.ARRAY, "the values of a DataFrame", module, node, doubt=1)
            return replace(base, module=module, node=node)
        if base.kind in {Kind.ARRAY, Kind.ARRAYS} and name in _ARRAY_METHODS:
            return replace(base, size=Size()) if name in {"mean", "sum"} else base
        if base.kind is Kind.TENSOR:
            if name == "numpy":
                return Content(Kind.ARRAY, "a NumPy array", module, node, size=base.size)
            if name in {"item"}:
                return Content(Kind.SCALAR, "a number", numbers=True)
            return base if name in _TENSOR_METHODS else NOTHING
        if name == "item":
            return Content(Kind.SCALAR, "a number", numbers=True)
        if name == "read" or name.startswith("read_") or name == "get":
            return base.element if base.element is not None else NOTHING
        if name in {"values", "keys", "items", "copy", "union", "difference"} and base.kind in {Kind.OBJECTS, Kind.PATHS, Kind.ARRAYS, Kind.TENSORS, Kind.BLOB}:
            return base
        if name in {"convert", "resize", "crop"}:
            return Content(Kind.ARRAY, "a decoded image", module, node, doubt=1)
        return NOTHING


def small_by_name(name: str) -> bool:
    """Whether an attribute's name says that it holds one small value a sample, or a summary."""
    return _SMALL_NAME.search(name.lower().lstrip("_")) is not None


def paths_by_name(name: str) -> bool:
    """Whether an attribute's name says that it holds file names."""
    return _PATH_NAME.search(name.lower().lstrip("_")) is not None


def _plural(words: str) -> str:
    words = words.replace("an empty ", "a ")
    for article in ("a ", "an "):
        if words.startswith(article):
            head, _, tail = words.removeprefix(article).partition(" ")
            return f"{head if head.endswith('s') else head + 's'} {tail}".strip() if head in {"list", "dict", "tuple", "set", "tensor", "string", "generator", "lambda"} else words.removeprefix(article)
    return words


def _leaves(targets: list[cst.BaseAssignTargetExpression], value: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Targets of an assignment that get the whole value."""
    del value
    return [t for t in targets if not isinstance(t, cst.Tuple | cst.List)]


def _until(frame: Frame, node: cst.CSTNode) -> list[cst.CSTNode]:
    """Enclosing nodes inside the frame's scope."""
    found: list[cst.CSTNode] = []
    for here in frame.module.walk.ancestors(node):
        if here is frame.scope.node:
            break
        found.append(here)
    return found


__all__ = ["IN_MEMORY", "NOTHING", "Bound", "Content", "Contents", "Kind", "Unknown", "paths_by_name", "small_by_name"]
