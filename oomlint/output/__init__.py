"""Findings to text: one file a format.

Text formats yield lines of styled spans, for :mod:`oomlint.output.printer`; machine formats return their text.
"""
