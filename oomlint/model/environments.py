"""What the environment of a command says of a variable: what it is set to, that it is unset, or that nobody knows.

Where nothing that is read speaks of a variable, the shell in which the user types the command may still export it. The default then holds unless somebody
sets the variable: an assumption, and who makes it is asked for its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from oomlint.finding import Place


class Setting(Struct, frozen=True):
    """What is known of one variable."""

    text: str | None = None  # what it is set to; None where nobody knows, or where it is unset
    place: Place | None = None  # of what sets it
    unset: bool = False
    assumed: bool = False  # whether that holds only unless the user's shell sets something

    @property
    def unknown(self) -> bool:
        """Whether it may be anything."""
        return self.text is None and not self.unset


UNKNOWN_SETTING: Final = Setting()
UNSET: Final = Setting(unset=True)
UNSAID: Final = Setting(unset=True, assumed=True)


class UsersShell(Struct, eq=False):
    """The shell in which the user types the command. It keeps which of its variables were asked for, and what had to be said on the way."""

    hidden: frozenset[str] = frozenset()  # variables that are taken to be anything, wherever they are set
    asked: dict[str, None] = field(default_factory=dict)
    lacking: dict[str, None] = field(default_factory=dict)  # those of them that nothing sets, since somebody began to look
    mistakes: dict[tuple[str, int, str], None] = field(default_factory=dict)  # the file, its row, and what is wrong there


class Environment(Struct, frozen=True):
    """The environment of one command."""

    settings: Mapping[str, Setting] = field(default_factory=dict)
    opened: bool = False  # whether somebody may have set any other variable, and nobody can read which
    alone: bool = False  # whether it has nothing of the user's shell
    by_system: tuple[str, ...] = ()  # how variables begin that a batch system or a launcher sets, to what nobody knows
    chosen: bool = False  # whether the command line that hands the job to SLURM says what it has, and not the script
    user: UsersShell = field(default_factory=UsersShell)

    def says(self, name: str) -> Setting:
        """What it says of a variable."""
        self.user.asked[name] = None
        if name in self.user.hidden:
            return UNKNOWN_SETTING
        found = self.settings.get(name)
        if found is not None:
            return found
        if self.opened or name.startswith(self.by_system):
            return UNKNOWN_SETTING
        if not self.alone:
            self.user.lacking[name] = None
        return UNSET if self.alone else UNSAID

    def having(self, settings: Mapping[str, Setting], *, opened: bool = False) -> Environment:
        """The same with other values for some variables; ``opened``: and with any for all others."""
        return replace(self, settings={**({} if opened else self.settings), **settings}, opened=self.opened or opened)

    def assuming(self, names: Iterable[str]) -> Environment:
        """The same where some names were asked of the user's shell: what depends on them holds only unless it sets them."""
        return self.having({name: replace(one, assumed=True) for name in names if (one := self.settings.get(name)) is not None})

    def emptied(self, *, alone: bool = False) -> Environment:
        """Without anything that is known of it, as a container has it; ``alone``: where nothing else can set a variable either."""
        return Environment(alone=alone, user=self.user)

    def only(self, names: Iterable[str]) -> Environment:
        """Without all that is set, save for some names."""
        kept = {name: self.settings.get(name) or (UNKNOWN_SETTING if self.opened else UNSAID) for name in names}
        return self.emptied().having({name: setting for name, setting in kept.items() if setting != UNSAID})
