"""Values, files and arguments that stand for what the user has not given."""
