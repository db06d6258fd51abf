"""What several nouns rest on: bytes, what a value holds, loops and contexts."""
