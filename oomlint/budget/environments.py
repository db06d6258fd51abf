"""With which environment a command starts its program: by the shell, a Makefile, an image, a service, a pod, and by what stands in front of the program."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.beside_code import Beside, beside
from oomlint.budget.container_environments import STAGE, items_of, merged, of_image, of_service, place_of, text_of
from oomlint.budget.makefiles import Makefile
from oomlint.budget.variables import NAME, literal, passed, read_file, with_file
from oomlint.memory.loaders.job_limits import ENGINES
from oomlint.model.command_texts import TOLD_BY_JOB, CommandText
from oomlint.model.environments import UNKNOWN_SETTING, UNSAID, UNSET, Environment, Setting
from oomlint.model.shell_runs import ShellRun, ShellState, rows_of
from oomlint.model.yaml_nodes import documents, member

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from oomlint.finding import Place
    from oomlint.model.commands import Command
    from oomlint.source import Source

_SETS: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_IMAGES: Final = frozenset({"singularity", "apptainer"})
_BY_MPI: Final = frozenset({"mpirun", "mpiexec", "orterun"})
_OF_MPI: Final = ("OMPI_", "PMI", "MV2_", "I_MPI_")
_STARTS: Final = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed", "accelerate.commands.launch"})
_OF_STEPS: Final = "SLURM_EXPORT_ENV"  # what a job hands on to its steps
_OF_LAUNCHER: Final = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_", "TORCHELASTIC_", "ACCELERATE_")


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
        stage = next((match.start() for match in STAGE.finditer(text.content, one.start)), len(text.content))
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
            found = found.having({sets[1]: literal(sets[2], place)})
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
                found = found.having({sets[1]: literal(sets[2], place)}) if sets is not None else found
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


def exported(found: Environment, chosen: str, place: Place | None = None) -> Environment:
    """What ``--export`` of SLURM leaves of an environment: `ALL`, `NONE`, names, and names with a value."""
    words = [word for word in chosen.split(",") if word]
    sets = {match[1]: literal(match[2], place) for word in words if (match := _SETS.fullmatch(word)) is not None}
    if "$" in chosen:
        return found.having(sets, opened=True)
    if "ALL" not in words:
        sets |= {_OF_STEPS: Setting(chosen, place)}
        found = found.only(word for word in words if NAME.fullmatch(word) and word not in {"NONE", "NIL"})
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
        inside = with_file(inside, found, os.path.join(folder, path), place, plain=True)
    if any("$" in word and not word.startswith("-") and "/" not in word and ":" not in word and "=" not in word for word in words):
        inside = inside.having({}, opened=True)  # a variable may hold options
    for one in option_of(words, ("-e", "--env")):
        sets = _SETS.fullmatch(one)
        inside = inside.having({sets[1]: literal(sets[2], place)} if sets is not None else passed(found, one))
    return inside


def _by_image(words: Sequence[str], found: Environment, folder: str, place: Place) -> Environment:
    if {"--cleanenv", "-e", "--containall", "-C"} & set(words):
        found = found.emptied()
    found = found.having({name.split("ENV_", 1)[1]: one for name, one in found.settings.items() if re.match(r"(?:SINGULARITY|APPTAINER)ENV_\w", name)})
    for path in option_of(words, ("--env-file",)):
        found = with_file(found, found, os.path.join(folder, path), place)
    for one in (part for given in option_of(words, ("--env",)) for part in given.split(",")):
        sets = _SETS.fullmatch(one)
        found = found.having({sets[1]: literal(sets[2], place)}) if sets is not None else found
    return found


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


def _of_editor(text: CommandText, index: int, outer: Environment) -> Environment:
    """The configuration of ``launch.json`` that a command is one of."""
    from oomlint.model.command_lines import plain_json  # noqa: PLC0415

    for root in documents(plain_json(text.content)):
        for one in items_of(member(root, "configurations")):
            if one.start_mark.index <= index < one.end_mark.index:
                named = member(one, "envFile")
                path = text_of(named).replace("${workspaceFolder}", os.path.dirname(os.path.dirname(text.path)))
                found = with_file(outer, outer, os.path.join(os.path.dirname(text.path), path), place_of(text.path, named)) if named is not None else outer
                return found.having({name: literal(value or "", place_of(text.path, at)) for name, value, at in merged(member(one, "env"))})
    return outer
