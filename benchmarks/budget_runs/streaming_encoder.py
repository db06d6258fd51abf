"""The first version of streaming_encoder: its own function keeps the children of every batch, and joins them at the end."""

import time

import numpy as np
from common import begin, end, options
from encode_v1 import encode_children
from encoder import CapsuleEncoder
from text_cache import TextImageCache
from torch.utils.data import DataLoader


join = np.concatenate


def slowly(arrays):
    """Join arrays, and wait until a reading from outside has met the joined one beside the others."""
    joined = join(arrays)
    time.sleep(1)
    return joined


def main():
    args = options()
    begin(args)
    # The empty run has a model of next to nothing, and as many steps: the collector of its workers, too, goes over all that they have of the main process.
    encoder = CapsuleEncoder(16, 8 if args.empty else 768, layers=1, h_cycles=1, l_cycles=1)
    loader = DataLoader(TextImageCache("data/text_cache"), batch_size=32, num_workers=args.num_workers, persistent_workers=args.num_workers > 0)
    np.concatenate = slowly
    children = encode_children(encoder, loader, "cpu")
    end(6)  # until a reading with proportional shares has met what the collector of the workers has made them copy
    del children


if __name__ == "__main__":
    main()
