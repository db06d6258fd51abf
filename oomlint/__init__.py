"""Finds the memory bugs of PyTorch training code before they kill a run."""

__version__ = "0.1.0"
