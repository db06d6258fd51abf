"""The tools of oomlint for agents, by the Model Context Protocol."""
