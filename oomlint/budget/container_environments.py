"""With which environment a container starts: what its image sets, a service of compose, a pod."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from oomlint.budget.variables import interpolated, passed, read_file, with_file
from oomlint.finding import Place
from oomlint.model.container_files import image_of
from oomlint.model.environments import UNSAID, Environment, Setting
from oomlint.model.shell_runs import ShellState, rows_of
from oomlint.model.yaml_nodes import entries, member

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

_OF_POD: Final = re.compile(r"\$\(([A-Za-z_]\w*)\)")
STAGE: Final = re.compile(r"(?im)^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(\S+)(?:[ \t]+AS[ \t]+(\S+))?")
_ARGUMENT: Final = re.compile(r"(?<!\S)([A-Za-z_]\w*)(?=[=\s]|$)")
_ENV: Final = re.compile(r"(?im)^[ \t]*(?P<kind>ENV|ARG)[ \t]+(?P<text>(?:[^\\\n]|\\\r?\n|\\.)*)")
_PAIR: Final = re.compile(r"""([A-Za-z_]\w*)=((?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\])*)""", re.DOTALL)


def of_image(
    content: str, path: str, outer: Environment, target: str = "", *, built_with: Mapping[str, Setting] | None = None, building: bool = False
) -> Environment:
    """What ``ENV`` sets in the last stage of a Dockerfile, or in the one that is named, and in those that it begins with.

    ``built_with``: what the build is given for ``ARG``, whose default holds else. ``building``: what the build itself has, which sees those, too.
    """
    stages: list[tuple[str, dict[str, Setting], dict[str, Setting]]] = [("", {}, {})]  # the name, what `ENV` sets, and what `ARG` does
    where = rows_of(path, content)
    for match in sorted((*STAGE.finditer(content), *_ENV.finditer(content)), key=lambda one: one.start()):
        if match.re is STAGE:
            base = next((stage for stage in stages if stage[0] and stage[0] == match[1].lower()), ("", {}, {}))
            stages.append(((match[2] or "").lower(), dict(base[1]), dict(base[2])))
            if target and stages[-2][0] == target.lower():
                stages.pop()
                break
            continue
        _, kept, taken = stages[-1]
        state = ShellState(outer.emptied(), "", {**taken, **kept})
        text, place = match["text"], where(match.start("text"), match.end("text"))
        if match["kind"].upper() == "ARG":
            for name in (one[1] for one in _ARGUMENT.finditer(text)):
                defaults = {one[1]: one[2] for one in _PAIR.finditer(text)}
                own = replace(state.expanded(defaults[name]), place=place, assumed=True) if name in defaults else stages[0][2].get(name, UNSAID)
                taken[name] = (built_with or {}).get(name, own)
            continue
        first = re.match(r"([A-Za-z_]\w*)[ \t]+(.*)", text, re.DOTALL)
        given = [(first[1], first[2].strip())] if first is not None else [(one[1], one[2]) for one in _PAIR.finditer(text)]
        for name, value in given:
            found = state.expanded(value)
            kept[name] = Setting(found.text, place, assumed=found.assumed)
    return outer.emptied().having({**stages[-1][2], **stages[-1][1]} if building else stages[-1][1])


def of_service(node: Any, path: str, outer: Environment) -> Environment:
    """The environment of a service of compose."""
    folder = os.path.dirname(path)
    outer = _beside_compose(outer, folder)
    state = ShellState(outer, folder)
    inside = outer.emptied()
    build = member(node, "build")
    image = image_of(build, folder) if build is not None else None
    content = read_file(image[0]) if image is not None else None
    if image is not None and content is not None:
        listed = (*merged(member(build, "args")), *_listed(member(build, "args")))
        args = {key: replace(interpolated(value, state), place=place_of(path, at)) for key, value, at in listed if value is not None}
        inside = of_image(content, image[0], outer, image[1], built_with=args)
    name, suffix = os.path.splitext(os.path.basename(path))
    overridden = any(os.path.isfile(os.path.join(folder, f"{name}.override{one}")) for one in (suffix, ".yml", ".yaml"))
    if member(node, "extends") is not None or overridden:
        inside = inside.having({}, opened=True)
    for item, needed in _env_files(member(node, "env_file")):
        given = interpolated(item.value, state)
        if given.text is None:
            inside = inside.having({}, opened=True)
        elif needed or read_file(os.path.join(folder, given.text)) is not None:
            inside = with_file(inside, outer, os.path.join(folder, given.text), place_of(path, item))
    given_node = member(node, "environment")
    for name, value, at in [*merged(given_node), *_listed(given_node)]:
        if value is None:
            inside = inside.having(passed(outer, name))
            continue
        found = interpolated(value, state)
        inside = inside.having({name: Setting(found.text, place_of(path, at), assumed=found.assumed)})
    return inside


def _beside_compose(outer: Environment, folder: str) -> Environment:
    """What a compose file is filled in with: the environment, else the file `.env` beside it."""
    path = os.path.join(folder, ".env")
    if read_file(path) is None:
        return outer
    own = with_file(outer.emptied(), outer, path, rows_of(path, "")(0, 0))
    kept = {name: said for name in own.settings if not (said := outer.says(name)).unset}
    return outer.having({**{name: replace(one, assumed=True) for name, one in own.settings.items()}, **kept}, opened=own.opened)


def _env_files(node: Any) -> Iterator[tuple[Any, bool]]:
    for item in node.value if isinstance(getattr(node, "value", None), list) else [node] if node is not None else []:
        named = member(item, "path") if entries(item) else item
        if isinstance(getattr(named, "value", None), str):
            yield named, str(getattr(member(item, "required"), "value", "true")).lower() != "false"


def merged(node: Any, deepest: int = 4) -> Iterator[tuple[str, str | None, Any]]:
    """The entries of a mapping, those that are merged into it first."""
    own = entries(node)
    for value in (value for key, value in own if key == "<<" and deepest):
        for base in [value] if entries(value) else value.value:
            yield from merged(base, deepest - 1)
    for key, value in own:
        if key != "<<":
            empty = str(value.tag).endswith(":null")
            yield key, None if empty or not isinstance(value.value, str) else value.value, value


def _listed(node: Any) -> Iterator[tuple[str, str | None, Any]]:
    for item in node.value if not entries(node) and isinstance(getattr(node, "value", None), list) else ():
        if isinstance(getattr(item, "value", None), str):
            name, equals, value = item.value.partition("=")
            yield name, value if equals else None, item


def of_container(node: Any, roots: Iterable[Any], path: str, outer: Environment) -> Environment:
    """The environment of a container of Kubernetes. Of ``envFrom``, maps of the same file are read."""
    inside = outer.emptied()
    maps = {str(getattr(member(member(one, "metadata"), "name"), "value", "")): one for one in roots if text_of(member(one, "kind")) == "ConfigMap"}
    for one in items_of(member(node, "envFrom")):
        source = maps.get(text_of(member(member(one, "configMapRef"), "name")))
        prefix = text_of(member(one, "prefix"))
        if source is None:
            inside = inside.having({}, opened=True)
        else:
            inside = inside.having({prefix + name: Setting(value, place_of(path, at)) for name, value, at in merged(member(source, "data"))})
    for one in items_of(member(node, "env")):
        name, value = text_of(member(one, "name")), member(one, "value")
        if value is not None:
            inside = inside.having({name: Setting(referred(text_of(value), inside), place_of(path, value))})
        elif member(one, "valueFrom") is not None:
            chosen = member(member(one, "valueFrom"), "configMapKeyRef")
            data = {key: (text, at) for key, text, at in merged(member(maps.get(text_of(member(chosen, "name"))), "data"))}
            text, at = data.get(text_of(member(chosen, "key")), (None, one))
            inside = inside.having({name: Setting(text, place_of(path, at))})
        else:
            inside = inside.having({name: Setting("", place_of(path, one))})
    return inside


def referred(text: str, inside: Environment) -> str | None:
    """A text of a pod with the variables that it refers to; None where one of them is not known."""
    names = [match[1] for match in _OF_POD.finditer(text) if match[1] in inside.settings]
    if any(inside.says(name).text is None for name in names):
        return None
    return _OF_POD.sub(lambda match: inside.says(match[1]).text or "" if match[1] in inside.settings else match[0], text)


def items_of(node: Any) -> list[Any]:
    """The nodes of a list; none of a mapping."""
    found = getattr(node, "value", None)
    return [one for one in found if not isinstance(one, tuple)] if isinstance(found, list) else []


def text_of(node: Any) -> str:
    """The text of a scalar."""
    return str(getattr(node, "value", ""))


def place_of(path: str, node: Any) -> Place:
    """The place of a node in a file."""
    start, end = node.start_mark, node.end_mark
    return Place(path, 0, start.line + 1, start.column + 1, end.line + 1, end.column + 1)
