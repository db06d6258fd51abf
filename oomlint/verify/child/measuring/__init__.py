"""Reads what a run holds: tensors, objects, handles, files, rows."""
