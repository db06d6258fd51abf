"""What a parameter of the user may be given: guesses from its name and its annotation, the likeliest first."""

from __future__ import annotations

import copy
import inspect
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oomlint.verify.child.synthesis.argument_specs import LEFT, Spec, parameters, path_spec
from oomlint.verify.child.synthesis.file_specs_plain import leaf

if TYPE_CHECKING:
    from collections.abc import Callable

    from oomlint.verify.child.synthesis.file_specs_plain import Hints

SOFT: Final[Spec] = {"is": "value", "value": {"t": "?"}, "clay": True}  # becomes what it is used as
LISTY: Final = re.compile(r"(typing\.)?([Ll]ist|Sequence|Iterable|[Tt]uple|Collection)\b")
DATA: Final = re.compile(
    r"data|^x(_\w+)?$|arr|feat|inputs?$|samples|images|signals|examples|records|items|values|pairs|sentences|texts|corpus|entries|series|"
    r"sequences?$|audio|waves?$|points$|rows"
)
FLAGS: Final = (
    r"train|is_train|training|istrain|"
    r"((is|use|with|do|return|has|add|shuffle|normali[sz]e|random|debug|verbose|load)(_|$)|^(flip|aug|cache|download)|"
    r"drop_last|pin_memory|shuffle|persistent|enable|_flag$).*"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A parameter, or an entry of a configuration, that needs a value."""

    name: str
    low: str  # the name in small letters
    annotation: str
    hints: Hints

    @property
    def listy(self) -> bool:
        """Whether the annotation says that it is a sequence."""
        return LISTY.match(self.annotation) is not None


def guesses(name: str, annotation: str, hints: Hints, *, inner: bool = False) -> list[Spec]:
    """Values for a parameter, the likeliest first. ``inner``: for an entry of a configuration."""
    asked = Asked(name, name.lower().strip("_"), annotation, hints)
    for fits, values in GUESSES:
        if fits(asked):
            return copy.deepcopy(values(asked))  # what a configuration is asked for is noted in its specification
    if inner:
        return [dict(SOFT), path_spec(name), _json(4)]
    plain = _json("train") if annotation == "str" else _json(4)
    return [path_spec(name), dict(SOFT), plain, path_spec(name, ".h5"), *_arrays("array")[:2], path_spec(name, ".npy"), {"is": "range"}, _json(None)]


def _annotated(pattern: str) -> Callable[[Asked], bool]:
    """Fits where all of the annotation matches."""
    whole = re.compile(pattern)
    return lambda asked: whole.fullmatch(asked.annotation) is not None


def _called(pattern: str) -> Callable[[Asked], bool]:
    """Fits where all of the name matches."""
    whole = re.compile(pattern)
    return lambda asked: whole.fullmatch(asked.low) is not None


def _named(pattern: str, *annotations: str, but: str = "$^") -> Callable[[Asked], bool]:
    """Fits where a part of the name matches, or the annotation holds one of the words."""
    part, other = re.compile(pattern), re.compile(but)
    return lambda asked: any(word in asked.annotation for word in annotations) or (part.search(asked.low) is not None and other.search(asked.low) is None)


def _always(*values: Spec) -> Callable[[Asked], list[Spec]]:
    return lambda _: list(values)


def _plain(*values: Any) -> Callable[[Asked], list[Spec]]:
    return lambda _: [_json(value) for value in values]


def _settings(asked: Asked) -> list[Spec]:
    return [{"is": "settings", "has": {}}, {"is": "json", "value": {}}, path_spec(asked.name, ".json"), _json("r")]


def _files(asked: Asked) -> list[Spec]:
    likely = _ends(asked.low)
    ends = [path_spec(asked.name, end) for end in dict.fromkeys([*likely[:2], *asked.hints.suffixes[:4], *likely])]
    many = [{**item, "list": 2} for item in ends]
    made = [*many, *ends] if asked.listy or re.search(r"(paths|files|fnames|list)$", asked.low) else [*ends, *many[:2]]
    return [{"is": "pathlib", "name": asked.name, "end": ends[0]["end"]}, *made] if asked.annotation.endswith("Path") else made


def _folder(asked: Asked) -> list[Spec]:
    made = [path_spec(asked.name), path_spec(asked.name, "/")]
    return [{"is": "pathlib", "name": asked.name}, *made] if asked.annotation.endswith("Path") else made


def _flag(asked: Asked) -> list[Spec]:
    return [_json(value=True), _json(value=False), path_spec(asked.name) if asked.low == "train" else _json("train")]


def _split(asked: Asked) -> list[Spec]:
    words = [word for word in asked.hints.words if re.fullmatch(r"train\w*|val\w*|test\w*|dev|TRAIN|VAL|TEST", word)]
    return [_json(word) for word in dict.fromkeys(["train", *words, "val", "test", "valid"])] + [path_spec(asked.name), _json(0)]


def _labels(asked: Asked) -> list[Spec]:
    classes = {"is": "array", "shape": ["n"], "dtype": "i8", "high": 4}
    return [classes, {"is": "array", "shape": ["n"], "dtype": "f4"}, {"is": "range"}, *_arrays("tensor")[:2], path_spec(asked.name)]


def _data(asked: Asked) -> list[Spec]:
    texts: Spec = {"is": "texts"}
    value: Spec = {"is": "value", "value": {"t": "list", "n": "n", "of": {"t": "dict", "keys": _keyed(asked.hints)}}}
    start = [texts, value] if re.search(r"sentence|text|corpus|str", asked.low + asked.annotation) else _arrays("array")[:2]
    if "str" not in asked.annotation and "Dict" in asked.annotation:
        start = [value]
    path, h5, npy = (path_spec(asked.name, end) for end in ("", ".h5", ".npy"))
    return [*start, SOFT, path, h5, value, texts, *_arrays("tensor")[:2], npy, {"is": "range"}]


def _vocabulary(asked: Asked) -> list[Spec]:
    numbers: Spec = {"is": "value", "value": {"t": "map", "n": 16, "of": {"t": "int"}}}
    return [{"is": "settings", "has": {}}, numbers, {"is": "tokenizer"}, path_spec(asked.name, ".json")]


def _keyed(hints: Hints) -> Spec:
    return {key: leaf(key) for key in hints.keys[:16]}


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


# The first row that fits decides: annotations, then names, from the narrow to the wide.
GUESSES: Final[tuple[tuple[Callable[[Asked], bool], Callable[[Asked], list[Spec]]], ...]] = (
    (_annotated(r"(Optional\[)?bool\]?( \| None)?"), _always(_json(value=True), _json(value=False))),
    (_annotated(r"(Optional\[)?int\]?( \| None)?"), _plain(4, 1, 2, 8, 32, 0)),
    (_annotated(r"(Optional\[)?float\]?( \| None)?"), _plain(0.5, 1.0, 0.0)),
    (_annotated(r".*(ndarray|ArrayLike).*"), lambda _: _arrays("array")),
    (_annotated(r"(torch\.)?Tensor"), lambda _: _arrays("tensor")),
    (_annotated(r".*Dataset.*"), _always({"is": "samples"})),
    (_named(r"okenizer", "okenizer"), _always({"is": "tokenizer"})),
    (
        _named(r"transform|augment|preproc|collate|_fn$|func", "Callable"),
        _always(_json(None), {"is": "same"}, {"is": "totensor"}, _json(value=False)),
    ),
    (
        _named(r"^(args?|opts?|options|cfg|config\w*|conf|params|param|hparams|settings|flags|\w+_(cfg|config|args|opt|params)|hp)$", "Namespace"),
        _settings,
    ),
    (_named(r"path|file|fname|h5|hdf5|_npy|csv|json|pkl|_fp$|lmdb|ann$|annot", but=r"_?(ext|type|format|suffix|extension)$"), _files),
    (_named(r"root|dir|folder|location"), _folder),
    (_annotated(r".*Path"), lambda asked: [{"is": "pathlib", "name": asked.name}, path_spec(asked.name)]),
    (_called(FLAGS), _flag),
    (_called(r"split\w*|mode|phase|partition|subset|\w*_set|set|stage|\w+_split|data_type|flag|image_set|set_name"), _split),
    (
        _called(r"dtype|data_type"),
        _always({"is": "dtype", "library": "torch", "name": "float32"}, {"is": "dtype", "library": "numpy", "name": "float32"}),
    ),
    (_called(r"device"), _always({"is": "device"}, _json("cpu"))),
    (
        _called(r"dataset|ds|base_dataset|subset|data_source"),
        lambda asked: [{"is": "samples"}, SOFT, *_arrays("array")[:2], path_spec(asked.name), path_spec(asked.name, ".h5")],
    ),
    (
        _called(r"name|type|dataset_name|category|task|method|dataname"),
        lambda asked: [_json(asked.low), *(_json(word) for word in asked.hints.words[:8])],
    ),
    (_named(r"(^|_)(mean|std|eps|p|prob)(_|$)|rate|ratio|frac|alpha|scale|sigma|thresh"), _plain(0.5, 1, [0.5, 0.5, 0.5])),
    (_named(r"(^|_)(index|idx|id)$"), _always(_json(1), _json(0), {"is": "range"}, _json("1"), SOFT)),
    (
        _named(r"(^|_)keys?$|names$|uu?ids$"),
        lambda asked: [{"is": "texts"}, SOFT, {"is": "range"}, path_spec(asked.name), _json("a")],
    ),
    (
        _named(r"indices|indexes|idxs|index|ids|_list$|lists$"),
        lambda asked: [
            {"is": "range"}, {"is": "texts"}, {"is": "array", "shape": ["n"], "dtype": "i8", "high": 4}, path_spec(asked.name), path_spec(asked.name, ".npy"),
        ],
    ),
    (_named(r"labels?$|targets?$|^y(_\w+)?$|classes"), _labels),
    (_called(r"batch_size|bs|batchsize|batch"), _plain(4, 2, 1, 32)),
    (_named(r"size|shape|resolution|height|width|(^|_)crop"), _plain(32, [32, 32], 4, 64)),
    (
        _named(r"num|n_|count|len|window|horizon|step|seed|dim|max|min|batch|fold|rank|world|k$|stride|lag|epoch|level|channels|points|freq|sr$|hop|fps|seq"),
        _plain(4, 1, 2, 8, 0, 32, 64, "0"),
    ),
    (
        lambda asked: asked.listy or DATA.search(asked.low) is not None,
        _data,
    ),
    (
        _annotated(r".*Dict.*|dict.*"),
        _always(SOFT, {"is": "settings", "has": {}}, {"is": "value", "value": {"t": "map", "n": "n", "of": {"t": "int"}}}),
    ),
    (_named(r"vocab|dictionary|word2id|word2idx|mapping|lookup|id_map|2id|to_id"), _vocabulary),
)  # fmt: skip


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
