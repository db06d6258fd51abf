"""Handles: files that are opened, who keeps them, whether they are closed."""
