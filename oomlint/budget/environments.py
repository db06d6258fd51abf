"""With which environment a command starts its program: by the shell, a Makefile, an image, a service, a pod, and by what stands in front of the program."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.beside_code import Beside, beside
from oomlint.finding import Place
from oomlint.memory.loaders.job_limits import ENGINES
from oomlint.model.command_texts import TOLD_BY_JOB, CommandText
from oomlint.model.environments import UNKNOWN_SETTING, UNSAID, UNSET, Environment, Setting
from oomlint.model.shell_runs import ShellRun, ShellState, rows_of
from oomlint.model.yaml_nodes import documents, entries, member

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from oomlint.model.commands import Command
    from oomlint.source import Source

_MOST_BYTES: Final = 1_000_000
_SETS: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_][\w.-]*")
_INTERPOLATED: Final = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)(?:(:?[-=+?])([^{}]*))?\}|\$([A-Za-z_]\w*)")
_OF_POD: Final = re.compile(r"\$\(([A-Za-z_]\w*)\)")
_IMAGES: Final = frozenset({"singularity", "apptainer"})
_BY_MPI: Final = frozenset({"mpirun", "mpiexec", "orterun"})
_OF_MPI: Final = ("OMPI_", "PMI", "MV2_", "I_MPI_")
_STARTS: Final = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed", "accelerate.commands.launch"})
_OF_STEPS: Final = "SLURM_EXPORT_ENV"  # what a job hands on to its steps
_OF_LAUNCHER: Final = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_", "TORCHELASTIC_", "ACCELERATE_")
_ASSIGNMENT: Final = re.compile(
    r"(?:(?P<word>export|override|private|unexport)[ \t]+)*(?P<name>[\w.-]+)[ \t]*(?P<how>[?:+!]{0,3}=)[ \t]*(?P<text>.*)", re.DOTALL
)
_LOGICAL: Final = re.compile(r"(?:[^\\\n]|\\\r?\n|\\.)+")
_RULE: Final = re.compile(r"(?P<targets>[^\s#:=][^#:=]*):{1,2}(?!=)[ \t]*(?P<rest>.*)", re.DOTALL)
_OF_MAKE: Final = re.compile(r"\$\$|\$[({]([\w.-]+)[)}]|\$(.)", re.DOTALL)
_DEEPEST: Final = 6
OF_MAKE_FLAGS: Final = "MAKEFLAGS"  # the options of `make`, as it hands them on
_ENVIRONMENT_WINS: Final = re.compile(r"-?[BbikLmnpqrRsStvw]*e[A-Za-z]*|--environment-overrides")


def read_file(path: str) -> str | None:
    """The text of a file; None where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8-sig", "replace") if os.path.isfile(path) else None
    except OSError:
        return None


def environment_wins(flags: Iterable[str]) -> bool:
    """Whether options of `make` let the environment win over what a Makefile assigns."""
    return any(_ENVIRONMENT_WINS.fullmatch(one) for one in flags)


def shell_text(path: str, content: str, outer: Environment, folder: str, arguments: Sequence[str] | None, shell: ShellState | None = None) -> CommandText:
    """A script of a shell that is started with an environment, or that a shell reads itself."""
    text = CommandText(path, content)
    job = {name: UNSAID for name in TOLD_BY_JOB if not text.may_be_told(name)}
    job |= {name: Setting(word.text, text.place(word.start, word.end)) for name, word in text.told_by_job.items()}
    if text.batch_options:
        given = None if outer.chosen else next((word for option, word in reversed(text.batch_options) if option == "--export" and word.text), None)
        outer = exported(outer, given.text, text.place(given.start, given.end)) if given is not None else outer
        outer = replace(outer.having(job), by_system=(*outer.by_system, "SLURM_"))
    state = shell if shell is not None else ShellState(outer, folder, arguments=tuple(arguments) if arguments is not None else None)
    script = path if os.path.isabs(path) else ""
    run = ShellRun(content, text.place, state, read_file, lambda one: rows_of(one, read_file(one) or ""), script=script, through=through)
    return CommandText(path, content, outer=outer, run=run)


def of_command(one: Command, outer: Environment, folder: str, pinned: Mapping[str, str] | None = None) -> Environment:
    """The environment of the program that a command starts. ``pinned`` are variables of a Makefile that its command sets."""
    found = _of_file(one, outer, folder, pinned or {})
    words = one.filled(None)
    if beside(one.text.path) is Beside.MAKE:
        words[0] = words[0].lstrip("@-+")
    return through(words, found, folder, one.place)


def _of_file(one: Command, outer: Environment, folder: str, pinned: Mapping[str, str]) -> Environment:
    """By what stands around the command."""
    text, kind = one.text, beside(one.text.path)
    if text.run is not None:
        return text.run.at(one.start).environment
    if text.cell:
        return outer
    start, by_make = one.start, None
    end = next((match.start() for match in _ROW_END.finditer(text.content, one.parts[-1].end)), len(text.content))
    if one.service is not None:
        start, end = one.service.node.start_mark.index, one.service.node.end_mark.index
        outer = of_service(one.service.node, text.path, outer).having({name: Setting(value, one.place) for name, value in pinned.items()})
    elif kind is Beside.DOCKER:
        said = max(_INSTRUCTION.finditer(text.content, 0, one.start), key=lambda match: match.end(), default=None)
        start = said.end() if said is not None else start
        stage = next((match.start() for match in _STAGE.finditer(text.content, one.start)), len(text.content))
        building = said is None or said[1].upper() == "RUN"
        outer = of_image(text.content[: one.start if building else stage], text.path, outer, building=building)
    elif kind is Beside.MAKE:
        make = Makefile(outer, pinned)
        make.read(text.path, text.content)
        rules = list(_RULE_ROW.finditer(text.content, 0, one.start))
        outer = make.environment(rules[-1]["targets"].split() if rules else [])
        alone = ".ONESHELL:" not in text.content  # each row has a shell of its own
        start = max((match.end() for match in (_ROW_END if alone else _RULE_ROW).finditer(text.content, 0, one.start)), default=0)
        by_make = make.value
    elif kind is Beside.EDITOR:
        return _of_editor(text, one.start, outer)
    else:
        return outer
    run = ShellRun(text.content, text.place, ShellState(outer, folder), read_file, None, (start, end), by_make, through=through)
    return run.at(one.start).environment


_ROW_END: Final = re.compile(r"(?<!\\)\n")
_INSTRUCTION: Final = re.compile(r"(?im)^[ \t]*(RUN|CMD|ENTRYPOINT)[ \t]")
_RULE_ROW: Final = re.compile(r"(?m)^(?P<targets>[^\s#:=][^#:=\n]*):(?!=)")


_WRITES: Final = re.compile(
    r"""environ(?:\[[ \t]*['"](?P<one>\w+)['"][ \t]*\][ \t]*\+?=(?!=)|\.(?:setdefault|pop)\([ \t]*['"](?P<two>\w+)['"])
    |\b(?:un)?(?:putenv|setenv)\([ \t]*['"](?P<three>\w+)['"]
    |^[ \t]*%(?:set_)?env[ \t]+(?P<four>\w+)[ \t=]
    |environ(?:\[[^\]'"]+\][ \t]*\+?=(?!=)|\.(?:setdefault|pop)\([ \t]*[^'" \t]|\.(?:update|clear)\(|[ \t]*\|?=(?!=))
    |\bload_dotenv\(|\bputenv\([ \t]*[^'" \t]""",
    re.VERBOSE | re.MULTILINE,
)

_ALIAS: Final = re.compile(r"(?m)^[ \t]*(\w+)[ \t]*=[ \t]*(?:os\.)?environ[ \t]*$")


def written_by(found: Environment, sources: Iterable[Source | None]) -> Environment:
    """The environment of a program whose code sets variables itself: nobody follows to what, and when."""
    for source in sources:
        text = "" if source is None else "\n".join(cell.source for cell in source.cells) or source.text
        for match in _WRITES.finditer(text):
            name = next((one for one in match.groups() if one is not None), None)
            found = found.having({name: UNKNOWN_SETTING} if name is not None else {}, opened=name is None)
        for alias in _ALIAS.finditer(text):
            if re.search(rf"\b{alias[1]}(?:\[[^\]\n]*\][ \t]*\+?=(?!=)|\.(?:update|setdefault|pop|clear)\()", text):
                found = found.having({}, opened=True)
    return found


# -- what stands in front of a program ---------------------------------------------------------------------------------------


def through(words: Sequence[str], found: Environment, folder: str, place: Place) -> Environment:
    """The environment behind words in front of a program: variables, `env`, containers, SLURM, MPI, launchers."""
    program = next((number for number, word in enumerate(words) if _is_program(words, number)), len(words))
    at = 0
    while at < program:
        word, base = words[at], os.path.basename(words[at])
        at += 1
        sets = _SETS.fullmatch(word)
        if sets is not None:
            found = found.having({sets[1]: _given(sets[2], place)})
        elif base == "env":
            found, at = _by_env(words, at, program, found)
        elif base in ENGINES and words[at : at + 1] in (["run"], ["exec"]):
            found = _by_container(words[at:program], found, folder, place)
        elif base in _IMAGES:
            found = _by_image(words[at:program], found, folder, place)
        elif base in {"srun", "sbatch", "salloc"}:
            chosen = option_of(words[at:program], ("--export",))
            job = found.settings.get(_OF_STEPS, UNSAID) if base == "srun" and not chosen else UNSAID
            if job.text is not None:
                chosen = [job.text]
            elif job.unknown:
                found = found.having({}, opened=True)
            found = exported(found, chosen[-1], job.place or place) if chosen else found
            found = replace(found, chosen=found.chosen or (bool(chosen) and base == "sbatch"), by_system=(*found.by_system, "SLURM_"))
        elif base in _BY_MPI:
            for one in option_of(words[at:program], ("-x",)):
                sets = _SETS.fullmatch(one)
                found = found.having({sets[1]: _given(sets[2], place)}) if sets is not None else found
            found = replace(found, by_system=(*found.by_system, *_OF_MPI))
        elif base == "ssh" or (base == "sudo" and not {"-E", "--preserve-env"} & set(words[at:program])):
            found = found.emptied()
    script = next((number for number, word in enumerate(words) if word.endswith((".py", ".ipynb"))), len(words))
    if any(os.path.basename(word) in _STARTS for word in words[:script]):
        found = replace(found, by_system=(*found.by_system, *_OF_LAUNCHER))
    return found


def _is_program(words: Sequence[str], number: int) -> bool:
    """Whether a word is what runs, and those behind it are its own."""
    word, before = words[number], os.path.basename(words[number - 1]) if number else ""
    return word.endswith((".py", ".ipynb")) or beside(word) is Beside.SHELL or (word in {"-m", "-c"} and before.startswith(("python", "bash", "sh")))


def _given(text: str, place: Place | None) -> Setting:
    return Setting(text if "$" not in text and "`" not in text else None, place)


def exported(found: Environment, chosen: str, place: Place | None = None) -> Environment:
    """What ``--export`` of SLURM leaves of an environment: `ALL`, `NONE`, names, and names with a value."""
    words = [word for word in chosen.split(",") if word]
    sets = {match[1]: _given(match[2], place) for word in words if (match := _SETS.fullmatch(word)) is not None}
    if "$" in chosen:
        return found.having(sets, opened=True)
    if "ALL" not in words:
        sets |= {_OF_STEPS: Setting(chosen, place)}
        found = found.only(word for word in words if _NAME.fullmatch(word) and word not in {"NONE", "NIL"})
    return found.having(sets)


def _by_env(words: Sequence[str], at: int, end: int, found: Environment) -> tuple[Environment, int]:
    while at < end and words[at].startswith("-"):
        word = words[at]
        at += 1
        if word in {"-i", "-", "--ignore-environment"}:
            found = found.emptied(alone=True)
        elif word in {"-u", "--unset"}:
            found = found.having({words[at]: UNSET}) if at < end else found
            at += 1
        elif word.startswith(("--unset=", "-u")):
            found = found.having({word.removeprefix("--unset=").removeprefix("-u"): UNSET})
    if any(word.startswith(("$", "`")) for word in words[at:end]):
        found = found.having({}, opened=True)  # `env $(cat file) python train.py`
    return found, at


def _by_container(words: Sequence[str], found: Environment, folder: str, place: Place) -> Environment:
    """``docker run``: nothing of the shell around it, save for what its options hand on. What the image sets, nobody reads here."""
    inside = found.emptied()
    for path in option_of(words, ("--env-file",)):
        inside = _with_file(inside, found, os.path.join(folder, path), place, plain=True)
    if any("$" in word and not word.startswith("-") and "/" not in word and ":" not in word and "=" not in word for word in words):
        inside = inside.having({}, opened=True)  # a variable may hold options
    for one in option_of(words, ("-e", "--env")):
        sets = _SETS.fullmatch(one)
        inside = inside.having({sets[1]: _given(sets[2], place)} if sets is not None else _passed(found, one))
    return inside


def _by_image(words: Sequence[str], found: Environment, folder: str, place: Place) -> Environment:
    if {"--cleanenv", "-e", "--containall", "-C"} & set(words):
        found = found.emptied()
    found = found.having({name.split("ENV_", 1)[1]: one for name, one in found.settings.items() if re.match(r"(?:SINGULARITY|APPTAINER)ENV_\w", name)})
    for path in option_of(words, ("--env-file",)):
        found = _with_file(found, found, os.path.join(folder, path), place)
    for one in (part for given in option_of(words, ("--env",)) for part in given.split(",")):
        sets = _SETS.fullmatch(one)
        found = found.having({sets[1]: _given(sets[2], place)}) if sets is not None else found
    return found


def _passed(outer: Environment, name: str) -> dict[str, Setting]:
    """A variable that is handed on as it is."""
    said = outer.says(name)
    return {} if said == UNSAID else {name: said}


def option_of(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """All that an option is given."""
    found = []
    for number, word in enumerate(words):
        for name in names:
            if word == name and number + 1 < len(words):
                found.append(words[number + 1])
            elif word.startswith(f"{name}="):
                found.append(word[len(name) + 1 :])
            elif len(name) == len("-e") and word.startswith(name) and "=" in word:
                found.append(word[len(name) :])
    return found


# -- files of variables ------------------------------------------------------------------------------------------------------


def _with_file(inside: Environment, outer: Environment, path: str, place: Place, *, plain: bool = False) -> Environment:
    """With the variables of a file, a row each. Where it is not there, or no such file, nobody knows what it sets."""
    text = read_file(path) if "$" not in path else None
    if text is None:
        inside.user.mistakes[place.path, place.row, f"{os.path.basename(path)}: there is no such file"] = None
        return inside.having({}, opened=True)
    settings: dict[str, Setting] = {}
    where = rows_of(path, text)
    state = ShellState(outer, os.path.dirname(path))
    at = 0
    for number, row in enumerate(text.split("\n"), 1):
        written = row.strip()
        start, at = at, at + len(row) + 1
        if not written or written.startswith("#"):
            continue
        name, equals, value = (written if plain else written.removeprefix("export ")).partition("=")
        name = name if plain else name.strip()
        if not _NAME.fullmatch(name):
            inside.user.mistakes[path, number, f"{written[:40]!r} is no NAME=VALUE"] = None
            return inside.having({}, opened=True)
        if not equals:
            settings |= _passed(outer, name)
            continue
        found = Setting(value) if plain else _dotenv(value.strip(), state)
        settings[name] = Setting(found.text, where(start, start + len(row)), assumed=found.assumed)
        state.known[name] = settings[name]
    return inside.having(settings)


def _dotenv(value: str, state: ShellState) -> Setting:
    quoted = re.fullmatch(r"'([^']*)'[ \t]*(?:#.*)?", value)
    if quoted is not None:
        return Setting(quoted[1])
    double = re.fullmatch(r'"((?:\\.|[^"\\])*)"[ \t]*(?:#.*)?', value)
    return interpolated(double[1] if double is not None else re.sub(r"(?:^|[ \t]+)#.*", "", value).strip(), state)


def interpolated(text: str, state: ShellState) -> Setting:
    """A text of a compose file with what its variables stand for."""
    found, end, assumed = [], 0, False
    for match in _INTERPOLATED.finditer(text):
        if match[0] == "$$":
            one = Setting("$")
        elif match[2]:
            one = state.or_other(match[1], match[2], match[3])
        else:
            one = state.variable(match[1] or match[4])
            one = UNKNOWN_SETTING if one.text is None else one
        if one.text is None:
            return UNKNOWN_SETTING
        found += [text[end : match.start()], one.text]
        end, assumed = match.end(), assumed or one.assumed
    return Setting("".join((*found, text[end:])), assumed=assumed)


# -- images, services, pods, editors -----------------------------------------------------------------------------------------

_STAGE: Final = re.compile(r"(?im)^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(\S+)(?:[ \t]+AS[ \t]+(\S+))?")
_ARGUMENT: Final = re.compile(r"(?<!\S)([A-Za-z_]\w*)(?=[=\s]|$)")
_ENV: Final = re.compile(r"(?im)^[ \t]*(?P<kind>ENV|ARG)[ \t]+(?P<text>(?:[^\\\n]|\\\r?\n|\\.)*)")
_PAIR: Final = re.compile(r"""([A-Za-z_]\w*)=((?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\])*)""", re.DOTALL)


def of_image(
    content: str, path: str, outer: Environment, target: str = "", *, built_with: Mapping[str, Setting] | None = None, building: bool = False
) -> Environment:
    """What ``ENV`` sets in the last stage of a Dockerfile, or in the one that is named, and in those that it begins with.

    ``built_with``: what the build is given for ``ARG``, whose default holds else. ``building``: what the build itself has, which sees those, too.
    """
    stages: list[tuple[str, dict[str, Setting], dict[str, Setting]]] = [("", {}, {})]  # the name, what `ENV` sets, and what `ARG` does
    where = rows_of(path, content)
    for match in sorted((*_STAGE.finditer(content), *_ENV.finditer(content)), key=lambda one: one.start()):
        if match.re is _STAGE:
            base = next((stage for stage in stages if stage[0] and stage[0] == match[1].lower()), ("", {}, {}))
            stages.append(((match[2] or "").lower(), dict(base[1]), dict(base[2])))
            if target and stages[-2][0] == target.lower():
                stages.pop()
                break
            continue
        _, kept, taken = stages[-1]
        state = ShellState(outer.emptied(), "", {**taken, **kept})
        text, place = match["text"], where(match.start("text"), match.end("text"))
        if match["kind"].upper() == "ARG":
            for name in (one[1] for one in _ARGUMENT.finditer(text)):
                defaults = {one[1]: one[2] for one in _PAIR.finditer(text)}
                own = replace(state.expanded(defaults[name]), place=place, assumed=True) if name in defaults else stages[0][2].get(name, UNSAID)
                taken[name] = (built_with or {}).get(name, own)
            continue
        first = re.match(r"([A-Za-z_]\w*)[ \t]+(.*)", text, re.DOTALL)
        given = [(first[1], first[2].strip())] if first is not None else [(one[1], one[2]) for one in _PAIR.finditer(text)]
        for name, value in given:
            found = state.expanded(value)
            kept[name] = Setting(found.text, place, assumed=found.assumed)
    return outer.emptied().having({**stages[-1][2], **stages[-1][1]} if building else stages[-1][1])


def of_service(node: Any, path: str, outer: Environment) -> Environment:
    """The environment of a service of compose."""
    folder = os.path.dirname(path)
    outer = _beside_compose(outer, folder)
    state = ShellState(outer, folder)
    inside = outer.emptied()
    build = member(node, "build")
    if build is not None:
        parts = [getattr(member(build, key), "value", "") for key in ("context", "dockerfile", "target")] if entries(build) else [build.value, "", ""]
        image = os.path.normpath(os.path.join(folder, str(parts[0]), str(parts[1]) or "Dockerfile"))
        content = read_file(image)
        listed = (*_merged(member(build, "args")), *_listed(member(build, "args")))
        args = {key: replace(interpolated(value, state), place=_place(path, at)) for key, value, at in listed if value is not None}
        inside = of_image(content, image, outer, str(parts[2]), built_with=args) if content is not None else inside
    name, suffix = os.path.splitext(os.path.basename(path))
    merged = any(os.path.isfile(os.path.join(folder, f"{name}.override{one}")) for one in (suffix, ".yml", ".yaml"))
    if member(node, "extends") is not None or merged:
        inside = inside.having({}, opened=True)
    for item, needed in _env_files(member(node, "env_file")):
        given = interpolated(item.value, state)
        if given.text is None:
            inside = inside.having({}, opened=True)
        elif needed or read_file(os.path.join(folder, given.text)) is not None:
            inside = _with_file(inside, outer, os.path.join(folder, given.text), _place(path, item))
    given_node = member(node, "environment")
    for name, value, at in [*_merged(given_node), *_listed(given_node)]:
        if value is None:
            inside = inside.having(_passed(outer, name))
            continue
        found = interpolated(value, state)
        inside = inside.having({name: Setting(found.text, _place(path, at), assumed=found.assumed)})
    return inside


def _beside_compose(outer: Environment, folder: str) -> Environment:
    """What a compose file is filled in with: the environment, else the file `.env` beside it."""
    path = os.path.join(folder, ".env")
    if read_file(path) is None:
        return outer
    own = _with_file(outer.emptied(), outer, path, rows_of(path, "")(0, 0))
    kept = {name: said for name in own.settings if not (said := outer.says(name)).unset}
    return outer.having({**{name: replace(one, assumed=True) for name, one in own.settings.items()}, **kept}, opened=own.opened)


def _env_files(node: Any) -> Iterator[tuple[Any, bool]]:
    for item in node.value if isinstance(getattr(node, "value", None), list) else [node] if node is not None else []:
        named = member(item, "path") if entries(item) else item
        if isinstance(getattr(named, "value", None), str):
            yield named, str(getattr(member(item, "required"), "value", "true")).lower() != "false"


def _merged(node: Any, deepest: int = 4) -> Iterator[tuple[str, str | None, Any]]:
    """The entries of a mapping, those that are merged into it first."""
    own = entries(node)
    for value in (value for key, value in own if key == "<<" and deepest):
        for base in [value] if entries(value) else value.value:
            yield from _merged(base, deepest - 1)
    for key, value in own:
        if key != "<<":
            empty = str(value.tag).endswith(":null")
            yield key, None if empty or not isinstance(value.value, str) else value.value, value


def _listed(node: Any) -> Iterator[tuple[str, str | None, Any]]:
    for item in node.value if not entries(node) and isinstance(getattr(node, "value", None), list) else ():
        if isinstance(getattr(item, "value", None), str):
            name, equals, value = item.value.partition("=")
            yield name, value if equals else None, item


def of_container(node: Any, roots: Iterable[Any], path: str, outer: Environment) -> Environment:
    """The environment of a container of Kubernetes. Of ``envFrom``, maps of the same file are read."""
    inside = outer.emptied()
    maps = {str(getattr(member(member(one, "metadata"), "name"), "value", "")): one for one in roots if _text(member(one, "kind")) == "ConfigMap"}
    for one in _items(member(node, "envFrom")):
        source = maps.get(_text(member(member(one, "configMapRef"), "name")))
        prefix = _text(member(one, "prefix"))
        if source is None:
            inside = inside.having({}, opened=True)
        else:
            inside = inside.having({prefix + name: Setting(value, _place(path, at)) for name, value, at in _merged(member(source, "data"))})
    for one in _items(member(node, "env")):
        name, value = _text(member(one, "name")), member(one, "value")
        if value is not None:
            inside = inside.having({name: Setting(referred(_text(value), inside), _place(path, value))})
        elif member(one, "valueFrom") is not None:
            chosen = member(member(one, "valueFrom"), "configMapKeyRef")
            data = {key: (text, at) for key, text, at in _merged(member(maps.get(_text(member(chosen, "name"))), "data"))}
            text, at = data.get(_text(member(chosen, "key")), (None, one))
            inside = inside.having({name: Setting(text, _place(path, at))})
        else:
            inside = inside.having({name: Setting("", _place(path, one))})
    return inside


def referred(text: str, inside: Environment) -> str | None:
    """A text of a pod with the variables that it refers to; None where one of them is not known."""
    names = [match[1] for match in _OF_POD.finditer(text) if match[1] in inside.settings]
    if any(inside.says(name).text is None for name in names):
        return None
    return _OF_POD.sub(lambda match: inside.says(match[1]).text or "" if match[1] in inside.settings else match[0], text)


def _of_editor(text: CommandText, index: int, outer: Environment) -> Environment:
    """The configuration of ``launch.json`` that a command is one of."""
    from oomlint.model.command_lines import plain_json  # noqa: PLC0415

    for root in documents(plain_json(text.content)):
        for one in _items(member(root, "configurations")):
            if one.start_mark.index <= index < one.end_mark.index:
                named = member(one, "envFile")
                path = _text(named).replace("${workspaceFolder}", os.path.dirname(os.path.dirname(text.path)))
                found = _with_file(outer, outer, os.path.join(os.path.dirname(text.path), path), _place(text.path, named)) if named is not None else outer
                return found.having({name: _given(value or "", _place(text.path, at)) for name, value, at in _merged(member(one, "env"))})
    return outer


def _items(node: Any) -> list[Any]:
    found = getattr(node, "value", None)
    return [one for one in found if not isinstance(one, tuple)] if isinstance(found, list) else []


def _text(node: Any) -> str:
    return str(getattr(node, "value", ""))


def _place(path: str, node: Any) -> Place:
    start, end = node.start_mark, node.end_mark
    return Place(path, 0, start.line + 1, start.column + 1, end.line + 1, end.column + 1)


# -- make --------------------------------------------------------------------------------------------------------------------


class Makefile:
    """The variables of a Makefile, and which of them it exports."""

    def __init__(self, outer: Environment, pinned: Mapping[str, str]) -> None:
        self.outer = outer
        flags = outer.settings.get(OF_MAKE_FLAGS, UNSAID)
        self._by_environment = environment_wins((flags.text or "").split())  # whether it wins over what files assign
        own = outer.settings if self._by_environment else {}
        self.pinned = {**{name: one for name, one in own.items() if not one.unset}, **{name: Setting(text) for name, text in pinned.items()}}
        self._overridden: set[str] = set()
        self._set: dict[str, tuple[str | None, Place, bool]] = {}  # the text, and whether that holds only where the user's shell sets none
        self._of_targets: dict[tuple[str, str], Setting] = {}
        self._needs: dict[str, set[str]] = {}  # what targets are made of
        self._exported: dict[str, bool] = dict.fromkeys(pinned, True)
        self._all = False
        self._opened = False

    def read(self, path: str, content: str, depth: int = 0) -> None:
        """Read a Makefile, and those that it includes."""
        where = rows_of(path, content)
        tests = defined = 0
        for match in _LOGICAL.finditer(content):
            row = match[0]
            if row.startswith("\t"):
                continue
            row = re.sub(r"(?<!\\)#.*", "", row, flags=re.DOTALL).strip().replace("\\\n", " ")
            first, _, rest = row.partition(" ")
            defined += (first == "define") - (first == "endef")
            tests += first.startswith("if") and first.split("(")[0] in {"ifeq", "ifneq", "ifdef", "ifndef"}
            tests -= first == "endif"
            if defined or first in {"endef", "endif", "else"}:
                continue
            place = where(match.start(), match.end())
            if first in {"include", "-include", "sinclude"}:
                self._include(rest.split(), path, depth, place, needed=first == "include")
                continue
            if row == "export":
                self._all = True
                continue
            rule = _RULE.fullmatch(row) if _ASSIGNMENT.fullmatch(row) is None else None
            if rule is not None:
                self._all = self._all or rule["targets"].strip() == ".EXPORT_ALL_VARIABLES"
                self._row(rule["rest"], place, targets=rule["targets"].split(), tested=tests > 0)
                for target in rule["targets"].split() if _ASSIGNMENT.fullmatch(rule["rest"]) is None else ():
                    self._needs.setdefault(target, set()).update(rule["rest"].partition(";")[0].split())
            else:
                self._row(row, place, tested=tests > 0)

    def _row(self, row: str, place: Place, *, targets: Sequence[str] = (), tested: bool) -> None:
        found = _ASSIGNMENT.fullmatch(row)
        words = row.split()
        if found is None:
            if words[:1] in (["export"], ["unexport"]):
                self._opened = self._opened or "$" in row  # `export $(shell ...)`
                self._exported |= dict.fromkeys(words[1:], words[0] == "export")
            return
        name, how, text = found["name"], found["how"], found["text"].strip()
        marks = row[: found.start("name")].split()
        if "export" in marks:
            self._exported[name] = True
        wins = "override" in marks
        if not wins and (name in self.pinned or name in self._overridden):
            return
        plain, weak = None if tested or "!" in how else text, False
        if self._by_environment and not wins:
            outside = self.outer.says(name)
            plain, weak = None if outside.unknown else plain, outside.assumed
        for target in targets:
            self._of_targets[target, name] = replace(_given((plain if "+" not in how else None) or "$", place), assumed=weak)
        if targets:
            return
        if wins:
            self._overridden.add(name)
            given = self.pinned.pop(name, None)
            if given is not None:
                self._set[name] = (given.text, place, given.assumed)
        if "?" in how:
            said = self.outer.says(name) if name not in self._set else None
            if said is None:
                return
            self._set[name] = (None if said.unknown or tested else said.text if said.text is not None else text, place, said.assumed)
            return
        if how in {":=", "::="} and plain is not None:
            now = self._expanded(plain, 0)
            self._set[name] = (now.text.replace("$", "$$") if now.text is not None else None, place, now.assumed or weak)
            return
        before, _, assumed = self._set.get(name, ("", place, weak))
        if "+" in how:
            self._set[name] = (f"{before} {text}".strip() if before is not None and plain is not None else None, place, assumed)
        else:
            self._set[name] = (plain, place, weak)

    def _include(self, files: Sequence[str], path: str, depth: int, place: Place, *, needed: bool) -> None:
        for one in files:
            base = os.path.join(os.path.dirname(path), one)
            content = read_file(base) if "$" not in one and depth < _DEEPEST else None
            if content is not None:
                self.read(base, content, depth + 1)
            elif needed or "$" in one:
                self._opened = True
                self.outer.user.mistakes[place.path, place.row, f"{one}: there is no such file"] = None

    def value(self, name: str, depth: int = 0) -> Setting:
        """What a variable stands for."""
        if name in self.pinned:
            return self.pinned[name]
        if name not in self._set:
            return UNKNOWN_SETTING if self._opened else self.outer.says(name)
        text, place, assumed = self._set[name]
        if text is None or depth > _DEEPEST or self._opened:
            return UNKNOWN_SETTING
        found = self._expanded(text, depth)
        return Setting(found.text, place, assumed=assumed or found.assumed)

    def _expanded(self, text: str, depth: int) -> Setting:
        """A text with what its variables stand for."""
        found: list[str] = []
        end, assumed = 0, False
        for match in _OF_MAKE.finditer(text):
            one = Setting("$") if match[0] == "$$" else self.value(match[1], depth + 1) if match[1] else UNKNOWN_SETTING
            if one.text is None:
                return UNKNOWN_SETTING
            found += [text[end : match.start()], one.text]
            end, assumed = match.end(), assumed or one.assumed
        return Setting("".join((*found, text[end:])), assumed=assumed)

    def environment(self, targets: Sequence[str]) -> Environment:
        """What the recipe of a rule has."""
        names = {*self._set, *self.pinned} if self._all else {name for name, whether in self._exported.items() if whether}
        names |= {name for name in self._set if name in self.outer.settings}
        names -= {name for name, whether in self._exported.items() if not whether}
        settings = {name: said for name in names if (name in self._set or name in self.pinned) and (said := self.value(name)) != UNSAID}
        found = self.outer.having(settings, opened=self._opened)
        around = set(targets)
        while more := {target for target, needs in self._needs.items() if needs & around} - around:
            around |= more
        for about, name in self._of_targets:
            if about in around and about not in targets:
                found = found.having({name: UNKNOWN_SETTING})  # it holds for what the target needs, too
        for target in targets:
            own = {name: one for (about, name), one in self._of_targets.items() if about == target and (name in names or self._all or self._exported.get(name))}
            found = found.having(own)
        return found
