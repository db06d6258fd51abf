"""What is wrong with what a budget was asked for."""


class BudgetError(Exception):
    """The message says what is wrong, on one line."""
