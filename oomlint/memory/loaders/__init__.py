"""Loaders: their arguments, their workers, what is in flight."""
