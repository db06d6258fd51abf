"""A filter for system calls that no training code makes. It sees numbers and no paths, so it stands beside the mounts and Landlock, not in their place."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from typing import Final

from oomlint.verify.child.server.landlock import libc, turned_off

_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _JUMP_EQUAL, _JUMP_LEAST, _JUMP_ANY, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_X32: Final = 0x40000000  # numbers from here on are those of another interface of x86-64
_NEW_NAMESPACES: Final = 0x7E020000  # the flags of clone that make one: mount, cgroup, uts, ipc, user, pid, net
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16

# Numbers on x86-64 and on 64-bit Arm, from asm/unistd_64.h and asm-generic/unistd.h; 0 where there is no such call.
_ARCHITECTURES: Final = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_REFUSED: Final = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "unshare": (272, 97),
    "setns": (308, 268), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "sethostname": (170, 161),
    "setdomainname": (171, 162), "iopl": (172, 0), "ioperm": (173, 0), "open_by_handle_at": (304, 265), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "syslog": (103, 116), "vhangup": (153, 58), "fanotify_init": (300, 262),
}  # fmt: skip
# Changes of mode, owner, times and attributes, which Landlock does not see.
_ATTRIBUTES: Final = {
    "chmod": (90, 0), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, 0), "lchown": (94, 0), "fchown": (93, 55),
    "fchownat": (260, 54), "utime": (132, 0), "utimes": (235, 0), "futimesat": (261, 0), "utimensat": (280, 88), "setxattr": (188, 5),
    "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "setxattrat": (463, 463), "removexattrat": (466, 466), "file_setattr": (469, 469),
}  # fmt: skip
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)

_Instruction = tuple[int, int, int, int]  # code, rows to skip where true and where false, operand


def install(*, network: bool, attributes: bool) -> bool:
    """Filter this process and all children to come. False where this architecture is not known or the kernel refuses.

    Without ``network``, sockets of the internet cannot be made. Without ``attributes``, a change of a file's mode, owner or times is taken and not done: what
    unpacks an archive goes on.
    """
    if sys.platform != "linux" or os.uname().machine not in _ARCHITECTURES or "seccomp" in turned_off():
        return False
    program = b"".join(struct.pack("=HBBI", *row) for row in _program(*_ARCHITECTURES[os.uname().machine], network=network, attributes=attributes))
    memory = ctypes.create_string_buffer(program)
    head = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(memory)))
    system = libc()
    system.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    return bool(system.prctl(_SET_SECCOMP, _FILTER, ctypes.c_void_p(ctypes.addressof(head)), 0, 0) == 0)


def _program(architecture: int, column: int, *, network: bool, attributes: bool) -> list[_Instruction]:
    """The filter as the kernel's machine for packets runs it. The data hold the number at 0, the architecture at 4 and the arguments from 16 on."""
    rows: list[_Instruction] = [(_LOAD, 0, 0, 4), (_JUMP_EQUAL, 1, 0, architecture), _refusal(errno.ENOSYS), (_LOAD, 0, 0, 0)]
    if column == 0:
        rows += [(_JUMP_LEAST, 0, 1, _X32), _refusal(errno.ENOSYS)]
    # Its flags lie in memory, where no filter sees them: the C library goes on with the old call.
    rows += [(_JUMP_EQUAL, 0, 1, _CLONE3[column]), _refusal(errno.ENOSYS)]
    for numbers, answer in ((_REFUSED, errno.EPERM), ({} if attributes else _ATTRIBUTES, 0)):
        for number in (pair[column] for pair in numbers.values() if pair[column]):
            rows += [(_JUMP_EQUAL, 0, 1, number), _refusal(answer)]
    rows += [(_JUMP_EQUAL, 0, 3, _CLONE[column]), (_LOAD, 0, 0, 16), (_JUMP_ANY, 0, 1, _NEW_NAMESPACES), _refusal(errno.EPERM), (_LOAD, 0, 0, 0)]
    families = (_UNIX, _NETLINK, _INET, _INET6) if network else (_UNIX, _NETLINK)
    rows += [(_JUMP_EQUAL, 0, len(families) + 2, _SOCKET[column]), (_LOAD, 0, 0, 16)]
    rows += [(_JUMP_EQUAL, len(families) - index, 0, family) for index, family in enumerate(families)]
    return [*rows, _refusal(errno.EACCES), (_RETURN, 0, 0, _ALLOW)]


def _refusal(number: int) -> _Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)
