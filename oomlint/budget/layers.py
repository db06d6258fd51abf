"""How many numbers a layer of ``torch.nn`` holds, by the arguments of its constructor. A test builds each with torch and counts."""

from __future__ import annotations

import re
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Given = Mapping[str, Any]

# The names of the arguments by their place, and what they are where they are left out.
_CONV: Final = "in_channels out_channels kernel_size stride padding dilation groups bias".split()
_TRANSPOSED: Final = "in_channels out_channels kernel_size stride padding output_padding groups bias".split()
_RECURRENT: Final = "input_size hidden_size num_layers bias batch_first dropout bidirectional proj_size".split()
_ENCODER: Final = "d_model nhead dim_feedforward dropout activation layer_norm_eps batch_first norm_first bias".split()
_ATTENTION: Final = "embed_dim num_heads dropout bias add_bias_kv add_zero_attn kdim vdim".split()
_NORM: Final = "num_features eps momentum affine track_running_stats".split()
_BUFFERS: Final = frozenset({"BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"})


def _linear(given: Given) -> int:
    return int(given["in_features"] * given["out_features"] + given.get("bias", True) * given["out_features"])


def _conv(given: Given, axes: int, *, transposed: bool = False) -> int:
    kernel = given["kernel_size"]
    cells = prod(kernel) if isinstance(kernel, tuple | list) else kernel**axes
    inner, outer, groups = given["in_channels"], given["out_channels"], given.get("groups", 1)
    weights = inner * (outer // groups) if transposed else outer * (inner // groups)
    return int(weights * cells + given.get("bias", True) * outer)


def _norm(given: Given, *, affine: bool = True) -> int:
    return int(2 * given["num_features"] * given.get("affine", affine))


def _layer_norm(given: Given) -> int:
    shape = given["normalized_shape"]
    size = prod(shape) if isinstance(shape, tuple | list) else shape
    return int(size * given.get("elementwise_affine", True) * (1 + given.get("bias", True)))


def _recurrent(given: Given, gates: int) -> int:
    hidden, both, bias = given["hidden_size"], 1 + bool(given.get("bidirectional", False)), given.get("bias", True)
    out = given.get("proj_size", 0) or hidden
    total = 0
    for layer in range(given.get("num_layers", 1)):
        inner = given["input_size"] if layer == 0 else out * both
        total += both * (gates * hidden * (inner + out + 2 * bias) + (hidden * out if given.get("proj_size", 0) else 0))
    return int(total)


def _attention(given: Given) -> int:
    size, bias = given["embed_dim"], given.get("bias", True)
    keys, values = given.get("kdim") or size, given.get("vdim") or size
    return int(size * (size + keys + values) + size * size + bias * 4 * size + 2 * size * bool(given.get("add_bias_kv", False)))


def _block(given: Given, *, decoder: bool) -> int:
    size, inner, bias = given["d_model"], given.get("dim_feedforward", 2048), given.get("bias", True)
    attention = 4 * size * size + bias * 4 * size
    norms = size * (1 + bias)
    feed = 2 * size * inner + bias * (size + inner)
    return int(attention * (1 + decoder) + norms * (2 + decoder) + feed)


LAYERS: Final[dict[str, tuple[Sequence[str], Callable[[Given], int]]]] = {
    "Linear": ("in_features out_features bias".split(), _linear),
    "Bilinear": (
        "in1_features in2_features out_features bias".split(),
        lambda given: given["in1_features"] * given["in2_features"] * given["out_features"] + given.get("bias", True) * given["out_features"],
    ),
    **{f"Conv{axes}d": (_CONV, partial(_conv, axes=axes)) for axes in (1, 2, 3)},
    **{f"ConvTranspose{axes}d": (_TRANSPOSED, partial(_conv, axes=axes, transposed=True)) for axes in (1, 2, 3)},
    "Embedding": ("num_embeddings embedding_dim".split(), lambda given: given["num_embeddings"] * given["embedding_dim"]),
    "EmbeddingBag": ("num_embeddings embedding_dim".split(), lambda given: given["num_embeddings"] * given["embedding_dim"]),
    **dict.fromkeys(sorted(_BUFFERS), (_NORM, _norm)),
    **{f"InstanceNorm{n}d": (_NORM, lambda given: _norm(given, affine=False)) for n in (1, 2, 3)},
    "GroupNorm": ("num_groups num_channels eps affine".split(), lambda given: 2 * given["num_channels"] * given.get("affine", True)),
    "LayerNorm": ("normalized_shape eps elementwise_affine bias".split(), _layer_norm),
    "RMSNorm": ("normalized_shape eps elementwise_affine".split(), lambda given: _layer_norm({**given, "bias": False})),
    "RNN": ("input_size hidden_size num_layers nonlinearity bias batch_first dropout bidirectional".split(), lambda given: _recurrent(given, 1)),
    "GRU": (_RECURRENT[:-1], lambda given: _recurrent(given, 3)),
    "LSTM": (_RECURRENT, lambda given: _recurrent(given, 4)),
    "GRUCell": ("input_size hidden_size bias".split(), lambda given: _recurrent(given, 3)),
    "LSTMCell": ("input_size hidden_size bias".split(), lambda given: _recurrent(given, 4)),
    "RNNCell": ("input_size hidden_size bias".split(), lambda given: _recurrent(given, 1)),
    "MultiheadAttention": (_ATTENTION, _attention),
    "TransformerEncoderLayer": (_ENCODER, lambda given: _block(given, decoder=False)),
    "TransformerDecoderLayer": (_ENCODER, lambda given: _block(given, decoder=True)),
    "PReLU": (["num_parameters"], lambda given: given.get("num_parameters", 1)),
}
# What layers have where nothing is said.
_LEFT_OUT: Final[dict[str, dict[str, Any]]] = {
    **{f"Conv{axes}d": {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "padding_mode": "zeros"} for axes in (1, 2, 3)},
    **{f"ConvTranspose{axes}d": {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "output_padding": 0} for axes in (1, 2, 3)},
    **{name: {"num_layers": 1, "batch_first": False, "dropout": 0.0, "bidirectional": False, "proj_size": 0} for name in ("RNN", "GRU", "LSTM")},
    **{name: {"eps": 1e-5, "momentum": 0.1, "affine": "Instance" not in name} for name in LAYERS if name.endswith(("Norm1d", "Norm2d", "Norm3d"))},
    "GroupNorm": {"eps": 1e-5, "affine": True},
    "LayerNorm": {"eps": 1e-5, "elementwise_affine": True},
    "PReLU": {"num_parameters": 1},
    "MultiheadAttention": {"dropout": 0.0, "batch_first": False},
}
# Layers without numbers: activations, pools, paddings, losses. A test builds them.
WITHOUT: Final = re.compile(
    r"(?:Adaptive)?(?:Max|Avg|LP)Pool\dd|MaxUnpool\dd|FractionalMaxPool\dd|\w+Pad\dd|(?:Feature)?(?:Alpha)?Dropout(?:\dd)?|"
    r"(?:L1|MSE|CrossEntropy|NLL|PoissonNLL|GaussianNLL|KLDiv|BCE|BCEWithLogits|SmoothL1|Huber|CTC|MarginRanking|HingeEmbedding|MultiLabelMargin|SoftMargin|"
    r"MultiLabelSoftMargin|CosineEmbedding|MultiMargin|TripletMargin|TripletMarginWithDistance)(?:Loss)?|"
    r"ReLU6?|LeakyReLU|RReLU|ELU|SELU|CELU|GELU|GLU|SiLU|Mish|Sigmoid|LogSigmoid|Tanh|Tanhshrink|Softmax(?:2d)?|LogSoftmax|Softmin|Softplus|Softsign|Softshrink|"
    r"Hardtanh|Hardswish|Hardsigmoid|Hardshrink|Threshold|Identity|Flatten|Unflatten|Upsample|Upsampling(?:Nearest|Bilinear)2d|Pixel(?:Uns|S)huffle|"
    r"ChannelShuffle|Fold|Unfold|LocalResponseNorm|CosineSimilarity|PairwiseDistance"
)


def numbers_of(name: str, plain: Sequence[Any], named: Given) -> int | None:
    """Numbers that a layer trains; None where they depend on what is not known. ``name`` is that in ``torch.nn``."""
    known = LAYERS.get(name)
    if known is None:
        return 0 if WITHOUT.fullmatch(name) else None
    words, count = known
    given = {**dict(zip(words, plain, strict=False)), **named}
    try:
        return int(count(given))
    except (KeyError, TypeError, ValueError):
        return None


def options_of(name: str, plain: Sequence[Any], named: Given) -> dict[str, Any]:
    """What a layer is made with, by name."""
    words, _ = LAYERS.get(name, ((), None))
    return {**dict(zip(words, plain, strict=False)), **named}


def attributes_of(name: str, options: Given) -> dict[str, Any]:
    """What a layer says of itself: its options, with those that are left out, and as torch keeps them."""
    found = {**_LEFT_OUT.get(name, {}), **options}
    axes = name[-2:-1] if "Conv" in name else ""
    if axes:
        many = {word: found[word] for word in ("kernel_size", "stride", "padding", "dilation", "output_padding") if word in found}
        found |= {word: (value,) * int(axes) if isinstance(value, int) else tuple(value) if isinstance(value, list) else value for word, value in many.items()}
    if name in {"RNN", "GRU", "LSTM"}:
        found["mode"] = name if name != "RNN" else f"RNN_{str(found.get('nonlinearity', 'tanh')).upper()}"
    return {word: value for word, value in found.items() if word not in {"bias", "device", "dtype"}}


def kept_beside(name: str, plain: Sequence[Any], named: Given) -> int:
    """Bytes that a layer keeps at least and does not train: the running mean and variance of a batch norm, and its count."""
    given = options_of(name, plain, named)
    features, tracked = given.get("num_features"), given.get("track_running_stats", True)
    known = name in _BUFFERS and isinstance(tracked, bool | int)  # an option that nobody knows has no truth value
    return 2 * 4 * features + 8 if known and isinstance(features, int) and tracked else 0


def shapes_of(name: str, given: Given) -> dict[str, tuple[int, ...] | None]:
    """The shapes of the weight and the bias of a layer that has no other parameters, None for one that it could have. Empty for other layers."""
    features, shape = given.get("num_features", given.get("num_channels")), given.get("normalized_shape")
    weight: tuple[int, ...]
    if name == "Linear":
        weight, bias = (given["out_features"], given["in_features"]), given["out_features"]
    elif name in {"Embedding", "EmbeddingBag"}:
        return {"weight": (given["num_embeddings"], given["embedding_dim"])}
    elif name == "PReLU":
        return {"weight": (given.get("num_parameters", 1),)}
    elif "Conv" in name:
        axes, kernel, inner, bias = int(name[-2]), given["kernel_size"], given["in_channels"], given["out_channels"]
        cells = (kernel,) * axes if isinstance(kernel, int) else tuple(kernel)
        groups = given.get("groups", 1)
        weight = (inner, bias // groups, *cells) if "Transpose" in name else (bias, inner // groups, *cells)
    elif features is not None:
        affine = given.get("affine", "Instance" not in name)
        return {"weight": (features,) if affine else None, "bias": (features,) if affine else None}
    elif shape is not None:
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        affine = given.get("elementwise_affine", True)
        return {"weight": sizes if affine else None, **({} if name == "RMSNorm" else {"bias": sizes if affine and given.get("bias", True) else None})}
    else:
        return {}
    return {"weight": weight, "bias": (bias,) if given.get("bias", True) else None}


# Numbers that an optimizer keeps for each number that it trains, once it has made a step. A test runs each.
STATES: Final = {
    "SGD": 0,
    "Adam": 2,
    "AdamW": 2,
    "NAdam": 2,
    "RAdam": 2,
    "Adamax": 2,
    "Adadelta": 2,
    "Adagrad": 1,
    "ASGD": 1,
    "RMSprop": 1,
    "Rprop": 2,
    "SparseAdam": 2,
}
MORE_STATES: Final = {"momentum": 1, "centered": 1, "amsgrad": 1}  # options that keep one more
