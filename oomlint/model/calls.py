"""Who calls a function, and with what: the frames in which its body runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from oomlint.api_names import HANDS_ON
from oomlint.model import arguments, names
from oomlint.model.computed_names import asked_for, key_of
from oomlint.model.readings import FOUND, AnswerMemory, finder
from oomlint.model.test_suites import holds_tests
from oomlint.model.values import Bound, ClassRef, Frame, FunctionRef, Instance, Partial
from oomlint.syntax.nodes import descend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.model.evaluate import Evaluator
    from oomlint.model.project import Module, Project
    from oomlint.syntax.scopes import Scope

_MOST_FRAMES = 16
_MOST_SITES = 2 * _MOST_FRAMES
_DEEPEST = 6


_ANY = ""  # no name of a function: what `partial` has made may be any


# Calls of libraries that run a function, with arguments, elsewhere: with what it gives dropped, or handed over.
_TARGETS = frozenset({"Thread", "Process", "Timer"})
JOBS = frozenset({"submit", "apply_async", "apply", "run_in_executor"})
STARTS = _TARGETS | JOBS
_HYDRA_SETTINGS = (".yaml", ".yml")
_DEFINED = re.compile(rb"\bdef\s+(\w+)")
_TARGET = re.compile(rb"""_target_["']?\s*[:=]\s*["']?(?:[\w.]*\.)?(\w+)""")


class CallSite:
    """One call of a function: the call, its arguments for the function, and the scope it stands in."""

    __slots__ = ("args", "call", "module", "scope", "this")

    def __init__(self, module: Module, scope: Scope, call: cst.Call, args: tuple[cst.Arg, ...], this: Instance | None) -> None:
        self.module = module
        self.scope = scope
        self.call = call
        self.args = args
        self.this = this


class Calls:
    """Callers and the frames that they make."""

    def __init__(self, project: Project, evaluator: Evaluator) -> None:
        self.project = project
        self.evaluator = evaluator
        self._sites: AnswerMemory[tuple[Scope, int], list[CallSite]] = AnswerMemory(project.readings)  # each with how many were asked for
        self._frames: AnswerMemory[tuple[Scope, int], list[Frame]] = AnswerMemory(project.readings)
        self._subclasses: AnswerMemory[Scope, list[ClassRef]] = AnswerMemory(project.readings)
        self._aliases: dict[Module, dict[str, set[str]]] = {}  # how calls are written, by the name where it is defined
        self._tables: dict[Module, dict[str, set[str]]] = {}  # those of a module, by the functions that are in them
        self._computed: dict[Module, list[tuple[cst.BaseExpression, cst.Call, Scope]]] = {}  # calls of what has a computed name, with that
        self._plain: dict[Scope, Frame] = {}
        self._targets: AnswerMemory[str, frozenset[str]] = AnswerMemory(project.readings)  # what settings have Hydra call, by the folder
        self._active: set[Scope] = set()
        self._asking: set[Scope] = set()
        self._circles = 0  # answers that were given in the middle of the same question: what rests on one is not kept

    def sites(self, module: Module, scope: Scope, most: int = _MOST_SITES) -> list[CallSite]:
        """Calls of a function of the project, nearest file first. For ``__init__`` the calls of its class. Who needs only some has fewer files parsed."""
        known = self._sites.known((scope, _MOST_SITES))
        if known is not None:
            return known if most == _MOST_SITES else known[:most]
        known = self._sites.get((scope, most))
        if known is not None:
            return known
        if scope in self._asking:
            self._sites.give_up()
            self._circles += 1
            return []
        self._asking.add(scope)
        try:
            found = self._sites_of(module, scope, most)
        finally:
            self._asking.discard(scope)
        self._sites[scope, most] = found
        if len(found) < most:  # there are no more
            self._sites.answers_too((scope, most), (scope, _MOST_SITES))
        return found

    def _sites_of(self, module: Module, scope: Scope, most: int) -> list[CallSite]:
        found: list[CallSite] = []
        if isinstance(scope.node, cst.FunctionDef):
            of_class = scope.name == "__init__" and scope.parent is not None and scope.parent.is_class
            name = scope.parent.name if of_class and scope.parent is not None else scope.name
            if not (name.startswith("__") and name.endswith("__")):
                owner = scope.parent.name if scope.parent is not None and scope.parent.is_class and not of_class else ""
                inner = scope.parent is not None and scope.parent.is_function  # nobody else knows its name
                for caller in [module] if inner else self._callers(module, scope, name, owner):
                    found.extend(self._in(caller, name, scope))
                    if len(found) >= most:
                        break
                if owner and not found:
                    found.extend(self._by_computed_name(module, scope))
                made = owner and not found and self.project.search(_instantiates, (), module.path, "instantiate")
                if made and scope.parent is not None and self._is_target(ClassRef(module, scope.parent)):
                    found.extend(self._on_made_by_settings(module, scope, owner))
                if scope.parent is module.root:
                    found.extend(self._through_tables(module, scope))
        return found if most == _MOST_SITES else found[:most]

    def _through_tables(self, module: Module, scope: Scope) -> Iterator[CallSite]:
        """Calls of a function that its file puts into a table, or into options: ``LOADERS[args.dataset]["train"](args)``, ``args.run(args)``."""
        tables = self._tables.get(module)
        if tables is None:
            tables = self._tables[module] = _tables_of(module)
        for table in tables.get(scope.name, ()):
            for caller in self.project.mentioning([table.removesuffix("[]").encode()], module.path):
                yield from self._in(caller, table, scope)

    def _by_computed_name(self, module: Module, scope: Scope) -> Iterator[CallSite]:
        """Calls of a method in its file by a name that is put together: ``getattr(self, "read_" + kind)(path)``."""
        made = self._computed.get(module)
        if made is None:
            calls = ((key_of(call.func, around), call, around) for call, around in module.walk.calls) if "getattr" in module.words else ()
            made = self._computed[module] = [(key, call, around) for key, call, around in calls if key is not None]
        for key, call, around in made:
            if asked_for(key, (scope.name,)) and around is not scope:
                for alt in self.evaluator.callees(call, self.plain_frame(module, around)):
                    if isinstance(alt.value, FunctionRef) and alt.value.scope is scope:
                        yield CallSite(module, around, call, tuple(call.args), alt.value.this)
                        break

    def _on_made_by_settings(self, module: Module, scope: Scope, owner: str) -> Iterator[CallSite]:
        """Calls of a method on an object that Hydra makes of settings which the function around is given: nobody knows its class but by who calls that."""
        for caller in self.project.callers(scope.name, module.path, owner):
            for call, around in self._calls_of(caller, scope.name):
                given = around.is_function and around is not scope and not names.is_called_on_self(call, around)
                for frame in self.frames(caller, around) if given else ():
                    made = [alt.value for alt in self.evaluator.callees(call, frame)]
                    this = next((one.this for one in made if isinstance(one, FunctionRef) and one.scope is scope), None)
                    if this is not None:
                        yield CallSite(caller, around, call, tuple(call.args), this)
                        break

    def _is_target(self, cls: ClassRef) -> bool:
        """Whether settings, or code, have Hydra make objects of a class, or call a function of a file that speaks of it.

        Else no call need be asked what it is made on: in a large project many would be.
        """
        targets = self._targets.answer(self.project.top, lambda: self._hydra_targets(cls.module))
        if any(one.scope.name in targets for one in (cls, *(self.subclasses(cls) if targets else ()))):
            return True
        return bool(targets) and bool(self.project.search(_defines_maker, (cls.scope.name, *sorted(targets)), cls.module.path, cls.scope.name))

    def _hydra_targets(self, module: Module) -> frozenset[str]:
        settings = (_targets(path, self.project.raw(path)) for path in self.project.settings_files() if path.endswith(_HYDRA_SETTINGS))
        return frozenset(name for told in (*settings, *self.project.search(_targets, (), module.path, "_target_").values()) for name in told.split())

    def _callers(self, module: Module, scope: Scope, name: str, owner: str) -> Iterator[Module]:
        """Files that may call a function; of a method also those of its base classes, which leave it to the derived ones and know nothing of them."""
        seen = set()
        for caller in self.project.callers(name, module.path, owner):
            seen.add(caller.path)
            yield caller
        bases = self.evaluator.lineage(ClassRef(module, scope.parent))[1:] if owner and scope.parent is not None else []
        for base in bases:
            if isinstance(base, ClassRef) and base.module.path not in seen and base.scope.child(name) is not None:
                seen.add(base.module.path)
                yield base.module

    def _in(self, caller: Module, name: str, target: Scope) -> list[CallSite]:
        found: list[CallSite] = []
        for call, scope in self._calls_of(caller, name):
            if names.last_name(call.func) in HANDS_ON and call.args and names.last_name(call.args[0].value) == name:
                continue  # the call of the partial is what counts
            if scope is target:
                continue
            frame = self.plain_frame(caller, scope)
            for alt in self.evaluator.callees(call, frame):
                value = alt.value
                if isinstance(value, FunctionRef) and value.scope is target:
                    found.append(CallSite(caller, scope, call, tuple(call.args), value.this))
                    break
                if isinstance(value, ClassRef):
                    made = self.evaluator.method(Instance(value, None), "__init__")
                    if made is not None and made.scope is target:
                        found.append(CallSite(caller, scope, call, tuple(call.args), Instance(value, (Bound(tuple(call.args), frame, call),), call, frame)))
                        break
                if isinstance(value, Partial) and isinstance(value.func, FunctionRef) and value.func.scope is target:
                    found.append(CallSite(caller, scope, call, (*value.bound.args, *call.args), value.func.this))
                    break
        return found

    def starts(self, module: Module, scope: Scope) -> list[CallSite]:
        """Calls in its module that have a function run by a thread, a process or a pool, with the arguments that it is given there."""
        found: list[CallSite] = []
        for call, around in module.walk.calls:
            args = _started(call) if names.last_name(call.func) in STARTS else None
            if args is None or names.last_name(args[0].value) != scope.name:
                continue
            for alt in self.evaluator.values(args[0].value, self.plain_frame(module, around))[:3]:
                if isinstance(alt.value, FunctionRef) and alt.value.scope is scope:
                    found.append(CallSite(module, around, call, args[1:], alt.value.this))
                    break
        return found

    def _calls_of(self, caller: Module, name: str) -> list[tuple[cst.Call, Scope]]:
        """The calls in a module that may be of ``name``: as it is, as the module imports or names it, or as something that ``partial`` has made."""
        aliases = self._aliases.get(caller)
        if aliases is None:
            aliases = self._aliases[caller] = {}
            for scope in caller.walk.scopes:
                for written in caller.called.keys() & scope.effects.keys():
                    for effect in scope.effects[written]:
                        if effect.kind == "from" and isinstance(effect.node, cst.ImportAlias):
                            aliases.setdefault(names.dotted(effect.node.name), set()).add(written)
                        elif effect.kind == "assign" and not (effect.path or effect.index) and effect.value is not None:
                            for other in _named(effect.value):
                                aliases.setdefault(other, set()).add(written)
        return caller.calls_of({name, *aliases.get(name, ()), *aliases.get(_ANY, ())})

    def plain_frame(self, module: Module, scope: Scope) -> Frame:
        """A frame of the scope with nothing known of its callers: always the same object, which is a key of most that is remembered."""
        known = self._plain.get(scope)
        if known is None:
            known = self._plain[scope] = self._plain_frame(module, scope)
        return known

    def _plain_frame(self, module: Module, scope: Scope) -> Frame:
        this = None
        if names.is_method(scope) and scope.parent is not None:
            this = Instance(ClassRef(module, scope.parent), None)
        outer = None
        if scope.parent is not None and scope.parent.is_function:
            outer = self.plain_frame(module, scope.parent)
            this = this or outer.this
        return Frame(module, scope, None, this, outer)

    def frames(self, module: Module, scope: Scope, depth: int = 0, most: int = _MOST_FRAMES) -> list[Frame]:
        """The frames in which the code of ``scope`` runs: one for each way that leads there, at least one. Who needs only some has fewer files parsed."""
        if scope.parent is None:
            return [self.plain_frame(module, scope)]
        if scope.is_class:
            return [Frame(module, scope)]
        known = self._frames.get((scope, most))
        if known is not None:
            return known
        if scope in self._active or depth >= _DEEPEST:
            self._frames.give_up()
            self._circles += 1
            return [self.plain_frame(module, scope)]
        circles = self._circles
        self._active.add(scope)
        try:
            found = self._frames_of(module, scope, depth, most)
        finally:
            self._active.discard(scope)
        if not found:
            found = [self.plain_frame(module, scope)]
        if depth == 0 and circles == self._circles:
            self._frames[scope, most] = found
        return found

    def _frames_of(self, module: Module, scope: Scope, depth: int, most: int) -> list[Frame]:
        found: list[Frame] = []
        method = names.is_method(scope) and scope.name != "__init__"
        sites = self.sites(module, scope, most if most < _MOST_FRAMES else _MOST_SITES)
        outside = self._outside_tests(module, sites)
        if sites and not outside:  # what only tests give to a function, no program does
            outside = self._outside_tests(module, self.sites(module, scope))
            if not outside:
                return found
        for site in outside:
            for outer in self.frames(site.module, site.scope, depth + 1, most):
                if scope.name == "__init__" and site.this is not None and not self._makes(site.call, outer, site.this.cls):
                    continue
                bound = (Bound(site.args, outer, site.call),)
                if scope.name == "__init__" and site.this is not None:
                    this: Instance | None = Instance(site.this.cls, bound, site.call, outer)
                elif method:
                    this = self._receiver(site, outer)
                else:
                    this = site.this
                found.append(Frame(module, scope, bound, this, self._enclosing(scope, outer)))
                if len(found) >= most:
                    return found
        if found or scope.parent is None:
            return found
        if scope.name == "__init__" and scope.parent.is_class:
            return self._through_subclasses(module, scope, depth)[:most]
        if not method:
            return found
        # Frameworks call the hooks of the objects that the project makes.
        made = self.instances(module, scope.parent, depth + 1, most)
        return [Frame(module, scope, None, this) for this in made if this.at is None or self._counts(module, this.at.module)]

    @staticmethod
    def _counts(module: Module, caller: Module) -> bool:
        """Whether what a caller gives to code of a module is what a program gives: a test says nothing of the program that it tests."""
        return caller is module or not holds_tests(caller) or holds_tests(module)

    def _outside_tests(self, module: Module, sites: list[CallSite]) -> list[CallSite]:
        return [site for site in sites if self._counts(module, site.module)]

    def _makes(self, call: cst.Call, frame: Frame, cls: ClassRef) -> bool:
        """Whether a call that may make an object of the class still does in a frame of its function: ``TABLE[name](**kwargs)``."""
        if names.last_name(call.func) == cls.scope.name:
            return True
        made = [alt.value for alt in self.evaluator.callees(call, frame) if isinstance(alt.value, ClassRef)]
        return not made or cls in made

    def _through_subclasses(self, module: Module, scope: Scope, depth: int) -> list[Frame]:
        """Frames of an ``__init__`` that only ``super().__init__(...)`` of derived classes runs."""
        if scope.parent is None:
            return []
        made = [frame for this in self.instances(module, scope.parent, depth + 1) if (frame := self.evaluator.init_frame(this)) is not None]
        if not made:  # by a registry, a setting: nobody sees by whom
            derived = [(ref.module, init) for ref in self.subclasses(ClassRef(module, scope.parent)) if (init := ref.scope.child("__init__")) is not None]
            made = [self.plain_frame(*init) for init in derived]
        return [found for frame in made if (found := self._handed_up(frame, scope)) is not None]

    def _handed_up(self, frame: Frame, scope: Scope) -> Frame | None:
        """The frame of a base's ``__init__`` that one of a derived class leads to by ``super().__init__(...)``."""
        here: Frame | None = frame
        for _ in range(4):
            if here is None or here.scope is scope:
                break
            above = here
            here = next((found for call in above.scope.calls if (found := self.evaluator.super_init(call, above)) is not None), None)
        return here if here is not None and here.scope is scope else None

    def _receiver(self, site: CallSite, frame: Frame) -> Instance | None:
        if isinstance(site.call.func, cst.Attribute):
            for alt in self.evaluator.values(site.call.func.value, frame):
                if isinstance(alt.value, Instance):
                    return alt.value
        return site.this

    @staticmethod
    def _enclosing(scope: Scope, frame: Frame) -> Frame | None:
        if scope.parent is None or not scope.parent.is_function:
            return None
        here: Frame | None = frame
        while here is not None:
            if here.scope is scope.parent:
                return here
            here = here.outer
        return None

    def instances(self, module: Module, cls: Scope, depth: int = 0, most: int = _MOST_FRAMES) -> list[Instance]:
        """Objects of the class, or of a class derived from it, that the project makes."""
        found: list[Instance] = []
        own = ClassRef(module, cls)
        for ref in [own, *self.subclasses(own)]:
            init = self.evaluator.method(Instance(ref, None), "__init__")
            for caller in self.project.callers(ref.scope.name, module.path):
                for call, scope in self._calls_of(caller, ref.scope.name):
                    plain = self.plain_frame(caller, scope)
                    if not any(isinstance(a.value, ClassRef) and a.value.scope is ref.scope for a in self.evaluator.values(call.func, plain)):
                        continue
                    if init is not None and scope is init.scope:
                        continue
                    for frame in self.frames(caller, scope, depth + 1, most):
                        if not self._makes(call, frame, ref):
                            continue
                        found.append(Instance(ref, (Bound(tuple(call.args), frame, call),), call, frame))
                        if len(found) >= most:
                            return found
        return found

    def subclasses(self, own: ClassRef) -> list[ClassRef]:
        """Classes of the project that derive from this one."""
        cls = own.scope
        known = self._subclasses.get(cls)
        if known is not None:
            return known
        found: list[ClassRef] = []
        self._subclasses.assume(cls, found)
        for path in self.project.search(_derives, (cls.name,), own.module.path, cls.name):
            other = self.project.find(path)
            if other is None:
                continue
            for scope in other.walk.scopes:
                if scope.is_class and scope is not cls and isinstance(scope.node, cst.ClassDef) and scope.node.bases:
                    ref = ClassRef(other, scope)
                    if any(isinstance(b, ClassRef) and b.scope is cls for b in self.evaluator.lineage(ref)):
                        found.append(ref)
            if len(found) >= _MOST_FRAMES:
                break
        self._subclasses[cls] = found
        return found


def _named(value: cst.BaseExpression) -> Iterator[str]:
    """The functions or classes that get another name where a statement binds it to an expression, by the last names that they had."""
    if isinstance(value, cst.Name | cst.Attribute):
        yield names.last_name(value)
    elif isinstance(value, cst.IfExp):
        yield from _named(value.body)
        yield from _named(value.orelse)
    elif isinstance(value, cst.Call) and names.last_name(value.func) in HANDS_ON:
        yield _ANY
    elif isinstance(value, cst.Subscript):
        yield names.written_as(value)


def _tables_of(module: Module) -> dict[str, set[str]]:
    """What calls of a module's functions are written with that are held by its dictionaries and lists, or by options, by these functions."""
    functions = {scope.name for scope in module.root.children if scope.is_function}
    found: dict[str, set[str]] = {}
    for root, effects in module.root.effects.items():
        for effect in effects:
            for node in descend(effect.value) if effect.kind == "assign" and effect.value is not None else ():
                if isinstance(node, cst.Element | cst.DictElement) and isinstance(node.value, cst.Name) and node.value.value in functions:
                    found.setdefault(node.value.value, set()).add(f"{root}[]")
            if effect.kind == "assign" and effect.path and isinstance(effect.value, cst.Name) and effect.value.value in functions:
                found.setdefault(effect.value.value, set()).add(f"{root}[]")  # `TABLE["train"] = train`
    for call, _ in module.calls_of(("set_defaults",)):  # `parser.set_defaults(run=train)`
        for arg in call.args:
            if arg.keyword is not None and isinstance(arg.value, cst.Name) and arg.value.value in functions:
                found.setdefault(arg.value.value, set()).add(arg.keyword.value)
    return found


def _started(call: cst.Call) -> tuple[cst.Arg, ...] | None:
    """The function that a call has run elsewhere, then its arguments: ``Thread(target=f, args=(a, b))``, ``submit(f, a, b)``, ``apply_async(f, (a, b))``."""
    named = {arg.keyword.value: arg for arg in call.args if arg.keyword is not None}
    plain = arguments.positionals(call)
    last = names.last_name(call.func)
    target = named.get("target") if last in _TARGETS else plain[0] if plain else named.get("func") or named.get("fn")
    if target is None:
        return None
    if last == "submit":
        return (target, *plain[1:], *(arg for name, arg in named.items() if name not in {"fn", "func"}))
    packed = named.get("args") or (plain[1] if len(plain) > 1 and last in JOBS else None)
    given = packed.value.elements if packed is not None and isinstance(packed.value, cst.Tuple | cst.List) else ()
    keywords = named["kwds"] if "kwds" in named else named.get("kwargs")
    return (target, *(cst.Arg(one.value) for one in given if isinstance(one, cst.Element)), *_entries(keywords))


def _entries(given: cst.Arg | None) -> list[cst.Arg]:
    """The keyword arguments that a dictionary stands for."""
    if given is None or not isinstance(given.value, cst.Dict):
        return []
    pairs = (one for one in given.value.elements if isinstance(one, cst.DictElement) and isinstance(one.key, cst.SimpleString))
    return [cst.Arg(one.value, cst.Name(str(one.key.evaluated_value))) for one in pairs if isinstance(one.key, cst.SimpleString)]


@finder
def _derives(path: str, data: bytes, name: str) -> str:
    """Whether the text of a file has a class that derives from one of that name."""
    del path
    word = name.encode()
    return FOUND if word in data and re.search(rb"\bclass\s+\w+\s*\([^)]*\b" + re.escape(word) + rb"\b", data) else ""


@finder
def _targets(path: str, data: bytes) -> str:
    """Names of the classes and functions that a file has Hydra call."""
    del path
    return " ".join(sorted({name.decode() for name in _TARGET.findall(data)}))


@finder
def _defines_maker(path: str, data: bytes, owner: str, *targets: str) -> str:
    """Whether a file that speaks of a class defines a function that Hydra is to call."""
    del path
    return FOUND if owner.encode() in data and not {name.decode() for name in _DEFINED.findall(data)}.isdisjoint(targets) else ""


@finder
def _instantiates(path: str, data: bytes) -> str:
    """Whether a file has Hydra make objects of what settings say."""
    del path
    return FOUND if b"hydra" in data and b"instantiate" in data else ""
