"""The concrete syntax tree: parsing, one walk, spans. No other room knows libcst's machinery."""

import oomlint.syntax.quick  # noqa: F401 - before anybody imports libcst by itself
