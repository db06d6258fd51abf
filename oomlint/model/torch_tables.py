"""What the functions and methods of torch, numpy and Python do to a value's state. Checked by running torch 2.13.0."""

from __future__ import annotations

import re
from typing import Final

from oomlint.patterns import pattern
from oomlint.scout.telling_names import NamePattern

# Methods of text that neither tensors nor arrays of NumPy have (asked of torch 2.13.0 and NumPy 2.4).
OF_TEXT: Final = frozenset(name for name in (*dir(str), *dir(bytes)) if not name.startswith("_")) - {"index", "partition", "split"}
# Methods whose result is a Python value, or says nothing of the data.
PLAIN_METHODS: Final = OF_TEXT | frozenset(
    "item tolist size dim numel nelement stride storage_offset data_ptr is_floating_point is_cuda get_device element_size ndimension type_as_str "
    "__len__ keys __str__ is_contiguous".split(),
)
PLAIN_ATTRIBUTES: Final = frozenset("shape dtype device ndim nbytes is_cuda requires_grad layout size grad_fn names is_leaf itemsize".split())
# Results with no gradient: indices, comparisons, whole numbers.
SMALL_METHODS: Final = frozenset(
    "argmax argmin argsort eq ne ge gt le lt long int short byte nonzero bool isnan isinf isfinite all any bincount unique".split()
)
SMALL_FUNCTIONS: Final = frozenset(
    "argmax argmin argsort eq ne ge gt le lt nonzero isnan isinf isfinite bincount unique equal allclose is_tensor randint randperm arange where_indices "
    "searchsorted bucketize histc count_nonzero".split(),
)
# Of these, what takes one axis away, and what gives one truth value for each number; by name for functions, methods and NumPy alike.
PICKS: Final = frozenset({"argmax", "argmin"})
COMPARES: Final = frozenset("eq ne ge gt le lt isnan isinf isfinite logical_and logical_or logical_not".split())
# Results with (values, indices).
PAIRS: Final = frozenset("topk sort max min kthvalue mode median cummax cummin".split())
REDUCTIONS: Final = frozenset("sum mean std var norm prod logsumexp nansum nanmean".split())
VIEWS: Final = frozenset(
    "view reshape squeeze unsqueeze permute transpose t expand flatten unflatten narrow select chunk split unbind view_as expand_as swapaxes ravel "
    "contiguous detach_as diagonal unfold movedim swapdims".split(),
)
AXIS_ORDERS: Final = frozenset("permute transpose swapaxes swapdims movedim".split())  # views that name axes, and prove that there are so many
TO_DEVICE: Final = frozenset({"cuda", "xpu", "npu", "mps", "hpu"})
CASTS: Final = frozenset({"float", "double", "half", "bfloat16", "type", "astype", "type_as"})
# Layers whose result has as many axes as their name says, batch and channels included: `Conv2d` gives four.
AXES: Final = pattern(
    r"^(?:Lazy)?(?:Conv|ConvTranspose|BatchNorm|InstanceNorm|MaxPool|AvgPool|MaxUnpool|ReflectionPad|ReplicationPad|Dropout|ZeroPad)([23])d$|^(?:PixelShuffle|Upsampling\w+)()$"
    r"|^(?:Lazy)?(?:Conv|ConvTranspose|MaxPool|AvgPool)(1)d$"
)
# Layers that give an array for each sample: (samples, steps, width).
SEQUENCES: Final = frozenset(
    {"RNN", "LSTM", "GRU", "MultiheadAttention", "Transformer", *(f"Transformer{part}{one}" for part in ("Encoder", "Decoder") for one in ("", "Layer"))}
)
# Fields of what networks of transformers give that are such an array, and those that are a tuple of them, one for each layer.
STATES: Final = frozenset({"last_hidden_state", "encoder_last_hidden_state"})
STATES_OF_LAYERS: Final = frozenset({"hidden_states", "encoder_hidden_states", "decoder_hidden_states"})
# Layers of torch that keep their parameters as attributes of these names.
WEIGHTED: Final = pattern(r"^torch\.nn\.(?:Lazy)?(?:Conv(?:Transpose)?[123]d|Linear|Bilinear|Embedding(?:Bag)?|(?:Batch|Instance|Layer|Group|RMS)Norm\w*)$")
WEIGHTS: Final = frozenset({"weight", "bias"})
# Libraries whose modules give a map for each image.
MAPS: Final = ("torchvision.models.segmentation.", "segmentation_models_pytorch.")
# Loss functions and other modules without parameters, by the end or the whole of their class name.
PARAMETERLESS: Final = pattern(
    r"Loss$|^(ReLU\d?|LeakyReLU|GELU|SiLU|ELU|SELU|Sigmoid|Tanh|Softmax\dd|Softmax|LogSoftmax|Softplus|Softsign|Hardtanh|Hardswish|Hardsigmoid|Mish|CELU|GLU"
    r"|Dropout\w*|AlphaDropout|MaxPool\dd|AvgPool\dd|AdaptiveAvgPool\dd|AdaptiveMaxPool\dd|Upsample|UpsamplingBilinear2d|UpsamplingNearest2d|PixelShuffle"
    r"|Flatten|Unflatten|Identity|ZeroPad2d|ReflectionPad\dd|ReplicationPad\dd|ConstantPad\dd|CosineSimilarity|PairwiseDistance|Fold|Unfold)$",
)
# Layers whose numbers differ in the last bits (or more) without gradients: they take another path (torch 2.13, run).
FAST_PATH: Final = pattern(
    r"Transformer|MultiheadAttention|LSTM|vit_|swin|ViT|Swin|maxvit|scaled_dot_product|flash_attn|xformers|is_grad_enabled|\.requires_grad\b|grad_fn|checkpoint\("
)
LOSS_NAME: Final = NamePattern(
    r"(^|_)(loss|losses|criterion|criterions|criteria|objective|nll|mse|bce|cross_entropy|kld|kl_div|l1|l2|elbo|penalty|regularizer|rmse|mae)(_|\d|$)"
    r"|loss(es|_?fn|_?func|_?f|er)?\d*$|[a-z]Loss|^Loss|Criterion",
)
SCALAR_NAME: Final = NamePattern(
    r"loss(es)?\d*$|^loss|_loss_|(^|_)(nll|elbo|ppl|perplexity|kld|mse|bce|ce|acc|accuracy|correct|total|count|n|num)(_|\d|$)", re.IGNORECASE
)
# By convention one small value a sample: labels, classes, identifiers (the catalogue, section 0).
SMALL_NAME: Final = NamePattern(
    r"(^|_)(labels?|lbls?|targets?|tgts?|y|ys|y_?true|y_?test|y_?val|class|classes|cls|ids?|idx|index|indices|indexes|split|lengths?|lens?|offsets?|mean|std|gt_?labels?|truths?"
    r"|names?|paths?|files?|filenames?|keys?|uids?|pids?|camids?|domains?|subjects?|dates?|ages?|scores?_?id|acc|accs|accuracy|correct|corrects|true_?labels?|gts?_cls|topk?)(_|\d|$)",
    re.IGNORECASE,
)
# Whole numbers and strings by their name.
INTEGRAL_NAME: Final = NamePattern(
    r"(^|_)(labels?|targets?|ids?|idx|idxs|index|indices|lengths?|lens?|sizes?|names?|paths?|counts?|sort_ind|order|perm)(_|\d|$)", re.IGNORECASE
)
# Among the small ones, what is left of all samples.
SUMMARY_NAME: Final = NamePattern(r"(^|_)(mean|std)(_|\d|$)", re.IGNORECASE)
DENSE_NAME: Final = NamePattern(
    r"(^|_)(outputs?|outs?|logits?|feats?|features?|embeds?|embeddings?|embs?|images?|imgs?|masks?|boxes|bboxes|recons?|reconstructions?|latents?|hiddens?"
    r"|attn|attentions?|maps?|heatmaps?|activations?|frames?|points?|pcs?|clouds?|waves?|wavs?|mels?|spec|specs|samples?|depths?|flows?|vectors?|codes?|z|zs|h|hs|x|xs|preds?_?masks?)(_|\d|$)",
    re.IGNORECASE,
)
MODULE_NAME: Final = NamePattern(
    r"^(model|net|network|encoder|decoder|generator|discriminator|net_?[a-z]|backbone|classifier|actor|critic|policy|unet|transformer|lstm|gru|rnn|bert|resnet"
    r"|autoencoder|vae|gan|student|segmentor|detector|regressor|extractor|projector|predictor|embedder|denoiser|seg_?model|cnn|mlp|gnn|gcn|vit|ddp_model|raw_model|base_model)\d*$"
    r"|_(model|net|network|encoder|decoder|generator|discriminator|backbone|classifier|head)\d*$|^(teacher|student|head|disc|gen|[GDEQ])$"
    # What is said of a module, made for it, or comes out of it, is none: `model_class`, `net_args`, `encoder_outputs`.
    r"|^(model|net|encoder|decoder)_(?!(class|cls|type|fn|func|names?|args|kwargs|params|config|cfg|opts?|paths?|dir|files?|ids?|keys?|sizes?|dims?|builder|factory"
    r"|inputs?|out|outputs?|preds?|hiddens?|states?|dict|list|zoo|mask|loss|losses|time|device|results?|logits?|feats?|features?|optimizer|opt|lr)$)[a-z0-9]+$",
)
OF_NUMBERS: Final = NamePattern(r"sched|scaler|sampler|metric|meter|early_stop", re.IGNORECASE)  # their states are numbers
FROZEN_NAME: Final = NamePattern(
    r"teacher|(^|_)ema(_|$)|momentum|frozen|(^|_)(first_stage|ref_model|reward_model|target_net)(_|$|\d)",
    re.IGNORECASE,
)
BACKWARD_NAME: Final = NamePattern(
    r"backward|(^|_)back_?prop|optimi[sz]e(_|$)|^(loss_)?scaler$|_scaler$|apply_grad|update_params|train_on_batch|optim_step|step_optim"
)
# Calls that take a tensor and let it go again.
HARMLESS_CALL: Final = pattern(
    r"^(print|len|isinstance|type|float|int|str|repr|format|round|info|debug|warning|log|write|set_postfix|set_description|add_scalar|add_scalars|isnan|assert_\w+)$"
)
# Libraries whose functions give arrays or numbers of the host and keep nothing.
HOST_LIBRARIES: Final = tuple("sklearn. scipy. pandas. cv2. PIL. skimage. nltk. json. csv. os. math. time. random. logging. re. statistics. librosa.".split())
# What scikit-learn computes of all samples at once: the endings are its convention for metrics that are one number.
SCORES: Final = pattern(r"sklearn\.metrics\.(\w+_(score|loss|error|deviance|coef)|auc)$")
# Libraries and functions that make networks with parameters.
TRAINABLE_FACTORIES: Final = tuple(
    "torchvision.models. timm.create_model timm.models. segmentation_models_pytorch. torch.hub.load torch.jit.load transformers. torch_geometric.nn. "
    "efficientnet_pytorch. pretrainedmodels. open_clip. monai.networks. diffusers.".split()
)
