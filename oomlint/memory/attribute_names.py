"""What the name of an attribute says of its content, by convention."""

from __future__ import annotations

import re

# One small value a sample, or a summary.
_SMALL_NAME = re.compile(
    r"(^|_)(labels?|targets?|y|class|classes|ids?|index|indices|idx(?:e?s)?|inds?|split|splits|lengths?|lens?|offsets?|mean|std|attrs|vocab|vocabulary|"
    r"tokenizer|dictionary|config|cfg|args|opt|opts|options|params|hparams|mapping|map|lookup|weights?|sampler|metadata|meta|stats?|sizes?|shapes?|"
    r"anchors?|colors?|palette|categories|cats|ix|perm|permutation|order|fold|folds|columns|transforms?|augmentations?|augs?|pipelines?|cumulative\w*|cumsum|"
    r"filters?|modalities|modality|channels|bands|keys_to_\w+|metrics?|losses|schedule|debug\w*|task|mode|type|kind|version|backend|format|level|\w+_fields|(class|label|cat|category|speaker|spk|word|char|phone|token)_?(dict|list|table|set))$|(2|_to_)(idx|id|ind|index|ix|label|name|word|cls|class|int|str|shard|split|path|file)s?$|"
    r"^(stoi|itos|char2idx|word2idx|class_to_idx)$",
)
_PATH_NAME = re.compile(
    r"(^|_)(paths?|files?|filenames?|fnames?|file_?list|filelist|dirs?|folders?|img_?list|image_?list|images?_list|urls?|"
    r"videos_list|fns?)$|_?(path|file)s?$",
)


def small_by_name(name: str) -> bool:
    """Whether an attribute's name says that it holds one small value a sample, or a summary."""
    return _SMALL_NAME.search(name.lower().lstrip("_")) is not None


def paths_by_name(name: str) -> bool:
    """Whether an attribute's name says that it holds file names."""
    return _PATH_NAME.search(name.lower().lstrip("_")) is not None
