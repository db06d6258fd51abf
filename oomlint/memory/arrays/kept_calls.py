"""The way of data into calls: what a call does with an argument, whether its result holds it, and what functions and classes of the project make of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.api_names import CONTAINERS, PICTURE_OF_ARRAY, PUTS_IN, REDUCTIONS, RUNS_JOBS, SCALARS, SHARES, STACKS, TENSOR_TYPES, WRAPPERS
from oomlint.frameworks import IN_MEMORY_DATASETS
from oomlint.memory.arrays.kept_forms import adds, makes_array
from oomlint.memory.arrays.kept_names import KeptNames
from oomlint.memory.arrays.kept_state import DEEPEST, EACH, DataTransform, Given, Going, Keeper, KeptSearch
from oomlint.memory.datasets.samples import row_bytes
from oomlint.memory.datasets.serving import Entered
from oomlint.memory.shared.array_bytes import SHORT_ROW
from oomlint.memory.shared.byte_size import item_bytes
from oomlint.model import arguments, names
from oomlint.model.arguments import parameter_of
from oomlint.model.readings import AnswerMemory
from oomlint.model.values import ClassRef, Const, External, ExternalCall, FunctionRef, Instance

if TYPE_CHECKING:
    from oomlint.memory.arrays.kept_state import Passed
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

# Functions whose result is small whatever they are asked of.
SMALL_FUNCTIONS: Final = frozenset(
    "len sum max min print range isinstance type any all hash repr mean std var median unique count_nonzero bincount Counter amax amin argmax argmin "
    "average nanmean nanstd percentile quantile id show plot imshow save savez savez_compressed dump dumps savetxt to_csv imsave imwrite write log info debug "
    "warning warn error allclose array_equal isnan isfinite isinf histogram where argwhere nonzero searchsorted ndim shape size format summary hasattr "
    "getattr set linspace".split(),
)
# Of these words and those that put into a container, what NumPy and torch mean by something else: they give an array for one.
_OF_ARRAYS_ONLY: Final = frozenset({PICTURE_OF_ARRAY, "torch.from_numpy"})
_BY_LIBRARY: Final = frozenset({"append", "insert", "log", "where"})
# Methods, and functions outside of NumPy and torch, that give about as much as they are asked of.
KEEPS: Final = frozenset(
    "convert resize imresize cvtColor clamp astype copy float double half numpy asarray array transpose permute reshape view crop to clone squeeze unsqueeze "
    "contiguous flatten ravel rotate flip cuda cpu type get_fdata get_data stack concatenate append extend insert list tuple dict tqdm enumerate zip "
    "sorted items values result as_completed img_as_float img_as_ubyte rgb2gray ToTensor to_tensor swapaxes clip round pad repeat tile".split(),
)
JOINS: Final = STACKS | {"array", "asarray", "tensor"}
MAKES: Final = frozenset({"array", "asarray", "tensor"})  # one array of what stands there
_NOT_OF_ARRAYS: Final = ("pandas.", "scipy.sparse.")  # what joins tables, and matrices of which only a few elements are there
_ARRAYS: Final = SHARES | TENSOR_TYPES
_OBJECTS: Final = frozenset({"builtins.object", "numpy.object_", "numpy.object"})
_PICKS: Final = frozenset({"take", "take_along_axis", "choice", "index_select", "gather", "masked_select", "narrow"})  # rows, as an index picks them
_DRAWS: Final = frozenset({"random.choice", "random.choices", "random.sample"})  # elements of a list, as an index picks them
_LOOKS_UP: Final = frozenset({"get", "pop", "index", "lookup", "load_state_dict", "count", "join", "startswith", "isin"})
# What writes all of a value to one file.
_SAVES: Final = frozenset(
    "numpy.save numpy.savez numpy.savez_compressed torch.save pickle.dump cPickle.dump _pickle.dump dill.dump joblib.dump scipy.io.savemat "
    "hickle.dump safetensors.torch.save_file".split()
)
_SAVING: Final = frozenset(name.rpartition(".")[2] for name in _SAVES)
_MOST_WAYS: Final = 4  # functions that one call may run
_DATASETS: Final = frozenset({"DataLoader", "TensorDataset", "Subset", "ConcatDataset", "random_split", "StackDataset"})


# Libraries whose functions give an array for one, as large or nearly so.
_ARRAY_LIBRARIES: Final = (
    *("numpy.", "torch.", "torchvision.", "PIL.", "builtins.", "cv2.", "skimage.transform.", "skimage.color.", "skimage.util.", "scipy.ndimage."),
    *("scipy.signal.", "torchaudio.transforms.", "torchaudio.functional.", "librosa.feature.", "librosa.effects.", "librosa.core."),
    "pandas.DataFrame",
    "pandas.Series",
    "torch_geometric.data.",
    *("librosa.power_to_db", "librosa.amplitude_to_db", "librosa.stft", "librosa.cqt", "librosa.resample", "librosa.to_mono"),
)
# What makes `float64` of bytes, and leaves `float32` as it is (scikit-image 0.26).
_WIDENS: Final = re.compile(r"skimage\.(transform\.(resize|rescale|rotate)|(util\.)?img_as_float(64)?|color\.rgb2(lab|hsv|luv|xyz|ycbcr|gray))$")
# Methods of arrays alone that give all of one: in another shape, or of another type.
_RESHAPED: Final = frozenset("reshape astype squeeze unsqueeze transpose permute flatten ravel swapaxes float half double contiguous".split())
_OF_SHAPES: Final = frozenset({"zeros_like", "ones_like", "empty_like", "full_like"})


def _own_place(module: Module, call: cst.Call, arg: cst.Arg) -> int | None:
    """Where a call that nobody can look into gives an argument back, by the name that its result takes there: ``image, boxes = augment(image, boxes)``."""
    holder = module.walk.parents.get(call)
    target = holder.targets[0].target if isinstance(holder, cst.Assign) else None
    if not isinstance(target, cst.Tuple) or not isinstance(arg.value, cst.Name) or len(target.elements) != len(call.args):
        return None
    place = next(number for number, one in enumerate(call.args) if one is arg)
    if any(one.keyword is not None or one.star for one in call.args):
        return None
    return place if names.dotted(target.elements[place].value) == arg.value.value else None


def keeps_axes(call: cst.Call, *, of: int) -> bool:
    """Whether a reduction leaves some axes of an array: which it reduces is said behind the ``of`` arguments that are the array."""
    return names.last_name(call.func) in REDUCTIONS and len(call.args) > of and names.dotted(call.func) not in REDUCTIONS


def keeps_size(name: str) -> bool:
    """Whether a function of a library gives about as much as it is given: those that give less are known (`SMALL_FUNCTIONS`)."""
    return name.startswith(_ARRAY_LIBRARIES) or name.rpartition(".")[2] in KEEPS


class KeptCalls(KeptNames):
    """Follows a value into what is called."""

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        self._passes: AnswerMemory[tuple[Scope, str, tuple[str, ...], bool], tuple[tuple[Given, ...], tuple[Passed, ...]]] = AnswerMemory(project.readings)
        self._stores: AnswerMemory[tuple[Scope, str, tuple[str, ...], bool], tuple[Given, ...]] = AnswerMemory(project.readings)
        self._rows: AnswerMemory[cst.CSTNode, int | None] = AnswerMemory(project.readings)

    def of_rounds(self, module: Module, node: cst.CSTNode, keeper: Keeper) -> Keeper:
        """A keeper of one value, or of many: the function that adds it to a container is called in the rounds of a loop."""
        scope = module.walk.scope_at(node)
        if not keeper.many and keeper.given and keeper.owner is not None and self._gives_owner(module, scope, keeper.owner):
            return replace(keeper, many=any(self._collected(site.module, site.call) for site in self.evaluator.calls.sites(module, scope)))
        if keeper.many or keeper.module is not module or not adds(keeper.node):
            return keeper
        if not scope.is_function or module.walk.scope_at(keeper.node) is not scope or len(names.parameters(scope)) <= names.is_method(scope):
            return keeper
        sites = self.evaluator.calls.sites(module, scope)
        return replace(keeper, many=True) if any(self.gathering(site.module, site.call) is not None for site in sites) else keeper

    def _gives_owner(self, module: Module, scope: Scope, owner: ClassRef) -> bool:
        """Whether a function returns a new object of a class: ``return Recording(raw)``."""
        made = [row.value for row in scope.returns if row.value is not None] if isinstance(scope.node, cst.FunctionDef) else []
        frame = self.evaluator.calls.plain_frame(module, scope)
        found = (alt.value for node in made for alt in self.evaluator.values(node, frame)[:3])
        return any(isinstance(one, Instance) and one.cls.scope is owner.scope for one in found)

    def as_it_is(self, module: Module, node: cst.CSTNode) -> bool:
        """Whether an element goes on as a whole: by its name, as the picture or the tensor that is made of an array, in another shape or type."""
        while isinstance(node, cst.Call):
            if isinstance(node.func, cst.Attribute) and node.func.attr.value in _RESHAPED:
                node = node.func.value
                continue
            if not node.args or node.args[0].star:
                return False
            found = self.evaluator.values(node.func, self.evaluator.calls.plain_frame(module, module.walk.scope_at(node)))
            if not any(isinstance(alt.value, External) and names.canonical(alt.value.name) in _OF_ARRAYS_ONLY for alt in found):
                return False
            node = node.args[0].value
        return isinstance(node, cst.Name)

    def _collected(self, module: Module, call: cst.Call) -> bool:
        """Whether the rounds of a loop put what a call gives into a container."""
        holder = module.walk.parents.get(call)
        put = module.walk.parents.get(holder) if isinstance(holder, cst.Arg) else None
        puts = isinstance(put, cst.Call) and isinstance(put.func, cst.Attribute) and put.func.attr.value in PUTS_IN
        return (puts or isinstance(holder, cst.ListComp | cst.DictComp)) and self.gathering(module, call) is not None

    def follow_argument(self, search: KeptSearch, module: Module, call: cst.Call, arg: cst.Arg, going: Going) -> Going | None:
        """Follow the value into what is called; what holds for the result of the call, or ``None`` where the value ends there."""
        last = names.last_name(call.func)
        going = replace(going, cut=True) if last in _PICKS else going
        walk = module.walk
        of_arrays = last in _BY_LIBRARY and self._is_of_arrays(module, call)
        if isinstance(call.func, cst.Attribute) and last in PUTS_IN and not of_arrays and not self._is_own(module, call):
            self._put_in(search, module, call, call.func, arg, going)
            return None
        if last in _SAVING and search.inside is None:
            self._saved(search, module, call, arg, going)
        if of_arrays and last == "where" and (len(call.args) == 1 or call.args[0] is arg):
            return None  # places in an array, or which of two arrays a number is taken from
        if last in SMALL_FUNCTIONS and not of_arrays and not (going.part and keeps_axes(call, of=1)):
            return None
        if isinstance(call.func, cst.Attribute) and (last in _LOOKS_UP or (last == "split" and self._picks_folds(module, call.func.value))):
            return None
        number = last in SCALARS and (not going.part or makes_array(search.start))  # of an array that is made there, even a part is a number then
        if number or (going.listed and call.args[0] is arg and self.joins(module, call) and self.makes_short_rows(module, call)):
            return None
        if last in {"register_buffer", "setattr"} and isinstance(call.func, cst.Name | cst.Attribute):
            if arg.keyword is None and list(call.args).index(arg) != (2 if last == "setattr" else 1):
                return None  # the object and the name are not what is stored
            name = next((str(a.value.evaluated_value) for a in call.args if isinstance(a.value, cst.SimpleString)), "")
            self.follow_attribute(search, module, call, walk.scope_at(call), name, going)
            return None
        if arg.star:
            going = replace(going, mixed=False)
        if arg.keyword is not None and isinstance(call.func, cst.Name) and call.func.value == "dict":
            going = replace(going.named(arg.keyword.value), keys=(*going.keys, (arg.keyword.value, arg.keyword.value)))
        going = self._joined(search, module, call, arg, going)
        if search.inside is not None:  # an object is something else than what it was made of
            return self._inside(module, call, arg, going, pools=search.pools)
        frame = self.evaluator.calls.plain_frame(module, walk.scope_at(call))
        called = [alt.value for alt in self.evaluator.values(call.func, frame)[:_MOST_WAYS]]
        functions = [value for value in called if isinstance(value, FunctionRef) and not isinstance(value.scope.node, cst.Lambda)]
        for value in called[:3]:
            if value in functions:  # or any of the others: which of several judges a round runs, nobody knows
                gives = [self._into(search, module, function, call, arg, going) for function in functions]
                return next((one for one in gives if one is not None), None)
            if isinstance(value, ClassRef):
                return self._made(search, module, value, call, arg, going)
            if isinstance(value, External) and value.name.rpartition(".")[2] in _DATASETS and value.name.startswith("torch"):
                if value.name.endswith(".Subset") and arg is not arguments.arg_for(call, "dataset", place=0):
                    return None  # the rows that it picks
                if not going.part:
                    words = f"a `{value.name.rpartition('.')[2]}`"
                    search.found.append(going.kept_by(module, call, words))
                return None
            if isinstance(value, ExternalCall) and names.canonical(value.name) == RUNS_JOBS:
                return replace(going, index=None, listed=True)  # the results of the jobs, in their order
            if isinstance(value, External):
                return self._library_gives(search, module, value, call, arg, going)
        given = self._given_by(going, call, known=last in KEEPS or self._collates(module, call))
        return replace(given, index=_own_place(module, call, arg)) if given is not None else None

    def _collates(self, module: Module, call: cst.Call) -> bool:
        """Whether a dataset of torch_geometric makes one graph of a list of them: ``self.collate(graphs)``."""
        if names.last_name(call.func) != "collate" or not isinstance(call.func, cst.Attribute):
            return False
        found = (alt.value for alt in self.evaluator.plainly(call.func.value, module, module.walk.scope_at(call))[:2])
        return any(isinstance(one, Instance) and self.evaluator.derives(one.cls, *IN_MEMORY_DATASETS) for one in found)

    def _picks_folds(self, module: Module, node: cst.BaseExpression) -> bool:
        """Whether an object of scikit-learn gives the places of the rows of each fold, and no rows."""
        made = self.evaluator.plainly(node, module, module.walk.scope_at(node))[:2]
        return any(isinstance(alt.value, ExternalCall) and alt.value.name.startswith("sklearn.model_selection.") for alt in made)

    def _library_gives(self, search: KeptSearch, module: Module, function: External, call: cst.Call, arg: cst.Arg, going: Going) -> Going | None:
        """What a function of a library gives of the value."""
        last = names.last_name(call.func)
        if going.part and last in _OF_SHAPES:
            return None  # room for one, made of its shape alone
        if last in _ARRAYS | MAKES and item_bytes(arguments.named(call, "dtype"), 0) == 1:
            going = going.as_bytes()
        if function.name in _DRAWS and call.args and call.args[0] is arg:
            self.picked(search, module, call, going)
        if names.canonical(function.name) == PICTURE_OF_ARRAY:
            going = going.as_bytes().doing(DataTransform.PICTURES, module, call)
        if _WIDENS.match(function.name) and not going.retyped and _interpolates(call):
            going = going.doing(DataTransform.SCALES, module, call)
        if last in JOINS or last in _ARRAYS or function.name == "dask.compute":
            going = going.doing(DataTransform.READS, module, call)
        if function.name.startswith("torch.") and not going.part and self.moves(module, call):
            going = self.moved_by(search, module, call, going)
        return self._given_by(going, call, known=keeps_size(function.name))

    def _joined(self, search: KeptSearch, module: Module, call: cst.Call, arg: cst.Arg, going: Going) -> Going:
        """What holds for the result of a call that makes one array of the value: of all the arrays of a list, or a copy of one."""
        last = names.last_name(call.func)
        listed = going.listed and not (going.mixed or going.fields) and not self._of_references(module, call)  # what references are of is not copied
        if listed and call.args and call.args[0] is arg and self.joins(module, call):
            # Two arrays that stand there are no list of all, but for each round has one of them; all of both is copied.
            shown = isinstance(arg.value, cst.List | cst.Tuple)
            does = DataTransform.JOINS if going.many or not shown else DataTransform.COPIES
            few = going.part or going.some or last in MAKES
            going = replace(going if does is DataTransform.COPIES and few else going.doing(does, module, call), listed=False)
            if going.many and going.gathered is not None and not going.part and search.inside is None and self.runs_once(module, call):
                search.joined.append(going.kept_by(module, call, f"what `{module.function_of(call)}` makes", live=True))
        elif last in {"tensor", "array"} and not going.listed and call.args[0] is arg:
            going = going.doing(DataTransform.COPIES, module, call)
        return going

    def _put_in(self, search: KeptSearch, module: Module, call: cst.Call, func: cst.Attribute, arg: cst.Arg, going: Going) -> None:
        """Follow the value into the container that a method adds it to."""
        last = func.attr.value
        position = 0 if last not in {"insert", "setdefault"} else 1
        if arg.keyword is None and list(call.args).index(arg) != position:
            return
        onward = replace(
            going,
            collected=going.collected or (going.part and not self.as_it_is(module, arg.value)),
            rebuilt=going.rebuilt or going.part,
            part=False,
            listed=last == "append",
            fields=going.fields if last in {"extend", "update"} else going.held_by(EACH).fields,
        )
        self.follow_target(search, module, call, func.value, onward.gathered_by(self.gathering(module, call), module, call, part=going.part))

    def joins(self, module: Module, call: cst.Call) -> bool:
        """Whether a call makes one array of several."""
        if names.last_name(call.func) not in JOINS:
            return False
        found = self.evaluator.plainly(call.func, module, module.walk.scope_at(call))[:3]
        return not any(isinstance(alt.value, External) and names.canonical(alt.value.name).startswith(_NOT_OF_ARRAYS) for alt in found)

    def makes_short_rows(self, module: Module, call: cst.Call) -> bool:
        """Whether each array of the list that a call joins is known to have a few numbers, as a pose or a box has."""
        size = self._rows.answer(call, lambda: row_bytes(self.project, module, call.args[0].value))
        return size is not None and size < SHORT_ROW

    def _inside(self, module: Module, call: cst.Call, arg: cst.Arg, going: Going, *, pools: bool) -> Going | None:
        """What a call gives of the value, where only the function around is looked at."""
        last = names.last_name(call.func)
        if last in KEEPS or last in JOINS or last in _ARRAYS:
            return replace(going, index=None)
        frame = self.evaluator.calls.plain_frame(module, module.walk.scope_at(call))
        for alt in self.evaluator.values(call.func, frame)[:3]:
            if isinstance(alt.value, External) and alt.value.name.rpartition(".")[2] in TENSOR_TYPES:
                return replace(going, index=None)
            if isinstance(alt.value, ClassRef):
                return next(iter(self._held(module, alt.value, call, arg, going)), None)
            if isinstance(alt.value, FunctionRef) and not isinstance(alt.value.scope.node, cst.Lambda) and not arg.star:
                name = parameter_of(alt.value, call, arg)
                places = self._passed(alt.value, name, going)[0] if name is not None else (Given(None, hazy=True),)
                return _given(going, places, inside=True) if places else None
            if pools and isinstance(alt.value, External) and keeps_size(alt.value.name):
                return self._given_by(going, call, known=True)
        if last[:1].isupper() and last not in {"Tensor", "FloatTensor"}:
            return None  # a class of a library, by custom
        return replace(going, index=_own_place(module, call, arg), hazy=True)

    @staticmethod
    def moved_by(search: KeptSearch, module: Module, call: cst.Call, going: Going) -> Going:
        """The value after a call that puts it on an accelerator."""
        if not (going.some or going.cut or going.fields or going.hazy or going.index is not None):
            search.moves.append(going.kept_by(module, call, f"`{' '.join(module.code(call).split())}`", live=True))
        return going.doing(DataTransform.MOVES, module, call)

    @staticmethod
    def _given_by(going: Going, call: cst.Call, *, known: bool) -> Going | None:
        """The value after a call that nobody can look into: where it is not ``known`` to give all of it back, it may be anything, made again in each round.

        What each round has put on an accelerator goes to a network there: what that makes of it is no longer the data.
        """
        if not known and going.many and any(done.does is DataTransform.MOVES for done in going.passed):
            return None
        going = replace(going, index=None, opened=going.opened and (bool(going.fields) or names.last_name(call.func) in CONTAINERS | WRAPPERS))
        return going if known else replace(going, hazy=True, since=call)

    def _of_references(self, module: Module, call: cst.Call) -> bool:
        """Whether a call is told to make an array of objects: ``dtype=object``."""
        given = arguments.named(call, "dtype")
        if given is None:
            return False
        frame = self.evaluator.calls.plain_frame(module, module.walk.scope_at(call))
        found = (alt.value for alt in self.evaluator.values(given, frame)[:2])
        return any(
            (isinstance(one, External) and names.canonical(one.name) in _OBJECTS) or (isinstance(one, Const) and one.value in {"O", "object"}) for one in found
        )

    def _is_of_arrays(self, module: Module, call: cst.Call) -> bool:
        """Whether a call is of NumPy or torch: ``np.log(x)``, and not ``logger.log(x)``."""
        found = self.evaluator.plainly(call.func, module, module.walk.scope_at(call))[:2]
        return any(isinstance(alt.value, External) and alt.value.name.startswith(("numpy.", "torch.")) for alt in found)

    def _is_own(self, module: Module, call: cst.Call) -> bool:
        """Whether a method is one of the project: what it does with its arguments stands there, whatever it is called."""
        frame = self.evaluator.calls.plain_frame(module, module.walk.scope_at(call))
        return any(isinstance(alt.value, FunctionRef) for alt in self.evaluator.values(call.func, frame)[:3])

    def _saved(self, search: KeptSearch, module: Module, call: cst.Call, arg: cst.Arg, going: Going) -> None:
        """What many reads brought into a container is written at once, when all of it is there."""
        if not going.many or going.part or going.fields or going.gathered is None or self.is_repeated(module, call):
            return
        frame = self.evaluator.calls.plain_frame(module, module.walk.scope_at(call))
        saves = any(isinstance(a.value, External) and names.canonical(a.value.name) in _SAVES for a in self.evaluator.values(call.func, frame)[:2])
        made = names.dotted(arg.value.func) if isinstance(arg.value, cst.Call) else ""
        if saves and (going.names or made):
            words = f"`{going.names[-1]}`" if going.names else f"what `{made}` gives"
            saver = names.dotted(call.func)
            going = replace(going, collected=going.collected or going.rebuilt)
            search.found.append(going.kept_by(module, call, words, live=True, saver=saver))

    def _into(self, search: KeptSearch, module: Module, function: FunctionRef, call: cst.Call, arg: cst.Arg, going: Going) -> Going | None:
        """Follow an argument into a function of the project; what holds for its result, or ``None`` where that does not hold the value."""
        name = parameter_of(function, call, arg, _part(arg, going))
        if arg.star == "**":
            if name is None:
                return None  # which parameter takes it nobody knows
            going = replace(going, keys=going.keys[:-1])
        if name is None or going.depth >= DEEPEST:
            return replace(going, index=None)
        into = (function.scope, name)
        key = ("into", *into, going.fields)
        if key not in search.seen:
            search.seen.add(key)
            deeper = replace(going, depth=going.depth + 1, index=None, entered=Entered(module, call, going.since, going.entered), into=into)
            self.follow_name(search, function.module, function.scope, name, None, deeper)
        else:  # what the function takes of it may come back here, too
            for place, part, known in search.picks.get(into, ()):
                self.picked(search, place, part, replace(known, entered=Entered(module, call, going.since, going.entered), into=None))
        places, made = self._passed(function, name, going)
        if not places:
            return None
        if going.whole:
            going = replace(going, passed=tuple(dict.fromkeys((*going.passed, *made))))
        return _given(going, places)

    def _passed(self, function: FunctionRef, name: str, going: Going) -> tuple[tuple[Given, ...], tuple[Passed, ...]]:
        """Where a function returns what it is given as ``name``, or what it makes of that; and what it computes of all of it on the way."""
        key = (function.scope, name, going.fields, going.opened)
        known = self._passes.get(key)
        if known is None:
            self._passes.assume(key, ((Given(None, going.fields, going.opened, hazy=True),), ()))  # a function that calls itself
            search = KeptSearch(inside=function.scope, parts=True)
            self.follow_name(search, function.module, function.scope, name, None, Going(fields=going.fields, opened=going.opened))
            self.run(search)
            gives = tuple(search.gives)
            if function.scope.yields and not any(one.fields for one in gives):
                gives = (Given(None, going.fields, going.opened, hazy=True),)
            known = self._passes[key] = gives, tuple(search.made)
        return known

    def _only_opened(self, module: Module, arg: cst.Arg) -> bool:
        """Whether an argument is a picture as `Image.open` gives it: nothing is decoded, unless the function has it loaded."""
        scope = module.walk.scope_at(arg)
        found = self.evaluator.plainly(arg.value, module, scope)[:3]
        opened = any(isinstance(one.value, ExternalCall) and names.canonical(one.value.name) == "PIL.Image.open" for one in found)
        return opened and not any(names.dotted(call.func) == f"{names.dotted(arg.value)}.load" for call in scope.calls)

    def _held(self, module: Module, cls: ClassRef, call: cst.Call, arg: cst.Arg, going: Going) -> list[Going]:
        """The value in each attribute of a new object that it is given to by an argument."""
        found = self.evaluator.method(_instance(cls), "__init__")
        if found is None:
            field = self._field(cls, call, arg)
            opened = going.opened or (not going.fields and self._only_opened(module, arg))
            return [replace(going.held_by(field), index=None, opened=opened)] if field else []
        name = parameter_of(found, call, arg, _part(arg, going))
        if name is None:
            return []
        key = (found.scope, name, going.fields, going.opened)
        known = self._stores.get(key)
        if known is None:
            self._stores.assume(key, ())
            search = KeptSearch(inside=found.scope)
            self.follow_name(search, found.module, found.scope, name, None, Going(fields=going.fields, opened=going.opened))
            self.run(search)
            known = self._stores[key] = tuple(search.stores)
        return [replace(going, index=None, fields=one.fields, opened=one.opened) for one in known]

    def _field(self, cls: ClassRef, call: cst.Call, arg: cst.Arg) -> str:
        """The field of a record, a dataclass or a named tuple, that an argument fills; empty where nobody knows."""
        fields = self.evaluator.fields(cls)
        if fields is None or arg.star:
            return ""
        place = list(call.args).index(arg)
        if arg.keyword is not None or place >= len(fields) or any(one.star for one in call.args[:place]):
            return arg.keyword.value if arg.keyword is not None else ""
        return fields[place][0]

    def _made(self, search: KeptSearch, module: Module, cls: ClassRef, call: cst.Call, arg: cst.Arg, going: Going) -> Going | None:
        """Follow an argument into a class: a dataset keeps it, any other object is followed itself."""
        found = self.evaluator.method(_instance(cls), "__init__")
        name = parameter_of(found, call, arg, _part(arg, going)) if found is not None else None
        going = replace(going, keys=going.keys[:-1]) if arg.star == "**" else going
        if (found is None or going.part) and not self.constructions.is_dataset(cls) and (held := self._held(module, cls, call, arg, going)):
            return replace(held[0], put=None) if going.part else held[0]
        if found is None or name is None or going.part:
            return None if self.constructions.is_dataset(cls) or going.fields else going
        key = ("made", found.scope, name, going.fields)
        if key not in search.seen and going.depth < DEEPEST:
            search.seen.add(key)
            self.follow_name(
                search, found.module, found.scope, name, None, replace(going, depth=going.depth + 1, index=None, given=True, entered=None, into=None)
            )
        return None


def _interpolates(call: cst.Call) -> bool:
    """Whether numbers between those of an array are worked out: of the nearest ones, ``order=0``, `resize` makes bytes again."""
    order = arguments.named(call, "order")
    return order is None or (isinstance(order, cst.Integer) and order.value != "0")


def _given(going: Going, places: tuple[Given, ...], *, inside: bool = False) -> Going:
    """The value as a function gives it back, at one place or somewhere; where there are several ways, that of which most is known."""
    first = min(places, key=lambda one: (one.hazy, one.opened))
    index = first.index if len({one.index for one in places}) == 1 else None
    put = going.put if first.fields == going.fields else first.put  # else it is in another object
    return replace(going, index=index, fields=first.fields, opened=first.opened, put=put, hazy=going.hazy or (inside and first.hazy))


def _part(arg: cst.Arg, going: Going) -> int | str | None:
    """Which part of a starred argument the value is: its place in ``*pair``, its key in ``**parts``; ``None`` where nobody knows."""
    if arg.star == "*":
        return going.index
    key = going.keys[-1] if arg.star == "**" and going.keys else ("", "")
    return key[0] if key[0] == key[1] and key[0] else None


def _instance(cls: ClassRef) -> Instance:
    return Instance(cls, None)
