"""Tries inputs until the user's code runs to the statement in question."""
