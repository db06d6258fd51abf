"""Names of Python, NumPy, torch and their like that several analyses ask for, each group once. What a method does to a tensor's state: `torch_tables`."""

from __future__ import annotations

from typing import Final

# Loops: what gives the elements of its first argument, one by one.
WRAPPERS: Final = frozenset(
    "enumerate islice iter tqdm tqdm_notebook notebook auto_tqdm wrap_tqdm track progress_bar log_every reversed".split(),
)
GOES_OVER: Final = WRAPPERS | {"zip"}  # those, and what gives the elements of several together
ITERATORS: Final = GOES_OVER | frozenset(  # and what gives something of them, later and one by one
    "map filter chain from_iterable cycle starmap chunked takewhile dropwhile zip_longest tee pairwise peekable batched".split(),
)

# Functions: what gives one that calls another, with some of its arguments or as a job of a pool (`Parallel`, whose results are those of the jobs).
PARTIALS: Final = frozenset({"functools.partial", "joblib.delayed"})
HANDS_ON: Final = frozenset(name.rpartition(".")[2] for name in PARTIALS)
RUNS_JOBS: Final = "joblib.Parallel"

# HDF5: what opens a file. h5py's own are closed with the last reference, and PyTables' register keeps them until they are closed.
H5PY: Final = frozenset({"h5py.File", "h5py._hl.files.File"})
PYTABLES: Final = frozenset({"tables.open_file", "tables.file.open_file", "tables.openFile"})
H5_FILES: Final = H5PY | PYTABLES | {"h5pickle.File", "netCDF4.Dataset"}

# Built-in functions and types.
LOOKS: Final = frozenset("id isinstance len print repr str type".split())  # look at what they are given, and leave it as it is
COLLECTIONS: Final = frozenset("list tuple set frozenset sorted".split())  # make a collection of another
CONTAINERS: Final = frozenset({"list", "dict", "set", "OrderedDict", "defaultdict", "deque"})  # made empty, to be filled
EMPTY_CONTAINERS: Final = frozenset(
    "builtins.list builtins.dict builtins.set collections.defaultdict collections.OrderedDict collections.Counter collections.deque".split(),
)
SCALARS: Final = frozenset({"int", "float", "bool", "str"})
PLAIN_TYPES: Final = SCALARS | {"complex", "bytes", "numbers.Number"}  # of a number or a text
CONSTANTS: Final = frozenset({"True", "False", "None"})
RANGES: Final = frozenset({"range", "trange"})

# Containers: methods that put something in, and methods that take something out.
PUTS_IN: Final = frozenset("append appendleft extend add insert update setdefault put push".split())
TAKES_OUT: Final = frozenset({"pop", "popitem", "popleft", "clear", "remove"})
OF_DICTS: Final = frozenset("items keys values get pop copy update".split())

# Loaders: those of torch, what has a dataset as its attribute of that name, and options that say something only where there are workers.
LOADERS: Final = frozenset({"torch.utils.data.DataLoader", "torchdata.stateful_dataloader.StatefulDataLoader"})
HAS_DATASET: Final = LOADERS | {"torch.utils.data.Subset", "torch_geometric.loader.DataLoader", "torch_geometric.data.DataLoader", "monai.data.DataLoader"}
NEEDS_WORKERS: Final = frozenset({"persistent_workers", "prefetch_factor", "timeout", "multiprocessing_context"})

# Arrays: what is known of one without its data, what makes one of something else, and what joins several.
FACTS: Final = frozenset({"shape", "size", "ndim", "dtype", "nbytes", "itemsize"})
H5_FACTS: Final = frozenset({"chunks", "filename", "maxshape", "mode", "name"})  # and more of what HDF5 says of itself
VIEW_ATTRIBUTES: Final = frozenset({"T", "mT", "H", "real", "imag"})  # the same data
TURNS: Final = frozenset("T mT t transpose permute swapaxes".split())
OF_ARRAYS: Final = FACTS - {"size"} | TURNS | {"astype", "reshape", "squeeze"}  # and of no list, tuple or dictionary
ALLOCATORS: Final = frozenset({"zeros", "ones", "empty", "full"})
SHARES: Final = frozenset("asarray asanyarray ascontiguousarray as_tensor from_numpy".split())  # copies nothing where that is an array already
TENSOR_TYPES: Final = frozenset(
    "Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor ShortTensor".split(),
)
# What draws some of a list, and the name of the second argument, which says how many.
SAMPLES: Final = {"random.sample": "k", "numpy.random.choice": "size", "pydash.sample_size": "n"}
DRAWS: Final = frozenset("random random_sample standard_normal normal uniform integers rand randn randint".split())
RANDOM: Final = DRAWS | frozenset("choice choices shuffle sample permutation randperm randrange multinomial rand_like randn_like".split())
WRITES: Final = frozenset("save savez savez_compressed dump tofile to_csv savemat create_dataset".split())  # an array, to a file
SIZES: Final = frozenset({"shape", "size", "numel", "ndim", "nbytes", "empty", "dim"})
AS_ARRAY: Final = SHARES | {"array", "tensor"}
JOINS: Final = frozenset({"cat", "concat", "concatenate"})  # along an axis that is there
STACKS: Final = JOINS | frozenset("stack hstack vstack dstack column_stack row_stack".split())
OF_LISTS: Final = STACKS | AS_ARRAY | TENSOR_TYPES  # make one array or tensor of a list of them
SELECTS: Final = frozenset({"max", "min", "median", "mode"})  # with an axis: one element of each row
REDUCTIONS: Final = frozenset("sum mean min max amin amax std var median norm prod any all".split())  # to one number, where no axis is given

# Models: methods that give all parameters, and those that give back the model itself.
PARAMETERS: Final = frozenset({"parameters", "named_parameters"})
CASTS_MODEL: Final = frozenset({"half", "double", "bfloat16", "type"})  # to numbers of another size
MOVES_MODEL: Final = CASTS_MODEL | frozenset("to cuda cpu float apply compile share_memory".split())
SAME_MODEL: Final = MOVES_MODEL | {"eval", "train", "requires_grad_"}
MODEL_BASES: Final = ("torch.nn.", "lightning.", "pytorch_lightning.", "transformers.", "timm.", "torchvision.models.")  # what their names begin with

# Datasets: methods that read one sample, and those that read samples.
READS_ONE: Final = frozenset({"__getitem__", "__getitems__"})
READS_SAMPLES: Final = READS_ONE | {"__iter__"}

# Datasets of graphs: the bases whose methods and slices give a view of the same data.
GRAPH_BASES: Final = ("torch_geometric.data.",)
SAME_GRAPHS: Final = frozenset({"shuffle", "index_select", "copy"})

# Pictures: what makes one of an array of rows and columns, and of nothing else.
PICTURE_OF_ARRAY: Final = "PIL.Image.fromarray"

# Paths: what gives a path for a path.
SAME_PATH: Final = frozenset("str fspath Path PurePath PosixPath PurePosixPath abspath realpath normpath expanduser expandvars resolve absolute".split())

# Tests: contexts in which an exception is expected.
EXPECTS: Final = frozenset({"raises", "assertRaises", "assertRaisesRegex", "suppress"})
