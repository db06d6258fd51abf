"""Whether what is kept for a sample is large: an array, a tensor, an image, a file's contents, or an object that holds such."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from msgspec import Struct
from msgspec.structs import replace

from oomlint.api_names import FACTS, H5_FILES, REDUCTIONS
from oomlint.finding import ContentKind, Resource
from oomlint.memory.arrays.kept import READING
from oomlint.memory.arrays.kept_calls import KEEPS, SMALL_FUNCTIONS, keeps_size
from oomlint.memory.arrays.read_calls import read_calls_of
from oomlint.memory.datasets.dataset_classes import datasets_of
from oomlint.memory.loaders.loader_calls import evaluator_of
from oomlint.memory.shared.computed import Computed, computed, is_computing
from oomlint.memory.shared.content_kinds import Content, Form, PayloadKind
from oomlint.memory.shared.known_reads import LAZY, KnownRead, known_read
from oomlint.model import names
from oomlint.model.values import ClassRef, Display, Element, External, ExternalCall, Instance, SourceExpression
from oomlint.syntax.nodes import descend
from oomlint.weighing import HELD

if TYPE_CHECKING:
    from oomlint.model.project import Project
    from oomlint.model.values import Frame, Value

_LARGE = frozenset(
    {PayloadKind.ARRAY, PayloadKind.ARRAYS, PayloadKind.OBJECT_ARRAY, PayloadKind.TENSOR, PayloadKind.TENSORS, PayloadKind.FRAME, PayloadKind.BLOB}
)
# Objects of these keep decoded frames and buffers of their own.
_VIDEO = frozenset({"decord.VideoReader", "cv2.VideoCapture", "av.open", "torchvision.io.VideoReader", "torchcodec.decoders.VideoDecoder"})
_SIZES = FACTS | REDUCTIONS | {"item", "argmax", "duration", "fps"}
_DEEPEST = 5


class Heavy(Struct, frozen=True):
    """What is kept, in words; ``doubt`` counts assumptions, ``read`` says that a file is behind it."""

    words: str
    doubt: int = 0
    read: bool = False
    of: Resource = Resource.IMAGES
    text: bool = False  # as it stands in the file


_TEXT = Heavy("the contents of a file", read=True, of=Resource.RECORDS, text=True)


def heavy(node: cst.BaseExpression, frame: Frame, project: Project, depth: int = 0) -> Heavy | None:
    """What an expression holds, where that is large or may well be; ``None`` for scalars, paths, strings, handles, the unknown."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, cst.Tuple | cst.List | cst.Dict):
        inner = (heavy(e.value, frame, project, depth + 1) for e in node.elements if isinstance(e, cst.Element | cst.DictElement))
        return next((one for one in inner if one is not None), None)
    if isinstance(node, cst.ListComp | cst.DictComp):
        return heavy(node.value if isinstance(node, cst.DictComp) else node.elt, frame, project, depth + 1)
    if isinstance(node, cst.Attribute) and node.attr.value in _SIZES:
        return None
    values = [alt.value for alt in evaluator_of(project).values(node, frame)[:24]]
    found = [one for value in values if not _held_already(value, project) and (one := _value(value, node, project, depth)) is not None]
    return min(found, key=lambda one: (one.doubt, not one.read), default=None)


def _held_already(value: Value, project: Project) -> bool:
    """Whether it is part of what the object or the module has in memory anyway."""
    if isinstance(value, Element):
        return _held_already(value.whole, project)
    if isinstance(value, ExternalCall):
        return value.frame.scope.name == "__init__" or not value.frame.scope.is_function
    if isinstance(value, SourceExpression) and isinstance(value.node, cst.Subscript):
        return any(_held_already(alt.value, project) for alt in evaluator_of(project).values(value.node.value, value.frame)[:4])
    return False


def _value(value: Value, node: cst.BaseExpression, project: Project, depth: int) -> Heavy | None:
    if isinstance(value, Instance):
        return _instance(value, project, depth)
    if isinstance(value, ExternalCall) and value.name in _VIDEO:
        return Heavy(f"a `{value.name.rpartition('.')[2]}` with its buffers", read=True)
    if isinstance(value, Display) and isinstance(value.node, cst.Call):  # `dict(image=image)`
        return next((one for arg in value.node.args if (one := heavy(arg.value, value.frame, project, depth + 1)) is not None), None)
    if isinstance(value, Display) and value.node is not node:
        return heavy(value.node, value.frame, project, depth + 1)
    if isinstance(value, SourceExpression) and isinstance(value.node, cst.Call):
        found = _chain(value.node, value.frame, project, depth)
        if found is not None:
            return found
    content = datasets_of(project).contents.of_value(value)
    if content.kind is PayloadKind.UNKNOWN:
        return _by_library(value, project, depth)
    found, handed = _content(content, value), _handed_on(value, project, depth)
    return replace(found, read=True) if found is not None and handed is not None and handed.read else found


def _by_library(value: Value, project: Project, depth: int) -> Heavy | None:
    """What a library gives of which nobody knows more: what a file has, or what a function makes of what it is given."""
    made = value.whole if isinstance(value, Element) and all(how == "item" for how, _ in value.accessors) else value
    if not isinstance(made, ExternalCall):
        return None
    if known_read(made.name) is KnownRead.SAMPLE and made.name not in LAZY:
        # The sample rate, or the size of something, is no payload.
        payload = made is value or (isinstance(value, Element) and value.accessors[0] == ("item", 0))
        return Heavy(KnownRead.SAMPLE.value, read=True) if payload else None
    tensor = made.name.startswith("torch.") and is_computing(made.name)
    if tensor and computed(made.name.rpartition(".")[2], made.call, before=1) is not Computed.ARRAY:
        return None
    return _handed_on(value, project, depth) or (Heavy("a tensor", 1, of=Resource.TENSORS) if tensor else None)


def _handed_on(value: Value, project: Project, depth: int) -> Heavy | None:
    """What a function is given that gives about as much."""
    if not isinstance(value, ExternalCall) or not value.call.args or known_read(value.name) is not None:
        return None
    as_much = keeps_size(value.name) and value.name.rpartition(".")[2] not in SMALL_FUNCTIONS
    return heavy(value.call.args[0].value, value.frame, project, depth + 1) if as_much else None


def _content(content: Content, value: Value) -> Heavy | None:
    if content.form is Form.TEXT_OF_FILE:
        return _TEXT
    if content.kind not in _LARGE or content.doubt > 1:
        return None
    if content.size.exact is not None and content.size.exact < 1024:  # noqa: PLR2004 - bytes: a vector of a hundred numbers
        return None
    if isinstance(value, ExternalCall) and value.call.args and all(isinstance(a.value, cst.Integer | cst.Float) for a in value.call.args):
        return None
    name = value.name if isinstance(value, ExternalCall) else value.whole.name if isinstance(value, Element) else ""
    read = known_read(name) is not None or name in H5_FILES
    return Heavy(content.words, content.doubt, read=read, of=HELD.get(ContentKind[content.kind.name], Resource.UNKNOWN))


def _chain(node: cst.Call, frame: Frame, project: Project, depth: int) -> Heavy | None:
    """``Image.open(p).convert("RGB")``: what a method hands on."""
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in KEEPS:
        return heavy(node.func.value, frame, project, depth + 1)
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in {"read", "read_bytes"} and _opens(node.func.value, frame, project):
        return _TEXT
    if (found := read_calls_of(project).sample(node, frame)) is not None:
        return Heavy(found.value, read=True)
    evaluator = evaluator_of(project)
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in READING:
        opened = (alt.value for alt in evaluator.values(node.func.value, frame)[:3] if isinstance(alt.value, ExternalCall))
        name = next((value.name for value in opened if value.name in LAZY), None)
        if name is not None:
            return Heavy(f"what `{name}` opened", read=True)
    for alt in evaluator.values(node.func, frame)[:2]:
        if isinstance(alt.value, External) and names.canonical(alt.value.name) in {"numpy.array", "numpy.asarray", "torch.from_numpy"} and node.args:
            return heavy(node.args[0].value, frame, project, depth + 1)
    return None


def _opens(node: cst.BaseExpression, frame: Frame, project: Project) -> bool:
    return any(
        isinstance(a.value, ExternalCall) and a.value.name in {"builtins.open", "io.open", "pathlib.Path"}
        for a in evaluator_of(project).values(node, frame)[:3]
    )


def _instance(value: Instance, project: Project, depth: int) -> Heavy | None:
    """An object whose class keeps something large in an attribute."""
    if depth > 1:
        return None
    evaluator = evaluator_of(project)
    init = evaluator.init_frame(value)
    record = init is None and evaluator.fields(value.cls) is not None
    for layer in (value.bound or ()) if record else ():  # it keeps what it is given
        for arg in layer.args:
            found = heavy(arg.value, layer.frame, project, depth + 2)
            if found is not None:
                return _in_object(value, found)
    for cls in evaluator.lineage(value.cls):
        if not isinstance(cls, ClassRef):
            continue
        for method in cls.scope.children:
            this = names.self_name(method)
            if this is None or not method.is_function:
                continue
            frame = init if init is not None and init.scope is method else evaluator.calls.plain_frame(cls.module, method)
            for effect in method.effects.get(this, ()):
                kept = effect.path[:1] and effect.path[0][0] == "attr" and effect.kind in {"assign", "append", "setdefault"} and len(effect.path) <= 2  # noqa: PLR2004
                if not kept or effect.value is None or effect.index or not any(isinstance(n, cst.Name | cst.Call) for n in descend(effect.value)):
                    continue
                found = heavy(effect.value, frame, project, depth + 2)
                if found is not None:
                    return _in_object(value, found)
    return None


def _in_object(value: Instance, found: Heavy) -> Heavy:
    return Heavy(f"a `{value.cls.scope.name}` with {found.words}", found.doubt, read=found.read, of=found.of)
