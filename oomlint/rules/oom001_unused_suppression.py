"""OOM001 unused-suppression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomlint.finding import Consequence, Resource, Safety, Severity, Weighs
from oomlint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oomlint.finding import Finding
    from oomlint.model.project import Module, Project


class UnusedSuppression(Rule):
    """A comment silences a finding that is not there.

    ## What it does

    Checks for `# noqa: OOM...`, `# oomlint: ignore[OOM...]` and `# oomlint: file-ignore[OOM...]` that silence nothing, for codes in them that no rule has,
    and for comments that ask for nothing that there is, such as `# oomlint: noqa` and `# oomlint: ignore[]`. `# ruff: noqa` and
    `# flake8: noqa` without codes, which are for those linters alone, are a note once a file.

    A bare `# noqa`, the codes of other tools and of plugins that are not here, and codes that are not selected in this run are left alone.

    ## Why is this bad

    The comment says that there is a bug which somebody has looked at. Once the bug is gone it misleads the reader, and it hides the next bug of that
    kind in its line.

    ## Example

    ```python
    from torch.utils.data import DataLoader


    def loader_of(dataset):
        return DataLoader(dataset, batch_size=8, num_workers=2, persistent_workers=True)  # noqa: OOM101
    ```

    ## Use instead

    ```python
    from torch.utils.data import DataLoader


    def loader_of(dataset):
        return DataLoader(dataset, batch_size=8, num_workers=2, persistent_workers=True)
    ```

    ## Fix safety

    The code is taken out, and the comment where nothing else is in it. Safe: a comment is no part of the program.

    ## References

    - [Flake8: selecting and ignoring violations](https://flake8.pycqa.org/en/latest/user/violations.html)
    """

    code = "OOM001"
    slug = "unused-suppression"
    severity = Severity.WARNING
    lower = (Severity.NOTE,)
    fixable = Safety.SAFE
    weighs = Weighs(Consequence.ONCE, Resource.NOTHING)

    def check(self, module: Module, project: Project) -> Iterator[Finding]:  # noqa: ARG002 - the signature of all rules
        """Yield nothing: whether a comment is used is known only when all rules have spoken, and `oomlint.suppress` says it then."""
        yield from ()
