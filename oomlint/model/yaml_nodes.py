"""Nodes of YAML: what stands at a key, with the places of the file that a parsed value no longer has."""

from __future__ import annotations

from typing import Any, Final

MOST_CHARACTERS: Final = 200_000  # it takes long to read


def entries(node: Any) -> list[tuple[str, Any]]:
    """The keys of a node of YAML, with theirs."""
    import yaml  # noqa: PLC0415

    return [(str(key.value), value) for key, value in node.value] if isinstance(node, yaml.MappingNode) else []


def member(node: Any, name: str, deepest: int = 4) -> Any:
    """What stands at a key of a node of YAML, or of one that is merged into it; ``None`` where there is no such key."""
    own = entries(node)
    merged = (value for key, value in own if key == "<<" and deepest)
    bases = (base for value in merged for base in ([value] if entries(value) else value.value))
    return next((value for key, value in own if key == name), None) or next((found for base in bases if (found := member(base, name, deepest - 1))), None)


def documents(content: str) -> list[Any]:
    """The nodes of the documents in a file of YAML; none where it is broken."""
    import yaml  # noqa: PLC0415

    try:
        return list(yaml.compose_all(content, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):
        return []
