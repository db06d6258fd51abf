# ruff: noqa: D102 -- the methods are those of what it stands in for, or of the import system
"""Arguments for the user's functions: specifications as plain JSON, and the values that they describe."""

from __future__ import annotations

import inspect
import os
import pathlib
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils import data

from oomlint.verify.child.loading import stubs
from oomlint.verify.child.synthesis import file_specs_plain, inferred_value
from oomlint.verify.child.synthesis.file_specs_plain import FOLDER, SAMPLES, Options, array

if TYPE_CHECKING:
    import types
    from collections.abc import Callable


Spec = dict[str, Any]
LEFT: Final = {"is": "default"}  # the parameter keeps its own default


class OptionsAsSettings(Options):
    """A configuration in which what is not there yet is guessed, and noted in ``asked``."""

    def __init__(self, made: dict[str, Any], asked: dict[str, Spec], guess: Callable[[str], Spec]) -> None:
        super().__init__(made)
        self.__dict__["_asked"], self.__dict__["_guess"] = asked, guess

    def _first(self, name: str) -> Any:
        return build(self._asked.setdefault(name, self._guess(name)), name, {"n": SAMPLES}, None, self._guess)


class Tokenizer:
    """Whole numbers for words."""

    pad_token_id = 0
    eos_token_id = bos_token_id = cls_token_id = sep_token_id = unk_token_id = mask_token_id = 1
    vocab_size = 64
    model_max_length = 16

    def encode(self, text: Any, *_: object, **__: object) -> list[int]:
        return [len(word) % 64 for word in str(text).split()] or [1]

    def tokenize(self, text: Any, *_: object, **__: object) -> list[str]:
        return str(text).split()

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        return [len(str(token)) % 64 for token in tokens] if isinstance(tokens, list) else len(str(tokens)) % 64

    def __len__(self) -> int:
        return self.vocab_size

    def __call__(self, text: Any, *_: object, max_length: int = 16, return_tensors: str | None = None, **__: object) -> Any:
        ids = (self.encode(text) * max_length)[: max_length or 16]
        made: dict[str, Any] = {"input_ids": ids, "attention_mask": [1] * len(ids), "token_type_ids": [0] * len(ids)}
        if return_tensors:
            made = {name: torch.tensor([value]) for name, value in made.items()}
        return Options(made)

    encode_plus = batch_encode_plus = __call__


class SameArgument:
    """A transform that changes nothing."""

    def __call__(self, value: Any = None, *others: Any, **keywords: Any) -> Any:
        if keywords and value is None:
            return keywords
        return (value, *others) if others else value


def path_spec(name: str, end: str = "") -> Spec:
    """A path of ours, named as the parameter is."""
    return {"is": "path", "name": name, "end": end}


def text_of(spec: Spec) -> str:
    """The path that a specification stands for, relative to the current folder."""
    text = f"{FOLDER}/{spec['name']}{spec.get('end', '')}"
    return os.path.abspath(text) if spec.get("whole") else text


MADE: Final[dict[str, Callable[[int], Any]]] = {  # of no more than a number of samples
    "range": lambda count: list(range(count)),
    "texts": lambda count: [f"id{i}" for i in range(count)],
    "device": lambda _: torch.device("cpu"),
    "same": lambda _: SameArgument(),
    "model": lambda count: torch.nn.Linear(8, count, bias=False),  # its weight has the shape that arrays in files have at first: it may be filled from one
    "totensor": lambda _: stubs.ToTensor(),
    "tokenizer": lambda _: Tokenizer(),
    "samples": lambda count: data.TensorDataset(torch.arange(count * 4, dtype=torch.float32).reshape(count, 4), torch.arange(count) % 4),
}


def build(spec: Spec, name: str, state: dict[str, Any], module: types.ModuleType | None, guess: Callable[[str], Spec] | None = None) -> Any:
    """The value that a specification describes."""
    count: int = state.get("n", SAMPLES)
    made = MADE.get(spec["is"])
    if made is not None:
        return made(count)
    match spec["is"]:
        case "expression":
            return eval(spec["text"], {} if module is None else vars(module))  # noqa: S307 -- the user's own words, in a child that is fenced in
        case "json":
            return spec["value"]
        case "path":
            return text_of(spec) if not spec.get("list") else [text_of({**spec, "name": f"{spec['name']}{i}"}) for i in range(spec["list"])]
        case "pathlib":
            return pathlib.Path(text_of(spec))
        case "array":
            return array(spec, f"argument {name}", count)
        case "tensor":
            return torch.from_numpy(array(spec, f"argument {name}", count))
        case "value" if spec.get("clay") and guess is not None:
            return inferred_value.Clay(spec["value"], f"argument {name}", count)
        case "value":
            return file_specs_plain.value(spec["value"], f"argument {name}", count)
        case "settings":
            asked: dict[str, Spec] = spec["has"]
            known = {key: build(item, key, state, module, guess) for key, item in asked.items()}
            return OptionsAsSettings(known, asked, guess or (lambda _: {"is": "json", "value": None}))
        case "dtype":
            return getattr(__import__(spec["library"]), spec["name"])
        case _:
            return None


def construct(
    function: Callable[..., Any], arguments: dict[str, Spec], state: dict[str, Any], module: types.ModuleType, guess: Callable[[str], Spec] | None = None
) -> Any:
    """Call something of the user's with the arguments of a state."""
    positional, keywords = values(function, arguments, state, module, guess)
    return function(*positional, **keywords)


def values(
    function: Callable[..., Any], arguments: dict[str, Spec], state: dict[str, Any], module: types.ModuleType, guess: Callable[[str], Spec] | None = None
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a state, as a call takes them."""
    only = {item.name for item in parameters(function) if item.kind is item.POSITIONAL_ONLY}
    made = {name: build(spec, name, state, module, guess) for name, spec in arguments.items() if spec["is"] != "default"}
    return [value for name, value in made.items() if name in only], {name: value for name, value in made.items() if name not in only}


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The named parameters; none where they cannot be known."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [item for item in found if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)]
