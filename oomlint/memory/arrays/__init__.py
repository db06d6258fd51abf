"""Arrays: what is read or made whole, and who keeps it."""
