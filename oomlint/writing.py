"""Files that are written whole or not at all, and what is left of runs that were killed while they wrote."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

LEFTOVER: Final = re.compile(r"\.oomlint-(?:(?P<process>\d+)-)?[a-z0-9_]{8}\.tmp")
OLD: Final = 60  # seconds; no writing takes as long

_ACCESS: Final = frozenset({"system.posix_acl_access", "system.nfs4_acl", "system.richacl"})  # attributes that say who may read and write
_OF_THE_CONTENT: Final = frozenset({"security.capability", "security.ima", "security.evm"})  # attributes that hold for the old bytes only
_UNNAMED: Final[int] = getattr(os, "O_TMPFILE", 0)
_BINARY: Final[int] = getattr(os, "O_BINARY", 0)


class _Access(Struct, frozen=True):
    """Who may do what with a file."""

    mode: int
    owner: tuple[int, int] | None = None  # user and group; None for whoever writes
    attributes: Mapping[str, bytes] = field(default_factory=dict)


def write_whole(path: str, data: bytes, *, mode: int = 0o600, keep: bool = False, durable: bool = False, before: Callable[[], None] | None = None) -> None:
    """Put a file in the place of ``path``: another process sees the old one or the new one, never a half. OSError where that cannot be.

    A link in that place is replaced, not followed. With ``keep``, the new file has the mode, the extended attributes and, where the system allows it, the
    owner and the group of the old one, and gives nobody a right that the old one did not give. ``durable`` outlasts a power cut.
    ``before`` is called last of all, and may raise.
    """
    access = _access_of(path) if keep else _Access(mode)
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f".oomlint-{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        try:
            _make(temporary, data, access, durable=durable, unnamed=True)
        except OSError:  # not every file system has files without a name; where it is full, the next line says so
            _make(temporary, data, access, durable=durable, unnamed=False)
        if before is not None:
            before()
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        _sync_folder(folder)


def sweep(folder: str, names: re.Pattern[str] = LEFTOVER) -> None:
    """Remove what killed runs of this user have left in a folder. What a run may still be writing stays."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = names.fullmatch(entry.name)
            if match is None:
                continue
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                process = match.groupdict().get("process")
                over = time.time() - status.st_mtime > OLD or (process is not None and not _is_alive(int(process)))
                if over and stat.S_ISREG(status.st_mode) and is_own(status):
                    os.unlink(entry.path)


def is_own(status: os.stat_result) -> bool:
    """Whether a file is this user's."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _make(temporary: str, data: bytes, access: _Access, *, durable: bool, unnamed: bool) -> None:
    """Make the new file. Without a name until it is complete, there is nothing for a kill to leave behind."""
    if unnamed and not _UNNAMED:
        raise OSError
    folder = os.path.dirname(temporary)
    handle = os.open(folder, _UNNAMED | os.O_WRONLY, 0o600) if unnamed else os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _BINARY, 0o600)
    with open(handle, "wb") as stream:
        stream.write(data)
        stream.flush()
        spot: str | int = handle if os.chmod in os.supports_fd else temporary
        _give(spot, access)
        if durable:
            os.fsync(handle)
        if unnamed:
            _name(handle, temporary)


def _access_of(path: str) -> _Access:
    status = os.lstat(path)
    return _Access(stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid), _attributes(path))


def _give(spot: str | int, access: _Access) -> None:
    """Let those use the new file, which so far is the writer's alone, who may use the old one."""
    mode = access.mode
    if access.owner is not None:
        mode = _allowed(mode, access.owner, *_owned(spot, access.owner), bool(_ACCESS & access.attributes.keys()))
        _attribute(spot, access.attributes)
    os.chmod(spot, mode)  # at last: `chown` takes rights away, and setting a list of rights gives them


def _owned(spot: str | int, owner: tuple[int, int]) -> tuple[int, int]:
    """Give the file an owner and a group, or at least the group, and say what it has now."""
    for user, group in (owner, (-1, owner[1])):
        status = os.stat(spot)
        if (status.st_uid, status.st_gid) != owner and hasattr(os, "chown"):
            with suppress(OSError):
                os.chown(spot, user, group)
    status = os.stat(spot)
    return status.st_uid, status.st_gid


def _allowed(mode: int, owner: tuple[int, int], user: int, group: int, listed: bool) -> int:  # noqa: FBT001
    """The mode under the user and group that a file could be given. Under another group, both that group and all others may do what both might before."""
    if user != owner[0]:
        mode &= ~stat.S_ISUID
    if group == owner[1]:
        return mode
    if listed:  # more than three sets of rights, and no telling what they come to
        raise PermissionError(errno.EPERM, "its group cannot be kept, and it has an access control list")
    shared = (mode >> 3) & mode & stat.S_IRWXO
    return (mode & stat.S_IRWXU) | (mode & (stat.S_ISUID | stat.S_ISVTX)) | shared << 3 | shared


def _attributes(spot: str | int) -> dict[str, bytes]:
    """The extended attributes of a file, but for those that the system makes from its bytes."""
    if sys.platform != "linux":
        return {}
    found: dict[str, bytes] = {}
    try:
        names = os.listxattr(spot)
    except OSError:  # the file system has none
        return found
    for name in names:
        if name not in _OF_THE_CONTENT:
            try:
                found[name] = os.getxattr(spot, name)
            except OSError as error:
                if name in _ACCESS and error.errno != errno.ENODATA:
                    raise _unkept(error) from None
    return found


def _attribute(spot: str | int, wanted: Mapping[str, bytes]) -> None:
    """Give a new file the extended attributes of the old one. OSError where it would let others in than that did."""
    if sys.platform != "linux":
        return
    known = _attributes(spot)  # such as the list of rights that a folder gives to new files
    for name in sorted(wanted.keys() | (known.keys() & _ACCESS)):
        if known.get(name) == wanted.get(name):
            continue
        try:
            if name in wanted:
                os.setxattr(spot, name, wanted[name])
            else:
                os.removexattr(spot, name)
        except OSError as error:
            if name in _ACCESS:
                raise _unkept(error) from None


def _unkept(error: OSError) -> OSError:
    return OSError(error.errno, f"its access control list cannot be kept: {error.strerror or error}")


def _name(handle: int, path: str) -> None:
    """Give an unnamed file its name."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.link(f"/proc/self/fd/{handle}", os.path.basename(path), dst_dir_fd=folder)  # given a folder, `link` follows the link of /proc
    finally:
        os.close(folder)


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":
        return True  # no signal only asks there
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _sync_folder(folder: str) -> None:
    """Make the renaming last through a power cut, where folders can be synced."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def give_up(stream: TextIO) -> None:
    """Lead a stream to nowhere, with what is still to be written to it."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
