"""What a name says of the value it stands for, as people write training code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

Spec = dict[str, Any]  # plain JSON: {"kind": "tensor", "shape": [8], "dtype": "float32"}

LOADER: Final = re.compile(r"(loader|dataloader|_dl|_iter|iterator|batches|_dls)s?$|^(dl|loader|data_iter|train_iter|val_iter|test_iter|batch_iterator)\d*$")
MODEL: Final = re.compile(
    r"(model|net|network|encoder|decoder|backbone|extractor|generator|discriminator|classifier|critic|teacher|student|inception|resnet|bert|unet|ema|predictor)"
    r"(_\w{1,3}|\d+)?$|^(G|D|g_ema|netG|netD|G_ema|module|policy)$"
)
CRITERION: Final = re.compile(r"(criterion|criterions|criteria|crit|loss_fn|loss_func|loss_function|lossfn|loss_fct|objective)\d*$|^(criterion|loss_fn)\w*$")
OPTIMIZER: Final = re.compile(
    r"(optim|optimizer|optimiser)(_?\w{1,4})?$|(^|_)(optimizer|optimiser|optim)_\w+$|^(sgd|adam|adamw|rmsprop|adagrad|lbfgs)(_[a-z]|\d)?$"
    r"|^opt_([a-z]|\d|gen|disc|enc|dec|net|model|actor|critic|policy|value|generator|discriminator|encoder|decoder|backbone|head)$"
    r"|^([a-z]|gen|disc|enc|dec|net|model|actor|critic|policy|value|generator|discriminator|encoder|decoder|backbone|head)_opt$"
)
CONFIG: Final = re.compile(
    r"^(args?|opts?|cfg|config|configs|conf|hparams?|params|flags|options?|FLAGS|settings|params_\w+|\w+_(args|cfg|config|opt|params|hparams))$"
)
STEPPED: Final = re.compile(r"sched|plateau|warm_?up|anneal|prof|env|scaler|bar|timer|progress|meter|tracker|logger|writer")  # by `.step()`, and no optimizer
SCALER: Final = re.compile(r"(grad_?)?scaler$|^loss_scaler$")
SINK: Final = re.compile(
    r"(writer|logger|log|logging|tb|tensorboard|wandb|pbar|bar|progress|callback|timer|console|visdom|vis|viz|summary|recorder|board|io)s?$"
)
DEVICE: Final = re.compile(r"(^|_)(device|dev)$")

COUNT: Final = re.compile(
    r"(^|_)(n|num|number|count|size|dim|dims|len|length|width|height|depth|layers?|channels?|classes|k|top_?k|steps?|iters?|epochs?|rank|seed|workers|features|heads|"
    r"points|freq|interval|every|world|vocab|bs|hidden|units|nc|nz|ndf|ngf|idx|index|window|horizon|bins|beams?|tokens|nodes|frames|period|patience)(_|$)"
    r"|^(n|k|b|c|h|w|t|d|i|j|nb|bsz|batchsize|topk|in_ch|out_ch|nclass|nclasses|iteration|iterations)$",
)
FRACTION: Final = re.compile(
    r"(^|_)(lr|rate|alpha|beta|gamma|lambda|lambd|weight|eps|epsilon|ratio|thresh|threshold|prob|p|momentum|dropout|decay|coef|coeff|scale|temp|tau|margin|"
    r"best|sigma|delta|noise|clip|wd|factor|frac|std|mean)(_|$)|^(lr|lam|mu|w)$",
)
TEXT: Final = re.compile(
    r"(^|_)(path|paths|dir|root|file|filename|fname|folder|location|ckpt|checkpoint|prefix|suffix|desc|url|header|title|exp_name)(_|$)|(dir|path|file)$"
)
FOLDER: Final = re.compile(r"(^|_)(dir|folder|root|location)$|dir$")
STEPS: Final = re.compile(r"^(n_|num_|max_|total_|train_)?(steps|iters|iterations|updates|batches)$")
OFF: Final = re.compile(
    r"(^|_)(debug|distributed|ddp|amp|fp16|half|cuda|gpu|multi_gpu|resume|pretrained|parallel|profile|dry_run|plot|visualize|vis|save|wandb|use_\w+|no_\w+)(_|$)"
)
ON: Final = re.compile(r"^(is_)?(train|training|is_train)$|^(no_cuda|no_wandb)$")
LABEL: Final = re.compile(
    r"(label|labels|target|targets|y|gt|truth|category|categories|cls|class|classes|id|ids|idx|idxs|index|indices|token?s?|caption|captions|user|users|item|items|"
    r"segment_label|length|lengths|len|lens|caplens|caption_lengths|answer|answers|question|questions|seg|input_ids|positions?)$",
)
FLOAT_LABEL: Final = re.compile(r"(mask|box|boxes|bbox|pose|coord|coords|points|flow|depth|score|scores|weight|weights)$")
BOXES: Final = re.compile(r"b?boxe?s$")  # of four numbers each
LOSS: Final = re.compile(r"(^|_)loss$")  # one number, where a model gives it
STRINGS: Final = re.compile(r"^(fnames?|file_?names?|paths?|names?|image_paths?|urls?|texts?|sentences?|scan_ids?|image_?names?|files?)$")
IMAGE: Final = re.compile(r"(img|imgs|image|images|pixel_values|picture|frames?|face|faces)$")

SMALL: Final[dict[str, int]] = {
    "epoch": 0, "rank": 0, "local_rank": 0, "gpu": 0, "start_epoch": 0, "epochs": 2, "num_epochs": 2, "n_epochs": 2, "max_epochs": 2, "max_epoch": 2,
    "workers": 0,
    "num_workers": 0, "n_workers": 0, "world_size": 1, "seed": 0, "n_gpu": 1, "num_gpus": 1, "ngpu": 1, "step": 0, "global_step": 0, "iteration": 0, "iter": 0,
    "print_freq": 10, "log_interval": 10, "log_freq": 10, "topk": 3, "top_k": 3, "k": 3, "accumulation_steps": 1, "gradient_accumulation_steps": 1,
    "iter_size": 1,
    "global_rank": 0, "niter": 2, "num_channels": 3, "in_channels": 3, "nc": 3,
}  # fmt: skip


def last(path: str) -> str:
    """The last name of an access path: "batch_size" of "args.batch_size", "image" of "loader[*]['image']"; empty where it ends in a call or a number."""
    found = re.search(r"(?:^|[.'\"])([A-Za-z_]\w*)['\"]?\]?$", path)
    return found[1] if found else ""


def variable(specs: Mapping[str, Spec], path: str) -> str:
    """The name that stands for a path: its last one, or the variable that a part was unpacked to."""
    if path.endswith("]") and not path.endswith("']"):
        parent, _, index = path[:-1].rpartition("[")
        names = specs.get(parent, {}).get("names", ())
        return str(names[int(index)]) if index.isdigit() and int(index) < len(names) else ""
    return last(path)


def of_name(name: str, role: str) -> Spec | None:
    """A spec for a parameter, a global name or an attribute; ``None`` where only its use can tell.

    ``role``: see :mod:`oomlint.verify.child.synthesis.stub_registry`.
    """
    if role != "config":
        for pattern, kind in ((LOADER, "loader"), (CRITERION, "criterion"), (OPTIMIZER, "optimizer"), (SCALER, "scaler"), (DEVICE, "device"), (SINK, "object")):
            if pattern.search(name):
                return {"kind": kind}
        if CONFIG.search(name):
            return {"kind": "object", "config": True}
        if MODEL.search(name):
            return {"kind": "model"}
    elif DEVICE.search(name):
        return {"kind": "device"}
    return scalar(name)


def scalar(name: str) -> Spec | None:
    """A number, a flag or a text, where the name says so."""
    low = name.lower()
    if low in SMALL:
        return {"kind": "const", "value": SMALL[low]}
    if ON.search(low):
        return {"kind": "const", "value": True}
    if low.startswith(("is_", "use_", "do_", "with_", "enable_", "should_")) or low in {"verbose", "evaluate", "eval"}:
        return {"kind": "const", "value": False}
    if COUNT.search(low):
        return {"kind": "const", "value": 4}
    if FRACTION.search(low):
        return {"kind": "const", "value": 0.5}
    if TEXT.search(low):
        return {"kind": "const", "value": low}
    if OFF.search(low):
        return {"kind": "const", "value": False}
    return None


def of_leaf(name: str) -> Spec:
    """A tensor of a batch, without its batch dimension."""
    low = name.lower()
    if BOXES.search(low):
        return {"kind": "tensor", "shape": [8, 4], "dtype": "float32"}
    if STRINGS.search(low):
        return {"kind": "strings"}
    if IMAGE.search(low):
        return {"kind": "tensor", "shape": [3, 16, 16], "dtype": "float32"}
    if LABEL.search(low) and not FLOAT_LABEL.search(low):
        return {"kind": "tensor", "shape": [], "dtype": "int64"}
    return {"kind": "tensor", "shape": [8], "dtype": "float32"}


def number(name: str) -> int | float:
    """A value for a name that turned out to be a number."""
    spec = scalar(name)
    value = spec["value"] if spec else 2
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 2
