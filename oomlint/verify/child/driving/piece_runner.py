"""Runs a piece of a program: its arguments, its ``self`` and its globals are the user's own where they can be had, and stand-ins elsewhere."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import os
import sys
import types
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import torch

from oomlint.verify import ast_names
from oomlint.verify.child.driving import instrumentation, torch_patches
from oomlint.verify.child.driving.instrumentation import Guide, nothing
from oomlint.verify.child.loading import toplevel
from oomlint.verify.child.loading.tolerant_import import Loaded, install, load
from oomlint.verify.child.server.exceptions import rows, seed
from oomlint.verify.child.slicing import slicer
from oomlint.verify.child.synthesis import deferred_value, name_heuristics, stub_optimizer
from oomlint.verify.child.synthesis.stub_objects import Stubs

if TYPE_CHECKING:
    from collections.abc import Callable

    State = dict[str, Any]

HOOKS: Final = ("on_{0}_epoch_end", "{0}_epoch_end")
# A loop around a custom autograd function: what its nodes hold is seen while the graph is kept, as by a sum of losses. The graph holds the leaves, too.
APPLIED: Final = """

def {name}({names}):
    import torch
    leaves = [item.detach().requires_grad_() if isinstance(item, torch.Tensor) else item for item in [{names}]]
    nodes = []
    for step in range(1):
        outputs = {cls}.apply(*[item * 1 if isinstance(item, torch.Tensor) else item for item in leaves])
        parts = [item for item in (outputs if isinstance(outputs, tuple) else [outputs]) if item.requires_grad]
        loss = torch.stack([item.sum() for item in parts]).sum()
        loss.backward()
        nodes.append(loss.grad_fn)
    return [item.detach() for item in parts], [getattr(item, "grad", None) for item in leaves]
"""
SIZE: Final = 4  # samples of a batch
BATCH: Final = frozenset("batch data batch_data inputs input x sample samples".split())


class Program:
    """A file of the project, with the place that matters in it.

    ``context``: a custom autograd function, dotted, which is applied in a loop of ours. Raises SyntaxError, and SliceError where there is no such function.
    """

    def __init__(self, path: str, root: str, function: str, row: int, context: str = "") -> None:
        self.path, self.root, self.function, self.row = os.path.realpath(path), os.path.realpath(root), function, row
        with open(self.path, "rb") as stream:
            self.text = importlib.util.decode_source(stream.read())
        self.inputs = _inputs(self.text, context) if context else []
        if context:
            self.text += APPLIED.format(name=f"{slicer.HIDDEN}applied", names=", ".join(self.inputs), cls=context)
            self.row = next(number for number, line in enumerate(self.text.splitlines(), 1) if line.startswith("        outputs = "))
        self.tree = ast.parse(self.text, self.path)
        self._pieces: dict[tuple[Any, ...], slicer.Piece] = {}
        self.flags = toplevel.flags(self.tree)

    @cached_property
    def loaded(self) -> Loaded:
        """The module; of a program whose cells or script are the piece, only the folder that its imports come from."""
        if self.function:
            return load(self.path, self.root)
        install(self.root)
        folder = os.path.dirname(self.path)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        module = types.ModuleType(os.path.basename(self.path).removesuffix(".py"))
        module.__file__ = self.path
        sys.modules[module.__name__] = module
        return Loaded(module)

    @cached_property
    def options(self) -> dict[str, Any]:
        """Defaults of the command line that the file itself declares."""
        found: dict[str, Any] = {}
        for node in ast.walk(self.tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"):
                continue
            names = [item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            given = {item.arg: item.value.value for item in node.keywords if isinstance(item.value, ast.Constant)}
            name = str(given.get("dest") or max(names, key=len, default="")).lstrip("-").replace("-", "_")
            if given.get("action") in ("store_true", "store_false"):
                found[name] = given["action"] == "store_false"
            elif "default" in given:
                found[name] = _typed(given["default"], node)
        return found

    def piece(self, state: State) -> slicer.Piece:
        """What is to run. Raises SliceError."""
        branches = [(text, way) for text, way in state.get("taken", ())]
        what = (*sorted(state.get("skips", ())), state.get("force", False), *branches, state.get("again", False))
        if what not in self._pieces:
            tree = slicer.taken(self.tree, branches)
            piece = slicer.Cutter(tree, self.row, state.get("skips", ()), force=state.get("force", False)).cut()
            if state.get("again"):
                slicer.endless(piece.code)
            piece.compiled = slicer.compiled(piece.code, self.path, self.flags)
            self._pieces[what] = piece
        return self._pieces[what]

    @cached_property
    def choices(self) -> dict[str, list[str]]:
        """Texts that a name or an attribute is compared with anywhere in the file."""
        found: dict[str, list[str]] = {}
        for node in ast.walk(self.tree):
            if not (isinstance(node, ast.Compare) and isinstance(node.left, (ast.Name, ast.Attribute))):
                continue
            texts = found.setdefault(node.left.id if isinstance(node.left, ast.Name) else node.left.attr, [])
            for item in node.comparators:
                for inner in item.elts if isinstance(item, (ast.List, ast.Tuple, ast.Set)) else [item]:
                    if isinstance(inner, ast.Constant) and isinstance(inner.value, str) and inner.value not in texts:
                        texts.append(inner.value)
        return found

    def prepare(self, state: State) -> None:
        """Do once, before processes are forked, what all of them would have to do."""
        self.piece(state)
        self.options  # noqa: B018 -- kept with its first use
        self.choices  # noqa: B018 -- likewise

    def key(self, row: int) -> str:
        """Of the statement in the loop's function that a row stands in."""
        chain = ast_names.around(self.tree, row)
        return ast_names.key_of(chain[-1]) if chain and isinstance(chain[-1], ast.stmt) else ""


def _inputs(text: str, context: str) -> list[str]:
    """What a custom autograd function is applied to. Raises SliceError."""
    cls = ast_names.named(ast.parse(text), context)
    methods = {item.name: item for item in cls.body if isinstance(item, ast.FunctionDef)} if isinstance(cls, ast.ClassDef) else {}
    if "forward" not in methods:
        raise slicer.SliceError(f"there is no autograd function `{context}`")
    given = methods["forward"].args
    names = [item.arg for item in (*given.posonlyargs, *given.args)]
    return names["setup_context" not in methods : len(names) - len(given.defaults)]


def _typed(default: Any, node: ast.Call) -> Any:
    """A default as the parser hands it out."""
    kind = next((ast.unparse(item.value) for item in node.keywords if item.arg == "type"), "")
    try:
        return {"int": int, "float": float}[kind](default) if isinstance(default, str) and kind in ("int", "float") else default
    except ValueError:
        return default


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    guide: Guide
    book: Stubs
    piece: slicer.Piece
    counts: torch_patches.Counts
    error: BaseException | None = None
    value: Any = None  # what the function gave back
    self_object: Any = None
    modules: list[torch.nn.Module] = field(default_factory=list)
    frames: list[tuple[str, int]] = field(default_factory=list)  # files of the project and rows that the exception came through, outermost first
    key: str = ""  # of the statement of the piece that raised


def run(
    program: Program,
    state: State,
    *,
    steps: int,
    workers: int = 0,
    epochs: int = 1,
    device: bool = False,
    reading: Callable[[], None] = nothing,
    pulse: Callable[[str], None] = nothing,
    counts: torch_patches.Counts | None = None,
) -> Outcome:
    """Run the piece once. Raises SliceError and LoadError."""
    piece = program.piece(state)
    module = program.loaded.module
    # Batches wait in the queues of workers: one of another size would look like something kept or let go.
    uneven = state.get("uneven", False) and not workers
    book = Stubs(state.get("specs", {}), batch=SIZE, steps=steps, workers=workers, options=program.options, uneven=uneven)
    book.owners.update(stub_optimizer.owners(program.text))
    if device:
        book.device = "cuda"
    guide = Guide(book, steps=steps, epochs=epochs, reading=reading, pulse=pulse, stand_in=state.get("loader", False))
    guide.later = state.get("later", 0)
    guide.look = bool(state.get("look"))
    counts = counts or torch_patches.Counts()
    outcome = Outcome(guide, book, piece, counts)
    names: dict[str, Any] = module.__dict__
    names[slicer.GUIDE] = guide
    seed()
    with torch_patches.patched(book, counts, device=device):
        for name in state.get("globals", ()):
            names[name] = book.value(name)
        try:
            if piece.name:
                _call(program, piece, state, outcome, names)
            else:
                exec(piece.compiled, names)  # noqa: S102 -- the user's own program, in a child that is fenced in
                guide.final({name: value for name, value in names.items() if name in piece.watched})
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever the user's program raises
            outcome.error = error
    if outcome.error is None:
        book.settle()
        kept = [guide.locals.get(name) for name in piece.watched]
        deferred_value.settle([outcome.value, kept, list(getattr(outcome.self_object, "__dict__", {}).values())])
    if guide.error is not None and not isinstance(guide.error, Exception):
        outcome.error = outcome.error or guide.error
    elif guide.error is not None:
        outcome.error = guide.error  # the program may have caught it
    _trace(program, outcome)
    outcome.modules = _modules(outcome, names, piece)
    return outcome


def _call(program: Program, piece: slicer.Piece, state: State, outcome: Outcome, names: dict[str, Any]) -> None:
    exec(piece.compiled, names)  # noqa: S102 -- as above
    book, guide = outcome.book, outcome.guide
    cls: Any = _inner(names, piece.cls) if piece.cls else None
    function = names[f"{slicer.HIDDEN}make"](cls if isinstance(cls, type) else object)
    original = _inner(names if cls is None else vars(cls) if isinstance(cls, type) else {}, piece.name)
    defaults = _defaults(original)
    arguments = piece.arguments or ast.arguments([], [], None, [], [], None, [])
    positional = [item.arg for item in (*arguments.posonlyargs, *arguments.args)]
    receiver: list[Any] = []
    if piece.cls and piece.static != "staticmethod" and positional:
        receiver = [cls if piece.static == "classmethod" else new_self(program, cls, state, outcome)]
        outcome.self_object = receiver[0]
        if isinstance(cls, type) and piece.static == "" and isinstance(receiver[0], cls):
            type(receiver[0]).__dict__.get("_oomlint_methods", {})[piece.name] = function
        positional = positional[1:]
    opened = set(state.get("open", ()))

    def value(name: str, turn: int) -> Any:
        if name in book.specs or name in opened or name not in defaults:
            if piece.kind == "calls" and name.endswith(("_idx", "_nb", "_index")):
                return turn
            if piece.kind == "calls" and name in BATCH:
                return book.make(name, "batch")
            if name not in book.specs and name not in opened and name_heuristics.CONFIG.search(name) and isinstance(names.get(name), argparse.Namespace):
                return names[name]  # as the main block sets it
            return book.value(name)
        return defaults[name]

    def once(turn: int) -> Any:
        keywords = {item.arg: value(item.arg, turn) for item in arguments.kwonlyargs}
        result = function(*receiver, *[value(name, turn) for name in positional], **keywords)
        if inspect.isgenerator(result):
            instrumentation.every(result)
        return result

    if piece.kind != "calls":
        outcome.value = once(0)
        return
    guide.calls = True
    full = book.batch
    for _ in range(guide.epochs):
        for index in range(guide.steps):
            guide._step()  # noqa: SLF001 -- the function is the loop's body here
            guide.mark()
            if book.uneven and index == guide.steps - 1:
                book.batch = book.short
            outcome.value = once(index)
        book.batch = full
        _epoch_end(piece, receiver, outcome)
        guide.finished += 1
    guide.close()


def _epoch_end(piece: slicer.Piece, receiver: list[Any], outcome: Outcome) -> None:
    """What a trainer calls after an epoch."""
    phase = {"training_step": "train", "validation_step": "validation", "test_step": "test", "predict_step": "predict"}.get(piece.name)
    for name in HOOKS:
        hook = getattr(type(receiver[0]), name.format(phase), None) if phase and receiver else None
        hook = hook or (getattr(type(receiver[0]), name.format("training"), None) if phase == "train" else None)
        if hook is not None:
            count = len(inspect.signature(hook).parameters)
            hook(receiver[0], *[outcome.book.value("outputs")][: count - 1])


def _inner(names: Any, dotted: str) -> Any:
    """What a dotted name stands for."""
    value: Any = None
    for part in dotted.split("."):
        value = names.get(part)
        if value is None:
            return None
        names = getattr(value, "__dict__", {})
    return value


def _defaults(original: Any) -> dict[str, Any]:
    """The defaults of the arguments of the user's function."""
    original = getattr(original, "__func__", original)
    try:
        parameters = inspect.signature(original).parameters
    except (TypeError, ValueError):
        return {}
    return {name: item.default for name, item in parameters.items() if item.default is not inspect.Parameter.empty}


def new_self(program: Program, cls: Any, state: State, outcome: Outcome) -> Any:
    """An object of the user's class, whose constructor is run as far as it goes; what it lacks is replaced by a stand-in."""
    book = outcome.book
    if not isinstance(cls, type):
        book.specs.setdefault("self", {"kind": "object"})
        return book.value("self")
    methods: dict[str, Any] = {}

    def lacking(self: Any, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        if name in methods:
            return methods[name].__get__(self)
        for base in cls.__mro__:
            if "__getattr__" in vars(base):
                try:
                    return vars(base)["__getattr__"](self, name)
                except (AttributeError, KeyError, RecursionError):
                    break
        if name in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set") or name.startswith(
            ("_forward_", "_backward_", "_state_dict_", "_load_")
        ):
            raise AttributeError(name)
        value = book.value(f"self.{name}")
        self.__dict__[name] = value
        return value

    try:
        made = type(cls.__name__, (cls,), {"__getattr__": lacking, "_oomlint_methods": methods, "__module__": cls.__module__})
        instance: Any = made.__new__(made)  # type: ignore[call-overload] # of the user's class, not of type
    except TypeError:
        book.specs.setdefault("self", {"kind": "object"})
        return book.value("self")
    if isinstance(instance, torch.nn.Module):
        torch.nn.Module.__init__(instance)
        book.modules.append(instance)
    _construct(program, cls, instance, state, outcome)
    return instance


def _construct(program: Program, cls: type, instance: Any, state: State, outcome: Outcome) -> None:
    """Run the constructor of the class statement by statement."""
    owner = next((base for base in cls.__mro__ if "__init__" in vars(base)), None)
    if owner is None or owner.__module__ in ("builtins", "torch.nn.modules.module") or owner.__module__ != program.loaded.module.__name__:
        return
    init = ast_names.named(program.tree, f"{owner.__qualname__}.__init__")
    if not isinstance(init, ast.FunctionDef) or not init.args.args:
        return
    names = program.loaded.module.__dict__
    exec(slicer.compiled(slicer.tolerant_function(init, owner.__name__, state.get("skips", ())), program.path, program.flags), names)  # noqa: S102 -- as above
    function = names[f"{slicer.HIDDEN}make"](owner)
    defaults = _defaults(vars(owner)["__init__"])
    given = {}
    for item in (*init.args.args[1:], *init.args.kwonlyargs):
        path = f"self.__init__.{item.arg}"
        if item.arg in defaults and path not in outcome.book.specs:
            given[item.arg] = defaults[item.arg]
            continue
        spec = outcome.book.specs.get(path) or name_heuristics.of_name(item.arg, "any")
        if spec is not None:
            outcome.book.learn(path, spec)
            given[item.arg] = outcome.book.value(path)
        else:
            given[item.arg] = deferred_value.late(outcome.book, path, "any")
    marks = outcome.guide.marks
    outcome.guide.silent = True  # the names of the constructor are no results
    try:
        function(instance, **given)
    except Exception as error:  # noqa: BLE001 -- what it could not set is replaced by a stand-in
        outcome.guide.failed("__init__", init.lineno, error)
    finally:
        outcome.guide.silent = False
        outcome.guide.marks = marks


def _trace(program: Program, outcome: Outcome) -> None:
    if outcome.error is None:
        return
    outcome.frames = [(os.path.relpath(frame.filename, program.root), frame.lineno or 0) for frame in rows(outcome.error, program.root)]
    own = [row for file, row in outcome.frames if os.path.join(program.root, file) == program.path]
    outcome.key = program.key(own[0]) if own else ""


def _modules(outcome: Outcome, names: dict[str, Any], piece: slicer.Piece) -> list[torch.nn.Module]:
    """All modules that the piece has worked with, each once."""
    found: list[torch.nn.Module] = []
    holders = [outcome.guide.locals, getattr(outcome.self_object, "__dict__", {}), {name: names.get(name) for name in piece.loads}]
    for value in (*(item for holder in holders for item in holder.values()), outcome.self_object, *outcome.book.modules):
        if isinstance(value, torch.nn.Module) and not any(value is item for item in found):
            found.append(value)
    return found
