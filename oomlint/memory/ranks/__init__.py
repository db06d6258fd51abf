"""Ranks: what each of several processes holds for itself."""
