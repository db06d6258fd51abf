"""Pictures: what PIL and the transforms of torchvision make of them, where they say what size they have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import libcst as cst
from msgspec.structs import replace

from oomlint.memory.datasets.array_calls import CHANNELS, ArrayCalls
from oomlint.memory.shared.shaped import ShapedArray, joined, longer
from oomlint.model import arguments, names
from oomlint.model.values import Display, ExternalCall

if TYPE_CHECKING:
    from oomlint.memory.shared.shaped import Part, Shape
    from oomlint.model.values import Frame, Value

DECODED: Final = ShapedArray(("height", "width", "colours"), "uint8", "picture")
_CROPS: Final = frozenset({"CenterCrop", "RandomCrop", "RandomResizedCrop", "RandomSizedCrop"})  # one number is a square
_SAME: Final = frozenset("copy rotate transpose filter point autocontrast equalize flip mirror posterize solarize invert enhance".split())
_TENSORS: Final = {"ToTensor": "float32", "to_tensor": "float32", "PILToTensor": "uint8", "pil_to_tensor": "uint8", "ToImage": "uint8", "to_image": "uint8"}
_UNSIZED: Final = frozenset("Pad FiveCrop TenCrop RandomZoomOut ScaleJitter RandomShortestSize RandomResize RandomIoUCrop LinearTransformation".split())
_SIZED: Final = frozenset({"Resize", "resize", "center_crop"}) | _CROPS


class Pictures(ArrayCalls):
    """What becomes of pictures."""

    def applied(self, function: Value, given: Part) -> Part:
        """What an object or a function that is called with a picture or an array gives."""
        if not isinstance(function, ExternalCall) or not names.canonical(function.name).startswith("torchvision.transforms."):
            return None
        last, call, frame = function.name.rpartition(".")[2], function.call, function.frame
        if last in {"Compose", "Sequential", "RandomApply", "RandomOrder", "RandomChoice"} and call.args:
            return self._chain(last, call.args[0].value, frame, given)
        if last == "Lambda" and call.args:
            return joined([self.applied(alt.value, given) for alt in self.usual(call.args[0].value, frame)])
        return self.step(last, call, frame, arguments.plain(call), given)

    def _chain(self, last: str, steps: cst.BaseExpression, frame: Frame, given: Part) -> Part:
        """What several transforms make, one behind another; of those that may be left out, what is true either way."""
        shown = next((alt.value for alt in self.usual(steps, frame) if isinstance(alt.value, Display)), None)
        if shown is None or not isinstance(shown.node, cst.List | cst.Tuple) or self.contents.containers.grown(shown.node, shown.frame) is not None:
            return None
        ways: list[Part] = [given]
        for element in shown.node.elements:
            before = ways[-1] if last in {"Compose", "Sequential"} else given
            ways.append(joined([self.applied(alt.value, before) for alt in self.usual(element.value, shown.frame)]))
        return ways[-1] if last in {"Compose", "Sequential"} else joined(ways)

    def step(self, last: str, call: cst.Call, frame: Frame, plain: list[cst.BaseExpression], given: Part) -> Part:
        """What one transform, or one function of torchvision, makes; ``plain`` are its arguments behind the picture."""
        if not isinstance(given, ShapedArray) or last in _UNSIZED or given.shape is None:
            return None
        if last in _TENSORS:
            if given.of == "picture":
                self.assume()
            shape = (given.shape[2:] or (1,)) + given.shape[:2]
            keeps = given.of == "numpy" and given.dtype not in {"", "uint8"}
            return ShapedArray(shape, given.dtype if keeps else _TENSORS[last], "torch")
        if last in {"ConvertImageDtype", "convert_image_dtype", "ToDtype", "to_dtype"}:
            node = arguments.named(call, "dtype") or (plain[0] if plain else None)
            return given.cast(self.dtype(node, frame, "float32"))
        if last in {"ToPILImage", "to_pil_image"}:
            shape = (*given.shape[-2:], *given.shape[:-2]) if given.of == "torch" else given.shape
            return replace(given, shape=shape if len(shape) == len(DECODED.shape or ()) else (*shape, 1), dtype="uint8", of="picture")
        if last in {"Grayscale", "to_grayscale", "rgb_to_grayscale"}:
            count = self.number(node, frame) if (node := arguments.named(call, "num_output_channels") or (plain[0] if plain else None)) is not None else 1
            return given.shaped(*given.shape[:-1], count) if given.of == "picture" else given.shaped(*given.shape[:-3], count, *given.shape[-2:])
        if last in _SIZED:
            node = arguments.named(call, "size", "output_size") or (plain[0] if plain else None)
            size = self.shape([node], frame) if node is not None else None
            return _resized(given, size, square=last not in {"Resize", "resize"}, bounded=arguments.has(call, "max_size")) if size is not None else None
        grows = last == "RandomRotation" and arguments.has(call, "expand")
        return given if not grows else None

    def of_picture(self, name: str, base: ShapedArray, call: cst.Call, frame: Frame) -> Part:
        """What a method of a picture gives."""
        plain, shape = arguments.plain(call), base.shape or ("height", "width", "colours")
        mode = next((alt.const for alt in self.usual(plain[0], frame)), "") if plain and name == "convert" else ""
        if name == "convert":
            return base.shaped(*shape[:2], CHANNELS.get(str(mode), "colours"))
        if name == "resize" and plain:
            size = self.shape(plain[:1], frame)
            return base.shaped(*reversed(size), *shape[2:]) if size is not None and len(size) == len(("width", "height")) else None
        if name == "crop":
            return base.shaped("height", "width", *shape[2:])
        keeps = name in _SAME and not (name in {"rotate", "transpose"} and ("ROTATE" in frame.module.code(call) or arguments.has(call, "expand")))
        return base if keeps else None


def _resized(given: ShapedArray, size: Shape, *, square: bool, bounded: bool) -> Part:
    """A picture of a size; one number is a square, or the shorter side."""
    shape = given.shape or ()
    high, wide = size if len(size) == len(("height", "width")) else size * 2
    if len(size) == 1 and not square:
        high = wide = "..." if bounded else longer(high)
    return given.shaped(high, wide, *shape[2:]) if given.of == "picture" else given.shaped(*shape[:-2], high, wide)


def opened(name: str, call: cst.Call) -> ShapedArray | None:
    """A picture that is read."""
    if name == "PIL.Image.open":
        return DECODED
    return ShapedArray(("colours", "height", "width"), "uint8", "torch") if name.startswith("torchvision.io.") and call.args else None
