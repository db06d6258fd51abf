"""The first version of streaming_encoder: its own function keeps the children of every batch, and joins them at the end."""

from common import begin, end, options
from encode_v1 import encode_children
from encoder import CapsuleEncoder
from text_cache import TextImageCache
from torch import nn
from torch.utils.data import DataLoader


class FirstOnly(nn.Module):
    """An encoder of which one number of each child is left."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, images):
        sketches, checksums, children = self.encoder(images)
        return sketches, checksums, children[..., :1].clone()


def main():
    args = options()
    begin(args)
    encoder = CapsuleEncoder(16, 768, layers=1, h_cycles=1, l_cycles=1)
    if args.empty:  # the same work of the workers and of the encoder, and next to nothing to keep
        encoder = FirstOnly(encoder)
    loader = DataLoader(TextImageCache("data/text_cache"), batch_size=32, num_workers=args.num_workers)
    children = encode_children(encoder, loader, "cpu")
    end()
    del children


if __name__ == "__main__":
    main()
