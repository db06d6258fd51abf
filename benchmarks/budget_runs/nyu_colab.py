"""The notebook of nyu_colab: its own factory, on frames of the real size."""

from common import begin, end, options, passes
from nyu.loaders import create_nyu_dataloaders


def main():
    args = options()
    begin(args)
    path = "empty/nyu_depth_v2.h5" if args.empty else "data/nyu_depth_v2.h5"
    train_loader, val_loader = create_nyu_dataloaders(path, batch_size=8, num_workers=args.num_workers)
    for loader in (train_loader, val_loader):
        for _ in passes(loader, 1):
            pass
    end()


if __name__ == "__main__":
    main()
