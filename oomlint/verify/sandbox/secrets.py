"""Which files look like secrets: they are neither copied for a job nor shown to it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from oomlint.discovery import ENVIRONMENT_MARKS

if TYPE_CHECKING:
    from collections.abc import Iterator

# By what the field calls them: settings with passwords, private keys, credentials of services, and the folders and files that tools keep theirs in.
_NAMES: Final = re.compile(
    r"(\.env(rc)?([._-].*)?|.*\.env|.*\.(pem|key|p12|pfx|jks|keystore|kdbx|ppk|ovpn|gpg|tfstate)|(id|.*)_(rsa|dsa|ecdsa|ed25519)([._].*)?|private\.asc"
    r"|[._]netrc|\.pypirc|\.npmrc|\.git-credentials|\.pgpass|\.my\.cnf|\.s3cfg|\.boto|\.htpasswd|\.dockercfg|\.databrickscfg|\.vault[_-](token|pass)"
    r"|\.(aws|ssh|gnupg|kube|docker|azure|gcloud|kaggle|password-store|huggingface|streamlit|claude)|kaggle\.json|kubeconfig|rclone\.conf|\..*_history"
    r"|(.*[._-])?(credentials?|secrets?|client_secret|service[_-]account|api[_-]?keys?|passwords?|passwd|(access|auth|hf|wandb|github|secret)[_-](tokens?|key))"
    r"([._-].*)?\.(json|ya?ml|toml|ini|cfg|conf|txt|csv|properties|xml)"
    r"|token\.txt|\.?(credentials?|secrets?|token|passwords?|(hf|auth|access)_token|secret_key|api_?key))(~|\.(bak|old|orig|save|swp))?",
    re.IGNORECASE,
)
_PACKAGES: Final = frozenset({"node_modules", "site-packages"})  # of others, with certificates that everybody may read
_OF_A_REPOSITORY: Final = frozenset({".git", ".hg", ".svn", ".bzr", ".jj"})  # addresses in them may hold passwords
MOST: Final = 200_000  # files and folders that are looked at


def is_secret(path: str) -> bool:
    """Whether a file or folder looks like a secret by its name. A virtual environment may be called ``.env``."""
    if _NAMES.fullmatch(os.path.basename(path)) is None:
        return False
    return not os.path.isdir(path) or not any(os.path.exists(os.path.join(path, mark)) for mark in ENVIRONMENT_MARKS)


def found(folder: str, most: int = MOST) -> Iterator[str]:
    """What below a folder must not be seen: secrets, histories of repositories, and sockets, behind which a program of the user's listens."""
    waiting = [folder]
    while waiting and most > 0:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    most -= 1
                    if entry.name in _OF_A_REPOSITORY or is_secret(entry.path) or not (entry.is_file() or entry.is_dir() or entry.is_symlink()):
                        yield entry.path
                    elif entry.is_dir(follow_symlinks=False) and entry.name not in _PACKAGES:
                        waiting.append(entry.path)
        except OSError:
            continue
