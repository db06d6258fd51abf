"""Places that every program needs. A module of its own: it is read by oomlint itself, which loads nothing of what runs in the sandbox."""

from __future__ import annotations

from typing import Final

SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu", "/sys")  # programs, libraries, devices
