"""How each family of findings is verified."""
