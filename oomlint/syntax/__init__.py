"""The concrete syntax tree: parsing, one walk, spans. No other room knows libcst's machinery."""
