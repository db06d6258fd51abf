"""How a finding of a rule is measured by running the code: small data that the rule declares, and the verifier carries out."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace


class Quantity(StrEnum):
    """What is counted after each step of a loop."""

    NODES = "nodes"  # autograd nodes
    STORAGES = "storages"  # live tensors
    TENSOR_BYTES = "tensor_bytes"
    PYTHON_BYTES = "python_bytes"  # of Python objects
    ARRAY_BYTES = "array_bytes"
    DEVICE_BYTES = "device_bytes"
    SAVED_BYTES = "saved_bytes"  # for backward, in each step
    COPIED_BYTES = "copied_bytes"  # in each step, more than in the one before
    LEFT_BYTES = "left_bytes"  # of tensors at the end of a step, against a run that frees its graph
    LOADERS = "loaders"  # built
    PROCESSES = "processes"  # worker processes started
    ITERATORS = "iterators"  # passes over a loader begun
    DESCRIPTORS = "descriptors"  # open
    IDENTIFIERS = "identifiers"  # of HDF5, open


class LoopPlan(Struct, frozen=True):
    """How the loop of a finding is run, and what is counted; what decides comes first."""

    ends: tuple[Quantity, ...] = ()  # it shows the symptom; a fix ends it
    eases: tuple[Quantity, ...] = ()  # it shows the symptom; a fix makes it less
    also: tuple[Quantity, ...] = ()  # it shows nothing by itself; it must not get more
    steps: int = 12
    epochs: int = 1
    workers: int = 0
    simulated: bool = False  # with a pretended accelerator
    against: bool = False  # where there is no fix: compare with a run in which each backward pass frees its graph


# What is kept besides a graph, such as detached outputs in a list, is kept on purpose: the graph is what these rules speak of.
GRAPH: Final = LoopPlan(ends=(Quantity.NODES,), also=(Quantity.TENSOR_BYTES, Quantity.STORAGES))
HELD: Final = LoopPlan(ends=(Quantity.TENSOR_BYTES, Quantity.STORAGES, Quantity.PYTHON_BYTES), also=(Quantity.NODES,))
TENSORS: Final = LoopPlan(ends=(Quantity.TENSOR_BYTES, Quantity.STORAGES))
HANDLES: Final = LoopPlan(ends=(Quantity.IDENTIFIERS, Quantity.DESCRIPTORS))
PICKLE_ERROR: Final = r"pickl|h5py objects|Environment|reduce_|__getstate__"  # what the exception says where something cannot be sent to a worker


class DatasetSign(StrEnum):
    """What is measured of a dataset that is built and read."""

    COPIES = "copies"  # what each worker adds to the memory by reading
    PICKLING = "pickling"
    SENT = "sent"  # whether it gets to workers that are not forked
    WORKERS = "workers"  # what workers cost against none
    CACHES = "caches"  # what is held after each epoch
    OPENED_ON_IMPORT = "opened_on_import"
    ITEM_READS = "item_reads"  # bytes read, and memory taken, for one sample
    BUILT = "built"  # bytes held once it is built, and the most while that is done
    DESCRIPTORS = "descriptors"  # what each sample leaves open
    KEPT = "kept"  # handles that the object keeps
    INTERRUPTED = "interrupted"  # what an exception in the middle leaves open
    CHUNK_CACHE = "chunk_cache"  # memory that stays taken after reading


class FunctionSign(StrEnum):
    """What is measured of a function that is called."""

    READS = "reads"  # bytes read by a call
    COPIES = "copies"  # the most memory during a call, against what stays
    MEMORY = "memory"  # the most memory during a call, against the data
    HANDLES = "handles"  # what is open after it


class CallCheck(StrEnum):
    """How a loader's call, cut out of the program, is looked at."""

    OPTION = "option"  # it raises for an option without workers
    OPTION_ZERO = "option_zero"  # it raises for an option that is 0
    PICKLED = "pickled"  # a function that it is given cannot be sent to workers
    HELD = "held"  # what is measured of the dataset is measured of stand-in data as well, of the kind that it holds
    CYCLE = "cycle"  # an expression that repeats a loader
    WHOLE = "whole"  # an expression that keeps all of a loader
    PREDICT = "predict"
    TRAINER = "trainer"  # a trainer's arguments


class WorkerCheck(StrEnum):
    """What is asked of a loader's workers."""

    INITIALISED = "initialised"
    OVERSIZED = "oversized"
    IN_FLIGHT = "in_flight"
    TOGETHER = "together"


class CommandSign(StrEnum):
    """What is measured of the user's own command, beside what grows."""

    WORKER_MEMORY = "worker_memory"
    PROCESS_MEMORY = "process_memory"
    READS = "reads"  # from files, for a step


class Trait(StrEnum):
    """What the verifier has to take into account."""

    # of datasets
    AT_ROW = "at_row"  # found where it happens, not at a loader
    MORE_DATA = "more_data"  # measured with more data than it takes to run
    OWN_SIZE = "own_size"  # says itself when the data are too small
    IN_CLASS = "in_class"  # of what the class itself holds, or of something beside it
    SPAWNED = "spawned"  # workers that are spawned count, not forked ones
    READS_ALL = "reads_all"  # shown where most of the data is read while it is built
    PASSES_THROUGH = "passes_through"  # or read as a whole, and only a part of it kept
    INFLATES = "inflates"  # shown where three times the bytes of the data are held
    DOUBLES = "doubles"  # shown where there is twice of what stays
    PASSING = "passing"  # what stays shows nothing
    IN_NO_FILE = "in_no_file"  # memory that is in no file counts
    OF_TENSORS = "of_tensors"  # what is read has to hold tensors
    DRAWN = "drawn"  # numbers may be drawn as another type
    CLOSED_BY_PYTHON = "closed_by_python"  # what goes with its last reference
    # of loops
    EVALUATES = "evaluates"  # not said of training
    RAISES = "raises"  # it can be an exception in the second step
    EMPTIES = "empties"  # the fix empties what the row fills
    MODEL_HIDES = "model_hides"  # a stand-in of a model may hide the symptom
    LEARNS = "learns"  # an unsafe fix changes what is computed in a loop, on purpose
    RETYPES = "retypes"  # an unsafe fix leaves integers what they are
    NUMBERS = "numbers"  # fixes by hand take numbers out of tensors
    OTHER_KERNELS = "other_kernels"  # without gradients torch may choose other kernels
    RECORDS_GRAPH = "records_graph"  # nothing is shown where no graph is recorded
    COPIES_BYTES = "copies_bytes"  # nothing is shown where nothing is copied
    STARTS_WORKERS = "starts_workers"  # nothing is shown where no worker is started
    FEWER_PASSES = "fewer_passes"  # a fix begins fewer passes over a loader, and each draws random numbers
    OF_STATES = "of_states"  # copies of states, of which one has to stay
    BESIDE_LOOP = "beside_loop"  # it may stand before the loop in which it shows
    OF_CONTEXT = "of_context"  # of an autograd function, which is run by itself
    # of commands
    MEANT = "meant"  # an unsafe fix changes what a command computes, on purpose
    AGAIN = "again"  # batches come again, in another order
    SAVES = "saves"  # bytes saved for backward are counted
    BY_EPOCH = "by_epoch"  # the row may be run once an epoch
    IN_WORKERS = "in_workers"  # it may happen in workers, which are not looked into
    ON_DEVICE = "on_device"
    NOT_BY_COMMAND = "not_by_command"  # what grows is not seen in a command
    # of patches
    OF_LOADER = "of_loader"  # a patch may change one loader
    RAISES_FIRST = "raises_first"  # fixes of the same call belong together: each raises before the next is looked at
    KEEPS_GRAPH = "keeps_graph"  # fixes in the same function belong together: each keeps the graph that the next keeps


class Measurement(Struct, frozen=True):
    """What of a finding can be measured, and by which strategies. Nothing, where no strategy is named."""

    dataset: tuple[DatasetSign, ...] = ()
    function: FunctionSign | None = None
    loop: LoopPlan | None = None
    call: CallCheck | None = None
    workers: WorkerCheck | None = None
    command: tuple[CommandSign, ...] = ()
    growth: LoopPlan | None = None  # in a command, where it is other than in the loop
    option: str = ""  # the argument of a loader that the rule speaks of
    error: str = ""  # what an exception says that the rule speaks of: a regular expression
    needs: str = ""  # what it takes to measure it, and no sandbox has
    scale: int = 1  # by how much less data than usual is taken
    traits: frozenset[Trait] = frozenset()

    @property
    def command_loop(self) -> LoopPlan | None:
        """What grows in a command: epochs are not counted there."""
        if self.growth is not None or self.loop is None or Trait.NOT_BY_COMMAND in self.traits:
            return self.growth
        return replace(self.loop, epochs=1)

    @property
    def strategies(self) -> tuple[str, ...]:
        """The strategies that measure it, the most faithful first."""
        named = {
            "command": self.command or self.command_loop or self.error,
            "datasets": self.dataset,
            "functions": self.function,
            "loops": self.loop,
            "calls": self.call,
            "workers": self.workers,
        }
        return tuple(name for name, wanted in named.items() if wanted)


UNMEASURED: Final = Measurement()
ON_DEVICE: Final = Measurement(needs="an accelerator")
ON_RANKS: Final = Measurement(needs="a training of several ranks")
