"""Runs a dataset, a loader call, a loop or a command, once before and once after a fix."""
