"""Watches the memory of a training run: `oomlint trace` from outside, :func:`watch` for those who want epochs and steps on its timeline.

Importing this takes the standard library and next to no time; without `oomlint trace` around it, nothing is read and nothing is written.
"""

from oomlint.trace.marks import Marks, watch

__all__ = ("Marks", "watch")
