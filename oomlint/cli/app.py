"""The command line as typer reads it: its help, its errors, and the ways of writing options that are rarer."""

from __future__ import annotations

import importlib
import inspect
import shlex
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from oomlint.cli import COMMANDS
from oomlint.cli.check import say
from oomlint.cli.options import Option, OptionKind, from_typer, options_of, spelling, spelt_out
from oomlint.cli.version import text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType


_COMPLETION: Final = "--show-completion"


def parse(words: Sequence[str]) -> Callable[[], int] | int:
    """What a command line asks for, ready to be done; an exit status where help or an error is all there is to it."""
    chosen: list[Callable[[], int]] = []
    if words and words[0] == "help":
        words = [*words[1:], "--help"]
    option, *shell = [*(words[0].split("=", 1) if words else [""]), *words[1:]]
    if option == _COMPLETION and shell:
        return _completion(" ".join(shell))
    if words and words[0] in COMMANDS:
        words = [words[0], *spelt_out(importlib.import_module(f"oomlint.cli.{words[0]}").Arguments, words[1:])]
    try:
        application(chosen.append)(list(words), prog_name="oomlint")
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            raise  # to be told from an error in the options
        if end.code and words[:1] == ["budget"] and any(word.endswith(".py") and " " not in word for word in words):
            say(f"hint: a command with options of its own stands in quotes: oomlint budget {shlex.quote(' '.join(words[1:]))}")
        if end.code or not chosen:
            return end.code if isinstance(end.code, int) else 0
    return chosen[0]


def _completion(shell: str) -> int:
    """Print what completes lines in a shell: typer itself takes the one that it is started from, whatever is named."""
    from typer._completion_shared import Shells, get_completion_script  # noqa: PLC0415 - few ask for it, and typer may move what it does not export

    known = [each.value for each in Shells]
    if shell not in known:
        say(f"error: {_COMPLETION}: {shell!r} is none of {', '.join(known)}")
        return 2
    typer.echo(get_completion_script(prog_name="oomlint", complete_var="_OOMLINT_COMPLETE", shell=shell))
    return 0


def application(choose: Callable[[Callable[[], int]], None]) -> typer.Typer:
    """The application. A command that has been read is handed to ``choose`` and not done yet: typer has its own way with exceptions."""
    app = typer.Typer(
        add_completion=True,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def oomlint(
        *,
        version: Annotated[bool, typer.Option("--version", "-V", help="Show the version.", callback=_version, is_eager=True)] = False,
    ) -> None:
        """Find the memory bugs of PyTorch training code before they kill a run."""

    for name in COMMANDS:
        command = importlib.import_module(f"oomlint.cli.{name}")
        # Options of a command that is run are its own: what follows its first word is not looked at.
        runs = any(option.kind is OptionKind.REST for option, _ in options_of(command.Arguments).values())
        app.command(name, help=command.Arguments.__doc__, context_settings={"allow_interspersed_args": not runs})(_command(command, choose))
    return app


def _version(asked: bool) -> None:  # noqa: FBT001 - typer calls it so
    if asked:
        typer.echo(text())
        raise typer.Exit


def _command(command: ModuleType, choose: Callable[[Callable[[], int]], None]) -> Callable[..., None]:
    """A function with the signature that typer makes a command of: a parameter for each field of the record."""

    def chosen(**values: Any) -> None:
        choose(partial(command.perform, from_typer(command.Arguments, values)))

    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default or None if option.kind in {OptionKind.LIST, OptionKind.WORDS, OptionKind.REST} else default,
            annotation=_annotation(name, option),
        )
        for name, (option, default) in options_of(command.Arguments).items()
    ]
    chosen.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    chosen.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return chosen


def _annotation(name: str, option: Option) -> Any:
    if option.kind in {OptionKind.WORDS, OptionKind.REST}:
        return Annotated[list[str] | None, typer.Argument(help=option.help, metavar=option.metavar, show_default=False)]
    names = [spelling(name), *([option.short] if option.short else [])]
    about = typer.Option(*names, help=option.help, metavar=option.metavar, rich_help_panel=option.panel, show_default=option.kind is OptionKind.CHOICE)
    types: dict[OptionKind, Any] = {
        OptionKind.FLAG: bool,
        OptionKind.TEXT: str | None,
        OptionKind.LIST: list[str] | None,
        OptionKind.CHOICE: (option.choices or StrEnum) | None,
    }
    return Annotated[types[option.kind], about]
