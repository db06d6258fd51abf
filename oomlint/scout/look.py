"""One look over ``ast`` that ends where a rule could start."""

from __future__ import annotations

import ast
import builtins
import re
from typing import TYPE_CHECKING, Any, Final

from oomlint.api_names import COLLECTIONS, HANDS_ON, PARAMETERS, READS_SAMPLES
from oomlint.frameworks import BACKWARDS, STEPS
from oomlint.scout.forms import (
    FILLERS,
    FUNCTIONS,
    caches,
    converts,
    counts,
    cuts,
    fills,
    fills_itself,
    first_parameter,
    gives_batches,
    goes_on,
    is_empty,
    is_fixed,
    joins,
    keeps_exception,
    keeps_state,
    makes_array,
    makes_room,
    may_keep_much,
    name_of,
    names_in,
    row_names,
    runs_backward,
    sets_on_first,
    takes_out,
    unbounded,
    written,
)
from oomlint.scout.others import Others
from oomlint.scout.places import ScoutLoop, ScoutPlace, TriggerFound
from oomlint.scout.telling_names import (
    ADDS,
    BUILDERS,
    DENSE,
    DRIVES,
    ELEMENTWISE,
    FIGURES,
    LARGE_NUMBER,
    MODES,
    MOVES,
    NO_ROOTS,
    READY,
    SWITCHES_OFF,
    is_data_class,
    is_no_root,
    is_worker_word,
    makes_data,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Calls that bring a file into memory, or keep it open.
READS = frozenset(
    "imread mimread loadmat fromfile loadtxt genfromtxt load_npz load_file read_parquet read_hdf read_feather read_pickle memmap open_memmap open_file "
    "VideoCapture VideoReader OpenSlide open_slide TiffFile ZipFile connect read_image read_video decode_image ReadImage dcmread load_mesh "
    "read_point_cloud read_triangle_mesh "
    "default_loader pil_loader open_dataset open_dataarray open_mfdataset open_zarr ReadAsArray EdfReader getdata volread read_h5ad "
    "read_csv read_table read_excel rdsamp rdrecord read_edf read_direct load_dataset load_from_disk concatenate_datasets".split(),
)
DRAWS = re.compile(r"matplotlib|pylab")
_JOINS = re.compile(r"\b(v?stack|array|asarray|concat\w*|cat|\w*[tT]ensor)\s*\(")
_SAVES = re.compile(r"\b(save\w*|dump)\s*\(")
_DEVICES = re.compile(r"cuda|\bgpus?\b|device|nccl", re.IGNORECASE)
_RANKS = re.compile(r"rank|distributed|_main|master|global_zero|cpu\(\) for ")
_STEP_METHOD = re.compile(
    r"^(training|validation|test|predict)_step$|^on_(train|validation|test|predict)_batch_(start|end)$|^(training|validation|test)_step_end$|^compute_loss$"
)
_LOADER_KEYWORDS = frozenset({"num_workers", "persistent_workers", "prefetch_factor", "worker_init_fn", "multiprocessing_context", "collate_fn"})
_REPEATS = frozenset({"cycle", "tee"})
_ITERATES = COLLECTIONS | {"next"}
_COPIES = frozenset({"deepcopy", "state_dict", "parameters", "named_parameters"})
_OPENERS = frozenset({"lmdb", "zarr", "Image", "PIL", "tarfile", "rasterio"})  # modules whose `open` opens what a rule knows
_NOT_FROM_TORCH = frozenset(
    {"yaml", "json", "joblib", "pickle", "numpy", "toml", "tomllib", "marshal", "dill", "cloudpickle", "ruamel", "orjson", "simplejson", "msgpack", "librosa"}
)
_NOT_FROM_FILES = frozenset("yaml json toml tomllib tomli ruamel orjson simplejson msgpack config cfg OmegaConf omegaconf super".split())
_SHORT_NAME = re.compile(r"(^|_)dls?\d*$", re.IGNORECASE)
_SMALL_CALLS = frozenset({"len", "int", "float", "str", "bool", "item", "getattr", "time"})
_NODES: Final = (ast.expr, ast.stmt, ast.comprehension, ast.excepthandler, ast.arguments, ast.arg, ast.keyword, ast.withitem, ast.match_case, ast.pattern)


class Look:
    """One walk over the tree that ends where a rule could start."""

    def __init__(self, text: str, *, notebook: bool) -> None:
        words = words_of(text)
        self._text = text
        self._said: dict[re.Pattern[str], bool] = {}
        self.loaders = words.loaders
        self.steps = words.steps
        self.notebook = notebook
        self.makes = False  # a class makes an array when its objects are built
        self.large = False  # there is a number that could make it a large one
        self.empties: set[str] = set()  # what starts as an empty dictionary or a row of placeholders
        self.outer: set[str] = set()  # names that functions declare global
        self.stores: set[str] = set()  # what functions put something into, under a key that is computed
        self.speaks = "oader" in text
        self.imports = False
        self.torches = {"torch"}
        self.openers = set(_OPENERS)
        self.called: set[str] = set()
        self.movers: set[str] = set()  # functions that move tensors, or switch gradients off
        self.helpers: set[str] = set()  # functions that are called in rounds which keep something
        self.rounds: set[str] = set()  # functions that are called in rounds
        self.turning: set[str] = set()  # functions that put a model into evaluation
        self.aliases: set[str] = set()
        self.others = Others()
        self.here = ScoutPlace(ast.Module([], []))

    def over(self, tree: ast.Module) -> bool:
        """Whether a rule could have something to say about the file."""
        if self.notebook and any(isinstance(item, ast.Expr) and isinstance(item.value, ast.Name | ast.Call) for item in tree.body):
            return True  # a cell may end with a value that the notebook keeps
        self.here = ScoutPlace(tree)
        try:
            self._many(tree.body)
            self._leave()
        except TriggerFound:
            return True
        if self.makes and self.large:
            return True
        self.empties.discard("")
        self.movers.discard("")
        pairs = ((self.aliases, self.called), (self.empties, self.stores), (self.movers, self.helpers), (self.turning, self.rounds))
        return any(not some.isdisjoint(others) for some, others in pairs)

    # -- the walk ------------------------------------------------------------------------------------------------------

    def _one(self, node: ast.AST) -> None:
        handler = _HANDLERS.get(type(node))
        if handler is not None:
            handler(self, node)
        else:
            self._below(node)

    def _below(self, node: ast.AST) -> None:
        for name in node._fields:
            value = getattr(node, name, None)
            if value.__class__ is list:
                for item in value:
                    if isinstance(item, _NODES):
                        self._one(item)
            elif isinstance(value, _NODES):
                self._one(value)

    def _many(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self._one(node)

    def _says(self, pattern: re.Pattern[str]) -> bool:
        """Whether the text has a word, wherever it stands."""
        known = self._said.get(pattern)
        if known is None:
            known = self._said[pattern] = pattern.search(self._text) is not None
        return known

    def _word(self, word: str | None) -> None:
        if word in self.loaders:
            self.here.loader = True

    def _leave(self) -> None:
        """Judge the function or module that ends here."""
        here = self.here
        self.rounds |= here.helpers
        if here.evaluates and here.drives and isinstance(here.node, FUNCTIONS):
            self.turning.add(here.node.name)
        if not here.looped or isinstance(here.node, ast.ClassDef) or not self.imports:
            return
        if here.copies and here.often:
            raise TriggerFound
        if is_no_root(getattr(here.node, "name", ""), method=here.above is not None and isinstance(here.above.node, ast.ClassDef)):
            return
        if here.keeps or here.places:
            self.helpers |= here.helpers
        if here.loader or ((here.steps or here.evaluates or (here.runs and here.keeps)) and (here.drives or not here.in_module)):
            raise TriggerFound
        decorators = getattr(here.node, "decorator_list", ())
        if here.keeps and any(name_of(part.func if isinstance(part, ast.Call) else part) in SWITCHES_OFF for part in decorators):
            raise TriggerFound

    # -- what opens a scope --------------------------------------------------------------------------------------------

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if _STEP_METHOD.search(node.name) and isinstance(self.here.node, ast.ClassDef):
            raise TriggerFound
        method = isinstance(self.here.node, ast.ClassDef) and not any(name_of(part) == "staticmethod" for part in node.decorator_list)
        if any(unbounded(part) for part in node.decorator_list) and may_keep_much(node, method=method):
            raise TriggerFound
        outside = [*node.decorator_list, *node.args.defaults, *(part for part in node.args.kw_defaults if part is not None)]
        self._many(outside)
        self.here = ScoutPlace(node, self.here)
        self._word(node.name)
        self._many(outside)
        args = node.args
        for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
            self._word(arg.arg)
        self._many(node.body)
        self._leave()
        self.here = self.here.above or self.here

    def _lambda(self, node: ast.Lambda) -> None:
        self._below(node.args)
        above, self.here = self.here, ScoutPlace(ast.ClassDef("", [], [], [], []), self.here)
        self._one(node.body)
        self.here = above

    def _class(self, node: ast.ClassDef) -> None:
        if any(name_of(base).endswith(("Loader", "TrainingArguments")) for base in node.bases):
            raise TriggerFound
        if is_data_class(
            [name_of(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases], {getattr(item, "name", "") for item in node.body}
        ):
            raise TriggerFound
        functions = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name in {"forward", "setup_context"}]
        if node.bases and any(sets_on_first(item) or fills_itself(item) for item in functions):
            raise TriggerFound
        if keeps_state(node, buffers="register_buffer" in self._text):
            raise TriggerFound
        self._many(node.decorator_list)
        self._many(node.bases)
        self._many(node.keywords)
        if any(isinstance(item, FUNCTIONS) and item.name in READS_SAMPLES for item in node.body) and caches(node):
            raise TriggerFound
        above, self.here = self.here, ScoutPlace(node, self.here)
        self._many(node.body)
        self.here = above

    # -- statements ----------------------------------------------------------------------------------------------------

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        here = self.here
        here.looped = True
        header: list[ast.expr] = [node.test] if isinstance(node, ast.While) else [node.target, node.iter]
        words = [word for part in header for word in names_in(part)]
        if not here.often and any("epoch" in word.lower() for word in words):
            here.often = True
        if not isinstance(node, ast.While):
            self._kept_whole(node)
        self._many(header)
        over = None if isinstance(node, ast.While) else node.iter
        loop = ScoutLoop(batches=False) if over is None or isinstance(node, ast.While) else self._goes_over(node.target, over)
        loop.node = node
        here.loops.append(loop)
        self._many(node.body)
        here.loops.pop()
        if loop.carries and (loop.batches or loop.trains):
            raise TriggerFound
        self._many(node.orelse)

    def _goes_over(self, target: ast.expr, over: ast.expr) -> ScoutLoop:
        """A loop, by what it goes over."""
        words = [*names_in(target), *names_in(over)]
        batches = gives_batches(over) or any(word in self.loaders or _SHORT_NAME.search(word) for word in words)
        return ScoutLoop(batches, not counts(over), frozenset(row_names(target)))

    def _kept_whole(self, node: ast.For | ast.AsyncFor) -> None:
        """``for batch in loader: batches.append(batch)``."""
        only = node.body[0] if len(node.body) == 1 else None
        if (
            self.speaks
            and isinstance(only, ast.Expr)
            and isinstance(only.value, ast.Call)
            and name_of(only.value.func) == "append"
            and len(only.value.args) == 1
        ):
            given = only.value.args[0]
            if isinstance(given, ast.Name) and isinstance(node.target, ast.Name) and given.id == node.target.id:
                raise TriggerFound

    def _import(self, node: ast.Import) -> None:
        self.imports = True
        self.others.imports(node)
        for alias in node.names:
            if alias.asname and alias.name.partition(".")[0] == "torch":
                self.torches.add(alias.asname)
            if alias.asname and not _OPENERS.isdisjoint(alias.name.split(".")):
                self.openers.add(alias.asname)

    def _import_from(self, node: ast.ImportFrom) -> None:
        self.imports = True
        library = (node.module or "").partition(".")[0] if not node.level else ""
        self.others.imports(node)
        for alias in node.names:
            if alias.name in {"empty_cache", "collect", "load"} and library not in _NOT_FROM_TORCH:
                raise TriggerFound
            if library == "torch" or alias.name == "torch":
                self.torches.add(alias.asname or alias.name)
            if alias.asname and (alias.name.endswith(("Loader", "TrainingArguments")) or alias.name in READS):
                self.aliases.add(alias.asname)
            if alias.asname and alias.name in _OPENERS:
                self.openers.add(alias.asname)

    def _global(self, node: ast.Global) -> None:
        self.outer.update(node.names)

    def _try(self, node: ast.Try) -> None:
        if self.here.loops and any(keeps_exception(handler) for handler in node.handlers):
            raise TriggerFound
        self._below(node)

    def _builds(self, node: ast.expr) -> None:
        """Note that a model or a data module keeps an array which it makes while it is built."""
        if getattr(self.here.node, "name", "") in BUILDERS and makes_array(node):
            self.makes = True

    def _assign(self, node: ast.Assign) -> None:
        value = node.value
        if any(isinstance(target, ast.Attribute) for target in node.targets):
            self._builds(value)
        if isinstance(value, ast.Call | ast.Name | ast.Attribute | ast.IfExp) and self.loaders and any("oader" in word for word in names_in(value)):
            self.aliases.update(target.id for target in node.targets if isinstance(target, ast.Name))
        for target in node.targets:
            self._stored(target, value)
            self._roomy(target, value)
        if len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(value, ast.Call):
                self._carried(target, value)
            if self.here.loops and joins(target, value) and self._may_join(node, self.here.loops[-1]):
                raise TriggerFound
        self._below(node)

    def _may_join(self, node: ast.Assign, loop: ScoutLoop) -> bool:
        """Whether to join a thing to itself round after round may be an oversight here: not where the round goes on with it."""
        return written(node.targets[0]) not in loop.targets and not (loop.node is not None and goes_on(loop.node, node))

    def _carried(self, target: ast.expr, call: ast.Call) -> None:
        """A call that is given what it sets, behind its first argument: a state that goes around, in a loop or on an object."""
        if len(call.args) + len(call.keywords) <= 1:
            return
        taken = set(row_names(target)) if self.here.loops else self._kept_by(target, call)
        if taken and any(key in taken for part in (*call.args[1:], *(k.value for k in call.keywords)) for key in row_names(part)):
            if not self.here.loops:
                raise TriggerFound
            for loop in self.here.loops:
                loop.carries = True

    def _kept_by(self, target: ast.expr, call: ast.Call) -> set[str]:
        """Attributes of the object itself that a call sets in a method, where that may be run for each batch and the call may be one of a module."""
        method, above = self.here.node, self.here.above
        if not isinstance(method, FUNCTIONS) or above is None or not isinstance(above.node, ast.ClassDef):
            return set()
        # Nobody calls a special method by its name.
        if method.name.startswith("__") and method.name.endswith("__") and method.name != "__init__" and not runs_backward(method):
            return set()
        base = call.func
        while isinstance(base, ast.Attribute):
            base = base.value
        if isinstance(base, ast.Name) and (base.id in self.torches or (base is call.func and hasattr(builtins, base.id))):
            return set()
        return {key for key in row_names(target) if key.startswith(f"{first_parameter(method)}.")}

    def _stored(self, target: ast.expr, value: ast.expr) -> None:
        """Note what is made empty, and what is filled under a key that is computed."""
        if isinstance(target, ast.Name | ast.Attribute):
            if is_empty(value):
                if isinstance(target, ast.Name) and isinstance(self.here.node, FUNCTIONS) and target.id not in self.outer:
                    self.here.bound.add(target.id)
                self.empties.add(self._holder(target))
        elif isinstance(target, ast.Subscript):
            self.here.places = self.here.places or bool(self.here.loops)
            small = isinstance(value, ast.Constant | ast.JoinedStr | ast.Compare) or (isinstance(value, ast.Call) and name_of(value.func) in _SMALL_CALLS)
            small = small or (isinstance(value, ast.Name) and self._is_given(value.id))
            if not small and not isinstance(target.slice, ast.Constant | ast.Slice):
                self._filled(target)
        elif isinstance(target, ast.Tuple | ast.List):
            for item in target.elts:
                self._stored(item, target)

    def _roomy(self, target: ast.expr, value: ast.expr) -> None:
        """An array that is made, and whose rows a loop then sets to what it cuts out of another or calls for."""
        if isinstance(target, ast.Name | ast.Attribute):
            if isinstance(value, ast.Call) and makes_room(value):
                self.here.rooms.add(written(target))
        elif (
            isinstance(target, ast.Subscript)
            and self.here.loops
            and not isinstance(value, ast.Constant)
            and not is_fixed(target.slice)
            and getattr(self.here.node, "name", "") not in NO_ROOTS - {"__init__"}
            and written(target.value) in self.here.rooms
            and (self._says(_SAVES) or any(loop.node is not None and cuts(loop.node) for loop in self.here.loops))
        ):
            raise TriggerFound

    def _augmented(self, node: ast.AugAssign) -> None:
        if self.here.loops and not isinstance(node.value, ast.Constant):
            self.here.keeps = True
        self._below(node)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            if isinstance(node.target, ast.Attribute):
                self._builds(node.value)
            self._stored(node.target, node.value)
        self._below(node)

    def _is_given(self, name: str) -> bool:
        """Whether a value is what the caller gives: a registry, unless it is the sample itself."""
        node = self.here.node
        if not isinstance(node, FUNCTIONS) or node.name == "__getitem__":
            return False
        return any(arg.arg == name for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs))

    def _filled(self, node: ast.expr) -> None:
        # No sample is read by a method of a model.
        if isinstance(self.here.node, FUNCTIONS) and self.here.node.name not in FILLERS and not self.here.in_module:
            while isinstance(node, ast.Subscript):
                node = node.value
            if not self._is_emptied(node):
                self.stores.add(self._holder(node))

    def _is_emptied(self, node: ast.expr) -> bool:
        """Whether it is an attribute of the object itself out of which a method takes something again."""
        method, above = self.here.node, self.here.above
        if not isinstance(node, ast.Attribute) or above is None or not isinstance(above.node, ast.ClassDef) or not isinstance(method, FUNCTIONS):
            return False
        if not isinstance(node.value, ast.Name) or node.value.id != first_parameter(method):
            return False
        if above.emptied is None:
            above.emptied = takes_out(above.node)
        return node.attr in above.emptied

    def _holder(self, node: ast.expr) -> str:
        """An attribute by its name, whatever it is of; a name of the module, or of a class, where it is no local one."""
        if isinstance(node, ast.Attribute):
            return f".{node.attr}" if isinstance(node.value, ast.Name) else ""
        if not isinstance(node, ast.Name):
            return ""
        if isinstance(self.here.node, ast.ClassDef):
            return f".{node.id}"
        if isinstance(self.here.node, FUNCTIONS) and node.id in self.here.bound:
            return ""
        return node.id

    def _expression(self, node: ast.Expr) -> None:
        call = node.value
        if isinstance(call, ast.Call) and name_of(call.func) == "predict" and isinstance(call.func, ast.Attribute) and call.args:
            raise TriggerFound
        self._one(call)

    # -- expressions ---------------------------------------------------------------------------------------------------

    def _name(self, node: ast.Name) -> None:
        if node.id in self.loaders:
            self.here.loader = True
        if node.id in MODES:
            self.here.runs = True
            self.movers.add(getattr(self.here.node, "name", ""))

    def _attribute(self, node: ast.Attribute) -> None:
        if node.attr in self.loaders:
            self.here.loader = True
        if node.attr in MODES:
            self.here.runs = True
        if node.attr in READY or (self.here.loops and node.attr in MOVES):
            self.here.evaluates = True
        if node.attr in MOVES | MODES:
            self.movers.add(getattr(self.here.node, "name", ""))
        if node.attr in DRIVES:
            self.here.drives = True
        self._one(node.value)

    def _constant(self, node: ast.Constant) -> None:
        if type(node.value) is int and node.value > LARGE_NUMBER:
            self.large = True

    def _row(self, node: ast.ListComp) -> None:
        part = node.generators[0]
        if self.speaks and isinstance(node.elt, ast.Name) and isinstance(part.target, ast.Name) and node.elt.id == part.target.id and not part.ifs:
            raise TriggerFound
        if self._says(_JOINS) and cuts(node.elt):
            raise TriggerFound
        self._comprehension(node)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        """A loop that may call something in its rounds."""
        elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        if not any(isinstance(part, ast.Call) for element in elements for part in ast.walk(element)):
            self._below(node)
            return
        loops = []
        for part in node.generators:
            self._one(part.iter)
            loops.append(self._goes_over(part.target, part.iter))
        self.here.looped = True
        self.here.loops += loops
        self._many([*elements, *(test for part in node.generators for test in part.ifs)])
        del self.here.loops[-len(loops) :]
        if any(loop.carries and loop.batches for loop in loops):
            raise TriggerFound

    def _call(self, node: ast.Call) -> None:
        name = name_of(node.func)
        self.called.add(name)
        if self.here.loops:
            self.here.helpers.add(name)
        if name.endswith(("Loader", "loader", "TrainingArguments")) or makes_data(name) or self._reads(name, node) or self._starts(name, node):
            raise TriggerFound
        if (name in FIGURES and self._says(DRAWS)) or (name in DENSE and isinstance(node.func, ast.Attribute)) or converts(node):
            raise TriggerFound
        here = self.here
        if name == "register_buffer":
            self._builds(node)
        if name in self.steps and here.loops and not (name == "update" and fills(node)):
            here.steps = True
        if name in _COPIES:
            here.copies = True
        if name in ADDS and here.loops:
            here.keeps = True
            if name == "append" and self._says(_JOINS) and any(loop.node is not None and cuts(loop.node) for loop in here.loops):
                raise TriggerFound
        if name in STEPS and here.loops:
            here.often = True
            for loop in here.loops if name != "step" else ():
                loop.trains = True
        for keyword in node.keywords:
            if keyword.arg is not None:
                self._keyword(name, keyword, keyword.arg)
        self._below(node)

    def _keyword(self, name: str, keyword: ast.keyword, word: str) -> None:
        if word in _LOADER_KEYWORDS or word in {"compute_metrics", "detect_anomaly"} or (word.startswith("dataloader_") and name.endswith("Config")):
            raise TriggerFound
        if word == "pin_memory" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True:
            raise TriggerFound
        # Whether a buffer is saved has nothing to do with workers.
        if is_worker_word(word) and name not in {"register_buffer", "Buffer"}:
            raise TriggerFound
        self._word(word)

    def _reads(self, name: str, node: ast.Call) -> bool:
        """Whether a call may open a file, or bring one into memory."""
        if name in READS or name == "File":
            return True
        if (name in ELEMENTWISE or name in HANDS_ON) and node.args:
            given = name_of(node.args[0])
            if given in {"load", "open", *READS}:
                return True
            self.others.note(node.args[0])
        base = node.func
        while isinstance(base, ast.Attribute):
            base = base.value
        library = base.id if isinstance(base, ast.Name) and base is not node.func else ""
        if name in {"load", "open"}:
            return (name == "load" or library in self.openers) and library not in _NOT_FROM_FILES
        self.others.note(node.func)
        return False

    def _starts(self, name: str, node: ast.Call) -> bool:
        """Whether a call is what one of the rules starts from."""
        if name in _ITERATES:
            return any("oader" in word or "_dl" in word for part in node.args for word in names_in(part))
        if name in _REPEATS:
            return bool(node.args) and not isinstance(node.args[0], ast.List | ast.Tuple | ast.Constant)
        if name in BACKWARDS:
            return len(node.args) > 1 or any(k.arg in {"retain_graph", "create_graph"} for k in node.keywords)
        if name in {"empty_cache", "collect"}:
            return not node.args
        if name in {"all_gather_object", "state_dict_type", "detect_anomaly", "set_detect_anomaly"}:
            return True
        if name == "state_dict":
            return self._says(_RANKS)
        if name == "load":
            return self._loads(node) and self._says(_DEVICES)
        if name == "load_from_checkpoint":
            return all(k.arg != "map_location" for k in node.keywords)
        if name == "add_state":
            return any(isinstance(part, ast.List) and not part.elts for part in (*node.args, *(k.value for k in node.keywords)))
        if name == "pin_memory":
            return not node.args
        if name == "setdefault":
            if len(node.args) > 1 and isinstance(node.func, ast.Attribute):
                self._filled(node.func.value)
            return False
        if name.startswith("register_") and name.endswith("hook"):
            return True
        return name[:1].isupper() and self._optimizes(node)

    def _loads(self, node: ast.Call) -> bool:
        """Whether a call may be ``torch.load`` without ``map_location``."""
        if len(node.args) > 1 or any(k.arg in {None, "map_location"} for k in node.keywords):
            return False
        base = node.func
        while isinstance(base, ast.Attribute):
            base = base.value
        return isinstance(base, ast.Name) and (base is node.func or base.id in self.torches)

    def _optimizes(self, node: ast.Call) -> bool:
        """Whether a call gets the parameters of a model, and may be made more than once."""
        if not self.here.loops and (not isinstance(self.here.node, FUNCTIONS) or self.here.node.name in {"__init__", "configure_optimizers"}):
            return False
        given = [*node.args, *(k.value for k in node.keywords if k.arg == "params")]
        return any(isinstance(part, ast.Call) and name_of(part.func) in PARAMETERS for value in given for part in ast.walk(value))


_HANDLERS: dict[type, Callable[[Look, Any], None]] = {
    ast.FunctionDef: Look._function,  # noqa: SLF001 - the table belongs to the class
    ast.AsyncFunctionDef: Look._function,  # noqa: SLF001
    ast.Lambda: Look._lambda,  # noqa: SLF001
    ast.ClassDef: Look._class,  # noqa: SLF001
    ast.For: Look._loop,  # noqa: SLF001
    ast.AsyncFor: Look._loop,  # noqa: SLF001
    ast.While: Look._loop,  # noqa: SLF001
    ast.Import: Look._import,  # noqa: SLF001
    ast.ImportFrom: Look._import_from,  # noqa: SLF001
    ast.Global: Look._global,  # noqa: SLF001
    ast.Try: Look._try,  # noqa: SLF001
    ast.Assign: Look._assign,  # noqa: SLF001
    ast.AugAssign: Look._augmented,  # noqa: SLF001
    ast.AnnAssign: Look._annotated,  # noqa: SLF001
    ast.Expr: Look._expression,  # noqa: SLF001
    ast.Name: Look._name,  # noqa: SLF001
    ast.Attribute: Look._attribute,  # noqa: SLF001
    ast.ListComp: Look._row,  # noqa: SLF001
    ast.SetComp: Look._comprehension,  # noqa: SLF001
    ast.DictComp: Look._comprehension,  # noqa: SLF001
    ast.GeneratorExp: Look._comprehension,  # noqa: SLF001
    ast.Call: Look._call,  # noqa: SLF001
    ast.Constant: Look._constant,  # noqa: SLF001
}
