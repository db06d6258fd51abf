"""Keeps the interpreter of the checked project in, and all that it runs: set up before it starts, by a launcher that runs nothing of the project."""
