"""The way of data through names and attributes, and out of a function to its callers."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.frameworks import SERVERS
from oomlint.memory.arrays.kept_forms import (
    branches_beside,
    functions_using,
    in_main,
    is_container,
    is_key,
    locals_by_name,
    method_with,
    stands_in,
)
from oomlint.memory.arrays.kept_state import COMPUTED, DEEPEST, EACH, STEPS, Given, Going, Keeping, KeptSearch
from oomlint.memory.arrays.lookup_tables import stands_in_for_missing
from oomlint.model import arguments, names
from oomlint.model.lifetime import How, endings
from oomlint.model.readings import FOUND, AnswerMemory, finder
from oomlint.model.uses import NameUses
from oomlint.model.values import Bound, ClassRef, External, ExternalCall, FunctionRef, SourceExpression
from oomlint.scout.telling_names import MAPS
from oomlint.syntax.nodes import descend, is_attribute_of, names_in, uses_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.calls import CallSite
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Effect, Scope

_MOST_SITES: Final = 6
_LONGEST_CHAIN: Final = 8  # methods, one called on what the other gives
_CALLS_NOTHING: Final = ("torch.utils.data.", "builtins.object")
_MODULES: Final = ("torch.nn.", "lightning", "pytorch_lightning")  # what their objects keep is parameters and settings more often than data
_DEEPEST_CALLS: Final = 5  # functions between a script and what it calls
_ENDS: Final = frozenset({"assign", "delete", "for", "with", "clear"})  # of what a name stands for
_LAYS: Final = frozenset({"paste", "alpha_composite"})  # a picture on another one


class KeptNames(Keeping):
    """Follows a value through what it is called."""

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        self._uses: dict[tuple[Scope, str], NameUses] = {}
        self._lookups: AnswerMemory[tuple[Scope, str], bool] = AnswerMemory(project.readings)  # whether an attribute is a table that may lack a key

    def follow_target(self, search: KeptSearch, module: Module, statement: cst.CSTNode, target: cst.CSTNode, going: Going, *, into: bool = False) -> None:
        """The value is put into ``target``, or ``into`` what that holds."""
        walk = module.walk
        scope = walk.scope_at(statement)
        if isinstance(target, cst.Tuple | cst.List):
            place = going.place[0] if going.place is not None and going.place[1] == len(target.elements) else None
            wanted = place if going.index is None else going.index
            for number, element in enumerate(target.elements):
                if wanted is None or number == wanted:
                    self.follow_target(search, module, statement, element.value, replace(going, index=None, place=None, mixed=False, own=None))
            return
        while isinstance(target, cst.Subscript):
            into = True
            index = target.slice[0].slice if len(target.slice) == 1 else None
            going = going.held_by(EACH) if is_key(target) else replace(going.held_by(EACH), retyped=True)
            if isinstance(index, cst.Index) and not isinstance(index.value, cst.Tuple):
                first, *others = _written_keys(scope, index.value)
                for key in others:
                    self.follow_target(search, module, statement, target.value, going.under(key), into=True)
                going = going.under(first)
            target = target.value
        if into:
            now = replace(going, collected=going.collected or going.part, part=False)
            going = now.gathered_by(self.gathering(module, statement), module, statement, part=going.part)
        while isinstance(target, cst.Attribute) and isinstance(target.value, cst.Attribute):  # `self.part.rows = rows`: the object in `part` holds it
            going = going.held_by(target.attr.value)
            target = target.value
        if isinstance(target, cst.Name):
            if search.pools:
                self._pooled(search, module, scope, statement, target.value, going)
            self.follow_name(search, module, scope, target.value, statement, going.named(target.value))
            if into or isinstance(statement, cst.Call):  # the container may be one of who calls the function
                self._handed_in(search, module, scope, target.value, going)
                if scope is module.root and going.gathered is not None and self._trains_beside(module, statement, target.value):
                    search.objects.append(going.kept_by(module, statement, f"`{target.value}`", target.value, live=True))
        elif isinstance(target, cst.Attribute) and isinstance(target.value, cst.Name):
            method = method_with(scope, target.value.value)
            if method is not None:
                self.follow_attribute(search, module, statement, method, target.attr.value, going)

    def _pooled(self, search: KeptSearch, module: Module, scope: Scope, statement: cst.CSTNode, name: str, going: Going) -> None:
        """Rounds of a loop have put many values into one list or dictionary, which was made once, outside of the loop, and which no round empties."""
        if search.found or going.gathered is None or going.part or going.in_object or going.hazy:
            return
        if isinstance(going.gathered, cst.ListComp | cst.DictComp):
            made = [statement]
        else:
            around = {here for here in module.walk.ancestors(statement) if isinstance(here, cst.For | cst.While)}
            effects = [effect for effect in scope.effects.get(name, ()) if not effect.path and effect.kind in _ENDS]
            if any(not around.isdisjoint(module.walk.ancestors(effect.statement)) for effect in effects):
                return
            made = [effect.statement for effect in effects if effect.kind == "assign" and is_container(effect)]
        if made and all(self.runs_once(module, one) for one in made) and not _laid_out(scope, name):
            search.found.append(going.kept_by(module, statement, f"`{name}`", live=True))

    def _trains_beside(self, module: Module, statement: cst.CSTNode, name: str) -> bool:
        """Whether a script trains behind a statement while the container that it fills is there: nothing deletes it or gives its name to something else."""
        nodes = module.root.nodes(inner=False)
        first = nodes.index(statement)
        if any(one.how not in {How.CUT, How.PART} and nodes.index(one.statement) > first for one in endings((name, ()), module, module.root)):
            return False
        return any(nodes.index(loop) > first and self.serving.trains(module, loop) for loop in module.root.loops)

    def _handed_in(self, search: KeptSearch, module: Module, scope: Scope, name: str, going: Going) -> None:
        """The value is put into a container that is a parameter: it is in what the callers hand over from then on."""
        if search.inside is not None or going.depth >= DEEPEST or name not in names.takes(scope):
            return
        if any(not effect.path and effect.kind == "assign" for effect in scope.effects.get(name, ())):
            return
        if going.into == (scope, name):
            return  # a part of what came in by this argument goes back into it: it is where the call has it from, and with no other caller
        key = ("handed in", scope, name, going.passed, going.keys, going.fields)
        if key in search.seen:
            return
        search.seen.add(key)
        calls = self.evaluator.calls
        for site in (*calls.sites(module, scope, most=_MOST_SITES), *calls.starts(module, scope)):
            bound = (Bound(site.args, calls.plain_frame(site.module, site.scope), site.call),)
            given = arguments.given_to(scope, name, bound)
            if given is None or self.constructions.per_item(site.module, site.scope) or self._of_another_program(search, site):
                continue
            now = replace(going, depth=going.depth + 1, index=None, entered=None, into=None).once_more(repeats=self.repeats(site.module, site.call))
            if now.gathered is None:
                now = now.gathered_by(self.gathering(site.module, site.call), site.module, site.call)
            self.follow_target(search, site.module, site.call, given.node.value, now)

    def follow_attribute(self, search: KeptSearch, module: Module, statement: cst.CSTNode, scope: Scope, name: str, going: Going) -> None:
        """The value is kept on ``self``."""
        owner = scope.parent
        if owner is None or not owner.is_class or going.part or self._lookups.answer((owner, name), lambda: stands_in_for_missing(owner, name)):
            return
        if search.inside is not None:
            if scope is search.inside and not going.hazy:
                search.stores.setdefault(Given(None, (*going.fields, name), going.opened))
            inner = ("attribute inside", name)
            if search.parts and scope is search.inside and inner not in search.seen:  # what the same function gives back of it
                search.seen.add(inner)
                for use in self._attributes(module, scope, names.self_name(scope) or "", name):
                    self.climb(search, module, use, replace(going, index=None))
            return
        cls = ClassRef(module, owner)
        key, place = ("attribute", owner, name, going.passed, going.keys, going.fields), ("keeps", statement, name)
        known = key in search.seen
        if (known and place in search.seen) or not (search.late or self.constructions.builds(cls, scope)):
            return
        search.seen.update((key, place))
        going = self._last_kept(search, module, statement, scope, name, going.named(name))
        datasets = self.constructions.datasets(cls)
        if datasets:
            words = f"`{name}` of `{datasets[0].scope.name}`"
            search.found.append(going.kept_by(module, statement, words, name, datasets[0]))
            # What is done with it while the object is built, `self.data = np.concatenate(self.data)`: not where another branch has given it something else.
            others = branches_beside(module, statement)
            for use in self._attributes(module, scope, names.self_name(scope) or "", name):
                if (key, use) not in search.seen and not stands_in(module, use, others):
                    search.seen.add((key, use))
                    self.climb(search, module, use, replace(going, index=None))
            return
        is_module = any(isinstance(base, External) and base.name.startswith(_MODULES) for base in self.evaluator.lineage(cls))
        if not is_module and self.serving.may_train_with(cls):
            words = f"`{name}` of `{owner.name}`" if name else f"an attribute of `{owner.name}`"
            search.objects.append(going.kept_by(module, statement, words, name, live=True))
        if known or going.depth >= DEEPEST:
            return
        # Another class: what its methods do with the attribute, and where its objects go.
        deeper = replace(going, depth=going.depth + 1, index=None, entered=None, into=None)
        for method in owner.children:
            this = names.self_name(method)
            if this is None:
                continue
            for use in self._attributes(module, method, this, name):
                self.climb(search, module, use, deeper)
        init = owner.child("__init__")
        if init is not None:
            self._sites(search, module, init, deeper.held_by(name))

    def _last_kept(self, search: KeptSearch, module: Module, statement: cst.CSTNode, scope: Scope, name: str, going: Going) -> Going:
        """An attribute that every round of a loop binds to what it has read holds what the last round gave it, not all of them."""
        if not going.many or going.gathered is not None or going.fields or not isinstance(statement, cst.Assign) or search.start is None:
            return going
        loop, this = self.gathering(module, statement), names.self_name(scope) or ""
        joins = any(is_attribute_of(node, this) and node.attr.value == name for node in descend(statement.value))
        return going if loop is None or joins or self.gathering(module, search.start) is not loop else replace(going, many=False)

    @staticmethod
    def _attributes(module: Module, method: Scope, this: str, name: str) -> Iterator[cst.Attribute]:
        for node in method.nodes():
            if is_attribute_of(node, this) and node.attr.value == name:
                holder = module.walk.parents.get(node)
                if not isinstance(holder, cst.AssignTarget):
                    yield node

    def follow_name(self, search: KeptSearch, module: Module, scope: Scope, name: str, definition: cst.CSTNode | None, going: Going) -> None:
        """Follow every use of a name that its definition reaches."""
        key = (scope, name, definition, going.part, going.many, going.passed, going.keys, going.fields)
        if key in search.seen:
            return
        search.seen.add(key)
        if not (isinstance(definition, cst.Assign) and isinstance(definition.value, cst.Attribute)):  # else it is what the attribute was before
            going = replace(going, since=definition)
        uses = self._uses_of(module, scope, name)
        others = branches_beside(module, definition) if definition is not None else ()
        for inner in functions_using(scope, name):
            if stands_in(module, inner.node, others) or (definition is not None and stands_in(module, definition, branches_beside(module, inner.node))):
                continue  # the function is made where the name holds something else
            if definition is not None and uses.is_over(definition, inner.node):
                continue  # it is made once the name holds something else
            for use in uses.inside(inner):
                if search.steps <= STEPS:
                    self.climb(search, module, use, going)
        for looked_up in locals_by_name(scope, name) if "locals" in module.called else ():
            self.climb(search, module, looked_up, going)
        for use in uses.reached(definition):
            if search.steps > STEPS:
                return
            self.climb(search, module, use, self._last_of(module, name, definition, use, going))
        if scope is module.root and definition is not None and uses.lasts(definition) and search.inside is None and not in_main(module, definition):
            self._imported(search, module, name, replace(going, since=None))

    def _imported(self, search: KeptSearch, module: Module, name: str, going: Going) -> None:
        """Other files import the name: a script takes its data from the one that reads it."""
        if going.part or going.depth >= DEEPEST:
            return
        deeper = replace(going, depth=going.depth + 1, entered=None, into=None)
        for other, scope, effect in self._importers(module, name):
            self.follow_name(search, other, scope, effect.root, effect.statement, deeper)

    def _importers(self, module: Module, name: str) -> Iterator[tuple[Module, Scope, Effect]]:
        """Where other files import a name of a module, by whatever name they call it."""
        folder, file = os.path.split(module.path)
        stem = os.path.basename(folder) if file == "__init__.py" else os.path.splitext(file)[0]
        for path in self.project.search(_imports, (stem, name), module.path, name):
            other = self.project.module(path)
            for scope in other.walk.scopes:
                for effect in [effect for effects in scope.effects.values() for effect in effects if effect.kind == "from"]:
                    statement = effect.statement
                    if not isinstance(effect.node, cst.ImportAlias) or names.dotted(effect.node.name) != name or not isinstance(statement, cst.ImportFrom):
                        continue
                    if self.project.locate(path, names.dotted(statement.module), len(statement.relative)) == module.path:
                        yield other, scope, effect

    def _last_of(self, module: Module, name: str, definition: cst.CSTNode | None, use: cst.CSTNode, going: Going) -> Going:
        """Behind a loop whose rounds bind a name, the name holds what the last round gave it, not all of them."""
        if not going.many or going.gathered is not None or not isinstance(definition, cst.Assign) or (loop := self.gathering(module, definition)) is None:
            return going
        around = set(module.walk.ancestors(use))
        if loop in around or uses_name(definition.value, (name,)):
            return going  # in the round, or joined with what was there
        outer = self.gathering(module, use)
        return going if outer is not None and outer in module.walk.ancestors(definition) else replace(going, many=False)

    def _uses_of(self, module: Module, scope: Scope, name: str) -> NameUses:
        known = self._uses.get((scope, name))
        if known is None:
            known = self._uses[scope, name] = NameUses(module.walk, scope, name)
        return known

    # -- out of functions ----------------------------------------------------------------------------------------------

    def follow_out(self, search: KeptSearch, module: Module, scope: Scope, going: Going) -> None:
        """The value comes out of a function."""
        if search.inside is not None:
            kept = not going.part and (search.parts or not (going.collected or going.rebuilt)) and not (search.sure and going.hazy)
            if scope is search.inside and kept:
                search.gives.setdefault(Given(going.index, going.fields, going.opened, going.hazy, going.put))
                if not going.fields:
                    search.returns.add(going.index)
                if not (going.collected or going.rebuilt):
                    search.made.update((one, None) for one in going.passed if one.does in COMPUTED)
            return
        if not isinstance(scope.node, cst.FunctionDef) or going.part or going.depth >= DEEPEST or self.constructions.per_item(module, scope):
            return
        if going.into is not None and going.into[0] is scope:
            return  # what came in by an argument goes back to the call that gave it, which is followed there, and to no other
        self._sites(search, module, scope, replace(going, depth=going.depth + 1, entered=None, into=None))

    def _sites(self, search: KeptSearch, module: Module, scope: Scope, going: Going) -> None:
        key = ("sites", scope, going.index, going.passed, going.keys, going.fields)
        if key in search.seen:
            return
        search.seen.add(key)
        for site in self.evaluator.calls.sites(module, scope, most=_MOST_SITES):
            if not self.constructions.per_item(site.module, site.scope) and not self._of_another_program(search, site):
                now = replace(going, since=site.call).once_more(repeats=self.repeats(site.module, site.call))
                self.climb(search, site.module, site.call, now)
        for call in self._mapped(module, scope):
            self.climb(search, module, call, replace(going, many=True, listed=True, since=call, gathered=call).held_by(EACH))

    def _mapped(self, module: Module, scope: Scope) -> Iterator[cst.Call]:
        """Calls in the same file that call a function for each element of something: ``map(function, rows)``, ``series.apply(function)``."""
        for call, around in module.walk.calls:
            given = call.args[0].value if call.args and names.last_name(call.func) in MAPS | {"apply"} else None
            if isinstance(given, cst.Name) and given.value == scope.name and not self.constructions.per_item(module, around):
                found = self.evaluator.plainly(given, module, around)[:2]
                if any(isinstance(alt.value, FunctionRef) and alt.value.scope is scope for alt in found) and not self._is_lazy(module, around, call):
                    yield call

    def _is_lazy(self, module: Module, scope: Scope, call: cst.Call) -> bool:
        """Whether a stream of a library other than pandas is told what to do with each sample, once it comes: ``WebDataset(urls).map(decode)``."""
        if not isinstance(call.func, cst.Attribute) or len(arguments.plain(call)) > 1:
            return False
        made = [alt.value for alt in self.evaluator.plainly(call.func.value, module, scope)]
        for _ in range(_LONGEST_CHAIN):
            before = [
                (one.node.func.value, one.frame)
                for one in made
                if isinstance(one, SourceExpression) and isinstance(one.node, cst.Call) and isinstance(one.node.func, cst.Attribute)
            ]
            if not before:
                break
            made = [alt.value for node, frame in before for alt in self.evaluator.values(node, frame)]
        return any(isinstance(one, ExternalCall) and not one.name.startswith("pandas.") for one in made)

    def _of_another_program(self, search: KeptSearch, site: CallSite) -> bool:
        """Whether a call stands in what only another file runs when it is started, and that file does not import the one that reads."""
        if search.origin is None or not in_main(site.module, site.call):
            return False
        module, node = search.origin
        return site.module is not module and (in_main(module, node) or not self.project.may_import(site.module.path, module.path))

    def is_repeated(self, module: Module, node: cst.CSTNode) -> bool:
        """Whether a statement may run many times: in a loop of its function or of one that calls it, or in a function that nobody is seen to call."""
        if self.in_rounds(module, node):
            return True
        scope = module.walk.scope_at(node)
        if not isinstance(scope.node, cst.FunctionDef):
            return False
        called = scope.node.decorators or self.evaluator.calls.sites(module, scope, most=_MOST_SITES)
        return not (called or self._library_builds(module, scope))

    def in_rounds(self, module: Module, node: cst.CSTNode) -> bool:
        """Whether a statement is seen to run many times: in a loop of its function, or of one that calls it."""
        if self.gathering(module, node) is not None:
            return True
        scope = module.walk.scope_at(node)
        return isinstance(scope.node, cst.FunctionDef) and any(
            self.repeats(site.module, site.call) for site in self.evaluator.calls.sites(module, scope, most=_MOST_SITES)
        )

    def runs_once(self, module: Module, node: cst.CSTNode, depth: int = 0) -> bool:
        """Whether a script runs an expression, directly or by its functions, and no sample and no loop does."""
        if self.gathering(module, node) is not None:
            return False
        scope = module.walk.scope_at(node)
        if not isinstance(scope.node, cst.FunctionDef):
            return True
        if depth >= _DEEPEST_CALLS or self.constructions.per_item(module, scope):
            return False
        owner = scope.parent.node if scope.parent is not None else None
        if isinstance(owner, cst.ClassDef) and scope.name != "__init__" and self._may_be_called_back(module, scope):
            return self._library_builds(module, scope) and not self.evaluator.calls.sites(module, scope, most=_MOST_SITES)  # a base may call it
        sites = self.evaluator.calls.sites(module, scope, most=_MOST_SITES)
        if not sites:  # a command, or what a library calls to build its dataset
            return bool(scope.node.decorators) and not self._answers_requests(module, scope.node)
        return all(self.runs_once(one.module, one.call, depth + 1) for one in sites)

    def _answers_requests(self, module: Module, function: cst.FunctionDef) -> bool:
        """Whether a server calls a function for each request: what it has in memory then is of one."""
        calls = (one.decorator.func for one in function.decorators if isinstance(one.decorator, cst.Call))
        bases = (func.value for func in calls if isinstance(func, cst.Attribute))
        made = (alt.value for base in bases for alt in self.evaluator.plainly(base, module, module.root)[:2])
        return any(isinstance(one, ExternalCall) and one.name.startswith(SERVERS) for one in made)

    def _may_be_called_back(self, module: Module, scope: Scope) -> bool:
        """Whether a base of its class may call a method: what comes from ``torch.utils.data`` calls nothing but what runs for each sample."""
        cls = scope.parent
        if cls is None or not isinstance(cls.node, cst.ClassDef):
            return False
        _, *bases = self.evaluator.lineage(ClassRef(module, cls))
        known = all(isinstance(one, ClassRef) or one.name.startswith(_CALLS_NOTHING) for one in bases)
        return not known or len(bases) < len(cls.node.bases)

    def _library_builds(self, module: Module, scope: Scope) -> bool:
        """Whether a method is one of a library's dataset that the library calls, but not for a sample: ``process`` of torch_geometric.

        The classes of ``torch.utils.data`` call nothing but what runs for each sample or batch.
        """
        owner = scope.parent
        return owner is not None and owner.is_class and self.evaluator.extends_dataset(ClassRef(module, owner))


def _written_keys(scope: Scope, key: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What a key can be: of the variable of a loop, the texts that the loop goes over, where they stand there."""
    bound = scope.effects.get(key.value, ()) if isinstance(key, cst.Name) else ()
    over = bound[0].value if len(bound) == 1 and bound[0].kind == "for" and not (bound[0].path or bound[0].index) else None
    written = [one.value for one in over.elements] if isinstance(over, cst.List | cst.Tuple) else []
    return written if written and all(isinstance(one, cst.SimpleString) for one in written) else [key]


@finder
def _imports(path: str, data: bytes, stem: str, name: str) -> str:
    """Whether a file may import a name from a module that is called so."""
    del path
    module = stem.encode(errors="surrogateescape")
    if name.encode() not in data or module not in data:
        return ""
    return FOUND if re.search(rb"^\s*from\s+\S*(?<!\w)" + re.escape(module) + rb"\s+import\b", data, re.MULTILINE) is not None else ""


def _laid_out(scope: Scope, name: str) -> bool:
    """Whether all pictures of a list are put onto one, for somebody to look at: that is about as large as they are together."""
    loops = (loop for loop in scope.loops if isinstance(loop, cst.For) and name in names_in(loop.iter))
    calls = ((loop, call) for loop in loops for call in descend(loop.body) if isinstance(call, cst.Call) and names.last_name(call.func) in _LAYS)
    return any(call.args and not names_in(call.args[0].value).isdisjoint(names_in(loop.target)) for loop, call in calls)
