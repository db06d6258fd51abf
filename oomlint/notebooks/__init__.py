"""Notebooks: the cells of their JSON as one program, IPython's own syntax in them, and the way of an edit back into the JSON."""
