"""Fixes: the edits that rules offer."""
