"""Runs the code before and after a fix in child processes, measures both, and says what the fix is worth.

The parent's side (this folder) knows findings and never imports torch. The children's side (:mod:`oomlint.verify.child`) runs under the interpreter of the
checked project, with the standard library and what that interpreter has.
"""
