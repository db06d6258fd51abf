"""What several findings say of the same container, or of copies of the same code, is said once."""

from __future__ import annotations

import ast
import hashlib
import io
import os
import tokenize
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.ast_trees import tree_of
from oomlint.finding import AttributeFact, LoaderFact, LoopFact, ReadFact, Role, Safety, Severity, StoreFact, is_inside, overlap
from oomlint.notebooks.cells import NotebookError, read_notebook
from oomlint.patterns import pattern

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from oomlint.finding import Finding, Place

ALSO = "the same for this loader"  # what is said at the places of others
AGAIN = "also here"
COPY = "a copy of it"
GIVEN = "also set here"
_MADE, _COPIED = "OOM405", "OOM110"  # a list of Python objects where it is made, and where workers copy it: the second says what it costs
_SHARED, _MANY_WORKERS = "OOM114", "OOM120"  # workers over what is in memory, and very many of them: at one loader the first says it all
_OF_HELD = frozenset({_COPIED, "OOM112", "OOM113", _SHARED})  # what workers do with what a dataset holds
_CAN_FAIL = frozenset({"OOM101", "OOM102", "OOM103", "OOM104"})  # at loaders that have no workers where the command says so: the option is the cause of all
_HANDLES, _PICKLED = frozenset({"OOM301", "OOM303", "OOM311"}), "OOM111"  # a handle that a dataset keeps, and a loader that sends it: the first says so
_ALLOCATED = "OOM407"  # room for all of an attribute, perhaps in several branches
_EVALUATES = "OOM204"  # loops that run the same function, which runs the model
_OURS = "OOM"
_LEFT_ON = "OOM224"  # a switch for the whole run: in the scripts of one folder it is one habit
LOADER = "used by this loader"
PART = "part of the same problem"
KEEPS = "keeps its graph"
_ONE_CHAIN: Final = (
    # What tells of a problem, what tells of a part of it, the noun by which both are about the same thing, and what is said at the part.
    (frozenset({"OOM305", "OOM402", "OOM403"}), frozenset({"OOM401"}), ReadFact, PART),  # what is read, and where that is joined
    (frozenset({"OOM507"}), frozenset({"OOM402", "OOM408"}), AttributeFact, PART),  # what stays on the device, and where it comes from
    (frozenset({"OOM204"}), frozenset({"OOM201", "OOM202", "OOM203", "OOM205"}), LoopFact, KEEPS),  # who records a graph for nothing, and what keeps it
)
_READS: Final = frozenset({"OOM305", "OOM402", "OOM404", "OOM406"})  # by what reads: a function that several datasets call is one problem
_MOST_GIVEN = 12
_MOST_RELATED = 8
_MANY = 5  # files with copies of the same code, for which one is told even where each stands for several loaders
_MOST_COPIES = 16
_MOST_NEAR = 5  # places of copies that differ elsewhere, where they stand in more than a few files
_FEW_FILES = 2
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BODIES = frozenset({"body", "orelse", "handlers", "finalbody"})
_NAMED: Final = pattern("`[^`]*`")  # what a message calls by its name


def said_once(findings: Iterable[Finding], beside: Container[str] = (), reached: Container[str] = ()) -> list[Finding]:
    """Findings on the loaders of one container become one: the gravest of them, with the calls of the other loaders as related places.

    So do those on the places that make the objects of one attribute, and they go with the loader whose workers copy them.

    What several files beside the code make true of one place is one, too: of the ``reached`` ones first, which it is told in.

    Files ``beside`` what is checked come last.
    """
    at_place: dict[object, list[Finding]] = {}  # what several loads or callers make true of one place is one problem
    for item in _given_once(findings, reached):
        at_place.setdefault((item.code, item.headline, item.place) if item.code else item, []).append(item)
    groups: dict[object, list[Finding]] = {}
    same: dict[object, object] = {}  # an attribute that a class sets for all that derive from it is one container
    for item in (_with_containers(alike) for alike in at_place.values()):
        subject = _subject(item) or item
        keys = (subject, *_causes(item))
        known = next((same[key] for key in keys if key in same), subject)
        same.update(dict.fromkeys(keys, known))
        groups.setdefault(known, []).append(item)
    by_workers = {_container(group[0]): group for group in groups.values() if group[0].code == _COPIED}
    for key in [key for key, group in groups.items() if group[0].code == _MADE and _container(group[0]) in by_workers]:
        made = groups.pop(key)
        by_workers[_container(made[0])].extend(made)
    handles = {_set_at(item): item.severity.rank for group in groups.values() for item in group if item.code in _HANDLES}
    told = {item.of_noun(LoaderFact)[0].place for group in groups.values() for item in group if item.code == _SHARED and item.of_noun(LoaderFact)}
    kept: list[Finding] = []
    for group in groups.values():
        if group[0].code == _MANY_WORKERS:
            group[:] = [item for item in group if item.of_noun(LoaderFact)[0].place not in told]
        group[:] = [item for item in group if item.code != _PICKLED or not _only_sends(item, handles)]
        if not group:
            continue
        first = min(group, key=lambda item: (item.place.path in beside, _weight(item)))
        if len(group) > 1:
            first = _with_others(first, [item for item in group if item is not first])
        kept.append(first)
    return _chains_once(kept)


def _chains_once(findings: list[Finding]) -> list[Finding]:
    """Findings of several rules on one way of the same data become one: the gravest of them, with the places of the others."""
    for wholes, parts, noun, said in _ONE_CHAIN:
        about: dict[object, Finding] = {}
        for item in findings:
            if item.code in wholes:
                about.update(dict.fromkeys(_things(item, noun), item))
        chains: dict[Finding, list[Finding]] = {}
        for item in findings if about else ():
            whole = next((about[thing] for thing in _things(item, noun) if thing in about), None) if item.code in parts else None
            if whole is not None and not _fixes_more(item, whole):
                chains.setdefault(whole, []).append(item)
        told: dict[Finding, Finding] = {}
        gone: set[Finding] = set()
        for whole, others in chains.items():
            every = [whole, *others]
            first = min(every, key=lambda item: item.severity.rank)
            rest = [item for item in every if item is not first]
            told[first] = _with_parts(first, rest, said)
            gone.update(rest)
        findings = [told.get(item, item) for item in findings if item not in gone]
    return findings


def _fixes_more(part: Finding, whole: Finding) -> bool:
    """Whether a part has a fix that changes nothing else, and the whole has none: it has to be told so that it can be applied."""
    safe = [item.fix is not None and item.fix.safety is Safety.SAFE and bool(item.fix.edits) for item in (part, whole)]
    return safe == [True, False]


def _things(finding: Finding, noun: type[AttributeFact | LoopFact | ReadFact]) -> list[object]:
    """What a finding is about, as far as another may be about the same."""
    if noun is LoopFact:
        return [fact.place for fact in finding.of_noun(LoopFact)] if finding.severity is Severity.ERROR else []
    if noun is AttributeFact:
        return [(fact.name, fact.place) for fact in finding.of_noun(AttributeFact) if fact.place is not None]
    return [fact.place for fact in finding.of_noun(ReadFact)]


def _with_parts(whole: Finding, parts: Sequence[Finding], said: str) -> Finding:
    """A finding with the places of those that it stands for behind its first one."""
    spots = [part.place.saying(said) for part in parts]
    again = [place for part in parts for place in _again(part)]
    told = {place: place for place in (*whole.related[:1], *(spot for spot in spots if spot not in whole.related), *whole.related[1:], *again)}
    told.pop(whole.place, None)
    return replace(whole, related=tuple(told.values())[:_MOST_RELATED])


def _given_once(findings: Iterable[Finding], reached: Container[str]) -> Iterator[Finding]:
    """Findings of one rule at one place whose numbers files beside the code give, as one: it says what the first of its given places does."""
    groups: dict[object, list[Finding]] = {}
    for item in findings:
        groups.setdefault((item.code, item.place) if item.given else item, []).append(item)
    for group in groups.values():
        told = [item for item in group if any(place.path in reached for place in item.given)] or group
        first = min(told, key=_weight)
        others = [item for item in (*told, *group) if item is not first]
        fixes = [item.fix for item in (first, *told) if item.fix is not None and first.fix is not None and item.fix.safety is first.fix.safety]
        edits = tuple(dict.fromkeys(edit for fix in fixes for edit in fix.edits))
        given = tuple(dict.fromkeys(place for item in (first, *others) for place in item.given))
        yield replace(first, given=given, fix=replace(first.fix, edits=edits) if first.fix is not None else None)


def _subject(finding: Finding) -> object:
    """The code, and the container, the function, or the number of workers that a finding is about; ``None`` for one that is about its place alone."""
    held, loaders = finding.of_noun(AttributeFact), finding.of_noun(LoaderFact)
    if not loaders and finding.code == _MADE and _container(finding) is not None:
        return finding.code, _container(finding)
    if finding.code == _EVALUATES:
        return _passes(finding)
    if finding.code == _LEFT_ON:
        return finding.code, os.path.dirname(finding.place.path)
    if finding.code in _READS and finding.of_noun(ReadFact) and finding.of_noun(ReadFact)[0].within is not None:
        return finding.code, finding.of_noun(ReadFact)[0].within, finding.place.path
    if not loaders or (loaders[0].place != finding.place and finding.code not in _OF_HELD):  # a class of loaders is made where it is called
        return None
    optional = finding.code in _CAN_FAIL and finding.severity is not Severity.ERROR
    by_number = optional or finding.code in {_SHARED, _MANY_WORKERS}
    number = loaders[0].workers[0].place if by_number and len(loaders) == len(loaders[0].workers) == 1 else None
    if number is not None and not is_inside(number, loaders[0].place):
        return finding.code, number, finding.place.path if optional else ""
    if not held and len(loaders) == 1 and loaders[0].option.endswith("_fn") and finding.related:
        # Without a fix to apply to each, the scripts of a project that repeat the same function are one.
        return finding.code, finding.related[0] if finding.fix is not None else finding.message
    # Branches may set the same attribute at several places.
    return (finding.code, _container(finding) or held[0].place) if held and held[0].place is not None else None


def _passes(finding: Finding) -> object:
    """The passes that a loop runs by one call of a function of its file: loops that call the same one have one cause."""
    loop = next(iter(finding.of_noun(LoopFact)), None)
    runs = loop.runs if loop is not None and finding.severity is not Severity.ERROR else ()
    outside = tuple(run for run in runs if loop is not None and not is_inside(run, loop.place))
    return (finding.code, outside) if outside and len(runs) == len(outside) + 1 else None


def _causes(finding: Finding) -> Iterator[object]:
    """What else findings of a rule may have as their one cause: what workers copy, the attributes of a class that all of it is read into, a number of workers.

    The same number may stand at each loader of a file.
    """
    place = copied(finding)
    if place is not None:
        yield finding.code, place
    workers = [one for loader in finding.of_noun(LoaderFact) for one in loader.workers] if finding.code in {_SHARED, _MANY_WORKERS} else []
    if len(workers) == 1 and workers[0].count is not None:
        yield finding.code, finding.severity, workers[0].count, finding.place.path
    if finding.code in _READS or finding.code == _ALLOCATED:
        for held in finding.of_noun(AttributeFact):
            if held.owner and held.place is not None:
                yield finding.headline, finding.severity, held.place.path, held.owner, held.name  # read or made in the same way


def copied(finding: Finding) -> Place | None:
    """The container that workers copy: findings on several of the same name differ in nothing else."""
    held = next(iter(finding.of_noun(AttributeFact)), None) if finding.code == _COPIED else None
    return held.place if held is not None else None


def _with_containers(alike: Sequence[Finding]) -> Finding:
    """What several findings say of one place, with the containers of the same name that the others are about."""
    first, *others = sorted(alike, key=_weight)
    found = {place: item for item in (first, *others) if (place := copied(item)) is not None}
    more = [item for place, item in found.items() if place != copied(first)]
    owners = dict.fromkeys(f"`{item.of_noun(AttributeFact)[0].owner}`" for item in more if item.of_noun(AttributeFact)[0].owner)
    if not more or not owners:
        return first
    spots = [item.related[0].saying(item.related[0].message, Role.BESIDE) for item in more if item.related]
    return replace(first.adding(f"also in {' and '.join(owners)}"), related=(*first.related[:1], *spots, *first.related[1:]))


def _only_sends(finding: Finding, handles: Mapping[tuple[Place, str] | None, int]) -> bool:
    """Whether all that a loader cannot send is a handle of which a finding speaks that is as grave."""
    held, options = finding.of_noun(AttributeFact), [loader.option for loader in finding.of_noun(LoaderFact)]
    return len(held) == 1 and not any(options) and handles.get(_set_at(finding), finding.severity.rank + 1) <= finding.severity.rank


def _set_at(finding: Finding) -> tuple[Place, str] | None:
    """Where the attribute that a finding is about is set, by this class or one that it derives from, and its name."""
    held = next(iter(finding.of_noun(AttributeFact)), None)
    return (held.place, held.name) if held is not None and held.place is not None else None


def _container(finding: Finding) -> tuple[str, str, str] | None:
    """The attribute that a finding is about, by its class and the file of that."""
    held = next(iter(finding.of_noun(AttributeFact)), None)
    return (held.place.path, held.owner, held.name) if held is not None and held.owner and held.place is not None else None


def where_given(findings: Iterable[Finding], reached: Container[str]) -> list[Finding]:
    """Findings whose numbers files beside the code give, told there, where such a file is ``reached``; those of one rule at one place as one."""
    groups: dict[object, list[Finding]] = {}
    for item in findings:
        place = next((place for place in item.given if place.path in reached), None)
        groups.setdefault(item if place is None else (item.code, place), []).append(item)
    kept: list[Finding] = []
    for key, group in groups.items():
        first, *others = sorted(group, key=_weight)
        if not isinstance(key, tuple):
            kept.append(first)
            continue
        place = key[1]
        loaders = [item.place.saying(ALSO, Role.BESIDE) for item in others]
        given = [each.saying(GIVEN, Role.BESIDE) for each in first.given if each != place]
        related = dict.fromkeys((first.place.saying(LOADER), *loaders, *given, *first.related))
        shown = [each for each in related if each != place]
        first = _fixing_all(first, others)
        kept.append(replace(first, place=place.saying(""), related=tuple(shown[:_MOST_GIVEN]), found=first.as_found))
    return kept


def _weight(finding: Finding) -> tuple[object, ...]:
    """What comes first: what is grave and sure, data that its readers change, what has a fix, many workers; then the order of files and rows."""
    counts = [one.count or 0 for one in finding.of_noun(LoaderFact)[0].workers] if finding.of_noun(LoaderFact) else []
    shared = finding.code == _SHARED and not finding.of_noun(StoreFact)
    return finding.severity.rank, finding.confidence.rank, shared, not _can_be_fixed(finding), -max(counts, default=0), finding.sort_key


def _can_be_fixed(finding: Finding) -> bool:
    """Whether a finding has a fix that can be applied."""
    return finding.fix is not None and bool(finding.fix.edits) and finding.fix.safety is not Safety.DISPLAY


def _with_others(first: Finding, others: Sequence[Finding]) -> Finding:
    """A finding with the places of others behind its own first one, which is that of the container."""
    ordered = sorted(others, key=lambda item: item.sort_key)
    calls = [item.place.saying(ALSO, Role.BESIDE) if item.of_noun(LoaderFact) else item.place.saying(AGAIN, Role.AGAIN) for item in ordered]
    inside = [place for item in ordered for place in item.related if place.role is Role.INSIDE]
    related = [*first.related[:1], *calls, *inside, *first.related[1:]]
    unique: dict[tuple[str, int, int], Place] = {(first.place.path, first.place.cell, first.place.row): first.place}
    for place in related:
        unique.setdefault((place.path, place.cell, place.row), place)
    shown = tuple(unique.values())[1 : _MOST_RELATED + 1]
    more = len(calls) - len([place for place in shown if place in calls])
    what = "in {} more loader" if first.of_noun(LoaderFact) else "at {} more place"
    told = replace(first.adding(f"also {what.format(more)}{'s' if more > 1 else ''}") if more else first, related=shown)
    return _fixing_all(told, ordered)


def _fixing_all(told: Finding, others: Iterable[Finding]) -> Finding:
    """A finding that stands for others, with a fix that does what theirs would do: all of them are applied."""
    fix = told.fix
    if fix is None or not fix.edits or fix.safety is Safety.DISPLAY:
        return told
    edits = list(fix.edits)
    for item in others:
        if item.fix is not None and item.code == told.code and item.fix.safety is fix.safety:
            new = [edit for edit in item.fix.edits if edit not in edits]
            if not any(overlap(edit.place, known.place) for edit in new for known in edits):  # of two that overlap the first is applied
                edits += new
    return told if len(edits) == len(fix.edits) else replace(told, fix=replace(fix, edits=tuple(edits)), found=told.as_found)


# -- copies of the same code in several files ----------------------------------------------------------------------------------


def copies_once(findings: Iterable[Finding], overlay: Mapping[str, bytes]) -> list[Finding]:
    """Findings that say the same of copies of one block, or of one statement in functions of the same name, in several files, become one.

    The places of the others are related places.

    A few that stand for several loaders each are told one by one: their places would be lost.

    ``overlay`` has contents that stand in for files.
    """
    alike: dict[object, list[Finding]] = {}
    for item in findings:
        named = _NAMED.sub("`", item.headline)
        alike.setdefault((item.code, named, any(place.message == ALSO for place in item.related)) if item.code else item, []).append(item)
    blocks: dict[str, _Blocks] = {}
    kept: list[Finding] = []
    for group in alike.values():
        files = {item.place.path for item in group}
        least = _MANY if any(place.message == ALSO for place in group[0].related) else 2
        if len(files) < least:
            kept.extend(group)
            continue
        for path in files - blocks.keys():
            blocks[path] = _Blocks(*_text(path, overlay))
        same: dict[object, list[Finding]] = {}
        for item in group:
            same.setdefault(blocks[item.place.path].at(item.place) or item, []).append(item)
        for copies in _near_copies(same.values(), blocks):
            if len({item.place.path for item in copies}) < least:
                kept.extend(copies)
                continue
            first, *others = sorted(copies, key=_weight)
            kept.append(_with_copies(first, others))
    return kept


def _near_copies(groups: Iterable[list[Finding]], blocks: Mapping[str, _Blocks]) -> Iterator[list[Finding]]:
    """Groups of copies, with those of one statement in functions of the same name as one: a copy that was changed elsewhere is one still.

    Where they have many places in several files, each is told by itself: a reader would lose them in the list. So is what has a fix, which is applied to each,
    and what other rules find, of which nobody knows what they speak of.
    """
    near: dict[object, list[list[Finding]]] = {}
    for copies in groups:
        first = copies[0]
        apart = _can_be_fixed(first) or not (first.code or "").startswith(_OURS)
        statement = "" if apart else blocks[first.place.path].statement(first.place)
        near.setdefault((_NAMED.sub("`", first.message), statement) if statement else first, []).append(copies)
    for alike in near.values():
        every = [item for copies in alike for item in copies]
        few = len({item.place.path for item in every}) <= _FEW_FILES or sum(1 + len(_again(item)) for item in every) <= _MOST_NEAR
        yield from [every] if few else alike


def _again(finding: Finding) -> list[Place]:
    """The other places at which a finding holds."""
    return [place for place in finding.related if place.role is Role.AGAIN]


def _with_copies(first: Finding, others: list[Finding]) -> Finding:
    others = sorted(others, key=lambda item: item.sort_key)
    copies = [place.saying(COPY, Role.BESIDE) for item in others for place in (item.place, *_again(item))]
    count = len({place.path for place in copies} - {first.place.path})
    told = replace(first.adding(f"also in {count} more file{'s' if count > 1 else ''}"), related=(*copies[:_MOST_COPIES], *first.related))
    return _fixing_all(told, others)


def _text(path: str, overlay: Mapping[str, bytes]) -> tuple[str, dict[int, int]]:
    """The program of a file, and the row that each cell of a notebook begins at; empty where it cannot be read by now."""
    known = overlay.get(path)
    try:
        with io.BytesIO(known) if known is not None else open(path, "rb") as stream:
            encoding, _ = tokenize.detect_encoding(stream.readline)
            stream.seek(0)
            text = stream.read().decode(encoding)
        if not path.endswith(".ipynb"):
            return text, {}
        notebook = read_notebook(text)
    except (OSError, SyntaxError, ValueError, NotebookError):
        return "", {}
    return notebook.text, {cell.number: cell.start for cell in notebook.cells}


class _Blocks:
    """The loops and functions of a file, by what is written in them."""

    def __init__(self, text: str, starts: Mapping[int, int]) -> None:
        self._starts = starts
        self._variables: frozenset[str] | None = None
        try:
            self._tree: ast.Module | None = tree_of(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self._tree = None

    def at(self, place: Place) -> str:
        """What is written in the outermost loop of the function around a place, or in the function; empty where there is neither."""
        row = place.row + self._starts.get(place.cell, 1) - 1
        function: ast.AST | None = None
        loop: ast.AST | None = None
        for node in self._around(row):
            if isinstance(node, _FUNCTIONS):
                function, loop = node, None
            elif isinstance(node, _LOOPS) and loop is None:
                loop = node
        block = loop or function
        if block is None:
            return ""
        first = row - getattr(block, "lineno", row)
        return f"{first} {self._written(block)}"

    def statement(self, place: Place) -> str:
        """What is written in the statement at a place, and the names of the functions and classes that it stands in."""
        row = place.row + self._starts.get(place.cell, 1) - 1
        around = list(self._around(row))
        names = [node.name for node in around if isinstance(node, (*_FUNCTIONS, ast.ClassDef))]
        if not around:
            return ""
        here = around[-1]
        parts = [value for name, value in ast.iter_fields(here) if name not in _BODIES]
        return " ".join((*names, self._written([type(here).__name__, *parts])))

    def _written(self, part: object) -> str:
        """What stands for code that is written alike, whatever its variables are called."""
        if self._variables is None:
            self._variables = _variables(self._tree) if self._tree is not None else frozenset()
        told = " ".join(_words(part, self._variables, {}))
        return hashlib.blake2b(told.encode(errors="surrogatepass"), digest_size=16).hexdigest()

    def _around(self, row: int) -> Iterator[ast.AST]:
        """Statements around a row, the outermost first."""
        here: ast.AST | None = self._tree
        while here is not None:
            inside = (
                node
                for node in ast.iter_child_nodes(here)
                if getattr(node, "lineno", row + 1) <= row <= getattr(node, "end_lineno", row - 1) and isinstance(node, ast.stmt | ast.excepthandler)
            )
            here = next(inside, None)
            if here is not None:
                yield here


def _variables(tree: ast.Module) -> frozenset[str]:
    """The names that a file gives to values and parameters, and to nothing that other files may know."""
    named, known = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            named.add(node.id)
        elif isinstance(node, ast.arg):
            named.add(node.arg)
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            known.add(node.name)
        elif isinstance(node, ast.alias):
            known.add(node.asname or node.name)
    return frozenset(named - known)


def _words(part: object, variables: frozenset[str], seen: dict[str, int]) -> Iterator[str]:
    """What a part of a tree says, with variables by the order in which they first appear."""
    if isinstance(part, list):
        yield "["
        for one in part:
            yield from _words(one, variables, seen)
        yield "]"
    elif not isinstance(part, ast.AST):
        yield repr(part)
    elif isinstance(part, ast.Name | ast.arg) and (name := part.id if isinstance(part, ast.Name) else part.arg) in variables:
        yield f"{type(part).__name__} {seen.setdefault(name, len(seen))}"
    else:
        yield type(part).__name__
        for value in (getattr(part, field, None) for field in part._fields):
            yield from _words(value, variables, seen)
        yield "."
