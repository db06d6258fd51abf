"""What the name of an attribute says of its content, by convention."""

from __future__ import annotations

import re
from typing import Final

from oomlint.patterns import pattern

# One small value a sample, or a summary.
_SMALL_NAME = pattern(
    r"(^|_)(labels?|targets?|y|class|classes|ids?|index|indices|idx(?:e?s)?|inds?|split|splits|lengths?|lens?|offsets?|mean|std|attrs|weights?|stats?|sizes?|"
    r"shapes?|anchors?|colors?|palette|categories|cats|ix|perm|permutation|order|fold|folds|columns|cumulative\w*|cumsum|channels|bands|metrics?|losses|"
    r"(class|label|category|target)_?names?)$|(2|_to_)(idx|id|ind|index|ix|label|name|word|cls|class|int|str|shard|split|path|file)s?$",
)
# What is no array: settings, and what is done with samples or looked up for them.
_AID_NAME = pattern(
    r"(^|_)(vocab|vocabulary|tokenizer|dictionary|config|cfg|args|opt|opts|options|params|hparams|mapping|map|lookup|sampler|metadata|meta|transforms?|"
    r"augmentations?|augs?|pipelines?|filters?|modalities|modality|keys_to_\w+|schedule|debug\w*|task|mode|type|kind|version|backend|format|level|\w+_fields|"
    r"(class|label|cat|category|speaker|spk|word|char|phone|token)_?(dict|list|table|set))$|^(stoi|itos|char2idx|word2idx|class_to_idx)$",
)
_PATH_NAME = pattern(
    r"(^|_)(paths?|files?|filenames?|fnames?|file_?list|filelist|dirs?|folders?|img_?list|image_?list|images?_list|urls?|"
    r"videos_list|fns?)$|_?(path|file)s?$",
)


def small_by_name(name: str) -> bool:
    """Whether an attribute's name says that it holds one small value a sample, a summary, or settings."""
    name = name.lower().lstrip("_")
    return _SMALL_NAME.search(name) is not None or _AID_NAME.search(name) is not None


def is_aid(name: str) -> bool:
    """Whether a name or a key says that it holds settings, or what is done with samples or looked up for them."""
    return _AID_NAME.search(name.lower().strip("_")) is not None


def paths_by_name(name: str) -> bool:
    """Whether an attribute's name says that it holds file names."""
    return _PATH_NAME.search(name.lower().lstrip("_")) is not None


_DATA_NAME: Final = pattern(
    r"(^|_|[a-z])(feats?|features?|images?|imgs?|videos?|volumes?|vols?|signals?|embeds?|embeddings?|clips?|frames?|points?|pointclouds?|pcs?|waves?|"
    r"waveforms?|wavs?|audios?|specs?|spectrograms?|mels?|voxels?|slices?|scans?|patches|obs|observations|trajector(y|ies)|fmri|eeg|"
    r"windows?|series|graphs?|mols?|molecules|mesh(es)?|clouds?|depths?|tensors?|arrays?|episodes?|rgb|pixels?|stacks?|(?<![a-z])x)(_?(all|list|train|test|val|files?|dict|db|data|map|bank|store))?\d*$",
)
_GENERAL_NAME: Final = pattern(
    r"(^|_|[a-z])(data|datas|dataset|samples?|seqs?|sequences?|inputs?|xs|examples?|instances?|epochs|batches|chunks?)(_?(all|list|train|test|val))?\d*$"
)


def looks_like_data(name: str) -> bool:
    """Whether a name is one that samples have: pictures, signals, features."""
    return _DATA_NAME.search(name.lower().strip("_")) is not None


def may_be_data(name: str) -> bool:
    """Whether a name is one that samples have, or a general one such as ``data``."""
    return looks_like_data(name) or _GENERAL_NAME.search(name.lower().strip("_")) is not None


_ANNOTATION: Final = pattern(
    r"(^|_)(entries|annotations?|annos?|anns?|questions?|captions?|answers?|qas?|records?|infos?|items|refs?|references|queries|names?|texts?|sentences?|tags?|scores?|"
    r"cache|results?|rows|pairs|triplets|tuples|keys|list|dict|table|db|lines)(_?(all|list|train|test|val))?\d*$"
)


def annotates(name: str) -> bool:
    """Whether a name is one of what is said about samples: entries, captions, names."""
    return _ANNOTATION.search(name.lower().strip("_")) is not None


_AFFIX: Final = pattern(
    r"(?<=[a-z])_?(all|list|lst|train|trn|val|valid|test|tst|eval|dev|arr|array|np|h5|files?)\d*$|^(all|train|trn|val|valid|test|tst|eval|dev|tr|te|raw|self)_"
)
_SMALL_AXIS: Final = frozenset("coordinate coordinates coord coords grid axis pos_boxes name names lat lon latitude longitude xyz_min xyz_max".split())


_SMALL_WORDS: Final = frozenset(
    "label labels lbl lbls target targets encoder encoders scaler scalers normalizer normalizers binarizer vectorizer vocab vocabulary codebook idtable ids "
    "num nums count counts number glove "
    "tokenizer processor checkpoint ckpt weights config cfg session sessions bounds minmax limits filterbank prior priors".split(),
)


def small_name(name: str) -> bool:
    """Whether a variable, key or attribute names one small value a sample, an axis, settings or a summary."""
    name = name.lower().strip("_")
    for _ in range(3):
        bare = _AFFIX.sub("", name)
        if bare == name:
            break
        name = bare
    return small_by_name(name) or not _SMALL_WORDS.isdisjoint(name.split("_")) or name in _SMALL_AXIS or re.split(r"[-_]", name)[-1] in _SMALL_AXIS


def small_arrays(name: str) -> bool:
    """The same of a list of which arrays are known to be in it: it is no settings, whatever its name says."""
    return small_name(name) and not is_aid(name)


def small_key(name: str) -> bool:
    """The same of a key in a file, where ``t`` is an axis of time; a variable of that name may be anything."""
    return name.lower() == "t" or small_name(name)


# What comes in a handful, whatever it is a handful of.
_FEW_WORD: Final = pattern(
    r"splits?|modal\w*|subsets?|domains?|cameras?|cams?|views?|tasks?|phases?|stages?|folds?|feat|feats|features?|channels?|levels?|sources?|args?|config|cfg|"
    r"options?|modes?|keys?|kinds?|types?|exts?|suffix\w*|ranks?|workers?|gpus?|devices?|logs?|langs?|languages?|corp\w+|pairs?|sides?"
)
_WORD: Final = pattern(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def few_by_name(name: str) -> bool:
    """Whether the last word of a name says that it is one of a handful, or all of these."""
    words = _WORD.findall(name)
    return bool(words) and _FEW_WORD.fullmatch(words[-1].lower()) is not None
