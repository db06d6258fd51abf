# ruff: noqa: D102 -- the methods are those of what it stands in for, or of the import system
"""Arguments for the user's functions: specifications as plain JSON, guesses from names and annotations, and the values that they describe."""

from __future__ import annotations

import inspect
import os
import re
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.synthesis import file_specs

if TYPE_CHECKING:
    import types
    from collections.abc import Callable

    from oomlint.verify.child.synthesis.file_specs_plain import Hints

Spec = dict[str, Any]
LEFT: Final = {"is": "default"}  # the parameter keeps its own default


class Settings(dict[str, Any]):
    """What a configuration is for most code: attributes and keys at once. What is not there yet is guessed, and noted in ``asked``."""

    def __init__(self, made: dict[str, Any], asked: dict[str, Spec], guess: Callable[[str], Spec]) -> None:
        super().__init__(made)
        self.__dict__["_asked"], self.__dict__["_guess"] = asked, guess

    def __missing__(self, name: str) -> Any:
        if not isinstance(name, str):
            raise KeyError(name)
        spec = self._asked.setdefault(name, self._guess(name))
        self[name] = build(spec, name, {"n": file_specs.SAMPLES}, None, self._guess)
        return self[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: object) -> None:
        self[name] = value

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, default)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_plain_settings, (dict(self),))


def _plain_settings(made: dict[str, Any]) -> Settings:
    return Settings(made, {}, lambda _: {"is": "json", "value": None})


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
            import torch  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

            made = {name: torch.tensor([value]) for name, value in made.items()}
        return Settings(made, {}, lambda _: {"is": "json", "value": None})

    encode_plus = batch_encode_plus = __call__


class Same:
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
    text = f"{file_specs.FOLDER}/{spec['name']}{spec.get('end', '')}"
    return os.path.abspath(text) if spec.get("whole") else text


def build(spec: Spec, name: str, state: dict[str, Any], module: types.ModuleType | None, guess: Callable[[str], Spec] | None = None) -> Any:
    """The value that a specification describes."""
    import numpy as np  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

    count: int = state.get("n", file_specs.SAMPLES)
    match spec["is"]:
        case "expression":
            return eval(spec["text"], {} if module is None else vars(module))  # noqa: S307 -- the user's own words, in a child that is fenced in
        case "json":
            return spec["value"]
        case "path":
            return text_of(spec) if not spec.get("list") else [text_of({**spec, "name": f"{spec['name']}{i}"}) for i in range(spec["list"])]
        case "pathlib":
            import pathlib  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

            return pathlib.Path(text_of(spec))
        case "array":
            return file_specs.array(spec, f"argument {name}", count)
        case "tensor":
            import torch  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

            return torch.from_numpy(file_specs.array(spec, f"argument {name}", count))
        case "list":
            return [build(spec["of"], f"{name}{i}", state, module, guess) for i in range(count if spec["n"] == "n" else int(spec["n"]))]
        case "range":
            return list(range(count))
        case "texts":
            return [f"id{i}" for i in range(count)]
        case "value":
            from oomlint.verify.child.synthesis import file_specs_plain, inferred_value  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

            if spec.get("clay") and guess is not None:
                return inferred_value.Clay(spec["value"], f"argument {name}", count)
            return file_specs_plain.value(spec["value"], f"argument {name}", count)
        case "settings":
            asked: dict[str, Spec] = spec["has"]
            return Settings(
                {key: build(item, key, state, module, guess) for key, item in asked.items()}, asked, guess or (lambda _: {"is": "json", "value": None})
            )
        case "dtype":
            return getattr(np if spec["library"] == "numpy" else __import__("torch"), spec["name"])
        case "device":
            return __import__("torch").device("cpu")
        case "same":
            return Same()
        case "model":
            import torch  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

            return torch.nn.Linear(8, count, bias=False)  # its weight has the shape that arrays in files have at first: it may be filled from one
        case "totensor":
            from oomlint.verify.child.loading import images  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

            return images.ToTensor()
        case "tokenizer":
            return Tokenizer()
        case "samples":
            import torch  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

            return torch.utils.data.TensorDataset(torch.arange(count * 4, dtype=torch.float32).reshape(count, 4), torch.arange(count) % 4)
        case "instance" if module is not None:
            return construct(getattr(module, spec["cls"]), spec["arguments"], state, module, guess)
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


def guesses(name: str, annotation: str, hints: Hints, *, inner: bool = False) -> list[Spec]:
    """Values for a parameter, the likeliest first. ``inner``: for an entry of a configuration."""
    low = name.lower().strip("_")
    path, plain = path_spec(name), _json
    h5, npy = path_spec(name, ".h5"), path_spec(name, ".npy")
    # By the annotation
    if re.fullmatch(r"(Optional\[)?bool\]?( \| None)?", annotation):
        return [plain(value=True), plain(value=False)]
    if re.fullmatch(r"(Optional\[)?int\]?( \| None)?", annotation):
        return [plain(4), plain(1), plain(2), plain(8), plain(32), plain(0)]
    if re.fullmatch(r"(Optional\[)?float\]?( \| None)?", annotation):
        return [plain(0.5), plain(1.0), plain(0.0)]
    if "ndarray" in annotation or "ArrayLike" in annotation:
        return _arrays("array")
    if annotation in ("torch.Tensor", "Tensor"):
        return _arrays("tensor")
    if "Dataset" in annotation:
        return [{"is": "samples"}]
    if re.search(r"okenizer", annotation + low):
        return [{"is": "tokenizer"}]
    # By the name
    if "Callable" in annotation or re.search(r"transform|augment|preproc|collate|_fn$|func", low):
        return [plain(None), {"is": "same"}, {"is": "totensor"}, plain(value=False)]
    if "Namespace" in annotation or re.fullmatch(
        r"args?|opts?|options|cfg|config\w*|conf|params|param|hparams|settings|flags|\w+_(cfg|config|args|opt|params)|hp", low
    ):
        return [{"is": "settings", "has": {}}, {"is": "json", "value": {}}, path_spec(name, ".json"), plain("r")]
    listy = re.match(r"(typing\.)?([Ll]ist|Sequence|Iterable|[Tt]uple|Collection)\b", annotation)
    if re.search(r"path|file|fname|h5|hdf5|_npy|csv|json|pkl|_fp$|lmdb|ann$|annot", low) and not re.search(r"_?(ext|type|format|suffix|extension)$", low):
        likely = _ends(low)
        ends = [path_spec(name, end) for end in dict.fromkeys([*likely[:2], *hints.suffixes[:4], *likely])]
        many = [{**item, "list": 2} for item in ends]
        made = [*many, *ends] if listy or re.search(r"(paths|files|fnames|list)$", low) else [*ends, *many[:2]]
        return [{"is": "pathlib", "name": name, "end": ends[0]["end"]}, *made] if annotation.endswith("Path") else made
    if re.search(r"root|dir|folder|location", low):
        made = [path, path_spec(name, "/")]
        return [{"is": "pathlib", "name": name}, *made] if annotation.endswith("Path") else made
    if annotation.endswith("Path"):
        return [{"is": "pathlib", "name": name}, path]
    if low in ("train", "is_train", "training", "istrain") or re.match(
        r"(is|use|with|do|return|has|add|shuffle|normali[sz]e|random|debug|verbose|load)(_|$)|^(flip|aug|cache|download)|drop_last|pin_memory|shuffle|persistent|enable|_flag$",
        low,
    ):
        return [plain(value=True), plain(value=False), path] if low == "train" else [plain(value=True), plain(value=False), plain("train")]
    if re.fullmatch(r"split\w*|mode|phase|partition|subset|\w*_set|set|stage|\w+_split|data_type|flag|image_set|set_name", low):
        words = [word for word in hints.words if re.fullmatch(r"train\w*|val\w*|test\w*|dev|TRAIN|VAL|TEST", word)]
        return [plain(word) for word in dict.fromkeys(["train", *words, "val", "test", "valid"])] + [path, plain(0)]
    if low in ("dtype", "data_type"):
        return [{"is": "dtype", "library": "torch", "name": "float32"}, {"is": "dtype", "library": "numpy", "name": "float32"}]
    if low == "device":
        return [{"is": "device"}, plain("cpu")]
    if low in ("dataset", "ds", "base_dataset", "subset", "data_source"):
        return [{"is": "samples"}, {"is": "value", "value": {"t": "?"}, "clay": True}, *_arrays("array")[:2], path, h5]
    if low in ("name", "type", "dataset_name", "category", "task", "method", "dataname"):
        return [plain(low), *(plain(word) for word in hints.words[:8])]
    if re.search(r"(^|_)(mean|std|eps|p|prob)(_|$)|rate|ratio|frac|alpha|scale|sigma|thresh", low):
        return [plain(0.5), plain(1), plain([0.5, 0.5, 0.5])]
    if re.search(r"(^|_)(index|idx|id)$", low):
        return [plain(1), plain(0), {"is": "range"}, plain("1"), {"is": "value", "value": {"t": "?"}, "clay": True}]
    if re.search(r"(^|_)keys?$|names$|uu?ids$", low):
        return [{"is": "texts"}, {"is": "value", "value": {"t": "?"}, "clay": True}, {"is": "range"}, path, plain("a")]
    if re.search(r"indices|indexes|idxs|index|ids|_list$|lists$", low):
        return [{"is": "range"}, {"is": "texts"}, {"is": "array", "shape": ["n"], "dtype": "i8", "high": 4}, path, npy]
    if re.search(r"labels?$|targets?$|^y(_\w+)?$|classes", low):
        return [
            {"is": "array", "shape": ["n"], "dtype": "i8", "high": 4},
            {"is": "array", "shape": ["n"], "dtype": "f4"},
            {"is": "range"},
            *_arrays("tensor")[:2],
            path,
        ]
    if low in ("batch_size", "bs", "batchsize", "batch"):
        return [plain(4), plain(2), plain(1), plain(32)]
    if re.search(r"size|shape|resolution|height|width|(^|_)crop", low):
        return [plain(32), plain([32, 32]), plain(4), plain(64)]
    if re.search(
        r"num|n_|count|len|window|horizon|step|seed|dim|max|min|batch|fold|rank|world|k$|stride|lag|epoch|level|channels|points|freq|sr$|hop|fps|seq", low
    ):
        return [plain(4), plain(1), plain(2), plain(8), plain(0), plain(32), plain(64), plain("0")]
    if (
        re.search(
            r"data|^x(_\w+)?$|arr|feat|inputs?$|samples|images|signals|examples|records|items|values|pairs|sentences|texts|corpus|entries|series|sequences?$|audio|waves?$|points$|rows",
            low,
        )
        or listy
    ):
        texts = {"is": "texts"}
        value: Spec = {"is": "value", "value": {"t": "list", "n": "n", "of": {"t": "dict", "keys": {}}}}
        value["value"]["of"]["keys"] = _keyed(hints)
        start = [texts, value] if re.search(r"sentence|text|corpus|str", low + annotation) else [*_arrays("array")[:2]]
        if "str" not in annotation and "Dict" in annotation:
            start = [value]
        return [*start, {"is": "value", "value": {"t": "?"}, "clay": True}, path, h5, value, texts, *_arrays("tensor")[:2], npy, {"is": "range"}]
    if "Dict" in annotation or annotation.startswith("dict"):
        return [
            {"is": "value", "value": {"t": "?"}, "clay": True},
            {"is": "settings", "has": {}},
            {"is": "value", "value": {"t": "map", "n": "n", "of": {"t": "int"}}},
        ]
    if re.search(r"vocab|dictionary|word2id|word2idx|mapping|lookup|id_map|2id|to_id", low):
        return [
            {"is": "settings", "has": {}},
            {"is": "value", "value": {"t": "map", "n": 16, "of": {"t": "int"}}},
            {"is": "tokenizer"},
            path_spec(name, ".json"),
        ]
    soft: Spec = {"is": "value", "value": {"t": "?"}, "clay": True}
    if inner:
        return [soft, path, plain(4)]
    return [path, soft, plain("train") if annotation == "str" else plain(4), h5, *_arrays("array")[:2], npy, {"is": "range"}, plain(None)]


def _keyed(hints: Hints) -> Spec:
    from oomlint.verify.child.synthesis import file_specs_plain  # noqa: PLC0415 -- only where it is used: it may be absent, or imports this module

    return {key: file_specs_plain.leaf(key) for key in hints.keys[:16]}


def _json(value: Any) -> Spec:
    return {"is": "json", "value": value}


def _arrays(kind: str) -> list[Spec]:
    return [
        {"is": kind, "shape": ["n", 8], "dtype": "f4"},
        {"is": kind, "shape": ["n"], "dtype": "f4"},
        {"is": kind, "shape": ["n", 8, 8], "dtype": "f4"},
        {"is": kind, "shape": ["n", 8], "dtype": "i8", "high": 4},
        {"is": kind, "shape": ["n", 3, 8, 8], "dtype": "f4"},
    ]


def _ends(low: str) -> list[str]:
    table = (
        ("h5", ".h5"),
        ("hdf", ".h5"),
        ("npy", ".npy"),
        ("npz", ".npz"),
        ("json", ".json"),
        ("csv", ".csv"),
        ("pkl", ".pkl"),
        ("pickle", ".pkl"),
        ("txt", ".txt"),
        ("ann", ".json"),
    )
    first = [end for word, end in table if word in low]
    rest = [".h5", ".npy", ".json", ".txt", ".csv", ".pkl", ".npz", ".pt"]
    return list(dict.fromkeys([*first, *(["", *rest] if low.endswith("path") and not first else rest), ""]))


def initial(function: Callable[..., Any], known: dict[str, list[Any]], hints: Hints, *, skip: int = 0) -> tuple[dict[str, Spec], dict[str, list[Spec]]]:
    """First arguments for a call, and what else each parameter may be."""
    first: dict[str, Spec] = {}
    others: dict[str, list[Spec]] = {}
    for item in parameters(function)[skip:]:
        annotation = "" if item.annotation is item.empty else item.annotation if isinstance(item.annotation, str) else inspect.formatannotation(item.annotation)
        options = guesses(item.name, annotation.strip("'\""), hints)
        had = [_json(value) for value in known.get(item.name, [])]
        defaulted = item.default is not item.empty
        if defaulted and isinstance(item.default, str) and os.path.isabs(item.default):
            defaulted = False  # a path of the author's machine
        options = [*had, *([LEFT] if defaulted else []), *options]
        first[item.name] = options[0]
        others[item.name] = [option for place, option in enumerate(options) if option not in options[:place]]
    return first, others
