"""Imports the user's code, whatever of it is missing."""
