"""Machines that many people train on: what each has, who says so, and when that was seen. No figure stands here without a source."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from oomlint.amounts import size
from oomlint.budget.limits import Limit
from oomlint.budget.mistakes import BudgetError


class Profile(Struct, frozen=True):
    """One machine. What its source does not say is empty."""

    ram: str
    shm: str
    cores: int | None
    vram: str
    source: str
    seen: str  # the date of what the source shows, else that of its copy

    def limit(self, name: str, what: str) -> Limit | None:
        """One of ``ram``, ``shm`` and ``vram``."""
        written = str(getattr(self, what))
        return Limit(size(written), f"--profile {name}", written) if written else None


_CONTAINER: Final = "github.com/moby/moby/issues/29492"
_POD: Final = "github.com/kubernetes/kubernetes/issues/28272"
_SPACES: Final = "huggingface.co/docs/hub/spaces-gpus"
_AWS: Final = "docs.aws.amazon.com/batch/latest/userguide/gpu-jobs.html"
PROFILES: Final = {
    "colab-free": Profile(
        "12.7GB", "", None, "", "linux-blog.anracom.com/2023/05/04/google-colab-ram-vram-and-gpu-usage-limits-i-no-clear-conditions", "2023-05-04"
    ),
    "kaggle-t4x2": Profile("31.35GiB", "", 4, "15GiB", "huggingface.co/Narkantak/working: wandb-metadata.json of a run on Kaggle", "2024-04-30"),
    "docker": Profile("", "64MiB", None, "", _CONTAINER, "2026-11-25"),
    "kubernetes": Profile("", "64MiB", None, "", _POD, "2026-11-25"),
    "github-actions": Profile("16GB", "", 4, "", "docs.github.com/en/actions/reference/runners/github-hosted-runners (public repositories)", "2026-11-25"),
    "spaces-cpu-basic": Profile("16GB", "", 2, "", _SPACES, "2026-11-25"),
    "spaces-t4-small": Profile("15GB", "", 4, "16GB", _SPACES, "2026-11-25"),
    "aws-g4dn.xlarge": Profile("16GiB", "", 4, "16GiB", _AWS, "2026-11-25"),
    "aws-g5.xlarge": Profile("16GiB", "", 4, "24GiB", _AWS, "2026-11-25"),
}


def profile(name: str) -> Profile:
    """The profile of a name. Raises BudgetError."""
    found = PROFILES.get(name)
    if found is None:
        raise BudgetError(f"--profile {name}: there is none of that name; there are {', '.join(PROFILES)}")
    return found


def table() -> str:
    """All of them, for the documentation."""
    rows = (
        f"| `{name}` | {one.ram or '-'} | {one.shm or '-'} | {one.cores or '-'} | {one.vram or '-'} | {one.source} | {one.seen} |"
        for name, one in PROFILES.items()
    )
    return "\n".join(["| profile | memory | /dev/shm | cores | device | source | seen |", "| --- | --- | --- | --- | --- | --- | --- |", *rows])
