"""Which files are worth a full parse: trigger words in the text, then one look over ``ast``.

The scout only ever says "cannot have a finding". It must let through whatever a rule could start from; which values are
behind the names is none of its business.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from dataclasses import dataclass

# Words without which no rule of the family has anything to say.
_WORDS = re.compile(
    r"num_workers|[Ll]oader|persistent_workers|prefetch_factor|TrainingArguments|SFTConfig|GRPOConfig|DPOConfig|worker|itertools|\bcycle\b",
)
# What a loader, or an iterator over one, is called.
LOADER_NAME = re.compile(
    r"(^|_)(data_?)?loaders?\d*$|(^|_)dls?\d*$|dataloaders?\d*$|(^|_)loader(_\w+)?$|^(train|training|val|valid|validation|dev|test|eval|data|batch)_?(iter|iterator|gen|generator|batches|loader|queue|dl)\d*$"
    r"|^(batches|minibatches|mini_batches|batch_iterator|data_iterator|epoch_iterator|epoch_itr|eval_dataloader)$|[a-z]Loader$|[a-z]DataLoader$|[a-z]_loader_",
)
# Calls in the body of a loop that trains.
STEP_NAME = re.compile(r"^(backward|step|manual_backward)$|train|_step|optimi|update|(^|_)fit|^learn", re.IGNORECASE)
_TORCH_WORD = re.compile(r"torch|lightning|transformers|accelerate|monai|timm|fairseq|\bdgl\b|^\s*from \.", re.MULTILINE)
_STEP_METHOD = re.compile(r"^(training|validation|test|predict)_step|^on_\w+_batch_(start|end)$")
_WORKER_WORD = re.compile(r"work|thread|proc|jobs|persist|prefetch|timeout|cpus|^nw$|multiprocessing_context")
_LOADER_KEYWORDS = frozenset({"num_workers", "persistent_workers", "prefetch_factor", "worker_init_fn", "multiprocessing_context", "collate_fn"})
_ITERATES = frozenset({"cycle", "tee", "list", "tuple", "sorted", "set", "next"})


@dataclass(frozen=True, slots=True)
class Triage:
    """What the scout says of a file: whether to parse it, or why it is not Python."""

    parse: bool
    error: tuple[int, int, str] | None = None  # row, column, cause


def is_worker_word(keyword: str) -> bool:
    """Whether the name of a keyword may speak of worker processes."""
    return _WORKER_WORD.search(keyword) is not None


def triage(text: str, *, notebook: bool = False) -> Triage:
    """Look at the text of a program."""
    if not _WORDS.search(text) and not _TORCH_WORD.search(text):
        return Triage(parse=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError as error:
        # Notebooks may await at the top level, and newer syntax than ours may be libcst's to read.
        return Triage(parse=False, error=(error.lineno or 1, error.offset or 1, f"not valid Python {sys.version_info[0]}.{sys.version_info[1]}: {error.msg}"))
    except (RecursionError, MemoryError):
        return Triage(parse=False, error=(1, 1, "nested too deeply to be parsed"))
    except ValueError as error:
        return Triage(parse=False, error=(1, 1, f"not valid Python: {error}"))
    return Triage(parse=_interesting(tree, notebook=notebook))


def worth_parsing(text: str) -> bool:
    """Whether a rule could have something to say."""
    return triage(text).parse


def _interesting(tree: ast.AST, *, notebook: bool) -> bool:
    loader_aliases = _aliases(tree)
    if _grows(tree) or (notebook and _shows(tree)):
        return True
    for node in ast.walk(tree):
        if _keeps(node):
            return True
        if isinstance(node, ast.Call):
            name = _name(node.func)
            if name.endswith(("Loader", "loader", "TrainingArguments")) or name in loader_aliases:
                return True
            if name.endswith("Config") and any(k.arg is not None and k.arg.startswith("dataloader_") for k in node.keywords):
                return True
            if any(k.arg is not None and (k.arg in _LOADER_KEYWORDS or is_worker_word(k.arg)) for k in node.keywords):
                return True
            if name in _ITERATES and any("oader" in ast.unparse(a) or "_dl" in ast.unparse(a) or name in {"cycle", "tee"} for a in node.args):
                return True
        elif isinstance(node, ast.ClassDef) and any(_name(b).endswith(("Loader", "TrainingArguments")) for b in node.bases):
            return True
    return False


def _grows(tree: ast.AST) -> bool:
    """Whether a function goes through batches, or is called for each of them."""
    imports = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports = True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _STEP_METHOD.search(node.name):
            return True
    if not imports:
        return False
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
    if not loops:
        return False
    for node in ast.walk(tree):
        word = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else node.arg if isinstance(node, ast.arg) else ""
        if word and ("oader" in word or LOADER_NAME.search(word)):
            return True
    return any(isinstance(inner, ast.Call) and STEP_NAME.search(_name(inner.func)) for loop in loops for part in loop.body for inner in ast.walk(part))


def _keeps(node: ast.AST) -> bool:
    """Whether a node is what one of the rules about a single statement starts from."""
    if isinstance(node, ast.Call):
        name = _name(node.func)
        keywords = {k.arg for k in node.keywords}
        if name in {"backward", "manual_backward"}:
            return bool(keywords & {"retain_graph", "create_graph"}) or len(node.args) > 1
        if name in {"empty_cache", "collect"}:
            return not node.args
        if name == "load":
            return len(node.args) <= 1 and "map_location" not in keywords and None not in keywords
        if name.startswith("register_") and name.endswith("hook"):
            return True
        if name[:1].isupper() and any(
            isinstance(part, ast.Call) and _name(part.func) in {"parameters", "named_parameters"} for a in node.args for part in ast.walk(a)
        ):
            return True
        return "compute_metrics" in keywords or "pin_memory" in keywords or name == "pin_memory"
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call) and _name(node.value.func) == "predict" and isinstance(node.value.func, ast.Attribute) and bool(node.value.args)
    if isinstance(node, ast.ImportFrom):
        return any(a.name in {"empty_cache", "collect", "load"} for a in node.names)
    if isinstance(node, ast.ExceptHandler):
        return node.name is not None and any(
            (isinstance(part, ast.Call) and _name(part.func) in {"append", "add", "appendleft"})
            or (isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Subscript))
            for inner in node.body
            for part in ast.walk(inner)
        )
    if isinstance(node, ast.ClassDef):
        return bool(node.bases) and any(
            _sets_on_first(item) for item in node.body if isinstance(item, ast.FunctionDef) and item.name in {"forward", "setup_context"}
        )
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Call):
        return _carries(node.targets[0], node.value)
    return False


def _sets_on_first(node: ast.FunctionDef) -> bool:
    """Whether a function sets attributes of its first parameter."""
    params = [*node.args.posonlyargs, *node.args.args]
    first = params[0].arg if params else ""
    return first not in {"", "self"} and any(
        isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and isinstance(part.value, ast.Name) and part.value.id == first
        for part in ast.walk(node)
    )


def _carries(target: ast.expr, call: ast.Call) -> bool:
    """Whether a call is given what it sets, behind its first argument: a state that goes around."""
    if len(call.args) + len(call.keywords) <= 1:
        return False
    given = {
        ast.dump(part).replace("Store()", "Load()")
        for a in (*call.args[1:], *(k.value for k in call.keywords))
        for part in ast.walk(a)
        if isinstance(part, ast.Name | ast.Attribute)
    }
    return any(
        ast.dump(part).replace("Store()", "Load()") in given
        for part in ast.walk(target)
        if isinstance(part, ast.Name | ast.Attribute) and isinstance(part.ctx, ast.Store)
    )


def _shows(tree: ast.AST) -> bool:
    """Whether a cell may end with a value that the notebook keeps."""
    return isinstance(tree, ast.Module) and any(isinstance(item, ast.Expr) and isinstance(item.value, ast.Name | ast.Call) for item in tree.body)


def _aliases(tree: ast.AST) -> set[str]:
    """Names under which a loader class may be called: imports and plain assignments."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found.update(a.asname for a in node.names if a.asname and a.name.endswith(("Loader", "TrainingArguments")))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call | ast.Name | ast.Attribute | ast.IfExp) and "oader" in ast.unparse(node.value):
            found.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return found


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
