"""Ranks: whether code runs once in each of several processes of a training, in how many, and how that is known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import libcst as cst
from msgspec import Struct
from msgspec.structs import replace

from oomlint.finding import RanksFact
from oomlint.frameworks import FITS
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.qualified_names import library_name, project_function
from oomlint.model import arguments, names
from oomlint.model.reach import path_conditions
from oomlint.model.readings import AnswerMemory, finder
from oomlint.model.statements import call_at
from oomlint.model.values import Const, ExternalCall, SourceExpression, Unknown
from oomlint.patterns import pattern
from oomlint.syntax.nodes import descend, path_of
from oomlint.weighing import in_each

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from oomlint.finding import Finding, Place
    from oomlint.model.calls import CallSite
    from oomlint.model.project import Module, Project
    from oomlint.model.values import Value
    from oomlint.syntax.scopes import Scope

_SHARDS: Final = frozenset(
    {
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
        "torch.distributed.fsdp.fully_shard",
        "torch.distributed._composable.fsdp.fully_shard",
        "deepspeed.initialize",
    },
)
_PROCESSES: Final = _SHARDS | {
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
    "torch.distributed.init_process_group",
    "apex.parallel.DistributedDataParallel",
    "torch.utils.data.DistributedSampler",
    "torch.utils.data.distributed.DistributedSampler",
}
_STARTERS: Final = frozenset(name.rpartition(".")[2] for name in _PROCESSES) | {"DDP", "FSDP"}
_GROUP: Final = "init_process_group"
SPAWN: Final = "multiprocessing.spawn"  # under whose names torch.multiprocessing goes
_OF_LIGHTNING: Final = frozenset({"Trainer", "Fabric"})
_ENVIRONMENT: Final = pattern(r"[\"'](?:\w*_)?(?:RANK|PROCID)[\"']")
_RANK: Final = pattern(r"(^|_)rank(_?id)?$", re.IGNORECASE)
_FIRST: Final = pattern(r"main_process|is_main|is_master|is_chief|is_primary|is_first|primary|global_zero|rank_?(0|zero)", re.IGNORECASE)
_SEVERAL: Final = pattern(r"\bis_initialized\(|\bget_world_size\(|\bWORLD_SIZE\b|\bworld_size\b *(>|!=)")
_COMMENT: Final = pattern(r"#.*")
_DEEPEST: Final = 3  # calls between the file that is run and the code
_MOST_SITES: Final = 4


class Ranks(Struct, frozen=True):
    """The processes that run a piece of code, each for itself."""

    module: Module  # the file that makes it so
    count: int | None = None  # on one machine; None where nobody says how many
    place: Place | None = None  # where that is known from, else what makes the processes work together
    shards: bool = False  # the model is spread over them
    optional: bool = False  # a test decides it that nothing is known to pass: `if args.distributed:`

    @property
    def words(self) -> str:
        """``each of 8 ranks``, or ``each rank``."""
        return f"each of {self.count} ranks" if self.count is not None else "each rank"


class _Joining(NamedTuple):
    """What makes a process one of several, called from wherever."""

    made: frozenset[Scope]  # functions that do, or call one that does
    modules: frozenset[Module]  # where they are called


class RanksOf:
    """Answers for a project. One for a run; it remembers."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.evaluator = evaluator_of(project)
        self._files: AnswerMemory[str, Ranks | None] = AnswerMemory(project.readings)

    def at(self, module: Module, scope: Scope, node: cst.CSTNode | None = None) -> Ranks | None:
        """The ranks that run a function, or the code at ``node`` in it; ``None`` where one process alone does, or nobody knows of several."""
        return self._at(module, scope, node, 0)

    def _at(self, module: Module, scope: Scope, node: cst.CSTNode | None, depth: int) -> Ranks | None:
        if node is not None and self.on_one(module, scope, node):
            return None
        sites = self.evaluator.calls.sites(module, scope, most=_MOST_SITES) if scope.is_function and depth < _DEEPEST else []
        found = self.of_file(module)
        if found is not None and (sites or not scope.is_function) and self._never_joins(module, scope):
            found = None
        if found is not None:
            return None if sites and all(self._is_apart(site, module, scope) for site in sites) else found
        ways = (self._at(site.module, site.scope, site.call, depth + 1) for site in sites if site.scope is not scope)
        return next((one for one in ways if one is not None), None)

    def _is_apart(self, site: CallSite, module: Module, scope: Scope) -> bool:
        """Whether a call of a function in a file of ranks is not on each of them: on one alone, or in another script that never joins them."""
        if self.on_one(site.module, site.scope, site.call):
            return True
        joining = self._joining(module)
        if joining is None or scope in joining.made or (site.module is module and site.scope.is_function):
            return False
        if site.module is not module and self.of_file(site.module) is not None:
            return False
        return not self._joins(site, joining.modules, 0)

    def _joining(self, module: Module) -> _Joining | None:
        """Functions that make the process one of several as a file does, and all that call them; nothing where the file itself does, or its launcher."""
        if any(one[0] != 1 for one in self.evaluator.options.launches.processes(module)) or self._spawned(module) is not None:
            return None
        found: dict[Scope, Module] = {}
        for node, _ in self._makes(module):
            if isinstance(node, cst.Call) and names.last_name(node.func) == "DistributedSampler":
                continue  # goes through its part of the data where there are several; others make it so
            function = next((here for here in module.walk.ancestors(node) if isinstance(here, cst.FunctionDef)), None)
            if function is None:
                return None
            found[module.walk.scope_of[function]] = module
        queue, calling = list(found), set()
        while queue:
            scope = queue.pop()
            for site in self.evaluator.calls.sites(found[scope], scope):
                calling.add(site.module)
                if site.scope.is_function and site.scope not in found:
                    found[site.scope] = site.module
                    queue.append(site.scope)
        return _Joining(frozenset(found), frozenset(calling)) if found else None

    def _never_joins(self, module: Module, scope: Scope) -> bool:
        """Whether all that would make the process one of several is in other functions, whose names nothing in the project says again."""
        joining = self._joining(module)
        if joining is None or joining.modules or scope in joining.made or not all(one.is_function for one in joining.made):
            return False
        return all(sum(map(int, self.project.search(_said_in, (one.name,), module.path, holding=one.name).values())) == 1 for one in joining.made)

    def _joins(self, site: CallSite, joined: Collection[Module], depth: int) -> bool:
        """Whether a file that leads to a call makes the process one of several."""
        if site.module in joined:
            return True
        above = self.evaluator.calls.sites(site.module, site.scope, most=_MOST_SITES) if site.scope.is_function and depth < _DEEPEST else []
        return any(self._joins(one, joined, depth + 1) for one in above if one.scope is not site.scope)

    # -- files -------------------------------------------------------------------------------------------------------------

    def of_file(self, module: Module) -> Ranks | None:
        """What a file says itself, and those who launch it."""
        if module.path not in self._files:
            self._files.assume(module.path, None)
            self._files[module.path] = self._of_file(module)
        return self._files[module.path]

    def _of_file(self, module: Module) -> Ranks | None:
        made = next(self._makes(module), None)
        if made is not None and self.starts_alone(module):
            return None
        launched = [one for one in self.evaluator.options.launches.processes(module) if one[0] != 1]
        if made is None and not launched:
            return None
        shards = any(self._called(call, module, scope) in _SHARDS for call, scope in module.walk.calls if names.last_name(call.func) in _STARTERS)
        counted = next((one for one in launched if one[0] is not None), None)
        if counted is not None:
            return Ranks(module, counted[0], counted[1].saying("launched here"), shards)
        spawned = self._spawned(module)
        if spawned is not None:
            return Ranks(module, spawned[0], module.place(spawned[1], "processes are started here"), shards)
        if made is None:
            return Ranks(module, None, launched[0][1].saying("launched here"), shards)
        makes = list(self._makes(module))
        count = next((n for _, n in makes if n is not None), None)
        optional = count is None and all(self._is_optional(module, node) for node, _ in makes)
        return Ranks(module, count, module.place(made[0], "one of several processes"), shards, optional)

    def _is_optional(self, module: Module, node: cst.CSTNode) -> bool:
        """Whether tests let a process become one of several, where it is done or where all calls of the function are that does it."""
        if _is_tested(module, node):
            return True
        scope = module.walk.scope_at(node)
        sites = self.evaluator.calls.sites(module, scope)[:_MOST_SITES] if scope.is_function else []
        calls = self._made_within(module, node) or [(site.module, site.call) for site in sites]
        return bool(calls) and all(_is_tested(where, call) for where, call in calls)

    def starts_alone(self, module: Module) -> bool:
        """Whether the project starts a file in one process, in which nothing makes it one of several unless it is given a rank."""
        if not self.evaluator.options.launches.by_itself(module) or self._spawned(module) is not None:
            return False
        made = [node for node, _ in self._makes(module) if not _says_local_rank(node)]
        return bool(made) and all(self._waits_for_rank(module, node) for node in made)

    def _waits_for_rank(self, module: Module, node: cst.CSTNode) -> bool:
        """Whether what makes the process one of several stands behind a test for the rank."""
        child = node
        for here in module.walk.ancestors(node):
            if isinstance(here, cst.If | cst.IfExp) and child is not here.test:
                scope = module.walk.scope_at(here)
                if any(isinstance(part, cst.Name | cst.Attribute) and self.is_rank(module, scope, part) for part in descend(here.test)):
                    return True
            child = here
        made = self._made_within(module, node)
        return bool(made) and all(self._waits_for_rank(where, call) for where, call in made)

    def _made_within(self, module: Module, node: cst.CSTNode) -> list[tuple[Module, cst.Call]]:
        """Where the function of the project that a call runs makes a process group."""
        function = project_function(self.project, node.func, module, module.walk.scope_at(node)) if isinstance(node, cst.Call) else None
        return [(function.module, call) for call in function.scope.calls if names.last_name(call.func) == _GROUP] if function is not None else []

    def _makes(self, module: Module) -> Iterator[tuple[cst.CSTNode, int | None]]:
        """What makes a process one of several, and how many where it says so."""
        text = module.source.text
        starting = self._starting(module)
        for call, scope in module.walk.calls:
            last = names.last_name(call.func)
            if last in _STARTERS and self._called(call, module, scope) in _PROCESSES:
                yield call, None
            elif last == "Trainer" and "Trainer" in text and _is_spread(call):
                yield call, self._devices(call, module, scope)
            elif last in _OF_LIGHTNING and (count := self._devices(call, module, scope)) is not None and self._is_lightning(call, module, scope):
                yield call, count  # it starts one process for each device, unless it is told another strategy
            elif last in starting:
                function = project_function(self.project, call.func, module, scope)
                if function is not None and any(names.last_name(inner.func) == _GROUP for inner in function.scope.calls):
                    yield call, None
        if ".world_size" in text:
            yield from ((node, None) for node in _asked_for_processes(module))
        if re.search(r"\blocal_rank\b|\bLOCAL_RANK\b", _COMMENT.sub("", text)):
            named = [node for node in module.walk.root.nodes() if _says_local_rank(node)]
            if not all(_declares(module, node) for node in named):
                yield from ((node, None) for node in named)

    def _called(self, call: cst.Call, module: Module, scope: Scope) -> str:
        return library_name(self.project, call.func, module, scope)

    def _starting(self, module: Module) -> frozenset[str]:
        """Names of functions of the project that make a process group."""
        found = self.project.search(_starting_in, (), module.path)
        return frozenset(word for words in found.values() for word in words.split())

    def _spawned(self, module: Module) -> tuple[int | None, cst.Call] | None:
        """How many processes ``torch.multiprocessing.spawn`` starts."""
        for call, scope in module.walk.calls:
            if names.last_name(call.func) == "spawn" and "nprocs" in module.code(call):
                given = arguments.argument_for(call, "nprocs", place=2)
                if self._called(call, module, scope) == SPAWN and given is not None:
                    return self._number(given, module, scope), call
        return None

    def _devices(self, call: cst.Call, module: Module, scope: Scope) -> int | None:
        """The devices above one that a trainer of Lightning is given: their number, or which."""
        given = arguments.named(call, "devices", "gpus")
        if isinstance(given, cst.List | cst.Tuple):
            return len(given.elements) if len(given.elements) > 1 else None
        if given is None:
            return None
        texts = [a.value.value for a in self.evaluator.plainly(given, module, scope) if isinstance(a.value, Const) and not a.reach]
        listed = next((text for text in texts if isinstance(text, str) and re.fullmatch(r"\d+(,\d+)*,?", text)), "")
        if "," in listed:
            return len(listed.strip(",").split(",")) if listed.strip(",").count(",") else None
        return int(listed) if listed and int(listed) > 1 else self._number(given, module, scope)

    def _is_lightning(self, call: cst.Call, module: Module, scope: Scope) -> bool:
        return self._called(call, module, scope).partition(".")[0] in {"lightning", "pytorch_lightning", "lightning_fabric"}

    def of_program(self, module: Module) -> Ranks | None:
        """The processes that a run of a file starts, be it that they work together or not; of an unknown number where all devices are taken."""
        found = self.of_file(module)
        if found is not None:
            return found
        for call, scope in module.walk.calls:
            last = names.last_name(call.func)
            if last == "spawn" and (spawned := self._spawned(module)) is not None and not self._are(arguments.named(call, "nprocs"), {1}, module, scope):
                return Ranks(module, spawned[0], module.place(spawned[1], "processes are started here"))
            given = arguments.named(call, "devices", "gpus") if last in _OF_LIGHTNING else None
            told = given is None or isinstance(given, cst.List | cst.Tuple) or self._says_number(given, module, scope)
            if (not told or self._are(given, {-1, "-1", "auto"}, module, scope)) and self._is_lightning(call, module, scope):
                return Ranks(module, None, module.place(call, "one process for each device"))
        return None

    def _says_number(self, node: cst.BaseExpression, module: Module, scope: Scope) -> bool:
        return any(isinstance(a.value, Const) for a in self.evaluator.plainly(node, module, scope))

    def _are(self, node: cst.BaseExpression | None, wanted: Collection[object], module: Module, scope: Scope) -> bool:
        found = self.evaluator.plainly(node, module, scope) if node is not None else []
        return any(isinstance(a.value, Const) and a.value.value in wanted and not a.reach for a in found)

    def _number(self, node: cst.BaseExpression, module: Module, scope: Scope) -> int | None:
        """A number of processes above one that a plain run has."""
        found = self.evaluator.plainly(node, module, scope)
        known = [a.value.value for a in found if isinstance(a.value, Const) and not a.reach]
        return next((n for n in known if isinstance(n, int) and n > 1), None)

    # -- one rank ----------------------------------------------------------------------------------------------------------

    def on_one(self, module: Module, scope: Scope, node: cst.CSTNode) -> bool:
        """Whether tests for the rank let one process alone come to ``node``, or tests for several processes let it come there where it is the only one."""
        conditions = path_conditions(module.walk, scope, node)
        return any(self.tells(module, scope, test, wanted=wanted) or self._is_only_one(module, scope, test, wanted=wanted) for test, wanted in conditions)

    def _is_only_one(self, module: Module, scope: Scope, test: cst.BaseExpression, *, wanted: bool) -> bool:
        """Whether a test for several processes came out false: ``dist.is_initialized()``, or what is made of their number."""
        while isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            test, wanted = test.expression, not wanted
        if wanted or isinstance(test, cst.BooleanOperation):
            return False
        found = [a.value for a in self.evaluator.plainly(test, module, scope)]
        return any(_SEVERAL.search(text) is not None for text in (module.code(test), *map(_written, found), *_set_to(module, scope, test)))

    def on_first(self, module: Module, scope: Scope, node: cst.CSTNode) -> bool:
        """Whether that process is proven to be the first of all machines: a test whether the global rank is 0."""
        return any(self.tells(module, scope, test, wanted=wanted, first=True) for test, wanted in path_conditions(module.walk, scope, node))

    def _is_global(self, module: Module, scope: Scope, node: cst.BaseExpression) -> bool:
        """Whether an expression is the number of the process among all, on whichever machine."""
        values = [a.value for a in self.evaluator.plainly(node, module, scope)]
        asked = any(isinstance(v, ExternalCall) and v.name.rpartition(".")[2] in {"get_rank", "get_global_rank", "process_index"} for v in values)
        return asked or any(re.search(r"(environ|getenv)\W.*[\"']RANK[\"']", text) for text in (module.code(node), *map(_written, values)))

    def names_rank(self, module: Module, scope: Scope, node: cst.BaseExpression, depth: int = 0) -> bool:
        """Whether the rank goes into an expression: each has its own file, or its own part."""
        for part in descend(node):
            if isinstance(part, cst.Name | cst.Attribute | cst.Call) and self.is_rank(module, scope, part):
                return True
            if isinstance(part, cst.Name) and depth < _DEEPEST:
                bound = [e.value for e in scope.effects.get(part.value, ()) if e.kind == "assign" and not e.path and e.value is not None]
                if any(value is not node and self.names_rank(module, scope, value, depth + 1) for value in bound):
                    return True
        return False

    def tells(self, module: Module, scope: Scope, test: cst.BaseExpression, *, wanted: bool, first: bool = False, depth: int = 0) -> bool:
        """Whether a test that came out as ``wanted`` says that this is one certain rank; with ``first``, that it is proven to be the first of all machines."""
        if depth > _DEEPEST:
            return False
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            return self.tells(module, scope, test.expression, wanted=not wanted, first=first, depth=depth)
        if isinstance(test, cst.BooleanOperation):
            # One side of it may ask whether there are several processes at all.
            return any(self.tells(module, scope, side, wanted=wanted, first=first, depth=depth) for side in (test.left, test.right))
        if isinstance(test, cst.Comparison):
            return self._compares(module, scope, test, wanted=wanted) and (not first or self._with_zero(module, scope, test))
        if not wanted:
            return self._is_global(module, scope, test) if first else self.is_rank(module, scope, test)
        if isinstance(test, cst.Call):
            function = project_function(self.project, test.func, module, scope)
            if function is not None:
                given = (item.value for item in function.scope.returns if item.value is not None)
                return any(self.tells(function.module, function.scope, value, wanted=True, first=first, depth=depth + 1) for value in given)
            return not first and _FIRST.search(names.last_name(test.func)) is not None
        if not isinstance(test, cst.Name | cst.Attribute):
            return False
        for alt in self.evaluator.plainly(test, module, scope):
            value = alt.value
            if isinstance(value, SourceExpression) and value.node is not test:
                frame = value.frame
                if self.tells(frame.module, frame.scope, value.node, wanted=True, first=first, depth=depth + 1):
                    return True
        return not first and _FIRST.search(names.last_name(test)) is not None

    def _with_zero(self, module: Module, scope: Scope, test: cst.Comparison) -> bool:
        """Whether the global rank is compared with 0."""
        sides = (test.left, test.comparisons[0].comparator)
        zero = any(isinstance(side, cst.Integer) and side.value == "0" for side in sides)
        return zero and any(self._is_global(module, scope, side) for side in sides)

    def _compares(self, module: Module, scope: Scope, test: cst.Comparison, *, wanted: bool) -> bool:
        if len(test.comparisons) != 1:
            return False
        operator, other = test.comparisons[0].operator, test.comparisons[0].comparator
        if isinstance(operator, cst.Equal | cst.Is):
            one = wanted
        elif isinstance(operator, cst.NotEqual | cst.IsNot | cst.NotIn | cst.GreaterThan | cst.GreaterThanEqual):
            one = not wanted
        else:
            one = wanted and isinstance(operator, cst.In | cst.LessThan | cst.LessThanEqual)
        return one and any(self.is_rank(module, scope, side) for side in (test.left, other))

    def is_rank(self, module: Module, scope: Scope, node: cst.BaseExpression) -> bool:
        """Whether an expression is the number of the process, or that within its machine."""
        if isinstance(node, cst.BinaryOperation):
            return isinstance(node.operator, cst.Modulo) and self.is_rank(module, scope, node.left)
        if isinstance(node, cst.BaseNumber | cst.BaseString | cst.List | cst.Tuple | cst.UnaryOperation):
            return False
        found = self.evaluator.plainly(node, module, scope)
        if any(isinstance(a.value, ExternalCall) and a.value.name.rpartition(".")[2] in {"get_rank", "get_global_rank", "process_index"} for a in found):
            return True
        written = [module.code(node), *(text for a in found if (text := _written(a.value)))]
        if any(_ENVIRONMENT.search(text) and re.search(r"environ|getenv", text) for text in written):
            return True
        unknown = all(isinstance(a.value, Unknown | Const | ExternalCall) for a in found)
        return unknown and _RANK.search(names.last_name(node.func if isinstance(node, cst.Call) else node)) is not None


def _is_tested(module: Module, node: cst.CSTNode) -> bool:
    """Whether a test of a program, and not only of whether it is the one that runs, lets it come to ``node``."""
    return any("__name__" not in module.code(test) for test, _ in path_conditions(module.walk, module.walk.scope_at(node), node))


def _written(value: Value) -> str:
    """How a value is written where it is made."""
    if isinstance(value, ExternalCall):
        return value.frame.module.code(value.call)
    return value.frame.module.code(value.node) if isinstance(value, SourceExpression) else ""


def _set_to(module: Module, scope: Scope, node: cst.BaseExpression) -> Iterator[str]:
    """What a name of a function, or an attribute of its class, is set to, as it is written."""
    path = path_of(node)
    if path is None:
        return
    owner = scope.parent if path[0] == names.self_name(scope) else None
    for one in owner.children if owner is not None else (scope,):
        for effect in one.effects.get(path[0], ()):
            if effect.kind == "assign" and effect.path == path[1] and effect.value is not None:
                yield module.code(effect.value)


def _asked_for_processes(module: Module) -> Iterator[cst.Attribute]:
    """Where what trains, wherever it was made (`fit`), is asked how many processes it has: ``trainer.world_size``, of Lightning."""
    asked = [node for node in module.walk.root.nodes() if isinstance(node, cst.Attribute) and node.attr.value in {"world_size", *FITS}]
    training = {names.dotted(node.value) for node in asked if node.attr.value in FITS}
    yield from (node for node in asked if node.attr.value == "world_size" and names.dotted(node.value) in training - {""})


def _says_local_rank(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.SimpleString):
        value = node.evaluated_value
        return isinstance(value, str) and value.lstrip("-").replace("-", "_").lower() == "local_rank"
    return isinstance(node, cst.Name) and node.value == "local_rank"


def _declares(module: Module, node: cst.CSTNode) -> bool:
    """Whether a word only declares an option of the command line: where nothing reads it, there is one process."""
    call = next((here for here in module.walk.ancestors(node) if isinstance(here, cst.Call)), None)
    return call is not None and names.last_name(call.func) == "add_argument"


def _is_spread(call: cst.Call) -> bool:
    """Whether a call makes a trainer of Lightning that is told how to spread over processes."""
    given = arguments.by_name(call)
    if not {"strategy", "num_nodes"} & given.keys():
        return False
    devices = given.get("devices")
    if isinstance(devices, cst.List | cst.Tuple) and "num_nodes" not in given:
        return len(devices.elements) > 1
    return not isinstance(devices, cst.Integer) or devices.evaluated_value != 1


def by_ranks(finding: Finding, module: Module, project: Project) -> Finding:
    """A finding on what a process holds, and that each rank holds it, where several run the code."""
    called = call_at(module, finding.place)
    ranks = ranks_of(project).at(module, called[1], called[0]) if called is not None else None
    if ranks is None:
        return finding
    related = (*finding.related, ranks.place) if ranks.place is not None else finding.related
    fact = RanksFact(ranks.count, replace(ranks.place, message="") if ranks.place is not None else None)
    weight = in_each(finding.weight, fact) if finding.weight is not None else None
    return replace(finding.adding(f"again on {ranks.words}"), related=related, facts=(*finding.facts, fact), weight=weight)


def ranks_of(project: Project) -> RanksOf:
    """The answers of a project."""
    return project.shared(RanksOf)


_DEFINED: Final = pattern(rb"^[ \t]*def[ \t]+(\w+)", re.MULTILINE)


@finder
def _said_in(path: str, data: bytes, name: str) -> str:
    """How often a file says a name."""
    del path
    return str(len(re.findall(rb"\b" + re.escape(name.encode()) + rb"\b", data)) or "")


@finder
def _starting_in(path: str, data: bytes) -> str:
    """Functions of a file in whose text a process group is made: the last definition before each such call."""
    del path
    found: set[str] = set()
    at = data.find(b"init_process_group")
    while at >= 0:
        before = _DEFINED.findall(data[:at])
        if before:
            found.add(before[-1].decode())
        at = data.find(b"init_process_group", at + 1)
    return " ".join(sorted(found))
