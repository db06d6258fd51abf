"""Cuts a loop or a call out of the program around it."""
