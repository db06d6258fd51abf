"""The rules: one file each, named by code and slug. The class docstring is the rule's page."""
