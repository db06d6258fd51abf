"""Regular expressions that are compiled when they are first used: of those of a room, a run needs few, and each takes as long as a hundred searches."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _Later:
    """Stands for a compiled expression until somebody uses it, and has its methods from then on."""

    def __init__(self, text: Any, flags: int) -> None:
        self._given = text, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        compiled = re.compile(*self._given)
        for each in ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split"):
            setattr(self, each, getattr(compiled, each))
        return getattr(compiled, name)


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What ``re.compile`` gives, for use by its methods. What is wrong with the text is said when it is first used."""
    return cast("re.Pattern[AnyStr]", _Later(text, flags))
